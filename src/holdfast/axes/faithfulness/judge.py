"""Scores of removal: what the sweeps and the random masks of a shard say of each explainer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from holdfast.axes.faithfulness import curves, sweeps
from holdfast.axes.faithfulness import mask_bank as maskbank
from holdfast.axes.faithfulness.curves import Readout
from holdfast.axes.faithfulness.kinds import KINDS
from holdfast.axes.faithfulness.removals import Column, Labelled, Shared, labelled, strip
from holdfast.axes.faithfulness.sweeps import Order, needs_kept
from holdfast.features import Tokens
from holdfast.maps.undefined import NOT_FINITE, reasons
from holdfast.models.modality import modality
from holdfast.types import OK, UNDEFINED, Exhibit, Scores, Subject, label_of

if TYPE_CHECKING:
    from holdfast.axes.faithfulness.evaluation import Faithfulness

BANKED = ("infidelity", "sensitivity_n", "faithfulness_correlation")
"""Metrics that are read from one bank of random masks."""
STRIP = 5
"""How many steps of a removal the gallery shows, beside the untouched image."""

NO_LABEL, NOTHING_LEFT = "the sample has no label", "nothing would be kept"
UNVARIED = "the map or the output does not vary over the masks"


def judge(axis: Faithfulness, subject: Subject) -> Iterator[Scores | Exhibit]:
    """Curves, summaries and pictures of an axis that suits the data, explainer by explainer."""
    shared = _share(axis, subject)
    lost = ["" if ok else NOT_FINITE for ok in torch.isfinite(shared.clean).all(1).tolist()]
    for number, explainer in enumerate(subject.explainers):
        values = _importance(axis, subject, explainer, axis.absolute)
        why = tuple(a or b for a, b in zip(lost, reasons(values, "the map"), strict=True))
        status = torch.tensor([UNDEFINED if reason else OK for reason in why], dtype=torch.int64)
        column = Column(explainer, (status == OK).nonzero().flatten(), status, why)
        yield from _curves(axis, subject, shared, column, values)
        if "irof" in axis.wanted:
            yield from _irof(axis, subject, shared, column, values)
        if set(BANKED) & set(axis.wanted):
            yield from _banked(axis, subject, shared, column, number)


def _share(axis: Faithfulness, subject: Subject) -> Shared:
    batch = subject.batch
    clean = subject.predict(batch)
    label = torch.full_like(subject.target, -1) if batch.label is None else batch.label.to(subject.target)
    truth = label if axis.against == "label" else subject.target
    start = {name: value[:, 0] for name, value in curves.readouts(clean[:, None], subject.target, truth).items()}
    pixels, segments = labelled(axis.features, batch), None
    drawn, drawn_irof, bank = {}, None, None
    everyone = torch.arange(len(batch))
    if "random" in axis.orders:
        for imputer in axis.imputers:
            drawn[label_of(imputer)] = _sweep(axis, subject, clean, everyone, None, pixels, "random", imputer)[0]
    if {"irof", *BANKED} & set(axis.wanted):
        segments = labelled(axis.segments, batch)
        if "irof" in axis.wanted and "random" in axis.orders:
            drawn_irof = _sweep(axis, subject, clean, everyone, None, segments, "random", axis.baseline)[0]
        if set(BANKED) & set(axis.wanted):
            bank = _fill_bank(axis, subject, clean, *segments)
    return Shared(clean, start, truth, pixels, segments, drawn, drawn_irof, bank)


def _fill_bank(
    axis: Faithfulness, subject: Subject, clean: Tensor, segments: Tensor, counts: Tensor
) -> tuple[Tensor, maskbank.Bank] | None:
    """The samples with more than one segment and their bank; None if there are none."""
    place = (counts > 1).nonzero().flatten()
    if not len(place):
        return None
    rows = place.cpu()
    maps = torch.stack([_importance(axis, subject, e)[place] for e in subject.explainers])
    some = (subject.batch[rows], subject.target[rows], clean[rows], segments[place], maps.nan_to_num(0, 0, 0))
    baseline = _ready(axis, axis.baseline, subject)
    sizes = (axis.masks, axis.subsets, subject.seed, counts[place])
    return rows, maskbank.fill_bank(subject.predict, *some, baseline, *sizes)


def _importance(axis: Faithfulness, subject: Subject, explainer: str, absolute: bool = False) -> Tensor:
    return sweeps.importance(subject.clean(explainer), absolute, tokens=isinstance(axis.features, Tokens))


def _ready(axis: Faithfulness, imputer: Any, subject: Subject) -> Any:
    return sweeps.bound(imputer, subject.references.x, axis.features)


def _sweep(
    axis: Faithfulness,
    subject: Subject,
    clean: Tensor,
    rows: Tensor,
    values: Tensor | None,
    labelled: Labelled,
    order: Order,
    imputer: Any,
) -> tuple[Tensor, Tensor]:
    """`sweeps.removal` of some samples of the shard."""
    place = rows.to(labelled[0].device)
    return sweeps.removal(
        subject.predict,
        subject.batch[rows],
        clean[rows],
        None if values is None else values[place],
        labelled[0][place],
        labelled[1][place],
        axis.fractions,
        order,
        _ready(axis, imputer, subject),
        subject.seed,
    )


def _curves(
    axis: Faithfulness, subject: Subject, shared: Shared, column: Column, values: Tensor
) -> Iterator[Scores | Exhibit]:
    rows = column.rows
    target, truth = subject.target[rows], shared.truth[rows]
    start = {name: value[rows] for name, value in shared.start.items()}
    for imputer in axis.imputers:
        label, found = label_of(imputer), dict[str, dict[Readout, Tensor]]()
        lost = _missing(axis, subject, shared.pixels, rows, imputer)
        missing = dict.fromkeys(shared.start, lost)
        missing["accuracy"] = [NO_LABEL if t < 0 else why for t, why in zip(truth.tolist(), lost, strict=True)]
        for order in axis.orders:
            if order == "random":
                logits = shared.random[label][rows]
            else:
                logits, ranks = _sweep(axis, subject, shared.clean, rows, values, shared.pixels, order, imputer)
            found[order] = curves.readouts(logits, target, truth)
            for name, curve in found[order].items():
                for s, fraction in enumerate(axis.fractions):
                    yield column(name, f"{label} {order}", fraction, curve[:, s], missing[name])
            if order == "morf" and imputer is axis.imputers[0]:
                of_class = (start["probability"], found[order]["probability"])
                yield from strip(subject, column, imputer, axis.fractions, ranks, *of_class, STRIP)
        for measure, value in curves.summaries(found, axis.fractions, start, axis.readout).items():
            if measure.removesuffix("_random") in axis.wanted:
                kind: Readout = axis.readout if measure.startswith(("road", "aopc")) else "probability"
                yield column(measure, label, 0.0, value, missing[kind])


def _missing(axis: Faithfulness, subject: Subject, labelled: Labelled, rows: Tensor, imputer: Any) -> list[str]:
    """Why a number of each row would be missing."""
    counts = labelled[1].cpu()[rows]
    gone = sweeps.removal_sizes(axis.fractions, counts)[:, -1] >= counts
    empty = gone & needs_kept(_ready(axis, imputer, subject), subject.batch.x.shape[1:])
    return [NOTHING_LEFT if nothing else NOT_FINITE for nothing in empty.tolist()]


def _irof(axis: Faithfulness, subject: Subject, shared: Shared, column: Column, values: Tensor) -> Iterator[Scores]:
    assert shared.segments is not None  # as irof is wanted
    rows = column.rows
    sweep = _sweep(axis, subject, shared.clean, rows, values, shared.segments, "morf", axis.baseline)
    found = {"irof": sweep[0]}
    if shared.random_irof is not None:
        found["irof_random"] = shared.random_irof[rows]
    alone = shared.segments[1].cpu()[rows] < 2
    lost = _missing(axis, subject, shared.segments, rows, axis.baseline)
    missing = [_one_segment(subject) if one else why for one, why in zip(alone.tolist(), lost, strict=True)]
    for name, logits in found.items():
        curve = curves.readouts(logits, subject.target[rows])["probability"]
        value = curves.irof(axis.fractions, curve, shared.start["probability"][rows])
        yield column(name, label_of(axis.baseline), 0.0, value.masked_fill(alone, torch.nan), missing)


def _banked(axis: Faithfulness, subject: Subject, shared: Shared, column: Column, number: int) -> Iterator[Scores]:
    names = [("infidelity", 0.0), ("infidelity_scaled", 0.0), ("faithfulness_correlation", 0.0)]
    names += [("sensitivity_n", size) for size in axis.subsets]
    missing, found = [_one_segment(subject)] * len(shared.clean), dict[tuple[str, float], Tensor]()
    if shared.bank is not None:
        rows, bank = shared.bank
        for i, finite in zip(rows.tolist(), torch.isfinite(bank.drop).all(1).tolist(), strict=True):
            missing[i] = UNVARIED if finite else NOT_FINITE
        for key, value in maskbank.scores(bank, number, shared.clean[rows].abs().amax(1).double()).items():
            found[key] = torch.full((len(missing),), torch.nan, dtype=torch.float64).index_copy(0, rows, value)
    nothing = torch.full((len(missing),), torch.nan, dtype=torch.float64)
    reasons_here = [missing[i] for i in column.rows.tolist()]
    for name, level in names:
        if name.removesuffix("_scaled") in axis.wanted:
            value = found.get((name, level), nothing)[column.rows]
            yield column(name, label_of(axis.baseline), level, value, reasons_here)


def _one_segment(subject: Subject) -> str:
    kind = modality(subject.model, subject.batch)
    return f"the {KINDS['text' if kind == 'token ids' else kind].sample} is one segment"

"""Removal scores: what the sweeps and the random masks of a shard say of each explainer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from heatproof.axes.faithfulness import curves, mask_bank, realism, sweeps
from heatproof.axes.faithfulness.curves import Readout
from heatproof.axes.faithfulness.kinds import KINDS
from heatproof.axes.faithfulness.sweeps import Order, needs_kept
from heatproof.evaluation import Condition, Exhibit, Scores, Subject
from heatproof.features import Tokens, count, fixed, spread
from heatproof.maps.undefined import NOT_FINITE, reasons
from heatproof.models.modality import modality
from heatproof.removal import OwnBaseline
from heatproof.types import Batch, label_of

if TYPE_CHECKING:
    from heatproof.axes.faithfulness.evaluation import Faithfulness

BANKED = ("infidelity", "sensitivity_n", "faithfulness_correlation")
"""Metrics that are read from one bank of random masks."""
SWEPT_TOGETHER = 1024
"""Versions of samples up to which explainers are swept together: a few full passes on a GPU."""
STRIP = 5
"""How many steps of a removal the gallery shows, beside the untouched image."""

NO_LABEL, NOTHING_LEFT = "the sample has no label", "nothing would be kept"
UNVARIED = "the map or the output does not vary over the masks"
FEW = f"the data set has fewer than {realism.FEWEST} samples"

Swept = dict[Order, tuple[Tensor, Tensor]]
"""Logits (rows, fractions, classes) of an order, and when each pixel goes, (rows, H, W)."""
Orders = Sequence[Order]
AxisResult = Sequence["Explained"]
Labelled = tuple[Tensor, Tensor]
"""Labels (B, H, W) of features and how many each sample has, (B,); a label from that number on is never removed."""


@dataclass(frozen=True)
class Explained:
    """One explainer's maps of a shard: which `rows` have one, their `values` (R, H, W), and why others have none."""

    explainer: str
    rows: Tensor
    why: tuple[str, ...]
    values: Tensor

    def column(
        self,
        measure: str,
        where: Condition,
        value: Tensor,
        missing: Sequence[str],
        imputer: str,
        order: str = "",
    ) -> Scores:
        """A full column from the values of the rows; `missing` says row by row why a number is not there."""
        scores = Scores.column(
            self.explainer, measure, where, value, self.why, rows=self.rows, missing=missing
        )
        return replace(scores, imputer=imputer, order=order)


@dataclass(frozen=True)
class Shared:
    """What does not depend on the explainer, for all samples of the shard."""

    clean: Tensor
    start: dict[Readout, Tensor]
    truth: Tensor
    pixels: Labelled
    segments: Labelled | None
    random: dict[str, Tensor]
    told_apart: dict[str, Tensor]
    random_irof: dict[str, Tensor]
    banks: dict[str, tuple[Tensor, mask_bank.Bank, list[str]]]


def labelled(features: Any, batch: Batch) -> Labelled:
    """The features of a batch that may be removed: those that a grouping keeps, as special tokens, come last.

    >>> labels, counts = labelled(Tokens(special=(1,), mask_token=3), Batch(("a",), torch.tensor([[1, 7, 8]])))
    >>> labels.tolist(), counts.tolist()
    ([[2, 0, 1]], [2])
    """
    segments = features.segments(batch).to(batch.x.device)
    kept = fixed(features, batch)
    if kept is None:
        return segments, count(segments)
    renumbered = torch.where(kept, kept.shape[1] - 1, (~kept).cumsum(1) - 1)
    exists = torch.arange(kept.shape[1], device=kept.device) < count(segments)[:, None]
    return spread(renumbered, segments), (~kept & exists).sum(1)


def removal_scores(axis: Faithfulness, subject: Subject) -> Iterator[Scores | Exhibit]:
    """Curves, summaries and pictures of an axis that suits the data, explainer by explainer.

    Explainers whose sweeps are small are swept together, so that imputations and passes come in full batches.
    """
    shared = _share(axis, subject)
    lost = ["" if ok else NOT_FINITE for ok in torch.isfinite(shared.clean).all(1).tolist()]
    names, orders = (
        list(subject.explainers),
        tuple(order for order in axis.orders if order != "random"),
    )
    together = max(
        1, SWEPT_TOGETHER // max(1, len(subject.batch) * len(axis.fractions) * len(orders))
    )
    for start in range(0, len(names), together):
        judged = list[Explained]()
        for name in names[start : start + together]:
            values = _importance(axis, subject, name, axis.absolute)
            why = tuple(a or b for a, b in zip(lost, reasons(values, "the map"), strict=True))
            rows = torch.tensor([i for i, reason in enumerate(why) if not reason]).long()
            judged.append(Explained(name, rows, why, values[rows.to(values.device)]))
        given = (axis, subject, shared.clean, judged, shared.pixels, orders)
        swept = [_sweep(*given, imputer) for imputer in axis.imputers if orders]
        segmented = _segmented(axis, subject, shared, judged) if "irof" in axis.wanted else {}
        for explained in judged:
            yield from _curves(
                axis, subject, shared, explained, [found[explained.explainer] for found in swept]
            )
            if segmented:
                yield from _irof(axis, subject, shared, explained, segmented[explained.explainer])
            if set(BANKED) & set(axis.wanted):
                yield from _banked(axis, subject, shared, explained)


def _share(axis: Faithfulness, subject: Subject) -> Shared:
    batch = subject.batch
    clean = subject.predict(batch)
    label = (
        torch.full_like(subject.target, -1)
        if batch.label is None
        else batch.label.to(subject.target)
    )
    truth = label if axis.against == "label" else subject.target
    read = curves.readouts(clean[:, None], subject.target, truth, subject.model.task, clean)
    start = {name: value[:, 0] for name, value in read.items()}
    pixels, segments = labelled(axis.features, batch), None
    drawn, told, drawn_irof, banks = {}, {}, {}, {}
    nobody = [
        Explained(
            "", torch.arange(len(batch)), (), torch.zeros_like(pixels[0], dtype=torch.float64)
        )
    ]
    for imputer in axis.imputers if "random" in axis.orders else ():
        name = label_of(imputer)
        if len(subject.drawn(realism.POPULATION)) >= realism.FEWEST:
            drawn[name], told[name] = _told_apart(axis, subject, imputer, pixels)
        else:
            drawn[name] = _sweep(axis, subject, clean, nobody, pixels, ("random",), imputer)[""][
                "random"
            ][0]
    if {"irof", *BANKED} & set(axis.wanted):
        segments = labelled(axis.segments, batch)
        users: dict[str, list[str]] = {}
        for explainer in subject.explainers:
            users.setdefault(label_of(_baseline(axis, subject, explainer)), []).append(explainer)
        for name, own in users.items():
            fill = _baseline(axis, subject, own[0])
            if "irof" in axis.wanted and "random" in axis.orders:
                drawn_irof[name] = _sweep(
                    axis, subject, clean, nobody, segments, ("random",), fill
                )[""]["random"][0]
            filled = (
                _fill_bank(axis, subject, clean, *segments, fill, own)
                if set(BANKED) & set(axis.wanted)
                else None
            )
            if filled is not None:
                banks[name] = (*filled, own)
    return Shared(clean, start, truth, pixels, segments, drawn, told, drawn_irof, banks)


def _baseline(axis: Faithfulness, subject: Subject, explainer: str) -> Any:
    """What takes the place of segments when an explainer is judged: by default what it measures against itself."""
    if isinstance(axis.baseline, OwnBaseline):
        return axis.baseline.of(
            subject.explainers[explainer], subject.model.mean, subject.model.std
        )
    return axis.baseline


def _told_apart(
    axis: Faithfulness, subject: Subject, imputer: Any, pixels: Labelled
) -> tuple[Tensor, Tensor]:
    """Logits (B, S, classes) after a random removal, and each sample's part in telling filled from real, (B, S).

    Both are read from the same passes, as features are taken beside the logits.
    """

    def see(batch: Batch) -> Tensor:
        model, none = subject.model, torch.zeros(len(batch))
        return subject.compute(
            lambda b, _: realism.outputs_and_features(model, b.to(model.device)), batch, none
        ).cpu()

    def swept(batch: Batch, labels: Labelled) -> tuple[Tensor, Tensor]:
        clean, ready = see(batch), _ready(axis, imputer, subject)
        orders: tuple[Order, ...] = ("random",)
        given = (see, batch, clean, None, *labels, axis.fractions)
        return clean, sweeps.removal(*given, orders, ready, subject.seed)[0][0]

    def peers() -> tuple[Batch, Tensor, Tensor]:
        batch = subject.drawn(realism.POPULATION).to(pixels[0].device)
        return (batch, *swept(batch, labelled(axis.features, batch)))

    key = ("told apart", label_of(imputer), label_of(axis.features), axis.fractions)
    known, known_clean, known_filled = subject.once(key, peers)
    clean, filled = swept(subject.batch, pixels)
    classes = subject.predict(subject.batch).shape[1]
    real, theirs, ids, seed = (
        clean[:, classes:],
        known_clean[:, classes:],
        subject.batch.ids,
        subject.seed,
    )
    pairs = [
        (filled[:, s, classes:], known_filled[:, s, classes:]) for s in range(len(axis.fractions))
    ]
    parts = [
        realism.told_apart(real, own, ids, (theirs, peer), known.ids, seed) for own, peer in pairs
    ]
    return filled[..., :classes], torch.stack(parts, 1)


def _fill_bank(
    axis: Faithfulness,
    subject: Subject,
    clean: Tensor,
    segments: Tensor,
    counts: Tensor,
    fill: Any,
    own: list[str],
) -> tuple[Tensor, mask_bank.Bank] | None:
    """The samples with more than one segment and the bank of some explainers; None if there are none."""
    place = (counts > 1).nonzero().flatten()
    rows = place.cpu()
    if not len(rows):
        return None
    maps = torch.stack([_importance(axis, subject, e)[place] for e in own])
    some = (
        subject.batch[rows],
        subject.target[rows],
        clean[rows],
        segments[place],
        maps.nan_to_num(0, 0, 0),
    )
    given = (_ready(axis, fill, subject), axis.masks, axis.subsets, subject.seed, counts[place])
    return rows, mask_bank.fill_bank(subject.predict, *some, *given)


def _importance(
    axis: Faithfulness, subject: Subject, explainer: str, absolute: bool = False
) -> Tensor:
    return sweeps.importance(
        subject.clean(explainer), absolute, tokens=isinstance(axis.features, Tokens)
    )


def _ready(axis: Faithfulness, imputer: Any, subject: Subject) -> Any:
    return sweeps.bound(imputer, subject.references.x, axis.features)


def _sweep(
    axis: Faithfulness,
    subject: Subject,
    clean: Tensor,
    judged: AxisResult,
    what: Labelled,
    orders: Orders,
    imputer: Any,
) -> dict[str, Swept]:
    """`sweeps.removal` of several explainers at once, each for the rows that have a map."""
    rows, values = (
        torch.cat(parts) for parts in zip(*((e.rows, e.values) for e in judged), strict=True)
    )
    place, ready = rows.to(what[0].device), _ready(axis, imputer, subject)
    given = (
        subject.predict,
        subject.batch[rows],
        clean[rows],
        values,
        what[0][place],
        what[1][place],
    )
    found = sweeps.removal(*given, axis.fractions, orders, ready, subject.seed)
    parts = [torch.split(part, [len(explained.rows) for explained in judged], 1) for part in found]
    pairs = (zip(logits, ranks, strict=True) for logits, ranks in zip(*parts, strict=True))
    return {
        e.explainer: dict(zip(orders, pair, strict=True))
        for e, pair in zip(judged, pairs, strict=True)
    }


def _segmented(
    axis: Faithfulness, subject: Subject, shared: Shared, judged: AxisResult
) -> dict[str, Swept]:
    """The sweeps of segments, together for the explainers that share a baseline."""
    assert shared.segments is not None  # as irof is wanted
    fills = {e.explainer: _baseline(axis, subject, e.explainer) for e in judged}
    found = dict[str, Swept]()
    for label, fill in {label_of(fill): fill for fill in fills.values()}.items():
        own = [e for e in judged if label_of(fills[e.explainer]) == label]
        found |= _sweep(axis, subject, shared.clean, own, shared.segments, ("morf",), fill)
    return found


def _curves(
    axis: Faithfulness,
    subject: Subject,
    shared: Shared,
    explained: Explained,
    swept: Sequence[Swept],
) -> Iterator[Scores | Exhibit]:
    rows = explained.rows
    target, truth = subject.target[rows], shared.truth[rows]
    start = {name: value[rows] for name, value in shared.start.items()}
    shown: Readout = "probability" if "probability" in start else "logit"
    chosen = axis.readout or shown
    for number, imputer in enumerate(axis.imputers):
        label, read = label_of(imputer), dict[str, dict[Readout, Tensor]]()
        lost = _missing(axis, subject, shared.pixels, rows, imputer)
        missing = dict.fromkeys(shared.start, lost)
        missing["accuracy"] = [
            NO_LABEL if t < 0 else why for t, why in zip(truth.tolist(), lost, strict=True)
        ]
        for order in axis.orders:
            logits = shared.random[label][rows] if order == "random" else swept[number][order][0]
            read[order] = curves.readouts(
                logits, target, truth, subject.model.task, shared.clean[rows]
            )
            for name, curve in read[order].items():
                for s, fraction in enumerate(axis.fractions):
                    where = (f"{label} {order}", fraction)
                    yield explained.column(name, where, curve[:, s], missing[name], label, order)
            if order == "morf" and not number:
                of_class = torch.cat([start[shown][:, None], read[order][shown]], 1)
                yield from _strip(
                    subject, explained, imputer, axis.fractions, swept[number][order][1], of_class
                )
        told = shared.told_apart.get(label)
        for s, fraction in enumerate(axis.fractions if "random" in axis.orders else ()):
            value = torch.full((len(rows),), torch.nan) if told is None else told[rows, s]
            why = [FEW] * len(rows) if told is None else lost
            yield explained.column(
                "detectability", (f"{label} random", fraction), value, why, label, "random"
            )
        for measure, value in curves.summaries(read, axis.fractions, start, chosen).items():
            if measure.removesuffix("_random") in axis.wanted:
                kind: Readout = chosen if measure.startswith(("road", "aopc")) else shown
                yield explained.column(measure, (label, 0.0), value, missing[kind], label)


def _missing(
    axis: Faithfulness, subject: Subject, labelled: Labelled, rows: Tensor, imputer: Any
) -> list[str]:
    """Why a number of each row would be missing."""
    counts = labelled[1].cpu()[rows]
    gone = sweeps.removal_sizes(axis.fractions, counts)[:, -1] >= counts
    empty = gone & needs_kept(_ready(axis, imputer, subject))
    return [NOTHING_LEFT if nothing else NOT_FINITE for nothing in empty.tolist()]


def _irof(
    axis: Faithfulness, subject: Subject, shared: Shared, explained: Explained, swept: Swept
) -> Iterator[Scores]:
    assert shared.segments is not None  # as irof is wanted
    rows, logits_of = explained.rows, {"irof": swept["morf"][0]}
    fill = _baseline(axis, subject, explained.explainer)
    if label_of(fill) in shared.random_irof:
        logits_of["irof_random"] = shared.random_irof[label_of(fill)][rows]
    baseline = label_of(axis.baseline)
    alone = shared.segments[1].cpu()[rows] < 2
    lost = _missing(axis, subject, shared.segments, rows, fill)
    missing = [
        _one_segment(subject) if one else why for one, why in zip(alone.tolist(), lost, strict=True)
    ]
    for name, logits in logits_of.items():
        curve = curves.readouts(logits, subject.target[rows], task=subject.model.task)[
            "probability"
        ]
        value = curves.irof(axis.fractions, curve, shared.start["probability"][rows])
        value = value.masked_fill(alone, torch.nan)
        yield explained.column(name, (baseline, 0.0), value, missing, baseline)


def _banked(
    axis: Faithfulness, subject: Subject, shared: Shared, explained: Explained
) -> Iterator[Scores]:
    names = [("infidelity", 0.0), ("infidelity_scaled", 0.0), ("faithfulness_correlation", 0.0)]
    names += [("sensitivity_n", size) for size in axis.subsets]
    missing = [_one_segment(subject)] * len(shared.clean)
    nothing = torch.full((len(missing),), torch.nan, dtype=torch.float64)
    values: dict[tuple[str, float], Tensor] = {}
    filled = shared.banks.get(label_of(_baseline(axis, subject, explained.explainer)))
    if filled is not None:
        rows, bank, users = filled
        number = users.index(explained.explainer)
        for i, finite in zip(rows.tolist(), torch.isfinite(bank.drop).all(1).tolist(), strict=True):
            missing[i] = UNVARIED if finite else NOT_FINITE
        for key, value in mask_bank.scores(
            bank, number, shared.clean[rows].abs().amax(1).double()
        ).items():
            values[key] = nothing.index_copy(0, rows, value)
    baseline, lost = label_of(axis.baseline), [missing[i] for i in explained.rows.tolist()]
    for name, level in names:
        if name.removesuffix("_scaled") in axis.wanted:
            value = values.get((name, level), nothing)[explained.rows]
            yield explained.column(name, (baseline, level), value, lost, baseline)


def _one_segment(subject: Subject) -> str:
    return f"the {KINDS[modality(subject.model, subject.batch)].sample} is one segment"


def _strip(
    subject: Subject,
    explained: Explained,
    imputer: Any,
    fractions: Sequence[float],
    ranks: Tensor,
    read: Tensor,
) -> Iterator[Exhibit]:
    """The showcase's images as their most important pixels go, and the probability of their class; of images only.

    `ranks` (R, H, W) and the probability `read` (R, 1 + fractions), first of the whole image, belong to the rows with a
    map; at most STRIP of the fractions are pictured, beside the untouched image.
    """
    if subject.batch.x.ndim not in (4, 5):
        return
    levels, last = (0.0, *fractions), len(fractions) - 1
    steps = sorted({0, *(1 + int(last * i / (STRIP - 1) + 0.5) for i in range(STRIP))})
    pictured = [
        at
        for at, i in enumerate(explained.rows.tolist())
        if subject.batch.ids[i] in subject.showcase
    ]
    pairs = [
        (at, s)
        for at in pictured
        for s in steps
        if not s or (levels[s] and bool(read[at, s].isfinite()))
    ]
    if not pairs:
        return
    rows, taken = (list(each) for each in zip(*pairs, strict=True))
    sizes = sweeps.removal_sizes(levels, ranks[rows].flatten(1).amax(1) + 1)[
        range(len(pairs)), taken
    ]
    kept, batch = (
        ranks[rows] >= sizes.reshape(-1, *[1] * (ranks.ndim - 1)),
        subject.batch[explained.rows[rows]],
    )
    filled = sweeps.bound(imputer, subject.references.x, None)(
        batch.x, kept, batch.ids, subject.seed
    )
    for n, (at, s) in enumerate(pairs):
        picture, mask = (filled[n], kept[n : n + 1].float()) if s else (batch.x[n], None)
        said = f"{subject.model.class_name(int(subject.target[explained.rows[at]]))} {float(read[at, s]):.2f}"
        where = (f"{label_of(imputer)} morf", levels[s])
        yield Exhibit(explained.explainer, *where, batch.ids[n], picture, mask, said)

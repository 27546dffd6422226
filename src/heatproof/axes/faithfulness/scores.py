"""Removal scores: what the sweeps and the random masks of a shard say of each explainer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from heatproof.axes.faithfulness import curves, mask_bank, realism, sweeps
from heatproof.axes.faithfulness.curves import Readout
from heatproof.axes.faithfulness.sweeps import Order, needs_kept
from heatproof.evaluation import Condition, GalleryImage, Scores
from heatproof.features import Tokens, count, fixed, spread
from heatproof.kinds import kind_of
from heatproof.maps.undefined import NOT_FINITE, reasons
from heatproof.removal import OwnBaseline
from heatproof.subject import Subject
from heatproof.types import Batch, label_of

if TYPE_CHECKING:
    from heatproof.axes.faithfulness.evaluation import Faithfulness

BANKED = ("infidelity", "sensitivity_n", "faithfulness_correlation")
"""Metrics that are read from one bank of random masks."""
CORRELATIONS = ("sensitivity_n", "faithfulness_correlation")
"""Metrics that are 0 for a map without merit."""
SWEPT_TOGETHER = 1024
"""Versions of samples up to which explainers are swept together: a few full passes on a GPU."""
STRIP = 5
"""How many steps of a removal the gallery shows, beside the untouched image."""

NO_LABEL, NOTHING_LEFT = "the sample has no label", "nothing would be kept"
UNVARIED = "the map or the output does not vary over the masks"
FEW = f"the data set has fewer than {realism.FEWEST} samples"
NO_CHANCE = "the prediction after a random removal is not finite"


class Features(NamedTuple):
    """What may be removed from B samples: `labels` (B, H, W), and how many features each sample has, `counts` (B,).

    A label from that number on is never removed.
    """

    labels: Tensor
    counts: Tensor


class Removed(NamedTuple):
    """A sweep of R maps in one order: logits (R, S, K) at each fraction, and when each pixel goes, `ranks` (R, H, W)."""

    logits: Tensor
    ranks: Tensor


Swept = Mapping[Order, Removed]
Readouts = Mapping[Readout, Tensor]
"""What is read off a table at each fraction, (R, S)."""


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
        chance: Tensor | None = None,
    ) -> Scores:
        """Return a full column from the values and the chance levels of the rows.

        `missing` says row by row why a number is not there.
        """
        scores = Scores.column(
            self.explainer,
            measure,
            where,
            value,
            self.why,
            rows=self.rows,
            missing=missing,
            chance=chance,
        )
        why_no_chance = tuple(NO_CHANCE if reason else "" for reason in scores.chance_reason)
        return replace(scores, imputer=imputer, order=order, chance_reason=why_no_chance)


@dataclass(frozen=True)
class Bank:
    """One bank of random masks of some `rows` of a shard, with the maps of the explainers that share its filling."""

    rows: Tensor
    masks: mask_bank.Bank
    explainers: Sequence[str]


@dataclass(frozen=True)
class Shard:
    """A shard of B samples, and all that does not depend on the explainer.

    `clean` (B, K) is what the model says of whole samples, `start` what is read off it, and `truth` (B,) the class
    that accuracy is against. `random` has the logits (B, S, K) after a random removal of pixels, by imputer, and
    `random_segments` those after a random removal of segments, by baseline. `told_apart` (B, S) is each sample's part
    in telling filled inputs from real ones, by imputer.
    """

    axis: Faithfulness
    subject: Subject
    clean: Tensor
    start: Mapping[Readout, Tensor]
    truth: Tensor
    pixels: Features
    segments: Features | None
    random: Mapping[str, Tensor]
    told_apart: Mapping[str, Tensor]
    random_segments: Mapping[str, Tensor]
    banks: Mapping[str, Bank]


def labelled(features: Any, batch: Batch) -> Features:
    """The features of a batch that may be removed: those that a grouping keeps, as special tokens, come last.

    >>> labels, counts = labelled(Tokens(special=(1,), mask_token=3), Batch(("a",), torch.tensor([[1, 7, 8]])))
    >>> labels.tolist(), counts.tolist()
    ([[2, 0, 1]], [2])
    """
    segments = features.segments(batch).to(batch.x.device)
    kept = fixed(features, batch)
    if kept is None:
        return Features(segments, count(segments))
    renumbered = torch.where(kept, kept.shape[1] - 1, (~kept).cumsum(1) - 1)
    exists = torch.arange(kept.shape[1], device=kept.device) < count(segments)[:, None]
    return Features(spread(renumbered, segments), (~kept & exists).sum(1))


def removal_scores(axis: Faithfulness, subject: Subject) -> Iterator[Scores | GalleryImage]:
    """Curves, summaries and pictures of an axis that suits the data, explainer by explainer.

    Explainers whose sweeps are small are swept together, so that imputations and passes come in full batches.
    """
    shard = _shard(axis, subject)
    orders = tuple(order for order in axis.orders if order != "random")
    versions_of_an_explainer = len(subject.batch) * len(axis.fractions) * len(orders)
    together = max(1, SWEPT_TOGETHER // max(1, versions_of_an_explainer))
    names = list(subject.explainers)
    for start in range(0, len(names), together):
        group = [_explained(shard, name) for name in names[start : start + together]]
        swept = [
            _sweep(shard, group, shard.pixels, orders, imputer)
            for imputer in axis.imputers
            if orders
        ]
        segmented = _segmented(shard, group) if "irof" in axis.wanted else {}
        for explained in group:
            yield from _of_curves(shard, explained, [found[explained.explainer] for found in swept])
            if segmented:
                yield _irof(shard, explained, segmented[explained.explainer])
            if set(BANKED) & set(axis.wanted):
                yield from _banked(shard, explained)


def _explained(shard: Shard, explainer: str) -> Explained:
    """The maps of an explainer that have a score, and why the others have none."""
    axis, subject = shard.axis, shard.subject
    values = _importance(axis, subject, explainer, axis.absolute)
    of_the_map = reasons(values, "the map")
    is_finite = torch.isfinite(shard.clean).all(1).tolist()
    of_the_prediction = ["" if finite else NOT_FINITE for finite in is_finite]
    why = tuple(a or b for a, b in zip(of_the_prediction, of_the_map, strict=True))
    rows = torch.tensor([i for i, reason in enumerate(why) if not reason]).long()
    return Explained(explainer, rows, why, values[rows.to(values.device)])


def _shard(axis: Faithfulness, subject: Subject) -> Shard:
    """Compute what all explainers of a shard share: random removals and banks of random masks."""
    batch = subject.batch
    clean = subject.predict(batch)
    truth = subject.target
    if axis.against == "label":
        unknown = torch.full_like(subject.target, -1)
        truth = unknown if batch.label is None else batch.label.to(subject.target)
    read = curves.readouts(clean[:, None], subject.target, truth, subject.model.task, clean)

    pixels = labelled(axis.features, batch)
    random: dict[str, Tensor] = {}
    told_apart: dict[str, Tensor] = {}
    enough = len(subject.draw_samples(realism.POPULATION)) >= realism.FEWEST
    for imputer in axis.imputers if "random" in axis.orders else ():
        name = label_of(imputer)
        if enough:
            random[name], told_apart[name] = _told_apart(axis, subject, imputer, pixels)
        else:
            random[name] = _random_removal(axis, subject, clean, pixels, imputer)

    segments = None
    random_segments: dict[str, Tensor] = {}
    banks: dict[str, Bank] = {}
    if {"irof", *BANKED} & set(axis.wanted):
        segments = labelled(axis.segments, batch)
        for name, explainers in _explainers_by_baseline(axis, subject).items():
            fill = _baseline(axis, subject, explainers[0])
            if "irof" in axis.wanted and "random" in axis.orders:
                random_segments[name] = _random_removal(axis, subject, clean, segments, fill)
            if set(BANKED) & set(axis.wanted):
                bank = _fill_bank(axis, subject, clean, segments, fill, explainers)
                if bank is not None:
                    banks[name] = bank
    return Shard(
        axis,
        subject,
        clean,
        {name: value[:, 0] for name, value in read.items()},
        truth,
        pixels,
        segments,
        random,
        told_apart,
        random_segments,
        banks,
    )


def _baseline(axis: Faithfulness, subject: Subject, explainer: str) -> Any:
    """What takes the place of segments when an explainer is scored: by default what it measures against itself."""
    if isinstance(axis.baseline, OwnBaseline):
        return axis.baseline.of(
            subject.explainers[explainer], subject.model.mean, subject.model.std
        )
    return axis.baseline


def _explainers_by_baseline(axis: Faithfulness, subject: Subject) -> dict[str, list[str]]:
    """The explainers that share a baseline, by its label."""
    found: dict[str, list[str]] = {}
    for explainer in subject.explainers:
        found.setdefault(label_of(_baseline(axis, subject, explainer)), []).append(explainer)
    return found


def _random_removal(
    axis: Faithfulness, subject: Subject, clean: Tensor, features: Features, imputer: Any
) -> Tensor:
    """Logits (B, S, K) after the features went in a random order."""
    logits, _ = sweeps.removal(
        subject.predict,
        subject.batch,
        clean,
        None,
        *features,
        axis.fractions,
        ("random",),
        _ready(axis, imputer, subject),
        subject.seed,
    )
    return logits[0]


def _told_apart(
    axis: Faithfulness, subject: Subject, imputer: Any, pixels: Features
) -> tuple[Tensor, Tensor]:
    """Logits (B, S, K) after a random removal, and each sample's part in telling filled from real, (B, S).

    Both are read from the same passes, as features are taken beside the logits.
    """

    def logits_and_features(batch: Batch) -> Tensor:
        model = subject.model
        return subject.compute(
            lambda some, _: realism.outputs_and_features(model, some.to(model.device)),
            batch,
            torch.zeros(len(batch)),
        ).cpu()

    def swept(batch: Batch, features: Features) -> tuple[Tensor, Tensor]:
        clean = logits_and_features(batch)
        filled, _ = sweeps.removal(
            logits_and_features,
            batch,
            clean,
            None,
            *features,
            axis.fractions,
            ("random",),
            _ready(axis, imputer, subject),
            subject.seed,
        )
        return clean, filled[0]

    def population() -> tuple[Batch, Tensor, Tensor]:
        batch = subject.draw_samples(realism.POPULATION).to(pixels.labels.device)
        return (batch, *swept(batch, labelled(axis.features, batch)))

    key = ("told apart", label_of(imputer), label_of(axis.features), axis.fractions)
    peers, peers_clean, peers_filled = subject.compute_once(key, population)
    clean, filled = swept(subject.batch, pixels)
    classes = subject.logits.shape[1]
    parts = [
        realism.told_apart(
            clean[:, classes:],
            filled[:, step, classes:],
            subject.batch.ids,
            (peers_clean[:, classes:], peers_filled[:, step, classes:]),
            peers.ids,
            subject.seed,
        )
        for step in range(len(axis.fractions))
    ]
    return filled[..., :classes], torch.stack(parts, 1)


def _fill_bank(
    axis: Faithfulness,
    subject: Subject,
    clean: Tensor,
    features: Features,
    fill: Any,
    explainers: Sequence[str],
) -> Bank | None:
    """The bank of the samples with more than one segment; None if there are none."""
    place = (features.counts > 1).nonzero().flatten()
    rows = place.cpu()
    if not len(rows):
        return None
    maps = torch.stack([_importance(axis, subject, e)[place] for e in explainers])
    masks = mask_bank.fill_bank(
        subject.predict,
        subject.batch[rows],
        subject.target[rows],
        clean[rows],
        features.labels[place],
        maps.nan_to_num(0, 0, 0),
        _ready(axis, fill, subject),
        axis.masks,
        axis.subsets,
        subject.seed,
        features.counts[place],
    )
    return Bank(rows, masks, explainers)


def _importance(
    axis: Faithfulness, subject: Subject, explainer: str, absolute: bool = False
) -> Tensor:
    return sweeps.importance(
        subject.maps(explainer), absolute, tokens=isinstance(axis.features, Tokens)
    )


def _ready(axis: Faithfulness, imputer: Any, subject: Subject) -> Any:
    """The imputer with the reference samples and features that it may need."""
    return sweeps.bound(imputer, subject.references.batch.x, axis.features)


def _sweep(
    shard: Shard,
    group: Sequence[Explained],
    features: Features,
    orders: Sequence[Order],
    imputer: Any,
) -> dict[str, Swept]:
    """`sweeps.removal` of several explainers at once, each for the rows that have a map, by explainer."""
    axis, subject = shard.axis, shard.subject
    rows = torch.cat([explained.rows for explained in group])
    place = rows.to(features.labels.device)
    logits, ranks = sweeps.removal(
        subject.predict,
        subject.batch[rows],
        shard.clean[rows],
        torch.cat([explained.values for explained in group]),
        features.labels[place],
        features.counts[place],
        axis.fractions,
        orders,
        _ready(axis, imputer, subject),
        subject.seed,
    )
    sizes = [len(explained.rows) for explained in group]
    found: dict[str, Swept] = {}
    for explained, own_logits, own_ranks in zip(
        group, torch.split(logits, sizes, 1), torch.split(ranks, sizes, 1), strict=True
    ):
        found[explained.explainer] = {
            order: Removed(own_logits[i], own_ranks[i]) for i, order in enumerate(orders)
        }
    return found


def _segmented(shard: Shard, group: Sequence[Explained]) -> dict[str, Swept]:
    """The sweeps of segments, together for the explainers that share a baseline."""
    assert shard.segments is not None  # as irof is wanted
    found: dict[str, Swept] = {}
    for explainers in _explainers_by_baseline(shard.axis, shard.subject).values():
        own = [explained for explained in group if explained.explainer in explainers]
        if own:
            fill = _baseline(shard.axis, shard.subject, explainers[0])
            found |= _sweep(shard, own, shard.segments, ("morf",), fill)
    return found


def _of_curves(
    shard: Shard, explained: Explained, swept: Sequence[Swept]
) -> Iterator[Scores | GalleryImage]:
    """Curves of every imputer, what is read from them, and the pictures of the first imputer."""
    axis = shard.axis
    for number, imputer in enumerate(axis.imputers):
        label = label_of(imputer)
        logits: dict[str, Tensor] = {}
        for order in axis.orders:
            if order == "random":
                logits[order] = shard.random[label][explained.rows]
            else:
                logits[order] = swept[number][order].logits
        read = {order: _read(shard, explained.rows, table) for order, table in logits.items()}
        missing = _missing_by_readout(shard, explained.rows, imputer)
        yield from _curves(shard, explained, label, read, missing)
        if number == 0 and "morf" in read:
            yield from _strip(shard, explained, imputer, swept[0]["morf"].ranks, read["morf"])
        if "random" in axis.orders:
            yield from _detectability(shard, explained, label, missing["logit"])
        yield from _summaries(shard, explained, label, read, missing)
        if "road_morf_accuracy" in axis.wanted:
            yield from _road_accuracy(shard, explained, label, read, missing["accuracy"])


def _read(shard: Shard, rows: Tensor, logits: Tensor) -> Readouts:
    """What can be read off the logits (R, S, K) of some rows."""
    subject = shard.subject
    return curves.readouts(
        logits, subject.target[rows], shard.truth[rows], subject.model.task, shard.clean[rows]
    )


def _missing_by_readout(shard: Shard, rows: Tensor, imputer: Any) -> dict[Readout, list[str]]:
    """Why a number of each row would be missing, by what it is read from."""
    lost = _missing(shard, shard.pixels, rows, imputer)
    missing = dict.fromkeys(shard.start, lost)
    has_label = (shard.truth[rows] >= 0).tolist()
    missing["accuracy"] = [
        why if known else NO_LABEL for why, known in zip(lost, has_label, strict=True)
    ]
    return missing


def _missing(shard: Shard, features: Features, rows: Tensor, imputer: Any) -> list[str]:
    """Why a number of each row would be missing."""
    axis = shard.axis
    counts = features.counts.cpu()[rows]
    all_go = sweeps.removal_sizes(axis.fractions, counts)[:, -1] >= counts
    empty = all_go & needs_kept(_ready(axis, imputer, shard.subject))
    return [NOTHING_LEFT if nothing else NOT_FINITE for nothing in empty.tolist()]


def _curves(
    shard: Shard,
    explained: Explained,
    imputer: str,
    read: Mapping[str, Readouts],
    missing: Mapping[Readout, Sequence[str]],
) -> Iterator[Scores]:
    """The points of the curves in the orders of the map, with the random order as their chance."""
    at_random = read.get("random")
    for order, curve_of in read.items():
        if order == "random":
            continue
        for name, curve in curve_of.items():
            for step, fraction in enumerate(shard.axis.fractions):
                chance = None if at_random is None else at_random[name][:, step]
                where = (f"{imputer} {order}", fraction)
                yield explained.column(
                    name, where, curve[:, step], missing[name], imputer, order, chance
                )


def _road_accuracy(
    shard: Shard,
    explained: Explained,
    imputer: str,
    read: Mapping[str, Readouts],
    missing: Sequence[str],
) -> Iterator[Scores]:
    """The accuracy after MoRF at every fraction, as in Tables 5 and 6 of the ROAD paper, under its own name."""
    for step, fraction in enumerate(shard.axis.fractions):
        value = read["morf"]["accuracy"][:, step]
        chance = read["random"]["accuracy"][:, step] if "random" in read else None
        yield explained.column(
            "road_morf_accuracy", (imputer, fraction), value, missing, imputer, chance=chance
        )


def _detectability(
    shard: Shard, explained: Explained, imputer: str, missing: Sequence[str]
) -> Iterator[Scores]:
    """Each sample's part in telling filled inputs from real ones, after a random removal."""
    told_apart = shard.told_apart.get(imputer)
    for step, fraction in enumerate(shard.axis.fractions):
        if told_apart is None:
            value = torch.full((len(explained.rows),), torch.nan)
            why: Sequence[str] = [FEW] * len(explained.rows)
        else:
            value, why = told_apart[explained.rows, step], missing
        where = (f"{imputer} random", fraction)
        yield explained.column("detectability", where, value, why, imputer, "random")


def _summaries(
    shard: Shard,
    explained: Explained,
    imputer: str,
    read: Mapping[str, Readouts],
    missing: Mapping[Readout, Sequence[str]],
) -> Iterator[Scores]:
    """What the curves of one imputer say in one number."""
    axis = shard.axis
    start = {name: value[explained.rows] for name, value in shard.start.items()}
    usual = _shown_readout(shard)
    chosen = axis.readout or usual
    for measure, summary in curves.summaries(read, axis.fractions, start, chosen).items():
        if measure in axis.wanted:
            readout = chosen if measure in ("road", "aopc") else usual
            yield explained.column(
                measure,
                (imputer, 0.0),
                summary.value,
                missing[readout],
                imputer,
                chance=summary.chance,
            )


def _shown_readout(shard: Shard) -> Readout:
    """The probability, or of a task that has none the explained number."""
    return "probability" if "probability" in shard.start else "logit"


def _irof(shard: Shard, explained: Explained, swept: Swept) -> Scores:
    """IROF, with that of a random order of segments as its chance."""
    assert shard.segments is not None  # as irof is wanted
    axis, rows = shard.axis, explained.rows
    fill = _baseline(axis, shard.subject, explained.explainer)
    is_one_segment = shard.segments.counts.cpu()[rows] < 2

    def irof(logits: Tensor) -> Tensor:
        curve = _read(shard, rows, logits)["probability"]
        value = curves.irof(axis.fractions, curve, shard.start["probability"][rows])
        return value.masked_fill(is_one_segment, torch.nan)

    random = shard.random_segments.get(label_of(fill))
    baseline = label_of(axis.baseline)
    missing = [
        _one_segment(shard.subject) if one else why
        for one, why in zip(
            is_one_segment.tolist(), _missing(shard, shard.segments, rows, fill), strict=True
        )
    ]
    return explained.column(
        "irof",
        (baseline, 0.0),
        irof(swept["morf"].logits),
        missing,
        baseline,
        chance=None if random is None else irof(random[rows]),
    )


def _banked(shard: Shard, explained: Explained) -> Iterator[Scores]:
    """What the bank of random masks says of a map; the chance of its correlations is 0."""
    axis, subject = shard.axis, shard.subject
    missing = [_one_segment(subject)] * len(shard.clean)
    nothing = torch.full((len(shard.clean),), torch.nan, dtype=torch.float64)
    values: dict[tuple[str, float], Tensor] = {}
    bank = shard.banks.get(label_of(_baseline(axis, subject, explained.explainer)))
    if bank is not None:
        is_finite = torch.isfinite(bank.masks.drop).all(1).tolist()
        for row, finite in zip(bank.rows.tolist(), is_finite, strict=True):
            missing[row] = UNVARIED if finite else NOT_FINITE
        number = bank.explainers.index(explained.explainer)
        scale = shard.clean[bank.rows].abs().amax(1).double()
        for where, value in mask_bank.scores(bank.masks, number, scale).items():
            values[where] = nothing.index_copy(0, bank.rows, value)

    names = [("infidelity", 0.0), ("infidelity_scaled", 0.0), ("faithfulness_correlation", 0.0)]
    names += [("sensitivity_n", size) for size in axis.subsets]
    baseline, lost = label_of(axis.baseline), [missing[i] for i in explained.rows.tolist()]
    for name, level in names:
        if name.removesuffix("_scaled") in axis.wanted:
            value = values.get((name, level), nothing)[explained.rows]
            chance = torch.zeros_like(value) if name in CORRELATIONS else None
            yield explained.column(name, (baseline, level), value, lost, baseline, chance=chance)


def _one_segment(subject: Subject) -> str:
    return f"the {kind_of(subject.model, subject.batch).sample} is one segment"


def _strip(
    shard: Shard, explained: Explained, imputer: Any, ranks: Tensor, read: Readouts
) -> Iterator[GalleryImage]:
    """The showcase's images as their most important pixels go, and the probability of their class; of images only.

    `ranks` (R, H, W) and what is `read` at each fraction, (R, S), belong to the rows with a map; at most STRIP of the
    fractions are pictured, beside the untouched image.
    """
    subject = shard.subject
    if subject.batch.x.ndim not in (4, 5):
        return
    shown = _shown_readout(shard)
    of_class = torch.cat([shard.start[shown][explained.rows][:, None], read[shown]], 1)
    levels = (0.0, *shard.axis.fractions)
    last = len(levels) - 2
    steps = sorted({0, *(1 + int(last * i / (STRIP - 1) + 0.5) for i in range(STRIP))})
    pictures: list[tuple[int, int]] = []
    for at, row in enumerate(explained.rows.tolist()):
        if subject.batch.ids[row] not in subject.gallery_ids:
            continue
        for step in steps:
            if step == 0 or (levels[step] and bool(of_class[at, step].isfinite())):
                pictures.append((at, step))
    if not pictures:
        return

    places = [at for at, _ in pictures]
    batch, ranks = subject.batch[explained.rows[places]], ranks[places]
    sizes_of_steps = sweeps.removal_sizes(levels, ranks.flatten(1).amax(1) + 1)
    sizes = sizes_of_steps[range(len(pictures)), [step for _, step in pictures]]
    kept = ranks >= sizes.reshape(-1, *[1] * (ranks.ndim - 1))
    ready = sweeps.bound(imputer, subject.references.batch.x, None)
    filled = ready(batch.x, kept, batch.ids, subject.seed)
    for n, (at, step) in enumerate(pictures):
        picture, mask = (filled[n], kept[n : n + 1].float()) if step else (batch.x[n], None)
        target = int(subject.target[explained.rows[at]])
        note = f"{subject.model.class_name(target)} {float(of_class[at, step]):.2f}"
        where = (f"{label_of(imputer)} morf", levels[step])
        yield GalleryImage(explained.explainer, *where, batch.ids[n], picture, mask, note)

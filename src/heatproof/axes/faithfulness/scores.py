"""Removal scores: what the removal sweeps and the random masks of a shard say about each explainer."""

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
"""Metrics that are 0 for an uninformative map."""
SWEPT_TOGETHER = 1024
"""Versions of samples up to which explainers are swept together: a few full passes on a GPU."""
STRIP = 5
"""How many steps of a removal the gallery shows, beside the untouched image."""

NO_LABEL, NOTHING_LEFT = "the sample has no label", "nothing would be kept"
UNVARIED = "the map or the output does not vary over the masks"
FEW = f"the data set has fewer than {realism.FEWEST} samples"
NO_CHANCE = "the prediction after a random removal is not finite"


class Features(NamedTuple):
    """What may be removed from B samples: the feature of each pixel, and how many features each sample has.

    A label (`labels` (B, H, W)) from `counts` (B,) on is never removed.
    """

    labels: Tensor
    counts: Tensor


class Removed(NamedTuple):
    """A sweep of R maps in one order: logits (R, S, K) at each fraction, and when each pixel goes, `ranks` (R, H, W)."""

    logits: Tensor
    ranks: Tensor


Swept = Mapping[Order, Removed]
Readouts = Mapping[Readout, Tensor]
"""What is read off the logits at each fraction, (R, S)."""


@dataclass(frozen=True)
class Explained:
    """One explainer's maps of a shard: which `rows` (R,) have one, and their `values` (R, H, W).

    `reason` has an entry per sample of the shard: why it has no map, "" where it has one.
    """

    explainer: str
    rows: Tensor
    reason: tuple[str, ...]
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
        """Return the scores of all samples from the values (R,), and chance levels (R,), of the rows that have a map.

        `missing` has for each of those rows the reason to give if its value is not finite. The other samples get the
        reason why they have no map.
        """
        scores = Scores.column(
            self.explainer,
            measure,
            where,
            value,
            self.reason,
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

    `clean` (B, K) are the logits of whole samples, `start` what is read off them, and `truth` (B,) the class that
    accuracy is against. `random` has the logits (B, S, K) after a random removal of pixels, by imputer, and
    `random_segments` those after a random removal of segments, by baseline. `detectability` (B, S) is each sample's
    part in telling filled inputs from real ones, by imputer. `banks` are the random masks, by baseline.
    """

    axis: Faithfulness
    subject: Subject
    clean: Tensor
    start: Mapping[Readout, Tensor]
    truth: Tensor
    pixels: Features
    segments: Features | None
    random: Mapping[str, Tensor]
    detectability: Mapping[str, Tensor]
    random_segments: Mapping[str, Tensor]
    banks: Mapping[str, Bank]


def labelled(features: Any, batch: Batch) -> Features:
    """Return the features of samples that may be removed: a label per position, and how many there are in each sample.

    `features` groups positions into features, such as pixels into patches. A feature that is always kept, such as a
    special token of a text, gets a label that is not below the count.

    >>> labels, counts = labelled(Tokens(special=(1,), mask_token=3), Batch(("a",), torch.tensor([[1, 7, 8]])))
    >>> labels.tolist(), counts.tolist()
    ([[2, 0, 1]], [2])
    """
    segments = features.segments(batch).to(batch.x.device)
    is_kept = fixed(features, batch)  # (B, n), by feature
    if is_kept is None:
        return Features(segments, count(segments))
    width = is_kept.shape[1]
    exists = torch.arange(width, device=is_kept.device) < count(segments)[:, None]
    number_removable = (~is_kept & exists).sum(1)
    # Removable features are numbered 0, 1, … in their order; those that are kept get the last label of all.
    removable_before = (~is_kept).cumsum(1) - 1
    new_labels = torch.where(is_kept, width - 1, removable_before)
    return Features(spread(new_labels, segments), number_removable)


def removal_scores(axis: Faithfulness, subject: Subject) -> Iterator[Scores | GalleryImage]:
    """Yield the scores of all explainers by removal: points of curves, metrics of curves, metrics of random masks.

    `axis` has the settings, configured for the data, and `subject` the samples, the model and the explainers. Explainers
    are processed several at a time where there are few samples, so that the model gets full batches.
    """
    shard = _shard(axis, subject)
    orders = tuple(order for order in axis.orders if order != "random")
    versions_of_an_explainer = len(subject.batch) * len(axis.fractions) * len(orders)
    together = max(1, SWEPT_TOGETHER // max(1, versions_of_an_explainer))
    names = list(subject.explainers)
    for start in range(0, len(names), together):
        group = [_explained(shard, name) for name in names[start : start + together]]
        sweeps_by_imputer: list[dict[str, Swept]] = []
        for imputer in axis.imputers if orders else ():
            sweeps_by_imputer.append(_sweep(shard, group, shard.pixels, orders, imputer))
        segmented = _segmented(shard, group) if "irof" in axis.wanted else {}
        for explained in group:
            name = explained.explainer
            swept = [by_explainer[name] for by_explainer in sweeps_by_imputer]
            yield from _scores_of_curves(shard, explained, swept)
            if segmented:
                yield _irof(shard, explained, segmented[name])
            if set(BANKED) & set(axis.wanted):
                yield from _banked(shard, explained)


def _explained(shard: Shard, explainer: str) -> Explained:
    """Return the maps of an explainer that can be scored, and for the other samples the reason why they cannot.

    The reason is that the model's output is not finite, or that the map is not finite or constant.
    """
    axis, subject = shard.axis, shard.subject
    values = _importance(axis, subject, explainer, axis.absolute)
    reason = reasons(values, "the map")
    for row, is_finite in enumerate(torch.isfinite(shard.clean).all(1).tolist()):
        if not is_finite:
            reason[row] = NOT_FINITE
    rows = torch.tensor([row for row, text in enumerate(reason) if not text]).long()
    return Explained(explainer, rows, tuple(reason), values[rows.to(values.device)])


def _shard(axis: Faithfulness, subject: Subject) -> Shard:
    """Return what all explainers of a shard share: predictions, random removals and banks of random masks."""
    batch = subject.batch
    clean = subject.predict(batch)
    truth = subject.target
    if axis.against == "label":
        no_label = torch.full_like(subject.target, -1)
        truth = no_label if batch.label is None else batch.label.to(subject.target)
    of_clean = curves.readouts(clean[:, None], subject.target, truth, subject.model.task, clean)

    pixels = labelled(axis.features, batch)
    random: dict[str, Tensor] = {}
    detectability: dict[str, Tensor] = {}
    if "random" in axis.orders:
        has_population = len(subject.draw_samples(realism.POPULATION)) >= realism.FEWEST
        for imputer in axis.imputers:
            name = label_of(imputer)
            if has_population:
                logits, parts = _random_removal_and_detectability(axis, subject, imputer, pixels)
                random[name], detectability[name] = logits, parts
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
        axis=axis,
        subject=subject,
        clean=clean,
        start={name: value[:, 0] for name, value in of_clean.items()},
        truth=truth,
        pixels=pixels,
        segments=segments,
        random=random,
        detectability=detectability,
        random_segments=random_segments,
        banks=banks,
    )


def _baseline(axis: Faithfulness, subject: Subject, explainer: str) -> Any:
    """Return what takes the place of segments for an explainer: by default what it measures contributions against."""
    if not isinstance(axis.baseline, OwnBaseline):
        return axis.baseline
    return axis.baseline.of(subject.explainers[explainer], subject.model.mean, subject.model.std)


def _explainers_by_baseline(axis: Faithfulness, subject: Subject) -> dict[str, list[str]]:
    """Return the explainers that share a baseline, by its label."""
    by_baseline: dict[str, list[str]] = {}
    for explainer in subject.explainers:
        label = label_of(_baseline(axis, subject, explainer))
        by_baseline.setdefault(label, []).append(explainer)
    return by_baseline


def _random_removal(
    axis: Faithfulness, subject: Subject, clean: Tensor, features: Features, imputer: Any
) -> Tensor:
    """Return logits (B, S, K) after features were removed in a random order."""
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


def _random_removal_and_detectability(
    axis: Faithfulness, subject: Subject, imputer: Any, pixels: Features
) -> tuple[Tensor, Tensor]:
    """Return what the model predicts after a random removal, and how well the filled-in samples are told from real ones.

    The first are logits (B, S, K) at S fractions, the second scores (B, S) whose means are areas under the ROC curve. Both
    are read from the same passes: the model's penultimate activations are taken beside its logits, and a classifier of
    real and filled inputs is fitted on those of a population of samples that is the same for all shards.
    """

    def logits_and_features(batch: Batch) -> Tensor:
        """Return the logits and penultimate activations (B, K + D) of a batch, on the CPU."""

        def forward(some: Batch, _: Tensor) -> Tensor:
            return realism.outputs_and_features(subject.model, some.to(subject.model.device))

        no_target = torch.zeros(len(batch))
        return subject.compute(forward, batch, no_target).cpu()

    def sweep(batch: Batch, removable: Features) -> tuple[Tensor, Tensor]:
        """Return logits and features of whole samples (B, K + D), and after a random removal (B, S, K + D)."""
        clean = logits_and_features(batch)
        filled, _ = sweeps.removal(
            logits_and_features,
            batch,
            clean,
            None,
            *removable,
            axis.fractions,
            ("random",),
            _ready(axis, imputer, subject),
            subject.seed,
        )
        return clean, filled[0]

    def sweep_population() -> tuple[Batch, Tensor, Tensor]:
        """Return the samples of the population, with the result of `sweep` for them."""
        batch = subject.draw_samples(realism.POPULATION).to(pixels.labels.device)
        return (batch, *sweep(batch, labelled(axis.features, batch)))

    key = ("told apart", label_of(imputer), label_of(axis.features), axis.fractions)
    peers, peers_clean, peers_filled = subject.compute_once(key, sweep_population)
    clean, filled = sweep(subject.batch, pixels)
    classes = subject.logits.shape[1]
    parts = []
    for step in range(len(axis.fractions)):
        of_step = realism.detection_scores(
            clean[:, classes:],
            filled[:, step, classes:],
            subject.batch.ids,
            (peers_clean[:, classes:], peers_filled[:, step, classes:]),
            peers.ids,
            subject.seed,
        )
        parts.append(of_step)
    return filled[..., :classes], torch.stack(parts, 1)


def _fill_bank(
    axis: Faithfulness,
    subject: Subject,
    clean: Tensor,
    features: Features,
    fill: Any,
    explainers: Sequence[str],
) -> Bank | None:
    """Return the bank of the samples with more than one segment, None if there are none."""
    rows_on_device = (features.counts > 1).nonzero().flatten()
    rows = rows_on_device.cpu()
    if not len(rows):
        return None
    maps = [_importance(axis, subject, name)[rows_on_device] for name in explainers]
    masks = mask_bank.fill_bank(
        subject.predict,
        subject.batch[rows],
        subject.target[rows],
        clean[rows],
        features.labels[rows_on_device],
        torch.stack(maps).nan_to_num(0, 0, 0),
        _ready(axis, fill, subject),
        axis.masks,
        axis.subsets,
        subject.seed,
        features.counts[rows_on_device],
    )
    return Bank(rows, masks, explainers)


def _importance(
    axis: Faithfulness, subject: Subject, explainer: str, absolute: bool = False
) -> Tensor:
    """Return the importance of each pixel of a shard, (B, H, W), by the maps of an explainer."""
    is_text = isinstance(axis.features, Tokens)
    return sweeps.importance(subject.maps(explainer), absolute, tokens=is_text)


def _ready(axis: Faithfulness, imputer: Any, subject: Subject) -> Any:
    """Return the imputer with the reference samples and features that it may need."""
    return sweeps.bound(imputer, subject.references.batch.x, axis.features)


def _sweep(
    shard: Shard,
    group: Sequence[Explained],
    features: Features,
    orders: Sequence[Order],
    imputer: Any,
) -> dict[str, Swept]:
    """Return the sweeps of several explainers, by explainer, each for the rows that have a map; see `sweeps.removal`."""
    axis, subject = shard.axis, shard.subject
    rows = torch.cat([explained.rows for explained in group])
    rows_on_device = rows.to(features.labels.device)
    logits, ranks = sweeps.removal(
        subject.predict,
        subject.batch[rows],
        shard.clean[rows],
        torch.cat([explained.values for explained in group]),
        features.labels[rows_on_device],
        features.counts[rows_on_device],
        axis.fractions,
        orders,
        _ready(axis, imputer, subject),
        subject.seed,
    )
    sizes = [len(explained.rows) for explained in group]
    logits_of, ranks_of = torch.split(logits, sizes, 1), torch.split(ranks, sizes, 1)
    by_explainer: dict[str, Swept] = {}
    for number, explained in enumerate(group):
        by_explainer[explained.explainer] = {
            order: Removed(logits_of[number][i], ranks_of[number][i])
            for i, order in enumerate(orders)
        }
    return by_explainer


def _segmented(shard: Shard, group: Sequence[Explained]) -> dict[str, Swept]:
    """Return the sweeps of segments, by explainer; explainers that share a baseline are swept together."""
    assert shard.segments is not None  # as irof is wanted
    by_explainer: dict[str, Swept] = {}
    for explainers in _explainers_by_baseline(shard.axis, shard.subject).values():
        sharing = [explained for explained in group if explained.explainer in explainers]
        if sharing:
            fill = _baseline(shard.axis, shard.subject, explainers[0])
            by_explainer |= _sweep(shard, sharing, shard.segments, ("morf",), fill)
    return by_explainer


def _scores_of_curves(
    shard: Shard, explained: Explained, swept: Sequence[Swept]
) -> Iterator[Scores | GalleryImage]:
    """Yield the curves of every imputer, what is read from them, and the pictures of the first imputer.

    `swept` has the sweeps of the explainer for each imputer.
    """
    axis = shard.axis
    for number, imputer in enumerate(axis.imputers):
        label = label_of(imputer)
        logits: dict[str, Tensor] = {}
        for order in axis.orders:
            if order == "random":
                logits[order] = shard.random[label][explained.rows]
            else:
                logits[order] = swept[number][order].logits
        read = {order: _read(shard, explained.rows, values) for order, values in logits.items()}
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
    """Return what can be read off the logits (R, S, K) of some rows."""
    subject = shard.subject
    return curves.readouts(
        logits, subject.target[rows], shard.truth[rows], subject.model.task, shard.clean[rows]
    )


def _missing_by_readout(shard: Shard, rows: Tensor, imputer: Any) -> dict[Readout, list[str]]:
    """Return why a number of each row would be missing, by what it is read from."""
    reason = _missing(shard, shard.pixels, rows, imputer)
    missing = dict.fromkeys(shard.start, reason)
    has_label = (shard.truth[rows] >= 0).tolist()
    missing["accuracy"] = [
        text if labelled else NO_LABEL for text, labelled in zip(reason, has_label, strict=True)
    ]
    return missing


def _missing(shard: Shard, features: Features, rows: Tensor, imputer: Any) -> list[str]:
    """Return why a number of each row would be missing: nothing was left to fill in from, or it is not finite."""
    fractions = shard.axis.fractions
    counts = features.counts.cpu()[rows]
    all_removed = sweeps.removal_sizes(fractions, counts)[:, -1] >= counts
    is_impossible = all_removed & needs_kept(_ready(shard.axis, imputer, shard.subject))
    return [NOTHING_LEFT if impossible else NOT_FINITE for impossible in is_impossible.tolist()]


def _curves(
    shard: Shard,
    explained: Explained,
    imputer: str,
    read: Mapping[str, Readouts],
    missing: Mapping[Readout, Sequence[str]],
) -> Iterator[Scores]:
    """Yield the points of the curves in the orders of the map, with the random order as their chance."""
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
    """Yield the accuracy after MoRF at every fraction, as Tables 5 and 6 of the ROAD paper report it."""
    for step, fraction in enumerate(shard.axis.fractions):
        value = read["morf"]["accuracy"][:, step]
        chance = read["random"]["accuracy"][:, step] if "random" in read else None
        yield explained.column(
            "road_morf_accuracy", (imputer, fraction), value, missing, imputer, chance=chance
        )


def _detectability(
    shard: Shard, explained: Explained, imputer: str, missing: Sequence[str]
) -> Iterator[Scores]:
    """Yield each sample's part in telling filled inputs from real ones, after a random removal."""
    parts = shard.detectability.get(imputer)
    if parts is None:
        parts = torch.full((len(shard.clean), len(shard.axis.fractions)), torch.nan)
        missing = [FEW] * len(explained.rows)
    for step, fraction in enumerate(shard.axis.fractions):
        where = (f"{imputer} random", fraction)
        value = parts[explained.rows, step]
        yield explained.column("detectability", where, value, missing, imputer, "random")


def _summaries(
    shard: Shard,
    explained: Explained,
    imputer: str,
    read: Mapping[str, Readouts],
    missing: Mapping[Readout, Sequence[str]],
) -> Iterator[Scores]:
    """Yield the metrics that say a curve of one imputer in one number."""
    axis = shard.axis
    start = {name: value[explained.rows] for name, value in shard.start.items()}
    main_readout = _main_readout(shard)
    chosen = axis.readout or main_readout
    for measure, summary in curves.summaries(read, axis.fractions, start, chosen).items():
        if measure not in axis.wanted:
            continue
        readout = chosen if measure in ("road", "aopc") else main_readout
        yield explained.column(
            measure,
            (imputer, 0.0),
            summary.value,
            missing[readout],
            imputer,
            chance=summary.chance,
        )


def _main_readout(shard: Shard) -> Readout:
    """Return the readout that pictures show: the probability, or the explained number of a task that has none."""
    return "probability" if "probability" in shard.start else "logit"


def _irof(shard: Shard, explained: Explained, swept: Swept) -> Scores:
    """Return IROF, with that of a random order of segments as its chance."""
    assert shard.segments is not None  # as irof is wanted
    axis, rows = shard.axis, explained.rows
    fill = _baseline(axis, shard.subject, explained.explainer)
    is_one_segment = shard.segments.counts.cpu()[rows] < 2

    def irof(logits: Tensor) -> Tensor:
        probability = _read(shard, rows, logits)["probability"]
        value = curves.irof(axis.fractions, probability, shard.start["probability"][rows])
        return value.masked_fill(is_one_segment, torch.nan)

    one_segment = _one_segment(shard.subject)
    missing = _missing(shard, shard.segments, rows, fill)
    for row in is_one_segment.nonzero().flatten().tolist():
        missing[row] = one_segment
    random = shard.random_segments.get(label_of(fill))
    chance = None if random is None else irof(random[rows])
    value = irof(swept["morf"].logits)
    baseline = label_of(axis.baseline)
    return explained.column("irof", (baseline, 0.0), value, missing, baseline, chance=chance)


def _banked(shard: Shard, explained: Explained) -> Iterator[Scores]:
    """Yield infidelity, sensitivity-n and faithfulness correlation of one explainer, from the shard's random masks.

    The chance level of the two correlations is 0. Samples that are a single segment have no masks and no score.
    """
    axis, subject = shard.axis, shard.subject
    # Samples without a bank have one segment, and no score.
    missing = [_one_segment(subject)] * len(shard.clean)
    no_score = torch.full((len(shard.clean),), torch.nan, dtype=torch.float64)
    values: dict[tuple[str, float], Tensor] = {}
    bank = shard.banks.get(label_of(_baseline(axis, subject, explained.explainer)))
    if bank is not None:
        is_finite = torch.isfinite(bank.masks.drop).all(1).tolist()
        for row, finite in zip(bank.rows.tolist(), is_finite, strict=True):
            missing[row] = UNVARIED if finite else NOT_FINITE
        number = bank.explainers.index(explained.explainer)
        scale = shard.clean[bank.rows].abs().amax(1).double()
        for key, value in mask_bank.scores(bank.masks, number, scale).items():
            values[key] = no_score.index_copy(0, bank.rows, value)

    measures = [("infidelity", 0.0), ("infidelity_scaled", 0.0), ("faithfulness_correlation", 0.0)]
    measures += [("sensitivity_n", size) for size in axis.subsets]
    baseline = label_of(axis.baseline)
    missing_of_rows = [missing[row] for row in explained.rows.tolist()]
    for measure, level in measures:
        if measure.removesuffix("_scaled") not in axis.wanted:
            continue
        value = values.get((measure, level), no_score)[explained.rows]
        chance = torch.zeros_like(value) if measure in CORRELATIONS else None
        where = (baseline, level)
        yield explained.column(measure, where, value, missing_of_rows, baseline, chance=chance)


def _one_segment(subject: Subject) -> str:
    """Return why a sample with a single segment has no score: nothing can be removed and something kept."""
    return f"the {kind_of(subject.model, subject.batch).sample} is one segment"


def _strip(
    shard: Shard, explained: Explained, imputer: Any, ranks: Tensor, read: Readouts
) -> Iterator[GalleryImage]:
    """Yield the images of the gallery as their most important pixels go, with the probability of their class.

    `ranks` (R, H, W) and what is `read` at each fraction, (R, S), belong to the rows with a map. At most `STRIP` of the
    fractions are pictured, beside the untouched image. Other data than images and volumes have no strip.
    """
    subject = shard.subject
    if subject.batch.x.ndim not in (4, 5):
        return
    readout = _main_readout(shard)
    start = shard.start[readout][explained.rows][:, None]
    of_class = torch.cat([start, read[readout]], 1)
    fractions = (0.0, *shard.axis.fractions)
    pictured = _evenly_spread(len(fractions) - 1, STRIP)

    # The pairs of a row with a map and a step that has a picture.
    positions, steps = [], []
    for position, row in enumerate(explained.rows.tolist()):
        if subject.batch.ids[row] not in subject.gallery_ids:
            continue
        for step in (0, *pictured):
            has_probability = bool(of_class[position, step].isfinite())
            if step == 0 or (fractions[step] > 0 and has_probability):
                positions.append(position)
                steps.append(step)
    if not positions:
        return

    batch, ranks = subject.batch[explained.rows[positions]], ranks[positions]
    # The number of features is the largest rank plus one; of its sizes each picture takes that of its step.
    sizes = sweeps.removal_sizes(fractions, ranks.flatten(1).amax(1) + 1)
    sizes = sizes[range(len(steps)), steps]
    kept = ranks >= sizes.reshape(-1, *[1] * (ranks.ndim - 1))
    ready = sweeps.bound(imputer, subject.references.batch.x, None)
    filled = ready(batch.x, kept, batch.ids, subject.seed)
    for n, (position, step) in enumerate(zip(positions, steps, strict=True)):
        is_original = step == 0
        picture = batch.x[n] if is_original else filled[n]
        mask = None if is_original else kept[n : n + 1].float()
        target = int(subject.target[explained.rows[position]])
        note = f"{subject.model.class_name(target)} {float(of_class[position, step]):.2f}"
        where = (f"{label_of(imputer)} morf", fractions[step])
        yield GalleryImage(explained.explainer, *where, batch.ids[n], picture, mask, note)


def _evenly_spread(steps: int, most: int) -> list[int]:
    """Return at most `most` of the steps 1 … `steps`, evenly spread, with the first and the last."""
    last = steps - 1
    return sorted({1 + int(last * i / (most - 1) + 0.5) for i in range(most)})

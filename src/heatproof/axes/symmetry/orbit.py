"""The orbit of samples under a group, and mean scores over it.

Explanations and predictions are passed as functions, so that a run, which guards its memory, and the functions of
`heatproof.axes.symmetry.scores` use the same code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.criterion import Criterion, compare, flaws, reasons
from heatproof.axes.symmetry.groups import Group, build, plan_elements
from heatproof.axes.symmetry.groups.contract import (
    element_weights,
    largest_weight,
    probe,
    unfit_samples,
    viewed,
)
from heatproof.errors import UserError
from heatproof.evaluation import Chance
from heatproof.maps.chance import itself
from heatproof.statistics.bounds import mean_interval
from heatproof.types import Batch, Moved

Explain = Callable[[Batch, Tensor], Tensor]
"""From samples and the classes to explain to explanations (B, …)."""

VALUES_AT_ONCE = 2**26
"""How many values of inputs and of what goes with them are moved at once, which bounds the memory."""
NOTHING_MOVES = "the group has a single element here, which moves nothing"
UNMOVED = "no element of the group moves the explanation"


@dataclass(frozen=True)
class Estimate:
    """A mean over group elements for each of B samples.

    value, low, high  (B,) float64. They are equal where all elements were tried (`exact`: for every sample); else the
                      mean over the group lies between `low` and `high` with probability 1 − delta, for each sample
    each              (B, n), the score of every element of `elements` (n, B, …), NaN beyond the last of a sample
    reason            why a value is NaN
    chance            what the explanations of other samples score, moved alike
    noise_floor       (B,), the score of a stochastic explainer with fresh draws on the unmoved input
    there_and_back    (B,), the score of a map that a group which interpolates moved there and back
    worst             the explanation with the lowest score (an undefined score counts as lowest), by sample, for the
                      samples of the gallery
    """

    value: Tensor
    low: Tensor
    high: Tensor
    each: Tensor
    elements: Tensor
    exact: bool
    reason: tuple[str, ...]
    chance: Chance | None = None
    noise_floor: Tensor | None = None
    there_and_back: Tensor | None = None
    worst: Mapping[int, Tensor] = field(default_factory=dict)


class Piece(NamedTuple):
    """Some rows of an orbit: numbers of sample and element (R,), the elements g (R, …) and the moved samples."""

    sample: Tensor
    element: Tensor
    g: Tensor
    batch: Batch


@dataclass(frozen=True)
class Orbit:
    """B samples moved by `elements` (n, B, …) of a group, in pieces that fit into memory.

    Sample b uses the first counts[b] elements; `exhaustive` (B,) says where these are all of the group.
    """

    group: Group
    batch: Batch
    elements: Tensor
    counts: Tensor
    exhaustive: Tensor

    @property
    def exact(self) -> bool:
        """Whether all elements are used, for every sample."""
        return bool(self.exhaustive.all())

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def used(self) -> Tensor:
        """Which elements a sample uses, (B, n)."""
        return torch.arange(len(self)) < self.counts[:, None]

    @property
    def is_trivial(self) -> Tensor:
        """For which samples the group has no element but the identity, (B,)."""
        return self.exhaustive & (self.counts == 1)

    def start(self) -> Piece:
        """Return the unmoved samples of which all elements are used: the identity comes first among them."""
        sample = self.exhaustive.nonzero().flatten()
        identity = self.elements[0, sample.to(self.elements.device)]
        return Piece(sample, torch.zeros_like(sample), identity, self.batch[sample])

    def pieces(self, include_start: bool = False) -> Iterator[Piece]:
        """Yield the moved samples, sample by sample, without those of `start` unless they are included."""
        needed = self.used
        if not include_start:
            needed[self.exhaustive, 0] = False
        if not needed.any():
            return
        values = sum(t[:1].numel() for t in (self.batch.x, *self.batch.aux.values()))
        rows_at_once = max(1, VALUES_AT_ONCE // max(1, values))
        device = self.elements.device
        for rows in torch.split(needed.nonzero(), rows_at_once):
            sample, element = rows.unbind(1)
            g = self.elements[element.to(device), sample.to(device)]
            moved = self.group.act(g, self.batch[sample])
            if self.group.exact:
                # Random draws move along. A group that interpolates would blur them; there the noise floor says
                # what fresh draws cost.
                moved = replace(moved, moved=Moved(self.group.act, g))
            yield Piece(sample, element, g, moved)

    def empty_table(self) -> Tensor:
        """Return a table (B, n) of NaN, to be filled in piece by piece."""
        return torch.full((len(self.batch), len(self)), torch.nan, dtype=torch.float64)

    def weighted(self, each: Tensor, perfect: float = 1.0) -> Tensor:
        """Return a table (B, n) of scores whose plain mean is the mean over the group.

        Elements that were not drawn uniformly have weights w with the mean 1. The scores s become p − w (p − s), where p
        is the score of a perfect explanation, so that a perfect explanation has exactly p whatever the weights are.
        """
        return each if self.weights is None else perfect - self.weights * (perfect - each)

    def mean(self, each: Tensor, perfect: float = 1.0) -> Tensor:
        """Return the mean (B,) of a table over the elements of each sample; NaN if one is missing or nothing moves."""
        scores = self.weighted(each, perfect)
        total = torch.where(self.used, scores, 0.0).sum(1) / self.counts
        return torch.where(self.is_trivial, torch.nan, total)

    def reasons(self, fallback: Sequence[str]) -> tuple[str, ...]:
        """Return why samples have no score: the group does not fit or move them, or else the `fallback` of each."""
        reasons = []
        samples = zip(self.unfit, self.is_trivial.tolist(), fallback, strict=True)
        for unfit, is_trivial, reason in samples:
            reasons.append(unfit or (NOTHING_MOVES if is_trivial else reason))
        return tuple(reasons)

    @cached_property
    def weights(self) -> Tensor | None:
        """The weights (B, n) of the elements in a mean over the group; None where all are 1."""
        weights = element_weights(self.group, self.elements)
        return None if weights is None else weights.T.cpu()

    @cached_property
    def unfit(self) -> list[str]:
        """Why the group cannot move a sample, empty where it can."""
        return unfit_samples(self.group, self.batch)


def orbit_of(group: Any, batch: Batch, n: int, seed: int = 0) -> Orbit:
    """Return the samples under all elements of the group if it has at most n, else under n draws for each sample.

    >>> from heatproof.axes.symmetry.groups import cyclic
    >>> batch = Batch(("a", "b"), torch.rand(2, 1, 6))
    >>> orbit_of(cyclic(), batch, 6).exact
    True
    >>> len(orbit_of("cyclic", batch, 4)), orbit_of(cyclic(), batch, 4).exact
    (4, False)
    """
    group = build(group)
    return Orbit(group, batch, *plan_elements(group, batch, n, seed))


def explanation_scores(
    orbit: Orbit,
    explain: Explain,
    clean: Tensor,
    target: Tensor,
    criterion: Criterion,
    references: Batch | None = None,
    shown: Sequence[int] = (),
) -> Estimate:
    """Return the score of the explanations that `explain` gives, compared with the `clean` ones of the unmoved samples.

    `references` are explanations (R, …) of other samples, as `x` beside their ids, for the chance level. `shown` are the
    numbers of the samples whose worst explanation is kept.
    """
    comparison = _ExplanationComparison(orbit, clean, criterion, references, shown)
    for piece, maps in explained(orbit, explain, clean, target):
        comparison.add(piece, maps)
    return comparison.result()


class _ExplanationComparison:
    """The explanations of moved inputs compared with the clean ones, gathered piece by piece.

    `each` (B, n) has the similarity for every sample and element, `flaw` (B, n) the number in `criterion.FLAWS` of what
    keeps an explanation from being compared.
    """

    def __init__(
        self,
        orbit: Orbit,
        clean: Tensor,
        criterion: Criterion,
        references: Batch | None,
        shown: Sequence[int],
    ) -> None:
        self.orbit, self.clean, self.criterion, self.shown = orbit, clean, criterion, shown
        self.each = orbit.empty_table()
        self.flaw = torch.zeros(len(orbit.batch), len(orbit), dtype=torch.int64)
        interpolates = criterion.moves and not orbit.group.exact
        self.there_and_back = orbit.empty_table() if interpolates else None
        # A map that no element moves has no score, unless no map at all would be moved.
        self.is_moved = torch.zeros(len(orbit.batch), dtype=torch.bool)
        self.could_be_moved = torch.zeros(len(orbit.batch), dtype=torch.bool)
        self.any_map = probe(clean.shape[1:]).x.to(clean)
        self.references = None if references is None else _ReferenceScores(orbit, references)
        self.worst: dict[int, tuple[float, Tensor]] = {}

    def add(self, piece: Piece, maps: Tensor) -> None:
        """Compare the explanations (R, …) of some moved samples with those of the same samples unmoved."""
        group, rows = self.orbit.group, (piece.sample, piece.element)
        before = self.clean[piece.sample.to(self.clean.device)]
        self.each[rows] = _similarity(group, self.criterion, piece, maps, before)
        self.flaw[rows] = flaws(self.criterion.similarity, maps)
        if self.criterion.moves:
            _mark_moved(self.is_moved, group, piece, before)
            _mark_moved(self.could_be_moved, group, piece, self.any_map.expand_as(before))
        if self.there_and_back is not None:
            self.there_and_back[rows] = _moved_there_and_back(group, self.criterion, piece, before)
        if self.references is not None:
            self.references.add(self.criterion, piece, maps)
        _keep_worst(self.worst, self.shown, piece.sample, self.each[rows], maps)

    def result(self) -> Estimate:
        """Return the mean over the elements with all that was measured beside it."""
        orbit, criterion = self.orbit, self.criterion
        score = estimated(
            orbit, self.each, orbit.reasons(self._reasons()), criterion.lowest, criterion.delta
        )
        chance = None if self.references is None else self.references.chance(score.value)
        there_and_back = None
        if self.there_and_back is not None:
            there_and_back = orbit.mean(self.there_and_back)
        worst = {sample: explanation for sample, (_, explanation) in self.worst.items()}
        return replace(score, chance=chance, there_and_back=there_and_back, worst=worst)

    def _reasons(self) -> list[str]:
        """Return why an explanation has no score, empty where it has one."""
        is_undefined = (self.each.isnan() & self.orbit.used).any(1)
        of_clean = flaws(self.criterion.similarity, self.clean)
        of_maps = reasons(of_clean, self.flaw, "the explanation of a moved input", is_undefined)
        is_unmoved = (self.could_be_moved & ~self.is_moved).tolist()
        return [
            text or (UNMOVED if unmoved else "")
            for text, unmoved in zip(of_maps, is_unmoved, strict=True)
        ]


def _similarity(
    group: Group, criterion: Criterion, piece: Piece, moved: Tensor, clean: Tensor
) -> Tensor:
    """Return how similar explanations of moved inputs are to the clean ones, moved along for equivariance, (R,)."""
    if not criterion.moves:
        return compare(criterion.similarity, moved, clean)
    expected = viewed(group, piece.g, group.move(piece.g, clean))
    return compare(criterion.similarity, viewed(group, piece.g, moved), expected)


def _mark_moved(is_moved: Tensor, group: Group, piece: Piece, maps: Tensor) -> None:
    """Set `is_moved` (B,) for samples whose maps an element of this piece changes."""
    differs = (group.move(piece.g, maps) != maps).flatten(1).any(1).cpu()
    is_moved[piece.sample[differs]] = True


def _moved_there_and_back(
    group: Group, criterion: Criterion, piece: Piece, clean: Tensor
) -> Tensor:
    """Return how similar maps are to themselves after moving there and back, (R,): what interpolation alone costs."""
    back = group.inverse(piece.g)
    returned = group.move(back, group.move(piece.g, clean))
    return compare(criterion.similarity, viewed(group, back, returned), viewed(group, back, clean))


class _ReferenceScores:
    """The chance level: scores against the explanations of R reference samples, gathered piece by piece.

    `each` (B, n) is the mean score over references. `above` (B, R) is how far each reference lies above that mean,
    averaged over the elements.
    """

    def __init__(self, orbit: Orbit, references: Batch) -> None:
        self.orbit, self.references = orbit, references
        self.each = orbit.empty_table()
        self.above = torch.zeros(len(orbit.batch), len(references), dtype=torch.float64)

    def add(self, criterion: Criterion, piece: Piece, maps: Tensor) -> None:
        """Compare the explanations of a piece with those of every reference but the sample itself."""
        per_reference = []
        for reference in self.references.x.to(maps.device):
            expanded = reference.expand_as(maps)
            per_reference.append(_similarity(self.orbit.group, criterion, piece, maps, expanded))
        scores = torch.stack(per_reference, 1)
        is_itself = itself(piece.batch.ids, self.references.ids).T
        scores = scores.masked_fill(is_itself, torch.nan)
        mean = scores.nanmean(1)
        self.each[piece.sample, piece.element] = mean
        above = (scores - mean[:, None]).nan_to_num() / self.orbit.counts[piece.sample, None]
        if self.orbit.weights is not None:
            above *= self.orbit.weights[piece.sample, piece.element, None]
        self.above.index_add_(0, piece.sample, above)

    def chance(self, value: Tensor) -> Chance:
        """Return the chance level, with the part of each reference in it over the samples that have a `value`."""
        each = self.each.clone()
        # At the identity every explanation agrees with itself, whatever it is worth.
        each[self.orbit.exhaustive, 0] = 1.0
        is_missing = (each.isnan() & self.orbit.used).any(1)
        level = torch.where(is_missing, torch.nan, self.orbit.mean(each))
        is_scored = (level + value).isfinite()
        is_other = ~itself(self.orbit.batch.ids, self.references.ids)
        return Chance(level, self.above[is_scored].sum(0), is_other[:, is_scored].sum(1))


def _keep_worst(
    worst: dict[int, tuple[float, Tensor]],
    shown: Sequence[int],
    sample: Tensor,
    score: Tensor,
    maps: Tensor,
) -> None:
    """Keep the explanations of `shown` samples whose score is the lowest so far; an undefined score counts as lowest."""
    if not shown:
        return
    scores = score.nan_to_num(nan=-torch.inf).tolist()
    for row, i in enumerate(sample.tolist()):
        if i not in shown:
            continue
        if i not in worst or scores[row] < worst[i][0]:
            worst[i] = (scores[row], maps[row].clone())


def explained(
    orbit: Orbit, explain: Explain, clean: Tensor, target: Tensor
) -> Iterator[tuple[Piece, Tensor]]:
    """Yield the explanations of all rows of an orbit; those of unmoved samples exist already."""
    if orbit.exhaustive.any():
        yield orbit.start(), clean[orbit.exhaustive.to(clean.device)]
    for piece in orbit.pieces():
        yield piece, explain(piece.batch, target[piece.sample.to(target.device)])


def layer_errors(orbit: Orbit, activate: Callable[[Batch], Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return the relative errors (B, n) of invariance and of equivariance; None where the group cannot move the output.

    `activate` returns the output of a layer for some samples.
    """
    clean = activate(orbit.batch)
    invariance = orbit.empty_table()
    equivariance = orbit.empty_table() if _can_move(orbit, clean) else None
    for piece in orbit.pieces(include_start=True):
        rows = (piece.sample, piece.element)
        after, before = activate(piece.batch), clean[piece.sample.to(clean.device)]
        invariance[rows] = _relative_error(after, before)
        if equivariance is not None:
            equivariance[rows] = _relative_error(after, orbit.group.move(piece.g, before))
    for errors in (invariance, equivariance):
        if errors is not None:
            errors[~orbit.used] = 0.0
            errors[orbit.is_trivial] = torch.nan
    return invariance, equivariance


def sensitivities(
    explain: Explain,
    batch: Batch,
    target: Tensor,
    clean: Tensor,
    radius: float,
    n: int,
    seed: int,
    relative: bool = True,
) -> Tensor:
    """Return the change of the explanation at each of n draws in the ball, (B, n) float64; see `max_sensitivity`."""
    key = rand.keys(seed, batch.ids, "max sensitivity")
    changes = torch.full((len(batch), n), torch.nan, dtype=torch.float64)
    rows_at_once = max(1, VALUES_AT_ONCE // max(1, batch.x[0].numel()))
    for rows in torch.split(torch.arange(len(batch) * n), rows_at_once):
        sample, draw = rows // n, rows % n
        samples = batch[sample]
        noise = _ball_noise(samples, rand.fold(key[sample], draw), radius)
        maps = explain(samples.with_x(samples.x + noise), target[sample.to(target.device)])
        before = clean[sample.to(clean.device)]
        change = (maps.double() - before.double()).flatten(1).norm(dim=1)
        size = before.double().flatten(1).norm(dim=1)
        if before[0].numel() > 1:
            is_flawed = flaws("cosine", before).to(size.device) > 0
            size = size.masked_fill(is_flawed, 0)
        if relative:
            change = change / size
        changes[sample, draw] = torch.where(size > 0, change, torch.nan).cpu()
    return changes


def _ball_noise(batch: Batch, key: Tensor, radius: float) -> Tensor:
    """Return noise uniform on ±radius for each value of x, 0 on padding that `aux["mask"]` marks."""
    uniform = rand.uniform(key.to(batch.x.device), batch.x.shape[1:]).to(batch.x)
    noise = radius * (2 * uniform - 1)
    if "mask" not in batch.aux:
        return noise
    is_real = batch.aux["mask"].to(noise)
    return noise * is_real.reshape(*is_real.shape, *[1] * (noise.ndim - is_real.ndim))


def estimated(
    orbit: Orbit,
    each: Tensor,
    reason: tuple[str, ...],
    lowest: float,
    delta: float,
    perfect: float = 1.0,
) -> Estimate:
    """Return the mean of scores (B, n) over each sample's elements, with its bounds; no score is below `lowest`.

    `perfect` is the score of an explanation, or a model, that the group does not matter to.
    """
    has_score = torch.tensor([not text for text in reason])
    value = torch.where(has_score, orbit.mean(each, perfect), torch.nan)
    low, high = value.clone(), value.clone()
    if not orbit.exact:
        sampled = ~orbit.exhaustive & ~value.isnan()
        scores = orbit.weighted(each, perfect)[sampled]
        # A weighted score 1 − w (1 − s) may lie below the lowest score.
        lowest_weighted = 1 - largest_weight(orbit.group) * (1 - lowest)
        low[sampled], high[sampled] = mean_interval(scores, lowest_weighted, 1.0, delta)
        low[sampled] = low[sampled].clamp(min=lowest)
    return Estimate(value, low, high, each, orbit.elements, orbit.exact, reason)


def _relative_error(output: Tensor, expected: Tensor) -> Tensor:
    """Return ‖output − expected‖ / ‖expected‖ by row, 0 where both are zero; (B,) float64 on the CPU."""
    difference = (output.double() - expected.double()).flatten(1).norm(dim=1)
    scale = expected.double().flatten(1).norm(dim=1)
    return torch.where(difference == 0, 0.0, difference / scale).cpu()


def _can_move(orbit: Orbit, output: Tensor) -> bool:
    """Whether the group acts on a layer's output as it does on the input: the same positions, any channels."""
    x = orbit.batch.x
    has_tokens = not x.is_floating_point()  # a layer has a vector for each token
    if output.ndim != x.ndim + has_tokens:
        return False
    if getattr(orbit.group, "keeps_size", False) and output.shape[2:] != x.shape[2:]:
        return False
    try:
        orbit.group.check(tuple(output.shape[1:]))
    except UserError:
        return False
    outputs = Batch(orbit.batch.ids, output, orbit.batch.aux)
    return bool(orbit.group.order(outputs) == orbit.group.order(orbit.batch))

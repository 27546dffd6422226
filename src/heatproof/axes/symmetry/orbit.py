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
        """Return the samples moved by the identity, so unmoved, where all elements of the group are used.

        The identity is element 0 of these samples. Others have random elements, which need not include it.
        """
        sample = self.exhaustive.nonzero().flatten()
        identity = self.elements[0, sample.to(self.elements.device)]
        return Piece(sample, torch.zeros_like(sample), identity, self.batch[sample])

    def pieces(self, include_start: bool = False) -> Iterator[Piece]:
        """Yield every sample moved by each of its group elements, in pieces that fit into memory.

        The identity, whose moved samples are the samples themselves (`start`), is left out unless it is to be included.
        """
        is_needed = self.used  # (samples, elements)
        if not include_start:
            is_needed[self.exhaustive, 0] = False
        if not is_needed.any():
            return
        values_per_sample = sum(t[:1].numel() for t in (self.batch.x, *self.batch.aux.values()))
        rows_at_once = max(1, VALUES_AT_ONCE // max(1, values_per_sample))
        device = self.elements.device
        for rows in torch.split(is_needed.nonzero(), rows_at_once):
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
        """Return scores (samples, elements) corrected so that their plain mean is the mean over the whole group.

        Elements that were not drawn uniformly need weights w (importance sampling), whose mean is 1. A score s becomes
        p − w (p − s), where p is the `perfect` score, so that a perfect explanation has exactly p for any weights.
        """
        if self.weights is None:
            return each
        return perfect - self.weights * (perfect - each)

    def mean(self, each: Tensor, perfect: float = 1.0) -> Tensor:
        """Return the mean (B,) of a table over the elements of each sample; NaN if one is missing or nothing moves."""
        scores = self.weighted(each, perfect)
        total = torch.where(self.used, scores, 0.0).sum(1) / self.counts
        return torch.where(self.is_trivial, torch.nan, total)

    def reasons(self, fallback: Sequence[str]) -> tuple[str, ...]:
        """Return why each sample has no score, in words, "" where it has one.

        Either the group cannot move the sample, or it has only the identity, or else the sample's `fallback` applies.
        """
        reasons = []
        samples = zip(self.unfit, self.is_trivial.tolist(), fallback, strict=True)
        for cannot_move, is_trivial, fallback_of_sample in samples:
            if cannot_move:
                reasons.append(cannot_move)
            elif is_trivial:
                reasons.append(NOTHING_MOVES)
            else:
                reasons.append(fallback_of_sample)
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
    """Return the orbit of samples: what a group of transformations makes of each of them.

    It has all elements of the group if they are at most n, else n random elements for each sample. `group` is a group or
    the name of one.

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
    """Return how well explanations keep a symmetry: how similar they are on moved and on unmoved samples.

    `orbit` has the samples and the group that moves them. `explain` explains the moved samples, for the classes `target`
    (B,), and `clean` (B, …) are the explanations of the unmoved ones. `criterion` says how two explanations are
    compared, and whether they should move along (equivariance) or stay (invariance).

    `references` are explanations (R, …) of other samples, as `x` of a batch with their ids, for the chance level. `shown`
    are the numbers of samples whose worst explanation is returned for a picture.
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
        """Compare the explanations `maps` (R, …) of some moved samples with those of the same samples unmoved.

        Row i is the sample numbered `piece.sample[i]`, moved by the group element numbered `piece.element[i]`; its scores
        are entered there into tables (samples, elements).
        """
        group, criterion = self.orbit.group, self.criterion
        rows = (piece.sample, piece.element)
        before = self.clean[piece.sample.to(self.clean.device)]
        self.each[rows] = _similarity(group, criterion, piece, maps, before)
        self.flaw[rows] = flaws(criterion.similarity, maps)
        if criterion.moves:
            # An explanation that no element moves, though it moves a map without any symmetry, has no score.
            _mark_moved(self.is_moved, group, piece, before)
            _mark_moved(self.could_be_moved, group, piece, self.any_map.expand_as(before))
        if self.there_and_back is not None:
            self.there_and_back[rows] = _moved_there_and_back(group, criterion, piece, before)
        if self.references is not None:
            self.references.add(criterion, piece, maps)
        _keep_worst(self.worst, self.shown, piece.sample, self.each[rows], maps)

    def result(self) -> Estimate:
        """Return each sample's mean similarity over the group elements, with its bounds, chance level and noise.

        It is called when the explanations of all moved samples have been compared.
        """
        orbit, criterion = self.orbit, self.criterion
        reason = orbit.reasons(self._reasons())
        score = estimated(orbit, self.each, reason, criterion.lowest, criterion.delta)
        chance = None
        if self.references is not None:
            chance = self.references.chance(score.value)
        there_and_back = None
        if self.there_and_back is not None:
            there_and_back = orbit.mean(self.there_and_back)
        worst = {sample: explanation for sample, (_, explanation) in self.worst.items()}
        return replace(score, chance=chance, there_and_back=there_and_back, worst=worst)

    def _reasons(self) -> list[str]:
        """Return why each sample has no similarity of explanations, in words, "" where it has one.

        Either an explanation cannot be compared, such as a constant one, or no element of the group moves it.
        """
        is_undefined = (self.each.isnan() & self.orbit.used).any(1)
        flaws_of_clean = flaws(self.criterion.similarity, self.clean)
        of_flaws = reasons(
            flaws_of_clean, self.flaw, "the explanation of a moved input", is_undefined
        )
        is_unmoved = self.could_be_moved & ~self.is_moved
        texts = []
        for of_flaw, unmoved in zip(of_flaws, is_unmoved.tolist(), strict=True):
            of_group = UNMOVED if unmoved else ""
            texts.append(of_flaw or of_group)
        return texts


def _similarity(
    group: Group, criterion: Criterion, piece: Piece, moved: Tensor, clean: Tensor
) -> Tensor:
    """Return how similar explanations of moved inputs are to what they should be, (R,).

    `moved` (R, …) are the explanations of the moved inputs, `clean` (R, …) those of the same inputs unmoved. They should
    be equal (invariance), or, where the criterion `moves`, equal to the clean ones moved alike (equivariance). Then only
    what is in view after the move is compared.
    """
    if not criterion.moves:
        return compare(criterion.similarity, moved, clean)
    expected = group.move(piece.g, clean)
    return compare(
        criterion.similarity,
        viewed(group, piece.g, moved),
        viewed(group, piece.g, expected),
    )


def _mark_moved(is_moved: Tensor, group: Group, piece: Piece, maps: Tensor) -> None:
    """Set `is_moved` (B,) for samples whose maps an element of this piece changes."""
    differs = (group.move(piece.g, maps) != maps).flatten(1).any(1).cpu()
    is_moved[piece.sample[differs]] = True


def _moved_there_and_back(
    group: Group, criterion: Criterion, piece: Piece, clean: Tensor
) -> Tensor:
    """Return how similar maps are to themselves after a move by a group element and its inverse, (R,).

    Below 1 only because moving interpolates, so it says how much of a lower score is due to that. `clean` (R, …) are the
    explanations of unmoved inputs.
    """
    back = group.inverse(piece.g)
    there = group.move(piece.g, clean)
    returned = group.move(back, there)
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
        """Compare explanations of moved samples with those of unrelated samples, for the chance level of a symmetry score.

        `maps` (M, …) explain the rows of `piece`: row i is the sample numbered `piece.sample[i]`, moved by the group element
        numbered `piece.element[i]`. The chance level is the mean similarity to the explanations of R reference samples.
        It is entered into a table (samples, elements). How much each reference lies above that mean is added to a table
        (samples, R), averaged over the elements: it says how much the choice of references matters.
        """
        per_reference = []
        for reference in self.references.x.to(maps.device):
            expanded = reference.expand_as(maps)
            per_reference.append(_similarity(self.orbit.group, criterion, piece, maps, expanded))
        scores = torch.stack(per_reference, 1)  # (M, R)

        # A sample that is also a reference is not compared with itself.
        is_itself = itself(piece.batch.ids, self.references.ids).T
        scores = scores.masked_fill(is_itself, torch.nan)
        mean_score = scores.nanmean(1)
        self.each[piece.sample, piece.element] = mean_score

        # Each element has the weight 1 / (number of elements) in the mean over those of its sample.
        above_mean = (scores - mean_score[:, None]).nan_to_num()
        above_mean /= self.orbit.counts[piece.sample, None]
        if self.orbit.weights is not None:  # elements were not drawn uniformly
            above_mean *= self.orbit.weights[piece.sample, piece.element, None]
        # Add each row to that of its sample; several rows may be moves of the same sample.
        self.above.index_add_(0, piece.sample, above_mean)

    def chance(self, value: Tensor) -> Chance:
        """Return the chance level of each sample: the mean similarity to the explanations of unrelated reference samples.

        It comes with what each reference adds to it, summed over the samples whose score `value` (B,) is finite.
        """
        per_element = self.each.clone()
        # At the identity (element 0, where all elements are used) every explanation scores 1 against itself, even an
        # uninformative one, so chance is 1 there.
        per_element[self.orbit.exhaustive, 0] = 1.0
        is_missing = (per_element.isnan() & self.orbit.used).any(1)
        level = torch.where(is_missing, torch.nan, self.orbit.mean(per_element))
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
    """Update `worst`, the lowest score and its explanation by number of sample, for the samples whose pictures are `shown`.

    Row i of `maps` (R, …) is an explanation of the sample numbered `sample[i]` with the score `score[i]`. An undefined score
    counts as the lowest.
    """
    if not shown:
        return
    scores = score.nan_to_num(nan=-torch.inf).tolist()
    for row, sample_number in enumerate(sample.tolist()):
        if sample_number not in shown:
            continue
        if sample_number not in worst or scores[row] < worst[sample_number][0]:
            worst[sample_number] = (scores[row], maps[row].clone())


def explained(
    orbit: Orbit, explain: Explain, clean: Tensor, target: Tensor
) -> Iterator[tuple[Piece, Tensor]]:
    """Yield pieces of an orbit, samples moved by group elements, each with the explanations of its rows.

    `clean` (B, …) are the explanations of the unmoved samples, which need not be explained again. `target` (B,) are the
    classes to explain.
    """
    if orbit.exhaustive.any():
        yield orbit.start(), clean[orbit.exhaustive.to(clean.device)]
    for piece in orbit.pieces():
        yield piece, explain(piece.batch, target[piece.sample.to(target.device)])


def layer_errors(orbit: Orbit, activate: Callable[[Batch], Tensor]) -> tuple[Tensor, Tensor | None]:
    """Return how far a layer's output is from being invariant, and from being equivariant: relative errors (B, n) each.

    `orbit` has B samples, each moved by n elements of a group, and `activate` returns the output of the layer for a batch.
    The errors are ‖φ(g·x) − φ(x)‖ / ‖φ(x)‖ and ‖φ(g·x) − g·φ(x)‖ / ‖g·φ(x)‖. The second is None if the group cannot
    move the output, for instance because it has no positions.
    """
    clean = activate(orbit.batch)
    invariance = orbit.empty_table()
    equivariance = None
    if _can_move(orbit, clean):
        equivariance = orbit.empty_table()
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
    """Return how much each explanation changes when random noise is added to the input, for n draws, (B, n) float64.

    The change is ‖Φ(x + noise) − Φ(x)‖, and divided by ‖Φ(x)‖ if `relative`, with noise uniform on ±radius. Its maximum
    over the draws is Max-Sensitivity (Yeh et al. 2019, On the (in)fidelity and sensitivity of explanations); see
    `max_sensitivity`. `clean` (B, …) are the explanations Φ(x) for the classes `target` (B,). NaN where an explanation is
    zero or constant.
    """
    key = rand.keys(seed, batch.ids, "max sensitivity")
    changes = torch.full((len(batch), n), torch.nan, dtype=torch.float64)
    rows_at_once = max(1, VALUES_AT_ONCE // max(1, batch.x[0].numel()))
    # All draws of all samples are numbered one after another and explained in chunks that fit into memory.
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
    """Return noise like x, uniform on ±radius for each value and 0 on padding, where `aux["mask"]` is 0.

    `key` (B,) are the random keys of the samples.
    """
    uniform = rand.uniform(key.to(batch.x.device), batch.x.shape[1:]).to(batch.x)
    noise = radius * (2 * uniform - 1)
    if "mask" not in batch.aux:
        return noise
    is_real = batch.aux["mask"].to(noise)
    trailing_axes = [1] * (noise.ndim - is_real.ndim)
    return noise * is_real.reshape(*is_real.shape, *trailing_axes)


def estimated(
    orbit: Orbit,
    each: Tensor,
    reason: tuple[str, ...],
    lowest: float,
    delta: float,
    perfect: float = 1.0,
) -> Estimate:
    """Return the mean of scores (B, n) over the n group elements of each of B samples, with bounds for the whole group.

    Where all elements were used, the bounds are the mean; where n were drawn, they miss the mean over the group with
    probability at most `delta`. `reason` says in words why a sample has no score, "" where it has one. No score is below
    `lowest`, and `perfect` is the score of an explanation, or a model, that keeps the symmetry.
    """
    has_score = torch.tensor([not text for text in reason])
    value = torch.where(has_score, orbit.mean(each, perfect), torch.nan)
    low, high = value.clone(), value.clone()
    if not orbit.exact:
        is_drawn = ~orbit.exhaustive & ~value.isnan()
        scores = orbit.weighted(each, perfect)[is_drawn]
        # A weighted score 1 − w (1 − s) may lie below the lowest score.
        lowest_weighted = 1 - largest_weight(orbit.group) * (1 - lowest)
        low[is_drawn], high[is_drawn] = mean_interval(scores, lowest_weighted, 1.0, delta)
        low[is_drawn] = low[is_drawn].clamp(min=lowest)
    return Estimate(value, low, high, each, orbit.elements, orbit.exact, reason)


def _relative_error(output: Tensor, expected: Tensor) -> Tensor:
    """Return ‖output − expected‖ / ‖expected‖ by row, 0 where both are zero; (B,) float64 on the CPU."""
    difference = (output.double() - expected.double()).flatten(1).norm(dim=1)
    scale = expected.double().flatten(1).norm(dim=1)
    return torch.where(difference == 0, 0.0, difference / scale).cpu()


def _can_move(orbit: Orbit, output: Tensor) -> bool:
    """Return whether the group can move a layer's output (B, …) as it moves the input: same axes, any number of channels.

    False as well if it would have a different number of elements there, such as shifts of a smaller feature map.
    """
    x = orbit.batch.x
    has_tokens = not x.is_floating_point()  # a layer has a vector, one more axis, for each token
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

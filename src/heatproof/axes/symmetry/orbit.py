"""The orbit of samples under a group, and scores over it; what `heatproof.axes.symmetry.scores` is made of.

The functions here take explanations and predictions as callables, so that the engine's memory guard and a plain call
share every line of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.criterion import Criterion, compare, flaws, reasons
from heatproof.axes.symmetry.groups import Group, build, plan_elements
from heatproof.axes.symmetry.groups.contract import probe, viewed
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
STILL = "no element of the group moves the explanation"


@dataclass(frozen=True)
class Estimate:
    """A mean over group elements for each of B samples.

    value, low, high  (B,) float64. They agree where all elements were tried (`exact`: for every sample); else the mean
                      over the group lies between `low` and `high` with probability 1 − delta, for each sample
    each              (B, n), the score of every element of `elements` (n, B, …), NaN beyond the last of a sample
    reason            why a value is NaN
    chance            what the explanations of other samples score, moved alike
    noise_floor       (B,), the score of a stochastic explainer with fresh draws on the unmoved input
    there_and_back    (B,), the score of a map that a group which interpolates moved there and back
    worst             the explanation with the lowest score, or without one, for the samples it was asked for
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
    """Some rows of an orbit: sample and element numbers (R,), the elements (R, …) and the moved samples."""

    sample: Tensor
    element: Tensor
    g: Tensor
    batch: Batch


@dataclass(frozen=True)
class Orbit:
    """B samples under elements of a group, `counts` of each sample's, as rows in pieces that fit into memory."""

    group: Group
    batch: Batch
    elements: Tensor
    counts: Tensor
    whole: Tensor

    @property
    def exact(self) -> bool:
        """Whether all elements are there, for every sample."""
        return bool(self.whole.all())

    def __len__(self) -> int:
        return len(self.elements)

    @property
    def used(self) -> Tensor:
        """Which elements are those of a sample, (B, n)."""
        return torch.arange(len(self)) < self.counts[:, None]

    @property
    def is_trivial(self) -> Tensor:
        """The samples, (B,), for which the group has no element but the identity."""
        return self.whole & (self.counts == 1)

    def start(self) -> Piece:
        """The unmoved samples (the identity comes first) of which all elements are there."""
        sample = self.whole.nonzero().flatten()
        identity = self.elements[0, sample.to(self.elements.device)]
        return Piece(sample, torch.zeros_like(sample), identity, self.batch[sample])

    def pieces(self, every: bool = False) -> Iterator[Piece]:
        """The moved samples, sample by sample; those of `start` are left out unless `every` one is asked for."""
        wanted = self.used
        if not every:
            wanted[self.whole, 0] = False
        if not wanted.any():
            return
        values = sum(t[:1].numel() for t in (self.batch.x, *self.batch.aux.values()))
        rows_at_once = max(1, VALUES_AT_ONCE // max(1, values))
        device = self.elements.device
        for rows in torch.split(wanted.nonzero(), rows_at_once):
            sample, element = rows.unbind(1)
            g = self.elements[element.to(device), sample.to(device)]
            moved = self.group.act(g, self.batch[sample])
            if self.group.exact:
                # Random draws move along. A group that interpolates would blur them; there the noise floor says
                # what fresh draws cost.
                moved = replace(moved, moved=Moved(self.group.act, g))
            yield Piece(sample, element, g, moved)

    def column(self) -> Tensor:
        """An empty table (B, n)."""
        return torch.full((len(self.batch), len(self)), torch.nan, dtype=torch.float64)

    def mean(self, each: Tensor) -> Tensor:
        """The mean (B,) over each sample's own elements; NaN where one is missing or nothing moves."""
        total = torch.where(self.used, each, 0.0).sum(1) / self.counts
        return torch.where(self.is_trivial, torch.nan, total)

    def reasons(self, fallback: Sequence[str]) -> tuple[str, ...]:
        """Return why samples have no score: the group is trivial for them, or else the `fallback` of each."""
        return tuple(
            NOTHING_MOVES if trivial else reason
            for trivial, reason in zip(self.is_trivial.tolist(), fallback, strict=True)
        )


def orbit_of(group: Any, batch: Batch, n: int, seed: int = 0) -> Orbit:
    """The samples under all elements of the group where it has at most n, else under n draws for each sample.

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
    group = orbit.group
    each = orbit.column()
    flaw = torch.zeros(len(orbit.batch), len(orbit), dtype=torch.int64)
    there_and_back = orbit.column() if criterion.moves and not group.exact else None
    # A map that no element moves has no score, unless no map at all would be moved.
    is_moved = torch.zeros(len(orbit.batch), dtype=torch.bool)
    could_be_moved = torch.zeros(len(orbit.batch), dtype=torch.bool)
    any_map = probe(clean.shape[1:]).x.to(clean)
    against_references = None if references is None else _ReferenceScores(orbit, references)
    worst: dict[int, tuple[float, Tensor]] = {}

    for piece, maps in explained(orbit, explain, clean, target):
        rows = (piece.sample, piece.element)
        before = clean[piece.sample.to(clean.device)]
        each[rows] = _alike(group, criterion, piece, maps, before)
        flaw[rows] = flaws(criterion.similarity, maps)
        if criterion.moves:
            _mark_moved(is_moved, group, piece, before)
            _mark_moved(could_be_moved, group, piece, any_map.expand_as(before))
        if there_and_back is not None:
            there_and_back[rows] = _moved_there_and_back(group, criterion, piece, before)
        if against_references is not None:
            against_references.add(criterion, piece, maps)
        _keep_worst(worst, shown, piece.sample, each[rows], maps)

    undefined = (each.isnan() & orbit.used).any(1)
    what = "the explanation of a moved input"
    why_undefined = reasons(flaws(criterion.similarity, clean), flaw, what, undefined)
    stays = (could_be_moved & ~is_moved).tolist()
    reason = [
        why or (STILL if still else "") for why, still in zip(why_undefined, stays, strict=True)
    ]
    score = estimated(orbit, each, orbit.reasons(reason), criterion.lowest, criterion.delta)
    return replace(
        score,
        chance=None if against_references is None else against_references.chance(score.value),
        there_and_back=None if there_and_back is None else orbit.mean(there_and_back),
        worst={sample: explanation for sample, (_, explanation) in worst.items()},
    )


def _alike(
    group: Group, criterion: Criterion, piece: Piece, moved: Tensor, clean: Tensor
) -> Tensor:
    """Compare explanations of moved inputs with clean ones, which are moved along where they should be."""
    if not criterion.moves:
        return compare(criterion.similarity, moved, clean)
    expected = group.move(piece.g, clean)
    return compare(
        criterion.similarity, viewed(group, piece.g, moved), viewed(group, piece.g, expected)
    )


def _mark_moved(is_moved: Tensor, group: Group, piece: Piece, maps: Tensor) -> None:
    """Note in `is_moved` (B,) which samples' maps an element of this piece changes."""
    differs = (group.move(piece.g, maps) != maps).flatten(1).any(1).cpu()
    is_moved[piece.sample[differs]] = True


def _moved_there_and_back(
    group: Group, criterion: Criterion, piece: Piece, clean: Tensor
) -> Tensor:
    """Compare maps with themselves after they were moved there and back: what interpolation alone costs."""
    back = group.inverse(piece.g)
    returned = group.move(back, group.move(piece.g, clean))
    return compare(criterion.similarity, viewed(group, back, returned), viewed(group, back, clean))


class _ReferenceScores:
    """The scores against the explanations of R reference samples, gathered piece by piece, for the chance level."""

    def __init__(self, orbit: Orbit, references: Batch) -> None:
        self.orbit, self.references = orbit, references
        self.each = orbit.column()
        self.above = torch.zeros(len(orbit.batch), len(references), dtype=torch.float64)

    def add(self, criterion: Criterion, piece: Piece, maps: Tensor) -> None:
        """Compare the explanations of a piece with those of every reference but the sample itself."""
        scores = torch.stack(
            [
                _alike(self.orbit.group, criterion, piece, maps, reference.expand_as(maps))
                for reference in self.references.x.to(maps.device)
            ],
            1,
        )
        is_itself = itself(piece.batch.ids, self.references.ids).T
        scores = scores.masked_fill(is_itself, torch.nan)
        level = scores.nanmean(1)
        self.each[piece.sample, piece.element] = level
        above = (scores - level[:, None]).nan_to_num() / self.orbit.counts[piece.sample, None]
        self.above.index_add_(0, piece.sample, above)

    def chance(self, value: Tensor) -> Chance:
        """Return the chance level, with the part of each reference in it over the samples that have a `value`."""
        each = self.each.clone()
        # At the identity every explanation agrees with itself, whatever it is worth.
        each[self.orbit.whole, 0] = 1.0
        missing = (each.isnan() & self.orbit.used).any(1)
        level = torch.where(missing, torch.nan, self.orbit.mean(each))
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
    """Remember the explanations of `shown` samples that score lower than those before; an undefined score is worst."""
    if not shown:
        return
    ordered = score.nan_to_num(nan=-torch.inf).tolist()
    for row, i in enumerate(sample.tolist()):
        if i in shown and (i not in worst or ordered[row] < worst[i][0]):
            worst[i] = (ordered[row], maps[row].clone())


def explained(
    orbit: Orbit, explain: Explain, clean: Tensor, target: Tensor
) -> Iterator[tuple[Piece, Tensor]]:
    """The explanations of all rows of an orbit; those of the samples as they are exist already."""
    if orbit.whole.any():
        yield orbit.start(), clean[orbit.whole.to(clean.device)]
    for piece in orbit.pieces():
        yield piece, explain(piece.batch, target[piece.sample.to(target.device)])


def layer_errors(orbit: Orbit, activate: Callable[[Batch], Tensor]) -> tuple[Tensor, Tensor | None]:
    """The relative errors (B, n) of invariance and, where the group can move the output, of equivariance."""
    clean = activate(orbit.batch)
    same = orbit.column()
    moved = orbit.column() if _can_move(orbit, clean) else None
    for piece in orbit.pieces(every=True):
        after, before = activate(piece.batch), clean[piece.sample.to(clean.device)]
        same[piece.sample, piece.element] = _relative_error(after, before)
        if moved is not None:
            moved[piece.sample, piece.element] = _relative_error(
                after, orbit.group.move(piece.g, before)
            )
    for errors in (same, moved) if moved is not None else (same,):
        errors[~orbit.used] = 0.0
        errors[orbit.is_trivial] = torch.nan
    return same, moved


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
    """The change of the explanation at each of n draws in the ball, (B, n) float64; see `max_sensitivity`."""
    key = rand.keys(seed, batch.ids, "max sensitivity")
    changes = torch.full((len(batch), n), torch.nan, dtype=torch.float64)
    size = max(1, VALUES_AT_ONCE // max(1, batch.x[0].numel()))
    for rows in torch.split(torch.arange(len(batch) * n), size):
        sample, draw = rows // n, rows % n
        part = batch[sample]
        noise = rand.uniform(rand.fold(key[sample], draw).to(part.x.device), part.x.shape[1:]).to(
            part.x
        )
        noise = radius * (2 * noise - 1)
        if "mask" in part.aux:
            real = part.aux["mask"].to(noise)
            noise = noise * real.reshape(*real.shape, *[1] * (noise.ndim - real.ndim))
        maps = explain(part.with_x(part.x + noise), target[sample.to(target.device)])
        before = clean[sample.to(clean.device)]
        scale = before.double().flatten(1).norm(dim=1)
        if before[0].numel() > 1:
            scale = scale.masked_fill(flaws("cosine", before).to(scale.device) > 0, 0)
        change = (maps.double() - before.double()).flatten(1).norm(dim=1)
        changes[sample, draw] = torch.where(
            scale > 0, change / scale if relative else change, torch.nan
        ).cpu()
    return changes


def estimated(
    orbit: Orbit, each: Tensor, reason: tuple[str, ...], lowest: float, delta: float
) -> Estimate:
    """The mean of scores (B, n) of at least `lowest` over each sample's elements, with its bounds."""
    value = torch.where(torch.tensor([not why for why in reason]), orbit.mean(each), torch.nan)
    low, high = value.clone(), value.clone()
    if not orbit.exact:
        sampled = ~orbit.whole & ~value.isnan()
        low[sampled], high[sampled] = mean_interval(each[sampled], lowest, 1.0, delta)
    return Estimate(value, low, high, each, orbit.elements, orbit.exact, reason)


def _relative_error(output: Tensor, expected: Tensor) -> Tensor:
    """‖output − expected‖ / ‖expected‖ by row, 0 where both are zero; (B,) float64 on the CPU."""
    difference = (output.double() - expected.double()).flatten(1).norm(dim=1)
    scale = expected.double().flatten(1).norm(dim=1)
    return torch.where(difference == 0, 0.0, difference / scale).cpu()


def _can_move(orbit: Orbit, output: Tensor) -> bool:
    """Whether the group acts on a layer's output as it does on the input: the same positions, any channels."""
    x = orbit.batch.x
    if output.ndim != x.ndim + (not x.is_floating_point()):
        return False
    try:
        orbit.group.check(tuple(output.shape[1:]))
    except UserError:
        return False
    outputs = Batch(orbit.batch.ids, output, orbit.batch.aux)
    return bool(orbit.group.order(outputs) == orbit.group.order(orbit.batch))

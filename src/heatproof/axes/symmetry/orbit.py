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

    `value`, `low` and `high` are (B,) float64. They agree where all elements were tried (`exact` where that is so for
    every sample); else the mean over the group lies between `low` and `high` with probability 1 − delta, for each
    sample. `each` (B, n) holds the score of every element of `elements` (n, B, …), NaN beyond the last of a sample.
    `reason` says why a value is NaN. Beside it, (B,) each: `floor`, the score of a stochastic explainer at the identity
    with fresh draws; `back`, that of a map moved there and back by a group that interpolates; `chance`, what the
    explanations of other samples score, moved alike, and `by_reference` (R,) how far each lies above that, summed over
    samples. `worst` holds the explanation with the lowest score, or without one, for the samples it was asked for.
    """

    value: Tensor
    low: Tensor
    high: Tensor
    each: Tensor
    elements: Tensor
    exact: bool
    reason: tuple[str, ...]
    floor: Tensor | None = None
    chance: Tensor | None = None
    by_reference: Tensor | None = None
    worst: Mapping[int, Tensor] = field(default_factory=dict)
    back: Tensor | None = None


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
    def alone(self) -> Tensor:
        """The samples, (B,), that the group does nothing to, for it has no element but the identity."""
        return self.whole & (self.counts == 1)

    def start(self) -> Piece:
        """The samples whose elements are all there, as the identity, the first of them, leaves them."""
        rows = self.whole.nonzero().flatten()
        return Piece(
            rows,
            torch.zeros_like(rows),
            self.elements[0, rows.to(self.elements.device)],
            self.batch[rows],
        )

    def pieces(self, every: bool = False) -> Iterator[Piece]:
        """The rows sample by sample, without the identity of `start` unless `every` row is asked for."""
        used = self.used
        used[:, 0] &= torch.full_like(self.whole, every) | ~self.whole
        values = sum(t[:1].numel() for t in (self.batch.x, *self.batch.aux.values()))
        for rows in (
            torch.split(used.nonzero(), max(1, VALUES_AT_ONCE // max(1, values)))
            if used.any()
            else ()
        ):
            sample, element = rows.unbind(1)
            g = self.elements[element.to(self.elements.device), sample.to(self.elements.device)]
            moved = self.group.act(g, self.batch[sample])
            # What interpolates would blur the noise; there a score is read beside its floor.
            exact = self.group.exact
            yield Piece(
                sample,
                element,
                g,
                replace(moved, moved=Moved(self.group.act, g)) if exact else moved,
            )

    def column(self) -> Tensor:
        """An empty table (B, n)."""
        return torch.full((len(self.batch), len(self)), torch.nan, dtype=torch.float64)

    def mean(self, each: Tensor) -> Tensor:
        """The mean (B,) over each sample's own elements; NaN where one is missing or nothing moves."""
        total = torch.where(self.used, each, 0.0).sum(1) / self.counts
        return torch.where(self.alone, torch.nan, total)

    def reasons(self, lost: Sequence[str]) -> tuple[str, ...]:
        """Why samples have no score: the group does nothing to them, or what else is given for each."""
        return tuple(
            NOTHING_MOVES if one else other
            for one, other in zip(self.alone.tolist(), lost, strict=True)
        )


def orbit(group: Any, batch: Batch, n: int, seed: int = 0) -> Orbit:
    """The samples under all elements of the group where it has at most n, else under n draws for each sample.

    >>> from heatproof.axes.symmetry.groups import cyclic
    >>> batch = Batch(("a", "b"), torch.rand(2, 1, 6))
    >>> orbit(cyclic(), batch, 6).exact, len(orbit("cyclic", batch, 4)), orbit(cyclic(), batch, 4).exact
    (True, 4, False)
    """
    group = build(group)
    return Orbit(group, batch, *plan_elements(group, batch, n, seed))


def explanation_scores(
    around: Orbit,
    explain: Explain,
    clean: Tensor,
    target: Tensor,
    criterion: Criterion,
    others: Batch | None = None,
    shown: Sequence[int] = (),
) -> Estimate:
    """The score of explanations that `explain` gives, beside `clean` ones of the samples as they are.

    `others` are explanations (R, …) of other samples, as `x` beside their ids, for the chance level. `shown` are the
    numbers of the samples whose worst explanation is kept.
    """
    name, group = criterion.similarity, around.group
    each, flaw = around.column(), torch.zeros(len(around.batch), len(around), dtype=torch.int64)
    chance = None if others is None else around.column()
    above = torch.zeros(
        len(around.batch), 0 if others is None else len(others), dtype=torch.float64
    )
    back = around.column() if criterion.moves and not group.exact else None
    stirs, could = torch.zeros(
        2, len(around.batch), dtype=torch.bool
    )  # whether this map is moved, and any other
    generic = probe(clean.shape[1:]).x.to(clean)
    worst: dict[int, tuple[float, Tensor]] = {}
    for piece, maps in explained(around, explain, clean, target):
        rows = (piece.sample, piece.element)

        def alike(a: Tensor, b: Tensor, piece: Piece = piece) -> Tensor:
            """How alike the explanations a of moved inputs and b are, which are moved where they should be."""
            if not criterion.moves:
                return compare(name, a, b)
            b = group.move(piece.g, b)
            return compare(name, viewed(group, piece.g, a), viewed(group, piece.g, b))

        before = clean[piece.sample.to(clean.device)]
        each[rows] = alike(maps, before)
        flaw[rows] = flaws(name, maps)
        if criterion.moves:
            there = group.move(piece.g, before)
            any_map = generic.expand_as(before)
            for moves, a, b in (
                (stirs, there, before),
                (could, group.move(piece.g, any_map), any_map),
            ):
                moves[piece.sample[(a != b).flatten(1).any(1).cpu()]] = True
            if back is not None:
                home = group.inverse(piece.g)
                returned = group.move(home, there)
                back[rows] = compare(
                    name, viewed(group, home, returned), viewed(group, home, before)
                )
        _keep_worst(worst, shown, piece.sample, each[rows], maps)
        if others is not None and chance is not None:
            against = [alike(maps, other.expand_as(maps)) for other in others.x.to(maps.device)]
            pairs = (
                torch.stack(against, 1)
                .masked_fill(itself(piece.batch.ids, others.ids).T, torch.nan)
                .double()
            )
            chance[rows] = pairs.nanmean(1)
            apart = (pairs - chance[rows][:, None]).nan_to_num() / around.counts[piece.sample, None]
            above.index_add_(0, piece.sample, apart)
    moved = "the explanation of a moved input"
    why = reasons(flaws(name, clean), flaw, moved, (each.isnan() & around.used).any(1))
    why = tuple(
        text or (STILL if one else "")
        for text, one in zip(why, (could & ~stirs).tolist(), strict=True)
    )
    scored = estimated(around, each, around.reasons(why), criterion.lowest, criterion.delta)
    scored = replace(scored, worst={i: explanation for i, (_, explanation) in worst.items()})
    scored = replace(scored, back=None if back is None else around.mean(back))
    if chance is None:
        return scored
    chance[around.whole, 0] = (
        1.0  # at the identity every explanation agrees with itself, whatever it is worth
    )
    missing = (chance.isnan() & around.used).any(1)
    level = torch.where(missing, torch.nan, around.mean(chance))
    return replace(
        scored, chance=level, by_reference=above[(level + scored.value).isfinite()].sum(0)
    )


def _keep_worst(
    worst: dict[int, tuple[float, Tensor]],
    shown: Sequence[int],
    sample: Tensor,
    score: Tensor,
    maps: Tensor,
) -> None:
    """Remember the explanations of `shown` samples that score lower than those before; the worst is no score at all."""
    ordered = score.nan_to_num(nan=-torch.inf).tolist()
    for row, i in enumerate(sample.tolist() if shown else ()):
        if i in shown and (i not in worst or ordered[row] < worst[i][0]):
            worst[i] = (ordered[row], maps[row].clone())


def explained(
    around: Orbit, explain: Explain, clean: Tensor, target: Tensor
) -> Iterator[tuple[Piece, Tensor]]:
    """The explanations of all rows of an orbit; those of the samples as they are exist already."""
    if around.whole.any():
        yield around.start(), clean[around.whole.to(clean.device)]
    for piece in around.pieces():
        yield piece, explain(piece.batch, target[piece.sample.to(target.device)])


def layer_errors(
    around: Orbit, activate: Callable[[Batch], Tensor]
) -> tuple[Tensor, Tensor | None]:
    """The relative errors (B, n) of invariance and, where the group can move the output, of equivariance."""
    clean = activate(around.batch)
    same = around.column()
    moved = around.column() if _can_move(around, clean) else None
    for piece in around.pieces(every=True):
        after, before = activate(piece.batch), clean[piece.sample.to(clean.device)]
        same[piece.sample, piece.element] = _relative_error(after, before)
        if moved is not None:
            moved[piece.sample, piece.element] = _relative_error(
                after, around.group.move(piece.g, before)
            )
    for errors in (same, moved) if moved is not None else (same,):
        errors[~around.used] = 0.0
        errors[around.alone] = torch.nan
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
    around: Orbit, each: Tensor, reason: tuple[str, ...], lowest: float, delta: float
) -> Estimate:
    """The mean of scores (B, n) of at least `lowest` over each sample's elements, with its bounds."""
    value = torch.where(torch.tensor([not why for why in reason]), around.mean(each), torch.nan)
    low, high = value.clone(), value.clone()
    if not around.exact:
        sampled = ~around.whole & ~value.isnan()
        low[sampled], high[sampled] = mean_interval(each[sampled], lowest, 1.0, delta)
    return Estimate(value, low, high, each, around.elements, around.exact, reason)


def _relative_error(output: Tensor, expected: Tensor) -> Tensor:
    """‖output − expected‖ / ‖expected‖ by row, 0 where both are zero; (B,) float64 on the CPU."""
    difference = (output.double() - expected.double()).flatten(1).norm(dim=1)
    scale = expected.double().flatten(1).norm(dim=1)
    return torch.where(difference == 0, 0.0, difference / scale).cpu()


def _can_move(around: Orbit, output: Tensor) -> bool:
    """Whether the group acts on a layer's output as it does on the input: the same positions, any channels."""
    x = around.batch.x
    if output.ndim != x.ndim + (not x.is_floating_point()):
        return False
    try:
        around.group.check(tuple(output.shape[1:]))
    except UserError:
        return False
    outputs = Batch(around.batch.ids, output, around.batch.aux)
    return bool(around.group.order(outputs) == around.group.order(around.batch))

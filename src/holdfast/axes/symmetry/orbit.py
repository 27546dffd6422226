"""The orbit of samples under a group, and scores over it; what `holdfast.axes.symmetry.scores` is made of.

The functions here take explanations and predictions as callables, so that the engine's memory guard and a plain call
share every line of the arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch
from torch import Tensor

from holdfast import rand
from holdfast.axes.symmetry.criterion import Criterion, compare, flaws, reasons
from holdfast.axes.symmetry.groups import Group, plan_elements
from holdfast.errors import UserError
from holdfast.maps.similarity import cosine
from holdfast.statistics.bounds import mean_interval
from holdfast.types import Batch, Moved

Explain = Callable[[Batch, Tensor], Tensor]
"""From samples and the classes to explain to explanations (B, …)."""

VALUES_AT_ONCE = 2**25
"""How many input values are moved at once, which bounds the memory."""


@dataclass(frozen=True)
class Estimate:
    """A mean over group elements for each of B samples.

    `value`, `low` and `high` are (B,) float64. They agree where all elements were tried (`exact`); else the mean over
    the group lies between `low` and `high` with probability 1 − delta, for each sample. `each` (B, n) holds the score
    of every element of `elements` (n, B, …). `reason` says why a value is NaN, and is empty where it is not. `floor`
    (B,), for stochastic explainers, is the score at the identity with fresh random draws; `chance` (B,), where other
    samples' explanations are given, that of the moved input's explanation against theirs, moved alike, with 1 at the
    identity where that takes part: what unrelated explanations score. `worst` holds the explanation at the first
    element with the lowest score, or without a score, for the samples that it was asked for.
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
    worst: Mapping[int, Tensor] = field(default_factory=dict)


class ModelInvariance(NamedTuple):
    """How alike a model's outputs are on moved inputs: cosine of the probabilities, and agreement of the top class."""

    cosine: Estimate
    agreement: Estimate


class Piece(NamedTuple):
    """Some rows of an orbit: sample and element numbers (R,), the elements (R, …) and the moved samples."""

    sample: Tensor
    element: Tensor
    g: Tensor
    batch: Batch


@dataclass(frozen=True)
class Orbit:
    """B samples under n elements of a group, as rows (sample, element) in pieces that fit into memory."""

    group: Group
    batch: Batch
    elements: Tensor
    exact: bool

    def __len__(self) -> int:
        return len(self.elements)

    def start(self) -> Piece:
        """The samples as they are, which is what the identity, the first of all elements, makes of them."""
        everyone = torch.arange(len(self.batch))
        return Piece(everyone, torch.zeros_like(everyone), self.elements[0], self.batch)

    def pieces(self, skip: int = 0) -> Iterator[Piece]:
        """The rows sample by sample, without the first `skip` elements."""
        left = len(self) - skip
        if not left:
            return
        size = max(1, VALUES_AT_ONCE // max(1, self.batch.x[0].numel()))
        for rows in torch.split(torch.arange(len(self.batch) * left), size):
            sample, element = rows // left, rows % left + skip
            g = self.elements[element.to(self.elements.device), sample.to(self.elements.device)]
            moved = self.group.act(g, self.batch[sample])
            # What interpolates would blur the noise; there a score is read beside its floor.
            yield Piece(sample, element, g, replace(moved, moved=Moved(self.group.act, g)) if self.group.exact else moved)

    def column(self) -> Tensor:
        """An empty table (B, n)."""
        return torch.full((len(self.batch), len(self)), torch.nan, dtype=torch.float64)


def orbit(group: Group, batch: Batch, n: int, seed: int = 0) -> Orbit:
    """The samples under all elements of the group where it has at most n, else under n draws for each sample.

    >>> from holdfast.axes.symmetry.groups import cyclic
    >>> batch = Batch(("a", "b"), torch.rand(2, 1, 6))
    >>> orbit(cyclic(), batch, 6).exact, len(orbit(cyclic(), batch, 4)), orbit(cyclic(), batch, 4).exact
    (True, 4, False)
    """
    elements, exact = plan_elements(group, batch, n, seed)
    return Orbit(group, batch, elements, exact)


def model_scores(around: Orbit, predict: Callable[[Batch], Tensor], delta: float) -> ModelInvariance:
    """The two scores of a model whose logits `predict` gives; see `model_invariance`."""
    skip = int(around.exact)
    clean = predict(around.batch).double().softmax(1)
    cosines, agreement = around.column(), around.column()
    if skip:
        whole = torch.isfinite(clean).all(1)
        cosines[:, 0] = agreement[:, 0] = torch.where(whole, 1.0, torch.nan)
    for piece in around.pieces(skip):
        moved, before = predict(piece.batch).double().softmax(1), clean[piece.sample]
        same = (moved.argmax(1) == before.argmax(1)).double()
        alike = cosine(moved, before)
        cosines[piece.sample, piece.element] = alike
        agreement[piece.sample, piece.element] = torch.where(torch.isfinite(alike), same, torch.nan)
    reason = tuple("the prediction is not finite" if lost else "" for lost in cosines.isnan().any(1).tolist())
    return ModelInvariance(*(_estimate(around, each, reason, 0.0, delta) for each in (cosines, agreement)))


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
    name = criterion.similarity
    each, flaw = around.column(), torch.zeros(len(around.batch), len(around), dtype=torch.int64)
    chance = None if others is None else around.column()
    worst: dict[int, tuple[float, Tensor]] = {}
    for piece, maps in explained(around, explain, clean, target):
        rows = (piece.sample, piece.element)

        def expected(explanations: Tensor, g: Tensor = piece.g) -> Tensor:
            return around.group.move(g, explanations) if criterion.moves else explanations

        each[rows] = compare(name, maps, expected(clean[piece.sample.to(clean.device)]))
        flaw[rows] = flaws(name, maps)
        _keep_worst(worst, shown, piece.sample, each[rows], maps)
        if others is not None and chance is not None:
            against = [compare(name, maps, expected(other.expand_as(maps))) for other in others.x.to(maps.device)]
            itself = torch.tensor([[sample == other for other in others.ids] for sample in piece.batch.ids])
            chance[rows] = torch.stack(against, 1).masked_fill(itself, torch.nan).nanmean(1)
    moved = "the explanation of a moved input"
    why = reasons(name, flaws(name, clean), flaw, moved, each.isnan().any(1))
    scored = _estimate(around, each, why, criterion.lowest, criterion.delta)
    scored = replace(scored, worst={i: explanation for i, (_, explanation) in worst.items()})
    if chance is None:
        return scored
    if around.exact:
        chance[:, 0] = 1.0  # at the identity every explanation agrees with itself, whatever it is worth
        chance[chance[:, 1:].isnan().all(1)] = torch.nan
    return replace(scored, chance=chance.nanmean(1))


def _keep_worst(
    worst: dict[int, tuple[float, Tensor]], shown: Sequence[int], sample: Tensor, score: Tensor, maps: Tensor
) -> None:
    """Remember the explanations of `shown` samples that score lower than those before; the worst is no score at all."""
    ordered = score.nan_to_num(nan=-torch.inf).tolist()
    for row, i in enumerate(sample.tolist() if shown else ()):
        if i in shown and (i not in worst or ordered[row] < worst[i][0]):
            worst[i] = (ordered[row], maps[row].clone())


def explained(around: Orbit, explain: Explain, clean: Tensor, target: Tensor) -> Iterator[tuple[Piece, Tensor]]:
    """The explanations of all rows of an orbit; those of the samples as they are exist already."""
    if around.exact:
        yield around.start(), clean
    for piece in around.pieces(int(around.exact)):
        yield piece, explain(piece.batch, target[piece.sample.to(target.device)])


def layer_errors(around: Orbit, activate: Callable[[Batch], Tensor]) -> tuple[Tensor, Tensor | None]:
    """The relative errors (B, n) of invariance and, where the group can move the output, of equivariance."""
    clean = activate(around.batch)
    same = around.column()
    moved = around.column() if _can_move(around, clean) else None
    for piece in around.pieces():
        after, before = activate(piece.batch), clean[piece.sample.to(clean.device)]
        same[piece.sample, piece.element] = _relative_error(after, before)
        if moved is not None:
            moved[piece.sample, piece.element] = _relative_error(after, around.group.move(piece.g, before))
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
        noise = rand.uniform(rand.fold(key[sample], draw).to(part.x.device), part.x.shape[1:]).to(part.x)
        noise = radius * (2 * noise - 1)
        if "mask" in part.aux:
            real = part.aux["mask"].to(noise)
            noise = noise * real.reshape(*real.shape, *[1] * (noise.ndim - real.ndim))
        maps = explain(part.with_x(part.x + noise), target[sample.to(target.device)])
        before = clean[sample.to(clean.device)]
        scale = before.double().flatten(1).norm(dim=1)
        change = (maps.double() - before.double()).flatten(1).norm(dim=1)
        changes[sample, draw] = torch.where(scale > 0, change / scale if relative else change, torch.nan).cpu()
    return changes


def _estimate(around: Orbit, each: Tensor, reason: tuple[str, ...], lowest: float, delta: float) -> Estimate:
    value = each.mean(1)
    low, high = (value, value) if around.exact else mean_interval(each, lowest, 1.0, delta)
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

"""SimplEx and representation similarity: training examples near a sample in the space of a layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor, nn
from torch.nn import functional as F

from holdfast.errors import UserError
from holdfast.explainers.examples.loss_gradients import head
from holdfast.explainers.examples.training_set import Examples, ExamplesField
from holdfast.explainers.gradient import slices
from holdfast.models import Model
from holdfast.models.layers import activations
from holdfast.models.smoothed import Smoothed
from holdfast.types import STRICT, Batch

_BLOCK = 2**24
_CHANCES = 4
_ROUNDING = 1e-13


@dataclass(frozen=True, config=STRICT)
class SimplEx:
    """argmin over w ≥ 0, Σw = 1 of ‖h(x) − Σₙ wₙ h(xₙ)‖²: a sample as a mixture of training examples; (B, n) float32.

    h is the output of `layer`, flattened, or what enters the last linear layer when none is named. It is solved to its
    optimum: a duality gap above `tolerance`, relative to the mean squared distance of the examples from the sample, is
    an error. With more examples than dimensions many mixtures may be equally good; `ridge`, in the same unit, adds
    ridge·‖w‖², and so picks the most even of them.

    >>> train = Batch(("a", "b", "c"), torch.tensor([[0.0, 0.0], [2.0, 0.0], [0.0, 9.0]]))
    >>> sample = Batch(("x",), torch.tensor([[0.5, 0.0]]))
    >>> SimplEx(train)(Model(nn.Linear(2, 2)), sample, torch.tensor([0]), seed=0).round(decimals=3).tolist()
    [[0.75, 0.25, 0.0]]
    """

    name: ClassVar[str] = "simplex"
    kind: ClassVar[Literal["example"]] = "example"
    stochastic: ClassVar[bool] = False
    control: ClassVar[bool] = False

    train: ExamplesField
    layer: str = ""
    ridge: Annotated[float, Field(ge=1e-10, le=1)] = 1e-7
    tolerance: Annotated[float, Field(gt=0, lt=1)] = 1e-9

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise unless the layer exists and the training examples have the samples' shape; no pass is made."""
        check_layer(model, self.train, self.layer, shape, self.name)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Weights (B, n); the classes do not matter."""
        own, others = representations(model, self.train, self.layer, batch, self.name)
        weights, gap = simplex_weights(others, own, self.ridge)
        worst = float(gap.max())
        if not worst <= self.tolerance:
            raise UserError(
                f"simplex stopped with a duality gap of {worst:.1e}, above its tolerance {self.tolerance:g}; "
                "raise ridge or tolerance"
            )
        return weights.float()


@dataclass(frozen=True, config=STRICT)
class RepresentationSimilarity:
    """The cosine between h(x) and h(xₙ), or with "dot" their product h(x)ᵀh(xₙ), per training example; (B, n) float32.

    h is the output of `layer`, flattened, or what enters the last linear layer when none is named. A representation of
    zeros has no direction, and a cosine of 0 with every other.

    >>> train = Batch(("a", "b"), torch.tensor([[1.0, 0.0], [3.0, 4.0]]))
    >>> sample = Batch(("x",), torch.tensor([[2.0, 0.0]]))
    >>> RepresentationSimilarity(train)(Model(nn.Linear(2, 2)), sample, torch.tensor([0]), seed=0).tolist()
    [[1.0, 0.6000000238418579]]
    """

    name: ClassVar[str] = "representation_similarity"
    kind: ClassVar[Literal["example"]] = "example"
    stochastic: ClassVar[bool] = False
    control: ClassVar[bool] = False

    train: ExamplesField
    layer: str = ""
    metric: Literal["cosine", "dot"] = "cosine"

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise unless the layer exists and the training examples have the samples' shape; no pass is made."""
        check_layer(model, self.train, self.layer, shape, self.name)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Similarities (B, n); the classes do not matter."""
        own, others = representations(model, self.train, self.layer, batch, self.name)
        if self.metric == "cosine":
            own, others = F.normalize(own, dim=1), F.normalize(others, dim=1)
        return (own @ others.T).float()


def check_layer(model: Model, train: Examples, layer: str, shape: Sequence[int], what: str) -> None:
    """Raise for a model, a layer or examples that a representation-based method is not defined on; no pass is made."""
    if isinstance(model, Smoothed):
        raise UserError(f"{what} reads one layer, but {model.name} averages many passes; explain what it smooths")
    train.check_shape(shape)
    if layer:
        model.layer(layer)
    elif not any(isinstance(module, nn.Linear) for module in model.module.modules()):
        raise UserError(f"{model.name} has no linear layer, so name the layer that {what} should read")


def representations(model: Model, train: Examples, layer: str, batch: Batch, what: str) -> tuple[Tensor, Tensor]:
    """h of the samples (B, d) and of the training examples (n, d), float64; the latter are kept between calls.

    >>> train = Examples(Batch(("a", "b"), torch.zeros(2, 3)))
    >>> own, others = representations(Model(nn.Linear(3, 5)), train, "", Batch(("x",), torch.ones(1, 3)), "mine")
    >>> own.tolist(), others.shape
    ([[1.0, 1.0, 1.0]], torch.Size([2, 3]))
    """
    check_layer(model, train, layer, batch.x.shape[1:], what)
    path = layer or head(model, train)
    read = activations if layer else _taken
    others = train.remember(model, ("representations", layer), lambda: read(model, train.batch, path))
    own = read(model, batch, path)
    if own.shape[1:] != others.shape[1:]:
        raise UserError(
            f"layer {path!r} of {model.name} gives {tuple(own.shape[1:])} for the samples but "
            f"{tuple(others.shape[1:])} for the training examples, so {what} cannot compare them; "
            "name a layer behind the pooling"
        )
    return own.flatten(1).double(), others.flatten(1).double()


def _taken(model: Model, batch: Batch, path: str) -> Tensor:
    """What enters a layer, (B, …) float32."""
    found: list[Tensor] = []

    def keep(_: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor]) -> None:
        found.append((*args, *kwargs.values())[0].detach().float())

    handle = model.layer(path).register_forward_pre_hook(keep, with_kwargs=True)
    try:
        with torch.no_grad():
            for number, rows in enumerate(slices(len(batch), model.rows), 1):
                part = batch[rows].to(model.device)
                model.logits(model.inputs(part), part.aux)
                if len(found) != number or len(found[-1]) != len(part):
                    raise UserError(f"layer {path!r} of {model.name} does not run once per sample; name another layer")
    finally:
        handle.remove()
    return torch.cat(found)


def simplex_weights(points: Tensor, targets: Tensor, ridge: float = 1e-7) -> tuple[Tensor, Tensor]:
    """The mixtures (B, n) of `points` (n, d) nearest to each of `targets` (B, d), and their duality gaps (B,).

    Minimised is ½wᵀGw over the simplex with G = (points − target)(points − target)ᵀ/s + ridge·I, s the mean squared
    distance. The gap wᵀGw − minₙ (Gw)ₙ bounds how far the value is from the minimum.

    The objective is homogeneous, so w ∝ u where u ≥ 0 minimises ½uᵀ(G + 11ᵀ)u − Σu: a strictly convex problem that
    pivoting solves exactly, in finitely many steps.

    >>> weights, gap = simplex_weights(torch.eye(3).double(), torch.tensor([[0.2, 0.3, 0.5]]).double())
    >>> weights.round(decimals=4).tolist(), bool(gap < 1e-12)
    ([[0.2, 0.3, 0.5]], True)
    """
    # Around their mean, products lose no digits to the distance from the origin, and s is the sum of two squares.
    centre = points.double().mean(0)
    around, all_targets = points.double() - centre, targets.double() - centre
    products, spread = around @ around.T, around.square().sum(1).mean()
    weights, gaps = [], []
    for rows in slices(len(targets), max(1, _BLOCK // len(points) ** 2)):
        target = all_targets[rows]
        cross, square = target @ around.T, target.square().sum(1)
        gram = products - cross[:, :, None] - cross[:, None] + square[:, None, None]
        gram /= (spread + square).clamp(min=torch.finfo(torch.float64).tiny)[:, None, None]
        gram.diagonal(dim1=1, dim2=2).add_(ridge)
        found = _non_negative(gram + 1)
        found = found / found.sum(1, keepdim=True)
        image = (gram @ found[:, :, None])[:, :, 0]
        weights.append(found)
        gaps.append((found * image).sum(1) - image.amin(1))
    return torch.cat(weights), torch.cat(gaps)


def _non_negative(matrix: Tensor) -> Tensor:
    """argmin over u ≥ 0 of ½uᵀQu − Σu for positive definite Q (B, n, n); (B, n).

    First by block principal pivoting, where all variables of the wrong sign change sides at once: a few steps, however
    many variables end up positive. It may go round in circles; what has not improved four times is solved one by one.
    """
    batch, n = matrix.shape[:2]
    solution = torch.zeros(batch, n, dtype=matrix.dtype, device=matrix.device)
    passive = torch.ones_like(solution, dtype=torch.bool)
    fewest = torch.full((batch,), n + 1, device=matrix.device)
    chances = torch.full((batch,), _CHANCES, device=matrix.device)
    todo = torch.arange(batch, device=matrix.device)
    while len(todo):
        values, slopes = _stationary(matrix[todo], passive[todo])
        solution[todo] = values.clamp(min=0)
        wrong = torch.where(passive[todo], values < -_ROUNDING, slopes < -_ROUNDING)
        count = wrong.sum(1)
        better = count < fewest[todo]
        fewest[todo] = torch.where(better, count, fewest[todo])
        chances[todo] = torch.where(better, _CHANCES, chances[todo] - 1)
        passive[todo] ^= wrong
        todo = todo[(count > 0) & (chances[todo] > 0)]
    circling = (fewest > 0).nonzero()[:, 0]
    if len(circling):
        solution[circling] = _one_at_a_time(matrix[circling])
    return solution


def _one_at_a_time(matrix: Tensor) -> Tensor:
    """The same minimum by an active set: the steepest variable enters, those that would turn negative leave.

    The value falls with every step, so it ends, after about as many steps as variables end up positive.
    """
    batch, n = matrix.shape[:2]
    solution = torch.zeros(batch, n, dtype=matrix.dtype, device=matrix.device)
    passive = torch.zeros_like(solution, dtype=torch.bool)
    tried = passive.clone()
    passive[:, 0] = True
    todo = torch.arange(batch, device=matrix.device)
    for _ in range(10 * n + 100):
        now, free = solution[todo], passive[todo]
        values, slopes = _stationary(matrix[todo], free)
        sinking = free & (values <= 0)
        ratio = torch.where(sinking, now / (now - values).clamp(min=torch.finfo(now.dtype).tiny), torch.inf)
        length = ratio.amin(1, keepdim=True).clamp(max=1)
        moved = torch.where(free, now + length * (values - now), 0)
        leaving = sinking & (ratio <= length)
        solution[todo] = torch.where(leaving, 0, moved)
        whole = ~sinking.any(1, keepdim=True)
        # A variable that leaves without having moved came by rounding alone; it is not tried again until others move.
        tried[todo] = torch.where(whole, False, tried[todo] | (leaving & (now == 0)))
        candidates = torch.where(free | tried[todo], 0, slopes)
        steepest = candidates.argmin(1, keepdim=True)
        entering = whole & (candidates.gather(1, steepest) < -_ROUNDING)
        passive[todo] = (free & ~leaving) | (torch.zeros_like(free).scatter(1, steepest, True) & entering)
        todo = todo[(entering | ~whole)[:, 0]]
        if not len(todo):
            break
    return solution


def _stationary(matrix: Tensor, passive: Tensor) -> tuple[Tensor, Tensor]:
    """The minimum with all but the passive variables held at 0, and the slopes Qu − 1, (B, n) each."""
    size = max(1, int(passive.sum(1).max()))
    order = passive.int().argsort(dim=1, descending=True, stable=True)[:, :size]
    chosen = passive.gather(1, order)
    rows = matrix.gather(1, order[:, :, None].expand(-1, -1, matrix.shape[2]))
    block = rows.gather(2, order[:, None].expand(-1, size, -1))
    both = chosen[:, :, None] & chosen[:, None]
    block = torch.where(both, block, torch.eye(size, dtype=block.dtype, device=block.device))
    factor = torch.linalg.cholesky(block)
    values = torch.cholesky_solve(chosen.to(block.dtype)[:, :, None], factor)
    slopes = (rows.mT @ values)[:, :, 0] - 1
    return torch.zeros_like(slopes).scatter(1, order, values[:, :, 0]), slopes

"""Methods that read the gradient of the target's logit with respect to the normalised input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.baselines import REFERENCES, Baseline, starting_points
from heatproof.explainers.examples.training_set import Examples
from heatproof.explainers.requested_error import RequestedError, explain_to_error
from heatproof.models import Model
from heatproof.types import STRICT, Batch, Method

Quadrature = Literal[
    "gausslegendre", "riemann_left", "riemann_right", "riemann_middle", "riemann_trapezoid"
]


def input_gradient(
    model: Model,
    inputs: Tensor,
    aux: Mapping[str, Tensor],
    target: Tensor,
    during: AbstractContextManager[object] | None = None,
) -> tuple[Tensor, Tensor]:
    """∂f_t/∂x (B, …) and f_t (B,) for the target's logit f_t, in passes of at most `model.rows` inputs.

    `during` is a context entered around every forward pass; it may change how the pass is differentiated.

    >>> net = torch.nn.Linear(3, 2, bias=False)
    >>> _ = net.weight.data.copy_(torch.arange(6.0).reshape(2, 3))
    >>> gradients, logits = input_gradient(Model(net), torch.ones(1, 3), {}, torch.tensor([1]))
    >>> gradients.tolist(), logits.tolist()
    ([[3.0, 4.0, 5.0]], [12.0])
    """
    gradients, logits = [], []
    for rows in slices(len(inputs), model.rows):
        with torch.enable_grad():
            leaf = inputs[rows].detach().requires_grad_()
            with during or nullcontext():
                # The network gets a copy of the leaf, for its first step may work in place.
                scores = model.logits(leaf.clone(), rows_of(aux, rows, leaf.device))
            chosen = scores.gather(1, target[rows].to(scores.device)[:, None]).squeeze(1)
            if not chosen.requires_grad:
                raise UserError(f"the output of {model.name} carries no gradient back to its input")
            (gradient,) = torch.autograd.grad(
                chosen.sum(), leaf, allow_unused=True, materialize_grads=True
            )
        gradients.append(gradient)
        logits.append(chosen.detach())
    return joined(gradients), joined(logits)


class FromBaseline(Method):
    """A method whose maps, in expectation, sum to f_t(x) − f_t(b) for its baseline b."""

    baseline: Any

    def promised(self, model: Model, batch: Batch, target: Tensor) -> Tensor:
        """f_t(x) − f_t(b) (B,); NaN for a baseline that is drawn, with which nothing is promised of a single map."""
        batch = batch.to(model.device)
        inputs = normalised(model, batch)
        if not isinstance(self.baseline, float):
            return torch.full((len(batch),), torch.nan, device=model.device)
        with torch.no_grad():
            scores = [
                model.logits(x, batch.aux) for x in (inputs, torch.full_like(inputs, self.baseline))
            ]
        return (scores[0] - scores[1]).gather(1, target.to(model.device)[:, None])[:, 0]


def joined(parts: Sequence[Tensor]) -> Tensor:
    """The parts one after another, without a copy where there is only one.

    >>> joined([torch.ones(1), torch.zeros(2)]).tolist()
    [1.0, 0.0, 0.0]
    """
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def normalised(model: Model, batch: Batch) -> Tensor:
    """The model's inputs (B, …), detached, on its device; an error where they have no gradient, as token ids have not.

    >>> normalised(Model(torch.nn.Flatten(), mean=0.5, std=0.5), Batch(("a",), torch.ones(1, 2))).tolist()
    [[1.0, 1.0]]
    """
    inputs = model.inputs(batch).detach()
    if not inputs.is_floating_point():
        kind = str(inputs.dtype).removeprefix("torch.")
        raise UserError(
            f"{model.name} is given inputs of type {kind}; gradient methods need "
            "floating-point inputs; for token ids name the layer that embeds them: Model(..., embedding=path)"
        )
    return inputs


def slices(n: int, rows: int) -> Iterator[slice]:
    """Consecutive slices of at most `rows` that cover 0 … n − 1.

    >>> [(s.start, s.stop) for s in slices(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    for start in range(0, n, max(1, rows)):
        yield slice(start, min(start + max(1, rows), n))


def draws(
    images: int, each: int, rows: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[Tensor, Tensor]]:
    """All (image, draw) pairs, image by image, as index tensors of at most `rows` entries.

    They are made on the device where they are used: sending them there would wait for all work that is under way.

    >>> [(image.tolist(), draw.tolist()) for image, draw in draws(2, 2, 3)]
    [([0, 0, 1], [0, 1, 0]), ([1], [1])]
    """
    for part in slices(images * each, rows):
        flat = torch.arange(part.start, part.stop, device=device)
        yield flat // each, flat % each


def rows_of(
    aux: Mapping[str, Tensor], index: slice | Tensor, device: torch.device
) -> dict[str, Tensor]:
    """The matching rows of every auxiliary tensor, on the network's device.

    >>> rows_of({"mask": torch.arange(4)}, slice(1, 3), torch.device("cpu"))["mask"].tolist()
    [1, 2]
    """
    return {
        name: v[index.to(v.device) if isinstance(index, Tensor) else index].to(device)
        for name, v in aux.items()
    }


@dataclass(frozen=True, config=STRICT)
class Saliency(Method):
    """|∂f_t/∂x|, or the signed gradient with `absolute=False`; (B, …) in the shape of the input.

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> maps = Saliency()(model, Batch(("a",), torch.rand(1, 3)), torch.tensor([0]), seed=0)
    >>> bool((maps == model.module.weight[0].abs()).all())
    True
    """

    name: ClassVar[str] = "saliency"

    absolute: bool = True

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        gradients, _ = input_gradient(model, normalised(model, batch), batch.aux, target)
        return gradients.abs() if self.absolute else gradients


@dataclass(frozen=True, config=STRICT)
class InputXGradient(Method):
    """x · ∂f_t/∂x with the normalised input x; (B, …) in the shape of the input.

    >>> model = Model(torch.nn.Linear(3, 2, bias=False))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> maps = InputXGradient()(model, batch, target, seed=0)
    >>> torch.allclose(maps.sum(), model.logits(batch.x)[0, 0])
    True
    """

    name: ClassVar[str] = "input_x_gradient"

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        inputs = normalised(model, batch)
        gradients, _ = input_gradient(model, inputs, batch.aux, target)
        return inputs * gradients


@dataclass(frozen=True, config=STRICT)
class IntegratedGradients(FromBaseline):
    """(x − b) · ∫₀¹ ∂f_t/∂x (b + α(x − b)) dα, the integral by a quadrature of `steps` points; (B, …).

    `baseline` b is one value of the normalised input: 0 is the mean colour for a model that normalises; or "random"
    numbers, or one of the samples of a pool, drawn for each sample (see `Baseline`). The maps sum to f_t(x) − f_t(b) up
    to the quadrature's error; `error` asks for so small a gap, relative to that sum, in place of `steps`. The rules
    have Captum's names and weights; those of `riemann_trapezoid` sum to 1 − 1/steps there, and so they do here.

    >>> model = Model(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softplus()))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([1])
    >>> total = IntegratedGradients()(model, batch, target, seed=0).sum()
    >>> torch.allclose(total, model.logits(batch.x)[0, 1] - model.logits(0 * batch.x)[0, 1], atol=1e-5)
    True
    """

    name: ClassVar[str] = "integrated_gradients"

    steps: Annotated[int, Field(ge=1)] = 50
    baseline: Baseline = 0.0
    method: Quadrature = "gausslegendre"
    error: RequestedError = None

    def __post_init__(self) -> None:
        if self.error is not None and self.stochastic:
            raise UserError(
                "error is a completeness gap, which only a baseline that is one number promises to close"
            )

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters: where the baseline is drawn."""
        return not isinstance(self.baseline, float)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        inputs = normalised(model, batch)
        start = starting_points(self.name, self.baseline, model, batch, seed)
        every = torch.arange(len(inputs), device=inputs.device)
        base = (
            start if isinstance(start, float) else start(every, torch.zeros_like(every)).to(inputs)
        )
        difference = inputs - base
        nodes, weights = (v.to(inputs) for v in quadrature(self.method, self.steps))
        integral = torch.zeros_like(inputs)
        target = target.to(inputs.device)
        for row, node in draws(len(inputs), self.steps, model.rows, inputs.device):
            points = difference[row].mul_(per_row(nodes[node], inputs))
            if isinstance(base, Tensor):
                points += base[row]
            elif base:
                points += base
            aux = rows_of(batch.aux, row, inputs.device)
            gradients, _ = input_gradient(model, points, aux, target[row])
            integral.index_add_(0, row, gradients.mul_(per_row(weights[node], inputs)))
        return integral * difference


@dataclass(frozen=True, config=STRICT)
class GradientShap(FromBaseline):
    """The mean over draws of (x̃ − b) · ∂f_t/∂x (b + α(x̃ − b)), α uniform on (0, 1), x̃ = x + σ·noise; (B, …).

    `sigma` and `baseline` b are in units of the normalised input; b may be drawn anew for every draw: as "random"
    numbers, from the samples of a pool or, as the method's paper has it, from the study's "references". All draws
    depend on the seed and the sample's id only, so two versions of a sample share them. `error` asks for a precision
    in place of `samples` (see `heatproof.explainers.requested_error`).

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> torch.allclose(GradientShap()(model, batch, target, 0), InputXGradient()(model, batch, target, 0))
    True
    """

    name: ClassVar[str] = "gradient_shap"
    stochastic: ClassVar[bool] = True
    stratified: ClassVar[bool] = False

    samples: Annotated[int, Field(ge=1)] = 5
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    baseline: Baseline = 0.0
    error: RequestedError = None

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Maps (B, …) for the classes `target` (B,)."""
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        inputs = normalised(model, batch)
        path = rand.keys(seed, batch.ids, self.name).to(inputs.device)
        noise = rand.keys(seed, batch.ids, f"{self.name} noise").to(inputs.device)
        start = starting_points(self.name, self.baseline, model, batch, seed)
        total = torch.zeros_like(inputs)
        target = target.to(inputs.device)
        stratum = self._strata(path) if self.stratified else None
        for row, index in draws(len(inputs), self.samples, model.rows, inputs.device):
            alpha = rand.uniform(rand.fold(path[row], index), (1,))
            if stratum is not None:
                alpha = (stratum[row, index][:, None] + alpha) / self.samples
            base = start if isinstance(start, float) else start(row, index).to(inputs)
            difference = inputs[row] - base
            if self.sigma:
                drawn = rand.normal(rand.fold(noise[row], index), inputs.shape[1:]).to(inputs)
                difference += self.sigma * batch[row].carried(drawn)
            points = base + per_row(alpha.to(inputs), inputs) * difference
            aux = rows_of(batch.aux, row, inputs.device)
            gradients, _ = input_gradient(model, points, aux, target[row])
            total.index_add_(0, row, difference * gradients)
        return total / self.samples

    def _strata(self, key: Tensor) -> Tensor:
        """Which of `samples` strata of α each draw has, (B, samples): those of any one baseline are spread evenly."""
        drawn = self.samples if self.baseline == "random" else 1
        pool = len(self.baseline) if isinstance(self.baseline, Examples) else drawn
        draw = torch.arange(self.samples, device=key.device)
        place = rand.permutation(rand.fold(key, -1), pool)
        return (draw // pool * pool + place[:, draw % pool]).argsort(1).argsort(1)


@dataclass(frozen=True, config=STRICT)
class ExpectedGradients(GradientShap):
    """The mean over baselines b of (x − b) · ∂f_t/∂x (b + α(x − b)), with one α in each of `samples` strata; (B, …).

    Draw k has α uniform in [j, j + 1) / samples, the strata j of any one baseline far apart, and a baseline of its own:
    by default one of the study's references, none twice before all had their turn; `sigma` as in `GradientShap`.

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> maps = ExpectedGradients(baseline=0.0)(model, batch, target, 0)
    >>> torch.allclose(maps, InputXGradient()(model, batch, target, 0), atol=1e-6)
    True
    """

    name: ClassVar[str] = "expected_gradients"
    stratified: ClassVar[bool] = True

    samples: Annotated[int, Field(ge=1)] = 50
    baseline: Baseline = REFERENCES


def quadrature(method: Quadrature, steps: int) -> tuple[Tensor, Tensor]:
    """Nodes on [0, 1] and weights, (steps,) each, of a rule for ∫₀¹ g(α) dα.

    >>> nodes, weights = quadrature("gausslegendre", 3)
    >>> round(float((nodes**5 * weights).sum()), 6) == round(1 / 6, 6)
    True
    """
    if method == "gausslegendre":
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        return torch.from_numpy((1 + nodes) / 2), torch.from_numpy(weights / 2)
    if steps < 2:
        raise UserError(
            f"method={method!r} needs at least 2 steps, got {steps}; 'gausslegendre' works with 1"
        )
    even = torch.arange(steps, dtype=torch.float64)
    equal = torch.full((steps,), 1 / steps, dtype=torch.float64)
    if method == "riemann_trapezoid":
        equal[[0, -1]] /= 2
        return even / (steps - 1), equal
    offset = {"riemann_left": 0.0, "riemann_middle": 0.5, "riemann_right": 1.0}[method]
    return (even + offset) / steps, equal


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """One number per row, shaped to multiply a tensor of the rank of `like`.

    >>> per_row(torch.ones(2), torch.zeros(2, 3, 4)).shape
    torch.Size([2, 1, 1])
    """
    return values.reshape(-1, *[1] * (like.ndim - 1))

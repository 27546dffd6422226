"""Methods that read the gradient of the target's logit with respect to the normalised input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.background import Background, BackgroundField, loaded
from heatproof.explainers.baselines import (
    REFERENCES,
    Baseline,
    Pick,
    pool_draws,
    starting_points,
)
from heatproof.explainers.examples.training_set import Examples
from heatproof.explainers.requested_error import RequestedError, explain_to_error
from heatproof.explainers.undefined import NEEDS_VECTORS
from heatproof.models import Model
from heatproof.types import Batch, Explainer, Requirement, parameter_class

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
    """Return the gradient ∂f_t/∂x (B, …) of the target's logit, and the logit f_t (B,).

    `inputs` are normalised, and `aux` are their auxiliary tensors. A pass has at most `model.rows` inputs. `during` is
    a context entered around every forward pass; it may change how the pass is differentiated.

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


class FromBaseline(Explainer):
    """A method whose maps, in expectation, sum to f_t(x) − f_t(b) for its baseline b (completeness).

    With a `background` they sum to f_t(x) − Σ_r w_r f_t(b_r) over its rows b_r of weight w_r.
    """

    requires: ClassVar[tuple[Requirement, ...]] = ("gradients",)
    undefined_on = NEEDS_VECTORS

    name: ClassVar[str]
    baseline: Any
    background: Any

    def promised(self, model: Model, batch: Batch, target: Tensor) -> Tensor:
        """Return what each map should sum to by completeness: f_t(x) − f_t(b), (B,), for the class `target` and baseline b.

        NaN where baselines are drawn at random: then only the expected map has that sum.
        """
        batch = batch.to(model.device)
        inputs = normalised(model, batch)
        rows = self.fixed_baselines(model, batch)
        if rows is None:
            return torch.full((len(batch),), torch.nan, device=model.device)
        with torch.no_grad():
            difference = model.logits(inputs, batch.aux)
            for baseline, weight in rows:
                scores = model.logits(baseline.expand_as(inputs).clone(), batch.aux)
                difference = difference - weight * scores
        return difference.gather(1, target.to(model.device)[:, None])[:, 0]

    @property
    def draws_baselines(self) -> bool:
        """Whether baselines are drawn anew for each sample: noise, or samples of a pool of several."""
        if self.background is not None or self.baseline is None or isinstance(self.baseline, float):
            return False
        return not (isinstance(self.baseline, Examples) and len(self.baseline) == 1)

    def fixed_baselines(self, model: Model, batch: Batch) -> list[tuple[Tensor, float]] | None:
        """Return the baselines (…) of all samples, as normalised inputs, with their weights; None if they are drawn."""
        background = loaded(self.name, self.background)
        if background is None and self.draws_baselines:
            return None
        if background is None and isinstance(self.baseline, Examples):
            background = Background(self.baseline)
        if background is None:
            value = 0.0 if self.baseline is None else self.baseline
            return [(normalised(model, batch).new_tensor(value), 1.0)]
        values, weights = background.values(self.name, model, batch)
        return list(zip(values, weights.tolist(), strict=True))


def joined(parts: Sequence[Tensor]) -> Tensor:
    """Return tensors concatenated along their first axis, without a copy if there is only one.

    >>> joined([torch.ones(1), torch.zeros(2)]).tolist()
    [1.0, 0.0, 0.0]
    """
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def normalised(model: Model, batch: Batch) -> Tensor:
    """Return the model's normalised inputs (B, …) for a gradient method, detached and on the model's device.

    Token ids have no gradient; without an embedding layer they are a `UserError`.

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
    """Yield consecutive slices of at most `rows` that cover 0 … n − 1.

    >>> [(s.start, s.stop) for s in slices(5, 2)]
    [(0, 2), (2, 4), (4, 5)]
    """
    step = max(1, rows)
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def draws(
    samples: int, per_sample: int, rows: int, device: torch.device | str = "cpu"
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the numbers of all samples and their draws, in passes: (sample, draw), at most `rows` numbers each.

    All draws of sample 0 come first. The tensors are made on the device that uses them, because copying them to a GPU
    would wait for its pending work.

    >>> [(sample.tolist(), draw.tolist()) for sample, draw in draws(2, 2, 3)]
    [([0, 0, 1], [0, 1, 0]), ([1], [1])]
    """
    for part in slices(samples * per_sample, rows):
        pair = torch.arange(part.start, part.stop, device=device)
        yield pair // per_sample, pair % per_sample


def rows_of(
    aux: Mapping[str, Tensor], index: slice | Tensor, device: torch.device
) -> dict[str, Tensor]:
    """Return the rows `index` of every auxiliary tensor, on the network's device.

    >>> rows_of({"mask": torch.arange(4)}, slice(1, 3), torch.device("cpu"))["mask"].tolist()
    [1, 2]
    """
    rows = {}
    for name, tensor in aux.items():
        own_index = index.to(tensor.device) if isinstance(index, Tensor) else index
        rows[name] = tensor[own_index].to(device)
    return rows


@parameter_class
class Saliency(Explainer):
    """|∂f_t/∂x|, or the signed gradient with `absolute=False`; (B, …) in the shape of the input.

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> maps = Saliency()(model, Batch(("a",), torch.rand(1, 3)), torch.tensor([0]), seed=0)
    >>> bool((maps == model.module.weight[0].abs()).all())
    True
    """

    name: ClassVar[str] = "saliency"
    requires = ("gradients",)
    undefined_on = NEEDS_VECTORS
    cost = "1 pass and its gradient"

    absolute: bool = True

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return |∂f_t/∂x| (B, …) of the target's logit f_t, or the signed gradient with absolute=False; `seed` is unused."""
        gradients, _ = input_gradient(model, normalised(model, batch), batch.aux, target)
        return gradients.abs() if self.absolute else gradients


@parameter_class
class InputXGradient(Explainer):
    """x · ∂f_t/∂x with the normalised input x; (B, …) in the shape of the input.

    >>> model = Model(torch.nn.Linear(3, 2, bias=False))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> maps = InputXGradient()(model, batch, target, seed=0)
    >>> torch.allclose(maps.sum(), model.logits(batch.x)[0, 0])
    True
    """

    name: ClassVar[str] = "input_x_gradient"
    requires = ("gradients",)
    undefined_on = NEEDS_VECTORS
    cost = "1 pass and its gradient"

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return x · ∂f_t/∂x (B, …) of the target's logit f_t; `seed` is unused."""
        inputs = normalised(model, batch)
        gradients, _ = input_gradient(model, inputs, batch.aux, target)
        return inputs * gradients


@parameter_class
class IntegratedGradients(FromBaseline):
    """(x − b) · ∫₀¹ ∂f_t/∂x (b + α(x − b)) dα, the integral by a quadrature of `steps` points; (B, …).

    The method of Sundararajan, Taly and Yan (ICML 2017). `baseline` b is one value of the normalised input (0 is the
    mean colour for a model that normalises), a sample, "random" numbers, or one of the samples of a pool, drawn for each
    sample (see `Baseline`). With a `background` the map is the mean of those from each of its rows; in a study of tables
    these are the reference samples. The maps sum to f_t(x) − f_t(b) up to the quadrature's error; `error` bounds that
    gap, relative to the sum, in place of `steps`. The quadrature rules have Captum's names and weights, although its
    `riemann_trapezoid` weights sum to 1 − 1/steps instead of 1.

    >>> model = Model(torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.Softplus()))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([1])
    >>> total = IntegratedGradients()(model, batch, target, seed=0).sum()
    >>> torch.allclose(total, model.logits(batch.x)[0, 1] - model.logits(0 * batch.x)[0, 1], atol=1e-5)
    True
    """

    name: ClassVar[str] = "integrated_gradients"
    cost = "`steps` passes and their gradients"

    steps: Annotated[int, Field(ge=1)] = 50
    baseline: Baseline | None = None
    method: Quadrature = "gausslegendre"
    error: RequestedError = None
    background: BackgroundField = None

    def __post_init__(self) -> None:
        if self.error is not None and self.stochastic:
            raise UserError(
                "error is a completeness gap, which only a baseline that is one number promises to close"
            )

    @property
    def stochastic(self) -> bool:  # type: ignore[override]
        """Whether the seed matters: only if the baseline is drawn."""
        return self.draws_baselines

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return integrated gradients (B, …) of the classes `target` (B,), the weighted mean over the baselines."""
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        inputs = normalised(model, batch)
        target = target.to(inputs.device)
        baselines = self.fixed_baselines(model, batch)
        if baselines is None:
            assert self.baseline is not None  # one that is drawn was chosen
            pick: Any = starting_points(self.name, self.baseline, model, batch, seed)
            all_rows = torch.arange(len(inputs), device=inputs.device)
            drawn = pick(all_rows, torch.zeros_like(all_rows)).to(inputs)
            return self._path_maps(model, inputs, drawn, batch.aux, target)
        total: Tensor | None = None
        for baseline, weight in baselines:
            maps = self._path_maps(model, inputs, baseline.expand_as(inputs), batch.aux, target)
            weighted = maps if weight == 1 else weight * maps
            total = weighted if total is None else total + weighted
        assert total is not None  # because a background has rows
        return total

    def _path_maps(
        self,
        model: Model,
        inputs: Tensor,
        baseline: Tensor,
        aux: Mapping[str, Tensor],
        target: Tensor,
    ) -> Tensor:
        """Return (x − b) times the integral of the gradient on the straight line from baseline b to input x, (B, …).

        The integral is a sum over `self.steps` nodes on each line, by the quadrature rule `self.method`.
        """
        difference = inputs - baseline
        nodes, weights = (values.to(inputs) for values in quadrature(self.method, self.steps))
        integral = torch.zeros_like(inputs)
        for row, node in draws(len(inputs), self.steps, model.rows, inputs.device):
            points = difference[row].mul_(per_row(nodes[node], inputs)).add_(baseline[row])
            path_aux = rows_of(aux, row, inputs.device)
            gradients, _ = input_gradient(model, points, path_aux, target[row])
            # `row` repeats, because a sample has several nodes in a pass; index_add_ sums them.
            integral.index_add_(0, row, gradients.mul_(per_row(weights[node], inputs)))
        return integral * difference


@parameter_class
class GradientShap(FromBaseline):
    """The mean over draws of (x̃ − b) · ∂f_t/∂x (b + α(x̃ − b)), α uniform on (0, 1), x̃ = x + σ·noise; (B, …).

    `sigma` and `baseline` b are in units of the normalised input. b is a number, or drawn again for every draw: as
    "random" numbers, from the samples of a pool or, as in the paper (Lundberg and Lee), from the study's "references".
    A `background` is a pool too, whose rows are drawn by their weights; in a study of tables the references are.
    All draws depend on the seed and the sample's id only, so two versions of a sample share them. `error` asks for a
    precision in place of `samples` (see `heatproof.explainers.requested_error`).

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> torch.allclose(GradientShap()(model, batch, target, 0), InputXGradient()(model, batch, target, 0))
    True
    """

    name: ClassVar[str] = "gradient_shap"
    stochastic: ClassVar[bool] = True
    cost = "`samples` passes and their gradients"

    stratified: ClassVar[bool] = False

    samples: Annotated[int, Field(ge=1)] = 5
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    baseline: Baseline | None = None
    error: RequestedError = None
    background: BackgroundField = None

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the maps (B, …) of the classes `target` (B,): the mean of (x̃ − b) · gradient over `self.samples` draws.

        Each draw has a baseline b, a noisy input x̃ and a random point on the line between them, where the gradient is
        taken.
        """
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        inputs = normalised(model, batch)
        path_key = rand.keys(seed, batch.ids, self.name).to(inputs.device)
        noise_key = rand.keys(seed, batch.ids, f"{self.name} noise").to(inputs.device)
        background = loaded(self.name, self.background)
        start: Pick | float
        if background is None:
            baseline = 0.0 if self.baseline is None else self.baseline
            start = starting_points(self.name, baseline, model, batch, seed)
        else:
            values, weights = background.values(self.name, model, batch)
            start = pool_draws(self.name, batch, values, seed, weights)
        total = torch.zeros_like(inputs)
        target = target.to(inputs.device)
        strata = self._strata(path_key) if self.stratified else None
        for row, draw in draws(len(inputs), self.samples, model.rows, inputs.device):
            alpha = rand.uniform(rand.fold(path_key[row], draw), (1,))
            if strata is not None:
                alpha = (strata[row, draw][:, None] + alpha) / self.samples
            base = start if isinstance(start, float) else start(row, draw).to(inputs)
            difference = inputs[row] - base
            if self.sigma:
                noise = rand.normal(rand.fold(noise_key[row], draw), inputs.shape[1:]).to(inputs)
                difference += self.sigma * batch[row].carried(noise)
            points = base + per_row(alpha.to(inputs), inputs) * difference
            aux = rows_of(batch.aux, row, inputs.device)
            gradients, _ = input_gradient(model, points, aux, target[row])
            total.index_add_(0, row, difference * gradients)
        return total / self.samples

    def _strata(self, key: Tensor) -> Tensor:
        """Return for each draw which of `samples` equal parts of the path its point lies in, (B, samples).

        That is a permutation of 0 … samples − 1 for each sample, by its random key (B,). Baselines of a pool are used in
        turn, so draws k, k + pool, k + 2·pool, … have the same one. Their parts of the path are about `pool` apart, so
        that they cover the whole path; which baseline begins with which part is random.
        """
        background = loaded(self.name, self.background)
        if background is not None:
            pool = len(background)
        elif isinstance(self.baseline, Examples):
            pool = len(self.baseline)
        elif self.baseline == "random":
            pool = self.samples
        else:
            pool = 1
        draw = torch.arange(self.samples, device=key.device)
        order = rand.permutation(rand.fold(key, -1), pool)
        # Each round of `pool` draws gets the next `pool` numbers, in the random order. The last round may be incomplete, so
        # the numbers are replaced by their ranks (argsort twice), which have no gaps.
        number = draw // pool * pool + order[:, draw % pool]
        return number.argsort(1).argsort(1)


@parameter_class
class ExpectedGradients(GradientShap):
    """The mean over baselines b of (x − b) · ∂f_t/∂x (b + α(x − b)), with one α in each of `samples` strata; (B, …).

    The method of Erion et al. (2021). Draw k has α uniform in [j, j + 1) / samples for a stratum j of its own, and the
    strata of any one baseline are far apart. Baselines are drawn without replacement from a pool, by default the
    study's references, until all have been used; `sigma` as in `GradientShap`.

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> batch, target = Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> maps = ExpectedGradients(baseline=0.0)(model, batch, target, 0)
    >>> torch.allclose(maps, InputXGradient()(model, batch, target, 0), atol=1e-6)
    True
    """

    name: ClassVar[str] = "expected_gradients"
    cost = "`samples` passes and their gradients"

    stratified: ClassVar[bool] = True

    samples: Annotated[int, Field(ge=1)] = 50
    baseline: Baseline = REFERENCES


def quadrature(method: Quadrature, steps: int) -> tuple[Tensor, Tensor]:
    """Return the nodes on [0, 1] and the weights of a quadrature rule for ∫₀¹ g(α) dα, (steps,) each.

    >>> nodes, weights = quadrature("gausslegendre", 3)
    >>> round(float((nodes**5 * weights).sum()), 6) == round(1 / 6, 6)
    True
    """
    if method == "gausslegendre":
        nodes, weights = np.polynomial.legendre.leggauss(steps)
        # From [−1, 1] to [0, 1].
        return torch.from_numpy((1 + nodes) / 2), torch.from_numpy(weights / 2)
    if steps < 2:
        raise UserError(
            f"method={method!r} needs at least 2 steps, got {steps}; 'gausslegendre' works with 1"
        )
    index = torch.arange(steps, dtype=torch.float64)
    equal = torch.full((steps,), 1 / steps, dtype=torch.float64)
    if method == "riemann_trapezoid":
        equal[[0, -1]] /= 2
        return index / (steps - 1), equal
    offset = {"riemann_left": 0.0, "riemann_middle": 0.5, "riemann_right": 1.0}[method]
    return (index + offset) / steps, equal


def per_row(values: Tensor, like: Tensor) -> Tensor:
    """Return one number per row, shaped to multiply a tensor of the rank of `like`.

    >>> per_row(torch.ones(2), torch.zeros(2, 3, 4)).shape
    torch.Size([2, 1, 1])
    """
    return values.reshape(-1, *[1] * (like.ndim - 1))

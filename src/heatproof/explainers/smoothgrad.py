"""SmoothGrad, squared SmoothGrad and VarGrad: moments of another explainer's maps under Gaussian input noise."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

import torch
from pydantic import Field
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.gradient import Saliency, per_row, slices
from heatproof.explainers.requested_error import RequestedError, explain_to_error
from heatproof.explainers.undefined import CARRIES_NO_NOISE
from heatproof.models import Model
from heatproof.types import Batch, Explainer, name_of, parameter_class, wrap_explainer

_SIGNED_GRADIENT = Saliency(absolute=False)


def noisy_moments(
    of: Explainer,
    samples: int,
    sigma: float,
    relative: bool,
    model: Model,
    batch: Batch,
    target: Tensor,
    seed: int,
) -> tuple[Tensor, Tensor]:
    """Return the mean and variance of an explainer's maps over noisy copies of each sample, (B, …) each.

    The copies are x + s·z with `samples` draws of z ~ N(0, 1), explained by `of`; the variance is that of the population.
    s = sigma · (max x − min x) of each sample, or sigma itself when not `relative`; x is in the data's own units,
    before normalisation. Draws depend on seed, sample id and draw number; the inner explainer gets the same seed for
    all of them.

    >>> model, batch = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3))
    >>> mean, variance = noisy_moments(Saliency(), 4, 0.1, True, model, batch, torch.tensor([0]), seed=0)
    >>> torch.equal(mean, model.module.weight[:1].abs()), float(variance.sum())
    (True, 0.0)
    """
    if not batch.x.is_floating_point():
        raise UserError(f"noise can only be added to floating-point data, got {batch.x.dtype}")
    batch = batch.to(model.device)
    target = target.to(model.device)
    key = rand.keys(seed, batch.ids, "smoothgrad").to(model.device)
    scale = _noise_scale(batch.x, sigma, relative)

    # Differences d from the first map of each sample are summed, and not the maps: the mean is first + E[d], and the
    # variance E[d²] − E[d]², in which less cancels where maps hardly vary.
    first = total = squares = torch.empty(0)
    # The noisy copies are numbered sample by sample: copy i is draw i % samples of sample i // samples.
    for rows in slices(len(batch) * samples, model.rows):
        # Indexing the batch with positions on the CPU does not wait for the GPU.
        originals = batch[torch.arange(rows.start, rows.stop) // samples]
        copies = torch.arange(rows.start, rows.stop, device=model.device)
        sample, draw = copies // samples, copies % samples
        standard_noise = rand.normal(rand.fold(key[sample], draw), batch.x.shape[1:])
        noise = originals.carried(standard_noise.to(batch.x))
        noisy = originals.with_x(originals.x + per_row(scale[sample], batch.x) * noise)
        maps = of(model, noisy, target[sample], seed)
        if not len(first):
            # Only now the shape of the maps is known.
            first = maps.new_zeros(len(batch), *maps.shape[1:])
            total, squares = torch.zeros_like(first), torch.zeros_like(first)
        sample = sample.to(maps.device)

        # Keep the maps of draw 0 among these copies. They belong to consecutive samples from `first_sample` on, and are
        # `samples` copies apart.
        first_sample = math.ceil(rows.start / samples)
        first_maps = maps[first_sample * samples - rows.start :: samples]
        first[first_sample : first_sample + len(first_maps)] = first_maps
        difference = maps - first[sample]
        total.index_add_(0, sample, difference)
        squares.index_add_(0, sample, difference.square_())
    mean_difference = total / samples
    variance = (squares / samples - mean_difference.square()).clamp_min_(0)
    return first + mean_difference, variance


def _noise_scale(x: Tensor, sigma: float, relative: bool) -> Tensor:
    """Return the standard deviation of the noise of each sample, (B,): sigma, times the sample's range if `relative`."""
    values = x.flatten(1)
    if not relative:
        return torch.full_like(values[:, 0], sigma)
    return sigma * (values.amax(1) - values.amin(1))


@parameter_class
class _NoisyCopies(Explainer):
    """Parameters and computation that SmoothGrad, SmoothGradSquared and VarGrad share."""

    stochastic: ClassVar[bool] = True
    undefined_on = CARRIES_NO_NOISE
    cost = "`samples` maps of the inner one"

    of: Any = _SIGNED_GRADIENT
    samples: Annotated[int, Field(ge=1)] = 20
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.15
    relative: bool = True
    error: RequestedError = None

    def __post_init__(self) -> None:
        """Check that `of` is an explainer of features, and wrap a plain function as one."""
        is_explainer = callable(self.of) and not isinstance(self.of, type)
        if not is_explainer or wrap_explainer(self.of).kind != "feature":
            raise UserError(
                f"{name_of(self)} needs a feature explainer in `of`, such as Saliency(absolute=False), got {self.of!r}"
            )
        object.__setattr__(self, "of", wrap_explainer(self.of))

    @property
    def hooks_into_network(self) -> bool:  # type: ignore[override]
        """Whether the inner explainer looks for layers that the network may lack."""
        return bool(self.of.hooks_into_network)

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise what the inner explainer raises for this model or sample shape."""
        self.of.check(model, shape)

    def why_unmet(self, model: Model) -> str:
        """Return why the model lacks what the inner explainer requires; empty where it does not."""
        reason: str = self.of.why_unmet(model)
        return reason

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy whose inner explainer is configured; raise `UserError` where either is undefined."""
        if self.why_unmet(model):
            return super().configured_for(model, sample)  # which raises in the name of this one
        # The inner one first, because checking this one checks it.
        with_inner = replace(self, of=self.of.configured_for(model, sample))
        return Explainer.configured_for(with_inner, model, sample)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return maps (B, …) of the classes `target` (B,), made of the inner explainer's maps over noisy copies.

        `self._combine` makes them of the mean and the variance over the copies.
        """
        if self.error is not None:
            return explain_to_error(self, model, batch, target, seed)
        mean, variance = noisy_moments(
            self.of, self.samples, self.sigma, self.relative, model, batch, target, seed
        )
        return self._combine(mean, variance)

    def _combine(self, mean: Tensor, variance: Tensor) -> Tensor:
        """Return the map (B, …) from the moments of the inner explainer's maps."""
        raise NotImplementedError


@parameter_class
class SmoothGrad(_NoisyCopies):
    """The mean of another explainer's maps over noisy copies of the input; (B, …).

    Noise has standard deviation `sigma` · (max − min) of the sample in the data's own units, or `sigma` with
    `relative=False`. The default averages signed gradients.

    >>> model, batch, target = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> torch.equal(SmoothGrad(samples=3)(model, batch, target, seed=0), model.module.weight[:1])
    True
    """

    name: ClassVar[str] = "smoothgrad"

    def _combine(self, mean: Tensor, variance: Tensor) -> Tensor:
        return mean


@parameter_class
class SmoothGradSquared(_NoisyCopies):
    """The mean of another explainer's squared maps over noisy copies of the input; (B, …). Noise as in SmoothGrad.

    >>> model, batch, target = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> torch.allclose(SmoothGradSquared(samples=3)(model, batch, target, seed=0), model.module.weight[:1] ** 2)
    True
    """

    name: ClassVar[str] = "smoothgrad_squared"

    def _combine(self, mean: Tensor, variance: Tensor) -> Tensor:
        return variance + mean.square()


@parameter_class
class VarGrad(_NoisyCopies):
    """The population variance of another explainer's maps over noisy copies of the input; (B, …).

    E[m²] − E[m]² over the draws; noise as in SmoothGrad. A linear model has a constant gradient:

    >>> model, batch, target = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3)), torch.tensor([0])
    >>> float(VarGrad(samples=3)(model, batch, target, seed=0).abs().sum())
    0.0
    """

    name: ClassVar[str] = "vargrad"
    samples: Annotated[int, Field(ge=2)] = 20

    def _combine(self, mean: Tensor, variance: Tensor) -> Tensor:
        return variance

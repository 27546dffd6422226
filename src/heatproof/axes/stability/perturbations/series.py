"""Perturbations of series (B, C, T), in the units of the data: noise, size and a shift in time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from heatproof.axes.stability.perturbations.contract import (
    Factor,
    Family,
    NonNegative,
    PerturbationDefaults,
    check_maps,
    values_of,
)
from heatproof.errors import UserError
from heatproof.kinds import KindName
from heatproof.maps.warping import shift
from heatproof.rand import keys, normal
from heatproof.types import Batch, parameter_class


@parameter_class
class Jitter(PerturbationDefaults):
    """x + σ s z with z standard normal and s the standard deviation over time of each channel of the sample itself.

    z is a function of (seed, sample id) shared by all σ of a sweep. A channel that does not vary stays as it is.

    >>> flat_and_wavy = torch.tensor([[[5.0, 5.0, 5.0, 5.0], [0.0, 2.0, 0.0, 2.0]]])
    >>> noisy = Jitter()(Batch(ids=("a",), x=flat_and_wavy), seed=0)
    >>> (noisy == flat_and_wavy).all(2).tolist()
    [[True, False]]
    """

    name: ClassVar[str] = "jitter"
    family: ClassVar[Family] = "noise"
    kind: ClassVar[KindName | None] = "series"
    unit: ClassVar[str] = "σ"
    magnitude_field: ClassVar[str] = "sigma"
    stochastic: ClassVar[bool] = True
    sigma: NonNegative = 0.1

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = values_of(self, batch)
        z = normal(keys(seed, batch.ids, "jitter").to(x.device), x.shape[1:]).to(x.dtype)
        return x + self.sigma * x.std(2, correction=0, keepdim=True) * z


@parameter_class
class Scaling(PerturbationDefaults):
    """Distance from the mean m over time of each channel times `factor`: m + factor · (x − m).

    >>> Scaling(factor=2.0)(Batch(ids=("a",), x=torch.tensor([[[1.0, 3.0]]])), seed=0).tolist()
    [[[0.0, 4.0]]]
    """

    name: ClassVar[str] = "scaling"
    family: ClassVar[Family] = "scale"
    kind: ClassVar[KindName | None] = "series"
    unit: ClassVar[str] = "×"
    magnitude_field: ClassVar[str] = "factor"
    factor: Factor = 1.1

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = values_of(self, batch)
        mean = x.mean(2, keepdim=True)
        return mean + self.factor * (x - mean)


@parameter_class
class TimeShift(PerturbationDefaults):
    """Shift by whole steps, later when positive, the value at the edge repeated: out[t] = x[clamp(t − steps)].

    >>> TimeShift(steps=1)(Batch(ids=("a",), x=torch.tensor([[[1.0, 2.0, 3.0]]])), seed=0).tolist()
    [[[1.0, 1.0, 2.0]]]
    """

    name: ClassVar[str] = "time_shift"
    family: ClassVar[Family] = "geometric"
    kind: ClassVar[KindName | None] = "series"
    unit: ClassVar[str] = "steps"
    magnitude_field: ClassVar[str] = "steps"
    steps: int = 2

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape (C, T) of which nothing would remain."""
        if abs(self.steps) >= shape[-1]:
            raise UserError(
                f"a time shift by {self.steps} steps leaves nothing of series of {shape[-1]}; give fewer"
            )

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = values_of(self, batch)
        time = torch.arange(x.shape[2], device=x.device) - self.steps
        return x[:, :, time.clamp(0, x.shape[2] - 1)]

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Return maps (B, C, T) shifted alike with zero fill, and the mask (B, 1, T) of steps that are not fill."""
        check_maps(self, maps, ids)
        moved, valid = shift(maps[:, :, None], self.steps, -1)
        return moved[:, :, 0], valid[:, :, 0]

"""Perturbations that move pixels, and maps with them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, Literal

import torch
from torch import Tensor

from heatproof.axes.stability.perturbations.contract import (
    Family,
    Finite,
    NonNegative,
    PerturbationDefaults,
    Positive,
    check_maps,
    values_of,
)
from heatproof.errors import UserError
from heatproof.maps.warping import elastic_offsets, resample, rotation_offsets, shift
from heatproof.rand import keys
from heatproof.types import Batch, parameter_class

_ALONG = {"horizontal": (-1, "width"), "vertical": (-2, "height"), "depth": (-3, "depth")}


@parameter_class
class Rotation(PerturbationDefaults):
    """Rotation about the centre by `degrees`, counter-clockwise when positive; bilinear, exposed regions zero.

    Works in pixel coordinates, so it is a true rotation on images of any proportions.

    >>> x = torch.tensor([[[[0.1, 0.2], [0.3, 0.4]]]])
    >>> torch.allclose(Rotation(degrees=90)(Batch(ids=("a",), x=x), seed=0), torch.rot90(x, 1, (2, 3)))
    True
    """

    name: ClassVar[str] = "rotation"
    family: ClassVar[Family] = "geometric"
    unit: ClassVar[str] = "°"
    magnitude_field: ClassVar[str] = "degrees"
    degrees: Finite = 15.0

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        rotated, _ = self.move(values_of(self, batch), batch.ids, seed)
        return rotated.clamp(0, 1)

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Return maps (B, C, …, H, W) rotated alike, and the mask (B, 1, …, H, W) of pixels whose source lies inside."""
        check_maps(self, maps, ids)
        return resample(maps, rotation_offsets(self.degrees, *maps.shape[-2:]))


@parameter_class
class Translation(PerturbationDefaults):
    """Shift by whole pixels, right or down when positive; exposed regions zero: out[i, j] = x[i, j − pixels].

    >>> x = torch.tensor([[[[0.1, 0.2, 0.3]]]])
    >>> Translation(pixels=1)(Batch(ids=("a",), x=x), seed=0).flatten().tolist() == [0.0, *x.flatten()[:2].tolist()]
    True
    """

    name: ClassVar[str] = "translation"
    family: ClassVar[Family] = "geometric"
    unit: ClassVar[str] = "px"
    magnitude_field: ClassVar[str] = "pixels"
    pixels: int = 20
    axis: Literal["horizontal", "vertical", "depth"] = "horizontal"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape (C, H, W) or (C, D, H, W) of which nothing would remain."""
        dim, side = _ALONG[self.axis]
        if len(shape) <= -dim:
            raise UserError(
                f"a translation along {side} is for volumes (C, D, H, W), got {tuple(shape)}"
            )
        if abs(self.pixels) >= shape[dim]:
            raise UserError(
                f"a {self.axis} translation by {self.pixels} pixels leaves nothing of images of {side} {shape[dim]}; "
                "give fewer"
            )

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        shifted, _ = self.move(values_of(self, batch), batch.ids, seed)
        return shifted

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Return maps (B, C, …, H, W) shifted alike, and the mask (B, 1, …, H, W) of pixels that are not fill."""
        check_maps(self, maps, ids)
        return shift(maps, self.pixels, _ALONG[self.axis][0])


@parameter_class
class Elastic(PerturbationDefaults):
    """A smooth random displacement field; its longest vector is `amplitude` pixels, it varies over `smoothness` pixels.

    Bilinear, zero outside. The field depends on (seed, sample id); amplitudes of a sweep share it.

    >>> batch = Batch(ids=("a",), x=torch.ones(1, 1, 16, 16))
    >>> warped, valid = Elastic(amplitude=2.0).move(batch.x, batch.ids, seed=0)
    >>> torch.allclose(warped[valid], torch.ones(1))
    True
    """

    name: ClassVar[str] = "elastic"
    family: ClassVar[Family] = "geometric"
    unit: ClassVar[str] = "px"
    magnitude_field: ClassVar[str] = "amplitude"
    stochastic: ClassVar[bool] = True
    amplitude: NonNegative = 4.0
    smoothness: Positive = 8.0

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        warped, _ = self.move(values_of(self, batch), batch.ids, seed)
        return warped.clamp(0, 1)

    def move(self, maps: Tensor, ids: Sequence[str], seed: int) -> tuple[Tensor, Tensor]:
        """Return maps (B, C, H, W) warped by each sample's field, and the mask (B, 1, H, W) of pixels read from inside."""
        check_maps(self, maps, ids)
        fields = _fields(seed, tuple(ids), self.smoothness, *maps.shape[-2:], maps.device)
        return resample(maps, self.amplitude * fields)


@lru_cache(maxsize=4)
def _fields(
    seed: int,
    ids: tuple[str, ...],
    smoothness: float,
    height: int,
    width: int,
    device: torch.device,
) -> Tensor:
    """Return displacement fields of amplitude 1.

    They are cached: every explainer needs the same ones, and so does the chance level for every reference.
    """
    return elastic_offsets(keys(seed, ids, "elastic").to(device), 1.0, smoothness, height, width)

"""Perturbations that change values and leave pixels where they are."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from PIL import Image
from pydantic import Field
from torch import Tensor
from torch.nn import functional

from heatproof.axes.stability.perturbations.contract import (
    Factor,
    Family,
    NonNegative,
    PerturbationDefaults,
    PixelSigma,
    values_of,
)
from heatproof.errors import UserError
from heatproof.kinds import KindName
from heatproof.rand import keys, normal, uniform
from heatproof.types import Batch, parameter_class

_LUMA = (0.299, 0.587, 0.114)
"""The weights of red, green and blue in a grey level (ITU-R BT.601)."""
_TRUNCATE = 4.0
"""How many standard deviations a Gaussian kernel reaches."""


@parameter_class
class Identity(PerturbationDefaults):
    """The control: x itself, for data of any shape. Every stability measure must score it 1.

    >>> batch = Batch(ids=("a",), x=torch.rand(1, 3, 4, 4))
    >>> Identity()(batch, seed=0) is batch.x
    True
    """

    name: ClassVar[str] = "identity"
    family: ClassVar[Family] = "control"
    kind: ClassVar[KindName | None] = None

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        return batch.x


@parameter_class
class Brightness(PerturbationDefaults):
    """Every pixel times `factor`: min(1, factor · x).

    >>> Brightness(factor=1.5)(Batch(ids=("a",), x=torch.full((1, 1, 1, 1), 0.5)), seed=0).item()
    0.75
    """

    name: ClassVar[str] = "brightness"
    unit: ClassVar[str] = "×"
    magnitude_field: ClassVar[str] = "factor"
    factor: Factor = 1.5

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        return (values_of(self, batch) * self.factor).clamp(0, 1)


@parameter_class
class Contrast(PerturbationDefaults):
    """Distance from the image's own mean grey level m times `factor`: clamp(m + factor · (x − m), 0, 1).

    The grey level is 0.299 R + 0.587 G + 0.114 B for three channels, else the mean of the channels.

    >>> x = torch.tensor([[[[0.25, 0.5]]]])
    >>> Contrast(factor=2.0)(Batch(ids=("a",), x=x), seed=0).flatten().tolist()
    [0.125, 0.625]
    """

    name: ClassVar[str] = "contrast"
    unit: ClassVar[str] = "×"
    magnitude_field: ClassVar[str] = "factor"
    factor: Factor = 1.5

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """Return the perturbed images."""
        x = values_of(self, batch)
        channel_means = x.mean(tuple(range(2, x.ndim)))
        grey = channel_means.mean(1)
        if x.shape[1] == 3:
            grey = (channel_means * channel_means.new_tensor(_LUMA)).sum(1)
        grey = grey.reshape(-1, *[1] * (x.ndim - 1))
        return (grey + self.factor * (x - grey)).clamp(0, 1)


@parameter_class
class GaussianNoise(PerturbationDefaults):
    """clamp(x + σ z, 0, 1) with z standard normal, a function of (seed, sample id) shared by all σ of a sweep.

    >>> batch = Batch(ids=("a",), x=torch.full((1, 1, 8, 8), 0.5))
    >>> torch.equal(GaussianNoise()(batch, seed=0), GaussianNoise()(batch, seed=1))
    False
    """

    name: ClassVar[str] = "gaussian_noise"
    unit: ClassVar[str] = "σ"
    magnitude_field: ClassVar[str] = "sigma"
    stochastic: ClassVar[bool] = True
    sigma: PixelSigma = 0.15

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = values_of(self, batch)
        z = normal(keys(seed, batch.ids, "gaussian_noise").to(x.device), x.shape[1:])
        return (x + self.sigma * z).clamp(0, 1)


@parameter_class
class GaussianBlur(PerturbationDefaults):
    """Convolution with a Gaussian of standard deviation `sigma` pixels, cut at 4σ, edge pixels repeated outwards.

    >>> batch = Batch(ids=("a",), x=torch.full((1, 1, 3, 3), 0.5))
    >>> torch.allclose(GaussianBlur(sigma=5.0)(batch, seed=0), batch.x)
    True
    """

    name: ClassVar[str] = "gaussian_blur"
    unit: ClassVar[str] = "px"
    magnitude_field: ClassVar[str] = "sigma"
    sigma: NonNegative = 2.0

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        x = values_of(self, batch)
        for dim in range(2, x.ndim):
            x = _smooth(x, self.sigma, dim)
        return x.clamp(0, 1)


@parameter_class
class Jpeg(PerturbationDefaults):
    """A round trip through a real JPEG codec (Pillow's, 4:2:0) at `quality` 1 to 100; images of 1 or 3 channels.

    Pixels are rounded to 8 bits first. Qualities above 95 are allowed, but give much larger files and hardly a better
    image; 100 still quantises.

    >>> batch = Batch(ids=("a",), x=torch.full((1, 3, 8, 8), 128 / 255))
    >>> torch.allclose(Jpeg()(batch, seed=0), batch.x, atol=0.02)
    True
    """

    name: ClassVar[str] = "jpeg"
    family: ClassVar[Family] = "compression"
    unit: ClassVar[str] = "quality"
    magnitude_field: ClassVar[str] = "quality"
    quality: Annotated[int, Field(ge=1, le=100)] = 40

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape (C, H, W) that the codec has no colour space for."""
        if shape[0] not in (1, 3):
            raise UserError(f"jpeg needs images of 1 or 3 channels, got {shape[0]}")

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """Return the perturbed images."""
        x = values_of(self, batch)
        pixels = (x.detach().clamp(0, 1) * 255).round().to("cpu", torch.uint8)
        pictures = pixels.permute(0, 2, 3, 1).contiguous().numpy()
        if not len(pictures):
            return x
        with ThreadPoolExecutor(min(len(pictures), os.cpu_count() or 1)) as pool:
            decoded = np.stack(list(pool.map(self._round_trip, pictures)))
        channels_first = torch.from_numpy(decoded).permute(0, 3, 1, 2)
        return channels_first.to(x.device, torch.float32).contiguous() / 255

    def _round_trip(
        self, picture: np.ndarray[Any, np.dtype[np.uint8]]
    ) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """Return a picture (H, W, C) of bytes after encoding and decoding it."""
        is_grey = picture.shape[2] == 1
        file = io.BytesIO()
        Image.fromarray(picture[..., 0] if is_grey else picture).save(
            file, "JPEG", quality=self.quality
        )
        with Image.open(file) as image:
            return np.array(image).reshape(picture.shape)


@parameter_class
class OccludingPatch(PerturbationDefaults):
    """A square of `fraction` of the area, at least one pixel, filled with `value` at a place drawn from (seed, id).

    Its side is round(√(fraction · H · W)); in volumes it is a cube, of side round(∛(fraction · D · H · W)).

    >>> batch = Batch(ids=("a",), x=torch.ones(1, 1, 10, 10))
    >>> int((OccludingPatch(fraction=0.09)(batch, seed=0) == 0.5).sum())
    9
    """

    name: ClassVar[str] = "occluding_patch"
    family: ClassVar[Family] = "occlusion"
    unit: ClassVar[str] = "of the area"
    magnitude_field: ClassVar[str] = "fraction"
    stochastic: ClassVar[bool] = True
    fraction: Annotated[float, Field(strict=True, allow_inf_nan=False, gt=0, lt=1)] = 0.1
    value: Annotated[float, Field(strict=True, allow_inf_nan=False, ge=0, le=1)] = 0.5

    def side(self, *sizes: int) -> int:
        """Return the side of the square or cube in pixels."""
        content = self.fraction * math.prod(sizes)
        side = math.sqrt(content) if len(sizes) == 2 else content ** (1 / len(sizes))
        return max(1, round(side))

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape (C, H, W) or (C, D, H, W) that the square or cube does not fit into."""
        sizes = shape[1:]
        side, least = self.side(*sizes), min(sizes)
        if side > least:
            raise UserError(
                f"a square patch of fraction {self.fraction:g} has side {side} and does not fit into images of "
                f"{' × '.join(map(str, sizes))}; use a fraction of at most {least ** len(sizes) / math.prod(sizes):.3g}"
            )

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        """Return the perturbed images."""
        x = values_of(self, batch)
        sizes = x.shape[2:]
        side = self.side(*sizes)
        draw = uniform(keys(seed, batch.ids, "occluding_patch").to(x.device), (len(sizes),))
        # A pixel is covered if it lies within the patch along every axis.
        is_covered = torch.ones_like(x[:, :1], dtype=torch.bool)
        for axis, size in enumerate(sizes):
            # The patch starts anywhere from 0 to `last_start`, with equal chance.
            last_start = size - side
            start = (draw[:, axis, None] * (last_start + 1)).long().clamp(max=last_start)
            position = torch.arange(size, device=x.device) - start
            is_within = (position >= 0) & (position < side)
            along_axis = [1] * len(sizes)
            along_axis[axis] = size
            is_covered &= is_within.reshape(-1, 1, *along_axis)
        return torch.where(is_covered, self.value, x)


def _smooth(x: Tensor, sigma: float, dim: int) -> Tensor:
    """Return x blurred along one dimension; tap by tap, because a GPU's convolution may round to ten bits."""
    radius = int(_TRUNCATE * sigma + 0.5)
    if radius == 0:
        return x
    offsets = torch.arange(-radius, radius + 1, dtype=torch.float64)
    kernel = torch.exp(-0.5 * (offsets / sigma) ** 2)
    kernel = kernel / kernel.sum()

    # `pad` takes the two ends of every dimension, from the last one on.
    padding = []
    for d in range(x.ndim - 1, 1, -1):
        padding += [radius, radius] if d == dim else [0, 0]
    padded = functional.pad(x, padding, mode="replicate")
    blurred = torch.zeros_like(x)
    for start, weight in enumerate(kernel.tolist()):
        blurred += weight * padded.narrow(dim, start, x.shape[dim])
    return blurred

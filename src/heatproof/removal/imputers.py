"""Imputers: parameter objects that put other values in the place of removed pixels.

An imputer is called as `imputer(x, keep, ids, seed)` with x (B, C, H, W) and `keep` (B, H, W), True where a pixel
stays, a volume x (B, C, D, H, W) with `keep` (B, D, H, W), a series x (B, C, T) with `keep` (B, T), or rows of a table
x (B, F) with `keep` (B, F). It works on the data's own units, pixels in [0, 1] before normalisation, and gives kept
pixels back exactly as they were. One mask serves all channels. Random ones draw as a function of (seed, id) for every
pixel, removed or not, so that nested masks of one image share their draws; ids default to "0", "1", …. Those that fill
in from other positions refuse rows of a table, whose columns have units of their own.

The mean and the blur of the whole image depend on the values they remove: information about them is left by
construction. `needs_kept`, where an imputer has it, says that something of every sample must be kept. Any function with
these arguments is an imputer, a network that paints in included.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.features.fill import smoothed
from heatproof.rand import keys, normal, uniform
from heatproof.removal.harmonic.linear import interpolated
from heatproof.removal.harmonic.volumes import interpolated_volumes
from heatproof.types import parameter_class

Finite = Annotated[float, Field(allow_inf_nan=False)]
_TRUNCATE = 4.0
_DRAWS_AT_ONCE = {True: 1 << 17, False: 1 << 24}  # on a CPU, what its cache holds


@parameter_class
class Zero:
    """Removed pixels become 0, black.

    >>> Zero()(torch.ones(1, 1, 1, 2), torch.tensor([[[True, False]]])).flatten().tolist()
    [1.0, 0.0]
    """

    name: ClassVar[str] = "zero"

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        _checked(x, keep, ids)
        return _combined(x, keep, x.new_zeros(()))


@parameter_class
class Value:
    """Removed pixels become `value` in every channel, in the units of x.

    >>> Value(value=0.25)(torch.ones(1, 1, 1, 2), torch.tensor([[[True, False]]])).flatten().tolist()
    [1.0, 0.25]
    """

    name: ClassVar[str] = "value"
    value: Finite = 0.5

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        _checked(x, keep, ids)
        return _combined(x, keep, x.new_tensor(self.value))


@parameter_class
class DatasetMean:
    """Removed pixels become the data set's `mean`: one number per channel, of a table per column, or one for all.

    >>> x, keep = torch.ones(1, 2, 1, 2), torch.tensor([[[True, False]]])
    >>> DatasetMean(mean=(0.5, 0.25))(x, keep)[0, :, 0].tolist()
    [[1.0, 0.5], [1.0, 0.25]]
    """

    name: ClassVar[str] = "dataset_mean"
    mean: Annotated[tuple[Finite, ...], Field(min_length=1)]

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        _checked(x, keep, ids)
        channels = x.shape[1]
        if len(self.mean) not in (1, channels):
            what = "columns" if x.ndim == 2 else "channels"
            raise UserError(
                f"dataset_mean.mean has {len(self.mean)} numbers, not one for each of {channels} {what}"
            )
        return _combined(x, keep, x.new_tensor(self.mean).reshape(1, -1, *[1] * (x.ndim - 2)))


@parameter_class
class ImageMean:
    """Removed pixels become the mean of the whole image, removed pixels included, in each channel.

    >>> ImageMean()(torch.tensor([[[[0.0, 1.0]]]]), torch.tensor([[[True, False]]])).flatten().tolist()
    [0.0, 0.5]
    """

    name: ClassVar[str] = "image_mean"

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        _checked(x, keep, ids)
        _has_neighbours(self.name, x)
        return _combined(x, keep, x.mean(tuple(range(2, x.ndim)), keepdim=True))


@parameter_class
class Blur:
    """Removed pixels become those of the whole image smoothed by a Gaussian of standard deviation `sigma` pixels.

    The Gaussian is cut at 4σ; beyond the border the nearest pixel goes on.

    >>> x, keep = torch.full((1, 1, 8, 8), 0.5), torch.zeros(1, 8, 8, dtype=torch.bool)
    >>> torch.allclose(Blur(sigma=2.0)(x, keep), x)
    True
    """

    name: ClassVar[str] = "blur"
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        _checked(x, keep, ids)
        _has_neighbours(self.name, x)
        smooth = x
        for axis in range(2, x.ndim):
            smooth = smoothed(smooth, self.sigma, math.ceil(_TRUNCATE * self.sigma), axis)
        return _combined(x, keep, smooth)


@parameter_class
class UniformNoise:
    """Removed pixels become random numbers, uniform on (0, 1) and independent in every channel.

    >>> x, keep = torch.full((1, 1, 1, 2), 3.0), torch.tensor([[[True, False]]])
    >>> kept, drawn = UniformNoise()(x, keep, ("cat",), seed=1).flatten().tolist()
    >>> kept, 0 < drawn < 1
    (3.0, True)
    """

    name: ClassVar[str] = "noise"

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        names = _checked(x, keep, ids)
        draws = torch.empty_like(x)
        for rows, drawn in _draws(uniform, x, names, seed, "removal: uniform noise"):
            draws[rows] = drawn
        return _combined(x, keep, draws)


@parameter_class
class NoisyLinear:
    """Noisy linear imputation (ROAD): a removed pixel becomes the weighted mean of its neighbours plus N(0, σ²).

    The means of all removed pixels are one linear system, with weights 1/6 for the four neighbours that share a side
    and 1/12 for those that share a corner (see `harmonic.linear`); in a series, the straight line between kept points;
    in a volume, equal weights for the six that share a face. In each channel, what the equations leave over is at most
    `tolerance` times what they leave with the mean of the kept pixels at the removed ones, as a root mean square, and
    is computed in double precision below 5e-6; the default keeps values within 1e-3 of the exact ones. The noise is
    added to removed pixels only and, as in the paper, the result is not clamped: it may leave [0, 1]. With σ = 0.01 the
    features of trained networks tell filled photographs from real ones least (`benchmarks/imputer_auc.py`), and the
    paper's code has it; the paper says σ = 0.1, which `noisy_linear_published` has. An image of which nothing is kept
    is an error.

    >>> x, keep = torch.tensor([[[[0.0, 9.0, 1.0]]]]), torch.tensor([[[True, False, True]]])
    >>> NoisyLinear(sigma=0.0)(x, keep).flatten().tolist()
    [0.0, 0.5, 1.0]
    """

    name: ClassVar[str] = "noisy_linear"
    needs_kept: ClassVar[bool] = True
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.01
    tolerance: Annotated[float, Field(ge=1e-12, lt=1)] = 5e-5

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        names = _checked(x, keep, ids)
        _has_neighbours(self.name, x)
        kept = keep.flatten(1).any(1)
        if not bool(kept.all()):
            empty = [name for name, some in zip(names, kept.tolist(), strict=True) if not some]
            raise UserError(
                f"noisy_linear: nothing is kept of sample {empty[0]!r}; keep at least one pixel"
            )
        if not len(x):
            return x.clone()
        x = x.detach()  # the solver works in place; no gradient goes through an imputation
        picture, mask = (x, keep) if x.ndim > 3 else (x[:, :, None], keep[:, None])
        solve = interpolated if x.ndim < 5 else interpolated_volumes
        out = solve(picture, mask, self.tolerance).reshape(x.shape)
        if self.sigma:
            removed = (~keep)[:, None].to(x.dtype)
            for rows, drawn in _draws(normal, x, names, seed, "removal: noisy linear"):
                out[rows].addcmul_(drawn, removed[rows], value=self.sigma)
        return out


@parameter_class
class PublishedNoisyLinear(NoisyLinear):
    """`NoisyLinear` with the noise of the ROAD paper's text, σ = 0.1.

    >>> PublishedNoisyLinear() == PublishedNoisyLinear(sigma=0.1)
    True
    """

    name: ClassVar[str] = "noisy_linear_published"
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1


def _checked(x: Tensor, keep: Tensor, ids: Sequence[str] | None) -> tuple[str, ...]:
    """Refuse what no imputer can use; gives the ids."""
    row = x.ndim == 2 and tuple(keep.shape) == tuple(x.shape)
    if not (row or x.ndim in (3, 4, 5)) or not x.is_floating_point():
        kind = str(x.dtype).removeprefix("torch.")
        raise UserError(
            "x must hold floats, images (B, C, H, W), volumes (B, C, D, H, W) or series (B, C, T), or rows (B, F) with "
            f"keep (B, F); got {kind} of shape {tuple(x.shape)}"
        )
    if keep.dtype != torch.bool:
        kind = str(keep.dtype).removeprefix("torch.")
        raise UserError(
            f"keep must be boolean, True where a pixel stays; got {kind}: use keep.bool() or a comparison"
        )
    expected = tuple(x.shape) if x.ndim == 2 else (len(x), *x.shape[2:])
    if tuple(keep.shape) != expected:
        raise UserError(
            f"keep has shape {tuple(keep.shape)} but x {tuple(x.shape)} needs {expected}: no channels"
        )
    if keep.device != x.device:
        raise UserError(f"keep is on {keep.device} but x on {x.device}; move one of them")
    names = tuple(str(i) for i in range(len(x))) if ids is None else tuple(ids)
    if len(names) != len(x):
        raise UserError(f"ids has {len(names)} names but x holds {len(x)} samples")
    if not bool(
        torch.isfinite(x.sum())
    ):  # cheap; the sum of finite numbers may overflow, so look again
        bad = [
            name
            for name, fine in zip(names, torch.isfinite(x).flatten(1).all(1).tolist(), strict=True)
            if not fine
        ]
        if bad:
            raise UserError(
                f"x has values that are not finite (NaN or infinite) in sample {bad[0]!r}"
            )
    return names


def _has_neighbours(name: str, x: Tensor) -> None:
    """Refuse rows of a table: a column has no neighbours, and a mean over columns mixes their units."""
    if x.ndim == 2:
        raise UserError(
            f"{name} fills in from other positions, and the columns of a table have no neighbours and units of their "
            "own; use reference_mean, dataset_mean, zero or value"
        )


def _combined(x: Tensor, keep: Tensor, fill: Tensor) -> Tensor:
    return torch.where(keep if x.ndim == 2 else keep[:, None], x, fill)


def _draws(
    draw: Any, x: Tensor, ids: Sequence[str], seed: int, purpose: str
) -> Iterator[tuple[slice, Tensor]]:
    """Random numbers in the shape of x, some samples at a time; among those, samples of one id are drawn for once."""
    shape = x.shape[1:]
    at_once = max(1, _DRAWS_AT_ONCE[x.device.type == "cpu"] // max(1, math.prod(shape)))
    for start in range(0, len(ids), at_once):
        part = ids[start : start + at_once]
        names = list(dict.fromkeys(part))
        drawn = draw(keys(seed, names, purpose).to(x.device), shape).to(x.dtype)
        drawn = drawn if len(names) == len(part) else drawn[[names.index(n) for n in part]]
        yield slice(start, start + len(part)), drawn

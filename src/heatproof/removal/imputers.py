"""Imputers: what takes the place of removed pixels, time steps and columns.

An imputer is called as `imputer(x, keep, ids, seed)`. `keep` is boolean, True where a position stays; one mask serves
all channels:

    images   x (B, C, H, W)     keep (B, H, W)
    volumes  x (B, C, D, H, W)  keep (B, D, H, W)
    series   x (B, C, T)        keep (B, T)
    tables   x (B, F)           keep (B, F)

It works on the data's own units, pixels in [0, 1] before normalisation, and returns kept values exactly as they were.
Random ones draw as a function of (seed, id) for every position, removed or not, so that nested masks of one sample share
their draws; ids default to "0", "1", …. Those that fill in from other positions refuse rows of a table, whose columns
have units of their own.

`image_mean` and `blur` depend on the values they remove: information about them is left by construction. `needs_kept`,
where an imputer has it, says that something of every sample must be kept. Any function with these arguments is an
imputer, for instance an inpainting network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof.errors import UserError
from heatproof.features.fill import smoothed
from heatproof.rand import keys, normal, uniform
from heatproof.removal.harmonic.linear import interpolated
from heatproof.removal.harmonic.volumes import interpolated_volumes
from heatproof.types import parameter_class

Finite = Annotated[float, Field(allow_inf_nan=False)]
_TRUNCATE = 4.0
"""Standard deviations at which the Gaussian of the blur is cut off."""
_DRAWS_AT_ONCE_CPU = 1 << 17
"""The most random numbers drawn together on a CPU: what its cache holds."""
_DRAWS_AT_ONCE_GPU = 1 << 24


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
        check(x, keep, ids)
        return with_fill(x, keep, x.new_zeros(()))


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
        check(x, keep, ids)
        return with_fill(x, keep, x.new_tensor(self.value))


def _column_means(value: Any) -> Any:
    """Return the means of the columns of rows (n, F); any other value as it is."""
    if hasattr(value, "to_numpy"):
        value = value.to_numpy(dtype=float)
    if getattr(value, "ndim", 0) != 2:
        return value
    return tuple(torch.as_tensor(value, dtype=torch.float64).mean(0).tolist())


@parameter_class
class DatasetMean:
    """Removed pixels become the data set's `mean`: one number per channel, of a table per column, or one for all.

    Rows of a table (n, F), as a frame, an array or a tensor, stand for the means of their columns.

    >>> x, keep = torch.ones(1, 2, 1, 2), torch.tensor([[[True, False]]])
    >>> DatasetMean(mean=(0.5, 0.25))(x, keep)[0, :, 0].tolist()
    [[1.0, 0.5], [1.0, 0.25]]
    """

    name: ClassVar[str] = "dataset_mean"
    mean: Annotated[tuple[Finite, ...], Field(min_length=1), BeforeValidator(_column_means)]

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        """Return x (B, …) with the mean of the data set where `keep` (B, …) is false; ids and seed are unused."""
        check(x, keep, ids)
        channels = x.shape[1]
        if len(self.mean) not in (1, channels):
            noun = "columns" if x.ndim == 2 else "channels"
            raise UserError(
                f"dataset_mean.mean has {len(self.mean)} numbers, not one for each of {channels} {noun}"
            )
        per_channel = x.new_tensor(self.mean).reshape(1, -1, *[1] * (x.ndim - 2))
        return with_fill(x, keep, per_channel)


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
        """Return x (B, C, …) with the mean of each channel where `keep` (B, …) is false; ids and seed are unused."""
        check(x, keep, ids)
        _refuse_tables(self.name, x)
        positions = tuple(range(2, x.ndim))
        return with_fill(x, keep, x.mean(positions, keepdim=True))


@parameter_class
class Blur:
    """Removed pixels become those of the whole image smoothed by a Gaussian of standard deviation `sigma` pixels.

    The Gaussian is cut at 4σ; beyond the border the nearest pixel is repeated.

    >>> x, keep = torch.full((1, 1, 8, 8), 0.5), torch.zeros(1, 8, 8, dtype=torch.bool)
    >>> torch.allclose(Blur(sigma=2.0)(x, keep), x)
    True
    """

    name: ClassVar[str] = "blur"
    sigma: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 5.0

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        """Return x (B, C, …) with its blurred values where `keep` (B, …) is false; ids and seed are unused."""
        check(x, keep, ids)
        _refuse_tables(self.name, x)
        reach = math.ceil(_TRUNCATE * self.sigma)
        blurred = x
        for axis in range(2, x.ndim):
            blurred = smoothed(blurred, self.sigma, reach, axis)
        return with_fill(x, keep, blurred)


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
        """Return x (B, …) with noise where `keep` (B, …) is false, drawn by the seed and the `ids` of the samples."""
        names = check(x, keep, ids)
        noise = torch.empty_like(x)
        for rows, drawn in _draws(uniform, x, names, seed, "removal: uniform noise"):
            noise[rows] = drawn
        return with_fill(x, keep, noise)


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
        """Return x (B, C, …) with the pixels filled in where `keep` (B, …) is false.

        They are solved for in one linear system per sample, up to `self.tolerance`. Then noise of deviation `self.sigma`
        is added to them, drawn by the seed and the `ids` of the samples.
        """
        names = check(x, keep, ids)
        _refuse_tables(self.name, x)
        refuse_empty("noisy_linear", keep, names)
        if not len(x):
            return x.clone()
        x = x.detach()  # the solver works in place; no gradient goes through an imputation
        if x.ndim == 5:
            result = interpolated_volumes(x, keep, self.tolerance)
        elif x.ndim == 4:
            result = interpolated(x, keep, self.tolerance)
        else:
            # A series is an image of one row, where the equations give the straight line between kept points.
            result = interpolated(x[:, :, None], keep[:, None], self.tolerance).reshape(x.shape)
        if self.sigma:
            removed = (~keep)[:, None].to(x.dtype)
            for rows, noise in _draws(normal, x, names, seed, "removal: noisy linear"):
                result[rows].addcmul_(noise, removed[rows], value=self.sigma)
        return result


@parameter_class
class PublishedNoisyLinear(NoisyLinear):
    """`NoisyLinear` with the noise of the ROAD paper's text, σ = 0.1.

    >>> PublishedNoisyLinear() == PublishedNoisyLinear(sigma=0.1)
    True
    """

    name: ClassVar[str] = "noisy_linear_published"
    sigma: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.1


def check(x: Tensor, keep: Tensor, ids: Sequence[str] | None) -> tuple[str, ...]:
    """Check the arguments of an imputer, and return the ids of the samples: by default their numbers.

    x are samples (B, C, …) or rows of a table (B, F), and `keep` says which positions (B, …) stay. `UserError` says which
    shape or type is wrong, or which sample has values that are NaN or infinite.
    """
    is_row = x.ndim == 2 and keep.shape == x.shape
    has_positions = x.ndim in (3, 4, 5)
    if not (is_row or has_positions) or not x.is_floating_point():
        raise UserError(
            "x must hold floats, images (B, C, H, W), volumes (B, C, D, H, W) or series (B, C, T), or rows (B, F) with "
            f"keep (B, F); got {_dtype_name(x)} of shape {tuple(x.shape)}"
        )
    if keep.dtype != torch.bool:
        raise UserError(
            f"keep must be boolean, True where a pixel stays; got {_dtype_name(keep)}: use keep.bool() or a comparison"
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
    _check_finite(x, names)
    return names


def _check_finite(x: Tensor, names: Sequence[str]) -> None:
    """Raise `UserError` for a sample with values that are NaN or infinite."""
    # The sum is cheap, and where it is finite, so are all values. A sum that is not may be an overflow of finite values.
    if bool(torch.isfinite(x.sum())):
        return
    is_finite = torch.isfinite(x).flatten(1).all(1)
    if not bool(is_finite.all()):
        name = names[int((~is_finite).nonzero()[0])]
        raise UserError(f"x has values that are not finite (NaN or infinite) in sample {name!r}")


def refuse_empty(name: str, keep: Tensor, ids: Sequence[str]) -> None:
    """Raise `UserError` for a sample of which nothing is kept, as an imputer that fills in from neighbours does."""
    keeps_something = keep.flatten(1).any(1)
    if not bool(keeps_something.all()):
        empty = ids[int((~keeps_something).nonzero()[0])]
        raise UserError(f"{name}: nothing is kept of sample {empty!r}; keep at least one pixel")


def _dtype_name(values: Tensor) -> str:
    return str(values.dtype).removeprefix("torch.")


def _refuse_tables(name: str, x: Tensor) -> None:
    """Raise for rows of a table: a column has no neighbours, and a mean over columns mixes their units."""
    if x.ndim == 2:
        raise UserError(
            f"{name} fills in from other positions, and the columns of a table have no neighbours and units of their "
            "own; use reference_mean, dataset_mean, zero or value"
        )


def with_fill(x: Tensor, keep: Tensor, fill: Tensor) -> Tensor:
    """Return x (B, …) where `keep` is true, and the fill, which broadcasts to x, elsewhere."""
    is_kept = keep if x.ndim == 2 else keep[:, None]
    return torch.where(is_kept, x, fill)


def _draws(
    draw: Callable[[Tensor, Sequence[int]], Tensor],
    x: Tensor,
    ids: Sequence[str],
    seed: int,
    purpose: str,
) -> Iterator[tuple[slice, Tensor]]:
    """Yield random numbers for the samples x (B, …) chunk by chunk: (slice of the samples, numbers in their shape).

    `draw(keys, shape)` draws them, and the keys come from the seed, the `ids` of the samples and the `purpose`. Tests
    often impute one sample with many masks, under one id: its numbers are drawn once per chunk and repeated.
    """
    sample_shape = x.shape[1:]
    at_once = _DRAWS_AT_ONCE_CPU if x.device.type == "cpu" else _DRAWS_AT_ONCE_GPU
    samples_at_once = max(1, at_once // max(1, math.prod(sample_shape)))
    for start in range(0, len(ids), samples_at_once):
        chunk = ids[start : start + samples_at_once]
        distinct = list(dict.fromkeys(chunk))
        drawn = draw(keys(seed, distinct, purpose).to(x.device), sample_shape).to(x.dtype)
        if len(distinct) < len(chunk):
            row_of_sample = [distinct.index(name) for name in chunk]
            drawn = drawn[row_of_sample]
        yield slice(start, start + len(chunk)), drawn

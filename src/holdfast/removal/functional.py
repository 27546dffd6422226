"""A function for each imputer of `holdfast.removal.imputers`, for calls that keep no parameter object.

x is (B, C, H, W) with `keep` (B, H, W), a series (B, C, T) with (B, T), or rows (B, F) with (B, F); True stays.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from holdfast.errors import make
from holdfast.removal.imputers import Blur, DatasetMean, ImageMean, NoisyLinear, UniformNoise, Value, Zero


def zero(x: Tensor, keep: Tensor) -> Tensor:
    """Removed pixels become 0; x (B, C, H, W), keep (B, H, W) boolean. See `Zero`."""
    return Zero()(x, keep)


def value(x: Tensor, keep: Tensor, value: float = 0.5) -> Tensor:
    """Removed pixels become `value`. See `Value`."""
    filled: Tensor = make(Value, "value", {"value": value})(x, keep)
    return filled


def dataset_mean(x: Tensor, keep: Tensor, mean: Sequence[float]) -> Tensor:
    """Removed pixels become `mean`, a number per channel. See `DatasetMean`."""
    filled: Tensor = make(DatasetMean, "dataset_mean", {"mean": tuple(mean)})(x, keep)
    return filled


def image_mean(x: Tensor, keep: Tensor) -> Tensor:
    """Removed pixels become the mean of the whole image in each channel. See `ImageMean`."""
    return ImageMean()(x, keep)


def blur(x: Tensor, keep: Tensor, sigma: float = 5.0) -> Tensor:
    """Removed pixels become those of the blurred image. See `Blur`."""
    filled: Tensor = make(Blur, "blur", {"sigma": sigma})(x, keep)
    return filled


def noise(x: Tensor, keep: Tensor, seed: int = 0, ids: Sequence[str] | None = None) -> Tensor:
    """Removed pixels become uniform noise. See `UniformNoise`."""
    return UniformNoise()(x, keep, ids, seed)


def noisy_linear(
    x: Tensor,
    keep: Tensor,
    sigma: float = 0.1,
    seed: int = 0,
    ids: Sequence[str] | None = None,
    tolerance: float = 5e-5,
) -> Tensor:
    """Noisy linear imputation of x (B, C, H, W) where `keep` (B, H, W) is False. See `NoisyLinear`.

    >>> import torch
    >>> x, keep = torch.rand(2, 3, 9, 9), torch.rand(2, 9, 9) > 0.5
    >>> filled = noisy_linear(x, keep, seed=3, ids=("cat", "dog"))
    >>> bool((filled == x).all(1)[keep].all())
    True
    """
    filled: Tensor = make(NoisyLinear, "noisy_linear", {"sigma": sigma, "tolerance": tolerance})(x, keep, ids, seed)
    return filled

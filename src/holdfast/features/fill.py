"""What takes the place of features that are left out, and inputs with only some features kept."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from holdfast.errors import UserError, unknown
from holdfast.features import segment_means, spatial
from holdfast.types import Batch

if TYPE_CHECKING:
    from holdfast.models import Model

Fill = Literal["zero", "mean", "blur"] | float


def filled(fill: Fill, model: Model, batch: Batch, inputs: Tensor, segments: Tensor) -> Tensor:
    """What replaces absent features, in the shape of the normalised inputs (B, …).

    "zero" is 0 after normalisation, "mean" the feature's own mean in each channel, "blur" the input blurred by a
    Gaussian of a sixteenth of its length, and a number a value in the data's own units.

    >>> from holdfast.models import Model
    >>> model, batch = Model(torch.nn.Flatten(), mean=0.5), Batch(("a",), torch.tensor([[1.0, 2.0]]))
    >>> filled(0.75, model, batch, model.inputs(batch), torch.tensor([[0, 0]])).tolist()
    [[0.25, 0.25]]
    """
    if fill == "zero":
        return torch.zeros_like(inputs)
    if fill == "mean":
        return segment_means(inputs, segments)
    if fill == "blur":
        return blurred(inputs)
    if isinstance(fill, bool) or not isinstance(fill, int | float):
        raise unknown("fill", fill, ("zero", "mean", "blur", "a number"))
    if not math.isfinite(fill):
        raise UserError(f"fill must be a finite number, got {fill!r}")
    return model.inputs(batch.with_x(torch.full_like(batch.x, fill)))


def blurred(x: Tensor) -> Tensor:
    """Each axis of images (B, C, H, W) or series (B, C, T) smoothed by a Gaussian of a sixteenth of its length.

    Beyond the border the nearest value goes on.

    >>> torch.allclose(blurred(torch.ones(1, 1, 8, 8)), torch.ones(1, 1, 8, 8))
    True
    """
    if x.ndim not in (3, 4):
        raise UserError(f"fill='blur' is for images (B, C, H, W) and series (B, C, T), got inputs of {tuple(x.shape)}")
    for axis, length in enumerate(spatial(x.shape), start=2):
        sigma = max(length / 16, 0.5)
        reach = min(math.ceil(3 * sigma), length)
        tap = torch.arange(-reach, reach + 1, device=x.device, dtype=torch.float64)
        weight = (-0.5 * (tap / sigma) ** 2).exp()
        weight = (weight / weight.sum()).to(x.dtype)
        moved = x.movedim(axis, -1)
        rows = moved.reshape(-1, 1, length)
        smooth = F.conv1d(F.pad(rows, (reach, reach), mode="replicate"), weight[None, None])
        x = smooth.reshape(moved.shape).movedim(-1, axis)
    return x.contiguous()


def kept_only(
    features: Any, inputs: Tensor, fill: Tensor, aux: Mapping[str, Tensor], kept: Tensor, segments: Tensor
) -> tuple[Tensor, dict[str, Tensor]]:
    """Inputs with only the features `kept` (R, n) and `fill` elsewhere, row by row; with the matching `aux`.

    inputs and fill are (R, …), segments (R, *spatial). A grouping with a method `hide`, as `Tokens` has, does it
    itself.

    >>> x, labels = torch.ones(1, 3), torch.tensor([[0, 0, 1]])
    >>> kept_only(None, x, 0 * x, {}, torch.tensor([[True, False]]), labels)[0].tolist()
    [[1.0, 1.0, 0.0]]
    """
    if hasattr(features, "hide"):
        hidden: tuple[Tensor, dict[str, Tensor]] = features.hide(inputs, aux, kept)
        return hidden
    share = kept.to(inputs.dtype).gather(1, segments.flatten(1))
    share = share.reshape(len(kept), *[1] * (inputs.ndim - segments.ndim), *segments.shape[1:])
    return torch.lerp(fill, inputs, share), dict(aux)  # exact at 0 and 1

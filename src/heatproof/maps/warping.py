"""Geometric resampling in pixel coordinates: where each output pixel comes from, and which pixels that leaves valid.

A deformation is a field of *offsets* (b, 2, H, W), rows first: output pixel (i, j) is read at (i, j) + offset. b is 1
when all samples move alike, else B. Integer and fractional parts are kept apart, so whole-pixel moves are exact.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heatproof.rand import normal

_SNAP = 1e-6  # a fraction of a pixel below rounding error, which would otherwise borrow from a neighbour outside


def resample(maps: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Read maps (B, C, H, W), or each plane of (B, C, D, H, W), at displaced positions, bilinearly, zero outside.

    out[i, j] = Σ w · maps[⌊i + dy⌋ + {0, 1}, ⌊j + dx⌋ + {0, 1}]. With a mask (B, 1, …, H, W), true where every
    neighbour of nonzero weight lies inside. A non-finite pixel spoils only those that borrow from it, and a region of
    one value keeps it exactly: interpolation must not break ties by rounding.

    >>> image = torch.arange(4.0).reshape(1, 1, 1, 4)
    >>> half_a_pixel = torch.tensor([0.0, 0.5]).reshape(1, 2, 1, 1).expand(1, 2, 1, 4)
    >>> moved, valid = resample(image, half_a_pixel)
    >>> moved.flatten().tolist(), valid.flatten().tolist()
    ([0.5, 1.5, 2.5, 1.5], [True, True, True, False])
    """
    height, width = maps.shape[-2:]
    offsets = (
        offsets.to(maps.device) if maps.is_cuda else offsets
    )  # other devices may have no float64
    rows, down, rows_inside = _neighbours(
        offsets[:, 0], torch.arange(height, device=offsets.device)[:, None], height
    )
    columns, across, columns_inside = _neighbours(
        offsets[:, 1], torch.arange(width, device=offsets.device), width
    )
    flat = maps.reshape(len(maps), -1, height * width)

    def read(i: int, j: int) -> Tensor:
        source = (rows[i] * width + columns[j]).flatten(1)[:, None].to(maps.device)
        values = flat.gather(2, source.expand(*flat.shape[:2], -1))
        inside = (rows_inside[i] & columns_inside[j]).flatten(1)[:, None].to(maps.device)
        return torch.where(inside, values, 0)

    across_maps, down_maps = (
        f.flatten(1)[:, None].to(maps.device, maps.dtype) for f in (across, down)
    )
    above, below = (_between(read(i, 0), read(i, 1), across_maps) for i in (0, 1))
    out = _between(above, below, down_maps).reshape(maps.shape)
    valid = rows_inside[0] & columns_inside[0]
    valid = valid & (rows_inside[1] | (down == 0)) & (columns_inside[1] | (across == 0))
    valid = valid.reshape(len(valid), *[1] * (maps.ndim - 3), height, width)
    return out, valid.expand(len(maps), *valid.shape[1:]).to(maps.device, copy=True)


def _between(a: Tensor, b: Tensor, fraction: Tensor) -> Tensor:
    """The weighted mean, exactly a where both agree, so that a flat region stays flat to the last bit."""
    return torch.where((fraction == 0) | (a == b), a, (1 - fraction) * a + fraction * b)


def _neighbours(
    offset: Tensor, start: Tensor, size: int
) -> tuple[list[Tensor], Tensor, list[Tensor]]:
    """The two pixels around a displaced position along one axis: clamped indices, fraction, and which are inside."""
    nearest = offset.round()
    offset = torch.where((offset - nearest).abs() < _SNAP, nearest, offset)
    whole = offset.floor()
    before = start + whole.long()
    pair = [before, before + 1]
    return (
        [i.clamp(0, size - 1) for i in pair],
        offset - whole,
        [(i >= 0) & (i < size) for i in pair],
    )


def rotation_offsets(degrees: float, height: int, width: int) -> Tensor:
    """Offsets (1, 2, H, W) in float64 of a counter-clockwise rotation about the centre of the image.

    With (u, v) the position right of and below the centre, output (u, v) is read at
    (u cos θ − v sin θ, u sin θ + v cos θ).

    >>> rotation_offsets(90, 3, 3)[0, :, 0, 0].round().tolist()  # the corner above left comes from above right
    [0.0, 2.0]
    """
    # reduced first: the sine of a large multiple of 360° would lose digits
    angle = math.radians(math.fmod(degrees, 360))
    below = (torch.arange(height, dtype=torch.float64) - (height - 1) / 2)[:, None]
    right = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    source_right = right * math.cos(angle) - below * math.sin(angle)
    source_below = right * math.sin(angle) + below * math.cos(angle)
    return torch.stack([source_below - below, source_right - right])[None]


def elastic_offsets(
    key: Tensor, amplitude: float, smoothness: float, height: int, width: int
) -> Tensor:
    """A smooth random displacement per key, offsets (B, 2, H, W); the longest vector of each is `amplitude` pixels.

    White noise is smoothed by a Gaussian of standard deviation `smoothness` pixels, multiplied in the frequency domain
    by exp(−2π²σ²|f|²), so the field is equally strong everywhere, up to the border. Amplitudes share the direction.

    >>> from heatproof.rand import keys
    >>> field = elastic_offsets(keys(0, ["a"], "elastic"), 4.0, 8.0, 32, 48)
    >>> tuple(field.shape), round(float(field.norm(dim=1).max()), 4)
    ((1, 2, 32, 48), 4.0)
    """
    noise = normal(key, (2, height, width))
    down, across = (
        torch.fft.fftfreq(height, dtype=torch.float64),
        torch.fft.rfftfreq(width, dtype=torch.float64),
    )
    squared = down[:, None] ** 2 + across**2
    gain = torch.exp(-2 * math.pi**2 * smoothness**2 * squared).to(noise.device, noise.dtype)
    field: Tensor = torch.fft.irfft2(torch.fft.rfft2(noise) * gain, s=(height, width))
    longest: Tensor = torch.linalg.vector_norm(field, dim=1).flatten(1).amax(1).reshape(-1, 1, 1, 1)
    return field / longest * amplitude


def shift(maps: Tensor, by: int, dim: int) -> tuple[Tensor, Tensor]:
    """Move maps (B, C, …) along `dim` by whole places with zero fill, and the mask (B, 1, …) of what is not fill.

    >>> moved, valid = shift(torch.tensor([[[[1.0, 2.0, 3.0]]]]), 1, -1)
    >>> moved.flatten().tolist(), valid.flatten().tolist()
    ([0.0, 1.0, 2.0], [False, True, True])
    """
    side = maps.shape[dim]
    out, valid = torch.zeros_like(maps), torch.zeros_like(maps[:, :1], dtype=torch.bool)
    left = side - abs(by)
    if left > 0:
        out.narrow(dim, max(by, 0), left).copy_(maps.narrow(dim, max(-by, 0), left))
        valid.narrow(dim, max(by, 0), left).fill_(True)
    return out, valid

"""Geometric resampling in pixel coordinates, and which pixels of the result are valid.

A deformation is a field of *offsets* (b, 2, H, W), rows first: output pixel (i, j) is read at (i, j) + offset. b is 1
when all samples move alike, else B. Integer and fractional parts are kept apart, so whole-pixel moves are exact.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from heatproof.rand import normal

_SNAP = 1e-6
"""Fractions of a pixel below this are rounding errors; they must not borrow from a neighbour outside."""


def resample(maps: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
    """Return maps moved by a deformation, (B, C, H, W), and a mask of the positions where the result is valid.

    Output pixel (i, j) is read at (i, j) plus its offset, (b, 2, H, W), where b is B or 1. Volumes (B, C, D, H, W) are
    moved plane by plane. Bilinear, and zero outside: result[i, j] = Σ w · maps[⌊i + dy⌋ + {0, 1}, ⌊j + dx⌋ + {0, 1}].
    The mask (B, 1, …, H, W) is true where every neighbour of nonzero weight lies inside. A non-finite pixel spoils only
    those that borrow from it, and a region of one value keeps it exactly: interpolation must not break ties by
    rounding.

    >>> image = torch.arange(4.0).reshape(1, 1, 1, 4)
    >>> half_a_pixel = torch.tensor([0.0, 0.5]).reshape(1, 2, 1, 1).expand(1, 2, 1, 4)
    >>> moved, valid = resample(image, half_a_pixel)
    >>> moved.flatten().tolist(), valid.flatten().tolist()
    ([0.5, 1.5, 2.5, 1.5], [True, True, True, False])
    """
    height, width = maps.shape[-2:]
    if maps.is_cuda:
        offsets = offsets.to(maps.device)  # other devices may have no float64
    row_numbers = torch.arange(height, device=offsets.device)[:, None]
    column_numbers = torch.arange(width, device=offsets.device)
    rows = _neighbours(offsets[:, 0], row_numbers, height)
    columns = _neighbours(offsets[:, 1], column_numbers, width)
    flat = maps.reshape(len(maps), -1, height * width)

    def read(i: int, j: int) -> Tensor:
        """Return the values at the upper (i = 0) or lower, left (j = 0) or right neighbour of all displaced positions."""
        source = rows.pixels[i] * width + columns.pixels[j]
        is_inside = rows.is_inside[i] & columns.is_inside[j]
        source = source.flatten(1)[:, None].to(maps.device)
        values = flat.gather(2, source.expand(*flat.shape[:2], -1))
        return torch.where(is_inside.flatten(1)[:, None].to(maps.device), values, 0)

    across = columns.fraction.flatten(1)[:, None].to(maps.device, maps.dtype)
    down = rows.fraction.flatten(1)[:, None].to(maps.device, maps.dtype)
    above = _between(read(0, 0), read(0, 1), across)
    below = _between(read(1, 0), read(1, 1), across)
    moved = _between(above, below, down).reshape(maps.shape)

    valid = rows.is_valid & columns.is_valid
    valid = valid.reshape(len(valid), *[1] * (maps.ndim - 3), height, width)
    return moved, valid.expand(len(maps), *valid.shape[1:]).to(maps.device, copy=True)


def _between(a: Tensor, b: Tensor, fraction: Tensor) -> Tensor:
    """Return (1 − fraction) · a + fraction · b, and exactly a where a = b, so that a flat region stays exactly flat."""
    return torch.where((fraction == 0) | (a == b), a, (1 - fraction) * a + fraction * b)


class _Neighbours(NamedTuple):
    """The two pixels around displaced positions along one axis, which lie a `fraction` of the way between them.

    `pixels` are their numbers, clamped to the image, and `is_inside` tells which needed no clamping.
    """

    pixels: tuple[Tensor, Tensor]
    is_inside: tuple[Tensor, Tensor]
    fraction: Tensor

    @property
    def is_valid(self) -> Tensor:
        """Whether every neighbour with a weight other than 0 lies inside."""
        return self.is_inside[0] & (self.is_inside[1] | (self.fraction == 0))


def _neighbours(offset: Tensor, start: Tensor, size: int) -> _Neighbours:
    """Return the two pixels around each of the positions start + offset along an axis of `size` pixels."""
    # An offset that is whole up to rounding errors counts as whole.
    nearest = offset.round()
    offset = torch.where((offset - nearest).abs() < _SNAP, nearest, offset)
    whole = offset.floor()
    before = start + whole.long()
    after = before + 1
    return _Neighbours(
        pixels=(before.clamp(0, size - 1), after.clamp(0, size - 1)),
        is_inside=((before >= 0) & (before < size), (after >= 0) & (after < size)),
        fraction=offset - whole,
    )


def rotation_offsets(degrees: float, height: int, width: int) -> Tensor:
    """Return the deformation that rotates images counter-clockwise about their centre, offsets (1, 2, H, W) in float64.

    An offset says how far from a pixel its new value is read. With (u, v) the position right of and below the centre,
    output (u, v) is read at (u cos θ − v sin θ, u sin θ + v cos θ).

    >>> rotation_offsets(90, 3, 3)[0, :, 0, 0].round().tolist()  # the corner above left comes from above right
    [0.0, 2.0]
    """
    # Reduced first: the sine of a large multiple of 360° would lose digits.
    angle = math.radians(math.fmod(degrees, 360))
    below = (torch.arange(height, dtype=torch.float64) - (height - 1) / 2)[:, None]
    right = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
    source_right = right * math.cos(angle) - below * math.sin(angle)
    source_below = right * math.sin(angle) + below * math.cos(angle)
    return torch.stack([source_below - below, source_right - right])[None]


def elastic_offsets(
    key: Tensor, amplitude: float, smoothness: float, height: int, width: int
) -> Tensor:
    """Return a smooth random deformation for each of B random keys, as offsets (B, 2, H, W) in pixels.

    The longest offset is `amplitude` pixels long. White noise is smoothed by a Gaussian of standard deviation σ =
    `smoothness` pixels: multiplied in the frequency domain by exp(−2π²σ²|f|²), so the field is equally strong
    everywhere, up to the border. All amplitudes of one key give the same field up to its length.

    >>> from heatproof.rand import keys
    >>> field = elastic_offsets(keys(0, ["a"], "elastic"), 4.0, 8.0, 32, 48)
    >>> tuple(field.shape), round(float(field.norm(dim=1).max()), 4)
    ((1, 2, 32, 48), 4.0)
    """
    noise = normal(key, (2, height, width))
    vertical = torch.fft.fftfreq(height, dtype=torch.float64)
    horizontal = torch.fft.rfftfreq(width, dtype=torch.float64)
    squared_frequency = vertical[:, None] ** 2 + horizontal**2
    gain = torch.exp(-2 * math.pi**2 * smoothness**2 * squared_frequency)
    spectrum = torch.fft.rfft2(noise) * gain.to(noise.device, noise.dtype)
    field: Tensor = torch.fft.irfft2(spectrum, s=(height, width))
    lengths = torch.linalg.vector_norm(field, dim=1)
    longest: Tensor = lengths.flatten(1).amax(1).reshape(-1, 1, 1, 1)
    return field / longest * amplitude


def shift(maps: Tensor, by: int, dim: int) -> tuple[Tensor, Tensor]:
    """Return maps (B, C, …) moved by whole pixels along `dim`, and a mask (B, 1, …) of the positions that have a value.

    Positions that nothing moved to are zero and not in the mask.

    >>> moved, valid = shift(torch.tensor([[[[1.0, 2.0, 3.0]]]]), 1, -1)
    >>> moved.flatten().tolist(), valid.flatten().tolist()
    ([0.0, 1.0, 2.0], [False, True, True])
    """
    moved = torch.zeros_like(maps)
    valid = torch.zeros_like(maps[:, :1], dtype=torch.bool)
    remaining = maps.shape[dim] - abs(by)
    if remaining > 0:
        start, source = max(by, 0), max(-by, 0)
        moved.narrow(dim, start, remaining).copy_(maps.narrow(dim, source, remaining))
        valid.narrow(dim, start, remaining).fill_(True)
    return moved, valid

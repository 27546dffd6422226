"""The two window searches of quickshift, with one pass over memory where plain operations take one per neighbour."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heatproof.kernels import AVAILABLE, OPTIONS

_PIXELS_AT_ONCE = 128

if AVAILABLE:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    # `places` holds the colours (B, 3, H, W). `table` holds a float64 for each squared distance between two pixels,
    # because a number passed to a kernel as an argument would be rounded to float32.

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _density_kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations in a way of its own
        places, table, density, height, width, RADIUS: tl.constexpr, BLOCK: tl.constexpr
    ):
        """Σ 2^(table[squared distance] − squared difference of colours) over the window of each pixel."""
        area = height * width
        image = tl.program_id(1).to(tl.int64)
        here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = here < area
        row, column = here // width, here % width
        first = places + image * 3 * area
        a = tl.load(first + here, mask=inside, other=0.0)
        b = tl.load(first + area + here, mask=inside, other=0.0)
        c = tl.load(first + 2 * area + here, mask=inside, other=0.0)
        total = tl.zeros([BLOCK], dtype=tl.float64)
        for down in range(-RADIUS, RADIUS + 1):
            for right in range(-RADIUS, RADIUS + 1):
                exists = inside & (row + down >= 0) & (row + down < height)
                exists = exists & (column + right >= 0) & (column + right < width)
                there = here + down * width + right
                x = a - tl.load(first + there, mask=exists, other=0.0)
                y = b - tl.load(first + area + there, mask=exists, other=0.0)
                z = c - tl.load(first + 2 * area + there, mask=exists, other=0.0)
                exponent = tl.load(table + down * down + right * right) - x * x - y * y - z * z
                total += tl.where(exists, libdevice.exp2(exponent), 0.0)
        tl.store(density + image * area + here, total, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _links_kernel(  # type: ignore[no-untyped-def]
        places,
        table,
        density,
        parent,
        distance,
        height,
        width,
        RADIUS: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """The nearest pixel of higher density in the window of each, the first of equals in reading order."""
        area = height * width
        image = tl.program_id(1).to(tl.int64)
        here = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = here < area
        row, column = here // width, here % width
        first, dense = places + image * 3 * area, density + image * area
        a = tl.load(first + here, mask=inside, other=0.0)
        b = tl.load(first + area + here, mask=inside, other=0.0)
        c = tl.load(first + 2 * area + here, mask=inside, other=0.0)
        mine = tl.load(dense + here, mask=inside, other=0.0)
        nearest = tl.full([BLOCK], float("inf"), dtype=tl.float64)
        target = here
        for down in range(-RADIUS, RADIUS + 1):
            for right in range(-RADIUS, RADIUS + 1):
                exists = inside & (row + down >= 0) & (row + down < height)
                exists = exists & (column + right >= 0) & (column + right < width)
                there = here + down * width + right
                other = tl.load(dense + there, mask=exists, other=0.0)
                x = a - tl.load(first + there, mask=exists, other=0.0)
                y = b - tl.load(first + area + there, mask=exists, other=0.0)
                z = c - tl.load(first + 2 * area + there, mask=exists, other=0.0)
                apart = tl.load(table + down * down + right * right) + x * x + y * y + z * z
                ahead = (other > mine) | ((other == mine) & (there < here))
                better = exists & ahead & (apart < nearest)
                nearest = tl.where(better, apart, nearest)
                target = tl.where(better, there, target)
        tl.store(parent + image * area + here, target.to(tl.int64), mask=inside)
        tl.store(distance + image * area + here, nearest, mask=inside)


def density_of(places: Tensor, scale: float, radius: int) -> Tensor:
    """Return Σ exp2(scale · d² − ‖z − z′‖²) over the pixels of each window, (B, H, W), where d is their distance.

    `places` (B, 3, H, W) are the colours z, multiplied by √−scale.
    """
    density = torch.empty_like(places[:, 0])
    table = scale * _squares(places, radius)
    _density_kernel[_grid(places)](
        places, table, density, *places.shape[2:], radius, _PIXELS_AT_ONCE, **OPTIONS
    )
    return density


def links_of(colours: Tensor, density: Tensor, radius: int) -> tuple[Tensor, Tensor]:
    """Return the nearest pixel of higher density in the window of every pixel, and the squared distance, (B, H·W) each."""
    distance = torch.empty_like(density)
    parent = torch.empty_like(density, dtype=torch.int64)
    table = _squares(colours, radius)
    _links_kernel[_grid(colours)](
        colours,
        table,
        density,
        parent,
        distance,
        *colours.shape[2:],
        radius,
        _PIXELS_AT_ONCE,
        **OPTIONS,
    )
    return parent.flatten(1), distance.flatten(1)


def _squares(like: Tensor, radius: int) -> Tensor:
    """Return 0, 1, … up to the largest squared distance in a window."""
    return torch.arange(2 * radius * radius + 1, device=like.device, dtype=torch.float64)


def _grid(images: Tensor) -> tuple[int, int]:
    """Return the number of programs: blocks of pixels times images."""
    pixels = images.shape[2] * images.shape[3]
    return math.ceil(pixels / _PIXELS_AT_ONCE), len(images)

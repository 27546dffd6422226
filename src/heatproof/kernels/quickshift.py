"""The two window searches of quickshift on a GPU, with one pass over memory where plain operations take one per neighbour.

Quickshift (Vedaldi and Soatto, Quick shift and kernel methods for mode seeking, ECCV 2008) groups pixels that are near
each other and alike in colour. It estimates the density of pixels in the space of positions and colours, then links every
pixel to its nearest neighbour of higher density; the trees of links are the segments. Both steps visit all neighbours in
a window. `features.superpixels` calls them, and has the same in plain operations for the CPU.
"""

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

    # One program handles BLOCK pixels of one image. `colours` is (B, 3, H, W) in float64: lightness, a and b of
    # CIE Lab. `distance_table` holds a float64 for each squared distance between two pixels, because a number passed to
    # a kernel as an argument would be rounded to float32.

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _density_kernel(  # type: ignore[no-untyped-def]  # Triton reads annotations in a way of its own
        colours, distance_table, density, height, width, RADIUS: tl.constexpr, BLOCK: tl.constexpr
    ):
        """Store in `density` a sum over the window of each pixel: how many similar pixels are near.

        Each neighbour adds 2^(distance_table[squared distance] − squared difference of colours).
        """
        area = height * width
        image = tl.program_id(1).to(tl.int64)
        pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = pixel < area
        row, column = pixel // width, pixel % width
        lightness_of_image = colours + image * 3 * area
        a_of_image, b_of_image = lightness_of_image + area, lightness_of_image + 2 * area
        lightness = tl.load(lightness_of_image + pixel, mask=inside, other=0.0)
        a = tl.load(a_of_image + pixel, mask=inside, other=0.0)
        b = tl.load(b_of_image + pixel, mask=inside, other=0.0)
        total = tl.zeros([BLOCK], dtype=tl.float64)
        for down in range(-RADIUS, RADIUS + 1):
            for right in range(-RADIUS, RADIUS + 1):
                exists = inside & (row + down >= 0) & (row + down < height)
                exists = exists & (column + right >= 0) & (column + right < width)
                neighbour = pixel + down * width + right
                lightness_gap = lightness - tl.load(
                    lightness_of_image + neighbour, mask=exists, other=0.0
                )
                a_gap = a - tl.load(a_of_image + neighbour, mask=exists, other=0.0)
                b_gap = b - tl.load(b_of_image + neighbour, mask=exists, other=0.0)
                exponent = tl.load(distance_table + down * down + right * right)
                exponent = exponent - lightness_gap * lightness_gap - a_gap * a_gap - b_gap * b_gap
                total += tl.where(exists, libdevice.exp2(exponent), 0.0)
        tl.store(density + image * area + pixel, total, mask=inside)

    @triton.jit  # type: ignore[untyped-decorator,unused-ignore]
    def _links_kernel(  # type: ignore[no-untyped-def]
        colours,
        distance_table,
        density,
        parent,
        distance,
        height,
        width,
        RADIUS: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        """Store in `parent` and `distance` the nearest pixel of higher density in the window of each pixel.

        Of equally near ones it is the first in reading order.

        Distance is that in positions and colours together. Of pixels of equal density the earlier one counts as higher,
        so that links have no cycles. A pixel without a higher neighbour is linked to itself, at an infinite distance.
        """
        area = height * width
        image = tl.program_id(1).to(tl.int64)
        pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        inside = pixel < area
        row, column = pixel // width, pixel % width
        lightness_of_image = colours + image * 3 * area
        a_of_image, b_of_image = lightness_of_image + area, lightness_of_image + 2 * area
        density_of_image = density + image * area
        lightness = tl.load(lightness_of_image + pixel, mask=inside, other=0.0)
        a = tl.load(a_of_image + pixel, mask=inside, other=0.0)
        b = tl.load(b_of_image + pixel, mask=inside, other=0.0)
        own_density = tl.load(density_of_image + pixel, mask=inside, other=0.0)
        smallest_distance = tl.full([BLOCK], float("inf"), dtype=tl.float64)
        linked_to = pixel
        for down in range(-RADIUS, RADIUS + 1):
            for right in range(-RADIUS, RADIUS + 1):
                exists = inside & (row + down >= 0) & (row + down < height)
                exists = exists & (column + right >= 0) & (column + right < width)
                neighbour = pixel + down * width + right
                neighbour_density = tl.load(density_of_image + neighbour, mask=exists, other=0.0)
                lightness_gap = lightness - tl.load(
                    lightness_of_image + neighbour, mask=exists, other=0.0
                )
                a_gap = a - tl.load(a_of_image + neighbour, mask=exists, other=0.0)
                b_gap = b - tl.load(b_of_image + neighbour, mask=exists, other=0.0)
                apart = tl.load(distance_table + down * down + right * right)
                apart = apart + lightness_gap * lightness_gap + a_gap * a_gap + b_gap * b_gap
                is_tie_before = (neighbour_density == own_density) & (neighbour < pixel)
                is_higher = (neighbour_density > own_density) | is_tie_before
                is_nearer = exists & is_higher & (apart < smallest_distance)
                smallest_distance = tl.where(is_nearer, apart, smallest_distance)
                linked_to = tl.where(is_nearer, neighbour, linked_to)
        tl.store(parent + image * area + pixel, linked_to.to(tl.int64), mask=inside)
        tl.store(distance + image * area + pixel, smallest_distance, mask=inside)


def density_of(scaled_colours: Tensor, scale: float, radius: int) -> Tensor:
    """Return the density at each pixel, Σ exp2(scale · d² − ‖z − z′‖²) over its window, (B, H, W).

    d is the distance of two pixels and z their colours, `scaled_colours` (B, 3, H, W), multiplied by √−scale: with
    scale = −1 / (2σ² ln 2) it is a Gaussian of width σ in positions and colours.
    """
    density = torch.empty_like(scaled_colours[:, 0])
    distance_table = scale * _squares(scaled_colours, radius)
    height, width = scaled_colours.shape[2:]
    _density_kernel[_grid(scaled_colours)](
        scaled_colours, distance_table, density, height, width, radius, _PIXELS_AT_ONCE, **OPTIONS
    )
    return density


def links_of(colours: Tensor, density: Tensor, radius: int) -> tuple[Tensor, Tensor]:
    """Return for every pixel the nearest pixel of higher density in its window, and the squared distance, (B, H·W) each.

    The window has the given radius, and distances include the difference in colour. Computed by a GPU kernel.
    """
    distance = torch.empty_like(density)
    parent = torch.empty_like(density, dtype=torch.int64)
    distance_table = _squares(colours, radius)
    _links_kernel[_grid(colours)](
        colours,
        distance_table,
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

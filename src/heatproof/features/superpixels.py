"""Superpixels: quickshift in plain torch on the images' own device, SLIC through scikit-image."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor

from heatproof.errors import UserError
from heatproof.kernels import fused

_RGB_TO_XYZ = (
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
_WHITE_D65 = (0.95047, 1.0, 1.08883)
_DENSITY_STEPS = 2.0**20
"""Densities are rounded to multiples of its inverse.

That is coarser than rounding errors, so that flat regions are exact ties on every device, and finer than any real
difference.
"""
_IMAGES_AT_ONCE = 64
_SERIAL_ELEMENTS = 32_000
"""The most elements of one operation on a CPU: above it torch starts threads, whose waiting costs more than it saves."""
_PARALLEL_ELEMENTS = 1 << 25
"""The most elements of one operation on a GPU, for its memory."""


def quickshift(
    images: Tensor, kernel_size: float = 4.0, max_dist: float = 200.0, ratio: float = 0.2
) -> Tensor:
    """Return quickshift superpixels, (B, H, W) int64, of images (B, 3, H, W) or (B, 1, H, W) in [0, 1].

    The method of Vedaldi and Soatto (ECCV 2008), with scikit-image's parameters. A pixel at p with the Lab colour c lies
    at z = (ratio·c, p). Its density is the sum of exp(−‖z − z′‖² / 2·kernel_size²) over the square window of radius
    ⌈3·kernel_size⌉. Each pixel links to the nearest z′ of higher density in its window unless that is farther than
    `max_dist`; the trees of links are the segments, numbered in the order of their roots. Equal densities and equal
    distances are decided by the lower pixel index.

    >>> halves = torch.zeros(1, 3, 8, 8)
    >>> halves[..., 4:] = 1.0
    >>> quickshift(halves, kernel_size=1, max_dist=10)[0, 0].tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    colours = ratio * lab(images)
    if images.device.type != "cpu":
        chunks = torch.split(colours, _IMAGES_AT_ONCE)
        return torch.cat([_segments(chunk, kernel_size, max_dist) for chunk in chunks])
    # Each core segments one image at a time: the image stays in its cache, and none of the many short operations is
    # divided among cores.
    segments_of = partial(_segments, kernel_size=kernel_size, max_dist=max_dist)
    cores = max(1, min(len(colours), torch.get_num_threads()))
    with ThreadPoolExecutor(cores) as executor:
        return torch.cat(list(executor.map(segments_of, torch.split(colours, 1))))


def lab(images: Tensor) -> Tensor:
    """Return the colours of images in CIE Lab (D65), (B, 3, H, W) float64: lightness, red–green, yellow–blue.

    Images are sRGB (B, 3, H, W) or grey (B, 1, H, W), in [0, 1].

    >>> [round(v, 3) + 0.0 for v in lab(torch.ones(1, 1, 1, 1)).flatten().tolist()][0]
    100.0
    """
    rgb = images.double()
    if rgb.shape[1] == 1:
        rgb = rgb.expand(-1, 3, -1, -1)
    linear = torch.where(rgb > 0.04045, ((rgb.clamp(min=0) + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    matrix = torch.tensor(_RGB_TO_XYZ, dtype=torch.float64, device=rgb.device)
    white = torch.tensor(_WHITE_D65, dtype=torch.float64, device=rgb.device)
    # Three explicit products: a matrix product may sum in another order for another batch size.
    weights = (matrix / white[:, None])[None, :, :, None, None]
    red, green, blue = linear[:, :1], linear[:, 1:2], linear[:, 2:]
    xyz = weights[:, :, 0] * red + weights[:, :, 1] * green + weights[:, :, 2] * blue
    # CIE's cube root, with a straight line near black.
    f = torch.where(xyz > 0.008856, xyz.clamp(min=0) ** (1 / 3), 7.787 * xyz + 16 / 116)
    lightness = 116 * f[:, 1] - 16
    red_to_green = 500 * (f[:, 0] - f[:, 1])
    yellow_to_blue = 200 * (f[:, 1] - f[:, 2])
    return torch.stack([lightness, red_to_green, yellow_to_blue], 1)


def slic(images: Tensor, segments: int = 50, compactness: float = 10.0) -> Tensor:
    """Return SLIC superpixels of images (B, C, H, W), or supervoxels of volumes (B, C, D, H, W), by scikit-image.

    Labels are (B, H, W) or (B, D, H, W) int64; inputs have one channel or three, in [0, 1]. About `segments` connected
    regions per image; a higher `compactness` gives squarer ones. They are computed on the CPU, image by image, and
    numbered from 0 without gaps.

    >>> slic(torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)), segments=4).shape
    torch.Size([1, 16, 16])
    """
    try:
        from skimage.segmentation import slic as segment_image
    except ImportError as error:
        raise missing_skimage() from error
    rgb = images.double().expand(-1, 3, *images.shape[2:]).movedim(1, -1).cpu().numpy()
    labels = []
    for image in rgb:
        regions = torch.from_numpy(
            segment_image(image, n_segments=segments, compactness=compactness, start_label=0)
        )
        _, numbered_without_gaps = torch.unique(regions, return_inverse=True)
        labels.append(numbered_without_gaps)
    return torch.stack(labels).to(images.device)


def missing_skimage() -> UserError:
    """Return the error for SLIC without scikit-image.

    >>> print(missing_skimage())
    SLIC superpixels need scikit-image: pip install "heatproof[superpixels]"
    """
    return UserError('SLIC superpixels need scikit-image: pip install "heatproof[superpixels]"')


def _segments(colours: Tensor, kernel_size: float, max_dist: float) -> Tensor:
    """Return quickshift's segments of images as labels (B, H, W), given scaled Lab colours (B, 3, H, W).

    Each pixel links to its nearest neighbour of higher density, unless that is farther than `max_dist`. The links form
    trees, and each tree is a segment.
    """
    radius = math.ceil(3 * kernel_size)
    density = _density(colours, kernel_size, radius)
    parent, distance = _links(colours.contiguous(), density, radius)
    itself = torch.arange(parent.shape[1], device=parent.device).expand_as(parent)
    parent = torch.where(distance <= max_dist**2, parent, itself)
    # Pointer jumping: every pass halves the height of the trees, until all pixels point to their root.
    while True:
        grandparent = parent.gather(1, parent)
        if torch.equal(grandparent, parent):
            break
        parent = grandparent
    is_root = parent == itself
    root_number = is_root.long().cumsum(1) - 1
    return root_number.gather(1, parent).reshape(len(colours), *colours.shape[2:])


def _density(colours: Tensor, kernel_size: float, radius: int) -> Tensor:
    """Return the density (B, H, W) of pixels at each pixel, estimated with a Gaussian kernel over its window.

    Neighbours count by their distance in position and colour (a Parzen window). Each pair of pixels is visited once and
    counted for both. On a CPU the image is handled in bands so small that torch keeps each operation on one thread:
    starting threads for thousands of short operations takes longer than they save.
    """
    _, _, height, width = colours.shape
    # exp(−d² / 2σ²) = 2^(scale·d²), because torch.exp would start threads of its own. Colours are scaled beforehand.
    scale = -0.5 * math.log2(math.e) / kernel_size**2
    if fused(colours):
        from heatproof.kernels.quickshift import density_of  # loads Triton, which is slow

        return _rounded(density_of((colours * math.sqrt(-scale)).contiguous(), scale, radius))

    scaled_channels = [channel * math.sqrt(-scale) for channel in colours.unbind(1)]
    # A pixel is its own neighbour at distance 0.
    density = torch.ones_like(scaled_channels[0])
    band = max(1, _SERIAL_ELEMENTS // width) if colours.device.type == "cpu" else height
    for down, right in _half_window(radius, height, width):
        left_margin, right_margin = max(0, -right), max(0, right)
        for top in range(0, height - down, band):
            bottom = min(top + band, height - down)
            pixel = (..., slice(top, bottom), slice(left_margin, width - right_margin))
            neighbour = (
                ...,
                slice(top + down, bottom + down),
                slice(right_margin, width - left_margin),
            )
            exponent = torch.full_like(density[pixel], scale * (down * down + right * right))
            for channel in scaled_channels:
                difference = channel[pixel] - channel[neighbour]
                exponent.addcmul_(difference, difference, value=-1)
            kernel = exponent.exp2_()
            density[pixel] += kernel
            density[neighbour] += kernel
    return _rounded(density)


def _half_window(radius: int, height: int, width: int) -> Iterator[tuple[int, int]]:
    """Yield the offsets (down, right) to the neighbours of a pixel that come after it in reading order."""
    for down in range(min(radius + 1, height)):
        first_right = max(-radius, 1 - width) if down else 1
        for right in range(first_right, min(radius + 1, width)):
            yield down, right


def _rounded(density: Tensor) -> Tensor:
    """Return densities without their last digits, so that rounding errors break no ties, on any device."""
    return (density * _DENSITY_STEPS).round_() / _DENSITY_STEPS


def _links(colours: Tensor, density: Tensor, radius: int) -> tuple[Tensor, Tensor]:
    """Return for every pixel the nearest pixel of higher density in its window, and the squared distance, (B, H·W) each.

    Distances include the difference in colour. Windows are searched from the inside out, in rings of growing radius. A
    pixel is done when its neighbour is nearer than all offsets that remain; most are done after the first ring.
    """
    if fused(colours):
        from heatproof.kernels.quickshift import links_of

        return links_of(colours, density, radius)

    count, _, height, width = colours.shape
    device = colours.device
    offsets = torch.cartesian_prod(*[torch.arange(-radius, radius + 1, device=device)] * 2)
    offsets = offsets[offsets.abs().sum(1) > 0]
    squared_lengths = offsets.square().sum(1)

    # With a frame that is never denser than any pixel, every window is complete. Pixels of all images are numbered one
    # after another, frames included.
    frame = [radius] * 4
    framed_density = F.pad(density, frame, value=-math.inf).flatten()
    framed_channels = [F.pad(channel, frame).flatten() for channel in colours.unbind(1)]
    framed_width = width + 2 * radius
    framed_area = (height + 2 * radius) * framed_width
    sides = [torch.arange(size, device=device) for size in (count, height, width)]
    sample, row, column = torch.meshgrid(*sides, indexing="ij")
    position = sample * framed_area + (row + radius) * framed_width + column + radius
    position = position.flatten()

    # Without a denser neighbour a pixel links to itself.
    target = position.clone()
    best = torch.full(position.shape, math.inf, dtype=torch.float64, device=device)
    unfinished = torch.arange(len(position), device=device)
    elements_at_once = _SERIAL_ELEMENTS if device.type == "cpu" else _PARALLEL_ELEMENTS
    longest = 2 * radius * radius
    inner = 0
    for outer in sorted({min(ring, longest) for ring in (2, 8, 32, longest)}):
        in_ring = (squared_lengths > inner) & (squared_lengths <= outer)
        inner = outer
        steps = offsets[in_ring, 0] * framed_width + offsets[in_ring, 1]
        pixels_at_once = max(1, elements_at_once // len(steps))
        for pixels in torch.split(unfinished, pixels_at_once):
            pixel_positions = position.index_select(0, pixels)
            closest, first = _closest(
                framed_density, framed_channels, pixel_positions, steps, squared_lengths[in_ring]
            )
            is_tie = (closest == best[pixels]) & closest.isfinite() & (first < target[pixels])
            is_better = (closest < best[pixels]) | is_tie
            target[pixels] = torch.where(is_better, first, target[pixels])
            best[pixels] = torch.where(is_better, closest, best[pixels])
        unfinished = unfinished[best[unfinished] > outer]

    target_in_frame = target % framed_area
    target_row = target_in_frame // framed_width - radius
    target_column = target_in_frame % framed_width - radius
    parent = target_row * width + target_column
    return parent.reshape(count, -1), best.reshape(count, -1)


def _closest(
    density: Tensor,
    channels: Sequence[Tensor],
    positions: Tensor,
    steps: Tensor,
    squared_lengths: Tensor,
) -> tuple[Tensor, Tensor]:
    """Return for P pixels the squared distance to their nearest denser neighbour, and the neighbour's number, (P,) each.

    density          of all pixels, in one row
    channels         the colour channels of all pixels, one row each
    positions        (P,) the numbers of the pixels in those rows
    steps            (S,) from a pixel's number to those of the neighbours that are searched
    squared_lengths  (S,) their squared distances in the image

    Of several nearest neighbours the first in reading order is returned. Where none is denser, the distance is infinite
    and the number lies beyond all pixels.
    """
    neighbours = positions[:, None] + steps  # (P, S)

    def difference(values: Tensor) -> Tensor:
        """Return the value of each neighbour minus that of its pixel, (P, S)."""
        # index_select, because indexing would start threads for a few numbers.
        at_neighbours = values.index_select(0, neighbours.flatten()).reshape(neighbours.shape)
        return at_neighbours.sub_(values.index_select(0, positions)[:, None])

    density_gain = difference(density)
    distance = squared_lengths.double().expand(neighbours.shape).clone()
    for channel in channels:
        colour_difference = difference(channel)
        distance.addcmul_(colour_difference, colour_difference)
    # Of equally dense pixels the earlier one in reading order counts as denser.
    is_denser = (density_gain > 0) | ((density_gain == 0) & (steps < 0))
    distance = torch.where(is_denser, distance, math.inf)
    closest = distance.amin(1)
    is_closest = distance == closest[:, None]
    first = torch.where(is_closest, neighbours, len(density)).amin(1)
    return closest, first

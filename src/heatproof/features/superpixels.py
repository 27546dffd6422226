"""Superpixels: quickshift in plain torch on the images' own device, SLIC through scikit-image."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.kernels import fused

_RGB_TO_XYZ = (
    (0.412453, 0.357580, 0.180423),
    (0.212671, 0.715160, 0.072169),
    (0.019334, 0.119193, 0.950227),
)
_WHITE_D65 = (0.95047, 1.0, 1.08883)
_DENSITY_STEPS = (
    2.0**20
)  # coarser than rounding, so flat regions are exact ties on every device; finer than any real gap
_IMAGES_AT_ONCE = 64
_SERIAL_ELEMENTS = 32_000
_PARALLEL_ELEMENTS = 1 << 25


def quickshift(
    images: Tensor, kernel_size: float = 4.0, max_dist: float = 200.0, ratio: float = 0.2
) -> Tensor:
    """Quickshift superpixels, (B, H, W) int64, of images (B, 3, H, W) or (B, 1, H, W) in [0, 1].

    A pixel at p with the Lab colour c lies at z = (ratio·c, p). Its density is the sum of
    exp(−‖z − z′‖² / 2·kernel_size²) over the square window of radius ⌈3·kernel_size⌉. Each pixel links to the nearest
    z′ of higher density in its window unless that is farther than `max_dist`; the trees of links are the segments,
    numbered in the order of their roots. Equal densities and equal distances are decided by the lower pixel index.

    >>> halves = torch.zeros(1, 3, 8, 8)
    >>> halves[..., 4:] = 1.0
    >>> quickshift(halves, kernel_size=1, max_dist=10)[0, 0].tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    colours = ratio * lab(images)
    if images.device.type != "cpu":
        return torch.cat(
            [
                _segments(some, kernel_size, max_dist)
                for some in torch.split(colours, _IMAGES_AT_ONCE)
            ]
        )
    # One image stays in a core's cache, and its many short operations run on one core each: so one image per core.
    alone = partial(_segments, kernel_size=kernel_size, max_dist=max_dist)
    with ThreadPoolExecutor(max(1, min(len(colours), torch.get_num_threads()))) as cores:
        return torch.cat(list(cores.map(alone, torch.split(colours, 1))))


def lab(images: Tensor) -> Tensor:
    """CIE Lab (D65) of sRGB images (B, 3, H, W) or grey ones (B, 1, H, W) in [0, 1], as (B, 3, H, W) float64.

    >>> [round(v, 3) + 0.0 for v in lab(torch.ones(1, 1, 1, 1)).flatten().tolist()][0]
    100.0
    """
    rgb = images.double()
    if rgb.shape[1] == 1:
        rgb = rgb.expand(-1, 3, -1, -1)
    linear = torch.where(rgb > 0.04045, ((rgb.clamp(min=0) + 0.055) / 1.055) ** 2.4, rgb / 12.92)
    matrix = torch.tensor(_RGB_TO_XYZ, dtype=torch.float64, device=rgb.device)
    white = torch.tensor(_WHITE_D65, dtype=torch.float64, device=rgb.device)
    # three explicit products: a matrix product may sum in another order for another batch size
    weights = (matrix / white[:, None])[None, :, :, None, None]
    xyz = (
        weights[:, :, 0] * linear[:, :1]
        + weights[:, :, 1] * linear[:, 1:2]
        + weights[:, :, 2] * linear[:, 2:]
    )
    f = torch.where(xyz > 0.008856, xyz.clamp(min=0) ** (1 / 3), 7.787 * xyz + 16 / 116)
    return torch.stack(
        [116 * f[:, 1] - 16, 500 * (f[:, 0] - f[:, 1]), 200 * (f[:, 1] - f[:, 2])], 1
    )


def slic(images: Tensor, segments: int = 50, compactness: float = 10.0) -> Tensor:
    """SLIC superpixels, (B, H, W) int64, of images (B, 3, H, W) or (B, 1, H, W) in [0, 1], through scikit-image; of
    volumes (B, 3, D, H, W) or (B, 1, D, H, W) supervoxels, (B, D, H, W).

    About `segments` connected regions per image; a higher `compactness` gives squarer ones. They are computed on the
    CPU, image by image, and numbered from 0 without gaps.

    >>> slic(torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(0)), segments=4).shape
    torch.Size([1, 16, 16])
    """
    try:
        from skimage.segmentation import slic as slic_of_one
    except ImportError as error:
        raise missing_skimage() from error
    rgb = images.double().expand(-1, 3, *images.shape[2:]).movedim(1, -1).cpu().numpy()
    labels = []
    for image in rgb:
        raw = torch.from_numpy(
            slic_of_one(image, n_segments=segments, compactness=compactness, start_label=0)
        )
        labels.append(torch.unique(raw, return_inverse=True)[1])
    return torch.stack(labels).to(images.device)


def missing_skimage() -> UserError:
    """The error for SLIC without scikit-image.

    >>> print(missing_skimage())
    SLIC superpixels need scikit-image: pip install "heatproof[superpixels]"
    """
    return UserError('SLIC superpixels need scikit-image: pip install "heatproof[superpixels]"')


def _segments(colours: Tensor, kernel_size: float, max_dist: float) -> Tensor:
    radius = math.ceil(3 * kernel_size)
    parent, distance = _links(colours.contiguous(), _density(colours, kernel_size, radius), radius)
    itself = torch.arange(parent.shape[1], device=parent.device).expand_as(parent)
    parent = torch.where(distance <= max_dist**2, parent, itself)
    while True:  # pointer jumping: the height of the trees halves each time
        grandparent = parent.gather(1, parent)
        if torch.equal(grandparent, parent):
            break
        parent = grandparent
    number = (parent == itself).long().cumsum(1) - 1
    return number.gather(1, parent).reshape(len(colours), *colours.shape[2:])


def _density(colours: Tensor, kernel_size: float, radius: int) -> Tensor:
    """The Parzen density (B, H, W) of every pixel among those of its window.

    Each pair of pixels is visited once and counted for both. On a CPU the work goes through the image in bands so small
    that torch keeps each operation on one thread: thousands of short ones wait for each other on a busy machine.
    """
    _, _, height, width = colours.shape
    scale = (
        -0.5 * math.log2(math.e) / kernel_size**2
    )  # base 2, since torch.exp would start threads of its own
    if fused(colours):
        from heatproof.kernels.quickshift import density_of  # Triton takes its time to load

        return _stepped(density_of((colours * math.sqrt(-scale)).contiguous(), scale, radius))
    scaled = [channel * math.sqrt(-scale) for channel in colours.unbind(1)]
    density = torch.ones_like(scaled[0])
    band = max(1, _SERIAL_ELEMENTS // width) if colours.device.type == "cpu" else height
    for down in range(min(radius + 1, height)):
        for right in range(max(-radius, 1 - width) if down else 1, min(radius + 1, width)):
            left, beyond = max(0, -right), max(0, right)
            for top in range(0, height - down, band):
                bottom = min(top + band, height - down)
                here = (..., slice(top, bottom), slice(left, width - beyond))
                there = (..., slice(top + down, bottom + down), slice(beyond, width - left))
                exponent = torch.full_like(density[here], scale * (down * down + right * right))
                for channel in scaled:
                    difference = channel[here] - channel[there]
                    exponent.addcmul_(difference, difference, value=-1)
                kernel = exponent.exp2_()
                density[here] += kernel
                density[there] += kernel
    return _stepped(density)


def _stepped(density: Tensor) -> Tensor:
    return (density * _DENSITY_STEPS).round_() / _DENSITY_STEPS


def _links(colours: Tensor, density: Tensor, radius: int) -> tuple[Tensor, Tensor]:
    """For every pixel the nearest one of higher density in its window and the squared distance, both (B, H·W).

    Windows are searched in growing rings of offsets: a pixel that has found a neighbour nearer than every offset
    still to come is done, and most are done after the first.
    """
    if fused(colours):
        from heatproof.kernels.quickshift import links_of

        return links_of(colours, density, radius)
    count, _, height, width = colours.shape
    device = colours.device
    offsets = torch.cartesian_prod(*[torch.arange(-radius, radius + 1, device=device)] * 2)
    offsets = offsets[offsets.abs().sum(1) > 0]
    reach = offsets.square().sum(1)
    # a frame that is never denser than any pixel makes every window complete
    framed_density = torch.nn.functional.pad(density, [radius] * 4, value=-math.inf).flatten()
    framed = [
        torch.nn.functional.pad(channel, [radius] * 4).flatten() for channel in colours.unbind(1)
    ]
    framed_width, area = width + 2 * radius, (height + 2 * radius) * (width + 2 * radius)
    sides = [torch.arange(size, device=device) for size in (count, height, width)]
    sample, row, column = torch.meshgrid(*sides, indexing="ij")
    place = (sample * area + (row + radius) * framed_width + column + radius).flatten()

    target = place.clone()
    best = torch.full(place.shape, math.inf, dtype=torch.float64, device=device)
    open_ = torch.arange(len(place), device=device)
    inner = 0
    for outer in sorted(
        {min(ring, 2 * radius * radius) for ring in (2, 8, 32, 2 * radius * radius)}
    ):
        stage = (reach > inner) & (reach <= outer)
        inner = outer
        steps = offsets[stage, 0] * framed_width + offsets[stage, 1]
        at_once = max(
            1, (_SERIAL_ELEMENTS if device.type == "cpu" else _PARALLEL_ELEMENTS) // len(steps)
        )
        for some in torch.split(open_, at_once):
            closest, first = _closest(
                framed_density, framed, place.index_select(0, some), steps, reach[stage]
            )
            tie = (closest == best[some]) & closest.isfinite() & (first < target[some])
            better = (closest < best[some]) | tie
            target[some] = torch.where(better, first, target[some])
            best[some] = torch.where(better, closest, best[some])
        open_ = open_[best[open_] > outer]
    inside = target % area
    parent = (inside // framed_width - radius) * width + inside % framed_width - radius
    return parent.reshape(count, -1), best.reshape(count, -1)


def _closest(
    density: Tensor, colours: Sequence[Tensor], mine: Tensor, steps: Tensor, reach: Tensor
) -> tuple[Tensor, Tensor]:
    """The squared distance (P,) from pixels to the nearest of higher density among some steps, and the first such."""
    other = mine[:, None] + steps

    def difference(
        values: Tensor,
    ) -> Tensor:  # index_select where indexing would start threads for a few numbers
        there = values.index_select(0, other.flatten()).reshape(other.shape)
        return there.sub_(values.index_select(0, mine)[:, None])

    ahead = difference(density)
    distance = reach.double().expand(other.shape).clone()
    for channel in colours:
        apart = difference(channel)
        distance.addcmul_(apart, apart)
    distance = torch.where((ahead > 0) | ((ahead == 0) & (steps < 0)), distance, math.inf)
    closest = distance.amin(1)
    return closest, torch.where(distance == closest[:, None], other, len(density)).amin(1)

"""Finite groups that permute positions: circular shifts, rotations and reflections."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, partial
from itertools import permutations, product
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import AfterValidator
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.groups.continuous import Rotations
from heatproof.axes.symmetry.groups.contract import (
    ALONG,
    Additive,
    Moving,
    Numbered,
    aligned,
    axis,
    check_listable,
    draw_keys,
    shape_text,
    take,
    take_along,
)
from heatproof.errors import UserError
from heatproof.models.tasks import with_region
from heatproof.types import Batch, parameter_class


@parameter_class
class Cyclic(Numbered, Additive):
    """ℤ/nℤ by circular shifts along the dimension `dim` of size n: (ρ[g]x)[i] = x[(i − g) mod n].

    Elements are whole numbers, and two that differ by a multiple of n are the same element. `dim` is counted on the
    batched tensor; a negative one also finds its place in maps without channels, a positive one in maps without the
    last dimension. Auxiliary tensors named in `along`, (B, n) each, shift with the input where they are present.

    >>> batch = Batch(("a", "b"), torch.tensor([[1, 2, 3], [4, 5, 6]]))
    >>> Cyclic().act(torch.tensor([0, 1]), batch).x.tolist()
    [[1, 2, 3], [6, 4, 5]]
    """

    name: ClassVar[str] = "cyclic"
    exact: ClassVar[bool] = True
    dim: int = -1
    along: tuple[str, ...] = ALONG

    @property
    def title(self) -> str:
        """The group in words."""
        return f"circular shifts along dimension {self.dim}"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape without the dimension."""
        axis(self.name, self.dim, (1, *shape))

    def order(self, batch: Batch) -> int:
        """Return n."""
        return batch.x.shape[axis(self.name, self.dim, batch.x.shape)]

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return the samples shifted by g."""
        g = aligned(self.name, g, self.rank, len(batch), batch.x.device)
        dim = axis(self.name, self.dim, batch.x.shape)
        source = _source(g, batch.x.shape[dim])
        moved = with_region(batch, take(batch.x, dim, source), partial(self.move, g))
        return replace(moved, aux=take_along(self.name, moved.aux, self.along, source))

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, …) shifted by g."""
        g = aligned(self.name, g, self.rank, len(maps), maps.device)
        dim = axis(self.name, self.dim, maps.shape)
        return take(maps, dim, _source(g, maps.shape[dim]))


def check_dims(dims: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse no dimension at all, and one that is named twice."""
    if not dims or len(set(dims)) != len(dims):
        raise UserError(
            f"one or more different dimensions are needed, such as (-2, -1), got {dims}"
        )
    return dims


@parameter_class
class Torus(Moving, Additive):
    """ℤ/n₁ℤ × … × ℤ/n_kℤ by circular shifts along k dimensions; an element is (g₁, …, g_k).

    Regions move along. Dimensions are counted as in `Cyclic`.

    >>> batch = Batch(("a",), torch.tensor([[[[1, 2], [3, 4]]]]))
    >>> Torus().act(torch.tensor([1, 0]), batch).x.tolist()
    [[[[3, 4], [1, 2]]]]
    """

    name: ClassVar[str] = "torus"
    exact: ClassVar[bool] = True
    rank: ClassVar[int] = 1
    dims: Annotated[tuple[int, ...], AfterValidator(check_dims)] = (-2, -1)

    @property
    def title(self) -> str:
        """The group in words."""
        return f"circular shifts along dimensions {', '.join(map(str, self.dims))}"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape without the dimensions."""
        self._axes((1, *shape))

    def order(self, batch: Batch) -> int:
        """Return n₁ ⋯ n_k."""
        return math.prod(self._sizes(batch))

    def identity(self, batch: Batch) -> Tensor:
        """Return the shift by nothing, (k,)."""
        return torch.zeros(len(self.dims), dtype=torch.int64, device=batch.x.device)

    def elements(self, batch: Batch) -> Tensor:
        """Return all shifts, (|G|, k)."""
        check_listable(self.name, self.order(batch))
        sides = [torch.arange(size, device=batch.x.device) for size in self._sizes(batch)]
        return torch.stack([side.flatten() for side in torch.meshgrid(*sides, indexing="ij")], 1)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return uniform shifts, (n, B, k)."""
        key = draw_keys(seed, batch, self.name)
        shifts = []
        for i, size in enumerate(self._sizes(batch)):
            shifts.append(rand.integers(rand.fold(key, i), (n,), size).T)
        return torch.stack(shifts, 2)

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, …) shifted by g."""
        g = aligned(self.name, g, self.rank, len(maps), maps.device)
        if g.shape[-1] != len(self.dims):
            raise UserError(f"torus: an element holds {len(self.dims)} shifts, got {g.shape[-1]}")
        for i, dim in enumerate(self._axes(maps.shape)):
            maps = take(maps, dim, _source(g[..., i], maps.shape[dim]))
        return maps

    def _axes(self, shape: Sequence[int]) -> list[int]:
        """Return the indices of the dimensions in a batched tensor of this shape."""
        axes = [axis(self.name, dim, shape) for dim in self.dims]
        if len(set(axes)) != len(axes):
            raise UserError(
                f"torus: dims {self.dims} name a dimension of {shape_text(shape[1:])} twice"
            )
        return axes

    def _sizes(self, batch: Batch) -> list[int]:
        return [batch.x.shape[dim] for dim in self._axes(batch.x.shape)]


def _source(g: Tensor, n: int) -> Tensor:
    """Return which position of a tensor comes to each position after a circular shift by g, of n; (n,) or (B, n)."""
    return (torch.arange(n, device=g.device) - g[..., None]) % n


@parameter_class
class Dihedral(Moving, Numbered):
    """D_n, the 2n rotations by multiples of 360°/n and reflections of images, about their centre.

    Of volumes (B, C, D, H, W) every plane (H, W) is moved alike; `Octahedral` also turns them about the other axes.
    Element k = r + n·s mirrors left and right if s = 1, then turns counter-clockwise by r·360°/n. D₁ is the reflection
    alone and D₂ both flips, for images of any proportions; D₄ is exact on square images. D₈ turns by 45° with bilinear
    interpolation and loses the corners: it is approximate (`exact` is False), no permutation of pixels, and going
    there and back changes the image. Rotations are those of the perturbation `Rotation`.

    >>> batch = Batch(("a",), torch.tensor([[[[1, 2], [3, 4]]]]))
    >>> Dihedral(4).act(torch.tensor(1), batch).x.tolist(), Dihedral(4).act(torch.tensor(4), batch).x.tolist()
    ([[[[2, 4], [1, 3]]]], [[[[2, 1], [4, 3]]]])
    """

    name: ClassVar[str] = "dihedral"
    n: Literal[1, 2, 4, 8] = 4

    @property
    def exact(self) -> bool:
        """Whether the group only permutes pixels."""
        return self.n <= 4

    @property
    def title(self) -> str:
        """The group in words; it says when it is approximate."""
        if self.n == 1:
            return "D1: left-right reflection"
        if self.n == 2:
            return "D2: reflections"
        if self.n == 4:
            return "D4: rotations by 90° and reflections"
        return "D8: rotations by 45° and reflections, approximate (interpolating)"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are no images or volumes, and turned ones that are not square."""
        if len(shape) != 3 and not (len(shape) == 4 and self.exact):
            raise UserError(
                f"dihedral({self.n}) needs images (B, C, H, W) or volumes, got shape {shape_text(shape)}"
            )
        self._check_square(shape[-2], shape[-1])

    def order(self, batch: Batch) -> int:
        """Return 2n."""
        return 2 * self.n

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Return the number of the element gh, first h and then g, of a dihedral group of n rotations and n reflections.

        Element k = r + n·s mirrors if s = 1, then turns by r steps. Rotations add up, with that of h reversed if g mirrors.
        """
        turn_g, mirror_g = g % self.n, g // self.n
        turn_h, mirror_h = h % self.n, h // self.n
        turn = (turn_g + (1 - 2 * mirror_g) * turn_h) % self.n
        mirror = (mirror_g + mirror_h) % 2
        return turn + self.n * mirror

    def inverse(self, g: Tensor) -> Tensor:
        """Return g⁻¹: a rotation turns back; a reflection is its own inverse."""
        return torch.where(g < self.n, -g % self.n, g)

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, C, H, W) or (B, H, W), or those of volumes, turned and mirrored by g."""
        if maps.ndim not in (3, 4, 5):
            raise UserError(
                f"dihedral({self.n}) moves maps (B, C, H, W) or (B, H, W), got {tuple(maps.shape)}"
            )
        g = aligned(self.name, g, self.rank, len(maps), maps.device)
        if bool(((g < 0) | (g >= 2 * self.n)).any()):
            raise UserError(
                f"dihedral({self.n}) has the elements 0 to {2 * self.n - 1}, got {g.tolist()}"
            )
        self._check_square(maps.shape[-2], maps.shape[-1])
        return self._permuted(g, maps) if self.exact else self._interpolated(g, maps)

    def _permuted(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, …, H, W) turned and mirrored by the elements g of the group, one or one per map, exactly.

        The pixels are numbered, and the image of their numbers is moved by every element of the group. The moved image
        says for each pixel which one comes there.
        """
        height, width = maps.shape[-2:]
        pixels = torch.arange(height * width, device=maps.device).reshape(height, width)
        quarter_turns_per_step = 4 // self.n
        sources = []
        for pixels_before_turn in (pixels, pixels.flip(1)):  # as they are, and mirrored
            for step in range(self.n):
                turned = torch.rot90(pixels_before_turn, quarter_turns_per_step * step, (0, 1))
                sources.append(turned.flatten())
        source = torch.stack(sources)[g].reshape(-1, 1, height * width)
        flat = maps.reshape(len(maps), -1, height * width)
        moved = flat.take_along_dim(source, dim=2)
        return moved.reshape(maps.shape)

    def _interpolated(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps mirrored, then turned with bilinear interpolation."""
        if not maps.is_floating_point():
            raise UserError(
                f"dihedral({self.n}) interpolates and needs floating-point images, got {maps.dtype}"
            )
        is_mirrored = (g >= self.n).reshape(-1, *[1] * (maps.ndim - 1))
        maps = torch.where(is_mirrored, maps.flip(-1), maps)
        angle = (g % self.n) * (360 / self.n)
        return Rotations().move(angle, maps)

    def _check_square(self, height: int, width: int) -> None:
        """Refuse to turn images by a quarter or less unless they are square."""
        if self.n > 2 and height != width:
            raise UserError(
                f"dihedral({self.n}) turns images by {360 // self.n}° and needs square ones, got {height}×{width}; "
                "dihedral(2) has the reflections alone"
            )


_AXIS_ORDERS_AND_FLIPS = list(product(permutations((-3, -2, -1)), product((False, True), repeat=3)))
"""Element k of the octahedral group: the order that it puts the axes in, and which of them it then mirrors."""


def _source_voxels(sides: tuple[int, ...], n_elements: int) -> Tensor:
    """Return which voxel of a volume comes to each position when the volume is turned or mirrored, (n_elements, D·H·W).

    `sides` are (D, H, W). Row k is for element k of the octahedral group, the 48 symmetries of a cube: it puts the axes
    in another order and then mirrors some of them. The first 8 elements leave the order of the axes.
    """
    # Number the voxels, and move the volume of their numbers: the number at each position says where it came from.
    voxels = torch.arange(math.prod(sides)).reshape(sides)
    sources = []
    for axis_order, is_mirrored in _AXIS_ORDERS_AND_FLIPS[:n_elements]:
        mirrored_axes = [axis for axis in range(3) if is_mirrored[axis]]
        moved_voxels = voxels.permute(axis_order).flip(mirrored_axes)
        sources.append(moved_voxels.flatten())
    return torch.stack(sources)


@cache
def _products() -> Tensor:
    """Return the multiplication table of the 48 symmetries of a cube: the number of gh, first h and then g, (48, 48).

    A symmetry is known by where it moves the 8 corners of a cube, so gh is the one that moves them like h and then g.
    """
    corners = _source_voxels((2, 2, 2), len(_AXIS_ORDERS_AND_FLIPS))  # (48, 8)
    # Entry [g, h] has the corners in the order in which gh puts them, (48, 48, 8).
    corners_of_products = corners[:, corners].transpose(0, 1)
    # The element with the same order is the product.
    is_product = (corners_of_products[:, :, None] == corners).all(-1)
    return is_product.int().argmax(-1)


@parameter_class
class Octahedral(Moving, Numbered):
    """The 48 quarter turns and reflections of cubic volumes (B, C, D, H, W); with `turns=False` the 8 reflections.

    Element k = 8·p + s puts the axes into the p-th order and then mirrors those whose bit is set in s, the first by the
    highest. Reflections fit volumes of any proportions.

    >>> batch = Batch(("a",), torch.arange(8).reshape(1, 1, 2, 2, 2))
    >>> Octahedral().act(torch.tensor(1), batch).x.flatten().tolist()
    [1, 0, 3, 2, 5, 4, 7, 6]
    """

    name: ClassVar[str] = "octahedral"
    exact: ClassVar[bool] = True
    turns: bool = True

    @property
    def title(self) -> str:
        """The group in words."""
        return (
            "quarter turns and reflections of volumes" if self.turns else "reflections of volumes"
        )

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are no volumes (C, D, H, W), and turned ones that are no cubes."""
        if len(shape) != 4:
            raise UserError(
                f"octahedral needs volumes (B, C, D, H, W), got shape {shape_text(shape)}"
            )
        if self.turns and len(set(shape[1:])) > 1:
            instead = "octahedral: {turns: false} has the reflections alone, dihedral the turns of square planes"
            raise UserError(
                f"octahedral needs cubes, got {'×'.join(map(str, shape[1:]))}; {instead}"
            )

    def order(self, batch: Batch) -> int:
        """Return 48, or 8 without turns."""
        return 48 if self.turns else 8

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Return gh, from a table of products."""
        return _products().to(g.device)[g, h]

    def inverse(self, g: Tensor) -> Tensor:
        """Return the element whose product with g is the identity."""
        is_identity = _products() == 0
        inverse_of_element = is_identity.int().argmax(1)
        return inverse_of_element.to(g.device)[g]

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, C, D, H, W) or (B, D, H, W) turned and mirrored by g, one element or one per map."""
        self.check((1, *maps.shape[-3:]))
        g = aligned(self.name, g, self.rank, len(maps), maps.device)
        n_elements = 48 if self.turns else 8
        sources = _source_voxels(tuple(maps.shape[-3:]), n_elements).to(maps.device)
        voxels = sources.shape[-1]
        source = sources[g].reshape(-1, 1, voxels)  # (B, 1, voxels), or one for all maps
        flat = maps.reshape(len(maps), -1, voxels)
        moved = flat.take_along_dim(source, dim=2)
        return moved.reshape(maps.shape)

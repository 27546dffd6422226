"""Continuous groups, sampled: rotations and changes of size of images, rotations of points in space."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from scipy.spatial.transform import Rotation
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.groups.contract import (
    Additive,
    Moving,
    aligned,
    draw_keys,
    shape_text,
)
from heatproof.axes.symmetry.groups.distributions import Distribution, Draws, Spread
from heatproof.errors import UserError
from heatproof.maps.warping import resample
from heatproof.types import Batch, parameter_class


class Sampled:
    """Base of groups with infinitely many elements: they are drawn, never listed."""

    name: ClassVar[str]

    def order(self, batch: Batch) -> float:
        """Return infinity."""
        return math.inf

    def elements(self, batch: Batch) -> Tensor:
        """Raise `UserError`: infinitely many elements cannot be listed."""
        raise UserError(f"{self.name} has infinitely many elements, too many to list; use sample()")


class _Planar(Sampled, Moving, Additive):
    """Base of transformations of the plane about the centre of an image; an element is a number, and they interpolate.

    `matrices(g)` (B, 2, 2) map a position of the result, (rows below, columns right of) the centre, to where it is read.
    """

    matrices: ClassVar[Callable[..., Tensor]]
    exact: ClassVar[bool] = False
    rank: ClassVar[int] = 0

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are not images (C, H, W)."""
        if len(shape) != 3:
            raise UserError(f"{self.name} needs images (B, C, H, W), got shape {shape_text(shape)}")

    def identity(self, batch: Batch) -> Tensor:
        """Return 0, ()."""
        return torch.zeros((), dtype=torch.float64, device=batch.x.device)

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, C, H, W) or (B, H, W) moved alike, 0 where nothing was."""
        moved, _ = self._resampled(g, maps)
        return moved

    def view(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return the maps of moved images, 0 on what came from beyond the border."""
        _, inside = self._resampled(g, maps)
        return torch.where(inside, maps, 0)

    def _resampled(self, g: Tensor, maps: Tensor) -> tuple[Tensor, Tensor]:
        """Return moved maps, and whether each position was read from inside of the original."""
        if maps.ndim not in (3, 4) or not maps.is_floating_point():
            raise UserError(
                f"{self.name} moves floating-point maps (B, C, H, W) or (B, H, W), got {tuple(maps.shape)}"
            )
        height, width = maps.shape[-2:]
        rows = torch.arange(height, dtype=torch.float64) - (height - 1) / 2
        columns = torch.arange(width, dtype=torch.float64) - (width - 1) / 2
        grid = torch.stack(torch.meshgrid(rows, columns, indexing="ij")).flatten(1)
        g = aligned(self.name, g, self.rank, len(maps), torch.device("cpu"))
        offsets = self.matrices(g.reshape(-1)) @ grid - grid
        offsets = offsets.reshape(-1, 2, height, width)
        moved, inside = resample(maps.reshape(len(maps), -1, height, width), offsets)
        return moved.reshape(maps.shape), inside if maps.ndim == 4 else inside[:, 0]


@parameter_class
class Rotations(Draws, _Planar):
    """SO(2): images turned counter-clockwise about their centre by any angle, with bilinear interpolation.

    An element is an angle in degrees. Corners leave the picture; only what both maps have is compared. `distribution`,
    `sd` in degrees and `weighted` say how angles are drawn and what the score is a mean of, see `Draws`.

    >>> batch = Batch(("a",), torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]))
    >>> Rotations().act(torch.tensor(90.0), batch).x.round().tolist()
    [[[[2.0, 4.0], [1.0, 3.0]]]]
    """

    name: ClassVar[str] = "so2"
    distribution: Distribution = "uniform"
    sd: Spread = None
    weighted: bool = False

    @property
    def title(self) -> str:
        """The group in words."""
        angles = f"rotations by any angle{self.distribution_title}"
        return f"SO(2): {angles}, approximate (interpolating)"

    @property
    def limit(self) -> float:
        """Half a turn."""
        return 180.0

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are not images (C, H, W), and a distribution without its standard deviation."""
        super().check(shape)
        self.check_distribution()

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return angles, (n, B); uniform ones lie between 0 and 360."""
        keys = draw_keys(seed, batch, self.name)
        if self.distribution == "uniform":
            return 360 * rand.uniform(keys, (n,)).T.double()
        return self.drawn(keys, n)

    def matrices(self, g: Tensor) -> Tensor:
        """Return rotation matrices, as `maps.warping.rotation_offsets` has them."""
        angle = torch.deg2rad(g.double() % 360)
        cos, sin = angle.cos(), angle.sin()
        return torch.stack([torch.stack([cos, sin], -1), torch.stack([-sin, cos], -1)], -2)


@parameter_class
class Scalings(Draws, _Planar):
    """Images made larger or smaller about their centre, by factors from 1/most to most, with bilinear interpolation.

    An element is the logarithm of a factor, drawn uniformly unless `distribution`, `sd` (of the logarithm) and
    `weighted` say otherwise, see `Draws`. All factors would be a group; these are a part of it that has inverses, so a
    mean over them is one over sizes that occur.

    >>> batch = Batch(("a",), torch.tensor([[[[0.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]]))
    >>> Scalings().act(torch.tensor(math.log(2)), batch).x[0, 0, 1].tolist()
    [0.5, 1.0, 0.5]
    """

    name: ClassVar[str] = "scale"
    most: Annotated[float, Field(gt=1, le=4)] = 1.25
    distribution: Distribution = "uniform"
    sd: Spread = None
    weighted: bool = False

    @property
    def title(self) -> str:
        """The group in words."""
        sizes = f"changes of size by up to {self.most:g}{self.distribution_title}"
        return f"{sizes}, approximate (interpolating)"

    @property
    def limit(self) -> float:
        """The logarithm of the largest factor."""
        return math.log(self.most)

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are not images (C, H, W), and a distribution without its standard deviation."""
        super().check(shape)
        self.check_distribution()

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return logarithms of factors on ±log(most), (n, B)."""
        return self.drawn(draw_keys(seed, batch, self.name), n)

    def matrices(self, g: Tensor) -> Tensor:
        """Return scaled identities: a larger image is read from positions nearer to the centre."""
        return torch.eye(2, dtype=torch.float64) * torch.exp(-g.double())[:, None, None]


@parameter_class
class SpaceRotations(Sampled):
    """SO(3): points in space (B, N, F) turned about the origin; `columns` of F are their coordinates.

    An element is a matrix R (3, 3), uniform: ρ[R]x = xRᵀ. Maps of kind "vector", such as signed gradients, turn with
    the points. Those of kind "scalar" have one number for a point, the sum over its coordinates, and stay as they are.
    Nothing is interpolated.

    >>> quarter = torch.tensor([[0.0, -1.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    >>> SpaceRotations().act(quarter, Batch(("a",), torch.tensor([[[1.0, 0.0, 0.0]]]))).x.tolist()
    [[[0.0, 1.0, 0.0]]]
    """

    name: ClassVar[str] = "so3"
    exact: ClassVar[bool] = True
    rank: ClassVar[int] = 2
    maps: Literal["vector", "scalar"] = "vector"
    columns: tuple[
        Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)], Annotated[int, Field(ge=0)]
    ] = (0, 1, 2)

    @property
    def title(self) -> str:
        """The group in words."""
        return f"SO(3): rotations of points in space, {self.maps} maps"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are not points (N, F) with the coordinates."""
        if len(shape) != 2 or shape[1] <= max(self.columns) or len(set(self.columns)) < 3:
            columns = f"three different columns below F, got {self.columns}"
            raise UserError(
                f"so3 needs points (B, N, F) with {columns} for shape {shape_text(shape)}"
            )

    def identity(self, batch: Batch) -> Tensor:
        """Return I, (3, 3)."""
        return torch.eye(3, dtype=torch.float64, device=batch.x.device)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return uniform rotations, from normal quaternions, (n, B, 3, 3)."""
        draw = torch.arange(n, device=batch.x.device)[:, None]
        key = rand.fold(draw_keys(seed, batch, self.name), draw)
        quaternions = rand.normal(key.flatten(), (4,)).reshape(n, len(batch), 4).double()
        w_last = quaternions.roll(-1, -1).reshape(-1, 4)  # as scipy has it
        matrices = Rotation.from_quat(w_last.cpu().numpy()).as_matrix()
        return torch.from_numpy(matrices).to(quaternions).reshape(n, len(batch), 3, 3)

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Return gh."""
        return g @ h

    def inverse(self, g: Tensor) -> Tensor:
        """Return gᵀ."""
        return g.mT

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return the points turned; their other columns and auxiliary tensors stay."""
        self.check(batch.x.shape[1:])
        return batch.with_x(self._turned(g, batch.x))

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, N, F) of vectors turned with the points, and scalar ones unchanged."""
        return self._turned(g, maps) if self.maps == "vector" else maps

    def view(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return vector maps unchanged, and of scalar maps the sum over a point's coordinates, (B, N)."""
        if self.maps == "vector" or maps.ndim < 3:
            return maps
        return maps[..., list(self.columns)].sum(-1)

    def _turned(self, g: Tensor, x: Tensor) -> Tensor:
        """Return x (B, N, F) with the coordinates of each point multiplied by gᵀ."""
        if x.ndim != 3:
            raise UserError(
                f"so3 turns vectors (B, N, F), got maps of {tuple(x.shape)}; use maps: scalar"
            )
        g = aligned(self.name, g, self.rank, len(x), x.device)
        columns = list(self.columns)
        turned = x.clone()
        turned[..., columns] = (x[..., columns].double() @ g.double().mT).to(x.dtype)
        return turned

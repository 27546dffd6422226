"""Rotations, reflections and translations of points in the plane or in space: the Euclidean group E(n)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.groups.continuous import Sampled
from heatproof.axes.symmetry.groups.contract import aligned, shape_text
from heatproof.errors import UserError
from heatproof.types import Batch, parameter_class

Column = Annotated[int, Field(ge=0)]


def _check_columns(columns: tuple[int, ...]) -> tuple[int, ...]:
    """Refuse anything but two or three different columns."""
    if len(columns) not in (2, 3) or len(set(columns)) != len(columns):
        raise UserError(
            f"columns are two or three different numbers, such as (0, 1, 2), got {columns}"
        )
    return columns


@parameter_class
class EuclideanMotions(Sampled):
    """E(n): points (B, N, F) turned, mirrored and translated; `columns` of F are their two or three coordinates.

    An element is a matrix [R | t], (d, d + 1), with ρ[g]x = R x + t for every point x; `centred` turns about the centroid
    c of the points instead, ρ[g]x = R (x − c) + c + t. R is uniform: in O(d), in SO(d) without `reflections`, the identity
    without `rotations`. Translations have no uniform distribution: each coordinate of t is normal with the standard
    deviation `shift`, in units of the data, and a score is the mean over it.

    Maps of kind "vector", such as signed gradients, turn with the points; a translation does not change them. Those of
    kind "scalar" have one number for a point, the sum over its coordinates, and stay as they are. `positions` names the
    auxiliary tensor (B, N, d) that has the coordinates, where x has features that do not depend on them. Padding, as
    `aux["mask"]` tells it, is neither moved nor counted.

    >>> quarter = torch.tensor([[0.0, -1.0, 0.0, 5.0], [1.0, 0.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]])
    >>> points = Batch(("a",), torch.tensor([[[1.0, 0.0, 0.0], [3.0, 0.0, 0.0]]]))
    >>> EuclideanMotions().act(quarter, points).x.tolist()
    [[[5.0, 1.0, 0.0], [5.0, 3.0, 0.0]]]
    >>> EuclideanMotions(centred=True).act(quarter, points).x.tolist()
    [[[7.0, -1.0, 0.0], [7.0, 1.0, 0.0]]]
    """

    name: ClassVar[str] = "euclidean"
    exact: ClassVar[bool] = True
    rank: ClassVar[int] = 2
    shift: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 1.0
    rotations: bool = True
    reflections: bool = True
    centred: bool = False
    maps: Literal["vector", "scalar"] = "vector"
    columns: Annotated[tuple[Column, ...], AfterValidator(_check_columns)] = (0, 1, 2)
    positions: str | None = None

    @property
    def title(self) -> str:
        """The group in words."""
        d = len(self.columns)
        translations = f"translations with sd {self.shift:g}"
        if not self.rotations:
            return f"T({d}): {translations}"
        turns = "rotations and reflections" if self.reflections else "rotations"
        about = " about the centroid" if self.centred else ""
        return f"{'E' if self.reflections else 'SE'}({d}): {turns}{about}, {translations}"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that are not points (N, F) with the coordinates."""
        has_columns = self.positions is not None or len(shape) != 2 or shape[1] > max(self.columns)
        if len(shape) != 2 or not has_columns:
            raise UserError(
                f"euclidean needs points (B, N, F) with the columns {self.columns}, got shape {shape_text(shape)}; "
                "name the columns of the coordinates, or the auxiliary tensor that has them: positions: pos"
            )

    def check_inputs(self, batch: Batch) -> None:
        """Refuse samples without the auxiliary tensor that has the coordinates."""
        if self.positions is not None:
            self._coordinates(batch)

    def identity(self, batch: Batch) -> Tensor:
        """Return [I | 0], (d, d + 1)."""
        d = len(self.columns)
        return torch.eye(d, d + 1, dtype=torch.float64, device=batch.x.device)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return n motions for each sample, (n, B, d, d + 1)."""
        d = len(self.columns)
        draw = torch.arange(n)[:, None]
        keys = rand.fold(rand.keys(seed, batch.ids, f"group {self.name}"), draw).flatten()
        normal = rand.normal(keys, (d * d + d,)).double()
        turned = torch.eye(d, dtype=torch.float64).expand(len(keys), d, d)
        if self.rotations:
            turned = uniform_rotations(normal[:, : d * d].reshape(-1, d, d), self.reflections)
        translation = self.shift * normal[:, d * d :, None]
        motions = torch.cat([turned, translation], 2)
        return motions.reshape(n, len(batch), d, d + 1).to(batch.x.device)

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Return the motion gh, first h and then g: R = R_g R_h and t = t_g + R_g t_h.

        If points are turned about their own centroid, the translation of h is not turned: t = t_g + t_h.
        """
        turn_g, shift_g = _parts(g)
        turn_h, shift_h = _parts(h)
        shift = shift_h if self.centred else turn_g @ shift_h
        return torch.cat([turn_g @ turn_h, shift_g + shift], -1)

    def inverse(self, g: Tensor) -> Tensor:
        """Return g⁻¹."""
        turn, shift = _parts(g)
        back = -shift if self.centred else -turn.mT @ shift
        return torch.cat([turn.mT, back], -1)

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return samples whose points are rotated and translated by g = [R | t], one motion or one per sample.

        Points are rotated about the origin, or, if `centred`, about their centroid. Padding stays where it is, and so do
        all values of a sample that are no coordinates.
        """
        self.check(batch.x.shape[1:])
        coordinates = self._coordinates(batch)
        g = aligned(self.name, g, self.rank, len(batch), coordinates.device)
        turn, shift = _parts(g.double())
        is_real = self._is_real(batch, coordinates)
        points = coordinates.double()
        centre = torch.zeros_like(points[:, :1])
        if self.centred:
            count = is_real.sum(1, keepdim=True).clamp(min=1)
            centre = (points * is_real).sum(1, keepdim=True) / count
        moved = (points - centre) @ turn.mT + centre + shift.mT
        moved = torch.where(is_real, moved, points)
        return self._with_coordinates(batch, moved.to(coordinates.dtype))

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, N, F) of vectors turned with the points, and scalar ones unchanged."""
        if self.maps == "scalar" or self.positions is not None:
            return maps
        if maps.ndim != 3:
            raise UserError(
                f"euclidean turns vectors (B, N, F), got maps of {tuple(maps.shape)}; use maps: scalar"
            )
        turn, _ = _parts(aligned(self.name, g, self.rank, len(maps), maps.device))
        columns = list(self.columns)
        turned = maps.clone()
        turned[..., columns] = (maps[..., columns].double() @ turn.double().mT).to(maps.dtype)
        return turned

    def view(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return vector maps unchanged, and of scalar maps the sum over a point's coordinates, (B, N)."""
        if self.maps == "vector" or self.positions is not None or maps.ndim < 3:
            return maps
        return maps[..., list(self.columns)].sum(-1)

    def _coordinates(self, batch: Batch) -> Tensor:
        """Return the coordinates of the points, (B, N, d)."""
        if self.positions is None:
            return batch.x[..., list(self.columns)]
        d = len(self.columns)
        points = batch.aux.get(self.positions)
        if points is None or points.ndim != 3 or points.shape[2] != d:
            got = (
                "the batch has none"
                if points is None
                else f"it has shape {shape_text(points.shape[1:])}"
            )
            raise UserError(f"euclidean needs aux[{self.positions!r}] of shape (B, N, {d}); {got}")
        return points

    def _with_coordinates(self, batch: Batch, points: Tensor) -> Batch:
        """Return the samples with other coordinates of their points."""
        if self.positions is not None:
            return replace(batch, aux={**batch.aux, self.positions: points})
        x = batch.x.clone()
        x[..., list(self.columns)] = points
        return batch.with_x(x)

    def _is_real(self, batch: Batch, points: Tensor) -> Tensor:
        """Return which points are no padding, (B, N, 1)."""
        mask: Any = batch.aux.get("mask")
        if mask is None:
            return torch.ones_like(points[..., :1], dtype=torch.bool)
        return torch.as_tensor(mask, device=points.device).bool()[..., None]


def uniform_rotations(normal: Tensor, reflections: bool) -> Tensor:
    """Return random rotations (n, d, d), uniform by the Haar measure; with `reflections`, random orthogonal matrices.

    They are made from matrices (n, d, d) of normal numbers: the Q of their QR decomposition is uniform in O(d) if the
    diagonal of R is positive (Mezzadri 2007, How to generate random matrices from the classical compact groups, Notices
    AMS 54, 592). Mirroring one axis of those with the determinant −1 leaves uniform rotations.
    """
    q, r = torch.linalg.qr(normal)
    signs = r.diagonal(dim1=-2, dim2=-1).sign()
    orthogonal: Tensor = (
        q * signs[:, None, :]
    )  # the Q that belongs to an R with a positive diagonal
    if not reflections:
        determinant = torch.linalg.det(orthogonal)
        orthogonal[:, :, 0] *= determinant.sign()[:, None]
    return orthogonal


def _parts(g: Tensor) -> tuple[Tensor, Tensor]:
    """Return R (…, d, d) and t (…, d, 1) of elements [R | t]."""
    return g[..., :-1], g[..., -1:]

"""Circular shifts along one dimension or several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast import rand
from holdfast.axes.symmetry.groups.contract import ALONG, aligned, axis, draw_keys, listed, shape_text, take, take_along
from holdfast.errors import UserError
from holdfast.types import STRICT, Batch


@dataclass(frozen=True, config=STRICT)
class Cyclic:
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
    rank: ClassVar[int] = 0
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
        """n."""
        return batch.x.shape[axis(self.name, self.dim, batch.x.shape)]

    def identity(self, batch: Batch) -> Tensor:
        """The shift by 0, ()."""
        return torch.zeros((), dtype=torch.int64, device=batch.x.device)

    def elements(self, batch: Batch) -> Tensor:
        """0 … n − 1, (n,)."""
        return torch.arange(listed(self.name, self.order(batch)), device=batch.x.device)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Uniform shifts, (n, B)."""
        return rand.integers(draw_keys(seed, batch, self.name), (n,), self.order(batch)).T

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """g + h."""
        return g + h

    def inverse(self, g: Tensor) -> Tensor:
        """−g."""
        return -g

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """The samples shifted."""
        g = aligned(self.name, g, self.rank, len(batch), batch.x.device)
        dim = axis(self.name, self.dim, batch.x.shape)
        source = _source(g, batch.x.shape[dim])
        return replace(batch, x=take(batch.x, dim, source), aux=take_along(self.name, batch.aux, self.along, source))

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Maps (B, …) shifted alike."""
        g = aligned(self.name, g, self.rank, len(maps), maps.device)
        dim = axis(self.name, self.dim, maps.shape)
        return take(maps, dim, _source(g, maps.shape[dim]))


def _different(dims: tuple[int, ...]) -> tuple[int, ...]:
    if not dims or len(set(dims)) != len(dims):
        raise UserError(f"one or more different dimensions are needed, such as (-2, -1), got {dims}")
    return dims


@dataclass(frozen=True, config=STRICT)
class Torus:
    """ℤ/n₁ℤ × … × ℤ/n_kℤ by circular shifts along k dimensions; an element is (g₁, …, g_k).

    Auxiliary tensors stay as they are. Dimensions are counted as in `Cyclic`.

    >>> batch = Batch(("a",), torch.tensor([[[[1, 2], [3, 4]]]]))
    >>> Torus().act(torch.tensor([1, 0]), batch).x.tolist()
    [[[[3, 4], [1, 2]]]]
    """

    name: ClassVar[str] = "torus"
    exact: ClassVar[bool] = True
    rank: ClassVar[int] = 1
    dims: Annotated[tuple[int, ...], AfterValidator(_different)] = (-2, -1)

    @property
    def title(self) -> str:
        """The group in words."""
        return f"circular shifts along dimensions {', '.join(map(str, self.dims))}"

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape without the dimensions."""
        self._axes((1, *shape))

    def order(self, batch: Batch) -> int:
        """n₁ ⋯ n_k."""
        return math.prod(self._sizes(batch))

    def identity(self, batch: Batch) -> Tensor:
        """No shift, (k,)."""
        return torch.zeros(len(self.dims), dtype=torch.int64, device=batch.x.device)

    def elements(self, batch: Batch) -> Tensor:
        """All shifts, (|G|, k)."""
        listed(self.name, self.order(batch))
        sides = [torch.arange(size, device=batch.x.device) for size in self._sizes(batch)]
        return torch.stack([side.flatten() for side in torch.meshgrid(*sides, indexing="ij")], 1)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Uniform shifts, (n, B, k)."""
        key = draw_keys(seed, batch, self.name)
        shifts = [rand.integers(rand.fold(key, i), (n,), size).T for i, size in enumerate(self._sizes(batch))]
        return torch.stack(shifts, 2)

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """g + h."""
        return g + h

    def inverse(self, g: Tensor) -> Tensor:
        """−g."""
        return -g

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """The samples shifted."""
        return batch.with_x(self.move(g, batch.x))

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Maps (B, …) shifted alike."""
        g = aligned(self.name, g, self.rank, len(maps), maps.device)
        if g.shape[-1] != len(self.dims):
            raise UserError(f"torus: an element holds {len(self.dims)} shifts, got {g.shape[-1]}")
        for i, dim in enumerate(self._axes(maps.shape)):
            maps = take(maps, dim, _source(g[..., i], maps.shape[dim]))
        return maps

    def _axes(self, shape: Sequence[int]) -> list[int]:
        axes = [axis(self.name, dim, shape) for dim in self.dims]
        if len(set(axes)) != len(axes):
            raise UserError(f"torus: dims {self.dims} name a dimension of {shape_text(shape[1:])} twice")
        return axes

    def _sizes(self, batch: Batch) -> list[int]:
        return [batch.x.shape[dim] for dim in self._axes(batch.x.shape)]


def _source(g: Tensor, n: int) -> Tensor:
    """Where each position of a shifted tensor comes from, (n,) or (B, n)."""
    return (torch.arange(n, device=g.device) - g[..., None]) % n

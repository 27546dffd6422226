"""Shifts of padded images and series, of which no value wraps or is lost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator, Field
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.groups.contract import Additive, Moving, check_listable, draw_keys
from heatproof.axes.symmetry.groups.finite import Torus, check_dims
from heatproof.errors import UserError
from heatproof.types import Batch, parameter_class


@parameter_class
class PaddedShifts(Moving, Additive):
    """Shifts of padded samples by −most … most positions along each of k dimensions; an element is (g₁, …, g_k).

    They are those elements of the `Torus` that keep an object inside a frame of `most` empty positions, so that nothing
    wraps. They have inverses, but two of them may add up to a longer shift: a mean over them is one over the
    (2·most + 1)^k shifts that occur, and not over a group. Maps are compared without the positions that would wrap.

    A sample has no score if its outer `most` positions are not of one value, channel by channel.

    >>> batch = Batch(("a",), torch.tensor([[[0.0, 0.0, 7.0, 8.0, 0.0, 0.0]]]))
    >>> group = PaddedShifts(most=2, dims=(-1,))
    >>> group.elements(batch).flatten().tolist()
    [0, -2, -1, 1, 2]
    >>> group.act(torch.tensor([2]), batch).x.tolist()
    [[[0.0, 0.0, 0.0, 0.0, 7.0, 8.0]]]
    """

    name: ClassVar[str] = "padded_shift"
    exact: ClassVar[bool] = True
    rank: ClassVar[int] = 1
    keeps_size: ClassVar[bool] = True
    most: Annotated[int, Field(ge=1)] = 10
    dims: Annotated[tuple[int, ...], AfterValidator(check_dims)] = (-2, -1)

    @property
    def title(self) -> str:
        """The shifts in words."""
        return f"shifts of padded samples by up to {self.most} positions"

    @property
    def _torus(self) -> Torus:
        return Torus(dims=self.dims)

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape without the dimensions, and one that leaves no room for an object in the frame."""
        self._torus.check(shape)
        shortest = min(self._sizes(shape))
        if 2 * self.most >= shortest:
            raise UserError(
                f"padded_shift: a frame of {self.most} positions on either side leaves nothing of {shortest}; "
                f"the longest shift here is most: {(shortest - 1) // 2}"
            )

    def check_inputs(self, batch: Batch) -> None:
        """Refuse data of which no sample has an empty frame of `most` positions, and say which frame there is."""
        reasons = self.unfit(batch)
        if not all(reasons):
            return
        widest = max(self._frame_width(x) for x in batch.x)
        shorter = f", or choose most: {widest}" if widest else ""
        raise UserError(
            f"padded_shift: {reasons[0]} (sample {batch.ids[0]!r}); pad the data, in a study by `pad: {self.most}`{shorter}"
        )

    def unfit(self, batch: Batch) -> list[str]:
        """Return why a sample cannot be shifted without loss, empty where it can."""
        reasons = []
        for x in batch.x:
            fits = self._frame_width(x) >= self.most
            reasons.append("" if fits else f"the outer {self.most} positions are not empty")
        return reasons

    def order(self, batch: Batch) -> int:
        """Return (2·most + 1)^k, the number of shifts."""
        return math.prod([2 * self.most + 1] * len(self.dims))

    def identity(self, batch: Batch) -> Tensor:
        """Return the shift by nothing, (k,)."""
        return torch.zeros(len(self.dims), dtype=torch.int64, device=batch.x.device)

    def elements(self, batch: Batch) -> Tensor:
        """Return all shifts, ((2·most + 1)^k, k), that by nothing first."""
        check_listable(self.name, self.order(batch))
        one_side = [0, *(step for step in range(-self.most, self.most + 1) if step)]
        shifts = list(product(one_side, repeat=len(self.dims)))
        return torch.tensor(shifts, device=batch.x.device)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return uniform shifts, (n, B, k)."""
        key = draw_keys(seed, batch, self.name)
        shifts = []
        for i in range(len(self.dims)):
            drawn = rand.integers(rand.fold(key, i), (n,), 2 * self.most + 1)
            shifts.append(drawn.T - self.most)
        return torch.stack(shifts, 2)

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, …) shifted by g, circularly."""
        return self._torus.move(g, maps)

    def view(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, …) of inputs shifted by g, with 0 where a circular shift put values that wrapped around.

        g has one shift per dimension of `self.dims`, (k,) or (B, k). Wrapped positions cannot be compared with anything.
        """
        g = g.to(maps.device).expand(len(maps), -1)
        for i, dim in enumerate(self.dims):
            axis = dim % maps.ndim
            size = maps.shape[axis]
            # Where the value at each position was before the shift; outside of the map if it wrapped.
            source = torch.arange(size, device=maps.device) - g[:, i, None]
            is_inside = (source >= 0) & (source < size)
            shape = [1] * maps.ndim
            shape[0], shape[axis] = len(maps), size
            maps = torch.where(is_inside.reshape(shape), maps, 0)
        return maps

    def _sizes(self, shape: Sequence[int]) -> list[int]:
        """Return the lengths of the shifted dimensions of samples of a shape."""
        batched = (1, *shape)
        return [batched[dim] for dim in self.dims]

    def _frame_width(self, x: Tensor) -> int:
        """Return how wide the empty frame around the object in a sample (C, …) is.

        The frame has one value in every channel, that of the corner; everything else is the object. If there is no object,
        the frame is as wide as the sample.
        """
        # Dimensions are counted on a batch; a sample has none in front.
        axes = [dim % (x.ndim + 1) - 1 for dim in self.dims]
        corner = x
        for axis in axes:
            corner = corner.narrow(axis, 0, 1)
        is_object = x != corner
        widths = []
        for axis in axes:
            size = x.shape[axis]
            is_object_by_position = is_object.movedim(axis, 0).reshape(size, -1).any(1)
            occupied = is_object_by_position.nonzero().flatten()
            if not len(occupied):
                return size
            width_before, width_after = int(occupied[0]), size - 1 - int(occupied[-1])
            widths.append(min(width_before, width_after))
        return min(widths)

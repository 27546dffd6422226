"""A user's own group, from three functions, checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from dataclasses import replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.groups.contract import Numbered, aligned, probe
from heatproof.errors import UserError
from heatproof.types import Batch, parameter_class

_TRIED = 256
"""How many pairs of elements are checked with each other, all of them up to that number."""
_INVERTED = 16
_LARGEST = 4096
_CLOSE = 1e-4
_PROJECTIONS = 32


def _checked(members: Any) -> Sequence[Any]:
    n = len(members) if isinstance(members, Sized) else None
    if n is None or not 1 <= n <= _LARGEST:
        raise UserError(
            f"a list of 1 to {_LARGEST} elements is needed, got {repr(members) if n is None else n}"
        )
    return members  # type: ignore[no-any-return]


@parameter_class
class Own(Numbered):
    """A finite group given by how its elements act on inputs, how they move maps, and their list.

    `acting(element, batch)` returns the moved batch, or the moved x alone; `moving(element, maps)` returns maps (B, …)
    moved alike; both get one element and move all samples by it. `members` is the list of elements, identity first:
    a tensor (|G|, …), a sequence of anything, or a function of a batch, which may look at the shape of x only. For
    the bench an element is its place in that list, so elements here are numbers 0 … |G| − 1.

    Products and inverses are found by trying what `moving` does to a made-up map; `check` tries up to 256 pairs of
    elements, `check_inputs` and the first `act` on inputs of each shape do the same to samples. What is no group action
    is refused. `interpolating=True` (then `exact` is False) leaves the test of closure out, for it could only fail.

    >>> flip = Own(
    ...     acting=lambda g, batch: batch.x.flip(-1) if g else batch.x,
    ...     moving=lambda g, maps: maps.flip(-1) if g else maps,
    ...     members=[False, True],
    ... )
    >>> flip.act(torch.tensor([0, 1]), Batch(("a", "b"), torch.tensor([[1, 2], [3, 4]]))).x.tolist()
    [[1, 2], [4, 3]]
    >>> flip.inverse(torch.tensor(1)).tolist()
    1
    """

    name: ClassVar[str] = "own"
    acting: Callable[[Any, Batch], Any]
    moving: Callable[[Any, Tensor], Tensor]
    members: Annotated[
        Any, AfterValidator(lambda given: given if callable(given) else _checked(given))
    ]
    interpolating: bool = False
    title: str = "a group of your own"

    @property
    def exact(self) -> bool:
        """Whether the action does not interpolate."""
        return not self.interpolating

    def check(self, shape: Sequence[int]) -> None:
        """Try `moving` on a made-up map of a sample's shape: identity, closure and inverses of a few elements."""
        shape = tuple(shape)
        if shape in self._memo:
            return
        table = _Table(self, shape)
        table.check_a_few()
        self._memo[shape] = table

    def order(self, batch: Batch) -> int:
        """The length of the list."""
        return len(self._list(batch))

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """The element that moves maps like g after h."""
        table = self._table("compose")
        g, h = g + 0 * h, h + 0 * g
        products = [
            table.products(a, b)[0]
            for a, b in zip(g.flatten().tolist(), h.flatten().tolist(), strict=True)
        ]
        return torch.tensor(products, device=g.device).reshape(g.shape)

    def inverse(self, g: Tensor) -> Tensor:
        """The element that moves maps back."""
        return self._table("inverse").inverses.to(g.device)[g]

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """The samples moved, those with the same element in one call."""
        g = aligned(self.name, g, self.rank, len(batch), torch.device("cpu"))
        members = self._list(batch)
        self.check_inputs(batch)
        if g.ndim == 0:
            return self._acted(members, int(g), batch)
        x, aux = batch.x.clone(), {key: tensor.clone() for key, tensor in batch.aux.items()}
        for index in sorted(set(g.tolist())):
            rows = g.expand(len(batch)) == index
            part = self._acted(members, index, batch[rows])
            x[rows.to(x.device)] = part.x
            for key, tensor in aux.items():
                tensor[rows.to(tensor.device)] = part.aux[key]
        return replace(batch, x=x, aux=aux)

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Maps (B, …) moved alike."""
        g = aligned(self.name, g, self.rank, len(maps), torch.device("cpu"))
        members = self._members_for(maps)
        if g.ndim == 0:
            return self.moved(members, int(g), maps)
        out = maps.clone()
        for index in sorted(set(g.tolist())):
            rows = (g.expand(len(maps)) == index).to(maps.device)
            out[rows] = self.moved(members, index, maps[rows])
        return out

    def moved(self, members: Sequence[Any], index: int, maps: Tensor) -> Tensor:
        """`moving` for one element, with a check of what it returns."""
        out = self.moving(_member(members, index), maps)
        if not isinstance(out, Tensor) or out.shape != maps.shape:
            got = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
            raise UserError(f"own: move must return maps of shape {tuple(maps.shape)}, got {got}")
        return out

    def _acted(self, members: Sequence[Any], index: int, batch: Batch) -> Batch:
        out = self.acting(_member(members, index), batch)
        out = batch.with_x(out) if isinstance(out, Tensor) else out
        if (
            not isinstance(out, Batch)
            or out.x.shape != batch.x.shape
            or set(out.aux) != set(batch.aux)
        ):
            got = (
                f"x of shape {tuple(out.x.shape)}" if isinstance(out, Batch) else type(out).__name__
            )
            raise UserError(
                f"own: act must return a Batch like the given one, x {tuple(batch.x.shape)}; got {got}"
            )
        return out

    def check_inputs(self, batch: Batch) -> None:
        """The laws of `acting` on the first sample of this shape, with the products that `moving` has."""
        shape, members = tuple(batch.x.shape[1:]), self._list(batch)
        if shape in self._seen or not len(batch):
            return
        self.check(shape)
        one = batch[:1]
        if not _same(self._acted(members, 0, one), one):
            raise UserError(
                f"own: the first element, {members[0]!r}, must act as the identity but changes the input"
            )
        table = self._memo[shape]
        images = {k: self._acted(members, k, one) for k in table.tried}
        if len(images) > 1 and all(_same(image, one) for image in images.values()):
            raise UserError("own: act changes nothing of the input, whatever the element")
        two = batch[[0, 0]]  # the first, and beside it another that it must not touch
        two = two.with_x(torch.cat([one.x, one.x.flip(tuple(range(1, one.x.ndim)))]))
        for k, image in images.items():
            if not _same(self._acted(members, k, two)[:1], image):
                raise UserError(
                    f"own: act moves samples differently in company: {members[k]!r} on one and on two"
                )
        if self.exact:
            for g, h in table.pairs:
                if (
                    g < h
                    and _same(images[g], images[h])
                    and table.near(table.marks[g], table.marks[h])
                ):
                    raise UserError(
                        f"own: {members[g]!r} and {members[h]!r} are the same element; list each once"
                    )
                both = self._acted(members, g, images[h])
                products = table.products(g, h)
                images |= {k: self._acted(members, k, one) for k in products if k not in images}
                if not any(_same(images[k], both) for k in products):
                    raise UserError(
                        f"own: act is no group action, or not that of move: {members[g]!r} after {members[h]!r} is "
                        f"not what {' or '.join(repr(members[k]) for k in table.products(g, h))} does to the input"
                    )
        self._seen.add(shape)

    def _list(self, batch: Batch) -> Sequence[Any]:
        return _checked(self.members(batch)) if callable(self.members) else _checked(self.members)

    def _members_for(self, maps: Tensor) -> Sequence[Any]:
        """The list of elements for maps; where it depends on the input's shape, that must be known."""
        if not callable(self.members):
            return _checked(self.members)
        shape = tuple(maps.shape[1:])
        return self._memo[shape].members if shape in self._memo else self._table("move").members

    def _table(self, what: str) -> _Table:
        tables = list(self._memo.values())
        if not tables:
            raise UserError(
                f"own: {what} needs to know the shape of the inputs; call check(shape) first"
            )
        if callable(self.members) and len(tables) > 1:
            raise UserError(
                f"own: {what} is ambiguous, for the elements depend on the input and the group was used on inputs of "
                f"shapes {', '.join(map(str, self._memo))}; make one group for each"
            )
        return tables[-1]

    # What was found out by trying, by sample shape: a memo of pure functions, no part of the group's value.
    @cached_property
    def _memo(self) -> dict[tuple[int, ...], _Table]:
        return {}

    @cached_property
    def _seen(self) -> set[tuple[int, ...]]:
        return set()


class _Table:
    """What `moving` does to one made-up map, as a few random projections per element: enough to tell maps apart."""

    def __init__(self, group: Own, shape: tuple[int, ...]) -> None:
        self.group = group
        self.start = (
            probe(shape).x - 0.5
        )  # centred, so that what falls off the border counts for little
        self.members = group._list(probe(shape))
        key = rand.keys(0, [str(i) for i in range(_PROJECTIONS)], "own group")
        self.directions = rand.normal(key, (self.start.numel(),)).T.double()
        self.marks = torch.cat(
            [self.mark(self.moved(k, self.start)) for k in range(len(self.members))]
        )
        n = len(self.members)
        self.pairs = [(g, h) for g in range(n) for h in range(n)]
        if n * n > _TRIED:
            drawn = rand.integers(rand.keys(0, ["pairs"], "own group"), (_TRIED, 2), n)[0].tolist()
            self.pairs = [(min(pair), max(pair)) for pair in drawn]
        self.tried = sorted({g for pair in self.pairs for g in pair})

    def moved(self, index: int, maps: Tensor) -> Tensor:
        return self.group.moved(self.members, index, maps)

    def mark(self, maps: Tensor) -> Tensor:
        flat = maps.flatten(1).double()
        return torch.matmul(flat, self.directions) if self.group.exact else flat

    def check_a_few(self) -> None:
        if not self.near(self.marks[:1], self.mark(self.start)):
            raise UserError(
                f"own: the first element, {self.members[0]!r}, must be the identity but moves maps"
            )
        other = self.start.flip(tuple(range(1, self.start.ndim))).square() - 0.3
        both = torch.cat([self.start, other])
        for g in self.tried:
            alone = [self.moved(g, maps) for maps in (self.start, other)]
            if not _close(self.moved(g, both), torch.cat(alone)):
                raise UserError(
                    f"own: move mixes maps of different samples: {self.members[g]!r} on one map and on two"
                )
            if not _close(self.moved(g, self.start + other), alone[0] + alone[1]):
                raise UserError(
                    f"own: move is not linear, so maps cannot be averaged: {self.members[g]!r} of a sum"
                )
        if not self.group.exact:
            return
        for g, h in self.pairs:
            self.products(g, h)
        for g in self.tried[:_INVERTED]:
            self.inverse_of(torch.tensor([g]))

    def near(self, a: Tensor, b: Tensor) -> bool:
        return bool(self.gap(a, b).max() <= _CLOSE)

    def gap(self, a: Tensor, b: Tensor) -> Tensor:
        """How far apart maps are: the size of their difference, against that of the probe, as projections tell it.

        Interpolation blurs, so for it the whole maps are compared, by their angle.
        """
        if not self.group.exact:
            return 1 - torch.cosine_similarity(a, b, dim=-1)
        size = self.start.double().square().sum() * _PROJECTIONS
        return ((a - b).square().sum(-1) / size).sqrt()

    def products(self, g: int, h: int) -> list[int]:
        """The elements that move the map like g after h; several where the map cannot tell them apart."""
        gaps = self.gap(self.marks, self.mark(self.moved(g, self.moved(h, self.start))))
        if not self.group.exact:
            return [int(gaps.argmin())]
        alike: list[int] = (gaps <= _CLOSE).nonzero().flatten().tolist()
        if not alike:
            raise UserError(
                f"own: move is no group action: {self.members[g]!r} after {self.members[h]!r} is none of the "
                f"{len(self.members)} elements"
            )
        return alike

    @cached_property
    def inverses(self) -> Tensor:
        return torch.cat(
            [self.inverse_of(part) for part in torch.split(torch.arange(len(self.members)), 64)]
        )

    def inverse_of(self, indices: Tensor) -> Tensor:
        away = torch.cat([self.moved(g, self.start) for g in indices.tolist()])
        home = self.mark(self.start)
        gaps = torch.stack(
            [self.gap(self.mark(self.moved(k, away)), home) for k in range(len(self.members))]
        )
        best, nearest = gaps.min(0)
        if self.group.exact and bool((best > _CLOSE).any()):
            lost = int(indices[int((best > _CLOSE).nonzero()[0])])
            raise UserError(
                f"own: element {self.members[lost]!r} has no inverse among the {len(self.members)}"
            )
        return nearest


def _member(members: Sequence[Any], index: int) -> Any:
    if not 0 <= index < len(members):
        raise UserError(f"own: elements are numbered 0 to {len(members) - 1}, got {index}")
    return members[index]


def _same(a: Batch, b: Batch) -> bool:
    return _close(a.x, b.x) and all(_close(a.aux[key], b.aux[key]) for key in b.aux)


def _close(u: Tensor, v: Tensor) -> bool:
    return (
        torch.allclose(u, v, atol=1e-5, equal_nan=True)
        if u.is_floating_point()
        else torch.equal(u, v)
    )

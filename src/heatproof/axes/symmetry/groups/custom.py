"""A user's own group, from three functions, checked before it is used."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from pydantic import AfterValidator
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.groups.contract import Numbered, aligned, probe
from heatproof.errors import UserError
from heatproof.types import Batch, parameter_class

_MOST_PAIRS = 256
"""How many pairs of elements are checked with each other; all pairs where there are no more."""
_MOST_INVERSES = 16
"""For how many elements an inverse is looked for before the run."""
_MOST_ELEMENTS = 4096
"""The longest list of elements."""
_TOLERANCE = 1e-4
"""Maps that differ by less, relative to their size, are equal to rounding."""
_PROJECTIONS = 32
"""A map is told from others by so many random projections, which need less memory than the map."""


def _check_members(members: Any) -> Sequence[Any]:
    """Return the list of elements; refuse anything that is no list of a sensible length."""
    is_one_number = isinstance(members, np.ndarray | Tensor) and members.ndim == 0
    if not isinstance(members, Sized) or is_one_number:
        raise UserError(f"a list of 1 to {_MOST_ELEMENTS} elements is needed, got {members!r}")
    if not 1 <= len(members) <= _MOST_ELEMENTS:
        raise UserError(f"a list of 1 to {_MOST_ELEMENTS} elements is needed, got {len(members)}")
    return members  # type: ignore[return-value]


def _check_members_or_function(members: Any) -> Any:
    """Return the list of elements, or the function of a batch that returns it."""
    return members if callable(members) else _check_members(members)


@parameter_class
class Own(Numbered):
    """A finite group given by how its elements act on inputs, how they move maps, and their list.

    `acting(element, batch)` returns the moved batch, or the moved x alone; `moving(element, maps)` returns maps (B, …)
    moved alike; both get one element and move all samples by it. `members` is the list of elements, identity first:
    a tensor (|G|, …), a sequence of anything, or a function of a batch, which may look at the shape of x only. Elsewhere
    an element is its position in that list, a number 0 … |G| − 1.

    Products and inverses are found by trying what `moving` does to a made-up map: `check` tries up to 256 pairs of
    elements. `check_inputs`, and the first `act` on inputs of each shape, do the same with samples. What is no group
    action is refused. `interpolating=True` (then `exact` is False) skips the test of closure, which could only fail.

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
    members: Annotated[Any, AfterValidator(_check_members_or_function)]
    interpolating: bool = False
    title: str = "a group of your own"

    @property
    def exact(self) -> bool:
        """Whether the action does not interpolate."""
        return not self.interpolating

    def check(self, shape: Sequence[int]) -> None:
        """Try `moving` on a made-up map of a sample's shape: identity, closure and inverses of a few elements."""
        shape = tuple(shape)
        if shape in self._tables:
            return
        table = _Table(self, shape)
        table.check()
        self._tables[shape] = table

    def order(self, batch: Batch) -> int:
        """Return the length of the list."""
        return len(self._list(batch))

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Return the element gh, which moves maps like h and then g; elements are numbers, as tensors that broadcast."""
        table = self._tested_table("compose")
        g, h = g + 0 * h, h + 0 * g  # broadcast to the same shape
        products = []
        for first, second in zip(g.flatten().tolist(), h.flatten().tolist(), strict=True):
            products.append(table.products(first, second)[0])
        return torch.tensor(products, device=g.device).reshape(g.shape)

    def inverse(self, g: Tensor) -> Tensor:
        """Return the element that moves maps back."""
        table = self._tested_table("inverse")
        return table.inverses.to(g.device)[g]

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return the samples moved by g, the number of one element or one per sample (B,).

        The user's function moves all samples of a call by the same element, so it is called once per element.
        """
        g = aligned(self.name, g, self.rank, len(batch), torch.device("cpu"))
        members = self._list(batch)
        self.check_inputs(batch)
        if g.ndim == 0:
            return self._act_alike(members, int(g), batch)
        x = batch.x.clone()
        aux = {key: tensor.clone() for key, tensor in batch.aux.items()}
        for index in sorted(set(g.tolist())):
            rows = g.expand(len(batch)) == index
            moved = self._act_alike(members, index, batch[rows])
            x[rows.to(x.device)] = moved.x
            for key, tensor in aux.items():
                tensor[rows.to(tensor.device)] = moved.aux[key]
        return replace(batch, x=x, aux=aux)

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, …) moved by g, the number of one element or one per map (B,).

        The user's function moves all maps of a call by the same element, so it is called once per element.
        """
        g = aligned(self.name, g, self.rank, len(maps), torch.device("cpu"))
        members = self._members_of_maps(maps)
        if g.ndim == 0:
            return self.move_alike(members, int(g), maps)
        moved = maps.clone()
        for index in sorted(set(g.tolist())):
            rows = (g.expand(len(maps)) == index).to(maps.device)
            moved[rows] = self.move_alike(members, index, maps[rows])
        return moved

    def move_alike(self, members: Sequence[Any], index: int, maps: Tensor) -> Tensor:
        """Return maps moved by the element numbered `index`, by the user's function `moving`; check what it returns."""
        moved = self.moving(_member(members, index), maps)
        if not isinstance(moved, Tensor) or moved.shape != maps.shape:
            got = tuple(moved.shape) if isinstance(moved, Tensor) else type(moved).__name__
            raise UserError(f"own: move must return maps of shape {tuple(maps.shape)}, got {got}")
        return moved

    def _act_alike(self, members: Sequence[Any], index: int, batch: Batch) -> Batch:
        """Return samples moved by the element numbered `index`, by the user's function `acting`; check what it returns.

        It may return a batch or its x alone, and must keep the shape of x and the names of auxiliary tensors.
        """
        moved = self.acting(_member(members, index), batch)
        if isinstance(moved, Tensor):
            moved = batch.with_x(moved)
        got = ""
        if not isinstance(moved, Batch):
            got = type(moved).__name__
        elif moved.x.shape != batch.x.shape or set(moved.aux) != set(batch.aux):
            got = f"x of shape {tuple(moved.x.shape)}"
        if got:
            raise UserError(
                f"own: act must return a Batch like the given one, x {tuple(batch.x.shape)}; got {got}"
            )
        result: Batch = moved
        return result

    def check_inputs(self, batch: Batch) -> None:
        """Refuse a user's function on inputs (`acting`) that is no group action, by trying it on the first sample.

        It must leave inputs as they are for the identity, move something, move samples independently of the batch, and
        have the same products gh as the function on maps (`moving`). Each shape of samples is checked once.
        """
        shape = tuple(batch.x.shape[1:])
        if shape in self._checked_shapes or not len(batch):
            return
        self.check(shape)
        table, members, sample = self._tables[shape], self._list(batch), batch[:1]
        if not _same(self._act_alike(members, 0, sample), sample):
            raise UserError(
                f"own: the first element, {members[0]!r}, must act as the identity but changes the input"
            )
        images = {k: self._act_alike(members, k, sample) for k in table.elements_in_pairs}
        if len(images) > 1 and all(_same(image, sample) for image in images.values()):
            raise UserError("own: act changes nothing of the input, whatever the element")
        self._check_independence(members, batch, images)
        if self.exact:
            self._check_products(table, members, sample, images)
        self._checked_shapes.add(shape)

    def _check_independence(
        self, members: Sequence[Any], batch: Batch, images: Mapping[int, Batch]
    ) -> None:
        """Refuse an action that gives a sample a different result depending on the rest of the batch."""
        # Move the first sample together with a mirrored copy; `images` has the first sample moved alone, by element.
        x = batch.x[:1]
        mirrored = x.flip(tuple(range(1, x.ndim)))
        pair = batch[[0, 0]].with_x(torch.cat([x, mirrored]))
        for k, image in images.items():
            first_of_pair = self._act_alike(members, k, pair)[:1]
            if not _same(first_of_pair, image):
                raise UserError(
                    "own: act gives a sample a different result depending on the rest of the batch: "
                    f"{members[k]!r} on one sample and on two"
                )

    def _check_products(
        self, table: _Table, members: Sequence[Any], sample: Batch, images: dict[int, Batch]
    ) -> None:
        """Refuse elements that are listed twice, and pairs of elements whose product on inputs is not that on maps.

        The product gh moves like h and then g. Which element that is on maps is read from `table`; the same element must
        do to the `sample` what h and then g do. `images` has the sample moved by each element, and more are added.
        """
        for g, h in table.pairs:
            same_on_maps = table.are_equal(table.signatures[g], table.signatures[h])
            same_on_inputs = _same(images[g], images[h])
            if g < h and same_on_maps and same_on_inputs:
                raise UserError(
                    f"own: {members[g]!r} and {members[h]!r} are the same element; list each once"
                )
            g_after_h = self._act_alike(members, g, images[h])
            products = table.products(g, h)
            for k in products:
                if k not in images:
                    images[k] = self._act_alike(members, k, sample)
            if not any(_same(images[k], g_after_h) for k in products):
                expected = " or ".join(repr(members[k]) for k in products)
                raise UserError(
                    f"own: act is no group action, or not that of move: {members[g]!r} after {members[h]!r} is "
                    f"not what {expected} does to the input"
                )

    def _list(self, batch: Batch) -> Sequence[Any]:
        """Return the list of the group's elements for samples of this shape; the user gives it, or a function of a batch."""
        members = self.members(batch) if callable(self.members) else self.members
        return _check_members(members)

    def _members_of_maps(self, maps: Tensor) -> Sequence[Any]:
        """Return the list of the group's elements that can move explanation maps (B, …).

        The user gives a list, or a function that returns the list for a batch of *inputs*, since it may depend on their
        shape. Then the list is that of inputs shaped like the maps, if such inputs were checked before. Else it is that
        of the only shape of inputs checked before: maps may lack the channels of their inputs.
        """
        if not callable(self.members):
            return _check_members(self.members)
        shape = tuple(maps.shape[1:])
        if shape in self._tables:
            return self._tables[shape].members
        table = self._tested_table("move")
        return table.members

    def _tested_table(self, operation: str) -> _Table:
        """Return what `check` found out about the group, such as its products, for an `operation` that needs it.

        That is done for every shape of inputs. Refuse the operation if no shape was checked yet, or if the elements
        depend on the shape and several were checked, so that it is not clear which is meant.
        """
        tables = list(self._tables.values())
        if not tables:
            raise UserError(
                f"own: {operation} needs to know the shape of the inputs; call check(shape) first"
            )
        if callable(self.members) and len(tables) > 1:
            raise UserError(
                f"own: {operation} is ambiguous, for the elements depend on the input and the group was used on inputs "
                f"of shapes {', '.join(map(str, self._tables))}; make one group for each"
            )
        return tables[-1]

    # What was found out by trying, by sample shape: a memo of pure functions, no part of the group's value.
    @cached_property
    def _tables(self) -> dict[tuple[int, ...], _Table]:
        return {}

    @cached_property
    def _checked_shapes(self) -> set[tuple[int, ...]]:
        return set()


class _Table:
    """What each element of a group does to one test map, from which products and inverses are read.

    The user gives no multiplication table. It is found by trial: gh is the element that moves the test map like g after
    h. So that |G| moved maps need not be kept and compared whole, each has a *signature*, a few random projections.

    test_map            (1, …) a made-up map without any symmetry of its own
    signatures          (|G|, _PROJECTIONS) the signature of the test map moved by each element; for a group that
                        interpolates, (|G|, values of the map), the moved maps themselves
    pairs               the pairs (g, h) of elements that are checked
    elements_in_pairs   the elements that occur in these pairs
    """

    def __init__(self, group: Own, shape: tuple[int, ...]) -> None:
        self.group = group
        # Centred, so that what falls off the border counts for little.
        self.test_map = probe(shape).x - 0.5
        self.members = group._list(probe(shape))
        key = rand.keys(0, [str(i) for i in range(_PROJECTIONS)], "own group")
        self.projection = rand.normal(key, (self.test_map.numel(),)).T.double()
        n = len(self.members)
        moved_maps = [self.move(k, self.test_map) for k in range(n)]
        self.signatures = torch.cat([self.signature(maps) for maps in moved_maps])
        self.pairs = _pairs_to_check(n)
        in_pairs: set[int] = set()
        for pair in self.pairs:
            in_pairs.update(pair)
        self.elements_in_pairs = sorted(in_pairs)

    def move(self, index: int, maps: Tensor) -> Tensor:
        """Return maps moved by one element."""
        return self.group.move_alike(self.members, index, maps)

    def signature(self, maps: Tensor) -> Tensor:
        """Return what maps are told apart by: random projections, or the whole maps of a group that interpolates."""
        flat = maps.flatten(1).double()
        return torch.matmul(flat, self.projection) if self.group.exact else flat

    def check(self) -> None:
        """Refuse a user's function on maps that is no group action: it must be linear and have an identity.

        For a group that does not interpolate, products and inverses of some elements must be in the list as well.
        """
        if not self.are_equal(self.signatures[:1], self.signature(self.test_map)):
            raise UserError(
                f"own: the first element, {self.members[0]!r}, must be the identity but moves maps"
            )
        self._check_linearity()
        if not self.group.exact:
            return
        for g, h in self.pairs:
            self.products(g, h)
        for g in self.elements_in_pairs[:_MOST_INVERSES]:
            self.inverse_of(torch.tensor([g]))

    def _check_linearity(self) -> None:
        """Refuse a user's function on maps that mixes the maps of a batch, or that is not additive."""
        # Any second map will do that is neither a multiple of the first nor a moved copy of it.
        second_map = self.test_map.flip(tuple(range(1, self.test_map.ndim))).square() - 0.3
        both_maps = torch.cat([self.test_map, second_map])
        for g in self.elements_in_pairs:
            moved_first, moved_second = self.move(g, self.test_map), self.move(g, second_map)
            if not _close(self.move(g, both_maps), torch.cat([moved_first, moved_second])):
                raise UserError(
                    f"own: move mixes maps of different samples: {self.members[g]!r} on one map and on two"
                )
            if not _close(self.move(g, self.test_map + second_map), moved_first + moved_second):
                raise UserError(
                    f"own: move is not linear, so maps cannot be averaged: {self.members[g]!r} of a sum"
                )

    def are_equal(self, a: Tensor, b: Tensor) -> bool:
        """Whether two maps, given by their signatures, are equal to rounding."""
        return bool(self.distance(a, b).max() <= _TOLERANCE)

    def distance(self, a: Tensor, b: Tensor) -> Tensor:
        """Return how far two moved test maps are apart, ‖a − b‖ relative to the norm of a map, from their signatures.

        Signatures are projections on random directions, which preserve distances about (Johnson and Lindenstrauss 1984).
        For a group that interpolates, and so blurs, they are the maps themselves, and the distance is 1 − cosine.
        """
        if not self.group.exact:
            return 1 - torch.cosine_similarity(a, b, dim=-1)
        # A projection of a map z on a standard normal direction has the mean square ‖z‖².
        square_norm = self.test_map.double().square().sum()
        square_distance = (a - b).square().sum(-1)
        return (square_distance / (square_norm * _PROJECTIONS)).sqrt()

    def products(self, g: int, h: int) -> list[int]:
        """Return the numbers of the elements that move the test map like h and then g: the product gh.

        They are several if the test map looks the same under them. Refuse a pair without a product in the list. For a
        group that interpolates, the nearest element is returned: two interpolations blur more than one, so none is equal.
        """
        g_after_h = self.move(g, self.move(h, self.test_map))
        distances = self.distance(self.signatures, self.signature(g_after_h))
        if not self.group.exact:
            return [int(distances.argmin())]
        equal: list[int] = (distances <= _TOLERANCE).nonzero().flatten().tolist()
        if not equal:
            raise UserError(
                f"own: move is no group action: {self.members[g]!r} after {self.members[h]!r} is none of the "
                f"{len(self.members)} elements"
            )
        return equal

    @cached_property
    def inverses(self) -> Tensor:
        """The inverse of every element, (|G|,)."""
        numbers = torch.arange(len(self.members))
        return torch.cat([self.inverse_of(chunk) for chunk in torch.split(numbers, 64)])

    def inverse_of(self, indices: Tensor) -> Tensor:
        """Return the numbers of the inverses of some elements, (k,): those that move the moved test map back best.

        Refuse a group that does not interpolate if an element has no inverse in the list.
        """
        moved = torch.cat([self.move(g, self.test_map) for g in indices.tolist()])
        unmoved = self.signature(self.test_map)
        distances = []
        for k in range(len(self.members)):
            moved_back = self.signature(self.move(k, moved))
            distances.append(self.distance(moved_back, unmoved))
        smallest, nearest = torch.stack(distances).min(0)
        has_no_inverse = smallest > _TOLERANCE
        if self.group.exact and bool(has_no_inverse.any()):
            index = int(indices[int(has_no_inverse.nonzero()[0])])
            raise UserError(
                f"own: element {self.members[index]!r} has no inverse among the {len(self.members)}"
            )
        return nearest


def _pairs_to_check(n: int) -> list[tuple[int, int]]:
    """Return the pairs (g, h) of n group elements whose product is checked: all, or `_MOST_PAIRS` random ones."""
    if n * n <= _MOST_PAIRS:
        return [(g, h) for g, h in product(range(n), repeat=2)]
    key = rand.keys(0, ["pairs"], "own group")
    random_pairs = rand.integers(key, (_MOST_PAIRS, 2), n)[0].tolist()
    # In ascending order, because whether an element is listed twice is only looked at where g < h.
    return [(min(pair), max(pair)) for pair in random_pairs]


def _member(members: Sequence[Any], index: int) -> Any:
    """Return an element by its number."""
    if not 0 <= index < len(members):
        raise UserError(f"own: elements are numbered 0 to {len(members) - 1}, got {index}")
    return members[index]


def _same(a: Batch, b: Batch) -> bool:
    """Whether two batches hold the same samples, to rounding."""
    return _close(a.x, b.x) and all(_close(a.aux[key], b.aux[key]) for key in b.aux)


def _close(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal, floating-point ones to rounding."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    return torch.allclose(a, b, atol=1e-5, equal_nan=True)

"""Direct products of groups whose actions commute."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Annotated, Any, ClassVar

import torch
from pydantic import AfterValidator
from torch import Tensor

from heatproof import rand
from heatproof.axes.symmetry.groups.contract import (
    Group,
    aligned,
    check_inputs,
    listed,
    orders,
    probe,
)
from heatproof.errors import UserError
from heatproof.types import Batch, parameter_class

_TRIED = 8
"""How many elements of each factor are tried for commutation."""


def _built(factors: tuple[Any, ...]) -> tuple[Group, ...]:
    from heatproof.axes.symmetry.groups import build

    if not factors:
        raise UserError("at least one factor is needed, such as product(cyclic(-2), cyclic(-1))")
    groups = tuple(build(factor) for factor in factors)
    for group in groups:
        if group.rank > 1:
            raise UserError(
                f"a factor's elements must be numbers or vectors; those of {group.name} are not"
            )
    return groups


@parameter_class
class Product:
    """G₁ × … × G_k acting by all factors in turn: ρ[(g₁, …, g_k)] = ρ₁[g₁] ⋯ ρ_k[g_k].

    This is an action only if elements of different factors commute, as shifts along two dimensions or a permutation of
    channels and a rotation do; `check` tries it and refuses others, such as shifts and rotations of one image.

    An element is one vector: the lengths of the k parts, then the parts.

    >>> from heatproof.axes.symmetry.groups import Cyclic
    >>> both = Product((Cyclic(-2), Cyclic(-1)))
    >>> batch = Batch(("a",), torch.tensor([[[[1, 2], [3, 4]]]]))
    >>> both.order(batch), both.elements(batch)[3].tolist()
    (4, [1, 1, 1, 1])
    >>> both.act(both.elements(batch)[3], batch).x.tolist()
    [[[[4, 3], [2, 1]]]]
    """

    name: ClassVar[str] = "product"
    rank: ClassVar[int] = 1
    factors: Annotated[tuple[Any, ...], AfterValidator(_built)]

    @property
    def exact(self) -> bool:
        """Whether no factor interpolates."""
        return all(factor.exact for factor in self.factors)

    @property
    def title(self) -> str:
        """The group in words."""
        return " × ".join(f"({factor.title})" for factor in self.factors)

    def check(self, shape: Sequence[int]) -> None:
        """Refuse a sample shape that a factor refuses, and factors that do not commute on it."""
        for factor in self.factors:
            factor.check(shape)
        self._check_commuting(
            probe(shape), lambda factor, g, sample: sample.with_x(factor.move(g, sample.x))
        )

    def check_inputs(self, batch: Batch) -> None:
        """Refuse factors that are no action on these samples, or that do not commute on the first of them."""
        for factor in self.factors:
            check_inputs(factor, batch)
        self._check_commuting(batch[:1], lambda factor, g, sample: factor.act(g, sample))

    def _check_commuting(self, one: Batch, moved: Callable[[Group, Tensor, Batch], Batch]) -> None:
        for first, second in combinations(self.factors, 2):
            for g, h in product(_a_few(first, one), _a_few(second, one)):
                a, b = (
                    moved(first, g, moved(second, h, one)),
                    moved(second, h, moved(first, g, one)),
                )
                same = [bool(torch.isclose(a.x.double(), b.x.double(), atol=1e-5).all())]
                same += [torch.equal(a.aux[key], b.aux[key]) for key in a.aux]
                if not all(same):
                    raise UserError(
                        f"{first.name} and {second.name} do not commute, so their product is not a group action: "
                        f"element {g.tolist()} of the one after {h.tolist()} of the other differs from the reverse"
                    )

    def order(self, batch: Batch) -> float:
        """|G₁| ⋯ |G_k|, of the sample with the largest."""
        return max(self.orders(batch), default=1)

    def orders(self, batch: Batch) -> list[float]:
        """|G₁| ⋯ |G_k| for each sample."""
        return [
            math.prod(each)
            for each in zip(*(orders(factor, batch) for factor in self.factors), strict=True)
        ]

    def identity(self, batch: Batch) -> Tensor:
        """The identities of all factors, one vector."""
        return _join([(factor.identity(batch), factor.rank) for factor in self.factors])

    def elements(self, batch: Batch) -> Tensor:
        """All combinations, (|G|, k + lengths)."""
        listed(self.name, self.order(batch))
        parts = [factor.elements(batch) for factor in self.factors]
        rows = torch.meshgrid(
            *(torch.arange(len(p), device=p.device) for p in parts), indexing="ij"
        )
        chosen = [part[row.flatten()] for part, row in zip(parts, rows, strict=True)]
        return _join(
            [(part, factor.rank) for part, factor in zip(chosen, self.factors, strict=True)]
        )

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Independent uniform elements of all factors, (n, B, k + lengths)."""
        seeds = rand.keys(
            seed, [str(i) for i in range(len(self.factors))], "group product"
        ).tolist()
        drawn = [factor.sample(batch, n, s) for factor, s in zip(self.factors, seeds, strict=True)]
        return _join(
            [(part, factor.rank) for part, factor in zip(drawn, self.factors, strict=True)]
        )

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Part by part."""
        pairs = zip(self.factors, self._parts(g), self._parts(h), strict=True)
        return _join([(factor.compose(a, b), factor.rank) for factor, a, b in pairs])

    def inverse(self, g: Tensor) -> Tensor:
        """Part by part."""
        return _join(
            [
                (f.inverse(part), f.rank)
                for f, part in zip(self.factors, self._parts(g), strict=True)
            ]
        )

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """The samples moved by every factor."""
        parts = self._parts(aligned(self.name, g, self.rank, len(batch), batch.x.device))
        for factor, part in zip(self.factors, parts, strict=True):
            batch = factor.act(part, batch)
        return batch

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Maps (B, …) moved by every factor."""
        parts = self._parts(aligned(self.name, g, self.rank, len(maps), maps.device))
        for factor, part in zip(self.factors, parts, strict=True):
            maps = factor.move(part, maps)
        return maps

    def _parts(self, g: Tensor) -> list[Tensor]:
        k = len(self.factors)
        lengths = g.reshape(-1, g.shape[-1])[0, :k].tolist()
        if len(lengths) != k or k + sum(lengths) != g.shape[-1]:
            raise UserError(
                f"product: {g.tolist()} is no element of a product of {k} groups; use elements or sample"
            )
        parts = torch.split_with_sizes(g[..., k:], lengths, -1)
        return [
            part if f.rank else part[..., 0] for f, part in zip(self.factors, parts, strict=True)
        ]


def _join(parts: list[tuple[Tensor, int]]) -> Tensor:
    vectors = [part if rank else part[..., None] for part, rank in parts]
    shape = vectors[0].shape[:-1]
    lengths = torch.tensor([v.shape[-1] for v in vectors], device=vectors[0].device)
    return torch.cat([lengths.expand(*shape, -1), *vectors], -1)


def _a_few(factor: Group, batch: Batch) -> Tensor:
    """All elements of a small group, else a few draws."""
    if factor.order(batch) <= _TRIED:
        return factor.elements(batch)
    return factor.sample(batch, _TRIED, seed=0)[:, 0]

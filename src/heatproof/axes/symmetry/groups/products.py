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
    check_listable,
    orders,
    probe,
)
from heatproof.errors import UserError
from heatproof.types import Batch, parameter_class

_TRIED = 8
"""How many elements of each factor are tried for commutation."""


def _build_factors(factors: tuple[Any, ...]) -> tuple[Group, ...]:
    """Return the groups that a study file names; their elements must be numbers or vectors."""
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
    factors: Annotated[tuple[Any, ...], AfterValidator(_build_factors)]

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

        def move(factor: Group, g: Tensor, sample: Batch) -> Batch:
            return sample.with_x(factor.move(g, sample.x))

        self._check_commuting(probe(shape), move)

    def check_inputs(self, batch: Batch) -> None:
        """Refuse factors that are no action on these samples, or that do not commute on the first of them."""
        for factor in self.factors:
            check_inputs(factor, batch)

        def act(factor: Group, g: Tensor, sample: Batch) -> Batch:
            return factor.act(g, sample)

        self._check_commuting(batch[:1], act)

    def _check_commuting(
        self, sample: Batch, moved: Callable[[Group, Tensor, Batch], Batch]
    ) -> None:
        """Refuse factors that do not commute, tried on a sample: g after h must be h after g, for their elements g and h.

        `moved(factor, g, sample)` returns the sample moved by an element of a factor.
        """
        for first, second in combinations(self.factors, 2):
            for g, h in product(_some_elements(first, sample), _some_elements(second, sample)):
                g_after_h = moved(first, g, moved(second, h, sample))
                h_after_g = moved(second, h, moved(first, g, sample))
                x, y = g_after_h.x.double(), h_after_g.x.double()
                commutes = bool(torch.isclose(x, y, atol=1e-5).all())
                for key, tensor in g_after_h.aux.items():
                    commutes = commutes and torch.equal(tensor, h_after_g.aux[key])
                if not commutes:
                    raise UserError(
                        f"{first.name} and {second.name} do not commute, so their product is not a group action: "
                        f"element {g.tolist()} of the one after {h.tolist()} of the other differs from the reverse"
                    )

    def order(self, batch: Batch) -> float:
        """Return |G₁| ⋯ |G_k|, of the sample with the largest."""
        return max(self.orders(batch), default=1)

    def orders(self, batch: Batch) -> list[float]:
        """Return |G₁| ⋯ |G_k| for each sample."""
        of_factors = [orders(factor, batch) for factor in self.factors]
        return [math.prod(of_sample) for of_sample in zip(*of_factors, strict=True)]

    def identity(self, batch: Batch) -> Tensor:
        """Return the identities of all factors as one vector."""
        return self._joined([factor.identity(batch) for factor in self.factors])

    def elements(self, batch: Batch) -> Tensor:
        """Return all combinations, (|G|, k + lengths)."""
        check_listable(self.name, self.order(batch))
        of_factors = [factor.elements(batch) for factor in self.factors]
        numbers = [torch.arange(len(elements), device=elements.device) for elements in of_factors]
        combined = torch.meshgrid(*numbers, indexing="ij")
        parts = [
            elements[number.flatten()]
            for elements, number in zip(of_factors, combined, strict=True)
        ]
        return self._joined(parts)

    def sample(self, batch: Batch, n: int, seed: int) -> Tensor:
        """Return independent uniform elements of all factors, (n, B, k + lengths)."""
        names = [str(i) for i in range(len(self.factors))]
        seeds = rand.keys(seed, names, "group product").tolist()
        parts = [
            factor.sample(batch, n, factor_seed)
            for factor, factor_seed in zip(self.factors, seeds, strict=True)
        ]
        return self._joined(parts)

    def compose(self, g: Tensor, h: Tensor) -> Tensor:
        """Return gh, part by part."""
        pairs = zip(self.factors, self._parts(g), self._parts(h), strict=True)
        return self._joined([factor.compose(a, b) for factor, a, b in pairs])

    def inverse(self, g: Tensor) -> Tensor:
        """Return g⁻¹, part by part."""
        pairs = zip(self.factors, self._parts(g), strict=True)
        return self._joined([factor.inverse(part) for factor, part in pairs])

    def act(self, g: Tensor, batch: Batch) -> Batch:
        """Return the samples moved by every factor."""
        parts = self._parts(aligned(self.name, g, self.rank, len(batch), batch.x.device))
        for factor, part in zip(self.factors, parts, strict=True):
            batch = factor.act(part, batch)
        return batch

    def move(self, g: Tensor, maps: Tensor) -> Tensor:
        """Return maps (B, …) moved by every factor."""
        parts = self._parts(aligned(self.name, g, self.rank, len(maps), maps.device))
        for factor, part in zip(self.factors, parts, strict=True):
            maps = factor.move(part, maps)
        return maps

    def _parts(self, g: Tensor) -> list[Tensor]:
        """Return the elements of all k factors that one element of the product, a vector, consists of.

        The vector begins with the k lengths of the parts; then come the parts.
        """
        k = len(self.factors)
        lengths = g.reshape(-1, g.shape[-1])[0, :k].tolist()
        if len(lengths) != k or k + sum(lengths) != g.shape[-1]:
            raise UserError(
                f"product: {g.tolist()} is no element of a product of {k} groups; use elements or sample"
            )
        vectors = torch.split_with_sizes(g[..., k:], lengths, -1)
        return [
            vector if factor.rank else vector[..., 0]
            for factor, vector in zip(self.factors, vectors, strict=True)
        ]

    def _joined(self, parts: list[Tensor]) -> Tensor:
        """Return one element of the product from the elements of all factors: their k lengths, then the elements.

        An element of a factor is a number or a vector; a number becomes a vector of length 1.
        """
        vectors = [
            part if factor.rank else part[..., None]
            for factor, part in zip(self.factors, parts, strict=True)
        ]
        lengths = torch.tensor([vector.shape[-1] for vector in vectors], device=vectors[0].device)
        shape = vectors[0].shape[:-1]
        return torch.cat([lengths.expand(*shape, -1), *vectors], -1)


def _some_elements(factor: Group, batch: Batch) -> Tensor:
    """Return all elements of a small group, else a few draws."""
    if factor.order(batch) <= _TRIED:
        return factor.elements(batch)
    return factor.sample(batch, _TRIED, seed=0)[:, 0]

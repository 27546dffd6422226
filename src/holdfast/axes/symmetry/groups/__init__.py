"""Symmetry groups, by the name that a study file uses: elements are tensors, acting on inputs and moving maps.

`group.act(g, batch)` moves inputs, `group.move(g, maps)` moves feature maps alike; see `Group` for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch import Tensor

from holdfast.axes.symmetry.groups.continuous import Rotations, Scalings, SpaceRotations
from holdfast.axes.symmetry.groups.contract import Group, plan_elements
from holdfast.axes.symmetry.groups.custom import Own
from holdfast.axes.symmetry.groups.finite import Cyclic, Dihedral, Octahedral, Torus
from holdfast.axes.symmetry.groups.permutations import NodePermutation, PassagePermutation, Permutation
from holdfast.axes.symmetry.groups.products import Product
from holdfast.errors import BadParameter, make, resolve
from holdfast.types import Batch

_ORDERS: tuple[Any, ...] = (Permutation, PassagePermutation, NodePermutation)
_FINITE: tuple[Any, ...] = (Cyclic, Torus, Dihedral, Octahedral, *_ORDERS, Product, Own)
_CONTINUOUS: tuple[Any, ...] = (Rotations, Scalings, SpaceRotations)
GROUPS: dict[str, Any] = {kind.name: kind for kind in (*_FINITE, *_CONTINUOUS)}

__all__ = ["GROUPS", "Cyclic", "Dihedral", "Group", "NodePermutation", "Octahedral", "Own", "PassagePermutation"]
__all__ += ["Permutation", "Product", "Torus", "build", "cyclic", "dihedral", "node_permutation", "own", "permutation"]
__all__ += ["Rotations", "Scalings", "SpaceRotations", "plan_elements", "product", "scale", "so2", "so3", "torus"]


def cyclic(dim: int = -1) -> Cyclic:
    """Circular shifts along one dimension; see `Cyclic`.

    >>> cyclic().act(torch.tensor(1), Batch(("a",), torch.tensor([[1, 2, 3]]))).x.tolist()
    [[3, 1, 2]]
    """
    return cast(Cyclic, make(Cyclic, "cyclic", {"dim": dim}))


def torus(dims: Sequence[int] = (-2, -1)) -> Torus:
    """Circular shifts along several dimensions; see `Torus`.

    >>> torus((-2, -1)).order(Batch(("a",), torch.rand(1, 3, 4, 5)))
    20
    """
    return cast(Torus, make(Torus, "torus", {"dims": dims}))


def dihedral(n: int = 4) -> Dihedral:
    """Rotations by multiples of 360°/n and reflections, n = 1, 2, 4 or 8 (approximate); see `Dihedral`.

    >>> dihedral(4).exact, dihedral(8).exact
    (True, False)
    """
    return cast(Dihedral, make(Dihedral, "dihedral", {"n": n}))


def permutation(dim: int = 1, special: Sequence[int] = ()) -> Permutation:
    """Permutations of set elements or tokens, padding and `special` token ids left in place; see `Permutation`.

    >>> permutation(1).order(Batch(("a",), torch.rand(1, 5, 2)))
    120
    """
    return cast(Permutation, make(Permutation, "permutation", {"dim": dim, "special": special}))


def node_permutation() -> NodePermutation:
    """Permutations of graph nodes, edges and mask together; see `NodePermutation`.

    >>> node_permutation().inverse(torch.tensor([1, 2, 0])).tolist()
    [2, 0, 1]
    """
    return NodePermutation()


def so2() -> Rotations:
    """Rotations of images by any angle, interpolating; see `Rotations`.

    >>> so2().exact
    False
    """
    return Rotations()


def scale(most: float = 1.25) -> Scalings:
    """Images larger or smaller by a factor of at most `most`, interpolating; see `Scalings`.

    >>> scale(2).inverse(torch.tensor(0.5)).tolist()
    -0.5
    """
    return cast(Scalings, make(Scalings, "scale", {"most": most}))


def so3(maps: str = "vector", columns: Sequence[int] = (0, 1, 2)) -> SpaceRotations:
    """Rotations of points in space, with maps of vectors or of one number for each point; see `SpaceRotations`.

    >>> so3("scalar").title
    'SO(3): rotations of points in space, scalar maps'
    """
    return cast(SpaceRotations, make(SpaceRotations, "so3", {"maps": maps, "columns": columns}))


def product(*factors: Any) -> Product:
    """The direct product of groups that commute; see `Product`.

    >>> product(cyclic(-1), dihedral(1)).check((1, 4, 4))
    Traceback (most recent call last):
    holdfast.errors.UserError: cyclic and dihedral do not commute, so their product is not a group action: ...
    """
    return cast(Product, make(Product, "product", {"factors": factors}))


def own(
    act: Callable[[Any, Batch], Any],
    move: Callable[[Any, Tensor], Tensor],
    elements: Sequence[Any] | Tensor | Callable[[Batch], Any],
    *,
    interpolating: bool = False,
    title: str = "a group of your own",
) -> Own:
    """Your own group from three functions: how an element acts, how it moves maps, and the list; see `Own`.

    >>> sign = own(lambda g, batch: g * batch.x, lambda g, maps: g * maps, [1, -1], title="change of sign")
    >>> sign.check((3,))
    >>> own(lambda g, batch: g * batch.x, lambda g, maps: g * maps, [1, 2]).check((3,))
    Traceback (most recent call last):
    holdfast.errors.UserError: own: move is no group action: 2 after 2 is none of the 2 elements
    """
    fields = {"acting": act, "moving": move, "members": elements, "interpolating": interpolating, "title": title}
    return cast(Own, make(Own, "own", fields))


def build(spec: Any) -> Group:
    """A group from its name, a mapping {name: parameters}, or the group itself.

    >>> build({"dihedral": {"n": 4}})
    Dihedral(n=4)
    >>> build("cyclick")
    Traceback (most recent call last):
    holdfast.errors.BadParameter: unknown group 'cyclick'; did you mean 'cyclic'? Allowed: ...
    """
    functions = spec[Own.name] if isinstance(spec, Mapping) and Own.name in spec else None
    named = isinstance(spec, str | Mapping) and Own.name in ((spec,) if isinstance(spec, str) else spec)
    if named and not (isinstance(functions, Mapping) and callable(functions.get("acting"))):
        raise BadParameter("own: a group of your own is made of functions, in Python: groups.own(act, move, …)")
    return cast(Group, resolve("group", GROUPS, spec, lambda group: isinstance(group, Group)))

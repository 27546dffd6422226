"""Symmetry groups, by the name that a study file uses: elements are tensors, acting on inputs and moving maps.

`group.act(g, batch)` moves inputs, `group.move(g, maps)` moves feature maps alike; see `Group` for the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from torch import Tensor

from heatproof.axes.symmetry.groups.continuous import Rotations, Scalings, SpaceRotations
from heatproof.axes.symmetry.groups.contract import Group, plan_elements
from heatproof.axes.symmetry.groups.custom import Own
from heatproof.axes.symmetry.groups.euclidean import EuclideanMotions
from heatproof.axes.symmetry.groups.finite import Cyclic, Dihedral, Octahedral, Torus
from heatproof.axes.symmetry.groups.padded import PaddedShifts
from heatproof.axes.symmetry.groups.permutations import (
    NodePermutation,
    PassagePermutation,
    Permutation,
)
from heatproof.axes.symmetry.groups.products import Product
from heatproof.axes.symmetry.groups.warps import TimeWarps
from heatproof.errors import BadParameter, make, resolve
from heatproof.types import Batch

_FINITE: Any = (
    Cyclic,
    Torus,
    PaddedShifts,
    Dihedral,
    Octahedral,
    Permutation,
    PassagePermutation,
    NodePermutation,
    Product,
    Own,
)
_CONTINUOUS: tuple[Any, ...] = (Rotations, Scalings, TimeWarps, SpaceRotations, EuclideanMotions)
GROUPS: dict[str, Any] = {kind.name: kind for kind in (*_FINITE, *_CONTINUOUS)}

__all__ = [
    "GROUPS",
    "Cyclic",
    "Dihedral",
    "EuclideanMotions",
    "Group",
    "NodePermutation",
    "Octahedral",
    "Own",
    "PaddedShifts",
    "PassagePermutation",
]
__all__ += [
    "Permutation",
    "Product",
    "Torus",
    "build",
    "cyclic",
    "dihedral",
    "euclidean",
    "node_permutation",
    "own",
    "padded_shift",
    "permutation",
]
__all__ += [
    "Rotations",
    "Scalings",
    "SpaceRotations",
    "TimeWarps",
    "plan_elements",
    "product",
    "scale",
    "so2",
    "so3",
    "time_warp",
    "torus",
]


cyclic, torus, dihedral, permutation, node_permutation = (
    Cyclic,
    Torus,
    Dihedral,
    Permutation,
    NodePermutation,
)
so2, scale, so3, euclidean = Rotations, Scalings, SpaceRotations, EuclideanMotions
padded_shift, time_warp = PaddedShifts, TimeWarps
"""The groups by the names of study files."""


def product(*factors: Any) -> Product:
    """Return the direct product of groups that commute; see `Product`.

    >>> product(cyclic(-1), dihedral(1)).check((1, 4, 4))
    Traceback (most recent call last):
    heatproof.errors.UserError: cyclic and dihedral do not commute, so their product is not a group action: ...
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
    """Return your own group from three functions: how an element acts, how it moves maps, and the list; see `Own`.

    >>> sign = own(lambda g, batch: g * batch.x, lambda g, maps: g * maps, [1, -1], title="change of sign")
    >>> sign.check((3,))
    >>> own(lambda g, batch: g * batch.x, lambda g, maps: g * maps, [1, 2]).check((3,))
    Traceback (most recent call last):
    heatproof.errors.UserError: own: move is no group action: 2 after 2 is none of the 2 elements
    """
    fields = {
        "acting": act,
        "moving": move,
        "members": elements,
        "interpolating": interpolating,
        "title": title,
    }
    return cast(Own, make(Own, "own", fields))


def build(spec: Any) -> Group:
    """Return a group from its name, from a mapping {name: parameters}, or the group itself.

    >>> build({"dihedral": {"n": 4}})
    Dihedral(n=4)
    >>> build("cyclick")
    Traceback (most recent call last):
    heatproof.errors.BadParameter: unknown group 'cyclick'; did you mean 'cyclic'? Allowed: ...
    """
    is_own = spec == Own.name if isinstance(spec, str) else False
    if isinstance(spec, Mapping) and Own.name in spec:
        parameters = spec[Own.name]
        is_own = not (isinstance(parameters, Mapping) and callable(parameters.get("acting")))
    if is_own:
        # A study file can name the group, but not give its functions.
        raise BadParameter(
            "own: a group of your own is made of functions, in Python: groups.own(act, move, …)"
        )
    return cast(Group, resolve("group", GROUPS, spec, lambda group: isinstance(group, Group)))

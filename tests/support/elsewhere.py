"""A device that is not there: tensors lie in the processor's memory and say that they are elsewhere.

What a GPU refuses is refused here too: an operation on tensors of two devices, and samples here that are picked by
numbers from there. So what forgets to bring its tensors along is found without a GPU. Tensors that no function of torch
made in Python, such as gradients inside of a backward pass, are nowhere and go with any other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

HERE, THERE = torch.device("cpu"), torch.device("mps", 0)
INDEXED = {Tensor.__getitem__, Tensor.__setitem__, Tensor.index_put_, Tensor.index_put}
MIXED = {Tensor.copy_, Tensor.type_as, Tensor.set_, torch.autograd.grad, Tensor.data.__set__}
MIXED |= {torch._has_compatible_shallow_copy_type}
PROPERTIES = {
    Tensor.shape.__get__,
    Tensor.dtype.__get__,
    Tensor.ndim.__get__,
    Tensor.requires_grad.__get__,
}
_MARK = "_said_to_be"


def place_of(tensor: Tensor) -> torch.device | None:
    """Where a tensor says it is; None where it says nothing."""
    place: torch.device | None = getattr(tensor.untyped_storage(), _MARK, None)
    return place


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(list(values.values()))


def _put(values: Any, place: torch.device | None) -> Any:
    for tensor in _tensors(values):
        if place is not None and tensor.layout == torch.strided:
            setattr(tensor.untyped_storage(), _MARK, place)
    return values


class Elsewhere(TorchFunctionMode):
    """While it is entered, `THERE` is a device like any other."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func == Tensor.device.__get__:
            return place_of(args[0]) or HERE
        if func is Tensor.numpy and place_of(args[0]) == THERE:
            raise TypeError(f"a tensor on {THERE} is no array of NumPy; copy it to the CPU first")
        if func in (Tensor.to, Tensor.cpu):
            return self._moved(func, args, kwargs)
        if func in PROPERTIES:
            return func(*args, **kwargs)
        place = kwargs.get("device")
        if place is not None:
            place = THERE if torch.device(place).type == THERE.type else HERE
            kwargs["device"] = HERE
        given = [t for t in _tensors([args, kwargs]) if t.layout == torch.strided]
        found = func(*args, **kwargs)
        return _put(found, self._where(func, args, given) if place is None else place)

    @staticmethod
    def _where(func: Any, args: Any, given: list[Tensor]) -> torch.device | None:
        """Where the result of an operation is; raises where its tensors do not go together."""
        if func in MIXED:
            return place_of(given[0]) if given else None
        if func in INDEXED:
            own, places = place_of(args[0]), [place_of(t) for t in _tensors(args[1])]
            if THERE in places and own == HERE:
                raise RuntimeError(f"indices on {THERE} for a tensor on the CPU")
            values = [t for t in _tensors(args[2:]) if t.ndim]
            if places and {own, *map(place_of, values)} >= {HERE, THERE}:
                raise RuntimeError(f"values of one device for a tensor of another: {own}")
            return own
        places = {place_of(t) for t in given if t.ndim} or {place_of(t) for t in given}
        if places >= {HERE, THERE}:
            raise RuntimeError(
                f"{getattr(func, '__name__', func)} of tensors on {HERE} and {THERE}"
            )
        return THERE if THERE in places else HERE if HERE in places or not given else None

    @staticmethod
    def _moved(func: Any, args: Any, kwargs: Any) -> Tensor:
        """A copy at another place, or the tensor itself where it is there already."""
        own = args[0]

        def known(value: Any) -> Any:
            return HERE if isinstance(value, torch.device | str) else value

        said = [v for v in (*args[1:], *kwargs.values()) if isinstance(v, torch.device | str)]
        like = [v for v in (*args[1:], *kwargs.values()) if isinstance(v, Tensor)]
        place = place_of(own)
        if func is Tensor.cpu:
            target: torch.device | None = HERE
        elif said:
            target = THERE if torch.device(said[0]).type == THERE.type else HERE
        else:
            target = place_of(like[0]) if like else place
        made = func(
            own, *map(known, args[1:]), **{name: known(value) for name, value in kwargs.items()}
        )
        if (target or HERE) != (
            place or HERE
        ) and made.untyped_storage().data_ptr() == own.untyped_storage().data_ptr():
            made = made.clone()
        return _put(made, target) if made is not own else made


def from_numpy(array: np.ndarray[Any, Any]) -> Tensor:
    """`torch.from_numpy`, which no mode hears of."""
    return _put(_from_numpy(array), HERE)


_from_numpy = torch.from_numpy

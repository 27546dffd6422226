"""Data that is in memory already: tensors, arrays, items that samples are made from, and those of a Dataset."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from heatproof.data import images
from heatproof.data.choices import whole_label, whole_labels
from heatproof.data.dataset import (
    Data,
    How,
    Sample,
    attempt,
    by_position,
    not_pictures,
    numbered,
    unreadable,
)
from heatproof.errors import UserError

_SAMPLED_ITEMS = 64
"""How many items of a Dataset are read for its fingerprint."""
_AUX_TYPES = {"mask": torch.bool, "adjacency": torch.float32, "attention_mask": torch.int64}
FLATTENED = {
    784: (1, 28, 28),
    3072: (3, 32, 32),
    12288: (3, 64, 64),
    27648: (3, 96, 96),
    150528: (3, 224, 224),
}


def open_arrays(
    name: str,
    x: Tensor | np.ndarray[Any, Any],
    how: How,
    *,
    labels: Iterable[Any] | None = None,
    ids: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    aux: Mapping[str, Tensor] | None = None,
) -> Data:
    """Open samples (N, …) that are in memory: pictures, token ids beside an `attention_mask`, or numbers."""
    x = as_tensor(x)
    aux = aux or {}
    # Bytes of (N, H, W, C) are pictures, whatever stands beside them.
    are_tokens = "attention_mask" in aux and not x.is_floating_point() and x.ndim not in (1, 4)
    x = _token_ids(x, name, how) if are_tokens else _prepared(x, f"{name!r}", how)
    for aux_name, values in aux.items():
        _check_count(name, x, aux_name, values)
    if ids is not None:
        _check_count(name, x, "ids", ids)
    x = x.detach().cpu()
    aux = {aux_name: values.detach().cpu() for aux_name, values in aux.items()}
    return Data(
        name=name,
        ids=numbered(len(x)) if ids is None else tuple(ids),
        readers=partial(by_position, _row, (x, aux)),
        content=partial(_array_content, x, aux, how),
        kind="image" if x.ndim == 4 else "array",
        shape=tuple(x.shape[1:]),
        class_names=None if class_names is None else tuple(class_names),
        labels=whole_labels(labels, name),
    )


def aux_arrays(
    arrays: Mapping[str, np.ndarray[Any, Any]], x: np.ndarray[Any, Any], what: str
) -> dict[str, Tensor]:
    """Return what else of each sample the network takes: a mask, an adjacency matrix, an attention mask, `aux_` arrays.

    `aux_depth` is given to the network as `depth`. Pictures have none of the first three, whatever is called so.
    """
    aux = {}
    for name, dtype in _AUX_TYPES.items():
        if name not in arrays or x.ndim not in (2, 3):
            continue
        expected = x.shape[:2]
        if name == "adjacency":
            expected += x.shape[1:2]
        if arrays[name].shape != expected:
            raise UserError(
                f"{what!r}: {name} has shape {arrays[name].shape}; {expected} was expected beside x {x.shape}"
            )
        aux[name] = as_tensor(arrays[name]).to(dtype)
    for name, values in arrays.items():
        if name.startswith("aux_"):
            aux[name.removeprefix("aux_")] = as_tensor(values)
    return aux


def _token_ids(x: Tensor, name: str, how: How) -> Tensor:
    """Return token ids as int64; refuse negative ones, and a size or shape, which texts do not have."""
    not_pictures(name, how)
    if bool((x < 0).any()):
        raise UserError(f"{name!r} has token ids below 0")
    return x.to(torch.int64)


def as_tensor(x: Tensor | np.ndarray[Any, Any]) -> Tensor:
    """Return a tensor of the same numbers, writable and in the byte order of this machine; if possible without a copy."""
    if isinstance(x, Tensor):
        if x.layout != torch.strided:
            raise UserError(
                f"a tensor of layout {x.layout} was given; give a dense one: x.to_dense()"
            )
        if x.is_meta:
            raise UserError("a tensor on the device meta has no values; give one on cpu or cuda")
        return x
    if x.dtype.kind not in "biuf":
        raise UserError(f"an array of numbers was expected, got dtype {x.dtype}")
    native = x.astype(x.dtype.newbyteorder("="), copy=False)
    return torch.from_numpy(np.require(native, requirements=["C", "W"]))


def reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return samples (N, …) with each of them in another shape, (N, *shape)."""
    if x.ndim < 1 or math.prod(x.shape[1:]) != math.prod(shape):
        raise UserError(f"shape={list(shape)} does not fit samples of shape {tuple(x.shape[1:])}")
    return x.reshape(len(x), *shape)


def numbered_channels(values: Sequence[float]) -> Tensor:
    """Return one number per channel as (C, 1, 1) float64, to go with pictures (…, C, H, W)."""
    return torch.as_tensor(list(values), dtype=torch.float64)[:, None, None]


def _prepared(x: Tensor, what: str, how: How) -> Tensor:
    """Return samples (N, …) as a model takes them: pictures in [0, 1] and of the size in `how`, others as float32.

    Errors name `what`. Refused are whole numbers, NaN, and rows that look like flattened pictures.
    """
    if how.shape is not None:
        x = reshaped(x, how.shape)
    if x.ndim < 2:
        raise UserError(
            f"{what} has shape {tuple(x.shape)}; samples go along the first axis and need one more"
        )
    if x.ndim == 4:
        pixels = images.check_pixels(x, what, any_channels=how.shape is not None)
        if how.arrays is None:
            return pixels
        return images.resize_tensor(pixels, how.arrays, how.resize)
    if how.arrays is not None:
        raise UserError(
            f"size={how.arrays} is for pictures, but {what} has samples of shape {tuple(x.shape[1:])}"
        )
    picture = FLATTENED.get(x.shape[1]) if x.ndim == 2 and how.shape is None else None
    if picture is not None:
        raise UserError(
            f"{what} has rows of {x.shape[1]} numbers, which look like flattened pictures of {picture}; "
            f"give shape={list(picture)}, or shape=[{x.shape[1]}] if they are just numbers"
        )
    if not x.is_floating_point():
        raise UserError(
            f"{what} holds {x.dtype}; give floating-point numbers, or token ids with an attention_mask"
        )
    if not bool(torch.isfinite(x).all()):
        raise images.not_finite(x, what)
    return x.to(torch.float32)


def _row(x: Tensor, aux: Mapping[str, Tensor], position: int) -> Sample:
    return Sample(x[position], None, {key: value[position] for key, value in aux.items()})


def _array_content(
    x: Tensor, aux: Mapping[str, Tensor], how: How, positions: Sequence[int]
) -> Iterator[bytes]:
    """Yield the bytes of the tensors at `positions`, a few hundred rows at a time."""
    yield repr(how).encode()
    for name, tensor in {"": x, **aux}.items():
        yield f"{name}|{tensor.dtype}|{tuple(tensor.shape[1:])}".encode()
        for start in range(0, len(positions), 256):
            chunk = torch.tensor(positions[start : start + 256])
            rows = tensor[chunk].contiguous()
            yield rows.reshape(-1).view(torch.uint8).numpy().tobytes()


def open_items(
    name: str,
    items: Sequence[Any],
    make: Callable[[Any], Sample],
    *,
    prepared: str,
    shape: tuple[int, ...],
    ids: Sequence[str] | None = None,
    labels: Iterable[Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Open tuples of tensors that are made into samples on demand; an item that is an exception is its error.

    `prepared` describes what `make` does, for the fingerprint.
    """
    return Data(
        name=name,
        ids=numbered(len(items)) if ids is None else tuple(ids),
        readers=partial(by_position, _made, (items, make)),
        content=partial(_item_bytes, items, prepared),
        kind="array",
        shape=shape,
        class_names=None if class_names is None else tuple(class_names),
        labels=whole_labels(labels, name),
    )


def _made(items: Sequence[Any], make: Callable[[Any], Sample], position: int) -> Sample:
    if isinstance(item := items[position], Exception):
        raise item
    return make(item)


def open_dataset(dataset: Any, how: How) -> Data:
    """Open a map-style Dataset, whose items are read on demand; it may have `ids` and `groups` of them."""
    name, n = type(dataset).__name__, len(dataset)
    ids, groups = getattr(dataset, "ids", None), getattr(dataset, "groups", None)
    if ids is not None and len(ids) != n:
        raise UserError(f"{name} has {n} items but {len(ids)} ids")
    data = Data(
        name=name,
        ids=numbered(n) if ids is None else tuple(map(str, ids)),
        readers=partial(by_position, _item, (dataset, how)),
        content=partial(_item_content, dataset, how),
        kind="image",
    ).knowing_shape()
    return data if groups is None else data.grouped([str(group) for group in groups])


def _item(dataset: Any, how: How, position: int) -> Sample:
    """Return an item of a Dataset as a sample."""
    what = f"item {position} of {type(dataset).__name__}"
    value, label = _x_and_label(dataset[position], what)
    if label is not None:
        label = whole_label(label, f"the label of {what}")
    if isinstance(value, Image.Image):
        return Sample(images.decode(value, how.pictures, how.resize), label)
    if isinstance(value, list):  # as `datasets` gives arrays by default
        value = _array_of(value)
    if not isinstance(value, Tensor | np.ndarray):
        raise UserError(
            f"{what} holds {type(value).__name__}; a tensor, an array or a Pillow image was expected"
        )
    x = as_tensor(value).detach().cpu()[None]
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        # A ValueError concerns this sample alone; `_prepared` would refuse the Dataset.
        raise ValueError("values that are not finite (NaN or infinite)")
    return Sample(_prepared(x, what, how)[0], label)


def _array_of(values: list[Any]) -> Any:
    """Return nested lists of numbers as an array; anything else as it is."""
    try:
        array = np.asarray(values)
    except ValueError:  # of several lengths
        return values
    is_rounded = array.dtype == np.float64
    return (
        array.astype(np.float32) if is_rounded else array if array.dtype.kind in "biuf" else values
    )


def _x_and_label(item: Any, what: str) -> tuple[Any, Any]:
    """Return input and label of an item that is a mapping, a pair, or an input alone."""
    if isinstance(item, Mapping):
        inputs = [
            item[key]
            for key in ("image", "img", "x", "pixel_values", "input_values")
            if key in item
        ]
        labels = [item[key] for key in ("label", "labels") if key in item]
        if not inputs:
            raise UserError(
                f"{what} has keys {', '.join(map(str, item))}; one of image, x, pixel_values was expected"
            )
        return inputs[0], labels[0] if labels else None
    if isinstance(item, tuple | list):
        if not item:
            raise UserError(f"{what} is empty")
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _item_content(dataset: Any, how: How, positions: Sequence[int]) -> Iterator[bytes]:
    """Yield the bytes of a few evenly spaced items: reading all of a large Dataset would take hours."""
    n = len(positions)
    yield repr((how, n)).encode()
    evenly_spaced = {round(i * (n - 1) / (_SAMPLED_ITEMS - 1)) for i in range(_SAMPLED_ITEMS)}
    for index in sorted(evenly_spaced):
        position = positions[index]
        sample = attempt(partial(_item, dataset, how, position))
        if isinstance(sample, Sample):
            yield f"{position}|{sample.label}|{tuple(sample.x.shape)}".encode()
            yield sample.x.contiguous().numpy().tobytes()
        else:
            what = f"item {position} of {type(dataset).__name__}"
            yield f"{position}|".encode() + unreadable(sample, what)


def _check_count(name: str, x: Tensor, what: str, values: Sequence[Any] | Tensor) -> None:
    if len(values) != len(x):
        raise UserError(f"{name!r} has {len(x)} samples but {len(values)} of {what}")


def _item_bytes(items: Sequence[Any], prepared: str, positions: Sequence[int]) -> Iterator[bytes]:
    """Yield bytes that identify the items: tensors by type, shape and values, all else by its text."""
    yield prepared.encode()
    for position in positions:
        item = items[position]
        values = (str(item),) if isinstance(item, Exception) else item
        for value in values:
            if isinstance(value, Tensor):
                yield f"{value.dtype}|{tuple(value.shape)}".encode()
                yield value.contiguous().numpy().tobytes()
            else:
                yield repr(value).encode()

"""Data whose samples are made, when they are asked for, from items that are already in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from torch import Tensor

from holdfast.data.dataset import Data, Reader, Sample, numbered
from holdfast.data.labels import whole_labels


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
    """Tuples of tensors that are made into samples when asked for; an item that is an exception is its error.

    `prepared` says what `make` does, for the fingerprint.
    """
    return Data(
        name=name,
        ids=numbered(len(items)) if ids is None else tuple(ids),
        readers=partial(_makers, items, make),
        content=partial(_parts, items, prepared),
        kind="array",
        shape=shape,
        class_names=None if class_names is None else tuple(class_names),
        labels=whole_labels(labels, name),
    )


def _makers(items: Sequence[Any], make: Callable[[Any], Sample], positions: Sequence[int]) -> list[Reader]:
    return [partial(_made, items[i], make) for i in positions]


def _made(item: Any, make: Callable[[Any], Sample]) -> Sample:
    if isinstance(item, Exception):
        raise item
    return make(item)


def _parts(items: Sequence[Any], prepared: str, n: int) -> Iterator[bytes]:
    yield prepared.encode()
    for item in items[:n]:
        for part in (str(item),) if isinstance(item, Exception) else item:
            if isinstance(part, Tensor):
                yield f"{part.dtype}|{tuple(part.shape)}".encode()
                yield part.contiguous().numpy().tobytes()
            else:
                yield repr(part).encode()

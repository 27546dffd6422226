"""Empty frames around pictures and series, so that shifts lose nothing."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import Tensor

from heatproof.data.dataset import Data, Reader, Sample
from heatproof.errors import UserError

REGION = "_region"


def with_padding(data: Data, pad: Any) -> Data:
    """Return the data with `pad` zeros on every side of a picture (C, H, W) or volume, on both ends of a series (C, T).

    Regions get the frame as well. The paper on explanation invariance pads FashionMNIST by 10.
    """
    if isinstance(pad, bool) or not isinstance(pad, int) or pad < 1:
        raise UserError(f"pad must be a whole number of at least 1, got {pad!r}")
    shape = data.shape
    if shape is None or len(shape) not in (2, 3, 4):
        raise UserError(
            f"pad={pad} is for pictures, volumes and series of one size, which {data.name!r} does not hold"
        )
    padded_shape = (shape[0], *(size + 2 * pad for size in shape[1:]))
    return replace(
        data,
        shape=padded_shape,
        readers=partial(_readers, data.readers, pad),
        content=partial(_content, data.content, pad),
    )


def _readers(
    readers: Callable[[Sequence[int]], Sequence[Reader]], pad: int, positions: Sequence[int]
) -> list[Reader]:
    return [partial(_read, reader, pad) for reader in readers(positions)]


def _read(reader: Reader, pad: int) -> Sample:
    """Return a sample with its frame."""
    sample = reader()
    other = sorted(set(sample.aux) - {REGION})
    if other:
        raise UserError(
            f"pad={pad} is for samples without further tensors; these have {', '.join(other)}"
        )
    x = _framed(sample.x, sample.x.ndim - 1, pad)
    aux = {name: _framed(region, region.ndim, pad) for name, region in sample.aux.items()}
    digest = sample.digest
    if digest:
        digest = hashlib.sha256(f"{digest}|pad {pad}".encode()).hexdigest()
    return Sample(x, sample.label, aux, digest)


def _framed(x: Tensor, axes: int, pad: int) -> Tensor:
    """Return a tensor with zeros on both sides of its last axes."""
    return F.pad(x, (pad, pad) * axes)


def _content(
    content: Callable[[Sequence[int]], Iterable[bytes]], pad: int, positions: Sequence[int]
) -> Iterator[bytes]:
    yield f"pad {pad}".encode()
    yield from content(positions)

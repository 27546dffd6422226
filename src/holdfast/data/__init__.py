"""Data sets as holdfast sees them: stable ids first, samples decoded when they are asked for.

`open_data` accepts tensors, arrays, a `Batch`, any map-style Dataset, a folder of pictures, `.npz` and Parquet.
A sample that cannot be read is recorded with its error; it never stops the run and never leaves a gap.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor
from torch.utils.data import IterableDataset

from holdfast import images
from holdfast.data.arrays import open_arrays, open_dataset
from holdfast.data.dataset import Data, Loaded, Sample, Size, how_to, whole_labels
from holdfast.data.files import existing, open_path, open_pictures
from holdfast.errors import UserError
from holdfast.images import Resize
from holdfast.types import Batch

__all__ = ["Data", "Loaded", "Sample", "Size", "existing", "open_data", "open_files"]


def open_data(
    source: Any,
    *,
    size: Size = "auto",
    resize: Resize = "squash",
    shape: Sequence[int] | None = None,
    name: str | None = None,
    labels: Sequence[int] | Mapping[str, int] | None = None,
    limit: int | None = None,
) -> Data:
    """Open tensors, arrays, a Batch, a Dataset, or a path to pictures, `.npz` or Parquet, without reading much yet.

    `size` squashes pictures to size × size, or with `resize="crop"` scales the short side to size / 0.875 and takes
    the central square; None keeps them as they are; "auto" is 224 for pictures in files, bytes or Pillow objects and
    None for tensors and arrays, which arrive as their owner made them. `shape` says what each row of an array is, for
    instance (3, 32, 32) for flattened pictures. `labels` go by position or by id and replace any of the source.

    >>> pixels = torch.rand(12, 3, 8, 8)
    >>> data = open_data((pixels, torch.arange(12)), limit=3)
    >>> data.ids, data.load([2]).batch.label
    (('0000', '0001', '0002'), tensor([2]))
    """
    images.check_size(None if size == "auto" else size, resize)
    data = _dispatch(source, size, resize, None if shape is None else tuple(shape))
    if labels is not None:
        ordered = [labels.get(key) for key in data.ids] if isinstance(labels, Mapping) else labels
        data = replace(data, labels=whole_labels(ordered, data.name), class_names=None)
    if name is not None:
        data = replace(data, name=name)
    return data if limit is None else data.limit(limit)


def open_files(
    name: str,
    paths: Sequence[Path],
    *,
    ids: Sequence[str],
    size: Size = "auto",
    resize: Resize = "squash",
    labels: Sequence[int] | None = None,
) -> Data:
    """Pictures in the files at `paths`, with ids and labels of the caller's choice; `size` as in `open_data`.

    >>> open_files("two", [Path("a.jpg"), Path("b.jpg")], ids=["a", "b"]).shape
    (3, 224, 224)
    """
    images.check_size(None if size == "auto" else size, resize)
    return open_pictures(name, paths, ids, how_to(size, resize, None), labels)


def _dispatch(source: Any, size: Size, resize: Resize, shape: tuple[int, ...] | None) -> Data:
    how = how_to(size, resize, shape)
    if isinstance(source, Data):
        if size != "auto" or shape is not None:
            raise UserError(f"{source.name!r} is open already; give size and shape where it is opened")
        return source
    if isinstance(source, str | os.PathLike):
        return open_path(Path(source).expanduser(), how)
    if isinstance(source, Batch):
        return open_arrays("data", source.x, how, labels=source.label, ids=source.ids, aux=source.aux)
    if isinstance(source, Tensor | np.ndarray):
        return open_arrays("data", source, how)
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(s, Tensor | np.ndarray) for s in source):
        return open_arrays("data", source[0], how, labels=source[1])
    by_position = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if by_position and not isinstance(source, (Mapping, IterableDataset)):
        return open_dataset(source, how)
    raise UserError(
        f"cannot read data from {type(source).__name__}; give a tensor, (x, y), a Batch, a path, or a Dataset with "
        "__getitem__ and __len__ (of a DataLoader, its .dataset)"
    )

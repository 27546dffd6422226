"""CIFAR-10 and CIFAR-100 in their published binary version.

Pictures stay bytes until they are asked for; ids number them in the order of torchvision's data sets.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from heatproof.data import images
from heatproof.data.choices import Choice, one_split, whole_labels
from heatproof.data.dataset import Data, How, Sample, by_position, numbered
from heatproof.data.text import as_text, unpacked
from heatproof.errors import UserError, unknown

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
_SIDE = 32
_BYTES = 3 * _SIDE * _SIDE
_TRAIN = tuple(f"data_batch_{i}.bin" for i in range(1, 6))
_PICKLED = (
    ("batches.meta", "data_batch_1"),
    ("batches.meta", "test_batch"),
    ("meta", "train"),
    ("meta", "test"),
)
"""Pairs of files, of class names and of samples, by which the Python version is known; its files are pickles."""


class Layout(NamedTuple):
    """One published folder: the files of each split, the file of names, and how many bytes of labels a record has."""

    files: Mapping[str, Sequence[str]]
    names: Mapping[str, str]
    label_bytes: int


_LAYOUTS = {
    "cifar-10-batches-bin": Layout(
        {"train": _TRAIN, "test": ("test_batch.bin",)},
        {"fine": "batches.meta.txt"},
        label_bytes=1,
    ),
    "cifar-100-binary": Layout(
        {"train": ("train.bin",), "test": ("test.bin",)},
        {"fine": "fine_label_names.txt", "coarse": "coarse_label_names.txt"},
        label_bytes=2,
    ),
}


def cifar_layout(path: Path) -> str | None:
    """Return which of the two published layouts a folder, or the folder of a file, has by the names of its files."""
    folder = path if path.is_dir() else path.parent
    is_pickled = any((folder / a).is_file() and (folder / b).is_file() for a, b in _PICKLED)
    if is_pickled and (path.is_dir() or not path.suffix):
        raise UserError(
            f"{str(path)!r} is CIFAR's Python version, which is pickles; take its binary version "
            "(cifar-10-binary.tar.gz, cifar-100-binary.tar.gz), Hugging Face's (hf:uoft-cs/cifar10@test), or "
            "a data set of torchvision in Python"
        )
    for name, layout in _LAYOUTS.items():
        files = [file for files_of_split in layout.files.values() for file in files_of_split]
        has_samples = any((folder / file).is_file() for file in files)
        has_names = (folder / next(iter(layout.names.values()))).is_file()
        is_ours = path.is_dir() or path.name in files
        if has_samples and has_names and is_ours:
            return name
    return None


def open_cifar(path: Path, layout: str, how: How, choice: Choice) -> Data:
    """Open pictures (3, 32, 32) with their classes; `label="coarse"` takes CIFAR-100's twenty superclasses.

    `path` is the published folder, of which `split` says whether `train` or `test`, or one file of it.
    """
    published = _LAYOUTS[layout]
    label = choice.label or "fine"
    if label not in published.names:
        raise unknown(f"label of {layout}", label, published.names)
    if path.is_dir():
        split, files = _files_of_split(path, layout, choice.split)
    else:
        split, files = path.stem, [path]
    pixels, labels = [], []
    for file in files:
        pixels_of_file, labels_of_file = _record_file(file, label, published.label_bytes)
        pixels.append(pixels_of_file)
        labels += labels_of_file
    names = _names(files[0].with_name(published.names[label]))
    for number in labels:
        if not 0 <= number < len(names):
            raise UserError(
                f"{str(path)!r} has the label {number}, but {published.names[label]} names {len(names)} classes"
            )
    short_name = "-".join(layout.split("-")[:2])
    return open_bytes(f"{short_name}-{split}", np.concatenate(pixels), how, labels, names)


def open_bytes(
    name: str,
    pixels: Pixels,
    how: How,
    labels: Sequence[int] | None,
    class_names: Sequence[str],
) -> Data:
    """Open pictures (N, C, H, W) of bytes, divided by 255 and resized as `how` says."""
    shape = pixels.shape[1:]
    if how.arrays is not None:
        shape = (pixels.shape[1], how.arrays, how.arrays)
    return Data(
        name=name,
        ids=numbered(len(pixels)),
        readers=partial(by_position, _picture, (pixels, how)),
        content=partial(_pixel_content, pixels, how),
        kind="image",
        shape=tuple(shape),
        class_names=tuple(class_names),
        labels=whole_labels(labels, name),
    )


def _picture(pixels: Pixels, how: How, position: int) -> Sample:
    x = torch.from_numpy(pixels[position].astype(np.float32)).div_(255)
    if how.arrays is not None:
        x = images.resize_tensor(x[None], how.arrays, how.resize)[0]
    return Sample(x)


def _pixel_content(pixels: Pixels, how: How, positions: Sequence[int]) -> Iterator[bytes]:
    yield repr(how).encode()
    yield f"{pixels.shape[1:]}".encode()
    for start in range(0, len(positions), 1024):
        yield pixels[list(positions[start : start + 1024])].tobytes()


def _record_file(path: Path, label: str, label_bytes: int) -> tuple[Pixels, list[int]]:
    """Return pixels and labels: records of a byte for each label, coarse before fine, and 3072 of red, green and blue."""
    size, record = path.stat().st_size, label_bytes + _BYTES
    if not size or size % record:
        raise UserError(
            f"{str(path)!r} has {size} bytes, which is no whole number of records of {record} bytes"
        )
    records = np.fromfile(path, np.uint8).reshape(-1, record)
    label_column = label_bytes - 1 if label == "fine" else 0
    pixels = records[:, label_bytes:].reshape(-1, 3, _SIDE, _SIDE)
    return np.ascontiguousarray(pixels), records[:, label_column].tolist()


def _names(path: Path) -> list[str]:
    text = as_text(unpacked(path), str(path))
    return [line.strip() for line in text.splitlines() if line.strip()]


def _files_of_split(folder: Path, layout: str, split: str | None) -> tuple[str, list[Path]]:
    """Return the name of a split and its files, all of which must be there."""
    splits = {}
    for name, files in _LAYOUTS[layout].files.items():
        if any((folder / file).is_file() for file in files):
            splits[name] = (name, files)
    chosen, names = one_split(str(folder), split, splits)
    missing = [name for name in names if not (folder / name).is_file()]
    if missing:
        raise UserError(f"{str(folder)!r} lacks {', '.join(missing)} of the layout {layout}")
    return chosen, [folder / name for name in names]

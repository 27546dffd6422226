"""STL-10 in its binary version, and CINIC-10, a folder of pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from heatproof.data.choices import Choice, one_split
from heatproof.data.cifar import open_bytes
from heatproof.data.dataset import Data, How
from heatproof.errors import UserError

_SIDE = 96
_BYTES = 3 * _SIDE * _SIDE
_SPLITS = {"train_X.bin": "train", "test_X.bin": "test", "unlabeled_X.bin": "unlabeled"}
STL10_FOLDER = "stl10_binary"
STL10_CLASSES = (
    *("airplane", "bird", "car", "cat", "deer"),
    *("dog", "horse", "monkey", "ship", "truck"),
)
CINIC10_CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
"""The folders of CINIC-10, which are the classes of CIFAR-10 in their order."""


def is_stl10(path: Path) -> bool:
    """Whether a folder, or the folder of a file, has the layout of STL-10's binary version."""
    if path.is_dir():
        return any((path / name).is_file() for name in _SPLITS)
    return path.name in _SPLITS


def open_stl10(path: Path, how: How, choice: Choice) -> Data:
    """Open pictures (3, 96, 96) of STL-10 with their classes; those of the split `unlabeled` have none.

    `path` is the folder `stl10_binary`, of which `split` says which part, or one of its files of pictures. Pictures are
    read from the file when they are needed: the unlabelled ones are 2.7 GB.
    """
    if path.is_dir():
        by_split = {
            split: path / name for name, split in _SPLITS.items() if (path / name).is_file()
        }
        file = one_split(str(path), choice.split, by_split)
    else:
        file = path
    pixels = _pixels(file)
    labels = _labels(file, len(pixels))
    return open_bytes(f"stl10-{_SPLITS[file.name]}", pixels, how, labels, STL10_CLASSES)


def _pixels(file: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Return pictures (N, 3, 96, 96) mapped from a file: bytes of red, green and blue, each column by column."""
    size = file.stat().st_size
    if not size or size % _BYTES:
        raise UserError(
            f"{str(file)!r} has {size} bytes, which is no whole number of pictures of {_BYTES} bytes"
        )
    columns_first = np.memmap(file, np.uint8, "r").reshape(-1, 3, _SIDE, _SIDE)
    return columns_first.swapaxes(2, 3)


def _labels(file: Path, pictures: int) -> list[int] | None:
    """Return the labels beside a file of pictures, which counts them from 1, as 0 … 9; None for the unlabelled ones."""
    if _SPLITS[file.name] == "unlabeled":
        return None
    path = file.with_name(file.name.replace("_X", "_y"))
    if not path.is_file():
        raise UserError(f"{str(file)!r} needs its labels, {path.name}, beside it")
    labels = np.fromfile(path, np.uint8)
    if len(labels) != pictures:
        raise UserError(f"{str(path)!r} has {len(labels)} labels for {pictures} pictures")
    is_wrong = (labels < 1) | (labels > len(STL10_CLASSES))
    if is_wrong.any():
        raise UserError(
            f"{str(path)!r} has the label {labels[is_wrong][0]}; labels from 1 to 10 were expected"
        )
    return [int(label) - 1 for label in labels]


def is_cinic10(folder: Path) -> bool:
    """Whether a folder holds CINIC-10: train, valid and test with the ten classes, or one of these parts."""
    if _has_classes(folder):
        return True
    parts = [folder / name for name in ("train", "valid", "test")]
    existing = [part for part in parts if part.is_dir()]
    return bool(existing) and all(_has_classes(part) for part in existing)


def _has_classes(folder: Path) -> bool:
    names = {path.name for path in folder.iterdir() if path.is_dir()}
    return names == set(CINIC10_CLASSES)

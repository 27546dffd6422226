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
    """Which of the two published layouts a folder, or the folder of a file, has by the names of its files."""
    folder = path if path.is_dir() else path.parent
    is_pickled = any((folder / a).is_file() and (folder / b).is_file() for a, b in _PICKLED)
    if is_pickled and (path.is_dir() or not path.suffix):
        raise UserError(
            f"{str(path)!r} is CIFAR's Python version, which is pickles; take its binary version "
            "(cifar-10-binary.tar.gz, cifar-100-binary.tar.gz), Hugging Face's (hf:uoft-cs/cifar10@test), or "
            "a data set of torchvision in Python"
        )
    for name, layout in _LAYOUTS.items():
        beside = next(iter(layout.names.values()))
        ours = any((folder / file).is_file() for files in layout.files.values() for file in files)
        named = path.is_dir() or any(path.name in files for files in layout.files.values())
        if ours and named and (folder / beside).is_file():
            return name
    return None


def open_cifar(path: Path, layout: str, how: How, choice: Choice) -> Data:
    """Pictures (3, 32, 32) with their classes; `label="coarse"` takes CIFAR-100's twenty superclasses.

    `path` is the published folder, of which `split` says whether `train` or `test`, or one file of it.
    """
    form = _LAYOUTS[layout]
    which = choice.label or "fine"
    if which not in form.names:
        raise unknown(f"label of {layout}", which, form.names)
    if path.is_dir():
        splits = {
            name: files
            for name, files in form.files.items()
            if any((path / file).is_file() for file in files)
        }
        files = [path / file for file in one_split(str(path), choice.split, splits)]
        missing = [file.name for file in files if not file.is_file()]
        if missing:
            raise UserError(f"{str(path)!r} lacks {', '.join(missing)} of the layout {layout}")
        split = next(name for name, found in splits.items() if found[0] == files[0].name)
    else:
        files, split = [path], path.stem
    parts = [_record_file(file, which, form.label_bytes) for file in files]
    names = _names(files[0].with_name(form.names[which]))
    pixels = np.concatenate([part[0] for part in parts]) if len(parts) > 1 else parts[0][0]
    labels = [label for part in parts for label in part[1]]
    wrong = next((label for label in labels if not 0 <= label < len(names)), None)
    if wrong is not None:
        raise UserError(
            f"{str(path)!r} has the label {wrong}, but {form.names[which]} names {len(names)} classes"
        )
    return open_bytes(f"{'-'.join(layout.split('-')[:2])}-{split}", pixels, how, labels, names)


def open_bytes(
    name: str, pixels: Pixels, how: How, labels: Sequence[int], class_names: Sequence[str]
) -> Data:
    """Pictures (N, C, H, W) of bytes, divided by 255 and resized when asked for."""
    side = pixels.shape[1:] if how.arrays is None else (pixels.shape[1], how.arrays, how.arrays)
    return Data(
        name=name,
        ids=numbered(len(pixels)),
        readers=partial(by_position, _picture, (pixels, how)),
        content=partial(_pixel_content, pixels, how),
        kind="image",
        shape=tuple(side),
        class_names=tuple(class_names),
        labels=whole_labels(labels, name),
    )


def _picture(pixels: Pixels, how: How, position: int) -> Sample:
    x = torch.from_numpy(pixels[position].astype(np.float32)).div_(255)
    return Sample(
        x if how.arrays is None else images.resize_tensor(x[None], how.arrays, how.resize)[0]
    )


def _pixel_content(pixels: Pixels, how: How, positions: Sequence[int]) -> Iterator[bytes]:
    yield repr(how).encode()
    yield f"{pixels.shape[1:]}".encode()
    for start in range(0, len(positions), 1024):
        yield pixels[list(positions[start : start + 1024])].tobytes()


def _record_file(path: Path, which: str, label_bytes: int) -> tuple[Pixels, list[int]]:
    """Records of one byte for each label, coarse before fine, and 3072 bytes of red, green and blue."""
    size, record = path.stat().st_size, label_bytes + _BYTES
    if not size or size % record:
        raise UserError(
            f"{str(path)!r} has {size} bytes, which is no whole number of records of {record} bytes"
        )
    records = np.fromfile(path, np.uint8).reshape(-1, record)
    labels = records[:, label_bytes - 1 if which == "fine" else 0].tolist()
    return np.ascontiguousarray(records[:, label_bytes:]).reshape(-1, 3, _SIDE, _SIDE), labels


def _names(path: Path) -> list[str]:
    text = as_text(unpacked(path), str(path))
    return [line.strip() for line in text.splitlines() if line.strip()]

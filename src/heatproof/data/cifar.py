"""CIFAR-10 and CIFAR-100 as published: the Python version, read without running what a pickle asks for, and the binary.

Pictures stay bytes until they are asked for; ids number them in the order of torchvision's data sets.
"""

from __future__ import annotations

import io
import pickle
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
_LARGEST = 2**30
_TRAIN = tuple(f"data_batch_{i}" for i in range(1, 6))


class Layout(NamedTuple):
    """One published folder: the files of each split, the file of names, and how many bytes of labels a record has."""

    files: Mapping[str, Sequence[str]]
    names: Mapping[str, str]
    label_bytes: int = 0


_LAYOUTS = {
    "cifar-10-batches-py": Layout(
        {"train": _TRAIN, "test": ("test_batch",)}, {"fine": "batches.meta"}
    ),
    "cifar-100-python": Layout(
        {"train": ("train",), "test": ("test",)}, {"fine": "meta", "coarse": "meta"}
    ),
    "cifar-10-batches-bin": Layout(
        {"train": tuple(f"{name}.bin" for name in _TRAIN), "test": ("test_batch.bin",)},
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
    """Which of the four published layouts a folder, or the folder of a file, has by the names of its files."""
    folder = path if path.is_dir() else path.parent
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
    read = (
        partial(_record_file, label_bytes=form.label_bytes) if form.label_bytes else _pickled_file
    )
    parts = [read(file, which) for file in files]
    names = _names(files[0].with_name(form.names[which]), which)
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


def _pixel_content(pixels: Pixels, how: How, n: int) -> Iterator[bytes]:
    yield repr(how).encode()
    yield f"{pixels.shape[1:]}".encode()
    for start in range(0, n, 1024):
        yield pixels[start : min(start + 1024, n)].tobytes()


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


def _pickled_file(path: Path, which: str) -> tuple[Pixels, list[int]]:
    found = plain_pickle(path)
    data = found.get("data")
    keys = ("labels", "fine_labels") if which == "fine" else ("coarse_labels",)
    labels = next((found[key] for key in keys if key in found), None)
    if (
        not isinstance(data, np.ndarray)
        or data.dtype != np.uint8
        or data.ndim != 2
        or data.shape[1] != _BYTES
    ):
        raise UserError(f"{str(path)!r}: `data` is not an array of bytes with rows of {_BYTES}")
    whole = isinstance(labels, list) and all(type(label) is int for label in labels)
    if not isinstance(labels, list) or not whole or len(labels) != len(data):
        raise UserError(
            f"{str(path)!r}: {' or '.join(keys)} is not a list of {len(data)} whole numbers"
        )
    return data.reshape(-1, 3, _SIDE, _SIDE), labels


def _names(path: Path, which: str) -> list[str]:
    if path.suffix == ".txt":
        return [
            line.strip() for line in as_text(unpacked(path), str(path)).splitlines() if line.strip()
        ]
    found = plain_pickle(path)
    key = "label_names" if "label_names" in found else f"{which}_label_names"
    names = found.get(key)
    if not isinstance(names, list):
        raise UserError(f"{str(path)!r} has no list {key} of the names of the classes")
    return [
        name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name) for name in names
    ]


def plain_pickle(path: Path) -> dict[str, Any]:
    """The dictionary in a pickle of numbers, strings, lists and NumPy arrays.

    Nothing that the pickle names is looked up or called: arrays are rebuilt here from their bytes, and a pickle that
    asks for anything else is refused.
    """
    if path.stat().st_size > _LARGEST:
        raise UserError(f"{str(path)!r} has more than {_LARGEST} bytes, which no file of CIFAR has")
    try:
        found = _Plain(io.BytesIO(path.read_bytes()), encoding="bytes").load()
    except UserError as error:
        raise UserError(f"{str(path)!r} {error}") from error
    except (pickle.UnpicklingError, *_BROKEN) as error:
        raise UserError(
            f"cannot read {str(path)!r} as a pickle of CIFAR: {error or type(error).__name__}"
        ) from error
    if not isinstance(found, dict):
        raise UserError(f"{str(path)!r} holds {type(found).__name__}; a dictionary was expected")
    named = {
        key.decode("utf-8", "replace") if isinstance(key, bytes) else key: value
        for key, value in found.items()
    }
    return {
        key: _array(value, path) if isinstance(value, _Rebuilt) else value
        for key, value in named.items()
        if isinstance(key, str)
    }


_BROKEN = (
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    MemoryError,
)
"""What a damaged or hostile stream of pickle's operations makes the unpickler raise."""


class _Type:
    """Stands for a NumPy dtype: its code."""

    code: Any = None

    def __init__(self, code: Any = None, *more: Any) -> None:
        self.code = code.decode("latin1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and layout say nothing of single bytes, the only type that is taken."""


class _Rebuilt:
    """Stands for a NumPy array, made empty and then told (version, shape, dtype, by columns?, bytes)."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        self.state = state


class _Framed(_Rebuilt):
    """Stands for a NumPy array as newer pickles write it, all at once."""

    def __init__(
        self, content: Any = None, kind: Any = None, shape: Any = None, order: Any = None
    ) -> None:
        self.state = (1, shape, kind, order == "F", content)


class _Latin(bytes):
    """Stands for bytes that old protocols write as text, one letter each."""

    def __new__(cls, text: str = "", *more: Any) -> _Latin:
        return super().__new__(cls, text.encode("latin1"))

    def __setstate__(self, state: Any) -> None:
        raise UserError("changes bytes after they are made")


# All are classes with a __setstate__ of their own: an operation that sets attributes finds nothing to change in them.
_INERT: dict[tuple[str, str], type] = {
    ("_codecs", "encode"): _Latin,
    ("numpy", "ndarray"): _Rebuilt,
    ("numpy", "dtype"): _Type,
    **{(f"numpy.{core}.multiarray", "_reconstruct"): _Rebuilt for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _Framed for core in ("core", "_core")},
}


class _Plain(pickle.Unpickler):
    """An unpickler for which every name is either one of our stand-ins or an error."""

    def find_class(self, module: str, name: str) -> Any:
        try:
            return _INERT[module, name]
        except KeyError:
            raise UserError(
                f"is a pickle that asks for {module}.{name}; it is refused, and nothing was run"
            ) from None


def _array(rebuilt: _Rebuilt, path: Path) -> Pixels:
    state = rebuilt.state
    if not isinstance(state, tuple) or len(state) != 5 or not isinstance(state[2], _Type):
        raise UserError(f"{str(path)!r} has an array that is not as NumPy writes it")
    _, shape, kind, fortran, content = state
    whole = isinstance(shape, tuple) and all(type(n) is int and n >= 0 for n in shape)
    if kind.code not in ("u1", "|u1") or not whole or not isinstance(content, bytes | bytearray):
        raise UserError(
            f"{str(path)!r} has an array of {str(kind.code)[:20]}; bytes (u1) were expected"
        )
    if len(content) != int(np.prod(shape, dtype=object)):
        raise UserError(
            f"{str(path)!r} has an array that says {shape} but holds {len(content)} values"
        )
    return np.frombuffer(bytes(content), np.uint8).reshape(shape, order="F" if fortran else "C")

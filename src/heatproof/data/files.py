"""Data in files: folders of pictures, and `.npz`."""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heatproof.data import images
from heatproof.data.arrays import FLATTENED, aux_arrays, open_arrays, reshaped
from heatproof.data.choices import NO_LABEL, SPLITS, expanded, one_split, ranked, whole_labels
from heatproof.data.dataset import Data, How, Reader, Sample, numbered, unreadable
from heatproof.data.imagenet import imagenet_classes
from heatproof.errors import UserError, nearest, retry, unknown

Fetch = Callable[[Sequence[int]], "list[Path | bytes | Exception]"]
"""From positions to encoded pictures: a file, the bytes, or why there are none."""
_AT_ONCE = 64
"""How many pictures are fetched together for the fingerprint."""
LARGEST_PICTURE = 2**28
"""Bytes of an encoded picture beyond which it is not read."""


def existing(path: Path) -> Path:
    """Return the absolute path of a file or folder; if there is none, raise `UserError` with the nearest names.

    A name such as `shard-{000..012}.tar` stands for several files, all of which must exist.

    >>> existing(Path(".")).is_absolute()
    True
    """
    path = path.absolute()
    if path.exists():
        return path
    names = expanded(path.name)
    if names != [path.name]:
        for name in names:
            existing(path.with_name(name))
        return path
    missing = next(p for p in (path, *path.parents) if p.parent.is_dir())
    close = nearest(missing.name, (p.name for p in missing.parent.iterdir()), n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "nothing there has a similar name"
    raise UserError(
        f"there is no file or folder {missing.name!r} in {str(missing.parent)!r}; {hint}"
    )


def beside(path: str, folder: str | Path | None) -> Path:
    """A path of a study file: relative to its folder, `~` understood.

    >>> beside("weights/a.pt", "/studies").as_posix()
    '/studies/weights/a.pt'
    """
    return Path(folder or Path.cwd()) / Path(path).expanduser()


def open_folder(root: Path, how: How, split: str | None = None) -> Data:
    """Open the pictures in a folder and its subfolders; ids are their relative paths.

    Classes are the top-level folders, if every picture is in one; folders of ImageNet have the class numbers of its list.
    If the top-level folders are splits, such as `train` and `val`, `split` says which one is opened.
    """
    splits = _split_folders(root)
    if splits:
        chosen = one_split(str(root), split, splits)
        return replace(open_folder(chosen, how), name=f"{root.resolve().name}-{chosen.name}")
    if split is not None:
        raise UserError(
            f"{str(root)!r} has no folders of splits such as train and val, so split={split!r} names none"
        )
    by_name = {path.relative_to(root).as_posix(): path for path in _pictures(root)}
    if not by_name:
        raise UserError(
            f"the folder {str(root)!r} has no pictures (looked below it for {_examples()})"
        )
    names = sorted(by_name)
    paths = [by_name[name] for name in names]
    ids = [_readable(name) for name in names]
    labels, class_names = _classes(root, ids)
    return open_pictures(root.resolve().name, paths, ids, how, labels, class_names)


def _classes(
    root: Path, pictures: Sequence[str]
) -> tuple[Sequence[int | None] | None, Sequence[str] | None]:
    """Return labels and class names of pictures by their paths: ImageNet's, else their top-level folders."""
    of_imagenet = imagenet_classes(root, pictures)
    if of_imagenet is not None:
        return of_imagenet
    if not all("/" in picture for picture in pictures):
        return None, None
    return ranked([picture.split("/")[0] for picture in pictures])


def _is_picture(path: Path) -> bool:
    """Return whether a path is a file with the suffix of a picture that is not hidden."""
    is_hidden = path.name.startswith(".")
    return not is_hidden and path.suffix.lower() in images.suffixes() and path.is_file()


def _pictures(root: Path) -> Iterator[Path]:
    """Yield the pictures below a folder. Links are followed, but no folder is entered twice: links may form a loop."""
    visited = set()
    for folder, subfolders, files in os.walk(root, followlinks=True):
        visited.add(os.path.realpath(folder))
        to_enter = []
        for name in subfolders:
            if not name.startswith(".") and os.path.realpath(Path(folder, name)) not in visited:
                to_enter.append(name)
        subfolders[:] = sorted(to_enter)  # os.walk enters what is left in its list
        for file in files:
            suffix = os.path.splitext(file)[1].lower()
            if not file.startswith(".") and suffix in images.suffixes():
                yield Path(folder, file)


def _examples() -> str:
    suffixes = [s for s in (".jpg", ".png", ".webp", ".tif", ".bmp") if s in images.suffixes()]
    return ", ".join(suffixes) + ", …"


def _readable(name: str) -> str:
    """Return a file name as valid Unicode, whatever bytes it has on disk."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def open_pictures(
    name: str,
    paths: Sequence[Path],
    ids: Sequence[str],
    how: How,
    labels: Sequence[int | None] | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Return a data set of the pictures in the files at `paths`, with the given ids, labels and class names."""
    return encoded(name, ids, partial(_pick, paths), how, labels, class_names)


def encoded(
    name: str,
    ids: Sequence[str],
    fetch: Fetch,
    how: How,
    labels: Iterable[Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Return a data set of encoded pictures (JPEG, PNG, …), which are decoded when they are read.

    `fetch` returns for positions the file or bytes of each picture, or why there are none. Pictures are decoded in
    several threads, since Pillow lets other threads run while it decodes.
    """
    data = Data(
        name=name,
        ids=tuple(ids),
        readers=partial(_decoders, fetch, how),
        content=partial(_content, fetch, how),
        kind="image",
        shape=None if how.pictures is None else (3, how.pictures, how.pictures),
        class_names=None if class_names is None else tuple(class_names),
        labels=whole_labels(labels, name),
        threads=min(8, os.cpu_count() or 1),
    )
    return data.knowing_shape() if data.shape is None else data


def _decoders(fetch: Fetch, how: How, positions: Sequence[int]) -> list[Reader]:
    return [partial(_decode, source, how) for source in fetch(positions)]


def _decode(source: Path | bytes | Exception, how: How) -> Sample:
    """Return a decoded picture of the size in `how`, with the sha256 of its file."""
    content = _bytes(source)
    digest = hashlib.sha256(content).hexdigest()
    return Sample(images.decode(content, how.pictures, how.resize), digest=digest)


def _bytes(source: Path | bytes | Exception) -> bytes:
    """Return the encoded picture. A pipe or a device is not opened: reading it may never end."""
    if isinstance(source, Exception):
        raise source
    if isinstance(source, bytes):
        return source
    status = source.stat()
    if not stat.S_ISREG(status.st_mode):
        raise ValueError("not a file, but a folder, a pipe or a device")
    if status.st_size > LARGEST_PICTURE:
        raise ValueError(
            f"the picture has {status.st_size} bytes; at most {LARGEST_PICTURE} are read"
        )
    return source.read_bytes()


def _pick(paths: Sequence[Path], positions: Sequence[int]) -> list[Path | bytes | Exception]:
    return [paths[i] for i in positions]


def _content(fetch: Fetch, how: How, positions: Sequence[int]) -> Iterator[bytes]:
    """Yield a digest of the bytes of each picture; for one that cannot be read, the kind of its error."""
    yield repr(how).encode()
    for start in range(0, len(positions), _AT_ONCE):
        for source in fetch(positions[start : start + _AT_ONCE]):
            try:
                yield hashlib.sha256(retry(partial(_bytes, source))).digest()
            except images.READ_ERRORS as error:
                yield unreadable(error, source)


def open_npz(path: Path, how: How, label: str | None = None) -> Data:
    """Open the arrays of an archive: `x` (or images, data), and if present `y` (or label, labels), ids and classes.

    `label` names another array of labels.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read {str(path)!r} as .npz of plain arrays: {error}") from error
    if label not in (None, NO_LABEL) and label not in arrays:
        raise unknown(f"array of {str(path)!r}", label, arrays)
    labels = _first_of(arrays, ("y", "label", "labels") if label is None else (label,))
    if labels is not None:
        labels = np.atleast_1d(labels)
    ids = _texts(_first_of(arrays, ("ids", "id")))
    class_names = _texts(arrays.get("classes"))
    if "jpeg" in arrays and "offsets" in arrays:
        return _open_blobs(path, arrays["jpeg"], arrays["offsets"], how, labels, ids, class_names)
    x = _first_of(arrays, ("x", "images", "data"))
    if x is None:
        raise UserError(
            f"{str(path)!r} has arrays {', '.join(arrays) or 'none'}; one of x, images, data was expected, "
            "or jpeg with offsets"
        )
    aux = aux_arrays(arrays, x, str(path))
    samples: Tensor | np.ndarray[Any, Any] = x
    if x.dtype == np.uint8 and "attention_mask" not in aux:
        samples = _bytes_as_pixels(torch.from_numpy(x), str(path), how)
    return open_arrays(
        path.stem, samples, how, labels=labels, ids=ids, class_names=class_names, aux=aux
    )


def _bytes_as_pixels(x: Tensor, what: str, how: How) -> Tensor:
    """Return bytes 0–255 as (N, C, H, W) floats: channels moved forward, alpha laid over white, a grey axis added."""
    if how.shape is not None:
        return reshaped(x, how.shape).to(torch.float32) / 255
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4:
        shape = FLATTENED.get(x.shape[1]) if x.ndim == 2 else None
        example = f"shape={list(shape)}" if shape else "shape=[3, height, width]"
        raise UserError(
            f"{what!r} holds bytes of shape {tuple(x.shape)}: say what each row is, for instance {example}"
        )
    channel_counts = (1, 3, 4)
    if x.shape[-1] in channel_counts and x.shape[1] not in channel_counts:
        x = x.permute(0, 3, 1, 2)
    pixels = x.to(torch.float32) / 255
    return images.over_white(pixels) if pixels.shape[1] == 4 else pixels


def _open_blobs(
    path: Path,
    blob: np.ndarray[Any, Any],
    offsets: np.ndarray[Any, Any],
    how: How,
    labels: Iterable[Any] | None,
    ids: Sequence[str] | None,
    names: Sequence[str] | None,
) -> Data:
    """Open encoded pictures stored end to end in one array: picture i is the bytes offsets[i] to offsets[i + 1]."""
    is_blob = blob.ndim == 1 and blob.dtype == np.uint8
    are_positions = offsets.ndim == 1 and offsets.dtype.kind in "iu" and len(offsets) >= 2
    is_inside = are_positions and offsets[0] >= 0 and offsets[-1] <= len(blob)
    if not is_blob or not is_inside or (np.diff(offsets) < 0).any():
        raise UserError(
            f"{str(path)!r}: `jpeg` must be bytes and `offsets` rising positions in it, one more than pictures"
        )
    count = len(offsets) - 1
    ids = numbered(count) if ids is None else ids
    if len(ids) != count:
        raise UserError(f"{str(path)!r} has {count} pictures but {len(ids)} ids")
    return encoded(path.stem, ids, partial(_slices, blob, offsets), how, labels, names)


def _slices(
    blob: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], positions: Sequence[int]
) -> list[Path | bytes | Exception]:
    return [blob[offsets[i] : offsets[i + 1]].tobytes() for i in positions]


def _split_folders(root: Path) -> dict[str, Path]:
    """Return the subfolders of splits (train, val, …) that have pictures, by name.

    If there are pictures or other folders beside them, the folder is not divided into splits and none is returned.
    """
    folders = {}
    for path in root.iterdir():
        if path.is_dir() and not path.name.startswith("."):
            folders[path.name] = path
        elif _is_picture(path):
            return {}
    if not all(name.lower() in SPLITS for name in folders):
        return {}
    return {name: path for name, path in folders.items() if next(_pictures(path), None) is not None}


def _first_of(arrays: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the array under the first name that there is; None where there is none."""
    for name in names:
        if name in arrays:
            return arrays[name]
    return None


def _texts(array: np.ndarray[Any, Any] | None) -> tuple[str, ...] | None:
    return None if array is None else tuple(map(str, array.ravel().tolist()))

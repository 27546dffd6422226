"""Data in files: folders of pictures, and `.npz`."""

from __future__ import annotations

import hashlib
import os
import stat
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
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
_AT_ONCE = 64
LARGEST_PICTURE = 2**28
"""Bytes of an encoded picture beyond which it is not read."""


def existing(path: Path) -> Path:
    """The absolute path of something that is there; otherwise an error with the names most like it.

    A name such as `shard-{000..012}.tar` stands for several files, all of which must be there.

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
    """Pictures below `root`, by relative path; classes are the top-level folders when every picture is in one.

    Where those folders are `train`, `val` and the like, `split` says which one. ImageNet keeps the numbers of its list.
    """
    folders = {
        path.name: path
        for path in root.iterdir()
        if path.is_dir() and not path.name.startswith(".")
    }
    if (
        folders
        and all(name.lower() in SPLITS for name in folders)
        and not any(map(_is_picture, root.iterdir()))
    ):
        held = {
            name: path for name, path in folders.items() if next(_pictures(path), None) is not None
        }
        if held:
            chosen = one_split(str(root), split, held)
            return replace(open_folder(chosen, how), name=f"{root.resolve().name}-{chosen.name}")
    if split is not None:
        raise UserError(
            f"{str(root)!r} has no folders of splits such as train and val, so split={split!r} names none"
        )
    found = sorted((path.relative_to(root).as_posix(), path) for path in _pictures(root))
    if not found:
        raise UserError(
            f"the folder {str(root)!r} has no pictures (looked below it for {_examples()})"
        )
    labels, names = _classes(root, [_readable(name) for name, _ in found])
    ids = [_readable(name) for name, _ in found]
    return open_pictures(root.resolve().name, [path for _, path in found], ids, how, labels, names)


def _classes(
    root: Path, pictures: Sequence[str]
) -> tuple[Sequence[int | None] | None, Sequence[str] | None]:
    known = imagenet_classes(root, pictures)
    if known is not None:
        return known
    if not all("/" in picture for picture in pictures):
        return None, None
    return ranked([picture.split("/")[0] for picture in pictures])


def _is_picture(path: Path) -> bool:
    return (
        not path.name.startswith(".")
        and path.suffix.lower() in images.suffixes()
        and path.is_file()
    )


def _pictures(root: Path) -> Iterator[Path]:
    seen = set()
    for folder, inner, files in os.walk(root, followlinks=True):
        seen.add(os.path.realpath(folder))
        real = {
            d: os.path.realpath(os.path.join(folder, d)) for d in inner if not d.startswith(".")
        }
        inner[:] = sorted(d for d, path in real.items() if path not in seen)
        for file in files:
            if not file.startswith(".") and os.path.splitext(file)[1].lower() in images.suffixes():
                yield Path(folder, file)


def _examples() -> str:
    return (
        ", ".join(s for s in (".jpg", ".png", ".webp", ".tif", ".bmp") if s in images.suffixes())
        + ", …"
    )


def _readable(name: str) -> str:
    """A file name as valid Unicode, whatever bytes it has on disk."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def open_pictures(
    name: str,
    paths: Sequence[Path],
    ids: Sequence[str],
    how: How,
    labels: Sequence[int | None] | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Pictures in the files at `paths`, with ids and labels of the caller's choice."""
    return encoded(name, ids, partial(_pick, paths), how, labels, class_names)


def encoded(
    name: str,
    ids: Sequence[str],
    fetch: Fetch,
    how: How,
    labels: Iterable[Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Pictures that are decoded in threads: Pillow lets others run while it works."""
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
    content = _bytes(source)
    digest = hashlib.sha256(content).hexdigest()
    return Sample(images.decode(content, how.pictures, how.resize), digest=digest)


def _bytes(source: Path | bytes | Exception) -> bytes:
    """The encoded picture; a pipe or a device under its name is not opened, for that may never end."""
    if isinstance(source, Exception):
        raise source
    if isinstance(source, bytes):
        return source
    facts = source.stat()
    if not stat.S_ISREG(facts.st_mode):
        raise ValueError("not a file, but a folder, a pipe or a device")
    if facts.st_size > LARGEST_PICTURE:
        raise ValueError(
            f"the picture has {facts.st_size} bytes; at most {LARGEST_PICTURE} are read"
        )
    return source.read_bytes()


def _pick(paths: Sequence[Path], positions: Sequence[int]) -> list[Path | bytes | Exception]:
    return [paths[i] for i in positions]


def _content(fetch: Fetch, how: How, positions: Sequence[int]) -> Iterator[bytes]:
    """A digest of every byte of each picture; of one that is no picture, why, as reading it will fail too."""
    yield repr(how).encode()
    for start in range(0, len(positions), _AT_ONCE):
        for source in fetch(positions[start : start + _AT_ONCE]):
            try:
                yield hashlib.sha256(retry(partial(_bytes, source))).digest()
            except images.READ_ERRORS as error:
                yield unreadable(error, source)


def open_npz(path: Path, how: How, label: str | None = None) -> Data:
    """Arrays of an archive: `x` (or images, data), if they are there `y` (or label, labels), ids and classes.

    `label` names another array of labels.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {key: archive[key] for key in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read {str(path)!r} as .npz of plain arrays: {error}") from error
    if label not in (None, NO_LABEL) and label not in found:
        raise unknown(f"array of {str(path)!r}", label, found)
    keys = ("y", "label", "labels") if label is None else (label,)
    labels = next((np.atleast_1d(found[key]) for key in keys if key in found), None)
    texts = {
        key: tuple(map(str, found[key].ravel().tolist()))
        for key in ("ids", "id", "classes")
        if key in found
    }
    ids, names = texts.get("ids", texts.get("id")), texts.get("classes")
    if "jpeg" in found and "offsets" in found:
        return _open_blobs(path, found["jpeg"], found["offsets"], how, labels, ids, names)
    x = next((found[key] for key in ("x", "images", "data") if key in found), None)
    if x is None:
        raise UserError(
            f"{str(path)!r} has arrays {', '.join(found) or 'none'}; one of x, images, data was expected, "
            "or jpeg with offsets"
        )
    aux = aux_arrays(found, x, str(path))
    if x.dtype == np.uint8 and "attention_mask" not in aux:
        x = _bytes_as_pixels(torch.from_numpy(x), str(path), how)
    return open_arrays(path.stem, x, how, labels=labels, ids=ids, class_names=names, aux=aux)


def _bytes_as_pixels(x: Tensor, what: str, how: How) -> Tensor:
    """Bytes 0–255 as (N, C, H, W) floats: channels moved forward, alpha laid over white, a grey axis added."""
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
    if x.shape[-1] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
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
    """Encoded pictures end to end: picture i is the bytes offsets[i] to offsets[i + 1]."""
    whole = (
        offsets.ndim == 1
        and offsets.dtype.kind in "iu"
        and blob.ndim == 1
        and blob.dtype == np.uint8
    )
    if (
        not whole
        or len(offsets) < 2
        or offsets[0] < 0
        or offsets[-1] > len(blob)
        or (np.diff(offsets) < 0).any()
    ):
        raise UserError(
            f"{str(path)!r}: `jpeg` must be bytes and `offsets` rising positions in it, one more than pictures"
        )
    ids = numbered(len(offsets) - 1) if ids is None else ids
    if len(ids) != len(offsets) - 1:
        raise UserError(f"{str(path)!r} has {len(offsets) - 1} pictures but {len(ids)} ids")
    return encoded(path.stem, ids, partial(_slices, blob, offsets), how, labels, names)


def _slices(
    blob: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], positions: Sequence[int]
) -> list[Path | bytes | Exception]:
    return [blob[offsets[i] : offsets[i + 1]].tobytes() for i in positions]

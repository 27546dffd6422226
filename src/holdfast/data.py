"""Data sets as holdfast sees them: stable ids first, samples decoded when they are asked for.

`open_data` accepts tensors, arrays, a `Batch`, any map-style Dataset, a folder of pictures, `.npz` and Parquet.
A sample that cannot be read is recorded with its error; it never stops the run and never leaves a gap.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import warnings
import zipfile
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import accumulate
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import IterableDataset

from holdfast import images
from holdfast.errors import UserError, nearest
from holdfast.images import Resize
from holdfast.types import Batch

Size = int | Literal["auto"] | None
_SAMPLED_ITEMS = 64
_PEEK = 8
_ID_DIGITS = 4
_END = 64 * 1024
_FLATTENED = {784: (1, 28, 28), 3072: (3, 32, 32), 12288: (3, 64, 64), 27648: (3, 96, 96), 150528: (3, 224, 224)}


class Sample(NamedTuple):
    """One decoded sample: `x` without a batch axis, its label (None: not known) and further tensors."""

    x: Tensor
    label: int | None = None
    aux: Mapping[str, Tensor] = {}


Reader = Callable[[], Sample]
Fetch = Callable[[Sequence[int]], "list[Path | bytes | Exception]"]


@dataclass(frozen=True)
class Loaded:
    """What came of reading some samples: the readable ones in order, and why the others (by id) are not."""

    batch: Batch
    errors: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: ids that never change, and a way to read the samples behind them.

    `shape` is that of one sample, None when the first samples cannot be read. `kind` is "image" for (C, H, W) pixels in
    [0, 1], else "array". `class_names` name the labels, not a model's outputs; a label of −1 means unknown.
    `readers(positions)` gives one function per sample; `content(n)` yields bytes that identify the first n samples.

    >>> data = open_data(torch.rand(5, 3, 8, 8), name="noise")
    >>> data.ids, data.shape, data.kind
    (('0000', '0001', '0002', '0003', '0004'), (3, 8, 8), 'image')
    >>> data.load([4, 0]).batch.ids, len(data.limit(2))
    (('0004', '0000'), 2)
    """

    name: str
    ids: tuple[str, ...]
    readers: Callable[[Sequence[int]], Sequence[Reader]]
    content: Callable[[int], Iterable[bytes]]
    kind: Literal["image", "array"]
    shape: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None
    labels: tuple[int, ...] | None = None
    threads: int = 1

    def __post_init__(self) -> None:
        if not self.ids:
            raise UserError(f"the data {self.name!r} is empty")
        repeated = [name for name, count in Counter(self.ids).items() if count > 1]
        if repeated:
            raise UserError(f"ids must be unique, but {self.name!r} repeats {', '.join(map(repr, repeated[:5]))}")
        if self.labels is not None and len(self.labels) != len(self.ids):
            raise UserError(f"{self.name!r} has {len(self.ids)} samples but {len(self.labels)} labels were given")

    def __len__(self) -> int:
        return len(self.ids)

    def limit(self, n: int) -> Data:
        """The first n samples, or all when there are fewer."""
        if n < 1:
            raise UserError(f"limit must be at least 1, got {n}")
        return replace(self, ids=self.ids[:n], labels=None if self.labels is None else self.labels[:n])

    def load(self, positions: Sequence[int]) -> Loaded:
        """Read the samples at `positions`, in that order.

        `batch.x` is (B, *shape) float32 and `batch.label` (B,) int64 or None; unreadable samples are in `errors`.
        """
        outcomes = self._read(positions)
        errors = {self.ids[i]: images.reason(o) for i, o in outcomes if not isinstance(o, Sample)}
        read = [(self.ids[i], self._labelled(i, o)) for i, o in outcomes if isinstance(o, Sample)]
        if not read:
            return Loaded(Batch(ids=(), x=torch.empty(0, *(self.shape or (0,)))), errors)
        first, shape = (read[0][0], tuple(read[0][1].x.shape)) if self.shape is None else (self.name, self.shape)
        for name, sample in read:
            if tuple(sample.x.shape) != shape:
                raise UserError(
                    f"samples must share one shape: {first!r} has {shape} but {name!r} has {tuple(sample.x.shape)}; "
                    "for pictures give a size"
                )
        samples = [sample for _, sample in read]
        known = any(sample.label is not None for sample in samples)
        label = torch.tensor([-1 if s.label is None else s.label for s in samples]) if known else None
        aux = {key: torch.stack([s.aux[key] for s in samples]) for key in samples[0].aux}
        return Loaded(Batch(tuple(name for name, _ in read), torch.stack([s.x for s in samples]), aux, label), errors)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the ids, the labels given, how samples are prepared, and the content.

        Content is every byte of tensors, arrays and `.npz`; size and the first and last 64 KiB of each file;
        up to 64 evenly spaced items of a Dataset. A Dataset whose items are random has no stable fingerprint.
        """
        digest = hashlib.sha256(repr((self.ids, self.labels)).encode())
        for part in self.content(len(self)):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def _read(self, positions: Sequence[int]) -> list[tuple[int, Sample | Exception]]:
        # The filter is set once, outside the worker threads, because the list of filters is shared by all threads.
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"PIL\.")  # odd metadata in a picture that can be read
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            readers = self.readers(positions)
            if self.threads == 1 or len(readers) == 1:
                return list(zip(positions, map(_attempt, readers), strict=True))
            with ThreadPoolExecutor(self.threads) as pool:
                return list(zip(positions, pool.map(_attempt, readers), strict=True))

    def _labelled(self, position: int, sample: Sample) -> Sample:
        return sample if self.labels is None else sample._replace(label=self.labels[position])

    def _knowing_shape(self) -> Data:
        """With kind and shape taken from the first sample that can be read, among a few."""
        for position in range(min(_PEEK, len(self))):
            sample = self._read([position])[0][1]
            if isinstance(sample, Sample):
                kind: Literal["image", "array"] = "image" if sample.x.ndim == 3 else "array"
                return replace(self, kind=kind, shape=tuple(sample.x.shape))
        return self


def _attempt(reader: Reader) -> Sample | Exception:
    try:
        return reader()
    except UserError:
        raise
    except images.READ_ERRORS as error:
        return error


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
        data = replace(data, labels=_labels(ordered, data.name), class_names=None)
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
    return _files(name, paths, ids, _how(size, resize, None), labels)


def _dispatch(source: Any, size: Size, resize: Resize, shape: tuple[int, ...] | None) -> Data:
    how = _how(size, resize, shape)
    if isinstance(source, Data):
        if size != "auto" or shape is not None:
            raise UserError(f"{source.name!r} is open already; give size and shape where it is opened")
        return source
    if isinstance(source, str | os.PathLike):
        return _open_path(Path(source).expanduser(), how)
    if isinstance(source, Batch):
        return _arrays("data", source.x, how, labels=source.label, ids=source.ids, aux=source.aux)
    if isinstance(source, Tensor | np.ndarray):
        return _arrays("data", source, how)
    if isinstance(source, tuple) and len(source) == 2 and all(isinstance(s, Tensor | np.ndarray) for s in source):
        return _arrays("data", source[0], how, labels=source[1])
    by_position = hasattr(source, "__getitem__") and hasattr(source, "__len__")
    if by_position and not isinstance(source, (Mapping, IterableDataset)):
        return _open_dataset(source, how)
    raise UserError(
        f"cannot read data from {type(source).__name__}; give a tensor, (x, y), a Batch, a path, or a Dataset with "
        "__getitem__ and __len__ (of a DataLoader, its .dataset)"
    )


class _How(NamedTuple):
    """How samples are prepared; its text is part of the fingerprint."""

    arrays: int | None
    pictures: int | None
    resize: Resize
    shape: tuple[int, ...] | None


def _how(size: Size, resize: Resize, shape: tuple[int, ...] | None) -> _How:
    return _How(None if size == "auto" else size, 224 if size == "auto" else size, resize, shape)


def _numbered(n: int) -> tuple[str, ...]:
    return tuple(str(i).zfill(max(_ID_DIGITS, len(str(n - 1)))) for i in range(n))


def _label(value: Any, what: str) -> int:
    """A label as an int; None, a missing one, is −1."""
    if value is None:
        return -1
    single = isinstance(value, Tensor | np.ndarray | np.generic) and math.prod(value.shape) == 1
    number = value.item() if single else value
    if not isinstance(number, int | float) or not math.isfinite(number) or number != int(number):
        raise UserError(f"{what} must be one whole number, got {type(value).__name__} {str(value)[:60]}")
    return int(number)


def _labels(values: Iterable[Any] | None, what: str) -> tuple[int, ...] | None:
    return None if values is None else tuple(_label(value, f"label {i} of {what}") for i, value in enumerate(values))


def _arrays(
    name: str,
    x: Tensor | np.ndarray[Any, Any],
    how: _How,
    *,
    labels: Iterable[Any] | None = None,
    ids: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    aux: Mapping[str, Tensor] | None = None,
) -> Data:
    x = _as_tensor(x)
    if how.shape is not None:
        x = _reshaped(x, how.shape)
    if x.ndim < 2:
        raise UserError(f"{name!r} has shape {tuple(x.shape)}; samples go along the first axis and need one more")
    if x.ndim == 4:
        x = images.check_pixels(x, f"{name!r}", any_channels=how.shape is not None)
        x = x if how.arrays is None else images.resize_tensor(x, how.arrays, how.resize)
    else:
        x = _checked_array(x, name, how)
    x, aux = x.detach().cpu(), {key: value.detach().cpu() for key, value in (aux or {}).items()}
    return Data(
        name=name,
        ids=_numbered(len(x)) if ids is None else tuple(ids),
        readers=partial(_array_readers, x, aux),
        content=partial(_array_content, x, aux, how),
        kind="image" if x.ndim == 4 else "array",
        shape=tuple(x.shape[1:]),
        class_names=None if class_names is None else tuple(class_names),
        labels=_labels(labels, name),
    )


def _as_tensor(x: Tensor | np.ndarray[Any, Any]) -> Tensor:
    if isinstance(x, Tensor):
        return x
    if x.dtype.kind not in "biuf":
        raise UserError(f"an array of numbers was expected, got dtype {x.dtype}")
    return torch.from_numpy(np.require(x.astype(x.dtype.newbyteorder("="), copy=False), requirements=["C", "W"]))


def _reshaped(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if x.ndim < 1 or math.prod(x.shape[1:]) != math.prod(shape):
        raise UserError(f"shape={list(shape)} does not fit samples of shape {tuple(x.shape[1:])}")
    return x.reshape(len(x), *shape)


def _checked_array(x: Tensor, name: str, how: _How) -> Tensor:
    if how.arrays is not None:
        raise UserError(f"size={how.arrays} is for pictures, but {name!r} has samples of shape {tuple(x.shape[1:])}")
    picture = _FLATTENED.get(x.shape[1]) if x.ndim == 2 and how.shape is None else None
    if picture is not None:
        raise UserError(
            f"{name!r} has rows of {x.shape[1]} numbers, which look like flattened pictures of {picture}; "
            f"give shape={list(picture)}, or shape=[{x.shape[1]}] if they are just numbers"
        )
    if not x.is_floating_point():
        raise UserError(f"{name!r} holds {str(x.dtype).removeprefix('torch.')}; give floating-point numbers")
    if not bool(torch.isfinite(x).all()):
        raise UserError(f"{name!r} has values that are not finite (NaN or infinite)")
    return x.to(torch.float32)


def _array_readers(x: Tensor, aux: Mapping[str, Tensor], positions: Sequence[int]) -> list[Reader]:
    return [partial(Sample, x[i], None, {key: value[i] for key, value in aux.items()}) for i in positions]


def _array_content(x: Tensor, aux: Mapping[str, Tensor], how: _How, n: int) -> Iterator[bytes]:
    yield repr(how).encode()
    for key, tensor in {"": x, **aux}.items():
        yield f"{key}|{tensor.dtype}|{tuple(tensor.shape[1:])}".encode()
        for start in range(0, n, 256):
            rows = tensor[start : min(start + 256, n)].contiguous()
            yield rows.reshape(-1).view(torch.uint8).numpy().tobytes()


def _open_dataset(dataset: Any, how: _How) -> Data:
    name, n = type(dataset).__name__, len(dataset)
    ids = getattr(dataset, "ids", None)
    if ids is not None and len(ids) != n:
        raise UserError(f"{name} has {n} items but {len(ids)} ids")
    return Data(
        name=name,
        ids=_numbered(n) if ids is None else tuple(map(str, ids)),
        readers=partial(_item_readers, dataset, how),
        content=partial(_item_content, dataset, how),
        kind="image",
    )._knowing_shape()


def _item_readers(dataset: Any, how: _How, positions: Sequence[int]) -> list[Reader]:
    return [partial(_item, dataset, how, i) for i in positions]


def _item(dataset: Any, how: _How, position: int) -> Sample:
    what = f"item {position} of {type(dataset).__name__}"
    value, label = _x_and_label(dataset[position], what)
    label = None if label is None else _label(label, f"the label of {what}")
    if isinstance(value, Image.Image):
        return Sample(images.decode(value, how.pictures, how.resize), label)
    if not isinstance(value, Tensor | np.ndarray):
        raise UserError(f"{what} holds {type(value).__name__}; a tensor, an array or a Pillow image was expected")
    x = _as_tensor(value).detach().cpu()[None]
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise ValueError("values that are not finite (NaN or infinite)")
    if how.shape is not None:
        x = _reshaped(x, how.shape)
    if x.ndim != 4:
        return Sample(_checked_array(x, what, how)[0], label)
    x = images.check_pixels(x, what, any_channels=how.shape is not None)
    return Sample((x if how.arrays is None else images.resize_tensor(x, how.arrays, how.resize))[0], label)


def _x_and_label(item: Any, what: str) -> tuple[Any, Any]:
    if isinstance(item, Mapping):
        x = next((item[key] for key in ("image", "x", "pixel_values") if key in item), None)
        if x is None:
            raise UserError(f"{what} has keys {', '.join(map(str, item))}; one of image, x, pixel_values was expected")
        return x, next((item[key] for key in ("label", "labels") if key in item), None)
    if isinstance(item, tuple | list):
        if not item:
            raise UserError(f"{what} is empty")
        return item[0], item[1] if len(item) > 1 else None
    return item, None


def _item_content(dataset: Any, how: _How, n: int) -> Iterator[bytes]:
    yield repr((how, n)).encode()
    for position in sorted({round(i * (n - 1) / (_SAMPLED_ITEMS - 1)) for i in range(_SAMPLED_ITEMS)}):
        sample = _attempt(partial(_item, dataset, how, position))
        if isinstance(sample, Sample):
            yield f"{position}|{sample.label}|{tuple(sample.x.shape)}".encode()
            yield sample.x.contiguous().numpy().tobytes()
        else:
            yield f"{position}|{type(sample).__name__}".encode()


def existing(path: Path) -> Path:
    """The absolute path of something that is there; otherwise an error with the names most like it.

    >>> existing(Path(".")).is_absolute()
    True
    """
    path = path.absolute()
    if path.exists():
        return path
    missing = next(p for p in (path, *path.parents) if p.parent.is_dir())
    close = nearest(missing.name, (p.name for p in missing.parent.iterdir()), n=3)
    hint = f"did you mean {', '.join(close)}?" if close else "nothing there has a similar name"
    raise UserError(f"there is no file or folder {missing.name!r} in {str(missing.parent)!r}; {hint}")


def _open_path(path: Path, how: _How) -> Data:
    if existing(path).is_dir():
        return _open_folder(path, how)
    suffix = path.suffix.lower()
    if suffix == ".npz":
        return _open_npz(path, how)
    if suffix in (".parquet", ".pq"):
        return _open_parquet(path, how)
    if suffix in images.suffixes():
        return _files(path.stem, [path], [path.name], how)
    raise UserError(f"cannot read {str(path)!r}; give a folder of pictures, a picture, .npz or .parquet")


def _open_folder(root: Path, how: _How) -> Data:
    """Pictures below `root`, by relative path; classes are the top-level folders when every picture is in one."""
    found = sorted((path.relative_to(root).as_posix(), path) for path in _pictures(root))
    if not found:
        raise UserError(f"the folder {str(root)!r} has no pictures (looked below it for {_examples()})")
    tops = [name.split("/")[0] if "/" in name else None for name, _ in found]
    labels, names = None, None
    if None not in tops:
        names = sorted({_readable(top) for top in tops if top is not None})
        labels = [names.index(_readable(top)) for top in tops if top is not None]
    ids = [_readable(name) for name, _ in found]
    return _files(root.resolve().name, [path for _, path in found], ids, how, labels, names)


def _pictures(root: Path) -> Iterator[Path]:
    seen = set()
    for folder, inner, files in os.walk(root, followlinks=True):
        seen.add(os.path.realpath(folder))
        inner[:] = sorted(
            d for d in inner if not d.startswith(".") and os.path.realpath(os.path.join(folder, d)) not in seen
        )
        for file in files:
            if not file.startswith(".") and os.path.splitext(file)[1].lower() in images.suffixes():
                yield Path(folder, file)


def _examples() -> str:
    return ", ".join(s for s in (".jpg", ".png", ".webp", ".tif", ".bmp") if s in images.suffixes()) + ", …"


def _readable(name: str) -> str:
    """A file name as valid Unicode, whatever bytes it has on disk."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _files(
    name: str,
    paths: Sequence[Path],
    ids: Sequence[str],
    how: _How,
    labels: Sequence[int] | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Pictures in files; the fingerprint looks at the size and both ends of each."""
    return _encoded(name, ids, partial(_pick, paths), partial(_file_content, paths, how), how, labels, class_names)


def _encoded(
    name: str,
    ids: Sequence[str],
    fetch: Fetch,
    content: Callable[[int], Iterable[bytes]],
    how: _How,
    labels: Iterable[Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Pictures that are decoded in threads: Pillow lets others run while it works."""
    data = Data(
        name=name,
        ids=tuple(ids),
        readers=partial(_decoders, fetch, how),
        content=content,
        kind="image",
        shape=None if how.pictures is None else (3, how.pictures, how.pictures),
        class_names=None if class_names is None else tuple(class_names),
        labels=_labels(labels, name),
        threads=min(8, os.cpu_count() or 1),
    )
    return data._knowing_shape() if data.shape is None else data


def _decoders(fetch: Fetch, how: _How, positions: Sequence[int]) -> list[Reader]:
    return [partial(_decode, source, how) for source in fetch(positions)]


def _decode(source: Path | bytes | Exception, how: _How) -> Sample:
    if isinstance(source, Exception):
        raise source
    return Sample(images.decode(source, how.pictures, how.resize))


def _pick(paths: Sequence[Path], positions: Sequence[int]) -> list[Path | bytes | Exception]:
    return [paths[i] for i in positions]


def _file_content(paths: Sequence[Path], how: _How, n: int) -> Iterator[bytes]:
    yield repr(how).encode()
    for path in paths[:n]:
        try:
            yield _ends(path)
        except OSError as error:  # reading it will fail too, and is recorded then
            yield type(error).__name__.encode()


def _ends(path: Path) -> bytes:
    """Size, first and last 64 KiB of a file."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        head = file.read(_END)
        file.seek(max(len(head), size - _END))
        return size.to_bytes(8, "little") + head + file.read(_END)


def _open_npz(path: Path, how: _How) -> Data:
    try:
        with np.load(path, allow_pickle=False) as archive:
            found = {key: archive[key] for key in archive.files}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read {str(path)!r} as .npz of plain arrays: {error}") from error
    labels = next((found[key] for key in ("y", "label", "labels") if key in found), None)
    ids = next((tuple(map(str, found[key].tolist())) for key in ("ids", "id") if key in found), None)
    names = tuple(map(str, found["classes"].tolist())) if "classes" in found else None
    if "jpeg" in found and "offsets" in found:
        return _open_blobs(path, found["jpeg"], found["offsets"], how, labels, ids, names)
    x = next((found[key] for key in ("x", "images", "data") if key in found), None)
    if x is None:
        raise UserError(
            f"{str(path)!r} has arrays {', '.join(found) or 'none'}; one of x, images, data was expected, "
            "or jpeg with offsets"
        )
    if x.dtype == np.uint8:
        x = _bytes_as_pixels(torch.from_numpy(x), str(path), how)
    return _arrays(path.stem, x, how, labels=labels, ids=ids, class_names=names)


def _bytes_as_pixels(x: Tensor, what: str, how: _How) -> Tensor:
    """Bytes 0–255 as (N, C, H, W) floats: channels moved forward, alpha laid over white, a grey axis added."""
    if how.shape is not None:
        return _reshaped(x, how.shape).to(torch.float32) / 255
    if x.ndim == 3:
        x = x[:, None]
    if x.ndim != 4:
        shape = _FLATTENED.get(x.shape[1]) if x.ndim == 2 else None
        example = f"shape={list(shape)}" if shape else "shape=[3, height, width]"
        raise UserError(f"{what!r} holds bytes of shape {tuple(x.shape)}: say what each row is, for instance {example}")
    if x.shape[-1] in (1, 3, 4) and x.shape[1] not in (1, 3, 4):
        x = x.permute(0, 3, 1, 2)
    pixels = x.to(torch.float32) / 255
    return images.over_white(pixels) if pixels.shape[1] == 4 else pixels


def _open_blobs(
    path: Path,
    blob: np.ndarray[Any, Any],
    offsets: np.ndarray[Any, Any],
    how: _How,
    labels: Iterable[Any] | None,
    ids: Sequence[str] | None,
    names: Sequence[str] | None,
) -> Data:
    """Encoded pictures end to end: picture i is the bytes offsets[i] to offsets[i + 1]."""
    whole = offsets.ndim == 1 and offsets.dtype.kind in "iu" and blob.ndim == 1 and blob.dtype == np.uint8
    if not whole or len(offsets) < 2 or offsets[0] < 0 or offsets[-1] > len(blob) or (np.diff(offsets) < 0).any():
        raise UserError(
            f"{str(path)!r}: `jpeg` must be bytes and `offsets` rising positions in it, one more than pictures"
        )
    ids = _numbered(len(offsets) - 1) if ids is None else ids
    return _encoded(
        path.stem, ids, partial(_slices, blob, offsets), partial(_blob_content, blob, offsets, how), how, labels, names
    )


def _slices(
    blob: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], positions: Sequence[int]
) -> list[Path | bytes | Exception]:
    return [blob[offsets[i] : offsets[i + 1]].tobytes() for i in positions]


def _blob_content(blob: np.ndarray[Any, Any], offsets: np.ndarray[Any, Any], how: _How, n: int) -> Iterator[bytes]:
    yield repr(how).encode()
    yield np.diff(offsets[: n + 1]).astype(np.int64).tobytes()
    yield blob[offsets[0] : offsets[n]].tobytes()


def _open_parquet(path: Path, how: _How) -> Data:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema, n = file.schema_arrow, file.metadata.num_rows
            sizes = [file.metadata.row_group(g).num_rows for g in range(file.num_row_groups)]
            if "image" not in schema.names:
                raise UserError(f"{str(path)!r} has columns {', '.join(schema.names)}; a column `image` was expected")
            kind = schema.field("image").type
            struct = pa.types.is_struct(kind) and kind.get_field_index("bytes") >= 0
            if not struct and not (pa.types.is_binary(kind) or pa.types.is_large_binary(kind)):
                raise UserError(f"{str(path)!r}: `image` is {kind}; binary or a struct with `bytes` was expected")
            small = {
                key: file.read(columns=[key]).column(0).to_pylist() for key in ("id", "label") if key in schema.names
            }
            ids = small.get("id")
            if ids is None and struct and kind.get_field_index("path") >= 0:
                paths = [row["path"] for row in file.read(columns=["image.path"]).column(0).to_pylist()]
                ids = paths if None not in paths and len(set(paths)) == n else None
    except pa.ArrowException as error:
        raise UserError(f"cannot read {str(path)!r} as Parquet: {error}") from error
    return _encoded(
        path.stem,
        _numbered(n) if ids is None else tuple(map(str, ids)),
        partial(_rows, path, (0, *accumulate(sizes))),
        partial(_parquet_content, path, how),
        how,
        small.get("label"),
        _hub_names(schema.metadata),
    )


def _hub_names(metadata: Mapping[bytes, bytes] | None) -> tuple[str, ...] | None:
    """The class names that Hugging Face's writer stores beside the schema."""
    stored = json.loads((metadata or {}).get(b"huggingface", b"{}"))
    names = stored.get("info", {}).get("features", {}).get("label", {}).get("names")
    return None if names is None else tuple(map(str, names))


def _rows(path: Path, starts: Sequence[int], positions: Sequence[int]) -> list[Path | bytes | Exception]:
    """The encoded pictures at `positions`; each row group that holds one is read once."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    found: dict[int, bytes | Exception] = {}
    with pq.ParquetFile(path) as file:
        for group in sorted({bisect_right(starts, i) - 1 for i in positions}):
            wanted = [i for i in positions if starts[group] <= i < starts[group + 1]]
            try:
                column = file.read_row_group(group, columns=["image"]).column(0)
            except (OSError, pa.ArrowException) as error:
                found |= dict.fromkeys(wanted, OSError(f"row group {group} cannot be read: {error}"))
                continue
            for i in wanted:
                value = column[i - starts[group]].as_py()
                value = value["bytes"] if isinstance(value, dict) else value
                found[i] = ValueError("the row has no image bytes") if value is None else value
    return [found[i] for i in positions]


def _parquet_content(path: Path, how: _How, n: int) -> Iterator[bytes]:
    yield repr(how).encode()
    yield _ends(path)

"""A data set: stable ids, and samples that are read when they are asked for."""

from __future__ import annotations

import hashlib
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import torch
from PIL import Image
from torch import Tensor

from heatproof.data import images
from heatproof.data.images import Resize
from heatproof.errors import UserError, retry
from heatproof.types import Batch

Size = int | Literal["auto"] | None
_PEEK = 8
_ID_DIGITS = 4
READING_AHEAD = "heatproof-reader"
"""How the thread is called that reads the next shard."""


class Sample(NamedTuple):
    """One decoded sample: `x` without a batch axis, its label (None: not known), further tensors, and the SHA-256 of
    the bytes that it was decoded from, where there are any."""

    x: Tensor
    label: int | None = None
    aux: Mapping[str, Tensor] = {}
    digest: str = ""


Reader = Callable[[], Sample]


@dataclass(frozen=True)
class Loaded:
    """What came of reading some samples: the readable ones in order, and why the others (by id) are not.

    `transient` are those of the others that the storage failed to give, so that another day may; `digests` say what
    the readable ones (by id) were when they were read.
    """

    batch: Batch
    errors: Mapping[str, str] = field(default_factory=dict)
    transient: frozenset[str] = frozenset()
    digests: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Data:
    """A data set: ids that never change, and a way to read the samples behind them.

    `shape` is that of one sample, None when the first samples cannot be read. `kind` is "image" for (C, H, W) pixels in
    [0, 1], else "array". `class_names` name the labels, not a model's outputs; a label of −1 means unknown.
    `groups` name what samples belong together and are not independent, such as the patient of a beat. `prepared` says
    what was opened and how, for the manifest. `columns` name those of a DataFrame, `tokenizer` made texts token ids.
    `readers(positions)` gives one function per sample; `content(positions)` yields bytes that identify those samples.

    >>> from heatproof.data import open_data
    >>> data = open_data(torch.rand(5, 3, 8, 8), name="noise")
    >>> data.ids, data.shape, data.kind
    (('0000', '0001', '0002', '0003', '0004'), (3, 8, 8), 'image')
    >>> data.load([4, 0]).batch.ids, data.limit(2)
    (('0004', '0000'), Data(noise, 2 samples of shape (3, 8, 8)))
    """

    name: str
    ids: tuple[str, ...]
    readers: Callable[[Sequence[int]], Sequence[Reader]]
    content: Callable[[Sequence[int]], Iterable[bytes]]
    kind: Literal["image", "array"]
    shape: tuple[int, ...] | None = None
    class_names: tuple[str, ...] | None = None
    labels: tuple[int, ...] | None = None
    threads: int = 1
    groups: tuple[str, ...] | None = None
    prepared: Mapping[str, str | int] = field(default_factory=dict)
    columns: tuple[str, ...] | None = None
    tokenizer: Any = None

    def __post_init__(self) -> None:
        if not self.ids:
            raise UserError(f"the data {self.name!r} is empty")
        repeated = [name for name, count in Counter(self.ids).items() if count > 1]
        if repeated:
            raise UserError(
                f"ids must be unique, but {self.name!r} repeats {', '.join(map(repr, repeated[:5]))}"
            )
        if self.labels is not None and len(self.labels) != len(self.ids):
            raise UserError(
                f"{self.name!r} has {len(self.ids)} samples but {len(self.labels)} labels were given"
            )

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        shape = "unknown shape" if self.shape is None else f"shape {self.shape}"
        return f"Data({self.name}, {len(self)} samples of {shape})"

    def limit(self, n: int) -> Data:
        """The first n samples, or all when there are fewer."""
        if isinstance(n, bool) or not isinstance(n, int):
            raise UserError(f"limit must be a whole number, got {n!r}")
        if n < 1:
            raise UserError(f"limit must be at least 1, got {n}")
        return replace(self._with(range(min(n, len(self)))), prepared={**self.prepared, "limit": n})

    def _with(self, positions: Sequence[int]) -> Data:
        """The ids, labels and groups at these positions."""
        labels = None if self.labels is None else tuple(self.labels[i] for i in positions)
        groups = None if self.groups is None else tuple(self.groups[i] for i in positions)
        return replace(
            self, ids=tuple(self.ids[i] for i in positions), labels=labels, groups=groups
        )

    def grouped(self, by: Sequence[str] | Callable[[str], str] | int) -> Data:
        """The same samples, which belong together by name, by what a function makes of an id, or by a folder's level.

        Level 0 is the first folder of an id, 1 the second; a sample that lies less deep is a group by itself.

        >>> from heatproof.data import open_data
        >>> open_data(Batch(("ann/1", "ann/2", "bob/1"), torch.rand(3, 1, 8))).grouped(0).groups
        ('ann', 'ann', 'bob')
        """
        if isinstance(by, int):
            named = [(sample.split("/")[:-1], sample) for sample in self.ids]
            groups = tuple(
                "/".join(folders[: by + 1]) if len(folders) > by else own for folders, own in named
            )
        else:
            groups = (
                tuple(str(by(sample)) for sample in self.ids)
                if callable(by)
                else tuple(map(str, by))
            )
        if len(groups) != len(self):
            raise UserError(
                f"{self.name!r} has {len(self)} samples but {len(groups)} groups were given"
            )
        return replace(self, groups=groups)

    def only(self, positions: Sequence[int]) -> Data:
        """The samples at these positions, in that order.

        >>> from heatproof.data import open_data
        >>> open_data(torch.rand(5, 3, 8, 8)).only([4, 0]).load([0]).batch.ids
        ('0004',)
        """
        chosen = tuple(positions)
        return replace(
            self._with(chosen),
            readers=partial(_readers_of, self.readers, chosen),
            content=partial(_content_of, self.content, chosen),
        )

    def load(self, positions: Sequence[int]) -> Loaded:
        """Read the samples at `positions`, in that order.

        `batch.x` is (B, *shape) float32, for text int64, and `batch.label` (B,) int64 or None; what further tensors
        the samples have are in `batch.aux`; unreadable samples are in `errors`.
        """
        outcomes = self._read(positions)
        errors = {self.ids[i]: images.reason(o) for i, o in outcomes if not isinstance(o, Sample)}
        read = [(self.ids[i], self._labelled(i, o)) for i, o in outcomes if isinstance(o, Sample)]
        failed = frozenset(
            self.ids[i] for i, o in outcomes if not isinstance(o, Sample) and is_of_storage(o)
        )
        if not read:
            return Loaded(Batch(ids=(), x=torch.empty(0, *(self.shape or (0,)))), errors, failed)
        first, shape = (
            (read[0][0], tuple(read[0][1].x.shape))
            if self.shape is None
            else (self.name, self.shape)
        )
        for name, sample in read:
            if tuple(sample.x.shape) != shape:
                raise UserError(
                    f"samples must share one shape: {first!r} has {shape} but {name!r} has {tuple(sample.x.shape)}; "
                    "for pictures give a size"
                )
        samples = [sample for _, sample in read]
        known = any(sample.label is not None for sample in samples)
        label = (
            torch.tensor([-1 if s.label is None else s.label for s in samples]) if known else None
        )
        aux = {key: torch.stack([s.aux[key] for s in samples]) for key in samples[0].aux}
        x, ids = torch.stack([s.x for s in samples]), tuple(name for name, _ in read)
        batch = Batch(ids, x, aux, label, tokenizer=self.tokenizer)
        return Loaded(batch, errors, failed, {name: _digest(sample) for name, sample in read})

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the ids, the labels and groups given, how samples are prepared, and the content.

        Content is every byte of tensors, arrays, and files; up to 64 evenly spaced items of a Dataset, whose others
        are known by the digests of `load`. A Dataset whose items are random has no stable fingerprint.
        """
        known = (
            (self.ids, self.labels) if self.groups is None else (self.ids, self.labels, self.groups)
        )
        digest = hashlib.sha256(repr(known).encode())
        for part in self.content(range(len(self))):
            digest.update(len(part).to_bytes(8, "little") + part)
        return digest.hexdigest()

    def _read(self, positions: Sequence[int]) -> list[tuple[int, Sample | Exception]]:
        with decoding():
            readers = self.readers(positions)
            if self.threads == 1 or len(readers) == 1:
                return list(zip(positions, map(attempt, readers), strict=True))
            with ThreadPoolExecutor(self.threads) as pool:
                return list(zip(positions, pool.map(attempt, readers), strict=True))

    def _labelled(self, position: int, sample: Sample) -> Sample:
        return sample if self.labels is None else sample._replace(label=self.labels[position])

    def knowing_shape(self) -> Data:
        """With kind and shape taken from the first sample that can be read, among a few."""
        for position in range(min(_PEEK, len(self))):
            sample = self._read([position])[0][1]
            if isinstance(sample, Sample):
                kind: Literal["image", "array"] = "image" if sample.x.ndim == 3 else "array"
                return replace(self, kind=kind, shape=tuple(sample.x.shape))
        return self


def _digest(sample: Sample) -> str:
    """What a sample was: its bytes, or what it was decoded to, and its label."""
    digest = hashlib.sha256(f"{sample.digest}|{sample.label}".encode())
    for tensor in (
        () if sample.digest else (sample.x, *(sample.aux[key] for key in sorted(sample.aux)))
    ):
        digest.update(f"{tensor.dtype}|{tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def by_position(
    read: Callable[..., Sample], given: tuple[Any, ...], positions: Sequence[int]
) -> list[Reader]:
    """A reader for each position, which `read` takes after what all are given."""
    return [partial(read, *given, i) for i in positions]


def _readers_of(
    readers: Callable[[Sequence[int]], Sequence[Reader]],
    chosen: Sequence[int],
    positions: Sequence[int],
) -> Sequence[Reader]:
    return readers([chosen[i] for i in positions])


def _content_of(
    content: Callable[[Sequence[int]], Iterable[bytes]],
    chosen: Sequence[int],
    positions: Sequence[int],
) -> Iterable[bytes]:
    return content([chosen[i] for i in positions])


@contextmanager
def decoding() -> Iterator[None]:
    """Pillow's warnings while pictures are decoded: silence about odd metadata, an error for a decompression bomb.

    The list of filters is shared by all threads, so the thread that reads ahead relies on whoever started it.
    """
    if threading.current_thread().name.startswith(READING_AHEAD):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def attempt(reader: Reader) -> Sample | Exception:
    """A sample, or why it cannot be read; a user's mistake concerns all samples and is raised."""
    try:
        return retry(reader)
    except UserError:
        raise
    except images.READ_ERRORS as error:
        return error


def is_of_storage(error: Exception) -> bool:
    """Whether the file system or the network failed, rather than what was read being no sample.

    >>> is_of_storage(OSError(5, "Input/output error")), is_of_storage(OSError("image file is truncated"))
    (True, False)
    """
    return (
        isinstance(error, ConnectionError | TimeoutError)
        or getattr(error, "errno", None) is not None
    )


def unreadable(error: Exception, what: object) -> bytes:
    """What a sample that cannot be read is to the fingerprint of its data.

    Where the storage failed there is none: tomorrow the sample may be read, and the data would be other data.
    """
    if is_of_storage(error) and not isinstance(error, FileNotFoundError):
        raise UserError(
            f"{what} cannot be read, so the data cannot be told from others: {error}"
        ) from error
    return type(error).__name__.encode()


class How(NamedTuple):
    """How samples are prepared; its text is part of the fingerprint."""

    arrays: int | None
    pictures: int | None
    resize: Resize
    shape: tuple[int, ...] | None


def how_to(size: Size, resize: Resize, shape: tuple[int, ...] | None = None) -> How:
    """How to prepare samples for a `size`: "auto" leaves arrays as they are and makes pictures 224 pixels wide."""
    images.check_size(None if size == "auto" else size, resize)
    return How(None if size == "auto" else size, 224 if size == "auto" else size, resize, shape)


def numbered(n: int) -> tuple[str, ...]:
    """Ids for samples that have none, in an order that sorting keeps.

    >>> numbered(2)
    ('0000', '0001')
    """
    return tuple(str(i).zfill(max(_ID_DIGITS, len(str(n - 1)))) for i in range(n))


def not_pictures(name: str, how: How) -> None:
    """Refuse what only pictures and rows of numbers can be asked for."""
    if how.arrays is not None or how.shape is not None:
        raise UserError(f"size and shape are for pictures and arrays, which {name!r} does not hold")


def checked_length(length: int | None, longest: int) -> int:
    """How many elements every sample is padded to: what was asked for, else what the longest sample has."""
    if length is None:
        return max(longest, 1)
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise UserError(f"length must be a whole number of at least 1, got {length!r}")
    return length

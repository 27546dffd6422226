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
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from heatproof.data import images
from heatproof.data.images import Resize
from heatproof.errors import UserError, retry
from heatproof.types import Batch

if TYPE_CHECKING:
    from heatproof.data.frames import FrameColumns

Size = int | Literal["auto"] | None
_PEEK = 8
"""How many samples are tried to learn the shape of all."""
_ID_DIGITS = 4
READING_AHEAD = "heatproof-reader"
"""Name of the prefetch thread."""


class Sample(NamedTuple):
    """One decoded sample: `x` without a batch axis, its label (None: not known) and further tensors.

    `digest` is the SHA-256 of the bytes that it was decoded from, empty where there are none.
    """

    x: Tensor
    label: int | None = None
    aux: Mapping[str, Tensor] = {}
    digest: str = ""


Reader = Callable[[], Sample]


@dataclass(frozen=True)
class Loaded:
    """The result of reading some samples: the readable ones in order, and why the others (by id) could not be read.

    `transient` are the ids that the storage failed to give, so that a retry may succeed; `digests` identify the
    contents of the readable ones, by id.
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
    what was opened and how, for the manifest. `columns` name those of a DataFrame, and `frame` knows the way back to its
    rows; `tokenizer` made texts token ids.
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
    frame: FrameColumns | None = None

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
        """Return the first n samples, or all when there are fewer."""
        if isinstance(n, bool) or not isinstance(n, int):
            raise UserError(f"limit must be a whole number, got {n!r}")
        if n < 1:
            raise UserError(f"limit must be at least 1, got {n}")
        first = self._with(range(min(n, len(self))))
        return replace(first, prepared={**self.prepared, "limit": n})

    def _with(self, positions: Sequence[int]) -> Data:
        """Return the data with only the ids, labels and groups at these positions."""
        return replace(
            self,
            ids=tuple(self.ids[i] for i in positions),
            labels=None if self.labels is None else tuple(self.labels[i] for i in positions),
            groups=None if self.groups is None else tuple(self.groups[i] for i in positions),
        )

    def grouped(self, by: Sequence[str] | Callable[[str], str] | int) -> Data:
        """Return the same samples in groups: by name, by what a function makes of an id, or by the level of a folder.

        Level 0 is the first folder of an id, 1 the second; a sample that lies less deep is a group by itself.

        >>> from heatproof.data import open_data
        >>> open_data(Batch(("ann/1", "ann/2", "bob/1"), torch.rand(3, 1, 8))).grouped(0).groups
        ('ann', 'ann', 'bob')
        """
        groups: tuple[str, ...]
        if isinstance(by, int):
            groups = tuple(_folder_at(level=by, sample_id=sample_id) for sample_id in self.ids)
        elif callable(by):
            groups = tuple(str(by(sample_id)) for sample_id in self.ids)
        else:
            groups = tuple(map(str, by))
        if len(groups) != len(self):
            raise UserError(
                f"{self.name!r} has {len(self)} samples but {len(groups)} groups were given"
            )
        return replace(self, groups=groups)

    def only(self, positions: Sequence[int]) -> Data:
        """Return a data set of the samples at these positions, in that order; nothing is read.

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
        """Return the samples at `positions`, read from disk or memory, in that order.

        The result has a `batch` of the samples that could be read: `x` (B, *shape), float32 or int64 for texts, `label`
        (B,) int64 or None, and further tensors in `aux`. Samples that could not be read are in `errors` by id; those that
        may be readable later, as the storage failed and not the file, are named in `transient`. `digests` identify the
        content of the samples.
        """
        samples: list[tuple[str, Sample]] = []
        errors: dict[str, str] = {}
        transient: set[str] = set()
        for position, outcome in self._read(positions):
            sample_id = self.ids[position]
            if isinstance(outcome, Sample):
                samples.append((sample_id, self._labelled(position, outcome)))
            else:
                errors[sample_id] = images.reason(outcome)
                if is_of_storage(outcome):
                    transient.add(sample_id)
        if not samples:
            empty = Batch(ids=(), x=torch.empty(0, *(self.shape or (0,))))
            return Loaded(empty, errors, frozenset(transient))
        self._check_shapes(samples)
        digests = {sample_id: _digest(sample) for sample_id, sample in samples}
        return Loaded(self._stacked(samples), errors, frozenset(transient), digests)

    def _labelled(self, position: int, sample: Sample) -> Sample:
        """Return the sample with the label of the data set, if that has labels."""
        return sample if self.labels is None else sample._replace(label=self.labels[position])

    def _check_shapes(self, samples: Sequence[tuple[str, Sample]]) -> None:
        """Raise `UserError` for a sample whose shape is not that of the data, or of the first sample."""
        if self.shape is not None:
            first, shape = self.name, self.shape
        else:
            first, first_sample = samples[0]
            shape = tuple(first_sample.x.shape)
        for sample_id, sample in samples:
            if tuple(sample.x.shape) != shape:
                raise UserError(
                    f"samples must share one shape: {first!r} has {shape} but {sample_id!r} has "
                    f"{tuple(sample.x.shape)}; for pictures give a size"
                )

    def _stacked(self, samples: Sequence[tuple[str, Sample]]) -> Batch:
        """Return ids and samples as a batch; a missing label is −1, and where all are missing there is none."""
        ids = tuple(sample_id for sample_id, _ in samples)
        values = [sample for _, sample in samples]
        label = None
        if any(sample.label is not None for sample in values):
            label = torch.tensor([-1 if s.label is None else s.label for s in values])
        aux = {}
        for name in values[0].aux:
            aux[name] = torch.stack([sample.aux[name] for sample in values])
        x = torch.stack([sample.x for sample in values])
        return Batch(ids, x, aux, label, tokenizer=self.tokenizer)

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 that tells this data set from others: of the ids, labels, groups, preparation and content.

        The content is every byte of tensors, arrays and files; of a Dataset, which would have to be read as a whole, up to
        64 evenly spaced items. A Dataset whose items are random has no stable fingerprint.
        """
        description: tuple[Any, ...] = (self.ids, self.labels)
        if self.groups is not None:
            description = (self.ids, self.labels, self.groups)
        digest = hashlib.sha256(repr(description).encode())
        for block in self.content(range(len(self))):
            digest.update(len(block).to_bytes(8, "little") + block)
        return digest.hexdigest()

    def _read(self, positions: Sequence[int]) -> list[tuple[int, Sample | Exception]]:
        """Return a sample, or why it cannot be read, for each position; in threads where that is faster."""
        with decoding():
            readers = self.readers(positions)
            if self.threads == 1 or len(readers) == 1:
                outcomes = list(map(attempt, readers))
            else:
                with ThreadPoolExecutor(self.threads) as pool:
                    outcomes = list(pool.map(attempt, readers))
        return list(zip(positions, outcomes, strict=True))

    def knowing_shape(self) -> Data:
        """Return the data with kind and shape taken from the first sample that can be read, among a few."""
        for position in range(min(_PEEK, len(self))):
            [(_, sample)] = self._read([position])
            if isinstance(sample, Sample):
                kind: Literal["image", "array"] = "image" if sample.x.ndim == 3 else "array"
                return replace(self, kind=kind, shape=tuple(sample.x.shape))
        return self


def _digest(sample: Sample) -> str:
    """Return a digest that identifies a sample: of the bytes that it was read from, else of its tensors, and its label."""
    digest = hashlib.sha256(f"{sample.digest}|{sample.label}".encode())
    if not sample.digest:
        for tensor in (sample.x, *(sample.aux[name] for name in sorted(sample.aux))):
            digest.update(f"{tensor.dtype}|{tuple(tensor.shape)}".encode())
            flat = tensor.detach().cpu().contiguous().reshape(-1)
            digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()[:32]


def by_position(
    read: Callable[..., Sample], arguments: tuple[Any, ...], positions: Sequence[int]
) -> list[Reader]:
    """Return a reader for each position, which calls `read(*arguments, position)`."""
    return [partial(read, *arguments, position) for position in positions]


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
    """Handle Pillow's warnings while the context is open: odd metadata is ignored, a decompression bomb is an error.

    Python's list of warning filters is shared by all threads. So the thread that reads ahead leaves it alone and relies
    on the filters of the thread that started it.
    """
    if threading.current_thread().name.startswith(READING_AHEAD):
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"PIL\.")
        warnings.simplefilter("error", Image.DecompressionBombWarning)
        yield


def attempt(reader: Reader) -> Sample | Exception:
    """Return a sample, or the exception with which reading it failed.

    A `UserError` is raised: it is a mistake in how the data were opened, and so concerns all samples.
    """
    try:
        return retry(reader)
    except UserError:
        raise
    except images.READ_ERRORS as error:
        return error


def is_of_storage(error: Exception) -> bool:
    """Whether the file system or the network failed, as opposed to a file that is damaged.

    Errors of the operating system have a number; those that decoders raise have none.

    >>> is_of_storage(OSError(5, "Input/output error")), is_of_storage(OSError("image file is truncated"))
    (True, False)
    """
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    return getattr(error, "errno", None) is not None


def unreadable(error: Exception, what: object) -> bytes:
    """Return what a sample that cannot be read contributes to the fingerprint of its data: the type of the error.

    If the storage failed, as opposed to a damaged or missing file, the data have no fingerprint and this is an error:
    the sample may be readable later, and the fingerprint would then be another one.
    """
    if is_of_storage(error) and not isinstance(error, FileNotFoundError):
        raise UserError(
            f"{what} cannot be read, so the data cannot be told from others: {error}"
        ) from error
    return type(error).__name__.encode()


class How(NamedTuple):
    """How samples are prepared; its text is part of the fingerprint.

    `arrays` and `pictures` are the sizes to which pixels in tensors and encoded pictures are resized, None for no
    resizing; `shape` is that of one sample in rows of numbers.
    """

    arrays: int | None
    pictures: int | None
    resize: Resize
    shape: tuple[int, ...] | None


def how_to(size: Size, resize: Resize, shape: Sequence[int] | None = None) -> How:
    """Return how to prepare samples for a `size`: "auto" leaves arrays as they are and makes pictures 224 pixels wide.

    `shape` is that of one sample in rows of numbers.
    """
    shape = None if shape is None else checked_shape(shape)
    if size == "auto":
        images.check_size(None, resize)
        return How(None, 224, resize, shape)
    images.check_size(size, resize)
    return How(size, size, resize, shape)


def checked_shape(shape: Any) -> tuple[int, ...]:
    """Return the shape of a sample as a tuple; raise `UserError` unless it is a list of whole numbers from 1.

    >>> checked_shape([1, 96])
    (1, 96)
    >>> checked_shape("rows")
    Traceback (most recent call last):
    heatproof.errors.UserError: shape is a list of whole numbers from 1, such as [1, 96], got 'rows'
    """
    sizes = list(shape) if isinstance(shape, Sequence) and not isinstance(shape, str) else []
    are_sizes = [isinstance(n, int | np.integer) and n is not True and n >= 1 for n in sizes]
    if not sizes or not all(are_sizes):
        raise UserError(f"shape is a list of whole numbers from 1, such as [1, 96], got {shape!r}")
    return tuple(int(n) for n in sizes)


def numbered(n: int) -> tuple[str, ...]:
    """Return ids for samples that have none, in an order that sorting keeps.

    >>> numbered(2)
    ('0000', '0001')
    """
    digits = max(_ID_DIGITS, len(str(n - 1)))
    return tuple(str(i).zfill(digits) for i in range(n))


def not_pictures(name: str, how: How) -> None:
    """Raise `UserError` where pictures or rows of numbers were requested of data that hold neither."""
    if how.arrays is not None or how.shape is not None:
        raise UserError(f"size and shape are for pictures and arrays, which {name!r} does not hold")


def checked_length(length: int | None, longest: int) -> int:
    """Return how many elements every sample is padded to: `length`, else that of the longest sample."""
    if length is None:
        return max(longest, 1)
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise UserError(f"length must be a whole number of at least 1, got {length!r}")
    return length


def _folder_at(level: int, sample_id: str) -> str:
    """Return the path of an id down to a level of its folders; the id itself where it lies less deep."""
    folders = sample_id.split("/")[:-1]
    return "/".join(folders[: level + 1]) if len(folders) > level else sample_id

"""Training examples as a parameter of explainers: a set of samples with labels, loaded once."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar
from weakref import ReferenceType, ref

import torch
from pydantic import BeforeValidator
from torch import Tensor

from heatproof import rand
from heatproof.data import Data, open_data
from heatproof.data.images import Resize
from heatproof.data.sources import check_data_name
from heatproof.errors import UserError, only_known
from heatproof.models import Model
from heatproof.types import Batch, Explainer

KEPT_BYTES = 2**30
"""The most bytes of representations and gradients that are cached for one set of examples."""

_OPTIONS = ("source", "limit", "size", "resize", "shape", "name", "split", "label", "pad")
_PADDED = ("mask", "attention_mask")
_GOLDEN_RATIO = 0x9E3779B97F4A7C15 - (1 << 64)
"""2⁶⁴ / φ as a signed integer, whose multiples are spread evenly (Fibonacci hashing)."""
_T = TypeVar("_T")


class Examples:
    """Training samples with their labels, `batch` on the CPU, for explainers that tell which of them matter.

    Two sets are equal if their ids, values and labels are. The text form is short and contains a digest, so that a
    manifest can store it. Representations and gradients of the examples may be cached here between calls (`remember`),
    for one model at a time, up to 1 GiB, until its weights change.

    >>> batch = Batch(ids=("a", "b"), x=torch.zeros(2, 3), label=torch.tensor([0, 1]))
    >>> Examples(batch, name="pairs")
    Examples(2 of pairs, ec1e50f3)
    >>> Examples(batch) == Examples(batch, name="other"), len(Examples(batch))
    (True, 2)
    """

    def __init__(self, batch: Batch, name: str = "train") -> None:
        """Copy the samples, so that later changes of the given tensors do not matter, and begin with an empty cache."""
        if not isinstance(batch, Batch):
            raise UserError(f"Examples(...) needs a heatproof.Batch, got {type(batch).__name__}")
        if not len(batch):
            raise UserError(f"the training examples {name!r} are empty")
        aux = {key: _copy(value) for key, value in batch.aux.items()}
        self.batch = Batch(batch.ids, _copy(batch.x), aux, _copy(batch.label))
        self.name = name
        self._cache: OrderedDict[Hashable, Any] = OrderedDict()
        self._cached_model: ReferenceType[Model] | None = None

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of ids, values, auxiliary tensors and labels, with their types and shapes."""
        return self._digest(_bytes_of)

    @cached_property
    def name_digest(self) -> str:
        """A digest for names that is the same on every processor.

        The last bits of a float may depend on the machine that computed it, and a run must keep its name when it is
        resumed elsewhere. So float tensors enter with the mean and the standard deviation of each sample to four
        significant digits; ids, whole numbers, types and shapes enter as they are.
        """
        return self._digest(
            lambda tensor: (
                _rounded_moments(tensor).encode()
                if tensor.is_floating_point()
                else _bytes_of(tensor)
            )
        )

    def _digest(self, content: Callable[[Tensor], bytes]) -> str:
        """Return a sha256 of the examples: their ids, and names, types, shapes and content of all tensors.

        `content` turns a tensor into the bytes that count.
        """
        digest = hashlib.sha256(repr(self.batch.ids).encode())
        tensors = {"": self.batch.x, "|label": self.batch.label, **self.batch.aux}
        for name, tensor in sorted(tensors.items()):
            if tensor is not None:
                digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
                digest.update(content(tensor))
        return digest.hexdigest()

    def labels(self, method: str) -> Tensor:
        """Return the classes (n,) int64; raise for examples without labels, which `method` needs."""
        label = self.batch.label
        if label is None:
            raise UserError(
                f"{method} needs labelled training examples, but {self.name!r} has no labels"
            )
        unknown = int((label < 0).sum())
        if unknown:
            raise UserError(
                f"{method} needs labelled training examples, but {unknown} of the {len(self)} in {self.name!r} have "
                "no label"
            )
        return label.long()

    def check_shape(self, shape: Sequence[int]) -> None:
        """Raise unless samples of `shape` are like the examples; padded ones may differ in their number of elements."""
        expected, got = tuple(self.batch.x.shape[1:]), tuple(shape)
        if expected == got:
            return
        is_padded = any(name in self.batch.aux for name in _PADDED)
        if is_padded and len(expected) == len(got) and expected[1:] == got[1:]:
            return
        raise UserError(
            f"the training examples {self.name!r} have shape {expected}, but the samples to explain have {got}; "
            "prepare both the same way"
        )

    def remember(self, model: Model, key: Hashable, make: Callable[[], _T]) -> _T:
        """Return `make()`, or the cached value of an earlier call with the same model, weights and key.

        >>> examples = Examples(Batch(("a",), torch.ones(1, 2)))
        >>> model = Model(torch.nn.Linear(2, 2))
        >>> first = examples.remember(model, "zeros", lambda: torch.zeros(3))
        >>> first is examples.remember(model, "zeros", lambda: torch.zeros(3))
        True
        """
        if self._cached_model is None or self._cached_model() is not model:
            self._cache.clear()
            self._cached_model = ref(model)
        full_key = (key, str(model.device), model.precision, _weights_checksum(model))
        if full_key in self._cache:
            self._cache.move_to_end(full_key)
            cached: _T = self._cache[full_key]
            return cached
        value = make()
        if _byte_count(value) <= KEPT_BYTES:
            self._cache[full_key] = value
            # The least recently used values go first.
            while sum(map(_byte_count, self._cache.values())) > KEPT_BYTES:
                self._cache.popitem(last=False)
        return value

    def __len__(self) -> int:
        return len(self.batch)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Examples) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Examples({len(self)} of {self.name}, {self.name_digest[:8]})"

    def __str__(self) -> str:
        return self.name

    def __reduce__(self) -> tuple[type[Examples], tuple[Batch, str]]:
        return Examples, (self.batch, self.name)  # the cache belongs to a model of this process


def open_examples(
    source: Any,
    *,
    limit: int | None = None,
    size: Any = "auto",
    resize: Resize = "squash",
    shape: Sequence[int] | None = None,
    name: str | None = None,
    split: str | None = None,
    label: str | None = None,
    pad: int | None = None,
    folder: str | Path | None = None,
    allow_code: bool = False,
) -> Examples:
    """Load examples from a data name or path, or from anything that `open_data` takes.

    `limit` takes that many, chosen by a hash of their ids, because training files are often sorted by class. A relative
    path is relative to `folder` if that is given; the other parameters are those of `open_data`.

    >>> open_examples((torch.zeros(20, 3), torch.arange(20)), limit=4, name="few").batch.ids
    ('0006', '0010', '0017', '0018')
    """
    data = open_data(
        check_data_name(source, folder) if isinstance(source, str) else source,
        size=size,
        resize=resize,
        shape=shape,
        name=name,
        split=split,
        label=label,
        pad=pad,
        allow_code=allow_code,
    )
    if limit is not None and limit < 1:
        raise UserError(f"limit must be at least 1, got {limit}")
    chosen = rand.keys(0, data.ids, "examples").argsort()[:limit].sort().values.tolist()
    loaded = data.load(chosen)
    if loaded.errors:
        sample, reason = next(iter(loaded.errors.items()))
        raise UserError(
            f"{len(loaded.errors)} of the training examples in {data.name!r} cannot be read; the first is {sample}: "
            f"{reason}"
        )
    return Examples(loaded.batch, data.name)


def examples(value: Any, *, folder: str | Path | None = None, allow_code: bool = False) -> Any:
    """Load examples from a `Batch`, a data name or path, `{source: path, limit: 200}`, a `Data` or tensors (x, label).

    Relative paths are relative to `folder`; names that run code need `allow_code`. Any other value is returned as it
    is, for pydantic to reject.

    >>> examples(Batch(("a",), torch.zeros(1, 3)))
    Examples(1 of train, 6f0bf9e6)
    """
    if isinstance(value, Batch):
        return Examples(value)
    if isinstance(value, Mapping):
        only_known(value, _OPTIONS, "train")
        if "source" not in value:
            raise UserError(
                "train is a path or a mapping with the key source, such as {source: train.npz, limit: 200}"
            )
        return open_examples(**value, folder=folder, allow_code=allow_code)
    if isinstance(value, str | Path | Data | tuple | Tensor):
        source = str(value) if isinstance(value, Path) else value
        return open_examples(source, folder=folder, allow_code=allow_code)
    return value


ExamplesField = Annotated[Examples, BeforeValidator(examples)]
"""The type of a field that holds training examples and is also given by name in a study file."""


class ByExamples(Explainer):
    """Base class of explainers by training examples; none of them draws random numbers."""

    kind: ClassVar[Literal["example"]] = "example"


def _copy(tensor: Any) -> Any:
    return None if tensor is None else tensor.detach().cpu().contiguous().clone()


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.reshape(-1).view(torch.uint8).numpy().tobytes()


def _rounded_moments(tensor: Tensor) -> str:
    """Return mean and standard deviation of each sample as text, to four significant digits."""
    rows = tensor.reshape(len(tensor), -1).double()
    if not rows.shape[1]:
        return ""
    moments = torch.stack([rows.mean(1), rows.std(1, correction=0)], dim=1)
    return " ".join(f"{value:.3e}" for value in moments.flatten().tolist())


def _byte_count(value: Any) -> int:
    """Return the size in bytes of a tensor, or of all tensors in nested tuples and lists."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    return sum(map(_byte_count, value)) if isinstance(value, tuple | list) else 0


def _weights_checksum(model: Model) -> tuple[Any, ...]:
    """Return checksums of a model's weights, which change when the network is trained between two calls.

    PyTorch's version counters miss changes through `.data`. These sums of the bits, weighted by position and exact
    in whole numbers, cost one pass over the weights and no copy to another device.
    """
    sums = []
    for tensor in (*model.module.parameters(), *model.module.buffers()):
        flat = tensor.detach().contiguous().reshape(-1)
        words = flat.view(torch.int32) if flat.element_size() == 4 else flat.view(torch.uint8)
        for chunk in torch.split(words, 1 << 20):
            position = torch.arange(1, chunk.numel() + 1, device=chunk.device)
            # Knuth's multiplicative hash gives every position another weight, so that exchanged values show too.
            position_weight = (position * _GOLDEN_RATIO).bitwise_right_shift(7)
            sums.append((chunk * position_weight).sum())
    return tuple(torch.stack(sums).tolist()) if sums else ()

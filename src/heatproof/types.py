"""The contracts of data and explainers: batches of samples, what makes their maps, and how both are named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from pydantic import ConfigDict
from torch import Tensor

from heatproof.errors import UserError

if TYPE_CHECKING:
    from heatproof.models import Model

STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
"""Configuration of every parameter object: an unknown parameter is an error."""

Kind = Literal["image", "series", "table", "volume"]
ExplanationKind = Literal["feature", "example", "concept"]
KIND_BY_DIMENSIONS: dict[int, Kind] = {4: "volume", 3: "image", 2: "series", 1: "table"}
"""What samples with so many dimensions are, unless something beside them says more."""


@dataclass(frozen=True)
class Moved:
    """How samples were moved away from those that their ids name: `act(g, batch)` by elements g (B, …) of a group."""

    act: Callable[[Tensor, Batch], Batch]
    g: Tensor


@dataclass(frozen=True)
class Batch:
    """Samples with stable ids, in the data's own units.

    `x` is (B, …): pixels in [0, 1], time steps, points or token ids. The ids are the join key, the resume key and
    the source of randomness. `aux` holds further (B, …) tensors such as an attention mask, which the network takes by
    their names; those whose name begins with an underscore are for the task or the bench alone. `moved` is set
    where samples are others moved by a group under the same ids; random numbers that belong to places of the input then
    move along. `tokenizer` is what made texts token ids, where that is known.

    >>> batch = Batch(ids=("a", "b"), x=torch.zeros(2, 3, 8, 8))
    >>> len(batch), batch[1:].ids
    (2, ('b',))
    """

    ids: tuple[str, ...]
    x: Tensor
    aux: Mapping[str, Tensor] = field(default_factory=dict)
    label: Tensor | None = None
    moved: Moved | None = None
    tokenizer: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "ids", tuple(self.ids))
        for name, tensor in {"x": self.x, "label": self.label, **self.aux}.items():
            if tensor is not None and len(tensor) != len(self.ids):
                raise UserError(
                    f"Batch has {len(self.ids)} ids but {name} holds {len(tensor)} samples"
                )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: slice | Sequence[int] | Tensor) -> Batch:
        """The samples at a slice, a list of positions or a boolean mask, on whatever device."""
        positions = torch.arange(len(self))[index.cpu() if isinstance(index, Tensor) else index]
        return Batch(  # without waiting for the device
            ids=tuple(self.ids[i] for i in positions.tolist()),
            x=self.x[positions.to(self.x.device, non_blocking=True)],
            aux={
                name: tensor[positions.to(tensor.device, non_blocking=True)]
                for name, tensor in self.aux.items()
            },
            label=None
            if self.label is None
            else self.label[positions.to(self.label.device, non_blocking=True)],
            moved=self.moved
            and Moved(self.moved.act, self.moved.g[positions.to(self.moved.g.device)]),
            tokenizer=self.tokenizer,
        )

    @staticmethod
    def joined(batches: Sequence[Batch]) -> Batch:
        """Batches of samples that no group moved, one after another and without labels.

        >>> Batch.joined([Batch(("a",), torch.zeros(1, 2)), Batch(("b",), torch.ones(1, 2))]).ids
        ('a', 'b')
        """
        aux = {name: torch.cat([b.aux[name] for b in batches]) for name in batches[0].aux}
        return Batch(
            tuple(i for b in batches for i in b.ids), torch.cat([b.x for b in batches]), aux
        )

    def with_x(self, x: Tensor) -> Batch:
        """The same samples with other values, for instance after a perturbation."""
        return replace(self, x=x)

    def to(self, device: torch.device | str) -> Batch:
        """The same samples on another device."""
        label = None if self.label is None else self.label.to(device)
        return replace(
            self,
            x=self.x.to(device),
            aux={k: v.to(device) for k, v in self.aux.items()},
            label=label,
        )

    def carried(self, drawn: Tensor) -> Tensor:
        """Numbers drawn for the places of the samples (B, …), or vectors there (B, …, E), moved as the samples were.

        Noise z of x becomes that of g·x, so that g·x + carried(z) = g·(x + z); of samples that are as they were it
        stays. An action with an offset, such as 1 − x, moves differences without it.

        >>> shifted = Moved(lambda g, batch: batch.with_x(batch.x.roll(1, 1)), torch.tensor([1]))
        >>> Batch(("a",), torch.zeros(1, 3), moved=shifted).carried(torch.tensor([[1.0, 2.0, 3.0]])).tolist()
        [[3.0, 1.0, 2.0]]
        """
        if self.moved is None:
            return drawn
        if drawn.ndim > self.x.ndim:
            return torch.stack([self.carried(part) for part in drawn.unbind(-1)], -1)
        places, act = replace(self, moved=None), self.moved.act
        return (
            act(self.moved.g, places.with_x(drawn)).x
            - act(self.moved.g, places.with_x(torch.zeros_like(drawn))).x
        )


@runtime_checkable
class Explainer(Protocol):
    """An attribution method with its parameters bound as fields of one frozen object.

    Calling it gives one map per sample, in the shape of `model.inputs(batch)`, for the class `target` (B,) int64.
    `stochastic` says whether the seed matters, `control` that the method does not look at the model and is there for
    comparison. A callable of one's own may lack all but the call; `adopted` gives it the usual for the rest.
    """

    @property
    def kind(self) -> ExplanationKind:
        """What a map has values of: features of the input, examples of the training set, or concepts."""

    @property
    def stochastic(self) -> bool: ...

    @property
    def control(self) -> bool: ...

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor: ...

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` for a model or a sample shape that the method is not defined on, before any model pass."""


@runtime_checkable
class Stored(Protocol):
    """An explainer that has maps of given samples as they are, and of no other input."""

    def check_ids(self, ids: Iterable[str], source: str) -> None:
        """Raise `UserError` for samples that it has no maps of."""


@runtime_checkable
class Categorical(Protocol):
    """An explainer that may give categories, which are compared and counted but not averaged."""

    @property
    def categorical(self) -> bool: ...


@runtime_checkable
class Complete(Protocol):
    """An explainer whose maps promise to sum to a difference of the explained score."""

    def promised(self, model: Model, batch: Batch, target: Tensor) -> Tensor:
        """What each map should sum to, (B,)."""


class Method:
    """What an explainer says of itself unless it says otherwise: of features, no draws, for any model and shape."""

    kind: ClassVar[ExplanationKind] = "feature"
    stochastic: ClassVar[bool] = False
    control: ClassVar[bool] = False

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Refuse nothing."""


@dataclass(frozen=True)
class Function:
    """An explainer made of a callable `(model, batch, target, seed) -> maps`, with the usual for the rest.

    >>> Function(lambda model, batch, target, seed: batch.x).kind
    'feature'
    """

    call: Callable[[Model, Batch, Tensor, int], Tensor]
    kind: ExplanationKind = "feature"
    stochastic: bool = True
    control: bool = False
    categorical: bool = False

    @property
    def __wrapped__(self) -> Any:
        """The callable itself, whose name and parameters are recorded; `inspect.unwrap` finds it."""
        return self.call

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """What the callable gives."""
        return self.call(model, batch, target, seed)

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """What the callable refuses, if it has a `check`."""
        getattr(self.call, "check", lambda *_: None)(model, shape)


def adopted(explainer: Any) -> Explainer:
    """An explainer of one's own with all that evaluations ask for; what it says itself counts.

    >>> def mine(model, batch, target, seed):
    ...     return batch.x
    >>> mine.stochastic = False
    >>> adopted(mine).stochastic, name_of(adopted(mine))
    (False, 'mine')
    """
    if isinstance(explainer, Explainer):
        return explainer
    said = {
        f.name: getattr(explainer, f.name)
        for f in fields(Function)[1:]
        if hasattr(explainer, f.name)
    }
    return Function(explainer, **said)


def parameters(item: Any) -> dict[str, Any]:
    """The fields of a parameter object as plain data, nested objects included; what the manifest stores.

    Of a wrapper with `__wrapped__` they are those of what it wraps.
    """

    def plain(value: Any) -> Any:
        if is_dataclass(value):
            return {"name": name_of(value), **parameters(value)}
        if isinstance(value, Mapping):
            return {str(k): plain(v) for k, v in value.items()}
        if isinstance(value, list | tuple):
            return [plain(v) for v in value]
        return value if isinstance(value, bool | int | float | str | type(None)) else repr(value)

    item = inspect.unwrap(item)
    if not is_dataclass(item):
        return {"object": name_of(item)}
    return {f.name: plain(getattr(item, f.name)) for f in fields(item)}


def role_of(explainer: Explainer) -> str:
    """Whether an explainer is a method, or a control that does not look at the model.

    >>> from heatproof.explainers import Saliency, SobelEdges
    >>> role_of(Saliency()), role_of(SobelEdges())
    ('method', 'control')
    """
    return "control" if explainer.control else "method"


def name_of(item: Any) -> str:
    """The registered name of a parameter object, or of what it wraps, else its class or function name.

    >>> from heatproof.explainers import Saliency
    >>> name_of(Saliency())
    'saliency'
    """
    item = inspect.unwrap(item)
    name = getattr(type(item), "name", None)
    if isinstance(name, str):
        return name
    return str(getattr(item, "__name__", type(item).__name__))


def label_of(item: Any, hide: Callable[[str], bool] = lambda name: False) -> str:
    """A short unique name: the registered one plus every parameter that differs from its default.

    >>> from heatproof.explainers import IntegratedGradients
    >>> label_of(IntegratedGradients()), label_of(IntegratedGradients(steps=20))
    ('integrated_gradients', 'integrated_gradients(steps=20)')
    """
    item = inspect.unwrap(item)
    if not is_dataclass(item):
        return name_of(item)
    parts = []
    for f in fields(item):
        value = getattr(item, f.name)
        if (
            hide(f.name)
            or value == f.default
            or (callable(f.default_factory) and value == f.default_factory())
        ):
            continue
        text = label_of(value) if is_dataclass(value) else str(value)
        parts.append(f"{f.name}={text}")
    return name_of(item) + (f"({', '.join(parts)})" if parts else "")


def matches(pattern: str, label: str) -> bool:
    """Whether a label is meant by a pattern: itself, its part before the parameters, a glob, or any of several by |.

    >>> matches("lime", "lime(samples=32)"), matches("grad*", "gradient_shap"), matches("a|b", "c")
    (True, True, False)
    """
    bare = label.split("(", maxsplit=1)[0]
    return any(
        option in (label, bare) or fnmatchcase(label, option) or fnmatchcase(bare, option)
        for option in map(str.strip, pattern.split("|"))
    )

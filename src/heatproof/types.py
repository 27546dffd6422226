"""The contracts of data and explainers: batches of samples, what makes their maps, and how both are named."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, Self, runtime_checkable

import torch
from pydantic import ConfigDict
from torch import Tensor

from heatproof.errors import UserError
from heatproof.kinds import KIND_NAMES, kind_of

if TYPE_CHECKING:
    from heatproof.models import Model

STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
"""Configuration of every parameter object: an unknown parameter is an error."""

ExplanationKind = Literal["feature", "example", "concept"]


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


Requirement = Literal["gradients", "layers", "class probabilities"]
WHY_UNMET: dict[Requirement, str] = {
    "gradients": "it reads gradients, and this model gives none; use lime, kernel_shap, occlusion or feature_ablation",
    "layers": "it reads layers of the network, and this model shows none",
    "class probabilities": "it reads class probabilities, and {task} has none",
}
"""What an explainer may require of a model, and what is said of a model that lacks it."""
WHY_SCRIPTED = "it watches the layers of a network, and a scripted one hides them; give the network before torch.jit"


class Explainer:
    """Base class of attribution methods, whose parameters are the fields of one frozen object.

    Calling it gives one map per sample, in the shape of `model.inputs(batch)`, for the class `target` (B,) int64. The
    class attributes say what a study has to know before anything is computed:

    kind                what a map has values of: features of the input, examples of the training set, or concepts
    stochastic          whether the seed matters
    control             whether the method ignores the model and is there for comparison
    requires            what it needs of a model: "gradients", "layers" or "class probabilities"
    hooks_into_network  whether only a pass can tell that the network lacks a layer or a function that it looks for
    undefined_on        kind of data -> why the method is undefined there
    cost                what one map costs, in words

    A plain callable works as well; `wrap_explainer` makes an `Explainer` of it.
    """

    kind: ClassVar[ExplanationKind] = "feature"
    stochastic: ClassVar[bool] = False
    control: ClassVar[bool] = False
    requires: ClassVar[tuple[Requirement, ...]] = ()
    hooks_into_network: ClassVar[bool] = False
    undefined_on: ClassVar[Mapping[str, str]] = {}
    cost: ClassVar[str] = ""

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return one map per sample."""
        raise NotImplementedError

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise `UserError` for a model or a sample shape that the method is undefined on, without a model pass."""

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy with every default filled in for this model and data; raise `UserError` if it is undefined.

        `sample` is a batch of one. A default that is a probability becomes the number itself where the task has none.

        >>> from heatproof import Model
        >>> from heatproof.explainers import GradCAM
        >>> GradCAM().configured_for(Model(torch.nn.Linear(4, 2)), Batch(("a",), torch.zeros(1, 4)))
        Traceback (most recent call last):
        heatproof.errors.UserError: grad_cam is not defined on table data: it reads a map of a convolutional ...
        """
        name, kind = name_of(self), kind_of(model, sample)
        if reason := self.undefined_on.get(kind.name, ""):
            raise UserError(f"{name} is not defined on {kind.name} data: {reason}")
        if reason := self.why_unmet(model):
            raise UserError(f"{name} is not possible with the model {model.name}: {reason}")
        self.check(model, sample.x.shape[1:])
        return self._with_a_readout_of(model)

    def why_unmet(self, model: Model) -> str:
        """Return why the model lacks what the explainer requires, whatever the data; empty where it does not.

        >>> from heatproof import Model
        >>> from heatproof.explainers import Lime, Saliency
        >>> net = torch.nn.Linear(1, 2)
        >>> net.differentiable = False
        >>> Saliency().why_unmet(Model(net)), Lime().why_unmet(Model(net))
        ('it reads gradients, and this model gives none; use lime, ...', '')
        """
        if "class probabilities" in self.requires and not model.task.exclusive:
            return WHY_UNMET["class probabilities"].format(task=model.task.name)
        if "layers" in self.requires and isinstance(model.module, torch.jit.ScriptModule):
            return WHY_SCRIPTED
        if model.is_differentiable:
            return ""
        for requirement in self.requires:
            if requirement != "class probabilities":
                return WHY_UNMET[requirement]
        return ""

    def _with_a_readout_of(self, model: Model) -> Self:
        """Return a copy that reads the number itself where it would read a probability and the task has none."""
        reads_probability = getattr(self, "readout", "") == "probability"
        if not reads_probability or model.has_probability:
            return self
        return replace(self, readout="logit")  # type: ignore[type-var]

    @classmethod
    def terms(cls) -> str:
        """Return what a map costs, and on which data and models the explainer is defined, in words.

        >>> from heatproof.explainers import GradCAM
        >>> GradCAM.terms()
        '1 pass and its gradient; image, volume, series; models with accessible layers'
        """
        kinds = [name for name in KIND_NAMES if name not in cls.undefined_on]
        data = "any data" if len(kinds) == len(KIND_NAMES) else ", ".join(kinds)
        models = "any model"
        if "gradients" in cls.requires:
            models = "models with gradients"
        elif "layers" in cls.requires:
            models = "models with accessible layers"
        return "; ".join(filter(None, [cls.cost, data, models]))


@runtime_checkable
class Stored(Protocol):
    """An explainer that has maps of given samples as they are, and of no other input."""

    def check_ids(self, ids: Iterable[str], source: str) -> None:
        """Raise `UserError` for samples that it has no maps of."""

    def for_ids(self, ids: Iterable[str]) -> Any:
        """Return a copy for the samples with these ids."""


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


@dataclass(frozen=True)
class CallableExplainer(Explainer):
    """An explainer made of a callable `(model, batch, target, seed) -> maps`.

    >>> CallableExplainer(lambda model, batch, target, seed: batch.x).kind
    'feature'
    """

    call: Callable[[Model, Batch, Tensor, int], Tensor]
    kind: ExplanationKind = "feature"  # type: ignore[misc]  # of the object here, of the class elsewhere
    stochastic: bool = True  # type: ignore[misc]
    control: bool = False  # type: ignore[misc]
    requires: tuple[Requirement, ...] = ()  # type: ignore[misc]
    hooks_into_network: bool = False  # type: ignore[misc]
    undefined_on: Mapping[str, str] = field(default_factory=dict)  # type: ignore[misc]
    categorical: bool = False

    @property
    def __wrapped__(self) -> Any:
        """The callable, whose name and parameters are recorded; `inspect.unwrap` finds it."""
        return self.call

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the callable's maps."""
        return self.call(model, batch, target, seed)

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise what the callable's own `check` raises, if it has one."""
        check = getattr(self.call, "check", None)
        if check is not None:
            check(model, shape)

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy with what the callable's own `configured_for` returns, if it has one."""
        explainer = super().configured_for(model, sample)
        configure = getattr(self.call, "configured_for", None)
        return explainer if configure is None else replace(self, call=configure(model, sample))


def wrap_explainer(explainer: Any) -> Explainer:
    """Return an `Explainer` itself, or a callable wrapped as one; attributes that the callable defines are kept.

    >>> def mine(model, batch, target, seed):
    ...     return batch.x
    >>> mine.stochastic = False
    >>> wrap_explainer(mine).stochastic, name_of(wrap_explainer(mine))
    (False, 'mine')
    """
    if isinstance(explainer, Explainer):
        return explainer
    attributes = {}
    for attribute in fields(CallableExplainer)[1:]:
        if hasattr(explainer, attribute.name):
            attributes[attribute.name] = getattr(explainer, attribute.name)
    return CallableExplainer(explainer, **attributes)


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

"""Batches of samples, explainers, and how both are named."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from fnmatch import fnmatchcase
from functools import wraps
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    TypeVar,
    dataclass_transform,
    runtime_checkable,
)

import pydantic
import torch
from pydantic import ConfigDict
from torch import Tensor

from heatproof.errors import UserError, counted, only_known, wrong_parameter
from heatproof.kinds import KIND_NAMES, kind_of

if TYPE_CHECKING:
    from heatproof.models import Model

STRICT = ConfigDict(extra="forbid", arbitrary_types_allowed=True)
"""Configuration of every parameter object: an unknown parameter is an error."""
Class = TypeVar("Class")


@dataclass_transform(frozen_default=True, field_specifiers=(field, pydantic.Field))
def parameter_class(cls: type[Class]) -> type[Class]:
    """Return a class as a frozen pydantic dataclass, whose fields are the parameters of a method such as an explainer.

    A wrong parameter raises heatproof's own error, the same as for a study file, in place of pydantic's.

    >>> from heatproof.explainers import IntegratedGradients
    >>> IntegratedGradients(n_steps=20)
    Traceback (most recent call last):
    heatproof.errors.BadParameter: integrated_gradients has no parameter 'n_steps'; did you mean 'steps'? ...
    """
    dataclass_type: Any = pydantic.dataclasses.dataclass(cls, frozen=True, config=STRICT)
    label = getattr(cls, "name", cls.__name__)
    names = [parameter.name for parameter in fields(dataclass_type)]
    construct = dataclass_type.__init__

    @wraps(construct)
    def init(self: Any, *values: Any, **arguments: Any) -> None:
        only_known(arguments, names, label)
        try:
            construct(self, *values, **arguments)
        except pydantic.ValidationError as error:
            mistake = wrong_parameter(error, label, names)
        else:
            return
        # Outside of the handler, so that a traceback does not show pydantic's message too.
        raise mistake

    dataclass_type.__init__ = init
    decorated: type[Class] = dataclass_type
    return decorated


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
    where samples are others moved by a group under the same ids; random numbers that belong to positions of the input
    then move along. `tokenizer` is what made texts token ids, where that is known.

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
                    f"Batch has {counted(len(self.ids), 'id')} but {name} holds {counted(len(tensor), 'sample')}"
                )

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: slice | Sequence[int] | Tensor) -> Batch:
        """Return a batch of the samples at a slice, a list of positions or a boolean mask; tensors stay on their device."""
        if isinstance(index, Tensor):
            index = index.cpu()
        positions = torch.arange(len(self))[index]

        def select(tensor: Tensor) -> Tensor:
            # Sent to the device without waiting for it.
            return tensor[positions.to(tensor.device, non_blocking=True)]

        moved = self.moved
        if moved is not None:
            moved = Moved(moved.act, select(moved.g))
        return Batch(
            ids=tuple(self.ids[position] for position in positions.tolist()),
            x=select(self.x),
            aux={name: select(tensor) for name, tensor in self.aux.items()},
            label=None if self.label is None else select(self.label),
            moved=moved,
            tokenizer=self.tokenizer,
        )

    @staticmethod
    def joined(batches: Sequence[Batch]) -> Batch:
        """Return batches of samples that no group moved, one after another and without labels.

        >>> Batch.joined([Batch(("a",), torch.zeros(1, 2)), Batch(("b",), torch.ones(1, 2))]).ids
        ('a', 'b')
        """
        ids: list[str] = []
        for batch in batches:
            ids += batch.ids
        aux = {}
        for name in batches[0].aux:
            aux[name] = torch.cat([batch.aux[name] for batch in batches])
        return Batch(tuple(ids), torch.cat([batch.x for batch in batches]), aux)

    def with_x(self, x: Tensor) -> Batch:
        """Return the same samples with other values, for instance after a perturbation."""
        return replace(self, x=x)

    def to(self, device: torch.device | str) -> Batch:
        """Return the same samples on another device."""
        label = None if self.label is None else self.label.to(device)
        return replace(
            self,
            x=self.x.to(device),
            aux={k: v.to(device) for k, v in self.aux.items()},
            label=label,
        )

    def carried(self, noise: Tensor) -> Tensor:
        """Return random noise moved by the group element that moved the samples; unchanged for samples not moved.

        Noise is drawn by the id of a sample, so a moved sample would get the noise of its original, unmoved. With this,
        g·x + carried(z) = g·(x + z), so an explainer that adds noise z is as equivariant as its noiseless form. `noise`
        has a number (B, …), or a vector (B, …, E), for each position of a sample.

        >>> shifted = Moved(lambda g, batch: batch.with_x(batch.x.roll(1, 1)), torch.tensor([1]))
        >>> Batch(("a",), torch.zeros(1, 3), moved=shifted).carried(torch.tensor([[1.0, 2.0, 3.0]])).tolist()
        [[3.0, 1.0, 2.0]]
        """
        if self.moved is None:
            return noise
        if noise.ndim > self.x.ndim:
            moved_entries = [self.carried(entry) for entry in noise.unbind(-1)]
            return torch.stack(moved_entries, -1)
        act, g = self.moved.act, self.moved.g
        unmoved = replace(self, moved=None)
        moved_noise = act(g, unmoved.with_x(noise)).x
        # An action may have an offset, such as g·x = 1 − x. Noise is a difference of inputs and moves without it.
        offset = act(g, unmoved.with_x(torch.zeros_like(noise))).x
        return moved_noise - offset


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
    needs_model         whether it can do nothing without a model; stored maps and edges need none
    requires            what it needs of a model: "gradients", "layers" or "class probabilities"
    whole_features      whether every position of a feature has the value of the whole feature
    hooks_into_network  whether only a pass can tell that the network lacks a layer or a function that it looks for
    undefined_on        kind of data -> why the method is undefined there
    cost                what one map costs, in words

    A plain callable works as well; `wrap_explainer` makes an `Explainer` of it.

    Outside of a study, an explainer also takes a plain module, a tensor of samples, and a class for all of them, one for
    each, or none for the predicted ones; then the defaults for this kind of data are filled in first.

    >>> from heatproof.explainers import Saliency
    >>> net, x = torch.nn.Linear(3, 2), torch.rand(4, 3)
    >>> Saliency()(net, x, 1).shape, Saliency()(net, x).shape
    (torch.Size([4, 3]), torch.Size([4, 3]))
    """

    kind: ClassVar[ExplanationKind] = "feature"
    stochastic: ClassVar[bool] = False
    control: ClassVar[bool] = False
    needs_model: ClassVar[bool] = True
    requires: ClassVar[tuple[Requirement, ...]] = ()
    whole_features: ClassVar[bool] = False
    hooks_into_network: ClassVar[bool] = False
    undefined_on: ClassVar[Mapping[str, str]] = {}
    cost: ClassVar[str] = ""
    model_type: ClassVar[Any] = None
    """`heatproof.Model`, which wraps a plain module; set where it is defined, because models import this module."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if "__call__" in cls.__dict__:
            cls.__call__ = _taking_plain_objects(cls.__dict__["__call__"])  # type: ignore[method-assign]

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
        if self.needs_model and model.is_absent:
            raise UserError(f"{name} explains a model, and the study names none")
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


def _taking_plain_objects(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return an explainer's `__call__` that takes a plain module, a tensor and a class as well."""

    @functools.wraps(call)
    def call_or_convert(
        explainer: Any, model: Any, batch: Any, target: Any = None, seed: int = 0
    ) -> Tensor:
        is_plain = isinstance(model, torch.nn.Module) or not isinstance(batch, Batch)
        has_targets = isinstance(target, Tensor) and target.ndim == 1
        if not is_plain and has_targets:
            return call(explainer, model, batch, target, seed)
        model, batch = _as_model(model), _as_batch(batch)
        configured = explainer.configured_for(model, batch[:1])
        return call(configured, model, batch, targets_of(model, batch, target), seed)

    return call_or_convert


def _as_model(model: Any) -> Model:
    model_type: Any = Explainer.model_type
    wrapped: Model = model if isinstance(model, model_type) else model_type(model)
    return wrapped


def _as_batch(samples: Any) -> Batch:
    """Return a tensor of samples as a batch with the ids "0", "1", …; a batch stays itself."""
    if isinstance(samples, Batch):
        return samples
    x = torch.as_tensor(samples)
    if x.ndim < 2:
        raise UserError(
            f"samples have a batch axis first, got a tensor of shape {tuple(x.shape)}; for one sample give x[None]"
        )
    return Batch(tuple(map(str, range(len(x)))), x)


def targets_of(model: Model, batch: Batch, target: Any) -> Tensor:
    """Return the classes (B,) to explain: `target` for all samples or one for each, or the predicted ones for None.

    >>> from heatproof import Model
    >>> targets_of(Model(torch.nn.Linear(1, 3)), Batch(("a", "b"), torch.ones(2, 1)), 2).tolist()
    [2, 2]
    """
    if target is None:
        with torch.no_grad():
            return model.logits(model.inputs(batch), batch.aux).argmax(1)
    try:
        classes = torch.as_tensor(target)
    except (TypeError, ValueError, RuntimeError):
        raise UserError(
            f"target is the number of a class, or one for each sample, got {target!r}"
        ) from None
    if classes.is_floating_point() or classes.dtype == torch.bool or classes.ndim > 1:
        raise UserError(f"target is the number of a class, or one for each sample, got {target!r}")
    if classes.ndim == 1 and len(classes) != len(batch):
        raise UserError(f"target has {len(classes)} classes for {len(batch)} samples")
    if classes.numel() and int(classes.min()) < 0:
        raise UserError(f"target is the number of a class from 0 on, got {target!r}")
    if classes.numel():
        _check_is_output(model, batch, int(classes.max()))
    return classes.long().expand(len(batch)).to(model.device)


def _check_is_output(model: Model, batch: Batch, number: int) -> None:
    """Raise `UserError` if the class `number` is not one of the model's outputs, which are counted on one sample.

    Without this check the index error on a GPU would make every later call on it fail.
    """
    counts = model.passes, model.gradient_passes
    with torch.no_grad():
        outputs = model.logits(model.inputs(batch[:1]), batch[:1].aux).shape[1]
    model.passes, model.gradient_passes = counts  # a check, and no work of the study
    if number >= outputs and not model.is_absent:
        raise UserError(f"target is {number}, and {model.name} has the outputs 0 to {outputs - 1}")


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
    needs_model: bool = True  # type: ignore[misc]
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
    """Return the parameters of an explainer or another parameter object as plain data, as a run's manifest stores them.

    Nested objects are included. Of a wrapper (with `__wrapped__`) they are the parameters of what it wraps.
    """
    item = inspect.unwrap(item)
    if not is_dataclass(item):
        return {"object": name_of(item)}
    return {field.name: _plain(getattr(item, field.name)) for field in fields(item)}


def _plain(value: Any) -> Any:
    """Return a value as JSON can hold it; of an object that is no parameter object, its text."""
    if is_dataclass(value):
        return {"name": name_of(value), **parameters(value)}
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return repr(value)


def role_of(explainer: Explainer) -> str:
    """Return "control" for an explainer that does not look at the model, "method" for all others.

    >>> from heatproof.explainers import Saliency, SobelEdges
    >>> role_of(Saliency()), role_of(SobelEdges())
    ('method', 'control')
    """
    return "control" if explainer.control else "method"


def name_of(item: Any) -> str:
    """Return the registered name of a parameter object, or of what it wraps, else its class or function name.

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
    """Return a short unique name: the registered one plus every parameter that differs from its default.

    Parameters for which `hide(name)` is true are left out, and so are fields with `repr=False`.

    >>> from heatproof.explainers import IntegratedGradients
    >>> label_of(IntegratedGradients()), label_of(IntegratedGradients(steps=20))
    ('integrated_gradients', 'integrated_gradients(steps=20)')
    """
    item = inspect.unwrap(item)
    if not is_dataclass(item):
        return name_of(item)
    changed = []
    for parameter in fields(item):
        value = getattr(item, parameter.name)
        if not parameter.repr:
            continue
        default = parameter.default
        if callable(parameter.default_factory):
            default = parameter.default_factory()
        if hide(parameter.name) or value == default:
            continue
        text = label_of(value) if is_dataclass(value) else str(value)
        changed.append(f"{parameter.name}={text}")
    return f"{name_of(item)}({', '.join(changed)})" if changed else name_of(item)


def matches(pattern: str, label: str) -> bool:
    """Return whether a name such as "lime(samples=32)" matches a pattern.

    A pattern is a name, with or without parameters, a glob such as "grad*", or several of these separated by |.

    >>> matches("lime", "lime(samples=32)"), matches("grad*", "gradient_shap"), matches("a|b", "c")
    (True, True, False)
    """
    without_parameters = label.split("(", maxsplit=1)[0]
    for option in pattern.split("|"):
        text = option.strip()
        for name in (label, without_parameters):
            # A label may hold characters that a glob has another meaning for, so equality comes first.
            if text == name or fnmatchcase(name, text):
                return True
    return False

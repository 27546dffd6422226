"""`Model`, a wrapper around any network: preprocessing, task, outputs of any form, device, fingerprint of weights."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from inspect import signature
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn

from heatproof.errors import UserError, nearest
from heatproof.models.convolutions import quickly_differentiated
from heatproof.models.guards import has_one_output, refuse_squashed
from heatproof.models.network import (
    Channels,
    channel_values,
    digest,
    embed_unless_vectors,
    fill_up,
    frozen_copy,
    in_one_size,
)
from heatproof.models.norms import quick_norms
from heatproof.models.precision import GRADIENT_SCALES, Precision, scale_gradient, weight_type
from heatproof.models.tasks import Binary, Classification, Task, as_task, has_probability
from heatproof.types import Batch, Explainer

Read = Callable[[Any, Mapping[str, Tensor]], Tensor]
ONE_OUTPUT = (
    "has a single output, which may be the log-odds of yes or a number: say Model(net, task='binary') or "
    "Model(net, task='regression'), in a study file task: binary or task: regression beside the source"
)
"""What is said of a network with one output and no task."""


class Model:
    """A network with its preprocessing and its `task`: what is read off its output, classification unless it is named.

    A task is given by name, as {name: parameters} or as an object of `heatproof.tasks`. The module is copied in form
    and shares its weights with the original, so eval mode, frozen parameters and out-of-place activations never touch
    the object that was passed in. `mean` and `std` normalise each channel of
    inputs given in [0, 1]; `classes` are names for the outputs. `rows` is the largest number of inputs in one pass
    through the network; the engine lowers it when memory runs out. `passes` counts the inputs that went through,
    `gradient_passes` those of them that were differentiated.

    Token ids have no gradient. With `embedding`, the path of the layer that turns them into vectors, `inputs` are these
    vectors (B, L, E), and the network takes them in place of ids.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    >>> model = Model(net, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    >>> batch = Batch(ids=("a",), x=torch.rand(1, 3, 2, 2))
    >>> model.logits(model.inputs(batch)).shape, net.training
    (torch.Size([1, 5]), True)
    """

    _compiled: Any = None  # of models that never compile too

    def __init__(
        self,
        module: nn.Module,
        mean: Channels = None,
        std: Channels = None,
        classes: Sequence[str] | None = None,
        *,
        name: str | None = None,
        device: torch.device | str | None = None,
        channels_last: bool = False,
        rows: int = 32,
        embedding: str | None = None,
        task: Any = None,
    ) -> None:
        if isinstance(module, Model):
            raise UserError("Model(...) was given a heatproof.Model; pass the torch module itself")
        if not isinstance(module, nn.Module):
            raise UserError(f"Model(...) needs a torch.nn.Module, got {type(module).__name__}")
        if isinstance(classes, str):
            raise UserError(f"classes must be a list of names, got the text {classes!r}")
        if rows < 1:
            raise UserError(f"rows must be at least 1, got {rows}")
        self.name = name or type(module).__name__
        outputs = None if classes is None else tuple(str(c) for c in classes)
        if task is None and len(outputs or ()) == 2 and has_one_output(module):
            task = Binary()
        self.declared = None if task is None else as_task(task).numbered(outputs)
        self.classes = outputs if self.declared is None else self.declared.names(outputs)
        self.channels_last = channels_last
        self.rows = rows
        self._counts = {"passes": 0, "gradient": 0}  # shared with the same model under another task
        self._mean = channel_values("mean", mean)
        self._std = channel_values("std", std)
        if self._std is not None and bool((self._std <= 0).any()):
            raise UserError(f"std must be positive, got {self._std.tolist()}")
        lengths = {values.numel() for values in (self._mean, self._std) if values is not None} - {1}
        if len(lengths) > 1:
            raise UserError(f"mean and std disagree on the number of channels: {sorted(lengths)}")
        self.module = frozen_copy(module)
        quick_norms(self.module)
        refuse_squashed(self.module, self.name, self.task)
        self.precision: Precision = "float32"
        self._gradient_scale = GRADIENT_SCALES[0]
        self.embedding = embedding
        if embedding is not None:
            table = self.layer(embedding)
            table.forward = partial(embed_unless_vectors, table.forward)
        if channels_last:
            self._lay_channels_last()
        if device is not None:
            self.to(device)

    @property
    def is_differentiable(self) -> bool:
        """Whether the network has gradients and layers; ONNX graphs and scikit-learn classifiers have none.

        >>> Model(torch.nn.Linear(1, 2)).is_differentiable
        True
        """
        return bool(getattr(self.module, "differentiable", True))

    @property
    def has_probability(self) -> bool:
        """Whether the task has probabilities."""
        return has_probability(self.task)

    @property
    def passes(self) -> int:
        """Inputs that went through the network."""
        return self._counts["passes"]

    @passes.setter
    def passes(self, value: int) -> None:
        self._counts["passes"] = value

    @property
    def gradient_passes(self) -> int:
        """Those of them that were differentiated."""
        return self._counts["gradient"]

    @gradient_passes.setter
    def gradient_passes(self, value: int) -> None:
        self._counts["gradient"] = value

    @property
    def task(self) -> Task:
        """What is read off the output; classification where nothing was said."""
        return self.declared or Classification()

    def finished(self, table: Tensor) -> Model:
        """The same model with what its task leaves open taken from the readouts (R, K) of reference samples."""
        task = self.task.finished(table)
        return self if task == self.task else self.asked(task)

    def asked(self, task: Task) -> Model:
        """The same model with another task; both count their passes together.

        >>> from heatproof.models.tasks import Regression
        >>> model = Model(nn.Linear(3, 1)).asked(Regression())
        >>> model.logits(torch.ones(2, 3)).shape
        torch.Size([2, 1])
        """
        other = copy.copy(self)
        other.declared = task
        return other

    def to(self, device: torch.device | str) -> Model:
        """Move the network; the user's own object stays where it is."""
        self.module.to(device)
        return self

    def use(self, precision: Precision = "float32", compile: bool = False) -> Model:
        """Compute in another precision, and with `compile` through `torch.compile`.

        "float32" is exact; "tf32" lets a GPU round products to 10 bits while an evaluation runs; "float16" and
        "bfloat16" convert the weights. Inputs, class scores and maps stay in float32. What was rounded cannot be
        regained, so the way back from 16 bits is a new Model.

        >>> model = Model(nn.Linear(3, 2)).use("bfloat16")
        >>> model.logits(torch.ones(1, 3)).dtype, model.module.weight.dtype
        (torch.float32, torch.bfloat16)
        """
        target = weight_type(precision)
        if weight_type(self.precision) is not None and precision != self.precision:
            raise UserError(
                f"{self.name} was rounded to {self.precision}; make a new Model to use {precision}"
            )
        _ = self.fingerprint  # it is that of the weights as they were given
        if target is not None:
            self.module.to(target)
            if self.device.type == "cuda":
                self._lay_channels_last()  # the layout in which a GPU multiplies 16-bit numbers
                quickly_differentiated(self.module)
        self.precision = precision
        self._compiled = torch.compile(self.module, dynamic=False) if compile else None
        return self

    @contextmanager
    def gradients_times(self, scale: float) -> Iterator[None]:
        """Multiply gradients inside a 16-bit network by another number while the context is open.

        >>> with Model(nn.Linear(3, 2)).gradients_times(1.0):
        ...     pass
        """
        usual, self._gradient_scale = self._gradient_scale, scale
        try:
            yield
        finally:
            self._gradient_scale = usual

    @property
    def gradient_scale(self) -> float:
        """What gradients are multiplied by inside the network, and divided by before its inputs: 1 but in 16 bits."""
        return self._gradient_scale if weight_type(self.precision) is not None else 1.0

    def _lay_channels_last(self) -> None:
        self.channels_last = True
        self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]

    @property
    def is_compiled(self) -> bool:
        """Whether passes go through `torch.compile`."""
        return self._compiled is not None

    @property
    def mean(self) -> list[float] | None:
        """What is subtracted from each channel, None when nothing is."""
        return None if self._mean is None else self._mean.tolist()

    @property
    def std(self) -> list[float] | None:
        """What each channel is divided by, None when by nothing."""
        return None if self._std is None else self._std.tolist()

    @property
    def device(self) -> torch.device:
        """Where the network's weights are."""
        for tensor in chain(self.module.parameters(), self.module.buffers()):
            return tensor.device
        return torch.device("cpu")

    def inputs(self, batch: Batch) -> Tensor:
        """What the network sees: (x − mean) / std on the model's device. Explainers differentiate by this."""
        x = batch.x.to(self.device)
        if self.embedding is not None and not x.is_floating_point():
            with torch.no_grad():
                vectors: Tensor = self.layer(self.embedding)(x)
            return vectors
        for what, values in (("mean", self._mean), ("std", self._std)):
            if values is None:
                continue
            if values.numel() > 1 and (x.ndim < 2 or x.shape[1] != values.numel()):
                raise UserError(
                    f"{what} has {values.numel()} channels but the data has shape {tuple(x.shape[1:])}"
                )
            shaped = values.to(x.device).reshape(1, -1, *[1] * (x.ndim - 2))
            x = x - shaped if what == "mean" else x / shaped
        return x

    def logits(self, inputs: Tensor, aux: Mapping[str, Tensor] | None = None) -> Tensor:
        """What the task reads of normalised inputs, (B, K), differentiable: class scores, of a regression its numbers.

        Auxiliary tensors whose name begins with an underscore are for the task, and are not given to the network.
        """
        task = self.task
        if task.fixes and task.fixes not in (aux or {}):
            raise UserError(
                f"{task.name} reads what is fixed on the sample as it is: pass model.fixed(batch) on"
            )
        out = self._forward(inputs, aux or {}, self.read)
        if out.ndim != 2 or len(out) != len(inputs) or not out.numel():
            raise UserError(
                f"{self.name} returned a tensor of shape {tuple(out.shape)} for {len(inputs)} inputs; "
                f"a classifier must return ({len(inputs)}, classes), other tasks are named: Model(net, task=...)"
            )
        return out

    def fixed(self, batch: Batch) -> Batch:
        """The samples with the auxiliary tensor that the task fixes on samples as they are, where it does.

        >>> model = Model(nn.Conv2d(3, 2, 1), task="segmentation")
        >>> model.fixed(Batch(("a",), torch.rand(1, 3, 4, 4))).aux["_region"].shape
        torch.Size([1, 4, 4])
        """
        name = self.task.fixes
        if not name or name in batch.aux:
            return batch
        with torch.no_grad():
            fixed = self._forward(self.inputs(batch), batch.aux, self.task.fix)
        return replace(batch, aux={**batch.aux, name: fixed})

    def read(self, output: Any, aux: Mapping[str, Tensor]) -> Tensor:
        """The task's table (B, K) of what the network returned; one output without a task is refused."""
        table = self.task.table(output, aux)
        if self.declared is None and table.shape[1:] == (1,):
            raise UserError(f"{self.name} {ONE_OUTPUT}")
        return table

    def _forward(self, inputs: Tensor, aux: Mapping[str, Tensor], read: Read) -> Tensor:
        self.passes += len(inputs)
        if inputs.requires_grad and torch.is_grad_enabled():
            self.gradient_passes += len(inputs)
        given = inputs.dtype if inputs.is_floating_point() else torch.float32
        scale = self.gradient_scale
        if inputs.is_floating_point():
            layout = (
                torch.channels_last
                if self.channels_last and inputs.ndim == 4
                else torch.preserve_format
            )
            inputs = scale_gradient(inputs, 1 / scale).to(
                dtype=self._weight_type() or given, memory_format=layout
            )
        found = self._call(inputs, aux, read)
        return scale_gradient(found.to(given), scale) if found.is_floating_point() else found

    @cached_property
    def _layers(self) -> tuple[nn.Module, ...]:
        return tuple(self.module.modules())

    def _call(self, inputs: Tensor, aux: Mapping[str, Tensor], read: Read) -> Tensor:
        vectors = self.embedding is not None and inputs.is_floating_point()
        by_name = vectors and "inputs_embeds" in signature(self.module.forward).parameters

        def call(network: Any, x: Tensor, extra: Mapping[str, Tensor]) -> Tensor:
            named = {name: value for name, value in extra.items() if not name.startswith("_")}
            return read(
                network(inputs_embeds=x, **named) if by_name else network(x, **named), extra
            )

        size = self.size_of(len(inputs))
        if self._is_hooked():  # who reads layers would meet the rows that fill up
            return call(self.module, inputs, aux)
        if self._compiled is None or torch._C._len_torch_function_stack() or size != self.rows:
            return in_one_size(partial(call, self.module), inputs, aux, size)
        return in_one_size(partial(call, self._compiled), inputs, aux, size)

    def size_of(self, rows: int) -> int:
        """With how many inputs a pass of so many is done: as many as there are, but on a GPU one of a few sizes.

        Libraries choose and build kernels for every new size: up to seconds for a network of depthwise layers in 16
        bits, more than a filled-up pass costs. A compiled network would be compiled again.

        >>> Model(nn.Linear(3, 2)).size_of(5)
        5
        """
        worth_it = self.device.type != "cpu" or (self.is_compiled and 2 * rows > self.rows)
        if rows > self.rows or not worth_it:
            return rows
        return self.rows // 4 if rows <= self.rows // 4 else self.rows

    def filled_up(
        self, inputs: Tensor, aux: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The inputs of a pass in one of these sizes, for who hooks a layer and drops the rows that are no samples."""
        size = self.size_of(len(inputs))
        self.passes -= size - len(inputs)
        return fill_up(inputs, size), {name: fill_up(value, size) for name, value in aux.items()}

    def _is_hooked(self) -> bool:
        """Whether someone hooks a layer, which a compiled network would not notice."""
        return any(m._forward_hooks or m._forward_pre_hooks for m in self._layers)

    def _weight_type(self) -> torch.dtype | None:
        """What the network computes in; its inputs and class scores keep the caller's precision."""
        return next((p.dtype for p in self.module.parameters() if p.is_floating_point()), None)

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the weights and buffers with their names, types and shapes."""
        return digest(self.module.state_dict())

    @cached_property
    def weights_fingerprint(self) -> str:
        """sha256 of the weights as they are now, without buffers: statistics of a batch norm are rounded by devices."""
        return digest(dict(self.module.named_parameters()))

    def layer(self, path: str) -> nn.Module:
        """The submodule at a dotted path; a wrong one lists the nearest names."""
        layers: dict[str, nn.Module] = dict(self.module.named_modules())
        if path in layers:
            return layers[path]
        close = (
            nearest(path, (name for name in layers if name), n=5)
            or [name for name in layers if name][-5:]
        )
        raise UserError(f"{self.name} has no layer {path!r}; the nearest are {', '.join(close)}")

    def class_name(self, index: int) -> str:
        """The name of an output, or `class 7` when names were not given or do not reach so far."""
        if self.classes is not None and 0 <= index < len(self.classes):
            return self.classes[index]
        return f"class {index}"

    def __repr__(self) -> str:
        return f"Model({self.name}, {self.fingerprint[:12]})"


Explainer.model_type = Model

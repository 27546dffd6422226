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
from heatproof.models.graphs import as_padded_graphs
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
"""The error for a network with one output and no task."""


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

    is_absent: bool = False
    """Whether this stands in for the model of a study without one, see `models.absent`."""
    _compiled: Any = None  # of models that never compile too
    tokenizer: Any = None
    """What makes token ids of texts for this model, where that is known."""
    image_processor: Any = None
    """What prepares pictures for this model, an image processor of transformers, where that is known."""

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
        """Check the arguments, and make a frozen copy of the network; the module that was given stays as it is."""
        if isinstance(module, Model):
            raise UserError("Model(...) was given a heatproof.Model; pass the torch module itself")
        if not isinstance(module, nn.Module):
            raise UserError(f"Model(...) needs a torch.nn.Module, got {type(module).__name__}")
        if isinstance(classes, str):
            raise UserError(f"classes must be a list of names, got the text {classes!r}")
        if rows < 1:
            raise UserError(f"rows must be at least 1, got {rows}")
        self.name = name or type(module).__name__

        # The task, and the names of what it reads off the output.
        output_names = None if classes is None else tuple(map(str, classes))
        if task is None and len(output_names or ()) == 2 and has_one_output(module):
            task = Binary()  # two names for one output are those of no and yes
        self.declared = None if task is None else as_task(task).numbered(output_names)
        self.classes = output_names if self.declared is None else self.declared.names(output_names)

        # Passes and normalisation.
        self.channels_last = channels_last
        self.rows = rows
        self._counts = {"passes": 0, "gradient": 0}  # shared with the same model under another task
        self._mean = channel_values("mean", mean)
        self._std = channel_values("std", std)
        if self._std is not None and bool((self._std <= 0).any()):
            raise UserError(
                f"std must be positive, got {[round(value, 6) for value in self._std.tolist()]}"
            )
        lengths = {values.numel() for values in (self._mean, self._std) if values is not None} - {1}
        if len(lengths) > 1:
            raise UserError(f"mean and std disagree on the number of channels: {sorted(lengths)}")

        # The network itself.
        self.module = frozen_copy(as_padded_graphs(module))
        quick_norms(self.module)
        refuse_squashed(self.module, self.name, self.task)
        self.precision: Precision = "float32"
        self._gradient_scale = GRADIENT_SCALES[0]
        self.embedding = embedding
        if embedding is not None:
            # Explainers change vectors; the network passes them to this layer, which then leaves them as they are.
            embedding_layer = self.layer(embedding)
            embedding_layer.forward = partial(embed_unless_vectors, embedding_layer.forward)
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
        """Inputs that went through the network and were differentiated."""
        return self._counts["gradient"]

    @gradient_passes.setter
    def gradient_passes(self, value: int) -> None:
        self._counts["gradient"] = value

    @property
    def task(self) -> Task:
        """What is read off the output; classification where nothing was said."""
        return self.declared or Classification()

    def finished(self, table: Tensor) -> Model:
        """Return the model with the open settings of its task computed from readouts (R, K) of reference samples.

        An example is how far a regression's prediction may move and still count as unchanged.
        """
        task = self.task.finished(table)
        return self if task == self.task else self.asked(task)

    def asked(self, task: Task) -> Model:
        """Return the same model with another task; both count their passes together.

        >>> from heatproof.models.tasks import Regression
        >>> model = Model(nn.Linear(3, 1)).asked(Regression())
        >>> model.logits(torch.ones(2, 3)).shape
        torch.Size([2, 1])
        """
        with_task = copy.copy(self)
        with_task.declared = task
        return with_task

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
        dtype = weight_type(precision)
        if weight_type(self.precision) is not None and precision != self.precision:
            raise UserError(
                f"{self.name} was rounded to {self.precision}; make a new Model to use {precision}"
            )
        _ = self.fingerprint  # computed now and cached: it is that of the unrounded weights
        if dtype is not None:
            self.module.to(dtype)
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
        before, self._gradient_scale = self._gradient_scale, scale
        try:
            yield
        finally:
            self._gradient_scale = before

    @property
    def gradient_scale(self) -> float:
        """The factor of gradients inside the network, undone before its inputs: 1 except in 16 bits."""
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
        """Return the network's inputs for the samples of a batch: (x − mean) / std on the model's device, (B, …).

        With an embedding layer, token ids become vectors. Explainers differentiate by these inputs.
        """
        x = batch.x.to(self.device)
        if self.embedding is not None and not x.is_floating_point():
            with torch.no_grad():
                vectors: Tensor = self.layer(self.embedding)(x)
            return vectors
        if self._mean is not None:
            x = x - _per_channel("mean", self._mean, x)
        if self._std is not None:
            x = x / _per_channel("std", self._std, x)
        return x

    def logits(self, inputs: Tensor, aux: Mapping[str, Tensor] | None = None) -> Tensor:
        """Run the network on normalised inputs, and return class scores or predicted numbers, (B, K), differentiable.

        Auxiliary tensors whose name begins with an underscore are for the task, and are not given to the network.
        """
        aux = aux or {}
        task = self.task
        if task.fixes and task.fixes not in aux:
            raise UserError(
                f"{task.name} needs aux[{task.fixes!r}], read off the unchanged samples: use model.fixed(batch)"
            )
        table = self._forward(inputs, aux, self.read)
        if table.ndim != 2 or len(table) != len(inputs) or not table.numel():
            raise UserError(
                f"{self.name} returned a tensor of shape {tuple(table.shape)} for {len(inputs)} inputs; "
                f"a classifier must return ({len(inputs)}, classes), other tasks are named: Model(net, task=...)"
            )
        return table

    def fixed(self, batch: Batch) -> Batch:
        """Return the samples with an auxiliary tensor that fixes what the task explains, if the task needs one.

        Some tasks explain a number about something that the model itself chose: segmentation the mean score of the
        region that it predicts, a language model the answer that it gives. That choice is made here, once, on the
        unchanged samples. Otherwise a perturbed or masked input would be scored on another region or another answer.

        >>> model = Model(nn.Conv2d(3, 2, 1), task="segmentation")
        >>> model.fixed(Batch(("a",), torch.rand(1, 3, 4, 4))).aux["_region"].shape
        torch.Size([1, 4, 4])
        """
        name = self.task.fixes
        if not name or name in batch.aux:
            return batch
        with torch.no_grad():
            tensor = self._forward(self.inputs(batch), batch.aux, self.task.fix)
        return replace(batch, aux={**batch.aux, name: tensor})

    def read(self, output: Any, aux: Mapping[str, Tensor]) -> Tensor:
        """Return the scores or numbers (B, K) that the task takes from the network's output.

        A network with a single output needs a task to be named: it may be the log-odds of yes, or a number.
        """
        table = self.task.table(output, aux)
        if self.declared is None and table.shape[1:] == (1,):
            raise UserError(f"{self.name} {ONE_OUTPUT}")
        return table

    def _forward(self, inputs: Tensor, aux: Mapping[str, Tensor], read: Read) -> Tensor:
        """Run the network on inputs (B, …), and return what `read(output, aux)` takes from its output, in the inputs' type.

        In 16 bits, small gradients would become 0. They are multiplied by `gradient_scale` when they enter the network
        from its output, and divided by it when they leave at its input.
        """
        self.passes += len(inputs)
        if inputs.requires_grad and torch.is_grad_enabled():
            self.gradient_passes += len(inputs)
        scale = self.gradient_scale
        dtype_of_caller = torch.float32
        if inputs.is_floating_point():
            dtype_of_caller = inputs.dtype
            is_laid_out = self.channels_last and inputs.ndim == 4
            inputs = scale_gradient(inputs, 1 / scale).to(
                dtype=self._weight_type() or dtype_of_caller,
                memory_format=torch.channels_last if is_laid_out else torch.preserve_format,
            )
        readouts = self._call(inputs, aux, read)
        if not readouts.is_floating_point():
            return readouts
        return scale_gradient(readouts.to(dtype_of_caller), scale)

    @cached_property
    def _layers(self) -> tuple[nn.Module, ...]:
        return tuple(self.module.modules())

    def _call(self, inputs: Tensor, aux: Mapping[str, Tensor], read: Read) -> Tensor:
        """Run the network on inputs (B, …) and return what `read(output, aux)` takes from its output, (B, …).

        The pass is padded to one of a few batch sizes, and uses the compiled network where that gives the same result.
        """
        are_vectors = self.embedding is not None and inputs.is_floating_point()
        by_name = are_vectors and "inputs_embeds" in signature(self.module.forward).parameters

        def call(network: Any, x: Tensor, aux_of_x: Mapping[str, Tensor]) -> Tensor:
            """Return what `read` takes from the output for x; names with an underscore are for the task only."""
            for_network = {
                name: tensor for name, tensor in aux_of_x.items() if not name.startswith("_")
            }
            if by_name:
                output = network(inputs_embeds=x, **for_network)
            else:
                output = network(x, **for_network)
            return read(output, aux_of_x)

        if self._is_hooked():  # a hook would see the padding too
            return call(self.module, inputs, aux)
        size = self.size_of(len(inputs))
        # A compiled network would be compiled again for every size, and hides its operations from
        # torch-function modes, by which some explainers watch the network.
        use_compiled = (
            self._compiled is not None
            and not torch._C._len_torch_function_stack()
            and size == self.rows
        )
        network = self._compiled if use_compiled else self.module
        return in_one_size(partial(call, network), inputs, aux, size)

    def size_of(self, rows: int) -> int:
        """Return how many inputs a pass of `rows` samples is padded to.

        On a GPU, a quarter of the largest pass (`self.rows`) or a whole one; a compiled network has large passes padded on
        the CPU too. All others have `rows`. Libraries choose and build kernels for every new size of a pass, which takes up
        to seconds for a network of depthwise layers in 16 bits: more than a padded pass costs. A compiled network would
        be compiled again.

        >>> Model(nn.Linear(3, 2)).size_of(5)
        5
        """
        if rows > self.rows:
            return rows
        on_gpu = self.device.type != "cpu"
        # On a CPU padding costs time in proportion, so a compiled network's small passes stay small.
        is_large_compiled_pass = self.is_compiled and 2 * rows > self.rows
        if not on_gpu and not is_large_compiled_pass:
            return rows
        quarter = self.rows // 4
        return quarter if rows <= quarter else self.rows

    def filled_up(
        self, inputs: Tensor, aux: Mapping[str, Tensor]
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Return inputs and auxiliary tensors padded to the `size_of` a pass; the caller drops the surplus outputs.

        For callers that hook a layer, for which `logits` does not pad by itself. The added rows do not count as passes.
        """
        size = self.size_of(len(inputs))
        self.passes -= size - len(inputs)
        padded_aux = {name: fill_up(value, size) for name, value in aux.items()}
        return fill_up(inputs, size), padded_aux

    def _is_hooked(self) -> bool:
        """Whether a layer has a hook, which a compiled network would not call."""
        return any(m._forward_hooks or m._forward_pre_hooks for m in self._layers)

    def _weight_type(self) -> torch.dtype | None:
        """Return the floating-point type of the network's weights, which its inputs are converted to; None without any."""
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
        """Return the layer at a dotted path such as "features.3"; the error for a wrong one lists the nearest names."""
        layers: dict[str, nn.Module] = dict(self.module.named_modules())
        if path in layers:
            return layers[path]
        names = [name for name in layers if name]
        suggestions = nearest(path, names, n=5) or names[-5:]
        raise UserError(
            f"{self.name} has no layer {path!r}; the nearest are {', '.join(suggestions)}"
        )

    def class_name(self, index: int) -> str:
        """The name of an output, or `class 7` when names were not given or do not reach so far."""
        if self.classes is not None and 0 <= index < len(self.classes):
            return self.classes[index]
        return f"class {index}"

    def __repr__(self) -> str:
        return f"Model({self.name}, {self.fingerprint[:12]})"

    def with_module(self, module: nn.Module) -> Model:
        """Return the same model, not compiled, around another network with the same inputs and outputs.

        >>> model = Model(nn.Linear(3, 2))
        >>> model.with_module(nn.Linear(3, 2)).fingerprint == model.fingerprint
        False
        """
        other = copy.copy(self)
        for cached in ("fingerprint", "weights_fingerprint", "_layers"):
            other.__dict__.pop(cached, None)
        other.module = module
        other._compiled = None
        return other


def _per_channel(name: str, values: Tensor, x: Tensor) -> Tensor:
    """Return a mean or std (C,) in a shape that broadcasts over x (B, C, …); a single value is for all channels.

    `name`, "mean" or "std", is for the error if x has another number of channels.
    """
    if values.numel() > 1 and (x.ndim < 2 or x.shape[1] != values.numel()):
        raise UserError(
            f"{name} has {values.numel()} channels but the data has shape {tuple(x.shape[1:])}"
        )
    return values.to(x.device).reshape(1, -1, *[1] * (x.ndim - 2))


Explainer.model_type = Model

"""Gradients of each sample's loss with respect to the weights of some layers, for influence functions and TracIn.

The loss is cross-entropy. The weights of a `Model` stay frozen; other tensors replace them in a pass.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Annotated, Any, NamedTuple

import torch
from pydantic import BeforeValidator
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from heatproof.errors import UserError
from heatproof.explainers.examples.training_set import Examples
from heatproof.explainers.gradient import slices
from heatproof.models import Model
from heatproof.models.precision import weight_type
from heatproof.models.smoothed import Smoothed
from heatproof.types import Batch

State = Mapping[str, Tensor]

EVERY_LAYER = "all"

Layers = Annotated[tuple[str, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)]
"""Dotted paths of layers; empty is the last linear layer that runs, "all" the whole network."""


class _Network(nn.Module):
    """A model's class scores as a module, so that `functional_call` can put other weights in place."""

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.net = model.module
        self.model = model

    def forward(self, inputs: Tensor, aux: Mapping[str, Tensor]) -> Tensor:
        # A hook makes the model run the network itself, not a compiled copy, in which weights cannot be replaced.
        with self.net.register_forward_hook(lambda *_: None):
            return self.model.logits(inputs, aux)


def class_scores(model: Model, batch: Batch, weights: State) -> Tensor:
    """Return class scores (B, classes) of a model with some of its weights replaced, differentiable by these.

    >>> model = Model(nn.Linear(2, 2))
    >>> class_scores(model, Batch(("a",), torch.ones(1, 2)), {"weight": torch.zeros(2, 2), "bias": torch.ones(2)})
    tensor([[1., 1.]])
    """
    batch = batch.to(model.device)
    # Token ids go in as they are, so that the weights of an embedding take part.
    inputs = model.inputs(batch).detach() if batch.x.is_floating_point() else batch.x
    replaced = {f"net.{name}": value for name, value in weights.items()}
    scores: Tensor = functional_call(_Network(model), replaced, (inputs, batch.aux))
    return scores


def head(model: Model, train: Examples) -> str:
    """Return the path of the last linear layer that runs, found in a pass of one training example.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> head(Model(net), Examples(Batch(("a",), torch.zeros(1, 3))))
    '2'
    """
    return train.remember(model, "head", lambda: _last_linear(model, train.batch[:1]))


def _last_linear(model: Model, sample: Batch) -> str:
    """Return the path of the last linear layer that runs in a pass of the sample."""
    ran: list[str] = []
    with torch.no_grad(), ExitStack() as hooks:
        for path, layer in _linear_layers(model).items():
            hook = layer.register_forward_pre_hook(lambda *_, path=path: ran.append(path))
            hooks.enter_context(hook)
        class_scores(model, sample, {})
    if not ran:
        raise _no_linear(model)
    return ran[-1]


def check_differentiable(
    model: Model, train: Examples, layers: Sequence[str], shape: Sequence[int], what: str
) -> None:
    """Raise `UserError` for a model, layers or training examples that the method `what` is not defined on.

    It differentiates the loss of the examples by the weights of the layers. `shape` is that of a sample. No pass is made.
    """
    if isinstance(model, Smoothed):
        raise UserError(
            f"{what} reads the weights of one network, but {model.name} averages many passes; use its base"
        )
    if weight_type(model.precision) is not None:
        raise UserError(
            f"{what} needs float32 weights, but {model.name} computes in {model.precision}"
        )
    train.check_shape(shape)
    labels = train.labels(what)
    if model.classes is not None and int(labels.max()) >= len(model.classes):
        raise _beyond(int(labels.max()), len(model.classes), model, train)
    if not layers and not _linear_layers(model):
        raise _no_linear(model)
    if layers:
        weights_of(model, layers)


def weights_of(model: Model, layers: Sequence[str]) -> dict[str, Tensor]:
    """Return the floating-point weights of some layers by their names in the network; shared weights come once.

    >>> list(weights_of(Model(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))), ["1"]))
    ['1.weight', '1.bias']
    """
    weights: dict[str, Tensor] = {}
    added: set[int] = set()
    for path in layers:
        layer = model.module if path == EVERY_LAYER else model.layer(path)
        prefix = "" if path in ("", EVERY_LAYER) else f"{path}."
        layer_weights = {
            f"{prefix}{name}": weight
            for name, weight in layer.named_parameters()
            if weight.is_floating_point()
        }
        if not layer_weights:
            raise UserError(f"layer {path!r} of {model.name} has no weights to differentiate by")
        for name, weight in layer_weights.items():
            if id(weight) not in added:
                weights[name] = weight
                added.add(id(weight))
    return weights


def chunks(model: Model, batch: Batch, target: Tensor) -> Iterator[tuple[Batch, Tensor]]:
    """Yield the samples and their classes on the model's device, at most `model.rows` at a time."""
    for rows in slices(len(batch), model.rows):
        yield batch[rows].to(model.device), target[rows].to(model.device)


def training_chunks(model: Model, train: Examples, what: str) -> Iterator[tuple[Batch, Tensor]]:
    """Yield the training examples and their labels, at most `model.rows` at a time; `what` is the method's name."""
    return chunks(model, train.batch, train.labels(what))


def losses(scores: Tensor, target: Tensor, model: Model, train: Examples) -> Tensor:
    """Return the cross-entropy (B,) of class scores; raise for a label beyond the outputs."""
    highest = int(target.max())
    if highest >= scores.shape[1]:
        raise _beyond(highest, scores.shape[1], model, train)
    return F.cross_entropy(scores, target, reduction="none")


def sample_gradients(
    model: Model,
    train: Examples,
    batch: Batch,
    target: Tensor,
    layers: Sequence[str],
    state: State | None = None,
) -> Tensor:
    """Return the gradient of each sample's loss by the P weights of some layers, (B, P).

    The loss is the cross-entropy at the class `target` (B,); weights come in the order of `weights_of(model, layers)`.
    `state` holds other weights, such as a checkpoint's. For linear layers on vectors (B, d) a row is the outer product
    of the loss' gradient by the layer's output and the layer's input, for all samples in one pass; for any other layer
    every sample is a pass of its own. At most `model.rows` samples are in one pass.

    >>> model, batch = Model(nn.Linear(1, 2)), Batch(("a",), torch.tensor([[2.0]]))
    >>> _ = model.module.weight.zero_(), model.module.bias.zero_()
    >>> sample_gradients(model, Examples(batch), batch, torch.tensor([0]), ["all"]).tolist()
    [[-1.0, 1.0, -0.5, 0.5]]
    """
    chosen = weights_of(model, layers)
    rows = []
    for samples, classes in chunks(model, batch, target):
        gradients = _linear_gradients(model, train, samples, classes, layers, state or {})
        if gradients is None:
            gradients = _one_by_one(model, train, samples, classes, chosen, state or {})
        rows.append(gradients)
    return torch.cat(rows)


class Probe(NamedTuple):
    """One call of a layer: its input (B, d), and a zero tensor added to its output, to differentiate by.

    The gradient by `output_probe` is the gradient by the output, also if the network changes that in place.
    """

    path: str
    layer_input: Tensor
    output_probe: Tensor


def probed_scores(
    model: Model, batch: Batch, layers: Sequence[str], state: State
) -> tuple[Tensor, list[Probe]]:
    """Return class scores (B, classes), and a `Probe` for every call of the given layers in the pass.

    A probe is a zero added to a layer's output. The gradient of the scores by the probe is that by the output.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    >>> scores, probes = probed_scores(Model(net), Batch(("a",), torch.ones(1, 3)), ["1"], {})
    >>> scores.shape, probes[0].layer_input.shape, probes[0].output_probe.tolist()
    (torch.Size([1, 2]), torch.Size([1, 4]), [[0.0, 0.0]])
    """
    probes: list[Probe] = []

    def add_probe_to(path: str) -> Any:
        """Return a forward hook for the layer at `path`, which adds a probe to its output and appends it to `probes`."""

        def hook(
            _: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor
        ) -> Tensor:
            """Return the output of a call plus a zero tensor, by which the scores can be differentiated."""
            layer_input = (*args, *kwargs.values())[0]
            output_probe = torch.zeros_like(output, requires_grad=True)
            probes.append(Probe(path, layer_input, output_probe))
            return output + output_probe

        return hook

    with torch.enable_grad(), ExitStack() as hooks:
        for path in layers:
            hook = model.layer(path).register_forward_hook(add_probe_to(path), with_kwargs=True)
            hooks.enter_context(hook)
        return class_scores(model, batch, state), probes


def on_vectors(model: Model, layers: Sequence[str], probes: Sequence[Probe], n: int) -> bool:
    """Return whether the gradients of some layers are outer products of their outputs' gradients and their inputs.

    That holds for a linear layer that ran, only on one vector (B, d) per sample, and shares its weights with no other
    layer. `probes` are the calls of the layers in a pass of `n` samples.
    """
    # With `remove_duplicate=False` a weight that two layers share comes twice.
    uses = Counter(
        id(weight) for _, weight in model.module.named_parameters(remove_duplicate=False)
    )
    if any(uses[id(weight)] != 1 for weight in weights_of(model, layers).values()):
        return False
    paths_that_ran = {probe.path for probe in probes}
    if paths_that_ran != set(layers):
        return False
    for probe in probes:
        if probe.layer_input.ndim != 2 or probe.output_probe.ndim != 2:
            return False
        if len(probe.layer_input) != n:
            return False
    return True


def is_linear(model: Model, path: str) -> bool:
    """Return whether a layer is an `nn.Linear`, and not of a class derived from it."""
    return path != EVERY_LAYER and type(model.layer(path)) is nn.Linear


def _linear_gradients(
    model: Model, train: Examples, batch: Batch, target: Tensor, layers: Sequence[str], state: State
) -> Tensor | None:
    """Return the gradient of each sample's loss by the weights of linear layers, (B, P), from a single pass.

    For a layer z = Wh + b it is the outer product of ∂L/∂z and h. None if a layer is no linear layer on one vector per
    sample. `state` holds weights to use in place of the model's.
    """
    if len(set(layers)) != len(layers) or not all(is_linear(model, path) for path in layers):
        return None
    scores, probes = probed_scores(model, batch, layers, state)
    if not on_vectors(model, layers, probes, len(batch)):
        return None
    with torch.enable_grad():
        total = losses(scores, target, model, train).sum()
    by_output = torch.autograd.grad(
        total,
        [probe.output_probe for probe in probes],
        allow_unused=True,
        materialize_grads=True,
    )
    columns = []
    for path in layers:
        # A layer that runs several times sums the gradients of its calls.
        by_weight, by_bias = [], []
        for gradient, probe in zip(by_output, probes, strict=True):
            if probe.path == path:
                by_weight.append(gradient[:, :, None] * probe.layer_input.detach()[:, None])
                by_bias.append(gradient)
        columns.append(torch.stack(by_weight).sum(0).flatten(1))
        if model.layer(path).bias is not None:
            columns.append(torch.stack(by_bias).sum(0))
    return torch.cat(columns, 1)


def _one_by_one(
    model: Model, train: Examples, batch: Batch, target: Tensor, chosen: State, state: State
) -> Tensor:
    """Return the gradient of each sample's loss by the `chosen` weights, (B, P), with a pass for every sample.

    That works for any layer. `state` holds weights to use in place of the model's.
    """
    leaves = leaves_of(chosen, state)
    weights = list(leaves.values())
    rows = []
    for i in range(len(batch)):
        sample = slice(i, i + 1)
        with torch.enable_grad():
            scores = class_scores(model, batch[sample], {**state, **leaves})
            loss = losses(scores, target[sample], model, train).sum()
        gradients: Sequence[Tensor | None] = [None] * len(weights)
        if loss.requires_grad:
            gradients = torch.autograd.grad(loss, weights, allow_unused=True)
        if all(gradient is None for gradient in gradients):
            names = ", ".join(list(leaves)[:3])
            raise UserError(
                f"the output of {model.name} does not depend on {names}; name layers that run in a pass"
            )
        row = []
        for gradient, weight in zip(gradients, weights, strict=True):
            row.append((torch.zeros_like(weight) if gradient is None else gradient).reshape(-1))
        rows.append(torch.cat(row))
    return torch.stack(rows)


def leaves_of(chosen: State, state: State) -> dict[str, Tensor]:
    """Return differentiable copies of the chosen weights by name, with the values that `state` has for them, if any."""
    leaves = {}
    for name, weight in chosen.items():
        value = state.get(name, weight).detach().to(weight)
        leaves[name] = value.clone().requires_grad_()
    return leaves


def _linear_layers(model: Model) -> dict[str, nn.Module]:
    return {
        path: layer for path, layer in model.module.named_modules() if isinstance(layer, nn.Linear)
    }


def _no_linear(model: Model) -> UserError:
    """Return the error for a network without a linear layer, with the last layers that have weights."""
    names = []
    for path, layer in model.module.named_modules():
        has_weights = next(layer.parameters(), None) is not None
        if path and has_weights:
            names.append(path)
    return UserError(
        f"{model.name} has no linear layer that runs; name layers, such as {', '.join(names[-3:])}"
    )


def _beyond(label: int, classes: int, model: Model, train: Examples) -> UserError:
    return UserError(
        f"class {label} is beyond the {classes} outputs of {model.name}, 0 to {classes - 1}; "
        f"look at the labels of the training examples {train.name!r}"
    )

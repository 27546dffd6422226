"""The gradient of each sample's loss with respect to the weights of some layers, what influence and TracIn compare.

The loss is cross-entropy. The weights of a `Model` are frozen and stay so; other tensors take their place in a pass.
"""

from __future__ import annotations

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
        with self.net.register_forward_hook(
            lambda *_: None
        ):  # a watched network is never run compiled
            return self.model.logits(inputs, aux)


def class_scores(model: Model, batch: Batch, weights: State) -> Tensor:
    """Class scores (B, classes) with some of the model's weights or buffers replaced, differentiable by them.

    >>> model = Model(nn.Linear(2, 2))
    >>> class_scores(model, Batch(("a",), torch.ones(1, 2)), {"weight": torch.zeros(2, 2), "bias": torch.ones(2)})
    tensor([[1., 1.]])
    """
    moved = batch.to(model.device)
    # Token ids go in as they are, so that the weights of an embedding take part.
    inputs = model.inputs(moved).detach() if moved.x.is_floating_point() else moved.x
    replaced = {f"net.{name}": value for name, value in weights.items()}
    scores: Tensor = functional_call(_Network(model), replaced, (inputs, moved.aux))
    return scores


def head(model: Model, train: Examples) -> str:
    """The path of the last linear layer that runs in a pass, found with one training example.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> head(Model(net), Examples(Batch(("a",), torch.zeros(1, 3))))
    '2'
    """
    return train.remember(model, "head", lambda: _last_linear(model, train.batch[:1]))


def _last_linear(model: Model, sample: Batch) -> str:
    ran: list[str] = []
    linear = _linear_layers(model)
    with torch.no_grad(), ExitStack() as hooks:
        for path, layer in linear.items():
            hooks.enter_context(
                layer.register_forward_pre_hook(lambda *_, path=path: ran.append(path))
            )
        class_scores(model, sample, {})
    if not ran:
        raise _no_linear(model)
    return ran[-1]


def check_differentiable(
    model: Model, train: Examples, layers: Sequence[str], shape: Sequence[int], what: str
) -> None:
    """Raise for a model, layers or examples that a loss-based method is not defined on; no pass is made."""
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
    """The floating-point weights of some layers by their names in the network, each once.

    >>> list(weights_of(Model(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))), ["1"]))
    ['1.weight', '1.bias']
    """
    found: dict[str, Tensor] = {}
    known: set[int] = set()
    for path in layers:
        layer = model.module if path == EVERY_LAYER else model.layer(path)
        prefix = "" if path in ("", EVERY_LAYER) else f"{path}."
        own = {
            f"{prefix}{name}": p for name, p in layer.named_parameters() if p.is_floating_point()
        }
        if not own:
            raise UserError(f"layer {path!r} of {model.name} has no weights to differentiate by")
        found |= {name: p for name, p in own.items() if id(p) not in known}
        known |= {id(p) for p in own.values()}
    return found


def parts(model: Model, batch: Batch, target: Tensor) -> Iterator[tuple[Batch, Tensor]]:
    """The samples and their classes on the model's device, at most `model.rows` at a time."""
    for rows in slices(len(batch), model.rows):
        yield batch[rows].to(model.device), target[rows].to(model.device)


def training_parts(model: Model, train: Examples, what: str) -> Iterator[tuple[Batch, Tensor]]:
    """The training examples and their labels, at most `model.rows` at a time."""
    return parts(model, train.batch, train.labels(what))


def losses(scores: Tensor, target: Tensor, model: Model, train: Examples) -> Tensor:
    """Cross-entropy (B,) of class scores; an error when a label is beyond the outputs."""
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
    """∇_θ of each sample's loss at its class `target` (B,), as rows (B, P) in the order of `weights_of(model, layers)`.

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
    for part, classes in parts(model, batch, target):
        found = _linear_gradients(model, train, part, classes, layers, state or {})
        rows.append(
            _one_by_one(model, train, part, classes, chosen, state or {})
            if found is None
            else found
        )
    return torch.cat(rows)


class Probe(NamedTuple):
    """One call of a linear layer in a pass: its input (B, d), and a zero added to its output, to differentiate by."""

    path: str
    taken: Tensor
    added: Tensor


def probed(
    model: Model, batch: Batch, layers: Sequence[str], state: State
) -> tuple[Tensor, list[Probe]]:
    """Class scores, differentiable by a probe at every call of the given layers.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    >>> scores, probes = probed(Model(net), Batch(("a",), torch.ones(1, 3)), ["1"], {})
    >>> scores.shape, probes[0].taken.shape, probes[0].added.tolist()
    (torch.Size([1, 2]), torch.Size([1, 4]), [[0.0, 0.0]])
    """
    seen: list[Probe] = []

    def keep(path: str) -> Any:
        def hook(
            _: nn.Module, args: tuple[Tensor, ...], kwargs: dict[str, Tensor], output: Tensor
        ) -> Tensor:
            added = torch.zeros_like(output, requires_grad=True)
            seen.append(Probe(path, (*args, *kwargs.values())[0], added))
            return output + added

        return hook

    with torch.enable_grad(), ExitStack() as hooks:
        for path in layers:
            hooks.enter_context(
                model.layer(path).register_forward_hook(keep(path), with_kwargs=True)
            )
        return class_scores(model, batch, state), seen


def on_vectors(model: Model, layers: Sequence[str], probes: Sequence[Probe], n: int) -> bool:
    """Whether every layer ran, and only on one vector per sample (B, d), and shares its weights with no other layer."""
    names = [id(p) for _, p in model.module.named_parameters(remove_duplicate=False)]
    alone = all(names.count(id(p)) == 1 for p in weights_of(model, layers).values())
    ran = {probe.path for probe in probes} == set(layers)
    return (
        alone
        and ran
        and all(p.taken.ndim == 2 and p.added.ndim == 2 and len(p.taken) == n for p in probes)
    )


def is_linear(model: Model, path: str) -> bool:
    """Whether a layer is an `nn.Linear`, and nothing derived from it."""
    return path != EVERY_LAYER and type(model.layer(path)) is nn.Linear


def _linear_gradients(
    model: Model, train: Examples, batch: Batch, target: Tensor, layers: Sequence[str], state: State
) -> Tensor | None:
    """Gradients (B, P) by outer products, or None where that is not what they are."""
    if len(set(layers)) != len(layers) or not all(is_linear(model, path) for path in layers):
        return None
    scores, probes = probed(model, batch, layers, state)
    if not on_vectors(model, layers, probes, len(batch)):
        return None
    with torch.enable_grad():
        total = losses(scores, target, model, train).sum()
    gradients = torch.autograd.grad(
        total, [p.added for p in probes], allow_unused=True, materialize_grads=True
    )
    columns = []
    for path in layers:
        calls = [
            (g, p.taken.detach()) for g, p in zip(gradients, probes, strict=True) if p.path == path
        ]
        columns.append(
            torch.stack([g[:, :, None] * taken[:, None] for g, taken in calls]).sum(0).flatten(1)
        )
        if model.layer(path).bias is not None:
            columns.append(torch.stack([g for g, _ in calls]).sum(0))
    return torch.cat(columns, 1)


def _one_by_one(
    model: Model, train: Examples, batch: Batch, target: Tensor, chosen: State, state: State
) -> Tensor:
    leaves = leaves_of(chosen, state)
    rows = []
    for i in range(len(batch)):
        with torch.enable_grad():
            scores = class_scores(model, batch[i : i + 1], {**state, **leaves})
            loss = losses(scores, target[i : i + 1], model, train).sum()
        found = (
            torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
            if loss.requires_grad
            else [None]
        )
        if all(g is None for g in found):
            names = ", ".join(list(leaves)[:3])
            raise UserError(
                f"the output of {model.name} does not depend on {names}; name layers that run in a pass"
            )
        pairs = zip(found, leaves.values(), strict=True)
        rows.append(
            torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for g, p in pairs])
        )
    return torch.stack(rows)


def leaves_of(chosen: State, state: State) -> dict[str, Tensor]:
    """Copies of the chosen weights, or of their values in `state`, that a gradient can be taken by."""
    return {
        name: state.get(name, p).detach().to(p).clone().requires_grad_()
        for name, p in chosen.items()
    }


def _linear_layers(model: Model) -> dict[str, nn.Module]:
    return {
        path: layer for path, layer in model.module.named_modules() if isinstance(layer, nn.Linear)
    }


def _no_linear(model: Model) -> UserError:
    names = [
        path
        for path, layer in model.module.named_modules()
        if path and any(True for _ in layer.parameters())
    ]
    return UserError(
        f"{model.name} has no linear layer that runs; name layers, such as {', '.join(names[-3:])}"
    )


def _beyond(label: int, classes: int, model: Model, train: Examples) -> UserError:
    return UserError(
        f"class {label} is beyond the {classes} outputs of {model.name}, 0 to {classes - 1}; "
        f"look at the labels of the training examples {train.name!r}"
    )

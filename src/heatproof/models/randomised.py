"""A model with random weights: the same network in every respect but for what it has learned.

"permute" puts the values of every parameter tensor in a random order. Each tensor keeps its values, so activations stay
in the range that the network was built for, and nothing that was learned of *which* weight goes where is left. It is
integer work: the networks are the same to the last bit on every device and worker. "normal" draws them from the normal
distribution with the tensor's mean and standard deviation. A tensor of equal values stays as it is either way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _BatchNorm

from heatproof import rand
from heatproof.models.model import Model
from heatproof.models.network import frozen_copy
from heatproof.models.smoothed import Smoothed
from heatproof.types import Batch

Scheme = Literal["permute", "normal"]
Network = TypeVar("Network", bound=torch.nn.Module)


def seeded(build: Callable[[], Network], seed: int) -> Network:
    """Return what `build` makes with torch's global generator at `seed`, and put the generator back as it was.

    For weights alone, which torch's layers draw from that generator.

    >>> before = torch.get_rng_state()
    >>> a, b = seeded(lambda: torch.nn.Linear(3, 2), 0), seeded(lambda: torch.nn.Linear(3, 2), 0)
    >>> torch.equal(a.weight, b.weight), torch.equal(before, torch.get_rng_state())
    (True, True)
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build()


def random_weights(
    model: Model, seed: int, draw: int = 0, scheme: Scheme = "permute"
) -> dict[str, Tensor]:
    """Return random values for every floating-point parameter of a model, by name: its own values in random order.

    With a `scheme` other than "permute", they are normal numbers with the parameter's mean and deviation instead. Draws
    depend on the seed, the parameter's name and the number `draw`.

    >>> model = Model(torch.nn.Linear(3, 2))
    >>> new = random_weights(model, seed=0)["weight"]
    >>> torch.equal(new.flatten().sort().values, model.module.weight.flatten().sort().values)
    True
    """
    weights = {}
    for name, parameter in model.module.named_parameters():
        if not parameter.is_floating_point():
            continue
        key = rand.fold(rand.keys(seed, (name,), "random weights"), draw).to(parameter.device)
        size = parameter.numel()
        if scheme == "permute":
            flat = parameter.detach().reshape(-1)[rand.permutation(key, size)[0]]
        else:
            values = parameter.detach().double()
            mean, deviation = values.mean(), values.std(correction=0)
            flat = mean + deviation * rand.normal(key, (size,))[0]
        weights[name] = torch.empty_like(parameter).copy_(flat.reshape(parameter.shape))
    return weights


def with_weights(
    model: Model, weights: Mapping[str, Tensor], refit_on: Batch | None = None
) -> Model:
    """Return a copy of a model with some weights replaced, by name; it shares the others and is not compiled.

    With `refit_on` the running statistics of batch norms become those of these samples, which go through the network
    in one batch. The old statistics are those of activations under the old weights; with them, the activations of a
    random network would leave the range that its layers were built for, and its maps would be constant or undefined.

    >>> net = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    >>> model, samples = Model(net), Batch(("a", "b"), torch.tensor([[0.0, 1.0], [4.0, 1.0]]))
    >>> twin = with_weights(model, {"0.weight": torch.eye(2), "0.bias": torch.zeros(2)}, refit_on=samples)
    >>> twin.module[1].running_mean.tolist(), model.module[1].running_mean.tolist()
    ([2.0, 1.0], [0.0, 0.0])
    """
    if isinstance(model, Smoothed):
        base = with_weights(model.base, weights, refit_on)
        smoothed: Any = model.with_module(base.module)
        smoothed.base = base
        return smoothed  # type: ignore[no-any-return]
    twin = model.with_module(frozen_copy(model.module))
    for name, parameter in twin.module.named_parameters():
        if name in weights:
            parameter.data = weights[name]
    norms = []
    for layer in twin.module.modules():
        if isinstance(layer, _BatchNorm) and layer.running_mean is not None:
            norms.append(layer)
    # A single sample has no variance to take.
    if norms and refit_on is not None and len(refit_on) > 1:
        _refit(twin, norms, refit_on)
    return twin


def _refit(model: Model, norms: Collection[_BatchNorm], batch: Batch) -> None:
    """Set the running mean and variance of the batch norms `norms` to those of their inputs in a pass of the batch.

    A batch norm updates these statistics itself in training mode, so it is in training mode for one pass.
    """
    momentum_before = {norm: norm.momentum for norm in norms}
    rows_before = model.rows
    # On a GPU a pass is padded to `model.rows` with copies of a sample, which would count in the statistics. A batch larger
    # than `rows` is never padded.
    model.rows = 0
    for norm in norms:
        for name, buffer in list(norm.named_buffers(recurse=False)):
            # A new buffer, since the old one is shared with the original network.
            setattr(norm, name, torch.zeros_like(buffer))
        norm.momentum = None  # the plain mean over batches, of which there is one
        norm.train()
    with torch.no_grad():
        batch = batch.to(model.device)
        model.logits(model.inputs(batch), batch.aux)
    model.rows = rows_before
    for norm, momentum in momentum_before.items():
        norm.momentum = momentum
        norm.eval()


def is_randomisable(model: Model) -> bool:
    """Whether random weights can differ from those of the model: some parameter has unequal values.

    >>> is_randomisable(Model(torch.nn.Linear(3, 2))), is_randomisable(Model(torch.nn.Flatten()))
    (True, False)
    """
    for parameter in model.module.parameters():
        first_value = parameter.reshape(-1)[:1]
        if parameter.is_floating_point() and bool((parameter != first_value).any()):
            return True
    return False


def layers_in_order(model: Model, batch: Batch) -> list[list[str]]:
    """Return the names of each layer's parameters, with layers in the order in which a pass of the batch calls them.

    A layer is a module with parameters of its own. One whose parameters are used without calling it follows the layer
    that is defined before it.

    >>> net = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.ReLU(), torch.nn.Linear(2, 2))
    >>> layers_in_order(Model(net), Batch(("a",), torch.rand(1, 3)))
    [['0.weight', '0.bias'], ['2.weight', '2.bias']]
    """
    layers: dict[str, torch.nn.Module] = {}
    parameters: dict[str, list[str]] = {}
    for name, layer in model.module.named_modules():
        names = [parameter for parameter, _ in layer.named_parameters(name, recurse=False)]
        if names:
            layers[name], parameters[name] = layer, names
    calls = _names_of_called(layers, model, batch)
    position, last = {}, -1
    for name in layers:
        if name in calls:
            last = calls.index(name)
        position[name] = last
    return [parameters[name] for name in sorted(layers, key=position.__getitem__)]


def _names_of_called(
    layers: Mapping[str, torch.nn.Module], model: Model, batch: Batch
) -> list[str]:
    """Return the names of the layers in the order in which a pass of the batch calls them."""
    calls: list[str] = []
    hooks = []
    for name, layer in layers.items():
        # `name=name` binds this name; a plain closure would see the last one.
        hook = layer.register_forward_pre_hook(lambda *_, name=name: calls.append(name))
        hooks.append(hook)
    try:
        with torch.no_grad():
            batch = batch.to(model.device)
            model.logits(model.inputs(batch), batch.aux)
    finally:
        for hook in hooks:
            hook.remove()
    return calls

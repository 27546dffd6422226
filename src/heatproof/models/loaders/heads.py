"""A new classification head on a trained network, as the FASS paper puts one of 80 outputs on networks for COCO."""

from __future__ import annotations

from torch import nn

from heatproof.errors import UserError
from heatproof.models.loaders.hubs import same_random_weights
from heatproof.models.network import Parts, frozen_copy


def with_new_head(parts: Parts, outputs: int) -> Parts:
    """Return the network with its last linear layer replaced by an untrained one of that many outputs.

    The weights are PyTorch's initial ones, the same in every process. The class names are dropped, since the outputs mean
    nothing yet, and the report warns that the head was never trained. The network given is left as it is.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 8), nn.ReLU(), nn.Linear(8, 5))
    >>> with_new_head(Parts(net), 80).module[3].out_features, net[3].out_features
    (80, 5)
    """
    if isinstance(outputs, bool) or not isinstance(outputs, int) or outputs < 2:
        raise UserError(f"new_head must be a whole number of at least 2 outputs, got {outputs!r}")
    if not isinstance(parts.module, nn.Module):
        kind = type(parts.module).__name__
        raise UserError(f"new_head is for networks of torch, and this model is {kind}")

    network = frozen_copy(parts.module)
    path, last = _last_layer(network)
    if not isinstance(last, nn.Linear):
        raise UserError(
            f"new_head replaces a linear layer at the end, and the last layer with weights, {path!r}, is "
            f"{type(last).__name__}; make the network in a python: function"
        )
    with same_random_weights():
        head = nn.Linear(last.in_features, outputs, bias=last.bias is not None)
    head.to(device=last.weight.device, dtype=last.weight.dtype)
    if path:
        network.set_submodule(path, head)
    return parts._replace(module=network if path else head, classes=None)


def _last_layer(network: nn.Module) -> tuple[str, nn.Module]:
    """Return the path and the module of the last layer with weights of its own, in the order of definition."""
    layers = [
        (path, layer)
        for path, layer in network.named_modules()
        if next(layer.parameters(recurse=False), None) is not None
    ]
    if not layers:
        raise UserError("new_head replaces the last layer with weights, and this network has none")
    return layers[-1]

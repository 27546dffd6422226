"""Activations of a named layer of a network."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.types import Batch


def activations(model: Model, batch: Batch, layer: str, entering: bool = False) -> Tensor:
    """The output of the layer at a dotted path, (B, …) float32 and detached, in passes of at most `model.rows` inputs.

    `entering` asks for what the layer takes instead.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> activations(Model(net), Batch(("a", "b"), torch.rand(2, 3)), "1").shape
    torch.Size([2, 4])
    """
    module = model.layer(layer)
    found = []
    for start in range(0, len(batch), model.rows):
        part = batch[start : start + model.rows].to(model.device)
        inputs = model.inputs(part)
        with torch.no_grad(), recorded(module, layer, entering) as outputs:
            model.logits(inputs, part.aux)
        if len(outputs) != 1:
            raise UserError(
                f"layer {layer!r} ran {len(outputs)} times in one pass; name one that runs once"
            )
        if len(outputs[0]) != len(part):
            raise UserError(
                f"layer {layer!r} {'takes' if entering else 'puts out'} a tensor of shape {tuple(outputs[0].shape)} "
                f"for {len(part)} inputs; name one whose first dimension is the batch"
            )
        found.append(outputs[0].detach().float())
    return torch.cat(found)


@contextmanager
def recorded(module: nn.Module, name: str, entering: bool = False) -> Iterator[list[Tensor]]:
    """A list that receives copies of what the module puts out while the context is open; of a tuple the first tensor.

    `entering` asks for what it takes, the first of its arguments.

    >>> with recorded(layer := nn.Linear(3, 4), "the layer") as outputs:
    ...     _ = layer(torch.rand(2, 3))
    >>> outputs[0].shape
    torch.Size([2, 4])
    """
    outputs: list[Tensor] = []

    def keep(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        output = (*args, *kwargs.values()) if entering else output
        first = (
            next((o for o in output if isinstance(o, Tensor)), None)
            if isinstance(output, tuple | list)
            else output
        )
        if not isinstance(first, Tensor):
            raise UserError(f"layer {name!r} puts out {type(output).__name__}, not a tensor")
        outputs.append(first.detach().clone())  # the network may go on in place, as ResNets do

    with module.register_forward_hook(keep, with_kwargs=True):
        yield outputs

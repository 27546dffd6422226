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
    """Return the output of a layer for the samples of a batch, (B, …) float32; with `entering`, its input instead.

    `layer` is the layer's dotted path, such as "features.3". A pass has at most `model.rows` inputs, without a gradient.

    >>> net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    >>> activations(Model(net), Batch(("a", "b"), torch.rand(2, 3)), "1").shape
    torch.Size([2, 4])
    """
    module = model.layer(layer)
    chunks = []
    for start in range(0, len(batch), model.rows):
        chunk = batch[start : start + model.rows].to(model.device)
        inputs = model.inputs(chunk)
        with torch.no_grad(), recorded(module, layer, entering) as outputs:
            model.logits(inputs, chunk.aux)
        if len(outputs) != 1:
            raise UserError(
                f"layer {layer!r} ran {len(outputs)} times in one pass; name one that runs once"
            )
        output = outputs[0]
        if len(output) != len(chunk):
            verb = "takes" if entering else "puts out"
            raise UserError(
                f"layer {layer!r} {verb} a tensor of shape {tuple(output.shape)} "
                f"for {len(chunk)} inputs; name one whose first dimension is the batch"
            )
        chunks.append(output.detach().float())
    return torch.cat(chunks)


@contextmanager
def recorded(module: nn.Module, name: str, entering: bool = False) -> Iterator[list[Tensor]]:
    """Yield a list to which every call of a module appends its output while the context is open.

    With `entering` its input is appended instead. Of several outputs or inputs, it is the first tensor. `name` is that of
    the module, for the error if there is no tensor.

    >>> with recorded(layer := nn.Linear(3, 4), "the layer") as outputs:
    ...     _ = layer(torch.rand(2, 3))
    >>> outputs[0].shape
    torch.Size([2, 4])
    """
    outputs: list[Tensor] = []

    def record(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        """Append a copy of the call's output or input; torch calls this after the module."""
        value = (*args, *kwargs.values()) if entering else output
        if isinstance(value, tuple | list):
            value = next((item for item in value if isinstance(item, Tensor)), None)
        if not isinstance(value, Tensor):
            raise UserError(f"layer {name!r} puts out {type(output).__name__}, not a tensor")
        outputs.append(value.detach().clone())  # the network may go on in place, as ResNets do

    with module.register_forward_hook(record, with_kwargs=True):
        yield outputs

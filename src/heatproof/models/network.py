"""Networks: what a loader knows of one; the frozen copy, batches of one size and class scores that `Model` needs."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from heatproof.errors import UserError

Channels = Sequence[float] | float | None


class Parts(NamedTuple):
    """What a loader found: a network, its normalisation, the names of its outputs and its best memory format.

    `embedding` is the path of the layer that turns token ids into vectors, where the network reads text.
    """

    module: nn.Module
    mean: Channels = None
    std: Channels = None
    classes: Sequence[str] | None = None
    channels_last: bool = False
    embedding: str | None = None


def frozen_copy(module: nn.Module) -> nn.Module:
    """The same structure over the same storage, in eval mode, frozen, without in-place activations.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    >>> copied = frozen_copy(net)
    >>> copied.training, copied[1].inplace, copied[0].weight.data_ptr() == net[0].weight.data_ptr()
    (False, False, True)
    """
    memo: dict[int, Any] = {}
    for part in module.modules():
        for parameter in part.parameters(recurse=False):
            memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
        for value in _tensors_in(vars(part)):
            memo.setdefault(id(value), value.detach())
    with torch.no_grad():  # a scripted module copies its weights by a differentiable operation
        clone = copy.deepcopy(module, memo).eval()
    for part in clone.modules():
        if isinstance(
            part, torch.jit.ScriptModule
        ):  # copied by its own rules, with constants that cannot be set
            for parameter in part.parameters(recurse=False):
                parameter.requires_grad_(False)
        elif getattr(part, "inplace", None) is True:
            part.inplace = False  # type: ignore[assignment]
    return clone


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Tensors in nested plain containers, such as activations that a module keeps in a list."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | list | tuple | set):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors_in(item)


def embed_unless_vectors(embed: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    """What an embedding layer of a wrapped network does: ids become vectors, and vectors stay as they are."""
    return ids if ids.is_floating_point() else embed(ids)


def scores_in(output: Any) -> Tensor:
    """The class scores inside whatever a network returned: a tensor, something with `logits`, or a tuple or dict.

    >>> scores_in({"loss": None, "logits": torch.ones(1, 2)}).shape, scores_in((torch.ones(3, 4), "more")).shape
    (torch.Size([1, 2]), torch.Size([3, 4]))
    """
    if isinstance(output, Tensor):
        if output.layout != torch.strided or output.is_complex():
            raise UserError(
                f"the model returned numbers of {output.dtype}, {output.layout}; real, dense ones are read"
            )
        return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output
    logits = (
        output.get("logits") if isinstance(output, Mapping) else getattr(output, "logits", None)
    )
    if isinstance(logits, Tensor):
        return scores_in(logits)
    values = (
        output.values()
        if isinstance(output, Mapping)
        else output
        if isinstance(output, tuple | list)
        else ()
    )
    tensors = [value for value in values if isinstance(value, Tensor)]
    if (
        isinstance(output, Mapping)
        and len(tensors) > 1
        and not isinstance(output.get("out"), Tensor)
    ):
        shapes = ", ".join(
            f"{key} {tuple(value.shape)}"
            for key, value in output.items()
            if isinstance(value, Tensor)
        )
        raise UserError(
            f"the model returned a dict without logits ({shapes}); name the one to read 'logits', or read it with "
            "task=heatproof.tasks.Readout(lambda output, aux: output[...], ...)"
        )
    if tensors:
        return scores_in(
            output["out"] if isinstance(output, Mapping) and "out" in output else tensors[0]
        )
    raise UserError(
        f"cannot find the class scores in the model's output of type {type(output).__name__}; "
        "return a tensor, a tuple or dict that begins with one, or an object with .logits"
    )


def in_one_size(
    network: Callable[[Tensor, Mapping[str, Tensor]], Tensor],
    inputs: Tensor,
    aux: Mapping[str, Tensor],
    rows: int,
) -> Tensor:
    """The outputs of a network that is only ever called with exactly `rows` inputs.

    Fewer are filled up with copies of an input, whose outputs are dropped.

    >>> seen = []
    >>> len(in_one_size(lambda x, aux: seen.append(len(x)) or 2 * x, torch.ones(7, 1), {}, 8)), seen
    (7, [8])
    """
    if len(inputs) == rows:
        return network(inputs, aux)
    whole = network(
        fill_up(inputs, rows), {name: fill_up(value, rows) for name, value in aux.items()}
    )
    return whole[: len(inputs)]


def fill_up(rows: Tensor, size: int) -> Tensor:
    """The rows with copies of the first behind them, so that there are `size`.

    >>> fill_up(torch.tensor([3, 4]), 4).tolist()
    [3, 4, 3, 3]
    """
    lacking = size - len(rows)
    return (
        torch.cat([rows, rows[:1].detach().expand(lacking, *rows.shape[1:])]) if lacking else rows
    )


def digest(state: Mapping[str, Any]) -> str:
    """sha256 of weights and buffers with their names, types and shapes."""
    found = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        if not isinstance(tensor, Tensor):  # what get_extra_state of a module returned
            found.update(f"{name}|{tensor!r}|".encode())
            continue
        found.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        found.update(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return found.hexdigest()


def channel_values(what: str, values: Channels) -> Tensor | None:
    """A mean or standard deviation of every channel (C,), checked."""
    if values is None:
        return None
    try:
        tensor = torch.as_tensor(values, dtype=torch.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise UserError(f"{what} must be a number or one per channel, got {values!r}") from error
    if not tensor.numel():
        raise UserError(f"{what} is empty; give a number or one per channel")
    if not bool(torch.isfinite(tensor).all()):
        raise UserError(f"{what} must be finite, got {tensor.tolist()}")
    return tensor

"""Networks: what a loader returns, and what `Model` needs: a frozen copy, batches of one size, class scores."""

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
    """What a loader returns: a network, its normalisation, the names of its outputs and its best memory format.

    `embedding` is the path of the layer that turns token ids into vectors, where the network reads text.
    """

    module: nn.Module
    mean: Channels = None
    std: Channels = None
    classes: Sequence[str] | None = None
    channels_last: bool = False
    embedding: str | None = None


def frozen_copy(module: nn.Module) -> nn.Module:
    """Return a copy of a network for explaining: in eval mode, with frozen weights, and without in-place activations.

    The copy shares the memory of the weights, so it costs nothing, and the network that was given stays as it is.

    >>> net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(inplace=True))
    >>> copied = frozen_copy(net)
    >>> copied.training, copied[1].inplace, copied[0].weight.data_ptr() == net[0].weight.data_ptr()
    (False, False, True)
    """
    # `deepcopy` uses the objects in its memo in place of copies, so the copy gets these views of the same memory.
    memo: dict[int, Any] = {}
    for layer in module.modules():
        for parameter in layer.parameters(recurse=False):
            memo[id(parameter)] = nn.Parameter(parameter.detach(), requires_grad=False)
        for tensor in _tensors_in(vars(layer)):
            memo.setdefault(id(tensor), tensor.detach())
    with torch.no_grad():  # a scripted module copies its weights by a differentiable operation
        clone = copy.deepcopy(module, memo).eval()
    for layer in clone.modules():
        if isinstance(layer, torch.jit.ScriptModule):
            # Scripted modules copy themselves, without the memo, and their constants cannot be set.
            for parameter in layer.parameters(recurse=False):
                parameter.requires_grad_(False)
        elif getattr(layer, "inplace", None) is True:
            layer.inplace = False  # type: ignore[assignment]
    return clone


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield the tensors in nested plain containers, such as activations that a module keeps in a list."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _tensors_in(item)
    elif isinstance(value, list | tuple | set):
        for item in value:
            yield from _tensors_in(item)


def embed_unless_vectors(embed: Callable[[Tensor], Tensor], ids: Tensor) -> Tensor:
    """Return the vectors of ids; vectors stay as they are. The forward pass of an embedding layer in a `Model`."""
    return ids if ids.is_floating_point() else embed(ids)


def scores_in(output: Any) -> Tensor:
    """Return the class scores in a network's output: the output itself, its `logits`, or a tensor in a tuple or dict.

    >>> scores_in({"loss": None, "logits": torch.ones(1, 2)}).shape, scores_in((torch.ones(3, 4), "more")).shape
    (torch.Size([1, 2]), torch.Size([3, 4]))
    """
    if isinstance(output, Tensor):
        if output.layout != torch.strided or output.is_complex():
            raise UserError(
                f"the model returned numbers of {output.dtype}, {output.layout}; real, dense ones are read"
            )
        return output.float() if output.dtype in (torch.float16, torch.bfloat16) else output
    if isinstance(output, Mapping):
        return _scores_in_mapping(output)
    logits = getattr(output, "logits", None)
    if isinstance(logits, Tensor):
        return scores_in(logits)
    if isinstance(output, tuple | list):
        for value in output:
            if isinstance(value, Tensor):
                return scores_in(value)
    raise _no_scores(output)


def in_one_size(
    network: Callable[[Tensor, Mapping[str, Tensor]], Tensor],
    inputs: Tensor,
    aux: Mapping[str, Tensor],
    rows: int,
) -> Tensor:
    """Return the network's outputs for at most `rows` inputs, from a pass of exactly `rows`.

    Missing inputs are copies of the first one, whose outputs are dropped. So a compiled network sees a single size.

    >>> sizes = []
    >>> len(in_one_size(lambda x, aux: sizes.append(len(x)) or 2 * x, torch.ones(7, 1), {}, 8)), sizes
    (7, [8])
    """
    if len(inputs) == rows:
        return network(inputs, aux)
    filled_aux = {name: fill_up(value, rows) for name, value in aux.items()}
    outputs = network(fill_up(inputs, rows), filled_aux)
    return outputs[: len(inputs)]


def fill_up(rows: Tensor, size: int) -> Tensor:
    """Return the rows followed by copies of the first, `size` in all.

    >>> fill_up(torch.tensor([3, 4]), 4).tolist()
    [3, 4, 3, 3]
    """
    missing = size - len(rows)
    if not missing:
        return rows
    copies = rows[:1].detach().expand(missing, *rows.shape[1:])
    return torch.cat([rows, copies])


def digest(state: Mapping[str, Any]) -> str:
    """Return the sha256 of weights and buffers with their names, types and shapes."""
    sha256 = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        if not isinstance(tensor, Tensor):  # what get_extra_state of a module returned
            sha256.update(f"{name}|{tensor!r}|".encode())
            continue
        sha256.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        if flat.numel():
            sha256.update(flat.view(torch.uint8).numpy().tobytes())
    return sha256.hexdigest()


def channel_values(name: str, values: Channels) -> Tensor | None:
    """Return a mean or standard deviation as a tensor (C,), one number per channel or one for all; None for None.

    `name`, "mean" or "std", is for the error if the values are no finite numbers.
    """
    if values is None:
        return None
    try:
        tensor = torch.as_tensor(values, dtype=torch.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise UserError(f"{name} must be a number or one per channel, got {values!r}") from error
    if not tensor.numel():
        raise UserError(f"{name} is empty; give a number or one per channel")
    if not bool(torch.isfinite(tensor).all()):
        raise UserError(f"{name} must be finite, got {tensor.tolist()}")
    return tensor


def _scores_in_mapping(output: Mapping[Any, Any]) -> Tensor:
    """Return the class scores in a dict: under `logits`, under `out` (as in torchvision), or else its only tensor.

    Several other tensors are a `UserError`.
    """
    tensors = {key: value for key, value in output.items() if isinstance(value, Tensor)}
    for key in ("logits", "out"):
        if key in tensors:
            return scores_in(tensors[key])
    if len(tensors) > 1:
        shapes = ", ".join(f"{key} {tuple(value.shape)}" for key, value in tensors.items())
        raise UserError(
            f"the model returned a dict without logits ({shapes}); name the one to read 'logits', or read it with "
            "task=heatproof.tasks.Readout(lambda output, aux: output[...], ...)"
        )
    for value in tensors.values():
        return scores_in(value)
    raise _no_scores(output)


def _no_scores(output: Any) -> UserError:
    """Return the error for an output of a network in which no class scores are found."""
    return UserError(
        f"cannot find the class scores in the model's output of type {type(output).__name__}; "
        "return a tensor, a tuple or dict that begins with one, or an object with .logits"
    )

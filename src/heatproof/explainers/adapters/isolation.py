"""Calling other libraries' explainers: on a copy of the network, with random states put back, and with clear errors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from heatproof import rand
from heatproof.batching import is_out_of_memory
from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.network import frozen_copy
from heatproof.models.precision import weight_type
from heatproof.types import Batch, Explainer

FOREIGN_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
)
FOREIGN_ERRORS += (LookupError, NameError, OSError, RuntimeError, TypeError, ValueError)
"""What a library raises when it cannot explain; anything else, such as an interruption, is not its answer."""
Compute = Callable[[nn.Module, Tensor, Tensor], Any]
"""(network, inputs (B, …), classes (B,)) -> maps, as a tensor or an array."""


class Adapter(Explainer):
    """An explainer of another library, whose first field says which."""

    name: ClassVar[str]

    @property
    def _label(self) -> str:
        return f"{self.name}({next(iter(vars(self).values()))})"


def foreign_maps(
    name: str,
    compute: Compute,
    model: Model,
    batch: Batch,
    target: Tensor,
    seed: int,
    *,
    draws: bool,
    alone: bool,
) -> Tensor:
    """Maps (B, …) of a foreign explainer in the shape of `model.inputs(batch)`.

    The explainer works on a copy of the network that shares its weights, so hooks, replaced layers and attributes that
    it leaves behind go with the copy, also when it fails. If it `draws` random numbers, it sees one sample at a time,
    and torch's, NumPy's and Python's global generators are seeded with `library_seed(seed, sample)` and put back. One
    that says it draws none and does is refused. `alone` asks for one sample at a time too, and so do auxiliary
    tensors: whatever the explainer then runs through the network is a version of that sample.

    >>> model, batch = Model(nn.Linear(3, 2)), Batch(("a", "b"), torch.rand(2, 3))
    >>> weights = lambda network, inputs, classes: network.weight[classes]
    >>> foreign_maps("mine", weights, model, batch, torch.tensor([0, 1]), 0, draws=False, alone=False).shape
    torch.Size([2, 3])
    """
    check_network(name, model)
    inputs = model.inputs(batch).detach()
    target = target.to(inputs.device)
    step = 1 if draws or alone or batch.aux else max(1, model.rows)
    found = []
    for start in range(0, len(batch), step):
        rows = slice(start, start + step)
        ids = batch.ids[rows]
        aux = {key: value[rows].to(inputs.device) for key, value in batch.aux.items()}
        network = own_network(model, aux)
        own = inputs[rows].clone()
        number = library_seed(seed, ids[0])
        with foreign_errors(name, ids), torch.enable_grad(), seeded(number, model.device) as drew:
            maps = compute(network, own, target[rows])
            if not draws and drew():
                raise UserError(
                    f"{name} draws random numbers; say so with draws=True, so that it is seeded per sample"
                )
        found.append(as_maps(maps, own, name))
    return torch.cat(found)


def check_network(name: str, model: Model) -> None:
    """Refuse a model whose predictions are not those of its network alone."""
    if type(model).logits is not Model.logits:
        raise UserError(
            f"{name} explains a torch network, but {model.name} is a {type(model).__name__}, which computes its "
            "predictions itself; explain the model inside it"
        )
    if weight_type(model.precision) is not None:
        raise UserError(f"{name} needs weights in float32, but {model.name} uses {model.precision}")


def own_network(model: Model, aux: Mapping[str, Tensor]) -> nn.Module:
    """A copy of the network for one call, which shares its weights and returns (B, classes); `aux` is of one sample.

    >>> model = Model(nn.Linear(3, 1), task="binary")
    >>> own_network(model, {})(torch.rand(2, 3)).shape, model.passes
    (torch.Size([2, 2]), 2)
    """
    network, rows = frozen_copy(model.module), [1]
    vectors = (
        model.embedding is not None and "inputs_embeds" in signature(network.forward).parameters
    )

    def complete(
        _: nn.Module, given: tuple[Any, ...], named: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        first, *others = given
        rows[0] = len(first)
        given_to_it = {key: value for key, value in aux.items() if not key.startswith("_")}
        named = named | {
            key: value.expand(len(first), *value.shape[1:]) for key, value in given_to_it.items()
        }
        if vectors and first.is_floating_point():
            return tuple(others), named | {"inputs_embeds": first}
        return given, named

    def read(_: nn.Module, __: Any, output: Any) -> Tensor:
        table = model.read(
            output, {key: value.expand(rows[0], *value.shape[1:]) for key, value in aux.items()}
        )
        model.passes += len(table)
        model.gradient_passes += len(table) if table.requires_grad else 0
        return table

    if aux or vectors:
        network.register_forward_pre_hook(complete, with_kwargs=True)
    network.register_forward_hook(read)
    return network


def library_seed(seed: int, sample: str) -> int:
    """The number, below 2³², that global generators are seeded with for one sample.

    >>> library_seed(0, "a") == library_seed(0, "a"), library_seed(0, "a") == library_seed(1, "a")
    (True, False)
    """
    return int(rand.keys(seed, [sample], "other libraries")[0]) & 0xFFFFFFFF


@contextmanager
def seeded(number: int, device: torch.device) -> Iterator[Callable[[], bool]]:
    """Seed the global generators and put their states back; the value tells whether anyone has drawn since.

    >>> before = torch.get_rng_state()
    >>> with seeded(7, torch.device("cpu")) as drew:
    ...     first = (drew(), float(torch.rand(())), drew())
    >>> first[0], first[2], torch.equal(before, torch.get_rng_state())
    (False, True, True)
    """
    python, legacy = random.getstate(), np.random.get_state()  # noqa: NPY002 (libraries draw from it)
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        try:
            random.seed(number)
            np.random.seed(number)  # noqa: NPY002
            torch.default_generator.manual_seed(number)
            if gpus:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(number)
            begun = _states(gpus)
            yield lambda: _states(gpus) != begun
        finally:
            random.setstate(python)
            np.random.set_state(legacy)  # noqa: NPY002


def _states(gpus: Sequence[torch.device]) -> list[Any]:
    legacy: Any = np.random.get_state()  # noqa: NPY002
    of_torch = [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in gpus)]
    return [
        random.getstate(),
        legacy[1].tobytes(),
        legacy[2:],
        *(state.numpy().tobytes() for state in of_torch),
    ]


@contextmanager
def foreign_errors(name: str, ids: Sequence[str]) -> Iterator[None]:
    """Turn an error of another library into one that names the adapter and the samples; lack of memory passes.

    >>> with foreign_errors("captum(Lime)", ["cat"]):
    ...     raise AssertionError("Target not provided")
    Traceback (most recent call last):
    heatproof.errors.UserError: captum(Lime) failed on sample cat: AssertionError: Target not provided
    """
    try:
        yield
    except UserError:
        raise
    except FOREIGN_ERRORS as error:
        if is_out_of_memory(error):
            raise  # the engine goes on with smaller batches
        some = ", ".join(ids[:3]) + (f" and {len(ids) - 3} more" if len(ids) > 3 else "")
        what = f"sample{'s' if len(ids) > 1 else ''} {some}"
        raise UserError(f"{name} failed on {what}: {type(error).__name__}: {error}") from error


def as_maps(found: Any, inputs: Tensor, name: str) -> Tensor:
    """What a library returned as maps in the shape of the inputs.

    A map without channels, or with one, counts for every channel. The map of a layer, whose channels or size are not
    the input's, is summed over its channels and enlarged (bi)linearly.

    >>> as_maps(np.ones((2, 5, 4, 4)), torch.zeros(2, 3, 8, 8), "mine").unique()
    tensor([5.])
    """
    while isinstance(found, tuple | list) and len(found) == 1:
        found = found[0]
    if not isinstance(found, Tensor | np.ndarray):
        raise UserError(f"{name} gave {type(found).__name__}; a map is a tensor or an array")
    maps = torch.as_tensor(found).detach().to(inputs.device, torch.float32)
    if maps.shape == inputs.shape:
        return maps
    if maps.ndim == inputs.ndim - 1:
        maps = maps[:, None]
    if maps.ndim == inputs.ndim > 2 and len(maps) == len(inputs):
        size = inputs.shape[2:]
        if maps.shape[1] not in (1, inputs.shape[1]) or (
            maps.shape[1] > 1 and maps.shape[2:] != size
        ):
            maps = maps.sum(1, keepdim=True)
        if maps.shape[2:] != size and maps.ndim in (3, 4):
            mode = "linear" if maps.ndim == 3 else "bilinear"
            maps = F.interpolate(maps, size=size, mode=mode, align_corners=False)
        if maps.shape[2:] == size:
            return maps.expand_as(inputs).clone()
    raise UserError(
        f"{name} gave maps of shape {tuple(maps.shape)} for inputs of shape {tuple(inputs.shape)}"
    )

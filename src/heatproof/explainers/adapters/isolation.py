"""The base class of adapters, which calls a library on a copy of the network, with restored random states."""

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
from heatproof.explainers.gradient import rows_of, slices
from heatproof.models import Model
from heatproof.models.network import frozen_copy
from heatproof.models.precision import weight_type
from heatproof.types import Batch, Explainer

FOREIGN_ERRORS: tuple[type[Exception], ...] = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    TypeError,
    ValueError,
)
"""What a library raises if it cannot explain; anything else, such as an interruption, is passed on unchanged."""
Compute = Callable[[nn.Module, Tensor, Tensor], Any]
"""(network, inputs (B, …), classes (B,)) → maps, as a tensor or an array."""


class Adapter(Explainer):
    """Base class of the explainers of other libraries; the first field of a subclass tells which method is called.

    A subclass defines `library_call`, and `stochastic`. `one_at_a_time` is for libraries that explain one sample only.
    """

    name: ClassVar[str]
    one_at_a_time: ClassVar[bool] = False

    @property
    def _label(self) -> str:
        method = next(iter(vars(self).values()))
        return f"{self.name}({method})"

    def library_call(self, model: Model, batch: Batch) -> Compute:
        """Return a function that calls the library for some samples of the batch, on a copy of the network."""
        raise NotImplementedError

    def check(self, model: Model, shape: Sequence[int]) -> None:
        """Raise for a model whose predictions are not those of its network alone."""
        check_network(self._label, model)

    def __call__(self, model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """Return the library's maps (B, …) of the classes `target` (B,), in the shape of the model's inputs."""
        return foreign_maps(
            self._label,
            self.library_call(model, batch),
            model,
            batch,
            target,
            seed,
            draws=self.stochastic,
            alone=self.one_at_a_time,
        )


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
    """Return the maps of another library's explainer, in the shape of the model's inputs (B, …).

    `compute(network, inputs, classes)` calls the library. The explainer gets a copy of the network that shares its
    weights, so that the hooks, replaced layers and attributes that it leaves behind are on the copy, also if it fails.
    If it `draws` random numbers, it gets one sample at a time, and torch's, NumPy's and Python's global generators are
    seeded with `library_seed(seed, sample)` and restored. An explainer that draws although `draws` is false is an
    error. `alone` asks for one sample at a time as well, and so do auxiliary tensors, because then every input that the
    explainer runs is a version of that sample.

    >>> model, batch = Model(nn.Linear(3, 2)), Batch(("a", "b"), torch.rand(2, 3))
    >>> weights = lambda network, inputs, classes: network.weight[classes]
    >>> foreign_maps("mine", weights, model, batch, torch.tensor([0, 1]), 0, draws=False, alone=False).shape
    torch.Size([2, 3])
    """
    check_network(name, model)
    inputs = model.inputs(batch).detach()
    target = target.to(inputs.device)
    step = 1 if draws or alone or batch.aux else max(1, model.rows)
    parts = []
    for rows in slices(len(batch), step):
        ids = batch.ids[rows]
        network = own_network(model, rows_of(batch.aux, rows, inputs.device))
        part = inputs[rows].clone()
        part_seed = library_seed(seed, ids[0])
        with (
            foreign_errors(name, ids),
            torch.enable_grad(),
            seeded(part_seed, model.device) as has_drawn,
        ):
            maps = compute(network, part, target[rows])
            if not draws and has_drawn():
                raise UserError(
                    f"{name} draws random numbers; say so with draws=True, so that it is seeded per sample"
                )
        parts.append(as_maps(maps, part, name))
    return torch.cat(parts)


def check_network(name: str, model: Model) -> None:
    """Raise `UserError` for a model that another library cannot explain by its network alone.

    Such as a smoothed model, which computes its predictions itself, or one in 16 bits. `name` is the explainer's.
    """
    if type(model).logits is not Model.logits:
        raise UserError(
            f"{name} explains a torch network, but {model.name} is a {type(model).__name__}, which computes its "
            "predictions itself; explain the model inside it"
        )
    if weight_type(model.precision) is not None:
        raise UserError(f"{name} needs weights in float32, but {model.name} uses {model.precision}")


def own_network(model: Model, aux: Mapping[str, Tensor]) -> nn.Module:
    """Return a copy of a model's network that another library can call with inputs alone, and gets class scores from.

    It shares the weights, and it is for a single call. Libraries call a network with its first argument only. Hooks add
    the auxiliary tensors of one sample, `aux`, repeated for all inputs of a pass, and read the class scores off the
    output.

    >>> model = Model(nn.Linear(3, 1), task="binary")
    >>> own_network(model, {})(torch.rand(2, 3)).shape, model.passes
    (torch.Size([2, 2]), 2)
    """
    network = frozen_copy(model.module)
    takes_embeddings = (
        model.embedding is not None and "inputs_embeds" in signature(network.forward).parameters
    )
    # Names with an underscore are for the task, not for the network.
    network_aux = {name: value for name, value in aux.items() if not name.startswith("_")}
    pass_size = 1

    def repeated(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the auxiliary tensors of the sample, repeated for all inputs of the current pass."""
        return {name: value.expand(pass_size, *value.shape[1:]) for name, value in tensors.items()}

    def add_arguments(
        _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call plus the auxiliary tensors; token vectors become `inputs_embeds`.

        A hook that torch calls before the network. It also notes the number of inputs in the pass.
        """
        nonlocal pass_size
        inputs, *further_args = args
        pass_size = len(inputs)
        kwargs = kwargs | repeated(network_aux)
        if takes_embeddings and inputs.is_floating_point():
            return tuple(further_args), kwargs | {"inputs_embeds": inputs}
        return args, kwargs

    def read_scores(_: nn.Module, args: Any, output: Any) -> Tensor:
        """Return the class scores in the network's output, and count the pass; a hook that torch calls after it."""
        scores = model.read(output, repeated(aux))
        model.passes += len(scores)
        model.gradient_passes += len(scores) if scores.requires_grad else 0
        return scores

    if aux or takes_embeddings:
        network.register_forward_pre_hook(add_arguments, with_kwargs=True)
    network.register_forward_hook(read_scores)
    return network


def library_seed(seed: int, sample: str) -> int:
    """Return the number, below 2³², that global generators are seeded with for one sample.

    >>> library_seed(0, "a") == library_seed(0, "a"), library_seed(0, "a") == library_seed(1, "a")
    (True, False)
    """
    return int(rand.keys(seed, [sample], "other libraries")[0]) & 0xFFFFFFFF


@contextmanager
def seeded(number: int, device: torch.device) -> Iterator[Callable[[], bool]]:
    """Seed Python's, NumPy's and torch's global random generators within the context, and restore them after it.

    Yields a function that returns whether anything was drawn since.

    >>> before = torch.get_rng_state()
    >>> with seeded(7, torch.device("cpu")) as has_drawn:
    ...     first = (has_drawn(), float(torch.rand(())), has_drawn())
    >>> first[0], first[2], torch.equal(before, torch.get_rng_state())
    (False, True, True)
    """
    python_state = random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002 (libraries draw from it)
    gpus = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=gpus):
        try:
            random.seed(number)
            np.random.seed(number)  # noqa: NPY002
            torch.default_generator.manual_seed(number)
            if gpus:
                with torch.cuda.device(device):
                    torch.cuda.manual_seed(number)
            initial_states = _generator_states(gpus)
            yield lambda: _generator_states(gpus) != initial_states
        finally:
            random.setstate(python_state)
            np.random.set_state(numpy_state)  # noqa: NPY002


def _generator_states(gpus: Sequence[torch.device]) -> list[Any]:
    """Return the states of Python's, NumPy's and torch's global generators, in a form that can be compared."""
    numpy_state: Any = np.random.get_state()  # noqa: NPY002
    torch_states = [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in gpus)]
    return [
        random.getstate(),
        numpy_state[1].tobytes(),
        numpy_state[2:],
        *(state.numpy().tobytes() for state in torch_states),
    ]


@contextmanager
def foreign_errors(name: str, ids: Sequence[str]) -> Iterator[None]:
    """Turn an error of another library in this context into a `UserError` that names the explainer and the samples.

    Errors for too little memory stay as they are, because the engine then retries with fewer samples.

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
            raise  # the engine retries with smaller batches
        listed = ", ".join(ids[:3])
        if len(ids) > 3:
            listed += f" and {len(ids) - 3} more"
        noun = "samples" if len(ids) > 1 else "sample"
        raise UserError(
            f"{name} failed on {noun} {listed}: {type(error).__name__}: {error}"
        ) from error


def as_maps(returned: Any, inputs: Tensor, name: str) -> Tensor:
    """Return the maps that a library returned as a tensor in the shape of the inputs; raise if they do not fit.

    A map without channels, or with one, is repeated for every channel. The map of a layer, whose channels or size are
    not the input's, is summed over its channels and enlarged (bi)linearly.

    >>> as_maps(np.ones((2, 5, 4, 4)), torch.zeros(2, 3, 8, 8), "mine").unique()
    tensor([5.])
    """
    while isinstance(returned, tuple | list) and len(returned) == 1:
        returned = returned[0]
    if not isinstance(returned, Tensor | np.ndarray):
        raise UserError(f"{name} gave {type(returned).__name__}; a map is a tensor or an array")
    maps = torch.as_tensor(returned).detach().to(inputs.device, torch.float32)
    if maps.shape == inputs.shape:
        return maps
    if maps.ndim == inputs.ndim - 1:
        maps = maps[:, None]
    if maps.ndim == inputs.ndim > 2 and len(maps) == len(inputs):
        size = inputs.shape[2:]
        has_input_channels = maps.shape[1] == inputs.shape[1] and maps.shape[2:] == size
        if maps.shape[1] != 1 and not has_input_channels:
            maps = maps.sum(1, keepdim=True)
        if maps.shape[2:] != size and maps.ndim in (3, 4):
            mode = "linear" if maps.ndim == 3 else "bilinear"
            maps = F.interpolate(maps, size=size, mode=mode, align_corners=False)
        if maps.shape[2:] == size:
            return maps.expand_as(inputs).clone()
    raise UserError(
        f"{name} gave maps of shape {tuple(maps.shape)} for inputs of shape {tuple(inputs.shape)}"
    )

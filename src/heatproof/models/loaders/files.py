"""Weights in a file, with the architecture that they belong to. Files are read as data; a pickle may run code."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from heatproof.data import existing
from heatproof.data.code import check_allowed, made_by
from heatproof.errors import UserError, unknown
from heatproof.models import Model
from heatproof.models.checkpoints import Checkpoint, load_safe, unwrapped
from heatproof.models.loaders.hubs import from_hf, from_timm, from_torchvision
from heatproof.models.network import Parts

SAFE, PICKLES = ".safetensors", (".pt", ".pth", ".bin", ".ckpt")
BARE: Mapping[str, Callable[[str, int | None], Parts]] = {
    "torchvision": from_torchvision,
    "timm": from_timm,
    "hf": from_hf,
}
"""Kinds of architectures that are made without their own weights, and with as many classes as the file has."""
_SAFE_SINCE = (2, 6)
"""Before this version of torch, reading weights alone from a pickle could be made to run code."""


def load_file(
    path: str, architecture: str | None = None, allow_code: bool = False
) -> Parts | Model:
    """Return a network with the weights in a file, by the name of its `architecture`, such as "torchvision:resnet50".

    Names and shapes of the weights must agree exactly. A pickle of a whole network needs no architecture.

    >>> load_file("no/such/weights.safetensors", "torchvision:resnet50")
    Traceback (most recent call last):
    heatproof.errors.UserError: there is no file or folder ...
    """
    file = existing(Path(path))
    if file.suffix not in (SAFE, *PICKLES):
        kinds = ", ".join((SAFE, *PICKLES))
        raise UserError(
            f"{file.name} is not a file of weights ({kinds}); what is pickled otherwise, such as an estimator, "
            "is made by a function: python:file.py:make"
        )
    content = _read(file, allow_code)
    if isinstance(content, nn.Module):
        if architecture is not None:
            raise UserError(f"{file.name} holds a whole network; leave its architecture out")
        return Parts(content)
    if architecture is None:
        raise UserError(
            f"{file.name} holds weights; name their architecture too, such as torchvision:resnet50"
        )
    state = unwrapped(content, file.name)
    checkpoint = Checkpoint(state)
    checkpoint.name = file.name
    parts = bare(architecture, None, allow_code)
    if isinstance(parts, Model):
        raise UserError(
            f"{architecture} makes a heatproof.Model; load the weights there, or return the torch module"
        )
    outputs = _outputs(parts.module, state)
    if outputs is not None and architecture.partition(":")[0] in BARE:
        parts = bare(architecture, outputs, allow_code)
    # `weights` compares with the state dict of a Model, which refuses what differs.
    weights = checkpoint.weights(Model(parts.module, name=architecture))
    parts.module.load_state_dict(weights)
    return parts


def bare(architecture: str, outputs: int | None, allow_code: bool) -> Parts | Model:
    """Return a network by the name of its architecture, such as "torchvision:resnet50", with untrained weights.

    With `outputs` it has that many classes. An architecture may be a user's function, "python:file.py:make".
    """
    kind, _, rest = architecture.partition(":")
    if kind == "python":
        check_allowed(architecture, allow_code)
        network = made_by(rest)
        if isinstance(network, Model):
            return network
        if not isinstance(network, nn.Module):
            raise UserError(
                f"{architecture} gave {type(network).__name__}; a torch.nn.Module was expected"
            )
        return Parts(network)
    if kind not in BARE:
        raise unknown("kind of architecture", kind, [*BARE, "python"])
    name = rest.partition("@")[0]
    return BARE[kind](f"{name}@none", outputs)


def _outputs(module: nn.Module, weights: Mapping[str, Tensor]) -> int | None:
    """Return how many classes stored weights are for, if the network `module` has another number; else None.

    That is the number of rows of the last tensor, the weight or bias of the head.
    """
    state = module.state_dict()
    last = next(reversed(state), None)
    if last is None or last not in weights or not weights[last].ndim:
        return None
    outputs = len(weights[last])
    return None if outputs == len(state[last]) else outputs


def _read(file: Path, allow_code: bool) -> Any:
    """Return the content of a file of weights: a state dict, or with `allow_code` perhaps a pickled network.

    Files are read without running code where that is possible. Any other pickle needs `allow_code`.
    """
    if file.suffix == SAFE:
        return load_safe(file)
    if tuple(map(int, torch.__version__.split(".")[:2])) < _SAFE_SINCE and not allow_code:
        raise UserError(
            f"{file.name} is a pickle, which torch {torch.__version__} cannot read safely; use {SAFE}"
        )
    try:
        with warnings.catch_warnings():  # of a pickle that is refused in the end
            warnings.simplefilter("ignore", UserWarning)
            return torch.load(file, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        if not allow_code:
            raise UserError(
                f"{str(file)!r} is a pickle of more than weights, and reading it may run any code; store the weights "
                "with torch.save(net.state_dict(), path) and name the architecture, or add --allow-code "
                "(allow_code=True) if you trust it"
            ) from error
    with warnings.catch_warnings():  # of an archive of TorchScript, which is read as well
        warnings.simplefilter("ignore", UserWarning)
        warnings.simplefilter("ignore", DeprecationWarning)
        content = torch.load(file, map_location="cpu", weights_only=False)
    if not isinstance(content, nn.Module | Mapping):
        raise UserError(
            f"{file.name} holds {type(content).__name__}; a network or its weights were expected"
        )
    return content

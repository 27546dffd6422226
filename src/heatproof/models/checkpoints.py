"""Saved weights of a network as a parameter, read as data and never run."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import pickle
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import BeforeValidator
from torch import Tensor

from heatproof.data import existing
from heatproof.errors import UserError, nearest
from heatproof.models import Model

_WRAPPERS = ("state_dict", "model_state_dict", "model")
_PREFIX = "module."


class Checkpoint:
    """The weights of a network at one time of its training: a state dict, or a `.pt` or `.safetensors` file of one.

    Files are read with `weights_only`, so they cannot run code. A state dict under the key `state_dict`, and names that
    begin with `module.`, are understood. The text form names the content, so a manifest can store it.

    >>> net = torch.nn.Linear(1, 1)
    >>> list(Checkpoint(net.state_dict()).weights(Model(net)))
    ['weight', 'bias']
    """

    def __init__(self, source: str | Path | Mapping[str, Tensor]) -> None:
        self._state: Mapping[str, Tensor] | None = None
        if isinstance(source, Mapping):
            self.name = "state dict"
            own = unwrapped(source, self.name)
            self._state = {name: tensor.detach().cpu().clone() for name, tensor in own.items()}
        else:
            self._path = existing(Path(source).expanduser())
            self.name = self._path.name
            if not self._path.is_file():
                raise UserError(
                    f"a checkpoint is a file with a state dict, but {str(self._path)!r} is a folder"
                )

    @cached_property
    def fingerprint(self) -> str:
        """sha256 of the file, or of the names and values of the state dict."""
        if self._state is None:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        digest = hashlib.sha256()
        for name, tensor in sorted(self._state.items()):
            digest.update(f"{name}|{tensor.dtype}|{tuple(tensor.shape)}|".encode())
            digest.update(tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        return digest.hexdigest()

    def weights(self, model: Model) -> dict[str, Tensor]:
        """The weights and buffers by name, as the model's own network has them, or an error that names what differs."""
        found = self._read()
        own = {
            name: tensor
            for name, tensor in model.module.state_dict().items()
            if isinstance(tensor, Tensor)
        }
        for name in own:
            if name not in found:
                raise UserError(
                    f"checkpoint {self.name} has no {name!r} of {model.name}{_hint(name, found)}"
                )
        for name, tensor in found.items():
            if name not in own:
                raise UserError(
                    f"checkpoint {self.name} has {name!r}, which {model.name} has not{_hint(name, own)}"
                )
            if tensor.shape != own[name].shape:
                raise UserError(
                    f"checkpoint {self.name} has {name!r} of shape {tuple(tensor.shape)}, but in {model.name} it is "
                    f"{tuple(own[name].shape)}"
                )
        return {name: found[name].to(tensor) for name, tensor in own.items()}

    def _read(self) -> Mapping[str, Tensor]:
        if self._state is None:
            _ = self.fingerprint  # of the file as it is read now
            self._state = unwrapped(_load(self._path), self.name)
        return self._state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Checkpoint({self.name}, {self.fingerprint[:8]})"


def unwrapped(content: Any, name: str) -> dict[str, Tensor]:
    """The state dict inside what was saved.

    >>> unwrapped({"epoch": 3, "state_dict": {"module.weight": torch.zeros(1)}}, "a.pt")
    {'weight': tensor([0.])}
    """
    named = content if isinstance(content, Mapping) else {}
    wrapper = next((key for key in _WRAPPERS if isinstance(named.get(key), Mapping)), None)
    state = content if wrapper is None else content[wrapper]
    if (
        not isinstance(state, Mapping)
        or not state
        or not any(isinstance(v, Tensor) for v in state.values())
    ):
        raise UserError(
            f"checkpoint {name} holds no state dict; save one with torch.save(net.state_dict(), path)"
        )
    prefix = _PREFIX if all(str(key).startswith(_PREFIX) for key in state) else ""
    return {
        str(key).removeprefix(prefix): value
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def load_safe(path: Path) -> Any:
    """The tensors of a `.safetensors` file by name."""
    if importlib.util.find_spec("safetensors") is None:
        raise UserError(f'{path.name} needs safetensors: pip install "heatproof[safetensors]"')
    safe = importlib.import_module("safetensors")
    try:
        return importlib.import_module("safetensors.torch").load_file(path)
    except safe.SafetensorError as error:
        raise UserError(f"{str(path)!r} is not a safetensors file: {error}") from error


def _load(path: Path) -> Any:
    if path.suffix == ".safetensors":
        return load_safe(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        first = str(error).strip().splitlines()[:1] or [type(error).__name__]
        raise UserError(f"cannot read {str(path)!r} as weights alone: {first[0]}") from error


def _hint(name: str, choices: Mapping[str, Tensor]) -> str:
    close = nearest(name, choices, n=1)
    return f"; the nearest there is {close[0]!r}" if close else ""


def _listed(value: Any) -> Any:
    one = isinstance(value, str | Path | Mapping | Checkpoint)
    values: Any = (value,) if one else value
    if not isinstance(values, Sequence):
        return values
    return tuple(Checkpoint(v) if isinstance(v, str | Path | Mapping) else v for v in values)


Checkpoints = Annotated[tuple[Checkpoint, ...], BeforeValidator(_listed)]
"""The type of a field that holds checkpoints and is also given by paths in a study file."""

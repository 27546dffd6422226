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
from heatproof.models.network import digest

_WRAPPERS = ("state_dict", "model_state_dict", "model")
"""Keys under which training code saves the state dict, beside the epoch and the optimiser."""
_PREFIX = "module."
"""What `nn.DataParallel` puts before every name."""


class Checkpoint:
    """The weights of a network at one time of its training: a state dict, or a `.pt` or `.safetensors` file of one.

    Files are read with `weights_only`, so they cannot run code. A state dict under the key `state_dict`, and names that
    begin with `module.`, are understood. The text form names the content, so a manifest can store it.

    >>> net = torch.nn.Linear(1, 1)
    >>> list(Checkpoint(net.state_dict()).weights(Model(net)))
    ['weight', 'bias']
    """

    def __init__(self, source: str | Path | Mapping[str, Tensor]) -> None:
        """Take a state dict, which is copied, or the path of a file, which is read when it is needed."""
        self._state: Mapping[str, Tensor] | None = None
        if isinstance(source, Mapping):
            self.name = "state dict"
            state = unwrapped(source, self.name)
            # A copy: training goes on in the tensors that were given.
            self._state = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}
        else:
            self._path = existing(Path(source).expanduser())
            self.name = self._path.name
            if not self._path.is_file():
                raise UserError(
                    f"a checkpoint is a file with a state dict, but {str(self._path)!r} is a folder"
                )

    @cached_property
    def fingerprint(self) -> str:
        """The sha256 of the file, or of the names and values of the state dict."""
        if self._state is None:
            return hashlib.sha256(self._path.read_bytes()).hexdigest()
        return digest(self._state)

    def weights(self, model: Model) -> dict[str, Tensor]:
        """Return the weights and buffers by name; raise `UserError` where names or shapes differ from the model's."""
        saved = self._read()
        expected = {
            name: tensor
            for name, tensor in model.module.state_dict().items()
            if isinstance(tensor, Tensor)  # an extra state is none
        }
        for name in expected:
            if name not in saved:
                raise UserError(
                    f"checkpoint {self.name} has no {name!r} of {model.name}{_hint(name, saved)}"
                )
        for name, tensor in saved.items():
            if name not in expected:
                raise UserError(
                    f"checkpoint {self.name} has {name!r}, which {model.name} has not{_hint(name, expected)}"
                )
            shape = expected[name].shape
            if tensor.shape != shape:
                raise UserError(
                    f"checkpoint {self.name} has {name!r} of shape {tuple(tensor.shape)}, but in {model.name} it is "
                    f"{tuple(shape)}"
                )
        return {name: saved[name].to(tensor) for name, tensor in expected.items()}

    def _read(self) -> Mapping[str, Tensor]:
        if self._state is None:
            _ = self.fingerprint  # computed before the state is there: it is that of the file
            self._state = unwrapped(_load(self._path), self.name)
        return self._state

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Checkpoint) and self.fingerprint == other.fingerprint

    def __hash__(self) -> int:
        return hash(self.fingerprint)

    def __repr__(self) -> str:
        return f"Checkpoint({self.name}, {self.fingerprint[:8]})"


def unwrapped(content: Any, name: str) -> dict[str, Tensor]:
    """Return the weights by name in the content of a checkpoint file.

    They may lie under a key such as "state_dict", and names may begin with "module.", as `DataParallel` saves them.

    >>> unwrapped({"epoch": 3, "state_dict": {"module.weight": torch.zeros(1)}}, "a.pt")
    {'weight': tensor([0.])}
    """
    state = content
    if isinstance(content, Mapping):
        for key in _WRAPPERS:
            if isinstance(content.get(key), Mapping):
                state = content[key]
                break
    tensors: dict[str, Tensor] = {}
    if isinstance(state, Mapping):
        tensors = {str(key): value for key, value in state.items() if isinstance(value, Tensor)}
    if not tensors:
        raise UserError(
            f"checkpoint {name} holds no state dict; save one with torch.save(net.state_dict(), path)"
        )
    if all(str(key).startswith(_PREFIX) for key in state):
        tensors = {key.removeprefix(_PREFIX): value for key, value in tensors.items()}
    return tensors


def load_safe(path: Path) -> Any:
    """Return the tensors of a `.safetensors` file by name."""
    if importlib.util.find_spec("safetensors") is None:
        raise UserError(f'{path.name} needs safetensors: pip install "heatproof[safetensors]"')
    safetensors = importlib.import_module("safetensors")
    try:
        return importlib.import_module("safetensors.torch").load_file(path)
    except safetensors.SafetensorError as error:
        raise UserError(f"{str(path)!r} is not a safetensors file: {error}") from error


def _load(path: Path) -> Any:
    """Return the content of a file of weights, read without running code; raise `UserError` for any other file."""
    if path.suffix == ".safetensors":
        return load_safe(path)
    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise UserError(f"cannot read {str(path)!r} as weights alone: {lines[0]}") from error


def _hint(name: str, choices: Mapping[str, Tensor]) -> str:
    """Return the end of an error message that names the weights with the nearest name; empty without any."""
    suggestions = nearest(name, choices, n=1)
    return f"; the nearest there is {suggestions[0]!r}" if suggestions else ""


def _listed(value: Any) -> Any:
    """Return checkpoints as a tuple, from one or several paths, state dicts or `Checkpoint`s."""
    if isinstance(value, str | Path | Mapping | Checkpoint):
        value = (value,)
    if not isinstance(value, Sequence):
        return value  # pydantic refuses it with the right message
    return tuple(
        Checkpoint(item) if isinstance(item, str | Path | Mapping) else item for item in value
    )


Checkpoints = Annotated[tuple[Checkpoint, ...], BeforeValidator(_listed)]
"""The type of a field that holds checkpoints and is also given by paths in a study file."""

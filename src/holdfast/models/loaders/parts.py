"""What a loader of models gives: a network and what is known about its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from torch import nn

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


def beside(path: str, folder: str | Path | None) -> Path:
    """A path of a study file: relative to its folder, `~` understood.

    >>> beside("weights/a.pt", "/studies").as_posix()
    '/studies/weights/a.pt'
    """
    return Path(folder or Path.cwd()) / Path(path).expanduser()

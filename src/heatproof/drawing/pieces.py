"""Pieces of a paper: drawings, tables and what was left out, and the items of which an axis can make them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from heatproof.drawing.latex import Tabular
from heatproof.drawing.sheet import Plot

if TYPE_CHECKING:
    from heatproof.results.arrays import ScoreArrays


@dataclass(frozen=True)
class Drawing:
    """A finished figure; `subject` tells it from others of the same kind and is empty where there is one only."""

    subject: str
    caption: str
    plots: Sequence[Plot]


@dataclass(frozen=True)
class Table:
    """A finished table; `caption` is plain text."""

    subject: str
    caption: str
    content: Tabular


@dataclass(frozen=True)
class Skipped:
    """Why something was not made, and what would help."""

    subject: str
    reason: str


Piece = Drawing | Table | Skipped


@dataclass(frozen=True)
class Item:
    """One kind of figure or table: its name, what in which paper it follows, and what makes it.

    `make(material, width)` is given everything that was judged, as `heatproof.axes.material.Material`.
    """

    name: str
    paper: str
    kind: Literal["figure", "table"]
    make: Callable[[Any, float], Iterator[Piece]]


def subjects(every_arrays: Sequence[ScoreArrays]) -> list[str]:
    """For each result the words that tell it from the others; empty for the only one.

    >>> subjects([])
    []
    """
    parts = [(arrays.dataset, arrays.model, arrays.evaluation) for arrays in every_arrays]
    differ = [len({part[i] for part in parts}) > 1 for i in range(3)]
    return [
        ", ".join(text for text, told in zip(part, differ, strict=True) if told) for part in parts
    ]


def about(arrays: ScoreArrays) -> str:
    """The model and the data in words.

    >>> import numpy as np, pandas as pd
    >>> from heatproof.results.arrays import ScoreArrays
    >>> about(ScoreArrays("photos", "net", "s", [], [], ["a"], {}, np.zeros((0, 0, 1), np.int8), pd.DataFrame(), {}))
    'net on photos (1 sample)'
    """
    n = len(arrays.samples)
    return f"{arrays.model} on {arrays.dataset} ({n} sample{'' if n == 1 else 's'})"


def file_part(text: str) -> str:
    """A name as part of a file name.

    >>> file_part("ResNet-50, retrained 1/α")
    'resnet-50-retrained-1'
    """
    return re.sub(r"[^a-z0-9.=]+", "-", text.lower()).strip("-.")[:60].strip("-.")

"""Material of figures for papers: everything that a run judged, and the charts of the page as drawings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from heatproof.axes.contract import AxisResult
from heatproof.drawing.charts import Chart
from heatproof.drawing.pieces import Drawing, Skipped, about, subjects


@dataclass(frozen=True)
class Material:
    """The results of a run, its manifest, and what it knows of its samples."""

    judged: list[AxisResult]
    manifest: Mapping[str, Any]
    samples: pd.DataFrame = field(default_factory=pd.DataFrame)

    def of(self, axis: str) -> list[AxisResult]:
        """What an axis judged, by its name."""
        return [judged for judged in self.judged if judged.axis.name == axis]

    @property
    def fingerprint(self) -> str:
        """Twelve digits that stand for the study with the hashes of its models and data, and for the version."""
        about = {"heatproof": self.manifest.get("heatproof"), "study": self.manifest.get("study")}
        return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[
            :12
        ]


def charted(
    axis: str, chart: Callable[[AxisResult], Chart | None], nothing: str, missing: str
) -> Callable[[Material, float], Iterator[Drawing | Skipped]]:
    """What makes the figures of one chart of an axis, as an `Item` has it: `drawings` of all that was judged.

    >>> next(charted("stability", lambda judged: None, "no rows", "no score")(Material([], {}), 1.0)).reason
    'no rows'
    """
    return lambda material, width: drawings(
        [(j, chart(j)) for j in material.of(axis)], nothing, missing
    )


def drawings(
    charts: Sequence[tuple[AxisResult, Chart | None]], nothing: str, missing: str
) -> Iterator[Drawing | Skipped]:
    """The charts of the page as drawings for a paper, each told from the others; why there is none where there is none.

    >>> next(drawings([], "no rows", "no score")).reason
    'no rows'
    """
    if not charts:
        yield Skipped("", nothing)
    cubes = [judged.cube for judged, _ in charts]
    for (judged, chart), subject in zip(charts, subjects(cubes), strict=True):
        if chart is None:
            yield Skipped(subject, missing)
            continue
        apart = (
            chart.title.partition(": ")[2] if sum(cube is judged.cube for cube in cubes) > 1 else ""
        )
        told = ", ".join(filter(None, (subject, apart)))
        yield Drawing(
            told, f"{chart.title}: {about(judged.cube)}. {chart.caption}".strip(), chart.every
        )

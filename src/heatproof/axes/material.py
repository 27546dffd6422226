"""Material of figures for papers: all results of a run, and the charts of the page as drawings."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pandas as pd

from heatproof.drawing.charts import Chart
from heatproof.drawing.pieces import Drawing, Skipped, about, subjects
from heatproof.results.axis_result import AxisResult

if TYPE_CHECKING:
    # The runs are built on the axes; they only lend them the type of a manifest.
    from heatproof.runs.manifest import Manifest


@dataclass(frozen=True)
class Material:
    """The results of a run, its manifest, and what it knows of its samples."""

    results: list[AxisResult]
    manifest: Manifest
    samples: pd.DataFrame = field(default_factory=pd.DataFrame)

    def of(self, axis: str) -> list[AxisResult]:
        """Return the results of an axis, by its name."""
        return [result for result in self.results if result.axis.name == axis]

    @property
    def fingerprint(self) -> str:
        """Twelve digits that stand for the study with the hashes of its models and data, and for the version."""
        made_by = {
            "heatproof": self.manifest.heatproof,
            "study": self.manifest.study.as_mapping(),
        }
        text = json.dumps(made_by, sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:12]


def charted(
    axis: str, chart: Callable[[AxisResult], Chart | None], nothing: str, missing: str
) -> Callable[[Material, float], Iterator[Drawing | Skipped]]:
    """Return what makes the figures of one chart of an axis, as an `Item` has it: `drawings` of all its results."""

    def make(material: Material, width: float) -> Iterator[Drawing | Skipped]:
        charts = [(result, chart(result)) for result in material.of(axis)]
        yield from drawings(charts, nothing, missing)

    return make


def drawings(
    charts: Sequence[tuple[AxisResult, Chart | None]], nothing: str, missing: str
) -> Iterator[Drawing | Skipped]:
    """Yield the charts of the page as drawings for a paper, each with a name of its own, or why there is none.

    >>> next(drawings([], "no rows", "no score")).reason
    'no rows'
    """
    if not charts:
        yield Skipped("", nothing)
    every_arrays = [result.arrays for result, _ in charts]
    for (result, chart), subject in zip(charts, subjects(every_arrays), strict=True):
        if chart is None:
            yield Skipped(subject, missing)
            continue
        has_several_charts = sum(arrays is result.arrays for arrays in every_arrays) > 1
        chart_subject = chart.title.partition(": ")[2] if has_several_charts else ""
        name = ", ".join(filter(None, (subject, chart_subject)))
        caption = f"{chart.title}: {about(result.arrays)}. {chart.caption}".strip()
        yield Drawing(name, caption, chart.every)

"""The statistics of one dataset and model's stability: summary, ranking, tests and components as data frames."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import pandas as pd

from heatproof import statistics
from heatproof.axes.contract import AxisResult
from heatproof.maps.similarity import COMPONENTS
from heatproof.statistics.cubes import Cube

FASS = "fass"


@dataclass(frozen=True)
class Frames:
    """What page, findings and figures say of one dataset and model."""

    judged: AxisResult

    @property
    def cube(self) -> Cube:
        """The scores themselves."""
        return self.judged.cube

    @property
    def summary(self) -> pd.DataFrame:
        """`statistics.summary` of every measure."""
        return self.judged.summary

    @property
    def ranking(self) -> pd.DataFrame:
        """`statistics.ranking` by FASS."""
        return self.judged.ranking

    @property
    def tests(self) -> pd.DataFrame:
        """`statistics.paired_tests` of FASS."""
        return self.judged.tests

    @cached_property
    def disagreement(self) -> pd.DataFrame:
        """How often the components do not order two methods the same way; empty where one of them is missing."""
        return statistics.disagreement([self.cube], COMPONENTS)

    @cached_property
    def components(self) -> dict[str, pd.DataFrame]:
        """The scores of `statistics.ranking` by each of the components that were measured."""
        return {
            m: statistics.ranking([self.cube], m, better="neither")
            for m in COMPONENTS
            if m in self.cube.values
        }

    @property
    def calibrated(self) -> bool:
        """Whether the overall score has a chance level to be measured against."""
        return bool(self.summary["calibrated"].notna().any())

    @property
    def methods(self) -> pd.DataFrame:
        """The ranking of those with a score, controls left out."""
        return self.ranking[self.ranking["score"].notna() & ~self.ranking["control"]]

    def title_of(self, measure: str) -> str:
        """A measure as it is written."""
        declared = self.judged.axis.measure(measure)
        return declared.title if declared else measure

    def registered(self, explainer: str) -> str:
        """The name by which a study file calls an explainer."""
        return str(self.judged.settings_of(explainer).get("name") or explainer)

    def cells(self, measure: str = FASS) -> pd.DataFrame:
        """The summary of one measure with the best available form of each score as `best`, `best_low`, `best_high`."""
        return statistics.with_best(self.summary[self.summary["measure"] == measure])

    def at_chance(self) -> pd.DataFrame:
        """The cells of methods whose calibrated interval does not lie above chance, controls left out."""
        cells = self.cells()
        return cells[cells["calibrated"].notna() & ~cells["control"] & (cells["best_low"] <= 0)]


def frames(judged: AxisResult) -> Frames | None:
    """The statistics of one dataset and model; None where FASS was not measured."""
    known: Frames | None = judged.computed.setdefault(
        "frames", Frames(judged) if FASS in judged.cube.values else None
    )
    return known

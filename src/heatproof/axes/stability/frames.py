"""The statistics of one dataset and model's stability: summary, ranking, tests and components as data frames."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes.contract import AxisResult
from heatproof.axes.stability.evaluation import FASS, SIMILARITIES, unaligned
from heatproof.evaluation import Condition
from heatproof.maps.similarity import COMPONENTS
from heatproof.statistics.cubes import Cube


@dataclass(frozen=True)
class Frames:
    """What page, findings and figures say of one dataset and model."""

    result: AxisResult

    @cached_property
    def cube(self) -> Cube:
        """The scores under the perturbations, without noise floors and identity checks."""
        return self.result.cube.conditions_of(FASS)

    @cached_property
    def moving(self) -> list[Condition]:
        """The perturbations that move the input, under which maps were compared aligned and unaligned."""
        if unaligned(FASS) not in self.cube.values:
            return []
        return self.cube.conditions_of(unaligned(FASS)).conditions

    @property
    def summary(self) -> pd.DataFrame:
        """`statistics.summary` of every measure."""
        return self.result.summary

    @property
    def ranking(self) -> pd.DataFrame:
        """`statistics.ranking` by FASS."""
        return self.result.ranking

    @property
    def tests(self) -> pd.DataFrame:
        """`statistics.paired_tests` of FASS."""
        return self.result.tests

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
        declared = self.result.axis.measure(measure)
        return declared.title if declared else measure

    def registered(self, explainer: str) -> str:
        """The name by which a study file calls an explainer."""
        return self.result.registered_name(explainer)

    def cells(self, measure: str = FASS) -> pd.DataFrame:
        """The summary of one measure with `best`, `best_low` and `best_high`: calibrated where there is chance, else raw."""
        cells = statistics.with_best(self.summary[self.summary["measure"] == measure])
        # In the summary counts are floats, because diagnostics such as the noise floor have none.
        return cells.astype(dict.fromkeys(("attempted", "retained", "flipped", "undefined"), int))

    def at_chance(self) -> pd.DataFrame:
        """The cells of methods whose calibrated interval does not lie above chance, controls left out."""
        cells = self.cells()
        return cells[cells["calibrated"].notna() & ~cells["control"] & (cells["best_low"] <= 0)]


def frames(result: AxisResult) -> Frames | None:
    """The statistics of one dataset and model, made once; None where FASS was not measured."""
    if FASS not in result.cube.values:
        return None
    known: Frames = result.computed.setdefault("frames", Frames(result))
    return known


def as_in_paper(cube: Cube) -> Cube:
    """Return the raw scores as the FASS paper computes them: maps are never moved, and nothing is calibrated."""
    values = dict(cube.values)
    for measure in SIMILARITIES:
        if measure in values and unaligned(measure) in values:
            moved = np.asarray(cube.asked[unaligned(measure)].any(0))
            values[measure] = np.where(moved[:, None], values[unaligned(measure)], values[measure])
    return replace(cube, values=values, chance={}, by_reference={})

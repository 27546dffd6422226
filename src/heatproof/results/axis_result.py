"""The result of one axis for one model and data set: what every view of a run reads."""

from __future__ import annotations

import importlib
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from heatproof.axis import Axis
from heatproof.evaluation import FLIPPED, Condition, GalleryItem, Measure
from heatproof.kinds import KINDS, DataKind
from heatproof.results.arrays import ScoreArrays, groups_of, rows_to_arrays
from heatproof.results.comparisons import TEST_COLUMNS, paired_tests
from heatproof.results.names import Look, looks, with_mark
from heatproof.results.ranking import RANKING_COLUMNS, ranking
from heatproof.results.score_estimates import calibrated_if_possible
from heatproof.results.summary import mean_chance, summary
from heatproof.results.verdict import (
    NO_METHOD_SCORED,
    RANDOM,
    Verdict,
    best_methods,
    sentences,
    verdict_of,
)

if TYPE_CHECKING:
    # Runs are built on results, which only need the types of a manifest.
    from heatproof.runs.manifest import Manifest, TaskEntry


class Retention(NamedTuple):
    """How many of the attempted samples keep their prediction under a condition, which has a title in words."""

    title: str
    retained: int
    attempted: int


@dataclass(frozen=True, eq=False)
class AxisResult:
    """The result of one axis for one model and data set.

    axis           the record of the axis
    arrays         its scores: explainers × conditions × samples
    rows           its rows of the table
    samples        one row per sample: label, prediction, probability
    gallery        the stored maps of some samples
    settings       the parameters of its evaluation, as the manifest has them
    manifest       the manifest of the run
    sibling_rows   the rows of every evaluation of the same model and data set
    marks          explainer -> the word that every axis should put beside its name, such as "blind"
    cache          what was computed already, here and by the report of the axis

    Everything else is computed from these, once. The terminal, the page, the gate, figures and comparisons read it.
    """

    axis: Axis
    arrays: ScoreArrays
    rows: pd.DataFrame
    samples: pd.DataFrame
    gallery: Sequence[GalleryItem]
    settings: Mapping[str, Any]
    manifest: Manifest
    sibling_rows: pd.DataFrame
    marks: Mapping[str, str] = field(default_factory=dict)
    cache: dict[Any, Any] = field(default_factory=dict)

    # ---- what was measured -------------------------------------------------------------------------------------------

    @property
    def dataset(self) -> str:
        """The name of the data set."""
        return self.arrays.dataset

    @property
    def model(self) -> str:
        """The name of the model."""
        return self.arrays.model

    @property
    def label(self) -> str:
        """The name of the evaluation in the study."""
        return self.arrays.evaluation

    @property
    def explainers(self) -> list[str]:
        """The names of the explainers, methods and controls."""
        return self.arrays.explainers

    @property
    def controls(self) -> frozenset[str]:
        """The explainers that ignore the model."""
        return self.arrays.controls

    @property
    def conditions(self) -> list[Condition]:
        """The conditions, each with its level."""
        return self.arrays.conditions

    @property
    def sample_ids(self) -> list[str]:
        """The ids of all samples that were attempted."""
        return self.arrays.samples

    @property
    def title(self) -> str:
        """The axis as a heading, with the name of the evaluation in the study if that is another one."""
        if self.label in (self.axis.name, self.axis.title):
            return self.axis.title
        return f"{self.axis.title}: {self.label}"

    @property
    def task(self) -> TaskEntry:
        """Modality, task, readout and unit of features as the manifest has them; empty where it does not."""
        return self.manifest.task(self.dataset, self.model)

    @property
    def modality(self) -> str:
        """The kind of data; images where the manifest does not say."""
        return self.task.modality or "image"

    @property
    def words(self) -> DataKind:
        """What samples and features of this kind of data are called."""
        return KINDS[self.modality]

    @property
    def groups(self) -> int:
        """The number of groups of samples, which are then the independent units; 0 where samples are independent."""
        if self.arrays.groups is None:
            return 0
        return len(set(self.arrays.groups.tolist()))

    @property
    def seconds(self) -> float:
        """The seconds that all sessions of the run spent on this evaluation; NaN if none recorded them."""
        durations = [session.durations for session in self.manifest.sessions]
        spent = [seconds[self.label] for seconds in durations if self.label in seconds]
        return float(sum(spent)) if spent else math.nan

    @property
    def level(self) -> float:
        """The level of tests and intervals: 95 %, or more where a run looked at its scores before it stopped.

        All looks together then have a level of 95 %.
        """
        sampling = self.manifest.study.sampling
        return 0.95 if sampling is None else sampling.level

    # ---- scores ------------------------------------------------------------------------------------------------------

    @cached_property
    def summary(self) -> pd.DataFrame:
        """Mean scores of every explainer, condition and measure; see `results.summary`."""
        return summary(self.arrays, self.level)

    @cached_property
    def headlines(self) -> tuple[Measure, ...]:
        """The measures by which explainers are judged here; empty where none was measured."""
        declared = (self.axis.measure(name) for name in self.axis.headlines(self.arrays))
        return tuple(measure for measure in declared if measure is not None)

    @cached_property
    def tests(self) -> pd.DataFrame:
        """The paired tests by each headline."""
        tests = [self.tests_by(measure.name) for measure in self.headlines]
        return pd.concat(tests, ignore_index=True) if tests else pd.DataFrame(columns=TEST_COLUMNS)

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """The ranking by each headline."""
        rankings = [self.ranking_by(measure.name) for measure in self.headlines]
        if not rankings:
            return pd.DataFrame(columns=RANKING_COLUMNS)
        return pd.concat(rankings, ignore_index=True)

    def tests_by(self, measure: str) -> pd.DataFrame:
        """Return the paired tests by one measure; see `results.comparisons`."""
        if ("tests", measure) not in self.cache:
            self.cache["tests", measure] = paired_tests(self.arrays, measure, level=self.level)
        tests: pd.DataFrame = self.cache["tests", measure]
        return tests

    def ranking_by(self, measure: str) -> pd.DataFrame:
        """Return the ranking by one measure; see `results.ranking`."""
        if ("ranking", measure) not in self.cache:
            declared = self.axis.measure(measure)
            better = "neither" if declared is None else declared.better
            tests = self.tests_by(measure)
            self.cache["ranking", measure] = ranking(
                self.arrays, measure, better, tests=tests, level=self.level
            )
        ranked: pd.DataFrame = self.cache["ranking", measure]
        return ranked

    def overall(
        self, measure: str, conditions: Collection[Condition] | None = None
    ) -> pd.DataFrame:
        """Return the overall scores by any measure, calibrated where it has a chance level; best first.

        The columns are those of `results.ranking`, with `is_control`, and `chance`: 0 for a calibrated score, else the
        mean chance over the same conditions, NaN where there is none. Paired tests are made for headlines over all
        `conditions` only; the ranks by another measure, or over some conditions, are therefore open.
        """
        arrays = self.arrays
        is_headline = any(headline.name == measure for headline in self.headlines)
        if is_headline and conditions is None:
            scores = self.ranking_by(measure)
        else:
            if conditions is not None:
                arrays = arrays.select(conditions=conditions)
            declared = self.axis.measure(measure)
            better = "neither" if declared is None else declared.better
            untested = pd.DataFrame(columns=TEST_COLUMNS)
            scores = ranking(arrays, measure, better, tests=untested, level=self.level)
        if not arrays.is_calibrated(measure):
            chance = mean_chance(arrays, measure)
            return scores.assign(is_control=scores["control"], chance=chance)
        return scores.assign(is_control=scores["control"], chance=0.0)

    def cells(self, measure: str, calibrate: bool = True) -> pd.DataFrame:
        """Return the scores of one measure under each condition, best explainer first, with what components show of them.

        These are rows of the summary. `score`, `low` and `high` are calibrated where the measure is, unless `calibrate`
        is False; the `chance` of a calibrated score is 0. `above_chance` is the verdict on a calibrated score under this
        condition alone, as `results.above_chance` decides it, and None where the samples leave it open.
        `condition_title` is the condition in words; `imputer` and `order` are those of the condition, empty where it has
        none.
        """
        rows = self.best_first(self.summary[self.summary["measure"] == measure])
        if calibrate:
            rows = calibrated_if_possible(rows)
            is_calibrated = rows["calibrated"].notna()
            cells = rows.assign(
                low=rows["score_low"],
                high=rows["score_high"],
                chance=rows["chance"].mask(is_calibrated, 0.0),
            )
            verdicts = self._above_chance_under_each_condition(measure)
            keys = zip(cells["condition"], cells["level"], cells["explainer"], strict=True)
            is_above = pd.Series([verdicts.get(key) for key in keys], cells.index, dtype=object)
            cells = cells.assign(above_chance=is_above.where(is_calibrated, None))
        else:
            cells = rows.assign(score=rows["mean"], above_chance=None)

        settings = [self.arrays.settings_of(condition) for condition in cells["condition"]]
        conditions = zip(cells["condition"], cells["level"], strict=True)
        return cells.assign(
            condition_title=[self.axis.condition(*condition) for condition in conditions],
            is_control=cells["control"],
            imputer=[setting.imputer for setting in settings],
            order=[setting.order for setting in settings],
        )

    def _above_chance_under_each_condition(
        self, measure: str
    ) -> dict[tuple[str, float, str], bool | None]:
        """Return the verdict on one measure by condition, level and explainer; None where the samples leave it open.

        It is corrected for the number of methods, as the verdict over all conditions is, and not for the conditions.
        """
        if ("above chance", measure) in self.cache:
            known: dict[tuple[str, float, str], bool | None] = self.cache["above chance", measure]
            return known
        declared = self.axis.measure(measure)
        better = "neither" if declared is None else declared.better
        untested = pd.DataFrame(columns=TEST_COLUMNS)
        verdicts: dict[tuple[str, float, str], bool | None] = {}
        for condition, level in self.conditions:
            arrays = self.arrays.select(conditions=[(condition, level)])
            ranked = ranking(arrays, measure, better, tests=untested, level=self.level)
            for name, is_above in zip(ranked["explainer"], ranked["above_chance"], strict=True):
                verdicts[condition, level, name] = None if pd.isna(is_above) else bool(is_above)
        self.cache["above chance", measure] = verdicts
        return verdicts

    @property
    def explainer_order(self) -> list[str]:
        """All explainers in the order of the ranking; those without a score come last."""
        return list(dict.fromkeys([*self.ranking["explainer"], *self.explainers]))

    def best_first(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows in the order of the ranking; those of one explainer keep their order."""
        names = dict.fromkeys([*self.explainer_order, *rows["explainer"]])
        position = {name: number for number, name in enumerate(names)}
        return rows.sort_values(
            "explainer", key=lambda names: names.map(position), kind="stable", ignore_index=True
        )

    def mark_best(self, cells: pd.DataFrame, calibrate: bool = True) -> pd.DataFrame:
        """Return the cells of one measure with `best`: the best methods of each condition (see `verdict.best_methods`)."""
        if cells.empty:
            return cells.assign(best=[])
        measure = str(cells["measure"].iloc[0])
        declared = self.axis.measure(measure)
        sign = -1 if declared is not None and declared.better == "lower" else 1
        is_best = pd.Series(False, index=cells.index)
        for condition, level in self.conditions:
            is_here = (cells["condition"] == condition) & (cells["level"] == level)
            if is_here.any():
                arrays = self.arrays.select(conditions=[(condition, level)])
                tests = paired_tests(arrays, measure, calibrate, self.level)
                best = best_methods(cells[is_here], tests, sign)
                is_best |= is_here & cells["explainer"].isin(best)
        return cells.assign(best=is_best)

    def result_of(self, axis: Axis) -> AxisResult | None:
        """Return the result of another axis for the same model and data set; None if it was not run."""
        if axis.name == self.axis.name:
            return self
        rows = self.sibling_rows[self.sibling_rows["evaluation"] == axis.name]
        if rows.empty:
            return None
        settings = self.manifest.study.evaluation(axis.name).as_mapping()
        (arrays,) = rows_to_arrays(rows, {axis.name: axis.measures})
        spans = axis.spans(settings, arrays.values)
        arrays = replace(arrays, spans=spans, groups=groups_of(arrays, self.samples))
        return replace(
            self, axis=axis, arrays=arrays, rows=rows, gallery=(), settings=settings, cache={}
        )

    def least_retained(self) -> Retention | None:
        """Return the condition that changes most predictions; None where no prediction was changed.

        A sample counts as retained only if it is for every explainer.
        """
        status = (
            self.arrays.status
        )  # explainers × conditions × samples, negative where nothing was attempted
        if not self.axis.separable or not (status == FLIPPED).any():
            return None
        retentions = []
        for i, condition in enumerate(self.conditions):
            was_attempted = (status[:, i] >= 0).any(0)
            was_flipped = (status[:, i] == FLIPPED).any(0)
            attempted = int(was_attempted.sum())
            retained = int((was_attempted & ~was_flipped).sum())
            if attempted:
                title = self.axis.condition(*condition)
                retentions.append(Retention(title, retained, attempted))
        return min(retentions, key=lambda r: r.retained / r.attempted)

    # ---- decisions ---------------------------------------------------------------------------------------------------

    def verdict(self, measure: Measure) -> Verdict:
        """What the tests of a headline allow us to say."""
        ranking, tests = self.ranking_by(measure.name), self.tests_by(measure.name)
        random = next((c for c in self.controls if self.registered_name(c) == RANDOM), None)
        has_chance = measure.name in self.arrays.chance
        return verdict_of(ranking, tests, measure, random, self.groups, has_chance)

    def checked(self) -> dict[str, bool | None]:
        """Return whether each explainer passes, where the axis is a check; None if that is unclear."""
        if self.axis.purpose != "check":
            return {}
        passed: dict[str, bool | None] = importlib.import_module(self.axis.marks).passed(
            self.arrays
        )
        return passed

    def decided(self) -> list[str]:
        """What the tests of each headline support, in words."""
        if not self.headlines:
            return [NO_METHOD_SCORED]
        names = {explainer: look.name for explainer, look in self.looks.items()}
        decided = []
        for measure in self.headlines:
            first, *rest = sentences(self.verdict(measure), self.axis.best, names)
            by = f"By {measure.title}: " if len(self.headlines) > 1 else ""
            decided += [by + first, *rest]
        return decided

    def zero_is_chance(self, measure: Measure) -> bool:
        """Whether a score of 0 is what an uninformative map gets: calibrated scores, and those whose chance is 0."""
        if self.arrays.is_calibrated(measure.name):
            return True
        chance = self.arrays.chance.get(measure.name)
        return chance is not None and not np.nan_to_num(chance).any()

    # ---- names -------------------------------------------------------------------------------------------------------

    @cached_property
    def unmarked_looks(self) -> dict[str, Look]:
        """The name and the colour of every explainer of the study, the same on all axes."""
        explainers = list(dict.fromkeys([*self.manifest.study.explainers, *self.explainers]))
        entries = self.manifest.study.explainers.items()
        registered = {explainer: entry.name for explainer, entry in entries if entry.name}
        return looks(explainers, self.controls, registered)

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The name, with its mark, and the colour of every explainer of the study."""
        marked = {}
        for explainer, look in self.unmarked_looks.items():
            mark = self.marks.get(explainer)
            marked[explainer] = replace(look, name=with_mark(look.name, mark))
        return marked

    @property
    def unmarked_names(self) -> dict[str, str]:
        """The display name of every explainer of the study without its mark, as findings have them."""
        return {explainer: look.name for explainer, look in self.unmarked_looks.items()}

    def unmarked(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows with the display names of their explainers without marks, for the text of a finding."""
        return rows.assign(explainer=rows["explainer"].map(self.unmarked_names))

    def name_of(self, explainer: str) -> str:
        """Return the display name of an explainer, with its mark."""
        return self.looks[explainer].name

    def named(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows with the display names of their explainers, for a sentence."""
        return rows.assign(explainer=[self.name_of(name) for name in rows["explainer"]])

    def settings_of(self, explainer: str) -> Mapping[str, Any]:
        """Return the registered name, the role and the parameters of an explainer, as plain data; empty if unknown."""
        entry = self.manifest.study.explainer(explainer, self.dataset, self.model)
        return entry.as_mapping()

    def registered_name(self, explainer: str) -> str:
        """Return the name by which a study file calls an explainer."""
        return self.manifest.study.explainer(explainer).name or explainer

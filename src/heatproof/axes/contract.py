"""The contract of an axis: what is known of its measures, of itself, of its results, and what it finds.

An axis is one folder under `axes/` and one line in `axes.AXES`. Page, terminal, gate, comparison, figures, trackers and
`heatproof ls` take what they know of a measure from here.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes.verdict import (
    NO_METHOD_SCORED,
    RANDOM,
    Verdict,
    best_methods,
    sentences,
    verdict_of,
)
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.methods import Look, looks
from heatproof.drawing.pieces import Item
from heatproof.evaluation import (
    Condition,
    Evaluation,
    GalleryItem,
    Measure,
    Role,
    Span,
)
from heatproof.kinds import KINDS, DataKind
from heatproof.rules import RULES, Severity
from heatproof.statistics import Form
from heatproof.statistics.cubes import Cube

if TYPE_CHECKING:
    # The runs are built on the axes; they only lend them the type of a manifest.
    from heatproof.report.components import Component
    from heatproof.runs.manifest import Manifest, TaskEntry


def plain_title(condition: str, level: float) -> str:
    """A condition with its level, which is left out where it is 0 and stands for none.

    >>> plain_title("radius", 5.0), plain_title("noisy_linear", 0.0)
    ('radius 5', 'noisy linear')
    """
    return condition.replace("_", " ") + (f" {level:g}" if level else "")


@dataclass(frozen=True)
class Axis:
    """One axis of the bench.

    `question` is what it asks, `verb` how a sentence compares two methods ("holds better than"). `evaluation` makes its
    rows; axes whose rows come from elsewhere have none. `separable` names the parameter whose entries give conditions
    that do not depend on one another; radii of a certificate do, as they share their draws. `report` is a module that is
    imported only when it is needed; `Report` says what it has. `page`, `findings` and `figures` are the same in three
    modules, of axes that have no `report` yet: `page` has `PAGE`, a `Page`; `findings` a function `findings(result)`;
    `figures` has `ITEMS`. `explainers` are those that only this axis can make.
    `marks` is a module with `marks(cube)`: explainers that every axis should mark, and with which word. `within` names the
    axis that shows the rows of this one where both were run, `against` the one to weigh it with in one chart.
    `condition` says a condition with its level in words, `best` what is said after the name of a clear winner. The proof
    sheet shows the maps of the first axis with `pictured`, which says what a condition did to the input. `spans` gives
    the ends of those scales that depend on the settings, from these and the measures that the table has.
    `trial` has the settings with which the axis is tried on small samples of a kind, by a tag of `heatproof.truth`, and
    `unable` what came of it: the corruptions to which a headline does not prefer the right map. The page says so.
    """

    name: str
    title: str
    question: str
    verb: str
    evaluation: type[Evaluation] | None
    measures: tuple[Measure, ...]
    separable: str = ""
    report: str = ""
    page: str = ""
    findings: str = ""
    figures: str = ""
    explainers: tuple[Any, ...] = ()
    marks: str = ""
    within: str = ""
    against: str = ""
    condition: Callable[[str, float], str] = plain_title
    pictured: Callable[[str, float], str] | None = None
    best: str = ""
    spans: Callable[[Mapping[str, Any], Collection[str]], Mapping[str, Span]] = lambda *_: {}
    trial: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unable: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def measure(self, name: str) -> Measure | None:
        """What is known of a measure; None for one that is not declared."""
        return next((measure for measure in self.measures if measure.name == name), None)

    def headlines(self, cube: Cube) -> list[str]:
        """The measures that speak for the axis: for every explainer the first headline that it was measured by."""
        known = [m.name for m in self.measures if m.role == "headline" and m.name in cube.asked]
        first = (
            next((m for m in known if cube.asked[m][e].any()), None)
            for e in range(len(cube.explainers))
        )
        chosen = set(first)
        return [name for name in known if name in chosen]

    def of_role(self, *roles: Role) -> list[str]:
        """The names of the measures with these roles, in order."""
        return [m.name for m in self.measures if m.role in roles]


@dataclass(frozen=True)
class AxisResult:
    """One axis of one dataset and model, for page, terminal, gate, comparison, figures and trackers alike.

    `rows`, `samples` and `gallery` are those of the axis, `settings` its parameters as the manifest has them;
    `related` has the rows of every evaluation of the same dataset and model, `marks` what one of these says that every
    axis should mark of an explainer, `computed` what the axis made of its results.
    """

    axis: Axis
    cube: Cube
    rows: pd.DataFrame
    samples: pd.DataFrame
    gallery: Sequence[GalleryItem]
    settings: Mapping[str, Any]
    manifest: Manifest
    related: pd.DataFrame
    marks: Mapping[str, str] = field(default_factory=dict)
    computed: dict[str, Any] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """The name of the evaluation in the study."""
        return self.cube.evaluation

    @property
    def title(self) -> str:
        """The axis as a heading, with the name that the study gave the evaluation where it gave one."""
        named = self.label in (self.axis.name, self.axis.title)
        return self.axis.title if named else f"{self.axis.title}: {self.label}"

    @property
    def task(self) -> TaskEntry:
        """Modality, task, readout and unit of features as the manifest has them; empty where it does not."""
        return self.manifest.task(self.cube.dataset, self.cube.model)

    @property
    def modality(self) -> str:
        """The kind of data; images where the manifest does not say."""
        return self.task.modality or "image"

    @property
    def words(self) -> DataKind:
        """What this kind of data calls its samples and features."""
        return KINDS[self.modality]

    @property
    def groups(self) -> int:
        """How many groups the samples form, which are then what counts as independent; 0 where they form none."""
        return 0 if self.cube.groups is None else len(set(self.cube.groups.tolist()))

    @cached_property
    def summary(self) -> pd.DataFrame:
        """`statistics.summary` of the axis."""
        return statistics.summary([self.cube])

    @cached_property
    def headlines(self) -> tuple[Measure, ...]:
        """The measures that speak for the axis here; empty where none was measured."""
        known = (self.axis.measure(name) for name in self.axis.headlines(self.cube))
        return tuple(measure for measure in known if measure is not None)

    @cached_property
    def ranking(self) -> pd.DataFrame:
        """`statistics.ranking` by each of the headlines."""
        tests = {m.name: self.tests[self.tests["measure"] == m.name] for m in self.headlines}
        ranked = [
            statistics.ranking([self.cube], n, better=m.better, tests=tests[n])
            for m in self.headlines
            for n in [m.name]
        ]
        return pd.concat(ranked, ignore_index=True) if ranked else statistics.ranking([], "")

    @cached_property
    def tests(self) -> pd.DataFrame:
        """`statistics.paired_tests` by each of the headlines."""
        tested = [statistics.paired_tests([self.cube], m.name) for m in self.headlines]
        return pd.concat(tested, ignore_index=True) if tested else statistics.paired_tests([], "")

    def overall(
        self, measure: str, conditions: Collection[Condition] | None = None
    ) -> pd.DataFrame:
        """Return overall scores by any one measure, calibrated where it has a chance level; best first.

        The columns are those of `statistics.ranking`, `is_control` as in `cells`, and `chance`: 0 for a calibrated score,
        else the mean over the same conditions, NaN where nothing is known. Where samples are too few for a verdict on a
        calibrated score, `above_chance` is as in `cells` too. Only headlines are tested, and only over all `conditions`; the
        ranks by another measure, or over some conditions, are open.
        """
        cube = self.cube
        is_headline = any(headline.name == measure for headline in self.headlines)
        if is_headline and conditions is None:
            ranking = self.ranking[self.ranking["measure"] == measure]
        else:
            cube = cube if conditions is None else cube.select(conditions=conditions)
            declared = self.axis.measure(measure)
            better = "neither" if declared is None else declared.better
            untested = statistics.paired_tests([], measure)
            ranking = statistics.ranking([cube], measure, better=better, tests=untested)
        if not cube.is_calibrated(measure):
            chance = statistics.mean_chance(cube, measure)
            return ranking.assign(is_control=ranking["control"], chance=chance)
        has_verdict = ranking["above_chance"].notna()
        above_chance = ranking["above_chance"].where(has_verdict, _is_above_zero(ranking))
        return ranking.assign(is_control=ranking["control"], chance=0.0, above_chance=above_chance)

    def cells(self, measure: str, form: Form = "best") -> pd.DataFrame:
        """Return the rows of the summary of one measure, best explainer first, with what a component shows of them.

        `score`, `low` and `high` are calibrated where the measure is, else raw; with `form="raw"` always raw. `chance` is
        0 for a calibrated score. `above_chance` says whether the interval of a calibrated score lies above 0, and is None
        without an interval. `condition_title` is the condition in words, `is_control` the same as `control`, and `imputer`
        and `order` are those of the condition, empty where it has none.
        """
        rows = self.best_first(self.summary[self.summary["measure"] == measure])
        if form == "raw":
            cells = rows.assign(score=rows["mean"], above_chance=None)
        else:
            best = statistics.with_best(rows).drop(columns=["low", "high"])
            cells = best.rename(columns={"best": "score", "best_low": "low", "best_high": "high"})
            is_calibrated = cells["calibrated"].notna()
            cells = cells.assign(
                chance=cells["chance"].mask(is_calibrated, 0.0),
                above_chance=_is_above_zero(cells).where(is_calibrated, None),
            )
        return cells.assign(
            condition_title=[
                self.axis.condition(condition, level)
                for condition, level in zip(cells["condition"], cells["level"], strict=True)
            ],
            is_control=cells["control"],
            imputer=[self.cube.made_of(condition).imputer for condition in cells["condition"]],
            order=[self.cube.made_of(condition).order for condition in cells["condition"]],
        )

    @property
    def explainer_order(self) -> list[str]:
        """All explainers, in the order of the ranking; those that it has no place for come last."""
        return list(dict.fromkeys([*self.ranking["explainer"], *self.cube.explainers]))

    def best_first(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows in the order of the ranking; those of one explainer keep their order."""
        names = dict.fromkeys([*self.explainer_order, *rows["explainer"]])
        position = {name: number for number, name in enumerate(names)}
        return rows.sort_values(
            "explainer", key=lambda names: names.map(position), kind="stable", ignore_index=True
        )

    def mark_best(self, cells: pd.DataFrame, form: Form = "best") -> pd.DataFrame:
        """Return cells of one measure with `best`: per condition the best methods, as `verdict.best_methods` has it.

        `form` is that of the scores.
        """
        if cells.empty:
            return cells.assign(best=[])
        measure = str(cells["measure"].iloc[0])
        declared = self.axis.measure(measure)
        sign = -1 if declared is not None and declared.better == "lower" else 1
        is_best = pd.Series(False, index=cells.index)
        for condition, level in self.cube.conditions:
            here = (cells["condition"] == condition) & (cells["level"] == level)
            if here.any():
                cube = self.cube.select(conditions=[(condition, level)])
                tests = statistics.paired_tests([cube], measure, form)
                best = best_methods(cells[here], tests, sign)
                is_best |= here & cells["explainer"].isin(best)
        return cells.assign(best=is_best)

    def result_of(self, axis: Axis) -> AxisResult | None:
        """Return the result of another axis for the same model and data, itself by its own; None where it did not run."""
        if axis.name == self.axis.name:
            return self
        rows = self.related[self.related["evaluation"] == axis.name]
        if rows.empty:
            return None
        settings = self.manifest.study.evaluation(axis.name).as_mapping()
        (cube,) = statistics.arrange(rows, {axis.name: axis.measures})
        spans = axis.spans(settings, cube.values)
        cube = replace(cube, spans=spans, groups=statistics.groups_of(cube, self.samples))
        return replace(
            self, axis=axis, cube=cube, rows=rows, gallery=(), settings=settings, computed={}
        )

    @property
    def seconds(self) -> float:
        """The seconds that all sessions of the run spent on this evaluation; NaN if none says so."""
        durations = [session.durations for session in self.manifest.sessions]
        spent = [seconds[self.label] for seconds in durations if self.label in seconds]
        return float(sum(spent)) if spent else math.nan

    def verdict(self, measure: Measure) -> Verdict:
        """What the tests of a headline allow us to say."""
        ranking = self.ranking[self.ranking["measure"] == measure.name]
        tests = self.tests[self.tests["measure"] == measure.name]
        controls = self.cube.controls
        random = next((name for name in controls if self.registered_name(name) == RANDOM), None)
        has_chance = measure.name in self.cube.chance
        return verdict_of(ranking, tests, measure, random, self.groups, has_chance)

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
        if self.cube.is_calibrated(measure.name):
            return True
        chance = self.cube.chance.get(measure.name)
        return chance is not None and not np.nan_to_num(chance).any()

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The name, with its mark, and the colour of every explainer of the study, the same on all axes."""
        explainers = list(dict.fromkeys([*self.manifest.study.explainers, *self.cube.explainers]))
        entries = self.manifest.study.explainers.items()
        registered = {explainer: entry.name for explainer, entry in entries if entry.name}
        unmarked = looks(explainers, self.cube.controls, registered)
        marked = {}
        for explainer, look in unmarked.items():
            mark = self.marks.get(explainer)
            marked[explainer] = replace(look, name=f"{look.name} ({mark})") if mark else look
        return marked

    def name_of(self, explainer: str) -> str:
        """Return the display name of an explainer, with its mark."""
        return self.looks[explainer].name

    def named(self, rows: pd.DataFrame) -> pd.DataFrame:
        """Return rows with the display names of their explainers, for a sentence."""
        return rows.assign(explainer=[self.name_of(name) for name in rows["explainer"]])

    def settings_of(self, explainer: str) -> Mapping[str, Any]:
        """Return the registered name, the role and the parameters of an explainer, as plain data; empty if unknown."""
        entry = self.manifest.study.explainer(explainer, self.cube.dataset, self.cube.model)
        return entry.as_mapping()

    def registered_name(self, explainer: str) -> str:
        """Return the name by which a study file calls an explainer."""
        return self.manifest.study.explainer(explainer).name or explainer


def _is_above_zero(scores: pd.DataFrame) -> pd.Series:
    """Whether the interval of each score lies above 0; None without an interval."""
    has_interval = scores["low"].notna() & scores["high"].notna()
    return (scores["low"] > 0).astype(object).where(has_interval, None)


@dataclass(frozen=True)
class Finding:
    """One thing that a run shows and a reader should know, under the name of its rule.

    `seen` says what was measured, `means` what follows from it, `do` what to do about it. `change` is what to write into
    the study file, by its keys. `axis` is the name of an axis, or empty for what concerns all of them; `items` is a list
    that may be folded away.
    """

    rule: str
    severity: Severity
    title: str
    seen: str
    means: str
    do: str
    axis: str = ""
    explainers: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    change: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""
    model: str = ""

    def filled(
        self, words: Mapping[str, Any], explainers: Iterable[str] = (), **fields: Any
    ) -> Finding:
        """Return the finding about some explainers, with the braces of its texts filled in, and with other fields."""
        texts = {
            name: getattr(self, name).format(**words).strip()
            for name in ("title", "seen", "means", "do")
            if name not in fields
        }
        return replace(self, **texts, explainers=tuple(explainers), **fields)


def finding_template(
    rule: str, title: str, means: str, do: str, seen: str = "", axis: str = ""
) -> Finding:
    """Return a finding as severe as its rule, whose texts have braces to be filled in for a run."""
    return Finding(rule, RULES[rule].severity, title, seen, means, do, axis)


class Report(Protocol):
    """What the `report` module of an axis has: sentences, components and findings of its results.

    lead(result)        the sentences under the heading of the axis
    components(result)  the charts, tables and galleries of one model and data set, in reading order
    findings(result)    what only this axis can find
    across(results)     optional: components of several models and data sets
    """

    def lead(self, result: AxisResult) -> list[str]: ...

    def components(self, result: AxisResult) -> Iterable[Component]: ...

    def findings(self, result: AxisResult) -> Iterable[Finding]: ...


def report_of(axis: Axis) -> Report | None:
    """Return the module with the report of an axis; None for an axis that has none."""
    if not axis.report:
        return None
    module: Any = importlib.import_module(axis.report)
    return cast(Report, module)


def components_of(result: AxisResult) -> list[Component]:
    """Return the components of one result, in reading order."""
    report = report_of(result.axis)
    return [] if report is None else list(report.components(result))


def components_across(results: Sequence[AxisResult]) -> list[Component]:
    """Return the components of all results of one axis together; most axes have none."""
    report = report_of(results[0].axis) if results else None
    across = getattr(report, "across", None)
    return [] if across is None else list(across(results))


@dataclass(frozen=True)
class Page:
    """What an axis puts on the page: its sentences, its charts and panels, and charts of several models at once."""

    lead: Callable[[AxisResult], list[str]]
    parts: Callable[[AxisResult], list[Chart | Panel]]
    across: Callable[[Sequence[AxisResult]], list[Chart]] = lambda results: []


def page_of(axis: Axis) -> Page | None:
    """What an axis draws; None for one that draws nothing of its own."""
    return importlib.import_module(axis.page).PAGE if axis.page else None


def findings_of(result: AxisResult) -> list[Finding]:
    """What an axis finds in its results."""
    report = report_of(result.axis)
    if report is not None:
        return list(report.findings(result))
    module = result.axis.findings
    return list(importlib.import_module(module).findings(result)) if module else []


def marks_of(axis: Axis, cube: Cube) -> dict[str, str]:
    """explainer -> the word that should stand beside it on every axis, by what this one measured."""
    return dict(importlib.import_module(axis.marks).marks(cube)) if axis.marks else {}


def figures_of(axis: Axis) -> tuple[Item, ...]:
    """The figures and tables for papers that an axis can make."""
    return tuple(importlib.import_module(axis.figures).ITEMS) if axis.figures else ()


def own_axis(label: str, settings: Mapping[str, Any], measured: Collection[str]) -> Axis:
    """The axis of somebody's own evaluation: its measures as it declares them, else its first as they are.

    >>> axis = own_axis("mine", {}, ["sharpness", "depth"])
    >>> [(m.name, m.role, m.better) for m in axis.measures]
    [('sharpness', 'headline', 'neither'), ('depth', 'component', 'neither')]
    """
    stored = settings.get("measures") or ()  # a manifest has no tuples
    declared = tuple(
        Measure(**{**facts, "span": facts["span"] and tuple(facts["span"])}) for facts in stored
    )
    known = {m.name for m in declared}
    undeclared = [name for name in measured if name not in known]
    plain = tuple(
        Measure(
            name,
            name.replace("_", " "),
            "",
            "neither",
            "component" if declared or i else "headline",
        )
        for i, name in enumerate(undeclared)
    )
    title = label.replace("_", " ")
    return Axis(
        name=label,
        title=title[:1].upper() + title[1:],
        question="",
        verb="scores better than",
        best="scores best",
        evaluation=None,
        measures=declared + plain,
    )

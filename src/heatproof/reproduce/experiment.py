"""`reproduce`: run what a table or figure needs, and set our numbers beside the published ones."""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.data.code import check_allowed
from heatproof.data.sources import check_data_name
from heatproof.errors import UserError, unknown
from heatproof.models.loaders import check_model_name, short_name
from heatproof.report.components import Component
from heatproof.report.draw import with_columns
from heatproof.reproduce.items import Item, read_item
from heatproof.results.axis_result import AxisResult
from heatproof.runs.evaluate import execute
from heatproof.runs.manifest import this_command
from heatproof.runs.run import Run
from heatproof.runs.study.file import Study, read_study

OURS, PUBLISHED = "ours", "paper"
"""The two columns of every number in a table."""
DEFAULT_OUT = "reproductions"


@dataclass(frozen=True)
class Experiment:
    """One item with what the user chose; a function of `tables.py` takes it and returns our table.

    limit        samples of each data set
    out          the folder of all reproductions; runs of one study are shared by its items
    data         the paper's name of a data set, or "" for the only one -> where it is
    models       models in place of the studies' own
    allow_code   whether `data` and `models` may name Python code
    """

    item: Item
    limit: int
    out: Path
    data: Mapping[str, str]
    models: Sequence[str] = ()
    allow_code: bool = False

    @cached_property
    def runs(self) -> list[Run]:
        """The run of each study, begun, resumed or read."""
        runs = [self._run(study) for study in self.item.studies]
        if self.item.then:
            runs = function_of(self.item, self.item.then)(self, runs)
        return runs

    @cached_property
    def results(self) -> list[AxisResult]:
        """The results of all tests of all runs; only of the data sets that the item is about, if it names some."""
        datasets = {*self.item.stands_for, *self.item.stands_for.values()}
        results = []
        for run in self.runs:
            for result in run.results(gallery=True):
                if not datasets or result.dataset in datasets:
                    results.append(result)
        return results

    def results_of(self, axis: str) -> list[AxisResult]:
        """Return the results of one test."""
        return [result for result in self.results if result.axis.name == axis]

    def study(self, file: str) -> Study:
        """Return a study with the user's data and models in place of its own."""
        # The code that it names is part of heatproof.
        study = read_study(self.item.folder / file, limit=self.limit, allow_code=True)
        if self.models:
            study = replace(study, models=self._models())
        if self.data:
            study = replace(study, data=self._data(study))
        return study

    def our_name(self, dataset: str) -> str:
        """Return the data set of the paper that one of ours stands for, by which rows are found in the paper."""
        return self.item.stands_for.get(dataset, dataset)

    def run_folder(self, file: str) -> Path:
        """Return the run directory of a study; another limit is another run."""
        study = Path(file).stem.replace("_", "-")
        paper = self.item.paper.replace("_", "-")
        return self.out / "runs" / f"{paper}-{study}-{self.limit}"

    def _run(self, file: str) -> Run:
        plan = self.study(file).plan(allow_code=True)
        return execute(plan, self.run_folder(file), this_command())

    def _models(self) -> dict[str, dict[str, Any]]:
        """Return the user's models in the form of a study file, by short names."""
        models = {}
        for source in self.models:
            scheme, _, rest = source.partition(":")
            if scheme == "python":
                check_allowed(source, self.allow_code)
            models[short_name(scheme, rest)] = {"source": check_model_name(source, Path.cwd())}
        return models

    def _data(self, study: Study) -> dict[str, dict[str, Any]]:
        """Return the user's data sets in place of the study's, in the form of a study file.

        The user names them as the paper does, or "" for the only one. They keep the size and resizing of those that they
        replace.
        """
        chosen = {}
        by_paper_name = {self.our_name(name): options for name, options in study.data.items()}
        for name, source in self.data.items():
            if source.startswith("python:"):
                check_allowed(source, self.allow_code)
            if name and name not in by_paper_name:
                raise unknown("data set of this item", name, by_paper_name)
            if not name and len(by_paper_name) > 1:
                names = " or ".join(f"{known}=DIR" for known in by_paper_name)
                raise UserError(f"this item has several data sets: give --data {names}")
            paper_name = name or next(iter(by_paper_name))
            replacement = {"source": check_data_name(source, Path.cwd())}
            for option in ("size", "resize"):
                if option in by_paper_name[paper_name]:
                    replacement[option] = by_paper_name[paper_name][option]
            chosen[paper_name] = replacement
        return chosen


@dataclass(frozen=True)
class Reproduction:
    """A table of ours beside that of the paper, and what is drawn of it.

    `table` has a row per number: row_group, row, column, paper, ours, low, high.
    """

    item: Item
    experiment: Experiment
    table: pd.DataFrame
    charts: list[Component]


def reproduce(
    name: str,
    limit: int | None = None,
    out: str | Path = DEFAULT_OUT,
    data: Mapping[str, str] | str | None = None,
    models: Sequence[str] = (),
    allow_code: bool = False,
) -> Reproduction:
    """Run the studies behind a table or figure of a paper, and return our numbers beside the published ones.

    name    the item, such as "fass-table-4"

    limit   samples of each data set, by default few enough for minutes on a CPU
    out     the folder of the run directories; the same call resumes what was stopped
    data    the paper's data in place of the bundled or generated ones: a path, or name in the paper -> path
    models  models in place of the default ones, named as in a study file
    """
    item = read_item(name)
    if limit is not None and limit < 1:
        raise UserError(f"limit must be at least 1, got {limit}")
    named = {"": data} if isinstance(data, str) else dict(data or {})
    if (named or models) and not item.studies:
        raise UserError(f"{name} is computed without data and models; leave out --data and --model")
    experiment = Experiment(item, limit or item.limit, Path(out), named, models, allow_code)
    ours = function_of(item, item.table)(experiment)
    charts: list[Component] = []
    if item.charts:
        charts = list(function_of(item, item.charts)(experiment))
    return Reproduction(item, experiment, beside(item, ours), charts)


def function_of(item: Item, name: str) -> Callable[..., Any]:
    """Return a function of the paper's `tables.py`."""
    module = importlib.import_module(f"heatproof.reproduce.{item.paper}.tables")
    function: Callable[..., Any] = getattr(module, name)
    return function


def beside(item: Item, ours: pd.DataFrame) -> pd.DataFrame:
    """Return a table with a row per number: the published one and ours, in the order of the paper; either may be missing.

    `ours` has the columns row, column and score, and may have row_group, low and high.
    """
    ours = with_columns(ours, row_group="", low=math.nan, high=math.nan)
    ours = ours[["row_group", "row", "column", "score", "low", "high"]]
    ours = ours.rename(columns={"score": OURS})
    if item.published is None:
        return ours.assign(**{PUBLISHED: math.nan})
    keys = ["row_group", "row", "column"]
    printed = item.published.frame().rename(columns={"score": PUBLISHED})
    # An outer merge would sort the rows; the paper's come first, in its order, then ours that it does not have.
    joined = printed.merge(ours, on=keys, how="left")
    is_extra = ~pd.MultiIndex.from_frame(ours[keys]).isin(pd.MultiIndex.from_frame(printed[keys]))
    table = pd.concat([joined, ours[is_extra]])
    # Rows of one group stand together, groups in the order in which they first appear.
    position = {group: i for i, group in enumerate(dict.fromkeys(table["row_group"]))}
    group_positions = table["row_group"].map(position)
    return table.iloc[group_positions.argsort(kind="stable")].reset_index(drop=True)

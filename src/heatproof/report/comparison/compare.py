"""`compare`: several runs on the same samples, and how their scores differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.axis import Axis
from heatproof.errors import UserError
from heatproof.evaluation import Measure
from heatproof.report.comparison.differences import OVERALL, paired_differences
from heatproof.report.comparison.match import Matched, match_runs, shown
from heatproof.report.comparison.runs import ComparedRun, open_runs
from heatproof.report.comparison.words import clearest_differences, results_of_pairs
from heatproof.results.names import Look, looks, with_mark
from heatproof.runs.atomic import write_atomically
from heatproof.runs.run import Run


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several runs joined on their samples.

    `differences` has a row for each data set, model, explainer, evaluation, measure, condition and pair of runs (a, b):
    `mean_a` and `mean_b` are the scores on the samples that both runs scored, and `difference` = mean_b − mean_a has its
    interval (`low`, `high`) and `p`, corrected for all differences of the same family. `significant` says that p is
    small enough, `better` which run is then better, and `identical` that both have the same score of every sample. Of
    the `samples`, so many were `joined` or dropped out (`flipped`, `undefined`, `absent`, `unreadable`).
    `subject` lists in words what differs between the runs, `left_out` what was not compared.

    >>> import heatproof
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4))
    >>> net[1].bias.data[0] = 9.0  # whatever the weights, no prediction changes
    >>> images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> tests = {"stability": {"stability": {"perturbations": "jpeg"}}}
    >>> twice = [heatproof.evaluate(net, images, "input_x_gradient", tests) for _ in range(2)]
    >>> heatproof.compare(*twice).verdict()
    ['run 1 and run 2 are identical: all scores of 4 samples agree.']
    """

    runs: tuple[ComparedRun, ...]
    differences: pd.DataFrame
    matched: Matched
    level: float = 0.95

    @property
    def subject(self) -> list[str]:
        """What differs between the runs, and so may be the cause of differences."""
        return list(self.matched.subject)

    @property
    def left_out(self) -> list[str]:
        """What was not compared, and why."""
        return list(self.matched.left_out)

    @property
    def overall(self) -> pd.DataFrame:
        """The differences that the verdict is about: one per explainer, evaluation and pair of runs, without controls."""
        return self.differences[self.differences["family"] == OVERALL]

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The display name and the colour of each explainer, with the word that all results of a run mark it with."""
        names: dict[str, str] = {}
        marks: dict[str, str] = {}
        controls = set()
        for explainers in self.matched.explainers:
            name = shown(explainers)
            for run, own_name in zip(self.runs, explainers, strict=True):
                entry = run.manifest.study.explainer(own_name)
                names.setdefault(name, entry.name or own_name)
                controls |= {name} if any(own_name in r.controls for r in run.results) else set()
                marks[name] = marks.get(name) or _common_mark(run, own_name)
        marked = {}
        for name, look in looks(names, controls, names).items():
            mark = marks[name]
            marked[name] = replace(look, name=with_mark(look.name, mark))
        return marked

    def named(self, row: Any) -> str:
        """Return the display name of the explainer of a row of `differences`."""
        return self.looks[row.explainer].name if row.explainer in self.looks else row.explainer

    def axis_of(self, row: Any) -> Axis:
        """Return the axis of a row of `differences`."""
        return self.matched.test(row.dataset, row.model, row.evaluation).axis

    def measure_of(self, row: Any) -> Measure:
        """Return the declaration of the measure of a row of `differences`."""
        return self.matched.test(row.dataset, row.model, row.evaluation).measure(row.measure)

    def title_of(self, row: Any) -> str:
        """Return the test of a row of `differences` as a heading, with its name in the study if that is another one."""
        axis = self.axis_of(row)
        if row.evaluation in (axis.name, axis.title):
            return axis.title
        return f"{axis.title}: {row.evaluation}"

    def verdict(self) -> list[str]:
        """Return the result in sentences: of each pair of runs, then the clearest differences."""
        return results_of_pairs(self) + clearest_differences(self)

    def text(self, width: int = 110) -> str:
        """Return the verdict and the main table for a terminal with so many columns."""
        from heatproof.report.comparison.text import styled_text

        return "\n".join(line for line, _ in styled_text(self, width))

    def page(self, path: str | Path) -> Path:
        """Write the comparison as one HTML file that works offline, and return its path."""
        from heatproof.report.comparison.page import comparison_page

        target = Path(path)
        write_atomically(target, comparison_page(self).encode())
        return target


def _common_mark(run: ComparedRun, explainer: str) -> str:
    """Return the word that all results of a run mark an explainer with, such as "blind"; empty if there is none."""
    marks = {result.marks.get(explainer, "") for result in run.results}
    return marks.pop() if len(marks) == 1 else ""


def compare(
    *runs: Run | str | Path,
    only_shared: bool = False,
    across_seeds: bool = False,
    evaluations: str | Sequence[str] | None = None,
    level: float = 0.95,
) -> Comparison:
    """Join two or more runs on their sample ids and test the paired differences between them.

    Runs must share data (by fingerprint), seed, and the settings of evaluations and explainers of one label; models,
    precision and versions may differ and are what is compared. An error names everything that was measured differently.
    `only_shared` leaves that out and compares the rest, such as the perturbations that both runs have; `across_seeds`
    allows different seeds. Explainers that differ in label, as `lime` and `lime(samples=64)`, are compared if each run
    has one of the kind. `evaluations` restricts the comparison to some of them.

    >>> import heatproof
    >>> g = torch.Generator().manual_seed(0)
    >>> nets = [torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4)) for _ in range(2)]
    >>> data, tests = torch.rand(6, 3, 16, 16, generator=g), {"stability": {"stability": {"perturbations": "jpeg"}}}
    >>> before, after = (heatproof.evaluate(net, data, "saliency", tests) for net in nets)
    >>> compare(before, after).differences[["a", "b", "explainer", "measure"]].head(1).values.tolist()
    [['run 1', 'run 2', 'saliency', 'fass']]
    """
    if len(runs) < 2:
        raise UserError(f"a comparison needs at least two runs, got {len(runs)}")
    if not 0 < level < 1:
        raise UserError(f"level must be between 0 and 1, got {level:g}")
    chosen = [evaluations] if isinstance(evaluations, str) else evaluations
    opened = open_runs(runs)
    matched = match_runs(opened, only_shared, across_seeds, chosen)
    differences = paired_differences(opened, matched, level)
    return Comparison(tuple(opened), differences, matched, level)

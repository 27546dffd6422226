"""`compare`: several runs on the same samples, and what came of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.errors import UserError
from heatproof.report.comparison import words
from heatproof.report.comparison.common import Common, Side, common
from heatproof.report.comparison.pairs import paired_differences
from heatproof.runs.atomic import write_atomically
from heatproof.runs.results import arrays_of_run, marked_explainers
from heatproof.runs.run import Run, read


@dataclass(frozen=True)
class Comparison:
    """Several runs joined on their samples.

    `differences` has one row per data set, model, explainer, evaluation, measure, condition and pair of runs (a, b):
    `mean_a` and `mean_b` on the samples that both scored, `difference` = mean_b − mean_a with its interval (`low`,
    `high`), `p` that it is 0, corrected for all differences of the same family, whether the two are `separated` and
    which is `better`; then how many `samples` there are and how many were `joined` or fell out (`flipped`, `undefined`,
    `absent`, `unreadable`).
    `subject` lists in words what differs between the runs, `left_out` what was not compared.

    >>> import heatproof
    >>> net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4))
    >>> net[1].bias.data[0] = 9.0  # whatever the weights, no prediction changes
    >>> images = torch.rand(4, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    >>> asked = {"stability": {"stability": {"perturbations": "jpeg"}}}
    >>> twice = [heatproof.evaluate(net, images, "input_x_gradient", asked) for _ in range(2)]
    >>> heatproof.compare(*twice).verdict()[0]
    'run 1 and run 2 agree exactly: all 4 differences are 0 on every sample.'
    """

    runs: tuple[Side, ...]
    differences: pd.DataFrame
    common: Common
    level: float = 0.95

    @property
    def subject(self) -> list[str]:
        """What differs between the runs, so what the differences may be due to."""
        return list(self.common.subject)

    @property
    def left_out(self) -> list[str]:
        """What was not compared, and why."""
        return list(self.common.left_out)

    @cached_property
    def _marks(self) -> dict[str, dict[str, str]]:
        """Run -> explainer -> the word with which all its models mark it, such as *blind*."""
        every = {
            s.label: [*marked_explainers(arrays_of_run(s.table, s.manifest), s.manifest).values()]
            for s in self.runs
        }
        return {
            run: {e: w for e, w in found[0].items() if all(e in f for f in found)}
            for run, found in every.items()
        }

    def named(self, row: Any) -> str:
        """The explainer of a row of `differences`, with what either run marks it with."""
        word = self._marks[row.a].get(row.explainer_a) or self._marks[row.b].get(row.explainer_b)
        return f"{row.explainer} ({word})" if word else str(row.explainer)

    def verdict(self) -> list[str]:
        """The outcome in sentences."""
        return words.verdict(self)

    def text(self) -> str:
        """The verdict and the main table for a terminal."""
        return words.text(self)

    def page(self, path: str | Path) -> Path:
        """Write the comparison as one HTML file that works offline, and return where it is."""
        from heatproof.report.comparison.page import comparison_page

        target = Path(path)
        write_atomically(target, comparison_page(self).encode())
        return target


def compare(
    *runs: Run | str | Path,
    only_shared: bool = False,
    across_seeds: bool = False,
    evaluations: str | Sequence[str] | None = None,
    level: float = 0.95,
) -> Comparison:
    """Join two or more runs on their sample ids and test the paired differences between them.

    Runs must share data (by fingerprint), seed, and the parameters of evaluations and explainers of one label; models,
    precision and versions may differ and are what is compared. Whatever forbids a comparison is named in the error.
    `only_shared` leaves out what differs where the rest does not depend on it, such as perturbations that only one run
    has; `across_seeds` allows different seeds. Methods that differ in label, as `lime` and `lime(samples=64)`, are
    compared when each run has one of the kind. `evaluations` restricts the comparison to some of them.

    >>> import heatproof
    >>> g = torch.Generator().manual_seed(0)
    >>> nets = [torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(768, 4)) for _ in range(2)]
    >>> data, asked = torch.rand(6, 3, 16, 16, generator=g), {"stability": {"stability": {"perturbations": "jpeg"}}}
    >>> before, after = (heatproof.evaluate(net, data, "saliency", asked) for net in nets)
    >>> compare(before, after).differences[["a", "b", "explainer", "measure"]].head(1).values.tolist()
    [['run 1', 'run 2', 'saliency', 'fass']]
    """
    if len(runs) < 2:
        raise UserError(f"a comparison needs at least two runs, got {len(runs)}")
    if not 0 < level < 1:
        raise UserError(f"level must be between 0 and 1, got {level:g}")
    chosen = (
        [evaluations]
        if isinstance(evaluations, str)
        else None
        if evaluations is None
        else list(evaluations)
    )
    sides = open_sides(runs)
    shared = common(sides, only_shared, across_seeds, chosen)
    return Comparison(tuple(sides), paired_differences(sides, shared, level), shared, level)


def open_sides(runs: Sequence[Any]) -> list[Side]:
    """The runs read, with a name each."""
    opened = [read(run) for run in runs]
    places = [run.path.resolve() for run in opened]
    for i, place in enumerate(places):
        if place in places[:i]:
            raise UserError(f"{opened[i].path} is given twice")
    labels = names(
        [str(run.packed.with_suffix("") if run.packed else run.path.resolve()) for run in opened]
    )
    sides = zip(labels, opened, strict=True)
    return [
        Side(label, str(run.path), run.manifest, run.compact(), run.samples(), run.references())
        for label, run in sides
    ]


def names(paths: Sequence[str]) -> list[str]:
    """What each run is called: the end of its path, as much of it as tells it from the others.

    A run in a new temporary directory has a number, for nobody chose that name.

    >>> names(["/runs/june", "/runs/july", "/old/july"]), names(["/tmp/heatproof-x1", "/tmp/heatproof-y2"])
    (['june', 'runs/july', 'old/july'], ['run 1', 'run 2'])
    """
    found = []
    for i, path in enumerate(paths):
        parts = path.strip("/").split("/")
        ends = ("/".join(parts[-n:]) for n in range(1, len(parts) + 1))
        alone = next(
            (
                end
                for end in ends
                if not any(f"/{o}".endswith(f"/{end}") for o in paths if o != path)
            ),
            path,
        )
        found.append(f"run {i + 1}" if parts[-1].startswith("heatproof-") else alone)
    return found

"""The runs of a comparison: their results, and what each of them is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from heatproof.errors import UserError
from heatproof.results.axis_result import AxisResult
from heatproof.runs.manifest import Manifest
from heatproof.runs.results import every_axis_result
from heatproof.runs.run import Run, read


@dataclass(frozen=True, eq=False)
class ComparedRun:
    """A run with the label that tells it from the others, and the result of every test."""

    label: str
    path: str
    manifest: Manifest
    results: Sequence[AxisResult]
    samples: pd.DataFrame

    def entries(self, section: str) -> Mapping[str, Mapping[str, Any]]:
        """Return one section of the study as plain data: models, datasets, explainers or evaluations."""
        of_section: Mapping[str, Mapping[str, Any]] = self.manifest.study.as_mapping()[section]
        return of_section

    def result(self, dataset: str, model: str, evaluation: str) -> AxisResult | None:
        """Return the result of an evaluation of a data set and model; None if it has no rows."""
        for result in self.results:
            if (result.dataset, result.model, result.label) == (dataset, model, evaluation):
                return result
        return None

    def samples_of(self, dataset: str, model: str) -> pd.DataFrame:
        """Return the samples of a data set and model, with their ids as index."""
        is_here = (self.samples["dataset"] == dataset) & (self.samples["model"] == model)
        return self.samples[is_here].set_index("sample")


def unreadable(samples: pd.DataFrame) -> pd.Series:
    """Return which samples could not be read."""
    return samples["error"].fillna("").astype(str) != ""


def open_runs(runs: Sequence[Run | str | Path]) -> list[ComparedRun]:
    """Read the runs and give each a label; a run that is given twice is an error."""
    opened = [read(run) for run in runs]
    paths = [run.path.resolve() for run in opened]
    for i, path in enumerate(paths):
        if path in paths[:i]:
            raise UserError(f"{opened[i].path} is given twice")
    names = [
        str(run.path.resolve() if run.packed is None else run.packed.with_suffix(""))
        for run in opened
    ]
    compared = []
    for label, run in zip(run_labels(names), opened, strict=True):
        samples = run.samples()
        results = every_axis_result(
            run.in_study_order(), samples, [], run.manifest, run.references()
        )
        compared.append(ComparedRun(label, str(run.path), run.manifest, results, samples))
    return compared


def run_labels(paths: Sequence[str]) -> list[str]:
    """Return a label for each run: the end of its path, as much of it as tells it from the others.

    A run in a temporary directory gets a number, because nobody chose the name of that directory.

    >>> run_labels(["/runs/june", "/runs/july", "/old/july"]), run_labels(["/tmp/heatproof-x1", "/tmp/heatproof-y2"])
    (['june', 'runs/july', 'old/july'], ['run 1', 'run 2'])
    """
    labels = []
    for i, path in enumerate(paths):
        if path.rpartition("/")[2].startswith("heatproof-"):
            labels.append(f"run {i + 1}")
        else:
            other_paths = [other_path for other_path in paths if other_path != path]
            labels.append(_shortest_unique_end(path, other_paths))
    return labels


def _shortest_unique_end(path: str, other_paths: Sequence[str]) -> str:
    """Return as few of the last folders of a path as tell it from the others."""
    folders = path.strip("/").split("/")
    for length in range(1, len(folders) + 1):
        end = "/".join(folders[-length:])
        if not any(f"/{other_path}".endswith(f"/{end}") for other_path in other_paths):
            return end
    return path


def run_facts(run: ComparedRun) -> dict[str, Any]:
    """Return how a run was made, as plain data."""
    manifest = run.manifest
    models = {name: entry.get("fingerprint") for name, entry in run.entries("models").items()}
    datasets = {name: entry.get("fingerprint") for name, entry in run.entries("datasets").items()}
    return {
        "run": run.label,
        "path": run.path,
        "command": manifest.command,
        "created": manifest.created,
        "heatproof": manifest.heatproof,
        "versions": manifest.versions,
        "models": models,
        "datasets": datasets,
    }

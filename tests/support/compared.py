"""Runs to compare, from made-up tables."""

from __future__ import annotations

import pandas as pd

from heatproof.axes import BY_NAME
from heatproof.report.comparison.compare import Comparison
from heatproof.report.comparison.differences import paired_differences
from heatproof.report.comparison.match import Matched, SharedTest
from heatproof.report.comparison.runs import ComparedRun
from heatproof.runs.manifest import Manifest
from heatproof.runs.results import every_axis_result
from support.manifests import manifest_of


def compared_run(
    label: str, table: pd.DataFrame, samples: pd.DataFrame, manifest: Manifest | None = None
) -> ComparedRun:
    """A run with these rows and samples."""
    manifest = manifest or manifest_of()
    results = every_axis_result(table, samples, [], manifest)
    return ComparedRun(label, label, manifest, results, samples)


def matched_runs(*runs: ComparedRun, evaluations: tuple[str, ...] = ("stability",)) -> Matched:
    """What runs of explainer e, model m and data d share: stability under these names."""
    tests = []
    for name in evaluations:
        names = (name,) * len(runs)
        d, m, e = (("d",) * len(runs), ("m",) * len(runs), ("e",) * len(runs))
        tests.append(SharedTest(d, m, names, BY_NAME["stability"], (e,)))
    return Matched([run.label for run in runs], [d], [m], [e], tests)


def comparison_of(*runs: ComparedRun, evaluations: tuple[str, ...] = ("stability",)) -> Comparison:
    """The comparison of such runs."""
    matched = matched_runs(*runs, evaluations=evaluations)
    return Comparison(tuple(runs), paired_differences(runs, matched), matched)

"""What certificates and the sweep over λ find: controls by their role, λ by its column, nothing without samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from heatproof.report.components import CurveChart
from heatproof.report.page_parts import part_of
from heatproof.report.sections import leads
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding
from heatproof.results.reports import components_of, findings_of
from heatproof.runs.results import axis_results
from support.manifests import manifest_of
from support.synthetic import Entry, rows_of

N = 40


def judged(rows: pd.DataFrame, **explainers: dict[str, Any]) -> AxisResult:
    samples = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    (result,) = axis_results(rows, samples, [], manifest_of({"explainers": explainers}))
    return result


def findings(result: AxisResult) -> dict[str, Finding]:
    return {finding.title: finding for finding in findings_of(result)}


def certificates(value: float, names: tuple[str, ...], n: int = N) -> pd.DataFrame:
    entries: list[Entry] = [
        (name, measure, "radius", r, np.full(n, value))
        for name in names
        for r in (1.0, 3.0)
        for measure in ("certified", "passes", "rate")
    ]
    return rows_of(entries, "certificate")


def sweep(value: float, n: int = N) -> pd.DataFrame:
    entries: list[Entry] = []
    for where, right in (("λ=0.25", 10), ("λ=1", n)):
        correct = np.where(np.isnan(value), np.nan, np.arange(n) < right)
        entries += [
            ("a", "correct", where, 0.0, correct),
            ("a", "hard_radius", where, 0.0, np.full(n, 0 * value)),
        ]
        entries += [
            ("a", measure, where, 2.0, np.full(n, value))
            for measure in ("certified", "passes", "rate")
        ]
    return rows_of(entries, "smoothing")


def test_random_features_are_known_by_role_and_registered_name() -> None:
    rows = certificates(0.7, ("a", "dice"))
    rows["role"] = np.where(rows["explainer"] == "dice", "control", "method")

    def beside_random(result: AxisResult) -> list[Finding]:
        return [one for title, one in findings(result).items() if "random" in title]

    (finding,) = beside_random(judged(rows, dice={"name": "random"}))
    assert finding.explainers == ("a",) and "dice" in finding.seen
    assert not beside_random(judged(rows, dice={"name": "sobel"}))
    assert not beside_random(judged(rows.assign(role="method"), dice={"name": "random"}))


def test_lambda_is_a_column_and_not_read_from_a_name() -> None:
    rows = sweep(0.95)
    rows["condition"] = rows["condition"].map({"λ=0.25": "strong", "λ=1": "none"})
    result = judged(rows)
    found = findings(result).values()
    assert {one.severity for one in found} == {"problem", "note"}
    assert all("λ = 0.25" in one.seen for one in found)
    assert "λ = 0.25" in leads(result)[0]
    (rates,) = (one for one in components_of(result) if one.key == "rates")
    assert isinstance(rates, CurveChart) and set(rates.points["panel"]) == {"λ = 1", "λ = 0.25"}


@pytest.mark.parametrize(
    "rows", [certificates(np.nan, ("a", "random")), certificates(0.7, ("a",), 1), sweep(np.nan, 3)]
)
def test_little_is_said_of_little(rows: pd.DataFrame) -> None:
    result = judged(rows)
    assert not findings_of(result) and leads(result)
    for component in components_of(result):
        assert component.key and part_of(component, result.looks) is not None

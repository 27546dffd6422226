"""Real runs from which nothing may be concluded: no page, terminal, ranking or mark says that a method is better.

All methods equal, one or two samples, one method, only controls, all maps constant.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import heatproof
from heatproof.axes import AXES
from heatproof.evaluation import Measure
from heatproof.report.findings import findings
from heatproof.report.proof_sheet import Column
from heatproof.report.terminal import styled_summary
from heatproof.results.above_chance import decide_above_chance
from heatproof.results.axis_result import AxisResult
from heatproof.results.reports import report_of
from heatproof.results.verdict import Label
from heatproof.runs.run import Run
from support.laws import AXES as QUICK
from support.small import model, pictures

BETTER = sorted({axis.best for axis in AXES if axis.best and axis.purpose == "rank"})
"""What is said of the best method of an axis."""
SUPERLATIVES = r"\b(the most|the least|the closest|the farthest|best|winner|leads)\b"
COMPARING_RULES = {"dominated-method", "tied-methods", "control-not-beaten"}
TESTS: dict[str, Any] = {
    **QUICK,
    "stability": {"perturbations": ["jpeg"], "k": 50},
    "faithfulness": {**QUICK["faithfulness"], "imputers": ["zero"]},
}
THREE = ["saliency", "grad_cam", "random"]
SAME = {"first": "saliency", "second": "saliency", "third": "saliency"}


class Blind(nn.Module):
    """A network whose maps are all constant."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([1.0, 0.0, 0.0, 0.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias + 0 * x.flatten(1)[:, :4]


CASES: dict[str, tuple[Any, int, Any]] = {
    "one sample": (model, 1, THREE),
    "two samples": (model, 2, THREE),
    "one method": (model, 9, ["saliency"]),
    "only controls": (model, 9, ["random", "sobel"]),
    "all equal": (model, 9, SAME),
    "all constant": (Blind, 9, ["saliency", {"gradient_shap": {"samples": 2}}]),
}


def evaluations_of(case: str) -> dict[str, Any]:
    tests = {axis.name: TESTS[axis.name] for axis in AXES if axis.evaluation and axis.name in TESTS}
    if case == "one method":
        del tests["agreement"]  # it takes two
    if case == "all constant":  # a network without layers
        tests["symmetry"] = {**tests["symmetry"], "layers": []}
    return tests


@pytest.fixture(scope="module", params=list(CASES))
def case(request: pytest.FixtureRequest) -> tuple[str, Run, list[AxisResult]]:
    name: str = request.param
    network, n, explainers = CASES[name]
    run = heatproof.evaluate(
        network(), pictures(n), explainers, evaluations_of(name), show_progress=False
    )
    return name, run, run.results(gallery=True)


def lead_of(result: AxisResult) -> str:
    """The sentences under the heading of an axis."""
    report = report_of(result.axis)
    return " ".join(report.lead(result) if report else result.decided())


def test_no_sentence_says_that_a_method_is_better(case: tuple[str, Run, list[AxisResult]]) -> None:
    _, run, results = case
    page = run.report().read_text(encoding="utf-8")
    text_of_page = re.sub(r"<[^>]+>", " ", re.sub(r"(?s)<(script|style).*?</\1>", " ", page))
    for text in (text_of_page, run.text()):
        assert not [phrase for phrase in BETTER if phrase in text]
    for result in results:
        assert not re.search(SUPERLATIVES, lead_of(result)), lead_of(result)


def test_only_methods_are_spoken_of_as_methods(case: tuple[str, Run, list[AxisResult]]) -> None:
    name, _, results = case
    if name != "only controls":
        pytest.skip("there are methods")
    for result in results:
        assert "only controls" in lead_of(result).lower(), lead_of(result)


def test_no_method_has_a_rank_to_itself(case: tuple[str, Run, list[AxisResult]]) -> None:
    _, _, results = case
    for result in results:
        for measure in result.headlines:
            verdict = result.verdict(measure)
            assert verdict.best is None and not verdict.beaten
            assert Label.BEST not in verdict.labels.values()
            assert not result.tests_by(measure.name)["significant"].any()
            ranked = result.ranking_by(measure.name).dropna(subset=["rank"])
            assert (ranked["rank_low"] == 1).all()
            assert (ranked["rank_high"] == len(ranked)).all()


def test_no_mark_and_no_colour_sets_a_method_apart(
    case: tuple[str, Run, list[AxisResult]],
) -> None:
    name, run, results = case
    lines = styled_summary(results, run.samples(), run.manifest)
    assert "green" not in {style for _, style in lines}
    for result in results:
        column = Column(result)
        filled = {explainer for explainer, mark in column.marks.items() if mark.kind == "filled"}
        if name in ("one sample", "two samples", "all constant"):
            assert not filled
        for measure in result.headlines:
            cells = result.mark_best(result.cells(measure.name))
            methods = cells[~cells["control"].astype(bool) & cells["score"].notna()]
            by_condition = methods.groupby(["condition", "level"])["best"]
            assert (by_condition.nunique() == 1).all()  # all or none in bold


def test_every_mark_of_chance_is_a_verdict(case: tuple[str, Run, list[AxisResult]]) -> None:
    _, _, results = case
    for result in results:
        for measure in result.headlines:
            if result.arrays.is_calibrated(measure.name):
                assert_marks_are_verdicts(result, measure)


def test_marks_are_open_where_the_verdict_is() -> None:
    # Ten samples give intervals, but are too few for a verdict without a bet.
    run = heatproof.evaluate(
        model(), pictures(10), THREE, {"stability": TESTS["stability"]}, show_progress=False
    )
    (result,) = run.results()
    (measure,) = result.headlines
    assert result.cells(measure.name)["low"].notna().any()
    assert_marks_are_verdicts(result, measure)


def assert_marks_are_verdicts(result: AxisResult, measure: Measure) -> None:
    """Overall and under each condition, `above_chance` is what the one function that decides it says."""
    arrays = result.arrays.for_measure(measure.name)
    methods = [name for name in arrays.explainers if name not in arrays.controls]
    overall = result.overall(measure.name).set_index("explainer")["above_chance"]
    cells = result.cells(measure.name).set_index(["explainer", "condition", "level"])
    for condition, level in [("", 0.0), *arrays.conditions]:
        of_condition = arrays.select(conditions=[(condition, level)]) if condition else arrays
        is_scored = np.isfinite(of_condition.values[measure.name]).any((1, 2))
        scored = sum(is_scored[arrays.explainers.index(name)] for name in methods)
        confidence = 1 - 0.05 / max(int(scored), 2)  # corrected for the number of methods
        verdicts = decide_above_chance(of_condition, measure.name, measure.better, confidence)
        for name, verdict in zip(arrays.explainers, verdicts, strict=True):
            if condition and (name, condition, level) not in cells.index:
                continue
            mark = (
                cells.loc[(name, condition, level), "above_chance"] if condition else overall[name]
            )
            assert (None if pd.isna(mark) else bool(mark)) == verdict, (name, condition)


def test_no_finding_compares_methods(case: tuple[str, Run, list[AxisResult]]) -> None:
    name, run, results = case
    rules = {finding.rule for finding in findings(results, run.samples(), run.manifest)}
    if name != "all equal":
        assert not rules & COMPARING_RULES
    assert "dominated-method" not in rules


def test_scores_from_few_samples_have_no_interval(
    case: tuple[str, Run, list[AxisResult]],
) -> None:
    name, _, results = case
    if name not in ("one sample", "two samples"):
        pytest.skip("there are enough samples")
    for result in results:
        ends = result.ranking[["low", "high", "lower_bound", "upper_bound"]].to_numpy(float)
        is_rate = [result.arrays.is_rate(m) for m in result.ranking["measure"]]
        assert np.isnan(ends[~np.array(is_rate, dtype=bool)]).all()

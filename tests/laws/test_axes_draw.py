"""Every axis draws a page, a terminal summary, figures and a gate from an empty run, undefined rows and one sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import nn

import heatproof
from heatproof.axes import AXES, BY_NAME, Axis
from heatproof.report.figures import paper_components, write_figures
from heatproof.report.page import build_report
from heatproof.report.terminal import component_text, text_summary
from heatproof.results.reports import components_of
from heatproof.runs.gallery import read_gallery
from heatproof.runs.results import arrays_of_run, axis_results
from heatproof.runs.run import Run
from heatproof.testing.check import check
from support.laws import AXES as QUICK
from support.laws import retrained
from support.small import model, pictures

METHODS = ["saliency", {"gradient_shap": {"samples": 2}}, "random"]
ASKED: dict[str, Any] = {**QUICK, "stability": {"perturbations": ["jpeg", "identity"], "k": 50}}
ASKED["faithfulness"] = {**QUICK["faithfulness"], "imputers": ["zero"]}
EVALUATED = [axis.name for axis in AXES if axis.evaluation is not None]


class Blind(nn.Module):
    """A network whose maps are all constant."""

    def __init__(self) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.tensor([1.0, 0.0, 0.0, 0.0]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.bias + 0 * x.flatten(1)[:, :4]


@pytest.fixture(scope="module")
def runs() -> dict[tuple[str, str], Run]:
    """Every evaluation on one sample, and on samples whose maps are constant."""
    made = {}
    for name in EVALUATED:
        asked = [{name: ASKED[name]}]
        made[name, "one"] = heatproof.evaluate(model(), pictures(1), METHODS, asked)
        layered = {**ASKED[name], "layers": []} if "layers" in ASKED[name] else ASKED[name]
        made[name, "undefined"] = heatproof.evaluate(
            Blind(), pictures(3), METHODS[:2], [{name: layered}]
        )
    return made


def draw(table: pd.DataFrame, run: Run, axis: Axis, folder: Path) -> None:
    samples, gallery = run.samples(), read_gallery(run.path)
    html = build_report(
        axis_results(table, samples, gallery, run.manifest),
        samples,
        run.manifest,
    )
    assert "<!doctype html>" in html and "nan" not in html.split("<script")[0].lower().replace(
        "nano", ""
    )
    text = text_summary(
        axis_results(table, samples, (), run.manifest),
        samples,
        run.manifest,
    )
    assert (axis.title in text) == bool(len(table))
    results = axis_results(table, samples, gallery, run.manifest)
    of_papers = paper_components(results)
    written = write_figures(of_papers, run.manifest, folder, ["png"], 5.0)
    assert written.index.is_file()
    assert {file.item for file in written.files} <= {figure.name for figure in of_papers}
    for result in results:
        for component in components_of(result):
            assert "nan" not in component_text(component, result.looks)


@pytest.mark.parametrize("name", EVALUATED)
@pytest.mark.parametrize("kind", ["one", "undefined"])
def test_an_axis_draws_from_little(runs, name, kind, tmp_path):
    run = runs[name, kind]
    draw(run.in_study_order(), run, BY_NAME[name], tmp_path)
    cubes = arrays_of_run(run.table())
    for measure in BY_NAME[name].headlines(cubes[0]):
        for outcome in check(run, [f"{name}.{measure} >= 0.1"]):
            assert not outcome.passed, "so little allows no conclusion"
            assert outcome.need


@pytest.mark.parametrize("name", EVALUATED)
def test_an_axis_draws_from_nothing(runs, name, tmp_path):
    run = runs[name, "one"]
    draw(run.in_study_order().iloc[:0], run, BY_NAME[name], tmp_path)


def test_retraining_draws_with_and_without_removal(tmp_path):
    run = retrained(6)
    table = run.table()
    assert set(table["repeat"]) == {0, 1} and set(table["model"]) == {"shapes"}
    names = [judged.axis.name for judged in axis_results(table, run.samples(), (), run.manifest)]
    assert names == ["retraining", "f_fidelity", "leakage"]
    draw(table, run, BY_NAME["retraining"], tmp_path)


@pytest.mark.parametrize("name", EVALUATED)
def test_every_measure_in_a_table_is_declared(runs, name):
    for kind in ("one", "undefined"):
        for measure in runs[name, kind].table()["measure"].unique():
            declared = BY_NAME[name].measure(measure)
            assert declared is not None, measure
            assert (
                declared.title
                and declared.better in ("higher", "lower", "neither")
                and declared.role
            )

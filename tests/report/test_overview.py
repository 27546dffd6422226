"""The verdict on the first screen and in the terminal says no more than the tests support."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from heatproof.report.findings import findings_here
from heatproof.report.overview import Overview
from heatproof.report.overview_text import overview_lines, plain
from heatproof.results.axis_result import AxisResult
from heatproof.results.verdict import Label
from heatproof.runs.results import axis_results
from support import synthetic
from support.manifests import manifest_of

MEASURES = {
    "stability": ("fass", "jpeg", 40.0),
    "faithfulness": ("road", "noisy_linear", 0.0),
    "localisation": ("relevance_mass", "label", 0.0),
}
CHANCE = {"stability": 0.2, "faithfulness": 0.0, "localisation": 0.2}
Scores = dict[str, dict[str, np.ndarray]]


def near(mean: float, n: int = 30, seed: int = 0) -> np.ndarray:
    return mean + np.random.default_rng(seed).normal(0, 0.02, n)


def overview_of(scores: Scores) -> Overview:
    """The overview of tests, each with the scores of some explainers on a scale where chance is 0.2 or 0."""
    frames = []
    for axis, by_explainer in scores.items():
        measure, condition, level = MEASURES[axis]
        entries: list[synthetic.Entry] = [
            (name, measure, condition, level, values, np.full(len(values), CHANCE[axis]))
            for name, values in by_explainer.items()
        ]
        frames.append(synthetic.rows_of(entries, axis))
    rows = pd.concat(frames, ignore_index=True)
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    manifest = manifest_of(explainers=sorted(set(rows["explainer"])))
    results: list[AxisResult] = axis_results(rows, samples, (), manifest)
    dataset, model = str(rows["dataset"].iloc[0]), str(rows["model"].iloc[0])
    findings = findings_here(dataset, model, results, samples, manifest)
    return Overview(dataset, model, results, samples, findings)


CLEAR: Scores = {
    "stability": {
        "grad_cam": near(0.7),
        "saliency": near(0.4, seed=1),
        "sobel": near(0.9, seed=2),
        "random": near(0.2, seed=3),
    },
    "faithfulness": {
        "grad_cam": near(0.3),
        "saliency": near(0.1, seed=1),
        "sobel": near(0.0, seed=2),
        "random": near(0.0, seed=3),
    },
}


def text_of(overview: Overview, width: int = 120) -> str:
    return plain(overview_lines(overview, width))


def test_a_method_that_wins_every_test_leads():
    overview = overview_of(CLEAR)
    assert overview.headline.startswith("Grad-CAM leads")
    assert "two" in overview.headline
    cells = {column.result.axis.name: column.cell("grad_cam") for column in overview.columns}
    assert {cell.label for cell in cells.values()} == {Label.BEST}
    assert cells["stability"].text == "0.62"  # (0.7 − 0.2) / (1 − 0.2)


def test_tests_that_an_edge_filter_cannot_fake_come_first():
    names = [column.result.axis.name for column in overview_of(CLEAR).columns]
    assert names == ["faithfulness", "stability"]


def test_the_caveat_names_the_tests_on_which_a_control_is_not_beaten():
    caveat = overview_of(CLEAR).caveat
    assert caveat is not None and caveat.rule == "control-not-beaten"
    assert "tability" in caveat.claim and "aithfulness" not in caveat.claim
    assert "no better than a random map" in caveat.reason


def test_there_is_no_such_caveat_where_the_controls_are_beaten():
    beaten = {
        "stability": {
            "grad_cam": near(0.7),
            "saliency": near(0.6, seed=1),
            "sobel": near(0.4, seed=2),
        }
    }
    caveat = overview_of(beaten).caveat
    assert caveat is None or caveat.rule != "control-not-beaten"


def test_a_winner_of_one_test_that_loses_another_does_not_lead():
    scores: Scores = {
        "stability": {"grad_cam": near(0.7), "saliency": near(0.4, seed=1)},
        "faithfulness": {"grad_cam": near(0.1), "saliency": near(0.3, seed=1)},
    }
    headline = overview_of(scores).headline
    assert "No method leads" in headline
    assert "Grad-CAM on stability" in headline and "Saliency on faithfulness" in headline


NO_WINNER: dict[str, Scores] = {
    "equal": {
        "stability": {
            "grad_cam": near(0.6),
            "saliency": near(0.6, seed=1),
            "rise": near(0.6, seed=2),
        }
    },
    "constant": {"stability": {"grad_cam": np.full(30, 0.5), "saliency": np.full(30, 0.5)}},
    "two samples": {"stability": {"grad_cam": near(0.9, 2), "saliency": near(0.3, 2, 1)}},
    "one sample": {"stability": {"grad_cam": near(0.9, 1), "saliency": near(0.3, 1, 1)}},
    "one method": {"stability": {"grad_cam": near(0.9)}},
    "only controls": {"stability": {"sobel": near(0.9), "random": near(0.2, seed=1)}},
    "undefined": {"stability": {"grad_cam": np.full(12, np.nan), "saliency": np.full(12, np.nan)}},
    "at chance": {"stability": {"grad_cam": near(0.2), "saliency": near(0.2, seed=1)}},
}


@pytest.mark.parametrize("case", NO_WINNER)
def test_nothing_is_called_best_where_no_test_says_so(case: str):
    overview = overview_of(NO_WINNER[case])
    labels = [column.cell(name).label for column in overview.columns for name in overview.rows]
    assert Label.BEST not in labels
    text = text_of(overview)
    assert not re.search(r"\bbest\b(?!:)|\bleads\b|most stable", text)


def test_below_eight_samples_neither_labels_nor_intervals_are_shown():
    overview = overview_of(NO_WINNER["two samples"])
    cells = [column.cell(name) for column in overview.columns for name in overview.rows]
    assert all(cell.label == Label.NONE and not cell.interval for cell in cells)
    assert "2" in overview.headline and "8" in overview.headline


def test_methods_at_chance_are_called_random():
    overview = overview_of(NO_WINNER["at chance"])
    assert "random map" in overview.headline
    assert {overview.columns[0].cell(name).label for name in overview.methods} == {Label.AS_RANDOM}


@pytest.mark.parametrize("width", [80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int):
    lines = text_of(overview_of(CLEAR), width).splitlines()
    assert max(map(len, lines)) <= width


def test_every_score_of_the_table_is_in_the_text():
    overview = overview_of(CLEAR)
    text = text_of(overview, 80)
    for column in overview.columns:
        for name in overview.rows:
            assert column.cell(name).text in text


def test_scores_that_differ_never_look_alike_because_all_are_small():
    tiny = {"grad_cam": near(0.3) / 100, "saliency": near(0.1, seed=1) / 100}
    (column,) = overview_of({"faithfulness": tiny}).columns
    cells = [column.cell(name) for name in tiny]
    assert cells[0].text != cells[1].text
    assert all(float(cell.text) > 0 for cell in cells)


def test_words_that_do_not_occur_are_not_explained():
    text = text_of(overview_of(CLEAR))
    assert "undecided:" not in text and "best:" in text


def test_a_check_says_yes_or_no_and_has_no_winner():
    entries: list[synthetic.Entry] = [
        ("grad_cam", "dependence", "weights", 0.0, near(0.8), None),
        ("guided_backprop", "dependence", "weights", 0.0, np.zeros(30), None),
    ]
    rows = synthetic.rows_of(entries, "dependence")
    rows = pd.concat([rows.assign(repeat=i) for i in range(5)], ignore_index=True)
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    manifest = manifest_of(explainers=["grad_cam", "guided_backprop"])
    results = axis_results(rows, samples, (), manifest)
    overview = Overview("data", "net", results, samples, [])
    (column,) = overview.columns
    assert column.is_check
    assert column.cell("grad_cam").text == "yes"
    assert column.cell("guided_backprop").text == "no"
    assert overview.headline.startswith("One of two methods")

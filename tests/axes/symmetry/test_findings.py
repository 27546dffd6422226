"""Findings about symmetry: each speaks where its interval supports it, and says what to do."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

import heatproof
from heatproof import axes
from heatproof.axes.contract import AxisResult, Finding, figures_of, findings_of
from heatproof.axes.symmetry import AXIS
from heatproof.axes.symmetry.findings import remedies
from heatproof.axes.symmetry.frames import repaired, symmetries
from heatproof.axes.symmetry.groups import build
from heatproof.axes.symmetry.page import convergence_chart
from heatproof.axes.symmetry.words import lead
from support import synthetic

N = 40
D4 = {"group": {"name": "dihedral", "n": 4}, "elements": 8}


def near(centre: float, width: float = 0.001) -> np.ndarray:
    draws = np.random.default_rng(0).normal(0, width, N)
    return centre + draws - draws.mean()


def axis_results(
    score: Any,
    model: Any = 1.0,
    measure: str = "equivariance",
    settings: Any = D4,
    explainer: Any = None,
    chance: float = 0.0,
    half: float = 0.0,
    extra: tuple[synthetic.Entry, ...] = (),
) -> AxisResult:
    entries = [
        ("m", measure, "dihedral", 8.0, score),
        ("m", f"{measure}_chance", "dihedral", 8.0, np.full(N, chance)),
        (
            "m",
            "model_invariance",
            "dihedral",
            8.0,
            np.broadcast_to(np.asarray(model, dtype=float), N),
        ),
        *extra,
    ]
    rows = synthetic.rows_of(entries, "symmetry")
    rows = rows.assign(low=rows["value"] - half, high=rows["value"] + half, role="method")
    samples = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    manifest = {
        "study": {"explainers": {"m": explainer or {}}, "evaluations": {"symmetry": settings}}
    }
    (judged,) = axes.judge(rows, samples, [], manifest)
    return judged


def titled(judged: AxisResult, word: str) -> list[Finding]:
    """The findings whose title has this word."""
    return [finding for finding in findings_of(judged) if word in finding.title]


def broken(judged: AxisResult) -> list[Finding]:
    """The findings that a method breaks a symmetry that the model has."""
    return titled(judged, "breaks")


def test_guidelines_one_to_four_where_the_model_is_invariant():
    tried = (("m", "equivariance", "symmetrised", 4.0, np.full(N, 0.995)),)
    (card,) = broken(axis_results(near(0.6), explainer={"name": "lime"}, extra=tried))
    assert card.severity == "act" and "baseline" in card.do
    assert "4 elements" in card.do and "0.995" in card.do
    assert 'heatproof.symmetrise(explainer, {"dihedral": {"n": 4}})' in card.do
    (example,) = broken(
        axis_results(near(0.6), measure="invariance", explainer={"name": "simplex", "layer": "f"})
    )
    assert "invariant layer" in example.do and "2 and 4" in example.means
    (concept,) = broken(
        axis_results(near(0.6), measure="invariance", explainer={"name": "cav", "layer": "f"})
    )
    assert "3 and 4" in concept.means and "layer f " in concept.do
    assert not findings_of(axis_results(near(0.9999, 1e-6)))


def test_the_remedy_is_what_the_finding_says_to_do():
    judged = axis_results(near(0.6), explainer={"name": "lime"})
    measured = symmetries(judged)
    assert measured is not None
    remedy = remedies(measured)["m"]
    assert remedy.way == "repair" and broken(judged)[0].do.startswith(remedy.do)


def test_guideline_five_and_no_word_where_the_model_is_open():
    (card,) = findings_of(axis_results(near(0.6), near(0.95, 1e-5)))
    assert "model" in card.title and card.explainers == ("m",)
    assert "not symmetrise" in card.do
    unsure = np.where(np.arange(N) < 1, 0.97, 1.0)  # the interval holds 0.999
    assert not findings_of(axis_results(near(0.6), unsure))


def test_chance_draws_and_the_group_are_told():
    floor = (("m", "equivariance", "redraw", 0.0, near(0.5)),)
    (drawn,) = titled(axis_results(near(0.6), extra=floor), "draws")
    assert "0.50" in drawn.seen and "0.60" in drawn.seen
    (level,) = titled(axis_results(near(0.6), chance=0.6), "other samples")
    assert "chance 0.60" in level.seen and level.explainers == ("m",)
    (few,) = titled(axis_results(near(0.6), half=0.2), "elements")
    assert "±0.20" in few.seen and "elements: 32" in few.do
    (turned,) = titled(
        axis_results(near(0.6), settings={"group": {"name": "dihedral", "n": 8}}), "interpolates"
    )
    assert "{dihedral: {n: 4}}" in turned.do


def test_figures_are_named_after_the_axis():
    assert all(item.name.startswith("symmetry-") for item in figures_of(AXIS))


def test_a_method_at_its_floor_is_not_accused():
    """Sampling noise is no asymmetry: below 1, but not below what two draws on one input agree to."""
    score, noisy = near(0.93), near(0.931, 0.01)
    floor = ("m", "equivariance", "redraw", 0.0, noisy)
    found = axis_results(score, explainer={"name": "kernel_shap"}, extra=(floor,))
    assert not broken(found)
    assert any("draws" in s and "m 0.93" in s for s in lead(found))
    above = ("m", "equivariance", "redraw", 0.0, near(0.99))
    assert broken(axis_results(score, explainer={"name": "kernel_shap"}, extra=(above,)))
    back = ("m", "equivariance", "there_and_back", 8.0, near(0.94, 0.02))
    assert not broken(axis_results(near(0.94), extra=(back,)))


def test_a_model_is_judged_by_the_explained_output_and_by_agreement():
    """A cosine of probabilities of 1 says little: saturated or nearly uniform outputs have it whatever they do."""
    for measure, value in (("model_change", 0.4), ("model_agreement", 0.14)):
        extra = (("m", measure, "dihedral", 8.0, np.full(N, value)),)
        found = axis_results(near(0.6), explainer={"name": "lime"}, extra=extra)
        assert not broken(found), measure
        assert titled(found, "model itself"), measure
    fine = (
        ("m", "model_change", "dihedral", 8.0, np.full(N, 1e-6)),
        ("m", "model_agreement", "dihedral", 8.0, np.ones(N)),
    )
    judged = axis_results(near(0.6), explainer={"name": "lime"}, extra=fine)
    assert broken(judged)
    assert "0.0001 %" in " ".join(lead(judged))


@pytest.mark.parametrize(
    ("group", "text"),
    [
        ({"name": "dihedral", "n": 2}, '{"dihedral": {"n": 2}}'),
        (
            {
                "name": "product",
                "factors": [{"name": "cyclic", "dim": -2}, {"name": "cyclic", "dim": -1}],
            },
            None,
        ),
        ({"name": "own", "title": "mine"}, "your group"),
    ],
)
def test_advice_repeats_the_group_of_the_study(group, text):
    (card,) = broken(axis_results(near(0.6), settings={"group": group}, explainer={"name": "lime"}))
    assert text is None or text in card.do
    if group["name"] != "own":
        form = card.do.split("symmetrise(explainer, ")[1].split("); in a study")[0]
        study = (
            card.do.split("in a study: ")[1]
            .split(" Maps are")[0]
            .removesuffix(".")
            .replace("of: …", "of: saliency")
        )
        made = heatproof.symmetrise(heatproof.Saliency(), ast.literal_eval(form))
        assert made.group == build(yaml.safe_load(study)["symmetrised"]["group"])
        assert made.group.name == group["name"] and getattr(made.group, "n", 2) == 2
    (other,) = broken(
        axis_results(
            near(0.6), measure="invariance", settings={"group": group}, explainer={"name": "cav"}
        )
    )
    assert "moved back" not in other.do, "importances of concepts are averaged as they are"


def test_chance_stands_beside_the_headline():
    assert "chance 0.89" in lead(axis_results(near(0.996), chance=0.89))[0]


def test_the_curve_of_convergence_holds_the_means_over_the_first_elements():
    curve = tuple(
        ("m", "equivariance", "convergence", float(n), near(1 - 0.2 / n)) for n in (1, 2, 8)
    )
    measured = symmetries(axis_results(near(0.6), extra=curve))
    assert measured is not None
    rows = repaired(measured, "convergence")
    assert rows["level"].tolist() == [1, 2, 8] and rows["mean"].tolist() == pytest.approx(
        [0.8, 0.9, 0.975]
    )
    chart = convergence_chart(measured)
    assert chart is not None
    assert convergence_chart(symmetries(axis_results(near(0.6)))) is None

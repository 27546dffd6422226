"""Findings about symmetry: each speaks where its interval supports it, and says what to do."""

from __future__ import annotations

import ast
from typing import Any

import numpy as np
import pandas as pd
import pytest

import heatproof
from heatproof.axes.symmetry.groups import build
from heatproof.axes.symmetry.guidelines import Remedy, remedies
from heatproof.axes.symmetry.report import lead
from heatproof.axes.symmetry.summaries import (
    INVARIANT,
    SymmetrySummary,
    curve_points,
    summarise,
)
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding
from heatproof.results.reports import components_of, findings_of
from heatproof.runs.results import axis_results
from heatproof.text import records
from support import synthetic
from support.manifests import manifest_of

N = 40
D4 = {"group": {"name": "dihedral", "n": 4}, "elements": 8}


def near(centre: float, width: float = 0.001) -> np.ndarray:
    draws = np.random.default_rng(0).normal(0, width, N)
    return centre + draws - draws.mean()


def result_of(
    score: Any,
    model: Any = 1.0,
    measure: str = "equivariance",
    settings: Any = D4,
    explainer: Any = None,
    chance: float = 0.0,
    half: float = 0.0,
    extra: tuple[synthetic.Entry, ...] = (),
) -> AxisResult:
    """The result of one method "m" under D4, with Monte-Carlo bounds of ±`half` around each score."""
    invariance = np.broadcast_to(np.asarray(model, dtype=float), N)
    entries = [
        ("m", measure, "dihedral", 8.0, score, np.full(N, chance)),
        ("m", "model_invariance", "dihedral", 8.0, invariance),
        *extra,
    ]
    rows = synthetic.rows_of(entries, "symmetry")
    rows = rows.assign(low=rows["value"] - half, high=rows["value"] + half, role="method")
    samples = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    study = {"explainers": {"m": explainer or {}}, "evaluations": {"symmetry": settings}}
    (result,) = axis_results(rows, samples, [], manifest_of(study))
    return result


def summary_of(result: AxisResult) -> SymmetrySummary:
    summary = summarise(result)
    assert summary is not None
    return summary


def remedy_of(result: AxisResult) -> Remedy:
    """What the guidelines say of the only method."""
    (remedy,) = remedies(summary_of(result)).values()
    return remedy


def by_rule(result: AxisResult, rule: str) -> list[Finding]:
    """The findings of this rule."""
    return [finding for finding in findings_of(result) if finding.rule == rule]


def broken(result: AxisResult) -> list[Finding]:
    """The findings that a method breaks a symmetry that the model has."""
    return by_rule(result, "broken-symmetry")


def test_guidelines_one_to_four_where_the_model_is_invariant():
    tried = (("m", "symmetrised", "symmetrised", 4.0, np.full(N, 0.995)),)
    (card,) = broken(result_of(near(0.6), explainer={"name": "lime"}, extra=tried))
    assert card.severity == "problem" and "baseline" in card.do
    assert "4 elements" in card.do and "0.995" in card.do
    assert 'heatproof.symmetrise(explainer, {"dihedral": {"n": 4}})' in card.do
    (example,) = broken(
        result_of(near(0.6), measure="invariance", explainer={"name": "simplex", "layer": "f"})
    )
    assert "invariant layer" in example.do and "2 and 4" in example.means
    (concept,) = broken(
        result_of(near(0.6), measure="invariance", explainer={"name": "cav", "layer": "f"})
    )
    assert "3 and 4" in concept.means and "layer f " in concept.do
    assert not findings_of(result_of(near(0.9999, 1e-6)))


def test_the_remedy_is_what_the_finding_says_to_do():
    result = result_of(near(0.6), explainer={"name": "lime"})
    remedy = remedy_of(result)
    assert remedy.way == "repair" and broken(result)[0].do.startswith(remedy.advice)


def test_guideline_five_and_no_word_where_the_model_is_open():
    (card,) = findings_of(result_of(near(0.6), near(0.95, 1e-5)))
    assert "model" in card.title and card.explainers == ("m",)
    assert "not symmetrise" in card.do
    unsure = np.where(np.arange(N) < 1, 0.97, 1.0)  # the interval holds 0.999
    assert not findings_of(result_of(near(0.6), unsure))


def test_page_and_findings_judge_the_model_alike():
    """By the intervals: a mean above the threshold does not make a model invariant where its interval reaches below."""
    mostly = np.where(np.arange(N) < 1, 0.97, 1.0)
    assert mostly.mean() > INVARIANT
    cases = [(1.0, True, "Yes"), (mostly, None, "Undecided"), (near(0.95), False, "No")]
    for model, is_invariant, answer in cases:
        result = result_of(near(0.6), model)
        assert summary_of(result).is_model_invariant is is_invariant
        assert remedy_of(result).way == ("repair" if is_invariant else "weigh")
        table = next(part for part in components_of(result) if part.key == "guidelines")
        assert f"? {answer} (" in table.rows["model"].iloc[0]
    undecided = " ".join(lead(result_of(near(0.6), mostly)))
    assert "undecided" in undecided and "is not invariant" not in undecided


def test_checks_take_no_part_in_the_overall_score():
    score, checks = near(0.6), ("noise_floor", "there_and_back", "convergence", "symmetrised")
    extra = tuple(("m", name, name, 4.0, np.ones(N)) for name in checks)
    (with_checks,) = records(result_of(score, extra=extra).ranking)
    (plain,) = records(result_of(score).ranking)
    assert (with_checks.score, with_checks.low) == pytest.approx((plain.score, plain.low))
    assert with_checks.conditions_total == 1


def test_the_summary_has_the_noise_floor_beside_the_score():
    floor = (("m", "noise_floor", "redraw", 0.0, near(0.5)),)
    summary = result_of(near(0.6), extra=floor).summary
    (row,) = records(summary[summary["measure"] == "equivariance"])
    assert (row.mean, row.noise_floor) == pytest.approx((0.6, 0.5))


def test_chance_draws_and_the_group_are_told():
    floor = (("m", "noise_floor", "redraw", 0.0, near(0.5)),)
    (drawn,) = by_rule(result_of(near(0.6), extra=floor), "noisy-draws")
    assert "0.50" in drawn.seen and "0.60" in drawn.seen
    (level,) = by_rule(result_of(near(0.6), chance=0.6), "not-above-chance")
    assert "chance 0.60" in level.seen and level.explainers == ("m",)
    (few,) = by_rule(result_of(near(0.6), half=0.2), "few-elements")
    assert "±0.20" in few.seen
    (advised,) = few.change["evaluations"]
    assert advised["symmetry"] == {"group": {"dihedral": {"n": 4}}, "elements": 32}
    octagon = {"group": {"name": "dihedral", "n": 8}}
    (turned,) = by_rule(result_of(near(0.6), settings=octagon), "interpolating-group")
    assert turned.change == {"evaluations": [{"symmetry": {"group": {"dihedral": {"n": 4}}}}]}


def test_a_method_at_its_floor_is_not_accused():
    """Sampling noise is no asymmetry: below 1, but not below what two draws on one input agree to."""
    score, noisy = near(0.93), near(0.931, 0.01)
    floor = ("m", "noise_floor", "redraw", 0.0, noisy)
    at_floor = result_of(score, explainer={"name": "kernel_shap"}, extra=(floor,))
    assert not broken(at_floor)
    assert remedy_of(at_floor).way == "keep" and "0.931" in remedy_of(at_floor).advice
    above = ("m", "noise_floor", "redraw", 0.0, near(0.99))
    assert broken(result_of(score, explainer={"name": "kernel_shap"}, extra=(above,)))
    back = ("m", "there_and_back", "there_and_back", 8.0, near(0.94, 0.02))
    assert not broken(result_of(near(0.94), extra=(back,)))


def test_a_model_is_judged_by_the_explained_output_and_by_agreement():
    """A cosine of probabilities of 1 says little: saturated or nearly uniform outputs have it whatever they do."""
    for measure, value in (("model_change", 0.4), ("model_agreement", 0.14)):
        extra = (("m", measure, "dihedral", 8.0, np.full(N, value)),)
        found = result_of(near(0.6), explainer={"name": "lime"}, extra=extra)
        assert not broken(found), measure
        assert by_rule(found, "model-not-invariant"), measure
    fine = (
        ("m", "model_change", "dihedral", 8.0, np.full(N, 1e-6)),
        ("m", "model_agreement", "dihedral", 8.0, np.ones(N)),
    )
    result = result_of(near(0.6), explainer={"name": "lime"}, extra=fine)
    assert broken(result)
    assert "0.0001 %" in " ".join(lead(result))


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
    (card,) = broken(result_of(near(0.6), settings={"group": group}, explainer={"name": "lime"}))
    assert text is None or text in card.do
    if group["name"] != "own":
        form = card.do.split("symmetrise(explainer, ")[1].split(")")[0]
        made = heatproof.symmetrise(heatproof.Saliency(), ast.literal_eval(form))
        (in_study,) = card.change["explainers"]
        assert in_study["symmetrised"]["of"] == "lime"
        assert made.group == build(in_study["symmetrised"]["group"])
        assert made.group.name == group["name"] and getattr(made.group, "n", 2) == 2
    (other,) = broken(
        result_of(
            near(0.6), measure="invariance", settings={"group": group}, explainer={"name": "cav"}
        )
    )
    assert "moved back" not in other.do, "importances of concepts are averaged as they are"


def test_the_headline_is_calibrated_by_its_chance():
    expected = (0.996 - 0.89) / (1 - 0.89)
    assert f"{expected:.2f}" in lead(result_of(near(0.996), chance=0.89))[0]


def test_the_curve_of_convergence_holds_the_means_over_the_first_elements():
    curve = tuple(
        ("m", "convergence", "convergence", float(n), near(1 - 0.2 / n)) for n in (1, 2, 8)
    )
    result = result_of(near(0.6), extra=curve)
    points = curve_points(summary_of(result), "convergence")
    assert points["x"].tolist() == [1, 2, 8]
    assert points["score"].tolist() == pytest.approx([0.8, 0.9, 0.975])
    assert "convergence" in {component.key for component in components_of(result)}
    without = result_of(near(0.6))
    assert "convergence" not in {component.key for component in components_of(without)}

"""What is concluded from runs with known truths: which methods lead, and that the sentence names them.

Sentence, marks, colours and findings come from one verdict, so none of them may claim what the tests do not show.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heatproof.evaluation import Measure
from heatproof.report.findings import findings
from heatproof.report.proof_sheet import Column, ProofSheet, proof_sheets
from heatproof.report.sample import tail_colour
from heatproof.report.terminal import styled_summary
from heatproof.results.axis_result import AxisResult
from heatproof.runs.results import axis_results
from support import synthetic
from support.manifests import manifest_of

SHORT = (("rotation", 15.0), ("jpeg", 40.0))
FOUR = ("grad_cam", "saliency", "deep_lift", "rise")


def proof_of(quality: dict[str, float], samples: int = 16, **options: Any) -> ProofSheet:
    given = {"conditions": SHORT, "samples": samples, "seed": 0, **options}
    judged = synthetic.judged_of(synthetic.table(quality, **given))
    (proof,) = proof_sheets([judged], synthetic.samples(samples))
    return proof


@pytest.mark.parametrize(
    ("quality", "leaders"),
    [
        ({"grad_cam": 0.8, "saliency": 0.3, "lime": 0.2, "sobel": 0.1}, {"grad_cam"}),
        ({"grad_cam": 0.4, "saliency": 1.0}, {"saliency"}),
        ({"grad_cam": 0.7, "saliency": 0.7, "lime": 0.1, "sobel": 0.9}, {"grad_cam", "saliency"}),
        ({**dict.fromkeys(FOUR, 0.6), "lime": 0.0}, set(FOUR)),
        ({"grad_cam": 0.5, "saliency": 0.5, "sobel": 0.5}, {"grad_cam", "saliency"}),
    ],
)
def test_methods_that_lead_are_those_made_best_and_never_a_control(
    quality: dict[str, float], leaders: set[str]
) -> None:
    proof = proof_of(quality)
    assert proof.lead is not None and proof.lead.decided is not None
    verdict = proof.lead.decided
    assert ({verdict.best} if verdict.best else set(verdict.undecided)) == leaders
    assert all(proof.looks[leader].name in proof.sentence for leader in leaders)
    assert not any(look.name in proof.sentence for look in proof.looks.values() if look.control)


def test_methods_at_chance_are_not_said_to_lead() -> None:
    sentence = proof_of({"grad_cam": 0.0, "saliency": 0.0, "random": 0.0}).sentence
    assert "chance" in sentence or "random" in sentence
    assert "Grad-CAM" not in sentence and "Saliency" not in sentence


def test_the_number_of_samples_and_of_unreadable_ones_stands_beside_the_sentence() -> None:
    judged = synthetic.judged_of(synthetic.table({"grad_cam": 0.8, "saliency": 0.3}, SHORT, 6))
    (proof,) = proof_sheets([judged], synthetic.samples(6, unreadable=2))
    limits = [text for text, _ in proof.chips]
    assert any(text.startswith("6 ") for text in limits)
    assert any(text.startswith("2 ") for text in limits)


def result_of(scores: dict[str, np.ndarray], groups: int = 0) -> AxisResult:
    """The stability of explainers with these FASS values under one condition, at a chance level of 0.2."""
    entries: list[synthetic.Entry] = [
        (name, "fass", "jpeg", 40.0, values, np.full(len(values), 0.2))
        for name, values in scores.items()
    ]
    rows = synthetic.rows_of(entries, "stability")
    if not groups:
        return synthetic.judged_of(rows)
    samples = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    samples = samples.assign(group=[f"g{i % groups}" for i in range(len(samples))])
    (result,) = axis_results(rows, samples, (), manifest_of())
    return result


def near(mean: float, n: int = 30, seed: int = 0) -> np.ndarray:
    return mean + np.random.default_rng(seed).normal(0, 0.02, n)


def greens(result: AxisResult) -> list[str]:
    """The green lines of the terminal."""
    samples = synthetic.samples(len(result.sample_ids), unreadable=0)
    lines = styled_summary([result], samples, manifest_of())
    return [line for line, style in lines if style == "green"]


NOTHING_DECIDED = {
    "equal": {"grad_cam": near(0.6), "saliency": near(0.6, seed=1), "rise": near(0.6, seed=2)},
    "identical": {"grad_cam": near(0.6), "saliency": near(0.6), "rise": near(0.6)},
    "constant": {"grad_cam": np.full(30, 0.5), "saliency": np.full(30, 0.5)},
    "two samples": {"grad_cam": near(0.9, 2), "saliency": near(0.3, 2, 1)},
    "one sample": {"grad_cam": near(0.9, 1), "saliency": near(0.3, 1, 1)},
    "one method": {"grad_cam": near(0.9)},
    "only controls": {"sobel": near(0.9), "random": near(0.2, seed=1)},
    "undefined": {"grad_cam": np.full(12, np.nan), "saliency": np.full(12, np.nan)},
    "at chance": {"grad_cam": near(0.2), "saliency": near(0.2, seed=1)},
}
CLAIMS = {"dominated-method", "not-above-chance", "near-chance", "control-not-beaten"}


@pytest.mark.parametrize("case", NOTHING_DECIDED)
def test_no_sentence_mark_colour_or_finding_claims_what_was_not_shown(case: str) -> None:
    result = result_of(NOTHING_DECIDED[case])
    n = len(result.sample_ids)
    (proof,) = proof_sheets([result], synthetic.samples(n, unreadable=0))
    told = " ".join([proof.sentence, *result.decided(), *(text for text, _ in proof.chips)])
    assert result.axis.best not in told and "clear winner" not in told.replace("no clear", "")
    assert not greens(result)
    few_or_none = n < 8 or case == "undefined"
    rules = {f.rule for f in findings([result], result.samples, manifest_of())}
    if few_or_none:
        assert not rules & (CLAIMS | {"tied-methods"})
    if case in ("at chance", "one method", "only controls"):
        assert "tied-methods" not in rules
        assert "first by" not in " ".join(
            f.seen for f in findings([result], result.samples, manifest_of())
        )


@pytest.mark.parametrize("case", NOTHING_DECIDED)
def test_a_dot_is_filled_only_where_a_score_is_significantly_above_chance(case: str) -> None:
    column = Column(result_of(NOTHING_DECIDED[case]))
    above = column.decided.above_chance if column.decided is not None else {}
    for explainer, mark in column.marks.items():
        assert (mark.kind == "filled") == (above.get(explainer) is True)


def test_only_the_best_method_is_green() -> None:
    (line,) = greens(result_of({"grad_cam": near(0.8), "saliency": near(0.5), "sobel": near(0.9)}))
    assert "Grad-CAM" in line


def test_few_groups_decide_nothing_however_many_samples_they_hold() -> None:
    result = result_of({"grad_cam": near(0.9), "saliency": near(0.3, seed=1)}, groups=4)
    verdict = result.verdict(result.headlines[0])
    assert not verdict.can_decide and verdict.best is None and not verdict.undecided[2:]
    assert "4 groups: too few" in result.decided()[0]


def test_one_method_is_not_above_chance_where_its_interval_contains_chance() -> None:
    """A one-sided bound at 95 % lies above the lower end of a two-sided interval."""
    generator = np.random.default_rng(0)
    contradictions = claims = 0
    for _ in range(300):
        scores = 0.2 + generator.normal(0.012, 0.03, 20)
        result = result_of({"grad_cam": scores})
        row = result.ranking.iloc[0]
        claims += bool(row["above_chance"])
        contradictions += bool(row["above_chance"]) and row["low"] <= 0
    assert claims > 30
    assert contradictions == 0


@pytest.mark.parametrize(
    ("better", "above", "others", "colour"),
    [
        ("higher", 0.95, 20, "green"),
        ("higher", 0.05, 20, "red"),
        ("higher", 0.5, 20, ""),
        ("lower", 0.95, 20, "red"),
        ("lower", 0.05, 20, "green"),
        ("neither", 0.95, 20, ""),
        ("higher", 1.0, 1, ""),
        ("higher", float("nan"), 0, ""),
    ],
)
def test_a_sample_among_the_worst_tenth_is_red_whichever_way_is_better(
    better: Any, above: float, others: int, colour: str
) -> None:
    assert tail_colour(Measure("x", "X", "", better, "headline"), above, others) == colour

"""What is said where data are few or odd: constant scores, rare failures, shares at their ends, tiny p, few networks."""

from __future__ import annotations

import re

import numpy as np
import pytest
from scipy import stats

import heatproof
from heatproof.report.findings import findings
from heatproof.results.axis_result import AxisResult
from heatproof.results.ranking import ranking
from heatproof.results.summary import summary
from heatproof.text import p_value, with_interval
from support import synthetic
from support.manifests import manifest_of
from support.small import model, pictures


def result_of(scores: dict[str, np.ndarray], chance: float | None = None) -> AxisResult:
    """The stability of explainers with these FASS values under one condition."""
    entries: list[synthetic.Entry] = []
    for name, values in scores.items():
        chances = () if chance is None else (np.full(len(values), chance),)
        entries.append((name, "fass", "jpeg", 40.0, values, *chances))
    return synthetic.judged_of(synthetic.rows_of(entries, "stability"))


def rules_of(result: AxisResult) -> dict[str, str]:
    """What is seen, by the rule that says so."""
    return {f.rule: f.seen for f in findings([result], result.samples, manifest_of())}


@pytest.mark.parametrize("score", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize("chance", [None, 0.1])
def test_constant_scores_are_said_to_be_identical_on_all_samples(
    score: float, chance: float | None
) -> None:
    result = result_of({"a": np.full(14, score), "b": np.full(14, score)}, chance)
    for text in result.verdict(result.headlines[0]).scores.values():
        assert "identical on all 14 samples" in text
    assert "14" in rules_of(result)["identical-scores"]


def test_scores_that_differ_a_little_are_not_called_identical() -> None:
    nearly = 0.3 + 1e-4 * np.arange(14)
    result = result_of({"a": nearly, "b": nearly})
    assert "identical" not in " ".join(result.decided())
    assert "identical-scores" not in rules_of(result)


@pytest.mark.parametrize(("n", "percent"), [(8, 31), (14, 19)])
def test_few_samples_may_have_missed_a_kind_of_sample(n: int, percent: int) -> None:
    """The rule of three: such a kind is missed by n draws with a probability of 5 %."""
    scores = np.random.default_rng(n).uniform(0.4, 0.6, n)
    seen = rules_of(result_of({"a": scores, "b": scores[::-1]}))["rare-failures-unseen"]
    assert f"{percent} %" in seen and str(n) in seen
    assert stats.binom.pmf(0, n, percent / 100) == pytest.approx(0.05, abs=0.01)


@pytest.mark.parametrize("seed", range(20))
def test_intervals_of_raw_scores_keep_within_their_scale(seed: int) -> None:
    generator = np.random.default_rng(seed)
    values = generator.choice([0.0, 0.02, 0.98, 1.0], 9, p=generator.dirichlet(np.ones(4)))
    result = result_of({"a": values, "b": generator.beta(0.2, 0.2, 9)}, chance=0.2)
    ranked = ranking(result.arrays, "fass", calibrate=False, tests=result.tests_by("fass"))
    table = summary(result.arrays)
    for low, high in (
        (ranked["low"], ranked["high"]),
        (table["low"], table["high"]),
        (table["retention_low"], table["retention_high"]),
    ):
        assert (low >= 0).all() and (high <= 1).all() and (low <= high).all()
    assert (ranked[["lower_bound", "upper_bound"]].to_numpy() >= 0).all()
    assert (ranked[["lower_bound", "upper_bound"]].to_numpy() <= 1).all()


def test_no_p_is_printed_as_zero() -> None:
    for p in (0.0, 1e-300, 0.000999):
        assert p_value(p) == "p < 0.001"
    assert p_value(0.001).startswith("p = ")
    generator = np.random.default_rng(0)
    clear = {"a": generator.normal(0.8, 0.02, 30), "b": generator.normal(0.3, 0.02, 30)}
    assert "p < 0.001" in " ".join(result_of(clear).decided())


def test_an_interval_without_an_end_is_none() -> None:
    assert with_interval(0.5, float("nan"), float("nan")).endswith("(no interval)")


@pytest.mark.parametrize(("draws", "is_few"), [(1, True), (2, True), (5, False)])
def test_few_random_networks_are_a_finding(draws: int, is_few: bool) -> None:
    asked = {"dependence": {"draws": draws, "classes": 0, "k": 50}}
    run = heatproof.evaluate(model(), pictures(9), "saliency", asked, show_progress=False)
    found = {f.rule: f for f in findings(run.results(), run.samples(), run.manifest)}
    assert ("few-networks" in found) == is_few
    if is_few:
        assert re.search(r"\b(one|two)\b", found["few-networks"].seen.lower())

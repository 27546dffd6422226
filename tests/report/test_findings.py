"""Findings: each rule speaks where its interval supports it, and is silent where it does not."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest

from heatproof.report.findings import findings
from heatproof.results.findings import Finding
from heatproof.runs.manifest import Manifest
from heatproof.runs.results import axis_results
from support import synthetic
from support.made_up_findings import (
    D4,
    N,
    certified,
    faithful,
    held,
    leak,
    of_references,
    study,
    symmetric,
)
from support.manifests import manifest_of
from support.synthetic import rows_of


class Found(list[Finding]):
    """Findings in their order."""

    def about(self, rule: str) -> list[Finding]:
        return [finding for finding in self if finding.rule == rule]

    def one(self, rule: str) -> Finding:
        (found,) = self.about(rule)
        return found


def of(
    table: pd.DataFrame,
    manifest: Manifest | None = None,
    references: pd.DataFrame | None = None,
) -> Found:
    """All findings but those that so few samples always have; one that comes twice is a mistake."""
    samples = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    results = axis_results(table, samples, (), manifest or manifest_of(), references)
    given = findings(results, samples, manifest or manifest_of())
    assert len({(a.rule, a.title, a.axis, a.explainers) for a in given}) == len(given)
    assert all(a.seen and a.means and a.do and a.title for a in given)
    return Found(a for a in given if a.rule != "rare-failures-unseen")


def test_nothing_is_said_of_nothing() -> None:
    samples = synthetic.samples(0, unreadable=0)
    assert (
        findings(
            axis_results(synthetic.table().iloc[:0], samples, (), manifest_of()),
            samples,
            manifest_of(),
        )
        == []
    )


def test_a_good_run_gives_no_cause_to_act() -> None:
    table = held({"a": 0.9, "b": 0.7, "random": 0.0})
    given = of(table, study(stability={}, faithfulness={}))
    assert not [a for a in given if a.severity != "note"]


def test_scores_without_an_interval_are_one_finding_whatever_the_number_of_axes() -> None:
    few = held({"a": 0.5, "b": 0.4}, n=2)
    evaluations = {name: {"name": "stability"} for name in ("first", "second")}
    manifest = manifest_of({"evaluations": evaluations})
    alone = of(few.assign(evaluation="first"), manifest).one("no-interval")
    assert (
        "first" in alone.title
        and alone.axis == "stability"
        and alone.explainers == ("a", "b")
        and len(alone.items) == 4
    )
    assert re.search(r"4 scores.*2 samples", alone.seen)
    both = of(pd.concat([few.assign(evaluation=name) for name in ("first", "second")]), manifest)
    found = both.one("no-interval")
    assert found.axis == "" and len(found.items) == 8
    assert all(word in found.items[0] for word in ("Stability", "first", "a"))
    assert re.search(r"8 scores.*first 4.*second 4.*2 samples", found.seen)
    assert both[0] == both.one("too-few-samples"), "the reason comes first"


def test_an_untrained_head_and_few_samples() -> None:
    table = held({"a": 0.5, "b": 0.5}, n=12)
    manifest = manifest_of({"models": {"net": {"untrained_head": "the bias is zero"}}})
    given = of(table, manifest)
    assert given.one("untrained-model").severity == "problem"
    few = given.one("few-samples")
    assert "12 samples" in few.seen and "FASS" in few.means
    good = of(held({"a": 0.5, "b": 0.1}))
    assert not good.about("untrained-model") and not good.about("few-samples")


def test_guidelines_one_to_four_where_the_model_is_invariant() -> None:
    lime = study({"m": {"name": "lime"}}, symmetry=D4)
    card = of(symmetric(0.6, 0.9999, repaired=0.995), lime).one("broken-symmetry")
    assert card.severity == "problem" and card.explainers == ("m",) and "baseline" in card.do
    assert re.search(r"4 elements.*0\.995", card.do)
    assert 'heatproof.symmetrise(explainer, {"dihedral": {"n": 4}})' in card.do
    simplex = study({"m": {"name": "simplex", "layer": "f"}}, symmetry=D4)
    example = of(symmetric(0.6, 0.9999, "invariance"), simplex).one("broken-symmetry")
    assert "invariant layer" in example.do and re.search("guidelines.*2.*4", example.means)
    cav = study({"m": {"name": "cav", "layer": "f"}}, symmetry=D4)
    concept = of(symmetric(0.6, 0.9999, "invariance"), cav).one("broken-symmetry")
    assert re.search("guidelines.*3.*4", concept.means)
    assert not of(symmetric(0.9999, 0.9999), study(symmetry=D4))


def test_guideline_five_and_no_word_where_the_model_is_open() -> None:
    given = of(symmetric(0.6, 0.95), study(symmetry=D4))
    (card,) = given
    assert "model" in card.title and "symmetry" in card.title and card.explainers == ("m",)
    assert re.search("(?i)not symmetrise", card.do) and "linear" in card.means
    unsure = symmetric(0.6, 0.95)
    own = unsure["measure"] == "model_invariance"
    unsure.loc[own, "value"] = np.where(np.arange(N) < 1, 0.97, 1.0)  # the interval holds 0.999
    assert not of(unsure, study(symmetry=D4))


def test_certificates_tell_a_low_rate_from_a_loose_bound() -> None:
    manifest = study(certificate={"epsilon": 0.2, "fraction": 0.25, "mode": "estimate"})
    given = of(certified({"good": 0.9, "weak": 0.3, "middle": 0.7, "random": 0.2}), manifest)
    card = given.one("insufficient-features")
    assert (
        (card.severity, card.explainers) == ("problem", ("weak",))
        and "weak 0.28" in card.seen
        and "r = 1" in card.seen
    )
    assert re.search(r"good.*0\.80", card.do)
    loose = given.one("loose-bound")
    assert loose.explainers == ("middle",)
    assert loose.change == {"evaluations": [{"certificate": {"epsilon": 0.1}}]}
    assert not given.about("not-above-random")
    beside = of(certified({"a": 0.9, "b": 0.7, "random": 0.7}), manifest)
    assert beside.one("not-above-random").explainers == ("b",)
    assert not of(certified({"a": 0.9}), manifest)


def test_smoothing_that_costs_accuracy_and_reaches_further() -> None:
    entries: list[synthetic.Entry] = []
    for keep, right in ((0.25, 10), (0.5, 36), (1.0, 38)):
        where = f"λ={keep:g}"
        entries += [
            ("a", "correct", where, 0.0, np.arange(N) < right),
            ("a", "hard_radius", where, 0.0, np.zeros(N)),
        ]
        entries += [("a", "certified", where, 2.0, np.full(N, 0.95))]
    given = of(rows_of(entries, "smoothing"), study(smoothing={"epsilon": 0.1}))
    assert "λ = 0.5" in given.one("smoothing-cost").do
    further = given.one("soft-beyond-hard").seen
    assert "40 of 40" in further and re.search(r"τ = 1.* 0\b", further)


def test_removal_no_better_than_random() -> None:
    given = of(faithful({"good": 0.2, "flat": 0.0, "bad": -0.1}), study(faithfulness={}))
    worse, unproven = given.one("worse-than-random"), given.one("not-above-random")
    assert worse.explainers == ("bad",)
    assert worse.change == {"evaluations": [{"faithfulness": {"absolute": True}}]}
    assert unproven.explainers == ("flat",)
    assert not of(faithful({"good": 0.2, "better": 0.3}), study(faithfulness={}))


@pytest.mark.parametrize(
    ("table", "axis"),
    [
        (held({"good": 0.9, "weak": 0.3, "sobel": 0.7}), "stability"),
        (faithful({"good": 0.2, "weak": 0.05, "sobel": 0.15}), "faithfulness"),
    ],
)
def test_controls_that_methods_do_not_beat(table: pd.DataFrame, axis: str) -> None:
    beside_sobel = of(table, study(**{axis: {}}))
    card = beside_sobel.one("control-not-beaten")
    assert card.explainers == ("weak",) and card.axis == axis
    assert "Edge filter" in card.title and re.search(
        r"weak \(0\.\d+ \[0\.\d+, 0\.\d+\]\)", card.seen
    )
    others = table[table["explainer"] != "weak"]
    assert not of(others, study(**{axis: {}})).about("control-not-beaten")


def test_references_that_make_most_of_the_error_are_told() -> None:
    card = of(*of_references(0.1, 8)).one("few-references")
    share = re.search(r"(\d+) ?%", card.seen)
    assert share is not None and int(share[1]) > 33
    assert re.search(r"\b8\b", card.seen)
    assert not of(*of_references(0.001, 8)).about("few-references")


def test_few_references_are_told_whatever_their_share_of_the_error() -> None:
    card = of(*of_references(0.001, 4)).one("few-references")
    assert re.search(r"\b4\b", card.seen) and "%" not in card.seen
    assert card.change["references"] > 8


def test_identical_scores_are_told_of_methods() -> None:
    table = held({"a": 0.5, "b": 0.5, "sobel": 0.5})
    same = table["explainer"].isin(["a", "sobel"]) & (table["measure"] == "fass")
    table.loc[same, "value"] = 1.0
    card = of(table).one("identical-scores")
    assert card.explainers == ("a",) and "1.00" in card.seen and str(N) in card.seen
    other = same & (table["condition"] == "jpeg") & (table["sample"] == "img/0003.jpg")
    table.loc[other, "value"] = 0.9
    assert not of(table).about("identical-scores")


def test_a_test_without_any_score_says_so() -> None:
    rows = faithful({"a": 0.2, "b": 0.3})
    rows[["value", "status"]] = [np.nan, "undefined"]
    assert of(rows, study(faithfulness={})).one("no-score").explainers == ("a", "b")


def test_a_smaller_budget_than_the_default_is_told() -> None:
    budgets = {"lime": {"name": "lime", "samples": 8}, "mine": {"name": "lime", "samples": 10**6}}
    card = of(held({"lime": 0.5, "mine": 0.4}), study(budgets)).one("small-budget")
    assert card.explainers == ("lime",) and "8 samples" in card.seen
    (advised,) = card.change["explainers"]
    assert advised["lime"]["samples"] > 8


@pytest.mark.parametrize(("n", "share"), [(7, None), (14, "19 %"), (58, "5 %"), (100, None)])
def test_few_samples_may_miss_a_rare_kind(n: int, share: str | None) -> None:
    table, nobody = held({"a": 0.5, "b": 0.4}, n=n), pd.DataFrame(columns=["dataset", "model"])
    given = findings(
        axis_results(table, nobody, (), manifest_of()),
        nobody.assign(sample="", error=""),
        manifest_of(),
    )
    rare = [finding.seen for finding in given if finding.rule == "rare-failures-unseen"]
    assert [share in seen for seen in rare] == ([True] if share else [])


def test_ignored_rules_are_not_told() -> None:
    table = held({"a": 0.5, "b": 0.4}, n=12)
    everything = of(table)
    without = of(table, manifest_of(ignore=["few-samples"]))
    assert everything.about("few-samples")
    assert without == [finding for finding in everything if finding.rule != "few-samples"]


def test_rankings_that_disagree() -> None:
    road = {"a": 0.05, "b": 0.15, "c": 0.25, "d": 0.35}
    given = of(faithful(road, ("noisy_linear", "blur"), flip="blur"), study(faithfulness={}))
    card = given.one("orders-disagree")
    assert re.search("blur MoRF.*blur LeRF.*−1.00", card.seen)
    assert "noisy linear MoRF" not in card.seen
    assert re.search("noisy linear LeRF.*blur LeRF", given.one("imputers-disagree").seen)
    assert not of(faithful(road, ("noisy_linear", "blur")), study(faithfulness={}))


def test_leaks_are_told() -> None:
    run = faithful({"a": 0.2, "b": 0.3}, ("noisy_linear", "zero"))
    assert not of(run, study(faithfulness={})), "no network learned from the masks"
    again = rows_of([("a", "accuracy", "zero morf", 0.5, np.arange(N) % 2)], "retraining")
    assert "zero" in of(pd.concat([run, again]), study(faithfulness={})).one("possible-leak").title
    shown = pd.concat([run, leak(40, 0.99)])
    card = of(shown, study(faithfulness={})).one("leaking-imputer")
    assert "zero" in card.title and card.severity == "problem" and "noisy linear" in card.do
    assert not of(pd.concat([run, leak(40, 0.6)]), study(faithfulness={})), (
        "measured, and hidden well enough"
    )


def test_other_axes_warn_of_maps_without_a_score() -> None:
    rows = faithful({"a": 0.2, "b": 0.3})
    rows.loc[
        (rows["explainer"] == "b") & rows["sample"].isin(["s00", "s01"]), ["value", "status"]
    ] = [
        np.nan,
        "undefined",
    ]
    card = of(rows, study(faithfulness={})).one("undefined-maps")
    (item,) = card.items
    assert item.startswith("b: 2") and card.seen.startswith("2 ")


def test_dominated_on_both_axes() -> None:
    both = pd.concat([held({"a": 0.7, "b": 0.3}), faithful({"a": 0.4, "b": 0.1})])
    manifest = study(stability={}, faithfulness={})
    card = of(both, manifest).one("dominated-method")
    assert card.explainers == ("b",) and "a " in card.title
    traded = pd.concat([held({"a": 0.7, "b": 0.3}), faithful({"a": 0.1, "b": 0.4})])
    assert not of(traded, manifest).about("dominated-method")


def test_order_and_place() -> None:
    table = pd.concat(
        [
            held({"m0": 0.0, "m1": 0.0, "lime": 0.3, "sobel": 0.9}, n=20, stochastic=("lime",)),
            faithful({"lime": -0.1, "m0": 0.0, "m1": 0.3}, ("zero",)),
            certified({"lime": 0.2}),
            symmetric(0.6, 0.95),
        ]
    )
    manifest = study({"m": {}}, stability={}, faithfulness={}, certificate={}, symmetry=D4)
    every = of(table, manifest)
    severities = [a.severity for a in every]
    assert severities == sorted(severities, key=["problem", "warning", "note"].index)
    assert len(every) > 5
    assert {(a.dataset, a.model) for a in every} == {("photos", "net")}
    shuffled = of(table.sample(frac=1, random_state=0), manifest)
    assert [a.rule for a in shuffled] == [a.rule for a in every], "the order of rows plays no part"

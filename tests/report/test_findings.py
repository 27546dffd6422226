"""Findings: each rule speaks where its interval supports it, and is silent where it does not."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes import Finding
from heatproof.report.findings import findings
from support import synthetic
from support.synthetic import rows_of

SHORT = (("rotation", 15.0), ("jpeg", 40.0))
JPEG = (("jpeg", 40.0),)
N = 40


def study(explainers: dict[str, Any] | None = None, **evaluations: Any) -> dict[str, Any]:
    settings = {name: {"name": name, **given} for name, given in evaluations.items()}
    return {"study": {"explainers": explainers or {}, "evaluations": settings}}


def of(
    table: pd.DataFrame, manifest: dict[str, Any] | None = None, most: int = 99
) -> dict[str, Finding]:
    """All findings by their title; a title that comes twice is a mistake."""
    samples = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    given = findings(table, samples, manifest or {}, most)
    assert len({(a.title, a.axis, a.explainers) for a in given}) == len(given)
    assert all(a.seen and a.means and a.do and a.title for a in given)
    return {a.title: a for a in given}


def held(quality: dict[str, float], n: int = N, **options: Any) -> pd.DataFrame:
    settings = {"conditions": SHORT, "flip": 0.0, "undefined": 0.0, "stochastic": (), **options}
    return synthetic.table(quality, samples=n, model="net", **settings)


def noisy(centre: float, width: float, seed: int = 0, n: int = N) -> np.ndarray:
    draws = np.random.default_rng(seed).normal(0, width, n)
    return centre + draws - draws.mean()


def test_nothing_is_said_of_nothing() -> None:
    samples = synthetic.samples(0, unreadable=0)
    assert findings(synthetic.table().iloc[:0], samples, {}) == []


def test_a_good_run_gives_no_cause_to_act() -> None:
    table = held({"a": 0.9, "b": 0.7, "random": 0.0})
    given = of(table, study(stability={}, faithfulness={}))
    assert not [a for a in given.values() if a.severity != "note"]


def test_scores_without_an_interval_are_one_finding_whatever_the_number_of_axes() -> None:
    few = held({"a": 0.5, "b": 0.4}, n=2)
    manifest = {
        "study": {"evaluations": {name: {"name": "stability"} for name in ("first", "second")}}
    }
    alone = of(few.assign(evaluation="first"), manifest)["Scores without an interval (first)"]
    assert alone.axis == "stability" and alone.explainers == ("a", "b") and len(alone.items) == 4
    assert alone.seen.startswith("4 scores have none: from 2 samples no interval")
    both = of(pd.concat([few.assign(evaluation=name) for name in ("first", "second")]), manifest)
    (found,) = [f for title, f in both.items() if "without an interval" in title]
    assert (
        found.axis == ""
        and len(found.items) == 8
        and found.items[0].startswith("Stability: first, a, ")
    )
    assert found.seen.startswith(
        "8 scores have none (Stability: first 4 and Stability: second 4): from 2 samples"
    )
    assert next(iter(both)) == "Few samples", "the reason comes first"


def test_an_untrained_head_and_few_samples() -> None:
    table = held({"a": 0.5, "b": 0.5}, n=12)
    manifest = {"study": {"models": {"net": {"untrained_head": "the bias is zero"}}}}
    given = of(table, manifest)
    assert given["The model looks untrained"].severity == "act"
    assert given["Few samples"].seen.startswith("12 samples were tested. ")
    assert ", first by FASS, differ by " in given["Few samples"].seen
    assert not {"The model looks untrained", "Few samples"} & set(of(held({"a": 0.5, "b": 0.1})))


def symmetric(
    value: float, model: float, measure: str = "equivariance", repaired: float | None = None
) -> pd.DataFrame:
    entries: list[synthetic.Entry] = [
        ("m", measure, "dihedral", 8.0, noisy(value, 0.001)),
        ("m", f"{measure}_chance", "dihedral", 8.0, np.zeros(N)),
        ("m", "model_invariance", "dihedral", 8.0, np.minimum(noisy(model, 1e-5), 1)),
    ]
    if repaired is not None:
        entries += [("m", measure, "symmetrised", 4.0, np.full(N, repaired))]
    rows = rows_of(entries, "symmetry")
    rows["low"] = rows["high"] = rows["value"]
    return rows


D4 = {"group": {"name": "dihedral", "n": 4}, "elements": 8}


def test_guidelines_one_to_four_where_the_model_is_invariant() -> None:
    title = "This method breaks a symmetry that the model has"
    card = of(symmetric(0.6, 0.9999, repaired=0.995), study({"m": {"name": "lime"}}, symmetry=D4))[
        title
    ]
    assert card.severity == "act" and "baseline that the group leaves alone" in card.do
    assert (
        "4 elements give 0.995" in card.do
        and 'heatproof.symmetrise(explainer, {"dihedral": {"n": 4}})' in card.do
    )
    example = of(
        symmetric(0.6, 0.9999, "invariance"),
        study({"m": {"name": "simplex", "layer": "f"}}, symmetry=D4),
    )
    assert "invariant layer" in example[title].do and "guidelines 2 and 4" in example[title].means
    concept = of(
        symmetric(0.6, 0.9999, "invariance"),
        study({"m": {"name": "cav", "layer": "f"}}, symmetry=D4),
    )
    assert "guidelines 3 and 4" in concept[title].means
    assert not of(symmetric(0.9999, 0.9999), study(symmetry=D4))


def test_guideline_five_and_no_word_where_the_model_is_open() -> None:
    given = of(symmetric(0.6, 0.95), study(symmetry=D4))
    (card,) = given.values()
    assert card.title == "The model itself does not keep the symmetry" and card.explainers == ("m",)
    assert "Do not symmetrise" in card.do and "no linear relation" in card.means
    unsure = symmetric(0.6, 0.95)
    own = unsure["measure"] == "model_invariance"
    unsure.loc[own, "value"] = np.where(np.arange(N) < 1, 0.97, 1.0)  # the interval holds 0.999
    assert not of(unsure, study(symmetry=D4))


def certified(rate: dict[str, float], gap: float = 0.25) -> pd.DataFrame:
    entries: list[synthetic.Entry] = []
    for e, (name, value) in enumerate(rate.items()):
        for r in (1.0, 5.0):
            values = noisy(value - 0.02 * r, 0.05, e)
            entries += [
                (name, "rate", "radius", r, values),
                (name, "certified", "radius", r, values - gap),
            ]
    return rows_of(entries, "certificate")


def test_certificates_tell_a_low_rate_from_a_loose_bound() -> None:
    manifest = study(certificate={"epsilon": 0.2, "fraction": 0.25, "mode": "estimate"})
    given = of(certified({"good": 0.9, "weak": 0.3, "middle": 0.7, "random": 0.2}), manifest)
    card = given["A few more features change the prediction"]
    assert (
        (card.severity, card.explainers) == ("act", ("weak",))
        and "weak 0.28" in card.seen
        and "r = 1" in card.seen
    )
    assert "Use good, which keeps 0.80" in card.do
    loose = given["Less than half is guaranteed"]
    assert loose.explainers == ("middle",) and "epsilon: 0.1 in place of 0.2" in loose.do
    random = "Not shown to keep the prediction better than random features"
    assert random not in given
    assert of(certified({"a": 0.9, "b": 0.7, "random": 0.7}), manifest)[random].explainers == ("b",)
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
    assert "Stay at λ = 0.5 or more" in given["Smoothing costs accuracy"].do
    assert (
        "40 of 40 samples, τ = 1 (a hard radius) for 0"
        in given["Soft guarantees reach further than hard ones"].seen
    )


def faithful(
    road: dict[str, float], imputers: tuple[str, ...] = ("noisy_linear",), flip: str = ""
) -> pd.DataFrame:
    """Curves that fall and stay by the road of a method; with the imputer `flip` the orders rank methods backwards."""
    entries: list[synthetic.Entry] = []
    for imputer in imputers:
        for e, (name, value) in enumerate(road.items()):
            turn = -1 if imputer == flip else 1
            entries += [(name, "road", imputer, 0.0, noisy(value, 0.05, e))]
            entries += [(name, "probability", f"{imputer} morf", 0.5, noisy(0.5 - value, 0.01, e))]
            entries += [
                (
                    name,
                    "probability",
                    f"{imputer} lerf",
                    0.5,
                    noisy(0.5 + turn * value, 0.01, e + 9),
                )
            ]
    return rows_of(entries)


def test_removal_no_better_than_random() -> None:
    given = of(faithful({"good": 0.2, "flat": 0.0, "bad": -0.1}), study(faithfulness={}))
    assert given["Worse than removing pixels at random"].explainers == ("bad",)
    assert "absolute: true" in given["Worse than removing pixels at random"].do
    assert given["Not shown to beat a random order of pixels"].explainers == ("flat",)
    assert not of(faithful({"good": 0.2, "better": 0.3}), study(faithfulness={}))
    sobel = of(faithful({"good": 0.2, "weak": 0.05, "sobel": 0.15}), study(faithfulness={}))
    assert sobel["Sobel is more faithful"].explainers == ("weak",)


def test_rankings_that_disagree() -> None:
    road = {"a": 0.05, "b": 0.15, "c": 0.25, "d": 0.35}
    given = of(faithful(road, ("noisy_linear", "blur"), flip="blur"), study(faithfulness={}))
    card = given["MoRF and LeRF rank the methods differently"]
    assert "blur MoRF and blur LeRF −1.00" in card.seen and "noisy linear MoRF" not in card.seen
    assert (
        "noisy linear LeRF and blur LeRF" in given["Two fillings rank the methods differently"].seen
    )
    assert not of(faithful(road, ("noisy_linear", "blur")), study(faithfulness={}))


def leak(right: int, pixels: float) -> pd.DataFrame:
    entries: list[synthetic.Entry] = [("a", "prior", "zero morf", 0.5, np.arange(N) % 2)]
    for probe in ("mask", "imputed", "both"):
        entries += [("a", f"{probe}_hit", "zero morf", 0.5, np.arange(N) < right)]
        entries += [("a", f"{probe}_log2", "zero morf", 0.5, np.full(N, -0.2))]
    return rows_of([*entries, ("a", "pixels", "zero morf", 0.5, np.full(N, pixels))], "leakage")


def test_leaks_are_told() -> None:
    run = faithful({"a": 0.2, "b": 0.3}, ("noisy_linear", "zero"))
    assert not of(run, study(faithfulness={})), "no network learned from the masks"
    again = rows_of([("a", "accuracy", "zero morf", 0.5, np.arange(N) % 2)], "retraining")
    assert "zero may leak the class" in of(pd.concat([run, again]), study(faithfulness={}))
    shown = pd.concat([run, leak(40, 0.99)])
    card = of(shown, study(faithfulness={}))["zero leaks the class"]
    assert card.severity == "act" and card.do == "Rank the methods by noisy linear."
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
    card = of(rows, study(faithfulness={}))["Maps without a score"]
    assert card.items == ("b: 2 × no reason given",) and card.seen.startswith(
        "2 explanations have no score"
    )


def test_dominated_on_both_axes() -> None:
    both = pd.concat([held({"a": 0.7, "b": 0.3}), faithful({"a": 0.4, "b": 0.1})])
    manifest = study(stability={}, faithfulness={})
    assert of(both, manifest)["a is better on both axes"].explainers == ("b",)
    traded = pd.concat([held({"a": 0.7, "b": 0.3}), faithful({"a": 0.1, "b": 0.4})])
    assert not [t for t in of(traded, manifest) if "better on both" in t]


def test_order_count_and_place() -> None:
    table = pd.concat(
        [
            held({"m0": 0.0, "m1": 0.0, "lime": 0.3, "sobel": 0.9}, n=20, stochastic=("lime",)),
            faithful({"lime": -0.1, "m0": 0.0, "m1": 0.3}, ("zero",)),
            certified({"lime": 0.2}),
            symmetric(0.6, 0.95),
        ]
    )
    manifest = study({"m": {}}, stability={}, faithfulness={}, certificate={}, symmetry=D4)
    every, few = of(table, manifest), of(table, manifest, most=5)
    severities = [a.severity for a in every.values()]
    assert severities == sorted(severities, key=["act", "mind", "note"].index) and len(every) > 7
    *kept, rest = few.values()
    assert len(kept) == 5 and rest.title == f"{len(every) - 5} more findings"
    assert all(any(a.title in item for item in rest.items) for a in every.values() if a not in kept)
    assert {(a.dataset, a.model) for a in every.values()} == {("photos", "net")}
    assert list(of(table.sample(frac=1, random_state=0), manifest)) == list(every), (
        "the order of rows plays no part"
    )

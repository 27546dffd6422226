"""Findings: each rule speaks where its interval supports it, and is silent where it does not."""

from __future__ import annotations

import re
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


class Found(dict[str, Finding]):
    """Findings by their title."""

    def about(self, *words: str) -> list[Finding]:
        """Those whose title has all these words."""
        return [f for title, f in self.items() if all(w in title.lower() for w in words)]

    def one(self, *words: str) -> Finding:
        (found,) = self.about(*words)
        return found


def of(table: pd.DataFrame, manifest: dict[str, Any] | None = None, most: int = 99) -> Found:
    """All findings; one that comes twice is a mistake."""
    samples = pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    given = findings(table, samples, manifest or {}, most)
    assert len({(a.title, a.axis, a.explainers) for a in given}) == len(given)
    assert all(a.seen and a.means and a.do and a.title for a in given)
    return Found({a.title: a for a in given})


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
    alone = of(few.assign(evaluation="first"), manifest).one("without an interval", "first")
    assert alone.axis == "stability" and alone.explainers == ("a", "b") and len(alone.items) == 4
    assert re.search(r"4 scores.*2 samples", alone.seen)
    both = of(pd.concat([few.assign(evaluation=name) for name in ("first", "second")]), manifest)
    found = both.one("without an interval")
    assert found.axis == "" and len(found.items) == 8
    assert all(word in found.items[0] for word in ("Stability", "first", "a"))
    assert re.search(r"8 scores.*first 4.*second 4.*2 samples", found.seen)
    assert next(iter(both.values())) == both.one("few samples"), "the reason comes first"


def test_an_untrained_head_and_few_samples() -> None:
    table = held({"a": 0.5, "b": 0.5}, n=12)
    manifest = {"study": {"models": {"net": {"untrained_head": "the bias is zero"}}}}
    given = of(table, manifest)
    assert given.one("untrained").severity == "act"
    assert "12 samples" in given.one("few samples").seen and "FASS" in given.one("few samples").seen
    good = of(held({"a": 0.5, "b": 0.1}))
    assert not good.about("untrained") and not good.about("few samples")


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
    lime = study({"m": {"name": "lime"}}, symmetry=D4)
    card = of(symmetric(0.6, 0.9999, repaired=0.995), lime).one("symmetry")
    assert card.severity == "act" and card.explainers == ("m",) and "baseline" in card.do
    assert re.search(r"4 elements.*0\.995", card.do)
    assert 'heatproof.symmetrise(explainer, {"dihedral": {"n": 4}})' in card.do
    simplex = study({"m": {"name": "simplex", "layer": "f"}}, symmetry=D4)
    example = of(symmetric(0.6, 0.9999, "invariance"), simplex).one("symmetry")
    assert "invariant layer" in example.do and re.search("guidelines.*2.*4", example.means)
    cav = study({"m": {"name": "cav", "layer": "f"}}, symmetry=D4)
    concept = of(symmetric(0.6, 0.9999, "invariance"), cav).one("symmetry")
    assert re.search("guidelines.*3.*4", concept.means)
    assert not of(symmetric(0.9999, 0.9999), study(symmetry=D4))


def test_guideline_five_and_no_word_where_the_model_is_open() -> None:
    given = of(symmetric(0.6, 0.95), study(symmetry=D4))
    (card,) = given.values()
    assert "model" in card.title and "symmetry" in card.title and card.explainers == ("m",)
    assert re.search("(?i)not symmetrise", card.do) and "linear" in card.means
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
    card = given.one("features change the prediction")
    assert (
        (card.severity, card.explainers) == ("act", ("weak",))
        and "weak 0.28" in card.seen
        and "r = 1" in card.seen
    )
    assert re.search(r"good.*0\.80", card.do)
    loose = given.one("guaranteed")
    assert loose.explainers == ("middle",) and re.search(r"epsilon: 0\.1.*0\.2", loose.do)
    assert not given.about("random")
    beside = of(certified({"a": 0.9, "b": 0.7, "random": 0.7}), manifest)
    assert beside.one("random").explainers == ("b",)
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
    assert "λ = 0.5" in given.one("smoothing", "accuracy").do
    further = given.one("soft", "hard").seen
    assert "40 of 40" in further and re.search(r"τ = 1.* 0\b", further)


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
    worse, unproven = given.one("worse", "random"), given.one("not", "random")
    assert worse.explainers == ("bad",) and "absolute: true" in worse.do
    assert unproven.explainers == ("flat",)
    assert not of(faithful({"good": 0.2, "better": 0.3}), study(faithfulness={}))
    sobel = of(faithful({"good": 0.2, "weak": 0.05, "sobel": 0.15}), study(faithfulness={}))
    assert sobel.one("sobel").explainers == ("weak",)


def test_rankings_that_disagree() -> None:
    road = {"a": 0.05, "b": 0.15, "c": 0.25, "d": 0.35}
    given = of(faithful(road, ("noisy_linear", "blur"), flip="blur"), study(faithfulness={}))
    card = given.one("morf", "lerf")
    assert re.search("blur MoRF.*blur LeRF.*−1.00", card.seen)
    assert "noisy linear MoRF" not in card.seen
    assert re.search("noisy linear LeRF.*blur LeRF", given.one("fillings").seen)
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
    assert of(pd.concat([run, again]), study(faithfulness={})).about("zero", "leak")
    shown = pd.concat([run, leak(40, 0.99)])
    card = of(shown, study(faithfulness={})).one("zero", "leak")
    assert card.severity == "act" and "noisy linear" in card.do
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
    card = of(rows, study(faithfulness={})).one("without a score")
    (item,) = card.items
    assert item.startswith("b: 2") and card.seen.startswith("2 ")


def test_dominated_on_both_axes() -> None:
    both = pd.concat([held({"a": 0.7, "b": 0.3}), faithful({"a": 0.4, "b": 0.1})])
    manifest = study(stability={}, faithfulness={})
    assert of(both, manifest).one("a ", "both axes").explainers == ("b",)
    traded = pd.concat([held({"a": 0.7, "b": 0.3}), faithful({"a": 0.1, "b": 0.4})])
    assert not of(traded, manifest).about("both axes")


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
    assert len(kept) == 5 and rest.title.startswith(f"{len(every) - 5} ")
    assert all(any(a.title in item for item in rest.items) for a in every.values() if a not in kept)
    assert {(a.dataset, a.model) for a in every.values()} == {("photos", "net")}
    assert list(of(table.sample(frac=1, random_state=0), manifest)) == list(every), (
        "the order of rows plays no part"
    )

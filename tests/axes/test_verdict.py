"""What may be said of methods, and when it must not be said."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from heatproof.evaluation import Measure
from heatproof.results.verdict import Label, Verdict, sentences, verdict_of
from support import synthetic

HELD = "is the most stable method"
Scores = dict[str, Any]


def verdict_on(scores: Scores, chance: float | None = 0.2) -> Verdict:
    """The verdict on per-sample FASS values under one condition."""
    entries = [
        (
            name,
            "fass",
            "jpeg",
            40.0,
            values,
            *([] if chance is None else [np.full(len(values), chance)]),
        )
        for name, values in scores.items()
    ]
    result = synthetic.judged_of(synthetic.rows_of(entries, "stability"))
    return result.verdict(result.headlines[0])


def noise(n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 0.02, n)


def around(mean: float, n: int = 30, seed: int = 0) -> np.ndarray:
    return mean + noise(n, seed)


def words(verdict: Verdict) -> str:
    return " ".join(sentences(verdict, HELD)).lower()


def test_a_clear_winner_is_best_and_is_said_to_be() -> None:
    verdict = verdict_on({"a": around(0.7), "b": around(0.5, seed=1), "c": around(0.4, seed=2)})
    assert verdict.best == "a"
    assert verdict.labels["b"] == Label.NONE
    assert words(verdict).startswith(f"a {HELD}")


def test_two_methods_that_are_not_told_apart_are_undecided() -> None:
    verdict = verdict_on({"a": around(0.7), "b": around(0.7, seed=1), "c": around(0.4, seed=2)})
    assert verdict.best is None and set(verdict.undecided) == {"a", "b"}
    assert "undecided between" in words(verdict) and HELD not in words(verdict)


def test_a_method_at_chance_is_never_the_best() -> None:
    """It beats a method that is worse than chance, and is still as good as a random map."""
    verdict = verdict_on({"a": around(0.2), "b": around(0.1, seed=1)})
    assert verdict.beats("a", "b")
    assert verdict.best is None and set(verdict.as_random) == {"a", "b"}
    assert "no method is significantly above chance" in words(verdict)


@pytest.mark.parametrize(
    "scores",
    [
        {"a": around(0.6), "b": around(0.6)},
        {"a": np.full(30, 0.5), "b": np.full(30, 0.5), "c": np.full(30, 0.5)},
        {"a": around(0.9, 2), "b": around(0.3, 2, 1)},
        {"a": around(0.9, 7), "b": around(0.3, 7, 1)},
        {"a": around(0.9, 1), "b": around(0.3, 1, 1)},
        {"a": np.full(12, np.nan), "b": np.full(12, np.nan)},
        {"sobel": around(0.9), "random": around(0.2, seed=1)},
        {"a": around(0.9)},
    ],
    ids=["equal", "constant", "n=2", "n=7", "n=1", "undefined", "only controls", "one method"],
)
def test_nobody_is_called_the_best_where_nothing_is_decided(scores: Scores) -> None:
    verdict = verdict_on(scores)
    assert verdict.best is None
    assert HELD not in words(verdict)


@pytest.mark.parametrize("n", [1, 2, 7])
def test_few_samples_decide_nothing(n: int) -> None:
    verdict = verdict_on({"a": around(0.9, n), "b": around(0.3, n, 1), "sobel": around(0.1, n, 2)})
    assert not verdict.beaten and not verdict.can_decide
    assert set(verdict.above_chance.values()) == {None}
    assert "too few" in words(verdict) and str(n) in words(verdict)


def test_where_few_samples_cannot_tell_it_is_said_that_no_method_is_shown_to_be_above_chance() -> (
    None
):
    """Twelve samples decide between methods, and only a bet may show that one is above chance."""
    low = verdict_on({"a": around(0.25, 12), "b": around(0.24, 12, 1)})
    assert set(low.above_chance.values()) == {None}
    assert "no method is shown to be above chance (12 samples" in words(low)
    mixed = verdict_on({"a": around(0.9, 12), "b": around(0.24, 12, 1)})
    assert mixed.above_chance == {"a": True, "b": None}
    assert "not shown to be above chance: b (12 samples" in words(mixed)
    enough = verdict_on({"a": around(0.25), "b": around(0.24, seed=1)})
    assert "shown to be above chance" not in words(enough)


def test_a_method_that_beats_the_random_control_needs_no_other_proof() -> None:
    scores = {"a": around(0.25, 12), "b": around(0.2, 12, 1), "random": around(0.2, 12, 2)}
    verdict = verdict_on(scores)
    assert verdict.beats("a", "random") and verdict.above_chance["a"] is None
    assert verdict.not_shown_above_chance == ("b",)


def test_only_controls_are_no_methods() -> None:
    text = words(verdict_on({"sobel": around(0.9), "random": around(0.2, seed=1)}))
    assert "only controls" in text


def test_a_control_that_no_method_beats_is_named_and_the_random_one_is_not() -> None:
    scores = {"a": around(0.6), "b": around(0.5, seed=1), "sobel": around(0.8, seed=2)}
    verdict = verdict_on({**scores, "random": around(0.2, seed=3)})
    assert verdict.not_above("sobel") == ("a", "b")
    assert "no method significantly beats the control sobel" in words(verdict)
    assert "control random" not in words(verdict)
    beaten = verdict_on({"a": around(0.6), "b": around(0.5, seed=1), "sobel": around(0.3, seed=2)})
    assert "control" not in words(beaten)


def test_without_a_chance_level_nothing_is_said_of_chance() -> None:
    verdict = verdict_on({"a": around(0.7), "b": around(0.5, seed=1)}, chance=None)
    assert set(verdict.above_chance.values()) == {None} and not verdict.as_random
    assert "chance" not in words(verdict)


def test_where_less_is_better_the_lower_score_wins() -> None:
    verdict = verdict_on({"a": around(0.7), "b": around(0.5, seed=1)}, chance=None)
    lower = Measure("fass", "FASS", "", "lower", "headline")
    ranking = synthetic.judged_of(
        synthetic.rows_of(
            [
                ("a", "fass", "jpeg", 40.0, around(0.7)),
                ("b", "fass", "jpeg", 40.0, around(0.5, seed=1)),
            ],
            "stability",
        )
    )
    turned = verdict_of(ranking.ranking, ranking.tests, lower)
    assert verdict.best == "a" and turned.best == "b"


def test_many_methods_are_counted_and_not_all_named() -> None:
    scores = {f"m{i}": around(0.6, seed=i) for i in range(12)}
    (first, *_) = sentences(verdict_on(scores), HELD)
    assert "8 more" in first

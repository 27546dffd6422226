"""What the tests of one measure allow us to say of its methods: the only place where this is decided.

The first sentence of a section, the marks on a chart, the sheet, the terminal and the findings read a `Verdict`; none of
them looks at the order of the scores. There are two kinds of decision, each corrected for how often it is made here:

* A method beats another method, or a control: the paired tests of `statistics.paired_tests`, one family (max-T).
* A method is above chance: the one-sided lower bound of its score, at 5 % divided by the number of methods.

Nothing is decided from fewer than `statistics.FEWEST` samples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import pandas as pd

from heatproof.evaluation import Measure
from heatproof.statistics.few import smallest_p
from heatproof.statistics.intervals import FEWEST
from heatproof.text import MOST_DIGITS, ahead_of, listing, number, records, some, with_interval

RANDOM = "random"
"""The control that defines 0. It is at chance by definition, so it is never called as random."""
LISTED = 4
NO_METHOD_SCORED = "No method has a score."


class Label(StrEnum):
    """What the tests say of one explainer; NONE: it is neither the best nor as random."""

    BEST = "best"  # significantly better than every other method
    UNDECIDED = "undecided"  # no method is significantly better, but it does not beat all of them
    AS_RANDOM = "as random"  # not significantly above chance
    NONE = ""


@dataclass(frozen=True, eq=False)
class Verdict:
    """What is decided by one measure.

    `methods` are those with a score, best first, and `controls` likewise; `scores` has them in words. `above_chance` is
    None where it cannot be decided, or where the measure has no chance level. `beaten` has the pairs (winner, loser) of
    significant differences, `tests` all paired tests. `samples` counts what is independent: the samples, or the groups
    that they form (`grouped`). `has_chance` says whether the measure has a chance level here.
    """

    measure: Measure
    methods: tuple[str, ...]
    controls: tuple[str, ...]
    scores: dict[str, str]
    above_chance: dict[str, bool | None]
    beaten: frozenset[tuple[str, str]]
    samples: int
    random: str | None
    tests: pd.DataFrame
    grouped: bool = False
    has_chance: bool = False

    def beats(self, a: str, b: str) -> bool:
        """Whether a is significantly better than b."""
        return (a, b) in self.beaten

    @property
    def can_decide(self) -> bool:
        """Whether there are enough samples to decide anything."""
        return self.samples >= FEWEST

    @property
    def unit(self) -> str:
        """What is independent: samples, or the groups that they form."""
        return "group" if self.grouped else "sample"

    @property
    def labels(self) -> dict[str, Label]:
        """The label of every explainer."""
        return {name: self._label(name) for name in (*self.methods, *self.controls)}

    def _label(self, name: str) -> Label:
        """Return the label of one explainer: best beats every rival, undecided is beaten by none."""
        # Being ahead of others is no merit without being above chance.
        if self.above_chance.get(name) is False and name != self.random:
            return Label.AS_RANDOM
        rivals = [method for method in self.methods if method != name]
        if name in self.controls or not rivals or not self.measure.sign:
            return Label.NONE
        if all(self.beats(name, rival) for rival in rivals):
            return Label.BEST
        if not any(self.beats(rival, name) for rival in rivals):
            return Label.UNDECIDED
        return Label.NONE

    @property
    def best(self) -> str | None:
        """The method that beats every other one and is not as random; None where there is none."""
        return next((name for name in self.methods if self._label(name) == Label.BEST), None)

    @property
    def undecided(self) -> tuple[str, ...]:
        """The methods that no other one beats, where none beats all others."""
        return self._labelled(Label.UNDECIDED)

    @property
    def as_random(self) -> tuple[str, ...]:
        """The methods that are not significantly above chance."""
        return self._labelled(Label.AS_RANDOM)

    @property
    def not_shown_above_chance(self) -> tuple[str, ...]:
        """The methods of which so few samples cannot tell whether they are above chance, nor whether they beat `random`."""
        if not (self.has_chance and self.can_decide and self.measure.sign):
            return ()
        return tuple(
            name
            for name in self.methods
            if self.above_chance[name] is None
            and not (self.random is not None and self.beats(name, self.random))
        )

    def _labelled(self, label: Label) -> tuple[str, ...]:
        return tuple(name for name in self.methods if self._label(name) == label)

    @property
    def unbeaten_controls(self) -> tuple[str, ...]:
        """The controls that no method significantly beats although they score above chance; `random` defines 0."""
        if not (self.can_decide and self.measure.sign and self.methods):
            return ()
        return tuple(
            control
            for control in self.controls
            if control != self.random
            and self.above_chance.get(control) is not False
            and len(self.not_above(control)) == len(self.methods)
        )

    def not_above(self, control: str) -> tuple[str, ...]:
        """The methods that do not significantly beat a control."""
        return tuple(name for name in self.methods if not self.beats(name, control))


def verdict_of(
    ranking: pd.DataFrame,
    tests: pd.DataFrame,
    measure: Measure,
    random: str | None = None,
    groups: int = 0,
    has_chance: bool = False,
) -> Verdict:
    """Return the verdict by one measure from its ranking and its paired tests.

    `random` is the name of the control that defines 0, `groups` how many groups the samples form, if any.
    """
    scored = records(ranking[ranking["score"].notna()])
    return Verdict(
        measure=measure,
        methods=tuple(row.explainer for row in scored if not row.control),
        controls=tuple(row.explainer for row in scored if row.control),
        scores={row.explainer: _score_text(row) for row in scored},
        above_chance={
            row.explainer: None if pd.isna(row.above_chance) else bool(row.above_chance)
            for row in scored
        },
        beaten=significant_pairs(tests, -1 if measure.better == "lower" else 1),
        samples=groups or max((int(row.samples) for row in scored), default=0),
        random=random,
        tests=tests,
        grouped=groups > 0,
        has_chance=has_chance,
    )


def best_methods(scores: pd.DataFrame, tests: pd.DataFrame, sign: int = 1) -> set[str]:
    """Return the best method and those that no paired test tells from it; these are bold in tables.

    `scores` has explainer, control and score, `tests` are those of `statistics.paired_tests` on the same scores; with a
    `sign` of -1 lower is better. A control is never among the best, nor is a method that has no other beside it.

    >>> scores = pd.DataFrame({"explainer": ["a", "b", "sobel"], "control": [False, False, True], "score": [0.5, 0.4, 0.9]})
    >>> tests = pd.DataFrame([{"a": "b", "b": "a", "difference": -0.1, "significant": True}])
    >>> sorted(best_methods(scores, tests)), sorted(best_methods(scores, tests.assign(significant=False)))
    (['a'], ['a', 'b'])
    """
    methods = scores[~scores["control"].astype(bool) & scores["score"].notna()]
    if len(methods) < 2:
        return set()
    best = methods["explainer"].iloc[int((sign * methods["score"]).to_numpy().argmax())]
    beaten = significant_pairs(tests, sign)
    return {name for name in methods["explainer"] if (best, name) not in beaten}


def significant_pairs(tests: pd.DataFrame, sign: int = 1) -> frozenset[tuple[str, str]]:
    """Return the pairs (winner, loser) of significant differences that are large enough to show."""
    pairs = set()
    for test in records(tests[tests["significant"].astype(bool)]):
        if abs(test.difference) <= 10**-MOST_DIGITS:
            continue
        a_wins = sign * test.difference > 0
        pairs.add((test.a, test.b) if a_wins else (test.b, test.a))
    return frozenset(pairs)


def _score_text(row: Any) -> str:
    """The score of a row of the ranking with its interval, where it has one."""
    if pd.isna(row.low):
        return number(row.score)
    return with_interval(row.score, row.low, row.high, row.samples)


def sentences(verdict: Verdict, best: str, names: Mapping[str, str] | None = None) -> list[str]:
    """Return what the tests support, in words: who is best, who is as random, which controls nobody beats.

    `best` is what is said of a clear winner, such as "is the most stable method"; `names` has the display names.
    """
    if not verdict.methods:
        if verdict.controls:
            return ["Only controls were tested: there is no method to judge."]
        return [NO_METHOD_SCORED]
    shown = {name: (names or {}).get(name, name) for name in verdict.scores}
    return [
        _who_is_best(verdict, best, shown),
        *_by_how_much(verdict, shown),
        *_who_is_as_random(verdict, shown),
        *_who_is_not_shown_above_chance(verdict, shown),
        *_unbeaten_controls(verdict, shown),
    ]


def _who_is_best(verdict: Verdict, best: str, names: Mapping[str, str]) -> str:
    scores = verdict.scores
    if len(verdict.methods) == 1:
        (only,) = verdict.methods
        return f"{names[only]} scores {scores[only]}. There is no other method to compare it with."
    everybody = _with_scores(verdict.methods, verdict, names)
    if not verdict.can_decide:
        return f"{_too_few(verdict)} Scores: {everybody}."
    if verdict.best is not None:
        second = next(name for name in verdict.methods if name != verdict.best)
        result = f"{scores[verdict.best]}; next best {names[second]}, {scores[second]}"
        return f"{names[verdict.best]} {best} ({result})."
    if not verdict.measure.sign:
        return f"Scores: {everybody}."
    if set(verdict.as_random) == set(verdict.methods):
        return "No method is significantly above chance."
    if len(verdict.undecided) > 1:
        return f"Undecided between {_with_scores(verdict.undecided, verdict, names)}."
    return "No method is significantly better than all others."


def _by_how_much(verdict: Verdict, names: Mapping[str, str]) -> list[str]:
    """Say by how much the best method is ahead of the next one, on the samples that both have."""
    best = verdict.best
    if best is None:
        return []
    second = next(name for name in verdict.methods if name != best)
    tests = verdict.tests.replace({"a": dict(names), "b": dict(names)})
    return [ahead_of(tests, names[best], names[second])]


def _too_few(verdict: Verdict) -> str:
    """Say why nothing is decided from so few samples, or groups of them."""
    n = verdict.samples
    counted = f"{n} {verdict.unit}{'' if n == 1 else 's'}"
    p = f"the smallest p that they can give is {smallest_p(n):.2g}"
    return f"{counted}: too few to compare methods (at least {FEWEST} are needed; {p})."


def _who_is_as_random(verdict: Verdict, names: Mapping[str, str]) -> list[str]:
    as_random = verdict.as_random
    are_all = set(as_random) == set(verdict.methods)
    if not as_random or (are_all and len(as_random) > 1):
        return []
    return [f"Not significantly above chance: {_with_scores(as_random, verdict, names)}."]


def _who_is_not_shown_above_chance(verdict: Verdict, names: Mapping[str, str]) -> list[str]:
    """Say of which methods the samples are too few to tell whether they are above chance."""
    not_shown = verdict.not_shown_above_chance
    if not not_shown:
        return []
    few = f"{verdict.samples} {verdict.unit}s are too few to tell"
    if len(not_shown) == len(verdict.methods) > 1:
        return [f"No method is shown to be above chance ({few})."]
    listed = some((names[name] for name in not_shown), LISTED)
    return [f"Not shown to be above chance: {listed} ({few})."]


def _unbeaten_controls(verdict: Verdict, names: Mapping[str, str]) -> list[str]:
    """Return a sentence for every control that scores above chance and that some method does not beat."""
    if not verdict.can_decide or not verdict.measure.sign:
        return []
    unbeaten = []
    for control in verdict.controls:
        if control == verdict.random or verdict.above_chance.get(control) is False:
            continue
        losers = verdict.not_above(control)
        score = f"the control {names[control]} ({verdict.scores[control]})"
        if losers and len(losers) == len(verdict.methods):
            unbeaten.append(f"No method significantly beats {score}.")
        elif losers:
            verb = "does" if len(losers) == 1 else "do"
            who = some((names[name] for name in losers), LISTED)
            unbeaten.append(f"{who} {verb} not significantly beat {score}.")
    return unbeaten


def _with_scores(explainers: Sequence[str], verdict: Verdict, names: Mapping[str, str]) -> str:
    """Return explainers with their scores, the first few by name where there are many."""
    texts = [f"{names[name]} ({verdict.scores[name]})" for name in explainers]
    if len(texts) > LISTED + 1:
        texts = [*texts[:LISTED], f"{len(texts) - LISTED} more"]
    return listing(texts)

"""Paired differences between two runs on the samples that both scored, with simultaneous tests.

Scores are calibrated by the mean chance of each run on just these samples, (s − c) / (1 − c). Runs with other seeds or
references took chance from other samples; their scores are compared raw.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from heatproof.evaluation import FLIPPED as PAIR_FLIPPED
from heatproof.evaluation import Condition
from heatproof.report.comparison.aligned import aligned
from heatproof.report.comparison.match import Matched, SharedTest, shown
from heatproof.report.comparison.runs import ComparedRun, unreadable
from heatproof.results.arrays import ScoreArrays, groups_of
from heatproof.results.score_estimates import chance_estimates, raw_estimates
from heatproof.statistics.arrays import Array
from heatproof.statistics.estimates import Estimate, calibrated, chosen, sample_totals
from heatproof.statistics.sign_flips import simultaneous_tests
from heatproof.text import MOST_DIGITS, records

OVERALL = "overall"
"""The name of the mean over all conditions, and of the family of tests that the verdict is about."""
FAMILIES = (OVERALL, "conditions", "measures", "controls")
COLUMNS = ["dataset", "model", "evaluation", "kind", "explainer", "measure", "condition", "level"]
COLUMNS += ["family", "form", "a", "b", "explainer_a", "explainer_b", "mean_a", "mean_b"]
COLUMNS += ["difference", "low", "high", "p", "significant", "better", "identical"]
COLUMNS += ["samples", "joined", "flipped", "undefined", "absent", "unreadable"]
FATES = ("joined", "undefined", "flipped", "absent", "unreadable")
"""What becomes of a sample. Where no condition of it was joined, the last of these that occurs counts."""
JOINED, UNDEFINED, FLIPPED, ABSENT, UNREADABLE = range(5)


@dataclass(frozen=True, eq=False)
class JoinedScores:
    """The scores by one measure that an explainer has in two runs, under C conditions, on the samples that both scored.

    key             the columns of the table that say what is compared
    conditions      the conditions (C,)
    earlier, later  the mean scores (C,) of each run with their errors
    is_calibrated   (C,): whether the scores are calibrated
    fate            (C, N): whether each sample was joined, else why not
    identical       (C,): whether both runs have the same status and the same score of every sample
    """

    key: dict[str, Any]
    conditions: list[Condition]
    earlier: Estimate
    later: Estimate
    is_calibrated: NDArray[np.bool_]
    fate: NDArray[np.int8]
    identical: NDArray[np.bool_]

    @property
    def condition_names(self) -> list[str]:
        """The names of the conditions; levels of one condition have the same name."""
        return [name for name, _ in self.conditions]

    def under(self, c: int) -> JoinedScores:
        """Return the scores under one condition."""
        name, level = self.conditions[c]
        only = slice(c, c + 1)
        return replace(
            self,
            key={**self.key, "condition": name, "level": level},
            conditions=self.conditions[only],
            earlier=self.earlier[only],
            later=self.later[only],
            is_calibrated=self.is_calibrated[only],
            fate=self.fate[only],
            identical=self.identical[only],
        )

    def row(self) -> dict[str, Any]:
        """Return the row of the table, without tests; scores are means over conditions, each condition's levels first."""
        mean_a = float(self.earlier.nested(self.condition_names).value)
        mean_b = float(self.later.nested(self.condition_names).value)
        form = "calibrated" if self.is_calibrated.any() else "raw"
        if self.is_calibrated.any() and not self.is_calibrated.all():
            form = "mixed"
        is_joined = (self.fate == JOINED).any(0)
        fate = np.where(is_joined, JOINED, self.fate.max(0))
        counts = {name: int((fate == code).sum()) for code, name in enumerate(FATES)}
        return {
            **self.key,
            "form": form,
            "mean_a": mean_a,
            "mean_b": mean_b,
            "difference": mean_b - mean_a,
            "identical": bool(is_joined.any() and self.identical.all()),
            "samples": len(fate),
            **counts,
        }


def paired_differences(
    runs: Sequence[ComparedRun], matched: Matched, level: float = 0.95
) -> pd.DataFrame:
    """Return a row for each data set, model, explainer, evaluation, measure, condition and pair of runs.

    The columns are described at `Comparison`. All rows of a family that compare two runs by one data set and model are
    tested at once.
    """
    frames = []
    for datasets in matched.datasets:
        for models in matched.models:
            tests = [t for t in matched.tests if (t.datasets, t.models) == (datasets, models)]
            for i, j in combinations(range(len(runs)), 2):
                scores: list[JoinedScores] = []
                for test in tests:
                    scores += joined_scores(runs, test, (i, j), matched.calibrate)
                if scores:
                    frames.append(_tested(scores, level))
    if not frames:
        return pd.DataFrame(columns=COLUMNS)
    table = pd.concat(frames, ignore_index=True)
    return table.assign(better=_better_runs(table, matched))[COLUMNS]


def _better_runs(table: pd.DataFrame, matched: Matched) -> list[str]:
    """Return the better run of each row; empty unless it is significantly better, by more than is shown."""
    better = []
    for row in records(table):
        measure = matched.test(row.dataset, row.model, row.evaluation).measure(row.measure)
        gain = measure.sign * row.difference
        if not row.significant or abs(row.difference) <= 10**-MOST_DIGITS or gain == 0:
            better.append("")
        else:
            better.append(row.b if gain > 0 else row.a)
    return better


# ---- joining two runs ------------------------------------------------------------------------------------------------


def joined_scores(
    runs: Sequence[ComparedRun], test: SharedTest, pair: tuple[int, int], calibrate: bool
) -> Iterator[JoinedScores]:
    """Yield the scores of a test in two of the runs, for each explainer and measure, headlines first."""
    joined = _aligned_arrays(runs, test, pair)
    if joined is None:
        return
    earlier, later, is_lost = joined
    i, j = pair
    key = {
        "dataset": shown(test.datasets),
        "model": shown(test.models),
        "evaluation": shown(test.evaluations),
        "kind": test.axis.name,
        "a": runs[i].label,
        "b": runs[j].label,
    }
    measures = [name for name in earlier.measures if name in later.measures]
    for names in test.explainers:
        explainer = shown(names)
        if explainer not in earlier.explainers:
            continue
        of_explainer = earlier.select(explainers=[explainer], measures=measures)
        headlines = test.axis.headlines(of_explainer)
        is_control = explainer in earlier.controls
        for measure in headlines + [name for name in measures if name not in headlines]:
            about = {"explainer": explainer, "explainer_a": names[i], "explainer_b": names[j]}
            about |= {**key, "measure": measure}
            scores = _joined(about, earlier, later, is_lost, calibrate)
            if scores is not None:
                yield from _by_family(scores, measure in headlines, is_control)


def _by_family(scores: JoinedScores, is_headline: bool, is_control: bool) -> Iterator[JoinedScores]:
    """Yield the scores as they are tested: those of a headline over all conditions, then those of each condition."""
    if is_headline:
        family = "controls" if is_control else OVERALL
        about_all = {"condition": OVERALL, "level": 0.0, "family": family}
        yield replace(scores, key={**scores.key, **about_all})
        if len(scores.conditions) == 1:
            return  # the condition would repeat the mean
    family = "measures"
    if is_headline:
        family = "controls" if is_control else "conditions"
    in_family = replace(scores, key={**scores.key, "family": family})
    for c in range(len(scores.conditions)):
        yield in_family.under(c)


def _aligned_arrays(
    runs: Sequence[ComparedRun], test: SharedTest, pair: tuple[int, int]
) -> tuple[ScoreArrays, ScoreArrays, NDArray[np.bool_]] | None:
    """Return the arrays of two runs with the same explainers, conditions and samples; None if one has no scores.

    The third value says which samples could not be read in one of the runs.
    """
    results, sample_facts = [], []
    for i in pair:
        run, dataset, model = runs[i], test.datasets[i], test.models[i]
        results.append(run.result(dataset, model, test.evaluations[i]))
        sample_facts.append(run.samples_of(dataset, model))
    if any(result is None for result in results):
        return None
    first, second = (result.arrays for result in results if result is not None)

    explainers = []
    for names in test.explainers:
        name_in_first, name_in_second = names[pair[0]], names[pair[1]]
        if name_in_first in first.explainers and name_in_second in second.explainers:
            explainers.append(names)
    conditions = []
    for condition in first.conditions:
        is_comparable = test.conditions is None or condition in test.conditions
        if is_comparable and condition in second.conditions:
            conditions.append(condition)
    if not explainers or not conditions:
        return None

    in_any_run: set[str] = set()
    for facts in sample_facts:
        in_any_run.update(map(str, facts.index))
    samples = sorted(in_any_run)
    is_lost = np.zeros(len(samples), dtype=bool)
    for facts in sample_facts:
        is_lost |= np.isin(samples, facts.index[unreadable(facts)])
    group_facts = pd.concat(sample_facts).reset_index()
    both = []
    for arrays, i in zip((first, second), pair, strict=True):
        new_names = {names[i]: shown(names) for names in explainers}
        spread = aligned(arrays, new_names, conditions, samples)
        groups = groups_of(spread, group_facts.assign(dataset=spread.dataset))
        both.append(replace(spread, groups=groups))
    return both[0], both[1], is_lost


def _joined(
    key: dict[str, Any],
    earlier: ScoreArrays,
    later: ScoreArrays,
    is_lost: NDArray[np.bool_],
    calibrate: bool,
) -> JoinedScores | None:
    """Return the scores of an explainer by a measure under the conditions where both runs have rows; None without any."""
    measure = key["measure"]
    e = earlier.explainers.index(key["explainer"])
    has_rows = earlier.has_rows[measure][e] & later.has_rows[measure][e]
    if not has_rows.any():
        return None
    conditions = [c for c, has in zip(earlier.conditions, has_rows, strict=True) if has]
    runs = [earlier.select(conditions=conditions), later.select(conditions=conditions)]

    values = np.stack([arrays.values[measure][e] for arrays in runs])  # (2, C, N)
    both = np.asarray(np.isfinite(values).all(0))
    scores = [raw_estimates(arrays, measure, both, e) for arrays in runs]
    is_calibrated: NDArray[np.bool_] = np.zeros(len(conditions), dtype=bool)
    status = np.stack([arrays.status[e] for arrays in runs])
    is_absent = (status < 0).any(0)
    has_same_status = (status[0] == status[1]) | is_absent
    identical = (has_same_status & ((values[0] == values[1]) | ~both)).all(1)
    if calibrate and all(arrays.is_calibrated(measure) for arrays in runs):
        chances = [chance_estimates(arrays, measure, both, e) for arrays in runs]
        above_chance = [calibrated(*pair) for pair in zip(scores, chances, strict=True)]
        is_calibrated = np.asarray(np.isfinite([score.value for score in above_chance]).all(0))
        scores = [chosen(is_calibrated, *pair) for pair in zip(above_chance, scores, strict=True)]
        levels = np.stack([arrays.chance[measure][e] for arrays in runs])
        is_same_chance = (levels[0] == levels[1]) | np.isnan(levels).all(0) | ~both
        identical &= is_same_chance.all(1)

    fate = np.full(both.shape, UNDEFINED, dtype=np.int8)
    fate[(status == PAIR_FLIPPED).any(0)] = FLIPPED
    fate[is_absent] = ABSENT
    fate[:, is_lost] = UNREADABLE
    fate[both] = JOINED
    return JoinedScores(key, conditions, scores[0], scores[1], is_calibrated, fate, identical)


# ---- tests -----------------------------------------------------------------------------------------------------------


def _tested(scores: Sequence[JoinedScores], level: float) -> pd.DataFrame:
    """Return the rows of two runs with p-values and intervals, corrected for all differences of the same family."""
    frame = pd.DataFrame([row.row() for row in scores])
    frame[["low", "high", "p"]] = np.nan
    frame["significant"] = False
    for family in FAMILIES:
        is_tested = (frame["family"] == family) & (frame["joined"] > 0)
        in_family = np.flatnonzero(is_tested).tolist()
        if not in_family:
            continue
        totals, shares = _sample_totals([scores[i] for i in in_family])
        tests = simultaneous_tests(totals, shares, level)
        frame.loc[in_family, "low"] = tests.low
        frame.loc[in_family, "high"] = tests.high
        frame.loc[in_family, "p"] = tests.p
        frame.loc[in_family, "significant"] = tests.significant
    return frame


def _sample_totals(scores: Sequence[JoinedScores]) -> tuple[Array, Array]:
    """Return what each sample adds to K differences, and its share in them, (K, M) each; see `sample_totals`."""
    all_totals, all_shares = [], []
    for row in scores:
        difference = row.later.minus(row.earlier)
        totals, shares = sample_totals(difference, row.condition_names)
        all_totals.append(totals)
        all_shares.append(shares)
    # Random networks and references that are no samples come last. Not every test has them.
    longest = max(len(totals) for totals in all_totals)
    padded_totals = [np.pad(totals, (0, longest - len(totals))) for totals in all_totals]
    padded_shares = [np.pad(shares, (0, longest - len(shares))) for shares in all_shares]
    return np.stack(padded_totals), np.stack(padded_shares)

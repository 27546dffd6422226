"""Two runs joined on their samples: paired differences with intervals, tests, and who fell out.

A row compares the later run with the earlier one on the samples that both scored. Scores are calibrated by the mean
chance of each run on just these samples, (s − c) / (1 − c). Across seeds they are raw: another seed takes chance from
other reference samples, so the scores share neither draws nor references.
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
from heatproof.report.comparison.common import Common, Evaluated, Names, Side, shown
from heatproof.results.arrays import ScoreArrays, groups_of
from heatproof.results.score_estimates import chance_estimates, raw_estimates
from heatproof.runs.results import arrays_of_run
from heatproof.statistics.arrays import Array
from heatproof.statistics.estimates import Estimate, calibrated, sample_totals, stacked
from heatproof.statistics.sign_flips import simultaneous_tests

OVERALL = "overall"
FAMILIES = (OVERALL, "conditions", "measures", "controls")
COLUMNS = [
    "dataset",
    "model",
    "evaluation",
    "kind",
    "explainer",
    "measure",
    "condition",
    "level",
    "family",
    "form",
]
COLUMNS += ["a", "b", "explainer_a", "explainer_b", "mean_a", "mean_b", "difference", "low", "high"]
COLUMNS += ["p", "separated", "better"]
COLUMNS += ["samples", "joined", "flipped", "undefined", "absent", "unreadable"]
FATES = ("joined", "undefined", "flipped", "absent", "unreadable")
"""What becomes of a sample; where none of its conditions was joined, the last of these counts."""
JOINED, UNDEFINED, FLIPPED, ABSENT, UNREADABLE = range(5)


@dataclass(frozen=True)
class Row:
    """One comparison before the statistics: the scores of the two runs on the samples that both have, with errors.

    The scores are those of one condition, or of several with the `conditions` (C,) of these names, whose mean is
    compared. `fate` (N,) says of every sample whether it was joined, else why not.
    """

    key: dict[str, Any]
    conditions: list[str]
    earlier: Estimate
    later: Estimate
    fate: NDArray[np.int8]

    def means(self) -> tuple[float, float]:
        """The scores of the earlier and of the later run."""
        earlier, later = (side.nested(self.conditions) for side in (self.earlier, self.later))
        return float(earlier.value), float(later.value)


def paired_differences(sides: Sequence[Side], common: Common, level: float = 0.95) -> pd.DataFrame:
    """One row per data set, model, explainer, evaluation, measure, condition and pair of runs; see `compare`."""
    frames = []
    for dataset in common.datasets:
        for model in common.models:
            for i, j in combinations(range(len(sides)), 2):
                rows = list(_rows((sides[i], sides[j]), common, dataset, model, (i, j)))
                if rows:
                    frames.append(_tested(rows, level))
    if not frames:
        return pd.DataFrame(columns=COLUMNS)
    table = pd.concat(frames, ignore_index=True)
    measured = zip(table["evaluation"], table["measure"], strict=True)
    signs = np.array(
        [common.evaluation(evaluation).measure(measure).sign for evaluation, measure in measured]
    )
    gain = table["difference"].to_numpy() * signs
    table["better"] = np.where(
        ~table["separated"] | (signs == 0), "", np.where(gain > 0, table["b"], table["a"])
    )
    return table[COLUMNS]


def _rows(
    pair: tuple[Side, Side], common: Common, dataset: Names, model: Names, places: tuple[int, int]
) -> Iterator[Row]:
    data, nets = ([names[i] for i in places] for names in (dataset, model))
    read = [
        _known(side, *key) for side, key in zip(pair, zip(data, nets, strict=True), strict=True)
    ]
    universe = sorted({str(sample) for frame in read for sample in frame.index})
    lost = np.zeros(len(universe), dtype=bool)
    for frame in read:
        lost |= np.isin(universe, frame.index[frame["error"].fillna("").astype(str) != ""])
    for evaluated in common.evaluations:
        every_arrays = []
        for side, place, d, m in zip(pair, places, data, nets, strict=True):
            names = {explainer[place]: shown(explainer) for explainer in common.explainers}
            arrays = _cube(side, d, m, evaluated.names[place], names, universe)
            if arrays is None:
                break
            known = pd.concat(read).reset_index().assign(dataset=d)
            every_arrays.append(replace(arrays, groups=groups_of(arrays, known)))
        if len(every_arrays) == 2:
            key = {
                "dataset": shown(dataset),
                "model": shown(model),
                "evaluation": shown(evaluated.names),
            }
            key |= {"kind": evaluated.axis.name, "a": pair[0].label, "b": pair[1].label}
            for explainer in common.explainers:
                label, earlier, later = shown(explainer), explainer[places[0]], explainer[places[1]]
                if all(label in arrays.explainers for arrays in every_arrays):
                    about = key | {"explainer": label, "explainer_a": earlier, "explainer_b": later}
                    yield from _explainer_rows(
                        about, evaluated, (every_arrays[0], every_arrays[1]), lost, common.same_seed
                    )


def _known(side: Side, dataset: str, model: str) -> pd.DataFrame:
    here = (side.samples["dataset"] == dataset) & (side.samples["model"] == model)
    return side.samples[here].set_index("sample")


def _cube(
    side: Side,
    dataset: str,
    model: str,
    evaluation: str,
    names: dict[str, str],
    universe: Sequence[str],
) -> ScoreArrays | None:
    """The scores of one run for the explainers in common, under their common names, with all samples in order."""
    table = side.table
    here = (
        (table["dataset"] == dataset)
        & (table["model"] == model)
        & (table["evaluation"] == evaluation)
    )
    rows = table[here & table["explainer"].isin(list(names))]
    if rows.empty:
        return None
    references = side.references.assign(explainer=side.references["explainer"].map(names))
    (arrays,) = arrays_of_run(
        rows.assign(explainer=rows["explainer"].map(names)),
        side.manifest,
        references=references,
    )
    place = np.searchsorted(universe, arrays.samples)
    size = (*arrays.status.shape[:2], len(universe))
    status = np.full(size, -1, dtype=np.int8)
    status[..., place] = arrays.status

    def over_universe(scores: Array) -> Array:
        spread = np.full(size, np.nan)
        spread[..., place] = scores
        return spread

    values = {measure: over_universe(scores) for measure, scores in arrays.values.items()}
    chance = {measure: over_universe(scores) for measure, scores in arrays.chance.items()}
    return replace(arrays, samples=list(universe), values=values, chance=chance, status=status)


def _explainer_rows(
    key: dict[str, Any],
    evaluated: Evaluated,
    every_arrays: tuple[ScoreArrays, ScoreArrays],
    lost: NDArray[np.bool_],
    calibrated: bool,
) -> Iterator[Row]:
    a, b = every_arrays
    conditions = [c for c in a.conditions if c in b.conditions]
    if evaluated.conditions is not None:
        conditions = [c for c in conditions if c in evaluated.conditions]
    order = {name: i for i, name in enumerate(evaluated.order)}
    conditions.sort(key=lambda c: (order.get(c[0], len(order)), c))
    measures = [m for m in a.measures if m in b.measures]
    leading = evaluated.axis.headlines(a.select(explainers=[key["explainer"]], measures=measures))
    control = key["explainer"] in a.controls
    for measure in leading + [m for m in measures if m not in leading]:
        rows = []
        for c in conditions:
            about = {**key, "measure": measure, "condition": c[0], "level": c[1]}
            row = _condition_row(about, every_arrays, c, lost, calibrated)
            if row is not None:
                rows.append(row)
        if measure in leading and rows:
            yield _overall(rows, "controls" if control else OVERALL)
            if len(rows) == 1:
                continue  # it would say the same again
        family = "measures" if measure not in leading else "controls" if control else "conditions"
        for row in rows:
            row.key["family"] = family
            yield row


def _condition_row(
    key: dict[str, Any],
    every_arrays: tuple[ScoreArrays, ScoreArrays],
    condition: Condition,
    lost: NDArray[np.bool_],
    is_calibrated: bool,
) -> Row | None:
    """The scores of one explainer under one condition on the samples that both runs scored; None where one has none."""
    explainer, measure = key["explainer"], key["measure"]
    sides = [
        (arrays, arrays.explainers.index(explainer), arrays.conditions.index(condition))
        for arrays in every_arrays
    ]
    if not all(arrays.has_rows[measure][e, c] for arrays, e, c in sides):
        return None
    values = np.stack([arrays.values[measure][e, c] for arrays, e, c in sides])
    both = np.asarray(np.isfinite(values).all(0))
    scores = [raw_estimates(arrays, measure, both, (e, c)) for arrays, e, c in sides]
    form = "raw"
    if (
        is_calibrated
        and both.any()
        and all(arrays.is_calibrated(measure) for arrays in every_arrays)
    ):
        chances = [chance_estimates(arrays, measure, both, (e, c)) for arrays, e, c in sides]
        above_chance = [calibrated(*pair) for pair in zip(scores, chances, strict=True)]
        if all(np.isfinite(score.value) for score in above_chance):
            scores, form = above_chance, "calibrated"

    status = np.stack([arrays.status[e, c] for arrays, e, c in sides])
    fate = np.full(len(both), UNDEFINED, dtype=np.int8)
    fate[(status == PAIR_FLIPPED).any(0)] = FLIPPED
    fate[(status < 0).any(0)] = ABSENT
    fate[lost] = UNREADABLE
    fate[both] = JOINED
    earlier, later = (score[None] for score in scores)
    return Row({**key, "form": form}, [condition[0]], earlier, later, fate)


def _overall(rows: list[Row], family: str) -> Row:
    """The mean over conditions, each condition's levels first, of the scores on the samples that both runs retain."""
    names = [name for row in rows for name in row.conditions]
    earlier = stacked([row.earlier[0] for row in rows])
    later = stacked([row.later[0] for row in rows])
    fate = np.stack([row.fate for row in rows])
    merged = np.where((fate == JOINED).any(0), JOINED, fate.max(0)).astype(np.int8)
    forms = dict.fromkeys(row.key["form"] for row in rows)
    form = "best" if len(forms) > 1 else next(iter(forms))
    key = {**rows[0].key, "condition": OVERALL, "level": 0.0, "form": form, "family": family}
    return Row(key, names, earlier, later, merged)


def _tested(rows: list[Row], level: float) -> pd.DataFrame:
    frame = pd.DataFrame([row.key for row in rows])
    frame[["mean_a", "mean_b"]] = [row.means() for row in rows]
    frame["difference"] = frame["mean_b"] - frame["mean_a"]
    frame[["low", "high", "p"]] = np.nan
    frame["separated"] = False
    for family in FAMILIES:
        # All differences of a family are tested at once, so that p and intervals are corrected for their number.
        here = np.flatnonzero(frame["family"] == family)
        totals, shares = _totals([rows[i] for i in here])
        joined = shares.any(1)
        here, totals, shares = here[joined], totals[joined], shares[joined]
        if len(here):
            tests = simultaneous_tests(totals, shares, level)
            frame.loc[here, "low"], frame.loc[here, "high"] = tests.low, tests.high
            frame.loc[here, "p"], frame.loc[here, "separated"] = tests.p, tests.significant
    frame["samples"] = len(rows[0].fate)
    for code, name in enumerate(FATES):
        frame[name] = [int((row.fate == code).sum()) for row in rows]
    return frame


def _totals(rows: Sequence[Row]) -> tuple[Array, Array]:
    """What each sample adds to the differences of rows, (K, M), and its share in them; see `sample_totals`."""
    if not rows:
        return np.zeros((0, 1)), np.zeros((0, 1))
    all_totals, all_shares = [], []
    for row in rows:
        totals, shares = sample_totals(row.later.minus(row.earlier), row.conditions)
        all_totals.append(totals)
        all_shares.append(shares)
    # References that are not among the samples come last; a raw score has none.
    width = max(len(totals) for totals in all_totals)
    padded = [
        [np.pad(each, (0, width - len(each))) for each in side] for side in (all_totals, all_shares)
    ]
    return np.stack(padded[0]), np.stack(padded[1])

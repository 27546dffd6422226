"""A comparison in sentences, for the page and the terminal, never saying more than the tests do."""

from __future__ import annotations

import textwrap
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pandas as pd

from heatproof.report.comparison.common import Common, shown
from heatproof.report.comparison.pairs import OVERALL
from heatproof.results.findings import Finding, finding_template
from heatproof.results.summary import FEW_SAMPLES
from heatproof.statistics.intervals import FEWEST
from heatproof.text import digits_of, listing, number, p_value, records, with_interval

if TYPE_CHECKING:
    from heatproof.report.comparison.compare import Comparison

WIDTH = 110
ALL_CONDITIONS = "all conditions"
SENTENCES = 6
HIGH_LOSS = 0.5
SURE = 0.001  # below which p-values are not told apart
FEW, LOST, OTHER, MOVED = (
    "Few samples",
    "Many samples fell out",
    "Other predictions",
    "Controls differ",
)
TEXTS = {
    FEW: f"Intervals from fewer than {FEW_SAMPLES} joined samples are rough, and small differences go unseen.",
    LOST: "Only samples that both runs retain are compared. Where less than half remain, the difference is about those "
    "that are easy for both.",
    OTHER: "Each map explains what its own model predicts. Where predictions differ, the maps answer different "
    "questions.",
    MOVED: "Controls do not look at the model, and yet they differ: something besides the models does, too.",
}
"""What each caution means."""
RULE_OF = {
    FEW: "few-samples",
    LOST: "lost-samples",
    OTHER: "other-predictions",
    MOVED: "controls-differ",
}


def main_rows(comparison: Comparison) -> pd.DataFrame:
    """The comparisons that the verdict is about: one per explainer, evaluation and pair of runs, without controls."""
    rows = comparison.differences
    return rows[rows["family"] == OVERALL]


def verdict(comparison: Comparison) -> list[str]:
    """Which run's explanations are better, in sentences, the clearest difference first."""
    rows = main_rows(comparison)
    names = listing(side.label for side in comparison.runs)
    tested = rows[rows["joined"] > 0]
    if tested.empty:
        return [f"Nothing can be concluded: no sample has a score in two of the runs {names}."]
    every = comparison.differences
    every = every[every["joined"] > 0]
    if (every["difference"] == 0).all() and (every["p"] == 1).all():
        return [f"{names} agree exactly: all {len(every)} differences are 0 on every sample."]
    apart = tested[tested["separated"]]
    count = f"{len(apart)} of {_counted(len(tested), 'comparison')} separate{'s' if len(apart) == 1 else ''}"
    most_joined = int(tested["joined"].max())
    if most_joined < FEWEST:
        return [
            f"Too few samples to compare {names}: {_counted(most_joined, 'sample')} joined, at least {FEWEST} needed."
        ]
    if apart.empty:
        largest = max(records(tested), key=lambda r: abs(r.difference))
        title = comparison.common.evaluation(largest.evaluation).measure(largest.measure).title
        what = f"{largest.explainer} ({largest.evaluation}, {title}){_place(largest, rows)}"
        nearest = (
            f"The largest difference, {largest.b} − {largest.a} for {what}, is {_gap(largest, 1)}."
        )
        return [
            f"{names} cannot be told apart: none of {_counted(len(tested), 'comparison')} separates.",
            nearest,
        ]
    ordered = sorted(records(apart), key=lambda r: (max(r.p, SURE), -abs(r.difference)))
    first, *others = (_sentence(row, rows, comparison.common) for row in ordered[:SENTENCES])
    sentences = [f"{first}; {count}.", *(f"{sentence}." for sentence in others)]
    if len(ordered) > SENTENCES:
        sentences.append(f"{len(ordered) - SENTENCES} more are in the table.")
    return sentences


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}{'' if n == 1 else 's'}"


def _sentence(row: Any, rows: pd.DataFrame, common: Common) -> str:
    evaluated = common.evaluation(row.evaluation)
    measure = evaluated.measure(row.measure)
    ends = ((row.b, row.explainer_b), (row.a, row.explainer_a))
    (first, method), (second, other) = (
        ends if row.difference * (measure.sign or 1) > 0 else ends[::-1]
    )
    place = _place(row, rows)
    how = evaluated.axis.verb if measure.sign else f"scores higher in {row.evaluation} than"
    lower = ", where less is better" if measure.better == "lower" else ""
    facts = f"{measure.title}{lower}, {p_value(row.p)}, {_counted(row.joined, 'sample')}"
    than = f"{second}’s" if other == method else f"{second}’s {other}"
    return f"{first}’s {method} {how} {than} by {_gap(row, -1 if row.difference < 0 else 1)} ({facts}){place}"


def _gap(row: Any, sign: int) -> str:
    """The difference, or its negative, with its interval and the two scores on the joined samples behind it."""
    ends = (row.low, row.high) if sign > 0 else (-row.high, -row.low)
    digits = digits_of(row.difference, row.low, row.high)
    scores = [number(score, digits) for score in (row.mean_b, row.mean_a)][::sign]
    return f"{with_interval(sign * row.difference, *ends)}, {scores[0]} against {scores[1]}"


def _place(row: Any, rows: pd.DataFrame) -> str:
    """What tells a row from others that are named alike: its evaluation, model and data, where there are several."""
    kin = rows.loc[rows["kind"] == row.kind, "evaluation"].nunique() > 1
    model = f" in {row.evaluation}" if kin else ""
    model += f" for {row.model}" if rows["model"].nunique() > 1 else ""
    return model + (f" on {row.dataset}" if rows["dataset"].nunique() > 1 else "")


def condition_title(row: Any, common: Common) -> str:
    """The condition of a row with its level."""
    if row.condition == OVERALL:
        return ALL_CONDITIONS
    return common.evaluation(row.evaluation).axis.condition(row.condition, row.level)


def cautions(comparison: Comparison) -> list[Finding]:
    """What not to conclude: few or lost samples, other predictions, controls that differ."""
    common, every, rows = comparison.common, comparison.differences, main_rows(comparison)
    few = rows[(rows["joined"] > 0) & (rows["joined"] < FEW_SAMPLES)]
    lost = every[
        (every["family"] == "conditions") & (every["joined"] < HIGH_LOSS * every["samples"])
    ]
    moved = every[(every["family"] == "controls") & every["separated"]]
    compares_maps = _measures_that_compare_maps(comparison)
    items = {
        FEW: [],
        LOST: [
            f"{r.explainer}{_place(r, every)}, {condition_title(r, common)}, {r.b} − {r.a}: {r.joined} of {r.samples} "
            f"joined, {r.flipped} flipped, {r.undefined} undefined, {r.absent} absent"
            for r in records(lost)
        ],
        OTHER: _other_predictions(comparison),
        MOVED: [
            f"{r.explainer}{_place(r, every)}, {condition_title(r, common)}, {r.b} − {r.a}: {_gap(r, 1)}"
            for r in records(moved)
            # Scores that compare maps with maps: the model has no part in those of a control.
            if (r.evaluation, r.measure) in compares_maps
        ],
    }
    return [
        finding_template(RULE_OF[title], title, TEXTS[title], "").filled({}, items=tuple(lines))
        for title, lines in items.items()
        if lines or (title == FEW and len(few))
    ]


def _measures_that_compare_maps(comparison: Comparison) -> set[tuple[str, str]]:
    """The (evaluation, measure) whose chance level comes from the maps of reference samples."""
    found = set()
    for i, side in enumerate(comparison.runs):
        own_name = {e.names[i]: shown(e.names) for e in comparison.common.evaluations}
        measured = side.references[["evaluation", "measure"]].drop_duplicates()
        for row in records(measured[measured["evaluation"].isin(list(own_name))]):
            found.add((own_name[row.evaluation], row.measure))
    return found


def _other_predictions(comparison: Comparison) -> list[str]:
    lines = []
    for dataset in comparison.common.datasets:
        for model in comparison.common.models:
            said = {}
            for i, side in enumerate(comparison.runs):
                frame = side.samples
                here = frame[(frame["dataset"] == dataset[i]) & (frame["model"] == model[i])]
                readable = here[here["error"].fillna("").astype(str) == ""].set_index("sample")
                named = readable["predicted_name"].fillna("").astype(str)
                said[side.label] = named.where(named != "", readable["predicted"].astype(str))
            for a, b in combinations(said, 2):
                both = said[a].index.intersection(said[b].index)
                differ = int((said[a][both] != said[b][both]).sum())
                if differ:
                    count = f"{differ} of {_counted(len(both), 'sample')} predicted differently"
                    lines.append(f"{a} and {b} on {dataset[0]}: {count}")
    return lines


def legend(comparison: Comparison) -> list[tuple[str, str]]:
    """Each run's letter, and what is in it."""
    lines = []
    for i, side in enumerate(comparison.runs):
        models = listing(names[i] for names in comparison.common.models)
        data = listing(names[i] for names in comparison.common.datasets)
        lines.append((side.label, f"{side.path} ({models} on {data})"))
    return lines


def text(comparison: Comparison) -> str:
    """Runs, subject, verdict and the main table, at most 110 characters wide where names allow it."""
    lines = [f"{label}  {what}" for label, what in legend(comparison)]
    if comparison.subject:
        lines += ["", "What differs", *(_wrapped(line) for line in comparison.subject)]
    lines += ["", "Verdict", *(_wrapped(sentence) for sentence in comparison.verdict())]
    rows = main_rows(comparison)
    if len(rows):
        lines += ["", *_grid(rows, comparison)]
    warned = cautions(comparison)
    if warned:
        lines += [
            "",
            _wrapped(
                "Warnings: " + "; ".join(c.title[0].lower() + c.title[1:] for c in warned) + "."
            ),
        ]
    if comparison.left_out:
        lines += ["", "Not compared", *(_wrapped(line) for line in comparison.left_out)]
    return "\n".join(lines)


def _grid(rows: pd.DataFrame, comparison: Comparison) -> list[str]:
    head = (
        "evaluation",
        "explainer",
        "pair",
        "scores",
        "difference",
        "p (corrected)",
        "better",
        "joined",
    )
    cells = [head]
    for r in records(rows):
        p = p_value(r.p).removeprefix("p ").removeprefix("= ") if r.joined else "–"
        digits = digits_of(r.difference, r.low, r.high)
        both = f"{number(r.mean_b, digits)} − {number(r.mean_a, digits)}"
        gap = with_interval(r.difference, r.low, r.high)
        cells.append(
            (
                r.evaluation,
                comparison.named(r),
                f"{r.b} − {r.a}",
                both,
                gap,
                p,
                outcome(r),
                f"{r.joined}/{r.samples}",
            )
        )
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return ["    " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in cells]


def outcome(row: Any) -> str:
    """Which run is better in a row, as a word."""
    return str(row.better) or (
        "differs" if row.separated else "–" if not row.joined else "not separated"
    )


def _wrapped(sentence: str) -> str:
    return textwrap.fill(
        sentence, WIDTH, initial_indent="    ", subsequent_indent="    ", break_long_words=False
    )

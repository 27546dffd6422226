"""The verdict and its limits in words, computed from the ranking and the tests and never saying more than they do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from holdfast import statistics
from holdfast.cubes import Cube, arrange
from holdfast.perturbations import title
from holdfast.similarity import COMPONENTS

FEW_SAMPLES = 30
LISTED = 6


@dataclass(frozen=True)
class Findings:
    """Everything the page and the terminal say about one dataset and model, computed once."""

    dataset: str
    model: str
    cube: Cube
    summary: pd.DataFrame
    ranking: pd.DataFrame
    tests: pd.DataFrame
    disagreement: pd.DataFrame
    components: dict[str, pd.DataFrame]

    @property
    def calibrated(self) -> bool:
        """Whether the overall score has a chance level to be measured against."""
        return bool(self.summary["calibrated"].notna().any())

    def cells(self, measure: str = "fass") -> pd.DataFrame:
        """The summary of one measure with the best available form of each score as `best`, `best_low`, `best_high`."""
        rows = self.summary[self.summary["measure"] == measure].copy()
        for edge in ("", "_low", "_high"):
            raw = rows["mean" if not edge else edge[1:]]
            best = rows[f"aligned_calibrated{edge}"].where(
                rows["aligned_calibrated"].notna(), rows[f"calibrated{edge}"]
            )
            rows[f"best{edge}"] = best.where(rows["calibrated"].notna(), raw)
        return rows


@dataclass(frozen=True)
class Caution:
    """One thing not to conclude: a headline, what was seen, and a list that may be folded away."""

    title: str
    text: str
    items: list[str] = field(default_factory=list)


def findings(table: pd.DataFrame | Sequence[Cube]) -> list[Findings]:
    """The stability findings of every dataset and model in the table.

    >>> findings([])
    []
    """
    found = []
    for cube in arrange(table):
        if "fass" not in cube.values:
            continue
        components = {m: statistics.ranking([cube], m) for m in COMPONENTS if m in cube.values}
        found.append(
            Findings(
                cube.dataset,
                cube.model,
                cube,
                statistics.summary([cube]),
                statistics.ranking([cube]),
                statistics.paired_tests([cube]),
                statistics.component_disagreement([cube]),
                components,
            )
        )
    return found


def records(frame: pd.DataFrame) -> list[Any]:
    """The rows of a frame, each with its columns as attributes.

    >>> records(pd.DataFrame({"rank": [3]}))[0].rank
    3
    """
    return list(frame.itertuples(index=False))


def number(value: float, digits: int = 2) -> str:
    """A number for reading, with a true minus sign and a dash for what is missing.

    >>> number(0.614), number(-0.001), number(float("nan"))
    ('0.61', '0.00', '–')
    """
    if value is None or not math.isfinite(value):
        return "–"
    text = f"{value:.{digits}f}"
    return (text.lstrip("-") if float(text) == 0 else text).replace("-", "−")


def with_interval(value: float, low: float, high: float, digits: int = 2) -> str:
    """A number with its interval, or the words that there is none.

    >>> with_interval(0.61, 0.58, 0.64)
    '0.61 [0.58, 0.64]'
    """
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{number(value, digits)} (no interval)"
    return f"{number(value, digits)} [{number(low, digits)}, {number(high, digits)}]"


def listing(names: Iterable[str]) -> str:
    """Names as they are written in a sentence.

    >>> listing(["a", "b", "c"])
    'a, b and c'
    """
    names = list(names)
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}" if names else ""


def p_value(p: float) -> str:
    """A p-value as it is written in a sentence.

    >>> p_value(0.0312), p_value(1e-9)
    ('p = 0.031', 'p < 0.001')
    """
    return "p < 0.001" if p < 0.001 else f"p = {p:.2g}"


def difference(tests: pd.DataFrame, a: str, b: str) -> dict[str, Any] | None:
    """The test of a against b, with the sign of a − b; None when they were not compared."""
    row = tests[(tests["a"] == a) & (tests["b"] == b)]
    if len(row):
        return {str(k): v for k, v in row.iloc[0].items()}
    row = tests[(tests["a"] == b) & (tests["b"] == a)]
    if row.empty:
        return None
    turned = {str(k): v for k, v in row.iloc[0].items()}
    turned["difference"], turned["low"], turned["high"] = -turned["difference"], -turned["high"], -turned["low"]
    return turned


def above(tests: pd.DataFrame, a: str, b: str) -> bool:
    """Whether a is better than b beyond doubt: significant after correction, and the interval agrees."""
    row = difference(tests, a, b)
    return row is not None and bool(row["significant"]) and row["low"] > 0


def verdict(found: Findings) -> list[str]:
    """Which method holds, in sentences: the best one or those not told apart, then chance and controls."""
    scored = found.ranking[found.ranking["score"].notna()]
    methods = scored[~scored["control"]]
    if scored.empty:
        return ["Nothing can be concluded: no pair of maps was retained, so there is no score."]
    if methods.empty:
        return [f"Nothing can be concluded: only controls were scored ({listing(scored['explainer'])})."]
    kind = "calibrated score" if found.calibrated else "score"
    text = {row.explainer: with_interval(row.score, row.low, row.high) for row in records(methods)}
    best, *others = methods["explainer"]
    tied = [name for name in others if not above(found.tests, best, name)]
    if not others:
        sentences = [f"{best} has a {kind} of {text[best]}; no other method was run to compare it with."]
    elif tied:
        top = [best, *tied]
        scores = listing(f"{name} {text[name]}" for name in top[:LISTED])
        more = f" and {len(top) - LISTED} more" if len(top) > LISTED else ""
        sentences = [f"{listing(top) if len(top) <= LISTED else str(len(top)) + ' methods'} cannot be separated"]
        sentences[0] += f" at the top: {kind} {scores}{more}."
    else:
        row = difference(found.tests, best, others[0]) or {}
        sentences = [f"{best} holds best: {kind} {text[best]}."]
        gap = with_interval(row["difference"], row["low"], row["high"])
        sentences.append(f"It is ahead of {others[0]} ({text[others[0]]}) by {gap}, {p_value(row['p_holm'])}.")
    return sentences + _against_controls(found, scored, methods) + _at_chance(found)


def _against_controls(found: Findings, scored: pd.DataFrame, methods: pd.DataFrame) -> list[str]:
    sentences = []
    controls = scored[scored["control"]]
    for control in controls["explainer"]:
        if control.startswith("random"):
            level = [m for m in methods["explainer"] if not above(found.tests, m, control)]
            if level:
                verb = "is" if len(level) == 1 else "are"
                sentences.append(f"{listing(level)} {verb} not separated from the control {control}.")
        else:
            row = controls[controls["explainer"] == control].iloc[0]
            below = [m for m in methods["explainer"] if not above(found.tests, m, control)]
            if below:
                score = with_interval(row["score"], row["low"], row["high"])
                who = (
                    "no method is"
                    if len(below) == len(methods)
                    else f"{listing(below)} {'is' if len(below) == 1 else 'are'} not"
                )
                sentences.append(f"The control {control}, which never sees the model, scores {score}: ")
                sentences[-1] += f"{who} shown to do better."
    return sentences


def chance_cells(found: Findings) -> pd.DataFrame:
    """Methods and conditions whose calibrated interval reaches down to chance, controls left out."""
    cells = found.cells()
    cells = cells[cells["calibrated"].notna() & ~cells["explainer"].map(statistics.is_control)]
    return cells[cells["best_low"] <= 0]


def _at_chance(found: Findings) -> list[str]:
    cells = chance_cells(found)
    if cells.empty:
        return []
    by = {
        str(name): listing(title(c, x) for c, x in zip(rows["condition"], rows["level"], strict=True))
        for name, rows in cells.groupby("explainer", sort=False)
    }
    parts = [f"{name} under {conditions}" for name, conditions in by.items()]
    if len(cells) > LISTED:
        return [f"{len(cells)} method × perturbation cells are within noise of chance (listed below)."]
    return [f"Within noise of chance: {'; '.join(parts)}."]


def cautions(found: Findings, samples: pd.DataFrame, manifest: dict[str, Any]) -> list[Caution]:
    """What not to conclude from this dataset and model."""
    listed = []
    study = manifest.get("study") or {}
    head = ((study.get("models") or {}).get(found.model) or {}).get("untrained_head")
    if head:
        text = f"{head}. Explanations of a model whose last layer was never trained say nothing about a real one."
        listed.append(Caution("The head looks untrained", text))
    n = len(found.cube.samples)
    if n < FEW_SAMPLES:
        text = (
            f"Only {n} sample{'s were' if n != 1 else ' was'} tested. Intervals from fewer than {FEW_SAMPLES} samples"
        )
        listed.append(Caution("Few samples", text + " are rough and may be too narrow."))
    cells = found.cells()
    low = cells[cells["flag"] != ""]
    if len(low):
        items = []
        for _, rows in low.groupby(["condition", "level", "flag", "attempted"], sort=False):
            r = records(rows)[0]
            who = "every method" if len(rows) == len(found.cube.explainers) else listing(rows["explainer"])
            items.append(f"{title(r.condition, r.level)}: {r.flag} of {r.attempted} attempted ({who})")
        text = "The filter keeps only pairs whose prediction is unchanged. Where few remain, the score describes "
        listed.append(Caution("Low retention", text + "the easiest samples, not the data.", items))
    chance = chance_cells(found)
    if len(chance):
        items = [
            f"{r.explainer}, {title(r.condition, r.level)}: "
            f"raw {number(r.mean)}, calibrated {with_interval(r.best, r.best_low, r.best_high)}"
            for r in records(chance)
        ]
        text = "Here the interval reaches chance: the maps of a pair are not shown to resemble each other more than "
        listed.append(
            Caution("Scores at chance", text + "maps of different samples do, whatever the raw score.", items)
        )
    reasons = found.cube.reasons
    if len(reasons):
        grouped = reasons.groupby(["explainer", "reason"], sort=False, observed=True)["count"].sum()
        rows = grouped.rename("times").reset_index()  # a tuple's `count` is a method
        items = [f"{r.explainer}: {r.times} × {r.reason or 'no reason given'}" for r in records(rows)]
        text = (
            f"{int(reasons['count'].sum())} maps were constant, not finite or otherwise without order and got no score."
        )
        listed.append(Caution("Undefined maps", text, items))
    partial = found.ranking[found.ranking["conditions"] < found.ranking["conditions_total"]]
    if len(partial):
        items = [f"{r.explainer}: {r.conditions} of {r.conditions_total} conditions" for r in records(partial)]
        text = "Overall scores average the conditions that have one; these methods lack some and compare badly."
        listed.append(Caution("Missing conditions", text, items))
    listed.extend(_noise_floor(found))
    unread = unreadable(samples, found.dataset, found.model)
    if len(unread):
        items = [f"{name}: {error}" for name, error in zip(unread["sample"], unread["error"], strict=True)]
        files = f"{len(unread)} file{'s' if len(unread) != 1 else ''} could not be read and took no part."
        listed.append(Caution("Unreadable files", files, items))
    text = "A map can be perfectly stable and wrong: an edge detector is. Stability says that an explanation holds "
    listed.append(Caution("Stability is not faithfulness", text + "still, not that it is true of the model."))
    return listed


def _noise_floor(found: Findings) -> list[Caution]:
    cells = found.cells()
    noisy = cells[cells["noise_floor"].notna()].drop_duplicates("explainer")
    if noisy.empty:
        return []
    items = [f"{r.explainer}: {number(r.noise_floor)}" for r in records(noisy)]
    text = "These methods draw random numbers. Two draws on the same input agree only to the raw score given here; "
    return [
        Caution("Noise floor", text + "where draws are not shared, more agreement than that cannot be expected.", items)
    ]


def unreadable(samples: pd.DataFrame, dataset: str, model: str) -> pd.DataFrame:
    """The samples that could not be read."""
    here = (samples["dataset"] == dataset) & (samples["model"] == model)
    return samples[here & samples["error"].fillna("").astype(str).ne("")]

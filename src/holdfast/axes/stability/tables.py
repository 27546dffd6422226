"""The page's tables: rows of text cells, made from summaries, rankings and tests."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from holdfast import statistics
from holdfast.axes.stability import words
from holdfast.drawing.charts import COMPONENT_NAMES


@dataclass(frozen=True)
class Row:
    """One line of a table: its cells as text, and whether it belongs to a control."""

    cells: list[str]
    control: bool = False


def ranking_rows(found: words.Findings) -> list[Row]:
    """Explainer, rank with its interval, share of draws in front, score, raw score, samples."""
    rows = []
    for r in words.records(found.ranking):
        rank = words.number(r.rank, 0)
        spread = f"{words.number(r.rank_low, 0)} to {words.number(r.rank_high, 0)}"
        first = f"{100 * r.p_best:.0f} %" if r.p_best == r.p_best else "–"
        score = words.with_interval(r.score, r.low, r.high)
        raw = words.with_interval(r.raw, r.raw_low, r.raw_high)
        name = f"{r.explainer} (control)" if r.control else str(r.explainer)
        rows.append(Row([name, rank, spread, first, score, raw, str(r.samples)], bool(r.control)))
    return rows


def pair_rows(found: words.Findings) -> list[Row]:
    """Pairs in the order of the ranking, the better one first."""
    order = {name: i for i, name in enumerate(found.ranking["explainer"])}
    rows = []
    for t in words.records(found.tests):
        a, b, gap = str(t.a), str(t.b), (t.difference, t.low, t.high)
        if order[a] > order[b]:
            a, b, gap = b, a, (-t.difference, -t.high, -t.low)
        answer = "–" if t.n < 1 else "yes" if t.significant else "no"
        p = words.p_value(t.p_holm).removeprefix("p ").removeprefix("= ") if t.n else "–"
        rows.append((order[a], order[b], Row([f"{a} − {b}", words.with_interval(*gap), p, answer, str(t.n)])))
    return [row for _, _, row in sorted(rows, key=lambda item: item[:2])]


def disagreement(found: words.Findings) -> str:
    """How often the three components disagree, in a sentence; empty where nothing was compared."""
    if found.disagreement.empty or not found.disagreement["compared"].iloc[0]:
        return ""
    row = found.disagreement.iloc[0]
    parts = [
        f"{COMPONENT_NAMES[a]} and {COMPONENT_NAMES[b]} {100 * row[f'{a}_{b}']:.0f} %"
        for a, b in (("ssim", "spearman"), ("ssim", "jaccard"), ("spearman", "jaccard"))
    ]
    text = f"The three components disagree on which of two methods is better in {row['count']} of {row['compared']}"
    return f"{text} comparisons ({100 * row['share']:.0f} %): {words.listing(parts)}."


def floor_rows(found: words.Findings) -> list[Row]:
    """Stochastic explainers with the score of two draws and their mean raw score under perturbation."""
    cells = found.cells()
    noisy = words.records(cells[cells["noise_floor"].notna()].drop_duplicates("explainer"))
    raw = cells.groupby("explainer", sort=False)["mean"].mean()
    return [Row([r.explainer, words.number(r.noise_floor), words.number(raw[r.explainer])]) for r in noisy]


NUMBER_COLUMNS = ["Explainer", "Measure", "Raw", "Chance", "Calibrated", "Aligned", "Aligned + calibrated"]
NUMBER_COLUMNS += ["Noise floor", "Retained", "Flipped", "Undefined"]


def number_rows(summary: pd.DataFrame) -> list[Row]:
    """The cells under `NUMBER_COLUMNS` of every row of `statistics.summary`."""
    rows = []
    for r in words.records(summary):
        moved = words.with_interval(r.aligned_calibrated, r.aligned_calibrated_low, r.aligned_calibrated_high)
        calibrated = words.with_interval(r.calibrated, r.calibrated_low, r.calibrated_high)
        cells = [
            str(r.explainer),
            COMPONENT_NAMES.get(r.measure, r.measure),
            words.with_interval(r.mean, r.low, r.high),
        ]
        cells += [words.number(r.chance), calibrated if r.calibrated == r.calibrated else "–", words.number(r.aligned)]
        cells += [moved if r.aligned_calibrated == r.aligned_calibrated else "–", words.number(r.noise_floor)]
        share = words.with_interval(100 * r.retention, 100 * r.retention_low, 100 * r.retention_high, 0)
        cells += [f"{r.retained}/{r.attempted}, {share} %", str(r.flipped), str(r.undefined)]
        rows.append(Row(cells, statistics.is_control(str(r.explainer))))
    return rows


def unchanged(cells: pd.DataFrame) -> pd.DataFrame:
    """Predictions unchanged per condition and level, with Wilson's interval; no explainer has a say in it."""
    most = cells.sort_values("attempted", ascending=False, kind="stable").drop_duplicates(["condition", "level"])
    frame = most[["condition", "level", "attempted"]].assign(held=most["attempted"] - most["flipped"])
    edges = [statistics.wilson(int(k), int(n)) for k, n in zip(frame["held"], frame["attempted"], strict=True)]
    frame["share"] = frame["held"] / frame["attempted"]
    frame["share_low"], frame["share_high"] = [low for low, _ in edges], [high for _, high in edges]
    return frame

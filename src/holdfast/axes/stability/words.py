"""The verdict in words, computed from the ranking and the tests and never saying more than they do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from holdfast import statistics
from holdfast.axes.stability.perturbations import title
from holdfast.drawing.prose import LISTED, above, difference, listing, number, p_value, records, some, with_interval
from holdfast.maps.similarity import COMPONENTS
from holdfast.report.cautions import FEW_SAMPLES, Caution, cautions, other_cautions, unreadable
from holdfast.statistics.cubes import Cube, arrange

__all__ = [
    "FEW_SAMPLES",
    "LISTED",
    "Caution",
    "Findings",
    "above",
    "cautions",
    "difference",
    "findings",
    "listing",
    "number",
    "other_cautions",
    "p_value",
    "records",
    "some",
    "unreadable",
    "verdict",
    "with_interval",
]


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

    def at_chance(self) -> pd.DataFrame:
        """The cells of methods whose calibrated interval does not lie above chance, controls left out."""
        cells = self.cells()
        cells = cells[cells["calibrated"].notna() & ~cells["explainer"].map(statistics.is_control).astype(bool)]
        return cells[cells["best_low"] <= 0]


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


def verdict(found: Findings) -> list[str]:
    """Which method holds, in sentences: the best one or those not told apart, then controls and chance."""
    scored = found.ranking[found.ranking["score"].notna()]
    methods = scored[~scored["control"]]
    if scored.empty:
        return ["Nothing can be concluded: no pair of maps was retained, so there is no score."]
    if methods.empty:
        return [f"Nothing can be concluded: only controls were scored ({some(scored['explainer'])})."]
    kind = "calibrated score" if found.calibrated else "score"
    text = {row.explainer: with_interval(row.score, row.low, row.high) for row in records(methods)}
    best, *others = methods["explainer"]
    tied = [name for name in others if not above(found.tests, best, name)]
    if not others:
        sentences = [f"{best} has a {kind} of {text[best]}; no other method was run to compare it with."]
    elif tied:
        top = [best, *tied]
        who = listing(top) if len(top) <= LISTED else f"{len(top)} methods"
        scores = some([f"{name} {text[name]}" for name in top])
        sentences = [f"{who} cannot be separated at the top: {kind} {scores}."]
    else:
        row = difference(found.tests, best, others[0]) or {}
        sentences = [f"{best} holds best: {kind} {text[best]}."]
        gap = with_interval(row["difference"], row["low"], row["high"])
        sentences.append(f"It is ahead of {others[0]} ({text[others[0]]}) by {gap}, {p_value(row['p_holm'])}.")
    return sentences + _against_controls(found, scored, methods) + _at_chance(found)


def _against_controls(found: Findings, scored: pd.DataFrame, methods: pd.DataFrame) -> list[str]:
    sentences = []
    controls = scored[scored["control"]]
    for r in records(controls):
        below = [m for m in methods["explainer"] if not above(found.tests, m, r.explainer)]
        if not below:
            continue
        every = len(below) == len(methods) > 1
        who = "no method is" if every else f"{some(below)} {'is' if len(below) == 1 else 'are'} not"
        if r.explainer.startswith("random"):
            sentences.append(
                f"{who[0].upper() if every else who[0]}{who[1:]} separated from the control {r.explainer}."
            )
        else:
            text = f"The control {r.explainer}, which never sees the model, scores "
            sentences.append(f"{text}{with_interval(r.score, r.low, r.high)}: {who} shown to do better.")
    return sentences


def _at_chance(found: Findings) -> list[str]:
    cells = found.at_chance()
    worse = cells["best_high"] < 0
    said = []
    for words, rows in (("Below chance", cells[worse]), ("Within noise of chance", cells[~worse])):
        if len(rows) > LISTED:
            counts = rows["explainer"].value_counts()
            most = f"most often {counts.index[0]}, {int(counts.iloc[0])} times"
            said.append(f"{words}: {len(rows)} pairs of a method and a perturbation, {most}.")
        elif len(rows):
            said.append(f"{words}: {'; '.join(_by_method(rows))}.")
    return said


def _by_method(cells: pd.DataFrame) -> list[str]:
    return [
        f"{name} under {listing(title(r.condition, r.level) for r in records(rows))}"
        for name, rows in cells.groupby("explainer", sort=False)
    ]

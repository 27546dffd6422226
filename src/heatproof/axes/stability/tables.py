"""The tables of stability: the paper's scores, paired tests, noise floors, and which predictions stayed."""

from __future__ import annotations

from itertools import combinations

import pandas as pd
from markupsafe import Markup

from heatproof import statistics
from heatproof.axes.stability.evaluation import FASS, unaligned
from heatproof.axes.stability.frames import Frames, as_in_paper
from heatproof.axes.stability.perturbations import title
from heatproof.drawing.charts import Panel
from heatproof.drawing.prose import listing, number, p_value, records, with_interval
from heatproof.drawing.tables import Row, grid
from heatproof.maps.similarity import COMPONENTS
from heatproof.statistics.cubes import Cube

MOST_TESTS = 150
TESTED = "Two methods on the same samples and perturbations that both retain: difference of the scores, sign flips "
TESTED += "corrected for all pairs, and the interval that goes with them. Below 8 samples there is neither interval nor answer."
FLOOR = "What a method that draws random numbers scores against itself, on the same input with two draws, beside its "
FLOOR += "raw score under perturbation, where both maps share their draws."
PAPER = "FASS as the paper computes it: raw, and maps are compared without moving them. "
ALIGNED = "The other columns cover only the perturbations that move the input ({}): the comparison without moving the "
ALIGNED += "original map, and with moving it{}."


def tests_panel(frames: Frames) -> Panel | None:
    """Pairs of methods with their paired tests; None where there is no pair."""
    rows = pair_rows(frames)
    if not rows:
        return None
    table = grid(
        ["Pair", "Difference", "p", "Separated", "Samples"],
        rows[:MOST_TESTS],
        "Paired tests",
    )
    if len(rows) > MOST_TESTS:
        more = "{} more pairs, further down the ranking, are in <code>heatproof.statistics.paired_tests</code>."
        table += Markup(f'<p class="small">{more}</p>').format(len(rows) - MOST_TESTS)
    return Panel("tests", "Paired tests", TESTED, table)


def pair_rows(frames: Frames) -> list[Row]:
    """Pairs in the order of the ranking, the better one first."""
    order = {name: i for i, name in enumerate(frames.ranking["explainer"])}
    rows = []
    for t in records(frames.tests):
        a, b, gap = str(t.a), str(t.b), (t.difference, t.low, t.high)
        if order[a] > order[b]:
            a, b, gap = b, a, (-t.difference, -t.high, -t.low)
        tested = pd.notna(t.p)
        answer = "yes" if t.significant else "no" if tested else "–"
        p = p_value(t.p).removeprefix("p ").removeprefix("= ") if tested else "–"
        rows.append(
            (order[a], order[b], Row([f"{a} − {b}", with_interval(*gap), p, answer, f"{t.n:g}"]))
        )
    return [row for _, _, row in sorted(rows, key=lambda item: item[:2])]


def paper_panel(frames: Frames) -> Panel | None:
    """FASS as the paper computes it, and what moving the maps changes; None where the score is that of the paper."""
    if not frames.calibrated and not frames.moving:
        return None
    columns = {"FASS as in the paper": _overall(as_in_paper(frames.cube))}
    caption = PAPER
    if frames.moving:
        moving = frames.cube.select(conditions=frames.moving)
        columns["Unaligned"] = _overall(moving, unaligned(FASS))
        columns["Aligned"] = _overall(moving)
        where = listing(title(*condition) for condition in frames.moving)
        caption += ALIGNED.format(where, ", both calibrated" if frames.calibrated else "")
    rows = [
        Row([explainer, *(column.get(explainer, "–") for column in columns.values())])
        for explainer in frames.ranking["explainer"]
    ]
    table = grid(["Explainer", *columns], rows, "FASS as in the paper")
    return Panel("paper", "As in the FASS paper", caption.strip(), table)


def _overall(cube: Cube, measure: str = FASS) -> dict[str, str]:
    """Overall scores with their intervals, in words, by explainer."""
    ranking = statistics.ranking([cube], measure, better="neither")
    return {r.explainer: with_interval(r.score, r.low, r.high) for r in records(ranking)}


def disagreement(frames: Frames) -> Markup:
    """How often the three components disagree, in a sentence; empty where nothing was compared."""
    if frames.disagreement.empty or not frames.disagreement["compared"].iloc[0]:
        return Markup("")
    row = frames.disagreement.iloc[0]
    say = frames.title_of
    parts = [
        f"{say(a)} and {say(b)} {100 * row[f'{a}_{b}']:.0f} %"
        for a, b in combinations(COMPONENTS, 2)
    ]
    text = f"The three components disagree on which of two methods is better in {row['count']} of {row['compared']}"
    return Markup("<p>{}</p>").format(
        f"{text} comparisons ({100 * row['share']:.0f} %): {listing(parts)}."
    )


def floor_panel(frames: Frames) -> Panel | None:
    """Stochastic explainers with the score of two draws and their mean raw score under perturbation."""
    cells = frames.cells()
    noisy = records(cells[cells["noise_floor"].notna()].drop_duplicates("explainer"))
    if not noisy:
        return None
    raw = cells.groupby("explainer", sort=False)["mean"].mean()
    rows = [Row([r.explainer, number(r.noise_floor), number(raw[r.explainer])]) for r in noisy]
    columns = ["Explainer", "Two draws (FASS)", "Perturbed, mean raw (FASS)"]
    return Panel("floor", "Noise floor", FLOOR, grid(columns, rows, "Noise floor"))


def unchanged(cells: pd.DataFrame) -> pd.DataFrame:
    """Predictions unchanged per condition and level, with an exact interval; no explainer has a say in it."""
    most = cells.sort_values("attempted", ascending=False, kind="stable").drop_duplicates(
        ["condition", "level"]
    )
    frame = most[["condition", "level", "attempted"]].assign(
        held=most["attempted"] - most["flipped"]
    )
    edges = [
        statistics.exact_share(int(k), int(n))
        for k, n in zip(frame["held"], frame["attempted"], strict=True)
    ]
    frame["share"] = frame["held"] / frame["attempted"]
    frame["share_low"], frame["share_high"] = [low for low, _ in edges], [high for _, high in edges]
    return frame

"""Stability on the page: scores, components, predictions kept, sweeps, tests, noise floor and gallery."""

from __future__ import annotations

from typing import Any

from heatproof.axes.contract import AxisResult, Page
from heatproof.axes.stability.frames import Frames, frames
from heatproof.axes.stability.perturbations import title
from heatproof.axes.stability.tables import (
    disagreement,
    floor_panel,
    paper_panel,
    tests_panel,
    unchanged,
)
from heatproof.axes.stability.tiles import worst_pairs
from heatproof.axes.stability.words import verdict
from heatproof.drawing.charts import Chart, Panel
from heatproof.drawing.plots import (
    WIDE,
    Curve,
    Mark,
    by_method,
    cells,
    curves,
    dots,
    mark,
    of_marks,
)
from heatproof.drawing.prose import listing, number, records
from heatproof.drawing.sheet import Plot
from heatproof.evaluation import Condition

MOST_DOTS = 120
"""With more methods × perturbations a table of cells takes the place of dots."""
MOST_SWEPT = 12
"""Plots of a sweep, that of the predictions among them."""


def lead(result: AxisResult) -> list[str]:
    """Return which method is the most stable, in sentences."""
    made = frames(result)
    return ["Nothing can be concluded: there is no score."] if made is None else verdict(made)


def parts(result: AxisResult) -> list[Chart | Panel]:
    """Return every chart and panel that the rows have data for, in reading order."""
    made = frames(result)
    if made is None:
        return []
    page: list[Chart | Panel | None] = [
        score_chart(made),
        components_chart(made),
        retention_chart(made),
        worst_pairs(result),
        *severity_charts(made),
        paper_panel(made),
        tests_panel(made),
        floor_panel(made),
    ]
    return [part for part in page if part is not None]


PAGE = Page(lead, parts)


def score_chart(frames: Frames) -> Chart | None:
    """Overall scores, and those under every perturbation: dots with intervals, or cells where there are many."""
    rows = frames.ranking[frames.ranking["score"].notna()]
    if rows.empty:
        return None
    looks, chance = frames.result.looks, 0.0 if frames.calibrated else float("nan")
    overall = [
        mark(looks[r.explainer], r.score, r.low, r.high, chance, said=_rank(r))
        for r in records(rows)
    ]
    small = len(rows) * len(frames.cube.conditions) <= MOST_DOTS
    table = condition_cells(frames)
    each = [
        [row.get(c, Mark(name, float("nan"))) for name, row in table.items()]
        for c in frames.cube.conditions
    ]
    ends = of_marks([*overall, *(m for column in each for m in column if small)], 0.0, 1.0)
    width = (
        202.0 if len(frames.cube.conditions) == 5 else WIDE
    )  # the usual five stand beside the overall scores
    plots = [dots("All perturbations", overall, ends, width=width)]
    held = {
        (r.condition, r.level): f"{r.held} of {r.attempted} kept"
        for r in records(unchanged(frames.cells()))
    }
    for condition, column in zip(frames.cube.conditions, each, strict=True) if small else ():
        plots.append(dots(title(*condition), column, ends, note=held[condition], width=width))
    first = frames.ranking.iloc[0]
    if frames.calibrated:
        caption = "Calibrated scores: 0 is chance, 1 is a map that does not change. "
    else:
        caption = "Raw scores: 0 to 1. "
    caption += "Dot: the mean over the inputs whose prediction stays. Band: 95 % interval over samples, with the "
    caption += "choice of those that chance is taken from. "
    if frames.calibrated:
        caption += "Hollow: the interval reaches chance. "
    if frames.moving:
        sample = frames.result.words.sample
        caption += f"Where a perturbation moves the {sample}, the original map is moved along before it is compared."
    alt = f"Scores of {len(rows)} explainers, first {looks[first['explainer']].name} with {number(first['score'])}."
    folded = {} if small else {"Every method under every perturbation": [cell_plot(frames)]}
    return Chart("scores", "Which maps hold", caption.strip(), alt, plots, folded)


def _rank(row: Any) -> str:
    return (
        "A control, which has no rank"
        if row.control
        else f"Rank {row.rank_low:.0f} to {row.rank_high:.0f}"
    )


def condition_cells(frames: Frames) -> dict[str, dict[Condition, Mark]]:
    """The score under each condition by the name of the method, the best method first."""
    looks, chance = frames.result.looks, 0.0 if frames.calibrated else float("nan")
    table: dict[str, dict[Condition, Mark]] = {
        looks[e].name: {} for e in frames.ranking["explainer"]
    }
    for r in records(frames.cells()):
        kept, best = f"{r.retained} of {r.attempted} pairs kept", (r.best, r.best_low, r.best_high)
        table[looks[r.explainer].name][r.condition, r.level] = mark(
            looks[r.explainer], *best, chance, said=kept
        )
    return table


def cell_plot(frames: Frames) -> Plot:
    """Methods by perturbations as a table of cells."""
    table, conditions = condition_cells(frames), frames.cube.conditions
    return cells(
        [*table],
        [title(*c) for c in conditions],
        [[row.get(c) for c in conditions] for row in table.values()],
    )


def components_chart(frames: Frames) -> Chart | None:
    """A plot for each of SSIM, Spearman and Jaccard."""
    if not any(frame["score"].notna().any() for frame in frames.components.values()):
        return None
    order, looks, plots = frames.ranking["explainer"].tolist(), frames.result.looks, {}
    chance = 0.0 if frames.calibrated else float("nan")
    for component, frame in frames.components.items():
        part = frame.set_index("explainer").reindex(order)
        plots[frames.title_of(component)] = [
            mark(looks[str(e)], r.score, r.low, r.high, chance, said=f"Raw {number(r.raw)}")
            for e, r in zip(part.index, records(part), strict=True)
        ]
    words = {"ssim": "structure (SSIM)", "spearman": "order (Spearman)"}
    words["jaccard"] = f"the most important {frames.result.words.parts} (Jaccard)"
    count = {2: "two", 3: "three"}.get(len(frames.components), str(len(frames.components)))
    caption = f"The {count} components of FASS, {'calibrated' if frames.calibrated else 'raw'}, averaged over "
    caption += f"perturbations: {listing(words[c] for c in frames.components)}. "
    caption += (
        "A method that fails in one only shows where its maps break. Bands are 95 % intervals."
    )
    alt = f"{listing(plots)} side by side for every explainer."
    ends = of_marks([m for marks in plots.values() for m in marks], 0.0, 1.0)
    drawn = [dots(name, marks, ends) for name, marks in plots.items()]
    return Chart("components", "Components", caption, alt, drawn, more=disagreement(frames))


def retention_chart(frames: Frames) -> Chart | None:
    """Share of predictions unchanged under each perturbation."""
    if frames.cells().empty:
        return None
    held = (
        unchanged(frames.cells())
        .set_index(["condition", "level"])
        .loc[frames.cube.conditions]
        .reset_index()
    )
    kept = [
        Mark(
            title(r.condition, r.level),
            r.share,
            r.share_low,
            r.share_high,
            said=f"{r.held} of {r.attempted}",
        )
        for r in records(held)
    ]
    caption = "The model alone decides this: the share of perturbed inputs that keep their top class, with exact "
    caption += "95 % intervals. Only these pairs are scored."
    lost = int(frames.cells()["undefined"].sum())
    caption += (
        f" Of those kept, {lost} pairs have no score, for a map of theirs is undefined."
        if lost
        else ""
    )
    alt = f"Shares of unchanged predictions for {len(kept)} perturbations."
    plot = dots("Prediction unchanged", kept, (0.0, 1.0), percent=True, width=340)
    return Chart("retention", "Predictions kept", caption, alt, [plot])


def severity_charts(frames: Frames) -> list[Chart]:
    """Score and share of predictions kept against the level, for every condition with at least two levels."""
    drawn: list[Chart] = []
    looks, order = frames.result.looks, frames.ranking["explainer"].tolist()
    for condition, rows in frames.cells().groupby("condition", sort=False):
        if rows["level"].nunique() < 2:
            continue
        lines = []
        for explainer in order:
            look, own = (
                looks[explainer],
                rows[(rows["explainer"] == explainer) & rows["best"].notna()],
            )
            marks = [
                Mark(look.name, r.best, r.best_low, r.best_high, look.colour, x=r.level)
                for r in records(own.sort_values("level"))
            ]
            lines.append((look, [Curve("", marks, look.colour)]))
        kept = [
            Mark(
                "prediction unchanged",
                r.share,
                r.share_low,
                r.share_high,
                x=r.level,
                said=f"{r.held} of {r.attempted}",
            )
            for r in records(unchanged(rows).sort_values("level"))
        ]
        swept = str(condition).replace("_", " ")
        ends = of_marks([m for _, (own,) in lines for m in own.marks], 0.0, 1.0)
        plots = by_method(lines[: MOST_SWEPT - 1], ends, f"level of {swept}", "score")
        share = curves(
            "Prediction unchanged",
            [Curve("", kept)],
            (0.0, 1.04),
            f"level of {swept}",
            "share",
            percent=True,
        )
        caption = "The score at every level, the other methods faint behind; and the share of "
        caption += "predictions that stay. Bars are 95 % intervals."
        alt = f"Curves of score and predictions kept over {rows['level'].nunique()} levels of {swept}."
        if len(plots) < len(lines):
            caption += f" Drawn are the first {len(plots)} methods; the numbers of all are below."
        drawn.append(
            Chart(f"severity-{len(drawn)}", f"Severity: {swept}", caption, alt, [*plots, share])
        )
    return drawn

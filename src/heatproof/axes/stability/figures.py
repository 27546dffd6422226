"""The FASS paper's figures and tables: components by method, by kind of perturbation, and retention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from heatproof import statistics
from heatproof.axes.material import Material, drawings
from heatproof.axes.stability.evaluation import FASS
from heatproof.axes.stability.frames import Frames, as_in_paper, frames
from heatproof.axes.stability.page import cell_plot, components_chart
from heatproof.axes.stability.perturbations import known, title
from heatproof.axes.stability.tables import unchanged
from heatproof.drawing.charts import Chart
from heatproof.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from heatproof.drawing.pieces import Item, Piece, Skipped, Table, about, subjects
from heatproof.drawing.prose import records
from heatproof.evaluation import Condition
from heatproof.statistics.cubes import Cube

NO_STABILITY = "no stability rows: add `stability` to the study"
NO_SCORE = "no pair of maps was retained, so there is no score"
HEADS = {"ssim": "SSIM", "spearman": "Spn.", "jaccard": "Jac.", "fass": "FASS"}
BOLD = "Bold: the best method and all that the corrected paired test does not separate from it, "
BOLD += "column by column; controls are never bold. Brackets: 95 % intervals over samples."
CALIBRATED = "Calibrated: FASS above chance, 0 is chance and 1 an unchanged map, aligned where maps can be moved. "
UNALIGNED = (
    "The other scores are those of the FASS paper, of maps that are not moved with the input. "
)


def frames_of(material: Material) -> list[tuple[Frames, str]]:
    """The statistics of every dataset and model, each with the words that tell it from the others."""
    every = [one for result in material.of("stability") if (one := frames(result)) is not None]
    return list(zip(every, subjects([one.cube for one in every]), strict=True))


def retained(every: Sequence[Frames]) -> pd.DataFrame:
    """The share of unchanged predictions per dataset, model, condition and level, in the order of the conditions."""
    blocks = []
    for one in every:
        held = unchanged(one.cells()).assign(dataset=one.cube.dataset, model=one.cube.model)
        position = {condition: i for i, condition in enumerate(one.cube.conditions)}
        order = [position[c] for c in zip(held["condition"], held["level"], strict=True)]
        blocks.append(held.iloc[np.argsort(order)])
    # two evaluations of one model may share a condition, whose predictions are then the same
    return pd.concat(blocks, ignore_index=True).drop_duplicates(
        ["dataset", "model", "condition", "level"]
    )


def method_maps(material: Material, width: float) -> Iterator[Piece]:
    """Methods by perturbations, the best method at the top, calibrated where there is chance."""

    def chart(one: Frames) -> Chart | None:
        if one.cells()["best"].isna().all():
            return None
        kind = "Calibrated FASS" if one.calibrated else "FASS"
        caption = (
            "0 is chance, 1 an unchanged map; grey cells have no score." if one.calibrated else ""
        )
        return Chart(
            "map", f"{kind} of every method under every perturbation", caption, "", [cell_plot(one)]
        )

    every = [(one.result, chart(one)) for one, _ in frames_of(material)]
    yield from drawings(every, NO_STABILITY, NO_SCORE)


def component_plots(material: Material, width: float) -> Iterator[Piece]:
    """SSIM, Spearman and Jaccard of every method side by side, with intervals."""
    every = [(one.result, components_chart(one)) for one, _ in frames_of(material)]
    yield from drawings(every, NO_STABILITY, "no component has a score")


def component_table(material: Material, width: float) -> Iterator[Piece]:
    """SSIM, Spearman, Jaccard, FASS and the calibrated score of every method, grouped by dataset and model."""
    every = frames_of(material)
    if not every:
        yield Skipped("", NO_STABILITY)
        return
    rows: list[list[Entry]] = []
    rules: dict[int, str] = {}
    named = [m for m in HEADS if any(m in one.cube.values for one, _ in every)]
    calibrated = any(one.calibrated for one, _ in every)
    for one, subject in every:
        if subject:
            rules[len(rows)] = escape(subject)
        rows += _component_rows(one.cube, one.ranking["explainer"], named, calibrated)
    heads = ["Method", *(HEADS[m] for m in named), *(["Calibrated"] if calibrated else [])]
    where = about(every[0][0].cube) if len(every) == 1 else "every dataset and model"
    caption = f"Stability of attribution methods, averaged over perturbations and retained pairs: {where}. "
    caption += "Spn. = Spearman; Jac. = Jaccard. " + (CALIBRATED if calibrated else "")
    caption += (UNALIGNED if any(one.moving for one, _ in every) else "") + BOLD
    yield Table("", caption, Tabular(heads, rows, rules))


def _component_rows(
    cube: Cube, order: Iterable[str], named: Sequence[str], calibrated: bool
) -> list[list[Entry]]:
    """A row per explainer; the columns are those of the FASS paper's Table 4 and the calibrated score."""
    paper = as_in_paper(cube)
    columns = [_column(paper, m) if m in paper.values else {} for m in named]
    if calibrated:
        columns.append(_column(cube, FASS))
    empty = Cell(float("nan"))
    return [[escape(e), *(column.get(e, empty) for column in columns)] for e in order]


def _column(cube: Cube, measure: str) -> dict[str, Cell]:
    """One column: overall scores with their intervals, bold by the tests of the same measure."""
    ranked = statistics.ranking([cube], measure, better="neither").set_index("explainer")
    best = unbeaten(ranked["score"], statistics.paired_tests([cube], measure), cube.controls)
    return {
        str(e): Cell(float(r["score"]), float(r["low"]), float(r["high"]), str(e) in best)
        for e, r in ranked.iterrows()
    }


def families(cube: Cube) -> dict[str, list[Condition]]:
    """The conditions by their family: geometric, photometric, compression, noise and so on."""
    by_family: dict[str, list[Condition]] = {}
    for condition in cube.conditions:
        kind = known(condition[0])
        by_family.setdefault(kind.family if kind else "other", []).append(condition)
    return by_family


def family_table(material: Material, width: float) -> Iterator[Piece]:
    """Component scores by kind of perturbation: every method, and the mean over methods as in the paper's Table 5."""
    every = frames_of(material)
    if not every:
        yield Skipped("", NO_STABILITY)
    for one, subject in every:
        parts = families(one.cube)
        if len(parts) < 2:
            yield Skipped(
                subject,
                "only one kind of perturbation: add others to `perturbations`, such as fass-paper",
            )
            continue
        named = [m for m in HEADS if m in one.cube.values]
        rows: list[list[Entry]] = []
        rules: dict[int, str] = {}
        for family, conditions in parts.items():
            names = ", ".join(dict.fromkeys(title(*c) for c in conditions))
            rules[len(rows)] = escape(f"{family}: {names}")
            own = _component_rows(
                one.cube.select(conditions=conditions),
                one.ranking["explainer"],
                named,
                one.calibrated,
            )
            rows += [*own, ["mean over methods", *_means(own, one.ranking)]]
        heads = ["Method", *(HEADS[m] for m in named), *(["Calibrated"] if one.calibrated else [])]
        caption = f"Component scores by kind of perturbation: {about(one.cube)}. Means over methods leave the "
        caption += f"controls out. {CALIBRATED if one.calibrated else ''}{UNALIGNED if one.moving else ''}{BOLD}"
        yield Table(subject, caption, Tabular(heads, rows, rules))


def _means(rows: list[list[Entry]], ranking: pd.DataFrame) -> list[Entry]:
    methods = [row for row, control in zip(rows, ranking["control"], strict=True) if not control]
    columns = [
        [c.value for c in column if isinstance(c, Cell)] for column in zip(*methods, strict=True)
    ][1:]
    return [Cell(float(np.nanmean(c)) if np.isfinite(c).any() else float("nan")) for c in columns]


def score_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by perturbations, calibrated where there is chance, bold within each perturbation."""
    every = frames_of(material)
    if not every:
        yield Skipped("", NO_STABILITY)
    for one, subject in every:
        columns = [condition_cells(one, condition) for condition in one.cube.conditions]
        missing = Cell(float("nan"))
        rows: list[list[Entry]] = [
            [escape(e), *(column.get(e, missing) for column in columns)]
            for e in one.ranking["explainer"]
        ]
        heads = ["Method", *(escape(title(*c)) for c in one.cube.conditions)]
        kind = "Calibrated FASS, aligned where maps can be moved" if one.calibrated else "FASS"
        caption = f"{kind}, by method and perturbation: {about(one.cube)}. {BOLD}"
        yield Table(subject, caption, Tabular(heads, rows))


def condition_cells(one: Frames, condition: Condition) -> dict[str, Cell]:
    """The score of every explainer under one condition; bold by the paired tests of that condition."""
    cells = one.cells()
    here = cells[(cells["condition"] == condition[0]) & (cells["level"] == condition[1])].set_index(
        "explainer"
    )
    tests = statistics.paired_tests([one.cube.select(conditions=[condition])], FASS)
    best = unbeaten(here["best"], tests, one.cube.controls)
    return {
        str(e): Cell(float(r["best"]), float(r["best_low"]), float(r["best_high"]), str(e) in best)
        for e, r in here.iterrows()
    }


def retention_tables(material: Material, width: float) -> Iterator[Piece]:
    """Retention by perturbation, by dataset, and by architecture and perturbation for each dataset."""
    every = frames_of(material)
    if not every:
        yield Skipped("", NO_STABILITY)
        return
    held = retained([one for one, _ in every])
    yield Table("perturbations", *_by_perturbation(held))
    if held["dataset"].nunique() > 1:
        yield Table("datasets", *_by_dataset(held))
    else:
        yield Skipped("datasets", "only one dataset")
    for dataset, rows in held.groupby("dataset", sort=False):
        several = held["dataset"].nunique() > 1
        yield Table(
            f"architectures, {dataset}" if several else "architectures",
            *_by_architecture(str(dataset), rows),
        )


def _by_perturbation(held: pd.DataFrame) -> tuple[str, Tabular]:
    groups = held.groupby(["condition", "level"], sort=False)
    caption = "Prediction-invariant retention (%) by perturbation"
    if len(held[["dataset", "model"]].drop_duplicates()) == 1:
        rows: list[list[Entry]] = [
            [
                escape(title(r.condition, r.level)),
                str(r.attempted),
                Cell(r.share, r.share_low, r.share_high, False, True),
            ]
            for r in records(held)
        ]
        caption += ": the share of inputs whose predicted class stays, with exact 95 % intervals."
        return caption, Tabular(["Perturbation", "Attempted", "Retained"], rows)
    rows = []
    for (condition, level), own in groups:
        share = own["share"]
        low, high = (f"{100 * v:.1f}" for v in (share.min(), share.max()))
        spread = Cell(float(share.std()), percent=True)
        name = escape(title(str(condition), float(str(level))))
        rows.append([name, Cell(float(share.mean()), percent=True), spread, f"{low}--{high}"])
    caption += ": mean, standard deviation and range over all models and datasets."
    return caption, Tabular(["Perturbation", "Mean", "Std", "Range"], rows)


def _by_dataset(held: pd.DataFrame) -> tuple[str, Tabular]:
    rows: list[list[Entry]] = [
        [escape(str(d)), Cell(float(v.mean()), percent=True), Cell(float(v.std()), percent=True)]
        for d, v in held.groupby("dataset", sort=False)["share"]
    ]
    caption = "Prediction-invariant retention (%) by dataset: mean and standard deviation over models and perturbations."
    return caption, Tabular(["Dataset", "Mean", "Std"], rows)


def _by_architecture(dataset: str, held: pd.DataFrame) -> tuple[str, Tabular]:
    conditions = list(dict.fromkeys(zip(held["condition"], held["level"], strict=True)))
    missing = Cell(float("nan"))
    rows: list[list[Entry]] = []
    for model, own in held.groupby("model", sort=False):
        cells = {
            (r.condition, r.level): Cell(r.share, r.share_low, r.share_high, False, True)
            for r in records(own)
        }
        rows.append([escape(str(model)), *(cells.get(c, missing) for c in conditions)])
    caption = f"Prediction-invariant retention (%) on {dataset}, with exact 95 % intervals."
    return caption, Tabular(["Architecture", *(escape(title(*c)) for c in conditions)], rows)


ITEMS = (
    Item("stability-scores", "FASS, appendix tables", "table", score_table),
    Item("stability-components", "FASS, Table 4", "table", component_table),
    Item("stability-kinds", "FASS, Table 5", "table", family_table),
    Item("stability-retention", "FASS, Tables 2 and 3", "table", retention_tables),
    Item("stability-bars", "FASS, Figure 2", "figure", component_plots),
    Item("stability-map", "FASS, heat maps", "figure", method_maps),
)
"""Everything that can be written, in the order of the paper."""

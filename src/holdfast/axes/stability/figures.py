"""The FASS paper's tables: components by method, by kind of perturbation, and retention."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd

from holdfast import statistics
from holdfast.axes.stability.perturbations import KNOWN, title
from holdfast.axes.stability.words import Findings
from holdfast.drawing.charts import unchanged
from holdfast.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from holdfast.drawing.pieces import Material, Piece, Skipped, Table, about, only, subjects
from holdfast.drawing.prose import records
from holdfast.statistics.cubes import Cube

NO_STABILITY = "no stability rows: add `stability` to the study"
COMPONENTS = ("ssim", "spearman", "jaccard", "fass")
HEADS = {"ssim": "SSIM", "spearman": "Spn.", "jaccard": "Jac.", "fass": "FASS"}
BOLD = "Bold: the best method and all that Wilcoxon's paired test with Holm's correction does not separate from it, "
BOLD += "column by column; controls are never bold. Brackets: 95 % bootstrap intervals over samples."
CALIBRATED = "Calibrated: FASS above chance, 0 is chance and 1 an unchanged map, aligned where maps can be moved. "


def component_table(material: Material, width: float) -> Iterator[Piece]:
    """SSIM, Spearman, Jaccard, FASS and the calibrated score of every method, grouped by dataset and model."""
    if not material.findings:
        yield Skipped("", NO_STABILITY)
        return
    rows: list[list[Entry]] = []
    rules: dict[int, str] = {}
    named = [m for m in COMPONENTS if any(m in f.cube.values for f in material.findings)]
    calibrated = any(f.calibrated for f in material.findings)
    for found, subject in zip(material.findings, subjects([f.cube for f in material.findings]), strict=True):
        if subject:
            rules[len(rows)] = escape(subject)
        rows += _component_rows(found.cube, found.ranking["explainer"], named, calibrated)
    heads = ["Method", *(HEADS[m] for m in named), *(["Calibrated"] if calibrated else [])]
    where = about(material.findings[0].cube) if len(material.findings) == 1 else "every dataset and model"
    caption = f"Stability of attribution methods, averaged over perturbations and retained pairs: {where}. "
    caption += "Spn. = Spearman; Jac. = Jaccard. " + (CALIBRATED if calibrated else "") + BOLD
    yield Table("", caption, Tabular(heads, rows, rules))


def _component_rows(cube: Cube, order: Iterable[str], named: Sequence[str], calibrated: bool) -> list[list[Entry]]:
    """A row per explainer; the columns are those of the FASS paper's Table 4 and the calibrated score."""
    columns = [_column(cube, m, "raw") if m in cube.values else {} for m in named]
    if calibrated:
        columns.append(_column(cube, "fass", "best"))
    empty = Cell(float("nan"))
    return [[escape(e), *(column.get(e, empty) for column in columns)] for e in order]


def _column(cube: Cube, measure: str, form: statistics.Form) -> dict[str, Cell]:
    """One column: overall scores with their intervals, bold by the tests of the same measure and form."""
    ranked = statistics.ranking([cube], measure, form).set_index("explainer")
    best = unbeaten(ranked["score"], statistics.paired_tests([cube], measure, form))
    return {
        str(e): Cell(float(r["score"]), float(r["low"]), float(r["high"]), str(e) in best) for e, r in ranked.iterrows()
    }


def families(cube: Cube) -> dict[str, list[tuple[str, float]]]:
    """The conditions by their family: geometric, photometric, compression, noise and so on."""
    found: dict[str, list[tuple[str, float]]] = {}
    for condition in cube.conditions:
        kind = KNOWN.get(condition[0].split("(", maxsplit=1)[0])
        family = str(getattr(kind, "family", "other"))
        if family != "control":
            found.setdefault(family, []).append(condition)
    return found


def family_table(material: Material, width: float) -> Iterator[Piece]:
    """Component scores by kind of perturbation: every method, and the mean over methods as in the paper's Table 5."""
    if not material.findings:
        yield Skipped("", NO_STABILITY)
    for found, subject in zip(material.findings, subjects([f.cube for f in material.findings]), strict=True):
        parts = families(found.cube)
        if len(parts) < 2:
            yield Skipped(subject, "only one kind of perturbation: add others to `perturbations`, such as fass-paper")
            continue
        named = [m for m in COMPONENTS if m in found.cube.values]
        rows: list[list[Entry]] = []
        rules: dict[int, str] = {}
        for family, conditions in parts.items():
            names = ", ".join(dict.fromkeys(title(*c) for c in conditions))
            rules[len(rows)] = escape(f"{family}: {names}")
            own = _component_rows(only(found.cube, conditions), found.ranking["explainer"], named, found.calibrated)
            rows += [*own, ["mean over methods", *_means(own, found.ranking)]]
        heads = ["Method", *(HEADS[m] for m in named), *(["Calibrated"] if found.calibrated else [])]
        caption = f"Component scores by kind of perturbation: {about(found.cube)}. Means over methods leave the "
        caption += f"controls out. {CALIBRATED if found.calibrated else ''}{BOLD}"
        yield Table(subject, caption, Tabular(heads, rows, rules))


def _means(rows: list[list[Entry]], ranking: pd.DataFrame) -> list[Entry]:
    methods = [row for row, control in zip(rows, ranking["control"], strict=True) if not control]
    columns = [[c.value for c in column if isinstance(c, Cell)] for column in zip(*methods, strict=True)][1:]
    return [Cell(float(np.nanmean(c)) if np.isfinite(c).any() else float("nan")) for c in columns]


def score_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by perturbations with the best available form of each score, bold within each perturbation."""
    if not material.findings:
        yield Skipped("", NO_STABILITY)
    for found, subject in zip(material.findings, subjects([f.cube for f in material.findings]), strict=True):
        columns = [condition_cells(found, condition) for condition in found.cube.conditions]
        missing = Cell(float("nan"))
        rows: list[list[Entry]] = [
            [escape(e), *(column.get(e, missing) for column in columns)] for e in found.ranking["explainer"]
        ]
        heads = ["Method", *(escape(title(*c)) for c in found.cube.conditions)]
        kind = "Calibrated FASS, aligned where maps can be moved" if found.calibrated else "FASS"
        caption = f"{kind}, by method and perturbation: {about(found.cube)}. {BOLD}"
        yield Table(subject, caption, Tabular(heads, rows))


def condition_cells(found: Findings, condition: tuple[str, float]) -> dict[str, Cell]:
    """The best available score of every explainer under one condition; bold by the paired tests of that condition."""
    cells = found.cells()
    here = cells[(cells["condition"] == condition[0]) & (cells["level"] == condition[1])].set_index("explainer")
    best = unbeaten(here["best"], statistics.paired_tests([only(found.cube, [condition])]))
    return {
        str(e): Cell(float(r["best"]), float(r["best_low"]), float(r["best_high"]), str(e) in best)
        for e, r in here.iterrows()
    }


def retention_tables(material: Material, width: float) -> Iterator[Piece]:
    """Retention by perturbation, by dataset, and by architecture and perturbation for each dataset."""
    if not material.findings:
        yield Skipped("", NO_STABILITY)
        return
    held = retained(material.findings)
    yield Table("perturbations", *_by_perturbation(held))
    if held["dataset"].nunique() > 1:
        yield Table("datasets", *_by_dataset(held))
    else:
        yield Skipped("datasets", "only one dataset")
    for dataset, rows in held.groupby("dataset", sort=False):
        several = held["dataset"].nunique() > 1
        yield Table(f"architectures, {dataset}" if several else "architectures", *_by_architecture(str(dataset), rows))


def retained(found: Sequence[Findings]) -> pd.DataFrame:
    """The share of unchanged predictions per dataset, model, condition and level; no explainer has a say in it."""
    frames = []
    for f in found:
        cells = f.cells()
        frame = unchanged(cells).assign(dataset=f.dataset, model=f.model)
        place = {condition: i for i, condition in enumerate(f.cube.conditions)}
        order = [place[c] for c in zip(frame["condition"], frame["level"], strict=True)]
        frames.append(frame.iloc[np.argsort(order)])
    # two evaluations of one model may share a condition, whose predictions are then the same
    return pd.concat(frames, ignore_index=True).drop_duplicates(["dataset", "model", "condition", "level"])


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
        caption += ": the share of inputs whose predicted class stays, with Wilson's 95 % intervals."
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
    caption = (
        "Prediction-invariant retention (%) by dataset: mean and standard deviation over models and perturbations."
    )
    return caption, Tabular(["Dataset", "Mean", "Std"], rows)


def _by_architecture(dataset: str, held: pd.DataFrame) -> tuple[str, Tabular]:
    conditions = list(dict.fromkeys(zip(held["condition"], held["level"], strict=True)))
    missing = Cell(float("nan"))
    rows: list[list[Entry]] = []
    for model, own in held.groupby("model", sort=False):
        cells = {(r.condition, r.level): Cell(r.share, r.share_low, r.share_high, False, True) for r in records(own)}
        rows.append([escape(str(model)), *(cells.get(c, missing) for c in conditions)])
    caption = f"Prediction-invariant retention (%) on {dataset}, with Wilson's 95 % intervals."
    return caption, Tabular(["Architecture", *(escape(title(*c)) for c in conditions)], rows)

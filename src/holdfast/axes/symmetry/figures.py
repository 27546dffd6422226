"""Figures of the invariance paper: scores by method and group, symmetrised methods, and less invariant models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from holdfast.axes.material import Material
from holdfast.axes.symmetry.evaluation import Symmetry
from holdfast.axes.symmetry.frames import INVARIANT, KINDS, Symmetries, paired_tests, repaired, symmetries
from holdfast.axes.symmetry.relations import score_title
from holdfast.drawing import style
from holdfast.drawing.charts import CONTROL, PALETTE
from holdfast.drawing.curves import curve, curve_panels
from holdfast.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from holdfast.drawing.pieces import Drawing, Item, Piece, Skipped, Table, about, pages, subjects
from holdfast.drawing.prose import number, records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_SYMMETRY = "no symmetry rows: add `symmetry` to the study"
MOST_BOXES = 40


def _measured(material: Material) -> list[Symmetries]:
    return [measured for judged in material.of(Symmetry.name) if (measured := symmetries(judged)) is not None]


def boxes(material: Material, width: float) -> Iterator[Piece]:
    """A box per method over its samples, grouped by kind, a panel for every group of symmetries."""
    every = _measured(material)
    by_model: dict[tuple[str, str], list[Symmetries]] = {}
    for measured in every:
        if measured.means["mean"].notna().any():
            by_model.setdefault((measured.judged.cube.dataset, measured.judged.cube.model), []).append(measured)
    if not by_model:
        yield Skipped("", "no explanation has a symmetry score" if every else NO_SYMMETRY)
    names = subjects([groups[0].judged.cube for groups in by_model.values()])
    for subject, groups in zip(names, by_model.values(), strict=True):
        means = pd.concat([measured.means[measured.means["mean"].notna()] for measured in groups])
        means = means.sort_values("kind", key=lambda kinds: kinds.map(KINDS.index), kind="stable")
        for part, methods in style.parts(list(dict.fromkeys(means["explainer"])), MOST_BOXES):
            figure = box_figure(groups, methods, width)
            yield Drawing(", ".join(filter(None, (subject, part))), _box_caption(groups), figure)


def _box_caption(groups: Sequence[Symmetries]) -> str:
    titles = "; ".join(f"{m.title} (model invariance {number(m.model.value, 3)})" for m in groups)
    caption = f"How far explanations respect symmetries: {about(groups[0].judged.cube)}. Group: {titles}. Boxes hold "
    caption += "the middle half of the samples, whiskers reach to the last within 1.5 box lengths, dots are samples "
    caption += "beyond, diamonds means; ticks mark chance. Controls are grey."
    if any(not m.whole for m in groups):
        caption += " Elements of the group were drawn, not all tried."
    return caption


def box_figure(groups: Sequence[Symmetries], methods: Sequence[str], width: float) -> Figure:
    """Panels side by side, one per evaluation, or under each other where the figure is narrow."""
    across = len(groups) if width / len(groups) >= 2.6 else 1
    down = -(-len(groups) // across)
    lines = [style.wrapped(m).count("\n") + 1 for m in methods]
    each = 0.105 * max(lines) + 0.1
    figure = style.blank(width, down * (each * len(methods) + 0.55))
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for i, (axes, one) in enumerate(zip(panels.ravel(), groups, strict=True)):
        _draw_boxes(axes, one, methods)
        axes.set_yticks(range(len(methods)), [style.wrapped(m) for m in methods])
        axes.set_ylim(len(methods) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(score_title(one.means["measure"]) if i // across == down - 1 else "")
        if len(groups) > 1:
            axes.set_title(style.wrapped(one.title, max(24, int(width / across / 0.066))), loc="left")
    low = min(float(np.nanmin([one.scores["value"].min(), one.means["chance"].min()])) for one in groups)
    panels[0, 0].set_xlim(min(0.0, low) - 0.03, 1.03)
    return figure


def _draw_boxes(axes: Axes, measured: Symmetries, methods: Sequence[str]) -> None:
    known = {r.explainer: r for r in records(measured.means)}
    for y, method in enumerate(methods):
        row = known.get(method)
        values = measured.scores.loc[measured.scores["explainer"] == method, "value"].dropna()
        if row is None or values.empty:
            continue
        colour = CONTROL if row.control else PALETTE[KINDS.index(row.kind) % len(PALETTE)]
        line = {"color": colour, "linewidth": 0.8}
        axes.boxplot(
            values.to_numpy(float),
            positions=[y],
            widths=0.55,
            orientation="horizontal",
            patch_artist=True,
            manage_ticks=False,
            boxprops={"facecolor": colour + "30", "edgecolor": colour, "linewidth": 0.8},
            medianprops={"color": colour, "linewidth": 1.4},
            whiskerprops=line,
            capprops=line,
            flierprops={"marker": ".", "markersize": 2, "markeredgecolor": colour, "markerfacecolor": colour},
        )
        axes.plot([row.mean], [y], marker="D", markersize=2.8, color=colour, markeredgecolor="white", zorder=4)
        if math.isfinite(row.chance):
            axes.plot([row.chance] * 2, [y - 0.38, y + 0.38], color="#555555", linewidth=0.9, zorder=3)


def score_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by kind with mean score, chance and floor; bold by the paired tests within each measure and kind."""
    every = _measured(material)
    if not every:
        yield Skipped("", NO_SYMMETRY)
    for measured, subject in zip(every, subjects([m.judged.cube for m in every]), strict=True):
        if measured.means["mean"].isna().all():
            yield Skipped(subject, "no explanation has a symmetry score")
            continue
        rows: list[list[Entry]] = []
        rules: dict[int, str] = {}
        for (kind, measure), methods in measured.means.groupby(["kind", "measure"], sort=False):
            rules[len(rows)] = escape(f"{kind} explanations: {measure}")
            tests = paired_tests(measured, methods)
            best = unbeaten(methods.set_index("explainer")["mean"], tests, measured.controls)
            for r in records(methods):
                score = Cell(r.mean, r.mean_low, r.mean_high, r.explainer in best)
                rows.append([escape(r.explainer), score, Cell(r.chance), Cell(r.floor), f"{r.n}/{r.attempted}"])
        caption = f"Symmetry of explanations: {about(measured.judged.cube)}, group {measured.title}; model invariance "
        caption += f"{number(measured.model.value, 3)}. Chance: against the explanations of other samples; floor: the "
        caption += "same input with other random draws. Bold: the best method and all that Wilcoxon's paired test with "
        caption += "Holm's correction does not separate from it; controls are never bold. Brackets: 95 % bootstrap "
        caption += "intervals over samples."
        yield Table(subject, caption, Tabular(["Method", "Score", "Chance", "Floor", "Scored"], rows, rules))


def symmetrised_curves(material: Material, width: float) -> Iterator[Piece]:
    """The score of a method averaged over n elements of the group, from the plain one at n = 1."""
    every = _measured(material)
    if not every:
        yield Skipped("", NO_SYMMETRY)
    for measured, subject in zip(every, subjects([m.judged.cube for m in every]), strict=True):
        rows = repaired(measured)
        if rows.empty:
            yield Skipped(subject, "no symmetrised explanations: set `repair` of `symmetry`, such as repair: [2, 4]")
            continue
        caption = f"Explanations averaged over n elements of the group: {about(measured.judged.cube)}, group "
        caption += f"{measured.title}. n = 1 is the method as it is; over the whole group the score is 1 by "
        caption += (
            "construction, which says nothing about faithfulness. Means over samples with 95 % bootstrap intervals."
        )
        yield from pages(subject, caption, symmetrised_figures(rows, material.looks_of(rows["explainer"]), width))


def symmetrised_figures(rows: pd.DataFrame, looks: style.Looks, width: float) -> list[Figure]:
    """`rows` are those of `repaired`: explainer, measure, level, mean, low, high."""
    levels = sorted(set(rows["level"]))
    low = float(np.nanmin(rows[["mean", "low"]].to_numpy(dtype=np.float64)))

    def draw(axes: Axes, column: int, explainer: str, look: dict[str, Any]) -> None:
        curve(axes, rows[rows["explainer"] == explainer], look, explainer)

    def finish(axes: Axes, column: int, first: bool) -> None:
        axes.set_xscale("log", base=2)
        axes.set_xticks(levels, [f"{n:g}" for n in levels])
        axes.minorticks_off()
        axes.set(xlabel="n, elements averaged over", ylabel=score_title(rows["measure"]))
        axes.set_ylim(math.floor(10 * low) / 10 - 0.03, 1.03)

    return curve_panels(looks, [""], width, draw, finish, each=min(2.3, 0.62 * width))


def relaxed(material: Material, width: float) -> Iterator[Piece]:
    """Means of several models against their own invariance, a panel per kind of explanation, a curve per method."""
    every = _measured(material)
    if not every:
        yield Skipped("", NO_SYMMETRY)
    by_evaluation: dict[tuple[str, str], list[Symmetries]] = {}
    for measured in every:
        if math.isfinite(measured.model.value):
            cube = measured.judged.cube
            by_evaluation.setdefault((cube.dataset, cube.evaluation), []).append(measured)
    names = subjects([models[0].judged.cube for models in by_evaluation.values()])
    for subject, models in zip(names, by_evaluation.values(), strict=True):
        if len(models) < 2:
            why = "only one model, which is invariant" if models[0].model.value >= INVARIANT else "only one model"
            yield Skipped(subject, f"{why}: name models of different invariance under `models`")
            continue
        models.sort(key=lambda measured: measured.model.value)
        listed = "; ".join(f"{m.judged.cube.model} {number(m.model.value, 3)}" for m in models)
        caption = f"Symmetry of explanations against the invariance of the model on {models[0].judged.cube.dataset}: "
        caption += f"{listed}. Means over samples with 95 % bootstrap intervals; on the dotted line an explanation is "
        caption += "as alike as the predictions are. Nothing was measured between two models."
        yield from pages(subject, caption, relaxed_figures(models, material.looks, width))


def relaxed_figures(models: Sequence[Symmetries], looks: style.Looks, width: float) -> list[Figure]:
    """`models` from the least to the most invariant one."""
    frame = pd.concat(
        [m.means.assign(level=m.model.value, low=m.means["mean_low"], high=m.means["mean_high"]) for m in models]
    )
    frame = frame[frame["mean"].notna()]
    kinds = [kind for kind in KINDS if kind in set(frame["kind"])]
    drawn = {e: look for e, look in looks.items() if e in set(frame["explainer"])}
    low = min(m.model.value if math.isnan(m.model.low) else m.model.low for m in models)
    edge = low - 0.06 * max(1 - low, 0.01)
    floor = min(0.0, float(np.nanmin(frame[["mean", "low"]].to_numpy(dtype=np.float64))))

    def draw(axes: Axes, column: int, explainer: str, look: dict[str, Any]) -> None:
        means = frame[(frame["explainer"] == explainer) & (frame["kind"] == kinds[column])]
        curve(axes, means, {**look, "linewidth": 0.7}, explainer)

    def finish(axes: Axes, column: int, first: bool) -> None:
        axes.plot([edge, 1], [edge, 1], color="#888888", linewidth=0.7, linestyle=(0, (1, 2)), zorder=0)
        axes.set_xlim(edge, 1 + 0.06 * max(1 - low, 0.01))
        axes.set_ylim(floor - 0.03, 1.05)
        axes.locator_params(axis="x", nbins=5)
        measures = frame.loc[frame["kind"] == kinds[column], "measure"]
        axes.set_xlabel("model invariance")
        axes.set_ylabel(score_title(measures))

    titles = [f"{kind} explanations" for kind in kinds] if len(kinds) > 1 else [""]
    return curve_panels(drawn, titles, width, draw, finish, each=min(2.3, 0.62 * width))


ITEMS = (
    Item("symmetry-boxes", "explanation invariance, Figure 3", "figure", boxes),
    Item("symmetry-symmetrised", "explanation invariance, Figure 4", "figure", symmetrised_curves),
    Item("symmetry-relaxed", "explanation invariance, Figure 5", "figure", relaxed),
    Item("symmetry-scores", "explanation invariance, Tables 14 and 15", "table", score_table),
)

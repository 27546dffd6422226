"""The invariance paper's figures: scores by method and group, symmetrised methods, and less invariant models."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from holdfast.axes.contract import Judged
from holdfast.axes.symmetry.frames import INVARIANT, KINDS, Symmetries, paired_tests
from holdfast.axes.symmetry.page import repaired
from holdfast.axes.symmetry.relations import score_title
from holdfast.drawing import style
from holdfast.drawing.charts import CONTROL, PALETTE
from holdfast.drawing.curves import curve, curve_panels
from holdfast.drawing.latex import Cell, Entry, Tabular, escape, unbeaten
from holdfast.drawing.pieces import Drawing, Material, Piece, Skipped, Table, about, pages, subjects
from holdfast.drawing.prose import number, records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NO_SYMMETRY = "no symmetry rows: add `symmetry` to the study"
MOST_BOXES = 40
Found = tuple[Judged, Symmetries]


def boxes(material: Material, width: float) -> Iterator[Piece]:
    """A box per method over its samples, grouped by kind, a panel for every group of symmetries."""
    places: dict[tuple[str, str], list[Found]] = {}
    for axis, found in material.symmetric:
        if found.means["mean"].notna().any():
            places.setdefault((axis.cube.dataset, axis.cube.model), []).append((axis, found))
    if not places:
        yield Skipped("", "no explanation has a symmetry score" if material.symmetric else NO_SYMMETRY)
    names = subjects([judged[0][0].cube for judged in places.values()])
    for subject, judged in zip(names, places.values(), strict=True):
        every = pd.concat([found.means[found.means["mean"].notna()] for _, found in judged])
        order = every.assign(place=every["kind"].map(KINDS.index)).sort_values("place", kind="stable")
        for part, methods in style.parts(list(dict.fromkeys(order["explainer"])), MOST_BOXES):
            figure = box_figure([found for _, found in judged], methods, width)
            yield Drawing(", ".join(filter(None, (subject, part))), _box_caption(judged), figure)


def _box_caption(judged: Sequence[Found]) -> str:
    cube = judged[0][0].cube
    groups = "; ".join(f"{found.title} (model invariance {number(found.model.value, 3)})" for _, found in judged)
    caption = f"How far explanations respect symmetries: {about(cube)}. Group: {groups}. Boxes hold the middle half of "
    caption += "the samples, whiskers reach to the last within 1.5 box lengths, dots are samples beyond, diamonds "
    caption += "means; ticks mark chance. Controls are grey."
    if any(not found.whole for _, found in judged):
        caption += " Elements of the group were drawn, not all tried."
    return caption


def box_figure(found: Sequence[Symmetries], methods: Sequence[str], width: float) -> Figure:
    """Panels side by side, one per evaluation, or under each other where the figure is narrow."""
    across = len(found) if width / len(found) >= 2.6 else 1
    down = -(-len(found) // across)
    lines = [style.wrapped(m).count("\n") + 1 for m in methods]
    each = 0.105 * max(lines) + 0.1
    figure = style.blank(width, down * (each * len(methods) + 0.55))
    panels = figure.subplots(down, across, squeeze=False, sharex=True, sharey=True)
    for i, (axes, one) in enumerate(zip(panels.ravel(), found, strict=True)):
        _draw_boxes(axes, one, methods)
        axes.set_yticks(range(len(methods)), [style.wrapped(m) for m in methods])
        axes.set_ylim(len(methods) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_xlabel(score_title(one.means["measure"]) if i // across == down - 1 else "")
        if len(found) > 1:
            axes.set_title(style.wrapped(one.title, max(24, int(width / across / 0.066))), loc="left")
    low = min(float(np.nanmin([one.scores["value"].min(), one.means["chance"].min()])) for one in found)
    panels[0, 0].set_xlim(min(0.0, low) - 0.03, 1.03)
    return figure


def _draw_boxes(axes: Axes, found: Symmetries, methods: Sequence[str]) -> None:
    known = {r.explainer: r for r in records(found.means)}
    for place, method in enumerate(methods):
        row = known.get(method)
        own = found.scores.loc[(found.scores["explainer"] == method) & found.scores["value"].notna(), "value"]
        if row is None or own.empty:
            continue
        colour = CONTROL if row.control else PALETTE[KINDS.index(row.kind) % len(PALETTE)]
        line = {"color": colour, "linewidth": 0.8}
        axes.boxplot(
            own.to_numpy(float),
            positions=[place],
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
        axes.plot([row.mean], [place], marker="D", markersize=2.8, color=colour, markeredgecolor="white", zorder=4)
        if math.isfinite(row.chance):
            axes.plot([row.chance] * 2, [place - 0.38, place + 0.38], color="#555555", linewidth=0.9, zorder=3)


def score_table(material: Material, width: float) -> Iterator[Piece]:
    """Methods by kind with mean score, chance and floor; bold by the paired tests within each measure and kind."""
    if not material.symmetric:
        yield Skipped("", NO_SYMMETRY)
    for (axis, found), subject in zip(
        material.symmetric, subjects([a.cube for a, _ in material.symmetric]), strict=True
    ):
        if found.means["mean"].isna().all():
            yield Skipped(subject, "no explanation has a symmetry score")
            continue
        rows: list[list[Entry]] = []
        rules: dict[int, str] = {}
        for (kind, measure), own in found.means.groupby(["kind", "measure"], sort=False):
            rules[len(rows)] = escape(f"{kind} explanations: {measure}")
            best = unbeaten(own.set_index("explainer")["mean"], paired_tests(axis, found, own))
            for r in records(own):
                score = Cell(r.mean, r.mean_low, r.mean_high, r.explainer in best)
                rows.append([escape(r.explainer), score, Cell(r.chance), Cell(r.floor), f"{r.n}/{r.attempted}"])
        caption = f"Symmetry of explanations: {about(axis.cube)}, group {found.title}; model invariance "
        caption += f"{number(found.model.value, 3)}. Chance: against the explanations of other samples; floor: the "
        caption += "same input with other random draws. Bold: the best method and all that Wilcoxon's paired test with "
        caption += "Holm's correction does not separate from it; controls are never bold. Brackets: 95 % bootstrap "
        caption += "intervals over samples."
        yield Table(subject, caption, Tabular(["Method", "Score", "Chance", "Floor", "Scored"], rows, rules))


def symmetrised_curves(material: Material, width: float) -> Iterator[Piece]:
    """The score of a method averaged over n elements of the group, from the plain one at n = 1."""
    if not material.symmetric:
        yield Skipped("", NO_SYMMETRY)
    for (axis, found), subject in zip(
        material.symmetric, subjects([a.cube for a, _ in material.symmetric]), strict=True
    ):
        rows = repaired(axis, found)
        if rows.empty:
            yield Skipped(subject, "no symmetrised explanations: set `repair` of `symmetry`, such as repair: [2, 4]")
            continue
        caption = f"Explanations averaged over n elements of the group: {about(axis.cube)}, group {found.title}. "
        caption += "n = 1 is the method as it is; over the whole group the score is 1 by construction, which says "
        caption += "nothing about faithfulness. Means over samples with 95 % bootstrap intervals."
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
    if not material.symmetric:
        yield Skipped("", NO_SYMMETRY)
        return
    groups: dict[tuple[str, str], list[Found]] = {}
    for axis, found in material.symmetric:
        if math.isfinite(found.model.value):
            groups.setdefault((axis.cube.dataset, axis.cube.evaluation), []).append((axis, found))
    names = subjects([judged[0][0].cube for judged in groups.values()])
    for subject, judged in zip(names, groups.values(), strict=True):
        if len(judged) < 2:
            why = "only one model, which is invariant" if judged[0][1].model.value >= INVARIANT else "only one model"
            yield Skipped(subject, f"{why}: name models of different invariance under `models`")
            continue
        ordered = sorted(judged, key=lambda pair: pair[1].model.value)
        models = "; ".join(f"{a.cube.model} {number(f.model.value, 3)}" for a, f in ordered)
        caption = f"Symmetry of explanations against the invariance of the model on {ordered[0][0].cube.dataset}: "
        caption += f"{models}. Means over samples with 95 % bootstrap intervals; on the dotted line an explanation is "
        caption += "as alike as the predictions are. Nothing was measured between two models."
        yield from pages(subject, caption, relaxed_figures(ordered, material.looks, width))


def relaxed_figures(judged: Sequence[Found], looks: style.Looks, width: float) -> list[Figure]:
    """`judged` from the least to the most invariant model."""
    frame = pd.concat(
        [f.means.assign(level=f.model.value, low=f.means["mean_low"], high=f.means["mean_high"]) for _, f in judged]
    )
    frame = frame[frame["mean"].notna()]
    kinds = [kind for kind in KINDS if kind in set(frame["kind"])]
    drawn = {e: look for e, look in looks.items() if e in set(frame["explainer"])}
    low = min(f.model.value if math.isnan(f.model.low) else f.model.low for _, f in judged)
    edge = low - 0.06 * max(1 - low, 0.01)
    floor = min(0.0, float(np.nanmin(frame[["mean", "low"]].to_numpy(dtype=np.float64))))

    def draw(axes: Axes, column: int, explainer: str, look: dict[str, Any]) -> None:
        own = frame[(frame["explainer"] == explainer) & (frame["kind"] == kinds[column])]
        curve(axes, own, {**look, "linewidth": 0.7}, explainer)

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

"""The FASS paper's figures: heat maps by method or architecture and perturbation, and bars of the components."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from holdfast.axes.material import Material
from holdfast.axes.stability.frames import Frames, frames
from holdfast.axes.stability.perturbations import title
from holdfast.axes.stability.tables import unchanged
from holdfast.drawing import style
from holdfast.drawing.charts import PALETTE
from holdfast.drawing.pieces import Drawing, Piece, Skipped, about, pages, subjects
from holdfast.drawing.prose import number, records

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Grid = NDArray[np.float64]
MOST_ROWS = 30
MOST_BARS, MOST_BAR_ROWS = 8, 5
LEAST_CELL = 0.2
"""Inches that a cell must have for its number to be written in it."""
NO_STABILITY = "no stability rows: add `stability` to the study"


def frames_of(material: Material) -> list[tuple[Frames, str]]:
    """The statistics of every dataset and model, each with the words that tell it from the others."""
    every = [one for judged in material.of("stability") if (one := frames(judged)) is not None]
    return list(zip(every, subjects([one.cube for one in every]), strict=True))


def retained(every: Sequence[Frames]) -> pd.DataFrame:
    """The share of unchanged predictions per dataset, model, condition and level, in the order of the conditions."""
    blocks = []
    for one in every:
        held = unchanged(one.cells()).assign(dataset=one.dataset, model=one.model)
        position = {condition: i for i, condition in enumerate(one.cube.conditions)}
        order = [position[c] for c in zip(held["condition"], held["level"], strict=True)]
        blocks.append(held.iloc[np.argsort(order)])
    # two evaluations of one model may share a condition, whose predictions are then the same
    return pd.concat(blocks, ignore_index=True).drop_duplicates(["dataset", "model", "condition", "level"])


def method_maps(material: Material, width: float) -> Iterator[Piece]:
    """Methods by perturbations, the best method at the top, in the best available form of each score."""
    every = frames_of(material)
    if not every:
        yield Skipped("", NO_STABILITY)
    for one, subject in every:
        cells = one.cells()
        if cells["best"].isna().all():
            yield Skipped(subject, "no pair of maps was retained, so there is no score")
            continue
        names, conditions = one.ranking["explainer"].tolist(), one.cube.conditions
        grid = _grid(one, names, "best")
        kind = "calibrated FASS" if one.calibrated else "FASS"
        for part, rows in style.parts(names, MOST_ROWS):
            here = [names.index(name) for name in rows]
            figure = heat_figure(grid[here], rows, [title(*c) for c in conditions], width, kind)
            caption = f"{kind[0].upper()}{kind[1:]} of every method under every perturbation: {about(one.cube)}. "
            caption += "0 is chance, 1 an unchanged map; grey cells have no score." if one.calibrated else ""
            yield Drawing(", ".join(filter(None, (subject, part))), caption.strip(), figure)


def architecture_maps(material: Material, width: float) -> Iterator[Piece]:
    """For each dataset, architectures by perturbations, a block of rows for every method."""
    every = frames_of(material)
    if not every:
        yield Skipped("", NO_STABILITY)
    by_dataset: dict[str, list[Frames]] = {}
    for one, _ in every:
        by_dataset.setdefault(one.dataset, []).append(one)
    for dataset, group in by_dataset.items():
        subject = dataset if len(by_dataset) > 1 else ""
        if len(group) < 2:
            yield Skipped(subject, "only one model: name several under `models` to compare architectures")
            continue
        methods = list(dict.fromkeys(e for f in group for e in f.ranking["explainer"]))
        conditions = list(dict.fromkeys(c for f in group for c in f.cube.conditions))
        grids = [_grid(f, methods, "best", conditions) for f in group]
        names = subjects([f.cube for f in group])
        for part, chosen in style.parts(methods, MOST_ROWS // len(group)):
            here = [methods.index(m) for m in chosen]
            stacked = np.stack([grid[here] for grid in grids], 1).reshape(-1, len(conditions))
            heads = [title(*c) for c in conditions]
            kind = "calibrated FASS" if all(f.calibrated for f in group) else "FASS"
            figure = heat_figure(stacked, names * len(chosen), heads, width, kind, chosen, len(group))
            caption = f"{kind[0].upper()}{kind[1:]} by architecture and perturbation on {dataset}, a block of rows "
            caption += "for every method; grey cells have no score."
            yield Drawing(", ".join(filter(None, (subject, part))), caption, figure)


def retention_maps(material: Material, width: float) -> Iterator[Piece]:
    """The share of unchanged predictions, models by perturbations."""
    every = frames_of(material)
    if not every:
        yield Skipped("", NO_STABILITY)
        return
    held = retained([one for one, _ in every])
    models = list(dict.fromkeys(zip(held["dataset"], held["model"], strict=True)))
    conditions = list(dict.fromkeys(zip(held["condition"], held["level"], strict=True)))
    share = {(r.dataset, r.model, r.condition, r.level): r.share for r in records(held)}
    grid = np.array([[share.get((*m, *c), np.nan) for c in conditions] for m in models])
    several = len({d for d, _ in models}) > 1
    names = [f"{model}, {dataset}" if several else str(model) for dataset, model in models]
    figure = heat_figure(grid, names, [title(*c) for c in conditions], width, "retention")
    caption = "Prediction-invariant retention: the share of inputs whose predicted class stays under a perturbation."
    yield Drawing("", caption, figure)


def component_bars(material: Material, width: float) -> Iterator[Piece]:
    """SSIM, Spearman and Jaccard of every method side by side, with intervals."""
    every = frames_of(material)
    if not every:
        yield Skipped("", NO_STABILITY)
    for one, subject in every:
        if not any(frame["score"].notna().any() for frame in one.components.values()):
            yield Skipped(subject, "no component has a score")
            continue
        most = max(3, min(MOST_BARS, int((width - 0.5) / 0.62)))
        groups = style.chunks(one.ranking["explainer"].tolist(), most)
        series = [groups[i : i + MOST_BAR_ROWS] for i in range(0, len(groups), MOST_BAR_ROWS)]
        yield from pages(subject, _bar_caption(one), [bar_figure(one, page, most, width) for page in series])


def _bar_caption(one: Frames) -> str:
    kind = "calibrated" if one.calibrated else "raw"
    caption = f"The components of FASS by method, {kind} and averaged over perturbations: {about(one.cube)}. "
    return caption + "Bars are 95 % bootstrap intervals over samples."


def bar_figure(one: Frames, groups: Sequence[list[str]], most: int, width: float) -> Figure:
    """A row of bars for every group of at most `most` methods."""
    most = min(most, max(len(group) for group in groups))
    figure = style.blank(width, 1.55 * len(groups) + 0.3)
    panels = figure.subplots(len(groups), 1, squeeze=False, sharey=True)[:, 0]
    spread = 0.8 / max(len(one.components), 1)
    lows = [frame["low"].min() for frame in one.components.values()]
    for axes, names in zip(panels, groups, strict=True):
        for i, (component, frame) in enumerate(one.components.items()):
            part = frame.set_index("explainer").loc[names]
            at = np.arange(len(names)) + spread * (i - (len(one.components) - 1) / 2)
            axes.bar(at, part["score"], 0.92 * spread, color=PALETTE[i], label=one.title_of(component))
            ends = [(part["score"] - part["low"]).clip(lower=0), (part["high"] - part["score"]).clip(lower=0)]
            axes.errorbar(at, part["score"], ends, fmt="none", ecolor="#333333", elinewidth=0.7, capsize=1.2)
        letters = max(7, int((width - 0.5) / most / 0.066))
        axes.set_xticks(range(len(names)), [style.wrapped(e, letters) for e in names])
        axes.set_xlim(-0.6, most - 0.4)
        axes.tick_params(axis="x", length=0)
        axes.grid(visible=False, axis="x")
        axes.axhline(0, color="#666666", linewidth=0.6)
        axes.set_ylim(float(np.nanmin(lows, initial=0.0)) - 0.02, 1.0)
        axes.set_ylabel("calibrated score" if one.calibrated else "score")
    style.legend_below(figure, panels[:1], width)
    return figure


def heat_figure(
    grid: Grid,
    rows: Sequence[str],
    columns: Sequence[str],
    width: float,
    name: str,
    blocks: Sequence[str] = (),
    size: int = 1,
) -> Figure:
    """A grid in [0, 1] (below 0 where calibrated) on Cividis, with its numbers; `blocks` head every `size` rows."""
    wrap = 22 if width > 4.5 else 15
    letters = max((len(line) for row in rows for line in style.wrapped(row, wrap).split("\n")), default=1)
    cell = max((width - 0.062 * letters - 0.6) / max(len(columns), 1), 0.05)
    lines = [style.wrapped(row, wrap).count("\n") + 1 for row in rows]
    each = max(0.19, 0.115 * max(lines, default=1) + 0.04, 0.6 / max(len(rows), 1))
    gaps = len(blocks) * 1.0
    turned = cell < 0.5
    heads = [style.wrapped(c, 30 if turned else max(6, int(cell / 0.058))) for c in columns]
    top = 0.075 * max(len(h) for h in heads) if turned else 0.13 * max(h.count("\n") + 1 for h in heads)
    figure = style.blank(width, min(each * (len(rows) + gaps) + top + 0.25, 2 * style.TALLEST))
    axes = figure.subplots()
    from matplotlib import colormaps

    colours = colormaps["cividis"].with_extremes(bad="#D9D9D9")
    placed, ticks = _with_gaps(grid, len(rows), bool(blocks), size)
    image = axes.imshow(placed, cmap=colours, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    _separate(axes, len(placed), len(columns))
    if cell >= LEAST_CELL:
        _write_numbers(axes, placed, ticks)
    _head_blocks(axes, blocks, size)
    axes.set_yticks(ticks, [style.wrapped(row, wrap) for row in rows])
    axes.set_xticks(range(len(columns)), heads, rotation=90 if turned else 0)
    axes.tick_params(length=0, top=False, labeltop=True, bottom=False, labelbottom=False)
    bar = figure.colorbar(
        image, ax=axes, fraction=0.04, pad=0.015, ticks=[0, 0.5, 1] if len(rows) > 3 else [0, 1], label=name
    )
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0)
    return figure


def _with_gaps(grid: Grid, rows: int, headed: bool, size: int) -> tuple[Grid, list[int]]:
    """The grid with an empty line over every block, and where its rows are now."""
    if not headed:
        return grid, list(range(rows))
    placed, ticks = [], []
    for i in range(0, rows, size):
        placed.append(np.full((1, grid.shape[1]), np.nan))
        ticks += [i + i // size + 1 + k for k in range(size)]
        placed.append(grid[i : i + size])
    return np.concatenate(placed), ticks


def _head_blocks(axes: Axes, blocks: Sequence[str], size: int) -> None:
    from matplotlib.patches import Rectangle

    left, right = axes.get_xlim()
    for k, name in enumerate(blocks):
        line = k * (size + 1)
        axes.add_patch(Rectangle((left, line - 0.5), right - left, 1, color="white", linewidth=0, zorder=2))
        axes.text(left, line + 0.1, name, ha="left", va="center", fontsize=6.5, fontweight="bold", zorder=3)


def _separate(axes: Axes, rows: int, columns: int) -> None:
    axes.grid(visible=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.hlines(np.arange(1, rows) - 0.5, -0.5, columns - 0.5, color="white", linewidth=1)
    axes.vlines(np.arange(1, columns) - 0.5, -0.5, rows - 0.5, color="white", linewidth=1)
    axes.set_xlim(-0.5, columns - 0.5)
    axes.set_ylim(rows - 0.5, -0.5)


def _write_numbers(axes: Axes, grid: Grid, rows: Sequence[int]) -> None:
    for i in rows:
        for j in range(grid.shape[1]):
            if np.isfinite(grid[i, j]):
                ink = "black" if grid[i, j] > 0.48 else "white"
                axes.text(j, i, number(float(grid[i, j])), ha="center", va="center", color=ink, fontsize=6)


def _grid(
    one: Frames, methods: Sequence[str], column: str, conditions: Sequence[tuple[str, float]] | None = None
) -> Grid:
    cells = one.cells()
    values = zip(cells["explainer"], cells["condition"], cells["level"], cells[column], strict=True)
    known = {(e, c, x): v for e, c, x, v in values}
    wanted = one.cube.conditions if conditions is None else conditions
    return np.array([[known.get((m, *c), np.nan) for c in wanted] for m in methods], dtype=np.float64)

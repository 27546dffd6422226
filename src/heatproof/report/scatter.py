"""Points between two scores, with bars both ways and names that cover as little as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product

from heatproof.report.canvas import Dot, Plot, Sheet, Stroke, Words, width_of
from heatproof.report.plots import LEFT, WIDE, Mark, Scale, draw_diagonal, x_axis, y_axis

NAME_SIZE = 11
"""The size of the letters of a name."""
OUTSIDE = 60
"""What a pixel of a name outside the plot costs, in pixels that it covers."""
TITLE_HEIGHT = 14
"""What the name of the vertical axis takes at the top of the plot."""
BASELINES = (-8, 15, 4, -20, 27, -32, 39, -44, 51)
"""Pixels from a point down to the baseline of its name, the best positions first."""

Point = tuple[float, float]
Rectangle = tuple[float, float, float, float]
"""Left, top, right, bottom."""


def points(
    title: str,
    marks: Sequence[Mark],
    x_ends: tuple[float, float],
    ends: tuple[float, float],
    x: str,
    y: str,
    note: str = "",
    steps: Sequence[tuple[float, float]] = (),
    diagonal: bool = False,
    named: bool = False,
    small: bool = False,
    log: bool = False,
    width: float = WIDE,
    height: float = 170.0,
) -> Plot:
    """Return points with bars both ways, named beside them; `steps` is a dashed line; `small` points are single samples."""
    sheet = Sheet(width, height + 48)
    across = Scale(*x_ends, LEFT, width - 10, log)
    up = Scale(*ends, height + 10, 20)
    sheet.add(Words(0, 11, y, "third"))
    y_axis(sheet, up, across.end, percent=False)
    x_axis(sheet, across, 20, height + 14, x, percent=False)
    if diagonal:
        draw_diagonal(sheet, across, up)
    if len(steps) > 1:
        corners = [(across(a), up(b)) for a, b in steps]
        sheet.add(Stroke(corners, "third", 1.4, (5, 3)))
    scored = [m for m in marks if math.isfinite(m.x) and math.isfinite(m.value)]
    for m in scored:
        _draw_point(sheet, m, across, up, small)
    if named:
        positions = _free_positions(scored, across, up, width)
        for m, (left, baseline) in zip(scored, positions, strict=True):
            sheet.add(Words(left, baseline, m.name, m.colour, size=NAME_SIZE))
    return Plot(title, sheet, note)


def _draw_point(sheet: Sheet, m: Mark, across: Scale, up: Scale, small: bool) -> None:
    """Draw a point with a bar for its interval in each direction that has one."""
    x, y = across(m.x), up(m.value)
    with sheet.mark(**m.data):
        if m.x_low < m.x_high:
            bar = [(across(m.x_low), y), (across(m.x_high), y)]
            sheet.add(Stroke(bar, m.colour, 1.4, (), 0.6))
        if m.low < m.high:
            bar = [(x, up(m.low)), (x, up(m.high))]
            sheet.add(Stroke(bar, m.colour, 1.4, (), 0.6))
        if small:
            sheet.add(Dot(x, y, 2.4, m.colour, m.kind, 0.5))
        else:
            sheet.add(Dot(x, y, 4.4, m.colour, m.kind))


def _free_positions(marks: Sequence[Mark], across: Scale, up: Scale, width: float) -> list[Point]:
    """Return where the name of each point begins."""
    spots = [(across(m.x), up(m.value)) for m in marks]
    bars = []
    for m in marks:
        ends = [value for value in (m.x_low, m.x_high) if math.isfinite(value)]
        bars.append([(across(value), up(m.value)) for value in ends])
    return free_positions([m.name for m in marks], spots, bars, width)


def free_positions(
    names: Sequence[str],
    spots: Sequence[Point],
    bars: Sequence[Sequence[Point]],
    width: float,
) -> list[Point]:
    """Return where each name begins so that it covers as little as possible of points, bars and other names.

    Names are set one after another, each at the best of 27 positions around its point.
    """
    occupied: list[Rectangle] = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    for bar in bars:
        if len(bar) == 2:
            (left, y), (right, _) = bar
            occupied.append((left, y - 2, right, y + 2))

    positions = []
    for name, (x, y) in zip(names, spots, strict=True):
        name_width = width_of(name, NAME_SIZE)
        # To the right of the point, to its left, or centred; of equal costs the first counts.
        beginnings = (x + 6, x - name_width - 6, x - name_width / 2)
        candidates = list(product(BASELINES, beginnings))
        costs = []
        for below, left in candidates:
            box = _box_of_name((left, y + below), name_width)
            costs.append(_cost(box, occupied, width))
        below, left = candidates[costs.index(min(costs))]
        best = (left, y + below)
        occupied.append(_box_of_name(best, name_width))
        positions.append(best)
    return positions


def _box_of_name(beginning: Point, name_width: float) -> Rectangle:
    left, baseline = beginning
    return left, baseline - 10, left + name_width, baseline + 2


def _cost(box: Rectangle, occupied: Sequence[Rectangle], width: float) -> float:
    """Return the area of what a name would cover, with a penalty for what lies outside the plot."""
    left, top, right, bottom = box
    covered = 0.0
    for left_edge, top_edge, right_edge, bottom_edge in occupied:
        overlap_x = max(min(right, right_edge) - max(left, left_edge), 0)
        overlap_y = max(min(bottom, bottom_edge) - max(top, top_edge), 0)
        covered += overlap_x * overlap_y
    outside = max(LEFT - left, 0) + max(right - width, 0) + max(TITLE_HEIGHT - top, 0)
    return covered + OUTSIDE * outside

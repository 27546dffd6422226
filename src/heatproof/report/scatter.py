"""Points between two scores, with bars both ways and names that cover as little as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

from heatproof.report.canvas import Dot, Plot, Sheet, Stroke, Words, width_of
from heatproof.report.plots import LEFT, WIDE, Mark, Scale, draw_diagonal, x_axis, y_axis

NAME_SIZE = 11
"""The size of the letters of a name."""
OUTSIDE = 60
"""What a pixel of a name outside the plot costs, in pixels that it covers."""

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
    drawn = [m for m in marks if math.isfinite(m.x) and math.isfinite(m.value)]
    for m in drawn:
        _draw_point(sheet, m, across, up, small)
    if named:
        positions = _free_positions(drawn, across, up, width)
        for m, (left, baseline) in zip(drawn, positions, strict=True):
            sheet.add(Words(left, baseline, m.name, m.colour, size=NAME_SIZE))
    return Plot(title, sheet, note)


def _draw_point(sheet: Sheet, m: Mark, across: Scale, up: Scale, small: bool) -> None:
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
    """Return where each name begins so that it covers as little as possible of points, bars and other names."""
    taken: list[Rectangle] = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    for bar in bars:
        if len(bar) == 2:
            (left, y), (right, _) = bar
            taken.append((left, y - 2, right, y + 2))

    positions = []
    for name, (x, y) in zip(names, spots, strict=True):
        wide = width_of(name, NAME_SIZE)
        candidates = [
            (x + dx, y + dy)
            for dy in (-8, 15, 4, -20, 27, -32, 39, -44, 51)
            for dx in (6, -wide - 6, -wide / 2)
        ]
        costs = [_cost(_box_of_name(at, wide), taken, width) for at in candidates]
        best = candidates[costs.index(min(costs))]
        taken.append(_box_of_name(best, wide))
        positions.append(best)
    return positions


def _box_of_name(at: Point, wide: float) -> Rectangle:
    left, baseline = at
    return left, baseline - 10, left + wide, baseline + 2


def _cost(box: Rectangle, taken: Sequence[Rectangle], width: float) -> float:
    """Return the area of what a name would cover, with a penalty for what lies outside the plot."""
    left, top, right, bottom = box
    covered = 0.0
    for other_left, other_top, other_right, other_bottom in taken:
        overlap_x = max(min(right, other_right) - max(left, other_left), 0)
        overlap_y = max(min(bottom, other_bottom) - max(top, other_top), 0)
        covered += overlap_x * overlap_y
    outside = max(LEFT - left, 0) + max(right - width, 0) + max(14 - top, 0)
    return covered + OUTSIDE * outside

"""Points between two scores, with bars both ways and names that cover as little as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

from heatproof.report.canvas import Dot, Plot, Sheet, Stroke, Words, width_of
from heatproof.report.plots import WIDE, Mark, Scale, tick_text, x_axis


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
    """Points with bars both ways, named beside them; `steps` is a dashed line; `small` points are single samples."""
    sheet = Sheet(width, height + 48)
    across, up = Scale(*x_ends, 34, width - 10, log), Scale(*ends, height + 14 - 4, 20)
    sheet.add(Words(0, 11, y, "third"))
    for tick in up.ticks(3):
        sheet.add(
            Stroke([(34, up(tick)), (across.end, up(tick))], "strong" if tick == 0 else "grid")
        )
        sheet.add(Words(28, up(tick) + 4, tick_text(tick, False), "third", "end"))
    x_axis(sheet, across, 20, height + 14, x, False)
    if diagonal:
        a, b = max(x_ends[0], ends[0]), min(x_ends[1], ends[1])
        sheet.add(Stroke([(across(a), up(a)), (across(b), up(b))], "third", 1, (1.5, 3)))
    if len(steps) > 1:
        sheet.add(Stroke([(across(a), up(b)) for a, b in steps], "third", 1.4, (5, 3)))
    drawn = [m for m in marks if math.isfinite(m.x) and math.isfinite(m.value)]
    for m in drawn:
        with sheet.mark(**m.data):
            for low, high, way in ((m.x_low, m.x_high, 0), (m.low, m.high, 1)):
                if low < high:
                    bar = [
                        (across(m.x), up(v)) if way else (across(v), up(m.value))
                        for v in (low, high)
                    ]
                    sheet.add(Stroke(bar, m.colour, 1.4, (), 0.6))
            sheet.add(
                Dot(
                    across(m.x),
                    up(m.value),
                    2.4 if small else 4.4,
                    m.colour,
                    m.kind,  # type: ignore[arg-type]
                    0.5 if small else 1,
                )
            )
    if named:
        places = [(across(m.x), up(m.value)) for m in drawn]
        bars = [
            [(across(v), up(m.value)) for v in (m.x_low, m.x_high) if math.isfinite(v)]
            for m in drawn
        ]
        for m, place in zip(
            drawn, _free_places([m.name for m in drawn], places, bars, width), strict=True
        ):
            sheet.add(Words(*place, m.name, m.colour, size=11))
    return Plot(title, sheet, note)


def _free_places(
    names: Sequence[str],
    spots: Sequence[tuple[float, float]],
    bars: Sequence[Sequence[tuple[float, float]]],
    width: float,
) -> list[tuple[float, float]]:
    """Where each name begins so that it covers as little as possible of points, bars and other names."""
    taken = [(x - 6, y - 6, x + 6, y + 6) for x, y in spots]
    taken += [(a[0], a[1] - 2, b[0], b[1] + 2) for a, b in (bar for bar in bars if len(bar) == 2)]
    found = []
    for name, (x, y) in zip(names, spots, strict=True):
        wide = width_of(name, 11)
        places = [
            (x + dx, y + dy)
            for dy in (-8, 15, 4, -20, 27, -32, 39, -44, 51)
            for dx in (6, -wide - 6, -wide / 2)
        ]

        def cost(at: tuple[float, float], wide: float = wide) -> float:
            box = (at[0], at[1] - 10, at[0] + wide, at[1] + 2)
            over = sum(
                max(min(box[2], o[2]) - max(box[0], o[0]), 0)
                * max(min(box[3], o[3]) - max(box[1], o[1]), 0)
                for o in taken
            )
            return over + 60 * (max(34 - box[0], 0) + max(box[2] - width, 0) + max(14 - box[1], 0))

        best = min(places, key=cost)
        taken.append((best[0], best[1] - 10, best[0] + wide, best[1] + 2))
        found.append(best)
    return found

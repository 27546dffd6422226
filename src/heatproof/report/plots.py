"""Plots of dots with intervals in rows, curves, and cells of a table; points between two scores are in `scatter`.

Each gives a `Plot` from marks with their numbers; layout is by rule, so that a page and a paper show the same.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heatproof.report.canvas import Box, Dot, Plot, Sheet, Stroke, Words, width_of
from heatproof.results.names import Look
from heatproof.text import digits_of, number

WIDE = 236.0
"""How wide a plot is unless it says otherwise."""
ROW, TALL_ROW = 20.0, 28.0
"""How high a row of dots is, with a name of one line and of two."""
EDGE = 8.0
"""What is left free around a plot."""
NAMES = 108.0
"""How wide the names of rows are at most; longer ones take a second line."""
LEFT = 34.0
"""The room for the numbers of a vertical axis."""
BAND = 0.28
"""The opacity of the band of an interval."""
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 3), (1.5, 2.5), (7, 3, 1.5, 3))
"""Of several curves of one method, in their order."""
DOTTED = (1.5, 3.0)
MOST_LEVELS = 12
"""So many levels of a curve all have a tick."""
ROOM = 0.04
"""How much of a scale is left free at either end."""


@dataclass(frozen=True)
class Mark:
    """One mark of a plot: a number with its interval, what it belongs to, and how it is drawn.

    name     what the number belongs to: a method, a condition, a sample
    value    the number, with the ends `low` and `high` of its interval
    x        its position on the other axis, with its interval, in plots of two axes
    kind     how the dot is drawn: "filled", "open" for a second setting of a method, or "hollow" at chance
    note     what the page shows beside the number when the mark is pointed at
    method   the method that it belongs to, where the name is another
    cloud    the scores of single samples, drawn faintly
    chance   what an uninformative map scores, where that is drawn in the row
    bold     whether the number in a cell is bold
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    colour: str = "soft"
    kind: str = "filled"
    note: str = ""
    x: float = math.nan
    x_low: float = math.nan
    x_high: float = math.nan
    method: str = ""
    cloud: Sequence[float] = ()
    chance: float = math.nan
    bold: bool = False

    @property
    def data(self) -> dict[str, str | float]:
        """The attributes of the mark in the page's SVG, which `charts.js` reads for tooltips, sorting and highlighting."""
        return {
            "name": self.name,
            "method": self.method or self.name,
            "x": self.x,
            "x_low": self.x_low,
            "x_high": self.x_high,
            "value": self.value,
            "low": self.low,
            "high": self.high,
            "said": self.note,
        }


def mark(
    look: Look,
    value: float,
    low: float = math.nan,
    high: float = math.nan,
    chance: float = math.nan,
    note: str = "",
    above_chance: bool | None = None,
) -> Mark:
    """Return the mark of a method in its colour, open for a second setting.

    It is hollow where nothing shows that it differs from chance: without an interval, or where the interval reaches
    chance. A test of `above_chance` decides where one was made.
    """
    has_interval = math.isfinite(low) and math.isfinite(high)
    reaches_chance = low <= chance <= high or value == chance
    if above_chance is not None:
        reaches_chance = not above_chance
    kind = "open" if look.open else "filled"
    if reaches_chance or not has_interval:
        kind = "hollow"
    return Mark(look.name, value, low, high, look.colour, kind, note, method=look.name)


# ---- scales ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """The scale of an axis: calling it with a number gives the position in pixels.

    The numbers `low` to `high` lie at the pixels `start` to `end`, by their logarithm with `log`.
    """

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def inside(self, value: float) -> float:
        """Return the nearest number between the ends."""
        return min(max(value, self.low), self.high)

    def ticks(self, most: int = 4) -> list[float]:
        """Return round numbers between the ends, about `most` of them.

        >>> Scale(0, 1, 0, 100).ticks(3), Scale(-0.2, 0.34, 0, 100).ticks()
        ([0.0, 0.5, 1.0], [-0.2, 0.0, 0.2])
        """
        low, high = sorted((self.low, self.high))
        if self.log:
            return log_ticks(low, high)
        rough = (high - low) / most
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in (1, 2, 5, 10) if s * power >= 0.999 * rough)
        first = math.ceil(low / step - 1e-9)
        last = math.floor(high / step + 1e-9)
        return [round(i * step, 10) + 0.0 for i in range(first, last + 1)]


def log_ticks(low: float, high: float) -> list[float]:
    """Return ticks at powers of ten, with 2 and 5 between them where the span is short.

    >>> log_ticks(0.02, 0.9), log_ticks(0.001, 3.0)
    ([0.02, 0.05, 0.1, 0.2, 0.5], [0.001, 0.01, 0.1, 1.0])
    """
    is_short = high < 100 * low
    factors = (1, 2, 5) if is_short else (1,)
    ticks = []
    for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1):
        ticks += [float(f"{factor}e{power}") for factor in factors]
    between = [tick for tick in ticks if 0.99 * low <= tick <= 1.01 * high]
    return between or [low, high]


def span(values: Iterable[float], *others: float) -> tuple[float, float]:
    """Return the ends of a scale that holds these numbers and some others, with a little room.

    >>> span([0.2, float("nan")], 0.0, 1.0)
    (-0.04, 1.04)
    """
    numbers = [value for value in (*values, *others) if math.isfinite(value)] or [0.0, 1.0]
    low, high = min(numbers), max(numbers)
    room = ROOM * ((high - low) or 1)
    return low - room, high + room


def of_marks(marks: Iterable[Mark], *others: float) -> tuple[float, float]:
    """Return the ends of a scale that holds marks with their intervals and samples, and some other numbers."""
    numbers: list[float] = []
    for m in marks:
        numbers += [m.value, m.low, m.high, *m.cloud]
    return span(numbers, *others)


# ---- words -----------------------------------------------------------------------------------------------------------


def wrapped(text: str, most: float, lines: int = 2) -> list[str]:
    """Return a name in at most so many lines of so many pixels, broken at spaces, underscores and brackets, then cut.

    >>> wrapped("integrated_gradients(steps=16)", 140), wrapped("Saliency", 100)
    (['integrated_gradients', '(steps=16)'], ['Saliency'])
    """
    pieces = re.split(r"(?<=_)|(?<= )|(?=\()", text)
    rows = [""]
    for piece in pieces:
        if rows[-1] and width_of(rows[-1] + piece.rstrip()) > most:
            rows.append("")
        rows[-1] += piece
    shown = [row.strip() for row in rows if row.strip()]
    if len(shown) > lines:
        last_line = "".join(rows[lines - 1 :]).strip()
        shown = [*shown[: lines - 1], last_line]
    most_letters = max(4, int(most / width_of("n")) + 1)
    return [_cut(row, most_letters) for row in shown]


def _cut(text: str, most: int) -> str:
    """Return a text of at most so many letters, cut in the middle."""
    if len(text) <= most:
        return text
    head = most // 2
    tail = most - head - 1
    return f"{text[:head]}…{text[-tail:]}"


def _names(sheet: Sheet, x: float, y: float, text: str, most: float, colour: str = "soft") -> None:
    """Draw a name of one or two lines to the left of x, about the height y."""
    rows = wrapped(text, most)
    for i, row in enumerate(rows):
        baseline = y + 4 + 12 * (i - (len(rows) - 1) / 2)
        sheet.add(Words(x, baseline, row, colour, "end"))


def tick_text(value: float, percent: bool) -> str:
    """Return a number beside an axis."""
    return f"{100 * value:g} %" if percent else f"{value:g}".replace("-", "−")


# ---- axes ------------------------------------------------------------------------------------------------------------


def x_axis(
    sheet: Sheet, scale: Scale, top: float, bottom: float, axis: str, percent: bool, most: int = 3
) -> None:
    """Draw lines and numbers of a horizontal axis, with its name below."""
    for tick in scale.ticks(most):
        x = scale(tick)
        is_zero = tick == 0 and not scale.log
        colour, thickness = ("strong", 1.4) if is_zero else ("grid", 1)
        sheet.add(Stroke([(x, top), (x, bottom)], colour, thickness))
        sheet.add(Words(x, bottom + 14, tick_text(tick, percent), "third", "middle"))
    if axis:
        half_width = width_of(axis) / 2
        middle = max((scale.start + scale.end) / 2, half_width)
        middle = min(middle, sheet.width - half_width)
        sheet.add(Words(middle, bottom + 29, axis, "third", "middle"))


def y_axis(sheet: Sheet, scale: Scale, right: float, percent: bool) -> None:
    """Draw lines and numbers of a vertical axis at the left edge."""
    for tick in scale.ticks(3):
        y = scale(tick)
        sheet.add(Stroke([(LEFT, y), (right, y)], "strong" if tick == 0 else "grid"))
        sheet.add(Words(LEFT - 6, y + 4, tick_text(tick, percent), "third", "end"))


def draw_diagonal(sheet: Sheet, across: Scale, up: Scale) -> None:
    """Draw the line y = x between two axes."""
    low, high = max(across.low, up.low), min(across.high, up.high)
    points = [(across(value), up(value)) for value in (low, high)]
    sheet.add(Stroke(points, "third", 1, DOTTED))


# ---- dots ------------------------------------------------------------------------------------------------------------


def dots(
    title: str,
    marks: Sequence[Mark],
    limits: tuple[float, float],
    axis: str = "",
    note: str = "",
    guides: Sequence[tuple[str, float]] = (),
    percent: bool = False,
    log: bool = False,
    width: float = WIDE,
) -> Plot:
    """Return a row for each mark: its name, a band for its interval and a dot; `guides` are dotted lines through all rows."""
    names, has_long_name = _name_column([m.name for m in marks], NAMES)
    tall = TALL_ROW if has_long_name else ROW
    bottom = EDGE + tall * len(marks)
    sheet = Sheet(width, bottom + (33 if axis else 18))
    right = 18 if percent else EDGE
    scale = Scale(*limits, names + 12, width - right, log)
    x_axis(sheet, scale, EDGE - 4, bottom, axis, percent)
    for name, value in guides:
        if limits[0] <= value <= limits[1]:
            x = scale(value)
            with sheet.mark(name=name, value=value):
                sheet.add(Stroke([(x, EDGE - 4), (x, bottom)], "third", 1.4, (2, 2)))
    for i, m in enumerate(marks):
        _dot_row(sheet, m, scale, EDGE + tall * (i + 0.5), tall, names)
    return Plot(title, sheet, note)


def _name_column(names: Sequence[str], most: float) -> tuple[float, bool]:
    """Return the width of a column of names, at most `most`, and whether any name takes several lines there."""
    widest = 0.0
    has_long_name = False
    for name in names:
        lines = wrapped(name, most)
        widest = max([widest, *map(width_of, lines)])
        has_long_name |= len(lines) > 1
    return min(most, widest), has_long_name


def _dot_row(sheet: Sheet, m: Mark, scale: Scale, y: float, tall: float, names: float) -> None:
    """Draw the row of one mark at the height y: its name, samples, chance level, interval and dot."""
    # The row of a method is one group, so that the page can move it.
    with sheet.mark(**m.data, y=y):
        sheet.add(Box(0, y - tall / 2, sheet.width, tall, "card", 0))
        _names(sheet, names, y, m.name, NAMES, "third" if m.colour == "control" else "soft")
        for value in m.cloud:
            sheet.add(Dot(scale(value), y, 2, m.colour, opacity=0.22))
        if scale.low <= m.chance <= scale.high:
            x = scale(m.chance)
            sheet.add(Stroke([(x, y - tall / 2 + 2), (x, y + tall / 2 - 2)], "third", 1.4))
        _banded(sheet, m, scale, y, 5)
        if not math.isfinite(m.value):
            sheet.add(Words(scale(max(scale.low, 0)) + 6, y + 4, "no score", "third"))


def _banded(sheet: Sheet, m: Mark, scale: Scale, y: float, half: float) -> None:
    """Draw a band for the interval, as high as twice `half`, and a dot."""
    if m.low < m.high:
        left, right = scale(max(m.low, scale.low)), scale(min(m.high, scale.high))
        sheet.add(Box(left, y - half, max(right - left, 1), 2 * half, m.colour, BAND))
    if math.isfinite(m.value):
        sheet.add(Dot(scale(m.value), y, 4.2, m.colour, m.kind))


def spot(
    m: Mark, limits: tuple[float, float], height: float, width: float = 112, bold: bool = True
) -> Sheet:
    """Return one row of `dots` alone, with its number beside it, for a cell of a table whose rows share a scale."""
    sheet, y = Sheet(width, height), height / 2
    scale = Scale(*limits, 6, width - 40)
    for tick in scale.ticks(2):
        x = scale(tick)
        sheet.add(Stroke([(x, 0), (x, height)], "strong" if tick == 0 else "grid", 1.2))
    is_control = m.colour == "control"
    ink = "third" if is_control else "ink"
    with sheet.mark(**m.data):
        sheet.add(Box(0, 0, width, height, "card", 0))
        _banded(sheet, m, scale, y, 7)
        sheet.add(Words(width, y + 5, number(m.value), ink, "end", 14, bold and not is_control))
    return sheet


# ---- curves ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Curve:
    """A line through marks; a faint one stands behind others and carries no numbers."""

    name: str
    marks: Sequence[Mark]
    colour: str = "soft"
    dash: tuple[float, ...] = ()
    faint: bool = False


def curves(
    title: str,
    lines: Sequence[Curve],
    limits: tuple[float, float],
    x: str,
    y: str = "",
    at: Sequence[float] | None = None,
    note: str = "",
    log: bool = False,
    diagonal: bool = False,
    percent: bool = False,
    guides: Sequence[tuple[str, float]] = (),
    width: float = WIDE,
) -> Plot:
    """Return lines with thin bars for their intervals, named at their ends; ticks stand at the levels `at` that were run.

    `guides` are dotted lines at some heights.
    """
    if at is None:
        at = [m.x for line in lines for m in line.marks]
    levels = sorted(set(at))
    named = [line for line in lines if line.name and not line.faint and line.marks]
    longest = max((width_of(line.name, 11) for line in named), default=0.0)
    right = longest + 8 if named else 0.0
    head = 14.0 if y else 0.0
    tall = 150.0 + head
    sheet = Sheet(width, tall + 34)
    across = Scale(*_limits_of_levels(levels, log), LEFT, width - 8 - right, log)
    up = Scale(*limits, tall - 4, 8 + head)
    if y:
        sheet.add(Words(0, 11, y, "third"))
    y_axis(sheet, up, across.end, percent)
    _level_ticks(sheet, across, levels, tall + 12)
    sheet.add(Words((LEFT + across.end) / 2, tall + 28, x, "third", "middle"))
    if diagonal:
        draw_diagonal(sheet, across, up)
    for name, value in guides:
        if limits[0] <= value <= limits[1]:
            height = up(value)
            with sheet.mark(name=name, value=value):
                sheet.add(Stroke([(LEFT, height), (across.end, height)], "third", 1.4, (2, 2)))
    for line in lines:
        _draw_curve(sheet, line, across, up)
    _curve_names(sheet, named, across, up)
    return Plot(title, sheet, note)


def _limits_of_levels(levels: Sequence[float], log: bool) -> tuple[float, float]:
    """Return the ends of the horizontal axis of curves."""
    low, high = (levels[0], levels[-1]) if levels else (0.0, 1.0)
    if high == low:
        # A single level stands at the left.
        return (low, low * 2) if log else (low - 0.03, low + 1)
    room = 0 if log else 0.03 * (high - low)
    return low - room, high + room


def _level_ticks(sheet: Sheet, across: Scale, levels: Sequence[float], baseline: float) -> None:
    """Write the levels below their marks, but those that would overlap."""
    end_of_last = -math.inf
    for level in levels if len(levels) <= MOST_LEVELS else across.ticks():
        text = f"{level:g}"
        half_width = width_of(text) / 2
        if across(level) - half_width > end_of_last + 3:
            sheet.add(Words(across(level), baseline, text, "third", "middle"))
            end_of_last = across(level) + half_width


def _draw_curve(sheet: Sheet, line: Curve, across: Scale, up: Scale) -> None:
    """Draw a line through its marks from left to right, then the marks with bars for their intervals."""
    scored = [m for m in line.marks if math.isfinite(m.value)]
    in_order = sorted(scored, key=lambda m: m.x)
    points = [(across(m.x), up(m.value)) for m in in_order]
    if len(points) > 1 and line.faint:
        sheet.add(Stroke(points, "strong", 1.0, line.dash, 0.55))
    elif len(points) > 1:
        sheet.add(Stroke(points, line.colour, 1.8, line.dash, 1.0))
    if line.faint:
        return
    for m in in_order:
        x, y = across(m.x), up(m.value)
        with sheet.mark(**m.data):
            if m.low < m.high:
                bar = [(x, up(max(m.low, up.low))), (x, up(min(m.high, up.high)))]
                sheet.add(Stroke(bar, line.colour, 1.2, (), 0.75))
            if m.x_low < m.x_high:
                sides = [(across(across.inside(value)), y) for value in (m.x_low, m.x_high)]
                sheet.add(Stroke(sides, line.colour, 1.2, (), 0.75))
            sheet.add(Dot(x, y, 3.2, line.colour, m.kind))


def _curve_names(sheet: Sheet, named: Sequence[Curve], across: Scale, up: Scale) -> None:
    """Write the name of each curve at its end, and under the one above it if they would overlap."""
    lowest = -math.inf
    for line in sorted(named, key=lambda line: up(line.marks[-1].value)):
        last = line.marks[-1]
        baseline = max(up(last.value) + 4, lowest + 11)
        lowest = baseline
        sheet.add(Words(across(last.x) + 8, baseline, line.name, line.colour, size=11))


# ---- cells -----------------------------------------------------------------------------------------------------------


MOST_NAME = 150.0
"""How wide the names of rows of a table are at most."""
LINE, SMALL_LINE = 13.0, 18.0
"""How high a line of a heading over columns is, and a heading over rows."""


def cells(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[Mark | None]],
    title: str = "",
    row_heads: Mapping[int, str] | None = None,
    spans: Sequence[tuple[str, int]] = (),
    percent: bool = False,
) -> Plot:
    """Return a table of numbers, the stronger the further they are from 0, which is white; empty where there is none.

    `row_heads` are headings that stand before the rows of these numbers, `spans` a first line of headings over so many
    columns each.
    """
    row_heads = row_heads or {}
    names, has_long_name = _name_column(rows, MOST_NAME)
    # Widths are estimates, and the font of a PNG is wider than most.
    names = min(MOST_NAME, 1.08 * names)
    row_height = 30.0 if has_long_name else 24.0
    cell = max(46.0, min(92.0, (760 - names) / max(len(columns), 1)))
    # Heads are turned by 90° where there are many columns, or where a word is wider than its column.
    words = " ".join(columns).split()
    turned = len(columns) > 14 or any(width_of(word) > cell + 2 for word in words)
    if turned:
        cell = 34.0
        heads = [[column] for column in columns]
        head_height = max(map(width_of, columns), default=0.0)
    else:
        heads = [wrapped(column, cell - 4, 3) for column in columns]
        head_height = LINE * max(map(len, heads), default=1)
    has_spans = any(text for text, _ in spans)
    top = (SMALL_LINE if has_spans else 0.0) + 4 + head_height + 4
    left = names + 10
    height = top + row_height * len(rows) + SMALL_LINE * len(row_heads) + 2
    sheet = Sheet(left + cell * len(columns) + 2, height)

    start = left
    for text, count in spans:
        end = start + cell * count
        if text:
            span_head = wrapped(text, cell * count, 1)[0]
            sheet.add(Words((start + end) / 2, LINE, span_head, "soft", "middle"))
            sheet.add(Stroke([(start + 2, LINE + 4), (end - 2, LINE + 4)], "strong"))
        start = end
    for column_number, lines in enumerate(heads):
        middle = left + cell * (column_number + 0.5)
        if turned:
            sheet.add(Words(middle + 4, top - 6, lines[0], "third", "start", turned=True))
            continue
        baseline = top - 6 - LINE * (len(lines) - 1)
        for line in lines:
            sheet.add(Words(middle, baseline, line, "third", "middle"))
            baseline += LINE

    y = top
    for row_number, (row, of_row) in enumerate(zip(rows, values, strict=True)):
        if row_number in row_heads:
            sheet.add(Words(0, y + LINE, row_heads[row_number], "soft", bold=True))
            y += SMALL_LINE
        _names(sheet, names, y + row_height / 2, row, MOST_NAME)
        for column_number, m in enumerate(of_row):
            x = left + cell * column_number
            if m is None or not math.isfinite(m.value):
                sheet.add(Box(x + 1, y + 1, cell - 2, row_height - 2, "grid", 0.6))
                continue
            with sheet.mark(**m.data, row=row, column=columns[column_number]):
                _draw_number(sheet, m, x, y, cell, row_height, 11 if turned else 12, percent)
        y += row_height
    return Plot(title, sheet)


def _draw_number(
    sheet: Sheet,
    m: Mark,
    x: float,
    y: float,
    width: float,
    height: float,
    size: float,
    percent: bool,
) -> None:
    """Draw the number of a cell, whose upper left corner is (x, y), in letters of `size` on the colour of its sign."""
    colour = "heat" if m.value > 0 else "cold"
    strength = 0.55 * min(abs(m.value), 1.0)
    sheet.add(Box(x + 1, y + 1, width - 2, height - 2, colour, strength))
    middle, baseline = x + width / 2, y + height / 2 + 4
    text = _cell_text(m, percent)
    sheet.add(Words(middle, baseline, text, "ink", "middle", size, m.bold))


def _cell_text(m: Mark, percent: bool) -> str:
    """Return the number of a cell, with as many decimals as its interval allows, at most two."""
    if percent:
        return number(100 * m.value, 0)
    return number(m.value, min(2, digits_of(m.value, m.low, m.high)))

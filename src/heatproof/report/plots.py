"""Plots of dots with intervals in rows, curves, and cells of a table; points between two scores are in `scatter`.

Each gives a `Plot` from marks with their numbers; layout is by rule, so that a page and a paper show the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from heatproof.report.canvas import Anchor, Box, Dot, Plot, Sheet, Stroke, Words, width_of
from heatproof.results.names import Look
from heatproof.text import digits_of, number

WIDE, ROW, EDGE = 236.0, 20.0, 8.0
NAMES = 108.0
"""How wide the names of rows are at most; longer ones take a second line."""
BAND = 0.28
DASHES: tuple[tuple[float, ...], ...] = ((), (5, 3), (1.5, 2.5), (7, 3, 1.5, 3))
"""Of several curves of one method, in their order."""


@dataclass(frozen=True)
class Mark:
    """A number with its interval, what it is of, and how it is drawn; `x` is its place on the other axis.

    `said` is what a reader is told beside the number, `cloud` the scores of single samples, `chance` what an
    uninformative map scores, where that is drawn in the row. `bold` is the number in a cell.
    """

    name: str
    value: float
    low: float = math.nan
    high: float = math.nan
    colour: str = "soft"
    kind: str = "filled"
    said: str = ""
    x: float = math.nan
    x_low: float = math.nan
    x_high: float = math.nan
    method: str = ""
    cloud: Sequence[float] = ()
    chance: float = math.nan
    bold: bool = False

    @property
    def data(self) -> dict[str, str | float]:
        """What the mark carries on the page."""
        told: dict[str, str | float] = {"name": self.name, "method": self.method or self.name}
        told |= {"x": self.x, "x_low": self.x_low, "x_high": self.x_high}
        return told | {"value": self.value, "low": self.low, "high": self.high, "said": self.said}


def mark(
    look: Look,
    value: float,
    low: float = math.nan,
    high: float = math.nan,
    chance: float = math.nan,
    said: str = "",
    above_chance: bool | None = None,
) -> Mark:
    """The mark of a method in its colour, open for a second setting.

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
    return Mark(look.name, value, low, high, look.colour, kind, said, method=look.name)


@dataclass(frozen=True)
class Scale:
    """Numbers to pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high, at = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        return self.start + (at - low) / (high - low) * (self.end - self.start)

    def ticks(self, most: int = 4) -> list[float]:
        """Round numbers between the ends, about `most` of them.

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
    """Ticks at powers of ten, with 2 and 5 between them where the span is short.

    >>> log_ticks(0.02, 0.9), log_ticks(0.001, 3.0)
    ([0.02, 0.05, 0.1, 0.2, 0.5], [0.001, 0.01, 0.1, 1.0])
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    every = (
        float(f"{step}e{power}")
        for power in powers
        for step in ((1, 2, 5) if high < 100 * low else (1,))
    )
    return [t for t in every if 0.99 * low <= t <= 1.01 * high] or [low, high]


def span(values: Iterable[float], *with_: float) -> tuple[float, float]:
    """The ends of a scale that holds these numbers and some others, with a little room.

    >>> span([0.2, float("nan")], 0.0, 1.0)
    (-0.04, 1.04)
    """
    known = [v for v in (*values, *with_) if math.isfinite(v)] or [0.0, 1.0]
    low, high = min(known), max(known)
    return low - 0.04 * ((high - low) or 1), high + 0.04 * ((high - low) or 1)


def of_marks(marks: Iterable[Mark], *with_: float) -> tuple[float, float]:
    """`span` of the numbers of marks, their intervals and their samples."""
    return span((v for m in marks for v in (m.value, m.low, m.high, *m.cloud)), *with_)


def wrapped(text: str, most: float, lines: int = 2) -> list[str]:
    """A name in at most so many lines of so many pixels, broken at spaces, underscores and brackets, then cut.

    >>> wrapped("integrated_gradients(steps=16)", 140), wrapped("Saliency", 100)
    (['integrated_gradients', '(steps=16)'], ['Saliency'])
    """
    pieces = (
        text.replace("(", "\0(")
        .replace("_", "_\0")
        .replace(", ", ", \0")
        .replace(" ", " \0")
        .split("\0")
    )
    found = [""]
    for piece in pieces:
        if found[-1] and width_of(found[-1] + piece.rstrip()) > most:
            found.append("")
        found[-1] += piece
    rows = [row.strip() for row in found if row.strip()]
    if len(rows) > lines:
        rows = [*rows[: lines - 1], "".join(found[lines - 1 :]).strip()]
    room = max(4, int(most / width_of("n")) + 1)
    return [
        row if len(row) <= room else f"{row[: room // 2]}…{row[-(room - room // 2 - 1) :]}"
        for row in rows
    ]


def _names(sheet: Sheet, x: float, y: float, text: str, most: float, colour: str = "soft") -> None:
    """A name of one or two lines to the left of x, about the height y."""
    rows = wrapped(text, most)
    for i, row in enumerate(rows):
        sheet.add(Words(x, y + 4 + 12 * (i - (len(rows) - 1) / 2), row, colour, "end"))


def tick_text(value: float, percent: bool) -> str:
    """A number beside an axis."""
    return f"{100 * value:g} %" if percent else f"{value:g}".replace("-", "−")


def dots(
    title: str,
    marks: Sequence[Mark],
    ends: tuple[float, float],
    axis: str = "",
    note: str = "",
    guides: Sequence[tuple[str, float]] = (),
    percent: bool = False,
    log: bool = False,
    width: float = WIDE,
) -> Plot:
    """A row for each mark: its name, a band for its interval and a dot; `guides` are dotted lines through all rows."""
    names = min(
        NAMES, max((width_of(line) for m in marks for line in wrapped(m.name, NAMES)), default=0.0)
    )
    tall = 28.0 if any(len(wrapped(m.name, NAMES)) > 1 for m in marks) else ROW
    bottom = EDGE + tall * len(marks)
    sheet = Sheet(width, bottom + 18 + 15 * bool(axis))
    scale = Scale(*ends, names + 12, width - (18 if percent else EDGE), log)
    x_axis(sheet, scale, EDGE - 4, bottom, axis, percent)
    for name, value in guides:
        if ends[0] <= value <= ends[1]:
            with sheet.mark(name=name, value=value):
                sheet.add(
                    Stroke([(scale(value), EDGE - 4), (scale(value), bottom)], "third", 1.4, (2, 2))
                )
    for i, m in enumerate(marks):
        y = EDGE + tall * (i + 0.5)
        # the row of a method is one group, so that the page can move it
        with sheet.mark(**m.data, y=y):
            sheet.add(Box(0, y - tall / 2, width, tall, "card", 0))
            _names(sheet, names, y, m.name, NAMES, "third" if m.colour == "control" else "soft")
            for value in m.cloud:
                sheet.add(Dot(scale(value), y, 2, m.colour, opacity=0.22))
            if ends[0] <= m.chance <= ends[1]:
                x = scale(m.chance)
                sheet.add(Stroke([(x, y - tall / 2 + 2), (x, y + tall / 2 - 2)], "third", 1.4))
            _banded(sheet, m, scale, y, 5)
            if not math.isfinite(m.value):
                sheet.add(Words(scale(max(ends[0], 0)) + 6, y + 4, "no score", "third"))
    return Plot(title, sheet, note)


def _banded(sheet: Sheet, m: Mark, scale: Scale, y: float, half: float) -> None:
    """A band for the interval, as high as twice `half`, and a dot."""
    if m.low < m.high:
        left, right = scale(max(m.low, scale.low)), scale(min(m.high, scale.high))
        sheet.add(Box(left, y - half, max(right - left, 1), 2 * half, m.colour, BAND))
    if math.isfinite(m.value):
        sheet.add(Dot(scale(m.value), y, 4.2, m.colour, m.kind))  # type: ignore[arg-type]


def spot(
    m: Mark, ends: tuple[float, float], height: float, width: float = 112, bold: bool = True
) -> Sheet:
    """One row of `dots` alone, with its number beside it, for a cell of a table whose rows share a scale."""
    sheet, y = Sheet(width, height), height / 2
    scale = Scale(*ends, 6, width - 40)
    for tick in scale.ticks(2):
        sheet.add(
            Stroke(
                [(scale(tick), 0), (scale(tick), height)], "strong" if tick == 0 else "grid", 1.2
            )
        )
    with sheet.mark(**m.data):
        sheet.add(Box(0, 0, width, height, "card", 0))
        _banded(sheet, m, scale, y, 7)
        control = m.colour == "control"
        sheet.add(
            Words(
                width,
                y + 5,
                number(m.value),
                "third" if control else "ink",
                "end",
                14,
                bold and not control,
            )
        )
    return sheet


def x_axis(
    sheet: Sheet, scale: Scale, top: float, bottom: float, axis: str, percent: bool, most: int = 3
) -> None:
    """Lines and numbers of a horizontal axis, with its name below."""
    for tick in scale.ticks(most):
        x, zero = scale(tick), tick == 0 and not scale.log
        sheet.add(Stroke([(x, top), (x, bottom)], "strong" if zero else "grid", 1.4 if zero else 1))
        sheet.add(Words(x, bottom + 14, tick_text(tick, percent), "third", "middle"))
    if axis:
        middle = max((scale.start + scale.end) / 2, width_of(axis) / 2)
        sheet.add(
            Words(
                min(middle, sheet.width - width_of(axis) / 2), bottom + 29, axis, "third", "middle"
            )
        )


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
    ends: tuple[float, float],
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
    """Lines with thin bars for their intervals, named at their ends; ticks stand at the levels `at` that were run.

    `guides` are dotted lines at some heights.
    """
    every = [m for line in lines for m in line.marks]
    levels = sorted({m.x for m in every}) if at is None else sorted(set(at))
    named = [line for line in lines if line.name and not line.faint and line.marks]
    right = max((width_of(line.name, 11) for line in named), default=0.0) + (8 if named else 0)
    head = 14.0 * bool(y)
    tall = 150.0 + head
    sheet = Sheet(width, tall + 34)
    low, high = (min(levels), max(levels)) if levels else (0.0, 1.0)
    edge = 0 if log else 0.03 * ((high - low) or 1)
    last = high + edge if high > low else low * 2 if log else low + 1
    across = Scale(low - edge, last, 34, width - 8 - right, log)
    up = Scale(*ends, tall - 4, 8 + head)
    if y:
        sheet.add(Words(0, 11, y, "third"))
    for tick in up.ticks(3):
        sheet.add(
            Stroke([(34, up(tick)), (across.end, up(tick))], "strong" if tick == 0 else "grid")
        )
        sheet.add(Words(28, up(tick) + 4, tick_text(tick, percent), "third", "end"))
    last = -math.inf
    for level in levels if len(levels) <= 12 else across.ticks():
        text = f"{level:g}"
        if across(level) - width_of(text) / 2 > last + 3:
            sheet.add(Words(across(level), tall + 12, text, "third", "middle"))
            last = across(level) + width_of(text) / 2
    sheet.add(Words((34 + across.end) / 2, tall + 28, x, "third", "middle"))
    if diagonal:
        a, b = max(across.low, ends[0]), min(across.high, ends[1])
        sheet.add(Stroke([(across(a), up(a)), (across(b), up(b))], "third", 1, (1.5, 3)))
    for name, value in guides:
        if ends[0] <= value <= ends[1]:
            with sheet.mark(name=name, value=value):
                height = up(value)
                sheet.add(Stroke([(34, height), (across.end, height)], "third", 1.4, (2, 2)))
    for line in lines:
        _line(sheet, line, across, up)
    taken: list[float] = []
    for line in sorted(named, key=lambda one: up(one.marks[-1].value)):
        place = max([up(line.marks[-1].value) + 4, *(y_ + 11 for y_ in taken)])
        taken.append(place)
        sheet.add(Words(across(line.marks[-1].x) + 8, place, line.name, line.colour, size=11))
    return Plot(title, sheet, note)


def _line(sheet: Sheet, line: Curve, across: Scale, up: Scale) -> None:
    known = sorted((m for m in line.marks if math.isfinite(m.value)), key=lambda m: m.x)
    if len(known) > 1:
        width, opacity = (1.0, 0.55) if line.faint else (1.8, 1.0)
        where = [(across(m.x), up(m.value)) for m in known]
        sheet.add(Stroke(where, "strong" if line.faint else line.colour, width, line.dash, opacity))
    for m in [] if line.faint else known:
        with sheet.mark(**m.data):
            if m.low < m.high:
                ends = [
                    (across(m.x), up(max(m.low, up.low))),
                    (across(m.x), up(min(m.high, up.high))),
                ]
                sheet.add(Stroke(ends, line.colour, 1.2, (), 0.75))
            if m.x_low < m.x_high:
                sides = [
                    (across(min(max(v, across.low), across.high)), up(m.value))
                    for v in (m.x_low, m.x_high)
                ]
                sheet.add(Stroke(sides, line.colour, 1.2, (), 0.75))
            sheet.add(Dot(across(m.x), up(m.value), 3.2, line.colour, m.kind))  # type: ignore[arg-type]


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
    """A table of numbers, the stronger the further they are from 0, which is white; empty where there is none.

    `row_heads` are headings that stand before the rows of these numbers, `spans` a first line of headings over so many
    columns each.
    """
    row_heads = row_heads or {}
    longest = [width_of(line) for row in rows for line in wrapped(row, MOST_NAME)]
    names = min(MOST_NAME, max(longest, default=0.0))
    cell = max(46.0, min(92.0, (760 - names) / max(len(columns), 1)))
    words = [word for column in columns for word in column.split()]
    turned = len(columns) > 14 or any(width_of(word) > cell + 2 for word in words)
    wrap = [[column] if turned else wrapped(column, cell - 4, 3) for column in columns]
    if turned:
        head = max(map(width_of, columns), default=0.0)
        cell = 34.0
    else:
        head = LINE * max(map(len, wrap), default=1)
    spanned = SMALL_LINE if any(text for text, _ in spans) else 0.0
    top = spanned + 4 + head + 4
    tall = 30.0 if any(len(wrapped(row, MOST_NAME)) > 1 for row in rows) else 24.0
    left = names + 10
    height = top + tall * len(rows) + SMALL_LINE * len(row_heads) + 2
    sheet = Sheet(left + cell * len(columns) + 2, height)

    start = left
    for text, count in spans:
        end = start + cell * count
        if text:
            shown = wrapped(text, cell * count, 1)[0]
            sheet.add(Words((start + end) / 2, LINE, shown, "soft", "middle"))
            sheet.add(Stroke([(start + 2, LINE + 4), (end - 2, LINE + 4)], "strong"))
        start = end
    for j, lines in enumerate(wrap):
        middle = left + cell * (j + 0.5)
        for k, word in enumerate(lines):
            at = top - 6 if turned else top - 6 - LINE * (len(lines) - 1 - k)
            anchor: Anchor = "start" if turned else "middle"
            sheet.add(Words(middle + 4 * turned, at, word, "third", anchor, turned=turned))

    y = top
    for i, (row, line) in enumerate(zip(rows, values, strict=True)):
        if i in row_heads:
            sheet.add(Words(0, y + LINE, row_heads[i], "soft", bold=True))
            y += SMALL_LINE
        _names(sheet, names, y + tall / 2, row, MOST_NAME)
        for j, m in enumerate(line):
            x = left + cell * j
            if m is None or not math.isfinite(m.value):
                sheet.add(Box(x + 1, y + 1, cell - 2, tall - 2, "grid", 0.6))
                continue
            with sheet.mark(**m.data, row=row, column=columns[j]):
                colour = "heat" if m.value > 0 else "cold"
                strength = 0.55 * min(abs(m.value), 1.0)
                sheet.add(Box(x + 1, y + 1, cell - 2, tall - 2, colour, strength))
                middle, base = x + cell / 2, y + tall / 2 + 4
                size = 11 if turned else 12
                text = _cell_text(m, percent)
                sheet.add(Words(middle, base, text, "ink", "middle", size, m.bold))
        y += tall
    return Plot(title, sheet)


def _cell_text(m: Mark, percent: bool) -> str:
    """The number of a cell, with as many decimals as its interval allows, at most two."""
    if percent:
        return number(100 * m.value, 0)
    return number(m.value, min(2, digits_of(m.value, m.low, m.high)))

"""Series, rows of tables, texts, graphs and sets as drawings: the input, and its map on it.

Each is drawn once, for a page and for paper; a photograph with its map is made of pixels (`images`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from heatproof.evaluation import GalleryItem
from heatproof.report.canvas import Box, Dot, Sheet, Stroke, Words, width_of
from heatproof.report.styles import COLOURS
from heatproof.text import number

MOST_BARS = 24
"""The columns up to which a row of a table is drawn as bars."""
MOST_CHANNELS = 4
"""How many channels of a series are drawn."""
SMALLEST, LARGEST = 7, 14
"""The sizes of letters between which a text is fitted into its tile."""
BADGE = 40
"""Pixels at the right that the badge of a score may cover."""
NAMES_SHARE = 0.4
"""The share of the width of a row that the names of its columns take."""
FAINTEST = 0.02
"""Weaker values of a map are not drawn."""

Point = tuple[float, float]


def is_drawn(item: GalleryItem) -> bool:
    """Return whether a map is made of marks; that of a photograph, a series or a long row is made of pixels."""
    if item.kind == "table":
        return bool(item.image.shape[1] <= MOST_BARS)
    return item.kind in ("text", "graph", "set")


def is_wide(item: GalleryItem) -> bool:
    """Return whether a tile is wider than high."""
    return item.kind in ("series", "table", "text")


# ---- inputs ----------------------------------------------------------------------------------------------------------


def ground(item: GalleryItem, width: float, height: float, values: bool = False) -> Sheet:
    """Return what lies under a map: a curve, the names of columns, with `values` beside them, words, or nodes with edges."""
    sheet = Sheet(width, height)
    if item.kind == "text":
        _draw_words(sheet, item)
    elif item.kind in ("graph", "set"):
        _draw_nodes(sheet, item)
    elif is_drawn(item):
        _draw_columns(sheet, item, values)
    else:
        _draw_series(sheet, item)
    return sheet


def _draw_words(sheet: Sheet, item: GalleryItem) -> None:
    """Draw the words of a text in lines."""
    size, positions = _flow(item.words, sheet.width, sheet.height)
    for word, (x, y, wide) in zip(item.words, positions, strict=False):
        sheet.add(Words(x + wide / 2, y, _without_marker(word), "ink", "middle", size))


def _without_marker(token: str) -> str:
    """Return a token without the sign by which tokenizers mark the beginning of a word."""
    return token.lstrip("Ġ▁")


def _draw_nodes(sheet: Sheet, item: GalleryItem) -> None:
    """Draw the nodes of a graph with the edges between them, or the points of a set."""
    positions, radius = _node_positions(item, sheet.width, sheet.height)
    # Behind the two coordinates of the nodes stands their adjacency matrix; its upper half has each edge once.
    edges = np.argwhere(np.triu(item.image[:, 2:], 1) > 0)
    for start, end in edges:
        sheet.add(Stroke([positions[start], positions[end]], "third", 1))
    for x, y in positions:
        sheet.add(Dot(x, y, radius, "third", "hollow"))


def _draw_columns(sheet: Sheet, item: GalleryItem, values: bool) -> None:
    """Draw the names of the columns of a table below each other, with `values` their values at the right."""
    step = (sheet.height - 6) / item.image.shape[1]
    size = min(11.0, 0.9 * step)
    room = sheet.width - BADGE if values else 0.36 * sheet.width
    most_letters = int(room / width_of("n", size))
    for i, value in enumerate(item.image[0].tolist()):
        baseline = 3 + step * (i + 0.5) + 0.36 * size
        name = item.words[i] if i < len(item.words) else f"column {i}"
        if len(name) > most_letters:
            name = f"{name[: most_letters - 1]}…"
        sheet.add(Words(2, baseline, name, "soft", size=size))
        if values:
            sheet.add(Words(sheet.width - 2, baseline, number(value), "ink", "end", size))


def _draw_series(sheet: Sheet, item: GalleryItem) -> None:
    """Draw the first channels of a series as curves on one scale."""
    low, high = float(item.image.min()), float(item.image.max())
    for channel in item.image[:MOST_CHANNELS]:
        share = (channel - low) / max(high - low, 1e-9)
        heights = sheet.height - 8 - (sheet.height - 16) * share
        steps = sheet.width / len(heights)
        points = [(steps * (i + 0.5), float(y)) for i, y in enumerate(heights)]
        sheet.add(Stroke(points, "ink", 1.3))


# ---- maps ------------------------------------------------------------------------------------------------------------


def over(
    item: GalleryItem, unit: NDArray[np.float32], signed: bool, width: float, height: float
) -> Sheet:
    """Return a map with a value from −1 to 1 for each word, node or column: as its background, its disc or its bar."""
    sheet = Sheet(width, height)
    values = (unit if signed else np.clip(unit, 0, 1)).tolist()
    colours = [_colour(value, signed) for value in values]
    if item.kind == "text":
        size, positions = _flow(item.words, width, height)
        for value, colour, (x, y, wide) in zip(values, colours, positions, strict=False):
            if abs(value) > FAINTEST:
                sheet.add(Box(x, y - size, wide, 1.32 * size, colour, 0.6 * abs(value)))
    elif item.kind in ("graph", "set"):
        nodes, radius = _node_positions(item, width, height)
        for value, colour, (x, y) in zip(values, colours, nodes, strict=True):
            if abs(value) > FAINTEST:
                opacity = round(0.9 * abs(value), 2)
                sheet.add(Dot(x, y, radius, colour, opacity=opacity))
    else:
        _draw_bars(sheet, values, colours, signed)
    return sheet


def _colour(value: float, signed: bool) -> str:
    if not signed:
        return "strength"
    return "for" if value > 0 else "against"


def _draw_bars(sheet: Sheet, values: Sequence[float], colours: Sequence[str], signed: bool) -> None:
    """Draw a bar for each value, to the right of zero or to both sides of it."""
    left = NAMES_SHARE * sheet.width
    room = sheet.width - left - BADGE
    reach = room / 2 if signed else room
    zero = left + reach if signed else left
    sheet.add(Stroke([(zero, 0), (zero, sheet.height)], "strong"))
    step = (sheet.height - 6) / len(values)
    for i, (value, colour) in enumerate(zip(values, colours, strict=True)):
        start = zero + reach * min(value, 0)
        top = 3 + step * (i + 0.14)
        opacity = 0.35 + 0.5 * abs(value)
        sheet.add(Box(start, top, reach * abs(value), 0.72 * step, colour, opacity))


def uri(sheet: Sheet) -> str:
    """Return a drawing for a tile as a data URI; tiles are white in the dark too, so it has the light colours."""
    svg = str(sheet.svg())
    with_colours = re.sub(r"var\(--(\w+)\)", lambda match: COLOURS[match[1]][0], svg)
    head = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" '
    alone = with_colours.replace("<svg ", head, 1)
    return "data:image/svg+xml," + quote(alone, safe=" <>=/\"':;,.()-")


# ---- positions -------------------------------------------------------------------------------------------------------


def _flow(
    words: Sequence[str], width: float, height: float
) -> tuple[float, list[tuple[float, float, float]]]:
    """Return the size of letters at which words fit between the edges, and start, baseline and width of those that do."""
    for size in range(LARGEST, SMALLEST - 1, -1):
        positions = []
        x, y = 0.0, 1.2 * size
        for word in words:
            wide = width_of(_without_marker(word), size) + 0.5 * size
            if x and x + wide > width:
                x, y = 0.0, y + 1.5 * size
            positions.append((x, y, wide))
            x += wide + 2
        if y <= height - 20:
            break
    return size, [position for position in positions if position[1] <= height - 4]


def _node_positions(item: GalleryItem, width: float, height: float) -> tuple[list[Point], float]:
    """Return where nodes are drawn, on one scale both ways, and their radius."""
    stored = item.image[:, :2]
    radius = max(2.5, min(6.0, 22 / max(len(stored), 1) ** 0.5))
    low, high = (stored.min(0), stored.max(0)) if len(stored) else (np.zeros(2), np.ones(2))
    size = np.array([width, height])
    room = size - 2 * radius - 4
    scale = float((room / np.maximum(high - low, 1e-9)).min())
    positions = size / 2 + scale * (stored - (low + high) / 2)
    return [tuple(position) for position in positions.tolist()], radius

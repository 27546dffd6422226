"""Series, rows of tables, texts, graphs and sets as drawings: the input, and its map on it.

Each is drawn once, for a page and for paper; a photograph with its map is made of pixels (`pictures`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from heatproof.drawing.methods import COLOURS
from heatproof.drawing.prose import number
from heatproof.drawing.sheet import Box, Dot, Sheet, Stroke, Words, width_of
from heatproof.evaluation import GalleryItem

BARS, SEEN = 24, 4
"""Up to how many columns a row has bars, and how many channels of a series are seen."""
SMALLEST, LARGEST = 7, 14
"""The sizes of letters between which a text is fitted into its tile."""
BADGE = 40
"""Pixels at the right that the badge of a score may cover."""


def is_drawn(shown: GalleryItem) -> bool:
    """Whether a map is made of marks; that of a photograph, a series or a long row is made of pixels."""
    return shown.kind in ("text", "graph", "set") or (
        shown.kind == "table" and shown.image.shape[1] <= BARS
    )


def is_wide(shown: GalleryItem) -> bool:
    """Whether a tile is wider than high."""
    return shown.kind in ("series", "table", "text")


def ground(shown: GalleryItem, width: float, height: float, values: bool = False) -> Sheet:
    """What lies under a map: a curve, the names of columns, with `values` beside them, words, or nodes with edges."""
    sheet = Sheet(width, height)
    if shown.kind == "text":
        size, places = _flow(shown.words, width, height)
        for word, (x, y, wide) in zip(shown.words, places, strict=False):
            sheet.add(Words(x + wide / 2, y, word.lstrip("Ġ▁"), "ink", "middle", size))
    elif shown.kind in ("graph", "set"):
        spots, radius = _spots(shown, width, height)
        for i, j in np.argwhere(np.triu(shown.image[:, 2:], 1) > 0):
            sheet.add(Stroke([spots[i], spots[j]], "third", 1))
        sheet.add(*(Dot(x, y, radius, "third", "hollow") for x, y in spots))
    elif is_drawn(shown):
        step = (height - 6) / shown.image.shape[1]
        size = min(11.0, 0.9 * step)
        for i, value in enumerate(shown.image[0].tolist()):
            y, name = (
                3 + step * (i + 0.5) + 0.36 * size,
                shown.words[i] if i < len(shown.words) else f"column {i}",
            )
            room = int((width - BADGE if values else 0.36 * width) / width_of("n", size))
            cut = name if len(name) <= room else f"{name[: room - 1]}…"
            sheet.add(Words(2, y, cut, "soft", size=size))
            if values:
                sheet.add(Words(width - 2, y, number(value), "ink", "end", size))
    else:
        low, high = float(shown.image.min()), float(shown.image.max())
        for channel in shown.image[:SEEN]:
            y = height - 8 - (height - 16) * (channel - low) / max(high - low, 1e-9)
            sheet.add(
                Stroke(
                    [(width * (i + 0.5) / len(y), float(v)) for i, v in enumerate(y)], "ink", 1.3
                )
            )
    return sheet


def over(
    shown: GalleryItem, unit: NDArray[np.float32], signed: bool, width: float, height: float
) -> Sheet:
    """A map with a value from −1 to 1 for each word, node or column: as its background, its disc or its bar."""
    sheet = Sheet(width, height)
    unit = unit if signed else np.clip(unit, 0, 1)
    inks = [("for" if v > 0 else "against") if signed else "strength" for v in unit.tolist()]
    if shown.kind == "text":
        size, places = _flow(shown.words, width, height)
        for v, ink, (x, y, wide) in zip(np.abs(unit).tolist(), inks, places, strict=False):
            sheet.add(*([Box(x, y - size, wide, 1.32 * size, ink, 0.6 * v)] if v > 0.02 else []))
    elif shown.kind in ("graph", "set"):
        spots, radius = _spots(shown, width, height)
        for (x, y), v, ink in zip(spots, np.abs(unit).tolist(), inks, strict=True):
            sheet.add(*([Dot(x, y, radius, ink, opacity=round(0.9 * v, 2))] if v > 0.02 else []))
    else:
        step, left = (height - 6) / len(unit), 0.4 * width
        reach = (width - left - BADGE) / (2 if signed else 1)
        zero = left + reach * signed
        sheet.add(Stroke([(zero, 0), (zero, height)], "strong"))
        for i, (v, ink) in enumerate(zip(unit.tolist(), inks, strict=True)):
            start = zero + reach * min(v, 0)
            sheet.add(
                Box(
                    start,
                    3 + step * (i + 0.14),
                    reach * abs(v),
                    0.72 * step,
                    ink,
                    0.35 + 0.5 * abs(v),
                )
            )
    return sheet


def uri(sheet: Sheet) -> str:
    """A drawing for a tile, which is white in the dark too, as a data URI."""
    text = re.sub(r"var\(--(\w+)\)", lambda found: COLOURS[found[1]][0], str(sheet.svg()))
    head = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="12" '
    return "data:image/svg+xml," + quote(text.replace("<svg ", head, 1), safe=" <>=/\"':;,.()-")


def _flow(
    words: Sequence[str], width: float, height: float
) -> tuple[float, list[tuple[float, float, float]]]:
    """The size of letters at which words fit between the edges, and the start, baseline and width of those that do."""
    for size in range(LARGEST, SMALLEST - 1, -1):
        places, x, y = [], 0.0, 1.2 * size
        for word in words:
            wide = width_of(word.lstrip("Ġ▁"), size) + 0.5 * size
            if x and x + wide > width:
                x, y = 0.0, y + 1.5 * size
            places.append((x, y, wide))
            x += wide + 2
        if y <= height - 20:
            break
    return size, [place for place in places if place[1] <= height - 4]


def _spots(
    shown: GalleryItem, width: float, height: float
) -> tuple[list[tuple[float, float]], float]:
    """Where nodes are drawn, on one scale both ways, and how large."""
    at, radius = shown.image[:, :2], max(2.5, min(6.0, 22 / max(len(shown.image), 1) ** 0.5))
    low, high = (at.min(0), at.max(0)) if len(at) else (np.zeros(2), np.ones(2))
    room = np.array([width, height]) - 2 * radius - 4
    scale = float((room / np.maximum(high - low, 1e-9)).min())
    middle = np.array([width, height]) / 2
    return [tuple(spot) for spot in (middle + scale * (at - (low + high) / 2)).tolist()], radius


def layout(edges: NDArray[np.float32], steps: int = 60) -> NDArray[np.float32]:
    """Where each of N nodes with edges (N, N) is drawn, (N, 2): as far from every other as there are steps between.

    The distances in the plane are brought to those along edges by majorising their squared differences.

    >>> path = layout(np.diag(np.ones(2, np.float32), 1))
    >>> np.round(np.linalg.norm(path[0] - path[[1, 2]], axis=1), 2).tolist()
    [1.0, 2.0]
    """
    n = len(edges)
    near = (edges + edges.T) > 0
    far = np.where(near, 1.0, np.where(np.eye(n) > 0, 0.0, np.inf))
    for k in range(n):
        far = np.minimum(far, far[:, k, None] + far[k])
    far[np.isinf(far)] = (
        far[np.isfinite(far)].max(initial=0) + 1.5
    )  # parts without an edge between them
    centred = np.eye(n) - 1 / max(n, 1)
    values, vectors = np.linalg.eigh(-0.5 * centred @ far**2 @ centred)
    turn = 2 * np.pi * np.arange(n) / max(n, 1)  # leaves of one node would fall together
    spots = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0)) + 0.1 * np.stack(
        [np.cos(turn), np.sin(turn)], 1
    )
    for _ in range(steps):
        apart = np.linalg.norm(spots[:, None] - spots, axis=2)
        pull = -np.divide(far, apart, out=np.zeros_like(far), where=apart > 0)
        np.fill_diagonal(pull, -pull.sum(1))
        spots = pull @ spots / max(n, 1)
    return np.asarray(spots, dtype=np.float32)

"""The gallery: the worst, the median and the best pair of every method, and the first samples in full."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from markupsafe import Markup

from holdfast.axes.contract import Judged
from holdfast.axes.stability.gallery_choice import Chosen, choose
from holdfast.axes.stability.perturbations import title
from holdfast.drawing.charts import Panel
from holdfast.drawing.pages import page
from holdfast.drawing.pictures import (
    BYTES_PER_PIXEL,
    LARGEST_MAP,
    PHOTO_SIDE,
    SMALLEST_MAP,
    Album,
    draw_map,
    is_signed,
    photo,
    prediction,
    reach,
)
from holdfast.drawing.prose import number, records
from holdfast.types import Shown

MAP_BUDGET = 2_200_000
EXTREME_BUDGET = 1_200_000  # of the map budget, for the worst, median and best pairs
PHOTO_BUDGET, BYTES_PER_PHOTO_PIXEL, SMALLEST_PHOTO = 1_000_000, 0.5, 80
MAPS_OF_A_PAIR = 3


@dataclass(frozen=True)
class Tile:
    """One pair under one condition: keys of its pictures and the words under them."""

    title: str
    image: str
    map: str
    status: str
    scores: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Card:
    """One sample under one explainer."""

    sample: str
    prediction: str
    tiles: list[Tile]


@dataclass(frozen=True)
class Pair:
    """The worst, median or best pair: keys of the two inputs, their maps and the difference of the maps."""

    role: str
    sample: str
    prediction: str
    condition: str
    before: tuple[str, str]
    after: tuple[str, str]
    difference: str
    score: str
    scores: list[str]


@dataclass(frozen=True)
class Gallery:
    """Per explainer the pairs with what they were chosen from, and cards; the pictures by key."""

    pairs: dict[str, list[Pair]]
    chosen_from: dict[str, str]
    cards: dict[str, list[Card]]
    pictures: dict[str, str]
    left_out: int

    @property
    def explainers(self) -> list[str]:
        """Those with anything to show."""
        return list(dict.fromkeys([*self.pairs, *self.cards]))


CAPTION = "Signed maps run blue – white – red about zero, others white to violet; each map has its own scale, and a "
CAPTION += "difference that of its maps. Press a picture to enlarge it."


def gallery_panel(judged: Judged) -> Panel | None:
    """The gallery as a part of the page; None where a run has kept no maps."""
    made = gallery(judged)
    if not made.explainers:
        return None
    inside = page(__package__, "gallery.html").render(gallery=made)
    return Panel("gallery", "Gallery", CAPTION, Markup(inside), made.pictures)


def gallery(judged: Judged) -> Gallery:
    """The pictures of one dataset and model, small enough to travel inside the page."""
    shown, cube = judged.exhibits, judged.cube
    known = judged.samples.drop_duplicates("sample").set_index("sample")
    rows = judged.rows
    table = rows[rows["sample"].isin({item.sample for item in shown})]
    signed = {item.explainer for item in shown if item.map is not None and is_signed(item.map)}
    scores = _scores(table)
    album = Album()
    chosen = choose(shown, cube)
    showcase = _showcase(shown)
    side, kept = _fit(sum(item.map is not None for item in showcase), len({item.sample for item in showcase}))
    first = list(dict.fromkeys(item.sample for item in showcase))
    inside = set(first[:kept])
    photos: dict[tuple[str, str, float], str] = {}
    for item in showcase:
        place = (item.sample, item.condition, item.level)
        if place not in photos and item.sample in inside:
            photos[place] = album.add(photo(item.image))
    cards: dict[str, dict[str, Card]] = {}
    for item in showcase:
        if not item.explainer or item.sample not in inside:
            continue
        status, lines = scores.get((item.explainer, item.condition, item.level, item.sample), ("", []))
        if item.map is None and not status:
            status = "no map"
        drawn = "" if item.map is None else album.add(draw_map(item.map, item.explainer in signed, side))
        clean = item.condition == "clean"
        heading = "clean" if clean else title(item.condition, item.level)
        image = photos[item.sample, item.condition, item.level]
        deck = cards.setdefault(item.explainer, {})
        card = deck.setdefault(item.sample, Card(item.sample, prediction(known, item.sample), []))
        card.tiles.insert(0 if clean else len(card.tiles), Tile(heading, image, drawn, status, lines))
    pairs = _pairs(chosen, album, signed, known, scores)
    words = {explainer: found.words for explainer, found in chosen.items()}
    decks = {explainer: list(deck.values()) for explainer, deck in cards.items()}
    return Gallery(pairs, words, decks, album.pictures, len(first) - kept)


def _showcase(shown: Sequence[Shown]) -> list[Shown]:
    """The exhibits of samples that are shown under every condition, the first ones of the data."""
    plain = [item for item in shown if not item.role]
    full = {item.sample for item in plain if item.condition != "clean"}
    return [item for item in plain if item.sample in full]


def _pairs(
    chosen: Mapping[str, Chosen],
    album: Album,
    signed: set[str],
    known: pd.DataFrame,
    scores: Mapping[tuple[str, str, float, str], tuple[str, list[str]]],
) -> dict[str, list[Pair]]:
    count = sum(len(found.pairs) for found in chosen.values())
    side = _side(EXTREME_BUDGET, count * MAPS_OF_A_PAIR, BYTES_PER_PIXEL, SMALLEST_MAP, LARGEST_MAP)
    photo_side = _side(PHOTO_BUDGET, count * 2, BYTES_PER_PHOTO_PIXEL, SMALLEST_PHOTO, PHOTO_SIDE)
    found: dict[str, list[Pair]] = {}
    for explainer, choice in chosen.items():
        for pair in choice.pairs:
            before, after = pair.before, pair.after
            if before.map is None or after.map is None:
                continue
            top = max(reach(before.map), reach(after.map))  # the difference has the scale of the maps
            words = scores.get((explainer, after.condition, after.level, after.sample), ("", []))[1]
            halves = [
                (album.add(photo(half.image, photo_side)), album.add(draw_map(values, explainer in signed, side)))
                for half, values in ((before, before.map), (after, after.map))
            ]
            found.setdefault(explainer, []).append(
                Pair(
                    role=pair.role,
                    sample=after.sample,
                    prediction=prediction(known, after.sample),
                    condition=title(after.condition, after.level),
                    before=halves[0],
                    after=halves[1],
                    difference=album.add(draw_map(after.map - before.map, True, side, top)),
                    score=number(pair.score),
                    scores=words,
                )
            )
    return found


def _scores(table: pd.DataFrame) -> dict[tuple[str, str, float, str], tuple[str, list[str]]]:
    """Status and score lines of every pair among the rows."""
    found: dict[tuple[str, str, float, str], tuple[str, list[str]]] = {}
    pairs: dict[tuple[str, str, float, str], list[Any]] = {}
    for row in records(table):  # one pass; a group at a time takes ten times as long
        pairs.setdefault((str(row.explainer), str(row.condition), float(row.level), str(row.sample)), []).append(row)
    for pair, rows in pairs.items():
        one = rows[0]
        status, reason = str(one.status), str(one.reason or "")
        values = {str(row.measure): row.value for row in rows}
        lines = _score_lines(values) if status == "ok" else []
        words = "" if status == "ok" else f"{status}: {reason}" if reason not in ("", "nan", status) else status
        found[pair] = (words, lines)
    return found


def _score_lines(values: Mapping[str, float]) -> list[str]:
    lines = []
    for name, measure in (("FASS", "fass"), ("aligned", "fass_aligned")):
        if measure in values:
            by = f", chance {number(values[f'{measure}_chance'])}" if f"{measure}_chance" in values else ""
            lines.append(f"{name} {number(values[measure])}{by}")
    parts = (("SSIM", "ssim"), ("Spearman", "spearman"), ("Jaccard", "jaccard"))
    lines.append(" · ".join(f"{name} {number(values[m])}" for name, m in parts if m in values))
    return [line for line in lines if line]


def _fit(maps: int, samples: int) -> tuple[int, int]:
    """The side of a map and the number of samples, none if need be, that keep their maps within the budget."""
    if not maps:
        return LARGEST_MAP, samples
    budget, each = MAP_BUDGET - EXTREME_BUDGET, maps / samples
    kept = min(samples, int(budget / (BYTES_PER_PIXEL * SMALLEST_MAP**2 * each)))
    return _side(budget, each * kept, BYTES_PER_PIXEL, SMALLEST_MAP, LARGEST_MAP), kept


def _side(budget: float, pictures: float, per_pixel: float, smallest: int, largest: int) -> int:
    """The side of square pictures that together cost no more than the budget, between two limits."""
    return int(min(max(math.sqrt(budget / max(pictures, 1) / per_pixel), smallest), largest))

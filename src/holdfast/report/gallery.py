"""Real pairs as small pictures: photographs as JPEG, maps as palette PNG, each picture stored once."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image
from plotly import colors

from holdfast.perturbations import title
from holdfast.report.verdict import number, records
from holdfast.table import Shown

PHOTO_SIDE = 160
LARGEST_MAP, SMALLEST_MAP = 128, 48
MAP_BUDGET = 2_400_000
SHADES = 33
BYTES_PER_PIXEL = 0.62  # what a map of pure noise costs in `SHADES` colours


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
class Gallery:
    """Cards by explainer, the input strip, the pictures by key, and how many samples were left out for size."""

    cards: dict[str, list[Card]]
    strip: list[tuple[str, str, str, str]]
    pictures: dict[str, str]
    left_out: int


def gallery(exhibits: Iterable[Shown], table: pd.DataFrame, samples: pd.DataFrame) -> Gallery:
    """The pictures of one dataset and model, small enough to travel inside the page.

    >>> columns = ["explainer", "condition", "level", "sample", "measure", "value", "status", "reason"]
    >>> gallery([], pd.DataFrame(columns=columns), pd.DataFrame(columns=["sample"])).pictures
    {}
    """
    shown = list(exhibits)
    names = list(dict.fromkeys(item.sample for item in shown))
    maps = sum(item.map is not None for item in shown)
    side, kept = _fit(maps, len(names))
    left_out = len(names) - kept
    names = names[:kept]
    shown = [item for item in shown if item.sample in set(names)]
    signed = {item.explainer for item in shown if item.map is not None and _is_signed(item.map)}
    known = samples.drop_duplicates("sample").set_index("sample")
    scores = _scores(table[table["sample"].astype(str).isin(names)])

    pictures: dict[str, str] = {}
    keys: dict[str, str] = {}

    def picture(uri: str) -> str:
        if uri not in keys:
            keys[uri] = f"p{len(keys)}"
            pictures[keys[uri]] = uri
        return keys[uri]

    photos: dict[tuple[str, str, float], str] = {}
    cards: dict[str, dict[str, Card]] = {}
    for item in shown:
        place = (item.sample, item.condition, item.level)
        if place not in photos:
            photos[place] = picture(photo(item.image))
        if not item.explainer:
            continue
        status, lines = scores.get((item.explainer, item.condition, item.level, item.sample), ("", []))
        if item.map is None and not status:
            status = "no map"
        drawn = "" if item.map is None else picture(draw_map(item.map, item.explainer in signed, side))
        clean = item.condition == "clean"
        heading = "clean" if clean else title(item.condition, item.level)
        deck = cards.setdefault(item.explainer, {})
        card = deck.setdefault(item.sample, Card(item.sample, prediction(known, item.sample), []))
        card.tiles.insert(0 if clean else len(card.tiles), Tile(heading, photos[place], drawn, status, lines))
    strip = []
    for name in names:
        at = next((photos[p] for p in photos if p[0] == name and p[1] == "clean"), "")
        if at:
            strip.append((name, at, prediction(known, name), _label(known, name)))
    return Gallery({e: list(deck.values()) for e, deck in cards.items()}, strip, pictures, left_out)


def prediction(known: pd.DataFrame, sample: str) -> str:
    """The predicted class of a sample in words, with its probability; empty when unknown."""
    if sample not in known.index:
        return ""
    row: dict[str, Any] = {str(k): v for k, v in known.loc[sample].items()}
    name = str(row.get("predicted_name") or "")
    if not name and pd.notna(row.get("predicted")):
        name = f"class {int(row['predicted'])}"
    chance = row.get("probability")
    return f"{name} ({100 * chance:.0f} %)" if name and chance is not None and pd.notna(chance) else name


def _label(known: pd.DataFrame, sample: str) -> str:
    """Whether the label agrees with the prediction; the name of a label's class is not always known."""
    if sample not in known.index:
        return ""
    label, predicted = known.loc[sample].get("label"), known.loc[sample].get("predicted")
    if label is None or pd.isna(label) or label < 0:
        return "no label"
    right = pd.notna(predicted) and int(label) == int(predicted)
    return "label agrees" if right else f"label is class {int(label)}"


def _scores(table: pd.DataFrame) -> dict[tuple[str, str, float, str], tuple[str, list[str]]]:
    """Status and score lines of every pair among the rows."""
    found: dict[tuple[str, str, float, str], tuple[str, list[str]]] = {}
    keys = ["explainer", "condition", "level", "sample"]
    for _, rows in table.groupby(keys, sort=False, observed=True):
        one = records(rows)[0]
        status, reason = str(one.status), str(one.reason or "")
        values = dict(zip(rows["measure"].astype(str), rows["value"], strict=True))
        lines = _score_lines(values) if status == "ok" else []
        words = "" if status == "ok" else f"{status}: {reason}" if reason not in ("", "nan", status) else status
        found[str(one.explainer), str(one.condition), float(one.level), str(one.sample)] = (words, lines)
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
    """The side of a map and the number of samples that keep all maps within the budget."""
    if not maps:
        return LARGEST_MAP, samples
    each = maps / samples
    smallest = BYTES_PER_PIXEL * SMALLEST_MAP**2 * each
    kept = max(1, min(samples, int(MAP_BUDGET / smallest)))
    side = math.sqrt(MAP_BUDGET / (each * kept) / BYTES_PER_PIXEL)
    return int(min(max(side, SMALLEST_MAP), LARGEST_MAP)), kept


def photo(image: NDArray[np.uint8], side: int = PHOTO_SIDE) -> str:
    """A picture of at most `side` pixels as a JPEG data URI.

    >>> photo(np.zeros((400, 300, 3), np.uint8))[:23]
    'data:image/jpeg;base64,'
    """
    picture = Image.fromarray(np.ascontiguousarray(np.squeeze(image))).convert("RGB")
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    buffer = io.BytesIO()
    picture.save(buffer, "JPEG", quality=80, optimize=True)
    return "data:image/jpeg;base64," + base64.b64encode(buffer.getvalue()).decode()


def draw_map(values: NDArray[Any], signed: bool, side: int = LARGEST_MAP) -> str:
    """A map as a palette PNG data URI: blue–white–red about 0 when signed, dark to bright from its minimum otherwise.

    The scale ends at the 99.5th percentile of the size, so that one bright pixel does not hide the rest.

    >>> draw_map(np.eye(8), signed=False)[:22]
    'data:image/png;base64,'
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    picture = Image.fromarray(numbers)
    if max(picture.size) > side:
        scale = side / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.BOX)
    small = np.asarray(picture)
    if signed:
        top = max(float(np.percentile(np.abs(small), 99.5)), 1e-30)
        unit = 0.5 + 0.5 * np.clip(small / top, -1, 1)
    else:
        low, high = float(small.min()), float(np.percentile(small, 99.5))
        unit = np.clip((small - low) / max(high - low, 1e-30), 0, 1)
    coded = Image.fromarray(np.round(unit * (SHADES - 1)).astype(np.uint8)).convert("P")
    coded.putpalette(_palette(signed))
    buffer = io.BytesIO()
    coded.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def _palette(signed: bool) -> list[int]:
    """`SHADES` colours of a perceptually uniform scale as r, g, b, r, g, b, …"""
    scale: Sequence[str] = colors.cmocean.balance if signed else colors.sequential.Inferno
    anchors = np.array([_rgb(colour) for colour in scale])
    at = np.linspace(0, len(anchors) - 1, SHADES)
    mixed = [np.interp(at, np.arange(len(anchors)), anchors[:, channel]) for channel in range(3)]
    return [round(float(v)) for v in np.stack(mixed, 1).ravel()]


def _rgb(colour: str) -> tuple[float, ...]:
    if colour.startswith("#"):
        return tuple(int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return tuple(float(part) for part in colour[4:-1].split(","))


def _is_signed(values: NDArray[Any]) -> bool:
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float32))
    low, high = float(numbers.min()), float(numbers.max())
    return low < -0.01 * max(high, 1e-30)

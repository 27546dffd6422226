"""Small pictures as data URIs: photographs as JPEG, maps as palette PNG."""

from __future__ import annotations

import base64
import hashlib
import io
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from PIL import Image

PHOTO_SIDE = 160
LARGEST_MAP, SMALLEST_MAP = 128, 48
SHADES = 33
SIGNED, UNSIGNED = ("0b4a94", "ffffff", "a81322"), ("ffffff", "b583dc", "420673")
"""Scales about a true zero, which is white; violet says that a map has no sign."""
BYTES_PER_PIXEL = 0.62  # what a map of pure noise costs in `SHADES` colours


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


def draw_map(values: NDArray[Any], signed: bool, side: int = LARGEST_MAP, top: float = 0.0) -> str:
    """A map as a palette PNG data URI: blue–white–red about 0 when signed, else from white at 0 to violet.

    The scale ends at `top`, or without it at the 99.5th percentile of the size, so that one bright pixel does not hide
    the rest.

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
        unit = 0.5 + 0.5 * np.clip(small / (top or reach(small)), -1, 1)
    else:
        unit = np.clip(small / (top or reach(small)), 0, 1)
    coded = Image.fromarray(np.round(unit * (SHADES - 1)).astype(np.uint8)).convert("P")
    coded.putpalette(_palette(signed))
    buffer = io.BytesIO()
    coded.save(buffer, "PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def reach(values: NDArray[Any]) -> float:
    """Where the scale of a map ends: the 99.5th percentile of its size."""
    return max(float(np.percentile(np.abs(values), 99.5)), 1e-30)


def _palette(signed: bool) -> list[int]:
    """`SHADES` colours between those of a scale, as r, g, b, r, g, b, …"""
    anchors = np.array([tuple(bytes.fromhex(colour)) for colour in (SIGNED if signed else UNSIGNED)])
    at = np.linspace(0, len(anchors) - 1, SHADES)
    mixed = [np.interp(at, np.arange(len(anchors)), anchors[:, channel]) for channel in range(3)]
    return [round(float(v)) for v in np.stack(mixed, 1).ravel()]


def is_signed(values: NDArray[Any]) -> bool:
    """Whether a map has negative values to speak of.

    >>> is_signed(np.array([[-0.5, 1.0]])), is_signed(np.array([[-0.001, 1.0]]))
    (True, False)
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float32))
    low, high = float(numbers.min()), float(numbers.max())
    return low < -0.01 * max(high, 1e-30)


class Album:
    """Pictures by key, each stored once; a key is made from what the picture shows, so it is the same on any page."""

    def __init__(self) -> None:
        self.pictures: dict[str, str] = {}

    def add(self, uri: str) -> str:
        """The key of a picture, which is stored if it is new."""
        key = f"p{hashlib.blake2b(uri.encode(), digest_size=6).hexdigest()}"
        self.pictures[key] = uri
        return key


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


def label_words(known: pd.DataFrame, sample: str) -> str:
    """Whether the label agrees with the prediction; the name of a label's class is not always known."""
    if sample not in known.index:
        return ""
    label, predicted = known.loc[sample].get("label"), known.loc[sample].get("predicted")
    if label is None or pd.isna(label) or label < 0 or pd.isna(known.loc[sample].get("probability", 1.0)):
        return "no label"
    right = pd.notna(predicted) and int(label) == int(predicted)
    return "label agrees" if right else f"label is class {int(label)}"

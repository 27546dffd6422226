"""Small pictures as data URIs: photographs, and maps in grey, which the page colours; and pictures on paper."""

from __future__ import annotations

import base64
import hashlib
import io
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from heatproof.evaluation import GalleryItem
from heatproof.maps.overlay import OPACITIES, colours_of_maps, overlaid, unit_map
from heatproof.report import map_drawings
from heatproof.report.canvas import Picture, Sheet

PHOTO_SIDE, LARGEST_MAP = 160, 224
WEBP_PHOTO, WEBP_MAP = 70, 25
"""The quality of WebP for photographs and for maps."""


def photo(image: NDArray[np.uint8], side: int = PHOTO_SIDE) -> str:
    """Return a picture of at most `side` pixels as a data URI.

    >>> photo(np.zeros((400, 300, 3), np.uint8))[:23]
    'data:image/webp;base64,'
    """
    picture = Image.fromarray(np.ascontiguousarray(np.squeeze(image))).convert("RGB")
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _data_uri(picture, WEBP_PHOTO)


def _data_uri(picture: Image.Image, quality: int) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=3)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def draw_map(values: NDArray[Any], signed: bool, side: int = LARGEST_MAP) -> str:
    """Return a map in eight bits of grey as a data URI, which `filters` colour: zero is grey if signed, else black.

    >>> draw_map(np.eye(8), signed=False)[:23]
    'data:image/webp;base64,'
    """
    unit = unit_map(values, side)
    grey = 0.5 + 0.5 * unit if signed else np.clip(unit, 0, 1)
    return _data_uri(Image.fromarray(np.round(255 * grey).astype(np.uint8)), WEBP_MAP)


def filters() -> Markup:
    """Return the SVG filters `signed` and `unsigned`, which colour grey maps and let zero show what is behind."""
    both = _filter("signed", signed=True) + _filter("unsigned", signed=False)
    return Markup(f'<svg class="unseen" width="0" height="0" aria-hidden="true">{both}</svg>')


def _filter(name: str, signed: bool) -> str:
    """Return an SVG filter that makes colours and opacity of the grey level of a map.

    Of a signed map, the middle grey is zero.
    """
    # A signed map changes its colour at zero; one without sign goes through all colours of its scale.
    way = "discrete" if signed else "table"
    channels = ""
    for channel, values in zip("RGB", colours_of_maps(signed).T, strict=True):
        table = " ".join(f"{value:.3f}" for value in values)
        channels += f'<feFunc{channel} type="{way}" tableValues="{table}"/>'
    cover = (*OPACITIES[:0:-1], *OPACITIES) if signed else OPACITIES
    alpha = f'<feFuncA type="table" tableValues="{" ".join(map(str, cover))}"/>'
    return (
        f'<filter id="{name}" color-interpolation-filters="sRGB" x="0" y="0" width="1" height="1">'
        f'<feComponentTransfer in="SourceGraphic" result="ink">{channels}</feComponentTransfer>'
        '<feColorMatrix in="SourceGraphic" values="0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0"/>'
        f'<feComponentTransfer result="cover">{alpha}</feComponentTransfer>'
        '<feComposite in="ink" in2="cover" operator="in"/></filter>'
    )


def is_signed(values: NDArray[Any]) -> bool:
    """Return whether a map has negative values to speak of.

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
        """Return the key of a picture, which is stored if it is new."""
        key = f"p{hashlib.blake2b(uri.encode(), digest_size=6).hexdigest()}"
        self.pictures[key] = uri
        return key


def prediction(samples: pd.DataFrame, sample: str) -> str:
    """Return the predicted class of a sample in words, with its probability; empty if unknown.

    `samples` is indexed by sample.
    """
    if sample not in samples.index:
        return ""
    row: dict[str, Any] = {str(column): value for column, value in samples.loc[sample].items()}
    name = str(row.get("predicted_name") or "")
    if not name and pd.notna(row.get("predicted")):
        name = f"class {int(row['predicted'])}"
    probability = row.get("probability")
    if not name or probability is None or pd.isna(probability):
        return name.replace("-", "−", 1) if name.startswith("-") else name
    return f"{name} ({100 * probability:.0f} %)"


def label_words(samples: pd.DataFrame, sample: str) -> str:
    """Return whether the label of a sample agrees with the prediction; `samples` is indexed by sample."""
    if sample not in samples.index:
        return ""
    row = samples.loc[sample]
    label, predicted = row.get("label"), row.get("predicted")
    has_classes = pd.notna(row.get("probability", 1.0))
    if label is None or pd.isna(label) or label < 0 or not has_classes:
        return "no label"
    is_right = pd.notna(predicted) and int(label) == int(predicted)
    return "label agrees" if is_right else f"label is class {int(label)}"


def draw_ground(item: GalleryItem, wide: float, tall: float, side: int = PHOTO_SIDE) -> str:
    """Return what lies under a map as a data URI: a photograph of at most `side` pixels, or a drawing."""
    if item.image.ndim == 3:
        return photo(item.image, side)
    return map_drawings.uri(map_drawings.ground(item, wide, tall))


def draw_over(
    item: GalleryItem, signed: bool, wide: float, tall: float, side: int = LARGEST_MAP
) -> str:
    """Return the map as a data URI: pixels, or marks of the size of their ground; empty if there is none."""
    if item.map is None:
        return ""
    if not map_drawings.is_drawn(item):
        return draw_map(item.map, signed, side)
    return map_drawings.uri(map_drawings.over(item, unit_map(item.map)[0], signed, wide, tall))


def place_map(
    sheet: Sheet, item: GalleryItem, signed: bool, x: float, y: float, wide: float, tall: float
) -> None:
    """Draw a map on what lies under it, or the input alone if there is no map, on a sheet of paper."""
    is_photograph = item.image.ndim == 3
    if item.map is None and is_photograph:
        pixels = np.ascontiguousarray(item.image, dtype=np.uint8)
        sheet.add(Picture(x, y, wide, tall, pixels))
        return
    if item.map is None:
        sheet.place(map_drawings.ground(item, wide, tall), x, y)
        return

    layers = []
    if not map_drawings.is_drawn(item):
        photograph = item.image if is_photograph else np.full((1, 1, 3), 255, np.uint8)
        sheet.add(Picture(x, y, wide, tall, overlaid(photograph, item.map, signed)))
    else:
        layers.append(map_drawings.over(item, unit_map(item.map)[0], signed, wide, tall))
    if not is_photograph:
        # Words stand on the marks of a text, which are boxes; marks stand on anything else.
        position = len(layers) if item.kind == "text" else 0
        layers.insert(position, map_drawings.ground(item, wide, tall))
    for layer in layers:
        sheet.place(layer, x, y)


HIGHLIGHT = (240, 200, 40)
"""The border of a region that is pointed out."""


def highlighted(image: NDArray[np.uint8], region: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the picture (H, W, 3), dark but for the region (H, W), which has a yellow border.

    >>> picture = highlighted(np.full((9, 9, 3), 200, np.uint8), np.pad(np.ones((5, 5), bool), 2))
    >>> picture[0, 0].tolist(), picture[4, 4].tolist(), picture[2, 2].tolist()
    ([60, 60, 60], [200, 200, 200], [240, 200, 40])
    """
    shown = np.where(region[..., None], image, (0.3 * image).astype(np.uint8))
    # The border is what is lost if the region is shrunk by its width on all sides.
    width = max(1, min(image.shape[:2]) // 64)
    padded = np.pad(region, width)
    inner = np.ones_like(region)
    height, length = region.shape
    for dy in (0, width, 2 * width):
        for dx in (0, width, 2 * width):
            inner &= padded[dy : dy + height, dx : dx + length]
    shown[region & ~inner] = HIGHLIGHT
    return np.asarray(shown, dtype=np.uint8)

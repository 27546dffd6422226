"""Small pictures as data URIs: photographs, and maps in grey, which the page colours."""

from __future__ import annotations

import base64
import hashlib
import io
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from markupsafe import Markup
from numpy.typing import NDArray
from PIL import Image

from heatproof.drawing import forms
from heatproof.drawing.methods import INKS, Look
from heatproof.drawing.sheet import Picture, Sheet
from heatproof.evaluation import GalleryItem

PHOTO_SIDE, LARGEST_MAP = 160, 224
SIGNED = tuple(INKS[name][0] for name in ("against", "for"))
UNSIGNED = ("#cda9ea", "#8f55c4", INKS["strength"][0])
"""Below and above zero, and from weak to strong; violet says that a map has no sign."""
STRENGTH = (0.0, 0.34, 0.6, 0.78, 0.92)
"""How much a map covers what it lies on, from zero to its strongest: zero shows what is behind."""
WASHED = 0.46
"""How much of a photograph shows under a map, in grey over white."""


def photo(image: NDArray[np.uint8], side: int = PHOTO_SIDE) -> str:
    """A picture of at most `side` pixels as a data URI.

    >>> photo(np.zeros((400, 300, 3), np.uint8))[:23]
    'data:image/webp;base64,'
    """
    picture = Image.fromarray(np.ascontiguousarray(np.squeeze(image))).convert("RGB")
    picture.thumbnail((side, side), Image.Resampling.LANCZOS)
    return _encoded(picture, 70)


def _encoded(picture: Image.Image, quality: int) -> str:
    buffer = io.BytesIO()
    picture.save(buffer, "WEBP", quality=quality, method=3)
    return "data:image/webp;base64," + base64.b64encode(buffer.getvalue()).decode()


def draw_map(values: NDArray[Any] | None, signed: bool, side: int = LARGEST_MAP) -> str:
    """A map in eight bits of grey as a data URI, which `filters` colour: zero is grey when signed, else black.

    >>> draw_map(np.eye(8), signed=False)[:23]
    'data:image/webp;base64,'
    """
    unit = _unit(values, side)
    grey = 0.5 + 0.5 * unit if signed else np.clip(unit, 0, 1)
    return _encoded(Image.fromarray(np.round(255 * grey).astype(np.uint8)), 25)


def _unit(values: NDArray[Any] | None, side: int = 10**6) -> NDArray[np.float32]:
    """A map (H, W) from −1 to 1 about its true zero; the scale ends at the 99.5th percentile of its strength."""
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    picture = Image.fromarray(np.atleast_2d(numbers))
    if max(picture.size) > side:
        scale = side / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.BOX)
    small = np.asarray(picture)
    return np.clip(small / max(float(np.percentile(np.abs(small), 99.5)), 1e-30), -1, 1)


def _colours(signed: bool) -> NDArray[np.float64]:
    return (
        np.array([tuple(bytes.fromhex(colour[1:])) for colour in (SIGNED if signed else UNSIGNED)])
        / 255
    )


def laid(image: NDArray[np.uint8], values: NDArray[Any], signed: bool) -> NDArray[np.uint8]:
    """A map (H, W) over its photograph (H, W, 3) as paper shows it: what `filters` and the style do on a page."""
    unit = _unit(values)
    photograph = (
        Image.fromarray(image).convert("L").resize(unit.shape[::-1], Image.Resampling.LANCZOS)
    )
    ground = 1 - WASHED * (1 - np.asarray(photograph)[..., None] / 255)
    strength, colours = np.abs(unit) if signed else np.clip(unit, 0, 1), _colours(signed)
    cover = np.interp(strength, np.linspace(0, 1, len(STRENGTH)), STRENGTH)[..., None]
    at = (unit > 0).astype(float) if signed else strength * (len(colours) - 1)
    ink = np.stack([np.interp(at, np.arange(len(colours)), colours[:, c]) for c in range(3)], -1)
    return np.asarray(np.round(255 * (ink * cover + ground * (1 - cover))), dtype=np.uint8)


def filters() -> Markup:
    """The SVG filters `signed` and `unsigned`, which give grey maps their colours and let zero show what is behind."""
    found = []
    for name, signed in (("signed", True), ("unsigned", False)):
        cover = (*STRENGTH[:0:-1], *STRENGTH) if signed else STRENGTH
        ink = "".join(
            f'<feFunc{c} type="{"discrete" if signed else "table"}" tableValues="{" ".join(f"{v:.3f}" for v in row)}"/>'
            for c, row in zip("RGB", _colours(signed).T, strict=True)
        )
        alpha = f'<feFuncA type="table" tableValues="{" ".join(map(str, cover))}"/>'
        found.append(
            f'<filter id="{name}" color-interpolation-filters="sRGB" x="0" y="0" width="1" height="1">'
            f'<feComponentTransfer in="SourceGraphic" result="ink">{ink}</feComponentTransfer>'
            '<feColorMatrix in="SourceGraphic" values="0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0 0 0"/>'
            f'<feComponentTransfer result="cover">{alpha}</feComponentTransfer>'
            '<feComposite in="ink" in2="cover" operator="in"/></filter>'
        )
    return Markup(
        f'<svg class="unseen" width="0" height="0" aria-hidden="true">{"".join(found)}</svg>'
    )


def is_signed(values: NDArray[Any] | None) -> bool:
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
    return (
        f"{name} ({100 * chance:.0f} %)"
        if name and chance is not None and pd.notna(chance)
        else name
    )


def label_words(known: pd.DataFrame, sample: str) -> str:
    """Whether the label agrees with the prediction; the name of a label's class is not always known."""
    if sample not in known.index:
        return ""
    label, predicted = known.loc[sample].get("label"), known.loc[sample].get("predicted")
    if (
        label is None
        or pd.isna(label)
        or label < 0
        or pd.isna(known.loc[sample].get("probability", 1.0))
    ):
        return "no label"
    right = pd.notna(predicted) and int(label) == int(predicted)
    return "label agrees" if right else f"label is class {int(label)}"


def draw_ground(item: GalleryItem, wide: float, tall: float, side: int = PHOTO_SIDE) -> str:
    """What lies under a map, as a data URI: a photograph of at most `side` pixels, or a drawing."""
    return (
        photo(item.image, side)
        if item.image.ndim == 3
        else forms.uri(forms.ground(item, wide, tall))
    )


def draw_over(
    item: GalleryItem, signed: bool, wide: float, tall: float, side: int = LARGEST_MAP
) -> str:
    """The map, as a data URI: pixels, or marks of the size of their ground; empty where there is none."""
    if item.map is None or not forms.is_drawn(item):
        return "" if item.map is None else draw_map(item.map, signed, side)
    return forms.uri(forms.over(item, _unit(item.map)[0], signed, wide, tall))


def placed(
    sheet: Sheet, item: GalleryItem, signed: bool, x: float, y: float, wide: float, tall: float
) -> None:
    """A map on what lies under it, or the input alone where there is no map, for paper."""
    if item.map is None:
        if item.image.ndim == 3:
            sheet.add(Picture(x, y, wide, tall, np.ascontiguousarray(item.image, dtype=np.uint8)))
        else:
            sheet.place(forms.ground(item, wide, tall), x, y)
        return
    if not forms.is_drawn(item):
        washed = item.image if item.image.ndim == 3 else np.full((1, 1, 3), 255, np.uint8)
        sheet.add(Picture(x, y, wide, tall, laid(washed, item.map, signed)))
    under = [] if item.image.ndim == 3 else [forms.ground(item, wide, tall)]
    marks = (
        [forms.over(item, _unit(item.map)[0], signed, wide, tall)] if forms.is_drawn(item) else []
    )
    for part in [*marks, *under] if item.kind == "text" else [*under, *marks]:
        sheet.place(part, x, y)


HIGHLIGHT = (240, 200, 40)
"""The border of a region that is pointed out."""


def highlighted(image: NDArray[np.uint8], added: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """The picture (H, W, 3), dark but for the region (H, W), which has a yellow border.

    >>> picture = highlighted(np.full((9, 9, 3), 200, np.uint8), np.pad(np.ones((5, 5), bool), 2))
    >>> picture[0, 0].tolist(), picture[4, 4].tolist(), picture[2, 2].tolist()
    ([60, 60, 60], [200, 200, 200], [240, 200, 40])
    """
    shown = np.where(added[..., None], image, (0.3 * image).astype(np.uint8))
    width = max(1, min(image.shape[:2]) // 64)
    padded = np.pad(added, width)
    inner = np.ones_like(added)
    height, length = added.shape
    for dy in (0, width, 2 * width):
        for dx in (0, width, 2 * width):
            inner &= padded[dy : dy + height, dx : dx + length]
    shown[added & ~inner] = HIGHLIGHT
    return np.asarray(shown, dtype=np.uint8)


def pair_card(
    look: Look, before: GalleryItem, after: GalleryItem, badge: str, words: str, side: int = 112
) -> Markup:
    """The map of a method before and after a change, each over what the model saw, with a score in the corner."""
    signed, wide = (
        is_signed(before.map) or is_signed(after.map),
        2 * side if forms.is_wide(before) else side,
    )
    tiles = Markup("").join(
        Markup(
            '<div class="tile" style="width:{}px"><img class="photo{}" src="{}" alt=""><img class="map {}" src="{}" '
            'alt="{}">{}</div>'
        ).format(
            wide - 8,
            "" if half.image.ndim == 3 else " line",
            draw_ground(half, wide - 8, side - 8, side),
            "drawn" if forms.is_drawn(half) else "signed" if signed else "unsigned",
            draw_over(half, signed, wide - 8, side - 8, side),
            f"{look.name}, {when}",
            Markup('<span class="badge">{}</span>').format(badge)
            if half is after and badge
            else "",
        )
        for half, when in ((before, "as it is"), (after, "after the change"))
    )
    text = '<figure data-method="{0}"><b class="who"><i style="background:var(--{1})"></i>{0}</b>'
    text += '<div class="two">{2}</div><figcaption title="{3}">{3}</figcaption></figure>'
    return Markup(text).format(look.name, look.colour, tiles, words)


def strip_row(
    heading: Markup | str, tiles: Sequence[tuple[Sequence[str], str, str, str]], wide: int = 160
) -> Markup:
    """Pictures in a row: for each its URIs, side by side, what they show, a title and a note."""
    figures = Markup("").join(
        Markup(
            '<figure><div class="beside">{}</div><figcaption><b>{}</b><span>{}</span></figcaption></figure>'
        ).format(
            Markup("").join(
                Markup('<img src="{}" alt="{}" loading="lazy">').format(uri, alt) for uri in uris
            ),
            title,
            note,
        )
        for uris, alt, title, note in tiles
    )
    text = '<article class="card"><h4>{}</h4><div class="strip" style="--w:{}px">{}</div></article>'
    return Markup(text).format(heading, wide, figures)

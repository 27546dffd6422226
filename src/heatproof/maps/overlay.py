"""A map in colours over its photograph, as pixels; `report.images` does the same with SVG filters on a page."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

AGAINST, FOR = "#0b4a94", "#a81322"
"""The colours of a signed map below and above zero."""
STRENGTH = "#420673"
"""The colour of the strongest values of a map without sign."""
SIGNED = (AGAINST, FOR)
UNSIGNED = ("#cda9ea", "#8f55c4", STRENGTH)
"""From weak to strong; violet says that a map has no sign."""
OPACITIES = (0.0, 0.34, 0.6, 0.78, 0.92)
"""The opacity of a map at equal steps of its strength, from zero to the strongest value: zero shows what is behind."""
PHOTOGRAPH_OPACITY = 0.46
"""The opacity of the grey photograph on white, pale so that the colours of the map stand out."""
TOP_PERCENTILE = 99.5
"""The percentile of its strength at which the scale of a map ends."""


def overlaid(
    photograph: NDArray[np.uint8], values: NDArray[Any], signed: bool
) -> NDArray[np.uint8]:
    """Return a map (H, W) drawn in colours over its photograph (H', W', 3), as pixels (H, W, 3).

    On a page the browser draws the same with SVG filters (`report.images`); a figure for a paper needs the pixels.
    """
    scaled = unit_map(values)
    grey = Image.fromarray(photograph).convert("L")
    grey = grey.resize(scaled.shape[::-1], Image.Resampling.LANCZOS)
    darkness = 1 - np.asarray(grey)[..., None] / 255
    background = 1 - PHOTOGRAPH_OPACITY * darkness

    strength = np.abs(scaled) if signed else np.clip(scaled, 0, 1)
    opacity = np.interp(strength, np.linspace(0, 1, len(OPACITIES)), OPACITIES)[..., None]
    colours = colours_of_maps(signed)
    if signed:
        # One of two colours, by the sign alone; the opacity shows the strength.
        position = (scaled > 0).astype(float)
    else:
        position = strength * (len(colours) - 1)
    numbers = np.arange(len(colours))
    channels = [np.interp(position, numbers, colours[:, channel]) for channel in range(3)]
    foreground = np.stack(channels, -1)
    blended = foreground * opacity + background * (1 - opacity)
    return np.asarray(np.round(255 * blended), dtype=np.uint8)


def unit_map(values: NDArray[Any], side: int | None = None) -> NDArray[np.float32]:
    """Return a map (H, W) for drawing, scaled to −1 … 1 without moving its zero.

    The scale ends at the `TOP_PERCENTILE` of absolute values, so that a few extreme ones do not fade the rest. Maps with
    more than `side` pixels along an axis are reduced to that.
    """
    numbers = np.nan_to_num(np.asarray(values, dtype=np.float32), nan=0.0, posinf=0.0, neginf=0.0)
    picture = Image.fromarray(np.atleast_2d(numbers))
    if side is not None and max(picture.size) > side:
        scale = side / max(picture.size)
        size = (max(1, round(picture.width * scale)), max(1, round(picture.height * scale)))
        picture = picture.resize(size, Image.Resampling.BOX)
    scaled = np.asarray(picture)
    strongest = float(np.percentile(np.abs(scaled), TOP_PERCENTILE))
    return np.clip(scaled / max(strongest, 1e-30), -1, 1)


def colours_of_maps(signed: bool) -> NDArray[np.float64]:
    """Return the colours of a scale, (2 or 3, RGB) from 0 to 1."""
    scale = SIGNED if signed else UNSIGNED
    return np.array([tuple(bytes.fromhex(colour[1:])) for colour in scale]) / 255

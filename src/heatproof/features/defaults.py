"""The features that each kind of data has by default."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from heatproof.features.groupings import (
    Elements,
    Grouping,
    Patches,
    Pixels,
    Slic,
    Superpixels,
    Windows,
)
from heatproof.kinds import DataKind

WINDOWS = 20
"""About how many windows a series is cut into."""
CUBES_PER_SIDE = 4
"""How many cubes lie along the shortest side of a volume."""


def default_features(kind: DataKind, shape: Sequence[int]) -> Grouping | None:
    """Return the features of samples of this shape; None for images and texts, which have no common default.

    >>> from heatproof.kinds import SERIES, TABLE
    >>> default_features(TABLE, (9,)), default_features(SERIES, (1, 128)), default_features(SERIES, (1, 7))
    (Pixels(), Windows(size=6), Windows(size=1))
    """
    if kind.features == Pixels.name:
        return Pixels()
    if kind.features == Elements.name:
        return Elements()
    if kind.features == Windows.name:
        return Windows(size=max(1, shape[-1] // WINDOWS))
    if kind.features == Patches.name:
        return Patches(size=max(1, min(shape[1:]) // CUBES_PER_SIDE))
    return None


def with_default_features(configured: Any, kind: DataKind, shape: Sequence[int]) -> Any:
    """Return a copy of an explainer or evaluation with the features of this kind of data.

    Only a default is replaced, and only one that needs images; features that a user chose stay.

    >>> from heatproof.explainers import Lime
    >>> from heatproof.kinds import TABLE
    >>> with_default_features(Lime(), TABLE, (4,)).features
    Pixels()
    """
    features = default_features(kind, shape)
    needs_images = isinstance(configured.features, Patches | Superpixels | Slic)
    if features is None or not needs_images:
        return configured
    class_default = next(field.default for field in fields(configured) if field.name == "features")
    if configured.features != class_default:
        return configured
    return replace(configured, features=features)

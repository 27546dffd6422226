"""Groupings of inputs into features: pixels, patches, superpixels, windows, tokens and elements."""

from holdfast.features.groupings import (
    GROUPINGS,
    Elements,
    GroupingField,
    Patches,
    Pixels,
    Slic,
    Superpixels,
    Windows,
    count,
    keep,
    pool,
    segment_means,
    spatial,
    spread,
)
from holdfast.features.tokens import Tokens

__all__ = [
    "GROUPINGS",
    "Elements",
    "GroupingField",
    "Patches",
    "Pixels",
    "Slic",
    "Superpixels",
    "Tokens",
    "Windows",
    "count",
    "keep",
    "pool",
    "segment_means",
    "spatial",
    "spread",
]

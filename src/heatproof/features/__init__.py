"""Groupings of inputs into features: pixels, patches, superpixels, windows, tokens and elements."""

from heatproof.features.defaults import default_features, with_default_features
from heatproof.features.groupings import (
    GROUPINGS,
    Elements,
    Grouping,
    GroupingField,
    Hiding,
    Labels,
    Patches,
    Pixels,
    Slic,
    Superpixels,
    Windows,
    fixed,
    grouping,
)
from heatproof.features.segments import count, keep, pool, segment_means, spatial, spread
from heatproof.features.tokens import PASSAGES, Passages, Tokens

__all__ = [
    "GROUPINGS",
    "PASSAGES",
    "Elements",
    "Grouping",
    "GroupingField",
    "Hiding",
    "Labels",
    "Passages",
    "Patches",
    "Pixels",
]
__all__ += [
    "Slic",
    "Superpixels",
    "Tokens",
    "Windows",
    "count",
    "default_features",
    "fixed",
    "grouping",
    "keep",
    "pool",
]
__all__ += ["segment_means", "spatial", "spread", "with_default_features"]

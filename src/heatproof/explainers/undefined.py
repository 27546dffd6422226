"""Why explainers are undefined on some kinds of data, for those that share a reason."""

from __future__ import annotations

from heatproof.kinds import KIND_NAMES, KindName


def on(reason: str, *kinds: KindName) -> dict[str, str]:
    """Return the same reason for several kinds of data.

    >>> on("only pictures have edges", "table", "series")
    {'table': 'only pictures have edges', 'series': 'only pictures have edges'}
    """
    return {kind: reason for kind in kinds}


def except_on(reason: str, *kinds: KindName) -> dict[str, str]:
    """Return the same reason for all other kinds of data."""
    return {kind: reason for kind in KIND_NAMES if kind not in kinds}


NEEDS_VECTORS = on(
    "token ids have no gradient; name the layer that turns them into vectors: embedding",
    "token ids",
)
"""Of methods that differentiate by the input."""
NEEDS_A_GRID = except_on(
    "it reads a map of a convolutional network, or of image tokens on a grid, and there is none",
    "image",
    "volume",
    "series",
)
"""Of class activation maps."""
NEEDS_TOKENS = {
    **except_on("it reads how tokens of images or of texts attend to each other", "image", "text"),
    **NEEDS_VECTORS,
}
"""Of methods that read attention."""
CARRIES_NO_NOISE = on(
    "it adds noise to the data, and token ids cannot carry it", "text", "token ids"
)
"""Of methods that average over noisy copies."""
HAS_NO_ORDER = on(
    "it covers neighbouring positions, and elements have no order; use feature_ablation with "
    "features: elements",
    "set",
    "graph",
)
"""Of methods that cover windows."""

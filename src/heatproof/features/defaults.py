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
from heatproof.features.tokens import PASSAGES, Passages, Tokens
from heatproof.kinds import DataKind
from heatproof.types import Batch

WINDOWS = 20
"""About how many windows a series is cut into."""
CUBES_PER_SIDE = 4
"""How many cubes or patches lie along the shortest side of a volume or a small image."""


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


def with_default_features(
    configured: Any, kind: DataKind, shape: Sequence[int], sample: Batch | None = None
) -> Any:
    """Return a copy of an explainer or evaluation with the features of this kind of data.

    Only a default is replaced; features that a user chose stay. Those of a text are known by the tokenizer of a `sample`.

    >>> from heatproof.explainers import Lime
    >>> from heatproof.kinds import TABLE
    >>> with_default_features(Lime(), TABLE, (4,)).features
    Pixels()
    """
    default = next(field.default for field in fields(configured) if field.name == "features")
    if configured.features != default:
        return configured
    if kind.name in ("text", "token ids"):
        features: Grouping | None = None if sample is None else token_features(sample)
    elif kind.name == "image":
        features = _smaller_patches(default, shape)
    elif isinstance(default, Patches | Superpixels | Slic):  # features that only images have
        features = default_features(kind, shape)
    else:
        features = None
    return configured if features is None else replace(configured, features=features)


def _smaller_patches(default: Any, shape: Sequence[int]) -> Grouping | None:
    """Return patches for images that make up one patch of the default size; None for larger images."""
    sides = shape[1:]
    if isinstance(default, Patches) and default.size >= max(sides) > 1:
        return Patches(size=max(1, min(sides) // CUBES_PER_SIDE))
    return None


def token_features(sample: Batch) -> Tokens | None:
    """Return the features of texts, with the special tokens of their tokenizer: tokens, or passages of a prompt.

    None where the tokenizer is unknown, or is no tokenizer of transformers: which tokens must stay is not known then.
    """
    if not hasattr(sample.tokenizer, "all_special_ids"):
        return None
    passages = sample.aux.get(PASSAGES)
    has_passages = passages is not None and bool((passages > 0).any())
    tokens: Tokens = (Passages if has_passages else Tokens).of(sample.tokenizer)
    return tokens

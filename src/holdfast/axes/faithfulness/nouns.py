"""How the page speaks of what was removed: pixels of images, steps of series, columns of tables, tokens of texts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.axes.contract import Judged


@dataclass(frozen=True)
class Nouns:
    """A sample, what of it is removed, what larger parts it has, and the imputer that suits it."""

    sample: str
    parts: str
    segments: str
    imputer: str


IMAGE = Nouns("image", "pixels", "superpixels", "noisy_linear")
SERIES = Nouns("series", "time steps", "windows", "noisy_linear")
TABLE = Nouns("row", "columns", "columns", "reference_mean")
TEXT = Nouns("text", "tokens", "tokens", "hidden")
ANY = Nouns("sample", "features", "features", "the usual imputer")


def nouns(axis: Judged) -> Nouns:
    """The words for an axis, from its parameters; those for images where nothing says otherwise."""
    found = nouns_of(axis.settings)
    return IMAGE if found is ANY and axis.exhibits else found


def nouns_of(settings: Mapping[str, Any]) -> Nouns:
    """The words that the parameters of an evaluation, as its manifest has them, speak for.

    >>> nouns_of({}).parts, nouns_of({"segments": {"name": "windows"}}).parts
    ('pixels', 'time steps')
    """
    features, segments = (_name(settings.get(key)) for key in ("features", "segments"))
    used = {_name(item) for item in settings.get("imputers") or ()}
    if features == "tokens":
        return TEXT
    if "reference_mean" in used:
        return TABLE
    if segments == "windows":
        return SERIES
    return ANY if segments == "pixels" else IMAGE


def _name(item: Any) -> str:
    return str(item.get("name", "")) if isinstance(item, Mapping) else str(item or "")

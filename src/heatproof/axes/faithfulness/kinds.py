"""What removal means on each kind of data: what goes, what usually takes its place, and where it means nothing.

>>> usual("table", (4,), None)["imputers"]
(ReferenceMean(),)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from heatproof.errors import UserError
from heatproof.features import Patches, Pixels, Superpixels, Tokens, Windows
from heatproof.removal.contextual import Hidden, OwnBaseline, ReferenceMean
from heatproof.removal.imputers import NoisyLinear
from heatproof.types import KIND_BY_DIMENSIONS

WINDOWS = 20
"""About how many segments a series is cut into."""


@dataclass(frozen=True)
class Kind:
    """The words for one kind of data: a sample, what of it goes, its larger parts, the imputer that suits it, and what
    to use where another has no meaning."""

    sample: str
    parts: str
    segments: str
    imputer: str
    instead: str


_TEXT = Kind("text", "tokens", "tokens", Hidden.name, "leave imputers and baseline out")
KINDS: dict[str, Kind] = {
    "image": Kind(
        "image", "pixels", "superpixels", NoisyLinear.name, "use noisy_linear, blur or zero"
    ),
    "volume": Kind(
        "volume", "voxels", "patches", NoisyLinear.name, "use noisy_linear, blur or zero"
    ),
    "series": Kind(
        "series", "time steps", "windows", NoisyLinear.name, "use noisy_linear, blur or zero"
    ),
    "table": Kind(
        "row", "columns", "columns", ReferenceMean.name, "use reference_mean, dataset_mean or zero"
    ),
    "text": _TEXT,
    "token ids": _TEXT,
}
"""The kinds of data that something can be removed from, by their modality."""

_NOTHING_ABSENT = "nothing stands for an element that is not there, and {}; certificate with features: elements works"
NOT_REMOVABLE: dict[str, str] = {
    "set": _NOTHING_ABSENT.format("0 is a point like any other"),
    "graph": _NOTHING_ABSENT.format("a node takes its edges along"),
}
"""Why nothing can be removed from a kind of data."""

NO_TOKENS = "say which tokens always stay and what hides the others, features: {tokens: {special: [0, 2], mask_token: 4}} "
NO_TOKENS += "with tokenizer.all_special_ids and tokenizer.mask_token_id; without mask_token the attention mask hides them"


def kind_of(shape: Sequence[int], features: Any) -> str:
    """The kind of data that samples of this shape and their features make: image, volume, series, table or text.

    >>> kind_of((3, 8, 8), Pixels()), kind_of((1, 100), Pixels()), kind_of((12,), Pixels())
    ('image', 'series', 'table')
    """
    if isinstance(features, Tokens):
        return "text"
    kind = KIND_BY_DIMENSIONS.get(len(shape))
    if kind is None:
        raise UserError(
            "faithfulness removes pixels of images (C, H, W), voxels of volumes (C, D, H, W), time steps of series "
            f"(C, T), columns of tables (F,) or tokens of texts; this data has samples of {tuple(shape)}"
        )
    return kind


def check_kind(kind: str, features: Any) -> None:
    """Refuse a kind of data, as `heatproof.models.modality` names it, on which removing these features means nothing.

    >>> check_kind("graph", Pixels())
    Traceback (most recent call last):
    heatproof.errors.UserError: faithfulness is not defined on graph data: nothing stands for an element ...
    """
    if kind in NOT_REMOVABLE:
        raise UserError(f"faithfulness is not defined on {kind} data: {NOT_REMOVABLE[kind]}")
    hides, text = isinstance(features, Tokens), kind in ("text", "token ids")
    if text and not hides:
        raise UserError(f"faithfulness removes tokens of texts: {NO_TOKENS}")
    if hides and not text:
        raise UserError(
            f"faithfulness has features: tokens, but the data is {kind} data; leave features out"
        )


def usual_windows(steps: int) -> Windows:
    """Windows that cut a series of so many steps into about 20.

    >>> usual_windows(128), usual_windows(7)
    (Windows(size=6), Windows(size=1))
    """
    return Windows(size=max(1, steps // WINDOWS))


def usual(kind: str, shape: Sequence[int], features: Any) -> dict[str, Any]:
    """imputers, segments and baseline of an axis that does not name them, for samples of this shape.

    Images, volumes and series are filled in by `noisy_linear`, tables by the mean of the reference rows, and tokens are
    hidden. Segments are superpixels, of volumes cubes of a quarter of the shortest side, about 20 windows, columns and
    tokens. The baseline is what each explainer measures
    contributions against.

    >>> usual("series", (1, 100), Pixels())["segments"]
    Windows(size=5)
    """
    if kind == "text":
        return {"imputers": (Hidden(),), "segments": features, "baseline": Hidden()}
    if kind == "table":
        return {"imputers": (ReferenceMean(),), "segments": Pixels(), "baseline": OwnBaseline()}
    if kind == "series":
        return {
            "imputers": (NoisyLinear(),),
            "segments": usual_windows(shape[-1]),
            "baseline": OwnBaseline(),
        }
    if kind == "volume":
        cubes = Patches(size=max(1, min(shape[1:]) // 4))
        return {"imputers": (NoisyLinear(),), "segments": cubes, "baseline": OwnBaseline()}
    superpixels = Superpixels(kernel_size=1.0, max_dist=10.0)
    return {"imputers": (NoisyLinear(),), "segments": superpixels, "baseline": OwnBaseline()}

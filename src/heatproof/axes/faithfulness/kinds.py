"""What removal means on each kind of data: what goes, what takes its place by default, and where it means nothing.

>>> from heatproof.kinds import TABLE
>>> defaults(TABLE, (4,), None)["imputers"]
(ReferenceMean(),)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from heatproof.errors import UserError
from heatproof.features import Superpixels, Tokens, default_features
from heatproof.kinds import TEXT, DataKind, kind_of_shape
from heatproof.removal import CONTEXTUAL, IMPUTERS
from heatproof.removal.contextual import Hidden, OwnBaseline

NO_TOKENS = "say which tokens always stay and what hides the others, features: {tokens: {special: [0, 2], mask_token: 4}} "
NO_TOKENS += "with tokenizer.all_special_ids and tokenizer.mask_token_id; without mask_token the attention mask hides them"


def kind_of_features(shape: Sequence[int], features: Any) -> DataKind:
    """Return the kind of data that samples of this shape and their features make.

    >>> from heatproof.features import Pixels
    >>> kind_of_features((3, 8, 8), Pixels()).name, kind_of_features((12,), Pixels()).name
    ('image', 'table')
    """
    if isinstance(features, Tokens):
        return TEXT
    kind = kind_of_shape(shape)
    if kind is None:
        raise UserError(
            "faithfulness removes pixels of images (C, H, W), voxels of volumes (C, D, H, W), time steps of series "
            f"(C, T), columns of tables (F,) or tokens of texts; this data has samples of {tuple(shape)}"
        )
    return kind


def check_removable(kind: DataKind, features: Any) -> None:
    """Refuse a kind of data on which removing these features means nothing.

    >>> from heatproof.kinds import GRAPH
    >>> check_removable(GRAPH, None)
    Traceback (most recent call last):
    heatproof.errors.UserError: faithfulness is not defined on graph data: nothing stands for an element ...
    """
    if kind.why_not_removable:
        raise UserError(
            f"faithfulness is not defined on {kind.name} data: {kind.why_not_removable}"
        )
    is_text = kind.part == TEXT.part
    hides_tokens = isinstance(features, Tokens)
    if is_text and not hides_tokens:
        raise UserError(f"faithfulness removes tokens of texts: {NO_TOKENS}")
    if hides_tokens and not is_text:
        raise UserError(
            f"faithfulness has features: tokens, but the data is {kind.name} data; leave features out"
        )


def defaults(kind: DataKind, shape: Sequence[int], features: Any) -> dict[str, Any]:
    """Return imputers, segments and baseline of an evaluation that does not name them, for samples of this shape.

    Images, volumes and series are filled in by `noisy_linear`, tables by the mean of the reference rows, and tokens are
    hidden. Segments are superpixels, of volumes cubes of a quarter of the shortest side, about 20 windows, columns and
    tokens. The baseline is what each explainer measures contributions against.

    >>> from heatproof.kinds import SERIES
    >>> defaults(SERIES, (1, 100), None)["segments"]
    Windows(size=5)
    """
    if kind.part == TEXT.part:
        return {"imputers": (Hidden(),), "segments": features, "baseline": Hidden()}
    imputer = (IMPUTERS | CONTEXTUAL)[kind.imputer]()
    segments = default_features(kind, shape) or Superpixels(kernel_size=1.0, max_dist=10.0)
    return {"imputers": (imputer,), "segments": segments, "baseline": OwnBaseline()}

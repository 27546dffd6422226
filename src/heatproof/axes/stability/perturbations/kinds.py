"""What stability means on each kind of data: what is perturbed, how maps are compared, and where it means nothing.

>>> measures("table"), measures("series")
(('spearman', 'jaccard', 'fass'), ('ssim', 'spearman', 'jaccard', 'fass'))
"""

from __future__ import annotations

from collections.abc import Sequence

from heatproof.errors import UserError
from heatproof.maps.similarity import COMPONENTS
from heatproof.types import KIND_BY_DIMENSIONS, Kind

_TOKENS = "a changed token is another word, and only you know which mean the same: name perturbations of texts (case, "
_TOKENS += "white_space, synonyms, passage_order) or give your own"
_ELEMENTS = "no perturbation is made for {}; symmetry with group: {} works, and so does certificate with features: "
_ELEMENTS += "elements"
NOT_PERTURBED: dict[str, str] = {
    "text": _TOKENS,
    "token ids": _TOKENS,
    "set": _ELEMENTS.format("sets, whose elements have no order to be moved in", "permutation"),
    "graph": _ELEMENTS.format(
        "graphs, where a moved node takes its edges along", "node_permutation"
    ),
}
"""Why stability is not defined on a kind of data."""


def checked_kind(kind: str, own: bool = False) -> None:
    """Refuse a kind of data, as `heatproof.models.modality` names it, that nothing but a user's `own` can perturb.

    >>> checked_kind("series")
    >>> checked_kind("graph")
    Traceback (most recent call last):
    heatproof.errors.UserError: stability is not defined on graph data: no perturbation is made for graphs, ...
    """
    if kind in NOT_PERTURBED and not (own and NOT_PERTURBED[kind] == _TOKENS):
        raise UserError(f"stability is not defined on {kind} data: {NOT_PERTURBED[kind]}")


def kind_of_samples(shape: Sequence[int]) -> Kind:
    """Images, volumes, series or tables, by the shape of a sample.

    >>> kind_of_samples((3, 8, 8)), kind_of_samples((1, 100)), kind_of_samples((12,))
    ('image', 'series', 'table')
    """
    if len(shape) not in KIND_BY_DIMENSIONS:
        raise UserError(
            f"stability perturbs images, volumes, series and tables; got samples of shape {tuple(shape)}"
        )
    return KIND_BY_DIMENSIONS[len(shape)]


def measures(kind: Kind) -> tuple[str, ...]:
    """The components that a kind of data has, and FASS; columns of a table have no neighbours, so it has no SSIM."""
    return (*(name for name in COMPONENTS if kind != "table" or name != "ssim"), "fass")

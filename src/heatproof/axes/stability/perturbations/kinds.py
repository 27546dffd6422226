"""What stability means on each kind of data: what is perturbed, and how maps are compared.

>>> from heatproof.kinds import SERIES, TABLE
>>> measures(TABLE), measures(SERIES)
(('spearman', 'jaccard', 'fass'), ('ssim', 'spearman', 'jaccard', 'fass'))
"""

from __future__ import annotations

from collections.abc import Sequence

from heatproof.errors import UserError
from heatproof.kinds import DataKind, kind_of_shape
from heatproof.maps.similarity import COMPONENTS


def check_perturbable(kind: DataKind, all_custom: bool = False) -> None:
    """Refuse a kind of data without perturbations; `all_custom` says that all of them are the user's own.

    >>> from heatproof.kinds import GRAPH, SERIES
    >>> check_perturbable(SERIES)
    >>> check_perturbable(GRAPH)
    Traceback (most recent call last):
    heatproof.errors.UserError: stability is not defined on graph data: no perturbation is made for graphs, ...
    """
    if kind.why_not_perturbed and not (all_custom and kind.own_perturbations):
        raise UserError(f"stability is not defined on {kind.name} data: {kind.why_not_perturbed}")


def kind_of_samples(shape: Sequence[int]) -> DataKind:
    """Return the kind of samples of this shape: images, volumes, series or tables.

    >>> kind_of_samples((3, 8, 8)).name
    'image'
    """
    kind = kind_of_shape(shape)
    if kind is None:
        raise UserError(
            f"stability perturbs images, volumes, series and tables; got samples of shape {tuple(shape)}"
        )
    return kind


def measures(kind: DataKind) -> tuple[str, ...]:
    """Return the components that a kind of data has, and FASS; where parts have no neighbours there is no SSIM."""
    return (*(name for name in COMPONENTS if kind.ssim_dimensions or name != "ssim"), "fass")

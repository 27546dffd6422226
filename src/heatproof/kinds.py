"""Kinds of data: what their samples are called, and what is usual on each."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, get_args

if TYPE_CHECKING:
    from heatproof.models import Model
    from heatproof.types import Batch

KindName = Literal["image", "volume", "series", "table", "set", "graph", "text", "token ids"]
SMALL_TOP_K = 0.1
KIND_NAMES: tuple[KindName, ...] = get_args(KindName)


@dataclass(frozen=True)
class DataKind:
    """What is known of one kind of data.

    sample, samples, part, parts   the nouns for a sample and for its smallest features, in singular and plural
    sample_dimensions  how many dimensions a sample has, where this alone tells the kind
    features           the registered features that explainers and evaluations remove by default; empty for images,
                       for which each of them has its own default
    top_k              how many of the largest values of two maps are compared by Jaccard: a number, or a share
    ssim_dimensions    over how many dimensions the windows of SSIM reach; 0 where parts have no neighbours
    presets            the preset of perturbations for each word that a study may write in place of one
    milder             weaker perturbations, as a study file has them
    why_not_perturbed  why stability is undefined; empty where it is defined
    own_perturbations  whether a user's perturbations may be applied although there are no built-in ones
    imputer            what takes the place of removed parts by default
    segments           what larger parts are called that IROF removes
    other_imputers     advice for a user who named an imputer that has no meaning here
    why_not_removable  why faithfulness is undefined; empty where it is defined
    """

    name: KindName
    sample: str
    samples: str
    part: str
    parts: str
    sample_dimensions: int | None = None
    features: str = ""
    top_k: int | float = 0.1
    ssim_dimensions: int = 0
    presets: dict[str, str] = field(default_factory=dict)
    milder: Any = None
    why_not_perturbed: str = ""
    own_perturbations: bool = True
    imputer: str = ""
    segments: str = ""
    other_imputers: str = ""
    why_not_removable: str = ""

    def top_k_for(self, shape: Sequence[int]) -> int | float:
        """Return `top_k` for samples of this shape: a tenth of the values where maps have no more than that number.

        >>> IMAGE.top_k_for((3, 224, 224)), IMAGE.top_k_for((1, 8, 8))
        (100, 0.1)
        """
        return SMALL_TOP_K if self.top_k >= math.prod(shape) else self.top_k


def _same_preset(name: str) -> dict[str, str]:
    """Return the preset of a kind that has one for "usual" and "mild" alike."""
    return {"usual": name, "mild": name}


_SMOOTH_IMPUTERS = "use noisy_linear, blur or zero"
_NO_TEXT_IMPUTERS = "leave imputers and baseline out"
_NO_PERTURBATION_OF = (
    "no perturbation is made for {}; symmetry with group: {} works, and so does certificate with "
    "features: elements"
)
_NOTHING_STANDS_FOR_ABSENCE = (
    "nothing stands for an element that is not there, and {}; certificate with features: elements "
    "works"
)
_TOKENS_ARE_WORDS = (
    "a changed token is another word, and only you know which mean the same: name perturbations of "
    "texts (case, white_space, synonyms, passage_order) or give your own"
)

IMAGE = DataKind(
    "image",
    sample="picture",
    samples="pictures",
    part="pixel",
    parts="pixels",
    sample_dimensions=3,
    top_k=100,
    ssim_dimensions=2,
    presets={"usual": "fass-paper", "mild": "fass-mild"},
    milder="fass-mild",
    imputer="noisy_linear",
    segments="superpixels",
    other_imputers=_SMOOTH_IMPUTERS,
)
VOLUME = DataKind(
    "volume",
    sample="volume",
    samples="volumes",
    part="voxel",
    parts="voxels",
    sample_dimensions=4,
    features="patches",
    ssim_dimensions=3,
    presets=_same_preset("volume-mild"),
    milder={"gaussian_noise": {"sigma": [0.005, 0.01, 0.03]}},
    imputer="noisy_linear",
    segments="patches",
    other_imputers=_SMOOTH_IMPUTERS,
)
SERIES = DataKind(
    "series",
    sample="series",
    samples="series",
    part="time step",
    parts="time steps",
    sample_dimensions=2,
    features="windows",
    ssim_dimensions=1,
    presets=_same_preset("series-mild"),
    milder={"jitter": {"sigma": [0.01, 0.03, 0.1]}},
    imputer="noisy_linear",
    segments="windows",
    other_imputers=_SMOOTH_IMPUTERS,
)
TABLE = DataKind(
    "table",
    sample="row",
    samples="rows",
    part="column",
    parts="columns",
    sample_dimensions=1,
    features="pixels",
    presets=_same_preset("table-mild"),
    milder={"column_noise": {"sigma": [0.01, 0.03, 0.1]}},
    imputer="reference_mean",
    segments="columns",
    other_imputers="use reference_mean, dataset_mean or zero",
)
SET = DataKind(
    "set",
    sample="set",
    samples="sets",
    part="element",
    parts="elements",
    features="elements",
    why_not_perturbed=_NO_PERTURBATION_OF.format(
        "sets, whose elements have no order to be moved in", "permutation"
    ),
    own_perturbations=False,
    why_not_removable=_NOTHING_STANDS_FOR_ABSENCE.format("0 is a point like any other"),
)
GRAPH = DataKind(
    "graph",
    sample="graph",
    samples="graphs",
    part="node",
    parts="nodes",
    features="elements",
    why_not_perturbed=_NO_PERTURBATION_OF.format(
        "graphs, where a moved node takes its edges along", "node_permutation"
    ),
    own_perturbations=False,
    why_not_removable=_NOTHING_STANDS_FOR_ABSENCE.format("a node takes its edges along"),
)
TEXT = DataKind(
    "text",
    sample="text",
    samples="texts",
    part="token",
    parts="tokens",
    why_not_perturbed=_TOKENS_ARE_WORDS,
    imputer="hidden",
    segments="tokens",
    other_imputers=_NO_TEXT_IMPUTERS,
)
TOKEN_IDS = DataKind(
    "token ids",
    sample="text",
    samples="texts",
    part="token",
    parts="tokens",
    why_not_perturbed=_TOKENS_ARE_WORDS,
    imputer="hidden",
    segments="tokens",
    other_imputers=_NO_TEXT_IMPUTERS,
)

KINDS: dict[str, DataKind] = {
    kind.name: kind for kind in (IMAGE, VOLUME, SERIES, TABLE, SET, GRAPH, TEXT, TOKEN_IDS)
}


def kind_of(model: Model, batch: Batch) -> DataKind:
    """Return the kind of data, from its type, its auxiliary tensors and its shape.

    Token ids are a text for a model that says which layer turns them into vectors.

    >>> import torch
    >>> from heatproof import Batch, Model
    >>> kind_of(Model(torch.nn.Flatten()), Batch(("a",), torch.zeros(1, 3, 8, 8))).name
    'image'
    """
    if not batch.x.is_floating_point():
        return TOKEN_IDS if model.embedding is None else TEXT
    if "adjacency" in batch.aux:
        return GRAPH
    if "mask" in batch.aux:
        return SET
    return kind_of_shape(batch.x.shape[1:]) or IMAGE


def kind_of_shape(shape: Sequence[int]) -> DataKind | None:
    """Return the kind of samples of this shape that are plain numbers; None where no kind has so many dimensions.

    >>> [kind_of_shape(shape).name for shape in ((3, 8, 8), (1, 100), (12,))]
    ['image', 'series', 'table']
    """
    for kind in KINDS.values():
        if kind.sample_dimensions == len(shape):
            return kind
    return None

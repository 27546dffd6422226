"""The disagreement problem: how alike are the maps of two methods for the same sample and class?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import ClassVar, Literal, Self

import torch
from torch import Tensor

from heatproof.evaluation import Condition, DataNames, Evaluation, GalleryImage, Measure, Scores
from heatproof.kinds import kind_of
from heatproof.maps.chance import K, check_k, over_references, profile_of
from heatproof.maps.similarity import Profile, compare, compare_all
from heatproof.maps.undefined import reasons
from heatproof.models import Model
from heatproof.subject import Subject
from heatproof.types import Batch, parameter_class

UNIT = (0.0, 1.0)
MEASURES = (
    Measure(
        "spearman", "Spearman", "rank correlation ρ, as (ρ + 1) / 2", "neither", "headline", UNIT
    ),
    Measure("jaccard", "Jaccard", "overlap of the k largest values", "neither", "component", UNIT),
    Measure(
        "sign_agreement",
        "Signs",
        "share of values with the same sign",
        "neither",
        "component",
        UNIT,
    ),
)
"""The measures of agreement; the first is the headline. None has a better direction: nobody wins by agreeing."""


@plain_dataclass(frozen=True)
class PreparedMaps:
    """Maps of one explainer, ready to be compared: their profile, their signs (B, n), and why some have no score."""

    profile: Profile
    signs: Tensor
    reason: list[str]

    @classmethod
    def of(cls, maps: Tensor, kind: str, k: int | float | str) -> PreparedMaps:
        """Prepare maps (B, …); Spearman and Jaccard need no windows of neighbours."""
        signs = torch.nan_to_num(maps).flatten(1).sign()
        return cls(profile_of(maps, kind, k, windows=False), signs, reasons(maps, "the map"))


@parameter_class
class Agreement(Evaluation):
    """Compare the maps of every two explainers, sample by sample: a section of the report, without a winner.

    For explainer A under the condition named after explainer B: (Spearman + 1) / 2, Jaccard of the k largest values,
    and the share of the values other than 0 in both that have the same sign. Chance is the same of A's map with B's
    maps of other samples; of maps without signs it is as high as the score. It takes no pass of the model beyond the
    maps that other axes need too.

    >>> Agreement(k=0.05).k
    0.05
    """

    name: ClassVar[str] = "agreement"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = False
    needs_model: ClassVar[bool] = False
    pairwise: ClassVar[bool] = True

    k: K | Literal["usual"] = "usual"
    data: DataNames = None

    def conditions(self) -> list[Condition]:
        """Return no condition: there is one for every other explainer, which only the study knows."""
        return []

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy with the k of this kind of data; raise `UserError` for maps that are too small for k."""
        shape = sample.x.shape[1:]
        k = kind_of(model, sample).top_k_for(shape) if self.k == "usual" else self.k
        check_k(k, shape, self.name)
        return replace(self, k=k)

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield one column of scores per explainer, other explainer and measure."""
        kind = kind_of(subject.model, subject.batch).name
        maps, references = {}, {}
        for name in subject.explainers:
            maps[name] = PreparedMaps.of(subject.maps(name), kind, self.k)
            references[name] = PreparedMaps.of(subject.references.maps(name), kind, self.k)
        for name in subject.explainers:
            for other in subject.explainers:
                if other != name:
                    yield from _scores(
                        subject, name, other, maps[name], maps[other], references[other]
                    )


def _scores(
    subject: Subject,
    name: str,
    other: str,
    maps: PreparedMaps,
    other_maps: PreparedMaps,
    references: PreparedMaps,
) -> Iterator[Scores]:
    """Yield how far the maps of one explainer agree with those of an `other` one, sample by sample and by each measure.

    `references` are the other explainer's maps of reference samples: agreement with these is the chance level.
    """
    values = compare(maps.profile, other_maps.profile)
    values["sign_agreement"] = same_signs(maps, other_maps)
    unrelated = compare_all(references.profile, maps.profile)
    unrelated["sign_agreement"] = same_signs_of_all(references, maps)

    reason = []
    for map_reason, other_reason in zip(maps.reason, other_maps.reason, strict=True):
        if map_reason:
            reason.append(f"{name}: {map_reason}")
        elif other_reason:
            reason.append(f"{other}: {other_reason}")
        else:
            reason.append("")

    for measure, value in values.items():
        chance = over_references(
            unrelated[measure].cpu(), subject.batch.ids, subject.references.batch.ids
        )
        yield Scores.column(
            name,
            measure,
            (other, 0.0),
            value,
            reason,
            missing="no value that both maps have",
            chance=chance,
        )


def same_signs(a: PreparedMaps, b: PreparedMaps) -> Tensor:
    """Return the share (B,) of the values other than 0 in both maps that have the same sign; NaN where there is none."""
    # A product is 1 for the same sign, −1 for opposite ones, 0 if a value is 0; its mean is scaled to [0, 1].
    products = (a.signs * b.signs).double()
    return (products.sum(1) / products.abs().sum(1) + 1) / 2


def same_signs_of_all(references: PreparedMaps, maps: PreparedMaps) -> Tensor:
    """Return the share of values with the same sign for each of R reference maps with each of B maps, (R, B).

    Only values other than 0 in both maps count; see `same_signs`.
    """
    # Matrix products sum over the values of a map. Sums of ±1 are whole numbers, so single precision is exact.
    sums = references.signs @ maps.signs.T
    counts = references.signs.abs() @ maps.signs.abs().T
    return ((sums / counts).double() + 1) / 2

"""The disagreement problem: how alike are the maps of two methods for the same sample and class?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof.evaluation import Condition, Exhibit, Measure, Scores, Subject
from heatproof.maps.chance import K, check_k, over_references, profile_of
from heatproof.maps.similarity import Profile, compare, compare_all
from heatproof.maps.undefined import reasons
from heatproof.models import Model
from heatproof.models.modality import modality
from heatproof.types import STRICT, Batch

UNIT = (0.0, 1.0)
MEASURES = (
    Measure(
        "spearman",
        "Spearman",
        "rank correlation ρ, as (ρ + 1) / 2",
        "neither",
        "headline",
        UNIT,
        "column",
    ),
    Measure(
        "jaccard",
        "Jaccard",
        "overlap of the k largest values",
        "neither",
        "component",
        UNIT,
        "column",
    ),
    Measure(
        "sign_agreement",
        "Signs",
        "share of values with the same sign",
        "neither",
        "component",
        UNIT,
        "column",
    ),
)
"""What is known of the measures of the section, the first of which speaks for it; nobody wins by agreeing."""
ALONE = "no other sample to compare with"


@plain_dataclass(frozen=True)
class Compared:
    """Maps of one explainer, ready to be compared: their profile, their signs (B, n), and why some have none."""

    profile: Profile
    signs: Tensor
    reason: list[str]

    @classmethod
    def of(cls, maps: Tensor, kind: str, k: int | float | str) -> Compared:
        """Those of maps (B, …); Spearman and Jaccard do not ask who is whose neighbour."""
        signs = torch.nan_to_num(maps).flatten(1).sign()
        return cls(profile_of(maps, kind, k, windows=False), signs, reasons(maps, "the map"))


@dataclass(frozen=True, config=STRICT)
class Agreement:
    """Compare the maps of every two explainers, sample by sample: a section of the report, without a winner.

    For explainer A under the condition named after explainer B: (Spearman + 1) / 2, Jaccard of the k largest values,
    and the share of the values other than 0 in both that have the same sign. `_chance` is the same of A's map with B's
    maps of other samples; of maps without signs it is as high as the score. It takes no pass of the model beyond the
    maps that other axes need too.

    >>> Agreement(k=0.05).k
    0.05
    """

    name: ClassVar[str] = "agreement"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = False
    pairwise: ClassVar[bool] = True

    k: K | Literal["usual"] = "usual"

    def conditions(self) -> list[Condition]:
        """None that is known without the study: there is one for every other explainer."""
        return []

    def check(self, shape: Sequence[int]) -> None:
        """Refuse maps too small for k; `shape` is that of a sample."""
        check_k(self.k, shape, self.name)

    def suited(self, model: Model, batch: Batch) -> Agreement:
        """The evaluation itself."""
        return self

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """One column of scores per explainer, other explainer and measure."""
        kind = modality(subject.model, subject.batch)
        every = {
            name: Compared.of(subject.clean(name), kind, self.k) for name in subject.explainers
        }
        others = {
            name: Compared.of(subject.reference(name), kind, self.k) for name in subject.explainers
        }
        for name, own in every.items():
            for other, theirs in every.items():
                if other != name:
                    yield from _scores(subject, name, other, own, theirs, others[other])


def _scores(
    subject: Subject, name: str, other: str, own: Compared, theirs: Compared, elsewhere: Compared
) -> Iterator[Scores]:
    raw = compare(own.profile, theirs.profile) | {"sign_agreement": same_signs(own, theirs)}
    unrelated = compare_all(elsewhere.profile, own.profile) | {
        "sign_agreement": same_signs_of_all(elsewhere, own)
    }
    reason = [
        f"{name}: {a}" if a else f"{other}: {b}" if b else ""
        for a, b in zip(own.reason, theirs.reason, strict=True)
    ]
    for measure, value in raw.items():
        yield Scores.column(
            name, measure, (other, 0.0), value, reason, missing="no value that both maps have"
        )
        level, above = over_references(
            unrelated[measure].cpu(), subject.batch.ids, subject.references.ids
        )
        chance = Scores.column(
            name, f"{measure}_chance", (other, 0.0), level, reason, missing=ALONE
        )
        yield replace(chance, by_reference=above)


def same_signs(a: Compared, b: Compared) -> Tensor:
    """The share (B,) of the values other than 0 in both maps that have the same sign; NaN where there is none."""
    met = (a.signs * b.signs).double()
    return (met.sum(1) / met.abs().sum(1) + 1) / 2


def same_signs_of_all(references: Compared, maps: Compared) -> Tensor:
    """The same of every reference with every map, (R, B)."""
    met, seen = (
        references.signs @ maps.signs.T,
        references.signs.abs() @ maps.signs.abs().T,
    )  # whole numbers
    return ((met / seen).double() + 1) / 2

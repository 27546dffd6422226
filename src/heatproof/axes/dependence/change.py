"""How far a map changes: its similarity to the map of the model, beside that of maps of other samples."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.evaluation import ALONE, Chance, Condition, Scores
from heatproof.maps.chance import of_others, over_references, profile_of
from heatproof.maps.complexity import entropy
from heatproof.maps.similarity import Profile, compare, compare_all, composite
from heatproof.maps.undefined import NOT_FINITE, reasons
from heatproof.subject import Subject
from heatproof.types import Batch

NO_DIFFERENCE = "the maps of other samples are no different"
LEAST_DISTANCE = 1e-9
"""Below this distance between the maps of different samples no change can be set in relation to it."""


@dataclass(frozen=True)
class CleanMaps:
    """The maps (B, …) of one explainer under the model, what other samples score against them, and why some have none.

    `chance` has the mean similarity to the maps of the reference samples, by measure; `above_chance` (R, B) is how far
    the similarity to each reference lies above that mean, NaN where a sample is that reference.
    """

    explainer: str
    maps: Tensor
    kind: str
    k: int | float | str
    profile: Profile
    chance: dict[str, Chance]
    above_chance: Tensor
    reason: list[str]

    @classmethod
    def of(cls, subject: Subject, explainer: str, kind: str, k: int | float | str) -> CleanMaps:
        """Return an explainer's maps of a shard's samples, with their similarity to its maps of the reference samples."""
        maps = subject.maps(explainer)
        profile = profile_of(maps, kind, k)
        reference_profile = profile_of(subject.references.maps(explainer), kind, k)
        ids, reference_ids = subject.batch.ids, subject.references.batch.ids
        to_references = _with_mean(compare_all(reference_profile, profile))
        chance = {}
        for measure, scores in to_references.items():
            chance[measure] = over_references(scores, ids, reference_ids)
        similarity = of_others(to_references["similarity"], ids, reference_ids)

        reason = reasons(maps, "the clean map")
        for row, is_finite in enumerate(torch.isfinite(subject.readout).tolist()):
            if not is_finite:
                reason[row] = NOT_FINITE
        return cls(
            explainer=explainer,
            maps=maps,
            kind=kind,
            k=k,
            profile=profile,
            chance=chance,
            above_chance=similarity - chance["similarity"].level,
            reason=reason,
        )


@dataclass(frozen=True)
class ChangedMaps:
    """The maps (B, …) of the same samples under another network or for another class; NaN where there is a reason."""

    maps: Tensor
    reason: list[str]


def explain_again(
    clean: CleanMaps,
    batch: Batch,
    target: Tensor,
    explain: Callable[[Batch, Tensor], Tensor],
    name: str,
) -> ChangedMaps:
    """Return the maps of samples under another network or for another class, as `explain(batch, target)` makes them.

    Samples without a usable map under the model (`clean`) are not explained again. If the explainer raises an error, as
    it may on a network of random weights, all samples get its message as the reason why they have no map. `name` is what
    these maps are called in reasons, such as "the map of the other class".
    """
    maps, reason = torch.full_like(clean.maps, torch.nan), list(clean.reason)
    rows = torch.tensor([not text for text in reason]).nonzero().flatten()
    if not len(rows):
        return ChangedMaps(maps, reason)

    if len(rows) < len(reason):
        batch, target = batch[rows], target[rows]
    try:
        maps[rows.to(maps.device)] = explain(batch, target)
    except UserError as error:
        return ChangedMaps(maps, [text or f"{name} has no map: {error}" for text in reason])
    return ChangedMaps(maps, first_reasons(reason, reasons(maps, name)))


def first_reasons(first: list[str], second: list[str]) -> list[str]:
    """Return the first reason of each sample, or the second where there is no first.

    >>> first_reasons(["", "flat"], ["not finite", ""])
    ['not finite', 'flat']
    """
    return [a or b for a, b in zip(first, second, strict=True)]


def similarities(clean: CleanMaps, changed: ChangedMaps) -> dict[str, Tensor]:
    """Return how similar (B,) the maps are to the clean ones, by each measure and by their mean, `similarity`."""
    changed_profile = profile_of(changed.maps, clean.kind, clean.k)
    return _with_mean(compare(clean.profile, changed_profile))


def similarity_scores(
    clean: CleanMaps,
    changed: ChangedMaps,
    similar: dict[str, Tensor],
    where: Condition,
    repeat: int,
) -> Iterator[Scores]:
    """Yield every similarity beside its chance level, the mean similarity to maps of other samples."""
    for measure, value in similar.items():
        scores = Scores.column(
            clean.explainer,
            measure,
            where,
            value,
            changed.reason,
            missing="nothing left to compare",
            chance=clean.chance[measure],
        )
        yield replace(scores, repeat=repeat)


def change_scores(
    clean: CleanMaps,
    changed: ChangedMaps,
    similar: dict[str, Tensor],
    measure: str,
    where: Condition,
    repeat: int = 0,
) -> Scores:
    """Return how much each map changed, (1 − s) / (1 − c): 0 is not at all, 1 as much as maps of unrelated samples differ.

    s is the similarity of the map before and after (`similar`), and c its chance level, the mean similarity to the maps
    of reference samples. As c is part of the score, no chance level is stored beside it. How much each reference
    contributes to the score is stored, so that the interval accounts for the choice of references: one that is x more
    similar than c adds x (1 − s) / (1 − c)², the first-order term of the score in c.
    """
    change = 1 - similar["similarity"]
    distance_of_unrelated = 1 - clean.chance["similarity"].level
    is_usable = distance_of_unrelated > LEAST_DISTANCE
    score = change / torch.where(is_usable, distance_of_unrelated, torch.nan)
    # A map that stays the same has not changed, even where the maps of other samples are no different.
    score = torch.where(change == 0, 0.0, score)

    # A chance level that is NaN has no other sample behind it.
    has_no_chance = torch.isnan(distance_of_unrelated).tolist()
    missing = [ALONE if is_alone else NO_DIFFERENCE for is_alone in has_no_chance]
    scores = Scores.column(clean.explainer, measure, where, score, changed.reason, missing=missing)
    contributions = clean.above_chance * (score / distance_of_unrelated)  # (references, B)
    return replace(
        scores,
        repeat=repeat,
        reference_sums=contributions.nansum(1),
        reference_counts=torch.isfinite(contributions).sum(1),
    )


def entropy_rise(clean: CleanMaps, changed: ChangedMaps, where: Condition, repeat: int) -> Scores:
    """Return by how much the entropy of each map rose, (H′ − H) / H, from H under the model to H′ after the change."""
    rise = entropy(changed.maps) / entropy(clean.maps) - 1
    scores = Scores.column(clean.explainer, "entropy_rise", where, rise, changed.reason)
    return replace(scores, repeat=repeat)


def _with_mean(scores: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the similarities and their mean, `similarity`, on the CPU."""
    with_mean = scores | {"similarity": composite(scores)}
    return {measure: value.cpu() for measure, value in with_mean.items()}

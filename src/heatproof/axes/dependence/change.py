"""How far a map changes: its similarity to the map of the model, beside that of maps of other samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.evaluation import Condition, Scores, Subject
from heatproof.maps.chance import of_others, profile_of
from heatproof.maps.complexity import entropy
from heatproof.maps.similarity import Profile, compare, compare_all, composite
from heatproof.maps.undefined import NOT_FINITE, reasons
from heatproof.types import Batch

ALONE = "no other sample to compare with"
SAME = "the maps of other samples are no different"
LEAST_ROOM = 1e-9


@dataclass(frozen=True)
class Clean:
    """The maps (B, …) of one explainer under the model: their profile, what other samples score, why some have none.

    `apart` (R, B) is how far the similarity to each reference lies above the mean over those that are other samples.
    """

    explainer: str
    maps: Tensor
    kind: str
    k: int | float | str
    profile: Profile
    chance: dict[str, Tensor]
    apart: Tensor
    reason: list[str]

    @classmethod
    def of(cls, subject: Subject, explainer: str, kind: str, k: int | float | str) -> Clean:
        """Those of a shard's samples."""
        maps = subject.clean(explainer)
        own, others = profile_of(maps, kind, k), profile_of(subject.reference(explainer), kind, k)
        ids, scores = (subject.batch.ids, subject.references.ids), _scored(compare_all(others, own))
        scores = {name: of_others(score, *ids) for name, score in scores.items()}
        chance = {name: score.nanmean(0) for name, score in scores.items()}
        apart = scores["similarity"] - chance["similarity"]
        finite = torch.isfinite(subject.readout).tolist()
        blank = zip(finite, reasons(maps, "the clean map"), strict=True)
        return cls(
            explainer,
            maps,
            kind,
            k,
            own,
            chance,
            apart,
            [why if ok else NOT_FINITE for ok, why in blank],
        )


@dataclass(frozen=True)
class Changed:
    """The maps (B, …) of the same samples under another network or for another class; NaN where there is a reason."""

    maps: Tensor
    reason: list[str]


def changed(
    subject: Subject,
    clean: Clean,
    target: Tensor,
    explain: Callable[[Batch, Tensor], Tensor],
    what: str,
) -> Changed:
    """`explain(batch, target)` for the samples that have a clean map; what it refuses is a reason too."""
    maps, reason = torch.full_like(clean.maps, torch.nan), list(clean.reason)
    rows = torch.tensor([not why for why in reason]).nonzero().flatten()
    if not len(rows):
        return Changed(maps, reason)
    whole = len(rows) == len(reason)
    try:
        batch, classes = (subject.batch, target) if whole else (subject.batch[rows], target[rows])
        maps[rows.to(maps.device)] = explain(batch, classes)
    except (
        UserError
    ) as error:  # a network of random weights may not be one that the method is defined on
        return Changed(maps, [why or f"{what} has no map: {error}" for why in reason])
    lost = reasons(maps, what)
    return Changed(maps, [why or new for why, new in zip(reason, lost, strict=True)])


def change_scores(
    clean: Clean,
    now: Changed,
    where: Condition,
    headline: str,
    repeat: int = 0,
    of: int = 1,
    alone: bool = False,
) -> Iterator[Scores]:
    """The headline (1 − s) / (1 − c), and unless it is `alone` the similarities with their chance levels.

    Where the map is the same, s = 1, the headline is 0 whatever other samples score. It is one `of` as many repeats,
    whose mean a reference moves by Σ (1 − s) / (1 − c)² times what it scores above c.
    """
    scores = _scored(compare(clean.profile, profile_of(now.maps, clean.kind, clean.k)))
    gone, room = 1 - scores["similarity"], 1 - clean.chance["similarity"]
    far = torch.where(gone == 0, 0.0, gone / torch.where(room > LEAST_ROOM, room, torch.nan))
    lonely = [ALONE if math.isnan(level) else SAME for level in room.tolist()]
    columns: list[tuple[str, Tensor, str | list[str]]] = [(headline, far, lonely)]
    for measure, value in scores.items() if not alone else ():
        columns += [
            (measure, value, "nothing left to compare"),
            (f"{measure}_chance", clean.chance[measure], ALONE),
        ]
    for measure, value, missing in columns:
        found = Scores.column(clean.explainer, measure, where, value, now.reason, missing=missing)
        above = (
            (clean.apart * (far / room).nan_to_num()).nansum(1) / of
            if measure == headline
            else None
        )
        yield replace(found, repeat=repeat, by_reference=above)


def entropy_rise(clean: Clean, now: Changed, where: Condition, repeat: int) -> Scores:
    """(H′ − H) / H with the entropies of the map now, H′, and of the clean one, H."""
    risen = entropy(now.maps) / entropy(clean.maps) - 1
    return replace(
        Scores.column(clean.explainer, "entropy_rise", where, risen, now.reason), repeat=repeat
    )


def _scored(scores: dict[str, Tensor]) -> dict[str, Tensor]:
    """The components with their mean, on the CPU."""
    return {
        name: value.cpu() for name, value in (scores | {"similarity": composite(scores)}).items()
    }

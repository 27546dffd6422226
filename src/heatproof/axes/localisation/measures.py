"""How much of a map lies in a region, by five measures, and what an uninformative map scores by each of them."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from scipy import ndimage
from torch import Tensor

from heatproof.maps.similarity import spearman

Sign = Literal["positive", "absolute", "negative"]
SUMMED_DIMENSION = {"image": 1, "volume": 1, "series": 1, "set": -1, "graph": -1, "text": -1}
"""The dimension over which the values of a position are summed: channels, or the vector of an element or token."""
SPATIAL = ("image", "volume", "series")
"""The kinds of data whose positions have neighbours, so that a region has a box and a margin around it."""


class RegionScore(NamedTuple):
    """The scores (B,) of maps by one measure, and the chance level (B,) of each."""

    value: Tensor
    chance: Tensor


def relevance(maps: Tensor, kind: str, sign: Sign = "positive") -> Tensor:
    """Return the relevance (B, …) of the positions of a map: the sums of its channels, by the sign that counts.

    Which sign is evidence for the class is a choice: the positive part, the absolute value, or the negative part.

    >>> relevance(torch.tensor([[[[2.0, -1.0]], [[1.0, -3.0]]]]), "image").tolist()
    [[[3.0, 0.0]]]
    """
    values = maps.detach().double().cpu()
    if kind in SUMMED_DIMENSION and maps.ndim > 2:
        values = values.sum(SUMMED_DIMENSION[kind])
    if sign == "absolute":
        return values.abs()
    if sign == "negative":
        values = -values
    return values.clamp(min=0)


def region_scores(
    values: Tensor, region: Tensor, is_present: Tensor, kind: str = "image", margin: int = 0
) -> dict[str, RegionScore]:
    """Return the scores and chance levels of relevance (B, …) in a region (B, …), by measure.

    `is_present` (B, …) says which positions are no padding. In the pointing game a peak within `margin` pixels of the
    region counts as a hit.

    Chance is exact: the expected score when the values are shuffled over the positions.

    >>> region = torch.tensor([[[True, False], [False, False]]])
    >>> scores = region_scores(torch.tensor([[[3.0, 1.0], [0.0, 0.0]]]), region, torch.ones_like(region))
    >>> {name: float(score.value) for name, score in scores.items()}
    {'relevance_mass': 0.75, 'relevance_rank': 1.0, 'pointing': 1.0, 'region_auc': 1.0, 'energy': 0.75}
    """
    region = region & is_present
    inside = region.flatten(1)
    hit_area = (within(region, margin) & is_present).flatten(1)
    present = is_present.flatten(1)
    positions = present.sum(1).double()
    area = inside.sum(1) / positions

    amount = values.flatten(1) * present
    total = amount.sum(1)
    ranked = values.flatten(1).masked_fill(~present, -torch.inf)  # padding comes last
    peaks = ranked == ranked.amax(1, keepdim=True)
    share_of_hits = (peaks & hit_area).sum(1).double() / peaks.sum(1)

    scores = {
        "relevance_mass": RegionScore((amount * inside).sum(1) / total, area),
        "relevance_rank": RegionScore(_rank(ranked, inside), area),
        "pointing": RegionScore(share_of_hits, hit_area.sum(1) / positions),
        "region_auc": RegionScore(_auc(ranked, inside, present), torch.full_like(area, 0.5)),
    }
    if kind in SPATIAL:
        boxed = (box(region) & is_present).flatten(1)
        scores["energy"] = RegionScore((amount * boxed).sum(1) / total, boxed.sum(1) / positions)
    return scores


def graded_scores(values: Tensor, grades: Tensor, is_present: Tensor) -> dict[str, RegionScore]:
    """Return how well relevance (B, …) agrees with human grades (B, …) of the positions, by measure, with chance.

    `alignment` is Spearman's rank correlation over the positions that are no padding, in [−1, 1], with ties at their
    mean rank. `graded_mass` is Σ a h / (Σ a · max h) for relevance a and grades h: the mean grade of the relevance, where
    the highest grade counts 1. Chance is the expected score when the values are shuffled: 0, and the mean grade over the
    highest. Both are NaN where all grades or all values are equal.

    >>> grades = torch.tensor([[0.0, 0.5, 1.0, 0.5]])
    >>> scores = graded_scores(torch.tensor([[0.0, 1.0, 3.0, 1.0]]), grades, torch.ones(1, 4).bool())
    >>> {name: float(score.value) for name, score in scores.items()}
    {'alignment': 1.0, 'graded_mass': 0.8}
    """
    alignment, mass, chance_mass = [], [], []
    for value, grade, present in zip(values.double(), grades.double(), is_present, strict=True):
        relevance_here, grade_here = value[present], grade[present]
        alignment.append(spearman(relevance_here[None], grade_here[None])[0])
        highest = grade_here.max()
        has_grades = bool(grade_here.min() < highest)
        scale = highest if has_grades else torch.nan
        mass.append((relevance_here * grade_here).sum() / (relevance_here.sum() * scale))
        chance_mass.append(grade_here.mean() / scale)
    return {
        "alignment": RegionScore(torch.stack(alignment), torch.zeros(len(values)).double()),
        "graded_mass": RegionScore(torch.stack(mass), torch.stack(chance_mass)),
    }


def _rank(ranked: Tensor, inside: Tensor) -> Tensor:
    """Return the share of the k largest values that lie in a region of k positions.

    Values that tie with the k-th largest fill what is left of the k; each of them counts by its share of it.
    """
    k = inside.sum(1, keepdim=True)
    kth_largest = ranked.sort(1, descending=True).values.gather(1, (k - 1).clamp(min=0))
    above = ranked > kth_largest
    tied = ranked == kth_largest
    remaining = k - above.sum(1, keepdim=True)
    share_of_tied = (tied & inside).sum(1, keepdim=True).double() / tied.sum(1, keepdim=True)
    hits = (above & inside).sum(1, keepdim=True) + remaining * share_of_tied
    return (hits / k)[:, 0]


def _auc(ranked: Tensor, inside: Tensor, is_present: Tensor) -> Tensor:
    """Return the probability that a position of the region has a larger value than one outside; a tie counts half.

    It is Mann and Whitney's U over the number of pairs, from the mean ranks of tied values.
    """
    ordered = ranked.sort(1).values
    ranked = ranked.contiguous()
    smaller = torch.searchsorted(ordered, ranked).double()
    smaller_or_tied = torch.searchsorted(ordered, ranked, right=True).double()
    padding = (~is_present).sum(1, keepdim=True)  # it has the lowest ranks
    ranks = (smaller + smaller_or_tied + 1) / 2 - padding
    k = inside.sum(1).double()
    outside = (is_present & ~inside).sum(1)
    u = (ranks * inside).sum(1) - k * (k + 1) / 2
    return u / (k * outside)


def box(region: Tensor) -> Tensor:
    """Return the smallest box (B, …) around a region (B, …); it is empty around an empty one.

    >>> box(torch.tensor([[[True, False], [False, False], [True, True]]])).int().tolist()
    [[[1, 1], [1, 1], [1, 1]]]
    """
    in_box = torch.ones_like(region)
    for dim in range(1, region.ndim):
        others = [d for d in range(1, region.ndim) if d != dim]
        occupied = (region.any(others, keepdim=True) if others else region).int()
        from_first = occupied.cummax(dim).values
        to_last = occupied.flip(dim).cummax(dim).values.flip(dim)
        in_box &= (from_first & to_last).bool()
    return in_box


def within(region: Tensor, margin: int) -> Tensor:
    """Return the positions (B, …) at most `margin` from a region (B, …), by Euclidean distance.

    >>> within(torch.tensor([[True, False, False, False]]), 2).int().tolist()
    [[1, 1, 1, 0]]
    """
    if margin == 0:
        return region
    near = torch.zeros_like(region)
    for i, outside in enumerate((~region).numpy()):
        if not outside.all():  # the distance from an empty region is not defined
            near[i] = torch.from_numpy(ndimage.distance_transform_edt(outside) <= margin)
    return near

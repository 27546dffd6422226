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
    area = inside.sum(1) / positions  # as a share

    amount = values.flatten(1) * present
    total = amount.sum(1)
    ranked = values.flatten(1).masked_fill(~present, -torch.inf)  # padding comes last
    # A map may have its largest value at several positions: the hit is then the share of them in the region.
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
    for sample in range(len(values)):
        present = is_present[sample]
        relevance = values[sample].double()[present]
        grade = grades[sample].double()[present]
        alignment.append(spearman(relevance[None], grade[None])[0])
        highest = grade.max()
        varies = bool(grade.min() < highest)
        scale = highest if varies else torch.nan
        mass.append((relevance * grade).sum() / (relevance.sum() * scale))
        chance_mass.append(grade.mean() / scale)
    return {
        "alignment": RegionScore(torch.stack(alignment), torch.zeros(len(values)).double()),
        "graded_mass": RegionScore(torch.stack(mass), torch.stack(chance_mass)),
    }


def _rank(ranked: Tensor, inside: Tensor) -> Tensor:
    """Return the relevance rank accuracy (B,): the share of the k largest values that lie in a region of k positions.

    `ranked` (B, n) are the values, −∞ for padding, and `inside` (B, n) says which positions are in the region. Where
    several values tie with the k-th largest, the places left among the k are shared out equally among them.
    """
    k = inside.sum(1, keepdim=True)
    in_descending_order = ranked.sort(1, descending=True).values
    kth_largest = in_descending_order.gather(1, (k - 1).clamp(min=0))
    above = ranked > kth_largest
    tied = ranked == kth_largest
    remaining = k - above.sum(1, keepdim=True)
    share_of_tied = (tied & inside).sum(1, keepdim=True).double() / tied.sum(1, keepdim=True)
    hits = (above & inside).sum(1, keepdim=True) + remaining * share_of_tied
    return (hits / k)[:, 0]


def _auc(ranked: Tensor, inside: Tensor, is_present: Tensor) -> Tensor:
    """Return the area under the ROC curve (B,): how often a position in the region has a larger value than one outside.

    A tie counts half. `ranked` (B, n) are the values, −∞ for padding; `inside` and `is_present` (B, n) say which
    positions are in the region and which are no padding. The area is U / (k · outside), with Mann and Whitney's U for k
    positions in the region.
    """
    ordered = ranked.sort(1).values
    ranked = ranked.contiguous()
    # The mean rank of tied values, from 1: the mean of the first and the last rank that they take.
    number_smaller = torch.searchsorted(ordered, ranked).double()
    number_smaller_or_tied = torch.searchsorted(ordered, ranked, right=True).double()
    ranks = (number_smaller + number_smaller_or_tied + 1) / 2
    # Padding has the lowest ranks, which do not count.
    number_padding = (~is_present).sum(1, keepdim=True)
    ranks = ranks - number_padding

    k = inside.sum(1).double()
    outside = (is_present & ~inside).sum(1)
    # U is the sum of the ranks in the region, less the least that it could be.
    u = (ranks * inside).sum(1) - k * (k + 1) / 2
    return u / (k * outside)


def box(region: Tensor) -> Tensor:
    """Return the smallest box (B, …) around a region (B, …); it is empty around an empty one.

    >>> box(torch.tensor([[[True, False], [False, False], [True, True]]])).int().tolist()
    [[[1, 1], [1, 1], [1, 1]]]
    """
    in_box = torch.ones_like(region)
    for dim in range(1, region.ndim):
        # Which rows (or columns, …) have a position of the region.
        other_dims = [d for d in range(1, region.ndim) if d != dim]
        occupied = region.any(other_dims, keepdim=True) if other_dims else region
        occupied = occupied.int()
        # 1 from the first of them on, and 1 up to the last; the box has both along every dimension.
        from_first = occupied.cummax(dim).values
        up_to_last = occupied.flip(dim).cummax(dim).values.flip(dim)
        in_box &= (from_first & up_to_last).bool()
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

"""How much of a map lies in a region, by five measures, each beside what chance scores."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Sign = Literal["positive", "absolute", "negative"]
VECTORS = {"image": 1, "volume": 1, "series": 1, "set": -1, "graph": -1, "text": -1}
"""Over which dimension the values of a place are summed: its channels, or the vector of an element or token."""
BOXED = ("image", "volume", "series")


def relevance(maps: Tensor, kind: str, sign: Sign = "positive") -> Tensor:
    """The values (B, …) of the places of a map: sums of channels, of which the positive part is taken, or the size, or
    the negative part: which one counts as evidence is a choice, and a map whose sign means something else must say so.

    >>> relevance(torch.tensor([[[[2.0, -1.0]], [[1.0, -3.0]]]]), "image").tolist()
    [[[3.0, 0.0]]]
    """
    values = maps.detach().double().cpu()
    values = values.sum(VECTORS[kind]) if kind in VECTORS and maps.ndim > 2 else values
    return (
        values.abs()
        if sign == "absolute"
        else (values if sign == "positive" else -values).clamp(min=0)
    )


def scored(values: Tensor, region: Tensor, there: Tensor, kind: str = "image") -> dict[str, Tensor]:
    """Every measure of values (B, …) in a region (B, …) of the places that are `there`, (B,), and chance for each.

    >>> region = torch.tensor([[[True, False], [False, False]]])
    >>> found = scored(torch.tensor([[[3.0, 1.0], [0.0, 0.0]]]), region, torch.ones_like(region))
    >>> {name: float(value) for name, value in found.items() if "chance" not in name}
    {'relevance_mass': 0.75, 'relevance_rank': 1.0, 'pointing': 1.0, 'region_auc': 1.0, 'energy': 0.75}
    """
    inside, boxed = (region & there).flatten(1), (box(region & there) & there).flatten(1)
    there, total = there.flatten(1), there.flatten(1).sum(1).double()
    ranked = values.flatten(1).masked_fill(~there, -torch.inf)  # padding comes last
    amount = values.flatten(1) * there
    top = ranked == ranked.amax(1, keepdim=True)
    area = inside.sum(1) / total
    found = {
        "relevance_mass": ((amount * inside).sum(1) / amount.sum(1), area),
        "relevance_rank": (_rank(ranked, inside), area),
        "pointing": ((top & inside).sum(1).double() / top.sum(1), area),
        "region_auc": (_auc(ranked, inside, there), torch.full_like(area, 0.5)),
    }
    if kind in BOXED:
        found["energy"] = ((amount * boxed).sum(1) / amount.sum(1), boxed.sum(1) / total)
    columns = {name: score for name, (score, _) in found.items()}
    return columns | {
        f"{name}_chance": c.masked_fill(~torch.isfinite(s), torch.nan)
        for name, (s, c) in found.items()
    }


def _rank(ranked: Tensor, inside: Tensor) -> Tensor:
    """The share of the k largest values that lie in a region of k places; ties count by their expectation."""
    k = inside.sum(1, keepdim=True)
    last = ranked.sort(1, descending=True).values.gather(1, (k - 1).clamp(min=0))
    above, tied = ranked > last, ranked == last
    left = (
        (k - above.sum(1, keepdim=True))
        * (tied & inside).sum(1, keepdim=True)
        / tied.sum(1, keepdim=True)
    )
    return (((above & inside).sum(1, keepdim=True) + left) / k)[:, 0]


def _auc(ranked: Tensor, inside: Tensor, there: Tensor) -> Tensor:
    """How probably a place of the region has a larger value than one outside; a tie counts half."""
    ordered = ranked.sort(1).values
    ends = [
        torch.searchsorted(ordered, ranked.contiguous(), right=side).double()
        for side in (False, True)
    ]
    ranks = (ends[0] + ends[1] + 1) / 2 - (~there).sum(1, keepdim=True)
    k, outside = inside.sum(1).double(), (there & ~inside).sum(1)
    return ((ranks * inside).sum(1) - k * (k + 1) / 2) / (k * outside)


def box(region: Tensor) -> Tensor:
    """The smallest box (B, …) around a region (B, …); empty around none.

    >>> box(torch.tensor([[[True, False], [False, False], [True, True]]])).int().tolist()
    [[[1, 1], [1, 1], [1, 1]]]
    """
    whole = torch.ones_like(region)
    for dim in range(1, region.ndim):
        others = [d for d in range(1, region.ndim) if d != dim]
        seen = (region.any(others, keepdim=True) if others else region).int()
        whole &= (seen.cummax(dim).values & seen.flip(dim).cummax(dim).values.flip(dim)).bool()
    return whole

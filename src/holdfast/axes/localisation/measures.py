"""How much of a map lies in a region: values (B, n), region and places that count (B, n) boolean, to (B,) in float64.

Every function leaves places out that are not `there`, the padding of sets and texts. Ties count by their expectation.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Sign = Literal["positive", "absolute", "negative"]


def relevance(maps: Tensor, kind: str, sign: Sign = "positive") -> Tensor:
    """The values (B, …) of the places of a map: summed over channels, or over the vector of an element or token.

    Then the positive part is taken, the size, or the size of the negative part: which one counts as evidence is a
    choice, and a map whose sign means something else has to say so.

    >>> relevance(torch.tensor([[[[2.0, -1.0]], [[1.0, -3.0]]]]), "image").tolist()
    [[[3.0, 0.0]]]
    """
    vectors = {"image": 1, "series": 1, "set": -1, "graph": -1, "text": -1}
    values = maps.detach().double()
    values = values.sum(vectors[kind]) if kind in vectors and maps.ndim > 2 else values
    return values.abs() if sign == "absolute" else (values if sign == "positive" else -values).clamp(min=0)


def pointing(values: Tensor, region: Tensor, there: Tensor) -> Tensor:
    """Pointing game: whether the largest value lies in the region; of several that are tied, the share that does.

    >>> yes = torch.tensor([[True, False, False]])
    >>> pointing(torch.tensor([[4.0, 4.0, 1.0]]), yes, torch.ones_like(yes)).tolist()
    [0.5]
    """
    values = values.masked_fill(~there, -torch.inf)
    top = values == values.amax(1, keepdim=True)
    return (top & region).sum(1).double() / top.sum(1)


def mass(values: Tensor, region: Tensor, there: Tensor) -> Tensor:
    """Σ over the region of the values / Σ over all; NaN where nothing is positive.

    >>> yes = torch.tensor([[True, False, False]])
    >>> mass(torch.tensor([[3.0, 0.0, 1.0]]), yes, torch.ones_like(yes)).tolist()
    [0.75]
    """
    values = values * there
    return (values * region).sum(1) / values.sum(1)


def rank(values: Tensor, region: Tensor, there: Tensor) -> Tensor:
    """The share of the k largest values that lie in the region, k being its size.

    >>> yes = torch.tensor([[True, True, False]])
    >>> rank(torch.tensor([[3.0, 1.0, 2.0]]), yes, torch.ones_like(yes)).tolist()
    [0.5]
    """
    values, k = values.masked_fill(~there, -torch.inf), region.sum(1, keepdim=True)
    last = values.sort(1, descending=True).values.gather(1, (k - 1).clamp(min=0))
    above, tied = values > last, values == last
    left = (k - above.sum(1, keepdim=True)) * (tied & region).sum(1, keepdim=True) / tied.sum(1, keepdim=True)
    return (((above & region).sum(1, keepdim=True) + left) / k)[:, 0]


def auc(values: Tensor, region: Tensor, there: Tensor) -> Tensor:
    """The probability that a place of the region has a larger value than one outside; a tie counts half.

    >>> yes = torch.tensor([[True, True, False]])
    >>> auc(torch.tensor([[3.0, 1.0, 2.0]]), yes, torch.ones_like(yes)).tolist()
    [0.5]
    """
    values = values.masked_fill(~there, -torch.inf).contiguous()
    ordered = values.sort(1).values
    ends = [torch.searchsorted(ordered, values, right=side).double() for side in (False, True)]
    ranks = (ends[0] + ends[1] + 1) / 2 - (~there).sum(1, keepdim=True)
    inside, outside = region.sum(1).double(), (there & ~region).sum(1)
    return ((ranks * region).sum(1) - inside * (inside + 1) / 2) / (inside * outside)


def box(region: Tensor) -> Tensor:
    """The smallest box (B, …) around a region (B, …); empty around none.

    >>> box(torch.tensor([[[True, False], [False, False], [True, True]]])).int().tolist()
    [[[1, 1], [1, 1], [1, 1]]]
    """
    whole = torch.ones_like(region)
    for dim in range(1, region.ndim):
        others = [d for d in range(1, region.ndim) if d != dim]
        along = region.any(others, keepdim=True) if others else region
        seen = along.int()
        whole &= (seen.cummax(dim).values & seen.flip(dim).cummax(dim).values.flip(dim)).bool()
    return whole

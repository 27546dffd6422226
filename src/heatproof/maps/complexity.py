"""How concentrated a map is: sparseness and entropy of its absolute values, maps (B, …) to scores (B,) in float64.

A map of zeros, or one that is not finite, has neither: NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gini(maps: Tensor) -> Tensor:
    """Return the Gini index of the absolute values of each map, (B,): how concentrated the map is.

    Σ_i (2i − n − 1)|a|_(i) / (n Σ|a|), with the n absolute values in rising order. It is 0 for an even map and 1 − 1/n
    for a single value other than 0.

    >>> gini(torch.tensor([[1.0, -1.0, 1.0, 1.0], [0.0, 0.0, -5.0, 0.0]])).tolist()
    [0.0, 0.75]
    """
    rising = maps.detach().flatten(1).abs().double().sort(1).values
    n = rising.shape[1]
    rank = torch.arange(1, n + 1, device=rising.device, dtype=torch.float64)
    return (rising @ (2 * rank - n - 1)) / (n * rising.sum(1))


def entropy(maps: Tensor) -> Tensor:
    """Return the normalised entropy of the absolute values of each map, (B,): how spread out the map is.

    −Σ p log p / log n with p = |a| / Σ|a|: 1 for an even map, 0 for a single value other than 0.

    >>> entropy(torch.tensor([[1.0, -1.0, 1.0, 1.0], [0.0, 0.0, -5.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    absolute = maps.detach().flatten(1).abs().double()
    share = absolute / absolute.sum(1, keepdim=True)
    total: Tensor = torch.special.entr(share).sum(1)
    n = max(2, absolute.shape[1])
    return total / math.log(n)

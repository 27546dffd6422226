"""How concentrated a map is: sparseness and entropy of the sizes of its values, (B, …) to (B,) in float64.

Both look at |a| alone. A map without any value other than 0, or one that is not finite, has neither: NaN.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor


def gini(maps: Tensor) -> Tensor:
    """Gini's index Σ_i (2i − n − 1)|a|_(i) / (n Σ|a|) of the n sizes in rising order: 0 even, 1 − 1/n one value alone.

    >>> gini(torch.tensor([[1.0, -1.0, 1.0, 1.0], [0.0, 0.0, -5.0, 0.0]])).tolist()
    [0.0, 0.75]
    """
    sizes = maps.detach().flatten(1).abs().double().sort(1).values
    n = sizes.shape[1]
    weight = 2 * torch.arange(1, n + 1, device=sizes.device, dtype=torch.float64) - n - 1
    return (sizes @ weight) / (n * sizes.sum(1))


def entropy(maps: Tensor) -> Tensor:
    """−Σ p log p / log n with p = |a| / Σ|a|: 1 for an even map, 0 for one value alone.

    >>> entropy(torch.tensor([[1.0, -1.0, 1.0, 1.0], [0.0, 0.0, -5.0, 0.0]])).tolist()
    [1.0, 0.0]
    """
    sizes = maps.detach().flatten(1).abs().double()
    share = sizes / sizes.sum(1, keepdim=True)
    total: Tensor = torch.special.entr(share).sum(1)
    return total / math.log(max(2, sizes.shape[1]))

"""Which elements an average over a group uses, and how far a sampled average may be from the full one."""

from __future__ import annotations

import math

from torch import Tensor

from holdfast.axes.symmetry.groups.contract import Group
from holdfast.errors import UserError
from holdfast.statistics.bounds import check_share
from holdfast.types import Batch


def plan_elements(group: Group, batch: Batch, limit: int, seed: int) -> tuple[Tensor, bool]:
    """Elements (n, B, *e) for a mean over the group, and whether they are all of it.

    All |G| elements, identity first and the same for every sample, if there are at most `limit`; else `limit` uniform
    draws for each sample, keyed by (seed, sample id), whose mean is within `monte_carlo_error(limit)` of the full one.

    >>> from holdfast.axes.symmetry.groups import Cyclic
    >>> batch = Batch(("a", "b"), torch.rand(2, 1, 5))
    >>> elements, whole = plan_elements(Cyclic(), batch, limit=8, seed=0)
    >>> elements.T.tolist(), whole
    ([[0, 1, 2, 3, 4], [0, 1, 2, 3, 4]], True)
    >>> plan_elements(Cyclic(), batch, limit=3, seed=0)[0].shape
    torch.Size([3, 2])
    """
    if limit < 1:
        raise UserError(f"the number of group elements must be at least 1, got {limit}")
    if group.order(batch) > limit:
        return group.sample(batch, limit, seed), False
    every = group.elements(batch)
    return every[:, None].expand(len(every), len(batch), *every.shape[1:]), True


def monte_carlo_error(n: int, delta: float = 0.05, low: float = -1.0, high: float = 1.0) -> float:
    """Hoeffding: the mean of n independent scores in [low, high] is within this of its expectation, but for delta.

    (high − low) · √(log(2/delta) / 2n). It holds for one sample with its n draws, and for the mean over B samples with
    n·B draws in place of n because draws are keyed by sample.

    >>> round(monte_carlo_error(50), 3)
    0.384
    """
    check_share("delta", delta)
    if n < 1 or not low < high:
        raise UserError(f"n must be at least 1 and low below high, got n={n}, low={low}, high={high}")
    return (high - low) * math.sqrt(math.log(2 / delta) / (2 * n))

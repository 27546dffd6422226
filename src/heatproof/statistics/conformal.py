"""A guarantee for the next sample, from the certified lower bounds of samples that were tested: split conformal prediction.

Each of n calibration samples has a rate τ_i and a certified lower bound low_i ≤ τ_i, wrong with probability at most δ.
A new sample would get a bound low_new in the same way. If all n + 1 samples are exchangeable, as independent draws from
one population are, low_new is equally likely to have any rank among the n + 1 bounds. So it is below the k-th smallest of
the n with probability at most k/(n + 1), and with k = ⌊α (n + 1)⌋ that is at most α. Together:

    P(τ_new ≥ k-th smallest bound) ≥ 1 − α − δ.

The probability is over the calibration samples, the new sample and the draws of all certificates. The new sample needs no
model pass. Reference: Vovk, Gammerman and Shafer 2005, Algorithmic learning in a random world; Lei et al. 2018, JASA 113,
1094, for the upper side: without ties the first of the two errors is above α − 1/(n + 1).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.statistics.bounds import check_share


def next_sample_low(lows: Tensor, alpha: float, lowest: float = 0.0) -> float:
    """Return what the rate of the next sample is at least, with probability 1 − alpha − δ, from bounds `lows` (n,).

    The bounds fail with probability at most δ each; exact rates are bounds with δ = 0. Fewer than 1/alpha − 1 samples
    promise no more than `lowest`, the end of the scale.

    >>> lows = torch.tensor([0.9, 0.5, 1.0, 0.7, 0.8, 0.6, 0.95, 0.85, 0.75])
    >>> next_sample_low(lows, 0.1), round(next_sample_low(lows, 0.2), 2), next_sample_low(lows, 0.05)
    (0.5, 0.6, 0.0)
    """
    check_share("alpha", alpha)
    if lows.ndim != 1 or not bool(torch.isfinite(lows).all()):
        raise UserError(
            f"lows must be finite numbers, one per sample, got a tensor of shape {tuple(lows.shape)}; leave samples "
            "without a bound out"
        )
    rank = rank_of_guarantee(len(lows), alpha)
    if rank == 0:
        return lowest
    return float(lows.double().sort().values[rank - 1])


def rank_of_guarantee(n: int, alpha: float) -> int:
    """Return k = ⌊alpha (n + 1)⌋: the k-th smallest of n bounds holds for the next sample with probability 1 − alpha.

    >>> rank_of_guarantee(9, 0.1), rank_of_guarantee(8, 0.1), rank_of_guarantee(99, 0.1)
    (1, 0, 10)
    """
    return math.floor(alpha * (n + 1) + 1e-9)  # rounding must not turn 10 into 9

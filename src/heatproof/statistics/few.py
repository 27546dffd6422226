"""What few samples, references and networks can and cannot show: the numbers behind the warnings.

`unseen_share`, `smallest_p` and `smallest_excess` are formulas. The thresholds are measured by `benchmarks/coverage.py`,
whose tables are on the page of measured coverage.
"""

from __future__ import annotations

from heatproof.statistics.above_chance import FEW_SAMPLES_ABOVE_CHANCE, smallest_excess
from heatproof.statistics.intervals import unseen_share
from heatproof.statistics.sign_flips import FLIPS

__all__ = [
    "FEW_NETWORKS",
    "FEW_REFERENCES",
    "FEW_SAMPLES_ABOVE_CHANCE",
    "smallest_excess",
    "smallest_p",
    "unseen_share",
]

FEW_NETWORKS = 5
"""With fewer random networks the 95 % interval of a mean over samples and networks may cover far less: measured in the
worst case 50 % with 2 (networks of two kinds), 75 % with 3, 92 % with 5 and 93 % with 10."""
FEW_REFERENCES = 8
"""With fewer references the 95 % interval of a calibrated score may cover less than 93 %: measured in the worst case
82 % with 2, 87 % with 3, 89 % with 4, 92 % with 6 and 93 % with 8."""


def smallest_p(n: int) -> float:
    """Return the smallest p that the paired test can give with n samples: one of 2^(n − 1) flips, or of those that are drawn.

    >>> smallest_p(5), smallest_p(14), smallest_p(1000)
    (0.0625, 0.0001220703125, 0.0001)
    """
    return 1.0 / min(1 << max(n - 1, 0), FLIPS)

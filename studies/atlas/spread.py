"""Where the spread of scores comes from: a crossed random-effects model of cells, by MINQUE(0).

y = μ + Σ_k u_k[level] + e over the cells of plain networks of images, u_k with variance σ²_k: method, architecture,
data, perturbation, seed (networks that differ in nothing else), the interactions of the architecture with the data and
of the method with three of these, and the rest. The quadratic forms y'QZ_kZ_k'Qy have expectations that are linear in
the variances, also where cells are missing; solving for these is unbiased. Shares are of the sum of the variances,
negative ones counted as 0. Intervals are by the jackknife: every network and every method is left out once, and the two
variances are added; there negative ones stay, else a part whose estimate is below 0 would seem to be known exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from reading import Tables
from scipy.stats import norm

Array = NDArray[np.float64]
FACTORS = {
    "method": ["explainer"],
    "architecture": ["architecture"],
    "data": ["data"],
    "perturbation": ["condition", "severity"],
    "architecture × data": ["architecture", "data"],
    "seed": ["network"],
    "method × architecture": ["explainer", "architecture"],
    "method × data": ["explainer", "data"],
    "method × perturbation": ["explainer", "condition", "severity"],
}
REST = "rest"


@dataclass(frozen=True)
class Split:
    """Shares of the variance (K,); without one network or method, negative ones kept, (networks, K), (methods, K)."""

    names: tuple[str, ...]
    share: Array
    without_network: Array
    without_method: Array
    cells: int

    def interval(self, weights: Array) -> tuple[float, float, float]:
        """A weighted sum of shares with its 95 % interval."""
        variance = 0.0
        for left_out in (self.without_network, self.without_method):
            sums = left_out @ weights
            variance += (len(sums) - 1) / len(sums) * float(((sums - sums.mean()) ** 2).sum())
        value, half = float(self.share @ weights), float(norm.ppf(0.975)) * variance**0.5
        return value, value - half, value + half

    def contrast(self, one: str, other: str) -> tuple[float, float, float]:
        """The share of one factor less that of another."""
        return self.interval(np.array([float(n == one) - float(n == other) for n in self.names]))

    def table(self) -> pd.DataFrame:
        """factor, value, low and high, within 0 and 1."""
        rows = [(n, *self.interval(np.eye(len(self.names))[i])) for i, n in enumerate(self.names)]
        frame = pd.DataFrame(rows, columns=["factor", "value", "low", "high"])
        return frame.assign(low=frame["low"].clip(0, 1), high=frame["high"].clip(0, 1))


def variances(y: Array, codes: list[NDArray[np.int64]]) -> Array:
    """MINQUE(0) estimates of the variance of each factor and, last, of the rest; `codes` are the levels of each cell.

    >>> y = np.array([1.0, 1.0, 3.0, 3.0])
    >>> [round(float(v), 6) for v in variances(y, [np.array([0, 0, 1, 1])])]
    [2.0, 0.0]
    """
    n, k = len(y), len(codes)
    centred = y - y.mean()
    counts = [np.bincount(c).astype(float) for c in codes]
    own = [float((np.bincount(c, centred) ** 2).sum()) for c in codes] + [float((centred**2).sum())]
    matrix = np.empty((k + 1, k + 1))
    for i in range(k):
        for j in range(i, k):  # Z'QZ is how often two levels meet, less what chance would have
            shape = (len(counts[i]), len(counts[j]))
            met = np.bincount(
                codes[i] * shape[1] + codes[j], minlength=shape[0] * shape[1]
            ).reshape(shape)
            matrix[i, j] = matrix[j, i] = ((met - np.outer(counts[i], counts[j]) / n) ** 2).sum()
        matrix[i, k] = matrix[k, i] = n - (counts[i] ** 2).sum() / n
    matrix[k, k] = n - 1
    return np.linalg.lstsq(matrix, np.array(own), rcond=None)[0]


def shares(cells: pd.DataFrame, factors: dict[str, list[str]]) -> Array:
    """The share of each factor, and of the rest, in the sum of the variances that are above 0; the others are below."""
    codes = [
        cells.groupby(names, sort=False, observed=True).ngroup().to_numpy()
        for names in factors.values()
    ]
    found = variances(cells["best"].to_numpy(dtype=float), codes)
    return found / max(np.clip(found, 0, None).sum(), 1e-300)


def split(t: Tables, axis: str = "stability", measure: str = "fass") -> Split | None:
    """The split of an axis on networks of images; None with fewer than three networks or methods.

    Only methods that every network has take part, so that a method is not told from its networks.
    """
    cells = t.select(axis=axis, measure=measure, modality="image", variant="plain", sweep=False)
    cells = cells[~cells["control"] & np.isfinite(cells["best"].astype(float))]
    networks = cells["network"].nunique()
    common = cells.groupby("explainer", observed=True)["network"].nunique()
    cells = cells[cells["explainer"].isin(common[common == networks].index)]
    if networks < 3 or cells["explainer"].nunique() < 3:
        return None
    factors: dict[str, list[str]] = {}
    seen: list[NDArray[np.int64]] = []
    for name, columns in FACTORS.items():
        codes = cells.groupby(columns, sort=False, observed=True).ngroup().to_numpy()
        # one that has a single level, or groups the cells as another does, cannot be told from it
        if 1 < codes.max() + 1 < len(cells) and not any((codes == other).all() for other in seen):
            factors[name] = columns
            seen.append(codes)
    without = []
    for column in ("network", "explainer"):
        parts = [cells[cells[column] != level] for level in cells[column].unique()]
        without.append(np.stack([shares(part, factors) for part in parts]))
    return Split((*factors, REST), np.clip(shares(cells, factors), 0, None), *without, len(cells))

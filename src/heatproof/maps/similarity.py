"""Similarity of two attribution maps: SSIM, Spearman, top-k Jaccard and cosine, each two (B, …) tensors to (B,).

A map that is constant or not finite has no similarity to anything: the score is NaN.

`profile` computes what the measures need of each map, so that one map can be compared with many at little cost. A mask of
valid positions restricts a comparison, for instance to those that a rotated map still has.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from heatproof.errors import UserError
from heatproof.maps.ranks import Ties, Top, centred_ranks, overlap, overlaps, ranking, top
from heatproof.maps.ssim import WINDOW, SsimWindows, mean_ssim, ssim_of_all, windows_of

COMPONENTS = ("ssim", "spearman", "jaccard")
_SMALLEST, _LARGEST = 1e-30, 1e30
"""The range of a map's largest value that float32 holds with digits to spare."""


@dataclass(frozen=True)
class Profile:
    """What the three measures need of B maps of n values each.

    windows  for SSIM; None leaves it out
    rank     (B, n) for Spearman: ranks centred on the valid positions, zero elsewhere
    norm     (B,) float64: Σ rank²
    top      for Jaccard: the k largest values
    defined  (B,) boolean: the map is finite and not constant
    """

    windows: SsimWindows | None
    rank: Tensor
    norm: Tensor
    top: Top
    defined: Tensor

    def __len__(self) -> int:
        return len(self.defined)

    def __getitem__(self, index: slice | Tensor) -> Profile:
        """Return the profiles of a selection of the B maps, such as `profiles[:2]`; `index` selects along the batch."""
        windows = None if self.windows is None else self.windows[index]
        return Profile(
            windows, self.rank[index], self.norm[index], self.top[index], self.defined[index]
        )


def profile(
    maps: Tensor,
    k: int | float = 100,
    ties: Ties = "average",
    valid: Tensor | None = None,
    window: int = WINDOW,
    dims: int | None = None,
) -> Profile:
    """Return what comparing maps (B, …) by SSIM, Spearman's correlation and top-k overlap needs of each map.

    Ranks, top-k sets and SSIM's windows are computed once per map, however many maps it is compared with. `valid` is a
    boolean mask of the positions that count and broadcasts to the maps. `k` is the size of the top-k sets, below 1 a
    share of the positions. `ties` says whether equal values share their average rank or are ranked by position.

    `dims` is over how many of the last dimensions SSIM's windows reach: 3 for volumes, 2 for images, 1 for series (B,
    C, T). 0 leaves SSIM out, for rows of a table, whose columns have no neighbours. By default it is 1 for (B, T) maps,
    else 2.

    >>> p = profile(torch.rand(2, 3, 16, 16), k=10)
    >>> {name: value.tolist() for name, value in compare(p, p).items()}
    {'ssim': [1.0, 1.0], 'spearman': [1.0, 1.0], 'jaccard': [1.0, 1.0]}
    """
    safe = _safe(maps, valid)
    keys, order = ranking(safe.flat)
    rank = centred_ranks(keys, order, safe.counts, ties)
    windows = None if dims == 0 else safe.windows(window, dims=dims)
    largest = _top(safe, keys, order, k, ties)
    return Profile(windows, rank, _dot(rank, rank), largest, safe.defined)


def compare(a: Profile, b: Profile, window: int = WINDOW) -> dict[str, Tensor]:
    """Return SSIM, (Spearman + 1) / 2 and Jaccard of pairs of maps with the same mask, each (B,) in float64.

    One of the two may have a single entry, which is then compared with every entry of the other. Profiles without
    windows have no SSIM.
    """
    scores = {}
    if a.windows is not None and b.windows is not None:
        scores["ssim"] = mean_ssim(a.windows, b.windows, window)
    correlation = _dot(a.rank, b.rank) / (a.norm * b.norm).sqrt()
    scores["spearman"] = (correlation + 1) / 2
    scores["jaccard"] = overlap(a.top, b.top)
    return _undefined_as_nan(scores, a.defined & b.defined)


def compare_all(references: Profile, maps: Profile, window: int = WINDOW) -> dict[str, Tensor]:
    """Return SSIM, (Spearman + 1) / 2 and Jaccard of every reference with every map, each (R, B) in float64.

    All maps have the same mask of valid positions. Profiles without windows have no SSIM.

    >>> p = profile(torch.rand(3, 1, 16, 16), k=10)
    >>> compare_all(p[:2], p)["jaccard"].diagonal().tolist()
    [1.0, 1.0]
    """
    scores = {}
    if references.windows is not None and maps.windows is not None:
        scores["ssim"] = ssim_of_all(references.windows, maps.windows, window)
    correlation = _dots(references.rank, maps.rank)
    correlation = correlation / (references.norm[:, None] * maps.norm).sqrt()
    scores["spearman"] = (correlation + 1) / 2
    scores["jaccard"] = overlaps(references.top, maps.top)
    return _undefined_as_nan(scores, references.defined[:, None] & maps.defined)


def _undefined_as_nan(scores: Mapping[str, Tensor], defined: Tensor) -> dict[str, Tensor]:
    """Return scores by measure, with NaN for the pairs that are not `defined`: a map is constant or not finite."""
    return {name: score.masked_fill(~defined, torch.nan) for name, score in scores.items()}


def composite(
    scores: Mapping[str, Tensor], weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> Tensor:
    """Return FASS: the weighted mean of the components, by default with equal weights.

    `weights` are those of SSIM, Spearman and Jaccard; without SSIM those of the other two are scaled to sum to 1.

    >>> one = torch.ones(1)
    >>> composite({"ssim": one, "spearman": one * 0.5, "jaccard": one * 0.0}).tolist()
    [0.5]
    >>> composite({"spearman": one, "jaccard": one * 0.0}, (1.0, 3.0, 1.0)).tolist()
    [0.75]
    """
    weight_of = dict(zip(COMPONENTS, weights, strict=True))
    present = [name for name in COMPONENTS if name in scores]
    total = sum(weight_of[name] for name in present)
    mean = torch.zeros_like(scores[present[0]])
    for name in present:
        mean = mean + scores[name] * (weight_of[name] / total)
    # Weights may sum to 1 only up to rounding, which must not spoil a perfect score.
    is_perfect = torch.stack([scores[name] for name in present]).eq(1).all(0)
    return torch.where(is_perfect, torch.ones_like(mean), mean)


def ssim(
    a: Tensor,
    b: Tensor,
    window: int = WINDOW,
    padding: Literal["zero", "valid"] = "zero",
    dims: Literal[1, 2, 3] | None = None,
) -> Tensor:
    """Return the mean structural similarity of maps that are each scaled to [0, 1], as in the FASS paper.

    (2μ₁μ₂ + c₁)(2σ₁₂ + c₂) / ((μ₁² + μ₂² + c₁)(σ₁² + σ₂² + c₂)) over uniform windows with c₁ = 0.01², c₂ = 0.03².
    Windows are square over the last two dimensions of (B, C, H, W) or (B, H, W) maps, linear over the last of (B, T),
    and with `dims=1` of (B, C, T); with `dims=3` cubes over the last three of volumes (B, C, D, H, W).
    `padding="zero"` pads by half a window (the paper); "valid" averages over whole windows only (scikit-image).

    >>> a = torch.rand(2, 3, 32, 32)
    >>> ssim(a, a).tolist()
    [1.0, 1.0]
    """
    safe_a, safe_b = _safe_pair(a, b)
    windows_a = safe_a.windows(window, padding, dims)
    windows_b = safe_b.windows(window, padding, dims)
    score = mean_ssim(windows_a, windows_b, window)
    return score.masked_fill(~(safe_a.defined & safe_b.defined), torch.nan).to(a.dtype)


def spearman(a: Tensor, b: Tensor, ties: Ties = "average") -> Tensor:
    """Return the rank correlation ρ in [−1, 1] of flattened maps.

    Ties share their average rank; `ties="ordinal"` ranks them by position, as a double argsort does.

    >>> spearman(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 9.0, 4.0]])).tolist()
    [0.5]
    """
    safe_a, safe_b = _safe_pair(a, b)
    rank_a = centred_ranks(*ranking(safe_a.flat), safe_a.counts, ties)
    rank_b = centred_ranks(*ranking(safe_b.flat), safe_b.counts, ties)
    score = _dot(rank_a, rank_b) / (_dot(rank_a, rank_a) * _dot(rank_b, rank_b)).sqrt()
    return score.masked_fill(~(safe_a.defined & safe_b.defined), torch.nan).to(a.dtype)


def jaccard(a: Tensor, b: Tensor, k: int | float = 100, ties: Ties = "average") -> Tensor:
    """Return the overlap |A ∩ B| / |A ∪ B| of the positions of the k largest signed values; k below 1 is a share of n.

    Where values tie, the score is the expected one over a random order of the positions that both maps share;
    `ties="ordinal"` prefers the first positions.

    >>> a = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    >>> jaccard(a, a.flip(1), k=2).tolist(), jaccard(a, a, k=2).tolist()
    ([0.0], [1.0])
    """
    safe_a, safe_b = _safe_pair(a, b)
    top_a = _top(safe_a, *ranking(safe_a.flat), k, ties)
    top_b = _top(safe_b, *ranking(safe_b.flat), k, ties)
    score = overlap(top_a, top_b)
    return score.masked_fill(~(safe_a.defined & safe_b.defined), torch.nan).to(a.dtype)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Return the cosine of the angle between flattened maps; NaN for a zero or non-finite map.

    >>> cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])).tolist()
    [0.707...]
    """
    _check_pair(a, b)
    x, y = a.flatten(1).double(), b.flatten(1).double()
    lengths = ((x * x).sum(1) * (y * y).sum(1)).sqrt()
    return ((x * y).sum(1) / lengths).to(a.dtype)


def undefined(maps: Tensor, valid: Tensor | None = None) -> Tensor:
    """Return which maps (B, …) are constant or not finite on their valid positions, (B,) boolean.

    >>> undefined(torch.tensor([[1.0, 1.0], [1.0, 2.0], [1.0, torch.nan]])).tolist()
    [True, False, True]
    """
    low, high = bounds(maps, valid)
    return ~(torch.isfinite(low) & torch.isfinite(high) & (low < high))


def bounds(maps: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Return the least and the greatest value (B,) of maps on their valid positions; NaN where a map has a NaN.

    >>> [value.tolist() for value in bounds(torch.tensor([[1.0, 3.0, 2.0]]))]
    [[1.0], [3.0]]
    """
    if valid is None:
        low, high = maps.flatten(1).aminmax(dim=1)
        return low, high
    low = maps.masked_fill(~valid, torch.inf).flatten(1).amin(1)
    high = maps.masked_fill(~valid, -torch.inf).flatten(1).amax(1)
    return low, high


@dataclass(frozen=True)
class _SafeMaps:
    """Maps made safe to compute with, in float32.

    maps    (B, …), zero where a value is not finite or not valid
    low     (B,) the least valid value, which may be infinite or NaN
    high    (B,) the greatest valid value
    valid   a mask that broadcasts to the maps, or None where all positions are valid
    counts  (B,) the number of valid values
    """

    maps: Tensor
    low: Tensor
    high: Tensor
    valid: Tensor | None
    counts: Tensor

    @property
    def defined(self) -> Tensor:
        """Which maps are finite and not constant, (B,) boolean."""
        return torch.isfinite(self.low) & torch.isfinite(self.high) & (self.low < self.high)

    def windows(self, window: int, padding: str = "zero", dims: int | None = None) -> SsimWindows:
        """Return the statistics of their SSIM windows."""
        return windows_of(self.maps, self.low, self.high, self.valid, window, padding, dims)

    @property
    def flat(self) -> Tensor:
        """The values (B, n), with invalid ones below all others."""
        maps = self.maps
        if self.valid is not None:
            maps = maps.masked_fill(~self.valid, -torch.inf)
        return maps.flatten(1)


def _safe(maps: Tensor, valid: Tensor | None = None) -> _SafeMaps:
    """Return maps (B, …) in float32 with 0 where a value is not finite or not `valid`, their bounds and value counts."""
    maps = _as_float32(maps.detach())
    n = math.prod(maps.shape[1:])
    safe = torch.nan_to_num(maps, 0.0, 0.0, 0.0)
    low, high = bounds(maps, valid)
    if valid is None:
        counts = torch.full((len(maps),), n, device=maps.device)
        return _SafeMaps(safe, low, high, None, counts)
    # The mask may have one channel for all of the maps.
    repeats = n // math.prod(valid.shape[1:])
    counts = (valid.flatten(1).sum(1) * repeats).expand(len(maps))
    return _SafeMaps(safe.masked_fill_(~valid, 0), low, high, valid, counts)


def _as_float32(maps: Tensor) -> Tensor:
    """Return maps in float32; float64 maps whose values it cannot hold are scaled first, which changes no score."""
    if maps.dtype != torch.float64 or not len(maps):
        return maps.float()
    largest = torch.nan_to_num(maps, 0.0, 0.0, 0.0).abs().flatten(1).amax(1)
    is_extreme = (largest > 0) & ((largest < _SMALLEST) | (largest > _LARGEST))
    factor = torch.where(is_extreme, largest, 1.0).view(-1, *[1] * (maps.ndim - 1))
    return (maps / factor).float()


def _safe_pair(a: Tensor, b: Tensor) -> tuple[_SafeMaps, _SafeMaps]:
    """Return two batches of maps made safe to compute with; raise `UserError` if their shapes differ."""
    _check_pair(a, b)
    return _safe(a), _safe(b)


def _check_pair(a: Tensor, b: Tensor) -> None:
    if a.shape != b.shape or a.ndim < 2:
        raise UserError(
            f"two maps of one shape (B, …) are needed, got {tuple(a.shape)} and {tuple(b.shape)}"
        )


def _top(safe: _SafeMaps, keys: Tensor, order: Tensor, k: int | float, ties: Ties) -> Top:
    """Return the sets of the k largest valid values of maps, given their `ranking` (keys, order).

    k below 1 is a share of a map's valid values. A map with fewer than k valid values has all of them in its set.
    """
    n = order.shape[1]
    if isinstance(k, float) and 0 < k < 1:
        counts = (safe.counts * k).round().long().clamp_min(1)
        return top(safe.flat, keys, order, counts, min(n, math.ceil(n * k) + 1), ties)
    if k != int(k) or not 1 <= k <= n:
        raise UserError(
            f"k must be a whole number from 1 to {n} (the values in a map) or a fraction below 1, got {k}"
        )
    return top(safe.flat, keys, order, safe.counts.clamp(1, int(k)), int(k), ties)


def _exact_columns(ranks: Tensor) -> int:
    """Return how many products of ranks are summed at once, so that float64 holds the sum exactly in any order.

    Centred ranks are multiples of ½ and at most n / 2, so a product is a multiple of ¼ and at most n² / 4. float64 has 53
    binary digits, so sums of 2⁵³ / n² products are exact.
    """
    n = max(ranks.shape[1], 1)
    for_memory = 1 << 14 if ranks.device.type == "cpu" else 1 << 18
    exact = max(1 << 10, (1 << 53) // n**2)
    return min(for_memory, exact)


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Return Σ aᵢbᵢ of ranks (B, n) row by row in float64; one of the two may have a single row."""
    size = _exact_columns(a)
    columns = zip(torch.split(a, size, 1), torch.split(b, size, 1), strict=True)
    partial_sums = torch.stack([(x.double() * y.double()).sum(1) for x, y in columns])
    # A cumulative sum adds in order, on every device; a sum may not.
    return partial_sums.cumsum(0)[-1]


def _dots(a: Tensor, b: Tensor) -> Tensor:
    """Return the scalar products of every row of ranks a (A, n) with every row of b (B, n), (A, B) in float64."""
    size = _exact_columns(a)
    columns = zip(torch.split(a, size, 1), torch.split(b, size, 1), strict=True)
    return torch.stack([x.double() @ y.double().T for x, y in columns]).cumsum(0)[-1]

"""Similarity of two attribution maps: SSIM, Spearman, top-k Jaccard and cosine, each two (B, …) tensors to (B,).

A map that is constant or not finite has no similarity to anything: the score is NaN.

`profile` holds what the measures need of each map, so that one map can be compared with many at little cost; a mask
of valid places restricts a comparison to what both maps have.
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


@dataclass(frozen=True)
class Profile:
    """What the three measures need to know of B maps of n values each; without windows there is no SSIM."""

    windows: SsimWindows | None
    rank: Tensor  # (B, n) centred on the valid places, zero elsewhere
    norm: Tensor  # (B,) Σ rank² in float64
    top: Top
    defined: Tensor  # (B,) neither constant nor non-finite

    def __len__(self) -> int:
        return len(self.defined)

    def __getitem__(self, index: slice | Tensor) -> Profile:
        """The profiles at some positions."""
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
    """The profile of maps (B, …); `valid` is a boolean mask that broadcasts to them.

    `dims` is over how many of the last dimensions SSIM's windows reach: 3 for volumes, 2 for images, 1 for series (B,
    C, T), and 0 leaves SSIM out, for rows of a table, whose columns have no neighbours. Unless told: 1 for (B, T) maps,
    else 2.

    >>> p = profile(torch.rand(2, 3, 16, 16), k=10)
    >>> {name: value.tolist() for name, value in compare(p, p).items()}
    {'ssim': [1.0, 1.0], 'spearman': [1.0, 1.0], 'jaccard': [1.0, 1.0]}
    """
    known = _known(maps, valid)
    order = ranking(known.flat)
    rank = centred_ranks(*order, known.counts, ties)
    windows = None if dims == 0 else known.windows(window, dims=dims)
    return Profile(windows, rank, _dot(rank, rank), _top(known, *order, k, ties), known.defined)


def compare(a: Profile, b: Profile, window: int = WINDOW) -> dict[str, Tensor]:
    """SSIM, (Spearman + 1) / 2 and Jaccard of two sets of profiles with the same mask, each (B,) in float64.

    One of the two may have a single entry, which is then compared with every entry of the other. Profiles without
    windows have no SSIM.
    """
    either = a.defined & b.defined
    scores = (
        {}
        if a.windows is None or b.windows is None
        else {"ssim": mean_ssim(a.windows, b.windows, window)}
    )
    scores |= {
        "spearman": (_dot(a.rank, b.rank) / (a.norm * b.norm).sqrt() + 1) / 2,
        "jaccard": overlap(a.top, b.top),
    }
    return {name: value.masked_fill(~either, torch.nan) for name, value in scores.items()}


def compare_all(references: Profile, maps: Profile, window: int = WINDOW) -> dict[str, Tensor]:
    """The same of every reference with every map, each (R, B) in float64; all have the same mask.

    >>> p = profile(torch.rand(3, 1, 16, 16), k=10)
    >>> compare_all(p[:2], p)["jaccard"].diagonal().tolist()
    [1.0, 1.0]
    """
    either = references.defined[:, None] & maps.defined
    scores = {}
    if references.windows is not None and maps.windows is not None:
        scores["ssim"] = ssim_of_all(references.windows, maps.windows, window)
    scores |= {
        "spearman": (
            _dots(references.rank, maps.rank) / (references.norm[:, None] * maps.norm).sqrt() + 1
        )
        / 2,
        "jaccard": overlaps(references.top, maps.top),
    }
    return {name: value.masked_fill(~either, torch.nan) for name, value in scores.items()}


def composite(
    scores: Mapping[str, Tensor], weights: tuple[float, float, float] = (1.0, 1.0, 1.0)
) -> Tensor:
    """FASS: the weighted mean of the components there are, unweighted unless told otherwise.

    `weights` are those of SSIM, Spearman and Jaccard; without SSIM the other two share the whole.

    >>> one = torch.ones(1)
    >>> composite({"ssim": one, "spearman": one * 0.5, "jaccard": one * 0.0}).tolist()
    [0.5]
    >>> composite({"spearman": one, "jaccard": one * 0.0}, (1.0, 3.0, 1.0)).tolist()
    [0.75]
    """
    shares = {
        name: weight for name, weight in zip(COMPONENTS, weights, strict=True) if name in scores
    }
    total = sum(shares.values())
    first, *others = [scores[name] * (weight / total) for name, weight in shares.items()]
    exact = (
        torch.stack([scores[name] for name in shares]).eq(1).all(0)
    )  # rounding must not spoil a perfect score
    return torch.where(exact, torch.ones_like(first), sum(others, first))


def ssim(
    a: Tensor,
    b: Tensor,
    window: int = WINDOW,
    padding: Literal["zero", "valid"] = "zero",
    dims: Literal[1, 2, 3] | None = None,
) -> Tensor:
    """Mean structural similarity of maps that are each scaled to [0, 1], as in the FASS paper.

    (2μ₁μ₂ + c₁)(2σ₁₂ + c₂) / ((μ₁² + μ₂² + c₁)(σ₁² + σ₂² + c₂)) over uniform windows with c₁ = 0.01², c₂ = 0.03².
    Windows are square over the last two dimensions of (B, C, H, W) or (B, H, W) maps, linear over the last of (B, T),
    and with `dims=1` of (B, C, T); with `dims=3` cubes over the last three of volumes (B, C, D, H, W).
    `padding="zero"` pads by half a window (the paper); "valid" averages over whole windows only (scikit-image).

    >>> a = torch.rand(2, 3, 32, 32)
    >>> ssim(a, a).tolist()
    [1.0, 1.0]
    """
    p, q = _known_pair(a, b)
    x, y = p.windows(window, padding, dims), q.windows(window, padding, dims)
    return mean_ssim(x, y, window).masked_fill(~(p.defined & q.defined), torch.nan).to(a.dtype)


def spearman(a: Tensor, b: Tensor, ties: Ties = "average") -> Tensor:
    """Rank correlation ρ in [−1, 1] of flattened maps.

    Ties share their average rank; `ties="ordinal"` ranks them by position, as a double argsort does.

    >>> spearman(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 9.0, 4.0]])).tolist()
    [0.5]
    """
    p, q = _known_pair(a, b)
    x, y = (centred_ranks(*ranking(m.flat), m.counts, ties) for m in (p, q))
    score = _dot(x, y) / (_dot(x, x) * _dot(y, y)).sqrt()
    return score.masked_fill(~(p.defined & q.defined), torch.nan).to(a.dtype)


def jaccard(a: Tensor, b: Tensor, k: int | float = 100, ties: Ties = "average") -> Tensor:
    """Overlap |A ∩ B| / |A ∪ B| of the places with the k largest signed values; k below 1 is a fraction of them.

    Where values tie for the last places, the score is the expected one over a random order of the places that both
    maps share; `ties="ordinal"` prefers the first places.

    >>> a = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    >>> jaccard(a, a.flip(1), k=2).tolist(), jaccard(a, a, k=2).tolist()
    ([0.0], [1.0])
    """
    p, q = _known_pair(a, b)
    score = overlap(*(_top(m, *ranking(m.flat), k, ties) for m in (p, q)))
    return score.masked_fill(~(p.defined & q.defined), torch.nan).to(a.dtype)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    """Cosine of the angle between flattened maps; NaN for a zero or non-finite map.

    >>> cosine(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 1.0]])).tolist()
    [0.707...]
    """
    _check_pair(a, b)
    x, y = a.flatten(1).double(), b.flatten(1).double()
    return ((x * y).sum(1) / ((x * x).sum(1) * (y * y).sum(1)).sqrt()).to(a.dtype)


def undefined(maps: Tensor, valid: Tensor | None = None) -> Tensor:
    """Which maps (B, …) are constant or not finite on their valid places, (B,) bool.

    >>> undefined(torch.tensor([[1.0, 1.0], [1.0, 2.0], [1.0, torch.nan]])).tolist()
    [True, False, True]
    """
    low, high = bounds(maps, valid)
    return ~(torch.isfinite(low) & torch.isfinite(high) & (low < high))


def bounds(maps: Tensor, valid: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Least and greatest value (B,) of maps on their valid places; NaN where a map has one.

    >>> [value.tolist() for value in bounds(torch.tensor([[1.0, 3.0, 2.0]]))]
    [[1.0], [3.0]]
    """
    if valid is None:
        low, high = maps.flatten(1).aminmax(dim=1)
        return low, high
    outside = ~valid
    high = maps.masked_fill(outside, -torch.inf).flatten(1).amax(1)
    return maps.masked_fill(outside, torch.inf).flatten(1).amin(1), high


@dataclass(frozen=True)
class _Known:
    """Maps made safe to compute with, and what every measure asks of them."""

    maps: Tensor  # (B, …) finite, zero where invalid
    low: Tensor  # (B,)
    high: Tensor  # (B,)
    valid: Tensor | None  # broadcasts to the maps
    counts: Tensor  # (B,) valid places

    @property
    def defined(self) -> Tensor:
        return torch.isfinite(self.low) & torch.isfinite(self.high) & (self.low < self.high)

    def windows(self, window: int, padding: str = "zero", dims: int | None = None) -> SsimWindows:
        """Statistics of their windows."""
        return windows_of(self.maps, self.low, self.high, self.valid, window, padding, dims)

    @property
    def flat(self) -> Tensor:
        """(B, n) with invalid places below everything."""
        return (
            self.maps if self.valid is None else self.maps.masked_fill(~self.valid, -torch.inf)
        ).flatten(1)


def _known(maps: Tensor, valid: Tensor | None = None) -> _Known:
    maps = _in_reach(maps.detach())
    n = math.prod(maps.shape[1:])
    safe = torch.nan_to_num(maps, 0.0, 0.0, 0.0)
    if valid is None:
        return _Known(safe, *bounds(maps), None, torch.full((len(maps),), n, device=maps.device))
    counts = valid.flatten(1).sum(1) * (n // math.prod(valid.shape[1:]))
    return _Known(
        safe.masked_fill_(~valid, 0), *bounds(maps, valid), valid, counts.expand(len(maps))
    )


def _in_reach(maps: Tensor) -> Tensor:
    """Maps in float32; those of float64 whose values it cannot hold are scaled first, which changes no score."""
    if maps.dtype != torch.float64 or not len(maps):
        return maps.float()
    most = torch.nan_to_num(maps, 0.0, 0.0, 0.0).abs().flatten(1).amax(1)
    beyond = (most > 0) & ((most < 1e-30) | (most > 1e30))
    factor = torch.where(beyond, most, 1.0).view(-1, *[1] * (maps.ndim - 1))
    return (maps / factor).float()


def _known_pair(a: Tensor, b: Tensor) -> tuple[_Known, _Known]:
    _check_pair(a, b)
    return _known(a), _known(b)


def _check_pair(a: Tensor, b: Tensor) -> None:
    if a.shape != b.shape or a.ndim < 2:
        raise UserError(
            f"two maps of one shape (B, …) are needed, got {tuple(a.shape)} and {tuple(b.shape)}"
        )


def _top(known: _Known, keys: Tensor, order: Tensor, k: int | float, ties: Ties) -> Top:
    n = order.shape[1]
    if isinstance(k, float) and 0 < k < 1:
        least = (known.counts * k).round().long().clamp_min(1)
        return top(known.flat, keys, order, least, min(n, math.ceil(n * k) + 1), ties)
    if k != int(k) or not 1 <= k <= n:
        raise UserError(
            f"k must be a whole number from 1 to {n} (the values in a map) or a fraction below 1, got {k}"
        )
    return top(known.flat, keys, order, known.counts.clamp(1, int(k)), int(k), ties)


def _exact_columns(ranks: Tensor) -> int:
    """How many products of ranks, which are multiples of ½, have sums that are exact in float64."""
    n = max(ranks.shape[1], 1)
    return min(1 << 14 if ranks.device.type == "cpu" else 1 << 18, max(1 << 10, (1 << 53) // n**2))


def _dot(a: Tensor, b: Tensor) -> Tensor:
    """Σ aᵢbᵢ of ranks (B, n) row by row in float64; one of the two may have a single row."""
    size = _exact_columns(a)
    parts = zip(torch.split(a, size, 1), torch.split(b, size, 1), strict=True)
    return torch.stack([(x.double() * y.double()).sum(1) for x, y in parts]).cumsum(0)[-1]


def _dots(a: Tensor, b: Tensor) -> Tensor:
    """The same of every row of a with every row of b, (A, B)."""
    size = _exact_columns(a)
    parts = zip(torch.split(a, size, 1), torch.split(b, size, 1), strict=True)
    return torch.stack([x.double() @ y.double().T for x, y in parts]).cumsum(0)[-1]

"""How alike two attribution maps are: SSIM, Spearman, top-k Jaccard and cosine, each two (B, …) tensors to (B,).

A map that is constant or not finite has no similarity to anything: the score is NaN.

`profile` holds what the measures need of each map, so that one map can be compared with many at little cost; a mask
of valid places restricts a comparison to what both maps have.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from holdfast.errors import UserError
from holdfast.ties import expected_jaccard

Ties = Literal["average", "ordinal"]
COMPONENTS = ("ssim", "spearman", "jaccard")
_C1, _C2 = 0.01**2, 0.03**2
WINDOW = 11


@dataclass(frozen=True)
class Profile:
    """What the three measures need to know of B maps of n values each."""

    unit: Tensor  # (B, …) scaled to [0, 1], zero where invalid
    mean: Tensor  # (B, …) of each window
    variance: Tensor  # (B, …) of each window
    rank: Tensor  # (B, n) centred on the valid places, zero elsewhere
    sure: Tensor  # (B, n) in the top k whatever the ties
    tied: Tensor  # (B, n) tied for the last places
    slots: Tensor  # (B,) how many of `tied` belong to the top k
    k: Tensor  # (B,)
    valid: Tensor | None  # (B, …) bool, the same shape as the maps
    defined: Tensor  # (B,) neither constant nor non-finite

    def __getitem__(self, index: slice | Tensor) -> Profile:
        """The profiles at some positions."""
        valid = None if self.valid is None else self.valid[index]
        return Profile(
            self.unit[index], self.mean[index], self.variance[index], self.rank[index], self.sure[index],
            self.tied[index], self.slots[index], self.k[index], valid, self.defined[index],
        )  # fmt: skip


def profile(
    maps: Tensor, k: int | float = 100, ties: Ties = "average", valid: Tensor | None = None, window: int = WINDOW
) -> Profile:
    """The profile of maps (B, …); `valid` is a boolean mask that broadcasts to them.

    >>> p = profile(torch.rand(2, 3, 16, 16), k=10)
    >>> {name: value.tolist() for name, value in compare(p, p).items()}
    {'ssim': [1.0, 1.0], 'spearman': [1.0, 1.0], 'jaccard': [1.0, 1.0]}
    """
    maps = maps.detach().float()
    defined = ~undefined(maps, valid)
    safe = torch.where(torch.isfinite(maps), maps, torch.zeros_like(maps))
    mask = None if valid is None else valid.expand_as(maps)
    unit = _min_max(safe, mask)
    mean = _window_mean(unit, window)
    variance = _window_mean(unit * unit, window) - mean * mean
    flat = safe.flatten(1) if mask is None else safe.masked_fill(~mask, -torch.inf).flatten(1)
    counts = torch.full((len(maps),), flat.shape[1], device=maps.device) if mask is None else mask.flatten(1).sum(1)
    order = flat.sort(dim=1, descending=True, stable=True)
    sizes = _top_sizes(k, counts, flat.shape[1])
    sure, tied, slots = _top(flat, order.values, order.indices, sizes, ties)
    rank = _centred_ranks(order.values, order.indices, ties, None if mask is None else mask.flatten(1), counts)
    return Profile(unit, mean, variance, rank, sure, tied, slots, sizes, mask, defined)


def compare(a: Profile, b: Profile, window: int = WINDOW) -> dict[str, Tensor]:
    """SSIM, (Spearman + 1) / 2 and Jaccard of two sets of profiles with the same mask, each (B,) in float64.

    One of the two may have a single entry, which is then compared with every entry of the other.
    """
    scores = {
        "ssim": _ssim(a, b, window),
        "spearman": (_pearson(a.rank, b.rank) + 1) / 2,
        "jaccard": _jaccard(a, b),
    }
    either = a.defined & b.defined
    return {name: value.masked_fill(~either, torch.nan) for name, value in scores.items()}


def composite(scores: Mapping[str, Tensor], weights: tuple[float, float, float] = (1.0, 1.0, 1.0)) -> Tensor:
    """FASS: the weighted mean of the three components, unweighted unless told otherwise.

    >>> one = torch.ones(1)
    >>> composite({"ssim": one, "spearman": one * 0.5, "jaccard": one * 0.0}).tolist()
    [0.5]
    """
    total = sum(weights)
    parts = [scores[name] * (weight / total) for name, weight in zip(COMPONENTS, weights, strict=True)]
    exact = torch.stack([scores[name] for name in COMPONENTS]).eq(1).all(0)  # rounding must not spoil a perfect score
    return torch.where(exact, torch.ones_like(parts[0]), parts[0] + parts[1] + parts[2])


def ssim(a: Tensor, b: Tensor, window: int = WINDOW, padding: Literal["zero", "valid"] = "zero") -> Tensor:
    """Mean structural similarity of maps that are each scaled to [0, 1], as in the FASS paper.

    (2μ₁μ₂ + c₁)(2σ₁₂ + c₂) / ((μ₁² + μ₂² + c₁)(σ₁² + σ₂² + c₂)) over uniform windows with c₁ = 0.01², c₂ = 0.03².
    Windows are square over the last two dimensions of (B, C, H, W) or (B, H, W) maps, linear over the last of (B, T).
    `padding="zero"` pads by half a window (the paper); "valid" averages over whole windows only (scikit-image).

    >>> a = torch.rand(2, 3, 32, 32)
    >>> ssim(a, a).tolist()
    [1.0, 1.0]
    """
    _check_pair(a, b)
    p, q = profile(a, k=1, window=window), profile(b, k=1, window=window)
    return _ssim(p, q, window, padding).masked_fill(~(p.defined & q.defined), torch.nan).to(a.dtype)


def spearman(a: Tensor, b: Tensor, ties: Ties = "average") -> Tensor:
    """Rank correlation ρ in [−1, 1] of flattened maps.

    Ties share their average rank; `ties="ordinal"` ranks them by position, as a double argsort does.

    >>> spearman(torch.tensor([[1.0, 2.0, 3.0]]), torch.tensor([[1.0, 9.0, 4.0]])).tolist()
    [0.5]
    """
    _check_pair(a, b)
    p, q = profile(a, k=1, ties=ties), profile(b, k=1, ties=ties)
    return _pearson(p.rank, q.rank).masked_fill(~(p.defined & q.defined), torch.nan).to(a.dtype)


def jaccard(a: Tensor, b: Tensor, k: int | float = 100, ties: Ties = "average") -> Tensor:
    """Overlap |A ∩ B| / |A ∪ B| of the places with the k largest signed values; k below 1 is a fraction of them.

    Where values tie for the last places, the score is the expected one over a random order of the places that both
    maps share; `ties="ordinal"` prefers the first places.

    >>> a = torch.tensor([[3.0, 2.0, 1.0, 0.0]])
    >>> jaccard(a, a.flip(1), k=2).tolist(), jaccard(a, a, k=2).tolist()
    ([0.0], [1.0])
    """
    _check_pair(a, b)
    p, q = profile(a, k=k, ties=ties), profile(b, k=k, ties=ties)
    return _jaccard(p, q).masked_fill(~(p.defined & q.defined), torch.nan).to(a.dtype)


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
    flat = maps.flatten(1)
    if valid is None:
        return (flat.amax(1) == flat.amin(1)) | ~torch.isfinite(flat).all(1)
    mask = valid.expand_as(maps).flatten(1)
    high, low = flat.masked_fill(~mask, -torch.inf).amax(1), flat.masked_fill(~mask, torch.inf).amin(1)
    return (high <= low) | ~torch.isfinite(flat.masked_fill(~mask, 0)).all(1)


def _check_pair(a: Tensor, b: Tensor) -> None:
    if a.shape != b.shape or a.ndim < 2:
        raise UserError(f"two maps of one shape (B, …) are needed, got {tuple(a.shape)} and {tuple(b.shape)}")


def _min_max(maps: Tensor, mask: Tensor | None) -> Tensor:
    shape = (-1, *[1] * (maps.ndim - 1))
    if mask is None:
        low, high = maps.flatten(1).amin(1).view(shape), maps.flatten(1).amax(1).view(shape)
        return (maps - low) / (high - low).clamp_min(torch.finfo(maps.dtype).tiny)
    low = maps.masked_fill(~mask, torch.inf).flatten(1).amin(1).view(shape)
    high = maps.masked_fill(~mask, -torch.inf).flatten(1).amax(1).view(shape)
    return ((maps - low) / (high - low).clamp_min(torch.finfo(maps.dtype).tiny)).masked_fill(~mask, 0)


def _window_mean(maps: Tensor, window: int) -> Tensor:
    """Means over windows with zeros outside: along the last dimension of (B, T), along the last two otherwise."""
    if maps.ndim == 2:
        return _window_sum(maps, window, -1) / window
    return _window_sum(_window_sum(maps, window, -1), window, -2) / window**2


def _window_sum(maps: Tensor, window: int, dim: int) -> Tensor:
    """Sums of `window` neighbours by doubling: about 2·log₂(window) additions of whole tensors."""
    before, after = window // 2, window - 1 - window // 2
    padded = F.pad(maps, (before, after) if dim == -1 else (0, 0, before, after))
    size = maps.shape[dim]
    total, offset = None, 0
    power, width = padded, 1  # power[i] is the sum of `width` neighbours from i on
    while width <= window:
        if window & width:
            part = power.narrow(dim, offset, size)
            total, offset = part if total is None else total + part, offset + width
        if 2 * width <= window:
            length = power.shape[dim] - width
            power = power.narrow(dim, 0, length) + power.narrow(dim, width, length)
        width *= 2
    assert total is not None
    return total


def _ssim(a: Profile, b: Profile, window: int, padding: str = "zero") -> Tensor:
    covariance = _window_mean(a.unit * b.unit, window) - a.mean * b.mean
    score = ((2 * a.mean * b.mean + _C1) * (2 * covariance + _C2)) / (
        (a.mean * a.mean + b.mean * b.mean + _C1) * (a.variance + b.variance + _C2)
    )
    if padding == "valid":
        cut = slice(window // 2, -(window // 2) or None)
        score = score[..., cut] if score.ndim == 2 else score[..., cut, cut]
    if a.valid is None:
        return score.flatten(1).double().mean(1)
    inside = a.valid.flatten(1)
    return score.flatten(1).double().masked_fill(~inside, 0).sum(1) / inside.sum(1).clamp_min(1)


def _pearson(a: Tensor, b: Tensor) -> Tensor:
    x, y = a.double(), b.double()
    return (x * y).sum(1) / ((x * x).sum(1) * (y * y).sum(1)).sqrt()


def _centred_ranks(values: Tensor, indices: Tensor, ties: Ties, mask: Tensor | None, counts: Tensor) -> Tensor:
    """Ranks minus their mean, from a descending sort in which invalid places come last; ranks are exact in float32."""
    n = values.shape[1]
    place = torch.arange(n, device=values.device).expand_as(values)
    if ties == "average":
        new = torch.ones_like(values, dtype=torch.bool)
        new[:, 1:] = values[:, 1:] != values[:, :-1]
        first = place.masked_fill(~new, 0).cummax(1).values
        ends = torch.ones_like(new)
        ends[:, :-1] = new[:, 1:]
        final = place.masked_fill(~ends, n).flip(1).cummin(1).values.flip(1)
        position = (first + final).float() / 2
    else:
        position = place.float()
    middle = (counts[:, None].float() - 1) / 2
    rank = torch.empty_like(values).scatter_(1, indices, middle - position)
    return rank if mask is None else rank.masked_fill(~mask, 0)


def _top_sizes(k: int | float, counts: Tensor, n: int) -> Tensor:
    if isinstance(k, float) and 0 < k < 1:
        return (counts * k).round().long().clamp_min(1)
    if k != int(k) or not 1 <= k <= n:
        raise UserError(f"k must be a whole number from 1 to {n} (the values in a map) or a fraction below 1, got {k}")
    return counts.clamp(max=int(k)).clamp_min(1)


def _top(flat: Tensor, values: Tensor, indices: Tensor, sizes: Tensor, ties: Ties) -> tuple[Tensor, Tensor, Tensor]:
    if ties == "ordinal":
        chosen = torch.arange(flat.shape[1], device=flat.device) < sizes[:, None]
        sure = torch.zeros_like(flat, dtype=torch.bool).scatter_(1, indices, chosen)
        return sure, torch.zeros_like(sure), torch.zeros_like(sizes)
    edge = values.gather(1, sizes[:, None] - 1)
    sure, tied = flat > edge, flat == edge
    slots = sizes - sure.sum(1)
    settled = (slots == tied.sum(1))[:, None]  # every tied place belongs to the top k, so there is no lottery
    return sure | (tied & settled), tied & ~settled, slots.masked_fill(settled[:, 0], 0)


def _jaccard(a: Profile, b: Profile) -> Tensor:
    common = (a.sure & b.sure).sum(1)
    k = torch.minimum(a.k, b.k).expand_as(common)
    score = common.double() / (2 * k - common).double()
    lottery = ((a.slots > 0) | (b.slots > 0)).nonzero().flatten().tolist()
    if not lottery:
        return score
    counts = torch.stack(
        [
            k,
            common,
            a.slots.expand_as(k),
            b.slots.expand_as(k),
            (a.tied & b.tied).sum(1),
            (a.tied & b.sure).sum(1),
            (a.tied & ~b.tied & ~b.sure).sum(1),
            (b.tied & a.sure).sum(1),
            (b.tied & ~a.tied & ~a.sure).sum(1),
        ],
        1,
    ).tolist()
    for row in lottery:
        size, sure, slots_a, slots_b, both, a_in, a_out, b_in, b_out = counts[row]
        score[row] = expected_jaccard(size, sure, slots_a, slots_b, both, (a_in, a_out), (b_in, b_out))
    return score

"""Functions on {0, 1}^n, exactly: the theory behind the certificates of soft stability.

A function h is a float64 tensor of its 2^n values, (..., 2^n), with n ≤ 16. Place a holds h(a), and bit i of a says
whether feature i is present; sets of features are written as such integers throughout. The coefficients of an
expansion lie in the same order: place S belongs to the set S.

**Expansions.** Both expansions and masking are the n-fold Kronecker power of a 2×2 matrix, so one butterfly of n·2^n
steps serves them all, forwards and backwards. With s = √(p − p²):

| basis | h(a) = | masking M_λ |
|---|---|---|
| values | | [[1, 0], [1−λ, λ]] |
| fourier | Σ_S ĥ(S) ∏_{i∈S} (p − a_i)/s | [[1, (1−λ)p/s], [0, λ]] |
| monotone | Σ_{T⊆a} h̃(T) | [[1, 0], [0, λ]] |

The Fourier basis is the p-biased one, orthonormal when features are present with probability p; p = ½ is the standard
basis.

**Rates and bounds.** α is an explanation and m = n − |α| the number of features outside it; Δ_r holds the sets β ⊇ α
with at most r more features, and β is drawn uniformly from it. The bounds are the corrected forms of the paper's Lemma
B.3 and Theorems B.4 and B.5 (printed, they consider only sets T disjoint from α and fail).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from heatproof.errors import UserError, unknown

__all__ = [
    "Basis",
    "containment",
    "degrees",
    "difference",
    "fourier",
    "from_fourier",
    "from_function",
    "from_monotone",
    "hard_radius",
    "instability_bound",
    "instability_weight",
    "masking",
    "masks",
    "monotone",
    "prediction_bound",
    "prediction_rate",
    "restrict",
    "stability_rate",
]

MOST_FEATURES = 16
Basis = Literal["values", "fourier", "monotone"]
Matrix = tuple[tuple[float, float], tuple[float, float]]
Subset = int | Tensor
"""A set of features: an integer whose bit i stands for feature i, or a boolean mask (n,)."""


def masks(n: int) -> Tensor:
    """Every subset of n features as a row, (2^n, n) boolean; row a holds the bits of a.

    >>> masks(2).int().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    _check_features(n)
    return (torch.arange(2**n)[:, None] >> torch.arange(n)) & 1 == 1


def degrees(n: int) -> Tensor:
    """The number of features in every subset of n features, (2^n,) int64.

    >>> degrees(3).tolist()
    [0, 1, 1, 2, 1, 2, 2, 3]
    """
    return masks(n).sum(1)


def from_function(f: Callable[[Tensor], Tensor], n: int, rows: int = 1024) -> Tensor:
    """The values of `f` on all 2^n masks, asked for at most `rows` at a time.

    `f` takes masks (B, n), boolean, and returns (B,) or (B, ...); the result is (2^n,) or (..., 2^n), so a classifier's
    (B, classes) becomes one function per class.

    >>> from_function(lambda mask: mask.all(1), 2).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    if rows < 1:
        raise UserError(f"rows must be at least 1, got {rows}")
    parts = []
    every = masks(n)
    for start in range(0, len(every), rows):
        chunk = every[start : start + rows]
        values = f(chunk)
        if not isinstance(values, Tensor) or values.shape[:1] != chunk.shape[:1]:
            got = (
                f"shape {tuple(values.shape)}"
                if isinstance(values, Tensor)
                else type(values).__name__
            )
            raise UserError(
                f"the function must return a tensor ({len(chunk)}, ...) for {len(chunk)} masks, got {got}"
            )
        parts.append(values.detach().to(torch.float64))
    return _as_values(torch.cat(parts).movedim(0, -1))


def fourier(values: Tensor, p: float = 0.5) -> Tensor:
    """Fourier coefficients ĥ(S) = E[h(a) ∏_{i∈S} (p − a_i)/√(p − p²)], where features are present with probability p.

    With p = ½ this is the Walsh–Hadamard transform: ĥ(S) = 2^−n Σ_a h(a) (−1)^|S ∩ a|. (..., 2^n) to (..., 2^n).

    >>> fourier(torch.tensor([0, 0, 0, 1])).tolist()
    [0.25, -0.25, -0.25, 0.25]
    """
    s = _deviation(p)
    return _each_bit(values, ((1 - p, p), (s, -s)))


def from_fourier(coefficients: Tensor, p: float = 0.5) -> Tensor:
    """The values of the function with these Fourier coefficients; undoes `fourier` with the same p.

    >>> from_fourier(torch.tensor([0.25, -0.25, -0.25, 0.25])).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    s = _deviation(p)
    return _each_bit(coefficients, ((1.0, p / s), (1.0, (p - 1) / s)))


def monotone(values: Tensor) -> Tensor:
    """Monotone coefficients h̃(T) = Σ_{S⊆T} (−1)^|T∖S| h(S) (Möbius; Harsanyi dividends), (..., 2^n).

    >>> monotone(torch.tensor([0, 1, 1, 1])).tolist()
    [0.0, 1.0, 1.0, -1.0]
    """
    return _each_bit(values, ((1.0, 0.0), (-1.0, 1.0)))


def from_monotone(coefficients: Tensor) -> Tensor:
    """The values h(a) = Σ_{T⊆a} h̃(T); undoes `monotone`.

    >>> from_monotone(torch.tensor([0, 1, 1, -1])).tolist()
    [0.0, 1.0, 1.0, 1.0]
    """
    return _each_bit(coefficients, ((1.0, 0.0), (1.0, 1.0)))


def masking(h: Tensor, keep: float, basis: Basis = "values", p: float = 0.5) -> Tensor:
    """Random masking, M_λ h(a) = E h(a ⊙ z), where each feature of a is kept with probability λ = `keep`.

    `h` (..., 2^n) holds values or the coefficients of `basis`, and so does the result. In the standard Fourier basis
    M_λh^(T) = λ^|T| Σ_{S⊇T} (1−λ)^|S∖T| ĥ(S): mass moves down. In the monotone basis M_λh~(T) = λ^|T| h̃(T).

    >>> masking(torch.tensor([0, 0, 0, 1]), 0.5).tolist()
    [0.0, 0.0, 0.0, 0.25]
    >>> masking(torch.tensor([0, 0, 0, 1]), 0.5, basis="monotone").tolist()
    [0.0, 0.0, 0.0, 0.25]
    """
    _check_share("keep", keep)
    if basis not in ("values", "fourier", "monotone"):
        raise unknown("basis", basis, ("values", "fourier", "monotone"))
    if basis != "fourier" and p != 0.5:
        raise UserError(
            f"p = {p:g} is the bias of the Fourier basis; the basis asked for is {basis!r}"
        )
    s = _deviation(p)
    matrices: dict[Basis, Matrix] = {
        "values": ((1.0, 0.0), (1 - keep, keep)),
        "fourier": ((1.0, (1 - keep) * (p / s)), (0.0, keep)),
        "monotone": ((1.0, 0.0), (0.0, keep)),
    }
    return _each_bit(h, matrices[basis])


def restrict(values: Tensor, alpha: Subset) -> Tensor:
    """h on the supersets of α, as a function of the m features outside it, (..., 2^m): S ↦ h(α ∪ S).

    The features outside keep their order. Place 0 is h(α), and τ_r and the hard radius at α are those of the restricted
    function at ∅. So are the bounds, where they are never looser: terms that cancel on α are added up first.

    >>> restrict(torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]), 0b010).tolist()
    [2.0, 3.0, 6.0, 7.0]
    """
    values = _as_values(values)
    n = _features_of(values)
    start = _subset("alpha", alpha, n)
    outside = torch.tensor([1 << i for i in range(n) if not start >> i & 1], dtype=torch.int64)
    places = start + (masks(len(outside)) * outside).sum(1)
    return values[..., places.to(values.device)]


def stability_rate(values: Tensor, alpha: Subset, r: int, gamma: float) -> Tensor:
    """τ_r = Pr[|h(β) − h(α)| ≤ γ] by enumeration of Δ_r, without tolerance; (..., 2^n) to (...).

    >>> stability_rate(torch.tensor([0, 0, 0, 1]), alpha=0b01, r=1, gamma=0.25).item()
    0.5
    """
    _check_gamma(gamma)
    moved = restrict(values, alpha)
    held = (moved - moved[..., :1]).abs() <= gamma
    return held[..., _within(moved, r)].double().mean(-1)


def prediction_rate(scores: Tensor, alpha: Subset, r: int) -> Tensor:
    """τ_r = Pr[the class predicted for β is the one for α] by enumeration; scores (..., classes, 2^n) to (...).

    The largest score decides, and the first of equal ones. This is the agreement that matters with three classes or
    more, where a top score that moves by less than half its lead (the paper's γ) may still be overtaken.

    >>> scores = torch.tensor([[0.5, 0.4], [0.3, 0.5], [0.2, 0.1]])
    >>> prediction_rate(scores, 0, 1).item(), stability_rate(scores[0], 0, 1, gamma=0.1).item()
    (0.5, 1.0)
    """
    _check_classes(scores)
    predicted = restrict(scores, alpha).argmax(-2)
    held = predicted == predicted[..., :1]
    return held[..., _within(held, r)].double().mean(-1)


def difference(coefficients: Tensor, alpha: Subset, beta: Subset) -> Tensor:
    """h(β) − h(α) = Σ h̃(T) over T ⊆ β with T ⊄ α, from monotone coefficients (..., 2^n), for α ⊆ β; (...).

    >>> difference(torch.tensor([0.0, 0.0, 0.0, 1.0]), alpha=0b01, beta=0b11).item()
    1.0
    """
    coefficients = _as_values(coefficients)
    n = _features_of(coefficients)
    start, end = _subset("alpha", alpha, n), _subset("beta", beta, n)
    if start & ~end:
        raise UserError(f"beta must contain alpha, got alpha = {start:#b} and beta = {end:#b}")
    sets = torch.arange(2**n, device=coefficients.device)
    counted = ((sets & ~end) == 0) & ((sets & ~start) != 0)
    return (coefficients * counted).sum(-1)


def containment(m: int, k: int, r: int) -> float:
    """Pr[T ⊆ β] = Σ_{j=k}^{r} C(m−k, j−k) / |Δ_r| for a set T with k = |T∖α| features outside α, of m.

    >>> containment(m=2, k=1, r=1), containment(m=2, k=1, r=2)
    (0.3333333333333333, 0.5)
    """
    if not 0 <= k <= m:
        raise UserError(f"k must lie in [0, m] with m = {m}, got {k}")
    _check_radius(r)
    last = min(r, m)
    return sum(math.comb(m - k, j - k) for j in range(k, last + 1)) / sum(
        math.comb(m, j) for j in range(last + 1)
    )


def instability_weight(values: Tensor, alpha: Subset, r: int) -> Tensor:
    """Q′ = Σ |h̃(T)| · Pr[T ⊆ β] over the sets T with 1 ≤ |T∖α| ≤ r; (..., 2^n) to (...).

    It is at least E|h(β) − h(α)|, and λQ′ is at least E|M_λh(β) − M_λh(α)|.

    >>> instability_weight(torch.tensor([0, 0, 0, 1]), alpha=0b01, r=1).item()
    0.5
    """
    values = _as_values(values)
    n = _features_of(values)
    start = _subset("alpha", alpha, n)
    _check_radius(r)
    m = n - start.bit_count()
    chance = [0.0] + [containment(m, k, r) for k in range(1, m + 1)]
    added = masks(n)[:, [i for i in range(n) if not start >> i & 1]].sum(1)
    return monotone(values).abs() @ values.new_tensor(chance)[added.to(values.device)]


def instability_bound(
    values: Tensor, alpha: Subset, r: int, gamma: float, keep: float = 1.0
) -> Tensor:
    """Upper bound Q′/γ on 1 − τ_r(M_λh) for λ = `keep`, with the unsmoothed h in `values`; (..., 2^n) to (...).

    Q′ is that of M_λh on the supersets of α, `restrict(masking(values, λ), alpha)` at ∅: every set T counts λ^|T|, and
    what cancels on α is added up first. It is never above the corrected λQ′(h)/γ of the paper, which is
    `keep * instability_weight(values, alpha, r) / gamma`. It may exceed 1, and then says nothing.

    >>> instability_bound(torch.tensor([0, 0, 0, 1]), alpha=0b01, r=1, gamma=0.75, keep=0.5).item()
    0.16666666666666666
    """
    _check_gamma(gamma)
    _check_share("keep", keep)
    return instability_weight(restrict(masking(values, keep), alpha), 0, r) / gamma


def prediction_bound(scores: Tensor, alpha: Subset, r: int) -> Tensor:
    """Upper bound on 1 − `prediction_rate`, for any number of classes; scores (..., classes, 2^n) to (...).

    With t the class predicted at α and g_c = h_t − h_c, a prediction that changes has |g_c(β) − g_c(α)| ≥ g_c(α) for
    some class c ≠ t, so the bound is Σ_c Q′(g_c)/g_c(α). A tie at α that features may break gives ∞.

    >>> scores = torch.tensor([[0.75, 0.5], [0.25, 0.5]])
    >>> prediction_bound(scores, 0, 1).item(), 1 - prediction_rate(scores, 0, 1).item()
    (0.5, 0.0)
    """
    _check_classes(scores)
    moved = restrict(scores, alpha)
    top = moved[..., 0].argmax(-1)[..., None, None].expand(*moved.shape[:-2], 1, moved.shape[-1])
    gaps = moved.gather(-2, top) - moved
    weight = instability_weight(gaps, 0, r)
    return torch.where(weight == 0, 0.0, weight / gaps[..., 0]).sum(-1)


def hard_radius(values: Tensor, alpha: Subset, gamma: float) -> Tensor:
    """The largest r ≤ m such that |h(β) − h(α)| ≤ γ for every β in Δ_r; (..., 2^n) to (...) int64.

    h(β) − h(α) = Σ h̃(T) over T ⊆ β with T ⊄ α, so this is the corrected r* of Theorem B.5, found by enumeration.

    >>> hard_radius(torch.tensor([0, 0, 0, 1]), alpha=0b00, gamma=0.25).item()
    1
    """
    _check_gamma(gamma)
    moved = restrict(values, alpha)
    m = _features_of(moved)
    failed = (moved - moved[..., :1]).abs() > gamma
    size = degrees(m).to(moved.device)
    return torch.where(failed, size - 1, m).amin(-1)


def _as_values(values: Tensor) -> Tensor:
    """The tensor in float64, after checking that it holds 2^n finite numbers along its last axis, n ≤ 16.

    >>> _as_values(torch.zeros(6))
    Traceback (most recent call last):
    heatproof.errors.UserError: the last axis must hold 2^n numbers, got 6; the nearest power of two is 8
    """
    size = values.shape[-1] if values.ndim else 0
    if size < 1 or size & (size - 1):
        hint = f"; the nearest power of two is {2 ** round(math.log2(size))}" if size else ""
        raise UserError(f"the last axis must hold 2^n numbers, got {size}{hint}")
    _check_features(size.bit_length() - 1)
    values = values.to(torch.float64)
    if not bool(values.isfinite().all()):
        raise UserError("the function has values that are not finite")
    return values


def _features_of(values: Tensor) -> int:
    """The number n of features of a function with 2^n values.

    >>> _features_of(torch.zeros(3, 8))
    3
    """
    return values.shape[-1].bit_length() - 1


def _each_bit(values: Tensor, matrix: Matrix) -> Tensor:
    """The Kronecker power of a 2×2 matrix applied to the last axis, one feature after the other."""
    values = _as_values(values)
    (a, b), (c, d) = matrix
    n = _features_of(values)
    for i in range(n):
        absent, present = values.reshape(*values.shape[:-1], 2 ** (n - 1 - i), 2, 2**i).unbind(-2)
        values = torch.stack([a * absent + b * present, c * absent + d * present], -2).flatten(-3)
    return values


def _check_features(n: int) -> None:
    """Raise `UserError` unless functions of n features are small enough to be held exactly.

    >>> _check_features(17)
    Traceback (most recent call last):
    heatproof.errors.UserError: functions of 0 to 16 features are expanded exactly, got n = 17; use 16
    """
    if not 0 <= n <= MOST_FEATURES:
        closest = max(0, min(n, MOST_FEATURES))
        raise UserError(
            f"functions of 0 to {MOST_FEATURES} features are expanded exactly, got n = {n}; use {closest}"
        )


def _check_share(name: str, value: float) -> None:
    """Raise `UserError` unless the value lies in [0, 1].

    >>> _check_share("keep", 1.5)
    Traceback (most recent call last):
    heatproof.errors.UserError: keep must lie in [0, 1], got 1.5; the nearest is 1
    """
    if not 0 <= value <= 1:
        raise UserError(
            f"{name} must lie in [0, 1], got {value:g}; the nearest is {1 if value > 1 else 0}"
        )


def _deviation(p: float) -> float:
    if not 0 < p < 1:
        raise UserError(f"p must lie strictly between 0 and 1, got {p:g}")
    return math.sqrt(p * (1 - p))


def _within(moved: Tensor, r: int) -> Tensor:
    """Which places of a restricted function add at most r features."""
    _check_radius(r)
    return (degrees(_features_of(moved)) <= r).to(moved.device)


def _subset(name: str, subset: Subset, n: int) -> int:
    if isinstance(subset, Tensor):
        if subset.dtype != torch.bool or subset.shape != (n,):
            got = f"{subset.dtype} of shape {tuple(subset.shape)}"
            raise UserError(f"{name} as a tensor must be a boolean mask of shape ({n},), got {got}")
        return sum(1 << i for i, present in enumerate(subset.tolist()) if present)
    if not 0 <= subset < 2**n:
        raise UserError(f"{name} must lie in [0, {2**n - 1}] for {n} features, got {subset}")
    return subset


def _check_radius(r: int) -> None:
    if r < 0:
        raise UserError(f"the radius r must be at least 0, got {r}")


def _check_gamma(gamma: float) -> None:
    if not 0 < gamma < math.inf:
        raise UserError(f"gamma must be a positive number, got {gamma:g}")


def _check_classes(scores: Tensor) -> None:
    if scores.ndim < 2 or scores.shape[-2] < 2:
        raise UserError(
            f"scores must be (..., classes, 2^n) with two classes or more, got shape {tuple(scores.shape)}"
        )

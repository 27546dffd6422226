"""Exact rates and proven bounds: what added features and smoothing do to a function on {0, 1}^n.

n features, an explanation α, m = n − |α| features outside it; Δ_r holds the sets β ⊇ α with at most r more features,
and β is drawn uniformly from it. The bounds are the corrected forms of the paper's Lemma B.3 and Theorems B.4 and B.5
(printed, they consider only sets T disjoint from α and fail).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from heatproof.axes.certificate.boolean.expansions import (
    as_values,
    check_share,
    degrees,
    features_of,
    masking,
    masks,
    monotone,
)
from heatproof.errors import UserError

Subset = int | Tensor
"""A set of features: an integer whose bit i stands for feature i, or a boolean mask (n,)."""


def restrict(values: Tensor, alpha: Subset) -> Tensor:
    """h on the supersets of α, as a function of the m features outside it, (..., 2^m): S ↦ h(α ∪ S).

    The features outside keep their order. Place 0 is h(α), and τ_r and the hard radius at α are those of the restricted
    function at ∅. So are the bounds, where they are never looser: terms that cancel on α are added up first.

    >>> restrict(torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]), 0b010).tolist()
    [2.0, 3.0, 6.0, 7.0]
    """
    values = as_values(values)
    n = features_of(values)
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
    coefficients = as_values(coefficients)
    n = features_of(coefficients)
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
    values = as_values(values)
    n = features_of(values)
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
    check_share("keep", keep)
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
    m = features_of(moved)
    failed = (moved - moved[..., :1]).abs() > gamma
    size = degrees(m).to(moved.device)
    return torch.where(failed, size - 1, m).amin(-1)


def _within(moved: Tensor, r: int) -> Tensor:
    """Which places of a restricted function add at most r features."""
    _check_radius(r)
    return (degrees(features_of(moved)) <= r).to(moved.device)


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

"""Functions on {0, 1}^n: the theory behind the certificates of soft stability.

A function h is a float64 tensor of its 2^n values, (..., 2^n), with n ≤ 16. Entry a holds h(a), and bit i of a says
whether feature i is present; sets of features are written as such integers throughout. The coefficients of an
expansion are in the same order: entry S belongs to the set S.

**Expansions.** Both expansions, random masking and random flipping are the n-fold Kronecker power of a 2×2 matrix, so
one butterfly of n·2^n steps serves them all, forwards and backwards. With s = √(p − p²) and q = (1−ρ)/2:

| basis | h(a) = | masking M_λ | flipping T_ρ |
|---|---|---|---|
| values | | [[1, 0], [1−λ, λ]] | [[1−q, q], [q, 1−q]] |
| fourier | Σ_S ĥ(S) ∏_{i∈S} (p − a_i)/s | [[1, (1−λ)p/s], [0, λ]] | [[1, (1−ρ)(p−½)/s], [0, ρ]] |
| monotone | Σ_{T⊆a} h̃(T) | [[1, 0], [0, λ]] | [[1, q], [0, ρ]] |

The Fourier basis is the p-biased one, orthonormal when features are present with probability p; p = ½ is the standard
basis. There flipping multiplies every coefficient, ĥ(S) by ρ^|S|, and masking moves mass to smaller sets. In the
monotone basis it is the other way round.

**Many features.** `sampled_weights` estimates how much of a function lies on each degree, for any n, from random masks.

**Rates and bounds.** α is an explanation and m = n − |α| the number of features outside it; Δ_r holds the sets β ⊇ α
with at most r more features, and β is drawn uniformly from it. The bounds are the corrected forms of Lemma B.3 and
Theorems B.4 and B.5 of the paper on soft stability (Jin, Xue, You, Goel and Wong 2025, Probabilistic stability guarantees
for feature attributions). As printed, they consider only sets T disjoint from α and fail. A counterexample to B.4: n = 3,
h̃({1, 3}) = ½, h̃({1, 2, 3}) = −½, α = {1, 2}, r = 1, λ = 2/3, γ = 0.05, where the printed Q is 0, though τ(M_λh) = ½.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import torch
from scipy import special
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError, unknown

__all__ = [
    "Basis",
    "SampledWeights",
    "by_degree",
    "containment",
    "degrees",
    "difference",
    "flipping",
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
    "sampled_weights",
    "stability_rate",
]

MOST_FEATURES = 16
"""2^16 values are quick to enumerate; each feature doubles them."""
Basis = Literal["values", "fourier", "monotone"]
Matrix = tuple[tuple[float, float], tuple[float, float]]
Subset = int | Tensor
"""A set of features: an integer whose bit i stands for feature i, or a boolean mask (n,)."""


def masks(n: int) -> Tensor:
    """Return every subset of n features as a row, (2^n, n) boolean; row a holds the bits of a.

    >>> masks(2).int().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    _check_features(n)
    return (torch.arange(2**n)[:, None] >> torch.arange(n)) & 1 == 1


def degrees(n: int) -> Tensor:
    """Return the number of features in every subset of n features, (2^n,) int64.

    >>> degrees(3).tolist()
    [0, 1, 1, 2, 1, 2, 2, 3]
    """
    return masks(n).sum(1)


def from_function(f: Callable[[Tensor], Tensor], n: int, rows: int = 1024) -> Tensor:
    """Return the values of `f` on all 2^n masks, which is called with at most `rows` of them.

    `f` takes masks (B, n), boolean, and returns (B,) or (B, ...); the result is (2^n,) or (..., 2^n), so a classifier's
    (B, classes) becomes one function per class.

    >>> from_function(lambda mask: mask.all(1), 2).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    return _as_values(_values_of(f, masks(n), rows).movedim(0, -1))


def fourier(values: Tensor, p: float = 0.5) -> Tensor:
    """Return the Fourier coefficients ĥ(S) = E[h(a) ∏_{i∈S} (p − a_i)/√(p − p²)], where features are present with probability p.

    With p = ½ this is the Walsh–Hadamard transform: ĥ(S) = 2^−n Σ_a h(a) (−1)^|S ∩ a|. (..., 2^n) to (..., 2^n).

    >>> fourier(torch.tensor([0, 0, 0, 1])).tolist()
    [0.25, -0.25, -0.25, 0.25]
    """
    s = _deviation(p)
    return _each_bit(values, ((1 - p, p), (s, -s)))


def from_fourier(coefficients: Tensor, p: float = 0.5) -> Tensor:
    """Return the values of the function with these Fourier coefficients; undoes `fourier` with the same p.

    >>> from_fourier(torch.tensor([0.25, -0.25, -0.25, 0.25])).tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    s = _deviation(p)
    return _each_bit(coefficients, ((1.0, p / s), (1.0, (p - 1) / s)))


def monotone(values: Tensor) -> Tensor:
    """Return the monotone coefficients h̃(T) = Σ_{S⊆T} (−1)^|T∖S| h(S) (Möbius; Harsanyi dividends), (..., 2^n).

    >>> monotone(torch.tensor([0, 1, 1, 1])).tolist()
    [0.0, 1.0, 1.0, -1.0]
    """
    return _each_bit(values, ((1.0, 0.0), (-1.0, 1.0)))


def from_monotone(coefficients: Tensor) -> Tensor:
    """Return the values h(a) = Σ_{T⊆a} h̃(T); undoes `monotone`.

    >>> from_monotone(torch.tensor([0, 1, 1, -1])).tolist()
    [0.0, 1.0, 1.0, 1.0]
    """
    return _each_bit(coefficients, ((1.0, 0.0), (1.0, 1.0)))


def masking(h: Tensor, keep: float, basis: Basis = "values", p: float = 0.5) -> Tensor:
    """Return h under random masking, M_λ h(a) = E h(a ⊙ z), where a feature of a is kept with probability λ = `keep`.

    `h` (..., 2^n) holds values or the coefficients of `basis`, and so does the result. In the standard Fourier basis
    M_λh^(T) = λ^|T| Σ_{S⊇T} (1−λ)^|S∖T| ĥ(S): mass moves down. In the monotone basis M_λh~(T) = λ^|T| h̃(T).

    >>> masking(torch.tensor([0, 0, 0, 1]), 0.5).tolist()
    [0.0, 0.0, 0.0, 0.25]
    >>> masking(torch.tensor([0, 0, 0, 1]), 0.5, basis="monotone").tolist()
    [0.0, 0.0, 0.0, 0.25]
    """
    _check_share("keep", keep)
    _check_basis(basis, p)
    s = _deviation(p)
    matrices: dict[Basis, Matrix] = {
        "values": ((1.0, 0.0), (1 - keep, keep)),
        "fourier": ((1.0, (1 - keep) * (p / s)), (0.0, keep)),
        "monotone": ((1.0, 0.0), (0.0, keep)),
    }
    return _each_bit(h, matrices[basis])


def flipping(h: Tensor, rho: float, basis: Basis = "values", p: float = 0.5) -> Tensor:
    """Return h under random flipping, the noise operator T_ρ h(a) = E h(a ⊕ z), with every z_i = 1 with probability (1 − ρ)/2.

    `h` (..., 2^n) holds values or the coefficients of `basis`, and so does the result. In the standard Fourier basis
    T_ρh^(S) = ρ^|S| ĥ(S): every coefficient shrinks, and none moves. ρ = 1 changes nothing, ρ = 0 leaves the mean.

    >>> flipping(torch.tensor([0, 0, 0, 1]), 0.5).tolist()
    [0.0625, 0.1875, 0.1875, 0.5625]
    >>> flipping(torch.tensor([0.25, -0.25, -0.25, 0.25]), 0.5, basis="fourier").tolist()
    [0.25, -0.125, -0.125, 0.0625]
    """
    _check_share("rho", rho)
    _check_basis(basis, p)
    s = _deviation(p)
    q = (1 - rho) / 2
    matrices: dict[Basis, Matrix] = {
        "values": ((1 - q, q), (q, 1 - q)),
        "fourier": ((1.0, (1 - rho) * (p - 0.5) / s), (0.0, rho)),
        "monotone": ((1.0, q), (0.0, rho)),
    }
    return _each_bit(h, matrices[basis])


def by_degree(coefficients: Tensor, power: float = 1.0) -> Tensor:
    """Return the mass of an expansion on each degree, Σ_{|S|=k} |ĥ(S)|^power for k = 0 … n; (..., 2^n) to (..., n + 1).

    With `power` 1 it is the spectrum of the paper's Figure 13; with 2, in a Fourier basis, the weight W_k of degree k,
    which is the part of the variance that interactions of k features make up.

    >>> by_degree(torch.tensor([0.25, -0.25, -0.25, 0.25]), power=2).tolist()
    [0.0625, 0.125, 0.0625]
    """
    coefficients = _as_values(coefficients)
    n = _features_of(coefficients)
    mass = coefficients.abs() ** power
    totals = mass.new_zeros(*mass.shape[:-1], n + 1)
    return totals.index_add_(-1, degrees(n).to(mass.device), mass)


def restrict(values: Tensor, alpha: Subset) -> Tensor:
    """Return h on the sets that contain α, as a function of the m features outside α, (..., 2^m): S ↦ h(α ∪ S).

    Entry 0 is h(α), and the features outside α keep their order. Whatever is asked about h at α, such as its stability
    rate or hard radius, can be asked about the restricted function at the empty set. Bounds become tighter by it, because
    terms of h that cancel on α are added up before absolute values are taken.

    >>> restrict(torch.tensor([0, 1, 2, 3, 4, 5, 6, 7]), 0b010).tolist()
    [2.0, 3.0, 6.0, 7.0]
    """
    values = _as_values(values)
    n = _features_of(values)
    alpha_bits = _as_integer("alpha", alpha, n)
    bits_outside = [1 << i for i in _features_outside(alpha_bits, n)]
    outside = torch.tensor(bits_outside, dtype=torch.int64)
    # Every set of features outside α as an integer: the sum of the bits of its features.
    added = (masks(len(outside)) * outside).sum(1)
    supersets = alpha_bits + added
    return values[..., supersets.to(values.device)]


def stability_rate(values: Tensor, alpha: Subset, r: int, gamma: float) -> Tensor:
    """Return the stability rate: how often h moves by at most γ when up to r random features are added to α.

    τ_r = Pr[|h(β) − h(α)| ≤ γ], where β is drawn uniformly from all sets that contain α and at most r features more. The
    rate is exact: every such β is enumerated. `values` (..., 2^n) holds h of every set of features; the result is (...).

    >>> stability_rate(torch.tensor([0, 0, 0, 1]), alpha=0b01, r=1, gamma=0.25).item()
    0.5
    """
    _check_gamma(gamma)
    # h(α ∪ S) for every set S of features outside α; entry 0 is h(α) itself.
    restricted = restrict(values, alpha)
    value_at_alpha = restricted[..., :1]
    is_stable = (restricted - value_at_alpha).abs() <= gamma
    adds_at_most_r = _within(restricted, r)
    return is_stable[..., adds_at_most_r].double().mean(-1)


def prediction_rate(scores: Tensor, alpha: Subset, r: int) -> Tensor:
    """Return how often the predicted class stays the same when up to r random features are added to the set α.

    τ_r = Pr[argmax of the scores at β = argmax at α], where β is drawn uniformly from all sets that contain α and at most
    r features more. The rate is exact: every such β is enumerated. `scores` (..., classes, 2^n) holds the scores of every
    set of features; the result is (...). Of equal scores the first one counts as the largest.

    With three classes or more use this rate instead of `stability_rate` on the top score: the top class may be overtaken
    although its own score moves by less than half its lead (the γ of the paper).

    >>> scores = torch.tensor([[0.5, 0.4], [0.3, 0.5], [0.2, 0.1]])
    >>> prediction_rate(scores, 0, 1).item(), stability_rate(scores[0], 0, 1, gamma=0.1).item()
    (0.5, 1.0)
    """
    _check_classes(scores)
    # The class predicted for α ∪ S, for every set S of features outside α; entry 0 is the one for α itself.
    predicted = restrict(scores, alpha).argmax(-2)
    predicted_at_alpha = predicted[..., :1]
    is_same_class = predicted == predicted_at_alpha
    adds_at_most_r = _within(is_same_class, r)
    return is_same_class[..., adds_at_most_r].double().mean(-1)


def difference(coefficients: Tensor, alpha: Subset, beta: Subset) -> Tensor:
    """Return h(β) − h(α) = Σ h̃(T) over T ⊆ β with T ⊄ α, from monotone coefficients (..., 2^n), for α ⊆ β; (...).

    >>> difference(torch.tensor([0.0, 0.0, 0.0, 1.0]), alpha=0b01, beta=0b11).item()
    1.0
    """
    coefficients = _as_values(coefficients)
    n = _features_of(coefficients)
    # Equation 58 of the paper is right for α = ∅ only: for AND, α = {1}, β = {1, 2} it gives 0 where the truth is 1.
    alpha_bits, beta_bits = _as_integer("alpha", alpha, n), _as_integer("beta", beta, n)
    if alpha_bits & ~beta_bits:
        raise UserError(
            f"beta must contain alpha, got alpha = {alpha_bits:#b} and beta = {beta_bits:#b}"
        )
    sets = torch.arange(2**n, device=coefficients.device)
    is_in_beta = (sets & ~beta_bits) == 0
    is_in_alpha = (sets & ~alpha_bits) == 0
    return (coefficients * (is_in_beta & ~is_in_alpha)).sum(-1)


def containment(m: int, k: int, r: int) -> float:
    """Return the probability that a random superset β of α contains a given set T of features, Pr[T ⊆ β].

    k = |T∖α| features of T lie outside α, of the m that do, and β adds at most r features to α, uniformly over all such
    sets Δ_r: the probability is Σ_{j=k}^{r} C(m−k, j−k) / |Δ_r|, with j the number of features that β adds.

    >>> containment(m=2, k=1, r=1), containment(m=2, k=1, r=2)
    (0.3333333333333333, 0.5)
    """
    if not 0 <= k <= m:
        raise UserError(f"k must lie in [0, m] with m = {m}, got {k}")
    _check_radius(r)
    most_added = min(r, m)
    containing = sum(math.comb(m - k, j - k) for j in range(k, most_added + 1))
    supersets = sum(math.comb(m, j) for j in range(most_added + 1))
    return containing / supersets


def instability_weight(values: Tensor, alpha: Subset, r: int) -> Tensor:
    """Return Q′(h, α) = Σ |h̃(T)| · Pr[T ⊆ β] over the sets T with 1 ≤ |T∖α| ≤ r; (..., 2^n) to (...).

    It bounds how far h moves when random features are added to α: E|h(β) − h(α)| ≤ Q′, and for the smoothed function
    E|M_λh(β) − M_λh(α)| ≤ λQ′. (The paper's Q with the sets T that it leaves out; see the top of this module.)

    >>> instability_weight(torch.tensor([0, 0, 0, 1]), alpha=0b01, r=1).item()
    0.5
    """
    values = _as_values(values)
    n = _features_of(values)
    alpha_bits = _as_integer("alpha", alpha, n)
    _check_radius(r)
    outside = _features_outside(alpha_bits, n)
    m = len(outside)
    # Pr[T ⊆ β] depends on |T∖α| alone, and is looked up by it; sets within α do not count.
    probability_by_number = [0.0] + [containment(m, k, r) for k in range(1, m + 1)]
    number_outside = masks(n)[:, outside].sum(1).to(values.device)
    probability = values.new_tensor(probability_by_number)[number_outside]
    return monotone(values).abs() @ probability


def instability_bound(
    values: Tensor, alpha: Subset, r: int, gamma: float, keep: float = 1.0
) -> Tensor:
    """Return an upper bound on 1 − τ_r(M_λh), the instability of h smoothed with λ = `keep`; (..., 2^n) to (...).

    `values` holds the unsmoothed h. By Markov's inequality 1 − τ_r = Pr[|M_λh(β) − M_λh(α)| > γ] ≤ E|…| / γ, and
    `instability_weight` bounds the expectation. It is computed in three steps:

    1. Smooth: g = M_λh.
    2. Restrict: S ↦ g(α ∪ S), a function of the features outside α alone. Coefficients of g whose sets differ only
       within α become one, so that those of opposite signs cancel before their absolute values are summed.
    3. Divide the weight Q′ of the restricted function at ∅ by γ.

    The paper's bound, corrected, is `keep * instability_weight(values, alpha, r) / gamma`. It has no step 2, and λ in
    place of the λ^|T| that smoothing gives a set T, so it is never smaller. A bound above 1 says nothing.

    >>> instability_bound(torch.tensor([0, 0, 0, 1]), alpha=0b01, r=1, gamma=0.75, keep=0.5).item()
    0.16666666666666666
    """
    _check_gamma(gamma)
    _check_share("keep", keep)
    smoothed = masking(values, keep)
    outside_alpha = restrict(smoothed, alpha)
    return instability_weight(outside_alpha, 0, r) / gamma


def prediction_bound(scores: Tensor, alpha: Subset, r: int) -> Tensor:
    """Return an upper bound on 1 − `prediction_rate`, for any number of classes; scores (..., classes, 2^n) to (...).

    With t the class predicted at α and g_c = h_t − h_c, a prediction that changes has |g_c(β) − g_c(α)| ≥ g_c(α) for
    some class c ≠ t, so the bound is Σ_c Q′(g_c)/g_c(α). A tie at α that features may break gives ∞.

    >>> scores = torch.tensor([[0.75, 0.5], [0.25, 0.5]])
    >>> prediction_bound(scores, 0, 1).item(), 1 - prediction_rate(scores, 0, 1).item()
    (0.5, 0.0)
    """
    _check_classes(scores)
    restricted = restrict(scores, alpha)
    # The class with the largest score at α, repeated for every set of features, since `gather` wants an index per value.
    top_class = restricted[..., 0].argmax(-1)[..., None, None]
    top_class = top_class.expand(*restricted.shape[:-2], 1, restricted.shape[-1])
    top_score = restricted.gather(-2, top_class)
    gaps = top_score - restricted
    weight = instability_weight(gaps, 0, r)
    # The gap of the top class to itself is 0 everywhere, and so is its weight: that class adds nothing to the sum.
    bound_per_class = torch.where(weight == 0, 0.0, weight / gaps[..., 0])
    return bound_per_class.sum(-1)


def hard_radius(values: Tensor, alpha: Subset, gamma: float) -> Tensor:
    """Return the largest number of features that may be added to α without h moving by more than γ, (...) int64.

    It is the largest r such that |h(β) − h(α)| ≤ γ for every set β that contains α and at most r features more, found by
    enumeration from `values` (..., 2^n). If no set moves h by more than γ, it is the number of features outside α. This
    is the corrected r* of Theorem B.5 of the paper on soft stability.

    >>> hard_radius(torch.tensor([0, 0, 0, 1]), alpha=0b00, gamma=0.25).item()
    1
    """
    _check_gamma(gamma)
    restricted = restrict(values, alpha)
    m = _features_of(restricted)
    value_at_alpha = restricted[..., :1]
    changes = (restricted - value_at_alpha).abs() > gamma
    number_added = degrees(m).to(restricted.device)
    # A set that changes h by more than γ keeps the radius below its own size.
    largest_allowed = torch.where(changes, number_added - 1, m)
    return largest_allowed.amin(-1)


# ---- many features ---------------------------------------------------------------------------------------------------


class SampledWeights(NamedTuple):
    """Estimates of the weights W_k of some degrees, all of shape (K,) float64, with an interval from `low` to `high`."""

    degree: Tensor
    weight: Tensor
    low: Tensor
    high: Tensor


def sampled_weights(
    f: Callable[[Tensor], Tensor],
    n: int,
    degrees: Sequence[int] = (1, 2),
    draws: int = 1000,
    *,
    centre: float = 0.0,
    confidence: float = 0.95,
    seed: int = 0,
    rows: int = 1024,
) -> SampledWeights:
    """Return unbiased estimates of W_k = Σ_{|S|=k} ĥ(S)², the standard Fourier weight of degree k, for any number n of features.

    `f` takes masks (B, n), boolean, and returns (B,); it is called on `draws` random masks, each feature present with
    probability ½, at most `rows` at a time. The estimate is the U-statistic over all pairs of draws a ≠ b

        1 / (N (N − 1)) · Σ h(a) h(b) K_k(|a ⊕ b|),

    because the sum of ∏_{i∈S} (−1)^(a_i + b_i) over all S with k elements depends on the number of features in which a and
    b differ alone: it is the Krawtchouk polynomial K_k. An estimate may be negative. Its error grows like
    √C(n, k) · E[h²] / N, so small degrees can be estimated and middle ones of many features cannot; the interval says so.
    `centre`, such as a rough mean of f that was known beforehand, is subtracted from f. That changes W_0 alone, and makes
    the other estimates more precise.

    The interval is estimate ± z · standard error, by the delete-one jackknife, whose variance is on average not too
    small (Efron and Stein 1981, Ann. Stat. 9, 586). It is approximate: with 200 draws, 95 % intervals of functions with 4
    to 12 features covered the exact weight in 91 to 100 % of repetitions.

    >>> majority = sampled_weights(lambda mask: (mask.sum(1) >= 2).double(), 3, degrees=(1, 3), draws=2000, centre=0.5)
    >>> [round(float(weight), 1) for weight in majority.weight]
    [0.2, 0.1]
    """
    _check_sampling(n, degrees, draws, confidence)
    key = rand.keys(seed, ("weights",), "boolean weights").expand(draws)
    drawn = rand.uniform(rand.fold(key, torch.arange(draws)), (n,)) < 0.5
    values = _values_of(f, drawn, rows) - centre
    if values.shape != (draws,) or not bool(values.isfinite().all()):
        raise UserError(
            f"the function must return one finite number per mask, got values of shape {tuple(values.shape)} for "
            f"{draws} masks, {int((~values.isfinite()).sum())} of them not finite"
        )

    signs = 1.0 - 2.0 * drawn.double()
    differing = ((n - signs @ signs.T) / 2).round().long()  # (draws, draws)
    pairs = values[:, None] * values[None, :]
    pairs.fill_diagonal_(0)

    polynomials = _krawtchouk(n, max(degrees))
    estimates = [_mean_over_pairs(pairs * polynomials[degree][differing]) for degree in degrees]
    weight, error = torch.tensor(estimates, dtype=torch.float64).unbind(1)
    half_width = error * float(special.ndtri((1 + confidence) / 2))
    return SampledWeights(torch.tensor(degrees), weight, weight - half_width, weight + half_width)


def _mean_over_pairs(terms: Tensor) -> tuple[float, float]:
    """Return the mean of the terms (N, N) of all pairs of different draws, and its standard error by the jackknife.

    The diagonal must be 0.
    """
    draws = len(terms)
    sum_of_draw = terms.sum(1)  # all pairs with this draw
    total = sum_of_draw.sum()
    mean = total / (draws * (draws - 1))
    # Each draw takes part in a pair twice, as the first and as the second.
    without_draw = (total - 2 * sum_of_draw) / ((draws - 1) * (draws - 2))
    spread = (without_draw - without_draw.mean()).square().sum()
    return float(mean), float((spread * (draws - 1) / draws).sqrt())


def _krawtchouk(n: int, most: int) -> Tensor:
    """Return the Krawtchouk polynomials K_k(d), (most + 1, n + 1) float64: Σ_j (−1)^j C(d, j) C(n − d, k − j).

    By the recurrence (k + 1) K_{k+1}(d) = (n − 2d) K_k(d) − (n − k + 1) K_{k−1}(d).

    >>> _krawtchouk(3, 2).tolist()
    [[1.0, 1.0, 1.0, 1.0], [3.0, 1.0, -1.0, -3.0], [3.0, -1.0, -1.0, 3.0]]
    """
    d = torch.arange(n + 1, dtype=torch.float64)
    polynomials = [torch.ones_like(d), n - 2 * d]
    for k in range(1, most):
        following = ((n - 2 * d) * polynomials[k] - (n - k + 1) * polynomials[k - 1]) / (k + 1)
        polynomials.append(following)
    return torch.stack(polynomials[: most + 1])


def _check_sampling(n: int, degrees: Sequence[int], draws: int, confidence: float) -> None:
    """Refuse degrees that functions of n features do not have, and too few draws for a standard error."""
    if n < 1:
        raise UserError(f"the number of features n must be at least 1, got {n}")
    if not degrees or not all(0 <= degree <= n for degree in degrees):
        raise UserError(f"degrees must lie in 0 … {n}, at least one of them, got {list(degrees)}")
    if draws < 3:
        raise UserError(f"draws must be at least 3, got {draws}")
    if not 0 < confidence < 1:
        raise UserError(f"confidence must lie between 0 and 1, got {confidence:g}; usual is 0.95")


def _values_of(f: Callable[[Tensor], Tensor], masks: Tensor, rows: int) -> Tensor:
    """Return the values (B, ...) float64 of a function on masks (B, n), from calls with at most `rows` of them."""
    if rows < 1:
        raise UserError(f"rows must be at least 1, got {rows}")
    chunks = []
    for chunk in torch.split(masks, rows):
        values = f(chunk)
        if not isinstance(values, Tensor) or values.shape[:1] != chunk.shape[:1]:
            got = type(values).__name__
            if isinstance(values, Tensor):
                got = f"shape {tuple(values.shape)}"
            raise UserError(
                f"the function must return a tensor ({len(chunk)}, ...) for {len(chunk)} masks, got {got}"
            )
        chunks.append(values.detach().to(torch.float64))
    return torch.cat(chunks)


# ---- checks and parts ------------------------------------------------------------------------------------------------


def _as_values(values: Tensor) -> Tensor:
    """Return the tensor in float64, after checking that it holds 2^n finite numbers along its last axis, n ≤ 16.

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
    """Return the number n of features of a function with 2^n values.

    >>> _features_of(torch.zeros(3, 8))
    3
    """
    return values.shape[-1].bit_length() - 1


def _each_bit(values: Tensor, matrix: Matrix) -> Tensor:
    """Return a function (..., 2^n) after a 2×2 matrix is applied to each of its n features in turn.

    The matrix [[a, b], [c, d]] maps the values without and with a feature to a·absent + b·present and
    c·absent + d·present. Doing so for every feature multiplies by the n-fold Kronecker power of the matrix, in n·2^n steps
    (the butterfly of the fast Walsh–Hadamard transform) instead of 4^n.
    """
    values = _as_values(values)
    (a, b), (c, d) = matrix
    n = _features_of(values)
    for i in range(n):
        # The values of sets without feature i, and of the same sets with it.
        by_bit = values.reshape(*values.shape[:-1], 2 ** (n - 1 - i), 2, 2**i)
        absent, present = by_bit.unbind(-2)
        both = [a * absent + b * present, c * absent + d * present]
        values = torch.stack(both, -2).flatten(-3)
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


def _check_basis(basis: str, p: float) -> None:
    """Refuse an unknown basis, and a bias p where the basis has none."""
    if basis not in ("values", "fourier", "monotone"):
        raise unknown("basis", basis, ("values", "fourier", "monotone"))
    if basis != "fourier" and p != 0.5:
        raise UserError(
            f"p = {p:g} is the bias of the Fourier basis; the basis asked for is {basis!r}"
        )


def _deviation(p: float) -> float:
    """Return √(p − p²), the standard deviation of a feature that is present with probability p."""
    if not 0 < p < 1:
        raise UserError(f"p must lie strictly between 0 and 1, got {p:g}")
    return math.sqrt(p * (1 - p))


def _within(restricted: Tensor, r: int) -> Tensor:
    """Return which entries of a restricted function add at most r features, (2^m,) boolean."""
    _check_radius(r)
    return (degrees(_features_of(restricted)) <= r).to(restricted.device)


def _features_outside(subset: int, n: int) -> list[int]:
    """Return the features that a set does not have."""
    return [i for i in range(n) if not subset >> i & 1]


def _as_integer(name: str, subset: Subset, n: int) -> int:
    """Return a set of n features as an integer; refuse masks of another shape and features that do not exist."""
    if isinstance(subset, Tensor):
        if subset.dtype != torch.bool or subset.shape != (n,):
            got = f"{subset.dtype} of shape {tuple(subset.shape)}"
            raise UserError(f"{name} as a tensor must be a boolean mask of shape ({n},), got {got}")
        return sum(1 << i for i, present in enumerate(subset.tolist()) if present)
    if not 0 <= subset < 2**n:
        raise UserError(f"{name} must lie in [0, {2**n - 1}] for {n} features, got {subset}")
    return subset


def _check_radius(r: int) -> None:
    """Refuse a negative radius."""
    if r < 0:
        raise UserError(f"the radius r must be at least 0, got {r}")


def _check_gamma(gamma: float) -> None:
    """Refuse a tolerance that is not positive and finite."""
    if not 0 < gamma < math.inf:
        raise UserError(f"gamma must be a positive number, got {gamma:g}")


def _check_classes(scores: Tensor) -> None:
    """Refuse scores without an axis of two classes or more."""
    if scores.ndim < 2 or scores.shape[-2] < 2:
        raise UserError(
            f"scores must be (..., classes, 2^n) with two classes or more, got shape {tuple(scores.shape)}"
        )

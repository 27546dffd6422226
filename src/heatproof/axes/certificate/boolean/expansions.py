"""Functions on {0, 1}^n, exactly: their expansions, and what random masking does to them.

A function h is a float64 tensor of its 2^n values, (..., 2^n), with n ≤ 16. Place a holds h(a), and bit i of a says
whether feature i is present; sets of features are written as such integers throughout. The coefficients of an
expansion lie in the same order: place S belongs to the set S.

Both expansions and masking are the n-fold Kronecker power of a 2×2 matrix, so one butterfly of n·2^n steps serves them
all, forwards and backwards. With s = √(p − p²):

| basis | h(a) = | masking M_λ |
|---|---|---|
| values | | [[1, 0], [1−λ, λ]] |
| fourier | Σ_S ĥ(S) ∏_{i∈S} (p − a_i)/s | [[1, (1−λ)p/s], [0, λ]] |
| monotone | Σ_{T⊆a} h̃(T) | [[1, 0], [0, λ]] |

The Fourier basis is the p-biased one, orthonormal when features are present with probability p; p = ½ is the standard
basis.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from heatproof.errors import UserError, unknown

MOST_FEATURES = 16
Basis = Literal["values", "fourier", "monotone"]
Matrix = tuple[tuple[float, float], tuple[float, float]]


def masks(n: int) -> Tensor:
    """Every subset of n features as a row, (2^n, n) boolean; row a holds the bits of a.

    >>> masks(2).int().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    check_features(n)
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
    return as_values(torch.cat(parts).movedim(0, -1))


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
    check_share("keep", keep)
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


def as_values(values: Tensor) -> Tensor:
    """The tensor in float64, after checking that it holds 2^n finite numbers along its last axis, n ≤ 16.

    >>> as_values(torch.zeros(6))
    Traceback (most recent call last):
    heatproof.errors.UserError: the last axis must hold 2^n numbers, got 6; the nearest power of two is 8
    """
    size = values.shape[-1] if values.ndim else 0
    if size < 1 or size & (size - 1):
        hint = f"; the nearest power of two is {2 ** round(math.log2(size))}" if size else ""
        raise UserError(f"the last axis must hold 2^n numbers, got {size}{hint}")
    check_features(size.bit_length() - 1)
    values = values.to(torch.float64)
    if not bool(values.isfinite().all()):
        raise UserError("the function has values that are not finite")
    return values


def features_of(values: Tensor) -> int:
    """The number n of features of a function with 2^n values.

    >>> features_of(torch.zeros(3, 8))
    3
    """
    return values.shape[-1].bit_length() - 1


def _each_bit(values: Tensor, matrix: Matrix) -> Tensor:
    """The Kronecker power of a 2×2 matrix applied to the last axis, one feature after the other."""
    values = as_values(values)
    (a, b), (c, d) = matrix
    n = features_of(values)
    for i in range(n):
        absent, present = values.reshape(*values.shape[:-1], 2 ** (n - 1 - i), 2, 2**i).unbind(-2)
        values = torch.stack([a * absent + b * present, c * absent + d * present], -2).flatten(-3)
    return values


def check_features(n: int) -> None:
    """Raise `UserError` unless functions of n features are small enough to be held exactly.

    >>> check_features(17)
    Traceback (most recent call last):
    heatproof.errors.UserError: functions of 0 to 16 features are expanded exactly, got n = 17; use 16
    """
    if not 0 <= n <= MOST_FEATURES:
        closest = max(0, min(n, MOST_FEATURES))
        raise UserError(
            f"functions of 0 to {MOST_FEATURES} features are expanded exactly, got n = {n}; use {closest}"
        )


def check_share(name: str, value: float) -> None:
    """Raise `UserError` unless the value lies in [0, 1].

    >>> check_share("keep", 1.5)
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

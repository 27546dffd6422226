"""Soft stability: certificates against certificates, methods, smoothing, and the theorems as they are printed."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import combinations, product

import numpy as np
import pandas as pd
from claims import GRID, Found, Part, every_pair, exact, parts
from reading import Tables, averaged

PERTURBING = ("lime", "kernel_shap")
GRADIENTS = ("integrated_gradients", "mfaba")
BRUTE = "page"


def perturbing_first(t: Tables) -> Found:
    """The lead of LIME and KernelSHAP over the gradient methods, per network."""
    found = every_pair(t, "certificate", "rate", list(product(PERTURBING, GRADIENTS)))
    return Found(found, every=True, said="lead in stability rate", command=GRID)


def above_random(t: Tables) -> Found:
    """The lead of the paper's methods over random maps, per network."""
    found = every_pair(
        t, "certificate", "rate", [(method, "random") for method in (*PERTURBING, *GRADIENTS)]
    )
    return Found(found, every=True, said="lead over random maps in stability rate", command=GRID)


def text_alike(t: Tables) -> Found:
    texts = t.networks.loc[t.networks["modality"] == "text", "network"]
    rows = pd.concat(
        [
            t.between("certificate", "rate", a, b).assign(pair=f"{a} − {b}")
            for a, b in combinations((*PERTURBING, *GRADIENTS), 2)
        ]
    )
    rows = rows[rows["network"].isin(texts)]
    return Found(
        parts(rows.assign(network=[f"{row.network}, {row.pair}" for row in rows.itertuples()])),
        "within",
        0,
        0.05,
        every=True,
        said="differences of stability rates on text",
        command=GRID,
    )


def _keep(frame: pd.DataFrame) -> pd.Series:
    """The λ of smoothing rows, from conditions such as λ=0.25."""
    return frame["condition"].astype(str).str.extract(r"λ=([\d.]+)")[0].astype(float)


def certified(t: Tables) -> Found:
    """Sampling's mean certified rate at the largest common radius less the share that a hard radius reaches there."""
    soft = t.select(axis=("certificate", "smoothing"), measure="certified", modality="image")
    soft = soft[
        (_keep(soft).fillna(1.0) == 1.0)
        & (soft["severity"].astype(float) > 0)
        & (soft["base"] == "lime")
    ]
    hard = t.select(
        axis=("certificate", "smoothing"),
        measure="hard_radius_lipschitz",
        modality="image",
        base="lime",
    )
    found = []
    for network, part in hard.groupby("network", sort=False, observed=True):
        own = soft[soft["network"] == network]
        if own.empty:
            continue
        radius = own["severity"].astype(float).min()
        rate = averaged(own[own["severity"].astype(float) == radius]).iloc[0]
        # Markov: at most mean / r of the samples have a radius of r or more, in favour of the hard certificate
        best = part.loc[part["mean"].astype(float).idxmax()]
        most = [min(float(best[name]) / radius, 1.0) for name in ("mean", "low", "high")]
        found.append(
            Part(
                f"{network}, r = {radius:g}",
                rate["value"] - most[0],
                rate["low"] - most[2],
                rate["high"] - most[1],
            )
        )
    said = (
        "certified rate by sampling less the largest share that hard radii could reach (mean / r)"
    )
    return Found(tuple(found), every=True, said=said, command=GRID)


def smoothing(measure: str, bound: float, said: str) -> Callable[[Tables], Found]:
    """λ = 0.5 less λ = 1 within a sample, a method and a radius, per network."""

    def test(t: Tables) -> Found:
        held = {"axis": "smoothing", "measure": measure, "modality": "image"}
        mild, plain = ({"condition": f"λ={keep}"} for keep in ("0.5", "1"))
        apart = t.contrast(held, mild, plain, ("explainer", "severity"))
        return Found(parts(apart), "above", bound, every=True, said=said, command=GRID)

    return test


def hoeffding(t: Tables) -> Found:
    """The draws of Theorem 3.1, and how often so many miss by more than ε for the worst rate."""
    n = math.ceil(math.log(2 / 0.1) / (2 * 0.1**2))
    return Found(
        exact(n),
        "within",
        t.printed("soft", "text", "draws at epsilon = delta = 0.1", "N"),
        0,
        said="⌈log(2/δ) / 2ε²⌉",
        command=BRUTE,
    )


def hard_rule(t: Tables) -> Found:
    """22 draws that all agree: the largest failing share that leaves them so with probability δ = 0.1."""
    return Found(
        exact(1 - 0.1 ** (1 / 22)),
        "within",
        0,
        0,
        said="share of supersets that may still flip",
        command=BRUTE,
    )


def theorem_b4(t: Tables) -> Found:
    """τ of a smoothed function of three features by enumeration, against the printed bound 1 − λQ / γ.

    h̃({1,3}) = ½ and h̃({1,2,3}) = −½ in the monotone basis, α = {1,2}, r = 1, λ = ⅔, γ = 0.05. Q is a sum over sets
    outside α, of which none has a weight, so Q = 0; as τ(h) = 1 ≥ 1 − Q / γ, the theorem says that smoothing keeps it.
    """
    weights = {frozenset({1, 3}): 0.5, frozenset({1, 2, 3}): -0.5}
    alpha, gamma = frozenset({1, 2}), 0.05
    q = sum(abs(w) for one, w in weights.items() if not one & alpha)

    def rate(lam: float) -> float:
        def h(beta: frozenset[int]) -> float:
            return sum(w * lam ** len(one) for one, w in weights.items() if one <= beta)

        supersets = [alpha, alpha | {3}]
        return sum(abs(h(beta) - h(alpha)) <= gamma for beta in supersets) / len(supersets)

    if rate(1.0) < 1 - q / gamma:
        raise AssertionError("the example does not meet the theorem's condition")
    bound = 1 - 2 / 3 * q / gamma
    return Found(
        exact(rate(2 / 3)),
        "within",
        bound,
        0,
        said="τ of the smoothed function, by enumeration",
        command=BRUTE,
    )


def footnote_4(t: Tables) -> Found:
    """Half the gap between the two largest scores, and a change of the first score smaller than that which flips."""
    before, after = np.array([0.5, 0.3, 0.2]), np.array([0.4, 0.5, 0.1])
    gamma = (before[0] - before[1]) / 2
    kept = abs(after[0] - before[0]) <= gamma + 1e-12 and after.argmax() == before.argmax()
    return Found(
        exact(float(kept)),
        "above",
        0.5,
        said="whether the class stays when its score moves by γ (three classes)",
        command=BRUTE,
    )


TESTS = {
    "soft-sca-mus": certified,
    "soft-perturbing": perturbing_first,
    "soft-random": above_random,
    "soft-text": text_alike,
    "soft-smoothing": smoothing("rate", 0.0, "stability rate, λ = 0.5 less λ = 1"),
    "soft-accuracy": smoothing("correct", -0.05, "accuracy, λ = 0.5 less λ = 1"),
    "soft-150": hoeffding,
    "soft-22": hard_rule,
    "soft-b4": theorem_b4,
    "soft-footnote": footnote_4,
}

"""Explanation invariance and equivariance: Table 1, figures 3 to 8, the guidelines, influence functions."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from claims import GRID, Found, Part, parts
from reading import CONTROLS, Tables, averaged

STUDIES = "studies"
NEARLY = 0.95
"""Above it a score counts as 1: with some hundred samples an interval that assumes nothing reaches down that far."""
ASIDE = ("redraw", "there_and_back", "convergence", "sensitivity", "symmetrised")


def invariant(t: Tables) -> set[str]:
    """Networks that are invariant to a group they were asked about: the explained output changes by 1 % at most."""
    rows = t.select(axis="symmetry", measure="model_change")
    change = (
        averaged(rows[~rows["condition"].isin(ASIDE)])
        if len(rows)
        else pd.DataFrame(columns=["network", "high"])
    )
    return set(change.loc[change["high"] <= 0.01, "network"])


def guaranteed(
    key: str, methods: tuple[str, ...], said: str, side: str = "above", bound: float = NEARLY
) -> Callable[[Tables], Found]:
    """A method on invariant networks: what the studies in the repository found, and those of the grid."""

    def test(t: Tables) -> Found:
        rows = t.select(axis="symmetry", measure=("equivariance", "invariance"), base=methods)
        rows = rows[rows["network"].isin(invariant(t)) & ~rows["condition"].isin(ASIDE)]
        named = averaged(rows[rows["mean"].notna()], ("network", "base"))  # a constant map has none
        named = named.assign(
            network=named["network"].astype(str) + ", " + named["base"].astype(str)
        )
        both = (*parts(t.measured(key), label="part"), *parts(named))
        return Found(both, side, bound, ends=(-1, 1), every=True, said=said, command=STUDIES)

    return test


def earlier(
    key: str, said: str, side: str, bound: float, margin: float = 0.0, published: float = np.nan
) -> Callable[[Tables], Found]:
    def test(t: Tables) -> Found:
        return Found(
            parts(t.measured(key), label="part"),
            side,
            bound,
            margin,
            ends=(-1, 1),
            said=said,
            command=STUDIES,
            published=published,
        )

    return test


def layers(key: str, said: str, hidden: bool) -> Callable[[Tables], Found]:
    """Examples and concepts on the layer behind the pooling (`hidden`) of invariant networks, or before it."""

    def test(t: Tables) -> Found:
        rows = t.select(
            axis="symmetry", measure="invariance", method=("simplex", "similarity", "cav", "car")
        )
        rows = rows[rows["network"].isin(invariant(t)) & ~rows["condition"].isin(ASIDE)]
        rows = rows[rows["explainer"].astype(str).str.endswith(", hidden") == hidden]
        side, known = ("above" if hidden else "below"), t.measured(key).dropna(subset=["low"])
        named = averaged(rows, ("network", "explainer"))
        named = named.assign(
            network=named["network"].astype(str) + ", " + named["explainer"].astype(str)
        )
        both = (*parts(known, label="part"), *parts(named))
        return Found(both, side, NEARLY, ends=(-1, 1), every=hidden, said=said, command=STUDIES)

    return test


def influence(t: Tables) -> Found:
    told = t.printed("invariance", "invariance CINIC-10", "influence functions", "mean")
    return earlier(
        "fashion-influence",
        "invariance of influence functions, nearly invariant network",
        "within",
        told,
        0.02,
        told,
    )(t)


def tracin(t: Tables) -> Found:
    told = t.printed("invariance", "invariance CINIC-10", "TracIn", "mean")
    return earlier(
        "fashion-tracin", "invariance of TracIn, nearly invariant network", "above", 0.9, 0, told
    )(t)


def nearly(t: Tables) -> Found:
    """Model invariance less the equivariance of IG on a network that was trained on moved pictures."""
    model, ig = t.measured("fashion-model"), t.measured("fashion-ig")
    if model.empty or ig.empty:
        return Found(())
    a, b = model.iloc[0], ig.iloc[0]
    part = Part("", a["value"] - b["value"], a["low"] - b["high"], a["high"] - b["low"])
    return Found(
        (part,), "above", 0.1, said="model invariance less IG's equivariance", command=STUDIES
    )


def car_first(t: Tables) -> Found:
    """CAR less CAV on the same samples after symmetrising over the same few elements, but where both are 1."""
    held = t.values[(t.values["axis"] == "symmetry") & (t.values["condition"] == "symmetrised")]
    found = []
    for level in sorted(held["severity"].unique()):
        for layer in dict.fromkeys(
            str(name).partition(", ")[2] for name in held["explainer"].unique()
        ):
            over = {
                "axis": "symmetry",
                "measure": "invariance",
                "condition": "symmetrised",
                "severity": level,
            }
            sides = ({"explainer": f"{name}, {layer}"} for name in ("car", "cav"))
            apart = t.contrast(over, *sides, within=("severity",))
            apart = apart[apart["low"] < apart["high"]]
            found += parts(apart.assign(network=apart["network"].astype(str) + f", n = {level:g}"))
    return Found(tuple(found), said="invariance of CAR less CAV after n elements", command=GRID)


def sensitivity(t: Tables) -> Found:
    """Pearson's correlation over samples of max-sensitivity and equivariance, with Fisher's interval; no controls."""
    held = t.values[(t.values["axis"] == "symmetry") & ~t.values["explainer"].isin(CONTROLS)]
    if not (held["measure"] == "max_sensitivity").any():
        return Found(())
    found = []
    for (network, explainer), part in held.groupby(
        ["network", "explainer"], sort=False, observed=True
    ):
        sharp = (
            part[part["measure"] == "max_sensitivity"]
            .groupby("sample", observed=True)["value"]
            .mean()
        )
        plain = (
            part[(part["measure"] == "equivariance") & ~part["condition"].isin(ASIDE)]
            .groupby("sample", observed=True)["value"]
            .mean()
        )
        a, b = sharp.astype(float).align(plain.astype(float), join="inner")
        if len(a) > 10 and a.std() > 0 and b.std() > 1e-6:
            r = float(np.corrcoef(a, b)[0, 1])
            half = 1.96 / np.sqrt(len(a) - 3)
            found.append(
                Part(
                    f"{network}, {explainer}",
                    r,
                    float(np.tanh(np.arctanh(r) - half)),
                    float(np.tanh(np.arctanh(r) + half)),
                )
            )
    return Found(
        tuple(found),
        "below",
        0,
        every=True,
        ends=(-1, 1),
        said="correlation of sensitivity and equivariance",
        command=GRID,
    )


GRADIENTS = ("saliency", "input_x_gradient", "integrated_gradients")
SCORE = "score on invariant networks"
TESTS = {
    "inv-gradients": guaranteed("guaranteed-gradients", GRADIENTS, SCORE),
    "inv-ablation": guaranteed("guaranteed-ablation", ("feature_ablation",), SCORE),
    "inv-shap": guaranteed("shap", ("gradient_shap",), SCORE, "below"),
    "inv-permutation": guaranteed("permutation", ("feature_permutation",), SCORE, "below"),
    "inv-loss": guaranteed("guaranteed-loss", ("influence", "tracin"), SCORE),
    "inv-layers": layers("invariant-layers", "invariance behind the pooling", hidden=True),
    "inv-before": layers("equivariant-layers", "invariance before the pooling", hidden=False),
    "inv-influence": influence,
    "inv-tracin": tracin,
    "inv-nearly": nearly,
    "inv-car": car_first,
    "inv-sensitivity": sensitivity,
}

"""Sanity checks: Adebayo 2018 and what followed, on two ImageNet classifiers and on the networks of the grid."""

from __future__ import annotations

import json
from collections.abc import Callable

import pandas as pd
from claims import Found, Part, parts
from reading import Tables, averaged

BENCHMARK = "python benchmarks/dependence_claims.py"
KEYS = {
    "gradients depend on the weights": "sanity-gradients",
    "Grad-CAM depends on the weights": "sanity-grad-cam",
    "guided backprop depends less than gradients": "sanity-guided",
    "guided backprop is blind to the upper quarter of layers": "sanity-guided-upper",
    "an edge detector is as unchanged as guided backprop": "sanity-edges",
    "IG keeps more of its order than other samples share": "sanity-ig-order",
    "input times gradient: the same": "sanity-input-order",
    "guided backprop: another class, the same map": "sanity-guided-class",
    "guided backprop changes less with the class than gradients": "sanity-guided-class-less",
    "DeepLIFT depends on the upper quarter of layers": "sanity-deep-lift-upper",
    "DeepLIFT depends no less than gradients (to 0.1)": "sanity-deep-lift",
    "noise scores no lower than methods in the mean (to 0.1)": "sanity-noise",
    "smoothing lowers the score of gradients": "sanity-smoothing",
    "gradients are more complex under random weights": "sanity-complexity-gradients",
    "so is IG": "sanity-complexity-ig",
    "so is Grad-CAM": "sanity-complexity-grad-cam",
    "guided backprop is not": "sanity-complexity-guided",
}
"""What `dependence_claims.py` calls a claim -> its key here."""


WEIGHTS, CLASS = {"condition": "weights"}, {"condition": "class", "measure": "class_dependence"}
RISE = {**WEIGHTS, "measure": "entropy_rise"}
SINGLE = {
    "sanity-gradients": ({**WEIGHTS, "measure": "dependence", "base": "saliency"}, 1.0, 0.0),
    "sanity-grad-cam": ({**WEIGHTS, "measure": "dependence", "base": "grad_cam"}, 1.0, 0.0),
    "sanity-guided-class": ({**CLASS, "base": "guided_backprop"}, -1.0, 0.1),
    "sanity-complexity-gradients": ({**RISE, "base": "saliency"}, 1.0, 0.0),
    "sanity-complexity-ig": ({**RISE, "base": "integrated_gradients"}, 1.0, 0.0),
    "sanity-complexity-grad-cam": ({**RISE, "base": "grad_cam"}, 1.0, 0.0),
    "sanity-complexity-guided": ({**RISE, "base": "guided_backprop"}, -1.0, 0.0),
}
"""Claim -> cells, and the sign and the shift that make the claim's number of their mean."""
PAIRED = {
    "sanity-guided": ("saliency", "guided_backprop", 0.0),
    "sanity-smoothing": ("saliency", "smoothgrad", 0.0),
    "sanity-edges": ("sobel", "guided_backprop", 0.1),
    "sanity-deep-lift": ("deep_lift", "saliency", 0.1),
}
"""Claim -> two methods whose dependence on the weights is compared, and a shift."""


def on_grid(key: str, t: Tables) -> tuple[Part, ...]:
    """The same number on networks of images of the grid, where cells or pairs have it."""
    sign, shift, over = 1.0, 0.0, {"axis": "dependence", "modality": "image"}
    if key in SINGLE:
        wanted, sign, shift = SINGLE[key]
        rows = averaged(t.select(**over, **wanted))
    elif key in PAIRED:
        first, second, shift = PAIRED[key]
        rows = t.between("dependence", "dependence", first, second)
        rows = rows[
            rows["network"].isin(t.networks.loc[t.networks["modality"] == "image", "network"])
        ]
    elif (
        key == "sanity-guided-class-less"
    ):  # not kept by sample, so the ends of both intervals are added
        names = ("saliency", "guided_backprop")
        a, b = (
            averaged(t.select(**over, **CLASS, base=name)).set_index("network") for name in names
        )
        a, b = a.align(b, join="inner", axis=0)
        rows = pd.DataFrame(
            {
                "value": a["value"] - b["value"],
                "low": a["low"] - b["high"],
                "high": a["high"] - b["low"],
            }
        ).reset_index()
    else:
        return ()
    ends = shift + rows[["low", "high"]].mul(sign)
    value = shift + sign * rows["value"]
    return parts(rows.assign(value=value, low=ends.min(axis=1), high=ends.max(axis=1)))


def tested(key: str, said: str) -> Callable[[Tables], Found]:
    """What `dependence_claims.py` found on two classifiers of photographs, and the other networks of the grid."""

    def test(t: Tables) -> Found:
        known = parts(t.measured(key), label="part")
        bound = (
            0.1 if key in ("sanity-gradients", "sanity-grad-cam", "sanity-deep-lift-upper") else 0.0
        )
        more = [part for part in on_grid(key, t) if part.label not in {one.label for one in known}]
        return Found((*known, *more), "above", bound, said=said, command="sanity")

    return test


def from_json(found: dict[str, object]) -> pd.DataFrame:
    """The rows of `earlier.csv` from what `dependence_claims.py` wrote."""
    rows = []
    for network in ("mobilenet_v2", "efficientnet_lite0"):
        for c in found[network]["claims"]:  # type: ignore[index]
            rows.append(
                (
                    KEYS[c["claim"]],
                    network,
                    c["mean"],
                    c["low"],
                    c["high"],
                    found["photographs"],
                    "docs/measured.md",
                    BENCHMARK,
                )
            )
    return pd.DataFrame(
        rows, columns=["key", "part", "value", "low", "high", "n", "page", "command"]
    )


def rankings_from_json(found: dict[str, object]) -> pd.DataFrame:
    """The rows of `earlier.csv` from what `retraining_rankings.py` wrote."""
    rows = []
    for c in found["consistency retraining"]:  # type: ignore[attr-defined]
        order = c["a"].split()[-1]
        rows.append(
            (
                f"retrained-{order}",
                "small ResNet",
                c["spearman"],
                c["low"],
                c["high"],
                2500,
                "docs/measured.md",
                "python benchmarks/retraining_rankings.py",
            )
        )
    return pd.DataFrame(
        rows, columns=["key", "part", "value", "low", "high", "n", "page", "command"]
    )


NAMES = {
    "sanity-guided": "the lead of gradients over guided backprop, dependence",
    "sanity-guided-upper": "0.1 less guided backprop's dependence on the upper quarter",
    "sanity-edges": "dependence of edges less guided backprop, + 0.1",
    "sanity-ig-order": "Spearman with the map of the random network less chance",
    "sanity-input-order": "Spearman with the map of the random network less chance",
    "sanity-guided-class": "0.1 less the dependence on the class",
    "sanity-guided-class-less": "dependence on the class, gradients less guided backprop",
    "sanity-deep-lift": "dependence, DeepLIFT less gradients, + 0.1",
    "sanity-noise": "dependence, noise less the mean of methods, + 0.1",
    "sanity-smoothing": "dependence, gradients less SmoothGrad",
    "sanity-complexity-gradients": "rise of entropy",
    "sanity-complexity-ig": "rise of entropy",
    "sanity-complexity-grad-cam": "rise of entropy",
    "sanity-complexity-guided": "fall of entropy",
}
TESTS = {key: tested(key, NAMES.get(key, "dependence")) for key in KEYS.values()}


if __name__ == "__main__":
    import sys
    from pathlib import Path

    from reading import TABLES

    table = (
        pd.read_csv(TABLES / "earlier.csv") if (TABLES / "earlier.csv").exists() else pd.DataFrame()
    )
    for name in sys.argv[1:]:
        held = json.loads(Path(name).read_text(encoding="utf-8"))
        new = from_json(held) if "photographs" in held else rankings_from_json(held)
        kept = table[~table["key"].isin(new["key"])] if len(table) else table
        table = pd.concat([new, kept], ignore_index=True)
    table.to_csv(TABLES / "earlier.csv", index=False, float_format="%.6g")

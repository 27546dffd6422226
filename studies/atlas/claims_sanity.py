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


def on_grid(key: str, t: Tables) -> tuple[Part, ...]:
    """The same number on networks of the grid, where cells or pairs have it."""
    single = {"sanity-gradients": ("saliency", "dependence", 1.0), "sanity-grad-cam": ("grad_cam", "dependence", 1.0)}
    single |= {
        "sanity-complexity-gradients": ("saliency", "entropy_rise", 1.0),
        "sanity-complexity-ig": ("integrated_gradients", "entropy_rise", 1.0),
    }
    single |= {
        "sanity-complexity-grad-cam": ("grad_cam", "entropy_rise", 1.0),
        "sanity-complexity-guided": ("guided_backprop", "entropy_rise", -1.0),
    }
    paired = {"sanity-guided": ("saliency", "guided_backprop"), "sanity-smoothing": ("saliency", "smoothgrad")}
    if key in single:
        method, measure, sign = single[key]
        rows = averaged(
            t.select(axis="dependence", measure=measure, base=method, condition="weights", modality="image")
        )
        turned = rows.assign(
            value=sign * rows["value"],
            low=rows[["low", "high"]].mul(sign).min(axis=1),
            high=rows[["low", "high"]].mul(sign).max(axis=1),
        )
        return parts(turned)
    if key in paired:
        rows = t.between("dependence", "dependence", *paired[key])
        return parts(rows[rows["network"].isin(t.networks.loc[t.networks["modality"] == "image", "network"])])
    return ()


def tested(key: str, said: str) -> Callable[[Tables], Found]:
    def test(t: Tables) -> Found:
        rows = t.measured(key)
        bound = 0.1 if key in ("sanity-gradients", "sanity-grad-cam", "sanity-deep-lift-upper") else 0.0
        return Found((*parts(rows, label="part"), *on_grid(key, t)), "above", bound, said=said, command="sanity")

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
                    "docs/dependence.md",
                    BENCHMARK,
                )
            )
    return pd.DataFrame(rows, columns=["key", "part", "value", "low", "high", "n", "page", "command"])


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
                "docs/faithfulness.md",
                "python benchmarks/retraining_rankings.py",
            )
        )
    return pd.DataFrame(rows, columns=["key", "part", "value", "low", "high", "n", "page", "command"])


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

    table = pd.read_csv(TABLES / "earlier.csv") if (TABLES / "earlier.csv").exists() else pd.DataFrame()
    for name in sys.argv[1:]:
        held = json.loads(Path(name).read_text(encoding="utf-8"))
        new = from_json(held) if "photographs" in held else rankings_from_json(held)
        kept = table[~table["key"].isin(new["key"])] if len(table) else table
        table = pd.concat([new, kept], ignore_index=True)
    table.to_csv(TABLES / "earlier.csv", index=False, float_format="%.6g")

"""Made-up rows of faithfulness with a known truth, and the axis that the page draws of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes import AxisResult, arrange
from heatproof.axes.faithfulness import AXIS
from support.synthetic import Entry, rows_of

FRACTIONS = (0.1, 0.5, 0.9)
SKILL = {"grad_cam": 0.6, "saliency": 0.35, "lime": 0.3, "random": 0.0}
IMPUTERS = ("noisy_linear", "zero")
N = 24


def made_up(
    skill: dict[str, float] = SKILL, imputers: Sequence[str] = IMPUTERS, n: int = N, lost: str = ""
) -> pd.DataFrame:
    """Curves whose MoRF falls and whose LeRF stays by the skill of a method, with every metric read off them."""
    g = np.random.default_rng(0)
    entries: list[Entry] = []
    for imputer in imputers:
        by_chance = {f: 0.8 - 0.6 * f + g.normal(0, 0.03, n) for f in FRACTIONS}
        for name, s in skill.items():
            gone = np.full(n, np.nan)
            curve: dict[str, dict[float, Any]] = {"random": by_chance, "morf": {}, "lerf": {}}
            for f in FRACTIONS:
                curve["morf"][f] = (
                    by_chance[f]
                    - s * (0.5 if imputer == "zero" else 1) * 0.4
                    + g.normal(0, 0.03, n)
                )
                curve["lerf"][f] = by_chance[f] + s * 0.3 + g.normal(0, 0.03, n)
            for order, at in curve.items():
                for f, value in at.items():
                    shown = gone if name == lost else np.clip(value, 0, 1)
                    entries += [(name, "probability", f"{imputer} {order}", f, shown)]
                    entries += [
                        (
                            name,
                            "accuracy",
                            f"{imputer} {order}",
                            f,
                            shown > 0.5 if name != lost else gone,
                        )
                    ]
            road = np.mean([(curve["lerf"][f] - curve["morf"][f]) / 2 for f in FRACTIONS], 0)
            deletion = {o: np.mean(list(curve[o].values()), 0) for o in ("morf", "random")}
            entries += [(name, "road", imputer, 0.0, gone if name == lost else road)]
            entries += [
                (name, "deletion_auc", imputer, 0.0, gone if name == lost else deletion["morf"])
            ]
            entries += [
                (
                    name,
                    "deletion_auc_random",
                    imputer,
                    0.0,
                    gone if name == lost else deletion["random"],
                )
            ]
    for name, s in skill.items():
        entries += [(name, "infidelity", "zero", 0.0, 10 ** (2 - 3 * s) + g.random(n))]
        for share in (0.1, 0.5):
            entries += [(name, "sensitivity_n", "zero", share, s + g.normal(0, 0.05, n))]
    return rows_of(entries)


def leaking(right: float = 0.95) -> pd.DataFrame:
    """A mask that tells two classes apart; only the fill with zeros shows it."""
    labels = np.arange(80) % 2
    entries: list[Entry] = []
    for imputer, pixels in (("zero", 0.99), ("noisy_linear", 0.6)):
        hits = np.arange(80) < 80 * right
        entries += [("grad_cam", "prior", f"{imputer} morf", 0.5, labels)]
        entries += [("grad_cam", "pixels", f"{imputer} morf", 0.5, np.full(80, pixels))]
        for probe in ("mask", "imputed", "both"):
            entries += [("grad_cam", f"{probe}_hit", f"{imputer} morf", 0.5, hits)]
            entries += [
                ("grad_cam", f"{probe}_log2", f"{imputer} morf", 0.5, np.where(hits, -0.1, -4.0))
            ]
    return rows_of(entries, "leakage")


def axis_of(
    table: pd.DataFrame, settings: dict[str, Any] | None = None, manifest: Any = None, **more: Any
) -> AxisResult:
    rows = table[table["evaluation"] == "faithfulness"]
    (cube,) = arrange(rows)
    samples = pd.DataFrame({"sample": cube.samples, "probability": 0.9})
    return AxisResult(
        AXIS, cube, rows, samples, more.get("exhibits", []), settings or {}, manifest or {}, table
    )

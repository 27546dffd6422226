"""Made-up rows of faithfulness with a known truth, and the axis that the page draws of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.faithfulness import AXIS
from heatproof.results.axis_result import AxisResult
from heatproof.runs.manifest import Manifest
from heatproof.runs.results import arrays_of_run
from support.manifests import manifest_of
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

    def add(place: tuple[str, str, str, float], value: Any, chance: Any) -> None:
        if place[0] == lost:
            value = chance = np.full(n, np.nan)
        entries.append((*place, value, chance))

    for imputer in imputers:
        by_chance = {f: 0.8 - 0.6 * f + g.normal(0, 0.03, n) for f in FRACTIONS}
        steepness = 0.5 if imputer == "zero" else 1
        for name, s in skill.items():
            curve: dict[str, dict[float, Any]] = {"morf": {}, "lerf": {}}
            for f in FRACTIONS:
                curve["morf"][f] = by_chance[f] - s * steepness * 0.4 + g.normal(0, 0.03, n)
                curve["lerf"][f] = by_chance[f] + s * 0.3 + g.normal(0, 0.03, n)
            for order, at in curve.items():
                for f, value in at.items():
                    where = (f"{imputer} {order}", f)
                    shown, random = np.clip(value, 0, 1), np.clip(by_chance[f], 0, 1)
                    add((name, "probability", *where), shown, random)
                    add((name, "accuracy", *where), shown > 0.5, random > 0.5)
                    if order == "morf":
                        place = (name, "road_morf_accuracy", imputer, f)
                        add(place, shown > 0.5, random > 0.5)
            road = np.mean([(curve["lerf"][f] - curve["morf"][f]) / 2 for f in FRACTIONS], 0)
            add((name, "road", imputer, 0.0), road, np.zeros(n))
            deletion = np.mean(list(curve["morf"].values()), 0)
            random_deletion = np.mean(list(by_chance.values()), 0)
            add((name, "deletion_auc", imputer, 0.0), deletion, random_deletion)
    for name, s in skill.items():
        entries.append((name, "infidelity", "zero", 0.0, 10 ** (2 - 3 * s) + g.random(n)))
        for share in (0.1, 0.5):
            correlation = s + g.normal(0, 0.05, n)
            entries.append((name, "sensitivity_n", "zero", share, correlation, np.zeros(n)))
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
    table: pd.DataFrame,
    settings: dict[str, Any] | None = None,
    manifest: Manifest | None = None,
    **more: Any,
) -> AxisResult:
    rows = table[table["evaluation"] == "faithfulness"]
    (arrays,) = arrays_of_run(rows)
    samples = pd.DataFrame({"sample": arrays.samples, "probability": 0.9})
    return AxisResult(
        AXIS,
        arrays,
        rows,
        samples,
        more.get("gallery", []),
        settings or {},
        manifest or manifest_of(),
        table,
    )

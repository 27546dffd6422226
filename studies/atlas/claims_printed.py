"""FASS: what its printed tables say of each other, by arithmetic on `tables/papers.csv`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from claims import ARITHMETIC, Found, Part
from reading import Tables

DATA = ("ImageNet", "CIFAR-10", "COCO")
METHODS = ("IG", "GradSHAP", "Grad-CAM", "LIME")


def fass_cells(t: Tables, data: str, method: str) -> pd.DataFrame:
    """A table of the appendix, architectures by perturbations."""
    return t.paper("fass", f"cells {data} {method}")


def printed(
    numbers: dict[str, float],
    said: str,
    side: str = "above",
    bound: float = 0.0,
    margin: float = 0.0,
) -> Found:
    """Numbers without an error, by what they are of, which the claim is about all of."""
    parts = tuple(Part(label, float(v), float(v), float(v)) for label, v in numbers.items())
    return Found(parts, side, bound, margin, every=True, said=said, command=ARITHMETIC)


def rows_of(function: Callable[[str, str], float]) -> dict[str, float]:
    """A number for every method on every data set."""
    return {f"{method} on {data}": function(data, method) for data in DATA for method in METHODS}


def tables_2_and_3(t: Tables) -> Found:
    first, second = (
        float(t.paper("fass", f"retention by {by}")["mean"].mean())
        for by in ("perturbation", "data")
    )
    said = f"mean retention {second:.1f} % in Table 3 less {first:.1f} % in Table 2, points"
    return printed({"": second - first}, said, "within", 0, 0.1)


def table_3_and_appendix(t: Tables) -> Found:
    """The printed means of Table 3 against the means of the appendix over all five perturbations, at most."""
    means = {data: t.paper("fass", f"retention {data}").to_numpy().mean() for data in DATA}
    gaps = {
        data: mean - t.printed("fass", "retention by data", data, "mean")
        for data, mean in means.items()
    }
    return printed(gaps, "appendix (“<0.1” as 0.1) less Table 3, points", "within", 0, 0.1)


def smallest_subset(t: Tables) -> Found:
    images = t.printed("fass", "text", "CIFAR-10", "images")
    most = images * t.printed("fass", "text", "near-zero retention below", "percent") / 100
    told = t.printed("fass", "text", "smallest retained subset", "pairs")
    return printed(
        {"": most}, f"pairs that “<0.1 %” of {images:,.0f} images leaves at most", "above", told
    )


def grad_cam_imagenet(t: Tables) -> Found:
    least = t.printed("fass", "text", "Grad-CAM on ImageNet, ResNet-50", "FASS")
    mean = t.printed("fass", "scores ImageNet", "Grad-CAM", "FASS")
    return printed(
        {"": mean - least},
        f"mean of Table 4 ({mean:g}) less the smallest of the four in the text ({least:g})",
    )


def rows_of_table_4(t: Tables) -> Found:
    def gap(data: str, method: str) -> float:
        return float(fass_cells(t, data, method).to_numpy().mean()) - t.printed(
            "fass", f"scores {data}", method, "FASS"
        )

    return printed(rows_of(gap), "mean of the appendix less Table 4", "within", 0, 0.005)


def beyond_the_cells(t: Tables) -> Found:
    """How far Table 4 lies outside the range of the appendix' cells, where no weights could bring a mean."""

    def outside(data: str, method: str) -> float:
        cells, mean = (
            fass_cells(t, data, method).to_numpy(),
            t.printed("fass", f"scores {data}", method, "FASS"),
        )
        return max(0.0, float(cells.min()) - mean, mean - float(cells.max()))

    return printed(
        rows_of(outside),
        "distance of Table 4 from the range of the appendix' cells",
        "within",
        0,
        0.0015,
    )


def components(t: Tables) -> Found:
    def gap(data: str, method: str) -> float:
        row = t.paper("fass", f"scores {data}").loc[method]
        return abs(float(row[["SSIM", "Spearman", "Jaccard"]].mean() - row["FASS"]))

    return printed(
        rows_of(gap), "mean of the three components less the printed FASS", "below", 0.0015
    )


def printed_order(t: Tables) -> Found:
    scores = {m: [t.printed("fass", f"scores {data}", m, "FASS") for data in DATA] for m in METHODS}
    leads = {method: min(a - b, b - c) for method, (a, b, c) in scores.items()}
    return printed(leads, "smallest step down ImageNet > CIFAR-10 > COCO in Table 4")


def printed_first(cells: bool) -> Callable[[Tables], Found]:
    def test(t: Tables) -> Found:
        leads = {}
        for data in DATA:
            every = np.stack(
                [fass_cells(t, data, m).to_numpy() for m in ("Grad-CAM", "IG", "GradSHAP", "LIME")]
            )
            every = every if cells else every.mean(2, keepdims=True)
            lead = (every[0] - every[1:].max(0)).min(1)
            leads |= {
                f"{a} on {data}": v
                for a, v in zip(fass_cells(t, data, "IG").index, lead, strict=True)
            }
        what = "of every perturbation" if cells else "of the row means"
        return printed(leads, f"Grad-CAM's smallest lead, {what} in the appendix")

    return test


def printed_spread(t: Tables) -> Found:
    spreads = rows_of(lambda data, method: float(np.ptp(fass_cells(t, data, method).mean(axis=1))))
    where = max(spreads, key=lambda name: spreads[name])
    told = t.printed("fass", "text", "largest spread of architectures", "FASS")
    ratio = t.printed("fass", "text", "gap of Grad-CAM and IG", "FASS") / spreads[where]
    said = f"largest spread in the appendix ({where}), of which the gap of methods is {ratio:.1f} times"
    return printed({"": spreads[where]}, said, "within", told, 0.005)


def printed_families(t: Tables) -> Found:
    def gap(data: str, method: str) -> float:
        cells = fass_cells(t, data, method).mean()
        return float(
            cells[["brightness", "noise"]].mean() - cells[["rotation", "translation"]].mean()
        )

    return printed(rows_of(gap), "photometric less geometric in the appendix")


def swapped(t: Tables) -> Found:
    means = {data: fass_cells(t, data, "IG").loc["ViT-B/16"].mean() for data in DATA}
    gaps = {
        data: mean - t.printed("fass", "text", f"ViT-B/16, IG on {data}", "FASS")
        for data, mean in means.items()
    }
    return printed(gaps, "ViT's IG in the appendix less the text", "within", 0, 0.001)


TESTS = {
    "fass-tables-2-3": tables_2_and_3,
    "fass-table-3": table_3_and_appendix,
    "fass-553": smallest_subset,
    "fass-722": grad_cam_imagenet,
    "fass-table-4": rows_of_table_4,
    "fass-table-4-range": beyond_the_cells,
    "fass-components": components,
    "fass-data-printed": printed_order,
    "fass-first-printed": printed_first(False),
    "fass-first-cells": printed_first(True),
    "fass-spread": printed_spread,
    "fass-families-printed": printed_families,
    "fass-swapped": swapped,
}

"""FASS: what its printed tables say of each other, by arithmetic on `tables/papers.csv`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
from claims import ARITHMETIC, Found, Part, exact
from reading import Tables

DATA = ("ImageNet", "CIFAR-10", "COCO")
METHODS = ("IG", "GradSHAP", "Grad-CAM", "LIME")


def fass_cells(t: Tables, data: str, method: str) -> pd.DataFrame:
    """A table of the appendix, architectures by perturbations."""
    return t.paper("fass", f"cells {data} {method}")


def tables_2_and_3(t: Tables) -> Found:
    by_perturbation = t.paper("fass", "retention by perturbation")["mean"].mean()
    by_data = t.paper("fass", "retention by data")["mean"].mean()
    labels = (
        Part("Table 2", by_perturbation, by_perturbation, by_perturbation),
        Part("Table 3", by_data, by_data, by_data),
    )
    gap = by_data - by_perturbation
    said = f"mean retention {labels[1].value:.1f} % in Table 3 less {labels[0].value:.1f} % in Table 2, points"
    return Found(exact(gap), "within", 0, 0.1, said=said, command=ARITHMETIC)


def table_3_and_appendix(t: Tables) -> Found:
    """The printed means of Table 3 against the means of the appendix' cells over all five perturbations, at most."""
    gaps = []
    for data in DATA:
        gap = float(t.paper("fass", f"retention {data}").to_numpy().mean()) - t.printed(
            "fass", "retention by data", data, "mean"
        )
        gaps.append(Part(data, gap, gap, gap))
    return Found(
        tuple(gaps),
        "within",
        0,
        0.1,
        every=True,
        said="appendix (“<0.1” as 0.1) less Table 3, points",
        command=ARITHMETIC,
    )


def smallest_subset(t: Tables) -> Found:
    images = t.printed("fass", "text", "CIFAR-10", "images")
    most = images * t.printed("fass", "text", "near-zero retention below", "percent") / 100
    told = t.printed("fass", "text", "smallest retained subset", "pairs")
    return Found(
        exact(most),
        "above",
        told,
        said=f"pairs that “<0.1 %” of {images:,.0f} images leaves at most",
        command=ARITHMETIC,
    )


def grad_cam_imagenet(t: Tables) -> Found:
    least = t.printed("fass", "text", "Grad-CAM on ImageNet, ResNet-50", "FASS")
    mean = t.printed("fass", "scores ImageNet", "Grad-CAM", "FASS")
    said = f"mean of Table 4 ({mean:g}) less the smallest of the four in the text ({least:g})"
    return Found(exact(mean - least), said=said, command=ARITHMETIC)


def rows_of_table_4(t: Tables) -> Found:
    gaps = []
    for data in DATA:
        for method in METHODS:
            gap = fass_cells(t, data, method).to_numpy().mean() - t.printed("fass", f"scores {data}", method, "FASS")
            gaps.append(Part(f"{method} on {data}", gap, gap, gap))
    return Found(
        tuple(gaps), "within", 0, 0.005, every=True, said="mean of the appendix less Table 4", command=ARITHMETIC
    )


def components(t: Tables) -> Found:
    gaps = []
    for data in DATA:
        table = t.paper("fass", f"scores {data}")
        apart = (table[["SSIM", "Spearman", "Jaccard"]].mean(axis=1) - table["FASS"]).abs()
        gaps += [Part(f"{m} on {data}", v, v, v) for m, v in apart.items()]
    return Found(
        tuple(gaps),
        "below",
        0.0015,
        every=True,
        said="mean of the three components less the printed FASS",
        command=ARITHMETIC,
    )


def printed_order(t: Tables) -> Found:
    leads = []
    for method in METHODS:
        scores = [t.printed("fass", f"scores {data}", method, "FASS") for data in DATA]
        lead = min(scores[0] - scores[1], scores[1] - scores[2])
        leads.append(Part(method, lead, lead, lead))
    return Found(
        tuple(leads), every=True, said="smallest step down ImageNet > CIFAR-10 > COCO in Table 4", command=ARITHMETIC
    )


def printed_first(cells: bool) -> Callable[[Tables], Found]:
    def test(t: Tables) -> Found:
        leads = []
        for data in DATA:
            first = fass_cells(t, data, "Grad-CAM")
            others = np.max([fass_cells(t, data, m).to_numpy() for m in METHODS if m != "Grad-CAM"], axis=0)
            best = np.max([fass_cells(t, data, m).mean(axis=1) for m in METHODS if m != "Grad-CAM"], axis=0)
            lead = (first.to_numpy() - others).min(axis=1) if cells else first.mean(axis=1).to_numpy() - best
            leads += [Part(f"{a} on {data}", v, v, v) for a, v in zip(first.index, lead, strict=True)]
        what = "of every perturbation" if cells else "of the row means"
        return Found(
            tuple(leads), every=True, said=f"Grad-CAM's smallest lead, {what} in the appendix", command=ARITHMETIC
        )

    return test


def printed_spread(t: Tables) -> Found:
    spreads = {}
    for data in DATA:
        for method in METHODS:
            means = fass_cells(t, data, method).mean(axis=1)
            spreads[f"{method} on {data}"] = float(means.max() - means.min())
    where = max(spreads, key=lambda name: spreads[name])
    told = t.printed("fass", "text", "largest spread of architectures", "FASS")
    gap = t.printed("fass", "text", "gap of Grad-CAM and IG", "FASS")
    ratio = gap / spreads[where]
    said = f"largest spread in the appendix ({where}), of which the gap of methods is {ratio:.1f} times"
    return Found(exact(spreads[where]), "within", told, 0.005, said=said, command=ARITHMETIC)


def printed_families(t: Tables) -> Found:
    gaps = []
    for data in DATA:
        for method in METHODS:
            cells = fass_cells(t, data, method).mean()
            gap = float(cells[["brightness", "noise"]].mean() - cells[["rotation", "translation"]].mean())
            gaps.append(Part(f"{method} on {data}", gap, gap, gap))
    return Found(tuple(gaps), every=True, said="photometric less geometric in the appendix", command=ARITHMETIC)


def swapped(t: Tables) -> Found:
    gaps = []
    for data in DATA:
        gap = float(fass_cells(t, data, "IG").loc["ViT-B/16"].mean()) - t.printed(
            "fass", "text", f"ViT-B/16, IG on {data}", "FASS"
        )
        gaps.append(Part(data, gap, gap, gap))
    return Found(
        tuple(gaps), "within", 0, 0.001, every=True, said="ViT's IG in the appendix less the text", command=ARITHMETIC
    )


TESTS = {
    "fass-tables-2-3": tables_2_and_3,
    "fass-table-3": table_3_and_appendix,
    "fass-553": smallest_subset,
    "fass-722": grad_cam_imagenet,
    "fass-table-4": rows_of_table_4,
    "fass-components": components,
    "fass-data-printed": printed_order,
    "fass-first-printed": printed_first(False),
    "fass-first-cells": printed_first(True),
    "fass-spread": printed_spread,
    "fass-families-printed": printed_families,
    "fass-swapped": swapped,
}

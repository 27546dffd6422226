"""FASS: what networks say of its claims."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pandas as pd
from claims import GRID, Found, Part, every_pair, parts
from reading import Tables, averaged, chosen
from scipy.stats import ttest_ind

PAPER = {
    "rotation": 15.0,
    "translation": 20.0,
    "brightness": 1.5,
    "gaussian_noise": 0.15,
    "jpeg": 40.0,
}
PLAIN = {
    "axis": "stability",
    "measure": "fass",
    "modality": "image",
    "variant": "plain",
    "sweep": False,
}
"""What scores are taken from; the share of unchanged predictions is that of the run with most samples."""
METHODS = ("grad_cam", "integrated_gradients", "gradient_shap", "lime")
GEOMETRIC, PHOTOMETRIC = ("rotation", "translation"), ("brightness", "gaussian_noise")


def at_paper(rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Rows of a perturbation at the paper's magnitude; of a network without it, at its strongest."""
    here = rows[rows["condition"] == name]
    chosen = []
    for _, part in here.groupby("network", sort=False, observed=True):
        levels = part["severity"].astype(float)
        strongest = levels.min() if name == "jpeg" else levels.max()
        exactly = np.isclose(levels, PAPER[name])
        chosen.append(part[exactly if exactly.any() else levels == strongest])
    return pd.concat(chosen) if chosen else here


def values_at_paper(t: Tables) -> Tables:
    """The tables with the values of stability at the paper's magnitudes alone."""
    values = t.values[(t.values["axis"] == "stability") & ~t.values["sweep"]]
    return replace(t, values=pd.concat([at_paper(values, name) for name in PAPER]))


def unchanged(t: Tables) -> pd.DataFrame:
    """Per network and condition the share of unchanged predictions, of plain networks of images."""
    return t.kept[(t.kept["modality"] == "image") & (t.kept["variant"] == "plain")]


def asked(rows: pd.DataFrame) -> tuple[int, ...]:
    return tuple(rows.groupby("network", observed=True)["attempted"].max().astype(int))


def retained(name: str) -> Callable[[Tables], Found]:
    """The share of pairs whose prediction a perturbation leaves, in per cent, one part a network."""

    def test(t: Tables) -> Found:
        rows = at_paper(unchanged(t), name)
        published = {"gaussian_noise": "noise"}.get(name, name)
        return Found(
            parts(averaged(rows, of="retention"), 100),
            "below",
            1.0,
            ends=(0, 100),
            said="% of pairs retained",
            command=GRID,
            published=t.printed("fass", "retention by perturbation", published, "mean"),
            samples=asked(rows),
        )

    return test


def noise_first(t: Tables) -> Found:
    """Noise retains more than each of the others, by the worst of them."""
    rows = unchanged(t)
    shares = {name: averaged(at_paper(rows, name), of="retention") for name in PAPER}
    noise, found = shares.pop("gaussian_noise"), []
    for r in noise.itertuples():
        others = [
            o
            for other in shares.values()
            for o in other[other["network"] == r.network].itertuples()
        ]
        if others:
            o = max(others, key=lambda row: row.value)
            found.append(
                Part(
                    r.network,
                    100 * (r.value - o.value),
                    100 * (r.low - o.high),
                    100 * (r.high - o.low),
                )
            )
    said = "retention with noise less the largest of the others, points"
    return Found(
        tuple(found), ends=(-100, 100), said=said, every=True, command=GRID, samples=asked(rows)
    )


def mild(t: Tables) -> Found:
    rows = unchanged(t)
    rows = rows[(rows["condition"] == "rotation") & np.isclose(rows["severity"].astype(float), 5)]
    found = parts(averaged(rows, of="retention"), 100)
    return Found(
        found,
        "above",
        75,
        ends=(0, 100),
        said="% retained at 5°",
        command=GRID,
        samples=asked(rows),
    )


def first_of_all(method: str) -> Callable[[Tables], Found]:
    """The lead of a method over the paper's others, by paired tests of the overall score."""

    def test(t: Tables) -> Found:
        found = every_pair(
            t, "stability", "fass", [(method, other) for other in METHODS if other != method]
        )
        return Found(found, every=True, said="lead in FASS, aligned and calibrated", command=GRID)

    return test


def first_raw(t: Tables) -> Found:
    """Grad-CAM less each of the paper's others, raw scores of the same samples at the paper's strengths."""
    over, held = {"axis": "stability", "measure": "fass", "modality": "image"}, values_at_paper(t)
    found: list[Part] = []
    for other in METHODS[1:]:
        rows = held.contrast(over, {"base": METHODS[0]}, {"base": other}, ("condition",))
        found += parts(rows.assign(network=rows["network"].astype(str) + f", grad_cam − {other}"))
    return Found(tuple(found), every=True, said="lead in raw FASS", command=GRID)


def last_of_all(t: Tables) -> Found:
    """The lead of the paper's other methods over LIME."""
    found = every_pair(
        t, "stability", "fass", [(other, "lime") for other in METHODS if other != "lime"]
    )
    return Found(
        found, every=True, said="lead over LIME in FASS, aligned and calibrated", command=GRID
    )


def ig_shap(t: Tables) -> Found:
    rows = t.between("stability", "fass", "integrated_gradients", "gradient_shap")
    rows = rows[rows["network"].isin(t.networks.loc[t.networks["modality"] == "image", "network"])]
    return Found(
        parts(rows), "within", 0, 0.05, every=True, said="IG less GradientSHAP, FASS", command=GRID
    )


def families(form: str) -> Callable[[Tables], Found]:
    """Photometric less geometric, per network over the methods: raw values by sample, best forms by cell."""

    def test(t: Tables) -> Found:
        over = {
            "axis": "stability",
            "measure": "fass",
            "modality": "image",
            "base": ("integrated_gradients", "gradient_shap", "grad_cam"),
        }
        if form == "raw":
            rows = values_at_paper(t).contrast(
                over, {"condition": PHOTOMETRIC}, {"condition": GEOMETRIC}
            )
            if rows.empty:
                rows = _apart(t, over, "mean")
        else:
            rows = _apart(t, over, "best")
        published = t.paper("fass", "scores by family")["FASS"]
        gap = float(published["photometric"] - published["geometric"])
        said = f"photometric less geometric FASS, {'raw' if form == 'raw' else 'aligned and calibrated'}"
        return Found(
            parts(rows),
            every=True,
            said=said,
            command=GRID,
            published=gap if form == "raw" else np.nan,
        )

    return test


def _apart(t: Tables, over: dict[str, object], of: str) -> pd.DataFrame:
    """Photometric less geometric from cells; the ends of both intervals are added, as the pairing is not used."""
    rows = t.select(**over, sweep=False)
    sides = []
    for names in (PHOTOMETRIC, GEOMETRIC):
        chosen = pd.concat([at_paper(rows, name) for name in names])
        sides.append(
            averaged(averaged(chosen, ("network", "base"), of), of="value").set_index("network")
        )
    photo, geo = sides[0].align(sides[1], join="inner", axis=0)
    apart = pd.DataFrame(
        {"value": photo["value"] - geo["value"], "low": photo["low"] - geo["high"]}
    )
    return apart.assign(high=photo["high"] - geo["low"]).reset_index()


def method_first(t: Tables) -> Found:
    found = t.split
    if found is None:
        return Found(())
    row = found.contrast("method", "architecture")
    return Found(
        (Part("", *row),),
        said="share of the variance of FASS due to the method less that due to the architecture",
        command=GRID,
    )


def transformer(t: Tables) -> Found:
    """IG on transformers less IG on convolutional networks of the same data."""
    rows = t.select(**PLAIN, base="integrated_gradients")
    means = averaged(averaged(rows, ("data", "family", "network")), ("data", "family"), "value")
    found = []
    for data, part in means.groupby("data", sort=False):
        by = part.set_index("family")
        if {"transformer", "convolutional"} <= set(by.index):
            a, b = by.loc["transformer"], by.loc["convolutional"]
            found.append(
                Part(data, a["value"] - b["value"], a["low"] - b["high"], a["high"] - b["low"])
            )
    return Found(
        tuple(found),
        every=True,
        said="raw FASS of IG, transformer less convolutional",
        command=GRID,
    )


def data_order(t: Tables) -> Found:
    """Photographs less CIFAR-10 by Welch's interval over networks, those of several seeds as one.

    Networks differ between the two, so their spread, not that of the samples, says what the difference can be known to.
    """
    rows = t.select(**PLAIN, base="grad_cam", data=("photographs", "cifar10"))
    each = averaged(rows, ("data", "architecture", "variant"))
    photographs, cifar = (
        each.loc[each["data"] == name, "value"].astype(float) for name in ("photographs", "cifar10")
    )
    if photographs.empty or cifar.empty:
        return Found(())
    low = high = np.nan
    if min(len(photographs), len(cifar)) > 1:
        low, high = ttest_ind(photographs, cifar, equal_var=False).confidence_interval()
    label = f"{len(photographs)} networks and {len(cifar)}"
    return Found(
        (Part(label, photographs.mean() - cifar.mean(), float(low), float(high)),),
        ends=(-1, 1),
        said="raw FASS of Grad-CAM, ImageNet photographs less CIFAR-10",
        command=GRID,
        published=0.722 - 0.717,
    )


def order_kept(t: Tables) -> Found:
    """Rank correlation of Grad-CAM's maps before and after, as the paper rescales it, by the run of most samples."""
    wanted = {**PLAIN, "measure": "spearman", "base": "grad_cam", "data": "photographs"}
    rows, where = t.select(**wanted), ["network", "condition", "severity"]
    more = chosen(t.swept, {**wanted, "sweep": True}).merge(rows[where])
    rows = (
        pd.concat([more, rows])
        .sort_values("attempted", ascending=False, kind="stable")
        .drop_duplicates(where)
    )
    return Found(
        parts(averaged(rows)),
        "above",
        0.9,
        ends=(0, 1),
        every=True,
        said="Grad-CAM's (ρ + 1) / 2 on photographs",
        command=GRID,
        published=t.printed("fass", "scores ImageNet", "Grad-CAM", "Spearman"),
        samples=asked(rows),
    )


TESTS = {
    "fass-translation": retained("translation"),
    "fass-brightness": retained("brightness"),
    "fass-jpeg": retained("jpeg"),
    "fass-noise": noise_first,
    "fass-mild": mild,
    "fass-grad-cam": first_of_all("grad_cam"),
    "fass-grad-cam-raw": first_raw,
    "fass-lime": last_of_all,
    "fass-ig-shap": ig_shap,
    "fass-order-kept": order_kept,
    "fass-geometric": families("raw"),
    "fass-geometric-aligned": families("best"),
    "fass-method": method_first,
    "fass-transformer": transformer,
    "fass-data": data_order,
}

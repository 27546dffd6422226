"""ROAD and, on the same sweeps, SRG and LATEC."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from claims import ARITHMETIC, GRID, Found, Part, exact, parts
from reading import CONTROLS, HEADLINES, SIGNS, Tables, base
from scipy.stats import rankdata
from scipy.stats import t as student

CIFAR = "road"
RANKINGS = "rankings"
AUC = "areas"
DRAWS = 400
KIND = ["data", "architecture", "variant"]
"""What counts as one where networks are a sample: those that differ in their seed alone are averaged first."""


def earlier(
    key: str, command: str, said: str, side: str, bound: float, margin: float = 0.0, **more: object
) -> Callable[[Tables], Found]:
    def test(t: Tables) -> Found:
        return Found(
            parts(t.measured(key), label="part"),
            side,
            bound,
            margin,
            said=said,
            command=command,
            **more,
        )  # type: ignore[arg-type]

    return test


def apart(first: str, second: str, command: str, said: str) -> Callable[[Tables], Found]:
    """First − second of two earlier results by part, with the ends of both intervals added."""

    def test(t: Tables) -> Found:
        a, b = (t.measured(key).set_index("part") for key in (first, second))
        found = [
            Part(p, a.value[p] - b.value[p], a.low[p] - b.high[p], a.high[p] - b.low[p])
            for p in a.index
            if p in b.index
        ]
        return Found(tuple(found), said=said, command=command)

    return test


def text_and_table(row: str, other: str, column: str, said: str) -> Callable[[Tables], Found]:
    def test(t: Tables) -> Found:
        gap = t.printed("road", "correlations", row, column) - t.printed(
            "road", "correlations", other, column
        )
        return Found(exact(gap), "within", 0, 0.005, said=said, command=ARITHMETIC)

    return test


def cost(t: Tables) -> Found:
    seconds = t.paper("road", "other")
    share = 100 * seconds.loc["seconds, ROAD", "linear"] / seconds.loc["seconds, ROAR", "fixed"]
    return Found(
        exact(float(share)),
        "within",
        0.7,
        0.05,
        said="% of ROAR's time, from the seconds of Table 4",
        command=ARITHMETIC,
    )


def _correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _wide(values: pd.DataFrame, condition: str) -> pd.DataFrame:
    """Samples by methods under one condition, without controls."""
    rows = values[(values["condition"] == condition) & ~values["base"].isin(CONTROLS)]
    return rows.pivot_table(index="sample", columns="explainer", values="value", observed=True)


def rank_agreement(a: pd.DataFrame, b: pd.DataFrame) -> tuple[float, float, float]:
    """Spearman's correlation of the means of methods in two tables of the same samples, with a bootstrap interval."""
    methods = a.columns.intersection(b.columns)
    samples = a[methods].dropna().index.intersection(b[methods].dropna().index)
    if len(methods) < 4 or len(samples) < 20:
        return np.nan, np.nan, np.nan
    x, y = a.loc[samples, methods].to_numpy(), b.loc[samples, methods].to_numpy()
    random = np.random.default_rng(0)
    drawn = [random.integers(0, len(x), len(x)) for _ in range(DRAWS)]
    # The ranks of all draws at once, (DRAWS, methods), centred: Pearson's correlation of ranks is Spearman's.
    ranks = [
        rankdata(np.stack([scores[i].mean(0) for i in drawn]), axis=1) - (len(methods) + 1) / 2
        for scores in (x, y)
    ]
    scale = np.sqrt((ranks[0] ** 2).sum(1) * (ranks[1] ** 2).sum(1))
    low, high = np.quantile((ranks[0] * ranks[1]).sum(1) / scale, [0.025, 0.975])
    return _correlation(x.mean(0), y.mean(0)), float(low), float(high)


def mean_of(label: str, each: Sequence[float]) -> Part:
    """The mean of a few numbers with Student's interval."""
    half = float(student.ppf(0.975, len(each) - 1) * np.std(each, ddof=1) / np.sqrt(len(each)))
    mean = float(np.mean(each))
    return Part(label, mean, mean - half, mean + half)


def over_kinds(said: str, each: Mapping[tuple[str, ...], Sequence[float]]) -> tuple[Part, ...]:
    """The mean over kinds of networks, from the numbers of each kind's networks; nothing of fewer than three kinds."""
    means = [float(np.mean(own)) for own in each.values()]
    return (mean_of(f"{said} {len(means)} kinds of networks", means),) if len(means) > 2 else ()


def on_grid(t: Tables, filling: str) -> tuple[Part, ...]:
    """MoRF against LeRF at the same share removed, all methods, the mean over kinds of networks of images.

    Per network the mean over shares of the rank correlation of accuracies, low after MoRF and high after LeRF, where
    methods differ in both.
    """
    rows = t.select(axis="faithfulness", measure="accuracy", control=False, modality="image")
    rows = rows[
        rows["condition"].astype(str).str.split("(").str[0].str.split(" ").str[0] == filling
    ]
    order = rows["condition"].astype(str).str.split(" ").str[-1]
    each: dict[tuple[str, ...], list[float]] = {}
    for key, part in rows.assign(order=order).groupby(
        [*KIND, "network"], sort=False, observed=True
    ):
        wide = part.pivot_table(
            index=["severity", "explainer"], columns="order", values="mean", observed=True
        )
        if {"morf", "lerf"} <= set(wide.columns):
            levels = [level[["morf", "lerf"]].dropna() for _, level in wide.groupby("severity")]
            ordered = [w for w in levels if len(w) >= 4 and w.nunique().min() > 1]
            own = [_correlation(-w["morf"], w["lerf"]) for w in ordered]
            each.setdefault(key[:-1], []).extend([float(np.mean(own))] if own else [])
    return over_kinds("all methods on", {kind: own for kind, own in each.items() if own})


def orders_agree(linear: bool) -> Callable[[Tables], Found]:
    """MoRF against LeRF on the grid's networks, by accuracy; else the run on CIFAR-10 in the repository."""

    def test(t: Tables) -> Found:
        key, column = ("cifar-linear", "linear") if linear else ("cifar-fixed", "fixed")
        told = t.printed("road", "correlations", "MoRF and LeRF, not retrained", column)
        filling = "noisy_linear_published" if linear else "dataset_mean"
        return Found(
            (*parts(t.measured(key), label="part"), *on_grid(t, filling)),
            "within",
            told,
            0.1,
            ends=(-1, 1),
            command=CIFAR,
            said=f"rank correlation of MoRF and LeRF, {column} filling",
            published=told,
        )

    return test


def retrained(order: str) -> Callable[[Tables], Found]:
    def test(t: Tables) -> Found:
        told = t.printed("road", "correlations", f"retrained and not, {order}", "linear")
        return Found(
            parts(t.measured(f"retrained-{order.lower()}"), label="part"),
            "above",
            0.5,
            ends=(-1, 1),
            command=RANKINGS,
            said=f"rank correlation with and without retraining, {order}",
            published=told,
        )

    return test


def imputers_agree(t: Tables) -> Found:
    """Rank correlation between imputers of the symmetric score (LeRF − MoRF) / 2, per network and pair of imputers."""
    held = t.values[(t.values["axis"] == "faithfulness") & (t.values["measure"] == "road")]
    found = []
    for network, part in held.groupby("network", sort=False, observed=True):
        for a, b in combinations(part["condition"].unique(), 2):
            row = rank_agreement(_wide(part, a), _wide(part, b))
            if np.isfinite(row[0]):
                found.append(Part(f"{network}, {base(a)} and {base(b)}", *row))
    return Found(
        tuple(found),
        "above",
        0.8,
        ends=(-1, 1),
        every=True,
        said="rank correlation of methods between fillings",
        command=GRID,
    )


def better_than_one_order(t: Tables) -> Found:
    """The correlation between fillings of the symmetric score less that of MoRF alone (deletion_auc), from cells."""
    found: dict[tuple[str, ...], list[float]] = {}
    rows = t.select(
        axis="faithfulness", measure=("road", "deletion_auc"), control=False, modality="image"
    )
    for key, part in rows.groupby([*KIND, "network"], sort=False, observed=True):
        gains = []
        for a, b in combinations(part["condition"].unique(), 2):
            both = [
                part[(part["measure"] == m)].pivot_table(
                    index="explainer", columns="condition", values="mean", observed=True
                )
                for m in ("road", "deletion_auc")
            ]
            if all({a, b} <= set(w.columns) and len(w[[a, b]].dropna()) >= 4 for w in both):
                gains.append(
                    np.subtract(*(_correlation(*w[[a, b]].dropna().to_numpy().T) for w in both))
                )
        if gains:
            found.setdefault(key[:-1], []).append(float(np.mean(gains)))
    said = "rank correlation between fillings, symmetric less MoRF alone"
    return Found(over_kinds("mean of", found), said=said, command=GRID)


def expected_gradients(t: Tables) -> Found:
    """Mean rank over axes of expected gradients less that of every other method, over networks; less is better.

    Ranks are of overall headline scores among methods without controls, divided by their number.
    """
    each: dict[tuple[str, ...], list[pd.Series]] = {}
    for key, part in t.select(modality="image", control=False).groupby(
        [*KIND, "network"], sort=False, observed=True
    ):
        ranks = []
        for axis, names in HEADLINES.items():
            rows = part[(part["axis"] == axis) & part["measure"].isin(names[:1])]
            sign = SIGNS.get((axis, names[0]), 0) if names else 0
            if sign and rows["base"].nunique() > 3:
                means = rows.groupby("base", observed=True)["best"].mean().dropna()
                ranks.append(pd.Series(rankdata(-sign * means), means.index) / len(means))
        table = pd.DataFrame(ranks)
        if len(table) and "expected_gradients" in table:
            each.setdefault(key[:-1], []).append(
                table.sub(table["expected_gradients"], axis=0).mean()
            )
    leads = -pd.DataFrame([pd.DataFrame(own).mean() for own in each.values()])
    others = [m for m in leads if m != "expected_gradients" and leads[m].notna().sum() > 2]
    return Found(
        tuple(mean_of(f"than {m}", leads[m].dropna().to_list()) for m in others),
        "below",
        0.0,
        ends=(-1, 1),
        every=True,
        said=f"mean rank (0 best, 1 worst) over axes and {len(each)} kinds of networks, less that of another",
        command=GRID,
    )


AREA = "area under the ROC curve"
TEXT, TABLE, FULL = (
    f"MoRF and LeRF, retrained{where}" for where in (", in the text", "", ", in the full table")
)
TESTS = {
    "road-fixed": orders_agree(False),
    "road-linear": orders_agree(True),
    "road-better": apart(
        "cifar-linear", "cifar-fixed", CIFAR, "rank correlation, linear less fixed"
    ),
    "road-retrained-morf": retrained("MoRF"),
    "road-retrained-lerf": retrained("LeRF"),
    "road-detect": apart("auc-fixed-10", "auc-linear-10", AUC, f"{AREA}, fixed less linear"),
    "road-detect-50": apart("auc-fixed-50", "auc-linear-50", AUC, f"{AREA}, fixed less linear"),
    "road-sigma": apart("auc-linear-10", "auc-published-10", AUC, f"{AREA}, σ = 0.01 less σ = 0.1"),
    "road-masks": earlier(
        "masks", CIFAR, "% right from masks alone, IG, half removed", "above", 75, published=80
    ),
    "road-cost": earlier("cost", CIFAR, "% of ROAR's time", "below", 1.0, published=0.7),
    "road-cost-printed": cost,
    "road-text": text_and_table(TEXT, TABLE, "fixed", "text less Table 2"),
    "road-tables": text_and_table(TABLE, FULL, "linear", "Table 2 less Table 7"),
    "srg-consistent": imputers_agree,
    "srg-better": better_than_one_order,
    "latec-eg": expected_gradients,
}

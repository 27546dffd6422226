"""The atlas's tables as they are read: cells with what is known of their network, and the values that papers print."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes import AXES
from heatproof.statistics.estimates import interval

TABLES = Path(__file__).parent / "tables"
COLUMNS = {
    "networks": "network data architecture family seed variant parameters accuracy accuracy_low accuracy_high ece "
    "samples_tested seconds_to_train command modality",
    "runs": "run network study axes samples explainers precision device device_seconds heatproof",
    "cells": "run network axis evaluation measure condition severity explainer n undefined attempted retained "
    "retention retention_low retention_high mean low high chance calibrated calibrated_low calibrated_high aligned "
    "aligned_low aligned_high aligned_calibrated aligned_calibrated_low aligned_calibrated_high noise_floor settings",
    "pairs": "run network axis measure first second difference low high p n",
    "values": "run network axis measure explainer condition severity sample value",
    "ahead": "network axis winner loser",
    "ranking": "run network axis evaluation measure explainer score low high raw rank rank_low rank_high samples mark",
    "papers": "paper place table row column value",
    "earlier": "key part value low high n page command",
}
SAME = ["axis", "measure", "condition", "severity", "explainer"]
SWEEP = ".sweeps"
"""The end of the name of runs that repeat conditions with fewer methods."""
CONTROLS = ("random", "sobel", "weight_noise")
MODALITIES = {
    "ecg": "series",
    "graph": "graph",
    "points": "set",
    "text": "text",
    "volume": "volume",
}
PHOTOGRAPHS = ("mobilenet", "squeezenet", "efficientnet")
SIGNS = {(axis.name, m.name): m.sign for axis in AXES for m in axis.measures}
"""(axis, measure) -> 1 where more is better, −1 where less is, 0 where neither."""
HEADLINES = {axis.name: axis.of_role("headline") for axis in AXES}


def base(label: str) -> str:
    """The method that a label is of, without its settings.

    >>> base("lime(samples=32)")
    'lime'
    """
    return label.split("(", maxsplit=1)[0]


@dataclass(frozen=True)
class Tables:
    """All tables of a folder; one that is not there is empty."""

    networks: pd.DataFrame
    runs: pd.DataFrame
    cells: pd.DataFrame
    pairs: pd.DataFrame
    values: pd.DataFrame
    ahead: pd.DataFrame
    """Significant pairs by the sign flips of `retest.py`; the axes that are not in it are judged by `pairs`."""
    papers: pd.DataFrame
    earlier: pd.DataFrame
    ranking: pd.DataFrame
    kept: pd.DataFrame
    """Cells of which the share of unchanged predictions is read: of every condition the one of most samples."""
    swept: pd.DataFrame
    """Cells of the sweeps of severity, those that other runs have too among them."""

    def paper(self, paper: str, table: str) -> pd.DataFrame:
        """One printed table, rows by columns, in the paper's order; "<0.1" is 0.1, its upper end."""
        part = self.papers[(self.papers["paper"] == paper) & (self.papers["table"] == table)]
        numbers = part.assign(value=part["value"].astype(str).str.lstrip("<").astype(float))
        wide = numbers.pivot(index="row", columns="column", values="value")
        return wide.loc[part["row"].unique(), part["column"].unique()]

    def printed(self, paper: str, table: str, row: str, column: str) -> float:
        """One printed number."""
        return float(self.paper(paper, table).loc[row, column])

    def select(self, **wanted: Any) -> pd.DataFrame:
        """Cells by their columns, each given as one value or a tuple of them."""
        return chosen(self.cells, wanted)

    @cached_property
    def _measured(self) -> set[tuple[str, str]]:
        return set(
            self.cells[["axis", "measure"]].drop_duplicates().itertuples(index=False, name=None)
        )

    def headline(self, axis: str) -> str:
        """The first headline of an axis that the cells have; empty where there is none."""
        return next(
            (name for name in HEADLINES.get(axis, []) if (axis, name) in self._measured), ""
        )

    @cached_property
    def asked(self) -> pd.DataFrame:
        """network, axis, samples: how many a network was asked about, by what its cells attempted, sweeps apart."""
        own = self.cells[~self.cells["sweep"]]
        found = own.groupby(["network", "axis"], observed=True)["attempted"].max()
        return found.rename("samples").dropna().astype(int).reset_index()

    @cached_property
    def split(self) -> Any:
        """Where the spread of FASS comes from: a `spread.Split`, or None."""
        from spread import split

        return split(self)

    def between(self, axis: str, measure: str, first: str, second: str) -> pd.DataFrame:
        """The paired differences first − second of two methods, one row a network (network, value, low, high)."""
        part = self.pairs[(self.pairs["axis"] == axis) & (self.pairs["measure"] == measure)]
        one = part[(part["first_base"] == first) & (part["second_base"] == second)]
        other = part[(part["first_base"] == second) & (part["second_base"] == first)]
        turned = other.assign(
            difference=-other["difference"], low=-other["high"], high=-other["low"]
        )
        both = pd.concat([one, turned]).rename(columns={"difference": "value"})
        return both.drop_duplicates("network")[["network", "value", "low", "high"]].reset_index(
            drop=True
        )

    def contrast(
        self,
        over: dict[str, Any],
        first: dict[str, Any],
        second: dict[str, Any],
        within: Sequence[str] = ("explainer",),
    ) -> pd.DataFrame:
        """Per network the mean over its samples of first − second, both means over what they choose of `values`.

        Differences are taken within a sample and a level of `within`, where both sides have a value, then averaged over
        the levels; the interval is that of paired differences.
        """
        held = chosen(self.values, over)
        rows = []
        for network, part in held.groupby("network", sort=False, observed=True):
            sides = [
                chosen(part, side).groupby([*within, "sample"], observed=True)["value"]
                for side in (first, second)
            ]
            apart = (
                (sides[0].mean() - sides[1].mean()).dropna().groupby("sample", observed=True).mean()
            )
            if len(apart) > 1:
                numbers = apart.to_numpy(dtype=float)
                low, high = (float(end[0]) for end in interval(numbers[None]))
                rows.append((network, float(numbers.mean()), low, high))
        return pd.DataFrame(rows, columns=["network", "value", "low", "high"])

    def measured(self, key: str) -> pd.DataFrame:
        """What an earlier run in the repository found, by the key of `earlier.csv`."""
        return self.earlier[self.earlier["key"] == key].reset_index(drop=True)


def chosen(frame: pd.DataFrame, wanted: dict[str, Any]) -> pd.DataFrame:
    """Rows by their columns, each given as one value or a tuple of them."""
    keep = np.ones(len(frame), dtype=bool)
    for name, value in wanted.items():
        keep &= frame[name].isin(value if isinstance(value, tuple) else (value,)).to_numpy()
    return frame[keep]


def averaged(
    rows: pd.DataFrame, by: Sequence[str] = ("network",), of: str = "mean"
) -> pd.DataFrame:
    """Means of scores and of both ends of their intervals within groups.

    The standard deviation of a mean is at most the mean of the standard deviations, whatever goes together, so the
    mean of the ends is an interval that is wide enough where rows share their samples.
    """
    ends = ("low", "high") if of in ("mean", "value") else (f"{of}_low", f"{of}_high")
    grouped = rows.groupby(list(by), sort=False, observed=True)
    return grouped.agg(
        value=(of, "mean"), low=(ends[0], "mean"), high=(ends[1], "mean")
    ).reset_index()


def load(folder: Path = TABLES) -> Tables:
    """Read what is there."""
    read = {name: _read(folder, name, columns.split()) for name, columns in COLUMNS.items()}
    networks, cells, pairs = (
        _with_known(read["networks"], read["cells"]),
        read["cells"],
        read["pairs"],
    )
    about = networks[["network", "data", "architecture", "family", "seed", "variant", "modality"]]
    for name in ("cells", "values"):
        read[name]["severity"] = read[name]["severity"].astype(float).round(6)
    cells = cells.merge(about, on="network", how="left").reset_index(drop=True)
    cells["sweep"], pairs["sweep"] = (
        frame["run"].astype(str).str.endswith(SWEEP) for frame in (cells, pairs)
    )
    for edge in ("", "_low", "_high"):
        best = cells[edge[1:] or "mean"].astype(float)
        for form in ("calibrated", "aligned_calibrated"):
            best = cells[form + edge].astype(float).where(cells[form].notna(), best)
        cells[f"best{edge}"] = best
    cells["base"] = _bases(cells["explainer"])
    cells["method"] = (
        cells["base"].astype(str).str.split(",").str[0]
    )  # without the layer that a label may name
    cells["control"] = cells["base"].isin(CONTROLS)
    swept = cells[cells["sweep"]].reset_index(drop=True)
    kept = cells[(cells["axis"] == "stability") & cells["retention_low"].notna()]
    kept = kept.sort_values("attempted", kind="stable").reset_index(drop=True)
    kept = kept.drop_duplicates(["network", "condition", "severity"], keep="last").reset_index(
        drop=True
    )
    first = cells.sort_values(
        ["sweep", "attempted"], ascending=[True, False]
    )  # of two runs that of more samples
    cells = first.drop_duplicates(["network", *SAME]).sort_index().reset_index(drop=True)
    pairs = pairs.sort_values("sweep", kind="stable")
    pairs = pairs.assign(first_base=_bases(pairs["first"]), second_base=_bases(pairs["second"]))
    values = (
        read["values"]
        .assign(base=_bases(read["values"]["explainer"]))
        .merge(about, on="network", how="left")
    )
    values["sweep"] = values["run"].astype(str).str.endswith(SWEEP)
    ranking = read["ranking"].assign(base=_bases(read["ranking"]["explainer"]))
    return Tables(
        networks,
        read["runs"],
        cells,
        pairs,
        values,
        read["ahead"],
        read["papers"],
        read["earlier"],
        ranking,
        kept,
        swept,
    )


def _bases(labels: pd.Series) -> pd.Series:
    return labels.map({name: base(str(name)) for name in labels.unique()})


def _modality(data: str) -> str:
    return next((kind for key, kind in MODALITIES.items() if key in data), "image")


def _with_known(networks: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Networks with their modality, and those of the cells that have no training card of that name."""
    kinds = [_modality(str(data)) for data in networks["data"]]
    networks["modality"] = networks["modality"].where(
        networks["modality"].notna(), pd.Series(kinds, dtype=object)
    )
    there = set(networks["network"])
    named = [n for n in cells["network"].dropna().astype(str).unique() if n not in there]
    named = [n for n in named if n.startswith((*PHOTOGRAPHS, *MODALITIES))]
    more = pd.DataFrame([{"network": n, "architecture": n, "variant": "plain"} for n in named])
    if named:
        more["data"] = ["photographs" if n.startswith(PHOTOGRAPHS) else n for n in named]
        more["modality"] = ["image" if n.startswith(PHOTOGRAPHS) else _modality(n) for n in named]
        more["family"] = ["convolutional" if n.startswith(PHOTOGRAPHS) else "other" for n in named]
    return (
        pd.concat([networks, more], ignore_index=True)
        if len(networks) and named
        else more
        if named
        else networks
    )


def _read(folder: Path, name: str, columns: list[str]) -> pd.DataFrame:
    """A table with all its columns: those that the file lacks are empty, those that it has besides are kept."""
    csv, parquet = folder / f"{name}.csv", folder / f"{name}.parquet"
    if csv.exists():
        frame = pd.read_csv(csv)
    elif parquet.exists():
        frame = pd.read_parquet(parquet)
    else:
        frame = pd.DataFrame(columns=columns)
    for column in frame.columns[[isinstance(kind, pd.CategoricalDtype) for kind in frame.dtypes]]:
        frame[column] = frame[column].astype(object)
    for column in columns:
        if column not in frame:
            frame[column] = np.nan
    return frame

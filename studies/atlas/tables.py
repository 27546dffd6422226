"""What is kept of the atlas's runs: small tables, by the product's own `summary`, `ranking`, `tests` and `table`.

| file | a row is |
|---|---|
| networks.csv | a network, from its model card |
| runs.csv | a run directory: what was asked of whom, on how many samples, and what it cost |
| cells.parquet | the mean of a measure over the samples, with its interval, under one condition |
| ranking.parquet | the overall score of an explainer on an axis, its rank and the ranks that tests leave open |
| pairs.parquet | a paired test between two explainers, p corrected for all pairs of a study |
| values.parquet | the headline of one sample; conditions are left out, the last first, until the file is small enough |

Columns of cells have the names and the meaning of `Run.summary`, but for `network` (its model), `severity` (its level)
and `n` (retained); `settings` are those of the evaluation, less what its conditions say. Curves are kept as accuracy
alone, agreement as rank correlation.

Measures and conditions keep the names that the first of these tables had, so that all of them can be read alike. Where
maps were moved with the input, `mean` and `calibrated` are of maps that were not moved, and `aligned` and
`aligned_calibrated` of those that were. Symmetrised and converging scores have the measure of the explainer under the
conditions `symmetrised` and `convergence`, and a cascade of random layers has the measure `dependence`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pandas as pd
from whole import whole

import heatproof
from heatproof import axes

HERE = Path(__file__).resolve().parent
LEFT_OUT = (
    "logit",
    "margin",
    "probability",
    "passes",
    "early",
    "early_draws",
    "sign_agreement",
    "detectability",
)
ALSO = ("max_sensitivity", "correct")
"""Measures that rank nothing and are kept by sample all the same: claims set them beside others."""
UNALIGNED = "_unaligned"
"""The end of a measure of maps that were not moved with the input."""
CHECKS = ("noise_floor", "identity_check")
"""The start of measures that check the measurement, which are no cells of their own."""
OF_ELEMENTS = ("symmetrised", "convergence", "there_and_back")
"""Measures of symmetry that are conditions of the explainer's score here."""
OF_EXPLAINER = ["model", "evaluation", "explainer"]
LARGEST = {"cells": 2_200_000, "values": 2_700_000}
FORMS = [
    form + edge
    for form in ("calibrated", "aligned", "aligned_calibrated")
    for edge in ("", "_low", "_high")
]
KINDS = {"ecg": ("convolutional", "series"), "graphs": ("graph", "graph"), "points": ("set", "set")}
KINDS |= {
    "text": ("set", "text"),
    "volumes": ("convolutional", "volume"),
    "fashion": ("convolutional", "image"),
}
KINDS |= {"transformer": ("transformer", "text")}
"""Family and modality of the networks of studies/train_*.py, by their name or their data."""
NETWORKS = [
    "network",
    "data",
    "architecture",
    "family",
    "modality",
    "seed",
    "variant",
    "parameters",
    "accuracy",
]
NETWORKS += [
    "accuracy_low",
    "accuracy_high",
    "ece",
    "samples_tested",
    "seconds_to_train",
    "command",
]
RUNS = [
    "run",
    "network",
    "study",
    "axes",
    "samples",
    "explainers",
    "precision",
    "device",
    "device_seconds",
    "heatproof",
]
CELLS = [
    "run",
    "network",
    "axis",
    "evaluation",
    "measure",
    "condition",
    "severity",
    "explainer",
    "attempted",
    "n",
]
CELLS += [
    "undefined",
    "retention",
    "retention_low",
    "retention_high",
    "mean",
    "low",
    "high",
    "chance",
    *FORMS,
]
CELLS += ["noise_floor", "settings"]
PAIRS = [
    "run",
    "network",
    "axis",
    "measure",
    "first",
    "second",
    "difference",
    "low",
    "high",
    "p",
    "n",
]
RANKING = [
    "run",
    "network",
    "axis",
    "evaluation",
    "measure",
    "explainer",
    "score",
    "low",
    "high",
    "raw",
]
RANKING += ["rank", "rank_low", "rank_high", "samples", "mark"]
VALUES = [
    "run",
    "network",
    "axis",
    "measure",
    "explainer",
    "condition",
    "severity",
    "sample",
    "value",
]


def axis_names(run: heatproof.Run) -> dict[str, str]:
    """Evaluation -> the axis that it belongs to."""
    return {name: axes.axis_of(name, run.manifest).name for name in run.manifest.study.evaluations}


def cells(run: heatproof.Run) -> pd.DataFrame:
    """The summary in the columns of `CELLS` but for the run's key."""
    found = with_aligned_columns(with_first_names(run.summary()))
    dull = found["measure"].isin(LEFT_OUT)
    dull |= (found["evaluation"] == "agreement") & (found["measure"] != "spearman")
    found = found[~dull].reset_index(drop=True)
    found["axis"] = found["evaluation"].map(axis_names(run))
    found["settings"] = found["evaluation"].map(
        {name: settings(run, name) for name in found["evaluation"].unique()}
    )
    return found.rename(columns={"model": "network", "level": "severity", "retained": "n"})


def with_first_names(rows: pd.DataFrame) -> pd.DataFrame:
    """Return rows of a run with the measures that the first tables had, without checks on the measurement.

    >>> rows = {"model": "m", "evaluation": "symmetry", "explainer": "lime", "measure": ["equivariance", "convergence"]}
    >>> with_first_names(pd.DataFrame(rows))["measure"].tolist()
    ['equivariance', 'equivariance']
    """
    rows = rows[~rows["measure"].astype(str).str.startswith(CHECKS)].reset_index(drop=True)
    measure = rows["measure"].astype(str).replace("cascade_dependence", "dependence")
    is_score = measure.isin(["equivariance", "invariance"])
    scores = rows[is_score].drop_duplicates(OF_EXPLAINER)
    score_of = dict(zip(_places(scores, OF_EXPLAINER), scores["measure"].astype(str), strict=True))
    own_score = pd.Series(
        [score_of.get(place) for place in _places(rows, OF_EXPLAINER)], rows.index
    )
    return rows.assign(measure=measure.where(~measure.isin(OF_ELEMENTS), own_score))


def with_aligned_columns(summary: pd.DataFrame) -> pd.DataFrame:
    """Return a summary with a row for maps moved with the input and not, in columns of their own: see `FORMS`."""
    keys = ["dataset", *OF_EXPLAINER, "condition", "level", "measure"]
    is_unaligned = summary["measure"].str.endswith(UNALIGNED)
    unaligned = summary[is_unaligned]
    unaligned = unaligned.assign(measure=unaligned["measure"].str.removesuffix(UNALIGNED))
    rows = summary[~is_unaligned].reset_index(drop=True)
    number = {place: i for i, place in enumerate(_places(rows, keys))}
    at = [number[place] for place in _places(unaligned, keys)]
    edges = ("", "_low", "_high")
    for edge in edges:
        for form, column in (
            ("aligned", edge[1:] or "mean"),
            ("aligned_calibrated", f"calibrated{edge}"),
        ):
            rows[form + edge] = np.nan
            rows.loc[at, form + edge] = rows.loc[at, column]
    replaced = ["mean", "low", "high", "chance", *(f"calibrated{edge}" for edge in edges)]
    rows.loc[at, replaced] = unaligned[replaced].to_numpy()
    return rows


def _places(rows: pd.DataFrame, keys: Sequence[str]) -> list[tuple[Any, ...]]:
    """Return the values of some columns, row by row."""
    return list(rows[list(keys)].astype({"explainer": str}).itertuples(index=False, name=None))


def settings(run: heatproof.Run, evaluation: str) -> str:
    """The parameters of an evaluation less the one that its conditions name, as JSON."""
    separable = axes.axis_of(evaluation, run.manifest).separable
    known = run.manifest.study.evaluation(evaluation).settings
    return json.dumps({k: v for k, v in known.items() if k != separable}, sort_keys=True)


def pairs(run: heatproof.Run) -> pd.DataFrame:
    """The paired tests in the columns of `PAIRS`."""
    found = run.tests().assign(axis=lambda t: t["evaluation"].map(axis_names(run)))
    return found.rename(columns={"model": "network", "a": "first", "b": "second"})


def ranking(run: heatproof.Run) -> pd.DataFrame:
    """The rankings in the columns of `RANKING`."""
    found = run.ranking().assign(axis=lambda t: t["evaluation"].map(axis_names(run)))
    return found.rename(columns={"model": "network"})


def values(run: heatproof.Run, ranked: pd.DataFrame) -> pd.DataFrame:
    """Per-sample values of the measures that rank, with their place among the conditions of the evaluation."""
    headlines = set(zip(ranked["evaluation"], ranked["measure"], strict=True))
    headlines |= {(name, measure) for name in axis_names(run) for measure in ALSO}
    table = without_moving_maps(with_first_names(run.in_study_order()))
    table = table[(table["status"] == "ok") & (table["role"].astype(str) != "reference")]
    here = [pair in headlines for pair in zip(table["evaluation"], table["measure"], strict=True)]
    table = table[np.array(here, dtype=bool)].astype({"condition": str, "evaluation": str})
    table = table[
        ~table["evaluation"].isin([n for n, axis in axis_names(run).items() if axis == "agreement"])
    ]
    table = table.assign(axis=table["evaluation"].map(axis_names(run)), severity=table["level"])
    where = table["condition"] + table["severity"].astype(str)
    table["place"] = where.groupby(table["evaluation"]).transform(lambda c: pd.factorize(c)[0])
    by = [*VALUES[2:8], "model", "place"]
    means = table.groupby(by, observed=True, sort=False)["value"].mean().reset_index()
    return means.rename(columns={"model": "network"})


def without_moving_maps(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with scores of maps that were not moved with the input, under the names of those that were."""
    keys = [*OF_EXPLAINER, "condition", "level", "measure"]
    is_unaligned = table["measure"].str.endswith(UNALIGNED)
    table = table.assign(measure=table["measure"].str.removesuffix(UNALIGNED))
    moved = set(_places(table.loc[is_unaligned, keys].drop_duplicates(), keys))
    is_moved = np.array([place in moved for place in _places(table, keys)], dtype=bool)
    return table[is_unaligned | ~is_moved]


def facts(run: heatproof.Run, key: str, cost: Mapping[str, float], version: str) -> dict[str, Any]:
    """A row of runs.csv."""
    study, sessions = run.manifest.study, run.manifest.sessions
    asked = set(
        run.table()["evaluation"].unique()
    )  # of a run that was cut, those with a whole shard
    own = sum(float(session.seconds or 0) for session in sessions)
    command = f"python studies/atlas/grid.py study {key}" if key in cost else sessions[-1].command
    return {
        "run": key,
        "network": "; ".join(run.table()["model"].astype(str).unique()),
        "study": command,
        "axes": "; ".join(
            dict.fromkeys(axis for name, axis in axis_names(run).items() if name in asked)
        ),
        "samples": int(run.table()["sample"].nunique()),
        "explainers": "; ".join(study.explainers),
        "precision": "; ".join(dict.fromkeys(model.precision for model in study.models.values())),
        "device": "cuda" if "cuda" in str(sessions[-1].devices) else "cpu",  # where it was ended
        "device_seconds": round(cost.get(key, own), 1),
        "heatproof": version,
    }


def of_run(cost: Mapping[str, float], version: str, path: Path) -> tuple[str, Any]:
    """Everything that is kept of one run, or why nothing is."""
    try:
        with TemporaryDirectory(dir=path.parent) as scratch:
            run = heatproof.read(whole(path, Path(scratch)))
            ranked = ranking(run)
            found = {
                "cells": cells(run),
                "pairs": pairs(run),
                "ranking": ranked,
                "values": values(run, ranked),
            }
            return path.name, {**found, "runs": facts(run, path.name, cost, version)}
    except Exception as error:
        return path.name, f"{type(error).__name__}: {error}"


def cards(weights: Path, studies: Path) -> pd.DataFrame:
    """Model cards in the columns of `NETWORKS`, of train.py and photographs.py, and what studies/train_*.py sum up."""
    rows = []
    for file in sorted(weights.glob("*.json")):
        card = json.loads(file.read_text(encoding="utf-8"))
        share = card["accuracy"]
        rows.append(
            {
                **{
                    name: card[name]
                    for name in ("network", "data", "architecture", "family", "seed", "variant")
                },
                **{
                    "modality": "image",
                    "parameters": card["parameters"],
                    "command": card["command"],
                },
                **{
                    "accuracy": share["value"],
                    "accuracy_low": share["low"],
                    "accuracy_high": share["high"],
                },
                **{"ece": card["ece"]["value"], "samples_tested": card["samples"]},
                "seconds_to_train": card["training"]["seconds"],
            }
        )
    for file in sorted(studies.glob("*/*/summary.json")):
        study, name = file.parent.parent.name, file.parent.name
        summary = json.loads(file.read_text(encoding="utf-8"))
        share, (family, modality) = summary["test"], KINDS.get(name, KINDS.get(study, ("", "")))
        rows.append(
            {
                **{
                    "network": f"{study}-{name}",
                    "data": study,
                    "architecture": name,
                    "seed": summary["seed"],
                },
                **{"family": family, "modality": modality},
                "variant": "augmented" if name == "augmented" else "plain",
                **{
                    "parameters": _stored(file.parent / "weights.pt"),
                    "accuracy": share["accuracy"],
                },
                **{
                    "accuracy_low": share["low"],
                    "accuracy_high": share["high"],
                    "ece": share.get("ece", np.nan),
                },
                **{"samples_tested": share["n"], "seconds_to_train": summary["seconds"]},
                "command": f"python studies/train_{study}.py",
            }
        )
    frame = pd.DataFrame(rows, columns=NETWORKS)
    return frame.round({"accuracy": 5, "accuracy_low": 5, "accuracy_high": 5, "ece": 5})


def _stored(path: Path) -> int:
    import torch

    return sum(
        t.numel() for t in torch.load(path, weights_only=True).values() if t.is_floating_point()
    )


def markdown(networks: pd.DataFrame) -> str:
    """The model cards as a table of a page."""
    head = ("network", "weights", "test accuracy (95 %)", "calibration error", "epochs", "seconds")
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    for row in networks.to_dict("records"):
        share = f"{row['accuracy']:.1%} ({row['accuracy_low']:.1%} to {row['accuracy_high']:.1%})"
        ece = "–" if pd.isna(row["ece"]) else f"{row['ece']:.3f}"
        size = (
            f"{row['parameters'] / 1e6:.2f} M"
            if row["parameters"] >= 1e5
            else f"{row['parameters']:,}"
        )
        took = "–" if pd.isna(row["seconds_to_train"]) else f"{row['seconds_to_train']:.0f}"
        epochs = row["command"].partition("--epochs ")[2] or "–"
        lines.append(f"| {row['network']} | {size} | {share} | {ece} | {epochs} | {took} |")
    return "\n".join(lines)


def small(frame: pd.DataFrame, decimals: int) -> pd.DataFrame:
    """Text as categories, numbers in 32 bits and a few decimals (p in four digits): a third of the size."""
    made = {}
    for name, column in frame.items():
        if name == "p":
            digits = np.where(
                column > 0, 3 - np.floor(np.log10(column.clip(lower=1e-40).fillna(1.0))), 0
            )
            made[name] = (np.round(column * 10.0**digits) / 10.0**digits).astype(np.float32)
        elif pd.api.types.is_float_dtype(column):
            made[name] = column.round(4 if name == "severity" else decimals).astype(np.float32)
        elif pd.api.types.is_integer_dtype(column):
            made[name] = column.astype(np.int32)
        else:
            made[name] = column.astype(str).astype("category")
    return pd.DataFrame(made)


def store(path: Path, frame: pd.DataFrame, decimals: int = 4) -> int:
    """Write a table; how many bytes it has. One that is too large has three decimals."""
    small(frame, decimals).to_parquet(path, compression="zstd", compression_level=15, index=False)
    size = path.stat().st_size
    return store(path, frame, 3) if size > LARGEST.get(path.stem, size) and decimals > 3 else size


def device_seconds(runs: Path) -> dict[str, float]:
    """Run -> seconds of the device, those of its processes divided among all that shared it."""
    file, found = runs / "costs.jsonl", dict[str, float]()
    for line in file.read_text(encoding="utf-8").splitlines() if file.is_file() else ():
        cost = json.loads(line)
        found[cost["run"]] = found.get(cost["run"], 0.0) + cost["seconds"] / cost["jobs"]
    return found


def joined(
    found: Mapping[str, Mapping[str, Any]], name: str, columns: Iterable[str]
) -> pd.DataFrame:
    """One table of all runs, with the run's key in front."""
    blocks = [parts[name].assign(run=key) for key, parts in found.items() if len(parts[name])]
    return (
        pd.concat(blocks, ignore_index=True)[list(columns)]
        if blocks
        else pd.DataFrame(columns=list(columns))
    )


def updated(file: Path, frame: pd.DataFrame, key: str, new: Iterable[str]) -> pd.DataFrame:
    """The rows of a table that was written before, but for those of the `new` keys, and then these."""
    if not file.is_file():
        return frame
    before = pd.read_csv(file) if file.suffix == ".csv" else pd.read_parquet(file)
    before = before[~before[key].astype(str).isin(set(new))]
    return pd.concat([before, frame], ignore_index=True) if len(before) else frame


def retrained(file: Path, networks: pd.DataFrame) -> set[str]:
    """The networks of a table that have other weights now, by what their cards say of the training and its outcome.

    Nothing is said of those that were trained elsewhere: their accuracy is that of the photographs they were asked.
    """
    if not file.is_file():
        return set()
    columns = ["accuracy", "ece", "seconds_to_train"]
    both = pd.read_csv(file).merge(networks, on="network", suffixes=("", "_now"))
    both = both[both["seconds_to_train_now"].notna()]
    apart = [(both[c].astype(float) - both[f"{c}_now"].astype(float)).abs() > 1e-4 for c in columns]
    return set(both.loc[np.logical_or.reduce(apart), "network"])


def thinned(file: Path, every: pd.DataFrame) -> pd.DataFrame:
    """Store values without as many of the last conditions as make the file too large; those that were kept."""
    kept = every
    while (size := store(file, kept[VALUES])) > LARGEST["values"] and kept["place"].nunique() > 1:
        rows = kept["place"].value_counts().sort_index().cumsum()
        fitting = rows[rows <= len(kept) * LARGEST["values"] / size]
        kept = kept[kept["place"] <= (fitting.index.max() if len(fitting) else rows.index.min())]
    return kept


def export(runs: Path, weights: Path, target: Path, version: str, jobs: int = 1) -> None:
    """Write all tables from the run directories in a folder and the model cards in another.

    Runs and networks that the tables have and the folders have not stay as they are, but for the runs of networks that
    were trained anew since.
    """
    sys.path.insert(0, str(HERE.parent))
    from common import place

    target.mkdir(parents=True, exist_ok=True)
    networks = cards(weights, place(""))
    anew = retrained(target / "networks.csv", networks)
    networks = updated(target / "networks.csv", networks, "network", networks["network"])
    networks.to_csv(target / "networks.csv", index=False)
    paths = sorted(path.parent for path in runs.glob("*/manifest.json"))
    one = partial(of_run, device_seconds(runs), version)
    if jobs > 1:
        with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
            told = dict(pool.map(one, paths))
    else:
        told = dict(map(one, paths))
    for key, why in told.items():
        if isinstance(why, str):
            print(f"{key} is left out: {why}")
    found = {key: parts for key, parts in told.items() if not isinstance(parts, str)}
    about = pd.DataFrame([parts["runs"] for parts in found.values()], columns=RUNS)
    before = pd.read_csv(target / "runs.csv")["run"] if (target / "runs.csv").is_file() else []
    old = {*found, *(key for key in before if key.rpartition(".")[0] in anew)}
    updated(target / "runs.csv", about, "run", old).to_csv(target / "runs.csv", index=False)
    for name, columns in (("cells", CELLS), ("pairs", PAIRS), ("ranking", RANKING)):
        file = target / f"{name}.parquet"
        frame = updated(file, joined(found, name, columns), "run", old)
        print(f"{name}: {len(frame)} rows, {store(file, frame)} bytes")
    every = joined(found, "values", [*VALUES, "place"])
    every["place"] += 100 * every["run"].str.endswith(
        ".sweeps"
    )  # whose conditions the others have in part
    file = target / "values.parquet"
    every = updated(file, every, "run", old)
    every["place"] = every["place"].fillna(0).astype(int) if "place" in every else 0
    kept = thinned(file, every)
    print(f"values: {len(kept)} rows of {len(every)}, {file.stat().st_size} bytes")

"""Do two versions of the package give the same rows? The last one before rows had a column `chance`, and this one.

    git worktree add /tmp/old f564512
    python benchmarks/old_and_new.py /tmp/old [--random 80] [--seed 0] [--only random-7]

Both run the same studies, each in a process of its own: each kind of data with every test, each task, retraining, defaults,
a decoder, explainers by example and concept, files that cannot be read, and random studies (`random_studies.py`). Rows of
the old version are renamed to what they are called now. Values, chance levels and bounds must be equal to 1e-6, statuses
exactly, and a row that had a reason must still have one; so must the samples' predictions. Differences that are meant are
listed with their cause (`CAUSES`), and what is left is printed row by row and ends the script with an error. Needs the
environment of `make test`.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd

BENCHMARKS = Path(__file__).resolve().parent
TESTS = BENCHMARKS.parent / "tests"
KEY = [
    "dataset",
    "model",
    "evaluation",
    "explainer",
    "sample",
    "measure",
    "condition",
    "level",
    "share",
    "order",
    "repeat",
]
CONDITIONS_WITH_NAMES = {"redraw": "noise_floor", "identity": "identity_check"}
MEASURES_OF_THEIR_OWN = ("there_and_back", "convergence", "symmetrised")
"""Conditions of the old version that are measures now."""
HEADLINES = {"stability": "fass", "symmetry": "equivariance", "dependence": "dependence"}


# ---- in a process of its own: run all studies with one of the versions -------------------------------------------------


class PresentNames(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Gives modules of the old package to whoever imports them by their present name, as the models of the tests do."""

    def __init__(self, package_name: str) -> None:
        self.package_name = package_name

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        if name.startswith("heatproof."):
            return importlib.machinery.ModuleSpec(name, self)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return importlib.import_module(self.package_name + spec.name.removeprefix("heatproof"))

    def exec_module(self, module: Any) -> None:
        """Nothing is left to do: the module ran under its own name."""


def run_studies(package_name: str, out: Path, count: int, seed: int, only: str) -> None:
    """Run every study with one version of the package, and store the tables under `out`."""
    warnings.simplefilter("ignore")
    package = importlib.import_module(package_name)
    if package_name != "heatproof":
        sys.modules["heatproof"] = package
        sys.meta_path.insert(0, PresentNames(package_name))
    sys.path[:0] = [str(TESTS), str(BENCHMARKS)]
    import torch

    torch.set_num_threads(1)
    from fixed_studies import fixed_studies
    from random_studies import random_studies

    studies = {**fixed_studies(out), **random_studies(out, count, seed)}
    for name, run_study in studies.items():
        if only and only != name:
            continue
        started = time.perf_counter()
        try:
            run = run_study()
        except package.UserError as error:
            (out / f"{name}.error").write_text(str(error))
            continue
        run.table().to_parquet(out / f"{name}.parquet")
        run.samples().to_parquet(out / f"{name}.samples")
        if package_name == "heatproof":
            kinds = sorted({result.modality for result in run.results()})
            (out / f"{name}.kinds").write_text(" ".join(kinds))
        print(f"{package_name} {name}: {time.perf_counter() - started:.1f} s", file=sys.stderr)


# ---- here: compare what both stored --------------------------------------------------------------------------------------


def in_present_form(old: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the old version under their present names, with chance beside value."""
    rows = old.copy()

    # `fass_aligned` is `fass` now, and `fass` of inputs that moved is `fass_unaligned`.
    parts = rows["measure"].str.extract(r"^(.*?)(_aligned)?(_chance)?$").fillna("")
    base, is_aligned, is_chance = parts[0], parts[1] != "", parts[2] != ""
    moved = rows["evaluation"] + "/" + rows["condition"] + "/" + base
    is_unaligned = moved.isin(moved[is_aligned]) & ~is_aligned
    rows["measure"] = base + is_unaligned.map({True: "_unaligned", False: ""})

    # Checks of the measurement have measures of their own.
    for condition, name in CONDITIONS_WITH_NAMES.items():
        is_check = rows["condition"] == condition
        is_headline = rows["measure"] == rows["evaluation"].map(HEADLINES)
        rows.loc[is_check & is_headline, "measure"] = name
        rows.loc[is_check & ~is_headline, "measure"] = name + "_" + rows["measure"]
    is_cascade = rows["condition"].isin(["top_down", "bottom_up"])
    rows.loc[is_cascade & (rows["measure"] == "dependence"), "measure"] = "cascade_dependence"
    is_symmetry = rows["evaluation"] == "symmetry"
    for condition in MEASURES_OF_THEIR_OWN:
        rows.loc[is_symmetry & (rows["condition"] == condition), "measure"] = condition

    # A random order is the chance level of the curves of the two other orders.
    is_random_order = (rows["order"] == "random") & (rows["measure"] != "detectability")
    is_random_score = rows["measure"].str.endswith("_random")
    rows["measure"] = rows["measure"].str.removesuffix("_random")

    scores = rows[~is_chance & ~is_random_order & ~is_random_score]
    chance = rows[(is_chance | is_random_order | is_random_score)]
    per_order = chance[is_random_order[chance.index]]
    as_orders = [
        per_order.assign(order=order, condition=per_order["condition"].str.replace("random", order))
        for order in ("morf", "lerf")
    ]
    chance = pd.concat([chance[~is_random_order[chance.index]], *as_orders])
    chance = chance[[*KEY, "value"]].rename(columns={"value": "chance"})
    return scores.merge(chance, on=KEY, how="left", validate="one_to_one")


DIFFERENCES = [
    "only_old",
    "only_new",
    "value_differs",
    "chance_differs",
    "chance_new_only",
    "bounds_differ",
    "status_differs",
    "reason_differs",
]


def compare(name: str, kinds: str, old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of both versions side by side, with a column for everything in which they may differ.

    `kinds` are the kinds of data in the study, such as "image" or "image series".
    """
    both = in_present_form(old).merge(
        new, on=KEY, how="outer", suffixes=("_old", "_new"), indicator=True
    )
    both["study"] = name
    both["kinds"] = kinds
    common = both["_merge"] == "both"
    both["in_both"] = common
    both["only_old"] = both["_merge"] == "left_only"
    both["only_new"] = both["_merge"] == "right_only"
    both["value_differs"] = common & ~is_close(both["value_old"], both["value_new"])
    both["chance_differs"] = (
        common & both["chance_old"].notna() & ~is_close(both["chance_old"], both["chance_new"])
    )
    both["chance_new_only"] = common & both["chance_old"].isna() & both["chance_new"].notna()
    bounds_are_close = is_close(both["low_old"], both["low_new"]) & is_close(
        both["high_old"], both["high_new"]
    )
    both["bounds_differ"] = common & ~bounds_are_close
    both["status_differs"] = common & (both["status_old"] != both["status_new"])
    both["reason_differs"] = common & ((both["reason_old"] == "") != (both["reason_new"] == ""))
    both["cause"] = cause_of(both)
    return both.drop(columns="_merge")


def is_close(a: pd.Series, b: pd.Series) -> pd.Series:
    """Return where two columns are equal to 1e-6, or both missing."""
    a, b = a.astype(float), b.astype(float)
    return ((a - b).abs() <= 1e-6 + 1e-6 * b.abs()) | (a.isna() & b.isna()) | (a == b)


Rows = pd.DataFrame
CAUSES: dict[str, Callable[[Rows], Any]] = {
    "certificates have a chance level": lambda rows: (
        rows["evaluation"].isin(["certificate", "smoothing"])
        & (rows["measure"] == "rate")
        & rows["chance_new_only"]
        & ~rows["bounds_differ"]
    ),
    "chance levels of exactly 0 are written": lambda rows: (
        (rows["evaluation"] == "faithfulness")
        & rows["chance_new_only"]
        & (rows["chance_new"] == 0)
        & ~rows["value_differs"]
    ),
    "road_morf_accuracy is a new measure": lambda rows: (
        rows["only_new"] & (rows["measure"] == "road_morf_accuracy")
    ),
    "an undecided certificate is open, and its bounds are kept": lambda rows: (
        (rows["status_old"] == "undefined") & (rows["status_new"] == "open")
    ),
    "dependence draws 5 networks by default": lambda rows: (
        (rows["study"] == "default-dependence") & rows["only_new"] & (rows["repeat"] >= 3)
    ),
    "the count for an `error` is found for every input": lambda rows: rows[
        "explainer"
    ].str.contains("error="),
    "LRP of the subtracted side of a - b": lambda rows: (
        (rows["study"] == "subtraction") & rows[["explainer", "condition"]].eq("lrp").any(axis=1)
    ),
    "each model has its own readouts": lambda rows: rows["study"] == "two-tasks",
    "each data set has its own defaults: its labels, if it has some, say what is right": lambda rows: (
        (rows["dataset"] == "two")
        & (rows["evaluation"] == "faithfulness")
        & (rows["measure"] == "accuracy")
    ),
    # Last, because it may explain everything on a table that the causes above do not.
    "what is removed from a table becomes rows of the data or their mean, not zero": lambda rows: (
        (rows["kinds"] == "table") & ~rows["status_differs"]
    ),
    "a map on a table is defined, or not, with rows of the data in place of zero": lambda rows: (
        (rows["kinds"] == "table") & rows["status_differs"]
    ),
}
"""Every intended difference, and which rows it may explain."""


def cause_of(both: pd.DataFrame) -> pd.Series:
    """Return for every row that differs why it may, and nothing where it must not."""
    differs = both[DIFFERENCES].any(axis=1)
    causes = pd.Series("", index=both.index)
    for cause, may_explain in CAUSES.items():
        causes[differs & (causes == "") & may_explain(both)] = cause
    return causes


def compare_samples(old: pd.DataFrame, new: pd.DataFrame) -> list[str]:
    """Return what differs in the table of samples: predictions, explained numbers, labels and errors."""
    key = ["dataset", "model", "sample"]
    both = old.merge(new, on=key, how="outer", suffixes=("_old", "_new"), indicator=True)
    wrong = [] if (both["_merge"] == "both").all() else ["samples that only one version has"]
    for column in ("label", "predicted", "readout", "probability"):
        if not is_close(both[f"{column}_old"], both[f"{column}_new"]).all():
            wrong.append(column)
    for column in ("predicted_name", "error"):
        is_empty = [both[f"{column}_{side}"].fillna("") == "" for side in ("old", "new")]
        if (is_empty[0] != is_empty[1]).any():
            wrong.append(column)
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("--random", type=int, default=80)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="the name of one study")
    parser.add_argument(
        "--keep", type=Path, help="store the tables there, and the rows side by side"
    )
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        package_name, out = arguments.child
        run_studies(package_name, Path(out), arguments.random, arguments.seed, arguments.only)
        return

    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.keep or Path(temporary)
        # The old version asks for its own metadata, which a checkout that is not installed lacks.
        metadata = Path(temporary, "metadata", "holdfast-0.1.0.dist-info")
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: holdfast\nVersion: 0.1.0\n"
        )
        sources = {
            "holdfast": f"{arguments.old / 'src'}{os.pathsep}{metadata.parent}",
            "heatproof": str(TESTS.parent / "src"),
        }
        for package_name, path in sources.items():
            out = folder / package_name
            out.mkdir(parents=True)
            command = [sys.executable, __file__, "--child", package_name, str(out)]
            command += ["--random", str(arguments.random), "--seed", str(arguments.seed)]
            command += ["--only", arguments.only]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
        raise SystemExit(report(folder))


def report(folder: Path) -> int:
    """Print what is equal and what is not, over all studies; return 1 if a difference has no cause."""
    names = {path.stem for kind in ("parquet", "error") for path in folder.glob(f"*/*.{kind}")}
    compared: list[pd.DataFrame] = []
    refused: list[str] = []
    unexplained: list[str] = []
    for name in sorted(names):
        old, new = (folder / package / f"{name}.parquet" for package in ("holdfast", "heatproof"))
        if old.exists() and new.exists():
            kinds = new.with_suffix(".kinds").read_text()
            compared.append(compare(name, kinds, pd.read_parquet(old), pd.read_parquet(new)))
            tables = [pd.read_parquet(path.with_suffix(".samples")) for path in (old, new)]
            unexplained += [f"{name}: samples: {column}" for column in compare_samples(*tables)]
        elif old.exists() or new.exists():
            refusal = (new if old.exists() else old).with_suffix(".error")
            unexplained.append(f"{name}: only {refusal.parent.name} says: {refusal.read_text()}")
        else:
            refused.append(f"{name}: {new.with_suffix('.error').read_text()}")

    rows = pd.concat(compared, ignore_index=True)
    by_measure = rows.groupby(["evaluation", "measure"])
    table = by_measure[DIFFERENCES].sum()
    table.insert(0, "rows", by_measure["in_both"].sum())
    print(table.to_string())
    print(f"\n{len(compared)} studies, {int(table['rows'].sum())} rows of both versions")
    print(f"\n{len(refused)} studies that both refuse", *refused, sep="\n  ")

    differing = rows[rows[DIFFERENCES].any(axis=1)]
    print("\nRows that differ as intended, by cause")
    print(differing[differing["cause"] != ""].groupby("cause")[DIFFERENCES].sum().T.to_string())
    for _, row in differing[differing["cause"] == ""].iterrows():
        unexplained.append(f"{row['study']}: {row[[*KEY, *SIDE_BY_SIDE]].to_dict()}")
    print(
        f"\n{len(unexplained)} differences without a cause", *unexplained[:MOST_PRINTED], sep="\n"
    )
    rows.to_parquet(folder / "side_by_side.parquet")
    return int(bool(unexplained))


SIDE_BY_SIDE = [
    f"{name}_{side}"
    for name in ("value", "chance", "low", "high", "status", "reason")
    for side in ("old", "new")
]
MOST_PRINTED = 20

if __name__ == "__main__":
    main()

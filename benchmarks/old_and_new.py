"""Do two versions of the package give the same rows? The last one before rows had a column `chance`, and this one.

    git worktree add /tmp/old f564512
    python benchmarks/old_and_new.py /tmp/old [--random 20] [--seed 0]

Both run the same studies, each in a process of its own: one study of each kind of data with every test, one of each
task, and random studies. Rows of the old version are renamed to what they are called now. Values and chance levels must
be equal to 1e-6, statuses exactly, and a row that had a reason must still have one. Prints a line for each test and
measure, and every row that only one version has. Needs the environment of `make test`.
"""

from __future__ import annotations

import argparse
import importlib
import os
import random
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import pandas as pd

TESTS = Path(__file__).resolve().parent.parent / "tests"
TASKS = ("classification", "binary", "multi_label", "regression", "segmentation")
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


def run_studies(package_name: str, out: Path, count: int, seed: int) -> None:
    """Run every study with one version of the package, and store the tables under `out`."""
    warnings.simplefilter("ignore")
    package = importlib.import_module(package_name)
    sys.modules["heatproof"] = (
        package  # the models of the tests import the package by its present name
    )
    sys.path.insert(0, str(TESTS))
    import torch

    from border import kinds, test_tasks

    torch.set_num_threads(1)
    for kind in kinds.KINDS:
        model, data = kinds.model_and_data(kind)
        evaluations = kinds.evaluations(kind)
        run_study(package, out / kind, model, data, explainers_of(kind), evaluations, seed=3)

    for task in TASKS:
        model, data = test_tasks.model_of(task), test_tasks.CASES[task][1]()
        faithfulness = {
            "faithfulness": {"imputers": "zero", "fractions": [0.5], "metrics": ["road"]}
        }
        # The default perturbations of pictures shift further than the pixels of this segmentation reach.
        noise = [{"gaussian_noise": {"sigma": 0.1}}]
        stability = {"stability": {"perturbations": noise if task == "segmentation" else "usual"}}
        evaluations = [stability, faithfulness, {"dependence": {"draws": 2, "k": 2}}]
        run_study(package, out / f"task-{task}", model, data, ["saliency", "random"], evaluations)

    model, data = kinds.model_and_data("image")
    checks = [
        {"symmetry": {"group": "dihedral", "elements": 4, "repair": [2, 4], "convergence": [2]}},
        {"dependence": {"draws": 1, "cascades": ["top_down", "bottom_up"], "steps": 2}},
        {"stability": {"perturbations": ["identity", "jpeg"], "max_drop": 0.05}},
    ]
    methods = ["grad_cam", {"gradient_shap": {"samples": 3}}, "random"]
    run_study(package, out / "image-checks", model, data, methods, checks)

    for number in range(count):
        draw = random.Random(seed + number)
        kind = draw.choice(kinds.KINDS)
        model, data = kinds.model_and_data(kind)
        every = kinds.evaluations(kind)
        evaluations = draw.sample(every, draw.randint(1, len(every)))
        choice = explainers_of(kind)
        # Agreement compares methods with one another, so it needs two.
        explainers = draw.sample(choice, draw.randint(2, len(choice)))
        options = {
            "seed": draw.randrange(1000),
            "shard_size": draw.choice([2, 3, 8]),
            "references": draw.choice([2, 5, 8]),
        }
        run_study(
            package, out / f"random-{number}", model, data, explainers, evaluations, **options
        )


def explainers_of(kind: str) -> list[Any]:
    """Return explainers for a kind of data: gradients, draws and controls."""
    if kind == "image":
        steps = {"integrated_gradients": {"steps": 4}}
        return [
            "saliency",
            "input_x_gradient",
            steps,
            "grad_cam",
            {"gradient_shap": {"samples": 3}},
            "lrp",
            "random",
            "sobel",
        ]
    if kind == "text":
        return ["saliency", "input_x_gradient", "random"]
    return ["saliency", "input_x_gradient", {"gradient_shap": {"samples": 3}}, "random"]


def run_study(
    package: Any,
    path: Path,
    model: Any,
    data: Any,
    explainers: list[Any],
    evaluations: list[Any],
    **options: Any,
) -> None:
    """Run one study and store its table, or the error that it ends with."""
    try:
        run = package.evaluate(
            model, data, explainers, evaluations, out=path, show_progress=False, **options
        )
    except package.UserError as error:
        path.with_suffix(".error").write_text(str(error))
        return
    run.table().to_parquet(path.with_suffix(".parquet"))


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
    for condition in MEASURES_OF_THEIR_OWN:
        rows.loc[rows["condition"] == condition, "measure"] = condition

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


def compare(name: str, old: pd.DataFrame, new: pd.DataFrame) -> pd.DataFrame:
    """Return a row per test and measure: how many rows both versions have, and how many of them differ in what."""
    both = in_present_form(old).merge(
        new, on=KEY, how="outer", suffixes=("_old", "_new"), indicator=True
    )
    both["study"] = name
    common = both["_merge"] == "both"
    both["only_old"] = both["_merge"] == "left_only"
    both["only_new"] = both["_merge"] == "right_only"
    both["value_differs"] = common & ~is_close(both["value_old"], both["value_new"])
    both["chance_differs"] = (
        common & both["chance_old"].notna() & ~is_close(both["chance_old"], both["chance_new"])
    )
    both["chance_new_only"] = common & both["chance_old"].isna() & both["chance_new"].notna()
    both["status_differs"] = common & (both["status_old"] != both["status_new"])
    both["reason_differs"] = common & ((both["reason_old"] == "") != (both["reason_new"] == ""))
    return both


def is_close(a: pd.Series, b: pd.Series) -> pd.Series:
    """Return where two columns are equal to 1e-6, or both missing."""
    return ((a - b).abs() <= 1e-6 + 1e-6 * b.abs()) | (a.isna() & b.isna())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("old", type=Path, nargs="?")
    parser.add_argument("--random", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        package_name, out = arguments.child
        run_studies(package_name, Path(out), arguments.random, arguments.seed)
        return

    with tempfile.TemporaryDirectory() as folder:
        # The old version asks for its own metadata, which a checkout that is not installed lacks.
        metadata = Path(folder, "metadata", "holdfast-0.1.0.dist-info")
        metadata.mkdir(parents=True)
        (metadata / "METADATA").write_text(
            "Metadata-Version: 2.1\nName: holdfast\nVersion: 0.1.0\n"
        )
        sources = {
            "holdfast": f"{arguments.old / 'src'}{os.pathsep}{metadata.parent}",
            "heatproof": str(TESTS.parent / "src"),
        }
        for package_name, path in sources.items():
            out = Path(folder, package_name)
            out.mkdir()
            command = [
                sys.executable,
                __file__,
                "--random",
                str(arguments.random),
                "--seed",
                str(arguments.seed),
            ]
            command += ["--child", package_name, str(out)]
            subprocess.run(command, env={**os.environ, "PYTHONPATH": path}, check=True)
        report(Path(folder))


def report(folder: Path) -> None:
    """Print what is equal and what is not, over all studies."""
    compared = []
    studies = sorted(
        {path.stem for path in folder.glob("*/*.parquet")}
        | {path.stem for path in folder.glob("*/*.error")}
    )
    for study in studies:
        old, new = (folder / name / f"{study}.parquet" for name in ("holdfast", "heatproof"))
        if old.exists() and new.exists():
            compared.append(compare(study, pd.read_parquet(old), pd.read_parquet(new)))
            continue
        for name in ("holdfast", "heatproof"):
            error = folder / name / f"{study}.error"
            print(f"{study} with {name}: {error.read_text() if error.exists() else 'ran'}")

    rows = pd.concat(compared, ignore_index=True)
    columns = [
        "only_old",
        "only_new",
        "value_differs",
        "chance_differs",
        "chance_new_only",
        "status_differs",
        "reason_differs",
    ]
    table = rows.groupby(["evaluation", "measure"])[columns].sum()
    table.insert(
        0,
        "rows",
        rows.groupby(["evaluation", "measure"])["_merge"].apply(
            lambda kinds: (kinds == "both").sum()
        ),
    )
    print(table.to_string())
    print(f"{len(compared)} studies, {int(table['rows'].sum())} rows of both versions")
    if path := os.environ.get("HEATPROOF_OLD_AND_NEW"):
        rows.drop(columns="_merge").to_parquet(path)


if __name__ == "__main__":
    main()

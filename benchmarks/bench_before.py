"""The demo of 0.1.0 by an older checkout and by this one, in turn, each in a process of its own: processor time, table.

    git worktree add /tmp/before 7743b17        (what was 0.1.0: "What the tables of the GPU were measured with")
    python benchmarks/bench_before.py /tmp/before/src [--limit 2] [--rounds 1] [--threads 1]

Both do five explainers on four axes, from the call of `evaluate` to the table, on the same photographs in the same
environment. What an axis measures has grown since, and some formulas were mended: of the rows that both have, it is
printed how many are equal, by measure. Processor time is that of all threads, so that a busy machine shows less.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pandas as pd

STUDY = """
import json, sys, time, torch, heatproof
explainers = [{"integrated_gradients": {"steps": 8}}, "gradient_shap", "grad_cam", {"lime": {"samples": 32}}, "random"]
evaluations = [
    {"stability": {"perturbations": "fass-paper"}},
    {"certificate": {"radii": [1, 5, 10], "features": {"patches": {"size": 32}}, "epsilon": 0.2}},
    {"symmetry": {"group": {"dihedral": {"n": 1}}}},
    {"faithfulness": {"fractions": [0.1, 0.3, 0.5, 0.7, 0.9], "metrics": ["road"]}},
]
torch.set_num_threads(int(sys.argv[2]))
begun = time.process_time()
run = heatproof.evaluate(
    "bundled:efficientnet-lite0", "bundled:photographs", explainers, evaluations,
    limit=int(sys.argv[1]), shard_size=8, show_progress=False,
)
table, spent = run.table(), time.process_time() - begun
manifest = run.manifest if isinstance(run.manifest, dict) else run.manifest.as_mapping()
session = manifest["sessions"][-1]
table.to_parquet(sys.argv[3])
print(json.dumps({"seconds": spent, "passes": sum(session["passes"].values()), "durations": session["durations"]}))
"""
KEY = ["evaluation", "explainer", "measure", "condition", "level", "sample"]


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("before", type=Path, help="the folder src of the older checkout")
    ask.add_argument("--limit", type=int, default=2, help="how many of the demo's 14 photographs")
    ask.add_argument("--rounds", type=int, default=1)
    ask.add_argument("--threads", type=int, default=1)
    given = ask.parse_args()
    sides = {"0.1.0": given.before.resolve(), "now": Path(__file__).resolve().parents[1] / "src"}
    spent: dict[str, list[float]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(given.rounds):
            for side, source in sides.items():
                words = [str(given.limit), str(given.threads), f"{folder}/{side}.parquet"]
                environment = {**os.environ, "PYTHONPATH": str(source)}
                call = [sys.executable, "-W", "ignore", "-c", STUDY, *words]
                said = subprocess.run(
                    call, env=environment, stdout=subprocess.PIPE, text=True, check=True
                ).stdout
                found = json.loads(said.splitlines()[-1])
                spent[side].append(found["seconds"])
                print(
                    f"{side}: {found['seconds']:.1f} s of processor, {found['passes']} passes, {found['durations']}"
                )
        before, now = (pd.read_parquet(f"{folder}/{side}.parquet") for side in sides)
    print(f"0.1.0 took {sum(spent['0.1.0']) / sum(spent['now']):.2f} times as much processor time")
    both = before.merge(now, on=KEY, suffixes=("", "_now"))
    both["equal"] = ((both.value - both.value_now).abs() <= 1e-3) | (
        both.value.isna() & both.value_now.isna()
    )
    print(
        f"{len(before)} rows before, {len(now)} now, {len(both)} in both; share of these that is equal to 1e-3:"
    )
    print(
        both.groupby(["evaluation", "measure"])
        .equal.mean()
        .to_string(float_format="{:.2f}".format, header=False)
    )


if __name__ == "__main__":
    main()

"""What a second process brings: the rate of two workers on two cores against one, on a study bound by the CPU.

    python benchmarks/bench_workers.py        (or `make bench`, which runs all benchmarks)

All sides do the same shards of the same study by the same executor: one worker with one torch thread, so on one core;
one with two threads, as PyTorch uses two cores by itself; and two workers with one thread each. A worker imports torch,
loads the model and computes the maps of the reference samples for itself before it finishes its first part: `whole
run` counts that, `while working` goes from the first finished part to the last. The tables of the sides with one thread
per worker are compared digit for digit. On a machine with other work the ratio says nothing.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from heatproof.runs.evaluate import execute
from heatproof.runs.executors import FromStudy, Processes
from heatproof.runs.executors.local import cores

STUDY = f"""
model: python:{Path(__file__).parents[1] / "tests" / "support" / "small.py"}:model
data: python:{Path(__file__).resolve()}:many
explainers: [{{integrated_gradients: {{steps: 20}}}}, {{lime: {{samples: 200}}}}, {{smoothgrad: {{samples: 10}}}}]
evaluations: [{{stability: {{perturbations: [fass-paper], k: 50}}}}]
device: cpu
shard_size: 4
"""
PICTURES = 48


def many() -> torch.Tensor:
    """The pictures of the study."""
    from support.small import pictures

    return pictures(PICTURES)[0]


SIDES = {"one worker": (1, 1), "one worker, two threads": (1, 2), "two workers": (2, 1)}


def measure(recipe: FromStudy, workers: int, threads: int, out: Path) -> tuple[float, float, str]:
    """Seconds of the whole run, parts per second while working, and the table."""
    torch.set_num_threads(threads)  # workers have no more threads than their parent
    plan = recipe(0)
    begun = time.perf_counter()
    run = execute(plan, out, "bench", executor=Processes(recipe, workers))
    whole = time.perf_counter() - begun
    moments = sorted(path.stat().st_mtime for path in out.glob("parts/**/*.parquet"))
    rate = (len(moments) - 1) / (moments[-1] - moments[0])
    return whole, rate, run.table().to_csv(index=False, float_format="%.17g")


def main() -> None:
    if cores() < 2:
        raise SystemExit("this needs two cores")
    print(f"load of the machine before: {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study.yaml"
        study.write_text(STUDY)
        recipe = FromStudy(str(study), allow_code=True)
        found = {
            side: measure(recipe, *given, Path(folder) / side) for side, given in SIDES.items()
        }
    base_whole, base_rate, expected = found["one worker"]
    for side, (whole, rate, _) in found.items():
        ratios = f"ratio {rate / base_rate:.2f} while working, {base_whole / whole:.2f} whole run"
        print(f"{side:<24} {rate:6.2f} parts/s while working, whole run {whole:6.1f} s, {ratios}")
    if found["two workers"][2] != expected:
        raise SystemExit("the tables differ: the comparison is void")


if __name__ == "__main__":
    main()

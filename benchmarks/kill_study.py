"""A study that is killed every few seconds and started again until it ends, against one that was left alone.

    python benchmarks/kill_study.py --images 2000 --every 20

Both are `heatproof run` on the same study file, in processes of their own: a small network that is trained in a moment,
drawings of 32 × 32 pixels, four explainers, five perturbations. The kill is SIGKILL to the whole process group, so
nothing can be put in order; starting again is the same command. Every round counts the parts that it found and left
behind. At the end both tables are compared value for value, and every file of the killed run must be finished.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import heatproof

STUDY = """
model: python:{tests}/support/small.py:model
data: python:{here}:many
explainers: [saliency, random, {{integrated_gradients: {{steps: 20}}}}, {{smoothgrad: {{samples: 10}}}}]
evaluations: [{{stability: {{perturbations: [fass-paper], k: 50}}}}]
device: cpu
shard_size: {shard_size}
"""
MOST_ROUNDS = 500


def many() -> torch.Tensor:
    """The pictures of the study; how many is said by the process that wrote it."""
    from support.small import pictures

    return pictures(int(os.environ["HEATPROOF_KILL_IMAGES"]))[0]


def start(study: Path, out: Path, images: int, workers: int, said: Path) -> subprocess.Popen[bytes]:
    command = [
        sys.executable,
        "-m",
        "heatproof",
        "run",
        str(study),
        "--out",
        str(out),
        "--allow-code",
    ]
    # One thread in every process, for the weights of the net that each of them trains depend on the number.
    settings = os.environ | {"HEATPROOF_KILL_IMAGES": str(images), "OMP_NUM_THREADS": "1"}
    with said.open("wb") as log:
        return subprocess.Popen(
            [*command, "--workers", str(workers)],
            stdout=log,
            stderr=log,
            env=settings,
            start_new_session=True,
        )


def parts(out: Path) -> int:
    return sum(1 for _ in out.glob("parts/**/[!.]*.parquet"))


def whole_run(study: Path, out: Path, images: int, workers: int) -> float:
    begun = time.perf_counter()
    said = study.with_name("whole.txt")
    if start(study, out, images, workers, said).wait():
        raise SystemExit(said.read_text())
    return time.perf_counter() - begun


def killed_run(
    study: Path, out: Path, images: int, workers: int, every: float
) -> tuple[int, float, int]:
    """Kills, seconds, and how many unfinished files the kills left behind in all."""
    begun = time.perf_counter()
    said = study.with_name("killed.txt")
    torn = 0
    for kills in range(MOST_ROUNDS):
        before = parts(out)
        process = start(study, out, images, workers, said)
        try:
            if process.wait(every):
                raise SystemExit(said.read_text())
            return kills, time.perf_counter() - begun, torn
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        torn += sum(1 for _ in out.glob("**/.*.tmp"))
        print(f"kill {kills + 1:>3}: parts {before:>5} -> {parts(out):>5}", flush=True)
        if parts(out) == before:
            raise SystemExit(
                f"no part was finished within {every:g} s: use a longer time or smaller shards"
            )
    raise SystemExit(f"not finished after {MOST_ROUNDS} rounds")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--every", type=float, default=20.0, help="seconds between start and kill")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--shard-size", type=int, default=32)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="heatproof-kill-") as folder:
        study, whole, killed = (Path(folder) / name for name in ("study.yaml", "whole", "killed"))
        places = {
            "tests": Path(__file__).resolve().parents[1] / "tests",
            "here": Path(__file__).resolve(),
        }
        study.write_text(STUDY.format(**places, shard_size=given.shard_size))
        alone = whole_run(study, whole, given.images, given.workers)
        print(f"left alone: {alone:.0f} s, {parts(whole)} parts", flush=True)
        kills, seconds, torn = killed_run(study, killed, given.images, given.workers, given.every)
        first, second = (heatproof.read(out).table() for out in (whole, killed))
        leftover = sum(1 for _ in killed.glob("**/.*.tmp"))
        sessions = len(list(killed.glob("sessions/*.json")))
    same = first.equals(second)
    print(
        f"{given.images} images, killed every {given.every:g} s: {kills} kills, {sessions} sessions, {seconds:.0f} s"
    )
    print(f"unfinished files left by kills {torn}, of them there at the end {leftover}")
    print(
        f"tables of {len(first):,} rows are {'identical, value for value' if same else 'DIFFERENT'}"
    )
    if not same or leftover or not kills:
        raise SystemExit(1)


if __name__ == "__main__":
    main()

"""Inputs that nobody would make by hand, drawn by hypothesis: does anything end in a traceback, hang, or eat memory?

    python benchmarks/fuzz.py --count 2000 --jobs 15

The inputs are shared out over the subjects of `tests/support/fuzzing.py`. An input that takes more than --limit seconds
is a hang; the largest memory of a process is told at the end. A crash is told with the smallest input that shows it.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import multiprocessing
import resource
import sys
import tempfile
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import nullcontext
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import torch
from hypothesis import HealthCheck, Phase, given, seed, settings

from heatproof.errors import UserError
from support.fuzzing import Desk

AT_ONCE = 25
"""Inputs of one subject that a process tries before it takes another."""
DESKS: list[Desk] = []


def tried(task: tuple[int, int, str, float]) -> tuple[str, Counter[str], str, float]:
    """Some inputs for one subject: how they ended, the first crash in full, and the largest memory in MiB."""
    which, number, folder, limit = task
    if not DESKS:
        torch.set_num_threads(1)
        DESKS.append(Desk(Path(tempfile.mkdtemp(dir=folder))))
    subject = DESKS[0].subjects()[which]
    ended, crash = Counter[str](), ""

    @seed(number)
    @settings(
        max_examples=AT_ONCE,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(subject.drawn)
    def every(drawn: Any) -> None:
        faulthandler.dump_traceback_later(limit, exit=True)
        try:
            subject.act(drawn)
            ended["a result"] += 1
        except UserError:
            ended["a message"] += 1
        finally:
            faulthandler.cancel_dump_traceback_later()

    try:
        every()
    except BaseException:
        crash = traceback.format_exc()
    return subject.name, ended, crash, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=2000, help="inputs in all")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument(
        "--limit", type=float, default=60, help="seconds after which an input counts as a hang"
    )
    parser.add_argument("--only", default="", help="subjects whose names contain this")
    parser.add_argument(
        "--seconds",
        type=float,
        default=1e9,
        help="stop after about so long, and say how far it came",
    )
    parser.add_argument("--out", type=Path, help="a line of JSON for every twenty-five inputs")
    chosen = parser.parse_args()
    begun = time.perf_counter()
    counts: dict[str, Counter[str]] = {}
    crashes, most = 0, 0.0
    with (
        tempfile.TemporaryDirectory() as folder,
        chosen.out.open("a") if chosen.out else nullcontext() as sink,
    ):
        names = [subject.name for subject in Desk(Path(tempfile.mkdtemp(dir=folder))).subjects()]
        which = [i for i, name in enumerate(names) if chosen.only in name]
        pieces = -(-chosen.count // (AT_ONCE * len(which)))
        tasks = [
            (i, 1000 * chosen.seed + piece, folder, chosen.limit)
            for piece in range(pieces)
            for i in which
        ]
        # Not a Pool, which waits for ever for a process that a hang has ended.
        with ProcessPoolExecutor(chosen.jobs, multiprocessing.get_context("spawn")) as pool:
            for task in as_completed([pool.submit(tried, task) for task in tasks]):
                name, ended, crash, memory = task.result()
                counts[name] = counts.get(name, Counter()) + ended
                crashes, most = crashes + bool(crash), max(most, memory)
                if crash:
                    print(f"--- {name}\n{crash}", flush=True)
                if sink:
                    told = {"subject": name, "ended": ended, "crash": crash, "memory": memory}
                    print(json.dumps(told), file=sink, flush=True)
                if time.perf_counter() - begun > chosen.seconds:
                    pool.shutdown(cancel_futures=True)
                    break
    for name, ended in sorted(counts.items()):
        print(
            f"{name:<12} {ended['a result']:>6} ended with a result, {ended['a message']:>6} with a message"
        )
    done = sum(sum(ended.values()) for ended in counts.values())
    took = time.perf_counter() - begun
    print(
        f"{done} inputs, seed {chosen.seed}: {crashes} crashes, at most {most:.0f} MiB, {took:.0f} s"
    )
    sys.exit(bool(crashes))


if __name__ == "__main__":
    main()

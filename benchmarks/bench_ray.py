"""What handing out shards costs on a Ray cluster, with empty work: all that is left is Ray and our driver.

    python benchmarks/bench_ray.py [--shards 10000] [--actors 2] [--address ADDRESS]

The crew of `heatproof run --ray` hands shards to actors that do nothing, on a cluster of this machine unless an address
is given. Said are seconds until the actors are there, seconds and processor time of the driver for each shard, and its
memory; also what the driver of a study of so many shards asks the disk: which of them are done, and which are there at
the end.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import deque
from typing import Any

import torch

from heatproof import open_data
from heatproof.models import Model
from heatproof.runs.directory import RunDirectory
from heatproof.runs.executors import import_ray
from heatproof.runs.executors.cluster import _Crew
from heatproof.runs.executors.worker import Done, Tally
from heatproof.runs.plan import Job, make_plan


class Idle:
    """An actor that says at once that a shard is done."""

    def load(self, *given: Any) -> None:
        """Nothing is loaded."""

    def run(self, job: Job) -> Done:
        """Nothing is done."""
        return Done({"stability": 0.0}, {"net": 0}, "cpu", {"stability of saliency": 32})


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--shards", type=int, default=10_000)
    ask.add_argument("--actors", type=int, default=2)
    ask.add_argument("--address")
    given = ask.parse_args()
    ray = import_ray()
    begun = time.perf_counter()
    ray.init(
        address=given.address, log_to_driver=False, logging_level="ERROR", include_dashboard=False,
        **({} if given.address else {"num_cpus": given.actors}),
    )  # fmt: skip
    jobs: list[Job] = [("images", "net", number) for number in range(given.shards)]
    crew = _Crew(
        ray,
        ray.remote(Idle).options(num_cpus=1),
        ("", "", 32),
        deque(jobs),
        Tally("ray", given.actors),
    )
    for _ in range(given.actors):
        crew.start()
    while len(crew.idle) < given.actors:
        crew.listen(lambda what, amount: None)
    print(
        f"ray {ray.__version__}: {given.actors} actors after {time.perf_counter() - begun:.1f} s",
        flush=True,
    )
    begun, processor = time.perf_counter(), time.process_time()
    while crew.waiting or crew.busy():
        crew.hand_out()
        crew.listen(lambda what, amount: None)
    spent, driver = time.perf_counter() - begun, time.process_time() - processor
    crew.stop()
    ray.shutdown()
    each = f"{1000 * spent / given.shards:.2f} ms a shard, {1000 * driver / given.shards:.2f} ms of processor"
    print(
        f"memory of the driver: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6:.2f} GB",
        flush=True,
    )
    print(f"{given.shards} empty shards in {spent:.1f} s: {each}", flush=True)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 4))
    images = open_data(
        torch.zeros(1, 3, 16, 16).expand(32 * given.shards, -1, -1, -1), name="images"
    )
    plan = make_plan(
        Model(net), images, ["saliency"], {"stability": {"stability": {"perturbations": "jpeg"}}}
    )
    with tempfile.TemporaryDirectory() as folder:
        begun = time.process_time()
        missing = sum(bool(plan.missing_parts(RunDirectory(folder), job)) for job in plan.jobs())
        print(
            f"which of {missing} shards are done: {time.process_time() - begun:.1f} s of processor",
            flush=True,
        )


if __name__ == "__main__":
    main()

"""Whether `compile: auto` chooses well: its answer for a long study, and the same shard timed both ways.

    python benchmarks/bench_compile.py --images DIR [--architecture resnet50] [--precision float16] [--study 70000]

The study is the FASS grid's share of one architecture (see fass_grid.py) on so many photographs. `compile: auto` tries
sixteen of them, as the network is and compiled, and says whether to compile. Then those in the folder are done both
ways, the second time that each way does them being timed. It has chosen well if the study's time, trials and compiling
counted, is no longer than without them. Needs a GPU and torchvision.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import fass_grid
from bench_study import finish
from heatproof import Model, open_data
from heatproof.runs.evaluate import execute
from heatproof.runs.precision_audit import compile_if_it_pays


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--images", required=True, help="a folder of photographs")
    ask.add_argument("--architecture", default="resnet50")
    ask.add_argument("--precision", default="float16")
    ask.add_argument(
        "--study", type=int, default=70_000, help="photographs of the study that is asked about"
    )
    ask.add_argument(
        "--photographs", type=int, default=64, help="how many of the folder are done both ways"
    )
    given = ask.parse_args()
    net = fass_grid.network(given.architecture)
    model = Model(net, fass_grid.MEAN, fass_grid.STD, device=fass_grid.DEVICE).use(given.precision)
    data = open_data(given.images, name="photographs", size=224).limit(given.photographs)
    grid = fass_grid.plan(given.architecture, model, data, given.photographs)
    begun = time.perf_counter()
    chosen = compile_if_it_pays(grid, grid.jobs() * (given.study // len(data.ids)))
    finish()
    trial = time.perf_counter() - begun
    print(
        f"{given.architecture}, {given.precision}, {given.study} photographs: compiled {chosen}, asked in {trial:.1f} s"
    )
    hours = dict[bool, float]()
    for compiled in (chosen, not chosen):
        model.use(given.precision, compiled)
        for _ in range(2):
            with tempfile.TemporaryDirectory() as folder:
                begun = time.perf_counter()
                execute(grid, Path(folder) / "run", "bench_compile", False)
                finish()
                spent = time.perf_counter() - begun
        hours[compiled] = spent / len(data.ids) * given.study / 3600
        how = "compiled" if compiled else "as it is"
        print(
            f"  {how}: {1000 * spent / len(data.ids):.1f} ms a photograph, {hours[compiled]:.2f} h",
            flush=True,
        )
    ratio = hours[False] / (hours[chosen] + trial / 3600)
    print(
        f"  the study with `compile: auto` is {ratio:.2f} times as fast as without, its trials counted"
    )


if __name__ == "__main__":
    main()

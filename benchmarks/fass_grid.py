"""The FASS paper's grid on one device, extrapolated from a slice: how many hours for 70,000 images.

    python benchmarks/fass_grid.py --images DIR [--architectures resnet50 …] [--shard-size 256]

The grid is 4 architectures × 4 methods (IG-50, GradientSHAP-5, Grad-CAM, LIME with 50 samples on superpixels) × 5
perturbations, on photographs decoded from files, through the whole of heatproof: reading, perturbing, predicting,
explaining, scores with their chance levels and aligned scores, writing. What a run does once is not extrapolated: a
process per architecture compiles, all of them side by side, and when the last is done each in turn has the machine for
itself. It does a shard of 256 photographs, for the first calls of everything, and then the slice, which is timed from
the last file of the one to the last file of the other.

All shards are of a folder twelve shards long (the photographs again and again), and such as keep no pictures for the
report's gallery, as nearly all of a long run do. Weights are random (torchvision's cannot be had without a
network), which would make predictions a coin's: one class is favoured until predictions hold, so that every pair is
explained, and the hours are an upper bound for the same study on trained networks, where flipped pairs are dropped.
A share R of pairs retained leaves (1 + 5 R) / 6 of the inputs to explain; `--retention` prints the hours for it too.
Needs torchvision.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import queue
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import torch
import torchvision

from heatproof import Model, Stability, open_data
from heatproof.data import Data
from heatproof.runs.evaluate import execute
from heatproof.runs.plan import Plan, make_plan

METHODS = ["integrated_gradients", "gradient_shap", "grad_cam", {"lime": {"samples": 50}}]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHARDS, FIRST = 12, 2  # every third shard from the second on keeps no pictures
ROWS = {"densenet121": 512}  # whose many short kernels wait for Python in smaller batches
GRID = 70_000
PUBLISHED_HOURS = 200
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Task:
    """What a process is told."""

    architecture: str
    folder: str
    precision: str
    compiled: bool
    shard_size: int
    batch_size: int
    shards: int


@dataclass(frozen=True)
class Slice:
    """What it measured: passes are per image, `lost` names explainers of which not all maps could be scored.

    `limit` is the seconds of an image's passes on the bare network in this process: machines of one kind differ.
    """

    compiling: float
    seconds: float
    images: int
    passes: float
    limit: float
    retained: float
    lost: str


def plan(
    name: str, model: Model, data: Data, shard_size: int, batch_size: int | None = None
) -> Plan:
    """One architecture's share of the grid."""
    axes = {"stability": Stability(noise_floor=False)}
    return make_plan(
        {name: model},
        {data.name: data},
        METHODS,
        axes,
        shard_size=shard_size,
        batch_size=batch_size,
    )


@torch.no_grad()
def network(name: str) -> torch.nn.Module:
    """An architecture with random weights, and scores of spread 1 of which the first class's is the highest by far.

    Unscaled, the scores of a random network may lie so far apart that every probability is 0 or 1 to the last digit,
    and LIME has nothing to fit. A constant added to one changes no gradient. Biases are drawn too: without any, a grey
    region stays exactly zero through every layer, where the gradient of a normalisation knows no bounds.
    """
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    module = getattr(torchvision.models, name)().eval()
    head = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)][-1]
    head.reset_parameters()  # torchvision's ViT begins with a head of zeros, which has nothing to explain
    for layer in module.modules():
        if isinstance(layer, torch.nn.Conv2d | torch.nn.Linear) and layer.bias is not None:
            layer.bias.normal_(std=0.02)
    module.to(DEVICE)
    inputs = torch.randn(8, 3, 224, 224, generator=generator).to(DEVICE)
    spread = module(inputs).std()
    head.weight /= spread
    head.bias /= spread
    scores = module(inputs)
    head.bias[0] += 2 * (scores.amax(1) - scores.amin(1)).max()
    return module


def work(
    task: Task, ready: multiprocessing.Queue[str], go: Event, answers: multiprocessing.Queue[Slice]
) -> None:
    """Compile, wait for the device, and time a slice."""
    from bench_study import ceiling

    begun = time.perf_counter()
    model = Model(network(task.architecture), MEAN, STD).use(task.precision, task.compiled)
    data = open_data(task.folder, name="photographs", size=224)
    few = data.limit(math.ceil(2 * task.batch_size / 50))
    with tempfile.TemporaryDirectory() as folder:
        sizes = (task.shard_size, task.batch_size)
        execute(
            plan(task.architecture, model, few, *sizes), Path(folder) / "warm", "warm up", False
        )
        grid = plan(task.architecture, model, data, *sizes)
        share = (FIRST, SHARDS // (1 + task.shards))
        chosen = range(SHARDS)[share[0] - 1 :: share[1]]
        assert len(chosen) == 1 + task.shards
        compiling = time.perf_counter() - begun
        if DEVICE == "cuda":
            torch.cuda.empty_cache()  # for whoever has its turn before
        ready.put(task.architecture)
        go.wait()
        model.passes = model.gradient_passes = 0
        run = execute(grid, Path(folder) / "slice", "slice", False, share=share)
        rows, end = run.table(), ends(Path(folder) / "slice")
        assert len(end) == len(chosen), end
    pairs = rows[rows["measure"] == "fass"]
    missing = pairs[pairs["status"] == "undefined"].groupby("explainer", observed=True)["reason"]
    lost = [
        f"{len(why) / len(pairs):.1%} {name} ({why.mode()[0]})" for name, why in missing if len(why)
    ]
    retained, images = float((pairs["status"] != "flipped").mean()), task.shards * task.shard_size
    each, differentiated = (
        count / (images + task.shard_size) for count in (model.passes, model.gradient_passes)
    )
    forward, gradient = ceiling(model, (task.batch_size,))
    limit = (each - differentiated) / forward + differentiated / gradient
    answers.put(
        Slice(compiling, end[-1] - end[0], images, each, limit, retained, ", ".join(lost) or "none")
    )


def ends(root: Path) -> list[float]:
    """When the last file of each shard was written, one after another."""
    last: dict[str, float] = {}
    for part in (root / "parts").rglob("*.parquet"):
        shard = part.name.split(".")[0]  # a digest follows
        last[shard] = max(last.get(shard, 0.0), part.stat().st_mtime)
    return sorted(last.values())


def measure(tasks: list[Task]) -> float:
    """Hours for the grid of all architectures; prints a line for each."""
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Queue(), context.Queue()
    turns = {task.architecture: context.Event() for task in tasks}
    team = [
        context.Process(target=work, args=(t, ready, turns[t.architecture], answers), daemon=True)
        for t in tasks
    ]
    for worker in team:
        worker.start()
    for _ in tasks:
        _wait(ready, team)
    hours = 0.0
    for name, turn in turns.items():
        turn.set()
        found: Slice = _wait(answers, team)
        each = found.seconds / found.images
        hours += GRID * each / 3600
        about = f"{found.images} images in {found.seconds:.1f} s, {found.passes:.0f} passes each, "
        about += (
            f"{1000 * found.limit:.1f} ms on the bare network, share {found.limit / each:.2f}; "
        )
        about += f"{found.retained:.1%} of pairs retained, without a score: {found.lost}"
        print(
            f"{name}: {1000 * each:.1f} ms per image ({about}; {found.compiling:.0f} s of compiling)",
            flush=True,
        )
    return hours


def _wait(news: Any, team: list[Any]) -> Any:
    """The next word of a process; one that died says nothing."""
    while True:
        try:
            return news.get(timeout=1)
        except queue.Empty:
            if any(worker.exitcode for worker in team):
                raise SystemExit("a process failed; what it said is above") from None


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--images", type=Path, required=True, help="a folder of photographs")
    ask.add_argument(
        "--architectures",
        nargs="+",
        default=["resnet50", "densenet121", "convnext_tiny", "vit_b_16"],
    )
    ask.add_argument("--shards", type=int, choices=(1, 3), default=1, help="that the slice has")
    ask.add_argument("--shard-size", type=int, default=256)
    ask.add_argument("--batch-size", type=int, help=f"256 unless told, but {ROWS}")
    ask.add_argument("--precision", default="float16")
    ask.add_argument("--no-compile", action="store_true")
    ask.add_argument(
        "--retention",
        type=float,
        default=0.7,
        help="for which the hours are given beside all pairs",
    )
    given = ask.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        repeat(given.images, Path(folder), SHARDS * given.shard_size)
        how = (folder, given.precision, not given.no_compile, given.shard_size)
        rows = {name: given.batch_size or ROWS.get(name, 256) for name in given.architectures}
        hours = measure(
            [Task(name, *how, rows[name], given.shards) for name in given.architectures]
        )
    expected = hours * (1 + 5 * given.retention) / 6
    count = len(given.architectures)
    print(
        f"\n{GRID} images × {count} architectures on one device: {hours:.2f} hours if all pairs are retained,"
    )
    print(
        f"{expected:.2f} if {given.retention:.0%} are; reported for four: {PUBLISHED_HOURS} A100-hours"
    )


def repeat(images: Path, folder: Path, count: int) -> None:
    """A folder of `count` links to the photographs of another, again and again."""
    files = sorted(path.resolve() for path in images.rglob("*") if path.is_file())
    for number in range(count):
        source = files[number % len(files)]
        (folder / f"{number:06d}{source.suffix}").symlink_to(source)


if __name__ == "__main__":
    main()

"""The FASS paper's grid on one device, extrapolated from a slice: how many hours for 70,000 images.

    python benchmarks/fass_grid.py --images DIR [--architectures resnet50 …] [--workers 2] [--shard-size 256]

The grid is 4 architectures × 4 methods (IG-50, GradientSHAP-5, Grad-CAM, LIME with 50 samples on superpixels) × 5
perturbations, on photographs decoded from files, through the whole of holdfast: reading, perturbing, predicting,
explaining, scores with their chance levels and aligned scores, writing. Each worker is a process that does its share of
the shards, as `holdfast run --shard i/n` would; several on one device keep it busy while another scores and writes.
Compiling is not extrapolated: workers compile first, wait for each other, and then the slice is timed.

The slice is taken from a folder twelve shards long (the photographs again and again), of shards that keep no pictures
for the report's gallery, as nearly all of a long run do. Weights are random (torchvision's cannot be had without a
network), which would make predictions a coin's: one class is favoured until predictions hold, so that every pair is
explained, and the hours are an upper bound for the same study on trained networks, where flipped pairs are dropped.
A share R of pairs retained leaves (1 + 5 R) / 6 of the inputs to explain; `--retention` prints the hours for it too.
Needs torchvision.
"""

from __future__ import annotations

import argparse
import math
import multiprocessing
import tempfile
import time
from dataclasses import dataclass
from multiprocessing.synchronize import Barrier
from pathlib import Path

import torch
import torchvision

from holdfast import Model, Stability, open_data
from holdfast.audit import audit
from holdfast.building import explainers
from holdfast.data import Data
from holdfast.engine import keeps_extremes
from holdfast.plan import Plan, make_plan
from holdfast.run import execute

METHODS = ["integrated_gradients", "gradient_shap", "grad_cam", {"lime": {"samples": 50}}]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
SHARDS, FIRST, STEP = 12, 2, 3  # every third shard from the second on keeps no pictures
GRID = 70_000
PUBLISHED_HOURS = 200
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@dataclass(frozen=True)
class Task:
    """What a worker is told."""

    architecture: str
    folder: str
    precision: str
    compiled: bool
    shard_size: int
    batch_size: int
    workers: int
    shards_each: int


@dataclass(frozen=True)
class Share:
    """What a worker measured on its share."""

    seconds: float
    images: int
    passes: int
    kept: float


def plan(name: str, model: Model, data: Data, shard_size: int, batch_size: int | None = None) -> Plan:
    """One architecture's share of the grid."""
    axes = {"stability": Stability(noise_floor=False)}
    return make_plan({name: model}, {data.name: data}, explainers(METHODS), axes, 0, shard_size, batch_size)


@torch.no_grad()
def network(name: str) -> torch.nn.Module:
    """An architecture with random weights, its first class favoured by twice what the scores of classes spread over.

    A constant added to a score changes no gradient and no difference of scores, so the explanations stay what they are.
    """
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    module = getattr(torchvision.models, name)().eval()
    head = [layer for layer in module.modules() if isinstance(layer, torch.nn.Linear)][-1]
    head.reset_parameters()  # torchvision's ViT begins with a head of zeros, which has nothing to explain
    module.to(DEVICE)
    scores = module(torch.randn(8, 3, 224, 224, generator=generator).to(DEVICE))
    head.bias[0] += 2 * (scores.amax(1) - scores.amin(1)).max()
    return module


def work(number: int, task: Task, ready: Barrier, answers: multiprocessing.Queue[Share]) -> None:
    """Compile, wait for the others, do a share; whoever fails lets nobody wait."""
    try:
        answers.put(do_share(number, task, ready))
    except BaseException:
        ready.abort()
        answers.put(Share(0.0, 0, 0, 0.0))
        raise


def do_share(number: int, task: Task, ready: Barrier) -> Share:
    """Compile, wait for the others, and time a share."""
    model = Model(network(task.architecture), MEAN, STD).use(task.precision, task.compiled)
    data = open_data(task.folder, name="photographs", size=224)
    few = data.limit(math.ceil(2 * task.batch_size / 50))
    with tempfile.TemporaryDirectory() as folder:
        sizes = (task.shard_size, task.batch_size)
        execute(plan(task.architecture, model, few, *sizes), Path(folder) / "warm", "warm up", False)
        grid = plan(task.architecture, model, data, *sizes)
        share = (FIRST + STEP * number, SHARDS // task.shards_each)
        chosen = range(SHARDS)[share[0] - 1 :: share[1]]
        assert len(chosen) == task.shards_each and not any(keeps_extremes(shard, SHARDS) for shard in chosen)
        ready.wait()
        run = execute(grid, Path(folder) / "slice", "slice", False, share=share)
        session, rows = run.manifest["sessions"][-1], run.table()
    pairs = rows[(rows["measure"] == "fass") & (rows["condition"] != "redraw")]
    kept = float((pairs["status"] != "flipped").mean())
    images = task.shards_each * task.shard_size
    return Share(session["seconds"], images, session["passes"][task.architecture], kept)


def measure(task: Task) -> tuple[float, str]:
    """Seconds per image with all workers at work, and a line that says how it went."""
    context = multiprocessing.get_context("spawn")
    ready, answers = context.Barrier(task.workers + 1), context.Queue()
    given = [(number, task, ready, answers) for number in range(task.workers)]
    team = [context.Process(target=work, args=each, daemon=True) for each in given]
    begun = time.perf_counter()
    for worker in team:
        worker.start()
    ready.wait()
    warm = time.perf_counter() - begun
    shares = [answers.get() for _ in team]
    for worker in team:
        worker.join()
    if any(worker.exitcode for worker in team):
        raise SystemExit(f"a worker failed on {task.architecture}; what it said is above")
    seconds, images = max(share.seconds for share in shares), sum(share.images for share in shares)
    kept = sum(share.kept for share in shares) / len(shares)
    about = f"{images} images in {seconds:.1f} s, {sum(share.passes for share in shares) / images:.0f} passes each"
    return seconds / images, f"{about}, retention {kept:.3f}; {warm:.0f} s of compiling before"


def main() -> None:
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ask.add_argument("--images", type=Path, required=True, help="a folder of photographs")
    ask.add_argument("--architectures", nargs="+", default=["resnet50", "densenet121", "convnext_tiny", "vit_b_16"])
    ask.add_argument("--workers", type=int, choices=(1, 2, 4), default=2, help="processes on the device")
    ask.add_argument("--shards", type=int, default=1, help="that each worker does")
    ask.add_argument("--shard-size", type=int, default=256)
    ask.add_argument("--batch-size", type=int, default=256)
    ask.add_argument("--precision", default="float16")
    ask.add_argument("--no-compile", action="store_true")
    ask.add_argument("--retention", type=float, default=0.7, help="for which the hours are given beside all pairs")
    ask.add_argument("--audit", action="store_true", help="say first what the precision does to the scores")
    given = ask.parse_args()
    if given.workers * given.shards > SHARDS // STEP:
        ask.error(f"at most {SHARDS // STEP} shards for all workers together, got {given.workers * given.shards}")
    hours = 0.0
    for name in given.architectures:
        if given.audit:
            few = open_data(str(given.images), name="photographs", size=224).limit(32)
            print(f"{name}\n{audit(plan(name, Model(network(name), MEAN, STD), few, 32)).text()}", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            repeat(given.images, Path(folder), SHARDS * given.shard_size)
            sizes = (given.shard_size, given.batch_size, given.workers, given.shards)
            each, line = measure(Task(name, folder, given.precision, not given.no_compile, *sizes))
        hours += GRID * each / 3600
        print(f"{name}: {1000 * each:.1f} ms per image ({line})", flush=True)
    expected = hours * (1 + 5 * given.retention) / 6
    print(
        f"\n{GRID} images × {len(given.architectures)} architectures on one device: {hours:.2f} hours if all pairs are"
    )
    print(f"are retained, {expected:.2f} if {given.retention:.0%} are; reported for four: {PUBLISHED_HOURS} A100-hours")


def repeat(images: Path, folder: Path, count: int) -> None:
    """A folder of `count` links to the photographs of another, again and again."""
    files = sorted(path.resolve() for path in images.rglob("*") if path.is_file())
    for number in range(count):
        source = files[number % len(files)]
        (folder / f"{number:06d}{source.suffix}").symlink_to(source)


if __name__ == "__main__":
    main()

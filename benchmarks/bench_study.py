"""How near a whole study comes to the hardware's limit: every axis, eleven explainers, from the call to the table.

    python benchmarks/bench_study.py --images DIR [--networks mobilenet_v2=WEIGHTS resnet50 vit_b_16] [--photographs 32]
        [--modes float32 float16 float16+compile] [--axes stability faithfulness certificate symmetry]
        [--few] [--extrapolate 256] [--kernels] [--seconds 60]

The limit is the time that the study's passes would take on the bare network: forwards at its forward rate,
differentiated ones at its forward-and-backward rate, in the same precision, layout and process, at its best batch size,
on inputs that lie ready. The share of the limit is that time over the wall time of `evaluate`, batch sizes found and
networks compiled within it; a pass that only fills a batch up counts for nothing. Where the rest goes is sampled from
the main thread a hundred times a second: the innermost function of heatproof, and of what it called if that is outside.
Every axis has a share of its own, and the shards after the first, in which kernels are built and references explained,
have theirs: a study of many shards comes near it. `--extrapolate 256` says what these make of 256 photographs.

`--few` leaves every method as it is and takes away conditions, so that a study fits into minutes: stability has one
perturbation that moves and one that does not in place of five, symmetry two elements in place of eight. Faithfulness
and certificates, the axes with the lowest shares, are then more of the whole than in the study itself. `--kernels`
asks torch's profiler which kernels the device was busy with, and for how much of the time it was idle.

`mobilenet_v2=FOLDER` takes the trained network of a folder with `mnv2.py` and its weights; `efficientnet_lite0` is the
trained one of its package; the others are torchvision's with random weights and a favoured class (see fass_grid.py).
"""

from __future__ import annotations

import argparse
import collections
import importlib.util
import math
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from heatproof import (
    Certificate,
    Faithfulness,
    Model,
    Stability,
    Symmetry,
    evaluate,
    open_data,
    read,
)
from heatproof.models.precision import arithmetic, weight_type

EXPLAINERS: list[Any] = [
    "grad_cam",
    "integrated_gradients",
    "gradient_shap",
    {"lime": {"samples": 200}},
    {"kernel_shap": {"samples": 400}},
    "occlusion",
    "rise",
    "guided_backprop",
    "deep_lift",
    "sobel",
    "random",
]
AXES: dict[str, Any] = {
    "stability": {"stability": {}},
    "faithfulness": {"faithfulness": {}},
    "certificate": {"certificate": {}},
    "symmetry": {"symmetry": {"group": "dihedral"}},
}
FEW: dict[str, Any] = {
    "stability": {"stability": {"perturbations": ["gaussian_noise", "rotation"]}},
    "symmetry": {"symmetry": {"group": "dihedral", "elements": 2}},
}
SIDE = 224
STARTED = time.perf_counter()
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def network(name: str) -> Model:
    """A network by its name, in float32."""
    name, _, folder = name.partition("=")
    if name == "mobilenet_v2" and folder:
        spec = importlib.util.spec_from_file_location("mnv2", Path(folder) / "mnv2.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        net = module.load(Path(folder) / "mnv2_imagenet_fp16.pt")
        return Model(net, 0.5, 0.5, device=DEVICE, name=name)
    if name == "efficientnet_lite0":
        from heatproof.models.loaders import load_model

        return load_model("bundled:efficientnet-lite0").to(DEVICE)
    import fass_grid

    return Model(fass_grid.network(name), fass_grid.MEAN, fass_grid.STD, device=DEVICE, name=name)


def say(line: str) -> None:
    """Print a line with the seconds since the start, so that a call that is cut tells as far as it came."""
    print(f"[{time.perf_counter() - STARTED:5.1f}] {line}", flush=True)


def seconds(work: Callable[[], Any], times: int = 1) -> float:
    """Of a call, after one that is not counted."""
    work()
    finish()
    begun = time.perf_counter()
    for _ in range(times):
        work()
    finish()
    return (time.perf_counter() - begun) / times


def finish() -> None:
    """Wait for the device."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def ceiling(
    model: Model, sizes: Sequence[int], times: int = 5 if DEVICE == "cuda" else 1
) -> tuple[float, float]:
    """The bare network's best rates over batch sizes: forward passes and differentiated passes per second."""
    bare = model._compiled if model.is_compiled else model.module
    layout = torch.channels_last if model.channels_last else torch.contiguous_format
    kind = weight_type(model.precision) or torch.float32
    best = [0.0, 0.0]
    for rows in sizes:
        x = torch.rand(rows, 3, SIDE, SIDE, device=model.device).to(kind, memory_format=layout)

        def forward(x: torch.Tensor = x) -> None:
            with torch.no_grad():
                bare(x)

        def gradient(x: torch.Tensor = x) -> None:
            leaf = x.detach().requires_grad_()
            torch.autograd.grad(bare(leaf)[:, 0].sum(), leaf)

        for i, work in enumerate((forward, gradient)):
            best[i] = max(best[i], rows / seconds(work, times))
    return best[0], best[1]


@contextmanager
def sampled(found: collections.Counter[str]) -> Iterator[None]:
    """Count where the main thread is, a hundred times a second."""
    main, done = threading.main_thread().ident, threading.Event()

    def watch() -> None:
        while not done.wait(0.01):
            frame = sys._current_frames().get(main or 0)
            outside = ""
            while frame is not None and "/heatproof/" not in frame.f_code.co_filename:
                outside = f" > {frame.f_code.co_name}"
                frame = frame.f_back
            if frame is not None:
                place = frame.f_code.co_filename.split("/heatproof/")[-1]
                found[f"{place}:{frame.f_code.co_name}{outside}"] += 1

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@dataclass
class Part:
    """What one axis did with one shard."""

    axis: str
    seconds: float
    passes: int
    differentiated: int

    def ideal(self, forward: float, gradient: float) -> float:
        """Seconds of its passes at these rates."""
        return (self.passes - self.differentiated) / forward + self.differentiated / gradient


class Enough(Exception):
    """The seconds are over."""


@contextmanager
def counted(model: Model, parts: list[Part], seconds: float = math.inf) -> Iterator[None]:
    """Note what every axis does with every shard; what axes share counts for the first that asks for it.

    After so many seconds the axis that is at work is noted as far as it came, and the study stops: a signal ends it,
    since an axis may be at its first results for longer than that.
    """

    def enough(*_: Any) -> None:
        raise Enough

    kinds = [Stability, Faithfulness, Certificate, Symmetry]
    before = {kind: kind.__call__ for kind in kinds}

    def watched(axis: Any, subject: Any) -> Iterator[Any]:
        finish()
        begun, passes, differentiated = time.perf_counter(), model.passes, model.gradient_passes
        try:
            yield from before[type(axis)](axis, subject)
        finally:
            finish()
            spent = time.perf_counter() - begun
            parts.append(
                Part(
                    axis.name, spent, model.passes - passes, model.gradient_passes - differentiated
                )
            )
            say(f"  {len(subject.batch)} photographs, {parts[-1]}")

    for kind in kinds:
        kind.__call__ = watched
    signal.signal(signal.SIGALRM, enough)
    signal.setitimer(signal.ITIMER_REAL, seconds if seconds < math.inf else 0)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for kind, call in before.items():
            kind.__call__ = call


def shares(
    parts: list[Part], wall: float, rates: tuple[float, float], samples: int, wanted: int
) -> Iterator[str]:
    """A line for each axis with its share, in all and after its first shard, and for the study of `wanted` samples."""
    shards = min(collections.Counter(part.axis for part in parts).values())
    first, later = [0.0, 0.0], [0.0, 0.0]
    for axis in dict.fromkeys(part.axis for part in parts):
        own = [part for part in parts if part.axis == axis]
        spent, ideal = [part.seconds for part in own], [part.ideal(*rates) for part in own]
        line = f"{axis}: {sum(spent):.1f} s, {sum(part.passes for part in own)} passes, {sum(ideal) / sum(spent):.2f}"
        if shards > 1:
            line += f", after the first shard {sum(ideal[1:]) / sum(spent[1:]):.2f}"
            for kept, values in (
                (first, (spent[0], ideal[0])),
                (later, (sum(spent[1:]), sum(ideal[1:]))),
            ):
                kept[0], kept[1] = kept[0] + values[0], kept[1] + values[1]
        yield line
    if shards > 1 and wanted:
        more = (wanted * shards / samples - 1) / (shards - 1)
        whole = wall - first[0] - later[0] + first[0] + more * later[0]
        share = (first[1] + more * later[1]) / whole
        yield f"{wanted} photographs: {whole:.0f} s, share {share:.2f}; later shards alone {later[1] / later[0]:.2f}"


@contextmanager
def profiled(wanted: bool, lines: list[str]) -> Iterator[None]:
    """Which kernels the device was busy with, and for how much of the time it was."""
    if not wanted:
        yield
        return
    kinds = [
        torch.profiler.ProfilerActivity.CUDA
        if DEVICE == "cuda"
        else torch.profiler.ProfilerActivity.CPU
    ]
    begun = time.perf_counter()
    with torch.profiler.profile(activities=kinds) as watch:
        yield
        finish()
        spent = time.perf_counter() - begun
    spans: dict[str, list[float]] = collections.defaultdict(list)
    for event in (
        watch.profiler.kineto_results.events()
    ):  # not torch's own table, which takes minutes for a million
        if (event.device_type() != torch.autograd.DeviceType.CPU) == (DEVICE == "cuda"):
            spans[event.name()].append(event.duration_ns() / 1e9)
    busy = sorted(((sum(each), len(each), name) for name, each in spans.items()), reverse=True)
    lines.append(f"    device busy {sum(total for total, *_ in busy):.1f} of {spent:.1f} s")
    lines += [f"    {total:7.2f} s {count:>7}  {name[:110]}" for total, count, name in busy[:40]]


def fates(table: Any) -> str:
    """How many rows are ok, flipped and undefined, and of which explainers most are undefined: they cost less."""
    counted = ", ".join(
        f"{share:.1%} {fate}" for fate, share in table.status.value_counts(normalize=True).items()
    )
    undefined = (table.status == "undefined").groupby(table.explainer).mean()
    worst = [f"{name} {share:.0%} undefined" for name, share in undefined.items() if share > 0.3]
    reasons = table.reason[table.status == "undefined"].value_counts().head(3)
    return "; ".join(
        [f"rows: {counted}", *worst, *(f"{count} × {why}" for why, count in reasons.items())]
    )


def study(
    model: Model, data: Any, axes: dict[str, Any], given: argparse.Namespace
) -> tuple[float, str]:
    """Seconds of a whole study, or of what was done of it in time, and what became of its rows."""
    with tempfile.TemporaryDirectory() as folder:
        finish()
        begun = time.perf_counter()
        with suppress(Enough):
            evaluate(
                model, data, given.explainers, axes, out=Path(folder) / "run", show_progress=False,
                batch_size=given.batch_size, **({"shard_size": given.shard_size} if given.shard_size else {}),
            )  # fmt: skip
        finish()
        spent = time.perf_counter() - begun
        return spent, fates(read(Path(folder) / "run").table())


def defined(explainers: list[Any], model: Model) -> list[Any]:
    """Those that the network can be explained by: guided backprop is for ReLUs, of which a ViT has none."""
    if any(isinstance(layer, torch.nn.ReLU | torch.nn.ReLU6) for layer in model.module.modules()):
        return explainers
    say(f"{model.name} has no ReLU: guided_backprop is left out")
    return [explainer for explainer in explainers if explainer != "guided_backprop"]


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--images", required=True, help="a folder of photographs")
    ask.add_argument("--networks", nargs="+", default=["mobilenet_v2"])
    ask.add_argument("--photographs", type=int, default=32)
    ask.add_argument("--modes", nargs="+", default=["float32"])
    ask.add_argument("--axes", nargs="+", default=list(AXES), choices=list(AXES))
    ask.add_argument(
        "--singly",
        action="store_true",
        help="one explainer after another, each with a line of its own",
    )
    ask.add_argument(
        "--explainers", nargs="+", default=None, help="of the eleven, or others by name"
    )
    ask.add_argument("--few", action="store_true", help="fewer conditions")
    ask.add_argument(
        "--extrapolate",
        type=int,
        default=0,
        help="to so many photographs, from the shards after the first",
    )
    ask.add_argument("--kernels", action="store_true", help="what the device was busy with")
    ask.add_argument(
        "--seconds", type=float, default=math.inf, help="of a mode, after which its study stops"
    )
    ask.add_argument("--batch-size", type=int)
    ask.add_argument("--shard-size", type=int)
    ask.add_argument("--sizes", type=int, nargs="+", default=[64, 256] if DEVICE == "cuda" else [8])
    ask.add_argument("--where", type=int, default=25, help="how many places are listed")
    given = ask.parse_args()
    chosen = given.explainers
    known = {e if isinstance(e, str) else next(iter(e)): e for e in EXPLAINERS}
    given.chosen = EXPLAINERS if chosen is None else [known.get(name, name) for name in chosen]
    axes = {name: (FEW if given.few else {}).get(name, AXES[name]) for name in given.axes}
    say(f"torch {torch.__version__}, {torch.cuda.get_device_name() if DEVICE == 'cuda' else 'CPU'}")
    for name in given.networks:
        for mode in given.modes:
            precision, _, compiled = mode.partition("+")
            torch._dynamo.reset()
            model = network(name).use(precision, bool(compiled))
            data = open_data(given.images, name="photographs", size=SIDE).limit(given.photographs)
            kept = defined(given.chosen, model)
            groups = [[e] for e in kept] if given.singly else [kept]
            for group in groups:
                given.explainers = group
                model.passes = model.gradient_passes = 0
                found: collections.Counter[str] = collections.Counter()
                parts, kernels = list[Part](), list[str]()
                say(f"{name.partition('=')[0]}, {given.photographs} photographs, {mode}: begins")
                watch = counted(model, parts, given.seconds)
                with arithmetic(precision), profiled(given.kernels, kernels), watch, sampled(found):
                    wall, ended = study(model, data, axes, given)
                say(f"  {ended}")
                passes, differentiated = model.passes, model.gradient_passes
                with arithmetic(precision):
                    forward, gradient = ceiling(model, tuple(given.sizes))
                ideal = (passes - differentiated) / forward + differentiated / gradient
                label = (
                    name.partition("=")[0]
                    + ", "
                    + (str(group[0]) if given.singly else "all explainers")
                )
                say(
                    f"{label}, {given.photographs} photographs, {mode}: {wall:.1f} s, {passes} passes, "
                    f"{differentiated} of them differentiated, limit {ideal:.1f} s "
                    f"({forward:.0f} and {gradient:.0f} a second), share {ideal / wall:.2f}; batches of {model.rows}"
                )
                for line in shares(
                    parts, wall, (forward, gradient), given.photographs, given.extrapolate
                ):
                    print(f"  {line}")
                print(*kernels, sep="\n", end="\n" * bool(kernels))
                whole = max(1, sum(found.values()))
                for place, count in found.most_common(given.where):
                    print(f"    {count / whole:5.1%}  {place}")


if __name__ == "__main__":
    main()

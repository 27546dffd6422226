"""ROAD and ROAR on CIFAR-10: the experiment of the ROAD paper (Tables 2 to 6) with a ResNet-18.

    python benchmarks/road_cifar10.py pack  --data ../shared/data/cifar10 --out runs/cifar10-data
    python benchmarks/road_cifar10.py train --data runs/cifar10-data --out runs/cifar10 --budget 200
    python benchmarks/road_cifar10.py road  --data runs/cifar10-data --out runs/cifar10 --budget 380
    python benchmarks/road_cifar10.py roar  --data runs/cifar10-data --out runs/cifar10 --budget 560
    python benchmarks/road_cifar10.py show  --out runs/cifar10

`--data` holds `train.npz` and `test.npz` (JPEG blobs: `jpeg`, `offsets`, `labels`, `classes`). What exists in `--out`
is not done again, and a stage stops before `--budget` seconds are over, so the same command goes on where it was.

- `pack` copies the data compressed, a third of the size, for the way to another machine.
- `train` trains the network on the JPEG training images and prints its accuracy on the test images. The weights are
  rounded to 16 bits and kept in pieces of at most 15 MB, `weights.0` and so on.
- `road` evaluates the eight attribution methods of the paper without retraining, five seeds, in `road/seed-0` and so
  on: the seed moves the imputation's noise, the order of equal pixels and SmoothGrad's noise. It prints accuracies and
  rank correlations between MoRF and LeRF, and writes `road.0.tar` (the run of seed 0, for its report) and
  `road-accuracy.parquet` (all seeds).
- `roar` retrains for some of the methods, in `roar`, beside ROAD of the same methods, images, imputers and fractions.
  It prints accuracies, whether the rankings agree, the seconds and passes of both (maps that were computed twice, as
  the stage was interrupted, count twice), and the leak, and writes `roar.0.tar`.
- `show` prints the tables of `road` again from `road-accuracy.parquet`, on any machine.

As in the published code of the paper, networks see (x − ½) / ½, the baseline of integrated gradients is 0 there
(grey), and noise has σ = 0.2 for integrated gradients and σ = 1 for guided backprop in these units; 15 draws for both
(that code has 100 for guided backprop). The fixed imputation is the mean colour of the training images. Other than
there: the class explained is the predicted one, not the label (accuracy is that of the label), integrated gradients
take 16 Gauss–Legendre steps in `road` and 8 in `roar`, the network has a stem for 32-pixel images, and the epoch is
chosen on held-out training images. Maps and predictions are in float32 unless `--precision` says otherwise; trainings
run in bfloat16 on a GPU. SmoothGrad, SmoothGrad² and VarGrad of one method are moments of the same noisy maps, which
are computed once for the three.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from PIL import Image
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import heatproof
from heatproof.axes.faithfulness.consistency import consistency
from heatproof.axes.faithfulness.evaluation import Faithfulness
from heatproof.axes.faithfulness.retraining.leakage import leakage_summary
from heatproof.axes.faithfulness.retraining.trainer import ImageTrainer, Trainer, accuracy
from heatproof.data import Data, open_data
from heatproof.errors import UserError
from heatproof.explainers import (
    GuidedBackprop,
    IntegratedGradients,
    SmoothGrad,
    SmoothGradSquared,
    VarGrad,
)
from heatproof.explainers import (
    smoothgrad as smoothing,
)
from heatproof.models import Model
from heatproof.removal import DatasetMean, NoisyLinear
from heatproof.types import Batch, label_of

FRACTIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
SWEPT = tuple(i / 10 for i in range(1, 10))
"""With the complement of each fraction: the paper sets MoRF with η removed beside LeRF with η kept."""
RETRAINED, PROBED = (0.1, 0.5, 0.9), (0.5,)
IN_PAPER = {"dataset_mean": 0.01, "noisy_linear": 0.54}
HITS = [("measure", "=", "accuracy")]
PIECE = 15 * 2**20
DRAWS, SIGMA_IG, SIGMA_GB = 15, 0.2, 1.0


class OutOfTime(UserError):
    """The next training would not end in time."""


class Clock:
    """Seconds since the start, and how many are left of the budget."""

    def __init__(self, budget: float) -> None:
        self.budget, self.begun = budget, time.perf_counter()

    @property
    def left(self) -> float:
        return self.budget - (time.perf_counter() - self.begun)

    def say(self, text: str) -> None:
        print(f"[{time.perf_counter() - self.begun:6.1f} s] {text}", flush=True)


# The images


def pack(data: Path, out: Path) -> None:
    """The same files with their arrays compressed: most of a JPEG of 32 pixels are tables that all of them share."""
    out.mkdir(parents=True, exist_ok=True)
    for which in ("train", "test"):
        np.savez_compressed(out / f"{which}.npz", **dict(np.load(data / f"{which}.npz")))
        print(out / f"{which}.npz", (out / f"{which}.npz").stat().st_size, "bytes")


def decoded(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Pictures (N, 3, 32, 32) uint8 and labels (N,) int64."""
    found = np.load(path)
    blob, offsets = found["jpeg"].tobytes(), found["offsets"].tolist()

    def some(start: int) -> np.ndarray:
        stop = min(start + 500, len(offsets) - 1)
        parts = [
            io.BytesIO(blob[a:b])
            for a, b in zip(offsets[start:stop], offsets[start + 1 : stop + 1], strict=True)
        ]
        return np.stack([np.asarray(Image.open(part).convert("RGB")) for part in parts])

    with ThreadPoolExecutor(16) as pool:
        pixels = np.concatenate(list(pool.map(some, range(0, len(offsets) - 1, 500))))
    return pixels.transpose(0, 3, 1, 2).copy(), found["labels"]


def images(args: argparse.Namespace, which: str, limit: int) -> tuple[Tensor, Tensor]:
    """The first images in [0, 1] and their labels; decoded once."""
    cache = args.out / f"{which}-pixels.npz"
    if not cache.is_file():
        x, y = decoded(args.data / f"{which}.npz")
        np.savez(cache, x=x, y=y)
    found = np.load(cache)
    return torch.from_numpy(found["x"][:limit]).float() / 255, torch.from_numpy(
        found["y"][:limit]
    ).long()


def as_data(name: str, x: Tensor, y: Tensor) -> Data:
    return open_data(
        Batch(tuple(f"{name}-{i:05d}" for i in range(len(x))), x, label=y), name=f"cifar10-{name}"
    )


# The network


class Block(nn.Module):
    """Two convolutions and a shortcut."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = nn.Sequential()
        if stride != 1 or into != out:
            self.shortcut = nn.Sequential(
                nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)))))
        return F.relu(inner + self.shortcut(x))


class ResNet18(nn.Module):
    """He et al. 2016 with a stem for small pictures; 11.2 million weights at width 64. `scale`: takes x in [0, 1]."""

    def __init__(self, width: int = 64, scale: bool = False) -> None:
        super().__init__()
        self.scale = scale
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks = []
        for stage in range(4):
            blocks.append(Block(widths[stage], widths[stage + 1], 1 if stage == 0 else 2))
            blocks.append(Block(widths[stage + 1], widths[stage + 1], 1))
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = (x - 0.5) / 0.5 if self.scale else x
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def trainer(args: argparse.Namespace, epochs: int, validation: float = 0.1) -> Trainer:
    """`train(dataset, seed)`; its name says what it does, for the manifest of a run."""
    build = partial(ResNet18, args.width, scale=True)
    inner = ImageTrainer(
        build, epochs, args.train_batch, args.rate, validation=validation, device=args.device
    )

    def train(dataset: TensorDataset, seed: int) -> nn.Module:
        # All but one step have the same shapes, so that looking for the fastest convolutions pays.
        with torch.backends.cudnn.flags(enabled=True, benchmark=True):
            return inner(dataset, seed)

    train.__name__ = f"ResNet-18, width {args.width}, {epochs} epochs, batches of {args.train_batch}, rate {args.rate:g}"
    return train


def train(args: argparse.Namespace, clock: Clock) -> None:
    """Train the network of all that follows, and keep it."""
    (x, y), (test, truth) = images(args, "train", args.train_images), images(args, "test", 10_000)
    clock.say(
        f"{len(x)} training and {len(test)} test images decoded, mean colour {mean_colour(x)}"
    )
    if not (args.out / "weights.0").is_file():
        few = TensorDataset(x[: 60 * args.train_batch], y[: 60 * args.train_batch])
        trainer(args, 1)(few, 0)  # the first includes starting the device
        begun = time.perf_counter()
        trainer(args, 1)(few, 0)
        rate = len(few) / (time.perf_counter() - begun)
        epochs = max(1, min(args.epochs, int(0.8 * clock.left * rate / len(x))))
        clock.say(f"{rate:.0f} images/s in training; {epochs} epochs")
        net = trainer(args, epochs, validation=0.04)(TensorDataset(x, y), args.seed)
        save(args.out, net)
        clock.say(f"trained {epochs} epochs")
    net = ResNet18(args.width, scale=True)
    net.load_state_dict(saved(args.out))
    size = sum(p.numel() for p in net.parameters())
    found = accuracy(net.to(args.device), test, truth.to(args.device), 1000)
    clock.say(
        f"ResNet-18, {size} weights: {100 * found:.2f} % of {len(test)} test images right (at least 88 % wanted)"
    )


def save(out: Path, net: nn.Module) -> None:
    """Matrices in 16 bits, the rest in 32, in files that may travel."""
    state = {
        k: v.detach().cpu().half() if v.ndim > 1 else v.detach().cpu()
        for k, v in net.state_dict().items()
    }
    sink = io.BytesIO()
    torch.save({k: v.contiguous() for k, v in state.items()}, sink)
    content = sink.getvalue()
    for number in reversed(
        range(-(-len(content) // PIECE))
    ):  # the first last: where it is, all are
        (out / f"weights.{number}").write_bytes(content[number * PIECE : (number + 1) * PIECE])


def saved(out: Path) -> dict[str, Tensor]:
    """The weights as every stage uses them."""
    content = b""
    while (piece := out / f"weights.{len(content) // PIECE}").is_file():
        content += piece.read_bytes()
        if len(content) % PIECE:
            break
    if not content:
        raise SystemExit(f"no weights in {out}; run the stage `train` first")
    state = torch.load(io.BytesIO(content), weights_only=True)
    return {k: v.float() if v.is_floating_point() else v for k, v in state.items()}


def classifier(args: argparse.Namespace) -> Model:
    net = ResNet18(args.width)
    net.load_state_dict(saved(args.out))
    names = np.load(args.data / "test.npz")["classes"].tolist()
    tensor_cores = args.precision != "float32"
    model = Model(
        net,
        mean=0.5,
        std=0.5,
        classes=names,
        name="resnet18",
        device=args.device,
        channels_last=tensor_cores,
    )
    return model.use(args.precision)


# The methods


def methods(steps: int) -> dict[str, Any]:
    """The eight attribution methods of the paper; pixels are in [0, 1], which halves its σ."""
    found: dict[str, Any] = {}
    for name, of, sigma in (
        ("IG", IntegratedGradients(steps=steps), SIGMA_IG),
        ("GB", GuidedBackprop(), SIGMA_GB),
    ):
        noise: dict[str, Any] = {"of": of, "samples": DRAWS, "sigma": sigma / 2, "relative": False}
        found[name] = of
        found |= {f"{name}-SG": SmoothGrad(**noise), f"{name}-SQ": SmoothGradSquared(**noise)}
        found[f"{name}-Var"] = VarGrad(**noise)
    return found


def remember_moments() -> None:
    """Let SmoothGrad, SmoothGrad² and VarGrad of the same inputs share the noisy maps they are moments of."""
    compute, known = smoothing.noisy_moments, dict[Any, tuple[Tensor, Tensor]]()

    def moments(
        of: Any,
        samples: int,
        sigma: float,
        relative: bool,
        model: Model,
        batch: Batch,
        target: Tensor,
        seed: int,
    ) -> tuple[Tensor, Tensor]:
        what = (label_of(of), samples, sigma, relative, model.fingerprint, seed)
        key = (what, batch.ids, tuple(target.tolist()), float(batch.x.double().sum()))
        if key not in known:
            while len(known) >= 16:
                known.pop(next(iter(known)))
            known[key] = compute(of, samples, sigma, relative, model, batch, target, seed)
        return known[key]

    smoothing.noisy_moments = moments


def imputers(mean: Sequence[float]) -> list[Any]:
    """Fixed, and noisy linear with the noise of the paper's text and of its code."""
    return [DatasetMean(mean=tuple(mean)), NoisyLinear(), NoisyLinear(sigma=0.01)]


def mean_colour(x: Tensor) -> list[float]:
    return [round(value, 3) for value in x.mean((0, 2, 3)).tolist()]


# ROAD


def road(args: argparse.Namespace, clock: Clock) -> None:
    """The eight methods without retraining, seed by seed."""
    remember_moments()
    model = classifier(args)
    data = as_data("test", *images(args, "test", args.limit))
    fills = imputers(mean_colour(images(args, "train", 50_000)[0]))
    longest = 0.0
    for seed in range(args.seeds):
        if clock.left < 1.1 * longest:
            clock.say(f"no time for seed {seed}; run this stage again to go on")
            break
        begun = time.perf_counter()
        axis = Faithfulness(
            imputers=fills,
            fractions=SWEPT,
            orders=("morf", "lerf", "random") if seed == 0 else ("morf", "lerf"),
            against="label",
            metrics=("road", "deletion_auc", "insertion_auc", "pixel_flipping", "aopc"),
        )
        out = args.out / "road" / f"seed-{seed}"
        run = heatproof.evaluate(
            model,
            data,
            methods(args.steps),
            {"faithfulness": axis},
            out,
            seed=seed,
            shard_size=1000,
            batch_size=args.batch_size,
            show_progress=False,
        )
        longest = max(longest, time.perf_counter() - begun)
        session = run.manifest.sessions[-1]
        clock.say(f"seed {seed}: {session.seconds:.1f} s, {session.passes['resnet18']} passes")
    folders = sorted((args.out / "road").glob("seed-*"))
    parts = [
        rows_of(run, "faithfulness", HITS).assign(seed=int(run.name.removeprefix("seed-")))
        for run in folders
    ]
    pq.write_table(
        pa.Table.from_pandas(pd.concat(parts), preserve_index=False),
        args.out / "road-accuracy.parquet",
        compression="zstd",
    )
    show(args)
    bundle(args.out, "road", args.out / "road" / "seed-0")
    clock.say("road done")


def rows_of(run: Path, evaluation: str, filters: Any = None) -> pd.DataFrame:
    """Some rows of a run, without the rest of its table, which is large."""
    paths = sorted((run / "parts").glob(f"**/{evaluation}/**/*.parquet"))
    tables = [pq.read_table(path, filters=filters) for path in paths]
    found: pd.DataFrame = pa.concat_tables(tables).to_pandas() if tables else pd.DataFrame()
    return found


def show(args: argparse.Namespace) -> None:
    """Print accuracies and rank correlations from the rows of all seeds."""
    rows = pd.read_parquet(args.out / "road-accuracy.parquet")
    rows = rows[rows.status == "ok"]
    seeds = sorted(rows.seed.unique())
    means = (
        rows.groupby(["condition", "explainer", "level", "seed"], sort=False).value.mean().mul(100)
    )
    spread = (
        means.groupby(["condition", "explainer", "level"], sort=False).std().max()
        if len(seeds) > 1
        else np.nan
    )
    print(
        f"\nAccuracy in % of the label; {rows['sample'].nunique()} images, means of {len(seeds)} seeds;"
    )
    print(
        f"largest standard deviation between seeds {spread:.2f}. Columns: percent of pixels removed"
    )
    drawn = set(rows.loc[rows["order"] == "random", "condition"])
    for condition, part in means.groupby("condition", sort=False):
        wide = part.groupby(["explainer", "level"], sort=False).mean().unstack().sort_index(axis=1)
        wide.columns = [f"{100 * level:.0f}" for level in wide.columns]
        if condition in drawn:  # the same for every method
            wide = wide[:1].rename({wide.index[0]: "any"})
        else:
            wide = wide.reindex([name for name in methods(1) if name in wide.index])
        print(f"\n{condition}\n{wide.to_string(float_format='%.1f', index_names=False)}")
    print(
        "\nRank correlation of MoRF and LeRF over the eight methods, mean over the fractions of the paper"
    )
    head = f"{'imputer':<42} {'LeRF beside MoRF at η removed':<32} {'mean':>6} {'95 % over seeds':>16} {'paper':>7}"
    print(f"{head}  by seed")
    for pairing, beside in (("mask", "η kept, as in the paper"), ("removed", "η removed")):
        other = (
            {round(1 - f, 9) for f in FRACTIONS}
            if pairing == "mask"
            else {round(f, 9) for f in FRACTIONS}
        )
        at = rows.level.round(9)
        lerf, morf = rows["order"] == "lerf", rows["order"] == "morf"
        used = rows[(morf & at.isin(FRACTIONS)) | (lerf & at.isin(other))]
        found: dict[str, list[pd.Series]] = {}
        for seed in seeds:
            table = consistency(used[used.seed == seed], pairing=pairing, resamples=300)  # type: ignore[arg-type]
            for _, row in table[(table.kind == "order") & table.level.isna()].iterrows():
                found.setdefault(row.a_imputer, []).append(row)
        for imputer, each in found.items():
            values = np.array([row.spearman for row in each])
            low, high = interval(values)
            paper = next(value for name, value in IN_PAPER.items() if imputer.startswith(name))
            line = f"{imputer:<42} {beside:<32} {values.mean():6.2f}   [{low:5.2f}, {high:5.2f}] {paper:7.2f}"
            print(f"{line}  {' '.join(f'{v:.2f}' for v in values)}")
            images_too = (
                f"seed {seeds[0]}, bootstrap over images: [{each[0].low:.2f}, {each[0].high:.2f}]"
            )
            print(f"{'':<42} {images_too}")
    print(flush=True)


def interval(values: np.ndarray) -> tuple[float, float]:
    """Student's 95 % interval of a mean; NaN for one value."""
    if len(values) < 2:
        return np.nan, np.nan
    half = stats.t.ppf(0.975, len(values) - 1) * values.std(ddof=1) / np.sqrt(len(values))
    return values.mean() - half, values.mean() + half


def bundle(out: Path, name: str, run: Path) -> None:
    """Tar files of at most 15 MB with everything that the report of a run needs."""
    groups: list[list[Path]] = [[]]
    size = 0
    for path in sorted(
        p for p in run.glob("**/*") if p.is_file() and p.suffix in (".parquet", ".json")
    ):
        size += path.stat().st_size + 1024
        if size > PIECE and groups[-1]:
            groups.append([])
            size = path.stat().st_size
        groups[-1].append(path)
    for number, paths in enumerate(groups):
        target = out / f"{name}.{number}.tar"
        with tarfile.open(target, "w") as tar:
            for path in paths:
                tar.add(path, path.relative_to(run.parent))
        print(f"{target}: {target.stat().st_size} bytes", flush=True)


# ROAR


def roar(args: argparse.Namespace, clock: Clock) -> None:
    """Some methods with retraining, method by method, beside the same without."""
    remember_moments()
    model, chosen = classifier(args), methods(args.roar_steps)
    sets = {
        "train": images(args, "train", args.train_images),
        "test": images(args, "test", args.test_images),
    }
    fills = imputers(mean_colour(images(args, "train", 50_000)[0]))[:2]
    data = {name: as_data(name, *pair) for name, pair in sets.items()}
    log = args.out / "roar.json"
    costs: dict[str, Any] = json.loads(log.read_text()) if log.is_file() else {}
    learn = trainer(args, args.roar_epochs)
    if "untouched" not in costs:
        begun = time.perf_counter()
        net = learn(TensorDataset(*sets["train"]), args.seed)
        found = accuracy(net, sets["test"][0], sets["test"][1].to(args.device), 1000)
        costs["untouched"] = {"accuracy": found, "seconds": time.perf_counter() - begun}
        log.write_text(json.dumps(costs, indent=1))
    clock.say(f"retrained on untouched images: {100 * costs['untouched']['accuracy']:.2f} %")
    known = [costs["untouched"]["seconds"]]
    for name in args.methods:
        if clock.left < 3 * max(known):  # maps and one training at the least
            clock.say(f"no time for {name}; run this stage again to go on")
            break
        own = costs.setdefault(name, {"road": [0.0, 0], "roar": [0.0, 0], "leakage": 0.0})
        axis = Faithfulness(
            imputers=fills, fractions=RETRAINED, orders=("morf",), against="label", metrics=()
        )
        what = {
            "out": args.out / "roar",
            "seed": args.seed,
            "batch_size": args.batch_size,
            "show_progress": False,
        }
        spec = {name: chosen[name]}
        run = heatproof.evaluate(
            model, data["test"], spec, {"faithfulness": axis}, shard_size=2500, **what
        )
        add(own["road"], run, "faithfulness")
        clock.say(f"{name}: ROAD {own['road'][0]:.1f} s")
        stopped = False
        try:
            cells = {"imputers": fills, "orders": ["morf"], "fractions": RETRAINED}
            leak = PROBED if name in args.probed else False
            heatproof.retrain(
                model,
                data["train"],
                data["test"],
                spec,
                in_time(learn, clock, known),
                leakage=leak,
                **cells,
                **what,
            )
        except OutOfTime:
            stopped = True
        run = heatproof.read(args.out / "roar")
        add(own["roar"], run, "retraining")
        own["leakage"] += run.manifest.sessions[-1].durations.get("leakage", 0.0)
        log.write_text(json.dumps(costs, indent=1))
        clock.say(f"{name}: ROAR {own['roar'][0]:.1f} s, probes of the leak {own['leakage']:.1f} s")
        if stopped:
            clock.say("no time for the next training; run this stage again to go on")
            break
    compare(args, args.out / "roar", costs)
    bundle(args.out, "roar", args.out / "roar")
    clock.say("roar done")


def in_time(learn: Trainer, clock: Clock, known: list[float]) -> Trainer:
    """The same trainer, which does not start what would not end in time; `known` gathers the seconds of trainings."""
    starts: list[float] = []

    def train(dataset: TensorDataset, seed: int) -> nn.Module:
        starts.append(time.perf_counter())
        if clock.left < 1.2 * max(
            [*known, *(b - a for a, b in pairwise(starts))]
        ):  # with images and probes between
            raise OutOfTime(f"{clock.left:.0f} s are left")
        net = learn(dataset, seed)
        known.append(time.perf_counter() - starts[-1])
        return net

    train.__name__ = learn.__name__  # type: ignore[attr-defined]
    return train


def add(total: list[float], run: heatproof.Run, evaluation: str) -> None:
    """Add the seconds and passes of the run's last session."""
    session = run.manifest.sessions[-1]
    total[0] += session.durations.get(evaluation, 0.0)
    total[1] += session.passes["resnet18"]


def compare(args: argparse.Namespace, run: Path, costs: dict[str, Any]) -> None:
    """Print ROAD beside ROAR, what each costs, and the leak."""
    hits = pd.concat(
        [rows_of(run, evaluation, HITS) for evaluation in ("faithfulness", "retraining")]
    )
    wide = (
        hits.groupby(["condition", "explainer", "evaluation", "level"])
        .value.mean()
        .mul(100)
        .unstack()
    )
    wide.columns = [f"{100 * level:.0f}" for level in wide.columns]
    n = hits["sample"].nunique()
    print(
        f"\nAccuracy in % of the label on {n} test images; columns: percent of pixels removed, most relevant first"
    )
    print(
        wide.rename({"faithfulness": "ROAD", "retraining": "ROAR"}).to_string(float_format="%.1f")
    )
    ranks = hits.groupby(["condition", "level", "evaluation", "explainer"]).value.mean().unstack()
    print("\nBest method first (the lowest accuracy), without and with retraining")
    for (condition, level), part in ranks.groupby(["condition", "level"]):
        order = {key[-1]: part.loc[key].dropna().sort_values().index.tolist() for key in part.index}
        road_, roar_ = order.get("faithfulness", []), order.get("retraining", [])
        same = (
            "same" if road_ == roar_ else "incomplete" if len(road_) != len(roar_) else "different"
        )
        print(
            f"{condition:<42} {100 * level:3.0f} %  {' < '.join(road_):<24} {' < '.join(roar_):<24} {same}"
        )
    agreement = consistency(hits, resamples=300)
    agreement = agreement[(agreement.kind == "retraining") & agreement.spearman.notna()]
    if len(agreement):
        print(
            agreement[["a", "b", "level", "spearman", "low", "high", "explainers"]].to_string(
                index=False
            )
        )
    seen = args.roar_epochs * round(0.9 * args.train_images)
    again = hits[hits.evaluation == "retraining"]
    done = (again.condition + again.level.astype(str)).groupby(again.explainer).nunique()
    print(
        f"\nCost on {torch.cuda.get_device_name() if args.device == 'cuda' else 'the CPU'}; the paper: 0.7 % with"
    )
    print(
        f"seven fractions and 40 epochs. Passes of training: {seen} images per cell, each forth and back"
    )
    head = f"{'method':<8} {'cells':>5} {'ROAD s':>8} {'passes':>9} {'ROAR s':>8} {'passes':>9} {'training':>10}"
    print(f"{head} {'ROAD / ROAR':>12}")
    for name, own in costs.items():
        if name in done.index:
            (a, b), (c, d) = own["road"], own["roar"]
            share = f"{100 * a / c:.2f} %" if c else ""
            print(
                f"{name:<8} {done[name]:>5} {a:>8.1f} {b:>9} {c:>8.1f} {d:>9} {seen * done[name]:>10} {share:>12}"
            )
    leak = rows_of(run, "leakage")
    if len(leak):
        columns = [
            "explainer",
            "condition",
            "level",
            "mask_accuracy",
            "mask_bits",
            "imputed_accuracy",
            "imputed_bits",
        ]
        print(
            "\nThe leak: accuracy and guaranteed bits of the class from the mask alone and from the imputed image,"
        )
        print(
            "the share of pixels whose removal can be told, and I(C;M) − I(C;M|x′) in bits (an estimate)"
        )
        found = leakage_summary(leak)[[*columns, "pixels", "leak", "leaks"]]
        print(found.to_string(index=False, float_format="%.3f"))
    print(flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    stages: dict[str, Callable[..., None]] = {"train": train, "road": road, "roar": roar}
    parser.add_argument("stage", choices=["pack", *stages, "show"])
    parser.add_argument("--data", type=Path, default=Path("runs/cifar10-data"))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--budget",
        type=float,
        default=540.0,
        help="seconds after which a stage starts nothing more",
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument(
        "--precision", default="float32", help="of maps and predictions: float32, tf32, …"
    )
    parser.add_argument(
        "--batch-size", type=int, default=1365, help="as many as a removal sweep imputes at a time"
    )
    parser.add_argument("--seed", type=int, default=0, help="of training and of roar")
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--train-images", type=int, default=50_000)
    parser.add_argument("--train-batch", type=int, default=512)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument(
        "--epochs", type=int, default=30, help="train: fewer if the budget is too small"
    )
    parser.add_argument("--limit", type=int, default=1000, help="road: test images")
    parser.add_argument("--seeds", type=int, default=5, help="road")
    parser.add_argument("--steps", type=int, default=16, help="road: steps of integrated gradients")
    parser.add_argument(
        "--methods", nargs="+", choices=list(methods(1)), default=["IG", "GB"], help="roar"
    )
    parser.add_argument("--test-images", type=int, default=10_000, help="roar")
    parser.add_argument(
        "--roar-steps", type=int, default=8, help="roar: steps of integrated gradients"
    )
    parser.add_argument("--roar-epochs", type=int, default=8)
    parser.add_argument(
        "--probed", nargs="*", default=["IG"], help="roar: methods whose leak is measured, at 50 %%"
    )
    args = parser.parse_args()
    if args.stage == "pack":
        return pack(args.data, args.out)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.stage == "show":
        return show(args)
    clock = Clock(args.budget)
    where = torch.cuda.get_device_name() if args.device == "cuda" else "CPU"
    clock.say(f"{args.stage}: {where}, torch {torch.__version__}, maps in {args.precision}")
    stages[args.stage](args, clock)


if __name__ == "__main__":
    main()

"""Train the atlas's networks, many at once on one device: weights as safetensors and a model card as JSON for each.

    python studies/atlas/train.py --networks all --jobs 6 --data DIR --out studies/atlas/weights --minutes 9

Pictures and their augmentation (shifts, mirrors, a square cut out; quarter turns for the augmented ResNet) stay on the
device. What `--out` has is not trained again, the most important come first, and each network is written when it is
done. On a GPU the seconds of an epoch are measured first and all numbers of epochs cut by one factor, so that all ends
within `--minutes`; a training that is late all the same ends its schedule early. Both are on the card.

Nothing was chosen by looking at results: rates, decay, smoothing, sizes of crops and squares are customary ones and
the numbers of epochs follow from the time. `--hold-out 5000` trains without these training pictures and reports on
them, and never opens the test file; without it all training pictures are learned from and the test file is read once,
at the end, with the weights as they are in the file (16 bits).
"""

from __future__ import annotations

import argparse
import json
import math
import os
import queue
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from networks import NETWORKS, SIDES, Network
from pictures import MEAN, NAMES, STD, pictures, ready
from safetensors.torch import save_file
from torch import Tensor, nn

from heatproof.statistics.intervals import rate_interval

sys.path.append(str(Path(__file__).resolve().parents[1]))

from common import calibration

BATCH = 512
CUT = 8
SHIFT = {"cifar10": 4, "fashion": 2}
SMOOTHING = 0.1
EPOCHS = {"resnet": 50, "densenet": 40, "convnext": 60, "vit": 100, "p4resnet": 40}
FASHION = 0.5
"""FashionMNIST takes half the epochs."""
PROBED, WARM = 24, 12
RESERVE = 1.3
"""How many seconds of networks one after another the plan puts into one: several at once fill each other's gaps."""


@dataclass(frozen=True)
class How:
    """Customary values: SGD as for ResNets of CIFAR size, AdamW as for small transformers."""

    optimiser: str
    rate: float
    decay: float
    warm_up: float


SGD, ADAMW = How("sgd", 0.3, 5e-4, 0.2), How("adamw", 1.5e-3, 0.05, 0.15)
HOW = {"resnet": SGD, "densenet": SGD, "p4resnet": SGD, "convnext": ADAMW, "vit": ADAMW}


def epochs_of(net: Network) -> int:
    """How many epochs a network is given where time does not matter."""
    return round(EPOCHS[net.architecture] * (FASHION if net.data == "fashion" else 1))


# Pictures


def augmented(x: Tensor, generator: torch.Generator, shift: int, turns: bool) -> Tensor:
    """Bytes (B, C, H, W) shifted, mirrored, with a square cut out, and turned if asked for; not yet normalised."""
    count, _, height, width = x.shape
    device = x.device

    def draw(below: int) -> Tensor:
        return torch.randint(below, (count,), generator=generator, device=device)

    padded = F.pad(x.float(), (shift,) * 4, mode="reflect")
    rows = torch.arange(height, device=device) + draw(2 * shift + 1)[:, None]
    columns = torch.arange(width, device=device) + draw(2 * shift + 1)[:, None]
    columns = torch.where(draw(2)[:, None] > 0, columns, columns.flip(1))
    sample = torch.arange(count, device=device)[:, None, None]
    moved = padded[sample, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    if turns:
        by = draw(4)[:, None, None, None]
        for r in (1, 2, 3):
            moved = torch.where(by == r, torch.rot90(moved, r, (2, 3)), moved)
    top, left = draw(height)[:, None] - CUT // 2, draw(width)[:, None] - CUT // 2
    down, along = (
        torch.arange(height, device=device) - top,
        torch.arange(width, device=device) - left,
    )
    hole = ((down >= 0) & (down < CUT))[:, None, :, None] & ((along >= 0) & (along < CUT))[
        :, None, None, :
    ]
    return moved.masked_fill(hole, 127.5)


def normalised(x: Tensor, data: str) -> Tensor:
    """What a network takes, from bytes."""
    mean, std = (torch.tensor(v[data], device=x.device)[:, None, None] for v in (MEAN, STD))
    return ((x.float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last)


# Training


def optimiser_of(net: nn.Module, how: How) -> torch.optim.Optimizer:
    decayed = [p for p in net.parameters() if p.ndim > 1]
    others = [p for p in net.parameters() if p.ndim < 2]
    fused = decayed[0].is_cuda
    groups = [
        {"params": decayed, "weight_decay": how.decay},
        {"params": others, "weight_decay": 0.0},
    ]
    if how.optimiser == "adamw":
        return torch.optim.AdamW(groups, lr=how.rate, betas=(0.9, 0.99), fused=fused)
    return torch.optim.SGD(groups, lr=how.rate, momentum=0.9, nesterov=True, fused=fused)


def rate_at(progress: float, how: How) -> float:
    """Up in a line, down in half a cosine; `progress` from 0 to 1.

    >>> [round(rate_at(p, How("sgd", 1.0, 0, 0.2)), 3) for p in (0.1, 0.2, 0.6, 1.0)]
    [0.5, 1.0, 0.5, 0.0]
    """
    if progress < how.warm_up:
        return how.rate * progress / how.warm_up
    return (
        how.rate
        * (1 + math.cos(math.pi * min(1.0, (progress - how.warm_up) / (1 - how.warm_up))))
        / 2
    )


class Trainer:
    """One network on one device; `step` is a batch."""

    def __init__(self, net: Network, x: Tensor, y: Tensor) -> None:
        self.net, self.x, self.y, self.how = net, x, y, HOW[net.architecture]
        self.module = net.build().to(x.device, memory_format=torch.channels_last).train()
        self.optimiser = optimiser_of(self.module, self.how)
        self.generator = torch.Generator(x.device).manual_seed(1000 + net.seed)
        self.batch = max(1, min(BATCH, len(x) // 4))
        self.fill: Callable[[Tensor, Tensor], None] | None = None

    @property
    def steps(self) -> int:
        """Batches of an epoch; what is left over waits for the next shuffle."""
        return len(self.x) // self.batch

    def order(self) -> Tensor:
        return torch.randperm(len(self.x), generator=self.generator, device=self.x.device)

    def pictures(self) -> tuple[Tensor, Tensor]:
        """Every picture once, shuffled and augmented, as the network takes them, and its labels."""
        order = self.order()
        turns, shift = self.net.variant == "augmented", SHIFT[self.net.data]
        parts = [
            normalised(augmented(self.x[rows], self.generator, shift, turns), self.net.data)
            for rows in order.split(16 * self.batch)
        ]
        return torch.cat(parts).contiguous(memory_format=torch.channels_last), self.y[order]

    def gradients(self, x: Tensor, y: Tensor) -> None:
        """Put the gradients of a batch where the optimiser finds them."""
        with torch.autocast(x.device.type, torch.bfloat16, enabled=x.is_cuda, cache_enabled=False):
            loss = F.cross_entropy(self.module(x).float(), y, label_smoothing=SMOOTHING)
        loss.backward()

    def recorded(self, x: Tensor, y: Tensor) -> Callable[[Tensor, Tensor], None]:
        """`gradients` as one CUDA graph: the launches of so small networks cost more than their work."""
        still = x.clone(memory_format=torch.channels_last), y.clone()
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(3):
                self.optimiser.zero_grad(set_to_none=True)
                self.gradients(*still)
        torch.cuda.current_stream().wait_stream(aside)
        self.optimiser.zero_grad(set_to_none=True)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            self.gradients(*still)

        def replay(x: Tensor, y: Tensor) -> None:
            still[0].copy_(x)
            still[1].copy_(y)
            graph.replay()

        return replay

    def eager(self, x: Tensor, y: Tensor) -> None:
        self.optimiser.zero_grad(set_to_none=True)
        self.gradients(x, y)

    def step(self, x: Tensor, y: Tensor, progress: float) -> None:
        """One batch; on a GPU all but the first are replayed."""
        if self.fill is None:
            self.fill = self.recorded(x, y) if x.is_cuda else self.eager
        for group in self.optimiser.param_groups:
            group["lr"] = rate_at(progress, self.how)
        self.fill(x, y)
        if self.how.optimiser == "adamw":
            nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimiser.step()

    def train(self, epochs: int, deadline: float) -> int:
        """Train; the number of epochs that were done, fewer than asked where the deadline would pass."""
        begun, progress, done = time.monotonic(), 0.0, 0
        while done < epochs:
            x, y = self.pictures()
            for i in range(self.steps):
                rows = slice(i * self.batch, (i + 1) * self.batch)
                self.step(x[rows], y[rows], progress)
                progress += (1 - progress) / ((epochs - done) * self.steps - i)
            done += 1
            if self.x.is_cuda:
                torch.cuda.synchronize()
            each = (time.monotonic() - begun) / done
            epochs = min(epochs, done + max(0, int((deadline - time.monotonic()) / each)))
        return done


# What comes of it


def rounded(module: nn.Module) -> dict[str, Tensor]:
    """The weights as they are stored: matrices in 16 bits, vectors and counts as they are."""
    state = {name: value.detach().cpu().contiguous() for name, value in module.state_dict().items()}
    return {name: value.half() if value.ndim > 1 else value for name, value in state.items()}


@torch.no_grad()
def probabilities(module: nn.Module, x: Tensor, data: str) -> np.ndarray:
    """Softmax (N, 10) of pictures as bytes."""
    parts = [module.eval()(normalised(part, data)).softmax(1) for part in x.split(1000)]
    return torch.cat(parts).double().cpu().numpy()


def judged(scores: np.ndarray, labels: np.ndarray) -> dict[str, Any]:
    """Accuracy with its exact interval, calibration error with a percentile interval of 1000 resamples."""
    right = (scores.argmax(1) == labels).astype(float)
    given = scores.max(1)
    low, high = rate_interval(int(right.sum()), len(right))
    generator = np.random.default_rng(0)
    draws = (generator.integers(len(right), size=len(right)) for _ in range(1000))
    around = np.quantile([calibration(given[rows], right[rows]) for rows in draws], [0.025, 0.975])
    return {
        "samples": len(right),
        "accuracy": {"value": float(right.mean()), "low": low, "high": high},
        "ece": {
            "value": calibration(given, right),
            "low": float(around[0]),
            "high": float(around[1]),
        },
        "log_loss": float(
            -np.log(np.maximum(scores[np.arange(len(labels)), labels], 1e-12)).mean()
        ),
    }


@dataclass(frozen=True)
class Job:
    """What a process is told of all networks."""

    data: Path
    out: Path
    device: str
    hold_out: int
    limit: int | None
    deadline: float
    epochs: dict[str, int]
    command: str


def loaded(job: Job, data: str, which: str) -> tuple[Tensor, Tensor]:
    x, y = (
        torch.from_numpy(a[: job.limit]) for a in pictures(data, which, job.data, job.out / "cache")
    )
    return x.to(job.device), y.to(job.device)


def one(job: Job, net: Network) -> str:
    """Train a network, judge it, and write its files; what to say about it."""
    x, y = loaded(job, net.data, "train")
    shuffled = torch.from_numpy(np.random.default_rng(7).permutation(len(x))).to(x.device)
    kept, held = shuffled[job.hold_out :], shuffled[: job.hold_out]
    begun = time.monotonic()
    trainer = Trainer(net, x[kept], y[kept])
    done = trainer.train(job.epochs[net.key], job.deadline)
    seconds = time.monotonic() - begun
    state = rounded(trainer.module)
    trainer.module.load_state_dict(state)
    asked, truth = (x[held], y[held]) if job.hold_out else loaded(job, net.data, "test")
    found = judged(probabilities(trainer.module, asked, net.data), truth.cpu().numpy())
    card = {
        **asdict(net),
        "network": net.key,
        "family": net.family,
        "source": net.source,
        "classes": NAMES[net.data],
        "mean": MEAN[net.data],
        "std": STD[net.data],
        "side": SIDES[x.shape[1]],
        "parameters": sum(p.numel() for p in trainer.module.parameters()),
        "training": {
            **asdict(trainer.how),
            "epochs": done,
            "planned": job.epochs[net.key],
            "batch": trainer.batch,
            "pictures": len(kept),
            "seconds": round(seconds, 1),
        },
        "judged_on": "held-out training pictures" if job.hold_out else "test pictures",
        **found,
        "command": f"{job.command} --networks {net.key} --epochs {done}",
        "torch": torch.__version__,
        "machine": torch.cuda.get_device_name() if x.is_cuda else "CPU",
    }
    target = job.out / f"{net.key}.safetensors"
    save_file(state, target.with_suffix(".part"), metadata={"format": "pt"})
    (job.out / f"{net.key}.json").write_text(json.dumps(card, indent=1) + "\n", encoding="utf-8")
    os.replace(target.with_suffix(".part"), target)
    share = found["accuracy"]
    return (
        f"{net.key}: {done} epochs in {seconds:.0f} s, {share['value']:.2%} ({share['low']:.2%} to "
        f"{share['high']:.2%}) of {found['samples']} right, calibration error {found['ece']['value']:.3f}"
    )


def quick() -> None:
    """Let convolutions be as fast as they can: sizes never change."""
    torch.backends.cudnn.benchmark = True
    torch.set_num_threads(1)


def work(job: Job, todo: Any, news: Any) -> None:
    """Take networks until there are none, or no time for another epoch."""
    quick()
    while time.monotonic() < job.deadline - 10:
        try:
            net = NETWORKS[todo.get_nowait()]
        except queue.Empty:
            return
        try:
            news.put(one(job, net))
        except Exception as error:
            news.put(f"{net.key} FAILED: {type(error).__name__}: {error}")


def probe(job: Job, keys: list[str], news: Any) -> None:
    """Seconds of an epoch of every network in `keys`, one after another with the device to itself."""
    quick()
    found: dict[str, float] = {}
    for key in keys:
        x, y = loaded(job, NETWORKS[key].data, "train")
        trainer = Trainer(NETWORKS[key], x, y)
        whole, labels = trainer.pictures()
        for i in range(WARM + PROBED):
            if i == WARM:
                torch.cuda.synchronize()
                begun = time.monotonic()
            trainer.step(whole[: trainer.batch], labels[: trainer.batch], 0.01)
        torch.cuda.synchronize()
        found[key] = (time.monotonic() - begun) * trainer.steps / PROBED
    news.put(found)


def planned(job: Job, keys: list[str], context: Any) -> dict[str, int]:
    """Epochs of every network: all that are wanted, or cut by one factor so that the sum fits the time."""
    wanted = {key: epochs_of(NETWORKS[key]) for key in keys}
    kinds: dict[tuple[str, str], str] = {
        (NETWORKS[k].data, NETWORKS[k].architecture): k for k in reversed(keys)
    }
    news = context.Queue()
    process = context.Process(target=probe, args=(job, list(kinds.values()), news))
    process.start()
    each: dict[str, float] = {}
    while not each and (process.is_alive() or not news.empty()):
        try:
            each = news.get(timeout=1)
        except queue.Empty:
            continue
    process.join()
    if not each:
        raise SystemExit("a trial of each network failed; what it said is above")
    cost = {key: each[kinds[NETWORKS[key].data, NETWORKS[key].architecture]] for key in keys}
    for (data, name), key in kinds.items():
        print(f"{data} {name}: {each[key]:.2f} s an epoch", flush=True)
    whole, left = (
        sum(cost[key] * wanted[key] for key in keys),
        RESERVE * (job.deadline - time.monotonic()),
    )
    factor = min(1.0, left / whole)
    print(
        f"{whole:.0f} s of the device are wanted, {left:.0f} are there: {factor:.2f} of the epochs",
        flush=True,
    )
    return {key: max(4, round(factor * wanted[key])) for key in keys}


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument(
        "--networks", nargs="+", default=["all"], help=f"all, or of {', '.join(NETWORKS)}"
    )
    shared = Path(__file__).resolve().parents[3] / "shared" / "data"
    ask.add_argument(
        "--data", type=Path, default=shared, help="folder with cifar10/ and fashion_mnist/"
    )
    ask.add_argument("--out", type=Path, default=Path(__file__).parent / "weights")
    ask.add_argument("--jobs", type=int, default=6, help="networks at once")
    ask.add_argument("--minutes", type=float, default=9.0)
    ask.add_argument("--epochs", type=int, help="so many for each, whatever the time")
    ask.add_argument(
        "--hold-out",
        type=int,
        default=0,
        help="training pictures to judge on, in place of the test file",
    )
    ask.add_argument("--limit", type=int, help="pictures of each set: a trial")
    ask.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = ask.parse_args()
    begun = time.monotonic()
    wanted = list(NETWORKS) if args.networks == ["all"] else args.networks
    strangers = set(wanted) - set(NETWORKS)
    if strangers:
        raise SystemExit(
            f"no such network: {', '.join(sorted(strangers))}; there are {', '.join(NETWORKS)}"
        )
    missing = [key for key in wanted if not (args.out / f"{key}.safetensors").is_file()]
    keys = [key for key in missing if ready(NETWORKS[key].data, args.data, args.out / "cache")]
    if len(keys) < len(missing):
        print(
            f"left out for want of data: {', '.join(key for key in missing if key not in keys)}",
            flush=True,
        )
    print(f"{len(keys)} of {len(wanted)} networks to train on {args.device}", flush=True)
    if not keys:
        return
    for name in dict.fromkeys(NETWORKS[key].data for key in keys):
        for which in ("train", "test"):
            pictures(name, which, args.data, args.out / "cache")
    print(f"[{time.monotonic() - begun:5.0f} s] pictures are there", flush=True)
    command = "python studies/atlas/train.py" + (
        f" --hold-out {args.hold_out}" if args.hold_out else ""
    )
    job = Job(
        args.data,
        args.out,
        args.device,
        args.hold_out,
        args.limit,
        begun + 60 * args.minutes,
        {},
        command,
    )
    context = torch.multiprocessing.get_context("spawn")
    if args.epochs is None and args.device == "cuda":
        job.epochs.update(planned(job, keys, context))
    else:
        job.epochs.update({key: args.epochs or epochs_of(NETWORKS[key]) for key in keys})
    todo, news = context.Queue(), context.Queue()
    for key in keys:
        todo.put(key)
    team = [
        context.Process(target=work, args=(job, todo, news))
        for _ in range(min(args.jobs, len(keys)))
    ]
    for process in team:
        process.start()
    while any(process.is_alive() for process in team) or not news.empty():
        try:
            print(f"[{time.monotonic() - begun:5.0f} s] {news.get(timeout=1)}", flush=True)
        except queue.Empty:
            continue
    missing = [key for key in keys if not (args.out / f"{key}.safetensors").is_file()]
    print(
        f"[{time.monotonic() - begun:5.0f} s] done; still missing: {', '.join(missing) or 'none'}",
        flush=True,
    )


if __name__ == "__main__":
    main()

"""Tables 2, 3 and 7 and Figures 5 and 6e of the ROAD paper on CIFAR-10, with every network retrained.

    python benchmarks/road_retrained.py run  --data DIR --out OUT --budget 400
    python benchmarks/road_retrained.py show --out OUT

`DIR` holds `train.npz` and `test.npz` (JPEG blobs: `jpeg`, `offsets`, `labels`). `run` needs torch, NumPy and Pillow
alone, and a GPU for more than a trial (`--tiny` tries it on a processor). It writes, after every group of trainings,

- `cells.csv`: the test accuracy for each method × order × imputation × fraction removed, with and without retraining
  (`table`), of networks that see nothing but the mask (`mask`, Figure 5), and the share of pixels that a predictor of
  the mask gets wrong (`predictor`, Figure 6e);
- `hits.npz`: for each row of `table` and `mask`, which test images are right, as packed bits;
- `summary.json`: settings, seconds, accuracy of the network.

`show` prints the tables from these files with `heatproof`'s own `consistency`, on any machine.

A ResNet-18 as it is for ImageNet (7 × 7 stem, pooling), as its accuracy in the paper (84.5 %) suggests. The eight
methods: integrated gradients (grey baseline) and guided backprop, each plain, SmoothGrad, SmoothGrad² and VarGrad with
15 draws of noise of σ = 0.2 and σ = 1 for pixels in [−1, 1]; the label is explained. The imputations: the mean colour
of the training images, and noisy linear imputation with σ = 0.01 as in the paper's code. Each training starts from the
same weights, sees crops and mirror images, and is tested after its last epoch. Other than in the paper: fewer epochs
(the paper: 40), five fractions (seven), GB with 15 draws (its code: 100), and JPEG images. Training images that are
test images too are left out. Complementary fractions come together, so that MoRF at f and LeRF at 1 − f can be compared
if time ends early.

On a GPU a step of training is one CUDA graph, and several networks are trained side by side on streams of their own.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

METHODS = ("IG", "IG-SG", "IG-SQ", "IG-Var", "GB", "GB-SG", "GB-SQ", "GB-Var")
ORDERS = ("morf", "lerf")
IMPUTERS = ("fixed", "linear")
FRACTIONS = ((0.1, 0.9), (0.5,), (0.3, 0.7))
"""In this order of importance; complementary ones stand together."""
NOISE = {"IG": 0.1, "GB": 0.5}
"""σ of SmoothGrad's noise for pixels in [0, 1]: half of that for [−1, 1]."""
FIELDS = ("kind", "retrained", "method", "order", "imputer", "fraction", "repeat", "score", "n")


# ---- data ----------------------------------------------------------------------------------------


def decoded(path: Path, limit: int) -> tuple[Tensor, Tensor]:
    """Return images (N, 3, 32, 32) uint8 and labels (N,), spread over the file, which goes class by class."""
    stored = np.load(path)
    blob, offsets = stored["jpeg"].tobytes(), stored["offsets"].tolist()
    total = len(offsets) - 1
    chosen = np.linspace(0, total - 1, min(limit, total)).astype(int)

    def decode(numbers: np.ndarray) -> np.ndarray:
        images = []
        for i in numbers.tolist():
            image = Image.open(io.BytesIO(blob[offsets[i] : offsets[i + 1]]))
            images.append(np.asarray(image.convert("RGB")))
        return np.stack(images)

    with ThreadPoolExecutor(16) as pool:
        chunks = np.array_split(chosen, max(1, len(chosen) // 500))
        pixels = np.concatenate(list(pool.map(decode, chunks)))
    images = torch.from_numpy(pixels).permute(0, 3, 1, 2).contiguous()
    return images, torch.from_numpy(stored["labels"][chosen]).long()


def without(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the training images and labels without those that are test images too."""
    in_test = {image.numpy().tobytes() for image in test[0]}
    keep = torch.tensor([image.numpy().tobytes() not in in_test for image in train[0]])
    return train[0][keep], train[1][keep]


# ---- the network ---------------------------------------------------------------------------------


class GuidedReLU(torch.autograd.Function):
    """A ReLU that lets back only what is positive, both in its input and in the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.relu()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradient.relu() * (x > 0)


class Rectifier(nn.Module):
    guided = False

    def forward(self, x: Tensor) -> Tensor:
        return GuidedReLU.apply(x) if self.guided else x.relu()


class Block(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.relu1, self.relu2 = Rectifier(), Rectifier()
        self.shortcut = nn.Sequential()
        if (into, stride) != (out, 1):
            self.shortcut = nn.Sequential(
                nn.Conv2d(into, out, 1, stride, bias=False), nn.BatchNorm2d(out)
            )

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm2(self.conv2(self.relu1(self.norm1(self.conv1(x)))))
        return self.relu2(inner + self.shortcut(x))


class ResNet18(nn.Module):
    """He et al. 2016 as it is for ImageNet; takes pixels in [0, 1]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        widths = [width, width, 2 * width, 4 * width, 8 * width]
        blocks = []
        for stage in range(4):
            blocks.append(Block(widths[stage], widths[stage + 1], 1 if stage == 0 else 2))
            blocks.append(Block(widths[stage + 1], widths[stage + 1], 1))
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 7, 2, 3, bias=False),
            nn.BatchNorm2d(width),
            Rectifier(),
            nn.MaxPool2d(3, 2, 1),
        )
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(8 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem((x - 0.5) / 0.5)).mean((2, 3)))

    def guide(self, guided: bool) -> None:
        for module in self.modules():
            if isinstance(module, Rectifier):
                module.guided = guided


# ---- training ------------------------------------------------------------------------------------


class Trainee:
    """A network whose step of training reads fixed tensors, so that it can be one CUDA graph.

    All weights are views of one flat tensor, and all gradients of another: the update is a few operations.
    """

    def __init__(self, width: int, batch_size: int, device: torch.device, seed: int) -> None:
        torch.manual_seed(seed)
        self.net = ResNet18(width).to(device)
        self.device, self.batch_size = device, batch_size
        total = sum(p.numel() for p in self.net.parameters())
        self.weights = torch.empty(total, device=device)
        self.gradients = torch.zeros(total, device=device)
        self.momentum = torch.zeros(total, device=device)
        start = 0
        for parameter in self.net.parameters():
            stop = start + parameter.numel()
            view = _view(self.weights[start:stop], parameter.shape)
            view.copy_(parameter.data)
            parameter.data = view
            parameter.grad = _view(self.gradients[start:stop], parameter.shape)
            start = stop
        self.initial_weights = self.weights.clone()
        self.initial_buffers = [buffer.clone() for buffer in self.net.buffers()]
        self.x = torch.zeros(batch_size, 3, 32, 32, device=device)
        self.x = self.x.to(memory_format=torch.channels_last)
        self.y = torch.zeros(batch_size, dtype=torch.long, device=device)
        self.rate = torch.zeros((), device=device)
        self.graph: Any = None
        self.stream: Any = None
        if device.type == "cuda":
            self.stream = torch.cuda.Stream()
            try:
                self._capture()
            except RuntimeError as error:
                print(f"steps are not captured: {error}", flush=True)
                self.graph = None

    def restart(self) -> None:
        """Go back to the initial weights."""
        self.weights.copy_(self.initial_weights)
        self.momentum.zero_()
        for buffer, initial in zip(self.net.buffers(), self.initial_buffers, strict=True):
            buffer.copy_(initial)
        self.net.train()

    def step(self) -> None:
        """Take one step of SGD with Nesterov's momentum on the images in `x`."""
        if self.graph is not None:
            self.graph.replay()
        else:
            self._step()

    def _step(self) -> None:
        self.gradients.zero_()
        with torch.autocast(
            self.device.type,
            torch.bfloat16,
            enabled=self.device.type == "cuda",
            cache_enabled=False,
        ):
            loss = F.cross_entropy(self.net(self.x).float(), self.y)
        loss.backward()
        with torch.no_grad():
            self.gradients.add_(self.weights, alpha=5e-4)
            self.momentum.mul_(0.9).add_(self.gradients)
            self.weights.sub_(self.rate * self.gradients.add_(self.momentum, alpha=0.9))

    def _capture(self) -> None:
        self.net.train()
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            for _ in range(4):
                self._step()
        torch.cuda.current_stream().wait_stream(self.stream)
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=self.stream):
            self._step()
        self.graph = graph


def _view(flat: Tensor, shape: torch.Size) -> Tensor:
    """Return a flat tensor as weights, those of convolutions with the channels last."""
    if len(shape) != 4:
        return flat.view(shape)
    out, into, height, width = shape
    return flat.view(out, height, width, into).permute(0, 3, 1, 2)


@torch.no_grad()
def hits(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    """Return whether a network is right about each image, (N,) bool."""
    net.eval()
    predicted = []
    with torch.autocast(x.device.type, torch.bfloat16, enabled=x.device.type == "cuda"):
        for part in torch.split(x, 2500):
            images = part.float().contiguous(memory_format=torch.channels_last)
            predicted.append(net(images).argmax(1))
    return torch.cat(predicted) == y


def shifted(images: Tensor, generator: torch.Generator) -> Tensor:
    """Return images moved by up to four pixels, with zeros around, half of them mirrored."""
    n, _, height, width = images.shape
    down, right = torch.randint(0, 9, (2, n), generator=generator, device=images.device)
    mirror = torch.randint(0, 2, (n,), generator=generator, device=images.device) > 0
    moved = torch.empty_like(images)
    for start in range(0, n, 10_000):
        part = slice(start, start + 10_000)
        padded = F.pad(images[part], (4, 4, 4, 4)).permute(0, 2, 3, 1)
        rows = down[part, None] + torch.arange(height, device=images.device)
        columns = torch.arange(width, device=images.device)
        columns = torch.where(mirror[part, None], columns.flip(0), columns) + right[part, None]
        number = torch.arange(len(padded), device=images.device)[:, None, None]
        moved[part] = padded[number, rows[:, :, None], columns[:, None]].permute(0, 3, 1, 2)
    return moved


def train(
    trainees: list[Trainee], data: list[Tensor], labels: Tensor, epochs: int, rate: float, seed: int
) -> None:
    """Train each network on its images (N, 3, 32, 32), all in the same order, side by side."""
    device, size = labels.device, trainees[0].batch_size
    steps = len(labels) // size
    total = steps * epochs
    progress = torch.arange(total) / total
    schedule = rate * torch.minimum(progress / 0.2, (1 - progress) / 0.8).to(device)
    generator = torch.Generator(device).manual_seed(seed)
    for trainee in trainees:
        trainee.restart()
    for epoch in range(epochs):
        order = torch.randperm(len(labels), generator=generator, device=device)
        state = generator.get_state()
        shuffled = []
        for images in data:
            generator.set_state(state)  # the same moves for every network
            shuffled.append(shifted(images, generator)[order])
        targets = labels[order]
        _synchronise(device)
        for step in range(steps):
            rows = slice(step * size, (step + 1) * size)
            for trainee, images in zip(trainees, shuffled, strict=False):
                with torch.cuda.stream(trainee.stream):
                    trainee.x.copy_(images[rows])
                    trainee.y.copy_(targets[rows])
                    trainee.rate.copy_(schedule[epoch * steps + step])
                    trainee.step()
        _synchronise(device)


def _synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


# ---- the eight methods ---------------------------------------------------------------------------


def gradients(net: ResNet18, x: Tensor, y: Tensor) -> Tensor:
    """Return the gradient of the label's score with respect to the pixels."""
    x = x.detach().requires_grad_()
    score = net(x).gather(1, y[:, None]).sum()
    return torch.autograd.grad(score, x)[0]


def attribution(net: ResNet18, family: str, x: Tensor, y: Tensor, steps: int) -> Tensor:
    """Return integrated gradients from grey, or guided backprop, (N, 3, 32, 32)."""
    if family == "GB":
        return gradients(net, x, y)
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    total = torch.zeros_like(x)
    for node, weight in zip(nodes, weights, strict=True):
        total += weight / 2 * gradients(net, 0.5 + (node + 1) / 2 * (x - 0.5), y)
    return (x - 0.5) * total


def maps(
    net: ResNet18, x: Tensor, y: Tensor, steps: int, draws: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Return the maps (N, 1024) of the eight methods, summed over channels."""
    result = {}
    for family in ("IG", "GB"):
        net.guide(family == "GB")
        result[family] = attribution(net, family, x, y, steps)
        first, second = torch.zeros_like(x), torch.zeros_like(x)
        for _ in range(draws):
            noise = torch.randn(x.shape, generator=generator, device=x.device) * NOISE[family]
            noisy = attribution(net, family, x + noise, y, steps)
            first += noisy / draws
            second += noisy.square() / draws
        result[f"{family}-SG"] = first
        result[f"{family}-SQ"] = second
        result[f"{family}-Var"] = second - first.square()
    net.guide(False)
    return {name: values.sum(1).flatten(1) for name, values in result.items()}


def ranks(
    net: ResNet18, x: Tensor, y: Tensor, steps: int, draws: int, chunk: int
) -> dict[str, Tensor]:
    """Return when each pixel goes, the most important first, (N, 1024) int16 by method; ties by lot."""
    net.eval()
    generator = torch.Generator(x.device).manual_seed(0)
    parts: dict[str, list[Tensor]] = {name: [] for name in METHODS}
    for start in range(0, len(x), chunk):
        rows = slice(start, start + chunk)
        images = x[rows].float().contiguous(memory_format=torch.channels_last)
        lot = torch.rand(len(images), 1024, generator=generator, device=x.device).argsort(1)
        for name, values in maps(net, images, y[rows], steps, draws, generator).items():
            order = values.gather(1, lot).argsort(dim=1, descending=True, stable=True)
            order = lot.gather(1, order)
            rank = torch.arange(1024, device=x.device).expand_as(order)
            parts[name].append(torch.empty_like(order).scatter_(1, order, rank).short())
    return {name: torch.cat(values) for name, values in parts.items()}


# ---- imputation ----------------------------------------------------------------------------------


def neighbours(u: Tensor) -> Tensor:
    """Return the sum over the eight neighbours with weight 1/6 (sides) and 1/12 (corners); nothing beyond the border."""
    padded = F.pad(u, (1, 1, 1, 1))
    rows = padded[..., :-2, :] + 2 * padded[..., 1:-1, :] + padded[..., 2:, :]
    both = rows[..., :-2] + 2 * rows[..., 1:-1] + rows[..., 2:]
    return (both - 4 * u) / 12


def linear_fill(x: Tensor, keep: Tensor, iterations: int = 60, tolerance: float = 1e-3) -> Tensor:
    """Return images (N, 3, H, W) whose removed pixels are the weighted mean of their neighbours, by conjugate gradients."""
    known = keep[:, None].to(x.dtype)
    removed = 1 - known
    diagonal = neighbours(torch.ones_like(known[:1]))
    right_side = removed * neighbours(known * x)
    colour = (known * x).sum((2, 3), keepdim=True) / known.sum((2, 3), keepdim=True).clamp(min=1)
    u = removed * colour
    residual = right_side - removed * (diagonal * u - neighbours(u))
    limit = tolerance * right_side.square().sum((2, 3)).sqrt().clamp(min=1e-6)
    direction = residual / diagonal
    inner = (residual * direction).sum((2, 3), keepdim=True)
    for iteration in range(iterations):
        if iteration % 10 == 0 and bool((residual.square().sum((2, 3)).sqrt() <= limit).all()):
            break
        image = removed * (diagonal * direction - neighbours(direction))
        length = inner / (direction * image).sum((2, 3), keepdim=True).clamp(min=1e-20)
        u = u + length * direction
        residual = residual - length * image
        scaled = residual / diagonal
        next_inner = (residual * scaled).sum((2, 3), keepdim=True)
        direction = scaled + next_inner / inner.clamp(min=1e-20) * direction
        inner = next_inner
    return known * x + u


@dataclass(frozen=True)
class Cell:
    """One training: `kind` is `table`, or `mask` for a network that sees the mask alone."""

    kind: str
    method: str
    order: str
    imputer: str
    fraction: float
    repeat: int

    @property
    def key(self) -> str:
        """The name of the cell in `hits.npz`."""
        return (
            f"{self.kind}|{self.method}|{self.order}|{self.imputer}|{self.fraction:g}|{self.repeat}"
        )


@dataclass
class Images:
    """Training or test images in [0, 1], their labels, and when each pixel goes by each method."""

    x: Tensor
    y: Tensor
    ranks: dict[str, Tensor]

    def keep(self, cell: Cell) -> Tensor:
        """Return which pixels are kept, (N, 32, 32)."""
        rank = self.ranks[cell.method]
        count = int(cell.fraction * 1024 + 0.5)
        keep = rank < 1024 - count if cell.order == "lerf" else rank >= count
        return keep.view(-1, 32, 32)

    def removed(self, cell: Cell, mean: Tensor, sigma: float, seed: int) -> Tensor:
        """Return the images without the pixels of a cell."""
        keep = self.keep(cell)
        if cell.imputer == "mask":
            return keep[:, None].to(self.x.dtype).expand(-1, 3, -1, -1).contiguous()
        generator = torch.Generator(self.x.device).manual_seed(seed)
        parts = []
        for start in range(0, len(self.x), 10_000):
            rows = slice(start, start + 10_000)
            x, known = self.x[rows].float(), keep[rows]
            if cell.imputer == "fixed":
                filled = torch.where(known[:, None], x, mean)
            else:
                noise = torch.randn(x.shape, generator=generator, device=x.device) * sigma
                filled = linear_fill(x, known) + noise * ~known[:, None]
            parts.append(filled.to(self.x.dtype))
        return torch.cat(parts)


def predictor_error(
    train_images: Tensor, train_keep: Tensor, test_images: Tensor, test_keep: Tensor, steps: int
) -> float:
    """Return the share of test pixels that three convolutions wrongly call removed or kept (Figure 6e)."""
    device = train_images.device
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Conv2d(32, 1, 3, padding=1)).to(device)
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    generator = torch.Generator(device).manual_seed(0)
    for _ in range(steps):
        rows = torch.randint(0, len(train_images), (128,), generator=generator, device=device)
        outputs = net(train_images[rows].float())[:, 0]
        loss = F.binary_cross_entropy_with_logits(outputs, train_keep[rows].float())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    wrong = 0.0
    with torch.no_grad():
        for images, keep in zip(test_images.split(1000), test_keep.split(1000), strict=True):
            wrong += float(((net(images.float())[:, 0] > 0) != keep).float().sum())
    return wrong / test_keep.numel()


# ---- the run -------------------------------------------------------------------------------------


class Results:
    """The rows and hits so far; `write` puts all of them into the files."""

    def __init__(self, out: Path) -> None:
        self.out = out
        self.rows: list[dict[str, Any]] = []
        self.hits: dict[str, np.ndarray] = {}

    def add(self, cell: Cell, right: Tensor, retrained: bool) -> None:
        row = {
            "kind": cell.kind,
            "retrained": int(retrained),
            "method": cell.method,
            "order": cell.order,
            "imputer": cell.imputer,
            "fraction": cell.fraction,
            "repeat": cell.repeat,
            "score": round(float(right.float().mean()), 6),
            "n": len(right),
        }
        self.rows.append(row)
        name = f"{cell.key}|{'retrained' if retrained else 'same'}"
        self.hits[name] = np.packbits(right.cpu().numpy())

    def write(self, summary: dict[str, Any]) -> None:
        with (self.out / "cells.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, FIELDS)
            writer.writeheader()
            writer.writerows(self.rows)
        np.savez(self.out / "hits.npz", **self.hits)
        (self.out / "summary.json").write_text(json.dumps(summary, indent=1))


class Clock:
    """Seconds since the start."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.begun

    def say(self, text: str) -> None:
        print(f"[{self.elapsed:6.1f} s] {text}", flush=True)


@dataclass
class Experiment:
    """What all stages share."""

    args: argparse.Namespace
    clock: Clock
    results: Results
    summary: dict[str, Any]
    base: ResNet18
    trainees: list[Trainee]
    train: Images
    test: Images
    mean: Tensor

    @property
    def fractions(self) -> list[float]:
        groups = FRACTIONS[:1] if self.args.tiny else FRACTIONS
        return [fraction for group in groups for fraction in group]

    @property
    def methods(self) -> tuple[str, ...]:
        return METHODS[:3] if self.args.tiny else METHODS

    def removed(self, images: Images, cell: Cell) -> Tensor:
        """Return images without the pixels of a cell; training images draw noise of their own in each repeat."""
        seed = 1 if images is self.test else 2 + cell.repeat
        return images.removed(cell, self.mean, self.args.sigma, seed)

    def cells(self) -> list[Cell]:
        """Return all trainings, the most important first."""
        cells = []
        for repeat in range(self.args.repeats):
            for fraction in self.fractions:
                for imputer in IMPUTERS:
                    for order in ORDERS:
                        for method in self.methods:
                            cells.append(Cell("table", method, order, imputer, fraction, repeat))
            if repeat == 0:
                for fraction in self.fractions:
                    for method in self.methods:
                        cells.append(Cell("mask", method, "morf", "mask", fraction, 0))
        return cells

    def without_retraining(self) -> None:
        """Test the network itself on what is left of the test images."""
        started = self.clock.elapsed
        for cell in self.cells():
            if cell.kind == "table" and cell.repeat == 0:
                images = self.removed(self.test, cell)
                self.results.add(cell, hits(self.base, images, self.test.y), retrained=False)
        self.summary["seconds"]["road"] = self.clock.elapsed - started
        self.results.write(self.summary)
        self.clock.say(f"without retraining: {len(self.results.rows)} cells")

    def predictors(self) -> None:
        """Train predictors of the mask of IG on a tenth of the training images, for Figure 6e."""
        started = self.clock.elapsed
        few = Images(self.train.x[::10], self.train.y[::10], {"IG": self.train.ranks["IG"][::10]})
        for fraction in self.fractions:
            for imputer in IMPUTERS:
                cell = Cell("predictor", "IG", "morf", imputer, fraction, 0)
                error = predictor_error(
                    self.removed(few, cell),
                    few.keep(cell),
                    self.removed(self.test, cell),
                    self.test.keep(cell),
                    5 if self.args.tiny else 300,
                )
                row = {
                    **vars(cell),
                    "retrained": 1,
                    "score": round(error, 6),
                    "n": len(self.test.y),
                }
                self.results.rows.append(row)
        self.summary["seconds"]["predictor"] = self.clock.elapsed - started
        self.clock.say("predictors of the mask trained")

    def retrain(self, seconds_per_epoch: float) -> None:
        """Train and test the network of each cell until time is over."""
        args, clock, trainees = self.args, self.clock, self.trainees
        cells = self.cells()
        first = sum(cell.kind == "table" and cell.repeat == 0 for cell in cells)
        affordable = 0.8 * (args.budget - clock.elapsed) / first / seconds_per_epoch
        epochs = 1 if args.tiny else int(min(args.epochs, max(5, affordable)))
        self.summary["epochs"] = epochs
        clock.say(f"{len(cells)} cells, {epochs} epochs each")
        started, seconds_of_group = clock.elapsed, 0.0
        for number in range(0, len(cells), len(trainees)):
            if clock.elapsed + 1.2 * seconds_of_group > args.budget:
                clock.say(f"time is over after {number} of {len(cells)} cells")
                break
            group_started = clock.elapsed
            group = cells[number : number + len(trainees)]
            images = [self.removed(self.train, cell) for cell in group]
            seed = args.seed + 1 + group[0].repeat
            train(trainees, images, self.train.y, epochs, args.rate, seed)
            for trainee, cell in zip(trainees, group, strict=False):
                test = self.removed(self.test, cell)
                self.results.add(cell, hits(trainee.net, test, self.test.y), retrained=True)
            seconds_of_group = clock.elapsed - group_started
            self.summary["seconds"]["retraining"] = clock.elapsed - started
            self.summary["retrained_cells"] = number + len(group)
            if number // len(trainees) % 8 == 0:
                self.results.write(self.summary)
                clock.say(f"{number + len(group)} cells, the last {self.results.rows[-1]}")


def load(args: argparse.Namespace, device: torch.device) -> list[tuple[Tensor, Tensor]]:
    """Return training and test images in [0, 1] and their labels."""
    n_train, n_test = (160, 60) if args.tiny else (50_000, 10_000)
    test = decoded(args.data / "test.npz", n_test)
    training = without(decoded(args.data / "train.npz", n_train), test)
    dtype = torch.float16 if device.type == "cuda" else torch.float32
    sets = []
    for pixels, labels in (training, test):
        images = (pixels.to(device).float() / 255).to(dtype)
        sets.append((images, labels.to(device)))
    return sets


def run(args: argparse.Namespace) -> None:
    """Train, explain, remove, retrain and test, until all cells are done or time is over."""
    clock = Clock()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.backends.cudnn.benchmark = True
    torch.backends.cudnn.allow_tf32 = True
    torch.backends.cuda.matmul.allow_tf32 = True
    args.out.mkdir(parents=True, exist_ok=True)
    width, batch_size, chunk = (4, 32, 64) if args.tiny else (64, 512, 5_000)
    base_epochs, steps, draws = (2, 2, 2) if args.tiny else (args.base_epochs, args.steps, 15)
    (x_train, y_train), (x_test, y_test) = load(args, device)
    mean = x_train.float().mean((0, 2, 3)).view(1, 3, 1, 1)
    clock.say(f"{len(x_train)} training and {len(x_test)} test images on {device}")

    trainees = []
    for _ in range(args.side_by_side):
        trainees.append(Trainee(width, batch_size, device, args.seed))
    clock.say("networks ready")
    started = clock.elapsed
    train(trainees[:1], [x_train], y_train, base_epochs, args.rate, args.seed)
    seconds_per_epoch = (clock.elapsed - started) / base_epochs
    base = ResNet18(width).to(device)
    base.load_state_dict(trainees[0].net.state_dict())
    base = base.to(memory_format=torch.channels_last).eval()
    base.requires_grad_(False)
    accuracy = float(hits(base, x_test, y_test).float().mean())
    clock.say(f"{base_epochs} epochs, {seconds_per_epoch:.2f} s each: {100 * accuracy:.2f} % right")

    summary: dict[str, Any] = {
        "device": torch.cuda.get_device_name() if device.type == "cuda" else "cpu",
        "torch": torch.__version__,
        "accuracy": accuracy,
        "base_epochs": base_epochs,
        "width": width,
        "training_images": len(x_train),
        "test_images": len(x_test),
        "steps": steps,
        "draws": draws,
        "sigma": args.sigma,
        "mean": mean.flatten().tolist(),
        "seconds": {"epoch": seconds_per_epoch},
    }
    sets = []
    for which, x, y in (("train", x_train, y_train), ("test", x_test, y_test)):
        started = clock.elapsed
        sets.append(Images(x, y, ranks(base, x, y, steps, draws, chunk)))
        summary["seconds"][f"maps_{which}"] = clock.elapsed - started
        clock.say(f"{which} images explained")
    results = Results(args.out)
    experiment = Experiment(args, clock, results, summary, base, trainees, sets[0], sets[1], mean)
    experiment.without_retraining()
    experiment.predictors()
    experiment.retrain(seconds_per_epoch)
    summary["seconds"]["total"] = clock.elapsed
    results.write(summary)
    clock.say(f"written to {args.out}")


# ---- tables --------------------------------------------------------------------------------------


def show(args: argparse.Namespace) -> None:
    """Print Tables 2, 3 and 7 and the numbers of Figures 5 and 6e from the files of a run."""
    import pandas as pd

    from heatproof.axes.faithfulness.consistency import consistency

    summary = json.loads((args.out / "summary.json").read_text())
    cells = pd.read_csv(args.out / "cells.csv")
    print(json.dumps({key: value for key, value in summary.items() if key != "mean"}))
    table = cells[cells.kind == "table"]
    columns = ["retrained", "order", "imputer", "method"]
    accuracies = 100 * table.pivot_table("score", columns, "fraction")
    print(f"\nAccuracy in %\n{accuracies.to_string(float_format='%.1f')}")

    rows = as_rows(args.out, int(summary["test_images"]))
    for pairing in ("mask", "removed"):
        pairs = consistency(rows, pairing=pairing, every_pair=True, resamples=args.resamples)
        means = pairs[pairs.level.isna()]
        label = "LeRF at 1 − f" if pairing == "mask" else "LeRF at f"
        print(f"\nRank correlations, MoRF at f with {label}, mean over fractions")
        print(means[["kind", "a", "b", "spearman", "low", "high"]].to_string(index=False))
    masks = cells[cells.kind == "mask"]
    if len(masks):
        by_fraction = 100 * masks.pivot_table("score", "method", "fraction")
        print(f"\nMasks alone (Figure 5), % right\n{by_fraction.to_string(float_format='%.1f')}")
    errors = 100 * cells[cells.kind == "predictor"].pivot_table("score", "imputer", "fraction")
    print(
        f"\nPixels of unknown origin (Figure 6e), % wrong\n{errors.to_string(float_format='%.2f')}"
    )


def as_rows(out: Path, n: int) -> Any:
    """Return the hits of all cells of complete repeats as rows of a run's table."""
    import pandas as pd

    parts = []
    samples = np.arange(n).astype(str)
    hits = np.load(out / "hits.npz")
    trained = [key.split("|")[5] for key in hits if key.startswith("table|") and "retrained" in key]
    complete = {repeat for repeat in trained if trained.count(repeat) == trained.count("0")}
    for key, packed in hits.items():
        kind, method, order, imputer, fraction, repeat, retrained = key.split("|")
        if kind != "table" or repeat not in complete:
            continue
        part = pd.DataFrame(
            {"sample": samples, "value": np.unpackbits(packed, count=n).astype(float)}
        )
        names = {
            "dataset": "cifar10",
            "model": "resnet18",
            "evaluation": "retraining" if retrained == "retrained" else "faithfulness",
            "explainer": method,
            "measure": "accuracy",
            "condition": f"{imputer} {order}",
            "imputer": imputer,
            "order": order,
            "role": "method",
            "status": "ok",
        }
        parts.append(part.assign(**names, level=float(fraction), repeat=int(repeat)))
    rows = pd.concat(parts, ignore_index=True)
    words = [name for name in rows if name not in ("value", "level", "repeat")]
    return rows.astype(dict.fromkeys(words, "category"))  # millions of rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("stage", choices=["run", "show"])
    parser.add_argument("--data", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--budget", type=float, default=400.0, help="seconds")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--base-epochs", type=int, default=40)
    parser.add_argument("--epochs", type=int, default=15, help="at most, of every retraining")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--side-by-side", type=int, default=4, help="networks trained at a time")
    parser.add_argument("--steps", type=int, default=8, help="of integrated gradients")
    parser.add_argument("--sigma", type=float, default=0.01, help="noise of linear imputation")
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resamples", type=int, default=200, help="show: of the bootstrap")
    args = parser.parse_args()
    if args.stage == "show":
        return show(args)
    run(args)


if __name__ == "__main__":
    main()

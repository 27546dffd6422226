"""Fit against stability: the same network before, during and after fine-tuning, and how stable its explanations are.

    python studies/fine_tuned.py --data ../shared/data [--train 2000] [--limit 48]

The FASS paper explains networks of ImageNet on CIFAR-10 and COCO without fine-tuning them, and names it as future work to
tell the stability of a method from how well the model fits. Here a ResNet-20 trained on CIFAR-10 is brought to
FashionMNIST in five states:

    as it is      the head of CIFAR-10: predictions that mean nothing
    new head      an untrained head of ten outputs
    head trained  the new head trained, the rest as it is
    tuned         all weights trained, one epoch
    tuned longer  all weights trained, four epochs

One study then measures the stability of five methods and two controls on the same pictures in each state. What is
printed: the accuracy, the retention, the calibrated FASS of each method, and Spearman's correlation of accuracy and FASS
over the states. Pairs differ by state, as only those with an unchanged prediction count, so the scores are repeated on
the pairs that all states retain. About ten minutes on one core.
"""

from __future__ import annotations

import argparse
import copy
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from common import default_data, place, split, whole
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

import heatproof
from heatproof import Model
from heatproof.data import open_data
from heatproof.models.randomised import seeded
from heatproof.types import Batch

METHODS: list[Any] = [
    "saliency",
    "input_x_gradient",
    {"integrated_gradients": {"steps": 8}},
    "guided_backprop",
    "grad_cam",
    "random",
    "sobel",
]
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
TRANSLATION = 3
"""Pixels, as 20 of 224."""


class Block(nn.Module):
    """Two convolutions and a shortcut that drops every other pixel and fills up with zeros (option A)."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(out), nn.BatchNorm2d(out)
        self.relu1, self.relu2 = nn.ReLU(), nn.ReLU()
        self.stride, self.more = stride, out - into

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.more:
            shortcut = F.pad(x[:, :, ::2, ::2], (0, 0, 0, 0, self.more // 2, self.more // 2))
        inner = self.bn2(self.conv2(self.relu1(self.bn1(self.conv1(x)))))
        return self.relu2(inner + shortcut)


class ResNet20(nn.Module):
    """He et al. 2016 for CIFAR-10, with the names of the published weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        self.relu = nn.ReLU()
        self.layer1 = nn.Sequential(*(Block(16, 16, 1) for _ in range(3)))
        self.layer2 = nn.Sequential(Block(16, 32, 2), *(Block(32, 32, 1) for _ in range(2)))
        self.layer3 = nn.Sequential(Block(32, 64, 2), *(Block(64, 64, 1) for _ in range(2)))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.bn1(self.conv1(x)))
        return self.linear(self.layer3(self.layer2(self.layer1(x))).mean((2, 3)))


def pretrained(data: Path) -> ResNet20:
    """Return the network with its published weights of CIFAR-10."""
    stored = torch.load(
        data / "cifar10" / "resnet20-12fca82f.th", map_location="cpu", weights_only=False
    )
    net = ResNet20()
    net.load_state_dict({k.removeprefix("module."): v for k, v in stored["state_dict"].items()})
    return net.eval()


def pictures(data: Path) -> tuple[Batch, Batch]:
    """Return FashionMNIST in colour at 32 pixels, to train on and to test."""
    grey = whole(open_data(data / "fashion_mnist" / "t10k-images-idx3-ubyte.gz"))
    train, test = split(grey, 0.2, seed=0)
    result = []
    for batch in (train, test):
        padded = F.pad(batch.x, (2, 2, 2, 2)).expand(-1, 3, -1, -1).contiguous()
        result.append(batch.with_x(padded))
    return result[0], result[1]


def normalised(x: Tensor) -> Tensor:
    return (x - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]


def tuned(net: ResNet20, train: Batch, epochs: int, head_only: bool, rate: float) -> ResNet20:
    """Return a copy of the network, trained by SGD; with `head_only` the rest stays as it is, its statistics too."""
    net = copy.deepcopy(net)
    assert train.label is not None
    parameters = net.linear.parameters() if head_only else net.parameters()
    optimiser = torch.optim.SGD(parameters, rate, 0.9, nesterov=True, weight_decay=5e-4)
    generator = torch.Generator().manual_seed(0)
    steps = epochs * (len(train) // 64)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=steps)
    for _ in range(epochs):
        net.train(not head_only)
        order = torch.randperm(len(train), generator=generator)
        for rows in order[: len(train) // 64 * 64].split(64):
            loss = F.cross_entropy(net(normalised(train.x[rows])), train.label[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
    return net.eval()


def states(data: Path, train: Batch) -> dict[str, ResNet20]:
    """Return the network in each state, by name."""
    as_it_is = pretrained(data)
    new_head = copy.deepcopy(as_it_is)
    new_head.linear = seeded(lambda: nn.Linear(64, 10), 0)
    return {
        "as it is": as_it_is,
        "new head": new_head,
        "head trained": tuned(new_head, train, 2, head_only=True, rate=0.05),
        "tuned": tuned(new_head, train, 1, head_only=False, rate=0.02),
        "tuned longer": tuned(new_head, train, 4, head_only=False, rate=0.02),
    }


def accuracy(net: nn.Module, batch: Batch) -> float:
    with torch.no_grad():
        outputs = torch.cat([net(normalised(x)) for x in batch.x.split(500)])
    return float((outputs.argmax(1) == batch.label).float().mean())


def on_common_pairs(table: pd.DataFrame) -> pd.DataFrame:
    """Return calibrated FASS by model and explainer on the pairs that every model retains for every explainer."""
    fass = table[table["measure"] == "fass"]
    wide = fass.pivot_table(
        ["value", "chance"], ["sample", "condition", "level"], ["model", "explainer"]
    ).dropna()
    value, chance = wide["value"].mean(), wide["chance"].mean()
    calibrated = ((value - chance) / (1 - chance)).rename("score").reset_index()
    return calibrated.assign(pairs=len(wide))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--out", type=Path, default=place("fine_tuned"))
    parser.add_argument("--train", type=int, default=8000, help="pictures to train on")
    parser.add_argument("--limit", type=int, default=128, help="test pictures to explain")
    args = parser.parse_args()
    torch.set_num_threads(1)
    train, test = pictures(args.data)
    nets = states(args.data, train[: args.train])
    fit = {name: accuracy(net, test) for name, net in nets.items()}
    models = {name: Model(net, MEAN, STD, name=name) for name, net in nets.items()}
    perturbations = [
        {"rotation": {"degrees": 15}},
        {"translation": {"pixels": TRANSLATION}},
        {"brightness": {"factor": 1.5}},
        {"gaussian_noise": {"sigma": 0.15}},
        {"jpeg": {"quality": 40}},
    ]
    run = heatproof.evaluate(
        models,
        test[: args.limit],
        METHODS,
        {"stability": {"perturbations": perturbations, "k": 0.05}},
        args.out / "run",
    )
    table = run.table()
    fass = table[table["measure"] == "fass"]
    kept = fass["status"].ne("flipped").groupby(fass["model"]).mean()
    ranking = run.ranking()
    scores = ranking.pivot_table("score", "model", "explainer").reindex(list(models))
    summary = scores.round(2).assign(accuracy=pd.Series(fit).round(3), retention=kept.round(3))
    print(f"Calibrated FASS by state\n{summary.to_string()}\n")
    common = on_common_pairs(table)
    pairs = int(common["pairs"].iloc[0])
    on_common = common.pivot_table("score", "model", "explainer").reindex(list(models))
    print(f"on the {pairs} pairs that all states retain\n{on_common.round(2).to_string()}\n")
    correlations = {}
    for name, of_all in (("all pairs", scores), ("common pairs", on_common)):
        for explainer in of_all:
            rho = stats.spearmanr(list(fit.values()), of_all[explainer]).statistic
            correlations[f"{explainer}, {name}"] = None if np.isnan(rho) else round(float(rho), 2)
    print(f"Spearman's correlation of accuracy and FASS over the five states\n{correlations}")
    result = {
        "accuracy": fit,
        "retention": kept.to_dict(),
        "fass": scores.to_dict("index"),
        "fass_on_common_pairs": on_common.to_dict("index"),
        "common_pairs": pairs,
        "intervals": ranking[["model", "explainer", "score", "low", "high"]].to_dict("records"),
        "spearman": correlations,
    }
    (args.out / "fine_tuned.json").write_text(json.dumps(result, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()

"""How invariance and equivariance change during training (Figure 3(d) of the paper on explanation invariance).

    python studies/training_scores.py wide_resnet scores.csv scores.png       # 7 minutes of one core
    python studies/training_scores.py ecg scores.csv scores.png               # 2 minutes

After every epoch `heatproof.evaluate` tests the network as it is: the invariance of its predictions, and the equivariance of
its gradient and of Integrated Gradients, with 95 % intervals over samples. The paper finds that a Wide ResNet that is nearly
invariant by its architecture stays so, while its gradients lose their equivariance.

wide_resnet   a Wide ResNet on D4-D4-D1 (see `wide_resnet.py`) on FashionMNIST, under D4
ecg           a CNN with zero padding on ECG5000, trained on shifted beats, under cyclic shifts
"""

from __future__ import annotations

import argparse
import importlib.util
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from common import default_data, split, whole
from nets import Augment, accuracy, fit
from torch import Tensor, nn
from train_ecg import StandardCNN1d, shifted
from wide_resnet import WideResNet

import heatproof
from heatproof.data import open_data
from heatproof.models.randomised import seeded
from heatproof.types import Batch

EXPLAINERS = {
    "gradient": heatproof.Saliency(absolute=False),
    "integrated gradients": heatproof.IntegratedGradients(steps=16),
}
MEASURES = ("model_invariance", "model_change", "equivariance")
CURVES = {
    ("model_invariance", "gradient"): "predictions: invariance",
    ("equivariance", "gradient"): "gradient: equivariance",
    ("equivariance", "integrated gradients"): "integrated gradients: equivariance",
}
"""The curves of the figure: measure and explainer, and how they are called."""


@dataclass(frozen=True)
class Task:
    """A network with its data, its group, and how it is trained."""

    build: Callable[[], nn.Module]
    train: Batch
    test: Batch
    group: Any
    elements: int
    lr: float
    augment: Augment | None = None


def wide_resnet(data: Path, samples: int) -> Task:
    """A Wide ResNet whose last stage is on D1, so that it is nearly invariant to D4 and not exactly."""
    pictures = whole(open_data(data / "fashion_mnist" / "t10k-images-idx3-ubyte.gz"))
    train, test = split(pictures, 0.2, seed=0)
    return Task(
        build=lambda: WideResNet(depth=10, widen=1, groups=("D4", "D4", "D1"), channels=1),
        train=train[:samples],
        test=test,
        group=heatproof.groups.dihedral(4),
        elements=8,
        lr=1e-2,
    )


def ecg(data: Path, samples: int) -> Task:
    """A CNN that learns from shifted beats that shifts make no difference."""
    train = whole(open_data(data / "ecg" / "ECG5000_TRAIN.tsv.gz"))
    test = whole(open_data(data / "ecg" / "ECG5000_TEST.tsv.gz"))
    return Task(
        build=lambda: StandardCNN1d(steps=train.x.shape[-1], classes=5),
        train=train[:samples],
        test=test,
        group=heatproof.groups.cyclic(),
        elements=20,
        lr=3e-3,
        augment=shifted,
    )


TASKS = {"wide_resnet": wide_resnet, "ecg": ecg}


def epoch_scores(
    net: nn.Module,
    checkpoints: Sequence[Mapping[str, Tensor]],
    test: Batch,
    group: Any,
    elements: int,
    limit: int,
) -> pd.DataFrame:
    """Return epoch, accuracy, measure, explainer, mean, low and high of the weights before training and after each epoch."""
    rows = []
    for epoch, weights in enumerate(checkpoints):
        net.load_state_dict(weights)
        net.eval()
        run = heatproof.evaluate(
            net,
            test,
            EXPLAINERS,
            heatproof.Symmetry(group=group, elements=elements),
            limit=limit,
            show_progress=False,
        )
        summary = run.summary()
        scores = summary[summary["measure"].isin(MEASURES)]
        scores = scores[["measure", "explainer", "mean", "low", "high"]]
        rows.append(scores.assign(epoch=epoch, accuracy=accuracy(net, test)))
        print(markdown_row(rows[-1]), flush=True)
    return pd.concat(rows, ignore_index=True)


def markdown_row(scores: pd.DataFrame) -> str:
    """Return one epoch as a row of a table."""
    by_curve = scores.set_index(["measure", "explainer"])
    cells = [str(scores["epoch"].iloc[0]), f"{scores['accuracy'].iloc[0]:.3f}"]
    for curve in CURVES:
        score = by_curve.loc[curve]
        cells.append(f"{score['mean']:.3f} [{score['low']:.3f}, {score['high']:.3f}]")
    return f"| {' | '.join(cells)} |"


def draw(scores: pd.DataFrame, path: Path) -> None:
    """Write the curves of the figure, with bands for the intervals over samples."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.add_subplot()
    for (measure, explainer), title in CURVES.items():
        is_curve = (scores["measure"] == measure) & (scores["explainer"] == explainer)
        curve = scores[is_curve].sort_values("epoch")
        axes.plot(curve["epoch"], curve["mean"], marker="o", markersize=3, label=title)
        axes.fill_between(curve["epoch"], curve["low"], curve["high"], alpha=0.2)
    axes.set_xlabel("epochs of training")
    axes.set_ylabel("mean score over samples (95 % interval)")
    axes.set_ylim(top=1.02)
    axes.legend()
    figure.savefig(path, dpi=130)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("task", choices=sorted(TASKS))
    parser.add_argument("table", type=Path, help="where to write the scores, such as scores.csv")
    parser.add_argument(
        "picture", type=Path, nargs="?", help="where to draw them, such as scores.png"
    )
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--samples", type=int, default=2000, help="training samples at most")
    parser.add_argument("--limit", type=int, default=60, help="test samples that are explained")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.set_num_threads(1)
    task = TASKS[args.task](args.data, args.samples)
    net = seeded(task.build, args.seed)
    untrained = {name: value.clone() for name, value in net.state_dict().items()}
    trained = fit(
        net,
        task.train,
        epochs=args.epochs,
        lr=task.lr,
        seed=args.seed,
        augment=task.augment,
        anneal=True,
    )
    print(f"| epoch | accuracy | {' | '.join(CURVES.values())} |")
    print(f"|{'---|' * (len(CURVES) + 2)}")
    checkpoints = [untrained, *trained]
    scores = epoch_scores(net, checkpoints, task.test, task.group, task.elements, args.limit)
    scores.to_csv(args.table, index=False)
    print(f"\nwrote {args.table}")
    if args.picture is None:
        return
    if importlib.util.find_spec("matplotlib") is None:
        print("no picture: matplotlib is not installed")
        return
    draw(scores, args.picture)
    print(f"wrote {args.picture}")


if __name__ == "__main__":
    main()

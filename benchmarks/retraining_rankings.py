"""ROAR, KAR and F-Fidelity beside ROAD on CIFAR-10: how they rank four methods, and what each costs.

    python benchmarks/retraining_rankings.py --data ../shared/data/cifar10 --out rankings.json [--tiny]

`--data` holds `train.npz` and `test.npz` (JPEG blobs: `jpeg`, `offsets`, `labels`). A small ResNet is trained on all
training images; then, with noisy linear imputation and at three fractions, the most (ROAR) or the least (KAR) relevant
pixels go. ROAD asks the network itself, ROAR and KAR one network per cell that is trained anew, F-Fidelity one network
that goes on from the same weights on images with random parts removed. Accuracy is always that of the label. On one
H200 all of it takes less than eight minutes; `--tiny` tries it on a processor in one.
"""

from __future__ import annotations

import argparse
import copy
import io
import json
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from PIL import Image
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

import heatproof
from heatproof import Batch, Faithfulness, Model
from heatproof.axes.faithfulness.consistency import consistency
from heatproof.axes.faithfulness.retraining.trainer import ImageTrainer, accuracy
from heatproof.runs.manifest import Session

FRACTIONS = (0.1, 0.5, 0.9)
METHODS: list[Any] = [
    "saliency",
    {"integrated_gradients": {"steps": 8}},
    "guided_backprop",
    "grad_cam",
]
NAMES = {"faithfulness": "ROAD", "retraining": "ROAR and KAR", "f_fidelity": "F-Fidelity"}


class Block(nn.Module):
    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.norm2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.shortcut = (
            nn.Conv2d(into, out, 1, stride, bias=False)
            if (into, stride) != (out, 1)
            else nn.Identity()
        )

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x))))) + self.shortcut(x))


class SmallResNet(nn.Module):
    """Six blocks in three stages; takes x in [0, 1]."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()
        )
        w = [width, width, 2 * width, 4 * width]
        self.blocks = nn.Sequential(
            *(
                Block(w[s] if i == 0 else w[s + 1], w[s + 1], 2 if s and i == 0 else 1)
                for s in range(3)
                for i in (0, 1)
            )
        )
        self.head = nn.Linear(4 * width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(self.stem((x - 0.47) / 0.25)).mean((2, 3)))


def decoded(path: Path, limit: int) -> tuple[Tensor, Tensor]:
    """Images (N, 3, 32, 32) in [0, 1] and labels, spread over the file, which goes class by class."""
    found = np.load(path)
    blob, offsets = found["jpeg"].tobytes(), found["offsets"].tolist()
    chosen = np.linspace(0, len(offsets) - 2, min(limit, len(offsets) - 1)).astype(int)

    def some(part: np.ndarray) -> np.ndarray:
        opened = (
            Image.open(io.BytesIO(blob[offsets[i] : offsets[i + 1]])).convert("RGB")
            for i in part.tolist()
        )
        return np.stack([np.asarray(image) for image in opened])

    with ThreadPoolExecutor(16) as pool:
        pixels = np.concatenate(
            list(pool.map(some, np.array_split(chosen, max(1, len(chosen) // 500))))
        )
    return torch.from_numpy(pixels).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(
        found["labels"][chosen]
    ).long()


def different(train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """The training images without those that are test images too."""
    seen = {x.numpy().tobytes() for x in test[0]}
    keep = torch.tensor([x.numpy().tobytes() not in seen for x in train[0]])
    return train[0][keep], train[1][keep]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--epochs", type=int, default=6, help="of every retraining")
    args = parser.parse_args()
    begun = time.perf_counter()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    n_train, n_test, width, first, epochs = (
        (120, 60, 4, 2, 1) if args.tiny else (50_000, 5_000, 48, 20, args.epochs)
    )
    test = decoded(args.data / "test.npz", n_test)
    train = different(decoded(args.data / "train.npz", n_train), test)
    batch = 32 if args.tiny else 512

    def say(text: str) -> None:
        print(f"[{time.perf_counter() - begun:6.1f} s] {text}", flush=True)

    def trainer(epochs: int, rate: float, start: nn.Module | None = None) -> ImageTrainer:
        build = (lambda: SmallResNet(width)) if start is None else (lambda: copy.deepcopy(start))
        return ImageTrainer(build, epochs, batch, rate, validation=0.04, device=device)

    say(f"{len(train[0])} training and {len(test[0])} test images, {device}")
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        net = trainer(first, 0.2)(TensorDataset(*train), 0)
        right = accuracy(net, test[0], test[1].to(device), 1000)
        say(f"trained {first} epochs: {100 * right:.1f} % of the test images right")
        model = Model(
            net, name="small-resnet", device=device, channels_last=device == "cuda", rows=1024
        )
        data = {
            name: Batch(tuple(f"{name}-{i}" for i in range(len(x))), x, label=y)
            for name, (x, y) in (("train", train), ("test", test))
        }
        out = tempfile.mkdtemp()
        axis = Faithfulness(imputers="noisy_linear", fractions=FRACTIONS, metrics=())
        size = {"batch_size": 1024 if device == "cuda" else 64, "show_progress": False}
        heatproof.evaluate(
            model, data["test"], METHODS, {"faithfulness": axis}, out, shard_size=1000, **size
        )
        say("ROAD done")
        cells = {"fractions": FRACTIONS, "imputers": ["noisy_linear"], **size}
        sets = (data["train"], data["test"], METHODS)
        heatproof.retrain(
            model, *sets, None, out, tuner=trainer(max(1, epochs // 2), 0.02, net), **cells
        )
        say("F-Fidelity done")
        run = heatproof.retrain(model, *sets, trainer(epochs, 0.2), out, **cells)
        say("ROAR and KAR done")
    table = run.table()
    report(table, run.manifest.sessions, right, args.out, device)
    say(f"written to {args.out}")


def report(
    table: pd.DataFrame, sessions: list[Session], right: float, out: Path, device: str
) -> None:
    """Accuracies, rankings, their agreement with ROAD's, and seconds."""
    hits = table[
        (table.measure == "accuracy")
        & table["order"].isin(["morf", "lerf"])
        & (table.status == "ok")
    ]
    means = (
        hits.groupby(["evaluation", "order", "explainer", "level"]).value.mean().mul(100).unstack()
    )
    print(f"\nAccuracy in % by share removed\n{means.rename(NAMES).to_string(float_format='%.1f')}")
    seconds: dict[str, float] = {}
    for session in sessions:
        for what, spent in session.durations.items():
            seconds[what] = seconds.get(what, 0.0) + spent
    found: dict[str, Any] = {
        "accuracy": right,
        "device": device,
        "seconds": seconds,
        "rankings": {},
        "spearman": {},
    }
    print("\nBest first, and Spearman's correlation of the mean over shares with ROAD's")
    for order, sign in (("morf", 1), ("lerf", -1)):
        total = {e: sign * means.loc[(e, order)].mean(axis=1) for e in NAMES}
        for e, score in total.items():
            rho = float(
                stats.spearmanr(score, total["faithfulness"].reindex(score.index)).statistic
            )
            ranking = score.sort_values().index.tolist()
            found["rankings"][f"{NAMES[e]} {order}"], found["spearman"][f"{NAMES[e]} {order}"] = (
                ranking,
                rho,
            )
            print(
                f"{NAMES[e]:<13} {order}  {' < '.join(ranking):<75} {rho:5.2f}  {seconds.get(e, float('nan')):7.1f} s"
            )
    for other in ("retraining", "f_fidelity"):
        pairs = consistency(hits, retrained=other, resamples=500)
        pairs = pairs[
            (pairs.kind == "retraining") & (pairs.evaluation == "faithfulness") & pairs.level.isna()
        ]
        for row in pairs.itertuples():
            print(
                f"{row.a} against {row.b}, mean over shares: {row.spearman:.2f} [{row.low:.2f}, {row.high:.2f}]"
            )
        found[f"consistency {other}"] = pairs[["a", "b", "spearman", "low", "high"]].to_dict(
            "records"
        )
    found["table"] = {"/".join(map(str, key)): row.to_dict() for key, row in means.iterrows()}
    out.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

"""The ROAD paper in small: all eight strategies, leakage and cost, on a few hundred pictures of CIFAR-10.

    python studies/road.py --data ../shared/data && heatproof figures runs/studies/road/run

A small network and four methods, with and without retraining, both orders, fixed and noisy linear imputation. The
figures are the paper's: curves (7, 8, 11 to 14), masks alone (5), removed pixels recognised (6e), pictures (10), and
Tables 2 to 7. Masks are probed for one method. About two minutes on one core; with so few pictures and epochs the
numbers mean nothing. For numbers see `benchmarks/road_cifar10.py` and `benchmarks/road_retrained.py`.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import torch
from common import default_data, place
from torch.utils.data import TensorDataset

import heatproof
from heatproof import Model
from heatproof.axes.faithfulness.retraining.trainer import ImageTrainer, small_net
from heatproof.data import open_data
from heatproof.types import Batch

METHODS: list[Any] = [
    {"integrated_gradients": {"steps": 4}},
    {"smoothgrad": {"samples": 3}},
    {"vargrad": {"samples": 3}},
    "guided_backprop",
    "random",
]
IMPUTERS: list[Any] = [{"dataset_mean": {"mean": [0.49, 0.48, 0.45]}}, "noisy_linear"]
FRACTIONS = (0.1, 0.5, 0.9)


def pictures(path: Path, n: int) -> Batch:
    """Return random pictures of CIFAR-10 with their labels."""
    data = open_data(path, size=None, sample={"n": n})
    return data.load(range(n)).batch


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, default=default_data())
    parser.add_argument("--out", type=Path, default=place("road"))
    parser.add_argument("--train", type=int, default=200, help="pictures to train on")
    parser.add_argument("--test", type=int, default=60, help="pictures to test on")
    args = parser.parse_args()
    torch.set_num_threads(1)
    train = pictures(args.data / "cifar10" / "train.npz", args.train)
    test = pictures(args.data / "cifar10" / "test.npz", args.test)
    trainer = ImageTrainer(partial(small_net, 3, 10, 8), epochs=2, batch_size=64)
    assert train.label is not None
    model = Model(trainer(TensorDataset(train.x, train.label), 0), name="small")
    cells: dict[str, Any] = {"imputers": IMPUTERS, "fractions": FRACTIONS, "against": "label"}
    out = args.out / "run"
    heatproof.evaluate(model, test, METHODS, {"faithfulness": cells}, out)
    heatproof.retrain(model, train, test, METHODS, trainer, out, **cells)
    probed = cells | {"orders": ["morf"], "leakage": [0.5]}
    run = heatproof.retrain(model, train, test, METHODS[:1], trainer, out, **probed)
    print(run.report())


if __name__ == "__main__":
    main()

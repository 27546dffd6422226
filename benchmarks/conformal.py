"""How often the conformal guarantee for the next sample holds, over many splits of samples whose rates are known.

    python benchmarks/conformal.py [--splits 500] [--radius 3] [--population 1000] [--seed 0]

A small network learns scikit-learn's handwritten digits (8 × 8 pixels, 16 patches of four). Random quarters of the patches
are explanations, so 12 patches can be added, and every rate is known by enumeration. In each split, n samples calibrate
and all others are the next sample in turn: the share of those above the promised rate is the coverage. Three kinds of
bounds calibrate:

    distinct   exact rates with tiny random numbers added, so that no two are equal: coverage lies in
               [1 − α, 1 − α + 1/(n + 1)]
    exact      exact rates (δ = 0); ties can only raise the coverage
    sampled    certified lower bounds from draws (δ): the coverage of the rate is at least 1 − α − δ. Here "coverage" is
               that of the rate, and "of the bound" that of the bound of the next sample, which has α alone as its error

Exits with 1 if a coverage lies outside its range by more than four standard errors. Half a minute on one core.
"""

from __future__ import annotations

import argparse
import math
import sys

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

from heatproof import Batch, Model, certify, masks
from heatproof.features import Patches
from heatproof.statistics.conformal import next_sample_low

FEATURES = Patches(2)
DELTA, EPSILON = 0.1, 0.1
NUMBERS_OF_SAMPLES = (19, 49, 99, 199)
ALPHAS = (0.1, 0.2)
DRAWS = 10
"""So many independent sets of certificates; the splits use them in turn."""


def trained_network(x: Tensor, label: Tensor, seed: int) -> nn.Module:
    """Return a small convolutional network trained on digits, some of whose patches are left out at random."""
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(256, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    optimiser = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(30):
        for rows in torch.randperm(len(x)).split(64):
            shown = torch.rand(len(rows), 1, 4, 4) < 0.75
            shown = shown.repeat_interleave(2, 2).repeat_interleave(2, 3)
            loss = nn.functional.cross_entropy(net(x[rows] * shown), label[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return net.eval()


def rates_and_bounds(population: int, radius: int, seed: int) -> tuple[Tensor, Tensor]:
    """Return the exact rates (P,) of a population, and certified lower bounds (DRAWS, P) of them."""
    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    label = torch.tensor(digits.target)
    train = len(x) - population
    model = Model(trained_network(x[:train], label[:train], seed), rows=8192)

    batch = Batch(tuple(str(i) for i in range(population)), x[train:])
    random_maps = torch.rand(batch.x.shape, generator=torch.Generator().manual_seed(seed))
    mask = masks.select(random_maps, batch, FEATURES, fraction=0.25)
    exact = certify(model, batch, mask, FEATURES, (radius,), budget=1 << 12)
    assert bool(exact.exact.all())
    bounds = []
    for draw in range(DRAWS):
        sampled = certify(
            model, batch, mask, FEATURES, (radius,), DELTA, EPSILON, budget=1, seed=draw
        )
        bounds.append(sampled.low[:, 0])
    return exact.rate[:, 0], torch.stack(bounds)


def coverage(
    bounds: Tensor, truth: Tensor, n: int, alpha: float, splits: int, seed: int
) -> tuple[Tensor, Tensor]:
    """Return, per split, how often the truth of the samples left over reaches the promise, and how often their bound does.

    `bounds` (D, P) are used in turn; `truth` is (P,).
    """
    generator = torch.Generator().manual_seed(seed)
    of_truth, of_bound = [], []
    for split in range(splits):
        order = torch.randperm(len(truth), generator=generator)
        bounds_of_split = bounds[split % len(bounds)]
        promise = next_sample_low(bounds_of_split[order[:n]], alpha)
        rest = order[n:]
        of_truth.append((truth[rest] >= promise).double().mean())
        of_bound.append((bounds_of_split[rest] >= promise).double().mean())
    return torch.stack(of_truth), torch.stack(of_bound)


def main() -> int:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--splits", type=int, default=500)
    ask.add_argument("--radius", type=int, default=3)
    ask.add_argument("--population", type=int, default=1000)
    ask.add_argument("--seed", type=int, default=0)
    args = ask.parse_args()

    rates, bounds = rates_and_bounds(args.population, args.radius, args.seed)
    wrong = (bounds > rates).double().mean()
    print(
        f"{len(rates)} digits, r = {args.radius}: rates {float(rates.quantile(0.1)):.2f}, {float(rates.median()):.2f} and "
        f"{float(rates.quantile(0.9)):.2f} (10 %, 50 %, 90 %); {float(wrong):.3f} of the sampled bounds are too high "
        f"(δ = {DELTA:g})"
    )
    jitter = 1e-9 * torch.rand(len(rates), generator=torch.Generator().manual_seed(args.seed))
    distinct = rates + jitter.double()
    kinds = {
        "distinct": (distinct[None], distinct, 0.0),
        "exact": (rates[None], rates, 0.0),
        "sampled": (bounds, rates, DELTA),
    }
    print(
        f"{'bounds':<10}{'n':>5}{'α':>6}{'at least':>10}{'at most':>10}{'coverage':>10}{'of the bound':>14}"
    )
    outside = 0
    for name, (low, truth, delta) in kinds.items():
        for n in NUMBERS_OF_SAMPLES:
            for alpha in ALPHAS:
                of_truth, of_bound = coverage(low, truth, n, alpha, args.splits, args.seed)
                least = 1 - alpha - delta
                most = 1 - alpha + 1 / (n + 1) if name == "distinct" else 1.0
                error = 4 * float(of_truth.std()) / math.sqrt(args.splits)
                mean = float(of_truth.mean())
                is_inside = least - error <= mean <= most + error
                outside += not is_inside
                print(
                    f"{name:<10}{n:>5}{alpha:>6.2f}{least:>10.3f}{most:>10.3f}{mean:>10.3f}"
                    f"{float(of_bound.mean()):>14.3f}{'' if is_inside else '  outside'}"
                )
    print(f"{outside} of {len(kinds) * len(NUMBERS_OF_SAMPLES) * len(ALPHAS)} outside their range")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())

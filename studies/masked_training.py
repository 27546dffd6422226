"""What training on masked inputs buys: accuracy, stability rates and hard radii of one small network, fine-tuned three ways.

    python studies/masked_training.py [--seeds 3] [--samples 100]

The paper on soft stability fine-tunes its networks on randomly masked inputs before it smooths them, and names
stability-regularised training as future work. Here a convolutional network learns scikit-learn's handwritten digits (8 × 8
pixels, 16 patches of four as features), and three copies of it are trained on:

    plain        on whole digits, as before
    masked       on digits whose patches are each kept with a probability drawn anew for every digit
    regularised  the same, plus the divergence KL(f(x ⊙ α) ‖ f(x ⊙ β)) between the predictions on random patches α and on
                 a superset β of them: features that are added should not change the prediction

Random quarters of the patches are explanations. Everything is measured on digits that no network was trained on, and
averaged over the seeds; rates are exact, by enumeration. A minute or two on one core.
"""

from __future__ import annotations

import argparse
import copy

import pandas as pd
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F

from heatproof import Batch, Model, Smoothed, certify, masks
from heatproof.features import Patches

FEATURES = Patches(2)
GRID = 4
"""Patches in a row."""
TRAIN, EPOCHS, FINE_TUNING_EPOCHS = 1200, 10, 20
RADII = (1, 2, 4)
KEEPS = (0.125, 0.25, 0.5)
SMOOTHING_MASKS = 16
WEIGHT = 1.0
"""Of the divergence beside the cross-entropy."""
KINDS = ("plain", "masked", "regularised")


def network() -> nn.Module:
    """Return an untrained network for digits (B, 1, 8, 8)."""
    return nn.Sequential(
        nn.Conv2d(1, 24, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(24, 48, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(48 * 16, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )


def masked(x: Tensor, patches: Tensor) -> Tensor:
    """Return digits (B, 1, 8, 8) with only some patches (B, 16) boolean, 0 elsewhere."""
    grid = patches.reshape(-1, 1, GRID, GRID).to(x.dtype)
    return x * grid.repeat_interleave(2, 2).repeat_interleave(2, 3)


def loss_of(kind: str, net: nn.Module, x: Tensor, label: Tensor) -> Tensor:
    """Return the training loss of a batch of digits."""
    if kind == "plain":
        return F.cross_entropy(net(x), label)
    share = torch.rand(len(x), 1)
    alpha = torch.rand(len(x), GRID * GRID) < share
    on_alpha = net(masked(x, alpha))
    loss = F.cross_entropy(on_alpha, label)
    if kind == "regularised":
        beta = alpha | (torch.rand(alpha.shape) < 0.25)
        on_beta = net(masked(x, beta))
        divergence = F.kl_div(
            on_beta.log_softmax(1), on_alpha.log_softmax(1), log_target=True, reduction="batchmean"
        )
        loss = loss + WEIGHT * divergence
    return loss


def train(net: nn.Module, kind: str, x: Tensor, label: Tensor, epochs: int, seed: int) -> nn.Module:
    """Return the network after some epochs of Adam on one kind of inputs."""
    torch.manual_seed(seed)
    net.train()
    optimiser = torch.optim.Adam(net.parameters(), lr=1e-3)
    for _ in range(epochs):
        for rows in torch.randperm(len(x)).split(64):
            loss = loss_of(kind, net, x[rows], label[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
    return net.eval()


def measured(net: nn.Module, batch: Batch, seed: int) -> dict[str, float]:
    """Return accuracies, stability rates and hard radii of a network on digits that it was not trained on."""
    model = Model(net, rows=8192)
    label = batch.label
    assert label is not None

    def accuracy(scores: Tensor) -> float:
        return float((scores.argmax(1) == label).double().mean())

    random_maps = torch.rand(batch.x.shape, generator=torch.Generator().manual_seed(seed))
    mask = masks.select(random_maps, batch, FEATURES, fraction=0.25)
    numbers = {
        "accuracy": accuracy(model.logits(batch.x)),
        "accuracy, a quarter kept": accuracy(model.logits(masked(batch.x, mask))),
    }
    certificates = certify(model, batch, mask, FEATURES, RADII, budget=1 << 12, seed=seed)
    for column, radius in enumerate(RADII):
        numbers[f"rate, r = {radius}"] = float(certificates.rate[:, column].mean())
    for keep in KEEPS:
        smoothed = Smoothed(
            model, keep, SMOOTHING_MASKS, features=FEATURES, masks="quantised", seed=seed
        )
        numbers[f"accuracy, λ = {keep:g}"] = accuracy(smoothed.scores(batch))
        numbers[f"hard radius, λ = {keep:g}"] = float(smoothed.radius(batch, mask).double().mean())
    return numbers


def main() -> None:
    ask = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    ask.add_argument("--seeds", type=int, default=3, help="how many networks of each kind")
    ask.add_argument("--samples", type=int, default=100, help="digits to measure on")
    args = ask.parse_args()

    digits = load_digits()
    x = torch.tensor(digits.images, dtype=torch.float32)[:, None] / 16
    label = torch.tensor(digits.target)
    test = slice(TRAIN, TRAIN + args.samples)
    ids = tuple(str(i) for i in range(len(x[test])))
    batch = Batch(ids, x[test], label=label[test])

    rows = []
    for seed in range(args.seeds):
        torch.manual_seed(seed)
        start = train(network(), "plain", x[:TRAIN], label[:TRAIN], EPOCHS, seed)
        for kind in KINDS:
            net = copy.deepcopy(start)
            net = train(net, kind, x[:TRAIN], label[:TRAIN], FINE_TUNING_EPOCHS, seed)
            with torch.no_grad():
                rows.append({"training": kind, **measured(net, batch, seed)})
    table = pd.DataFrame(rows).groupby("training", sort=False)
    print(f"means over {args.seeds} networks of each kind, {len(batch)} digits")
    print(table.mean().T.round(3).to_string())
    print(f"\nlargest standard deviation between networks: {table.std().max().max():.3f}")


if __name__ == "__main__":
    main()

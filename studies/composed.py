"""Tasks without exclusive classes on composed photographs: which of them a picture shows, and where each of them is.

Pictures (3, 48, 48) are nine squares cut at random from bundled photographs, of which most are left grey. One network
says for every photograph whether a square of it is there (multi-label), another of what photograph each place is
(segmentation). Where the squares are is known, so localisation judges maps against the truth, and the truth itself is
judged beside the methods: with 1 where the photograph is, on other squares, and everywhere. Sizes, epochs and
learning rate were chosen on the pictures of seed 1; those of seed 2 are tested once. Nothing is written; --epochs and
--limit make it shorter. It takes about a minute on one core.

    python studies/composed.py
"""

from __future__ import annotations

import argparse

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import heatproof
from heatproof import rand
from heatproof.data import open_data

NAMES = ("espresso.jpg", "cat.jpg", "rocket.jpg", "dahlia.jpg")
PHOTOGRAPHS, SQUARE, SHOWN = len(NAMES), 16, 0.3


def photographs() -> Tensor:
    """The photographs (4, 3, 128, 128), in [0, 1]."""
    data = open_data("bundled:photographs", size=128)
    return data.load([data.ids.index(name) for name in NAMES]).batch.x


def composed(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """Pictures (n, 3, 48, 48), and of which photograph each place is, (n, 48, 48): 0 is grey, k photograph k − 1."""
    draw, whole = torch.Generator().manual_seed(seed), photographs()
    x, place = torch.full((n, 3, 48, 48), 0.5), torch.zeros(n, 48, 48, dtype=torch.int64)
    x += 0.05 * torch.randn(x.shape, generator=draw)
    for i in range(n):
        for cell in range(9):
            if float(torch.rand(1, generator=draw)) > SHOWN:
                continue
            which = int(torch.randint(PHOTOGRAPHS, (1,), generator=draw))
            top, left = torch.randint(128 - SQUARE, (2,), generator=draw).tolist()
            rows, columns = (
                slice(SQUARE * at, SQUARE * at + SQUARE) for at in (cell // 3, cell % 3)
            )
            x[i, :, rows, columns] = whole[which, :, top : top + SQUARE, left : left + SQUARE]
            place[i, rows, columns] = which + 1
    return x.clamp(0, 1), place


def network(outputs: int) -> nn.Sequential:
    """Convolutions that keep the size, with a view of 15 pixels."""
    wide = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU()]
    for step in (1, 2, 3):
        wide += [nn.Conv2d(16, 16, 3, padding=step, dilation=step), nn.ReLU()]
    return nn.Sequential(*wide, nn.Conv2d(16, outputs, 1))


class Shown(nn.Module):
    """For every photograph the log-odds that a square of it is there: the largest of those of the nine squares."""

    def __init__(self) -> None:
        super().__init__()
        first, second = nn.Conv2d(3, 16, 4, 4), nn.Conv2d(16, 32, 2, 2)
        self.body = nn.Sequential(
            first, nn.ReLU(), second, nn.ReLU(), nn.Conv2d(32, 32, 2, 2), nn.ReLU()
        )
        self.head = nn.Conv2d(32, PHOTOGRAPHS, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, photographs)."""
        return self.head(self.body(x)).flatten(2).amax(2)


def exact(model: heatproof.Model, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    """1 where the photograph is."""
    return batch.aux["_region"].float()[:, None].expand(batch.x.shape)


def shuffled(model: heatproof.Model, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    """1 on as many squares of the nine, and where there are enough none of them right."""
    right = batch.aux["_region"][:, ::SQUARE, ::SQUARE].flatten(1)
    draw = rand.uniform(rand.keys(seed, batch.ids, "shuffled"), (9,)) + right
    squares = (draw.argsort(1).argsort(1) < right.sum(1, keepdim=True)).float().view(-1, 1, 3, 3)
    return F.interpolate(squares, batch.x.shape[2:]).expand(batch.x.shape)


def constant(model: heatproof.Model, batch: heatproof.Batch, target: Tensor, seed: int) -> Tensor:
    """1 everywhere."""
    return torch.ones_like(batch.x)


def trained(net: nn.Module, x: Tensor, wanted: Tensor, epochs: int) -> nn.Module:
    """The network after some epochs of Adam: cross-entropy of places, or of each label by itself."""
    loss = F.cross_entropy if wanted.ndim == 3 else F.binary_cross_entropy_with_logits
    steps = torch.optim.Adam(net.parameters(), 3e-3)
    for epoch in range(epochs):
        for rows in torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch)).split(8):
            steps.zero_grad()
            loss(net(x[rows]), wanted[rows]).backward()
            steps.step()
    return net.eval()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--limit", type=int, default=60)
    parser.add_argument(
        "--validate",
        action="store_true",
        help="judge nothing; accuracies on the pictures of seed 1",
    )
    args = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    (x, place), (new, truth) = (
        composed(1000, 0),
        composed(200 if args.validate else args.limit, 2 - args.validate),
    )
    labels = torch.stack([(place == k + 1).flatten(1).any(1) for k in range(PHOTOGRAPHS)], 1)
    there = torch.stack([(truth == k + 1).flatten(1).any(1) for k in range(PHOTOGRAPHS)], 1)
    shown, where = Shown(), network(PHOTOGRAPHS + 1)
    trained(shown, x, labels.float(), args.epochs)
    trained(where, x[:240], place[:240], args.epochs)
    with torch.no_grad():
        usual, said = (labels.float().mean(0) > 0.5).expand(there.shape), where(new).argmax(1)
        right = [f"{(guess == there).float().mean():.1%}" for guess in (shown(new) > 0, usual)]
        print(f"labels right: {right[0]}, by a constant {right[1]}")
        each = [float((said == k)[truth == k].float().mean()) for k in range(PHOTOGRAPHS + 1)]
        print(
            f"places right, mean over grey and photographs: {sum(each) / len(each):.1%}, by a constant 20.0%"
        )
    if args.validate:
        return
    first = there[:, 0].nonzero().flatten()
    seen = open_data(new[first], regions=(truth[first] == 1).numpy(), name="composed")
    models = {
        "multi-label": heatproof.Model(shown, task={"multi_label": {"label": 0}}),
        "segmentation": heatproof.Model(where, task={"segmentation": {"label": 1}}),
    }
    methods = [exact, shuffled, constant, "input_x_gradient", "random"]
    methods += [{"occlusion": {"window": 8, "stride": 8, "fill": 0.5}}]  # grey, as where nothing is
    axes = [
        "localisation",
        {"faithfulness": {"metrics": ["road"], "fractions": [0.1, 0.3], "readout": "logit"}},
    ]
    axes += [
        {
            "stability": {
                "perturbations": [
                    {"translation": {"pixels": 2}},
                    {"gaussian_noise": {"sigma": 0.02}},
                ]
            }
        }
    ]
    run = heatproof.evaluate(
        models,
        seen,
        methods,
        [*axes, heatproof.Symmetry(group="dihedral", elements=4)],
        references=6,
    )
    columns = ["model", "evaluation", "measure", "explainer", "score", "low", "high"]
    print(run.ranking()[columns].to_string(index=False))


if __name__ == "__main__":
    main()

"""Does an imputer give away which pixels were removed, and does the shape of the removed part give away the class?

Three probes are trained and then asked about held-out images: one sees only the mask M, one only the imputed image x′,
one both. Their accuracies become bits by Fano's inequality. A fourth says of every pixel of an imputed image whether
it was removed: where it succeeds, nothing hides the mask from a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from heatproof.axes.faithfulness import LEAKAGE
from heatproof.axes.faithfulness.retraining.information import entropy, fano, hellman_raviv
from heatproof.axes.faithfulness.retraining.trainer import ImageTrainer, Trainer, scores, small_net
from heatproof.models.randomised import seeded
from heatproof.statistics.bounds import clopper_pearson

PROBES = ("mask", "imputed", "both")
"""What the three probes of the class see."""
PRIOR, PIXELS = "prior", "pixels"
LEAK_BITS = 0.1
"""Guaranteed bits of mask information from which on a report warns."""
TELLTALE = 0.9
"""Share of pixels that the fourth probe recognises, above which a mask counts as visible."""


@dataclass(frozen=True)
class Removed:
    """Images (N, C, H, W) with part of their pixels replaced, what was kept (N, H, W), and their classes (N,)."""

    x: Tensor
    keep: Tensor
    label: Tensor

    def seen(self, probe: str) -> Tensor:
        """What a probe is shown: the mask, the imputed image, or both as channels."""
        mask = self.keep[:, None].to(self.x.dtype)
        return {"mask": mask, "imputed": self.x, "both": torch.cat([self.x, mask], 1)}[probe]


def probe_classes(
    train: Removed,
    test: Removed,
    classes: int,
    seed: int,
    trainer: Callable[[int], Trainer] | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """For each probe, how much its held-out probabilities say of the true class: (name, log₂ p and hit, (N, 2)).

    `trainer(channels)` makes the trainer of a probe; by default a small convolutional network.
    """
    for probe in PROBES:
        images = train.seen(probe)
        # No augmentation, for a mask's place is its message.
        build = partial(small_net, images.shape[1], classes)
        usual = ImageTrainer(build, epochs=12, batch_size=64, rate=0.05, augment=False)
        net = (trainer(images.shape[1]) if trainer else usual)(
            TensorDataset(images, train.label), seed
        )
        logits = scores(net, test.seen(probe)).cpu()
        truth = test.label.cpu()[:, None]
        surprise = logits.log_softmax(1).gather(1, truth)[:, 0] / math.log(2)
        yield probe, torch.stack([surprise.double(), (logits.argmax(1) == truth[:, 0]).double()], 1)


def probe_pixels(
    train: Removed, test: Removed, seed: int, steps: int = 300, batch_size: int = 64
) -> Tensor:
    """The share of each held-out image's pixels whose removal a three-layer network tells right, (N,) float64.

    Removed and kept pixels count alike: it is the mean of the shares among the two, ½ for a guess.
    """
    channels = train.x.shape[1]

    def build() -> nn.Sequential:
        return nn.Sequential(
            nn.Conv2d(channels, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 32, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(32, 1, 3, padding=1),
        )

    net = seeded(build, seed).to(train.x.device)
    draw = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(net.parameters(), 3e-3)
    share = train.keep.double().mean().clamp(1e-6, 1 - 1e-6)
    balance = ((1 - share) / share).float()
    for _ in range(steps):
        rows = torch.randint(0, len(train.x), (min(batch_size, len(train.x)),), generator=draw).to(
            train.x.device
        )
        kept = train.keep[rows].float()
        loss = F.binary_cross_entropy_with_logits(
            net(train.x[rows])[:, 0], kept, pos_weight=balance
        )
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        says_kept = torch.cat([net(part)[:, 0] > 0 for part in torch.split(test.x, 256)])
    shares = []
    for truth in (test.keep, ~test.keep):
        right = ((says_kept == test.keep) & truth).flatten(1).sum(1).double()
        shares.append(right / truth.flatten(1).sum(1).clamp(min=1))
    return torch.stack(shares).mean(0).cpu()


def probe_columns(train: Removed, test: Removed, seed: int) -> dict[str, Tensor]:
    """What the probes say of each held-out image, as columns (N,) of the evaluation: measure → values."""
    classes = int(max(train.label.max(), test.label.max())) + 1
    columns = {PRIOR: test.label.double().cpu(), PIXELS: probe_pixels(train, test, seed)}
    for probe, answers in probe_classes(train, test, classes, seed):
        columns[f"{probe}_log2"], columns[f"{probe}_hit"] = answers.unbind(1)
    return columns


def leakage_summary(table: pd.DataFrame, delta: float = 0.05) -> pd.DataFrame:
    """Bits from the rows of an evaluation `leakage`: one row per explainer, imputer, order and fraction.

    `mask_bits`, `imputed_bits` and `both_bits` are Fano's bounds at the lower confidence limit of the accuracy, each
    failing with probability at most delta/2; `mask_indicated` is Hellman and Raviv's value. `leak` is
    I(C; M) − I(C; M | x′) = I(C; x′) − I(C; x′, M) + I(C; M), the part of the outcome that equation 2 of the ROAD
    paper does not owe to the features, from variational estimates H(C) − cross-entropy: an estimate, no bound.
    `pixels` is the share of pixels whose removal can be told, and `leaks` whether a report should warn.
    """
    rows = table[(table["status"] == "ok") & table["measure"].isin(LEAKAGE.of_role("model"))]
    entries = []
    keys = ["dataset", "model", "evaluation", "explainer", "condition", "imputer", "order", "level"]
    for key, part in rows.groupby(keys, sort=False, observed=True):
        columns = {
            name: values["value"].to_numpy()
            for name, values in part.groupby("measure", observed=True)
        }
        entry: dict[str, Any] = dict(zip(keys, key, strict=True))
        counts = part.loc[part["measure"] == PRIOR, "value"].value_counts().tolist()
        classes, prior = max(2, len(counts)), entropy([int(n) for n in counts])
        estimate = {}
        for probe in PROBES:
            if f"{probe}_hit" not in columns:
                continue
            hits = columns[f"{probe}_hit"]
            low, _ = clopper_pearson(int(hits.sum()), len(hits), delta / 2)
            entry[f"{probe}_accuracy"] = float(hits.mean())
            entry[f"{probe}_bits"] = fano(float(low), classes, prior)
            entry[f"{probe}_indicated"] = hellman_raviv(float(hits.mean()), classes, prior)
            estimate[probe] = max(0.0, prior + float(columns[f"{probe}_log2"].mean()))
        if len(estimate) == len(PROBES):
            entry["leak"] = estimate["imputed"] - estimate["both"] + estimate["mask"]
        entry["pixels"] = float(columns[PIXELS].mean()) if PIXELS in columns else math.nan
        entry["leaks"] = bool(
            entry.get("mask_bits", 0.0) > LEAK_BITS and entry["pixels"] > TELLTALE
        )
        entries.append(entry)
    return pd.DataFrame(entries)

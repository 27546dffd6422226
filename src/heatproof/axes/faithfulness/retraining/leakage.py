"""Does an imputer give away which pixels were removed, and does the shape of the removed part give away the class?

Three probes are trained and then asked about held-out images: one sees only the mask M, one only the imputed image x′,
one both. Their accuracies become bits by Fano's inequality. A fourth says of every pixel of an imputed image whether
it was removed: where it succeeds, nothing hides the mask from a network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import TensorDataset

from heatproof.axes.faithfulness import LEAKAGE
from heatproof.axes.faithfulness.retraining.information import entropy, fano, hellman_raviv
from heatproof.axes.faithfulness.retraining.trainer import ImageTrainer, Trainer, scores, small_net
from heatproof.models.randomised import seeded
from heatproof.statistics.arrays import Array
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
        """Return what a probe is shown: the mask, the imputed image, or both as channels."""
        mask = self.keep[:, None].to(self.x.dtype)
        if probe == "mask":
            return mask
        return self.x if probe == "imputed" else torch.cat([self.x, mask], 1)


def probe_classes(
    train: Removed,
    test: Removed,
    classes: int,
    seed: int,
    trainer: Callable[[int], Trainer] | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """Yield how well three classifiers predict the class of held-out images: from the mask, the imputed image, or both.

    Each result is the name of the probe and (N, 2): log₂ of the probability of the true class, and 1 where the prediction
    is right. `trainer(channels)` returns the trainer of a probe, by default that of a small convolutional network.
    """
    for probe in PROBES:
        images = train.seen(probe)
        channels = images.shape[1]
        if trainer is None:
            # Without augmentation: a mask's position is its message.
            build = partial(small_net, channels, classes)
            train_probe: Trainer = ImageTrainer(
                build, epochs=12, batch_size=64, rate=0.05, augment=False
            )
        else:
            train_probe = trainer(channels)
        network = train_probe(TensorDataset(images, train.label), seed)
        logits = scores(network, test.seen(probe)).cpu()
        truth = test.label.cpu()[:, None]
        log2_p = logits.log_softmax(1).gather(1, truth)[:, 0] / math.log(2)
        hit = logits.argmax(1) == truth[:, 0]
        yield probe, torch.stack([log2_p.double(), hit.double()], 1)


def probe_pixels(
    train: Removed, test: Removed, seed: int, steps: int = 300, batch_size: int = 64
) -> Tensor:
    """Return how well a small network recognises which pixels of an imputed image were removed, (N,); ½ is guessing.

    It is trained on the images `train` and tested on `test`. The score of an image is the mean of the share of its removed
    pixels and the share of its kept pixels that are recognised.
    """
    channels, device = train.x.shape[1], train.x.device
    network = seeded(partial(_pixel_net, channels), seed).to(device)
    generator = torch.Generator().manual_seed(seed)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    share_kept = train.keep.double().mean().clamp(1e-6, 1 - 1e-6)
    # So that removed and kept pixels have the same weight in the loss.
    weight_of_kept = ((1 - share_kept) / share_kept).float()
    size = min(batch_size, len(train.x))
    for _ in range(steps):
        rows = torch.randint(0, len(train.x), (size,), generator=generator).to(device)
        outputs = network(train.x[rows])[:, 0]
        kept = train.keep[rows].float()
        loss = F.binary_cross_entropy_with_logits(outputs, kept, pos_weight=weight_of_kept)
        optimiser.zero_grad(set_to_none=True)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    with torch.no_grad():
        says_kept = torch.cat([network(images)[:, 0] > 0 for images in torch.split(test.x, 256)])
    is_right = says_kept == test.keep
    shares = []
    for pixels in (test.keep, ~test.keep):
        right = (is_right & pixels).flatten(1).sum(1).double()
        shares.append(right / pixels.flatten(1).sum(1).clamp(min=1))
    return torch.stack(shares).mean(0).cpu()


def _pixel_net(channels: int) -> nn.Sequential:
    """Return a network of three convolutions with one output per pixel."""
    return nn.Sequential(
        nn.Conv2d(channels, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 32, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(32, 1, 3, padding=1),
    )


def probe_columns(train: Removed, test: Removed, seed: int) -> dict[str, Tensor]:
    """Return what the probes say about each held-out image, (N,), by the measures of the evaluation."""
    classes = int(max(train.label.max(), test.label.max())) + 1
    columns = {PRIOR: test.label.double().cpu(), PIXELS: probe_pixels(train, test, seed)}
    for probe, answers in probe_classes(train, test, classes, seed):
        columns[f"{probe}_log2"], columns[f"{probe}_hit"] = answers.unbind(1)
    return columns


def leakage_summary(table: pd.DataFrame, delta: float = 0.05) -> pd.DataFrame:
    """Return how many bits about the class the shape of the removed part leaks, per explainer, imputer, order and fraction.

    `table` has the rows of the evaluation `leakage`. `mask_bits`, `imputed_bits` and `both_bits` are lower bounds on the
    information about the class C in the mask M, in the imputed image x′ and in both: Fano's bound at the lower confidence
    limit of a classifier's accuracy, which fails with probability at most delta/2. `mask_indicated` is Hellman and Raviv's
    value. `leak` is I(C; M) − I(C; M | x′) = I(C; x′) − I(C; x′, M) + I(C; M), the term of equation 2 of the ROAD paper
    that is not due to the removed features; it is an estimate from H(C) − cross-entropy, not a bound. `pixels` is the
    share of pixels whose removal is recognised, and `leaks` whether a report should warn.
    """
    rows = table[(table["status"] == "ok") & table["measure"].isin(LEAKAGE.of_role("model"))]
    keys = ["dataset", "model", "evaluation", "explainer", "condition", "imputer", "order", "level"]
    entries = []
    for key, group in rows.groupby(keys, sort=False, observed=True):
        columns = {}
        for measure, of_measure in group.groupby("measure", observed=True):
            columns[str(measure)] = of_measure["value"].to_numpy()
        entries.append(dict(zip(keys, key, strict=True)) | _leaked_bits(columns, delta))
    return pd.DataFrame(entries)


def _leaked_bits(columns: Mapping[str, Array], delta: float) -> dict[str, Any]:
    """Return the leaked bits of one combination from its probes; `leakage_summary` explains the numbers.

    `columns` has the answers of the probes for every held-out image, by measure.
    """
    labels = columns.get(PRIOR, np.zeros(0))
    _, counts = np.unique(labels, return_counts=True)
    classes, prior = max(2, len(counts)), entropy(counts.tolist())
    bits: dict[str, Any] = {}
    information = {}
    for probe in PROBES:
        if f"{probe}_hit" not in columns:
            continue
        hits = columns[f"{probe}_hit"]
        accuracy = float(hits.mean())
        low, _ = clopper_pearson(int(hits.sum()), len(hits), delta / 2)
        bits[f"{probe}_accuracy"] = accuracy
        bits[f"{probe}_bits"] = fano(float(low), classes, prior)
        bits[f"{probe}_indicated"] = hellman_raviv(accuracy, classes, prior)
        # H(C) − cross-entropy, in bits.
        information[probe] = max(0.0, prior + float(columns[f"{probe}_log2"].mean()))
    if len(information) == len(PROBES):
        bits["leak"] = information["imputed"] - information["both"] + information["mask"]
    bits["pixels"] = float(columns[PIXELS].mean()) if PIXELS in columns else math.nan
    has_bits = bits.get("mask_bits", 0.0) > LEAK_BITS
    bits["leaks"] = bool(has_bits and bits["pixels"] > TELLTALE)
    return bits

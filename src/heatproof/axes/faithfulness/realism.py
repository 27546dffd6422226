"""How well filled inputs can be told from real ones by the model's own features: a check beside every removal curve.

What a network says of an input that looks like none of its training data says little about the removed part. So a
ridge classifier on the network's penultimate activations is asked which inputs are real and which had a random part
filled in. It is fitted on one population of samples, the same for every shard, in five folds, and asked only about
samples outside the fold it was fitted on. Its area under the ROC curve is ½ where nothing can be told, 1 where all can.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from heatproof import rand
from heatproof.maps.chance import itself
from heatproof.models import Model
from heatproof.types import Batch

FEWEST = 50
"""With fewer samples in the data set the discriminator is not fitted."""
POPULATION = 128
"""From how many samples, at most, the discriminator learns."""
FOLDS = 5
WIDEST = 2048
"""Longer vectors of features are averaged over neighbours to this length."""
RIDGE = 0.1
"""Weight of the penalty, in units of the mean squared length of a standardised feature vector."""


def outputs_and_features(model: Model, batch: Batch) -> Tensor:
    """Return what the model computes of each sample: its logits and its penultimate activations, (B, classes + D) float32.

    A classifier is trained on them to tell filled inputs from real ones. The activations are the input of the last linear
    layer or convolution that runs, averaged over positions. Where that input has another number of rows than the batch
    (a layer that mixes samples, or none at all), the logits are used in their place.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> outputs_and_features(Model(net), Batch(("a",), torch.zeros(1, 3))).shape
    torch.Size([1, 7])
    """
    last: tuple[nn.Module, Tensor] | None = None

    def remember(layer: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        nonlocal last
        if arguments:
            last = layer, arguments[0].detach()

    hooks = []
    for module in model.module.modules():
        if isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d):
            hooks.append(module.register_forward_pre_hook(remember))
    inputs, aux = model.filled_up(model.inputs(batch), batch.aux)
    try:
        with torch.no_grad():
            logits = model.logits(inputs, aux).float()[: len(batch)]
    finally:
        for hook in hooks:
            hook.remove()

    features = logits
    if last is not None and len(last[1]) == len(inputs):
        layer, layer_input = last
        features = layer_input[: len(batch)].float()
        # The channels come last in the input of a linear layer, and second in that of a convolution.
        if isinstance(layer, nn.Linear):
            position_axes = tuple(range(1, features.ndim - 1))
        else:
            position_axes = tuple(range(2, features.ndim))
        if position_axes:
            features = features.mean(position_axes)
    if features.shape[1] > WIDEST:
        features = F.adaptive_avg_pool1d(features[:, None], WIDEST)[:, 0]
    return torch.cat([logits, features], 1)


def discriminate(real: Tensor, filled: Tensor, queries: Sequence[Tensor]) -> list[Tensor]:
    """Return how much each query (…, D) looks like a filled input, (…,): the output of a ridge classifier.

    The classifier is fitted on the features of `real` and `filled` inputs (n, D), standardised by their mean and
    deviation. With those features Z (2n, D) and the labels y = −1 for real, 1 for filled, the weights of ridge regression
    in its dual form are Zᵀ (Z Zᵀ + λ I)⁻¹ y, which solves a system of 2n equations instead of D.

    >>> low, high = torch.zeros(4, 1), torch.ones(4, 1)
    >>> first, second = discriminate(low, high, [low[:1], high[:1]])
    >>> bool(first < second)
    True
    """
    both = torch.cat([real, filled]).double()
    mean, std = both.mean(0), both.std(0)
    # A feature that does not vary says nothing: dividing by infinity makes it 0.
    varies = std > 1e-9 * both.abs().amax().clamp(min=1e-30)
    std = torch.where(varies, std, torch.inf)
    z = (both - mean) / std
    gram = z @ z.T
    identity = torch.eye(len(z), dtype=z.dtype, device=z.device)
    penalty = RIDGE * gram.diagonal().mean().clamp(min=1e-12) * identity
    y = torch.cat([both.new_full((len(real),), -1.0), both.new_ones(len(filled))])
    weights = z.T @ torch.linalg.solve(gram + penalty, y)
    return [((query.double() - mean) / std) @ weights for query in queries]


def folds(ids: Sequence[str], population: Sequence[str], seed: int) -> Tensor:
    """Return the cross-validation fold of each sample, (B,).

    The samples `population`, on which the classifiers are fitted, are dealt to the folds in turn, so that folds are of
    equal size; every other sample is put into a random fold, the same in every run with this seed.

    >>> folds(["b", "x"], ["a", "b"], 0)[0].item()
    1
    """
    fold_of_member = {sample: i % FOLDS for i, sample in enumerate(population)}
    drawn = (rand.keys(seed, ids, "folds") % FOLDS).tolist()
    fold_of_sample = [
        fold_of_member.get(sample, fold) for sample, fold in zip(ids, drawn, strict=True)
    ]
    return torch.tensor(fold_of_sample)


def detection_scores(
    real: Tensor,
    filled: Tensor,
    ids: Sequence[str],
    peers: tuple[Tensor, Tensor],
    names: Sequence[str],
    seed: int,
) -> Tensor:
    """Return how well each sample's filled version can be told from real inputs, (B,) float64, from 0 to 1.

    The mean over samples is the area under the ROC curve of a classifier of real and filled inputs: ½ is guessing.
    `real` and `filled` (B, D) are the features of the samples, and `peers` the real and the filled features (R, D) of a
    reference population with the ids `names`. For each fold a classifier is fitted on the peers outside it. The score of
    a sample in the fold is the mean of two shares of the peers in the fold, other than the sample itself: of those whose
    real version looks less filled than the sample's filled one, and of those whose filled version looks more filled than
    the sample's real one. A tie counts ½.

    >>> x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    >>> detection_scores(x, x + 9, (names := [str(i) for i in range(60)]), (x, x + 9), names, 0).mean().item()
    1.0
    """
    peers_real, peers_filled = peers
    usable = (torch.isfinite(peers_real) & torch.isfinite(peers_filled)).all(1)
    names = [name for name, is_usable in zip(names, usable.tolist(), strict=True) if is_usable]
    peers_real, peers_filled = peers_real[usable], peers_filled[usable]
    fold_of_sample, fold_of_peer = folds(ids, names, seed), folds(names, names, seed)
    is_another = ~itself(tuple(ids), tuple(names)).T

    scores = torch.full((len(ids),), torch.nan, dtype=torch.float64)
    for fold in range(FOLDS):
        rows = (fold_of_sample == fold).nonzero().flatten()
        held_out = fold_of_peer == fold
        if not len(rows):
            continue
        queries = [filled[rows], real[rows], peers_filled[held_out], peers_real[held_out]]
        looks = discriminate(peers_real[~held_out], peers_filled[~held_out], queries)
        sample_filled, sample_real, peer_filled, peer_real = looks
        # A sign is 1 for right, 0 for a tie and −1 for wrong; the sum of two, from −2 to 2, is scaled to [0, 1].
        right_about_filled = (sample_filled[:, None] - peer_real).sign()
        right_about_real = (peer_filled - sample_real[:, None]).sign()
        wins = (right_about_filled + right_about_real) / 4 + 0.5
        counts = is_another[rows][:, held_out].double()
        scores[rows] = (wins * counts).sum(1) / counts.sum(1)
    return scores


def area_and_interval(
    values: NDArray[np.float64], population: int, z: float = 1.96
) -> tuple[float, float, float]:
    """Return the area under the ROC curve from the scores of N samples, and its 95 % interval: (area, low, high).

    `values` (N,) are the scores of `detection_scores`, whose mean is the area; NaN below 50 samples. Each sample was
    compared with R reference samples (`population`), which are among the N. With s² the variance of the scores, the
    squared standard error is SE² = s² (3/N + 1/R). If every sample is a reference, R = N, this is 4 s²/N, the usual
    variance of a U-statistic of pairs (Hoeffding 1948).

    The interval is Wilson's for a proportion, which stays within [0, 1]. In place of the number of trials it takes the
    number whose proportion would have this standard error, at most R.

    >>> [round(end, 3) for end in area_and_interval(np.ones(100), 100)]
    [1.0, 0.963, 1.0]
    """
    values = values[np.isfinite(values)]
    n, peers = len(values), min(population, len(values))
    if n < FEWEST:
        return math.nan, math.nan, math.nan
    area = float(values.mean())
    squared_error = float(values.var(ddof=1)) * (3 / n + 1 / peers)
    # A proportion of n trials has SE² = area (1 − area) / n; solved for n.
    effective_n = float(peers)
    if squared_error > 0:
        effective_n = min(effective_n, area * (1 - area) / squared_error)
    # Wilson's interval (Wilson 1927): ((centre ± half width) / shrink).
    centre = area + z * z / (2 * effective_n)
    half_width = z * math.sqrt(area * (1 - area) / effective_n + (z / (2 * effective_n)) ** 2)
    shrink = 1 + z * z / effective_n
    return area, (centre - half_width) / shrink, (centre + half_width) / shrink

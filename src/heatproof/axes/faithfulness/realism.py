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
    """Logits and, beside them, what the last linear layer or convolution of a pass took, (B, classes + D) float32.

    Positions are averaged. Where no such layer keeps the batch apart, the logits stand in for the features.

    >>> net = nn.Sequential(nn.Linear(3, 5), nn.ReLU(), nn.Linear(5, 2))
    >>> outputs_and_features(Model(net), Batch(("a",), torch.zeros(1, 3))).shape
    torch.Size([1, 7])
    """
    taken: list[tuple[nn.Module, Tensor]] = []

    def keep(layer: nn.Module, given: tuple[Tensor, ...]) -> None:
        taken[:] = [(layer, part.detach()) for part in given[:1]] or taken

    kinds = (nn.Linear, nn.Conv1d, nn.Conv2d)
    hooks = [
        m.register_forward_pre_hook(keep) for m in model.module.modules() if isinstance(m, kinds)
    ]
    inputs, aux = model.filled_up(model.inputs(batch), batch.aux)
    try:
        with torch.no_grad():
            logits = model.logits(inputs, aux).float()[: len(batch)]
    finally:
        for hook in hooks:
            hook.remove()
    found = logits
    if taken and len(taken[0][1]) == len(inputs):
        layer, part = taken[0][0], taken[0][1][: len(batch)].float()
        positions = range(1, part.ndim - 1) if isinstance(layer, nn.Linear) else range(2, part.ndim)
        found = part.mean(tuple(positions)) if positions else part
    if found.shape[1] > WIDEST:
        found = F.adaptive_avg_pool1d(found[:, None], WIDEST)[:, 0]
    return torch.cat([logits, found], 1)


def discriminate(real: Tensor, filled: Tensor, asked: Sequence[Tensor]) -> list[Tensor]:
    """How filled each of the `asked` (…, D) looks to a ridge classifier fitted on `real` and `filled` (n, D), (…,).

    Features are standardised by the fitted samples; with Z (2n, D) and y = ∓1 the weights are Zᵀ (Z Zᵀ + λ I)⁻¹ y.

    >>> low, high = torch.zeros(4, 1), torch.ones(4, 1)
    >>> first, second = discriminate(low, high, [low[:1], high[:1]])
    >>> bool(first < second)
    True
    """
    both = torch.cat([real, filled]).double()
    centre, spread = both.mean(0), both.std(0)
    spread = torch.where(spread > 1e-9 * both.abs().amax().clamp(min=1e-30), spread, torch.inf)
    z = (both - centre) / spread
    gram = z @ z.T
    penalty = (
        RIDGE
        * gram.diagonal().mean().clamp(min=1e-12)
        * torch.eye(len(z), dtype=z.dtype, device=z.device)
    )
    answer = torch.cat([both.new_full((len(real),), -1.0), both.new_ones(len(filled))])
    weight = z.T @ torch.linalg.solve(gram + penalty, answer)
    return [((some.double() - centre) / spread) @ weight for some in asked]


def folds(ids: Sequence[str], population: Sequence[str], seed: int) -> Tensor:
    """The fold of each sample, (B,): members of the population in turn, so that folds are equal, others by a draw.

    >>> folds(["b", "x"], ["a", "b"], 0)[0].item()
    1
    """
    place = {sample: i % FOLDS for i, sample in enumerate(population)}
    drawn = (rand.keys(seed, ids, "folds") % FOLDS).tolist()
    return torch.tensor(
        [place.get(sample, other) for sample, other in zip(ids, drawn, strict=True)]
    )


def told_apart(
    real: Tensor,
    filled: Tensor,
    ids: Sequence[str],
    peers: tuple[Tensor, Tensor],
    names: Sequence[str],
    seed: int,
) -> Tensor:
    """Each sample's part in the area under the ROC curve, (B,) float64; their mean is the area.

    `real` and `filled` (B, D) are features of the samples, `peers` those of the population (R, D). Of the peers in
    the sample's fold but itself, vᵢ is the mean of the share whose real version looks less filled than the
    sample's filled one, and of the share whose filled version looks more filled than the sample's real one; ties ½.

    >>> x = torch.randn(60, 3, generator=torch.Generator().manual_seed(0))
    >>> told_apart(x, x + 9, (names := [str(i) for i in range(60)]), (x, x + 9), names, 0).mean().item()
    1.0
    """
    fine = (torch.isfinite(peers[0]) & torch.isfinite(peers[1])).all(1)
    names = [name for name, usable in zip(names, fine.tolist(), strict=True) if usable]
    peers = (peers[0][fine], peers[1][fine])
    own, theirs = folds(ids, names, seed), folds(names, names, seed)
    other = torch.tensor([[a != b for b in names] for a in ids])
    found = torch.full((len(ids),), torch.nan, dtype=torch.float64)
    for fold in range(FOLDS):
        rows, held = (own == fold).nonzero().flatten(), theirs == fold
        if not len(rows):
            continue
        asked = [filled[rows], real[rows], peers[1][held], peers[0][held]]
        mine, clean, them, others = discriminate(peers[0][~held], peers[1][~held], asked)
        wins = ((mine[:, None] - others).sign() + (them - clean[:, None]).sign()) / 4 + 0.5
        counted = other[rows][:, held].double()
        found[rows] = (wins * counted).sum(1) / counted.sum(1)
    return found


def area_and_interval(
    values: NDArray[np.float64], population: int, z: float = 1.96
) -> tuple[float, float, float]:
    """The area under the ROC curve from the parts of N samples, and its 95 % interval.

    The parts compare N samples with R of the population, which are among them, so a sample counts as both: with s²
    the variance of the parts, SE² = s² (3/N + 1/R), which is the usual 4 s²/N of a U-statistic where all are peers.
    The interval is Wilson's for as many answers as have this standard error, at most R.

    >>> [round(end, 3) for end in area_and_interval(np.ones(100), 100)]
    [1.0, 0.963, 1.0]
    """
    values = values[np.isfinite(values)]
    n, peers = len(values), min(population, len(values))
    if n < FEWEST:
        return math.nan, math.nan, math.nan
    area = float(values.mean())
    variance = float(values.var(ddof=1)) * (3 / n + 1 / peers)
    answers = min(float(peers), area * (1 - area) / variance if variance > 0 else math.inf)
    middle, width = (
        area + z * z / (2 * answers),
        z * math.sqrt(area * (1 - area) / answers + (z / (2 * answers)) ** 2),
    )
    return area, (middle - width) / (1 + z * z / answers), (middle + width) / (1 + z * z / answers)

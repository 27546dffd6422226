"""One bank of random masks per sample, shared by all explainers: infidelity, sensitivity-n, faithfulness correlation.

Each mask removes a random set S of a sample's features. The drop of the class's logit, f(x) − f(x without S), costs
one model pass and does not depend on the explainer; the mass that a map gives to S, Σ_{i ∈ S} Φ_i with Φ summed over
the channels and positions of feature i, costs none. A map is read as contributions: for the product of input and
gradient, a linear model and a baseline of 0 the mass is the drop.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from heatproof import rand
from heatproof.axes.faithfulness.sweeps import Predict, predict_kept
from heatproof.errors import UserError
from heatproof.features import count, pool
from heatproof.types import Batch

RESOLUTION = 1e-6
"""Differences below this share of the largest value are rounding, and do not make a correlation."""


@dataclass(frozen=True)
class Bank:
    """What M masks do to B samples: `drop` (B, M) of the logit, and the `mass` (E, B, M) that each of E maps gives them.

    `level` (M,) is the fraction of the features that a mask is meant to remove, `size` (B, M) their number and `area`
    (B, M) the number of their positions.
    """

    drop: Tensor
    mass: Tensor
    level: Tensor
    size: Tensor
    area: Tensor


def random_masks(keys: Tensor, counts: Tensor, sizes: Tensor, n: int) -> Tensor:
    """Return R random sets of features to remove, (R, n) boolean: sizes[r] of the first counts[r] features.

    Every set of that size is equally likely, and is fixed by the random key of its row.

    >>> random_masks(rand.keys(0, ["a"], "masks"), torch.tensor([4]), torch.tensor([3]), 5).sum().item()
    3
    """
    bits = rand.bits(keys, n)
    feature = torch.arange(n, device=bits.device)
    # Sorting by random numbers gives a random order; features that a sample does not have come last.
    is_absent = feature >= counts[:, None]
    bits = bits.masked_fill(is_absent, torch.iinfo(torch.int64).max)
    random_order = bits.argsort(dim=1, stable=True)
    # The first sizes[r] features in that order are removed: mask[r, random_order[r, i]] = (i < sizes[r]).
    is_among_first = feature < sizes[:, None]
    return torch.zeros_like(is_among_first).scatter(1, random_order, is_among_first)


def fill_bank(
    predict: Predict,
    batch: Batch,
    target: Tensor,
    clean: Tensor,
    segments: Tensor,
    maps: Tensor,
    imputer: Any,
    masks: int = 64,
    subsets: Sequence[float] = (0.1, 0.5),
    seed: int = 0,
    counts: Tensor | None = None,
) -> Bank:
    """Return what M random masks do to each sample: by how much the class's logit drops, and what each map predicted.

    Each of the M = `masks` masks removes a random set of features; their sizes are the fractions f in `subsets` in turn,
    ⌊f·n + ½⌋ of n features, at least one and at most n − 1. `segments` (B, H, W) labels the features, `maps`
    (E, B, H, W) are E explanations summed over channels, `clean` (B, classes) the logits of the whole samples. With
    `counts` (B,) only the first counts[b] features of a sample are ever removed. The draws are fixed by the seed and the
    sample's id, so they are the same for every explainer and in every batch.

    >>> def black(x, keep, ids, seed):
    ...     return x * keep[:, None]
    >>> def total(b):
    ...     return b.x.flatten(1).sum(1, keepdim=True)
    >>> batch, labels = Batch(("a",), torch.tensor([[[[3.0, 5.0]]]])), torch.tensor([[[0, 1]]])
    >>> zero = torch.zeros(1, dtype=torch.int64)
    >>> bank = fill_bank(total, batch, zero, total(batch), labels, batch.x[:, 0][None], black, masks=4)
    >>> bool((bank.drop == bank.mass[0]).all())
    True
    """
    if masks < 2 * len(subsets):
        raise UserError(
            f"{len(subsets)} sizes of subsets need at least {2 * len(subsets)} masks, got {masks}"
        )
    device = segments.device
    counts = count(segments) if counts is None else counts
    n = int(segments.max()) + 1
    level = torch.tensor([subsets[m % len(subsets)] for m in range(masks)], dtype=torch.float64)
    sizes = _mask_sizes(level.to(device), counts)

    # What each map gives to each feature, (E + 1, B, n); the area of a mask is the mass of a map of ones.
    ones = torch.ones_like(segments, dtype=torch.float64)
    per_feature = [pool(values.double(), segments, n) for values in (*maps, ones)]

    # One row for each sample and mask.
    keys = rand.keys(seed, batch.ids, "masks").to(device)
    sample = torch.arange(len(batch), device=device).repeat_interleave(masks)
    mask = torch.arange(masks, device=device).repeat(len(batch))
    mass = torch.zeros(len(per_feature), len(sample), dtype=torch.float64, device=device)

    def keep(rows: slice) -> Tensor:
        """Return the positions that masks keep (r, H, W); notes the mass of what they remove on the way."""
        owner = sample[rows]
        key = rand.fold(keys[owner], mask[rows])
        removed = random_masks(key, counts[owner], sizes[owner, mask[rows]], n)
        for e, values in enumerate(per_feature):
            mass[e, rows] = (values[owner] * removed).sum(1)
        labels = segments[owner]
        return ~removed.gather(1, labels.flatten(1)).reshape(labels.shape)

    logits = predict_kept(predict, batch, sample, keep, imputer, seed).double()
    logits = logits.reshape(len(batch), masks, -1)
    column = target.to(logits.device)[:, None]
    before = clean.double().gather(1, column)
    after = logits.gather(2, column[:, None].expand(-1, masks, 1))[..., 0]
    mass = mass.reshape(len(per_feature), len(batch), masks).cpu()
    return Bank(drop=before - after, mass=mass[:-1], level=level, size=sizes.cpu(), area=mass[-1])


def _mask_sizes(level: Tensor, counts: Tensor) -> Tensor:
    """Return how many features each mask removes from each sample, (B, M), for levels (M,) and counts (B,).

    ⌊f·n + ½⌋, but at least one and at most n − 1.
    """
    rounded = (level * counts[:, None].double() + 0.5).floor().long()
    return torch.minimum(rounded, counts[:, None] - 1).clamp(min=1)


def infidelity(mass: Tensor, drop: Tensor, scaled: bool = False) -> Tensor:
    """Return the infidelity of each map (B,), the mean over masks of (β · mass − drop)²; smaller is better.

    `mass` (B, M) is the sum of a map over what each of M masks removes, and `drop` (B, M) by how much the logit fell. β
    is 1, as in Yeh et al. 2019, or if `scaled` the factor Σ mass · drop / Σ mass² that fits the map best, for maps that
    are not in the unit of the logit.

    >>> mass, drop = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 4.0]])
    >>> infidelity(mass, drop).item(), infidelity(mass, drop, scaled=True).item()
    (2.5, 0.0)
    """
    if scaled:
        best_fit = (mass * drop).mean(1) / (mass * mass).mean(1)
        mass = mass * best_fit[:, None]
    return ((mass - drop) ** 2).mean(1)


def correlation(
    mass: Tensor,
    drop: Tensor,
    size: Tensor | None = None,
    scale: Tensor | None = None,
    area: Tensor | None = None,
) -> Tensor:
    """Return Pearson's correlation over M masks of a map's mass and the logit's drop, (B,); NaN where one does not vary.

    `mass` (B, M) is the sum of a map over what each mask removes, `drop` (B, M) by how much the logit fell. Larger masks
    have more of both, which would make a correlation by itself. So with `size` (B, M), the number of removed features,
    both are centred within the masks of each size, and with `area` (B, M), the number of removed positions, the partial
    correlation given the area is returned; uninformative maps then score 0. `scale` (B,) is the size of the logits:
    differences that are small against it are rounding errors.

    >>> correlation(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[2.0, 4.0, 8.0]])).tolist()
    [1.0]
    """
    if size is None:
        size = torch.zeros_like(mass, dtype=torch.int64)
    # A matrix (B, M, M) that averages over the masks of the same size.
    same_size = (size[:, :, None] == size[:, None]).to(mass.dtype)
    averaging = same_size / same_size.sum(2, keepdim=True)

    a, b = _centred(mass, averaging), _centred(drop, averaging)
    if area is not None:
        # Partial correlation: the component along the direction of the area is taken off both.
        c = _centred(area, averaging)
        direction = c / c.square().sum(1, keepdim=True).sqrt().clamp(min=1e-9)
        a = a - (a * direction).sum(1, keepdim=True) * direction
        b = b - (b * direction).sum(1, keepdim=True) * direction

    # What is left may be rounding errors alone.
    largest_mass = mass.abs().amax(1)
    largest_drop = drop.abs().amax(1)
    if scale is not None:
        largest_drop = torch.maximum(scale.abs(), largest_drop)
    is_mass_flat = a.abs().amax(1) <= RESOLUTION * largest_mass
    is_drop_flat = b.abs().amax(1) <= RESOLUTION * largest_drop

    pearson = (a * b).sum(1) / ((a * a).sum(1) * (b * b).sum(1)).sqrt()
    return pearson.clamp(-1, 1).masked_fill(is_mass_flat | is_drop_flat, torch.nan)


def _centred(values: Tensor, averaging: Tensor) -> Tensor:
    """Return values (B, M) less their means over groups, as given by a matrix (B, M, M) that averages within them."""
    means = (averaging @ values[..., None])[..., 0]
    return values - means


def scores(bank: Bank, which: int, scale: Tensor | None = None) -> dict[tuple[str, float], Tensor]:
    """Return the metrics of random masks for one map of each sample: (B,) values by (measure, level).

    `bank` holds the drop of the logit under every mask and the mass that each map gives to the removed features, and
    `which` is the number of the map. `infidelity` is the mean squared difference of mass and drop (Yeh et al. 2019),
    `sensitivity_n` their correlation over the masks of one size, which is its level (Ancona et al. 2018), and
    `faithfulness_correlation` that over all masks, centred within each size (Bhatt et al. 2020). From both correlations
    the effect of the removed area is taken off; `scale` (B,) is the size of the logits, for their rounding errors.

    >>> exact = torch.tensor([[1.0, 2.0, 4.0, 3.0]], dtype=torch.float64)
    >>> size = torch.tensor([[1, 1, 5, 5]])
    >>> bank = Bank(exact, exact[None], torch.tensor([0.1, 0.1, 0.5, 0.5]), size, size.double())
    >>> {name: value.item() for (name, level), value in scores(bank, 0).items()}
    {'infidelity': 0.0, 'infidelity_scaled': 0.0, 'faithfulness_correlation': 1.0, 'sensitivity_n': 1.0}
    """
    mass, drop = bank.mass[which], bank.drop
    by_measure = {
        ("infidelity", 0.0): infidelity(mass, drop),
        ("infidelity_scaled", 0.0): infidelity(mass, drop, scaled=True),
        ("faithfulness_correlation", 0.0): correlation(mass, drop, bank.size, scale, bank.area),
    }
    for level in sorted(set(bank.level.tolist())):
        of_size = bank.level == level
        by_measure["sensitivity_n", level] = correlation(
            mass[:, of_size], drop[:, of_size], None, scale, bank.area[:, of_size]
        )
    return by_measure

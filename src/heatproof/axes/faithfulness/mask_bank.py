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
    """What M masks did to B samples: `drop` (B, M) of the logit, `mass` (E, B, M) of each of E maps.

    `level` (M,) is the fraction of the features that a mask was asked to remove, `size` (B, M) their number and `area`
    (B, M) the number of their positions.
    """

    drop: Tensor
    mass: Tensor
    level: Tensor
    size: Tensor
    area: Tensor


def random_masks(keys: Tensor, counts: Tensor, sizes: Tensor, n: int) -> Tensor:
    """Which features each of R masks removes, (R, n) boolean: `sizes` of the first `counts`, uniformly at random.

    >>> random_masks(rand.keys(0, ["a"], "masks"), torch.tensor([4]), torch.tensor([3]), 5).sum().item()
    3
    """
    bits = rand.bits(keys, n)
    absent = torch.arange(n, device=bits.device) >= counts[:, None]
    order = bits.masked_fill(absent, torch.iinfo(torch.int64).max).argsort(dim=1, stable=True)
    chosen = torch.arange(n, device=bits.device) < sizes[:, None]
    return torch.zeros_like(chosen).scatter(1, order, chosen)


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
    """Remove `masks` random sets of features from each sample, as many of each size in `subsets` as possible.

    `segments` (B, H, W) labels the features, `maps` (E, B, H, W) are E explanations summed over channels, `clean`
    (B, classes) the logits of the whole samples. With `counts` (B,) only that many features of each sample are ever
    removed, the first ones. A set holds ⌊f·n + ½⌋ features, at least one and at most n − 1.
    The draws are keyed by seed and sample, so they are the same for every explainer and in every batch.

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
    wanted = (level.to(device) * counts[:, None].double() + 0.5).floor().long()
    sizes = torch.maximum(torch.minimum(wanted, counts[:, None] - 1), torch.ones_like(wanted))
    keys = rand.keys(seed, batch.ids, "masks").to(device)
    index = torch.arange(len(batch), device=device).repeat_interleave(masks)
    number = torch.arange(masks, device=device).repeat(len(batch))
    values = torch.stack([pool(each.double(), segments, n) for each in maps])
    # The area that a mask removes is the mass of a map of ones.
    values = torch.cat(
        [values, pool(torch.ones_like(segments, dtype=torch.float64), segments, n)[None]]
    )
    mass = torch.zeros(len(values), len(index), dtype=torch.float64, device=device)

    def keep(rows: slice) -> Tensor:
        at = index[rows]
        gone = random_masks(
            rand.fold(keys[at], number[rows]), counts[at], sizes[at, number[rows]], n
        )
        for e, value in enumerate(values):
            mass[e, rows] = (value[at] * gone).sum(1)
        return ~gone.gather(1, segments[at].flatten(1)).reshape(len(at), *segments.shape[1:])

    logits = (
        predict_kept(predict, batch, index, keep, imputer, seed)
        .double()
        .reshape(len(batch), masks, -1)
    )
    own = target.to(logits.device)[:, None]
    drop = (
        clean.double().gather(1, own) - logits.gather(2, own[:, None].expand(-1, masks, 1))[..., 0]
    )
    mass = mass.reshape(len(values), len(batch), masks).cpu()
    return Bank(drop, mass[:-1], level, sizes.cpu(), mass[-1])


def infidelity(mass: Tensor, drop: Tensor, scaled: bool = False) -> Tensor:
    """The mean over masks of (β · mass − drop)², (B, M) each to (B,); smaller is better.

    β = 1, or if `scaled` the factor Σ mass · drop / Σ mass² that fits the map best, for maps without a unit.

    >>> mass, drop = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 4.0]])
    >>> infidelity(mass, drop).item(), infidelity(mass, drop, scaled=True).item()
    (2.5, 0.0)
    """
    if scaled:
        mass = mass * ((mass * drop).mean(1) / (mass * mass).mean(1))[:, None]
    return ((mass - drop) ** 2).mean(1)


def correlation(
    mass: Tensor,
    drop: Tensor,
    size: Tensor | None = None,
    scale: Tensor | None = None,
    area: Tensor | None = None,
) -> Tensor:
    """Pearson's correlation over masks of mass and drop, (B, M) each to (B,); NaN where one of them does not vary.

    With `size` (B, M) both are centred within the masks of each size, so that larger sets, which hold more of
    everything, do not make a correlation by themselves; with `area` (B, M) what grows with the removed area is taken
    off both, for the same reason: it is the partial correlation, and maps without merit score 0 whatever the sizes of
    the features. `scale` (B,) is what rounding errors of the drop go with.

    >>> correlation(torch.tensor([[1.0, 2.0, 4.0]]), torch.tensor([[2.0, 4.0, 8.0]])).tolist()
    [1.0]
    """
    size = torch.zeros_like(mass, dtype=torch.int64) if size is None else size
    same = (size[:, :, None] == size[:, None]).to(mass.dtype)
    same = same / same.sum(2, keepdim=True)
    a, b = (v - (same @ v[..., None])[..., 0] for v in (mass, drop))
    if area is not None:
        c = area - (same @ area[..., None])[..., 0]
        c = c / c.square().sum(1, keepdim=True).sqrt().clamp(min=1e-9)
        a, b = (v - (v * c).sum(1, keepdim=True) * c for v in (a, b))
    largest = (
        drop.abs().amax(1) if scale is None else torch.maximum(scale.abs(), drop.abs().amax(1))
    )
    flat = (a.abs().amax(1) <= RESOLUTION * mass.abs().amax(1)) | (
        b.abs().amax(1) <= RESOLUTION * largest
    )
    found = (a * b).sum(1) / ((a * a).sum(1) * (b * b).sum(1)).sqrt()
    return found.clamp(-1, 1).masked_fill(flat, torch.nan)


def scores(bank: Bank, which: int, scale: Tensor | None = None) -> dict[tuple[str, float], Tensor]:
    """What the bank says of map number `which`: (measure, level) to one number per sample, (B,).

    infidelity and infidelity_scaled, `sensitivity_n` of the masks of one size at the level of that size, and
    faithfulness_correlation of all masks, centred within each size; both less what goes with the removed area.

    >>> exact = torch.tensor([[1.0, 2.0, 4.0, 3.0]], dtype=torch.float64)
    >>> size = torch.tensor([[1, 1, 5, 5]])
    >>> bank = Bank(exact, exact[None], torch.tensor([0.1, 0.1, 0.5, 0.5]), size, size.double())
    >>> {name: value.item() for (name, level), value in scores(bank, 0).items()}
    {'infidelity': 0.0, 'infidelity_scaled': 0.0, 'faithfulness_correlation': 1.0, 'sensitivity_n': 1.0}
    """
    mass, drop = bank.mass[which], bank.drop
    found = {
        ("infidelity", 0.0): infidelity(mass, drop),
        ("infidelity_scaled", 0.0): infidelity(mass, drop, scaled=True),
        ("faithfulness_correlation", 0.0): correlation(mass, drop, bank.size, scale, bank.area),
    }
    for level in sorted(set(bank.level.tolist())):
        here = bank.level == level
        found["sensitivity_n", level] = correlation(
            mass[:, here], drop[:, here], None, scale, bank.area[:, here]
        )
    return found

"""Hard radii of smoothed models: how many features can surely be added without changing the prediction.

A smoothed model averages the outputs of one model over masks. Adding features changes only the terms of those masks
that keep one of them, and each of these by no more than an output can change. docs/certificates.md has the rules,
docs/measured.md the proof of the rule for votes.
"""

from __future__ import annotations

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from heatproof.errors import UserError, unknown
from heatproof.statistics.bounds import check_share, clopper_pearson_low

RadiusRule = Literal["per_mask", "lipschitz", "bernoulli"]
RULES: tuple[RadiusRule, ...] = get_args(RadiusRule)
GUARD = 1e-6
"""By how much a smoothed prediction must lead, at the least: sums that round differently must not make a tie a win."""


def leads(outputs: Tensor, unsure: Tensor | None = None) -> Tensor:
    """Return by how much each mask prefers the predicted class to every other, runner-up first, (B, N, C − 1) float64.

    `outputs` (B, N, C) are probabilities or votes of N masks, `unsure` (B, N) marks votes that rounding could turn:
    they count as votes for each of the others at once.

    >>> leads(torch.tensor([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.75, 0.0, 0.25]]]))[0, :, 0].tolist()
    [0.25, -0.25, 0.75]
    """
    outputs = outputs.double()
    mean_output = outputs.mean(1, keepdim=True)
    order = mean_output.argsort(dim=2, descending=True, stable=True)
    best_first = outputs.gather(2, order.expand_as(outputs))
    lead = best_first[..., :1] - best_first[..., 1:]
    return lead if unsure is None else lead.masked_fill(unsure[..., None], -1.0)


def per_mask_radius(lead: Tensor, bank: Tensor, free: Tensor, guard: float = GUARD) -> Tensor:
    """Return the largest r such that no r of the features `free` (B, n) can turn the mean over these very masks, (B,) int64.

    A mask t of the `bank` (N, n) that keeps an added feature loses at most 1 + lead_tc against class c, and the others
    nothing. So r features are harmless if for every c the r largest of Σ_t bank_tj (1 + lead_tc) sum to less than
    Σ_t lead_tc, or if the losses of as many masks as r features can reach do. It is never below the Lipschitz rule.

    >>> bank = torch.eye(4).bool()
    >>> per_mask_radius(torch.tensor([[[1.0], [1.0], [1.0], [0.0]]]), bank, torch.ones(1, 4).bool()).tolist()
    [1]
    """
    if not len(lead):
        return torch.zeros(0, dtype=torch.int64)
    banks = bank.to(lead.device).expand(len(lead), -1, -1)
    masks = banks.shape[1]
    radii = []
    for lead_of_sample, masks_of_sample, is_free in zip(
        lead.double(), banks, free.to(lead.device), strict=True
    ):
        loss = 1 + lead_of_sample  # (N, C − 1): what a mask loses at most against each class
        keeps = masks_of_sample[:, is_free]  # (N, free features)

        # At entry r − 1 the r features with the largest losses, all masks that keep one of them counted in full.
        loss_by_feature = _sum_of_largest(keeps.double().T @ loss)
        # Or the largest losses of as many masks as r features can reach.
        reached = _sum_of_largest(keeps.sum(0)).clamp(max=masks)
        loss_by_masks = torch.nn.functional.pad(_sum_of_largest(loss), (0, 0, 1, 0))[reached]

        harm = torch.minimum(loss_by_feature, loss_by_masks)
        is_safe = (harm < lead_of_sample.sum(0) - guard * masks).all(1)
        radii.append(is_safe.long().cumprod(0).sum())  # up to the first radius that is not safe
    return torch.stack(radii)


def _sum_of_largest(values: Tensor) -> Tensor:
    """Return the sums of the 1, 2, … largest values along the first axis."""
    return values.sort(0, descending=True).values.cumsum(0)


def mus_radius(gap: Tensor, keep: float, rule: RadiusRule = "lipschitz") -> Tensor:
    """Return how many features can be added without changing the prediction of a smoothed model, int64 like `gap`.

    `gap` is the difference between the two largest smoothed probabilities at the explanation, `keep` the
    probability λ that smoothing keeps a feature. "lipschitz" is the largest r with 2 λ r < gap, for any masks with
    these marginals. "bernoulli" is the largest r with (1 − λ)^r (1 + gap) > 1, for independent masks only: the added
    features are all dropped with probability (1 − λ)^r, and then nothing changes. Both inequalities are strict.

    >>> gap = torch.tensor([1.0])
    >>> mus_radius(gap, 0.125).tolist(), mus_radius(gap, 0.125, "bernoulli").tolist()
    ([3], [5])
    """
    if not 0 < keep <= 1:
        raise UserError(f"keep must be above 0 and at most 1, got {keep!r}")
    gap = torch.as_tensor(gap, dtype=torch.float64)
    if bool(gap.isnan().any()):
        raise UserError("the gap between two probabilities must be a number, got nan")
    if rule == "lipschitz":
        limit = gap / (2 * keep)
    elif rule == "bernoulli":
        no_added_feature = torch.zeros_like(gap)  # with λ = 1 no feature is ever dropped
        limit = gap.clamp(min=0).log1p() / -math.log1p(-keep) if keep < 1 else no_added_feature
    else:
        raise unknown("radius rule", rule, ("lipschitz", "bernoulli"))
    largest_below = (limit - 1e-9).ceil() - 1  # rounding must not turn r < 4 into r < 4.0000001
    return largest_below.clamp(min=0).long()


def bernoulli_gap(lead: Tensor, delta: float, votes: bool = False) -> Tensor:
    """Return a lower bound (B,) of the gap in the mean over *all* Bernoulli masks, wrong with probability at most `delta`.

    From `lead` (B, N, C − 1) of N drawn masks. For probabilities it is Hoeffding's, at delta/C: the true runner-up may
    be nearer than it seems, or any other class only seem to be the first. For votes the number of classes does not
    matter: with p ≥ low the share of votes for the first, the gap is at least 2 low − 1, where low is Clopper and
    Pearson's bound at delta/2.

    >>> sure = torch.ones(1, 16, 999)
    >>> bernoulli_gap(sure, 0.1).item() < 0, round(bernoulli_gap(sure, 0.1, votes=True).item(), 3)
    (True, 0.659)
    """
    check_share("delta", delta)
    n, others = lead.shape[1:]
    if votes:
        votes_for_first = (lead.amin(2) == 1).sum(1).cpu()
        return 2 * clopper_pearson_low(votes_for_first, n, delta / 2) - 1
    return lead.mean(1).amin(1).cpu() - math.sqrt(2 * math.log((others + 1) / delta) / n)


def largest_radius(
    keep: float, samples: int, classes: int, delta: float, rule: RadiusRule, votes: bool = False
) -> int:
    """Return the radius that a rule certifies if every one of the masks is sure of the same class: no sample has more.

    >>> [largest_radius(0.125, 16, 1000, 0.1, "bernoulli", votes) for votes in (False, True)]
    [0, 3]
    """
    if rule == "bernoulli":
        gap = bernoulli_gap(torch.ones(1, samples, classes - 1), delta, votes)
        return int(mus_radius(gap, keep, rule))
    return int(mus_radius(torch.tensor(1.0), keep))

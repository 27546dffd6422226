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
    """Return the lead of the predicted class over every other class on each mask, runner-up first, (B, N, C − 1) float64.

    `outputs` (B, N, C) are a model's class probabilities, or its votes (one-hot rows), on N masked copies of each of B
    samples. The predicted class is the one with the largest mean over the copies. `unsure` (B, N) marks copies whose vote
    rounding errors could change: for them the lead is −1, as if they voted for every other class at once.

    >>> leads(torch.tensor([[[0.5, 0.25, 0.25], [0.25, 0.5, 0.25], [0.75, 0.0, 0.25]]]))[0, :, 0].tolist()
    [0.25, -0.25, 0.75]
    """
    outputs = outputs.double()
    # Sort the classes of each sample by their mean output, largest first, the same for all its masks.
    mean_output = outputs.mean(1, keepdim=True)
    classes = mean_output.argsort(dim=2, descending=True, stable=True)
    best_first = outputs.take_along_dim(classes, dim=2)
    lead = best_first[..., :1] - best_first[..., 1:]
    if unsure is not None:
        lead = lead.masked_fill(unsure[..., None], -1.0)
    return lead


def per_mask_radius(lead: Tensor, bank: Tensor, free: Tensor, guard: float = GUARD) -> Tensor:
    """Return how many features can be added to an explanation without changing the prediction of a smoothed model.

    The result (B,) int64 is a lower bound of the hard radius of each sample. The smoothed model averages the outputs of
    one model over N fixed masks. `bank` (N, n), or (B, N, n), says which features each mask keeps, `lead` (B, N, C − 1) is
    the lead of the predicted class over every other on each mask (see `leads`), and `free` (B, n) marks the features that
    can be added.

    Adding a feature j changes only the outputs on masks that keep it. Such a mask t loses at most 1 + lead_tc against
    class c, because its lead cannot fall below −1. So r features are safe if for every class c the total lead Σ_t lead_tc
    is larger than either of two bounds on the total loss: the r largest of Σ_t bank_tj (1 + lead_tc), or the largest
    losses of as many masks as r features can reach. `guard` is a margin for rounding, per mask. The result is never below
    the "lipschitz" rule of `mus_radius`; docs/measured.md has the proof.

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

        # First bound, entry r − 1 for r features: the r features whose masks lose most.
        loss_by_features = _sum_of_largest(keeps.double().T @ loss)

        # Second bound: r features reach at most so many masks, and those are the masks that lose most.
        reached = _sum_of_largest(keeps.sum(0)).clamp(max=masks)
        loss_by_number = torch.nn.functional.pad(
            _sum_of_largest(loss), (0, 0, 1, 0)
        )  # from 0 masks on
        loss_by_masks = loss_by_number[reached]

        largest_loss = torch.minimum(loss_by_features, loss_by_masks)
        total_lead = lead_of_sample.sum(0) - guard * masks
        is_safe = (largest_loss < total_lead).all(1)  # against every class, by radius
        is_safe_up_to = is_safe.long().cumprod(0)
        radii.append(is_safe_up_to.sum())
    return torch.stack(radii)


def _sum_of_largest(values: Tensor) -> Tensor:
    """Return the sums of the 1, 2, … largest values along the first axis."""
    return values.sort(0, descending=True).values.cumsum(0)


def mus_radius(gap: Tensor, keep: float, rule: RadiusRule = "lipschitz") -> Tensor:
    """Return how many features can be added to an explanation without changing the prediction of a smoothed model.

    The model is one that averages its class probabilities over random masks, each of which keeps a feature with
    probability λ = `keep` (multiplicative smoothing, MuS; Xue, Alur and Wong 2023, Stability guarantees for feature
    attributions with multiplicative smoothing). `gap` is the difference between its two largest probabilities at the
    explanation; the result is int64 of the same shape.

    "lipschitz"  the largest r with 2 λ r < gap, for any masks that keep each feature with probability λ. At most a share
                 λ r of the masks keep an added feature, so each probability changes by at most λ r.
    "bernoulli"  the largest r with (1 − λ)^r (1 + gap) > 1, for masks that keep features independently. With probability
                 q = (1 − λ)^r a mask drops all added features and nothing changes; on the other masks the gap is at
                 worst −1. So the new gap is at least q · gap − (1 − q), which must be above 0.

    >>> gap = torch.tensor([1.0])
    >>> mus_radius(gap, 0.125).tolist(), mus_radius(gap, 0.125, "bernoulli").tolist()
    ([3], [5])
    """
    if not 0 < keep <= 1:
        raise UserError(f"keep must be above 0 and at most 1, got {keep!r}")
    gap = torch.as_tensor(gap, dtype=torch.float64)
    if bool(gap.isnan().any()):
        raise UserError("the gap between two probabilities must be a number, got nan")
    # Each rule, solved for r, reads r < limit.
    if rule == "lipschitz":
        limit = gap / (2 * keep)
    elif rule == "bernoulli" and keep < 1:
        limit = gap.clamp(min=0).log1p() / -math.log1p(-keep)  # log(1 + gap) / −log(1 − λ)
    elif rule == "bernoulli":
        limit = torch.zeros_like(gap)  # with λ = 1 no mask drops an added feature
    else:
        raise unknown("radius rule", rule, ("lipschitz", "bernoulli"))
    largest_below = (limit - 1e-9).ceil() - 1  # rounding must not turn r < 4 into r < 4.0000001
    return largest_below.clamp(min=0).long()


def bernoulli_gap(lead: Tensor, delta: float, votes: bool = False) -> Tensor:
    """Return a lower bound (B,) of the gap between the two largest mean outputs of a model over *all* random masks.

    The bound is computed from N random masks and is wrong with probability at most `delta`. `lead` (B, N, C − 1) is the
    lead of the predicted class over every other class on each of these masks (see `leads`).

    For probabilities it is the smallest mean lead minus Hoeffding's √(2 log(C/δ)/N) for values in [−1, 1], at δ/C for each
    of C classes, since any of them may be the true first or second. For `votes` the number of classes does not matter: if
    the first class has at least a share `low` of all votes, the gap is at least low − (1 − low). `low` is the
    Clopper–Pearson lower bound at δ/2.

    >>> all_agree = torch.ones(1, 16, 999)
    >>> bernoulli_gap(all_agree, 0.1).item() < 0, round(bernoulli_gap(all_agree, 0.1, votes=True).item(), 3)
    (True, 0.659)
    """
    check_share("delta", delta)
    n, other_classes = lead.shape[1:]
    if votes:
        votes_for_first = (lead.amin(2) == 1).sum(1).cpu()
        low = clopper_pearson_low(votes_for_first, n, delta / 2)
        return 2 * low - 1
    smallest_mean_lead = lead.mean(1).amin(1).cpu()
    classes = other_classes + 1
    return smallest_mean_lead - math.sqrt(2 * math.log(classes / delta) / n)


def largest_radius(
    keep: float, samples: int, classes: int, delta: float, rule: RadiusRule, votes: bool = False
) -> int:
    """Return the largest radius that a rule for smoothed models can certify, reached if all masks agree on the class.

    The radius is how many features can be added to an explanation without changing the prediction. `keep` is the
    probability that a mask keeps a feature, `samples` the number of masks; see `mus_radius` for the rules and
    `bernoulli_gap` for `delta` and `votes`.

    >>> [largest_radius(0.125, 16, 1000, 0.1, "bernoulli", votes) for votes in (False, True)]
    [0, 3]
    """
    if rule == "bernoulli":
        gap = bernoulli_gap(torch.ones(1, samples, classes - 1), delta, votes)
        return int(mus_radius(gap, keep, rule))
    return int(mus_radius(torch.tensor(1.0), keep))

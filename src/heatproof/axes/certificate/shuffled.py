"""Draws without replacement from few supersets: the same guarantee from fewer passes than independent draws need."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from heatproof import rand
from heatproof.axes.certificate.agreement import Problem
from heatproof.axes.certificate.sequential import Rule, estimate_rule
from heatproof.axes.certificate.strata import all_supersets


@dataclass
class Drawn:
    """One sample and radius: its supersets (S, n) in random order with their strata (S,), and which of them agreed.

    `draws` are looked at so far, and `early` are the share that agreed at the first look and its number of draws.
    """

    sample: int
    column: int
    sets: Tensor
    sizes: Tensor
    rule: Rule
    agreed: Tensor
    draws: int = 0
    look: int = -1
    early: tuple[float, int] = (0.0, 0)

    @property
    def hits(self) -> int:
        """How many agreed."""
        return int(self.agreed[: self.draws].sum())

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the rate."""
        return float(self.rule.low[self.look, self.hits]), float(
            self.rule.high[self.look, self.hits]
        )


def without_replacement(
    problem: Problem, here: Tensor, radii: Tensor, wanted: Tensor, epsilon: float, delta: float
) -> list[Drawn]:
    """The samples and radii `wanted` (B, R), drawn until their rules stop, look by look for all of them at once."""
    items = [
        _shuffled(problem, here, i, j, int(radii[i, j]), epsilon, delta)
        for i, j in wanted.nonzero().tolist()
    ]
    active = list(items)
    while active:
        for item in active:
            item.look += 1
        new = [slice(item.draws, item.rule.looks[item.look]) for item in active]
        owner = torch.cat(
            [here[i.sample].expand(s.stop - s.start) for i, s in zip(active, new, strict=True)]
        )
        rows = torch.cat([i.sets[s] for i, s in zip(active, new, strict=True)])
        size = torch.cat([i.sizes[s] for i, s in zip(active, new, strict=True)])
        agreed = problem.agrees[owner].cpu()
        added = size.nonzero().flatten()
        agreed[added] = problem.judge_sets(owner[added.to(owner.device)], rows[added])
        for item, some, part in zip(
            active, new, torch.split(agreed, [s.stop - s.start for s in new]), strict=True
        ):
            item.agreed[some], item.draws = part, some.stop
            if not item.look:
                item.early = (item.hits / item.draws, item.draws)
        active = [item for item in active if not item.rule.stop[item.look, item.hits]]
    return items


def write(items: list[Drawn], *tensors: Tensor) -> None:
    """Rate, low, high, draws, passes, early rate and early draws in their places of tensors (B, R)."""
    for item in items:
        passes = int((item.sizes[: item.draws] > 0).sum())  # α itself is known
        found = (item.hits / item.draws, *item.bounds, item.draws, passes, *item.early)
        for tensor, value in zip(tensors, found, strict=True):
            tensor[item.sample, item.column] = value


def _shuffled(
    problem: Problem, here: Tensor, sample: int, column: int, r: int, epsilon: float, delta: float
) -> Drawn:
    row = here[sample]
    mask = problem.mask[row].cpu()
    sets, sizes = all_supersets(mask, problem.free[row].cpu(), r)
    order = rand.permutation(rand.fold(problem.key[row][None], -4 - r), len(sets) + 1)[0].cpu()
    every, strata = (
        torch.cat([mask[None], sets])[order],
        torch.cat([torch.zeros_like(sizes[:1]), sizes])[order],
    )
    rule = estimate_rule(epsilon, delta, population=len(every))
    return Drawn(sample, column, every, strata, rule, torch.zeros(len(every), dtype=torch.bool))

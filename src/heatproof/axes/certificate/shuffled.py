"""Draws without replacement from few supersets: the same guarantee from fewer passes than independent draws need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from heatproof import rand
from heatproof.axes.certificate.agreement import Problem
from heatproof.axes.certificate.sequential import Rule, estimate_rule
from heatproof.axes.certificate.strata import all_supersets


@dataclass
class ShuffledSupersets:
    """All supersets of one explanation that a radius allows, in random order, tried from the first on until `rule` stops.

    `masks` (S, n) are the supersets, `added` (S,) how many features each adds, `outcomes` (S,) whether the model agrees
    on it, as far as it was tried: the first `draws`, in the looks 0 to `look` of the rule.
    """

    row: int
    masks: Tensor
    added: Tensor
    outcomes: Tensor
    rule: Rule
    draws: int = 0
    look: int = -1

    @classmethod
    def of(
        cls, problem: Problem, row: int, strata: Sequence[int], epsilon: float, delta: float
    ) -> Self:
        """Return all sets that add k features to the explanation of sample `row`, for each k of `strata`, shuffled.

        None is tried yet. The rule says when draws without replacement estimate the rate of agreement to ± epsilon.
        """
        masks, added = all_supersets(problem.mask[row].cpu(), problem.free[row].cpu(), strata)
        # Random keys above −4 are used elsewhere: −3 for numbers of added features, and from 0 on for each such number.
        key = rand.fold(problem.key[row][None], -4 - strata[-1])
        order = rand.permutation(key, len(masks))[0].cpu()
        rule = estimate_rule(epsilon, delta, population=len(masks))
        return cls(row, masks[order], added[order], torch.zeros(len(masks)).bool(), rule)

    @property
    def agreed(self) -> int:
        """How many of the draws agreed."""
        return int(self.outcomes[: self.draws].sum())

    @property
    def passes(self) -> int:
        """How many model passes the draws cost; what is predicted on the explanation itself is known."""
        return int((self.added[: self.draws] > 0).sum())

    @property
    def bounds(self) -> tuple[float, float]:
        """The bounds of the rate after these draws."""
        low, high = self.rule.low[self.look], self.rule.high[self.look]
        return float(low[self.agreed]), float(high[self.agreed])

    @property
    def first_look(self) -> tuple[float, int]:
        """The share that agreed of the draws of the first look, and the number of these draws."""
        draws = self.rule.looks[0]
        return int(self.outcomes[:draws].sum()) / draws, draws

    @property
    def may_stop(self) -> bool:
        """Whether the rule says that these draws are enough."""
        return bool(self.rule.stop[self.look, self.agreed])


def draw_until_stopped(problem: Problem, entries: Sequence[ShuffledSupersets]) -> None:
    """Try the shuffled supersets of all entries, one after another, until the stopping rule of each entry says stop.

    An entry is a sample and a radius. All entries advance together, from one look of their rules to the next, so that
    batches of the model are full.
    """
    active = list(entries)
    while active:
        next_draws = []
        for entry in active:
            entry.look += 1
            next_draws.append(slice(entry.draws, entry.rule.looks[entry.look]))
        outcomes = _try(problem, active, next_draws)
        for entry, draws, agreed in zip(active, next_draws, outcomes, strict=True):
            entry.outcomes[draws] = agreed
            entry.draws = draws.stop
        active = [entry for entry in active if not entry.may_stop]


def _try(
    problem: Problem, entries: Sequence[ShuffledSupersets], slices: Sequence[slice]
) -> Sequence[Tensor]:
    """Return whether the prediction stays on some supersets of each entry, one boolean tensor per entry.

    `slices` says which of its supersets to try.
    """
    masks_of_entries, added_of_entries, rows_of_entries = [], [], []
    for entry, draws in zip(entries, slices, strict=True):
        masks_of_entries.append(entry.masks[draws])
        added_of_entries.append(entry.added[draws])
        rows_of_entries.append(torch.full((draws.stop - draws.start,), entry.row))
    sizes = [len(rows) for rows in rows_of_entries]
    owner = torch.cat(rows_of_entries).to(problem.key.device)
    masks, added = torch.cat(masks_of_entries), torch.cat(added_of_entries)

    # Without added features it is the explanation itself, which needs no pass.
    agreed = problem.agrees[owner].cpu()
    to_try = added.nonzero().flatten()
    agreed[to_try] = problem.judge_sets(owner[to_try.to(owner.device)], masks[to_try])
    return torch.split(agreed, sizes)

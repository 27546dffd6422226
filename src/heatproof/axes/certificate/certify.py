"""Soft stability: how often the prediction survives when features are added to an explanation, with a guarantee.

For an explanation α of a sample x, τ_r is the share of the supersets β ∈ Δ_r of α with at most r more features on which
the model agrees with itself: f(x ⊙ β) ≅ f(x ⊙ α), where x ⊙ β keeps the features β and fills the others. τ_{=r} is the
same share of the supersets with exactly r more features, so τ_r is a weighted mean of τ_{=0}, …, τ_{=r}.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from heatproof.axes.certificate.agreement import Agreement, Problem
from heatproof.axes.certificate.sequential import (
    NO,
    OPEN,
    YES,
    Method,
    Rule,
    decide_rule,
    estimate_rule,
    hard_rule,
)
from heatproof.axes.certificate.shuffled import ShuffledSupersets, draw_until_stopped
from heatproof.axes.certificate.strata import (
    Added,
    all_supersets,
    drawn_strata,
    random_supersets,
    strata_of,
    supersets,
)
from heatproof.errors import UserError, unknown
from heatproof.features import Patches
from heatproof.features.fill import Fill
from heatproof.models import Model
from heatproof.statistics.bounds import check_share, sample_size, zero_failure_sample_size
from heatproof.types import Batch

Mode = Literal["estimate", "decide", "hard"]
_NUMBERS_AT_ONCE = 1 << 24
"""How many numbers the bookkeeping of the draws may hold in memory: 128 MiB of 64 bits."""
_SMALL = 10
"""Up to so many supersets per draw are drawn without replacement; with more it gains nothing."""
_HUGE = 1 << 62
"""Larger numbers of supersets are not told apart: they do not fit into 64 bits."""


@dataclass(frozen=True)
class Certificates:
    """What is known of τ_r for B samples and R radii; all tensors are (B, R) on the CPU unless said otherwise.

    `low` and `high` are bounds: τ_r < low has at most the probability delta, and so has τ_r > high, so that one of the
    two fails with at most twice that; where `exact`, all supersets were tried and rate = low = high = τ_r. All three
    are NaN for a sample of which the model gave scores that are not finite. `early` is the share that agreed of the
    first `early_draws`, whose number is fixed beforehand, 0 where `exact`: means over samples are certified by them.
    `decision` is 1 (shown), 0 (refuted) or −1 (open; always for mode "estimate"). `samples` are the draws a
    certificate rests on. `passes` are the model passes that it cost: radii share their draws, and a pass is charged to
    the smallest radius that needed it. The one pass of x ⊙ α itself is not counted. `target` (B,) is the class
    predicted on x ⊙ α, `left_out` (B,) the number m of features that can be added.
    """

    radii: Tensor
    rate: Tensor
    low: Tensor
    high: Tensor
    exact: Tensor
    passes: Tensor
    samples: Tensor
    decision: Tensor
    early: Tensor
    early_draws: Tensor
    target: Tensor
    left_out: Tensor


_PER_SAMPLE = ("target", "left_out")
"""The fields of `Certificates` without a column per radius."""


def certify(
    model: Model,
    batch: Batch,
    mask: Tensor,
    features: Any = Patches(),  # noqa: B008 (frozen)
    radii: Sequence[int] | Literal["all"] = (1, 5, 10),
    delta: float = 0.1,
    epsilon: float = 0.1,
    method: Method = "clopper-pearson",
    *,
    added: Added = "at most",
    mode: Mode = "estimate",
    threshold: float = 0.9,
    simultaneous: bool = False,
    agreement: Agreement = "argmax",
    margin: float | None = None,
    fill: Fill = "zero",
    target: Tensor | None = None,
    budget: int | None = None,
    seed: int = 0,
) -> Certificates:
    """Certificates for the explanations `mask` (B, n) boolean, true where a feature of `features` is selected.

    radii         numbers of features that are added, "at most" or "exactly" so many: the rate is τ_r or τ_{=r}. "all" has
                  a column for r = 1, 2, …; radii beyond m repeat the last
    mode          "estimate": the rate is within ± epsilon of the truth with probability 1 − delta, and so is low ≤ rate.
                  "decide": is the rate at least `threshold`? The decision is wrong with probability at most delta; it
                  stays open when the rate is too near the threshold for as many draws as an estimate would take.
                  "hard": stop at the first disagreement; without any, a rate of 1 − epsilon is certified, which is less
                  than hard stability unless `exact`
    method        for "estimate": "clopper-pearson" (exact, stops early), "hoeffding" (the paper's) or "betting" (holds
                  at all times at once)
    simultaneous  the statements hold for all radii of a sample at once, not only for each of them
    agreement     "argmax": the same class is predicted on x ⊙ β as on x ⊙ α, or as `target` (B,) says. "margin": no class
                  probability differs by more than `margin`, by default half the gap between the two largest on x ⊙ α,
                  which implies the same class
    fill          what replaces features that are left out: "zero" after normalisation (the paper), their "mean", a
                  "blur" or a number in the data's units
    budget        up to so many supersets are all tried, by default the most draws that the mode may need; up to ten times
                  as many draws are drawn without replacement where a rate is estimated by "clopper-pearson"

    >>> from heatproof.features import Pixels
    >>> model = Model(torch.nn.Linear(6, 2))
    >>> batch, mask = Batch(("a",), torch.rand(1, 6)), torch.tensor([[True, True, False, False, False, False]])
    >>> result = certify(model, batch, mask, Pixels(), radii=(1, 3))
    >>> result.exact.tolist(), result.passes.tolist()
    ([[True, True]], [[4, 10]])
    """
    _check_settings(delta, epsilon, threshold, method, mode, agreement, margin, fill, target)
    _check_choice("added", added, get_args(Added))
    _check_budget(budget)
    _check_radii(radii)
    problem = Problem(model, batch, mask, features, fill, agreement, margin, target, seed)
    goal = _Goal(added, mode, method, threshold, epsilon, delta, simultaneous, budget)
    return _certificates(problem, radii, goal)


@dataclass(frozen=True)
class _Goal:
    """What is to be shown of the rates, with which error; the settings of `certify` of the same names.

    `delta` is the probability of an error, at one radius or at all of them at once.
    """

    added: Added
    mode: Mode
    method: Method
    threshold: float
    epsilon: float
    delta: float
    simultaneous: bool
    budget: int | None

    @property
    def rule(self) -> Rule:
        """When to stop drawing."""
        if self.mode == "estimate":
            return estimate_rule(self.epsilon, self.delta, self.method)
        if self.mode == "hard":
            return hard_rule(self.epsilon, self.delta)
        # As many draws as an estimate would take, and enough that draws which all agree decide.
        for_estimate = sample_size(self.epsilon, self.delta)
        all_agree = zero_failure_sample_size(1 - self.threshold, self.delta) + 1
        return decide_rule(self.threshold, self.delta, max(for_estimate, all_agree))

    @property
    def most_enumerated(self) -> int:
        """Up to how many supersets are tried one by one."""
        return self.rule.looks[-1] if self.budget is None else self.budget

    @property
    def most_shuffled(self) -> int:
        """Up to how many supersets are drawn without replacement; the rules for that are for one method alone."""
        if self.mode != "estimate" or self.method != "clopper-pearson":
            return 0
        return _SMALL * self.rule.looks[-1]


def _certificates(
    problem: Problem, radii: Sequence[int] | Literal["all"], goal: _Goal
) -> Certificates:
    """Return how often the prediction stays when up to r features are added to an explanation, with bounds.

    There is an entry for every sample of the `problem` and every radius r, in the order of `radii`. `goal` has the
    settings of `certify`. Samples are certified in chunks, so that their draws fit into memory.
    """
    if radii == "all":
        radii = range(1, int(problem.left_out.max()) + 1)
    requested = torch.tensor([int(radius) for radius in radii], dtype=torch.int64)

    # A pass is charged to the smallest radius that needs it, so radii are certified in ascending order.
    ascending, order = requested.sort(stable=True)
    capped = ascending.minimum(problem.left_out[:, None])
    result = _undecided(problem, torch.arange(len(capped)), ascending)
    for level, rows in _rows_by_level(capped, goal):
        goal_of_rows = replace(goal, delta=level)
        for chunk in torch.split(rows, _rows_at_once(capped, goal_of_rows.rule)):
            certificates = _undecided(problem, chunk, ascending)
            _certify_rows(problem, chunk, capped[chunk], goal_of_rows, certificates)
            for field in fields(Certificates):
                getattr(result, field.name)[chunk] = getattr(certificates, field.name)

    as_requested = order.argsort()
    columns = {}
    for field in fields(Certificates):
        if field.name not in _PER_SAMPLE:
            columns[field.name] = getattr(result, field.name)[:, as_requested]
    return replace(result, **columns)


def _undecided(problem: Problem, rows: Tensor, radii: Tensor) -> Certificates:
    """Return certificates of the samples `rows` (B,) at `radii` (R,) that say nothing yet, to be filled in."""
    shape = (len(rows), len(radii))
    rate, low, high, early = (torch.zeros(shape, dtype=torch.float64) for _ in range(4))
    passes, samples, early_draws = (torch.zeros(shape, dtype=torch.int64) for _ in range(3))
    return Certificates(
        radii=radii.repeat(len(rows), 1),
        rate=rate,
        low=low,
        high=high,
        exact=torch.zeros(shape, dtype=torch.bool),
        passes=passes,
        samples=samples,
        decision=torch.full(shape, OPEN),
        early=early,
        early_draws=early_draws,
        target=problem.predicted.cpu()[rows],
        left_out=problem.left_out[rows],
    )


def _rows_by_level(radii: Tensor, goal: _Goal) -> Iterator[tuple[float, Tensor]]:
    """Yield the error probability of each statement about a radius, with the indices of the samples that it is for.

    It is the goal's delta, or, if the statements must hold for all radii of a sample at once, delta divided by the number
    of its different radii (Bonferroni). `radii` (B, R) are cut off at the number of features that can be added, so
    samples with few features have fewer different radii. r = 0 needs no statement.
    """
    statements = torch.ones(len(radii), dtype=torch.int64)
    if goal.simultaneous:
        for row, radii_of_sample in enumerate(radii.tolist()):
            statements[row] = len(set(radii_of_sample) - {0})
    for count in sorted(set(statements.tolist())):
        yield goal.delta / max(1, count), (statements == count).nonzero().flatten()


def _rows_at_once(radii: Tensor, rule: Rule) -> int:
    """Return how many samples are certified together, so that their draws fit into memory."""
    strata = int(radii.max()) + 1
    numbers_per_sample = radii.shape[1] * (rule.looks[-1] + strata)
    return max(1, _NUMBERS_AT_ONCE // max(1, numbers_per_sample))


def _certify_rows(
    problem: Problem, rows: Tensor, radii: Tensor, goal: _Goal, result: Certificates
) -> None:
    """Fill in `result`, the certificates of the samples numbered `rows` (B,) at ascending `radii` (B, R).

    A superset is an explanation with up to r more features. Where there are few, all are tried; where there are somewhat
    more, they are drawn without replacement; otherwise they are drawn independently.
    """
    sizes = _numbers_of_supersets(radii, result.left_out, goal.added)
    is_exact = sizes <= goal.most_enumerated
    is_shuffled = ~is_exact & (sizes > goal.rule.looks[-1]) & (sizes <= goal.most_shuffled)
    is_drawn = ~is_exact & ~is_shuffled

    _try_all(problem, rows, radii, is_exact, goal, result)
    _draw_without_replacement(problem, rows, radii, is_shuffled, goal, result)
    if bool(is_drawn.any()):
        _draw_independently(problem, rows, radii, is_drawn, goal, result)

    # Nothing can be said of a sample for which some masked input had scores that are not finite.
    not_finite = problem.not_finite.cpu()[rows] > 0
    result.decision[not_finite] = OPEN
    for values in (result.rate, result.low, result.high, result.early):
        values[not_finite] = torch.nan


def _numbers_of_supersets(radii: Tensor, left_out: Tensor, added: Added) -> Tensor:
    """Return in how many ways up to r (or `added` "exactly" r) of m features can be added, (B, R) int64.

    `radii` (B, R) hold r and `left_out` (B,) holds m. Numbers that do not fit into 64 bits are cut off.
    """
    sizes = torch.zeros_like(radii)
    for m in set(left_out.tolist()):
        has_m = left_out == m
        # Radii are cut off at m, so all samples with this m have the same.
        radii_of_m = radii[has_m][0].tolist()
        sizes_of_m = [min(supersets(m, radius, added), _HUGE) for radius in radii_of_m]
        sizes[has_m] = torch.tensor(sizes_of_m)
    return sizes


# ---- all supersets ---------------------------------------------------------------------------------------------------


def _try_all(
    problem: Problem,
    rows: Tensor,
    radii: Tensor,
    is_exact: Tensor,
    goal: _Goal,
    result: Certificates,
) -> None:
    """Fill in the entries `is_exact` (B, R) of `result` with the exact rate, by trying all supersets of the explanation.

    The supersets with exactly k more features are a stratum k. A radius r consists of strata, which other radii of the
    sample share, so each stratum is tried once.
    """
    strata_to_try: list[set[int]] = [set() for _ in rows]
    for row, column in is_exact.nonzero().tolist():
        # Columns are in ascending order, so a stratum is paid by the smallest radius that needs it. α itself, which is
        # the stratum 0, costs no pass.
        left_out, radius = int(result.left_out[row]), int(radii[row, column])
        new = set(strata_of(radius, goal.added)) - strata_to_try[row] - {0}
        strata_to_try[row] |= new
        result.passes[row, column] = sum(math.comb(left_out, stratum) for stratum in new)

    agreeing = _count_agreeing(problem, rows, strata_to_try)
    for row, column in is_exact.nonzero().tolist():
        left_out, radius = int(result.left_out[row]), int(radii[row, column])
        strata = strata_of(radius, goal.added)
        size = supersets(left_out, radius, goal.added)
        agreed = int(agreeing[row, strata.start : strata.stop].sum())
        result.samples[row, column] = size
        result.rate[row, column] = agreed / size

    result.exact[is_exact] = True
    for values in (result.low, result.high, result.early):
        values[is_exact] = result.rate[is_exact]
    if goal.mode != "estimate":
        least = goal.threshold if goal.mode == "decide" else 1.0
        answer = torch.where(result.rate >= least, YES, NO)
        result.decision[is_exact] = answer[is_exact]


def _count_agreeing(problem: Problem, rows: Tensor, strata: Sequence[set[int]]) -> Tensor:
    """Return on how many supersets with exactly k more features the prediction stays, (B, 1 + the largest k).

    `rows` (B,) are the numbers of the samples, and `strata` has the values of k to try for each of them; other entries
    are 0. Column 0 is the explanation itself, which is not tried again.
    """
    largest = max(max(of_sample, default=0) for of_sample in strata)
    counts = torch.zeros(len(rows), largest + 1, dtype=torch.int64)
    counts[:, 0] = problem.agrees.cpu()[rows]
    sets, sizes, owners = [], [], []
    for position, row in enumerate(rows.tolist()):
        if not strata[position]:
            continue
        masks, added = all_supersets(
            problem.mask[row].cpu(), problem.free[row].cpu(), sorted(strata[position])
        )
        sets.append(masks)
        sizes.append(added)
        owners.append(torch.full((len(masks),), position))
    if not sets:
        return counts

    # The supersets of all samples are tried together, so that batches of the model are full.
    owner, size = torch.cat(owners), torch.cat(sizes)
    agreed = problem.judge_sets(rows[owner].to(problem.key.device), torch.cat(sets))
    # Count the agreements of each sample and size.
    counts.index_put_((owner, size), agreed.to(torch.int64), accumulate=True)
    return counts


# ---- draws -----------------------------------------------------------------------------------------------------------


def _draw_without_replacement(
    problem: Problem,
    rows: Tensor,
    radii: Tensor,
    is_shuffled: Tensor,
    goal: _Goal,
    result: Certificates,
) -> None:
    """Fill in the entries `is_shuffled` (B, R) of `result` from supersets of the explanations drawn without replacement."""
    entries = []
    for row, column in is_shuffled.nonzero().tolist():
        strata = strata_of(int(radii[row, column]), goal.added)
        entries.append(
            ShuffledSupersets.of(problem, int(rows[row]), strata, goal.epsilon, goal.delta)
        )
    draw_until_stopped(problem, entries)
    for (row, column), drawn in zip(is_shuffled.nonzero().tolist(), entries, strict=True):
        result.rate[row, column] = drawn.agreed / drawn.draws
        result.low[row, column], result.high[row, column] = drawn.bounds
        result.samples[row, column] = drawn.draws
        result.passes[row, column] = drawn.passes
        result.early[row, column], result.early_draws[row, column] = drawn.first_look


def _draw_independently(
    problem: Problem,
    rows: Tensor,
    radii: Tensor,
    is_drawn: Tensor,
    goal: _Goal,
    result: Certificates,
) -> None:
    """Fill in the entries `is_drawn` (B, R) of `result` from random supersets of the explanations, until a rule says stop.

    A draw for radius r first picks how many features are added, the stratum, and then takes the next random superset of
    that stratum. Supersets of a stratum do not depend on r, so all radii of a sample share them and their outcomes.
    """
    rule = goal.rule
    samples = rows.to(problem.key.device)
    strata = int(radii.max()) + 1
    stratum_of_draw = drawn_strata(
        problem.key[samples],
        result.left_out.to(samples.device),
        radii.to(samples.device),
        rule.looks[-1],
        goal.added,
    ).cpu()  # (B, R, draws)

    # outcomes[b, k, i] says whether superset i of stratum k agrees, as far as it was tried; stratum 0 holds α alone.
    outcomes = torch.zeros(len(rows), strata, rule.looks[-1], dtype=torch.bool)
    outcomes[:, 0] = problem.agrees.cpu()[rows][:, None]
    tried = torch.zeros(len(rows), strata, dtype=torch.int64)

    active = is_drawn.clone()
    for look, draws in enumerate(rule.looks):
        # How many supersets of each stratum the draws so far take at each radius, (B, R, strata).
        needed = _count_per_stratum(stratum_of_draw[..., :draws], strata)

        # How many must have been tried after each radius, (B, 1 + R, strata), if radii are served one after another.
        # Each radius is charged with what it adds, without stratum 0, the explanation itself.
        of_active = torch.where(active[..., None], needed, 0)
        tried_up_to = torch.cat([tried[:, None], of_active], 1).cummax(1).values
        new_passes = tried_up_to.diff(dim=1)[..., 1:].sum(2)
        result.passes.add_(new_passes)
        _try_supersets(problem, samples, tried, tried_up_to[:, -1], outcomes)
        tried = tried_up_to[:, -1]

        # Agreements among the first i supersets of each stratum, from i = 0 on; then looked up at the numbers needed.
        agreed_among_first = torch.nn.functional.pad(outcomes.to(torch.int64).cumsum(2), (1, 0))
        agreed = agreed_among_first.gather(2, needed.mT).sum(1)  # (B, R)
        if look == 0:
            result.early[active] = agreed[active].double() / draws
            result.early_draws[active] = draws

        stopped = active & rule.stop[look][agreed]
        result.rate[stopped] = agreed[stopped].double() / draws
        result.low[stopped] = rule.low[look][agreed][stopped]
        result.high[stopped] = rule.high[look][agreed][stopped]
        result.decision[stopped] = rule.decision[look][agreed][stopped]
        result.samples[stopped] = draws
        active &= ~stopped
        if not bool(active.any()):
            break


def _count_per_stratum(stratum_of_draw: Tensor, strata: int) -> Tensor:
    """Return how many draws fall into each stratum, (B, R, strata), from the stratum of each draw (B, R, draws)."""
    counts = torch.zeros(*stratum_of_draw.shape[:2], strata, dtype=torch.int64)
    # Each draw adds 1 to the count of its stratum.
    return counts.scatter_add_(2, stratum_of_draw, torch.ones_like(stratum_of_draw))


def _try_supersets(
    problem: Problem, samples: Tensor, tried: Tensor, needed: Tensor, outcomes: Tensor
) -> None:
    """Fill in `outcomes`: whether the prediction stays on random supersets of the explanations.

    Supersets with exactly k more features are a stratum k. Each sample and stratum has a sequence of random supersets, of
    which `tried` (B, strata) have an outcome and `needed` (B, strata) must have one. outcomes[b, k, i] is that of number i.
    All that are missing are tried in one go, so that batches of the model are full.
    """
    new = (needed - tried).clamp(min=0)
    new[:, 0] = 0  # stratum 0 is the explanation itself, whose outcome is known
    sample, stratum = new.nonzero(as_tuple=True)
    count = new[sample, stratum]
    # One row per superset to try: its sample, its stratum, and its number in their sequence.
    owner = sample.repeat_interleave(count)
    size = stratum.repeat_interleave(count)
    first_row_of_sequence = (count.cumsum(0) - count).repeat_interleave(count)
    position = torch.arange(len(owner)) - first_row_of_sequence  # 0, 1, … within each sequence
    number = tried[owner, size] + position

    device = samples.device
    row = samples[owner.to(device)]
    size_on_device, number_on_device = size.to(device), number.to(device)

    def masks_of_rows(rows: Tensor) -> Tensor:
        """Return the explanations with random features added, for some of the rows."""
        samples_of_rows = row[rows]
        return random_supersets(
            problem.key[samples_of_rows],
            size_on_device[rows],
            number_on_device[rows],
            problem.mask[samples_of_rows],
            problem.free[samples_of_rows],
        )

    outcomes[owner, size, number] = problem.judge(row, masks_of_rows).cpu()


# ---- settings --------------------------------------------------------------------------------------------------------


def _check_settings(
    delta: float,
    epsilon: float,
    threshold: float,
    method: Method,
    mode: Mode,
    agreement: Agreement,
    margin: float | None,
    fill: Fill,
    target: Tensor | None,
) -> None:
    """Refuse settings that are out of range or contradict each other."""
    check_share("delta", delta)
    check_share("epsilon", epsilon)
    check_share("threshold", threshold)
    _check_choice("method", method, get_args(Method))
    _check_choice("mode", mode, get_args(Mode))
    _check_choice("agreement", agreement, get_args(Agreement))
    if mode != "estimate" and method == "hoeffding":
        raise UserError(
            f"method='hoeffding' is for mode='estimate'; mode={mode!r} has its own exact rule"
        )
    if margin is not None and (agreement != "margin" or not margin >= 0):
        raise UserError(f"margin={margin!r} needs agreement='margin' and a number of at least 0")
    if target is not None and agreement != "argmax":
        raise UserError("target is for agreement='argmax'; a margin compares with x ⊙ α itself")
    if isinstance(fill, float) and not math.isfinite(fill):
        raise UserError(f"fill must be finite, got {fill!r}; usual is 'zero'")


def _check_choice(parameter: str, name: str, choices: Sequence[str]) -> None:
    """Refuse a name that is none of the choices."""
    if name not in choices:
        raise unknown(parameter, name, choices)


def _check_budget(budget: int | None) -> None:
    """Refuse a budget that is no whole number of at least 1; None stands for the usual one."""
    if budget is None:
        return
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise UserError(f"budget must be a whole number of at least 1, got {budget!r}")


def _check_radii(radii: Any) -> None:
    """Refuse radii that are neither "all" nor whole numbers of at least 0."""
    if isinstance(radii, str):
        if radii != "all":
            raise unknown("radii", radii, ("all",))
        return
    if not isinstance(radii, Sequence):
        raise UserError(f"radii must be a sequence such as (1, 5, 10), or 'all', got {radii!r}")
    if not radii:
        raise UserError("radii is empty; give at least one, for instance (1, 5, 10), or 'all'")
    for radius in radii:
        if (
            isinstance(radius, bool)
            or not isinstance(radius, int | float)
            or radius < 0
            or radius != int(radius)
        ):
            raise UserError(f"radii must be whole numbers of features, 0 or more, got {radius!r}")

"""Soft stability: how often the prediction survives when features are added to an explanation, with a guarantee.

For an explanation α of a sample x, τ_r is the share of the supersets β ∈ Δ_r of α with at most r more features on which
the model agrees with itself: f(x ⊙ β) ≅ f(x ⊙ α), where x ⊙ β keeps the features β and fills the others.
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
    all_supersets,
    drawn_strata,
    exact_radius,
    random_supersets,
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

    mode "estimate": the rate is within ± epsilon of τ_r with probability 1 − delta, and so is low ≤ τ_r. `method` is
    "clopper-pearson" (exact, stops early), "hoeffding" (the paper's) or "betting" (holds at all times at once).
    mode "decide": is τ_r ≥ threshold? The decision is wrong with probability at most delta; it stays open when τ_r is
    too near the threshold for as many draws as an estimate would take. mode "hard": stop at the first disagreement;
    without any, τ_r ≥ 1 − epsilon is certified, which is less than hard stability unless `exact`.

    Where |Δ_r| is at most `budget`, by default the most draws that the mode may need, all supersets are tried; up to
    ten times as many are drawn without replacement where a rate is estimated by "clopper-pearson". With
    radii="all" there is one column for each r = 1, 2, …; radii beyond m repeat the last. The statements hold for each
    radius, or, if `simultaneous`, for all radii of a sample at once.

    agreement "argmax": the same class is predicted on x ⊙ β as on x ⊙ α, or as `target` (B,) says. "margin": no class
    probability differs by more than `margin`, by default half the gap between the two largest on x ⊙ α, which
    implies the same class. `fill` replaces features that are left out: "zero" after normalisation (the paper), their
    "mean", a "blur" or a number in the data's units.

    >>> from heatproof.features import Pixels
    >>> from heatproof.models import Model
    >>> model = Model(torch.nn.Linear(6, 2))
    >>> batch, mask = Batch(("a",), torch.rand(1, 6)), torch.tensor([[True, True, False, False, False, False]])
    >>> result = certify(model, batch, mask, Pixels(), radii=(1, 3))
    >>> result.exact.tolist(), result.passes.tolist()
    ([[True, True]], [[4, 10]])
    """
    _check_settings(delta, epsilon, threshold, method, mode, agreement, margin, fill, target)
    _check_budget(budget)
    _check_radii(radii)

    problem = Problem(model, batch, mask, features, fill, agreement, margin, target, seed)
    if radii == "all":
        radii = range(1, int(problem.left_out.max()) + 1)
    requested = torch.tensor([int(radius) for radius in radii], dtype=torch.int64)

    # A pass is charged to the smallest radius that needs it, so radii are certified in ascending order.
    ascending, order = requested.sort(stable=True)
    capped = ascending.minimum(problem.left_out[:, None])
    all_rows = torch.arange(len(batch))
    result = _undecided(problem, all_rows, ascending)
    for level, rows in _rows_by_level(capped, delta, simultaneous):
        rule = _stopping_rule(mode, method, epsilon, level, threshold)
        goal = _Goal(
            mode=mode,
            threshold=threshold,
            epsilon=epsilon,
            delta=level,
            rule=rule,
            most_enumerated=rule.looks[-1] if budget is None else budget,
            without_replacement=mode == "estimate" and method == "clopper-pearson",
        )
        for chunk in torch.split(rows, _rows_at_once(capped, rule)):
            certificates = _undecided(problem, chunk, ascending)
            _certify_rows(problem, chunk, capped[chunk], goal, certificates)
            for field in fields(Certificates):
                getattr(result, field.name)[chunk] = getattr(certificates, field.name)

    as_requested = order.argsort()
    columns = {
        field.name: getattr(result, field.name)[:, as_requested]
        for field in fields(Certificates)
        if field.name not in _PER_SAMPLE
    }
    return replace(result, **columns)


@dataclass(frozen=True)
class _Goal:
    """What to show of a rate, with which error, and how.

    `delta` is the probability of an error at one radius. Up to `most_enumerated` supersets are tried one by one;
    otherwise `rule` says when to stop drawing. `without_replacement` allows such draws where supersets are few.
    """

    mode: Mode
    threshold: float
    epsilon: float
    delta: float
    rule: Rule
    most_enumerated: int
    without_replacement: bool


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


def _rows_by_level(
    radii: Tensor, delta: float, simultaneous: bool
) -> Iterator[tuple[float, Tensor]]:
    """Yield the probability of an error that each radius may have, and the samples that it holds for.

    Statements about all radii of a sample at once share delta equally among its different radii (Bonferroni). Radii
    beyond m are the same radius, so samples with fewer features have fewer statements; r = 0 needs none.
    """
    statements = torch.ones(len(radii), dtype=torch.int64)
    if simultaneous:
        for row, radii_of_sample in enumerate(radii.tolist()):
            statements[row] = len(set(radii_of_sample) - {0})
    for count in sorted(set(statements.tolist())):
        yield delta / max(1, count), (statements == count).nonzero().flatten()


def _rows_at_once(radii: Tensor, rule: Rule) -> int:
    """Return how many samples are certified together, so that their draws fit into memory."""
    strata = int(radii.max()) + 1
    numbers_per_sample = radii.shape[1] * (rule.looks[-1] + strata)
    return max(1, _NUMBERS_AT_ONCE // max(1, numbers_per_sample))


def _certify_rows(
    problem: Problem, rows: Tensor, radii: Tensor, goal: _Goal, result: Certificates
) -> None:
    """Fill in the certificates of the samples `rows` (B,) at ascending `radii` (B, R), each at most m.

    Few supersets are all tried; if there are somewhat more, they are drawn without replacement, and otherwise
    independently.
    """
    left_out = result.left_out
    most_draws = goal.rule.looks[-1]
    is_exact = _has_at_most(goal.most_enumerated, radii, left_out)
    is_shuffled = torch.zeros_like(is_exact)
    if goal.without_replacement:
        more_than_draws = ~_has_at_most(most_draws, radii, left_out)
        few = _has_at_most(_SMALL * most_draws, radii, left_out)
        is_shuffled = ~is_exact & more_than_draws & few
    is_drawn = ~is_exact & ~is_shuffled

    _try_all(problem, rows, radii, is_exact, goal, result)
    _draw_without_replacement(problem, rows, radii, is_shuffled, goal, result)
    if bool(is_drawn.any()):
        _draw_independently(problem, rows, radii, is_drawn, goal.rule, result)

    # Nothing can be said of a sample for which some masked input had scores that are not finite.
    not_finite = problem.not_finite.cpu()[rows] > 0
    result.decision[not_finite] = OPEN
    for values in (result.rate, result.low, result.high, result.early):
        values[not_finite] = torch.nan


def _has_at_most(most: int, radii: Tensor, left_out: Tensor) -> Tensor:
    """Whether Δ_r has at most `most` elements, (B, R) boolean, for radii (B, R) and m (B,)."""
    largest_radius = torch.tensor([exact_radius(int(m), most) for m in left_out])
    return radii <= largest_radius[:, None]


# ---- all supersets ---------------------------------------------------------------------------------------------------


def _try_all(
    problem: Problem,
    rows: Tensor,
    radii: Tensor,
    is_exact: Tensor,
    goal: _Goal,
    result: Certificates,
) -> None:
    """Fill in the entries `is_exact` (B, R) with the exact rate over all supersets."""
    largest_radius = torch.where(is_exact, radii, 0).amax(1)
    agreeing = _count_agreeing(problem, rows, largest_radius)
    mask_agrees = problem.agrees.cpu()[rows]
    for row, column in is_exact.nonzero().tolist():
        radius = int(radii[row, column])
        size = supersets(int(result.left_out[row]), radius)
        agreed = float(mask_agrees[row]) + float(agreeing[row, 1 : radius + 1].sum())
        # The next smaller radius has paid for its supersets, which are among these; α itself costs no pass.
        paid = max(1, int(result.samples[row, column - 1])) if column else 1
        result.samples[row, column] = size
        result.rate[row, column] = agreed / size
        result.passes[row, column] = max(0, size - paid)

    result.exact[is_exact] = True
    for values in (result.low, result.high, result.early):
        values[is_exact] = result.rate[is_exact]
    if goal.mode != "estimate":
        least = goal.threshold if goal.mode == "decide" else 1.0
        answer = torch.where(result.rate >= least, YES, NO)
        result.decision[is_exact] = answer[is_exact]


def _count_agreeing(problem: Problem, rows: Tensor, radius: Tensor) -> Tensor:
    """Return how many supersets with exactly k more features agree, (B, 1 + the largest radius), k up to `radius` (B,).

    The column of k = 0 stays 0: α itself is not tried again.
    """
    counts = torch.zeros(len(rows), int(radius.max()) + 1, dtype=torch.int64)
    sets, sizes, owners = [], [], []
    for position, row in enumerate(rows.tolist()):
        if radius[position] == 0:
            continue
        masks, added = all_supersets(
            problem.mask[row].cpu(), problem.free[row].cpu(), int(radius[position])
        )
        sets.append(masks)
        sizes.append(added)
        owners.append(torch.full((len(masks),), position))
    if not sets:
        return counts

    # All samples are judged together, so that batches of the model are full.
    owner, size = torch.cat(owners), torch.cat(sizes)
    agreed = problem.judge_sets(rows[owner].to(problem.key.device), torch.cat(sets))
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
    """Fill in the entries `is_shuffled` (B, R) from draws without replacement."""
    entries = []
    for row, column in is_shuffled.nonzero().tolist():
        radius = int(radii[row, column])
        entries.append(
            ShuffledSupersets.of(problem, int(rows[row]), radius, goal.epsilon, goal.delta)
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
    rule: Rule,
    result: Certificates,
) -> None:
    """Fill in the entries `is_drawn` (B, R): draw from each Δ_r, look by look, until the rule says stop.

    The i-th draw from Δ_r first picks a stratum (how many features are added) and then takes the next superset of that
    stratum. Supersets of a stratum do not depend on r, so all radii of a sample share them and their outcomes.
    """
    samples = rows.to(problem.key.device)
    strata = int(radii.max()) + 1
    most_draws = rule.looks[-1]
    left_out = result.left_out.to(samples.device)
    stratum_of_draw = drawn_strata(
        problem.key[samples], left_out, radii.to(samples.device), most_draws
    ).cpu()  # (B, R, draws)

    # outcomes[b, k, i] says whether superset i of stratum k agrees, as far as it was tried; stratum 0 holds α alone.
    outcomes = torch.zeros(len(rows), strata, most_draws, dtype=torch.bool)
    outcomes[:, 0] = problem.agrees.cpu()[rows][:, None]
    tried = torch.zeros(len(rows), strata, dtype=torch.int64)

    active = is_drawn.clone()
    for look, draws in enumerate(rule.looks):
        # How many supersets of each stratum the first draws from Δ_r take, (B, R, strata).
        needed = _count_per_stratum(stratum_of_draw[..., :draws], strata)

        # The number tried grows from radius to radius; each radius is charged with what it adds.
        of_active = torch.where(active[..., None], needed, 0)
        tried_up_to = torch.cat([tried[:, None], of_active], 1).cummax(1).values
        result.passes.add_(tried_up_to.diff(dim=1)[..., 1:].sum(2))
        _try_supersets(problem, samples, tried, tried_up_to[:, -1], outcomes)
        tried = tried_up_to[:, -1]

        agreed_up_to = torch.nn.functional.pad(outcomes.to(torch.int64).cumsum(2), (1, 0))
        agreed = agreed_up_to.gather(2, needed.mT).sum(1)  # (B, R)
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
    return counts.scatter_add_(2, stratum_of_draw, torch.ones_like(stratum_of_draw))


def _try_supersets(
    problem: Problem, samples: Tensor, tried: Tensor, needed: Tensor, outcomes: Tensor
) -> None:
    """Fill in the outcomes of the supersets number `tried` to `needed` − 1 (B, strata) of every stratum but 0.

    Those of all samples and strata are tried in one go, so that batches of the model are full.
    """
    new = (needed - tried).clamp(min=0)
    new[:, 0] = 0  # stratum 0 is α itself, whose outcome is known
    sample, stratum = new.nonzero(as_tuple=True)
    count = new[sample, stratum]
    owner = sample.repeat_interleave(count)
    size = stratum.repeat_interleave(count)
    # Number the new supersets of each sample and stratum 0, 1, …, and continue after those already tried.
    start_of_group = (count.cumsum(0) - count).repeat_interleave(count)
    number = tried[owner, size] + torch.arange(len(owner)) - start_of_group

    device = samples.device
    row = samples[owner.to(device)]
    size_on_device, number_on_device = size.to(device), number.to(device)

    def build(some: Tensor) -> Tensor:
        """Return the masks of some rows: the explanation with random features added."""
        rows = row[some]
        return random_supersets(
            problem.key[rows],
            size_on_device[some],
            number_on_device[some],
            problem.mask[rows],
            problem.free[rows],
        )

    outcomes[owner, size, number] = problem.judge(row, build).cpu()


# ---- settings --------------------------------------------------------------------------------------------------------


def _stopping_rule(
    mode: Mode, method: Method, epsilon: float, delta: float, threshold: float
) -> Rule:
    """Return when to stop drawing in a mode, if a statement may be wrong with probability `delta`."""
    if mode == "estimate":
        return estimate_rule(epsilon, delta, method)
    if mode == "hard":
        return hard_rule(epsilon, delta)
    # As many draws as an estimate would take, and enough that draws which all agree decide.
    most_draws = max(
        sample_size(epsilon, delta), zero_failure_sample_size(1 - threshold, delta) + 1
    )
    return decide_rule(threshold, delta, most_draws)


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
    for parameter, name, choices in (
        ("method", method, get_args(Method)),
        ("mode", mode, get_args(Mode)),
        ("agreement", agreement, get_args(Agreement)),
    ):
        if name not in choices:
            raise unknown(parameter, name, choices)
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

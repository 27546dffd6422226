"""Soft stability: how often the prediction survives when features are added to an explanation, with a guarantee.

For an explanation α of a sample x, τ_r is the share of the supersets β ∈ Δ_r of α with at most r more features on which
the model agrees with itself: f(x ⊙ β) ≅ f(x ⊙ α), where x ⊙ β keeps the features β and fills the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

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
from heatproof.axes.certificate.shuffled import without_replacement, write
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
_SMALL = 10
"""Supersets that are at most so many times the draws are drawn without replacement: of more it would gain nothing."""


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
    for number, value in (("delta", delta), ("epsilon", epsilon), ("threshold", threshold)):
        check_share(number, value)
    for what, name, choices in (
        ("method", method, ("clopper-pearson", "hoeffding", "betting")),
        ("mode", mode, ("estimate", "decide", "hard")),
        ("agreement", agreement, ("argmax", "margin")),
    ):
        if name not in choices:
            raise unknown(what, name, choices)
    if mode != "estimate" and method == "hoeffding":
        raise UserError(
            f"method='hoeffding' is for mode='estimate'; mode={mode!r} has its own exact rule"
        )
    if margin is not None and (agreement != "margin" or not margin >= 0):
        raise UserError(f"margin={margin!r} needs agreement='margin' and a number of at least 0")
    if target is not None and agreement != "argmax":
        raise UserError("target is for agreement='argmax'; a margin compares with x ⊙ α itself")
    if budget is not None and (
        isinstance(budget, bool) or not isinstance(budget, int) or budget < 1
    ):
        raise UserError(f"budget must be a whole number of at least 1, got {budget!r}")
    if isinstance(fill, float) and not math.isfinite(fill):
        raise UserError(f"fill must be finite, got {fill!r}; usual is 'zero'")
    _check_radii(radii)
    problem = Problem(model, batch, mask, features, fill, agreement, margin, target, seed)
    whole = range(1, int(problem.left_out.max()) + 1) if radii == "all" else radii
    listed = torch.tensor([int(r) for r in whole], dtype=torch.int64)
    asked = listed.expand(len(batch), -1)
    order = asked[0].argsort(stable=True) if asked.shape[1] else torch.arange(0)
    capped = asked[:, order].minimum(problem.left_out[:, None])
    shares = [len(set(row) - {0}) if simultaneous else 1 for row in capped.tolist()]
    parts: list[Certificates] = []
    done: list[int] = []
    for share in sorted(set(shares)):
        level = delta / max(1, share)
        rule, most = _rule(mode, method, epsilon, level, threshold, budget)
        rows = [i for i, radii_of_sample in enumerate(shares) if radii_of_sample == share]
        size = max(
            1,
            _NUMBERS_AT_ONCE // max(1, capped.shape[1] * (rule.looks[-1] + int(capped.max()) + 1)),
        )
        for start in range(0, len(rows), size):
            some = torch.tensor(rows[start : start + size])
            small = (epsilon, level) if mode == "estimate" and method == "clopper-pearson" else None
            parts.append(
                _certify(problem, some, asked[:, order], capped, rule, most, mode, threshold, small)
            )
            done += some.tolist()
    back = torch.tensor(done).argsort()
    columns = order.argsort()
    joined = {
        f.name: torch.cat([getattr(part, f.name) for part in parts])[back]
        for f in fields(Certificates)
    }
    return Certificates(**{name: v[:, columns] if v.ndim == 2 else v for name, v in joined.items()})


def _certify(
    problem: Problem,
    rows: Tensor,
    asked: Tensor,
    capped: Tensor,
    rule: Rule,
    most: int,
    mode: Mode,
    threshold: float,
    small: tuple[float, float] | None,
) -> Certificates:
    """Certificates of the samples `rows`; asked and capped (B, R) are ascending radii, the latter at most m.

    `small` are ε and δ where few supersets may be drawn without replacement.
    """
    device = problem.key.device
    here, radii, m = rows.to(device), capped[rows], problem.left_out[rows]
    strata = int(capped.max())
    trivial = problem.agrees[here].cpu()
    within = torch.tensor([exact_radius(int(left), most) for left in m])
    known = radii <= within[:, None]
    rate, low, high, early = (torch.zeros(radii.shape, dtype=torch.float64) for _ in range(4))
    passes, samples, early_draws = (torch.zeros(radii.shape, dtype=torch.int64) for _ in range(3))
    decision = torch.full(radii.shape, OPEN)
    hits = _enumerate(problem, here, torch.where(known, radii, 0).amax(1), strata)
    for i, j in known.nonzero().tolist():
        samples[i, j] = size = supersets(int(m[i]), int(radii[i, j]))
        rate[i, j] = (float(trivial[i]) + float(hits[i, 1 : int(radii[i, j]) + 1].sum())) / size
        passes[i, j] = max(0, size - max(1, int(samples[i, :j].amax()) if j else 1))
    low[known], high[known], early[known] = rate[known], rate[known], rate[known]
    if mode != "estimate":
        good = rate >= threshold if mode == "decide" else rate == 1
        decision[known] = torch.where(good, YES, NO)[known]

    finite = ~known & _are_few(radii, m, rule.looks[-1]) & (small is not None)
    drawn = without_replacement(problem, here, radii, finite, *(small or (0.0, 0.0)))
    write(drawn, rate, low, high, samples, passes, early, early_draws)
    active = ~known & ~finite
    if bool(active.any()):
        draws = torch.zeros(len(rows), strata + 1, dtype=torch.int64)
        planned = drawn_strata(
            problem.key[here], m.to(device), radii.to(device), rule.looks[-1]
        ).cpu()
        outcomes = torch.zeros(len(rows), strata + 1, rule.looks[-1], dtype=torch.bool)
        outcomes[:, 0] = trivial[:, None]
        for look, n in enumerate(rule.looks):
            used = torch.zeros(*radii.shape, strata + 1, dtype=torch.int64)
            used.scatter_add_(
                2, planned[..., :n], torch.ones(1, dtype=torch.int64).expand_as(planned[..., :n])
            )
            wanted = torch.where(active[..., None], used, 0)
            so_far = torch.cat([draws[:, None], wanted], 1).cummax(1).values
            passes += (so_far[:, 1:] - so_far[:, :-1])[..., 1:].sum(2)
            _draw(problem, here, draws, so_far[:, -1], outcomes)
            draws = so_far[:, -1]
            ahead = torch.nn.functional.pad(outcomes.to(torch.int64).cumsum(2), (1, 0))
            agreed = ahead.gather(2, used.mT).sum(1)
            if look == 0:
                early[active], early_draws[active] = agreed[active].double() / n, n
            stop = active & rule.stop[look][agreed]
            rate[stop] = agreed[stop].double() / n
            low[stop], high[stop] = rule.low[look][agreed][stop], rule.high[look][agreed][stop]
            decision[stop] = rule.decision[look][agreed][stop]
            samples[stop] = n
            active &= ~stop
            if not bool(active.any()):
                break
    lost = problem.lost[here].cpu() > 0
    decision[lost] = OPEN
    for values in (rate, low, high, early):
        values[lost] = torch.nan
    found = (rate, low, high, known, passes, samples, decision, early, early_draws)
    return Certificates(asked[rows], *found, problem.predicted[here].cpu(), m)


def _are_few(radii: Tensor, left_out: Tensor, draws: int) -> Tensor:
    """Where Δ_r is small enough for draws without replacement, but larger than the draws, (B, R) boolean."""
    below, within = (
        torch.tensor([exact_radius(int(m), most) for m in left_out])
        for most in (draws, _SMALL * draws)
    )
    return (radii > below[:, None]) & (radii <= within[:, None])


def _enumerate(problem: Problem, here: Tensor, radius: Tensor, strata: int) -> Tensor:
    """How many of all supersets of each stratum agreed, (B, strata + 1), up to the radius (B,)."""
    hits = torch.zeros(len(here), strata + 1, dtype=torch.int64)
    rows, owner, stratum = [], [], []
    for i, r in enumerate(radius.tolist()):
        if r:
            sets, sizes = all_supersets(problem.mask[here[i]].cpu(), problem.free[here[i]].cpu(), r)
            rows.append(sets)
            owner.append(torch.full((len(sets),), i))
            stratum.append(sizes)
    if rows:
        every, sample, size = torch.cat(rows), torch.cat(owner), torch.cat(stratum)
        agreed = problem.judge_sets(here[sample.to(here.device)], every)
        cell = sample * (strata + 1) + size
        hits.view(-1).scatter_add_(0, cell, agreed.to(torch.int64))
    return hits


def _draw(problem: Problem, here: Tensor, have: Tensor, need: Tensor, outcomes: Tensor) -> None:
    """Fill in the outcomes of draws have … need − 1 of every stratum but 0, all samples and strata in one go."""
    new = (need - have)[:, 1:].clamp(min=0)
    sample, stratum = new.nonzero(as_tuple=True)
    repeats = new[sample, stratum]
    owner, k = sample.repeat_interleave(repeats), (stratum + 1).repeat_interleave(repeats)
    offset = torch.arange(len(owner)) - (repeats.cumsum(0) - repeats).repeat_interleave(repeats)
    index = have[owner, k] + offset
    device = here.device
    row, size, number = here[owner.to(device)], k.to(device), index.to(device)

    def build(some: Tensor) -> Tensor:
        rows = row[some]
        return random_supersets(
            problem.key[rows], size[some], number[some], problem.mask[rows], problem.free[rows]
        )

    outcomes[owner, k, index] = problem.judge(row, build).cpu()


def _rule(
    mode: Mode, method: Method, epsilon: float, delta: float, threshold: float, budget: int | None
) -> tuple[Rule, int]:
    """The stopping rule, and up to how many supersets are tried one by one instead."""
    if mode == "estimate":
        rule = estimate_rule(epsilon, delta, method)
    elif mode == "decide":
        rule = decide_rule(
            threshold,
            delta,
            max(sample_size(epsilon, delta), zero_failure_sample_size(1 - threshold, delta) + 1),
        )
    else:
        rule = hard_rule(epsilon, delta)
    return rule, rule.looks[-1] if budget is None else budget


def _check_radii(radii: Any) -> None:
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

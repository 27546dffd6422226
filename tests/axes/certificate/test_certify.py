"""Certificates on models whose stability rate is known by brute force."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

from heatproof import Model, rand
from heatproof.axes.certificate.agreement import Problem
from heatproof.axes.certificate.certify import Certificates, certify
from heatproof.axes.certificate.sequential import estimate_rule
from heatproof.axes.certificate.strata import (
    all_supersets,
    drawn_strata,
    log_sizes,
    random_supersets,
    supersets,
)
from heatproof.errors import UserError
from heatproof.features import Patches, Pixels, Tokens, Windows
from heatproof.types import Batch
from support.paths import SHARED_DATA

N = 14
SST = SHARED_DATA / "text" / "stsa.binary.train"


def linear(rows: int = 512) -> Model:
    g = torch.Generator().manual_seed(3)
    net = nn.Linear(N, 3)
    with torch.no_grad():
        net.weight.copy_(torch.randn(3, N, generator=g))
        net.bias.zero_()
    return Model(net, rows=rows)


def explanations(samples: int, selected: int = 3, seed: int = 0) -> tuple[Batch, Tensor]:
    g = torch.Generator().manual_seed(seed)
    batch = Batch(tuple(f"s{i}" for i in range(samples)), torch.randn(samples, N, generator=g))
    order = torch.rand(samples, N, generator=g).argsort(1)
    return batch, torch.zeros(samples, N, dtype=torch.bool).scatter(1, order[:, :selected], True)


def true_rates(model: Model, batch: Batch, mask: Tensor, radii: tuple[int, ...]) -> Tensor:
    """τ_r by trying every superset."""
    truth = torch.zeros(len(batch), len(radii), dtype=torch.float64)
    for i, (x, alpha) in enumerate(zip(batch.x, mask, strict=True)):
        free = [j for j in range(N) if not alpha[j]]
        rows = [list(added) for k in range(len(free) + 1) for added in combinations(free, k)]
        every = alpha.repeat(len(rows), 1)
        for row, added in zip(every, rows, strict=True):
            row[added] = True
        same = (
            model.logits(x * every).argmax(1) == model.logits((x * alpha)[None]).argmax()
        ).double()
        for j, r in enumerate(radii):
            truth[i, j] = same[[len(added) <= r for added in rows]].mean()
    return truth


RADII = (2, 6, 11)


@pytest.fixture(scope="module")
def known() -> tuple[Model, Batch, Tensor, Tensor]:
    model = linear(4096)
    batch, mask = explanations(120)
    return model, batch, mask, true_rates(model, batch, mask, RADII)


def repeated(
    known: tuple[Model, Batch, Tensor, Tensor], times: int, **options
) -> tuple[Certificates, Tensor]:
    """Certificates of the same explanations under other ids, so with independent draws; no enumeration."""
    model, batch, mask, truth = known
    ids = tuple(f"{name}/{t}" for t in range(times) for name in batch.ids)
    again = Batch(ids, batch.x.repeat(times, 1))
    result = certify(model, again, mask.repeat(times, 1), Pixels(), RADII, budget=1, **options)
    return result, truth.repeat(times, 1)


def at_most(misses: Tensor, delta: float) -> bool:
    """Whether so many misses are no surprise if each has the probability delta."""
    return stats.binomtest(int(misses.sum()), misses.numel(), delta, "greater").pvalue > 1e-4


@pytest.mark.parametrize("method", ["clopper-pearson", "hoeffding", "betting"])
def test_coverage_of_estimates(known, method) -> None:
    result, truth = repeated(known, 3, method=method)
    assert not result.exact.any()
    for column in range(
        len(RADII)
    ):  # the radii of a sample share draws, so each is judged by itself
        off, over, under = (
            (result.rate - truth)[:, column].abs() > 0.1 + 1e-9,
            result.low[:, column] > truth[:, column],
            result.high[:, column] < truth[:, column],
        )
        assert at_most(off, 0.1) and at_most(over, 0.1) and at_most(under, 0.1)
    assert ((result.low <= result.rate) & (result.rate <= result.high)).all()
    worst = {"clopper-pearson": 80, "hoeffding": 150, "betting": 280}[method]
    assert result.samples.max() <= worst
    if method == "clopper-pearson":
        assert (result.low - truth).mean() > -0.12, "a bound that says nothing covers too"


def chances(rule, good: int, population: int) -> dict[tuple[int, int], float]:
    """The exact probability of every ending (look, agreements) of draws without replacement, draw by draw."""
    states, found, at = {0: 1.0}, {}, 0
    for look, n in enumerate(rule.looks):
        for drawn in range(at, n):
            after: dict[int, float] = {}
            for s, p in states.items():
                up = (good - s) / (population - drawn)
                for more, chance in ((1, up), (0, 1 - up)):
                    if chance > 0:
                        after[s + more] = after.get(s + more, 0.0) + p * chance
            states = after
        at = n
        found |= {(look, s): p for s, p in states.items() if rule.stop[look, s]}
        states = {s: p for s, p in states.items() if not rule.stop[look, s]}
    return found


@pytest.mark.parametrize(("population", "most"), [(148, 55), (300, 67), (40, 30)])
def test_draws_without_replacement_keep_their_guarantee_exactly(population: int, most: int) -> None:
    rule = estimate_rule(0.1, 0.1, population=population)
    assert rule.looks[-1] <= most < estimate_rule(0.1, 0.1).looks[-1]
    for good in range(0, population + 1, 3):
        tau = good / population
        ends = chances(rule, good, population)
        assert sum(ends.values()) == pytest.approx(1)
        off = sum(
            p for (look, s), p in ends.items() if abs(s / rule.looks[look] - tau) > 0.1 + 1e-12
        )
        over = sum(p for (look, s), p in ends.items() if rule.low[look, s] > tau + 1e-12)
        under = sum(p for (look, s), p in ends.items() if rule.high[look, s] < tau - 1e-12)
        assert max(off, over, under) <= 0.1 + 1e-9


def test_few_supersets_are_drawn_without_replacement() -> None:
    g = torch.Generator().manual_seed(0)
    net = nn.Linear(150, 3)
    with torch.no_grad():
        net.weight.copy_(torch.randn(3, 150, generator=g))
        net.bias.zero_()
    seen = []

    class Watch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x != 0)
            return net(x)

    batch = Batch(tuple(f"s{i}" for i in range(200)), torch.randn(200, 150, generator=g))
    mask = torch.zeros(200, 150, dtype=torch.bool)
    mask[:, :3] = True
    model = Model(Watch(), rows=4096)
    exact = certify(model, batch, mask, Pixels(), (1,), budget=148)
    seen.clear()
    drawn = certify(model, batch, mask, Pixels(), (1,))
    assert not drawn.exact.any() and drawn.samples.max() <= 55 and exact.exact.all()
    assert int(drawn.passes.sum()) == sum(map(len, seen)) - 200
    one = certify(model, batch[7:8], mask[7:8], Pixels(), (1, 5))
    assert one.rate[0, 0] == drawn.rate[7, 0] and one.samples[0, 0] == drawn.samples[7, 0]
    seen.clear()
    certify(model, batch[7:8], mask[7:8], Pixels(), (1,))
    rows = torch.cat(seen)
    assert len(rows.unique(dim=0)) == len(rows), "no set is tried twice"
    for bound, side in ((drawn.low, 1), (drawn.high, -1)):
        assert at_most(side * (bound - exact.rate) > 1e-12, 0.1)
    assert at_most((drawn.rate - exact.rate).abs() > 0.1 + 1e-12, 0.1)
    assert (drawn.early_draws == drawn.samples.min()).all(), "the first look is the same for all"


def test_coverage_of_decisions(known) -> None:
    result, truth = repeated(known, 3, mode="decide", threshold=0.9)
    for column in range(len(RADII)):
        yes, no = result.decision[:, column] == 1, result.decision[:, column] == 0
        stable = truth[:, column] >= 0.9
        assert at_most(yes[~stable], 0.1) and at_most(no[stable], 0.1)
    clear = (truth < 0.6) | (truth > 0.995)
    assert (result.decision[clear] >= 0).double().mean() > 0.97
    assert result.samples[truth <= 0.5].double().mean() < 8


def test_coverage_of_the_hard_mode(known) -> None:
    result, truth = repeated(known, 3, mode="hard")
    for column in range(len(RADII)):
        assert at_most((result.decision[:, column] == 1)[truth[:, column] < 0.9], 0.1)
        assert at_most(result.low[:, column] > truth[:, column], 0.1)
    assert (result.decision[truth == 1] == 1).all()
    assert result.samples.max() == 22 and (result.low[result.decision == 1] >= 0.9).all()


def test_simultaneous_certificates_miss_together_at_most_delta(known) -> None:
    pointwise, truth = repeated(known, 3)
    together, _ = repeated(known, 3, simultaneous=True)
    assert at_most((together.low > truth).any(1), 0.1)
    assert at_most(((together.rate - truth).abs() > 0.1 + 1e-9).any(1), 0.1)
    assert together.samples.sum() > pointwise.samples.sum()


def test_all_supersets_give_the_rate_itself(known) -> None:
    model, batch, mask, truth = known
    exact = certify(model, batch, mask, Pixels(), RADII, budget=1 << N)
    assert (
        exact.exact.all()
        and torch.equal(exact.rate, exact.low)
        and torch.equal(exact.rate, exact.high)
    )
    torch.testing.assert_close(exact.rate, truth)


def rates_of_one_size(model: Model, batch: Batch, mask: Tensor) -> Tensor:
    """τ_{=k} for k = 0 … m by trying every superset, (B, m + 1)."""
    m = N - int(mask[0].sum())
    truth = torch.zeros(len(batch), m + 1, dtype=torch.float64)
    for i, (x, alpha) in enumerate(zip(batch.x, mask, strict=True)):
        of_alpha = model.logits((x * alpha)[None]).argmax()
        free = [j for j in range(N) if not alpha[j]]
        for k in range(m + 1):
            rows = torch.stack([alpha.clone() for _ in combinations(free, k)])
            for row, added in zip(rows, combinations(free, k), strict=True):
                row[list(added)] = True
            truth[i, k] = (model.logits(x * rows).argmax(1) == of_alpha).double().mean()
    return truth


def test_rates_of_exactly_k_added_features(known) -> None:
    model, batch, mask, truth = known
    of_size = rates_of_one_size(model, batch[:40], mask[:40])
    m = of_size.shape[1] - 1
    before = model.passes
    exact = certify(
        model, batch[:40], mask[:40], Pixels(), range(m + 3), budget=1 << N, added="exactly"
    )
    assert exact.exact.all() and torch.equal(exact.rate, exact.low)
    torch.testing.assert_close(exact.rate[:, : m + 1], of_size)
    torch.testing.assert_close(exact.rate[:, m + 1], of_size[:, m])
    assert int(exact.passes.sum()) == model.passes - before - 40, "no set is tried twice"
    # τ_r is the mean of τ_{=k} weighted with the number of supersets of each size.
    sizes = torch.tensor([float(supersets(m, k, "exactly")) for k in range(m + 1)]).double()
    for column, r in enumerate(RADII):
        mean = (of_size[:, : r + 1] * sizes[: r + 1]).sum(1) / sizes[: r + 1].sum()
        torch.testing.assert_close(mean, truth[:40, column])


def test_coverage_where_exactly_k_features_are_added(known) -> None:
    model, batch, mask, _ = known
    of_size = rates_of_one_size(model, batch, mask)[:, list(RADII)].repeat(3, 1)
    result, _ = repeated(known, 3, added="exactly")
    assert not result.exact[:, :2].any() and result.exact[:, 2].all(), "one superset has all"
    for column in range(len(RADII)):
        off = (result.rate - of_size)[:, column].abs() > 0.1 + 1e-9
        assert at_most(off, 0.1)
        assert at_most(result.low[:, column] > of_size[:, column], 0.1)
    # The smallest of the bounds bounds the smallest of the rates, without a correction for their number.
    assert at_most(result.low.amin(1) > of_size.amin(1), 0.1)


def test_numbers_of_supersets_are_those_of_listing_them() -> None:
    for m in (1, 4, 9):
        listed = [
            sum(1 for k in range(r + 1) for _ in combinations(range(m), k)) for r in range(12)
        ]
        assert [supersets(m, r) for r in range(12)] == listed
        logarithms = log_sizes(torch.tensor([m]), 11)[0].numpy()
        np.testing.assert_allclose(logarithms, np.log(listed))
        of_one_size = [sum(1 for _ in combinations(range(m), min(k, m))) for k in range(12)]
        assert [supersets(m, k, "exactly") for k in range(12)] == of_one_size


@pytest.mark.parametrize(("m", "r"), [(1, 1), (1, 4), (2, 1), (5, 2), (5, 5), (5, 9), (6, 3)])
def test_draws_are_uniform_on_the_supersets(m: int, r: int) -> None:
    mask = torch.tensor([[False] * m + [True]])
    free = ~mask
    draws, samples = 400, 30
    key = rand.keys(0, [f"s{i}" for i in range(samples)], "test")
    strata = drawn_strata(
        key, torch.full((samples,), m), torch.full((samples, 1), min(r, m)), draws
    )[:, 0]
    used = torch.stack([(strata[:, :j] == strata[:, j : j + 1]).sum(1) for j in range(draws)], 1)
    rows = random_supersets(
        key.repeat_interleave(draws),
        strata.flatten(),
        used.flatten(),
        mask.expand(samples * draws, -1),
        free.expand(samples * draws, -1),
    )
    assert rows[:, -1].all()
    codes = (rows[:, :m].long() << torch.arange(m)).sum(1)
    every, sizes = all_supersets(mask[0], free[0], range(1, min(r, m) + 1))
    allowed = sorted({0, *((row[:m].long() << torch.arange(m)).sum().item() for row in every)})
    assert len(allowed) == supersets(m, r) == len(sizes) + 1
    counts = torch.bincount(codes, minlength=1 << m)[allowed]
    assert counts.sum() == samples * draws, "every draw lies in Δ_r"
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3
    pairs = torch.stack(
        [
            codes.reshape(samples, draws)[:, :-1].flatten(),
            codes.reshape(samples, draws)[:, 1:].flatten(),
        ]
    )
    table = torch.zeros(1 << m, 1 << m).index_put_(
        (pairs[0], pairs[1]), torch.tensor(1.0), accumulate=True
    )
    inside = table[allowed][:, allowed].numpy()
    assert stats.chi2_contingency(inside).pvalue > 1e-3, "successive draws are independent"


def same(a: Certificates, b: Certificates, rows, columns=slice(None)) -> None:
    for name in ("radii", "rate", "low", "high", "exact", "samples", "decision"):
        assert torch.equal(getattr(a, name)[rows][:, columns], getattr(b, name)), name


def test_a_certificate_depends_on_no_neighbour_batch_size_or_other_radius() -> None:
    batch, mask = explanations(9, seed=4)
    whole = certify(linear(512), batch, mask, Pixels(), (3, 1, 11, 5), budget=1)
    pick = [7, 2, 5]
    same(
        whole, certify(linear(5), batch[pick], mask[pick], Pixels(), (3, 1, 11, 5), budget=1), pick
    )
    same(whole, certify(linear(64), batch, mask, Pixels(), (11,), budget=1), slice(None), [2])
    other = certify(linear(), batch, mask, Pixels(), (3, 1, 11, 5), budget=1, seed=1)
    assert not torch.equal(other.rate, whole.rate)


@pytest.mark.parametrize("mode", ["estimate", "decide", "hard"])
@pytest.mark.parametrize("budget", [None, 1])
@pytest.mark.parametrize("added", ["at most", "exactly"])
def test_passes_are_those_of_the_model(mode, budget, added) -> None:
    model = linear(7)
    batch, mask = explanations(6)
    result = certify(
        model, batch, mask, Pixels(), (0, 1, 3, 9, 30), mode=mode, budget=budget, added=added
    )
    assert int(result.passes.sum()) == model.passes - len(batch)
    assert (
        (result.passes[:, 0] == 0).all()
        and (result.rate[:, 0] == 1).all()
        and result.exact[:, 0].all()
    )
    assert result.radii.tolist() == [[0, 1, 3, 9, 30]] * 6
    if budget is None:
        assert result.exact[:, 1].all() and result.passes[:, 1].tolist() == [11] * 6


def test_early_stopping_spares_the_samples_that_are_done() -> None:
    model = linear(512)
    batch, mask = explanations(40)
    result = certify(model, batch, mask, Pixels(), (11,), budget=1)
    assert result.samples.min() < 35 and result.samples.max() > 50
    assert model.passes - 40 <= result.samples.sum()


def test_the_whole_curve_from_one_set_of_samples() -> None:
    model = linear(4096)
    batch, mask = explanations(8, selected=2)
    curve = certify(model, batch, mask, Pixels(), "all", budget=1)
    assert curve.radii[0].tolist() == list(range(1, 13))
    assert int(curve.passes.sum()) == model.passes - len(batch)
    assert curve.passes.sum() < 0.7 * curve.samples.sum()
    one = certify(model, batch, mask, Pixels(), (4,), budget=1)
    assert torch.equal(one.rate[:, 0], curve.rate[:, 3]) and torch.equal(
        one.low[:, 0], curve.low[:, 3]
    )


def test_one_feature_left_out_and_radii_beyond() -> None:
    batch, mask = explanations(5, selected=N - 1)
    result = certify(linear(), batch, mask, Pixels(), (1, 2, 100))
    assert result.exact.all() and torch.equal(result.rate, result.rate[:, :1].expand(-1, 3))
    torch.testing.assert_close(result.rate, true_rates(linear(), batch, mask, (1, 1, 1)))
    sampled = certify(linear(), batch, mask, Pixels(), (100,), budget=1)
    assert (sampled.low <= result.rate[:, :1]).all() and (sampled.high >= result.rate[:, :1]).all()


def test_agreement_by_margin_is_stricter_than_by_argmax(known) -> None:
    model, batch, mask, _ = known
    by_class = certify(model, batch, mask, Pixels(), (3,), budget=1 << N)
    by_margin = certify(model, batch, mask, Pixels(), (3,), budget=1 << N, agreement="margin")
    assert (by_margin.rate <= by_class.rate).all() and (by_margin.rate < by_class.rate).any()
    loose = certify(
        model, batch[:3], mask[:3], Pixels(), (0, 3), budget=1 << N, agreement="margin", margin=0.0
    )
    assert (loose.rate[:, 0] == 1).all() and (loose.rate[:, 1] < 1).all()


def test_a_target_asks_for_that_class() -> None:
    model = linear()
    batch, mask = explanations(30)
    whole = model.logits(batch.x).argmax(1)
    result = certify(model, batch, mask, Pixels(), (0, 11), target=whole, budget=1 << N)
    agrees = result.target == whole
    assert result.rate[:, 0].tolist() == agrees.double().tolist() and not agrees.all()
    plain = certify(model, batch, mask, Pixels(), (0, 11), budget=1 << N)
    assert torch.equal(plain.rate[agrees], result.rate[agrees])


@pytest.mark.parametrize("fill", ["zero", "mean", "blur", 0.25])
def test_what_is_left_out_is_filled(fill) -> None:
    seen = []

    class Watch(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(x.clone())
            return x.flatten(1)[:, :2]

    x = torch.rand(1, 1, 4, 8, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, False]])
    certify(Model(Watch(), mean=0.5), Batch(("a",), x), mask, Patches(4), (1,), fill=fill)
    alone = seen[0][0, 0] + 0.5
    torch.testing.assert_close(alone[:, :4], x[0, 0, :, :4])
    torch.testing.assert_close(seen[1][0, 0] + 0.5, x[0, 0])
    left_out = alone[:, 4:]
    if fill == "blur":
        assert left_out.std() < x[0, 0, :, 4:].std()
    else:
        expected = {"zero": 0.5, "mean": float(x[..., 4:].mean()), 0.25: 0.25}[fill]
        torch.testing.assert_close(left_out, torch.full((4, 4), expected))


class Uneven:
    """Windows of 2 steps, except that a sample which begins with a negative value has one feature less."""

    def check(self, shape) -> None: ...

    def total(self, shape) -> None:
        return None

    def segments(self, batch: Batch) -> Tensor:
        labels = Windows(2).segments(batch)
        fewer = batch.x[:, 0, 0] < 0
        return torch.where(fewer[:, None], labels.clamp(max=int(labels.max()) - 1), labels)


def test_an_empty_batch_and_margins_without_probabilities_are_refused() -> None:
    batch, mask = explanations(3)
    with pytest.raises(UserError, match="no samples"):
        certify(linear(), batch[:0], mask[:0], Pixels())
    values = Model(linear().module, task={"regression": {"tolerance": 0.5, "output": 0}})
    with pytest.raises(UserError, match=r"regression.*argmax"):
        certify(values, batch, mask, Pixels(), agreement="margin", margin=0.1)


def test_samples_with_different_numbers_of_features() -> None:
    g = torch.Generator().manual_seed(1)
    batch = Batch(("a", "b"), torch.randn(2, 1, 12, generator=g))
    batch.x[:, 0, 0] = torch.tensor([1.0, -1.0])
    model = Model(nn.Sequential(nn.Flatten(), nn.Linear(12, 3)))
    mask = torch.zeros(2, 6, dtype=torch.bool)
    mask[:, 1] = True
    result = certify(model, batch, mask, Uneven(), "all", budget=64)
    assert result.left_out.tolist() == [5, 4] and result.radii.shape == (2, 5)
    alone = certify(model, batch[1:], mask[1:], Uneven(), (1, 4), budget=64)
    torch.testing.assert_close(alone.rate[0], result.rate[1, [0, 3]])
    assert result.rate[1, 4] == result.rate[1, 3]
    mask[1, 5] = True
    with pytest.raises(UserError, match=r"'b'.*5"):
        certify(model, batch, mask, Uneven())


class NotFinite(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.where(x[:, :2].abs() > 50, torch.nan, x[:, :2])


def test_a_sample_with_scores_that_are_not_finite_has_no_certificate_and_spoils_no_other() -> None:
    batch, mask = explanations(4)
    mask[:, 0] = False
    whole = certify(Model(NotFinite()), batch, mask, Pixels(), (2, 5))
    batch.x[2, 0] = 100.0
    result = certify(Model(NotFinite()), batch, mask, Pixels(), (2, 5))
    assert (
        result.rate[2].isnan().all()
        and result.low[2].isnan().all()
        and (result.decision[2] == -1).all()
    )
    others = [0, 1, 3]
    assert torch.equal(result.rate[others], whole.rate[others]) and whole.rate.isfinite().all()


def bad(mask: Tensor, row: int, value: bool) -> Tensor:
    mask = mask.clone()
    mask[row] = value
    return mask


@pytest.mark.parametrize(
    ("change", "options", "message"),
    [
        (lambda m: m[:, 1:], {}, r"mask.*13.*14"),
        (lambda m: m[1:], {}, r"mask.*2.*3"),
        (lambda m: m.float(), {}, r"mask.*float32"),
        (lambda m: bad(m, 1, False), {}, r"mask.*'s1'"),
        (lambda m: bad(m, 2, True), {}, r"mask.*'s2'"),
        (None, {"radii": (1, -1)}, r"radii.*-1"),
        (None, {"radii": (1.5,)}, r"radii.*1\.5"),
        (None, {"radii": ()}, "radii"),
        (None, {"radii": "al"}, r"'al'.*'all'"),
        (None, {"delta": 0.0}, r"delta.*0\.0"),
        (None, {"delta": 1.0}, r"delta.*1\.0"),
        (None, {"epsilon": 0}, r"epsilon.* 0"),
        (None, {"epsilon": 1.2}, r"epsilon.*1\.2"),
        (None, {"threshold": 1.0}, r"threshold.*1\.0"),
        (None, {"method": "clopper"}, r"'clopper'.*'clopper-pearson'"),
        (None, {"mode": "decid"}, r"'decid'.*'decide'"),
        (None, {"agreement": "argmx"}, r"'argmx'.*'argmax'"),
        (
            None,
            {"mode": "hard", "method": "hoeffding"},
            r"hoeffding.*hard",
        ),
        (None, {"margin": 0.1}, r"0\.1.*agreement='margin'"),
        (None, {"fill": "zeros"}, r"'zeros'.*'zero'"),
        (None, {"fill": float("inf")}, r"fill.*inf"),
        (None, {"fill": float("nan")}, r"fill.*nan"),
        (None, {"budget": 0}, r"budget.* 0"),
        (None, {"budget": 2.5}, r"budget.*2\.5"),
        (None, {"budget": "9"}, r"budget.*9"),
        (None, {"radii": 3}, r"radii.* 3"),
        (None, {"target": torch.tensor([0, 1, 3])}, r"target.*2.*0, 1, 3"),
        (None, {"target": torch.tensor([0, 1])}, r"target.* 3 .*0, 1"),
        (None, {"features": Patches(2)}, "images"),
    ],
)
def test_one_clear_error_for_every_mistake(change, options, message: str) -> None:
    batch, mask = explanations(3)
    features = options.pop("features", Pixels())
    with pytest.raises(UserError, match=message):
        certify(linear(), batch, change(mask) if change else mask, features, **options)


class BagOfWords(nn.Module):
    """The mean of the attended tokens' embeddings; and everything, if nothing is attended to."""

    def __init__(self, words: int) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(words, 16), nn.Linear(16, 2)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        weight = (
            attention_mask.float()
            .masked_fill(attention_mask == 0, -1e9)
            .masked_fill(attention_mask > 0, 0.0)
        )
        share = weight.softmax(1)
        return self.head((self.words(ids) * share[..., None]).sum(1))


def sentences(source: str) -> tuple[Tensor, Tensor, dict[str, int]]:
    """Token ids with start, end and padding, and whether the sentence is kind."""
    kind, cruel = ["great", "moving", "funny", "superb"], ["dull", "awful", "clumsy", "boring"]
    things, links = ["film", "plot", "story", "cast"], ["and", "but", "with", "though"]
    g, lines = np.random.default_rng(0), []
    for _ in range(200):
        label = int(g.integers(2))
        words = [g.choice(kind if label else cruel) for _ in range(3)] + [
            g.choice(cruel if label else kind)
        ]
        parts = [f"the {g.choice(things)} is {w} {g.choice(links)}" for w in g.permutation(words)]
        lines.append((label, " ".join(parts)))
    if source == "sst":
        lines = [
            (int(line[0]), line[2:].strip())
            for line in SST.read_text(encoding="utf-8").splitlines()[:1500]
        ]
    names: dict[str, int] = {"[PAD]": 0, "[CLS]": 1, "[SEP]": 2, "[MASK]": 3}
    rows = [
        [1, *(names.setdefault(w, len(names)) for w in text.split()[:24]), 2] for _, text in lines
    ]
    ids = torch.zeros(len(rows), 26, dtype=torch.int64)
    for row, given in zip(ids, rows, strict=True):
        row[: len(given)] = torch.tensor(given)
    return ids, torch.tensor([label for label, _ in lines]), names


@pytest.fixture(scope="module", params=["templates", "sst"])
def classifier(request: pytest.FixtureRequest) -> tuple[Model, Batch]:
    if request.param == "sst" and not SST.exists():
        pytest.skip(f"{SST} is not there")
    ids, label, names = sentences(request.param)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = BagOfWords(len(names))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(40):
        optimiser.zero_grad()
        nn.functional.cross_entropy(net(ids, (ids > 0).long()), label).backward()
        optimiser.step()
    ids, label = ids[:40], label[:40]
    batch = Batch(
        tuple(f"t{i}" for i in range(40)), ids, {"attention_mask": (ids > 0).long()}, label
    )
    model = Model(net, rows=256)
    assert (model.logits(ids, batch.aux).argmax(1) == label).double().mean() > 0.85
    return model, batch


@pytest.mark.parametrize("tokens", [Tokens(special=(1, 2), mask_token=3), Tokens(special=(1, 2))])
def test_texts_are_certified_token_by_token(classifier, tokens: Tokens) -> None:
    model, batch = classifier
    score = model.module.words.weight[batch.x] @ (
        model.module.head.weight[1] - model.module.head.weight[0]
    )
    words = ~tokens.fixed(batch)
    batch, score, words = (v[words.sum(1) > 3] for v in (batch, score, words))
    sign = torch.where(model.logits(batch.x, batch.aux).argmax(1) == 1, 1, -1)[:, None]
    ranked = (score * sign).masked_fill(~words, -torch.inf)
    mask = torch.zeros_like(words).scatter(1, ranked.topk(2, dim=1).indices, True)
    result = certify(model, batch, mask, tokens, (1, 4, 24))
    assert torch.equal(result.left_out, words.sum(1) - 2)
    assert (result.low <= result.rate).all() and result.rate[:, 0].mean() > 0.9
    one = certify(model, batch[4:5], mask[4:5], tokens, (1, 4, 24))
    assert torch.equal(one.rate[0], result.rate[4])
    small = int(result.left_out.argmin())
    free = (words & ~mask)[small].nonzero().flatten().tolist()
    base = mask[small] | tokens.fixed(batch)[small]
    hits = []
    for j in free:
        kept = base.clone()
        kept[j] = True
        aux = {"attention_mask": batch.aux["attention_mask"][small : small + 1]}
        ids, aux = tokens.hide(batch.x[small : small + 1], aux, kept[None])
        hits.append(float(model.logits(ids, aux).argmax() == result.target[small]))
    assert float(result.rate[small, 0]) == pytest.approx((1 + sum(hits)) / (1 + len(free)))


def test_a_text_without_any_token_left_is_refused(classifier) -> None:
    _, batch = classifier
    kept = torch.zeros(batch.x.shape, dtype=torch.bool)
    with pytest.raises(UserError, match="token"):
        Tokens().hide(batch.x, batch.aux, kept)
    with pytest.raises(UserError, match="mask_token"):
        Tokens().fixed(Batch(batch.ids, batch.x))
    with pytest.raises(UserError, match="token ids"):
        Tokens().check((1, 3, 8, 8))


def test_the_model_never_sees_an_empty_batch() -> None:
    class Strict(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = torch.nn.Linear(3 * 32 * 32, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(x.view(len(x), -1))  # a view of no elements has no size to infer

    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = Model(Strict())
    batch = Batch(("a", "b"), torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(0)))
    mask = torch.zeros(2, 16, dtype=torch.bool)
    mask[:, :4] = True
    problem = Problem(model, batch, mask, Patches(8), "zero", "argmax", None, None, 0)
    before = model.passes
    nobody = torch.zeros(
        0, dtype=torch.int64
    )  # a round in which every sample has drawn enough already
    assert problem.judge(nobody, lambda rows: mask[rows]).shape == (0,)
    assert model.passes == before

"""The measures against scipy, scikit-image and brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from heatproof import similarity
from heatproof.errors import UserError
from heatproof.maps import ranks as ties
from heatproof.maps import ssim as windows


def maps(*shape: int, seed: int = 0, levels: int | None = None) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    if levels is not None:
        return torch.randint(0, levels, shape, generator=generator).float()
    return torch.randn(shape, generator=generator)


def brute_jaccard(a: list[float], b: list[float], k: int) -> float:
    """The mean over every shared order of the places."""
    scores = []
    for order in itertools.permutations(range(len(a))):
        top = [set(sorted(range(len(v)), key=lambda i: (-v[i], order[i]))[:k]) for v in (a, b)]
        scores.append(len(top[0] & top[1]) / len(top[0] | top[1]))
    return float(np.mean(scores))


def test_spearman_agrees_with_scipy_with_and_without_ties():
    for levels in (None, 5):
        a, b = maps(4, 3, 9, 9, seed=1, levels=levels), maps(4, 3, 9, 9, seed=2, levels=levels)
        expected = [
            stats.spearmanr(x.flatten().numpy(), y.flatten().numpy()).statistic
            for x, y in zip(a, b, strict=True)
        ]
        assert torch.allclose(
            similarity.spearman(a, b), torch.tensor(expected, dtype=torch.float32), atol=1e-6
        )


def test_ordinal_spearman_is_the_double_argsort():
    a, b = maps(3, 50, seed=1, levels=4), maps(3, 50, seed=2, levels=4)
    rank = [
        np.argsort(np.argsort(-m.numpy(), axis=1, kind="stable"), axis=1, kind="stable")
        for m in (a, b)
    ]
    expected = [np.corrcoef(x, y)[0, 1] for x, y in zip(*rank, strict=True)]
    assert np.allclose(similarity.spearman(a, b, ties="ordinal").numpy(), expected, atol=1e-6)


def test_ssim_agrees_with_scikit_image_on_whole_windows():
    metrics = pytest.importorskip("skimage.metrics")
    a, b = maps(2, 3, 40, 33, seed=1), maps(2, 3, 40, 33, seed=2)
    b = 0.6 * a + 0.4 * b
    for x, y, ours in zip(a, b, similarity.ssim(a, b, padding="valid"), strict=True):
        unit = [((m - m.min()) / (m.max() - m.min())).numpy() for m in (x, y)]
        theirs = [
            metrics.structural_similarity(
                p, q, win_size=11, use_sample_covariance=False, data_range=1.0
            )
            for p, q in zip(*unit, strict=True)
        ]
        assert float(ours) == pytest.approx(np.mean(theirs), abs=1e-5)


def test_ssim_pads_with_zeros_as_average_pooling_does():
    a, b = maps(1, 1, 14, 14, seed=3), maps(1, 1, 14, 14, seed=4)
    unit = [(m - m.min()) / (m.max() - m.min()) for m in (a, b)]
    pool = lambda m: torch.nn.functional.avg_pool2d(m, 11, 1, 5)  # noqa: E731
    x, y = unit
    mx, my = pool(x), pool(y)
    vx, vy, cov = pool(x * x) - mx**2, pool(y * y) - my**2, pool(x * y) - mx * my
    score = ((2 * mx * my + 1e-4) * (2 * cov + 9e-4)) / ((mx**2 + my**2 + 1e-4) * (vx + vy + 9e-4))
    assert float(similarity.ssim(a, b)) == pytest.approx(float(score.mean()), abs=1e-6)


def test_jaccard_agrees_with_sets_when_nothing_ties():
    a, b = maps(5, 3, 8, 8, seed=1), maps(5, 3, 8, 8, seed=2)
    for x, y, ours in zip(a.flatten(1), b.flatten(1), similarity.jaccard(a, b, k=20), strict=True):
        top = [set(m.topk(20).indices.tolist()) for m in (x, y)]
        assert float(ours) == pytest.approx(len(top[0] & top[1]) / len(top[0] | top[1]))


def test_jaccard_under_ties_is_the_mean_over_all_orders():
    for seed in range(60):
        n = 4 + seed % 3
        k = 1 + seed % (n - 1)
        a, b = maps(1, n, seed=seed, levels=3), maps(1, n, seed=seed + 1000, levels=3)
        if bool(similarity.undefined(a) | similarity.undefined(b)):
            continue
        expected = brute_jaccard(a[0].tolist(), b[0].tolist(), k)
        assert float(similarity.jaccard(a, b, k=k)) == pytest.approx(expected, abs=1e-6), (a, b, k)


def test_the_limit_for_many_ties_is_near_the_exact_expectation():
    case = (100, 80, 16, 14, 300, (10, 120), (5, 200))
    assert ties.expected_jaccard(*case) == pytest.approx(
        ties._of_many_draws(ties._Lottery(*case)), abs=0.02
    )


def test_many_pairs_are_settled_as_each_alone():
    cases = [
        (100, 80, 16, 14, 300, (10, 120), (5, 200)),  # summed exactly
        (100, 80, 17, 14, 300, (10, 120), (5, 200)),  # its limit
        (100, 0, 100, 100, 768, (0, 0), (0, 0)),  # the same superpixel twice
        (100, 60, 40, 0, 0, (30, 500), (0, 0)),  # a lottery on one side
        (9, 5, 4, 4, 3, (1, 2), (2, 1)),
    ]
    rows = np.array([[*numbers, *a, *b] for *numbers, a, b in cases])
    assert ties._expected(rows).tolist() == [ties.expected_jaccard(*case) for case in cases]
    assert ties._expected(rows)[2] == 1
    assert ties._expected(rows[:0]).shape == (0,)


def test_one_open_place_is_settled_by_a_formula():
    few = range(3)
    own = [(0, 0), (0, 2), (1, 1), (2, 0), (2, 3)]
    both = [
        (k, c, 1, 1, n, a, b)
        for k in (1, 2, 7)
        for c in range(k)
        for n in few
        for a in own
        for b in own
    ]
    alone = [(k, c, 1, 0, 0, a, (0, 0)) for k in (1, 2, 7) for c in range(k) for a in own[1:]]
    turned = [(k, c, t, s, n, b, a) for k, c, s, t, n, a, b in alone]
    cases = (
        [case for case in both if case[4] + min(sum(case[5]), sum(case[6])) > 0] + alone + turned
    )
    cases = [
        case for case in cases if case[1] + case[5][0] + case[6][0] < case[0]
    ]  # there is room for what is drawn
    rows = np.array([[*numbers, *a, *b] for *numbers, a, b in cases])
    assert len(rows) > 200
    assert np.allclose(
        ties._expected(rows), [ties.expected_jaccard(*case) for case in cases], rtol=1e-13, atol=0
    )
    same = rows[(rows[:, 5:] == 0).all(1) & (rows[:, 1] == rows[:, 0] - 1)]
    assert len(same) and (ties._expected(same) == 1).all()


@pytest.mark.parametrize("shape", [(3, 3, 16, 16), (3, 12, 12), (3, 60)])
@pytest.mark.parametrize("how", ["average", "ordinal"])
def test_a_map_is_exactly_like_itself_even_when_it_ties(shape, how):
    for levels in (None, 3):
        a = maps(*shape, levels=levels)
        p = similarity.profile(a, k=10, ties=how)
        scores = similarity.compare(p, similarity.profile(a.clone(), k=10, ties=how))
        scores["fass"] = similarity.composite(scores, (3.0, 1.0, 0.7))
        assert all(bool((value == 1).all()) for value in scores.values()), scores


def test_constant_and_non_finite_maps_have_no_score():
    a = maps(3, 1, 12, 12)
    b = a.clone()
    b[0] = 1.0
    b[1, 0, 3, 3] = torch.nan
    for score in (similarity.ssim(a, b), similarity.spearman(a, b), similarity.jaccard(a, b, k=5)):
        assert score.isnan().tolist() == [True, True, False]
    assert similarity.cosine(a[:1], torch.zeros(1, 1, 12, 12)).isnan().all()


def test_a_mask_restricts_every_measure_to_the_valid_places():
    a, b = maps(2, 1, 15, 15, seed=1), maps(2, 1, 15, 15, seed=2)
    valid = torch.zeros(2, 1, 15, 15, dtype=torch.bool)
    valid[0, :, 3:12, 4:14] = True
    valid[1, :, :, 7:] = True
    spoiled = torch.where(valid, b, maps(2, 1, 15, 15, seed=3) * 100)
    profiles = [similarity.profile(m, k=10, valid=valid) for m in (a, b, spoiled)]
    scores, again = (
        similarity.compare(profiles[0], profiles[1]),
        similarity.compare(profiles[0], profiles[2]),
    )
    for name in scores:
        assert torch.equal(scores[name], again[name])
    for i in range(2):
        x, y = a[i][valid[i]][None], b[i][valid[i]][None]
        assert float(scores["spearman"][i]) == pytest.approx(
            (float(similarity.spearman(x, y)) + 1) / 2, abs=1e-6
        )
        assert float(scores["jaccard"][i]) == pytest.approx(
            float(similarity.jaccard(x, y, k=10)), abs=1e-6
        )


def test_a_full_mask_changes_nothing_and_one_map_meets_many():
    a, b = maps(4, 3, 13, 17, seed=1), maps(1, 3, 13, 17, seed=2)
    full = torch.ones(1, 1, 13, 17, dtype=torch.bool)
    plain = similarity.compare(similarity.profile(a, k=20), similarity.profile(b, k=20))
    masked = similarity.compare(
        similarity.profile(a, k=20, valid=full), similarity.profile(b, k=20, valid=full)
    )
    paired = similarity.compare(
        similarity.profile(a, k=20), similarity.profile(b.expand_as(a), k=20)
    )
    for name in plain:
        assert torch.allclose(plain[name], masked[name], atol=1e-7)
        assert torch.equal(plain[name], paired[name])


@pytest.mark.parametrize("k", [0, 1000, 2.5, -1])
def test_an_impossible_k_is_named(k):
    with pytest.raises(UserError, match=str(k)):
        similarity.jaccard(maps(1, 50), maps(1, 50), k=k)


@pytest.mark.parametrize(
    "measure", [similarity.ssim, similarity.spearman, similarity.jaccard, similarity.cosine]
)
def test_maps_of_two_shapes_are_refused_and_not_stretched(measure):
    one, three = torch.rand(1, 1, 12, 12), torch.rand(3, 1, 12, 12)
    for pair in ((one, three), (three, one), (three, three[:, 0])):
        with pytest.raises(UserError, match="shape"):
            measure(*pair)


def test_only_two_profiles_with_windows_have_an_ssim():
    maps = torch.rand(2, 1, 12, 12)
    profiles = [similarity.profile(maps, k=10, dims=dims) for dims in (2, 0)]
    for i, j in itertools.product(range(2), repeat=2):
        assert ("ssim" in similarity.compare(profiles[i], profiles[j])) == (i == j == 0)


def test_k_may_be_a_fraction():
    a, b = maps(2, 200, seed=1), maps(2, 200, seed=2)
    assert torch.equal(similarity.jaccard(a, b, k=0.1), similarity.jaccard(a, b, k=20))


@pytest.mark.parametrize("levels", [None, 4])
@pytest.mark.parametrize("shape", [(3, 14, 11), (40,)])
def test_all_references_with_all_maps_are_the_same_as_pair_by_pair(shape, levels, monkeypatch):
    references, others = (
        maps(3, *shape, seed=1, levels=levels),
        maps(5, *shape, seed=2, levels=levels),
    )
    others[0] = references[1]
    others[4] = 1.0
    valid = torch.ones(1, *shape, dtype=torch.bool)
    valid[..., :3] = False
    for mask in (None, valid):
        p, q = (similarity.profile(m, k=10, valid=mask) for m in (references, others))
        found = similarity.compare_all(p, q)
        assert all(float(value[1, 0]) == 1 for value in found.values())
        monkeypatch.setattr(windows, "IN_CACHE", 900)  # two pairs at once, or all
        again = similarity.compare_all(p, q[1:])
        monkeypatch.undo()
        for r, b in itertools.product(range(3), range(5)):
            alone = similarity.compare(p[r : r + 1], q[b : b + 1])
            for name, value in found.items():
                assert value[r, b].isnan() if b == 4 else value[r, b] == alone[name][0], (
                    name,
                    r,
                    b,
                )
                assert b == 0 or torch.equal(
                    value[r, b].nan_to_num(), again[name][r, b - 1].nan_to_num()
                ), (name, r, b)


def test_one_map_may_stand_against_many(monkeypatch):
    monkeypatch.setattr(windows, "IN_CACHE", 900)  # two maps at once
    many, one = (similarity.profile(maps(n, 3, 14, 11, seed=n), k=10) for n in (5, 1))
    for name, value in similarity.compare(many, one).items():
        expected = [similarity.compare(many[i : i + 1], one)[name] for i in range(5)]
        assert torch.equal(value, torch.cat(expected)), name
        assert torch.equal(similarity.compare(one, many)[name], value), name


def test_no_reference_and_no_map_give_empty_scores():
    some, none = (
        similarity.profile(maps(2, 1, 12, 12), k=5),
        similarity.profile(maps(0, 1, 12, 12), k=5),
    )
    assert {value.shape for value in similarity.compare_all(none, some).values()} == {(0, 2)}
    assert {value.shape for value in similarity.compare_all(some, none).values()} == {(2, 0)}


def test_ranks_are_the_same_however_many_values_are_equal_and_by_either_way_of_finding_them():
    zeros = torch.tensor([[0.0, -0.0, 1.0, -1.0]])
    for values in (
        maps(3, 5000, seed=1),
        maps(3, 5000, seed=1).mul(300).round(),
        maps(3, 5000, seed=1, levels=7),
        zeros,
    ):
        keys, order = ties.ranking(values)
        counts = torch.full((len(values),), values.shape[1])
        expected = (
            torch.from_numpy(stats.rankdata(values.numpy(), axis=1)) - (values.shape[1] + 1) / 2
        )
        assert torch.equal(ties.centred_ranks(keys, order, counts, "average").double(), expected)
        in_order = torch.from_numpy(np.stack([ties._middles_of_row(row) for row in keys.numpy()]))
        assert torch.equal(ties._middles(keys), in_order)


def test_products_of_ranks_are_exact_in_parts():
    """Whole numbers in Python have no rounding; 2¹⁹ places are more than one exact sum can hold."""
    values = maps(2, 1 << 19, seed=1, levels=1 << 19)
    known = torch.full((2,), 1 << 19)
    a, b = ties.centred_ranks(*ties.ranking(values), known, "average")
    twice = [(row.double() * 2).long() for row in (a, b)]
    size = 1 << 14  # such partial sums fit 64 bits
    exact = sum(
        int((x * y).sum()) for x, y in zip(twice[0].split(size), twice[1].split(size), strict=True)
    )
    assert float(similarity._dot(a[None], b[None])) == pytest.approx(exact / 4, rel=1e-15)
    assert float(similarity._dots(a[None], a[None])) == float(similarity._dot(a[None], a[None]))

"""Parts of the measures of maps: sums over windows, tied top sets, chance, concentration and displacement."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import ndimage

from heatproof import rand
from heatproof.maps import chance, complexity, masks, ranks, similarity, ssim, undefined, warping


def maps(seed: int, *shape: int, levels: int = 0) -> torch.Tensor:
    """Numbers without ties, or of a few levels with many."""
    generator = np.random.default_rng(seed)
    drawn = generator.normal(size=shape) if not levels else generator.integers(0, levels, shape)
    return torch.as_tensor(drawn, dtype=torch.float32)


def test_defaults_are_those_of_the_paper() -> None:
    a = maps(0, 2, 3, 14, 14)
    b = 0.7 * a + 0.5 * maps(1, 2, 3, 14, 14)
    assert torch.equal(similarity.ssim(a, b), similarity.ssim(a, b, 11, "zero", 2))
    assert torch.equal(similarity.jaccard(a, b), similarity.jaccard(a, b, 100, "average"))
    tied = [maps(seed, 2, 3, 14, 14, levels=5) for seed in (0, 1)]
    assert torch.equal(similarity.jaccard(*tied), similarity.jaccard(*tied, 100, "average"))
    assert torch.equal(similarity.spearman(*tied), similarity.spearman(*tied, "average"))
    usual, told = (
        similarity.compare(*(similarity.profile(m, *rest) for m in tied))
        for rest in ((), (100, "average", None, 11, 2))
    )
    assert usual.keys() == told.keys() and all(
        torch.equal(usual[name], told[name]) for name in usual
    )
    plain = similarity.composite(usual)
    assert torch.allclose(plain, (usual["ssim"] + usual["spearman"] + usual["jaccard"]) / 3)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("window", [1, 2, 3, 6, 7])
def test_sums_over_windows_are_those_of_slices(dims: int, window: int) -> None:
    values = maps(5, 4, 8, 8, 8)[(..., *[0] * (3 - dims))].double()
    steps = tuple(8**i for i in range(dims))
    found = ssim._window_sums(values.flatten(1), window, steps)
    free = 9 - window
    for corner in itertools.product(range(free), repeat=dims):
        wanted = values[(slice(None), *(slice(c, c + window) for c in corner))].flatten(1).sum(1)
        place = sum(c * 8 ** (dims - 1 - i) for i, c in enumerate(corner))
        assert torch.allclose(found[:, place], wanted)


def test_maps_at_once_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = maps(6, 5, 1, 12, 12), maps(7, 4, 1, 12, 12)
    whole = [similarity.profile(m, 10) for m in (a, b)]
    wanted = (
        similarity.compare_all(*whole)["ssim"],
        similarity.compare(whole[0][:4], whole[1])["ssim"],
    )
    for size in (1, 200, 290, 460):
        monkeypatch.setattr(ssim, "IN_CACHE", size)
        parts = [similarity.profile(m, 10) for m in (a, b)]
        assert torch.allclose(similarity.compare_all(*parts)["ssim"], wanted[0], atol=1e-6)
        assert torch.allclose(
            similarity.compare(parts[0][:4], parts[1])["ssim"], wanted[1], atol=1e-6
        )
    tied = [similarity.profile(maps(seed, 3, 1, 12, 12, levels=3), 10) for seed in (8, 9)]
    exact = similarity.compare_all(*tied)["jaccard"]
    monkeypatch.setattr(ranks, "COLUMNS", 25)
    assert torch.allclose(similarity.compare_all(*tied)["jaccard"], exact)
    ranked = torch.arange(40.0).repeat(2, 1) - 19.5
    monkeypatch.setattr(similarity, "_exact_columns", lambda ranks: 7)
    assert similarity._dot(ranked, ranked).tolist() == [40 * (40**2 - 1) / 12] * 2
    assert similarity._dots(ranked, -ranked[:1]).tolist() == [[-40 * (40**2 - 1) / 12]] * 2


def test_the_expected_overlap_of_small_lotteries_by_hand() -> None:
    # a draws one of {x, y}, b is sure of x, and both share one sure place of k = 2
    assert ranks.expected_jaccard(2, 1, 1, 0, 0, (1, 1), (0, 0)) == pytest.approx((1 + 1 / 3) / 2)
    # the same places in the same lottery
    assert ranks.expected_jaccard(3, 1, 2, 2, 5, (0, 0), (0, 0)) == 1.0


@pytest.mark.parametrize("k", [1, 2, 3, 4])
def test_a_top_set_has_its_sure_places_and_a_lottery_for_the_rest(k: int) -> None:
    flat = torch.tensor([[3.0, 1.0, 2.0, 2.0, 2.0, 0.0], [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]])
    keys, order = ranks.ranking(flat)
    tied = ranks.top(flat, keys, order, torch.tensor([k, k]), k, "average")
    in_order = ranks.top(flat, keys, order, torch.tensor([k, k]), k, "ordinal")
    for row, values in enumerate(flat):
        edge = values.sort(descending=True).values[k - 1]
        open_places = k - int((values > edge).sum())
        alike = values == edge
        if int(alike.sum()) == open_places:
            assert tied.certain[row].tolist() == (values >= edge).tolist()
            assert int(tied.draws[row]) == 0
        else:
            assert tied.certain[row].tolist() == (values > edge).tolist()
            assert tied.tied[row].tolist() == alike.tolist()
            assert int(tied.draws[row]) == open_places
        # Without a lottery, equal values are taken from the first place on.
        best = np.argsort(-values.numpy(), kind="stable")[:k]
        assert in_order.certain[row].nonzero()[:, 0].tolist() == sorted(best.tolist())


@pytest.mark.parametrize("equal", [0, 1, 2, 30, 40])
def test_middles_of_runs_by_both_ways(equal: int) -> None:
    keys = (
        torch.arange(100).sub(torch.arange(100) % 2 * (torch.arange(100) < 2 * equal)).repeat(2, 1)
    )
    keys[1] = keys[1].sort().values - 3
    wanted = [[(row < key).sum() + ((row == key).sum() - 1) / 2 for key in row] for row in keys]
    assert ranks._middles(keys).tolist() == torch.tensor(wanted).tolist()
    for row, middles in zip(keys.numpy(), wanted, strict=True):
        assert ranks._middles_of_row(row).tolist() == [float(m) for m in middles]


def test_chance_from_references() -> None:
    scores = torch.as_tensor(np.random.default_rng(3).random((3, 4)))
    measured = chance.over_references(scores, ["a", "b", "c", "d"], ["b", "x", "d"])
    by_hand = [scores[:, 0].mean(), scores[1:, 1].mean(), scores[:, 2].mean(), scores[:2, 3].mean()]
    assert torch.allclose(measured.level, torch.stack(by_hand))
    assert measured.counts is not None and measured.counts.tolist() == [3, 4, 3]
    alone = chance.over_references(scores[:1], ["a", "b", "c", "d"], ["c"]).level
    assert alone.isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize("kind", ["image", "series", "table", "volume", "set", "text"])
def test_maps_are_compared_as_their_kind_of_data_is(kind: str) -> None:
    shape = {"image": (2, 1, 12, 12), "series": (2, 1, 40), "volume": (2, 1, 6, 6, 6)}.get(
        kind, (2, 40)
    )
    a, b = maps(1, *shape), maps(1, *shape) + maps(2, *shape) / 3
    usual, four, blind = (
        similarity.compare(*(chance.profile_of(m, kind, **options) for m in (a, b)))
        for options in ({}, {"k": 4}, {"windows": False})
    )
    assert "ssim" not in blind and torch.equal(blind["jaccard"], usual["jaccard"])
    k = 100 if kind == "image" else 0.1
    assert torch.allclose(usual["jaccard"].float(), similarity.jaccard(a, b, k))
    assert torch.allclose(four["jaccard"].float(), similarity.jaccard(a, b, 4))


def test_a_k_as_large_as_a_map_is_refused() -> None:
    chance.check_k(11, (3, 2, 2), "agreement")
    chance.check_k("usual", (3, 2, 2, 2), "agreement")
    for k, shape in (
        (12, (3, 2, 2)),
        (13, (3, 2, 2)),
        ("usual", (1, 10, 10)),
        ("usual", (3, 2, 2)),
    ):
        with pytest.raises(ValueError, match="agreement"):
            chance.check_k(k, shape, "agreement")
    chance.check_k("usual", (1, 10, 11), "agreement")


def test_concentration_of_maps() -> None:
    values = maps(3, 4, 2, 7)
    sizes = values[0].flatten().abs().double()
    apart = (sizes[:, None] - sizes).abs().mean() / (2 * sizes.mean())
    assert float(complexity.gini(values)[0]) == pytest.approx(float(apart))
    share = sizes / sizes.sum()
    assert float(complexity.entropy(values)[0]) == pytest.approx(
        float(-(share * share.log()).sum() / np.log(14))
    )


def test_concentration_of_one_place_and_of_equal_places() -> None:
    single, even = torch.zeros(1, 1, 8), torch.ones(1, 1, 8)
    single[..., 3] = -2.0
    assert float(complexity.gini(single)) == pytest.approx(7 / 8)
    assert float(complexity.gini(even)) == pytest.approx(0, abs=1e-6)
    assert float(complexity.entropy(single)) == pytest.approx(0, abs=1e-6)
    assert float(complexity.entropy(even)) == pytest.approx(1)
    for nothing in (0 * even, even * torch.nan):
        assert bool(complexity.gini(nothing).isnan().all())
        assert bool(complexity.entropy(nothing).isnan().all())


def test_reasons_that_a_map_has_no_score() -> None:
    values = torch.tensor(
        [[1.0, 2.0], [2.0, 2.0], [torch.nan, 1.0], [torch.inf, torch.inf], [1.0, torch.inf]]
    )
    found = undefined.reasons(values, "it")
    assert found[0] == "" and "constant" in found[1]
    assert all("finite" in reason for reason in found[2:])
    assert undefined.reasons(values[:0], "it") == []
    assert similarity.undefined(values).tolist() == [False, True, True, True, True]


def test_extreme_values_are_compared_in_float64() -> None:
    a, b = (maps(seed, 2, 1, 12, 12).double() for seed in (1, 2))
    for name in ("ssim", "spearman"):
        measure = getattr(similarity, name)
        wanted = measure(a, b)
        for factor in (1e-40, 1e40, 1e-29, 1e29):
            assert torch.allclose(measure(a * factor, b), wanted, atol=1e-5), (name, factor)


def test_top_features_by_lottery_and_threshold() -> None:
    values = torch.tensor([[0.5, 0.5, 0.5, 0.1, 0.9, 0.5], [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]])
    free = torch.tensor([[True] * 6, [True, True, True, True, False, False]])
    chosen = masks.top(values, ["a", "b"], free=free, k=4)
    assert chosen.sum(1).tolist() == [4, 4] and not bool((chosen & ~free).any())
    assert chosen[0, 4] and not chosen[0, 3]
    above = masks.top(values, ["a", "b"], free=free, threshold=0.5)
    at_least = [True, True, True, False, True, True]
    assert above.tolist() == [at_least, [True] * 4 + [False] * 2]
    assert torch.equal(
        masks.top(values, ["a", "b"]), masks.top(values, ["a", "b"], fraction=0.25, seed=0)
    )
    assert [int(masks.top(values[:1, :n], ["a"]).sum()) for n in (1, 2, 5, 6)] == [1, 1, 1, 2]
    with pytest.raises(ValueError, match=r"4 features.*'b'"):
        masks.top(values, ["a", "b"], free=free, k=5)
    with pytest.raises(ValueError, match="'b'"):
        masks.top(values.masked_fill(values == 4, torch.nan), ["a", "b"])
    assert (
        masks.top(values.masked_fill(values == 6, torch.nan), ["a", "b"], free=free, k=1)
        .any(1)
        .all()
    )


def whole_offsets(rows: float, columns: float) -> torch.Tensor:
    return torch.tensor([rows, columns]).reshape(1, 2, 1, 1).expand(1, 2, 5, 6)


def test_displaced_maps_are_read_as_scipy_reads_them() -> None:
    values = maps(8, 2, 2, 5, 6)
    elastic = warping.elastic_offsets(rand.keys(0, ["a", "b"], "x"), 2.0, 1.5, 5, 6)
    turns = [warping.rotation_offsets(degrees, 5, 6) for degrees in (30.0, -100.0, 370.0)]
    for offsets in (elastic, *turns):
        moved, valid = warping.resample(values, offsets)
        for sample, channel in np.ndindex(2, 2):
            down, across = offsets[sample if len(offsets) > 1 else 0].numpy()
            grid = np.mgrid[:5, :6] + np.stack([down, across])
            # One row of zeros beyond the border, from which the outermost places borrow.
            padded = np.pad(values[sample, channel].numpy(), 1)
            wanted = ndimage.map_coordinates(padded, grid + 1, order=1, cval=0.0)
            np.testing.assert_allclose(moved[sample, channel].numpy(), wanted, atol=1e-4)
            inside = (grid[0] >= 0) & (grid[0] <= 4) & (grid[1] >= 0) & (grid[1] <= 5)
            far = np.abs(grid - np.array([2, 2.5])[:, None, None])
            near_edge = (np.abs(far[0] - 2) < 1e-3) | (np.abs(far[1] - 2.5) < 1e-3)
            agrees = valid[sample, 0].numpy() == inside
            assert (agrees | near_edge).all()


def test_rotations_turn_back_and_a_quarter_turn_is_that_of_an_array() -> None:
    square = maps(3, 1, 1, 7, 7)
    turned, valid = warping.resample(square, warping.rotation_offsets(90.0, 7, 7))
    assert bool(valid.all())
    quarter = [torch.rot90(square, by, (2, 3)) for by in (1, -1)]
    assert any(torch.allclose(turned, each, atol=1e-4) for each in quarter)
    there, back = (warping.rotation_offsets(degrees, 7, 7) for degrees in (30.0, 390.0))
    torch.testing.assert_close(there, back, atol=1e-4, rtol=0)


def test_elastic_displacements_are_as_large_as_asked_and_drawn_by_sample() -> None:
    offsets = warping.elastic_offsets(rand.keys(0, ["a", "b", "a"], "x"), 2.0, 1.5, 40, 40)
    assert offsets.shape == (3, 2, 40, 40)
    assert torch.equal(offsets[0], offsets[2]) and not torch.equal(offsets[0], offsets[1])
    twice = warping.elastic_offsets(rand.keys(0, ["a", "b", "a"], "x"), 4.0, 1.5, 40, 40)
    torch.testing.assert_close(twice, 2 * offsets)


def test_a_move_by_whole_pixels_is_exact() -> None:
    values = maps(8, 2, 2, 5, 6)
    moved, valid = warping.resample(values, whole_offsets(1.0000004, -2.0))
    assert torch.equal(moved[:, :, :4, 2:], values[:, :, 1:, :4]) and int(valid.sum()) == 2 * 16


@pytest.mark.parametrize(("by", "dim"), [(2, -1), (-3, -2), (0, -1), (6, -1), (7, -2)])
def test_shifts_are_slices_beside_zeros(by: int, dim: int) -> None:
    values = maps(8, 1, 2, 5, 6)
    moved, valid = warping.shift(values, by, dim)
    there = torch.zeros(5, 6, dtype=torch.bool)
    wanted = torch.zeros_like(values)
    for at in np.ndindex(5, 6):
        source = list(at)
        source[dim] -= by
        if 0 <= source[dim] < (5, 6)[dim]:
            wanted[(..., *at)] = values[(..., *source)]
            there[at] = True
    assert torch.equal(moved, wanted) and torch.equal(valid[0, 0], there)


def test_every_plane_of_a_volume_moves_like_an_image() -> None:
    volume, offsets = maps(9, 1, 1, 2, 5, 6), warping.rotation_offsets(30.0, 5, 6)
    moved, valid = warping.resample(volume, offsets)
    for plane in range(2):
        one, where = warping.resample(volume[:, :, plane], offsets)
        assert torch.equal(moved[:, :, plane], one) and torch.equal(valid[:, :, 0], where)

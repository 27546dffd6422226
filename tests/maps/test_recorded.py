"""Whole small things about maps as they were found and looked at; the other files say what is right."""

from __future__ import annotations

import itertools
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
import torch

from heatproof import rand
from heatproof.maps import chance, complexity, masks, ranks, similarity, ssim, undefined, warping
from support.recorded import recorded


def maps(seed: int, *shape: int, levels: int = 0) -> torch.Tensor:
    """Numbers without ties, or of a few levels with many."""
    generator = np.random.default_rng(seed)
    drawn = generator.normal(size=shape) if not levels else generator.integers(0, levels, shape)
    return torch.as_tensor(drawn, dtype=torch.float32)


SHAPES: dict[str, tuple[tuple[int, ...], int | None]] = {
    "image": ((3, 2, 13, 12), None),
    "grey": ((3, 13, 12), None),
    "series": ((3, 2, 15), 1),
    "steps": ((3, 21), None),
    "volume": ((3, 1, 5, 6, 12), 3),
    "row": ((3, 9), 0),
}


@pytest.mark.parametrize("name", SHAPES)
def test_every_measure_of_every_kind_of_map(name: str) -> None:
    shape, dims = SHAPES[name]
    a = maps(0, *shape)
    b = 0.7 * a + 0.5 * maps(1, *shape)
    found: dict[str, Any] = {
        "spearman": similarity.spearman(a, b),
        "cosine": similarity.cosine(a, b),
    }
    found["jaccard"] = [similarity.jaccard(a, b, k) for k in (1, 4, 0.2, 0.05)]
    if dims != 0:
        for window, padding in itertools.product((11, 4, 3), ("zero", "valid")):
            if padding == "zero" or min(shape[-(dims or 2) :]) >= window:
                found[f"ssim {window} {padding}"] = similarity.ssim(a, b, window, padding, dims)
    p, q = (similarity.profile(m, 5, dims=dims) for m in (a, b))
    found["profile"], found["all"] = similarity.compare(p, q), similarity.compare_all(p[:2], q)
    found["fass"] = similarity.composite(found["profile"], (1.0, 2.0, 4.0))
    found["ties"] = [ranks.overlap(p.top, q.top), ranks.overlaps(p.top[1:], q.top)]
    recorded(f"maps/measures_{name}", found)


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


def test_measures_of_tied_and_of_masked_maps() -> None:
    a, b = maps(2, 3, 1, 9, 8, levels=6), maps(3, 3, 1, 9, 8, levels=4)
    valid = torch.ones(3, 1, 9, 8, dtype=torch.bool)
    valid[0, ..., :3] = valid[1, :, :2] = False
    found: dict[str, Any] = {}
    for ties in ("average", "ordinal"):
        found[f"jaccard {ties}"] = [similarity.jaccard(a, b, k, ties) for k in (3, 10, 30, 0.1)]
        found[f"spearman {ties}"] = similarity.spearman(a, b, ties)
        profiles = [similarity.profile(m, 12, ties, valid, 5) for m in (a, b)]
        found[f"masked {ties}"] = similarity.compare(*profiles, 5)
        profiles = [similarity.profile(m, 0.15, ties, valid[:1], 5) for m in (a, b)]
        found[f"one mask {ties}"] = similarity.compare_all(*profiles, 5)
    found["bounds"] = [*similarity.bounds(a, valid), *similarity.bounds(a)]
    found["undefined"] = [similarity.undefined(a.clamp(max=level), valid) for level in (0, 1)]
    recorded("maps/tied", found)


def test_windows_of_maps() -> None:
    values = maps(4, 2, 2, 5, 4)
    low, high = similarity.bounds(values)
    found = {}
    for window, padding, dims in ((3, "zero", 2), (3, "valid", 2), (2, "valid", 1), (3, "zero", 3)):
        made = ssim.windows_of(values, low, high, None, window, padding, dims)
        found[f"{window} {padding} {dims}"] = [
            made.steps,
            made.count,
            made.mean[1],
            made.luminance[0],
            made.contrast[1],
        ]
    recorded("maps/windows", found)


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
        assert torch.allclose(similarity.compare_all(*parts)["ssim"], wanted[0], atol=1e-7)
        assert torch.allclose(
            similarity.compare(parts[0][:4], parts[1])["ssim"], wanted[1], atol=1e-7
        )
    tied = [similarity.profile(maps(seed, 3, 1, 12, 12, levels=3), 10) for seed in (8, 9)]
    exact = similarity.compare_all(*tied)["jaccard"]
    monkeypatch.setattr(ranks, "COLUMNS", 25)
    assert torch.allclose(similarity.compare_all(*tied)["jaccard"], exact)
    ranked = torch.arange(40.0).repeat(2, 1) - 19.5
    monkeypatch.setattr(similarity, "_exact_columns", lambda ranks: 7)
    assert similarity._dot(ranked, ranked).tolist() == [40 * (40**2 - 1) / 12] * 2
    assert similarity._dots(ranked, -ranked[:1]).tolist() == [[-40 * (40**2 - 1) / 12]] * 2


def test_expected_overlaps_of_lotteries() -> None:
    """All small lotteries that one order settles: recorded, and one of them by hand."""
    found = {}
    for slots_a, slots_b, both, a_in, a_out, b_in, b_out in (
        (1, 1, 2, 0, 1, 1, 0), (2, 1, 1, 1, 2, 0, 3), (3, 2, 3, 1, 1, 2, 0), (1, 3, 0, 2, 2, 1, 4),
        (2, 2, 4, 0, 0, 0, 1),
        (20, 3, 10, 4, 20, 2, 9), (17, 18, 12, 3, 30, 2, 9), (16, 4, 9, 4, 20, 2, 9),
    ):  # fmt: skip
        for k, common in ((max(slots_a, slots_b) + 3, 2), (max(slots_a, slots_b) + 1, 0)):
            key = (k, common, slots_a, slots_b, both, (a_in, a_out), (b_in, b_out))
            found[str(key)] = ranks.expected_jaccard(*key)
    recorded("maps/lotteries", found)
    # a draws one of {x, y}, b is sure of x, and both share one sure place of k = 2
    assert ranks.expected_jaccard(2, 1, 1, 0, 0, (1, 1), (0, 0)) == pytest.approx((1 + 1 / 3) / 2)
    # the same places in the same lottery
    assert ranks.expected_jaccard(3, 1, 2, 2, 5, (0, 0), (0, 0)) == 1.0


def test_top_sets_with_ties_at_their_edge() -> None:
    flat = torch.tensor([[3.0, 1.0, 2.0, 2.0, 2.0, 0.0], [5.0, 4.0, 3.0, 2.0, 1.0, 0.0]])
    keys, order = ranks.ranking(flat)
    found = {}
    for ties, k in itertools.product(("average", "ordinal"), ((1, 3), (2, 4), (3, 5), (4, 6))):
        made = ranks.top(flat, keys, order, torch.tensor(k), max(k), ties)
        found[f"{ties} {k}"] = {
            field.name: getattr(made, field.name).int() for field in fields(made)
        }
    found["centred"] = [
        ranks.centred_ranks(keys, order, torch.tensor([4, 6]), ties)
        for ties in ("average", "ordinal")
    ]
    recorded("maps/top", found)


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
    level, above = chance.over_references(scores, ["a", "b", "c", "d"], ["b", "x", "d"])
    by_hand = [scores[:, 0].mean(), scores[1:, 1].mean(), scores[:, 2].mean(), scores[:2, 3].mean()]
    assert torch.allclose(level, torch.stack(by_hand))
    stored = chance.packed(above)
    assert len(stored) == 3 + 4 and torch.allclose(
        torch.as_tensor(chance.unpacked(stored)), above, atol=0.01
    )
    assert chance.packed(torch.zeros(2)) == bytes(6) and chance.unpacked(bytes(6)).tolist() == [
        0,
        0,
    ]
    alone, _ = chance.over_references(scores[:1], ["a", "b", "c", "d"], ["c"])
    assert alone.isnan().tolist() == [False, False, True, False]
    recorded("maps/chance", [level, above, chance.unpacked(stored)])


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
    recorded(f"maps/of_{kind}", usual)


def test_a_k_as_large_as_a_map_is_refused() -> None:
    chance.check_k(11, (3, 2, 2), "agreement")
    chance.check_k("usual", (3, 2, 2, 2), "agreement")
    for k, shape in (
        (12, (3, 2, 2)),
        (13, (3, 2, 2)),
        ("usual", (1, 10, 10)),
        ("usual", (3, 2, 2)),
    ):
        with pytest.raises(ValueError, match="must be below"):
            chance.check_k(k, shape, "agreement")
    chance.check_k("usual", (1, 10, 11), "agreement")


def test_concentration_of_maps() -> None:
    values = maps(3, 4, 2, 7)
    values[2], values[3] = 0.0, torch.nan
    recorded(
        "maps/complexity",
        [
            complexity.gini(values),
            complexity.entropy(values),
            complexity.entropy(values[:, :1, :1]),
        ],
    )
    sizes = values[0].flatten().abs().double()
    apart = (sizes[:, None] - sizes).abs().mean() / (2 * sizes.mean())
    assert float(complexity.gini(values)[0]) == pytest.approx(float(apart))
    share = sizes / sizes.sum()
    assert float(complexity.entropy(values)[0]) == pytest.approx(
        float(-(share * share.log()).sum() / np.log(14))
    )


def test_reasons_that_a_map_has_no_score() -> None:
    values = torch.tensor(
        [[1.0, 2.0], [2.0, 2.0], [torch.nan, 1.0], [torch.inf, torch.inf], [1.0, torch.inf]]
    )
    found = undefined.reasons(values, "it")
    assert (
        found == ["", "it is constant", *["it is not finite"] * 3]
        and undefined.reasons(values[:0], "it") == []
    )
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
    found = {
        str(how): masks.top(values, ["a", "b"], free=free, **how).int()
        for how in (
            {},
            {"fraction": 0.5},
            {"fraction": 0.01},
            {"k": 1},
            {"k": 4},
            {"threshold": 0.5},
            {"k": 3, "seed": 5},
        )
    }
    recorded("maps/top_features", found)
    assert torch.equal(
        masks.top(values, ["a", "b"]), masks.top(values, ["a", "b"], fraction=0.25, seed=0)
    )
    assert [int(masks.top(values[:1, :n], ["a"]).sum()) for n in (1, 2, 5, 6)] == [1, 1, 1, 2]
    with pytest.raises(ValueError, match="more than the 4 features of sample 'b'"):
        masks.top(values, ["a", "b"], free=free, k=5)
    with pytest.raises(ValueError, match="'b'"):
        masks.top(values.masked_fill(values == 4, torch.nan), ["a", "b"])
    assert (
        masks.top(values.masked_fill(values == 6, torch.nan), ["a", "b"], free=free, k=1)
        .any(1)
        .all()
    )


def test_displaced_maps() -> None:
    values = maps(8, 2, 2, 5, 6)
    found: dict[str, Any] = {}
    offsets = {
        f"{degrees}°": warping.rotation_offsets(degrees, 5, 6) for degrees in (30.0, -100.0, 370.0)
    }
    offsets["elastic"] = warping.elastic_offsets(rand.keys(0, ["a", "b"], "x"), 2.0, 1.5, 5, 6)
    offsets["whole"] = torch.tensor([1.0000004, -2.0]).reshape(1, 2, 1, 1).expand(1, 2, 5, 6)
    for name, offset in offsets.items():
        moved, valid = warping.resample(values, offset)
        found[name] = [offset[-1, :, 2], moved[1], valid[:, 0].int()]
    for by, dim in ((2, -1), (-3, -2), (0, -1), (6, -1), (7, -2)):
        moved, valid = warping.shift(values[:1], by, dim)
        found[f"shift {by} {dim}"] = [moved[0, 1], valid[0, 0].int()]
    whole = warping.resample(values, offsets["whole"])
    assert (
        torch.equal(whole[0][:, :, :4, 2:], values[:, :, 1:, :4]) and int(whole[1].sum()) == 2 * 16
    )
    recorded("maps/displaced", found)
    volume = maps(9, 1, 1, 2, 5, 6)
    moved, valid = warping.resample(volume, offsets["30.0°"])
    for plane in range(2):
        one, where = warping.resample(volume[:, :, plane], offsets["30.0°"])
        assert torch.equal(moved[:, :, plane], one) and torch.equal(valid[:, :, 0], where)

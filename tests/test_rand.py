"""Keyed random numbers: right distributions, and a pure function of (seed, id, purpose, index)."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch
from scipy import stats

from heatproof import rand

MANY = 100_000
IDS = [f"{i:04d}" for i in range(100)]

KEYS = [-3886340355219979895, 212777019301554773]
FOLDED = [-5981349071278316221, -1112392010973865146]
BITS = [[4249192135120708619, -1405628218611995618], [-529233292514834399, -7485888606283149603]]
UNIFORM = [[0.8291152119636536, 0.2303491234779358], [0.8607144951820374, 0.9713101983070374]]
INTEGERS = [[5, 4, 5, 2, 7, 7], [0, 2, 2, 8, 6, 0]]
PERMUTATION = [[5, 2, 4, 1, 0, 3], [3, 1, 5, 2, 0, 4]]
NORMAL = [0.07539678364992142, 0.6075422763824463, 0.5388339161872864, -0.09819795191287994]

DRAWS = {
    "bits": lambda key: rand.bits(key, 7),
    "uniform": lambda key: rand.uniform(key, (3, 5)),
    "normal": lambda key: rand.normal(key, (3, 5)),
    "integers": lambda key: rand.integers(key, (7,), 10),
    "permutation": lambda key: rand.permutation(key, 9),
}


def correlation(a: torch.Tensor, b: torch.Tensor) -> float:
    return float(torch.corrcoef(torch.stack([a.flatten().double(), b.flatten().double()]))[0, 1])


@pytest.mark.parametrize("name", DRAWS)
def test_a_draw_depends_on_neither_the_order_nor_the_size_of_the_batch(name):
    draw = DRAWS[name]
    whole = draw(rand.keys(3, IDS, "x"))
    order = torch.randperm(len(IDS), generator=torch.Generator().manual_seed(0)).tolist()
    assert torch.equal(draw(rand.keys(3, [IDS[i] for i in order], "x")), whole[order])
    assert torch.equal(torch.cat([draw(rand.keys(3, [name], "x")) for name in IDS[:5]]), whole[:5])


@pytest.mark.parametrize("name", DRAWS)
def test_an_empty_batch_gives_empty_draws(name):
    found = DRAWS[name](rand.keys(0, [], "x"))
    one = DRAWS[name](rand.keys(0, ["a"], "x"))
    assert found.shape == (0, *one.shape[1:])
    assert found.dtype == one.dtype


@pytest.mark.parametrize(
    ("ids", "each"), [(["a"], MANY), ([f"{i}" for i in range(MANY)], 1), (IDS, MANY // 100)]
)
def test_uniform_draws_are_uniform_and_normal_ones_normal(ids, each):
    key = rand.keys(0, ids, "x")
    u, z = rand.uniform(key, (each,)).flatten(), rand.normal(key, (each,)).flatten()
    assert float(u.min()) > 0 and float(u.max()) < 1
    assert stats.kstest(u.double().numpy(), "uniform").pvalue > 1e-3
    assert stats.kstest(z.double().numpy(), "norm").pvalue > 1e-3


def test_the_two_halves_of_box_and_muller_are_independent():
    z = rand.normal(rand.keys(0, ["a"], "x"), (MANY,))[0]
    assert abs(correlation(z[: MANY // 2], z[MANY // 2 :])) < 4 / (MANY / 2) ** 0.5
    assert abs(correlation(z[: MANY // 2] ** 2, z[MANY // 2 :] ** 2)) < 4 / (MANY / 2) ** 0.5


def test_neighbouring_keys_indices_seeds_and_purposes_are_not_correlated():
    key = rand.keys(0, [f"{i:04d}" for i in range(400)], "x")
    u = rand.uniform(key, (250,))
    other_seed = rand.uniform(rand.keys(1, [f"{i:04d}" for i in range(400)], "x"), (250,))
    other_purpose = rand.uniform(rand.keys(0, [f"{i:04d}" for i in range(400)], "y"), (250,))
    folded = [rand.uniform(rand.fold(key, i), (250,)) for i in (0, 1)]
    adjacent = rand.uniform(key + 1, (250,))  # keys that differ in one bit only
    pairs = {
        "ids": (u[:-1], u[1:]),
        "indices": (u[:, :-1], u[:, 1:]),
        "halves of a word": (u[:, 0::2], u[:, 1::2]),
        "seeds": (u, other_seed),
        "purposes": (u, other_purpose),
        "folds": tuple(folded),
        "a key and its fold": (u, folded[0]),
        "keys one apart": (u, adjacent),
    }
    for what, (a, b) in pairs.items():
        assert abs(correlation(a, b)) < 4 / a.numel() ** 0.5, what


@pytest.mark.parametrize("high", [2, 3, 5, 6, 7, 10])
def test_whole_numbers_are_equally_likely(high):
    drawn = rand.integers(rand.keys(0, IDS, "x"), (1000,), high)
    assert drawn.dtype == torch.int64
    counts = torch.bincount(drawn.flatten(), minlength=high)
    assert len(counts) == high
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_every_order_of_four_is_equally_likely():
    drawn = rand.permutation(rand.keys(0, [f"{i}" for i in range(24_000)], "x"), 4)
    code = (drawn * torch.tensor([64, 16, 4, 1])).sum(1)
    every = torch.tensor([a * 64 + b * 16 + c * 4 + d for a, b, c, d in permutations(range(4))])
    counts = (code[:, None] == every).sum(0)
    assert int(counts.sum()) == 24_000
    assert stats.chisquare(counts.numpy()).pvalue > 1e-3


def test_keys_do_not_collide():
    ids = [f"{i:05d}" for i in range(25_000)]
    found = torch.cat(
        [rand.keys(seed, ids, purpose) for seed in (0, 1) for purpose in ("noise", "lime")]
    )
    assert found.unique().numel() == MANY


def test_parts_of_a_key_do_not_run_into_each_other():
    assert rand.keys(1, ["1"], "x") != rand.keys(11, [""], "x")
    assert rand.keys(0, ["b"], "xa") != rand.keys(0, ["ab"], "x")


def test_folds_differ_from_each_other_and_from_the_key():
    key = rand.keys(0, IDS, "x")
    folded = rand.fold(key[:, None], torch.arange(1000))
    every = torch.cat(
        [key, folded.flatten(), rand.fold(rand.fold(key, 0), 0), rand.fold(rand.fold(key, 0), 1)]
    )
    assert every.unique().numel() == every.numel()
    assert torch.equal(folded[:, 7], rand.fold(key, 7))


def test_the_generator_is_the_one_that_published_numbers_came_from():
    key = rand.keys(0, ["cat", "dog"], "noise")
    assert key.tolist() == KEYS
    assert rand.fold(key, 1).tolist() == FOLDED
    assert rand.bits(key, 2).tolist() == BITS
    assert rand.uniform(key, (2,)).tolist() == UNIFORM
    assert rand.integers(key, (6,), 10).tolist() == INTEGERS
    assert rand.permutation(key, 6).tolist() == PERMUTATION
    # The transform uses log, sqrt, cos and sin, whose last bit may differ between machines.
    assert rand.normal(key, (2,)).flatten().tolist() == pytest.approx(NORMAL, rel=1e-5)


@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_a_word_gives_two_uniform_numbers_of_which_the_low_half_is_the_first(n):
    key = rand.keys(0, ["cat", "dog", "eel"], "x")
    words = [[word % 2**64 for word in row] for row in rand.bits(key, 3).tolist()]
    halves = [[half for word in row for half in (word % 2**32, word >> 32)][:n] for row in words]
    assert rand.uniform(key, (n,)).tolist() == [
        [((half >> 9) + 0.5) / 2**23 for half in row] for row in halves
    ]

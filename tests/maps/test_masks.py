"""From maps to explanations: exact sizes under ties, and what cannot be selected."""

from __future__ import annotations

import pytest
import torch

from heatproof.errors import UserError
from heatproof.features import Patches, Superpixels, Tokens, Windows
from heatproof.maps.masks import select, top
from heatproof.types import Batch


def pictures(n: int, channels: int = 3) -> Batch:
    x = torch.rand(n, channels, 8, 8, generator=torch.Generator().manual_seed(0))
    return Batch(tuple(f"s{i}" for i in range(n)), x)


def test_the_top_quarter_by_mean_over_positions_and_channels() -> None:
    batch = pictures(3)
    maps = torch.randn(batch.x.shape, generator=torch.Generator().manual_seed(1))
    chosen = select(maps, batch, Patches(2))
    means = torch.nn.functional.avg_pool2d(maps.mean(1), 2).flatten(1)
    expected = torch.zeros(3, 16, dtype=torch.bool).scatter(1, means.topk(4).indices, True)
    assert torch.equal(chosen, expected)


def test_sizes_are_exact_under_ties_and_ties_are_drawn_per_sample() -> None:
    batch = pictures(40)
    flat = torch.zeros(batch.x.shape)
    chosen = select(flat, batch, Patches(2), k=5)
    assert (chosen.sum(1) == 5).all()
    assert len({tuple(row) for row in chosen.tolist()}) > 30
    assert chosen.double().mean(0).max() < 0.6, "no feature is preferred"
    alone = select(flat[7:8], batch[7:8], Patches(2), k=5)
    assert torch.equal(alone[0], chosen[7])
    assert not torch.equal(select(flat, batch, Patches(2), k=5, seed=1), chosen)
    values = torch.tensor([[3.0, 1.0, 1.0, 1.0, 0.0]])
    picked = {tuple(top(values, [str(i)], k=2)[0].tolist()) for i in range(60)}
    assert picked == {(True, i == 1, i == 2, i == 3, False) for i in (1, 2, 3)}


def test_threshold_and_other_poolings() -> None:
    x = torch.zeros(1, 1, 4)
    maps = torch.tensor([[[1.0, 1.0, -3.0, 0.0]]])
    batch = Batch(("a",), x)
    assert select(maps, batch, Windows(2), threshold=0.5).tolist() == [[True, False]]
    assert select(maps, batch, Windows(2), threshold=1.5).tolist() == [[False, False]]
    assert select(maps, batch, Windows(2), threshold=1.5, pooling="sum").tolist() == [[True, False]]
    assert select(maps, batch, Windows(2), k=1, pooling="absolute").tolist() == [[False, True]]


def test_numbers_of_features_that_differ() -> None:
    x = torch.zeros(2, 1, 8, 8)
    x[0, :, :, 4:] = 1.0
    batch, grouping = Batch(("two", "one"), x), Superpixels(kernel_size=1.0, max_dist=10.0)
    chosen = select(torch.ones(2, 1, 8, 8), batch, grouping)
    assert chosen.shape == (2, 2) and chosen.sum(1).tolist() == [1, 1] and not chosen[1, 1]


def test_special_tokens_and_padding_are_not_selected() -> None:
    ids = torch.tensor([[1, 7, 8, 9, 6, 2, 0, 0]])
    batch = Batch(("a",), ids, {"attention_mask": (ids > 0).long()})
    chosen = select(torch.ones(1, 8), batch, Tokens(special=(1, 2)), fraction=0.5)
    assert chosen.sum() == 2 and not chosen[0, [0, 5, 6, 7]].any()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"fraction": 0.0}, "fraction"),
        ({"fraction": 1.0}, "fraction"),
        ({"k": 0}, "k"),
        ({"k": 17}, r"16.*'s0'"),
        ({"k": 3, "fraction": 0.5}, "fraction and k"),
        ({"pooling": "men"}, "'mean'"),
    ],
)
def test_mistakes_are_named(options, message: str) -> None:
    with pytest.raises(UserError, match=message):
        select(torch.zeros(1, 3, 8, 8), pictures(1), Patches(2), **options)


def test_a_map_that_is_not_finite_or_does_not_fit_is_named() -> None:
    maps = torch.zeros(2, 3, 8, 8)
    maps[1, 0, 0, 0] = torch.nan
    with pytest.raises(UserError, match=r"'s1'.*finite"):
        select(maps, pictures(2), Patches(2))
    with pytest.raises(UserError, match="maps"):
        select(maps[..., :4], pictures(2), Patches(2))

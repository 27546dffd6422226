"""Parts of groupings: which shapes fit, what is hidden of texts, fills, moved samples, links of superpixels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage
from torch import Tensor, nn

from heatproof import Model, features
from heatproof.errors import UserError
from heatproof.features import fill, superpixels
from heatproof.types import Batch, Moved


def batch(*shape: int, aux: dict[str, Tensor] | None = None, seed: int = 0) -> Batch:
    x = torch.as_tensor(np.random.default_rng(seed).random(shape), dtype=torch.float32)
    return Batch(tuple(f"s{i}" for i in range(shape[0])), x, aux or {})


def scene() -> Tensor:
    """Two smooth pictures (2, 3, 9, 11) without ties."""
    y, x = np.mgrid[:9, :11]
    waves = [
        np.sin(0.3 * y + 0.5 * x * (c + 1) + s) + 0.13 * np.cos(y * x)
        for s in range(2)
        for c in range(3)
    ]
    return torch.as_tensor(
        np.stack(waves).reshape(2, 3, 9, 11) * 0.4 + 0.5, dtype=torch.float32
    ).clamp(0, 1)


@pytest.mark.parametrize(
    ("grouping", "shape", "expected"),
    [
        (features.Patches(3), (1, 1, 4, 3, 7), lambda z, y, x: (z // 3 * 1 + y // 3) * 3 + x // 3),
        (features.Patches(2), (2, 3, 5, 4), lambda y, x: y // 2 * 2 + x // 2),
        (features.Windows(3), (2, 2, 7), lambda x: x // 3),
        (features.Elements(), (2, 3, 2), lambda element, value: element),
        (features.Pixels(), (2, 3, 2, 3), lambda y, x: 3 * y + x),
    ],
    ids=["patches of a volume", "patches", "windows", "elements", "pixels"],
)
def test_labels_are_numbered_by_the_cell_of_each_place(
    grouping: Any, shape: tuple[int, ...], expected: Any
) -> None:
    labels = grouping.segments(batch(*shape))
    assert grouping.total(shape) == int(labels.max()) + 1
    for at in np.ndindex(*labels.shape[1:]):
        assert labels[(slice(None), *at)].tolist() == [expected(*at)] * shape[0]


def test_columns_of_a_table_may_share_a_feature() -> None:
    columns = torch.tensor([[0, 0, 1, 2]])
    grouped = features.Pixels().segments(batch(1, 4, aux={"_columns": columns}))
    assert torch.equal(grouped, columns)


@pytest.mark.parametrize(
    ("grouping", "fits", "not_"),
    [
        (features.Patches(4), [(1, 3, 5, 2), (1, 1, 5, 2, 2)], [(1, 3, 4, 4), (1, 3, 9), (1, 3)]),
        (features.Windows(4), [(1, 3, 5), (1, 5)], [(1, 3, 4), (1, 4), (1, 3, 9, 9)]),
        (
            features.Superpixels(),
            [(1, 3, 5, 2), (1, 1, 5, 2)],
            [(1, 2, 5, 5), (1, 3, 5), (1, 3, 5, 5, 5)],
        ),
        (features.Slic(), [(1, 3, 5, 2), (1, 1, 5, 5, 5)], [(1, 4, 5, 5), (1, 3, 5)]),
        (features.Elements(), [(1, 2, 5)], [(1, 1, 5), (1, 2), (1, 2, 5, 5)]),
        (features.Tokens(), [(1, 2)], [(1, 1), (1, 2, 5)]),
        (features.Pixels(), [(1, 2), (1, 2, 3, 4, 5)], [(2,)]),
    ],
)
def test_shapes_that_just_fit_and_those_that_do_not(
    grouping: Any, fits: list[Any], not_: list[Any]
) -> None:
    for shape in fits:
        grouping.check(shape)
    for shape in not_:
        with pytest.raises(UserError):
            grouping.check(shape)


IDS = torch.tensor([[1, 7, 2, 8, 2, 9, 0], [1, 7, 8, 9, 2, 0, 0]])
ATTENDED = torch.tensor([[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0]])


def test_hidden_tokens_lose_the_attention_or_become_the_mask_token() -> None:
    texts = Batch(("a", "b"), IDS, {"attention_mask": ATTENDED})
    plain = features.Tokens((1,))
    fixed = plain.fixed(texts)
    assert fixed.tolist() == ((IDS == 1) | (ATTENDED == 0)).tolist()
    kept = fixed | (torch.arange(7) % 2 == 0)
    hidden, beside = plain.hide(IDS, {"attention_mask": ATTENDED}, kept)
    assert torch.equal(hidden, IDS)
    assert torch.equal(beside["attention_mask"].bool(), kept & ATTENDED.bool())
    masking = features.Tokens((1, 2), 5)
    fixed = masking.fixed(Batch(("a", "b"), IDS))
    assert fixed.tolist() == ((IDS == 1) | (IDS == 2)).tolist()
    kept = fixed | (torch.arange(7) % 2 == 0)
    hidden, _ = masking.hide(IDS, {}, kept)
    assert torch.equal(hidden, torch.where(kept, IDS, 5))
    assert fill.changeable(masking, Batch(("a", "b"), IDS), 7).tolist() == (~fixed).tolist()


def test_passages_end_with_their_separator_and_are_hidden_whole() -> None:
    texts = Batch(("a", "b"), IDS, {"attention_mask": ATTENDED})
    passages = features.Passages(special=(1,), separators=(2,))
    assert passages.segments(texts).tolist() == [[0, 1, 1, 2, 2, 0, 0], [0, 1, 1, 1, 1, 0, 0]]
    kept = passages.fixed(texts) | torch.tensor([False, False, True])
    _, beside = passages.hide(IDS, {"attention_mask": ATTENDED}, kept)
    assert beside["attention_mask"].tolist() == [[1, 0, 0, 1, 1, 1, 0], [1, 0, 0, 0, 0, 0, 0]]


def test_numbered_passages_become_the_mask_token() -> None:
    numbers = torch.tensor([[0, 1, 1, 2, 2, 3, 3], [0, 1, 1, 1, 1, 2, 0]])
    passages = features.Passages(mask_token=5)
    assert torch.equal(passages.segments(Batch(("a", "b"), IDS, {"_passages": numbers})), numbers)
    kept = torch.tensor([[True, False, True, False]] * 2)
    hidden, _ = passages.hide(IDS, {"_passages": numbers}, kept)
    gone = (numbers == 1) | (numbers == 3)
    assert torch.equal(hidden, torch.where(gone, 5, IDS))


def test_texts_without_any_token_and_floats_in_place_of_ids_are_refused() -> None:
    nothing = torch.zeros(2, 7, dtype=torch.bool)
    with pytest.raises(UserError, match="token"):
        features.Tokens().hide(IDS, {"attention_mask": ATTENDED}, nothing)
    with pytest.raises(UserError, match="token ids"):
        features.Tokens().segments(batch(1, 3))


def test_padding_cannot_be_changed() -> None:
    plain = Batch(("a", "b"), IDS, {"attention_mask": ATTENDED})
    assert fill.changeable(features.Windows(2), plain, 7).tolist() == ATTENDED.bool().tolist()
    assert fill.changeable(features.Windows(2), plain, 4).all()
    assert fill.changeable(features.Pixels(), batch(1, 3), 3).all()


def test_what_takes_the_place_of_features() -> None:
    model, pictures = Model(nn.Flatten(), mean=0.5, std=0.25), batch(2, 2, 4, 6)
    inputs, segments = model.inputs(pictures), features.Patches(2).segments(pictures)
    made = {
        kind: fill.filled(kind, model, pictures, inputs, segments)
        for kind in ("zero", "mean", "blur", 0.75)
    }
    assert not made["zero"].any()
    assert torch.equal(made[0.75], torch.ones_like(inputs))
    means = nn.functional.avg_pool2d(inputs, 2).repeat_interleave(2, 2).repeat_interleave(2, 3)
    torch.testing.assert_close(made["mean"], means)
    torch.testing.assert_close(made["blur"], fill.blurred(inputs))
    for wrong in (True, "black", float("nan"), None):
        with pytest.raises(UserError):
            fill.filled(wrong, model, pictures, inputs, segments)


def test_only_what_is_kept_is_left_of_the_inputs() -> None:
    model, pictures = Model(nn.Flatten(), mean=0.5, std=0.25), batch(2, 2, 4, 6)
    inputs, segments = model.inputs(pictures), features.Patches(2).segments(pictures)
    kept = torch.as_tensor(np.arange(12).reshape(2, 6) % 5 < 2)
    labelled = fill.labelled_inputs("lime", features.Patches(2), model, pictures)
    assert torch.equal(labelled[0], inputs) and torch.equal(labelled[1], segments)
    constant = fill.filled(0.25, model, pictures, inputs, segments)
    found, aux = fill.kept_only(
        features.Patches(2), inputs, constant, {"a": inputs}, kept, segments
    )
    there = kept.gather(1, segments.flatten(1)).reshape(2, 1, 4, 6)
    assert torch.equal(found, torch.where(there, inputs, constant)) and list(aux) == ["a"]


def test_token_ids_have_no_fill() -> None:
    ids = Batch(("a",), torch.tensor([[1, 2, 3]]))
    with pytest.raises(UserError, match=r"lime.*windows"):
        fill.labelled_inputs("lime", features.Windows(2), Model(nn.Flatten()), ids)


@pytest.mark.parametrize("shape", [(1, 2, 40), (1, 1, 32, 48), (1, 1, 16, 24, 20)])
def test_a_blur_is_a_gaussian_filter_of_scipy(shape: tuple[int, ...]) -> None:
    x = batch(*shape).x
    wanted = x.double().numpy()
    for axis, length in enumerate(shape[2:], start=2):
        sigma = length / 16
        reach = int(np.ceil(3 * sigma))
        wanted = ndimage.gaussian_filter1d(wanted, sigma, axis, mode="nearest", radius=reach)
    np.testing.assert_allclose(fill.blurred(x).numpy(), wanted, atol=1e-5)


@pytest.mark.parametrize("shape", [(2, 4), (1, 1, 1, 1, 1, 1)])
def test_tables_have_no_blur(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="blur"):
        fill.blurred(torch.zeros(shape))


def test_sets_are_told_from_series() -> None:
    there = torch.ones(2, 4)
    assert fill.is_set(batch(2, 4, 3, aux={"mask": there})) and fill.is_set(
        batch(2, 4, 3, aux={"adjacency": there})
    )
    assert not fill.is_set(batch(2, 4, 3)) and not fill.is_set(batch(2, 3, 4, aux={"mask": there}))
    assert not fill.is_set(batch(2, 4, 3, 3, aux={"mask": there}))
    assert not fill.is_set(Batch(("a", "b"), torch.ones(2, 4, 3).long(), {"mask": there}))
    with pytest.raises(UserError, match="elements"):
        fill.labels(features.Pixels(), batch(2, 4, 3, aux={"mask": there}), torch.zeros(2, 4, 3))
    vectors = fill.labels(features.Windows(2), batch(2, 4), torch.zeros(2, 4, 3))
    assert vectors[1].tolist() == [[0] * 3, [0] * 3, [1] * 3, [1] * 3]


def test_where_features_of_moved_samples_come_from() -> None:
    pictures = batch(2, 1, 4, 4)

    def turn(by: Tensor, some: Batch) -> Batch:
        return some.with_x(
            torch.stack([x.rot90(int(k), (1, 2)) for x, k in zip(some.x, by, strict=True)])
        )

    turned = Moved(turn, torch.tensor([1, 2]))
    moved = Batch(pictures.ids, pictures.x, moved=turned)
    segments = features.Patches(2).segments(pictures)
    assert fill.origins(pictures, segments, 4).tolist() == [[0, 1, 2, 3]] * 2
    assert fill.origins(moved, segments, 4).tolist() == [[1, 3, 0, 2], [3, 2, 1, 0]]
    assert fill.origins(moved, segments, 6)[:, 4:].tolist() == [[4, 5]] * 2
    torn = segments.clone()
    torn[0, 0, 0] = 3  # patches that are not carried to patches are their own
    assert fill.origins(moved, torn, 4).tolist() == [[0, 1, 2, 3], [3, 2, 1, 0]]


def test_superpixels_take_their_parameters() -> None:
    usual = superpixels.quickshift(scene() * 0.3)
    assert torch.equal(usual, superpixels.quickshift(scene() * 0.3, 4.0, 200.0, 0.2))
    assert torch.equal(usual, features.Superpixels().segments(Batch(("a", "b"), scene() * 0.3)))
    given = features.Superpixels(kernel_size=1.0, max_dist=10.0, ratio=1.0).segments(
        Batch(("a", "b"), scene())
    )
    assert torch.equal(given, superpixels.quickshift(scene(), 1.0, 10.0, 1.0))


def test_superpixels_in_bands_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = (0.2 * superpixels.lab(scene())).contiguous()
    density = superpixels._density(ours, 1.0, 3)
    parent, distance = superpixels._links(ours, density, 3)
    for elements in (1, 30, 64):
        monkeypatch.setattr(superpixels, "_SERIAL_ELEMENTS", elements)
        assert torch.allclose(superpixels._density(ours, 1.0, 3), density)
        again = superpixels._links(ours, density, 3)
        assert torch.equal(again[0], parent) and torch.equal(again[1], distance)


@pytest.mark.parametrize("radius", [1, 2, 5])
def test_links_are_those_of_brute_force(radius: int) -> None:
    ours = (0.2 * superpixels.lab(scene())).contiguous()
    density = superpixels._density(ours, radius / 3, radius)
    parent, distance = superpixels._links(ours, density, radius)
    height, width = density.shape[1:]
    for picture in range(2):
        z, dense = ours[picture], density[picture]
        for y, x in np.ndindex(height, width):
            near = [
                (
                    float((z[:, y, x] - z[:, v, u]).square().sum()) + (y - v) ** 2 + (x - u) ** 2,
                    v * width + u,
                )
                for v in range(max(0, y - radius), min(height, y + radius + 1))
                for u in range(max(0, x - radius), min(width, x + radius + 1))
                if (float(dense[v, u]), y * width + x) > (float(dense[y, x]), v * width + u)
            ]
            best, place = min(near, default=(float("inf"), y * width + x))
            assert float(distance[picture, y * width + x]) == pytest.approx(best)
            assert int(parent[picture, y * width + x]) == place


def test_slic_takes_its_parameters_and_volumes() -> None:
    pytest.importorskip("skimage")
    pictures = batch(1, 3, 20, 20)
    labels = features.Slic().segments(pictures)
    assert torch.equal(labels, superpixels.slic(pictures.x, 50, 10.0)) and torch.equal(
        labels, superpixels.slic(pictures.x)
    )
    assert not torch.equal(labels, superpixels.slic(pictures.x, 50, 20.0))
    assert superpixels.slic(batch(1, 1, 4, 8, 8).x, 5).shape == (1, 4, 8, 8)

"""Groupings, fills and superpixels as they were found and looked at; the other file says what is right."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heatproof import Model, features
from heatproof.errors import UserError
from heatproof.features import fill, superpixels
from heatproof.types import Batch, Moved
from support.recorded import recorded


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


def test_labels_of_every_grouping_and_its_defaults() -> None:
    found: dict[str, Any] = {str(kind()): None for kind in features.GROUPINGS.values()}
    for grouping, shape in (
        (features.Pixels(), (2, 3, 2, 3)), (features.Pixels(), (2, 4)), (features.Pixels(), (1, 2, 5)),
        (features.Patches(2), (1, 3, 5, 4)), (features.Patches(3), (1, 1, 4, 3, 7)), (features.Windows(3), (2, 2, 7)),
        (features.Windows(2), (1, 5)), (features.Elements(), (1, 3, 2)),
    ):  # fmt: skip
        labels = grouping.segments(batch(*shape))
        assert grouping.total(shape) == int(labels.max()) + 1 and torch.equal(labels[0], labels[-1])
        found[f"{grouping} {shape}"] = labels[0]
    columns = torch.tensor([[0, 0, 1, 2]])
    assert (
        features.Pixels().segments(batch(1, 4, aux={"_columns": columns})).tolist()
        == columns.tolist()
    )
    recorded("features/labels", found)


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


def test_tokens_and_passages() -> None:
    ids = torch.tensor([[1, 7, 2, 8, 2, 9, 0], [1, 7, 8, 9, 2, 0, 0]])
    attended = torch.tensor([[1, 1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 0, 0]])
    found: dict[str, Any] = {}
    for grouping, aux in (
        (features.Tokens((1,)), {"attention_mask": attended}),
        (features.Tokens((1, 2), 5), {}),
        (features.Passages(special=(1,), separators=(2,)), {"attention_mask": attended}),
        (
            features.Passages(mask_token=5),
            {"_passages": torch.tensor([[0, 1, 1, 2, 2, 3, 3], [0, 1, 1, 1, 1, 2, 0]])},
        ),
    ):
        texts = Batch(("a", "b"), ids, aux)
        segments, always = grouping.segments(texts), grouping.fixed(texts)
        n = always.shape[1]
        kept = always | (torch.arange(n) % 2 == 0)
        hidden, beside = grouping.hide(ids, aux, kept)
        found[str(grouping)] = {
            "segments": segments,
            "fixed": always.int(),
            "hidden": hidden,
            "aux": beside,
        }
        found[str(grouping)]["changeable"] = fill.changeable(grouping, texts, n).int()
    recorded("features/tokens", found)
    with pytest.raises(UserError, match="without any token"):
        features.Tokens().hide(
            ids, {"attention_mask": attended}, torch.zeros(2, 7, dtype=torch.bool)
        )
    with pytest.raises(UserError, match="integer token ids"):
        features.Tokens().segments(batch(1, 3))
    plain = Batch(("a", "b"), ids, {"attention_mask": attended})
    assert fill.changeable(features.Windows(2), plain, 7).tolist() == attended.bool().tolist()
    assert (
        fill.changeable(features.Windows(2), plain, 4).all()
        and fill.changeable(features.Pixels(), batch(1, 3), 3).all()
    )


def test_what_takes_the_place_of_features() -> None:
    model, pictures = Model(nn.Flatten(), mean=0.5, std=0.25), batch(2, 2, 4, 6)
    inputs, segments = model.inputs(pictures), features.Patches(2).segments(pictures)
    found = {
        str(kind): fill.filled(kind, model, pictures, inputs, segments)[1]
        for kind in ("zero", "mean", "blur", 0.75)
    }
    found["long"] = fill.blurred(batch(1, 1, 40).x)
    found["volume"] = fill.blurred(batch(1, 1, 2, 3, 4).x)
    found["smoothed"] = fill.smoothed(batch(1, 1, 3, 7).x, 1.5, 2, 3)
    kept = torch.as_tensor(np.arange(12).reshape(2, 6) % 5 < 2)
    made = fill.ground("lime", features.Patches(2), 0.25, model, pictures)
    assert torch.equal(made.inputs, inputs) and torch.equal(made.segments, segments)
    both = fill.kept_only(features.Patches(2), inputs, made.fill, {"a": inputs}, kept, segments)
    found["kept"], wanted = (
        both[0][1],
        torch.stack(
            [
                features.keep(inputs[i], made.fill[i], kept[i : i + 1], segments[i])[0]
                for i in range(2)
            ]
        ),
    )
    assert torch.equal(both[0], wanted) and list(both[1]) == ["a"]
    recorded("features/fills", found)
    for kind in (True, "black", float("nan"), None):
        with pytest.raises(UserError):
            fill.filled(kind, model, pictures, inputs, segments)
    with pytest.raises(UserError, match="token ids have none"):
        fill.ground(
            "lime",
            features.Windows(2),
            "zero",
            Model(nn.Flatten()),
            Batch(("a",), torch.tensor([[1, 2, 3]])),
        )
    for shape in ((2, 4), (1, 1, 1, 1, 1, 1)):
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


def test_colours_and_superpixels() -> None:
    colours = superpixels.lab(torch.cat([scene()[:1, :, :2, :3], torch.full((1, 3, 2, 3), 0.02)]))
    found: dict[str, Any] = {"lab": colours, "grey": superpixels.lab(scene()[:1, :1, :1, :4])}
    ours = 0.2 * superpixels.lab(scene())
    density = superpixels._density(ours, 1.0, 3)
    found["density"] = density[0, ::3]
    found["parent"], found["distance"] = superpixels._links(ours.contiguous(), density, 3)
    for kernel, far, ratio in ((1.0, 10.0, 0.2), (0.5, 1.5, 0.2), (1.0, 10.0, 1.0)):
        found[f"{kernel} {far} {ratio}"] = superpixels._segments(
            ratio * superpixels.lab(scene()), kernel, far
        )
        again = superpixels.quickshift(scene(), kernel, far, ratio)
        assert torch.equal(again, found[f"{kernel} {far} {ratio}"])
    recorded("features/superpixels", found)
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


def test_slic_has_the_defaults_that_it_says() -> None:
    pytest.importorskip("skimage")
    pictures = batch(1, 3, 20, 20)
    labels = features.Slic().segments(pictures)
    assert torch.equal(labels, superpixels.slic(pictures.x, 50, 10.0)) and torch.equal(
        labels, superpixels.slic(pictures.x)
    )
    assert not torch.equal(labels, superpixels.slic(pictures.x, 50, 20.0))
    assert superpixels.slic(batch(1, 1, 4, 8, 8).x, 5).shape == (1, 4, 8, 8)


def test_pooled_and_averaged_maps() -> None:
    x, segments = batch(2, 3, 4, 4).x, features.Patches(3).segments(batch(2, 3, 4, 4))
    pooled = features.pool(x, segments, 5)
    for i, label in np.ndindex(2, 5):
        assert float(pooled[i, label]) == pytest.approx(
            float(x[i][:, segments[i] == label].sum()), rel=1e-5
        )
    means = features.segment_means(x, segments)
    for i, c, label in np.ndindex(2, 3, 4):
        assert torch.allclose(
            means[i, c][segments[i] == label], x[i, c][segments[i] == label].mean()
        )
    flat = features.pool(x[:, 0], segments, 4)
    assert torch.allclose(features.spread(flat, segments)[0, 0, 0], x[0, 0, :3, :3].sum())

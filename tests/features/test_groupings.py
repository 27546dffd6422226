"""Groupings of inputs into features, and the superpixels behind two of them."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from torch import Tensor

from heatproof import features
from heatproof.errors import UserError
from heatproof.features import GROUPINGS, Patches, Pixels, Slic, Superpixels, Windows
from heatproof.features.superpixels import lab, quickshift, slic
from heatproof.types import Batch


def random_batch(*shape: int, seed: int = 0) -> Batch:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(seed))
    return Batch(ids=tuple(f"s{i}" for i in range(shape[0])), x=x)


def photographs(size: int) -> Tensor:
    data = pytest.importorskip("skimage.data")
    images = [
        torch.from_numpy(load()).permute(2, 0, 1)[None] / 255
        for load in (data.astronaut, data.chelsea)
    ]
    resized = [
        torch.nn.functional.interpolate(i, (size, size), mode="bilinear", antialias=True)
        for i in images
    ]
    return torch.cat(resized).clamp(0, 1)


@pytest.mark.parametrize("name", sorted(GROUPINGS))
def test_labels_run_from_zero_without_gaps_in_each_sample(name: str) -> None:
    batch = Batch(ids=("a", "b"), x=photographs(40))
    shape = batch.x.shape[2:]
    if name == "labels":
        pytest.skip("the labels are those that a user gives")
    if name == "windows":
        batch, shape = random_batch(3, 2, 50), torch.Size((50,))
    elif name == "elements":
        batch, shape = random_batch(3, 5, 2), torch.Size((5, 2))
    elif name == "tokens":
        batch, shape = Batch(("a", "b"), torch.arange(10).reshape(2, 5)), torch.Size((5,))
    elif name == "passages":
        aux = {
            "_passages": torch.tensor([[1, 1, 2, 2, 0], [0, 1, 2, 3, 3]]),
            "attention_mask": torch.ones(2, 5),
        }
        batch, shape = Batch(("a", "b"), torch.arange(10).reshape(2, 5), aux), torch.Size((5,))
    labels = GROUPINGS[name]().segments(batch)
    assert labels.dtype == torch.int64 and labels.shape == (len(batch), *shape)
    for sample in labels:
        assert sample.unique().tolist() == list(range(int(sample.max()) + 1))
    known = GROUPINGS[name]().total(batch.x.shape)
    assert known is None or features.count(labels).tolist() == [known] * len(batch)


@pytest.mark.parametrize(
    ("height", "width", "size"), [(6, 9, 4), (8, 8, 4), (5, 3, 1), (7, 16, 16)]
)
def test_patches_are_a_grid_whose_last_cells_are_smaller(
    height: int, width: int, size: int
) -> None:
    labels = Patches(size=size).segments(random_batch(1, 3, height, width))[0]
    columns = -(-width // size)
    expected = [[(r // size) * columns + c // size for c in range(width)] for r in range(height)]
    assert labels.tolist() == expected


def test_windows_and_pixels_on_series_and_columns() -> None:
    assert Windows(size=3).segments(random_batch(2, 4, 7)).tolist() == [[0, 0, 0, 1, 1, 1, 2]] * 2
    assert Windows(size=3).segments(random_batch(1, 4)).tolist() == [[0, 0, 0, 1]]
    assert Pixels().segments(random_batch(1, 3)).tolist() == [[0, 1, 2]]


def test_pool_and_spread_against_loops() -> None:
    batch = random_batch(2, 3, 5, 6)
    labels = torch.tensor(np.random.default_rng(0).integers(0, 4, (2, 5, 6)))
    pooled = features.pool(batch.x, labels, 5)
    means = features.segment_means(batch.x, labels)
    for i in range(2):
        for feature in range(5):
            inside = labels[i] == feature
            torch.testing.assert_close(pooled[i, feature], batch.x[i, :, inside].sum())
            if inside.any():
                expected = batch.x[i, :, inside].mean(1, keepdim=True)
                torch.testing.assert_close(
                    means[i][:, inside], expected.expand(-1, int(inside.sum()))
                )
    values = torch.arange(10.0).reshape(2, 5)
    spread = features.spread(values, labels)
    assert all(
        spread[i, r, c] == values[i, labels[i, r, c]]
        for i in range(2)
        for r in range(5)
        for c in range(6)
    )


def test_keep_takes_exactly_the_input_or_exactly_the_fill() -> None:
    x, fill = random_batch(2, 3, 5, 6).x
    labels = Patches(size=2).segments(random_batch(1, 3, 5, 6))[0]
    kept = torch.rand(7, 9, generator=torch.Generator().manual_seed(1)) < 0.5
    expected = torch.where(kept[:, labels][:, None], x, fill)
    assert torch.equal(features.keep(x, fill, kept, labels), expected)


def test_lab_agrees_with_scikit_image() -> None:
    color = pytest.importorskip("skimage.color")
    images = photographs(32)
    ours = lab(images).permute(0, 2, 3, 1).numpy()
    np.testing.assert_allclose(
        ours, color.rgb2lab(images.double().permute(0, 2, 3, 1).numpy()), atol=1e-8
    )


@pytest.mark.parametrize("max_dist", [200.0, 8.0])
def test_quickshift_agrees_with_scikit_image(max_dist: float) -> None:
    segmentation = pytest.importorskip("skimage.segmentation")
    metrics = pytest.importorskip("sklearn.metrics")
    images = photographs(128)
    ours = quickshift(images, 4, max_dist, 0.2)
    for image, labels in zip(images, ours, strict=True):
        theirs = segmentation.quickshift(
            image.permute(1, 2, 0).double().numpy(),
            kernel_size=4,
            max_dist=max_dist,
            ratio=0.2,
            rng=42,
        )
        assert metrics.adjusted_rand_score(theirs.ravel(), labels.flatten().numpy()) > 0.99
        assert abs(int(labels.max()) - theirs.max()) <= 0.02 * (theirs.max() + 1)


def quickshift_by_loops(
    image: Tensor, kernel_size: float, max_dist: float, ratio: float
) -> list[int]:
    _, height, width = image.shape
    rows, columns = np.divmod(np.arange(height * width), width)
    z = np.column_stack(
        [(ratio * lab(image[None])[0]).permute(1, 2, 0).reshape(-1, 3).numpy(), rows, columns]
    )
    squared = ((z[:, None] - z[None]) ** 2).sum(2)
    radius = int(np.ceil(3 * kernel_size))
    window = (abs(rows[:, None] - rows) <= radius) & (abs(columns[:, None] - columns) <= radius)
    density = np.round(np.where(window, np.exp(-squared / (2 * kernel_size**2)), 0).sum(1), 6)
    root = []
    for pixel in range(len(z)):
        here = pixel
        while True:
            ahead = [(-density[q], q) < (-density[here], here) for q in range(len(z))]
            allowed = [
                q
                for q in range(len(z))
                if ahead[q] and window[here, q] and squared[here, q] <= max_dist**2
            ]
            if not allowed:
                break
            here = min(allowed, key=lambda q: (squared[here, q], q))
        root.append(here)
    order = sorted(set(root))
    return [order.index(r) for r in root]


@pytest.mark.parametrize(
    ("shape", "max_dist"),
    [((3, 9, 7), 200.0), ((3, 9, 7), 3.0), ((1, 4, 11), 2.0), ((3, 9, 7), 1.0)],
)  # the last reaches from pixel to pixel where colours are the same, and no farther
def test_quickshift_agrees_with_brute_force_on_flat_and_rough_images(
    shape: tuple[int, ...], max_dist: float
) -> None:
    image = random_batch(1, *shape).x[0]
    image[:, 1:4] = 0.25
    ours = quickshift(image[None], 1.0, max_dist, 0.3)
    assert ours.flatten().tolist() == quickshift_by_loops(image, 1.0, max_dist, 0.3)


def test_superpixels_of_an_image_do_not_depend_on_its_neighbours() -> None:
    images = torch.cat([photographs(48), random_batch(2, 3, 48, 48).x])
    together = quickshift(images)
    assert torch.equal(quickshift(images.flip(0)), together.flip(0))
    assert all(
        torch.equal(quickshift(images[i : i + 1])[0], together[i]) for i in range(len(images))
    )


def test_a_flat_image_is_one_superpixel_and_grey_counts_as_rgb() -> None:
    assert quickshift(torch.full((1, 3, 40, 50), 0.7)).unique().tolist() == [0]
    grey = photographs(40)[:, :1]
    assert torch.equal(quickshift(grey), quickshift(grey.expand(-1, 3, -1, -1)))


def test_slic_is_scikit_image_numbered_without_gaps() -> None:
    segmentation = pytest.importorskip("skimage.segmentation")
    images = photographs(64)
    for image, labels in zip(images, slic(images, 20, 10.0), strict=True):
        theirs = segmentation.slic(
            image.permute(1, 2, 0).double().numpy(), n_segments=20, compactness=10.0
        )
        assert (
            labels.tolist()
            == np.unique(theirs, return_inverse=True)[1].reshape(theirs.shape).tolist()
        )


def test_slic_without_scikit_image_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("skimage", "skimage.segmentation"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(UserError, match=r"heatproof\[superpixels\]"):
        Slic().check((1, 3, 32, 32))
    with pytest.raises(UserError, match=r"heatproof\[superpixels\]"):
        Slic().segments(random_batch(1, 3, 32, 32))


@pytest.mark.parametrize(
    ("grouping", "shape", "message"),
    [
        (Patches(), (1, 3, 100), "images"),
        (Patches(size=32), (1, 3, 28, 28), "28"),
        (Windows(), (1, 3, 8, 8), "patches"),
        (Windows(size=20), (1, 3, 20), "20"),
        (Superpixels(), (1, 4, 8, 8), "4"),
        (Slic(), (1, 12), "images"),
        (Pixels(), (5,), "features"),
    ],
)
def test_a_shape_that_does_not_fit_is_named(
    grouping: features.Grouping, shape: tuple[int, ...], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        grouping.check(shape)


def test_groupings_by_name() -> None:
    assert features.grouping("superpixels") == Superpixels()
    assert features.grouping({"slic": {"n_segments": 9}}) == Slic(n_segments=9)
    assert features.grouping({"slic": None}) == Slic()
    assert features.grouping({"name": "patches", "size": 4}) == Patches(size=4)
    with pytest.raises(UserError, match="'patches'"):
        features.grouping("pathces")


def test_elements_are_pooled_and_hidden_whole_and_padding_is_fixed() -> None:
    batch = Batch(
        ("a",),
        torch.tensor([[[1.0, 2.0], [3.0, 4.0], [0.0, 0.0]]]),
        {"mask": torch.tensor([[1, 1, 0]])},
    )
    elements = features.Elements()
    labels = elements.segments(batch)
    assert features.pool(batch.x, labels, 3).tolist() == [[3.0, 7.0, 0.0]]
    kept = features.keep(
        batch.x[0], torch.zeros(3, 2), torch.tensor([[True, False, True]]), labels[0]
    )
    assert kept.tolist() == [[[1.0, 2.0], [0.0, 0.0], [0.0, 0.0]]]
    assert elements.fixed(batch).tolist() == [[False, False, True]]
    with pytest.raises(UserError, match="sets and graphs"):
        elements.check((1, 3, 8, 8))

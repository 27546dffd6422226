"""Imputers: the linear system against a sparse direct solve, and laws that every imputer obeys."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch
from scipy import ndimage
from scipy.sparse import coo_matrix
from scipy.sparse.linalg import spsolve

from heatproof import removal
from heatproof.errors import BadParameter, UserError, make
from heatproof.rand import keys, normal
from heatproof.removal import IMPUTERS
from heatproof.removal.harmonic.linear import banded, interpolated
from heatproof.removal.harmonic.multigrid import fill, framed, gathered, pixels, spread

EVERY = {
    "zero": removal.Zero(),
    "value": removal.Value(value=0.25),
    "dataset_mean": removal.DatasetMean(mean=(0.5, 0.4, 0.3)),
    "image_mean": removal.ImageMean(),
    "blur": removal.Blur(sigma=2.0),
    "noise": removal.UniformNoise(),
    "noisy_linear": removal.NoisyLinear(),
    "noisy_linear_published": removal.imputers.PublishedNoisyLinear(),
}
KINDS = ("random", "blob", "one kept", "one removed")


def pictures(n: int, channels: int, height: int, width: int, seed: int = 0) -> torch.Tensor:
    return torch.rand(n, channels, height, width, generator=torch.Generator().manual_seed(seed))


def mask(kind: str, height: int, width: int, removed: float, seed: int = 0) -> torch.Tensor:
    """(H, W), True where kept: scattered or clustered removal of a share, or one pixel kept or removed."""
    draw = torch.rand(height, width, generator=torch.Generator().manual_seed(seed)).numpy()
    if kind == "blob":
        draw = ndimage.gaussian_filter(draw, max(height, width) / 12, mode="nearest")
    order = draw.ravel().argsort()
    gone = {"one kept": height * width - 1, "one removed": 1}.get(
        kind, round(removed * height * width)
    )
    keep = np.ones(height * width, dtype=bool)
    keep[order[:gone]] = False
    return torch.from_numpy(keep.reshape(height, width))


def direct(x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
    """One image (C, H, W) by a sparse direct solve of the equations as the paper writes them, pixel by pixel."""
    image, kept = x.double().numpy(), keep.numpy()
    height, width = kept.shape
    unknowns = {
        (int(i), int(j)): k for k, (i, j) in enumerate(zip(*np.nonzero(~kept), strict=True))
    }
    entries, right = [], np.zeros((len(unknowns), len(image)))
    for (i, j), k in unknowns.items():
        diagonal = 0.0
        for di, dj in itertools.product((-1, 0, 1), repeat=2):
            near = (i + di, j + dj)
            if (di or dj) and 0 <= near[0] < height and 0 <= near[1] < width:
                weight = 1 / 12 if di and dj else 1 / 6
                diagonal += weight
                if near in unknowns:
                    entries.append((k, unknowns[near], -weight))
                else:
                    right[k] += weight * image[:, near[0], near[1]]
        entries.append((k, k, diagonal))
    rows, columns, values = zip(*entries, strict=True)
    matrix = coo_matrix((values, (rows, columns)), shape=(len(unknowns),) * 2).tocsc()
    solved = image.copy()
    solved[:, ~kept] = spsolve(matrix, right).reshape(len(unknowns), -1).T
    return torch.from_numpy(solved)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("channels", "height", "width"), [(3, 40, 40), (1, 47, 33), (5, 16, 90), (2, 2, 150), (1, 9, 9)]
)
def test_multigrid_agrees_with_a_sparse_direct_solve(kind, channels, height, width):
    for removed in (0.3, 0.9):
        x, keep = pictures(1, channels, height, width), mask(kind, height, width, removed)[None]
        reference = direct(x[0], keep[0])
        rough, steps = fill(x, keep, 1e-5)
        strict, _ = fill(x.double(), keep, 1e-10)
        assert (rough[0] - reference).abs().max() < 1e-3
        assert (strict[0] - reference).abs().max() < 1e-6
        assert steps.max() <= 8


@pytest.mark.parametrize("removed", [0.1, 0.5, 0.7])
@pytest.mark.parametrize(
    ("channels", "height", "width"), [(3, 40, 40), (1, 47, 33), (5, 16, 91), (2, 6, 50)]
)
def test_scattered_pixels_need_no_coarse_levels(removed, channels, height, width):
    x, keep = pictures(1, channels, height, width), mask("random", height, width, removed)[None]
    reference = direct(x[0], keep[0])
    assert (fill(x, keep, 1e-5, scattered=True)[0][0] - reference).abs().max() < 1e-3
    assert (fill(x.double(), keep, 1e-10, scattered=True)[0][0] - reference).abs().max() < 1e-6


def test_an_image_with_scattered_pixels_and_a_hole_is_solved():
    x, keep = pictures(1, 3, 128, 128), torch.zeros(1, 128, 128, dtype=torch.bool)
    keep[0, :, :64] = (torch.arange(128)[:, None] + torch.arange(64)) % 2 == 0
    keep[0, 40:80, 5:45] = False
    assert (interpolated(x, keep, 1e-5)[0] - direct(x[0], keep[0])).abs().max() < 1e-3


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("channels", "height", "width"), [(3, 20, 20), (1, 7, 31), (4, 25, 6), (2, 1, 40), (1, 40, 1)]
)
def test_banded_cholesky_agrees_with_a_sparse_direct_solve(kind, channels, height, width):
    for removed in (0.3, 0.9):
        x, keep = pictures(1, channels, height, width)[0], mask(kind, height, width, removed)
        values = torch.from_numpy(banded(x.double().numpy(), keep.numpy()))
        assert (values - direct(x, keep)[:, ~keep]).abs().max() < 1e-9


@pytest.mark.parametrize(
    ("kind", "removed", "size"),
    [
        ("random", 0.5, 224),
        ("random", 0.7, 112),
        ("blob", 0.9, 112),
        ("one kept", 1.0, 112),
        ("blob", 0.1, 112),
    ],
)
def test_the_default_tolerance_is_below_a_thousandth_and_a_strict_one_below_a_millionth(
    kind, removed, size
):
    x, keep = pictures(1, 3, size, size), mask(kind, size, size, removed)[None]
    reference = direct(x[0], keep[0])
    assert (removal.NoisyLinear(sigma=0.0)(x, keep)[0] - reference).abs().max() < 1e-3
    strict = removal.NoisyLinear(sigma=0.0, tolerance=1e-9)(x, keep)
    assert strict.dtype == torch.float32
    assert (strict[0] - reference).abs().max() < 1e-6


def test_transfers_are_adjoint_and_reproduce_constants():
    fine, coarse = (framed(pictures(1, 1, *size).double()) for size in ((23, 30), (12, 15)))
    constant = pixels(spread(framed(torch.ones(1, 1, 12, 15)), fine.shape), torch.zeros(23, 30))
    assert (constant[..., 1:-1, 1:-1] == 16).all()
    assert constant[0, 0, 0, 0] == 9
    there, back = spread(coarse, fine.shape), gathered(fine)
    assert torch.allclose((there * fine).sum(), (coarse * back).sum(), rtol=1e-12)


def test_a_series_is_a_straight_line_between_kept_points():
    x, keep = (
        pictures(3, 2, 1, 300)[:, :, 0],
        torch.stack([mask("random", 1, 300, 0.8, s)[0] for s in range(3)]),
    )
    filled = removal.NoisyLinear(sigma=0.0)(x, keep)
    for i, c in itertools.product(range(3), range(2)):
        there = keep[i].nonzero()[:, 0].numpy()
        line = np.interp(np.arange(300), there, x[i, c].numpy()[there])
        assert np.abs(filled[i, c].numpy() - line).max() < 1e-5


def test_a_constant_image_stays_constant():
    keep = mask("blob", 100, 100, 0.9)[None]
    filled = removal.NoisyLinear(sigma=0.0)(torch.full((1, 3, 100, 100), 0.3), keep)
    assert (filled - 0.3).abs().max() < 1e-6


def test_nothing_removed_gives_the_image_back():
    x = pictures(2, 3, 9, 9)
    for imputer in EVERY.values():
        assert torch.equal(imputer(x, torch.ones(2, 9, 9, dtype=torch.bool), None, 0), x)


@pytest.mark.parametrize(("name", "size"), [*((name, 12) for name in EVERY), ("noisy_linear", 100)])
def test_batch_size_and_order_do_not_matter(name, size):
    n = 64 if size == 12 else 5
    x = pictures(n, 3, size, size)
    keep = torch.stack([mask(KINDS[i % 2], size, size, 0.1 + 0.8 * i / n, i) for i in range(n)])
    ids = tuple(f"id{i}" for i in range(n))
    together = EVERY[name](x, keep, ids, 7)
    back = EVERY[name](x.flip(0), keep.flip(0), ids[::-1], 7).flip(0)
    single = torch.cat(
        [EVERY[name](x[i : i + 1], keep[i : i + 1], ids[i : i + 1], 7) for i in range(n)]
    )
    assert torch.allclose(together, single, rtol=0, atol=2e-7)
    assert torch.allclose(together, back, rtol=0, atol=2e-7)


def test_images_solved_together_do_not_disturb_each_other():
    x = pictures(4, 2, 40, 44)
    cases = [("one removed", 0), ("random", 0.5), ("blob", 0.9), ("one kept", 0)]
    keep = torch.stack([mask(kind, 40, 44, removed) for kind, removed in cases])
    together, steps = fill(x, keep, 1e-5)
    assert steps.max() > steps.min() + 2  # so that some wait, frozen, for others
    for i in range(4):
        alone, own_steps = fill(x[i : i + 1], keep[i : i + 1], 1e-5)
        assert torch.equal(own_steps[0], steps[i])
        assert (together[i] - alone[0]).abs().max() < 1e-6


@pytest.mark.parametrize("name", EVERY)
@pytest.mark.parametrize("shape", [(2, 3, 10, 10), (2, 3, 60, 71), (2, 3, 25), (2, 3, 1, 6)])
def test_kept_pixels_are_returned_exactly_and_removed_ones_unread(name, shape):
    generator = torch.Generator().manual_seed(3)
    x, keep = (
        torch.rand(shape, generator=generator),
        torch.rand(shape[0], *shape[2:], generator=generator) > 0.6,
    )
    keep[..., 0] = True
    imputer = EVERY[name]
    filled = imputer(x, keep, ("a", "b"), 5)
    everywhere = keep[:, None].expand_as(x)
    assert filled.shape == x.shape and filled.dtype == x.dtype
    assert torch.equal(filled[everywhere], x[everywhere])
    assert not torch.equal(filled, x)
    other = torch.where(everywhere, x, torch.rand(shape, generator=generator))
    assert torch.equal(imputer(other, keep, ("a", "b"), 5), filled) is not (
        name in ("image_mean", "blur")
    )


@pytest.mark.parametrize("name", ["noise", "noisy_linear"])
def test_nested_masks_share_their_draws(name):
    x, ids = pictures(1, 3, 30, 30), ("cat",)
    small, large = mask("random", 30, 30, 0.3)[None], mask("random", 30, 30, 0.7)[None]
    assert not (large & ~small).any()
    quiet = {
        "noise": lambda keep: 0,
        "noisy_linear": lambda keep: removal.NoisyLinear(sigma=0.0)(x, keep),
    }[name]
    drawn = [EVERY[name](x, keep, ids, 2) - quiet(keep) for keep in (small, large)]
    gone = (~small)[:, None].expand_as(x)
    assert torch.allclose(drawn[0][gone], drawn[1][gone], atol=1e-6)
    assert not torch.allclose(EVERY[name](x, small, ids, 3), EVERY[name](x, small, ids, 2))
    assert not torch.allclose(EVERY[name](x, small, ("dog",), 2), EVERY[name](x, small, ids, 2))
    twice = EVERY[name](x.expand(2, -1, -1, -1), small.expand(2, -1, -1), ids * 2, 2)
    assert torch.equal(twice[0], twice[1])


def test_the_noise_has_the_size_asked_for_and_is_not_clamped():
    x, keep = torch.full((1, 3, 64, 64), 1.0), mask("random", 64, 64, 0.5)[None]
    filled = removal.NoisyLinear(sigma=0.2)(x, keep, ids=("a",), seed=4)
    noise = (filled - 1)[(~keep)[:, None].expand_as(x)]
    assert abs(float(noise.mean())) < 0.02 and abs(float(noise.std()) - 0.2) < 0.01
    assert filled.max() > 1.3
    drawn = normal(keys(4, ["a"], "removal: noisy linear"), x.shape[1:])
    assert torch.allclose(noise, 0.2 * drawn[(~keep)[:, None].expand_as(x)], atol=1e-6)


def test_blur_is_a_gaussian_filter():
    x, keep = pictures(1, 2, 20, 31), mask("random", 20, 31, 0.5)[None]
    smooth = ndimage.gaussian_filter(
        x[0].double().numpy(), (0, 2.5, 2.5), mode="nearest", truncate=4.0
    )
    reference = torch.where(keep[:, None], x, torch.from_numpy(smooth)[None].float())
    assert torch.allclose(removal.Blur(sigma=2.5)(x, keep), reference, atol=1e-5)


def test_fixed_fills():
    x, keep = pictures(2, 3, 5, 5), mask("random", 5, 5, 0.5).expand(2, -1, -1)
    gone = ~keep[0]
    assert (removal.Zero()(x, keep)[:, :, gone] == 0).all()
    assert (removal.Value(value=0.7)(x, keep)[:, :, gone] == torch.tensor(0.7)).all()
    assert (
        removal.DatasetMean(mean=(0.1, 0.2, 0.3))(x, keep)[:, 2][:, gone] == torch.tensor(0.3)
    ).all()
    means = removal.ImageMean()(x, keep)[:, :, gone]
    assert torch.allclose(means, x.mean((2, 3))[..., None].expand_as(means))
    drawn = removal.UniformNoise()(x, keep)[:, :, gone]
    assert ((drawn > 0) & (drawn < 1)).all() and drawn.std() > 0.15


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_precisions_come_back_as_they_came(dtype):
    x, keep = pictures(1, 1, 70, 70).to(dtype), mask("blob", 70, 70, 0.8)[None]
    filled = removal.NoisyLinear(sigma=0.0, tolerance=1e-4 if dtype != torch.float64 else 1e-10)(
        x, keep
    )
    assert filled.dtype == dtype
    assert (filled[0].double() - direct(x[0], keep[0])).abs().max() < {2: 1e-2, 8: 1e-6}[
        dtype.itemsize
    ]


def test_an_input_that_wants_gradients_is_filled_like_any_other():
    x, keep = pictures(1, 1, 70, 70), mask("blob", 70, 70, 0.8)[None]
    assert torch.equal(
        removal.NoisyLinear()(x.clone().requires_grad_(), keep), removal.NoisyLinear()(x, keep)
    )


def test_an_empty_batch_is_an_empty_batch():
    for imputer in EVERY.values():
        assert imputer(
            torch.zeros(0, 3, 4, 4), torch.zeros(0, 4, 4, dtype=torch.bool), (), 0
        ).shape == (0, 3, 4, 4)


def test_the_registry_is_complete_and_takes_plain_parameters():
    assert {name: kind.name for name, kind in IMPUTERS.items()} == {name: name for name in IMPUTERS}
    assert set(EVERY) | {"biharmonic", "telea"} == set(IMPUTERS)
    assert make(IMPUTERS["dataset_mean"], "dataset_mean", {"mean": [0.5]}).mean == (0.5,)


def test_mistakes_are_named():
    x, keep = pictures(2, 3, 4, 5), torch.ones(2, 4, 5, dtype=torch.bool)
    cases = {
        "keep.*float32": lambda: removal.Zero()(x, keep.float()),
        "meta.*cpu": lambda: removal.Zero()(x, keep.to("meta")),
        r"\(2, 5, 4\).*\(2, 4, 5\)": lambda: removal.Blur()(x, keep.transpose(1, 2)),
        r"keep.*\(2, 3, 4, 5\)": lambda: removal.UniformNoise()(x, keep[:, None].expand_as(x)),
        "ids.*1.*2": lambda: removal.NoisyLinear()(x, keep, ids=("a",)),
        r"int64.*\(2, 3, 4, 5\)": lambda: removal.ImageMean()(x.long(), keep),
        r"images.*series.*\(2, 3\)": lambda: removal.Zero()(x[..., 0, 0], keep[:, 0, 0]),
        "2.*3 channels": lambda: removal.DatasetMean(mean=(0.1, 0.2))(x, keep),
    }
    for message, call in cases.items():
        with pytest.raises(UserError, match=message):
            call()
    for wrong in ({"sigma": -1.0}, {"tolerance": 0.0}, {"sigma": float("nan")}, {"tolerance": 2.0}):
        with pytest.raises(BadParameter, match=f"noisy_linear.{next(iter(wrong))}"):
            make(removal.NoisyLinear, "noisy_linear", wrong)


def test_nothing_kept_is_an_error_that_names_the_sample():
    x, keep = pictures(3, 3, 8, 8), torch.ones(3, 8, 8, dtype=torch.bool)
    keep[1] = False
    with pytest.raises(UserError, match="'dog'"):
        removal.NoisyLinear()(x, keep, ids=("cat", "dog", "eel"))
    assert (removal.Zero()(x, keep)[1] == 0).all()


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_not_finite_are_an_error(value):
    x, keep = pictures(2, 1, 4, 4), torch.ones(2, 4, 4, dtype=torch.bool)
    x[1, 0, 2, 2] = value
    for imputer in (removal.Zero(), removal.NoisyLinear()):
        with pytest.raises(UserError, match=r"not finite.*'b'"):
            imputer(x, keep, ("a", "b"), 0)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")
@pytest.mark.parametrize("name", EVERY)
def test_the_device_does_not_matter(name):
    x = pictures(6, 3, 50, 43)
    keep = torch.stack([mask(KINDS[i % 2], 50, 43, 0.15 * (i + 1), i) for i in range(6)])
    there = EVERY[name](x.cuda(), keep.cuda(), None, 1)
    assert there.is_cuda
    assert (there.cpu() - EVERY[name](x, keep, None, 1)).abs().max() < 1e-3
    single = torch.cat(
        [EVERY[name](x[i : i + 1].cuda(), keep[i : i + 1].cuda(), (str(i),), 1) for i in range(6)]
    )
    assert (there - single).abs().max() < 1e-6
    if name == "noisy_linear":
        narrow = interpolated(
            x[:, :, :1, :].cuda(), keep[:, :1, :].cuda() | (torch.arange(43) == 0).cuda(), 1e-5
        )
        assert (
            narrow.cpu() - interpolated(x[:, :, :1], keep[:, :1] | (torch.arange(43) == 0), 1e-5)
        ).abs().max() < 1e-4


@pytest.mark.parametrize("kind", ["random", "blob"])
def test_an_offset_changes_nothing_but_the_offset(kind):
    """The tolerance is one of the picture, not of the distance of its values from 0."""
    g = torch.Generator().manual_seed(0)
    x = torch.nn.functional.avg_pool2d(torch.rand(1, 3, 96, 96, generator=g), 5, 1, 2)
    keep = torch.rand(1, 96, 96, generator=g) > 0.5
    if kind == "blob":
        keep = torch.ones(1, 96, 96, dtype=torch.bool)
        keep[0, 10:80, 10:85] = False
    near, far = (
        removal.NoisyLinear(sigma=0.0)(x + offset, keep) - offset for offset in (0.0, 1000.0)
    )
    assert (near - far).abs().max() < 2e-4  # single precision has steps of 6e-5 there

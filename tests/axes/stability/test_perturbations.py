"""Laws over every registered perturbation, references for each, and the messages of `resolve`."""

from __future__ import annotations

import io
import math
import subprocess
import sys
from dataclasses import dataclass, fields
from typing import get_args

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance
from scipy import ndimage
from torch import Tensor

from heatproof.axes.stability.evaluation import Stability
from heatproof.axes.stability.perturbations import (
    PERTURBATIONS,
    PRESETS,
    Brightness,
    Contrast,
    Elastic,
    GaussianBlur,
    GaussianNoise,
    Identity,
    Jpeg,
    OccludingPatch,
    Rotation,
    Translation,
    check,
    condition,
    describe,
    is_geometric,
    level,
    resolve,
)
from heatproof.axes.stability.perturbations.contract import Family
from heatproof.errors import UserError
from heatproof.maps import warping
from heatproof.rand import keys
from heatproof.types import Batch, parameters

# One entry per registered name, at a magnitude that suits images of 9 pixels; a new perturbation must be added here.
SAMPLES = {
    "identity": Identity(),
    "rotation": Rotation(degrees=33.0),
    "translation": Translation(pixels=3, axis="vertical"),
    "brightness": Brightness(factor=1.7),
    "gaussian_noise": GaussianNoise(sigma=0.3),
    "jpeg": Jpeg(quality=30),
    "contrast": Contrast(factor=2.5),
    "gaussian_blur": GaussianBlur(sigma=1.3),
    "occluding_patch": OccludingPatch(fraction=0.2),
    "elastic": Elastic(amplitude=2.5, smoothness=2.0),
}
STOCHASTIC = {"gaussian_noise", "occluding_patch", "elastic"}
GEOMETRIC = {"rotation", "translation", "elastic"}
ALL = pytest.mark.parametrize("name", sorted(PERTURBATIONS))
MOVING = pytest.mark.parametrize("name", sorted(GEOMETRIC))
SHAPES = [(3, 224, 224), (3, 17, 12), (1, 9, 23)]


def batch_of(*shape: int, n: int = 5, seed: int = 0) -> Batch:
    x = torch.rand(n, *shape, generator=torch.Generator().manual_seed(seed))
    return Batch(ids=tuple(f"sample-{i}" for i in range(n)), x=x)


def photograph(height: int, width: int) -> Tensor:
    """A smooth picture (3, H, W): codecs and interpolation are compared on something like an image."""
    i, j = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
    return torch.stack(
        [(torch.sin(i / (9 + c) + c) * torch.cos(j / (7 + 2 * c)) + 1) / 2 for c in range(3)]
    )


# ---------------------------------------------------------------------------------------------- laws


def test_the_registry_is_what_the_laws_cover() -> None:
    assert set(SAMPLES) == set(PERTURBATIONS)
    for name, sample in SAMPLES.items():
        assert type(sample) is PERTURBATIONS[name]
        assert sample.name == name
        assert sample.stochastic is (name in STOCHASTIC)
        assert is_geometric(sample) is (name in GEOMETRIC)
        assert (sample.family == "geometric") is (name in GEOMETRIC)
        assert sample.family in get_args(Family)


@ALL
@pytest.mark.parametrize("shape", SHAPES)
def test_output_has_the_shape_type_and_range_of_images(name: str, shape: tuple[int, ...]) -> None:
    batch = batch_of(*shape, n=2)
    before = batch.x.clone()
    out = SAMPLES[name](batch, seed=3)
    assert out.shape == batch.x.shape
    assert out.dtype == torch.float32
    assert bool(torch.isfinite(out).all())
    assert float(out.min()) >= 0 and float(out.max()) <= 1
    assert torch.equal(batch.x, before), "the input was changed in place"
    assert torch.equal(out, before) is (name == "identity")


@ALL
def test_extreme_pixels_stay_in_range(name: str) -> None:
    for value in (0.0, 1.0):
        batch = Batch(ids=("a",), x=torch.full((1, 3, 16, 16), value))
        out = SAMPLES[name](batch, seed=0)
        assert float(out.min()) >= 0 and float(out.max()) <= 1


@ALL
@pytest.mark.parametrize("shape", [(3, 224, 224), (3, 17, 12)])
def test_a_sample_does_not_depend_on_its_batch(name: str, shape: tuple[int, ...]) -> None:
    batch = batch_of(*shape)
    together = SAMPLES[name](batch, seed=7)
    alone = torch.cat([SAMPLES[name](batch[i : i + 1], seed=7) for i in range(len(batch))])
    torch.testing.assert_close(together, alone, atol=1e-6, rtol=0)
    order = [3, 0, 4, 1, 2]
    torch.testing.assert_close(
        SAMPLES[name](batch[order], seed=7), together[order], atol=1e-6, rtol=0
    )


@ALL
def test_the_seed_matters_exactly_where_it_should(name: str) -> None:
    batch = batch_of(3, 20, 20)
    first = SAMPLES[name](batch, seed=1)
    assert torch.equal(first, SAMPLES[name](batch, seed=1))
    assert torch.equal(first, SAMPLES[name](batch, seed=2)) is (name not in STOCHASTIC)
    same_pixels = batch.with_x(batch.x[:1].repeat(5, 1, 1, 1))
    out = SAMPLES[name](same_pixels, seed=1)
    assert torch.equal(out, out[:1].repeat(5, 1, 1, 1)) is (name not in STOCHASTIC)


@ALL
def test_no_global_random_state_is_read_or_changed(name: str) -> None:
    batch = batch_of(3, 12, 12)
    torch.manual_seed(0)
    state = torch.random.get_rng_state()
    first = SAMPLES[name](batch, seed=1)
    assert torch.equal(torch.random.get_rng_state(), state)
    torch.manual_seed(1)
    assert torch.equal(first, SAMPLES[name](batch, seed=1))


@ALL
def test_one_pixel_images(name: str) -> None:
    batch = batch_of(3, 1, 1)
    try:
        out = SAMPLES[name](batch, seed=0)
    except UserError:
        # One that leaves nothing of so small an image says so before it is called, too.
        with pytest.raises(UserError):
            check(SAMPLES[name], (3, 1, 1))
        return
    assert out.shape == batch.x.shape and bool(torch.isfinite(out).all())


@ALL
def test_only_images_are_perturbed(name: str) -> None:
    series = Batch(ids=("a", "b"), x=torch.rand(2, 16))
    if name == "identity":
        assert SAMPLES[name](series, seed=0) is series.x
        return
    with pytest.raises(UserError, match=rf"{name}.*\(B, 16\)"):
        SAMPLES[name](series, seed=0)
    with pytest.raises(UserError, match=r"uint8.*255"):
        SAMPLES[name](Batch(ids=("a",), x=torch.zeros(1, 3, 16, 16, dtype=torch.uint8)), seed=0)


@ALL
def test_level_condition_and_unit_agree_with_the_fields(name: str) -> None:
    sample = SAMPLES[name]
    assert condition(PERTURBATIONS[name]()) == name
    if not sample.magnitude_field:
        assert level(sample) == 0
        assert describe(sample) == name.replace("_", " ")
        return
    assert sample.magnitude_field in {f.name for f in fields(PERTURBATIONS[name])}
    assert level(sample) == float(getattr(sample, sample.magnitude_field))
    assert f"{level(sample):g}" in describe(sample)
    assert sample.unit


# ---------------------------------------------------------------------------------------------- geometry


def brute_force(image: np.ndarray, source: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Bilinear reading of image (H, W) at source (2, H, W), pixel by pixel, zero outside; and the valid mask."""
    height, width = image.shape
    out, valid = np.zeros_like(image), np.ones(image.shape, bool)
    for i in range(height):
        for j in range(width):
            y, x = source[:, i, j]
            for row in (math.floor(y), math.floor(y) + 1):
                for column in (math.floor(x), math.floor(x) + 1):
                    weight = (1 - abs(y - row)) * (1 - abs(x - column))
                    if weight < 1e-7:
                        continue
                    if 0 <= row < height and 0 <= column < width:
                        out[i, j] += weight * image[row, column]
                    else:
                        valid[i, j] = False
    return out, valid


@MOVING
@pytest.mark.parametrize("shape", SHAPES)
def test_maps_move_as_images_do(name: str, shape: tuple[int, ...]) -> None:
    batch = batch_of(*shape, n=2)
    moved, valid = SAMPLES[name].move(batch.x, batch.ids, seed=4)
    perturbed = SAMPLES[name](batch, seed=4)
    assert moved.shape == batch.x.shape
    assert valid.shape == (2, 1, *shape[1:]) and valid.dtype == torch.bool
    torch.testing.assert_close(moved, perturbed, atol=1e-6, rtol=0)
    single, single_valid = SAMPLES[name].move(batch.x[:, :1], batch.ids, seed=4)
    assert torch.equal(single, moved[:, :1]) and torch.equal(single_valid, valid)


@MOVING
def test_moving_is_linear_and_does_not_clamp(name: str) -> None:
    batch = batch_of(2, 13, 18)
    maps = 50 * (batch.x - 0.5)
    moved, valid = SAMPLES[name].move(maps, batch.ids, seed=4)
    of_x, _ = SAMPLES[name].move(batch.x, batch.ids, seed=4)
    of_one, _ = SAMPLES[name].move(torch.ones_like(maps), batch.ids, seed=4)
    torch.testing.assert_close(moved, 50 * (of_x - 0.5 * of_one), atol=1e-4, rtol=0)
    assert float(moved.min()) < -1 and bool(valid.any())


@MOVING
@pytest.mark.parametrize("shape", SHAPES)
def test_valid_pixels_read_from_inside_and_invalid_ones_do_not(
    name: str, shape: tuple[int, ...]
) -> None:
    batch = batch_of(*shape, n=2)
    ones, valid = SAMPLES[name].move(torch.ones_like(batch.x[:, :1]), batch.ids, seed=4)
    torch.testing.assert_close(ones[valid], torch.ones(int(valid.sum())), atol=1e-6, rtol=0)
    assert bool((ones[~valid] < 1).all())
    assert bool(valid.any())


@MOVING
@pytest.mark.parametrize("place", [(7, 7), (0, 5), (5, 14)])
def test_a_broken_pixel_spoils_only_its_neighbours(name: str, place: tuple[int, int]) -> None:
    batch = batch_of(1, 15, 15, n=1)
    broken = batch.x.clone()
    broken[(0, 0, *place)] = math.inf
    clean, _ = SAMPLES[name].move(batch.x, batch.ids, seed=0)
    moved, _ = SAMPLES[name].move(broken, batch.ids, seed=0)
    assert not bool(torch.isnan(moved).any())
    assert int(torch.isinf(moved).sum()) <= 12
    assert bool(torch.isinf(moved).any()) or place != (7, 7)
    finite = torch.isfinite(moved)
    assert torch.equal(moved[finite], clean[finite])


@MOVING
def test_maps_and_ids_must_match(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}.*2 maps.*1 ids"):
        SAMPLES[name].move(torch.rand(2, 1, 9, 9), ["a"], seed=0)
    with pytest.raises(UserError, match=r"B, 9, 9"):
        SAMPLES[name].move(torch.rand(2, 9, 9), ["a", "b"], seed=0)


@pytest.mark.parametrize(
    ("height", "width", "degrees"), [(11, 11, 15), (8, 13, -40), (13, 6, 200.5), (7, 10, 90)]
)
def test_rotation_against_brute_force(height: int, width: int, degrees: float) -> None:
    batch = batch_of(1, height, width, n=1)
    angle = math.radians(degrees)
    i, j = np.mgrid[:height, :width].astype(float)
    v, u = i - (height - 1) / 2, j - (width - 1) / 2
    source = np.stack(
        [
            u * math.sin(angle) + v * math.cos(angle) + (height - 1) / 2,
            u * math.cos(angle) - v * math.sin(angle) + (width - 1) / 2,
        ]
    )
    source = np.where(np.abs(source - source.round()) < 1e-9, source.round(), source)
    expected, expected_valid = brute_force(batch.x[0, 0].double().numpy(), source)
    moved, valid = Rotation(degrees=degrees).move(batch.x, batch.ids, seed=0)
    np.testing.assert_allclose(moved[0, 0].numpy(), expected, atol=1e-6)
    np.testing.assert_array_equal(valid[0, 0].numpy(), expected_valid)


@pytest.mark.parametrize("side", [1, 2, 9, 16, 224])
@pytest.mark.parametrize("turns", [-1, 0, 1, 2, 3, 4, 4 * 10**11 + 1])
def test_quarter_turns_are_exact(side: int, turns: int) -> None:
    batch = batch_of(3, side, side, n=2)
    moved, valid = Rotation(degrees=90 * turns).move(batch.x, batch.ids, seed=0)
    torch.testing.assert_close(moved, torch.rot90(batch.x, turns % 4, (2, 3)), atol=1e-6, rtol=0)
    assert bool(valid.all())


@pytest.mark.parametrize("size", [(224, 224), (61, 84)])
@pytest.mark.parametrize("degrees", [5.0, 15.0, -27.0, 100.0])
def test_rotation_agrees_with_pillow(size: tuple[int, int], degrees: float) -> None:
    picture = photograph(*size)
    batch = Batch(ids=("a",), x=picture[None])
    moved, valid = Rotation(degrees=degrees).move(batch.x, batch.ids, seed=0)
    for channel in range(3):
        reference = Image.fromarray(picture[channel].numpy()).rotate(
            degrees, Image.Resampling.BILINEAR
        )
        difference = np.abs(np.array(reference) - moved[0, channel].numpy())[valid[0, 0].numpy()]
        assert difference.max() < 1e-4


@pytest.mark.parametrize("pixels", [0, 1, 5, -4, 11])
@pytest.mark.parametrize("axis", ["horizontal", "vertical"])
def test_translation_is_an_exact_shift(pixels: int, axis: str) -> None:
    batch = batch_of(3, 12, 14, n=2)
    moved, valid = Translation(pixels=pixels, axis=axis).move(batch.x, batch.ids, seed=0)
    by = (0, pixels) if axis == "horizontal" else (pixels, 0)
    expected = ndimage.shift(batch.x.numpy(), (0, 0, *by), order=0, mode="constant")
    np.testing.assert_array_equal(moved.numpy(), expected)
    inside = ndimage.shift(np.ones((2, 1, 12, 14)), (0, 0, *by), order=0, mode="constant") > 0.5
    np.testing.assert_array_equal(valid.numpy(), inside)


def test_translation_refuses_to_empty_the_image() -> None:
    with pytest.raises(UserError, match=r"20 pixels.*width 16"):
        Translation(pixels=20)(batch_of(3, 32, 16), seed=0)
    with pytest.raises(UserError, match=r"-32 pixels.*height 32"):
        Translation(pixels=-32, axis="vertical")(batch_of(3, 32, 64), seed=0)
    assert Translation(pixels=15)(batch_of(3, 32, 16), seed=0)[..., 15].gt(0).all()


def test_elastic_against_brute_force() -> None:
    batch = batch_of(1, 14, 19, n=2)
    perturbation = Elastic(amplitude=3.0, smoothness=3.0)
    moved, valid = perturbation.move(batch.x, batch.ids, seed=5)
    offsets = warping.elastic_offsets(keys(5, batch.ids, "elastic"), 3.0, 3.0, 14, 19)
    for k in range(2):
        source = np.mgrid[:14, :19] + offsets[k].double().numpy()
        expected, expected_valid = brute_force(batch.x[k, 0].double().numpy(), source)
        np.testing.assert_allclose(moved[k, 0].numpy(), expected, atol=1e-5)
        np.testing.assert_array_equal(valid[k, 0].numpy(), expected_valid)


def test_elastic_fields_are_as_long_and_as_smooth_as_they_say() -> None:
    key = keys(0, [f"s{i}" for i in range(40)], "elastic")
    smooth = warping.elastic_offsets(key, 4.0, 6.0, 64, 80)
    torch.testing.assert_close(smooth.norm(dim=1).flatten(1).amax(1), torch.full((40,), 4.0))
    torch.testing.assert_close(
        warping.elastic_offsets(key, 1.0, 6.0, 64, 80) * 4, smooth
    )  # one draw for a sweep
    # noise smoothed by a Gaussian of width s has correlation exp(-d²/4s²) at distance d
    distance = 6
    pairs = (smooth[..., :-distance] * smooth[..., distance:]).mean() / (smooth**2).mean()
    assert abs(float(pairs) - math.exp(-(distance**2) / (4 * 6.0**2))) < 0.05
    border = smooth[:, :, 0].pow(2).mean() / smooth.pow(2).mean()
    assert 0.7 < float(border) < 1.4


def test_no_severity_is_no_change() -> None:
    batch = batch_of(3, 11, 16)
    same = [
        Rotation(degrees=0),
        Rotation(degrees=-720),
        Translation(pixels=0),
        Elastic(amplitude=0),
        Brightness(factor=1),
        GaussianNoise(sigma=0),
        GaussianBlur(sigma=0),
    ]
    for perturbation in same:
        assert torch.equal(perturbation(batch, seed=0), batch.x), describe(perturbation)
    torch.testing.assert_close(Contrast(factor=1)(batch, seed=0), batch.x)


# ---------------------------------------------------------------------------------------------- pixel values


def test_brightness_against_the_formula() -> None:
    batch = batch_of(3, 6, 5)
    expected = np.minimum(1, batch.x.numpy() * np.float32(1.5))
    np.testing.assert_allclose(Brightness()(batch, seed=0).numpy(), expected, atol=1e-7)


@pytest.mark.parametrize("factor", [0.4, 1.5])
def test_contrast_agrees_with_pillow(factor: float) -> None:
    tinted = photograph(40, 31) * torch.tensor([1.0, 0.6, 0.2]).reshape(3, 1, 1)
    pixels = (tinted.permute(1, 2, 0) * 255).round().to(torch.uint8)
    batch = Batch(ids=("a",), x=pixels.permute(2, 0, 1)[None] / 255)
    reference = np.array(ImageEnhance.Contrast(Image.fromarray(pixels.numpy())).enhance(factor))
    ours = Contrast(factor=factor)(batch, seed=0)[0].permute(1, 2, 0).numpy() * 255
    assert np.abs(ours - reference).max() < 2  # Pillow rounds the mean and the result to 8 bits


def test_contrast_of_other_channel_counts_uses_their_mean() -> None:
    batch = batch_of(4, 6, 7)
    mean = batch.x.mean((1, 2, 3), keepdim=True)
    expected = (mean + 1.5 * (batch.x - mean)).clamp(0, 1)
    torch.testing.assert_close(Contrast()(batch, seed=0), expected)


def test_noise_is_normal_and_shared_by_the_levels_of_a_sweep() -> None:
    batch = Batch(ids=("a", "b"), x=torch.full((2, 3, 100, 100), 0.5))
    small = GaussianNoise(sigma=0.01)(batch, seed=0) - 0.5
    large = GaussianNoise(sigma=0.05)(batch, seed=0) - 0.5
    torch.testing.assert_close(small * 5, large, atol=1e-6, rtol=0)
    assert abs(float(large.std()) - 0.05) < 0.001
    assert abs(float(large.mean())) < 0.001
    between = np.corrcoef(large[0].flatten().numpy(), large[1].flatten().numpy())[0, 1]
    assert abs(between) < 0.03


@pytest.mark.parametrize("size", [(1, 1), (2, 5), (9, 14), (64, 33)])
@pytest.mark.parametrize("sigma", [0.1, 0.4, 2.0, 7.3])
def test_blur_agrees_with_scipy(size: tuple[int, int], sigma: float) -> None:
    batch = batch_of(2, *size, n=2)
    expected = ndimage.gaussian_filter(
        batch.x.double().numpy(), (0, 0, sigma, sigma), mode="nearest", truncate=4.0, order=0
    )
    np.testing.assert_allclose(
        GaussianBlur(sigma=sigma)(batch, seed=0).numpy(), expected, atol=1e-5
    )


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("quality", [1, 40, 95, 100])
def test_jpeg_is_pillows_round_trip(channels: int, quality: int) -> None:
    picture = photograph(50, 37)[:channels]
    noise = torch.rand(4, channels, 50, 37, generator=torch.Generator().manual_seed(1))
    x = torch.cat([picture[None], 0.5 * picture + 0.5 * noise])
    ours = Jpeg(quality=quality)(Batch(ids=tuple("abcde"), x=x), seed=0)
    for image, out in zip(x, ours, strict=True):
        pixels = np.rint(image.permute(1, 2, 0).numpy() * 255).astype(np.uint8)
        file = io.BytesIO()
        Image.fromarray(pixels if channels == 3 else pixels[..., 0]).save(
            file, format="JPEG", quality=quality
        )
        expected = np.array(Image.open(io.BytesIO(file.getvalue()))).reshape(50, 37, channels)
        np.testing.assert_array_equal(
            (out.permute(1, 2, 0) * 255).round().numpy().astype(np.uint8), expected
        )
    error = (ours[0] - x[0]).abs().mean()
    assert float(error) < (0.2 if quality == 1 else 0.02)


def test_jpeg_refuses_other_channel_counts() -> None:
    with pytest.raises(UserError, match=r"jpeg.*1 or 3 channels.*4"):
        Jpeg()(batch_of(4, 8, 8), seed=0)


def test_patches_are_squares_of_the_right_size_at_uniform_places() -> None:
    n, height, width = 600, 8, 10
    batch = Batch(ids=tuple(map(str, range(n))), x=torch.zeros(n, 3, height, width))
    perturbation = OccludingPatch(fraction=0.11, value=1.0)
    out = perturbation(batch, seed=0)
    side = perturbation.side(height, width)
    assert side == 3
    corners = []
    for image in out:
        assert torch.equal(image[0], image[1]) and torch.equal(image[0], image[2])
        rows, columns = image[0].nonzero(as_tuple=True)
        assert len(rows) == side**2
        assert (
            int(rows.max() - rows.min()) == side - 1
            and int(columns.max() - columns.min()) == side - 1
        )
        corners.append((int(rows.min()), int(columns.min())))
    # every one of the 6 × 8 places occurs; each is missed with probability (47/48)^600 < 1e-5
    assert set(corners) == {
        (i, j) for i in range(height - side + 1) for j in range(width - side + 1)
    }


def test_a_patch_that_does_not_fit_is_refused_with_the_largest_that_does() -> None:
    with pytest.raises(UserError, match=r"0\.6.*8 × 16.*0\.5"):
        OccludingPatch(fraction=0.6)(batch_of(3, 8, 16), seed=0)
    largest = OccludingPatch(fraction=0.5)(batch_of(3, 8, 16), seed=0)
    assert bool((largest == 0.5).all(1).sum((1, 2)).eq(64).all())


# ---------------------------------------------------------------------------------------------- names and studies


def test_presets_have_the_magnitudes_in_the_papers_order() -> None:
    order = ["rotation", "translation", "brightness", "gaussian_noise", "jpeg"]
    for preset, levels in {
        "fass-paper": [15, 20, 1.5, 0.15, 40],
        "fass-mild": [5, 10, 1.1, 0.01, 85],
    }.items():
        assert [condition(p) for p in resolve(preset)] == order
        assert [level(p) for p in resolve(preset)] == levels
    assert [condition(p) for p in resolve("beyond-paper")] == [
        "contrast",
        "gaussian_blur",
        "occluding_patch",
        "elastic",
    ]
    used = {type(p) for preset in PRESETS.values() for p in preset}
    assert used <= set(PERTURBATIONS.values()) - {Identity}


def test_labels() -> None:
    assert condition(Translation(pixels=3, axis="vertical")) == "translation(axis=vertical)"
    assert condition(Elastic(amplitude=1, smoothness=3)) == "elastic(smoothness=3.0)"
    assert level(Jpeg(quality=7)) == 7.0
    assert [describe(p) for p in (*resolve("fass-paper"), *resolve("beyond-paper"))] == [
        "rotation 15°",
        "translation 20 px",
        "brightness ×1.5",
        "gaussian noise σ 0.15",
        "jpeg quality 40",
        "contrast ×1.5",
        "gaussian blur 2 px",
        "occluding patch 0.1 of the area",
        "elastic 4 px",
    ]


def test_resolve_takes_names_objects_mappings_and_lists() -> None:
    assert resolve("jpeg") == (Jpeg(),)
    assert resolve(Rotation(degrees=3)) == (Rotation(degrees=3),)
    assert resolve({"rotation": None}) == resolve({"rotation": {}}) == (Rotation(),)
    assert resolve({"fass-mild": None}) == PRESETS["fass-mild"]
    angles = [5, 10, 15, 20, 25, 30]
    assert resolve({"rotation": {"degrees": angles}}) == tuple(Rotation(degrees=a) for a in angles)
    assert resolve({"rotation": {"degrees": np.linspace(5, 30, 6)}}) == tuple(
        Rotation(degrees=a) for a in angles
    )
    assert resolve({"translation": {"axis": ["horizontal", "vertical"], "pixels": 4}}) == (
        Translation(pixels=4),
        Translation(pixels=4, axis="vertical"),
    )
    nested = resolve(
        [
            "identity",
            ["beyond-paper"],
            {"jpeg": {"quality": [10, 20]}, "rotation": None},
            GaussianNoise(),
        ]
    )
    assert nested == (
        Identity(),
        *PRESETS["beyond-paper"],
        Jpeg(10),
        Jpeg(20),
        Rotation(),
        GaussianNoise(),
    )


@pytest.mark.parametrize(
    ("spec", "facts"),
    [
        ("rotatoin", ("'rotatoin'", "'rotation'", "beyond-paper")),
        ("fass_paper", ("'fass_paper'", "'fass-paper'")),
        ({"jpg": {"quality": 3}}, ("'jpg'", "'jpeg'")),
        ({"rotation": {"degree": 5}}, ("rotation", "'degree'", "'degrees'")),
        ({"translation": {"foo": 5}}, ("translation", "'foo'", "pixels", "axis")),
        ({"identity": {"foo": 5}}, ("identity", "'foo'")),
        ({"rotation": 5}, ("rotation", "degrees", "5")),
        ({"rotation": 0}, ("rotation", "degrees", "0")),
        ({"fass-paper": {"quality": 5}}, ("'fass-paper'", "{'quality': 5}")),
        ({"jpeg": {"quality": 0}}, ("jpeg.quality", "1", "0")),
        ({"jpeg": {"quality": [40, 101]}}, ("jpeg.quality", "100", "101")),
        ({"gaussian_noise": {"sigma": -0.1}}, ("gaussian_noise.sigma", "-0.1")),
        ({"gaussian_noise": {"sigma": 1.5}}, ("sigma", "1.5", "0.0059")),  # 1.5 of 255
        ({"brightness": {"factor": 20.5}}, ("factor", "20.5", "0.205")),  # 20.5 %
        ({"brightness": {"factor": 0}}, ("brightness.factor", "0")),
        ({"contrast": {"factor": math.inf}}, ("contrast.factor", "inf")),
        ({"rotation": {"degrees": math.nan}}, ("rotation.degrees", "nan")),
        ({"rotation": {"degrees": True}}, ("rotation.degrees", "True")),
        ({"rotation": {"degrees": "15"}}, ("rotation.degrees", "'15'")),
        (
            {"translation": {"axis": "up"}},
            ("translation.axis", "'horizontal'", "'vertical'", "'depth'", "'up'"),
        ),
        ({"occluding_patch": {"fraction": 1}}, ("occluding_patch.fraction", "1")),
        ({"elastic": {"smoothness": 0}}, ("elastic.smoothness", "0")),
        ({"elastic": {"amplitude": -1, "smoothness": 0}}, ("elastic.amplitude", "-1")),
        (
            {"elastic": {"amplitude": [1, 2], "smoothness": [3, 4]}},
            ("elastic", "amplitude", "smoothness"),
        ),
        ({"rotation": {"degrees": []}}, ("rotation", "degrees")),
        ({"rotation": {"degrees": [5, 5.0]}}, ("'rotation'", "5", "twice")),
        (["fass-paper", "jpeg"], ("'jpeg'", "40", "twice")),
        ([], ("fass-paper",)),
        ({}, ("fass-paper",)),
        (None, ("None",)),
        ([Rotation], ("Rotation()",)),
    ],
)
def test_resolve_explains_mistakes(spec: object, facts: tuple[str, ...]) -> None:
    with pytest.raises(UserError) as caught:
        resolve(spec)
    message = str(caught.value)
    for fact in facts:
        assert fact in message
    assert "\n" not in message


@ALL
def test_objects_are_frozen_hashable_and_refuse_unknown_parameters(name: str) -> None:
    sample = SAMPLES[name]
    assert sample == SAMPLES[name] and hash(sample) == hash(SAMPLES[name])
    with pytest.raises(UserError, match="wrong"):
        PERTURBATIONS[name](wrong=1)
    if sample.magnitude_field:
        with pytest.raises(AttributeError):
            setattr(sample, sample.magnitude_field, 1)


def upside_down(batch: Batch, seed: int) -> Tensor:
    return batch.x.flip(2)


@dataclass(frozen=True)
class Darken:
    by: float = 0.5

    def __call__(self, batch: Batch, seed: int) -> Tensor:
        return batch.x * self.by


def test_ones_own_perturbations_need_nothing_but_a_call() -> None:
    own = resolve([upside_down, Darken(), Darken(by=0.2)])
    assert [condition(p) for p in own] == ["upside_down", "Darken", "Darken(by=0.2)"]
    assert [level(p) for p in own] == [0.0, 0.0, 0.0]
    assert [describe(p) for p in own] == ["upside down", "Darken", "Darken(by=0.2)"]
    assert not any(is_geometric(p) for p in own)
    kept = parameters(Stability(perturbations=[upside_down, Darken(by=0.2)]))["perturbations"]
    assert kept == [
        {"name": "upside_down", "object": "upside_down"},
        {"name": "Darken", "by": 0.2},
    ], "in any process"
    for perturbation in own:
        check(perturbation, (16,))
    with pytest.raises(UserError, match=r"'upside_down'.*twice"):
        resolve([upside_down, upside_down])


def test_check_finds_what_a_call_would_before_any_data_is_read() -> None:
    for perturbation in (*PRESETS["fass-paper"], *PRESETS["beyond-paper"]):
        check(perturbation, (3, 224, 224))
    for perturbation, shape in [
        (Translation(pixels=20), (3, 20, 20)),
        (Jpeg(), (2, 8, 8)),
        (OccludingPatch(fraction=0.9), (3, 4, 40)),
        (Rotation(), (8, 8)),
    ]:
        with pytest.raises(UserError):
            check(perturbation, shape)


def test_draws_are_the_same_in_another_process() -> None:
    code = (
        "import torch; from heatproof.types import Batch;"
        "from heatproof.axes.stability.perturbations import GaussianNoise;"
        "x = torch.full((1, 1, 2, 2), 0.5); print(GaussianNoise()(Batch(ids=('a',), x=x), seed=3).flatten().tolist())"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    here = GaussianNoise()(Batch(ids=("a",), x=torch.full((1, 1, 2, 2), 0.5)), seed=3)
    assert printed.strip() == str(here.flatten().tolist())


def test_a_flat_region_stays_flat_to_the_last_bit_when_moved():
    maps = torch.full((1, 2, 24, 24), 0.1234567)
    maps[:, :, 12:] = -7.654321
    moved, valid = Rotation(degrees=17).move(maps, ("a",), seed=0)
    inside = moved[valid.expand_as(moved)]
    assert set(inside[(inside > 0.1) & (inside < 0.13)].tolist()) == {maps[0, 0, 0, 0].item()}

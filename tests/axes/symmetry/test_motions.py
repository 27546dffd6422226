"""Shifts of padded samples, Euclidean motions, and elements that are not drawn uniformly."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from scipy import stats
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, UserError
from heatproof.axes.symmetry.groups import build, euclidean, padded_shift, scale, so2, time_warp
from heatproof.axes.symmetry.orbit import estimated, orbit_of
from heatproof.axes.symmetry.scores import equivariance, layer_symmetry, model_invariance
from heatproof.axes.symmetry.symmetrised import symmetrise
from heatproof.explainers import (
    FeatureAblation,
    InputXGradient,
    IntegratedGradients,
    Saliency,
)


@pytest.fixture(autouse=True)
def _the_same_networks_every_time() -> Iterator[None]:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


def named(x: Tensor, **aux: Tensor) -> Batch:
    return Batch(tuple(f"s{i}" for i in range(len(x))), x, aux)


def values(*shape: int, seed: int = 0) -> Tensor:
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed))


ZERO = torch.zeros(2, dtype=torch.int64)
SIGNED = Saliency(absolute=False)


# Shifts of padded samples


def framed(n: int = 2, inside: int = 5, frame: int = 3, background: float = 0.0) -> Batch:
    x = torch.full((n, 1, inside + 2 * frame, inside + 2 * frame), background)
    x[:, :, frame:-frame, frame:-frame] = 0.9 * values(n, 1, inside, inside) + 0.1
    return named(x)


@pytest.mark.parametrize("background", [0.0, 0.7])
def test_no_pixel_wraps_or_is_lost(background: float) -> None:
    """A shift is the picture cut out of a larger one, and every pixel of the object is there once."""
    batch, group = framed(background=background), padded_shift(most=3)
    assert group.unfit(batch) == ["", ""]
    larger = nn.functional.pad(batch.x, (3, 3, 3, 3), value=background)
    elements = group.elements(batch)
    assert len(elements) == group.order(batch) == 49 and not elements[0].any()
    assert len({tuple(g.tolist()) for g in elements}) == 49
    for g in elements:
        moved = group.act(g, batch).x
        rows, columns = (3 - g).tolist()
        assert torch.equal(moved, larger[:, :, rows : rows + 11, columns : columns + 11])
        assert torch.equal(group.act(group.inverse(g), group.act(g, batch)).x, batch.x)


def test_draws_of_shifts_are_uniform_and_belong_to_the_sample() -> None:
    batch, group = framed(3), padded_shift(most=1)
    drawn = group.sample(batch, 900, seed=1)
    assert torch.equal(group.sample(batch[[2, 0]], 5, seed=1), drawn[:5, [2, 0]])
    numbers = (3 * (drawn[:, 0, 0] + 1) + drawn[:, 0, 1] + 1).numpy()
    assert stats.chisquare(np.bincount(numbers, minlength=9)).pvalue > 1e-3


def test_a_score_is_the_mean_cosine_of_what_both_maps_have() -> None:
    """Brute force over all shifts, on the pixels that no shift takes from the other side."""
    batch, group = framed(), padded_shift(most=2)
    net = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1), nn.Tanh(), nn.Flatten(), nn.Linear(3 * 121, 2)
    )
    model = Model(net)
    score = equivariance(model, batch, ZERO, SIGNED, group, n=25)
    clean = SIGNED(model, batch, ZERO, 0)
    expected = np.zeros(2)
    for rows in range(-2, 3):
        for columns in range(-2, 3):
            g = torch.tensor([rows, columns])
            after = SIGNED(model, group.act(g, batch), ZERO, 0)
            before = clean.roll((rows, columns), (-2, -1))
            kept = [slice(max(0, s), 11 + min(0, s)) for s in (rows, columns)]
            a = after[:, :, kept[0], kept[1]].flatten(1).double()
            b = before[:, :, kept[0], kept[1]].flatten(1).double()
            expected += torch.cosine_similarity(a, b).numpy() / 25
    assert score.exact
    np.testing.assert_allclose(score.value.numpy(), expected, atol=1e-6)


def test_a_network_without_borders_scores_one_on_padded_pictures() -> None:
    """Zero padding is the background here: with the object inside, a usual convolution has no border."""
    batch, group = framed(frame=6), padded_shift(most=3)
    net = nn.Sequential(nn.Conv2d(1, 3, 5, padding=2, bias=False), nn.ReLU())
    pooled = nn.Sequential(*net, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(3, 2))
    model = Model(pooled)
    for explainer in (InputXGradient(), IntegratedGradients(steps=4), FeatureAblation()):
        score = equivariance(model, batch, ZERO, explainer, group, n=49)
        torch.testing.assert_close(score.value, torch.ones(2).double(), atol=1e-6, rtol=0)
    assert layer_symmetry(model, batch, "1", group, n=49).verdict == "equivariant"
    smaller = Model(nn.Sequential(nn.AvgPool2d(2), *pooled))
    # The group moves pixels of the input; a layer of half the size has no such pixels.
    assert layer_symmetry(smaller, batch, "0", group, n=49).equivariance_error is None


def test_a_sample_that_would_wrap_has_no_score() -> None:
    full = framed()
    full.x[1, 0, 0, 4] = 0.5
    group = padded_shift(most=3)
    score = equivariance(
        Model(nn.Sequential(nn.Flatten(), nn.Linear(121, 2))), full, ZERO, SIGNED, group
    )
    assert score.value[0].isfinite() and score.value[1].isnan()
    assert "outer 3" in score.reason[1] and not score.reason[0]
    run = heatproof.evaluate(
        nn.Sequential(nn.Flatten(), nn.Linear(121, 2)),
        heatproof.open_data(framed().x),
        ["saliency"],
        {"symmetry": {"symmetry": {"group": {"padded_shift": {"most": 2}}, "elements": 4}}},
    )
    assert (run.table().query("measure == 'equivariance'").status == "ok").all()


def test_pictures_without_padding_are_refused_before_any_pass() -> None:
    bare = named(values(2, 1, 11, 11))
    with pytest.raises(UserError, match=r"outer 3.*pad: 3"):
        padded_shift(most=3).check_inputs(bare)
    with pytest.raises(UserError, match="most: 3"):
        padded_shift(most=4).check_inputs(framed())
    with pytest.raises(UserError, match="most: 5"):
        padded_shift(most=6).check((1, 11, 11))
    series = named(nn.functional.pad(values(2, 1, 9), (4, 4)))
    padded_shift(most=4, dims=(-1,)).check_inputs(series)


# Euclidean motions


class Apart(nn.Module):
    """Sees points by their distances to each other alone: no motion makes a difference."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        apart = (x[:, :, None, :3] - x[:, None, :, :3]).square().sum(-1)
        if mask is not None:
            apart = apart + 100 * ~(mask[:, :, None] & mask[:, None])
        return torch.stack([(-apart).exp().sum((1, 2)), (-3 * apart).exp().sum((1, 2))], 1)


MASK = torch.arange(6) < torch.tensor([[6], [4]])
POINTS = named(values(2, 6, 3) * MASK[..., None], mask=MASK)
MOTIONS = {
    "E(3)": euclidean(),
    "E(3), centred": euclidean(centred=True),
    "SE(3)": euclidean(reflections=False, shift=3.0),
    "T(3)": euclidean(rotations=False),
    "O(3)": euclidean(shift=0.0),
}
motion = pytest.mark.parametrize("name", MOTIONS)


@motion
def test_motions_are_a_group_that_acts_on_points_and_keeps_distances(name: str) -> None:
    group = MOTIONS[name]
    drawn = group.sample(POINTS, 8, seed=2)
    assert drawn.shape == (8, 2, 3, 4)
    assert torch.equal(group.sample(POINTS[[1]], 3, seed=2), drawn[:3, [1]])
    apart = Apart()(POINTS.x, MASK)
    for g, h in zip(drawn[::2], drawn[1::2], strict=True):
        moved = group.act(g, POINTS)
        torch.testing.assert_close(Apart()(moved.x, MASK), apart)
        torch.testing.assert_close(
            group.act(group.compose(g, h), POINTS).x, group.act(g, group.act(h, POINTS)).x
        )
        torch.testing.assert_close(group.act(group.inverse(g), moved).x, POINTS.x)
        both = group.move(group.compose(g, h), POINTS.x)
        torch.testing.assert_close(both, group.move(g, group.move(h, POINTS.x)))
        identity = group.identity(POINTS)
        torch.testing.assert_close(
            group.compose(g, group.inverse(g)), identity.expand(2, 3, 4), atol=1e-9, rtol=0
        )
        assert torch.equal(moved.x[~MASK], POINTS.x[~MASK])  # padding stays
        alone = group.act(g[:1], POINTS[:1]).x
        torch.testing.assert_close(alone, moved.x[:1])


def test_centred_turns_leave_the_centroid() -> None:
    group = euclidean(centred=True, shift=0.0)
    moved = group.act(group.sample(POINTS, 1, seed=0)[0], POINTS).x
    for sample, count in ((0, 6), (1, 4)):
        before, after = POINTS.x[sample, :count], moved[sample, :count]
        torch.testing.assert_close(after.mean(0), before.mean(0))
        assert (after - before).norm() > 0.1


@pytest.mark.parametrize("columns", [(0, 1), (0, 1, 2)])
def test_rotations_are_uniform(columns: tuple[int, ...]) -> None:
    """Moments of the Haar measure: E R = 0, E R_ij² = 1/d; both determinants occur, or only 1."""
    d, one = len(columns), POINTS[:1]
    drawn = euclidean(columns=columns).sample(one, 4000, seed=0)[:, 0, :, :d]
    torch.testing.assert_close(drawn @ drawn.mT, torch.eye(d).double().expand(4000, d, d))
    assert drawn.mean(0).abs().max() < 0.05
    torch.testing.assert_close(
        drawn.square().mean(0), torch.full((d, d), 1 / d).double(), atol=0.03, rtol=0
    )
    signs = torch.linalg.det(drawn).sign()
    assert abs(float(signs.mean())) < 0.06
    turned = euclidean(columns=columns, reflections=False).sample(one, 2000, seed=0)[:, 0, :, :d]
    assert bool((torch.linalg.det(turned) > 0.99).all())
    assert turned.mean(0).abs().max() < 0.07
    # The angle of a uniform rotation in the plane is uniform; in space its density is (1 − cos θ) / π.
    trace = turned.diagonal(dim1=1, dim2=2).sum(1)
    if d == 2:
        angles = torch.atan2(turned[:, 1, 0], turned[:, 0, 0]).numpy()
        assert stats.kstest(angles, stats.uniform(-math.pi, 2 * math.pi).cdf).pvalue > 1e-3
    else:
        angles = ((trace - 1) / 2).clamp(-1, 1).arccos().numpy()
        assert stats.kstest(angles, lambda t: (t - np.sin(t)) / math.pi).pvalue > 1e-3


@motion
def test_gradients_of_what_sees_distances_alone_follow_every_motion(name: str) -> None:
    model, group = Model(Apart()), MOTIONS[name]
    score = equivariance(model, POINTS, ZERO, SIGNED, group, n=6)
    torch.testing.assert_close(score.value, torch.ones(2).double(), atol=1e-4, rtol=0)
    change = model_invariance(model, POINTS, group, n=6).change.value
    torch.testing.assert_close(change, torch.zeros(2).double(), atol=1e-4, rtol=0)


@motion
def test_noise_moves_along_without_the_translation(name: str) -> None:
    """Noise z that an explainer adds to a moved input is that of the original, moved: g·x + carried(z) = g·(x + z)."""
    group, noise = MOTIONS[name], values(2, 6, 3, seed=5) * MASK[..., None]
    for piece in orbit_of(group, POINTS, 3).pieces():
        of_rows = noise[piece.sample]
        noisy = POINTS[piece.sample].with_x(POINTS.x[piece.sample] + of_rows)
        torch.testing.assert_close(
            piece.batch.x + piece.batch.carried(of_rows), group.act(piece.g, noisy).x
        )


def test_a_network_that_sees_positions_is_found_out_by_translations_alone() -> None:
    class Origin(nn.Module):
        """Invariant to rotations about the origin, and to no translation."""

        def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
            radius = x.square().sum(-1)
            return torch.stack([(-radius).exp().sum(1), radius.sum(1)], 1)

    points = named(values(2, 6, 3))
    for group, is_symmetric in ((euclidean(shift=0.0), True), (euclidean(rotations=False), False)):
        change = model_invariance(Model(Origin()), points, group, n=8).change.value
        score = equivariance(Model(Origin()), points, ZERO, SIGNED, group, n=8).value
        assert bool((change < 1e-4).all()) == bool((score > 0.999).all()) == is_symmetric


def test_positions_beside_features_are_moved() -> None:
    features, position = values(2, 6, 5), values(2, 6, 2, seed=1)
    graph = named(features, pos=position, adjacency=torch.ones(2, 6, 6))
    group = euclidean(columns=(0, 1), positions="pos")
    moved = group.act(group.sample(graph, 1, seed=0)[0], graph)
    assert torch.equal(moved.x, features) and not torch.equal(moved.aux["pos"], position)
    torch.testing.assert_close(
        torch.cdist(moved.aux["pos"], moved.aux["pos"]), torch.cdist(position, position)
    )
    assert torch.equal(group.move(group.sample(graph, 1, 0)[0], features), features)
    with pytest.raises(UserError, match="'pos'"):
        group.check_inputs(named(features))


def test_samples_that_are_no_points_are_refused() -> None:
    for shape in ((3, 8, 8), (6, 2)):
        with pytest.raises(UserError, match="points"):
            euclidean().check(shape)
    with pytest.raises(UserError, match="columns"):
        euclidean(columns=(0, 0, 1))
    with pytest.raises(UserError, match="scalar"):
        euclidean().move(euclidean().identity(POINTS), values(2, 6))


# Time warping


def test_warps_are_a_group_with_fixed_ends() -> None:
    group, time = time_warp(most=2), torch.linspace(0, 1, 401).double()
    smooth = named(torch.stack([time, torch.sin(9 * time)])[:, None])
    for g, h in zip(*group.sample(smooth, 8, seed=0).split(4), strict=True):
        assert bool((g.abs() <= math.log(2)).all())
        moved = group.act(g, smooth).x
        torch.testing.assert_close(moved[..., [0, -1]], smooth.x[..., [0, -1]])
        # A ramp becomes the inverse of the warp itself, in closed form.
        slower = torch.exp(-g[0])
        expected = time * slower / (1 - time + time * slower)
        torch.testing.assert_close(moved[0, 0], expected, atol=1e-5, rtol=0)
        both = group.act(group.compose(g, h), smooth).x
        torch.testing.assert_close(both, group.act(g, group.act(h, smooth)).x, atol=1e-3, rtol=0)
        back = group.act(group.inverse(g), group.act(g, smooth)).x
        torch.testing.assert_close(back, smooth.x, atol=1e-3, rtol=0)
        alone = group.move(g[1], smooth.x[1:, 0])
        torch.testing.assert_close(alone, moved[1:, 0])
    with pytest.raises(UserError, match="series"):
        group.check((3, 8, 8))


def test_a_model_that_sees_values_in_order_alone_is_nearly_invariant_to_warps() -> None:
    """The largest and the smallest value do not depend on the time at which they come; the mean over time does."""

    class Extremes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x.amax(2), x.amin(2)], 1)

    class Average(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.cat([x.mean(2), -x.mean(2)], 1)

    time = torch.linspace(0, 1, 400)
    series = named(torch.stack([torch.sin(7 * time), torch.cos(11 * time) * time])[:, None])
    change = [
        float(model_invariance(Model(net), series, time_warp(), n=8).change.value.max())
        for net in (Extremes(), Average())
    ]
    assert change[0] < 0.02
    assert change[1] > 0.1


# Draws that are not uniform

NEAR = {"distribution": "normal", "sd": 20.0}
ANGLES = {
    "uniform": so2(),
    "normal": so2(**NEAR),
    "weighted": so2(**NEAR, weighted=True),
}


def drawn_angles(name: str, n: int = 20_000) -> Tensor:
    return ANGLES[name].sample(named(values(1, 1, 4, 4)), n, seed=0)[:, 0]


def test_normal_angles_have_the_distribution_that_was_named() -> None:
    angles = drawn_angles("normal").numpy()
    cut_off = stats.truncnorm(-9, 9, scale=20)
    assert stats.kstest(angles, cut_off.cdf).pvalue > 1e-3
    sizes = scale(most=1.5, distribution="normal", sd=0.3).sample(
        named(values(1, 1, 4, 4)), 20_000, seed=0
    )[:, 0]
    limit = math.log(1.5)
    assert bool((sizes.abs() <= limit).all())
    expected = stats.truncnorm(-limit / 0.3, limit / 0.3, scale=0.3)
    assert stats.kstest(sizes.numpy(), expected.cdf).pvalue > 1e-3


def test_weights_turn_the_draws_into_uniform_ones() -> None:
    """Importance sampling: for any function φ, the mean of w φ is its mean over all angles."""
    group, angles = ANGLES["weighted"], drawn_angles("weighted")
    weights = group.weights(angles)
    assert weights is not None and float(weights.max()) <= group.largest_weight
    for function in (
        torch.ones_like,
        lambda a: (torch.deg2rad(a)).cos(),
        lambda a: (a.abs() < 30).double(),
    ):
        over_all = function(torch.linspace(-180, 180, 100_001).double()).mean()
        estimate = weights * function(angles)
        error = float(estimate.std()) / math.sqrt(len(angles))
        assert abs(float(estimate.mean() - over_all)) < 4 * error + 1e-4
    # More draws near the identity than uniform ones have.
    assert (angles.abs() < 30).double().mean() > 0.4


def test_a_weighted_score_is_that_of_uniform_draws_and_keeps_its_bounds() -> None:
    batch = named(values(40, 1, 4, 4))
    smooth = (1 + torch.cos(torch.deg2rad(torch.linspace(-180, 180, 10_001).double()))) / 2
    truth = float(smooth.mean())
    orbit = orbit_of(ANGLES["weighted"], batch, 200, seed=0)
    score_of_angle = (1 + torch.cos(torch.deg2rad(orbit.elements.T))) / 2
    estimate = estimated(orbit, score_of_angle, ("",) * 40, 0.0, 0.05)
    assert abs(float(estimate.value.mean()) - truth) < 0.01
    is_inside = (estimate.low <= truth) & (truth <= estimate.high)
    assert float(is_inside.double().mean()) >= 0.95
    assert bool((estimate.low <= estimate.value).all() and (estimate.value <= 1).all())
    perfect = estimated(orbit, torch.ones_like(score_of_angle), ("",) * 40, 0.0, 0.05)
    assert torch.equal(perfect.value, torch.ones(40).double())
    nothing = estimated(orbit, torch.zeros_like(score_of_angle), ("",) * 40, 0.0, 0.05, perfect=0.0)
    assert torch.equal(nothing.value, torch.zeros(40).double())


def test_nearer_elements_change_an_explanation_less() -> None:
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(400, 2))
    model, batch = Model(net), named(values(2, 1, 12, 12))
    scores = {
        name: equivariance(model, batch, ZERO, SIGNED, group, n=64).value.mean()
        for name, group in ANGLES.items()
    }
    assert scores["normal"] > scores["uniform"] + 0.05
    assert abs(scores["weighted"] - scores["uniform"]) < 0.12
    assert "sd 20" in ANGLES["normal"].title and "sd" not in ANGLES["weighted"].title


def test_a_study_names_distributions_and_wrong_ones_are_refused() -> None:
    assert build({"so2": NEAR}) == ANGLES["normal"]
    run = heatproof.evaluate(
        nn.Sequential(nn.Flatten(), nn.Linear(192, 2)),
        values(2, 3, 8, 8),
        ["saliency"],
        {
            "near": {
                "symmetry": {
                    "group": {"so2": {**NEAR, "weighted": True}},
                    "elements": 4,
                    "convergence": [2],
                }
            }
        },
    )
    assert (run.table().query("measure == 'equivariance'").status == "ok").all()
    for wrong, message in (
        ({"distribution": "normal"}, "sd"),
        ({"sd": 3.0}, "sd: 3"),
        ({"weighted": True}, "weighted"),
    ):
        with pytest.raises(UserError, match=message):
            build({"so2": wrong}).check((3, 8, 8))
    with pytest.raises(UserError, match="weighted"):
        symmetrise(SIGNED, ANGLES["weighted"], n=4).check(Model(nn.Flatten()), (1, 8, 8))

"""Volumes (C, D, H, W) on every axis, each step against a reference of its own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage, sparse
from scipy.sparse.linalg import spsolve
from torch import nn

import heatproof
from heatproof import Batch, Model, UserError, features, rand
from heatproof.axes.stability.perturbations import (
    Brightness,
    Contrast,
    Elastic,
    GaussianBlur,
    GaussianNoise,
    OccludingPatch,
    Rotation,
    Translation,
)
from heatproof.maps.similarity import compare, profile, ssim
from heatproof.removal import Blur, NoisyLinear
from heatproof.runs.gallery import read_gallery


def solids(n: int = 6, side: int = 12, channels: int = 1) -> torch.Tensor:
    """Volumes in [0, 1]: noise with a brighter cuboid of its own place and size in each."""
    x = (
        0.3
        * rand.uniform(
            rand.keys(4, [str(i) for i in range(n)], "solids"), (channels, side, side, side)
        ).float()
    )
    for i in range(n):
        x[i, :, 2 : 5 + i % 3, 3 + i % 2 : 8, 1 + i % 4 : 7] += 0.4 + 0.1 * (i % 3)
    return x


def batch_of(x: torch.Tensor) -> Batch:
    return Batch(tuple(map(str, range(len(x)))), x)


def test_ssim_has_cubes_for_windows():
    metrics = pytest.importorskip("skimage.metrics", reason="scikit-image is not installed")
    a, b = solids(2)[:, 0], solids(4)[2:, 0]
    found = ssim(a, b, 7, "valid", dims=3)
    for x, y, score in zip(a.double().numpy(), b.double().numpy(), found.tolist(), strict=True):
        scaled = [(v - v.min()) / (v.max() - v.min()) for v in (x, y)]
        wanted = metrics.structural_similarity(
            *scaled, win_size=7, data_range=1, use_sample_covariance=False
        )
        assert score == pytest.approx(wanted, abs=2e-6)
    maps = profile(solids(2), k=10, dims=3)
    assert compare(maps, maps)["ssim"].tolist() == [1, 1]


def test_perturbations_of_volumes_are_those_of_planes_or_of_space():
    x = solids(3)
    batch = batch_of(x)
    planes = x[:, 0].reshape(-1, 1, 12, 12)
    turned = Rotation(degrees=20)(batch_of(planes), 0).reshape(3, 1, 12, 12, 12)
    assert torch.equal(Rotation(degrees=20)(batch, 0), turned)  # about the depth
    for axis, dim in (("horizontal", -1), ("vertical", -2), ("depth", -3)):
        moved, valid = Translation(pixels=2, axis=axis).move(x, batch.ids, 0)
        assert (
            torch.equal(moved.narrow(dim, 2, 10), x.narrow(dim, 0, 10))
            and valid.sum() == 3 * 12 * 12 * 10
        )
        assert torch.equal(
            Translation(pixels=-2, axis=axis)(batch, 0).narrow(dim, 0, 10), x.narrow(dim, 2, 10)
        )
    warped, valid = Elastic(amplitude=2.0).move(x, batch.ids, 0)
    one, inside = Elastic(amplitude=2.0).move(x[:, :, 5], batch.ids, 0)
    assert torch.equal(warped[:, :, 5], one) and torch.equal(valid[:, :, 0], inside)
    blurred = np.stack(
        [ndimage.gaussian_filter(v[0].double().numpy(), 1.5, mode="nearest") for v in x]
    )
    np.testing.assert_allclose(GaussianBlur(sigma=1.5)(batch, 0)[:, 0], blurred, atol=1e-5)
    hidden = OccludingPatch(fraction=0.1, value=0.0)(batch_of(torch.ones(4, 1, 12, 12, 12)), 0) == 0
    for one in hidden[:, 0]:
        places = one.nonzero()
        assert ((places.amax(0) - places.amin(0) + 1) == round((0.1 * 12**3) ** (1 / 3))).all()
        assert len(places) == round((0.1 * 12**3) ** (1 / 3)) ** 3
    mean = x.mean((1, 2, 3, 4), keepdim=True)
    torch.testing.assert_close(
        Contrast(factor=1.2)(batch, 0), (mean + 1.2 * (x - mean)).clamp(0, 1)
    )
    torch.testing.assert_close(Brightness(factor=1.2)(batch, 0), (1.2 * x).clamp(0, 1))
    assert GaussianNoise()(batch, 0).shape == x.shape


def test_cubes_and_supervoxels_are_features():
    x = solids(2, channels=3)
    cubes = features.Patches(size=5)
    labels = cubes.segments(batch_of(x))[0]
    assert cubes.total(x.shape) == 27 == labels.max() + 1
    assert labels[0, 0].tolist() == [0] * 5 + [1] * 5 + [2] * 2 and labels[5, 5, 10] == 9 + 3 + 2
    pytest.importorskip("skimage", reason="scikit-image is not installed")
    voxels = features.Slic(n_segments=12).segments(batch_of(solids(2)))
    assert voxels.shape == (2, 12, 12, 12) and 2 < int(voxels[0].max()) < 40
    from skimage.segmentation import slic

    grey = solids(2)[0, 0].double()[..., None].expand(-1, -1, -1, 3).numpy()
    assert (
        len(np.unique(slic(grey, n_segments=12, compactness=10.0, start_label=0)))
        == int(voxels[0].max()) + 1
    )


def test_removed_voxels_are_the_solution_of_the_equations():
    x = solids(2, side=6, channels=2)
    keep = rand.uniform(rand.keys(5, ("a", "b"), "keep"), (6, 6, 6)) > 0.8
    found = NoisyLinear(sigma=0.0, tolerance=1e-9)(x, keep)
    place = np.arange(6**3).reshape(6, 6, 6)
    steps = [
        (np.take(place, range(5), d).ravel(), np.take(place, range(1, 6), d).ravel())
        for d in range(3)
    ]
    i, j = (np.concatenate(side) for side in zip(*steps, strict=True))
    joined = sparse.coo_matrix((np.ones(len(i)), (i, j)), shape=(216, 216)).tocsr()
    joined = joined + joined.T
    system = sparse.diags(np.asarray(joined.sum(1)).ravel()) - joined
    for b in range(2):
        kept = keep[b].flatten().numpy()
        for c in range(2):
            values = x[b, c].flatten().double().numpy()
            wanted = spsolve(
                system[~kept][:, ~kept].tocsc(), -system[~kept][:, kept] @ values[kept]
            )
            np.testing.assert_allclose(found[b, c].flatten()[~kept], wanted, atol=1e-6)
    assert torch.equal(found[keep[:, None].expand_as(x)], x[keep[:, None].expand_as(x)])
    alone = NoisyLinear(sigma=0.0)(x[1:], keep[1:], ids=("1",))
    torch.testing.assert_close(alone, NoisyLinear(sigma=0.0)(x, keep)[1:])
    smooth = ndimage.gaussian_filter(x[0, 0].double().numpy(), 1.0, mode="nearest", truncate=4)
    np.testing.assert_allclose(Blur(sigma=1.0)(x, torch.zeros_like(keep))[0, 0], smooth, atol=1e-5)


def exact(model, batch, target, seed):
    inputs = model.inputs(batch).requires_grad_()
    with torch.enable_grad():
        total = model.logits(inputs, batch.aux).gather(1, target[:, None]).sum()
    return (torch.autograd.grad(total, inputs)[0] * inputs).detach()


exact.stochastic = False  # type: ignore[attr-defined]


class Weighted(nn.Module):
    """Two weighted sums of voxels, alike under every turn and reflection: weights are those of shells of a cube."""

    def __init__(self) -> None:
        super().__init__()
        far = torch.stack(
            torch.meshgrid(*[(torch.arange(12) - 5.5).abs()] * 3, indexing="ij")
        ).amax(0)
        self.weight = nn.Parameter(
            torch.stack([torch.sin(far), torch.cos(2 * far)]).flatten(1) / 50
        )

    def forward(self, x):
        return x.flatten(1) @ self.weight.T


def test_a_model_of_volumes_goes_through_every_axis(tmp_path):
    masks = solids() > 0.4
    data = heatproof.open_data(solids(), regions=masks[:, 0].numpy())
    cubes = {"features": {"patches": {"size": 4}}}
    axes = [
        heatproof.Stability(),
        heatproof.Faithfulness(imputers=("zero", "noisy_linear"), fractions=(0.2, 0.5), masks=8),
    ]
    axes += [
        heatproof.Symmetry(group="octahedral", elements=12),
        heatproof.Localisation(),
        heatproof.Agreement(),
    ]
    axes += [heatproof.Certificate(radii=(1,), epsilon=0.4, **cubes)]
    run = heatproof.evaluate(Model(Weighted()), data, [exact, "random"], axes, references=3)
    table = run.table()
    for evaluation, rows in table[table.explainer == "exact"].groupby("evaluation"):
        assert "ok" in set(rows.status), evaluation
    score = (
        table.query("status == 'ok'")
        .groupby(["evaluation", "measure", "explainer"])["value"]
        .mean()
    )
    assert score["symmetry", "equivariance", "exact"] > 0.99999
    assert score["symmetry", "model_change", "exact"] < 1e-4
    assert abs(score["symmetry", "equivariance", "random"]) < 0.1
    road = (
        table.query("condition == 'zero' and measure == 'road'")
        .groupby("explainer")["value"]
        .mean()
    )
    assert road["exact"] == road.max() > road["random"] + 0.02
    moved = table.query("measure == 'ssim' and condition == 'translation' and explainer == 'exact'")
    assert (moved.query("status == 'ok'")["value"] > 0.5).all()
    page = run.report(tmp_path / "page.html").read_text()
    assert "voxels" in page and {shown.kind for shown in read_gallery(run.path)} == {"volume"}


def test_explainers_that_cover_parts_of_volumes_find_the_voxels_that_count():
    cubes = {"features": {"patches": {"size": 3}}}
    methods = [
        exact,
        {"occlusion": {"window": 3, "stride": 3}},
        {"rise": {"samples": 200, "readout": "logit"}},
        "random",
    ]
    methods += [{"lime": {"samples": 150, **cubes}}, {"kernel_shap": {"samples": 150, **cubes}}]
    road = heatproof.Faithfulness(
        imputers="zero", fractions=(0.2, 0.5), metrics=("road",), readout="logit"
    )
    ranks = heatproof.evaluate(Model(Weighted()), solids(), methods, road, references=3).ranking()
    scores = ranks.set_index("explainer")["score"]
    assert scores.idxmax() == "exact" and scores.drop("random").min() > scores["random"]


def test_what_does_not_fit_volumes_is_refused_before_any_pass():
    model, x = Model(Weighted()), solids()
    for axis, why in (
        (
            heatproof.Stability(perturbations="jpeg"),
            r"jpeg.*volumes.*rotation",
        ),
        (
            heatproof.Stability(perturbations={"translation": {"pixels": 12, "axis": "depth"}}),
            r"12.*depth",
        ),
        (heatproof.Symmetry(group={"dihedral": {"n": 8}}), r"dihedral.8.*1, 12, 12, 12"),
        (heatproof.Certificate(features={"superpixels": {}}), r"patches.*slic"),
        (
            heatproof.Certificate(features={"patches": {"size": 12}}),
            r"12×12×12",
        ),
    ):
        with pytest.raises(UserError, match=why):
            heatproof.evaluate(model, x, ["saliency"], axis)
    with pytest.raises(UserError, match=r"\[0, 1\].*400"):
        heatproof.evaluate(model, torch.where(x > 0.5, 400.0, x), ["saliency"], "stability")
    with pytest.raises(UserError, match=r"depth.*volumes.*3, 8, 8"):
        heatproof.evaluate(
            nn.Flatten(),
            torch.rand(2, 3, 8, 8),
            ["saliency"],
            heatproof.Stability(perturbations={"translation": {"pixels": 1, "axis": "depth"}}),
        )
    assert model.passes == 0

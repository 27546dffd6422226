"""Inpainting by scikit-image and OpenCV, and columns by scikit-learn: references, laws and mistakes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.experimental import enable_iterative_imputer  # noqa: F401
from sklearn.impute import IterativeImputer

import heatproof
from heatproof.errors import UserError
from heatproof.features import Pixels
from heatproof.removal import CONTEXTUAL, IMPUTERS, Biharmonic, KNearest, Mice, Telea

INPAINTING = {"biharmonic": ("skimage", Biharmonic()), "telea": ("cv2", Telea())}


def imputer_of(name: str) -> Any:
    package, imputer = INPAINTING[name]
    pytest.importorskip(package, reason=f"{package} is not installed")
    return imputer


def pictures(n: int = 3, side: int = 20) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.nn.functional.avg_pool2d(torch.rand(n, 3, side, side, generator=generator), 3, 1, 1)
    return x, torch.rand(n, side, side, generator=generator) > 0.4


def test_biharmonic_solves_the_biharmonic_equation() -> None:
    """Δ²u = 0 at removed pixels away from the border, with Δ² as the square of the five-point Laplacian."""
    imputer = imputer_of("biharmonic")
    x, _ = pictures(1)
    keep = torch.ones(1, 20, 20, dtype=torch.bool)
    keep[0, 8:11, 9:12] = False
    u = imputer(x, keep)[0].double().numpy()
    laplacian = sum(np.roll(u, *shift) for shift in ((1, 1), (-1, 1), (1, 2), (-1, 2))) - 4 * u
    twice = sum(np.roll(laplacian, *s) for s in ((1, 1), (-1, 1), (1, 2), (-1, 2))) - 4 * laplacian
    assert np.abs(twice[:, ~keep[0].numpy()]).max() < 1e-4


def test_biharmonic_continues_a_slope() -> None:
    imputer = imputer_of("biharmonic")
    ramp = torch.linspace(0, 1, 16).expand(1, 2, 16, 16)
    keep = torch.ones(1, 16, 16, dtype=torch.bool)
    keep[0, 5:9, 5:10] = False
    assert torch.allclose(imputer(ramp, keep), ramp, atol=1e-4)


def test_telea_is_opencvs_on_single_channels() -> None:
    imputer = imputer_of("telea")
    import cv2

    x, keep = pictures()
    filled = imputer(x, keep)
    for image, kept, result in zip(x, keep, filled, strict=True):
        for channel, plane in zip(image, result, strict=True):
            known = torch.where(kept, channel, 0.0).numpy()
            expected = cv2.inpaint(known, (~kept).numpy().astype(np.uint8), 3.0, cv2.INPAINT_TELEA)
            expected = expected[~kept.numpy()].clip(known[kept].min(), known[kept].max())
            np.testing.assert_allclose(plane[~kept].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("name", INPAINTING)
def test_inpainting_obeys_the_laws_of_imputers(name: str) -> None:
    imputer = imputer_of(name)
    x, keep = pictures()
    everywhere = keep[:, None].expand_as(x)
    filled = imputer(x, keep, ("a", "b", "c"), 0)
    assert torch.equal(filled[everywhere], x[everywhere])
    assert torch.isfinite(filled).all() and not torch.equal(filled, x)
    other = torch.where(everywhere, x, torch.rand_like(x))
    assert torch.equal(imputer(other, keep), filled), "removed values must not matter"
    single = torch.cat([imputer(x[i : i + 1], keep[i : i + 1]) for i in range(3)])
    assert torch.equal(single, filled)
    assert torch.equal(imputer(x, torch.ones_like(keep)), x)
    assert imputer(x[:0], keep[:0]).shape == (0, 3, 20, 20)
    assert imputer(x.double(), keep).dtype == torch.float64
    with pytest.raises(UserError, match="'b'"):
        imputer(x, keep & torch.tensor([True, False, True])[:, None, None], ("a", "b", "c"))
    with pytest.raises(UserError, match="images"):
        imputer(x[:, :, 0], keep[:, 0])


@pytest.mark.parametrize("name", INPAINTING)
def test_inpainting_may_be_named_in_a_study(name: str) -> None:
    imputer_of(name)
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 12 * 12, 3))
    axis = {"imputers": [name, "zero"], "fractions": [0.2, 0.5], "metrics": ["road"]}
    x = pictures(4, 12)[0]
    table = heatproof.evaluate(net, x, ["saliency"], {"faithfulness": axis}).table()
    road = table[(table.imputer == name) & (table.measure == "road")]
    assert len(road) == 4 and (road.status == "ok").all()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    x, keep = pictures()
    for imputer, module in ((Biharmonic(), "skimage.restoration"), (Telea(), "cv2")):
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(UserError, match=r"heatproof\[inpainting\]"):
            imputer(x, keep)


# ---- columns -------------------------------------------------------------------------------------


def rows(n: int, seed: int = 0) -> torch.Tensor:
    """Five columns of which the last two follow from the others, with noise."""
    generator = torch.Generator().manual_seed(seed)
    free = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    noise = 0.1 * torch.randn(n, 2, generator=generator, dtype=torch.float64)
    return torch.cat([free, free[:, :2] + 2 * free[:, 2:] + noise], 1)


REFERENCE, X = rows(60), rows(7, seed=1)
KEEP = torch.rand(7, 5, generator=torch.Generator().manual_seed(2)) > 0.4


def test_nearest_rows_by_brute_force() -> None:
    filled = KNearest(k=3).bound(REFERENCE, Pixels())(X, KEEP)
    for row, kept, result in zip(X, KEEP, filled, strict=True):
        expected = row.clone()
        distance = (REFERENCE[:, kept] - row[kept]).square().sum(1)
        nearest = distance.argsort(stable=True)[:3]
        expected[~kept] = REFERENCE[nearest].mean(0)[~kept]
        if not kept.any():
            expected = REFERENCE.mean(0)
        assert torch.allclose(result, expected)


def test_one_round_of_mice_is_scikit_learns_iterative_imputer() -> None:
    """Learnt from complete rows, that takes one round from the means, clamped to the range of the rows."""
    ends = {"min_value": REFERENCE.amin(0).numpy(), "max_value": REFERENCE.amax(0).numpy()}
    reference = IterativeImputer(imputation_order="roman", **ends).fit(REFERENCE.numpy())
    expected = reference.transform(X.masked_fill(~KEEP, torch.nan).numpy())
    filled = Mice(rounds=1, draws=False).bound(REFERENCE, Pixels())(X, KEEP)
    np.testing.assert_allclose(filled.numpy(), expected, rtol=1e-6)


def test_many_rounds_of_mice_make_every_column_the_prediction_from_the_others() -> None:
    bound = Mice(rounds=3000, draws=False).bound(REFERENCE, Pixels())
    filled = bound(X, KEEP)
    predicted = (bound.intercepts + filled @ bound.weights.T).clamp(bound.low, bound.high)
    assert torch.allclose(filled[~KEEP], predicted[~KEEP], atol=1e-6)
    hidden = X[:, 4].clone()
    keep = torch.ones_like(KEEP)
    keep[:, 4] = False
    error = (bound(X, keep)[:, 4] - hidden).abs()
    # A value beyond the range of the rows is cut, so not all are near.
    assert error.median() < 0.2
    assert (REFERENCE[:, 4].mean() - hidden).abs().median() > 1


def test_draws_have_the_deviation_of_the_posterior_and_are_keyed_by_id() -> None:
    bound = Mice(rounds=1).bound(REFERENCE, Pixels())
    x = X[:1].expand(4000, 5)
    keep = torch.tensor([True, True, True, True, False]).expand(4000, 5)
    ids = [f"r{i}" for i in range(4000)]
    drawn = bound(x, keep, ids, 3)[:, 4]
    calm = Mice(rounds=1, draws=False).bound(REFERENCE, Pixels())(X[:1], keep[:1])[0, 4]
    centred = torch.where(keep[0], X[0], bound.mean) - bound.mean
    deviation = float((bound.noise[4] + centred @ bound.spread[4] @ centred).sqrt())
    assert abs(float(drawn.std()) / deviation - 1) < 0.05
    assert abs(float(drawn.mean() - calm)) < 0.1 * deviation
    assert torch.equal(bound(x[:2], keep[:2], ids[:2], 3)[:, 4], drawn[:2])


@pytest.mark.parametrize("name", ["k_nearest", "mice"])
def test_columns_may_be_filled_by_name_in_a_study(name: str) -> None:
    torch.manual_seed(0)
    net = torch.nn.Linear(5, 3)
    x = rows(30).float()
    for imputer in (name, {name: {"data": REFERENCE}}):
        axis = {"imputers": [imputer], "fractions": [0.2, 0.6], "metrics": ["road"]}
        run = heatproof.evaluate(net, x, ["saliency", "random"], {"faithfulness": axis})
        assert (run.table().query("measure == 'road'").status == "ok").all()
        assert run.table().imputer.str.len().max() < 40, "rows are named by a digest"
    picture_net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 12 * 12, 3))
    axis = {"imputers": [name], "fractions": [0.5]}
    with pytest.raises(UserError, match=name):
        heatproof.evaluate(picture_net, pictures(4, 12)[0], ["saliency"], {"faithfulness": axis})


def test_columns_keep_what_is_kept_and_need_complete_rows() -> None:
    for kind in (CONTEXTUAL["k_nearest"], CONTEXTUAL["mice"]):
        bound = kind().bound(REFERENCE, Pixels())
        filled = bound(X, KEEP, tuple("abcdefg"), 0)
        assert torch.equal(filled[KEEP], X[KEEP]) and torch.isfinite(filled).all()
        alone = torch.cat(
            [bound(X[i : i + 1], KEEP[i : i + 1], ("abcdefg"[i],), 0) for i in range(7)]
        )
        assert torch.allclose(alone, filled)
        with pytest.raises(UserError, match="complete row"):
            kind().bound(torch.full((3, 5), torch.nan), Pixels())
        with pytest.raises(UserError, match="4 columns"):
            kind(data=REFERENCE[:, :4]).bound(REFERENCE, Pixels())
    assert {"biharmonic", "telea"} < set(IMPUTERS)

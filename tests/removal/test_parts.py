"""Parts of the imputers: draws in parts, refusals, own baselines, and which solver takes which mask."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from heatproof import removal
from heatproof.errors import UserError
from heatproof.explainers import GradCAM, IntegratedGradients, Lime, Occlusion, SmoothGrad
from heatproof.features import Patches, Pixels, Tokens
from heatproof.removal import contextual, imputers
from heatproof.removal.harmonic import linear, multigrid, volumes
from heatproof.types import Batch
from support.fixed import fixed


def kept(*shape: int, share: float = 0.5, seed: int = 1) -> Tensor:
    keep = torch.as_tensor(np.random.default_rng(seed).random(shape) < share)
    keep.flatten(1)[:, 0] = True
    return keep


SHAPES = {"image": (2, 2, 5, 6), "series": (2, 2, 11), "volume": (2, 1, 3, 4, 3), "row": (2, 7)}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("name", removal.IMPUTERS)
def test_what_is_kept_stays_on_data_of_every_shape(name: str, kind: str) -> None:
    x = fixed(*SHAPES[kind])
    keep = kept(*(x.shape if kind == "row" else (2, *x.shape[2:])))
    parameters = {"mean": (0.5,)} if name == "dataset_mean" else {}
    imputer = removal.IMPUTERS[name](**parameters)
    of_images = {"biharmonic": "skimage", "telea": "cv2"}
    neighbours = ("image_mean", "blur", "noisy_linear", "noisy_linear_published")
    if (kind == "row" and name in neighbours) or (kind != "image" and name in of_images):
        with pytest.raises(UserError, match=name):
            imputer(x, keep)
        return
    if name in of_images:
        pytest.importorskip(of_images[name], reason=f"{of_images[name]} is not installed")
    filled = imputer(x, keep, ("a", "b"), 3)
    where = keep if kind == "row" else keep[:, None].expand_as(x)
    assert torch.equal(filled[where], x[where]) and bool(filled.isfinite().all())
    assert torch.equal(imputer(x, keep), imputer(x, keep, ("0", "1"), 0))


def test_draws_some_at_a_time_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x, keep, ids = fixed(5, 1, 3, 4), kept(5, 3, 4), ("a", "b", "a", "c", "b")
    wanted = [
        imputer(x, keep, ids, 1) for imputer in (removal.UniformNoise(), removal.NoisyLinear())
    ]
    assert torch.equal(
        wanted[0][0][~keep[[0]] & ~keep[[2]]], wanted[0][2][~keep[[0]] & ~keep[[2]]]
    )  # of one id
    for size in (1, 24, 40):
        monkeypatch.setattr(imputers, "_DRAWS_AT_ONCE_CPU", size)
        found = [
            imputer(x, keep, ids, 1) for imputer in (removal.UniformNoise(), removal.NoisyLinear())
        ]
        assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True))


def test_what_no_imputer_can_use_is_refused() -> None:
    x, keep = fixed(2, 1, 3, 4), kept(2, 3, 4)
    zero = removal.Zero()
    for wrong in (
        lambda: zero(x.long(), keep), lambda: zero(x, keep.long()), lambda: zero(x, keep[:1]),
        lambda: zero(x[0, 0], keep[0, :1]),
        lambda: zero(x, keep, ("a",)), lambda: zero(x.masked_fill(~keep[:, None], torch.nan), keep),
        lambda: zero(fixed(2, 1, 1, 1, 1, 1), keep), lambda: zero(fixed(2, 3), torch.ones(2, 4).bool()),
        lambda: removal.DatasetMean(mean=(0.1, 0.2))(x, keep), lambda: removal.NoisyLinear()(x, keep & (x[:, 0] > 2)),
    ):  # fmt: skip
        with pytest.raises(UserError):
            wrong()
    huge = torch.full((1, 1, 1, 2), 3e38)  # finite, though its sum is not
    assert torch.equal(zero(huge, torch.ones(1, 1, 2).bool()), huge)
    assert removal.NoisyLinear()(x[:0], keep[:0]).shape == (0, 1, 3, 4)
    exact = removal.NoisyLinear(sigma=0.0)(x, keep)
    assert not torch.equal(exact, removal.NoisyLinear(sigma=0.01)(x, keep))
    noise = removal.NoisyLinear(sigma=0.2)(x, keep, ("a", "b")) - exact
    assert torch.allclose(
        noise, 20 * (removal.NoisyLinear()(x, keep, ("a", "b")) - exact), atol=1e-5
    )


def test_imputers_that_need_more_than_the_sample() -> None:
    reference = torch.tensor([[1.0, 5.0, torch.nan], [3.0, torch.inf, 1.0]])
    fill = removal.ReferenceMean().bound(reference, Pixels())
    assert fill.fill.tolist() == [2.0, 5.0, 1.0]
    images = removal.ReferenceMean().bound(fixed(3, 2, 2, 2), Pixels())
    keep = kept(1, 2, 2)
    x = fixed(1, 2, 2, 2, seed=4)
    assert torch.equal(images(x, keep), torch.where(keep[:, None], x, images.fill))
    with pytest.raises(UserError, match="at least one"):
        removal.ReferenceMean().bound(reference[:0], Pixels())
    with pytest.raises(UserError, match="boolean"):
        images(x, keep.long())
    with pytest.raises(UserError, match="tokens"):
        removal.Hidden().bound(reference, Pixels())
    texts = Batch(
        ("a",), torch.tensor([[4, 5, 6]]), {"attention_mask": torch.ones(1, 3)}, torch.tensor([1])
    )
    for tokens in (Tokens(mask_token=9), Tokens()):
        hiding = removal.Hidden().bound(reference, tokens)
        hidden = hiding.hide(texts, torch.tensor([[True, False, True]]))
        assert hiding.needs_kept == (tokens.mask_token is None) and hidden.label is texts.label
        assert (hidden.x[0, 1] == 9) == (not hiding.needs_kept) and hidden.ids == texts.ids
        assert hidden.aux["attention_mask"].tolist() == (
            [[1, 0, 1]] if hiding.needs_kept else [[1, 1, 1]]
        )


@pytest.mark.parametrize(
    ("explainer", "value"),
    [
        (IntegratedGradients(baseline=2.0), 2.0),
        (IntegratedGradients(), 0.0),
        (GradCAM(), 0.0),
        (Lime(features=Patches(2), fill="mean"), 0.0),
        (Occlusion(fill=0.7), 0.7),
        (SmoothGrad(of=IntegratedGradients(baseline=3)), 3.0),
    ],
    ids=str,
)
def test_the_baseline_of_an_explainer_is_measured_in_units_of_the_data(
    explainer: Any, value: float
) -> None:
    ask = contextual.OwnBaseline().of
    assert ask(explainer, None, None).mean == pytest.approx((value,))
    for mean, std in (([0.5, 0.4], [0.25, 0.25]), ([0.5, 0.5], [0.2, 0.1])):
        wanted = [m + s * value for m, s in zip(mean, std, strict=True)]
        assert ask(explainer, mean, std).mean == pytest.approx(wanted)
    assert ask(explainer, [0.5], [0.2, 0.1]).mean == pytest.approx(
        [0.5 + 0.2 * value, 0.5 + 0.1 * value]
    )


def test_a_fill_given_as_a_number_is_in_units_of_the_data_already() -> None:
    ask = contextual.OwnBaseline().of
    explainer = Lime(features=Patches(2), fill=0.3)
    for mean, std in ((None, None), ([0.5, 0.4], [0.25]), ([0.5], [0.2, 0.1])):
        assert ask(explainer, mean, std).mean == pytest.approx((0.3,))


def test_a_strict_tolerance_takes_more_steps_and_too_few_are_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, keep = fixed(2, 2, 19, 22).double(), kept(2, 19, 22, share=0.15)
    _, iterations = multigrid.fill(x, keep, 1e-6)
    assert iterations.shape == (2,) and int(iterations.min()) >= 2
    assert int(multigrid.fill(x, keep, 1e-2)[1].max()) < int(iterations.min())
    monkeypatch.setattr(multigrid, "ITERATIONS", int(iterations.min()) - 1)
    with pytest.raises(UserError, match=str(int(iterations.min()) - 1)):
        multigrid.fill(x, keep, 1e-6)


def test_the_coarsest_level_is_solved_exactly() -> None:
    """Where the whole image is the coarsest level, one step is all that it takes."""
    keep = kept(1, 16, 16, share=0.2)
    for side, steps in ((16, 1), (17, 3)):
        there = torch.nn.functional.pad(keep, (0, side - 16), value=True)
        _, iterations = multigrid.fill(fixed(1, 1, 16, side).double(), there, 1e-8)
        assert (int(iterations) == 1) == (steps == 1)


def test_which_solver_takes_which_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, ...]] = []
    banded, fill = linear.banded, multigrid.fill

    def direct(x: Any, keep: Any) -> Any:
        asked.append(("banded", x.shape))
        return banded(x, keep)

    def by_levels(x: Tensor, keep: Tensor, tolerance: float, scattered: bool) -> Any:
        asked.append((len(x), x.dtype, scattered))
        return fill(x, keep, tolerance, scattered)

    monkeypatch.setattr(linear, "banded", direct)
    monkeypatch.setattr(linear, "fill", by_levels)
    hole, dots, one = (torch.ones(160, 150, dtype=torch.bool) for _ in range(3))
    hole[1:159, 1:149] = one[5, 5] = False
    dots[::2, ::2] = dots[1::2, 1::2] = False
    keep = torch.stack([hole, dots, one, torch.ones_like(one), hole])
    x = fixed(5, 1, 160, 150)
    found = linear.interpolated(x, keep, 1e-4)
    assert asked == [("banded", (1, 160, 150)), (2, torch.float32, False), (1, torch.float32, True)]
    assert torch.equal(found[3], x[3]) and not torch.equal(found[1], x[1])
    asked.clear()
    monkeypatch.setattr(linear, "_VALUES_AT_ONCE_CPU", 160 * 150)
    assert torch.allclose(
        linear.interpolated(x[[0, 4]], keep[[0, 4]], 4e-6), found[[0, 4]], atol=1e-3
    )
    linear.interpolated(x[:1].double(), keep[:1], 5e-6)
    linear.interpolated(x[:1], keep[:1], 5e-6)
    assert [kind for _, kind, _ in asked] == [
        torch.float64,
        torch.float64,
        torch.float64,
        torch.float32,
    ]
    asked.clear()
    strip = torch.zeros(1, 300, 2, dtype=torch.bool)
    strip[:, 0] = True
    monkeypatch.setattr(linear, "_DIRECT_WORK", 0)
    monkeypatch.setattr(
        linear, "COARSEST", 149
    )  # narrow: halving both sides would end in one long row
    linear.interpolated(fixed(1, 1, 300, 2), strip, 1e-4)
    monkeypatch.setattr(linear, "COARSEST", 150)
    linear.interpolated(fixed(1, 1, 300, 2), strip, 1e-4)
    assert asked == [("banded", (1, 300, 2)), (1, torch.float32, False)]
    work = [158 * 148 * 150**2, 160 * 75 * 77**2, 9.0, 0.0, 158 * 148 * 150**2]
    assert linear._banded_work(keep) == work and linear._banded_work(keep.transpose(1, 2)) == work
    assert (
        linear._contact(hole) == (2 * 158 + 2 * 148) / (4 * 158 * 148)
        and linear._contact(torch.ones_like(hole)) == 0
    )


def test_volumes_are_solved_as_written() -> None:
    x, keep = fixed(2, 2, 4, 3, 5), kept(2, 4, 3, 5, share=0.4)
    solved = volumes.interpolated_volumes(x, keep, 1e-10).double()
    near = torch.zeros_like(solved)
    count = torch.zeros(4, 3, 5)
    for at in np.ndindex(4, 3, 5):
        for dim, step in ((0, 1), (0, -1), (1, 1), (1, -1), (2, 1), (2, -1)):
            other = list(at)
            other[dim] += step
            if 0 <= other[dim] < (4, 3, 5)[dim]:
                near[(..., *at)] += solved[(..., *other)]
                count[at] += 1
    left = (solved - near / count)[(~keep)[:, None].expand_as(solved)]
    assert float(left.abs().max()) < 1e-6
    rough = volumes.interpolated_volumes(x, keep, 0.3)
    assert not torch.allclose(rough.double(), solved, atol=1e-4)

"""What a user of Captum writes, against Captum: tensors as baselines and fills, feature masks, rectangular windows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import heatproof
from heatproof import UserError
from heatproof.explainers import (
    AttnLrp,
    Deconvolution,
    DeepLift,
    FeatureAblation,
    GuidedBackprop,
    GuidedGradCAM,
    IntegratedGradients,
    KernelShap,
    Lime,
    Lrp,
    Occlusion,
    Saliency,
)
from heatproof.features import Labels, Pixels

attr = pytest.importorskip("captum.attr", reason="Captum is not installed")
# Captum warns that it sets requires_grad, and hooks.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(4, 5, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(2),
        nn.Flatten(),
        nn.Linear(20, 6),
        nn.ReLU(),
        nn.Linear(6, 3),
    ).eval()


NET = network()
X = torch.randn(4, 2, 7, 8, generator=torch.Generator().manual_seed(1))
X0 = torch.randn(1, 2, 7, 8, generator=torch.Generator().manual_seed(2))
TARGET = torch.tensor([0, 2, 1, 2])
MASK = torch.arange(7)[:, None] // 3 * 3 + torch.arange(8) // 3 + 5


def same(ours: Tensor, theirs: Tensor) -> bool:
    return torch.allclose(ours, theirs.detach(), atol=1e-5 * float(theirs.abs().max()) + 1e-7)


def test_a_sample_as_baseline() -> None:
    theirs = attr.IntegratedGradients(NET).attribute(X, X0, target=TARGET, n_steps=20)
    assert same(IntegratedGradients(steps=20, baseline=X0)(NET, X, TARGET), theirs)
    assert same(IntegratedGradients(steps=20, baseline=X0[0])(NET, X, TARGET), theirs)
    assert not IntegratedGradients(baseline=X0).stochastic
    theirs = attr.DeepLift(NET).attribute(X, X0.expand_as(X), target=TARGET)
    assert same(DeepLift(baseline=X0)(NET, X, TARGET), theirs)


def test_a_sample_as_fill_and_integer_feature_masks() -> None:
    theirs = attr.FeatureAblation(NET).attribute(
        X, baselines=X0, target=TARGET, feature_mask=MASK[None, None] - 5
    )
    for mask in (MASK, MASK[None, None], MASK.numpy(), MASK.expand(2, 7, 8)):
        assert same(FeatureAblation(features=mask, fill=X0)(NET, X, TARGET), theirs)
    theirs = attr.FeatureAblation(NET).attribute(
        X, target=TARGET, feature_mask=MASK[None, None] - 5
    )
    assert same(FeatureAblation(features=Labels(MASK))(NET, X, TARGET), theirs)
    # All of 2⁹ coalitions: both are the exact Shapley values.
    theirs = torch.cat(
        [
            attr.KernelShap(NET).attribute(
                X[[row]],
                X0,
                target=int(TARGET[row]),
                feature_mask=MASK[None, None] - 5,
                n_samples=4000,
            )
            for row in range(1)
        ]
    )
    ours = KernelShap(features=MASK, fill=X0)(NET, X[:1], TARGET[:1])
    assert torch.allclose(ours, theirs, atol=0.1 * float(ours.abs().max()))


def test_rectangular_windows() -> None:
    theirs = attr.Occlusion(NET).attribute(
        X, sliding_window_shapes=(2, 2, 3), strides=(2, 1, 2), target=TARGET, baselines=X0
    )
    assert same(Occlusion(window=(2, 3), stride=(1, 2), fill=X0)(NET, X, TARGET), theirs)
    with pytest.raises(UserError, match=r"3 numbers.*2 axes"):
        Occlusion(window=(2, 2, 3))(NET, X, TARGET)
    with pytest.raises(UserError, match="at most 7"):
        Occlusion(window=(8, 3), stride=1)(NET, X, TARGET)


def test_guided_backpropagation_deconvolution_and_guided_grad_cam() -> None:
    assert same(
        GuidedBackprop()(NET, X, TARGET), attr.GuidedBackprop(NET).attribute(X, target=TARGET)
    )
    assert same(
        Deconvolution()(NET, X, TARGET), attr.Deconvolution(NET).attribute(X, target=TARGET)
    )
    cam = attr.LayerGradCam(NET, NET[2]).attribute(X, target=TARGET, relu_attributions=True)
    enlarged = nn.functional.interpolate(cam, X.shape[2:], mode="bilinear", align_corners=False)
    theirs = attr.GuidedBackprop(NET).attribute(X, target=TARGET) * enlarged
    assert same(GuidedGradCAM(layer="2")(NET, X, TARGET), theirs)


def test_rules_per_layer() -> None:
    from captum.attr._utils.lrp_rules import Alpha1_Beta0_Rule, EpsilonRule

    torch.manual_seed(3)
    net = nn.Sequential(
        nn.Linear(6, 8, bias=False),
        nn.ReLU(),
        nn.Linear(8, 7, bias=False),
        nn.ReLU(),
        nn.Linear(7, 3, bias=False),
    )
    for number, rule in ((0, EpsilonRule(1e-9)), (2, Alpha1_Beta0_Rule()), (4, EpsilonRule(1e-9))):
        net[number].rule = rule
    x = torch.rand(5, 6)
    target = torch.tensor([0, 1, 2, 0, 1])
    theirs = attr.LRP(net).attribute(x, target=target)
    assert same(Lrp({"2": "plus"}, epsilon=1e-9)(net, x, target), theirs)

    boxed = Lrp({"0": "box", "2": "gamma"})(NET, X.sigmoid(), TARGET)
    assert torch.allclose(boxed, Lrp("epsilon_gamma_box")(NET, X.sigmoid(), TARGET), atol=1e-6)
    assert torch.equal(AttnLrp()(NET, X, TARGET), Lrp("epsilon")(NET, X, TARGET))
    with pytest.raises(UserError, match="nearest"):
        Lrp({"conv": "gamma"})(NET, X, TARGET)
    with pytest.raises(UserError, match=r"'1'.*ReLU"):
        Lrp({"1": "gamma"})(NET, X, TARGET)
    with pytest.raises(UserError, match="first layer"):
        Lrp({"2": "box"})(NET, X, TARGET)


def test_a_plain_module_a_tensor_and_a_class() -> None:
    theirs = attr.Saliency(NET).attribute(X, target=1)
    assert same(Saliency()(NET, X, 1), theirs)
    assert same(Saliency()(heatproof.Model(NET), X, target=[1, 1, 1, 1]), theirs)
    deep = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3))
    rows = torch.rand(4, 4)
    for target in (1, TARGET.tolist(), None):
        ours = heatproof.explain(deep, rows, "saliency", target=target)
        classes = deep(rows).argmax(1) if target is None else torch.as_tensor(target)
        theirs = attr.Saliency(deep).attribute(rows, target=classes.expand(4))
        assert np.allclose(ours, theirs.numpy(), atol=1e-6)
        assert np.allclose(ours, Saliency()(deep, rows, target).numpy(), atol=1e-6)
    # Defaults that depend on the data are filled in, as in a study.
    table = nn.Linear(4, 2)
    assert Lime(samples=20)(table, torch.rand(3, 4), 0).shape == (3, 4)
    assert same(
        Lime(samples=20)(table, torch.rand(3, 4), 0) * 0,
        Lime(samples=20, features=Pixels())(table, torch.rand(3, 4), 0) * 0,
    )


@pytest.mark.parametrize(
    ("target", "match"),
    [([0, 1], "2 classes for 4"), (0.5, "0.5"), (-1, "-1"), (torch.zeros(4, 2).long(), "class")],
)
def test_targets_that_cannot_be_are_refused(target: Any, match: str) -> None:
    with pytest.raises(UserError, match=match):
        Saliency()(NET, X, target)


def test_labels_that_do_not_fit_are_refused() -> None:
    for wrong, match in (
        (MASK[:3], r"\(3, 8\)"),
        (torch.stack([MASK, MASK + 1 - MASK % 2]), "channels"),
        (MASK.float(), "whole numbers"),
    ):
        with pytest.raises(ValueError, match=match):
            FeatureAblation(features=wrong)(NET, X, TARGET)

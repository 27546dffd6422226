"""Explainers on series, sets, graphs and texts: where they are defined they run, where not the plan says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import heatproof
from heatproof.errors import UserError
from heatproof.explainers import EXPLAINERS, KernelShap, Lime
from heatproof.features import Tokens
from heatproof.kinds import KINDS, kind_of
from heatproof.models import Model
from heatproof.runs.study.registry import build
from heatproof.types import Batch
from support.modalities import CASES, TARGET, case, graphs, sets, texts

QUICK: dict[str, dict[str, Any]] = {
    "integrated_gradients": {"steps": 4},
    "expected_gradients": {"samples": 3, "baseline": "random"},
    "rise": {"samples": 10, "grid": 2},
    "mfaba": {"steps": 3},
    "smoothgrad": {"samples": 2},
    "smoothgrad_squared": {"samples": 2},
    "vargrad": {"samples": 2},
    "occlusion": {"window": 2, "stride": 1},
}
CASE = {
    "image": "image",
    "series": "series",
    "set": "set",
    "graph": "graph",
    "text": "vectors",
    "token ids": "tokens",
}
GROUPED = ("lime", "kernel_shap", "feature_ablation", "feature_permutation")


@pytest.mark.parametrize("name", ["series", "set", "graph", "tokens", "unattended", "vectors"])
@pytest.mark.parametrize(
    "make", [lambda f: Lime(samples=40, features=f), lambda f: KernelShap(samples=200, features=f)]
)
def test_lime_and_kernel_shap_know_padding_and_tokens(
    name: str, make: Callable[[Any], Any]
) -> None:
    model, batch, features = case(name)
    if name == "unattended":
        features = Tokens(mask_token=2)
    method = make(features)
    maps = method(model, batch, TARGET, 0)
    assert maps.shape == batch.x.shape
    singles = torch.cat([method(model, batch[i : i + 1], TARGET[i : i + 1], 0) for i in range(3)])
    torch.testing.assert_close(maps, singles, rtol=1e-4, atol=1e-5)
    mask = batch.aux.get("mask", batch.aux.get("attention_mask"))
    if mask is not None:
        assert (maps[mask == 0] == 0).all(), "padding is no player"
        if name != "graph":
            short = Batch(
                batch.ids[1:], batch.x[1:, :5], {k: v[1:, :5] for k, v in batch.aux.items()}
            )
            torch.testing.assert_close(
                method(model, short, TARGET[1:], 0), maps[1:, :5], rtol=1e-4, atol=1e-5
            )
    if isinstance(method, KernelShap) and name in ("set", "vectors"):
        nothing = 0 * model.inputs(batch)
        gap = (model.logits(batch.x, batch.aux) - model.logits(nothing, batch.aux)).gather(
            1, TARGET[:, None]
        )[:, 0]
        total = maps[..., 0].sum(1) if name == "set" else maps.sum(1)
        torch.testing.assert_close(total, gap, rtol=1e-4, atol=1e-5)


OF_LAYERS = (
    "grad_cam",
    "grad_cam_plus_plus",
    "layer_cam",
    "hires_cam",
    "attention_rollout",
    "chefer",
)
OF_LAYERS += ("guided_backprop", "deconvolution", "guided_grad_cam")


def feature_explainers() -> list[str]:
    return sorted(
        n
        for n, kind in EXPLAINERS.items()
        if getattr(kind, "kind", "") == "feature" and n != "precomputed"
    )


@pytest.mark.parametrize("kind", sorted(CASE))
@pytest.mark.parametrize("name", feature_explainers())
def test_the_table_of_methods_and_modalities_is_true(name: str, kind: str) -> None:
    model, batch, features = case(CASE[kind])
    assert kind_of(model, batch).name == kind
    given = dict(QUICK.get(name, {}))
    if name in GROUPED:
        given["features"] = features
    explainer = build("explainer", EXPLAINERS, {name: given})
    if name in OF_LAYERS and kind not in explainer.undefined_on:
        pytest.skip(
            "needs a convolution, a ReLU or attention, which this network has not; tested elsewhere"
        )
    if kind in explainer.undefined_on:
        data = {"d": batch}
        axis = {"symmetry": {"group": {"permutation": {"dim": 1}}}}
        with pytest.raises(UserError, match=kind):
            heatproof.evaluate(model, data, [explainer], [axis])
        return
    maps = explainer(model, batch, TARGET, 0)
    assert maps.shape in (batch.x.shape, model.inputs(batch).shape) and bool(
        torch.isfinite(maps).all()
    )


def test_explainers_are_undefined_on_kinds_that_exist() -> None:
    for explainer in EXPLAINERS.values():
        assert set(explainer.undefined_on) <= set(KINDS)
    assert set(CASE.values()) <= set(CASES)


def test_modalities_are_told_apart_by_type_and_auxiliary_tensors() -> None:
    plain = Model(torch.nn.Flatten())
    assert kind_of(plain, sets()).name == "set" and kind_of(plain, graphs()).name == "graph"
    assert kind_of(plain, texts()).name == "token ids"
    for shape, kind in (((1, 4), "table"), ((1, 2, 4), "series"), ((1, 3, 4, 4), "image")):
        assert kind_of(plain, Batch(("a",), torch.zeros(shape))).name == kind

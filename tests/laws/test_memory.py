"""An explainer keeps nothing of its passes: what a graph holds would fill a device from study to study."""

from __future__ import annotations

import gc

import pytest
import torch

from heatproof import Batch, Model
from support import small
from support.laws import ALL, OF_ATTENTION, with_model
from support.vit_shapes import TimmViT


def activations() -> int:
    """How many tensors with a graph behind them are alive, those included that wait for the collector."""
    return sum(
        issubclass(type(o), torch.Tensor) and o.grad_fn is not None for o in gc.get_objects()
    )


@pytest.mark.parametrize("name", sorted([*ALL, *OF_ATTENTION]))
def test_no_activation_outlives_a_call(name):
    images = small.pictures(2)[0]
    _keeps_nothing(*with_model(name, images), images)


@pytest.mark.parametrize("name", ["saliency", "integrated_gradients", "deep_lift", "lrp", "mfaba"])
def test_nor_where_the_network_adds_and_attends(name):
    images = small.pictures(2)[0]
    torch.manual_seed(0)
    _keeps_nothing(ALL[name], Model(TimmViT(2, "avg", size=images.shape[-1]), rows=32), images)


def _keeps_nothing(explainer, model, images):
    gc.collect()
    gc.disable()
    before = activations()
    try:
        maps = explainer(model, Batch(("a", "b"), images), torch.tensor([0, 1]), 0)
        assert not maps.requires_grad and activations() == before
    finally:
        gc.enable()

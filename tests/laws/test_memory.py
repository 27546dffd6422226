"""An explainer keeps nothing of its passes: what a graph holds would fill a device from study to study."""

from __future__ import annotations

import gc

import pytest
import torch

from holdfast import Batch
from support import small
from support.laws import ALL, OF_ATTENTION, with_model


def activations() -> int:
    """How many tensors with a graph behind them are alive, those included that wait for the collector."""
    return sum(issubclass(type(o), torch.Tensor) and o.grad_fn is not None for o in gc.get_objects())


@pytest.mark.parametrize("name", sorted([*ALL, *OF_ATTENTION]))
def test_no_activation_outlives_a_call(name):
    images = small.pictures(2)[0]
    explainer, model = with_model(name, images)
    gc.collect()
    gc.disable()
    before = activations()
    try:
        maps = explainer(model, Batch(("a", "b"), images), torch.tensor([0, 1]), 0)
        assert not maps.requires_grad and activations() == before
    finally:
        gc.enable()

"""Passes of a GPU have one of a few sizes; rows that fill them up change no map. Tried on the CPU, which needs none."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from holdfast import Batch, Model
from holdfast.explainers import AttentionRollout, Chefer
from support import small
from support.laws import ALL
from support.vit_shapes import TimmViT

OF_ATTENTION = {kind.name: kind() for kind in (AttentionRollout, Chefer)}


def in_few_sizes(model: Model, rows: int) -> int:
    """As on a GPU."""
    return rows if rows > model.rows else model.rows // 4 if rows <= model.rows // 4 else model.rows


@pytest.mark.parametrize("name", sorted({**ALL, **OF_ATTENTION}))
def test_rows_that_fill_up_change_no_map(name, monkeypatch):
    torch.manual_seed(0)
    images = small.pictures(5)[0]
    model = Model(TimmViT(2, "avg", size=images.shape[-1]), rows=32) if name in OF_ATTENTION else small.model()
    batch, target = Batch(tuple("abcde"), images), torch.tensor([0, 1, 2, 1, 0])
    explainer = {**ALL, **OF_ATTENTION}[name]
    if name == "expected_gradients":
        explainer = replace(explainer, baseline=small.pictures(4, seed=1)[0])
    as_many = explainer(model, batch, target, 0)
    monkeypatch.setattr(Model, "size_of", in_few_sizes)
    torch.testing.assert_close(explainer(model, batch, target, 0), as_many, rtol=1e-3, atol=1e-5)

"""Passes of a GPU have one of a few sizes; rows that fill them up change no map. Tried on the CPU, which needs none."""

from __future__ import annotations

import pytest
import torch

from heatproof import Batch, Model
from support import small
from support.laws import ALL, OF_ATTENTION, with_model


def in_few_sizes(model: Model, rows: int) -> int:
    """As on a GPU."""
    return rows if rows > model.rows else model.rows // 4 if rows <= model.rows // 4 else model.rows


@pytest.mark.parametrize("name", sorted([*ALL, *OF_ATTENTION]))
def test_rows_that_fill_up_change_no_map(name, monkeypatch):
    images = small.pictures(5)[0]
    explainer, model = with_model(name, images)
    batch, target = Batch(tuple("abcde"), images), torch.tensor([0, 1, 2, 1, 0])
    as_many = explainer(model, batch, target, 0)
    monkeypatch.setattr(Model, "size_of", in_few_sizes)
    torch.testing.assert_close(explainer(model, batch, target, 0), as_many, rtol=1e-3, atol=1e-5)

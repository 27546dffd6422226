"""The same table from a GPU and from the CPU, to rounding. Skipped where there is no GPU."""

from __future__ import annotations

import pytest
import torch

import holdfast
from holdfast import Stability
from holdfast.table import KEY
from small import model, pictures
from test_laws import ALL, EVERY_KIND

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")


def test_the_table_does_not_depend_on_the_device():
    tables = {}
    for device in ("cpu", "cuda"):
        judged = Stability(perturbations=EVERY_KIND, k=50)
        run = holdfast.evaluate(model(), pictures(9), ALL, judged, device=device, shard_size=4)
        tables[device] = run.table().set_index(KEY)
    here, there = tables["cpu"], tables["cuda"].reindex(tables["cpu"].index)
    assert (here.status == there.status).all(), (here.status != there.status).sum()
    gap = (here.value - there.value).abs()
    assert gap.mean() < 1e-3, gap.groupby("explainer").mean()
    assert (gap > 0.01).mean() < 0.02, gap[gap > 0.01]

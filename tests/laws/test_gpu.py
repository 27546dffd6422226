"""The same table from a GPU and from the CPU, to rounding, on every axis. Skipped where there is no GPU."""

from __future__ import annotations

import pandas as pd
import pytest
import torch

import heatproof
from heatproof import Stability
from heatproof.models.precision import Precision
from heatproof.runs.tables import KEY
from support.laws import ALL, AXES, EVERY_KIND, OTHERWISE, run_axis, run_otherwise
from support.small import model, pictures

KINDS: tuple[Precision, Precision] = ("float32", "float16")
pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch sees no GPU here")


def assert_near(on_cpu: pd.DataFrame, on_gpu: pd.DataFrame) -> None:
    here = on_cpu.set_index(KEY)
    there = on_gpu.set_index(KEY).reindex(here.index)
    assert (here.status == there.status).all(), here[here.status != there.status]
    gap = (here.value - there.value).abs() / here.value.abs().clip(lower=1)
    assert gap.mean() < 1e-3, gap.groupby(["explainer", "measure"]).mean().nlargest(9)
    assert (gap > 0.01).mean() < 0.02, gap[gap > 0.01]


def test_the_table_does_not_depend_on_the_device():
    tables = {}
    for device in ("cpu", "cuda"):
        judged = Stability(perturbations=EVERY_KIND, k=50)
        tables[device] = heatproof.evaluate(
            model(), pictures(9), ALL, judged, device=device, shard_size=4
        ).table()
    assert_near(tables["cpu"], tables["cuda"])


@pytest.mark.parametrize("axis", sorted(AXES))
def test_nor_on_the_other_axes(axis):
    assert_near(run_axis(axis, device="cpu"), run_axis(axis, device="cuda"))


@pytest.mark.parametrize("what", sorted(OTHERWISE))
def test_nor_with_other_parameters_on_inputs_that_move(what):
    assert_near(run_otherwise(what, device="cpu"), run_otherwise(what, device="cuda"))


def test_in_sixteen_bits_the_same_maps_are_judged():
    names = (
        "saliency",
        "integrated_gradients",
        "deep_lift",
        "guided_backprop",
        "grad_cam",
        "lime",
        "rise",
        "random",
    )
    judged, some = (
        Stability(perturbations=["gaussian_noise", "rotation"], k=50),
        {name: ALL[name] for name in names},
    )
    runs = [
        heatproof.evaluate(model(), pictures(6), some, judged, device="cuda", precision=p)
        for p in KINDS
    ]
    here, there = (run.table().set_index(KEY) for run in runs)
    there = there.reindex(here.index)
    assert (here.status == there.status).mean() > 0.97, there[
        here.status != there.status
    ].reason.value_counts()
    assert (here.value - there.value).abs().mean() < 0.01

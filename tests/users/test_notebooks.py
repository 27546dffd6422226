"""What a run shows in a notebook and in continuous integration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import heatproof
from heatproof.testing import assert_run_holds

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways


@pytest.fixture(scope="module")
def run() -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3)
    )
    return heatproof.evaluate(
        net, torch.rand(8, 3, 24, 24), ["grad_cam", "saliency", "random"], ["faithfulness"]
    )


def test_the_last_line_of_a_cell_shows_the_verdict(run: Any) -> None:
    assert "Grad-CAM" in run._repr_html_()  # what Jupyter shows


def test_scores_are_frames_of_pandas(run: Any) -> None:
    pivot = run.table().pivot_table("value", "explainer", "measure")
    assert set(pivot.index) == {"grad_cam", "saliency", "random"}
    assert set(run.summary().explainer) == {"grad_cam", "saliency", "random"}


def test_a_test_asserts_a_score(run: Any) -> None:
    with pytest.raises(AssertionError, match="road"):
        assert_run_holds(run, "faithfulness.road{explainer=grad_cam} >= 0.99")

"""What a run shows in a notebook and in continuous integration."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import heatproof

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways


@pytest.fixture(scope="module")
def run() -> Any:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 3))
    return heatproof.evaluate(net, torch.rand(8, 3, 24, 24), ["grad_cam", "saliency", "random"], ["faithfulness"])


def test_the_last_line_of_a_cell_shows_the_verdict(run: Any) -> None:
    display = pytest.importorskip("IPython.core.formatters").DisplayFormatter()
    formats, _ = display.format(run)
    assert "Grad-CAM" in formats["text/html"]


def test_scores_are_frames_of_pandas(run: Any) -> None:
    pivot = run.table().pivot_table("value", "explainer", "measure")
    assert set(pivot.index) == {"grad_cam", "saliency", "random"}
    assert list(run.summary().explainer.unique()) == ["grad_cam", "saliency", "random"]


def test_a_test_asserts_a_score(run: Any) -> None:
    with pytest.raises(AssertionError, match="road"):
        heatproof.testing.check(run, "grad_cam.faithfulness.road >= 0.99")

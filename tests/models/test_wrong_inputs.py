"""Wrong inputs and the messages that name the value, what was expected and the way out, before any pass."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model, UserError, groups, open_data
from heatproof.batching import BatchRunner
from heatproof.models.checkpoints import Checkpoint

X, PICTURES = torch.rand(6, 8), torch.rand(4, 3, 16, 16)
VOLUMES = torch.rand(4, 1, 8, 8, 8)
ROAD = heatproof.Faithfulness(imputers="zero", fractions=(0.5,), metrics=("road",))


class GraphNet(nn.Module):
    def forward(
        self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor
    ) -> torch.Tensor:
        raise AssertionError("no pass was expected")


class TwoStreams(nn.Module):
    def forward(self, rgb: torch.Tensor, *, flow: torch.Tensor) -> torch.Tensor:
        raise AssertionError("no pass was expected")


class Never(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise AssertionError("no pass was expected")


def scripted() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return torch.jit.script(nn.Sequential(nn.Conv2d(3, 2, 3), nn.Flatten(), nn.Linear(392, 2)))


def judged(
    model: Any, data: Any, explainer: Any = "saliency", axis: Any = ROAD
) -> Callable[[], Any]:
    return lambda: heatproof.evaluate(model, data, [explainer], axis)


def shaken(spec: Any, data: Any = PICTURES) -> Callable[[], Any]:
    return lambda: heatproof.evaluate(
        Never(), data, ["saliency"], heatproof.Stability(perturbations=spec)
    )


def symmetric(group: Any, data: Any) -> Callable[[], Any]:
    return lambda: heatproof.evaluate(Never(), data, ["saliency"], heatproof.Symmetry(group=group))


FRAME = pd.DataFrame({"age": [1.0, 2.0], "kind": ["a", "b"]})
WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "a network with two inputs": (
        judged(TwoStreams(), PICTURES),
        "TwoStreams.*flow",
    ),
    "a network of edges": (
        judged(GraphNet(), X),
        "adjacency",
    ),
    "inputs that nobody takes": (
        judged(Never(), open_data({"x": X, "depth": X})),
        "depth.*Never",
    ),
    "a softmax at the end": (
        lambda: Model(nn.Sequential(nn.Linear(8, 2), nn.Softmax(1))),
        "softmax",
    ),
    "one output, no task": (judged(nn.Linear(8, 1), X), "'binary'.*'regression'"),
    "an unknown task": (
        lambda: Model(nn.Linear(8, 2), task="regresion"),
        "'regression'",
    ),
    "a label of no class": (
        lambda: Model(
            nn.Linear(8, 2), classes=["cat", "dog"], task={"multi_label": {"label": "dgo"}}
        ),
        "'dgo'.*'dog'",
    ),
    "no network": (lambda: Model("resnet50"), "str"),
    "a scripted network for grad_cam": (
        judged(scripted(), PICTURES, "grad_cam"),
        r"torch\.jit",
    ),
    "grad_cam of a table": (judged(nn.Linear(8, 2), X, "grad_cam"), "grad_cam"),
    "noise of bytes": (shaken({"gaussian_noise": {"sigma": 25}}), r"25.*0\.098"),
    "brightness in percent": (
        shaken({"brightness": {"factor": 150}}),
        r"150.*1\.5",
    ),
    "an unknown perturbation": (shaken(["noise"]), "'noise'"),
    "jpeg of volumes": (
        shaken("jpeg", VOLUMES),
        "jpeg.*images.*rotation",
    ),
    "volumes in units of their own": (
        shaken("usual", 400 * VOLUMES),
        r"\[0, 1\]",
    ),
    "a shift out of the picture": (
        shaken({"translation": {"pixels": 16}}),
        "16",
    ),
    "a depth that pictures lack": (
        shaken({"translation": {"pixels": 1, "axis": "depth"}}),
        "volumes",
    ),
    "turns of no cubes": (
        symmetric("octahedral", VOLUMES[:, :, :4]),
        "4×8×8.*octahedral",
    ),
    "a group of volumes on pictures": (
        symmetric("octahedral", PICTURES),
        "volumes",
    ),
    "an unknown group": (
        lambda: heatproof.Symmetry(group="octaedral"),
        "'octahedral'",
    ),
    "pixels of bytes": (lambda: open_data(torch.full((2, 3, 8, 8), 200.0)), r"\[0, 1\]|255"),
    "rows that are pictures": (
        lambda: open_data(torch.rand(3, 784)),
        r"\[1, 28, 28\]",
    ),
    "values that are not finite": (
        lambda: open_data(torch.tensor([[1.0, torch.nan]])),
        "finite",
    ),
    "a network of other inputs": (
        lambda: BatchRunner(Model(nn.Linear(3, 2)), 4).predict(Batch(("a",), torch.rand(1, 5))),
        r"Linear.*\(5,\)",
    ),
    "an explainer without a tensor": (
        lambda: heatproof.explain(
            nn.Linear(5, 2), torch.rand(2, 5), lambda model, batch, target, seed: batch.x.tolist()
        ),
        "explainer.*list",
    ),
    "a folder as a checkpoint": (
        lambda: Checkpoint("."),
        "folder",
    ),
    "a frame without the label": (
        lambda: open_data(FRAME, label="kid"),
        "'kid'",
    ),
    "a frame of dates": (
        lambda: open_data(FRAME.assign(at=pd.Timestamp(0))),
        "'at'",
    ),
    "inputs of other lengths": (
        lambda: open_data({"x": X, "depth": X[:2]}),
        "6.*2.*depth",
    ),
    "a dict without x": (
        lambda: open_data({"image": np.ones(3)}),
        "dict",
    ),
    "pictures that are not there": (
        lambda: open_data(["no/where.png"]),
        "'no'",
    ),
    "texts without a vocabulary": (
        lambda: open_data(["a text", "another"]),
        "vocabulary",
    ),
    "regions of another size": (
        lambda: open_data(VOLUMES, regions=np.ones((4, 8, 8), bool)).load([0]),
        r"\(8, 8\).*\(1, 8, 8, 8\)",
    ),
    "regions that cannot move": (
        lambda: groups.Dihedral(4).act(
            torch.tensor(1), Batch(("a",), PICTURES[:1], {"_region": torch.ones(1, 8, 8)})
        ),
        r"\(16, 16\).*\(8, 8\)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_input_is_refused_with_a_way_out(what: str) -> None:
    make, message = WRONG[what]
    with pytest.raises(UserError, match=message):
        make()


def test_there_are_more_than_twenty():
    assert len(WRONG) > 20

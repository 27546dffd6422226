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
from heatproof.models.batches import Workbench
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
        r"TwoStreams takes flow beside its first input.*'flow'",
    ),
    "a network of edges": (
        judged(GraphNet(), X),
        r"takes edge_index and batch .*graphs come dense, as adjacency",
    ),
    "inputs that nobody takes": (
        judged(Never(), open_data({"x": X, "depth": X})),
        "the data bring depth, and Never takes nothing",
    ),
    "a softmax at the end": (
        lambda: Model(nn.Sequential(nn.Linear(8, 2), nn.Softmax(1))),
        "ends in a softmax.*leave it off",
    ),
    "one output, no task": (judged(nn.Linear(8, 1), X), "single output.*'binary'.*'regression'"),
    "an unknown task": (
        lambda: Model(nn.Linear(8, 2), task="regresion"),
        "did you mean 'regression'",
    ),
    "a label of no class": (
        lambda: Model(
            nn.Linear(8, 2), classes=["cat", "dog"], task={"multi_label": {"label": "dgo"}}
        ),
        "unknown label 'dgo'; did you mean 'dog'",
    ),
    "no network": (lambda: Model("resnet50"), "needs a torch.nn.Module, got str"),
    "a scripted network for grad_cam": (
        judged(scripted(), PICTURES, "grad_cam"),
        "watches the layers.*before torch.jit",
    ),
    "grad_cam of a table": (judged(nn.Linear(8, 2), X, "grad_cam"), "grad_cam"),
    "noise of bytes": (shaken({"gaussian_noise": {"sigma": 25}}), "at most 1; 25 of 255 is 0.098"),
    "brightness in percent": (
        shaken({"brightness": {"factor": 150}}),
        "at most 20, got 150; 150 % is 1.5",
    ),
    "an unknown perturbation": (shaken(["noise"]), "unknown perturbation or preset 'noise'"),
    "jpeg of volumes": (
        shaken("jpeg", VOLUMES),
        "jpeg needs images .*for volumes there are rotation",
    ),
    "volumes in units of their own": (
        shaken("usual", 400 * VOLUMES),
        r"perturbed in \[0, 1\].*scale them first",
    ),
    "a shift out of the picture": (
        shaken({"translation": {"pixels": 16}}),
        "leaves nothing of images of width 16",
    ),
    "a depth that pictures lack": (
        shaken({"translation": {"pixels": 1, "axis": "depth"}}),
        "is for volumes",
    ),
    "turns of no cubes": (
        symmetric("octahedral", VOLUMES[:, :, :4]),
        "needs cubes, got 4×8×8; octahedral: {turns: false}",
    ),
    "a group of volumes on pictures": (
        symmetric("octahedral", PICTURES),
        r"needs volumes \(B, C, D, H, W\)",
    ),
    "an unknown group": (
        lambda: heatproof.Symmetry(group="octaedral"),
        "did you mean 'octahedral'",
    ),
    "pixels of bytes": (lambda: open_data(torch.full((2, 3, 8, 8), 200.0)), r"\[0, 1\]|255"),
    "rows that are pictures": (
        lambda: open_data(torch.rand(3, 784)),
        r"look like flattened pictures.*shape=\[1, 28, 28\]",
    ),
    "values that are not finite": (
        lambda: open_data(torch.tensor([[1.0, torch.nan]])),
        "not finite",
    ),
    "a network of other inputs": (
        lambda: Workbench(Model(nn.Linear(3, 2)), 4).predict(Batch(("a",), torch.rand(1, 5))),
        r"Linear cannot predict samples of shape \(5,\): mat1 and mat2",
    ),
    "an explainer without a tensor": (
        lambda: heatproof.explain(
            nn.Linear(5, 2), torch.rand(2, 5), lambda model, batch, target, seed: batch.x.tolist()
        ),
        "explainer '.*' returned list; a tensor in the shape of the inputs is needed",
    ),
    "a folder as a checkpoint": (
        lambda: Checkpoint("."),
        "is a file with a state dict, but '.*' is a folder",
    ),
    "a frame without the label": (
        lambda: open_data(FRAME, label="kid"),
        "unknown column of the DataFrame 'kid'",
    ),
    "a frame of dates": (
        lambda: open_data(FRAME.assign(at=pd.Timestamp(0))),
        "column 'at' holds times",
    ),
    "inputs of other lengths": (
        lambda: open_data({"x": X, "depth": X[:2]}),
        "6 samples but 2 of depth",
    ),
    "a dict without x": (
        lambda: open_data({"image": np.ones(3)}),
        "cannot read data from dict; .*more inputs by name",
    ),
    "pictures that are not there": (
        lambda: open_data(["no/where.png"]),
        "there is no file or folder",
    ),
    "texts without a vocabulary": (
        lambda: open_data(["a text", "another"]),
        "texts need a vocabulary",
    ),
    "regions of another size": (
        lambda: open_data(VOLUMES, regions=np.ones((4, 8, 8), bool)).load([0]),
        r"a region of shape \(8, 8\) does not fit samples of \(1, 8, 8, 8\)",
    ),
    "regions that cannot move": (
        lambda: groups.Dihedral(4).act(
            torch.tensor(1), Batch(("a",), PICTURES[:1], {"_region": torch.ones(1, 8, 8)})
        ),
        r"regions move with samples of their own size, \(16, 16\), got \(8, 8\)",
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_input_is_refused_with_a_way_out(what: str) -> None:
    make, message = WRONG[what]
    with pytest.raises(UserError, match=message):
        make()


def test_there_are_more_than_twenty():
    assert len(WRONG) > 20

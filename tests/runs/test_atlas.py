"""The atlas: its networks, a training of a moment, its study files, and the tables made from a real run."""

from __future__ import annotations

import importlib
import json
import shutil
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

import heatproof
from heatproof.runs.study.file import parse
from support.paths import ROOT

FOLDER = ROOT / "studies" / "atlas"
PICTURES = 40
SAMPLES = 10


@pytest.fixture(scope="module")
def scripts() -> Iterator[Callable[[str], ModuleType]]:
    """Modules of the folder studies/atlas by name; their names are common ones, so nothing of them stays."""
    before = set(sys.modules)
    paths = [str(FOLDER), str(FOLDER.parent)]
    sys.path[:0] = paths
    yield importlib.import_module
    for path in paths:
        sys.path.remove(path)
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(FOLDER.parent)):
            del sys.modules[name]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few pictures in the form of FashionMNIST, the second class brighter than the first."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "fashion_mnist").mkdir()
    generator = np.random.default_rng(0)
    for which in ("train", "t10k"):
        labels = np.arange(PICTURES, dtype=np.uint8) % 2
        pixels = (
            generator.integers(0, 128, (PICTURES, 28, 28), dtype=np.uint8)
            + 120 * labels[:, None, None]
        )
        for name, values in (("images-idx3-ubyte", pixels), ("labels-idx1-ubyte", labels)):
            head = struct.pack(">I", 0x00000800 + values.ndim) + struct.pack(
                f">{values.ndim}I", *values.shape
            )
            (folder / "fashion_mnist" / f"{which}-{name}").write_bytes(head + values.tobytes())
    return folder


@pytest.fixture(scope="module")
def trained(
    scripts: Callable[[str], ModuleType], data: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """Weights and card of one network after one epoch."""
    train, networks = scripts("train"), scripts("networks")
    out = tmp_path_factory.mktemp("weights")
    key = "fashion-vit-s0"
    job = train.Job(
        data,
        out,
        "cpu",
        0,
        None,
        time.monotonic() + 1000,
        {key: 1},
        "python studies/atlas/train.py",
    )
    assert key in train.one(job, networks.NETWORKS[key])
    return out


def test_networks_are_small_and_differ_by_their_seed(scripts: Callable[[str], ModuleType]) -> None:
    networks = scripts("networks")
    kinds = Counter((net.data, net.architecture, net.variant) for net in networks.NETWORKS.values())
    assert (
        kinds.pop(("cifar10", "resnet", "plain")) == 5
        and set(kinds.values()) == {2}
        and len(kinds) == 11
    )
    for architecture, make in networks.ARCHITECTURES.items():
        for channels, side in networks.SIDES.items():
            net = make(channels).eval()
            assert net(torch.rand(2, channels, side, side)).shape == (2, 10)
            assert sum(p.numel() for p in net.parameters()) < 2e6, architecture
    first, same, other = (
        networks.Network("fashion", "vit", seed).build().state_dict() for seed in (0, 0, 1)
    )
    assert all(torch.equal(first[name], same[name]) for name in first)
    assert not torch.equal(first["head.weight"], other["head.weight"])


@pytest.mark.parametrize("channels", [3, 1])
def test_the_network_on_p4_does_not_see_quarter_turns(
    scripts: Callable[[str], ModuleType], channels: int
) -> None:
    networks = scripts("networks")
    generator = torch.Generator().manual_seed(channels)
    side = networks.SIDES[channels]
    x = torch.rand(3, channels, side, side, generator=generator, dtype=torch.float64)
    changes = {}
    for make in (networks.p4resnet, networks.resnet):
        net = _lively(make(channels), generator).double()
        with torch.no_grad():
            plain, turned = net(x), [net(torch.rot90(x, r, (2, 3))) for r in (1, 2, 3)]
        spread = plain.std(0).mean()  # between pictures
        changes[make] = max(float((t - plain).abs().max() / spread) for t in turned)
    assert changes[networks.p4resnet] < 1e-8 and changes[networks.resnet] > 1e-2


def _lively(net: nn.Module, generator: torch.Generator) -> nn.Module:
    """A network whose norms are not those of the first day, in eval mode."""
    for module in net.modules():
        if isinstance(module, nn.BatchNorm2d):
            for tensor in (module.weight, module.running_var):
                tensor.data = 0.5 + torch.rand(tensor.shape, generator=generator)
            for tensor in (module.bias, module.running_mean):
                tensor.data = 0.2 * torch.randn(tensor.shape, generator=generator)
    return net.eval()


def test_training_and_asking_norms_of_p4_agree(scripts: Callable[[str], ModuleType]) -> None:
    norm = scripts("networks").P4Norm(2, momentum=None).train()
    x = torch.randn(6, 8, 4, 4, generator=torch.Generator().manual_seed(0)) * 3 + 1
    given = norm(x)
    by_channel = x.reshape(6, 2, 4, 4, 4)
    assert torch.allclose(norm.running_mean, by_channel.mean((0, 2, 3, 4)), atol=1e-5)
    assert torch.allclose(norm.running_var, by_channel.var((0, 2, 3, 4)), atol=1e-4)
    norm.running_var = by_channel.var((0, 2, 3, 4), correction=0)
    assert torch.allclose(norm.eval()(x), given, atol=1e-4)
    model = heatproof.Model(
        nn.Sequential(
            scripts("networks").P4Conv(1, 2, 3, lifts=True), norm, nn.ReLU(), nn.Flatten()
        )
    )
    batch = heatproof.Batch(
        ("a",), torch.rand(1, 1, 4, 4, generator=torch.Generator().manual_seed(1))
    )
    assert (
        heatproof.Lrp()(model, batch, torch.tensor([3]), 0).isfinite().all()
    )  # which knows every function in it


def test_augmentation_moves_whole_pictures(scripts: Callable[[str], ModuleType]) -> None:
    augmented = scripts("train").augmented
    x = torch.arange(16 * 16, dtype=torch.uint8).reshape(1, 1, 16, 16).repeat(200, 1, 1, 1)
    given = augmented(x, torch.Generator().manual_seed(0), 2, turns=True)
    holes = given == 127.5
    assert (
        given.shape == x.shape and bool((holes.flatten(1).sum(1) <= 64).all()) and bool(holes.any())
    )
    differences = {0: 0, 1: 0}
    for picture, hole in zip(given[:, 0], holes[:, 0], strict=True):
        rows, columns = picture.diff(dim=0), picture.diff(dim=1)
        whole = [d[~(h[1:] | h[:-1])] for d, h in ((rows, hole), (columns.T, hole.T))]
        steps = [
            int(d.abs().mode().values) for d in whole
        ]  # 16 along the picture's columns, 1 along its rows
        assert sorted(steps) == [1, 16]
        differences[int(steps[0] == 1)] += 1
    assert min(differences.values()) > 50  # turned and not turned


def test_calibration_error_is_that_of_the_definition(scripts: Callable[[str], ModuleType]) -> None:
    generator = np.random.default_rng(0)
    given, right = generator.random(500), (generator.random(500) < 0.6).astype(float)
    edges = np.linspace(0, 1, 16)
    expected = 0.0
    for low, high in pairwise(edges):
        inside = (given >= low) & (given < high)
        if inside.any():
            expected += inside.mean() * abs(right[inside].mean() - given[inside].mean())
    assert scripts("train").calibration(given, right) == pytest.approx(expected)


def test_a_late_training_ends_its_schedule(scripts: Callable[[str], ModuleType]) -> None:
    train, networks = scripts("train"), scripts("networks")
    x, y = torch.zeros(8, 1, 28, 28, dtype=torch.uint8), torch.arange(8)
    trainer = train.Trainer(networks.Network("fashion", "vit", 0), x, y)
    seen: list[float] = []
    trainer.step = lambda x, y, progress: seen.append(progress)
    assert trainer.train(3, time.monotonic() + 1000) == 3
    assert np.allclose(seen, np.arange(12) / 12)
    assert trainer.train(1000, time.monotonic()) == 1


def test_a_trained_network_loads_as_its_card_says(trained: Path, data: Path, scripts: Any) -> None:
    card = json.loads((trained / "fashion-vit-s0.json").read_text(encoding="utf-8"))
    assert (
        card["training"]["epochs"] == 1
        and card["samples"] == PICTURES
        and "--networks fashion-vit-s0" in card["command"]
    )
    grid = scripts("grid")
    study = grid.content(grid.Task("fashion-vit-s0", "maps"), trained, data, trained, 32)
    options = dict(study["model"])
    model = heatproof.load_model(options.pop("source"), allow_code=True, **options)
    x, y = scripts("pictures").pictures("fashion", "test", data, trained / "cache")
    batch = heatproof.Batch(tuple(map(str, range(len(x)))), torch.from_numpy(x).float() / 255)
    predicted = model.logits(model.inputs(batch)).argmax(1).numpy()
    assert (predicted == y).mean() == pytest.approx(card["accuracy"]["value"], abs=1.1 / PICTURES)


def test_every_study_of_the_grid_is_one(
    trained: Path, data: Path, scripts: Callable[[str], ModuleType]
) -> None:
    grid = scripts("grid")
    grid.picked("fashion", data, trained)
    networks = [key for key in grid.chosen(["everything"]) if key.startswith("fashion")]
    for task in grid.tasks(networks, list(grid.STUDIES)):
        (trained / f"{task.network}.safetensors").touch()
        content = grid.content(task, trained, data, trained, 1024)
        made = parse(content, trained, allow_code=True)
        assert made.shard_size == 128 and len(made.explainers) > 15
        assert ("chefer" in made.explainers) == ("vit" in task.network)
    every = grid.tasks(grid.chosen(["everything"]), list(grid.STUDIES))
    assert [task.key for task in every if task.network in grid.OTHERS] == [
        f"{name}.other" for name in grid.OTHERS
    ]
    assert len(every) == 3 * (27 + 5) + 8 + 6 and every[-1].study == "sweeps"
    few = [str(one) for one in grid.other("ecg_concepts", 52)["explainers"]]
    assert (
        len(few) == 6 and "cav" in few[3] and "car" in few[4]
    )  # GradientSHAP is asked with two baselines
    assert len(grid.other("ecg_features", 52)["explainers"]) == 5  # Integrated Gradients with three
    first = [task.key for task in every[: 8 + 12 + 5]]
    assert (
        "mobilenet_v2.paper" in first
        and "cifar10-vit-s0.paper" in first
        and "cifar10-vit-s1.paper" not in first
    )
    smoothed = grid.tasks(grid.chosen(["everything"]), ["smoothing"])
    assert len(smoothed) == 6 and "smoothing" in str(grid.evaluations(smoothed[0]))
    kept = heatproof.open_data(trained / "fashion.npz")
    assert len(kept.ids) == PICTURES and kept.shape == (1, 28, 28)
    with pytest.raises(SystemExit, match="fashion-vgg"):
        grid.chosen(["fashion-vgg"])


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A real run of two axes on a small network, as the grid leaves it."""
    folder = tmp_path_factory.mktemp("runs")
    torch.manual_seed(0)
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3))
    model = heatproof.Model(nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), *head), name="net")
    axes = [{"stability": {"perturbations": [{"gaussian_noise": {"sigma": [0.01, 0.05]}}]}}]
    axes += [
        {"faithfulness": {"imputers": ["zero"], "fractions": [0.3, 0.6], "metrics": ["road"]}},
        "agreement",
    ]
    images = torch.rand(SAMPLES, 1, 12, 12, generator=torch.Generator().manual_seed(1))
    heatproof.evaluate(
        model,
        images,
        ["saliency", "input_x_gradient", "random"],
        axes,
        folder / "net.trial",
        show_progress=False,
    )
    cost = {
        "run": "net.trial",
        "round": 1,
        "done": True,
        "seconds": 8.0,
        "jobs": 4,
        "device": "cpu",
    }
    (folder / "costs.jsonl").write_text((json.dumps(cost) + "\n") * 2, encoding="utf-8")
    return folder


def test_tables_are_those_of_the_product(
    runs: Path, trained: Path, tmp_path: Path, scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEATPROOF_STUDIES", str(tmp_path / "none"))
    tables = scripts("tables")
    tables.export(runs, trained, tmp_path, "0 abc")
    run = heatproof.read(runs / "net.trial")
    cells, summary = pd.read_parquet(tmp_path / "cells.parquet"), run.summary()
    assert list(cells) == tables.CELLS and set(cells["axis"]) == {
        "stability",
        "faithfulness",
        "agreement",
    }
    chosen = cells[
        (cells["measure"] == "fass")
        & (cells["explainer"] == "saliency")
        & (cells["severity"] > 0.04)
    ]
    theirs = summary[
        (summary["measure"] == "fass")
        & (summary["explainer"] == "saliency")
        & (summary["level"] > 0.04)
    ]
    assert chosen["mean"].item() == pytest.approx(theirs["mean"].item(), abs=1e-4)
    assert chosen["calibrated_low"].item() == pytest.approx(
        theirs["calibrated_low"].item(), abs=1e-4
    )
    assert (
        json.loads(chosen["settings"].item())["ties"] == "average"
        and "perturbations" not in chosen["settings"].item()
    )
    assert chosen["n"].item() == theirs["retained"].item() and chosen["run"].item() == "net.trial"
    pairs, tests = pd.read_parquet(tmp_path / "pairs.parquet"), run.tests()
    assert list(pairs) == tables.PAIRS and len(pairs) == len(tests)
    assert np.allclose(pairs["p"], tests["p"], rtol=1e-3, equal_nan=True)
    values = pd.read_parquet(tmp_path / "values.parquet")
    rows = run.table()
    one = rows[
        (rows["measure"] == "fass") & (rows["explainer"] == "random") & (rows["level"] == 0.01)
    ]
    kept = values[(values["explainer"] == "random") & np.isclose(values["severity"], 0.01)]
    assert list(values) == tables.VALUES
    found = dict(zip(kept["sample"].astype(str), kept["value"], strict=True))
    assert found == pytest.approx(dict(zip(one["sample"], one["value"], strict=True)), abs=1e-4)
    about = pd.read_csv(tmp_path / "runs.csv").iloc[0]
    assert (
        about["device_seconds"] == 4.0
        and about["samples"] == SAMPLES
        and about["heatproof"] == "0 abc"
    )
    networks = pd.read_csv(tmp_path / "networks.csv")
    assert list(networks) == tables.NETWORKS and networks["network"].tolist() == ["fashion-vit-s0"]
    assert "| fashion-vit-s0 | 1.37 M |" in tables.markdown(networks)


def test_tables_of_another_machine_are_added(runs: Path, tmp_path: Path, scripts: Any) -> None:
    tables = scripts("tables")
    (tmp_path / "more").mkdir()
    (tmp_path / "more" / "other.trial").symlink_to(runs / "net.trial")
    for folder in (runs, tmp_path / "more", runs):  # the last replaces its own rows
        tables.export(folder, tmp_path, tmp_path / "tables", "")
    for name, columns in (
        ("cells", tables.CELLS),
        ("values", tables.VALUES),
        ("pairs", tables.PAIRS),
    ):
        frame = pd.read_parquet(tmp_path / "tables" / f"{name}.parquet")
        counts = frame["run"].astype(str).value_counts()
        assert (
            list(frame) == columns
            and set(counts.index) == {"net.trial", "other.trial"}
            and counts.nunique() == 1
        )


def test_runs_of_a_network_that_was_trained_anew_are_dropped(
    runs: Path, trained: Path, tmp_path: Path, scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEATPROOF_STUDIES", str(tmp_path / "none"))
    tables, grid = scripts("tables"), scripts("grid")
    for folder, key in (
        ("old", "fashion-vit-s0.paper"),
        ("old", "net.trial"),
        ("new", "fashion-vit-s0.maps"),
    ):
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / key).symlink_to(runs / "net.trial")
    weights, kept = tmp_path / "weights", tmp_path / "tables"
    shutil.copytree(trained, weights)
    tables.export(tmp_path / "old", weights, kept, "")
    asked = [grid.Task("fashion-vit-s0", study) for study in ("paper", "maps")]
    as_many = 8 * SAMPLES  # a round of so many has as many samples as the run
    assert grid.lacking(asked, kept, weights, as_many) == asked[1:]
    assert grid.lacking(asked, kept, weights, as_many + 8) == asked
    card = weights / "fashion-vit-s0.json"
    content = json.loads(card.read_text(encoding="utf-8"))
    content["training"]["seconds"] += 10
    card.write_text(json.dumps(content), encoding="utf-8")
    assert grid.lacking(asked, kept, weights, as_many) == asked
    tables.export(tmp_path / "new", weights, kept, "")
    for name in ("cells", "pairs", "ranking", "values"):
        frame = pd.read_parquet(kept / f"{name}.parquet")
        assert set(frame["run"].astype(str)) == {"fashion-vit-s0.maps", "net.trial"}
    assert set(pd.read_csv(kept / "runs.csv")["run"]) == {"fashion-vit-s0.maps", "net.trial"}


def test_shards_that_lack_a_method_are_left_out(runs: Path, tmp_path: Path, scripts: Any) -> None:
    whole = scripts("whole").whole
    assert whole(runs / "net.trial", tmp_path) == runs / "net.trial"
    cut = tmp_path / "cut.trial"
    shutil.copytree(runs / "net.trial", cut)
    next(cut.glob("parts/*/*/stability/saliency*/*.parquet")).unlink()
    (tmp_path / "scratch").mkdir()
    kept = heatproof.read(whole(cut, tmp_path / "scratch")).table()
    every = heatproof.read(runs / "net.trial").table()
    assert set(kept["evaluation"]) == set(every["evaluation"]) - {"stability"}
    told = scripts("tables").of_run({}, "", cut)[1]["runs"]
    assert told["axes"] == "faithfulness; agreement" and told["samples"] == SAMPLES
    assert len(kept) == (every["evaluation"] != "stability").sum()
    assert list(cut.glob("parts/*/*/stability/*/*"))  # the run itself stays as it was


def test_any_first_photographs_are_the_same_where_others_are_missing(
    tmp_path: Path, scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    photographs = scripts("photographs")
    pixels = np.random.default_rng(0).integers(0, 256, (12, 20, 20, 3), dtype=np.uint8)
    for part, files in (("all", range(12)), ("few", range(0, 12, 2))):
        (tmp_path / part / "imagenet" / "val500").mkdir(parents=True)
        for i in files:
            Image.fromarray(pixels[i]).save(
                tmp_path / part / "imagenet" / "val500" / f"{i:03d}_n{i}_a.jpg"
            )
    found = {}
    for part in ("all", "few"):
        monkeypatch.setenv("HEATPROOF_DATA", str(tmp_path / part))
        photographs.packed(tmp_path / f"{part}.npz", 12)
        found[part] = heatproof.open_data(tmp_path / f"{part}.npz", size=16)
    few = [sample for sample in found["all"].ids if int(sample[:3]) % 2 == 0]
    assert list(found["few"].ids) == few and few != sorted(few)
    assert found["few"].labels == tuple(int(sample[:3]) for sample in few)
    place = found["all"].ids.index(few[0])
    assert torch.equal(found["few"].load([0]).batch.x, found["all"].load([place]).batch.x)


def test_conditions_are_left_out_before_samples(
    tmp_path: Path, scripts: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = scripts("tables")
    generator = np.random.default_rng(0)
    rows = {name: "a" for name in tables.VALUES} | {
        "severity": 0.0,
        "value": generator.random(30_000),
    }
    every = pd.DataFrame(rows).assign(place=np.repeat(np.arange(10), 3000))
    whole = tables.store(tmp_path / "values.parquet", every[tables.VALUES])
    monkeypatch.setitem(tables.LARGEST, "values", whole // 3)
    kept = tables.thinned(tmp_path / "values.parquet", every)
    assert 1 <= kept["place"].nunique() < 10 and (kept["place"].value_counts() == 3000).all()
    assert kept["place"].min() == 0 and (tmp_path / "values.parquet").stat().st_size <= whole // 3


def test_a_p_too_small_for_32_bits_is_0_and_not_missing(scripts: Any) -> None:
    found = scripts("tables").small(pd.DataFrame({"p": [0.0, 1e-320, 0.0123456, np.nan]}), 4)["p"]
    np.testing.assert_array_equal(found, np.array([0, 0, 0.01235, np.nan], np.float32))


def test_known_networks_are_judged_by_the_names_of_photographs(
    tmp_path: Path, scripts: Any
) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4, bias=False))
    nn.init.zeros_(net[1].weight)
    net[1].weight.data[2] = 1.0  # class 2 for everything that is not black
    names = ("001_n0_a", "002_n1_b", "001_n0_c")
    data = heatproof.open_data(heatproof.Batch(names, 0.1 + 0.8 * torch.rand(3, 3, 8, 8)))
    for name, right in (("mobilenet_v2", 2), ("squeezenet", 1)):
        found = scripts("photographs").card(heatproof.Model(net, name=name), data)
        assert (found["accuracy"]["value"], found["samples"], found["parameters"]) == (
            right / 3,
            3,
            768,
        )
        (tmp_path / f"{name}.json").write_text(json.dumps(found), encoding="utf-8")
    rows = scripts("tables").cards(tmp_path, tmp_path).set_index("network")
    assert (
        list(rows["accuracy"]) == pytest.approx([2 / 3, 1 / 3], abs=1e-5)
        and rows["seconds_to_train"].isna().all()
    )
    assert (rows["accuracy_low"] < rows["accuracy"]).all() and (rows["ece"] > 0).all()

"""Every item really runs, with few samples; where the network is EfficientNet-Lite0 a small one takes its place."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from heatproof.cli import app
from heatproof.errors import UserError
from heatproof.reproduce.experiment import Reproduction, reproduce
from heatproof.reproduce.items import item_files, read_item
from heatproof.reproduce.pictures import circular_model, held_out_digits
from heatproof.reproduce.road import tables
from heatproof.reproduce.show import text_of, write

NETWORK = f"python:{Path(__file__).parents[1] / 'support' / 'small_classifier.py'}:thousand_classes"
ON_PHOTOGRAPHS = ("fass-", "soft-stability-figure-1", "soft-stability-figure-3")
LIMIT = {"road": 4, "soft-stability-figure-2": 1, "invariance-figure-8": 4}
BATCHING = "soft-stability-table-1"
"""The only item that needs EfficientNet-Lite0 itself: it times it."""
NAMES = [name for name in item_files() if name != BATCHING]
RETRAINED = {name for name in NAMES if read_item(name).then} | {"road-table-4"}


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One folder for all items, since some share runs."""
    return tmp_path_factory.mktemp("reproductions")


def run(name: str, out: Path) -> Reproduction:
    is_on_photographs = name.startswith("fass-") or name in ON_PHOTOGRAPHS
    limit = LIMIT.get(name, LIMIT.get(name.split("-", maxsplit=1)[0], 1))
    models = [NETWORK] if is_on_photographs else []
    return reproduce(name, limit, out, models=models, allow_code=True)


@pytest.fixture(autouse=True)
def _little_to_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retrain on 30 pictures at one fraction; classify the masks of one method."""
    monkeypatch.setattr(tables, "PER_CLASS", 3)
    monkeypatch.setattr(tables, "MASKED_METHODS", ("IG-SG",))
    monkeypatch.setattr(tables, "RETRAINED_FRACTIONS", (0.5,))


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in RETRAINED else ()) for n in NAMES]
)
def test_an_item_runs(name, out):
    check(run(name, out))


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("efficientnet_lite_pytorch") is None, reason="needs heatproof[demo]"
)
def test_the_table_of_batching_runs(out):
    check(reproduce(BATCHING, 1, out))


def check(done: Reproduction) -> None:
    """Our numbers are there, text and files are made, and the figures that the item names are among them."""
    assert done.table["ours"].notna().any()
    if done.item.published is not None:
        printed = done.item.published.frame()
        assert len(done.table.dropna(subset="paper")) == len(printed)
    text = text_of(done, 100)
    assert done.item.title[:40] in text and "set-up differs" in text
    files = {path.name for path in write(done)}
    assert {"table.csv", f"{done.item.name}.svg", f"{done.item.name}.tex"} <= files
    for figure in done.item.figures:
        assert any(file.startswith(figure) for file in files), f"{figure} was not drawn"


def test_a_second_item_of_the_same_study_computes_nothing(out):
    name = "invariance-table-1"
    first = run(name, out)
    again = run("invariance-figure-2", out)
    sessions = again.experiment.runs[0].manifest.sessions
    assert first.experiment.runs[0].path == again.experiment.runs[0].path
    assert sum(sessions[-1].passes.values()) == 0


def test_the_circular_network_does_not_change_under_shifts():
    x, _ = held_out_digits()
    network = circular_model().module
    with torch.no_grad():
        assert torch.allclose(network(x[:8]), network(x[:8].roll((5, 11), (2, 3))), atol=1e-4)


def test_the_papers_data_take_the_place_of_ours(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    for i in range(2):
        Image.new("RGB", (40, 40), (60 * i, 90, 20)).save(folder / f"{i}.png")
    arguments = {"limit": 2, "out": tmp_path, "models": [NETWORK], "allow_code": True}

    done = reproduce("fass-table-4", data={"ImageNet": str(folder)}, **arguments)
    ours = done.table.dropna(subset="ours")
    assert set(ours["row_group"]) == {"ImageNet"}
    assert str(folder) in text_of(done, 200)

    with pytest.raises(UserError, match="ImageNet=DIR"):
        reproduce("fass-table-4", data=str(folder), **arguments)
    with pytest.raises(UserError, match="'ImageNet'"):
        reproduce("fass-table-4", data={"ImageNett": str(folder)}, **arguments)
    with pytest.raises(UserError, match="without data and models"):
        reproduce("soft-stability-figure-13", data=str(folder), **arguments)


def test_code_of_others_runs_only_if_it_is_allowed(tmp_path):
    with pytest.raises(UserError, match="allow"):
        reproduce("fass-table-2", 1, tmp_path, models=[NETWORK])


def test_the_command_lists_runs_and_suggests(tmp_path):
    listed = CliRunner().invoke(app, ["reproduce", "--list"]).output
    assert [name for name in item_files() if name not in listed] == []

    options = ["--limit", "2", "--out", str(tmp_path)]
    shown = CliRunner().invoke(app, ["reproduce", "soft-stability-figure-13", *options])
    assert shown.exit_code == 0 and "random flipping" in shown.output
    assert (tmp_path / "soft-stability-figure-13" / "table.csv").is_file()

    wrong = CliRunner().invoke(app, ["reproduce", "road-tabel-2"])
    assert isinstance(wrong.exception, UserError) and "'road-table-2'" in str(wrong.exception)

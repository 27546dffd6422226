"""DataFrames with names and categories, lists of picture files, and several inputs by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import nn

import heatproof
from heatproof import Batch, Model, UserError, features, open_data


def people(n: int = 12) -> pd.DataFrame:
    colours = ["red", "green", "blue"]
    frame = pd.DataFrame(
        {"age": np.linspace(20, 70, n), "colour": [colours[i % 3] for i in range(n)]}
    )
    frame["visits"] = np.arange(n) % 4
    frame["ill"] = ["yes" if i % 2 else "no" for i in range(n)]
    return frame.assign(doctor=[f"d{i // 3}" for i in range(n)])


def test_a_frame_keeps_its_names_and_a_category_is_one_feature():
    frame = people().set_index(pd.Index([f"p{i:02d}" for i in range(12)]))
    data = open_data(frame, label="ill", groups="doctor")
    assert (
        data.columns == ("age", "colour=blue", "colour=green", "colour=red", "visits")
        and data.ids[1] == "p01"
    )
    assert (
        data.class_names == ("no", "yes")
        and data.labels == (0, 1) * 6
        and data.groups[:4] == ("d0",) * 3 + ("d1",)
    )
    assert data.prepared["columns"].startswith("age, colour=blue")
    batch = data.load(range(12)).batch
    wanted = pd.get_dummies(frame[["age", "colour", "visits"]], columns=["colour"])
    order = ["age", "colour_blue", "colour_green", "colour_red", "visits"]
    np.testing.assert_allclose(batch.x, wanted[order].to_numpy(np.float32))
    assert features.Pixels().segments(batch)[0].tolist() == [0, 1, 1, 1, 2]
    plain = open_data(people()[["age", "visits", "ill"]], label="none")
    assert plain.labels is None and plain.columns[-1] == "ill=yes"
    number = open_data(people()[["age", "visits"]], label="age")
    assert number.labels is None and number.shape == (1,)  # what a regression predicts is no class
    assert not open_data(people()[["age", "visits"]]).load([0]).batch.aux


def test_what_is_removed_of_a_category_is_all_of_it():
    """The maps of a linear model are known: a category's part is the sum over its columns."""
    net = nn.Linear(5, 2)
    net.weight.data = torch.tensor([[0.1, 1.0, -2.0, 3.0, 0.5], [0.0, 0.0, 0.0, 0.0, 0.0]])
    net.bias.data.zero_()
    data = open_data(people(), label="ill", groups="doctor")
    batch = data.load(range(12)).batch
    zero, first = {"fill": "zero"}, torch.zeros(12, dtype=torch.int64)
    maps = heatproof.explainers.FeatureAblation(**zero)(Model(net), batch, first, 0)
    parts = batch.x * net.weight[0].detach()
    whole = parts[:, 1:4].sum(1, keepdim=True).expand(-1, 3)
    torch.testing.assert_close(maps, torch.cat([parts[:, :1], whole, parts[:, 4:]], 1))
    shap = heatproof.explainers.KernelShap(samples=200, features=features.Pixels(), **zero)(
        Model(net), batch, first, 0
    )
    torch.testing.assert_close(shap, maps, rtol=1e-3, atol=1e-3)
    axis = heatproof.Faithfulness(
        imputers="zero", fractions=(1 / 3, 2 / 3), metrics=("road",), readout="logit"
    )
    run = heatproof.evaluate(
        Model(net),
        data,
        [heatproof.explainers.FeatureAblation(background=torch.zeros(1, 5)), "random"],
        axis,
        references=4,
    )
    rows = run.table().query(
        "measure == 'logit' and order == 'morf' and explainer.str.startswith('feature')"
    )
    left = torch.stack([parts[:, 0], parts[:, 1:4].sum(1), parts[:, 4]], 1).detach()
    target = net(batch.x).argmax(1)
    for level, gone in ((1 / 3, 1), (2 / 3, 2)):
        found = rows[np.isclose(rows.level, level)].sort_values("sample")["value"].to_numpy()
        kept = left.sort(1, descending=True).values[:, gone:].sum(1)
        np.testing.assert_allclose(found[target == 0], kept[target == 0], atol=1e-4)


def test_a_gap_is_an_error_of_its_row_and_mistakes_name_columns():
    frame = people()
    frame.loc[2, "age"], frame.loc[5, "colour"] = np.nan, None
    loaded = open_data(frame, label="ill").load(range(12))
    assert sorted(loaded.errors) == ["0002", "0005"] and "no value in age" in loaded.errors["0002"]
    assert "no value in colour=blue" in loaded.errors["0005"]
    for given, options, why in (
        (people(), {"label": "il"}, "'il'.*'ill'"),
        (people(), {"groups": "docter"}, "'docter'.*'doctor'"),
        (people().assign(when=pd.Timestamp("2020-01-01")), {}, "'when'"),
        (people()[["age", "age"]], {}, "twice"),
    ):
        with pytest.raises(UserError, match=why):
            open_data(given, **options)


def test_a_list_of_picture_files_is_a_data_set(tmp_path: Path):
    for i, name in enumerate(("a.png", "b.png")):
        (tmp_path / str(i)).mkdir()
        for folder in (tmp_path, tmp_path / str(i)):
            Image.new("RGB", (8, 8), (40 * i, 0, 0)).save(folder / name)
    paths = [tmp_path / "b.png", tmp_path / "a.png"]
    for given in (paths, list(map(str, paths)), [(path, 1) for path in paths]):
        data = open_data(given, size=None)
        assert data.ids == ("b.png", "a.png") and data.shape == (3, 8, 8)
        assert data.load([0]).batch.x[0, 0, 0, 0] == pytest.approx(40 / 255)
    assert data.labels == (1, 1)
    same = open_data([tmp_path / "a.png", tmp_path / "0" / "a.png"])
    assert same.ids[1] == str(tmp_path / "0" / "a.png")
    with pytest.raises(UserError, match=r"'c\.png'"):
        open_data([tmp_path / "c.png"])


class Weighed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(4, 2)

    def forward(self, x, weight, bias=None):
        return self.head(x * weight) + (0 if bias is None else bias)


def test_several_inputs_go_by_name():
    x, weight = torch.rand(6, 4), torch.rand(6, 4)
    net, road = (
        Weighed(),
        heatproof.Faithfulness(imputers="zero", fractions=(0.5,), metrics=("road",)),
    )
    by_name = open_data({"x": x, "y": [0, 1] * 3, "weight": weight.numpy()})
    assert by_name.labels == (0, 1) * 3
    runs = [heatproof.evaluate(net, data, ["input_x_gradient"], road, references=3).table()
            for data in (by_name, Batch(by_name.ids, x, {"weight": weight}, torch.tensor([0, 1] * 3)))]  # fmt: skip
    pd.testing.assert_frame_equal(*(run.drop(columns="dataset") for run in runs))
    with pytest.raises(
        UserError,
        match=r"weight.*open_data",
    ):
        heatproof.evaluate(net, x, ["saliency"], road)
    with pytest.raises(UserError, match=r"6 samples.*5.*weight"):
        open_data({"x": x, "weight": weight[:5]})
    with pytest.raises(UserError, match="dict"):
        open_data({"pixels": x})

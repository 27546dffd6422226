"""The set-up of the FASS paper: random subsets that all shards share, and COCO with an untrained head of 80 outputs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import heatproof
from heatproof import cli
from heatproof.models.loaders import load_model
from support.paths import SMALL

STUDY = f"""\
model: python:{SMALL}:model
data: {{source: pictures.npz, size: null, sample: {{n: 9, per_class: 3, seed: 4}}}}
explainers: [saliency, random]
evaluations: [{{stability: {{perturbations: [brightness], k: 50}}}}]
shard_size: 2
"""


def save_pictures(path: Path, order: np.ndarray) -> None:
    generator = np.random.default_rng(0)
    x = generator.random((30, 3, 32, 32), np.float32)
    ids = np.array([f"picture {i}" for i in range(30)])
    labels = np.arange(30) % 4
    np.savez(path, x=x[order], y=labels[order], ids=ids[order])


def run_command(folder: Path, *arguments: str) -> pd.DataFrame:
    (folder / "study.yaml").write_text(STUDY)
    for shard in arguments or ("1/1",):
        command = ["run", str(folder / "study.yaml"), "--allow-code", "--shard", shard]
        result = CliRunner().invoke(cli.app, [*command, "--out", str(folder / "run")])
        assert result.exit_code == 0, result.output
    table = heatproof.read(folder / "run").table()
    columns = ["explainer", "measure", "condition", "sample"]
    return table.sort_values(columns)[[*columns, "value", "chance"]].reset_index(drop=True)


def test_a_random_subset_is_the_same_in_one_process_in_three_shards_and_for_any_order(
    tmp_path: Path,
) -> None:
    tables = []
    for name, order, shards in (
        ("alone", np.arange(30), ()),
        ("shards", np.arange(30), ("1/3", "2/3", "3/3")),
        ("backwards", np.arange(30)[::-1], ("1/2", "2/2")),
    ):
        folder = tmp_path / name
        folder.mkdir()
        save_pictures(folder / "pictures.npz", order)
        tables.append(run_command(folder, *shards))
    assert tables[0]["sample"].nunique() == 9
    labels = [int(sample.split()[1]) % 4 for sample in tables[0]["sample"].unique()]
    assert max(np.bincount(labels)) <= 3
    pd.testing.assert_frame_equal(tables[0], tables[1])
    pd.testing.assert_frame_equal(tables[0][["sample"]], tables[2][["sample"]])


def write_coco(root: Path, pictures: int = 6) -> Path:
    (root / "annotations").mkdir(parents=True)
    (root / "train2017").mkdir()
    annotations = []
    for i in range(pictures):
        pixels = np.random.default_rng(i).integers(0, 255, (24, 24, 3), np.uint8)
        Image.fromarray(pixels).save(root / "train2017" / f"{i:03}.png")
        for category in (1, 1 + i % 3):
            annotations.append({"image_id": i, "category_id": category, "area": 5.0 + category})
    content = {
        "images": [{"id": i, "file_name": f"{i:03}.png"} for i in range(pictures)],
        "categories": [{"id": c, "name": f"thing {c}"} for c in range(1, 81)],
        "annotations": annotations,
    }
    (root / "annotations" / "instances_train2017.json").write_text(json.dumps(content))
    return root


def network() -> torch.nn.Module:
    torch.manual_seed(0)
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(4),
        torch.nn.Flatten(),
        torch.nn.Linear(128, 1000),
    )
    torch.nn.init.normal_(net[4].weight, std=3.0)  # a head that does not look untrained
    return net


@pytest.mark.parametrize("task", ["classification", {"multi_label": {"label": "thing 3"}}])
def test_coco_with_an_untrained_head_of_80_outputs(tmp_path: Path, task: object) -> None:
    """As one class of 80, as in the paper, and as the presence of one of 80 labels; the page says it is untrained."""
    names = [f"thing {c}" for c in range(1, 81)]
    data = heatproof.open_data(
        write_coco(tmp_path / "coco"), split="train", label="largest", size=24, sample={"n": 4}
    )
    assert data.class_names == tuple(names)
    network_of_80 = load_model(network(), new_head=80).module
    model = heatproof.Model(network_of_80, classes=names, task=task)
    test = {"stability": {"perturbations": ["brightness", "jpeg"], "k": 20}}
    run = heatproof.evaluate(model, data, ["saliency", "random"], test)
    samples = run.samples().set_index("sample").loc[list(data.ids)]
    with torch.no_grad():
        outputs = network_of_80(data.load(range(4)).batch.x)
    assert outputs.shape == (4, 80)
    if task == "classification":
        assert samples.predicted.astype(int).tolist() == outputs.argmax(1).tolist()
        probability = outputs.softmax(1).amax(1)
    else:
        present = outputs[:, 2] > 0
        assert (samples.predicted_name == "thing 3").tolist() == present.tolist()
        probability = torch.where(present, outputs[:, 2], -outputs[:, 2]).sigmoid()
    np.testing.assert_allclose(samples.probability.to_numpy(float), probability, rtol=1e-4)
    table = run.table()
    assert len(table[table.measure == "fass"]) == 4 * 2 * 2
    assert run.manifest.study.models[model.name].untrained_head

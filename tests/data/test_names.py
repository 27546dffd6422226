"""Data by name: `open_data` takes what a study file takes, and `hf:` a copy on disk as well as the hub."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

import heatproof
from heatproof.data import Vocabulary, open_data
from heatproof.data.hub import hub_files
from heatproof.data.sources import check_data_name
from heatproof.errors import UserError

PIXELS = np.random.default_rng(0).integers(0, 256, (3, 8, 8, 3), dtype=np.uint8)
EXPECTED = torch.from_numpy(PIXELS).permute(0, 3, 1, 2) / 255


def rows() -> list[dict[str, Any]]:
    blobs = [io.BytesIO() for _ in PIXELS]
    for values, blob in zip(PIXELS, blobs, strict=True):
        Image.fromarray(values).save(blob, "PNG")
    return [
        {"image": {"bytes": b.getvalue(), "path": None}, "label": i % 2}
        for i, b in enumerate(blobs)
    ]


def copy_of_the_hubs(folder: Path) -> Path:
    """A repository of the hub as it is copied: Parquet files in a folder `data`, with the names of the classes."""
    features = {
        "image": {"_type": "Image"},
        "label": {"_type": "ClassLabel", "names": ["cat", "dog"]},
    }
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    told = {"huggingface": json.dumps({"info": {"features": features}})}
    schema = pa.schema([("image", image), ("label", pa.int64())], metadata=told)
    (folder / "data").mkdir(parents=True)
    pq.write_table(
        pa.Table.from_pylist(rows(), schema=schema),
        folder / "data" / "train-00000-of-00001.parquet",
    )
    return folder


def check_pets(data: heatproof.Data) -> None:
    torch.testing.assert_close(data.load([2, 0]).batch.x, EXPECTED[[2, 0]])
    assert data.labels == (0, 1, 0) and data.class_names == ("cat", "dog")


def test_a_copy_on_disk_needs_no_further_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = copy_of_the_hubs(tmp_path / "owner" / "pets")
    for name in (f"hf:{folder}", f"hf:{folder}@train"):
        check_pets(open_data(name, size=None))
    monkeypatch.chdir(tmp_path)
    check_pets(open_data("hf:owner/pets@train", size=None))
    assert check_data_name("hf:pets@train", tmp_path / "owner") == f"hf:{folder.resolve()}@train"
    with pytest.raises(UserError, match=r"'train'.*'test'"):
        open_data("hf:owner/pets@train", split="test")
    with pytest.raises(UserError, match=r"hf:../no/such/folder"):
        open_data("hf:../no/such/folder@train")


def test_open_data_takes_the_names_of_a_study(tmp_path: Path) -> None:
    (tmp_path / "sets.py").write_text(
        "import torch\ndef noise():\n    return torch.rand(5, 3, 8, 8), torch.arange(5)\n"
    )
    spec = f"python:{tmp_path}/sets.py:noise"
    assert (
        repr(heatproof.open_data(spec, allow_code=True, limit=2))
        == "Data(noise, 2 samples of shape (3, 8, 8))"
    )
    with pytest.raises(UserError, match="--allow-code"):
        heatproof.open_data(spec)
    with pytest.raises(UserError, match="'bundled'"):
        heatproof.open_data("bundle:photographs")
    with pytest.raises(UserError, match="'photographs'"):
        heatproof.open_data("bundled:photos")


def test_the_photographs_of_the_demo_by_name() -> None:
    data = heatproof.open_data("bundled:photographs", size=32, limit=3)
    assert data.shape == (3, 32, 32) and data.load([0]).batch.ids == data.ids[:1]


def needs_datasets() -> Any:
    return pytest.importorskip(
        "datasets", reason="datasets cannot be imported here", exc_type=ImportError
    )


@pytest.mark.filterwarnings("ignore")  # `datasets` warns of its own futures
def test_what_the_datasets_package_saves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets = needs_datasets()
    kinds = datasets.ClassLabel(names=["cat", "dog"])
    features = datasets.Features({"image": datasets.Image(), "label": kinds})
    pictures = datasets.Dataset.from_list(rows(), features=features)
    pictures.save_to_disk(tmp_path / "alone")
    check_pets(open_data(f"hf:{tmp_path}/alone", size=None))
    texts = datasets.Dataset.from_dict(
        {"text": ["a good film", "a film"], "label": [1, 0]},
        features=datasets.Features(
            {"text": datasets.Value("string"), "label": datasets.ClassLabel(names=["-", "+"])}
        ),
    )
    datasets.DatasetDict({"train": texts, "test": texts.select([1])}).save_to_disk(
        tmp_path / "films"
    )
    found = open_data(f"hf:{tmp_path}/films@train", vocabulary=Vocabulary(("a", "film", "good")))
    assert found.load([0, 1]).batch.x.tolist() == [[2, 4, 3], [2, 3, 0]]
    assert (found.labels, found.class_names) == ((1, 0), ("-", "+"))
    with pytest.raises(UserError, match="test, train"):
        open_data(f"hf:{tmp_path}/films", vocabulary=Vocabulary(("a",)))
    with pytest.raises(UserError, match=r"`text`.*vocabulary"):
        open_data(f"hf:{tmp_path}/films@test")
    copy_of_the_hubs(tmp_path / "owner" / "pets")
    monkeypatch.chdir(tmp_path)
    name, files = hub_files(
        "hf:owner/pets", None
    )  # `datasets` takes a folder for a name of the hub too
    assert name == "pets-train"
    check_pets(open_data(files[0], size=None))


def test_without_a_network_the_error_says_what_to_put_where(tmp_path: Path) -> None:
    needs_datasets()
    code = "import heatproof; heatproof.open_data('hf:owner/pets@test')"
    alone = {**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=alone,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "save_to_disk('folder')" in done.stderr
    assert "hf:path/to/folder@test" in done.stderr

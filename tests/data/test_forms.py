"""Data in published layouts: each read to the pixels and labels that its makers mean, lazily, and without running it.

Every file here is written as the layout's own tools write it: real tars, real Arrow, real MAT files.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from heatproof.data import Data, Vocabulary, images, open_data
from heatproof.errors import UserError
from support.paths import SHARED_DATA

real = pytest.mark.skipif(not SHARED_DATA.is_dir(), reason=f"no real data in {SHARED_DATA}")


def png(seed: int, side: int = 8) -> bytes:
    values = np.random.default_rng(seed).integers(0, 256, (side, side, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(values).save(buffer, "PNG")
    return buffer.getvalue()


def check_pictures(data: Data, blobs: list[bytes], labels: list[int] | None) -> None:
    """All pictures in any order, after a journey to another process, with a fingerprint that says the same."""
    back = pickle.loads(pickle.dumps(data))
    order = list(reversed(range(len(blobs))))
    batch = back.load(order).batch
    assert batch.ids == tuple(data.ids[i] for i in order) and len(data) == len(blobs)
    assert torch.equal(batch.x, torch.stack([images.decode(blobs[i], None) for i in order]))
    assert (None if data.labels is None else list(data.labels)) == labels
    assert back.fingerprint == data.fingerprint and data.threads >= 1


# CIFAR


def pixels_of(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3072), dtype=np.uint8)


def write_cifar10(folder: Path) -> dict[str, np.ndarray]:
    """The binary version: a byte of the label and 3072 of the picture for each of two pictures a file."""
    folder.mkdir(parents=True)
    written = {}
    for i, name in enumerate([*(f"data_batch_{k}.bin" for k in range(1, 6)), "test_batch.bin"]):
        written[name] = pixels_of(2, i)
        labels = np.array([[i], [9]], np.uint8)
        (folder / name).write_bytes(np.concatenate([labels, written[name]], axis=1).tobytes())
    (folder / "batches.meta.txt").write_text("\n".join(f"c{i}" for i in range(10)))
    return written


def test_cifar10_in_its_folder(tmp_path: Path) -> None:
    written = write_cifar10(tmp_path / "cifar-10-batches-bin")
    test = open_data(tmp_path, split="test")
    assert (test.name, test.shape, test.class_names) == (
        "cifar-10-test",
        (3, 32, 32),
        tuple(f"c{i}" for i in range(10)),
    )
    assert test.labels == (5, 9)
    expected = torch.from_numpy(
        written["test_batch.bin"].reshape(2, 3, 32, 32).astype(np.float32) / 255
    )
    assert torch.equal(pickle.loads(pickle.dumps(test)).load([1, 0]).batch.x, expected[[1, 0]])
    train = open_data(tmp_path / "cifar-10-batches-bin", split="train", size=16)
    assert train.shape == (3, 16, 16) and train.labels == (0, 9, 1, 9, 2, 9, 3, 9, 4, 9)
    one = open_data(tmp_path / "cifar-10-batches-bin" / "test_batch.bin")
    assert one.labels == test.labels and one.fingerprint != train.fingerprint
    with pytest.raises(UserError, match="test, train"):
        open_data(tmp_path)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin").unlink()
    with pytest.raises(UserError, match="lacks data_batch_3"):
        open_data(tmp_path, split="train")


def test_a_label_without_a_name_is_refused(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "c")
    (tmp_path / "c" / "batches.meta.txt").write_text("\n".join(f"c{i}" for i in range(9)))
    with pytest.raises(UserError, match=r"label 9.*9 classes"):
        open_data(tmp_path / "c" / "test_batch.bin")


def test_two_folders_of_cifar_are_explained(tmp_path: Path) -> None:
    write_cifar10(tmp_path / "cifar-10-batches-bin")
    shutil.copytree(tmp_path / "cifar-10-batches-bin", tmp_path / "cifar-10-copy")
    with pytest.raises(UserError, match="cifar-10-batches-bin, cifar-10-copy"):
        open_data(tmp_path)


class Canary:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.path),)


@pytest.mark.parametrize(
    ("folder", "names", "file"),
    [("cifar-10-batches-py", "batches.meta", "test_batch"), ("cifar-100-python", "meta", "test")],
)
def test_pickles_are_refused_and_nothing_runs(
    tmp_path: Path, folder: str, names: str, file: str
) -> None:
    (tmp_path / folder).mkdir()
    for name in (names, file):
        (tmp_path / folder / name).write_bytes(pickle.dumps(Canary(tmp_path / "sang")))
    for path in (tmp_path, tmp_path / folder, tmp_path / folder / file):
        with pytest.raises(UserError, match=r"pickle.*cifar-10-binary.*hf:"):
            open_data(path)
    assert not (tmp_path / "sang").exists()


def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path) -> None:
    pixels, folder = pixels_of(3), tmp_path / "cifar-100-binary"
    fine, coarse = [f"f{i}" for i in range(100)], [f"s{i}" for i in range(20)]
    folder.mkdir()
    records = np.concatenate([np.array([[19, 99], [1, 4], [0, 0]], np.uint8), pixels], axis=1)
    (folder / "test.bin").write_bytes(records.tobytes())
    (folder / "fine_label_names.txt").write_text("\n".join(fine))
    (folder / "coarse_label_names.txt").write_text("\n".join(coarse) + "\n")
    data, super_class = open_data(folder), open_data(folder, label="coarse")
    assert data.labels == (99, 4, 0) and data.class_names == tuple(fine)
    assert super_class.labels == (19, 1, 0) and super_class.class_names == tuple(coarse)
    np.testing.assert_array_equal(
        (data.load([2]).batch.x.numpy() * 255).round().reshape(-1), pixels[2]
    )
    with pytest.raises(UserError, match=r"'course'.*'coarse'"):
        open_data(folder, label="course")
    (folder / "test.bin").write_bytes(records.tobytes()[:-1])
    with pytest.raises(UserError, match="3074"):
        open_data(folder)


# ImageNet


def test_imagenet_folders_keep_the_order_of_the_whole_list(tmp_path: Path) -> None:
    for name in ("train/n01440764/a.JPEG", "train/n01443537/b.JPEG", "val/n01443537/c.JPEG"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(png(len(name)))
    val = open_data(tmp_path, split="val", size=None)
    assert (
        val.ids == ("n01443537/c.JPEG",)
        and val.labels == (1,)
        and val.name == f"{tmp_path.name}-val"
    )
    assert val.class_names == ("n01440764", "n01443537")
    (tmp_path / "LOC_synset_mapping.txt").write_text(
        "n01484850 great white\nn01443537 goldfish\nn01440764 tench, it\n"
    )
    again = open_data(tmp_path / "val", size=None)
    assert again.labels == (1,) and again.class_names == ("tench, it", "goldfish", "great white")
    (tmp_path / "LOC_synset_mapping.txt").unlink()
    index = tmp_path / "imagenet_class_index.json"
    index.write_text('{"0": ["n01440764", "tench"], "1": ["n01443537", "goldfish"]}')
    assert open_data(tmp_path / "val", size=None).class_names == ("tench", "goldfish")
    for text in ("[1]", "{", '{"0": 3}'):
        index.write_text(text)
        with pytest.raises(
            UserError,
            match=r"imagenet_class_index\.json",
        ):
            open_data(tmp_path / "val")
    index.unlink()
    meta = tmp_path / "ILSVRC2012_devkit_t12" / "data" / "meta.mat"
    meta.parent.mkdir(parents=True)
    meta.write_bytes(b"no matrix" * 40)
    with pytest.raises(UserError, match=r"meta\.mat"):
        open_data(tmp_path / "val")
    shutil.rmtree(tmp_path / "ILSVRC2012_devkit_t12")
    (tmp_path / "LOC_synset_mapping.txt").write_text("n01440764 tench\n")
    with pytest.raises(UserError, match=r"n01443537.*1 class"):
        open_data(tmp_path / "val")
    with pytest.raises(UserError, match="train, val"):
        open_data(tmp_path)


def test_flat_validation_pictures_with_either_ground_truth(tmp_path: Path) -> None:
    from scipy.io import savemat

    val = tmp_path / "ILSVRC" / "Data" / "CLS-LOC" / "val"
    val.mkdir(parents=True)
    for i in (1, 3):
        (val / f"ILSVRC2012_val_{i:08d}.JPEG").write_bytes(png(i))
    assert open_data(val).labels is None
    rows = [
        "ImageId,PredictionString",
        "ILSVRC2012_val_00000003,n01440764 1 2 3 4 ",
        "ILSVRC2012_val_00000002,n02 ",
    ]
    solution = tmp_path / "LOC_val_solution.csv"
    solution.write_text("\n".join(rows))
    with pytest.raises(UserError, match="ImageId,PredictionString"):
        open_data(val)
    solution.write_text(
        "\n".join([*rows[:2], "ILSVRC2012_val_00000001,n01484850 5 6 7 8 n01484850 1 1 2 2"])
    )
    assert open_data(val).labels == (1, 0) and open_data(val).class_names == (
        "n01440764",
        "n01484850",
    )
    solution.unlink()
    kit = tmp_path / "ILSVRC2012_devkit_t12" / "data"
    kit.mkdir(parents=True)
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    synsets = np.array(
        [
            (1, "n02119789", "kit fox", 0),
            (2, "n01440764", "tench", 0),
            (9, "n00001740", "entity", 2),
        ],
        dtype=kinds,
    )
    savemat(kit / "meta.mat", {"synsets": synsets[:, None]})
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n1\n2\n")
    data = open_data(val)
    assert data.labels == (1, 0) and data.class_names == (
        "tench",
        "kit fox",
    )  # by WordNet id, not by the kit's number
    (kit / "ILSVRC2012_validation_ground_truth.txt").write_text("1\n9\n2\n")
    with pytest.raises(UserError, match=r"'9'.*2 classes"):
        open_data(val)


# COCO


def write_coco(root: Path, split: str = "val2017") -> Path:
    (root / split).mkdir(parents=True)
    (root / "annotations").mkdir(exist_ok=True)
    for i in range(3):
        (root / split / f"{i:012d}.jpg").write_bytes(png(i))
    content = {
        "images": [{"id": 70 + i, "file_name": f"{i:012d}.jpg"} for i in (2, 0, 1)],
        "categories": [
            {"id": 18, "name": "dog"},
            {"id": 1, "name": "person"},
            {"id": 90, "name": "toothbrush"},
        ],
        "annotations": [
            {"image_id": 70, "category_id": 90, "area": 10.5, "iscrowd": 0},
            {"image_id": 70, "category_id": 18, "area": 99.0, "iscrowd": 0},
            {"image_id": 70, "category_id": 1, "area": 500.0, "iscrowd": 1},
            {"image_id": 72, "category_id": 1, "area": 1.0, "iscrowd": 0},
        ],
    }
    (root / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return root / "annotations" / f"instances_{split}.json"


def test_coco_needs_a_choice_of_label(tmp_path: Path) -> None:
    file = write_coco(tmp_path)
    blobs = [png(i) for i in range(3)]
    for source in (tmp_path, file):
        data = open_data(source, label="largest", size=None)
        check_pictures(
            data, blobs, [1, -1, 0]
        )  # the crowd is larger than the dog, but it is no one thing
        assert data.ids[0] == "000000000000.jpg" and data.class_names == (
            "person",
            "dog",
            "toothbrush",
        )
    assert open_data(file, label="first").labels == (2, -1, 0)
    dog = open_data(file, label="dog")
    assert dog.labels == (1, 0, 0) and dog.class_names == ("no dog", "dog")
    assert open_data(file, label="none").labels is None
    with pytest.raises(UserError, match="label"):
        open_data(tmp_path)
    with pytest.raises(UserError, match=r"'parson'.*'person'"):
        open_data(tmp_path, label="parson")
    write_coco(tmp_path, "train2017")
    assert (
        open_data(tmp_path, split="val", label="first").fingerprint
        == open_data(file, label="first").fingerprint
    )
    with pytest.raises(UserError, match="train2017, val2017"):
        open_data(tmp_path, label="first")


def test_coco_that_cannot_be_used(tmp_path: Path) -> None:
    file = write_coco(tmp_path)
    content = json.loads(file.read_text())
    (tmp_path / "val2017" / "000000000001.jpg").unlink()
    assert list(open_data(file, label="none").load(range(3)).errors) == ["000000000001.jpg"]
    content["images"][1]["file_name"] = "../secret.jpg"
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"'\.\./secret\.jpg'"):
        open_data(file, label="none")
    del content["images"][1]["file_name"]
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"entry 1 of images.*file_name"):
        open_data(file, label="none")
    del content["categories"]
    content["images"] = []
    file.write_text(json.dumps(content))
    with pytest.raises(
        UserError,
        match="categories",
    ):
        open_data(file, label="none")
    shutil.rmtree(tmp_path / "val2017")
    write_coco(tmp_path)
    (tmp_path / "val2017").rename(tmp_path / "pictures")
    with pytest.raises(UserError, match="val2017, images/val2017, images"):
        open_data(file, label="none")


# Hugging Face's folders, and tables in several files


def hub_schema(**features: Any) -> pa.Schema:
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    types = {"Image": image, "ClassLabel": pa.int64(), "Value": pa.string()}
    info = json.dumps({"info": {"features": features}})
    return pa.schema(
        [(k, types[f["_type"]]) for k, f in features.items()], metadata={"huggingface": info}
    )


PET_SCHEMA = hub_schema(
    img={"_type": "Image"}, kind={"_type": "ClassLabel", "names": ["cat", "dog"]}
)


def save_to_disk(folder: Path, blobs: list[bytes], labels: list[int], shards: int = 2) -> None:
    """What `Dataset.save_to_disk` leaves: numbered Arrow streams, state.json and dataset_info.json."""
    folder.mkdir(parents=True)
    names = [f"data-{i:05d}-of-{shards:05d}.arrow" for i in range(shards)]
    for i, name in enumerate(names):
        rows = [
            {"img": {"bytes": b, "path": None}, "kind": k}
            for b, k in zip(blobs, labels, strict=True)
        ]
        share = rows[i * len(rows) // shards : (i + 1) * len(rows) // shards]
        with (
            pa.OSFile(str(folder / name), "wb") as sink,
            pa.ipc.new_stream(sink, PET_SCHEMA) as writer,
        ):
            for row in share:
                writer.write_batch(pa.RecordBatch.from_pylist([row], schema=PET_SCHEMA))
    (folder / "state.json").write_text(
        json.dumps({"_data_files": [{"filename": name} for name in names]})
    )
    (folder / "dataset_info.json").write_text("{}")


def test_folders_of_save_to_disk(tmp_path: Path) -> None:
    blobs, labels = [png(i) for i in range(5)], [0, 1, 1, 0, 1]
    save_to_disk(tmp_path / "pets" / "train", blobs, labels)
    save_to_disk(tmp_path / "pets" / "validation", blobs[:1], [1], shards=1)
    (tmp_path / "pets" / "dataset_dict.json").write_text('{"splits": ["train", "validation"]}')
    data = open_data(tmp_path / "pets", split="train", size=None)
    check_pictures(data, blobs, labels)
    assert (data.name, data.class_names, data.ids[4]) == ("pets-train", ("cat", "dog"), "0004")
    assert (
        open_data(tmp_path / "pets", split="val").labels
        == open_data(tmp_path / "pets" / "validation").labels
        == (1,)
    )
    assert (
        open_data(tmp_path / "pets" / "train" / "data-00001-of-00002.arrow", label="none").labels
        is None
    )
    with pytest.raises(
        UserError,
        match="train, validation",
    ):
        open_data(tmp_path / "pets")
    (tmp_path / "pets" / "train" / "state.json").write_text(
        '{"_data_files": [{"filename": "../validation/x.arrow"}]}'
    )
    with pytest.raises(UserError, match="file"):
        open_data(tmp_path / "pets" / "train")


def test_arrow_with_false_offsets_is_recorded_and_the_rest_is_read(tmp_path: Path) -> None:
    blobs = [png(i) for i in range(3)]
    save_to_disk(tmp_path / "set", blobs, [0, 1, 0], shards=3)
    broken = tmp_path / "set" / "data-00001-of-00003.arrow"
    content = broken.read_bytes()
    end = struct.pack("<ii", 0, len(blobs[1]))  # where the bytes of the only row begin and end
    before, _, after = content.rpartition(end)
    broken.write_bytes(before + struct.pack("<ii", 0, 2**31 - 1) + after)
    loaded = open_data(tmp_path / "set", size=8).load([0, 1, 2])
    assert loaded.batch.ids == ("0000", "0002") and "cannot be read" in loaded.errors["0001"]
    broken.write_bytes(content[:100])
    with pytest.raises(UserError, match="Arrow"):
        open_data(tmp_path / "set")


def test_parquet_files_of_one_split_belong_together(tmp_path: Path) -> None:
    blobs = [png(i) for i in range(3)]
    (tmp_path / "data").mkdir()
    for i, (split, blob) in enumerate(
        zip(("train-00001-of-00002", "train-00000-of-00002", "test"), blobs, strict=True)
    ):
        row = [{"img": {"bytes": blob, "path": f"{i}.png"}, "kind": i % 2}]
        pq.write_table(
            pa.Table.from_pylist(row, schema=PET_SCHEMA), tmp_path / "data" / f"{split}.parquet"
        )
    data = open_data(tmp_path, split="train", size=None)
    check_pictures(data, [blobs[1], blobs[0]], [1, 0])
    assert data.ids == ("1.png", "0.png") and data.class_names == ("cat", "dog")
    pattern = open_data(tmp_path / "data" / "train-{00000..00001}-of-00002.parquet", size=None)
    assert pattern.fingerprint == data.fingerprint
    pq.write_table(pa.table({"img": blobs[:1]}), tmp_path / "data" / "train-00001-of-00002.parquet")
    with pytest.raises(
        UserError,
        match=r"train-00001-of-00002\.parquet.*00000-of-00002.*img",
    ):
        open_data(tmp_path, split="train")
    two = hub_schema(
        img={"_type": "Image"}, kind={"_type": "ClassLabel"}, breed={"_type": "ClassLabel"}
    )
    pq.write_table(pa.Table.from_pylist([], schema=two), tmp_path / "two.parquet")
    with pytest.raises(UserError, match="kind, breed"):
        open_data(tmp_path / "two.parquet")
    odd = pa.table({"face": blobs[:2], "age": [3, 4]}).replace_schema_metadata(
        {b"huggingface": b"{"}
    )
    pq.write_table(
        odd, tmp_path / "odd.parquet"
    )  # one column of bytes, and a remark that is no JSON
    check_pictures(open_data(tmp_path / "odd.parquet", size=None), blobs[:2], None)
    table = pa.table({"image": blobs[:2], "tags": [[0, 1], [1]], "breed": ["pug", None]})
    pq.write_table(table, tmp_path / "tags.parquet")
    assert open_data(tmp_path / "tags.parquet").labels is None
    breed = open_data(tmp_path / "tags.parquet", label="breed")
    assert breed.labels == (0, -1) and breed.class_names == ("pug",)
    with pytest.raises(UserError, match="`tags`"):
        open_data(tmp_path / "tags.parquet", label="tags")
    with pytest.raises(UserError, match="'breed'"):
        open_data(tmp_path / "tags.parquet", label="bred")


def test_names_of_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("hf:../pets", "hf:a b", "hf:"):
        with pytest.raises(UserError, match="hf:owner/name"):
            open_data(name)
    try:
        import datasets  # type: ignore[import-not-found, unused-ignore] # noqa: F401
    except ImportError:
        with pytest.raises(UserError, match=r'pip install "heatproof\[datasets\]".*save_to_disk'):
            open_data("hf:owner/pets@train")
        return
    blobs = [png(i) for i in range(2)]
    rows = [{"img": {"bytes": blob, "path": None}, "kind": 1} for blob in blobs]
    (tmp_path / "owner" / "pets" / "data").mkdir(parents=True)
    table = pa.Table.from_pylist(rows, schema=PET_SCHEMA)
    pq.write_table(table, tmp_path / "owner" / "pets" / "data" / "train-00000-of-00001.parquet")
    monkeypatch.chdir(tmp_path)
    check_pictures(open_data("hf:owner/pets@train", size=None), blobs, [1, 1])
    with pytest.raises(UserError, match=r"'train'.*'test'"):
        open_data("hf:owner/pets@train", split="test")


# Shards of samples


def write_shard(path: Path, members: list[tuple[str, bytes]]) -> dict[str, tarfile.TarInfo]:
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    with tarfile.open(path) as archive:
        return {info.name: info for info in archive.getmembers()}


def sample(key: str, seed: int, label: object = None, kind: str = "png") -> list[tuple[str, bytes]]:
    members = [(f"{key}.{kind}", png(seed))]
    return members if label is None else [*members, (f"{key}.cls", str(label).encode())]


def test_shards_by_pattern_folder_and_name(tmp_path: Path) -> None:
    blobs = [png(i) for i in range(4)]
    write_shard(tmp_path / "pets-train-000.tar", sample("./a/0", 0, 7) + sample("a/1.5", 1, 2))
    write_shard(
        tmp_path / "pets-train-001.tar",
        [("b.cls", b" 3\n"), ("b.png", blobs[2]), ("b.seg.png", png(9))],
    )
    write_shard(
        tmp_path / "pets-train-002.tar",
        [("c.json", b'{"label": 4, "breed": "pug"}'), ("c.jpg", blobs[3])],
    )
    data = open_data(tmp_path / "pets-train-{000..002}.tar", size=None)
    check_pictures(data, blobs, [7, -1, 3, 4])
    assert data.ids == (
        "a/0",
        "a/1",
        "b",
        "c",
    )  # of a/1.5.png the key is a/1, and its .5.cls is no label
    assert open_data(tmp_path, size=None).fingerprint == data.fingerprint
    assert open_data(tmp_path / "pets-train-002.tar", label="breed").class_names == ("pug",)
    with pytest.raises(UserError, match="bread"):
        open_data(tmp_path / "pets-train-002.tar", label="bread")
    with pytest.raises(UserError, match=r"pets-train-003\.tar"):
        open_data(tmp_path / "pets-train-{000..003}.tar")
    write_shard(tmp_path / "pets-val-000.tar", sample("a/0", 5, "cat") + sample("z", 6, "ant"))
    val = open_data(tmp_path, split="val")
    assert val.labels == (1, 0) and val.class_names == ("ant", "cat")
    with pytest.raises(UserError, match="pets-train, pets-val"):
        open_data(tmp_path)
    both = open_data(tmp_path / "pets-{train,val}-000.tar", label="none")
    assert both.ids == (
        "pets-train-000/a/0",
        "pets-train-000/a/1",
        "pets-val-000/a/0",
        "pets-val-000/z",
    )


def test_damaged_members_are_recorded(tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    members = [
        *sample("good", 0, 1),
        *sample("odd", 1, "x1"),
        ("text.txt", b"no picture"),
        *sample("junk", 2, 0),
    ]
    places = write_shard(path, [*members, ("tail.png", png(3)), ("lost.png", png(4))])
    content = bytearray(path.read_bytes())
    start = places["junk.png"].offset_data
    content[start : start + 8] = b"not a pn"
    content[places["lost.png"].offset] ^= (
        0xFF  # the header's checksum no longer fits; tarfile would just stop there
    )
    path.write_bytes(bytes(content))
    data = open_data(path, size=None)
    loaded = data.load(range(len(data)))
    assert loaded.batch.ids == ("good", "tail")
    assert {key: reason for key, reason in loaded.errors.items() if key != "junk"} == {
        "odd": "ValueError: the label 'x1' is not a whole number",
        "text": "ValueError: one picture was expected, found 0 among .txt",
        "s.tar:rest": f"ValueError: the shard has a damaged header at byte {places['lost.png'].offset}; "
        "what follows is lost",
    }
    assert "not a picture" in loaded.errors["junk"]


def test_a_member_that_claims_ten_gigabytes(tmp_path: Path) -> None:
    path = tmp_path / "s.tar"
    write_shard(path, sample("good", 0))
    claim = tarfile.TarInfo("huge.png")
    claim.size = 10 * 2**30
    whole = path.read_bytes().rstrip(b"\0")
    whole += b"\0" * (-len(whole) % 512)
    path.write_bytes(whole + claim.tobuf(tarfile.GNU_FORMAT) + png(1))
    loaded = open_data(path, size=None).load(range(3))
    assert loaded.batch.ids == ("good",)
    assert "claims 10737418240 bytes, but the shard ends before" in loaded.errors["huge"]
    assert "cannot be read after byte" in loaded.errors["s.tar:rest"]
    with path.open("r+b") as file:
        file.truncate(
            11 * 2**30
        )  # a file with a hole: it has the bytes now, and they must not be read
    assert "at most 268435456 are read" in open_data(path, size=None).load([1]).errors["huge"]
    back = tarfile.TarInfo("back.png").tobuf(tarfile.GNU_FORMAT)
    size = struct.pack(">Bxxxq", 0xFF, -1024).replace(
        b"\0\0\0", b"\xff\xff\xff", 1
    )  # minus 1024 in base 256
    header = bytearray(back[:124] + size + back[136:])
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    path.write_bytes(whole + bytes(header))
    assert "s.tar:rest" in open_data(path, size=None).load([1]).errors


def test_shards_that_cannot_be_used(tmp_path: Path) -> None:
    write_shard(tmp_path / "a.tar", [("1.txt", b"x"), ("1.npy", b"y")])
    with pytest.raises(UserError, match=r"no picture.*\.txt, \.npy"):
        open_data(tmp_path / "a.tar")
    write_shard(tmp_path / "b.tar", [("1.png", png(0)), ("1.json", b'{"label": [1, 2]}')])
    with pytest.raises(UserError, match=r"'1'.*\[1, 2\]"):
        open_data(tmp_path / "b.tar")
    assert open_data(tmp_path / "b.tar", label="none").labels is None
    (tmp_path / "c.tar").write_bytes(b"\x1f\x8b" + b"x" * 1000)
    (tmp_path / "d.tar.gz").write_bytes(b"\x1f\x8b" + b"x" * 1000)
    for name in ("c.tar", "d.tar.gz"):
        with pytest.raises(UserError, match=f"{name}.*compressed"):
            open_data(tmp_path / name)
    write_shard(
        tmp_path / "e.tar",
        [("1.png", png(0)), ("1.cls", b"1" * (2**20 + 1)), ("2.png", png(1)), ("2.cls", b"1")],
    )
    long = open_data(tmp_path / "e.tar", size=None)
    assert "1048577" in long.load([0, 1]).errors["1"]
    (tmp_path / "e.tar").unlink()
    assert set(long.load([1]).errors) == {"2"}, "a shard that is gone is an error of each sample"
    patterns = (
        ("a-{3..1}.tar", "3 to 1"),
        ("a-{x}.tar", r"{x}.*{000\.\.012}"),
        ("a{.tar", r"a{\.tar"),
    )
    for pattern, message in patterns:
        with pytest.raises(UserError, match=message):
            open_data(tmp_path / pattern)
    for name in ("p-0.csv", "p-1.csv"):
        (tmp_path / name).write_text("1,2\n")
    with pytest.raises(UserError, match=r"\.csv"):
        open_data(tmp_path / "p-{0..1}.csv")
    with pytest.raises(UserError, match="100000"):
        open_data(tmp_path / ("{0..99}" * 3 + ".tar"))


# Series and texts in tables


def test_csv_of_series_with_and_without_a_header(tmp_path: Path) -> None:
    (tmp_path / "head.csv").write_text(
        "id,t0,t1,class\nbeat a,0.5,1,up\nbeat b,2,,down\nbeat c,3,4,down\n"
    )
    data = open_data(tmp_path / "head.csv")
    loaded = data.load(range(3))
    assert (data.shape, data.labels, data.class_names) == ((1, 2), (1, 0, 0), ("down", "up"))
    assert (
        loaded.batch.ids == ("beat a", "beat c")
        and "not a row of numbers" in loaded.errors["beat b"]
    )
    assert loaded.batch.x.tolist() == [[[0.5, 1]], [[3, 4]]]
    (tmp_path / "first.csv").write_text("2;0.5;1;7\n1;2;3;7\n")
    first, last = (
        open_data(tmp_path / "first.csv"),
        open_data(tmp_path / "first.csv", label="last", shape=[3]),
    )
    assert (
        first.labels == (1, 0)
        and first.shape == (1, 3)
        and first.load([0]).batch.x.tolist() == [[[0.5, 1, 7]]]
    )
    assert (
        last.labels == (0, 0)
        and last.class_names == ("7",)
        and last.load([0]).batch.x.tolist() == [[2, 0.5, 1]]
    )
    none = open_data(tmp_path / "first.csv", label="none", shape=(2, 2))
    assert none.labels is None and none.load([1]).batch.x.tolist() == [[[1, 2], [3, 7]]]
    for options, message in (
        ({"label": "klass"}, "'klass'.*'class'"),
        ({"shape": [5]}, "2 numbers"),
    ):
        with pytest.raises(UserError, match=message):
            open_data(tmp_path / "head.csv", **options)
    with pytest.raises(UserError, match=r"header.*'class'"):
        open_data(tmp_path / "first.csv", label="class")
    (tmp_path / "words.csv").write_text("good film,1\nbad film,0\n")
    with pytest.raises(UserError, match="vocabulary"):
        open_data(tmp_path / "words.csv")


def test_texts_in_tables(tmp_path: Path) -> None:
    vocabulary = Vocabulary(("a", "film", "good"))
    (tmp_path / "t.csv").write_text('text,label,stars\n"a good,\nfilm",pos,5\na film,neg,1\n')
    schema = hub_schema(
        sentence={"_type": "Value"}, label={"_type": "ClassLabel", "names": ["neg", "pos"]}
    )
    rows = [{"sentence": "a good, film", "label": 1}, {"sentence": "a film", "label": 0}]
    pq.write_table(pa.Table.from_pylist(rows, schema=schema), tmp_path / "t.parquet")
    with (
        pa.OSFile(str(tmp_path / "t.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, schema) as writer,
    ):
        writer.write_table(pa.Table.from_pylist(rows, schema=schema))
    for name in ("t.csv", "t.parquet", "t.arrow"):
        data = open_data(tmp_path / name, vocabulary=vocabulary)
        assert (data.name, data.labels, data.class_names) == ("t", (1, 0), ("neg", "pos"))
        assert data.load([1, 0]).batch.x.tolist() == [[2, 3, 0, 0], [2, 4, 1, 3]]
    assert open_data(tmp_path / "t.csv", vocabulary=vocabulary, label="stars").labels == (5, 1)
    assert open_data(rows, vocabulary=vocabulary).labels == (1, 0)
    pq.write_table(pa.table({"text": ["a film", None]}), tmp_path / "gap.parquet")
    with pytest.raises(UserError, match="row 1"):
        open_data(tmp_path / "gap.parquet", vocabulary=vocabulary)
    with pytest.raises(UserError, match=r"`sentence`.*vocabulary"):
        open_data(tmp_path / "t.parquet")


# Choices


def test_a_choice_that_is_not_there_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3)), y=[0, 1], age=[30, 40])
    assert open_data(tmp_path / "a.npz", label="age").labels == (30, 40)
    (tmp_path / "cat").mkdir()
    (tmp_path / "cat" / "1.png").write_bytes(png(0))
    for source, options, message in (
        (tmp_path / "a.npz", {"split": "test"}, "split"),
        (tmp_path / "a.npz", {"label": "aeg"}, "'aeg'.*'age'"),
        (tmp_path, {"split": "test"}, "splits"),
        (tmp_path, {"label": "cat"}, "label"),
        (torch.zeros(2, 3), {"split": "test"}, "Tensor"),
        ((torch.zeros(2, 3), torch.zeros(2, 4)), {}, "several"),
    ):
        with pytest.raises(UserError, match=message):
            open_data(source, **options)
    assert open_data((torch.zeros(2, 3), torch.zeros(2)), label="none").labels is None


@real
def test_real_pictures_in_other_forms_are_the_same_pictures(tmp_path: Path) -> None:
    archive = np.load(SHARED_DATA / "cifar10" / "test.npz")
    ends = archive["offsets"]
    blobs = [archive["jpeg"][ends[i] : ends[i + 1]].tobytes() for i in range(20)]
    labels = archive["labels"][:20].tolist()
    reference = (
        open_data(SHARED_DATA / "cifar10" / "test.npz", size=None, limit=20).load(range(20)).batch.x
    )
    pixels = (reference * 255).round().to(torch.uint8)
    write_cifar10(tmp_path / "cifar")
    column = np.array(labels, np.uint8)[:, None]
    records = np.concatenate([column, pixels.reshape(20, -1).numpy()], axis=1)
    (tmp_path / "cifar" / "test_batch.bin").write_bytes(records.tobytes())
    write_shard(
        tmp_path / "c.tar",
        [
            m
            for i, b in enumerate(blobs)
            for m in ((f"{i:03}.jpg", b), (f"{i:03}.cls", str(labels[i]).encode()))
        ],
    )
    save_to_disk(tmp_path / "saved", blobs, labels)
    for name in ("cifar/test_batch.bin", "c.tar", "saved"):
        data = open_data(tmp_path / name, size=None)
        assert torch.equal(data.load(range(20)).batch.x, reference) and data.labels == tuple(
            labels
        ), name
    fashion = open_data(SHARED_DATA / "fashion_mnist", split="test", limit=5)
    assert fashion.shape == (1, 28, 28) and len(fashion.labels or ()) == 5


def test_groups_come_from_a_column_a_folder_or_a_dataset(tmp_path: Path) -> None:
    """As a study names them; a column of groups is no part of the series."""
    rows = ["patient,label,a,b,c", "ann,0,1,2,3", "bob,1,4,5,6", "ann,0,7,8,9"]
    (tmp_path / "beats.csv").write_text("\n".join(rows))
    beats = open_data(tmp_path / "beats.csv", groups="patient", shape=(3,))
    assert beats.groups == ("ann", "bob", "ann") and beats.load([2]).batch.x.tolist() == [
        [7.0, 8.0, 9.0]
    ]
    with pytest.raises(UserError, match=r"patent.*patient"):
        open_data(tmp_path / "beats.csv", groups="patent")
    (tmp_path / "bare.csv").write_text("0,1,2\n1,3,4")
    with pytest.raises(UserError, match=r"header.*'patient'"):
        open_data(tmp_path / "bare.csv", groups="patient")
    table = {"image": [png(i) for i in range(3)], "label": [0, 1, 0], "patient": [7, 7, 9]}
    pq.write_table(pa.table(table), tmp_path / "scans.parquet")
    scans = open_data(tmp_path / "scans.parquet", groups="patient")
    assert scans.groups == ("7", "7", "9") and scans.limit(2).groups == ("7", "7")
    with pytest.raises(UserError, match=r"patent.*patient"):
        open_data(tmp_path / "scans.parquet", groups="patent")
    with pytest.raises(UserError, match=r"column.*list"):
        open_data(torch.rand(2, 3, 8, 8), groups="patient")
    for name in ("ann/1", "ann/2", "bob/1"):
        (tmp_path / "folder" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "folder" / f"{name}.png").write_bytes(png(0))
    assert open_data(tmp_path / "folder", groups=0).groups == ("ann", "ann", "bob")

    class Frames(torch.utils.data.Dataset):
        groups = ("film", "film")

        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> torch.Tensor:
            return torch.full((3, 8, 8), i / 2)

    assert open_data(Frames()).groups == ("film", "film")

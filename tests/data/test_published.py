"""Published data sets in small files of their own layouts: STL-10, CINIC-10, MIT-BIH and ModelNet."""

from __future__ import annotations

import importlib.util
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from heatproof.data import Data, open_data
from heatproof.data.meshes import parse_off, surface_points
from heatproof.data.stl10 import CINIC10_CLASSES
from heatproof.errors import UserError
from heatproof.rand import keys
from support.paths import SHARED_DATA


def random_bytes(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)


def check_sent_to_a_process(data: Data) -> None:
    """Another process reads the same samples, and knows them by the same fingerprint."""
    other = pickle.loads(pickle.dumps(data))
    order = list(range(len(data)))[::-1]
    assert torch.equal(other.load(order).batch.x, data.load(order).batch.x)
    assert other.fingerprint == data.fingerprint


# STL-10


@pytest.fixture
def stl10(tmp_path: Path) -> Path:
    """The folder `stl10_binary`, with two pictures a split, as the published script writes them."""
    folder = tmp_path / "stl10_binary"
    folder.mkdir()
    for seed, split in enumerate(("train", "test", "unlabeled")):
        pictures = random_bytes(2, 3, 96, 96, seed=seed)
        pictures.swapaxes(2, 3).tofile(folder / f"{split}_X.bin")  # column by column
        if split != "unlabeled":
            np.array([10, 1], np.uint8).tofile(folder / f"{split}_y.bin")
    return folder


def test_stl10_is_read_column_by_column_and_labels_count_from_1(stl10: Path) -> None:
    data = open_data(stl10.parent, split="test")
    assert (data.name, data.shape) == ("stl10-test", (3, 96, 96))
    assert data.labels == (9, 0) and data.class_names is not None
    assert (data.class_names[0], data.class_names[2], data.class_names[9]) == (
        "airplane",
        "car",
        "truck",
    )
    pixels = torch.from_numpy(random_bytes(2, 3, 96, 96, seed=1).astype(np.float32) / 255)
    assert torch.equal(data.load([0, 1]).batch.x, pixels)
    assert open_data(stl10 / "test_X.bin").fingerprint == data.fingerprint
    assert open_data(stl10, split="train", size=32).shape == (3, 32, 32)
    check_sent_to_a_process(data)


def test_unlabelled_pictures_have_no_labels(stl10: Path) -> None:
    data = open_data(stl10, split="unlabeled")
    assert data.labels is None and data.load([0]).batch.label is None
    with pytest.raises(UserError, match="test, train, unlabeled"):
        open_data(stl10)


def test_damaged_stl10_is_refused(stl10: Path) -> None:
    np.array([3, 11], np.uint8).tofile(stl10 / "test_y.bin")
    with pytest.raises(UserError, match=r"test_y.bin.*label 11"):
        open_data(stl10, split="test")
    np.array([3], np.uint8).tofile(stl10 / "test_y.bin")
    with pytest.raises(UserError, match="1 labels for 2"):
        open_data(stl10, split="test")
    (stl10 / "train_y.bin").unlink()
    with pytest.raises(UserError, match=r"train_y\.bin"):
        open_data(stl10, split="train")
    os.truncate(stl10 / "unlabeled_X.bin", 1000)
    with pytest.raises(UserError, match="27648"):
        open_data(stl10, split="unlabeled")


# CINIC-10


def test_cinic10_keeps_its_32_pixels(tmp_path: Path) -> None:
    for part in ("train", "valid", "test"):
        for number, name in enumerate(CINIC10_CLASSES):
            folder = tmp_path / "CINIC-10" / part / name
            folder.mkdir(parents=True)
            pixels = random_bytes(32, 32, 3, seed=number)
            Image.fromarray(pixels).save(folder / f"cifar10-{part}-{number}.png")
    root = tmp_path / "CINIC-10"
    data = open_data(root, split="valid")
    assert data.shape == (3, 32, 32) and data.class_names == CINIC10_CLASSES
    assert data.ids[1] == "automobile/cifar10-valid-1.png" and data.labels == tuple(range(10))
    expected = random_bytes(32, 32, 3, seed=1).transpose(2, 0, 1).astype(np.float32) / 255
    np.testing.assert_array_equal(data.load([1]).batch.x[0].numpy(), expected)
    assert open_data(root / "test").shape == (3, 32, 32)
    assert open_data(root, split="train", size=96).shape == (3, 96, 96)
    with pytest.raises(UserError, match="valid"):
        open_data(root)


# MIT-BIH


def write_beats(path: Path, classes: list[float], seed: int = 0) -> np.ndarray[Any, Any]:
    """Rows as Kaggle writes them: 187 steps and the class, as floats."""
    steps = np.random.default_rng(seed).random((len(classes), 187)).astype(np.float32)
    rows = np.concatenate([steps, np.array(classes, np.float32)[:, None]], 1)
    np.savetxt(path, rows, fmt="%.18e", delimiter=",")
    return steps


def test_mitbih_has_five_classes_of_beats_or_two(tmp_path: Path) -> None:
    steps = write_beats(tmp_path / "mitbih_train.csv", [0, 4, 2, 0])
    write_beats(tmp_path / "mitbih_test.csv", [1])
    data = open_data(tmp_path, split="train")
    assert data.shape == (1, 187) and data.labels == (0, 4, 2, 0)
    assert data.class_names is not None and data.class_names[2] == "ventricular"
    np.testing.assert_array_equal(data.load([1]).batch.x[0, 0].numpy(), steps[1])
    binary = open_data(tmp_path / "mitbih_train.csv", label="abnormal")
    assert binary.labels == (0, 1, 1, 0) and binary.class_names == ("normal", "abnormal")
    assert open_data(tmp_path / "mitbih_test.csv", shape=[187]).shape == (187,)
    assert open_data(tmp_path / "mitbih_test.csv", label="none").labels is None
    with pytest.raises(UserError, match="test, train"):
        open_data(tmp_path)
    with pytest.raises(UserError, match=r"'abnormall'.*'abnormal'"):
        open_data(tmp_path, split="test", label="abnormall")
    check_sent_to_a_process(data)


def test_a_gap_in_a_beat_is_recorded_and_a_wrong_file_refused(tmp_path: Path) -> None:
    file = tmp_path / "mitbih_test.csv"
    write_beats(file, [0, 1])
    rows = file.read_text().splitlines()
    rows[1] = "," + rows[1].partition(",")[2]
    file.write_text("\n".join(rows))
    loaded = open_data(file).load([0, 1])
    assert loaded.batch.ids == ("0000",) and "not finite" in loaded.errors["0001"]
    for content, message in (
        ("1,2,3\n4,5,6\n", "rows of 3"),
        ("a,b\n", "mitbih_test"),
        ("", "mitbih_test"),
        (rows[0].rpartition(",")[0] + ",7\n", "row 1: the class is 7"),
    ):
        file.write_text(content)
        with pytest.raises(UserError, match=message):
            open_data(file)


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason=f"no real data in {SHARED_DATA}")
def test_real_beats_in_an_archive(tmp_path: Path) -> None:
    """Beats of one record of MIT-BIH, and the same written as Kaggle's file."""
    archive = SHARED_DATA / "ecg" / "mitbih_rec100_beats187.npz"
    data = open_data(archive, shape=[1, 187])
    batch = data.load(range(50)).batch
    assert batch.x.shape == (50, 1, 187) and batch.x.min() >= 0 and batch.x.max() <= 1
    assert data.labels is not None
    rows = np.concatenate([batch.x[:, 0].numpy(), np.array(data.labels[:50])[:, None]], 1)
    np.savetxt(tmp_path / "mitbih_test.csv", rows, delimiter=",")
    torch.testing.assert_close(open_data(tmp_path).load(range(50)).batch.x, batch.x)


# ModelNet: meshes

CUBE_CORNERS = [(x, y, z) for x in (0, 1) for y in (0, 1) for z in (0, 1)]
CUBE_SIDES = [(0, 1, 3, 2), (4, 5, 7, 6), (0, 1, 5, 4), (2, 3, 7, 6), (0, 2, 6, 4), (1, 3, 7, 5)]


def cuboid(width: float = 1.0, triangles: bool = False) -> str:
    """A box of 1 × 1 × width as text in the Object File Format, of squares or of triangles."""
    faces = [f"4 {' '.join(map(str, side))}" for side in CUBE_SIDES]
    if triangles:
        faces = [f"3 {a} {b} {c}\n3 {a} {c} {d}" for a, b, c, d in CUBE_SIDES]
    corners = [f"{x} {y} {z * width}" for x, y, z in CUBE_CORNERS]
    count = 12 if triangles else 6
    return "\n".join(["OFF", f"8 {count} 0", *corners, *faces]) + "\n"


@pytest.fixture
def modelnet(tmp_path: Path) -> Path:
    """Two classes with a training mesh each and one test mesh, in ModelNet's folders."""
    root = tmp_path / "ModelNet40"
    for name, part, width in (("chair", "train", 1), ("table", "train", 3), ("table", "test", 2)):
        (root / name / part).mkdir(parents=True)
        (root / name / part / f"{name}_0001.off").write_text(cuboid(width))
    return root


def test_modelnet_in_its_folders(modelnet: Path) -> None:
    data = open_data(modelnet, split="test")
    assert (data.name, data.ids, data.shape) == (
        "ModelNet40-test",
        ("table/test/table_0001.off",),
        (1000, 3),
    )
    assert data.labels == (1,) and data.class_names == ("chair", "table")
    points = data.load([0]).batch.x[0]
    assert float(points.norm(dim=1).max()) == pytest.approx(1, abs=1e-5)
    torch.testing.assert_close(points.mean(0), torch.zeros(3), atol=1e-5, rtol=0)
    assert open_data(modelnet, split="train", length=64).shape == (64, 3)
    with pytest.raises(UserError, match="test, train"):
        open_data(modelnet)
    check_sent_to_a_process(open_data(modelnet, split="train"))


def test_points_depend_on_the_id_and_on_nothing_else(modelnet: Path) -> None:
    train = open_data(modelnet, split="train", length=50)
    both = train.load([1, 0]).batch.x
    assert torch.equal(both[1], train.load([0]).batch.x[0])
    copy = modelnet / "table" / "train" / "table_0002.off"
    copy.write_bytes((modelnet / "table" / "train" / "table_0001.off").read_bytes())
    more = open_data(modelnet, split="train", length=50)
    assert not torch.equal(more.load([2]).batch.x, more.load([1]).batch.x)
    assert torch.equal(more.load([1]).batch.x, train.load([1]).batch.x)


def test_points_are_uniform_on_the_surface() -> None:
    """A box of 1 × 1 × 3: each face has its share of the area, and every point lies on a face."""
    vertices, triangles = parse_off(cuboid(3).encode())
    points = surface_points(vertices, triangles, 20_000, keys(0, ("box",), "points")).numpy()
    upper = np.array([1, 1, 3])
    assert (points >= -1e-9).all() and (points <= upper + 1e-9).all()
    on_face = np.concatenate([np.abs(points) < 1e-9, np.abs(points - upper) < 1e-9], 1)
    assert (on_face.sum(1) == 1).all()
    shares = on_face.mean(0)
    np.testing.assert_allclose(shares, np.array([3, 3, 1, 3, 3, 1]) / 14, atol=0.012)
    side = points[
        on_face[:, 0]
    ]  # uniform within a face: mean and variance of a uniform distribution
    np.testing.assert_allclose(side[:, 1:].mean(0), [0.5, 1.5], atol=0.03)
    np.testing.assert_allclose(side[:, 1:].var(0), [1 / 12, 9 / 12], rtol=0.06)


def test_squares_and_triangles_are_the_same_surface() -> None:
    _, of_squares = parse_off(cuboid().encode())
    _, of_triangles = parse_off(cuboid(triangles=True).encode())
    np.testing.assert_array_equal(of_squares, of_triangles)


@pytest.mark.parametrize(
    "text",
    [
        cuboid().replace("OFF\n", "OFF", 1),  # as some files of ModelNet
        cuboid().replace("OFF\n", "OFF # made by hand\n# a comment\n", 1),
        cuboid().replace("\n", "\r\n"),
    ],
    ids=["glued", "comments", "DOS"],
)
def test_variants_of_off_are_read(text: str) -> None:
    vertices, triangles = parse_off(text.encode())
    assert vertices.shape == (8, 3) and triangles.shape == (12, 3)


DAMAGED = {
    "empty": (b"", "not an OFF mesh"),
    "another format": (b"ply\nformat ascii 1.0\n", "not an OFF mesh"),
    "no counts": (b"OFF", "truncated"),
    "cut in the vertices": (cuboid().encode()[:40], "truncated"),
    "cut in the faces": (cuboid().encode()[:-12], "truncated"),
    "false count": (b"OFF\n999999999999 999999999 0\n0 0 0\n", "truncated"),
    "no vertex of this number": (cuboid().replace("4 0 1 3 2", "4 0 1 3 9").encode(), "vertex 9"),
    "a face of two corners": (cuboid().replace("4 0 1 3 2", "2 0 1 3 2").encode(), "corners"),
    "not a number": (cuboid().replace("0 0 0.0", "0 nan 0.0").encode(), "not finite"),
    "no area": (b"OFF\n3 1 0\n0 0 0\n1 1 1\n2 2 2\n3 0 1 2\n", "no area"),
    "words": (b"OFF\na b c\n", "invalid literal"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_mesh_is_recorded_as_an_error(modelnet: Path, name: str) -> None:
    content, message = DAMAGED[name]
    (modelnet / "chair" / "train" / "chair_0001.off").write_bytes(content)
    loaded = open_data(modelnet, split="train", length=8).load([0, 1])
    assert loaded.batch.ids == ("table/train/table_0001.off",)
    assert message in loaded.errors["chair/train/chair_0001.off"]


def test_a_pipe_is_not_opened(modelnet: Path) -> None:
    os.mkfifo(modelnet / "chair" / "train" / "chair_0000.off")
    data = open_data(modelnet, split="train", length=8)
    assert "pipe" in data.load([0]).errors["chair/train/chair_0000.off"]


# ModelNet: points in HDF5

with_h5py = pytest.mark.skipif(
    importlib.util.find_spec("h5py") is None, reason="h5py is not installed"
)


def write_h5(path: Path, points: np.ndarray[Any, Any], labels: list[int]) -> None:
    import h5py

    with h5py.File(path, "w") as file:
        file.create_dataset("data", data=points, compression="gzip")
        file.create_dataset("label", data=np.array(labels, np.uint8)[:, None])


@with_h5py
def test_modelnet_as_hdf5(tmp_path: Path) -> None:
    clouds = np.random.default_rng(0).random((3, 20, 3)).astype(np.float32)
    write_h5(tmp_path / "ply_data_train0.h5", clouds[:2], [0, 1])
    write_h5(tmp_path / "ply_data_train1.h5", clouds[2:], [1])
    write_h5(tmp_path / "ply_data_test0.h5", clouds[:1], [0])
    (tmp_path / "shape_names.txt").write_text("chair\ntable\n")
    train = open_data(tmp_path, split="train", length=8)
    assert (train.name, train.shape, train.labels) == ("ply_data_train", (8, 3), (0, 1, 1))
    assert train.class_names == ("chair", "table")
    np.testing.assert_array_equal(train.load([0, 1, 2]).batch.x.numpy(), clouds[:, :8])
    assert open_data(tmp_path / "ply_data_test0.h5", length=20).shape == (20, 3)
    with pytest.raises(UserError, match=r"20 points.*length=20"):
        open_data(tmp_path, split="test")
    check_sent_to_a_process(train)


@with_h5py
def test_hostile_hdf5_is_refused_in_one_message(tmp_path: Path) -> None:
    import h5py

    file = tmp_path / "ply_data_test0.h5"
    clouds = np.random.default_rng(0).random((2, 20, 3)).astype(np.float32)
    write_h5(tmp_path / "elsewhere.h5", clouds, [0, 0])
    write_h5(file, clouds, [0, 0])
    whole = file.read_bytes()

    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            open_data(file, length=8)

    for content in (b"", b"no HDF5", whole[: len(whole) // 2]):
        file.write_bytes(content)
        refused("HDF5")
    with h5py.File(file, "w") as other:
        other["points"] = clouds
    refused(r"'data'.*points")
    with h5py.File(file, "w") as other:
        other["data"] = h5py.ExternalLink("elsewhere.h5", "/data")
        other["label"] = np.zeros(2)
    refused("no plain dataset 'data'")
    with h5py.File(file, "w") as other:
        other["data"], other["label"] = clouds[:, :, :2], np.zeros(2)
    refused(r"\(2, 20, 2\)")
    with h5py.File(file, "w") as other:
        other["data"], other["label"] = clouds, np.zeros(3)
    refused("3 labels")


def test_hdf5_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    if importlib.util.find_spec("h5py") is not None:
        pytest.skip("h5py is installed")
    (tmp_path / "ply_data_test0.h5").write_bytes(b"")
    with pytest.raises(UserError, match="h5py"):
        open_data(tmp_path)


# Padding


def test_padding_adds_zeros_on_every_side(tmp_path: Path) -> None:
    x = torch.rand(2, 1, 4, 5)
    plain = open_data(x, regions=torch.ones(2, 4, 5))
    padded = open_data(x, regions=torch.ones(2, 4, 5), pad=3)
    assert padded.shape == (1, 10, 11) and padded.fingerprint != plain.fingerprint
    batch = padded.load([0, 1]).batch
    assert torch.equal(batch.x[:, :, 3:-3, 3:-3], x) and batch.x.sum() == pytest.approx(
        float(x.sum()), rel=1e-5
    )
    assert batch.aux["_region"].shape == (2, 10, 11) and batch.aux["_region"].sum() == 2 * 20
    assert open_data(torch.rand(2, 1, 7), pad=2).load([0]).batch.x.shape == (1, 1, 11)
    assert open_data(torch.rand(2, 1, 3, 3, 3), pad=1).shape == (1, 5, 5, 5)


@pytest.mark.parametrize("pad", [0, -1, 1.5, True, "3"])
def test_a_wrong_pad_is_refused(pad: Any) -> None:
    with pytest.raises(UserError, match="pad"):
        open_data(torch.rand(1, 3, 8, 8), pad=pad)


def test_rows_and_graphs_are_not_padded() -> None:
    with pytest.raises(UserError, match="pad=2"):
        open_data(torch.rand(3, 8), pad=2)
    with pytest.raises(UserError, match="mask"):
        open_data([torch.rand(2, 3), torch.rand(3, 3)], pad=2).load([0])

"""Food-101 in its published layout: splits by list, classes by file, and what may be wrong with them."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from heatproof.data import open_data
from heatproof.errors import UserError

CLASSES = ("apple_pie", "waffles", "baklava")


def food101(root: Path, labels: bool = True) -> Path:
    """Three classes in an order that is not alphabetical, four pictures each, of which one is for testing."""
    for c, name in enumerate(CLASSES):
        (root / "images" / name).mkdir(parents=True)
        for i in range(4):
            colour = (60 * c, 50 * i, 0)
            Image.new("RGB", (9, 7), colour).save(root / "images" / name / f"{100 * c + i}.jpg")
    (root / "meta").mkdir()
    lists = {"train": (0, 1, 2), "test": (3,)}
    for split, numbers in lists.items():
        lines = [f"{name}/{100 * c + i}" for c, name in enumerate(CLASSES) for i in numbers]
        (root / "meta" / f"{split}.txt").write_text("\n".join(lines) + "\n")
    (root / "meta" / "classes.txt").write_text("\n".join(CLASSES) + "\n")
    if labels:
        (root / "meta" / "labels.txt").write_text("Apple pie\nWaffles\nBaklava\n")
    return root


def test_a_split_is_what_its_list_names(tmp_path: Path) -> None:
    root = food101(tmp_path / "food-101")
    test, train = (open_data(root, split=split, size=8) for split in ("test", "train"))
    assert test.ids == ("apple_pie/3", "waffles/103", "baklava/203")
    assert test.labels == (0, 1, 2) and test.class_names == ("Apple pie", "Waffles", "Baklava")
    assert len(train) == 9 and not set(train.ids) & set(test.ids)
    batch = test.load([1]).batch
    assert batch.x.shape == (1, 3, 8, 8)
    assert abs(float(batch.x[0, 0].mean()) - 60 / 255) < 0.02, "the red of the second class"
    assert test.name == "food-101-test"


def test_classes_have_their_file_names_without_labels(tmp_path: Path) -> None:
    data = open_data(food101(tmp_path / "f", labels=False), split="test")
    assert data.class_names == CLASSES


def test_a_missing_picture_is_a_sample_with_an_error(tmp_path: Path) -> None:
    root = food101(tmp_path / "f")
    (root / "images" / "waffles" / "103.jpg").unlink()
    assert list(open_data(root, split="test").load(range(3)).errors) == ["waffles/103"]


def test_mistakes_are_named(tmp_path: Path) -> None:
    root = food101(tmp_path / "f")
    with pytest.raises(UserError, match=r"test.*train"):
        open_data(root)
    with pytest.raises(UserError, match="validation"):
        open_data(root, split="validation")
    with pytest.raises(UserError, match="label"):
        open_data(root, split="test", label="fine")
    (root / "meta" / "train.txt").write_text("pizza/1\n")
    with pytest.raises(UserError, match="pizza"):
        open_data(root, split="train")
    (root / "meta" / "train.txt").write_text("../secret/1\n")
    with pytest.raises(UserError, match="secret"):
        open_data(root, split="train")
    (root / "meta" / "labels.txt").write_text("Apple pie\n")
    with pytest.raises(UserError, match=r"3 lines.*1 in"):
        open_data(root, split="test")

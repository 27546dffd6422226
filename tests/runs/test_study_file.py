"""A mistake in a study file is one message with its line, before any model is loaded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import yaml

from heatproof.errors import UserError
from heatproof.runs.study.file import LARGEST_FILE, read_study
from heatproof.runs.study.yaml_lines import line_of

GOOD = """\
seed: 3
model: bundled:efficientnet-lite0
data:
  source: photos
  size: 64
explainers:
  - saliency
  - {integrated_gradients: {steps: 20}, as: IG}
  - smoothgrad: {of: {integrated_gradients: {steps: 4}}, samples: 5}
  - lime: {features: {patches: {size: 8}}}
evaluations:
  - stability:
      perturbations:
        - fass-mild
        - rotation: {degrees: [10, 20]}
      k: 0.01
"""


@pytest.fixture
def folder(tmp_path) -> Path:
    from PIL import Image

    (tmp_path / "photos").mkdir()
    Image.new("RGB", (80, 60), (200, 30, 30)).save(tmp_path / "photos" / "a.png")
    return tmp_path


def write(folder: Path, text: str) -> Path:
    path = folder / "study.yaml"
    path.write_text(text)
    return path


def test_a_good_study_is_read_whole(folder):
    study = read_study(write(folder, GOOD))
    assert list(study.explainers) == [
        "saliency",
        "IG",
        "smoothgrad(of=integrated_gradients(steps=4), samples=5)",
        "lime(features=patches(size=8))",
    ]
    assert len(study.evaluations["stability"].perturbations) == 7
    assert study.seed == 3
    assert study.data["photos"]["source"] == str(folder / "photos")
    assert read_study(write(folder, GOOD), seed=9, limit=2).limit == 2
    assert read_study(write(folder, GOOD), seed=9).seed == 9
    assert study.ignore == ()
    ignoring = read_study(write(folder, GOOD + "ignore: [few-samples, few-pairs]\n"))
    assert ignoring.ignore == ("few-samples", "few-pairs")


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("  - saliency", "  - sailency", 7, ["'sailency'", "did you mean 'saliency'", "grad_cam"]),
        ("steps: 20", "stepz: 20", 8, ["'stepz'", "did you mean 'steps'"]),
        ("steps: 20", "steps: 0", 8, ["steps", "greater than", "got 0"]),
        ("{steps: 4}", "{steps: many}", 9, ["steps", "'many'"]),
        ("size: 8", "size: -8", 10, ["size", "-8"]),
        ("patches:", "patchez:", 10, ["'patchez'", "did you mean 'patches'"]),
        ("fass-mild", "fass-mlid", 14, ["'fass-mlid'", "did you mean 'fass-mild'"]),
        ("degrees:", "degree:", 15, ["'degree'", "did you mean 'degrees'"]),
        ("k: 0.01", "k: 0", 16, ["k", "got 0"]),
        ("k: 0.01", "kk: 1", 16, ["'kk'", "did you mean 'k'"]),
        ("stability:", "stabilty:", 12, ["'stabilty'", "did you mean 'stability'"]),
        ("seed: 3", "seed: -3", 1, ["seed", "-3"]),
        ("seed: 3", "references: 1", 1, ["references", "at least 2", "got 1"]),
        ("seed: 3", "seeds: 3", 1, ["'seeds'", "did you mean 'seed'"]),
        ("seed: 3", "compile: maybe", 1, ["compile must be true or false", "'maybe'"]),
        ("seed: 3", "precision: fp16", 1, ["'fp16'", "did you mean 'float16'", "bfloat16"]),
        (
            "seed: 3",
            "batch_size: 2.5",
            1,
            ["batch_size must be a whole number of at least 1", "2.5"],
        ),
        (
            "{patches: {size: 8}}",
            "{patches: 8}",
            10,
            ["parameters are a mapping such as {size: 16}", "got 8"],
        ),
        (
            "{integrated_gradients: {steps: 4}}",
            "integrated_gradient",
            9,
            ["'integrated_gradients'"],
        ),
        ("source: photos", "source: photo", 4, ["photo", "photos"]),
        ("seed: 3", "ignore: [few-sample]", 1, ["'few-sample'", "did you mean 'few-samples'"]),
        ("seed: 3", "ignore: few-samples", 1, ["list", "'few-samples'"]),
        ("size: 64", "sizes: 64", 5, ["'sizes'", "'size'"]),
        ("bundled:efficientnet-lite0", "bundeld:x", 2, ["'bundeld'", "'bundled'"]),
        ("bundled:efficientnet-lite0", "bundled:efficientnet-lite", 2, ["efficientnet-lite0"]),
        ("  - saliency\n", "  - saliency\n  - saliency\n", 8, ["'saliency'", "twice"]),
        ("explainers:", "explainer:", 6, ["'explainer'", "'explainers'"]),
        (
            "  size: 64",
            "  vocabulary: words.json",
            3,
            ["vocabulary", "photos", "'words.json'"],
        ),
        (
            "data:\n  source: photos\n  size: 64",
            "data: [photos, photos]",
            3,
            ["data", "'photos'"],
        ),
        ("data:\n  source: photos\n  size: 64", "data: []", 3, ["data"]),
        ("- saliency", "- linear_cav: {concepts: 3}", 7, ["concepts", "3"]),
    ],
)
def test_a_mistake_names_line_value_and_the_nearest_choice(folder, old, new, line, words):
    path = write(folder, GOOD.replace(old, new, 1))
    with pytest.raises(UserError) as caught:
        read_study(path)
    message = str(caught.value)
    assert f"study.yaml, line {line}:" in message, message
    for word in words:
        assert word in message, message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: [1, 2", ["line 1", "YAML"]),
        ("- just\n- a list\n", ["mapping"]),
        ("", ["mapping"]),
        ("model: x\nmodels: y\n", ["model", "models"]),
        ("a: !!python/object/apply:os.system ['true']\n", ["YAML"]),
    ],
)
def test_what_is_not_a_study_is_refused(folder, text, words):
    with pytest.raises(UserError) as caught:
        read_study(write(folder, text))
    for word in words:
        assert word in str(caught.value)


def test_a_file_too_large_for_a_study_is_not_read(folder):
    path = write(folder, "#" * LARGEST_FILE + "\n")
    with pytest.raises(UserError, match=rf"study\.yaml.*{LARGEST_FILE}"):
        read_study(path)


def test_a_vocabulary_is_found_beside_the_study(folder):
    (folder / "words.json").write_text("{}")
    study = read_study(write(folder, GOOD.replace("  size: 64", "  vocabulary: words.json")))
    assert study.data["photos"]["vocabulary"] == str(folder / "words.json")
    hub = read_study(write(folder, GOOD.replace("  size: 64", "  vocabulary: hf:org/words")))
    assert hub.data["photos"]["vocabulary"] == "hf:org/words"


def test_a_missing_study_names_its_nearest_neighbour(folder):
    write(folder, GOOD)
    with pytest.raises(UserError, match=r"'study\.yaml'"):
        read_study(folder / "studdy.yaml")


def test_python_code_needs_permission(folder):
    text = GOOD.replace("bundled:efficientnet-lite0", "python:net.py:make")
    (folder / "net.py").write_text("raise SystemExit('ran')")
    with pytest.raises(UserError, match="--allow-code"):
        read_study(write(folder, text)).plan()


def test_the_line_of_what_is_not_there_is_that_of_the_nearest_above():
    node = yaml.compose("a: 1\nb:\n  - 2\n  - 3\n")
    assert [line_of(node, place) for place in (("c",), ("b", 9), ("b", "x"), ("a", 0), ())] == [
        1,
        2,
        2,
        1,
        1,
    ]


def test_data_of_a_study_may_name_their_groups(tmp_path):
    rows = ["patient,label,t0,t1,t2", *(f"{'ann' if i < 3 else 'bob'},0,1,{i},3" for i in range(6))]
    (tmp_path / "beats.csv").write_text("\n".join(rows))
    study = tmp_path / "study.yaml"
    study.write_text(
        "data: {source: beats.csv, groups: patient}\nexplainers: [random, {precomputed: {path: m.npy}}]\n"
        "evaluations: [agreement]\n"
    )
    np.save(tmp_path / "m.npy", np.random.default_rng(0).random((6, 1, 3)))
    (data,) = read_study(study).plan().data.values()
    assert data.groups == ("ann", "ann", "ann", "bob", "bob", "bob")

"""Regions of samples: from arrays, archives, folders of masks and COCO, resized as their pictures are."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import heatproof
from heatproof import UserError, open_data

REGION = "_region"


def regions(data: heatproof.Data) -> torch.Tensor:
    return data.load(range(len(data))).batch.aux[REGION]


def square(size: tuple[int, int] = (20, 40)) -> np.ndarray:
    """The lower left quarter."""
    mask = np.zeros(size, dtype=bool)
    mask[size[0] // 2 :, : size[1] // 2] = True
    return mask


def test_arrays_and_mappings_go_to_their_samples():
    x = torch.rand(3, 3, 8, 8)
    masks = torch.zeros(3, 8, 8, dtype=torch.bool)
    masks[1, 2:5, 1:3] = True
    data = open_data(x, regions=masks)
    assert torch.equal(regions(data), masks) and torch.equal(
        data.load([1]).batch.aux[REGION][0], masks[1]
    )
    by_id = open_data(x, regions={"0001": masks[1]})
    assert torch.equal(regions(by_id), masks), "a sample without a region has an empty one"
    assert open_data(x).fingerprint != data.fingerprint
    assert open_data(x, regions=~masks).fingerprint != data.fingerprint
    with pytest.raises(UserError, match=r"3 samples.*2 regions"):
        open_data(x, regions=masks[:2])
    with pytest.raises(UserError, match=r"\(8, 7\)"):
        regions(open_data(torch.rand(1, 3, 8, 6), regions=masks[:1, :, :7]))


def test_an_archive_names_the_array_of_its_masks(tmp_path):
    masks = np.zeros((2, 8, 8), dtype=np.uint8)
    masks[0, :4] = 1
    np.savez(
        tmp_path / "a.npz",
        x=np.random.default_rng(0).random((2, 3, 8, 8), dtype=np.float32),
        seg=masks,
    )
    assert np.array_equal(
        regions(open_data(str(tmp_path / "a.npz"), regions="seg")).numpy(), masks > 0
    )
    with pytest.raises(UserError, match="seg"):
        open_data(str(tmp_path / "a.npz"), regions="sec")


@pytest.mark.parametrize(("resize", "share"), [("squash", 0.25), ("crop", 0.25)])
def test_folders_of_masks_are_resized_as_their_pictures_are(tmp_path, resize, share):
    for name, mask in (("cat/a", square()), ("cat/b", ~square())):
        for folder, picture in (("pictures", np.uint8(255 * mask)), ("masks", np.uint8(7 * mask))):
            path = tmp_path / folder / f"{name}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(picture).save(path)
    options = {"size": 16, "resize": resize, "regions": str(tmp_path / "masks")}
    loaded = open_data(str(tmp_path / "pictures"), **options).load([0, 1]).batch
    # The pictures are their own masks: wherever one is bright its region is.
    assert torch.equal(loaded.aux[REGION], loaded.x[:, 0] >= 0.5)
    assert loaded.aux[REGION][0].float().mean() == share
    with pytest.raises(UserError, match="sample"):
        open_data(
            str(tmp_path / "pictures"), **{**options, "regions": str(tmp_path / "masks" / "cat")}
        )
    with pytest.raises(UserError, match=r"nowhere|folder of masks"):
        open_data(str(tmp_path / "pictures"), **{**options, "regions": "nowhere"})


def test_a_palette_says_what_is_void(tmp_path):
    (tmp_path / "masks").mkdir()
    values = np.zeros((8, 8), dtype=np.uint8)
    values[:2], values[2:4] = 12, 255
    picture = Image.fromarray(values, mode="P")
    picture.putpalette([0] * 768)
    picture.save(tmp_path / "masks" / "0000.png")
    found = regions(open_data(torch.rand(1, 3, 8, 8), regions=str(tmp_path / "masks")))[0]
    assert torch.equal(found, torch.from_numpy(values == 12))


def coco(root: Path) -> Path:
    (root / "val2017").mkdir()
    Image.new("RGB", (40, 20)).save(root / "val2017" / "a.jpg")
    Image.new("RGB", (40, 20)).save(root / "val2017" / "b.jpg")
    runs = square().T.ravel()
    counts = np.diff(np.r_[0, np.flatnonzero(np.diff(runs.astype(int))) + 1, runs.size]).tolist()
    triangle = {"segmentation": [[20, 0, 39, 0, 39, 19]], "bbox": [20, 0, 20, 20], "area": 190.0}
    entries = [
        {"image_id": 1, "category_id": 9, **triangle},
        {
            "image_id": 1,
            "category_id": 4,
            "segmentation": {"size": [20, 40], "counts": counts},
            "area": 200.0,
        },
    ]
    entries[1]["bbox"] = [0, 10, 20, 10]
    content = {
        "images": [
            {"id": i + 1, "file_name": f"{n}.jpg", "width": 40, "height": 20}
            for i, n in enumerate("ab")
        ],
        "annotations": entries,
        "categories": [{"id": 9, "name": "dog"}, {"id": 4, "name": "cat"}],
    }
    (root / "annotations").mkdir()
    (root / "annotations" / "instances_val2017.json").write_text(json.dumps(content))
    return root


def test_coco_gives_the_objects_of_the_label(tmp_path):
    root = str(coco(tmp_path))

    def of(label: str, what: str) -> np.ndarray:
        found = regions(open_data(root, label=label, regions=what, size=40))
        assert not found[1].any(), "a picture without objects has no region"
        return found[0].numpy()[::2]  # 20 rows were squashed to 40

    assert np.array_equal(of("largest", "masks"), square()), "run lengths go down columns"
    assert np.array_equal(of("largest", "boxes"), square())
    box = np.zeros((20, 40), dtype=bool)
    box[:, 20:] = True
    assert np.array_equal(of("dog", "boxes"), box)
    inside = of("dog", "masks")
    assert 0.4 < inside[:, 20:].mean() < 0.6 and not inside[:, :20].any()
    assert np.array_equal(of("none", "boxes"), box | square())
    with pytest.raises(UserError, match=r"'boxs'.*'boxes'"):
        open_data(root, label="largest", regions="boxs")
    file = tmp_path / "annotations" / "instances_val2017.json"
    content = json.loads(file.read_text())
    content["annotations"][1]["segmentation"]["counts"] = "packed"
    file.write_text(json.dumps(content))
    with pytest.raises(UserError, match=r"'a\.jpg'.*boxes"):
        open_data(root, label="largest", regions="masks", size=40).load([0])
    assert np.array_equal(of("largest", "boxes"), square())


def test_a_study_file_names_regions(tmp_path):
    from heatproof.runs.study.file import parse

    (tmp_path / "masks").mkdir()
    np.savez(tmp_path / "a.npz", x=np.zeros((2, 3, 8, 8), dtype=np.float32))
    given = {"source": "a.npz", "regions": "masks"}
    study = parse(
        {"model": "bundled:efficientnet-lite0", "data": given, "explainers": ["sobel"]}, tmp_path
    )
    assert study.data["a.npz"]["regions"] == str(tmp_path / "masks")


def test_floats_are_grades_unless_they_are_a_mask():
    x = torch.rand(3, 3, 8, 8)
    grades = torch.rand(3, 8, 8).numpy()
    kept = regions(heatproof.open_data(x, regions=grades))
    assert kept.dtype == torch.float32
    assert torch.equal(kept, torch.tensor(grades))
    some = heatproof.open_data(x, regions={"0": grades[0]})
    graded = heatproof.open_data(x, regions={some.ids[0]: grades[0]})
    assert (
        torch.equal(regions(graded)[0], torch.tensor(grades[0])) and not regions(graded)[1:].any()
    )
    mask = (grades > 0.5).astype(float)
    assert regions(heatproof.open_data(x, regions=mask)).dtype == torch.bool
    numbered = (10 * grades).astype(int)
    assert regions(heatproof.open_data(x, regions=numbered)).dtype == torch.bool
    with pytest.raises(heatproof.UserError, match=r"grades.*-0"):
        heatproof.open_data(x, regions=torch.tensor(grades).flip(0) * 2 - torch.ones(3, 8, 8) * 1.0)

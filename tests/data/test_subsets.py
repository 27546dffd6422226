"""Random subsets: the same samples for any order of the data, balanced by class, and read from the right files."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from scipy import stats

import heatproof
from heatproof.data import open_data, order_by_hash
from heatproof.errors import UserError
from heatproof.runs.study.file import read_study

IDS = [f"sample/{i}" for i in range(400)]


def test_the_order_depends_on_ids_and_seed_alone() -> None:
    shuffled = [IDS[i] for i in np.random.default_rng(0).permutation(len(IDS))]
    first = [IDS[i] for i in order_by_hash(IDS, 3)]
    assert first == [shuffled[i] for i in order_by_hash(shuffled, 3)]
    assert sorted(first) == sorted(IDS)
    assert first != [IDS[i] for i in order_by_hash(IDS, 4)]


def test_every_sample_is_equally_likely_to_be_drawn() -> None:
    drawn = Counter(IDS[i] for seed in range(600) for i in order_by_hash(IDS, seed)[:40])
    counts = [drawn[key] for key in IDS]
    # The counts vary by a factor 0.9 less than a multinomial's, because a draw is without replacement.
    assert stats.chisquare(counts).pvalue > 1e-4


def test_a_subset_is_the_same_for_any_order_of_the_data() -> None:
    x = torch.arange(60.0)[:, None]
    ids = tuple(f"{i}" for i in range(60))
    labels = torch.arange(60) % 3
    turned = torch.arange(60).flip(0)
    backwards = heatproof.Batch(tuple(ids[i] for i in turned), x[turned], label=labels[turned])
    wanted = {"n": 7, "per_class": 4, "seed": 5}
    forwards = open_data(heatproof.Batch(ids, x, label=labels), sample=wanted)
    assert set(forwards.ids) == set(open_data(backwards, sample=wanted).ids)
    assert len(forwards) == 7
    loaded = forwards.load(range(7)).batch
    assert [str(int(value)) for value in loaded.x[:, 0]] == list(loaded.ids)


def test_per_class_takes_as_many_of_each_label_and_all_of_a_rare_one() -> None:
    labels = [0] * 10 + [1] * 5 + [2] + [-1] * 4
    data = open_data(torch.rand(20, 3), labels=labels, sample={"per_class": 2})
    assert data.labels is not None
    assert Counter(data.labels) == {0: 2, 1: 2, 2: 1}


def test_a_limit_takes_a_part_of_the_sample() -> None:
    x = torch.rand(50, 3)
    whole, trial = open_data(x, sample=20), open_data(x, sample=20, limit=4)
    assert len(trial) == 4 and set(trial.ids) < set(whole.ids)
    assert trial.fingerprint != whole.fingerprint


def test_the_fingerprint_is_that_of_the_chosen_samples(tmp_path: Path) -> None:
    """A change of a file outside the subset is no other data; one inside it is."""
    for i in range(12):
        Image.new("RGB", (8, 8), (i, 0, 0)).save(tmp_path / f"{i:02}.png")
    data = open_data(tmp_path, size=None, sample=5)
    unchosen = next(f"{i:02}.png" for i in range(12) if f"{i:02}.png" not in data.ids)
    for name, is_same in ((unchosen, True), (data.ids[2], False)):
        Image.new("RGB", (8, 8), (0, 99, 0)).save(tmp_path / name)
        again = open_data(tmp_path, size=None, sample=5)
        assert again.ids == data.ids
        assert (again.fingerprint == data.fingerprint) is is_same


@pytest.mark.parametrize("form", ["npz", "list", "dataset"])
def test_fingerprints_of_the_same_samples_agree(form: str, tmp_path: Path) -> None:
    x = torch.rand(9, 3, 8, 8)
    chosen = open_data(x, sample=4).ids
    sources = {"npz": tmp_path / "x.npz", "list": x, "dataset": [(v, 0) for v in x]}
    np.savez(tmp_path / "x.npz", x=x.numpy())
    first = open_data(sources[form], sample=4)
    assert first.ids == chosen
    assert first.fingerprint == open_data(sources[form], sample=4).fingerprint
    assert torch.equal(first.load(range(4)).batch.x, x[[int(key) for key in chosen]])


@pytest.mark.parametrize(
    ("sample", "told"),
    [
        (0, "n"),
        ({"perclass": 2}, "per_class"),
        ({"seed": 2}, "per_class"),
        (True, "True"),
        ({"n": 2.5}, "2.5"),
    ],
)
def test_a_mistake_is_named(sample: object, told: str) -> None:
    with pytest.raises(UserError, match=told):
        open_data(torch.rand(5, 3), sample=sample)  # type: ignore[arg-type]


def test_per_class_needs_labels() -> None:
    with pytest.raises(UserError, match="labels"):
        open_data(torch.rand(5, 3), sample={"per_class": 1})


def test_a_study_file_takes_a_sample_and_names_the_line_of_a_mistake(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=np.zeros((30, 3, 8, 8), np.float32), y=np.arange(30) % 3)
    text = "model: bundled:efficientnet-lite0\nexplainers: [random]\ndata:\n  source: x.npz\n  sample: {SAMPLE}\n"
    study = tmp_path / "study.yaml"
    study.write_text(text.replace("SAMPLE", "n: 5, per_class: 3, seed: 1"))
    given = read_study(study).data["x.npz"]
    assert given["sample"] == {"n": 5, "per_class": 3, "seed": 1}
    study.write_text(text.replace("SAMPLE", "n: -5"))
    with pytest.raises(UserError, match="line 5"):
        read_study(study)

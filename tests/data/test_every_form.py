"""Every form of data under every option: it opens and loads alike each time, or a `UserError` refuses it."""

from __future__ import annotations

import gzip
import io
import json
import re
import struct
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from heatproof.data import Vocabulary, open_data
from heatproof.data.choices import expanded, grouped, whole_label
from heatproof.data.dataset import Data, checked_length, numbered
from heatproof.data.sequences import prompts
from heatproof.errors import UserError
from heatproof.types import Batch

WORDS = Vocabulary(("a", "film", "good", "bad"))
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "size": {"size": 4},
    "crop": {"size": 5, "resize": "crop"},
    "own size": {"size": None},
    "shape": {"shape": [6]},
    "table": {"shape": [2, 3]},
    "test": {"split": "test"},
    "train": {"split": "train"},
    "no label": {"label": "none"},
    "kind": {"label": "kind"},
    "last": {"label": "last"},
    "length": {"length": 3},
    "text": {"vocabulary": WORDS},
    "short text": {"vocabulary": WORDS, "length": 2, "label": "kind"},
    "mood": {"vocabulary": WORDS, "label": "Mood"},
    "folder": {"groups": 0, "limit": 2},
    "column": {"groups": "who", "name": "mine"},
    "labels": {"labels": [4, None, 2.0]},
    "largest": {"label": "largest", "size": None, "regions": "boxes"},
    "first": {"label": "first", "size": 7},
    "regions": {"regions": np.arange(48).reshape(3, 4, 4) % 3 == 0},
    "by id": {"labels": {"0001": 7}, "groups": {"0001": "x"}},
}


def numbers(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random(shape).astype(np.float32)


def ppm(seed: int, height: int = 6, width: int = 8) -> bytes:
    """A picture in a form that every version of every library writes alike."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return b"P6\n%d %d\n255\n" % (width, height) + pixels.tobytes()


def put(path: Path, content: bytes | str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def idx(values: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, values.ndim))
        + struct.pack(f">{values.ndim}I", *values.shape)
        + values.tobytes()
    )


def tar(path: Path, members: dict[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def npz(path: Path, **arrays: Any) -> Path:
    np.savez(path, **arrays)
    return path


TU = {
    "A": "1, 2\n2, 1\n3, 4\n5, 5\n",
    "graph_indicator": "1\n1\n2\n2\n3\n",
    "graph_labels": "-1\n1\n1\n",
}


def files(root: Path) -> dict[str, Any]:
    """One of each form that lies on a disk."""
    for i, place in enumerate(("cats/a.ppm", "cats/b.ppm", "dogs/deep/c.ppm")):
        put(root / "folder" / place, ppm(i))
        put(root / "splits" / ("train" if i else "val") / place, ppm(i))
    put(root / "loose" / "one.ppm", ppm(5))
    put(root / "loose" / "two.ppm", b"no picture")
    put(root / "loose" / ".hidden.ppm", ppm(5))
    put(root / "idx" / "train-images-idx3-ubyte", idx((255 * numbers(3, 4, 5)).astype(np.uint8)))
    put(root / "idx" / "train-labels-idx1-ubyte", idx(np.array([3, 1, 2], np.uint8)))
    put(
        root / "idx" / "t10k-images-idx3-ubyte.gz",
        gzip.compress(idx((255 * numbers(2, 4, 5)).astype(np.uint8)), mtime=0),
    )
    put(root / "short-images-idx3-ubyte", idx((255 * numbers(3, 4, 5)).astype(np.uint8))[:-1])
    put(root / "Beats_TRAIN.tsv", "2\t1\t2\t3\n-1\t4\t5\t6\n2\t7\t8\n2\t7\tnan\t9\n")
    put(root / "Beats_TEST.tsv", "5\t1\t2\t3\n-1\t4\t5\t6\n")
    put(
        root / "table.csv", "id,a,b,who,kind,class\nr1,1,2,ann,x,7\nr2,3,4,bob,y,8\nr3,5,,ann,x,7\n"
    )
    put(root / "named.csv", "id,a,kind,b,class\nr1,1,9,2,7\nr2,3,8,4,8\nr3,5,9,,7\n")
    put(root / "bare.csv", "1;2;a\n3;4;b\n5;6;a\n")
    put(
        root / "films.jsonl",
        '{"text": "a good film", "label": 1, "kind": "x", "id": 4}\n{"text": "bad", "label": 0, "id": 5}\n',
    )
    put(root / "films.tsv", "Text\tlabel\tkind\tMood\na film\t1\tx\t3\na bad, bad film\t0\ty\t4\n")
    put(root / "films.csv", 'sentence,label\n"good, a\nfilm",-1\nbad,2\n')
    put(root / "films.txt", "2 good film\n\n3 a film\n")
    put(root / "films.data", "2 good film\n\n3 a film\n")
    put(root / "two.tsv", "a film\t3\nbad\t-4\n")
    with zipfile.ZipFile(root / "tu.zip", "w") as archive:
        for part, text in {
            **TU,
            "node_labels": "3\n1\n1\n3\n2\n",
            "node_attributes": "1, 2\n" * 5,
        }.items():
            archive.writestr(zipfile.ZipInfo(f"X/X_{part}.txt"), text)
    for part, text in TU.items():
        put(root / "plain_tu" / f"X_{part}.txt", text)
    members = {
        "a.ppm": ppm(0),
        "a.cls": b"1",
        "b.ppm": ppm(1),
        "b.json": b'{"label": 0, "kind": "x"}',
        "c.cls": b"3",
    }
    tar(root / "tars" / "train-000.tar", members)
    tar(
        root / "tars" / "train-001.tar",
        {"in/a.ppm": ppm(2), "in/a.json": b'{"cls": 2, "kind": "y"}'},
    )
    tar(
        root / "one.tar",
        {
            "a.ppm": ppm(0),
            "a.x.ppm": ppm(1),
            "a.kind": b"zebra",
            "b.x.ppm": ppm(1),
            "b.kind": b"ape",
        },
    )
    npz(
        root / "floats.npz",
        x=numbers(3, 2, 3),
        y=[1, 0, 2],
        kind=[5, 6, 7],
        ids=["p", "q", "r"],
        classes=["u", "v", "w"],
    )
    npz(root / "bytes.npz", images=(255 * numbers(3, 5, 4, 4)).astype(np.uint8), labels=[1, 0, 2])
    npz(
        root / "sets.npz",
        data=numbers(2, 4, 3),
        mask=[[1, 1, 1, 0], [1, 1, 0, 0]],
        adjacency=numbers(2, 4, 4),
        aux_depth=[1, 2],
    )
    npz(root / "tokens.npz", x=[[2, 3, 0], [4, 0, 0]], attention_mask=[[1, 1, 0], [1, 0, 0]])
    blobs = [ppm(0), ppm(1), ppm(2)[:40]]
    npz(
        root / "blobs.npz",
        jpeg=np.frombuffer(b"".join(blobs), np.uint8),
        offsets=np.cumsum([0, *map(len, blobs)]),
        y=[1, 2, 3],
    )
    picture = {"bytes": ppm(3), "path": "x.ppm"}
    rows = {
        "image": [picture, {**picture, "path": "y.ppm"}, {"bytes": None, "path": "z.ppm"}],
        "kind": ["x", None, "a"],
    }
    pq.write_table(
        pa.table({**rows, "label": [2, 0, 1], "who": ["ann", "bob", "ann"]}),
        root / "pictures.parquet",
        row_group_size=2,
    )
    told = {
        b"huggingface": json.dumps(
            {"info": {"features": {"kind": {"_type": "ClassLabel", "names": ["n", "p"]}}}}
        ).encode()
    }
    schema = pa.schema([("sentence", pa.string()), ("kind", pa.int64())], metadata=told)
    texts = pa.table({"sentence": ["a film", "bad"], "kind": [1, 0]}, schema=schema)
    with pa.ipc.new_file(root / "texts.arrow", schema) as sink:
        sink.write_table(texts)
    coco(root / "coco")
    cifar(root / "cifar-100-binary")
    return {path.name: path for path in sorted(root.iterdir())} | {
        "shards": root / "tars" / "train-{000..001}.tar",
        "val": root / "splits" / "val",
        "typo": root / "foldr",
        "list": [root / "folder/cats/a.ppm", root / "loose/one.ppm"],
    }


def coco(root: Path) -> None:
    boxes = [
        (1, 7, 4.0, [0, 0, 2, 2]),
        (1, 3, 9.0, [1, 1, 3, 3]),
        (2, 7, 1.0, [0, 0, 1, 1]),
        (2, 3, 99.0, [0, 0, 9, 9]),
    ]
    annotations = [
        {
            "id": i,
            "image_id": p,
            "category_id": c,
            "area": area,
            "bbox": box,
            "iscrowd": int(area == 99),
        }
        for i, (p, c, area, box) in enumerate(boxes)
    ]
    for i in (1, 2, 3):
        put(root / "val2017" / f"{i}.ppm", ppm(i))
    content: dict[str, Any] = {
        "images": [{"id": i, "file_name": f"{i}.ppm"} for i in (3, 1, 2)],
        "annotations": annotations,
    }
    content["categories"] = [{"id": 7, "name": "kind"}, {"id": 3, "name": "dog"}]
    put(root / "annotations" / "instances_val2017.json", json.dumps(content))


def cifar(root: Path) -> None:
    for part, n in (("train", 2), ("test", 1)):
        pixels = (255 * numbers(n, 3072, seed=n)).astype(np.uint8)
        labels = np.array([[1, i] for i in range(n)], np.uint8)
        put(root / f"{part}.bin", np.concatenate([labels, pixels], axis=1).tobytes())
    put(root / "fine_label_names.txt", "\n".join(f"f{i}" for i in range(100)))
    put(root / "coarse_label_names.txt", "\n".join(["c"] * 20))


class Items:
    """A data set by position, with an item that cannot be read."""

    ids = ("i", "j", "k")
    groups = (1, 1, 2)

    def __len__(self) -> int:
        return 3

    def __getitem__(self, i: int) -> Any:
        if i == 1:
            raise OSError("gone")
        return {"image": torch.from_numpy(numbers(3, 4, 4, seed=i)), "label": i}


def in_memory() -> dict[str, Any]:
    """One of each form that is in memory."""
    series = torch.from_numpy(numbers(3, 1, 4))
    ragged = [numbers(2, 3), numbers(4, 3, seed=1), numbers(1, 3, seed=2)]
    frame = pd.DataFrame(
        {
            "a": [1.0, 2.0, 3.0],
            "kind": pd.Categorical(["x", "y", "x"]),
            "who": ["p", "q", "p"],
            "label": [1, 0, 1],
        }
    )
    return {
        "pictures": numbers(3, 3, 4, 4),
        "many channels": numbers(3, 5, 4, 4),
        "series": torch.from_numpy(numbers(3, 2, 3)),
        "rows": (numbers(3, 6), np.array([2, 0, 1])),
        "flat": numbers(2, 784),
        "whole": np.arange(12).reshape(3, 4),
        "not finite": np.array([[1.0, np.nan]]),
        "one axis": numbers(4),
        "words": np.array([["a", "b"]]),
        "batch": Batch(("s/1", "s/2", "t/1"), series, {"depth": torch.arange(3)}, torch.tensor([1, 0, 1])),
        "by name": {"x": numbers(3, 2, 3), "y": [0, 1, 2], "more": numbers(3, 2)},
        "sets": ragged,
        "sets with labels": (ragged, [3, 1, 2]),
        "pairs": [(item, label) for item, label in zip(ragged, (2, 2, 0), strict=True)],
        "equal sets": [numbers(2, 3), numbers(2, 3, seed=1)],
        "texts": ["a good film", "", "bad zebra"],
        "texts with labels": [("a good film", "yes"), ("bad", "no")],
        "objects": [{"text": "a film", "label": 3}, {"text": "good", "label": 1, "kind": 2}],
        "frame": frame,
        "items": Items(),
        "nothing": [],
        "mapping": {"a": 1},
        "number": 3,
    }  # fmt: skip


def opened(source: Any, options: dict[str, Any]) -> Data | None:
    """The data set, or nothing where the options do not fit it."""
    try:
        return open_data(source, **options)
    except UserError:
        return None


def check_what_every_dataset_promises(data: Data) -> None:
    """Each sample is loaded or has a reason why not, whatever the order and the other samples."""
    assert len(set(data.ids)) == len(data.ids) == len(data)
    assert data.groups is None or len(data.groups) == len(data)
    try:
        backwards = data.load(range(len(data) - 1, -1, -1))
    except UserError:  # such as samples of several shapes
        return
    batch = backwards.batch
    assert {*batch.ids, *backwards.errors} == set(data.ids)
    assert set(batch.ids).isdisjoint(backwards.errors)
    assert set(backwards.transient) <= set(backwards.errors)
    assert torch.isfinite(batch.x.double()).all()
    for i, sample in enumerate(data.ids):
        alone = data.load([i])
        assert backwards.errors.get(sample) == alone.errors.get(sample)
        if sample in backwards.errors:
            continue
        place = batch.ids.index(sample)
        assert torch.equal(alone.batch.x[0], batch.x[place])
        if batch.label is not None:
            assert alone.batch.label is not None
            assert alone.batch.label[0] == batch.label[place]
        for name, values in batch.aux.items():
            assert torch.equal(alone.batch.aux[name][0], values[place])
        assert alone.digests[sample] == backwards.digests[sample]


def check_under_every_option(source: Any) -> dict[str, Data]:
    """The data sets by the option with which they opened."""
    found: dict[str, Data] = {}
    for name, options in OPTIONS.items():
        if isinstance(source, Items) and "vocabulary" in options:
            continue
        data = opened(source, options)
        if data is None:
            continue
        check_what_every_dataset_promises(data)
        again = open_data(source, **options)
        assert (again.ids, again.fingerprint) == (data.ids, data.fingerprint)
        found[name] = data
    return found


REFUSED_IN_MEMORY = {
    "many channels",
    "flat",
    "whole",
    "not finite",
    "one axis",
    "words",
    "nothing",
    "mapping",
    "number",
}
MEMORY = in_memory()


@pytest.mark.parametrize("name", MEMORY)
def test_what_is_in_memory_under_every_option(name: str) -> None:
    found = check_under_every_option(MEMORY[name])
    assert ("plain" in found or "text" in found) == (name not in REFUSED_IN_MEMORY)


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return files(tmp_path_factory.mktemp("zoo"))


def test_what_lies_on_a_disk_under_every_option(on_disk: dict[str, Any]) -> None:
    opened_somehow = {name for name, source in on_disk.items() if check_under_every_option(source)}
    assert set(on_disk) - opened_somehow == {"typo", "short-images-idx3-ubyte"}


def test_ids_of_unnamed_samples_have_four_digits_or_more() -> None:
    assert numbered(3) == ("0000", "0001", "0002")
    assert numbered(10_001)[-1] == "10000"


def test_shards_are_grouped_by_their_name_without_its_number() -> None:
    shards = grouped(map(Path, ("b_2.tar", "b_1.tar", "a-0.tar")))
    assert {name: [str(path) for path in paths] for name, paths in shards.items()} == {
        "a": ["a-0.tar"],
        "b": ["b_1.tar", "b_2.tar"],
    }


def test_braces_in_the_name_of_a_file_stand_for_several() -> None:
    assert expanded("a-{9..11}.tar") == ["a-9.tar", "a-10.tar", "a-11.tar"]
    assert expanded("{a,b}-{1..2}") == ["a-1", "a-2", "b-1", "b-2"]
    assert expanded("plain") == ["plain"]


@pytest.mark.parametrize("text", ["{1..}", "{3..1}", "{0..200000}", "{abc}", "{0..999}{0..999}"])
def test_braces_that_stand_for_no_files_or_for_too_many_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=re.escape(text)):
        expanded(text)


@pytest.mark.parametrize(
    ("value", "label"),
    [
        (None, -1),
        (True, 1),
        (3.0, 3),
        (np.int64(4), 4),
        (torch.tensor([5]), 5),
        (np.array([[6]]), 6),
    ],
)
def test_a_label_is_a_whole_number_in_whatever_it_is_wrapped(value: Any, label: int) -> None:
    assert whole_label(value, "it") == label


@pytest.mark.parametrize(
    ("value", "fact"),
    [(1.5, r"1\.5"), ("x", "x"), ([1, 2], "1, 2"), (np.array([1, 2]), "1 2"), (np.inf, "inf")],
)
def test_what_is_no_label_is_refused(value: Any, fact: str) -> None:
    with pytest.raises(UserError, match=f"it .*{fact}"):
        whole_label(value, "it")


def test_a_length_is_that_of_the_longest_unless_it_is_given() -> None:
    assert checked_length(None, 4) == 4
    assert checked_length(None, 0) == 1
    assert checked_length(2, 9) == 2
    for wrong in (0, True, 2.0):
        with pytest.raises(UserError, match=f"length.*{wrong}"):
            checked_length(wrong, 3)  # type: ignore[arg-type]


def test_prompts_mark_their_passages_and_answers() -> None:
    texts = [["a film", "bad", "good"], ["a", "bad bad"]]
    batch = prompts(WORDS, texts, ["bad film", "a"], length=6)
    a, film, good, bad = (WORDS.encode(word)[0] for word in ("a", "film", "good", "bad"))
    assert batch.x.tolist() == [[a, film, bad, good, 0, 0], [a, bad, bad, 0, 0, 0]]
    assert batch.aux["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1, 1, 1, 0, 0, 0]]
    # The last text is the question; the passages before it are numbered from 1.
    assert batch.aux["_passages"].tolist() == [[1, 1, 2, 0, 0, 0], [1, 0, 0, 0, 0, 0]]
    # Each answer stands behind its prompt; -100 is what losses ignore.
    none = -100
    assert batch.aux["answer"].tolist() == [
        [none, none, none, none, bad, film, none, none],
        [none, none, none, a, none, none, none, none],
    ]

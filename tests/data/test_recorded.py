"""Every form of data under every option: what each gives, or how it is refused, as it was when looked at."""

from __future__ import annotations

import gzip
import io
import json
import pickle
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
from heatproof.data.choices import expanded, grouped, one_split, whole_label
from heatproof.data.dataset import Data, checked_length, numbered
from heatproof.data.sequences import prompts, spelled
from heatproof.errors import UserError
from heatproof.types import Batch
from support.recorded import recorded

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
    put(root / "graphs.txt", "2\n2 5\n0 1 1 0.5 0.25\n1 1 0 1.5 0.75\n1 7\n1 0 2.5 3.5\n")
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
    cifar(root / "cifar-100-python")
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
        labels = {b"fine_labels": list(range(n)), b"coarse_labels": [1] * n}
        put(root / part, pickle.dumps({b"data": pixels, **labels}, 2))
    names = {
        b"fine_label_names": [f"f{i}".encode() for i in range(100)],
        b"coarse_label_names": [b"c"] * 20,
    }
    put(root / "meta", pickle.dumps(names, 2))


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


def described(data: Data, pictures: bool) -> str:
    """A data set in one line: facts, and sums that notice a moved number."""
    told: list[Any] = [
        data.name,
        data.kind,
        data.shape,
        "".join(f"{i}," for i in data.ids),
        data.labels,
        data.class_names,
    ]
    told += [
        data.groups,
        data.columns,
        {key: v for key, v in data.prepared.items() if key != "source"},
    ]
    loaded = data.load(range(len(data) - 1, -1, -1))
    weights = torch.arange(1, loaded.batch.x.numel() + 1, dtype=torch.float64)
    total = float((loaded.batch.x.reshape(-1).double() * weights).sum() / weights.sum())
    told += [
        tuple(loaded.batch.x.shape),
        f"{total:.5f}",
        None if loaded.batch.label is None else loaded.batch.label.tolist(),
    ]
    told += [
        {
            key: [*value.shape, f"{value.double().sum():.4f}"]
            for key, value in loaded.batch.aux.items()
        }
    ]
    told += [loaded.errors, sorted(loaded.transient), [*loaded.digests]]
    if not pictures:
        told += [data.fingerprint[:8], [digest[:4] for digest in loaded.digests.values()]]
    return " | ".join(map(str, told))


def outcome(source: Any, root: Path | None = None, **options: Any) -> str:
    try:
        data = open_data(source, **options)
        told = described(data, data.kind == "image")
    except UserError as error:
        told = f"refused: {error}"
    told = (
        told
        if root is None
        else told.replace(str(root.resolve()), "ROOT").replace(str(root), "ROOT")
    )
    return re.sub(r"(not text in UTF-8).*", r"\1", told)[:400]


def matrix(sources: dict[str, Any], root: Path | None) -> dict[str, dict[str, str]]:
    """Every source under every option; what is as without an option is said once."""
    found = {}
    for name, source in sources.items():
        asked = {
            key: own
            for key, own in OPTIONS.items()
            if not (isinstance(source, Items) and "vocabulary" in own)
        }
        own = {key: outcome(source, root, **options) for key, options in asked.items()}
        found[name] = {
            key: text for key, text in own.items() if key == "plain" or text != own["plain"]
        }
    return found


def test_what_is_in_memory_under_every_option() -> None:
    recorded("data/memory", matrix(in_memory(), None))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("zoo")


def test_what_lies_on_a_disk_under_every_option(root: Path) -> None:
    for i, (name, own) in enumerate(matrix(files(root), root).items()):
        assert i < 60
        recorded(f"data/files/{name.strip('.').replace('.', '-')}", own)


def test_small_rules_of_names_labels_and_lengths() -> None:
    found: dict[str, Any] = {
        "ids": [numbered(1), numbered(3), [numbered(n)[-1] for n in (10_000, 10_001)]]
    }
    found["lengths"] = [checked_length(None, 0), checked_length(None, 4), checked_length(2, 9)]
    found["files"] = {
        key: [str(p) for p in own]
        for key, own in grouped(map(Path, ("b_2.tar", "b_1.tar", "7.tar", "a-0.tar"))).items()
    }
    found["names"] = [expanded(text) for text in ("a-{9..11}.tar", "{a,b}-{1..2}", "plain")]
    found["labels"] = [
        whole_label(v, "it")
        for v in (None, True, 3.0, np.int64(4), torch.tensor([5]), np.array([[6]]))
    ]
    found["splits"] = [
        one_split("it", split, {"x-train": 1, "imagenet-val": 2, "t10k": 3})
        for split in ("train", "dev", "test")
    ]
    found["spelled"] = [spelled(WORDS, [2, 0, 1, 5]), spelled(None, [7, 8])]
    found["fitted"] = [
        Vocabulary.fit(["b b a c", "a b"], size, least).words
        for size, least in ((None, 1), (4, 1), (None, 2), (3, 3))
    ]
    batch = prompts(
        WORDS, [["a film", "bad", "good"], ["a", "bad bad"]], ["bad film", "a"], length=6
    )
    found["prompts"] = [batch.ids, batch.x, batch.aux]
    for text in ("{1..", "{3..1}", "{0..200000}", "{abc}", "{0..999}{0..999}"):
        with pytest.raises(UserError) as told:
            expanded(text + "}" * (text.count("{") - text.count("}")))
        found[text] = str(told.value)
    wrong: list[Any] = [1.5, "x", [1, 2], np.array([1, 2]), float("inf")]
    for value in wrong:
        with pytest.raises(UserError) as told:
            whole_label(value, "it")
        found[str(value)] = str(told.value)
    for length in (0, True, 2.0):
        with pytest.raises(UserError) as told:
            checked_length(length, 3)  # type: ignore[arg-type]
        found[f"length {length}"] = str(told.value)
    recorded("data/rules", found)

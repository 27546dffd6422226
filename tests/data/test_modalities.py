"""Sets, graphs, series, text and idx pictures: every format in, padding that no neighbour changes, recorded errors."""

from __future__ import annotations

import gzip
import json
import pickle
import re
import shutil
import struct
import zipfile
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import Tensor

from heatproof.data import Data, Vocabulary, open_data
from heatproof.data.graphs import Graph, open_graphs
from heatproof.errors import UserError
from heatproof.types import Batch
from support.paths import SHARED_DATA

real = pytest.mark.skipif(not SHARED_DATA.is_dir(), reason=f"no real data in {SHARED_DATA}")


def numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def everything(data: Data) -> Batch:
    loaded = data.load(range(len(data)))
    assert not loaded.errors
    return loaded.batch


def labels_of(batch: Batch) -> list[int]:
    assert batch.label is not None
    return batch.label.tolist()


def alone_and_together_agree(data: Data) -> None:
    together = everything(data)
    for i in range(len(data)):
        alone = data.load([i]).batch
        assert torch.equal(alone.x[0], together.x[i])
        assert all(torch.equal(alone.aux[key][0], value[i]) for key, value in together.aux.items())
    back = pickle.loads(pickle.dumps(data))
    assert torch.equal(everything(back).x, together.x) and back.fingerprint == data.fingerprint


# Sets


def test_sets_are_padded_to_the_largest() -> None:
    sets = [numbers(n, 3, seed=n) for n in (4, 2, 7)]
    data = open_data(sets, limit=2)
    assert data.shape == (7, 3) and data.ids == ("0000", "0001")
    batch = everything(data)
    assert batch.aux["mask"].dtype == torch.bool and batch.aux["mask"].sum(1).tolist() == [4, 2]
    assert torch.equal(batch.x[0, :4], sets[0]) and not batch.x[0, 4:].any()
    alone_and_together_agree(data)


def test_sets_with_labels_in_both_ways() -> None:
    sets = [numbers(n, 2).numpy() for n in (1, 3)]
    pairs = open_data([(sets[0], 1), (sets[1], 0)], length=5)
    apart = open_data((sets, torch.tensor([1, 0])), length=5)
    assert pairs.shape == (5, 2) and labels_of(everything(pairs)) == labels_of(
        everything(apart)
    ) == [1, 0]
    assert pairs.fingerprint == apart.fingerprint != open_data((sets, [1, 1]), length=5).fingerprint
    assert open_data((sets, [1, 0])).fingerprint != pairs.fingerprint


def test_equal_lengths_stay_an_array_unless_a_length_is_given() -> None:
    series = [numbers(2, 9, seed=i) for i in range(3)]
    assert open_data(series).load([0]).batch.aux == {}
    assert open_data(series, length=2).load([0]).batch.aux["mask"].tolist() == [[True, True]]
    pair = open_data((numbers(6, 2), torch.arange(6)))
    assert len(pair) == 6 and pair.shape == (2,)


def test_sets_that_cannot_be_used_are_recorded() -> None:
    broken = numbers(2, 3)
    broken[1, 2] = float("nan")
    loaded = open_data([numbers(2, 3), numbers(5, 3), torch.empty(0, 3), broken], length=4).load(
        range(4)
    )
    assert loaded.batch.ids == ("0000",)
    assert re.search("5 elements.* 4", loaded.errors["0001"])
    assert "no elements" in loaded.errors["0002"] and "not finite" in loaded.errors["0003"]
    with pytest.raises(UserError, match=r"length.* 0"):
        open_data([numbers(2, 3), numbers(5, 3)], length=0)
    with pytest.raises(UserError, match="size"):
        open_data([numbers(2, 3), numbers(5, 3)], size=8)
    with pytest.raises(UserError, match=r"length.*Tensor"):
        open_data(numbers(4, 3), length=8)


# Graphs in memory; torch_geometric is not installed with the tests, so a stand-in has the attributes of its Data


class StandIn(SimpleNamespace):
    """What heatproof uses of torch_geometric.data.Data: x, edge_index, and perhaps edge_weight and y.

    Like the real one it has a length and is indexed by name.
    """

    def __len__(self) -> int:
        return len(vars(self))

    def __getitem__(self, key: str) -> object:
        return vars(self)[key]


def triangle_and_path() -> list[StandIn]:
    triangle = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])
    path = torch.tensor([[0, 1, 2], [1, 2, 3]])
    return [
        StandIn(x=numbers(3, 2), edge_index=triangle, y=torch.tensor([1])),
        StandIn(
            x=numbers(4, 2),
            edge_index=path,
            edge_weight=torch.tensor([1.0, 2.0, 0.5]),
            y=torch.tensor([0]),
        ),
    ]


def test_pyg_objects_become_nodes_adjacency_and_mask() -> None:
    graphs = triangle_and_path()
    data = open_data(graphs)
    batch = everything(data)
    assert batch.x.shape == (2, 4, 2) and labels_of(batch) == [1, 0]
    assert batch.aux["mask"].tolist() == [[True, True, True, False], [True] * 4]
    adjacency = batch.aux["adjacency"]
    assert (
        torch.equal(adjacency[0, :3, :3], torch.ones(3, 3) - torch.eye(3))
        and not adjacency[0, 3].any()
    )
    assert (
        adjacency[1, 1, 2] == 2 and adjacency[1, 2, 1] == 0
    )  # from the first row of edge_index to the second
    alone_and_together_agree(data)
    assert len(open_data(graphs[0])) == 1 and open_data(graphs[0], length=9).shape == (9, 2)


def test_pyg_datasets_and_batches() -> None:
    class Molecules:
        def __len__(self) -> int:
            return 2

        def __getitem__(self, i: int) -> StandIn:
            return triangle_and_path()[i]

    joined = StandIn(x=numbers(7, 2), edge_index=torch.zeros(2, 0), to_data_list=triangle_and_path)
    expected = everything(open_data(triangle_and_path()))
    assert open_data(Molecules()).name == "Molecules"
    for source in (Molecules(), joined):
        assert torch.equal(everything(open_data(source)).x, expected.x)


def test_graphs_that_cannot_be_used() -> None:
    good, wrong = triangle_and_path()
    wrong.edge_index = torch.tensor([[0], [4]])
    narrow = StandIn(x=numbers(3, 1), edge_index=good.edge_index, y=None)
    loaded = open_data([good, wrong, narrow, good]).load(range(4))
    assert loaded.batch.ids == ("0000", "0003")
    assert "4 nodes" in loaded.errors["0001"]
    assert "(elements, 2)" in loaded.errors["0002"]
    for graph, message in (
        (
            Graph(numbers(3, 2), torch.zeros(3, 2).long()),
            r"\(3, 2\).*\(2, edges\)",
        ),
        (
            Graph(numbers(3, 2), torch.zeros(2, 2).long(), torch.ones(3)),
            r"2 edges.*\(3,\)",
        ),
        (
            Graph(numbers(3, 2), torch.zeros(2, 1).long(), torch.tensor([torch.nan])),
            "1 edge.*finite",
        ),
    ):
        assert re.search(message, open_graphs("g", [graph]).load([0]).errors["0000"])
    with pytest.raises(UserError, match="'g'"):
        open_graphs("g", [Graph(numbers(3))])
    with pytest.raises(UserError, match=r"\bx\b"):
        open_data([StandIn(x=None, edge_index=good.edge_index)])


# Graphs in files


def tu_files() -> dict[str, str]:
    return {
        "T_A.txt": "1, 2\n2, 1\n3, 4\n4, 3\n4, 5\n5, 4\n",
        "T_graph_indicator.txt": "1\n1\n2\n2\n2\n",
        "T_graph_labels.txt": "1\n-1\n",
        "T_node_labels.txt": "0\n2\n2\n2\n7\n",
        "README.txt": "not part of it",
    }


def test_tu_folder_and_zip(tmp_path: Path) -> None:
    folder = tmp_path / "T"
    folder.mkdir()
    with zipfile.ZipFile(tmp_path / "T.zip", "w") as archive:
        for name, text in tu_files().items():
            (folder / name).write_text(text)
            archive.writestr(f"T/{name}", text)
    data, packed = open_data(folder), open_data(tmp_path / "T.zip")
    assert data.name == packed.name == "T" and data.fingerprint == packed.fingerprint
    batch = everything(data)
    assert labels_of(batch) == [1, 0] and data.class_names == ("-1", "1")
    assert batch.x[0].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0]]
    assert batch.x[1].tolist() == [[0, 1, 0], [0, 1, 0], [0, 0, 1]]
    assert batch.aux["adjacency"][0].nonzero().tolist() == [[0, 1], [1, 0]]
    assert batch.aux["adjacency"][1].nonzero().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]
    (folder / "T_A.txt").write_text("\n")
    assert int(everything(open_data(folder)).aux["adjacency"].sum()) == 0, (
        "graphs may have no edges"
    )
    (folder / "T_node_attributes.txt").write_text("0.5, 1\n" * 5)
    assert open_data(folder).shape == (3, 5)
    (folder / "T_node_attributes.txt").unlink()
    (folder / "T_node_labels.txt").unlink()
    assert open_data(folder).load([0]).batch.x.tolist() == [[[1], [1], [0]]]


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("T_A.txt", "1, 9\n", "9 of 5"),
        ("T_A.txt", "1, 3\n", "different graphs"),
        ("T_A.txt", "1, two\n", r"T_A\.txt|\bA\b"),
        ("T_A.txt", "1, 2, 3\n", r"\bA\b.* 3"),
        ("T_graph_labels.txt", "1\n", "1 graph label"),
        ("T_node_labels.txt", "1\n2\n", "5 nodes.*2 lines"),
    ],
)
def test_broken_tu_files_are_explained(tmp_path: Path, file: str, text: str, message: str) -> None:
    for name, content in {**tu_files(), file: text}.items():
        (tmp_path / name).write_text(content)
    with pytest.raises(UserError, match=message):
        open_data(tmp_path)


def test_zip_without_graphs(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x.csv", "1")
    (tmp_path / "b.zip").write_text("no")
    for name, message in (("a.zip", "a.zip.*TU"), ("b.zip", "b.zip")):
        with pytest.raises(UserError, match=message):
            open_data(tmp_path / name)


def test_text_without_a_vocabulary_is_explained(tmp_path: Path) -> None:
    (tmp_path / "b.txt").write_text("a sentence\n")
    with pytest.raises(UserError, match=r"b.txt.*vocabulary"):
        open_data(tmp_path / "b.txt")


# Series


def test_series_with_their_label_first(tmp_path: Path) -> None:
    (tmp_path / "S_TRAIN.tsv").write_text("1\t0.5\t1\t2\n-1\t1\t2\t3\n4\t0\t0\t1e-3\n")
    with gzip.open(tmp_path / "S_TEST.tsv.gz", "wt") as file:
        file.write("4\t0.5\t1\t2\n")
    data = open_data(tmp_path / "S_TRAIN.tsv")
    batch = everything(data)
    assert (
        data.shape == (1, 3)
        and data.class_names == ("-1", "1", "4")
        and labels_of(batch) == [1, 0, 2]
    )
    torch.testing.assert_close(batch.x[2], torch.tensor([[0, 0, 1e-3]]))
    assert labels_of(everything(open_data(tmp_path / "S_TEST.tsv.gz"))) == [
        2
    ]  # the classes of both files
    (tmp_path / "S_TRAIN.tsv").unlink()
    assert labels_of(everything(open_data(tmp_path / "S_TEST.tsv.gz"))) == [0]


def test_series_with_gaps_are_recorded(tmp_path: Path) -> None:
    (tmp_path / "S.tsv").write_text("1\t1\t2\n1\tNaN\t2\n2\t1\n1\tx\t2\n2\t3\t4\n")
    loaded = open_data(tmp_path / "S.tsv").load(range(5))
    assert loaded.batch.ids == ("0000", "0004") and labels_of(loaded.batch) == [0, 1]
    for key, message in (
        ("0001", "not finite"),
        ("0002", "1 steps"),
        ("0003", "not a row of numbers"),
    ):
        assert message in loaded.errors[key]
    (tmp_path / "U.tsv").write_text("NaN\t1\t2\nNaN\t3\t4\n")
    assert open_data(tmp_path / "U.tsv").labels is None, "nobody knows the classes"
    (tmp_path / "T.tsv").write_text("good film\t1\n")
    with pytest.raises(UserError, match="vocabulary"):
        open_data(tmp_path / "T.tsv")


# Text


def test_vocabulary_is_ordered_limited_and_saved(tmp_path: Path) -> None:
    texts = ["The cat sat.", "the dog sat, the END"]
    full = Vocabulary.fit(texts)
    assert full.words[:2] == ("the", "sat") and len(full) == len(full.words) + 2
    assert (
        Vocabulary.fit(texts, least=2).words == ("the", "sat")
        and len(Vocabulary.fit(texts, size=4)) == 4
    )
    full.save(tmp_path / "v.json")
    assert Vocabulary.load(tmp_path / "v.json") == full
    ids = full.encode("the bird sat")
    assert ids == [2, 1, 3] and full.decode([*ids, 0]) == ["the", "…", "sat"]
    (tmp_path / "w.json").write_text("[1]")
    with pytest.raises(UserError, match=r"w\.json"):
        Vocabulary.load(tmp_path / "w.json")
    (tmp_path / "w.json").write_text('{"words": [1]}')
    with pytest.raises(UserError, match=r'w\.json.*"words"'):
        Vocabulary.load(tmp_path / "w.json")
    with pytest.raises(UserError, match="3"):
        Vocabulary.fit(texts, size=2)


def test_texts_become_padded_ids(tmp_path: Path) -> None:
    vocabulary = Vocabulary(("good", "bad", "film"))
    data = open_data(
        (["good film", "film", "  ", "bad bad good film"], [1, 1, 0, 0]), vocabulary=vocabulary
    )
    loaded = data.load(range(4))
    assert (
        data.shape == (4,)
        and loaded.batch.x.dtype == torch.int64
        and "no tokens" in loaded.errors["0002"]
    )
    assert loaded.batch.x.tolist() == [[2, 4, 0, 0], [4, 0, 0, 0], [3, 3, 2, 4]]
    assert torch.equal(loaded.batch.aux["attention_mask"], (loaded.batch.x > 0).long())
    assert labels_of(loaded.batch) == [1, 1, 0]
    cut = open_data(["bad bad good film"], vocabulary=vocabulary, length=2).load([0]).batch
    assert cut.x.tolist() == [[3, 3]]
    vocabulary.save(tmp_path / "v.json")
    for tokeniser in (str(tmp_path / "v.json"), vocabulary.encode):
        assert open_data(["good film"], vocabulary=tokeniser).load([0]).batch.x.tolist() == [[2, 4]]
    alone_and_together_agree(open_data(["good", "bad film"], vocabulary=vocabulary))
    with pytest.raises(UserError, match="vocabulary"):
        open_data(["good film"])
    with pytest.raises(UserError, match=r"vocabulary.*Tensor"):
        open_data(numbers(3, 4), vocabulary=vocabulary)


@pytest.mark.parametrize(
    ("name", "text", "labels"),
    [
        ("a.jsonl", '{"text": "good film", "label": 1}\n{"text": "bad", "label": 0}\n', [1, 0]),
        (
            "a.jsonl",
            '{"sentence": "good film", "label": "pos"}\n{"sentence": "bad", "label": "neg"}\n',
            [1, 0],
        ),
        ("a.tsv", "sentence\tlabel\ngood film\t1\nbad\t0\n", [1, 0]),
        ("a.tsv", "1\tgood film\n0\tbad\n", [1, 0]),
        ("a.tsv", "good film\t1\nbad\t0\n", [1, 0]),
        ("a.train", "1 good film\n0 bad\n", [1, 0]),
        ("a.txt", "good film\nbad\n", None),
        ("a.csv", "good film\nbad\n", None),
        ("a.train", "good film\nbad\n", None),
    ],
)
def test_files_of_texts(tmp_path: Path, name: str, text: str, labels: list[int] | None) -> None:
    vocabulary = Vocabulary(("good", "bad", "film"))
    (tmp_path / name).write_text(text)
    with gzip.open(tmp_path / f"{name}.gz", "wt") as file:
        file.write(text)
    for path in (tmp_path / name, tmp_path / f"{name}.gz"):
        batch = everything(open_data(path, vocabulary=vocabulary))
        assert batch.x.tolist() == [[2, 4], [3, 0]]
        assert (None if batch.label is None else batch.label.tolist()) == labels


def test_ids_and_mistakes_of_text_files(tmp_path: Path) -> None:
    vocabulary = Vocabulary(("good",))
    (tmp_path / "a.jsonl").write_text(
        "".join(json.dumps({"id": key, "text": "good"}) + "\n" for key in "pq")
    )
    assert open_data(tmp_path / "a.jsonl", vocabulary=vocabulary).ids == ("p", "q")
    with pytest.raises(UserError, match="vocabulary"):
        open_data(tmp_path / "a.jsonl")
    for name, text, message in (
        ("b.jsonl", '{"words": 1}\n', "text or sentence"),
        ("b.jsonl", "{\n", "JSON"),
        ("b.jsonl", '{"text": "a"}\n{"text": 3}\n', "entry 2"),
        ("b.tsv", "a\tb\tc\n", "header"),
        (
            "b.csv",
            f'text,label\n"{"a" * 200_000}",1\n',
            "b.csv",
        ),
        ("b.tsv", "text\tlabel\nonly one\n", "line 2.*1 column"),
        ("b.txt", "", "empty"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(UserError, match=message):
            open_data(tmp_path / name, vocabulary=vocabulary)
    with pytest.raises(UserError, match="folder"):
        open_data(tmp_path, vocabulary=vocabulary)


def test_a_dataset_of_texts_with_an_entry_that_cannot_be_read_says_which() -> None:
    class Broken(list[dict[str, str]]):
        def __getitem__(self, index: int) -> dict[str, str]:  # type: ignore[override]
            if index == 2:
                raise OSError("the disk is gone")
            return super().__getitem__(index)

    texts = Broken([{"text": "good"}] * 4)
    with pytest.raises(UserError, match=r"'Broken'.*entry 3.*the disk is gone"):
        open_data(texts, vocabulary=Vocabulary(("good",)))
    assert len(open_data(Broken([{"text": "good"}] * 2), vocabulary=Vocabulary(("good",)))) == 2


# Pictures as idx, and .npz with further arrays


def idx(values: np.ndarray) -> bytes:
    return (
        bytes((0, 0, 8, values.ndim))
        + struct.pack(f">{values.ndim}I", *values.shape)
        + values.tobytes()
    )


def test_idx_pictures_with_labels_beside_them(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 5, 4), dtype=np.uint8)
    (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(pixels)))
    (tmp_path / "t10k-labels-idx1-ubyte").write_bytes(idx(np.array([7, 0, 9], np.uint8)))
    data = open_data(tmp_path)
    assert (data.kind, data.shape) == ("image", (1, 5, 4))
    batch = everything(data)
    np.testing.assert_allclose(batch.x[:, 0].numpy(), pixels / 255, rtol=1e-6)
    assert labels_of(batch) == [7, 0, 9]
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(pixels)[:-1])
    shutil.copy(tmp_path / "t10k-images-idx3-ubyte.gz", tmp_path / "t10k-images.idx3-ubyte.gz")
    with pytest.raises(
        UserError,
        match=r"t10k-images-idx3-ubyte\.gz, t10k-images\.idx3-ubyte\.gz",
    ):
        open_data(tmp_path)
    (tmp_path / "t10k-images.idx3-ubyte.gz").unlink()
    with pytest.raises(UserError, match="t10k, train"):
        open_data(tmp_path)
    with pytest.raises(UserError, match="59"):
        open_data(tmp_path / "train-images-idx3-ubyte")
    (tmp_path / "train-images-idx3-ubyte").write_bytes(b"what")
    with pytest.raises(UserError, match="idx3-ubyte"):
        open_data(tmp_path / "train-images-idx3-ubyte")


def test_npz_with_masks_and_adjacency(tmp_path: Path) -> None:
    graphs = everything(open_data(triangle_and_path()))
    arrays = {
        "x": graphs.x,
        "label": graphs.label,
        **graphs.aux,
        "aux_charge": torch.tensor([1.0, -1.0]),
    }
    np.savez(
        tmp_path / "g.npz",
        **{key: value.numpy() for key, value in arrays.items() if value is not None},
    )
    back = everything(open_data(tmp_path / "g.npz"))
    assert set(back.aux) == {"mask", "adjacency", "charge"} and back.aux["mask"].dtype == torch.bool
    assert torch.equal(back.x, graphs.x) and torch.equal(
        back.aux["adjacency"], graphs.aux["adjacency"]
    )
    for dtype in (np.int64, np.uint8, np.int32):
        np.savez(
            tmp_path / "t.npz",
            x=np.array([[3, 0], [1, 2]], dtype),
            attention_mask=np.array([[1, 0], [1, 1]]),
        )
        tokens = everything(open_data(tmp_path / "t.npz"))
        assert tokens.x.dtype == torch.int64 and tokens.x.tolist() == [[3, 0], [1, 2]]
        assert tokens.aux["attention_mask"].dtype == torch.int64
    again = open_data(tokens)
    assert (
        torch.equal(everything(again).x, tokens.x)
        and again.fingerprint == open_data(tmp_path / "t.npz").fingerprint
    )


def test_npz_with_arrays_that_do_not_fit(tmp_path: Path) -> None:
    x = numbers(2, 4, 3).numpy()
    for wrong, message in (
        ({"mask": np.ones((2, 3))}, r"mask.*\(2, 3\).*\(2, 4\)"),
        ({"adjacency": np.ones((2, 4, 3))}, r"\(2, 4, 3\).*\(2, 4, 4\)"),
        ({"aux_depth": np.ones(3)}, "2 samples.*3.*depth"),
    ):
        np.savez(tmp_path / "w.npz", x=x, **wrong)
        with pytest.raises(UserError, match=message):
            open_data(tmp_path / "w.npz")
    np.savez(tmp_path / "p.npz", x=np.zeros((2, 3, 8, 8), np.float32), mask=np.ones((2, 8, 8)))
    assert (
        everything(open_data(tmp_path / "p.npz")).aux == {}
    )  # a mask of pictures is none of elements
    np.savez(tmp_path / "n.npz", x=np.array([[-1, 2]]), attention_mask=np.array([[1, 1]]))
    with pytest.raises(UserError, match="token ids"):
        open_data(tmp_path / "n.npz")


# Real files


@real
def test_real_graphs() -> None:
    folder = SHARED_DATA / "graphs"
    large = open_data(folder / "Mutagenicity.zip", limit=40)
    assert large.shape == (417, 14)
    batch = everything(large)
    assert torch.equal(batch.aux["adjacency"], batch.aux["adjacency"].mT)
    assert batch.aux["adjacency"].sum((1, 2))[0] == 32 and batch.aux["mask"][0].sum() == 16


@real
def test_real_series_text_and_pictures() -> None:
    beats = open_data(SHARED_DATA / "ecg" / "ECG5000_TRAIN.tsv.gz")
    assert (
        len(beats) == 500
        and beats.shape == (1, 140)
        and beats.class_names == ("1", "2", "3", "4", "5")
    )
    clothes = open_data(SHARED_DATA / "fashion_mnist", limit=100)
    assert clothes.shape == (1, 28, 28) and labels_of(everything(clothes))[:3] == [9, 2, 1]
    sentences = open_data(
        SHARED_DATA / "text" / "stsa.binary.test", vocabulary=Vocabulary(("good",))
    )
    assert len(sentences) == 1821 and set(labels_of(everything(sentences))) == {0, 1}


def test_real_graphs_of_torch_geometric_are_padded_and_keep_their_edges() -> None:
    pyg = pytest.importorskip("torch_geometric.data", reason="torch_geometric is not installed")
    edges = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    first = pyg.Data(x=torch.rand(3, 4), edge_index=edges, y=torch.tensor([1]))
    second = pyg.Data(x=torch.rand(2, 4), edge_index=torch.tensor([[0], [1]]), y=torch.tensor([0]))
    for source in ([first, second], pyg.Batch.from_data_list([first, second])):
        batch = open_data(source).load([0, 1]).batch
        assert (
            batch.x.shape == (2, 3, 4)
            and batch.label is not None
            and batch.label.tolist() == [1, 0]
        )
        assert torch.equal(batch.x[0], first.x) and torch.equal(batch.x[1, :2], second.x)
        assert batch.aux["mask"].tolist() == [[True] * 3, [True, True, False]]
        assert batch.aux["adjacency"][0].nonzero().tolist() == [[0, 1], [1, 0], [1, 2], [2, 1]]

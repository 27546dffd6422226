"""The proof sheet of every kind of data: what is kept, and that page and paper draw it."""

from __future__ import annotations

import io
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.sparse.csgraph import shortest_path
from torch import Tensor, nn

from heatproof import Stability, Symmetry, evaluate
from heatproof.data import Vocabulary, open_data
from heatproof.evaluation import CLEAN, GalleryImage, GalleryItem
from heatproof.models import Model
from heatproof.report.canvas import Box, Dot, Words
from heatproof.report.map_drawings import ground, over
from heatproof.runs.gallery import gallery_rows, read_gallery
from heatproof.runs.graph_layout import node_layout
from heatproof.runs.run import Run
from heatproof.types import Batch
from support.modalities import Gnn, graphs, seeded, sets
from support.pages import Page

SENTENCES = [
    "a warm and witty film",
    "dull , long and empty",
    "it tries hard and fails",
    "one of the best",
]


class Bag(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor, attention_mask: Tensor) -> Tensor:
        return self.head((torch.tanh(self.embedding(x)) * attention_mask[..., None]).sum(1))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def rows(shape: tuple[int, ...], out: Path, names: list[str] | None = None) -> Run:
    data = torch.rand(5, *shape, generator=generator())
    network = seeded(lambda: nn.Sequential(nn.Flatten(), nn.Linear(int(np.prod(shape)), 3)))
    source = pd.DataFrame(data.numpy(), columns=names) if names else data
    return evaluate(network, source, ["input_x_gradient"], Stability(k=2), out)


def text(out: Path) -> Run:
    vocabulary = Vocabulary.fit(SENTENCES)
    model = Model(seeded(lambda: Bag(len(vocabulary))), embedding="embedding", name="bag")
    data = open_data(SENTENCES, vocabulary=vocabulary, name="films")
    return evaluate(
        model, data, ["input_x_gradient", "random"], Symmetry(group="permutation", elements=4), out
    )


def graph(out: Path) -> Run:
    model = Model(seeded(Gnn), name="net")
    axis = Symmetry(group="node_permutation", elements=4)
    return evaluate(model, open_data(graphs(), name="graphs"), ["input_x_gradient"], axis, out)


def drawn_on(run: Run) -> tuple[list[dict[str, object]], dict[str, str]]:
    """The samples of the page's sheet and its pictures; the same sheet is drawn for paper."""
    page = Page(run.report().read_text())
    (samples,) = page.payload["sheets"].values()
    with Image.open(io.BytesIO(run.proof_sheet().encoded("png", "Proof sheet", 5))) as picture:
        assert np.asarray(picture.convert("L")).std() > 5
    return samples, page.payload["pictures"]


@pytest.mark.parametrize("shape", [(2, 40), (6,), (30,)])
def test_series_and_rows_keep_their_numbers_and_names(
    shape: tuple[int, ...], tmp_path: Path
) -> None:
    names = [f"column {chr(65 + i)}" for i in range(shape[0])] if len(shape) == 1 else None
    run = rows(shape, tmp_path / "run", names)
    shown = [s for s in read_gallery(run.path) if s.map is not None]
    assert {s.image.shape for s in shown} == {(shape[0] if len(shape) > 1 else 1, shape[-1])}
    assert {(s.kind, s.words) for s in shown} == {
        ("table", tuple(names)) if names else ("series", ())
    }
    clean = next(s for s in shown if s.condition == "clean")
    network = seeded(lambda: nn.Linear(int(np.prod(shape)), 3))
    weights = network.weight.detach()[
        int(run.samples().set_index("sample").loc[clean.sample, "predicted"])
    ]
    truth = (torch.as_tensor(clean.image.copy()) * weights.reshape(clean.image.shape)).sum(0)
    np.testing.assert_allclose(clean.map, truth / truth.abs().max(), atol=0.01)
    samples, pictures = drawn_on(run)
    first = unquote(pictures[samples[0]["inputs"][0][0]])  # type: ignore[index]
    assert len(samples) == 5 and first.startswith("data:image/svg+xml")
    assert all(name in first for name in names or ()) == (
        (len(shape) == 1 and shape[0] <= 24) or names is None
    )


def test_words_stand_in_their_order_and_badges_are_the_scores_of_the_table(tmp_path: Path) -> None:
    run = text(tmp_path / "run")
    shown = read_gallery(run.path)
    clean = {
        s.sample: s for s in shown if s.condition == "clean" and s.explainer == "input_x_gradient"
    }
    assert [" ".join(clean[f"{i:04d}"].words) for i in range(4)] == SENTENCES
    moved = next(s for s in shown if s.condition != "clean" and s.sample == "0000")
    assert (
        sorted(moved.words) == sorted(SENTENCES[0].split()) and moved.words != clean["0000"].words
    )
    by_word = dict(zip(clean["0000"].words, clean["0000"].map, strict=True))
    np.testing.assert_allclose(
        [by_word[word] for word in moved.words], moved.map, atol=0.01
    )  # a bag moves along
    samples, pictures = drawn_on(run)
    first = next(s for s in samples if s["id"] == "0000")
    assert ">witty<" in unquote(pictures[first["inputs"][0][0]])  # type: ignore[index]
    drawn, score, _, under = first["cells"][0][1]  # type: ignore[index]
    assert score == "1.00" and pictures[drawn].count("<rect") >= 2
    places = [unquote(pictures[under]).index(f">{word}<") for word in moved.words]
    assert places == sorted(places)


def test_a_moved_graph_is_drawn_where_its_nodes_were(tmp_path: Path) -> None:
    run = graph(tmp_path / "run")
    batch = graphs()
    shown = [s for s in read_gallery(run.path) if s.sample == "a"]
    before, after = (
        next(s for s in shown if (s.condition == "clean") == which) for which in (True, False)
    )
    assert before.kind == "graph" and before.image.shape == (6, 8)
    np.testing.assert_allclose(before.image[:, 2:], batch.aux["adjacency"][0])
    order = [int(np.abs(before.image[:, :2] - spot).sum(1).argmin()) for spot in after.image[:, :2]]
    assert sorted(order) == list(range(6)) != order, (
        "every node has the place of another one, for it was moved"
    )
    np.testing.assert_allclose(after.image[:, 2:], before.image[:, 2:][order][:, order])
    assert before.map is not None and after.map is not None
    np.testing.assert_allclose(after.map, before.map[order], atol=0.02)
    assert [s.image.shape[0] for s in read_gallery(run.path) if s.condition == "clean"] == [
        6,
        4,
        2,
    ], "no padding"
    drawn_on(run)


def test_sets_are_drawn_where_their_points_are() -> None:
    batch = sets()
    (row,) = gallery_rows(
        "d", "m", "s", [GalleryImage.of("e", CLEAN, batch, 1, batch.x[1])]
    ).to_pylist()
    kept = np.frombuffer(row["image"], np.float32).reshape(row["height"], row["width"])
    assert row["kind"] == "set"
    np.testing.assert_allclose(kept, batch.x[1, :4, :2])


def test_volumes_show_their_three_middle_planes() -> None:
    volume = torch.rand(1, 1, 4, 6, 8, generator=generator())
    batch = Batch(("a",), volume)
    (row,) = gallery_rows(
        "d", "m", "s", [GalleryImage.of("e", CLEAN, batch, 0, volume[0])]
    ).to_pylist()
    drawn = np.frombuffer(row["map"], np.int8).reshape(row["height"], row["width"]) / 127
    assert drawn.shape == (6 + 1 + 4, 8 + 1 + 4)
    x = volume[0, 0].numpy()
    peak = max(x[2].max(), x[:, 3].max(), x[..., 4].max())
    for part, plane in (
        (drawn[:6, :8], x[2]),
        (drawn[7:, :8], x[:, 3]),
        (drawn[:6, 9:], x[..., 4].T),
    ):
        np.testing.assert_allclose(part, plane / peak, atol=0.01)
    assert not drawn[7:, 9:].any() and not drawn[6].any() and not drawn[:, 8].any()


def test_distances_of_a_layout_follow_the_edges() -> None:
    ring = np.zeros((9, 9), np.float32)
    for i in range(6):
        ring[i, (i + 1) % 6] = 1
    ring[0, 6] = ring[6, 7] = ring[6, 8] = 1  # a tail that forks
    spots = node_layout(ring)
    near = np.linalg.norm(spots[:, None] - spots, axis=2)
    steps = shortest_path(ring, directed=False)
    assert np.corrcoef(near[np.triu_indices(9, 1)], steps[np.triu_indices(9, 1)])[0, 1] > 0.95
    assert near[np.triu_indices(9, 1)].min() > 0.4, "leaves of one node do not fall together"
    for n in (1, 3):
        assert np.isfinite(node_layout(np.zeros((n, n), np.float32))).all(), "nodes without edges"


def test_marks_have_the_sign_and_the_strength_of_the_map() -> None:
    place = ("d", "m", "e", "clean", 0.0, "a")
    values = np.array([1.0, -0.5, 0.0], np.float32)
    words = GalleryItem(
        *place, np.zeros((1, 3)), values, kind="text", words=("one", "two", "three")
    )
    boxes = [p for p in over(words, values, True, 200, 90).pieces if isinstance(p, Box)]
    assert [(b.colour, round(b.opacity, 2)) for b in boxes] == [("for", 0.6), ("against", 0.3)]
    said = [p for p in ground(words, 200, 90).pieces if isinstance(p, Words)]
    assert [w.text for w in said] == ["one", "two", "three"] and boxes[1].x < said[1].x < boxes[
        1
    ].x + boxes[1].width
    table = GalleryItem(
        *place, np.array([[5.0, 6.0, 7.0]]), values, kind="table", words=("age", "debt", "loans")
    )
    bars = [p for p in over(table, values, True, 200, 90).pieces if isinstance(p, Box)]
    assert bars[0].width == pytest.approx(2 * bars[1].width) and bars[1].x + bars[
        1
    ].width == pytest.approx(bars[0].x)
    assert [w.text for w in ground(table, 200, 90, values=True).pieces if isinstance(w, Words)][
        :2
    ] == ["age", "5.00"]
    nodes = GalleryItem(*place, np.array([[0.0, 0, 0, 1], [1, 0, 1, 0]]), values[:2], kind="graph")
    discs = [p for p in over(nodes, values[:2], False, 90, 90).pieces if isinstance(p, Dot)]
    assert [(d.colour, d.opacity) for d in discs] == [("strength", 0.9)], (
        "what has no sign shows strength alone"
    )


def test_a_long_text_is_made_small_and_then_cut() -> None:
    many = tuple(f"word{i}" for i in range(400))
    shown = GalleryItem(
        "d",
        "m",
        "e",
        "clean",
        0.0,
        "a",
        np.zeros((1, 400)),
        np.ones(400, np.float32),
        kind="text",
        words=many,
    )
    said = [p for p in ground(shown, 200, 94).pieces if isinstance(p, Words)]
    assert 20 < len(said) < 400 and {w.size for w in said} == {7} and max(w.y for w in said) <= 94

"""The run directory: names, atomic parts, unique keys, and what is read back is what was written."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import heatproof
from heatproof.errors import UserError
from heatproof.evaluation import FLIPPED, OK, UNDEFINED, GalleryImage, Scores
from heatproof.runs import directory, tables
from heatproof.runs import gallery as run_gallery
from heatproof.runs.atomic import write_atomically
from heatproof.runs.columns import sorted_by_key
from heatproof.runs.differences import differences
from heatproof.runs.directory import PartKey, RunDirectory

NAMES = [
    "saliency",
    "Saliency",
    "integrated_gradients(steps=20)",
    "integrated_gradients(steps=21)",
    "IG (steps=20)/x",
    "IG (steps=20)-x",
    "../..",
    "../../etc/passwd",
    "/etc/passwd",
    "..",
    ".",
    "",
    "unnamed",
    "con",
    "aux.txt",
    "a" * 60,
    "a" * 61,
    "a" * 5000,
    "b" * 80 + "1",
    "b" * 80 + "2",
    "карта",
    "地図",
    "é",
    "e\u0301",
    "a\x00b",
    "a\nb",
    "a\\b",
    "a:b*?",
]


def scores(value, status=None, reason=None, **changes) -> Scores:
    value = torch.tensor(value, dtype=torch.float64)
    status = torch.full((len(value),), OK) if status is None else torch.tensor(status)
    named = {
        "explainer": "saliency",
        "measure": "fass",
        "condition": "rotation",
        "level": 15.0,
    } | changes
    return Scores(value=value, status=status, reason=tuple(reason or [""] * len(value)), **named)


def test_slugs_differ_also_where_case_does_not_count():
    slugs = [directory.slug(name) for name in NAMES]
    assert len({slug.lower() for slug in slugs}) == len(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_slug_is_one_safe_file_name(name, tmp_path):
    slug = directory.slug(name)
    assert slug and slug.isascii() and len(slug) <= 80
    assert not set(slug) & set('/\\:*?"<>|\x00\n ') and not slug.startswith((".", "-"))
    assert slug.split(".")[0] not in {"con", "aux", "nul", "prn"}
    inside = PartKey.scores((name, name, 3), name, name).path(tmp_path).resolve()
    assert inside.is_relative_to(tmp_path.resolve() / "parts")
    assert len(inside.relative_to(tmp_path.resolve()).parts) == 6


def test_the_slug_of_one_name_is_not_the_name_of_another():
    taken = directory.slug("x y")
    assert directory.slug(taken) != taken


def test_readable_names_stay_readable():
    assert directory.slug("saliency") == "saliency"
    assert directory.slug("integrated_gradients(steps=20)").startswith(
        "integrated_gradients-steps=20-"
    )


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_write_that_fails_leaves_no_file(tmp_path, monkeypatch, step):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(*((os, "fsync") if step == "fsync" else (Path, "replace")), fail)
    with pytest.raises(UserError, match=r"part\.parquet.*disk full"):
        write_atomically(tmp_path / "folder" / "part.parquet", b"content")
    assert list((tmp_path / "folder").iterdir()) == []


def test_a_write_that_fails_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "manifest.json"
    write_atomically(path, b"old")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(UserError, match=r"manifest\.json.*disk full"):
            write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    write_atomically(path, b"new")
    assert path.read_bytes() == b"new"
    assert [p.name for p in tmp_path.iterdir()] == ["manifest.json"]


def test_what_was_cut_off_is_not_read(tmp_path):
    key = PartKey.scores(("d", "m", 0), "stability", "saliency")
    rows = tables.score_rows("d", "m", "stability", "method", ["a"], [scores([0.5])])
    RunDirectory(tmp_path).write(key, rows)
    part = key.path(tmp_path)
    part.with_name(f".{part.name}.99.tmp").write_bytes(b"PAR1 half a file")
    assert len(tables.read_scores(tmp_path)) == 1


def test_scores_round_trip_with_their_nulls(tmp_path):
    bounded = scores(
        [0.1 + 0.2, 1.0], measure="tau", low=torch.tensor([0.1, 0.2]), high=torch.tensor([0.9, 1.0])
    )
    bad = scores(
        [np.nan, 0.25, np.nan],
        [FLIPPED, OK, UNDEFINED],
        ["top-1 changed", "", "the clean map is constant"],
        level=5,
    )
    ids = ["a", "b", "c"]
    first = tables.score_rows("d", "m", "stability", "method", ids, [bad])
    second = tables.score_rows("d", "m", "certificate", "method", ids[:2], [bounded])
    RunDirectory(tmp_path).write(PartKey.scores(("d", "m", 0), "stability", "saliency"), first)
    RunDirectory(tmp_path).write(PartKey.scores(("d", "m", 0), "certificate", "saliency"), second)
    frame = tables.read_scores(tmp_path)
    assert list(frame.columns) == tables.SCORES.names
    assert [str(frame[c].dtype) for c in ("level", "value", "low", "high")] == ["float64"] * 4
    stability = frame[frame.evaluation == "stability"].set_index("sample")
    assert stability.status.to_dict() == {"a": "flipped", "b": "ok", "c": "undefined"}
    assert stability.reason.to_dict() == {
        "a": "top-1 changed",
        "b": "",
        "c": "the clean map is constant",
    }
    assert stability.value.isna().tolist() == [True, False, True]
    assert stability[["low", "high"]].isna().all().all()
    certificate = frame[frame.evaluation == "certificate"]
    assert certificate.value.tolist() == [0.1 + 0.2, 1.0]
    assert certificate.low.tolist() == pytest.approx([0.1, 0.2])
    assert certificate.high.tolist() == pytest.approx([0.9, 1.0])


def test_rows_come_back_sorted_by_their_key_whatever_the_parts(tmp_path):
    for shard, ids in enumerate((["b", "d"], ["a", "c"])):
        columns = [scores([0.1, 0.2], measure=m) for m in ("ssim", "fass")]
        rows = tables.score_rows("d", "m", "stability", "method", ids, columns)
        RunDirectory(tmp_path).write(
            PartKey.scores(("d", "m", shard), "stability", "saliency"), rows
        )
    frame = tables.read_scores(tmp_path)
    pd.testing.assert_frame_equal(frame, frame.sort_values(tables.KEY, ignore_index=True))
    assert frame["sample"].tolist() == ["a", "a", "b", "b", "c", "c", "d", "d"]


def test_an_empty_part_and_an_empty_run_have_the_columns(tmp_path):
    assert list(tables.read_scores(tmp_path).columns) == tables.SCORES.names
    empty = tables.score_rows("d", "m", "stability", "method", [], [])
    RunDirectory(tmp_path).write(PartKey.scores(("d", "m", 0), "stability", "saliency"), empty)
    frame = tables.read_scores(tmp_path)
    assert frame.empty and list(frame.columns) == tables.SCORES.names
    assert list(tables.read_samples(tmp_path).columns) == tables.SAMPLES.names


def test_a_pair_that_occurs_twice_is_refused_by_its_key(tmp_path):
    for shard in (0, 1):
        rows = tables.score_rows(
            "d", "m", "stability", "method", ["cat.jpg", f"{shard}"], [scores([0.1, 0.2])]
        )
        RunDirectory(tmp_path).write(
            PartKey.scores(("d", "m", shard), "stability", "saliency"), rows
        )
    with pytest.raises(UserError, match="1 duplicate") as caught:
        tables.read_scores(tmp_path)
    for word in ("cat.jpg", "saliency", "rotation", "fass", "15.0"):
        assert word in str(caught.value)


def test_differences_name_the_place_and_both_values():
    old = {
        "seed": 0,
        "models": {"net": {"fingerprint": "aa"}},
        "explainers": {"a": {"name": "lime", "samples": 10}},
    }
    new = {
        "seed": 1,
        "models": {"net": {"fingerprint": "bb"}},
        "explainers": {"a": {"name": "lime", "samples": 20}},
    }
    seed, weights, samples = differences(old, new)
    assert re.search("seed.*0.*1", seed)
    assert re.search(r"models\.net.*weights", weights)
    assert re.search(r"explainers\.a\.samples.*10.*20", samples)


def test_more_explainers_are_no_difference():
    assert differences({"explainers": {"a": {"k": 1}}}, {"explainers": {"b": {"k": 2}}}) == []
    assert differences({"a": [1, 2]}, {"a": (1, 2)}) == []
    (line,) = differences({"a": None}, {"a": 0})
    assert re.search(r"\ba\b.*null.*0", line)


def test_differences_of_long_lists_say_which_entry():
    def turn(degrees):
        return {"name": "rotation", "degrees": degrees, "fill": 0.0}

    noise = {"name": "gaussian_noise", "sigma": 0.15}
    base = [turn(5.0), turn(10.0), turn(15.0), noise]
    where = "evaluations.stability.perturbations"
    assert differences(base, list(base), where) == []
    (changed,) = differences(base, [*base[:2], turn(20.0), noise], where)
    assert re.search(r"degrees=15\.0.*degrees=20\.0", changed)
    assert "degrees=5.0" not in changed
    (added,) = differences(base, [*base, turn(20.0)], where)
    assert "degrees=20.0" in added
    (gone,) = differences(base, base[:3], where)
    assert "gaussian_noise" in gone
    (reordered,) = differences(base, base[::-1], where)
    assert "order" in reordered
    assert all(line.startswith(where) for line in (changed, added, gone, reordered))


def test_a_long_value_is_cut():
    (line,) = differences({"a": "x" * 500}, {"a": "y"})
    assert len(line) < 200 and "xxx..." in line


def test_exhibits_round_trip_with_the_sign_of_the_map(tmp_path):
    g = torch.Generator().manual_seed(0)
    image = (
        torch.linspace(0, 1, 20)[None, :, None].expand(3, 20, 30)
        * torch.linspace(0.2, 1, 3)[:, None, None]
    )
    signed = torch.randn(3, 20, 30, generator=g) * 1e-6
    gallery = [
        GalleryImage("saliency", "rotation", 15.0, "a", image, signed),
        GalleryImage("saliency", "clean", 0.0, "a", image, torch.full((3, 20, 30), -1e9)),
        GalleryImage("saliency", "jpeg", 40.0, "a", image[:1], None),
        GalleryImage("saliency", "zero", 0.0, "a", image, torch.zeros(3, 20, 30)),
    ]
    rows = run_gallery.gallery_rows("d", "m", "stability", gallery)
    RunDirectory(tmp_path).write(PartKey.gallery(("d", "m", 0), "stability", "saliency"), rows)
    shown = {s.condition: s for s in run_gallery.read_gallery(tmp_path)}
    turned = shown["rotation"]
    assert (turned.dataset, turned.model, turned.explainer, turned.level, turned.sample) == (
        "d",
        "m",
        "saliency",
        15.0,
        "a",
    )
    expected = (image * 255).round().permute(1, 2, 0).numpy()
    assert np.abs(turned.image - expected).mean() < 4, "JPEG changes a smooth picture little"
    total = signed.sum(0)
    np.testing.assert_allclose(turned.map, (total / total.abs().max()).numpy(), atol=1 / 127)
    assert (turned.map * total.numpy() >= 0).all()
    assert (shown["clean"].map == -1).all()
    assert shown["jpeg"].map is None and shown["jpeg"].image.shape == (20, 30, 3)
    assert (shown["zero"].map == 0).all()


GRAPH = {
    "adjacency": torch.diag(torch.ones(3), 1),
    "mask": torch.tensor([True, True, True, False]),
}
TEXT = {"attention_mask": torch.tensor([1, 1, 0])}
INPUTS = {
    # what it is: (input, other tensors, kind, shape of what is kept, shape of its map)
    "large picture": (torch.rand(1, 300, 150), {}, "image", (128, 64, 3), (128, 64)),
    "volume": (torch.rand(1, 6, 7, 8), {}, "volume", (14, 15, 3), (14, 15)),
    "series": (torch.rand(2, 12), {}, "series", (2, 12), (12,)),
    "long series": (torch.rand(1, 1001), {}, "series", (1, 400), (400,)),
    "row": (torch.rand(5), {}, "table", (1, 5), (5,)),
    "text": (torch.tensor([2, 3, 0]), TEXT, "text", (1, 2), (2,)),
    "set": (torch.rand(4, 3), {"mask": GRAPH["mask"]}, "set", (3, 2), (3,)),
    "graph": (torch.rand(4, 2), GRAPH, "graph", (3, 5), (3,)),
}


@pytest.mark.parametrize("what", INPUTS)
def test_an_input_of_every_kind_is_kept_without_padding_and_with_its_map(what):
    x, aux, kind, shape, shape_of_map = INPUTS[what]
    gallery_image = GalleryImage("e", "c", 2.0, what, x, torch.rand(x.shape) + 0.1, "n", aux)
    rows = run_gallery.gallery_rows("d", "m", "stability", [gallery_image])
    shown = run_gallery.gallery_item(rows.to_pylist()[0])
    assert shown.kind == kind
    assert shown.image.shape == shape
    assert shown.map.shape == shape_of_map
    assert shown.map.max() == 1


def test_the_edges_of_a_graph_and_the_words_of_a_text_are_kept():
    class Known:
        columns = ()
        tokenizer = heatproof.data.Vocabulary(("a", "film"))

    gallery = [
        GalleryImage("e", "c", 2.0, "graph", torch.rand(4, 2), None, "", GRAPH),
        GalleryImage("e", "c", 2.0, "text", torch.tensor([2, 3, 0]), None, "", TEXT),
    ]
    rows = run_gallery.gallery_rows("d", "m", "stability", gallery, Known())
    graph, text = map(run_gallery.gallery_item, rows.to_pylist())
    assert graph.image[:, 2:].tolist() == [[0, 1, 0], [0, 0, 1], [0, 0, 0]]
    assert list(text.words) == ["a", "film"]


def test_a_picture_that_cannot_be_shown_is_damage(tmp_path):
    rows = run_gallery.gallery_rows(
        "d", "m", "stability", [GalleryImage("a", "jpeg", 40.0, "s", torch.rand(3, 9, 9), None)]
    )
    image = rows.column_names.index("image")
    rows = rows.set_column(image, rows.schema.field(image), [[b"no picture"]])
    RunDirectory(tmp_path).write(PartKey.gallery(("d", "m", 0), "stability", "a"), rows)
    with pytest.raises(UserError, match=r"parquet.*picture"):
        run_gallery.read_gallery(tmp_path)


def test_rows_are_sorted_where_a_key_has_more_combinations_than_one_number_holds():
    g = np.random.default_rng(0)
    frame = pd.DataFrame({name: g.permutation(70_000) for name in "abcd"})  # 70,000⁴ > 2⁶⁴
    frame.loc[1, :] = frame.loc[0, :]
    order, again = sorted_by_key(pa.Table.from_pandas(frame), list("abcd"))
    assert frame.loc[order].equals(frame.sort_values(list("abcd"), kind="stable"))
    assert again.sum() == 1 and sorted([order[again.argmax()], order[again.argmax() - 1]]) == [0, 1]


def test_large_pictures_become_thumbnails(tmp_path):
    maps = torch.zeros(3, 100, 400)
    maps[:, :, :200] = -1
    gallery_image = GalleryImage("saliency", "clean", 0.0, "a", torch.rand(3, 100, 400), maps)
    key = PartKey.gallery(("d", "m", 0), "stability", "saliency")
    RunDirectory(tmp_path).write(
        key, run_gallery.gallery_rows("d", "m", "stability", [gallery_image])
    )
    (shown,) = run_gallery.read_gallery(tmp_path)
    assert shown.image.shape == (32, 128, 3) and shown.map.shape == (32, 128)
    assert (shown.map[:, :56] == -1).all() and (shown.map[:, 72:] == 0).all()
    (written,) = key.path(tmp_path).parent.iterdir()
    assert pq.read_table(written).schema.equals(run_gallery.GALLERY)


def test_compact_rows_are_the_same_rows(tmp_path):
    for shard, (ids, why) in enumerate(((["é", "b"], "constant map"), (["a", "Z"], ""))):
        columns = [
            scores([0.1, np.nan], [OK, UNDEFINED], ["", why], measure=m) for m in ("ssim", "fass")
        ]
        rows = tables.score_rows("d", "m", "stability", "method", ids, columns)
        RunDirectory(tmp_path).write(
            PartKey.scores(("d", "m", shard), "stability", "saliency"), rows
        )
    plain, compact = tables.read_scores(tmp_path), tables.read_scores(tmp_path, compact=True)
    texts = compact.select_dtypes("category")
    assert {field.name for field in tables.SCORES if field.type == "string"} == set(texts)
    assert list(compact["sample"].cat.categories) == sorted(plain["sample"].unique())
    pd.testing.assert_frame_equal(
        compact.astype({name: plain[name].dtype for name in texts}), plain
    )


def test_a_part_that_lacks_a_column_has_it_empty(tmp_path):
    rows = tables.score_rows("d", "m", "stability", "method", ["a"], [scores([0.5])]).drop_columns(
        ["reason", "low"]
    )
    RunDirectory(tmp_path).write(PartKey.scores(("d", "m", 0), "stability", "saliency"), rows)
    frame = tables.read_scores(tmp_path)
    assert list(frame.columns) == tables.SCORES.names
    assert frame.loc[0, ["low", "reason"]].isna().all() and frame.loc[0, "value"] == 0.5


def test_only_what_is_asked_for_is_read(tmp_path):
    names = ("fass", "fass_unaligned", "ssim", "fassade")
    for shard, ids in enumerate((["a", "b"], ["c", "d"])):
        for explainer in ("saliency", "sobel"):
            columns = [
                scores([0.1, 0.2], measure=measure, explainer=explainer) for measure in names
            ]
            role = "control" if explainer == "sobel" else "method"
            rows = tables.score_rows("d", "m", "stability", role, ids, columns)
            RunDirectory(tmp_path).write(
                PartKey.scores(("d", "m", shard), "stability", explainer), rows
            )
    whole = tables.read_scores(tmp_path)
    some = tables.read_scores(tmp_path, measures=["fass"], samples={"b", "c"})
    wanted = (whole["measure"] == "fass") & whole["sample"].isin(["b", "c"])
    pd.testing.assert_frame_equal(some, whole[wanted].reset_index(drop=True))
    assert tables.read_scores(tmp_path, compact=True, measures=["road"]).empty
    parts = list(tables.read_scores_by_explainer(tmp_path, measures=["ssim"]))
    assert [set(part["explainer"]) for part in parts] == [{"saliency"}, {"sobel"}]
    assert [len(part) for part in parts] == [4, 4] and set(pd.concat(parts)["measure"]) == {"ssim"}
    places = tables.read_places(tmp_path)
    pd.testing.assert_frame_equal(
        places, whole[tables.PLACE].drop_duplicates().sort_values(tables.PLACE, ignore_index=True)
    )
    assert len(places) == 2 * len(names)

"""The page and the verdict: complete, inert, offline, and never saying more than the numbers do."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from holdfast import Stability, evaluate
from holdfast.axes.stability.gallery import gallery
from holdfast.axes.stability.gallery_choice import choose
from holdfast.axes.stability.page import parts
from holdfast.axes.stability.pairs import pair_scores
from holdfast.axes.stability.words import verdict
from holdfast.drawing.charts import Chart
from holdfast.drawing.methods import COLOURS, FIXED, SHARED, TITLES, colour_of, looks
from holdfast.drawing.pictures import draw_map, photo
from holdfast.drawing.prose import number
from holdfast.drawing.sheet import Dot
from holdfast.drawing.tables import to_csv
from holdfast.explainers import EXPLAINERS
from holdfast.report import build_report, text_summary
from holdfast.report.findings import findings
from holdfast.runs.pictures import read_exhibits
from holdfast.statistics.cubes import arrange
from holdfast.types import Shown
from support import synthetic
from support.pages import NASTY, Page, is_sound, marks

SWEEP = (("rotation", 5.0), ("rotation", 15.0), ("rotation", 30.0), ("jpeg", 40.0))
SHORT = (("rotation", 15.0), ("jpeg", 40.0))


@pytest.fixture(scope="module")
def html() -> str:
    table = synthetic.table(conditions=SWEEP)
    return build_report(table, synthetic.samples(), synthetic.exhibits(conditions=SWEEP), synthetic.manifest())


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def frames_of(quality: dict[str, float], **options: Any) -> Any:
    return synthetic.frames_of(synthetic.table(quality, **options))


def test_every_section_is_there_in_order(page: Page) -> None:
    wanted = ["Does the explanation hold?", "Verdict", "What to mind and what to do", "Stability", "Which maps hold"]
    wanted += ["Components", "Predictions kept", "Severity: rotation", "Paired tests", "Noise floor", "Gallery"]
    wanted += ["All numbers", "The first images as the model sees them", "How this was made"]
    place = -1
    for title in wanted:
        place = page.words.index(title, place + 1)  # raises where a title is missing or out of order
    text = " ".join(page.words)
    for fact in ("8c1f0e6a2b7d", "0f3e9d8c7b6a", "40 samples, 1 unreadable", "15 November 2026, 19:40 UTC"):
        assert fact in text
    for made in ("holdfast run study.yaml --out runs/photos --limit 40", "fass-paper", "2.13.0", "img/0040.jpg"):
        assert made in text


def test_every_chart_is_drawn_and_its_marks_carry_their_numbers(page: Page) -> None:
    places = [a["id"] for _, a in page.tags if a.get("class") == "chart"]
    keys = [str(key).removeprefix("s0-a0-") for key in places]
    assert keys == ["scores", "components", "retention", "severity-0"]
    assert all(a["aria-label"] for tag, a in page.tags if tag == "svg" or a.get("class") == "walk")
    drawn = [a for tag, a in page.tags if tag == "g" and a.get("class") == "mark"]
    assert len(drawn) > 5 * (1 + len(SWEEP)) + 3 * 5 and all(a["data-value"] for a in drawn)


def test_every_picture_is_there_once_and_has_words(page: Page) -> None:
    images = [a for tag, a in page.tags if tag == "img"]
    assert len(images) > 50 and all(a["alt"] or a["class"] == "photo" for a in images)  # a backdrop needs no words
    used = {a["data-picture"] for a in images}
    assert used == page.payload["pictures"].keys()
    uris = list(page.payload["pictures"].values())
    assert len(set(uris)) == len(uris) and all(uri.startswith("data:image/") for uri in uris)


def test_the_page_asks_for_nothing_from_outside(html: str, page: Page) -> None:
    assert not [tag for tag, _ in page.tags if tag in {"link", "iframe", "object", "embed", "base", "form"}]
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data"):
            assert (attributes.get(name) or "#").startswith("#")
    assert not re.search(r"https?://|url\(|@import|\bfetch\(|XMLHttpRequest", html)
    policy = next(a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy")
    assert policy is not None and policy.startswith("default-src 'none'") and "http" not in policy


def test_names_are_inert_everywhere() -> None:
    table = synthetic.table({NASTY: 0.5, "b": 0.2}, SHORT, samples=4, stochastic=(NASTY,))
    table["sample"] = table["sample"] + NASTY
    table["reason"] = table["reason"].where(table["reason"] == "", NASTY)
    table["condition"] = table["condition"].replace("jpeg", NASTY)
    table["dataset"] = table["model"] = NASTY
    samples = synthetic.samples(4, dataset=NASTY, model=NASTY)
    samples["sample"] = samples["sample"] + NASTY
    samples["predicted_name"] = NASTY
    samples.loc[samples["error"] != "", "error"] = NASTY
    exhibits = synthetic.exhibits(2, (NASTY, "b"), SHORT, dataset=NASTY, model=NASTY)
    exhibits = [replace(e, sample=e.sample + NASTY) for e in exhibits]
    manifest = synthetic.manifest(models={NASTY: {"fingerprint": NASTY, "untrained_head": NASTY}})
    manifest |= {"command": NASTY, "created": NASTY, "holdfast": NASTY, "versions": {NASTY: NASTY}}
    page = Page(build_report(table, samples, exhibits, manifest))
    assert sum(tag == "script" for tag, _ in page.tags) == 2
    assert not [a for _, a in page.tags if "onerror" in a]
    assert NASTY in " ".join(page.words)


def test_size_of_a_full_gallery() -> None:
    explainers = {f"method_{i}": 0.1 * i for i in range(8)}
    noise = np.random.default_rng(0).normal(size=(224, 224)).astype(np.float16)
    photograph = np.random.default_rng(1).integers(0, 256, (28, 28, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)
    exhibits = [
        replace(
            item,
            image=photograph if item.condition == "clean" else np.roll(photograph, len(item.condition)),
            map=None if item.map is None else np.roll(noise, i),
        )
        for i, item in enumerate(synthetic.exhibits(8, tuple(explainers)))
    ]
    shown = gallery(synthetic.judged_of(synthetic.table({"method_0": 0.1}, SHORT, samples=8), exhibits))
    assert shown.left_out == 0 and len(shown.cards) == 8
    assert sum(map(len, shown.pictures.values())) < 5e6


def test_a_gallery_too_large_shows_fewer_samples_and_says_so() -> None:
    explainers = tuple(f"m{i}" for i in range(50))
    many = tuple((f"c{i}", 1.0) for i in range(30))
    exhibits = synthetic.exhibits(4, explainers, many, side=8, flipped=False)
    shown = gallery(synthetic.judged_of(synthetic.table({"m0": 0.1}, SWEEP), exhibits))
    assert shown.left_out == 4 and not shown.cards


def test_gallery_tells_flipped_pairs_and_scores(page: Page) -> None:
    table = synthetic.table(flip=0.0, undefined=0.0)
    lost = (table["sample"] == "img/0001.jpg") & (table["condition"] == "rotation")
    table.loc[lost, ["value", "status", "reason"]] = [np.nan, "flipped", "top class is now teapot"]
    shown = gallery(synthetic.judged_of(table, synthetic.exhibits()))
    card = shown.cards["grad_cam"][1]
    assert (card.sample, card.prediction) == ("img/0001.jpg", "airliner (89 %)")
    assert [t.title for t in card.tiles][:2] == ["clean", "rotation 15°"]
    assert card.tiles[1].map == "" and card.tiles[1].status == "flipped: top class is now teapot"
    keys = (table["sample"] == "img/0001.jpg") & (table["condition"] == "jpeg") & (table["explainer"] == "grad_cam")
    value = table[keys & (table["measure"] == "fass")]["value"].iloc[0]
    assert card.tiles[-1].scores[0].startswith(f"FASS {value:.2f}, chance 0.")
    assert [word for word in page.words if "label" in word][:3] == ["no label", "label agrees", "label agrees"]


def test_the_gallery_shows_the_worst_median_and_best_of_what_was_seen() -> None:
    table = synthetic.table({"a": 0.5}, SHORT, samples=30)
    (cube,) = arrange(table)
    scores = pair_scores({m: v[0] for m, v in cube.values.items() if m.startswith("fass")})
    order = [(c, s) for c, s in np.argwhere(np.isfinite(scores)) if s < 20]
    order.sort(key=lambda place: scores[tuple(place)])
    noted = {"worst": order[0], "median": order[len(order) // 2], "best": order[-1]}
    image, values = np.zeros((8, 8, 3), np.uint8), np.eye(8, dtype=np.float32)
    exhibits = []
    for role, (c, s) in noted.items():
        place = ("photos", "mobilenet", "a")
        exhibits.append(Shown(*place, "clean", 0.0, cube.samples[s], image, values, "stability"))
        here = (*cube.conditions[c], cube.samples[s])
        exhibits.append(Shown(*place, *here, image, -values, "stability", "", role, len(order)))
    shown = gallery(synthetic.judged_of(table, exhibits[::-1]))
    assert [p.role for p in shown.pairs["a"]] == ["worst", "median", "best"]
    assert [p.sample for p in shown.pairs["a"]] == [cube.samples[s] for _, s in noted.values()]
    assert shown.pairs["a"][0].score == number(float(scores[tuple(order[0])]))
    retained = int(np.isfinite(scores).sum())
    assert shown.chosen_from["a"] == f"chosen among {len(order)} of {retained} retained pairs"
    assert not shown.cards, "a pair from the middle of the data is no first sample"


def test_a_run_keeps_its_extreme_pairs_whatever_the_batches(tmp_path: Path) -> None:
    images = torch.rand(7, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    layers = [torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(4 * 14 * 14, 2)]
    network = torch.nn.Sequential(*layers)
    weights = torch.randn(sum(p.numel() for p in network.parameters()), generator=torch.Generator().manual_seed(1))
    torch.nn.utils.vector_to_parameters(weights, network.parameters())
    kept = []
    for batch_size in (1, 4):
        axis = Stability(perturbations=["identity", "jpeg", {"brightness": {"factor": [0.8, 1.2]}}])
        out = tmp_path / str(batch_size)
        run = evaluate(network, images, ["saliency"], axis, out, batch_size=batch_size, shard_size=4)
        shown = [s for s in read_exhibits(run.path) if s.role]
        kept.append([(s.sample, s.condition, s.level, s.role, s.pairs) for s in shown])
    assert kept[0] == kept[1] and len(kept[0]) == 6, "three of each of two shards"
    (cube,) = arrange(run.table())
    found = choose(read_exhibits(run.path), cube)["saliency"]
    scores = pair_scores({m: v[0] for m, v in cube.values.items() if m.startswith("fass")})
    scores = scores[[c != "identity" for c, _ in cube.conditions]]
    assert found.seen == found.retained == np.isfinite(scores).sum()
    assert [p.role for p in found.pairs] == ["worst", "median", "best"]
    assert [found.pairs[0].score, found.pairs[-1].score] == [np.nanmin(scores), np.nanmax(scores)]


def test_text_that_a_spreadsheet_would_run_is_inert() -> None:
    assert to_csv(pd.DataFrame({"x": ["@a", "-b", "−c"], "y": [-1.5, 2.0, None]})) == "x,y\n'@a,-1.5\n'-b,2\n−c,\n"


def test_pictures_are_small_and_maps_keep_their_sign() -> None:
    def decode(uri: str) -> Image.Image:
        return Image.open(io.BytesIO(base64.b64decode(uri.split(",", 1)[1])))

    assert decode(photo(np.zeros((400, 200, 3), np.uint8))).size == (80, 160)
    assert decode(photo(np.zeros((28, 28), np.uint8))).size == (28, 28)
    ramp = np.tile(np.linspace(-1, 1, 101), (101, 1))
    drawn = decode(draw_map(ramp, signed=True))
    assert drawn.mode == "P"
    left, middle, right = (drawn.convert("RGB").getpixel((x, 50)) for x in (15, 50, 85))
    assert left[2] > left[0] and right[0] > right[2] and min(middle) > 190  # blue, nearly white, red
    assert len({drawn.getpixel((x, 50)) for x in (40, 60)}) == 2
    bright = np.asarray(decode(draw_map(ramp, signed=False)).convert("L")).astype(int)
    assert (bright[50, :50] == 255).all() and (np.diff(bright[50]) <= 0).all(), "zero is white, strength is dark"


def test_verdict_names_the_winner_with_its_interval() -> None:
    found = frames_of({"grad_cam": 0.55, "ig": 0.3, "random": 0.0})
    row = found.ranking.iloc[0]
    said = verdict(found)
    assert said[0] == f"grad_cam holds best: calibrated score {row.score:.2f} [{row.low:.2f}, {row.high:.2f}]."
    assert said[1].startswith("It is ahead of ig (0.3") and said[1].endswith("p < 0.001.")
    assert len(said) == 2


def test_verdict_does_not_separate_twins() -> None:
    said = verdict(frames_of({"a": 0.4, "b": 0.4, "c": 0.1}))
    assert said[0].startswith(("a and b cannot be separated at the top", "b and a cannot be separated at the top"))
    assert "holds best" not in " ".join(said)


def test_verdict_is_silent_on_five_samples() -> None:
    assert "cannot be separated" in verdict(frames_of({"a": 0.4, "b": 0.25}, samples=5, flip=0.0, undefined=0.0))[0]


def test_verdict_tells_chance_and_controls() -> None:
    said = " ".join(verdict(frames_of({"a": 0.4, "noise_like": 0.0, "sobel": 0.7, "random": 0.0}, seed=4)))
    assert "noise_like is not separated from the control random." in said
    assert re.search(
        r"The control sobel, which explains nothing, scores 0\.7\d \[.*\]: no method is shown to do better\.", said
    )
    assert "Within noise of chance: noise_like under" in said or "cells are within noise of chance" in said
    assert "Within noise of chance: a" not in said


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"quality": {"a": 0.5}}, "no other method was run"),
        ({"quality": {"random": 0.0, "sobel": 0.6}}, "Nothing can be concluded: only controls"),
        ({"flip": 1.1}, "Nothing can be concluded: no pair"),
        ({"samples": 1, "flip": 0.0, "undefined": 0.0}, "(no interval)"),
        ({"undefined": 1.1, "flip": 0.0}, "Nothing can be concluded: no pair"),
    ],
)
def test_degenerate_tables_still_make_a_page(options: dict[str, Any], wanted: str) -> None:
    table = synthetic.table(**{"samples": 10, "conditions": SHORT, **options})
    page = Page(build_report(table, synthetic.samples(), [], {}))
    assert wanted in " ".join(page.words)
    assert not [a for tag, a in page.tags if tag == "g" and "nan" in str(a)]


def test_an_empty_table_says_so() -> None:
    table, samples = synthetic.table().iloc[:0], synthetic.samples(0, unreadable=2)
    page = Page(build_report(table, samples, [], synthetic.manifest()))
    text = " ".join(page.words)
    assert "Nothing can be concluded: no pair was attempted." in text and "img/0001.jpg" in text
    assert "the table has no scores" in " ".join(Page(build_report(table, samples.iloc[:0], [], {})).words)


def test_each_model_has_its_own_section() -> None:
    other = synthetic.table({"a": 0.5, "b": 0.1}, SHORT, model="vit", seed=2)
    table = pd.concat([synthetic.table({"a": 0.1, "b": 0.5}, SHORT), other])
    samples = pd.concat([synthetic.samples(), synthetic.samples(model="vit", unreadable=0)])
    page = Page(build_report(table, samples, synthetic.exhibits(model="vit"), synthetic.manifest()))
    assert {"mobilenet on photos", "vit on photos"} <= set(page.words)
    text = " ".join(page.words)
    assert "b holds best" in text and "a holds best" in text
    assert {"#s0", "#s1"} <= {a["href"] for tag, a in page.tags if tag == "a"}


def test_other_evaluations_get_their_numbers() -> None:
    rows = synthetic.table({"a": 0.5}, SWEEP)
    rows = rows[rows["measure"] == "ssim"].assign(measure="sharp_edges", evaluation="sharpness")
    text = " ".join(Page(build_report(rows, synthetic.samples(), [], {})).words)
    assert "Sharpness" in text and "sharp edges" in text
    assert "sharp edges of a: 0." in text and "Sharpness" in text_summary(rows, synthetic.samples(), {})


def listed(table: pd.DataFrame, samples: int, unreadable: int = 0, **study: Any) -> dict[str, Any]:
    known = synthetic.samples(samples, unreadable=unreadable)
    return {f.title: f for f in findings(table, known, synthetic.manifest(**study), most=99)}


def test_limits_are_told_when_and_only_when_there_is_cause() -> None:
    good = synthetic.table({"a": 0.5, "b": 0.3}, samples=80, flip=0.0, undefined=0.0, stochastic=())
    assert not [f for f in listed(good, 80).values() if f.severity != "note"]
    table = synthetic.table({"a": 0.0, "b": 0.3, "lime": 0.2}, samples=20)
    table.loc[(table["explainer"] == "b") & (table["condition"] == "jpeg"), ["value", "status"]] = [np.nan, "undefined"]
    models = {"mobilenet": {"untrained_head": "classifier.1 has initial weights"}}
    told = listed(table, 20, unreadable=1, models=models)
    assert {"The model looks untrained", "Few samples", "Unreadable files"} <= set(told)
    assert told["Unreadable files"].items == ("img/0020.jpg: cannot identify image file",)
    text = " ".join(f"{f.title} {f.seen} {' '.join(f.items)}" for f in told.values())
    assert "b: 4 of 5 conditions" in text


def test_charts_show_the_numbers_of_the_ranking() -> None:
    found = frames_of(synthetic.QUALITY)
    drawn: dict[str, Any] = {part.key: part for part in parts(found.judged)}
    for part in drawn.values():
        if isinstance(part, Chart):
            is_sound(part)
    plots = drawn["scores"].plots
    assert [plot.title for plot in plots][:2] == ["All perturbations", "rotation 15°"]
    names = [found.judged.looks[e].name for e in found.ranking["explainer"]]
    overall, cells = marks(plots[:1]), found.cells()
    assert overall["name"].tolist() == names
    np.testing.assert_allclose(overall[["value", "low", "high"]], found.ranking[["score", "low", "high"]], atol=1e-5)
    for plot, (condition, level) in zip(plots[1:], found.cube.conditions, strict=True):
        own = cells[(cells["condition"] == condition) & (cells["level"] == level)].set_index("explainer")
        wanted = own.loc[found.ranking["explainer"], "best"]
        np.testing.assert_allclose(marks([plot])["value"], wanted, atol=1e-5)
        low = own.loc[found.ranking["explainer"], "best_low"].to_numpy()
        hollow = [d.kind == "hollow" for d in plot.sheet.pieces if isinstance(d, Dot)]
        assert hollow == (low <= 0).tolist(), "hollow: the interval reaches chance"
    assert "severity-0" not in drawn


def test_many_methods_get_a_table_of_cells() -> None:
    found = frames_of({f"m{i}": 0.02 * i for i in range(30)}, samples=6)
    chart = next(part for part in parts(found.judged) if part.key == "scores")
    assert isinstance(chart, Chart) and len(chart.plots) == 1
    (table,) = chart.folded["Every method under every perturbation"]
    cells = marks([table]).set_index(["row", "column"])["value"]
    best = found.cells().set_index(["explainer", "condition"])["best"]
    assert len(cells) == len(best.dropna()) and cells[
        "m3", "JPEG 40" if "JPEG 40" in cells["m3"] else "jpeg quality 40"
    ] == (pytest.approx(best["m3", "jpeg"], abs=1e-5))


@pytest.mark.parametrize("mode", [0, 1])
def test_colours_can_be_read_on_the_card(mode: int) -> None:
    """Contrast of WCAG: every method reaches 4.5:1 on a card, in light and dark."""

    def luminance(colour: str) -> float:
        parts = [
            v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4
            for v in (c / 255 for c in bytes.fromhex(colour[1:]))
        ]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    card = luminance(COLOURS["card"][mode])
    for name in [*(f"m{i}" for i in range(len(FIXED + SHARED))), "ink", "soft", "third", "control", "accent"]:
        dark, bright = sorted((card, luminance(COLOURS[name][mode])))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, name


def test_a_method_has_one_name_and_colour_whatever_its_parameters() -> None:
    assert set(EXPLAINERS) <= set(TITLES)
    few, many = looks(["lime(samples=8)"]), looks(["grad_cam", "lime(samples=8)", "lime(samples=32)"], ["random"])
    assert few["lime(samples=8)"].colour == many["lime(samples=8)"].colour == many["lime(samples=32)"].colour
    assert [look.open for look in many.values()] == [False, False, True]
    assert len({colour_of(name) for name in [*TITLES][:9]}) == 9


def test_text_summary_is_aligned() -> None:
    text = text_summary(synthetic.table(), synthetic.samples(), synthetic.manifest())
    lines = text.splitlines()
    header = next(i for i, line in enumerate(lines) if line.strip().startswith("rank"))
    column = lines[header].index("calibrated")
    rows = lines[header + 1 : header + 6]
    assert all(re.match(r"[−\d]", row[column]) and row[column - 2 : column] == "  " for row in rows)
    assert rows[0].endswith("control") and "sobel" in rows[0]
    assert lines[0] == "mobilenet on photos, 40 samples"
    assert "unreadable files" in " ".join(lines[-4:])

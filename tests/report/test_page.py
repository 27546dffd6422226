"""The page and the verdict: complete, inert, offline, and never saying more than the numbers do."""

from __future__ import annotations

import base64
import io
import re
from dataclasses import replace
from email.message import Message
from typing import Any

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from heatproof.axes.stability.report import lead
from heatproof.axes.tiles import tiles_of, worst_pair_tiles
from heatproof.errors import UserError
from heatproof.evaluation import GalleryItem
from heatproof.explainers import EXPLAINERS
from heatproof.maps.overlay import OPACITIES, overlaid
from heatproof.report.canvas import Dot, Plot, Words
from heatproof.report.findings import PILOT, findings
from heatproof.report.images import Album, draw_map, photo
from heatproof.report.page import build_report
from heatproof.report.page_parts import Chart, part_of
from heatproof.report.proof_sheet import ProofSheet, proof_sheets
from heatproof.report.proof_sheet_drawing import drawn, proof_sheet
from heatproof.report.sections import number_rows
from heatproof.report.styles import COLOURS
from heatproof.report.terminal import text_summary
from heatproof.results.axis_result import AxisResult
from heatproof.results.names import OWN_COLOURS, SHARED_COLOURS, TITLES, colour_of, looks
from heatproof.results.reports import components_of
from heatproof.results.score_estimates import pair_scores
from heatproof.runs.engine import gallery_ids
from heatproof.runs.results import arrays_of_run, axis_results
from heatproof.text import number, to_csv, with_interval
from support import synthetic
from support.manifests import manifest_of
from support.pages import NASTY, Page, is_sound, marks

SWEEP = (("rotation", 5.0), ("rotation", 15.0), ("rotation", 30.0), ("jpeg", 40.0))
SHORT = (("rotation", 15.0), ("jpeg", 40.0))


@pytest.fixture(scope="module")
def html() -> str:
    table = synthetic.table(conditions=SWEEP)
    return build_report(
        axis_results(
            table, synthetic.samples(), synthetic.gallery(conditions=SWEEP), synthetic.manifest()
        ),
        synthetic.samples(),
        synthetic.manifest(),
    )


@pytest.fixture(scope="module")
def page(html: str) -> Page:
    return Page(html)


def result_of(quality: dict[str, float], **options: Any) -> AxisResult:
    return synthetic.judged_of(synthetic.table(quality, **options))


def parts_of(result: AxisResult) -> dict[str, Any]:
    """What the page shows of a result, by its keys."""
    parts = [part_of(component, result.looks) for component in components_of(result)]
    return {part.key: part for part in parts if part is not None}


def hold_of(table: pd.DataFrame, gallery: list[GalleryItem] | None = None) -> ProofSheet:
    (proof,) = proof_sheets(
        [synthetic.judged_of(table, gallery or [])], synthetic.samples(unreadable=0)
    )
    return proof


def test_a_hundred_samples_are_no_trial_any_more() -> None:
    few, enough = (
        hold_of(synthetic.table({"grad_cam": 0.5}, SWEEP[:1], n)).chips[0][0]
        for n in (PILOT - 1, PILOT)
    )
    assert str(PILOT - 1) in few and str(PILOT) in enough
    assert len(few) > len(enough), "only the small one is called a trial"


def test_every_section_is_there_in_order(page: Page) -> None:
    ids = [a["id"] for _, a in page.tags if "id" in a]
    wanted = ["sheet", "scorecard", "findings", "stability", "stability-scores"]
    wanted += ["stability-bars", "stability-retention", "stability-severity-0", "details-run"]
    places = [ids.index(place) for place in wanted]
    assert places == sorted(places)
    text = " ".join(page.words)
    for fact in (
        "8c1f0e6a2b7d",
        "0f3e9d8c7b6a",
        "40 samples",
        "1 unreadable",
        "19:40 UTC",
    ):
        assert fact in text
    for made in (
        "heatproof run study.yaml --out runs/photos --limit 40",
        "fass-paper",
        "2.13.0",
        "img/0040.jpg",
    ):
        assert made in text


def test_anchors_are_stable_and_lead_to_something(page: Page) -> None:
    ids = [a["id"] for _, a in page.tags if "id" in a]
    assert len(ids) == len(set(ids))
    wanted = {
        "sheet",
        "scorecard",
        "findings",
        "stability",
        "stability-scores",
        "stability-bars",
        "details-run",
    }
    assert wanted <= set(ids)
    assert {str(a["href"])[1:] for tag, a in page.tags if tag == "a"} <= {*ids}


def test_every_chart_is_drawn_and_its_marks_carry_their_numbers(page: Page) -> None:
    places = [a["id"] for _, a in page.tags if a.get("class") == "chart"]
    keys = [str(key).removeprefix("stability-") for key in places]
    assert keys == ["scores", "map", "bars", "retention", "severity-0"]
    assert all(a["aria-label"] for tag, a in page.tags if tag == "svg" and "aria-hidden" not in a)
    drawn = [a for tag, a in page.tags if tag == "g" and a.get("class") == "mark"]
    assert len(drawn) > 5 * (1 + len(SWEEP)) + 3 * 5 and all(a["data-value"] for a in drawn)


def test_how_often_components_disagree_is_said(html: str) -> None:
    said = re.search(r"disagree[^.]* (\d+) of (\d+) comparisons \((\d+) %\)", html)
    assert said is not None
    count, compared, share = map(int, said.groups())
    assert 0 <= count <= compared and share == round(100 * count / compared)


def test_every_picture_of_the_sheet_is_there_once_and_is_used(page: Page) -> None:
    (samples,) = page.payload["sheets"].values()
    assert (
        len(samples) == 3
        and len(samples[0]["cells"]) == 5
        and len(samples[0]["cells"][0]) == 1 + len(SWEEP)
    )
    used = {key for s in samples for key, _ in s["inputs"]} | {
        c[0] for s in samples for row in s["cells"] for c in row
    }
    assert used - {""} == page.payload["pictures"].keys()
    uris = list(page.payload["pictures"].values())
    assert len(set(uris)) == len(uris) and all(uri.startswith("data:image/") for uri in uris)
    images = [a for tag, a in page.tags if tag == "img"]
    assert images and all(
        a["alt"] or a["class"] == "photo" for a in images
    )  # a backdrop needs no words


def test_the_page_asks_for_nothing_from_outside(html: str, page: Page) -> None:
    assert not [
        tag for tag, _ in page.tags if tag in {"link", "iframe", "object", "embed", "base", "form"}
    ]
    for _, attributes in page.tags:
        for name in ("src", "href", "srcset", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/"))
    names = html.replace("http://www.w3.org/", "")  # of the languages in which a picture is saved
    assert not re.search(r"https?://|url\((?!#)|@import|\bfetch\(|XMLHttpRequest", names)
    policy = next(
        a["content"] for _, a in page.tags if a.get("http-equiv") == "Content-Security-Policy"
    )
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
    gallery = synthetic.gallery(2, (NASTY, "b"), SHORT, dataset=NASTY, model=NASTY)
    gallery = [replace(e, sample=e.sample + NASTY) for e in gallery]
    manifest = synthetic.manifest(models={NASTY: {"fingerprint": NASTY, "untrained_head": NASTY}})
    nasty = {"command": NASTY, "created": NASTY, "heatproof": NASTY, "versions": {NASTY: NASTY}}
    manifest = manifest.model_copy(update=nasty)
    page = Page(build_report(axis_results(table, samples, gallery, manifest), samples, manifest))
    assert sum(tag == "script" for tag, _ in page.tags) == 2
    assert not [a for _, a in page.tags if "onerror" in a]
    assert NASTY in " ".join(page.words)


def test_maps_are_as_large_as_the_budget_allows() -> None:
    explainers = {f"method_{i}": 0.1 * i for i in range(8)}
    noise = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float16)
    gallery = [
        item if item.map is None else replace(item, map=np.roll(noise, i))
        for i, item in enumerate(synthetic.gallery(6, tuple(explainers)))
    ]
    proof, sizes = hold_of(synthetic.table(explainers, samples=8, flip=0.0), gallery), []
    for budget in (2_000_000, 700_000, 40_000):
        album = Album()
        kept = len(proof.pictured(album, budget))
        sizes.append((kept, sum(map(len, album.pictures.values()))))
        assert sizes[-1][1] < 1.1 * budget or kept == 1
    assert [kept for kept, _ in sizes] == [6, 6, 1]


def test_the_sheet_opens_at_the_median_and_tells_flipped_pairs_and_scores() -> None:
    table = synthetic.table(flip=0.0, undefined=0.0)
    lost = (table["sample"] == "img/0001.jpg") & (table["condition"] == "rotation")
    table.loc[lost, ["value", "chance", "status", "reason"]] = [
        np.nan,
        np.nan,
        "flipped",
        "the prediction changed",
    ]
    table["predicted_after"] = np.where(lost, "teapot", "")
    judged = synthetic.judged_of(table, synthetic.gallery())
    found = tiles_of(judged)
    assert found is not None and [c[0] for c, _ in found.columns][:4] == [
        "clean",
        "rotation",
        "translation",
        "brightness",
    ]
    assert all(
        amount in words
        for (_, words), amount in zip(found.columns[1:4], ("15", "20", "50"), strict=True)
    )
    every = pair_scores(judged.arrays.for_measure("fass"), "fass")
    methods = [i for i, e in enumerate(judged.arrays.explainers) if e not in judged.arrays.controls]
    means = np.nanmean(every[methods], (0, 1))
    far = np.abs(means - np.median(means))
    assert found.samples == [
        *sorted(("img/0000.jpg", "img/0002.jpg"), key=lambda s: far[int(s[4:8])]),
        "img/0001.jpg",
    ]
    (proof,) = proof_sheets([judged], synthetic.samples(unreadable=0))
    shown = {s["id"]: s for s in proof.pictured(Album(), 10**7)}
    flipped, row = shown["img/0001.jpg"], proof.rows.index("grad_cam")
    assert flipped["inputs"][1][1] == flipped["cells"][row][1][2]
    assert "teapot" in flipped["inputs"][1][1] and not flipped["cells"][row][1][1]
    keys = (
        (table["sample"] == "img/0001.jpg")
        & (table["condition"] == "jpeg")
        & (table["explainer"] == "grad_cam")
    )
    value, chance = table.loc[keys & (table["measure"] == "fass"), ["value", "chance"]].iloc[0]
    assert flipped["cells"][row][-1][1:3] == [number((value - chance) / (1 - chance)), ""]
    assert "teapot" in shown["img/0002.jpg"]["said"] and "88" in shown["img/0002.jpg"]["said"]


def test_the_worst_pair_of_each_method_is_shown() -> None:
    table = synthetic.table({"a": 0.5, "random": 0.0}, SHORT, samples=30, flip=0.0)
    (arrays,) = arrays_of_run(table)
    arrays = arrays.for_measure("fass")
    scores = pair_scores(arrays, "fass")[0]
    c, s = np.unravel_index(np.nanargmin(scores), scores.shape)
    image, values = np.zeros((8, 8, 3), np.uint8), np.eye(8, dtype=np.float32)
    gallery = []
    for i, j in ((c, s), (1 - c, (s + 1) % 30)):
        place = ("photos", "mobilenet", "a")
        gallery.append(
            GalleryItem(*place, "clean", 0.0, arrays.samples[j], image, values, "stability")
        )
        gallery.append(
            GalleryItem(
                *place, *arrays.conditions[i], arrays.samples[j], image, -values, "stability"
            )
        )
    before, after = worst_pair_tiles(synthetic.judged_of(table, gallery[::-1]))
    assert before.item.condition == "clean" and before.item.explainer == "a", "no controls"
    assert (after.item.sample, after.item.condition) == (arrays.samples[s], arrays.conditions[c][0])
    assert after.score == pytest.approx(np.nanmin(scores), abs=1e-6)


@pytest.mark.parametrize(
    ("quality", "samples", "named"),
    [
        ({"grad_cam": 0.6, "saliency": 0.3, "lime": 0.31}, 400, {"Grad-CAM"}),
        ({"grad_cam": 0.6, "saliency": 0.3}, 40, {"Grad-CAM"}),
        ({"grad_cam": 0.4, "saliency": 0.4, "lime": 0.1}, 40, {"Grad-CAM", "Saliency"}),
        ({"grad_cam": 0.0, "saliency": 0.0}, 40, set()),
        ({"grad_cam": 0.5}, 40, {"Grad-CAM"}),
        ({"random": 0.0}, 40, set()),
    ],
)
def test_the_sentence_names_those_that_tests_and_intervals_allow(
    quality: dict[str, float], samples: int, named: set[str]
) -> None:
    proof = hold_of(synthetic.table(quality, samples=samples, flip=0.0, undefined=0.0))
    every = {look.name for look in proof.looks.values()}
    claimed = re.sub(r"\([^()]*\)", "", proof.sentence)  # scores, and who is next best
    assert {name for name in every if name in claimed} == named


def test_the_sheet_is_a_drawing_too() -> None:
    whole = synthetic.table(flip=0.0, undefined=0.0)
    proof = hold_of(whole, synthetic.gallery(flipped=False))
    sheet = drawn(proof)
    assert sheet.svg("", alone=True).count("<image") == 6 + 6 * len(proof.rows)
    assert sheet.encoded("png", "Proof sheet", 7)[:4] == b"\x89PNG"
    with pytest.raises(UserError, match="img/0001"):
        drawn(proof, "img/001.jpg")
    words = [piece.text for piece in sheet.pieces if isinstance(piece, Words)]
    lost = [
        s if s.map is None or s.explainer != "lime" else replace(s, map=None)
        for s in synthetic.gallery(flipped=False)
    ]
    instead = [
        piece.text for piece in drawn(hold_of(whole, lost)).pieces if isinstance(piece, Words)
    ]
    (told,) = set(instead) - set(words)
    assert instead.count(told) == 6, "where a map is missing the tile says so"


def test_a_sheet_of_what_the_run_does_not_have_is_refused() -> None:
    for given, said in (
        ({"model": "mobilnet"}, "'mobilenet'"),
        ({"dataset": "fotos"}, "'photos'"),
    ):
        with pytest.raises(UserError, match=said):
            proof_sheet(
                axis_results(synthetic.table(), synthetic.samples(), [], manifest_of()),
                synthetic.samples(),
                **given,
            )
    with pytest.raises(UserError, match="no scores"):
        proof_sheet([], synthetic.samples())


def test_the_samples_on_show_are_drawn_before_the_run() -> None:
    ids = tuple(f"{i:05d}" for i in range(5000))
    shown = gallery_ids(ids, 0)
    assert len(shown) == 12 and shown == gallery_ids(ids[::-1], 0) != gallery_ids(ids, 1)
    assert max(shown) > "02500", "not the first ones"


def test_text_that_a_spreadsheet_would_run_is_inert() -> None:
    assert (
        to_csv(pd.DataFrame({"x": ["@a", "-b", "−c"], "y": [-1.5, 2.0, None]}))
        == "x,y\n'@a,-1.5\n'-b,2\n−c,\n"
    )
    other = pd.DataFrame(
        {"=x": pd.Categorical(["=1", "b"]), "y": ["+1", 2.5], "z": [None, "@"], "w": [True, False]}
    )
    assert to_csv(other) == "'=x,y,z,w\n'=1,'+1,,True\nb,2.5,'@,False\n", (
        "whatever the column is made of"
    )


def test_pictures_are_small_and_maps_keep_their_sign() -> None:
    def decode(uri: str) -> Image.Image:
        return Image.open(io.BytesIO(base64.b64decode(uri.split(",", 1)[1])))

    assert decode(photo(np.zeros((400, 200, 3), np.uint8))).size == (80, 160)
    assert decode(photo(np.zeros((28, 28), np.uint8))).size == (28, 28)
    ramp = np.tile(np.linspace(-1, 1, 101), (101, 1))
    grey = np.asarray(decode(draw_map(ramp, signed=True)).convert("L")).astype(int)[50]
    assert grey.shape == (101,) and abs(grey[50] - 128) < 6 and grey[5] < 20 and grey[95] > 235
    ground = np.full((101, 101, 3), 80, np.uint8)
    left, middle, right = overlaid(ground, ramp, signed=True)[50, [3, 50, 97]].astype(int)
    assert left[2] > left[0] + 80 and right[0] > right[2] + 80, "blue below zero, red above"
    washed = 255 - 0.46 * (255 - 80)
    np.testing.assert_allclose(middle, washed, atol=4)  # zero shows the photograph
    dark = overlaid(np.full_like(ground, 255), ramp, signed=False)[50].astype(int).sum(1)
    assert (dark[:50] == dark[0]).all() and (np.diff(dark[51:]) <= 0).all(), (
        "what has no sign shows strength alone"
    )
    assert list(OPACITIES) == sorted(OPACITIES) and OPACITIES[0] == 0


def test_verdict_names_the_winner_with_its_interval() -> None:
    found = result_of({"grad_cam": 0.55, "ig": 0.3, "random": 0.0})
    row = found.ranking.iloc[0]
    first, *others = lead(found)
    assert "Grad-CAM" in first and with_interval(row.score, row.low, row.high) in first
    assert "0.2" in others[0] and "p < 0.001" in others[0]


def test_verdict_does_not_separate_twins() -> None:
    said = lead(result_of({"a": 0.4, "b": 0.4, "c": 0.1}))
    named = re.sub(r" \([^()]*\)", "", said[0])
    assert re.search(r"ndecided between (a and b|b and a)\b", named)
    assert "most stable" not in " ".join(said)


def test_verdict_is_silent_on_five_samples() -> None:
    few = lead(result_of({"a": 0.4, "b": 0.25}, samples=5, flip=0.0, undefined=0.0))
    assert "most stable" not in few[0] and "too few" in few[0]


def test_verdict_tells_chance_and_controls() -> None:
    said = " ".join(
        lead(result_of({"a": 0.4, "noise_like": 0.0, "sobel": 0.7, "random": 0.0}, seed=4))
    )
    assert re.search(r"chance: noise_like\b", said)
    assert re.search(r"Edge filter[^(]*\(0\.7\d+ \[", said)
    assert re.search(r"chance", said) and not re.search(r"chance: a\b", said)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"quality": {"a": 0.5}}, "no other method"),
        ({"quality": {"random": 0.0, "sobel": 0.6}}, "Only controls"),
        ({"flip": 1.1}, "No method has a score"),
        ({"samples": 1, "flip": 0.0, "undefined": 0.0}, "no interval"),
        ({"undefined": 1.1, "flip": 0.0}, "No method has a score"),
    ],
)
def test_degenerate_tables_still_make_a_page(options: dict[str, Any], wanted: str) -> None:
    table = synthetic.table(**{"samples": 10, "conditions": SHORT, **options})
    page = Page(
        build_report(
            axis_results(table, synthetic.samples(), [], manifest_of()),
            synthetic.samples(),
            manifest_of(),
        )
    )
    assert wanted in " ".join(page.words)
    assert not [a for tag, a in page.tags if tag == "g" and "nan" in str(a)]


def test_an_empty_table_says_so() -> None:
    table, samples = synthetic.table().iloc[:0], synthetic.samples(0, unreadable=2)
    page = Page(
        build_report(
            axis_results(table, samples, [], synthetic.manifest()), samples, synthetic.manifest()
        )
    )
    text = " ".join(page.words)
    assert "no pair" in text and "img/0001.jpg" in text
    nothing = " ".join(
        Page(
            build_report(
                axis_results(table, samples.iloc[:0], [], manifest_of()),
                samples.iloc[:0],
                manifest_of(),
            )
        ).words
    )
    assert "no scores" in nothing


def test_each_model_has_its_own_section() -> None:
    other = synthetic.table({"a": 0.5, "b": 0.1}, SHORT, model="vit", seed=2)
    table = pd.concat([synthetic.table({"a": 0.1, "b": 0.5}, SHORT), other])
    samples = pd.concat([synthetic.samples(), synthetic.samples(model="vit", unreadable=0)])
    page = Page(
        build_report(
            axis_results(table, samples, synthetic.gallery(model="vit"), synthetic.manifest()),
            samples,
            synthetic.manifest(),
        )
    )
    assert {"mobilenet on photos", "vit on photos"} <= set(page.words)
    text = " ".join(page.words)
    assert [a["data-open"] for tag, a in page.tags if "data-open" in a] == ["s0", "s1"]
    assert re.search(r"\b(a|b)\b[^.]* 1 of 2 ", text), "each leads on one of two models"


def test_other_evaluations_get_their_numbers() -> None:
    rows = synthetic.table({"a": 0.5}, SWEEP)
    rows = rows[rows["measure"] == "ssim"].assign(measure="sharp_edges", evaluation="sharpness")
    text = " ".join(
        Page(
            build_report(
                axis_results(rows, synthetic.samples(), [], manifest_of()),
                synthetic.samples(),
                manifest_of(),
            )
        ).words
    )
    assert "Sharpness" in text and "sharp edges" in text
    assert re.search(r"\ba scores 0\.", text)
    assert "Sharpness" in text_summary(
        axis_results(rows, synthetic.samples(), (), manifest_of()),
        synthetic.samples(),
        manifest_of(),
    )


def test_a_measure_that_its_axis_does_not_declare_goes_by_its_own_name() -> None:
    rows = synthetic.table({"a": 0.5}, SWEEP)
    more = rows[rows["measure"] == "ssim"].assign(measure="sharp_edges")
    judged = synthetic.judged_of(pd.concat([rows, more]))
    assert {"FASS", "SSIM", "sharp edges"} <= {row.cells[1] for row in number_rows(judged)}


def test_evaluations_whose_names_differ_in_odd_characters_have_places_of_their_own() -> None:
    rows = synthetic.table({"a": 0.5}, SWEEP)
    rows = rows[rows["measure"] == "ssim"].assign(measure="sharp_edges")
    both = pd.concat([rows.assign(evaluation=name) for name in ("edges a", "edges/a")])
    page = Page(
        build_report(
            axis_results(both, synthetic.samples(), [], manifest_of()),
            synthetic.samples(),
            manifest_of(),
        )
    )
    places = [a["id"] for _, a in page.tags if "edges-a" in a.get("id", "")]
    assert len(places) == len(set(places)) and any("edges-a-2" in place for place in places)


def listed(table: pd.DataFrame, samples: int, unreadable: int = 0, **study: Any) -> dict[str, Any]:
    known = synthetic.samples(samples, unreadable=unreadable)
    return {
        f.rule: f
        for f in findings(
            axis_results(table, known, (), synthetic.manifest(**study)),
            known,
            synthetic.manifest(**study),
        )
    }


def test_limits_are_told_when_and_only_when_there_is_cause() -> None:
    good = synthetic.table({"a": 0.5, "b": 0.3}, samples=80, flip=0.0, undefined=0.0, stochastic=())
    assert not [f for f in listed(good, 80).values() if f.severity != "note"]
    tied = synthetic.table({"a": 0.5, "b": 0.5}, samples=80, flip=0.0, undefined=0.0, stochastic=())
    assert set(listed(tied, 80)) - set(listed(good, 80)) == {"tied-methods"}
    assert "b" in listed(tied, 80)["tied-methods"].seen
    table = synthetic.table({"a": 0.0, "b": 0.3, "lime": 0.2}, samples=20)
    table.loc[(table["explainer"] == "b") & (table["condition"] == "jpeg"), ["value", "status"]] = [
        np.nan,
        "undefined",
    ]
    models = {"mobilenet": {"untrained_head": "classifier.1 has initial weights"}}
    told = listed(table, 20, unreadable=1, models=models)
    (unreadable,) = told["unreadable-files"].items
    assert "img/0020.jpg" in unreadable
    assert {"untrained-model", "few-samples"} <= set(told)
    text = " ".join(f"{f.title} {f.seen} {' '.join(f.items)}" for f in told.values())
    assert "4 of 5 conditions" in text


def test_findings_have_their_rules_and_ignored_rules_are_said(monkeypatch: Any) -> None:
    table = synthetic.table({"a": 0.5, "b": 0.3}, samples=12, stochastic=())
    known, manifest = synthetic.samples(12, unreadable=0), synthetic.manifest()

    def page_with(ignored: list[str]) -> str:
        about = manifest.model_copy(update={"ignore": ignored})
        return build_report(axis_results(table, known, (), about), known, about)

    everything = page_with([])
    assert ">few-samples<" in everything and "limit: 100" in everything
    without = page_with(["few-samples", "few-pairs"])
    assert ">few-samples<" not in without and "few-samples, few-pairs" in without
    ignoring = manifest.model_copy(update={"ignore": ["few-samples"]})
    summary = text_summary(axis_results(table, known, (), manifest), known, ignoring)
    assert "few-samples" not in summary.partition("Ignored rules")[0]
    address = Message()
    address["Project-URL"] = "Documentation, https://example.org/docs/"
    monkeypatch.setattr("heatproof.rules.metadata.metadata", lambda name: address)
    assert 'href="https://example.org/docs/rules.html#few-samples"' in page_with([])


def dots_of(plot: Plot) -> pd.DataFrame:
    """The marks of a plot, without the line at chance."""
    found = marks([plot])
    return found[found["name"] != "chance"]


def test_charts_show_the_numbers_of_the_ranking() -> None:
    found = result_of(synthetic.QUALITY)
    drawn = parts_of(found)
    for part in drawn.values():
        if isinstance(part, Chart):
            is_sound(part)
    plots = drawn["scores"].plots
    assert "rotation" in plots[1].title and "15" in plots[1].title
    overall, cells = dots_of(plots[0]), found.cells("fass")
    assert overall["name"].tolist() == [found.name_of(e) for e in found.ranking["explainer"]]
    np.testing.assert_allclose(
        overall[["value", "low", "high"]], found.ranking[["score", "low", "high"]], atol=1e-5
    )
    conditions = found.arrays.for_measure("fass").conditions
    for plot, (condition, level) in zip(plots[1:], conditions, strict=True):
        own = cells[(cells["condition"] == condition) & (cells["level"] == level)]
        own = own.set_index("explainer").loc[found.ranking["explainer"]]
        np.testing.assert_allclose(dots_of(plot)["value"], own["score"], atol=1e-5)
        hollow = [d.kind == "hollow" for d in plot.sheet.pieces if isinstance(d, Dot)]
        assert hollow == (own["low"] <= 0).tolist(), "hollow: the interval reaches chance"
    assert "severity-0" not in drawn


def test_many_methods_get_a_table_of_cells() -> None:
    found = result_of({f"m{i}": 0.02 * i for i in range(30)}, samples=6)
    drawn = parts_of(found)
    assert len(drawn["scores"].plots) == 1
    cells = marks(drawn["map"].plots).set_index(["row", "column"])["value"]
    scores = found.cells("fass").set_index(["explainer", "condition"])["score"]
    assert len(cells) == len(scores.dropna())
    (jpeg,) = [column for column in cells["m3"].index if "jpeg" in column.lower()]
    assert cells["m3", jpeg] == pytest.approx(scores["m3", "jpeg"], abs=1e-5)


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
    for name in [
        *(f"m{i}" for i in range(len(OWN_COLOURS + SHARED_COLOURS))),
        "ink",
        "soft",
        "third",
        "control",
        "accent",
    ]:
        dark, bright = sorted((card, luminance(COLOURS[name][mode])))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, name


def test_a_method_has_one_name_and_colour_whatever_its_parameters() -> None:
    assert set(EXPLAINERS) <= set(TITLES)
    few, many = (
        looks(["lime(samples=8)"]),
        looks(["grad_cam", "lime(samples=8)", "lime(samples=32)"], ["random"]),
    )
    assert (
        few["lime(samples=8)"].colour
        == many["lime(samples=8)"].colour
        == many["lime(samples=32)"].colour
    )
    assert [look.open for look in many.values()] == [False, False, True]
    assert len({colour_of(name) for name in [*TITLES][:9]}) == 9


def test_text_summary_is_aligned() -> None:
    text = text_summary(
        axis_results(synthetic.table(), synthetic.samples(), (), synthetic.manifest()),
        synthetic.samples(),
        synthetic.manifest(),
    )
    lines = text.splitlines()
    header = next(i for i, line in enumerate(lines) if line.strip().startswith("rank"))
    column = lines[header].index("calibrated")
    rows = lines[header + 1 : header + 6]
    assert all(re.match(r"[−\d]", row[column]) and row[column - 2 : column] == "  " for row in rows)
    assert rows[0].endswith("control") and "Edge filter" in rows[0]
    assert all(fact in lines[0] for fact in ("mobilenet", "photos", "40"))
    assert "unreadable" in " ".join(lines)

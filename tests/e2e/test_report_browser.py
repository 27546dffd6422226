"""The page in a real browser: everything draws and answers, nothing complains, asks for the network, or overflows.

The report is opened from its file, as its readers do, in headless Chromium.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from PIL import Image

from heatproof.report import sections as report_sections
from heatproof.report.overview import Overview, overviews
from heatproof.report.page import build_report
from heatproof.report.page_parts import Chart, part_of
from heatproof.report.styles import COLOURS
from heatproof.results.findings import Finding
from heatproof.results.reports import components_of
from heatproof.runs.results import axis_results
from support import synthetic
from support.chromium import AXE, BROWSER, Chromium

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no chromium or chrome binary on this machine"
)
SWEEP = (("rotation", 5.0), ("rotation", 15.0), ("translation", 20.0), ("jpeg", 40.0))
NASTY = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
FORMULA = "=HYPERLINK(1)"
QUALITY = {"grad_cam": 0.5, NASTY: 0.3, FORMULA: 0.1, "random": 0.0}
DRAWN = "document.querySelector('.proof .map') && [...document.querySelectorAll('.proof img')].every((i) => i.naturalWidth)"


NASTY_FINDING = Finding(NASTY, "problem", NASTY, NASTY, NASTY, NASTY, items=(NASTY,) * 4)


def titled_as_it_should(browser: Chromium) -> bool:
    """Whether the title names the run, and no hostile name has set another."""
    title = browser.run("document.title")
    return "mobilenet" in title and "photos" in title and "owned" not in title


@pytest.fixture(scope="module")
def browser() -> Iterator[Chromium]:
    running = Chromium()
    yield running
    running.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    samples = synthetic.samples()
    samples["predicted_name"] = NASTY
    samples["sample"] = samples["sample"] + NASTY
    table = synthetic.table(QUALITY, SWEEP)
    table["sample"] = table["sample"] + NASTY
    gallery = [
        replace(e, sample=e.sample + NASTY) for e in synthetic.gallery(2, tuple(QUALITY), SWEEP)
    ]
    page = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(report_sections, "findings_here", lambda *judged: [NASTY_FINDING])
        page.write_text(
            build_report(
                axis_results(table, samples, gallery, synthetic.manifest()),
                samples,
                synthetic.manifest(),
            ),
            "utf-8",
        )
    return page


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1200, False)])
def test_everything_draws_and_nothing_complains(
    browser: Chromium, report: Path, width: int, dark: bool
) -> None:
    browser.open(report, width, dark=dark)
    browser.wait(DRAWN)
    assert browser.run(
        "[...document.querySelectorAll('.chart')].every((c) => c.querySelector('svg .mark'))"
    )
    assert browser.run("document.querySelectorAll('.chart').length") > 3
    card, ink = (COLOURS[name][int(dark)] for name in ("card", "m0"))
    browser.run(f"document.body.style.color = '{ink}'")
    drawn = browser.run(
        "getComputedStyle(document.querySelector('.mark[data-method=\"Grad-CAM\"] circle')).fill"
    )
    assert drawn == browser.run("getComputedStyle(document.body).color"), (
        "colours follow light and dark"
    )
    browser.run(f"document.body.style.color = '{card}'")
    wide = "(s) => s.getBoundingClientRect().right > s.closest('.plot').getBoundingClientRect().right + 1"
    assert (
        browser.run(
            f"[...document.querySelectorAll('.plot:not([tabindex]) svg')].filter({wide}).length"
        )
        == 0
    )
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    browser.wait(
        "[...document.querySelectorAll('[data-numbers]')].every((t) => t.querySelectorAll('td').length > 100)"
    )
    assert (
        browser.run("document.querySelector('[data-numbers] tbody th').textContent") == "Grad-CAM"
    )
    assert browser.run("document.documentElement.scrollWidth") == width
    assert titled_as_it_should(browser)
    assert browser.run("document.querySelectorAll('img[onerror]').length") == 0
    assert browser.complaints() == []
    assert browser.requests() == [report.as_uri()]


USUAL_QUALITY = {
    "grad_cam": 0.5,
    "lime(samples=32)": 0.2,
    "integrated_gradients(steps=8)": 0.15,
    "gradient_shap": 0.14,
    "random": 0.0,
    "sobel": 0.6,
    "weight_noise": 0.0,
}


def usual_table() -> pd.DataFrame:
    """Scores as the demo's: four methods and three controls under five changes."""
    table = synthetic.table(USUAL_QUALITY, samples=14)
    is_control = table["explainer"].isin(["random", "sobel", "weight_noise"])
    table["role"] = np.where(is_control, "control", "method")
    return table


def overview_of_usual() -> Overview:
    samples, manifest = synthetic.samples(14), synthetic.manifest()
    results = axis_results(usual_table(), samples, [], manifest)
    (overview,) = overviews(results, samples, manifest)
    return overview


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page as the demo's, with twelve samples with maps of noise."""
    noise = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32)
    shown = [
        e if e.map is None else replace(e, map=np.roll(noise, i))
        for i, e in enumerate(synthetic.gallery(12, tuple(USUAL_QUALITY), side=128))
    ]
    samples, manifest = synthetic.samples(14), synthetic.manifest()
    results = axis_results(usual_table(), samples, shown, manifest)
    page = tmp_path_factory.mktemp("usual") / "report.html"
    page.write_text(build_report(results, samples, manifest), "utf-8")
    return page


def test_the_page_keeps_to_its_measures(browser: Chromium, usual: Path) -> None:
    assert usual.stat().st_size < 3_000_000
    first = "document.querySelector('.mini .map').getBoundingClientRect().bottom"
    for width, height in ((1440, 900), (1280, 720), (390, 844)):
        browser.open(usual, width, height)
        browser.wait(DRAWN)
        assert browser.run(first) <= height, "the first map is seen at once"
        assert browser.run("document.documentElement.scrollWidth") == width
        if width == 1440:
            assert browser.run("document.documentElement.scrollHeight") < 4200
            assert (
                browser.run("document.querySelectorAll('#findings .cards')[0].children.length") <= 3
            )
            assert (
                browser.run(
                    "[...document.querySelectorAll('.axis')].filter((a) => a.offsetParent).length"
                )
                == 1
            )
    assert (
        browser.run("getComputedStyle(document.querySelector('.proof tbody th')).position")
        == "sticky"
    )


@pytest.mark.parametrize("dark", [False, True])
def test_the_first_screen_has_sentence_table_and_caveat(
    browser: Chromium, usual: Path, dark: bool
) -> None:
    browser.open(usual, 1366, 1000, dark)
    browser.wait(DRAWN)
    for part in (".verdict .sentence", ".tests", ".caveat.late"):
        box = browser.run(f"document.querySelector('{part}').getBoundingClientRect().toJSON()")
        assert box["top"] >= 0 and box["bottom"] <= 1000 and box["width"] > 200, part


@pytest.mark.parametrize("width", [1366, 390])
def test_the_first_screen_says_what_the_overview_says(
    browser: Chromium, usual: Path, width: int
) -> None:
    overview = overview_of_usual()
    browser.open(usual, width)
    browser.wait(DRAWN)
    assert browser.run("document.querySelector('.sentence').textContent") == overview.headline
    assert overview.caveat is not None
    assert overview.caveat.claim in browser.run("document.querySelector('.caveat').textContent")
    shown = ".tests tbody tr" if width == 1366 else ".blocks li"
    lines = browser.run(
        f"[...document.querySelectorAll('{shown}')].filter((e) => e.offsetParent).map((e) => e.innerText)"
    )
    cells = [
        (overview.looks[name].name, column.cell(name))
        for column in overview.columns
        for name in overview.rows
    ]
    if width == 1366:  # a row has the cells of all tests
        lines = [line for _ in overview.columns for line in lines]
    assert len(lines) == len(cells)
    for line, (name, cell) in zip(lines, cells, strict=True):
        for text in (name, cell.text, str(cell.label), cell.interval):
            assert text in line


@pytest.mark.parametrize("width", [1366, 390])
def test_the_copied_picture_is_what_is_on_the_screen(
    browser: Chromium, usual: Path, width: int
) -> None:
    browser.open(usual, width, 1000, pixels_per_point=2)
    browser.wait(DRAWN)
    with Image.open(io.BytesIO(browser.copied_picture("[data-picture]"))) as saved:
        copied = np.asarray(saved.convert("RGB")).astype(int)
    browser.run("scrollTo(0, 0)")
    box = browser.page.locator(".verdict").bounding_box()
    shot = browser.page.screenshot(full_page=True, clip=box)
    with Image.open(io.BytesIO(shot)) as screen:
        shown = np.asarray(screen.convert("RGB")).astype(int)
    margin = 2 * 16
    inside = copied[margin:-margin, margin:]
    height = min(len(inside), len(shown)) - 2 * 60  # the buttons below are not in the picture
    wide = min(inside.shape[1], shown.shape[1])
    assert height > 600 and wide >= 2 * (width - 60)
    # Text may begin within a pixel, so points of two by two pixels are compared.
    difference = np.abs(in_points(inside[:height, :wide]) - in_points(shown[:height, :wide]))
    share = float((difference.max(-1) > 60).mean())
    assert share < 0.04, "type, colours and positions are those of the screen"
    is_coloured = np.ptp(inside, axis=-1) > 60
    assert is_coloured.mean() > 0.01, "maps keep their colours"
    is_blank = np.ptp(copied.reshape(len(copied), -1), axis=1) < 8
    assert not is_blank[-2 * 60 :].all(), "no strip is left empty"


def in_points(pixels: NDArray[np.int64]) -> NDArray[np.float64]:
    """The mean colour of every two by two pixels."""
    height, width = pixels.shape[0] // 2, pixels.shape[1] // 2
    return pixels[: 2 * height, : 2 * width].reshape(height, 2, width, 2, 3).mean((1, 3))


def test_a_picture_that_cannot_be_copied_is_saved(browser: Chromium, usual: Path) -> None:
    browser.open(usual, 1366, 1000)
    browser.wait(DRAWN)
    browser.run("void (navigator.clipboard.write = () => Promise.reject(new Error('denied')))")
    saved = browser.saved_by("document.querySelector('[data-picture]').click()", "verdict.png")
    with Image.open(io.BytesIO(saved)) as picture:
        assert picture.width > 2 * 900
    assert browser.complaints() == []


def test_everything_is_large_enough_to_be_touched(browser: Chromium, usual: Path) -> None:
    browser.open(usual, 390, 844)
    browser.wait(DRAWN)
    small = """[...document.querySelectorAll('button, summary, select, input, nav a, .actions a, .tests a, .axis-head a')]
        .filter((e) => e.offsetParent).map((e) => [e.outerHTML.slice(0, 90), e.getBoundingClientRect()])
        .filter(([, b]) => b.width < 24 || b.height < 24).map(([name, b]) => `${name} ${b.width}x${b.height}`)"""
    assert list(browser.run(small)) == []


def test_paper_has_few_pages(browser: Chromium, usual: Path) -> None:
    browser.open(usual, 1440)
    browser.wait(DRAWN)
    printed = browser.page.pdf(prefer_css_page_size=True, print_background=True)
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) <= 4


def test_samples_are_picked_outlined_enlarged_and_saved(
    browser: Chromium, report: Path, tmp_path: Path
) -> None:
    browser.open(report)
    browser.wait(DRAWN)
    said = "document.querySelector('[data-said]').textContent"
    first = browser.run(said)
    assert "typical" in first and NASTY in first
    browser.run("document.querySelectorAll('[data-pick]')[1].click()")
    assert browser.run(said) != first
    assert browser.run(
        "[...document.querySelectorAll('[data-pick]')].map((b) => b.ariaPressed)"
    ) == ["false", "true"]
    browser.run("document.querySelector('[data-outline]').click()")
    maps = "document.querySelectorAll('.proof .map').length"
    browser.wait(f"document.querySelectorAll('.proof canvas').length === {maps}")
    inked = """(() => { const c = document.querySelector('.proof canvas');
        const data = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
        return data.filter((v, i) => i % 4 === 3 && v).length / (c.width * c.height); })()"""
    assert 0.001 < browser.run(inked) <= 0.06, "an edge of the strongest twentieth"
    browser.run("document.querySelectorAll('.proof .enlarge')[1].focus()")
    browser.press("Enter")
    browser.wait("document.querySelector('dialog').open")
    title = "document.getElementById('large-title').textContent"
    assert browser.run(title).endswith("5°")
    assert browser.run("document.querySelectorAll('dialog .tile').length") == 1 + len(QUALITY)
    browser.run(
        "window.zoom = document.querySelector('[data-zoom]'); zoom.value = 3; zoom.dispatchEvent(new Event('input'))"
    )
    scaled = "[...new Set([...document.querySelectorAll('dialog .map')].map((m) => getComputedStyle(m).transform))]"
    assert browser.run(scaled) == ["matrix(3, 0, 0, 3, 0, 0)"], "one zoom for all"
    browser.press("ArrowRight")
    assert browser.run(title).endswith("rotated 15°")
    browser.press("Escape")
    browser.wait("!document.querySelector('dialog').open")
    assert browser.run("document.activeElement.className") == "enlarge", (
        "focus goes back to where it was"
    )
    top = """(() => { const map = document.querySelector('.proof .map');
        map.scrollIntoView({ behavior: 'instant', block: 'center' });
        const { left, top } = map.getBoundingClientRect();
        return document.elementsFromPoint(left + 8, top + 8).find((e) => e.matches('.map, .photo')) === map; })()"""
    assert browser.run(top), "the map lies over the photograph"
    save = "document.querySelector('[data-save]').click()"
    with Image.open(io.BytesIO(browser.saved_by(save, "proof-sheet.png"))) as saved:
        colours = np.asarray(saved.convert("RGB"))
    assert colours.shape[1] > 2000 and len(np.unique(colours.reshape(-1, 3)[::97], axis=0)) > 200, (
        "maps are in it"
    )
    assert titled_as_it_should(browser) and browser.complaints() == []


def test_the_scorecard_sorts_and_copies(browser: Chromium, usual: Path) -> None:
    browser.open(usual)
    names = "[...document.querySelectorAll('.score tbody tr')].map((r) => r.dataset.method)"
    before = browser.run(names)
    assert before[0] == "Grad-CAM" and set(before[4:]) == {
        "Random map",
        "Edge filter",
        "Weight noise",
    }
    browser.run("document.querySelectorAll('.score [data-by]')[0].click()")
    assert browser.run(names)[:4] == sorted(before[:4]), "controls stay below"
    browser.run("document.querySelectorAll('.score [data-by]')[1].click()")
    assert browser.run(names)[:4] == before[:4], "best first"
    for kind in ("markdown", "latex"):
        browser.run(f"document.querySelector('[data-table={kind}]').click()")
        browser.wait(f"document.querySelector('[data-table={kind}]').dataset.copied")
    lines = browser.run(
        "document.querySelector('[data-table=markdown]').dataset.copied"
    ).splitlines()
    assert lines[:2] == ["| Method | Stability |", "| --- | ---: |"] and len(lines) == 2 + 7
    assert re.fullmatch(r"\| Grad-CAM \| 0\.\d\d 0\.\d\d–0\.\d\d \|", lines[2])
    latex = browser.run("document.querySelector('[data-table=latex]').dataset.copied")
    assert "\\begin{tabular}{lr}" in latex and latex.count("\\\\") == 8 and "–" not in latex


def test_anchors_open_what_they_lead_to(browser: Chromium, report: Path) -> None:
    browser.open(report)
    browser.run("location.hash = '#stability-bars'")
    browser.wait("document.getElementById('stability-bars').closest('details').open")
    browser.wait("document.querySelector('.head [aria-current]').hash === '#axes'")
    browser.run("location.hash = '#details-cite'")
    browser.wait("document.getElementById('details-cite').open")


def test_several_models_are_one_matrix_and_one_subject(browser: Chromium, tmp_path: Path) -> None:
    models = [f"net{i}" for i in range(4)]
    parts_ = [
        synthetic.table({"a": 0.1, "b": 0.5}, SWEEP, samples=8, model=m, dataset=d)
        for m in models
        for d in "xyz"
    ]
    known = [synthetic.samples(8, 0, model=m, dataset=d) for m in models for d in "xyz"]
    page = tmp_path / "report.html"
    page.write_text(
        build_report(
            axis_results(pd.concat(parts_), pd.concat(known), [], synthetic.manifest()),
            pd.concat(known),
            synthetic.manifest(),
        ),
        "utf-8",
    )
    browser.open(page, 1440)
    assert browser.run("document.documentElement.scrollHeight") < 4000
    assert browser.run("document.querySelectorAll('.matrix [data-open]').length") == 12
    browser.run("document.querySelector('[data-open=s5]').click()")
    shown = "[...document.querySelectorAll('[data-shown]')].filter((s) => !s.hidden).map((s) => s.dataset.shown)"
    assert browser.run(shown) == ["s5"]
    browser.run("location.hash = '#s7-scorecard'")
    browser.wait(f"{shown}[0] === 's7'")
    assert browser.complaints() == []


def test_every_figure_saves_its_numbers(browser: Chromium, report: Path, tmp_path: Path) -> None:
    browser.open(report)
    buttons = int(browser.run("document.querySelectorAll('[data-csv]').length"))
    assert buttons == browser.run("document.querySelectorAll('.chart').length")
    browser.run("document.querySelector('[data-csv]').focus()")
    with browser.page.expect_download() as download:
        browser.press("Enter")
    assert download.value.suggested_filename == "stability-scores.csv"
    rows = list(csv.DictReader(download.value.path().read_text(encoding="utf-8").splitlines()))
    result = synthetic.judged_of(synthetic.table(QUALITY, SWEEP))
    (scores,) = (one for one in components_of(result) if one.key == "scores")
    chart = part_of(scores, result.looks)
    assert isinstance(chart, Chart)
    drawn = [{"plot": plot.title, **data} for plot in chart.every for data in plot.sheet.marks]
    assert len(rows) == len(drawn)
    for row, mark in zip(rows, drawn, strict=True):
        assert (
            row["plot"].startswith(mark["plot"]) and row["name"].removeprefix("'") == mark["name"]
        )
        assert [row[k] for k in ("value", "low", "high")] == [
            mark.get(k, "") for k in ("value", "low", "high")
        ]
    assert {r["name"] for r in rows} == {"Grad-CAM", NASTY, f"'{FORMULA}", "Random map", "chance"}
    assert browser.complaints() == []


def test_marks_are_walked_told_lit_and_sorted(browser: Chromium, report: Path) -> None:
    browser.open(report)
    browser.wait("document.querySelector('.tip')")
    browser.run("document.querySelector('.walk').focus()")
    for _ in range(3):  # the line of chance is the first mark
        browser.press("ArrowRight")
    at = "document.querySelector('.mark.at')"
    walked = browser.run(f"[{at}.dataset.name, Number({at}.dataset.value).toFixed(2)]")
    said = browser.run("document.querySelector('.tip').textContent")
    assert walked[0] == NASTY and said.startswith(f"{NASTY}: {walked[1]} ["), (
        "the second method of the first plot"
    )
    lit = "[...new Set([...document.querySelectorAll('.chart .mark.lit')].map((m) => m.closest('.chart').id))].length"
    of_method = f"(m) => m.dataset.method === {json.dumps(NASTY)}"
    marks = f"[...document.querySelectorAll('.chart .mark')].filter({of_method})"
    having = f"new Set({marks}.map((m) => m.closest('.chart').id)).size"
    assert browser.run(lit) == browser.run(having) > 2, "lit in every chart that has it"
    assert browser.run("document.querySelectorAll('.tests tr.lit').length") == 1
    assert browser.run("document.querySelectorAll('.proof tr.lit, .score tr.lit').length") == 2
    browser.press("Escape")
    assert browser.run(
        "document.querySelector('.tip').hidden && !document.querySelector('.mark.lit')"
    )
    order = """(() => { const rows = [...document.querySelectorAll('.plot')[1].querySelectorAll('.mark[data-y]')];
        const top = (row) => row.querySelector('circle').getBoundingClientRect().top;
        return rows.sort((a, b) => top(a) - top(b)).map((row) => Number(row.dataset.value)); })()"""
    browser.run("document.querySelectorAll('[data-sort]')[1].click()")
    browser.wait(f"{order}.every((v, i, all) => !i || v <= all[i - 1])")
    assert browser.run("document.querySelectorAll('[data-sort]')[1].ariaPressed") == "true"
    assert browser.complaints() == []


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
@pytest.mark.parametrize(("dark", "enlarged"), [(False, False), (True, True)])
def test_axe_finds_nothing_serious(
    browser: Chromium, report: Path, dark: bool, enlarged: bool
) -> None:
    browser.open(report, dark=dark)
    browser.wait("document.querySelector('.proof .map')")
    if enlarged:
        browser.run("document.querySelector('.enlarge').click()")
    assert browser.violations() == []

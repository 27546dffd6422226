"""The page in a real browser: everything draws and answers, nothing complains, asks for the network, or overflows.

The report is opened from its file, as its readers do, in headless Chromium.
"""

from __future__ import annotations

import base64
import csv
import io
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from PIL import Image

from heatproof.report import sections as report_sections
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
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    running = Chromium(tmp_path_factory.mktemp("profile"))
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
        "[...document.querySelectorAll('.chart')].every((c) => c.querySelector('svg .mark circle'))"
    )
    assert browser.run("document.querySelectorAll('.chart').length") == 4
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


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page as the demo's: four methods and three controls under five changes, twelve samples with maps of noise."""
    quality = {
        "grad_cam": 0.5,
        "lime(samples=32)": 0.2,
        "integrated_gradients(steps=8)": 0.15,
        "gradient_shap": 0.14,
    }
    quality |= {"random": 0.0, "sobel": 0.6, "weight_noise": 0.0}
    noise = np.random.default_rng(0).normal(size=(128, 128)).astype(np.float32)
    shown = [
        e if e.map is None else replace(e, map=np.roll(noise, i))
        for i, e in enumerate(synthetic.gallery(12, tuple(quality), side=128))
    ]
    table = synthetic.table(quality, samples=14)
    table["role"] = np.where(
        table["explainer"].isin(["random", "sobel", "weight_noise"]), "control", "method"
    )
    page = tmp_path_factory.mktemp("usual") / "report.html"
    page.write_text(
        build_report(
            axis_results(table, synthetic.samples(14), shown, synthetic.manifest()),
            synthetic.samples(14),
            synthetic.manifest(),
        ),
        "utf-8",
    )
    return page


def test_the_page_keeps_to_its_measures(browser: Chromium, usual: Path) -> None:
    assert usual.stat().st_size < 3_000_000
    first = "document.querySelector('.proof .map').getBoundingClientRect().bottom"
    for width, height, screens in ((1440, 900, 1), (1280, 720, 1), (390, 844, 2)):
        browser.open(usual, width, height)
        browser.wait(DRAWN)
        assert browser.run(first) <= screens * height, "the first map is seen soon"
        assert browser.run("document.documentElement.scrollWidth") == width
        if width == 1440:
            assert browser.run("document.documentElement.scrollHeight") < 4000
            assert (
                browser.run("document.querySelector('.sheet').getBoundingClientRect().bottom") < 960
            )
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


def test_paper_has_two_pages(browser: Chromium, usual: Path) -> None:
    browser.open(usual, 1440)
    browser.wait(DRAWN)
    printed = browser.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)["data"]
    assert len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(printed))) == 2


def test_samples_are_picked_outlined_enlarged_and_saved(
    browser: Chromium, report: Path, tmp_path: Path
) -> None:
    browser.open(report)
    browser.wait(DRAWN)
    said = "document.querySelector('[data-said]').textContent"
    first = browser.run(said)
    assert "the nearest to the median of those drawn for it" in first and NASTY in first
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
    browser.run("document.querySelectorAll('.enlarge')[1].focus()")
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
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    browser.run("document.querySelector('[data-save]').click()")
    with Image.open(io.BytesIO(arrived(tmp_path / "proof-sheet.png"))) as saved:
        colours = np.asarray(saved.convert("RGB"))
    assert colours.shape[1] > 2000 and len(np.unique(colours.reshape(-1, 3)[::97], axis=0)) > 200, (
        "maps are in it"
    )
    assert titled_as_it_should(browser) and browser.complaints() == []


def arrived(path: Path) -> bytes:
    """A file that the browser saves, once it is whole."""
    until = time.monotonic() + 30
    while not path.is_file() and time.monotonic() < until:
        time.sleep(0.05)
    return path.read_bytes()


def test_the_scorecard_sorts_and_copies(browser: Chromium, usual: Path) -> None:
    browser.open(usual)
    names = "[...document.querySelectorAll('.score tbody tr')].map((r) => r.dataset.method)"
    before = browser.run(names)
    assert before[0] == "Grad-CAM" and set(before[4:]) == {"Random", "Sobel", "Weight noise"}
    browser.run("document.querySelectorAll('.score [data-by]')[1].click()")
    assert browser.run(names)[:4] == sorted(before[:4]), "controls stay below"
    browser.run("document.querySelectorAll('.score [data-by]')[0].click()")
    for kind in ("markdown", "latex"):
        browser.run(f"document.querySelector('[data-table={kind}]').click()")
        browser.wait(f"document.querySelector('[data-table={kind}]').dataset.copied")
    lines = browser.run(
        "document.querySelector('[data-table=markdown]').dataset.copied"
    ).splitlines()
    assert (
        lines[:2] == ["| Rank | Method | Stability |", "| --- | --- | ---: |"]
        and len(lines) == 2 + 7
    )
    assert re.fullmatch(r"\| 1 \| Grad-CAM \| 0\.\d\d 0\.\d\d–0\.\d\d \|", lines[2])
    latex = browser.run("document.querySelector('[data-table=latex]').dataset.copied")
    assert "\\begin{tabular}{llr}" in latex and latex.count("\\\\") == 8 and "–" not in latex


def test_anchors_open_what_they_lead_to(browser: Chromium, report: Path) -> None:
    browser.open(report)
    browser.run("location.hash = '#stability-components'")
    browser.wait("document.getElementById('stability-components').closest('details').open")
    browser.wait("document.querySelector('.head [aria-current]').hash === '#stability'")
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
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    buttons = int(browser.run("document.querySelectorAll('[data-csv]').length"))
    assert buttons == browser.run("document.querySelectorAll('.chart').length")
    browser.run("document.querySelector('[data-csv]').focus()")
    browser.press("Enter")
    rows = list(csv.DictReader(arrived(tmp_path / "stability-scores.csv").decode().splitlines()))
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
    assert {r["name"] for r in rows} == {"Grad-CAM", NASTY, f"'{FORMULA}", "Random"}
    assert browser.complaints() == []


def test_marks_are_walked_told_lit_and_sorted(browser: Chromium, report: Path) -> None:
    browser.open(report)
    browser.wait("document.querySelector('.tip')")
    browser.run("document.querySelector('.walk').focus()")
    for _ in range(2):
        browser.press("ArrowRight")
    at = "document.querySelector('.mark.at')"
    second = browser.run(f"[{at}.dataset.name, Number({at}.dataset.value).toFixed(2)]")
    said = browser.run("document.querySelector('.tip').textContent")
    assert second[0] == NASTY and said.startswith(f"{NASTY}: {second[1]} ["), (
        "the second mark of the first plot"
    )
    lit = "[...new Set([...document.querySelectorAll('.chart .mark.lit')].map((m) => m.closest('.chart').id))].length"
    assert browser.run(lit) == 3, "the method is lit in every chart that has it"
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

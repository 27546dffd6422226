"""The page in a real browser: everything draws and answers, nothing complains, asks for the network, or overflows.

The report is opened from its file, as its readers do, in headless Chromium.
"""

from __future__ import annotations

import csv
import json
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.axes import Finding
from holdfast.axes.stability.page import parts
from holdfast.drawing.charts import Chart
from holdfast.drawing.methods import COLOURS
from holdfast.report import build_report
from holdfast.report import page as build
from holdfast.report import sections as report_sections
from support import synthetic
from support.chromium import BROWSER, Chromium

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome binary on this machine")
SWEEP = (("rotation", 5.0), ("rotation", 15.0), ("translation", 20.0), ("jpeg", 40.0))
NASTY = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
FORMULA = "=HYPERLINK(1)"
QUALITY = {"grad_cam": 0.5, NASTY: 0.3, FORMULA: 0.1, "random": 0.0}
TITLE = "holdfast report: mobilenet on photos"
AXE = find_spec("axe_core_python")


NASTY_FINDING = Finding("", "act", NASTY, NASTY, NASTY, NASTY, items=(NASTY,) * 4)


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
    exhibits = [replace(e, sample=e.sample + NASTY) for e in synthetic.exhibits(2, tuple(QUALITY), SWEEP)]
    page = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "MOST_INLINE", 0)  # as on a large page, tables are written when they are opened
        patch.setattr(report_sections, "findings_here", lambda *judged: [NASTY_FINDING])
        page.write_text(build_report(table, samples, exhibits, synthetic.manifest()), "utf-8")
    return page


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1200, False)])
def test_everything_draws_and_nothing_complains(browser: Chromium, report: Path, width: int, dark: bool) -> None:
    browser.open(report, width, dark=dark)
    browser.wait("document.querySelector('.strip img[src]')")
    assert browser.run("[...document.querySelectorAll('.chart')].every((c) => c.querySelector('svg .mark circle'))")
    assert browser.run("document.querySelectorAll('.chart').length") == 4
    card, ink = (COLOURS[name][int(dark)] for name in ("card", "m0"))
    browser.run(f"document.body.style.color = '{ink}'")
    drawn = browser.run("getComputedStyle(document.querySelector('.mark[data-method=\"Grad-CAM\"] circle')).fill")
    assert drawn == browser.run("getComputedStyle(document.body).color"), "colours follow light and dark"
    browser.run(f"document.body.style.color = '{card}'")
    wide = "(s) => s.getBoundingClientRect().right > s.closest('.plot').getBoundingClientRect().right + 1"
    assert browser.run(f"[...document.querySelectorAll('.plot:not([tabindex]) svg')].filter({wide}).length") == 0
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    browser.wait("[...document.querySelectorAll('[data-numbers]')].every((t) => t.querySelectorAll('td').length > 100)")
    assert browser.run("document.querySelector('[data-numbers] tbody th').textContent") == "grad_cam"
    assert browser.run("document.documentElement.scrollWidth") == width
    assert browser.run("document.title") == TITLE
    assert browser.run("document.querySelectorAll('img[onerror]').length") == 0
    assert browser.complaints() == []
    assert browser.requests() == [report.as_uri()]


def test_the_gallery_turns_and_enlarges(browser: Chromium, report: Path) -> None:
    browser.open(report)
    browser.wait("document.querySelector('.deck:not([hidden]) img[src]')")
    browser.run("document.querySelector('[data-gallery]').value = '1'")
    browser.run("document.querySelector('[data-gallery]').dispatchEvent(new Event('change'))")
    assert browser.run("[...document.querySelectorAll('.deck')].map((d) => d.hidden)") == [True, False, True, True]
    browser.wait("[...document.querySelectorAll('.deck:not([hidden]) img, .strip img')].every((i) => i.naturalWidth)")
    roles = "[...document.querySelectorAll('.deck:not([hidden]) .role')].map((r) => r.textContent)"
    assert browser.run(roles) == ["worst", "median", "best"]
    browser.run("document.querySelector('.deck:not([hidden]) [data-open]').focus()")
    browser.press("Enter")
    browser.wait("document.querySelector('dialog').open")
    said = "document.getElementById('large-title').textContent"
    assert f"{NASTY}, worst pair" in browser.run(said)
    assert browser.run("document.querySelectorAll('dialog .halves img').length") == 7
    browser.press("ArrowRight")
    assert "median pair" in browser.run(said)
    browser.run("document.querySelector('[data-step=\"-1\"]').click()")
    assert "worst pair" in browser.run(said)
    browser.press("Escape")
    browser.wait("!document.querySelector('dialog').open")
    assert browser.run("document.activeElement.hasAttribute('data-open')"), "focus goes back to where it was"
    browser.run("document.querySelector('[data-overlay]').click()")
    assert browser.run("document.querySelectorAll('.gallery.overlay').length") == 0
    top = """(() => { const map = [...document.querySelectorAll('.deck:not([hidden]) .laid .map')].at(0);
        map.scrollIntoView({ behavior: 'instant', block: 'center' });
        const box = map.getBoundingClientRect();
        return document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2) === map; })()"""
    assert browser.run(top), "the map lies over the photograph"
    assert browser.run("document.title") == TITLE and browser.complaints() == []


def test_every_figure_saves_its_numbers(browser: Chromium, report: Path, tmp_path: Path) -> None:
    browser.open(report)
    browser.wait("document.querySelector('.strip img[src]')")
    browser.call("Page.setDownloadBehavior", behavior="allow", downloadPath=str(tmp_path))
    buttons = int(browser.run("document.querySelectorAll('[data-csv]').length"))
    assert buttons == browser.run("document.querySelectorAll('.chart').length")
    browser.run("document.querySelector('[data-csv]').focus()")
    browser.press("Enter")
    until = time.monotonic() + 30
    wanted = tmp_path / "s0-a0-scores.csv"
    while not wanted.is_file() and time.monotonic() < until:
        time.sleep(0.05)
    rows = list(csv.DictReader(wanted.read_text(encoding="utf-8").splitlines()))
    chart = next(p for p in parts(synthetic.frames_of(synthetic.table(QUALITY, SWEEP)).judged) if p.key == "scores")
    assert isinstance(chart, Chart)
    drawn = [{"plot": plot.title, **data} for plot in chart.every for data in plot.sheet.marks]
    assert len(rows) == len(drawn)
    for row, mark in zip(rows, drawn, strict=True):
        assert row["plot"].startswith(mark["plot"]) and row["name"].removeprefix("'") == mark["name"]
        assert [row[k] for k in ("value", "low", "high")] == [mark.get(k, "") for k in ("value", "low", "high")]
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
    assert second[0] == NASTY and said.startswith(f"{NASTY}: {second[1]} ["), "the second mark of the first plot"
    lit = "[...new Set([...document.querySelectorAll('.mark.lit')].map((m) => m.closest('.chart').id))].length"
    assert browser.run(lit) == 3, "the method is lit in every chart that has it"
    browser.press("Escape")
    assert browser.run("document.querySelector('.tip').hidden && !document.querySelector('.mark.lit')")
    order = """(() => { const rows = [...document.querySelectorAll('.plot')[1].querySelectorAll('.mark[data-y]')];
        const top = (row) => row.querySelector('circle').getBoundingClientRect().top;
        return rows.sort((a, b) => top(a) - top(b)).map((row) => Number(row.dataset.value)); })()"""
    browser.run("document.querySelectorAll('[data-sort]')[1].click()")
    browser.wait(f"{order}.every((v, i, all) => !i || v <= all[i - 1])")
    assert browser.run("document.querySelectorAll('[data-sort]')[1].ariaPressed") == "true"
    assert browser.complaints() == []


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
@pytest.mark.parametrize(("dark", "enlarged"), [(False, False), (True, True)])
def test_axe_finds_nothing_serious(browser: Chromium, report: Path, dark: bool, enlarged: bool) -> None:
    assert AXE is not None and AXE.origin is not None
    browser.open(report, dark=dark)
    browser.wait("document.querySelector('.strip img[src]')")
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    browser.run(Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8") + "; 0")
    if enlarged:
        browser.run("document.querySelector('.deck:not([hidden]) [data-open]').click()")
    found = browser.run("axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations)")
    bad = [v for v in found if v["impact"] in ("serious", "critical")]
    assert not bad, json.dumps([(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in bad], indent=1)

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


def draw_all(browser: Chromium) -> int:
    """Scroll from chart to chart until every one is drawn; their number."""
    charts = int(browser.run("document.querySelectorAll('.chart').length"))
    for i in range(charts):
        browser.run(f"document.querySelectorAll('.chart')[{i}].scrollIntoView({{behavior: 'instant'}})")
        browser.wait(f"document.querySelectorAll('.chart')[{i}].querySelector('svg.main-svg')")
    return charts


@pytest.mark.parametrize(("width", "dark"), [(360, True), (1200, False)])
def test_everything_draws_and_nothing_complains(browser: Chromium, report: Path, width: int, dark: bool) -> None:
    browser.open(report, width, dark=dark)
    assert draw_all(browser) == 5
    for button in range(int(browser.run("document.querySelectorAll('[data-chart]').length"))):
        browser.run(f"document.querySelectorAll('[data-chart]')[{button}].click()")
    pressed = browser.run("[...document.querySelectorAll('[aria-pressed=true]')].map((b) => b.textContent)")
    assert pressed == ["Raw", "Raw", "Retained by explainer"]
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
    wanted = tmp_path / "mobilenet-photos-stability-ranking.csv"
    while not wanted.is_file() and time.monotonic() < until:
        time.sleep(0.05)
    rows = list(csv.DictReader(wanted.read_text(encoding="utf-8").splitlines()))
    assert [r["explainer"] for r in rows if float(r["score"]) > 0.25] == ["grad_cam", NASTY]
    assert {r["explainer"] for r in rows} == {"grad_cam", NASTY, f"'{FORMULA}", "random"}
    assert browser.complaints() == []


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
@pytest.mark.parametrize(("dark", "enlarged"), [(False, False), (True, True)])
def test_axe_finds_nothing_serious(browser: Chromium, report: Path, dark: bool, enlarged: bool) -> None:
    assert AXE is not None and AXE.origin is not None
    browser.open(report, dark=dark)
    draw_all(browser)
    browser.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    browser.run(Path(AXE.origin).with_name("axe.min.js").read_text(encoding="utf-8") + "; 0")
    if enlarged:
        browser.run("document.querySelector('.deck:not([hidden]) [data-open]').click()")
    found = browser.run("axe.run(document, { resultTypes: ['violations'] }).then((r) => r.violations)")
    bad = [v for v in found if v["impact"] in ("serious", "critical")]
    assert not bad, json.dumps([(v["id"], [n["html"][:200] for n in v["nodes"][:3]]) for v in bad], indent=1)

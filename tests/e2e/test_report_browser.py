"""The page in a real browser: charts draw, switches work, nothing complains, nothing overflows on a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import synthetic
from holdfast.report import build_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome binary on this machine")
SWEEP = (("rotation", 5.0), ("rotation", 15.0), ("translation", 20.0), ("jpeg", 40.0))
NASTY = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"

PROBE = """
<script>
const drawn = () => [...document.querySelectorAll(".chart")].filter((c) => c.querySelector("svg.main-svg")).length;
const look = () => {
  const report = {};
  report.drawn = drawn();
  for (const button of document.querySelectorAll("[data-chart]")) button.click();
  for (const select of document.querySelectorAll("[data-gallery]")) {
    select.value = "1";
    select.dispatchEvent(new Event("change"));
  }
  report.charts = document.querySelectorAll(".chart").length;
  report.pressed = [...document.querySelectorAll("[aria-pressed=true]")].map((b) => b.textContent).join(", ");
  report.decks = [...document.querySelectorAll(".deck")].map((d) => d.hidden).join(", ");
  const images = [...document.querySelectorAll(".deck:not([hidden]) img")];
  report.broken = images.filter((i) => !i.src.startsWith("data:image/")).length;
  report.overflow = document.documentElement.scrollWidth - innerWidth;
  report.title = document.title;
  (parent === window ? document : parent.document).body.dataset.report = JSON.stringify(report);
};
// charts draw when the browser reports them near the window, which takes some frames
const wait = (frames) => {
  if (frames > 400 || drawn() === document.querySelectorAll(".chart").length) setTimeout(look, 300);
  else requestAnimationFrame(() => wait(frames + 1));
};
addEventListener("load", () => wait(0));
</script>
"""


def run(page: Path, profile: Path) -> tuple[dict[str, object], list[str]]:
    """What the probe saw, and what the browser wrote to its console."""
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += ["--enable-logging=stderr", "--window-size=1200,9000", "--virtual-time-budget=15000"]
    command += [f"--user-data-dir={profile}", "--dump-dom", page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    seen = re.search(r'data-report="([^"]*)"', done.stdout)
    assert seen, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(seen[1])), console


@pytest.fixture(scope="module")
def report() -> str:
    quality = {"grad_cam": 0.5, NASTY: 0.3, "lime": 0.1, "random": 0.0}
    table = synthetic.table(quality, SWEEP)
    samples = synthetic.samples()
    samples["predicted_name"] = NASTY
    page = build_report(table, samples, synthetic.exhibits(2, tuple(quality), SWEEP), synthetic.manifest())
    return page.replace("</body>", PROBE + "</body>")


def test_charts_draw_and_switches_work(report: str, tmp_path: Path) -> None:
    page = tmp_path / "report.html"
    page.write_text(report, encoding="utf-8")
    seen, console = run(page, tmp_path / "profile")
    assert console == []
    assert seen["drawn"] == seen["charts"] == 5
    assert seen["pressed"] == "Raw, Raw, Retained by explainer"
    assert seen["decks"] == "true, false, true, true"
    assert seen["broken"] == 0
    assert seen["title"] == "holdfast report: mobilenet on photos"


def test_a_phone_does_not_scroll_sideways(report: str, tmp_path: Path) -> None:
    frame = f'<iframe style="width:360px;height:8000px;border:0" srcdoc="{html.escape(report)}"></iframe>'
    page = tmp_path / "phone.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><body>{frame}</body>", encoding="utf-8")
    seen, console = run(page, tmp_path / "profile")
    assert console == []
    assert seen["drawn"] == 5
    assert seen["overflow"] == 0

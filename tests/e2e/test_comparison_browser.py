"""The comparison page and the leaderboard in a real browser: figures draw, heads sort, names stay inert.

A local server hands out both pages in frames as wide as a phone and as a desktop; the page around them watches, presses
what can be pressed and sends back what it saw. The pages run unchanged under their own content policy.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import heatproof
from heatproof.report.comparison import compare, leaderboard, leaderboard_page
from support import small
from support.chromium import AXE, BROWSER, Chromium

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason="no chromium or chrome binary on this machine"
)
NASTY = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PATIENCE = 90  # seconds until a browser that says nothing counts as broken

WATCHER = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<script>
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
const watch = async (name, width) => {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:5000px;border:0`;
  frame.src = `/${name}.html`;
  document.body.append(frame);
  await new Promise((done) => frame.addEventListener("load", done));
  const all = (selector) => [...frame.contentDocument.querySelectorAll(selector)];
  const seen = { charts: all(".chart").length };
  seen.drawn = all(".chart").filter((chart) => chart.querySelector("svg .mark circle")).length;
  all("details").forEach((details) => { details.open = true; });
  await pause(300);
  seen.plots = all(".chart .plot").length;
  // a table of numbers may scroll inside its plot
  seen.wide = all(".chart .plot").filter((plot) => plot.clientWidth > plot.closest(".chart").clientWidth).length;
  seen.overflow = frame.contentDocument.documentElement.scrollWidth - frame.contentWindow.innerWidth;
  seen.title = frame.contentDocument.title;
  seen.images = all("img").length;
  seen.unnamed = all("button, a, [tabindex]").filter((e) => !(e.textContent.trim() || e.ariaLabel)).length;
  const saved = [];
  const made = frame.contentWindow.URL.createObjectURL;
  frame.contentWindow.URL.createObjectURL = (blob) => { saved.push(blob.text()); return made(blob); };
  all("[data-csv]").slice(0, 1).forEach((button) => button.click());
  seen.csv = (await Promise.all(saved)).map((text) => text.slice(0, 29));
  const filter = frame.contentDocument.getElementById("filter");
  filter.value = "SECOND";
  filter.dispatchEvent(new frame.contentWindow.Event("input"));
  seen.kept = all(".board tbody tr").filter((row) => !row.hidden).map((row) => row.cells[4].textContent);
  seen.faded = all(".mark.out").length;
  filter.value = "";
  filter.dispatchEvent(new frame.contentWindow.Event("input"));
  seen.back = all("tr[hidden], .mark.out").length;
  const heads = all(".board th");
  const column = (i) => all(".board tbody tr").map((row) => row.cells[i].dataset.by);
  seen.heads = heads.map((head) => head.textContent);
  seen.sorted = [];
  for (const i of [2, 2, 1]) {
    const button = heads[i]?.firstElementChild;
    if (!button) break;
    button.focus();
    frame.contentDocument.activeElement.click();
    seen.sorted.push({ order: column(i), said: frame.contentDocument.getElementById("said").textContent,
                       aria: heads.map((head) => head.ariaSort).filter((way) => way !== "none") });
  }
  return seen;
};
(async () => {
  const seen = {};
  for (const name of ["comparison", "leaderboard"]) {
    for (const width of [360, 1200]) seen[name + width] = await watch(name, width);
  }
  await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
})();
</script>"""


class Server:
    """Hands out the pages, and keeps what was asked for and what was seen."""

    def __init__(self, pages: dict[str, str]) -> None:
        self.pages = pages
        self.asked: list[str] = []
        self.seen: queue.Queue[dict[str, Any]] = queue.Queue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                body = pages.get(self.path)
                self.send_response(404 if body is None else 200)
                self.send_header("Content-Type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write((body or "").encode())

            def do_POST(self) -> None:
                outer.seen.put(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing: the test keeps its own list."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("runs")
    x, _ = small.pictures(8)
    axes = {"stability": {"stability": {"perturbations": ["jpeg", "rotation"]}}}
    named = {
        f"gradient {NASTY}": heatproof.Saliency(),
        "input_x_gradient": "input_x_gradient",
        "random": "random",
    }
    runs = []
    for name, precision in (("first", None), ("second", "bfloat16")):
        model = heatproof.Model(
            small.network(), mean=(0.5,) * 3, std=(0.5,) * 3, name=f"{name} {NASTY}"
        )
        out = root / f"{name} <b>"
        runs.append(
            heatproof.evaluate(
                model, {NASTY: x}, named, axes, out, precision=precision, show_progress=False
            )
        )
    page = compare(*runs).page(root / "page.html").read_text(encoding="utf-8")
    pages = {
        "/watch": WATCHER,
        "/comparison.html": page,
        "/leaderboard.html": leaderboard_page(leaderboard(*runs)),
    }
    running = Server(pages)
    yield running
    running.http.shutdown()
    running.http.server_close()


def test_both_pages_work_in_a_browser(server: Server, tmp_path: Path) -> None:
    command = [
        str(BROWSER),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--no-first-run",
    ]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += ["--enable-logging=stderr", "--window-size=1200,9000", "--remote-debugging-port=0"]
    command += [
        f"--user-data-dir={tmp_path / 'profile'}",
        f"http://127.0.0.1:{server.http.server_port}/watch",
    ]
    log = tmp_path / "log.txt"
    with (
        log.open("w") as output,
        subprocess.Popen(command, stdout=output, stderr=output) as browser,
    ):
        try:
            seen = server.seen.get(timeout=PATIENCE)
        finally:
            browser.terminate()
    console = [line for line in log.read_text(errors="replace").splitlines() if "CONSOLE" in line]
    assert [line for line in console if "favicon" not in line and "404" not in line] == []
    assert set(server.asked) - {"/favicon.ico"} == {
        "/watch",
        "/comparison.html",
        "/leaderboard.html",
    }
    for name, page in seen.items():
        assert (page["overflow"], page["wide"], page["images"], page["unnamed"]) == (0, 0, 0, 0), (
            name
        )
    for width in (360, 1200):
        page = seen[f"comparison{width}"]
        assert "comparison" in page["title"]
        assert page["drawn"] == page["charts"] == 1
        assert page["plots"] == 3  # all conditions, and each
        assert page["csv"][0].startswith("plot,name,method,value,")
        page = seen[f"leaderboard{width}"]
        assert "leaderboard" in page["title"]
        assert page["heads"][:3] == ["Rank", "Explainer", "Score"]
        assert len(page["kept"]) == 3 and all("second" in run for run in page["kept"]), (
            "a filter leaves one run"
        )
        assert page["faded"] > 0 == page["back"]
        down, up, names = page["sorted"]
        scores = [float(score) for score in down["order"]]
        assert len(scores) == 6
        assert scores == sorted(scores, reverse=True)
        assert [float(score) for score in up["order"]] == sorted(scores)
        assert (down["aria"], up["aria"]) == (["descending"], ["ascending"])
        assert "Score" in up["said"] and "ascending" in up["said"]
        assert names["order"] == sorted(names["order"], key=str.lower)


@pytest.mark.skipif(AXE is None, reason="axe-core-python is not installed")
@pytest.mark.parametrize("name", ["comparison", "leaderboard"])
def test_axe_finds_nothing_serious(server: Server, tmp_path: Path, name: str) -> None:
    page = tmp_path / f"{name}.html"
    page.write_text(server.pages[f"/{name}.html"], encoding="utf-8")
    browser = Chromium()
    try:
        for dark in (False, True):
            browser.open(page, dark=dark)
            assert browser.violations() == []
    finally:
        browser.close()

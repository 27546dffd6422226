"""The page in a real browser: charts draw, switches work, nothing complains, nothing overflows on a phone.

A local server hands out the report inside a frame of the width to test; the page around it watches, presses every
switch and sends back what it saw. The report itself runs unchanged under its own content policy.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))
import synthetic
from holdfast.report import build_report

BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or chrome binary on this machine")
SWEEP = (("rotation", 5.0), ("rotation", 15.0), ("translation", 20.0), ("jpeg", 40.0))
NASTY = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\">"
PATIENCE = 90  # seconds until a browser that says nothing counts as broken

WATCHER = """<!doctype html><meta charset="utf-8"><body style="margin:0">
<iframe style="width:WIDTHpx;height:9000px;border:0" src="/report.html"></iframe>
<script>
const frame = document.querySelector("iframe");
const all = (selector) => [...frame.contentDocument.querySelectorAll(selector)];
const drawn = () => all(".chart").filter((chart) => chart.querySelector("svg.main-svg")).length;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
frame.addEventListener("load", async () => {
  const seen = { charts: all(".chart").length };
  for (let i = 0; i < 300 && drawn() < seen.charts; i++) await pause(100);
  seen.drawn = drawn();
  all("[data-chart]").forEach((button) => button.click());
  for (const select of all("[data-gallery]")) {
    select.value = "1";
    select.dispatchEvent(new Event("change"));
  }
  all("[data-overlay]").forEach((box) => box.click());
  all("details").forEach((details) => { details.open = true; });
  await pause(500);
  seen.pressed = all("[aria-pressed=true]").map((button) => button.textContent);
  seen.decks = all(".deck").map((deck) => deck.hidden);
  seen.overlay = all(".gallery.overlay").length;
  seen.broken = all(".deck:not([hidden]) img, .strip img").filter((img) => !(img.complete && img.naturalWidth)).length;
  seen.overflow = frame.contentDocument.documentElement.scrollWidth - frame.contentWindow.innerWidth;
  seen.title = frame.contentDocument.title;
  await fetch("/seen", { method: "POST", body: JSON.stringify(seen) });
});
</script>"""


class Server:
    """Hands out the watcher and the report, and keeps what was asked for and what was seen."""

    def __init__(self, report: str) -> None:
        self.asked: list[str] = []
        self.seen: queue.Queue[dict[str, Any]] = queue.Queue()
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                name, _, width = self.path.partition("?")
                body = {"/report.html": report, "/watch": WATCHER.replace("WIDTH", width)}.get(name)
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
def server() -> Iterator[Server]:
    quality = {"grad_cam": 0.5, NASTY: 0.3, "lime": 0.1, "random": 0.0}
    samples = synthetic.samples()
    samples["predicted_name"] = NASTY
    exhibits = synthetic.exhibits(2, tuple(quality), SWEEP)
    running = Server(build_report(synthetic.table(quality, SWEEP), samples, exhibits, synthetic.manifest()))
    yield running
    running.http.shutdown()
    running.http.server_close()


@pytest.mark.parametrize("width", [360, 1200])
def test_the_page_works_in_a_browser(server: Server, tmp_path: Path, width: int) -> None:
    server.asked.clear()
    command = [str(BROWSER), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += ["--enable-logging=stderr", "--window-size=1200,9000", "--remote-debugging-port=0"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", f"http://127.0.0.1:{server.http.server_port}/watch?{width}"]
    log = tmp_path / "log.txt"
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as browser:
        try:
            seen = server.seen.get(timeout=PATIENCE)
        finally:
            browser.terminate()
    console = [line for line in log.read_text(errors="replace").splitlines() if "CONSOLE" in line]
    assert [line for line in console if "favicon" not in line and "404" not in line] == []
    assert set(server.asked) - {"/favicon.ico"} == {f"/watch?{width}", "/report.html"}
    assert seen["drawn"] == seen["charts"] == 5
    assert seen["pressed"] == ["Raw", "Raw", "Retained by explainer"]
    assert seen["decks"] == [True, False, True, True]
    assert (seen["overlay"], seen["broken"], seen["overflow"]) == (1, 0, 0)
    assert seen["title"] == "holdfast report: mobilenet on photos"

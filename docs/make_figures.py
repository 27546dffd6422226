"""Make the pictures of `docs/reading.md` from a run: `python docs/make_figures.py RUN`.

The report is drawn as for anyone, and every chart of its first model and data set is photographed alone in a headless
browser. A picture is named after the axis and its chart, `docs/figures/symmetry-boxes.png`.
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

import holdfast

FIGURES = Path(__file__).parent / "figures"
WIDTH, SCALE, COLOURS = 780, 1.25, 256
PATIENCE = 20_000  # milliseconds of the page's own clock
ALONE = """<style>
html, body, body * { margin-top: 0 !important; margin-bottom: 0 !important }
body, main, section, figure, .scroll { padding: 0 !important; border: 0 !important; max-width: none !important }
body, section { background: #fff !important; box-shadow: none !important }
</style><script>
for (let kept = document.getElementById("ID"); kept !== document.body; kept = kept.parentElement) {
  for (const other of kept.parentElement.children) {
    if (other !== kept && !["SCRIPT", "STYLE"].includes(other.tagName)) other.style.display = "none";
  }
}
</script>"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--out", type=Path, default=FIGURES, help="where the pictures go")
    given = parser.parse_args()
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if browser is None:
        print("a chromium or chrome binary is needed to photograph the charts", file=sys.stderr)
        return 1
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        page = holdfast.read(given.run).report(Path(scratch) / "report.html").read_text(encoding="utf-8")
        for chart, height in charts(page):
            target = given.out / f"{name_of(chart, page)}.png"
            photograph(browser, page, chart, height, target, Path(scratch))
            print(f"{target}  {target.stat().st_size / 1000:.0f} kB")
    return 0


def charts(page: str) -> list[tuple[str, int]]:
    """The element ids and heights of the charts of the first model and data set."""
    found = re.findall(r'<div class="chart" id="(s0-[^"]+)" style="height:(\d+)px', page)
    return [(chart, int(height)) for chart, height in found]


def name_of(chart: str, page: str) -> str:
    """The name of a chart, with the axis that it belongs to: that of the last heading before it."""
    headings = re.findall(r"<h2[^>]*>([^<]+)</h2>", page[: page.index(f'id="{chart}"')])
    return f"{headings[-1].split(':')[0].strip().lower()}-{re.sub(r'^s0-a[0-9]+-', '', chart)}"


def photograph(browser: str, page: str, chart: str, height: int, target: Path, scratch: Path) -> None:
    """One chart alone on a white page, with few colours so that the file is small."""
    lone, raw = scratch / "alone.html", scratch / "alone.png"
    lone.write_text(page.replace("</body>", ALONE.replace("ID", chart) + "</body>"), encoding="utf-8")
    command = [
        browser,
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--blink-settings=preferredColorScheme=1",
    ]
    command += [f"--window-size={WIDTH},{height}", f"--force-device-scale-factor={SCALE}", f"--screenshot={raw}"]
    command += [f"--virtual-time-budget={PATIENCE}", f"--user-data-dir={scratch / 'profile'}", lone.as_uri()]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    with Image.open(raw) as shot:
        shot.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)


if __name__ == "__main__":
    sys.exit(main())

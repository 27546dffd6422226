"""Make the pictures of `docs/gallery.md` from the studies on that page.

    python docs/make_gallery.py [SECTION …]

Every block of Python on the page ends with a `run`; the picture above the block is the first screen of its report.
The last picture is of the first run of `docs/language.md`.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from make_figures import first_screen

from heatproof.runs.run import Run

DOCS = Path(__file__).parent
STUDY = re.compile(r"^!\[[^]]*\]\(gallery/([\w-]+)\.jpg\)\n\n```python\n(.*?)^```", re.S | re.M)
BLOCK = re.compile(r"^```python\n(.*?)^```", re.S | re.M)
WIDE, QUALITY = 1366, 85


def main() -> None:
    chosen = sys.argv[1:]
    session: dict[str, Any] = {}
    for name, study in STUDY.findall((DOCS / "gallery.md").read_text("utf-8")):
        exec(compile(study, name, "exec"), session)
        if not chosen or name in chosen:
            draw(name, session["run"])
    if not chosen or "language" in chosen:
        draw("language", run_of_language_models())


def run_of_language_models() -> Run:
    """Return the first run of `docs/language.md`."""
    session: dict[str, Any] = {}
    for block in BLOCK.findall((DOCS / "language.md").read_text("utf-8")):
        exec(compile(block, "language.md", "exec"), session)
        if "run" in session:
            break
    run: Run = session["run"]
    return run


def draw(name: str, run: Run) -> None:
    """Write the first screen of the report of a run."""
    picture = DOCS / "gallery" / f"{name}.jpg"
    picture.parent.mkdir(exist_ok=True)
    report = Path(tempfile.mkdtemp()) / "report.html"
    run.report(report)
    first_screen(report, WIDE).save(picture, quality=QUALITY, optimize=True, progressive=True)
    print(f"{picture}  {picture.stat().st_size / 1000:.0f} kB\n{run}\n")


if __name__ == "__main__":
    main()

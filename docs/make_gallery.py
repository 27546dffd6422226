"""Make the pictures of `docs/gallery.md` from the studies on that page.

    python docs/make_gallery.py [SECTION …]

Every block of Python on the page ends with a `run`; the picture above the block is the first screen of its report.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

from make_figures import first_screen
from PIL import Image

PAGE = Path(__file__).parent / "gallery.md"
STUDY = re.compile(r"^!\[[^]]*\]\((gallery/[\w-]+\.png)\)\n\n```python\n(.*?)^```", re.S | re.M)
WIDE, COLOURS = 1366, 128


def main() -> None:
    chosen = sys.argv[1:]
    session: dict[str, object] = {}
    for target, study in STUDY.findall(PAGE.read_text("utf-8")):
        exec(compile(study, PAGE.name, "exec"), session)
        if chosen and Path(target).stem not in chosen:
            continue
        picture = PAGE.parent / target
        picture.parent.mkdir(exist_ok=True)
        report = session["run"].report(Path(tempfile.mkdtemp()) / "report.html")
        screen = first_screen(Path(str(report)), WIDE)
        screen.quantize(COLOURS, dither=Image.Dither.NONE).save(picture, optimize=True)
        print(f"{target}  {picture.stat().st_size / 1000:.0f} kB\n{session['run']}\n")


if __name__ == "__main__":
    main()

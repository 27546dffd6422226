"""Make the pictures of the site from a run: `python docs/make_figures.py RUN`.

The charts of the report of its first model and data set, as the page shows them; a picture is named after the axis and
its chart, `docs/figures/symmetry-boxes.svg`. Beside them `docs/hold-sheet.jpg`, which README and landing page
show, and `docs/demo-report.html`, the report itself, to which they lead.
"""

from __future__ import annotations

import argparse
import io
from pathlib import Path

from PIL import Image

import holdfast
from holdfast.axes import judge
from holdfast.drawing.charts import Chart
from holdfast.drawing.pictures import Album
from holdfast.drawing.sheet import flowed
from holdfast.report.sections import sections_of

FIGURES = Path(__file__).parent / "figures"
INCHES, WIDE = 8.5, 1800


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--out", type=Path, default=FIGURES, help="where the pictures go")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    run = holdfast.read(given.run)
    section = sections_of(
        judge(run.in_study_order(), run.samples(), (), run.manifest), run.samples(), run.manifest, Album()
    )[0]
    picture = Image.open(io.BytesIO(run.hold_sheet().encoded("png", "Hold sheet", INCHES)))
    picture.convert("RGB").resize((WIDE, picture.height * WIDE // picture.width)).save(
        given.out.parent / "hold-sheet.jpg", quality=88
    )
    run.report(given.out.parent / "demo-report.html")
    for axis in section.axes:
        for part in axis.parts:
            if isinstance(part, Chart):
                target = given.out / f"{axis.judged.title.lower()}-{part.key}.svg"
                target.write_bytes(flowed(part.shown, INCHES)[0].encoded("svg", part.alt, INCHES))
                print(f"{target}  {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

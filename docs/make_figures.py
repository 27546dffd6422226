"""Make the pictures of `docs/reading.md` from a run: `python docs/make_figures.py RUN`.

The charts of the report of its first model and data set, as the page shows them; a picture is named after the axis and
its chart, `docs/figures/symmetry-boxes.svg`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import holdfast
from holdfast.axes import judge
from holdfast.drawing.charts import Chart
from holdfast.drawing.sheet import flowed
from holdfast.report.sections import sections_of

FIGURES = Path(__file__).parent / "figures"
INCHES = 8.5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--out", type=Path, default=FIGURES, help="where the pictures go")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    run = holdfast.read(given.run)
    section = sections_of(
        judge(run.in_study_order(), run.samples(), (), run.manifest), run.samples(), (), run.manifest
    )[0]
    for axis in section.axes:
        for part in axis.parts:
            if isinstance(part, Chart):
                target = given.out / f"{axis.title.lower()}-{part.key}.svg"
                target.write_bytes(flowed(part.shown, INCHES)[0].encoded("svg", part.alt, INCHES))
                print(f"{target}  {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()

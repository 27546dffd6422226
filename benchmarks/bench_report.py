"""How large the report of a large run is, and how long it takes to open in a real browser.

50 explainers × 20 conditions × 5,000 samples with every measure of stability, made up; the page is built from the
every_arrays. The maps of the proof sheet are noise, which compresses worst. With `grid` the page of a study of 4 models × 3
data sets × 16 methods × 40 samples. Seconds are those of the process. Usage:
python benchmarks/bench_report.py [SAMPLES | grid [WHERE TO KEEP THE PAGE]]
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from heatproof.axes import BY_NAME, axis_of
from heatproof.evaluation import GalleryItem
from heatproof.report.page import build_report
from heatproof.results.arrays import ScoreArrays
from heatproof.results.axis_result import AxisResult
from heatproof.runs.results import axis_results
from support import synthetic
from support.chromium import BROWSER, Chromium

EXPLAINERS = [*(f"method_{i:02d}(samples={32 * i})" for i in range(48)), "random", "sobel"]
CONDITIONS = [
    (name, level)
    for name, levels in {
        "rotation": (5, 10, 15, 30),
        "translation": (5, 10, 20, 40),
        "brightness": (1.1, 1.2, 1.5, 2),
        "gaussian_noise": (0.05, 0.1, 0.15, 0.3),
        "jpeg": (80, 60, 40, 20),
    }.items()
    for level in map(float, levels)
]
GEOMETRIC = ("rotation", "translation")
SIDE, SHOWCASE = 128, 12
RUNS = 5


def large_cube(samples: int) -> ScoreArrays:
    """Scores about a quality per explainer, a fifth of the pairs flipped."""
    generator = np.random.default_rng(0)
    shape = (len(EXPLAINERS), len(CONDITIONS), samples)
    quality = np.linspace(0.8, 0.0, len(EXPLAINERS))[:, None, None]
    flipped = np.broadcast_to(generator.random(shape[1:]) < 0.2, shape)
    moves = np.array([name in GEOMETRIC for name, _ in CONDITIONS])
    values, chances = {}, {}
    for ending, bonus in (("", 0.05), ("_unaligned", 0.0)):
        for measure, base in (*synthetic.CHANCE.items(), ("fass", 0.4)):
            chance = np.clip(base + generator.normal(0, 0.02, shape), 0, 1)
            expected = chance + (1 - chance) * (quality + bonus)
            value = np.clip(expected + generator.normal(0, 0.06, shape), 0, 1)
            for scores in (value, chance):
                scores[flipped] = np.nan
                if ending:
                    scores[:, ~moves] = np.nan
            values[measure + ending], chances[measure + ending] = value, chance
    has_rows = {name: np.isfinite(scores).any(-1) for name, scores in values.items()}
    reasons = pd.DataFrame(columns=["explainer", "condition", "level", "reason", "count"])
    ids = [f"img/{i:06d}.jpg" for i in range(samples)]
    arrays = ScoreArrays(
        dataset="photos",
        model="net",
        evaluation="stability",
        explainers=EXPLAINERS,
        conditions=CONDITIONS,
        samples=ids,
        values=values,
        status=flipped.astype(np.int8),
        undefined_reasons=reasons,
        has_rows=has_rows,
        chance=chances,
    )
    declared = {m.name: m for m in BY_NAME["stability"].measures if m.name in values}
    return replace(arrays, controls=frozenset({"random", "sobel"}), declared=declared)


def gallery(arrays: ScoreArrays) -> list[GalleryItem]:
    """What a run keeps: some samples under every condition."""
    generator = np.random.default_rng(1)
    noise = generator.normal(size=(4 * SIDE, 4 * SIDE)).astype(np.float32)
    scene = generator.integers(0, 256, (80, 80, 3), dtype=np.uint8).repeat(8, 0).repeat(8, 1)

    def shown(explainer: str, condition: str, level: float, sample: str) -> GalleryItem:
        y, x = generator.integers(0, 3 * SIDE, 2)
        picture, drawn = scene[y : y + SIDE, x : x + SIDE], noise[y : y + SIDE, x : x + SIDE]
        return GalleryItem(
            "photos", "net", explainer, condition, level, sample, picture, drawn, "stability"
        )

    found = []
    for explainer in arrays.explainers:
        for sample in arrays.samples[:SHOWCASE]:
            found += [
                shown(explainer, c, x, sample) for c, x in (("clean", 0.0), *arrays.conditions)
            ]
    return found


def grid() -> str:
    """The page of 4 × 3 × 16, from a table and pictures as a run has them."""
    methods = {f"method_{i:02d}": 0.04 * i for i in range(14)} | {"random": 0.0, "sobel": 0.6}
    places = [(f"data {d}", f"net {m}") for d in range(3) for m in range(4)]
    tables = [
        synthetic.table(
            methods, samples=40, undefined=0.0, stochastic=(), seed=i, dataset=d, model=m
        )
        for i, (d, m) in enumerate(places)
    ]
    known = pd.concat([synthetic.samples(40, 0, d, m) for d, m in places], ignore_index=True)
    pictures = [
        s
        for d, m in places
        for s in synthetic.gallery(SHOWCASE, tuple(methods), dataset=d, model=m)
    ]
    rows, about = pd.concat(tables, ignore_index=True), synthetic.manifest()
    print(
        f"4 models x 3 data sets x {len(methods)} methods x 40 samples, {len(rows)} rows, {len(pictures)} gallery"
    )
    return timed(lambda: build_report(axis_results(rows, known, pictures, about), known, about))


def large(samples: int) -> str:
    """The page of 50 methods × 20 conditions."""
    arrays = large_cube(samples)
    known = synthetic.samples(samples, unreadable=0, dataset="photos", model="net")
    known["sample"] = arrays.samples
    pictures = gallery(arrays)
    print(
        f"{len(EXPLAINERS)} explainers x {len(CONDITIONS)} conditions x {samples} samples, {len(pictures)} gallery"
    )
    rows = pd.DataFrame(
        columns=[
            "explainer",
            "condition",
            "level",
            "sample",
            "measure",
            "value",
            "status",
            "reason",
        ]
    )
    about = synthetic.manifest()
    result = AxisResult(axis_of("stability", about), arrays, rows, known, pictures, {}, about, rows)
    return timed(lambda: build_report([result], known, about))


def timed(build: Callable[[], str]) -> str:
    """What is built, with the seconds of this process and those on the wall."""
    wall, own = time.perf_counter(), time.process_time()
    html = build()
    own, wall = time.process_time() - own, time.perf_counter() - wall
    print(
        f"built in {own:.1f} s of one core ({wall:.1f} s on the wall), {len(html.encode()) / 1e6:.2f} MB"
    )
    return html


def main() -> None:
    asked = sys.argv[1] if len(sys.argv) > 1 else "5000"
    html = grid() if asked == "grid" else large(int(asked))
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "report.html"
        page.write_text(html, encoding="utf-8")
        if len(sys.argv) > 2:
            Path(sys.argv[2]).write_text(html, encoding="utf-8")
        if BROWSER is None:
            print("no chromium or chrome binary on this machine: not opened")
            return
        browser = Chromium(Path(folder) / "profile")
        seen = []
        for _ in range(RUNS):
            browser.open(page)
            browser.run("document.querySelector('.chart').scrollIntoView({ behavior: 'instant' })")
            browser.wait("document.querySelector('.chart .mark')")
            timing = "(() => { const n = performance.getEntriesByType('navigation')[0];"
            timing += "const p = performance.getEntriesByName('first-contentful-paint')[0];"
            timing += "return [p ? p.startTime : NaN, n.domContentLoadedEventEnd, n.loadEventEnd,"
            timing += "performance.mark('now').startTime]; })()"
            seen.append(browser.run(timing))
        nodes = browser.run("document.querySelectorAll('*').length")
        browser.close()
    names = (
        "first words painted",
        "parsed",
        "load event",
        "first chart drawn, scrolled to at once",
    )
    for name, times in zip(names, zip(*seen, strict=True), strict=True):
        print(
            f"{name}: {np.median(times):.0f} ms (median of {RUNS}, {min(times):.0f} to {max(times):.0f})"
        )
    print(f"{nodes} elements")


if __name__ == "__main__":
    main()

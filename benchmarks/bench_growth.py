"""How time and memory grow: of reading, statistics and report with the rows of the table, and of the engine.

    python benchmarks/bench_growth.py              a million rows and more; asked for are under 30 s and 2 GB
    python benchmarks/bench_growth.py --rows 10000000   ten million, statistics and report: under 60 s and 4 GB
    python benchmarks/bench_growth.py --growth     against rows, explainers, conditions and number of parts
    python benchmarks/bench_growth.py --engine     passes and seconds against images, image size and perturbations

The tables are made up, and written part by part with the functions that the engine uses, in the engine's layout: four
measures per condition, eight where a map can be moved along, each with its chance level, one part per explainer and shard
with what the reference samples add to chance beside it. Reading is done by a
new process for every line, which takes the steps that a user takes, each of which reads the parts again: `Run.table`,
summary, ranking, paired tests and the report. Its seconds are those of the steps, `cpu` those of its processor, which
other work on the machine does not change much; `import` (torch and the rest) stands beside them. Memory is the largest
the process ever held (`ru_maxrss`), with what it held after the imports beside it. An exponent is the slope between the
logarithms, by least squares; that of memory is of what comes on top of the imports.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

import heatproof
from heatproof.evaluation import FLIPPED, OK, UNDEFINED, GalleryImage, Scores
from heatproof.runs import manifest, tables
from heatproof.runs.directory import PartKey, RunDirectory
from heatproof.runs.gallery import gallery_rows
from heatproof.runs.storage import place

MOST_SECONDS, MOST_BYTES = 30.0, 2e9
COMPONENTS = ("ssim", "spearman", "jaccard", "fass")
GEOMETRIC, PLAIN = ("rotation", "translation"), ("brightness", "noise", "jpeg")
STEPS = ("read", "summary", "ranking", "tests", "report")
SHOWN, REFERENCES = 6, 16


@dataclass(frozen=True)
class Size:
    """How large a made-up run is; a fifth of the conditions are levels of one perturbation."""

    explainers: int = 10
    conditions: int = 20
    samples: int = 1000
    shard_size: int = 32

    @property
    def cells(self) -> list[tuple[str, float]]:
        names = (*GEOMETRIC, *PLAIN)
        return [(names[i % len(names)], 1.0 + i // len(names)) for i in range(self.conditions)]

    @property
    def rows(self) -> int:
        return self.explainers * self.samples * sum(len(_measures(name)) for name, _ in self.cells)

    @property
    def parts(self) -> int:
        return self.explainers * -(-self.samples // self.shard_size)

    def with_rows(self, rows: int) -> Size:
        """The same with as many samples as it takes."""
        return replace(self, samples=-(-rows // replace(self, samples=1).rows))


def _measures(condition: str) -> list[str]:
    if condition not in GEOMETRIC:
        return list(COMPONENTS)
    return [*COMPONENTS, *(f"{name}_unaligned" for name in COMPONENTS)]


def write_run(root: Path, size: Size) -> None:
    """A run directory with random scores, a fifth of the pairs flipped and a few undefined."""
    generator = torch.Generator().manual_seed(0)
    explainers = [f"method_{i:02d}" for i in range(size.explainers)]
    ids = [f"images/{i:06d}.png" for i in range(size.samples)]
    axis = {"name": "stability", "conditions": [list(c) for c in size.cells], "left_out": {}}
    study = {
        "seed": 0,
        "models": {"net": {"fingerprint": "none", "untrained_head": None}},
        "datasets": {"images": {"fingerprint": "none", "samples": size.samples}},
        "explainers": {name: {"name": name} for name in explainers},
        "evaluations": {"stability": axis},
    }
    about = {
        "format": manifest.FORMAT,
        "heatproof": metadata.version("heatproof"),
        "created": "2026-01-01T00:00:00+00:00",
        "study": study,
    }
    about |= {"shard_size": size.shard_size, "versions": {}, "command": "made up"}
    manifest.write_manifest(place(root), manifest.Manifest.model_validate(about))
    run = RunDirectory(root)
    references = [f"images/reference-{i:02d}.png" for i in range(REFERENCES)]
    for shard, start in enumerate(range(0, size.samples, size.shard_size)):
        here = ids[start : start + size.shard_size]
        job = ("images", "net", shard)
        for number, explainer in enumerate(explainers):
            scores = []
            for condition, level in size.cells:
                luck = torch.rand(len(here), generator=generator)
                status = torch.full((len(here),), OK)
                status[luck < 0.2] = FLIPPED
                status[luck > 0.99] = UNDEFINED
                why = tuple(
                    {OK: "", FLIPPED: "top-1 changed", UNDEFINED: "constant map"}[s]
                    for s in status.tolist()
                )
                for measure in _measures(condition):
                    drawn = torch.rand(2, len(here), generator=generator, dtype=torch.float64)
                    value = 0.3 + 0.5 * number / size.explainers + 0.2 * drawn[0]
                    chance = 0.1 + 0.2 * drawn[1]
                    value[status != OK] = chance[status != OK] = torch.nan
                    column = Scores(
                        explainer,
                        measure,
                        condition,
                        level,
                        value,
                        status,
                        reason=why,
                        chance=chance,
                        reference_sums=torch.randn(REFERENCES, generator=generator),
                        reference_counts=torch.full((REFERENCES,), len(here)),
                    )
                    scores.append(column)
            rows = tables.score_rows("images", "net", "stability", "method", here, scores)
            run.write(PartKey.scores(job, "stability", explainer), rows)
            rows = tables.reference_rows("images", "net", "stability", references, scores)
            run.write(PartKey.references(job, "stability", explainer), rows)
        known = {
            "dataset": "images",
            "model": "net",
            "label": 1,
            "predicted": 1,
            "predicted_name": "one",
        }
        listed = [{**known, "sample": sample, "probability": 0.9, "error": ""} for sample in here]
        run.write(PartKey.samples(job), tables.pa.Table.from_pylist(listed, schema=tables.SAMPLES))
    _write_gallery(run, size, explainers, ids[:SHOWN], generator)


def _write_gallery(
    run: RunDirectory,
    size: Size,
    explainers: list[str],
    ids: list[str],
    generator: torch.Generator,
) -> None:
    for explainer in explainers:
        shown = [
            GalleryImage(
                explainer,
                c,
                x,
                i,
                torch.rand(3, 128, 128, generator=generator),
                torch.rand(1, 128, 128),
            )
            for c, x in [("clean", 0.0), *size.cells]
            for i in ids
        ]
        key = PartKey.gallery(("images", "net", 0), "stability", explainer)
        run.write(key, gallery_rows("images", "net", "stability", shown))


def read_run(root: Path, steps: Sequence[str]) -> dict[str, float]:
    """Seconds of every step and bytes, in this process."""
    from heatproof import report, results  # noqa: F401  these count with the imports

    found = {"imports_bytes": _peak()}
    run = heatproof.read(root)

    def timed(step: str, call: Callable[[], Any]) -> Any:
        begun = time.perf_counter()
        result = call()
        found[step] = time.perf_counter() - begun
        return result

    before, calls = time.process_time(), {"read": run.table}
    for step in steps:
        timed(step, calls.get(step, getattr(run, step, None)))
    found["seconds"] = sum(found[step] for step in steps)
    return {**found, "cpu": time.process_time() - before, "bytes": _peak()}


def _peak() -> float:
    unit = 1 if sys.platform == "darwin" else 1024
    return float(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit)


def measure(size: Size, keep: Path | None = None, steps: Sequence[str] = STEPS) -> dict[str, float]:
    """One line: write a run, read it in a new process."""
    where = (
        nullcontext(str(keep)) if keep else tempfile.TemporaryDirectory(prefix="heatproof-growth-")
    )
    with where as folder:
        begun = time.perf_counter()
        if not (Path(folder) / "manifest.json").exists():
            write_run(Path(folder), size)
        written = time.perf_counter() - begun
        begun = time.perf_counter()
        command = [sys.executable, __file__, "--read", folder, "--steps", *steps]
        said = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        whole = time.perf_counter() - begun
    found: dict[str, float] = json.loads(said)
    return {
        "read": math.nan,
        **found,
        "rows": size.rows,
        "write": written,
        "import": whole - found["seconds"],
    }


def line(what: str, size: Size, found: dict[str, float]) -> None:
    steps = " ".join(
        f"{found[step]:8.2f}" for step in ("write", "import", *STEPS, "seconds", "cpu")
    )
    memory = f"{found['imports_bytes'] / 1e6:8.0f} {found['bytes'] / 1e6:8.0f}"
    print(f"{what:<18} {found['rows']:>9,.0f} {size.parts:>6,} {steps} {memory}", flush=True)


def heading(what: str) -> None:
    names = " ".join(f"{name:>8}" for name in ("write", "import", *STEPS, "total", "cpu"))
    print(
        f"\n{what:<18} {'rows':>9} {'parts':>6} {names} {'MB, imp.':>8} {'MB peak':>8}", flush=True
    )


def exponent(sizes: list[float], found: list[float]) -> float:
    """The slope of log(found) over log(sizes)."""
    return float(np.polyfit(np.log(sizes), np.log(np.maximum(found, 1e-9)), 1)[0])


def growth(most_rows: int) -> None:
    base = Size().with_rows(1_000_000)
    rows = [n for n in (10_000, 100_000, 1_000_000, 5_000_000) if n <= most_rows]
    axes = {
        "rows": {f"{n:,}": (n, Size().with_rows(n)) for n in rows},
        "explainers": {str(n): (n, replace(base, explainers=n)) for n in (5, 10, 20)},
        "conditions": {str(n): (n, replace(base, conditions=n)) for n in (10, 20, 40)},
        "parts": {
            f"{s.parts:,}": (s.parts, s)
            for s in (replace(base, samples=500, shard_size=n) for n in (32, 8, 1))
        },
    }
    for axis, sizes in axes.items():
        heading(axis)
        found = []
        for name, (_, size) in sizes.items():
            found.append(measure(size))
            line(name, size, found[-1])
        amounts = [float(amount) for amount, _ in sizes.values()]
        seconds = exponent(amounts, [f["cpu"] for f in found])
        memory = exponent(amounts, [f["bytes"] - f["imports_bytes"] for f in found])
        print(
            f"  grows with {axis} to the power of {seconds:.2f} in processor time, {memory:.2f} in memory"
        )


def summarise() -> None:
    heading("at once")
    million, more = Size().with_rows(1_000_000), Size()
    found = measure(million)
    line("a million", million, found)
    line("1,000 samples", more, measure(more))
    print(
        f"  asked for, of the million: at most {MOST_SECONDS:.0f} s and {MOST_BYTES / 1e6:,.0f} MB"
    )
    if found["seconds"] > MOST_SECONDS or found["bytes"] > MOST_BYTES:
        raise SystemExit("  missed")


def engine() -> None:
    """Passes and seconds of the engine on a tiny network, against three sizes."""
    torch.set_num_threads(1)
    axes = {
        "images": [(n, n, 32, 4) for n in (32, 64, 128, 256)],
        "pixels per side": [(n, 32, n, 4) for n in (32, 64, 128, 256)],
        "perturbations": [(n, 32, 32, n) for n in (2, 4, 8, 16)],
    }
    for axis, sizes in axes.items():
        print(f"\n{axis:<18} {'passes':>9} {'seconds':>9} {'rows':>9}")
        found = []
        for amount, images, side, levels in sizes:
            found.append(_engine(images, side, levels))
            print(
                f"{amount:<18} {found[-1][0]:>9,} {found[-1][1]:>9.2f} {found[-1][2]:>9,}",
                flush=True,
            )
        amounts = [float(size[0]) for size in sizes]
        passes, seconds = (exponent(amounts, [float(f[i]) for f in found]) for i in (0, 1))
        print(
            f"  grows with {axis} to the power of {passes:.2f} in passes, {seconds:.2f} in seconds"
        )


def _engine(images: int, side: int, levels: int) -> tuple[int, float, int]:
    from heatproof.axes.stability.perturbations import Brightness

    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1),
            torch.nn.ReLU(),
            torch.nn.AdaptiveAvgPool2d(4),
            torch.nn.Flatten(),
            torch.nn.Linear(128, 4),
        )
    pictures = torch.rand(images, 3, side, side, generator=torch.Generator().manual_seed(0))
    changes = tuple(Brightness(factor=1 + 0.3 * (i + 1) / levels) for i in range(levels))
    model = heatproof.Model(net, name="tiny")
    methods = [heatproof.Saliency(), heatproof.IntegratedGradients(steps=8)]
    with tempfile.TemporaryDirectory() as folder:
        begun = time.perf_counter()
        run = heatproof.evaluate(
            model, pictures, methods, heatproof.Stability(perturbations=changes, k=50), folder
        )
        seconds = time.perf_counter() - begun
        return model.passes, seconds, len(run.table())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--growth", action="store_true", help="tables of several sizes, with exponents"
    )
    parser.add_argument("--most-rows", type=int, default=5_000_000, help="the largest of them")
    parser.add_argument("--rows", type=int, help="one table of so many")
    parser.add_argument(
        "--keep", type=Path, help="write it there, or read what was written, and leave it"
    )
    parser.add_argument("--engine", action="store_true", help="the engine on a tiny network")
    parser.add_argument("--read", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--steps", nargs="+", default=STEPS, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.read:
        print(json.dumps(read_run(given.read, given.steps)))
        return
    if given.rows:
        heading("one table")
        size = Size().with_rows(given.rows)
        line(f"{given.rows:,}", size, measure(size, given.keep, STEPS[1:]))
    if given.growth:
        growth(given.most_rows)
    if given.engine:
        engine()
    if not (given.growth or given.engine or given.rows):
        summarise()


if __name__ == "__main__":
    main()

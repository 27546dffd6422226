"""A run for other tools: CSV, Arrow, a folder that Hugging Face's `datasets` loads, or the whole run as one zip.

Every export is new, and whole or absent: it is written under another name beside its place and then renamed, and what
is there already is never touched. Tables go with `study.json`, which says what was measured and what is missing.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from heatproof.errors import UserError, unknown
from heatproof.maps.overlay import overlaid
from heatproof.runs.atomic import sync, this_host
from heatproof.runs.directory import slug
from heatproof.runs.export.archive import unpacked, write_zip
from heatproof.runs.export.card import dataset_card
from heatproof.runs.export.tables import fingerprint, study_facts, write_study, write_tables
from heatproof.runs.kept import ADVICE, read_maps
from heatproof.runs.run import Run, read
from heatproof.runs.storage import Place, failure, place
from heatproof.runs.verify import missing

__all__ = ["FORMATS", "Exported", "export", "fingerprint", "unpacked"]


@dataclass(frozen=True)
class Exported:
    """Where an export is, its files with their number of rows (None for what is no table), and the missing parts."""

    path: Path
    files: dict[str, int | None]
    missing: list[str]


def export(run: Run | str | Place, to: str, out: str | Path | None = None) -> Exported:
    """Write a run for other tools.

    `to` is "csv" (scores.csv, samples.csv, summary.csv), "arrow" (the same as Arrow IPC files, also called Feather),
    "hf" (a folder for `datasets.load_dataset`, with the three tables as configurations and a card) or "zip" (the run
    itself, which `heatproof.read` opens); "maps" are the kept maps, an npz for each method that the explainer
    `precomputed` reads, and PNGs. Without `out` it goes beside the run directory, which stays as it is. Numbers are
    exact in every format; in CSV a text that a spreadsheet would run gets an apostrophe in front.

    >>> export("no-such-run", "exel")
    Traceback (most recent call last):
    heatproof.errors.UserError: unknown format 'exel'. Allowed: arrow, csv, hf, maps, zip
    """
    if to not in FORMATS:
        raise unknown("format", to, FORMATS)
    opened = read(run)
    target = _target(opened.path, opened.packed, to, out)
    gaps = missing(opened.path)
    with _new(target) as temporary:
        files = FORMATS[to](opened, temporary, gaps)
    return Exported(target, files, gaps)


def _tables(kind: str, run: Run, folder: Path, gaps: list[str]) -> dict[str, int | None]:
    folder.mkdir()
    return write_tables(run, folder, kind) | write_study(run, folder, gaps)


def _hf(run: Run, folder: Path, gaps: list[str]) -> dict[str, int | None]:
    (folder / "data").mkdir(parents=True)
    written = write_tables(run, folder / "data", "parquet")
    # Not .json: without the card, `datasets` would take it for data.
    (folder / "README.md").write_text(
        dataset_card(study_facts(run, gaps), folder / "data"), encoding="utf-8"
    )
    return {f"data/{name}": rows for name, rows in written.items()} | {"README.md": None}


def _maps(run: Run, folder: Path, gaps: list[str]) -> dict[str, int | None]:
    """Write the kept maps, an npz file per method and a PNG per map of an image; return the files with their rows."""
    folder.mkdir()
    study, samples, written = run.manifest.study, run.samples(), dict[str, int | None]()
    for dataset, model, explainer in product(study.datasets, study.models, study.explainers):
        maps = read_maps(run.directory, dataset, model, explainer)
        if not maps:
            continue
        names = [explainer]
        if len(study.models) > 1:
            names.insert(0, model)
        if len(study.datasets) > 1:
            names.insert(0, dataset)
        stem = "-".join(map(slug, names))
        is_of_pair = (samples["dataset"] == dataset) & (samples["model"] == model)
        predicted = samples[is_of_pair].set_index("sample")["predicted"]
        arrays: dict[str, Any] = {
            "ids": np.array(list(maps)),
            "maps": np.stack(list(maps.values())),
            "targets": predicted[list(maps)],
        }
        np.savez_compressed(folder / f"{stem}.npz", **arrays)
        written[f"{stem}.npz"] = len(maps)
        for sample, values in maps.items():
            if values.ndim != 3:
                continue  # not a map of an image
            white = np.full((*values.shape[1:], 3), 255, dtype=np.uint8)
            is_signed = bool((values < 0).any())
            picture = Image.fromarray(overlaid(white, values.sum(0), is_signed))
            (folder / stem).mkdir(exist_ok=True)
            picture.save(folder / stem / f"{slug(sample)}.png")
    if not written:
        raise UserError(f"{run.path} holds no maps; {ADVICE}")
    return written | write_study(run, folder, gaps)


FORMATS: dict[str, Callable[[Run, Path, list[str]], dict[str, int | None]]] = {
    "csv": partial(_tables, "csv"),
    "arrow": partial(_tables, "arrow"),
    "hf": _hf,
    "maps": _maps,
    "zip": lambda run, path, gaps: dict.fromkeys(write_zip(run, path)),
}


def _target(run: Place, packed: Path | None, to: str, out: str | Path | None) -> Path:
    """Return where an export goes: `out`, or beside the run; raise if something is there or it is inside the run."""
    if packed is not None:
        run_path = packed.resolve().with_suffix("")
    elif isinstance(run, Path):
        run_path = run.resolve()
    else:
        run_path = Path(
            run.name
        )  # the run is in a store, so its export goes to the current directory
    ending = ".zip" if to == "zip" else f"-{to}"
    target = run_path.with_name(run_path.name + ending) if out is None else place(out)
    if not isinstance(target, Path):
        raise UserError(
            f"an export goes to a local path, got {out}; copy it to the store afterwards"
        )
    if target.exists() or target.is_symlink():
        raise UserError(f"{target} is there already; remove it or give another place with --out")
    if isinstance(run, Path) and target.resolve().is_relative_to(run.resolve()):
        raise UserError(
            f"{target} is inside the run directory, which holds nothing else; give another place"
        )
    return target


@contextmanager
def _new(target: Path) -> Iterator[Path]:
    """A place to write to that becomes `target` at the end, unless something else has come there meanwhile."""
    folder = None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        folder = tempfile.mkdtemp(
            prefix=f".{target.name[:60]}.{this_host()}-{os.getpid()}.", dir=target.parent
        )
        temporary = Path(folder) / target.name
        yield temporary
        if target.exists():
            raise UserError(f"{target} came into being meanwhile; the export was not written")
        for path in (temporary, *temporary.rglob("*")):
            sync(path)
        temporary.rename(target)
        sync(target.parent)
    except OSError as error:
        raise failure(target, error) from error
    finally:
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)

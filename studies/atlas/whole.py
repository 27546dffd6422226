"""What a call that was cut left whole: shards of an evaluation that every method was asked about."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from heatproof.runs.verify import missing

MISSING = re.compile(r"shard (\d+) of .+? on (.+?): (\S+) of ")


def whole(path: Path, scratch: Path) -> Path:
    """The run without the shards of an evaluation that lack a method, so that all methods have the same samples.

    A copy in `scratch`, of links, where there are such shards; the run itself else.
    """
    matches = (MISSING.match(what) for what in missing(str(path)))
    lacking = {(int(m[1]), m[2], m[3]) for m in matches if m}
    files = [
        *path.glob("parts/*/*/*/*/*.parquet"),
        *path.glob("references/*/*/*/*/*.parquet"),
    ]
    cut = {file for file in files if _job(file) in lacking}
    if not cut:
        return path

    def left_out(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if Path(folder) / name in cut}

    shutil.copytree(path, scratch / path.name, ignore=left_out, copy_function=os.link)
    print(
        f"{path.name}: {len(cut)} parts of shards that were not done for all methods are left out"
    )
    return scratch / path.name


def _job(file: Path) -> tuple[int, str, str]:
    """Shard, model and evaluation of a part, by where it lies."""
    return int(file.name.split(".")[0]), file.parts[-4], file.parts[-3]

"""What checking costs: reading a table of a million rows with and without it, and `heatproof verify`.

    python benchmarks/bench_verify.py

The run is made up, as in bench_growth.py: 32 samples to a part. "Without" reads the same bytes and checks no digest;
beside SHA-256, which is what is used, stand the seconds that a checksum of 32 bits would take on the same bytes. Each
figure is the processor time of this process, the smallest of several turns, for other work on the machine only adds.
"""

from __future__ import annotations

import argparse
import hashlib
import tempfile
import time
import zlib
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from bench_growth import Size, write_run
from heatproof.runs import digests, storage, tables
from heatproof.runs.verify import verify


def seconds(act: Callable[[], object], turns: int) -> float:
    """Processor time of the quickest turn."""
    best = float("inf")
    for _ in range(turns):
        begun = time.process_time()
        act()
        best = min(best, time.process_time() - begun)
    return best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--turns", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "run"
        size = Size().with_rows(given.rows)
        write_run(root, size)
        contents = [path.read_bytes() for path in storage.files(root / "parts", ".parquet")]
        checked = seconds(lambda: tables.read_scores(root, compact=True), given.turns)
        with mock.patch.object(digests, "check"):
            plain = seconds(lambda: tables.read_scores(root, compact=True), given.turns)
        sha = seconds(
            lambda: [hashlib.sha256(content).hexdigest() for content in contents], given.turns
        )
        crc = seconds(lambda: [zlib.crc32(content) for content in contents], given.turns)
        whole = seconds(lambda: verify(root), given.turns)
    bytes_ = sum(map(len, contents))
    print(
        f"{size.rows:,} rows in {len(contents):,} parts of {bytes_ / len(contents) / 1e3:.1f} kB, {bytes_ / 1e6:.1f} MB"
    )
    print(f"reading without digests   {plain:6.2f} s")
    print(f"reading, digests checked  {checked:6.2f} s   {100 * (checked - plain) / plain:+.1f} %")
    print(f"SHA-256 alone             {sha:6.3f} s   {100 * sha / plain:.1f} % of reading")
    print(f"CRC-32 alone              {crc:6.3f} s   {100 * crc / plain:.1f} % of reading")
    print(f"heatproof verify           {whole:6.2f} s, of every file of the run")


if __name__ == "__main__":
    main()

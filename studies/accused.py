"""Which methods the report accuses of breaking a symmetry, run by run.

python studies/accused.py runs/graphs runs/ecg
"""

from __future__ import annotations

import argparse
from pathlib import Path

import heatproof
from heatproof.results.reports import findings_of


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("runs", nargs="+", type=Path, help="run directories of symmetry studies")
    for path in parser.parse_args().runs:
        run = heatproof.read(path)
        for result in run.results():
            severe = [finding for finding in findings_of(result) if finding.severity == "problem"]
            print(f"## {path.name}, {result.model}: {len(severe)} findings to act on")
            for finding in severe:
                print(f"- {finding.title}. {finding.seen}")


if __name__ == "__main__":
    main()

"""heatproof as a program that sends itself a signal at the n-th time that it syncs, renames or links a file.

    python stopping.py 12 SIGKILL run study.yaml --out run

So a test that interrupts a run need not be quick enough to do so.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from heatproof import cli


def main() -> None:
    left, sent = [int(sys.argv[1])], signal.Signals[sys.argv[2]]
    del sys.argv[1:3]

    def counted(act: Callable[..., Any]) -> Callable[..., Any]:
        def watched(*given: Any, **options: Any) -> Any:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), sent)
            return act(*given, **options)

        return watched

    for name in ("fsync", "replace", "link"):
        setattr(os, name, counted(getattr(os, name)))
    cli.program()


if __name__ == "__main__":
    main()

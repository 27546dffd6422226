"""Files read and parts written by other threads while the device works."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from heatproof.data import Loaded
from heatproof.runs.directory import key_of, write_part
from heatproof.runs.plan import Job, Plan
from heatproof.runs.storage import Place


def read_ahead(
    plan: Plan, following: Sequence[Job], reader: ThreadPoolExecutor
) -> Future[Loaded] | None:
    """The samples of the shard that follows, on their way; None where there is none, or other threads may not read."""
    for dataset, _, number in following:
        if plan.data[dataset].threads > 1:
            return reader.submit(plan.data[dataset].load, plan.shards(dataset)[number])
    return None


class Writer:
    """Makes and writes parts in a thread of its own while the device goes on; leaving the context waits for the last.

    `keys` are the `study_keys` of the run. A part that could not be written raises when another is handed in, or at the
    end; four may wait, for methods of one pass make them faster than they are written.
    """

    def __init__(self, root: Place, keys: Mapping[str, str]) -> None:
        self._root, self._keys = root, keys
        self._thread = ThreadPoolExecutor(1, "heatproof-writer")
        self._pending: deque[Future[None]] = deque()

    def __enter__(self) -> Writer:
        return self

    def __call__(self, path: Place, rows: Callable[[], Any]) -> None:
        """Make the rows of a part and write it after those before it."""
        self._wait(4)
        part = self._thread.submit(
            lambda: write_part(path, rows(), key_of(self._keys, self._root, path))
        )
        self._pending.append(part)

    def __exit__(self, *exception: object) -> None:
        self._thread.shutdown(wait=True)
        if exception[0] is None:
            self._wait()

    def _wait(self, most: int = 0) -> None:
        while self._pending and (len(self._pending) > most or self._pending[0].done()):
            self._pending.popleft().result()

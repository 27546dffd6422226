"""Files read by another thread while the device works; `directory.PartWriter` writes parts in one."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from heatproof.data import Loaded
from heatproof.runs.directory import Job
from heatproof.runs.plan import Plan


def read_ahead(
    plan: Plan, following: Sequence[Job], reader: ThreadPoolExecutor
) -> Future[Loaded] | None:
    """Start to read the samples of the first of these shards.

    None where there is none, or where other threads may not read the data.
    """
    if not following:
        return None
    dataset, _, number = following[0]
    data = plan.data[dataset]
    if data.threads <= 1:
        return None
    return reader.submit(data.load, plan.shards(dataset)[number])

"""The same shards, done by several processes, by the tasks of a SLURM array, or by a Ray cluster.

An executor is given the plan, the run directory, the shards to do and the progress bar's `advance`, and returns what the
session should say of it. Whoever does a shard writes its parts; an executor only hands out names.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from heatproof.runs.directory import Job
from heatproof.runs.executors.cluster import Ray, import_ray
from heatproof.runs.executors.local import Processes
from heatproof.runs.executors.worker import FromStudy, Pickled, WorkerError, pickled
from heatproof.runs.plan import Plan
from heatproof.runs.progress import Advance
from heatproof.runs.storage import Place

__all__ = [
    "Executor",
    "FromStudy",
    "Pickled",
    "Processes",
    "Ray",
    "WorkerError",
    "import_ray",
    "pickled",
]

Executor = Callable[[Plan, Place, list[Job], Advance], dict[str, Any]]

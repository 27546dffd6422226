"""Tasks: what is read off a network's output, which of these numbers is explained, and when a prediction is unchanged.

A task turns whatever a network returns into a table of readouts (B, K). Explainers differentiate a column of it; axes
ask the task whether a prediction is the same, how sure it is, and how a change is said.

>>> as_task({"regression": {"tolerance": 0.5}}).same(torch.tensor([[3.0]]), torch.tensor([[3.4]]), torch.tensor([0]))
tensor([True])
"""

from __future__ import annotations

from typing import Any

import torch  # noqa: F401 (of the example above)

from heatproof.errors import resolve
from heatproof.models.tasks.classes import Binary, Classification, MultiLabel, Options
from heatproof.models.tasks.contract import (
    ANSWER,
    FIXED,
    REGION,
    Task,
    at,
    has_probability,
    with_region,
)
from heatproof.models.tasks.representations import Representation, resolved_reference
from heatproof.models.tasks.values import Answer, Readout, Regression, Segmentation

__all__ = [
    "ANSWER",
    "FIXED",
    "REGION",
    "TASKS",
    "Answer",
    "Binary",
    "Classification",
    "MultiLabel",
    "Options",
    "Task",
]
__all__ += [
    "Readout",
    "Regression",
    "Representation",
    "Segmentation",
    "as_task",
    "at",
    "has_probability",
    "resolved_reference",
    "with_region",
]

TASKS: dict[str, Any] = {
    kind.name: kind
    for kind in (Classification, Binary, MultiLabel, Regression, Segmentation, Representation)
}
"""Every task by its name in a study."""


def as_task(spec: Any) -> Task:
    """A task from its name, from {name: parameters}, or itself.

    >>> as_task("binary"), as_task({"multi_label": {"label": 2}})
    (Binary(outputs=None), MultiLabel(label=2, threshold=0.5, outputs=None))
    """
    task: Task = resolve("task", TASKS, spec, lambda item: isinstance(item, Task))
    return task

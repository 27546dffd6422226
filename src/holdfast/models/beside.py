"""Work of the CPU done in a thread of its own while the device computes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import torch

Result = TypeVar("Result")


@contextmanager
def beside(device: torch.device, calls: Sequence[Callable[[], Result]]) -> Iterator[Sequence[Callable[[], Result]]]:
    """The calls, made one after another in a thread of their own where the device is not the CPU itself.

    >>> with beside(torch.device("cpu"), [lambda: 2, lambda: 3]) as results:
    ...     [result() for result in results]
    [2, 3]
    """
    if device.type == "cpu":
        yield calls
        return
    with ThreadPoolExecutor(1, "holdfast-beside") as thread:
        yield [thread.submit(call).result for call in calls]

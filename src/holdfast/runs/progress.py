"""A progress bar with rate and remaining time, on a terminal only."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from holdfast.errors import printable


@contextmanager
def progress(total: int, title: str, show: bool | None = None) -> Iterator[Callable[[str, int], None]]:
    """Yields `tick(what, amount)`. Shown when standard error is a terminal, unless told otherwise.

    >>> with progress(2, "demo", show=False) as tick:
    ...     tick("saliency", 2)
    """
    if not (sys.stderr.isatty() if show is None else show) or total == 0:
        yield lambda what, amount: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("[bold]{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        TextColumn("[dim]{task.fields[what]}"),
    )
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task(title, total=total, rate="", what="starting")

        def tick(what: str, amount: int) -> None:
            bar.advance(task, amount)
            speed = bar.tasks[0].speed
            bar.update(task, what=printable(what), rate=f"{speed:.1f} pairs/s" if speed else "")

        yield tick

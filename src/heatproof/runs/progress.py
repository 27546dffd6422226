"""How far a run is and how long it still takes: a bar on a terminal or in a notebook, elsewhere a line a minute."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from heatproof.errors import printable

MINUTE = 60.0
Advance = Callable[[str, int], None]
"""`advance(step, amount)`: so much of a step such as "stability of lime" is done; with 0, it begins."""


def duration(seconds: float) -> str:
    """Return a time in words.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@dataclass
class Clock:
    """Estimates how long the rest of `work` takes, from the pace of each step such as "stability of lime" so far.

    work                what is to be done in this session, by step
    finished            what earlier sessions did of the same steps; it counts in what is shown as done
    seconds_per_amount  an estimate made beforehand, for steps that were not begun. It is corrected by the ratio of
                        measured to estimated seconds of the others: a machine is slower than in the trial for all alike.

    Without an estimate a step that was not begun goes at the mean pace of the same explainer in other steps, else at
    that of all steps.

    >>> at = iter([0.0, 9.0, 10.0, 10.0]).__next__
    >>> clock = Clock({"stability of lime": 3, "stability of saliency": 3}, at)
    >>> clock.tick("stability of lime", 1), clock.tick("stability of saliency", 1), clock.left()
    (None, None, 20.0)
    """

    work: Mapping[str, int]
    now: Callable[[], float] = time.monotonic
    finished: Mapping[str, int] = field(default_factory=dict)
    seconds_per_amount: Mapping[str, float] = field(default_factory=dict)
    running: str = "starting"
    done: Counter[str] = field(default_factory=Counter)
    seconds: dict[str, float] = field(default_factory=dict)
    has_ended: bool = False

    def __post_init__(self) -> None:
        self.last = self.now()

    def end(self) -> None:
        """Note that nothing more will be done, because all is done or because of an error."""
        self.has_ended = True

    @property
    def is_done(self) -> bool:
        """Whether all the work is done."""
        return all(self.done[step] >= amount for step, amount in self.work.items())

    def tick(self, step: str, amount: int) -> None:
        """Note that so much of a step is done; with 0 it begins, and the time since the last tick was another's."""
        now = self.now()
        timed_step = step if amount else self.running
        self.seconds[timed_step] = self.seconds.get(timed_step, 0.0) + now - self.last
        self.done[step] += amount
        self.running, self.last = step, now

    def left(self) -> float | None:
        """Return the seconds still to go; None before anything is known."""
        measured = self._measured_pace()
        if not measured and not self.seconds_per_amount:
            return None
        seconds = 0.0
        for step, total in self.work.items():
            seconds += max(total - self.done[step], 0) * self._pace(step, measured)
        time_in_running_step = self.now() - self.last
        return max(seconds - time_in_running_step, 0.0)

    def share(self) -> float:
        """Return which share of the time is over, that of earlier sessions included."""
        if self.has_ended and self.is_done:
            return 1.0
        left = self.left()
        if left is None:
            finished, to_do = sum(self.finished.values()), sum(self.work.values())
            return finished / max(finished + to_do, 1)
        measured = self._measured_pace()
        over = sum(list(self.seconds.values()))
        for step, amount in self.finished.items():
            over += amount * self._pace(step, measured)
        return over / max(over + left, 1e-9)

    def text(self) -> str:
        """Return how far the work is, and what is running, in a line; at the end, how long it took.

        >>> at = iter([0.0, 9.0]).__next__
        >>> clock = Clock({"stability of lime": 3}, at)
        >>> clock.tick("stability of lime", 3)
        >>> clock.end()
        >>> clock.text()
        'done in 9 s'
        """
        if self.has_ended and self.is_done:
            return f"done in {duration(sum(self.seconds.values()))}"
        if self.has_ended:
            return f"stopped at {100 * self.share():.0f} %"
        left, running = self.left(), f"now {self.running}"
        if left is None:
            return printable(running)
        done = f"{100 * self.share():.0f} % done"
        return printable(f"{done}, about {duration(left)} left, {running}")

    def _measured_pace(self) -> dict[str, float]:
        """Return the seconds per amount of every step of which something is done."""
        pace_of_step = {}
        for step, amount in list(self.done.items()):  # a copy: another thread ticks
            if amount > 0:
                pace_of_step[step] = self.seconds.get(step, 0.0) / amount
        return pace_of_step

    def _pace(self, step: str, measured: Mapping[str, float]) -> float:
        """Return the seconds per amount of a step: measured, else estimated, else those of similar steps."""
        if step in measured:
            return measured[step]
        if step in self.seconds_per_amount:
            return self.seconds_per_amount[step] * self._correction(measured)
        if not measured:
            return 0.0
        explainer = step.partition(" of ")[2]
        paces = [p for other, p in measured.items() if other.partition(" of ")[2] == explainer]
        paces = paces or list(measured.values())
        return sum(paces) / len(paces)

    def _correction(self, measured: Mapping[str, float]) -> float:
        """Return how many times longer steps took than was estimated; 1 before any is measured."""
        took = estimated = 0.0
        for step, pace in measured.items():
            if step in self.seconds_per_amount:
                took += self.done[step] * pace
                estimated += self.done[step] * self.seconds_per_amount[step]
        return took / estimated if took > 0 and estimated > 0 else 1.0


@contextmanager
def progress(
    work: Mapping[str, int],
    title: str,
    show: bool | None = None,
    finished: Mapping[str, int] | None = None,
    seconds_per_amount: Mapping[str, float] | None = None,
) -> Iterator[Advance]:
    """Yield the function that is told of each step of `work`; nothing is shown where `show` is False.

    `finished` and `seconds_per_amount` are those of `Clock`.

    >>> with progress({"stability of saliency": 2}, "demo", show=False) as advance:
    ...     advance("stability of saliency", 2)
    """
    if show is False or not sum(work.values()):
        yield lambda step, amount: None
        return
    clock = Clock(work, finished=finished or {}, seconds_per_amount=seconds_per_amount or {})
    is_over = threading.Event()
    with ExitStack() as stack:
        update, interval = _display(stack, clock, title, bool(show))

        def update_repeatedly() -> None:
            while not is_over.wait(interval):
                update()

        # In a thread of its own, because one step may take hours.
        thread = threading.Thread(target=update_repeatedly, name="heatproof-progress", daemon=True)
        thread.start()
        try:
            yield clock.tick
        finally:
            is_over.set()
            thread.join()
            clock.end()
            if interval < MINUTE:
                update()


def shows_a_bar(show: bool | None) -> bool:
    """Return whether progress is shown as a bar, which needs to know the time left from the start."""
    return show is not False and (show is True or sys.stderr.isatty() or _is_in_notebook())


def _is_in_notebook() -> bool:
    ipython = sys.modules.get("IPython")
    return ipython is not None and getattr(ipython.get_ipython(), "kernel", None) is not None


def _display(
    stack: ExitStack, clock: Clock, title: str, show: bool
) -> tuple[Callable[[], None], float]:
    """Return what updates the display, and after how many seconds again."""
    if _is_in_notebook():
        return _notebook_bar(sys.modules["IPython"], clock, title), 1.0
    if show or sys.stderr.isatty():
        return _terminal_bar(stack, clock, title), 0.5

    def print_line() -> None:
        print(f"heatproof: {title}, {clock.text()}", file=sys.stderr)

    return print_line, MINUTE


def _notebook_bar(ipython: Any, clock: Clock, title: str) -> Callable[[], None]:
    html, bar = ipython.display.HTML, Markup("<progress value={:.4f}></progress> {} {}")
    handle = ipython.display.display(html(""), display_id=True)
    return lambda: handle.update(html(bar.format(clock.share(), title, clock.text())))


def _terminal_bar(stack: ExitStack, clock: Clock, title: str) -> Callable[[], None]:
    """Show a bar on standard error until the stack ends; return the function that draws it anew."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    text = TextColumn("{task.description}", markup=False)
    bar = Progress(BarColumn(), TimeElapsedColumn(), text, console=Console(stderr=True))
    stack.enter_context(bar)
    task = bar.add_task(title, total=1.0)
    return lambda: bar.update(task, completed=clock.share(), description=f"{title}, {clock.text()}")

"""How far a run is and how long it still takes: a bar on a terminal or in a notebook, elsewhere a line a minute."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

from markupsafe import Markup

from heatproof.errors import printable

MINUTE = 60.0
Advance = Callable[[str, int], None]
"""`advance(step, amount)`: so much of a step such as "stability of lime" is done; with 0, it begins."""


def duration(seconds: float) -> str:
    """A time as people say it.

    >>> duration(42), duration(600), duration(9000)
    ('42 s', '10 min', '2.5 h')
    """
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@dataclass
class Clock:
    """How long what is left of `work` takes, in steps such as "stability of lime", each at its own pace so far.

    A step that was not begun goes at the pace of the same explainer elsewhere, else at that of all.

    >>> at = iter([0.0, 9.0, 10.0, 10.0]).__next__
    >>> clock = Clock({"stability of lime": 3, "stability of saliency": 3}, at)
    >>> clock.tick("stability of lime", 1), clock.tick("stability of saliency", 1), clock.left()
    (None, None, 20.0)
    """

    work: Mapping[str, int]
    now: Callable[[], float] = time.monotonic
    running: str = "starting"
    done: Counter[str] = field(default_factory=Counter)
    spent: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.last = self.now()

    def tick(self, what: str, amount: int) -> None:
        """So much of a step is done; with 0, it begins, and what went by was for the one before."""
        now, paid = self.now(), what if amount else self.running
        self.spent[paid] = self.spent.get(paid, 0.0) + now - self.last
        self.done[what] += amount
        self.running, self.last = what, now

    def left(self) -> float | None:
        """Seconds still to go; None where nothing is known yet."""
        paces = {
            step: self.spent.get(step, 0.0) / n for step, n in list(self.done.items()) if n > 0
        }
        if not paces:
            return None
        seconds = self.last - self.now()
        for step, total in self.work.items():
            alike = [
                p
                for other, p in paces.items()
                if other.partition(" of ")[2] == step.partition(" of ")[2]
            ]
            known = [paces[step]] if step in paces else alike or [*paces.values()]
            seconds += max(total - self.done[step], 0) * sum(known) / len(known)
        return max(seconds, 0.0)

    def words(self) -> tuple[float, str]:
        """Which share of the time is over, and how far it is, in a line."""
        left, over = self.left(), sum(self.spent.values())
        share = 0.0 if left is None else over / max(over + left, 1e-9)
        told = "" if left is None else f"{100 * share:.0f} % done, about {duration(left)} left, "
        return share, printable(f"{told}now {self.running}")


@contextmanager
def progress(work: Mapping[str, int], title: str, show: bool | None = None) -> Iterator[Advance]:
    """Yield the function that is told of each step of `work`; nothing is shown where `show` is False.

    >>> with progress({"stability of saliency": 2}, "demo", show=False) as advance:
    ...     advance("stability of saliency", 2)
    """
    if show is False or not sum(work.values()):
        yield lambda step, amount: None
        return
    clock, over = Clock(work), threading.Event()
    with ExitStack() as stack:
        say, every = _voice(stack, clock, title, bool(show))

        def speak() -> None:  # in a thread, for one step may take hours
            while not over.wait(every):
                say()

        voice = threading.Thread(target=speak, name="heatproof-progress", daemon=True)
        voice.start()
        try:
            yield clock.tick
        finally:
            over.set()
            voice.join()
            if every < MINUTE:
                say()


def _voice(
    stack: ExitStack, clock: Clock, title: str, show: bool
) -> tuple[Callable[[], None], float]:
    """What says how far it is, and after how many seconds again."""
    shell = sys.modules.get("IPython")
    if shell is not None and getattr(shell.get_ipython(), "kernel", None) is not None:
        drawn_by, bar = shell.display.HTML, Markup("<progress value={:.4f}></progress> {} {}")
        place = shell.display.display(drawn_by(""), display_id=True)
        return lambda: place.update(
            drawn_by(bar.format(clock.words()[0], title, clock.words()[1]))
        ), 1.0
    if not show and not sys.stderr.isatty():
        return lambda: print(f"heatproof: {title}, {clock.words()[1]}", file=sys.stderr), MINUTE
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    said = TextColumn("{task.description}", markup=False)
    drawn = stack.enter_context(
        Progress(BarColumn(), TimeElapsedColumn(), said, console=Console(stderr=True))
    )
    task = drawn.add_task(title, total=1.0)

    def update() -> None:
        share, words = clock.words()
        drawn.update(task, completed=share, description=f"{title}, {words}")

    return update, 0.5

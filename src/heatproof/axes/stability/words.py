"""Stability in sentences: who is best, and what is not above chance under single perturbations."""

from __future__ import annotations

import pandas as pd

from heatproof.axes.stability.frames import Frames
from heatproof.axes.stability.perturbations import title
from heatproof.drawing.prose import LISTED, listing, records


def verdict(frames: Frames) -> list[str]:
    """Return what the tests support, then the perturbations under which a method is at or below chance."""
    return [*frames.result.decided(), *_at_chance(frames)]


def _at_chance(frames: Frames) -> list[str]:
    cells = frames.result.named(frames.at_chance())
    worse = cells["best_high"] < 0
    said = []
    for words, rows in (("Below chance", cells[worse]), ("Within noise of chance", cells[~worse])):
        if len(rows) > LISTED:
            counts = rows["explainer"].value_counts()
            most = f"most often {counts.index[0]}, {int(counts.iloc[0])} times"
            said.append(f"{words}: {len(rows)} pairs of a method and a perturbation, {most}.")
        elif len(rows):
            said.append(f"{words}: {'; '.join(_by_method(rows))}.")
    return said


def _by_method(cells: pd.DataFrame) -> list[str]:
    return [
        f"{name} under {listing(title(r.condition, r.level) for r in records(rows))}"
        for name, rows in cells.groupby("explainer", sort=False)
    ]

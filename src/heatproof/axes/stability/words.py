"""The verdict in words, computed from the ranking and the tests and never saying more than they do."""

from __future__ import annotations

import pandas as pd

from heatproof.axes.stability.frames import Frames
from heatproof.axes.stability.perturbations import title
from heatproof.drawing.prose import LISTED, above, ahead_of, listing, records, some, with_interval


def verdict(frames: Frames) -> list[str]:
    """Which method holds, in sentences: the best one or those not told apart, then controls and chance."""
    scored, methods = frames.ranking[frames.ranking["score"].notna()], frames.methods
    if scored.empty:
        return ["Nothing can be concluded: no pair of maps was retained, so there is no score."]
    if methods.empty:
        return [
            f"Nothing can be concluded: only controls were scored ({some(scored['explainer'])})."
        ]
    kind = "calibrated score" if frames.calibrated else "score"
    text = {
        row.explainer: with_interval(row.score, row.low, row.high, row.samples)
        for row in records(methods)
    }
    best, *others = methods["explainer"]
    tied = [name for name in others if not above(frames.tests, best, name)]
    if not others:
        sentences = [
            f"{best} has a {kind} of {text[best]}; no other method was run to compare it with."
        ]
    elif tied:
        top = [best, *tied]
        who = listing(top) if len(top) <= LISTED else f"{len(top)} methods"
        scores = some([f"{name} {text[name]}" for name in top])
        sentences = [f"{who} cannot be separated at the top: {kind} {scores}."]
    else:
        sentences = [
            f"{best} holds best: {kind} {text[best]}.",
            ahead_of(frames.tests, best, others[0]),
        ]
    return sentences + _against_controls(frames, scored, methods) + _at_chance(frames)


def _against_controls(frames: Frames, scored: pd.DataFrame, methods: pd.DataFrame) -> list[str]:
    sentences = []
    controls = scored[scored["control"]]
    for r in records(controls):
        below = [m for m in methods["explainer"] if not above(frames.tests, m, r.explainer)]
        if not below:
            continue
        every = len(below) == len(methods) > 1
        who = "no method is" if every else f"{some(below)} {'is' if len(below) == 1 else 'are'} not"
        if frames.registered(r.explainer) == "random":
            sentences.append(
                f"{who[0].upper() if every else who[0]}{who[1:]} separated from the control {r.explainer}."
            )
        else:
            text = f"The control {r.explainer}, which explains nothing, scores "
            sentences.append(
                f"{text}{with_interval(r.score, r.low, r.high)}: {who} shown to do better."
            )
    return sentences


def _at_chance(frames: Frames) -> list[str]:
    cells = frames.at_chance()
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

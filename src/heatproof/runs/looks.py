"""Looks at a run that decides on its number of samples: what the rows so far say, and what follows; see `runs.sampling`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Any

import pandas as pd

from heatproof.axes import axis_of
from heatproof.results.arrays import ScoreArrays
from heatproof.results.comparisons import paired_tests
from heatproof.results.score_estimates import score_estimates
from heatproof.results.verdict import significant_pairs
from heatproof.runs import storage, tables
from heatproof.runs.directory import PartKey, RunDirectory
from heatproof.runs.manifest import (
    Look,
    Manifest,
    Outcome,
    PairEntry,
    PairState,
    Sampling,
    WidthEntry,
)
from heatproof.runs.plan import Plan
from heatproof.runs.results import arrays_of_run, in_study_order
from heatproof.runs.sampling import TOLERANCE, allowed_units, has_a_say, look_sizes, unit_ends
from heatproof.runs.storage import Place
from heatproof.statistics.sample_sizes import half_width, samples_for_half_width
from heatproof.text import records


def has_finished_stage(plan: Plan, directory: RunDirectory, dataset: str) -> bool:
    """Return whether everything of a data set is there, as far as its number of samples is decided."""
    jobs = [job for job in plan.jobs() if job.dataset == dataset]
    return not any(plan.missing_parts(directory, job) for job in jobs)


def look_at(plan: Plan, directory: RunDirectory, dataset: str) -> Look:
    """Return what the rows of a data set say of its number of samples, all of which are there."""
    assert plan.sampling is not None
    every_arrays = _arrays_so_far(plan, directory, dataset)
    if plan.sampling.until:
        return _look_at_pairs(plan, every_arrays, dataset, directory.manifest)
    return _look_at_widths(plan, every_arrays, dataset, directory.manifest)


def _arrays_so_far(plan: Plan, directory: RunDirectory, dataset: str) -> list[ScoreArrays]:
    """Return the scores of a data set from the shards of the stages so far, and no others.

    A stage after them may have been begun by a process whose record of the look is gone.
    """
    keys: dict[str, list[PartKey]] = {"scores": [], "references": [], "samples": []}
    for job in plan.jobs():
        if job.dataset == dataset:
            for key in plan.possible_parts(job):
                if key.kind in keys:
                    keys[key.kind].append(key)
    storage.forget_listings()
    root = directory.root
    parts: dict[str, list[Place]] = {}
    for kind, of_kind in keys.items():
        parts[kind] = sorted(directory.existing_files(of_kind), key=str)
    table = tables.read_scores(root, compact=True, parts=parts["scores"])
    return arrays_of_run(
        in_study_order(table, directory.manifest),
        directory.manifest,
        tables.read_samples(root, parts["samples"]),
        tables.read_references(root, parts["references"]),
    )


def _headlines(
    every_arrays: Sequence[ScoreArrays], manifest: Manifest
) -> Iterator[tuple[ScoreArrays, str]]:
    """Yield the scores that have a say, with the measure by which methods are ranked."""
    for arrays in every_arrays:
        axis = axis_of(arrays.evaluation, manifest, arrays.values)
        if has_a_say(axis):
            for measure in axis.headlines(arrays):
                yield arrays, measure


# ---- half_width ----------------------------------------------------------------------------------------------------


def _look_at_widths(
    plan: Plan, every_arrays: Sequence[ScoreArrays], dataset: str, manifest: Manifest
) -> Look:
    """Return the look after the pilot, or after all samples that were planned."""
    sampling = plan.sampling or Sampling()
    width = float(sampling.half_width or 0)
    ends = unit_ends(plan.data[dataset])
    samples = plan.sample_count(dataset)
    units = ends.index(samples) + 1
    widths: list[WidthEntry] = []
    for arrays, measure in _headlines(every_arrays, manifest):
        widths += widths_of(arrays, measure, width, sampling.level, units)
    look = Look(dataset=dataset, samples=samples, next=samples, outcome="no scores", widths=widths)
    numbers = [entry.needed for entry in widths if entry.needed is not None]
    if not numbers:
        return look

    most = allowed_units(sampling, ends)
    needed = max(numbers)
    is_pilot = len(plan.stage_ends[dataset]) == 1
    if is_pilot and needed > units and units < most:
        next_samples = ends[min(needed, most) - 1]
        return look.model_copy(
            update={"next": next_samples, "outcome": "goes on", "needed": _samples(needed, ends)}
        )
    is_narrow = all(
        entry.width is not None and entry.width <= width * TOLERANCE for entry in widths
    )
    if is_narrow:
        return look.model_copy(update={"outcome": "reached"})
    if units < most:  # what was planned from the pilot was not enough
        outcome: Outcome = "missed"
    else:
        outcome = "all samples" if units == len(ends) else "at_most"
    return look.model_copy(update={"outcome": outcome, "needed": _samples(needed, ends)})


def widths_of(
    arrays: ScoreArrays, measure: str, width: float, level: float, units: int
) -> Iterator[WidthEntry]:
    """Yield the half-width of the overall score of every method, and how many samples or groups the requested one takes."""
    of_measure = arrays.for_measure(measure)
    names = [name for name, _ in of_measure.conditions]
    scores = score_estimates(of_measure, measure).nested(names)
    reached = half_width(scores, level)
    for e, explainer in enumerate(of_measure.explainers):
        scored = int(scores.n[e])
        if explainer in of_measure.controls or scored == 0:
            continue
        needed = samples_for_half_width(scores[e], width, of_measure.is_rate(measure), level)
        if needed is not None:  # not every sample has a score
            needed = -(-needed * units // scored)
        yield WidthEntry(
            model=arrays.model,
            evaluation=arrays.evaluation,
            measure=measure,
            explainer=explainer,
            width=None if pd.isna(reached[e]) else float(reached[e]),
            needed=needed,
        )


def _samples(units: int, ends: Sequence[int]) -> int:
    """Return how many samples so many groups are, also where the data have fewer."""
    if units <= len(ends):
        return ends[units - 1]
    return round(units * ends[-1] / len(ends))


# ---- until: decided ------------------------------------------------------------------------------------------------


def _look_at_pairs(
    plan: Plan, every_arrays: Sequence[ScoreArrays], dataset: str, manifest: Manifest
) -> Look:
    """Return the look that tests every pair of methods."""
    sampling = plan.sampling or Sampling()
    pairs: list[PairEntry] = []
    for arrays, measure in _headlines(every_arrays, manifest):
        pairs += pairs_of(arrays, measure, sampling)
    ends = unit_ends(plan.data[dataset])
    sizes = look_sizes(sampling, ends)
    samples = plan.sample_count(dataset)
    look = Look(dataset=dataset, samples=samples, next=samples, outcome="no scores", pairs=pairs)
    if not pairs:
        return look
    if not any(pair.state == "open" for pair in pairs):
        return look.model_copy(update={"outcome": "reached"})
    later = [size for size in sizes if size > samples]
    if later:
        return look.model_copy(update={"outcome": "goes on", "next": later[0]})
    return look.model_copy(update={"outcome": "all samples" if samples == ends[-1] else "at_most"})


def pairs_of(arrays: ScoreArrays, measure: str, sampling: Sampling) -> Iterator[PairEntry]:
    """Yield every pair of methods with what the paired tests of the report say of it."""
    tests = paired_tests(arrays, measure, level=sampling.level)
    different = {frozenset(pair) for pair in significant_pairs(tests)}
    by_pair = {frozenset((test.a, test.b)): test for test in records(tests)}
    of_measure = arrays.for_measure(measure)
    methods = []
    for explainer, has_rows in zip(
        of_measure.explainers, of_measure.has_rows[measure], strict=True
    ):
        if explainer not in arrays.controls and has_rows.any():
            methods.append(explainer)
    for a, b in combinations(methods, 2):
        test = by_pair[frozenset((a, b))]
        state: PairState = "open"
        if frozenset((a, b)) in different:
            state = "different"
        elif sampling.margin is not None and _is_within(test, sampling.margin):
            state = "equal"
        yield PairEntry(
            model=arrays.model,
            evaluation=arrays.evaluation,
            measure=measure,
            a=a,
            b=b,
            state=state,
        )


def _is_within(test: Any, margin: float) -> bool:
    """Return whether the interval of a difference lies between −margin and margin; False without an interval."""
    return bool(-margin < test.low and test.high < margin)

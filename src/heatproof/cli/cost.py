"""What `heatproof plan` says of the cost of a study: a table of passes and time, and how many samples it may take."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from heatproof.errors import counted

if TYPE_CHECKING:
    from heatproof.runs.cost import Estimate
    from heatproof.runs.plan import Plan

NARROW, WIDE = 0.1, 0.25
"""Standard deviations over samples between which scores usually lie (see docs/studies.md, Measured)."""


def cost_table(estimate: Estimate) -> list[str]:
    """Return the lines of a table of passes and time, with a row for each explainer and a column for each test.

    What tests share, such as clean maps, counts for the first of them.
    """
    from heatproof.runs.progress import duration

    passes, seconds = estimate.passes_of_steps, estimate.seconds
    steps = [step for step in seconds if " of " in step]
    tests = list(dict.fromkeys(step.rpartition(" of ")[0] for step in steps))
    explainers = list(dict.fromkeys(step.rpartition(" of ")[2] for step in steps))
    of_explainer = {}
    for explainer in explainers:
        own = [step for step in steps if step.rpartition(" of ")[2] == explainer]
        of_explainer[explainer] = sum(seconds[step] for step in own)
    explainers.sort(key=lambda explainer: -of_explainer[explainer])

    rows = [["passes, time", *tests]]
    for explainer in explainers:
        row = [explainer]
        for test in tests:
            step = f"{test} of {explainer}"
            is_run = step in seconds
            row.append(f"{passes[step]:,.0f}, {duration(seconds[step])}" if is_run else "–")
        rows.append(row)
    return aligned(rows)


def aligned(rows: list[list[str]]) -> list[str]:
    """Return rows of cells as lines with aligned columns, the first to the left and the others to the right.

    >>> aligned([["", "a"], ["lime", "12"]])
    ['       a', 'lime  12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *others in rows:
        cells = [first.ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    return lines


def most_expensive(estimate: Estimate) -> str:
    """Return which step takes most of the time, and its share; empty for a study without any."""
    from heatproof.runs.progress import duration

    seconds = estimate.seconds
    total = estimate.total_seconds
    if total <= 0:
        return ""
    step = max(seconds, key=lambda name: seconds[name])
    share = seconds[step] / total
    return f"most expensive: {step}, {duration(seconds[step])}, {share:.0%} of the time"


def expected_samples(plan: Plan, estimate: Estimate) -> Iterator[str]:
    """Yield how many samples a study with `half_width` or `until` may take, and what these cost.

    Before the pilot nothing is known of the scores, so the numbers are those of usual ones.
    """
    if plan.sampling is None:
        return
    for dataset in plan.data:
        if plan.sampling.until:
            yield from _looks(plan, estimate, dataset)
        else:
            yield from _planned_samples(plan, estimate, dataset)


def _planned_samples(plan: Plan, estimate: Estimate, dataset: str) -> Iterator[str]:
    """Yield the samples that the half-width takes for scores that vary little and for those that vary much."""
    from heatproof.runs.sampling import allowed_units, unit_ends
    from heatproof.statistics.sample_sizes import usual_samples_for_half_width

    assert plan.sampling is not None and plan.sampling.half_width is not None
    ends = unit_ends(plan.data[dataset])
    most = ends[allowed_units(plan.sampling, ends) - 1]
    pilot = plan.sample_count(dataset)
    sizes = []
    for spread in (NARROW, WIDE):
        needed = usual_samples_for_half_width(plan.sampling.half_width, spread)
        sizes.append(min(max(needed, pilot), most))
    few, many = sizes
    yield (
        f"{dataset}: a pilot of {counted(pilot, 'sample')}, then usually {few:,} to {many:,} "
        f"(standard deviation {NARROW} to {WIDE}) of at most {most:,}: {_times(estimate, dataset, [few, many])}"
    )


def _looks(plan: Plan, estimate: Estimate, dataset: str) -> Iterator[str]:
    """Yield the samples at each look, with the difference of two methods that it is likely to find."""
    from heatproof.runs.sampling import look_sizes, unit_ends
    from heatproof.statistics.power import USUAL_SPREAD, smallest_difference

    assert plan.sampling is not None
    ends = unit_ends(plan.data[dataset])
    methods = sum(not explainer.control for explainer in plan.explainers.values())
    looks = []
    sizes = look_sizes(plan.sampling, ends)
    for size in sizes:
        units = ends.index(size) + 1
        least = smallest_difference(units, methods, level=plan.sampling.level)
        looks.append(f"{size:,} ({least:.1g})")
    yield (
        f"{dataset}: looks at {', '.join(looks)} samples; in brackets the difference of two methods that is likely to be "
        f"found (standard deviation of differences {USUAL_SPREAD}). "
        f"First to last look: {_times(estimate, dataset, [sizes[0], sizes[-1]])}"
    )


def _times(estimate: Estimate, dataset: str, sizes: list[int]) -> str:
    """Return the time of the study with so many samples of one data set, from the fewest to the most."""
    from heatproof.runs.progress import duration

    times = []
    for size in dict.fromkeys(sizes):
        of_size = estimate.for_samples({**estimate.samples, dataset: size})
        times.append(duration(of_size.total_seconds))
    return " to ".join(times)

"""How many samples a study tests: all of them, as many as a half-width takes, or until its methods are told apart.

A study with `half_width` or `until` is run in stages. Before anything else its data set is put into a random order, by a
hash of the seed and of the ids (of the groups first, where samples are grouped). A stage is a prefix of that order, and
its shards come after those of the stages before it. So a run grows and nothing is computed twice, and which samples it
has does not depend on the order of files, on the size of shards or on who does them.

    stage 1     the pilot, or what the first look sees
    look        reads the rows of the stages so far, and says how many samples the run has next, or that it stops
    stage 2     …

A look is a function of the rows on disk. Whoever finishes a stage makes it and records it in its session
(`manifest.Look`); everybody else reads it there, and makes it anew where the record is gone. So processes that share a
run, and a run that was killed, come to the same samples. A process with a `--shard` of its own looks only when the
shares of all others are there; until then it has nothing more to do.

`half_width` is Stein's two-stage procedure (`statistics.sample_sizes`): a pilot, then the largest number that any overall
score of a method takes, and one last look that says how narrow the intervals came out.

`until: decided` has at most five looks, each at twice the samples of the one before. A look makes the paired tests that the
report prints, at a fifth of the usual 5 %, so that all looks together are wrong with a probability of 5 % (Bonferroni). It
stops when every pair of methods is significantly different or, with a `margin`, has an interval within ± margin. The
report prints the tests and intervals of the same level, so its words are those of the rule. Pocock (1977), Biometrika 64,
191, has slightly larger levels for normal scores; Bonferroni's need no assumption.

References: those of `statistics.sample_sizes`; Bauer and Kieser (1996), A unifying approach for confidence intervals and
testing of equivalence and difference, Biometrika 83, 934 (one interval for both questions).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from heatproof.axes import BY_NAME
from heatproof.axis import Axis, axis_of_own_evaluation
from heatproof.data import Data
from heatproof.data.subsets import order_by_hash
from heatproof.errors import BadParameter, UserError, nearest
from heatproof.evaluation import Evaluation, Measure
from heatproof.runs.manifest import LOOKS, Sampling
from heatproof.statistics.sample_sizes import FEWEST_PLANNED, PILOT
from heatproof.types import name_of, parameters

ORDER = "order of samples"
"""The purpose of the random numbers that order samples and groups."""
DECIDED = "decided"
TOLERANCE = 1.1
"""By what factor an interval may be wider than requested, since a pilot plans its width with some uncertainty."""
DEFAULT_LAST_LOOK = PILOT * 2 ** (LOOKS - 1)
"""The samples of the last look where a study names no `at_most`."""


def sampling_of(
    half_width: Any = None, until: Any = None, margin: Any = None, at_most: Any = None
) -> Sampling | None:
    """Return how a study decides on its number of samples, None if it tests all; raise for settings that make no sense.

    >>> sampling_of(half_width=0.02)
    Sampling(half_width=0.02, until=None, margin=None, at_most=None)
    >>> sampling_of(half_width=2)
    Traceback (most recent call last):
    heatproof.errors.BadParameter: half_width must be above 0 and below 1, in the unit of the scores, got 2; ...
    """
    if half_width is not None:
        _check_share("half_width", half_width, "such as 0.02 for ± 0.02")
    if until is not None and until != DECIDED:
        close = "; did you mean 'decided'?" if nearest(str(until), [DECIDED]) else ""
        raise BadParameter(f"until must be decided, got {until!r}{close}", ("until",))
    if half_width is not None and until is not None:
        raise BadParameter("give either half_width or until: decided, not both", ("until",))
    if margin is not None:
        if until is None:
            raise BadParameter("margin belongs to until: decided, which is not given", ("margin",))
        _check_share("margin", margin, "such as 0.05")
    if at_most is not None:
        _check_at_most(at_most)
        if half_width is None and until is None:
            raise BadParameter(
                "at_most belongs to half_width or until: decided; limit takes the first samples, and "
                "sample: {n: 200} in an entry of data takes random ones",
                ("at_most",),
            )
    if half_width is None and until is None:
        return None
    return Sampling(half_width=half_width, until=until, margin=margin, at_most=at_most)


def _check_share(name: str, value: Any, example: str) -> None:
    """Raise unless a value is a number above 0 and below 1."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value < 1:
        raise BadParameter(
            f"{name} must be above 0 and below 1, in the unit of the scores, got {value!r}; {example}",
            (name,),
        )


def _check_at_most(value: Any) -> None:
    """Raise unless a value is a number of samples that a pilot can have."""
    is_whole = isinstance(value, int) and not isinstance(value, bool)
    if not is_whole or value < FEWEST_PLANNED:
        raise BadParameter(
            f"at_most must be a whole number of at least {FEWEST_PLANNED} samples, which a pilot needs, got {value!r}",
            ("at_most",),
        )


# ---- the order of samples, and the stages --------------------------------------------------------------------------


def in_random_order(data: Data, seed: int) -> Data:
    """Return the data in an order by a hash of the ids; samples of one group stay together.

    >>> import torch
    >>> from heatproof.data import open_data
    >>> from heatproof.types import Batch
    >>> forwards = open_data(Batch(("a", "b", "c", "d"), torch.rand(4, 2)))
    >>> backwards = open_data(Batch(("d", "c", "b", "a"), torch.rand(4, 2)))
    >>> in_random_order(forwards, 0).ids == in_random_order(backwards, 0).ids
    True
    """
    if "limit" in data.prepared:
        raise UserError(
            f"{data.name}: limit takes the first samples, whose order may be that of their classes; with half_width or "
            "until give at_most, which takes random ones"
        )
    order = order_by_hash(data.ids, seed, ORDER)
    if data.groups is not None:
        names = [_group_of(data, position) for position in order]
        groups = list(dict.fromkeys(names))
        rank = {groups[i]: r for r, i in enumerate(order_by_hash(groups, seed, ORDER))}
        order = [
            position
            for _, position in sorted(
                zip(names, order, strict=True), key=lambda pair: rank[pair[0]]
            )
        ]
    return data.only(order)


def _group_of(data: Data, position: int) -> str:
    """Return the name of a sample's group; a sample without a group is one by itself."""
    group = "" if data.groups is None else data.groups[position]
    return f"group {group}" if group else f"sample {data.ids[position]}"


def unit_ends(data: Data) -> list[int]:
    """Return after how many samples each group of an ordered data set ends; each sample where there are none.

    >>> import torch
    >>> from heatproof.data import open_data
    >>> unit_ends(open_data(torch.rand(4, 2)).grouped(["ann", "ann", "bob", "cem"]))
    [2, 3, 4]
    """
    n = len(data)
    if data.groups is None:
        return list(range(1, n + 1))
    names = [_group_of(data, position) for position in range(n)]
    return [i for i in range(1, n + 1) if i == n or names[i] != names[i - 1]]


def allowed_units(sampling: Sampling, ends: Sequence[int]) -> int:
    """Return how many samples, or groups of them, a run may have at most."""
    if sampling.at_most is None:
        return min(len(ends), DEFAULT_LAST_LOOK) if sampling.until else len(ends)
    allowed = sum(end <= sampling.at_most for end in ends)
    return max(allowed, 1)


def look_sizes(sampling: Sampling, ends: Sequence[int]) -> list[int]:
    """Return after how many samples there is a look, as far as that is known before the first.

    >>> look_sizes(Sampling(until="decided"), range(1, 5001))
    [64, 128, 256, 512, 1024]
    >>> look_sizes(Sampling(until="decided", at_most=4000), range(1, 5001))
    [250, 500, 1000, 2000, 4000]
    >>> look_sizes(Sampling(half_width=0.02, at_most=60), range(1, 5001))
    [60]
    """
    most = allowed_units(sampling, ends)
    if not sampling.until:
        return [ends[min(PILOT, most) - 1]]
    first = max(PILOT, math.ceil(most / 2 ** (LOOKS - 1)))
    sizes = [min(first * 2**look, most) for look in range(LOOKS)]
    return [ends[units - 1] for units in dict.fromkeys(sizes)]


# ---- what a study must have ----------------------------------------------------------------------------------------


def check_tests(
    sampling: Sampling,
    dataset: str,
    evaluations: Mapping[str, Evaluation],
    methods: Collection[str],
) -> None:
    """Raise unless a data set and model have scores on a known scale, and enough methods, to decide from."""
    fewest = 2 if sampling.until else 1
    if len(methods) < fewest:
        counted = "two methods to compare" if sampling.until else "a method besides the controls"
        raise UserError(f"{sampling} needs at least {counted}, got {', '.join(methods) or 'none'}")
    ranking = []
    for name, evaluation in evaluations.items():
        axis = axis_of_evaluation(name, evaluation)
        if not has_a_say(axis):
            continue
        ranking.append(name)
        if sampling.half_width is not None or sampling.margin is not None:
            _check_scale(sampling, name, axis, evaluation)
    if not ranking:
        listed = ", ".join(evaluations) or "none"
        raise UserError(
            f"{sampling} needs a test whose scores compare methods, such as stability; {dataset} has: {listed}"
        )


def axis_of_evaluation(name: str, evaluation: Evaluation) -> Axis:
    """Return the axis of an evaluation of a plan, before there is a manifest."""
    registered = name_of(evaluation)
    if registered in BY_NAME:
        axis: Axis = BY_NAME[registered]
        return axis
    return axis_of_own_evaluation(
        name, {"measures": [asdict(measure) for measure in evaluation.measures]}, []
    )


def has_a_say(axis: Axis) -> bool:
    """Return whether the scores of an axis have a say: those by which methods are ranked.

    A check is passed or not, whatever the width of an interval, and what only describes has no better and worse.
    """
    return axis.purpose == "rank"


def _check_scale(sampling: Sampling, name: str, axis: Axis, evaluation: Evaluation) -> None:
    """Raise if the score of a test has no scale on which a width or a margin would mean anything."""
    measured = evaluation.measured()
    headline = _headline(axis, measured)
    if headline is None:
        raise UserError(
            f"{sampling} needs to know the scale of {name}, which declares no headline measure; declare one with its "
            "span, such as (0, 1)"
        )
    names = [measure.name for measure in axis.measures] if measured is None else list(measured)
    span = axis.spans(parameters(evaluation), names).get(headline.name, headline.span)
    if span is None or set(span) == {None}:
        raise UserError(
            f"{sampling} needs scores on a bounded scale, and {headline.name} of {name} has none: choose another "
            "measure or readout, or leave the test out"
        )


def _headline(axis: Axis, measured: Collection[str] | None) -> Measure | None:
    """Return the first headline that an evaluation measures."""
    for measure in axis.measures:
        if measure.role == "headline" and (measured is None or measure.name in measured):
            return measure
    return None

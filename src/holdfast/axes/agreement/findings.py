"""Findings from agreement: where the choice of the method decides what is explained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holdfast.axes.agreement.frames import ALIKE, matrix
from holdfast.axes.contract import Finding, Judged
from holdfast.drawing.prose import some, with_interval

DISAGREE = Finding(
    axis="agreement",
    severity="mind",
    title="Which features matter depends on the method",
    seen="{some} of {all} pairs of methods agree less than half of the way from chance to equality for certain, "
    "the farthest {worst}.",
    means="For the same sample and class these methods put the features in different orders, so at most one of two can "
    "be right about which matter most. Agreement does not say which.",
    do="Do not choose the map that looks best. Choose by an axis that asks the model, such as faithfulness.",
)


def findings(judged: Judged) -> Iterator[Finding]:
    """That methods disagree, where intervals show it."""
    pairs = [p for p in matrix(judged).pairs if not {p[0], p[1]} & judged.cube.controls]
    apart = [pair for pair in pairs if pair[4] < ALIKE]
    if apart:
        worst = some([f"{a} and {b} {with_interval(m, low, high)}" for a, b, m, low, high in apart[::-1]], 3)
        seen = DISAGREE.seen.format(some=len(apart), all=len(pairs), worst=worst)
        yield replace(
            DISAGREE, seen=seen, explainers=tuple(dict.fromkeys(name for a, b, *_ in apart for name in (a, b)))
        )

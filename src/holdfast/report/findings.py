"""Advice: rules over the table that say what was seen, what it means and what to do.

Every rule speaks only where an interval, a bound or a corrected test supports it. `advice` is a pure function of the
table, the samples and the manifest; `place_advice` is the same for one dataset and model whose parts are at hand.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from holdfast.axes.certificate.findings import certificate_advice, smoothing_advice
from holdfast.axes.contract import Judged
from holdfast.axes.faithfulness.findings import faithfulness_advice
from holdfast.axes.stability.findings import stability_advice
from holdfast.axes.stability.findings_pairs import pair_advice
from holdfast.axes.stability.words import Findings, findings
from holdfast.axes.symmetry.findings import symmetry_advice
from holdfast.drawing.prose import listing
from holdfast.report.advice_contract import AXES, Advice, Severity
from holdfast.report.axes import axis_sections, base_model
from holdfast.report.findings_whole import run_advice
from holdfast.statistics.cubes import arrange

__all__ = ["Advice", "Severity", "advice", "advice_lines", "place_advice"]

MOST = 8
"""Findings of one dataset and model that are written out; the rest is counted."""
SEVERITIES: tuple[Severity, ...] = ("act", "mind", "note")
WIDTH = 110


def advice(table: pd.DataFrame, samples: pd.DataFrame, manifest: Mapping[str, Any], most: int = MOST) -> list[Advice]:
    """What to do after a run, for every dataset and model: the most urgent first, about `most` and a count of the rest.

    >>> columns = ["dataset", "model", "sample", "error", "evaluation"]
    >>> advice(pd.DataFrame(columns=columns), pd.DataFrame(columns=columns), {})
    []
    """
    cubes = arrange(table)
    held = findings(cubes)
    others = [cube for cube in cubes if "fass" not in cube.values]
    places = dict.fromkeys([*((f.dataset, f.model) for f in held), *((c.dataset, base_model(c)) for c in others)])
    given = []
    for place in places:
        own = [f for f in held if (f.dataset, f.model) == place]
        sections = axis_sections("", place, others, table, samples, (), manifest, draw=False)
        given += place_advice(*place, own, [section.axis for section in sections], manifest, most)
    return given


def place_advice(
    dataset: str,
    model: str,
    held: Sequence[Findings],
    axes: Sequence[Judged],
    manifest: Mapping[str, Any],
    most: int = MOST,
) -> list[Advice]:
    """The same for one dataset and model from its stability findings and its other axes, which are computed anyway."""
    cubes = [*(f.cube for f in held), *(axis.cube for axis in axes)]
    given = list(run_advice(model, max((len(c.samples) for c in cubes), default=0), held, manifest)) if cubes else []
    for found in held:
        given += _named(
            found.cube.evaluation, "stability", [*stability_advice(found, manifest), *pair_advice(found, manifest)]
        )
    for axis in axes:
        kind = str(axis.settings.get("name") or axis.cube.evaluation)
        given += _named(axis.cube.evaluation, kind, _axis_advice(kind, axis, held))
    ordered = sorted(given, key=lambda a: (SEVERITIES.index(a.severity), AXES.index(a.axis), -len(a.explainers)))
    return [replace(a, dataset=dataset, model=model) for a in _at_most(ordered, most)]


def _axis_advice(kind: str, axis: Judged, held: Sequence[Findings]) -> Iterable[Advice]:
    if kind == "certificate":
        return certificate_advice(axis)
    if kind == "smoothing":
        return smoothing_advice(axis)
    if kind == "symmetry":
        drawn = frozenset(e for f in held for e in f.cube.explainers if "fass" in f.cube.floor)
        return symmetry_advice(axis, drawn)
    return faithfulness_advice(axis, held[0] if held else None) if kind == "faithfulness" else ()


def _named(label: str, kind: str, given: Iterable[Advice]) -> list[Advice]:
    """Advice that says which evaluation it is about where a study gave it a name of its own."""
    return [a if label == kind else replace(a, title=f"{a.title} ({label})") for a in given]


def _at_most(ordered: list[Advice], most: int) -> list[Advice]:
    """What has to be acted on and the first findings of every axis, in the same order, and one card for the others."""
    if len(ordered) <= most + 1:
        return ordered
    turn = [sum(a.axis == b.axis for b in ordered[:i]) for i, a in enumerate(ordered)]
    chosen = sorted(range(len(ordered)), key=lambda i: (ordered[i].severity != "act", turn[i], i))[:most]
    rest = [a for i, a in enumerate(ordered) if i not in chosen]
    titles = listing(dict.fromkeys(f"“{a.title}” ({a.axis})" for a in rest))
    more = Advice(
        "run",
        "note",
        f"{len(rest)} more findings",
        f"Also seen: {titles}.",
        "Each rests on its own interval as those above do; there are more of them than fit here.",
        "Deal with the findings above first. holdfast.report.findings.advice(..., most=99) gives all of them in full.",
    )
    return [*(ordered[i] for i in sorted(chosen)), more]


def advice_lines(given: Iterable[Advice]) -> list[str]:
    """The advice as lines for a terminal.

    >>> card = Advice("run", "mind", "Few samples", "9 samples were tested.", "Rough.", "Test more.", model="net")
    >>> print("\\n".join(advice_lines([card])))
    mind  Few samples (run)
          seen   9 samples were tested.
          means  Rough.
          do     Test more.
    """
    lines: list[str] = []
    for card in given:
        if lines:
            lines.append("")
        lines.append(f"{card.severity:<4}  {card.title} ({card.axis})")
        for word, text in (("seen", card.seen), ("means", card.means), ("do", card.do)):
            lines += textwrap.wrap(
                text, WIDTH, initial_indent=f"      {word:<5}  ", subsequent_indent=" " * 13, break_long_words=False
            )
    return lines

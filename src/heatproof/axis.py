"""The record of an axis: one test of the bench with its question, its evaluation, its measures and its report.

An axis is one folder under `axes/` and its names in `axes/__init__.py`. Page, terminal, gate, comparison, figures, trackers and
`heatproof ls` read what they know about a measure from here.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from heatproof.evaluation import Evaluation, Measure, Role, Span

if TYPE_CHECKING:
    from heatproof.results.arrays import ScoreArrays

Purpose = Literal["rank", "check", "describe"]


def plain_title(condition: str, level: float) -> str:
    """Return a condition with its level in words; a level of 0 stands for none.

    >>> plain_title("radius", 5.0), plain_title("noisy_linear", 0.0)
    ('radius 5', 'noisy linear')
    """
    return condition.replace("_", " ") + (f" {level:g}" if level else "")


@dataclass(frozen=True)
class Axis:
    """One test of the bench.

    name, title        its name in a study, and as a heading
    question           what it asks
    heading            the question in a few words, for the head of a column: "Stays the same?"
    purpose            "rank": it compares methods; "check": methods pass or fail it; "describe": it has no better and worse
    fakeable           whether an edge filter, which ignores the model, can score high on it
    verb, best         how a sentence compares two methods ("is more stable than"), and what it says of the best one; of a
                       check, what it says of the methods that pass
    evaluation         what makes its rows; None if they are rows of another evaluation
    measures           its measures; the first headline that was measured gives the ranking
    report             the module with its sentences, charts and findings (see `results.reports`), imported by name when
                       it is needed
    condition          returns a condition and its level in words
    describe_change    returns in words what a condition does to an input; axes that have it show maps on the proof sheet
    separable          the parameter whose entries are conditions that do not depend on one another. Radii of a
                       certificate do: they share their draws.
    spans              returns the ends of the scales that depend on the settings, from the settings and the measures
    marks              a module with `marks(arrays)`: explainers that every axis should mark, and the word for it; that of
                       a check also has `passed(arrays)`: explainer -> whether it passes, None if that is unclear
    shown_on           the axis in whose section this one is shown, if both were run
    frontier_partner   the axis to draw this one against in a scatter plot
    in_first_study     whether `heatproof init` puts it into a study: it needs no settings, and no more than minutes
    trial              settings with which `heatproof validate` tries the axis, by the tag of a model of known truth
    blind_spots        by measure: corruptions of a map that it does not notice in these trials
    """

    name: str
    title: str
    question: str
    verb: str
    evaluation: type[Evaluation] | None
    measures: tuple[Measure, ...]
    heading: str = ""
    purpose: Purpose = "rank"
    fakeable: bool = True
    separable: str = ""
    report: str = ""
    marks: str = ""
    shown_on: str = ""
    frontier_partner: str = ""
    in_first_study: bool = False
    condition: Callable[[str, float], str] = plain_title
    describe_change: Callable[[str, float], str] | None = None
    best: str = ""
    spans: Callable[[Mapping[str, Any], Collection[str]], Mapping[str, Span]] = lambda *_: {}
    trial: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    blind_spots: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def measure(self, name: str) -> Measure | None:
        """Return the declaration of a measure; None if it has none."""
        return next((measure for measure in self.measures if measure.name == name), None)

    def headlines(self, arrays: ScoreArrays) -> list[str]:
        """Return the measures that rank the explainers: for each explainer the first headline that it has scores of."""
        measured = [name for name in self.of_role("headline") if name in arrays.values]
        ranking = set()
        for number in range(len(arrays.explainers)):
            of_explainer = [name for name in measured if arrays.has_rows[name][number].any()]
            ranking.update(of_explainer[:1])
        return [name for name in measured if name in ranking]

    def of_role(self, *roles: Role) -> list[str]:
        """Return the names of the measures with these roles, in order."""
        return [m.name for m in self.measures if m.role in roles]


def axis_of_own_evaluation(
    label: str, settings: Mapping[str, Any], measured: Collection[str]
) -> Axis:
    """Return the axis of a user's own evaluation, from its stored settings and the measures in the table.

    Measures that it does not declare are shown as they are. If it declares none, the first in the table is the headline.

    >>> axis = axis_of_own_evaluation("mine", {}, ["sharpness", "depth"])
    >>> [(m.name, m.role, m.better) for m in axis.measures]
    [('sharpness', 'headline', 'neither'), ('depth', 'component', 'neither')]
    """
    measures = []
    for stored in settings.get("measures") or ():
        span = stored["span"] and tuple(stored["span"])  # a manifest has lists for tuples
        measures.append(Measure(**{**stored, "span": span}))
    declared = {measure.name for measure in measures}
    for name in measured:
        if name not in declared:
            role: Role = "component" if measures else "headline"
            measures.append(Measure(name, name.replace("_", " "), "", "neither", role))
    title = label.replace("_", " ")
    return Axis(
        name=label,
        title=title[:1].upper() + title[1:],
        question="",
        verb="scores better than",
        best="scores best",
        evaluation=None,
        measures=tuple(measures),
    )

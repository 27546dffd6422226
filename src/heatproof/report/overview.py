"""The verdict on one model and data set as data: one sentence, one table, one caveat.

The first screen of the page, the end of a run in the terminal and the notebook draw it. What it says follows from
`AxisResult.verdict` and from the findings; nothing is decided here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from heatproof.evaluation import Measure
from heatproof.kinds import KINDS, DataKind
from heatproof.report.findings import findings_here
from heatproof.report.how_many import number_of_samples
from heatproof.results.axis_result import AxisResult
from heatproof.results.findings import Finding
from heatproof.results.names import Look, settings_of
from heatproof.results.verdict import Label, Verdict
from heatproof.runs.manifest import Manifest
from heatproof.statistics.intervals import FEWEST
from heatproof.statistics.power import USUAL_SPREAD, smallest_difference
from heatproof.text import MOST_DIGITS, listing, number, records

MOST_CAVEAT_RULES = ("probability-outputs", "low-retention", "no-faithfulness", "few-samples")
"""Warnings that may be the main caveat if there is no problem and every control is beaten, most important first."""
NUMBER_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
NOTHING = "Nothing can be concluded: the run has no scores."
LONGEST_MESSAGE = 110
"""Characters of a warning that is shown as it is; of longer ones, the title is."""
PASSED = {True: "yes", False: "no", None: "unclear"}


@dataclass(frozen=True)
class Cell:
    """What the table says of one explainer on one test.

    `text` is the score, or yes, no or unclear for a check; `label` is what the tests say of it, `interval` its 95 %
    interval in words. All are empty where there is none.
    """

    text: str
    label: Label = Label.NONE
    interval: str = ""
    passed: bool | None = None


NO_CELL = Cell("–")


@dataclass(frozen=True, eq=False)
class Column:
    """One test in the table: its result, and the measure that speaks for it."""

    result: AxisResult
    measure: Measure

    @property
    def title(self) -> str:
        """The name of the test."""
        return self.result.title

    @property
    def question(self) -> str:
        """The question that the test answers, in a few words."""
        return self.result.axis.heading or self.title

    @property
    def is_check(self) -> bool:
        """Whether methods pass or fail it, and none is best."""
        return self.result.axis.purpose == "check"

    @property
    def note(self) -> str:
        """How to read scores that are not on the common scale, where 0 is a random map and 1 is perfect."""
        if self.is_check:
            return ""
        notes = []
        if not self.result.zero_is_chance(self.measure):
            notes.append(self.measure.title)
        elif self.measure.chance == "compare":
            # Such scores are changes of the output: 0 is random, but nothing is perfect at 1.
            notes.append("no fixed maximum")
        if self.measure.better == "lower":
            notes.append("lower is better")
        return ", ".join(notes)

    @cached_property
    def verdict(self) -> Verdict:
        """What the tests allow us to say."""
        return self.result.verdict(self.measure)

    @cached_property
    def passed(self) -> dict[str, bool | None]:
        """explainer -> whether it passes, where the test is a check; None if that is unclear."""
        return self.result.checked() if self.is_check else {}

    @cached_property
    def scores(self) -> dict[str, Any]:
        """explainer -> its row of the ranking."""
        rows = records(self.result.ranking_by(self.measure.name))
        return {row.explainer: row for row in rows if math.isfinite(row.score)}

    def cell(self, explainer: str) -> Cell:
        """Return what the table says of an explainer."""
        if self.is_check:
            if explainer not in self.passed:
                return NO_CELL
            passed = self.passed[explainer]
            return Cell(PASSED[passed], passed=passed)
        row = self.scores.get(explainer)
        if row is None:
            return NO_CELL
        # "undecided" would sound as if so few samples had been enough to compare methods.
        decided = self.verdict.can_decide
        label = self.verdict.labels.get(explainer, Label.NONE) if decided else Label.NONE
        score = number(row.score, self.decimals)
        return Cell(score, label, _interval(row.low, row.high, self.decimals))

    @cached_property
    def decimals(self) -> int:
        """How many decimals the scores have: two, and more where the largest of them would have a single digit then."""
        largest = max((abs(row.score) for row in self.scores.values()), default=0.0)
        if largest == 0 or largest >= 0.1:
            return 2
        return min(math.ceil(-math.log10(largest)) + 1, MOST_DIGITS)


@dataclass(frozen=True)
class Caveat:
    """The one thing that matters most for reading the table: a claim, and what it rests on."""

    claim: str
    reason: str
    rule: str


@dataclass(frozen=True, eq=False)
class Overview:
    """One model and data set: the results of its tests, the findings, and the samples that were read."""

    dataset: str
    model: str
    results: Sequence[AxisResult]
    samples: pd.DataFrame
    findings: Sequence[Finding]

    # ---- table -------------------------------------------------------------------------------------------------------

    @cached_property
    def columns(self) -> list[Column]:
        """The tests: checks first, then what an edge filter cannot score high on, then the others."""
        columns = []
        for result in self.results:
            if result.axis.purpose == "describe" or not result.headlines:
                continue
            columns += [Column(result, measure) for measure in result.headlines]
        return sorted(
            columns, key=lambda column: (not column.is_check, column.result.axis.fakeable)
        )

    @property
    def ranked(self) -> list[Column]:
        """The tests by which methods are compared."""
        return [column for column in self.columns if not column.is_check and column.measure.sign]

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The name and colour of every explainer, without the marks that a column of the table stands for."""
        looks: dict[str, Look] = {}
        for result in self.results:
            looks |= result.unmarked_looks
        return looks

    @cached_property
    def controls(self) -> frozenset[str]:
        """The explainers that ignore the model."""
        return frozenset().union(*(result.controls for result in self.results))

    @cached_property
    def methods(self) -> list[str]:
        """All other explainers: those that are best most often come first, then by their scores on the first test."""
        methods = [name for name in self._explainers if name not in self.controls]
        return sorted(methods, key=self._standing)

    @property
    def _explainers(self) -> list[str]:
        """All explainers of the run, controls as well, in the order of the study."""
        names: dict[str, None] = {}
        for result in self.results:
            names |= dict.fromkeys(result.explainers)
        return list(names)

    def _standing(self, method: str) -> tuple[float, ...]:
        """Return the key by which methods are sorted, the best first."""
        if not self.ranked:
            return (math.inf,)
        labels = [column.verdict.labels.get(method) for column in self.ranked]
        first = self.ranked[0]
        row = first.scores.get(method)
        # Sorting is ascending, so counts and scores have their signs turned; without a score a method is last.
        score = math.inf if row is None else -first.measure.sign * row.score
        return (-labels.count(Label.BEST), -labels.count(Label.UNDECIDED), score)

    @property
    def rows(self) -> list[str]:
        """The explainers of the table: methods, then controls."""
        controls = [name for name in self._explainers if name in self.controls]
        # The control that draws random maps is the last row.
        random = {column.verdict.random for column in self.columns}
        return [*self.methods, *sorted(controls, key=random.__contains__)]

    def settings(self, explainer: str) -> str:
        """Return the settings of an explainer in words, where its name does not have them."""
        if explainer in self.controls:
            return "control"
        settings = settings_of(explainer)
        return "" if settings in self.looks[explainer].name else settings

    @property
    def labels(self) -> list[Label]:
        """The labels that occur in the table."""
        labels: set[Label] = set()
        for column in self.columns:
            labels.update(column.cell(name).label for name in self.rows)
        in_order = (Label.BEST, Label.UNDECIDED, Label.AS_RANDOM)
        return [label for label in in_order if label in labels]

    # ---- sentences ---------------------------------------------------------------------------------------------------

    @property
    def kind(self) -> DataKind:
        """What samples of this kind of data are called."""
        return self.results[0].words if self.results else KINDS["image"]

    @property
    def sample_count(self) -> int:
        """The number of samples that were attempted."""
        return max((len(result.sample_ids) for result in self.results), default=0)

    @property
    def groups(self) -> int:
        """The number of groups that the samples form; 0 where they are independent."""
        return max((result.groups for result in self.results), default=0)

    @property
    def counted_samples(self) -> str:
        """The samples in words."""
        noun = self.kind.sample if self.sample_count == 1 else self.kind.samples
        groups = f" in {self.groups} groups" if self.groups else ""
        return f"{self.sample_count} {noun}{groups}"

    @cached_property
    def headline(self) -> str:
        """What the paired tests support, in one sentence."""
        if not self.results:
            return NOTHING
        if not self.methods:
            return "Only controls were tested: there is no method to judge."
        if not self.columns:
            return self._headline_without_columns()
        scored = []
        for name in self.methods:
            if any(name in column.scores for column in self.columns):
                scored.append(name)
        if not scored:
            return "No method has a score."
        if not self.ranked:
            return self._headline_of_checks()
        decidable = [column for column in self.ranked if column.verdict.can_decide]
        if not decidable:
            return f"Too few {self.kind.samples} to compare methods: {self._independent} (at least {FEWEST} are needed)."
        if len(scored) == 1:
            return self._headline_of_one(scored[0], decidable)
        return self._headline_of_many(scored, decidable)

    @property
    def _independent(self) -> int:
        return self.groups or self.sample_count

    def _headline_without_columns(self) -> str:
        """Say that nothing ranks methods here: there is no score, or the tests only describe them."""
        describing = [result for result in self.results if result.axis.purpose == "describe"]
        has_scores = any(not result.summary["mean"].dropna().empty for result in describing)
        if not has_scores:
            return "No method has a score."
        titles = listing(result.title[:1].lower() + result.title[1:] for result in describing)
        return f"This run describes methods ({titles}) and does not rank them."

    def _headline_of_checks(self) -> str:
        """Say how many methods pass the only tests that were run, where these are checks."""
        sentences = []
        for column in self.columns:
            if not column.is_check:
                continue
            verdicts = [column.passed.get(name) for name in self.methods]
            passed = verdicts.count(True)
            sentences.append(f"{_counted(passed, len(self.methods))} {column.result.axis.best}.")
        return " ".join(sentences) or "The tests of this run do not rank methods."

    def _headline_of_one(self, method: str, columns: Sequence[Column]) -> str:
        """Say on how many tests the only method is better than a random map."""
        name = self.looks[method].name
        tested = [column for column in columns if column.verdict.has_chance]
        if not tested:
            return f"{name} was tested alone: there is no other method to compare it with."
        above = sum(column.verdict.above_chance.get(method) is True for column in tested)
        if len(tested) == 1:
            is_above = "is" if above else "is not shown to be"
            return f"{name} {is_above} better than a random map on {tested[0].title.lower()}."
        tests = f"{word(above)} of {word(len(tested))} tests"
        return f"{name} is better than a random map on {tests}. No other method was tested."

    def _headline_of_many(self, methods: Sequence[str], columns: Sequence[Column]) -> str:
        """Say which method leads on these tests, if one does: it is best on some and never significantly worse."""
        if len(columns) == 1:
            return self._headline_of_one_test(methods, columns[0])
        columns_won: dict[str, list[Column]] = {}
        for column in columns:
            best = column.verdict.best
            if best is not None and best in methods:
                columns_won.setdefault(best, []).append(column)
        if not columns_won:
            return self._headline_without_winner(methods, columns)
        if len(columns_won) > 1:
            winners = []
            for name in methods:
                if name in columns_won:
                    winners.append(f"{self.looks[name].name} on {_titles(columns_won[name])}")
            return f"No method leads on all tests. Best on single tests: {'; '.join(winners)}."

        ((leader, won),) = columns_won.items()
        name = self.looks[leader].name
        lost = _columns_lost(leader, methods, columns)
        if lost:
            wins_and_losses = (
                f"best on {_titles(won)}, but significantly worse than another on {_titles(lost)}"
            )
            return f"No method leads on all tests: {name} is {wins_and_losses}."
        labels = [column.verdict.labels.get(leader) for column in columns]
        undecided, as_random = labels.count(Label.UNDECIDED), labels.count(Label.AS_RANDOM)
        results = [f"best on {word(len(won))} of {word(len(columns))} tests"]
        if undecided:
            results.append(f"undecided on {word(undecided)}")
        if as_random:
            results.append(f"no better than random on {word(as_random)}")
        return f"{name} leads these {word(len(methods))} methods: {', '.join(results)}."

    def _headline_without_winner(self, methods: Sequence[str], columns: Sequence[Column]) -> str:
        """Say which methods are left where none beats all others on any test."""
        tests = f"{word(len(columns))} tests"
        verdicts = [column.verdict for column in columns]
        if all(set(verdict.as_random) == set(verdict.methods) for verdict in verdicts):
            return f"No method is significantly better than a random map on any of {tests}."
        unbeaten = [name for name in methods if not _columns_lost(name, methods, columns)]
        if len(unbeaten) == len(methods):
            return f"Undecided: no method is significantly better than another on any of {tests}."
        names = listing(self.looks[name].name for name in unbeaten)
        if len(unbeaten) == 1:
            return f"No method is best on any of {tests}; only {names} is never significantly worse than another."
        if unbeaten:
            return (
                f"Undecided between {names}: no method significantly beats them on any of {tests}."
            )
        return f"No method is significantly better than all others on any of {tests}."

    def _headline_of_one_test(self, methods: Sequence[str], column: Column) -> str:
        """Say which method is best on the only test, or between which it is undecided."""
        verdict, test = column.verdict, column.title.lower()
        if verdict.best is not None:
            return f"{self.looks[verdict.best].name} {column.result.axis.best} of these {word(len(methods))} methods."
        if set(verdict.as_random) == set(verdict.methods):
            return f"No method is significantly better than a random map on {test}."
        undecided = [self.looks[name].name for name in verdict.undecided]
        if 1 < len(undecided) < len(verdict.methods):
            return f"Undecided on {test} between {listing(undecided)}."
        if len(undecided) == len(verdict.methods):
            return f"Undecided: no method is significantly better than another on {test}."
        return f"No method is significantly better than all others on {test}."

    @cached_property
    def pilot(self) -> str:
        """What limits the run: few samples, small budgets, predictions that changed; empty where nothing does."""
        rules = {finding.rule for finding in self.findings}
        limits = []
        is_pilot = bool(rules & {"few-samples", "too-few-samples"})
        if is_pilot:
            limits.append(self.counted_samples)
        for finding in self.findings:
            if finding.rule == "small-budget":
                limits.append(f"small budgets for {listing(finding.items)}")
        limits += self._least_retained()
        if not limits:
            return ""
        text = "; ".join(limits)
        return f"A pilot: {text}." if is_pilot else f"{text[:1].upper()}{text[1:]}."

    @cached_property
    def sampling(self) -> str:
        """How the number of samples was chosen; empty for a run of all samples."""
        return number_of_samples(self.results)

    def _least_retained(self) -> list[str]:
        """Say for the condition that changes most predictions how many stay, if more than a tenth change."""
        for column in self.columns:
            worst = column.result.least_retained()
            if worst is not None and worst.retained < 0.9 * worst.attempted:
                stay = "prediction stays" if worst.retained == 1 else "predictions stay"
                return [
                    f"under {worst.title}, {worst.retained} of {worst.attempted} {stay} the same, and only those count"
                ]
        return []

    @cached_property
    def caveat(self) -> Caveat | None:
        """The one thing that matters most for reading the table; None where nothing is amiss."""
        problems = [finding for finding in self.findings if finding.severity == "problem"]
        if problems:
            return self._of_problem(problems[0])
        unbeaten = self._unbeaten_controls()
        if unbeaten is not None:
            return unbeaten
        if self.results and not self.methods:
            return None
        for rule in MOST_CAVEAT_RULES:
            for finding in self.findings:
                if finding.rule == rule:
                    return self._few_samples() if rule == "few-samples" else _of_finding(finding)
        return None

    def _few_samples(self) -> Caveat:
        """Say which differences so few samples are likely to miss."""
        claim = f"{self.counted_samples} are too few to see small differences."
        if len(self.methods) < 2:
            return Caveat(claim, "Intervals from so few samples are wide.", "few-samples")
        least = smallest_difference(self._independent, len(self.methods), USUAL_SPREAD)
        missed = f"Differences below about {least:.1g} are likely to be missed"
        is_undecided = Label.UNDECIDED in self.labels
        reason = f"{missed}{', so “undecided” does not mean equal' if is_undecided else ''}."
        return Caveat(claim, reason, "few-samples")

    def _of_problem(self, problem: Finding) -> Caveat:
        """Return a problem as a caveat that begins with the methods it is about, if it is not about all of them."""
        if problem.rule == "too-few-samples":
            claim = f"{self.counted_samples}: too few for any conclusion."
            return Caveat(claim, f"Intervals and tests need at least {FEWEST}.", problem.rule)
        caveat = _of_finding(problem)
        concerned = [name for name in problem.explainers if name in self.looks]
        if not 0 < len(concerned) < len(self.methods) or problem.title.startswith("The control"):
            return caveat
        names = listing(self.looks[name].name for name in concerned)
        title = f"{problem.title[:1].lower()}{problem.title[1:]}"
        return replace(caveat, claim=f"{names}: {title}.")

    def _unbeaten_controls(self) -> Caveat | None:
        """Name the tests on which a control that ignores the model scores above chance and no method beats it."""
        columns: dict[str, list[Column]] = {}
        for column in self.ranked:
            for control in column.verdict.unbeaten_controls:
                columns.setdefault(control, []).append(column)
        if not columns:
            return None
        control = max(columns, key=lambda name: len(columns[name]))
        unbeaten = columns[control]
        tests = _titles(unbeaten)
        name = self.looks[control].name
        several = len(unbeaten) > 1
        claim = f"{tests[:1].upper()}{tests[1:]} alone {'do' if several else 'does'} not show that a map explains the model."
        checks = [column.passed for column in self.columns if column.is_check]
        ignores_model = any(passed.get(control) is False for passed in checks)
        fault = "ignores the model" if ignores_model else "explains nothing"
        reason = f"No method significantly beats the control “{name}”, which {fault}."
        # A control that is as bad as random elsewhere shows that the other tests tell methods from it.
        labels = []
        for column in self.ranked:
            if column not in unbeaten and control in column.scores:
                labels.append(column.verdict.labels.get(control))
        if labels and set(labels) == {Label.AS_RANDOM}:
            tests = "the other test" if len(labels) == 1 else f"the other {word(len(labels))} tests"
            reason += f" On {tests} it is no better than a random map."
        return Caveat(claim, reason, "control-not-beaten")

    def warnings(self) -> list[tuple[str, str]]:
        """Return (rule, message) of all findings that are more than a note, one for each rule; the main caveat is first."""
        by_rule: dict[str, list[Finding]] = {}
        for finding in self.findings:
            if finding.severity != "note":
                by_rule.setdefault(finding.rule, []).append(finding)
        messages = {rule: _message(of_rule, self.results) for rule, of_rule in by_rule.items()}
        caveat = self.caveat
        if caveat is None:
            return list(messages.items())
        messages.pop(caveat.rule, None)
        return [(caveat.rule, f"{caveat.claim} {caveat.reason}"), *messages.items()]


def overviews(
    results: Sequence[AxisResult], samples: pd.DataFrame, manifest: Manifest
) -> list[Overview]:
    """Return the overview of every model and data set with results, in reading order."""
    by_pair: dict[tuple[str, str], list[AxisResult]] = {}
    for result in results:
        by_pair.setdefault((result.dataset, result.model), []).append(result)
    all_overviews = []
    for (dataset, model), of_pair in by_pair.items():
        is_of_pair = (samples["dataset"] == dataset) & (samples["model"] == model)
        own_samples = samples[is_of_pair]
        findings = findings_here(dataset, model, of_pair, own_samples, manifest)
        all_overviews.append(Overview(dataset, model, of_pair, own_samples, findings))
    return all_overviews


def word(count: int) -> str:
    """Return a small number in words.

    >>> word(3), word(12)
    ('three', '12')
    """
    return NUMBER_WORDS[count] if count < len(NUMBER_WORDS) else str(count)


def _counted(passed: int, total: int) -> str:
    if passed == total:
        return "The only method" if total == 1 else f"All {word(total)} methods"
    counted = "No" if passed == 0 else word(passed).capitalize()
    return f"{counted} of {word(total)} methods"


def _columns_lost(method: str, methods: Sequence[str], columns: Sequence[Column]) -> list[Column]:
    """Return the tests on which another method is significantly better than this one."""
    lost = []
    for column in columns:
        if any(column.verdict.beats(rival, method) for rival in methods):
            lost.append(column)
    return lost


def _titles(columns: Iterable[Column]) -> str:
    """Return the names of tests as they stand within a sentence."""
    return listing(column.title[:1].lower() + column.title[1:] for column in columns)


def _interval(low: float, high: float, decimals: int) -> str:
    """Return an interval in words; empty where there is none."""
    if not (math.isfinite(low) and math.isfinite(high)):
        return ""
    return f"{number(low, decimals)} to {number(high, decimals)}"


def _of_finding(finding: Finding) -> Caveat:
    return Caveat(f"{finding.title}.", f"{finding.seen} {finding.means}".strip(), finding.rule)


def _message(findings: Sequence[Finding], results: Sequence[AxisResult]) -> str:
    """Return one line for all findings of a rule: what was seen, and in which tests if there are several."""
    first = findings[0]
    if len(findings) == 1 and first.seen and len(first.seen) <= LONGEST_MESSAGE:
        return first.seen
    titles = {result.axis.name: result.axis.title.lower() for result in results}
    tests = list(dict.fromkeys(titles[f.axis] for f in findings if f.axis in titles))
    where = f" ({listing(tests)})" if tests else ""
    return f"{first.title}{where}."

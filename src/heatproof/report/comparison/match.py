"""What several runs have in common, so that it can be compared, and which differences forbid that.

Scores are comparable if they were measured in the same way. Settings are therefore compared for each data set and model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

from heatproof.axes import axis_of
from heatproof.axis import Axis
from heatproof.errors import UserError, unknown
from heatproof.evaluation import Condition, Measure
from heatproof.report.comparison.runs import ComparedRun
from heatproof.runs.differences import ABSENT, disagreements, parameters_of, plain
from heatproof.runs.manifest import EvaluationEntry

Names = tuple[str, ...]
"""What one thing is called in each of the runs."""
Entries = Mapping[str, Mapping[str, Any]]
"""A section of a study as plain data."""


@dataclass(frozen=True)
class SharedTest:
    """An evaluation of a data set and model that all runs measured in the same way.

    `explainers` have the same settings in all runs, or are each run's only one of their kind. `conditions` are those
    that are comparable; None if all are.
    """

    datasets: Names
    models: Names
    evaluations: Names
    axis: Axis
    explainers: tuple[Names, ...]
    conditions: frozenset[Condition] | None = None

    def measure(self, name: str) -> Measure:
        """Return the declaration of a measure; one that is not declared is neither better high nor low."""
        undeclared = Measure(name, name.replace("_", " "), "", "neither", "component")
        return self.axis.measure(name) or undeclared


@dataclass
class Matched:
    """What can be compared, what differs besides, what is left out, and what forbids a comparison.

    `calibrate` says whether all runs take chance from the same references, drawn with the same seed.
    """

    labels: list[str]
    datasets: list[Names] = field(default_factory=list)
    models: list[Names] = field(default_factory=list)
    explainers: list[Names] = field(default_factory=list)
    tests: list[SharedTest] = field(default_factory=list)
    calibrate: bool = True
    subject: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)

    def test(self, dataset: str, model: str, evaluation: str) -> SharedTest:
        """Return the test that has these names in the table of differences."""
        for test in self.tests:
            names = (shown(test.datasets), shown(test.models), shown(test.evaluations))
            if names == (dataset, model, evaluation):
                return test
        raise KeyError((dataset, model, evaluation))


def shown(names: Sequence[str]) -> str:
    """Return one name for what the runs may call differently.

    >>> shown(("lime", "lime")), shown(("lime", "lime(samples=32)"))
    ('lime', 'lime / lime(samples=32)')
    """
    return " / ".join(dict.fromkeys(names))


def match_runs(
    runs: Sequence[ComparedRun],
    only_shared: bool = False,
    across_seeds: bool = False,
    evaluations: Sequence[str] | None = None,
) -> Matched:
    """Return everything that may be compared; differences that forbid it are an error that names them.

    With `only_shared` whatever was measured differently is left out. With `across_seeds` runs of different seeds or
    references are compared by raw scores, because chance was then taken from other samples.
    """
    matched = Matched([run.label for run in runs])
    other_draws = _differences_of_draws(matched, runs)
    matched.calibrate = not other_draws
    if across_seeds:
        reason = "scores are raw, because chance comes from other samples"
        matched.subject += [f"{line}; {reason}" for line in other_draws]
    else:
        matched.forbidden += other_draws
    _match_datasets(matched, runs)
    _match_models(matched, runs)
    _match_tests(matched, runs, evaluations)

    may_not_leave_out = bool(other_draws) and not across_seeds
    if matched.forbidden and (may_not_leave_out or not only_shared):
        raise UserError(_refusal(matched.forbidden, other_draws if may_not_leave_out else []))
    matched.left_out = matched.forbidden + matched.left_out
    for section in ("datasets", "models", "explainers", "tests"):
        if not getattr(matched, section):
            noun = "evaluations" if section == "tests" else section
            reasons = "".join(f"\n  {line}" for line in matched.left_out)
            raise UserError(f"the runs have no {noun} in common, so nothing to compare:{reasons}")
    add_versions(matched, runs)
    return matched


def _refusal(forbidden: Sequence[str], other_draws: Sequence[str]) -> str:
    hints = []
    if other_draws:
        hints.append("--across-seeds compares runs of different seeds or references by raw scores")
    if len(forbidden) > len(other_draws):
        hints.append("--only-shared leaves out what differs and compares the rest")
    lines = "\n  ".join(forbidden)
    return f"runs measured differently can't be compared:\n  {lines}\n" + "\n".join(hints)


def _differences_of_draws(matched: Matched, runs: Sequence[ComparedRun]) -> list[str]:
    """Return a line for a different seed, and for a different number of references."""
    seeds = [run.manifest.study.seed for run in runs]
    references = [reference_count(run) for run in runs]
    lines = disagreements("seed", seeds, matched.labels)
    return lines + disagreements("references", references, matched.labels)


def reference_count(run: ComparedRun) -> int:
    """Return how many samples of the first data set chance is taken from."""
    datasets = run.manifest.study.datasets
    return len(run.manifest.references(next(iter(datasets)))) if datasets else 0


# ---- data and models -------------------------------------------------------------------------------------------------


def _match_datasets(matched: Matched, runs: Sequence[ComparedRun]) -> None:
    """Match data sets by their content; equal names of different data forbid a comparison."""
    rest = [dict(run.entries("datasets")) for run in runs]
    for name, entry in list(rest[0].items()):
        names = [_with_same_content(name, entry, others) for others in rest]
        if all(names):
            matched.datasets.append(tuple(names))
            for others, other in zip(rest, names, strict=True):
                del others[other]
    for name in list(rest[0]):
        if all(name in others for others in rest):
            contents = [others.pop(name) for others in rest]
            numbers = numbered([entry.get("fingerprint") for entry in contents])
            contents_in_words = []
            for number, entry in zip(numbers, contents, strict=True):
                contents_in_words.append(f"{number} ({entry.get('samples')} samples)")
            heading = f"datasets.{name}: other data"
            matched.forbidden += disagreements(heading, contents_in_words, matched.labels)
    _list_unmatched(matched, "data", [list(others) for others in rest])
    for names_of_data in matched.datasets:
        if len(set(names_of_data)) > 1:
            matched.subject.append(f"data: {shown(names_of_data)} are the same data")


def _with_same_content(name: str, entry: Mapping[str, Any], others: Entries) -> str:
    """Return the data set with the content of an entry, by the same name if possible; empty if there is none."""
    fingerprint = entry.get("fingerprint")
    if not fingerprint:
        return ""
    alike = [other for other in others if others[other].get("fingerprint") == fingerprint]
    if name in alike:
        return name
    return alike[0] if alike else ""


def numbered(fingerprints: Sequence[Any]) -> list[str]:
    """Return a number for each fingerprint, which people can tell apart; equal ones have the same.

    >>> numbered(["75f4ab", "db31e5", "75f4ab"])
    ['no. 1', 'no. 2', 'no. 1']
    """
    different = list(dict.fromkeys(fingerprints))
    return [f"no. {different.index(fingerprint) + 1}" for fingerprint in fingerprints]


def _match_models(matched: Matched, runs: Sequence[ComparedRun]) -> None:
    """Match models by their names, or the only model of each run; their differences are what is compared."""
    sections = [run.entries("models") for run in runs]
    if all(len(section) == 1 for section in sections):
        matched.models = [tuple(next(iter(section)) for section in sections)]
    else:
        in_all = _names_in_all(sections)
        matched.models = [(name,) * len(runs) for name in in_all]
        _list_unmatched(matched, "model", _without(sections, in_all))
    for names in matched.models:
        if len(set(names)) > 1:
            matched.subject += disagreements("model", list(names), matched.labels)
        entries = [dict(section[name]) for section, name in zip(sections, names, strict=True)]
        weights = numbered([entry.pop("fingerprint", None) for entry in entries])
        for entry, number in zip(entries, weights, strict=True):
            entry["weights"] = number
        heading = "" if len(matched.models) == 1 else shown(names)
        matched.subject += disagreements(heading, entries, matched.labels)


def _list_unmatched(matched: Matched, noun: str, rest: Sequence[Sequence[str]]) -> None:
    """Add a line for everything that only some of the runs have; `rest` has the names of each run."""
    labels_of: dict[str, list[str]] = {}
    for label, names in zip(matched.labels, rest, strict=True):
        for name in names:
            labels_of.setdefault(name, []).append(label)
    for name, labels in labels_of.items():
        matched.left_out.append(f"{noun} {name}: only in {' and '.join(labels)}")


# ---- explainers and evaluations --------------------------------------------------------------------------------------


def pair_up(sections: Sequence[Entries]) -> tuple[list[Names], list[list[str]]]:
    """Return what every run has, and the names that are left of each run.

    Entries match by name. Of the rest, those match of whose kind each run has just one.

    >>> pair_up([{"lime": {"name": "lime"}}, {"lime(samples=9)": {"name": "lime"}, "random": {"name": "random"}}])
    ([('lime', 'lime(samples=9)')], [[], ['random']])
    """
    in_all = _names_in_all(sections)
    matched: list[Names] = [(name,) * len(sections) for name in in_all]
    rest = _without(sections, in_all)
    kinds_left_of_first = dict.fromkeys(sections[0][name].get("name") for name in rest[0])
    for kind in kinds_left_of_first:
        of_kind = []
        for section, names in zip(sections, rest, strict=True):
            of_kind.append([name for name in names if section[name].get("name") == kind])
        if all(len(names) == 1 for names in of_kind):
            matched.append(tuple(names[0] for names in of_kind))
            for remaining, names in zip(rest, of_kind, strict=True):
                remaining.remove(names[0])
    return matched, rest


def _names_in_all(sections: Sequence[Entries]) -> list[str]:
    """Return the names that every run has, in the order of the first."""
    in_all = []
    for name in sections[0]:
        if all(name in section for section in sections):
            in_all.append(name)
    return in_all


def _without(sections: Sequence[Entries], names: Sequence[str]) -> list[list[str]]:
    """Return the names of each run that are not among `names`."""
    rest = []
    for section in sections:
        rest.append([name for name in section if name not in names])
    return rest


class LinesByDataAndModel:
    """Lines about settings that differ, each with the (data set, model) that it is about.

    A setting often differs in the same way everywhere; its line is then given once and not for every data set and model.
    """

    def __init__(self, all_pairs: Sequence[str]) -> None:
        """`all_pairs` are the data sets and models of the comparison, in words."""
        self.all_pairs = list(all_pairs)
        self._pairs_of_line: dict[str, list[str]] = {}

    def add(self, lines: Sequence[str], pair: str) -> None:
        """Note that lines hold for a data set and model."""
        for line in lines:
            self._pairs_of_line.setdefault(line, []).append(pair)

    def lines(self) -> list[str]:
        """Return every line once, with the data sets and models that it is about unless these are all."""
        lines = []
        for line, pairs in self._pairs_of_line.items():
            is_everywhere = len(set(pairs)) == len(self.all_pairs)
            lines.append(line if is_everywhere else f"{line} (for {'; '.join(pairs)})")
        return lines


def _match_tests(
    matched: Matched, runs: Sequence[ComparedRun], evaluations: Sequence[str] | None
) -> None:
    """Match explainers and evaluations, and compare their settings for each data set and model."""
    explainers, rest = pair_up([run.entries("explainers") for run in runs])
    _list_unmatched(matched, "explainer", rest)
    matched_evaluations, rest = pair_up(_chosen_evaluations(runs, evaluations))
    axes = {}
    for names in matched_evaluations:
        axis = axis_of(names[0], runs[0].manifest, _measured(runs, names))
        if axis.of_role("headline"):
            axes[names] = axis
        else:
            reason = "none of its measures ranks explanations"
            matched.left_out.append(f"evaluation {shown(names)}: {reason}")
    _list_unmatched(matched, "evaluation", rest)

    # Without a common data set or model, the settings of the whole study are compared.
    no_names = ("",) * len(runs)
    pairs = list(product(matched.datasets, matched.models)) or [(no_names, no_names)]
    pair_names = [f"{shown(datasets)}, {shown(models)}" for datasets, models in pairs]
    forbidden, subject = LinesByDataAndModel(pair_names), LinesByDataAndModel(pair_names)
    explainers_anywhere: dict[Names, None] = {}
    for (datasets, models), pair in zip(pairs, pair_names, strict=True):
        comparable = []
        for names in explainers:
            lines = _explainer_differences(runs, names, datasets, models)
            is_renamed = len(set(names)) > 1
            # One label for two methods would tell the reader that they are the same.
            (subject if is_renamed else forbidden).add(lines, pair)
            if is_renamed or not lines:
                comparable.append(names)
        explainers_anywhere |= dict.fromkeys(comparable)
        task_lines = _task_differences(runs, datasets, models)
        forbidden.add(task_lines, pair)
        if task_lines:
            continue
        for names, axis in axes.items():
            entries = _evaluation_entries(runs, names, datasets, models)
            if entries is None:
                continue
            lines, conditions = _evaluation_differences(runs, names, axis, entries)
            forbidden.add(lines, pair)
            if not lines or conditions:
                test = SharedTest(datasets, models, names, axis, tuple(comparable), conditions)
                matched.tests.append(test)
    matched.explainers = list(explainers_anywhere)
    matched.forbidden += forbidden.lines()
    matched.subject += subject.lines()


def _chosen_evaluations(
    runs: Sequence[ComparedRun], evaluations: Sequence[str] | None
) -> list[Entries]:
    """Return the entries of each run's evaluations: all, or those that `evaluations` names."""
    sections = [run.entries("evaluations") for run in runs]
    if evaluations is None:
        return sections
    in_any_run: dict[str, None] = {}
    for section in sections:
        in_any_run |= dict.fromkeys(section)
    for name in evaluations:
        if name not in in_any_run:
            raise unknown("evaluation", name, in_any_run)
    chosen_sections: list[Entries] = []
    for section in sections:
        chosen = {name: entry for name, entry in section.items() if name in evaluations}
        chosen_sections.append(chosen)
    return chosen_sections


def _measured(runs: Sequence[ComparedRun], names: Names) -> list[str]:
    """Return the measures that any of the runs has of an evaluation."""
    measures: dict[str, None] = {}
    for run, name in zip(runs, names, strict=True):
        for result in run.results:
            if result.label == name:
                measures |= dict.fromkeys(result.arrays.measures)
    return list(measures)


def _labels(runs: Sequence[ComparedRun]) -> list[str]:
    return [run.label for run in runs]


def _explainer_differences(
    runs: Sequence[ComparedRun], names: Names, datasets: Names, models: Names
) -> list[str]:
    """Return a line for each parameter of an explainer that differs for a data set and model."""
    entries = []
    for run, name, dataset, model in zip(runs, names, datasets, models, strict=True):
        entries.append(run.manifest.study.explainer(name, dataset, model).as_mapping())
    return disagreements(f"explainers.{shown(names)}", entries, _labels(runs))


def _task_differences(runs: Sequence[ComparedRun], datasets: Names, models: Names) -> list[str]:
    """Return a line for each setting of the task that differs between the runs.

    `readout` is the number that is explained, such as a logit or a probability; `unchanged` is the rule by which a
    prediction counts as unchanged. Scores under different ones answer different questions.
    """
    lines = []
    for setting in ("readout", "unchanged"):
        values = []
        for run, dataset, model in zip(runs, datasets, models, strict=True):
            values.append(getattr(run.manifest.task(dataset, model), setting))
        lines += disagreements(f"tasks.{setting}", values, _labels(runs))
    return lines


def _evaluation_entries(
    runs: Sequence[ComparedRun], names: Names, datasets: Names, models: Names
) -> list[EvaluationEntry] | None:
    """Return the settings of an evaluation in each run; None if some run has it for other data sets only."""
    entries = []
    for run, name, dataset, model in zip(runs, names, datasets, models, strict=True):
        entry = run.manifest.study.evaluation(name, dataset, model)
        if dataset and entry.data is not None and dataset not in entry.data:
            return None
        entries.append(entry)
    return entries


def _evaluation_differences(
    runs: Sequence[ComparedRun], names: Names, axis: Axis, entries: Sequence[EvaluationEntry]
) -> tuple[list[str], frozenset[Condition] | None]:
    """Return a line for each setting that differs, and the conditions that are comparable nevertheless; None for all.

    Conditions can be compared if the settings differ in nothing but the list of conditions.
    """
    settings = [entry.as_mapping() for entry in entries]
    parameters = [parameters_of(entry) for entry in settings]
    # The parameter that lists the conditions, such as `perturbations`, is compared apart from all others.
    condition_lists = [entry.pop(axis.separable, ABSENT) for entry in parameters]
    differing_conditions = disagreements(
        f"{shown(names)}.{axis.separable}", condition_lists, _labels(runs)
    )
    other_differences = disagreements(shown(names), parameters, _labels(runs))
    lines = differing_conditions + other_differences
    if not lines:
        return [], None
    if other_differences:
        return lines, frozenset()
    is_one_version = len({run.manifest.heatproof for run in runs}) == 1
    shared = shared_conditions(settings, axis.separable, is_one_version)
    return lines, frozenset(shared)


def shared_conditions(
    evaluations: Sequence[Mapping[str, Any]], separable: str, one_version: bool = True
) -> set[Condition]:
    """Return the conditions that several settings of one evaluation share, made by the same entries of a parameter.

    An entry may make several conditions. These have only their names to tell them apart, which leave out defaults, so
    only runs of one version surely share them.

    >>> jpeg, shift = {"name": "jpeg", "quality": 40}, {"name": "translation", "pixels": 20}
    >>> a = {"perturbations": [jpeg], "conditions": [["jpeg", 40]]}
    >>> b = {"perturbations": [shift, jpeg], "conditions": [["translation", 20], ["jpeg", 40]]}
    >>> shared_conditions([a, b], "perturbations")
    {('jpeg', 40.0)}
    """
    entries_of_conditions = []
    for evaluation in evaluations:
        conditions = [(str(name), float(level)) for name, level in evaluation.get("conditions", [])]
        entries = [plain(entry) for entry in evaluation.get(separable, [])]
        if len(entries) != len(conditions):
            # Some entry makes several conditions, so that only their names can be compared.
            if not one_version:
                return set()
            entries = [""] * len(conditions)
        entries_of_conditions.append(dict(zip(conditions, entries, strict=True)))
    first, *rest = entries_of_conditions
    shared = set()
    for condition, entry in first.items():
        if all(entries_of_run.get(condition) == entry for entries_of_run in rest):
            shared.add(condition)
    return shared


def add_versions(matched: Matched, runs: Sequence[ComparedRun]) -> None:
    """Add the versions of libraries and the devices that differ to what differs between the runs."""
    versions = [run.manifest.versions for run in runs]
    matched.subject += disagreements("versions", versions, matched.labels)
    devices = []
    for run in runs:
        devices_of_run: set[str] = set()
        for session in run.manifest.sessions:
            devices_of_run.update(session.devices)
        devices.append(", ".join(sorted(devices_of_run)))
    matched.subject += disagreements("devices", devices, matched.labels)

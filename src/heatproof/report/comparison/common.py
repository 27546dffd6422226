"""What several runs have in common, what they are compared on, and what forbids it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pandas as pd

from heatproof.axes import Axis, Measure, axis_of
from heatproof.errors import UserError, unknown
from heatproof.evaluation import Condition
from heatproof.runs.differences import ABSENT, disagreements, parameters_of, plain
from heatproof.runs.manifest import Manifest, Study

Names = tuple[str, ...]
"""What one thing is called in each of the runs."""


@dataclass(frozen=True)
class Side:
    """One of the runs: the letter it goes by, where it is, and what is in it."""

    label: str
    path: str
    manifest: Manifest
    table: pd.DataFrame
    samples: pd.DataFrame
    references: pd.DataFrame

    def study(self, section: str) -> Mapping[str, Mapping[str, Any]]:
        """One section of the study: models, datasets, explainers or evaluations."""
        entries: Mapping[str, Mapping[str, Any]] = self.manifest.study.as_mapping()[section]
        return entries

    @property
    def reference_count(self) -> int:
        """From how many samples the chance level of the first data set is taken; 0 if from none."""
        datasets = self.manifest.study.datasets
        return len(self.manifest.references(next(iter(datasets)))) if datasets else 0


@dataclass(frozen=True)
class Evaluated:
    """An evaluation that all runs have; `conditions` are those to compare, None for all of them.

    `order` names the conditions as the study does.
    """

    names: Names
    axis: Axis
    order: Names = ()
    conditions: frozenset[Condition] | None = None

    def measure(self, name: str) -> Measure:
        """What is known of a measure; of one that the axis does not declare nobody says which way is better."""
        return self.axis.measure(name) or Measure(
            name, name.replace("_", " "), "", "neither", "component"
        )


@dataclass
class Common:
    """What can be compared of the runs `labels`, the subject of it, what is left out, and what forbids it."""

    datasets: list[Names] = field(default_factory=list)
    models: list[Names] = field(default_factory=list)
    explainers: list[Names] = field(default_factory=list)
    evaluations: list[Evaluated] = field(default_factory=list)
    same_seed: bool = True
    subject: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    forbidden: list[str] = field(default_factory=list)
    labels: list[str] = field(default_factory=list)

    def evaluation(self, name: str) -> Evaluated:
        """The evaluation that goes by a name in the differences."""
        return next(evaluated for evaluated in self.evaluations if shown(evaluated.names) == name)


def common(
    sides: Sequence[Side],
    only_shared: bool = False,
    across_seeds: bool = False,
    evaluations: Sequence[str] | None = None,
) -> Common:
    """Everything that may be compared, or an error that names every difference that forbids it.

    With `only_shared` a data set, explainer, evaluation or condition that differs is left out instead; with
    `across_seeds` runs of different seeds or references are compared, which then share neither draws nor chance.
    """
    matched = Common(labels=[side.label for side in sides])
    seeds = [side.manifest.study.seed for side in sides]
    apart = disagreements("seed", seeds, matched.labels)
    references = [side.reference_count for side in sides]
    apart += disagreements("references", references, matched.labels)
    matched.same_seed = not apart
    if across_seeds:
        matched.subject += [
            f"{line}; scores are raw, as chance comes from other samples" for line in apart
        ]
    else:
        matched.forbidden += apart
    _match_data(matched, sides)
    _match_models(matched, sides)
    _match_explainers(matched, sides)
    _match_evaluations(matched, sides, evaluations)
    lost = matched.forbidden
    if lost and (not only_shared or (apart and not across_seeds)):
        hints = []
        if apart and not across_seeds:
            hints.append(
                "--across-seeds compares runs of different seeds or references, by raw scores"
            )
        if len(lost) > len(apart) or not apart:
            hints.append(
                "--only-shared leaves out what differs, where the rest does not depend on it"
            )
        raise UserError(
            "the runs cannot be compared:\n  " + "\n  ".join(lost) + "\n" + "\n".join(hints)
        )
    matched.left_out[:0] = lost
    for what in ("datasets", "models", "explainers", "evaluations"):
        if not getattr(matched, what):
            reasons = "".join(f"\n  {line}" for line in matched.left_out)
            raise UserError(
                f"the runs have no {what} in common, so there is nothing to compare:{reasons}"
            )
    _tell_versions(matched, sides)
    return matched


def shown(names: Iterable[str]) -> str:
    """One name for what the runs may call differently.

    >>> shown(("lime", "lime")), shown(("lime", "lime(samples=32)"))
    ('lime', 'lime / lime(samples=32)')
    """
    return " / ".join(dict.fromkeys(names))


def numbered(prints: Sequence[Any]) -> list[str]:
    """Fingerprints as people tell them apart: no. 1, no. 2, the same for the same.

    >>> numbered(["75f4ab", "db31e5", "75f4ab"])
    ['no. 1', 'no. 2', 'no. 1']
    """
    seen = list(dict.fromkeys(prints))
    return [f"no. {seen.index(one) + 1}" for one in prints]


def pair_up(
    sections: Sequence[Mapping[str, Mapping[str, Any]]],
) -> tuple[list[Names], list[list[str]]]:
    """What is named alike in every run, then what each run has just one more of by its kind; and what is left of each.

    >>> pair_up([{"lime": {"name": "lime"}}, {"lime(samples=9)": {"name": "lime"}, "random": {"name": "random"}}])
    ([('lime', 'lime(samples=9)')], [[], ['random']])
    """
    first, *others = sections
    pairs = [(name,) * len(sections) for name in first if all(name in other for other in others)]
    alike = {names[0] for names in pairs}
    rest = [[name for name in section if name not in alike] for section in sections]
    for kind in dict.fromkeys(first[name].get("name") for name in rest[0]):
        places = zip(sections, rest, strict=True)
        same = [
            [name for name in names if section[name].get("name") == kind]
            for section, names in places
        ]
        if all(len(names) == 1 for names in same):
            pairs.append(tuple(names[0] for names in same))
            rest = [
                [name for name in names if name not in taken]
                for names, taken in zip(rest, same, strict=True)
            ]
    return pairs, rest


def _tell_rest(
    matched: Common, sides: Sequence[Side], what: str, rest: Sequence[Sequence[str]]
) -> None:
    where: dict[str, list[str]] = {}
    for side, names in zip(sides, rest, strict=True):
        for name in names:
            where.setdefault(name, []).append(side.label)
    matched.left_out += [
        f"{what} {name}: only in {' and '.join(labels)}" for name, labels in where.items()
    ]


def _match_data(matched: Common, sides: Sequence[Side]) -> None:
    rest = [dict(side.study("datasets")) for side in sides]
    for name, entry in list(rest[0].items()):
        names = [_same_data(name, entry, others) for others in rest]
        if all(other is not None for other in names):
            matched.datasets.append(tuple(str(other) for other in names))
            for others, other in zip(rest, names, strict=True):
                del others[str(other)]
    for name in rest[0]:
        if all(name in others for others in rest):
            held = numbered([o[name].get("fingerprint") for o in rest])
            held = [
                f"{number} ({o[name].get('samples')} samples)"
                for number, o in zip(held, rest, strict=True)
            ]
            matched.forbidden += disagreements(f"datasets.{name}: other data", held, matched.labels)
            for others in rest[1:]:
                del others[name]
            rest[0] = {key: value for key, value in rest[0].items() if key != name}
    _tell_rest(matched, sides, "data", [list(others) for others in rest])
    renamed = [names for names in matched.datasets if len(set(names)) > 1]
    matched.subject += [
        f"data: {shown(names)} is the same data under several names" for names in renamed
    ]


def _same_data(
    name: str, entry: Mapping[str, Any], others: Mapping[str, Mapping[str, Any]]
) -> str | None:
    print_ = entry.get("fingerprint")
    alike = [other for other, its in others.items() if print_ and its.get("fingerprint") == print_]
    return name if name in alike else alike[0] if alike else None


def _match_models(matched: Common, sides: Sequence[Side]) -> None:
    sections = [side.study("models") for side in sides]
    if all(len(section) == 1 for section in sections):
        matched.models = [tuple(next(iter(section)) for section in sections)]
    else:
        matched.models = [
            (n,) * len(sides) for n in sections[0] if all(n in other for other in sections[1:])
        ]
        kept = {names[0] for names in matched.models}
        _tell_rest(
            matched, sides, "model", [[n for n in section if n not in kept] for section in sections]
        )
    for names in matched.models:
        entries = [dict(section[name]) for section, name in zip(sections, names, strict=True)]
        if len(set(names)) > 1:
            matched.subject += disagreements("model", list(names), matched.labels)
        for entry, weights in zip(
            entries, numbered([e.pop("fingerprint", None) for e in entries]), strict=True
        ):
            entry["weights"] = weights
        matched.subject += disagreements(
            "" if len(matched.models) == 1 else shown(names), entries, matched.labels
        )


def _match_explainers(matched: Common, sides: Sequence[Side]) -> None:
    sections = [side.study("explainers") for side in sides]
    pairs, rest = pair_up(sections)
    for names in pairs:
        lines = []
        for studies in _configured(matched, sides):
            entries = [
                study.explainer(name, *place).as_mapping()
                for (study, place), name in zip(studies, names, strict=True)
            ]
            lines += disagreements(f"explainers.{shown(names)}", entries, matched.labels)
        lines = list(dict.fromkeys(lines))
        if len(set(names)) > 1:
            matched.subject += lines
        elif lines:  # one label for two methods would tell the reader that they are the same
            matched.forbidden += lines
            continue
        matched.explainers.append(names)
    _tell_rest(matched, sides, "explainer", rest)


def _match_evaluations(
    matched: Common, sides: Sequence[Side], wanted: Sequence[str] | None
) -> None:
    sections: list[Mapping[str, Mapping[str, Any]]] = [side.study("evaluations") for side in sides]
    if wanted is not None:
        known = dict.fromkeys(name for section in sections for name in section)
        for name in wanted:
            if name not in known:
                raise unknown("evaluation", name, known)
        sections = [
            {name: entry for name, entry in section.items() if name in wanted}
            for section in sections
        ]
    pairs, rest = pair_up(sections)
    one_version = len({side.manifest.heatproof for side in sides}) == 1
    for names in pairs:
        axis = axis_of(names[0], sides[0].manifest, _measured(sides, names))
        if not axis.of_role("headline"):
            matched.left_out.append(
                f"evaluation {shown(names)}: none of its measures ranks explanations"
            )
            continue
        conditions_of_first = sides[0].manifest.study.conditions_of(names[0])
        order = tuple(dict.fromkeys(str(name) for name, _ in conditions_of_first))
        inner, outer = [], []
        alike: set[Condition] = set()
        different: set[Condition] = set()
        for studies in _configured(matched, sides):
            entries = [
                study.evaluation(name, *place).as_mapping()
                for (study, place), name in zip(studies, names, strict=True)
            ]
            parameters = [parameters_of(entry) for entry in entries]
            made_by = [entry.pop(axis.separable, ABSENT) for entry in parameters]
            inner += disagreements(f"{shown(names)}.{axis.separable}", made_by, matched.labels)
            outer += disagreements(shown(names), parameters, matched.labels)
            shared = shared_conditions(entries, axis.separable, one_version)
            alike |= shared
            different |= {
                (name, float(level)) for name, level in entries[0].get("conditions", [])
            } - shared
        matched.forbidden += dict.fromkeys(inner + outer)
        if not inner and not outer:
            matched.evaluations.append(Evaluated(names, axis, order))
        elif not outer and alike - different:
            matched.evaluations.append(Evaluated(names, axis, order, frozenset(alike - different)))
    _tell_rest(matched, sides, "evaluation", rest)


def _configured(
    matched: Common, sides: Sequence[Side]
) -> Iterator[list[tuple[Study, tuple[str, str]]]]:
    """Yield the study of every run with the data set and model of which it has settings, for each that all have.

    Where no data set or no model is in all of them, the settings are those of the first of each run.
    """
    places = list(product(matched.datasets, matched.models))
    for datasets, models in places or [(("",) * len(sides),) * 2]:
        studies = []
        for side, dataset, model in zip(sides, datasets, models, strict=True):
            studies.append((side.manifest.study, (dataset, model)))
        yield studies


def _measured(sides: Sequence[Side], names: Names) -> list[str]:
    """The measures that any of the runs has of an evaluation."""
    tables = [
        side.table[side.table["evaluation"] == name]
        for side, name in zip(sides, names, strict=True)
    ]
    return list(
        dict.fromkeys(str(measure) for table in tables for measure in table["measure"].unique())
    )


def shared_conditions(
    evaluations: Sequence[Mapping[str, Any]], separable: str, one_version: bool = True
) -> set[Condition]:
    """The conditions that several settings of one evaluation have in common, made by the same entries of a parameter.

    Where an entry makes several conditions these are told by their names, which leave out defaults; only one version
    surely has these in common.

    >>> jpeg, shift = {"name": "jpeg", "quality": 40}, {"name": "translation", "pixels": 20}
    >>> a = {"perturbations": [jpeg], "conditions": [["jpeg", 40]]}
    >>> b = {"perturbations": [shift, jpeg], "conditions": [["translation", 20], ["jpeg", 40]]}
    >>> shared_conditions([a, b], "perturbations")
    {('jpeg', 40.0)}
    """
    held = []
    for evaluation in evaluations:
        conditions = [(str(name), float(level)) for name, level in evaluation.get("conditions", [])]
        made_by = evaluation.get(separable, [])
        if len(made_by) != len(conditions) and not one_version:
            return set()
        entries = map(plain, made_by) if len(made_by) == len(conditions) else [""] * len(conditions)
        held.append(dict(zip(conditions, entries, strict=True)))
    first, *others = held
    return {key for key, entry in first.items() if all(other.get(key) == entry for other in others)}


def _tell_versions(matched: Common, sides: Sequence[Side]) -> None:
    versions = [side.manifest.versions for side in sides]
    matched.subject += disagreements("versions", versions, matched.labels)
    devices = []
    for side in sides:
        used = {device for session in side.manifest.sessions for device in session.devices}
        devices.append(", ".join(sorted(used)))
    matched.subject += disagreements("devices", devices, matched.labels)

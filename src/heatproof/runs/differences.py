"""Where studies differ, in words: a study and the run that it would resume, or the studies of several runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

ABSENT = "absent"
"""Stands for the value of a study that does not name what another one does."""
LONGEST = 80
DERIVED = ("conditions", "left_out", "measures", "data")
"""What a manifest says of an evaluation besides its parameters: what follows from them, and which data it is for."""
MOST_ENTRIES = 8
"""How many entries of a list an error names."""


def joined(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return a nested mapping with what another one has in addition; where both have a value the first counts.

    >>> joined({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    both = dict(known)
    for name, value in more.items():
        if name not in both:
            both[name] = value
        elif isinstance(value, Mapping) and isinstance(both[name], Mapping):
            both[name] = joined(both[name], value)
    return both


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """Return a line for each value in which a study contradicts that of a run; a name may be in only one of them.

    >>> differences({"seed": 0, "a": {"k": 1}}, {"seed": 1, "a": {"k": 1}, "b": 2})
    ['seed: the run has 0, this study says 1']
    >>> differences({"references": ["cat", "dog"]}, {"references": ["cat", "owl"]})
    ['references: the run has dog, this study says owl']
    >>> differences({"models": {"net": {"fingerprint": "ab"}}}, {"models": {"net": {"fingerprint": "cd"}}})
    ['models.net: other weights than those that the run was begun with']
    """
    lines = []
    for where, (before, after) in _leaves(place, (old, new)):
        if before is ABSENT or after is ABSENT or _exactly(before) == _exactly(after):
            continue
        if where.endswith(".fingerprint"):
            what = "weights" if where.startswith("models.") else "samples"
            lines.append(
                f"{where.removesuffix('.fingerprint')}: other {what} than those that the run was begun with"
            )
        elif _has_entries(before) and _has_entries(after):
            lines.append(f"{where}: {_list_differences(before, after)}")
        else:
            lines.append(
                f"{where}: the run has {brief(_json(before))}, this study says {brief(_json(after))}"
            )
    return lines


def disagreements(place: str, values: Sequence[Any], labels: Sequence[str]) -> list[str]:
    """Return a line for each value in which several runs, called `labels`, differ.

    >>> disagreements("lime", [{"samples": 32, "fill": "zero"}, {"samples": 64, "fill": "zero"}], "AB")
    ['lime.samples: 32 in A, 64 in B']
    >>> disagreements("seed", [0, 0, 7], "ABC")
    ['seed: 0 in A and B, 7 in C']
    """
    lines = []
    for where, leaf_values in _leaves(place, values):
        if len({plain(value) for value in leaf_values}) == 1:
            continue
        runs_by_value: dict[str, list[str]] = {}
        for text, label in zip(told_apart(leaf_values), labels, strict=True):
            runs_by_value.setdefault(text, []).append(label)
        shares = [f"{text} in {' and '.join(runs)}" for text, runs in runs_by_value.items()]
        lines.append(f"{where}: {', '.join(shares)}")
    return lines


def _leaves(path: str, values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Yield every dotted name of several nested mappings, with the value that each of them has there.

    `path` is the dotted name of the values themselves, empty at the top.
    """
    if not all(isinstance(value, Mapping) for value in values):
        yield path, values
        return
    keys: dict[Any, None] = {}
    for value in values:
        keys |= dict.fromkeys(value)
    for key in keys:
        entries = [value.get(key, ABSENT) for value in values]
        yield from _leaves(f"{path}.{key}" if path else str(key), entries)


def plain(value: Any) -> str:
    """Return a text that is the same for equal values; 1 equals 1.0.

    >>> plain({"b": 1, "a": [1.0]}) == plain({"a": [1], "b": 1.0})
    True
    """
    return json.dumps(_as_floats(value), sort_keys=True)


def _as_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_floats(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_as_floats(entry) for entry in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _exactly(value: Any) -> str:
    """Return a text that is another for 1, as in one feature, than for 1.0, as in all features."""
    return json.dumps(value, sort_keys=True)


def told_apart(values: Sequence[Any]) -> list[str]:
    """Return the values as short texts; of lists of parameter objects only the entries that not all of them have."""
    if not all(_has_entries(value) and isinstance(value[0], Mapping) for value in values):
        return [brief(value) for value in values]
    entries_of_values = [set(map(plain, value)) for value in values]
    shared = set.intersection(*entries_of_values)
    texts = []
    for value in values:
        unshared = [call(entry) for entry in value if plain(entry) not in shared]
        preset = presets().get(plain(value))
        texts.append(preset or ", ".join(unshared) or "nothing more")
    if len(set(texts)) == 1:  # the same entries in another order
        return [", ".join(str(entry["name"]) for entry in value) for value in values]
    return texts


def _has_entries(value: Any) -> bool:
    """Whether a value is a list of names or of parameter objects, such as references or perturbations."""
    if not isinstance(value, list) or not value:
        return False
    for entry in value:
        is_object = isinstance(entry, Mapping) and "name" in entry
        if not isinstance(entry, str) and not is_object:
            return False
    return True


def _list_differences(old: list[Any], new: list[Any]) -> str:
    """Return the entries that only one of two lists has, in words."""
    before = {_exactly(entry) for entry in old}
    after = {_exactly(entry) for entry in new}
    removed = listed([entry for entry in old if _exactly(entry) not in after])
    added = listed([entry for entry in new if _exactly(entry) not in before])
    if removed and added:
        return f"the run has {removed}, this study says {added}"
    if removed:
        return f"the run has {removed}, this study does not"
    if added:
        return f"this study adds {added}"
    return "the same entries in another order or number"


def listed(entries: list[Any]) -> str:
    """Return the first entries of a list, and how many more there are."""
    texts = [entry if isinstance(entry, str) else call(entry) for entry in entries[:MOST_ENTRIES]]
    shown = ", ".join(texts)
    if len(entries) > MOST_ENTRIES:
        shown += f" and {len(entries) - MOST_ENTRIES} more"
    return shown


def call(entry: Mapping[str, Any]) -> str:
    """Return a parameter object as one would write it.

    >>> call({"name": "rotation", "degrees": 15.0})
    'rotation(degrees=15.0)'
    """
    parameters = ", ".join(f"{key}={brief(value)}" for key, value in entry.items() if key != "name")
    return f"{entry['name']}({parameters})"


def brief(value: Any) -> str:
    """Return a value as a text of at most one line."""
    text = value if isinstance(value, str) else _json(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=1)
def presets() -> dict[str, str]:
    """Return the names of the presets of perturbations, by what a manifest says of them."""
    from heatproof.axes.stability import perturbations
    from heatproof.types import name_of, parameters

    names = {}
    for name, preset in perturbations.KNOWN_PRESETS.items():
        entries = []
        for perturbation in preset:
            entries.append({"name": name_of(perturbation), **parameters(perturbation)})
        names[plain(entries)] = name
    return names


def parameters_of(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the name and the parameters of an evaluation, without what follows from them."""
    return {key: value for key, value in evaluation.items() if key not in DERIVED}

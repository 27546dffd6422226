"""Where studies disagree, in words: a study and the run that it would resume, or the studies of several runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

ABSENT = "absent"
"""Stands for the value of a study that does not name what another one does."""
LONGEST = 80
DERIVED = ("conditions", "left_out", "measures")
"""What a manifest says of an evaluation besides its parameters; it follows from them."""
MOST_ENTRIES = 8
"""How many entries of a list an error names."""


def joined(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping with what another one names besides.

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
    """Where a study contradicts that of a run; names that only one of them has are no contradiction.

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
    """Where the values that the runs `labels` have at one place differ, one line each.

    >>> disagreements("lime", [{"samples": 32, "fill": "zero"}, {"samples": 64, "fill": "zero"}], "AB")
    ['lime.samples: 32 in A, 64 in B']
    >>> disagreements("seed", [0, 0, 7], "ABC")
    ['seed: 0 in A and B, 7 in C']
    """
    lines = []
    for where, held in _leaves(place, values):
        if len({plain(value) for value in held}) > 1:
            who: dict[str, list[str]] = {}
            for text, label in zip(told_apart(held), labels, strict=True):
                who.setdefault(text, []).append(label)
            lines.append(
                f"{where}: "
                + ", ".join(f"{text} in {' and '.join(runs)}" for text, runs in who.items())
            )
    return lines


def _leaves(place: str, values: Sequence[Any]) -> Iterator[tuple[str, Sequence[Any]]]:
    """Every place of several nested mappings, with what each of them holds there."""
    if not all(isinstance(value, Mapping) for value in values):
        yield place, values
        return
    for key in dict.fromkeys(key for value in values for key in value):
        inside = [value.get(key, ABSENT) for value in values]
        yield from _leaves(f"{place}.{key}" if place else str(key), inside)


def plain(value: Any) -> str:
    """A text that is the same for equal values; 1 and 1.0 are.

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
    """A text that tells 1, one value, from 1.0, all of them."""
    return json.dumps(value, sort_keys=True)


def told_apart(values: Sequence[Any]) -> list[str]:
    """The values as short texts; of lists of parameter objects only what not all of them have."""
    if not all(_has_entries(value) and isinstance(value[0], Mapping) for value in values):
        return [brief(value) for value in values]
    shared = set.intersection(*({plain(entry) for entry in value} for value in values))
    texts = []
    for value in values:
        rest = [call(entry) for entry in value if plain(entry) not in shared]
        texts.append(presets().get(plain(value)) or ", ".join(rest) or "nothing more")
    if len(set(texts)) == 1:  # the same entries in another order
        return [", ".join(str(entry["name"]) for entry in value) for value in values]
    return texts


def _has_entries(value: Any) -> bool:
    """Whether a value is a list of names or of parameter objects, such as references or perturbations."""
    named = isinstance(value, list) and all(
        isinstance(v, str) or (isinstance(v, Mapping) and "name" in v) for v in value
    )
    return named and bool(value)


def _list_differences(old: list[Any], new: list[Any]) -> str:
    """The entries that only one of two lists has."""
    before, after = ([_exactly(entry) for entry in entries] for entries in (old, new))
    gone = listed([entry for entry, text in zip(old, before, strict=True) if text not in after])
    come = listed([entry for entry, text in zip(new, after, strict=True) if text not in before])
    if gone and come:
        return f"the run has {gone}, this study says {come}"
    if gone:
        return f"the run has {gone}, this study does not"
    return f"this study adds {come}" if come else "the same entries in another order or number"


def listed(entries: list[Any]) -> str:
    """The first entries of a list, and how many more there are."""
    shown = ", ".join(
        entry if isinstance(entry, str) else call(entry) for entry in entries[:MOST_ENTRIES]
    )
    return shown + (
        f" and {len(entries) - MOST_ENTRIES} more" if len(entries) > MOST_ENTRIES else ""
    )


def call(entry: Mapping[str, Any]) -> str:
    """A parameter object as one would write it.

    >>> call({"name": "rotation", "degrees": 15.0})
    'rotation(degrees=15.0)'
    """
    parameters = ", ".join(f"{key}={brief(value)}" for key, value in entry.items() if key != "name")
    return f"{entry['name']}({parameters})"


def brief(value: Any) -> str:
    """A value in at most one line."""
    text = value if isinstance(value, str) else _json(value)
    return text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


@lru_cache(maxsize=1)
def presets() -> dict[str, str]:
    """The names of the presets of perturbations by what a manifest says of them."""
    from heatproof.axes.stability import perturbations
    from heatproof.types import name_of, parameters

    chosen = perturbations.KNOWN_PRESETS.items()
    return {
        plain([{"name": name_of(p), **parameters(p)} for p in preset]): name
        for name, preset in chosen
    }


def parameters_of(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an evaluation, without what a manifest derives from them."""
    return {key: value for key, value in evaluation.items() if key not in DERIVED}

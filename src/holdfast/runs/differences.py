"""Two studies as plain data: where they disagree, in words, and what they are together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

MOST_ENTRIES = 8
"""How many entries of a list an error names."""


def joined(known: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """A nested mapping with what another one names besides.

    >>> joined({"a": {"b": 1}}, {"a": {"b": 2, "c": 3}})
    {'a': {'b': 1, 'c': 3}}
    """
    found = dict(known)
    for name, value in more.items():
        if name not in found:
            found[name] = value
        elif isinstance(value, Mapping) and isinstance(found[name], Mapping):
            found[name] = joined(found[name], value)
    return found


def differences(old: Any, new: Any, place: str = "") -> list[str]:
    """Where two studies disagree, in words; names that only one of them has are not disagreements.

    >>> differences({"seed": 0, "a": {"k": 1}}, {"seed": 1, "a": {"k": 1}, "b": 2})
    ['seed: the run has 0, this study says 1']
    >>> differences({"references": ["cat", "dog"]}, {"references": ["cat", "owl"]})
    ['references: the run has dog, this study says owl']
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for name in old:
            if name in new:
                found += differences(old[name], new[name], f"{place}.{name}" if place else str(name))
        return found
    if _has_entries(old) and _has_entries(new):
        return _list_differences(old, new, place)
    same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    return [] if same else [f"{place}: the run has {_brief(old)}, this study says {_brief(new)}"]


def _has_entries(value: Any) -> bool:
    """Whether a value is a list of names or of parameter objects, such as references or perturbations."""
    named = isinstance(value, list) and all(
        isinstance(v, str) or (isinstance(v, Mapping) and "name" in v) for v in value
    )
    return named and bool(value)


def _list_differences(old: list[Any], new: list[Any], place: str) -> list[str]:
    """The entries that only one of two lists has."""
    before, after = ([json.dumps(v, sort_keys=True) for v in values] for values in (old, new))
    gone = _listed([v for v, text in zip(old, before, strict=True) if text not in after])
    come = _listed([v for v, text in zip(new, after, strict=True) if text not in before])
    if not gone and not come:
        return [] if before == after else [f"{place}: the same entries in another order or number"]
    if gone and come:
        return [f"{place}: the run has {gone}, this study says {come}"]
    return [f"{place}: the run has {gone}, this study does not" if gone else f"{place}: this study adds {come}"]


def _listed(entries: list[Any]) -> str:
    shown = ", ".join(entry if isinstance(entry, str) else _call(entry) for entry in entries[:MOST_ENTRIES])
    return shown + (f" and {len(entries) - MOST_ENTRIES} more" if len(entries) > MOST_ENTRIES else "")


def _call(item: Mapping[str, Any]) -> str:
    """A parameter object as one would write it."""
    given = ", ".join(f"{key}={_brief(value)}" for key, value in item.items() if key != "name")
    return f"{item['name']}({given})"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."

"""Two studies as plain data: where they disagree, in words, and what they are together."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


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
    """
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        found = []
        for name in old:
            if name in new:
                found += differences(old[name], new[name], f"{place}.{name}" if place else str(name))
        return found
    if _are_named(old) and _are_named(new):
        return _list_differences(old, new, place)
    same = json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)
    return [] if same else [f"{place}: the run has {_brief(old)}, this study says {_brief(new)}"]


def _are_named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) and "name" in v for v in value)


def _list_differences(old: list[Any], new: list[Any], place: str) -> list[str]:
    """The entries that only one of two lists of parameter objects has, such as perturbations."""
    before, after = ([json.dumps(v, sort_keys=True) for v in values] for values in (old, new))
    gone = [_call(v) for v, text in zip(old, before, strict=True) if text not in after]
    come = [_call(v) for v, text in zip(new, after, strict=True) if text not in before]
    if not gone and not come:
        return [] if before == after else [f"{place}: the same entries in another order or number"]
    parts = [f"the run has {', '.join(gone)}" if gone else "", f"this study adds {', '.join(come)}" if come else ""]
    if gone and come:
        parts[1] = f"this study says {', '.join(come)}"
    elif gone:
        parts[0] += ", this study does not"
    return [f"{place}: {', '.join(filter(None, parts))}"]


def _call(item: Mapping[str, Any]) -> str:
    """A parameter object as one would write it."""
    given = ", ".join(f"{key}={_brief(value)}" for key, value in item.items() if key != "name")
    return f"{item['name']}({given})"


def _brief(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 80 else text[:77] + "..."

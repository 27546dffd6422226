"""Where the parameters of several runs disagree, in words."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

DERIVED = ("conditions", "left_out")
"""What the manifest says about an evaluation besides its parameters."""
SEPARABLE = {"stability": "perturbations", "faithfulness": "imputers", "smoothing": "keeps"}
"""The parameter of an evaluation whose entries give conditions that do not depend on one another.

Radii of a certificate are not among them: they share their draws, so that a bound gets tighter with every radius.
"""
LONGEST = 90
ABSENT = "absent"


def disagreements(place: str, values: Sequence[Any], labels: Sequence[str]) -> list[str]:
    """Where the values that the runs `labels` have at one place differ, one line each.

    >>> disagreements("lime", [{"samples": 32, "fill": "zero"}, {"samples": 64, "fill": "zero"}], "AB")
    ['lime.samples: 32 in A, 64 in B']
    >>> disagreements("seed", [0, 0, 7], "ABC")
    ['seed: 0 in A and B, 7 in C']
    """
    if all(isinstance(value, Mapping) for value in values):
        lines = []
        for key in dict.fromkeys(key for value in values for key in value):
            inside = [value.get(key, ABSENT) for value in values]
            lines += disagreements(f"{place}.{key}" if place else str(key), inside, labels)
        return lines
    if len({plain(value) for value in values}) == 1:
        return []
    held: dict[str, list[str]] = {}
    for text, label in zip(told_apart(values), labels, strict=True):
        held.setdefault(text, []).append(label)
    return [f"{place}: " + ", ".join(f"{text} in {' and '.join(who)}" for text, who in held.items())]


def plain(value: Any) -> str:
    """A text that is the same for equal values; 1 and 1.0 are."""
    return json.dumps(_as_floats(value), sort_keys=True)


def _as_floats(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _as_floats(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_as_floats(entry) for entry in value]
    return float(value) if isinstance(value, int) and not isinstance(value, bool) else value


def told_apart(values: Sequence[Any]) -> list[str]:
    """The values as short texts; of lists of parameter objects only what not all of them have."""
    if not all(_are_named(value) for value in values):
        return [ABSENT if value == ABSENT else brief(value) for value in values]
    shared = set.intersection(*({plain(entry) for entry in value} for value in values))
    texts = []
    for value in values:
        own = [call(entry) for entry in value if plain(entry) not in shared]
        texts.append(presets().get(plain(value)) or ", ".join(own) or "nothing more")
    if len(set(texts)) == 1:  # the same entries in another order
        return [", ".join(str(entry["name"]) for entry in value) for value in values]
    return texts


def _are_named(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) and "name" in v for v in value)


def call(entry: Mapping[str, Any]) -> str:
    """A parameter object as one would write it.

    >>> call({"name": "rotation", "degrees": 15.0})
    'rotation(degrees=15.0)'
    """
    given = ", ".join(f"{key}={brief(value)}" for key, value in entry.items() if key != "name")
    return f"{entry['name']}({given})"


def brief(value: Any) -> str:
    """A value in at most one line."""
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"


@lru_cache(maxsize=1)
def presets() -> dict[str, str]:
    """The names of the presets of perturbations by what a manifest says of them."""
    from holdfast.axes.stability import perturbations
    from holdfast.types import name_of, parameters

    chosen = perturbations.KNOWN_PRESETS.items()
    return {plain([{"name": name_of(p), **parameters(p)} for p in preset]): name for name, preset in chosen}


def own_settings(evaluation: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of an evaluation without what follows from them."""
    return {key: value for key, value in evaluation.items() if key not in DERIVED}


def shared_conditions(evaluations: Sequence[Mapping[str, Any]]) -> set[tuple[str, float]]:
    """The conditions that several settings of one evaluation have in common, made by the same entries.

    >>> jpeg, shift = {"name": "jpeg", "quality": 40}, {"name": "translation", "pixels": 20}
    >>> a = {"name": "stability", "perturbations": [jpeg], "conditions": [["jpeg", 40]]}
    >>> b = {**a, "perturbations": [shift, jpeg], "conditions": [["translation", 20], ["jpeg", 40]]}
    >>> shared_conditions([a, b])
    {('jpeg', 40.0)}
    """
    held = []
    for evaluation in evaluations:
        conditions = [(str(name), float(level)) for name, level in evaluation.get("conditions", [])]
        made_by = evaluation.get("perturbations", [])
        # A perturbation makes one condition. Entries of other lists are named in full by theirs.
        entries = map(plain, made_by) if len(made_by) == len(conditions) else [""] * len(conditions)
        held.append(dict(zip(conditions, entries, strict=True)))
    first, *others = held
    return {key for key, entry in first.items() if all(other.get(key) == entry for other in others)}

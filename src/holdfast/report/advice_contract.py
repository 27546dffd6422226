"""What a piece of advice is, and small words that the rules share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from holdfast.axes.stability.perturbations import KNOWN
from holdfast.drawing.prose import some

Severity = Literal["act", "mind", "note"]
AXES = ("run", "stability", "certificate", "smoothing", "symmetry", "faithfulness")
"""The axes in the order of the page; `run` is for what concerns all of them."""


@dataclass(frozen=True)
class Advice:
    """One finding: what was seen in this run, what it means, what to do, and which explainers it is about.

    `severity` is "act" where something should be changed before the results are used, "mind" where they need care
    in reading, "note" for what is good to know. `axis` is one of `AXES`.
    """

    axis: str
    severity: Severity
    title: str
    seen: str
    means: str
    do: str
    explainers: tuple[str, ...] = ()
    dataset: str = ""
    model: str = ""


def settings_of(manifest: Mapping[str, Any], explainer: str) -> Mapping[str, Any]:
    """The parameters of an explainer as the manifest has them; empty when it does not.

    >>> settings_of({"study": {"explainers": {"lime": {"samples": 32}}}}, "lime")
    {'samples': 32}
    """
    found = ((manifest.get("study") or {}).get("explainers") or {}).get(explainer)
    return found if isinstance(found, Mapping) else {}


def name_in_study(manifest: Mapping[str, Any], explainer: str) -> str:
    """The name by which a study file calls an explainer.

    >>> name_in_study({}, "integrated_gradients(steps=8)")
    'integrated_gradients'
    """
    return str(settings_of(manifest, explainer).get("name") or explainer.split("(", maxsplit=1)[0])


def evaluations(manifest: Mapping[str, Any]) -> set[str]:
    """The kinds of evaluations that the study asked for."""
    asked = (manifest.get("study") or {}).get("evaluations") or {}
    return {str((settings or {}).get("name") or label) for label, settings in asked.items()}


def each(pairs: Iterable[tuple[str, str]], most: int = 4) -> str:
    """Explainers with what was measured of them.

    >>> each([("a", "0.1 [0.0, 0.2]"), ("b", "0.3 [0.2, 0.4]")])
    'a 0.1 [0.0, 0.2] and b 0.3 [0.2, 0.4]'
    """
    return some([f"{name} {text}" for name, text in pairs], most)


def plural(names: Sequence[object], one: str, many: str) -> str:
    """One of two words by how many names there are."""
    return one if len(names) == 1 else many


def milder(condition: str, level: float) -> str:
    """A sweep from mild to the strength that was tested, as a study file has it; empty for unknown perturbations.

    >>> milder("rotation", 15.0), milder("jpeg", 40.0), milder("mine", 1.0)
    ('rotation: {degrees: [1.5, 3.75, 7.5, 15]}', 'jpeg: {quality: [94, 85, 70, 40]}', '')
    """
    kind: Any = KNOWN.get(condition)
    magnitude = getattr(kind, "magnitude_field", "")
    if not magnitude:
        return ""
    neutral = {"brightness": 1.0, "contrast": 1.0, "scaling": 1.0, "jpeg": 100.0}.get(condition, 0.0)
    steps = [neutral + (level - neutral) * share for share in (0.1, 0.25, 0.5, 1.0)]
    whole = float(level).is_integer() and isinstance(getattr(kind(), magnitude), int)
    shown = [f"{max(1, round(x)) if whole else round(x, 3):g}" for x in steps]
    return f"{condition}: {{{magnitude}: [{', '.join(dict.fromkeys(shown))}]}}"

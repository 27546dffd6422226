"""A finding: one thing that a run shows and a reader should know, under the name of its rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heatproof.rules import RULES, Severity


@dataclass(frozen=True)
class Finding:
    """One thing that a run shows and a reader should know, under the name of its rule.

    `seen` says what was measured, `means` what follows from it, `do` what to do about it. `change` is what to write into
    the study file, by its keys. `axis` is the name of an axis, or empty for what concerns all of them; `items` is a list
    that may be folded away.

    Sentences and items have display names, such as "Grad-CAM" (`AxisResult.unmarked_names`); `explainers` and `change`
    have the names of the study file, such as "grad_cam".
    """

    rule: str
    severity: Severity
    title: str
    seen: str
    means: str
    do: str
    axis: str = ""
    explainers: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    change: Mapping[str, Any] = field(default_factory=dict)
    dataset: str = ""
    model: str = ""

    def filled(
        self, words: Mapping[str, Any], explainers: Iterable[str] = (), **fields: Any
    ) -> Finding:
        """Return the finding about some explainers, with the braces of its texts filled in, and with other fields."""
        texts = {
            name: getattr(self, name).format(**words).strip()
            for name in ("title", "seen", "means", "do")
            if name not in fields
        }
        return replace(self, **texts, explainers=tuple(explainers), **fields)


def finding_template(
    rule: str, title: str, means: str, do: str, seen: str = "", axis: str = ""
) -> Finding:
    """Return a finding as severe as its rule, whose texts have braces to be filled in for a run."""
    return Finding(rule, RULES[rule].severity, title, seen, means, do, axis)

"""Material of figures for papers: everything that a run judged, and a look for every explainer."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from holdfast.axes.contract import Judged
from holdfast.drawing.style import style_of


@dataclass(frozen=True)
class Material:
    """The results of a run, and its manifest."""

    judged: list[Judged]
    manifest: Mapping[str, Any]

    def of(self, axis: str) -> list[Judged]:
        """What an axis judged, by its name."""
        return [judged for judged in self.judged if judged.axis.name == axis]

    @cached_property
    def looks(self) -> dict[str, dict[str, Any]]:
        """A colour and marker for every explainer, in the order of the study: the same in all figures of a run."""
        named = (self.manifest.get("study") or {}).get("explainers") or {}
        there = dict.fromkeys(e for judged in self.judged for e in judged.cube.explainers)
        controls = frozenset().union(*(judged.cube.controls for judged in self.judged))
        return style_of([*(e for e in named if e in there), *(e for e in there if e not in named)], controls)

    def looks_of(self, explainers: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The looks of some explainers."""
        wanted = set(explainers)
        return {e: look for e, look in self.looks.items() if e in wanted}

    @property
    def fingerprint(self) -> str:
        """Twelve digits that stand for the study with the hashes of its models and data, and for the version."""
        about = {"holdfast": self.manifest.get("holdfast"), "study": self.manifest.get("study")}
        return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:12]

"""What figures are made from and what they are: a run's rows arranged once, and drawings, tables and skips."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from holdfast.axes.faithfulness.retraining.page import retrained_cubes
from holdfast.axes.stability.words import Findings, findings
from holdfast.axes.symmetry.frames import Symmetries, symmetries
from holdfast.drawing.latex import Tabular
from holdfast.drawing.style import style_of
from holdfast.report.axes import base_model, related_rows
from holdfast.report.parts import Axis
from holdfast.statistics.cubes import Cube, arrange

if TYPE_CHECKING:
    from matplotlib.figure import Figure

RETRAINING = "retraining"


@dataclass(frozen=True)
class Drawing:
    """A finished figure; `subject` tells it from others of the same kind and is empty where there is one only."""

    subject: str
    caption: str
    figure: Figure


@dataclass(frozen=True)
class Table:
    """A finished table; `caption` is plain text."""

    subject: str
    caption: str
    content: Tabular


@dataclass(frozen=True)
class Skipped:
    """Why something was not made, and what would help."""

    subject: str
    reason: str


Piece = Drawing | Table | Skipped


@dataclass(frozen=True)
class Material:
    """A run as figures need it: `table` and `samples` as `Run` gives them, and the manifest."""

    table: pd.DataFrame
    samples: pd.DataFrame
    manifest: Mapping[str, Any]

    @cached_property
    def cubes(self) -> list[Cube]:
        return arrange(self.table)

    @cached_property
    def findings(self) -> list[Findings]:
        """The stability of every dataset and model."""
        return findings(self.cubes)

    @cached_property
    def axes(self) -> list[Axis]:
        """Every evaluation of every dataset and model but stability; retrained networks are with their model."""
        study = self.manifest.get("study") or {}
        found = []
        for cube in self.cubes:
            if "fass" in cube.values or cube.evaluation == RETRAINING:
                continue
            here = (self.table["dataset"] == cube.dataset) & (self.table["model"] == cube.model)
            own = (self.samples["dataset"] == cube.dataset) & (self.samples["model"] == cube.model)
            rows = self.table[here & (self.table["evaluation"] == cube.evaluation)]
            settings = (study.get("evaluations") or {}).get(cube.evaluation) or {}
            related = related_rows(self.table, cube.dataset, cube.model)
            found.append(Axis(cube, rows, self.samples[own], [], settings, self.manifest, related))
        return found

    @cached_property
    def retrained(self) -> list[Cube]:
        """Accuracies of retrained networks, a cube for every dataset and model that they stand for."""
        again = [cube for cube in self.cubes if cube.evaluation == RETRAINING]
        places = dict.fromkeys((cube.dataset, base_model(cube)) for cube in again)
        return [c for place in places for c in retrained_cubes(related_rows(self.table, *place), place[1])]

    @cached_property
    def looks(self) -> dict[str, dict[str, Any]]:
        """A colour and marker for every explainer, in the order of the study: the same in all figures of a run."""
        named = (self.manifest.get("study") or {}).get("explainers") or {}
        there = set(self.table["explainer"])
        return style_of(
            [*(e for e in named if e in there), *(e for e in self.table["explainer"].unique() if e not in named)]
        )

    def looks_of(self, explainers: Iterable[str]) -> dict[str, dict[str, Any]]:
        """The looks of some explainers."""
        wanted = set(explainers)
        return {e: look for e, look in self.looks.items() if e in wanted}

    def of_kind(self, *measures: str) -> list[Axis]:
        """The evaluations with all of these measures."""
        return [axis for axis in self.axes if set(measures) <= set(axis.cube.values)]

    @cached_property
    def symmetric(self) -> list[tuple[Axis, Symmetries]]:
        """The evaluations of symmetry with their frames."""
        judged = [axis for axis in self.axes if {"equivariance", "invariance"} & set(axis.cube.values)]
        return [(axis, found) for axis in judged if (found := symmetries(axis)) is not None]

    @property
    def fingerprint(self) -> str:
        """Twelve digits that stand for the study with the hashes of its models and data, and for the version."""
        about = {"holdfast": self.manifest.get("holdfast"), "study": self.manifest.get("study")}
        return hashlib.sha256(json.dumps(about, sort_keys=True, default=str).encode()).hexdigest()[:12]


def only(cube: Cube, wanted: Iterable[tuple[str, float]]) -> Cube:
    """The cube with these conditions only."""
    chosen = set(wanted)
    kept = np.array([c in chosen for c in cube.conditions], dtype=bool)
    return replace(
        cube,
        conditions=[c for c in cube.conditions if c in chosen],
        values={measure: scores[:, kept] for measure, scores in cube.values.items()},
        status=cube.status[:, kept],
        asked={measure: flags[:, kept] for measure, flags in cube.asked.items()},
    )


def subjects(cubes: Sequence[Cube]) -> list[str]:
    """For each cube the words that tell it from the others; empty for the only one.

    >>> subjects([])
    []
    """
    parts = [(cube.dataset, base_model(cube), cube.evaluation) for cube in cubes]
    differ = [len({part[i] for part in parts}) > 1 for i in range(3)]
    return [", ".join(text for text, told in zip(part, differ, strict=True) if told) for part in parts]


def about(cube: Cube) -> str:
    """The model and the data in words.

    >>> about(Cube("photos", "net", "s", [], [], ["a"], {}, np.zeros((0, 0, 1), np.int8), {}, pd.DataFrame(), {}))
    'net on photos (1 sample)'
    """
    n = len(cube.samples)
    return f"{base_model(cube)} on {cube.dataset} ({n} sample{'' if n == 1 else 's'})"


def pages(subject: str, caption: str, figures: Sequence[Figure]) -> Iterator[Drawing]:
    """One drawing for each figure of a series, told apart by their number."""
    for i, figure in enumerate(figures):
        part = f"part {i + 1}" if len(figures) > 1 else ""
        yield Drawing(", ".join(filter(None, (subject, part))), caption, figure)


def file_part(text: str) -> str:
    """A name as part of a file name.

    >>> file_part("ResNet-50, retrained 1/α")
    'resnet-50-retrained-1'
    """
    return re.sub(r"[^a-z0-9.=]+", "-", text.lower()).strip("-.")[:60].strip("-.")

"""Findings from the stability scores: chance, and the FASS diagnosis of how a map fails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes.contract import AxisResult, Finding
from heatproof.axes.stability import findings_texts as texts
from heatproof.axes.stability.findings_pairs import pair_findings
from heatproof.axes.stability.findings_texts import FAILURES, ORDINAL, SALIENT
from heatproof.axes.stability.frames import Frames, frames
from heatproof.axes.stability.perturbations import milder, title
from heatproof.drawing.prose import each, number, plural, records, some, with_interval
from heatproof.kinds import KINDS

NEGLIGIBLE = 0.1
"""A calibrated score whose interval stays below this is next to nothing."""
CUTTING = ("lime", "kernel_shap", "occlusion")
"""Explainers that cut an image into superpixels by default."""
MORE_STEPS = 64
LOW = 0.5
"""A component is called low when its whole interval is below this."""


def findings(result: AxisResult) -> Iterator[Finding]:
    """Yield what the stability of one dataset and model shows, in no particular order."""
    one = frames(result)
    if one is None:
        return
    lost = one.methods[one.methods["high"] < NEGLIGIBLE] if one.calibrated else one.methods.iloc[:0]
    weak = _near_chance(one, lost)
    yield from _at_chance(one, lost)
    yield from _at_chance_under(one, weak)
    yield from _not_above_chance(one, [*lost["explainer"]], weak)
    yield from _diagnosis(one, [*lost["explainer"]])
    yield from _missing_conditions(one)
    yield from pair_findings(one)
    yield from _no_faithfulness(one)


def _near_chance(one: Frames, lost: pd.DataFrame) -> pd.DataFrame:
    """The cells of other methods whose interval stays next to chance."""
    cells = one.cells()
    cells = cells[cells["calibrated"].notna() & (cells["best_high"] < NEGLIGIBLE)]
    return cells[~cells["control"] & ~cells["explainer"].isin(lost["explainer"])]


def _at_chance(one: Frames, lost: pd.DataFrame) -> Iterator[Finding]:
    """Methods whose overall interval stays next to chance, or below it."""
    if lost.empty:
        return
    names = lost["explainer"].tolist()
    scores = each((r.explainer, with_interval(r.score, r.low, r.high)) for r in records(lost))
    words = one.result.words
    smoothing, smoothed = _smoothing(one, names)
    fill = {"sample": words.sample, "samples": words.samples, "smoothing": smoothing}
    change = _perturbations(KINDS[_modality(one)].milder) | smoothed
    seen = f"Calibrated score over all perturbations (0: maps of different samples): {scores}."
    yield texts.NEAR_CHANCE.filled(fill, names, seen=seen, change=change)


def _at_chance_under(one: Frames, cells: pd.DataFrame) -> Iterator[Finding]:
    if cells.empty:
        return
    names = list(dict.fromkeys(cells["explainer"]))
    conditions = list(dict.fromkeys(zip(cells["condition"], cells["level"], strict=True)))
    scores = "; ".join(
        f"{title(c, x)}: "
        + each(
            (r.explainer, with_interval(r.best, r.best_low, r.best_high))
            for r in records(cells[here])
        )
        for c, x in conditions[:3]
        for here in [(cells["condition"] == c) & (cells["level"] == x)]
    )
    sweeps = [sweep for c, x in conditions if (sweep := milder(c, x))]
    smoothing, change = _smoothing(one, names)
    if sweeps:
        change |= _perturbations({name: s[name] for s in sweeps[:2] for name in s})
    fill = {
        "where": some([title(c, x) for c, x in conditions], 3),
        "smoothing": smoothing,
        "sweep": texts.SWEEP if sweeps else texts.NO_SWEEP,
    }
    seen = f"Calibrated scores under {scores}{_more(conditions[3:])}."
    yield texts.NEAR_CHANCE_UNDER_CHANGE.filled(fill, names, seen=seen, change=change)


def _not_above_chance(one: Frames, lost: Sequence[str], weak: pd.DataFrame) -> Iterator[Finding]:
    """Intervals that reach chance, of cells that no other finding names."""
    cells = one.at_chance()
    cells = cells[~cells.index.isin(weak.index) & ~cells["explainer"].isin(lost)]
    if cells.empty:
        return
    names = list(dict.fromkeys(cells["explainer"]))
    items = [
        f"{r.explainer}, {title(r.condition, r.level)}: "
        f"raw {number(r.mean)}, calibrated {with_interval(r.best, r.best_low, r.best_high)}"
        for r in records(cells)
    ]
    counted = f"{len(cells)} calibrated {plural(items, 'score', 'scores')} of {some(names)}"
    seen = f"The {plural(items, 'interval', 'intervals')} of {counted} {plural(items, 'contains', 'contain')} chance."
    yield texts.NOT_ABOVE_CHANCE.filled({}, names, seen=seen, items=tuple(items))


def _diagnosis(one: Frames, lost: Sequence[str]) -> Iterator[Finding]:
    """Which of the components gives way, where their intervals say so; of a table they are Spearman and Jaccard."""
    needed = {ORDINAL, SALIENT} if _modality(one) == "table" else set(FAILURES)
    if set(one.components) != needed or not one.calibrated:
        return
    scores = {name: rows.set_index("explainer") for name, rows in one.components.items()}
    failing: dict[str, list[str]] = {}
    for explainer in one.methods["explainer"]:
        if explainer in lost:
            continue
        row = {name: rows.loc[explainer] for name, rows in scores.items()}
        lowest = min(
            row,
            key=lambda name: row[name]["score"] if np.isfinite(row[name]["score"]) else math.inf,
        )
        rest = [name for name in row if name != lowest]
        if row[lowest]["high"] < LOW and all(
            row[lowest]["high"] < row[name]["low"] for name in rest
        ):
            failing.setdefault(lowest, []).append(str(explainer))
    for component, names in failing.items():
        rows = {e: {n: records(part.loc[[e]])[0] for n, part in scores.items()} for e in names[:3]}
        said = "; of ".join(
            f"{e}: "
            + ", ".join(
                f"{one.title_of(n)} {with_interval(r.score, r.low, r.high)}" for n, r in own.items()
            )
            for e, own in rows.items()
        )
        said += _more(names[3:])
        k = one.result.settings.get("k", 100)
        top = (
            f"the {k} largest values"
            if isinstance(k, int)
            else f"the largest {100 * float(k):g} % of the values"
        )
        fill = {"k": top, "others": "the other two" if len(needed) > 2 else "the other"}
        fill["do"], change = _remedy(one, component, names)
        seen = f"Calibrated components of {said}."
        yield FAILURES[component].filled(fill, names, seen=seen, change=change)


def _remedy(one: Frames, component: str, names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return what to do about a component that gives way, and the change to the study."""
    kind, parts = _modality(one), one.result.words.parts
    if component == SALIENT:
        single = texts.NOT_SINGLE.format(
            plural(names, "This method does", "These methods do"), parts
        )
        if kind == "image":
            return texts.READ_REGIONS.format(single), _stability({"k": 0.05})
        return texts.READ_MORE.format(parts, single), _stability({"k": 0.3})
    if component == ORDINAL:
        stepped = next((name for name in names if "steps" in one.result.settings_of(name)), None)
        if stepped is None:
            return texts.NO_RANKS, {}
        more_steps = {one.registered(stepped): {"steps": MORE_STEPS}}
        return texts.MORE_STEPS + texts.NO_RANKS, {"explainers": [more_steps]}
    cut = [r for name in names if (r := one.registered(name)) in CUTTING]
    if cut and kind == "image":
        patches = {"features": {"patches": {"size": 16}}}
        return texts.FIXED_PATCHES, {"explainers": [{cut[0]: patches}]}
    smoothing, change = _smoothing(one, names)
    return texts.SMOOTH_MAPS.format(smoothing), change


def _stability(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what to write into a study file for other settings of stability."""
    return {"evaluations": [{"stability": settings}]}


def _perturbations(perturbations: Any) -> dict[str, Any]:
    """Return what to write into a study file for other perturbations."""
    return _stability({"perturbations": perturbations})


def _smoothing(one: Frames, names: Sequence[str]) -> tuple[str, dict[str, Any]]:
    """Return how to average the first of the methods that follow gradients over noise; nothing without one."""
    for kind in map(one.registered, names):
        if "gradient" in kind or kind in ("saliency", "deep_lift", "lrp"):
            return texts.SMOOTHING, {"explainers": [{"smoothgrad": {"of": kind}}]}
    return "", {}


def _more(rest: Sequence[object]) -> str:
    return f"; and {len(rest)} more" if rest else ""


def _missing_conditions(one: Frames) -> Iterator[Finding]:
    partial = one.ranking[one.ranking["conditions"] < one.ranking["conditions_total"]]
    if len(partial):
        items = [
            f"{r.explainer}: {r.conditions} of {r.conditions_total} conditions"
            for r in records(partial)
        ]
        names = partial["explainer"].tolist()
        seen = (
            f"{some(names)} {plural(names, 'has', 'have')} no score under some of the conditions."
        )
        yield texts.MISSING_CONDITIONS.filled({}, names, seen=seen, items=tuple(items))


def _no_faithfulness(one: Frames) -> Iterator[Finding]:
    if not _tests_faithfulness(one):
        change = {"evaluations": ["stability", "faithfulness"]}
        yield texts.NO_FAITHFULNESS.filled({}, change=change)


def _tests_faithfulness(one: Frames) -> bool:
    evaluations = one.result.manifest.study.evaluations
    return any((entry.name or label) == "faithfulness" for label, entry in evaluations.items())


def _modality(one: Frames) -> str:
    return one.result.modality

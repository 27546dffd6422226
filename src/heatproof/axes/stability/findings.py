"""Findings from the stability scores: chance, controls, and the FASS diagnosis of how a map fails."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd

from heatproof.axes.contract import AxisResult, Finding
from heatproof.axes.stability import findings_texts as texts
from heatproof.axes.stability.findings_pairs import pair_findings
from heatproof.axes.stability.findings_texts import FAILURES, ORDINAL, SALIENT, finding
from heatproof.axes.stability.frames import Frames, frames
from heatproof.axes.stability.perturbations import milder, title
from heatproof.drawing.prose import (
    above,
    difference,
    each,
    listing,
    number,
    plural,
    records,
    some,
    with_interval,
)
from heatproof.models.modality import words_of

NEGLIGIBLE = 0.1
"""A calibrated score whose interval stays below this is next to nothing."""
LOW = 0.5
"""A component is called low when its whole interval is below this."""
LARGE_SHARE = 1 / 3
"""The share of the variance above which the choice of the references is worth a word."""


def findings(judged: AxisResult) -> Iterator[Finding]:
    """What the stability of one dataset and model shows, in no particular order."""
    one = frames(judged)
    if one is None:
        return
    lost = one.methods[one.methods["high"] < NEGLIGIBLE] if one.calibrated else one.methods.iloc[:0]
    weak = _near_chance(one, lost)
    yield from _at_chance(one, lost)
    yield from _at_chance_under(one, weak)
    yield from _not_above_chance(one, [*lost["explainer"]], weak)
    yield from _controls(one)
    yield from _diagnosis(one, [*lost["explainer"]])
    yield from _missing_conditions(one)
    yield from _few_references(one)
    yield from pair_findings(one)
    yield _not_faithfulness(one)


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
    words = words_of(one.judged.task)
    fill = {
        "sample": words.sample,
        "samples": words.samples,
        "milder": texts.MILDER[_modality(one)],
    }
    seen = f"Over all perturbations the calibrated score is {scores}; 0 is what maps of different samples score."
    yield finding(texts.AT_CHANCE, seen, names, fill=fill | {"smoothing": _smoothing(one, names)})


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
    sweeps = [s for c, x in conditions if (s := milder(c, x))]
    fill = {
        "where": some([title(c, x) for c, x in conditions], 3),
        "smoothing": _smoothing(one, names),
    }
    fill["sweep"] = texts.SWEEP.format(listing(sweeps[:2])) if sweeps else texts.NO_SWEEP
    seen = f"Calibrated scores under {scores}{_more(conditions[3:])}."
    yield finding(texts.AT_CHANCE_UNDER, seen, names, fill=fill)


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
    n = len(cells)
    seen = f"{n} calibrated {plural(items, 'score', 'scores')} of {some(names)} {plural(items, 'has', 'have')} an "
    yield finding(texts.NOT_ABOVE_CHANCE, f"{seen}interval that reaches chance.", names, items)


def _controls(one: Frames) -> Iterator[Finding]:
    controls = one.ranking[one.ranking["control"] & one.ranking["score"].notna()]
    for control in records(controls):
        if one.registered(control.explainer) == "random":
            continue
        beaten = [
            name for name in one.methods["explainer"] if above(one.tests, control.explainer, name)
        ]
        if not beaten:
            continue
        gaps = {name: difference(one.tests, control.explainer, name) or {} for name in beaten}
        ahead = each(
            (n, f"by {with_interval(g['difference'], g['low'], g['high'])}")
            for n, g in gaps.items()
        )
        seen = f"The control {control.explainer}, which explains nothing, scores "
        seen += (
            f"{with_interval(control.score, control.low, control.high)} and is ahead of {ahead}."
        )
        do = texts.BOTH_AXES if _tests_faithfulness(one) else texts.ADD_FAITHFULNESS
        yield finding(
            texts.CONTROL_AHEAD, seen, beaten, fill={"control": control.explainer, "do": do}
        )


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
        k = one.judged.settings.get("k", 100)
        top = (
            f"the {k} largest values"
            if isinstance(k, int)
            else f"the largest {100 * float(k):g} % of the values"
        )
        fill = {"k": top, "others": "the other two" if len(needed) > 2 else "the other"}
        fill["do"] = _remedy(one, component, names)
        yield finding(FAILURES[component], f"Calibrated components of {said}.", names, fill=fill)


def _remedy(one: Frames, component: str, names: Sequence[str]) -> str:
    kind, parts = _modality(one), words_of(one.judged.task).parts
    if component == SALIENT:
        single = texts.NOT_SINGLE.format(
            plural(names, "This method does", "These methods do"), parts
        )
        return (
            texts.READ_REGIONS.format(single)
            if kind == "image"
            else texts.READ_MORE.format(parts, single)
        )
    if component == ORDINAL:
        stepped = next((n for n in names if "steps" in one.judged.settings_of(n)), "")
        return (
            texts.MORE_STEPS.format(one.registered(stepped)) if stepped else ""
        ) + texts.NO_RANKS
    cut = [r for n in names if (r := one.registered(n)) in ("lime", "kernel_shap", "occlusion")]
    if cut and kind == "image":
        return texts.FIXED_PATCHES.format(cut[0])
    return texts.SMOOTH_MAPS.format(_smoothing(one, names)).strip()


def _smoothing(one: Frames, names: Sequence[str]) -> str:
    """How to average the first of the methods that follow gradients over noise."""
    kinds = map(one.registered, names)
    kind = next(
        (kind for kind in kinds if "gradient" in kind or kind in ("saliency", "deep_lift", "lrp")),
        "",
    )
    return texts.SMOOTHING.format(kind) if kind else ""


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
        yield finding(texts.MISSING_CONDITIONS, seen, names, items)


def _few_references(one: Frames) -> Iterator[Finding]:
    """That the choice of the references is a large part of the error of overall scores."""
    share = one.methods["by_references"].max() if len(one.methods) else 0.0
    if share > LARGE_SHARE:
        references = len(one.cube.references) or max(
            (v.shape[-1] for v in one.cube.by_reference.values()), default=0
        )
        seen = f"Chance is taken from the maps of {references} other samples, whose choice makes up to {share:.0%} of the "
        yield finding(
            texts.FEW_REFERENCES, seen + "variance of a calibrated score; the intervals include it."
        )


def _not_faithfulness(one: Frames) -> Finding:
    tested = _tests_faithfulness(one)
    seen = f"This run {'tested faithfulness too' if tested else 'did not test faithfulness'}."
    do = texts.BOTH_AXES if tested else texts.ADD_FAITHFULNESS
    return finding(texts.NOT_FAITHFULNESS, seen, fill={"do": do})


def _tests_faithfulness(one: Frames) -> bool:
    asked = (one.judged.manifest.get("study") or {}).get("evaluations") or {}
    return any(
        (settings or {}).get("name", label) == "faithfulness" for label, settings in asked.items()
    )


def _modality(one: Frames) -> str:
    return str(one.judged.task.get("modality", "image"))

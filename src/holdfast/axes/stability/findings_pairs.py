"""Finding from the pairs behind the stability scores: random draws, retention, undefined maps and alignment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from holdfast import statistics
from holdfast.axes.contract import Finding
from holdfast.axes.faithfulness.frames import interval
from holdfast.axes.stability.perturbations import KNOWN, title
from holdfast.axes.stability.words import Findings
from holdfast.drawing.prose import each, listing, number, records, some, with_interval
from holdfast.models.spoken import spoken
from holdfast.report.advice_contract import milder, name_in_study, settings_of
from holdfast.statistics.bootstrap import mean_of_finite

LOW = 0.5
"""Retention is called low when its whole interval is below this."""
FIRM = 0.9
"""Two draws on one input are called alike when the interval of their raw score reaches this."""
MORE = 4  # times as many draws halve the noise


def pair_advice(found: Findings, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """The findings of one dataset and model, in no particular order."""
    yield from _draws(found, manifest)
    yield from _retention(found)
    yield from _undefined(found, manifest)
    yield from _not_aligned(found)
    yield from _misalignment(found)


def _draws(found: Findings, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    """Stochastic methods whose own draws move the map."""
    floors = found.cube.floor.get("fass")
    if floors is None:
        return
    low, high = interval(floors)
    mean = mean_of_finite(floors)
    raw, sample = found.ranking.set_index("explainer"), spoken(found.cube).sample
    loud: list[tuple[str, float, float, float]] = []
    noisy: list[tuple[str, float, float, float]] = []
    for e, name in enumerate(found.cube.explainers):
        if statistics.is_control(name) or not np.isfinite(high[e]) or high[e] >= FIRM:
            continue
        entry = (name, float(mean[e]), float(low[e]), float(high[e]))
        (loud if high[e] < raw.loc[name, "raw_low"] else noisy).append(entry)
    for rows, severity in ((loud, "act"), (noisy, "mind")):
        if not rows:
            continue
        names = tuple(row[0] for row in rows)
        said = each((name, with_interval(m, lo, hi)) for name, m, lo, hi in rows)
        more = listing(filter(None, (_more_draws(manifest, name) for name in names)))
        perturbed = each((name, number(float(raw["raw"][name]))) for name in names)
        yield Finding(
            "stability",
            "act" if severity == "act" else "mind",
            "The method’s own random draws move its maps",
            f"Raw FASS of two draws on the same, untouched {sample}: {said}. Of pairs under perturbation, which share "
            f"their draws: {perturbed}.",
            "Another seed changes the map more than the perturbations do: the score says more about shared draws than "
            "about the method."
            if severity == "act"
            else f"Part of what is seen in one map is chance. Someone who explains the same {sample} with another seed "
            "gets another map, however well the scores hold.",
            (f"Draw more: {more}; {MORE} times as many halve the noise. " if more else "Draw more samples. ")
            + "The noise floor should rise towards 1.",
            names,
        )


def _more_draws(manifest: Mapping[str, Any], explainer: str) -> str:
    given = settings_of(manifest, explainer)
    for key in ("samples", "draws"):
        if isinstance(given.get(key), int):
            return f"{name_in_study(manifest, explainer)}: {{{key}: {MORE * int(given[key])}}} (now {given[key]})"
    return ""


def _retention(found: Findings) -> Iterator[Finding]:
    cells = found.cells()
    known = cells[cells["attempted"] > cells["undefined"]].copy()
    asked = (known["attempted"] - known["undefined"]).astype(int)
    known["high"] = [statistics.wilson(int(k), int(n))[1] for k, n in zip(known["retained"], asked, strict=True)]
    low = known[known["high"] < LOW].drop_duplicates(["condition", "level"])
    if low.empty:
        return
    said = listing(
        f"{r.retained} of {r.attempted - r.undefined} under {title(r.condition, r.level)}" for r in records(low)
    )
    sweeps = [s for r in records(low) if (s := milder(r.condition, r.level))]
    yield Finding(
        "stability",
        "mind",
        "Most predictions do not survive " + some([title(r.condition, r.level) for r in records(low)], 2),
        f"The prediction stayed the same for {said}.",
        "Scores there come from the few samples that the change leaves alone, the easiest ones. They say little about "
        "the rest, and the model itself is not robust to this change.",
        (f"Use a milder change or a sweep, {sweeps[0]}, " if sweeps else "Use a milder change ")
        + "and give the retention with every score.",
    )


def _undefined(found: Findings, manifest: Mapping[str, Any]) -> Iterator[Finding]:
    cells = found.cells()
    lost = cells.groupby("explainer", sort=False)[["undefined", "attempted"]].sum()
    lost = lost[(lost["undefined"] > 0) & ~lost.index.map(statistics.is_control).to_numpy(bool)]
    if lost.empty:
        return
    names = tuple(str(name) for name in lost.index)
    said = each((str(name), f"{int(row['undefined'])} of {int(row['attempted'])}") for name, row in lost.iterrows())
    reasons = found.cube.reasons
    why = some(dict.fromkeys(str(r) for r in reasons[reasons["explainer"].isin(names)]["reason"] if r), 2)
    often = any(statistics.wilson(int(r["undefined"]), int(r["attempted"]))[0] > 0.1 for _, r in lost.iterrows())
    cams = [n for n in names if "cam" in name_in_study(manifest, n)]
    fix = f"For {listing(cams)} another layer, layer: …, or relu: false may give a map. " if cams else ""
    yield Finding(
        "stability",
        "act" if often else "mind",
        "Maps without a score",
        f"Undefined: {said}{f' ({why})' if why else ''}.",
        "A map that is constant or not finite explains nothing, so it gets no score. The scores of these methods are "
        "those of the other samples.",
        f"{fix}Look at such a sample before you use the method; its reason is in the column reason of the table.",
        names,
    )


def _geometric(condition: str) -> bool:
    return hasattr(KNOWN.get(condition.split("(", maxsplit=1)[0]), "move")


def _not_aligned(found: Findings) -> Iterator[Finding]:
    cells = found.cells()
    bare = cells[cells["condition"].map(_geometric).astype(bool) & cells["mean"].notna() & cells["aligned"].isna()]
    if bare.empty:
        return
    names = tuple(dict.fromkeys(e for e in bare["explainer"] if not statistics.is_control(e)))
    where, words = listing(dict.fromkeys(title(r.condition, r.level) for r in records(bare))), spoken(found.cube)
    yield Finding(
        "stability",
        "act",
        f"Moved {words.samples} were compared with maps that were not moved",
        f"There is no aligned score for {where}.",
        f"A map that follows the {words.sample} perfectly is then marked down for following it: the score measures the "
        "shift and not the method.",
        "Set aligned: true in the stability evaluation and run the study into a new directory, or leave these "
        "perturbations out of every comparison.",
        names,
    )


def _misalignment(found: Findings) -> Iterator[Finding]:
    """Where moving the map with the picture changes the score beyond doubt."""
    cells = found.cells()
    cells = cells[~cells["explainer"].map(statistics.is_control).astype(bool)]
    rows = cells[cells["aligned_calibrated_low"] > cells["calibrated_high"]]
    if rows.empty:
        return
    top = rows.assign(gain=rows["aligned_calibrated"] - rows["calibrated"]).sort_values("gain", ascending=False)
    r = records(top)[0]
    where = some(dict.fromkeys(title(x.condition, x.level) for x in records(rows)), 3)
    sample = spoken(found.cube).sample
    yield Finding(
        "stability",
        "note",
        f"Under {where} read the aligned scores",
        f"{r.explainer} under {title(r.condition, r.level)}: "
        f"{with_interval(r.calibrated, r.calibrated_low, r.calibrated_high)} as the maps lie, "
        f"{with_interval(r.aligned_calibrated, r.aligned_calibrated_low, r.aligned_calibrated_high)} "
        f"once the first map is moved with the {sample} (both calibrated).",
        f"Part of the loss is the motion of the {sample} and not a failure of the method. Published scores without "
        "alignment mix the two.",
        "Nothing to change: ranking and verdict use the aligned scores. Do not set raw scores of geometric "
        "perturbations beside those of others.",
        tuple(dict.fromkeys(rows["explainer"])),
    )

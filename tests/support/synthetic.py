"""Made-up runs with known truths, for the tests of the statistics and of the report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from heatproof.axes import AxisResult, axis_results
from heatproof.axes.stability.frames import Frames, frames
from heatproof.evaluation import Shown

CONDITIONS = (
    ("rotation", 15.0),
    ("translation", 20.0),
    ("brightness", 1.5),
    ("noise", 0.15),
    ("jpeg", 40.0),
)
GEOMETRIC = ("rotation", "translation")
CONTROLS = ("sobel", "random")
REMOVING = ("faithfulness", "retraining", "f_fidelity", "leakage")
QUALITY = {
    "grad_cam": 0.55,
    "integrated_gradients(steps=16)": 0.3,
    "lime": 0.02,
    "sobel": 0.7,
    "random": 0.0,
}
CHANCE = {"ssim": 0.6, "spearman": 0.5, "jaccard": 0.02}
Entry = tuple[str, str, str, float, Any]


def table(
    quality: dict[str, float] | None = None,
    conditions: tuple[tuple[str, float], ...] = CONDITIONS,
    samples: int = 40,
    flip: float = 0.2,
    undefined: float = 0.02,
    stochastic: tuple[str, ...] = ("lime",),
    seed: int = 0,
    dataset: str = "photos",
    model: str = "mobilenet",
) -> pd.DataFrame:
    """Scores whose expected calibrated value is `quality`, the aligned one 0.1 more."""
    generator = np.random.default_rng(seed)
    flipped = {key: generator.random(samples) < flip for key in conditions}
    blocks = []
    for explainer, truth in (QUALITY if quality is None else quality).items():
        broken = generator.random((len(conditions), samples)) < undefined
        extra = (("redraw", 0.0),) if explainer in stochastic else ()
        for index, (condition, level) in enumerate((*conditions, *extra)):
            status = np.full(samples, "ok", dtype=object)
            if condition != "redraw":
                status[broken[index]] = "undefined"
                status[flipped[condition, level]] = "flipped"
            measures: dict[str, np.ndarray] = {}
            for suffix, bonus in (
                ("", 0.0),
                *((("_aligned", 0.1),) if condition in GEOMETRIC else ()),
            ):
                for name, base in CHANCE.items():
                    chance = np.clip(base + generator.normal(0, 0.02, samples), 0, 1)
                    goal = min(truth + bonus + 0.5 * (condition == "redraw"), 1) if truth else 0.0
                    value = chance + (1 - chance) * goal + generator.normal(0, 0.06, samples)
                    measures[name + suffix] = (
                        np.clip(value, 0, 1) if truth < 1 else np.ones(samples)
                    )
                    measures[f"{name}{suffix}_chance"] = chance
                for tail in (suffix, f"{suffix}_chance"):
                    measures[f"fass{tail}"] = np.mean([measures[name + tail] for name in CHANCE], 0)
            for measure, value in measures.items():
                if condition == "redraw" and "_" in measure:
                    continue
                scores = np.where(status == "ok", value, np.nan)
                blocks.append((explainer, measure, condition, level, scores, status))
    columns = dict(
        zip(
            ("explainer", "measure", "condition", "level", "value", "status"),
            zip(*blocks, strict=True),
            strict=True,
        )
    )
    frame = pd.DataFrame(
        {name: np.repeat(columns[name], samples) for name in ("explainer", "measure", "condition")}
    )
    frame["level"] = np.repeat(np.array(columns["level"], dtype=float), samples)
    frame["value"], frame["status"] = (
        np.concatenate(columns["value"]),
        np.concatenate(columns["status"]),
    )
    frame["sample"] = [f"img/{i:04d}.jpg" for i in range(samples)] * len(blocks)
    frame["dataset"], frame["model"], frame["evaluation"] = dataset, model, "stability"
    frame["low"] = frame["high"] = np.nan
    frame["role"] = np.where(frame["explainer"].isin(CONTROLS), "control", "method")
    frame["reason"] = frame["status"].map(
        {"ok": "", "flipped": "prediction changed", "undefined": "constant map"}
    )
    return frame


def rows_of(
    entries: Iterable[Entry], evaluation: str = "faithfulness", model: str = "net", repeat: int = 0
) -> pd.DataFrame:
    """Rows from (explainer, measure, condition, level, values); a missing value is undefined.

    A removal's condition is its imputer, with the order after it where there is one.
    """
    blocks = []
    for explainer, measure, condition, level, values in entries:
        frame = pd.DataFrame({"value": np.asarray(values, dtype=float)})
        frame["sample"] = [f"s{i:02d}" for i in range(len(frame))]
        frame["explainer"], frame["measure"], frame["condition"], frame["level"] = (
            explainer,
            measure,
            condition,
            level,
        )
        frame["share"] = (
            float(condition.removeprefix("λ=")) if condition.startswith("λ=") else np.nan
        )
        imputer, *order = condition.rsplit(" ", 1) if evaluation in REMOVING else [""]
        frame["imputer"], frame["order"] = imputer, "".join(order)
        frame["status"] = np.where(frame.value.isna(), "undefined", "ok")
        frame["reason"] = np.where(frame.value.isna(), "constant map", "")
        blocks.append(frame)
    rows = pd.concat(blocks, ignore_index=True)
    rows["role"] = np.where(rows["explainer"].isin(CONTROLS), "control", "method")
    about = {"dataset": "photos", "model": model, "evaluation": evaluation, "repeat": repeat}
    return rows.assign(**about, low=np.nan, high=np.nan)


def samples(
    n: int = 40, unreadable: int = 1, dataset: str = "photos", model: str = "mobilenet"
) -> pd.DataFrame:
    """What the run knows of every sample; the last ones could not be read."""
    total = n + unreadable
    frame = pd.DataFrame({"sample": [f"img/{i:04d}.jpg" for i in range(total)]})
    frame["dataset"], frame["model"] = dataset, model
    readable = np.arange(total) < n
    frame["label"] = pd.array([i % 3 if i % 4 else -1 for i in range(total)], dtype="Int64")
    frame["predicted"] = pd.array(
        [i % 3 if ok else None for i, ok in enumerate(readable)], dtype="Int64"
    )
    frame["predicted_name"] = [
        ("tabby cat", "airliner", "teapot")[i % 3] if ok else "" for i, ok in enumerate(readable)
    ]
    frame["readout"] = np.where(readable, 4.0, np.nan)
    frame["probability"] = np.where(readable, 0.9 - 0.01 * (np.arange(total) % 50), np.nan)
    frame["error"] = ["" if ok else "cannot identify image file" for ok in readable]
    frame["transient"], frame["digest"] = False, ""
    return frame


def exhibits(
    shown: int = 3,
    explainers: tuple[str, ...] = tuple(QUALITY),
    conditions: tuple[tuple[str, float], ...] = CONDITIONS,
    side: int = 64,
    dataset: str = "photos",
    model: str = "mobilenet",
    flipped: bool = True,
) -> list[Shown]:
    """Pictures and maps; the second sample flips under the first condition."""
    generator = np.random.default_rng(1)
    found: list[dict[str, Any]] = []
    for i in range(shown):
        y, x = np.mgrid[:side, :side] / side
        scene = np.stack([x, y, 0.5 + 0.5 * np.sin(9 * x + i)], -1)
        blob = np.exp(-((x - 0.3 - 0.1 * i) ** 2 + (y - 0.5) ** 2) / 0.03)
        image = (255 * np.clip(0.6 * scene + 0.5 * blob[..., None], 0, 1)).astype(np.uint8)
        base = {"dataset": dataset, "model": model, "sample": f"img/{i:04d}.jpg"}
        first = {
            "evaluation": "inputs",
            "explainer": "",
            "condition": "clean",
            "level": 0.0,
            "image": image,
        }
        found.append({**base, **first, "map": None})
        for e, explainer in enumerate(explainers):
            for condition, level in (("clean", 0.0), *conditions):
                noise = generator.normal(0, 0.4, (side, side))
                attribution = (blob if e == 0 else blob + noise).astype(np.float16)
                gone = flipped and i == 1 and (condition, level) == conditions[0]
                picture = (
                    image
                    if condition == "clean"
                    else np.clip(image * 0.8 + 20, 0, 255).astype(np.uint8)
                )
                entry = {
                    "explainer": explainer,
                    "condition": condition,
                    "level": level,
                    "image": picture,
                }
                found.append(
                    {
                        **base,
                        **entry,
                        "evaluation": "stability",
                        "map": None if gone else attribution,
                    }
                )
    return [Shown(**entry) for entry in found]


def manifest(**study: Any) -> dict[str, Any]:
    """A manifest as a run directory holds it."""
    explainers: dict[str, Any] = {label: {} for label in QUALITY}
    explainers["integrated_gradients(steps=16)"] = {"steps": 16}
    return {
        "heatproof": "0.1.0",
        "created": "2026-11-15T19:40:00+00:00",
        "command": "heatproof run study.yaml --out runs/photos --limit 40",
        "study": {
            "seed": 0,
            "limit": 40,
            "models": {
                "mobilenet": {"fingerprint": "sha256:8c1f0e6a2b7d4455", "untrained_head": None}
            },
            "datasets": {"photos": {"fingerprint": "sha256:0f3e9d8c7b6a", "samples": 41}},
            "explainers": explainers,
            "evaluations": {"stability": {"perturbations": "fass-paper", "ties": "average"}},
            **study,
        },
        "versions": {"python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6"},
        "durations": {"predict": 1.25, "explain": 61.0},
    }


def judged_of(
    rows: pd.DataFrame, exhibits: Iterable[Shown] = (), about: dict[str, Any] | None = None
) -> AxisResult:
    """The one evaluation of the one dataset and model that a table has."""
    seen = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    known = samples(
        rows["sample"].nunique(),
        unreadable=0,
        dataset=seen["dataset"].iloc[0],
        model=seen["model"].iloc[0],
    )
    (judged,) = axis_results(rows, known, list(exhibits), about or {})
    return judged


def frames_of(rows: pd.DataFrame) -> Frames:
    """The stability frames of a table."""
    made = frames(judged_of(rows))
    assert made is not None
    return made

"""Made-up runs with known truths, for the tests of the statistics and of the report."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import pandas as pd

from heatproof.evaluation import GalleryItem
from heatproof.results.axis_result import AxisResult
from heatproof.runs.manifest import FORMAT, Manifest
from heatproof.runs.results import axis_results
from heatproof.runs.tables import SCORES
from support.manifests import manifest_of

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
CHANCE = {"ssim": 0.6, "spearman": 0.5, "jaccard": 0.25}
Entry = tuple[Any, ...]


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
    """Scores whose expected calibrated value is `quality`, 0.1 less where they are compared unaligned."""
    generator = np.random.default_rng(seed)
    flipped = {key: generator.random(samples) < flip for key in conditions}
    blocks = []

    def add(explainer: str, measure: str, where: tuple[str, float], value, chance, status) -> None:
        is_ok = status == "ok"
        block = pd.DataFrame({"sample": [f"img/{i:04d}.jpg" for i in range(samples)]})
        block["value"], block["chance"] = (
            np.where(is_ok, value, np.nan),
            np.where(is_ok, chance, np.nan),
        )
        blocks.append(
            block.assign(
                explainer=explainer,
                measure=measure,
                condition=where[0],
                level=where[1],
                status=status,
            )
        )

    for explainer, truth in (QUALITY if quality is None else quality).items():
        broken = generator.random((len(conditions), samples)) < undefined
        for index, where in enumerate(conditions):
            status = np.full(samples, "ok", dtype=object)
            status[broken[index]] = "undefined"
            status[flipped[where]] = "flipped"
            moves = where[0] in GEOMETRIC
            for ending, bonus in (("_unaligned", 0.0), ("", 0.1)) if moves else (("", 0.0),):
                values, chances = _components(generator, truth, bonus, samples)
                for name in values:
                    add(explainer, name + ending, where, values[name], chances[name], status)
        if explainer in stochastic:
            values, _ = _components(generator, truth, 0.5, samples)
            ok = np.full(samples, "ok", dtype=object)
            for name, value in values.items():
                floor = "noise_floor" if name == "fass" else f"noise_floor_{name}"
                add(explainer, floor, ("redraw", 0.0), value, np.nan, ok)
    frame = pd.concat(blocks, ignore_index=True)
    frame["dataset"], frame["model"], frame["evaluation"] = dataset, model, "stability"
    frame["low"] = frame["high"] = np.nan
    frame["role"] = np.where(frame["explainer"].isin(CONTROLS), "control", "method")
    frame["reason"] = frame["status"].map(
        {"ok": "", "flipped": "prediction changed", "undefined": "constant map"}
    )
    return frame


def _components(
    generator: np.random.Generator, truth: float, bonus: float, samples: int
) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    """Values and chance levels of the components of FASS and of FASS itself."""
    values, chances = {}, {}
    for name, base in CHANCE.items():
        chance = np.clip(base + generator.normal(0, 0.02, samples), 0, 1)
        goal = min(truth + bonus, 1) if truth else 0.0
        value = chance + (1 - chance) * goal + generator.normal(0, 0.06, samples)
        values[name] = np.clip(value, 0, 1) if truth < 1 else np.ones(samples)
        chances[name] = chance
    values["fass"] = np.mean([values[name] for name in CHANCE], 0)
    chances["fass"] = np.mean([chances[name] for name in CHANCE], 0)
    return values, chances


def rows_of(
    entries: Iterable[Entry], evaluation: str = "faithfulness", model: str = "net", repeat: int = 0
) -> pd.DataFrame:
    """Rows from (explainer, measure, condition, level, values[, chances]); a missing value is undefined.

    A removal's condition is its imputer, with the order after it where there is one.
    """
    blocks = []
    for explainer, measure, condition, level, values, *chances in entries:
        frame = pd.DataFrame({"value": np.asarray(values, dtype=float)})
        frame["chance"] = np.asarray(chances[0], dtype=float) if chances else np.nan
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


def stored(rows: pd.DataFrame) -> pd.DataFrame:
    """The rows with every column that a part of a run holds, in order."""
    numbers = {"share": np.nan, "repeat": 0, "chance": np.nan, "low": np.nan, "high": np.nan}
    missing = [name for name in SCORES.names if name not in rows]
    filled = rows.assign(**{name: numbers.get(name, "") for name in missing})
    return filled.assign(repeat=filled["repeat"].fillna(0))[SCORES.names]


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


def gallery(
    shown: int = 3,
    explainers: tuple[str, ...] = tuple(QUALITY),
    conditions: tuple[tuple[str, float], ...] = CONDITIONS,
    side: int = 64,
    dataset: str = "photos",
    model: str = "mobilenet",
    flipped: bool = True,
) -> list[GalleryItem]:
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
    return [GalleryItem(**entry) for entry in found]


def manifest(**study: Any) -> Manifest:
    """The manifest of a small study of photos."""
    explainers: dict[str, Any] = {label: {} for label in QUALITY}
    explainers["integrated_gradients(steps=16)"] = {"steps": 16}
    whole: dict[str, Any] = {
        "models": {"mobilenet": {"fingerprint": "sha256:8c1f0e6a2b7d4455", "untrained_head": None}},
        "datasets": {"photos": {"fingerprint": "sha256:0f3e9d8c7b6a", "samples": 41}},
        "explainers": explainers,
        "evaluations": {"stability": {"perturbations": "fass-paper", "ties": "average"}},
        **study,
    }
    return manifest_of(
        whole,
        format=FORMAT,
        heatproof="0.1.0",
        created="2026-11-15T19:40:00+00:00",
        command="heatproof run study.yaml --out runs/photos --limit 40",
        versions={"python": "3.11.7", "torch": "2.13.0", "numpy": "2.4.6"},
    )


def judged_of(
    rows: pd.DataFrame, gallery: Iterable[GalleryItem] = (), about: Manifest | None = None
) -> AxisResult:
    """The one evaluation of the one dataset and model that a table has."""
    seen = rows.drop_duplicates("sample")[["dataset", "model", "sample"]].assign(error="")
    known = samples(
        rows["sample"].nunique(),
        unreadable=0,
        dataset=seen["dataset"].iloc[0],
        model=seen["model"].iloc[0],
    )
    (judged,) = axis_results(rows, known, list(gallery), about or manifest_of())
    return judged

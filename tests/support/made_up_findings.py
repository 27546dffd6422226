"""Made-up tables that give rules of the findings something to find; `runs_with_findings.py` has real runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from heatproof.runs.manifest import Manifest
from support import synthetic
from support.manifests import manifest_of
from support.synthetic import Entry, rows_of

SHORT = (("rotation", 15.0), ("jpeg", 40.0))
JPEG = (("jpeg", 40.0),)
N = 40


def study(explainers: dict[str, Any] | None = None, **evaluations: Any) -> Manifest:
    settings = {name: {"name": name, **given} for name, given in evaluations.items()}
    return manifest_of({"explainers": explainers or {}, "evaluations": settings})


def noisy(centre: float, width: float, seed: int = 0, n: int = N) -> np.ndarray:
    draws = np.random.default_rng(seed).normal(0, width, n)
    return centre + draws - draws.mean()


def held(quality: dict[str, float], n: int = N, **options: Any) -> pd.DataFrame:
    settings = {"conditions": SHORT, "flip": 0.0, "undefined": 0.0, "stochastic": (), **options}
    return synthetic.table(quality, samples=n, model="net", **settings)


def symmetric(
    value: float, model: float, measure: str = "equivariance", repaired: float | None = None
) -> pd.DataFrame:
    entries: list[Entry] = [
        ("m", measure, "dihedral", 8.0, noisy(value, 0.001), np.zeros(N)),
        ("m", "model_invariance", "dihedral", 8.0, np.minimum(noisy(model, 1e-5), 1)),
    ]
    if repaired is not None:
        entries += [("m", "symmetrised", "symmetrised", 4.0, np.full(N, repaired))]
    rows = rows_of(entries, "symmetry")
    rows["low"] = rows["high"] = rows["value"]
    return rows


D4 = {"group": {"name": "dihedral", "n": 4}, "elements": 8}


def certified(rate: dict[str, float], gap: float = 0.25) -> pd.DataFrame:
    entries: list[Entry] = []
    for e, (name, value) in enumerate(rate.items()):
        for r in (1.0, 5.0):
            values = noisy(value - 0.02 * r, 0.05, e)
            entries += [
                (name, "rate", "radius", r, values),
                (name, "certified", "radius", r, values - gap),
            ]
    return rows_of(entries, "certificate")


def faithful(
    road: dict[str, float], imputers: tuple[str, ...] = ("noisy_linear",), flip: str = ""
) -> pd.DataFrame:
    """Curves that fall and stay by the road of a method; with the imputer `flip` the orders rank methods backwards."""
    entries: list[Entry] = []
    for imputer in imputers:
        for e, (name, value) in enumerate(road.items()):
            turn = -1 if imputer == flip else 1
            entries += [(name, "road", imputer, 0.0, noisy(value, 0.05, e), np.zeros(N))]
            entries += [(name, "probability", f"{imputer} morf", 0.5, noisy(0.5 - value, 0.01, e))]
            entries += [
                (
                    name,
                    "probability",
                    f"{imputer} lerf",
                    0.5,
                    noisy(0.5 + turn * value, 0.01, e + 9),
                )
            ]
    return rows_of(entries)


def leak(right: int, pixels: float) -> pd.DataFrame:
    entries: list[Entry] = [("a", "prior", "zero morf", 0.5, np.arange(N) % 2)]
    for probe in ("mask", "imputed", "both"):
        entries += [("a", f"{probe}_hit", "zero morf", 0.5, np.arange(N) < right)]
        entries += [("a", f"{probe}_log2", "zero morf", 0.5, np.full(N, -0.2))]
    return rows_of([*entries, ("a", "pixels", "zero morf", 0.5, np.full(N, pixels))], "leakage")


def of_references(apart: float, references: int) -> tuple[pd.DataFrame, Manifest, pd.DataFrame]:
    """Table, manifest and side table of references that differ by `apart` and more in the chance they give."""
    table = held({"a": 0.5, "b": 0.3}, n=40)
    names = [f"img/{i:04d}.jpg" for i in range(references)]
    above = pd.DataFrame({"reference": names, "sum": apart * np.linspace(-40, 40, references)})
    key = ["dataset", "model", "evaluation", "explainer", "measure", "condition", "level"]
    cells = table.loc[table["measure"] == "fass", key].drop_duplicates()
    manifest = manifest_of(
        {"datasets": {"photos": {"references": names}}, "evaluations": {"stability": {}}}
    )
    return table, manifest, cells.merge(above.assign(count=40, repeat=0), how="cross")


@dataclass(frozen=True)
class Case:
    """What the findings of a run are made from."""

    table: pd.DataFrame
    manifest: Manifest = field(default_factory=manifest_of)
    samples: pd.DataFrame = field(
        default_factory=lambda: pd.DataFrame(columns=["dataset", "model", "sample", "error"])
    )
    references: pd.DataFrame | None = None
    missing: tuple[str, ...] = ()


def _about_model(**facts: str) -> Case:
    return Case(held({"a": 0.5}), manifest_of({"models": {"net": facts}}))


def _failing(component: str) -> Case:
    """One component of FASS is low where the others are not."""
    table = held({"a": 0.7, "b": 0.7}, conditions=JPEG)
    own = (table["explainer"] == "a") & (table["measure"] == component)
    chance = synthetic.CHANCE[component]
    table.loc[own, "value"] = chance + (1 - chance) * noisy(0.2, 0.05)
    return Case(table, study(stability={}))


def _near_chance_under_jpeg() -> Case:
    table = held({"a": 0.5, "b": 0.5})
    own = (table["explainer"] == "b") & (table["condition"] == "jpeg")
    for measure in ("ssim", "spearman", "jaccard", "fass"):
        rows = own & (table["measure"] == measure)
        table.loc[rows, "value"] = table.loc[rows, "chance"] + noisy(0.0, 0.005)
    return Case(table)


def _wide_at_chance() -> Case:
    table = held({"good": 0.6, "b": 0.05}, n=15)
    own = table["explainer"] == "b"
    table.loc[own, "value"] += np.tile(np.linspace(-0.4, 0.4, 15), int(own.sum()) // 15)
    return Case(table)


def _undefined_under_jpeg() -> Case:
    table = held({"a": 0.5, "b": 0.3})
    lost = (table["explainer"] == "b") & (table["condition"] == "jpeg")
    table.loc[lost, ["value", "status"]] = [np.nan, "undefined"]
    return Case(table)


def _noisy_draws() -> Case:
    table = held({"lime": 0.4, "b": 0.5}, conditions=JPEG, stochastic=("lime",))
    redraw = table["condition"] == "redraw"
    table.loc[redraw, "value"] = np.tile(noisy(0.75, 0.02), int(redraw.sum()) // N)
    return Case(table, study({"lime": {"name": "lime", "samples": 32}}))


def _identical() -> Case:
    table = held({"a": 0.5, "b": 0.5})
    table.loc[(table["explainer"] == "a") & (table["measure"] == "fass"), "value"] = 1.0
    return Case(table)


def _without_score() -> Case:
    rows = faithful({"a": 0.2, "b": 0.3})
    rows[["value", "status"]] = [np.nan, "undefined"]
    return Case(rows, study(faithfulness={}))


def _dependent(value: Any, measure: str = "dependence", floor: Any = None) -> Case:
    """A method with these scores under three networks, and maybe with the change between two draws."""
    conditions = {"dependence": "weights", "class_dependence": "class"}
    entries: list[Entry] = [("m", "dependence", "weights", 0.0, noisy(0.6, 0.02))]
    if measure == "dependence":
        entries = []
    entries.append(("m", measure, conditions[measure], 0.0, value))
    if floor is not None:
        entries.append(("m", "noise_floor", "redraw", 0.0, floor))
    networks = [rows_of(entries, "dependence", repeat=network) for network in range(3)]
    return Case(pd.concat(networks), study(dependence={}))


def _disagreeing() -> Case:
    pairs: list[Entry] = [
        (name, "spearman", other, 0.0, noisy(0.1, 0.02), np.zeros(N))
        for name, other in (("a", "b"), ("b", "a"))
    ]
    return Case(rows_of(pairs, "agreement"), study(agreement={}))


def _smoothed() -> Case:
    entries: list[Entry] = []
    for keep, right in ((0.25, 10), (0.5, 36), (1.0, 38)):
        where = f"λ={keep:g}"
        entries += [
            ("a", "correct", where, 0.0, np.arange(N) < right),
            ("a", "hard_radius", where, 0.0, np.zeros(N)),
            ("a", "certified", where, 2.0, np.full(N, 0.95)),
        ]
    return Case(rows_of(entries, "smoothing"), study(smoothing={"epsilon": 0.1}))


def _rough_elements() -> Case:
    rows = symmetric(0.6, 1.0)
    rows["low"], rows["high"] = rows["value"] - 0.2, rows["value"] + 0.2
    return Case(rows, study({"m": {}}, symmetry=D4))


def _symmetric_at_chance() -> Case:
    rows = symmetric(0.6, 1.0)
    rows.loc[rows["measure"] == "equivariance", "chance"] = 0.6
    return Case(rows, study({"m": {}}, symmetry=D4))


def _rankings() -> Case:
    road = {"a": 0.05, "b": 0.15, "c": 0.25, "d": 0.35}
    table = faithful(road, ("noisy_linear", "blur"), flip="blur")
    return Case(table, study(faithfulness={}))


def _detected() -> Case:
    seen: list[Entry] = [("good", "detectability", "zero random", 0.5, np.ones(60))]
    table = pd.concat([faithful({"good": 0.2, "better": 0.3}), rows_of(seen)])
    return Case(table, study(faithfulness={}))


def _trained_on_masks() -> Case:
    accuracy: list[Entry] = [("a", "accuracy", "zero morf", 0.5, np.arange(N) % 2)]
    run = faithful({"a": 0.2, "b": 0.3}, ("noisy_linear", "zero"))
    return Case(pd.concat([run, rows_of(accuracy, "retraining")]), study(faithfulness={}))


def _leaking() -> Case:
    run = faithful({"a": 0.2, "b": 0.3}, ("noisy_linear", "zero"))
    return Case(pd.concat([run, leak(40, 0.99)]), study(faithfulness={}))


def _squashed() -> Case:
    samples = synthetic.samples(N, unreadable=0, model="net")
    return Case(held({"a": 0.5}), samples=samples.assign(readout=np.linspace(0.2, 0.9, N)))


def _sorted_by_class() -> Case:
    """All references, the first samples of the table, are predicted as one class."""
    table = held({"a": 0.5})
    samples = synthetic.samples(N, unreadable=0, model="net")
    references = list(samples["sample"][:9])
    predicted = ["cat" if sample in references else "dog" for sample in samples["sample"]]
    datasets = {table["dataset"].iloc[0]: {"references": references}}
    manifest = manifest_of({"datasets": datasets, "evaluations": {"stability": {}}})
    return Case(table, manifest, samples.assign(predicted_name=predicted))


def _unaligned() -> Case:
    table = held({"a": 0.6, "b": 0.5})
    return Case(table[~table["measure"].str.endswith("_unaligned")])


CERTIFICATE = study(certificate={"epsilon": 0.2, "fraction": 0.25, "mode": "estimate"})
FAITHFULNESS = study(faithfulness={})
GEOMETRIC = (("rotation", 15.0),)
TABLES: dict[str, Callable[[], Case]] = {
    "unfinished-run": lambda: Case(held({"a": 0.5}), missing=("parts/a",)),
    "untrained-model": lambda: _about_model(untrained_head="the bias is zero"),
    "missing-normalisation": lambda: _about_model(unnormalised="timm has one"),
    "too-few-samples": lambda: Case(held({"a": 0.5, "b": 0.4}, n=2)),
    "no-interval": lambda: Case(held({"a": 0.5, "b": 0.4}, n=2)),
    "no-score": _without_score,
    "near-chance": lambda: Case(held({"good": 0.6, "blind": 0.0})),
    "near-chance-under-change": _near_chance_under_jpeg,
    "not-above-chance": _wide_at_chance,
    "insufficient-features": lambda: Case(certified({"a": 0.3}), CERTIFICATE),
    "loose-bound": lambda: Case(certified({"a": 0.7}), CERTIFICATE),
    "not-above-random": lambda: Case(certified({"a": 0.7, "random": 0.7}), CERTIFICATE),
    "smoothing-cost": _smoothed,
    "soft-beyond-hard": _smoothed,
    "ignores-weights": lambda: _dependent(noisy(0.01, 0.002)),
    "dependence-unclear": lambda: _dependent(noisy(0.1, 0.1)),
    "ignores-class": lambda: _dependent(noisy(0.01, 0.002), "class_dependence"),
    "dependence-within-noise": lambda: _dependent(noisy(0.5, 0.02), floor=noisy(0.5, 0.02, 1)),
    "broken-symmetry": lambda: Case(
        symmetric(0.6, 0.9999), study({"m": {"name": "lime"}}, symmetry=D4)
    ),
    "model-not-invariant": lambda: Case(symmetric(0.6, 0.95), study({"m": {}}, symmetry=D4)),
    "interpolating-group": lambda: Case(
        symmetric(0.6, 0.95), study(symmetry={"group": {"name": "dihedral", "n": 8}})
    ),
    "few-elements": _rough_elements,
    "leaking-imputer": _leaking,
    "possible-leak": _trained_on_masks,
    "worse-than-random": lambda: Case(faithful({"good": 0.2, "bad": -0.1}), FAITHFULNESS),
    "orders-disagree": _rankings,
    "imputers-disagree": _rankings,
    "unrealistic-inputs": _detected,
    "probability-outputs": _squashed,
    "single-class-references": _sorted_by_class,
    "unreadable-files": lambda: Case(
        held({"a": 0.5}), samples=synthetic.samples(N, unreadable=2, model="net")
    ),
    "control-not-beaten": lambda: Case(held({"a": 0.9, "b": 0.3, "sobel": 0.7})),
    "dominated-method": lambda: Case(
        pd.concat([held({"a": 0.7, "b": 0.3}), faithful({"a": 0.4, "b": 0.1})]),
        study(stability={}, faithfulness={}),
    ),
    "tied-methods": lambda: Case(held({"a": 0.5, "b": 0.5})),
    "spatial-failure": lambda: _failing("ssim"),
    "ordinal-failure": lambda: _failing("spearman"),
    "salient-failure": lambda: _failing("jaccard"),
    "missing-conditions": _undefined_under_jpeg,
    "few-pairs": _undefined_under_jpeg,
    "noisy-draws": _noisy_draws,
    "low-retention": lambda: Case(held({"a": 0.6}, conditions=GEOMETRIC, n=60, flip=0.9)),
    "methods-disagree": _disagreeing,
    "identical-scores": _identical,
}
"""Rules that speak of models, data or scores of a special kind, which are simplest to make up."""

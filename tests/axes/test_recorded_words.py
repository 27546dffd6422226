"""What every axis says of made-up results, word for word: findings, sentences, panels, figures and tables."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest

from heatproof.axes import BY_NAME, judge
from heatproof.axes.contract import Judged
from heatproof.axes.faithfulness import checks, consistency, figures, findings
from support import synthetic
from support.faithfulness import leaking, made_up
from support.recorded import recorded
from support.synthetic import Entry, rows_of
from support.told import figures as figures_in
from support.told import found, lead, parts

N = 9


@pytest.fixture(autouse=True, scope="module")
def few_draws() -> Iterator[None]:
    """The intervals of rank correlations are tested elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (checks, figures, findings):
            patch.setattr(module, "consistency", partial(consistency.consistency, resamples=100))
        yield


def judged(
    rows: pd.DataFrame, settings: Any = None, tasks: Any = None, **explainers: Any
) -> list[Judged]:
    samples = rows.drop_duplicates(["dataset", "model", "sample"])[["dataset", "model", "sample"]]
    samples = samples.assign(error="", predicted_name="cat", probability=0.9)
    named = rows["evaluation"].unique()
    study: dict[str, Any] = {
        "explainers": explainers,
        "evaluations": {name: settings or {} for name in named},
    }
    study |= {"tasks": {"photos": {"net": tasks}}} if tasks else {}
    return judge(rows, samples, [], {"study": study})


def said(one: Judged) -> dict[str, Any]:
    return {"lead": lead(one), "findings": found(one), "parts": parts(one)}


def near(centre: float, width: float = 0.03, n: int = N, seed: int = 0) -> np.ndarray:
    return centre + np.random.default_rng(seed).normal(0, width, n)


def symmetry(
    methods: dict[str, float],
    model: float,
    measure: str = "equivariance",
    half: float = 0.0,
    **more: Any,
) -> pd.DataFrame:
    n, group = more.get("n", N), more.get("group", "dihedral")
    entries: list[Entry] = []
    for i, (name, score) in enumerate(methods.items()):
        values = np.minimum(near(score, more.get("width", 0.01), n, i), 1.0)
        entries += [
            (name, measure, group, 8.0, values),
            (name, f"{measure}_chance", group, 8.0, near(0.2, n=n, seed=9)),
        ]
        entries += [
            (name, "model_invariance", group, 8.0, np.minimum(near(model, 0.0001, n, 5), 1.0))
        ]
        entries += [(name, "model_agreement", group, 8.0, np.full(n, model))]
        entries += [(name, "model_change", group, 8.0, np.abs(near(1 - model, 0.0001, n, 6)))]
    frame = rows_of([*entries, *more.get("extra", ())], "symmetry")
    bounded = frame["measure"].eq(measure) & frame["condition"].eq(group)
    frame["low"] = np.where(bounded, frame["value"] - half, np.nan)
    frame["high"] = np.where(bounded, frame["value"] + half, np.nan)
    return frame


D4 = {
    "name": "symmetry",
    "group": {"name": "dihedral", "n": 4},
    "elements": 8,
    "delta": 0.1,
    "layers": ["pool", "conv"],
}
BESIDE: list[Entry] = [
    ("ig", "equivariance", "symmetrised", 2.0, near(0.9, n=N)),
    ("ig", "equivariance", "symmetrised", 8.0, near(0.995, 0.001, n=N)),
    ("lime", "equivariance", "redraw", 0.0, near(0.4, 0.01, n=N)),
    ("ig", "equivariance", "convergence", 1.0, near(0.6, n=N)),
    ("ig", "equivariance", "convergence", 4.0, near(0.65, n=N)),
    ("ig", "max_sensitivity", "sensitivity", 0.02, np.abs(near(0.3, 0.1, n=N))),
    ("lime", "max_sensitivity", "sensitivity", 0.02, np.abs(near(0.5, 0.1, n=N, seed=3))),
    ("ig", "layer_invariance_error", "conv", 8.0, np.full(N, 0.8)),
    ("ig", "layer_equivariance_error", "conv", 8.0, np.full(N, 1e-5)),
    ("ig", "layer_invariance_error", "pool", 8.0, np.r_[np.full(N - 1, 1e-5), np.nan]),
]
ONE_LOST = np.r_[np.full(N - 2, 0.7), np.nan, np.nan]
SYMMETRY: dict[str, Any] = {
    "broken": (
        symmetry({"ig": 0.7, "lime": 0.6, "keeps": 0.995, "sobel": 0.999}, 1.0, extra=BESIDE),
        D4,
        {},
    ),
    "loose": (symmetry({"ig": 0.7, "lime": 0.5}, 0.8), {**D4, "elements": 3}, {}),
    "chance": (
        symmetry({"ig": 0.2, "lime": 0.205, "random": 0.3}, 1.0, half=0.1, width=0.1),
        D4,
        {},
    ),
    "examples": (
        symmetry(
            {"simplex": 0.8, "influence": 0.7, "cav": 0.6}, 1.0, "invariance", extra=BESIDE[-3:]
        ),
        D4,
        {
            "simplex": {"name": "simplex", "layer": "pool"},
            "influence": {"name": "influence"},
            "cav": {"name": "cav"},
        },
    ),
    "own": (
        symmetry({"ig": 0.7}, 1.0, group="own", n=5),
        {"group": {"name": "own", "title": "swaps"}},
        {},
    ),
    "turned": (
        symmetry(
            {"ig": 0.7, "lime": 0.9},
            1.0,
            group="so2",
            extra=[("ig", "equivariance", "there_and_back", 8.0, near(0.69))],
        ),
        {"group": {"name": "so2"}},
        {},
    ),
    "lost": (
        symmetry({"ig": 0.9}, 1.0, extra=[("lime", "equivariance", "dihedral", 8.0, ONE_LOST)]),
        D4,
        {},
    ),
}


@pytest.mark.parametrize("case", SYMMETRY)
def test_symmetry(case: str) -> None:
    rows, settings, explainers = SYMMETRY[case]
    (one,) = judged(rows, settings, **explainers)
    recorded(f"words/symmetry_{case}", {**said(one), "figures": figures_in([one])})


def stable(n: int = N, **options: Any) -> pd.DataFrame:
    given = {
        "quality": {"saliency": 0.5, "lime": 0.3, "sobel": 0.4, "random": 0.0},
        "samples": n,
        "model": "net",
    }
    conditions = (("rotation", 15.0), ("jpeg", 40.0))
    return synthetic.table(
        **{**given, "conditions": conditions, "flip": 0.1, "undefined": 0.0, **options}
    )  # type: ignore[arg-type]


def with_one_failing(component: str) -> pd.DataFrame:
    """Maps that hold but for one component."""
    rows = stable(n=14, flip=0.0, quality={"integrated": 0.9, "lime": 0.85})
    bad = rows["measure"].str.startswith(component) & ~rows["measure"].str.endswith("_chance")
    level = {"ssim": 0.6, "spearman": 0.5, "jaccard": 0.02}[component]
    rows.loc[bad, "value"] = level + 0.1 * (1 - level) * rows.loc[bad, "value"]
    return rows


STABILITY: dict[str, Any] = {
    "plain": (stable(), {"k": 50}, {"lime": {"name": "lime", "samples": 40}}),
    "lost": (
        stable(quality={"saliency": 0.0, "lime": 0.03, "good": 0.7}, flip=0.6, undefined=0.3),
        {},
        {},
    ),
    "alone": (stable(n=5, quality={"lime": 0.5}), {}, {}),
    "controls": (stable(quality={"sobel": 0.5, "random": 0.0}, undefined=0.2), {}, {}),
    "many": (
        stable(
            quality={"saliency": 0.01, "lime": 0.0, "grad": -0.2, "deep": -0.3},
            conditions=(("rotation", 15.0), ("jpeg", 40.0), ("brightness", 1.5), ("noise", 0.1)),
        ),
        {},
        {},
    ),
    "tied": (stable(quality={"a": 0.5, "b": 0.5, "c": 0.49, "d": 0.5, "e": 0.5}), {}, {}),
    "ssim": (
        with_one_failing("ssim"),
        {},
        {"lime": {"name": "lime"}, "integrated": {"name": "saliency"}},
    ),
    "spearman": (
        with_one_failing("spearman"),
        {},
        {"integrated": {"name": "integrated_gradients", "steps": 8}},
    ),
    "jaccard": (with_one_failing("jaccard"), {"k": 0.05}, {}),
}


@pytest.mark.parametrize("case", STABILITY)
def test_stability(case: str) -> None:
    rows, settings, explainers = STABILITY[case]
    (one,) = judged(rows, settings, **explainers)
    recorded(f"words/stability_{case}", said(one))


def test_figures_of_stability() -> None:
    rows = stable(n=8, quality={"a": 0.6, "sobel": 0.4})
    recorded("words/stability_figures", figures_in(judged(rows)))
    other = [
        rows.assign(dataset=d, model=m)
        for d, m in (("photos", "net"), ("photos", "deep"), ("faces", "net"))
    ]
    other[1] = other[1][other[1]["condition"] == "jpeg"]
    item = figures_in(judged(pd.concat(other)))
    recorded(
        "words/stability_figures_of_many",
        {"retention": item["stability-retention"], "map": item["stability-map"]},
    )
    recorded("words/stability_figures_of_none", figures_in([], BY_NAME["stability"]))


FAITHFUL: dict[str, Any] = {
    "plain": (made_up(n=8), {}, None),
    "lost": (made_up(n=6, lost="lime"), {}, None),
    "worse": (
        made_up({"lime": -0.4, "saliency": 0.01, "sobel": 0.6}, n=8),
        {"readout": "logit"},
        {"modality": "series"},
    ),
    "alone": (made_up({"lime": 0.4}, ("zero",), n=3), {}, None),
    "controls": (made_up({"sobel": 0.4, "random": 0.0}, ("zero",), n=8), {}, None),
}


def turned() -> pd.DataFrame:
    """Two imputers under which the methods come in opposite orders."""
    one = made_up({"lime": 0.6, "saliency": 0.3, "grad": 0.1}, ("noisy_linear",), n=8)
    other = made_up({"lime": 0.1, "saliency": 0.3, "grad": 0.9}, ("zero",), n=8)
    return pd.concat(
        [one[~one["measure"].isin(["infidelity", "sensitivity_n"])], other], ignore_index=True
    )


FAITHFUL["turned"] = (turned(), {}, None)


@pytest.mark.parametrize("case", FAITHFUL)
def test_faithfulness(case: str) -> None:
    rows, settings, tasks = FAITHFUL[case]
    (one,) = judged(rows, settings, tasks)
    drawn = {"parts": parts(one)} if case in ("plain", "alone") else {}
    recorded(f"words/faithfulness_{case}", {"lead": lead(one), "findings": found(one), **drawn})


def retrained(repeats: int = 2) -> pd.DataFrame:
    g, blocks = np.random.default_rng(1), []
    for repeat in range(repeats):
        entries: list[Entry] = [
            (
                e,
                "accuracy",
                f"{imputer} {order}",
                f,
                (g.random(12) < (0.4 if order == "morf" else 0.8)).astype(float),
            )
            for e in ("grad_cam", "saliency", "lime")
            for imputer in ("zero", "noisy_linear")
            for order in ("morf", "lerf")
            for f in (0.1, 0.5)
        ]
        blocks.append(rows_of(entries, "retraining", repeat=repeat))
    return pd.concat(blocks, ignore_index=True)


def test_retraining_and_leaks() -> None:
    every = judged(pd.concat([made_up(n=8), leaking(), retrained()], ignore_index=True))
    recorded(
        "words/faithfulness_leaking",
        {one.label: {"lead": lead(one), "findings": found(one)} for one in every},
    )
    recorded("words/faithfulness_figures", figures_in(every, BY_NAME["faithfulness"]))
    apart = judged(pd.concat([leaking(0.55), retrained(1)], ignore_index=True))
    recorded("words/retraining_apart", {one.label: said(one) for one in apart})
    figures_of = BY_NAME["faithfulness"]
    recorded(
        "words/retraining_figures", [figures_in(apart, figures_of), figures_in([], figures_of)]
    )
    may = judged(pd.concat([made_up(n=4), retrained(1)], ignore_index=True))
    recorded("words/faithfulness_may_leak", [found(one) for one in may])


def certificates(
    rates: dict[str, float], n: int = 8, measure: str = "rate", draws: float = 20.0
) -> pd.DataFrame:
    entries: list[Entry] = []
    for i, (name, rate) in enumerate(rates.items()):
        entries += [(name, "sufficient", "radius", 0.0, np.arange(n) < 6)]
        for radius in (1.0, 5.0):
            values = np.clip(near(rate - 0.04 * radius, 0.05, n, i), 0, 1)
            kept = values if measure == "rate" else np.where(values > 0.9, np.nan, values > 0.5)
            entries += [
                (name, measure, "radius", radius, kept),
                (name, "early", "radius", radius, values),
            ]
            entries += [(name, "certified", "radius", radius, np.maximum(values - 0.1, 0))]
            entries += [(name, "early_draws", "radius", radius, np.full(n, draws))]
            entries += [(name, "passes", "radius", radius, np.full(n, 30 + i))]
    return rows_of(entries, "certificate")


CERTIFICATE: dict[str, Any] = {
    "plain": (
        certificates({"a": 0.9, "b": 0.7, "random": 0.6}),
        {"delta": 0.05},
        {"random": {"name": "random"}},
    ),
    "fragile": (
        certificates({"a": 0.4, "b": 0.95, "random": 0.6}),
        {"fraction": [0.1, 0.3], "epsilon": 0.2},
        {},
    ),
    "loose": (certificates({"a": 0.6, "b": 0.65}), {"simultaneous": True, "anchor": "full"}, {}),
    "decided": (
        certificates({"a": 0.6, "b": 0.8}, measure="stable"),
        {"mode": "decide", "threshold": 0.7},
        {},
    ),
    "hard": (certificates({"a": 0.6}, measure="unflipped"), {"mode": "hard"}, {}),
    "controls": (certificates({"random": 0.6}, n=1), {}, {}),
}


@pytest.mark.parametrize("case", CERTIFICATE)
def test_certificate(case: str) -> None:
    rows, settings, explainers = CERTIFICATE[case]
    (one,) = judged(rows, settings, **explainers)
    recorded(f"words/certificate_{case}", {**said(one), "figures": figures_in([one])})


def smoothed(right: int, low: float, n: int = 24) -> pd.DataFrame:
    entries: list[Entry] = []
    for name in ("a", "b", "random"):
        for keep in (0.25, 0.5, 1.0):
            where, count = f"λ={keep:g}", n - 1 if keep == 1 else right
            entries += [(name, "correct", where, 0.0, np.r_[np.arange(n - 1) < count, np.nan])]
            hard = np.where(np.arange(n) < 3, 2.0, 0.0) if keep < 1 else np.zeros(n)
            entries += [
                (name, "hard_radius", where, 0.0, hard),
                (name, "hard_radius_lipschitz", where, 0.0, hard / 2),
            ]
            entries += [(name, "passes", where, 0.0, np.full(n, 4.0))]
            for radius in (1.0, 2.0):
                values = np.clip(near(low, 0.03, n), 0, 1)
                entries += [
                    (name, "rate", where, radius, values),
                    (name, "certified", where, radius, values - 0.02),
                ]
                entries += [(name, "passes", where, radius, np.full(n, 50.0))]
    return rows_of(entries, "smoothing")


@pytest.mark.parametrize(
    ("right", "low", "settings"),
    [(5, 0.95, {}), (28, 0.5, {"mode": "decide", "threshold": 0.4, "delta": 0.2})],
)
def test_smoothing(right: int, low: float, settings: Any) -> None:
    (one,) = judged(smoothed(right, low), settings)
    recorded(f"words/smoothing_{right}", {**said(one), "figures": figures_in([one])})


def test_dependence() -> None:
    entries: list[Entry] = []
    for i, (name, score) in enumerate(
        {"a": 0.9, "b": 0.3, "blind": 0.02, "sobel": 0.0, "weight_noise": 1.0}.items()
    ):
        values = (
            np.abs(near(score, 0.15 if name == "b" else 0.01, seed=i)) if score else np.zeros(N)
        )
        entries += [
            (name, "dependence", "weights", 0.0, values),
            (name, "class_dependence", "class", 0.0, values / 2),
        ]
        entries += [
            (name, measure, "weights", 0.0, 1 - values / 2) for measure in ("similarity", "ssim")
        ]
        entries += [
            (name, "gini", "clean", 0.0, near(0.5)),
            (name, "entropy", "clean", 0.0, near(0.8, seed=2)),
        ]
        entries += [(name, "dependence", "top_down", x, values * x) for x in (0.5, 1.0)]
        entries += [
            (name, "passes", "clean", 0.0, np.full(N, 3.0)),
            (name, "entropy_rise", "weights", 0.0, near(0.1)),
        ]
    (one,) = judged(rows_of(entries, "dependence"), {"draws": 1})
    recorded("words/dependence", said(one))


def test_localisation_and_agreement() -> None:
    entries: list[Entry] = []
    for i, (name, score) in enumerate({"a": 0.7, "b": 0.4, "random": 0.3}.items()):
        for measure in ("relevance_mass", "relevance_rank", "pointing", "region_auc", "energy"):
            entries += [
                (name, measure, "regions", 0.0, near(score, seed=i)),
                (name, f"{measure}_chance", "regions", 0.0, near(0.3)),
            ]
    (one,) = judged(rows_of(entries, "localisation"))
    recorded("words/localisation", said(one))
    entries = []
    for i, (a, b) in enumerate(
        (("a", "b"), ("a", "c"), ("b", "a"), ("b", "c"), ("c", "a"), ("c", "b"))
    ):
        for measure in ("spearman", "jaccard", "sign_agreement"):
            entries += [
                (a, measure, b, 0.0, near(0.4 + 0.1 * (i % 3))),
                (a, f"{measure}_chance", b, 0.0, near(0.3, seed=1)),
            ]
    (one,) = judged(rows_of(entries, "agreement"))
    recorded("words/agreement", said(one))

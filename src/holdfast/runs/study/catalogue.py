"""What can be named in a study file, with a line about each."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass
from typing import Any

from holdfast.axes import EVALUATIONS
from holdfast.axes.stability import perturbations
from holdfast.axes.stability.evaluation import MEASURES
from holdfast.axes.symmetry.groups import GROUPS
from holdfast.features import GROUPINGS
from holdfast.removal import CONTEXTUAL, IMPUTERS
from holdfast.runs.study.registry import ALL_EXPLAINERS
from holdfast.types import label_of

REGISTRIES: dict[str, dict[str, Any]] = {
    "explainers": ALL_EXPLAINERS,
    "evaluations": EVALUATIONS,
    "groups": GROUPS,
    "features": GROUPINGS,
    "imputers": {**IMPUTERS, **CONTEXTUAL},
}

MEASURE_TEXT = {
    "ssim": "structural similarity of the maps, each scaled to [0, 1]; 11 × 11 windows, of series 11 steps",
    "spearman": "rank correlation ρ of all values, as (ρ + 1) / 2",
    "jaccard": "overlap of the places with the k largest values",
    "fass": "weighted mean of the three; of tables, which have no ssim, of the other two",
}
AXIS_TEXT = {
    "rate": "certificate: share of the supersets within a radius on which the prediction stays, with bounds",
    "certified": "certificate: the guaranteed lower bound of the rate",
    "stable": "certificate, mode decide: whether the rate is at least the threshold",
    "unflipped": "certificate, mode hard: no draw changed the prediction, so the rate is at least 1 − ε",
    "passes": "certificate: model passes that it cost",
    "hard_radius": "smoothing: how many features can surely be added without changing the prediction",
    "hard_radius_bernoulli": "smoothing: the same by the tighter rule for Bernoulli masks",
    "correct": "smoothing: whether the smoothed model predicts the label",
    "equivariance": "symmetry: how a feature map moves with its input, 1 is exactly; with its chance level",
    "invariance": "symmetry: how little example or concept importances change, 1 is not at all",
    "model_invariance": "symmetry: cosine of the model's probabilities on moved inputs",
    "model_agreement": "symmetry: share of moved inputs with the same top class",
    "max_sensitivity": "symmetry: the largest relative change of the map in a small ball",
    "layer_invariance_error": "symmetry: how far a layer is from invariant; layer_equivariance_error likewise",
    "accuracy": "faithfulness: whether the top class stays when a fraction is removed; also probability, logit, margin",
    "road": "faithfulness: mean over fractions of (LeRF − MoRF) / 2; the higher the better",
    "deletion_auc": "faithfulness: area under the MoRF curve; the lower the better",
    "insertion_auc": "faithfulness: area under the LeRF curve read backwards; the higher the better",
    "pixel_flipping": "faithfulness: area under the MoRF curve of the logit; the lower the better",
    "aopc": "faithfulness: mean drop along the MoRF curve; the higher the better",
    "irof": "faithfulness: area over the curve when segments are removed; the higher the better",
    "infidelity": "faithfulness: squared error of the map as a linear forecast of removals; infidelity_scaled likewise",
    "sensitivity_n": "faithfulness: correlation of removed importance and drop over random masks of one size",
    "faithfulness_correlation": "faithfulness: the same over masks of all sizes",
}
SUFFIX_TEXT = {
    "_chance": "the same against maps of other samples",
    "_aligned": "for geometric perturbations: against the map moved with the input, on the places both have",
    "_aligned_chance": "the aligned score against maps of other samples",
}


def catalogue(what: str) -> list[tuple[str, str]]:
    """(name, description) pairs of the explainers, evaluations, perturbations, presets, measures and so on.

    >>> dict(catalogue("presets"))["fass-mild"]
    'rotation 5°, ...'
    """
    if what in REGISTRIES:
        return [(name, _summary(kind)) for name, kind in REGISTRIES[what].items()]
    if what == "perturbations":
        made_for = {
            **dict.fromkeys(perturbations.FOR_SERIES, "series, "),
            **dict.fromkeys(perturbations.FOR_TABLES, "table, "),
        }
        return [
            (name, f"{made_for.get(name, '')}{kind.family}; {_summary(kind)}")
            for name, kind in perturbations.KNOWN.items()
        ]
    if what == "presets":
        return [
            (name, ", ".join(perturbations.describe(p) for p in chosen))
            for name, chosen in perturbations.KNOWN_PRESETS.items()
        ]
    suffixes = [(f"*{suffix}", text) for suffix, text in SUFFIX_TEXT.items()]
    return [(name, MEASURE_TEXT[name]) for name in MEASURES] + suffixes + list(AXIS_TEXT.items())


def _summary(kind: Any) -> str:
    """The first line of the docstring, then the parameters with their defaults."""
    first = (inspect.getdoc(kind) or "").split("\n", 1)[0].rstrip(".")
    shown = []
    for f in fields(kind):
        if f.default is MISSING and f.default_factory is MISSING:
            shown.append(f.name)  # one that must be given
            continue
        value = f.default if f.default_factory is MISSING else f.default_factory()
        shown.append(f"{f.name}={_written(value)}")
    return f"{first} ({', '.join(shown)})" if shown else first


def _written(value: Any) -> str:
    """A default as a study would name it."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(_written, value))}]"
    return label_of(value) if is_dataclass(value) else str(value)

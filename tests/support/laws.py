"""Everything that is under the laws of the bench, with parameters that make it quick."""

from __future__ import annotations

from dataclasses import replace
from tempfile import mkdtemp
from typing import Any

import pandas as pd
import torch
from torch import nn

import heatproof
from heatproof import Batch, Model
from heatproof.axes import axis_of
from heatproof.explainers.concepts.concepts import Concept
from heatproof.explainers.examples.training_set import Examples
from heatproof.runs.manifest import Manifest
from heatproof.runs.run import Run
from heatproof.runs.study.registry import EXPLAINERS, build
from support.small import model, pictures
from support.vit_shapes import TimmViT

SMALL = {
    "saliency": {},
    "input_x_gradient": {},
    "integrated_gradients": {"steps": 6},
    "expected_gradients": {"samples": 3},
    "gradient_shap": {"samples": 3},
    "deep_lift": {},
    "lrp": {},
    "attn_lrp": {},
    "guided_backprop": {},
    "deconvolution": {},
    "grad_cam": {},
    "grad_cam_plus_plus": {},
    "layer_cam": {},
    "hires_cam": {},
    "guided_grad_cam": {},
    "lime": {"samples": 40},
    "kernel_shap": {"samples": 60, "features": {"patches": {"size": 8}}},
    "occlusion": {"window": 8, "stride": 4},
    "rise": {"samples": 40, "grid": 4},
    "feature_ablation": {"features": {"patches": {"size": 8}}},
    "feature_permutation": {"features": {"patches": {"size": 8}}},
    "mfaba": {"steps": 5},
    "smoothgrad": {"samples": 3},
    "smoothgrad_squared": {"samples": 3},
    "vargrad": {"samples": 3},
    "random": {},
    "sobel": {},
    "weight_noise": {},
    "symmetrised": {"of": "saliency", "group": {"dihedral": {"n": 2}}},
}
"""Every explainer of features with parameters that make it quick; those of other kinds are in `OTHER_KINDS`."""

ALL = {
    name: build("explainer", EXPLAINERS, {name: parameters}) for name, parameters in SMALL.items()
}
EVERY_KIND = [
    {"rotation": {"degrees": 10}},
    {"translation": {"pixels": 3}},
    {"brightness": {"factor": 1.2}},
    {"gaussian_noise": {"sigma": 0.05}},
    {"jpeg": {"quality": 60}},
    {"contrast": {"factor": 1.3}},
    {"gaussian_blur": {"sigma": 0.8}},
    {"occluding_patch": {"fraction": 0.05}},
    {"elastic": {"amplitude": 1.0}},
    "identity",
]
TRAIN = Examples(
    Batch(tuple(f"t{i}" for i in range(24)), pictures(24, seed=3)[0], label=pictures(24, seed=3)[1])
)
RED = pictures(24, seed=4)[0]
CONCEPT = Concept("red", RED * torch.tensor([1.0, 0.2, 0.2])[:, None, None], RED)
OTHER_KINDS: dict[str, dict[str, Any]] = {
    "influence": {"train": TRAIN},
    "tracin": {"train": TRAIN},
    "simplex": {"train": TRAIN},
    "representation_similarity": {"train": TRAIN},
    "cav": {"layer": "11", "concepts": CONCEPT},
    "car": {"layer": "11", "concepts": CONCEPT},
}
"""Every explainer by examples or concepts."""
OF_ATTENTION = ("attention_rollout", "chefer")
"""Every explainer that only transformers have."""
FEATURES = ["saliency", {"gradient_shap": {"samples": 2}}, {"lime": {"samples": 30}}, "random"]
PATCHES = {"patches": {"size": 8}}
OTHERWISE: dict[str, dict[str, Any]] = {
    "random baseline": {"integrated_gradients": {"steps": 4, "baseline": "random"}},
    "samples as baselines": {"integrated_gradients": {"steps": 4, "baseline": TRAIN}},
    "noise": {"gradient_shap": {"samples": 2, "sigma": 0.1, "baseline": "random"}},
    "noise of references": {"expected_gradients": {"samples": 3, "sigma": 0.1}},
    "draws to an error": {"gradient_shap": {"error": 0.5}},
    "masks to an error": {"lime": {"error": 0.5}},
    "pool": {"feature_permutation": {"features": PATCHES, "draws": 2, "pool": TRAIN}},
    "shifts": {"feature_permutation": {"features": PATCHES, "draws": 2}},
    "blur": {"feature_ablation": {"features": PATCHES, "fill": "blur"}},
    "mean": {"kernel_shap": {"samples": 60, "features": PATCHES, "fill": "mean"}},
    "averaged": {
        "symmetrised": {"of": {"lime": {"samples": 40}}, "group": {"dihedral": {"n": 4}}, "n": 2}
    },
}
"""Explainers with other parameters than the usual, some of which index samples by numbers on the device."""
AXES: dict[str, dict[str, Any]] = {
    "certificate": {"radii": [1, 3], "features": PATCHES, "epsilon": 0.3},
    "smoothing": {
        "keeps": [0.5, 1.0],
        "radii": [1, 2],
        "features": PATCHES,
        "samples": 8,
        "epsilon": 0.4,
    },
    "symmetry": {
        "group": {"dihedral": {"n": 4}},
        "elements": 3,
        "repair": [2],
        "layers": ["9"],
        "sensitivity": 0.02,
    },
    "faithfulness": {"imputers": ["zero", "noisy_linear"], "fractions": [0.2, 0.6], "masks": 8},
    "dependence": {
        "draws": 2,
        "classes": 2,
        "cascades": ["top_down", "bottom_up"],
        "steps": 3,
        "k": 50,
    },
    "localisation": {"any_class": True},
    "agreement": {"k": 50},
}
"""Every axis but stability, with parameters that make it quick."""


def run_axis(
    axis: str, n: int = 5, data: Any = None, net: Model | None = None, **options: Any
) -> pd.DataFrame:
    others = (
        [{name: given} for name, given in OTHER_KINDS.items()]
        if axis == "symmetry" and net is None
        else []
    )
    given = pictures(n) if data is None else data
    if axis == "localisation":
        given = heatproof.open_data(
            given, regions={f"{i:04}": torch.eye(32) + (i == torch.arange(32)) for i in range(9)}
        )
    return heatproof.evaluate(
        net or model(), given, FEATURES + others, [{axis: AXES[axis]}], **options
    ).table()


def run_otherwise(what: str, n: int = 4, **options: Any) -> pd.DataFrame:
    """An explainer of `OTHERWISE` on inputs that move."""
    judged = [{"symmetry": {"group": {"dihedral": {"n": 4}}, "elements": 3, "sensitivity": 0.02}}]
    return heatproof.evaluate(model(), pictures(n), [OTHERWISE[what]], judged, **options).table()


def undeclared(table: pd.DataFrame, manifest: Manifest | None = None) -> set[tuple[str, str]]:
    """The (evaluation, measure) pairs of a table of which no axis says direction and role."""
    pairs = table[["evaluation", "measure"]].drop_duplicates().itertuples(index=False, name=None)
    return {
        (label, name) for label, name in pairs if axis_of(label, manifest).measure(name) is None
    }


def with_model(name: str, images: torch.Tensor) -> tuple[Any, Model]:
    """An explainer of `ALL` or `OF_ATTENTION` that can be called on images, and a model that it suits."""
    if name in OF_ATTENTION:
        torch.manual_seed(0)
        return EXPLAINERS[name](), Model(TimmViT(2, "avg", size=images.shape[-1]), rows=32)
    own = ALL[name]
    return replace(own, baseline=images.flip(0)) if name == "expected_gradients" else own, model()


def retrained(n: int) -> Run:
    """A run of retraining with both kinds of network, and of leakage, on few pictures."""

    def train(dataset: Any, seed: int) -> nn.Module:
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 4))

    cells: dict[str, Any] = {
        "fractions": [0.5],
        "imputers": ["zero"],
        "leakage": True,
        "repeats": 2,
        "tuner": train,
    }
    return heatproof.retrain(
        model(), pictures(n, seed=8), pictures(n), "saliency", train, mkdtemp(), **cells
    )

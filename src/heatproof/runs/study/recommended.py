"""`explainers: recommended`: a few explainers that suit a model and its data, each for a reason."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import product

from heatproof.errors import UserError
from heatproof.explainers import EXPLAINERS
from heatproof.models import Model
from heatproof.types import Batch, Explainer, name_of

RECOMMENDED = "recommended"
WHY = {
    "chefer": "reads the attention of a transformer, and knows the class",
    "grad_cam": "shows where the last convolutional map has the class",
    "integrated_gradients": "sums to the score, and is defined by the model's function alone",
    "kernel_shap": "asks the model only, for Shapley values of features",
    "lime": "asks the model only, and fits a line to what it says",
    "feature_ablation": "asks the model only, without each feature in turn",
    "random": "is the control that knows nothing: what chance scores",
    "sobel": "is the control that sees edges and no model",
}
"""Candidates in their order: the first three that suit, never two of layers, and the controls."""


def recommended(models: Mapping[str, Model], samples: Iterable[Batch]) -> dict[str, str]:
    """Return which of the candidates of `WHY` are defined for all models and data, and why.

    `samples` has one sample of each data set.

    >>> import torch
    >>> net, row = Model(torch.nn.Linear(4, 2)), Batch(("a",), torch.zeros(1, 4))
    >>> list(recommended({"net": net}, [row]))
    ['integrated_gradients', 'kernel_shap', 'lime', 'random']
    """
    pairs = list(product(models.values(), samples))
    chosen: dict[str, str] = {}
    for name, why in WHY.items():
        explainer = EXPLAINERS[name]()
        is_second_of_layers = name == "grad_cam" and "chefer" in chosen
        is_fourth_method = len(chosen) > 2 and not explainer.control
        if is_second_of_layers or is_fourth_method:
            continue
        if all(_is_defined(explainer, model, sample) for model, sample in pairs):
            chosen[name] = f"recommended: {name} {why} ({explainer.terms()})"
    return chosen


def _is_defined(explainer: Explainer, model: Model, sample: Batch) -> bool:
    """Whether an explainer is defined for a model and such data; attention is looked for by the names of layers."""
    layers = [type(layer).__name__.lower() for layer in model.module.modules()]
    if name_of(explainer) == "chefer" and not any("attention" in layer for layer in layers):
        return False
    try:
        explainer.configured_for(model, sample)
    except UserError:
        return False
    return True

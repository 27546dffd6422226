"""`explainers: recommended`: a few explainers that suit a model and its data, each for a reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.modality import modality, terms_of, why_not_explainable, why_undefined
from heatproof.types import Batch

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


def recommended(
    made: Mapping[str, Any], models: Mapping[str, Model], first: Batch
) -> dict[str, str]:
    """Which of the candidates of `WHY`, `made` for such data, suit all models and samples such as the first, and why.

    >>> import torch
    >>> from heatproof.explainers import EXPLAINERS
    >>> net, row = Model(torch.nn.Linear(4, 2)), Batch(("a",), torch.zeros(1, 4))
    >>> list(recommended({name: EXPLAINERS[name]() for name in WHY}, {"net": net}, row))
    ['integrated_gradients', 'feature_ablation', 'random']
    """
    found: dict[str, str] = {}
    for name, why in WHY.items():
        spare = (name == "grad_cam" and "chefer" in found) or (
            len(found) > 2 and not made[name].control
        )
        if not spare and all(_suits(made[name], model, first) for model in models.values()):
            found[name] = f"recommended: {name} {why} ({terms_of(name)})"
    return found


def _suits(explainer: Any, model: Model, first: Batch) -> bool:
    attends = any("attention" in type(part).__name__.lower() for part in model.module.modules())
    try:
        explainer.check(model, first.x.shape[1:])
    except UserError:
        return False
    blind = why_undefined(explainer.name, modality(model, first)) or why_not_explainable(
        explainer, model
    )
    return not blind and (attends or explainer.name != "chefer")

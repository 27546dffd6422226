"""scikit-learn classifiers as models: for tables, and the methods that need no gradient."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from holdfast.errors import UserError
from holdfast.models import Model


class SklearnNetwork(nn.Module):
    """A fitted classifier as a network: rows (B, F) -> class scores (B, classes).

    Scores are the logarithms of `predict_proba`, so that a softmax gives these probabilities back, or what
    `decision_function` says where there are no probabilities. It is computed on the CPU and gives no gradient.
    """

    differentiable: ClassVar[bool] = False

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.estimator = estimator
        self.columns: tuple[str, ...] | None = None
        if hasattr(estimator, "feature_names_in_"):
            self.columns = tuple(map(str, estimator.feature_names_in_))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes) in float32 on the device of x."""
        if x.requires_grad and torch.is_grad_enabled():
            raise UserError(f"{type(self.estimator).__name__} is a scikit-learn classifier, which gives no gradient")
        expected = getattr(self.estimator, "n_features_in_", None)
        if x.ndim != 2 or (expected is not None and x.shape[1] != expected):
            columns = "" if self.columns is None else f": {', '.join(self.columns)}"
            raise UserError(
                f"{type(self.estimator).__name__} reads rows of {expected} columns{columns}; "
                f"the data has samples of shape {tuple(x.shape[1:])}"
            )
        values: Any = x.detach().cpu().double().numpy()
        rows = values if self.columns is None else pd.DataFrame(values, columns=list(self.columns))
        if hasattr(self.estimator, "predict_proba"):
            shares = np.asarray(self.estimator.predict_proba(rows), dtype=np.float64)
            scores = np.log(np.maximum(shares, np.finfo(np.float32).tiny))
        else:
            scores = np.asarray(self.estimator.decision_function(rows), dtype=np.float64)
        return torch.from_numpy(scores).to(x.device, torch.float32)

    def get_extra_state(self) -> str:
        """A hash of everything that was fitted, which makes the model's fingerprint."""
        return str(importlib.import_module("joblib").hash(self.estimator, hash_name="sha1"))

    def extra_repr(self) -> str:
        """The classifier with its parameters."""
        return repr(self.estimator)


def is_estimator(thing: Any) -> bool:
    """Whether something looks like an estimator of scikit-learn, fitted or not.

    >>> is_estimator(nn.Linear(1, 1))
    False
    """
    return not isinstance(thing, type | nn.Module) and hasattr(thing, "fit") and hasattr(thing, "predict")


def from_sklearn(estimator: Any, *, classes: Sequence[str] | None = None, name: str | None = None) -> Model:
    """A fitted scikit-learn classifier, or a pipeline that ends in one, as a `Model` of rows (B, F).

    Features are columns: `{features: pixels}` takes each column alone. What reads a gradient or a layer of a network
    is refused when the study is planned.

    >>> from holdfast.types import Batch
    >>> class Fair:
    ...     classes_ = np.array(["no", "yes"])
    ...     n_features_in_ = 3
    ...     def fit(self, x, y): return self
    ...     def predict(self, x): return self.classes_[[0] * len(x)]
    ...     def predict_proba(self, x): return np.full((len(x), 2), 0.5)
    >>> model = from_sklearn(Fair())
    >>> model.logits(torch.zeros(1, 3)).softmax(1).tolist(), model.class_name(1)
    ([[0.5, 0.5]], 'yes')
    """
    label = type(estimator).__name__
    if not is_estimator(estimator):
        raise UserError(f"from_sklearn(...) needs a fitted scikit-learn classifier, got {label}")
    if not hasattr(estimator, "classes_"):
        raise UserError(f"{label} has no classes_, so it is not fitted or not a classifier; give a fitted classifier")
    if not (hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")):
        raise UserError(f"{label} has neither predict_proba nor decision_function, so it gives no scores to explain")
    if isinstance(estimator.classes_, list):
        raise UserError(f"{label} predicts {len(estimator.classes_)} outputs at once; give a classifier of one of them")
    found = [str(c) for c in estimator.classes_] if classes is None else classes
    return Model(SklearnNetwork(estimator), classes=found, name=name or label)

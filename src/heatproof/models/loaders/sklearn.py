"""scikit-learn estimators as models: for tables, and the methods that need no gradient."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.models import Model
from heatproof.models.tasks import Binary, Regression


class SklearnNetwork(nn.Module):
    """A fitted estimator as a network: rows (B, F) -> class scores (B, classes), or predicted numbers (B, outputs).

    Scores are the logarithms of `predict_proba`, so that a softmax gives these probabilities back, or what
    `decision_function` says where there are no probabilities; a regressor gives what it predicts. It is computed on the
    CPU and gives no gradient.
    """

    differentiable: ClassVar[bool] = False

    def __init__(self, estimator: Any) -> None:
        super().__init__()
        self.estimator = estimator
        self.columns: tuple[str, ...] | None = None
        if hasattr(estimator, "feature_names_in_"):
            self.columns = tuple(map(str, estimator.feature_names_in_))

    def forward(self, x: Tensor) -> Tensor:
        """Class scores (B, classes) or numbers (B, outputs) in float32 on the device of x."""
        if x.requires_grad and torch.is_grad_enabled():
            raise UserError(
                f"{type(self.estimator).__name__} is a scikit-learn estimator, which gives no gradient"
            )
        expected = getattr(self.estimator, "n_features_in_", None)
        if x.ndim != 2 or (expected is not None and x.shape[1] != expected):
            columns = "" if self.columns is None else f": {', '.join(self.columns)}"
            raise UserError(
                f"{type(self.estimator).__name__} reads rows of {expected} columns{columns}; "
                f"the data has samples of shape {tuple(x.shape[1:])}"
            )
        values: Any = x.detach().cpu().double().numpy()
        rows = values
        if self.columns is not None:
            import pandas as pd  # only here, so that explainers do not load pandas

            rows = pd.DataFrame(values, columns=list(self.columns))
        if hasattr(self.estimator, "predict_proba"):
            shares = np.asarray(self.estimator.predict_proba(rows), dtype=np.float64)
            scores = np.log(np.maximum(shares, np.finfo(np.float32).tiny))
        elif hasattr(self.estimator, "classes_"):
            scores = np.asarray(self.estimator.decision_function(rows), dtype=np.float64)
        else:
            scores = np.asarray(self.estimator.predict(rows), dtype=np.float64)
        return torch.from_numpy(scores).to(x.device, torch.float32)

    def get_extra_state(self) -> str:
        """A hash of everything that was fitted, which makes the model's fingerprint."""
        return str(importlib.import_module("joblib").hash(self.estimator, hash_name="sha1"))

    def extra_repr(self) -> str:
        """The estimator with its parameters."""
        return repr(self.estimator)


def is_estimator(thing: Any) -> bool:
    """Whether something looks like an estimator of scikit-learn, fitted or not.

    >>> is_estimator(nn.Linear(1, 1))
    False
    """
    return (
        not isinstance(thing, type | nn.Module)
        and hasattr(thing, "fit")
        and hasattr(thing, "predict")
    )


def from_sklearn(
    estimator: Any,
    *,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    task: Any = None,
) -> Model:
    """A fitted scikit-learn classifier or regressor, or a pipeline that ends in one, as a `Model` of rows (B, F).

    The task is that of the estimator unless another is given. Features are columns: `{features: pixels}` takes each
    column alone. What reads a gradient or a layer of a network is refused when the study is planned.

    >>> from heatproof.types import Batch
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
        raise UserError(f"from_sklearn(...) needs a fitted scikit-learn estimator, got {label}")
    if not hasattr(estimator, "classes_"):
        fitted = hasattr(estimator, "n_features_in_")
        if not fitted or not importlib.import_module("sklearn.base").is_regressor(estimator):
            why = "it is neither a classifier nor a regressor" if fitted else "it is not fitted"
            raise UserError(
                f"{label} has no classes_, so {why}; give a fitted classifier or regressor"
            )
        return Model(
            SklearnNetwork(estimator),
            classes=classes,
            name=name or label,
            task=task or Regression(),
        )
    if not (hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")):
        raise UserError(
            f"{label} has neither predict_proba nor decision_function, so it gives no scores to explain"
        )
    if isinstance(estimator.classes_, list):
        raise UserError(
            f"{label} predicts {len(estimator.classes_)} outputs at once; give a classifier of one of them"
        )
    found = [str(c) for c in estimator.classes_] if classes is None else classes
    if task is None and not hasattr(estimator, "predict_proba") and len(found) == 2:
        task = Binary()  # of its decision_function, one column
    return Model(SklearnNetwork(estimator), classes=found, name=name or label, task=task)

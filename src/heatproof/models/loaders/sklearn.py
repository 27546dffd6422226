"""Models of tables that give no gradient: scikit-learn estimators and pipelines, boosted trees, and plain functions."""

from __future__ import annotations

import functools
import hashlib
import importlib
import importlib.util
import inspect
import json
import pickle
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from heatproof.data import Data
from heatproof.data.choices import Choice
from heatproof.data.frames import FrameColumns, is_frame, open_frame
from heatproof.errors import UserError, nearest
from heatproof.models import Model
from heatproof.models.tasks import Binary, Regression

Scores = NDArray[np.float64]
Kind = Literal["estimator", "xgboost", "lightgbm", "function"]


class SklearnNetwork(nn.Module):
    """A fitted model of tables as a network: rows (B, F) -> class scores (B, classes), or predicted numbers (B, outputs).

    Scores are the logarithms of `predict_proba`, so that a softmax gives these probabilities back, or what
    `decision_function` says where there are no probabilities; a regressor gives what it predicts. A booster gives its
    margins, which are logits. It is computed on the CPU and gives no gradient.

    `frame` is the way from rows of numbers back to those of the DataFrame that the model reads, where that is known.
    """

    differentiable: ClassVar[bool] = False

    def __init__(self, estimator: Any, frame: FrameColumns | None = None) -> None:
        """Take a fitted model and, where it reads a DataFrame, the columns of that; see the class."""
        super().__init__()
        self.estimator = estimator
        self.kind: Kind = _kind(estimator)
        self.columns = _column_names(estimator)
        if self.columns is not None and frame is not None:
            self.columns = _as_in_frame(self.columns, frame)
        self.frame = frame

    @property
    def label(self) -> str:
        """The name of the estimator's class, or of the function."""
        return _label(self.estimator)

    @property
    def reads_numbers(self) -> bool:
        """Whether the estimator reads samples as they are: no categories, and columns in the order of the data."""
        if self.frame is None:
            return True
        in_order = self.columns in (None, self.frame.names)
        return in_order and not self.frame.has_categories

    def forward(self, x: Tensor) -> Tensor:
        """Return class scores (B, classes) or numbers (B, outputs) in float32 on the device of x."""
        if x.requires_grad and torch.is_grad_enabled():
            raise UserError(
                f"{self.label} is a scikit-learn estimator or a function, which gives no gradient"
            )
        rows = self.rows(x)
        try:
            scores = self._scores(rows)
        except (ValueError, TypeError, KeyError) as error:
            first_line = str(error).strip().partition("\n")[0]
            raise UserError(f"{self.label} cannot read the rows: {first_line}") from error
        return torch.from_numpy(scores).to(x.device, torch.float32)

    def rows(self, x: Tensor) -> Any:
        """Return samples (B, F) in the form that the model was fitted on: a DataFrame with its columns, or an array."""
        values: Any = x.detach().cpu().numpy()
        if self.frame is not None and x.ndim == 2 and x.shape[1] == len(self.frame.titles):
            frame = self.frame.decoded(values)
            if self.columns is not None:
                return frame[list(self.columns)]
            return frame if self.frame.has_categories else frame.to_numpy()
        expected = _column_count(self.estimator)
        if x.ndim != 2 or (expected is not None and x.shape[1] != expected):
            names = "" if self.columns is None else f": {', '.join(self.columns)}"
            count = len(self.frame.titles) if self.frame is not None else expected
            raise UserError(
                f"{self.label} reads rows of {count} columns{names}; the data has samples of shape "
                f"{tuple(x.shape[1:])}. For columns of categories give the DataFrame itself as data"
            )
        values = values.astype(np.float64)
        if self.columns is None:
            return values
        import pandas as pd  # only here, so that explainers do not load pandas

        return pd.DataFrame(values, columns=list(self.columns))

    def _scores(self, rows: Any) -> Scores:
        """Return logits or log-probabilities of classes, or the numbers that a regressor predicts, (B, K) or (B,).

        `rows` are samples as the model reads them.
        """
        model = self.estimator
        if self.kind == "xgboost":
            # Find the library by the class of the model, so that nothing is imported.
            library: Any = inspect.getmodule(type(model))
            matrix = library.DMatrix(rows, enable_categorical=True)
            is_margin = _is_classifying(_objective(model))
            return np.asarray(model.predict(matrix, output_margin=is_margin), np.float64)
        if self.kind == "lightgbm":
            is_margin = _is_classifying(_objective(model))
            return np.asarray(model.predict(rows, raw_score=is_margin), np.float64)
        if self.kind == "function":
            return _of_function(model, rows)
        if hasattr(model, "predict_proba"):
            return _logs(np.asarray(model.predict_proba(rows), np.float64))
        if _has_classes(model):
            return np.asarray(model.decision_function(rows), np.float64)
        return np.asarray(model.predict(rows), np.float64)

    def get_extra_state(self) -> str:
        """Return a hash of the fitted model and of the layout of its DataFrame: torch adds it to the state dict.

        So the model's fingerprint, a hash of the state dict, changes with it.
        """
        digest = _digest(self.estimator)
        if self.reads_numbers or self.frame is None:
            return digest
        layout = repr(self.frame.layout())
        return hashlib.sha1(f"{digest}|{layout}".encode()).hexdigest()

    def extra_repr(self) -> str:
        """Return the estimator with its parameters."""
        return repr(self.estimator)


def is_estimator(thing: Any) -> bool:
    """Whether something looks like an estimator of scikit-learn, fitted or not.

    >>> is_estimator(nn.Linear(1, 1))
    False
    """
    if isinstance(thing, type | nn.Module):
        return False
    return hasattr(thing, "fit") and hasattr(thing, "predict")


def is_table_model(thing: Any) -> bool:
    """Whether something is an estimator, a booster of XGBoost or LightGBM, or a function such as `predict_proba`.

    >>> is_table_model(lambda rows: rows), is_table_model(nn.Linear(1, 1))
    (True, False)
    """
    is_function = inspect.isroutine(thing) or isinstance(thing, functools.partial)
    return is_estimator(thing) or _booster_of(thing) is not None or is_function


def from_sklearn(
    estimator: Any,
    *,
    classes: Sequence[str] | None = None,
    name: str | None = None,
    task: Any = None,
    data: Any = None,
) -> Model:
    """Return a fitted model of tables as a `Model` of rows (B, F).

    `estimator` is a classifier, a regressor or a pipeline of scikit-learn, an estimator or `Booster` of XGBoost,
    LightGBM or CatBoost, or a function from rows to probabilities or numbers, such as `predict_proba`. The task is that
    of the estimator unless another is given. Features are columns: `{features: pixels}` takes each column alone. What
    reads a gradient or a layer of a network is refused when the study is planned.

    A model that reads a DataFrame with columns of categories needs to know it: `data`, the frame or what `open_data`
    made of it. `evaluate` and `explain` take it from their data.

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
    owner = getattr(estimator, "__self__", None)
    if is_estimator(owner) or _booster_of(owner) is not None:
        estimator = owner  # a bound method such as classifier.predict_proba
    if not is_table_model(estimator):
        kind = type(estimator).__name__
        raise UserError(
            f"from_sklearn(...) needs a fitted scikit-learn estimator, a booster or a function, got {kind}"
        )
    if is_estimator(estimator):
        _check_fitted(estimator)
        if classes is None and _has_classes(estimator):
            classes = [str(value) for value in estimator.classes_]
    model = Model(
        SklearnNetwork(estimator),
        classes=classes,
        name=name or _label(estimator),
        task=task or _task(estimator, classes),
    )
    if data is None:
        return model
    opened = open_frame(data, Choice()) if is_frame(data) else data
    return with_frames(model, {"data": opened})


def with_frames(model: Model, datasets: Mapping[str, Data]) -> Model:
    """Return a model of tables that knows the DataFrames of its data sets; any other model as it is.

    Their columns must be those that the estimator was fitted on, in whatever order, and mean the same in all of them.
    """
    network = model.module
    frames = {name: data.frame for name, data in datasets.items() if data.frame is not None}
    if not isinstance(network, SklearnNetwork) or not frames:
        return model
    first_name, *others = frames
    frame = frames[first_name]
    _check_columns(SklearnNetwork(network.estimator, frame), frame)
    for name in others:
        if frames[name].layout() != frame.layout():
            raise UserError(
                f"the columns or categories of {first_name} and {name} differ; give both the same columns, and make "
                "words a category with all their values: frame[column].astype(pandas.CategoricalDtype([...]))"
            )
        frame = frame.merged(frames[name])
    return model.with_module(SklearnNetwork(network.estimator, frame).eval())


def _check_columns(network: SklearnNetwork, frame: FrameColumns) -> None:
    """Raise `UserError` for a frame that lacks columns of the estimator, or has more."""
    if network.columns is None:
        return
    missing = [name for name in network.columns if name not in frame.names]
    if missing:
        close = nearest(missing[0], frame.names, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; it has {', '.join(frame.names)}"
        raise UserError(
            f"{network.label} was fitted on the column {missing[0]!r}, which the data lack{hint}"
        )
    surplus = [name for name in frame.names if name not in network.columns]
    if surplus:
        raise UserError(
            f"the data have the column {surplus[0]!r}, on which {network.label} was not fitted; leave it out, or "
            f"name it as the label: open_data(frame, label={surplus[0]!r})"
        )


def _check_fitted(estimator: Any) -> None:
    """Raise `UserError` for an estimator that is not fitted, or that gives no scores of single outputs to explain."""
    label = type(estimator).__name__
    if not _has_classes(estimator):
        is_fitted = _column_count(estimator) is not None
        if not is_fitted or not _is_regressor(estimator):
            why = "it is neither a classifier nor a regressor" if is_fitted else "it is not fitted"
            raise UserError(
                f"{label} has no classes_, so {why}; give a fitted classifier or regressor"
            )
        return
    if not (hasattr(estimator, "predict_proba") or hasattr(estimator, "decision_function")):
        raise UserError(
            f"{label} has neither predict_proba nor decision_function, so it gives no scores to explain"
        )
    if isinstance(estimator.classes_, list):
        raise UserError(
            f"{label} predicts {len(estimator.classes_)} outputs at once; give a classifier of one of them"
        )


def _task(estimator: Any, classes: Sequence[str] | None) -> Any:
    """Return the task of a model of tables, such as `Regression()`.

    None is for classification, and for a function whose outputs have to show whether they are probabilities. `classes`
    are the names of the classes, where they are known.
    """
    if _booster_of(estimator) is not None:
        objective = _objective(estimator)
        if not _is_classifying(objective):
            return Regression()
        return Binary() if objective.startswith("binary") else None
    if not is_estimator(estimator):
        return Regression() if _label(estimator) == "predict" else None
    if not _has_classes(estimator):
        return Regression()
    # A decision_function of two classes has one column.
    is_margin = not hasattr(estimator, "predict_proba")
    return Binary() if is_margin and len(classes or ()) == 2 else None


def _has_classes(estimator: Any) -> bool:
    """Whether an estimator is a fitted classifier; regressors of CatBoost have an empty list of classes."""
    return hasattr(estimator, "classes_") and len(estimator.classes_) > 0


def _is_regressor(estimator: Any) -> bool:
    if getattr(estimator, "_estimator_type", None) == "regressor":
        return True
    return bool(importlib.import_module("sklearn.base").is_regressor(estimator))


def _kind(model: Any) -> Kind:
    booster = _booster_of(model)
    if booster is not None:
        return booster
    return "estimator" if is_estimator(model) else "function"


def _booster_of(thing: Any) -> Literal["xgboost", "lightgbm"] | None:
    """Return the library of a `Booster`, known by its class, so that neither library is imported."""
    if type(thing).__name__ != "Booster":
        return None
    library = type(thing).__module__.partition(".")[0]
    return library if library in ("xgboost", "lightgbm") else None  # type: ignore[return-value]


def _objective(booster: Any) -> str:
    """Return what a booster was trained for, such as `binary:logistic` or `multiclass num_class:3`."""
    if _booster_of(booster) == "lightgbm":
        return str(booster.params.get("objective") or booster.dump_model(0, 1).get("objective", ""))
    return str(json.loads(booster.save_config())["learner"]["objective"]["name"])


def _is_classifying(objective: str) -> bool:
    """Whether the margins of an objective are logits: of one class, or of each of several."""
    return objective.startswith(("binary", "multi"))


def _column_names(model: Any) -> tuple[str, ...] | None:
    """Return the columns that a model was fitted on; None where it knows no names."""
    names: Any = None
    if _booster_of(model) == "xgboost":
        names = model.feature_names
    elif _booster_of(model) == "lightgbm":
        names = model.feature_name()
    else:
        names = getattr(model, "feature_names_in_", None)
        if names is None:
            names = getattr(model, "feature_names_", None)  # of CatBoost
    if names is None:
        return None
    names = tuple(map(str, names))
    # Fitted on an array, the libraries make up names: 0, 1, …, f0, f1, … or Column_0, Column_1, …
    numbers = [str(i) for i in range(len(names))]
    are_numbers = [name.removeprefix("Column_").removeprefix("f") for name in names] == numbers
    return None if are_numbers else names


def _as_in_frame(columns: tuple[str, ...], frame: FrameColumns) -> tuple[str, ...]:
    """Return the columns by their names in a frame: LightGBM puts underscores in place of spaces."""
    by_fitted_name = {name.replace(" ", "_"): name for name in frame.names}
    return tuple(
        name if name in frame.names else by_fitted_name.get(name, name) for name in columns
    )


def _column_count(model: Any) -> int | None:
    """Return how many columns a model reads; None where that is not known."""
    if _booster_of(model) == "xgboost":
        return int(model.num_features())
    if _booster_of(model) == "lightgbm":
        return int(model.num_feature())
    return getattr(model, "n_features_in_", None)


def _of_function(function: Callable[..., Any], rows: Any) -> Scores:
    """Return the outputs of a user's function of rows, (B, K) or (B,) in float64.

    Rows that are at least 0 and sum to 1 are class probabilities, and become their logarithms.
    """
    outputs = np.asarray(function(rows))
    if outputs.dtype.kind not in "biuf":
        raise UserError(
            f"{_label(function)} gives {outputs.dtype}, such as {outputs.ravel()[:1].tolist()}, and numbers are "
            "explained; give predict_proba in place of predict"
        )
    outputs = outputs.astype(np.float64)
    if outputs.ndim == 2 and outputs.shape[1] > 1:
        is_distribution = (outputs >= 0).all() and np.allclose(outputs.sum(1), 1, atol=1e-3)
        return _logs(outputs) if is_distribution else outputs
    return outputs


def _logs(probabilities: Scores) -> Scores:
    """Return the logarithms of probabilities; a probability of 0 counts as the smallest float32, so that none is −∞."""
    return np.asarray(np.log(np.maximum(probabilities, np.finfo(np.float32).tiny)))


def _label(model: Any) -> str:
    """Return the name of a function, or of the class of anything else."""
    if isinstance(model, functools.partial):
        return _label(model.func)
    name = getattr(model, "__name__", "") if callable(model) else ""
    return str(name or type(model).__name__)


def _digest(model: Any) -> str:
    """Return a hash of a model of tables that changes whenever its predictions could: its fingerprint.

    For a function, that is a hash of its code and of the values that it uses; for an estimator, of all that was fitted.
    """
    if inspect.isfunction(model):
        return _digest_of_function(model)
    if isinstance(model, functools.partial):
        arguments = (model.func, *model.args, *model.keywords.values())
        digests = [_digest(value) for value in arguments]
        return hashlib.sha1(repr(digests).encode()).hexdigest()
    # After a search over parameters only the best estimator predicts. The search also has a table of results, with
    # arrays that joblib cannot hash.
    model = getattr(model, "best_estimator_", model)
    if importlib.util.find_spec("joblib") is None:
        return hashlib.sha1(pickle.dumps(model)).hexdigest()
    return str(importlib.import_module("joblib").hash(model, hash_name="sha1"))


def _digest_of_function(function: Any) -> str:
    """Return a hash of a function's code, its constants and defaults, and the outer variables that it uses.

    Of functions that it calls only the code counts, not the variables that these use in turn: functions may call each
    other, which would never end. Modules that it uses do not count.
    """
    code = function.__code__
    outer_values = [cell.cell_contents for cell in function.__closure__ or ()]
    for name in code.co_names:
        if name in function.__globals__:
            outer_values.append(function.__globals__[name])

    called_code: list[bytes] = []
    value_digests: list[str] = []
    for value in outer_values:
        if inspect.isfunction(value):
            called_code.append(value.__code__.co_code)
        elif not inspect.ismodule(value):
            value_digests.append(_digest(value))
    constants = _constants(code.co_consts)
    content = (code.co_code, constants, function.__defaults__, called_code, value_digests)
    return hashlib.sha1(repr(content).encode()).hexdigest()


def _constants(values: Iterable[Any]) -> list[Any]:
    """Return the constants of a function for hashing, with the bytes of inner functions in place of their code objects.

    The text of a code object has a memory address in it, which changes from run to run.
    """
    return [value.co_code if inspect.iscode(value) else value for value in values]

"""Imputers of tables that fill in a column from the other columns of the same row: k nearest neighbours, and MICE.

Both learn from complete rows: `data`, or the study's reference samples, which are few (`references:` of a study says how
many). scikit-learn does the learning.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass as plain_dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.removal.imputers import check, with_fill
from heatproof.types import parameter_class


class TrainingRows:
    """Rows (n, F) of a table to learn from; the text form is short, so that names and manifests can hold it.

    >>> TrainingRows(torch.zeros(3, 2))
    3x2-17b0761f
    """

    def __init__(self, values: Tensor) -> None:
        self.values = values.double().cpu()

    @property
    def digest(self) -> str:
        """The first digits of the sha256 of the values."""
        return hashlib.sha256(self.values.numpy().tobytes()).hexdigest()[:8]

    def __repr__(self) -> str:
        rows, columns = self.values.shape
        return f"{rows}x{columns}-{self.digest}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TrainingRows) and torch.equal(self.values, other.values)

    def __hash__(self) -> int:
        return hash(self.digest)


def _as_rows(value: Any) -> Any:
    """Return the rows (n, F) of a frame, an array or a tensor as `TrainingRows`, for a field of an imputer; None stays."""
    if value is None or isinstance(value, TrainingRows):
        return value
    try:
        if hasattr(value, "to_numpy"):
            value = value.to_numpy(dtype=float)
        rows = torch.as_tensor(value, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(f"data are rows (n, F) of numbers, got {type(value).__name__}") from error
    if rows.ndim != 2:
        raise ValueError(f"data are rows (n, F), got shape {tuple(rows.shape)}")
    return TrainingRows(rows)


Rows = Annotated[TrainingRows | None, BeforeValidator(_as_rows)]


@plain_dataclass(frozen=True)
class NearestRows:
    """The bound imputer of `KNearest`: `fitted` is scikit-learn's `KNNImputer`."""

    fitted: Any

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        """Return rows x (B, F) with the columns filled in where `keep` (B, F) is false.

        A column becomes its mean over the reference rows that are nearest in the columns that are kept.
        """
        _check_rows(KNearest.name, x, keep, ids)
        if not len(x):
            return x
        known = x.detach().double().masked_fill(~keep, torch.nan).cpu().numpy()
        filled = torch.from_numpy(self.fitted.transform(known))
        return with_fill(x, keep, filled.to(x))


@plain_dataclass(frozen=True)
class ChainedRegressions:
    """The bound imputer of `Mice`: a regression of each of F columns on all others.

    Column j is predicted as intercept[j] + weights[j] · row, where weights[j, j] = 0, with the deviation
    √(noise[j] + (row − mean)ᵀ spread[j] (row − mean)) of the posterior. `low` and `high` are the ends of each column.
    """

    mean: Tensor
    weights: Tensor
    intercepts: Tensor
    noise: Tensor
    spread: Tensor
    low: Tensor
    high: Tensor
    rounds: int
    draws: bool

    def __call__(
        self, x: Tensor, keep: Tensor, ids: Sequence[str] | None = None, seed: int = 0
    ) -> Tensor:
        """Return rows x (B, F) with the columns filled in where `keep` (B, F) is false: MICE, chained regressions.

        Removed columns begin at their means. In each of `self.rounds` rounds, every removed column is predicted from the
        current values of all others. With `self.draws`, the prediction is drawn from its posterior N(mean, variance).
        """
        names = _check_rows(Mice.name, x, keep, ids)
        row = torch.where(keep.cpu(), x.detach().double().cpu(), self.mean)
        noise = torch.zeros_like(row)
        if self.draws and len(row):
            # One draw for each column, so that the rounds converge and nested masks share it.
            noise = rand.normal(rand.keys(seed, names, "removal: mice"), row.shape[1:]).double()
        removed_columns = (~keep).any(0).nonzero().flatten().tolist()
        for _ in range(self.rounds):
            for column in removed_columns:
                value = self.intercepts[column] + row @ self.weights[column]
                # The variance of a Bayesian ridge prediction (Bishop 2006, equation 3.59): xᵀΣx plus the noise.
                centred = row - self.mean
                variance = (centred @ self.spread[column] * centred).sum(1) + self.noise[column]
                value = value + noise[:, column] * variance.clamp(min=0).sqrt()
                value = value.clamp(self.low[column], self.high[column])
                row[:, column] = torch.where(keep[:, column].cpu(), row[:, column], value)
        return with_fill(x, keep, row.to(x))


@parameter_class
class KNearest:
    """Removed columns become their means over the `k` reference rows that are nearest by the columns that are kept.

    As in `sklearn.impute.KNNImputer`: the distance is Euclidean over kept columns in their own units, so scale the table
    first; where nothing is kept, columns become their means.

    >>> from heatproof.features import Pixels
    >>> fill = KNearest(k=1).bound(torch.tensor([[1.0, 5.0], [3.0, 7.0]]), Pixels())
    >>> fill(torch.tensor([[2.9, 0.0]]), torch.tensor([[True, False]])).tolist()
    [[2.9..., 7.0]]
    """

    name: ClassVar[str] = "k_nearest"
    k: Annotated[int, Field(ge=1)] = 5
    data: Rows = None

    def bound(self, reference: Tensor, features: Any) -> NearestRows:
        """Return the imputer that searches the rows of `self.data`, or else the reference samples (R, F)."""
        rows = _complete_rows(self.name, self.data, reference)
        imputer = _sklearn("sklearn.impute", self.name).KNNImputer(n_neighbors=self.k)
        return NearestRows(imputer.fit(rows.numpy()))


@parameter_class
class Mice:
    """Removed columns are predicted from all others by Bayesian ridge regressions, in `rounds` rounds (chained equations).

    Imputation as in `sklearn.impute.IterativeImputer`: columns begin at their means and are predicted one after another,
    clamped to the range of the rows that were learnt from. With `draws` a prediction is drawn from its posterior, as
    multiple imputation does (van Buuren and Groothuis-Oudshoorn 2011), so that it is not on the plane of the others.

    >>> from heatproof.features import Pixels
    >>> x = torch.linspace(0, 1, 9)
    >>> fill = Mice(draws=False).bound(torch.stack([x, 2 * x], 1), Pixels())
    >>> fill(torch.tensor([[0.3, 9.0]]), torch.tensor([[True, False]])).round(decimals=3).tolist()
    [[0.300..., 0.600...]]
    """

    name: ClassVar[str] = "mice"
    rounds: Annotated[int, Field(ge=1)] = 10
    draws: bool = True
    data: Rows = None

    def bound(self, reference: Tensor, features: Any) -> ChainedRegressions:
        """Return the imputer fitted to the rows of `self.data`, or else to the reference samples (R, F).

        For each column a Bayesian ridge regression on all other columns is fitted, by scikit-learn. With a single row or
        column there is nothing to regress on, and the imputer predicts the means.
        """
        rows = _complete_rows(self.name, self.data, reference)
        n, columns = rows.shape
        weights = torch.zeros(columns, columns, dtype=torch.float64)
        spread = torch.zeros(columns, columns, columns, dtype=torch.float64)
        intercepts, noise = rows.mean(0), torch.zeros(columns, dtype=torch.float64)
        if n > 1 and columns > 1:
            regression = _sklearn("sklearn.linear_model", self.name).BayesianRidge
            for column in range(columns):
                others = [other for other in range(columns) if other != column]
                fitted = regression().fit(rows[:, others].numpy(), rows[:, column].numpy())
                weights[column, others] = torch.from_numpy(fitted.coef_)
                intercepts[column] = float(fitted.intercept_)
                noise[column] = 1 / float(fitted.alpha_)
                covariance = torch.from_numpy(fitted.sigma_)
                # Write the covariance (F − 1, F − 1) into the rows and columns of the other columns.
                index = torch.tensor(others)
                spread[column][index[:, None], index] = covariance
        return ChainedRegressions(
            mean=rows.mean(0),
            weights=weights,
            intercepts=intercepts,
            noise=noise,
            spread=spread,
            low=rows.amin(0),
            high=rows.amax(0),
            rounds=self.rounds,
            draws=self.draws,
        )


def _complete_rows(name: str, data: TrainingRows | None, reference: Tensor) -> Tensor:
    """Return the complete rows of a table that an imputer is fitted to, (n, F) float64 on the CPU.

    They are those of the user's `data`, or else of the `reference` samples (R, F). `name` is the imputer's, for errors.
    """
    if reference.ndim != 2:
        raise UserError(
            f"{name} is for the columns of tables (F,), got samples of shape {tuple(reference.shape[1:])}; images have "
            "noisy_linear, biharmonic and telea"
        )
    rows = reference.double().cpu() if data is None else data.values
    if rows.shape[1] != reference.shape[1]:
        raise UserError(
            f"{name}.data has {rows.shape[1]} columns, and the samples have {reference.shape[1]}"
        )
    rows = rows[torch.isfinite(rows).all(1)]
    if not len(rows):
        raise UserError(f"{name} needs a complete row to learn from, and there is none; give data")
    return rows


def _check_rows(name: str, x: Tensor, keep: Tensor, ids: Sequence[str] | None) -> tuple[str, ...]:
    """Check the arguments of an imputer of tables, and return the ids of the rows; raise unless x is (B, F)."""
    names = check(x, keep, ids)
    if x.ndim != 2:
        raise UserError(f"{name} is for rows of tables (B, F), got shape {tuple(x.shape)}")
    return names


def _sklearn(module: str, imputer: str) -> Any:
    """Import a module of scikit-learn."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise UserError(
            f'the imputer {imputer} needs scikit-learn: pip install "heatproof[sklearn]"'
        ) from error

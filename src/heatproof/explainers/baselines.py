"""Baselines, from which methods that follow a path start: one value, noise, or samples of a pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final, Literal

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.examples.training_set import Examples, examples
from heatproof.models import Model
from heatproof.types import Batch

REFERENCES: Final = "references"
"""The baseline or background that stands for the reference samples of the study's data, which the plan fills in."""
TENSOR: Final = "a tensor"
"""The name of samples that were given as a tensor."""
Pick = Callable[[Tensor, Tensor], Tensor]
"""(sample number, draw number), (R,) each → values (R, …)."""


def _parse_baseline(value: Any) -> Any:
    if isinstance(value, str) and value in ("random", REFERENCES):
        return value
    if isinstance(value, Tensor):
        return float(value) if value.ndim == 0 else rows_of_tensor(value)
    return examples(value)


Baseline = Annotated[
    Literal["random", "references"] | Annotated[float, Field(allow_inf_nan=False)] | Examples,
    BeforeValidator(_parse_baseline),
]
"""A number, "random", "references" or samples: the type of the field `baseline`."""


def rows_of_tensor(value: Tensor) -> Examples:
    """Return the rows of a tensor (n, …) as examples with the ids 0, 1, …"""
    if value.ndim == 0:
        raise UserError("one number is no row of data; for one number use fill or baseline")
    ids = tuple(str(number) for number in range(len(value)))
    return Examples(Batch(ids, value), name=TENSOR)


def in_shape_of(rows: Examples, shape: Sequence[int]) -> Examples:
    """Return examples with a batch axis: a single sample of that `shape` becomes one row; others stay as they are."""
    x = rows.batch.x
    if tuple(x.shape) != tuple(shape):
        return rows
    return Examples(Batch(("0",), x[None]), rows.name)


def check_baseline(explainer: object, name: str, shape: Sequence[int]) -> None:
    """Raise `UserError` for an explainer whose baseline is samples of another shape than those to explain."""
    baseline = getattr(explainer, "baseline", None)
    if not isinstance(baseline, Examples):
        return
    if baseline.name != TENSOR:
        baseline.check_shape(shape)
        return
    of_tensor = tuple(baseline.batch.x.shape)
    if tuple(shape) not in (of_tensor, of_tensor[1:]):
        raise UserError(
            f"the baseline of {name} has shape {of_tensor}, and samples have shape {tuple(shape)}; give a baseline of that "
            "shape, or several along a first axis"
        )


def starting_points(
    name: str, baseline: float | str | Examples, model: Model, batch: Batch, seed: int
) -> Pick | float:
    """Return the baselines from which the paths of explainer `name` start, as normalised inputs.

    That is one number, or a function (sample, draw) → baselines that draws them. A number is the same at every
    position, so transforming the sample does not change it. "random" baselines are standard normal numbers, drawn by
    seed, sample and draw; they belong to positions and move with a moved sample. Samples of a pool are drawn without
    replacement, and do not move with the sample.

    >>> model, batch = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3))
    >>> starting_points("gradient_shap", "random", model, batch, 0)(torch.tensor([0]), torch.tensor([0])).shape
    torch.Size([1, 3])
    """
    if isinstance(baseline, Examples):
        baseline = in_shape_of(baseline, batch.x.shape[1:])
        baseline.check_shape(batch.x.shape[1:])
        values = model.inputs(baseline.batch.to(model.device)).detach()
        return pool_draws(name, batch, values, seed)
    if not isinstance(baseline, str):
        return baseline
    if baseline == REFERENCES:
        raise UserError(
            f"{name} has references as its baseline, which a study knows; here give samples: baseline=x"
        )
    key = rand.keys(seed, batch.ids, f"{name} baseline").to(model.device)
    shape = model.inputs(batch).shape[1:]

    def random_baseline(row: Tensor, draw: Tensor) -> Tensor:
        """Return R baselines of normal numbers: one for draw[r] of sample row[r]."""
        noise = rand.normal(rand.fold(key[row], draw), shape)
        return batch[row].carried(noise)

    return random_baseline


def pool_draws(
    name: str, batch: Batch, values: Tensor, seed: int, weights: Tensor | None = None
) -> Pick:
    """Return a function (sample, draw) → values that picks rows of a pool, `values` (n, …), at random.

    Each sample has its own random order of the rows, from which they are taken in turn. Unequal `weights` (n,) are
    probabilities, and then rows are drawn with replacement.

    >>> pick = pool_draws("mine", Batch(("a",), torch.zeros(1, 1)), torch.tensor([[1.0], [2.0]]), seed=0)
    >>> sorted(pick(torch.tensor([0, 0]), torch.tensor([0, 1])).flatten().tolist())
    [1.0, 2.0]
    """
    padded = sorted({"mask", "attention_mask"} & set(batch.aux))
    if padded:
        raise UserError(
            f"{name} cannot take values from a pool for samples of different sizes (aux has {padded[0]!r}), for their "
            "places do not correspond; leave the pool out"
        )
    key = rand.keys(seed, batch.ids, name).to(values.device)
    n = len(values)
    if weights is None or bool((weights == weights[0]).all()):
        order = rand.permutation(key, n)
        return lambda row, draw: values[order[row, draw % n]]
    cumulative = weights.to(values.device).cumsum(0)

    def by_weight(row: Tensor, draw: Tensor) -> Tensor:
        """Return R rows of the pool: the one whose interval of cumulative weights a uniform number falls into."""
        uniform = rand.uniform(rand.fold(key[row], draw), (1,))[:, 0].double()
        return values[torch.searchsorted(cumulative, uniform).clamp(max=n - 1)]

    return by_weight

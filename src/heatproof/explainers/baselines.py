"""Baselines, from which methods that follow a path start: one value, noise, or samples of a pool."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.explainers.examples.training_set import Examples, examples
from heatproof.models import Model
from heatproof.types import Batch

REFERENCES: Final = "references"
"""The baseline that stands for the reference samples of the study's data, which the plan fills in."""
Pick = Callable[[Tensor, Tensor], Tensor]
"""(sample number, draw number), (R,) each → values (R, …)."""


def _parse_baseline(value: Any) -> Any:
    if isinstance(value, str) and value in ("random", REFERENCES):
        return value
    return examples(value)


Baseline = Annotated[
    Literal["random", "references"] | Annotated[float, Field(allow_inf_nan=False)] | Examples,
    BeforeValidator(_parse_baseline),
]
"""A number, "random", "references" or samples: the type of the field `baseline`."""


def starting_points(
    name: str, baseline: float | str | Examples, model: Model, batch: Batch, seed: int
) -> Pick | float:
    """Return where the paths of explainer `name` start, in units of the normalised input.

    A number is the same at every position, so transforming the sample does not change it. "random" baselines are
    standard normal numbers, drawn by seed, sample and draw; they belong to positions and move with a moved sample.
    Samples of a pool are drawn without replacement, and do not move with the sample.

    >>> model, batch = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3))
    >>> starting_points("gradient_shap", "random", model, batch, 0)(torch.tensor([0]), torch.tensor([0])).shape
    torch.Size([1, 3])
    """
    if isinstance(baseline, Examples):
        baseline.check_shape(batch.x.shape[1:])
        values = model.inputs(baseline.batch.to(model.device)).detach()
        return pool_draws(name, baseline, batch, values, seed)
    if not isinstance(baseline, str):
        return baseline
    if baseline == REFERENCES:
        raise UserError(
            f"{name} has references as its baseline, which a study knows; here give samples: baseline=x"
        )
    key = rand.keys(seed, batch.ids, f"{name} baseline").to(model.device)
    shape = model.inputs(batch).shape[1:]

    def random_baseline(row: Tensor, draw: Tensor) -> Tensor:
        noise = rand.normal(rand.fold(key[row], draw), shape)
        return batch[row].carried(noise)

    return random_baseline


def pool_draws(name: str, pool: Examples, batch: Batch, values: Tensor, seed: int) -> Pick:
    """Return a function that picks from the pool's `values` (n, …), in a random order of its own for each sample.

    >>> pool = Examples(Batch(("p", "q"), torch.tensor([[1.0], [2.0]])))
    >>> pick = pool_draws("mine", pool, Batch(("a",), torch.zeros(1, 1)), pool.batch.x, seed=0)
    >>> sorted(pick(torch.tensor([0, 0]), torch.tensor([0, 1])).flatten().tolist())
    [1.0, 2.0]
    """
    padded = sorted({"mask", "attention_mask"} & set(batch.aux))
    if padded:
        raise UserError(
            f"{name} cannot take values from a pool for samples of different sizes (aux has {padded[0]!r}), for their "
            "places do not correspond; leave the pool out"
        )
    order = rand.permutation(rand.keys(seed, batch.ids, name).to(values.device), len(pool))
    return lambda row, draw: values[order[row, draw % len(pool)]]

"""What methods that follow a path start from: one value, noise, or samples of a pool."""

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
"""From samples and numbers of draws, (R,) each, to values (R, …)."""


def _baseline(value: Any) -> Any:
    return value if isinstance(value, str) and value in ("random", REFERENCES) else examples(value)


Baseline = Annotated[
    Literal["random", "references"] | Annotated[float, Field(allow_inf_nan=False)] | Examples,
    BeforeValidator(_baseline),
]
"""A number, "random", "references" or samples: the type of the field `baseline`."""


def starting_points(
    name: str, baseline: float | str | Examples, model: Model, batch: Batch, seed: int
) -> Pick | float:
    """Where the paths of explainer `name` start, in units of the normalised input.

    A number is the same everywhere, which every group of permutations leaves alone. "random" are standard normal
    numbers, drawn by seed, sample and draw; they belong to places, so a moved sample has them moved. Samples of a pool
    are drawn without replacement by the same; they stay as they are when the sample moves.

    >>> model, batch = Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.rand(1, 3))
    >>> starting_points("gradient_shap", "random", model, batch, 0)(torch.tensor([0]), torch.tensor([0])).shape
    torch.Size([1, 3])
    """
    if isinstance(baseline, Examples):
        baseline.check_shape(batch.x.shape[1:])
        return pool_draws(
            name, baseline, batch, model.inputs(baseline.batch.to(model.device)).detach(), seed
        )
    if not isinstance(baseline, str):
        return baseline
    if baseline == REFERENCES:
        raise UserError(
            f"{name} has references as its baseline, which a study knows; here give samples: baseline=x"
        )
    key, shape = (
        rand.keys(seed, batch.ids, f"{name} baseline").to(model.device),
        model.inputs(batch).shape[1:],
    )
    return lambda row, draw: batch[row].carried(rand.normal(rand.fold(key[row], draw), shape))


def pool_draws(name: str, pool: Examples, batch: Batch, values: Tensor, seed: int) -> Pick:
    """Values (n, …) of the pool, in an order that each sample draws for itself.

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

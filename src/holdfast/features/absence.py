"""What takes the place of a feature that is left out: a value, or a way of its own to hide it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from pydantic import Field
from torch import Tensor

from holdfast.errors import UserError
from holdfast.explainers.masking import labels
from holdfast.features.fill import filled
from holdfast.types import Batch, name_of

if TYPE_CHECKING:
    from holdfast.models import Model

Fill = Literal["zero", "mean", "blur"] | Annotated[float, Field(allow_inf_nan=False)]


class Ground(NamedTuple):
    """Inputs to leave features out of, the features' labels, and the values in their place, inputs where they hide."""

    hides: bool
    inputs: Tensor
    segments: Tensor
    fill: Tensor


def ground(name: str, features: Any, fill: Fill, model: Model, batch: Batch) -> Ground:
    """What an explainer `name` starts from. Features with `hide` work on raw samples, all others on the model's inputs.

    >>> from holdfast.features import Pixels
    >>> from holdfast.models import Model
    >>> found = ground("lime", Pixels(), "zero", Model(torch.nn.Linear(3, 2)), Batch(("a",), torch.ones(1, 3)))
    >>> found.hides, found.segments.tolist(), found.fill.tolist()
    (False, [[0, 1, 2]], [[0.0, 0.0, 0.0]])
    """
    hides = hasattr(features, "hide")
    inputs = batch.x if hides else model.inputs(batch)
    if not hides and not inputs.is_floating_point():
        raise UserError(
            f"{name} with {name_of(features)} sets vectors to a fill, and token ids have none: "
            "use features=Tokens(...), or give Model(..., embedding=the layer's path)"
        )
    segments = labels(features, batch, inputs)
    return Ground(hides, inputs, segments, inputs if hides else filled(fill, model, batch, inputs, segments))

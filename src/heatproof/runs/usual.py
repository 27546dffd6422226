"""What a study leaves open, filled in with what is usual for its models and data: tasks, readouts, pools, features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from heatproof.axes import Adopted
from heatproof.axes.faithfulness.kinds import usual_windows
from heatproof.data import Data
from heatproof.errors import UserError
from heatproof.explainers.baselines import REFERENCES
from heatproof.explainers.examples.training_set import examples
from heatproof.features import Elements, Patches, Pixels, Slic, Superpixels
from heatproof.models import Model
from heatproof.models.guards import has_one_output
from heatproof.models.modality import modality
from heatproof.models.model import ONE_OUTPUT
from heatproof.models.tasks import Binary, has_probability
from heatproof.runs.references import load_references
from heatproof.types import Batch, Function

OF_IMAGES = (Patches, Superpixels, Slic)
"""The features that explainers and evaluations have by default, which only images have."""


def with_evident_task(model: Model, datasets: Mapping[str, Data]) -> Model:
    """The model, read as yes or no where it has one output and the labels are 0 and 1; an open one is refused.

    How many outputs a network has is looked up in its last layer; where that does not tell, the first pass does.
    """
    if model.declared is not None or not has_one_output(model.module):
        return model
    labels = [label for data in datasets.values() for label in data.labels or ()]
    if set(labels) - {-1} == {0, 1}:
        return model.asked(Binary())
    raise UserError(f"{model.name} {ONE_OUTPUT}")


def with_usual_readouts(
    explainers: Mapping[str, Any], models: Mapping[str, Model]
) -> dict[str, Any]:
    """Explainers that read a probability unless told otherwise read the number itself where there is none."""
    if all(has_probability(model.task) for model in models.values()):
        return dict(explainers)
    return {
        name: replace(item, readout="logit")
        if getattr(item, "readout", "") == "probability"
        else item
        for name, item in explainers.items()
    }


def with_references(
    explainers: Mapping[str, Any], datasets: Mapping[str, Data], seed: int, count: int | None
) -> dict[str, Any]:
    """Explainers whose baseline or background are the references of the data with these samples as their pool."""
    fields_of = ("baseline", "background")
    named = {
        n: f
        for n, item in explainers.items()
        for f in fields_of
        if str(getattr(item, f, "")) == REFERENCES
    }
    if not named:
        return dict(explainers)
    if len(datasets) > 1:
        raise UserError(
            f"{min(named)} takes its baselines from the data, and the study has {len(datasets)} of them; "
            "name the samples, as in baseline: path, or run one study for each"
        )
    pool = examples(load_references(next(iter(datasets.values())), seed, count))
    filled = {
        n: replace(explainers[n], **{f: pool if f == "baseline" else pool.batch.x})
        for n, f in named.items()
    }
    return {**explainers, **filled}


def with_usual_features(
    items: Mapping[str, Any], models: Mapping[str, Model], first: Batch
) -> dict[str, Any]:
    """Explainers or evaluations whose features were left at those of images with the usual ones of other data.

    These are the columns of tables, windows of series, cubes of volumes, elements of sets and nodes of graphs.

    >>> import torch
    >>> from heatproof.explainers import Lime
    >>> row = Batch(("a",), torch.zeros(1, 4))
    >>> with_usual_features({"lime": Lime()}, {"net": Model(torch.nn.Linear(4, 2))}, row)["lime"].features
    Pixels()
    """
    for model in models.values():
        kind = modality(model, first)
        items = {name: _with_usual_features(item, kind, first) for name, item in items.items()}
    return dict(items)


def _with_usual_features(item: Any, kind: str, first: Batch) -> Any:
    if isinstance(item, Adopted):
        return replace(item, of=_with_usual_features(item.of, kind, first))
    if isinstance(item, Function):
        return replace(item, call=_with_usual_features(item.call, kind, first))
    features = getattr(item, "features", None)
    if not isinstance(features, OF_IMAGES) or not is_dataclass(item) or isinstance(item, type):
        return item
    usual: dict[str, Any] = {"table": Pixels(), "set": Elements(), "graph": Elements()}
    if kind == "series":
        usual["series"] = usual_windows(first.x.shape[-1])
    if kind == "volume":
        usual["volume"] = Patches(size=max(1, min(first.x.shape[2:]) // 4))
    left_open = any(
        field.name == "features" and field.default == features for field in fields(item)
    )
    return replace(item, features=usual[kind]) if left_open and kind in usual else item

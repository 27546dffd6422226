"""What a study leaves open, filled in with what is usual for its models and data: tasks, readouts, pools, features."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass, replace
from typing import Any

from heatproof.axes import Adopted
from heatproof.data import Data
from heatproof.errors import UserError
from heatproof.explainers.baselines import REFERENCES
from heatproof.explainers.examples.training_set import examples
from heatproof.features import with_default_features
from heatproof.kinds import DataKind, kind_of
from heatproof.models import Model
from heatproof.models.guards import has_one_output
from heatproof.models.model import ONE_OUTPUT
from heatproof.models.tasks import Binary
from heatproof.runs.references import load_references
from heatproof.types import Batch


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
    evaluations: Mapping[str, Any], models: Mapping[str, Model], first: Batch
) -> dict[str, Any]:
    """Evaluations whose features were left at those of images with the usual ones of other data."""
    for model in models.values():
        kind = kind_of(model, first)
        evaluations = {
            name: _with_usual_features(item, kind, first) for name, item in evaluations.items()
        }
    return dict(evaluations)


def _with_usual_features(item: Any, kind: DataKind, first: Batch) -> Any:
    if isinstance(item, Adopted):
        return replace(item, of=_with_usual_features(item.of, kind, first))
    if not hasattr(item, "features") or not is_dataclass(item):
        return item
    return with_default_features(item, kind, first.x.shape[1:])

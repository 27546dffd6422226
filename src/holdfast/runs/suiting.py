"""What explainers and axes leave open, chosen for the kind of data that they are to judge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from holdfast.axes.faithfulness.kinds import usual_windows
from holdfast.features import Elements, Patches, Pixels, Slic, Superpixels
from holdfast.models import Model
from holdfast.models.modality import modality
from holdfast.types import Batch, Function

OF_IMAGES = (Patches, Superpixels, Slic)


def suited(items: Mapping[str, Any], models: Mapping[str, Model], first: Batch) -> dict[str, Any]:
    """The explainers or axes as they are meant for data such as this sample.

    One with a method `suited(model, batch)` says so itself. Features that were left at those of images become the usual
    ones of the data: columns of tables, windows of series, elements of sets and nodes of graphs.

    >>> import torch
    >>> from holdfast.explainers import KernelShap
    >>> row = Batch(("a",), torch.zeros(1, 4))
    >>> suited({"kernel_shap": KernelShap()}, {"net": Model(torch.nn.Linear(4, 2))}, row)["kernel_shap"].features
    Pixels()
    """
    found = dict(items)
    for model in models.values():
        for name, item in found.items():
            chosen = item.suited(model, first) if hasattr(item, "suited") else item
            found[name] = _with_usual_features(chosen, modality(model, first), first)
    return found


def _with_usual_features(item: Any, kind: str, first: Batch) -> Any:
    if isinstance(item, Function):
        return replace(item, call=_with_usual_features(item.call, kind, first))
    given = getattr(item, "features", None)
    if not isinstance(given, OF_IMAGES) or not is_dataclass(item) or isinstance(item, type):
        return item
    usual: dict[str, Any] = {"table": Pixels(), "set": Elements(), "graph": Elements()}
    if kind == "series":
        usual["series"] = usual_windows(first.x.shape[-1])
    left_open = any(field.name == "features" and field.default == given for field in fields(item))
    return replace(item, features=usual[kind]) if left_open and kind in usual else item

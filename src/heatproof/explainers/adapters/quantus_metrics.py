"""Adapter for the metrics of Quantus, as evaluations."""

from __future__ import annotations

import copy
import functools
import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Tensor, nn

from heatproof.batching import repeat_channels
from heatproof.errors import UserError
from heatproof.evaluation import CLEAN, Condition, Scores
from heatproof.explainers.adapters.foreign import Arguments, Object, unwrapped
from heatproof.explainers.adapters.isolation import (
    check_network,
    foreign_errors,
    library_seed,
    own_network,
    seeded,
)
from heatproof.maps.undefined import NOT_FINITE, reasons
from heatproof.models import Model
from heatproof.subject import Subject
from heatproof.types import Batch, Explainer, parameter_class

ON_CLEAN_MAPS = (
    "quantus.metrics.faithfulness",
    "quantus.metrics.complexity",
    "quantus.metrics.localisation",
)
"""The modules of Quantus' metrics that only read the given maps; all others ask for maps of other inputs."""


@parameter_class
class QuantusMetric:
    """A metric of Quantus as an evaluation: one number per sample, for the class that the model predicts.

    `metric` is an object such as `quantus.PixelFlipping(return_auc_per_sample=True)`, or anything that is called like
    one: `metric(model=…, x_batch=…, y_batch=…, a_batch=…, …) -> list`. It gets the torch module, normalised inputs,
    predicted classes and clean maps, one sample at a time under seeded global generators, so scores depend neither on
    the batch nor on the order. `arguments` go to the call. A metric that gives several numbers per sample needs
    `reduce="mean"`. The measure is called "quantus_" and the name of the metric's class.

    `reexplains` says whether the metric asks for maps of other inputs or networks, as Quantus' metrics of robustness,
    randomisation and axioms do; it then gets an `explain_func` that calls the explainer under test.

    >>> def mean_of_map(model, x_batch, y_batch, a_batch):
    ...     return [float(a_batch.mean())]
    >>> QuantusMetric(mean_of_map, reexplains=False).measure
    'quantus_mean_of_map'
    """

    name: ClassVar[str] = "quantus"

    metric: Object
    arguments: Arguments = None
    reduce: Literal["mean"] | None = None
    reexplains: bool | None = None

    def __post_init__(self) -> None:
        """Check that the metric is an object, and find out from its module whether it asks for maps of other inputs."""
        if not callable(self.metric.value) or isinstance(self.metric.value, type):
            raise UserError(
                f"a metric is an object such as quantus.PixelFlipping(), got {self.metric.value!r}"
            )
        if self.reexplains is None:
            on_clean_maps = type(self.metric.value).__module__.startswith(ON_CLEAN_MAPS)
            object.__setattr__(self, "reexplains", not on_clean_maps)

    @property
    def measure(self) -> str:
        """The name of the column of scores."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", self.metric.name)
        return f"quantus_{words.lower()}"

    def conditions(self) -> list[Condition]:
        """One: the data as they are."""
        return [CLEAN]

    def __call__(self, subject: Subject) -> Iterator[Scores]:
        """Yield the metric's scores of the samples' maps, one column per explainer.

        A sample whose map or model output is not finite is not scored; a score that is not finite is undefined.
        """
        check_network(f"quantus({self.metric})", subject.model)
        is_finite = torch.isfinite(subject.readout).tolist()
        output_reasons = ["" if finite else NOT_FINITE for finite in is_finite]
        for explainer in subject.explainers:
            maps = subject.maps(explainer)
            map_reasons = reasons(maps, "the map")
            skip_reasons = []
            for output_reason, map_reason in zip(output_reasons, map_reasons, strict=True):
                skip_reasons.append(output_reason or map_reason)
            rows = [i for i, reason in enumerate(skip_reasons) if not reason]
            scores = [self._score(subject, explainer, i, maps[i : i + 1]) for i in rows]
            yield Scores.column(
                explainer,
                self.measure,
                CLEAN,
                torch.tensor(scores, dtype=torch.float64),
                skip_reasons,
                rows=torch.tensor(rows, dtype=torch.int64),
                missing=[f"{self.metric} gave {score}" for score in scores],
            )

    def _score(self, subject: Subject, explainer: str, row: int, maps: Tensor) -> float:
        """Return the metric's number for one sample, whose map is `maps` (1, …)."""
        model = subject.model
        sample = subject.batch[[row]].to(model.device)
        sample_id = sample.ids[0]
        arguments = unwrapped(self.arguments)
        if self.reexplains:
            arguments["explain_func"] = _explain_func(subject, explainer, sample_id)
        # A metric stores the scores of its calls, so each sample gets a copy.
        metric = copy.deepcopy(self.metric.value)
        label = f"quantus({self.metric})"
        with (
            foreign_errors(label, sample.ids),
            seeded(library_seed(subject.seed, sample_id), model.device),
        ):
            returned = metric(
                model=own_network(model, sample.aux),
                x_batch=model.inputs(sample).detach().cpu().numpy(),
                y_batch=subject.target[[row]].cpu().numpy(),
                a_batch=maps.cpu().numpy(),
                **arguments,
            )
        return self._number(returned, label)

    def _number(self, returned: Any, label: str) -> float:
        """Return the number that a metric returned for a sample, or the mean of several with reduce="mean".

        NaN if it returned none. `label` names the metric in the error for several numbers without `reduce`.
        """
        numbers = _flat(returned)
        if len(numbers) != 1 and self.reduce is None:
            raise UserError(
                f"{label} gave {len(numbers)} numbers for one sample; ask the metric for one, as with "
                'return_auc_per_sample=True, or say reduce="mean"'
            )
        return math.nan if not numbers else float(np.mean(numbers))


def unnormalised(model: Model, inputs: Tensor) -> Tensor:
    """Return data in their own units from normalised inputs (B, C, …): inputs · std + mean.

    >>> model = Model(nn.Flatten(), mean=0.5, std=0.25)
    >>> unnormalised(model, model.inputs(Batch(("a",), torch.full((1, 3, 2, 2), 0.75)))).unique()
    tensor([0.7500])
    """
    per_channel = (1, -1, *[1] * (inputs.ndim - 2))
    if model.std is not None:
        inputs = inputs * torch.tensor(model.std, device=inputs.device).reshape(per_channel)
    if model.mean is not None:
        inputs = inputs + torch.tensor(model.mean, device=inputs.device).reshape(per_channel)
    return inputs


def _explain_func(subject: Subject, explainer_name: str, sample: str) -> Callable[..., Any]:
    """Return the explainer under test in the form of Quantus' `explain_func`: (model, inputs, targets) → maps.

    Quantus calls it for changed versions of one sample and for networks with random weights, so the network is that of
    the call. `sample` is the id of the sample, whose random numbers all versions share.
    """
    return functools.partial(
        _explain_for_quantus,
        explainer=subject.explainers[explainer_name],
        explainer_name=explainer_name,
        tested_model=subject.model,
        sample_id=sample,
        seed=subject.seed,
    )


def _explain_for_quantus(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    device: Any = None,
    *,
    explainer: Explainer,
    explainer_name: str,
    tested_model: Model,
    sample_id: str,
    seed: int,
) -> Any:
    """Return maps of a network in the shape of the `inputs`, as Quantus' metrics ask an `explain_func` for them.

    Quantus calls it with a network, normalised inputs (B, …) and classes (B,), as arrays; `device` is part of the call and
    not needed. Our explainers normalise by themselves, with the mean and std of the model under test, so the normalisation
    of the inputs is undone first. All inputs are versions of the sample `sample_id`.
    """
    wrapped = Model(
        model,
        tested_model.mean,
        tested_model.std,
        tested_model.classes,
        name=tested_model.name,
        rows=tested_model.rows,
    )
    values = torch.as_tensor(np.asarray(inputs), dtype=torch.float32, device=wrapped.device)
    classes = torch.as_tensor(np.asarray(targets), dtype=torch.int64, device=wrapped.device)
    batch = Batch((sample_id,) * len(values), unnormalised(wrapped, values))
    maps = explainer(wrapped, batch, classes.reshape(-1), seed).detach().float()
    return repeat_channels(maps, values.shape, explainer_name).cpu().numpy()


def _flat(returned: Any) -> list[float]:
    """Return all numbers in what a metric returned: nested mappings, sequences and arrays."""
    if isinstance(returned, Mapping):
        returned = list(returned.values())
    if not isinstance(returned, list | tuple):
        return [float(value) for value in np.asarray(returned, dtype=np.float64).reshape(-1)]
    numbers = []
    for value in returned:
        numbers.extend(_flat(value))
    return numbers

"""Measures both ways: a metric of Quantus as an evaluation here, and an evaluation here as a metric of Quantus."""

from __future__ import annotations

import copy
import math
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import Tensor, nn

from holdfast.errors import UserError, unknown
from holdfast.explainers.adapters.attributions import Quantus
from holdfast.explainers.adapters.foreign import Arguments, Object, unwrapped
from holdfast.explainers.adapters.isolation import check_network, foreign_errors, library_seed, own_network, seeded
from holdfast.explainers.adapters.maps import Precomputed
from holdfast.models import Model
from holdfast.models.batches import as_inputs
from holdfast.types import OK, STRICT, UNDEFINED, Batch, Scores, Subject

CONDITION = "clean"
ON_CLEAN_MAPS = ("faithfulness", "complexity", "localisation")
"""The groups of Quantus' metrics that only look at the maps they are given."""


@dataclass(frozen=True, config=STRICT)
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
        if not callable(self.metric.value) or isinstance(self.metric.value, type):
            raise UserError(f"a metric is an object such as quantus.PixelFlipping(), got {self.metric.value!r}")
        if self.reexplains is None:
            group = type(self.metric.value).__module__.split(".")[:3]
            object.__setattr__(self, "reexplains", not (group[0] == "quantus" and group[-1] in ON_CLEAN_MAPS))

    @property
    def measure(self) -> str:
        """The name of the column of scores."""
        words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", self.metric.name)
        return f"quantus_{words.lower()}"

    def conditions(self) -> list[tuple[str, float]]:
        """One: the data as they are."""
        return [(CONDITION, 0.0)]

    def __call__(self, subject: Subject) -> Iterator[Scores]:
        """One column per explainer; a map or a score that is not finite is undefined."""
        from holdfast.maps.undefined import NOT_FINITE, reasons

        check_network(f"quantus({self.metric})", subject.model)
        lost = ["" if ok else NOT_FINITE for ok in torch.isfinite(subject.probability).tolist()]
        for explainer in subject.explainers:
            maps = subject.clean(explainer)
            why = [a or b for a, b in zip(lost, reasons(maps, "the map"), strict=True)]
            value = torch.full((len(why),), torch.nan, dtype=torch.float64)
            for i, reason in enumerate(why):
                if not reason:
                    value[i] = self._score(subject, explainer, i, maps[i : i + 1])
                    why[i] = "" if bool(torch.isfinite(value[i])) else f"{self.metric} gave {float(value[i])}"
            status = torch.tensor([UNDEFINED if reason else OK for reason in why], dtype=torch.int64)
            value[status != OK] = torch.nan
            yield Scores(explainer, self.measure, CONDITION, 0.0, value, status, tuple(why))

    def _score(self, subject: Subject, explainer: str, place: int, maps: Tensor) -> float:
        model, sample = subject.model, subject.batch[[place]].to(subject.model.device)
        given = unwrapped(self.arguments)
        if self.reexplains:
            given["explain_func"] = _explain_func(subject, explainer, sample.ids[0])
        # A metric keeps the scores of its calls, so each sample gets one of its own.
        metric = copy.deepcopy(self.metric.value)
        label = f"quantus({self.metric})"
        with foreign_errors(label, sample.ids), seeded(library_seed(subject.seed, sample.ids[0]), model.device):
            found = metric(
                model=own_network(model, sample.aux),
                x_batch=model.inputs(sample).detach().cpu().numpy(),
                y_batch=subject.target[[place]].cpu().numpy(),
                a_batch=maps.cpu().numpy(),
                **given,
            )
        return self._number(found, label)

    def _number(self, found: Any, label: str) -> float:
        numbers = _flat(found)
        if len(numbers) != 1 and self.reduce is None:
            raise UserError(
                f"{label} gave {len(numbers)} numbers for one sample; ask the metric for one, as with "
                'return_auc_per_sample=True, or say reduce="mean"'
            )
        return math.nan if not numbers else float(np.mean(numbers))


@dataclass(frozen=True, config=STRICT)
class QuantusStyle:
    """A measure of holdfast with the call of a metric of Quantus: a list with one number per sample.

    `evaluation` is an object such as `Stability(perturbations="jpeg")`, `measure` the name of one of its columns, such
    as "fass" or "road". The number of a sample is the mean over the conditions in which it was scored, and nan where
    it was in none. `mean` and `std` are what `x_batch` was normalised with: perturbations and imputers work on values
    in [0, 1]. holdfast judges explanations of the predicted class, so a sample whose `y_batch` is another class has
    nan.

    >>> from holdfast import Faithfulness
    >>> road = QuantusStyle(Faithfulness(imputers="zero", metrics=("road",), features="pixels"), "road")
    >>> def gradient(model, inputs, targets):
    ...     return model[1].weight[targets].reshape(inputs.shape).numpy()
    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 8 * 8, 4))
    >>> x = torch.rand(2, 3, 8, 8)
    >>> len(road(net, x.numpy(), net(x).argmax(1).numpy(), explain_func=gradient))
    2
    """

    evaluation: Any
    measure: str
    mean: Any = None
    std: Any = None
    draws: bool = True

    def __call__(
        self,
        model: nn.Module,
        x_batch: Any,
        y_batch: Any,
        a_batch: Any = None,
        s_batch: Any = None,
        channel_first: bool | None = None,
        explain_func: Any = None,
        explain_func_kwargs: Mapping[str, Any] | None = None,
        model_predict_kwargs: Mapping[str, Any] | None = None,
        softmax: bool | None = None,
        device: str | None = None,
        batch_size: int = 64,
        custom_batch: Any = None,
    ) -> list[float]:
        """Scores of B samples from arrays `x_batch` (B, C, …), `y_batch` (B,) and maps `a_batch` or `explain_func`."""
        from holdfast.runs.run import evaluate

        if channel_first is False:
            raise UserError("x_batch has its channels last; transpose it, as torch has them first")
        wrapped = Model(model, self.mean, self.std, name="model", device=device)
        inputs = torch.as_tensor(np.asarray(x_batch), dtype=torch.float32)
        ids = tuple(f"{i:06d}" for i in range(len(inputs)))
        batch = Batch(ids, unnormalised(wrapped, inputs))
        item = self._explainer(ids, a_batch, explain_func, explain_func_kwargs)
        with tempfile.TemporaryDirectory() as folder:
            run = evaluate(
                wrapped, batch, {"given": item}, {"axis": self.evaluation}, folder,
                batch_size=batch_size, show_progress=False,
            )  # fmt: skip
            table, samples = run.table(), run.samples()
        known = sorted(set(table["measure"]))
        if self.measure not in known:
            raise unknown("measure", self.measure, known)
        rows = table[(table["measure"] == self.measure) & (table["status"] == "ok")]
        scores = rows.groupby("sample")["value"].mean().reindex(list(ids)).tolist()
        predicted = samples.set_index("sample")["predicted"].reindex(list(ids)).tolist()
        wanted = np.asarray(y_batch).reshape(-1).tolist()
        return [float(s) if p == w else math.nan for s, p, w in zip(scores, predicted, wanted, strict=True)]

    def _explainer(self, ids: Sequence[str], maps: Any, func: Any, arguments: Mapping[str, Any] | None) -> Any:
        reexplains = getattr(self.evaluation, "reexplains", True)
        if maps is not None and not reexplains:
            return Precomputed(dict(zip(ids, np.asarray(maps), strict=True)))
        if func is None:
            needs = "explain_func, as it explains other inputs too" if reexplains else "a_batch or explain_func"
            raise UserError(f"{self.measure} needs {needs}")
        return Quantus(func, arguments or None, draws=self.draws)


def unnormalised(model: Model, inputs: Tensor) -> Tensor:
    """The data whose normalised form `inputs` (B, C, …) are.

    >>> model = Model(nn.Flatten(), mean=0.5, std=0.25)
    >>> unnormalised(model, model.inputs(Batch(("a",), torch.full((1, 3, 2, 2), 0.75)))).unique()
    tensor([0.7500])
    """
    for values, is_std in ((model.std, True), (model.mean, False)):
        if values is not None:
            shaped = torch.tensor(values, device=inputs.device).reshape(1, -1, *[1] * (inputs.ndim - 2))
            inputs = inputs * shaped if is_std else inputs + shaped
    return inputs


def _explain_func(subject: Subject, explainer: str, sample: str) -> Any:
    """The explainer under test as a function of (model, inputs, targets), for versions of one sample.

    The network is that of the call, for Quantus also asks about networks with random weights.
    """
    tested, item = subject.model, subject.explainers[explainer]

    def explain_func(model: nn.Module, inputs: Any, targets: Any, device: Any = None) -> Any:
        wrapped = Model(model, tested.mean, tested.std, tested.classes, name=tested.name, rows=tested.rows)
        values = torch.as_tensor(np.asarray(inputs), dtype=torch.float32, device=wrapped.device)
        batch = Batch((sample,) * len(values), unnormalised(wrapped, values))
        classes = torch.as_tensor(np.asarray(targets), dtype=torch.int64, device=wrapped.device).reshape(-1)
        maps = item(wrapped, batch, classes, subject.seed).detach().float()
        return as_inputs(maps, values.shape, explainer).cpu().numpy()

    return explain_func


def _flat(found: Any) -> list[float]:
    """All numbers in what a metric returned."""
    if isinstance(found, Mapping):
        return [number for value in found.values() for number in _flat(value)]
    if isinstance(found, list | tuple):
        return [number for value in found for number in _flat(value)]
    return [float(value) for value in np.asarray(found, dtype=np.float64).reshape(-1)]

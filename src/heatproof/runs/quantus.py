"""Evaluations with the call of a metric of Quantus."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from pydantic.dataclasses import dataclass
from torch import nn

from heatproof.errors import UserError, unknown
from heatproof.explainers.adapters.attributions import Quantus
from heatproof.explainers.adapters.maps import Precomputed
from heatproof.explainers.adapters.quantus_metrics import unnormalised
from heatproof.models import Model
from heatproof.runs.atomic import scratch
from heatproof.runs.evaluate import evaluate
from heatproof.runs.study import registry
from heatproof.types import STRICT, Batch


@dataclass(frozen=True, config=STRICT)
class QuantusStyle:
    """A measure of heatproof with the call of a metric of Quantus: a list with one number per sample.

    `evaluation` is an object such as `Stability(perturbations="jpeg")`, `measure` the name of one of its columns, such
    as "fass" or "road". The number of a sample is the mean over the conditions in which it was scored, and nan where
    it was in none. `mean` and `std` are what `x_batch` was normalised with: perturbations and imputers work on values
    in [0, 1]. heatproof judges explanations of the predicted class, so a sample whose `y_batch` is another class has
    nan.

    >>> from heatproof import Faithfulness
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
        if channel_first is False:
            raise UserError("x_batch has its channels last; transpose it, as torch has them first")
        wrapped = Model(model, self.mean, self.std, name="model", device=device)
        inputs = torch.as_tensor(np.asarray(x_batch), dtype=torch.float32)
        ids = tuple(f"{i:06d}" for i in range(len(inputs)))
        batch = Batch(ids, unnormalised(wrapped, inputs))
        judge = registry.evaluations({"judged": self.evaluation})
        item = self._explainer(
            judge["judged"].reexplains, ids, a_batch, explain_func, explain_func_kwargs
        )
        with scratch() as folder:
            run = evaluate(
                wrapped,
                batch,
                {"given": item},
                judge,
                folder,
                batch_size=batch_size,
                show_progress=False,
            )
            table, samples = run.table(), run.samples()
        known = sorted(set(table["measure"]))
        if self.measure not in known:
            raise unknown("measure", self.measure, known)
        rows = table[(table["measure"] == self.measure) & (table["status"] == "ok")]
        scores = rows.groupby("sample")["value"].mean().reindex(list(ids)).tolist()
        predicted = samples.set_index("sample")["predicted"].reindex(list(ids)).tolist()
        wanted = np.asarray(y_batch).reshape(-1).tolist()
        return [
            float(s) if p == w else math.nan
            for s, p, w in zip(scores, predicted, wanted, strict=True)
        ]

    def _explainer(
        self,
        reexplains: bool,
        ids: Sequence[str],
        maps: Any,
        func: Any,
        arguments: Mapping[str, Any] | None,
    ) -> Any:
        if maps is not None and not reexplains:
            return Precomputed(dict(zip(ids, np.asarray(maps), strict=True)))
        if func is None:
            needs = (
                "explain_func, as it explains other inputs too"
                if reexplains
                else "a_batch or explain_func"
            )
            raise UserError(f"{self.measure} needs {needs}")
        return Quantus(func, arguments or None, draws=self.draws)

"""Sanity checks: what becomes of a map when the weights are random, or when another class is asked about?"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Annotated, ClassVar, Literal, get_args

import torch
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof import rand
from heatproof.axes.dependence.change import Changed, Clean, change_scores, changed, entropy_rise
from heatproof.errors import UserError
from heatproof.evaluation import REDRAW, Better, Condition, Exhibit, Measure, Role, Scores, Subject
from heatproof.explainers.precision import Agreed
from heatproof.maps.chance import K, check_k
from heatproof.maps.complexity import entropy, gini
from heatproof.maps.undefined import reasons
from heatproof.models import Model
from heatproof.models.batches import Workbench
from heatproof.models.modality import modality
from heatproof.models.randomised import (
    Scheme,
    is_randomisable,
    layers_in_order,
    random_weights,
    with_weights,
)
from heatproof.models.tasks import Answer
from heatproof.types import STRICT, Batch, Complete

_UNIT: tuple[Better, Role, tuple[float, float]] = ("neither", "component", (0.0, 1.0))
_HEAD = (
    "(1 − similarity) / (1 − chance): 0 the map stays, 1 it changes as between unrelated samples"
)
MEASURES = (
    Measure("dependence", "Dependence", _HEAD, "neither", "headline"),
    Measure(
        "class_dependence",
        "Class dependence",
        "the same when another class is explained",
        "neither",
        "component",
    ),
    Measure(
        "similarity", "Similarity", "mean of the next three; tables have no ssim", *_UNIT, "column"
    ),
    Measure("ssim", "SSIM", "structural similarity of maps scaled to [0, 1]", *_UNIT, "column"),
    Measure("spearman", "Spearman", "rank correlation ρ, as (ρ + 1) / 2", *_UNIT, "column"),
    Measure("jaccard", "Jaccard", "overlap of the k largest values", *_UNIT, "column"),
    Measure(
        "entropy_rise",
        "Rise of entropy",
        "relative, from the model to random weights",
        "neither",
        "component",
    ),
    Measure("gini", "Gini", "sparseness of the map: 0 even, 1 a single value", *_UNIT),
    Measure(
        "entropy", "Entropy", "of the map’s shares, by log n: 1 even, 0 a single value", *_UNIT
    ),
    Measure(
        "completeness_gap",
        "Completeness gap",
        "|Σa − Δ| / (|Σa| + |Δ|), Δ what the map promises",
        "lower",
        *_UNIT[1:],
    ),
    Measure(
        "error_reached",
        "Error reached",
        "of the map by its size, by a method asked for one",
        "lower",
        "component",
    ),
    Measure(
        "capped",
        "Capped",
        "1 where the ladder of counts ended before the error asked for",
        "lower",
        *_UNIT[1:],
    ),
    Measure(
        "passes",
        "Passes per map",
        "inputs that go through the network for one map",
        "lower",
        "cost",
    ),
)
"""What is known of the measures of the axis, the first of which speaks for it."""

Cascade = Literal["top_down", "bottom_up"]
CASCADES: tuple[str, ...] = get_args(Cascade)
WEIGHTS, CLASS, CLEAN = "weights", "class", "clean"


@dataclass(frozen=True, config=STRICT)
class Dependence:
    """Explain the predicted class again under random weights, and other classes under the model, and compare the maps.

    For every map: SSIM, (Spearman + 1) / 2, top-k Jaccard and their mean, `similarity` s, each beside the same against
    maps of other samples under the model (`_chance`, c), and `dependence` = (1 − s) / (1 − c). It is exactly 0 where
    the map stays as it is, for both are drawn with the same random numbers, and 1 where the map is as unlike itself as
    maps of unrelated samples are. Noise that knows the weights scores 1 too, so more is not better.

    All layers are randomised at once, in `draws` networks that are made once per run; `scheme` is that of
    `heatproof.models.randomised`, and `batch_norms` get the statistics of the reference samples or keep their own.
    `cascades` randomise `steps` growing shares of the layers, from the output ("top_down") or from the input
    ("bottom_up"). `classes` other classes of each sample are drawn by its id. Sparseness, entropy and its rise under
    random weights, the gap to what the map promises to sum to, and passes per map stand beside them.

    >>> Dependence(cascades="top_down", steps=2).conditions()
    [('weights', 0.0), ('class', 0.0), ('clean', 0.0), ('top_down', 0.5), ('top_down', 1.0)]
    """

    name: ClassVar[str] = "dependence"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = True

    draws: Annotated[int, Field(ge=0)] = 3
    classes: Annotated[int, Field(ge=0)] = 1
    scheme: Scheme = "permute"
    batch_norms: Literal["refit", "keep"] = "refit"
    cascades: Annotated[
        tuple[Cascade, ...], BeforeValidator(lambda v: (v,) if isinstance(v, str) else v)
    ] = ()
    steps: Annotated[int, Field(ge=1)] = 8
    k: K | Literal["usual"] = "usual"
    noise_floor: bool = True

    def conditions(self) -> list[Condition]:
        """Random weights, other classes, the map itself, and every step of every cascade."""
        asked = {WEIGHTS: self.draws, CLASS: self.classes, CLEAN: 1}
        steps = [
            (cascade, step / self.steps)
            for cascade in self.cascades
            for step in range(1, self.steps + 1)
        ]
        return [
            *((name, 0.0) for name, wanted in asked.items() if wanted),
            *(steps if self.draws else ()),
        ]

    def check(self, shape: Sequence[int]) -> None:
        """Refuse maps too small for k; `shape` is that of a sample."""
        check_k(self.k, shape, self.name)

    def suited(self, model: Model, batch: Batch) -> Dependence:
        """The axis itself; a model without weights to draw anew is refused, unless only classes are asked about."""
        if self.draws and not is_randomisable(model):
            raise UserError(
                f"{model.name} has no weights that can be drawn anew; draws: 0 asks about classes alone"
            )
        return self

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """One column of scores per explainer, condition, draw and measure, explainer by explainer."""
        kind = modality(subject.model, subject.batch)
        for explainer in subject.explainers:
            clean = Clean.of(subject, explainer, kind, self.k)
            yield from self._described(subject, clean)
            if self.noise_floor and subject.explainers[explainer].stochastic:
                yield from self._floor(subject, clean)
            for draw in range(self.draws):
                yield from self._randomised(subject, clean, draw)
            yield from self._other_classes(subject, clean)

    def _described(self, subject: Subject, clean: Clean) -> Iterator[Scores]:
        """What can be said of the map alone, and what it cost."""
        name, where, item = clean.explainer, (CLEAN, 0.0), subject.explainers[clean.explainer]
        yield Scores.column(name, "gini", where, gini(clean.maps), clean.reason)
        yield Scores.column(name, "entropy", where, entropy(clean.maps), clean.reason)
        if isinstance(item, Complete):
            promised = subject.compute(
                partial(item.promised, subject.model), subject.batch, subject.target
            )
            total, wanted = clean.maps.flatten(1).double().sum(1).cpu(), promised.double().cpu()
            gap = (total - wanted).abs() / (total.abs() + wanted.abs())
            yield Scores.column(
                name, "completeness_gap", where, gap, clean.reason, missing="nothing was promised"
            )
        if isinstance(agreed := getattr(item, "error", None), Agreed):
            error = torch.tensor(
                [agreed.found[sample][1] for sample in subject.batch.ids], dtype=torch.float64
            )
            yield Scores.column(name, "error_reached", where, error, [""] * len(error))
            yield Scores.column(
                name, "capped", where, (error > agreed.asked).double(), [""] * len(error)
            )
        if len(subject.references):
            target = subject.model.task.target(subject.predict(subject.references[:1]))
            before = subject.model.passes
            subject.explain(name, subject.references[:1], target)
            spent = float(subject.model.passes - before)
            known = spent or item.control  # other people's code may call the network itself
            passes = torch.full((len(subject.batch),), spent if known else torch.nan)
            yield Scores.column(
                name, "passes", where, passes, [""] * len(passes), missing="passes are not counted"
            )

    def _floor(self, subject: Subject, clean: Clean) -> Iterator[Scores]:
        """How alike two draws of the same map are."""
        again = subject.explain(clean.explainer, subject.batch, subject.target, subject.seed + 1)
        lost = zip(clean.reason, reasons(again, "the map of the second draw"), strict=True)
        second = Changed(again, [a or b for a, b in lost])
        rows = change_scores(clean, second, (REDRAW, 0.0), "dependence")
        yield from (row for row in rows if not row.measure.endswith("_chance"))

    def _randomised(self, subject: Subject, clean: Clean, draw: int) -> Iterator[Scores]:
        """Scores under one random network, and under those of which only some layers are random."""
        whole = self._explained(subject, clean, self._network(subject, draw))
        yield from change_scores(clean, whole, (WEIGHTS, 0.0), "dependence", draw, self.draws)
        yield entropy_rise(clean, whole, (WEIGHTS, 0.0), draw)
        for cascade in self.cascades:
            for step in range(1, self.steps + 1):
                share, partly = step / self.steps, whole
                if share < 1:
                    partly = self._explained(
                        subject, clean, self._network(subject, draw, cascade, share)
                    )
                yield from change_scores(
                    clean, partly, (cascade, share), "dependence", draw, self.draws, alone=True
                )

    def _explained(self, subject: Subject, clean: Clean, network: Workbench) -> Changed:
        item = subject.explainers[clean.explainer]

        def explain(batch: Batch, target: Tensor) -> Tensor:
            return network.explain(item, clean.explainer, batch, target, subject.seed)

        return changed(subject, clean, subject.target, explain, "the map of the random network")

    def _network(
        self, subject: Subject, draw: int, cascade: str = "", share: float = 1.0
    ) -> Workbench:
        """The model with a share of its layers random, made once per run."""
        refit_on = subject.references if self.batch_norms == "refit" else None

        def make(model: Model) -> Model:
            if not cascade:
                return with_weights(
                    model, random_weights(model, subject.seed, draw, self.scheme), refit_on
                )
            layers = layers_in_order(model, subject.references[:1])
            layers = layers[::-1] if cascade == "top_down" else layers
            chosen = {name for layer in layers[: math.ceil(share * len(layers))] for name in layer}
            drawn = self._network(subject, draw).model.module.named_parameters()
            return with_weights(
                model, {name: new.data for name, new in drawn if name in chosen}, refit_on
            )

        key = ("random weights", self.scheme, self.batch_norms, draw, cascade, share)
        made: Workbench = subject.once(
            key, lambda: Workbench(make(subject.model), subject.model.rows)
        )
        return made

    def _other_classes(self, subject: Subject, clean: Clean) -> Iterator[Scores]:
        """Scores for other classes of each sample, in an order drawn by its id; the lead of an answer is no class."""
        outputs = (
            1 if isinstance(subject.model.task, Answer) else subject.predict(subject.batch).shape[1]
        )
        order = rand.permutation(
            rand.keys(subject.seed, subject.batch.ids, "other class"), outputs - 1
        )
        others = order[:, : self.classes].unbind(1)
        for number, other in enumerate(others):
            target = (
                other + (other >= subject.target.cpu()).long()
            )  # all classes but the predicted one
            explain = partial(subject.explain, clean.explainer)
            now = changed(subject, clean, target, explain, "the map of the other class")
            yield from change_scores(
                clean, now, (CLASS, 0.0), "class_dependence", number, len(others)
            )

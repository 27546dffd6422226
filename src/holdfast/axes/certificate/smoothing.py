"""Smoothing by random masking: what does it buy in certificates, and what does it cost in accuracy?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain
from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator, Field, ValidationInfo
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.axes.certificate.evaluation import (
    MEASURES,
    SHARE,
    USUAL_THRESHOLD,
    Certificate,
    Explanations,
    ModeField,
    Radii,
    Share,
    Threshold,
)
from holdfast.axes.certificate.sequential import Method
from holdfast.axes.contract import Measure
from holdfast.errors import UserError
from holdfast.features import GroupingField, Patches
from holdfast.maps.undefined import NOT_FINITE
from holdfast.models import Model
from holdfast.models.smoothed import Masks, Smoothed, check_quantised
from holdfast.statistics.radii import RadiusRule
from holdfast.types import STRICT, Batch, Condition, Exhibit, Scores, Subject, label_of

SMOOTHED_MEASURES = (
    *MEASURES,
    Measure("hard_radius", "hard radius", "how many features can surely be added", "higher", "component"),
    Measure(
        "hard_radius_bernoulli",
        "hard radius, Bernoulli",
        "the same by the tighter rule for Bernoulli masks",
        "higher",
        "component",
    ),
    Measure("correct", "correct", "whether the smoothed model predicts the label", "neither", "model", SHARE),
)
"""Those of a certificate, and what only smoothing has."""

UNLABELLED = "the sample has no label"
RADIUS_MEASURES: dict[RadiusRule, str] = {"lipschitz": "hard_radius", "bernoulli": "hard_radius_bernoulli"}


def condition(keep: float) -> str:
    """The condition of the rows of one λ.

    >>> condition(0.25)
    'λ=0.25'
    """
    return f"λ={keep:g}"


def _different(keeps: tuple[float, ...]) -> tuple[float, ...]:
    if not keeps or len({condition(keep) for keep in keeps}) != len(keeps):
        raise ValueError(f"keeps must be different and at least one, got {keeps}")
    return keeps


def _possible(masks: Masks, info: ValidationInfo) -> Masks:
    if masks == "quantised":
        for keep in info.data.get("keeps", ()):
            check_quantised(keep, info.data.get("samples", 1))
    return masks


@dataclass(frozen=True, config=STRICT)
class Smoothing:
    """Certificates of the smoothed models M_λ f, which average over masks that keep each feature with probability λ.

    For every λ in `keeps` and every radius r the rows of a `certificate` on `holdfast.Smoothed(model, λ, samples)`. At
    level 0, beside them: `hard_radius`, how many features can surely be added without changing the prediction (MuS, by
    the strict Lipschitz rule, exact for this model); for Bernoulli masks `hard_radius_bernoulli`, by the tighter rule
    for the mean over all masks, with confidence 1 − `delta`; `correct`, whether the smoothed model predicts the label;
    and `passes` for x ⊙ α. λ = 1 is the model itself, for which MuS certifies nothing.

    Passes are those of the network: each input costs `samples`, and each λ another `samples` for `correct`, which all
    explainers share and no row counts.

    >>> Smoothing(keeps=(0.5, 1.0), radii=(3,)).conditions()
    [('λ=0.5', 0.0), ('λ=0.5', 3.0), ('λ=1', 0.0), ('λ=1', 3.0)]
    """

    name: ClassVar[str] = "smoothing"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = False

    keeps: Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], AfterValidator(_different)] = (
        0.125,
        0.25,
        0.5,
        1.0,
    )
    samples: Annotated[int, Field(ge=1)] = 64
    masks: Annotated[Masks, AfterValidator(_possible), Field(validate_default=True)] = "quantised"
    radii: Radii = (1, 2, 3, 5, 10)
    features: GroupingField = Patches()
    fraction: Share = 0.25
    delta: Share = 0.1
    epsilon: Share = 0.1
    method: Method = "clopper-pearson"
    mode: ModeField = "estimate"
    threshold: Threshold = USUAL_THRESHOLD

    def conditions(self) -> list[Condition]:
        """(λ, 0) and (λ, r) for every λ and radius r."""
        return [(condition(keep), float(r)) for keep in self.keeps for r in (0, *self.radii)]

    @property
    def certificate(self) -> Certificate:
        """What is asked of every smoothed model."""
        return Certificate(
            radii=self.radii,
            features=self.features,
            fraction=self.fraction,
            delta=self.delta,
            epsilon=self.epsilon,
            method=self.method,
            mode=self.mode,
            threshold=self.threshold,
        )

    def suited(self, model: Model, batch: Batch) -> Smoothing:
        """Itself: nothing is left open for the data to decide."""
        return self

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that the features do not fit, and features that differ between samples."""
        self.certificate.check(shape)
        if self.features.total((1, *shape)) is None:
            raise UserError(
                f"{label_of(self.features)} differ between samples, and a smoothed model needs the same features for "
                "all; use patches, windows, elements or tokens"
            )

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """Columns for every λ, explainer by explainer; the smoothed models and their accuracy serve all explainers."""
        certificate = self.certificate
        models = [self._smooth(subject, keep) for keep in self.keeps]
        correct = [self._correct(subject, model) for model in models]
        for explainer in subject.explainers:
            chosen = certificate.explanations(subject, explainer)
            for model, right in zip(models, correct, strict=True):
                radii = self._hard_radii(subject, model, chosen)
                rates = certificate.columns(subject, model, chosen, condition(model.keep), model.samples)
                for column in chain([replace(right, explainer=explainer)], radii, rates):
                    yield replace(column, share=model.keep)

    def _smooth(self, subject: Subject, keep: float) -> Smoothed:
        samples = self.samples if keep < 1 else 1
        return Smoothed(subject.model, keep, samples, self.features, self.masks, seed=subject.seed)

    def _correct(self, subject: Subject, model: Smoothed) -> Scores:
        """Whether the smoothed prediction of each sample is its label, for any explainer."""
        batch = subject.batch
        label = torch.full((len(batch),), -1) if batch.label is None else batch.label.cpu()
        known = (label >= 0).nonzero().flatten()
        right = torch.zeros(0)

        def predict(part: Batch, _: Tensor) -> Tensor:
            with torch.no_grad():
                return _in_parts(model, part.to(model.device)).double().cpu()

        if len(known):
            logits = subject.compute(predict, batch[known], torch.zeros(len(known)))
            hit = (logits.argmax(1) == label[known]).double()
            right = torch.where(torch.isfinite(logits).all(1), hit, torch.nan)
        reason = ["" if labelled else UNLABELLED for labelled in (label >= 0).tolist()]
        where = (condition(model.keep), 0.0)
        return Scores.column("", "correct", where, right, reason, rows=known, missing=NOT_FINITE)

    def _hard_radii(self, subject: Subject, model: Smoothed, chosen: Explanations) -> Iterator[Scores]:
        """The hard radii, and the passes spent on x ⊙ α, once for them and once for the certificates."""
        rules = [rule for rule in RADIUS_MEASURES if rule == "lipschitz" or self.masks == "bernoulli"]

        def by_rules(part: Batch, mask: Tensor) -> Tensor:
            radius = model.radii(part, mask, self.delta)
            return torch.stack([radius[rule].double() for rule in rules], 1)

        radii = torch.zeros(0, len(rules))
        if len(chosen.rows):
            radii = subject.compute(by_rules, chosen.batch, chosen.mask)
        where = (condition(model.keep), 0.0)
        for rule, radius in zip(rules, radii.unbind(1), strict=True):
            yield chosen.column(RADIUS_MEASURES[rule], where, radius)
        yield chosen.column("passes", where, torch.full((len(radii),), 2.0 * model.samples))


def _in_parts(model: Smoothed, batch: Batch) -> Tensor:
    """Scores of the samples, as many at a time as the model takes."""
    inputs, parts = model.inputs(batch), []
    for rows in torch.split(torch.arange(len(batch), device=inputs.device), model.rows):
        parts.append(model.logits(inputs[rows], {name: value[rows] for name, value in batch.aux.items()}))
    return torch.cat(parts)

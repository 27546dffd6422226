"""Smoothing by random masking: what does it buy in certificates, and what does it cost in accuracy?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, ClassVar

import torch
from pydantic import AfterValidator, Field, ValidationInfo
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.axes.certificate.certify import Certificates, certify
from holdfast.axes.certificate.evaluation import (
    USUAL_THRESHOLD,
    Explanations,
    ModeField,
    Radii,
    Share,
    Threshold,
    certificate_columns,
    check_explanations,
    explanations,
)
from holdfast.axes.certificate.sequential import Method
from holdfast.errors import UserError
from holdfast.features import GroupingField, Patches
from holdfast.maps.undefined import NOT_FINITE
from holdfast.models import Model
from holdfast.models.smoothed import Masks, Smoothed, check_quantised
from holdfast.types import OK, STRICT, UNDEFINED, Batch, Exhibit, Scores, Subject, label_of

UNLABELLED = "the sample has no label"
RADIUS_MEASURES = {"lipschitz": "hard_radius", "bernoulli": "hard_radius_bernoulli"}


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

    def conditions(self) -> list[tuple[str, float]]:
        """(λ, 0) and (λ, r) for every λ and radius r."""
        return [(condition(keep), float(r)) for keep in self.keeps for r in (0, *self.radii)]

    def suited(self, model: Model, batch: Batch) -> Smoothing:
        """Itself: nothing is left open for the data to decide."""
        return self

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that the features do not fit, and features that differ between samples."""
        check_explanations(self.features, self.fraction, shape)
        if self.features.total((1, *shape)) is None:
            raise UserError(
                f"{label_of(self.features)} differ between samples, and a smoothed model needs the same features for "
                "all; use patches, windows, elements or tokens"
            )

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """Columns for every λ, explainer by explainer; the smoothed models and their accuracy serve all explainers."""
        models = [self._smooth(subject, keep) for keep in self.keeps]
        right = [self._correct(subject, model) for model in models]
        for explainer in subject.explainers:
            chosen = explanations(subject, explainer, self.features, self.fraction)
            for keep, model, (correct, status, reason) in zip(self.keeps, models, right, strict=True):
                where = (condition(keep), 0.0)
                yield Scores(explainer, "correct", *where, correct, status, reason)
                for measure, values in self._radii(subject, model, chosen).items():
                    yield Scores(explainer, measure, *where, values, chosen.status, chosen.reason)
                same = [condition(keep)] * len(self.radii)
                yield from certificate_columns(self, subject, model, chosen, explainer, same)

    def certify(self, model: Model, batch: Batch, mask: Tensor, seed: int) -> Certificates:
        """The certificates of some samples with explanations `mask` (B, n)."""
        return certify(
            model,
            batch,
            mask,
            self.features,
            self.radii,
            self.delta,
            self.epsilon,
            self.method,
            mode=self.mode,
            threshold=self.threshold,
            seed=seed,
        )

    def _smooth(self, subject: Subject, keep: float) -> Smoothed:
        samples = self.samples if keep < 1 else 1
        return Smoothed(subject.model, keep, samples, self.features, self.masks, seed=subject.seed)

    def _correct(self, subject: Subject, model: Smoothed) -> tuple[Tensor, Tensor, tuple[str, ...]]:
        """Whether the smoothed prediction of each sample is its label, with status and reasons."""
        batch = subject.batch
        label = torch.full((len(batch),), -1) if batch.label is None else batch.label.cpu()
        known = (label >= 0).nonzero().flatten()
        value = torch.full((len(batch),), torch.nan, dtype=torch.float64)
        reason = [UNLABELLED] * len(batch)

        def predict(part: Batch, _: Tensor) -> Tensor:
            with torch.no_grad():
                moved = part.to(model.device)
                return _in_parts(model, moved).double().cpu()

        if len(known):
            logits = subject.compute(predict, batch[known], torch.zeros(len(known)))
            finite = torch.isfinite(logits).all(1)
            hit = (logits.argmax(1) == label[known]).double()
            value[known] = torch.where(finite, hit, torch.nan)
            for i, ok in zip(known.tolist(), finite.tolist(), strict=True):
                reason[i] = "" if ok else NOT_FINITE
        status = torch.tensor([UNDEFINED if why else OK for why in reason], dtype=torch.int64)
        return value, status, tuple(reason)

    def _radii(self, subject: Subject, model: Smoothed, chosen: Explanations) -> dict[str, Tensor]:
        """Columns of the hard radii and of the passes spent on x ⊙ α, once for them and once for the certificates."""
        rules = [r for r in RADIUS_MEASURES if r == "lipschitz" or self.masks == "bernoulli"]

        def some(part: Batch, mask: Tensor) -> Tensor:
            found = model.radii(part, mask, self.delta)
            return torch.stack([radius.double() for rule, radius in found.items() if rule in rules], 1)

        found = torch.zeros(0, len(rules))
        if len(chosen.rows):
            found = subject.compute(some, chosen.batch, chosen.mask)
        columns = {RADIUS_MEASURES[rule]: chosen.column(found[:, i]) for i, rule in enumerate(rules)}
        return columns | {"passes": chosen.column(torch.full((len(found),), 2.0 * model.samples))}


def _in_parts(model: Smoothed, batch: Batch) -> Tensor:
    """Scores of the samples, as many at a time as the model takes."""
    inputs, parts = model.inputs(batch), []
    for rows in torch.split(torch.arange(len(batch), device=inputs.device), model.rows):
        parts.append(model.logits(inputs[rows], {name: value[rows] for name, value in batch.aux.items()}))
    return torch.cat(parts)

"""Smoothing by random masking: what does it buy in certificates, and what does it cost in accuracy?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import AfterValidator, Field, ValidationInfo
from torch import Tensor

from heatproof.axes.certificate.chance import SharedChance
from heatproof.axes.certificate.evaluation import (
    MEASURES,
    SHARE,
    USUAL_THRESHOLD,
    Anchor,
    Certificate,
    ChanceDraws,
    ModeField,
    Radii,
    Share,
    Threshold,
    listed,
)
from heatproof.axes.certificate.explanations import MASKED_NOT_FINITE, OTHERWISE, Explanations
from heatproof.axes.certificate.sequential import Method
from heatproof.axes.certificate.strata import Added
from heatproof.evaluation import Condition, DataNames, Evaluation, GalleryImage, Measure, Scores
from heatproof.features import GroupingField, Patches
from heatproof.maps.masks import feature_values
from heatproof.maps.undefined import NOT_FINITE
from heatproof.models import Model
from heatproof.models.smoothed import KEEP, Masks, Smoothed, check_quantised, refuse_changing
from heatproof.statistics.radii import RadiusRule, largest_radius
from heatproof.subject import Subject
from heatproof.types import Batch, parameter_class

SMOOTHED_MEASURES = (
    *MEASURES,
    Measure(
        "hard_radius", "hard radius", "how many features can surely be added", "higher", "component"
    ),
    Measure(
        "hard_radius_lipschitz",
        "hard radius, MuS",
        "the same by the paper's rule",
        "higher",
        "component",
    ),
    Measure(
        "hard_radius_bernoulli",
        "hard radius, Bernoulli",
        "over all Bernoulli masks",
        "higher",
        "component",
    ),
    Measure(
        "correct",
        "correct",
        "whether the smoothed model predicts the label",
        "neither",
        "model",
        SHARE,
        rate=True,
    ),
)
"""The measures of a certificate, and those that only smoothing has."""

UNLABELLED = "the sample has no label"
RADIUS_MEASURES: dict[RadiusRule, str] = {
    "per_mask": "hard_radius",
    "lipschitz": "hard_radius_lipschitz",
    "bernoulli": "hard_radius_bernoulli",
}


def condition(keep: float) -> str:
    """Return the condition of the rows of one λ.

    >>> condition(0.25)
    'λ=0.25'
    """
    return f"λ={keep:g}"


def _check_keeps(keeps: tuple[float, ...]) -> tuple[float, ...]:
    """Refuse no λ at all, and several whose conditions have the same name."""
    if not keeps or len({condition(keep) for keep in keeps}) != len(keeps):
        raise ValueError(f"keeps must be different and at least one, got {keeps}")
    return keeps


Keeps = Annotated[tuple[Annotated[float, Field(gt=0, le=1)], ...], AfterValidator(_check_keeps)]


def _check_masks(masks: Masks, info: ValidationInfo) -> Masks:
    """Refuse quantised masks where λ is no multiple of what so many samples allow."""
    if masks == "quantised":
        for keep in info.data.get("keeps", ()):
            check_quantised(keep, info.data.get("samples", 1))
    return masks


Spare = Literal["nothing", "selected", "important"]
"""Which features are masked less than with λ: none, those of the explanation not at all, or important ones the less."""


def _check_spare(spare: Spare, info: ValidationInfo) -> Spare:
    """Refuse a chance level where smoothing depends on the explanation: random sets have no map to smooth by."""
    if spare != "nothing" and info.data.get("chance_draws"):
        raise ValueError(
            f"spare {spare!r} smooths by the explanation, so random features have no chance level; leave chance_draws out"
        )
    return spare


@parameter_class
class Smoothing(Evaluation):
    """Certificates of the smoothed models M_λ f, which average over masks that keep each feature with probability λ.

    For every λ in `keeps` and every radius r there are the rows of a `certificate` on `heatproof.Smoothed(model, λ,
    samples)`, and at level 0:

    `hard_radius`            how many features can surely be added without changing the prediction, from what every
                             mask says; exact for this model
    `hard_radius_lipschitz`  the same by the rule of MuS (Theorem C.1 of the paper, with r < r_cert); exact as well
    `hard_radius_bernoulli`  for Bernoulli masks: for the mean over all masks, with confidence 1 − `delta`
    `correct`                whether the smoothed model predicts the label
    `passes`                 the passes for x ⊙ α

    λ = 1 is the model itself, of which nothing is certified. With `votes` the masks vote for classes instead of
    averaging probabilities.

    `spare` smooths a part of the features. "selected": the features of the explanation are always kept, and only the others
    are masked. "important": the λ of a feature rises with its rank in the map, from λ for the least important one to 1
    for the most important one. There is then a smoothed model for each explanation, `correct` is about that, and
    there is no chance level.

    Passes are those of the network: each input costs `samples`, and each λ another `samples` for the whole input and
    those of the chance level (see `certificate`), which all explainers share and no row counts.

    >>> Smoothing(keeps=(0.5, 1.0), radii=(3,)).conditions()
    [('λ=0.5', 0.0), ('λ=0.5', 3.0), ('λ=1', 0.0), ('λ=1', 3.0)]
    """

    name: ClassVar[str] = "smoothing"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = False

    keeps: Keeps = (0.125, 0.25, 0.5, 1.0)
    samples: Annotated[int, Field(ge=1)] = 64
    masks: Annotated[Masks, AfterValidator(_check_masks), Field(validate_default=True)] = (
        "quantised"
    )
    radii: Radii = (1, 2, 3, 5, 10)
    features: GroupingField = Patches()
    fraction: Share = 0.25
    delta: Share = 0.1
    epsilon: Share = 0.1
    method: Method = "clopper-pearson"
    mode: ModeField = "estimate"
    threshold: Threshold = USUAL_THRESHOLD
    votes: bool = False
    anchor: Anchor = "explanation"
    added: Added = "at most"
    search: Annotated[int, Field(ge=0)] = 0
    chance_draws: ChanceDraws = None
    spare: Annotated[Spare, AfterValidator(_check_spare)] = "nothing"
    data: DataNames = None

    def conditions(self) -> list[Condition]:
        """Return (λ, 0) and (λ, r) for every λ and radius r."""
        conditions = []
        for keep in self.keeps:
            conditions += [(condition(keep), float(r)) for r in (0, *listed(self.radii))]
        return conditions

    @property
    def certificate(self) -> Certificate:
        """The certificate of every smoothed model: with all parameters that both evaluations have."""
        of_certificate = {field.name for field in fields(Certificate)}
        of_smoothing = {field.name for field in fields(self)}
        shared = {name: getattr(self, name) for name in of_certificate & of_smoothing}
        if self.spare != "nothing":
            shared["chance_draws"] = 0
        return Certificate(**shared)

    def configured_for(self, model: Model, batch: Batch) -> Self:
        """Return a copy with the features of this kind of data and all radii listed; raise `UserError` if undefined.

        Features that change with what is left of a sample are refused.
        """
        certificate = self.certificate.configured_for(model, batch)
        refuse_changing(certificate.features, tuple(batch.x.shape))
        return replace(self, radii=certificate.radii, features=certificate.features)

    def notes(self, model: Model) -> list[str]:
        """Return which rules cannot certify a single feature with so many masks, however sure the model is."""
        rules: list[RadiusRule] = ["per_mask"]
        if self.masks == "bernoulli":
            rules.append("bernoulli")
        classes = len(model.classes) if model.classes else 2
        notes = []
        for keep in self.keeps:
            for rule in rules:
                largest = largest_radius(keep, self.samples, classes, self.delta, rule, self.votes)
                if keep == 1 or largest > 0:
                    continue
                note = (
                    f"{RADIUS_MEASURES[rule]} is 0 for every sample at λ = {keep:g} with {self.samples} masks and "
                    f"{classes} classes"
                )
                if rule == "bernoulli" and not self.votes:
                    note += "; more samples or votes: true may help"
                notes.append(note)
        return notes

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield the certificates of the smoothed models: columns of scores for every explainer and every λ.

        Models, their predictions and their chance levels are computed once for all explainers, unless smoothing depends on
        the explanation (`spare`).
        """
        certificate = self.certificate
        models = [self._smoothed_model(subject, keep) for keep in self.keeps]
        predictions: list[Tensor] = []
        random_sets: list[SharedChance | None] = []
        if self.spare == "nothing":
            for model in models:
                predicted = self._predict(subject, model, subject.batch)
                predictions.append(predicted)
                random_sets.append(certificate.shared_chance(subject, model, predicted))
        for explainer in subject.explainers:
            explanations = certificate.explanations(subject, explainer, self.fraction)
            for number, model in enumerate(models):
                if self.spare == "nothing":
                    sets = random_sets[number]
                    chance = sets.rates(explanations) if sets else None
                    yield from self._columns(
                        subject, model, explanations, predictions[number], chance
                    )
                else:
                    sparing = self._sparing(subject, explanations, model.keep)
                    predicted = torch.full((len(subject.batch),), -1)
                    predicted[sparing.rows] = self._predict(subject, model, sparing.batch)
                    yield from self._columns(subject, model, sparing, predicted, None)

    def _columns(
        self,
        subject: Subject,
        model: Smoothed,
        chosen: Explanations,
        predicted: Tensor,
        chance: Tensor | None,
    ) -> Iterator[Scores]:
        """Yield all columns of one λ and explainer; `predicted` (B,) is the smoothed prediction on the whole inputs."""
        certificate = self.certificate
        where = condition(model.keep)
        (result,) = certificate.certified(subject, model, [chosen], predicted, model.samples)
        columns = [
            self._correct(subject, model, chosen, predicted),
            *self._hard_radii(subject, model, chosen, predicted),
            *certificate.columns(model, chosen, result, where, chance),
            *certificate.searched(subject, model, chosen, predicted, where),
        ]
        for column in columns:
            yield replace(column, share=model.keep)

    def _sparing(self, subject: Subject, chosen: Explanations, keep: float) -> Explanations:
        """Return the explanations with a λ for every feature of their samples: how often smoothing keeps the feature.

        Where `spare` is "selected", features of the explanation are always kept (λ = 1) and others with λ = `keep`. Else λ
        rises from `keep` to 1 with the feature's rank in the map. The model reads it from the auxiliary tensors.
        """
        if not len(chosen.rows):
            return chosen
        if self.spare == "selected":
            shares = torch.where(chosen.mask, 1.0, keep)
        else:
            maps = subject.maps(chosen.explainer)
            maps = maps[chosen.rows.to(maps.device)]
            values, selectable = feature_values(maps, chosen.batch, self.features)
            shares = keep + (1 - keep) * relative_ranks(values, selectable)
        aux = {**chosen.batch.aux, KEEP: shares.to(chosen.batch.x.device)}
        return replace(chosen, batch=replace(chosen.batch, aux=aux))

    def _smoothed_model(self, subject: Subject, keep: float) -> Smoothed:
        """Return the model that averages over masks which keep a share of the features; one mask where all are kept."""
        samples = self.samples if keep < 1 else 1
        return Smoothed(
            subject.model,
            keep,
            samples,
            self.features,
            self.masks,
            votes=self.votes and keep < 1,
            seed=subject.seed,
        )

    def _predict(self, subject: Subject, model: Smoothed, batch: Batch) -> Tensor:
        """Return the class that a smoothed model predicts on whole inputs, (B,), −1 where a score is not finite."""

        def predict(batch: Batch, _: Tensor) -> Tensor:
            return (
                model.scores(batch).double().cpu()
            )  # `compute` passes a second tensor, not needed here

        if not len(batch):
            return torch.zeros(0, dtype=torch.int64)
        scores = subject.compute(predict, batch, torch.zeros(len(batch)))
        return torch.where(torch.isfinite(scores).all(1), scores.argmax(1), -1)

    def _correct(
        self, subject: Subject, model: Smoothed, chosen: Explanations, predicted: Tensor
    ) -> Scores:
        """Return whether the smoothed model predicts each sample's label, as a column of scores.

        `predicted` (B,) is its prediction on the whole inputs, −1 where there is none. Unlabelled samples have no score.
        """
        label = torch.full_like(predicted, -1)
        if subject.batch.label is not None:
            label = subject.batch.label.cpu()
        is_correct = torch.where(predicted < 0, torch.nan, (predicted == label).double())
        reason = []
        for is_labelled, of_explanation in zip((label >= 0).tolist(), chosen.reason, strict=True):
            if not is_labelled:
                reason.append(UNLABELLED)
            elif self.spare != "nothing":
                # The model is smoothed by the explanation, so without one there is no prediction.
                reason.append(of_explanation)
            else:
                reason.append("")
        where = (condition(model.keep), 0.0)
        return Scores.column(
            chosen.explainer, "correct", where, is_correct, reason, missing=NOT_FINITE
        )

    def _hard_radii(
        self, subject: Subject, model: Smoothed, chosen: Explanations, predicted: Tensor
    ) -> Iterator[Scores]:
        """Yield how many features can be added to each explanation without changing the smoothed prediction, by each rule.

        Then come the model passes of the explanations alone. `predicted` (B,) is the smoothed prediction on the whole inputs;
        with `anchor` "full", it is the one that must stay.
        """
        rules = list(RADIUS_MEASURES)
        if self.masks != "bernoulli":
            rules.remove("bernoulli")
        keeps_class_of_input = self.anchor == "full"

        # `compute` passes on one tensor beside the samples, so the class is a further column of the masks.
        def radii_by_rule(batch: Batch, mask_and_class: Tensor) -> Tensor:
            """Return the radii of some explanations, (S, rules)."""
            mask, class_of_input = mask_and_class[:, :-1].bool(), mask_and_class[:, -1]
            target = class_of_input if keeps_class_of_input else None
            radius = model.radii(batch, mask, self.delta, target)
            return torch.stack([radius[rule] for rule in rules], 1)

        radii = torch.zeros(0, len(rules))
        if len(chosen.rows):
            radii = subject.compute(radii_by_rule, chosen.batch, chosen.with_class(predicted))
        where = (condition(model.keep), 0.0)
        missing = OTHERWISE if keeps_class_of_input else MASKED_NOT_FINITE
        for rule, radius in zip(rules, radii.unbind(1), strict=True):
            yield chosen.column(RADIUS_MEASURES[rule], where, radius, missing)
        # x ⊙ α is predicted twice: for the radii, and for the certificates.
        passes = torch.full((len(radii),), 2.0 * model.samples)
        yield chosen.column("passes", where, passes)


def relative_ranks(values: Tensor, counted: Tensor) -> Tensor:
    """Return the relative rank of each value in its row, (B, n): 0 for the smallest, 1 for the largest.

    Only values that are `counted` (B, n) are ranked; the others get 1, because their features are always kept. Equal values
    share their mean rank.

    >>> relative_ranks(torch.tensor([[3.0, 1.0, 2.0, 9.0]]), torch.tensor([[True, True, True, False]])).tolist()
    [[1.0, 0.0, 0.5, 1.0]]
    """
    ordered = values.masked_fill(~counted, torch.inf).sort(1).values
    values = values.contiguous()
    smaller = torch.searchsorted(ordered, values).double()
    smaller_or_equal = torch.searchsorted(ordered, values, right=True).double()
    rank = (smaller + smaller_or_equal - 1) / 2
    largest = (counted.sum(1, keepdim=True) - 1).clamp(min=1)
    return torch.where(counted, rank / largest, 1.0)

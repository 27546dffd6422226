"""Stability (FASS): does the map survive a perturbation that leaves the prediction unchanged?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass as plain_dataclass
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

import torch
from pydantic import Field, field_validator
from torch import Tensor

from heatproof.axes.stability import neighbourhood, vectors
from heatproof.axes.stability import perturbations as perturbing
from heatproof.axes.stability.perturbations.kinds import (
    check_perturbable,
    kind_of_samples,
    measures,
)
from heatproof.batching import prefetch
from heatproof.errors import UserError
from heatproof.evaluation import (
    CLEAN,
    FLIPPED,
    OK,
    UNDEFINED,
    Chance,
    Condition,
    DataNames,
    Evaluation,
    GalleryImage,
    Measure,
    Role,
    Scores,
)
from heatproof.kinds import IMAGE, DataKind, kind_of
from heatproof.maps.chance import K, over_references
from heatproof.maps.ranks import Ties
from heatproof.maps.similarity import Profile, compare, compare_all, composite, profile
from heatproof.maps.undefined import NOT_FINITE
from heatproof.maps.undefined import reasons as undefined_reasons
from heatproof.models import Model
from heatproof.models.tasks import at, has_probability, with_region
from heatproof.subject import Subject
from heatproof.types import Batch, name_of, parameter_class

FASS = "fass"
REDRAW: Condition = ("redraw", 0.0)
"""The condition of the noise floor: the input as it is, explained with two draws."""
NOTHING_LEFT = "nothing left to compare"

SIMILARITIES = {
    FASS: ("FASS", "weighted mean of SSIM, Spearman and Jaccard; tables have no SSIM"),
    "ssim": ("SSIM", "structural similarity of maps scaled to [0, 1]"),
    "spearman": ("Spearman", "rank correlation ρ, as (ρ + 1) / 2"),
    "jaccard": ("Jaccard", "overlap of the k largest values"),
}
"""Title and description of what is measured for every pair of maps."""
CHECKED = SIMILARITIES | {vectors.SIMILARITY: (vectors.MEASURE.title, vectors.MEASURE.text)}
"""What has a noise floor and an identity check."""
Metric = Literal[
    "fass",
    "average_sensitivity",
    "max_sensitivity",
    "local_lipschitz",
    "relative_input_stability",
    "relative_output_stability",
    "relative_representation_stability",
]


def unaligned(measure: str) -> str:
    """Return the name of the comparison of maps that were not moved with the input.

    >>> unaligned("fass")
    'fass_unaligned'
    """
    return f"{measure}_unaligned"


def noise_floor(measure: str) -> str:
    """Return the name of the comparison of two random draws of a map.

    >>> noise_floor("fass"), noise_floor("ssim")
    ('noise_floor', 'noise_floor_ssim')
    """
    return "noise_floor" if measure == FASS else f"noise_floor_{measure}"


def identity_check(measure: str) -> str:
    """Return the name of the comparison under a perturbation that changes nothing.

    >>> identity_check("fass"), identity_check("ssim")
    ('identity_check', 'identity_check_ssim')
    """
    return "identity_check" if measure == FASS else f"identity_check_{measure}"


def _declared_measures() -> Iterator[Measure]:
    """Yield FASS and its components, the same without alignment, metrics in a ball, noise floors, identity checks."""

    def similarity(name: str, title: str, text: str, role: Role, floor: str = "") -> Measure:
        return Measure(name, title, text, "higher", role, (0.0, 1.0), noise_floor=floor)

    for name, (title, text) in SIMILARITIES.items():
        role: Role = "headline" if name == FASS else "component"
        yield similarity(name, title, text, role, noise_floor(name))
    for name, (title, _) in SIMILARITIES.items():
        text = f"{title} of maps that are not moved with the input, as the FASS paper compares them"
        yield similarity(unaligned(name), f"{title}, unaligned", text, "component")
    yield vectors.MEASURE
    yield from neighbourhood.MEASURES
    for name, (title, _) in CHECKED.items():
        text = f"{title} of two random draws of a map of one input"
        yield similarity(noise_floor(name), f"Noise floor ({title})", text, "diagnostic")
    for name, (title, _) in CHECKED.items():
        text = f"{title} of two maps of one input; 1 where the explainer is reproducible"
        yield similarity(identity_check(name), f"Identity check ({title})", text, "diagnostic")


MEASURES = tuple(_declared_measures())
"""The measures of the axis; an explainer is ranked by the first headline that it has: for maps FASS."""

Weight = Annotated[float, Field(ge=0)]
Items = TypeVar("Items", Tensor, Profile)


@plain_dataclass
class PairStatus:
    """Which of B pairs are compared, why the others are not, and what the model predicts instead on flipped ones."""

    codes: Tensor
    reasons: list[str]
    predicted_after: list[str]

    @classmethod
    def all_ok(cls, count: int) -> PairStatus:
        """Return the status of pairs that are all compared."""
        return cls(torch.full((count,), OK), [""] * count, [""] * count)

    def copy(self) -> PairStatus:
        """Return a status that can be changed without changing this one."""
        return PairStatus(self.codes.clone(), list(self.reasons), list(self.predicted_after))

    @property
    def retained(self) -> Tensor:
        """The rows (R,) of the pairs that are compared."""
        return (self.codes == OK).nonzero().flatten()

    def exclude(self, row: int, code: int, reason: str, predicted_after: str = "") -> None:
        """Exclude a pair, unless it is excluded already: the first reason stays."""
        if self.codes[row] != OK:
            return
        self.codes[row] = code
        self.reasons[row] = reason
        self.predicted_after[row] = predicted_after

    def exclude_undefined(self, reasons: Sequence[str], rows: Tensor | None = None) -> None:
        """Exclude the pairs that have a reason; the reasons are those of `rows`, or of all pairs."""
        numbers = range(len(reasons)) if rows is None else rows.tolist()
        for row, reason in zip(numbers, reasons, strict=True):
            if reason:
                self.exclude(row, UNDEFINED, reason)


class Pairs(NamedTuple):
    """The shard's samples after one perturbation, and which of them kept their prediction."""

    perturbation: perturbing.Perturbation
    batch: Batch
    status: PairStatus
    text: perturbing.Reworded | None = None

    @property
    def condition(self) -> Condition:
        """Name and level of the perturbation."""
        return perturbing.condition(self.perturbation), perturbing.level(self.perturbation)

    @property
    def is_control(self) -> bool:
        """Whether the perturbation changes nothing, so that its scores only check the explainer."""
        return self.perturbation.family == "control"


@plain_dataclass(frozen=True)
class Originals:
    """What the pairs of one explainer are compared with: its maps of the samples and of the references."""

    explainer: str
    maps: Tensor
    profile: Profile
    undefined: Sequence[str]
    reference_maps: Tensor
    reference_profile: Profile


class ExplainedPairs(NamedTuple):
    """The pairs of one perturbation with the maps of those that are explained; `status` may still change."""

    pairs: Pairs
    status: PairStatus
    maps: Tensor


Similarities = dict[str, tuple[Tensor, Chance]]
"""The values (R,) of R pairs of maps by each measure, and what maps of other samples score instead."""


@parameter_class
class Stability(Evaluation):
    """Perturb, keep the pairs whose prediction is unchanged, as the model's task says, and compare the maps.

    Every retained pair gets SSIM, (Spearman + 1) / 2, top-k Jaccard and their weighted mean, FASS. Beside each score
    stands its chance level: the mean score of the perturbed map against the maps of other samples.

    Where a perturbation moves pixels, the original map is moved along before it is compared, and only places that both
    maps have are compared; the comparison without this is in the measures `fass_unaligned` and so on. With `aligned:
    false` maps are never moved, as in the FASS paper. For stochastic explainers `noise_floor` compares two draws of
    the map of one input. `max_drop` also drops pairs whose target's probability fell by more.

    For images (C, H, W), volumes (C, D, H, W), series (C, T) and tables (F,). SSIM has cubes for windows on volumes
    and windows along time for series; a table has none, and FASS is then the weighted mean of the other two. `configured_for`
    chooses "usual" `perturbations` and `k` for the kind of data: the presets fass-paper, volume-mild, series-mild or
    table-mild, and 100 values or a tenth of them; "mild" is fass-mild on images.

    Explanations by concepts or examples are vectors, compared by their cosine (categories by the share that agrees):
    the measure `explanation_similarity`. `metrics` may also name sensitivity, local Lipschitz and relative stability in
    a ball of `radius` around each input, over `draws` draws (see `heatproof.axes.stability.neighbourhood`); `layer` is
    that of the relative representation stability. Without "fass" nothing is perturbed beyond the ball.

    >>> Stability(perturbations={"rotation": {"degrees": [5, 10]}}).conditions()
    [('rotation', 5.0), ('rotation', 10.0)]
    """

    name: ClassVar[str] = "stability"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature", "example", "concept"})
    reexplains: ClassVar[bool] = True

    perturbations: Any = "usual"
    k: K | Literal["usual"] = "usual"
    ties: Ties = "average"
    weights: tuple[Weight, Weight, Weight] = (1.0, 1.0, 1.0)
    max_drop: Annotated[float, Field(gt=0, le=1)] | None = None
    aligned: bool = True
    noise_floor: bool = True
    metrics: Annotated[tuple[Metric, ...], Field(min_length=1)] = ("fass",)
    radius: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.02
    draws: Annotated[int, Field(ge=1)] = 10
    layer: str | None = None
    data: DataNames = None

    @field_validator("metrics", mode="before")
    @classmethod
    def _as_metrics(cls, value: Any) -> Any:
        """Return the name of one metric as a list of names."""
        return (value,) if isinstance(value, str) else value

    @field_validator("metrics")
    @classmethod
    def _check_different(cls, value: tuple[Metric, ...]) -> tuple[Metric, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"metrics must be different, got {list(value)}")
        return value

    @field_validator("perturbations")
    @classmethod
    def _resolve(cls, value: Any) -> Any:
        """Return the named perturbations; a word that stands for the usual ones of the data is left open."""
        is_open = isinstance(value, str) and value in perturbing.OPEN
        return value if is_open else perturbing.resolve(value)

    @field_validator("weights")
    @classmethod
    def _check_weights(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
        if sum(value) <= 0:
            raise ValueError("at least one weight must be positive")
        return value

    # ---- before the run ----------------------------------------------------------------------

    def configured_for(self, model: Model, batch: Batch) -> Self:
        """Return a copy with the perturbations and the k of this kind of data; raise `UserError` if it does not apply."""
        if self._ball_metrics:
            self._check_ball(model, batch)
        if not self._perturbs:
            return self
        takes_any_kind = all(getattr(p, "kind", "") is None for p in self.perturbations)
        check_perturbable(kind_of(model, batch), takes_any_kind)
        for perturbation in self.perturbations:
            if isinstance(perturbation, perturbing.OfTexts):
                perturbation.check_texts(batch)

        is_volume = batch.x.ndim == 5
        if is_volume and not (batch.x.min() >= 0 and batch.x.max() <= 1):
            ends = f"from {float(batch.x.min()):g} to {float(batch.x.max()):g}"
            raise UserError(
                f"volumes are perturbed in [0, 1], and these have values {ends}; scale them first"
            )
        if self.max_drop is not None and not has_probability(model.task):
            raise UserError(
                f"max_drop is of a probability, and {model.task.name} has none; leave it out"
            )
        kind = kind_of_samples(batch.x.shape[1:])
        configured = self._for(kind, tuple(batch.x.shape[1:]))
        configured._check(kind, tuple(batch.x.shape[1:]))
        return configured

    def _for(self, kind: DataKind, shape: Sequence[int] | None = None) -> Self:
        """Return a copy with the defaults of this kind of data in place of "usual": the top k and the perturbations.

        They are fitted to samples of a `shape`, if that is known.
        """
        defaults: dict[str, Any] = {}
        if self.k == "usual":
            defaults["k"] = kind.top_k if shape is None else kind.top_k_for(shape)
        if isinstance(self.perturbations, str):
            preset = perturbing.KNOWN_PRESETS[kind.presets[self.perturbations]]
            if shape is not None:
                fitted = [perturbing.fitted(perturbation, shape) for perturbation in preset]
                # A file of JPEG has 1 or 3 channels; without it, the others are still worth a test.
                preset = tuple(p for p in fitted if _is_possible(p, shape)) or tuple(fitted)
            defaults["perturbations"] = preset
        return replace(self, **defaults) if defaults else self

    def conditions(self) -> list[Condition]:
        """Return (condition, level) of each perturbation, left open, of those for images; and of the ball."""
        conditions = []
        if self._perturbs:
            perturbations = self._for(IMAGE).perturbations
            conditions += [(perturbing.condition(p), perturbing.level(p)) for p in perturbations]
        if self._ball_metrics:
            conditions.append((neighbourhood.BALL, self.radius))
        return conditions

    def measured(self) -> tuple[str, ...]:
        """Return the measures of pairs, where there are some, and the metrics in a ball."""
        of_pairs = (FASS, vectors.SIMILARITY) if self._perturbs else ()
        return (*of_pairs, *self._ball_metrics)

    @property
    def _perturbs(self) -> bool:
        """Whether pairs are compared, under the perturbations."""
        return FASS in self.metrics

    @property
    def _ball_metrics(self) -> tuple[str, ...]:
        """The metrics over draws in a ball."""
        return tuple(metric for metric in neighbourhood.METRICS if metric in self.metrics)

    def _check_ball(self, model: Model, batch: Batch) -> None:
        """Refuse inputs that have no neighbours, and a missing layer."""
        if not batch.x.is_floating_point():
            raise UserError(
                f"{self._ball_metrics[0]} needs inputs that are numbers; token ids have no neighbours"
            )
        if neighbourhood.OF_REPRESENTATION not in self.metrics:
            return
        if not model.is_differentiable:
            raise UserError(
                f"{neighbourhood.OF_REPRESENTATION} needs a network with layers, which {model.name} is not"
            )
        if self.layer is None:
            names = [name for name, _ in model.module.named_modules() if name]
            raise UserError(
                f"{neighbourhood.OF_REPRESENTATION} needs layer, the name of the representation, such as "
                f"{', '.join(names[-3:])}"
            )
        model.layer(self.layer)

    def _check(self, kind: DataKind, shape: Sequence[int]) -> None:
        """Refuse data that cannot be perturbed or maps too small for k; `shape` is that of a sample."""
        for perturbation in self.perturbations:
            perturbing.check(perturbation, shape)
        map_size = math.prod(shape)
        if self._k >= map_size:
            raise UserError(
                f"stability's k must be below the {map_size} values of a map, got {self.k}; try k=0.01"
            )
        if not kind.ssim_dimensions and sum(self.weights[1:]) == 0:
            raise UserError(
                f"stability of a table has no ssim, but weights {list(self.weights)} leave nothing else"
            )

    @property
    def _k(self) -> int | float:
        """How many of the largest values Jaccard compares, or which share of them; left open, that for images."""
        return IMAGE.top_k if isinstance(self.k, str) else self.k

    # ---- one shard ---------------------------------------------------------------------------

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield the scores of every explainer under every perturbation."""
        all_pairs = self._make_pairs(subject) if self._perturbs else []
        around = None
        if self._ball_metrics:
            needs_layer = neighbourhood.OF_REPRESENTATION in self.metrics
            layer = self.layer if needs_layer else None
            around = neighbourhood.explore(subject, self.radius, self.draws, layer)
        for name, explainer in subject.explainers.items():
            if self._perturbs and explainer.kind == "feature":
                yield from self._score_explainer(subject, name, all_pairs)
            elif self._perturbs:
                yield from self._score_vectors(subject, name, all_pairs)
            if around is not None:
                yield from neighbourhood.score(subject, name, around, self._ball_metrics)

    def _make_pairs(self, subject: Subject) -> list[Pairs]:
        """Return the shard's samples after every perturbation, and which of them keep their prediction.

        This is done once for all explainers.
        """

        def perturb(perturbation: perturbing.Perturbation) -> Any:
            bound = perturbing.bound(perturbation, subject.references.batch)
            return bound(subject.batch, subject.seed)

        device = subject.model.device
        perturbed = prefetch(perturb, self.perturbations, device)
        if device.type != "cpu":
            # Perturbing takes the CPU; explaining keeps the GPU busy meanwhile.
            subject.maps(next(iter(subject.explainers)))

        all_pairs = []
        for perturbation, changed in perturbed:
            batch, text = _perturbed_batch(subject, perturbation, changed)
            status = self._filter_pairs(subject, batch, text)
            all_pairs.append(Pairs(perturbation, batch, status, text))
        return all_pairs

    def _filter_pairs(
        self, subject: Subject, batch: Batch, text: perturbing.Reworded | None
    ) -> PairStatus:
        """Return which pairs (original, perturbed) are compared: those with a finite prediction that stays the same.

        With `max_drop`, pairs whose class lost more probability than that are excluded too; texts that could not be
        changed are undefined.
        """
        task = subject.model.task
        before, after = subject.logits, subject.predict(batch)
        status = PairStatus.all_ok(len(batch))

        is_finite = torch.isfinite(after).all(1) & torch.isfinite(subject.readout)
        status.exclude_undefined(["" if finite else NOT_FINITE for finite in is_finite.tolist()])
        if text is not None:
            status.exclude_undefined(text.failures)

        is_same = task.same(before, after, subject.target)
        for row in status.retained.tolist():
            if not is_same[row]:
                target, name_class = int(subject.target[row]), subject.model.class_name
                change = task.change(before[row], after[row], target, name_class)
                now = _predicted_after(subject, before[row], after[row], target)
                status.exclude(row, FLIPPED, change, now)

        if self.max_drop is not None:
            probability = task.probability(after)
            # `configured_for` refuses max_drop where a task has none.
            assert probability is not None
            drops = (subject.probability - at(probability, subject.target)).tolist()
            for row, drop in enumerate(drops):
                if drop > self.max_drop:
                    reason = f"probability fell by {drop:.3f}, more than {self.max_drop:g}"
                    status.exclude(row, FLIPPED, reason)
        return status

    def _score_explainer(
        self, subject: Subject, explainer: str, all_pairs: Sequence[Pairs]
    ) -> Iterator[Scores | GalleryImage]:
        """Yield all scores of one explainer, and the maps on show."""
        maps, reference_maps = subject.maps(explainer), subject.references.maps(explainer)
        yield from subject.gallery(explainer, CLEAN, subject.batch, maps)
        originals = Originals(
            explainer=explainer,
            maps=maps,
            profile=self._profile(maps),
            undefined=undefined_reasons(maps, "the clean map"),
            reference_maps=reference_maps,
            reference_profile=self._profile(reference_maps),
        )

        if self.noise_floor and subject.explainers[explainer].stochastic:
            yield from self._score_redraw(subject, originals)

        for pairs, status, perturbed in _explain_pairs(
            subject, explainer, originals.undefined, all_pairs
        ):
            yield from self._score_pairs(subject, originals, pairs, status, perturbed)

    def _score_vectors(
        self, subject: Subject, explainer: str, all_pairs: Sequence[Pairs]
    ) -> Iterator[Scores]:
        """Yield how similar an explainer's vectors of concepts or examples are before and after every perturbation.

        `all_pairs` are the samples after each perturbation. Where the explainer draws random numbers, the similarity of
        two draws on the same input (the noise floor) comes first.
        """
        categorical = vectors.is_categorical(subject.explainers[explainer])
        clean, references = subject.maps(explainer), subject.references.maps(explainer)
        undefined = vectors.undefined(clean, "the clean explanation", categorical)
        if self.noise_floor and subject.explainers[explainer].stochastic:
            second = subject.redrawn_maps(explainer)
            status = PairStatus.all_ok(len(subject.batch))
            is_finite = torch.isfinite(subject.readout).tolist()
            status.exclude_undefined(["" if finite else NOT_FINITE for finite in is_finite])
            status.exclude_undefined(undefined)
            status.exclude_undefined(vectors.undefined(second, "the second draw", categorical))
            value = vectors.similarity(clean, second, categorical)[status.retained]
            yield Scores.column(
                explainer,
                noise_floor(vectors.SIMILARITY),
                REDRAW,
                value,
                status.reasons,
                status.codes,
                status.retained,
                NOTHING_LEFT,
            )

        for pairs, status, perturbed in _explain_pairs(subject, explainer, undefined, all_pairs):
            explained = status.retained
            texts = vectors.undefined(perturbed, "the perturbed explanation", categorical)
            status.exclude_undefined(texts, explained)
            rows = status.retained
            is_retained = status.codes[explained] == OK
            after = _at(perturbed, is_retained.nonzero().flatten())
            values = vectors.similarity(_at(clean, rows), after, categorical)
            against = vectors.to_references(references, after, categorical)
            measure = vectors.SIMILARITY
            with_chance = _with_chance(subject, rows, {measure: values}, {measure: against})
            value, chance = with_chance[measure]
            scores = Scores.column(
                explainer,
                identity_check(measure) if pairs.is_control else measure,
                pairs.condition,
                value,
                status.reasons,
                status.codes,
                rows,
                NOTHING_LEFT,
                chance=chance,
            )
            yield replace(scores, predicted_after=tuple(status.predicted_after))

    def _score_pairs(
        self,
        subject: Subject,
        originals: Originals,
        pairs: Pairs,
        status: PairStatus,
        maps: Tensor,
    ) -> Iterator[Scores | GalleryImage]:
        """Yield the scores of one explainer under one perturbation.

        `maps` are those of the perturbed samples that `status` retains. Undefined ones among them are excluded first.
        """
        explained = status.retained
        status.exclude_undefined(undefined_reasons(maps, "the perturbed map"), explained)
        rows = status.retained
        is_retained = status.codes[explained] == OK
        maps = _at(maps, is_retained.nonzero().flatten())

        similarities = self._compare(subject, originals, pairs, rows, maps)
        for measure, (values, chance) in similarities.items():
            scores = Scores.column(
                originals.explainer,
                measure,
                pairs.condition,
                values,
                status.reasons,
                status.codes,
                rows,
                NOTHING_LEFT,
                chance=chance,
            )
            yield replace(scores, predicted_after=tuple(status.predicted_after))

        yield from subject.gallery(originals.explainer, pairs.condition, pairs.batch, maps, rows)

    def _compare(
        self, subject: Subject, originals: Originals, pairs: Pairs, rows: Tensor, maps: Tensor
    ) -> Similarities:
        """Return how similar perturbed maps (R, …) are to the original ones of the samples at `rows`, by every measure.

        Texts are compared word by word. Under a perturbation that moves the input, maps are compared aligned (the original
        map is moved along) and unaligned; otherwise position by position. A control, which changes nothing, has the
        measures of an identity check.
        """
        if pairs.text is not None:
            # Words may have moved or have more tokens now, so maps are compared word by word.
            word_of_token = pairs.text.after[rows.to(pairs.text.after.device)]
            by_word = pairs.text.by_word(maps, word_of_token)
            return self._compare_moved(subject, originals, pairs.text, rows, by_word)

        in_place = self._compare_in_place(subject, originals, rows, maps)
        if pairs.is_control:
            return _renamed(in_place, identity_check)
        if not (self.aligned and perturbing.is_geometric(pairs.perturbation)):
            return in_place
        aligned = self._compare_moved(subject, originals, pairs.perturbation, rows, maps)
        return aligned | _renamed(in_place, unaligned)

    def _compare_in_place(
        self, subject: Subject, originals: Originals, rows: Tensor, maps: Tensor
    ) -> Similarities:
        """Return how similar perturbed maps (R, …) are to the original ones of the samples at `rows`, by position.

        Their chance level is the similarity to the maps of reference samples.
        """
        if not len(rows):
            return _no_similarities(maps)
        perturbed = self._profile(maps)
        scores = self._with_fass(compare(_at(originals.profile, rows), perturbed))
        to_references = self._with_fass(compare_all(originals.reference_profile, perturbed))
        return _with_chance(subject, rows, scores, to_references)

    def _compare_moved(
        self,
        subject: Subject,
        originals: Originals,
        mover: perturbing.Geometric | perturbing.Reworded,
        rows: Tensor,
        maps: Tensor,
    ) -> Similarities:
        """Return how similar perturbed maps are to the original maps, when these are moved as the inputs were.

        A rotated input should have a rotated map, so the original map is rotated before it is compared, and only positions
        that both maps have are compared. `maps` (R, …) are those of the samples at `rows`. Their chance level is the
        similarity to the maps of reference samples, moved in the same way.
        """
        if not len(rows):
            return _no_similarities(maps)
        ids = [subject.batch.ids[row] for row in rows.tolist()]
        moved, valid = mover.move(_at(originals.maps, rows), ids, subject.seed)
        perturbed = self._profile(maps, valid)
        scores = self._with_fass(compare(self._profile(moved, valid), perturbed))

        references = originals.reference_maps
        if not mover.stochastic and len(references):
            # All samples move alike, so the references are moved once, for all of them.
            moved, _ = mover.move(references, subject.references.batch.ids, subject.seed)
            reference_profile = self._profile(moved, valid[:1])
            to_references = self._with_fass(compare_all(reference_profile, perturbed))
            return _with_chance(subject, rows, scores, to_references)

        # Every sample moves in its own way, so each reference is moved once per sample.
        per_reference: dict[str, list[Tensor]] = {measure: [] for measure in scores}
        for reference in references:
            copies = reference.expand(len(ids), *reference.shape)
            moved, _ = mover.move(copies, ids, subject.seed)
            to_reference = compare(self._profile(moved, valid), perturbed)
            for measure, values in self._with_fass(to_reference).items():
                per_reference[measure].append(values)
        to_references = {}
        for measure, to_each in per_reference.items():
            no_references = torch.empty(0, len(ids))
            to_references[measure] = torch.stack(to_each) if to_each else no_references
        return _with_chance(subject, rows, scores, to_references)

    def _score_redraw(self, subject: Subject, originals: Originals) -> Iterator[Scores]:
        """Yield the similarity of two maps of the same input that differ only in the explainer's random draws."""
        redrawn = subject.redrawn_maps(originals.explainer)
        status = PairStatus.all_ok(len(subject.batch))
        is_finite = torch.isfinite(subject.readout).tolist()
        status.exclude_undefined(["" if finite else NOT_FINITE for finite in is_finite])
        status.exclude_undefined(originals.undefined)
        status.exclude_undefined(undefined_reasons(redrawn, "the map of the second draw"))

        rows = status.retained
        scores = {measure: torch.empty(0) for measure in _measures(redrawn)}
        if len(rows):
            second = self._profile(_at(redrawn, rows))
            scores = self._with_fass(compare(_at(originals.profile, rows), second))
        for measure, values in scores.items():
            yield Scores.column(
                originals.explainer,
                noise_floor(measure),
                REDRAW,
                values,
                status.reasons,
                status.codes,
                rows,
                NOTHING_LEFT,
            )

    # ---- similarity --------------------------------------------------------------------------

    def _profile(self, maps: Tensor, valid: Tensor | None = None) -> Profile:
        """Return what the similarities need of maps (B, …): ranks, the k largest values and windows."""
        window_dimensions = maps.ndim - 2  # volumes 3, images 2, series 1, rows of a table 0
        return profile(maps, self._k, self.ties, valid, dims=window_dimensions)

    def _with_fass(self, components: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the components and FASS, on the CPU."""
        scores = {**components, FASS: composite(components, self.weights)}
        return {measure: values.cpu() for measure, values in scores.items()}


def _explain_pairs(
    subject: Subject, explainer: str, undefined: Sequence[str], all_pairs: Sequence[Pairs]
) -> Iterator[ExplainedPairs]:
    """Yield an explainer's maps after every perturbation, of the samples that keep their prediction.

    Samples whose clean map is `undefined` (a reason per sample, "" if defined) are not explained. All perturbations are
    explained in one go, so that batches are full.
    """
    statuses, batches, targets = [], [], []
    for pairs in all_pairs:
        status = pairs.status.copy()
        status.exclude_undefined(undefined)
        statuses.append(status)
        batches.append(pairs.batch[status.retained])
        targets.append(subject.target[status.retained])
    perturbed_maps = subject.explain_many(explainer, batches, targets)
    for pairs, status, maps in zip(all_pairs, statuses, perturbed_maps, strict=True):
        yield ExplainedPairs(pairs, status, maps)


def _perturbed_batch(
    subject: Subject, perturbation: perturbing.Perturbation, changed: Any
) -> tuple[Batch, perturbing.Reworded | None]:
    """Return the batch after a perturbation, and for texts how their words changed; None for other data.

    `changed` is what the perturbation returned: inputs of the same shape, else an error, or changed texts. Regions that
    come with the data are moved where the inputs are.
    """
    text = changed if isinstance(changed, perturbing.Reworded) else None
    x = changed if text is None else text.batch.x
    expected = tuple(subject.batch.x.shape)
    if not isinstance(x, Tensor) or tuple(x.shape) != expected:
        shape = tuple(x.shape) if isinstance(x, Tensor) else type(x).__name__
        raise UserError(
            f"{name_of(perturbation)!r} gave {shape} for inputs of shape {expected}; they must agree"
        )
    if text is not None:
        return text.batch, text
    if not perturbing.is_geometric(perturbation):
        return subject.batch.with_x(x), None

    def move_region(region: Tensor) -> Tensor:
        moved, _ = perturbation.move(region[:, None], subject.batch.ids, subject.seed)
        return moved[:, 0]

    return with_region(subject.batch, x, move_region), None


def _predicted_after(subject: Subject, before: Tensor, after: Tensor, target: int) -> str:
    """Return what the model predicts for a perturbed sample, in words; "" if it reads the same as the prediction before.

    `before` and `after` are the outputs, and `target` the class that is explained.
    """
    task, name_class = subject.model.task, subject.model.class_name
    target_after = int(task.target(after[None])[0])
    now = task.shown(after, target_after, name_class)
    return "" if now == task.shown(before, target, name_class) else now


def _at(items: Items, rows: Tensor) -> Items:
    """Return the maps or profiles at some rows; all of them are not copied."""
    if len(rows) == len(items):
        return items
    device = items.device if isinstance(items, Tensor) else items.rank.device
    return items[rows.to(device)]


def _measures(maps: Tensor) -> tuple[str, ...]:
    """Return what is measured of maps (B, …) of such samples."""
    return measures(kind_of_samples(maps.shape[1:]))


def _no_similarities(maps: Tensor) -> Similarities:
    """Return the similarities of no pairs: every measure with no value."""
    return {measure: (torch.empty(0), Chance(torch.empty(0))) for measure in _measures(maps)}


def _with_chance(
    subject: Subject, rows: Tensor, scores: dict[str, Tensor], to_references: dict[str, Tensor]
) -> Similarities:
    """Return scores (R,) with their chance levels, from the scores (references, R) against the reference samples."""
    ids = [subject.batch.ids[row] for row in rows.tolist()]
    reference_ids = subject.references.batch.ids
    similarities = {}
    for measure, values in scores.items():
        chance = over_references(to_references[measure], ids, reference_ids)
        similarities[measure] = (values, chance)
    return similarities


def _renamed(similarities: Similarities, new_name: Callable[[str], str]) -> Similarities:
    """Return similarities under the names that they have in the table."""
    return {new_name(measure): similarity for measure, similarity in similarities.items()}


def _is_possible(perturbation: perturbing.Perturbation, shape: Sequence[int]) -> bool:
    """Whether a perturbation is defined for samples of a shape."""
    try:
        perturbing.check(perturbation, shape)
    except UserError:
        return False
    return True

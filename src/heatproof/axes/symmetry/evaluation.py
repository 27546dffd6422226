"""The evaluation of symmetry: scores over a group, of explanations, of the model and of its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import BeforeValidator, Field, field_validator
from torch import Tensor

from heatproof.axes.symmetry.criterion import (
    CONSTANT,
    NO_FLAW,
    Criterion,
    compare,
    flaw_text,
    flaws,
    reasons,
)
from heatproof.axes.symmetry.groups import GROUPS, build
from heatproof.axes.symmetry.groups.contract import check_inputs, probe
from heatproof.axes.symmetry.model import ModelInvariance, model_scores
from heatproof.axes.symmetry.orbit import (
    Estimate,
    Orbit,
    explanation_scores,
    layer_errors,
    orbit_of,
    sensitivities,
)
from heatproof.axes.symmetry.scores import NO_BALL
from heatproof.axes.symmetry.symmetrised import symmetrise
from heatproof.batching import BatchRunner
from heatproof.data.graphs import NODES
from heatproof.errors import BadParameter, UserError
from heatproof.evaluation import (
    ALONE,
    CLEAN,
    Condition,
    DataNames,
    Evaluation,
    GalleryImage,
    Measure,
    Scores,
    Span,
)
from heatproof.models import Model
from heatproof.models.layers import activations
from heatproof.subject import Subject
from heatproof.types import Batch, Categorical, Explainer, parameter_class

_UP_TO_ONE: Span = (None, 1.0)
MEASURES = (
    Measure(
        name="equivariance",
        title="equivariance",
        text="how a map moves with inputs; 1: exactly",
        better="higher",
        role="headline",
        span=_UP_TO_ONE,
        noise_floor="noise_floor",
    ),
    Measure(
        name="invariance",
        title="invariance",
        text="how little examples or concepts change",
        better="higher",
        role="headline",
        span=_UP_TO_ONE,
        noise_floor="noise_floor",
    ),
    Measure(
        name="max_sensitivity",
        title="max sensitivity",
        text="largest relative change in a small ball",
        better="lower",
        role="component",
    ),
    Measure(
        name="symmetrised",
        title="symmetrised",
        text="score of the explanation averaged over n elements",
        better="higher",
        role="component",
        span=_UP_TO_ONE,
    ),
    Measure(
        name="convergence",
        title="convergence",
        text="score over the first n elements",
        better="higher",
        role="diagnostic",
        span=_UP_TO_ONE,
    ),
    Measure(
        name="noise_floor",
        title="noise floor",
        text="score of two random draws on one input",
        better="higher",
        role="diagnostic",
        span=_UP_TO_ONE,
    ),
    Measure(
        name="there_and_back",
        title="there and back",
        text="score of a map that was moved there and back",
        better="higher",
        role="diagnostic",
        span=_UP_TO_ONE,
    ),
    Measure(
        name="model_invariance",
        title="model invariance",
        text="cosine of moved probabilities",
        better="neither",
        role="model",
        span=_UP_TO_ONE,
    ),
    Measure(
        name="model_agreement",
        title="model agreement",
        text="share unchanged",
        better="neither",
        role="model",
        span=(0.0, 1.0),
    ),
    Measure(
        name="model_change",
        title="model change",
        text="how far the explained output moves with the input, where unrelated samples differ by 1",
        better="lower",
        role="model",
    ),
    Measure(
        name="layer_invariance_error",
        title="layer invariance error",
        text="how far a layer is from invariant",
        better="lower",
        role="model",
    ),
    Measure(
        name="layer_equivariance_error",
        title="layer equivariance error",
        text="the same from equivariant",
        better="lower",
        role="model",
    ),
)
"""The measures of the axis; maps are ranked by `equivariance`, examples and concepts by `invariance`."""

REDRAW: Condition = ("redraw", 0.0)
"""The unmoved input, explained with other random draws."""
SENSITIVITY = "sensitivity"
NOT_MOVABLE = "the group cannot move what this layer puts out"


def _build_group(value: Any) -> Any:
    """Return the group that a study names; it has no default."""
    if value is None:
        names = ", ".join(sorted(GROUPS))
        raise BadParameter(f"name the group that the model should be invariant to, one of {names}")
    return build(value)


GroupField = Annotated[Any, BeforeValidator(_build_group), Field(validate_default=True)]
"""The type of a field that holds a group, which a study file names."""
Similarity = Literal["auto", "cosine", "agreement", "spearman", "ssim", "jaccard"]


@parameter_class
class Symmetry(Evaluation):
    """Move the input by elements g of a group; compare e(g·x) with g·e(x), or with e(x) for examples and concepts.

    One row per sample: `equivariance` or `invariance` of the explanation of the class that is predicted for x, beside
    `model_invariance` (of classes only), `model_agreement` and `model_change` of the model itself, with bounds of the
    Monte-Carlo error and the chance level. Stochastic explainers have a `noise_floor`, the score of two draws on one
    input, and groups that interpolate `there_and_back`, the score of a map against itself moved there and back.

    All elements are tried where the group has at most `elements`, else that many are drawn. `similarity="auto"` is the
    agreement for explainers of categories and the cosine for others. `sensitivity` is the radius of a ball for
    max-sensitivity, `repair` holds numbers of elements to symmetrise over (the measure `symmetrised`), `layers` names
    layers to test, and `convergence` numbers of elements n at which the score of the first n is kept.

    >>> Symmetry(group="cyclic", repair=(1, 4)).conditions()
    [('cyclic', 8.0), ('symmetrised', 1.0), ('symmetrised', 4.0)]
    """

    name: ClassVar[str] = "symmetry"
    reexplains: ClassVar[bool] = True
    kinds: ClassVar[frozenset[str]] = frozenset({"feature", "example", "concept"})

    group: GroupField = None
    elements: Annotated[int, Field(ge=1)] = 8
    similarity: Similarity = "auto"
    sensitivity: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    sensitivity_draws: Annotated[int, Field(ge=1)] = 10
    repair: tuple[Annotated[int, Field(ge=1)], ...] = ()
    layers: tuple[str, ...] = ()
    delta: Annotated[float, Field(gt=0, lt=1)] = 0.05
    convergence: tuple[Annotated[int, Field(ge=1)], ...] = ()
    data: DataNames = None

    @field_validator("repair", "layers", "convergence")
    @classmethod
    def _check_different(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"the entries must be different, got {value}")
        return value

    def conditions(self) -> list[Condition]:
        """Return (condition, level) of everything that is scored; the level of a group is the most elements it may use."""
        conditions = [(str(self.group.name), float(self.elements))]
        if self.sensitivity is not None:
            conditions.append((SENSITIVITY, self.sensitivity))
        conditions += [("symmetrised", float(n)) for n in self.repair]
        conditions += [("convergence", float(n)) for n in self._convergence_steps()]
        conditions += [(layer, float(self.elements)) for layer in self.layers]
        return conditions

    def _convergence_steps(self) -> list[int]:
        """Return the numbers of elements at which the score is stored, of which no more can be than are tried."""
        return [n for n in self.convergence if n <= self.elements]

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return the evaluation itself; raise `UserError` for data that the group or the similarity does not fit.

        The group's action is tried on the sample.
        """
        check_inputs(self.group, sample)
        shape = tuple(sample.x.shape[1:])
        self.group.check(shape)
        if self.similarity == "ssim" and len(shape) != 3:
            raise UserError(
                f"ssim compares images (C, H, W), got samples of shape {shape}; use cosine"
            )
        return self

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield scores of how well explanations, the model and its layers keep a symmetry, explainer by explainer.

        `subject` holds the samples, the model and the explainers. The scores of the model and its layers are computed once
        and repeated for every explainer.
        """
        orbit = orbit_of(self.group, subject.batch, self.elements, subject.seed)
        # The level of the condition is the number of elements. For permutations that depends on the padding of a sample,
        # but conditions must be the same for all samples, so it is taken from a made-up sample without padding.
        order = self.group.order(probe(subject.batch.x.shape[1:]))
        elements = float(min(self.elements, order))
        condition = (str(self.group.name), elements)
        model = model_scores(
            orbit,
            subject.predict,
            self.delta,
            subject.target,
            subject.references.batch,
            subject.model.task,
        )
        layers = {layer: layer_errors(orbit, _activate(subject, layer)) for layer in self.layers}
        no_layer_score = orbit.reasons([""] * len(subject.batch))
        for explainer in subject.explainers:
            yield from _model_rows(explainer, condition, model)
            yield from self._explanation_rows(subject, explainer, orbit, condition)
            for layer, errors in layers.items():
                yield from _layer_rows(explainer, (layer, elements), errors, no_layer_score)

    def _explanation_rows(
        self, subject: Subject, explainer: str, orbit: Orbit, condition: Condition
    ) -> Iterator[Scores | GalleryImage]:
        """Yield the symmetry score of an explainer's explanations, the checks on it, and its worst cases as pictures.

        `orbit` has the samples and the group elements that move them, and `condition` names the group. Checks are the
        convergence with the number of elements, interpolation, random draws, sensitivity and symmetrised explanations.
        """
        criterion = self._criterion(subject.explainers[explainer])
        clean = subject.maps(explainer)
        shown = _shown_samples(subject, clean) if criterion.moves else []
        score = explanation_scores(
            orbit,
            partial(subject.explain, explainer),
            clean,
            subject.target,
            criterion,
            _reference_explanations(subject, explainer, clean),
            shown,
        )
        yield _score_row(explainer, criterion.measure, condition, score)
        for n in self._convergence_steps():
            by_element = torch.where(orbit.used, orbit.weighted(score.each), torch.nan)
            mean_of_first_n = by_element[:, :n].nanmean(1)
            where = ("convergence", float(n))
            yield Scores.column(explainer, "convergence", where, mean_of_first_n, score.reason)
        if score.there_and_back is not None:
            where = ("there_and_back", condition[1])
            yield Scores.column(
                explainer, "there_and_back", where, score.there_and_back, score.reason
            )
        if subject.explainers[explainer].stochastic:
            second = subject.redrawn_maps(explainer)
            yield _noise_floor_row(explainer, criterion, second, clean)
        if self.sensitivity is not None:
            yield self._sensitivity_row(subject, explainer, clean, self.sensitivity)
        for n in self.repair:
            yield self._symmetrised_row(subject, explainer, orbit, n)
        if shown:
            yield from _gallery(subject, explainer, orbit, condition, clean, score, shown)

    def _criterion(self, explainer: Explainer) -> Criterion:
        """Return how explanations of this kind are compared, and whether they should move with the input."""
        similarity: str = self.similarity
        if similarity == "auto":
            categorical = isinstance(explainer, Categorical) and explainer.categorical
            similarity = "agreement" if categorical else "cosine"
        return Criterion(similarity, explainer.kind == "feature", self.delta)

    def _sensitivity_row(
        self, subject: Subject, explainer: str, clean: Tensor, radius: float
    ) -> Scores:
        """Return the max-sensitivity of an explainer: the largest relative change of a map when noise is added to the input.

        The noise is uniform on ±radius. There is no score for token ids, to which nothing can be added.
        """
        where, batch = (SENSITIVITY, radius), subject.batch
        if not batch.x.is_floating_point():
            no_score = torch.full((len(batch),), torch.nan)
            return Scores.column(
                explainer, "max_sensitivity", where, no_score, [NO_BALL] * len(batch)
            )
        explain = partial(subject.explain, explainer)
        changes = sensitivities(
            explain, batch, subject.target, clean, radius, self.sensitivity_draws, subject.seed
        )
        flaw = flaws("cosine", clean)
        if clean[0].numel() == 1:
            # A single number is always constant, and its change is defined all the same.
            flaw = flaw.masked_fill(flaw == CONSTANT, NO_FLAW)
        reason = [flaw_text(number) for number in flaw.tolist()]
        missing = "the explanation of a perturbed input is not finite"
        return Scores.column(
            explainer, "max_sensitivity", where, changes.amax(1), reason, missing=missing
        )

    def _symmetrised_row(self, subject: Subject, explainer: str, orbit: Orbit, n: int) -> Scores:
        """Return the symmetry score of the explanation averaged over n elements of the group, which repairs it."""
        averaged = symmetrise(subject.explainers[explainer], self.group, n)
        runner = BatchRunner(subject.model, subject.model.rows)

        def explain(batch: Batch, target: Tensor) -> Tensor:
            return runner.explain(averaged, explainer, batch, target, subject.seed)

        clean = explain(subject.batch, subject.target)
        score = explanation_scores(orbit, explain, clean, subject.target, self._criterion(averaged))
        return _score_row(explainer, "symmetrised", ("symmetrised", float(n)), score)


def _shown_samples(subject: Subject, maps: Tensor) -> list[int]:
    """Return the numbers of the samples of the gallery; none where a map cannot be drawn."""
    has_channels = maps.ndim in (4, 5)
    if has_channels and maps.shape[1] not in (1, 3):
        return []
    return subject.gallery_rows


def _reference_explanations(subject: Subject, explainer: str, clean: Tensor) -> Batch | None:
    """Return the explanations of the reference samples, None if theirs have another shape."""
    explanations = subject.references.maps(explainer)
    if explanations.shape[1:] != clean.shape[1:]:
        return None
    return Batch(subject.references.batch.ids, explanations)


def _activate(subject: Subject, layer: str) -> Callable[[Batch], Tensor]:
    """Return a function that computes the output of a layer, in batches that fit into memory."""

    def forward(some: Batch, _: Tensor) -> Tensor:
        return activations(subject.model, some, layer)

    def activate(batch: Batch) -> Tensor:
        return subject.compute(forward, batch, torch.zeros(len(batch)))

    return activate


def _layer_rows(
    explainer: str, where: Condition, errors: tuple[Tensor, Tensor | None], reason: Sequence[str]
) -> Iterator[Scores]:
    """Yield how far a layer is from being invariant and from being equivariant, as columns of scores.

    `errors` are both relative errors (B, n) of B samples moved by n elements, of which the largest count; the second is
    None if the group cannot move the layer's output. `reason` says why a sample has no score.
    """
    invariance, equivariance = errors
    zero = "the layer's output is zero or not finite"
    value = invariance.amax(1)
    yield Scores.column(explainer, "layer_invariance_error", where, value, reason, missing=zero)
    missing = zero
    if equivariance is None:
        value, missing = torch.full_like(value, torch.nan), NOT_MOVABLE
    else:
        value = equivariance.amax(1)
    yield Scores.column(
        explainer, "layer_equivariance_error", where, value, reason, missing=missing
    )


def _noise_floor_row(explainer: str, criterion: Criterion, second: Tensor, clean: Tensor) -> Scores:
    """Return how similar two explanations of the same input are, with different random draws: the noise floor of a score.

    `clean` (B, …) and `second` (B, …) are the explanations.
    """
    similarity = criterion.similarity
    value = compare(similarity, second, clean)
    reason = reasons(
        flaws(similarity, clean),
        flaws(similarity, second)[:, None],
        "the explanation of the second draw",
        value.isnan(),
    )
    return Scores.column(explainer, "noise_floor", REDRAW, value, reason)


def _model_rows(explainer: str, where: Condition, model: ModelInvariance) -> Iterator[Scores]:
    """Yield the scores of the model, which stand beside those of every explainer."""
    yield _score_row(explainer, "model_agreement", where, model.agreement)
    if model.cosine is not None:
        yield _score_row(explainer, "model_invariance", where, model.cosine)
    yield _score_row(explainer, "model_change", where, model.change, missing=ALONE)


def _score_row(
    explainer: str,
    measure: str,
    where: Condition,
    score: Estimate,
    missing: str = "nothing to compare",
) -> Scores:
    """Return a score with its bounds and its chance level as a column."""
    return Scores.column(
        explainer,
        measure,
        where,
        score.value,
        score.reason,
        missing=missing,
        bounds=(score.low, score.high),
        chance=score.chance,
    )


def _gallery(
    subject: Subject,
    explainer: str,
    orbit: Orbit,
    where: Condition,
    clean: Tensor,
    score: Estimate,
    shown: Sequence[int],
) -> Iterator[GalleryImage]:
    """Yield pictures of the worst cases: each of the `shown` samples with its map, as it is and moved.

    It is moved by the group element whose score is lowest. `clean` are the maps of the unmoved samples, `where` is the
    condition of the group.
    """
    rows = torch.tensor(shown)
    # An undefined score counts as the lowest.
    worst = score.each[rows].nan_to_num(nan=-torch.inf).argmin(1)
    device = orbit.elements.device
    g = orbit.elements[worst.to(device), rows.to(device)]
    batch = subject.batch[rows]
    moved = orbit.group.act(g, batch)
    if "adjacency" in batch.aux:  # a moved graph is drawn where its nodes were
        numbers = torch.arange(batch.x.shape[1], device=device)[:, None].expand_as(batch.x)
        moved = replace(moved, aux={**moved.aux, NODES: orbit.group.move(g, numbers)[..., 0]})
    for row, sample in enumerate(shown):
        lowest = float(score.each[sample, worst[row]])
        note = f"equivariance {lowest:.2f}, the lowest of {len(orbit)}"
        yield GalleryImage.of(explainer, CLEAN, subject.batch, sample, clean[sample])
        yield GalleryImage.of(
            explainer, where, moved, row, score.worst[sample], score.reason[sample] or note
        )

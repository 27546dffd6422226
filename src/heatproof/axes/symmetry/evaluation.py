"""The evaluation of symmetry: scores over a group, of explanations, of the model and of its layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, field_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof.axes.symmetry.criterion import Criterion, compare, flaw_text, flaws, reasons
from heatproof.axes.symmetry.groups import GROUPS, build
from heatproof.axes.symmetry.groups.contract import check_inputs, probe
from heatproof.axes.symmetry.model import ModelInvariance, model_scores
from heatproof.axes.symmetry.orbit import (
    Estimate,
    Orbit,
    explanation_scores,
    layer_errors,
    orbit,
    sensitivities,
)
from heatproof.axes.symmetry.scores import NO_BALL
from heatproof.axes.symmetry.symmetrised import symmetrise
from heatproof.data.graphs import NODES
from heatproof.errors import BadParameter, UserError
from heatproof.evaluation import CLEAN, REDRAW, Condition, Exhibit, Measure, Scores, Subject
from heatproof.models import Model
from heatproof.models.batches import Workbench
from heatproof.models.layers import activations
from heatproof.types import STRICT, Batch, Categorical, Explainer

_CHANCE: tuple[Any, ...] = ((None, 1.0), "column")
_CHANGE = "how far the explained output moves with the input, where unrelated samples differ by 1"
MEASURES = (
    Measure(
        "equivariance",
        "equivariance",
        "how a map moves with inputs; 1: exactly",
        "higher",
        "headline",
        *_CHANCE,
    ),
    Measure(
        "invariance",
        "invariance",
        "how little examples or concepts change",
        "higher",
        "headline",
        *_CHANCE,
    ),
    Measure(
        "max_sensitivity",
        "max sensitivity",
        "largest relative change in a small ball",
        "lower",
        "component",
    ),
    Measure(
        "model_invariance",
        "model invariance",
        "cosine of moved probabilities",
        "neither",
        "model",
        *_CHANCE,
    ),
    Measure(
        "model_agreement",
        "model agreement",
        "share unchanged",
        "neither",
        "model",
        (0.0, 1.0),
        "column",
    ),
    Measure("model_change", "model change", _CHANGE, "lower", "model"),
    Measure(
        "layer_invariance_error",
        "layer invariance error",
        "how far a layer is from invariant",
        "lower",
        "model",
    ),
    Measure(
        "layer_equivariance_error",
        "layer equivariance error",
        "the same from equivariant",
        "lower",
        "model",
    ),
)
"""What is known of the measures of the axis; the first that an explanation has speaks for it."""

SYMMETRISED = "symmetrised"
SENSITIVITY = "sensitivity"
CONVERGENCE = "convergence"
BACK = "there_and_back"
NO_OTHER = "no other sample to compare with"
NOT_MOVABLE = "the group cannot move what this layer puts out"


def _named_group(value: Any) -> Any:
    if value is None:
        named = ", ".join(sorted(GROUPS))
        raise BadParameter(f"name the group that the model should be invariant to, one of {named}")
    return build(value)


GroupField = Annotated[Any, BeforeValidator(_named_group), Field(validate_default=True)]
"""The type of a field that holds a group, which a study file names."""
Similarity = Literal["auto", "cosine", "agreement", "spearman", "ssim", "jaccard"]


@dataclass(frozen=True, config=STRICT)
class Symmetry:
    """Move the input by elements g of a group; compare e(g·x) with g·e(x), or with e(x) for examples and concepts.

    One row per sample: `equivariance` or `invariance` of the explanation of the class that is predicted for x, beside
    `model_invariance` (of classes only), `model_agreement` and `model_change` of the model itself, with bounds of the
    Monte-Carlo error and the chance level. All elements are tried where the group has at most `elements`, else that
    many are drawn. `similarity="auto"` is the agreement for explainers of categories and the cosine for others.
    `sensitivity` is the radius of a ball for max-sensitivity, `repair` holds numbers of elements to symmetrise over,
    `layers` names layers to test, and `convergence` numbers of elements n at which the score of the first n is kept.

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

    @field_validator("repair", "layers", "convergence")
    @classmethod
    def _different(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"the entries must be different, got {value}")
        return value

    def conditions(self) -> list[Condition]:
        """(condition, level) of everything that is scored; the level of a group is the most elements it may use."""
        named = [(str(self.group.name), float(self.elements))]
        if self.sensitivity is not None:
            named.append((SENSITIVITY, self.sensitivity))
        named += [(SYMMETRISED, float(n)) for n in self.repair]
        named += [(CONVERGENCE, float(n)) for n in self.convergence if n <= self.elements]
        return named + [(layer, float(self.elements)) for layer in self.layers]

    def suited(self, model: Model, batch: Batch) -> Symmetry:
        """Itself, after the group's action was tried on a few samples."""
        check_inputs(self.group, batch)
        return self

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that the group or the similarity does not fit; `shape` is that of a sample."""
        self.group.check(tuple(shape))
        if self.similarity == "ssim" and len(shape) != 3:
            raise UserError(
                f"ssim compares images (C, H, W), got samples of shape {tuple(shape)}; use cosine"
            )

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """Columns of scores, explainer by explainer; what does not depend on the explainer is computed once."""
        around = orbit(self.group, subject.batch, self.elements, subject.seed)
        # The order of a group of permutations depends on the padding: what a condition is called must not.
        most = float(min(self.elements, self.group.order(probe(subject.batch.x.shape[1:]))))
        asked = subject.target, subject.references, subject.model.task
        model = model_scores(around, subject.predict, self.delta, *asked)
        layers = {layer: layer_errors(around, _activate(subject, layer)) for layer in self.layers}
        for explainer in subject.explainers:
            yield from self._judge(subject, explainer, around, (str(self.group.name), most), model)
            for layer, errors in layers.items():
                yield from _layer_rows(
                    explainer, (layer, most), errors, around.reasons([""] * len(subject.batch))
                )

    def _judge(
        self,
        subject: Subject,
        explainer: str,
        around: Orbit,
        where: Condition,
        model: ModelInvariance,
    ) -> Iterator[Scores | Exhibit]:
        item = subject.explainers[explainer]
        criterion = self._criterion(item)
        for measure, found in (
            ("model_agreement", model.agreement),
            ("model_invariance", model.cosine),
        ):
            yield from _estimated(explainer, measure, where, found) if found is not None else ()
        yield from _estimated(explainer, "model_change", where, model.change, NO_OTHER)
        clean = subject.clean(explainer)
        theirs = subject.reference(explainer)
        others = (
            Batch(subject.references.ids, theirs) if theirs.shape[1:] == clean.shape[1:] else None
        )
        explain = partial(subject.explain, explainer)
        pictures = clean.ndim not in (4, 5) or clean.shape[1] in (1, 3)
        shown = [
            i
            for i, sample in enumerate(subject.batch.ids)
            if criterion.moves and sample in subject.showcase
        ]
        shown = shown if pictures else []
        score = explanation_scores(around, explain, clean, subject.target, criterion, others, shown)
        yield from _estimated(explainer, criterion.measure, where, score)
        for n in (float(n) for n in self.convergence if n <= self.elements):
            first = torch.where(around.used, score.each, torch.nan)[:, : int(n)].nanmean(1)
            yield Scores.column(explainer, criterion.measure, (CONVERGENCE, n), first, score.reason)
        if score.back is not None:
            yield Scores.column(
                explainer, criterion.measure, (BACK, where[1]), score.back, score.reason
            )
        if item.stochastic:
            again = subject.explain(explainer, subject.batch, subject.target, subject.seed + 1)
            yield _floor(explainer, criterion, again, clean)
        if self.sensitivity is not None:
            yield self._sensitivity(subject, explainer, clean, self.sensitivity)
        for n in self.repair:
            yield from self._repaired(subject, explainer, around, n)
        if shown:
            yield from _gallery(subject, explainer, around, where, clean, score, shown)

    def _criterion(self, explainer: Explainer) -> Criterion:
        similarity: str = self.similarity
        if similarity == "auto":
            categorical = isinstance(explainer, Categorical) and explainer.categorical
            similarity = "agreement" if categorical else "cosine"
        return Criterion(similarity, explainer.kind == "feature", self.delta)

    def _sensitivity(
        self, subject: Subject, explainer: str, clean: Tensor, radius: float
    ) -> Scores:
        where, batch = (SENSITIVITY, radius), subject.batch
        if not batch.x.is_floating_point():
            nothing = torch.full((len(batch),), torch.nan)
            return Scores.column(
                explainer, "max_sensitivity", where, nothing, [NO_BALL] * len(batch)
            )
        explain = partial(subject.explain, explainer)
        changes = sensitivities(
            explain, batch, subject.target, clean, radius, self.sensitivity_draws, subject.seed
        )
        flawed = flaws("cosine", clean) % (
            3 if clean[0].numel() == 1 else 4
        )  # a single number is no constant map
        why = [flaw_text(flaw) for flaw in flawed.tolist()]
        missing = "the explanation of a perturbed input is not finite"
        return Scores.column(
            explainer, "max_sensitivity", where, changes.amax(1), why, missing=missing
        )

    def _repaired(
        self, subject: Subject, explainer: str, around: Orbit, n: int
    ) -> Iterator[Scores]:
        repaired = symmetrise(subject.explainers[explainer], self.group, n)
        criterion = self._criterion(repaired)
        bench = Workbench(subject.model, subject.model.rows)

        def explain(batch: Batch, target: Tensor) -> Tensor:
            return bench.explain(repaired, explainer, batch, target, subject.seed)

        clean = explain(subject.batch, subject.target)
        score = explanation_scores(around, explain, clean, subject.target, criterion)
        return _estimated(explainer, criterion.measure, (SYMMETRISED, float(n)), score)


def _activate(subject: Subject, layer: str) -> Callable[[Batch], Tensor]:
    def call(part: Batch, _: Tensor) -> Tensor:
        return activations(subject.model, part, layer)

    return lambda batch: subject.compute(call, batch, torch.zeros(len(batch)))


def _layer_rows(
    explainer: str, where: Condition, errors: tuple[Tensor, Tensor | None], why: Sequence[str]
) -> Iterator[Scores]:
    """The largest relative errors over the elements."""
    for name, error in zip(("invariance", "equivariance"), errors, strict=True):
        largest = torch.full((len(errors[0]),), torch.nan) if error is None else error.amax(1)
        missing = NOT_MOVABLE if error is None else "the layer's output is zero or not finite"
        yield Scores.column(explainer, f"layer_{name}_error", where, largest, why, missing=missing)


def _floor(explainer: str, criterion: Criterion, again: Tensor, clean: Tensor) -> Scores:
    """The agreement of two draws on the same input."""
    name = criterion.similarity
    value = compare(name, again, clean)
    second = "the explanation of the second draw"
    why = reasons(flaws(name, clean), flaws(name, again)[:, None], second, value.isnan())
    return Scores.column(explainer, criterion.measure, (REDRAW, 0.0), value, why)


def _gallery(
    subject: Subject,
    explainer: str,
    around: Orbit,
    where: Condition,
    clean: Tensor,
    score: Estimate,
    shown: Sequence[int],
) -> Iterator[Exhibit]:
    """The input and its map, and the element at which the score is lowest."""
    rows = torch.tensor(shown)
    worst = score.each[rows].nan_to_num(nan=-torch.inf).argmin(1)
    device = around.elements.device
    here, g = subject.batch[rows], around.elements[worst.to(device), rows.to(device)]
    moved = around.group.act(g, here)
    if "adjacency" in here.aux:  # a moved graph is drawn where its nodes were
        numbers = torch.arange(here.x.shape[1], device=device)[:, None].expand_as(here.x)
        moved = replace(moved, aux={**moved.aux, NODES: around.group.move(g, numbers)[..., 0]})
    for row, i in enumerate(shown):
        yield Exhibit.of(explainer, CLEAN, subject.batch, i, clean[i])
        note = (
            score.reason[i]
            or f"equivariance {float(score.each[i, worst[row]]):.2f}, the lowest of {len(around)}"
        )
        yield Exhibit.of(explainer, where, moved, row, score.worst[i], note)


def _estimated(
    explainer: str,
    measure: str,
    where: Condition,
    score: Estimate,
    missing: str = "nothing to compare",
) -> Iterator[Scores]:
    """A score with its bounds, and its chance level where that is known."""
    bounds = (score.low, score.high)
    yield Scores.column(
        explainer, measure, where, score.value, score.reason, missing=missing, bounds=bounds
    )
    if score.chance is not None:
        chance = Scores.column(
            explainer, f"{measure}_chance", where, score.chance, score.reason, missing=NO_OTHER
        )
        yield replace(chance, by_reference=score.by_reference)

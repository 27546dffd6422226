"""Symmetry: does the explanation respect what the model is invariant to?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, field_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.axes.symmetry.groups import GROUPS, build
from holdfast.axes.symmetry.orbit import (
    Estimate,
    ModelInvariance,
    Orbit,
    compare,
    explanation_scores,
    flaw_text,
    flaws,
    layer_errors,
    model_scores,
    orbit,
    sensitivities,
)
from holdfast.axes.symmetry.scores import NO_BALL
from holdfast.axes.symmetry.symmetrised import symmetrise
from holdfast.errors import BadParameter, UserError
from holdfast.models import Model
from holdfast.models.batches import Workbench
from holdfast.models.layers import activations
from holdfast.types import OK, REDRAW, STRICT, UNDEFINED, Batch, Exhibit, Scores, Subject

SYMMETRISED = "symmetrised"
SENSITIVITY = "sensitivity"
NOT_MOVABLE = "the group cannot move what this layer puts out"


def _named_group(value: Any) -> Any:
    if value is None:
        named = ", ".join(sorted(GROUPS))
        raise BadParameter(f"name the group that the model should be invariant to, one of {named}")
    return build(value)


GroupField = Annotated[Any, BeforeValidator(_named_group), Field(validate_default=True)]
"""The type of a field that holds a group and is also given by name in a study file."""
Similarity = Literal["auto", "cosine", "agreement", "spearman", "ssim", "jaccard"]


@dataclass(frozen=True, config=STRICT)
class Symmetry:
    """Move the input by elements g of a group; compare e(g·x) with g·e(x), or with e(x) for examples and concepts.

    One row per sample: `equivariance` or `invariance` of the explanation of the class that is predicted for x, beside
    `model_invariance` and `model_agreement` of the model itself, all with bounds of the Monte-Carlo error, and the
    chance level. All elements are tried where the group has at most `elements`, else that many are drawn. For
    stochastic explainers the condition `redraw` compares two draws on the same input. `similarity="auto"` is the
    agreement for explainers of categories and the cosine for others. `sensitivity` is the radius of a ball for
    max-sensitivity, `repair` holds numbers of elements to symmetrise over, and `layers` names layers to test.

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

    @field_validator("repair", "layers")
    @classmethod
    def _different(cls, value: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(set(value)) != len(value):
            raise ValueError(f"the entries must be different, got {value}")
        return value

    def conditions(self) -> list[tuple[str, float]]:
        """(condition, level) of everything that is scored; the level of a group is the most elements it may use."""
        named = [(str(self.group.name), float(self.elements))]
        if self.sensitivity is not None:
            named.append((SENSITIVITY, self.sensitivity))
        named += [(SYMMETRISED, float(n)) for n in self.repair]
        return named + [(layer, float(self.elements)) for layer in self.layers]

    def suited(self, model: Model, batch: Batch) -> Symmetry:
        """Itself: nothing is left open for the data to decide."""
        return self

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that the group or the similarity does not fit; `shape` is that of a sample."""
        self.group.check(tuple(shape))
        if self.similarity == "ssim" and len(shape) != 3:
            raise UserError(
                f"ssim compares images (C, H, W), this data has samples of shape {tuple(shape)}; use cosine"
            )

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """Columns of scores, explainer by explainer; what does not depend on the explainer is computed once."""
        around = orbit(self.group, subject.batch, self.elements, subject.seed)
        model = model_scores(around, subject.predict, self.delta)
        layers = {layer: layer_errors(around, _activate(subject, layer)) for layer in self.layers}
        for explainer in subject.explainers:
            yield from self._judge(subject, explainer, around, model)
            for layer, errors in layers.items():
                yield from _layer_rows(explainer, (layer, float(len(around))), errors)

    def _judge(
        self, subject: Subject, explainer: str, around: Orbit, model: ModelInvariance
    ) -> Iterator[Scores | Exhibit]:
        item = subject.explainers[explainer]
        moves = getattr(item, "kind", "feature") == "feature"
        measure = "equivariance" if moves else "invariance"
        alike = self._similarity(item)
        where = (str(self.group.name), float(len(around)))
        yield _estimated(explainer, "model_agreement", where, model.agreement)
        yield _estimated(explainer, "model_invariance", where, model.cosine)
        clean = subject.clean(explainer)
        theirs = subject.reference(explainer)
        others = Batch(subject.references.ids, theirs) if theirs.shape[1:] == clean.shape[1:] else None
        explain = partial(subject.explain, explainer)
        pictures = moves and clean.ndim == 4 and clean.shape[1] in (1, 3)
        shown = [i for i, sample in enumerate(subject.batch.ids) if pictures and sample in subject.showcase]
        found = explanation_scores(around, explain, clean, subject.target, alike, moves, self.delta, others, shown)
        yield _estimated(explainer, measure, where, found)
        if found.chance is not None:
            missing = "no other sample to compare with"
            yield _scores(explainer, f"{measure}_chance", where, found.chance, found.reason, missing)
        if getattr(item, "stochastic", True):
            again = subject.explain(explainer, subject.batch, subject.target, subject.seed + 1)
            yield _floor(explainer, measure, alike, again, clean)
        if self.sensitivity is not None:
            yield self._sensitivity(subject, explainer, clean)
        for n in self.repair:
            yield self._repaired(subject, explainer, around, moves, n)
        if shown:
            yield from _gallery(subject, explainer, around, where, clean, found, shown)

    def _similarity(self, explainer: Any) -> str:
        if self.similarity != "auto":
            return self.similarity
        return "agreement" if getattr(explainer, "categorical", False) else "cosine"

    def _sensitivity(self, subject: Subject, explainer: str, clean: Tensor) -> Scores:
        assert self.sensitivity is not None
        where, batch = (SENSITIVITY, self.sensitivity), subject.batch
        if not batch.x.is_floating_point():
            nothing = torch.full((len(batch),), torch.nan)
            return _scores(explainer, "max_sensitivity", where, nothing, [NO_BALL] * len(batch))
        explain = partial(subject.explain, explainer)
        draws = self.sensitivity_draws
        found = sensitivities(explain, batch, subject.target, clean, self.sensitivity, draws, subject.seed)
        why = [f"the explanation is {flaw_text('cosine', f)}" if f else "" for f in flaws("cosine", clean).tolist()]
        missing = "the explanation of a perturbed input is not finite"
        return _scores(explainer, "max_sensitivity", where, found.amax(1), why, missing)

    def _repaired(self, subject: Subject, explainer: str, around: Orbit, moves: bool, n: int) -> Scores:
        repaired: Any = symmetrise(subject.explainers[explainer], self.group, n)
        alike = self._similarity(repaired)
        bench = Workbench(subject.model, subject.model.rows)

        def explain(batch: Batch, target: Tensor) -> Tensor:
            return bench.explain(repaired, explainer, batch, target, subject.seed)

        clean = explain(subject.batch, subject.target)
        found = explanation_scores(around, explain, clean, subject.target, alike, moves, self.delta)
        measure = "equivariance" if moves else "invariance"
        return _estimated(explainer, measure, (SYMMETRISED, float(n)), found)


def _activate(subject: Subject, layer: str) -> Callable[[Batch], Tensor]:
    def call(part: Batch, _: Tensor) -> Tensor:
        return activations(subject.model, part, layer)

    return lambda batch: subject.compute(call, batch, torch.zeros(len(batch)))


def _layer_rows(
    explainer: str, where: tuple[str, float], errors: tuple[Tensor, Tensor | None]
) -> Iterator[Scores | Exhibit]:
    """The largest relative errors over the elements."""
    for name, error in zip(("invariance", "equivariance"), errors, strict=True):
        column = torch.full((len(errors[0]),), torch.nan) if error is None else error.amax(1)
        missing = NOT_MOVABLE if error is None else "the layer's output is zero or not finite"
        yield _scores(explainer, f"layer_{name}_error", where, column, [""] * len(column), missing)


def _floor(explainer: str, measure: str, alike: str, again: Tensor, clean: Tensor) -> Scores:
    why = []
    for own, other in zip(flaws(alike, clean).tolist(), flaws(alike, again).tolist(), strict=True):
        what = "the explanation" if own else "the explanation of the second draw"
        why.append(f"{what} is {flaw_text(alike, own or other)}" if own or other else "")
    return _scores(explainer, measure, (REDRAW, 0.0), compare(alike, again, clean), why)


def _gallery(
    subject: Subject,
    explainer: str,
    around: Orbit,
    where: tuple[str, float],
    clean: Tensor,
    found: Estimate,
    shown: Sequence[int],
) -> Iterator[Exhibit]:
    """The input and its map, and the element at which the score is lowest."""
    rows = torch.tensor(shown)
    worst = found.each[rows].nan_to_num(nan=-torch.inf).argmin(1)
    place = around.elements.device
    moved = around.group.act(around.elements[worst.to(place), rows.to(place)], subject.batch[rows])
    for row, i in enumerate(shown):
        sample = subject.batch.ids[i]
        yield Exhibit(explainer, "clean", 0.0, sample, subject.batch.x[i], clean[i])
        note = found.reason[i] or f"equivariance {float(found.each[i, worst[row]]):.2f}, the lowest of {len(around)}"
        yield Exhibit(explainer, *where, sample, moved.x[row], found.worst[i], note)


def _estimated(explainer: str, measure: str, where: tuple[str, float], found: Estimate) -> Scores:
    return _scores(explainer, measure, where, found.value, found.reason, low=found.low, high=found.high)


def _scores(
    explainer: str,
    measure: str,
    where: tuple[str, float],
    value: Tensor,
    reason: Sequence[str],
    missing: str = "nothing to compare",
    low: Tensor | None = None,
    high: Tensor | None = None,
) -> Scores:
    """A full column: NaN with a status and a reason where a sample has no score."""
    finite = torch.isfinite(value).tolist()
    why = tuple(text or ("" if ok else missing) for text, ok in zip(reason, finite, strict=True))
    lost = torch.tensor([bool(text) for text in why], dtype=torch.bool)
    status = torch.where(lost, UNDEFINED, OK)
    value = value.double().masked_fill(lost, torch.nan)
    bounds = [None if v is None else v.double().masked_fill(lost, torch.nan) for v in (low, high)]
    return Scores(explainer, measure, *where, value, status, why, *bounds)

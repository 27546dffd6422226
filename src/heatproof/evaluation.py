"""Evaluations, and what they yield: columns of scores, and images for the report."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
import torch
from pydantic import BeforeValidator
from torch import Tensor

from heatproof.types import Batch

if TYPE_CHECKING:
    from heatproof.models import Model
    from heatproof.subject import Subject

OK, FLIPPED, UNDEFINED, OPEN = 0, 1, 2, 3
STATUS = ("ok", "flipped", "undefined", "open")
"""Scored; the prediction changed; there is no score, for a reason; a test stopped before it could decide."""
ALONE = "no other sample to compare with"
"""Why a scored sample has no chance level: it is the only reference sample itself."""
Condition = tuple[str, float]
"""What was done to the input, and how strongly: ("jpeg", 40.0)."""
CLEAN: Condition = ("clean", 0.0)
"""The condition of an input as it is."""


Span = tuple[float | None, float | None]
"""The ends of a scale, None where it has none."""
Better = Literal["higher", "lower", "neither"]
Role = Literal["headline", "component", "curve", "model", "cost", "diagnostic"]


@dataclass(frozen=True)
class Measure:
    """The declaration of a measure.

    role        "headline": may speak for its test (the first that was measured does); "component": stands behind a
                headline; "curve": a point of a curve; "model": concerns the model alone; "cost"; "diagnostic": a check
                on the measurement itself, which takes no part in overall scores
    span        the ends of its range, None for one that it lacks
    chance      how a chance level is used where the table has one: "calibrate" turns a value into
                (value − chance)/(1 − chance), "compare" only sets it beside the value
    rate        every value is 0 or 1, so the interval of its mean is that of a proportion
    noise_floor the measure that compares two random draws of a map on one input, in the unit of this one
    networks    its repeats are networks with random weights, so one of them says nothing of their spread

    >>> Measure("depth", "Depth", "how deep a map goes", "lower", "headline").sign
    -1
    """

    name: str
    title: str
    text: str
    better: Better
    role: Role
    span: Span | None = None
    chance: Literal["calibrate", "compare"] = "calibrate"
    rate: bool = False
    noise_floor: str = ""
    networks: bool = False

    @property
    def sign(self) -> int:
        """1 where more is better, −1 where less is, 0 where it has no better direction."""
        return {"higher": 1, "lower": -1, "neither": 0}[self.better]


@dataclass(frozen=True)
class Chance:
    """What an uninformative map scores on each of B samples, (B,); NaN where nothing is known.

    Where it was measured against R reference samples, `sums` (R,) says how far each of them lies above the level,
    summed over the `counts` (R,) samples that were compared with it: its part in the error of a mean.
    """

    level: Tensor
    sums: Tensor | None = None
    counts: Tensor | None = None


@dataclass(frozen=True)
class Scores:
    """One column of results for B samples; a flipped pair is a row with a status, never a gap.

    `value`, `status` (OK, FLIPPED, UNDEFINED or OPEN) and, where given, `low`, `high` and `chance` have shape (B,);
    `reason` has an entry per sample, empty where the status is OK. `chance` is what an uninformative map scores there;
    `chance_reason` says why a scored sample has none. `predicted_after` is what the model predicts instead, where the
    status is FLIPPED. What a condition is made of has columns of its own, so that nobody has to read its name: the
    `imputer` that filled in, the `order` of removal, the `share` of features kept by smoothing, and which `repeat` of
    the same work it was. `reference_sums` and `reference_counts` (R,) are those of `Chance`.
    """

    explainer: str
    measure: str
    condition: str
    level: float
    value: Tensor
    status: Tensor
    reason: tuple[str, ...]
    low: Tensor | None = None
    high: Tensor | None = None
    chance: Tensor | None = None
    chance_reason: tuple[str, ...] = ()
    predicted_after: tuple[str, ...] = ()
    imputer: str = ""
    order: str = ""
    share: float | None = None
    repeat: int = 0
    reference_sums: Tensor | None = None
    reference_counts: Tensor | None = None

    @classmethod
    def column(
        cls,
        explainer: str,
        measure: str,
        where: Condition,
        value: Tensor,
        reason: Sequence[str],
        status: Tensor | None = None,
        rows: Tensor | None = None,
        missing: str | Sequence[str] = "nothing to compare",
        bounds: tuple[Tensor | None, Tensor | None] = (None, None),
        chance: Chance | Tensor | None = None,
    ) -> Scores:
        """Return the scores of one explainer by one measure on all B samples, from the values of those that have one.

        `value` (R,), `bounds` and `chance` belong to some `rows` of the B samples, by default to all of them. `reason` has
        for each of the B samples why it has no score, "" where it has one; `status` is derived from it unless given. A
        row whose value is not finite becomes undefined, for the reason `missing`, one text for all or one per row.

        >>> Scores.column("lime", "depth", ("blur", 1.0), torch.tensor([0.5, torch.nan]), ["", "", "flat"],
        ...               rows=torch.tensor([0, 1])).reason
        ('', 'nothing to compare', 'flat')
        """
        if status is None:
            codes = [UNDEFINED if text else OK for text in reason]
            status = torch.tensor(codes, dtype=torch.int64)
        rows = torch.arange(len(status)) if rows is None else rows.cpu()
        if isinstance(chance, Tensor):
            chance = Chance(chance)

        def in_full(values: Tensor | None) -> Tensor:
            """Return numbers of the `rows` as a column of all samples (B,), NaN elsewhere."""
            column = torch.full((len(reason),), torch.nan, dtype=torch.float64)
            if values is not None:
                column[rows] = values.detach().double().cpu()
            return column

        full_value = in_full(value)
        reasons = list(reason)
        has_no_value = (status[rows] == OK) & ~torch.isfinite(full_value[rows])
        undefined = has_no_value.nonzero().flatten()  # positions in `rows`
        if len(undefined):
            # A copy, since `status` belongs to the caller.
            status = status.index_fill(0, rows[undefined], UNDEFINED)
            for position in undefined.tolist():
                text = missing if isinstance(missing, str) else missing[position]
                reasons[int(rows[position])] = text

        is_scored = status == OK

        def where_scored(values: Tensor | None) -> Tensor | None:
            """Return a column with NaN where there is no score; None if there is no column."""
            if values is None:
                return None
            return in_full(values).masked_fill(~is_scored, torch.nan)

        low, high = bounds
        column = cls(
            explainer,
            measure,
            *where,
            full_value.masked_fill(~is_scored, torch.nan),
            status,
            tuple(reasons),
            low=where_scored(low),
            high=where_scored(high),
        )
        if chance is None:
            return column
        full_chance = in_full(chance.level).masked_fill(~is_scored, torch.nan)
        has_no_chance = (is_scored & ~torch.isfinite(full_chance)).tolist()
        return replace(
            column,
            chance=full_chance,
            chance_reason=tuple(ALONE if is_missing else "" for is_missing in has_no_chance),
            reference_sums=chance.sums,
            reference_counts=chance.counts,
        )


@dataclass(frozen=True)
class GalleryImage:
    """One sample for the report's gallery: an input, its map and a note.

    `aux` is what the input brings along, such as the edges of a graph.
    """

    explainer: str
    condition: str
    level: float
    sample: str
    image: Tensor
    map: Tensor | None
    note: str = ""
    aux: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, where: Condition, batch: Batch, row: int, map: Tensor | None, note: str = ""
    ) -> GalleryImage:
        """Return a row of a batch with the map of an explainer."""
        aux = {key: tensor[row] for key, tensor in batch.aux.items()}
        return cls(name, *where, batch.ids[row], batch.x[row], map, note, aux)


@dataclass(frozen=True)
class GalleryItem:
    """An `GalleryImage` as a run keeps it: an 8-bit image (H, W, 3) and its map (H, W), summed over channels.

    Of series, rows of tables and texts, by `kind`, the numbers (C, T) are kept in place of an image, of graphs and sets
    where each of N nodes is drawn and its edges (N, 2 + N); the map has T or N values. `words` name columns and tokens.
    """

    dataset: str
    model: str
    explainer: str
    condition: str
    level: float
    sample: str
    image: npt.NDArray[Any]
    map: npt.NDArray[np.float32] | None
    evaluation: str = ""
    note: str = ""
    kind: str = "image"
    words: tuple[str, ...] = ()


def _as_names(value: Any) -> Any:
    """Return one name as a list of names; anything else as it is."""
    return (value,) if isinstance(value, str) else value


DataNames = Annotated[tuple[str, ...] | None, BeforeValidator(_as_names)]
"""The type of the field `data`: the data sets of the study that an evaluation is for; None for all of them."""


class Evaluation:
    """Base class of evaluations, whose parameters are fields; the fields are the keys of the study file.

    kinds       the kinds of explainers that it judges; the plan leaves the others out and says so
    reexplains  whether it needs maps of changed inputs
    needs_model whether it asks the model anything; one that reads maps and data alone does not
    pairwise    whether its rows of an explainer depend on the other explainers, and change when one is added
    measures    what its measures are; those of an axis are in the axis's record
    data        the data sets of the study that it is for; None for all of them

    `wrap_evaluation` makes an `Evaluation` of any object with `conditions()` that is called with a subject.
    """

    name: ClassVar[str] = ""
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = True
    needs_model: ClassVar[bool] = True
    pairwise: ClassVar[bool] = False
    measures: ClassVar[tuple[Measure, ...]] = ()
    data: DataNames = None

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield the scores of every explainer of the subject, explainer by explainer."""
        raise NotImplementedError

    def conditions(self) -> list[Condition]:
        """Return the (condition, level) pairs that it yields for every explainer, for the plan and the progress bar."""
        raise NotImplementedError

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy with every default filled in for this model and data; raise `UserError` if it does not apply.

        The plan calls it once for each data set and model, with a batch of one sample.
        """
        return self

    def with_background(self, mean: Tensor, of: str, chosen: bool) -> Self:
        """Return a copy that removes features as a study's background does: `mean` is its mean sample (…), `of` names it.

        It was `chosen` in the study, or is the default of tables. The plan calls this after `configured_for`.
        """
        return self

    def notes(self, model: Model) -> list[str]:
        """Return what it cannot measure on this model as it is configured, known before any pass."""
        return []

    def measured(self) -> tuple[str, ...] | None:
        """Return the names of the measures that it yields as it is configured; None stands for all that it declares."""
        return None


@dataclass(frozen=True)
class CallableEvaluation(Evaluation):
    """An evaluation made of an object with `conditions()` that is called with a subject."""

    wrapped: Any
    name: str = ""  # type: ignore[misc]  # of the object here, of the class elsewhere
    kinds: frozenset[str] = frozenset({"feature"})  # type: ignore[misc]
    reexplains: bool = True  # type: ignore[misc]
    needs_model: bool = True  # type: ignore[misc]
    pairwise: bool = False  # type: ignore[misc]
    measures: tuple[Measure, ...] = ()  # type: ignore[misc]
    data: tuple[str, ...] | None = None

    @property
    def __wrapped__(self) -> Any:
        """The object, whose name and parameters are recorded; `inspect.unwrap` finds it."""
        return self.wrapped

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield what the object yields."""
        yield from self.wrapped(subject)

    def conditions(self) -> list[Condition]:
        """Return the conditions of the object."""
        return list(self.wrapped.conditions())

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy with what the object's own `configured_for` returns, if it has one."""
        configure = getattr(self.wrapped, "configured_for", None)
        return self if configure is None else replace(self, wrapped=configure(model, sample))

    def notes(self, model: Model) -> list[str]:
        """Return the notes of the object, if it has any."""
        notes = getattr(self.wrapped, "notes", None)
        return [] if notes is None else list(notes(model))


def wrap_evaluation(evaluation: Any, name: str) -> Evaluation:
    """Return an `Evaluation` itself, or an object wrapped as one; attributes that the object defines are kept.

    >>> class Mine:
    ...     reexplains = False
    >>> wrap_evaluation(Mine(), "mine").reexplains, wrap_evaluation(Mine(), "mine").name
    (False, 'mine')
    """
    if isinstance(evaluation, Evaluation):
        return evaluation
    attributes: dict[str, Any] = {"name": name}
    for attribute in ("kinds", "reexplains", "needs_model", "pairwise", "measures"):
        if hasattr(evaluation, attribute):
            attributes[attribute] = getattr(evaluation, attribute)
    named_data = _as_names(getattr(evaluation, "data", None))
    data = None if named_data is None else tuple(named_data)
    return CallableEvaluation(evaluation, **attributes, data=data)

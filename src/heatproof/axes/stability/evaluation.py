"""FASS: does the map survive a perturbation that leaves the prediction unchanged?"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from pydantic import Field, field_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof.axes.stability import perturbations as perturbing
from heatproof.axes.stability.perturbations.kinds import checked_kind, kind_of_samples, measures
from heatproof.errors import UserError
from heatproof.evaluation import (
    CLEAN,
    FLIPPED,
    OK,
    REDRAW,
    UNDEFINED,
    Condition,
    Exhibit,
    Measure,
    Scores,
    Subject,
)
from heatproof.maps.chance import USUAL_K, K, over_references
from heatproof.maps.ranks import Ties
from heatproof.maps.similarity import Profile, compare, compare_all, composite, profile
from heatproof.maps.undefined import NOT_FINITE, reasons
from heatproof.models import Model
from heatproof.models.batches import beside
from heatproof.models.modality import modality
from heatproof.models.tasks import at, has_probability, with_region
from heatproof.types import STRICT, Batch, name_of

UNIT = (0.0, 1.0)
POOLED = 2**27
"""How many values of perturbed inputs are explained in one go: bounds the memory of a shard with many conditions."""
MEASURES = (
    Measure(
        "fass",
        "FASS",
        "weighted mean of the others; tables have no ssim",
        "higher",
        "headline",
        UNIT,
        "column",
    ),
    Measure(
        "ssim",
        "SSIM",
        "structural similarity of maps scaled to [0, 1]",
        "higher",
        "component",
        UNIT,
        "column",
    ),
    Measure(
        "spearman",
        "Spearman",
        "rank correlation ρ, as (ρ + 1) / 2",
        "higher",
        "component",
        UNIT,
        "column",
    ),
    Measure(
        "jaccard",
        "Jaccard",
        "overlap of the k largest values",
        "higher",
        "component",
        UNIT,
        "column",
    ),
)
"""What is known of the measures of the axis, the first of which speaks for it."""

Weight = Annotated[float, Field(ge=0)]
Items = TypeVar("Items", Tensor, Profile)


class Pairs(NamedTuple):
    """The shard's samples after one perturbation, and which of them kept their prediction."""

    perturbation: perturbing.Perturbation
    batch: Batch
    status: Tensor
    reason: tuple[str, ...]
    text: perturbing.Reworded | None = None

    @property
    def where(self) -> Condition:
        """Condition and level of the perturbation."""
        return perturbing.condition(self.perturbation), perturbing.level(self.perturbation)


@dataclass(frozen=True, config=STRICT)
class Stability:
    """Perturb, keep the pairs whose prediction is unchanged, as the model's task says, and compare the maps.

    For every pair: SSIM, (Spearman + 1) / 2, top-k Jaccard and their weighted mean, FASS. Beside each the same against
    maps of other samples (`_chance`), and for geometric perturbations the map of the moved input against the moved map
    on the places that both have (`_aligned`, `_aligned_chance`). For stochastic explainers the condition `redraw`
    compares two draws on the same input. `max_drop` also drops pairs whose target's probability fell by more.

    For images (C, H, W), volumes (C, D, H, W), series (C, T) and tables (F,). SSIM has cubes for windows on volumes
    and windows along time for series; a table has none, and FASS is then the weighted mean of the other two. `suited`
    chooses "usual" `perturbations` and `k` for the kind of data: the presets fass-paper, volume-mild, series-mild or
    table-mild, and 100 values or a tenth of them; "mild" is fass-mild on images.

    >>> Stability(perturbations={"rotation": {"degrees": [5, 10]}}).conditions()
    [('rotation', 5.0), ('rotation', 10.0)]
    """

    name: ClassVar[str] = "stability"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = True

    perturbations: Any = "usual"
    k: K | Literal["usual"] = "usual"
    ties: Ties = "average"
    weights: tuple[Weight, Weight, Weight] = (1.0, 1.0, 1.0)
    max_drop: Annotated[float, Field(gt=0, le=1)] | None = None
    aligned: bool = True
    noise_floor: bool = True

    @field_validator("perturbations")
    @classmethod
    def _resolve(cls, value: Any) -> Any:
        return (
            value
            if isinstance(value, str) and value in perturbing.OPEN
            else perturbing.resolve(value)
        )

    @field_validator("weights")
    @classmethod
    def _some_weight(cls, value: tuple[float, float, float]) -> tuple[float, float, float]:
        if sum(value) <= 0:
            raise ValueError("at least one weight must be positive")
        return value

    def suited(self, model: Model, batch: Batch) -> Stability:
        """The axis with what was left open chosen for data such as this batch; what nothing perturbs is refused."""
        checked_kind(
            modality(model, batch), all(getattr(p, "kind", "") is None for p in self.perturbations)
        )
        for of_texts in (p for p in self.perturbations if isinstance(p, perturbing.OfTexts)):
            of_texts.needs(batch)
        if batch.x.ndim == 5 and not (batch.x.min() >= 0 and batch.x.max() <= 1):
            found = f"from {float(batch.x.min()):g} to {float(batch.x.max()):g}"
            raise UserError(
                f"volumes are perturbed in [0, 1], and these have values {found}; scale them first"
            )
        if self.max_drop is not None and not has_probability(model.task):
            raise UserError(
                f"max_drop is of a probability, and {model.task.name} has none; leave it out"
            )
        return self._for(kind_of_samples(batch.x.shape[1:]))

    def _for(self, kind: perturbing.Kind) -> Stability:
        """The axis with what was left open chosen for a kind of data."""
        chosen: dict[str, Any] = {"k": USUAL_K[kind]} if self.k == "usual" else {}
        if isinstance(self.perturbations, str):
            chosen["perturbations"] = perturbing.KNOWN_PRESETS[
                perturbing.OPEN[self.perturbations][kind]
            ]
        return replace(self, **chosen) if chosen else self

    def conditions(self) -> list[Condition]:
        """(condition, level) of each perturbation; left open, of those for images."""
        return [
            (perturbing.condition(p), perturbing.level(p)) for p in self._for("image").perturbations
        ]

    def check(self, shape: Sequence[int]) -> None:
        """Refuse data that cannot be perturbed or maps too small for k; `shape` is that of a sample."""
        kind = kind_of_samples(shape)
        axis = self._for(kind)
        for perturbation in axis.perturbations:
            perturbing.check(perturbation, shape)
        size = math.prod(shape)
        if axis._k >= size:
            raise UserError(
                f"stability's k must be below the {size} values of a map, got {axis.k}; try k=0.01"
            )
        if kind == "table" and not sum(self.weights[1:]):
            raise UserError(
                f"stability of a table has no ssim, but weights {list(self.weights)} leave nothing else"
            )

    @property
    def _k(self) -> int | float:
        """How many of the largest values Jaccard compares, or which share of them; left open, that for images."""
        return USUAL_K["image"] if isinstance(self.k, str) else self.k

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """One column of scores per explainer, condition and measure, explainer by explainer."""
        axis = self.suited(subject.model, subject.batch)
        bound = [
            perturbing.bound(perturbation, subject.references)
            for perturbation in axis.perturbations
        ]
        calls = [partial(perturb, subject.batch, subject.seed) for perturb in bound]
        with beside(subject.model.device, calls) as perturbed:
            if subject.model.device.type != "cpu":
                subject.clean(
                    next(iter(subject.explainers))
                )  # keeps the device busy while files are compressed
            pairs = [
                axis._attempt(subject, *each)
                for each in zip(axis.perturbations, perturbed, strict=True)
            ]
        for explainer in subject.explainers:
            yield from axis._judge(subject, explainer, pairs)

    def _attempt(self, subject: Subject, perturbation: Any, perturb: Callable[[], Any]) -> Pairs:
        changed = perturb()
        text = changed if isinstance(changed, perturbing.Reworded) else None
        changed = changed if text is None else text.batch.x
        if not isinstance(changed, Tensor) or changed.shape != subject.batch.x.shape:
            shape = tuple(changed.shape) if isinstance(changed, Tensor) else type(changed).__name__
            wanted = tuple(subject.batch.x.shape)
            raise UserError(
                f"{name_of(perturbation)!r} gave {shape} for inputs of shape {wanted}; they must agree"
            )
        batch = subject.batch.with_x(changed) if text is None else text.batch
        if perturbing.is_geometric(perturbation):
            move, known = perturbation.move, (batch.ids, subject.seed)
            batch = with_region(
                batch, changed, lambda region: move(region[:, None], *known)[0][:, 0]
            )
        task, before, after = (
            subject.model.task,
            subject.predict(subject.batch),
            subject.predict(batch),
        )
        finite = (torch.isfinite(after).all(1) & torch.isfinite(subject.readout)).tolist()
        same, chance = task.same(before, after, subject.target).tolist(), task.probability(after)
        drop = (
            [0.0] * len(batch)
            if chance is None
            else (subject.probability - at(chance, subject.target)).tolist()
        )

        def verdict(i: int) -> tuple[int, str]:
            if not finite[i]:
                return UNDEFINED, NOT_FINITE
            if text is not None and text.lost[i]:
                return UNDEFINED, text.lost[i]
            if not same[i]:
                return FLIPPED, task.change(
                    before[i], after[i], int(subject.target[i]), subject.model.class_name
                )
            if self.max_drop is not None and drop[i] > self.max_drop:
                return FLIPPED, f"probability fell by {drop[i]:.3f}, more than {self.max_drop:g}"
            return OK, ""

        verdicts = [verdict(i) for i in range(len(batch))]
        status = torch.tensor([status for status, _ in verdicts], dtype=torch.int64)
        return Pairs(perturbation, batch, status, tuple(reason for _, reason in verdicts), text)

    def _judge(
        self, subject: Subject, explainer: str, pairs: Sequence[Pairs]
    ) -> Iterator[Scores | Exhibit]:
        clean = subject.clean(explainer)
        shown = [i for i, sample in enumerate(subject.batch.ids) if sample in subject.showcase]
        for i in shown:
            yield Exhibit.of(explainer, CLEAN, subject.batch, i, clean[i])
        originals = self._profile(clean)
        chance = self._profile(subject.reference(explainer))
        blank = reasons(clean, "the clean map")
        if self.noise_floor and subject.explainers[explainer].stochastic:
            yield from self._floor(subject, explainer, originals, blank)
        for pair, status, reason, maps in _explained(subject, explainer, pairs, clean, blank):
            rows = (status == OK).nonzero().flatten()
            for i, why in zip(rows.tolist(), reasons(maps[rows], "the perturbed map"), strict=True):
                if why:
                    status[i], reason[i] = UNDEFINED, why
            rows = (status == OK).nonzero().flatten()
            if (
                pair.text is not None
            ):  # word by word, for tokens have other places now, or other numbers
                words = pair.text.by_word(maps, pair.text.after)
                columns, above = self._aligned_columns(
                    subject, explainer, pair.text, clean, words, rows, ""
                )
            else:
                columns, above = self._columns(subject, maps, originals, chance, rows)
            if self.aligned and perturbing.is_geometric(pair.perturbation):
                moved = self._aligned_columns(
                    subject, explainer, pair.perturbation, clean, maps, rows
                )
                columns, above = columns | moved[0], above | moved[1]
            for measure, value in columns.items():
                lost = (
                    "no other sample to compare with"
                    if measure.endswith("_chance")
                    else "nothing left to compare"
                )
                column = Scores.column(
                    explainer, measure, pair.where, value, reason, status, rows, lost
                )
                yield replace(column, by_reference=above.get(measure))
            for i in shown:
                yield Exhibit.of(
                    explainer, pair.where, pair.batch, i, maps[i] if status[i] == OK else None
                )

    def _profile(self, maps: Tensor, valid: Tensor | None = None) -> Profile:
        return profile(
            maps, self._k, self.ties, valid, dims=maps.ndim - 2
        )  # images 2, series 1, rows of a table 0

    def _score(self, scores: dict[str, Tensor]) -> dict[str, Tensor]:
        """The components with FASS, on the CPU."""
        return {
            name: value.cpu()
            for name, value in (scores | {"fass": composite(scores, self.weights)}).items()
        }

    def _columns(
        self, subject: Subject, maps: Tensor, originals: Profile, references: Profile, rows: Tensor
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """The columns, and of those of chance what each reference adds."""
        if not len(rows):
            return {
                m + suffix: torch.empty(0) for suffix in ("", "_chance") for m in _measures(maps)
            }, {}
        perturbed = self._profile(_at(maps, rows))
        raw = self._score(compare(_at(originals, rows), perturbed))
        chance, above = _chance(
            subject, rows, self._score(compare_all(references, perturbed)), "_chance"
        )
        return raw | chance, above

    def _aligned_columns(
        self,
        subject: Subject,
        explainer: str,
        perturbation: perturbing.Geometric | perturbing.Reworded,
        clean: Tensor,
        maps: Tensor,
        rows: Tensor,
        suffix: str = "_aligned",
    ) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        if not len(rows):
            return {
                m + suffix + chance: torch.empty(0)
                for chance in ("", "_chance")
                for m in _measures(maps)
            }, {}
        ids = [subject.batch.ids[i] for i in rows.tolist()]
        moved, valid = perturbation.move(_at(clean, rows), ids, subject.seed)
        perturbed = self._profile(_at(maps, rows), valid)
        aligned = self._score(compare(self._profile(moved, valid), perturbed))
        references = subject.reference(explainer)
        if not len(references):
            others = {measure: torch.empty(0, len(ids)) for measure in aligned}
        elif perturbation.stochastic:
            each = []
            for reference in references:
                other, _ = perturbation.move(
                    reference.expand(len(ids), *reference.shape), ids, subject.seed
                )
                each.append(self._score(compare(self._profile(other, valid), perturbed)))
            others = {
                measure: torch.stack([scores[measure] for scores in each]) for measure in aligned
            }
        else:  # every sample moves alike, so a reference is moved once for all of them
            other, _ = perturbation.move(references, subject.references.ids, subject.seed)
            others = self._score(compare_all(self._profile(other, valid[:1]), perturbed))
        chance, above = _chance(subject, rows, others, f"{suffix}_chance")
        return {m + suffix: v for m, v in aligned.items()} | chance, above

    def _floor(
        self, subject: Subject, explainer: str, originals: Profile, blank: Sequence[str]
    ) -> Iterator[Scores | Exhibit]:
        again = subject.explain(explainer, subject.batch, subject.target, subject.seed + 1)
        second = reasons(again, "the map of the second draw")
        lost = ["" if ok else NOT_FINITE for ok in torch.isfinite(subject.readout).tolist()]
        reason = [a or b or c for a, b, c in zip(lost, blank, second, strict=True)]
        rows = torch.tensor([not why for why in reason]).nonzero().flatten()
        columns = (
            self._score(compare(_at(originals, rows), self._profile(_at(again, rows))))
            if len(rows)
            else {}
        )
        for measure in _measures(again):
            value = columns.get(measure, torch.empty(0))
            redraw = (REDRAW, 0.0)
            yield Scores.column(
                explainer,
                measure,
                redraw,
                value,
                reason,
                rows=rows,
                missing="nothing left to compare",
            )


def _explained(
    subject: Subject, explainer: str, pairs: Sequence[Pairs], clean: Tensor, blank: Sequence[str]
) -> Iterator[tuple[Pairs, Tensor, list[str], Tensor]]:
    """Each condition with the status and reason of its pairs and the maps (B, …) of those to be compared, else NaN.

    Pairs of several conditions are explained together, as many as fit into `POOLED` values: a device is slow on few.
    """
    size = max(1, POOLED // max(1, clean.numel()))
    for start in range(0, len(pairs), size):
        some = pairs[start : start + size]
        status = [pair.status.where(torch.tensor([not why for why in blank]) | (pair.status != OK), UNDEFINED)
                  for pair in some]  # fmt: skip
        rows = [(found == OK).nonzero().flatten() for found in status]
        parts = [pair.batch[own] for pair, own in zip(some, rows, strict=True) if len(own)]
        maps = clean.new_empty(0, *clean.shape[1:])
        if parts:
            maps = subject.explain(explainer, Batch.joined(parts), subject.target[torch.cat(rows)])
        for pair, found, own, made in zip(
            some, status, rows, torch.split(maps, [len(own) for own in rows]), strict=True
        ):
            reason = [
                why if found[i] == UNDEFINED != pair.status[i] else pair.reason[i]
                for i, why in enumerate(blank)
            ]
            whole = torch.full_like(clean, torch.nan)
            whole[own.to(whole.device)] = made
            yield pair, found, reason, whole


def _measures(maps: Tensor) -> tuple[str, ...]:
    return measures(kind_of_samples(maps.shape[1:]))


def _at(items: Items, rows: Tensor) -> Items:
    """The maps or profiles at some rows; all of them are not copied."""
    if len(rows) == len(items):
        return items
    device = items.device if isinstance(items, Tensor) else items.rank.device
    return items[rows.to(device)]


def _chance(
    subject: Subject, rows: Tensor, others: Mapping[str, Tensor], suffix: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Columns of chance (B,) from scores (R, B) against the references, and what each reference adds to them, (R,)."""
    ids = [subject.batch.ids[i] for i in rows.tolist()]
    found = {
        m + suffix: over_references(scores, ids, subject.references.ids)
        for m, scores in others.items()
    }
    return {m: level for m, (level, _) in found.items()}, {
        m: above for m, (_, above) in found.items()
    }

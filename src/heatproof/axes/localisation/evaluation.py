"""Localisation: does the map lie where the class is, in a region that the data name or in a tile of a mosaic?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from heatproof.axes.localisation.measures import (
    SPATIAL,
    RegionScore,
    Sign,
    graded_scores,
    region_scores,
    relevance,
)
from heatproof.axes.localisation.mosaic import UNSEEN, mosaics
from heatproof.errors import UserError
from heatproof.evaluation import (
    FLIPPED,
    OK,
    UNDEFINED,
    Condition,
    DataNames,
    Evaluation,
    GalleryImage,
    Measure,
    Scores,
)
from heatproof.kinds import kind_of
from heatproof.maps.undefined import reasons
from heatproof.models import Model
from heatproof.models.tasks import REGION
from heatproof.subject import Subject
from heatproof.types import Batch, parameter_class

UNIT = (0.0, 1.0)
MEASURES = (
    Measure(
        "alignment",
        "Alignment with people",
        "rank correlation of the relevance with human grades of the positions",
        "higher",
        "headline",
        (-1.0, 1.0),
    ),
    Measure(
        "graded_mass",
        "Graded mass",
        "mean human grade of the relevance, where the highest grade counts 1",
        "higher",
        "component",
        UNIT,
    ),
    Measure(
        "relevance_mass",
        "Relevance mass",
        "share of the relevance in the region",
        "higher",
        "headline",
        UNIT,
    ),
    Measure(
        "relevance_rank",
        "Relevance rank",
        "share of the k largest values that lie in a region of k places",
        "higher",
        "component",
        UNIT,
    ),
    Measure(
        "pointing",
        "Pointing game",
        "whether the peak is in the region",
        "higher",
        "component",
        UNIT,
        rate=True,
    ),
    Measure(
        "region_auc",
        "Area under ROC",
        "how surely the region has larger values than the rest; chance is ½",
        "higher",
        "component",
        UNIT,
    ),
    Measure(
        "energy",
        "Energy",
        "share of the relevance in the box around the region",
        "higher",
        "component",
        UNIT,
    ),
)
"""The measures of localisation; the headline is the first that was measured: by graded regions `alignment`."""
By = Literal["regions", "mosaics"]
REGIONS: By = "regions"
MOSAICS: By = "mosaics"
EMPTY, WHOLE = "the sample has no region", "the region is the whole sample"
ONE_GRADE = "every position has the same grade"
OTHER = "the region is that of the label, and another class is predicted"
NOTHING = "no relevance of that sign"


@parameter_class
class Localisation(Evaluation):
    """Measure how much of every map lies where its class is: `by` regions of the data, or by mosaics.

    Relevance mass and rank, pointing game, area under the ROC curve, and energy, the mass in the box around the
    region. The chance level of each is exact: the share of the region (of its box for energy), and ½ under the curve.
    `sign` says which values count as evidence for the class, after channels are summed: the positive ones, all by
    their size, or the negative ones. A sample counts where its label, if it has one, is predicted, for the region is
    that of the label; `any_class` counts the others too.

    Regions may be graded by people: float values that say how important each position is. Then `alignment`, the rank
    correlation of the relevance with the grades, is the headline, and the region is where the grade is above 0.

    In the pointing game a peak within `margin` pixels of the region is a hit, and chance is the share of positions that
    are this near. Zhang et al. (2018) allow 15 pixels on photographs; the default allows none, because what 15 pixels
    are worth depends on the size of the picture.

    A mosaic holds the sample in one quarter and three references of other predicted classes in the others; the region
    is its tile. One whose tile does not raise the score of its class is flipped. Where data have no regions and `by` is
    left open, pictures are judged by mosaics.

    >>> Localisation(by="mosaics", sign="absolute").conditions()
    [('mosaics', 0.0)]
    """

    name: ClassVar[str] = "localisation"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})

    by: By | None = None
    sign: Sign = "positive"
    any_class: bool = False
    margin: Annotated[int, Field(ge=0)] = 0
    data: DataNames = None

    @property
    def reexplains(self) -> bool:  # type: ignore[override]
        """Whether other inputs are explained; mosaics are."""
        return self.by == MOSAICS

    @property
    def needs_model(self) -> bool:  # type: ignore[override]
        """Whether a model is asked; regions are scored without one."""
        return self.by == MOSAICS

    def conditions(self) -> list[Condition]:
        """Return the one condition, named after where the regions come from."""
        return [(self.by or REGIONS, 0.0)]

    def configured_for(self, model: Model, batch: Batch) -> Self:
        """Return a copy by regions where the data name them, else by mosaics; raise `UserError` if neither is possible.

        Mosaics need pictures and classes.
        """
        shape = tuple(batch.x.shape[1:])
        kind = kind_of(model, batch).name
        by = self.by or (REGIONS if REGION in batch.aux else MOSAICS)
        if by == REGIONS and REGION not in batch.aux:
            raise UserError(
                f"{self.name} needs regions, and the data name none: add regions to them, or by: {MOSAICS}"
            )
        if by == MOSAICS and (kind != "image" or not model.task.exclusive):
            raise UserError(
                f"{self.name} needs the regions of samples, and the data name none; mosaics need pictures and classes, "
                f"which {model.name} has not"
            )
        if self.margin and kind not in SPATIAL:
            raise UserError(
                f"{self.name} has a margin of {self.margin} around regions, and the parts of a {kind} have no "
                "distance; leave margin out"
            )
        if by == MOSAICS and (len(shape) != 3 or min(shape[1:]) < 2):
            raise UserError(
                f"{self.name} makes mosaics of pictures (channels, height, width), got {shape}"
            )
        return replace(self, by=by)

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield one column of scores per explainer and measure, with its chance level."""
        if self.by == MOSAICS:
            batch, excluded = mosaics(subject)
        else:
            batch, excluded = subject.batch, self._other_class_predicted(subject)
        kind = kind_of(subject.model, batch).name
        grades = batch.aux[REGION].cpu()
        region = grades > 0
        is_present = _is_present(batch, region)
        unusable = _unusable_regions(region, is_present)
        one_grade = _one_grade(grades, is_present)

        for name in subject.explainers:
            if self.by == MOSAICS:
                maps = subject.explain(name, batch, subject.target)
            else:
                maps = subject.maps(name)
            values = relevance(maps, kind, self.sign)
            _check_shapes(region, values)
            undefined = reasons(maps, "the map")
            if grades.is_floating_point():
                scores = graded_scores(values, grades, is_present)
                yield from self._columns(name, scores, one_grade, excluded, undefined)
            scores = region_scores(values, region, is_present, kind, self.margin)
            yield from self._columns(name, scores, unusable, excluded, undefined)

    def _columns(
        self,
        explainer: str,
        scores: Mapping[str, RegionScore],
        of_regions: Sequence[str],
        of_samples: Sequence[str],
        of_maps: Sequence[str],
    ) -> Iterator[Scores]:
        """Yield the scores of an explainer by each measure, with their chance levels.

        The last three arguments have for each sample the reason why its region, its prediction or its map leaves it without
        a score, "" if they do not; the first reason is recorded.
        """
        reason = []
        for of_region, of_sample, of_map in zip(of_regions, of_samples, of_maps, strict=True):
            reason.append(of_region or of_sample or of_map)
        status = torch.tensor([_status(text) for text in reason])
        for measure, score in scores.items():
            yield Scores.column(
                explainer,
                measure,
                self.conditions()[0],
                score.value,
                reason,
                status,
                missing=NOTHING,
                chance=score.chance,
            )

    def _other_class_predicted(self, subject: Subject) -> list[str]:
        """Return for each sample why its region does not belong to the explained class: another class than the label is
        predicted; "" where it does belong, and where samples have no label.
        """
        label = subject.batch.label
        if label is None or self.any_class or subject.model.is_absent:
            return [""] * len(subject.batch)
        label = label.cpu()
        wrong = (label >= 0) & (label != subject.target.cpu())
        return [OTHER if is_wrong else "" for is_wrong in wrong.tolist()]


def _is_present(batch: Batch, region: Tensor) -> Tensor:
    """Return which positions (B, …) are no padding."""
    mask = batch.aux.get("mask", batch.aux.get("attention_mask"))
    if mask is None or mask.shape != region.shape:
        return torch.ones_like(region)
    return mask.bool().cpu()


def _unusable_regions(region: Tensor, is_present: Tensor) -> list[str]:
    """Return for each sample why its region cannot be scored, "" where it can: it is empty, or it is the whole sample."""
    inside = (region & is_present).flatten(1).sum(1)
    positions = is_present.flatten(1).sum(1)
    reason = []
    for k, n in zip(inside.tolist(), positions.tolist(), strict=True):
        if k == 0:
            reason.append(EMPTY)
        elif k == n:
            reason.append(WHOLE)
        else:
            reason.append("")
    return reason


def _one_grade(grades: Tensor, is_present: Tensor) -> list[str]:
    """Return for each sample why its grades cannot be compared with a map, "" where they can: all are the same."""
    reason = []
    for grade, present in zip(grades, is_present, strict=True):
        grades_present = grade[present]
        is_constant = len(grades_present.unique()) <= 1
        reason.append(ONE_GRADE if is_constant else "")
    return reason


def _check_shapes(region: Tensor, values: Tensor) -> None:
    """Refuse regions that do not fit the maps."""
    if values.shape != region.shape:
        raise UserError(
            f"regions have shape {tuple(region.shape[1:])}, but maps {tuple(values.shape[1:])} places"
        )


def _status(reason: str) -> int:
    """Return the status of a pair with this reason."""
    if not reason:
        return OK
    return FLIPPED if reason == UNSEEN else UNDEFINED

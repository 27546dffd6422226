"""Localisation: does the map lie where the class is, in a region that the data name or in a tile of a mosaic?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import torch
from pydantic.dataclasses import dataclass

from heatproof.axes.localisation.measures import Sign, relevance, scored
from heatproof.axes.localisation.mosaic import UNSEEN, mosaics
from heatproof.errors import UserError
from heatproof.evaluation import (
    FLIPPED,
    OK,
    UNDEFINED,
    Condition,
    Exhibit,
    Measure,
    Scores,
    Subject,
)
from heatproof.maps.undefined import reasons
from heatproof.models import Model
from heatproof.models.modality import modality
from heatproof.models.tasks import REGION
from heatproof.types import STRICT, Batch

_KNOWN = (
    ("relevance_mass", "Relevance mass", "share of the relevance in the region"),
    (
        "relevance_rank",
        "Relevance rank",
        "share of the k largest values that lie in a region of k places",
    ),
    ("pointing", "Pointing game", "whether the peak is in the region"),
    (
        "region_auc",
        "Area under ROC",
        "how surely the region has larger values than the rest; chance is ½",
    ),
    ("energy", "Energy", "share of the relevance in the box around the region"),
)
MEASURES = tuple(
    Measure(
        *known,
        better="higher",
        role="component" if i else "headline",
        span=(0.0, 1.0),
        chance="column",
        rate=known[0] == "pointing",
    )
    for i, known in enumerate(_KNOWN)
)
"""What is known of the measures of the axis, the first of which speaks for it."""
By = Literal["regions", "mosaics"]
REGIONS: By = "regions"
MOSAICS: By = "mosaics"
EMPTY, WHOLE = "the sample has no region", "the region is the whole sample"
OTHER = "the region is that of the label, and another class is predicted"
NOTHING = "no relevance of that sign"


@dataclass(frozen=True, config=STRICT)
class Localisation:
    """Ask how much of every map lies where its class is: `by` regions of the data, or by mosaics.

    Relevance mass and rank, pointing game, area under the ROC curve, and energy, the mass in the box around the
    region; `_chance` beside each is what a map without merit scores: the share of the region (of its box for energy),
    and ½ under the curve. `sign` says which values count as evidence for the class, after channels are summed: the
    positive ones, all by their size, or the negative ones. A sample counts where its label, if it has one, is
    predicted, for the region is that of the label; `any_class` counts the others too.

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

    @property
    def reexplains(self) -> bool:
        """Mosaics are other inputs."""
        return self.by == MOSAICS

    def conditions(self) -> list[Condition]:
        """One, named after where the regions come from."""
        return [(self.by or REGIONS, 0.0)]

    def check(self, shape: Sequence[int]) -> None:
        """Refuse mosaics of what is no picture; `shape` is that of a sample."""
        if self.by == MOSAICS and (len(shape) != 3 or min(shape[1:]) < 2):
            raise UserError(
                f"{self.name} makes mosaics of pictures (channels, height, width), got {tuple(shape)}"
            )

    def suited(self, model: Model, batch: Batch) -> Localisation:
        """By regions where the data name them, else by mosaics, where samples are pictures and there are classes."""
        by = self.by or (REGIONS if REGION in batch.aux else MOSAICS)
        if by == REGIONS and REGION not in batch.aux:
            raise UserError(
                f"{self.name} needs regions, and the data name none: add regions to them, or by: {MOSAICS}"
            )
        if by == MOSAICS and (modality(model, batch) != "image" or not model.task.exclusive):
            what = f"mosaics need pictures and classes, which {model.name} has not"
            raise UserError(
                f"{self.name} needs the regions of samples, and the data name none; {what}"
            )
        return Localisation(by, self.sign, self.any_class)

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """One column of scores per explainer and measure, each beside its chance."""
        batch, target = subject.batch, subject.target.cpu()
        if self.by == MOSAICS:
            batch, reason = mosaics(subject)
        else:
            label = target if batch.label is None or self.any_class else batch.label.cpu()
            reason = [
                OTHER if wrong else "" for wrong in ((label >= 0) & (label != target)).tolist()
            ]
        kind, region = modality(subject.model, batch), batch.aux[REGION].bool().cpu()
        mask = batch.aux.get("mask", batch.aux.get("attention_mask"))
        there = (
            torch.ones_like(region)
            if mask is None or mask.shape != region.shape
            else mask.bool().cpu()
        )
        sizes = zip(
            *((part.flatten(1).sum(1).tolist()) for part in (region & there, there)), strict=True
        )
        blank = ["" if 0 < inside < size else WHOLE if inside else EMPTY for inside, size in sizes]
        for name in subject.explainers:
            maps = (
                subject.explain(name, batch, subject.target)
                if self.by == MOSAICS
                else subject.clean(name)
            )
            lost = zip(blank, reason, reasons(maps, "the map"), strict=True)
            why = [empty or other or flat for empty, other, flat in lost]
            status = torch.tensor(
                [FLIPPED if text == UNSEEN else UNDEFINED if text else OK for text in why]
            )
            values = relevance(maps, kind, self.sign)
            if values.shape != region.shape:
                shapes = f"regions have shape {tuple(region.shape[1:])}, but maps {tuple(values.shape[1:])}"
                raise UserError(f"{shapes} places")
            for measure, score in scored(values, region, there, kind).items():
                yield Scores.column(
                    name, measure, self.conditions()[0], score, why, status, missing=NOTHING
                )

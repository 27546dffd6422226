"""Localisation: does the map lie where the class is, in a region that the data name or in a tile of a mosaic?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import torch
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.axes.contract import Measure
from holdfast.axes.localisation.measures import Sign, auc, box, mass, pointing, rank, relevance
from holdfast.axes.localisation.mosaic import UNSEEN, mosaics
from holdfast.errors import UserError
from holdfast.maps.undefined import reasons
from holdfast.models import Model
from holdfast.models.modality import modality
from holdfast.models.tasks import REGION
from holdfast.types import FLIPPED, OK, STRICT, UNDEFINED, Batch, Condition, Exhibit, Scores, Subject

_KNOWN = (
    ("relevance_mass", "Relevance mass", "share of the relevance in the region"),
    ("relevance_rank", "Relevance rank", "share of the k largest values that lie in a region of k places"),
    ("pointing", "Pointing game", "whether the peak is in the region"),
    ("region_auc", "Area under ROC", "how surely the region has larger values than the rest; chance is ½"),
    ("energy", "Energy", "share of the relevance in the box around the region"),
)
MEASURES = tuple(
    Measure(*known, "higher", "component" if i else "headline", (0.0, 1.0), "column") for i, known in enumerate(_KNOWN)
)
"""What is known of the measures of the axis, the first of which speaks for it."""
REGIONS, MOSAICS = "regions", "mosaics"
BOXED = ("image", "series")
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

    by: Literal["regions", "mosaics"] | None = None
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
            raise UserError(f"{self.name} makes mosaics of pictures (channels, height, width), got {tuple(shape)}")

    def suited(self, model: Model, batch: Batch) -> Localisation:
        """By regions where the data name them, else by mosaics, where samples are pictures and there are classes."""
        by = self.by or (REGIONS if REGION in batch.aux else MOSAICS)
        if by == REGIONS and REGION not in batch.aux:
            raise UserError(
                f"{self.name} needs regions, and the data name none: add regions to the data, or by: {MOSAICS}"
            )
        if by == MOSAICS and (modality(model, batch) != "image" or not model.task.exclusive):
            what = f"mosaics need pictures and classes, which {model.name} has not"
            raise UserError(f"{self.name} needs the regions of samples, and the data name none; {what}")
        return Localisation(by, self.sign, self.any_class)

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """One column of scores per explainer and measure, each beside its chance."""
        kind, batch = modality(subject.model, subject.batch), subject.batch
        if self.by == MOSAICS:
            made = mosaics(subject)
            batch, region, reason = made.batch, made.region, made.reason
            unseen = [not seen and not why for seen, why in zip(made.seen.tolist(), reason, strict=True)]
        else:
            region = batch.aux[REGION].bool().cpu()
            known = (
                batch.label if batch.label is not None and not self.any_class else torch.full_like(subject.target, -1)
            )
            wrong = (known.cpu() >= 0) & (known.cpu() != subject.target.cpu())
            reason, unseen = [OTHER if other else "" for other in wrong.tolist()], [False] * len(batch)
        there = _there(batch, region)
        whole = zip(reason, (region & there).flatten(1).sum(1).tolist(), there.flatten(1).sum(1).tolist(), strict=True)
        reason = [why or (WHOLE if inside == size else "" if inside else EMPTY) for why, inside, size in whole]
        for explainer in subject.explainers:
            maps = self._maps(subject, explainer, batch, reason)
            lost = zip(reason, reasons(maps, "the map"), unseen, strict=True)
            why = [own or (UNSEEN if blind else flat) for own, flat, blind in lost]
            codes = [FLIPPED if text == UNSEEN else UNDEFINED if text else OK for text in why]
            values = relevance(maps, kind, self.sign).cpu()
            if values.shape != region.shape:
                raise UserError(
                    f"regions have shape {tuple(region.shape[1:])}, but maps {tuple(values.shape[1:])} places"
                )
            for measure, score in scored(values, region, there, kind).items():
                status, where = torch.tensor(codes), self.conditions()[0]
                yield Scores.column(explainer, measure, where, score, why, status, missing=NOTHING)

    def _maps(self, subject: Subject, explainer: str, batch: Batch, reason: Sequence[str]) -> Tensor:
        """Maps of the samples as they are, or of the mosaics that there are; NaN for those that there are not."""
        if self.by != MOSAICS:
            return subject.clean(explainer)
        rows = torch.tensor([not why for why in reason]).nonzero().flatten()
        maps = torch.full(subject.model.inputs(batch).shape, torch.nan)
        if len(rows):
            maps[rows] = subject.explain(explainer, batch[rows], subject.target[rows.to(subject.target.device)]).cpu()
        return maps


def scored(values: Tensor, region: Tensor, there: Tensor, kind: str = "image") -> dict[str, Tensor]:
    """Every measure of values (B, …) in a region (B, …), and what chance is for each; energy where there are boxes.

    >>> region = torch.tensor([[[True, False], [False, False]]])
    >>> found = scored(torch.tensor([[[3.0, 1.0], [0.0, 0.0]]]), region, torch.ones_like(region))
    >>> {name: float(value) for name, value in found.items() if "chance" not in name}
    {'relevance_mass': 0.75, 'relevance_rank': 1.0, 'pointing': 1.0, 'region_auc': 1.0, 'energy': 0.75}
    """
    boxed = (box(region & there) & there).flatten(1)
    flat, inside, counted = values.flatten(1), (region & there).flatten(1), there.flatten(1)
    area, around = (part.sum(1) / counted.sum(1).double() for part in (inside, boxed))
    made = {"relevance_mass": mass, "relevance_rank": rank, "pointing": pointing, "region_auc": auc}
    found = {name: (call(flat, inside, counted), area) for name, call in made.items()}
    found["region_auc"] = (found["region_auc"][0], torch.full_like(area, 0.5))
    if kind in BOXED:
        found["energy"] = (mass(flat, boxed, counted), around)
    columns = {}
    for name, (score, chance) in found.items():
        columns |= {name: score, f"{name}_chance": torch.where(torch.isfinite(score), chance, torch.nan)}
    return columns


def _there(batch: Batch, region: Tensor) -> Tensor:
    """Which places are no padding, in the shape of the region."""
    for name in ("mask", "attention_mask"):
        if name in batch.aux and batch.aux[name].shape == region.shape:
            return batch.aux[name].bool().cpu()
    return torch.ones_like(region)

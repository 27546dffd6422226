"""Agreement of a model with itself when only some features of its input are kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import torch
from torch import Tensor

from heatproof import rand
from heatproof.errors import UserError
from heatproof.features import Grouping, Hiding, count, fixed
from heatproof.features.fill import Fill, filled, kept_only
from heatproof.models import Model
from heatproof.models.tasks import Task
from heatproof.types import Batch

Agreement = Literal["argmax", "margin"]


class MaskedInputs:
    """Samples of which only some features are shown to the model, and whether its prediction stays.

    `segments` number the features of each sample, `counts` (B,) says how many there are. `lost` (B,) marks samples of
    which some masked input had scores that are not finite: nothing can be said of them.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        features: Grouping,
        fill: Fill,
        agreement: Agreement,
        margin: float | None = None,
    ) -> None:
        features.check(tuple(batch.x.shape))
        self.model, self.task, self.features = model, model.task, features
        self.agreement, self.margin = agreement, margin
        self.batch = batch.to(model.device)
        self.segments = features.segments(self.batch)
        self.counts = count(self.segments)
        with torch.no_grad():
            if isinstance(features, Hiding):
                self.inputs = self.fill = self.batch.x
            else:
                self.inputs = model.inputs(self.batch)
                self.fill = filled(fill, model, self.batch, self.inputs, self.segments)
        # Non-finite outputs per sample, added up on the device so that nothing waits for them.
        self.lost = torch.zeros(len(batch), dtype=torch.int64, device=model.device)

    def outputs(self, owner: Tensor, build: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        """Logits (r, classes) of rows with only the features of their masks, as many at a time as the model takes.

        Row i is of the sample `owner[i]`; `build(rows)` makes the masks (r, n) of some rows.
        """
        for rows in torch.split(torch.arange(len(owner), device=owner.device), self.model.rows):
            if not len(rows):  # nothing is left to draw; networks need not cope with an empty batch
                continue
            samples = owner[rows]
            aux = {name: value[samples] for name, value in self.batch.aux.items()}
            with torch.no_grad():
                inputs, aux = kept_only(
                    self.features,
                    self.inputs[samples],
                    self.fill[samples],
                    aux,
                    build(rows),
                    self.segments[samples],
                )
                logits = self.model.logits(inputs, aux).double()
            self.lost.index_add_(0, samples, (~torch.isfinite(logits).all(1)).long())
            yield logits.nan_to_num()

    def unchanged(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Whether rows `after` (R, K) agree with rows `before` (R, K), of which `target` (R,) is predicted, (R,) boolean."""
        if self.agreement == "argmax":
            return self.task.same(before, after, target)
        old, new = _probabilities(self.task, before), _probabilities(self.task, after)
        first, second = old.topk(2, dim=1).values.unbind(1)
        # Half the gap: as long as no probability moves further, the first class stays the first.
        allowed = (first - second) / 2 if self.margin is None else self.margin
        same_class = after.argmax(1) == self.task.target(before)
        return ((new - old).abs().amax(1) <= allowed) & same_class


class Problem(MaskedInputs):
    """The samples with their explanations α, ready to be masked, and what the model says of x ⊙ α.

    `mask` and `free` (B, n) are the features kept at the least and those that can be added, `left_out` (B,) counts the
    latter, `predicted` (B,) is the class on x ⊙ α, `agrees` (B,) whether α itself counts as agreement.
    """

    def __init__(
        self,
        model: Model,
        batch: Batch,
        mask: Tensor,
        features: Grouping,
        fill: Fill,
        agreement: Agreement,
        margin: float | None,
        target: Tensor | None,
        seed: int,
    ) -> None:
        super().__init__(model, batch, features, fill, agreement, margin)
        always = fixed(features, self.batch)
        self.mask, self.free = _checked_mask(mask, batch, features, self.counts, always)
        self.left_out = self.free.sum(1).cpu()
        self.key = rand.keys(seed, batch.ids, "certify").to(model.device)

        every_sample = torch.arange(len(batch), device=model.device)
        self.reference = torch.cat(list(self.outputs(every_sample, lambda rows: self.mask[rows])))
        self.predicted = self.task.target(self.reference)
        self.target = self.predicted
        if target is not None:
            self.target = _checked_target(target, *self.reference.shape).to(model.device)
        self.agrees = self.predicted == self.target
        if agreement == "margin":
            _probabilities(self.task, self.reference)  # refuses tasks without classes
            self.agrees = torch.ones_like(self.agrees)

    def judge(self, owner: Tensor, build: Callable[[Tensor], Tensor]) -> Tensor:
        """Whether the model agrees on each row (R,) boolean; `build(rows)` makes the masks of some rows."""
        verdicts = [torch.zeros(0, dtype=torch.bool, device=owner.device)]
        start = 0
        for logits in self.outputs(owner, build):
            samples = owner[start : start + len(logits)]
            start += len(logits)
            verdicts.append(self.unchanged(self.reference[samples], logits, self.target[samples]))
        return torch.cat(verdicts)

    def judge_sets(self, owner: Tensor, sets: Tensor) -> Tensor:
        """The same of masks (R, n) that are there already, both on the CPU."""
        return self.judge(owner, lambda some: sets[some.cpu()].to(owner.device)).cpu()


def _checked_target(target: Tensor, samples: int, classes: int) -> Tensor:
    if (
        not isinstance(target, Tensor)
        or tuple(target.shape) != (samples,)
        or target.is_floating_point()
    ):
        raise UserError(
            f"target must be a tensor of {samples} classes, one per sample, got {target!r}"
        )
    if bool(((target < 0) | (target >= classes)).any()):
        raise UserError(
            f"target must lie in 0 … {classes - 1}, the classes of the model, got {target.tolist()}"
        )
    return target


def _probabilities(task: Task, table: Tensor) -> Tensor:
    found = task.probability(table)
    if found is None or not task.exclusive:
        raise UserError(
            f"agreement='margin' compares class probabilities, and {task.name} has none; use 'argmax'"
        )
    return found


def _checked_mask(
    mask: Tensor, batch: Batch, features: Grouping, counts: Tensor, always: Tensor | None
) -> tuple[Tensor, Tensor]:
    """The selected features together with those always kept, and the features that can be added, (B, n) boolean."""
    if not isinstance(mask, Tensor) or mask.dtype != torch.bool or mask.ndim != 2:
        what = (
            f"{mask.dtype} of shape {tuple(mask.shape)}"
            if isinstance(mask, Tensor)
            else type(mask).__name__
        )
        raise UserError(
            f"mask must be a boolean tensor (B, n), got {what}; heatproof.masks.select makes one"
        )
    if len(batch) == 0:
        raise UserError("the batch has no samples to certify")
    if len(mask) != len(batch):
        raise UserError(f"mask has {len(mask)} rows for {len(batch)} samples")
    n, same = int(counts.max()), features.total(tuple(batch.x.shape)) is not None
    width = mask.shape[1]
    if width < n or (same and width != n):
        raise UserError(f"mask has {width} columns, but the samples have {n} features")
    mask = mask.to(counts.device)
    exists = torch.arange(width, device=counts.device) < counts[:, None]
    _refuse(
        mask & ~exists,
        batch,
        "selects features that sample {id!r} does not have: it has {n}",
        counts,
    )
    if (
        always is not None and always.shape[1] < width
    ):  # other samples of the mask have more features
        always = torch.nn.functional.pad(always, (0, width - always.shape[1]))
    may = exists if always is None else exists & ~always
    chosen, free = mask & may, may & ~mask
    lacking = "is empty for sample {id!r}: select at least one of its {n} features"
    _refuse(~chosen.any(1, keepdim=True), batch, lacking, counts)
    full = "has all features selected for sample {id!r}: none of its {n} can be added"
    _refuse(~free.any(1, keepdim=True), batch, full, counts)
    return (chosen if always is None else chosen | (always & exists)), free


def _refuse(wrong: Tensor, batch: Batch, why: str, counts: Tensor) -> None:
    if bool(wrong.any()):
        at = int(wrong.any(1).nonzero()[0])
        raise UserError("mask " + why.format(id=batch.ids[at], n=int(counts[at])))

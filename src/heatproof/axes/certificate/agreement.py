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

    `segments` number the features of each sample, `counts` (B,) says how many there are. `not_finite` (B,) counts the
    masked inputs of each sample whose scores were not finite: nothing can be said of such a sample.
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
        # Added up on the device, so that nothing waits for it.
        self.not_finite = torch.zeros(len(batch), dtype=torch.int64, device=model.device)

    def outputs(self, owner: Tensor, build: Callable[[Tensor], Tensor]) -> Iterator[Tensor]:
        """Yield the model's logits (r, classes) of masked inputs, in batches as large as the model takes.

        Masked input i is the sample numbered `owner[i]` with only some features, the others filled. `build(rows)` returns
        the masks (r, n) of some inputs, so that no more of them are in memory than one batch needs. Logits that are not
        finite count for their sample in `not_finite` and become numbers.
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
            self.not_finite.index_add_(0, samples, (~torch.isfinite(logits).all(1)).long())
            yield logits.nan_to_num()

    def unchanged(self, before: Tensor, after: Tensor, target: Tensor) -> Tensor:
        """Return whether the model's prediction stays when its outputs change, (R,) boolean.

        `before` and `after` (R, K) are the outputs, and `target` (R,) is the class to be predicted. For the agreement "argmax"
        the same class must be predicted; for "margin" it must, and no class probability may change by more than a margin,
        by default half the gap between the two largest before.
        """
        if self.agreement == "argmax":
            return self.task.same(before, after, target)
        old, new = _probabilities(self.task, before), _probabilities(self.task, after)
        allowed_change: Tensor | float
        if self.margin is None:
            # While no probability moves by more than half the gap, the first class stays the first. With more than two
            # classes that is not enough (footnote 4 of Jin et al. 2025), so the class is compared as well.
            first, second = old.topk(2, dim=1).values.unbind(1)
            allowed_change = (first - second) / 2
        else:
            allowed_change = self.margin
        largest_change = (new - old).abs().amax(1)
        same_class = after.argmax(1) == self.task.target(before)
        return (largest_change <= allowed_change) & same_class


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
        """Return whether the model predicts the same on each masked input as on the explanation alone, (R,) boolean.

        Masked input i is the sample numbered `owner[i]`; `build(rows)` returns the masks (r, n) of some inputs.
        """
        agreements = [torch.zeros(0, dtype=torch.bool, device=owner.device)]
        start = 0
        for logits in self.outputs(owner, build):
            samples = owner[start : start + len(logits)]
            start += len(logits)
            agrees = self.unchanged(self.reference[samples], logits, self.target[samples])
            agreements.append(agrees)
        return torch.cat(agreements)

    def judge_sets(self, owner: Tensor, masks: Tensor) -> Tensor:
        """Return whether the model predicts the same with the features `masks` (R, n) as on the explanation alone, (R,).

        Masked input i is the sample numbered `owner[i]`. Masks and result are on the CPU.
        """

        def build(rows: Tensor) -> Tensor:
            return masks[rows.cpu()].to(owner.device)

        return self.judge(owner, build).cpu()


def _checked_target(target: Tensor, samples: int, classes: int) -> Tensor:
    """Return the classes (B,) that must be predicted; refuse anything but one class of the model per sample."""
    is_tensor = isinstance(target, Tensor)
    if not is_tensor or tuple(target.shape) != (samples,) or target.is_floating_point():
        raise UserError(
            f"target must be a tensor of {samples} classes, one per sample, got {target!r}"
        )
    if bool(((target < 0) | (target >= classes)).any()):
        raise UserError(
            f"target must lie in 0 … {classes - 1}, the classes of the model, got {target.tolist()}"
        )
    return target


def _probabilities(task: Task, outputs: Tensor) -> Tensor:
    """Return the class probabilities (R, K) of outputs (R, K); refuse tasks without classes that exclude each other."""
    probabilities = task.probability(outputs)
    if probabilities is None or not task.exclusive:
        raise UserError(
            f"agreement='margin' compares class probabilities, and {task.name} has none; use 'argmax'"
        )
    return probabilities


def _checked_mask(
    mask: Tensor, batch: Batch, features: Grouping, counts: Tensor, always: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return which features an explanation shows, (B, n), and which can be added to it, (B, n).

    `mask` (B, n) is the user's selection, and `counts` (B,) are the numbers of features of the samples. `always` (B, n)
    are features that are shown in any case, such as the special tokens of a text. Masks of another shape are refused, and
    samples without a feature to show or to add.
    """
    if not isinstance(mask, Tensor):
        raise UserError(_not_a_mask(type(mask).__name__))
    if mask.dtype != torch.bool or mask.ndim != 2:
        raise UserError(_not_a_mask(f"{mask.dtype} of shape {tuple(mask.shape)}"))
    if len(batch) == 0:
        raise UserError("the batch has no samples to certify")
    if len(mask) != len(batch):
        raise UserError(f"mask has {len(mask)} rows for {len(batch)} samples")
    width, most = mask.shape[1], int(counts.max())
    all_have_as_many = features.total(tuple(batch.x.shape)) is not None
    if width < most or (all_have_as_many and width != most):
        raise UserError(f"mask has {width} columns, but the samples have {most} features")

    mask = mask.to(counts.device)
    exists = torch.arange(width, device=counts.device) < counts[:, None]
    too_many = "selects features that sample {id!r} does not have: it has {n}"
    _refuse_rows((mask & ~exists).any(1), batch, too_many, counts)

    if always is None:
        always = torch.zeros_like(mask)
    else:
        # In a shard whose other samples have more features, the mask is wider than this batch needs.
        always = torch.nn.functional.pad(always, (0, max(0, width - always.shape[1])))
    selectable = exists & ~always
    chosen, free = mask & selectable, selectable & ~mask
    is_empty = "is empty for sample {id!r}: select at least one of its {n} features"
    _refuse_rows(~chosen.any(1), batch, is_empty, counts)
    is_full = "has all features selected for sample {id!r}: none of its {n} can be added"
    _refuse_rows(~free.any(1), batch, is_full, counts)
    return chosen | (always & exists), free


def _not_a_mask(got: str) -> str:
    """Return the message for something that is not a boolean tensor (B, n)."""
    return f"mask must be a boolean tensor (B, n), got {got}; heatproof.masks.select makes one"


def _refuse_rows(wrong: Tensor, batch: Batch, message: str, counts: Tensor) -> None:
    """Raise `message` about the first sample that is `wrong` (B,), with its id and its number of features n."""
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise UserError("mask " + message.format(id=batch.ids[row], n=int(counts[row])))

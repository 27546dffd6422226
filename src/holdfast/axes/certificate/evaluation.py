"""Soft stability: how often does the prediction survive when features are added to the explanation?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass as plain_dataclass
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import AfterValidator, Field, ValidationInfo
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast.axes.certificate.agreement import Agreement
from holdfast.axes.certificate.certify import Certificates, Mode, certify
from holdfast.axes.certificate.flips import TRIALS, as_pictures, find_flip
from holdfast.axes.certificate.sequential import OPEN, YES, Method
from holdfast.errors import UserError
from holdfast.features import GroupingField, Patches, count, spread
from holdfast.maps.selection import select
from holdfast.maps.undefined import NOT_FINITE, reasons
from holdfast.models import Model
from holdfast.types import OK, STRICT, UNDEFINED, Batch, Exhibit, Scores, Subject

INPUT, EXPLANATION, FLIP = "input", "explanation", "flip"
"""Conditions of the exhibits: x, x ⊙ α, and x ⊙ β with as many added features as the level says, 0 where none flip."""
EXAMPLES = 2
"""How many samples of an explainer a flip is searched for; each costs up to `TRIALS` passes that no row counts."""
NO_FLIP = f"no flip found in at most {TRIALS} trials"
USUAL_THRESHOLD = 0.9


def _different(radii: tuple[int, ...]) -> tuple[int, ...]:
    if not radii or len(set(radii)) != len(radii):
        raise ValueError(f"radii must be different and at least one, got {radii}")
    return radii


def _has_a_rule(mode: Mode, info: ValidationInfo) -> Mode:
    if mode != "estimate" and info.data.get("method", "clopper-pearson") != "clopper-pearson":
        raise ValueError(f"{mode!r} has its own exact rule; method is for mode 'estimate'")
    return mode


def _is_asked(threshold: float, info: ValidationInfo) -> float:
    if threshold != USUAL_THRESHOLD and info.data.get("mode", "decide") != "decide":
        raise ValueError("a threshold is for mode 'decide'")
    return threshold


Share = Annotated[float, Field(gt=0, lt=1)]
Radii = Annotated[tuple[Annotated[int, Field(ge=1)], ...], AfterValidator(_different)]
ModeField = Annotated[Mode, AfterValidator(_has_a_rule)]
Threshold = Annotated[Share, AfterValidator(_is_asked)]
FillField = Literal["zero", "mean", "blur"] | Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, config=STRICT)
class Certificate:
    """Keep the `fraction` of features that a map calls most important, add up to r others, and see what is predicted.

    For every radius r, one row per sample of `certified`, the guaranteed lower bound of the share τ_r of supersets on
    which the prediction stays (it fails with probability at most `delta`); of `passes`, what it cost; and by `mode`
    "estimate": `rate`, τ_r to ± `epsilon`, with bounds `low` and `high`;
    "decide": `stable`, 1 where τ_r ≥ `threshold` is shown and 0 where it is refuted, undefined where it stays open;
    "hard": `unflipped`, 0 where a superset flipped the prediction, 1 where none did among as many draws as certify
    τ_r ≥ 1 − `epsilon`. That is less than hard stability, τ_r = 1, unless all supersets were tried.
    See `holdfast.certify` for these and the other parameters. Shown samples come with a flip, where one is found.

    >>> Certificate(radii=(1, 3)).conditions()
    [('radius', 1.0), ('radius', 3.0)]
    """

    name: ClassVar[str] = "certificate"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = False

    radii: Radii = (1, 5, 10)
    features: GroupingField = Patches()
    fraction: Share = 0.25
    delta: Share = 0.1
    epsilon: Share = 0.1
    method: Method = "clopper-pearson"
    mode: ModeField = "estimate"
    threshold: Threshold = USUAL_THRESHOLD
    simultaneous: bool = False
    agreement: Agreement = "argmax"
    fill: FillField = "zero"

    def conditions(self) -> list[tuple[str, float]]:
        """("radius", r) for every radius."""
        return [("radius", float(r)) for r in self.radii]

    def suited(self, model: Model, batch: Batch) -> Certificate:
        """Itself: nothing is left open for the data to decide."""
        return self

    def check(self, shape: Sequence[int]) -> None:
        """Refuse samples that the features, the fraction or the fill do not fit; `shape` is that of a sample."""
        check_explanations(self.features, self.fraction, shape)
        if self.fill == "blur" and len(shape) not in (2, 3):
            raise UserError(f"fill 'blur' is for images and series; this data has samples of shape {tuple(shape)}")

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """Columns of guaranteed bounds, what the mode asks for, and passes, explainer by explainer."""
        for explainer in subject.explainers:
            chosen = explanations(subject, explainer, self.features, self.fraction)
            yield from certificate_columns(
                self, subject, subject.model, chosen, explainer, ["radius"] * len(self.radii)
            )
            yield from self._exhibits(subject, chosen, explainer)

    def certify(self, model: Model, batch: Batch, mask: Tensor, seed: int) -> Certificates:
        """The certificates of some samples with explanations `mask` (B, n)."""
        return certify(
            model,
            batch,
            mask,
            self.features,
            self.radii,
            self.delta,
            self.epsilon,
            self.method,
            mode=self.mode,
            threshold=self.threshold,
            simultaneous=self.simultaneous,
            agreement=self.agreement,
            fill=self.fill,
            seed=seed,
        )

    def _exhibits(self, subject: Subject, chosen: Explanations, explainer: str) -> Iterator[Exhibit]:
        """x, x ⊙ α and a flipped x ⊙ β of the samples on show, where they are pictures."""
        wanted = sorted(subject.showcase)[:EXAMPLES]
        shown = [i for i, sample in enumerate(chosen.batch.ids) if sample in wanted]
        if not shown or subject.batch.x.ndim != 4 or subject.batch.x.shape[1] not in (1, 3):
            return
        model, batch, mask = subject.model, chosen.batch[shown], chosen.mask[shown]

        def search(part: Batch, kept: Tensor) -> Tensor:
            singly = [
                find_flip(model, part[[i]], kept[i], self.features, self.fill, subject.seed) for i in range(len(part))
            ]
            return torch.stack(singly)

        def paint(part: Batch, kept: Tensor) -> Tensor:
            return as_pictures(model, part, kept, self.features, self.fill)

        found = subject.compute(search, batch, mask)
        added = found[:, 4:].bool().to(mask.device)
        explained, flipped = (subject.compute(paint, batch, kept) for kept in (mask, mask | added))
        place = {sample: i for i, sample in enumerate(subject.batch.ids)}
        where = spread(added.to(batch.x.device).float(), self.features.segments(batch))[:, None]
        for i, (sample, (before, sure, after, likely)) in enumerate(zip(batch.ids, found[:, :4].tolist(), strict=True)):
            whole = _said(model, *(float(values[place[sample]]) for values in (subject.target, subject.probability)))
            yield Exhibit(explainer, INPUT, 0.0, sample, batch.x[i], None, whole)
            yield Exhibit(explainer, EXPLANATION, 0.0, sample, explained[i], None, _said(model, before, sure))
            note = _said(model, after, likely) if bool(added[i].any()) else NO_FLIP
            yield Exhibit(explainer, FLIP, float(added[i].sum()), sample, flipped[i], where[i], note)


def _said(model: Model, target: float, probability: float) -> str:
    return f"{model.class_name(int(target))} ({100 * probability:.0f} %)"


@plain_dataclass(frozen=True)
class Explanations:
    """The explanations of a shard: status and reason of all samples; batch and masks (S, n) of those that have one."""

    status: Tensor
    reason: tuple[str, ...]
    rows: Tensor
    batch: Batch
    mask: Tensor

    def column(self, values: Tensor) -> Tensor:
        """Values (S,) of the samples with an explanation as a column for all samples, NaN elsewhere."""
        whole = torch.full((len(self.status),), torch.nan, dtype=torch.float64)
        whole[self.rows] = values.double().cpu()
        return whole


def explanations(subject: Subject, explainer: str, features: Any, fraction: float) -> Explanations:
    """The features that the maps of an explainer select; samples without a usable map say why."""
    maps = subject.clean(explainer)
    lost = ["" if ok else NOT_FINITE for ok in torch.isfinite(subject.probability).tolist()]
    blank = reasons(maps, "the map")
    few = _too_few(features, subject.batch, fraction)
    why = tuple(a or b or c for a, b, c in zip(lost, blank, few, strict=True))
    status = torch.tensor([UNDEFINED if reason else OK for reason in why], dtype=torch.int64)
    rows = (status == OK).nonzero().flatten()
    batch = subject.batch[rows]
    if not len(rows):
        return Explanations(status, why, rows, batch, torch.zeros(0, 0, dtype=torch.bool))
    mask = select(maps[rows.to(maps.device)], batch, features, fraction=fraction, seed=subject.seed)
    return Explanations(status, why, rows, batch, mask)


def check_explanations(features: Any, fraction: float, shape: Sequence[int]) -> None:
    """Refuse features that do not fit samples of this shape, and a fraction that leaves none of them to be added."""
    features.check((1, *shape))
    n = features.total((1, *shape))
    if n is not None and _selected(n, fraction) >= n:
        raise UserError(f"fraction {fraction} selects all {n} features of a sample, so none can be added; lower it")


def _selected(n: int, fraction: float) -> int:
    return max(1, int(fraction * n + 0.5))


def _too_few(features: Any, batch: Batch, fraction: float) -> list[str]:
    """Why a sample has no feature that could be added to its explanation, empty where it has."""
    n = count(features.segments(batch)).cpu()
    if hasattr(features, "fixed"):
        n = n - features.fixed(batch).sum(1).cpu()
    return [
        "" if size > _selected(size, fraction) else f"with {size} features none is left to be added"
        for size in n.tolist()
    ]


def certificate_columns(
    asked: Any, subject: Subject, model: Model, chosen: Explanations, explainer: str, conditions: Sequence[str]
) -> Iterator[Scores]:
    """`certified`, `passes` and the mode's own measure of one explainer, radius by radius.

    `asked` is an evaluation with `certify`, `mode`, `radii` and `threshold`. Passes are those of the network: one input
    of a smoothed model costs as many as it has masks.
    """
    each = getattr(model, "samples", 1)

    def some(part: Batch, mask: Tensor) -> Tensor:
        result = asked.certify(model, part, mask, subject.seed)
        columns = (result.rate, result.low, result.high, result.decision, each * result.passes)
        return torch.stack([column.double() for column in columns], 2)

    found = torch.full((len(chosen.rows), len(asked.radii), 5), torch.nan, dtype=torch.float64)
    if len(chosen.rows):
        found = subject.compute(some, chosen.batch, chosen.mask)
    for number, (condition, radius) in enumerate(zip(conditions, asked.radii, strict=True)):
        rate, low, high, decision, passes = (chosen.column(values) for values in found[:, number].unbind(1))
        where, state = (condition, float(radius)), (chosen.status, chosen.reason)
        yield Scores(explainer, "certified", *where, low, *state)
        yield Scores(explainer, "passes", *where, passes, *state)
        if asked.mode == "estimate":
            yield Scores(explainer, "rate", *where, rate, *state, low, high)
        elif asked.mode == "hard":
            yield Scores(explainer, "unflipped", *where, decision, *state)
        else:
            yield _decisions(explainer, where, decision, chosen, asked.threshold)


def _decisions(
    explainer: str, where: tuple[str, float], decision: Tensor, chosen: Explanations, threshold: float
) -> Scores:
    still_open = decision == OPEN
    status = torch.where(still_open, UNDEFINED, chosen.status)
    near = f"open: too near {threshold:g} for the draws allowed"
    reason = tuple(near if o else why for o, why in zip(still_open.tolist(), chosen.reason, strict=True))
    value = torch.where(still_open | decision.isnan(), torch.nan, (decision == YES).double())
    return Scores(explainer, "stable", *where, value, status, reason)

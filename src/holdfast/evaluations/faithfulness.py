"""ROAD and its relatives: does removing what the map calls important hurt the prediction?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal

import torch
from pydantic import BeforeValidator, Field, ValidationInfo, field_validator
from pydantic.dataclasses import dataclass
from torch import Tensor

from holdfast import curves, maskbank, sweeps
from holdfast.curves import Readout
from holdfast.errors import UserError, unknown
from holdfast.evaluations.removals import Column, Labelled, Shared, strip
from holdfast.evaluations.stability import NOT_FINITE, reasons
from holdfast.features import GroupingField, Pixels, Superpixels, count
from holdfast.sweeps import Order, needs_kept, resolve_imputer, resolve_imputers
from holdfast.types import OK, STRICT, UNDEFINED, Batch, Exhibit, Scores, Subject, label_of

Metric = Literal[
    "road",
    "deletion_auc",
    "insertion_auc",
    "pixel_flipping",
    "aopc",
    "irof",
    "infidelity",
    "sensitivity_n",
    "faithfulness_correlation",
]
NEEDS: dict[Metric, tuple[Order, ...]] = {
    "road": ("morf", "lerf"),
    "deletion_auc": ("morf",),
    "insertion_auc": ("lerf",),
    "pixel_flipping": ("morf",),
    "aopc": ("morf",),
    "irof": (),
    "infidelity": (),
    "sensitivity_n": (),
    "faithfulness_correlation": (),
}
"""Every metric and the orders it is read from; the last four have sweeps or masks of their own."""
SWEPT = tuple(metric for metric, orders in NEEDS.items() if orders)
BANKED = ("infidelity", "sensitivity_n", "faithfulness_correlation")
STRIP = 5
"""How many steps of a removal the gallery shows, beside the untouched image."""

NO_LABEL, NOTHING_LEFT, ONE_SEGMENT = "the sample has no label", "nothing would be kept", "the image is one segment"
UNVARIED = "the map or the output does not vary over the masks"

Share = Annotated[float, Field(gt=0, lt=1)]


@dataclass(frozen=True, config=STRICT)
class Faithfulness:
    """Remove pixels in the order of a map, put something in their place, and see what becomes of the prediction.

    For every imputer, order and fraction one row per sample of `accuracy` (1 while the top class is that of the whole
    image, or with against="label" the label), and of `probability`, `logit` and `margin` of the class predicted for
    the whole image. Then, per imputer, what these curves say in one number: `road`, `deletion_auc`, `insertion_auc`,
    `pixel_flipping`, `aopc`, beside the same for a random order (`_random`); and with `baseline` in place of removed
    `segments`: `irof`, and from one bank of random masks `infidelity`, `sensitivity_n` and
    `faithfulness_correlation`. See `holdfast.curves` and `holdfast.maskbank` for the formulas.

    >>> Faithfulness(imputers="zero", fractions=(0.5,), orders=("morf", "lerf"), metrics=("road",)).conditions()
    [('zero morf', 0.5), ('zero lerf', 0.5), ('zero', 0.0)]
    """

    name: ClassVar[str] = "faithfulness"
    reexplains: ClassVar[bool] = False

    imputers: Annotated[Any, BeforeValidator(resolve_imputers), Field(validate_default=True)] = ("noisy_linear",)
    fractions: tuple[float, ...] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
    orders: tuple[Order, ...] = sweeps.ORDERS
    features: GroupingField = Pixels()
    absolute: bool = False
    against: Literal["prediction", "label"] = "prediction"
    readout: Readout = "probability"
    metrics: Literal["all"] | tuple[Metric, ...] = "all"
    segments: GroupingField = Superpixels(kernel_size=1.0, max_dist=10.0)
    baseline: Annotated[Any, BeforeValidator(resolve_imputer), Field(validate_default=True)] = "zero"
    subsets: tuple[Share, ...] = (0.1, 0.5)
    masks: Annotated[int, Field(ge=2, validate_default=True)] = 64

    @field_validator("fractions")
    @classmethod
    def _rising(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        return sweeps.check_fractions(value)

    @field_validator("orders", "subsets", "metrics")
    @classmethod
    def _different(cls, value: Any) -> Any:
        if len(set(value)) != len(value) and value != "all":
            raise ValueError(f"must not name anything twice, got {list(value)}")
        return value

    @field_validator("metrics", mode="before")
    @classmethod
    def _known(cls, value: Any) -> Any:
        given = [value] if isinstance(value, str) and value != "all" else value
        for metric in given if isinstance(given, list | tuple) else ():
            if metric not in NEEDS:
                raise unknown("metric", metric, NEEDS)
        return given

    @field_validator("metrics")
    @classmethod
    def _possible(cls, value: Any, info: ValidationInfo) -> Any:
        orders = info.data.get("orders", sweeps.ORDERS)
        for metric in () if value == "all" else value:
            for order in NEEDS[metric]:
                if order not in orders:
                    raise ValueError(f"{metric} needs the order {order!r}, but orders is {list(orders)}")
        if not orders and not value:
            raise ValueError("without orders there must be metrics such as irof")
        return value

    @field_validator("masks")
    @classmethod
    def _enough(cls, value: int, info: ValidationInfo) -> int:
        sizes = len(info.data.get("subsets", (0,)))
        if not sizes or value < 2 * sizes:
            raise ValueError(f"{sizes} sizes in subsets need at least {max(2, 2 * sizes)} masks, got {value}")
        return value

    @property
    def wanted(self) -> tuple[Metric, ...]:
        """The metrics asked for: of "all", those that the orders allow."""
        if self.metrics != "all":
            return self.metrics
        return tuple(metric for metric, orders in NEEDS.items() if set(orders) <= set(self.orders))

    def conditions(self) -> list[tuple[str, float]]:
        """(imputer and order, fraction) of the curves; (imputer, 0) and (imputer, size) of the other numbers."""
        names = [label_of(imputer) for imputer in self.imputers]
        found = [(f"{name} {order}", f) for name in names for order in self.orders for f in self.fractions]
        if set(SWEPT) & set(self.wanted):
            found += [(name, 0.0) for name in names]
        if {"irof", "infidelity", "faithfulness_correlation"} & set(self.wanted):
            found.append((label_of(self.baseline), 0.0))
        if "sensitivity_n" in self.wanted:
            found += [(label_of(self.baseline), size) for size in self.subsets]
        return list(dict.fromkeys(found))

    def check(self, shape: Sequence[int]) -> None:
        """Refuse data that is not images, features that do not fit, and removing all where something must be left."""
        if len(shape) != 3:
            raise UserError(f"faithfulness removes pixels of images (C, H, W); this data has samples of {tuple(shape)}")
        self.features.check((1, *shape))
        if {"irof", *BANKED} & set(self.wanted):
            self.segments.check((1, *shape))
        total = self.features.total((1, *shape))
        for imputer in (*self.imputers, self.baseline):
            sweeps.try_imputer(imputer, shape)
        for imputer in self.imputers:
            most = None if total is None else int(sweeps.removal_sizes(self.fractions, torch.tensor([total]))[0, -1])
            if self.orders and most is not None and most == total and needs_kept(imputer, shape):
                raise UserError(
                    f"fraction {self.fractions[-1]:g} removes all {total} features, but {label_of(imputer)} fills in "
                    "from what is kept; leave that fraction out"
                )

    def __call__(self, subject: Subject) -> Iterator[Scores | Exhibit]:
        """Curves, summaries and pictures, explainer by explainer."""
        shared = self._share(subject)
        lost = ["" if ok else NOT_FINITE for ok in torch.isfinite(shared.clean).all(1).tolist()]
        for number, explainer in enumerate(subject.explainers):
            values = sweeps.importance(subject.clean(explainer), self.absolute)
            why = tuple(a or b for a, b in zip(lost, reasons(values, "the map"), strict=True))
            status = torch.tensor([UNDEFINED if reason else OK for reason in why], dtype=torch.int64)
            column = Column(explainer, (status == OK).nonzero().flatten(), status, why)
            yield from self._curves(subject, shared, column, values)
            if "irof" in self.wanted:
                yield from self._irof(subject, shared, column, values)
            if set(BANKED) & set(self.wanted):
                yield from self._banked(shared, column, number)

    def _share(self, subject: Subject) -> Shared:
        batch = subject.batch
        clean = subject.predict(batch)
        label = torch.full_like(subject.target, -1) if batch.label is None else batch.label.to(subject.target)
        truth = label if self.against == "label" else subject.target
        start = {name: value[:, 0] for name, value in curves.readouts(clean[:, None], subject.target, truth).items()}
        pixels, segments = _labelled(self.features, batch), None
        drawn, drawn_irof, bank = {}, None, None
        everyone = torch.arange(len(batch))
        if "random" in self.orders:
            for imputer in self.imputers:
                drawn[label_of(imputer)] = self._sweep(subject, clean, everyone, None, pixels, "random", imputer)[0]
        if {"irof", *BANKED} & set(self.wanted):
            segments = _labelled(self.segments, batch)
            if "irof" in self.wanted and "random" in self.orders:
                drawn_irof = self._sweep(subject, clean, everyone, None, segments, "random", self.baseline)[0]
            if set(BANKED) & set(self.wanted):
                bank = self._fill_bank(subject, clean, *segments)
        return Shared(clean, start, truth, pixels, segments, drawn, drawn_irof, bank)

    def _fill_bank(
        self, subject: Subject, clean: Tensor, segments: Tensor, counts: Tensor
    ) -> tuple[Tensor, maskbank.Bank] | None:
        """The samples with more than one segment and their bank; None if there are none."""
        place = (counts > 1).nonzero().flatten()
        if not len(place):
            return None
        rows = place.cpu()
        maps = torch.stack([sweeps.importance(subject.clean(e)[place]) for e in subject.explainers])
        some = (subject.batch[rows], subject.target[rows], clean[rows], segments[place], maps.nan_to_num(0, 0, 0))
        sizes = (self.masks, self.subsets, subject.seed)
        return rows, maskbank.fill_bank(subject.predict, *some, self.baseline, *sizes)

    def _sweep(
        self,
        subject: Subject,
        clean: Tensor,
        rows: Tensor,
        values: Tensor | None,
        labelled: Labelled,
        order: Order,
        imputer: Any,
    ) -> tuple[Tensor, Tensor]:
        """`sweeps.removal` of some samples of the shard."""
        place = rows.to(labelled[0].device)
        return sweeps.removal(
            subject.predict,
            subject.batch[rows],
            clean[rows],
            None if values is None else values[place],
            labelled[0][place],
            labelled[1][place],
            self.fractions,
            order,
            imputer,
            subject.seed,
        )

    def _curves(self, subject: Subject, shared: Shared, column: Column, values: Tensor) -> Iterator[Scores | Exhibit]:
        rows = column.rows
        target, truth = subject.target[rows], shared.truth[rows]
        start = {name: value[rows] for name, value in shared.start.items()}
        for imputer in self.imputers:
            label, found = label_of(imputer), dict[str, dict[Readout, Tensor]]()
            usual = self._missing(shared.pixels, rows, imputer, subject.batch.x.shape[1])
            missing = dict.fromkeys(shared.start, usual)
            missing["accuracy"] = [NO_LABEL if t < 0 else why for t, why in zip(truth.tolist(), usual, strict=True)]
            for order in self.orders:
                if order == "random":
                    logits = shared.random[label][rows]
                else:
                    logits, ranks = self._sweep(subject, shared.clean, rows, values, shared.pixels, order, imputer)
                found[order] = curves.readouts(logits, target, truth)
                for name, curve in found[order].items():
                    for s, fraction in enumerate(self.fractions):
                        yield column(name, f"{label} {order}", fraction, curve[:, s], missing[name])
                if order == "morf" and imputer is self.imputers[0]:
                    of_class = (start["probability"], found[order]["probability"])
                    yield from strip(subject, column, imputer, self.fractions, ranks, *of_class, STRIP)
            for measure, value in curves.summaries(found, self.fractions, start, self.readout).items():
                if measure.removesuffix("_random") in self.wanted:
                    kind: Readout = self.readout if measure.startswith(("road", "aopc")) else "probability"
                    yield column(measure, label, 0.0, value, missing[kind])

    def _missing(self, labelled: Labelled, rows: Tensor, imputer: Any, channels: int) -> list[str]:
        """Why a number of each row would be missing."""
        counts = labelled[1].cpu()[rows]
        gone = sweeps.removal_sizes(self.fractions, counts)[:, -1] >= counts
        empty = gone & needs_kept(imputer, (channels, 2, 2))
        return [NOTHING_LEFT if nothing else NOT_FINITE for nothing in empty.tolist()]

    def _irof(self, subject: Subject, shared: Shared, column: Column, values: Tensor) -> Iterator[Scores]:
        assert shared.segments is not None  # as irof is wanted
        rows = column.rows
        sweep = self._sweep(subject, shared.clean, rows, values, shared.segments, "morf", self.baseline)
        found = {"irof": sweep[0]}
        if shared.random_irof is not None:
            found["irof_random"] = shared.random_irof[rows]
        alone = shared.segments[1].cpu()[rows] < 2
        usual = self._missing(shared.segments, rows, self.baseline, subject.batch.x.shape[1])
        missing = [ONE_SEGMENT if one else why for one, why in zip(alone.tolist(), usual, strict=True)]
        for name, logits in found.items():
            curve = curves.readouts(logits, subject.target[rows])["probability"]
            value = curves.irof(self.fractions, curve, shared.start["probability"][rows])
            yield column(name, label_of(self.baseline), 0.0, value.masked_fill(alone, torch.nan), missing)

    def _banked(self, shared: Shared, column: Column, number: int) -> Iterator[Scores]:
        names = [("infidelity", 0.0), ("infidelity_scaled", 0.0), ("faithfulness_correlation", 0.0)]
        names += [("sensitivity_n", size) for size in self.subsets]
        missing, found = [ONE_SEGMENT] * len(shared.clean), dict[tuple[str, float], Tensor]()
        if shared.bank is not None:
            rows, bank = shared.bank
            for i, finite in zip(rows.tolist(), torch.isfinite(bank.drop).all(1).tolist(), strict=True):
                missing[i] = UNVARIED if finite else NOT_FINITE
            for key, value in maskbank.scores(bank, number, shared.clean[rows].abs().amax(1).double()).items():
                found[key] = torch.full((len(missing),), torch.nan, dtype=torch.float64).index_copy(0, rows, value)
        nothing = torch.full((len(missing),), torch.nan, dtype=torch.float64)
        reasons_here = [missing[i] for i in column.rows.tolist()]
        for name, level in names:
            if name.removesuffix("_scaled") in self.wanted:
                value = found.get((name, level), nothing)[column.rows]
                yield column(name, label_of(self.baseline), level, value, reasons_here)


def _labelled(features: Any, batch: Batch) -> Labelled:
    segments = features.segments(batch).to(batch.x.device)
    return segments, count(segments)

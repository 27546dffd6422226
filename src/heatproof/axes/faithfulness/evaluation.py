"""ROAD and its relatives: does removing what the map calls important hurt the prediction?"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, field_validator
from torch import Tensor

from heatproof.axes.faithfulness import sweeps
from heatproof.axes.faithfulness.curves import Readout
from heatproof.axes.faithfulness.kinds import check_removable, defaults, kind_of_features
from heatproof.axes.faithfulness.scores import BANKED, removal_scores
from heatproof.axes.faithfulness.sweeps import Order, needs_kept, resolve_imputer, resolve_imputers
from heatproof.errors import UserError, unknown
from heatproof.evaluation import Condition, DataNames, Evaluation, GalleryImage, Measure, Scores
from heatproof.features import GroupingField, Pixels, Tokens, with_default_features
from heatproof.kinds import kind_of
from heatproof.models import Model
from heatproof.models.tasks import Task, has_probability
from heatproof.removal import CONTEXTUAL, IMPUTERS, Hidden, OwnBaseline, ReferenceMean
from heatproof.subject import Subject
from heatproof.types import Batch, label_of, parameter_class

SHARE, SIGNED = (0.0, 1.0), (-1.0, 1.0)
ACCURACY = Measure(
    "accuracy",
    "accuracy",
    "whether the top class stays when a fraction is removed",
    "neither",
    "curve",
    SHARE,
    "compare",
    rate=True,
)
MEASURES = (
    Measure(
        "road",
        "(LeRF − MoRF)/2",
        "mean over fractions of (LeRF − MoRF) / 2 of the readout",
        "higher",
        "headline",
        chance="compare",
    ),
    Measure(
        "deletion_auc",
        "deletion area",
        "area under the MoRF curve",
        "lower",
        "headline",
        SHARE,
        "compare",
    ),
    Measure(
        "insertion_auc",
        "insertion area",
        "area under LeRF read backwards",
        "higher",
        "headline",
        SHARE,
        "compare",
    ),
    Measure(
        "aopc", "AOPC", "mean drop along the MoRF curve", "higher", "headline", chance="compare"
    ),
    Measure(
        "pixel_flipping",
        "pixel flipping",
        "area under MoRF of the logit",
        "lower",
        "headline",
        chance="compare",
    ),
    Measure(
        "road_morf_accuracy",
        "ROAD accuracy (MoRF)",
        "accuracy after the most relevant are removed, as the ROAD paper reports it",
        "lower",
        "headline",
        SHARE,
        "compare",
        rate=True,
    ),
    Measure(
        "irof",
        "IROF",
        "area over the curve when segments are removed",
        "higher",
        "headline",
        chance="compare",
    ),
    Measure(
        "faithfulness_correlation",
        "correlation",
        "of importance and drop",
        "higher",
        "headline",
        SIGNED,
        "compare",
    ),
    Measure(
        "sensitivity_n",
        "sensitivity-n",
        "the same over masks of one size",
        "higher",
        "headline",
        SIGNED,
        "compare",
    ),
    Measure(
        "infidelity_scaled",
        "infidelity, scaled",
        "squared error as a forecast of drops",
        "lower",
        "headline",
    ),
    Measure(
        "infidelity",
        "infidelity, not scaled",
        "the same for maps in the logit's unit",
        "lower",
        "headline",
    ),
    Measure(
        "probability",
        "probability",
        "of the class predicted for the whole input",
        "neither",
        "curve",
        SHARE,
        "compare",
    ),
    ACCURACY,
    Measure(
        "logit",
        "logit",
        "of the class predicted for the whole input",
        "neither",
        "curve",
        chance="compare",
    ),
    Measure(
        "margin",
        "margin",
        "of that class over the next",
        "neither",
        "curve",
        chance="compare",
    ),
    Measure(
        "detectability",
        "detectability",
        "ROC area: filled inputs told from real ones",
        "neither",
        "diagnostic",
        SHARE,
    ),
)
"""The measures of the axis; the first headline among the requested metrics ranks the methods."""


def spans_of_curves(
    settings: Mapping[str, Any], measured: Collection[str]
) -> dict[str, tuple[float, float]]:
    """Return the ends of metrics of curves of probabilities or of accuracy; those of logits and margins have none.

    >>> spans_of_curves({"readout": "accuracy"}, ["road", "probability"])["road"]
    (-0.5, 0.5)
    """
    is_share = settings.get("readout") in (None, "probability", "accuracy")
    if not is_share or "probability" not in measured:
        return {}
    return {"road": (-0.5, 0.5), "aopc": (-1.0, 1.0)}


NEEDS: dict[str, tuple[Order, ...]] = {
    "road": ("morf", "lerf"),
    "deletion_auc": ("morf",),
    "insertion_auc": ("lerf",),
    "pixel_flipping": ("morf",),
    "aopc": ("morf",),
    "road_morf_accuracy": ("morf",),
    "irof": (),
    "infidelity": (),
    "sensitivity_n": (),
    "faithfulness_correlation": (),
}
"""Every metric and the orders that it is read from; the last four have sweeps or masks of their own."""
OF_PROBABILITY = ("deletion_auc", "insertion_auc", "irof")
"""Metrics that are read from the probability, whatever the readout is."""
PER_CURVE = ("road", "deletion_auc", "insertion_auc", "pixel_flipping", "aopc")
"""Metrics that say a whole curve in one number."""

ALL_IMPUTERS = IMPUTERS | CONTEXTUAL
IMAGE = (3, 2, 2)
"""The shape of an image, whatever its size."""

Share = Annotated[float, Field(gt=0, lt=1)]
Rising = Annotated[tuple[float, ...], AfterValidator(sweeps.check_fractions)]


def _or_none(resolve: Callable[..., Any]) -> Callable[[Any], Any]:
    """Return a validator that resolves names of imputers and leaves None for `configured_for` to fill in."""

    def validate(value: Any) -> Any:
        return None if value is None else resolve(value, ALL_IMPUTERS)

    return validate


@parameter_class
class Faithfulness(Evaluation):
    """Remove pixels in the order of a map, put something in their place, and see what becomes of the prediction.

    In series (C, T) time steps are removed, in tables (F,) columns, in texts the tokens that `features` names.
    `configured_for` fills in what is None: `imputers`, `segments` and `baseline` by the kind of data (see
    `kinds.defaults`); as `readout` the probability of the class, or the explained number of a task without
    probabilities; and `against`.

    For every imputer, order of the map and fraction removed there is one row per sample of:

    `accuracy`            1 while the top class is the label; with against="prediction", and where there are no labels,
                          while it is the class predicted for the whole image
    `probability`, `logit`, `margin`   of the class predicted for the whole image
    `road_morf_accuracy`  the accuracy after MoRF, which the ROAD paper reports (per imputer and fraction)

    Per imputer, `road`, `deletion_auc`, `insertion_auc`, `pixel_flipping` and `aopc` say a curve in one number. With
    `baseline` in place of removed `segments` there is `irof`, and from one bank of random masks `infidelity`,
    `sensitivity_n` and `faithfulness_correlation`. If "random" is among the `orders`, the same number for a random
    order of removal is the `chance` of each row. See `curves`, `mask_bank` and, for `detectability`, `realism`.

    >>> Faithfulness(imputers="zero", fractions=(0.5,), orders=("morf", "lerf"), metrics=("road",)).conditions()
    [('zero morf', 0.5), ('zero lerf', 0.5), ('zero', 0.0)]
    """

    name: ClassVar[str] = "faithfulness"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = False

    imputers: Annotated[Any, BeforeValidator(_or_none(resolve_imputers))] = None
    fractions: Rising = (0.1, 0.2, 0.3, 0.4, 0.5, 0.7, 0.9)
    orders: tuple[Order, ...] = sweeps.ORDERS
    features: GroupingField = Pixels()
    absolute: bool = False
    against: Literal["prediction", "label"] | None = None
    readout: Readout | None = None
    metrics: Literal["all"] | tuple[str, ...] = "all"
    segments: GroupingField | None = None
    baseline: Annotated[Any, BeforeValidator(_or_none(resolve_imputer))] = None
    subsets: tuple[Share, ...] = (0.1, 0.5)
    masks: Annotated[int, Field(ge=2, validate_default=True)] = 64
    data: DataNames = None

    @field_validator("orders", "subsets", "metrics")
    @classmethod
    def _check_different(cls, value: Any) -> Any:
        if len(set(value)) != len(value) and value != "all":
            raise ValueError(f"must not name anything twice, got {list(value)}")
        return value

    @field_validator("metrics", mode="before")
    @classmethod
    def _check_names(cls, value: Any) -> Any:
        """Refuse unknown metrics; a single name stands for a list of one."""
        metrics = [value] if isinstance(value, str) and value != "all" else value
        if isinstance(metrics, list | tuple):
            for metric in metrics:
                if not isinstance(metric, str) or metric not in NEEDS:
                    raise unknown("metric", metric, NEEDS)
        return metrics

    @field_validator("metrics")
    @classmethod
    def _check_orders(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse metrics whose order of removal is not among the orders, and an evaluation that measures nothing."""
        orders = info.data.get("orders", sweeps.ORDERS)
        for metric in () if value == "all" else value:
            for order in NEEDS[metric]:
                if order not in orders:
                    raise ValueError(
                        f"{metric} needs the order {order!r}, but orders is {list(orders)}"
                    )
        if not orders and not value:
            raise ValueError("without orders there must be metrics such as irof")
        return value

    @field_validator("masks")
    @classmethod
    def _check_masks(cls, value: int, info: ValidationInfo) -> int:
        """Refuse fewer than two masks of each size: they would have no correlation."""
        sizes = len(info.data.get("subsets", (0,)))
        if not sizes or value < 2 * sizes:
            raise ValueError(
                f"{sizes} sizes in subsets need at least {max(2, 2 * sizes)} masks, got {value}"
            )
        return value

    def configured_for(self, model: Model, batch: Batch) -> Self:
        """Return a copy with what is None filled in; raise `UserError` for data of which nothing can be removed."""
        kind = kind_of(model, batch)
        shape = batch.x.shape[1:]
        with_features: Self = with_default_features(self, kind, shape, batch)
        check_removable(kind, with_features.features)
        configured = with_features._with_readout(model.task)._with_defaults(shape)
        configured = configured._with_fitting_fractions(shape)
        if configured.against is None:
            has_labels = batch.label is not None and bool((batch.label >= 0).any())
            by_label = model.task.exclusive and has_labels
            configured = replace(configured, against="label" if by_label else "prediction")
        configured._check(shape)
        return configured

    def with_background(self, mean: Tensor, of: str, chosen: bool) -> Self:
        """Return a copy whose `reference_mean` is the mean of a background of rows of a table (F,).

        So is the `own_baseline` of methods without a baseline where the study has chosen the background. Otherwise it stays
        zero, which is the baseline that input × gradient implies.
        """
        if mean.ndim != 1:
            return self
        means = tuple(mean.tolist())

        def filling(imputer: Any) -> Any:
            if isinstance(imputer, ReferenceMean):
                return replace(imputer, mean=means, of=of)
            if isinstance(imputer, OwnBaseline) and chosen:
                return replace(imputer, mean=means)
            return imputer

        imputers = tuple(filling(imputer) for imputer in self.imputers)
        return replace(self, imputers=imputers, baseline=filling(self.baseline))

    def notes(self, model: Model) -> list[str]:
        """Return which metrics a task without probabilities leaves out."""
        if has_probability(model.task):
            return []
        return [
            f"{', '.join(OF_PROBABILITY)} are of a probability, and {model.task.name} has none: faithfulness leaves "
            "them out"
        ]

    def measured(self) -> tuple[str, ...]:
        """Return the requested metrics, and the curve of the readout, which has the scale of those that have none."""
        return (*self.wanted, *(("probability",) if self.readout != "logit" else ()))

    def _with_readout(self, task: Task) -> Self:
        """Return a copy with a readout and metrics that the task has; refuse others if the user asked for them."""
        if not task.exclusive and (self.against == "label" or self.readout == "margin"):
            setting = "against: label" if self.against == "label" else "readout: margin"
            raise UserError(f"{setting} is for classes, and {task.name} has none")
        if has_probability(task):
            return replace(self, readout="probability") if self.readout is None else self
        requested = () if self.metrics == "all" else self.metrics
        impossible = [metric for metric in requested if metric in OF_PROBABILITY]
        if self.readout == "probability":
            impossible.append("readout")
        possible = tuple(metric for metric in self.wanted if metric not in OF_PROBABILITY)
        if impossible:
            suggestion = (
                f"faithfulness: {{readout: logit, metrics: [{', '.join(possible) or 'road'}]}}"
            )
            raise UserError(
                f"{impossible[0]} is of a probability, and {task.name} has none; what all models have is {suggestion}"
            )
        return replace(self, readout=self.readout or "logit", metrics=possible)

    def _with_defaults(self, shape: Sequence[int]) -> Self:
        """Return a copy with imputers, segments and baseline that are None chosen for samples of this shape."""
        usual = defaults(kind_of_features(shape, self.features), shape, self.features)
        missing = {name: value for name, value in usual.items() if getattr(self, name) is None}
        return replace(self, **missing) if missing else self

    def _with_fitting_fractions(self, shape: Sequence[int]) -> Self:
        """Return the axis without those default fractions that leave imputers nothing to fill in from."""
        default = next(field.default for field in fields(self) if field.name == "fractions")
        total = self.features.total((1, *shape))
        if self.fractions != default or total is None or not any(map(needs_kept, self.imputers)):
            return self
        sizes = sweeps.removal_sizes(self.fractions, torch.tensor([total]))[0].tolist()
        pairs = zip(self.fractions, sizes, strict=True)
        fitting = tuple(fraction for fraction, size in pairs if size < total)
        return self if fitting in ((), default) else replace(self, fractions=fitting)

    @property
    def wanted(self) -> tuple[str, ...]:
        """The requested metrics; "all" are those that the orders allow."""
        if self.metrics != "all":
            return self.metrics
        return tuple(metric for metric, orders in NEEDS.items() if set(orders) <= set(self.orders))

    def conditions(self) -> list[Condition]:
        """Return (imputer and order, fraction) of the curves, and of other numbers (imputer, 0) or (imputer, share).

        The random order has rows of `detectability` alone. Where imputers are None, they are those for images.
        """
        configured = self._with_defaults(IMAGE)
        baseline = label_of(configured.baseline)
        imputers = [label_of(imputer) for imputer in configured.imputers]
        conditions: list[Condition] = []
        for imputer in imputers:
            for order in self.orders:
                conditions += [(f"{imputer} {order}", fraction) for fraction in self.fractions]
        for imputer in imputers:
            if set(PER_CURVE) & set(self.wanted):
                conditions.append((imputer, 0.0))
            if "road_morf_accuracy" in self.wanted:
                conditions += [(imputer, fraction) for fraction in self.fractions]
        if {"irof", "infidelity", "faithfulness_correlation"} & set(self.wanted):
            conditions.append((baseline, 0.0))
        if "sensitivity_n" in self.wanted:
            conditions += [(baseline, size) for size in self.subsets]
        # A baseline may be an imputer too.
        return list(dict.fromkeys(conditions))

    def _check(self, shape: Sequence[int]) -> None:
        """Refuse features, segments, imputers and fractions that do not fit samples of this shape."""
        if any(isinstance(imputer, OwnBaseline) for imputer in self.imputers):
            raise UserError(
                "own_baseline differs from explainer to explainer, so it is a baseline, not an imputer"
            )
        self.features.check((1, *shape))
        if {"irof", *BANKED} & set(self.wanted):
            assert self.segments is not None  # filled in by `_with_defaults`
            self.segments.check((1, *shape))
        self._check_imputers(shape)
        if not isinstance(self.features, Tokens):
            self._check_something_is_kept(shape)
        elif not isinstance(self.segments, Tokens):
            raise UserError(
                f"segments of texts are tokens, got {label_of(self.segments)}; leave segments out"
            )

    def _check_imputers(self, shape: Sequence[int]) -> None:
        """Refuse imputers that cannot replace parts of such data; each is tried once."""
        kind = kind_of_features(shape, self.features)
        is_text = isinstance(self.features, Tokens)
        for imputer in (*self.imputers, self.baseline):
            if isinstance(imputer, Hidden) != is_text:
                raise UserError(
                    f"{label_of(imputer)} cannot take the place of {kind.parts}; {kind.other_imputers}"
                )
            if not is_text and not isinstance(imputer, OwnBaseline):
                sweeps.try_imputer(imputer, shape)

    def _check_something_is_kept(self, shape: Sequence[int]) -> None:
        """Refuse to remove all features where an imputer fills in from what is kept."""
        total = self.features.total((1, *shape))
        if total is None or not self.orders:
            return
        most = int(sweeps.removal_sizes(self.fractions, torch.tensor([total]))[0, -1])
        for imputer in self.imputers:
            if most == total and needs_kept(imputer):
                raise UserError(
                    f"fraction {self.fractions[-1]:g} removes all {total} features, but {label_of(imputer)} fills in "
                    "from what is kept; leave that fraction out"
                )

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield curves, summaries and pictures, explainer by explainer."""
        yield from removal_scores(self, subject)

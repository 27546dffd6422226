"""Soft stability: how often does the prediction survive when features are added to the explanation?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import torch
from pydantic import AfterValidator, Field, ValidationInfo
from torch import Tensor

from heatproof.axes.certificate.agreement import Agreement
from heatproof.axes.certificate.certify import Mode, certify
from heatproof.axes.certificate.chance import SharedChance, random_set_rates
from heatproof.axes.certificate.explanations import (
    MASKED_NOT_FINITE,
    OTHERWISE,
    Explanations,
    joined,
)
from heatproof.axes.certificate.flips import bounds_by_search
from heatproof.axes.certificate.gallery import flip_gallery
from heatproof.axes.certificate.sequential import OPEN, YES, Method, estimate_rule
from heatproof.axes.certificate.strata import Added
from heatproof.errors import UserError
from heatproof.evaluation import Condition, DataNames, Evaluation, GalleryImage, Measure, Scores
from heatproof.features import (
    GroupingField,
    Patches,
    count,
    fixed,
    with_default_features,
)
from heatproof.features.fill import Fill
from heatproof.kinds import kind_of
from heatproof.maps.masks import select
from heatproof.maps.undefined import NOT_FINITE, reasons
from heatproof.models import Model
from heatproof.subject import Subject
from heatproof.types import Batch, parameter_class

SHARE = (0.0, 1.0)
MEASURES = (
    Measure(
        "rate",
        "stability rate",
        "share of supersets that keep the prediction; chance: random features",
        "higher",
        "headline",
        SHARE,
        chance="calibrate",
    ),
    Measure(
        "stable",
        "stable",
        "mode decide: whether the rate is at least the threshold",
        "higher",
        "headline",
        SHARE,
        rate=True,
    ),
    Measure(
        "unflipped",
        "unflipped",
        "mode hard: no draw flipped it: rate ≥ 1 − ε",
        "higher",
        "headline",
        SHARE,
        rate=True,
    ),
    Measure(
        "certified",
        "certified rate",
        "the guaranteed lower bound of the rate",
        "higher",
        "component",
        SHARE,
    ),
    Measure(
        "lowest_rate",
        "lowest rate",
        "the smallest rate of exactly k added features, for k up to r",
        "higher",
        "component",
        SHARE,
    ),
    Measure(
        "withstands_search",
        "withstands search",
        "whether a search found no flip with up to r added features",
        "higher",
        "component",
        SHARE,
        rate=True,
    ),
    Measure(
        "hard_radius_high",
        "hard radius at most",
        "one less than the number of added features of the smallest flip that a search found",
        "higher",
        "component",
    ),
    Measure(
        "early", "first draws", "share of the first draws that agree", "neither", "component", SHARE
    ),
    Measure("early_draws", "number of first draws", "0 where the rate is exact", "neither", "cost"),
    Measure(
        "sufficient",
        "sufficient",
        "predicted like the whole input",
        "neither",
        "component",
        SHARE,
        rate=True,
    ),
    Measure("passes", "passes", "model passes that it cost", "neither", "cost"),
)
"""The measures of the axis; the first of them that a mode yields is its headline."""

RADIUS = "radius"
USUAL_THRESHOLD = 0.9
MOST_CHANCE_DRAWS = 64
"""Enough: 64 draws leave an error of at most 0.06 per sample, where rates differ by 0.2 to 0.3 between samples."""
NO_CLASSES = "only predicted classes are compared with the whole input"
_CERTIFY_SETTINGS = (
    "added",
    "features",
    "delta",
    "epsilon",
    "method",
    "mode",
    "threshold",
    "simultaneous",
    "agreement",
)
Anchor = Literal["explanation", "full"]
"""Whose prediction is to stay: that on the explanation alone, or that on the whole input."""


def condition_title(condition: str, level: float) -> str:
    """Return a condition with its radius r in words.

    At r = 0 no feature is added, so the level stands for the explanation alone: whether it is predicted like the input.

    >>> condition_title("radius", 5.0), condition_title("λ=0.25", 3.0), condition_title("fraction=0.5", 0.0)
    ('radius 5', 'λ = 0.25, radius 3', 'fraction = 0.5, explanation alone')
    """
    radius = f"radius {level:g}" if level else "explanation alone"
    if condition == RADIUS:
        return radius
    return f"{condition.replace('=', ' = ')}, {radius}"


def _check_different(values: Any, info: ValidationInfo) -> Any:
    """Refuse an empty tuple and one with a value twice: each value is a condition of its own."""
    if isinstance(values, tuple) and (not values or len(set(values)) != len(values)):
        raise ValueError(f"{info.field_name} must be different and at least one, got {values}")
    return values


def _check_anchor(anchor: Anchor, info: ValidationInfo) -> Anchor:
    """Refuse a margin around the prediction on the whole input: only classes are compared with it."""
    if anchor == "full" and info.data.get("agreement") == "margin":
        raise ValueError(
            "anchor 'full' is for agreement 'argmax'; a margin compares with the explanation alone"
        )
    return anchor


def _check_mode(mode: Mode, info: ValidationInfo) -> Mode:
    """Refuse a method beside a mode that has a rule of its own."""
    if mode != "estimate" and info.data.get("method", "clopper-pearson") != "clopper-pearson":
        raise ValueError(f"{mode!r} has its own exact rule; method is for mode 'estimate'")
    return mode


def _check_threshold(threshold: float, info: ValidationInfo) -> float:
    """Refuse a threshold where nothing is decided."""
    if threshold != USUAL_THRESHOLD and info.data.get("mode", "decide") != "decide":
        raise ValueError("a threshold is for mode 'decide'")
    return threshold


def _check_search(search: int, info: ValidationInfo) -> int:
    """Refuse a search for changes of the class where a margin around probabilities counts."""
    if search and info.data.get("agreement") == "margin":
        raise ValueError("search looks for another class; it is for agreement 'argmax'")
    return search


def _check_chance_draws(draws: int | None, info: ValidationInfo) -> int | None:
    """Refuse draws for a chance level where no rate is estimated."""
    if draws and info.data.get("mode", "estimate") != "estimate":
        raise ValueError("chance_draws is for mode 'estimate', whose rate has a chance level")
    return draws


Share = Annotated[float, Field(gt=0, lt=1)]
Radii = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...] | Literal["all"], AfterValidator(_check_different)
]
Fractions = Annotated[Share | tuple[Share, ...], AfterValidator(_check_different)]
AnchorField = Annotated[Anchor, AfterValidator(_check_anchor)]
ModeField = Annotated[Mode, AfterValidator(_check_mode)]
Threshold = Annotated[Share, AfterValidator(_check_threshold)]
Search = Annotated[Annotated[int, Field(ge=0)], AfterValidator(_check_search)]
ChanceDraws = Annotated[Annotated[int, Field(ge=0)] | None, AfterValidator(_check_chance_draws)]


class Certified(NamedTuple):
    """The certificates of S explanations at R radii, (S, R) float64 each; see `certify.Certificates`.

    `same_class` says whether the explanation alone is predicted like the whole input.
    """

    rate: Tensor
    low: Tensor
    high: Tensor
    decision: Tensor
    passes: Tensor
    early: Tensor
    early_draws: Tensor
    same_class: Tensor


@parameter_class
class Certificate(Evaluation):
    """Keep the `fraction` of features that a map calls most important, add up to r others, and see what is predicted.

    Every radius r has these rows for each sample:

    `certified`   the guaranteed lower bound of the share τ_r of supersets on which the prediction stays; it fails with
                  probability at most `delta`
    `passes`      the model passes that it cost
    `rate`        mode "estimate": τ_r to ± `epsilon`, with bounds `low` and `high`; its chance level is the mean rate
                  of random feature sets of the same size, from `chance_draws` draws, 0 for none
    `stable`      mode "decide": 1 where τ_r ≥ `threshold` is shown, 0 where it is refuted, status open where neither is
    `lowest_rate` mode "estimate" with `added` "exactly": the smallest of these rates for the radii up to r
    `unflipped`   mode "hard": 0 where a superset flipped the prediction, 1 where none did among as many draws as
                  certify τ_r ≥ 1 − `epsilon`. That is less than hard stability, τ_r = 1, unless all supersets were tried

    At level 0 `sufficient` says whether the explanation alone is predicted like the whole input. What must stay is the
    prediction on the explanation alone, or with `anchor` "full" that on the whole input. Radii "all" are 1, 2, … up to
    all features; with `added` "exactly", τ_r becomes τ_{=r}, over the supersets with exactly r more features. Several
    fractions make a sweep, with a condition each. Samples in the gallery come with a flip, if one is found. Features that
    are left out become `fill`, by default zero or, of a table, the mean of the study's background where it has one.

    `search` passes per sample look for a flip. What they find is a counterexample and bounds stability from above:
    `withstands_search` is 0 from the radius of the flip on, and `hard_radius_high`, at level 0, is one less than it, or as
    many features as there are to add where no flip was found. See `heatproof.certify` for the other parameters.

    >>> Certificate(radii=(1, 3)).conditions()
    [('radius', 0.0), ('radius', 1.0), ('radius', 3.0)]
    """

    name: ClassVar[str] = "certificate"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = False

    radii: Radii = (1, 5, 10)
    features: GroupingField = Patches()
    fraction: Fractions = 0.25
    delta: Share = 0.1
    epsilon: Share = 0.1
    method: Method = "clopper-pearson"
    mode: ModeField = "estimate"
    threshold: Threshold = USUAL_THRESHOLD
    simultaneous: bool = False
    agreement: Agreement = "argmax"
    fill: Fill | None = None
    anchor: AnchorField = "explanation"
    added: Added = "at most"
    search: Search = 0
    chance_draws: ChanceDraws = None
    data: DataNames = None

    @property
    def draws_for_chance(self) -> int:
        """How many random sets a chance level is measured with; by default as many as a rate may take, at most 64."""
        if self.mode != "estimate":
            return 0
        if self.chance_draws is not None:
            return self.chance_draws
        rule = estimate_rule(self.epsilon, self.delta, self.method)
        return min(rule.looks[-1], MOST_CHANCE_DRAWS)

    @property
    def fill_or_zero(self) -> Fill:
        """What takes the place of features that are left out; zero where nothing was chosen."""
        return "zero" if self.fill is None else self.fill

    def with_background(self, mean: Tensor, of: str, chosen: bool) -> Self:
        """Return a copy that fills in the mean of a background of rows of a table (F,), unless a fill was chosen."""
        if self.fill is not None or mean.ndim != 1:
            return self
        return replace(self, fill=tuple(mean.tolist()))

    @property
    def fractions(self) -> dict[str, float]:
        """The fractions by the name of their condition."""
        if isinstance(self.fraction, float):
            return {RADIUS: self.fraction}
        return {f"fraction={fraction:g}": fraction for fraction in self.fraction}

    def conditions(self) -> list[Condition]:
        """Return ("radius", r) for every radius, 0 included; with several fractions, a condition for each of them."""
        conditions = []
        for condition in self.fractions:
            conditions += [(condition, float(r)) for r in (0, *listed(self.radii))]
        return conditions

    def configured_for(self, model: Model, batch: Batch) -> Self:
        """Return a copy with the features of this kind of data and all radii listed; raise `UserError` if undefined.

        What only classes have is refused without them.
        """
        if (self.agreement == "margin" or self.anchor == "full") and not model.task.exclusive:
            setting = "agreement: margin" if self.agreement == "margin" else "anchor: full"
            raise UserError(
                f"{setting} compares classes, and {model.task.name} has none that exclude each other"
            )
        if self.search and not model.task.exclusive:
            raise UserError(f"search looks for another class, and {model.task.name} has no classes")
        shape = batch.x.shape[1:]
        with_features: Self = with_default_features(self, kind_of(model, batch), shape, batch)
        configured = with_features._with_radii(batch)
        configured._check(shape)
        return configured

    def _with_radii(self, batch: Batch) -> Self:
        """Return a copy with all radii listed, where they are "all"."""
        if self.radii != "all":
            return self
        n = self.features.total(tuple(batch.x.shape))
        if n is None:
            raise UserError(
                "radii 'all' need the same number of features in every sample; list the radii"
            )
        fewest_kept = min(self._selected(n, fraction) for fraction in self.fractions.values())
        return replace(self, radii=tuple(range(1, n - fewest_kept + 1)))

    def _check(self, shape: Sequence[int]) -> None:
        """Refuse samples that the features, the fraction or the fill do not fit; `shape` is that of a sample."""
        self.features.check((1, *shape))
        n = self.features.total((1, *shape))
        largest = max(self.fractions.values())
        if n is not None and self._selected(n, largest) >= n:
            raise UserError(
                f"fraction {largest} selects all {n} features of a sample, so none can be added; lower it"
            )
        if self.fill == "blur" and len(shape) not in (2, 3, 4):
            raise UserError(
                f"fill 'blur' is for images, volumes and series, got samples of shape {tuple(shape)}"
            )

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield the columns of every explainer and fraction, and the pictures of flips.

        As many explainers as a batch has room for are certified together: after the first look of the stopping rule,
        few samples are left, and batches of the model would be almost empty.
        """
        names = list(subject.explainers)
        together = max(1, subject.model.rows // max(1, len(subject.batch)))
        random_sets = self.shared_chance(subject, subject.model, subject.target)
        for start in range(0, len(names), together):
            requests = list(product(names[start : start + together], self.fractions.items()))
            explanations = [
                self.explanations(subject, name, fraction) for name, (_, fraction) in requests
            ]
            results = self.certified(subject, subject.model, explanations, subject.target)
            # Flips are shown for the first fraction.
            gallery = flip_gallery(
                subject, explanations[:: len(self.fractions)], self.features, self.fill_or_zero
            )
            for request, chosen, result in zip(requests, explanations, results, strict=True):
                name, (condition, fraction) = request
                chance = random_sets.rates(chosen) if random_sets else None
                columns = [
                    *self.columns(subject.model, chosen, result, condition, chance),
                    *self.searched(subject, subject.model, chosen, subject.target, condition),
                ]
                for column in columns:
                    yield column if condition == RADIUS else replace(column, share=fraction)
                yield from gallery.pop(name, ())

    def explanations(self, subject: Subject, explainer: str, fraction: float) -> Explanations:
        """Return the features that the maps of an explainer select; samples without a usable map have a reason."""
        maps = subject.maps(explainer)
        of_prediction = [
            "" if finite else NOT_FINITE for finite in torch.isfinite(subject.readout).tolist()
        ]
        of_map = reasons(maps, "the map")
        of_size = self._too_few_features(subject.batch, fraction)
        reason = tuple(
            prediction or map_ or size
            for prediction, map_, size in zip(of_prediction, of_map, of_size, strict=True)
        )
        rows = torch.tensor([i for i, text in enumerate(reason) if not text], dtype=torch.int64)
        batch = subject.batch[rows]
        if not len(rows):
            return Explanations(explainer, reason, rows, batch, torch.zeros(0, 0).bool())
        maps = maps[rows.to(maps.device)]
        mask = select(maps, batch, self.features, fraction=fraction, seed=subject.seed)
        return Explanations(explainer, reason, rows, batch, mask)

    def _selected(self, n: int, fraction: float) -> int:
        """Return how many of n features a fraction selects."""
        return max(1, int(fraction * n + 0.5))

    def _too_few_features(self, batch: Batch, fraction: float) -> list[str]:
        """Return why each sample has no feature that could be added to its explanation, "" where it has one."""
        counts = count(self.features.segments(batch)).cpu()
        always_kept = fixed(self.features, batch)
        if always_kept is not None:
            counts = counts - always_kept.sum(1).cpu()
        return [
            "" if n > self._selected(n, fraction) else f"with {n} features none is left to be added"
            for n in counts.tolist()
        ]

    def certified(
        self,
        subject: Subject,
        model: Model,
        chosen: Sequence[Explanations],
        predicted: Tensor,
        passes_each: int = 1,
    ) -> Sequence[Certified]:
        """Return the certificates of every explanation, one `Certified` for each of `chosen`.

        `predicted` (B,) is the prediction on the whole inputs of the shard. `passes_each` are the passes of the network
        that one input of the model costs: the masks of a smoothed model.
        """
        radii = listed(self.radii)
        settings: dict[str, Any] = {name: getattr(self, name) for name in _CERTIFY_SETTINGS}
        settings["fill"] = self.fill_or_zero

        def certify_batch(batch: Batch, mask_and_class: Tensor) -> Tensor:
            """Return the certificates (S, R, 8) of some explanations, with the class in the last column of their masks."""
            mask, full = mask_and_class[:, :-1].bool(), mask_and_class[:, -1]
            target = full if self.anchor == "full" else None
            result = certify(
                model, batch, mask, radii=radii, target=target, seed=subject.seed, **settings
            )
            same_class = (result.target == full.cpu())[:, None].expand_as(result.rate)
            columns = Certified(
                rate=result.rate,
                low=result.low,
                high=result.high,
                decision=result.decision,
                passes=passes_each * result.passes,
                early=result.early,
                early_draws=result.early_draws,
                same_class=same_class,
            )
            return torch.stack([column.double() for column in columns], 2)

        together = joined(subject.batch, chosen)
        results = torch.zeros(0, len(radii), len(Certified._fields))
        if len(together.rows):
            results = subject.compute(certify_batch, together.batch, together.with_class(predicted))
        per_explanation = torch.split(results, [len(explanations.rows) for explanations in chosen])
        return [Certified(*columns.unbind(2)) for columns in per_explanation]

    def shared_chance(
        self, subject: Subject, model: Model, predicted: Tensor
    ) -> SharedChance | None:
        """Return the chance levels that all explainers of a shard share, None if none are measured.

        `predicted` (B,) is the prediction on the whole inputs of the shard.
        """
        draws = self.draws_for_chance
        if not draws:
            return None
        radii = listed(self.radii)

        def measure(batch: Batch, kept: Tensor, full: Tensor) -> Tensor:
            """Return the rates (S, R) of random sets of `kept` (S,) features; `full` (S,) is the class of the whole input."""
            return random_set_rates(
                model,
                batch,
                kept,
                self.features,
                radii,
                draws,
                added=self.added,
                agreement=self.agreement,
                fill=self.fill_or_zero,
                target=full if self.anchor == "full" else None,
                seed=subject.seed,
            )

        return SharedChance(subject, predicted, len(radii), measure)

    def columns(
        self,
        model: Model,
        chosen: Explanations,
        result: Certified,
        condition: str = RADIUS,
        chance: Tensor | None = None,
    ) -> Iterator[Scores]:
        """Yield `sufficient`, then for every radius `certified`, costs, first draws and the measure of the mode.

        `chance` (S, R) are the rates of random sets.
        """
        yield self._sufficient(model, chosen, result, condition)
        for r, radius in enumerate(listed(self.radii)):
            at_radius = Certified(*(values[:, r] for values in result))
            where = (condition, float(radius))
            bounds = (at_radius.low, at_radius.high)
            yield chosen.column("certified", where, at_radius.low)
            yield chosen.column("passes", where, at_radius.passes)
            yield chosen.column("early", where, at_radius.early)
            yield chosen.column("early_draws", where, at_radius.early_draws)
            if self.mode == "estimate":
                of_random_sets = None if chance is None else chance[:, r]
                yield chosen.column(
                    "rate", where, at_radius.rate, bounds=bounds, chance=of_random_sets
                )
                if self.added == "exactly":
                    yield self._lowest_rate(chosen, result, where)
                continue
            measure = "stable" if self.mode == "decide" else "unflipped"
            is_yes = (at_radius.decision == YES).double()
            answer = torch.where(at_radius.decision == OPEN, torch.nan, is_yes)
            why_open = f"open: too near {self.threshold:g} for the draws allowed"
            yield chosen.decisions(measure, where, answer, bounds, why_open)

    def _lowest_rate(self, chosen: Explanations, result: Certified, where: Condition) -> Scores:
        """Return the smallest τ_{=k} of the radii k up to that of `where`, with its bounds.

        The lower bound is the smallest of the lower bounds, and it fails with probability `delta`, without a correction
        for the number of radii: where it fails, so does the bound of the radius with the smallest true rate, which is
        one fixed radius. An upper bound is the smallest of the upper bounds only if all of them hold at once.
        """
        radii = listed(self.radii)
        up_to_here = [r for r, radius in enumerate(radii) if radius <= where[1]]
        high = None
        if self.simultaneous:
            high = result.high[:, up_to_here].amin(1)
        bounds = (result.low[:, up_to_here].amin(1), high)
        lowest = result.rate[:, up_to_here].amin(1)
        return chosen.column("lowest_rate", where, lowest, bounds=bounds)

    def searched(
        self,
        subject: Subject,
        model: Model,
        chosen: Explanations,
        predicted: Tensor,
        condition: str = RADIUS,
    ) -> Iterator[Scores]:
        """Yield what a search for flips says of the hard radius and of every radius; nothing without a search.

        `predicted` (B,) is the prediction on the whole inputs of the shard.
        """
        if not self.search:
            return
        found = torch.zeros(0, 3, dtype=torch.float64)
        if len(chosen.rows):

            def search(batch: Batch, mask: Tensor) -> Tensor:
                return bounds_by_search(
                    model, batch, mask, self.features, self.fill_or_zero, subject.seed, self.search
                )

            found = subject.compute(search, chosen.batch, chosen.mask)
        class_before, bound, addable = found.unbind(1)
        missing = [MASKED_NOT_FINITE] * len(bound)
        if self.anchor == "full":
            # Something else is predicted before any feature is added, so there is no radius at all.
            differs = class_before != predicted.cpu()[chosen.rows]
            bound = bound.masked_fill(differs, torch.nan)
            missing = [OTHERWISE if other else MASKED_NOT_FINITE for other in differs.tolist()]
        yield chosen.column("hard_radius_high", (condition, 0.0), bound, missing)
        for radius in listed(self.radii):
            withstands = (bound >= addable.clamp(max=radius)).double()
            withstands = withstands.masked_fill(bound.isnan(), torch.nan)
            where = (condition, float(radius))
            yield chosen.column("withstands_search", where, withstands, missing)

    def _sufficient(
        self, model: Model, chosen: Explanations, result: Certified, condition: str
    ) -> Scores:
        """Return whether each explanation alone is predicted like the whole input; undefined without classes."""
        where = (condition, 0.0)
        if not model.task.exclusive:
            no_answer = torch.full_like(result.same_class[:, 0], torch.nan)
            return chosen.column("sufficient", where, no_answer, NO_CLASSES)
        not_finite = result.rate[:, 0].isnan()
        same_class = result.same_class[:, 0].masked_fill(not_finite, torch.nan)
        return chosen.column("sufficient", where, same_class, MASKED_NOT_FINITE)

    def notes(self, model: Model) -> list[str]:
        """Return what a task without classes leaves out."""
        if model.task.exclusive:
            return []
        return [
            "certificate leaves out whether an explanation is sufficient, and pictures of flips: "
            f"{model.task.name} has no classes"
        ]


def listed(radii: tuple[int, ...] | Literal["all"]) -> tuple[int, ...]:
    """Return the radii of an evaluation whose data are known; "all" must have become a list by then.

    >>> listed((1, 5))
    (1, 5)
    """
    if radii == "all":
        raise UserError(
            "radii 'all' are listed when the data are known: take `.configured_for(model, batch)`"
        )
    return radii

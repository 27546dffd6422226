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
    """Return the words for a condition of the certificate and its level, the radius r: how many features are added.

    At r = 0 no feature is added, so the level stands for the explanation alone: whether it is predicted like the input.
    Conditions other than "radius" are settings such as "fraction=0.5".

    >>> condition_title("radius", 5.0), condition_title("λ=0.25", 3.0), condition_title("fraction=0.5", 0.0)
    ('radius 5', 'λ = 0.25, radius 3', 'fraction = 0.5, explanation alone')
    """
    radius = f"radius {level:g}" if level else "explanation alone"
    if condition == RADIUS:
        return radius
    return f"{condition.replace('=', ' = ')}, {radius}"


def _check_different(values: Any, info: ValidationInfo) -> Any:
    """Return `values`; refuse an empty tuple and one that repeats a value, since each value is a condition of its own."""
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
        """Return a copy whose features and radii fit the model and the data; `batch` is an example of the data.

        Features that were left open become the default of this kind of data, and radii "all" become a list. Raise
        `UserError` for settings that compare classes where the task has none, and for samples of an unsuitable shape.
        """
        if not model.task.exclusive:
            self._refuse_settings_for_classes(model)
        shape = batch.x.shape[1:]
        with_features: Self = with_default_features(self, kind_of(model, batch), shape, batch)
        configured = with_features._with_radii(batch)
        configured._check(shape)
        return configured

    def _refuse_settings_for_classes(self, model: Model) -> None:
        """Refuse settings that need classes; for a model whose task has none that exclude each other."""
        setting = ""
        if self.agreement == "margin":
            setting = "agreement: margin"
        elif self.anchor == "full":
            setting = "anchor: full"
        if setting:
            raise UserError(
                f"{setting} compares classes, and {model.task.name} has none that exclude each other"
            )
        if self.search:
            raise UserError(f"search looks for another class, and {model.task.name} has no classes")

    def _with_radii(self, batch: Batch) -> Self:
        """Return a copy in which radii "all" are listed: 1, 2, … up to the number of features that can be added.

        That number is n minus the features that the smallest fraction keeps; samples must all have n features.
        """
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
        """Refuse settings that do not fit samples of this shape: the features, the fraction to keep, or the fill."""
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
        """Yield the certificates of a shard: columns of scores per explainer and fraction, and pictures of flips.

        `subject` holds the samples of the shard, the model and the explainers.

        As many explainers as a batch has room for are certified together: after the first look of the stopping rule,
        few samples are left, and batches of the model would be almost empty.
        """
        names = list(subject.explainers)
        explainers_at_once = max(1, subject.model.rows // max(1, len(subject.batch)))
        random_sets = self.shared_chance(subject, subject.model, subject.target)
        for start in range(0, len(names), explainers_at_once):
            some_names = names[start : start + explainers_at_once]
            requests = list(product(some_names, self.fractions.items()))
            explanations = []
            for name, (_, fraction) in requests:
                explanations.append(self.explanations(subject, name, fraction))
            results = self.certified(subject, subject.model, explanations, subject.target)

            # Pictures show flips for the first fraction alone, one explanation per explainer.
            of_first_fraction = explanations[:: len(self.fractions)]
            gallery = flip_gallery(subject, of_first_fraction, self.features, self.fill_or_zero)
            for request, chosen, result in zip(requests, explanations, results, strict=True):
                name, (condition, fraction) = request
                chance = random_sets.rates(chosen) if random_sets else None
                columns = [
                    *self.columns(subject.model, chosen, result, condition, chance),
                    *self.searched(subject, subject.model, chosen, subject.target, condition),
                ]
                for column in columns:
                    is_sweep = condition != RADIUS  # over several fractions
                    yield replace(column, share=fraction) if is_sweep else column
                yield from gallery.pop(name, ())

    def explanations(self, subject: Subject, explainer: str, fraction: float) -> Explanations:
        """Return the `fraction` of features with the largest attributions, for each sample of a shard.

        A sample has none, but a reason in words, if its prediction or its map is not finite, or if it has too few features.
        """
        maps = subject.maps(explainer)
        is_finite = torch.isfinite(subject.readout).tolist()  # of the explained output
        of_maps = reasons(maps, "the map")
        of_sizes = self._too_few_features(subject.batch, fraction)
        reason_list = []
        for finite, of_map, of_size in zip(is_finite, of_maps, of_sizes, strict=True):
            of_prediction = "" if finite else NOT_FINITE
            reason_list.append(of_prediction or of_map or of_size)
        reason = tuple(reason_list)
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
        """Return a message for each sample whose explanation has all its features, so that none can be added; "" else.

        An explanation has a `fraction` of the features, and at least one.
        """
        counts = count(self.features.segments(batch)).cpu()
        always_kept = fixed(self.features, batch)  # such as the special tokens of a text
        if always_kept is not None:
            counts = counts - always_kept.sum(1).cpu()
        messages = []
        for n in counts.tolist():
            can_add = n > self._selected(n, fraction)
            messages.append("" if can_add else f"with {n} features none is left to be added")
        return messages

    def certified(
        self,
        subject: Subject,
        model: Model,
        chosen: Sequence[Explanations],
        predicted: Tensor,
        passes_each: int = 1,
    ) -> Sequence[Certified]:
        """Return the certificates of several explainers' explanations of one shard, one `Certified` for each of `chosen`.

        `predicted` (B,) is the prediction on the whole inputs of the shard. `passes_each` are the passes of the network
        that one input of the model costs: the masks of a smoothed model.
        """
        radii = listed(self.radii)

        # `subject.compute` splits a shard into batches that fit into memory. It passes on one tensor beside the samples
        # and expects one, so the class is a further column of the masks, and the certificates are stacked.
        def certify_batch(batch: Batch, mask_and_class: Tensor) -> Tensor:
            """Return the certificates of some explanations, (S, R, 8) with the fields of `Certified` last."""
            mask, class_of_input = mask_and_class[:, :-1].bool(), mask_and_class[:, -1]
            certificates = self._certificates(
                model, batch, mask, class_of_input, subject.seed, passes_each
            )
            return torch.stack([values.double() for values in certificates], 2)

        together = joined(subject.batch, chosen)
        results = torch.zeros(0, len(radii), len(Certified._fields))
        if len(together.rows):
            results = subject.compute(certify_batch, together.batch, together.with_class(predicted))
        per_explanation = torch.split(results, [len(explanations.rows) for explanations in chosen])
        return [Certified(*columns.unbind(2)) for columns in per_explanation]

    def _certificates(
        self,
        model: Model,
        batch: Batch,
        mask: Tensor,
        class_of_input: Tensor,
        seed: int,
        passes_each: int,
    ) -> Certified:
        """Return how often the prediction stays when features are added to the explanations `mask` (S, n), by radius.

        `class_of_input` (S,) is the class predicted on the whole input; with `anchor` "full" it is the one that must stay.
        `passes_each` are the passes of the network that one input of the model costs.
        """
        settings: dict[str, Any] = {name: getattr(self, name) for name in _CERTIFY_SETTINGS}
        result = certify(
            model,
            batch,
            mask,
            radii=listed(self.radii),
            target=class_of_input if self.anchor == "full" else None,
            fill=self.fill_or_zero,
            seed=seed,
            **settings,
        )
        same_class = result.target == class_of_input.cpu()
        return Certified(
            rate=result.rate,
            low=result.low,
            high=result.high,
            decision=result.decision,
            passes=passes_each * result.passes,
            early=result.early,
            early_draws=result.early_draws,
            same_class=same_class[:, None].expand_as(result.rate),
        )

    def shared_chance(
        self, subject: Subject, model: Model, predicted: Tensor
    ) -> SharedChance | None:
        """Return the chance levels of stability rates: those of random feature sets; None if none are measured.

        They are measured when first needed, and all explainers of a shard share them. `predicted` (B,) is the prediction
        on the whole inputs of the shard.
        """
        draws = self.draws_for_chance
        if not draws:
            return None
        radii = listed(self.radii)

        def measure(batch: Batch, kept: Tensor, class_of_input: Tensor) -> Tensor:
            """Return the rates (S, R) of random sets of `kept` (S,) features; the class (S,) is that of the whole input."""
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
                target=class_of_input if self.anchor == "full" else None,
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
        """Yield the scores of an explainer's certificates: whether its explanations are sufficient, then those by radius.

        For every radius these are the certified lower bound, the model passes, the first draws (from which means over
        samples are certified), and the headline of the mode: a rate, a decision, or whether no flip was found.
        `result` has the certificates of S explanations at R radii, `chance` (S, R) the rates of random feature sets.
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
        """Return the smallest stability rate of all radii up to that of the condition `where`, with bounds.

        `result` has the rates of S explanations at R radii; the rate at radius k is the share of the supersets with
        exactly k more features that keep the prediction. The lower bound is the smallest of the lower bounds. It fails
        with probability `delta`, without a correction for the number of radii: where it fails, so does the bound of the
        radius with the smallest true rate, which is one fixed radius. The smallest upper bound is one only if all of
        them hold at once (`simultaneous`).
        """
        _, largest_radius = where
        columns = [r for r, radius in enumerate(listed(self.radii)) if radius <= largest_radius]
        high = None
        if self.simultaneous:
            high = result.high[:, columns].amin(1)
        bounds = (result.low[:, columns].amin(1), high)
        lowest = result.rate[:, columns].amin(1)
        return chosen.column("lowest_rate", where, lowest, bounds=bounds)

    def searched(
        self,
        subject: Subject,
        model: Model,
        chosen: Explanations,
        predicted: Tensor,
        condition: str = RADIUS,
    ) -> Iterator[Scores]:
        """Yield the scores from a search for added features that flip the prediction; none if no search was requested.

        A flip with k added features is a counterexample: the hard radius, up to which no addition changes the
        prediction, is at most k − 1. `hard_radius_high` is that bound for each explanation of `chosen`. At each radius r,
        `withstands_search` is 1 if the search found no flip with up to r added features. `predicted` (B,) is the
        prediction on the whole inputs of the shard.
        """
        if not self.search:
            return

        def search(batch: Batch, mask: Tensor) -> Tensor:
            """Return for each explanation (S, 3): its class, the bound of its hard radius, and m, how many can be added."""
            return bounds_by_search(
                model, batch, mask, self.features, self.fill_or_zero, subject.seed, self.search
            )

        results = torch.zeros(0, 3, dtype=torch.float64)
        if len(chosen.rows):
            results = subject.compute(search, chosen.batch, chosen.mask)
        class_of_explanation, largest_radius, addable = results.unbind(1)
        missing = [MASKED_NOT_FINITE] * len(largest_radius)
        if self.anchor == "full":
            # Where the explanation alone is predicted unlike the whole input, there is no radius at all.
            differs = class_of_explanation != predicted.cpu()[chosen.rows]
            largest_radius = largest_radius.masked_fill(differs, torch.nan)
            missing = [OTHERWISE if other else MASKED_NOT_FINITE for other in differs.tolist()]
        yield chosen.column("hard_radius_high", (condition, 0.0), largest_radius, missing)

        for radius in listed(self.radii):
            # Radius r means all m features where a sample has fewer than r to add.
            radius_of_sample = addable.clamp(max=radius)
            withstands = (largest_radius >= radius_of_sample).double()
            withstands = withstands.masked_fill(largest_radius.isnan(), torch.nan)
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

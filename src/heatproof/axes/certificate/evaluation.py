"""Soft stability: how often does the prediction survive when features are added to the explanation?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import torch
from pydantic import AfterValidator, Field, ValidationInfo
from pydantic.dataclasses import dataclass
from torch import Tensor

from heatproof.axes.certificate.agreement import Agreement
from heatproof.axes.certificate.certify import Mode, certify
from heatproof.axes.certificate.chance import SharedChance, random_set_rates
from heatproof.axes.certificate.explanations import MASKED_NOT_FINITE, Explanations, joined
from heatproof.axes.certificate.flips import TRIALS, as_pictures, find_flips
from heatproof.axes.certificate.sequential import OPEN, YES, Method, estimate_rule
from heatproof.errors import UserError
from heatproof.evaluation import Condition, DataNames, Evaluation, GalleryImage, Measure, Scores
from heatproof.features import (
    GroupingField,
    Patches,
    count,
    fixed,
    spread,
    with_default_features,
)
from heatproof.features.fill import Fill
from heatproof.kinds import kind_of
from heatproof.maps.masks import select
from heatproof.maps.undefined import NOT_FINITE, reasons
from heatproof.models import Model
from heatproof.subject import Subject
from heatproof.types import STRICT, Batch

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
"""What is known of the measures of the axis; the first of them that the mode gives speaks for it."""

RADIUS = "radius"
INPUT, EXPLANATION, FLIP = "input", "explanation", "flip"
"""Conditions of the gallery: x, x ⊙ α, and x ⊙ β with as many added features as the level says, 0 where none flip."""
EXAMPLES = 2
"""How many samples of an explainer a flip is searched for; each costs up to `TRIALS` passes that no row counts."""
NO_FLIP = f"no flip found in at most {TRIALS} trials"
USUAL_THRESHOLD = 0.9
MOST_CHANCE_DRAWS = 64
"""Enough: 64 draws leave an error of at most 0.06 per sample, where rates differ by 0.2 to 0.3 between samples."""
NO_CLASSES = "only predicted classes are compared with the whole input"
_OF_CERTIFY = (
    "features",
    "delta",
    "epsilon",
    "method",
    "mode",
    "threshold",
    "simultaneous",
    "agreement",
    "fill",
)
Anchor = Literal["explanation", "full"]
"""Whose prediction is to stay: that on the explanation alone, or that on the whole input."""


def spoken(condition: str, level: float) -> str:
    """A condition with its radius in words.

    >>> spoken("radius", 5.0), spoken("λ=0.25", 3.0), spoken("fraction=0.5", 0.0)
    ('radius 5', 'λ = 0.25, radius 3', 'fraction = 0.5, explanation alone')
    """
    said = [] if condition == RADIUS else [condition.replace("=", " = ")]
    return ", ".join([*said, f"radius {level:g}" if level else "explanation alone"])


def _different(values: Any, info: ValidationInfo) -> Any:
    if isinstance(values, tuple) and (not values or len(set(values)) != len(values)):
        raise ValueError(f"{info.field_name} must be different and at least one, got {values}")
    return values


def _of_a_class(anchor: Anchor, info: ValidationInfo) -> Anchor:
    if anchor == "full" and info.data.get("agreement") == "margin":
        raise ValueError(
            "anchor 'full' is for agreement 'argmax'; a margin compares with the explanation alone"
        )
    return anchor


def _has_a_rule(mode: Mode, info: ValidationInfo) -> Mode:
    if mode != "estimate" and info.data.get("method", "clopper-pearson") != "clopper-pearson":
        raise ValueError(f"{mode!r} has its own exact rule; method is for mode 'estimate'")
    return mode


def _is_asked(threshold: float, info: ValidationInfo) -> float:
    if threshold != USUAL_THRESHOLD and info.data.get("mode", "decide") != "decide":
        raise ValueError("a threshold is for mode 'decide'")
    return threshold


def _only_for_rates(draws: int | None, info: ValidationInfo) -> int | None:
    if draws and info.data.get("mode", "estimate") != "estimate":
        raise ValueError("chance_draws is for mode 'estimate', whose rate has a chance level")
    return draws


Share = Annotated[float, Field(gt=0, lt=1)]
Radii = Annotated[
    tuple[Annotated[int, Field(ge=1)], ...] | Literal["all"], AfterValidator(_different)
]
Fractions = Annotated[Share | tuple[Share, ...], AfterValidator(_different)]
AnchorField = Annotated[Anchor, AfterValidator(_of_a_class)]
ModeField = Annotated[Mode, AfterValidator(_has_a_rule)]
Threshold = Annotated[Share, AfterValidator(_is_asked)]
ChanceDraws = Annotated[Annotated[int, Field(ge=0)] | None, AfterValidator(_only_for_rates)]


@dataclass(frozen=True, config=STRICT)
class Certificate(Evaluation):
    """Keep the `fraction` of features that a map calls most important, add up to r others, and see what is predicted.

    For every radius r, one row per sample of `certified`, the guaranteed lower bound of the share τ_r of supersets on
    which the prediction stays (it fails with probability at most `delta`); of `passes`, what it cost; and by `mode`
    "estimate": `rate`, τ_r to ± `epsilon`, with bounds `low` and `high`, beside the chance level: the mean rate of
    random feature sets of the same size, from `chance_draws` draws, 0 for none;
    "decide": `stable`, 1 where τ_r ≥ `threshold` is shown and 0 where it is refuted, with status open where neither is;
    "hard": `unflipped`, 0 where a superset flipped the prediction, 1 where none did among as many draws as certify
    τ_r ≥ 1 − `epsilon`. That is less than hard stability, τ_r = 1, unless all supersets were tried.
    See `heatproof.certify` for these and the other parameters; radii "all" are 1, 2, … up to all features. Several
    fractions make a sweep, with a condition each. At level 0 `sufficient` says whether the explanation alone is
    predicted like the whole input. What must stay is the prediction on the explanation alone, or with `anchor` "full"
    that on the whole input. Samples in the gallery come with a flip, where one is found.

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
    fill: Fill = "zero"
    anchor: AnchorField = "explanation"
    chance_draws: ChanceDraws = None
    data: DataNames = None

    @property
    def draws_for_chance(self) -> int:
        """How many random sets a chance level is measured with: as many as a rate may take, at most 64."""
        if self.mode != "estimate":
            return 0
        if self.chance_draws is not None:
            return self.chance_draws
        rule = estimate_rule(self.epsilon, self.delta, self.method)
        return min(rule.looks[-1], MOST_CHANCE_DRAWS)

    @property
    def fractions(self) -> dict[str, float]:
        """The condition of every fraction, and the fraction."""
        if isinstance(self.fraction, float):
            return {RADIUS: self.fraction}
        return {f"fraction={fraction:g}": fraction for fraction in self.fraction}

    def conditions(self) -> list[Condition]:
        """("radius", r) for every radius, 0 included; the fraction in place of "radius" where there are several."""
        return [
            (condition, float(r)) for condition in self.fractions for r in (0, *listed(self.radii))
        ]

    def configured_for(self, model: Model, batch: Batch) -> Self:
        """Return a copy with the features of this kind of data and all radii listed; raise `UserError` if undefined.

        What only classes have is refused without them.
        """
        if (self.agreement == "margin" or self.anchor == "full") and not model.task.exclusive:
            what = "agreement: margin" if self.agreement == "margin" else "anchor: full"
            raise UserError(
                f"{what} compares classes, and {model.task.name} has none that exclude each other"
            )
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
        most = n - min(map(partial(self._selected, n), self.fractions.values()))
        return replace(self, radii=tuple(range(1, most + 1)))

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
        """Columns of guaranteed bounds, what the mode asks for, and passes, explainer by explainer.

        As many explainers as a batch has room for are certified together: the later looks are at few samples.
        """
        names = list(subject.explainers)
        together = max(1, subject.model.rows // max(1, len(subject.batch)))
        random_sets = self.shared_chance(subject, subject.model, subject.target)
        for start in range(0, len(names), together):
            requests = [
                (name, condition, fraction)
                for name in names[start : start + together]
                for condition, fraction in self.fractions.items()
            ]
            explanations = [self.explanations(subject, name, f) for name, _, f in requests]
            results = self.certified(subject, subject.model, explanations, subject.target)
            gallery = self._gallery(subject, explanations[:: len(self.fractions)])
            for request, chosen, result in zip(requests, explanations, results, strict=True):
                name, condition, fraction = request
                chance = random_sets.rates(chosen) if random_sets else None
                for column in self.columns(subject.model, chosen, result, condition, chance):
                    yield column if condition == RADIUS else replace(column, share=fraction)
                yield from gallery.pop(name, ())

    def explanations(self, subject: Subject, explainer: str, fraction: float) -> Explanations:
        """The features that the maps of an explainer select; samples without a usable map say why."""
        maps = subject.maps(explainer)
        lost = ["" if ok else NOT_FINITE for ok in torch.isfinite(subject.readout).tolist()]
        why = zip(
            lost, reasons(maps, "the map"), self._too_few(subject.batch, fraction), strict=True
        )
        reason = tuple(a or b or c for a, b, c in why)
        rows = torch.tensor([i for i, text in enumerate(reason) if not text], dtype=torch.int64)
        batch, mask = subject.batch[rows], torch.zeros(0, 0, dtype=torch.bool)
        if len(rows):
            mask = select(
                maps[rows.to(maps.device)],
                batch,
                self.features,
                fraction=fraction,
                seed=subject.seed,
            )
        return Explanations(explainer, reason, rows, batch, mask)

    def _selected(self, n: int, fraction: float) -> int:
        return max(1, int(fraction * n + 0.5))

    def _too_few(self, batch: Batch, fraction: float) -> list[str]:
        """Why a sample has no feature that could be added to its explanation, empty where it has one."""
        n = count(self.features.segments(batch)).cpu()
        if (always := fixed(self.features, batch)) is not None:
            n = n - always.sum(1).cpu()
        return [
            ""
            if size > self._selected(size, fraction)
            else f"with {size} features none is left to be added"
            for size in n.tolist()
        ]

    def certified(
        self,
        subject: Subject,
        model: Model,
        chosen: Sequence[Explanations],
        whole: Tensor,
        passes_each: int = 1,
    ) -> Sequence[Tensor]:
        """What is known of every explanation, (S, radii, 8) for each of `chosen`; see `columns`.

        `whole` (B,) is the prediction on the whole inputs of the shard. `passes_each` are the passes of the network
        that one input of the model costs: the masks of a smoothed model.
        """
        radii = listed(self.radii)
        settings: dict[str, Any] = {name: getattr(self, name) for name in _OF_CERTIFY}

        def certify_part(part: Batch, extra: Tensor) -> Tensor:
            mask, full = extra[:, :-1].bool(), extra[:, -1]
            target = full if self.anchor == "full" else None
            result = certify(
                model, part, mask, radii=radii, target=target, seed=subject.seed, **settings
            )
            same = (result.target == full.cpu())[:, None].expand_as(result.rate)
            values = (
                result.rate,
                result.low,
                result.high,
                result.decision,
                passes_each * result.passes,
                result.early,
                result.early_draws,
                same,
            )
            return torch.stack([value.double() for value in values], 2)

        everyone = joined(subject.batch, chosen)
        results = torch.zeros(0, len(radii), 8)
        if len(everyone.rows):
            results = subject.compute(certify_part, everyone.batch, everyone.with_class(whole))
        return torch.split(results, [len(one.rows) for one in chosen])

    def shared_chance(self, subject: Subject, model: Model, whole: Tensor) -> SharedChance | None:
        """The chance levels that all explainers of a shard share; None where none are measured."""
        draws = self.draws_for_chance
        if not draws:
            return None
        radii = listed(self.radii)

        def measure(batch: Batch, kept: Tensor, full: Tensor) -> Tensor:
            return random_set_rates(
                model,
                batch,
                kept,
                self.features,
                radii,
                draws,
                agreement=self.agreement,
                fill=self.fill,
                target=full if self.anchor == "full" else None,
                seed=subject.seed,
            )

        return SharedChance(subject, whole, len(radii), measure)

    def columns(
        self,
        model: Model,
        chosen: Explanations,
        results: Tensor,
        condition: str = RADIUS,
        chance: Tensor | None = None,
    ) -> Iterator[Scores]:
        """`sufficient`, then `certified`, `passes`, first draws and the mode's own measure, radius by radius.

        `results` (S, radii, 8) are those of `certified`, `chance` (S, radii) the rates of random sets.
        """
        classes = model.task.exclusive
        same = results[:, 0, 7].masked_fill(results[:, 0, 0].isnan() | (not classes), torch.nan)
        yield chosen.column(
            "sufficient", (condition, 0.0), same, MASKED_NOT_FINITE if classes else NO_CLASSES
        )
        for r, radius in enumerate(listed(self.radii)):
            rate, low, high, decision, passes, early, draws, _ = results[:, r].unbind(1)
            where = (condition, float(radius))
            yield chosen.column("certified", where, low)
            yield chosen.column("passes", where, passes)
            yield chosen.column("early", where, early)
            yield chosen.column("early_draws", where, draws)
            if self.mode == "estimate":
                of_random_sets = None if chance is None else chance[:, r]
                yield chosen.column("rate", where, rate, bounds=(low, high), chance=of_random_sets)
                continue
            measure = "stable" if self.mode == "decide" else "unflipped"
            answer = torch.where(decision == OPEN, torch.nan, (decision == YES).double())
            why_open = f"open: too near {self.threshold:g} for the draws allowed"
            yield chosen.decisions(measure, where, answer, (low, high), why_open)

    def notes(self, model: Model) -> list[str]:
        """What a task without classes leaves out."""
        lost = (
            "certificate leaves out whether an explanation is sufficient, and pictures of flips: "
        )
        return [] if model.task.exclusive else [f"{lost}{model.task.name} has no classes"]

    def _gallery(
        self, subject: Subject, chosen: Sequence[Explanations]
    ) -> dict[str, list[GalleryImage]]:
        """x, x ⊙ α and a flipped x ⊙ β of the samples on show, by explainer, where they are pictures."""
        found: dict[str, list[GalleryImage]] = {one.explainer: [] for one in chosen}
        wanted = sorted(subject.gallery_ids)[:EXAMPLES]
        own = [one.only(wanted) for one in chosen]
        shown = joined(subject.batch, own)
        if (
            not len(shown.rows)
            or subject.batch.x.ndim != 4
            or subject.batch.x.shape[1] not in (1, 3)
        ):
            return found
        if not subject.model.task.exclusive:  # flips are looked for among classes
            return found
        model, batch, mask = subject.model, shown.batch, shown.mask

        def search(part: Batch, kept: Tensor) -> Tensor:
            return find_flips(model, part, kept, self.features, self.fill, subject.seed)

        def paint(part: Batch, kept: Tensor) -> Tensor:
            return as_pictures(model, part, kept, self.features, self.fill)

        flips = subject.compute(search, batch, mask)
        added = flips[:, 4:].bool().to(mask.device)
        explained, flipped = (subject.compute(paint, batch, kept) for kept in (mask, mask | added))
        regions = spread(added.to(batch.x.device).float(), self.features.segments(batch))[:, None]
        names = [one.explainer for one in own for _ in one.rows]
        for i, (name, row, (before, sure, after, likely)) in enumerate(
            zip(names, shown.rows.tolist(), flips[:, :4].tolist(), strict=True)
        ):
            whole = _said(model, float(subject.target[row]), float(subject.probability[row]))
            note = _said(model, after, likely) if bool(added[i].any()) else NO_FLIP
            if bool(added[i].any()) and after == float(subject.target[row]):
                note += ", as on the whole input"
            for condition, level, picture, region, said in (
                (INPUT, 0.0, batch.x[i], None, whole),
                (EXPLANATION, 0.0, explained[i], None, _said(model, before, sure)),
                (FLIP, float(added[i].sum()), flipped[i], regions[i], note),
            ):
                found[name].append(
                    GalleryImage(name, condition, level, batch.ids[i], picture, region, said)
                )
        return found


def listed(radii: tuple[int, ...] | Literal["all"]) -> tuple[int, ...]:
    """The radii, which "all" becomes a list of when the data are known.

    >>> listed((1, 5))
    (1, 5)
    """
    if radii == "all":
        raise UserError(
            "radii 'all' are listed when the data are known: take `.configured_for(model, batch)`"
        )
    return radii


def _said(model: Model, target: float, probability: float) -> str:
    return f"{model.class_name(int(target))} ({100 * probability:.0f} %)"

"""Sanity checks: how does a map change when the weights are random, or when another class is explained?"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

import torch
from pydantic import BeforeValidator, Field
from torch import Tensor

from heatproof import rand
from heatproof.axes.dependence.change import (
    ChangedMaps,
    CleanMaps,
    change_scores,
    entropy_rise,
    explain_again,
    first_reasons,
    similarities,
    similarity_scores,
)
from heatproof.batching import BatchRunner
from heatproof.errors import UserError
from heatproof.evaluation import (
    CLEAN,
    Condition,
    DataNames,
    Evaluation,
    GalleryImage,
    Measure,
    Scores,
)
from heatproof.explainers.requested_error import counts_and_errors
from heatproof.kinds import kind_of
from heatproof.maps.chance import K, check_k
from heatproof.maps.complexity import entropy, gini
from heatproof.maps.undefined import reasons
from heatproof.models import Model
from heatproof.models.randomised import (
    Scheme,
    is_randomisable,
    layers_in_order,
    random_weights,
    with_weights,
)
from heatproof.models.tasks import Answer
from heatproof.subject import Subject
from heatproof.types import Batch, Complete, Explainer, parameter_class

DEPENDENCE, CLASS_DEPENDENCE = "dependence", "class_dependence"
CASCADE_DEPENDENCE = "cascade_dependence"
NOISE_FLOOR = "noise_floor"

Cascade = Literal["top_down", "bottom_up"]
CASCADES: tuple[str, ...] = get_args(Cascade)
WEIGHTS: Condition = ("weights", 0.0)
CLASS: Condition = ("class", 0.0)
REDRAW: Condition = ("redraw", 0.0)

USUAL_NETWORKS = 5
"""How many random networks are drawn by default: the fewest whose spread can be estimated."""

_SIMILARITIES = (
    ("similarity", "Similarity", "mean of the next three; tables have no ssim"),
    ("ssim", "SSIM", "structural similarity of maps scaled to [0, 1]"),
    ("spearman", "Spearman", "rank correlation ρ, as (ρ + 1) / 2"),
    ("jaccard", "Jaccard", "overlap of the k largest values"),
)
MEASURES = (
    Measure(
        DEPENDENCE,
        "Dependence",
        "(1 − similarity) / (1 − chance): 0 the map stays, 1 it changes as between unrelated samples",
        better="neither",
        role="headline",
        noise_floor=NOISE_FLOOR,
        networks=True,
    ),
    Measure(
        CLASS_DEPENDENCE,
        "Class dependence",
        "the same when another class is explained",
        better="neither",
        role="component",
    ),
    *(
        Measure(
            name,
            title,
            text,
            better="neither",
            role="component",
            span=(0.0, 1.0),
            noise_floor=f"{NOISE_FLOOR}_{name}",
        )
        for name, title, text in _SIMILARITIES
    ),
    Measure(
        CASCADE_DEPENDENCE,
        "Dependence, layer by layer",
        "the same when only a share of the layers has random weights",
        better="neither",
        role="curve",
    ),
    Measure(
        NOISE_FLOOR,
        "Noise floor",
        "the same change between two random draws of a map under the same weights",
        better="neither",
        role="diagnostic",
    ),
    *(
        Measure(
            f"{NOISE_FLOOR}_{name}",
            f"Noise floor of {title}",
            "between two random draws of a map under the same weights",
            better="neither",
            role="diagnostic",
            span=(0.0, 1.0),
        )
        for name, title, _ in _SIMILARITIES
    ),
    Measure(
        "entropy_rise",
        "Rise of entropy",
        "relative, from the model to random weights",
        better="neither",
        role="component",
    ),
    Measure(
        "gini",
        "Gini",
        "sparseness of the map: 0 even, 1 a single value",
        better="neither",
        role="component",
        span=(0.0, 1.0),
    ),
    Measure(
        "entropy",
        "Entropy",
        "of the map’s shares, by log n: 1 even, 0 a single value",
        better="neither",
        role="component",
        span=(0.0, 1.0),
    ),
    Measure(
        "completeness_gap",
        "Completeness gap",
        "|Σa − Δ| / (|Σa| + |Δ|), Δ what the map promises",
        better="lower",
        role="component",
        span=(0.0, 1.0),
    ),
    Measure(
        "error_reached",
        "Error reached",
        "of the map by its size, by a method asked for one",
        better="lower",
        role="component",
    ),
    Measure(
        "capped",
        "Capped",
        "1 where the ladder of counts ended before the error asked for",
        better="lower",
        role="component",
        span=(0.0, 1.0),
    ),
    Measure(
        "passes",
        "Passes per map",
        "inputs that go through the network for one map",
        better="lower",
        role="cost",
    ),
)
"""The measures of the axis; the first is the headline."""


def _as_tuple(value: Any) -> Any:
    """Return a single name as a tuple."""
    return (value,) if isinstance(value, str) else value


@parameter_class
class Dependence(Evaluation):
    """Explain the predicted class again under random weights, and other classes under the model, and compare the maps.

    For every map: SSIM, (Spearman + 1) / 2, top-k Jaccard and their mean, `similarity` s, each beside its chance level
    c, the same against maps of other samples under the model; and `dependence` = (1 − s) / (1 − c). It is exactly 0
    where the map stays as it is, for both are drawn with the same random numbers, and 1 where the map is as unlike
    itself as maps of unrelated samples are. Noise that knows the weights scores 1 too, so more is not better.

    All layers are randomised at once, in `draws` networks that are made once per run; every map is explained again under
    each of them, and the number of the network is the `repeat` of its rows. `scheme` is that of
    `heatproof.models.randomised`, and `batch_norms` get the statistics of the reference samples or keep their own.
    `cascades` randomise `steps` growing shares of the layers, from the output ("top_down") or from the input
    ("bottom_up"). `classes` other classes of each sample are drawn by its id. Sparseness, entropy and its rise under
    random weights, the gap to what the map promises to sum to, and passes per map stand beside them.

    >>> Dependence(cascades="top_down", steps=2).conditions()
    [('weights', 0.0), ('class', 0.0), ('clean', 0.0), ('top_down', 0.5), ('top_down', 1.0)]
    """

    name: ClassVar[str] = "dependence"
    kinds: ClassVar[frozenset[str]] = frozenset({"feature"})
    reexplains: ClassVar[bool] = True

    draws: Annotated[int, Field(ge=0)] = USUAL_NETWORKS
    classes: Annotated[int, Field(ge=0)] = 1
    scheme: Scheme = "permute"
    batch_norms: Literal["refit", "keep"] = "refit"
    cascades: Annotated[tuple[Cascade, ...], BeforeValidator(_as_tuple)] = ()
    steps: Annotated[int, Field(ge=1)] = 8
    k: K | Literal["usual"] = "usual"
    noise_floor: bool = True
    data: DataNames = None

    def conditions(self) -> list[Condition]:
        """Return random weights, other classes, the map itself, and every step of every cascade."""
        conditions = []
        if self.draws:
            conditions.append(WEIGHTS)
        if self.classes:
            conditions.append(CLASS)
        conditions.append(CLEAN)
        if self.draws:
            for cascade in self.cascades:
                conditions += [(cascade, share) for share in self._shares]
        return conditions

    @property
    def _shares(self) -> list[float]:
        """The shares of random layers at the steps of a cascade."""
        return [step / self.steps for step in range(1, self.steps + 1)]

    def configured_for(self, model: Model, sample: Batch) -> Self:
        """Return a copy with the top-k of this kind of data; raise `UserError` if nothing can be randomised.

        A model such as a forest has no weights to randomise. With `draws=0` no network is randomised, and only the maps
        of other classes are compared, which works for any model. Maps with fewer than k values are refused too.
        """
        if self.draws and not is_randomisable(model):
            raise UserError(
                f"{model.name} has no weights to randomise; set draws: 0 to compare the maps of other classes only"
            )
        shape = sample.x.shape[1:]
        k = kind_of(model, sample).top_k_for(shape) if self.k == "usual" else self.k
        check_k(k, shape, self.name)
        return replace(self, k=k)

    def __call__(self, subject: Subject) -> Iterator[Scores | GalleryImage]:
        """Yield one column of scores per explainer, condition, repeat and measure, explainer by explainer."""
        kind = kind_of(subject.model, subject.batch).name
        for name, explainer in subject.explainers.items():
            clean = CleanMaps.of(subject, name, kind, self.k)
            yield from _descriptions(subject, clean, explainer)
            if self.noise_floor and explainer.stochastic:
                yield from _noise_floors(subject, clean)
            for network in range(self.draws):
                yield from self._under_random_weights(subject, clean, explainer, network)
            yield from self._for_other_classes(subject, clean)

    def _under_random_weights(
        self, subject: Subject, clean: CleanMaps, explainer: Explainer, network: int
    ) -> Iterator[Scores]:
        """Yield how much the maps change under random weights: in all layers, and in growing shares of them (cascades).

        `network` is the number of the random draw of weights; `clean` has the maps under the model itself.
        """
        all_layers = self._random_network(subject, network)
        changed = _explain_with(all_layers, subject, clean, explainer)
        similar = similarities(clean, changed)
        dependence = change_scores(clean, changed, similar, DEPENDENCE, WEIGHTS, network)
        yield dependence
        yield from similarity_scores(clean, changed, similar, WEIGHTS, network)
        yield entropy_rise(clean, changed, WEIGHTS, network)

        for cascade in self.cascades:
            for share in self._shares:
                if share == 1:
                    # A cascade ends with all layers random, which was measured above.
                    yield replace(
                        dependence, measure=CASCADE_DEPENDENCE, condition=cascade, level=share
                    )
                    continue
                some_layers = self._random_network(subject, network, cascade, share)
                changed = _explain_with(some_layers, subject, clean, explainer)
                similar = similarities(clean, changed)
                yield change_scores(
                    clean, changed, similar, CASCADE_DEPENDENCE, (cascade, share), network
                )

    def _random_network(
        self, subject: Subject, network: int, cascade: str = "", share: float = 1.0
    ) -> BatchRunner:
        """Return the model with random weights, in all layers or in the `share` of them that a `cascade` has reached.

        The network is made once per run and shared by all explainers and shards; `network` numbers the draw.
        """
        refit_on = subject.references.batch if self.batch_norms == "refit" else None

        def make() -> BatchRunner:
            """Draw the weights and wrap the network."""
            model = subject.model
            if cascade:
                # The same random weights as in the network whose layers are all random.
                all_random = self._random_network(subject, network).model.module
                chosen = _parameters_of_share(model, subject.references.batch, cascade, share)
                weights = {}
                for name, parameter in all_random.named_parameters():
                    if name in chosen:
                        weights[name] = parameter.data
            else:
                weights = random_weights(model, subject.seed, network, self.scheme)
            return BatchRunner(with_weights(model, weights, refit_on), model.rows)

        key = ("random weights", self.scheme, self.batch_norms, network, cascade, share)
        return subject.compute_once(key, make)

    def _for_other_classes(self, subject: Subject, clean: CleanMaps) -> Iterator[Scores]:
        """Yield how much the maps change when another class is explained; each sample's classes are drawn at random."""
        # A task with free answers explains one number, so there is no other class.
        is_answer = isinstance(subject.model.task, Answer)
        outputs = 1 if is_answer else subject.logits.shape[1]
        keys = rand.keys(subject.seed, subject.batch.ids, "other class")
        # Random numbers from 0 to outputs − 2, all different in a sample.
        drawn = rand.permutation(keys, outputs - 1)[:, : self.classes]
        for number, other in enumerate(drawn.unbind(1)):
            # Those from the predicted class on are raised by one, so that the predicted class is left out.
            target = other + (other >= subject.target.cpu()).long()
            explain = partial(subject.explain, clean.explainer)
            changed = explain_again(
                clean, subject.batch, target, explain, "the map of the other class"
            )
            similar = similarities(clean, changed)
            yield change_scores(clean, changed, similar, CLASS_DEPENDENCE, CLASS, number)
            yield from similarity_scores(clean, changed, similar, CLASS, number)


def _explain_with(
    network: BatchRunner, subject: Subject, clean: CleanMaps, explainer: Explainer
) -> ChangedMaps:
    """Return the maps of the shard's samples under a random network, for the classes that the model predicts."""

    def explain(batch: Batch, target: Tensor) -> Tensor:
        return network.explain(explainer, clean.explainer, batch, target, subject.seed)

    return explain_again(
        clean, subject.batch, subject.target, explain, "the map of the random network"
    )


def _parameters_of_share(
    model: Model, references: Batch, cascade: str, share: float
) -> frozenset[str]:
    """Return the names of the parameters in a share of the layers, from the output or from the input."""
    layers = layers_in_order(model, references[:1])
    if cascade == "top_down":
        layers = layers[::-1]
    chosen = layers[: math.ceil(share * len(layers))]
    return frozenset(name for layer in chosen for name in layer)


def _noise_floors(subject: Subject, clean: CleanMaps) -> Iterator[Scores]:
    """Yield how far two random draws of a map differ under the same weights, by every measure of change."""
    redrawn = subject.redrawn_maps(clean.explainer)
    reason = first_reasons(clean.reason, reasons(redrawn, "the map of the second draw"))
    changed = ChangedMaps(redrawn, reason)
    similar = similarities(clean, changed)
    yield change_scores(clean, changed, similar, NOISE_FLOOR, REDRAW)
    for measure, value in similar.items():
        yield Scores.column(
            clean.explainer,
            f"{NOISE_FLOOR}_{measure}",
            REDRAW,
            value,
            reason,
            missing="nothing left to compare",
        )


def _descriptions(subject: Subject, clean: CleanMaps, explainer: Explainer) -> Iterator[Scores]:
    """Yield what describes an explainer's maps by themselves: sparseness, entropy, completeness, error, and passes."""
    name = clean.explainer
    yield Scores.column(name, "gini", CLEAN, gini(clean.maps), clean.reason)
    yield Scores.column(name, "entropy", CLEAN, entropy(clean.maps), clean.reason)
    if isinstance(explainer, Complete):
        yield _completeness_gap(subject, clean, explainer)
    if isinstance(getattr(explainer, "error", None), float):
        yield from _requested_error(subject, name, explainer)
    if len(subject.references.batch):
        yield _passes_per_map(subject, name, explainer)


def _completeness_gap(subject: Subject, clean: CleanMaps, explainer: Complete) -> Scores:
    """Return how far each map is from the completeness that its explainer promises: |Σa − Δ| / (|Σa| + |Δ|).

    Σa is the sum of the map and Δ the number that it should be, such as the difference of the logit to a baseline.
    """
    promise = partial(explainer.promised, subject.model)
    promised = subject.compute(promise, subject.batch, subject.target).double().cpu()
    total = clean.maps.flatten(1).double().sum(1).cpu()
    gap = (total - promised).abs() / (total.abs() + promised.abs())
    return Scores.column(
        clean.explainer,
        "completeness_gap",
        CLEAN,
        gap,
        clean.reason,
        missing="nothing was promised",
    )


def _requested_error(subject: Subject, name: str, explainer: Any) -> Iterator[Scores]:
    """Yield the error that each map reached, and whether its count was capped before the requested one."""
    measure = partial(counts_and_errors, explainer, subject.model, seed=subject.seed)
    reached = subject.compute(measure, subject.batch, subject.target)[:, 1]
    no_reason = [""] * len(reached)
    yield Scores.column(name, "error_reached", CLEAN, reached, no_reason)
    yield Scores.column(name, "capped", CLEAN, (reached > explainer.error).double(), no_reason)


def _passes_per_map(subject: Subject, name: str, explainer: Explainer) -> Scores:
    """Return how many inputs go through the network for one map, counted once, on the first reference sample."""

    def count() -> float:
        reference = subject.references.batch[:1]
        target = subject.references.target[:1]
        before = subject.model.passes
        subject.explain(name, reference, target)
        return float(subject.model.passes - before)

    counted = subject.compute_once(("passes per map", name), count)
    # Explainers of other libraries may call the network directly, where passes are not counted. So a count of 0 is
    # believed for controls only.
    is_known = counted > 0 or explainer.control
    number = len(subject.batch)
    passes = torch.full((number,), counted if is_known else torch.nan)
    return Scores.column(
        name, "passes", CLEAN, passes, [""] * number, missing="passes are not counted"
    )

"""Sensitivity, local Lipschitz and relative stability: how far an explanation moves in a small ball around its input.

For n draws x′ uniform on ‖x′ − x‖∞ ≤ radius, with explanations e of the class that is predicted for x, and ‖·‖ the
Euclidean norm of all values:

    average_sensitivity, max_sensitivity    mean and max of ‖e(x′) − e(x)‖ / ‖e(x)‖       Yeh et al. 2019
    local_lipschitz                         max ‖e(x′) − e(x)‖ / ‖x′ − x‖                 Alvarez-Melis & Jaakkola 2018
    relative_input_stability                max ‖Δe / e‖ / max(‖Δx / x‖, ε)               Agarwal et al. 2022
    relative_output_stability               max ‖Δe / e‖ / max(‖Δh‖, ε)
    relative_representation_stability       max ‖Δe / e‖ / max(‖ΔL / L‖, ε)

h are the model's outputs and L the output of a layer. The first three take every draw, as their papers define them; the
relative ones only draws that keep the prediction. Yeh et al. do not divide by ‖e(x)‖; Captum's `sensitivity_max` does,
without which methods with small values would look stable. Quotients Δe / e are taken value by value, and a value of 0 is
replaced by ε there, as in Quantus: a map with many zeros has a large relative change.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from heatproof import rand
from heatproof.evaluation import FLIPPED, OK, UNDEFINED, Condition, Measure, Scores
from heatproof.maps.undefined import NOT_FINITE
from heatproof.maps.undefined import reasons as undefined_reasons
from heatproof.models.layers import activations
from heatproof.subject import Subject
from heatproof.types import Batch

EPSILON = 1e-6
"""What takes the place of 0 in a quotient, and the least denominator of a relative stability."""
VALUES_AT_ONCE = 2**25
"""How many values of perturbed inputs exist at a time."""
BALL = "ball"
"""The condition of these measures; its level is the radius."""
OF_EVERY_DRAW = ("average_sensitivity", "max_sensitivity", "local_lipschitz")
OF_REPRESENTATION = "relative_representation_stability"
OF_KEPT_PREDICTION = ("relative_input_stability", "relative_output_stability", OF_REPRESENTATION)
METRICS = (*OF_EVERY_DRAW, *OF_KEPT_PREDICTION)
NO_DRAW_KEPT = "every draw in the ball changes the prediction"

_TEXTS = {
    "average_sensitivity": ("Average sensitivity", "mean relative change in a small ball"),
    "max_sensitivity": ("Max sensitivity", "largest relative change in a small ball"),
    "local_lipschitz": (
        "Local Lipschitz",
        "largest change of the explanation per change of the input",
    ),
    "relative_input_stability": (
        "Relative input stability",
        "largest relative change per relative change of the input",
    ),
    "relative_output_stability": (
        "Relative output stability",
        "largest relative change per change of the model's output",
    ),
    OF_REPRESENTATION: (
        "Relative representation stability",
        "largest relative change per relative change of a layer",
    ),
}
MEASURES = tuple(
    Measure(name, title, text, "lower", "headline", (0.0, None))
    for name, (title, text) in _TEXTS.items()
)


@dataclass(frozen=True)
class Neighbourhood:
    """The neighbours of each of B samples, n of them, and how far they are from it; the same for every explainer.

    All tensors are (B, n) float64 on the CPU. `distance` is ‖Δx‖, `input_change` ‖Δx / x‖, `output_change` ‖Δh‖,
    `representation_change` ‖ΔL / L‖ (None where no layer was asked for), and `is_same` whether the prediction is kept.
    `is_finite` (B,) says where all outputs are finite.
    """

    radius: float
    draws: int
    seed: int
    distance: Tensor
    input_change: Tensor
    output_change: Tensor
    representation_change: Tensor | None
    is_same: Tensor
    is_finite: Tensor


def explore(subject: Subject, radius: float, draws: int, layer: str | None = None) -> Neighbourhood:
    """Return how far random neighbours of each sample are from it, in the input, the model's output and a layer.

    `draws` neighbours x′ are drawn uniformly from ‖x′ − x‖∞ ≤ `radius` and predicted, once for all explainers. The
    change of `layer` is measured only where one is given.
    """
    batch = subject.batch
    shape = (len(batch), draws)
    distance = torch.zeros(shape, dtype=torch.float64)
    input_change = torch.zeros(shape, dtype=torch.float64)
    output_change = torch.zeros(shape, dtype=torch.float64)
    is_same = torch.zeros(shape, dtype=torch.bool)
    has_finite_output = torch.zeros(shape, dtype=torch.bool)
    representation_change = None
    clean_representation = None
    if layer is not None:
        representation_change = torch.zeros(shape, dtype=torch.float64)
        clean_representation = _representation(subject, batch, layer)

    for sample, draw in _pieces(batch, draws):
        neighbours = _neighbours(batch, sample, draw, radius, subject.seed)
        before = batch.x[sample.to(batch.x.device)]
        distance[sample, draw] = _norm(neighbours.x.double() - before.double())
        input_change[sample, draw] = _relative_change(neighbours.x, before)
        outputs, clean_outputs = subject.predict(neighbours), subject.logits[sample]
        output_change[sample, draw] = _norm(outputs.double() - clean_outputs.double())
        target = subject.target[sample.to(subject.target.device)]
        is_same[sample, draw] = subject.model.task.same(clean_outputs, outputs, target).cpu()
        has_finite_output[sample, draw] = torch.isfinite(outputs).all(1).cpu()
        if representation_change is not None and clean_representation is not None and layer:
            after = _representation(subject, neighbours, layer)
            change = _relative_change(after, clean_representation[sample])
            representation_change[sample, draw] = change
    return Neighbourhood(
        radius=radius,
        draws=draws,
        seed=subject.seed,
        distance=distance,
        input_change=input_change,
        output_change=output_change,
        representation_change=representation_change,
        is_same=is_same,
        is_finite=has_finite_output.all(1) & torch.isfinite(subject.readout).cpu(),
    )


def score(
    subject: Subject, explainer: str, around: Neighbourhood, metrics: Sequence[str]
) -> Iterator[Scores]:
    """Yield the scores of one explainer by each of the metrics: how far its maps move among the neighbours of a sample.

    `around` holds the neighbours of the samples and their predictions (see `explore`). A sample has no score where its
    map or the model's output is not finite; the formulas are at the top of this module.
    """
    clean = subject.maps(explainer)
    change, relative_change = _explanation_changes(subject, explainer, clean, around)

    reasons = undefined_reasons(clean, "the clean map")
    if clean[:1].numel() == 1:
        # A single number is always constant, and its change is defined all the same.
        finite = torch.isfinite(clean).flatten().tolist()
        reasons = ["" if is_finite else "the clean map is not finite" for is_finite in finite]
    for row in range(len(reasons)):
        if not around.is_finite[row]:
            reasons[row] = NOT_FINITE
        elif not reasons[row] and not bool(torch.isfinite(change[row]).all()):
            reasons[row] = "the map of a perturbed input is not finite"

    condition: Condition = (BALL, around.radius)
    size = _norm(clean).cpu()[:, None]
    for metric in metrics:
        if metric in OF_KEPT_PREDICTION:
            quotient = relative_change / _denominator(metric, around).clamp(min=EPSILON)
            yield _relative_stability(
                explainer, metric, condition, quotient, around.is_same, reasons
            )
            continue
        if metric == "local_lipschitz":
            value = (change / around.distance).amax(1)
        elif metric == "max_sensitivity":
            value = (change / size).amax(1)
        else:
            value = (change / size).mean(1)
        zero = "the clean map is zero"
        yield Scores.column(explainer, metric, condition, value, reasons, missing=zero)


def _relative_stability(
    explainer: str,
    metric: str,
    condition: Condition,
    quotient: Tensor,
    is_same: Tensor,
    reasons: Sequence[str],
) -> Scores:
    """Return the relative stability of each sample: its largest quotient over the draws that keep the prediction.

    `quotient` (B, n) is the relative change of the map over that of the input, output or layer, for n draws around each
    of B samples; `is_same` (B, n) says which draws keep the prediction. A sample has no score where its entry in
    `reasons` says why not, or where every draw changes the prediction.
    """
    kept_quotients = torch.where(is_same, quotient, -torch.inf)
    largest = kept_quotients.amax(1)
    statuses = []
    texts = []
    for reason, any_kept in zip(reasons, is_same.any(1).tolist(), strict=True):
        if reason:
            statuses.append(UNDEFINED)
            texts.append(reason)
        elif not any_kept:
            statuses.append(FLIPPED)
            texts.append(NO_DRAW_KEPT)
        else:
            statuses.append(OK)
            texts.append("")
    return Scores.column(explainer, metric, condition, largest, texts, torch.tensor(statuses))


def _denominator(metric: str, around: Neighbourhood) -> Tensor:
    """Return what a relative stability divides by, (B, n): the change of the input, of the output or of a layer."""
    if metric == "relative_input_stability":
        return around.input_change
    if metric == "relative_output_stability":
        return around.output_change
    assert around.representation_change is not None  # `configured_for` asks for a layer
    return around.representation_change


def _explanation_changes(
    subject: Subject, explainer: str, clean: Tensor, around: Neighbourhood
) -> tuple[Tensor, Tensor]:
    """Return ‖Δe‖ and ‖Δe / e‖ of the explanations of all neighbours, (B, n) each."""
    batch = subject.batch
    change = torch.zeros(len(batch), around.draws, dtype=torch.float64)
    relative_change = torch.zeros_like(change)
    for sample, draw in _pieces(batch, around.draws):
        neighbours = _neighbours(batch, sample, draw, around.radius, around.seed)
        target = subject.target[sample.to(subject.target.device)]
        maps = subject.explain(explainer, neighbours, target)
        before = clean[sample.to(clean.device)]
        change[sample, draw] = _norm(maps.double() - before.double())
        relative_change[sample, draw] = _relative_change(maps, before)
    return change, relative_change


def _pieces(batch: Batch, draws: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pairs of a sample and one of its draws, in chunks that fit into memory: two index tensors (R,) each."""
    values_per_sample = max(1, batch.x[:1].numel())
    pairs_at_once = max(1, VALUES_AT_ONCE // values_per_sample)
    all_pairs = torch.arange(len(batch) * draws)
    for pairs in torch.split(all_pairs, pairs_at_once):
        sample = pairs // draws
        draw = pairs % draws
        yield sample, draw


def _neighbours(batch: Batch, sample: Tensor, draw: Tensor, radius: float, seed: int) -> Batch:
    """Return one random neighbour x′ of each of the samples (R,), uniform in ‖x′ − x‖∞ ≤ `radius`.

    The same seed, sample and number of the draw give the same neighbour, which is also that of the measure
    `max_sensitivity` of the symmetry test. Padding, which `aux["mask"]` marks as False, does not move.
    """
    samples = batch[sample]
    sample_keys = rand.keys(seed, batch.ids, "max sensitivity")[sample]
    draw_keys = rand.fold(sample_keys, draw).to(samples.x.device)
    uniform = rand.uniform(draw_keys, samples.x.shape[1:]).to(samples.x)
    noise = radius * (2 * uniform - 1)
    if "mask" in samples.aux:
        is_real = samples.aux["mask"].to(noise)
        # Axes of length 1 at the end, such as for the features of an element, let the mask multiply the noise.
        missing_axes = [1] * (noise.ndim - is_real.ndim)
        noise = noise * is_real.reshape(*is_real.shape, *missing_axes)
    return samples.with_x(samples.x + noise)


def _representation(subject: Subject, batch: Batch, layer: str) -> Tensor:
    """Return the output of the layer, (B, …) on the CPU."""
    return activations(subject.model, batch, layer).cpu()


def _norm(values: Tensor) -> Tensor:
    """Return the Euclidean norm of all values of each row, (B,) float64 on the CPU."""
    norm: Tensor = torch.linalg.vector_norm(values.double().flatten(1), dim=1)
    return norm.cpu()


def _relative_change(after: Tensor, before: Tensor) -> Tensor:
    """Return ‖(after − before) / before‖, (B,), with ε in place of a `before` of 0."""
    divisor = before.double()
    divisor = torch.where(divisor == 0, EPSILON, divisor)
    return _norm((after.double() - before.double()) / divisor)

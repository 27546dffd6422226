"""Tables and charts of the soft stability paper; Figures 2 and 13 and Table 1 need no study."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator

import pandas as pd
import torch
from torch import Tensor

from heatproof import boolean
from heatproof.axes.certificate.shares import accuracy, guaranteed_shares, least_rate
from heatproof.models import Model
from heatproof.models.loaders import load_model
from heatproof.report.components import Component, CurveChart
from heatproof.reproduce import pictures
from heatproof.reproduce.experiment import Experiment
from heatproof.text import records

CERTIFICATE, SMOOTHING = "certificate", "smoothing"
RATE = "rate"


# ---- studies ---------------------------------------------------------------------------------------------------------


def rates_by_radius(experiment: Experiment) -> pd.DataFrame:
    """Return the mean rate of every method at every radius (Figures 1, 3 and 6); of several fractions a group each."""
    return _by_radius(experiment, RATE)


def estimated_and_certified(experiment: Experiment) -> pd.DataFrame:
    """Return the mean rates and below them the means of the guaranteed lower bounds (Figure 6)."""
    rates = _by_radius(experiment, RATE).assign(row_group="estimated rate")
    bounds = _by_radius(experiment, "certified").assign(row_group="guaranteed, δ = 0.1")
    return pd.concat([rates, bounds], ignore_index=True)


def _by_radius(experiment: Experiment, measure: str) -> pd.DataFrame:
    """Return the mean of a measure, a row per method and a column per radius; with several conditions a group for each."""
    frames = []
    for result in experiment.results_of(CERTIFICATE):
        cells = result.cells(measure, calibrate=False)
        cells = cells[cells["level"] > 0].sort_values(["condition", "level"], kind="stable")
        several = cells["condition"].nunique() > 1
        groups = cells["condition"].str.replace("=", " = ") if several else ""
        frames.append(
            cells.assign(row_group=groups, row=cells["explainer"], column=_radius(cells["level"]))
        )
    return pd.concat(frames, ignore_index=True)


def smoothed_rates(experiment: Experiment) -> pd.DataFrame:
    """Return the rates of the smoothed models, a row per λ (Figures 7 and 12)."""
    frames = []
    for result in experiment.results_of(SMOOTHING):
        cells = result.cells(RATE, calibrate=False)
        cells = cells[cells["level"] > 0]
        keeps = [result.arrays.settings_of(condition).share for condition in cells["condition"]]
        cells = cells.assign(keep=keeps).sort_values(["keep", "level"], ascending=[False, True])
        rows = [f"λ = {keep:g}" for keep in cells["keep"]]
        frames.append(cells.assign(row=rows, column=_radius(cells["level"])))
    return pd.concat(frames, ignore_index=True)


def guarantees(experiment: Experiment) -> pd.DataFrame:
    """Return the share of samples with a guarantee at every radius, by λ and rule, a group per method (Figures 5, 9)."""
    frames = []
    for result in experiment.results_of(SMOOTHING):
        shares = guaranteed_shares(result.arrays, least_rate(result))
        rows = [f"{row.rule}, λ = {row.keep:g}" for row in records(shares)]
        frames.append(
            shares.assign(
                row_group=shares["explainer"],
                row=rows,
                column=_radius(shares["level"]),
                score=shares["share"],
            )
        )
    return pd.concat(frames, ignore_index=True)


def guarantees_of_lime(experiment: Experiment) -> pd.DataFrame:
    """Return the same for LIME alone (Figure 5)."""
    shares = guarantees(experiment)
    return shares[shares["row_group"] == "LIME"]


def guarantees_by_rule(experiment: Experiment) -> pd.DataFrame:
    """Return the same with a group per rule and λ, which shows how a rule tells methods apart (Figure 10)."""
    shares = guarantees(experiment)
    shares = shares.assign(row=shares["row_group"], row_group=shares["row"])
    return shares.sort_values("row_group", kind="stable", ignore_index=True)


def accuracy_by_keep(experiment: Experiment) -> pd.DataFrame:
    """Return the accuracy of the smoothed model at every λ (Figure 8)."""
    frames = []
    for result in experiment.results_of(SMOOTHING):
        rows = accuracy(result.arrays)
        columns = [f"λ = {keep:g}" for keep in rows["keep"]]
        frames.append(rows.assign(row=result.model, column=columns, score=rows["share"]))
    return pd.concat(frames, ignore_index=True)


def _radius(levels: pd.Series) -> list[str]:
    return [f"r = {level:g}" for level in levels]


# ---- Figure 2: one explanation, exactly --------------------------------------------------------------------------------


def exact_rates(experiment: Experiment) -> pd.DataFrame:
    """Return τ_r of one explanation for every radius, over all supersets, and whether it is hard stable (Figure 2).

    The picture has 16 patches, of which the explanation keeps the 4 most important: 4,096 supersets. Of the first
    `limit` pictures the one is taken whose explanation is hard stable to the smallest radius of at least 1.
    """
    model = pictures.model()
    x, _ = pictures.held_out_digits()
    curves = []
    for sample in x[: experiment.limit]:
        curves.append(_exact_curve(model, sample))
    # τ_r = 1 up to the hard radius; the smallest radius of at least 1, then those of 0.
    hard_radius = [int((curve == 1).sum()) for curve in curves]
    chosen = min(range(len(curves)), key=lambda i: (hard_radius[i] < 1, hard_radius[i]))
    columns = [f"r = {radius}" for radius in range(1, len(curves[chosen]) + 1)]
    rates = pd.DataFrame({"row": "stability rate τ", "column": columns, "score": curves[chosen]})
    is_hard = (rates["score"] == 1).cumprod().astype(float)
    hard = rates.assign(row="hard stable (1: yes)", score=is_hard)
    return pd.concat([rates, hard], ignore_index=True)


def _exact_curve(model: Model, sample: Tensor) -> Tensor:
    """Return the stability rates τ_1, …, τ_12 of one explanation: the 4 of 16 patches with the largest occlusion score.

    τ_r is the probability that the prediction stays when up to r of the other 12 patches are added at random.
    """
    every_patch = torch.ones(1, 16, dtype=torch.bool)
    without_one = ~torch.eye(16, dtype=torch.bool)
    clean_scores = _scores_of_patches(model, sample, every_patch)
    predicted = int(clean_scores.argmax())
    occluded_scores = _scores_of_patches(model, sample, without_one)
    importance = clean_scores[0, predicted] - occluded_scores[:, predicted]
    explanation = torch.zeros(16, dtype=torch.bool)
    explanation[importance.topk(4).indices] = True
    others = [i for i in range(16) if not explanation[i]]

    def scores_of_added(added: Tensor) -> Tensor:
        """Return the scores when some of the other patches, (N, 12) boolean, are shown beside the explanation."""
        masks = explanation.repeat(len(added), 1)
        masks[:, others] = added.bool()
        return _scores_of_patches(model, sample, masks)

    scores = boolean.from_function(scores_of_added, len(others))
    nothing_added = 0
    rates = [boolean.prediction_rate(scores, nothing_added, r) for r in range(1, len(others) + 1)]
    return torch.stack(rates).double()


def _scores_of_patches(model: Model, sample: Tensor, masks: Tensor) -> Tensor:
    """Return the model's scores of a picture (3, 32, 32) with only some of its 16 patches shown, by masks (N, 16)."""
    patches = masks.float().reshape(-1, 1, 4, 4)
    shown_pixels = patches.repeat_interleave(8, 2).repeat_interleave(8, 3)
    with torch.no_grad():
        scores: Tensor = model.module(sample * shown_pixels)
    return scores


def exact_chart(experiment: Experiment) -> Iterator[Component]:
    """Yield τ_r against r, with the hard certificate, which is 1 and then 0."""
    rates = exact_rates(experiment)
    yield CurveChart(
        key="curve",
        title="Stability rate and hard stability of one explanation",
        caption="Exact, over all supersets of 4 of 16 patches.",
        points=rates.assign(x=rates["column"].str.removeprefix("r = ").astype(float)),
        line="row",
        plot_per_line=False,
        x_label="features added at most",
        y_label="prediction stays",
        limits=(0, 1),
    )


# ---- Figure 13: spectra ------------------------------------------------------------------------------------------------

FEATURES = 10
KEEPS = (1.0, 0.75, 0.5, 0.25)


def spectra(experiment: Experiment) -> pd.DataFrame:
    """Return the mean over random functions of the spectral mass at every degree, after masking and after flipping.

    A function of 10 features has coefficients ĥ(S) ~ N(0, 1); `limit` functions are drawn. The mass at degree k is the
    sum of |ĥ(S)| over |S| = k. Flipping multiplies ĥ(S) by λ^|S| (footnote 5); masking is `heatproof.boolean.masking`.
    """
    generator = torch.Generator().manual_seed(0)
    coefficients = torch.randn(
        experiment.limit, 2**FEATURES, generator=generator, dtype=torch.float64
    )
    degrees = boolean.degrees(FEATURES)
    cells = []
    for operator, keep in itertools.product(("random masking", "random flipping"), KEEPS):
        if operator == "random masking":
            moved = boolean.masking(coefficients, keep, basis="fourier")
        else:
            moved = coefficients * keep**degrees
        for degree in range(FEATURES + 1):
            mass = float(moved[:, degrees == degree].abs().sum(1).mean())
            cells.append((operator, f"λ = {keep:g}", f"k = {degree}", mass))
    return pd.DataFrame(cells, columns=["row_group", "row", "column", "score"])


def spectra_chart(experiment: Experiment) -> Iterator[Component]:
    """Yield the mass at every degree: masking moves it down, flipping shrinks it everywhere."""
    mass = spectra(experiment)
    yield CurveChart(
        key="spectra",
        title="Spectral mass by degree",
        caption="Mean over random functions of the sum of |ĥ(S)| over sets S of k features.",
        points=mass.assign(
            x=mass["column"].str.removeprefix("k = ").astype(float), panel=mass["row_group"]
        ),
        line="row",
        plot_per_line=False,
        x_label="degree k",
        y_label="mass",
    )


# ---- Table 1: batching -------------------------------------------------------------------------------------------------

PASSES = 60
BATCH_SIZES = (1, 5, 10, 15)


def batching(experiment: Experiment) -> pd.DataFrame:
    """Return milliseconds per forward pass, one by one and in batches: the fastest of `limit` rounds of 60 passes."""
    networks = {"small CNN": (pictures.model(), 32)}
    networks["EfficientNet-Lite0"] = (load_model("bundled:efficientnet-lite0"), 224)
    cells = []
    for name, (model, side) in networks.items():
        x = torch.rand(PASSES, 3, side, side, generator=torch.Generator().manual_seed(0))
        _milliseconds(model, x[: BATCH_SIZES[-1]], 1)  # the first passes allocate memory
        for batch_size in BATCH_SIZES:
            spent = [_milliseconds(model, x, batch_size) for _ in range(experiment.limit)]
            column = "baseline (ms)" if batch_size == 1 else f"batch of {batch_size} (ms)"
            cells.append((name, column, min(spent)))
    return pd.DataFrame(cells, columns=["row", "column", "score"])


def _milliseconds(model: Model, x: Tensor, batch_size: int) -> float:
    """Return the milliseconds that a pass of one sample takes in batches of this size."""
    started = time.perf_counter()
    with torch.no_grad():
        for batch in torch.split(x, batch_size):
            model.module(batch)
    return 1000 * (time.perf_counter() - started) / len(x)

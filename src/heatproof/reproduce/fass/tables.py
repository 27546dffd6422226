"""Tables of the FASS paper from one study, and the pictures that stand for CIFAR-10 and COCO."""

from __future__ import annotations

import pandas as pd
import torch
from torch import Tensor

from heatproof.axes.stability.published import paper_scores, retention
from heatproof.reproduce.experiment import Experiment

STABILITY = "stability"
PERTURBATIONS = {
    "rotation": "Rotation",
    "translation": "Translation",
    "brightness": "Brightness",
    "gaussian_noise": "Noise",
    "jpeg": "JPEG",
}
"""Our names of the five perturbations -> those of Table 2."""
SHORT = {"Rotation": "Rot.", "Translation": "Trans.", "Brightness": "Bright."}
"""What the appendix calls them."""
CATEGORIES = {
    "Geometric": ["rotation", "translation"],
    "Photometric": ["brightness", "gaussian_noise"],
    "Compression (JPEG)": ["jpeg"],
}
"""The categories of Section 3.3. Ours count noise as a kind of its own."""
ARCHITECTURES = {
    "resnet50": "ResNet-50",
    "densenet121": "DenseNet-121",
    "convnext_tiny": "ConvNeXt-T",
    "vit_b_16": "ViT-B/16",
}
"""Models of torchvision -> the rows of the appendix, for `--model torchvision:resnet50`."""


def shrunk_photographs() -> Tensor:
    """Return the photographs at 32 pixels, which the study enlarges to 224, as the paper does with CIFAR-10."""
    from heatproof.data.bundled import photographs

    data = photographs(size=32)
    return data.load(range(len(data.ids))).batch.x


def mosaics() -> Tensor:
    """Return scenes of four photographs each, 224 pixels, in place of COCO's scenes of several objects."""
    from heatproof.data.bundled import photographs

    data = photographs(size=112)
    x = data.load(range(len(data.ids))).batch.x
    # Mosaic i has photographs i, i + 1, i + 5 and i + 7, so no two mosaics share more than two.
    corners = [x.roll(-shift, 0) for shift in (0, 1, 5, 7)]
    top, bottom = torch.cat(corners[:2], 3), torch.cat(corners[2:], 3)
    return torch.cat([top, bottom], 2)


def components_by_method(experiment: Experiment) -> pd.DataFrame:
    """Return Table 4: SSIM, Spearman, Jaccard and FASS of every method on every data set, means over models."""
    frames = []
    for result in experiment.results_of(STABILITY):
        scores = paper_scores(result)
        frames.append(scores.assign(row_group=experiment.our_name(result.dataset)))
    return _mean_over_models(_uncalibrated(pd.concat(frames)))


def components_by_category(experiment: Experiment) -> pd.DataFrame:
    """Return Table 5: the components by category of perturbation, means over data sets, models and three methods."""
    frames = []
    for result in experiment.results_of(STABILITY):
        for category, names in CATEGORIES.items():
            conditions = [key for key in result.conditions if key[0] in names]
            scores = paper_scores(result, conditions)
            is_counted = scores["explainer"].isin(["IG", "GradSHAP", "Grad-CAM"])
            frames.append(scores[is_counted].assign(row=category))
    scores = _uncalibrated(pd.concat(frames))
    return scores.groupby(["row", "column"], sort=False)["score"].mean().reset_index()


def fass_by_dataset(experiment: Experiment) -> pd.DataFrame:
    """Return the heights of the bars of Figure 2: FASS of every method, a column per data set."""
    scores = components_by_method(experiment)
    of_fass = scores[scores["column"] == "FASS"]
    return of_fass.assign(column=of_fass["row_group"], row_group="")


def retention_by_perturbation(experiment: Experiment) -> pd.DataFrame:
    """Return Table 2: mean, standard deviation and range of the retention under each perturbation."""
    shares = _shares(experiment)
    shares["row"] = shares["condition"].map(PERTURBATIONS)
    by_row = shares.groupby("row", sort=False)["score"]
    columns = {"Mean": by_row.mean(), "Std": by_row.std(ddof=0)}
    columns |= {"lowest": by_row.min(), "highest": by_row.max()}
    return _long(pd.DataFrame(columns))


def retention_by_dataset(experiment: Experiment) -> pd.DataFrame:
    """Return Table 3: mean and standard deviation of the retention on each data set."""
    shares = _shares(experiment)
    by_row = shares.groupby("dataset", sort=False)["score"]
    return _long(pd.DataFrame({"Mean": by_row.mean(), "Std": by_row.std(ddof=0)}))


def retention_by_model(experiment: Experiment) -> pd.DataFrame:
    """Return Tables 1, 6 and 11 of the appendix: retention of every model under every perturbation."""
    shares = _shares(experiment)
    return shares.assign(
        row_group=shares["dataset"], row=shares["model"], column=shares["condition"].map(_short)
    )


def scores_by_model(experiment: Experiment) -> pd.DataFrame:
    """Return tables 2 to 5 of an appendix: FASS of every method and model under every perturbation."""
    frames = []
    for result in experiment.results_of(STABILITY):
        for condition in result.conditions:
            scores = paper_scores(result, [condition])
            of_fass = scores[scores["column"] == "FASS"]
            frames.append(
                of_fass.assign(
                    row_group=of_fass["explainer"],
                    row=_architecture(result.model),
                    column=_short(condition[0]),
                )
            )
    return pd.concat(frames, ignore_index=True)


def _shares(experiment: Experiment) -> pd.DataFrame:
    """Return the retention of every data set, model and perturbation, with exact intervals."""
    frames = []
    for result in experiment.results_of(STABILITY):
        dataset = experiment.our_name(result.dataset)
        frames.append(retention(result).assign(dataset=dataset, model=_architecture(result.model)))
    return pd.concat(frames, ignore_index=True)


def _architecture(model: str) -> str:
    return ARCHITECTURES.get(model, model)


def _short(condition: str) -> str:
    name = PERTURBATIONS[condition]
    return SHORT.get(name, name)


def _uncalibrated(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the columns of the paper, which has raw scores only."""
    return scores[scores["column"] != "Calibrated"]


def _mean_over_models(scores: pd.DataFrame) -> pd.DataFrame:
    """Return one row per data set, method and column; the interval is kept where there is one model."""
    keys = ["row_group", "row", "column"]
    if not scores.duplicated(keys).any():
        return scores
    return scores.groupby(keys, sort=False)["score"].mean().reset_index()


def _long(wide: pd.DataFrame) -> pd.DataFrame:
    """Return a row per cell of a table whose index is `row`."""
    return (
        wide.rename_axis(index="row")
        .reset_index()
        .melt("row", var_name="column", value_name="score")
    )

"""Random studies for `old_and_new.py`: kind of data, task, network, samples, explainers, tests and parameters, from a seed.

Everything is named as in a study file, so both versions of the package can run it. A study that a version refuses, such
as one with more steps than a map has features, counts as refused. Parameters whose meaning changed on purpose are
spelled out, so that both versions compute the same; `old_and_new.py` lists what else changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import heatproof
from border import nets

KINDS = ("image", "volume", "series", "table", "set", "graph", "text")
TASKS = ("classification", "binary", "multi_label", "regression", "segmentation")
OUTPUTS = {"classification": 4, "binary": 1, "multi_label": 3, "regression": 1, "segmentation": 3}
PATCHES = {"image": 4, "volume": 3, "series": 5}
"""The side of a patch, or the length of a window, on each kind of data that has them."""


@dataclass
class Study:
    """The arguments of `heatproof.evaluate`."""

    models: Any
    data: Any
    explainers: dict[str, Any]
    evaluations: list[Any]
    options: dict[str, Any] = field(default_factory=dict)


def random_studies(out: Path, count: int, seed: int) -> dict[str, Callable[[], Any]]:
    """Return random studies by name; each has a seed of its own."""

    def run(name: str, number: int) -> Any:
        study = draw_study(random.Random(f"{seed}-{number}"))
        return heatproof.evaluate(
            study.models,
            study.data,
            study.explainers,
            study.evaluations,
            out=out / name,
            show_progress=False,
            **study.options,
        )

    return {
        f"random-{number}": lambda number=number: run(f"random-{number}", number)
        for number in range(count)
    }


def draw_study(draw: random.Random) -> Study:
    """Return a random study."""
    kind = draw.choice(KINDS)
    task = "classification"
    if kind in ("image", "table"):
        task = draw.choice(TASKS if kind == "image" else TASKS[:-1])
    return study_of(draw, kind, task)


def study_of(draw: random.Random, kind: str, task: str) -> Study:
    """Return a random study of one kind of data and one task."""
    count = draw.randint(3, 9)
    attends = kind == "image" and task != "segmentation" and draw.random() < 0.2
    models: Any = draw_model(draw, kind, task, attends)
    data: Any = draw_data(draw, kind, task, count)
    explainers = draw_explainers(draw, kind, task, attends)
    if draw.random() < 0.2:
        models = {"first": models, "second": draw_model(draw, kind, task, attends)}
    # The old version refuses baselines from the data where there are several data sets.
    if draw.random() < 0.2 and "expected_gradients" not in explainers:
        data = {"one": data, "two": draw_data(draw, kind, task, count)}
    options = {
        "seed": draw.randrange(1000),
        "shard_size": draw.choice([1, 2, 3, 8]),
        "references": draw.choice([2, 3, 5, 8]),
        "batch_size": draw.choice([None, 3, 16]),
    }
    return Study(models, data, explainers, draw_evaluations(draw, kind, task), options)


# ---- networks and samples ------------------------------------------------------------------------------------------------


class TokenImage(nn.Module):
    """A picture as patches that attend to each other."""

    def __init__(self, outputs: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, 4, 4)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
        self.body = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)
        self.head = nn.Linear(8, outputs)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.body(tokens).mean(1))


def convolutions(dimensions: int, channels: int, outputs: int, has_norm: bool) -> nn.Module:
    """Return two convolutions, pooling and a linear layer, over 1, 2 or 3 dimensions."""
    conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimensions - 1]
    norm = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)[dimensions - 1]
    pool = (nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d)[dimensions - 1]
    return nn.Sequential(
        conv(channels, 6, 3, padding=1),
        norm(6) if has_norm else nn.Identity(),
        nn.ReLU(),
        conv(6, 6, 3, padding=1),
        nn.ReLU(),
        pool(2),
        nn.Flatten(),
        nn.Linear(6 * 2**dimensions, outputs),
    )


def draw_model(draw: random.Random, kind: str, task: str, attends: bool) -> Any:
    """Return a model with random weights."""
    seed, has_norm, outputs = draw.randrange(10**6), draw.random() < 0.5, OUTPUTS[task]
    if kind in ("set", "graph", "text"):
        build = {"set": nets.PointNet, "graph": nets.GraphNet, "text": nets.WordNet}[kind]
        options = {"embedding": "embedding"} if kind == "text" else {}
        return heatproof.Model(nets.seeded(build, seed), **options)
    if task == "segmentation":
        network = nets.seeded(lambda: nn.Conv2d(3, outputs, 3, padding=1), seed)
        return heatproof.Model(network, task={"segmentation": {"background": None}})
    if kind == "table":
        network = nets.seeded(
            lambda: nn.Sequential(nn.Linear(6, 12), nn.Tanh(), nn.Linear(12, outputs)), seed
        )
    elif attends:
        network = nets.seeded(lambda: TokenImage(outputs), seed)
    else:
        dimensions = {"series": 1, "image": 2, "volume": 3}[kind]
        channels = {"series": 2, "image": 3, "volume": 1}[kind]
        network = nets.seeded(lambda: convolutions(dimensions, channels, outputs, has_norm), seed)
    options = {"mean": (0.5,) * 3, "std": (0.25,) * 3} if kind == "image" else {}
    tasks: dict[str, Any] = {
        "binary": "binary",
        "multi_label": {"multi_label": {"label": draw.randrange(3)}},
        "regression": {"regression": {"tolerance": draw.choice([0.02, 0.1, 1.0])}},
    }
    if task in tasks:
        options["task"] = tasks[task]
    return heatproof.Model(network, **options)


def draw_data(draw: random.Random, kind: str, task: str, count: int) -> Any:
    """Return random samples, some with labels and with regions."""
    seed = draw.randrange(10**6)
    ids = tuple(f"sample-{i}" for i in range(count))
    aux: dict[str, Tensor] = {}
    if kind == "image":
        side = draw.choice([12, 16])
        x = nets.pixels(count, 3, side, side, seed=seed)
        region = torch.zeros(count, side, side, dtype=torch.bool)
        for i in range(count):
            top, left = draw.randrange(side // 2), draw.randrange(side // 2)
            region[i, top : top + draw.randint(0, 6), left : left + draw.randint(1, 6)] = True
        aux["_region"] = region
    elif kind == "volume":
        x = nets.pixels(count, 1, 6, 6, 6, seed=seed)
    elif kind == "series":
        x = nets.numbers(count, 2, 40, seed=seed)
    elif kind == "table":
        x = nets.numbers(count, 6, seed=seed)
    else:
        lengths = torch.tensor([draw.randint(3, 6) for _ in ids])
        mask = torch.arange(6) < lengths[:, None]
        x = nets.numbers(count, 6, 3, seed=seed) * mask[..., None]
        aux["mask"] = mask
        if kind == "graph":
            edges = (nets.pixels(count, 6, 6, seed=seed) < 0.4).float()
            edges = torch.maximum(edges, edges.mT)
            aux["adjacency"] = edges * mask[:, None] * mask[..., None]
        if kind == "text":
            generator = torch.Generator().manual_seed(seed)
            x = torch.randint(3, 30, (count, 6), generator=generator) * mask
            aux = {"attention_mask": mask.long()}
    has_labels = task == "classification" and draw.random() < 0.5
    label = torch.tensor([draw.randrange(3) for _ in ids]) if has_labels else None
    return heatproof.Batch(ids, x, aux, label=label)


# ---- explainers ----------------------------------------------------------------------------------------------------------


def sometimes_undefined(model: Any, batch: Any, target: Tensor, seed: int) -> Tensor:
    """The inputs; a constant for every third sample, not a number for the next."""
    maps = model.inputs(batch).clone()
    numbers = [int(sample.rpartition("-")[2]) for sample in batch.ids]
    for i, number in enumerate(numbers):
        if number % 3 == 0:
            maps[i] = 1.0
        if number % 3 == 1:
            maps[i].flatten()[0] = torch.nan
    return maps


sometimes_undefined.stochastic = False  # type: ignore[attr-defined]


def draw_explainers(draw: random.Random, kind: str, task: str, attends: bool) -> dict[str, Any]:
    """Return two to five explainers by name."""
    patches = features_of(kind)
    steps, samples = draw.randint(2, 6), draw.randint(2, 5)
    sigma = draw.choice([0.0, 0.0, 0.1])
    baseline = draw.choice([0.0, 0.0, 0.3])
    composites = ["epsilon", "epsilon_plus", "epsilon_alpha2_beta1", "gamma"]
    choice: dict[str, Any] = {
        "saliency": {"absolute": draw.random() < 0.7},
        "input_x_gradient": {},
        "integrated_gradients": {
            "steps": steps,
            "baseline": baseline,
            "method": draw.choice(["gausslegendre", "riemann_left", "riemann_trapezoid"]),
        },
        "gradient_shap": {"samples": samples, "sigma": sigma, "baseline": baseline},
        "random": {},
        "weight_noise": {},
    }
    if task not in ("regression", "segmentation"):
        choice["mfaba"] = {"steps": steps, "variant": draw.choice(["sharp", "smooth"])}
    if kind == "text":
        choice["gradient_shap"] |= {"sigma": 0.0}
    else:
        choice |= {
            "smoothgrad": {"samples": samples, "sigma": 0.1, "relative": draw.random() < 0.5},
            "smoothgrad_squared": {"samples": samples},
            "vargrad": {"samples": samples},
        }
    if kind in ("image", "volume", "series", "table"):
        choice |= {
            "expected_gradients": {"samples": samples, "sigma": sigma},
            "deep_lift": {"baseline": baseline},
            "feature_ablation": {"features": patches, "fill": draw.choice(["zero", 0.5])},
            "feature_permutation": {"features": patches, "draws": draw.randint(1, 2)},
            "kernel_shap": {"features": patches, "samples": 40},
        }
    if kind in ("image", "volume", "series"):
        choice["occlusion"] = {"window": 4, "stride": draw.choice([2, 4])}
        choice["lrp"] = {"composite": draw.choice(composites)}
        choice["guided_backprop"] = {}
    if kind == "image":
        relu = draw.random() < 0.5
        cams = ("grad_cam", "grad_cam_plus_plus", "layer_cam", "hires_cam")
        choice |= {name: {"relu": relu} for name in cams}
        choice |= {"sobel": {}}
        choice["lime"] = {"features": patches, "samples": 40}
        choice["symmetrised"] = {"of": "saliency", "group": {"dihedral": {"n": 2}}}
        if attends:
            choice |= {"attention_rollout": {}, "chefer": {}}
        if task != "regression":
            choice["rise"] = {"samples": 20, "grid": 4}
    names = draw.sample(sorted(choice), draw.randint(2, 5))
    explainers: dict[str, Any] = {name: {name: choice[name]} for name in names}
    if draw.random() < 0.25:
        explainers["sometimes_undefined"] = sometimes_undefined
    return explainers


def features_of(kind: str) -> Any:
    """Return the features that are removed together, as a study file names them."""
    if kind in ("image", "volume"):
        return {"patches": {"size": PATCHES[kind]}}
    if kind == "series":
        return {"windows": {"size": PATCHES[kind]}}
    if kind == "table":
        return "pixels"
    if kind == "text":
        return {"tokens": {"mask_token": 1}}
    return "elements"


# ---- tests ---------------------------------------------------------------------------------------------------------------


def draw_evaluations(draw: random.Random, kind: str, task: str) -> list[Any]:
    """Return one to three tests."""
    choice = {
        "agreement": {"k": draw_k(draw)},
        "dependence": draw_dependence(draw, task),
    }
    if task in ("classification", "binary"):
        choice["certificate"] = draw_certificate(draw, kind, task)
    if kind in ("image", "volume", "series", "table"):
        choice["stability"] = draw_stability(draw, kind, task)
    if kind in ("image", "volume", "series", "table", "text"):
        choice["faithfulness"] = draw_faithfulness(draw, kind, task)
    if kind != "table" and task != "segmentation":
        choice["symmetry"] = draw_symmetry(draw, kind)
    if kind == "image" and task == "classification":
        choice["smoothing"] = draw_smoothing(draw, kind)
    if kind == "image" and task != "segmentation":
        choice["localisation"] = {
            "by": draw.choice(["regions", "regions", "mosaics"]),
            "sign": draw.choice(["positive", "absolute", "negative"]),
            "any_class": draw.random() < 0.5,
        }
    names = draw.sample(sorted(choice), draw.randint(1, min(3, len(choice))))
    return [{name: choice[name]} for name in names]


def draw_k(draw: random.Random) -> Any:
    """Return how many of the largest values Jaccard compares."""
    return draw.choice(["usual", 3, 5, 0.2])


PERTURBATIONS: dict[str, list[dict[str, dict[str, Any]]]] = {
    "image": [
        {"rotation": {"degrees": [5, 30]}},
        {"translation": {"pixels": 2}},
        {"translation": {"pixels": 3, "axis": "vertical"}},
        {"brightness": {"factor": 1.4}},
        {"contrast": {"factor": 1.4}},
        {"gaussian_noise": {"sigma": [0.05, 0.4]}},
        {"gaussian_blur": {"sigma": 1.0}},
        {"jpeg": {"quality": 30}},
        {"occluding_patch": {"fraction": 0.1}},
        {"elastic": {"amplitude": 1.0}},
        {"identity": {}},
    ],
    "volume": [
        {"rotation": {"degrees": 10}},
        {"translation": {"pixels": 1}},
        {"brightness": {"factor": 1.4}},
        {"gaussian_noise": {"sigma": 0.2}},
        {"gaussian_blur": {"sigma": 0.7}},
    ],
    "series": [
        {"jitter": {"sigma": [0.1, 1.0]}},
        {"scaling": {"factor": 1.5}},
        {"time_shift": {"steps": [1, 5]}},
    ],
    "table": [
        {"column_noise": {"sigma": [0.1, 1.0]}},
        {"column_swap": {"fraction": 0.4}},
    ],
}


def draw_stability(draw: random.Random, kind: str, task: str) -> dict[str, Any]:
    choice = PERTURBATIONS[kind]
    perturbations = draw.sample(choice, draw.randint(1, min(3, len(choice))))
    if task == "segmentation":  # the region is only a few pixels wide
        perturbations = [{"gaussian_noise": {"sigma": 0.05}}, {"brightness": {"factor": 1.1}}]
    stability = {
        "perturbations": perturbations,
        "k": draw_k(draw),
        "ties": draw.choice(["average", "ordinal"]),
        "weights": draw.choice([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]]),
        "aligned": draw.random() < 0.8,
        "noise_floor": draw.random() < 0.7,
    }
    if task == "classification" and draw.random() < 0.3:
        stability["max_drop"] = 0.02
    return stability


def draw_certificate(draw: random.Random, kind: str, task: str) -> dict[str, Any]:
    certificate = {
        "radii": draw.choice([[1], [1, 2], [2]]),
        "features": features_of(kind),
        "fraction": draw.choice([0.25, 0.5, [0.25, 0.5]]),
        "delta": draw.choice([0.1, 0.2]),
        "epsilon": 0.3,
        "mode": draw.choice(["estimate", "estimate", "decide", "hard"]),
        "simultaneous": draw.random() < 0.3,
        "fill": "zero" if kind in ("set", "graph", "text") else draw.choice(["zero", 0.5]),
    }
    if certificate["mode"] == "estimate":
        certificate["method"] = draw.choice(["clopper-pearson", "hoeffding", "betting"])
    if task == "classification":
        certificate["agreement"] = draw.choice(["argmax", "argmax", "margin"])
        if certificate["agreement"] == "argmax":
            certificate["anchor"] = draw.choice(["explanation", "full"])
    return certificate


def draw_smoothing(draw: random.Random, kind: str) -> dict[str, Any]:
    return {
        "keeps": draw.choice([[0.5], [0.25, 1.0]]),
        "samples": 8,
        "masks": draw.choice(["quantised", "bernoulli"]),
        "radii": [1, 2],
        "features": features_of(kind),
        "fraction": draw.choice([0.25, 0.5]),
        "epsilon": 0.3,
        "votes": draw.random() < 0.3,
    }


GROUPS: dict[str, list[Any]] = {
    "image": [{"dihedral": {"n": 4}}, {"dihedral": {"n": 2}}, "torus", "so2", "scale"],
    "volume": ["octahedral", {"octahedral": {"turns": False}}],
    "series": ["cyclic"],
    "set": ["permutation", "so3"],
    "graph": ["node_permutation"],
    "text": ["permutation"],
}


def draw_symmetry(draw: random.Random, kind: str) -> dict[str, Any]:
    symmetry = {
        "group": draw.choice(GROUPS[kind]),
        "elements": draw.randint(2, 5),
        "similarity": draw.choice(["auto", "cosine", "spearman", "jaccard"]),
        "repair": draw.choice([[], [2]]),
        "convergence": draw.choice([[], [2]]),
    }
    if kind in ("image", "series") and draw.random() < 0.3:
        symmetry |= {"sensitivity": 0.05, "sensitivity_draws": 3}
    return symmetry


def draw_faithfulness(draw: random.Random, kind: str, task: str) -> dict[str, Any]:
    imputers: dict[str, list[Any]] = {
        "image": [
            "zero",
            "image_mean",
            "noise",
            {"blur": {"sigma": 2}},
            {"value": {"value": 0.3}},
            {"noisy_linear": {"sigma": 0.05}},
        ],
        "volume": ["zero", {"value": {"value": 0.3}}],
        "series": ["zero", {"noisy_linear": {"sigma": 0.05}}, "reference_mean"],
        "table": ["reference_mean", "zero"],
        "text": ["hidden"],
    }
    faithfulness: dict[str, Any] = {
        "imputers": draw.sample(imputers[kind], draw.randint(1, min(2, len(imputers[kind])))),
        "fractions": draw.choice([[0.2, 0.5], [0.5], [0.1, 0.4, 0.9]]),
        "orders": draw.choice([["morf", "lerf", "random"], ["morf", "lerf"], ["morf", "random"]]),
        "absolute": draw.random() < 0.3,
        "masks": draw.choice([4, 8]),
    }
    if kind in ("image", "volume", "series"):
        faithfulness["features"] = draw.choice(["pixels", features_of(kind)])
    if kind == "text":
        faithfulness["features"] = features_of(kind)
    if kind == "table":
        faithfulness["baseline"] = draw.choice(["reference_mean", "own_baseline"])
    if kind == "image":
        faithfulness["segments"] = {"patches": {"size": 4}}
    if task != "classification" or draw.random() < 0.4:
        faithfulness["metrics"] = draw.choice([["infidelity"], ["faithfulness_correlation"], []])
        if faithfulness["orders"] == ["morf", "lerf", "random"] or "lerf" in faithfulness["orders"]:
            faithfulness["metrics"] = ["road", *faithfulness["metrics"]]
    return faithfulness


def draw_dependence(draw: random.Random, task: str) -> dict[str, Any]:
    return {
        "draws": draw.randint(1, 3),
        "classes": draw.randint(0, 2) if task == "classification" else 0,
        "scheme": draw.choice(["permute", "normal"]),
        "batch_norms": draw.choice(["refit", "keep"]),
        "cascades": draw.choice([[], ["top_down"], ["top_down", "bottom_up"]]),
        "steps": draw.randint(1, 3),
        "k": draw_k(draw),
        "noise_floor": draw.random() < 0.7,
    }

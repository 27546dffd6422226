"""The fixed studies of `old_and_new.py`: kinds of data, tasks, defaults, retraining, a decoder, examples, concepts, bad files.

A study is a function without arguments that returns a finished run.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from PIL import Image

import heatproof
from border import kinds, nets, test_tasks
from heatproof.axes.faithfulness.retraining.trainer import ImageTrainer, small_net
from heatproof.explainers.concepts.concepts import Concept
from heatproof.explainers.examples.training_set import Examples
from support.decoders import PLACES, induction, questions
from support.small import model, pictures


def fixed_studies(out: Path) -> dict[str, Callable[[], Any]]:
    """Return the studies that are the same for every seed, by name."""
    studies: dict[str, Callable[[], Any]] = {}

    def add(
        name: str, model: Any, data: Any, explainers: Any, evaluations: Any, **options: Any
    ) -> None:
        options = {"out": out / name, "show_progress": False, **options}
        studies[name] = lambda: heatproof.evaluate(model, data, explainers, evaluations, **options)

    for kind in kinds.KINDS:
        model, data = kinds.model_and_data(kind)
        add(kind, model, data, explainers_of(kind), kinds.evaluations(kind), seed=3)

    for task in test_tasks.CASES:
        model, data = test_tasks.model_of(task), test_tasks.CASES[task][1]()
        faithfulness = {
            "faithfulness": {"imputers": "zero", "fractions": [0.5], "metrics": ["road"]}
        }
        # The default perturbations of pictures shift further than the pixels of this segmentation reach.
        noise = [{"gaussian_noise": {"sigma": 0.1}}]
        stability = {"stability": {"perturbations": noise if task == "segmentation" else "usual"}}
        evaluations = [stability, faithfulness, {"dependence": {"draws": 2, "k": 2}}]
        add(f"task-{task}", model, data, ["saliency", "random"], evaluations)

    model, data = kinds.model_and_data("image")
    checks = [
        {"symmetry": {"group": "dihedral", "elements": 4, "repair": [2, 4], "convergence": [2]}},
        {"dependence": {"draws": 1, "cascades": ["top_down", "bottom_up"], "steps": 2}},
        {"stability": {"perturbations": ["identity", "jpeg"], "max_drop": 0.05}},
    ]
    methods = ["grad_cam", {"gradient_shap": {"samples": 3}}, "random"]
    add("image-checks", model, data, methods, checks)
    add_small_network(add)
    add_several_models(add)
    add_decoder(add)
    add_unreadable(add, out)
    for name, options in retrainings().items():
        studies[name] = lambda name=name, options=options: heatproof.retrain(
            out=out / name, show_progress=False, **options
        )
    return studies


def add_small_network(add: Callable[..., None]) -> None:
    """Add studies of a trained network: everything by default, and explainers by coalition, example and concept."""
    images, labels = pictures(6)
    ids = tuple(f"{i:04}" for i in range(len(images)))
    batch = heatproof.Batch(ids, images, label=labels)
    methods = ["saliency", "grad_cam", "random", "sobel"]
    add("default-stability", model(), batch, methods, ["stability"])
    add("default-faithfulness", model(), batch, methods, ["faithfulness"])
    add("default-dependence", model(), batch, methods, [{"dependence": {"k": 50}}])

    patches = {"patches": {"size": 8}}
    coalitions = [
        {"lime": {"features": patches, "samples": 40}},
        {"kernel_shap": {"features": patches, "samples": 60}},
        {"rise": {"samples": 40, "grid": 4}},
    ]
    few = [{"stability": {"perturbations": ["jpeg"]}}, {"agreement": {"k": 50}}]
    add("coalitions", model(), batch, coalitions, few)
    add("error", model(), batch, [{"gradient_shap": {"error": 0.3}}], few[:1])
    decide = {"features": patches, "radii": [1, 3], "mode": "decide", "threshold": 0.8}
    decisions = {"certificate": {**decide, "epsilon": 0.2}}
    add("decisions", model(), batch, ["saliency", "random"], decisions)

    train_images, train_labels = pictures(16, seed=3)
    train = Examples(
        heatproof.Batch(
            tuple(f"t{i}" for i in range(len(train_images))), train_images, label=train_labels
        )
    )
    red = train_images * torch.tensor([1.0, 0.2, 0.2])[:, None, None]
    concept = Concept("red", red, train_images)
    by_example = [
        {name: {"train": train}}
        for name in ("influence", "tracin", "simplex", "representation_similarity")
    ]
    by_concept = [{name: {"layer": "11", "concepts": concept}} for name in ("cav", "car")]
    group = {"symmetry": {"group": {"dihedral": {"n": 4}}, "elements": 3}}
    add("examples-and-concepts", model(), batch, [*by_example, *by_concept], [group])


def add_several_models(add: Callable[..., None]) -> None:
    """Add studies of several models and data sets, and of a network that subtracts."""

    class Difference(torch.nn.Module):
        """The difference of two branches."""

        def __init__(self) -> None:
            super().__init__()
            self.left, self.right = torch.nn.Linear(6, 12), torch.nn.Linear(6, 12)
            self.head = torch.nn.Linear(12, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.head(torch.relu(self.left(x)) - torch.relu(self.right(x)))

    table, few = nets.table_data(), [{"stability": {"perturbations": "usual"}}, "agreement"]
    subtracting = heatproof.Model(nets.seeded(Difference))
    add("subtraction", subtracting, table, ["saliency", "lrp"], few)

    models = {name: test_tasks.model_of(name) for name in ("classification", "regression")}
    tests = ["stability", {"faithfulness": {"imputers": "zero", "masks": 8}}]
    add("two-tasks", models, table, ["saliency", "random"], tests)

    sizes = {
        f"{side} pixels": heatproof.Batch(nets.NAMES, nets.pixels(nets.SAMPLES, 3, side, side))
        for side in (16, 20)
    }
    mild = {"stability": {"perturbations": ["jpeg"]}}
    add("two-sizes", nets.image_model(), sizes, ["saliency", "grad_cam", "random"], [mild])


def add_decoder(add: Callable[..., None]) -> None:
    """Add a study of a decoder that answers questions from passages."""
    prompts, _ = questions(6)
    passages = {"passages": {}}
    tests = [
        {"stability": {"perturbations": ["passage_order"], "k": 3}},
        {"certificate": {"radii": [1], "features": passages, "epsilon": 0.3}},
        {"faithfulness": {"features": passages, "fractions": [0.25], "metrics": ["road"]}},
        {"symmetry": {"group": "passage_permutation", "elements": 3}},
        {"agreement": {"k": 3}},
    ]
    methods = ["input_x_gradient", {"feature_ablation": {"features": passages}}, "random"]
    for name, readout in {"answer": {"tokens": 1}, "choice": {"options": list(PLACES)}}.items():
        add(f"decoder-{name}", induction(**readout), prompts, methods, tests)


def add_unreadable(add: Callable[..., None], out: Path) -> None:
    """Add a study of a folder of pictures with a file that is none."""
    folder = out / "pictures"
    folder.mkdir()
    for i, image in enumerate(pictures(5, seed=8)[0]):
        pixels = (image.permute(1, 2, 0) * 255).byte().numpy()
        Image.fromarray(pixels).save(folder / f"{i}.png")
    (folder / "5.png").write_bytes(b"no picture")
    tests = [{"stability": {"perturbations": ["jpeg"]}}, {"agreement": {"k": 50}}]
    add("unreadable", model(), folder, ["saliency", "random"], tests, shard_size=2)


def retrainings() -> dict[str, dict[str, Any]]:
    """Return the arguments of `retrain`: ROAR and KAR with probes for leaks, and F-Fidelity."""
    images, labels = pictures(40, seed=5)
    trainer = ImageTrainer(lambda: small_net(3, 4, width=8), epochs=2, rate=0.1, augment=False)
    common = {
        "model": model(),
        "train": (images.clamp(min=0.02), labels),
        "test": pictures(12, seed=6),
        "explainers": ["saliency", heatproof.GradientShap(samples=3)],
        "fractions": [0.5],
    }
    return {
        "retraining": common | {"trainer": trainer, "imputers": ["zero"], "repeats": 2},
        "leakage": common
        | {"trainer": trainer, "imputers": ["zero"], "leakage": True, "explainers": ["saliency"]},
        "fidelity": common
        | {"trainer": None, "tuner": trainer, "imputers": [{"noisy_linear": {"sigma": 0.05}}]},
    }


def explainers_of(kind: str) -> list[Any]:
    """Return explainers for a kind of data: gradients, draws and controls."""
    if kind == "image":
        steps = {"integrated_gradients": {"steps": 4}}
        return [
            "saliency",
            "input_x_gradient",
            steps,
            "grad_cam",
            {"gradient_shap": {"samples": 3}},
            "lrp",
            "random",
            "sobel",
        ]
    if kind == "text":
        return ["saliency", "input_x_gradient", "random"]
    return ["saliency", "input_x_gradient", {"gradient_shap": {"samples": 3}}, "random"]

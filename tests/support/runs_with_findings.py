"""Small real runs that give each rule of the findings something to find.

Models, samples and explainers are made so that what a rule warns of is true of them: an explainer that ignores the
model, a model that never sees the symmetry, a file that cannot be read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model
from heatproof.axes.faithfulness.retraining.trainer import ImageTrainer, small_net
from heatproof.report.comparison.cautions import cautions
from heatproof.report.findings import findings
from heatproof.results.findings import Finding
from heatproof.runs.run import Run
from heatproof.runs.verify import missing
from support.small import model as trained_model
from support.small import pictures

N = 40
SIDE = 12
ROWS, COLUMNS = torch.meshgrid(torch.arange(SIDE), torch.arange(SIDE), indexing="ij")


# ---- samples -------------------------------------------------------------------------------------------------------------


def generator(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def greys(n: int = N, low: float = 0.2, high: float = 0.6) -> Batch:
    """Noise between two greys, (n, 1, SIDE, SIDE), each named by its number."""
    x = low + (high - low) * torch.rand(n, 1, SIDE, SIDE, generator=generator(0))
    return Batch(tuple(map(str, range(n))), x)


def numbers(n: int = N, features: int = 20, low: float = 0.4) -> Batch:
    """Rows of a table between `low` and 1."""
    x = low + (1 - low) * torch.rand(n, features, generator=generator(1))
    return Batch(tuple(map(str, range(n))), x)


# ---- explainers: a map from the number of a sample, and from its content ----------------------------------------------------


def by_sample(
    draw: Callable[[Tensor, torch.Generator, torch.Generator], Tensor], stochastic: bool = False
) -> Any:
    """An explainer that draws a map from a sample, a generator of its own, and one that any change of it starts anew.

    With `stochastic` the second generator is that of the seed, as in methods that draw random numbers.
    """

    def explain(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        maps = []
        for sample, x in zip(batch.ids, batch.x, strict=True):
            content = int(x.double().sum().item() * 1e6) % 2**31
            changing = seed * 1000 + int(sample) if stochastic else content
            maps.append(draw(x, generator(int(sample)), generator(changing)))
        return torch.stack(maps).float()

    explain.stochastic = stochastic  # type: ignore[attr-defined]
    return explain


def blob(own: torch.Generator, width: float = 4.5) -> Tensor:
    """A round spot somewhere in the picture, (1, SIDE, SIDE)."""
    y, x = (torch.rand(2, generator=own) * SIDE).tolist()
    return torch.exp(-((ROWS - y) ** 2 + (COLUMNS - x) ** 2) / width**2)[None]


def noise(changing: torch.Generator) -> Tensor:
    return torch.randn(1, SIDE, SIDE, generator=changing)


def is_bright(x: Tensor) -> bool:
    """Whether a picture of `greys` was made brighter."""
    return bool(x.max() > 0.75)


def coarse_noise(changing: torch.Generator) -> Tensor:
    """A value for the left half and one for the right: two draws agree as often as not."""
    halves = torch.randn(1, 1, 2, generator=changing)
    return halves.repeat_interleave(SIDE, 1).repeat_interleave(SIDE // 2, 2)


def other_contrast(own: torch.Generator, changing: torch.Generator) -> Tensor:
    """The same order of pixels, but now all differ and now few stand out."""
    power = 10 ** (3 * torch.rand(1, generator=changing))
    return torch.rand(1, SIDE, SIDE, generator=own) ** power


def other_plateau(own: torch.Generator, changing: torch.Generator) -> Tensor:
    """A slope that ends in a wide plateau, on which the largest values are a matter of luck."""
    angle = 6.28 * torch.rand(1, generator=own)
    slope = (ROWS * torch.cos(angle) + COLUMNS * torch.sin(angle))[None]
    slope = (slope - slope.min()) / (slope.max() - slope.min())
    return slope.clamp(max=0.7) + 1e-3 * noise(changing)


STABLE_OR_NOT = {
    "steady": by_sample(lambda x, own, new: blob(own)),
    "scattered": by_sample(lambda x, own, new: noise(new)),
    "lucky": by_sample(lambda x, own, new: coarse_noise(new)),
    "breaks": by_sample(lambda x, own, new: noise(new) if is_bright(x) else blob(own)),
    "fails": by_sample(lambda x, own, new: 0 * blob(own) if is_bright(x) else blob(own)),
    "other contrast": by_sample(lambda x, own, new: other_contrast(own, new)),
    "other order": by_sample(lambda x, own, new: blob(own, 2) + 0.05 * noise(new)),
    "other plateau": by_sample(lambda x, own, new: other_plateau(own, new)),
    "draws": by_sample(lambda x, own, new: blob(own) + noise(new), stochastic=True),
}


def weighted(weights: Callable[[int], Tensor]) -> Any:
    """An explainer whose map of a table is drawn from the number of the sample."""

    def explain(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        return torch.stack([weights(int(sample)) for sample in batch.ids]).float()

    explain.stochastic = False  # type: ignore[attr-defined]
    return explain


# ---- models --------------------------------------------------------------------------------------------------------------


class Level(nn.Module):
    """Class 1 where the mean of a sample is above a level, else class 0."""

    def __init__(self, level: float) -> None:
        super().__init__()
        self.level = nn.Parameter(torch.tensor(level))

    def forward(self, x: Tensor) -> Tensor:
        above = x.flatten(1).mean(1) - self.level
        return torch.stack([torch.zeros_like(above), above], 1)


class Sum(nn.Module):
    """Class 1 where the sum of the weighted features is above a level."""

    def __init__(self, weights: Tensor, level: float = 0.0) -> None:
        super().__init__()
        self.weights, self.level = nn.Parameter(weights), level

    def forward(self, x: Tensor) -> Tensor:
        total = x.flatten(1) @ self.weights - self.level
        return torch.stack([torch.zeros_like(total), total], 1)


# ---- runs ----------------------------------------------------------------------------------------------------------------


def evaluate(model: Any, data: Any, explainers: Any, evaluations: Any, **options: Any) -> Run:
    model = model if isinstance(model, Model | str) else Model(model)
    return heatproof.evaluate(model, data, explainers, evaluations, show_progress=False, **options)


def stable_or_not() -> Run:
    """Explainers that fail in every way that stability tells apart."""
    test = heatproof.Stability(perturbations=[{"brightness": {"factor": 1.5}}, "jpeg"], k=10)
    return evaluate(Level(0.05), greys(), {**STABLE_OR_NOT, "sobel": "sobel"}, test)


def two_samples() -> Run:
    """Too few samples for any interval."""
    test = heatproof.Stability(perturbations=["jpeg"], k=10)
    return evaluate(Level(0.05), greys(2), {"scattered": STABLE_OR_NOT["scattered"]}, test)


def changed_predictions() -> Run:
    """A model that predicts another class for every picture that is made brighter."""
    test = heatproof.Stability(perturbations=[{"brightness": {"factor": 1.5}}], k=10)
    return evaluate(Level(0.45), greys(), {"steady": STABLE_OR_NOT["steady"]}, test)


def faithful_or_not() -> Run:
    """Maps of a weighted sum: its weights, the negative of them, and noise that no other brightness leaves as it is.

    The value 1 in place of a feature raises the sum where zero lowers it, so that the imputers disagree.
    """
    weights = torch.linspace(0.1, 1, SIDE * SIDE)[
        torch.randperm(SIDE * SIDE, generator=generator(2))
    ]

    def mixed(share: float) -> Any:
        image = weights.reshape(1, SIDE, SIDE)
        return by_sample(lambda x, own, new: share * image + 0.1 * noise(own))

    explainers = {f"weights times {share:g}": mixed(share) for share in (-1, -0.3, 0.3, 1)}
    explainers["noise"] = STABLE_OR_NOT["scattered"]
    tests = {
        "stability": heatproof.Stability(perturbations=["jpeg"], k=10),
        "faithfulness": heatproof.Faithfulness(
            imputers=["zero", {"value": {"value": 1.0}}],
            fractions=(0.3,),
            metrics=("road",),
            readout="logit",
        ),
    }
    return evaluate(Sum(weights, 10.0), greys(), explainers, tests)


def half_right_maps() -> Run:
    """Maps that are right about the most or the least important features, and noise about the others."""
    features = 30
    weights = torch.linspace(0.1, 1, features)

    def right(upper: float, lower: float) -> Any:
        def draw(number: int) -> Tensor:
            luck = torch.rand(features, generator=generator(number))
            share = torch.where(weights > weights.median(), upper, lower)
            level = torch.where(weights > weights.median(), 1.0, 0.0)
            return level + share * weights + (1 - share) * luck

        return weighted(draw)

    explainers = {f"{u:g}": right(u, 1 - u) for u in (0.0, 0.3, 0.7, 1.0)}
    test = heatproof.Faithfulness(
        imputers="zero", fractions=(0.2,), metrics=("road",), readout="logit"
    )
    return evaluate(Sum(weights, 2.0), numbers(features=features), explainers, test)


def visible_removal() -> Run:
    """A trained network tells grey squares from the pictures that it knows."""
    images, _ = pictures(60)
    test = heatproof.Faithfulness(
        imputers={"value": {"value": 1.0}},
        fractions=(0.5,),
        orders=("morf", "lerf", "random"),
        metrics=("road",),
    )
    return evaluate(trained_model(), images, ["random"], test)


def undone_predictions() -> Run:
    """A class that nearly any further feature changes, and one that two of them change more often than not."""
    features = 40
    kept = torch.arange(features) < 4

    def first_four(number: int) -> Tensor:
        return kept.float() + 0.01 * torch.rand(features, generator=generator(number))

    explainers = {"first four": weighted(first_four)}
    every = torch.where(kept, 1.0, -10.0)
    some = torch.where(kept | (torch.arange(features) % 6 == 0), every, 0.1)
    models = {"every": Model(Sum(every)), "some": Model(Sum(some))}
    test = heatproof.Certificate(
        radii=(3,), features="pixels", fraction=0.1, epsilon=0.2, fill="zero"
    )
    data = numbers(features=features)
    return heatproof.evaluate(models, data, explainers, test, show_progress=False)


def costly_smoothing() -> Run:
    """A class that needs nearly all features, so that a model that sees half of them is wrong about every sample."""
    weights = torch.ones(20)
    data = numbers(low=0.9)
    strong = data.x.clone()
    strong[20:] *= 0.1
    labels = (strong @ weights > 14).long()
    batch = Batch(data.ids, strong, label=labels)
    test = heatproof.Smoothing(
        keeps=(0.5, 1.0), samples=16, radii=(1,), features="pixels", epsilon=0.2
    )
    explainers = {"weights": weighted(lambda number: strong[number])}
    return evaluate(Sum(weights, 14.0), batch, explainers, test)


def blind_or_not() -> Run:
    """Maps that ignore the weights, the class or both, hardly react to the weights, or change with every draw."""
    images, _ = pictures(10)

    def energy(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        """What the first layer reacts to, whatever class is explained."""
        first = next(module for module in model.module.modules() if isinstance(module, nn.Conv2d))
        return first(batch.x).abs().sum(1, keepdim=True)

    def edges(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        return heatproof.SobelEdges()(model, batch, target, seed)

    def mostly_edges(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        parts = [edges(model, batch, target, seed), energy(model, batch, target, seed)]
        flat = [part.sum(1, keepdim=True) for part in parts]
        edge_map, energy_map = [part / part.amax((1, 2, 3), keepdim=True) for part in flat]
        return edge_map + 0.1 * energy_map

    def luck(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        total = sum(float(weights.double().sum()) for weights in model.module.parameters())
        changing = generator(int(abs(total) * 1e6) % 2**31 + seed)
        return torch.rand(batch.x[:, :1].shape, generator=changing)

    explainers = {"energy": energy, "edges": edges, "mostly edges": mostly_edges, "luck": luck}
    for name, explainer in explainers.items():
        explainer.stochastic = name == "luck"  # type: ignore[attr-defined]
    return evaluate(trained_model(), images, explainers, heatproof.Dependence(draws=5, k=50))


def unsymmetric(model: Any, group: Any, elements: int) -> Run:
    explainers = {
        "falling": by_sample(lambda x, own, new: x * (ROWS + 1.0)),
        "scattered": STABLE_OR_NOT["scattered"],
    }
    return evaluate(model, greys(), explainers, heatproof.Symmetry(group=group, elements=elements))


def broken_symmetry() -> Run:
    """A model that does not see how a picture is turned, and maps that do."""
    return unsymmetric(Level(0.05), {"dihedral": {"n": 4}}, 8)


def unsymmetric_model() -> Run:
    """A model that looks at the upper rows, under few turns that need interpolation."""
    upper = (ROWS < 3).float().flatten()
    return unsymmetric(Sum(upper - upper.mean(), 0.0), "so2", 2)


def disagreeing() -> Run:
    explainers = {"blob": STABLE_OR_NOT["steady"], "noise": STABLE_OR_NOT["scattered"]}
    return evaluate(Level(0.05), greys(), explainers, heatproof.Agreement(k=10))


def leaking_removal() -> Run:
    """Removal by black squares that lie left or right by the class, and a network that is trained on what remains."""
    label = torch.arange(170) % 2
    x = 0.3 + 0.4 * torch.rand(170, 3, 8, 8, generator=generator(3))
    ids = tuple(map(str, range(170)))

    def side_of_the_class(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        maps = torch.rand(len(batch), 1, 8, 8, generator=generator(seed))
        for i, sample in enumerate(batch.ids):
            left = 4 * int(label[int(sample.rpartition(" ")[2])])
            maps[i, :, :, left : left + 4] += 1
        return maps

    side_of_the_class.stochastic = False  # type: ignore[attr-defined]
    parts = [Batch(ids[part], x[part], label=label[part]) for part in (slice(130), slice(130, 170))]
    trainer = ImageTrainer(lambda: small_net(3, 2, width=4), epochs=1, rate=0.1, augment=False)
    model = Model(small_net(3, 2, width=4))
    return heatproof.retrain(
        model,
        *parts,
        {"side": side_of_the_class},
        trainer,
        tempfile.mkdtemp(),
        imputers=["zero"],
        orders=["morf"],
        fractions=[0.3],
        leakage=True,
        show_progress=False,
    )


def retrained_on_masks() -> Run:
    """A network that is trained on black squares, whose leak nobody measured."""
    images, labels = pictures(24)
    trainer = ImageTrainer(lambda: small_net(3, 4, width=4), epochs=1, rate=0.1, augment=False)
    return heatproof.retrain(
        trained_model(),
        (images[:12].clamp(min=0.02), labels[:12]),
        (images[12:], labels[12:]),
        ["saliency"],
        trainer,
        tempfile.mkdtemp(),
        imputers=["zero"],
        orders=["morf"],
        fractions=[0.5],
        show_progress=False,
    )


def unusual_models() -> Run:
    """A new head, a network whose package knows a normalisation that was not given, and outputs like probabilities."""

    def linear(outputs: int) -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, outputs))

    with torch.random.fork_rng():
        torch.manual_seed(0)
        untrained, as_of_timm = linear(10), linear(2)
    as_of_timm.pretrained_cfg = {"mean": (0.5,), "std": (0.5,)}  # type: ignore[assignment]
    models = {"untrained": untrained, "timm": as_of_timm, "probabilities": Level(-0.2)}
    wrapped = {name: Model(network, name=name) for name, network in models.items()}
    methods = {name: STABLE_OR_NOT[name] for name in ("steady", "scattered")}
    test = heatproof.Agreement(k=10)
    return heatproof.evaluate(wrapped, greys(10), methods, test, show_progress=False)


def unreadable_picture() -> Run:
    """A folder of pictures with a file that is none."""
    folder = Path(tempfile.mkdtemp())
    for i, image in enumerate(pictures(4)[0]):
        pixels = (image.permute(1, 2, 0) * 255).byte().numpy()
        Image.fromarray(pixels).save(folder / f"{i}.png")
    (folder / "4.png").write_bytes(b"no picture")
    return evaluate(trained_model(), folder, ["saliency", "grad_cam"], heatproof.Agreement(k=50))


def capped() -> Run:
    """A run that may not test as many samples as the requested half-width takes."""
    methods = {name: STABLE_OR_NOT[name] for name in ("steady", "scattered")}
    stability = heatproof.Stability(perturbations="brightness", k=10)
    return evaluate(Level(0.05), greys(90), methods, stability, half_width=0.001, at_most=70)


def unfinished() -> Run:
    """A run of which a part was lost."""
    methods = {name: STABLE_OR_NOT[name] for name in ("steady", "scattered")}
    run = evaluate(Level(0.05), greys(8), methods, heatproof.Agreement(k=10))
    next(Path(run.path, "parts").rglob("*.parquet")).unlink()
    return heatproof.read(run.path)


def of_one_class() -> Run:
    """Pictures that a model all puts into one class."""
    methods = {name: STABLE_OR_NOT[name] for name in ("steady", "scattered")}
    return evaluate(Level(0.05), greys(), methods, heatproof.Agreement(k=10))


def everything_too_small() -> Run:
    """Few samples, references, networks and draws, and maps of rotated pictures that are not moved back."""
    images, _ = pictures(12)
    return evaluate(
        trained_model(),
        images,
        {"lime": heatproof.Lime(samples=8), "saliency": heatproof.Saliency()},
        {
            "stability": heatproof.Stability(perturbations="rotation", aligned=False),
            "dependence": heatproof.Dependence(draws=1),
        },
        references=3,
    )


def compared_runs() -> list[str]:
    """The rules that a comparison of two models names: one predicts another class, also of brighter pictures.

    The control looks at the model, which no control should.
    """

    def informed(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        is_second = model.module.level > 0.1
        explainer = STABLE_OR_NOT["scattered" if is_second else "steady"]
        return explainer(model, batch, target, seed)

    informed.stochastic, informed.control = False, True  # type: ignore[attr-defined]
    methods = {"steady": STABLE_OR_NOT["steady"], "informed": informed}
    test = heatproof.Stability(perturbations=[{"brightness": {"factor": 1.5}}, "jpeg"], k=10)
    runs = [evaluate(Model(Level(x), name="level"), greys(), methods, test) for x in (0.05, 0.45)]
    return [finding.rule for finding in cautions(heatproof.compare(*[run.path for run in runs]))]


RUNS: dict[str, tuple[Callable[[], Run], tuple[str, ...]]] = {
    "stable or not": (
        stable_or_not,
        (
            "near-chance",
            "near-chance-under-change",
            "not-above-chance",
            "spatial-failure",
            "ordinal-failure",
            "salient-failure",
            "noisy-draws",
            "undefined-maps",
            "missing-conditions",
            "few-pairs",
            "control-not-beaten",
            "tied-methods",
            "identical-scores",
            "rare-failures-unseen",
            "no-faithfulness",
        ),
    ),
    "two samples": (two_samples, ("too-few-samples", "no-interval")),
    "changed predictions": (changed_predictions, ("low-retention", "no-score")),
    "faithful or not": (
        faithful_or_not,
        ("worse-than-random", "not-above-random", "dominated-method", "imputers-disagree"),
    ),
    "half-right maps": (half_right_maps, ("orders-disagree",)),
    "visible removal": (visible_removal, ("unrealistic-inputs",)),
    "undone predictions": (undone_predictions, ("insufficient-features", "loose-bound")),
    "costly smoothing": (costly_smoothing, ("smoothing-cost", "soft-beyond-hard")),
    "blind or not": (
        blind_or_not,
        ("ignores-weights", "ignores-class", "dependence-unclear", "dependence-within-noise"),
    ),
    "broken symmetry": (broken_symmetry, ("broken-symmetry",)),
    "unsymmetric model": (
        unsymmetric_model,
        ("model-not-invariant", "interpolating-group", "few-elements"),
    ),
    "disagreeing": (disagreeing, ("methods-disagree",)),
    "leaking removal": (leaking_removal, ("leaking-imputer",)),
    "retrained on masks": (retrained_on_masks, ("possible-leak",)),
    "unusual models": (
        unusual_models,
        ("untrained-model", "missing-normalisation", "probability-outputs"),
    ),
    "one class": (of_one_class, ("single-class-references",)),
    "unreadable picture": (unreadable_picture, ("unreadable-files",)),
    "capped": (capped, ("precision-not-reached",)),
    "unfinished": (unfinished, ("unfinished-run",)),
    "everything too small": (
        everything_too_small,
        ("few-samples", "few-references", "few-networks", "small-budget", "unaligned-maps"),
    ),
}
"""Runs by name, and the rules that each of them triggers."""


@cache
def run_of(name: str) -> Run:
    """Return one of the runs."""
    make, _ = RUNS[name]
    return make()


def findings_of_run(name: str) -> list[Finding]:
    """Return what is found in one of the runs."""
    run = run_of(name)
    return findings(run.results(), run.samples(), run.manifest, missing(run.path))

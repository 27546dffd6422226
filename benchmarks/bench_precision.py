"""How many samples `half_width` and `until: decided` take, and how often what they say is wrong.

    python benchmarks/bench_precision.py drawn [--replicates 500]       the two-stage interval on drawn scores
    python benchmarks/bench_precision.py decided [--replicates 500]     the looks on drawn scores
    python benchmarks/bench_precision.py networks --data DIR [--images 1000] [--photographs DIR] [--out DIR]
    python benchmarks/bench_precision.py store --data DIR --device cuda --out DIR      only the runs of `networks`
    python benchmarks/bench_precision.py workers                        the same samples from everybody

`drawn` and `decided` know the truth: they count how often an interval or a decision is wrong. `networks` runs stability and
faithfulness once on every image: with `--data` for CIFAR's ResNet-20 and ResNet-56 on its test images, with
`--photographs` for a MobileNetV2 on these, and for the small network of the tests on drawings. It then puts the images into
500 random orders and lets the functions of the product decide from the stored rows; the truth is the score of all images.
DIR holds `test.npz` (JPEG blobs: `jpeg`, `offsets`, `labels`, `classes`) and the `.th` files of
akamaster/pytorch_resnet_cifar10. Runs in `--out` are resumed, so `store` on a machine with a GPU and `networks` on another one
with the same `--out` share the work.

Every part prints Markdown tables. One thread is enough unless OMP_NUM_THREADS says otherwise; `nice -n 19` is polite.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")

import argparse
import importlib
import io
import math
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional as F

import heatproof
from heatproof import Batch, Model, open_data
from heatproof.data import Data
from heatproof.results.arrays import ScoreArrays
from heatproof.results.comparisons import paired_tests
from heatproof.results.score_estimates import score_estimates
from heatproof.runs.evaluate import execute
from heatproof.runs.executors import Processes, Ray
from heatproof.runs.executors.worker import FromStudy
from heatproof.runs.looks import widths_of
from heatproof.runs.manifest import Sampling
from heatproof.runs.run import Run
from heatproof.runs.sampling import look_sizes
from heatproof.runs.verify import missing
from heatproof.statistics import sign_flips
from heatproof.statistics.estimates import of_means
from heatproof.statistics.sample_sizes import (
    PILOT,
    half_width,
    of_samples_alone,
    samples_for_half_width,
)

Array = NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Array]
WIDTHS = (0.05, 0.02, 0.01)
FLIPS = 2_000
"""Flips of each test here, in place of 10,000. A test with random flips keeps its level with any number of them."""
TRUTH = 4_000_000
"""Draws from which a true mean is taken."""


# ---- drawn scores ----------------------------------------------------------------------------------------------------


def rate(p: float) -> Draw:
    """Scores that are 1 with probability p, else 0."""
    return lambda generator, n: (generator.random(n) < p).astype(float)


def failing(share: float) -> Draw:
    """Scores near 0.9, but for a share of 0."""

    def draw(generator: np.random.Generator, n: int) -> Array:
        usual = np.clip(0.9 + 0.05 * generator.standard_normal(n), 0, 1)
        return np.where(generator.random(n) < share, 0.0, usual)

    return draw


@dataclass(frozen=True)
class Kind:
    """A distribution of scores on [0, 1]."""

    draw: Draw
    is_rate: bool = False


KINDS = {
    "normal, sd .15": Kind(lambda g, n: np.clip(0.5 + 0.15 * g.standard_normal(n), 0, 1)),
    "uniform": Kind(lambda g, n: g.random(n)),
    "beta(8, 1), skewed": Kind(lambda g, n: g.beta(8, 1, n)),
    "beta(.5, .1), mostly 1": Kind(lambda g, n: g.beta(0.5, 0.1, n)),
    "lognormal / 10, long tail": Kind(lambda g, n: np.minimum(g.lognormal(0, 1, n) / 10, 1)),
    "near .9, 5 % are 0": Kind(failing(0.05)),
    "near .9, 3 % are 0": Kind(failing(0.03)),
    "near .9, 1 % are 0": Kind(failing(0.01)),
    "rate .5": Kind(rate(0.5), True),
    "rate .9": Kind(rate(0.9), True),
    "rate .97": Kind(rate(0.97), True),
    "rate .99": Kind(rate(0.99), True),
}


def plain_stein(pilot: Array, width: float) -> int:
    """Return the number of samples by the plain estimate of the spread."""
    quantile = stats.t.ppf(0.975, len(pilot) - 1)
    return max(len(pilot), math.ceil((quantile * pilot.std(ddof=1) / width) ** 2))


def drawn(replicates: int) -> None:
    """Print the coverage of the two-stage interval."""
    print(
        "| scores | ± | samples | interval covers | within ± | as narrow | plain: samples | within ± |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name, kind in KINDS.items():
        truth = float(kind.draw(np.random.default_rng(0), TRUTH).mean())
        for width in WIDTHS[:2]:
            generator = np.random.default_rng(1)
            studies = [_two_stages(generator, kind, width, truth) for _ in range(replicates)]
            samples, covers, within, narrow, plain, plain_within = np.mean(studies, 0)
            print(
                f"| {name} | {width:g} | {samples:,.0f} | {covers:.3f} | {within:.3f} | {narrow:.2f} | {plain:,.0f} | "
                f"{plain_within:.3f} |",
                flush=True,
            )


def _two_stages(
    generator: np.random.Generator, kind: Kind, width: float, truth: float
) -> tuple[float, ...]:
    """Return the samples of one study, and whether its interval covers, its score is within ± and it is narrow enough."""
    pilot = kind.draw(generator, PILOT)
    planned = samples_for_half_width(
        of_means(pilot, (0.0, 1.0), rate=kind.is_rate), width, kind.is_rate
    )
    assert planned is not None
    plain = plain_stein(pilot, width)
    more = kind.draw(generator, max(planned, plain) - PILOT)
    every = np.concatenate([pilot, more])
    scores = of_means(every[:planned], (0.0, 1.0), rate=kind.is_rate)
    low, high = scores.interval()
    return (
        planned,
        bool(low <= truth <= high),
        abs(float(scores.value) - truth) <= width,
        float(half_width(scores)) <= width + 1e-9,
        plain,
        abs(float(every[:plain].mean()) - truth) <= width,
    )


# ---- drawn decisions -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contest:
    """Scores (methods, n) of several methods on the same samples, and the true means."""

    draw: Callable[[np.random.Generator, int], Array]
    means: tuple[float, ...]
    margin: float | None = None


def paired(spread: float, means: Sequence[float]) -> Callable[..., Array]:
    """Scores that share the difficulty of their samples."""

    def draw(generator: np.random.Generator, n: int) -> Array:
        shared = 0.1 * generator.standard_normal(n)
        own = spread * generator.standard_normal((len(means), n))
        return np.asarray(means)[:, None] + shared + own

    return draw


def each_of(kind: Draw, methods: int) -> Callable[..., Array]:
    """Scores of methods that are equal, each drawn by itself."""
    return lambda generator, n: np.stack([kind(generator, n) for _ in range(methods)])


CONTESTS = {
    "4 equal, normal": Contest(paired(0.15, (0.5,) * 4), (0.5,) * 4),
    "4 equal, rate .97": Contest(each_of(rate(0.97), 4), (0.97,) * 4),
    "4 equal, long tail": Contest(each_of(KINDS["lognormal / 10, long tail"].draw, 4), (0.16,) * 4),
    "4 equal, 3 % are 0": Contest(each_of(failing(0.03), 4), (0.87,) * 4),
    "4 equal, margin .05": Contest(paired(0.15, (0.5,) * 4), (0.5,) * 4, 0.05),
    "4 apart by .05": Contest(paired(0.15, (0.5, 0.45, 0.4, 0.35)), (0.5, 0.45, 0.4, 0.35)),
    "4 apart by .02": Contest(paired(0.15, (0.5, 0.48, 0.46, 0.44)), (0.5, 0.48, 0.46, 0.44)),
    "2 apart by the margin .05": Contest(paired(0.15, (0.5, 0.45)), (0.5, 0.45), 0.05),
    "2 apart by .02, margin .05": Contest(paired(0.15, (0.5, 0.48)), (0.5, 0.48), 0.05),
}


def decided(replicates: int) -> None:
    """Print how often a decision is wrong, and how many samples it takes."""
    sign_flips.FLIPS = FLIPS
    print("| methods | wrong | all decided | samples | of all 1,024 at once: all decided |")
    print("|---|---|---|---|---|")
    for name, contest in CONTESTS.items():
        generator = np.random.default_rng(2)
        studies = [_looks(generator, contest) for _ in range(replicates)]
        wrong, settled, samples, at_once = np.mean(studies, 0)
        print(
            f"| {name} | {wrong:.3f} | {settled:.2f} | {samples:,.0f} | {at_once:.2f} |", flush=True
        )


def _looks(generator: np.random.Generator, contest: Contest) -> tuple[float, ...]:
    """Return whether one study is wrong anywhere, whether it decides everything, its samples, and those of one test."""
    sampling = Sampling(until="decided", margin=contest.margin)
    sizes = look_sizes(sampling, range(1, 5001))
    scores = contest.draw(generator, sizes[-1])
    pairs = list(combinations(range(len(contest.means)), 2))
    differences = np.stack([scores[a] - scores[b] for a, b in pairs])
    truth = np.array([contest.means[a] - contest.means[b] for a, b in pairs])
    samples, settled, wrong = sizes[-1], False, False
    for size in sizes:
        settled, wrong = _decision(differences[:, :size], truth, sampling.level, contest.margin)
        if settled:
            samples = size
            break
    at_once, _ = _decision(differences, truth, 0.95, contest.margin)
    return wrong, settled, samples, at_once


def _decision(
    differences: Array, truth: Array, level: float, margin: float | None
) -> tuple[bool, bool]:
    """Return whether every pair is settled, and whether any is settled wrongly."""
    tests = sign_flips.simultaneous_tests(differences, level=level)
    is_equal = np.zeros(len(truth), dtype=bool)
    if margin is not None:
        is_equal = ~tests.significant & (tests.low > -margin) & (tests.high < margin)
    direction = np.sign(differences.mean(1))
    wrong_direction = tests.significant & (direction != np.sign(truth))
    wrong_equality = is_equal & (np.abs(truth) >= (margin or 0) - 1e-12)
    is_settled = bool((tests.significant | is_equal).all())
    return is_settled, bool((wrong_direction | wrong_equality).any())


# ---- networks --------------------------------------------------------------------------------------------------------


class Block(nn.Module):
    """Two convolutions, with a shortcut that takes every second pixel and fills new channels with 0 (He et al. 2016, A)."""

    def __init__(self, into: int, out: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(into, out, 3, stride, 1, bias=False), nn.BatchNorm2d(out)
        self.conv2, self.bn2 = nn.Conv2d(out, out, 3, 1, 1, bias=False), nn.BatchNorm2d(out)
        self.added, self.stride = (out - into) // 2, stride

    def forward(self, x: Tensor) -> Tensor:
        inner = self.bn2(self.conv2(F.relu(self.bn1(self.conv1(x)))))
        shortcut = x[:, :, :: self.stride, :: self.stride]
        return F.relu(inner + F.pad(shortcut, (0, 0, 0, 0, self.added, self.added)))


class CifarResNet(nn.Module):
    """He et al. 2016 for CIFAR-10, with 6n + 2 layers."""

    def __init__(self, n: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16)
        widths = (16, 16, 32, 64)
        for stage in range(3):
            blocks = [Block(widths[stage], widths[stage + 1], 1 if stage == 0 else 2)]
            blocks += [Block(widths[stage + 1], widths[stage + 1], 1) for _ in range(n - 1)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.linear = nn.Linear(64, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.bn1(self.conv1(x)))
        for stage in (self.layer1, self.layer2, self.layer3):
            x = stage(x)
        return self.linear(x.mean((2, 3)))


def cifar_network(folder: Path, layers: int) -> Model:
    """Return a trained ResNet with its normalisation."""
    (path,) = folder.glob(f"resnet{layers}-*.th")
    stored = torch.load(path, map_location="cpu", weights_only=False)["state_dict"]
    net = CifarResNet((layers - 2) // 6)
    net.load_state_dict({name.removeprefix("module."): value for name, value in stored.items()})
    return Model(net, mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225), name=f"resnet{layers}")


def cifar_images(folder: Path, count: int) -> Batch:
    """Return the first test images, whose classes come in random order."""
    stored = np.load(folder / "test.npz")
    offsets, content = stored["offsets"], stored["jpeg"].tobytes()
    images = []
    for i in range(count):
        blob = content[offsets[i] : offsets[i + 1]]
        images.append(np.asarray(Image.open(io.BytesIO(blob)).convert("RGB")))
    x = torch.from_numpy(np.stack(images)).permute(0, 3, 1, 2).float() / 255
    return Batch(
        tuple(f"test-{i:05d}" for i in range(count)),
        x,
        label=torch.tensor(stored["labels"][:count]).long(),
    )


def drawings(count: int) -> tuple[Model, Batch]:
    """Return the small network of the tests, and drawings for it."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from support.small import model, pictures

    x, labels = pictures(count, seed=5)
    return model(), Batch(tuple(f"drawing-{i:05d}" for i in range(count)), x, label=labels)


EXPLAINERS = [
    "saliency",
    "input_x_gradient",
    "grad_cam",
    {"integrated_gradients": {"steps": 8}},
    "random",
]
EVALUATIONS: list[Any] = [
    {"stability": {"perturbations": ["jpeg", "brightness"], "k": 50}},
    {"faithfulness": {"imputers": ["noisy_linear"], "fractions": [0.3, 0.7], "metrics": ["road"]}},
]


@dataclass(frozen=True)
class Pool:
    """A trained network with all images that there are for it."""

    name: str
    subject: Callable[[], tuple[Model, Any]]


def pools(given: argparse.Namespace) -> list[Pool]:
    """Return the networks for which there are files, or those that were named."""
    every = []
    if given.data is not None:
        for layers in (20, 56):
            every.append(
                Pool(
                    f"ResNet-{layers}",
                    lambda layers=layers: (
                        cifar_network(given.data, layers),
                        cifar_images(given.data, given.images),
                    ),
                )
            )
    if given.photographs is not None:
        every.append(Pool("MobileNetV2", lambda: photographs(given.photographs, given.images)))
    every.append(Pool("drawings", lambda: drawings(given.images)))
    return [pool for pool in every if not given.only or pool.name in given.only]


def photographs(folder: Path, count: int) -> tuple[Model, Data]:
    """Return the MobileNetV2 in the parent of a folder of photographs, and the first of these, in random order."""
    sys.path.insert(0, str(folder.parent))
    mnv2 = importlib.import_module("mnv2")
    model = Model(mnv2.load(folder.parent / "mnv2_imagenet_fp16.pt"), 0.5, 0.5, name="mobilenet_v2")
    return model, open_data(str(folder), name="photographs", size=224).limit(count)


def networks(given: argparse.Namespace, is_printed: bool) -> None:
    """Run stability and faithfulness, and print the samples, passes and errors of `half_width` and `until: decided`."""
    sign_flips.FLIPS = FLIPS
    for pool in pools(given):
        run = _run(pool, given)
        images = len(run.samples())
        passes = sum(sum(session.passes.values()) for session in run.manifest.sessions)
        seconds = sum(float(session.seconds or 0) for session in run.manifest.sessions)
        print(
            f"\n{pool.name}: {images:,} images, {passes:,.0f} passes, {seconds:,.0f} s", flush=True
        )
        if is_printed:
            print()
            _print_network(run, images, passes, given.replicates)


def _run(pool: Pool, given: argparse.Namespace) -> Run:
    """Return the run of one network on all its images; what is in the directory already is not computed again."""
    model, data = pool.subject()
    out = given.out / f"{model.name}-{len(data)}"
    if (out / "manifest.json").exists() and not missing(str(out)):
        return heatproof.read(out)  # the rows of another machine, whose settings may differ
    return heatproof.evaluate(
        model,
        data,
        EXPLAINERS,
        EVALUATIONS,
        out,
        shard_size=given.shard_size,
        device=given.device,
        show_progress=False,
    )


def _print_network(run: Run, images: int, passes: float, orders: int) -> None:
    """Print a row for each half-width and test, and for each margin."""
    by_test = {result.label: result.arrays for result in run.results()}
    choices = [*((test,) for test in by_test), tuple(by_test)]
    every_order = [np.random.default_rng(seed).permutation(images) for seed in range(orders)]

    print(
        "| request | tests | samples (5 %, 95 %) | passes | of all | covers | within ± | as narrow |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for width in WIDTHS:
        planned = {
            test: [_planned(a, o, width) for o in every_order] for test, a in by_test.items()
        }
        for tests in choices:
            counts = np.max([planned[test] for test in tests], axis=0)
            counts = np.minimum(counts, images)
            outcomes = []
            for order, count in zip(every_order, counts.tolist(), strict=True):
                of_tests = [_outcome(by_test[test], order, count, width) for test in tests]
                outcomes.append(np.mean(of_tests, axis=0))
            covers, within, narrow = np.mean(outcomes, axis=0)
            low, high = np.quantile(counts, (0.05, 0.95))
            print(
                f"| ± {width:g} | {' and '.join(tests)} | {counts.mean():,.0f} ({low:,.0f}, {high:,.0f}) | "
                f"{passes * counts.mean() / images:,.0f} | {counts.mean() / images:.0%} | "
                f"{covers:.3f} | {within:.3f} | {narrow:.2f} |",
                flush=True,
            )

    print("\n| until: decided | tests | samples | of all | all decided | wrong, by all images |")
    print("|---|---|---|---|---|---|")
    truth = {test: _all_tests(arrays) for test, arrays in by_test.items()}
    looks = []
    for order in every_order[: max(orders // 5, 1)]:
        looks.append({test: _tests_of_looks(arrays, order) for test, arrays in by_test.items()})
    for margin in (None, 0.05, 0.02):
        for tests in choices:
            decisions = [_decisions(look, truth, tests, margin) for look in looks]
            samples, settled, wrong = np.mean(decisions, axis=0)
            print(
                f"| margin {margin} | {' and '.join(tests)} | {samples:,.0f} | {samples / images:.0%} | "
                f"{settled:.2f} | {wrong:.3f} |",
                flush=True,
            )


def first_samples(arrays: ScoreArrays, order: NDArray[np.int64], count: int) -> ScoreArrays:
    """Return the arrays of the first samples in an order."""
    some = order[:count]

    def cut(stored: Mapping[str, Array]) -> dict[str, Array]:
        return {name: values[:, :, some] for name, values in stored.items()}

    return replace(
        arrays,
        samples=[arrays.samples[i] for i in some],
        values=cut(arrays.values),
        chance=cut(arrays.chance),
        repeats=cut(arrays.repeats),
        status=arrays.status[:, :, some],
    )


def _headline(arrays: ScoreArrays) -> str:
    return next(name for name, declared in arrays.declared.items() if declared.role == "headline")


def _planned(arrays: ScoreArrays, order: NDArray[np.int64], width: float) -> int:
    """Return how many samples the pilot of one order plans."""
    pilot = first_samples(arrays, order, PILOT)
    entries = widths_of(pilot, _headline(arrays), width, 0.95, PILOT)
    return max([PILOT, *(entry.needed or 0 for entry in entries)])


def _outcome(
    arrays: ScoreArrays, order: NDArray[np.int64], count: int, width: float
) -> tuple[float, float, float]:
    """Return the shares of scores whose interval covers that of all images, that are within ±, and that are as narrow."""
    measure = _headline(arrays)
    methods = [e for e, name in enumerate(arrays.explainers) if name not in arrays.controls]
    overall = []
    for some in (arrays, first_samples(arrays, order, count)):
        of_measure = some.for_measure(measure)
        names = [name for name, _ in of_measure.conditions]
        overall.append(of_samples_alone(score_estimates(of_measure, measure).nested(names)))
    truth, scores = overall
    low, high = scores.interval()
    covers = (low <= truth.value) & (truth.value <= high)
    within = np.abs(scores.value - truth.value) <= width
    narrow = half_width(scores) <= width + 1e-9
    return covers[methods].mean(), within[methods].mean(), narrow[methods].mean()


def _all_tests(arrays: ScoreArrays) -> pd.DataFrame:
    """Return the differences of all pairs of methods on all images."""
    return _of_methods(paired_tests(arrays, _headline(arrays)), arrays)


def _of_methods(tests: pd.DataFrame, arrays: ScoreArrays) -> pd.DataFrame:
    is_of_methods = ~tests["a"].isin(arrays.controls) & ~tests["b"].isin(arrays.controls)
    return tests[is_of_methods]


def _tests_of_looks(
    arrays: ScoreArrays, order: NDArray[np.int64]
) -> list[tuple[int, pd.DataFrame]]:
    """Return the samples and the paired tests of every look at one order."""
    sampling = Sampling(until="decided")
    looks = []
    for size in look_sizes(sampling, range(1, len(order) + 1)):
        some = first_samples(arrays, order, size)
        tests = paired_tests(some, _headline(arrays), level=sampling.level)
        looks.append((size, _of_methods(tests, arrays)))
    return looks


def _decisions(
    looks: Mapping[str, list[tuple[int, pd.DataFrame]]],
    truth: Mapping[str, pd.DataFrame],
    tests: Sequence[str],
    margin: float | None,
) -> tuple[float, bool, bool]:
    """Return the samples of one order, whether all pairs are settled, and whether all images contradict one."""
    samples, is_settled, is_wrong = 0, False, False
    for number in range(len(looks[tests[0]])):
        settled, wrong = [], []
        for test in tests:
            samples, seen = looks[test][number]
            is_different = seen["significant"].to_numpy(dtype=bool)
            limit = margin or 0.0
            is_equal = ((seen["low"] > -limit) & (seen["high"] < limit)).to_numpy() & ~is_different
            of_all = truth[test]["difference"].to_numpy()
            reversed_sign = seen["difference"].to_numpy() * of_all < 0
            settled.append((is_different | is_equal).all())
            wrong.append(
                ((is_different & reversed_sign) | (is_equal & (np.abs(of_all) >= limit))).any()
            )
        is_settled, is_wrong = all(settled), any(wrong)
        if is_settled:
            break
    return samples, is_settled, is_wrong


# ---- workers ---------------------------------------------------------------------------------------------------------

STUDY = """\
model: python:{tests}/support/small.py:model
data: python:{here}/bench_precision.py:many_drawings
explainers: [saliency, input_x_gradient]
evaluations: [{{stability: {{perturbations: [brightness], k: 50}}}}]
device: cpu
shard_size: 16
half_width: 0.03
"""


def many_drawings() -> Batch:
    """Return drawings for a study file."""
    return drawings(200)[1]


def workers(with_ray: bool) -> None:
    """Print whether one, two and four workers, shares and Ray test the same samples."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study.yaml"
        study.write_text(STUDY.format(tests=here.parent / "tests", here=here))
        recipe = FromStudy(str(study), allow_code=True)
        executors: dict[str, Any] = {"one process": None}
        executors |= {f"{count} workers": Processes(recipe, count) for count in (2, 4)}
        if with_ray:
            executors["Ray"] = Ray(recipe)
        seen: dict[str, frozenset[str]] = {}
        for name, executor in executors.items():
            run = execute(recipe(0), Path(folder) / name, "bench_precision", False, executor)
            seen[name] = frozenset(run.samples()["sample"])
        for share in ((1, 2), (2, 2)) * 2:
            run = execute(recipe(0), Path(folder) / "shares", "bench_precision", False, share=share)
        seen["--shard 1/2 and 2/2, each twice"] = frozenset(run.samples()["sample"])
    first = seen["one process"]
    for name, samples in seen.items():
        print(f"{name}: {len(samples)} samples, {'the same' if samples == first else 'OTHERS'}")


def main() -> None:
    """Run the part that is named."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("part", choices=("drawn", "decided", "networks", "store", "workers"))
    parser.add_argument("--replicates", type=int, default=500)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--photographs", type=Path, help="a folder; its parent has the MobileNetV2")
    parser.add_argument("--device", help="of the runs of `networks` and `store`")
    parser.add_argument("--shard-size", type=int, default=250)
    parser.add_argument("--only", nargs="*", default=(), help="names of networks")
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "bench-precision")
    parser.add_argument(
        "--ray", action="store_true", help="with Ray too, on a cluster of this machine"
    )
    given = parser.parse_args()
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if given.part == "drawn":
        drawn(given.replicates)
    elif given.part == "decided":
        decided(given.replicates)
    elif given.part in ("networks", "store"):
        networks(given, is_printed=given.part == "networks")
    else:
        workers(given.ray)


if __name__ == "__main__":
    main()

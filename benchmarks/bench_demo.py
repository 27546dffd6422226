"""The study of `make demo` against the same study done pair by pair with Captum, in one process on two cores.

    python benchmarks/bench_demo.py [--limit 3]        (or `make bench`, which runs all benchmarks)

*Pair by pair* is how the published scripts of the four axes work, one photograph and one explainer at a time:

stability     for every perturbation predict and explain both inputs of the pair, then SSIM, Spearman and top-k Jaccard;
certificate   explain, then for every radius anew as many random supersets as Hoeffding's bound asks for;
symmetry      for every group element predict and explain both inputs;
faithfulness  explain, then for every order and fraction one sparse linear system, solved by scipy, and one pass.

Its maps are Captum's: integrated gradients in internal batches of 8, GradientShap with 5 samples, LayerGradCam
enlarged bilinearly, and Lime with one perturbation per pass on scikit-image's quickshift superpixels. Two things are
kinder to it than what is published: the linear systems are built without a loop over pixels, and supersets go through
the network 16 at a time. heatproof does what `make demo` does, so it also pays for what the other side does not have:
chance levels, aligned scores, noise floors, a random order of removal, the gallery, and files on disk. Drawing the
report is timed by itself and counted in the line "with report". What defines the study (perturbations, targets, the
order of removal, its noise, which features an explanation keeps, how ties in Jaccard count) is the same on both sides.

Some of what heatproof does besides is for the first few photographs only: the gallery shows six, and flips are searched
for two. So few photographs are unkind to it, and `--limit 14` is the whole study. `--anew` is for scripts that take one
radius or one fraction each and explain for each of them.

The other controls and axes of the demo (Sobel, weight noise; dependence, agreement, localisation) are left out on both.

The photographs are split: pair by pair does the first half before and the rest after heatproof does all of them, so that
a change of pace of a shared machine falls on both. Integrated gradients, Grad-CAM and the control are functions of
the input: every status must agree and every score up to 1e-3, else the comparison is void. GradientShap, LIME and the
supersets are drawn by other generators, so for them the mean difference is shown with its 95 % interval over
photographs; both maps of a pair start from one seed here too. LIME's draws remain different in kind:
Captum's shift when a perturbed photograph has another number of superpixels, heatproof's do not.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from captum._utils.models.linear_model import SkLearnRidge
from captum.attr import GradientShap, IntegratedGradients, LayerAttribution, LayerGradCam
from captum.attr import Lime as CaptumLime
from scipy import stats
from skimage.segmentation import quickshift
from torch import Tensor
from torch.nn.functional import avg_pool2d

from bench_removal import with_spsolve
from heatproof import Batch, Model, rand
from heatproof.axes.faithfulness.sweeps import (
    feature_means,
    importance,
    removal_ranks,
    removal_sizes,
)
from heatproof.axes.stability.perturbations import condition, level
from heatproof.explainers import RandomMap
from heatproof.explainers.cam_layer import find_layer
from heatproof.features import count, keep
from heatproof.maps.masks import select
from heatproof.maps.similarity import cosine, jaccard, undefined
from heatproof.runs.evaluate import execute
from heatproof.runs.plan import Plan
from heatproof.runs.study.demo import demo_plan
from heatproof.statistics.bounds import sample_size

SEED, SUPERSETS_AT_ONCE, CLOSE = 0, 16, 1e-3
DETERMINISTIC = ("integrated_gradients", "grad_cam", "random")
KEY = ["evaluation", "explainer", "measure", "condition", "level", "sample"]
Explain = Callable[[Batch, int], Tensor]


AXES = ("stability", "certificate", "symmetry", "faithfulness")
METHODS = ("integrated_gradients", "gradient_shap", "grad_cam", "lime", "random")


@dataclass
class Clock:
    """Seconds of wall and of processor time by what they were spent on."""

    wall: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    processor: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    @contextmanager
    def __call__(self, what: str) -> Iterator[None]:
        begun, spent = time.perf_counter(), time.process_time()
        yield
        self.wall[what] += time.perf_counter() - begun
        self.processor[what] += time.process_time() - spent


@dataclass
class PairByPair:
    """The study of a plan, done for one photograph at a time; `rows` is its table."""

    plan: Plan
    model: Model
    anew: bool = False
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    passes: int = 0

    def __post_init__(self) -> None:
        def count_rows(module: torch.nn.Module, inputs: tuple[Tensor, ...]) -> None:
            self.passes += len(inputs[0])

        self.network = self.model.module
        self.network.register_forward_pre_hook(count_rows)
        self.explainers = self._explainers()
        # With the defaults for this data and network filled in.
        (configured,) = self.plan.configured.values()
        self.evaluations = configured.evaluations

    def __call__(self, one: Batch, clock: Clock) -> None:
        for axis in (getattr(self, f"_{name}") for name in AXES):
            with clock(axis.__name__.removeprefix("_")):
                for name, explain in self.explainers.items():
                    axis(one, name, explain)

    def _explainers(self) -> dict[str, Explain]:
        """The plan's explainers by Captum, each from a batch of one and a class to its map."""
        lime, steps, draws = (
            next(item for label, item in self.plan.explainers.items() if label.startswith(name))
            for name in ("lime", "integrated_gradients", "gradient_shap")
        )
        first = next(iter(self.plan.data.values())).load([0]).batch
        layer = self.network.get_submodule(find_layer(self.model, first.x.shape[1:]).path)

        def by_gradients(one: Batch, target: int) -> Tensor:
            method = IntegratedGradients(self.network)
            x = self.model.inputs(one)
            found: Tensor = method.attribute(
                x, 0, target, n_steps=steps.steps, internal_batch_size=8
            )
            return found

        def by_shap(one: Batch, target: int) -> Tensor:
            x = self.model.inputs(one)
            np.random.seed(SEED)  # noqa: NPY002 (Captum draws from the global generators)
            torch.manual_seed(SEED)
            found: Tensor = GradientShap(self.network).attribute(
                x, torch.zeros_like(x), n_samples=draws.samples, stdevs=0.0, target=target
            )
            return found

        def by_layer(one: Batch, target: int) -> Tensor:
            x = self.model.inputs(one)
            coarse = LayerGradCam(self.network, layer).attribute(x, target, relu_attributions=True)
            return LayerAttribution.interpolate(coarse, x.shape[2:], "bilinear").expand_as(x)

        def by_regression(one: Batch, target: int) -> Tensor:
            x = self.model.inputs(one)
            picture = one.x[0].permute(1, 2, 0).double().numpy()
            grouping = lime.features
            segments = quickshift(
                picture, grouping.ratio, grouping.kernel_size, max_dist=grouping.max_dist
            )

            def weight(whole: Tensor, version: Tensor, kept: Tensor, **_: Any) -> Tensor:
                distance = 1 - kept.double().mean().sqrt()
                return (-0.5 * (distance / lime.kernel_width) ** 2).exp()

            method = CaptumLime(
                lambda v: self.network(v).softmax(1), SkLearnRidge(alpha=lime.alpha), weight
            )
            torch.manual_seed(SEED)
            mask = torch.from_numpy(segments)[None, None].expand(1, 3, -1, -1)
            found: Tensor = method.attribute(
                x, 0, target, feature_mask=mask, n_samples=lime.samples
            )
            return found

        def by_nothing(one: Batch, target: int) -> Tensor:
            return RandomMap()(self.model, one, torch.tensor([target]), SEED)

        published = {
            "integrated_gradients": by_gradients,
            "gradient_shap": by_shap,
            "grad_cam": by_layer,
            "lime": by_regression,
            "random": by_nothing,
        }

        def detached(method: Explain) -> Explain:
            return lambda one, target: method(one, target).detach()

        return {
            label: detached(published[label.partition("(")[0]]) for label in self.plan.explainers
        }

    def _predict(self, one: Batch) -> Tensor:
        with torch.no_grad():
            found: Tensor = self.network(self.model.inputs(one))[0].double().softmax(0)
        return found

    def _row(
        self, axis: str, name: str, measure: str, where: tuple[str, float], one: Batch, value: float
    ) -> None:
        status = "ok" if math.isfinite(value) else "undefined"
        self.rows.append((axis, name, measure, *where, one.ids[0], value, status))

    def _stability(self, one: Batch, name: str, explain: Explain) -> None:
        axis: Any = self.evaluations["stability"]
        for perturbation in axis.perturbations:
            where = (condition(perturbation), level(perturbation))
            changed = one.with_x(perturbation(one, SEED))
            target = int(self._predict(one).argmax())
            if int(self._predict(changed).argmax()) != target:
                for measure in ("ssim", "spearman", "jaccard", "fass"):
                    key = ("stability", name, measure, *where, one.ids[0])
                    self.rows.append((*key, math.nan, "flipped"))
                continue
            for measure, value in alike(
                explain(one, target), explain(changed, target), axis.k
            ).items():
                self._row("stability", name, measure, where, one, value)

    def _certificate(self, one: Batch, name: str, explain: Explain) -> None:
        axis: Any = self.evaluations["certificate"]
        target = int(self._predict(one).argmax())
        mask = select(explain(one, target), one, axis.features, fraction=axis.fraction, seed=SEED)
        segments, x = axis.features.segments(one)[0], self.model.inputs(one)[0]
        free = (~mask[0]).nonzero().flatten().numpy()
        draw = np.random.default_rng(SEED)
        size = sample_size(axis.epsilon, axis.delta, "hoeffding")

        def classes(kept: Tensor) -> Tensor:
            with torch.no_grad():
                parts = [
                    keep(x, torch.zeros_like(x), some, segments)
                    for some in kept.split(SUPERSETS_AT_ONCE)
                ]
                return torch.cat([self.network(part).argmax(1) for part in parts])

        for number, radius in enumerate(axis.radii):
            if self.anew and number:
                mask = select(
                    explain(one, target), one, axis.features, fraction=axis.fraction, seed=SEED
                )
            usual = classes(mask)
            chances = np.array([math.comb(len(free), k) for k in range(radius + 1)], dtype=float)
            kept = mask.repeat(size, 1)
            for i, added in enumerate(draw.choice(radius + 1, size, p=chances / chances.sum())):
                kept[i, draw.choice(free, added, replace=False)] = True
            rate = float((classes(kept) == usual).double().mean())
            self._row("certificate", name, "rate", ("radius", float(radius)), one, rate)

    def _symmetry(self, one: Batch, name: str, explain: Explain) -> None:
        axis: Any = self.evaluations["symmetry"]
        elements = axis.group.elements(one)
        found: dict[str, list[float]] = {
            "equivariance": [],
            "model_agreement": [],
            "model_invariance": [],
        }
        for g in elements:
            moved = axis.group.act(g, one)
            before, after = self._predict(one), self._predict(moved)
            target = int(before.argmax())
            expected = axis.group.move(g, explain(one, target))
            found["equivariance"].append(
                float(cosine(explain(moved, target).double(), expected.double()))
            )
            found["model_agreement"].append(float(after.argmax() == before.argmax()))
            found["model_invariance"].append(float(cosine(after[None], before[None])))
        for measure, values in found.items():
            where = (axis.group.name, float(len(elements)))
            self._row("symmetry", name, measure, where, one, float(np.mean(values)))

    def _faithfulness(self, one: Batch, name: str, explain: Explain) -> None:
        axis: Any = self.evaluations["faithfulness"]
        (imputer,) = axis.imputers
        target = int(self._predict(one).argmax())
        values = importance(explain(one, target))
        segments = axis.features.segments(one)
        counts = count(segments)
        means = feature_means(values, segments, int(counts))
        noise = (
            imputer.sigma
            * rand.normal(rand.keys(SEED, one.ids, "removal: noisy linear"), one.x.shape[1:])[0]
        )
        curves: dict[str, list[float]] = {"morf": [], "lerf": []}
        for order, curve in curves.items():
            ranks = removal_ranks(means, counts, one.ids, order, SEED).gather(
                1, segments.flatten(1)
            )
            for fraction, size in zip(
                axis.fractions, removal_sizes(axis.fractions, counts)[0], strict=True
            ):
                if self.anew and (curve or order != "morf"):
                    explain(one, target)
                kept = (ranks >= size).reshape(segments.shape)[0]
                filled = with_spsolve(one.x[0], kept, 0.0).float() + noise * ~kept
                curve.append(float(self._predict(one.with_x(filled[None]))[target]))
                where = (f"{imputer.name} {order}", fraction)
                self._row("faithfulness", name, "probability", where, one, curve[-1])
        road = (np.array(curves["lerf"]) - np.array(curves["morf"])).mean() / 2
        self._row("faithfulness", name, "road", (imputer.name, 0.0), one, float(road))


def alike(a: Tensor, b: Tensor, k: int) -> dict[str, float]:
    """The three measures and their mean, from maps (1, C, H, W)."""
    if bool(undefined(a) | undefined(b)):
        return dict.fromkeys(("ssim", "spearman", "jaccard", "fass"), math.nan)
    x, y = ((m - m.min()) / (m.max() - m.min()) for m in (a.double(), b.double()))

    def mean(maps: Tensor) -> Tensor:
        return avg_pool2d(maps, 11, 1, 5)

    both = mean(x) * mean(y)
    squares, variances = mean(x) ** 2 + mean(y) ** 2, mean(x * x) + mean(y * y)
    local = (2 * both + 0.01**2) * (2 * (mean(x * y) - both) + 0.03**2)
    ssim = float((local / ((squares + 0.01**2) * (variances - squares + 0.03**2))).mean())
    rank = float(stats.spearmanr(a.flatten().numpy(), b.flatten().numpy()).statistic)
    parts = {"ssim": ssim, "spearman": (rank + 1) / 2, "jaccard": float(jaccard(a, b, k))}
    return {**parts, "fass": sum(parts.values()) / 3}


def as_published(ours: pd.DataFrame) -> pd.DataFrame:
    """Return our rows with maps of moved inputs compared where they lie, as the published scripts do it."""
    is_unaligned = ours["measure"].str.endswith("_unaligned")
    unaligned = ours[is_unaligned].assign(
        measure=ours["measure"].str.removesuffix("_unaligned")[is_unaligned]
    )
    return pd.concat([unaligned, ours[~is_unaligned]]).drop_duplicates(KEY)


def compare_tables(theirs: pd.DataFrame, ours: pd.DataFrame) -> None:
    """Print how far the tables differ; ends the program where what must agree does not."""
    both = theirs.merge(
        as_published(ours), on=KEY, how="left", suffixes=("", "_ours"), validate="one_to_one"
    )
    if both["status_ours"].isna().any():
        raise SystemExit("heatproof has no row for some of the pairs: the comparison is void")
    both["difference"] = both["value_ours"] - both["value"]
    both["method"] = both["explainer"].str.partition("(")[0]
    fixed = both["method"].isin(DETERMINISTIC) & (both["evaluation"] != "certificate")
    other = both[both["status"] != both["status_ours"]]
    if len(other):
        print(other.to_string(index=False))
        raise SystemExit("the statuses differ: the comparison is void")
    print(
        f"\nthe same {len(both)} rows with the same statuses ({(both['status'] != 'ok').sum()} flipped or undefined)"
    )
    print("largest difference where nothing is drawn anew:")
    worst = (
        both[fixed].groupby(["evaluation", "measure"])["difference"].agg(lambda d: d.abs().max())
    )
    print(worst.to_string(float_format="{:.1e}".format, header=False))
    print("mean difference and its 95 % interval where draws differ, in scores:")
    for (axis, measure, method), part in both[~fixed].groupby(["evaluation", "measure", "method"]):
        gap = (
            part.groupby("sample")["difference"].mean().dropna()
        )  # what belongs to one photograph is not independent
        reach = stats.t.ppf(0.975, len(gap) - 1) * gap.sem() if len(gap) > 1 else math.nan
        verdict = "  0 is outside" if abs(gap.mean()) > reach + 1e-6 else ""
        means = f"{part['value'].mean():.3f} → {part['value_ours'].mean():.3f}"
        print(
            f"  {axis:13}{measure:17}{method:21}{means:>15}  {gap.mean():+.3f} ± {reach:.3f}{verdict}"
        )
    if worst.max() > CLOSE:
        raise SystemExit(f"scores differ by more than {CLOSE}: the comparison is void")


def bare(model: Model, x: Tensor, gradient: bool) -> float:
    """Processor seconds of a row of a full batch in the network alone, the least of four times."""
    x = model.inputs(Batch(("",) * 8, x[:1].repeat(8, 1, 1, 1))).contiguous(
        memory_format=torch.channels_last
    )
    spent = []
    for _ in range(4):
        begun, leaf = time.process_time(), x.detach().requires_grad_(gradient)
        with torch.set_grad_enabled(gradient):
            found = model.module(leaf)
        if gradient:
            torch.autograd.grad(found[:, 0].sum(), leaf)
        spent.append(time.process_time() - begun)
    return min(spent) / len(x)


def shared(plan: Plan) -> Plan:
    """The study without the methods and axes that the other side has not."""
    methods = {
        name: item for name, item in plan.explainers.items() if name.partition("(")[0] in METHODS
    }
    configured = {}
    for place, study in plan.configured.items():
        configured[place] = replace(
            study,
            explainers={name: study.explainers[name] for name in methods},
            evaluations={name: study.evaluations[name] for name in AXES},
        )
    return replace(
        plan,
        explainers=methods,
        evaluations={name: plan.evaluations[name] for name in AXES},
        configured=configured,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="`make demo` against the same study pair by pair")
    parser.add_argument(
        "--limit", type=int, default=3, help="how many photographs, of the 14 of `make demo`"
    )
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--anew",
        action="store_true",
        help="pair by pair, explain again for each radius and fraction",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    warnings.filterwarnings("ignore", module="captum")  # it warns of hooks that it sets itself
    plan, twin = (shared(demo_plan(limit)) for limit in (options.limit, 1))
    (data,), (ours,), (model,) = plan.data.values(), plan.models.values(), twin.models.values()
    pairwise = PairByPair(plan, model, options.anew)
    first = data.load([0]).batch
    for label, explainer in plan.explainers.items():  # no side pays for imports and first calls
        pairwise.explainers[label](first, 0)
        explainer(ours, first, torch.tensor([0]), SEED)
    pairwise.passes = 0
    theirs, mine = Clock(), Clock()
    half = options.limit // 2
    with tempfile.TemporaryDirectory() as folder:
        for position in range(half):
            pairwise(data.load([position]).batch, theirs)
        before = ours.passes, ours.gradient_passes
        with mine("all"):
            run = execute(plan, Path(folder), "bench_demo", show_progress=False)
            table = run.table()
        passes, differentiated = ours.passes - before[0], ours.gradient_passes - before[1]
        with mine("report"):
            run.report()
        for position in range(half, options.limit):
            pairwise(data.load([position]).batch, theirs)
        durations = run.manifest.sessions[-1].durations
    print(
        f"{options.limit} photographs, {options.threads} threads; seconds, processor time of all threads in brackets"
    )
    print(f"{'':14}{'pair by pair':>20}{'heatproof':>20}{'ratio':>8}")
    for axis, spent in theirs.wall.items():
        own = durations[axis]
        print(
            f"{axis:14}{spent:11.1f} ({theirs.processor[axis]:6.1f}){own:11.1f}{spent / own:17.2f}"
        )
    wall, processor = sum(theirs.wall.values()), sum(theirs.processor.values())
    for what, parts in (("all", ("all",)), ("with report", ("all", "report"))):
        own, spent = (sum(clock[p] for p in parts) for clock in (mine.wall, mine.processor))
        print(
            f"{what:14}{wall:11.1f} ({processor:6.1f}){own:11.1f} ({spent:6.1f}){wall / own:8.2f}",
            end="",
        )
        print(f" (processor time {processor / spent:.2f})")
    print(f"{'passes':14}{pairwise.passes:20}{passes:20}{pairwise.passes / passes:8.2f}")
    rates = [bare(ours, first.x, gradient) for gradient in (False, True)]
    least = (passes - differentiated) * rates[0] + differentiated * rates[1]
    print(
        f"{differentiated} of heatproof's passes are differentiated; the network alone takes {least:.1f} s of processor"
    )
    print(
        f"for them ({1000 * rates[0]:.1f} and {1000 * rates[1]:.1f} ms): all else for nothing, {processor / least:.2f}"
    )
    names = [*KEY, "value", "status"]
    compare_tables(pd.DataFrame(pairwise.rows, columns=names), table[names])


if __name__ == "__main__":
    main()

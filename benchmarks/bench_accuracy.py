"""How near maps come to the truth at equal passes: beside the schemes of SHAP, Captum and LIME, and our own before.

    python benchmarks/bench_accuracy.py --device cuda     everything, a few minutes on a GPU
    python benchmarks/bench_accuracy.py                   seconds on a processor, with a small network: does it run
    python benchmarks/bench_accuracy.py --only shapley ig rise expected lime stability

`shapley`: squared error relative to the map against exact Shapley values of EfficientNet-Lite0's logit on photographs,
12 and 16 rectangles by all 2ⁿ coalitions, and 196 against a run of ours of 80,000 passes; and with how many times our
passes a scheme has our error, on the line between its measured errors, both logarithmic. `lime`: the same for LIME's
coefficients, against their limit. The schemes of `shap.KernelExplainer` (without its selection of ten features), of
`captum.attr.KernelShap` and of `lime` are written anew here, so that no package is needed;
`tests/explainers/test_bench_accuracy.py` holds the first to its package draw by draw, and the second by its errors.
`ig`: the map's error against 2,000 steps for every rule. `rise`, `expected`: with how many times the passes independent
draws have the error of ours. `stability`: scores of LIME and KernelSHAP with the draws of 0.1.0 and with those of now,
at the same passes.
"""

from __future__ import annotations

import argparse
import itertools
import math
import time
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

import heatproof
from heatproof import (
    Batch,
    ExpectedGradients,
    GradientShap,
    IntegratedGradients,
    KernelShap,
    Lime,
    Model,
    rand,
)
from heatproof.explainers.coalitions import shapley_coalitions
from heatproof.explainers.masking import smooth_masks
from heatproof.explainers.sampling import (
    _maps_by_regression,
    lime_masks,
    shapley_regression,
    weighted_ridge,
)
from heatproof.features import Patches

Scheme = Callable[[int, int, int], tuple[Tensor, Tensor]]
"""(n, passes, seed) -> coalitions (passes, n), of which the first two are the whole and the empty set, and weights."""
RULES = ("gausslegendre", "riemann_middle", "riemann_trapezoid", "riemann_left", "riemann_right")


class Game:
    """The score of one photograph's class when only some rectangles of a grid are there; the rest is 0."""

    def __init__(self, model: Model, x: Tensor, grid: tuple[int, int], rows: int) -> None:
        self.model, self.rows, self.n = model, rows, math.prod(grid)
        self.x = model.inputs(Batch(("x",), x[None].to(model.device))).detach()
        with torch.no_grad():
            self.target = int(model.logits(self.x).argmax())
        down, across = (torch.arange(s) * g // s for s, g in zip(x.shape[1:], grid, strict=True))
        self.segment = (down[:, None] * grid[1] + across).to(model.device)

    def __call__(self, kept: Tensor) -> Tensor:
        found = []
        with torch.no_grad():
            for part in kept.split(self.rows):
                mask = part.to(self.segment.device)[:, self.segment]
                found.append(
                    self.model.logits(self.x * mask[:, None])[:, self.target].double().cpu()
                )
        return torch.cat(found)


def every_coalition(n: int) -> Tensor:
    return ((torch.arange(2**n)[:, None] >> torch.arange(n)) & 1).bool()


def looked_up(game: Game) -> Callable[[Tensor], Tensor]:
    """The game from a table of all its values."""
    values, digit = game(every_coalition(game.n)), 2 ** torch.arange(game.n)
    return lambda kept: values[(kept.long() * digit).sum(1)]


def exact_shapley(n: int, play: Callable[[Tensor], Tensor]) -> Tensor:
    """φᵢ = Σ_z [i ∈ z]·w(|z| − 1)·(v(z) − v(z without i)) over all coalitions."""
    kept = every_coalition(n)
    values, size = play(kept), kept.sum(1)
    log = torch.lgamma(torch.arange(n + 2).double() + 1)
    found = []
    for i in range(n):
        inside = kept[:, i]
        without = kept[inside].clone()
        without[:, i] = False
        s = size[inside] - 1
        weight = (log[s] + log[n - 1 - s] - log[n]).exp()
        found.append((weight * (values[inside] - play(without))).sum())
    return torch.stack(found)


def ours(n: int, passes: int, seed: int) -> tuple[Tensor, Tensor]:
    kept, weight = shapley_coalitions(
        rand.keys(seed, ("x",), "bench"), torch.tensor([n]), n, passes - 2
    )
    return kept[0], weight[0]


def as_shap(n: int, passes: int, seed: int) -> tuple[Tensor, Tensor]:
    """SHAP's: sizes are listed while their share of the draws suffices, then distinct draws in pairs, counted."""
    draws = np.random.RandomState(
        seed
    )  # the package's own kind of generator, so that a test can compare
    budget = min(passes - 2, 2**n - 2) if n <= 30 else passes - 2
    sizes, paired = math.ceil((n - 1) / 2), (n - 1) // 2
    share = np.array(
        [(n - 1) / (s * (n - s)) * (2 if s <= paired else 1) for s in range(1, sizes + 1)]
    )
    share /= share.sum()
    chosen: dict[tuple[bool, ...], float] = {}
    listed, left, rest = 0, budget, share.copy()
    for s in range(1, sizes + 1):
        both = math.comb(n, s) * (2 if s <= paired else 1)
        if left * rest[s - 1] / both < 1 - 1e-8:
            break
        listed, left = listed + 1, left - both
        rest = rest / (1 - rest[s - 1]) if rest[s - 1] < 1 else rest
        for members in itertools.combinations(range(n), s):
            mask = tuple(i in members for i in range(n))
            for one in (mask, tuple(not m for m in mask))[: 2 if s <= paired else 1]:
                chosen[one] = share[s - 1] / both
    counted: dict[tuple[bool, ...], float] = {}
    if listed < sizes:
        chance = np.where(np.arange(sizes) < paired, share / 2, share)[listed:]
        for which in draws.choice(len(chance), 4 * left, p=chance / chance.sum()):
            if len(counted) >= left:
                break
            s = int(which) + listed + 1
            members = set(draws.permutation(n)[:s].tolist())
            mask = tuple(i in members for i in range(n))
            other = tuple(not m for m in mask)
            is_new, room = mask not in counted, len(counted) + 1 < left
            counted[mask] = counted.get(mask, 0.0) + 1
            if s <= paired and (room if is_new else True):
                counted[other] = counted.get(other, 0.0) + 1
        scale = share[listed:].sum() / sum(counted.values())
        chosen |= {mask: count * scale for mask, count in counted.items()}
    kept = torch.tensor([[True] * n, [False] * n, *chosen])
    return kept, torch.tensor([1.0, 1.0, *chosen.values()], dtype=torch.float64)


def as_captum(n: int, passes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Captum's: independent draws, and a weight of a million for the whole and the empty set."""
    generator = torch.Generator().manual_seed(seed)
    size = torch.arange(1, n, dtype=torch.float64)
    chance = (n - 1) / (size * (n - size))
    drawn = torch.multinomial(chance, passes - 2, replacement=True, generator=generator) + 1
    order = torch.rand(passes - 2, n, generator=generator).argsort(1).argsort(1)
    kept = torch.cat([torch.ones(1, n), torch.zeros(1, n), (order < drawn[:, None])]).bool()
    return kept, torch.tensor([1e6, 1e6] + [1.0] * (passes - 2), dtype=torch.float64)


def fitted(scheme: Scheme, kept: Tensor, values: Tensor, weight: Tensor) -> Tensor:
    """The values of features (n,): by the constrained regression, or for Captum by one with an intercept."""
    if scheme is as_captum:
        design = (
            torch.cat([kept.double(), torch.ones(len(kept), 1, dtype=torch.float64)], 1)
            * weight.sqrt()[:, None]
        )
        return torch.linalg.lstsq(
            design, (values * weight.sqrt())[:, None], driver="gelsd"
        ).solution[:-1, 0]
    n = torch.tensor([kept.shape[1]])
    solve = shapley_regression if scheme is ours else plain_regression
    return solve(kept[None], values[None], weight[None], n)[0]


def plain_regression(kept: Tensor, scores: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
    """As SHAP fits, and as we did in 0.1.0: the constrained least squares without a penalty, by any coalitions."""
    share = (scores[:, :1] - scores[:, 1:2]) / counts[:, None]
    z = kept[:, 2:].double()
    centred = z - (z.sum(2) / counts[:, None])[..., None]
    rest = scores[:, 2:] - scores[:, 1:2] - share * z.sum(2)
    root = weight[:, 2:].sqrt()
    fitted = torch.linalg.pinv(root[..., None] * centred, rtol=1e-10) @ (root * rest)[..., None]
    return share + fitted[..., 0]


def errors(
    scheme: Scheme,
    play: Callable[[Tensor], Tensor],
    truth: Tensor,
    passes: Sequence[int],
    seeds: int,
) -> list[float]:
    """Mean over seeds of the squared error relative to the map, for every number of passes."""
    n, found = len(truth), []
    for count in passes:
        each = []
        for seed in range(seeds):
            kept, weight = scheme(n, count, seed)
            each.append(
                float(
                    (fitted(scheme, kept, play(kept), weight) - truth).square().sum()
                    / truth.square().sum()
                )
            )
        found.append(float(np.mean(each)))
    return found


def passes_for(error: float, passes: Sequence[int], curve: Sequence[float]) -> float:
    """With how many passes a curve has this error: on the line through the two nearest points, in logarithms."""
    x, y = np.log(np.asarray(passes, float)), np.log(np.asarray(curve, float))
    at = int(np.clip(np.searchsorted(-y, -math.log(error)), 1, len(x) - 1))
    slope = (y[at] - y[at - 1]) / (x[at] - x[at - 1])
    return float(np.exp(x[at] + (math.log(error) - y[at]) / min(slope, -0.1)))


def shapley(model: Model, photos: Tensor, given: argparse.Namespace) -> None:
    cases = [
        ((3, 4), (50, 100, 200, 400, 800, 1600), 20),
        ((4, 4), (100, 200, 400, 800, 1600, 3200, 6400), 10),
    ]
    cases += [((14, 14), (500, 1000, 2000, 4000, 8000), 2)]
    if given.tiny:
        cases = [((2, 4), (30, 60, 120), 5), ((6, 6), (100, 200, 400), 2)]
    for grid, passes, seeds in cases:
        n = math.prod(grid)
        some = photos if n <= 16 else photos[:2]
        curves: dict[str, list[list[float]]] = {}
        for photo in some:
            game = Game(model, photo, grid, given.rows)
            play = looked_up(game) if n <= 16 else game
            if n <= 16:
                truth = exact_shapley(n, play)
            else:
                kept, weight = ours(n, 40 * passes[2] if not given.tiny else 4000, seed=10**6)
                truth = fitted(ours, kept, play(kept), weight)
            for name, scheme in (("ours", ours), ("SHAP's", as_shap), ("Captum's", as_captum)):
                curves.setdefault(name, []).append(errors(scheme, play, truth, passes, seeds))
        means = {name: np.mean(found, 0) for name, found in curves.items()}
        print(
            f"\nShapley values, n = {n}, {len(some)} photographs, {seeds} seeds: squared error relative to the map"
        )
        print(f"{'passes':<12}" + "".join(f"{count:>10}" for count in passes))
        for name, curve in means.items():
            print(f"{name:<12}" + "".join(f"{error:>10.4f}" for error in curve))
        for at in range(1, len(passes) - 2):
            goal = means["ours"][at]
            times = {
                n: passes_for(goal, passes, means[n]) / passes[at] for n in means if n != "ours"
            }
            print(
                f"the error of ours at {passes[at]:>5} passes: "
                + ", ".join(f"{n} {t:.1f}×" for n, t in times.items())
            )


def lime(model: Model, photos: Tensor, given: argparse.Namespace) -> None:
    """Ours against independent masks, as in `lime`, each against the limit that both have."""
    grid, passes, seeds, long = ((7, 7), (250, 500, 1000, 2000, 4000), 3, 40_000)
    if given.tiny:
        grid, passes, seeds, long = (4, 4), (60, 120, 240), 3, 4000
    n = math.prod(grid)

    def coefficients(kept: Tensor, values: Tensor) -> Tensor:
        distance = 1 - (kept.sum(1) / n).double().sqrt()
        weight = (-0.5 * (distance / 0.25) ** 2).exp()[None]
        return weighted_ridge(kept[None].double(), values[None], weight, 1.0)[0]

    def in_pairs(count: int, seed: int) -> Tensor:
        return lime_masks(rand.keys(seed, ("x",), "bench"), torch.tensor([n]), n, count)[0]

    def as_lime(count: int, seed: int) -> Tensor:
        kept = torch.from_numpy(np.random.RandomState(seed).randint(0, 2, (count, n))).bool()
        kept[0] = True
        return kept

    curves: dict[str, list[list[float]]] = {"ours": [], "lime's": []}
    for photo in photos[:2]:
        game = Game(model, photo, grid, given.rows)
        kept = in_pairs(long, 10**6)
        truth = coefficients(kept, game(kept))
        for name, draw in (("ours", in_pairs), ("lime's", as_lime)):
            off = [
                [coefficients(k := draw(c, s), game(k)) - truth for s in range(seeds)]
                for c in passes
            ]
            curves[name].append(
                [
                    float(np.mean([o.square().sum() / truth.square().sum() for o in row]))
                    for row in off
                ]
            )
    _compare(
        f"LIME, n = {n}, against {long} passes",
        passes,
        {k: np.mean(v, 0) for k, v in curves.items()},
        "lime's",
    )


def ig(model: Model, photos: Tensor, given: argparse.Namespace) -> None:
    batch = Batch(tuple(map(str, range(len(photos)))), photos.to(model.device))
    target = model.logits(model.inputs(batch)).argmax(1).detach()
    long = 200 if given.tiny else 2000
    truth = IntegratedGradients(steps=long, method="riemann_middle")(
        model, batch, target, 0
    ).flatten(1)
    counts = (8, 16, 32, 50, 100)
    print(
        f"\nIntegrated gradients: error of the map relative to that of {long} steps (Captum has the same rules)"
    )
    print(f"{'steps':<20}" + "".join(f"{count:>9}" for count in counts))
    for rule in RULES:
        maps = [
            IntegratedGradients(steps=count, method=rule)(model, batch, target, 0).flatten(1)
            for count in counts
        ]
        line = [float(((m - truth).norm(dim=1) / truth.norm(dim=1)).mean()) for m in maps]
        print(f"{rule:<20}" + "".join(f"{value:>9.4f}" for value in line))


def rise(model: Model, photos: Tensor, given: argparse.Namespace) -> None:
    counts, seeds, long = (
        ((250, 500, 1000, 2000), 3, 32_000) if not given.tiny else ((50, 100, 200), 3, 1000)
    )
    curves: dict[str, list[list[float]]] = {"ours": [], "independent": []}

    def mapped(x: Tensor, target: int, count: int, seed: int, pairs: bool) -> Tensor:
        key, total = (
            rand.keys(seed, ("x",), "bench").to(x.device),
            torch.zeros(x.shape[2:], device=x.device),
        )
        for part in torch.arange(count, device=x.device).split(given.rows):
            at = rand.fold(key, part // 2 if pairs else part)
            mirrored = part % 2 == 1 if pairs else None
            masks = smooth_masks(at, rand.fold(at, 7), 7, 0.5, *x.shape[2:], mirrored)
            with torch.no_grad():
                share = model.logits(x * masks[:, None]).softmax(1)[:, target]
            total += (share[:, None, None] * masks).sum(0)
        return total / (count * 0.5)

    for photo in photos[:2]:
        x = model.inputs(Batch(("x",), photo[None].to(model.device))).detach()
        target = int(model.logits(x).argmax())
        truth = mapped(x, target, long, 10**6, pairs=True)
        for name, rows in curves.items():
            found = [
                [mapped(x, target, c, s, name == "ours") for s in range(seeds)] for c in counts
            ]
            rows.append([_relative(row, truth) for row in found])
    means = {name: np.mean(found, 0) for name, found in curves.items()}
    _compare(f"RISE, against {long} passes", counts, means, "independent")


def expected(model: Model, photos: Tensor, given: argparse.Namespace) -> None:
    counts, seeds, long = (
        ((16, 32, 64, 128, 256), 4, 8192) if not given.tiny else ((16, 32, 64), 3, 512)
    )
    batch = Batch(tuple(map(str, range(len(photos)))), photos.to(model.device))
    target = model.logits(model.inputs(batch)).argmax(1).detach()
    truth = ExpectedGradients(samples=long, baseline=batch)(model, batch, target, 10**6)
    means = {
        name: np.array(
            [
                _relative(
                    [
                        kind(samples=c, baseline=batch)(model, batch, target, s)
                        for s in range(seeds)
                    ],
                    truth,
                )
                for c in counts
            ]
        )
        for name, kind in (("ours", ExpectedGradients), ("independent", GradientShap))
    }
    _compare(
        f"Expected gradients, {len(photos)} baselines, against {long} passes",
        counts,
        means,
        "independent",
    )


def _relative(maps: Sequence[Tensor], truth: Tensor) -> float:
    return float(np.mean([float((m - truth).square().sum() / truth.square().sum()) for m in maps]))


def _compare(title: str, counts: Sequence[int], means: dict[str, np.ndarray], other: str) -> None:
    print(f"\n{title}: squared error relative to the map")
    print(f"{'passes':<14}" + "".join(f"{count:>10}" for count in counts))
    for name, curve in means.items():
        print(f"{name:<14}" + "".join(f"{value:>10.5f}" for value in curve))
    middle = len(counts) // 2 - 1
    times = passes_for(means["ours"][middle], counts, means[other]) / counts[middle]
    print(f"the error of ours at {counts[middle]} passes: {other} {times:.1f}×")


def lime_before(samples: int, features: Patches) -> Callable[..., Tensor]:
    """LIME with the independent masks of 0.1.0."""

    def explain(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        def draw(key: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
            place = rand.fold(key[:, None], torch.arange(samples, device=key.device))
            kept = rand.bits(place.flatten(), n).reshape(len(key), samples, n) < 0
            kept[:, 0] = True
            distance = 1 - (kept.sum(2) / counts[:, None].double()).sqrt()
            return kept, (-0.5 * (distance / 0.25) ** 2).exp().clamp(
                min=torch.finfo(torch.float64).tiny
            )

        def solve(kept: Tensor, scores: Tensor, weight: Tensor, counts: Tensor) -> Tensor:
            return weighted_ridge(kept.double(), scores, weight, 1.0)

        return _maps_by_regression(
            Lime(samples=samples, features=features), model, batch, target, seed, draw, solve
        )

    return explain


def shap_before(samples: int, features: Patches) -> Callable[..., Tensor]:
    """KernelSHAP with the draws of 0.1.0: independent pairs of complements, of sizes by the Shapley kernel."""

    def explain(model: Model, batch: Batch, target: Tensor, seed: int) -> Tensor:
        def draw(key: Tensor, counts: Tensor, n: int) -> tuple[Tensor, Tensor]:
            pairs = samples // 2
            size = torch.arange(1, n, dtype=torch.float64, device=key.device)
            ends = (1 / (size * (n - size))).cumsum(0)
            place = rand.fold(key[:, None], torch.arange(pairs, device=key.device)).flatten()
            wanted = 1 + torch.searchsorted(
                ends / ends[-1], rand.uniform(rand.fold(place, 1), (1,)).double()[:, 0]
            )
            rank = rand.bits(place, n).argsort(1).argsort(1)
            half = (rank < wanted.clamp(max=n - 1)[:, None]).reshape(len(key), pairs, n)
            kept = torch.stack([half, ~half], 2).flatten(1, 2)
            edges = torch.stack([torch.ones_like(kept[:, 0]), torch.zeros_like(kept[:, 0])], 1)
            whole = torch.cat([edges, kept], 1)
            return whole, torch.ones(whole.shape[:2], dtype=torch.float64, device=key.device)

        explainer = KernelShap(samples=samples, features=features)
        return _maps_by_regression(explainer, model, batch, target, seed, draw, plain_regression)

    return explain


def stability(model: Model, photos: Tensor, given: argparse.Namespace) -> None:
    size, samples = (8, 40) if given.tiny else (32, 400)
    features = Patches(size)
    explainers = {
        "LIME, 0.1.0": lime_before(samples, features),
        "LIME, now": Lime(samples=samples, features=features),
        "KernelSHAP, 0.1.0": shap_before(samples, features),
        "KernelSHAP, now": KernelShap(samples=samples, features=features),
    }
    changes = ["jpeg", "brightness", {"gaussian_noise": {"sigma": 0.02}}]
    k = 50 if given.tiny else 1000
    batch = Batch(tuple(f"p{i}" for i in range(len(photos))), photos)
    run = heatproof.evaluate(
        model,
        batch,
        explainers,
        heatproof.Stability(perturbations=changes, k=k),
        show_progress=False,
    )
    table = run.table()
    table = table[(table.measure == "fass") & (table.status == "ok")]
    means = table.groupby(["explainer", "condition"], observed=True)["value"].mean().unstack()
    print(
        f"\nStability at {samples} passes a map, {len(photos)} photographs: mean raw FASS (redraw: its own noise)"
    )
    print(means.reindex(list(explainers)).round(3).to_string())


PARTS = {
    "shapley": shapley,
    "lime": lime,
    "ig": ig,
    "rise": rise,
    "expected": expected,
    "stability": stability,
}


def tiny_network() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        head = (nn.Conv2d(8, 12, 3, stride=2), nn.SiLU(), nn.Flatten(), nn.LazyLinear(5))
        net = nn.Sequential(nn.Conv2d(3, 8, 5, stride=2), nn.SiLU(), *head)
        net(torch.zeros(1, 3, 32, 32))
        return net.eval()


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=512, help="inputs in one pass")
    parser.add_argument("--photographs", type=int, default=4)
    parser.add_argument("--only", nargs="+", choices=list(PARTS), default=list(PARTS))
    parser.add_argument("--full", action="store_true", help="on a processor too, which takes hours")
    given = parser.parse_args(arguments)
    given.tiny = given.device == "cpu" and not given.full
    data = heatproof.open_data("bundled:photographs", size=32 if given.tiny else 224)
    count = 12 if given.only == ["stability"] else given.photographs
    photos = data.load(range(min(count, len(data.ids)))).batch.x
    model = (
        Model(tiny_network()) if given.tiny else heatproof.load_model("bundled:efficientnet-lite0")
    )
    model = model.to(given.device)
    model.rows = given.rows
    for name in given.only:
        begun = time.perf_counter()
        PARTS[name](model, photos, given)
        print(f"({name}: {time.perf_counter() - begun:.0f} s)", flush=True)


if __name__ == "__main__":
    main()

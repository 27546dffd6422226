"""Certificates: coverage of 10,000 of each kind, and model passes against the paper's N = 150 at the same ε and δ.

    python benchmarks/bench_certificates.py [--photographs 4]

Coverage is measured on linear models whose stability rate is known by trying every superset. Passes are counted on
real explanations of EfficientNet-Lite0 on the bundled photographs. Runs in about two minutes on two cores.
"""

from __future__ import annotations

import argparse
import time
from itertools import product

import torch
from torch import Tensor, nn

import heatproof
from heatproof import Batch, Model, open_data
from heatproof.axes.certificate.certify import certify
from heatproof.axes.certificate.sequential import Rule, decide_rule, endings, estimate_rule
from heatproof.features import Patches, Pixels
from heatproof.maps.masks import select
from heatproof.statistics.bounds import sample_size

EPSILON = DELTA = 0.1
PAPER = sample_size(EPSILON, DELTA, "hoeffding")
FEATURES, SELECTED, RADIUS = 14, 3, 6


def expected_draws(rule: Rule, tau: float) -> float:
    """Return the mean number of draws until a rule stops, exactly."""
    ends = endings(rule.looks, rule.stop.numpy())
    return float(ends.law(tau)[0] @ ends.draws)


def table(title: str, header: tuple[str, ...], rows: list[tuple[object, ...]]) -> None:
    """Print rows with aligned columns."""
    text = [
        [f"{v:.3f}" if isinstance(v, float) else str(v) for v in row] for row in [header, *rows]
    ]
    widths = [max(len(row[i]) for row in text) for i in range(len(header))]
    print(f"\n{title}")
    for row in text:
        print(
            "  "
            + "  ".join(
                v.ljust(w) if i == 0 else v.rjust(w)
                for i, (v, w) in enumerate(zip(row, widths, strict=True))
            )
        )


def random_linear(features: int) -> Model:
    """Three classes from a linear map with random weights."""
    g = torch.Generator().manual_seed(3)
    net = nn.Linear(features, 3)
    with torch.no_grad():
        net.weight.copy_(torch.randn(3, features, generator=g))
        net.bias.zero_()
    return Model(net, rows=8192)


def explanations(samples: int, features: int, selected: int) -> tuple[Tensor, Tensor]:
    """Random inputs and random explanations of a fixed size."""
    g = torch.Generator().manual_seed(0)
    x = torch.randn(samples, features, generator=g)
    order = torch.rand(samples, features, generator=g).argsort(1)
    return x, torch.zeros(samples, features, dtype=torch.bool).scatter(1, order[:, :selected], True)


def truth(model: Model, x: Tensor, mask: Tensor, radius: int) -> Tensor:
    """The stability rate by trying every superset, (B,)."""
    added = torch.tensor(list(product([False, True], repeat=FEATURES - SELECTED)))
    added = added[added.sum(1) <= radius]
    rates = []
    for one, alpha in zip(x, mask, strict=True):
        every = alpha.expand(len(added), -1).clone()
        every[:, ~alpha] = added
        same = model.logits(one * every).argmax(1) == model.logits((one * alpha)[None]).argmax()
        rates.append(same.double().mean())
    return torch.stack(rates)


def coverage() -> None:
    """Miss rates of 10,000 certificates per method; all must be at most δ."""
    model = random_linear(FEATURES)
    x, mask = explanations(100, FEATURES, SELECTED)
    tau = truth(model, x, mask, RADIUS).repeat(100)
    batch = Batch(tuple(f"{i}" for i in range(10_000)), x.repeat(100, 1))
    rows: list[tuple[object, ...]] = []
    for name, options in {
        "clopper-pearson": {},
        "hoeffding (paper)": {"method": "hoeffding"},
        "betting": {"method": "betting"},
        "decide τ ≥ 0.9": {"mode": "decide"},
        "hard": {"mode": "hard"},
    }.items():
        started = time.perf_counter()
        result = certify(
            model,
            batch,
            mask.repeat(100, 1),
            Pixels(),
            (RADIUS,),
            DELTA,
            EPSILON,
            budget=1,
            **options,
        )
        seconds = time.perf_counter() - started
        low, rate, decision = result.low[:, 0], result.rate[:, 0], result.decision[:, 0]
        over = float((low > tau).double().mean())
        off = float(((rate - tau).abs() > EPSILON + 1e-9).double().mean())
        wrong = float(
            ((decision == 1) & (tau < 0.9) | (decision == 0) & (tau >= 0.9)).double().mean()
        )
        if name == "hard":
            wrong = float(((decision == 1) & (tau < 1 - EPSILON)).double().mean())
        estimates = result.decision.eq(-1).all()
        slack = float((tau - low).mean())
        draws = float(result.samples.double().mean())
        shown = (off, "–") if estimates else ("–", wrong)
        rows.append((name, over, *shown, slack, draws, PAPER / draws, 10_000 / seconds))
    head = (
        "10,000 certificates",
        "low > τ",
        "|rate−τ| > ε",
        "wrong",
        "τ − low",
        "draws",
        "150/draws",
        "per second",
    )
    table(f"Coverage, δ = {DELTA}, ε = {EPSILON}: misses must be at most {DELTA}", head, rows)


def by_rate() -> None:
    """Mean draws for a given rate, exactly."""
    estimate, decide = (
        estimate_rule(EPSILON, DELTA),
        decide_rule(0.9, DELTA, sample_size(EPSILON, DELTA)),
    )
    betting = estimate_rule(EPSILON, DELTA, "betting")
    rows = [
        (
            f"τ = {tau}",
            *(round(expected_draws(rule, tau), 1) for rule in (estimate, betting, decide)),
        )
        for tau in (1.0, 0.99, 0.95, 0.9, 0.8, 0.7, 0.5, 0.3)
    ]
    title = f"Mean draws (paper {PAPER}; smallest fixed number {sample_size(EPSILON, DELTA)})"
    table(title, ("", "clopper-pearson", "betting", "decide τ ≥ 0.9"), rows)


def real(photographs: int, threads: int) -> None:
    """Passes per certificate on real explanations."""
    torch.set_num_threads(threads)
    model = heatproof.load_model("bundled:efficientnet-lite0")
    data = open_data("bundled:photographs")
    batch = data.load(range(photographs)).batch
    features = Patches(32)
    with torch.no_grad():
        target = model.logits(model.inputs(batch)).argmax(1)
    explainers = {
        "integrated_gradients": heatproof.IntegratedGradients(steps=8),
        "saliency": heatproof.Saliency(),
        "grad_cam": heatproof.GradCAM(),
        "random": heatproof.RandomMap(),
    }
    radii = (2, 5, 10, 20)
    rows: list[tuple[object, ...]] = []
    total = {"estimate": [0.0, 0], "decide": [0.0, 0]}
    kept = {}
    for name, explainer in explainers.items():
        kept[name] = select(explainer(model, batch, target, 0), batch, features)
        row: list[object] = [name]
        for mode in ("estimate", "decide"):
            result = certify(model, batch, kept[name], features, radii, DELTA, EPSILON, mode=mode)
            passes = float(result.passes.double().mean())
            total[mode][0] += float(result.passes.sum())
            total[mode][1] += result.passes.numel()
            row += (
                [float(result.rate.mean()), float(result.low.mean())] if mode == "estimate" else []
            )
            row += [passes, PAPER / passes]
            row += (
                [f"{int((result.decision == -1).sum())}/{result.decision.numel()}"]
                if mode == "decide"
                else []
            )
        rows.append(tuple(row))
    ratios = {mode: PAPER * n / spent for mode, (spent, n) in total.items()}
    rows.append(("all", "", "", total["estimate"][0] / total["estimate"][1], ratios["estimate"],
                 total["decide"][0] / total["decide"][1], ratios["decide"], ""))  # fmt: skip
    head = (
        "explainer",
        "rate",
        "low",
        "passes ±ε",
        "150/passes",
        "passes τ ≥ .9",
        "150/passes",
        "open",
    )
    title = f"EfficientNet-Lite0, {photographs} photographs, 49 patches, top 25 %, radii {radii}"
    table(title, head, rows)

    rows = []
    for name in ("grad_cam", "random"):
        curve = certify(model, batch[:2], kept[name][:2], features, "all", DELTA, EPSILON)
        spent, width = float(curve.passes.sum(1).double().mean()), curve.radii.shape[1]
        each = float(curve.samples.sum(1).double().mean())
        rows.append(
            (
                f"{name}, real, {width} radii",
                spent,
                PAPER * width,
                PAPER * width / spent,
                each / spent,
            )
        )
    table(
        "Whole curves",
        ("", "passes", "paper", "paper/passes", "same method, each radius/passes"),
        rows,
    )


def curves() -> None:
    """The paper's size, 196 features with 49 selected, on a linear model."""
    model = random_linear(196)
    x, mask = explanations(16, 196, 49)
    batch = Batch(tuple(str(i) for i in range(16)), x)
    rows = []
    for simultaneous in (False, True):
        curve = certify(
            model, batch, mask, Pixels(), "all", DELTA, EPSILON, simultaneous=simultaneous
        )
        level = DELTA / 147 if simultaneous else DELTA
        paper = 147 * sample_size(EPSILON, level, "hoeffding")
        spent = curve.passes.sum(1).double()
        each = float(curve.samples.sum(1).double().mean() / spent.mean())
        name = "simultaneous" if simultaneous else "pointwise"
        rows.append(
            (
                name,
                float(spent.mean()),
                float(spent.max()),
                paper,
                paper / float(spent.mean()),
                each,
            )
        )
    head = (
        "147 radii, 196 features",
        "passes",
        "most",
        "paper",
        "paper/passes",
        "same method, each radius/passes",
    )
    table("Whole curves of a linear model", head, rows)


def main() -> None:
    """Print all tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--photographs", type=int, default=4)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(1)  # small tensors gain nothing from more
    by_rate()
    coverage()
    curves()
    real(options.photographs, options.threads)


if __name__ == "__main__":
    main()

"""Hard radii of smoothed models: brute force of every rule, and the rules side by side on a trained network.

    python benchmarks/certified_radii.py [--functions 24000] [--photographs 14] [--masks 32] [--device cuda]

First, small functions of seven features (random, adversarial, saturated, voting): the truth is found by trying every
superset. A deterministic rule must never be wrong about the mean over its own masks; a Bernoulli radius is about the
mean over all masks, and at most a share δ of them may be wrong. Then EfficientNet-Lite0 on the bundled photographs,
explained by Grad-CAM on 49 patches. About six minutes on one core, seconds on a GPU.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
from torch import Tensor

import heatproof
from heatproof import open_data
from heatproof.features import Patches
from heatproof.maps.masks import select
from heatproof.models.smoothed import Smoothed
from heatproof.statistics.radii import GUARD, bernoulli_gap, leads, mus_radius, per_mask_radius

FEATURES, CLASSES, DELTA = 7, 4, 0.1
SETS = torch.arange(2**FEATURES)
MEMBERS = ((SETS[:, None] >> torch.arange(FEATURES)) & 1).bool()
ALPHA = 0b0000011
SUPERSETS = SETS[(SETS & ALPHA) == ALPHA]
ADDED = MEMBERS[SUPERSETS].sum(1) - 2
FREE = ~MEMBERS[ALPHA]
KINDS = ("random", "adversarial", "saturated", "voting")
SETTINGS = (
    ("quantised", 0.125, 16),
    ("quantised", 0.25, 8),
    ("bernoulli", 0.125, 64),
    ("bernoulli", 0.25, 16),
)


def functions(kind: str, count: int, g: torch.Generator) -> Tensor:
    """Class probabilities or votes of `count` functions on every set of features, (count, 2^n, classes) float64."""
    logits = torch.randn(count, 2**FEATURES, CLASSES, generator=g, dtype=torch.float64)
    if kind == "random":
        logits[..., 0] += 2.5 * torch.rand(count, 1, generator=g, dtype=torch.float64)
    else:  # the first class holds where few features are, and gives way where more are
        limit = torch.randint(0, 4, (count, 1), generator=g)
        beyond = (MEMBERS & FREE).sum(1) > limit
        logits = 0.3 * logits + 8.0 * torch.stack([~beyond, beyond, 0 * beyond, 0 * beyond], 2)
    if kind == "saturated":
        noisy = torch.rand(count, 2**FEATURES, generator=g) < 0.2
        logits = 60.0 * torch.where(
            noisy[..., None], torch.rand(logits.shape, generator=g).double(), logits
        )
    outputs = logits.softmax(2)
    return (
        torch.nn.functional.one_hot(outputs.argmax(2), CLASSES).double()
        if kind == "voting"
        else outputs
    )


def bank_of(masks: str, keep: float, samples: int, seed: int) -> Tensor:
    """Masks as a smoothed model draws them."""
    model = Smoothed(
        heatproof.Model(torch.nn.Linear(FEATURES, 2)), keep, samples, masks=masks, seed=seed
    )
    return model.bank(FEATURES)


def true_radius(means: Tensor) -> Tensor:
    """The largest r without a flip, from the smoothed outputs on every set, (count, 2^n, classes) to (count,)."""
    own = means[:, SUPERSETS].argmax(2)
    flips = own != means[:, ALPHA].argmax(1, keepdim=True)
    return torch.where(flips, ADDED - 1, FEATURES - 2).amin(1)


def brute_force(total: int) -> None:
    """Every rule against the truth."""
    g = torch.Generator().manual_seed(0)
    each = total // (len(KINDS) * len(SETTINGS))
    found: dict[tuple[str, str], list[tuple[int, float, float]]] = {}
    for kind in KINDS:
        for masks, keep, samples in SETTINGS:
            for seed in range(each // 20):  # a bank for twenty functions
                table = functions(kind, 20, g)
                bank = bank_of(masks, keep, samples, seed)
                places = (MEMBERS[:, None] & bank).long() @ (
                    1 << torch.arange(FEATURES)
                )  # (2^n, N)
                lead = leads(table[:, places[ALPHA]])
                truth = true_radius(table[:, places].mean(2))
                free, gap = FREE.expand(20, -1), lead.mean(1).amin(1) - GUARD
                rules = {
                    "per mask": per_mask_radius(lead, bank, free),
                    "Lipschitz": mus_radius(gap, float(bank.double().mean(0).max())).clamp(
                        max=FEATURES - 2
                    ),
                }
                assert bool((rules["per mask"] >= rules["Lipschitz"]).all())
                for rule, radius in rules.items():
                    wrong = int((radius > truth).sum())
                    found.setdefault((kind, rule), []).append(
                        (wrong, float(radius.double().mean()), float(truth.double().mean()))
                    )
                if masks == "bernoulli":
                    kept = MEMBERS.sum(1).double()
                    chance = keep**kept * (1 - keep) ** (FEATURES - kept)
                    exact = torch.stack([chance @ table[:, SETS & s] for s in SETS.tolist()], 1)
                    every = true_radius(exact)
                    radius = mus_radius(
                        bernoulli_gap(lead, DELTA, kind == "voting") - GUARD, keep, "bernoulli"
                    )
                    radius = radius.clamp(max=FEATURES - 2)
                    found.setdefault((kind, "Bernoulli"), []).append(
                        (
                            int((radius > every).sum()),
                            float(radius.double().mean()),
                            float(every.double().mean()),
                        )
                    )
    print(
        f"{'functions':12} {'rule':10} {'cases':>7} {'wrong':>6} {'mean radius':>12} {'truth':>7}"
    )
    for (kind, rule), rows in found.items():
        wrong, mean, truth = np.array(rows).T
        print(
            f"{kind:12} {rule:10} {20 * len(rows):7} {int(wrong.sum()):6} {mean.mean():12.2f} {truth.mean():7.2f}"
        )


def ratio(new: Tensor, old: Tensor) -> str:
    """The ratio of means with a 95 % bootstrap interval over samples."""
    if not bool(old.any()):
        return "–"
    rng = np.random.default_rng(0)
    rows = torch.as_tensor(rng.integers(0, len(new), (4000, len(new))))
    below = old[rows].mean(1)
    draws = (new[rows].mean(1) / below)[below > 0]
    low, high = np.quantile(draws.numpy(), [0.025, 0.975])
    return f"{float(new.mean() / old.mean()):.2f} [{low:.2f}, {high:.2f}]"


def photographs(count: int, samples: int, device: str) -> None:
    """The rules side by side on a trained network."""
    features, data = Patches(32), open_data("bundled:photographs")
    model = heatproof.load_model("bundled:efficientnet-lite0").to(device)
    model.rows = 64
    batch = data.load(range(count)).batch
    with torch.no_grad():
        target = model.logits(model.inputs(batch.to(model.device))).argmax(1)
    maps = heatproof.GradCAM()(model, batch.to(model.device), target, 0)
    mask = select(maps, batch.to(model.device), features, fraction=0.25).cpu()
    print(
        f"\n{'masks':10} {'outputs':14} {'λ':>7} {'MuS':>6} {'per mask':>9} {'ratio of means':>20} {'Bernoulli':>10}"
    )
    for masks in ("quantised", "bernoulli"):
        for votes in (False, True):
            for keep in (1 / 16, 1 / 8, 1 / 4):
                smooth = Smoothed(model, keep, samples, features, masks, votes=votes)
                found = smooth.radii(batch, mask, DELTA)
                new, old = found["per_mask"], found["lipschitz"]
                assert bool((new >= old).all()), "the new default is never smaller"
                whole = f"{found['bernoulli'].mean():.2f}" if "bernoulli" in found else "–"
                said = "votes" if votes else "probabilities"
                print(
                    f"{masks:10} {said:14} {keep:7.4g} {old.mean():6.2f} {new.mean():9.2f} {ratio(new, old):>20} "
                    f"{whole:>10}",
                    flush=True,
                )


def main() -> None:
    """Both parts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--functions", type=int, default=24_000)
    parser.add_argument("--photographs", type=int, default=14)
    parser.add_argument("--masks", type=int, default=32)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    given = parser.parse_args()
    brute_force(given.functions)
    if given.photographs:
        photographs(given.photographs, given.masks, given.device)


if __name__ == "__main__":
    main()

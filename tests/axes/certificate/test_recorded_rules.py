"""Certificates on fixed samples: stopping rules, supersets, every mode and method, flips, and Boolean functions."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch

from heatproof import Batch
from heatproof.axes.certificate.boolean import bounds, expansions
from heatproof.axes.certificate.certify import Certificates, certify
from heatproof.axes.certificate.evaluation import Certificate
from heatproof.axes.certificate.flips import as_pictures, find_flips
from heatproof.axes.certificate.sequential import (
    Rule,
    decide_rule,
    endings,
    estimate_rule,
    hard_rule,
)
from heatproof.axes.certificate.smoothing import Smoothing
from heatproof.axes.certificate.strata import (
    all_supersets,
    drawn_strata,
    exact_radius,
    log_sizes,
    random_supersets,
    supersets,
)
from heatproof.features import Patches, Pixels
from heatproof.models.smoothed import Smoothed
from heatproof.rand import keys
from support.fixed import batch_of, brief, digest, fixed, picture_model, refusals, row_model
from support.recorded import recorded

RULES: dict[str, Any] = {
    "estimate": lambda: estimate_rule(0.2, 0.1),
    "estimate, sure": lambda: estimate_rule(0.15, 0.02),
    "estimate of few": lambda: estimate_rule(0.2, 0.1, population=40),
    "estimate of very few": lambda: estimate_rule(0.1, 0.05, population=12),
    "hoeffding": lambda: estimate_rule(0.2, 0.1, "hoeffding"),
    "betting": lambda: estimate_rule(0.25, 0.2, "betting"),
    "decide": lambda: decide_rule(0.8, 0.1, 30),
    "decide, low": lambda: decide_rule(0.3, 0.05, 12),
    "hard": lambda: hard_rule(0.1, 0.1),
    "hard, rough": lambda: hard_rule(0.4, 0.3),
}


def told(rule: Rule) -> dict[str, Any]:
    """Every look with the smallest and largest number of agreements at which it stops, bounds and decisions."""
    lines: dict[str, Any] = {}
    for look, n in enumerate(rule.looks):
        stops = rule.stop[look, : n + 1].nonzero().flatten().tolist()
        ends = [
            f"{s}: {brief(float(rule.low[look, s]))} to {brief(float(rule.high[look, s]))}"
            for s in stops[::7]
        ]
        said = "".join(str(int(d)) for d in rule.decision[look, : n + 1])
        lines[str(n)] = (
            f"stops at {stops}; {'; '.join(ends)}; {said if '1' in said.replace('-1', '') else ''}"
        )
    ends_at = endings(rule.looks, rule.stop.numpy())
    law = ends_at.law([0.0, 0.3, 0.75, 1.0])
    lines["endings"] = [
        len(ends_at.draws),
        digest(law),
        digest(rule.low),
        digest(rule.high),
        law.sum(1).tolist(),
    ]
    return lines


@pytest.mark.parametrize("case", RULES)
def test_rules(case: str) -> None:
    recorded(f"certificate/rule_{case.replace(', ', '_').replace(' ', '_')}", told(RULES[case]()))


@pytest.mark.parametrize("population", [None, 3, 7, 20, 61])
def test_rules_for_many_errors(population: int | None) -> None:
    found = {}
    for epsilon, delta in ((0.3, 0.2), (0.2, 0.3), (0.15, 0.1), (0.4, 0.02)):
        rule = estimate_rule(epsilon, delta, population=population)
        ends = endings(rule.looks, rule.stop.numpy(), population)
        law = digest(
            ends.law([0.0, 1 / 3, 1.0] if population is None else [0.0, 2 / population, 1.0])
        )
        found[f"{epsilon} {delta}"] = [
            str(rule.looks),
            digest(rule.stop.double()),
            digest(rule.low),
            digest(rule.high),
            law,
        ]
    recorded(f"certificate/rules_of_{population}", found)


def summed(found: Certificates) -> dict[str, Any]:
    names = ("rate", "low", "high", "early")
    told = {
        name: [" ".join(map(brief, row)) for row in getattr(found, name).tolist()] for name in names
    }
    whole = ("exact", "passes", "samples", "decision", "early_draws", "target", "left_out", "radii")
    return told | {name: str(getattr(found, name).tolist()) for name in whole}


CALLS: dict[str, dict[str, Any]] = {
    "usual": {},
    "one by one": {"radii": (3, 0, 1, 30), "epsilon": 0.3, "budget": 40},
    "all": {"radii": "all", "epsilon": 0.25, "simultaneous": True},
    "decide": {"mode": "decide", "threshold": 0.7, "epsilon": 0.2, "radii": (2, 6)},
    "decide fully": {
        "mode": "decide",
        "threshold": 0.8,
        "epsilon": 0.2,
        "radii": (1,),
        "budget": 100,
    },
    "hard": {"mode": "hard", "epsilon": 0.2, "radii": (1, 4)},
    "hard fully": {"mode": "hard", "epsilon": 0.05, "radii": (1, 4)},
    "margin": {"agreement": "margin", "epsilon": 0.25, "radii": (1, 4)},
    "given margin": {"agreement": "margin", "margin": 0.4, "epsilon": 0.25, "radii": (1, 4)},
    "no margin": {
        "agreement": "margin",
        "margin": 0.0,
        "epsilon": 0.25,
        "radii": (1, 4),
        "budget": 1,
    },
    "target": {"target": torch.tensor([1, 0, 3, 2]), "epsilon": 0.25, "radii": (1, 4)},
    "betting": {"method": "betting", "epsilon": 0.3, "radii": (4,), "fill": "mean"},
    "hoeffding": {
        "method": "hoeffding",
        "epsilon": 0.25,
        "radii": (2, 4),
        "fill": "blur",
        "seed": 4,
    },
}


@pytest.mark.parametrize("case", CALLS)
def test_certify(case: str) -> None:
    batch = batch_of(4, 3, 12, 12, seed=2)
    mask = fixed(4, 16, seed=3) < torch.tensor([0.2, 0.3, 0.5, 0.7])[:, None]
    features = Patches(size=3)
    found = certify(picture_model(), batch, mask, features, **{"radii": (1, 5, 10), **CALLS[case]})
    recorded(f"certificate/certify_{case.replace(' ', '_')}", summed(found))


def test_certify_with_its_defaults() -> None:
    batch, mask = batch_of(2, 3, 64, 64), fixed(2, 16, seed=3) < 0.3
    recorded("certificate/certify_defaults", summed(certify(picture_model(), batch, mask)))


def test_supersets() -> None:
    mask = torch.tensor([[1, 0, 0, 1, 0, 0, 0, 0, 0]] * 3).bool()
    free, key = ~mask & (torch.arange(9) < 8), keys(3, ("a", "b", "c"), "x")
    found: dict[str, Any] = {"numbers": [[supersets(m, r) for r in range(5)] for m in (0, 1, 4, 9)]}
    found["exact"] = [
        [exact_radius(m, most) for most in (1, 2, 5, 10, 11, 500)] for m in (0, 1, 4, 9)
    ]
    found["sizes"] = digest(log_sizes(torch.tensor([2, 5, 9]), 6), 40)
    found["strata"] = str(
        drawn_strata(
            key, torch.tensor([6, 6, 2]), torch.tensor([[1, 3], [2, 6], [0, 2]]), 12
        ).tolist()
    )
    drawn = random_supersets(key, torch.tensor([0, 2, 5]), torch.tensor([4, 0, 7]), mask, free)
    found["drawn"] = str(drawn.int().tolist())
    sets, sizes = all_supersets(mask[0], free[0], 2)
    found["all"] = [str(sets.int().tolist()), str(sizes.tolist())]
    recorded("certificate/supersets", found)


@pytest.mark.parametrize("seed", range(3))
def test_flips(seed: int) -> None:
    model, found = picture_model(), []
    for size, name in ((3, "a"), (2, "b")):
        batch = Batch((name,), fixed(1, 3, 12, 12, seed=20 + seed))
        n = (12 // size) ** 2
        mask = fixed(n, seed=seed + size) < 0.15
        found.append(
            digest(find_flips(model, batch, mask[None], Patches(size=size), "zero", seed)[0], 50)
        )
        found.append(digest(as_pictures(model, batch, mask[None], Patches(size=size), "mean")))
    rows = row_model(7)
    mask = torch.tensor([1, 0, 0, 0, 0, 0, 0]).bool()
    found.append(
        digest(
            find_flips(rows, batch_of(1, 7, seed=seed), mask[None], Pixels(), "zero", seed)[0], 50
        )
    )
    recorded(f"certificate/flips_{seed}", found)


def test_boolean_functions() -> None:
    h = fixed(2, 16, seed=4).double()
    found: dict[str, Any] = {
        "masks": str(expansions.masks(3).int().tolist()),
        "degrees": str(expansions.degrees(3).tolist()),
    }
    for p in (0.5, 0.3):
        found[f"fourier {p}"] = digest(expansions.fourier(h, p))
        assert torch.allclose(expansions.from_fourier(expansions.fourier(h, p), p), h)
        moved = expansions.masking(expansions.fourier(h, p), 0.7, "fourier", p)
        assert torch.allclose(expansions.from_fourier(moved, p), expansions.masking(h, 0.7))
    found["monotone"], found["masking"] = (
        digest(expansions.monotone(h)),
        digest(expansions.masking(h, 0.7)),
    )
    assert torch.allclose(expansions.from_monotone(expansions.monotone(h)), h)
    found["usual"] = digest(
        expansions.fourier(h) - expansions.masking(expansions.fourier(h), 1.0, "fourier")
    )
    asked: list[int] = []

    def weighted(rows: torch.Tensor) -> torch.Tensor:
        asked.append(len(rows))
        return rows.double() @ torch.tensor([1.0, 2.0, 4.0], dtype=torch.float64)

    found["function"] = [expansions.from_function(weighted, 3, rows=3).tolist(), list(asked)]
    scores = fixed(3, 16, seed=6).double()
    for alpha in (0, 0b0101):
        for r in (0, 1, 2, 9):
            found[f"{alpha:b} {r}"] = [
                digest(bounds.stability_rate(h, alpha, r, 0.3)),
                digest(bounds.prediction_rate(scores, alpha, r)),
                digest(bounds.instability_weight(h, alpha, r)),
                digest(bounds.instability_bound(h, alpha, r, 0.3, 0.6)),
                digest(bounds.instability_bound(h, alpha, r, 0.3)),
                digest(bounds.prediction_bound(scores, alpha, r)),
            ]
        found[f"{alpha:b} hard"] = [
            bounds.hard_radius(h, alpha, g).tolist() for g in (0.2, 0.5, 0.9)
        ]
        found[f"{alpha:b} restricted"] = digest(bounds.restrict(h, alpha))
    found["difference"] = digest(bounds.difference(expansions.monotone(h), 0b0001, 0b1011))
    as_mask = bounds.restrict(h, torch.tensor([True, False, True, False]))
    assert torch.equal(as_mask, bounds.restrict(h, 0b0101))
    found["containment"] = [
        bounds.containment(m, k, r) for m, k, r in ((4, 0, 2), (4, 2, 2), (4, 3, 2), (5, 1, 9))
    ]
    recorded("certificate/boolean", found)


def test_smoothed_models() -> None:
    model, batch, mask = picture_model(), batch_of(2, 3, 12, 12, seed=2), fixed(2, 16, seed=3) < 0.4
    found: dict[str, Any] = {}
    for kind in ("quantised", "bernoulli"):
        for votes in (False, True):
            smooth = Smoothed(model, 0.25, 16, Patches(size=3), kind, votes=votes, seed=1)  # type: ignore[arg-type]
            radii = smooth.radii(batch, mask, 0.1, None)
            found[f"{kind} {votes}"] = [
                digest(smooth.scores(batch)),
                {r: v.tolist() for r, v in radii.items()},
            ]
    notes = [
        Smoothing(keeps=(0.25, 1.0), samples=8, masks=kind).notes(model)
        for kind in ("quantised", "bernoulli")
    ]  # type: ignore[arg-type]
    found["notes"] = [*notes, Smoothing(keeps=(0.5,), samples=400, masks="bernoulli").notes(model)]
    found["conditions"] = str(Smoothing(radii=(1, 2)).conditions())
    recorded("certificate/smoothed", found)


REFUSED: dict[str, Any] = {
    "delta": {"delta": 0.0},
    "epsilon": {"epsilon": 1.0},
    "threshold": {"threshold": 1.5},
    "method": {"method": "hoeffdin"},
    "mode": {"mode": "hard", "method": "hoeffding"},
    "margin without": {"margin": 0.1},
    "margin below 0": {"margin": -0.1, "agreement": "margin"},
    "target of a margin": {"target": torch.zeros(2).long(), "agreement": "margin"},
    "target beyond": {"target": torch.tensor([0, 4])},
    "target below": {"target": torch.tensor([0, -1])},
    "target of one": {"target": torch.tensor([0])},
    "target of numbers": {"target": torch.zeros(2)},
    "budget": {"budget": 0},
    "true budget": {"budget": True},
    "fill": {"fill": float("nan")},
    "radii": {"radii": "al"},
    "no radii": {"radii": ()},
    "radius": {"radii": (1, -1)},
    "half a radius": {"radii": (1.5,)},
    "a number": {"radii": 3},
    "empty mask": {"mask": torch.zeros(2, 16).bool()},
    "full mask": {"mask": torch.ones(2, 16).bool()},
    "wide mask": {"mask": torch.ones(2, 17).bool()},
    "mask of numbers": {"mask": torch.ones(2, 16)},
    "mask of others": {"mask": torch.ones(3, 16).bool()},
}


def certified(mask: torch.Tensor | None = None, **given: Any) -> Certificates:
    chosen = fixed(2, 16, seed=3) < 0.3 if mask is None else mask
    return certify(picture_model(), batch_of(2, 3, 12, 12), chosen, Patches(size=3), **given)


ELSEWHERE: dict[str, Any] = {
    "gamma": lambda: bounds.stability_rate(fixed(4), 0, 1, 0.0),
    "radius": lambda: bounds.stability_rate(fixed(4), 0, -1, 0.1),
    "alpha": lambda: bounds.restrict(fixed(4), 4),
    "a mask": lambda: bounds.restrict(fixed(4), torch.tensor([True])),
    "beta": lambda: bounds.difference(fixed(4), 2, 1),
    "k": lambda: bounds.containment(2, 3, 1),
    "one class": lambda: bounds.prediction_rate(fixed(1, 4), 0, 1),
    "p": lambda: expansions.fourier(fixed(4), 1.0),
    "p of no basis": lambda: expansions.masking(fixed(4), 0.5, "monotone", 0.3),
    "keep": lambda: expansions.masking(fixed(4), -0.1),
    "rows": lambda: expansions.from_function(lambda m: m, 2, 0),
    "none": lambda: expansions.as_values(torch.tensor(1.0)),
    "size": lambda: expansions.as_values(fixed(12)),
    "infinite": lambda: expansions.as_values(torch.tensor([1.0, torch.inf])),
    "fraction": lambda: Certificate(fraction=0.9, features=Patches(size=6)).check((3, 12, 12)),
    "blur": lambda: Certificate(fill="blur", features=Pixels()).check((5,)),
}


def test_what_is_refused() -> None:
    asked = {name: partial(certified, **given) for name, given in REFUSED.items()}
    recorded("certificate/refused", [refusals(asked), refusals(ELSEWHERE)])

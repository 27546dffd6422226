"""The parts of removal scores on fixed numbers: sweeps, curves, banks of masks, realism, agreement, leaks, training."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import TensorDataset

import heatproof
from heatproof import Batch
from heatproof.axes.faithfulness import curves, frames, kinds, mask_bank, realism, sweeps
from heatproof.axes.faithfulness.consistency import _settled, agreement, consistency
from heatproof.axes.faithfulness.evaluation import Faithfulness, spans_of_curves
from heatproof.axes.faithfulness.retraining import information, leakage, trainer
from heatproof.axes.faithfulness.scores import labelled
from heatproof.features import Patches, Pixels, Tokens
from heatproof.rand import keys
from heatproof.removal import IMPUTERS
from support.faithfulness import made_up
from support.fixed import (
    batch_of,
    brief,
    digest,
    fixed,
    picture_model,
    refusals,
    row_model,
    rows_in_short,
    with_weights,
)
from support.recorded import recorded

FRACTIONS = (0.2, 0.5, 1.0)


def total(batch: Batch) -> torch.Tensor:
    flat = batch.x.flatten(1)
    return torch.stack([flat.sum(1), flat.square().sum(1), flat[:, 0] - flat[:, -1]], 1)


def test_sweeps() -> None:
    values, counts, ids = fixed(3, 6, seed=1, low=-1), torch.tensor([6, 4, 1]), ("a", "b", "c")
    values[0, 2] = values[0, 3] = values[0, 4]
    found: dict[str, Any] = {}
    for order in sweeps.ORDERS:
        found[order] = [
            str(sweeps.removal_ranks(values, counts, ids, order, seed).tolist()) for seed in (0, 1)
        ]
    found["usual"] = str(sweeps.removal_ranks(values, counts, ids).tolist())
    found["settled"] = digest(
        sweeps.settled(torch.cat([values, torch.zeros(1, 6)]), torch.tensor([6, 4, 1, 0])), 30
    )
    found["sizes"] = str(
        sweeps.removal_sizes((0.0, 0.1, 0.25, 0.5, 1.0), torch.tensor([1, 2, 6, 10])).tolist()
    )
    maps = fixed(2, 3, 2, 2, low=-1)
    found["importance"] = [digest(sweeps.importance(maps)), digest(sweeps.importance(maps, True))]
    found["importance"] += [digest(sweeps.importance(fixed(2, 3, 4, low=-1), tokens=True))]
    segments = torch.tensor([[0, 0, 1, 2, 2, 2], [0, 1, 1, 1, 1, 1]])
    found["means"] = digest(sweeps.feature_means(fixed(2, 6), segments, 4))
    batch = batch_of(3, 2, 2, 3, seed=4)
    labels = torch.arange(6).reshape(1, 2, 3).expand(3, 2, 3)
    for name in ("zero", "noisy_linear"):
        imputer = sweeps.bound(IMPUTERS[name](), batch.x, None)
        for order in sweeps.ORDERS:
            given = None if order == "random" else batch.x.sum(1)
            asked = (given, labels, torch.tensor([6, 6, 4]), FRACTIONS, order, imputer)
            logits, ranks = sweeps.removal(total, batch, total(batch), *asked, 3)
            found[f"{name} {order}"] = [digest(logits, 40), str(ranks.tolist())]
    recorded("faithfulness/sweeps", found)


def test_curves() -> None:
    logits, target = fixed(3, 4, 3, seed=2, low=-2, high=2), torch.tensor([0, 2, 1])
    logits[2, 1, 0] = torch.inf
    read = curves.readouts(logits, target, torch.tensor([0, -1, 2]))
    found: dict[str, Any] = {name: digest(value) for name, value in read.items()}
    found |= {
        f"{name} by itself": digest(value)
        for name, value in curves.readouts(logits, target).items()
    }
    a, b = (
        curves.readouts(fixed(2, 3, 3, seed=s, low=-2, high=2), torch.tensor([0, 1]))
        for s in (5, 6)
    )
    start = {name: value[:, 0] for name, value in b.items()}
    for readout in ("accuracy", "probability", "logit", "margin"):
        told = curves.summaries({"morf": a, "lerf": b, "random": b}, FRACTIONS, start, readout)  # type: ignore[arg-type]
        found[f"by {readout}"] = {name: digest(value) for name, value in told.items()}
    found["usual"] = {
        n: digest(v) for n, v in curves.summaries({"morf": a, "lerf": b}, FRACTIONS, start).items()
    }
    found["from 0"] = [digest(curves.aopc((0.0, 0.5, 1.0), a["logit"], start["logit"]))]
    found["irof"] = digest(curves.irof(FRACTIONS, a["probability"], start["probability"]))
    found["area"] = digest(curves.area((0.1, 0.5, 0.8), a["logit"], start["logit"]))
    recorded("faithfulness/curves", found)


def test_banks() -> None:
    batch, segments = (
        batch_of(2, 1, 3, 4, seed=4),
        torch.arange(12).reshape(1, 3, 4).expand(2, 3, 4) // 2,
    )
    maps, zero = fixed(2, 2, 3, 4, seed=5, low=-1), IMPUTERS["zero"]()
    asked = (total, batch, torch.tensor([1, 2]), total(batch), segments, maps, zero)
    bank = mask_bank.fill_bank(*asked, masks=10, subsets=(0.2, 0.5), seed=3)
    parts = {
        "drop": bank.drop,
        "mass": bank.mass,
        "level": bank.level,
        "size": bank.size,
        "area": bank.area,
    }
    found: dict[str, Any] = {name: digest(value, 50) for name, value in parts.items()}
    for which in (0, 1):
        told = mask_bank.scores(bank, which, torch.tensor([1.0, 3.0]))
        found[f"scores {which}"] = {
            f"{name} {level:g}": digest(value) for (name, level), value in told.items()
        }
    usual = mask_bank.fill_bank(*asked)
    found["usual"] = [digest(usual.drop), digest(usual.size), digest(usual.level)]
    some = mask_bank.fill_bank(*asked, masks=6, counts=torch.tensor([4, 2]))
    found["of some"] = [digest(some.drop), digest(some.size)]
    mass, drop = fixed(3, 8, seed=1), fixed(3, 8, seed=2)
    drop[1] = drop[1, 0]
    found["infidelity"] = [
        digest(mask_bank.infidelity(mass, drop, scaled)) for scaled in (False, True)
    ]
    size, area = torch.arange(8).expand(3, 8) % 3, fixed(3, 8, seed=3)
    found["correlation"] = [digest(mask_bank.correlation(mass, drop))]
    found["correlation"] += [
        digest(mask_bank.correlation(mass, drop, size)),
        digest(mask_bank.correlation(mass, drop, None, None, area)),
    ]
    nearly = torch.ones(1, 4) + torch.tensor([[0, 1e-7, 0, 2e-7]])
    found["correlation"] += [
        digest(mask_bank.correlation(fixed(1, 4), nearly)),
        digest(mask_bank.correlation(nearly, fixed(1, 4))),
    ]
    found["masks"] = str(
        mask_bank.random_masks(
            keys(1, ("a", "b"), "x"), torch.tensor([5, 3]), torch.tensor([2, 3]), 6
        )
        .int()
        .tolist()
    )
    recorded("faithfulness/banks", found)


def test_realism() -> None:
    real, filled = fixed(60, 4, seed=1), fixed(60, 4, seed=2) + 0.35
    names = [f"s{i}" for i in range(60)]
    holes = real.clone()
    holes[3, 1] = filled[7, 0] = torch.nan
    found: dict[str, Any] = {"folds": str(realism.folds([*names[:7], "x", "y"], names, 3).tolist())}
    told = realism.told_apart(real[:20], filled[:20] + 0, names[:20], (holes, filled), names, 2)
    found["told"] = digest(told)
    found["by"] = [
        digest(part)
        for part in realism.discriminate(real, filled.nan_to_num(0.5), [real[:5], filled[:5] * 0.5])
    ]
    values = np.random.default_rng(0).uniform(0.4, 1.0, 80)
    found["areas"] = [
        [brief(x) for x in realism.area_and_interval(values[:n], p)]
        for n, p in ((49, 80), (50, 80), (80, 30), (80, 128))
    ]
    found["sure"] = [brief(x) for x in realism.area_and_interval(np.ones(64), 64)]
    seen = realism.outputs_and_features(picture_model(), batch_of(2, 3, 12, 12))
    plain = realism.outputs_and_features(heatproof.Model(nn.Flatten()), batch_of(2, 3))
    convolved = with_weights(
        nn.Sequential(nn.Conv1d(2, 3, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten())
    )
    found["features"] = [
        digest(seen),
        digest(plain),
        digest(realism.outputs_and_features(heatproof.Model(convolved), batch_of(2, 2, 6))),
    ]
    wide = with_weights(nn.Linear(3000, 2))
    found["wide"] = digest(realism.outputs_and_features(heatproof.Model(wide), batch_of(2, 3000)))
    recorded("faithfulness/realism", found)


def test_detectability_of_a_run() -> None:
    settings = {
        "imputers": ["zero"],
        "fractions": [0.3, 0.8],
        "orders": ["random"],
        "metrics": ["infidelity"],
        "masks": 4,
    }
    x = fixed(54, 6, seed=3)
    data = Batch(tuple(f"s{i:02}" for i in range(54)), x)
    run = heatproof.evaluate(
        row_model(6), data, ["saliency"], [{"faithfulness": settings}], seed=1, show_progress=False
    )
    table = run.table()
    found: dict[str, Any] = {
        row["level"]: [row["area"], row["low"], row["high"], row["samples"]]
        for row in frames.detectability(table).to_dict("records")
    }
    short = rows_in_short(table[table["sample"].isin(["s00", "s17"])])
    recorded("faithfulness/detectability", {"areas": found, "rows": short})


def test_agreement_of_rankings() -> None:
    g = np.random.default_rng(3)
    a, b = (
        g.normal(size=(5, 20)) + np.arange(5)[:, None],
        g.normal(size=(5, 20)) + np.arange(5)[:, None],
    )
    b[1] += 3
    a[2, 4] = np.nan
    found: dict[str, Any] = {
        "usual": agreement(a, b),
        "apart": agreement(a, b[:, :12], paired=False, resamples=200),
    }
    found["level"] = agreement(a, b, level=0.5, resamples=200, seed=4)
    table = made_up(n=8)
    for name, given in {
        "usual": {},
        "mask": {"pairing": "mask"},
        "controls": {"controls": True},
    }.items():
        rows = consistency(table, "probability", resamples=60, **given)  # type: ignore[arg-type]
        found[f"consistency {name}"] = [
            f"{r['kind']} {r['a']} {r['b']} {r['level']:g} {brief(r['spearman'])} {brief(r['low'])} {brief(r['high'])} "
            f"{r['explainers']} {r['samples']}"
            for r in rows.to_dict("records")
        ]
    again = [
        table.assign(dataset=name, value=0.01 * table["value"]) for name in ("photos", "faces")
    ]
    again[1] = pd.concat([again[1], again[0].assign(evaluation="retraining")])
    rows = consistency(pd.concat(again), "probability", level=0.8, resamples=40, seed=3)
    found["two"] = [
        f"{r['dataset']} {r['kind']} {brief(r['spearman'])} {brief(r['low'])}"
        for r in rows.to_dict("records")
    ]
    near = np.array([0.5, 0.5 + 1e-9, 0.2, np.nan])
    found["settled"] = [_settled(x).tolist() for x in (near, 1e-3 * near, 0 * near)]
    recorded("faithfulness/agreement", found)


def test_information_and_leaks() -> None:
    found: dict[str, Any] = {
        "entropy": [information.entropy(c) for c in ([5, 5], [1, 2, 3], [4, 0], [], [0])]
    }
    asked = [
        (0.8, 10, None),
        (0.5, 2, None),
        (0.51, 2, None),
        (1.0, 2, None),
        (1.0, 3, 1.2),
        (0.6, 3, 1.0),
        (0.34, 3, None),
    ]
    found["fano"] = [information.fano(*given) for given in asked]
    found["raviv"] = [information.hellman_raviv(*given) for given in asked]
    entries = []
    for sample in range(40):
        for measure, value in {
            "prior": sample % 2,
            "pixels": 0.95,
            "mask_hit": sample > 3,
            "mask_log2": -0.2 - sample / 99,
        }.items():
            entries.append((measure, float(value), f"s{sample}"))
        for probe in ("imputed", "both"):
            entries += [
                (f"{probe}_hit", float(sample > 9), f"s{sample}"),
                (f"{probe}_log2", -0.5 - sample / 70, f"s{sample}"),
            ]
    table = pd.DataFrame(entries, columns=["measure", "value", "sample"])
    table = table.assign(
        dataset="d",
        model="m",
        evaluation="leakage",
        explainer="e",
        condition="zero morf",
        imputer="zero",
    )
    table = table.assign(order="morf", level=0.5, status="ok")
    found["summary"] = [
        {k: v for k, v in r.items()} for r in leakage.leakage_summary(table).to_dict("records")
    ]
    loose = leakage.leakage_summary(table[~table["measure"].str.startswith("both")], delta=0.5)
    found["without both"] = loose.to_dict("records")
    removed = leakage.Removed(fixed(2, 1, 2, 2), fixed(2, 2, 2, seed=1) > 0.5, torch.tensor([0, 1]))
    found["seen"] = [digest(removed.seen(probe)) for probe in leakage.PROBES]
    recorded("faithfulness/leaks", found)


def test_training() -> None:
    found: dict[str, Any] = {
        "rates": [trainer.one_cycle(share) for share in (0, 0.005, 0.01, 0.1, 0.249, 0.25, 0.5, 1)]
    }
    moves = torch.tensor([[0, 8, 4], [3, 0, 8], [0, 1, 1]])
    found["shifted"] = digest(trainer.shifted(fixed(3, 2, 5, 6), moves))
    drawn = trainer.drawn_moves(400, torch.Generator().manual_seed(1))
    found["moves"] = [drawn.amin(1).tolist(), drawn.amax(1).tolist()]
    net = with_weights(nn.Sequential(nn.Flatten(), nn.Linear(4, 3)))
    x = fixed(6, 1, 2, 2)
    found["scores"] = [
        digest(trainer.scores(net, x, 4)),
        trainer.accuracy(net, x, torch.tensor([0, 1, 2, 0, 1, 2]), 4),
    ]
    found["net"] = [
        [type(layer).__name__, *(list(p.shape) for p in layer.parameters())]
        for layer in trainer.small_net(2, 5, width=4)
    ]
    plain = trainer.ImageTrainer(trainer.small_net)  # type: ignore[arg-type]
    found["usual"] = [
        str(getattr(plain, name))
        for name in ("epochs", "batch_size", "rate", "weight_decay", "validation", "augment")
    ]
    recorded("faithfulness/training", found)
    same = [trainer.described(partial(trainer.small_net, 1, n)) for n in (2, 2, 3)]
    assert same[0] == same[1] != same[2]
    bright = (torch.arange(24) % 2).float().reshape(-1, 1, 1, 1) * torch.ones(
        1, 1, 4, 4
    ) + 0.1 * fixed(24, 1, 4, 4)
    data = TensorDataset(bright, torch.arange(24) % 2)
    quick = replace(
        plain, build=partial(trainer.small_net, 1, 2, 4), epochs=6, batch_size=7, augment=False
    )
    before = torch.random.get_rng_state()
    one, two, other = (quick(data, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.random.get_rng_state()) and not one.training
    weights = [torch.cat([p.flatten() for p in net.parameters()]) for net in (one, two, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert trainer.accuracy(one, bright, torch.arange(24) % 2, 24) == 1.0


def test_a_few_steps_of_training(monkeypatch: pytest.MonkeyPatch) -> None:
    """From known weights, on images that are all alike, so that no order matters."""
    made: list[nn.Module] = []

    def known(build: Any, seed: int) -> nn.Module:
        made.append(with_weights(build(), seed))
        return made[-1].train()

    monkeypatch.setattr(leakage, "seeded", known)
    monkeypatch.setattr(trainer, "seeded", known)
    x, keep = fixed(1, 2, 6, 6).repeat(5, 1, 1, 1), fixed(1, 6, 6, seed=1).repeat(5, 1, 1) > 0.7
    part = leakage.Removed(x, keep, torch.zeros(5).long())
    held = leakage.Removed(
        fixed(2, 2, 6, 6, seed=4), fixed(2, 6, 6, seed=5) > 0.5, torch.tensor([0, 1])
    )
    found: dict[str, Any] = {"pixels": digest(leakage.probe_pixels(part, held, 1, steps=3))}
    found["probe"] = [digest(p) for p in made[-1].parameters()]
    flat = partial(nn.Sequential, nn.Flatten(), nn.Linear(72, 3))
    for name, given in {
        "usual": {},
        "other": {"rate": 0.02, "weight_decay": 0.3, "batch_size": 2, "validation": 0.5},
    }.items():
        quick = trainer.ImageTrainer(flat, epochs=3, augment=False, **given)  # type: ignore[arg-type]
        net = quick(TensorDataset(x, torch.ones(5).long()), 2)
        found[name] = [digest(p) for p in net.parameters()]
    recorded("faithfulness/steps", found, rtol=1e-3)


def test_kinds_and_settings() -> None:
    axis = Faithfulness()
    found: dict[str, Any] = {"conditions": str(axis.conditions()), "wanted": axis.wanted}
    for shape in ((3, 32, 32), (1, 8, 9, 10), (2, 50), (7,)):
        kind = kinds.kind_of(shape, Pixels())
        found[kind] = {
            name: str(value) for name, value in kinds.usual(kind, shape, Pixels()).items()
        }
    found["text"] = {
        name: str(value) for name, value in kinds.usual("text", (9,), Tokens(mask_token=3)).items()
    }
    found["windows"] = [kinds.usual_windows(n).size for n in (1, 19, 20, 39, 40, 1000)]
    found["spans"] = [
        str(spans_of_curves({"readout": r}, ["probability"]))
        for r in (None, "probability", "logit")
    ]
    labels, counts = labelled(
        Tokens(special=(1, 2), mask_token=3),
        Batch(("a", "b"), torch.tensor([[1, 7, 8, 2], [9, 1, 1, 4]])),
    )
    found["labelled"] = [labels.tolist(), counts.tolist()]
    found["fewer"] = str(
        Faithfulness(
            orders=("morf",), metrics=("aopc", "sensitivity_n"), imputers="zero"
        ).conditions()
    )
    recorded("faithfulness/settings", found)


REFUSED: dict[str, Any] = {
    "fraction": lambda: sweeps.check_fractions((0.2, 1.1)),
    "no fraction": lambda: sweeps.check_fractions(()),
    "fraction 0": lambda: sweeps.check_fractions((0.0,)),
    "falling": lambda: sweeps.check_fractions((0.5, 0.5)),
    "order": lambda: sweeps.removal_ranks(fixed(1, 2), torch.tensor([2]), ("a",), "mofr"),  # type: ignore[arg-type]
    "imputers twice": lambda: sweeps.resolve_imputers(["zero", "zero"]),
    "no imputer": lambda: sweeps.resolve_imputers([]),
    "masks": lambda: mask_bank.fill_bank(
        total,
        batch_of(1, 2),
        torch.tensor([0]),
        fixed(1, 3),
        torch.tensor([[0, 1]]),
        fixed(1, 1, 2),
        None,
        masks=3,
    ),
    "everything": lambda: Faithfulness(fractions=(0.5, 1.0)).check((3, 8, 8)),
    "hidden pictures": lambda: Faithfulness(imputers="hidden").check((3, 8, 8)),
    "own baseline": lambda: Faithfulness(imputers="own_baseline").check((3, 8, 8)),
    "features": lambda: Faithfulness(features=Patches(size=9)).check((3, 8, 8)),
    "no accuracy": lambda: information.fano(1.1, 2),
    "one class": lambda: information.fano(0.5, 1),
    "epochs": lambda: trainer.ImageTrainer(trainer.small_net, epochs=0),  # type: ignore[arg-type]
    "batches": lambda: trainer.ImageTrainer(trainer.small_net, batch_size=0),  # type: ignore[arg-type]
    "validation": lambda: trainer.ImageTrainer(trainer.small_net, validation=1.0),  # type: ignore[arg-type]
    "too few": lambda: trainer.ImageTrainer(trainer.small_net, validation=0.9)(
        TensorDataset(fixed(1, 1, 4, 4), torch.zeros(1).long()), 0
    ),  # type: ignore[arg-type]
    "pairing": lambda: consistency(made_up(n=2), pairing="masks"),  # type: ignore[arg-type]
}


def test_what_is_refused() -> None:
    recorded("faithfulness/refused", refusals(REFUSED))
    for wrong in (
        {"orders": ["morf", "morf"]},
        {"metrics": ["road"], "orders": ["morf"]},
        {"masks": 3},
        {"orders": [], "metrics": []},
    ):
        with pytest.raises(
            ValueError, match=r"twice|needs the order|need at least|must be metrics"
        ):
            Faithfulness(**wrong)  # type: ignore[arg-type]
    assert (
        math.isclose(Faithfulness(masks=4).masks, 4)
        and Faithfulness(masks=2, subsets=(0.3,)).masks == 2
    )

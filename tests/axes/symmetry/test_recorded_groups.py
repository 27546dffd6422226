"""Every group on fixed samples: its order, its elements, its draws, what they do, and what is refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from heatproof import Batch
from heatproof.axes.symmetry.criterion import SIMILARITIES, Criterion, compare, flaws, reasons
from heatproof.axes.symmetry.groups import GROUPS, build, own
from heatproof.axes.symmetry.groups.contract import (
    ENUMERABLE,
    listed,
    order_text,
    orders,
    plan_elements,
    side_by_side,
)
from heatproof.axes.symmetry.model import model_scores
from heatproof.axes.symmetry.orbit import explanation_scores, layer_errors, orbit
from heatproof.axes.symmetry.scores import (
    equivariance,
    invariance,
    layer_symmetry,
    max_sensitivity,
    model_invariance,
)
from heatproof.axes.symmetry.symmetrised import (
    chosen_elements,
    majority,
    symmetrise,
    symmetrise_curve,
)
from heatproof.explainers import GradientShap, Saliency
from support.fixed import batch_of, digest, fixed, picture_model, refusals, row_model
from support.recorded import recorded

REGION = "_region"
PASSAGES = Batch(
    ("a", "b"),
    torch.tensor([[5, 6, 9, 7, 8, 4, 2], [1, 3, 5, 7, 9, 11, 13]]),
    {
        "_passages": torch.tensor([[1, 1, 0, 2, 3, 0, 0], [1, 0, 0, 2, 2, 2, 0]]),
        "attention_mask": torch.ones(2, 7).long(),
    },
)
SETS = batch_of(3, 4, 3, mask=torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0], [1, 0, 1, 0]]).bool())
GRAPHS = batch_of(
    2,
    4,
    2,
    adjacency=fixed(2, 4, 4, seed=1),
    mask=torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]]).bool(),
)
TEXTS = Batch(
    ("a", "b"),
    torch.tensor([[1, 7, 8, 9, 0], [1, 5, 6, 2, 2]]),
    {"attention_mask": torch.tensor([[1, 1, 1, 1, 0], [1] * 5])},
)
SERIES = batch_of(2, 3, 6, attention_mask=fixed(2, 6, seed=3))
PICTURES = batch_of(3, 2, 6, 6, **{REGION: fixed(3, 6, 6, seed=2) > 0.5})
WIDE = batch_of(2, 1, 4, 6)
VOLUMES = batch_of(2, 1, 3, 3, 3)
OWN = own(
    lambda g, b: b.x.roll(g, -1), lambda g, m: m.roll(g, -1), [0, 1, 2, 3, 4, 5], title="rolled"
)
CASES: dict[str, tuple[Any, Batch]] = {
    "cyclic": ("cyclic", SERIES),
    "cyclic along channels": ({"cyclic": {"dim": 1, "along": []}}, SERIES),
    "torus": ("torus", PICTURES),
    "torus of one": ({"torus": {"dims": [1]}}, PICTURES),
    "dihedral 1": ({"dihedral": {"n": 1}}, WIDE),
    "dihedral 2": ({"dihedral": {"n": 2}}, WIDE),
    "dihedral 4": ({"dihedral": {"n": 4}}, PICTURES),
    "dihedral 8": ({"dihedral": {"n": 8}}, batch_of(2, 1, 6, 6)),
    "octahedral": ("octahedral", VOLUMES),
    "octahedral mirrors": ({"octahedral": {"turns": False}}, batch_of(2, 2, 2, 3, 4)),
    "permutation": ("permutation", SETS),
    "permutation of tokens": ({"permutation": {"special": [1, 2]}}, TEXTS),
    "permutation of features": ({"permutation": {"dim": 2, "along": []}}, SETS),
    "passages": ({"passage_permutation": {"features": {"passages": {"mask_token": 0}}}}, PASSAGES),
    "nodes": ("node_permutation", GRAPHS),
    "product": ({"product": {"factors": [{"cyclic": {"dim": -2}}, {"cyclic": {"dim": -1}}]}}, WIDE),
    "product with a permutation": (
        {"product": {"factors": ["permutation", {"cyclic": {"dim": 2, "along": []}}]}},
        SETS,
    ),
    "so2": ("so2", PICTURES),
    "scale": ({"scale": {"most": 1.5}}, PICTURES),
    "so3": ("so3", batch_of(2, 4, 4)),
    "so3 scalar": ({"so3": {"maps": "scalar", "columns": [3, 0, 2]}}, batch_of(2, 4, 4)),
    "own": (OWN, SERIES),
}


@pytest.mark.parametrize("case", CASES)
def test_what_a_group_does(case: str) -> None:
    group, batch = build(CASES[case][0]), CASES[case][1]
    group.check(tuple(batch.x.shape[1:]))
    first = batch[:1]
    drawn = group.sample(batch, 3, 5)
    told: dict[str, Any] = {"title": group.title, "exact": group.exact, "rank": group.rank}
    told |= {"order": str(group.order(batch)), "orders": list(map(str, orders(group, batch)))}
    told |= {"identity": digest(group.identity(first)), "sample": digest(drawn, 60)}
    told["elements"] = digest(group.elements(first), 40) if group.order(batch) < 100 else "many"
    g, h = drawn[0], drawn[1]
    moved = group.act(g, batch)
    told |= {
        "moved": digest(moved.x),
        "aux": {name: digest(value.double()) for name, value in moved.aux.items()},
    }
    told |= {
        "by one": digest(group.act(g[0], batch[[0, 0]]).x),
        "composed": digest(group.compose(g, h), 40),
    }
    told["inverse"] = digest(group.inverse(g), 40)
    maps = fixed(*batch.x.shape, seed=7)
    told |= {"maps": digest(group.move(g, maps)), "shape": list(group.move(g, maps).shape)}
    both = group.act(group.compose(g, h), batch).x
    there = group.act(group.inverse(g), moved).x
    if group.exact:
        assert torch.allclose(
            both.double(), group.act(g, group.act(h, batch)).x.double(), atol=1e-5
        )
        assert torch.allclose(there.double(), batch.x.double(), atol=1e-5)
    plan = plan_elements(group, batch, 4, seed=2)
    told |= {
        "plan": digest(plan.elements, 60),
        "counts": plan.counts.tolist(),
        "whole": plan.whole.tolist(),
    }
    chosen, counts = chosen_elements(group, batch, 4, seed=2)
    told |= {"chosen": digest(chosen, 60), "chosen counts": counts.tolist()}
    recorded(f"groups/{case.replace(' ', '_')}", told)


REFUSED: dict[str, Any] = {
    "cyclic without the dimension": lambda: build({"cyclic": {"dim": 3}}).check((2, 2)),
    "cyclic along the batch": lambda: build({"cyclic": {"dim": 0}}).check((2, 2)),
    "torus twice": lambda: build({"torus": {"dims": [-1, 2]}}).check((2, 2)),
    "torus of the wrong length": lambda: build("torus").move(
        torch.zeros(2, 3).long(), fixed(2, 2, 2)
    ),
    "dihedral of rows": lambda: build("dihedral").check((5,)),
    "dihedral 8 of volumes": lambda: build({"dihedral": {"n": 8}}).check((1, 4, 4, 4)),
    "dihedral of no square": lambda: build("dihedral").check((1, 4, 5)),
    "dihedral beyond": lambda: build("dihedral").move(torch.tensor(8), fixed(1, 4, 4)),
    "dihedral below": lambda: build("dihedral").move(torch.tensor(-1), fixed(1, 4, 4)),
    "dihedral of numbers": lambda: build({"dihedral": {"n": 8}}).move(
        torch.tensor(1), torch.ones(1, 4, 4).long()
    ),
    "octahedral of pictures": lambda: build("octahedral").check((1, 4, 4)),
    "octahedral of no cube": lambda: build("octahedral").check((1, 4, 4, 5)),
    "so2 of series": lambda: build("so2").check((1, 4)),
    "so2 listed": lambda: build("so2").elements(PICTURES),
    "so3 with two columns": lambda: build({"so3": {"columns": [0, 0, 1]}}).check((4, 4)),
    "so3 beyond": lambda: build({"so3": {"columns": [0, 1, 3]}}).check((4, 3)),
    "so3 maps": lambda: build("so3").move(torch.eye(3), fixed(2, 3)),
    "permutation of a graph": lambda: build("permutation").act(torch.arange(4), GRAPHS),
    "permutation of another length": lambda: build("permutation").move(
        torch.arange(3), fixed(2, 4)
    ),
    "permutation padding": lambda: build("permutation").elements(SETS),
    "nodes without edges": lambda: build("node_permutation").act(torch.arange(4), SETS),
    "nodes of rows": lambda: build("node_permutation").check((4,)),
    "too many": lambda: listed("x", ENUMERABLE + 1),
    "product that does not commute": lambda: build(
        {"product": {"factors": ["cyclic", "dihedral"]}}
    ).check((1, 4, 4)),
    "product of no element": lambda: build({"product": {"factors": ["cyclic"]}}).move(
        torch.tensor([2, 1]), fixed(1, 4)
    ),
    "element of another shape": lambda: build("cyclic").move(torch.zeros(3).long(), fixed(2, 4)),
    "element that is none": lambda: build("torus").move(torch.tensor(1), fixed(2, 4, 4)),
    "no elements": lambda: plan_elements(build("cyclic"), SERIES, 0, 0),
    "true elements": lambda: plan_elements(build("cyclic"), SERIES, True, 0),
    "single": lambda: symmetrise_curve(
        row_model(1), batch_of(1, 1), torch.tensor([0]), Saliency(), "cyclic"
    ),
    "steps": lambda: symmetrise_curve(
        row_model(4), batch_of(1, 4), torch.tensor([0]), Saliency(), "cyclic", (2, 2)
    ),
    "no step": lambda: symmetrise_curve(
        row_model(4), batch_of(1, 4), torch.tensor([0]), Saliency(), "cyclic", ()
    ),
    "step 0": lambda: symmetrise_curve(
        row_model(4), batch_of(1, 4), torch.tensor([0]), Saliency(), "cyclic", (0, 2)
    ),
    "fresh": lambda: symmetrise_curve(
        row_model(4), batch_of(1, 4), torch.tensor([0]), Saliency(), "cyclic", fresh=0
    ),
    "whole": lambda: symmetrise(Saliency(), "so2").check(picture_model(), (3, 12, 12)),
    "ball": lambda: max_sensitivity(
        row_model(4), batch_of(1, 4), torch.tensor([0]), Saliency(), radius=0.0
    ),
    "draws": lambda: max_sensitivity(
        row_model(4), batch_of(1, 4), torch.tensor([0]), Saliency(), n=0
    ),
    "target": lambda: equivariance(
        row_model(4), batch_of(2, 4), torch.tensor([0]), Saliency(), build("cyclic")
    ),
    "kind": lambda: invariance(
        row_model(4), batch_of(1, 4), torch.tensor([0]), Saliency(), build("cyclic")
    ),
    "own not the identity first": lambda: own(
        lambda g, b: b.x.roll(g, 1), lambda g, m: m.roll(g, 1), [1, 0]
    ).check((4,)),
    "own not closed": lambda: own(
        lambda g, b: b.x.roll(g, 1), lambda g, m: m.roll(g, 1), [0, 1]
    ).check((4,)),
    "own of nothing": lambda: own(lambda g, b: b.x, lambda g, m: m, []),
    "own not linear": lambda: own(lambda g, b: b.x, lambda g, m: m.abs() if g else m, [0, 1]).check(
        (4,)
    ),
    "own that mixes": lambda: own(
        lambda g, b: b.x, lambda g, m: m.flip(0) if g else m, [0, 1]
    ).check((4,)),
    "own of another shape": lambda: own(lambda g, b: b.x, lambda g, m: m[:, :1], [0]).check((4,)),
    "own that does nothing": lambda: own(
        lambda g, b: b.x, lambda g, m: m.flip(1) if g else m, [0, 1]
    ).act(torch.tensor(1), batch_of(1, 4)),
    "own named twice": lambda: own(
        lambda g, b: b.x.roll(g, 1), lambda g, m: m.roll(g, 1), [0, 2, 4, 6]
    ).act(torch.tensor(1), batch_of(1, 4)),
    "own that acts otherwise": lambda: own(
        lambda g, b: b.x.roll(g * g, 1), lambda g, m: m.roll(g, 1), [0, 1, 2, 3, 4]
    ).act(torch.tensor(1), batch_of(1, 5)),
    "own beyond": lambda: own(lambda g, b: b.x.roll(g, 1), lambda g, m: m.roll(g, 1), [0, 1]).move(
        torch.tensor(2), fixed(1, 2)
    ),
    "own before a check": lambda: own(lambda g, b: b.x, lambda g, m: m, [0]).inverse(
        torch.tensor(0)
    ),
}


def test_what_is_refused() -> None:
    recorded("groups/refused", refusals(REFUSED))


def test_small_parts() -> None:
    a, b = fixed(3, 1, 8, 8), fixed(3, 1, 8, 8, seed=1)
    b[2] = 0
    found: dict[str, Any] = {name: compare(name, a, b).tolist() for name in SIMILARITIES}
    maps = torch.stack(
        [fixed(4), torch.zeros(4), torch.ones(4), torch.tensor([1.0, torch.nan, 0, 0])]
    )
    found["flaws"] = [flaws("cosine", maps).tolist(), flaws("agreement", maps).tolist()]
    found["reasons"] = list(
        reasons(
            torch.tensor([0, 1, 0]),
            torch.tensor([[0, 2], [3, 0], [0, 0]]),
            "it",
            torch.tensor([True] * 3),
        )
    )
    found["orders"] = [order_text(x) for x in (1, 10**12 - 1, 10**12, 123 * 10**20, math.inf)]
    found["side"] = [
        part.tolist() for part in side_by_side([torch.tensor([1, 2, 3]), torch.tensor([4])])
    ]
    found["majority"] = majority(torch.tensor([[3, 1], [2, 1], [2, 0], [3, 2], [5, 2]])).tolist()
    found["groups"] = list(GROUPS)
    recorded("groups/parts", found)


def test_scores_with_their_defaults() -> None:
    model, batch = picture_model(), batch_of(3, 3, 12, 12)
    target = torch.tensor([0, 2, 1])
    found: dict[str, Any] = {}
    for name, group in (("few", build("dihedral")), ("many", build("torus"))):
        score = equivariance(model, batch, target, GradientShap(samples=2), group)
        found[name] = [
            score.value.tolist(),
            score.low.tolist(),
            score.high.tolist(),
            digest(score.each),
            score.exact,
        ]
        found[name] += [digest(score.floor), score.reason]
        alike = model_invariance(model, batch, group)
        assert alike.cosine is not None
        found[f"{name} model"] = [
            [
                part.value.tolist(),
                part.low.tolist(),
                part.high.tolist(),
                digest(part.chance if part.chance is not None else 0),
            ]
            for part in (alike.cosine, alike.agreement, alike.change)
        ]
        layer = layer_symmetry(model, batch, "0", group)
        assert layer.equivariance_error is not None
        found[f"{name} layer"] = [
            layer.verdict,
            layer.invariance_error.tolist(),
            layer.equivariance_error.tolist(),
        ]
        found[f"{name} layer"] += [layer.exact, digest(layer.elements)]
    found["pooled"] = layer_symmetry(model, batch, "5", build("dihedral")).equivariance_error
    found["tolerant"] = layer_symmetry(model, batch, "5", build("dihedral"), tolerance=1.0).verdict
    found["sensitivity"] = max_sensitivity(model, batch, target, Saliency()).tolist()
    found["absolute"] = max_sensitivity(
        model, batch, target, Saliency(), 0.1, 3, 4, relative=False
    ).tolist()
    recorded("groups/scores", found)


def test_chance_worst_and_reference() -> None:
    model, batch = picture_model(), batch_of(3, 3, 12, 12)
    target, others = torch.tensor([0, 2, 1]), Batch(("a", "x"), fixed(2, 3, 12, 12, seed=8))
    for name, group in (("dihedral", "dihedral"), ("so2", "so2")):
        around = orbit(group, batch, 8, 3)
        clean = Saliency()(model, batch, target, 0)
        explain = lambda part, t: Saliency()(model, part, t, 0)  # noqa: E731
        score = explanation_scores(
            around, explain, clean, target, Criterion("cosine", True), others, [0, 2]
        )
        told: dict[str, Any] = {
            "value": score.value.tolist(),
            "high": score.high.tolist(),
            "each": digest(score.each),
        }
        told |= {"chance": digest(score.chance), "by reference": digest(score.by_reference)}
        told |= {"worst": {i: digest(m) for i, m in score.worst.items()}}
        told["back"] = None if score.back is None else score.back.tolist()
        same = explanation_scores(
            around, explain, clean, target, Criterion("spearman", False, 0.2), others
        )
        told["staying"] = [same.value.tolist(), same.low.tolist(), digest(same.chance)]
        found = model_scores(
            around, lambda part: model.logits(model.inputs(part)).detach(), 0.1, target, others
        )
        assert found.cosine is not None
        told["model"] = [
            [p.value.tolist(), p.low.tolist()]
            for p in (found.cosine, found.agreement, found.change)
        ]
        told["levels"] = [digest(found.cosine.chance), digest(found.agreement.chance)]
        moved = layer_errors(around, lambda part: model.module[0](model.inputs(part)).detach())  # type: ignore[index]
        told["layer"] = [digest(part) for part in moved if part is not None]
        recorded(f"groups/orbit_{name}", told)


def test_symmetrised_maps_and_curves() -> None:
    model, batch = picture_model(), batch_of(2, 3, 12, 12)
    target = torch.tensor([3, 1])
    found: dict[str, Any] = {}
    for name, group, n in (
        ("whole", "dihedral", None),
        ("three", "dihedral", 3),
        ("drawn", "so2", 3),
    ):
        made = symmetrise(Saliency(), group, n)
        found[name] = [
            digest(made(model, batch, target, 4)),
            made.kind,
            made.stochastic,
            made.control,
            made.categorical,
        ]
    found["seeded"] = [
        digest(symmetrise(Saliency(), "dihedral", 3, seed=9)(model, batch, target, 4))
    ]
    found["seeded"] += [
        symmetrise(Saliency(), "dihedral", k, seed=s).stochastic
        for k, s in ((1, None), (2, None), (2, 1))
    ]
    for name, group, ns in (("curve", "dihedral", (1, 3, 8)), ("drawn curve", "so2", (1, 2))):
        curve = symmetrise_curve(model, batch, target, Saliency(), group, ns)
        found[name] = [[p.n, p.score, p.scores.tolist(), p.passes, p.spent, p.whole] for p in curve]
    reached = symmetrise_curve(
        model, batch, target, Saliency(), "dihedral", (1, 2, 4, 8), reach=0.8, seed=2, fresh=2
    )
    found["reached"] = [[p.n, p.score] for p in reached]
    usual = symmetrise_curve(row_model(6), batch_of(1, 6), torch.tensor([0]), Saliency(), "cyclic")
    found["usual"] = [[p.n, p.score] for p in usual]
    recorded("groups/symmetrised", found)

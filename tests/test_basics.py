"""Batches, columns of scores, names and errors: the words and numbers that everything else is made of."""

from __future__ import annotations

import errno
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from heatproof import errors
from heatproof.errors import BadParameter, UserError
from heatproof.explainers import EXPLAINERS, Lime, Saliency, SmoothGrad
from heatproof.results import FLIPPED, OK, UNDEFINED, Exhibit, Scores
from heatproof.types import (
    Batch,
    Function,
    Moved,
    adopted,
    label_of,
    matches,
    name_of,
    parameters,
    role_of,
)
from support.recorded import recorded


def tried(call: Any) -> Any:
    try:
        return call()
    except UserError as error:
        return [type(error).__name__, str(error), list(getattr(error, "keys", ()))]


def test_batches_are_cut_joined_and_carried() -> None:
    x = torch.arange(12.0).reshape(4, 3)
    moved = Moved(lambda g, batch: batch.with_x(batch.x.roll(1, 1) + g[:, None]), torch.arange(4))
    batch = Batch(
        ("a", "b", "c", "d"), x, {"mask": x > 4}, torch.tensor([3, 2, 1, 0]), moved, "tokens"
    )
    found: dict[str, Any] = {}
    for name, index in (
        ("slice", slice(1, 3)),
        ("list", [3, 0]),
        ("mask", torch.tensor([True, False, False, True])),
    ):
        part = batch[index]
        found[name] = [part.ids, part.x, part.aux["mask"], part.label, part.moved.g, part.tokenizer]  # type: ignore[union-attr]
    found["carried"] = [
        batch.carried(x),
        batch.carried(torch.stack([x, 2 * x], -1)),
        batch[:1].with_x(x[:1] + 1).x,
    ]
    assert torch.equal(Batch(("a",), x[:1]).carried(x[:1]), x[:1])
    both = Batch.joined([batch[:2], batch[3:]])
    found["joined"] = [both.ids, both.x, both.aux["mask"], both.label, len(both)]
    found["wrong"] = [
        tried(lambda: Batch(("a",), x)),
        tried(lambda: Batch(("a",), x[:1], {"m": x})),
        tried(lambda: Batch(("a",), x[:1], {}, x[:2])),
    ]
    there = batch.to("cpu")
    assert (
        there.ids == batch.ids
        and torch.equal(there.label, batch.label)
        and torch.equal(there.aux["mask"], batch.aux["mask"])
    )
    shown = Exhibit.of("lime", ("blur", 2.0), batch, 2, None, "note")
    found["exhibit"] = [
        shown.explainer,
        shown.condition,
        shown.level,
        shown.sample,
        shown.image,
        shown.note,
        shown.aux["mask"],
    ]
    recorded("basics/batches", found)


def test_columns_of_scores() -> None:
    nan = torch.nan
    value = torch.tensor([0.5, nan, 0.25])
    made = {
        "plain": Scores.column("e", "m", ("c", 1.0), value, ["", "", ""]),
        "reasons": Scores.column("e", "m", ("c", 1.0), value, ["", "flat", "gone"]),
        "status": Scores.column(
            "e", "m", ("c", 1.0), value, ["x", "", ""], torch.tensor([FLIPPED, OK, OK])
        ),
        "rows": Scores.column(
            "e",
            "m",
            ("c", 1.0),
            value[:2],
            ["", "why", "", ""],
            rows=torch.tensor([2, 0]),
            missing=["p", "q"],
        ),
        "bounds": Scores.column("e", "m", ("c", 1.0), value, [""] * 3, bounds=(value - 0.1, None)),
        "both": Scores.column(
            "e",
            "m",
            ("c", 1.0),
            value,
            ["", "", "z"],
            bounds=(value - 0.1, value + 0.1),
            missing="none",
        ),
    }
    found = {
        k: [s.value, s.status, s.reason, s.low, s.high, s.condition, s.level, s.repeat, s.imputer]
        for k, s in made.items()
    }
    recorded("basics/columns", found)
    assert len({OK, FLIPPED, UNDEFINED}) == 3


@dataclass(frozen=True)
class Mine:
    """One of one's own."""

    name: ClassVar[str] = "mine"
    k: int = 3
    of: Any = None
    list: tuple[Any, ...] = (1, 2)
    made: dict[str, int] = field(default_factory=dict)

    def __call__(self, model: Any, batch: Any, target: Any, seed: int) -> Any:
        return batch.x * seed


def bare(model: Any, batch: Any, target: Any, seed: int) -> Any:
    return batch.x


def test_names_labels_parameters_and_roles() -> None:
    items = {
        "mine": Mine(),
        "other": Mine(4, Saliency(), (1,), {"a": 1}),
        "function": bare,
        "wrapped": Function(bare, control=True),
    }
    items |= {"lime": Lime(samples=9), "smooth": SmoothGrad(of=Lime(samples=9))}
    found: dict[str, Any] = {
        k: [name_of(v), label_of(v), label_of(v, lambda n: n == "k"), str(parameters(v))]
        for k, v in items.items()
    }
    own = adopted(Mine())
    found["adopted"] = [
        role_of(own),
        own.kind,
        own.stochastic,
        own.control,
        role_of(adopted(items["wrapped"])),
        adopted(Lime()) == Lime(),
    ]
    assert torch.equal(own(None, Batch(("a",), torch.ones(1, 2)), None, 3), torch.full((1, 2), 3.0))  # type: ignore[arg-type]
    own.check(None, (1, 2))  # type: ignore[arg-type]
    pairs = [
        ("lime", "lime(samples=3)"),
        ("lim?", "lime"),
        ("a|lime", "lime(k=1)"),
        ("a | b", "b"),
        ("lime(*)", "lime(k=1)"),
        ("LIME", "lime"),
        ("*", "x"),
    ]
    found["matches"] = [matches(*pair) for pair in pairs]
    recorded("basics/names", found)


def test_errors_name_the_value_and_the_nearest_choice() -> None:
    choices = ["saliency", "Grad-CAM", "grad_cam_plus_plus", "lime"]
    found: dict[str, Any] = {
        w: errors.nearest(w, choices, 2)
        for w in ("sailency", "grad_cam", "GRADCAM", "xyz", "lme", "")
    }
    found["unknown"] = [str(errors.unknown("explainer", w, choices)) for w in ("lyme", "zzz", 3)]
    found["known"] = [
        tried(lambda v=v, k=k: errors.only_known(v, k, "it"))
        for v, k in (
            ({"a": 1}, ["a"]),
            ({"b": 1}, ["a"]),
            ({"stepz": 1}, ["steps"]),
            ({"a": 1}, []),
        )
    ]
    specs: list[Any] = [
        "lime",
        "lyme",
        {"lime": {"samples": 9}},
        {"lime": {"samplez": 9}},
        {"lime": {"samples": 0}},
        {"lime": 3},
        {"sobel": 3},
    ]
    specs += [
        {"lime": None},
        {"lime": {}, "rise": {}},
        {"lymee": {}},
        3,
        Lime,
        {"smoothgrad": {"of": "x"}},
        {"integrated_gradients": {"steps": 1.5}},
    ]
    found["resolved"] = [
        str(tried(lambda s=s: errors.resolve("explainer", EXPLAINERS, s)))[:230] for s in specs
    ]
    passing = [
        OSError(errno.EIO, ""),
        OSError(errno.ENOSPC, ""),
        ConnectionResetError(),
        TimeoutError(),
        ValueError(),
        OSError("x"),
        OSError(errno.ESTALE, ""),
    ]
    found["passing"] = [errors.is_passing(e) for e in passing]
    found["printable"] = [
        errors.printable(t) for t in ("a\x1b[2Jb\u202ec", "a\nb\tc", "é 漢", "\x07", "\x9b")
    ]
    with pytest.raises(BadParameter) as told, errors.inside("a", 0), errors.inside("b"):
        raise UserError("wrong")
    found["inside"] = [str(told.value), told.value.keys]
    recorded("basics/errors", found)


def test_what_may_pass_is_tried_again_after_each_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    slept: list[float] = []
    monkeypatch.setattr(errors, "PAUSES", (0.1, 0.5, 2.0))  # trials of faults leave others behind
    monkeypatch.setattr(
        "heatproof.errors.time", SimpleNamespace(sleep=slept.append)
    )  # other threads go on sleeping
    calls = []

    def act(until: int, error: Exception) -> int:
        calls.append(1)
        if len(calls) <= until:
            raise error
        return len(calls)

    assert errors.patiently(lambda: act(0, OSError())) == 1 and slept == []
    calls.clear()
    assert errors.patiently(lambda: act(2, OSError(errno.EIO, ""))) == 3 and slept == [0.1, 0.5]
    calls.clear(), slept.clear()
    assert errors.patiently(lambda: act(4, OSError(errno.EIO, "")), (5.0, 10.0)) == 5 and slept == [
        0.1,
        0.5,
        2.0,
        5.0,
    ]
    calls.clear(), slept.clear()
    with pytest.raises(OSError, match="lasting"):
        errors.patiently(lambda: act(9, OSError(errno.EIO, "lasting")))
    assert slept == [0.1, 0.5, 2.0] and len(calls) == 4
    calls.clear(), slept.clear()
    with pytest.raises(OSError, match="full"):
        errors.patiently(lambda: act(9, OSError(errno.ENOSPC, "full")))
    assert slept == [] and len(calls) == 1

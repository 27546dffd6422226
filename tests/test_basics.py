"""Batches, columns of scores, names and errors: the words and numbers that everything else is made of."""

from __future__ import annotations

import errno
import re
from dataclasses import dataclass, field, fields
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
import torch

from heatproof import Model, errors
from heatproof.axes import EVALUATIONS
from heatproof.axes.stability.perturbations import KNOWN
from heatproof.axes.symmetry.groups import GROUPS
from heatproof.errors import BadParameter, UserError
from heatproof.evaluation import FLIPPED, OK, UNDEFINED, GalleryImage, Scores
from heatproof.explainers import (
    ALIASES,
    EXPLAINERS,
    IntegratedGradients,
    Lime,
    Saliency,
    SmoothGrad,
)
from heatproof.features import GROUPINGS
from heatproof.lazy import fold
from heatproof.removal import CONTEXTUAL, IMPUTERS
from heatproof.types import (
    Batch,
    CallableExplainer,
    Moved,
    label_of,
    matches,
    name_of,
    parameters,
    role_of,
    wrap_explainer,
)


def some_batch() -> Batch:
    x = torch.arange(12.0).reshape(4, 3)
    moved = Moved(lambda g, batch: batch.with_x(batch.x.roll(1, 1) + g[:, None]), torch.arange(4))
    label = torch.tensor([3, 2, 1, 0])
    return Batch(("a", "b", "c", "d"), x, {"mask": x > 4}, label, moved, "tokens")


@pytest.mark.parametrize(
    ("index", "positions"),
    [
        (slice(1, 3), [1, 2]),
        ([3, 0], [3, 0]),
        (torch.tensor([True, False, False, True]), [0, 3]),
    ],
)
def test_a_part_of_a_batch_has_all_that_belongs_to_its_samples(
    index: Any, positions: list[int]
) -> None:
    batch = some_batch()
    part = batch[index]
    assert part.ids == tuple(batch.ids[i] for i in positions)
    assert torch.equal(part.x, batch.x[positions])
    assert torch.equal(part.aux["mask"], batch.aux["mask"][positions])
    assert part.label is not None and batch.label is not None
    assert torch.equal(part.label, batch.label[positions])
    assert part.moved is not None
    assert part.moved.g.tolist() == positions
    assert part.tokenizer == "tokens"


def test_what_is_drawn_for_a_moved_batch_is_moved_without_the_offset() -> None:
    batch = some_batch()
    x = batch.x
    assert torch.equal(batch.carried(x), x.roll(1, 1))
    two = torch.stack([x, 2 * x], -1)
    assert torch.equal(batch.carried(two), two.roll(1, 1))
    unmoved = Batch(("a",), x[:1])
    assert torch.equal(unmoved.carried(x[:1]), x[:1])


def test_batches_are_joined_without_labels_and_go_to_a_device() -> None:
    batch = some_batch()
    both = Batch.joined([batch[:2], batch[3:]])
    assert both.ids == ("a", "b", "d")
    assert torch.equal(both.x, batch.x[[0, 1, 3]])
    assert torch.equal(both.aux["mask"], batch.aux["mask"][[0, 1, 3]])
    assert both.label is None
    there = batch.to("cpu")
    assert there.ids == batch.ids
    assert torch.equal(there.label, batch.label)
    assert torch.equal(there.aux["mask"], batch.aux["mask"])


def test_a_batch_refuses_tensors_of_another_number_of_samples() -> None:
    x = torch.zeros(4, 3)
    for name, make in {
        "x": lambda: Batch(("a",), x),
        "mask": lambda: Batch(("a",), x[:1], {"mask": x}),
        "label": lambda: Batch(("a",), x[:1], {}, x),
    }.items():
        with pytest.raises(UserError, match=f"1 .*{name}.* 4"):
            make()


def test_an_exhibit_is_one_sample_of_a_batch() -> None:
    batch = some_batch()
    shown = GalleryImage.of("lime", ("blur", 2.0), batch, 2, None, "note")
    assert (shown.explainer, shown.condition, shown.level) == ("lime", "blur", 2.0)
    assert (shown.sample, shown.note) == ("c", "note")
    assert torch.equal(shown.image, batch.x[2])
    assert torch.equal(shown.aux["mask"], batch.aux["mask"][2])


NAN = torch.nan


def column(value: list[float], reason: list[str], *more: Any, **given: Any) -> Scores:
    return Scores.column("e", "m", ("c", 1.0), torch.tensor(value), reason, *more, **given)


def same(found: Any, expected: list[float]) -> bool:
    values = torch.as_tensor(found).double()
    return torch.allclose(values, torch.tensor(expected).double(), atol=1e-6, equal_nan=True)


def test_a_score_that_is_not_finite_is_undefined_and_has_a_reason() -> None:
    scores = column([0.5, NAN, 0.25], ["", "", ""])
    assert same(scores.value, [0.5, NAN, 0.25])
    assert list(scores.status) == [OK, UNDEFINED, OK]
    assert [bool(reason) for reason in scores.reason] == [False, True, False]
    assert len({OK, FLIPPED, UNDEFINED}) == 3


def test_a_score_with_a_reason_is_undefined() -> None:
    scores = column([0.5, NAN, 0.25], ["", "flat", "gone"])
    assert same(scores.value, [0.5, NAN, NAN])
    assert list(scores.status) == [OK, UNDEFINED, UNDEFINED]
    assert list(scores.reason) == ["", "flat", "gone"]


def test_a_status_that_is_given_is_kept_and_has_no_score() -> None:
    scores = column([0.5, NAN, 0.25], ["x", "", ""], torch.tensor([FLIPPED, OK, OK]))
    assert same(scores.value, [NAN, NAN, 0.25])
    assert list(scores.status) == [FLIPPED, UNDEFINED, OK]


def test_scores_of_some_rows_go_to_their_rows() -> None:
    rows = torch.tensor([2, 0])
    scores = column([0.5, NAN], ["", "why", "", ""], rows=rows, missing=["p", "q"])
    assert same(scores.value, [NAN, NAN, 0.5, NAN])
    assert list(scores.reason[:3]) == ["q", "why", ""]


def test_bounds_are_undefined_where_the_score_is() -> None:
    value = [0.5, NAN, 0.25]
    bounds = (torch.tensor(value) - 0.1, torch.tensor(value) + 0.1)
    scores = column(value, ["", "", "z"], bounds=bounds, missing="none")
    assert same(scores.low, [0.4, NAN, NAN])
    assert same(scores.high, [0.6, NAN, NAN])
    assert list(scores.reason) == ["", "none", "z"]
    below = column(value, [""] * 3, bounds=(bounds[0], None))
    assert same(below.low, [0.4, NAN, 0.15])
    assert below.high is None


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


def test_a_label_has_the_parameters_that_differ_from_their_defaults() -> None:
    other = Mine(4, Saliency(), (1,), {"a": 1})
    assert label_of(Mine()) == "mine"
    assert label_of(other) == "mine(k=4, of=saliency, list=(1,), made={'a': 1})"
    assert "k=" not in label_of(other, lambda name: name == "k")
    assert label_of(SmoothGrad(of=Lime(samples=9))) == "smoothgrad(of=lime(samples=9))"
    for function in (bare, CallableExplainer(bare, control=True)):
        assert name_of(function) == label_of(function) == "bare"


def test_parameters_are_plain_data_with_nested_objects() -> None:
    found = parameters(Mine(4, Saliency(), (1,), {"a": 1}))
    assert (found["k"], found["list"], found["made"]) == (4, [1], {"a": 1})
    assert found["of"]["name"] == "saliency"
    assert parameters(bare) == {"object": "bare"}


def test_an_explainer_of_ones_own_gets_the_usual_for_what_it_does_not_say() -> None:
    own = wrap_explainer(Mine())
    assert (own.kind, own.stochastic, own.control, role_of(own)) == (
        "feature",
        True,
        False,
        "method",
    )
    assert role_of(wrap_explainer(CallableExplainer(bare, control=True))) == "control"
    assert wrap_explainer(Lime()) == Lime()
    batch = Batch(("a",), torch.ones(1, 2))
    model, target = Model(torch.nn.Linear(2, 2)), torch.zeros(1, dtype=torch.int64)
    assert torch.equal(own(model, batch, target, 3), torch.full((1, 2), 3.0))
    own.check(model, (1, 2))


@pytest.mark.parametrize(
    ("pattern", "label", "matching"),
    [
        ("lime", "lime(samples=3)", True),
        ("lim?", "lime", True),
        ("a|lime", "lime(k=1)", True),
        ("a | b", "b", True),
        ("lime(*)", "lime(k=1)", True),
        ("LIME", "lime", False),
        ("*", "x", True),
    ],
)
def test_a_pattern_matches_labels(pattern: str, label: str, matching: bool) -> None:
    assert matches(pattern, label) == matching


CHOICES = ["saliency", "Grad-CAM", "grad_cam_plus_plus", "lime"]


@pytest.mark.parametrize(
    ("word", "near"),
    [
        ("sailency", ["saliency"]),
        ("grad_cam", ["Grad-CAM", "grad_cam_plus_plus"]),
        ("GRADCAM", ["Grad-CAM", "grad_cam_plus_plus"]),
        ("lme", ["lime"]),
        ("xyz", []),
        ("", []),
    ],
)
def test_the_nearest_choices(word: str, near: list[str]) -> None:
    assert errors.nearest(word, CHOICES, 2) == near


def test_an_unknown_name_is_told_with_the_nearest_and_all_choices() -> None:
    told = str(errors.unknown("explainer", "lyme", CHOICES))
    assert all(name in told for name in ("'lyme'", "'lime'", *CHOICES))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("IG", "integrated_gradients"),
        ("GradCAM", "grad_cam"),
        ("Grad-CAM++", "grad_cam_plus_plus"),
        ("SHAP", "kernel_shap"),
        ("vanilla gradient", "saliency"),
    ],
)
def test_an_explainer_is_suggested_for_the_name_that_papers_use(typed: str, meant: str) -> None:
    with pytest.raises(BadParameter, match=f"{re.escape(repr(typed))}.* {meant!r}"):
        errors.resolve("explainer", EXPLAINERS, typed)


def test_every_alias_is_written_as_it_is_looked_up_and_leads_to_a_name() -> None:
    for alias, name in ALIASES.items():
        assert fold(alias) == alias
        assert name in EXPLAINERS
        assert alias not in EXPLAINERS


REGISTRIES = (EXPLAINERS, EVALUATIONS, KNOWN, GROUPS, IMPUTERS, CONTEXTUAL, GROUPINGS)
REGISTERED = [(registry, name) for registry in REGISTRIES for name in registry]


@pytest.mark.parametrize(
    ("registry", "name"),
    [
        pytest.param(registry, name, id=f"{i}-{name}")
        for i, (registry, name) in enumerate(REGISTERED)
    ],
)
def test_a_registered_class_has_its_name_and_refuses_an_unknown_parameter_in_one_sentence(
    registry: Any, name: str
) -> None:
    kind = registry[name]
    assert kind.name == name
    parameters = [field.name for field in fields(kind)]
    typed = f"n_{parameters[0]}" if parameters else "n_steps"
    with pytest.raises(BadParameter, match=f"{name} has no parameter '{typed}'") as told:
        kind(**{typed: 1})
    assert "http" not in str(told.value)
    assert not parameters or f"'{parameters[0]}'" in str(told.value)
    assert told.value.__cause__ is None and told.value.__context__ is None


def test_a_wrong_value_in_python_is_told_with_its_parameter_and_the_range() -> None:
    for make in (lambda: IntegratedGradients(steps=0), lambda: IntegratedGradients(0)):
        with pytest.raises(BadParameter, match=r"integrated_gradients\.steps .* 1, got 0$") as told:
            make()
        assert told.value.__context__ is None
    with pytest.raises(BadParameter, match="steps, baseline, method, error"):
        IntegratedGradients(*range(9))


def test_only_known_parameters_pass() -> None:
    errors.only_known({"a": 1}, ["a"], "it")
    with pytest.raises(BadParameter, match=r"stepz.*'steps'") as told:
        errors.only_known({"stepz": 1}, ["steps"], "it")
    assert list(told.value.keys) == ["stepz"]
    with pytest.raises(BadParameter, match="'a'"):
        errors.only_known({"a": 1}, [], "it")


@pytest.mark.parametrize("spec", ["lime", {"lime": None}, {"lime": {"samples": 1000}}])
def test_a_spec_is_a_name_with_or_without_parameters(spec: Any) -> None:
    made = errors.resolve("explainer", EXPLAINERS, spec)
    assert isinstance(made, Lime)
    assert made.samples == Lime(samples=1000).samples


@pytest.mark.parametrize(
    ("spec", "facts", "keys"),
    [
        ("lyme", "lyme.*'lime'", None),
        ({"lymee": {}}, "lymee.*'lime'", None),
        ({"lime": {"samplez": 9}}, "samplez.*'samples'", ["lime", "samplez"]),
        ({"lime": {"samples": 0}}, r"lime\.samples.* 2.* 0", ["lime", "samples"]),
        ({"lime": 3}, r"lime.* 3", ["lime"]),
        ({"lime": {}, "rise": {}}, "lime, rise", []),
        (3, "3", []),
        (Lime, r"Lime\(\)", []),
        ({"smoothgrad": {"of": "x"}}, "smoothgrad.* 'x'", None),
        (
            {"integrated_gradients": {"steps": 1.5}},
            r"steps.*1\.5",
            ["integrated_gradients", "steps"],
        ),
    ],
)
def test_a_wrong_spec_is_refused_with_the_value_and_where_it_is(
    spec: Any, facts: str, keys: list[str] | None
) -> None:
    with pytest.raises(BadParameter, match=facts) as told:
        errors.resolve("explainer", EXPLAINERS, spec)
    assert keys is None or list(told.value.keys) == keys


def test_errors_of_storage_and_network_may_pass_and_others_last() -> None:
    for passing in (
        OSError(errno.EIO, ""),
        OSError(errno.ESTALE, ""),
        ConnectionResetError(),
        TimeoutError(),
    ):
        assert errors.is_passing(passing)
    for lasting in (OSError(errno.ENOSPC, ""), OSError("x"), ValueError()):
        assert not errors.is_passing(lasting)


def test_control_characters_are_printed_as_their_codes() -> None:
    assert errors.printable("a\x1b[2Jb\u202ec\x07\x9b") == r"a\u001b[2Jb\u202ec\u0007\u009b"
    assert errors.printable("a\nb\tc é 漢") == "a\nb\tc é 漢"


def test_an_error_knows_where_it_was_met() -> None:
    with (
        pytest.raises(BadParameter, match="wrong") as told,
        errors.inside("a", 0),
        errors.inside("b"),
    ):
        raise UserError("wrong")
    assert list(told.value.keys) == ["a", 0, "b"]


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

    assert errors.retry(lambda: act(0, OSError())) == 1 and slept == []
    calls.clear()
    assert errors.retry(lambda: act(2, OSError(errno.EIO, ""))) == 3 and slept == [0.1, 0.5]
    calls.clear(), slept.clear()
    assert errors.retry(lambda: act(4, OSError(errno.EIO, "")), (5.0, 10.0)) == 5 and slept == [
        0.1,
        0.5,
        2.0,
        5.0,
    ]
    calls.clear(), slept.clear()
    with pytest.raises(OSError, match="lasting"):
        errors.retry(lambda: act(9, OSError(errno.EIO, "lasting")))
    assert slept == [0.1, 0.5, 2.0] and len(calls) == 4
    calls.clear(), slept.clear()
    with pytest.raises(OSError, match="full"):
        errors.retry(lambda: act(9, OSError(errno.ENOSPC, "full")))
    assert slept == [] and len(calls) == 1

"""Parts of models: what tasks read, training, batches, what is refused of outputs, names and checkpoints."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heatproof import Batch, Model, UserError, batching
from heatproof.explainers import EXPLAINERS
from heatproof.features import Pixels
from heatproof.kinds import KINDS, kind_of
from heatproof.models import guards, randomised
from heatproof.models.checkpoints import Checkpoint, unwrapped
from heatproof.models.loaders.named import check_model_name, load_model, short_name
from heatproof.models.smoothed import Smoothed
from heatproof.models.tasks import Regression, as_task, with_region
from support.fixed import normal, with_weights
from support.laws import ALL

NAMES = ("ape", "bee", "cat")


def test_a_classification_reads_logits_as_they_are() -> None:
    task, output = as_task("classification"), normal(4, 3)
    table = task.table(output, {})
    torch.testing.assert_close(table, output)
    torch.testing.assert_close(task.probability(table), output.softmax(1))
    assert torch.equal(task.target(table), output.argmax(1))
    assert list(task.names(NAMES)) == list(NAMES)


def test_probabilities_of_classes_become_their_logarithms() -> None:
    soft = normal(4, 3).softmax(1)
    task = as_task({"classification": {"outputs": "probabilities"}})
    table = task.table(soft, {})
    torch.testing.assert_close(task.probability(table), soft, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("outputs", ["logits", "probabilities"])
@pytest.mark.parametrize("shape", [(4, 1), (4,)])
def test_a_single_output_is_shared_by_no_and_yes(shape: tuple[int, ...], outputs: str) -> None:
    log_odds = normal(*shape)
    output = log_odds if outputs == "logits" else log_odds.sigmoid()
    task = as_task({"binary": {"outputs": outputs}})
    table, z = task.table(output, {}), log_odds.reshape(4)
    torch.testing.assert_close(table, torch.stack([-z / 2, z / 2], 1), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(task.probability(table)[:, 1], z.sigmoid(), rtol=1e-4, atol=1e-5)
    assert torch.equal(task.target(table), (z > 0).long())


def test_a_label_is_predicted_above_its_threshold() -> None:
    task, output = as_task({"multi_label": {"label": 1, "threshold": 0.7}}), normal(4, 3)
    table = task.table(output, {})
    above = output[:, 1] - math.log(0.7 / 0.3)
    torch.testing.assert_close(table, torch.stack([-above / 2, above / 2], 1))
    torch.testing.assert_close(task.probability(table)[:, 1], output[:, 1].sigmoid())
    assert torch.equal(task.target(table), (output[:, 1].sigmoid() > 0.7).long())


@pytest.mark.parametrize("name", ["multi_label", "segmentation"])
def test_a_label_is_found_by_its_name(name: str) -> None:
    by_name = as_task({name: {"label": "cat"}}).numbered(NAMES)
    assert by_name == as_task({name: {"label": 2}})
    with pytest.raises(UserError, match=r"'cta'.*'cat'"):
        as_task({name: {"label": "cta"}}).numbered(NAMES)


def test_a_number_is_unchanged_within_its_tolerance() -> None:
    task = as_task({"regression": {"output": "bee", "tolerance": 0.4}}).numbered(NAMES)
    output = normal(4, 3)
    table = task.table(output, {})
    assert task.probability(table) is None
    target = task.target(table)
    assert torch.equal(table.gather(1, target[:, None]), output[:, 1:2])
    moved = table.clone()
    moved[:, 1] += torch.tensor([0.0, 0.39, -0.39, 0.41])
    assert task.same(table, moved, target).tolist() == [True, True, True, False]


def test_an_output_that_a_label_has_not_is_refused() -> None:
    with pytest.raises(UserError, match=r"1.*0"):
        as_task({"multi_label": {"label": 1}}).table(normal(4, 1), {})


def test_regions_move_with_the_sample() -> None:
    region = torch.tensor([[[True, False], [False, False]]])
    batch = Batch(("a",), normal(1, 3, 2, 2), {"_region": region})
    flipped = with_region(batch, batch.x.flip(-1), lambda maps: maps.flip(-1))
    assert torch.equal(flipped.aux["_region"], region.flip(-1))


def pictures() -> tuple[Model, Batch]:
    net = with_weights(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)))
    return Model(net, classes=NAMES, rows=7), Batch(
        ("a", "b", "c"), normal(3, 1, 8, 8).sigmoid(), label=torch.tensor([0, 1, 2])
    )


@pytest.mark.parametrize("votes", [False, True])
def test_more_rows_per_pass_change_no_smoothed_score(votes: bool) -> None:
    model, batch = pictures()
    smooth = Smoothed(model, 0.5, 8, Pixels(), votes=votes, fill=0.1, seed=2)
    scores = smooth.scores(batch)
    smooth.rows = 40
    torch.testing.assert_close(smooth.scores(batch), scores, rtol=1e-4, atol=1e-5)


def test_a_smoothed_model_shares_the_precision_and_device_of_what_it_smooths() -> None:
    model = Model(with_weights(nn.Linear(4, 3)), classes=NAMES)
    smooth = Smoothed(model, 0.5, 4, Pixels())
    assert smooth.use("bfloat16") is smooth and smooth.to("cpu") is smooth
    assert smooth.precision == model.precision == "bfloat16"
    assert smooth.classes == model.classes


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"keep": True}, r"keep.*True"),
        ({"keep": 1.1}, r"keep.*1\.1"),
        ({"samples": 0}, r"samples.*0"),
        ({"masks": "quantized"}, r"'quantized'.*'quantised'"),
        ({"fill": float("inf")}, "inf"),
        ({"fill": True}, "True"),
        ({"masks": "quantised", "keep": 0.01, "samples": 8}, r"0\.01.*0\.125"),
    ],
    ids=str,
)
def test_parameters_of_smoothing_that_cannot_be(options: dict[str, Any], facts: str) -> None:
    with pytest.raises(UserError, match=facts):
        Smoothed(pictures()[0], **{"keep": 0.5, **options})


def test_weights_that_are_all_alike_cannot_be_randomised() -> None:
    constant = nn.Linear(2, 2, bias=False)
    constant.weight.data.fill_(3)
    models = (pictures()[0], Model(constant), Model(nn.Flatten()))
    assert [randomised.is_randomisable(model) for model in models] == [True, False, False]


def test_passes_and_gradients_are_counted_by_the_sample() -> None:
    model, batch = pictures()
    inputs = model.inputs(batch)
    model.logits(inputs)
    assert (model.passes, model.gradient_passes) == (3, 0)
    model.logits(inputs.clone().requires_grad_())
    assert (model.passes, model.gradient_passes) == (6, 3)


def test_inputs_are_normalised_by_channel() -> None:
    model = Model(nn.Flatten(), mean=(0.5, 0.25), std=(2.0, 4.0))
    inputs = model.inputs(Batch(("a",), torch.ones(1, 2, 1, 2)))
    assert inputs.tolist() == [[[[0.25, 0.25]], [[0.1875, 0.1875]]]]


def test_channels_last_is_a_layout_of_the_weights() -> None:
    layout = Model(nn.Conv2d(3, 4, 2), channels_last=True, device="cpu", task="segmentation")
    assert layout.channels_last
    assert layout.module.weight.is_contiguous(memory_format=torch.channels_last)
    assert not Model(nn.Conv2d(3, 4, 2)).channels_last


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: Model(Model(nn.Linear(3, 2))), "Model"),  # type: ignore[arg-type]
    (lambda: Model("net"), "str"),  # type: ignore[arg-type]
    (lambda: Model(nn.Flatten(), classes="ab"), "'ab'"),
    (lambda: Model(nn.Flatten(), rows=0), r"rows.*0"),
    (lambda: Model(nn.Flatten(), std=(0.0, 1.0)), r"std.*0\.0"),
    (lambda: Model(nn.Flatten(), mean=(0.0, 1.0), std=(1.0, 1.0, 1.0)), r"2, 3"),
    (lambda: pictures()[0].layer("nine"), "'nine'"),
    (lambda: Model(nn.Linear(3, 1)).logits(torch.ones(2, 3)), r"binary.*regression"),
    (lambda: Model(nn.Linear(3, 2)).use("bfloat16").use("float32"), r"bfloat16.*float32"),
    (lambda: Model(nn.Linear(3, 2)).use("int8"), "int8"),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("call", "facts"), REFUSED, ids=[facts for _, facts in REFUSED])
def test_what_no_model_can_be_is_refused(call: Callable[[], Any], facts: str) -> None:
    with pytest.raises(UserError, match=facts):
        call()


def test_what_a_task_leaves_open_is_taken_from_references_once() -> None:
    open_, table = Model(with_weights(nn.Linear(3, 1)), task="regression"), normal(5, 1)
    ready = open_.finished(table)
    assert ready is not open_ and ready.task.tolerance == pytest.approx(
        0.1 * float(table.std()), rel=1e-5
    )
    assert ready.finished(2 * table) is ready and open_.task.tolerance is None
    ready.logits(normal(2, 3))
    assert open_.passes == ready.passes == 2, "both count together"


def test_a_workbench_halves_what_does_not_fit() -> None:
    model, batch = pictures()
    bench = batching.BatchRunner(model, 8)
    sizes = []

    def call(part: Batch, target: Tensor) -> Tensor:
        sizes.append(len(part))
        if len(part) > 2:
            raise RuntimeError("CUDA out of memory. Tried to allocate")
        return part.x.flatten(1).sum(1) + target

    many = Batch(tuple("abcdefg"), normal(7, 1, 8, 8))
    found = [bench.map(call, many, torch.arange(7)), sizes, bench.batch_size, model.rows]
    torch.testing.assert_close(found[0], many.x.flatten(1).sum(1) + torch.arange(7))
    assert sizes == [7, 4, 2, 2, 2, 1] and bench.batch_size == model.rows == 2
    predicted = bench.predict(batch)
    torch.testing.assert_close(predicted, model.logits(model.inputs(batch)))
    words = [
        batching.is_out_of_memory(e)
        for e in (MemoryError(), RuntimeError("can't allocate memory"), RuntimeError("no"))
    ]
    assert words == [True, True, False]


def test_a_single_sample_that_does_not_fit_is_an_error_that_names_its_shape() -> None:
    bench = batching.BatchRunner(pictures()[0], 8)

    def never(part: Batch, target: Tensor) -> Tensor:
        raise MemoryError

    many = Batch(tuple("abcdefg"), normal(7, 1, 8, 8))
    with pytest.raises(UserError, match=r"1, 8, 8.*cpu"):
        bench.map(never, many, torch.arange(7))


@pytest.mark.parametrize("shape", [(3, 4, 4), (4, 4), (1, 4, 4)])
def test_maps_without_channels_count_for_every_channel(shape: tuple[int, ...]) -> None:
    given = normal(2, *shape)
    found = batching.repeat_channels(given, torch.Size((2, 3, 4, 4)), "e")
    assert torch.equal(found, given.reshape(2, -1, 4, 4).expand(2, 3, 4, 4))


@pytest.mark.parametrize("shape", [(2, 4, 4), (3, 4), (1, 4, 5)])
def test_maps_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    facts = r"'e'.*" + ", ".join(map(str, (2, *shape)))
    with pytest.raises(UserError, match=facts):
        batching.repeat_channels(normal(2, *shape), torch.Size((2, 3, 4, 4)), "e")


def test_kinds_of_data_are_told_by_shape_and_type() -> None:
    model, _ = pictures()
    x, ids = torch.zeros, torch.zeros(1, 2, dtype=torch.int64)
    nodes = {"mask": x(1, 2), "adjacency": x(1, 2, 2)}
    given: list[tuple[str, Tensor, dict[str, Tensor]]] = [
        ("table", x(1, 4), {}),
        ("series", x(1, 2, 4), {}),
        ("image", x(1, 2, 4, 4), {}),
        ("volume", x(1, 2, 4, 4, 4), {}),
        ("set", x(1, 2, 3), {"mask": x(1, 2)}),
        ("graph", x(1, 2, 3), nodes),
        ("token ids", ids, {}),
    ]
    for kind, values, aux in given:
        assert kind_of(model, Batch(("a",), values, aux)).name == kind
    net = nn.Sequential(nn.Embedding(4, 2), nn.Flatten(), nn.Linear(4, 2))
    assert kind_of(Model(net, embedding="0"), Batch(("a",), ids)).name == "text"


def test_every_explainer_says_on_which_data_it_is_defined() -> None:
    for explainer in EXPLAINERS.values():
        assert explainer.terms()
        assert set(explainer.undefined_on) <= set(KINDS)
    for name in ("lime", "kernel_shap", "feature_ablation"):
        assert not EXPLAINERS[name].undefined_on
    grad_cam = EXPLAINERS["grad_cam"].undefined_on
    assert "table" in grad_cam and "series" not in grad_cam
    assert "embedding" in EXPLAINERS["saliency"].undefined_on["token ids"]


def test_explainers_say_which_models_they_cannot_explain() -> None:
    plain, blind = Model(nn.Linear(3, 2)), nn.Linear(3, 2)
    blind.differentiable = False  # type: ignore[assignment]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer releases of torch call it deprecated
        scripted = Model(torch.jit.script(nn.Linear(3, 2)))
    given = {
        "network": plain,
        "predicts": Model(blind),
        "scripted": scripted,
        "number": plain.asked(Regression()),
    }
    why = {
        name: {label for label, item in ALL.items() if item.why_unmet(model)}
        for name, model in given.items()
    }
    layers = {"grad_cam", "grad_cam_plus_plus", "layer_cam", "hires_cam", "guided_grad_cam"}
    assert why["network"] == set()
    assert why["number"] == {"mfaba"}
    of_rules = {"deep_lift", "lrp", "attn_lrp", "guided_backprop", "deconvolution"}
    assert why["scripted"] == layers | of_rules
    assert why["predicts"] > layers | {"saliency", "smoothgrad", "mfaba"}
    assert not why["predicts"] & {"lime", "kernel_shap", "occlusion", "rise", "feature_ablation"}
    differentiable = [model.is_differentiable for model in given.values()]
    assert differentiable == [True, False, True, True]


PROBABILITIES = {"classification": {"outputs": "probabilities"}}


@pytest.mark.parametrize("last", [nn.Softmax(1), nn.Sigmoid()], ids=["softmax", "sigmoid"])
def test_a_squashed_last_layer_is_refused_unless_it_is_said(last: nn.Module) -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Sequential(last))
    with pytest.raises(UserError, match=rf"net.*{type(last).__name__.lower()}.*probabilities"):
        guards.refuse_squashed(net, "net", as_task("classification"))
    guards.refuse_squashed(net, "net", as_task(PROBABILITIES))
    guards.refuse_squashed(net, "net", as_task("regression"))
    inside = nn.Sequential(last, nn.Linear(3, 2))
    guards.refuse_squashed(inside, "net", as_task("classification"))


def test_one_output_is_that_of_the_last_layer() -> None:
    assert guards.has_one_output(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)))
    assert not guards.has_one_output(nn.Linear(3, 2))


def test_arguments_that_the_data_lack_or_the_network_has_not_are_named() -> None:
    plain, two = (Model(net, task="regression") for net in (nn.Linear(3, 2), nn.Bilinear(2, 2, 2)))
    guards.check_arguments(plain, ())
    guards.check_arguments(two, ("input2",))
    for model, aux, name in (
        (plain, ("input2",), "input2"),
        (plain, ("mask", "_region"), "mask"),
        (two, (), "input2"),
        (two, ("edge_index",), "input2"),
    ):
        with pytest.raises(UserError, match=name):
            guards.check_arguments(model, aux)


def test_tables_that_have_been_through_a_softmax_are_refused() -> None:
    soft, task = normal(3, 4).softmax(1), as_task("classification")
    for table in (soft, soft * 1.0005):
        with pytest.raises(UserError, match=r"net.*probabilities"):
            guards.refuse_probabilities(table, "net", task)
    # One row or column is no evidence, and one-hot tables or sums beside 1 are no softmax.
    for table in (soft[:1], soft[:, :1], torch.eye(3), soft * 1.002):
        guards.refuse_probabilities(table, "net", task)


def test_heads_drawn_from_other_distributions_are_not_taken_for_initial_ones() -> None:
    g, bound = np.random.default_rng(0), 100**-0.5
    weights = {
        "uniform": g.uniform(-bound, bound, (20, 100)),
        "constant": np.full((20, 100), 0.3),
        "trained": g.normal(0, 0.3, (20, 100)),
        "wider": g.uniform(-bound, bound * 1.01, (20, 100)),
        "laplace": g.laplace(0, 0.02, (20, 100)),
    }
    flagged = set()
    for name, value in weights.items():
        head = nn.Linear(100, 20)
        head.weight.data = torch.from_numpy(value).float()
        head.bias.data.fill_(0.5)
        if guards.untrained_head(nn.Sequential(nn.Linear(3, 100), head)):
            flagged.add(name)
    assert flagged == {"uniform", "constant"}


def test_the_source_of_a_network_knows_its_normalisation() -> None:
    def of(module: str, **known: Any) -> nn.Module:
        kind = type("Net", (nn.Linear,), {"__module__": module})
        net: nn.Module = kind(2, 2)
        for name, value in known.items():
            setattr(net, name, value)
        return net

    cfg = {"mean": (0.5, 0.4), "std": (0.2, 0.1)}
    picture, text = type("C", (), {"image_size": 224})(), type("C", (), {"hidden_size": 3})()
    told = guards.missing_normalisation(of("timm.models", pretrained_cfg=cfg))
    assert "0.5, 0.4" in str(told) and "0.2, 0.1" in str(told)
    told = guards.missing_normalisation(of("transformers.models.vit", config=picture))
    assert "preprocessor_config.json" in str(told)
    assert "torchvision" in str(guards.missing_normalisation(of("torchvision.models.x")))
    silent = [of("timm.models", pretrained_cfg={"mean": (1,)}), of("timm.models", pretrained_cfg=3)]
    silent += [of("transformers.m", config=text), of("transformers.m"), of("mine", config=picture)]
    assert [guards.missing_normalisation(net) for net in silent] == [None] * 5


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("torchvison:x", r"'torchvison'.*'torchvision'"),
        ("bundled:resnet", r"'resnet'.*efficientnet-lite0"),
        ("python:here.py:net", r"here\.py"),
        ("python:net", "python:net"),
        ("resnet18", "resnet18"),
        ("a:b:c", "'a'"),
    ],
)
def test_names_of_no_model_are_refused(name: str, facts: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=facts):
        check_model_name(name, tmp_path)


def test_models_are_called_by_the_last_part_of_their_name() -> None:
    assert check_model_name("bundled:efficientnet-lite0") == "bundled:efficientnet-lite0"
    assert short_name("timm", "resnet18") == "resnet18"
    assert short_name("file", "w/a.pt") == "a"
    assert short_name("python", "m.py:f") == "f"
    assert short_name("hf", "o/n") == "o/n"
    with pytest.raises(UserError, match=r"'bundld'.*'bundled'"):
        load_model("bundld:x")


STATE = {"weight": normal(2, 3), "bias": normal(2)}


@pytest.mark.parametrize(
    ("state", "facts"),
    [
        ({"wieght": STATE["weight"], "bias": STATE["bias"]}, r"'weight'.*'wieght'"),
        ({**STATE, "bias": normal(3)}, r"'bias'.*\(3,\).*\(2,\)"),
        ({"weight": STATE["weight"]}, "'bias'"),
        ({**STATE, "extra": normal(1)}, "'extra'"),
    ],
    ids=["other name", "other shape", "less", "more"],
)
def test_checkpoints_that_do_not_fit_are_refused(state: dict[str, Tensor], facts: str) -> None:
    with pytest.raises(UserError, match=facts):
        Checkpoint(state).weights(Model(nn.Linear(3, 2)))


def test_a_checkpoint_may_be_wrapped_prefixed_or_a_file(tmp_path: Path) -> None:
    model = Model(nn.Linear(3, 2))
    torch.save(STATE, tmp_path / "a.pt")
    prefixed = {f"module.{key}": value for key, value in STATE.items()}
    for given in (STATE, prefixed, tmp_path / "a.pt"):
        found = Checkpoint(given).weights(model)
        assert all(torch.equal(found[key], STATE[key]) for key in STATE)
    for held in (STATE, {"state_dict": STATE, "epoch": 3}, {"model": STATE}):
        assert sorted(unwrapped(held, "it")) == ["bias", "weight"]
    for wrong in ({"a": 1}, [1]):
        with pytest.raises(UserError, match="state dict"):
            unwrapped(wrong, "it")
    kept = Checkpoint(tmp_path / "a.pt")
    assert kept == Checkpoint(tmp_path / "a.pt") != Checkpoint(STATE)
    assert len({kept, Checkpoint(tmp_path / "a.pt")}) == 1


def test_files_that_hold_no_weights_are_named(tmp_path: Path) -> None:
    (tmp_path / "b.pt").write_bytes(b"nothing")
    model = Model(nn.Linear(3, 2))
    for name in ("b.pt", "c.pt"):
        with pytest.raises(UserError, match=name):
            Checkpoint(tmp_path / name).weights(model)

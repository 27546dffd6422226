"""Tasks, networks, smoothing and refusals on fixed numbers: what each gives, as it was when looked at."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from heatproof import Batch, Model, rand
from heatproof.explainers import EXPLAINERS
from heatproof.features import Elements, Patches, Pixels, Superpixels
from heatproof.models import batches, guards, modality, nets, randomised
from heatproof.models.checkpoints import Checkpoint, unwrapped
from heatproof.models.loaders.named import check_model_name, load_model, short_name
from heatproof.models.smoothed import Smoothed, check_quantised
from heatproof.models.tasks import Answer, Options, Readout, Regression, as_task, with_region
from support.fixed import normal, tried
from support.laws import ALL
from support.recorded import recorded

NAMES = ("ape", "bee", "cat")
TASKS: dict[str, Any] = {
    "classification": "classification",
    "classification of probabilities": {"classification": {"outputs": "probabilities"}},
    "binary": "binary",
    "binary of probabilities": {"binary": {"outputs": "probabilities"}},
    "label": {"multi_label": {"label": 1, "threshold": 0.7}},
    "label by name": {"multi_label": {"label": "cat", "outputs": "probabilities"}},
    "number": "regression",
    "number by name": {"regression": {"output": "bee", "tolerance": 0.4}},
    "segmentation": "segmentation",
    "segmentation of a class": {
        "segmentation": {"label": "bee", "overlap": 0.3, "background": None}
    },
    "options": Options(),
    "answer": Answer(),
}


def told(task: Any, output: Tensor, aux: dict[str, Tensor]) -> dict[str, Any]:
    """All that a task says of an output."""
    found: dict[str, Any] = {
        "said": [task.name, task.exclusive, task.readout, task.unchanged, task.fixes]
    }
    found["names"] = tried(lambda: task.names(NAMES))
    found["without names"] = tried(lambda: task.names(None))
    task = tried(lambda: task.numbered(NAMES))
    if task.fixes and task.fixes not in aux:
        found["fixed"] = tried(lambda: task.fix(output, aux))
        aux = {**aux, task.fixes: found["fixed"]}
    table = tried(lambda: task.table(output, aux))
    found["table"] = table
    if isinstance(table, str):
        return found
    other = table.roll(1, 0) * 1.1
    task = tried(lambda: task.finished(table))
    if isinstance(task, str):
        return {**found, "finished": task}
    target = tried(lambda: task.target(table))
    found["target"] = target
    if isinstance(target, str):
        return found
    found |= {
        "probability": task.probability(table),
        "same": task.same(table, other, target),
        "task": repr(task),
    }
    rows = [(table[i], other[i], int(target[i])) for i in range(2)]
    found["change"] = [task.change(a, b, t, lambda k: f"class {k}") for a, b, t in rows]
    found["shown"] = [task.shown(a, t, lambda k: f"class {k}") for a, _, t in rows]
    return found


@pytest.mark.parametrize("name", TASKS)
def test_what_a_task_reads_and_says(name: str) -> None:
    task, place = as_task(TASKS[name]), name.replace(" ", "-")
    wide = (4, 3, 2, 3) if "segmentation" in name else (4, 3)
    one = (4, 1, 2, 3) if "segmentation" in name else (4, 1)
    aux = {"answer": torch.arange(4)[:, None]} if "answer" in task.fixes else {}
    outputs = {"wide": normal(*wide), "one": normal(*one, seed=1), "flat": normal(4, seed=2)}
    if "probabilities" in str(TASKS[name]):
        outputs = {key: value.sigmoid() for key, value in outputs.items()}
        outputs["wide"] = outputs["wide"] / outputs["wide"].sum(1, keepdim=True)
    if name == "answer":  # it has two columns, whatever the network
        outputs = {"wide": outputs["wide"]}
    recorded(
        f"models/task-{place}", {key: told(task, value, aux) for key, value in outputs.items()}
    )


def test_a_readout_of_ones_own_and_regions_that_move() -> None:
    own = Readout(
        lambda output, aux: output[:, :2] * 2,
        lambda before, after: (after > before)[..., 0],
        column=1,
    )
    found = {
        "readout": {
            key: value for key, value in told(own, normal(4, 3), {}).items() if key != "task"
        }
    }
    region = torch.tensor([[[True, False], [False, False]]])
    batch = Batch(("a",), normal(1, 3, 2, 2), {"_region": region})
    found["region"] = with_region(batch, batch.x.flip(-1), lambda maps: maps.flip(-1)).aux[
        "_region"
    ]
    found["wrong"] = tried(lambda: with_region(batch, normal(1, 3, 4, 4), lambda maps: maps))
    recorded("models/readout", found)


def drawn(net: nn.Module) -> nn.Module:
    """A network with weights that are the same everywhere."""
    for name, weights in net.named_parameters():
        weights.data = 0.4 * rand.normal(rand.keys(0, (name,), "weights"), weights.shape)[0].float()
    return net.eval()


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "series": (lambda: nets.CircularCNN1d(2, 3, width=4), (2, 9)),
    "pictures": (lambda: nets.CircularCNN2d(width=3), (1, 6, 7)),
    "standard": (lambda: nets.StandardCNN((8, 12), width=3), (1, 8, 12)),
    "sets": (lambda: nets.DeepSet(3, width=5), (4, 3)),
    "graphs": (lambda: nets.GNN(3, width=4), (4, 3)),
    "words": (lambda: nets.BagOfWords(9, width=4), (5,)),
}


@pytest.mark.parametrize("name", NETS)
def test_networks_of_this_package(name: str) -> None:
    build, shape = NETS[name]
    net = drawn(build())
    x = normal(2, *shape) if name != "words" else torch.arange(10).reshape(2, 5) % 9
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 0, 1, 1, 1]])[:, : shape[0]]
    aux: dict[str, Tensor] = {"sets": {"mask": mask.bool()}, "words": {"attention_mask": mask}}.get(
        name, {}
    )
    if name == "graphs":
        aux = {"adjacency": (normal(2, 4, 4, seed=1) > 0).float(), "mask": mask.bool()}
    found: dict[str, Any] = {
        "output": net(x, **aux),
        "sizes": {k: list(v.shape) for k, v in net.named_parameters()},
    }
    if name != "graphs":
        found["without"] = net(x)
    recorded(f"models/net-{name}", found)


def test_the_usual_sizes_of_networks() -> None:
    usual: dict[str, nn.Module] = {
        "1d": nets.CircularCNN1d(),
        "2d": nets.CircularCNN2d(),
        "sets": nets.DeepSet(3),
    }
    usual |= {
        "graphs": nets.GNN(3),
        "words": nets.BagOfWords(9),
        "standard": nets.StandardCNN((8, 8)),
    }
    recorded("models/sizes", {k: [list(p.shape) for p in v.parameters()] for k, v in usual.items()})
    assert repr(usual["1d"]) and [str(m) for m in usual["2d"].modules() if isinstance(m, nn.Conv2d)]
    recorded(
        "models/layers",
        [
            str(m)
            for net in usual.values()
            for m in net.modules()
            if isinstance(m, nn.Conv1d | nn.Conv2d)
        ],
    )


def line(n: int = 12) -> Batch:
    x = torch.linspace(-1, 1, n)[:, None, None].expand(n, 3, 1) + 0.1
    return Batch(tuple(map(str, range(n))), x, label=(x[:, 0, 0] > 0).long())


def test_training_steps_are_those_of_adam() -> None:
    """One batch for each epoch, so that no order of samples has a say: the same as torch's own optimiser by hand."""
    net, twin = drawn(nets.DeepSet(1, width=4)), drawn(nets.DeepSet(1, width=4))
    steps = nets.fit(net, line(), epochs=3, lr=0.02, weight_decay=0.1, anneal=True)
    optimiser = torch.optim.AdamW(twin.parameters(), lr=0.02, weight_decay=0.1)
    twin.train()
    for step, rate in zip(steps, (0.02, 0.015, 0.005), strict=True):
        optimiser.param_groups[0]["lr"] = rate
        optimiser.zero_grad()
        nn.functional.cross_entropy(twin(line().x), line().label).backward()
        optimiser.step()
        for key, value in twin.state_dict().items():
            torch.testing.assert_close(step[key], value, rtol=1e-4, atol=1e-6)
    assert not net.training and nets.accuracy(net, line(), rows=5) == nets.accuracy(net, line())
    recorded(
        "models/fit", [nets.accuracy(net, line()), nets.rates(1.0, 4, True), nets.rates(1.0, 2)]
    )


def test_batches_of_training_cover_every_sample_once_in_an_order_of_the_seed() -> None:
    seen: list[list[str]] = []

    def look(batch: Batch, generator: torch.Generator) -> Batch:
        seen.append(list(batch.ids))
        return batch

    for seed in (0, 0, 1):
        nets.fit(
            drawn(nets.DeepSet(1, width=4)), line(), epochs=2, seed=seed, batch_size=5, augment=look
        )
    assert [len(part) for part in seen] == [5, 5, 2] * 6
    epochs = [[*seen[i], *seen[i + 1], *seen[i + 2]] for i in range(0, 18, 3)]
    assert all(sorted(epoch) == sorted(line().ids) for epoch in epochs)
    assert epochs[:2] == epochs[2:4] and epochs[0] != epochs[1] and epochs[0] != epochs[4]


def pictures() -> tuple[Model, Batch]:
    net = drawn(nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 3)))
    return Model(net, classes=NAMES, rows=7), Batch(
        ("a", "b", "c"), normal(3, 1, 8, 8).sigmoid(), label=torch.tensor([0, 1, 2])
    )


@pytest.mark.parametrize("masks", ["bernoulli", "quantised"])
@pytest.mark.parametrize("votes", [False, True])
def test_smoothed_scores_radii_and_banks(masks: Any, votes: bool) -> None:
    model, batch = pictures()
    smooth = Smoothed(model, 0.25, 8, Patches(4), masks, votes=votes, fill=0.1, seed=2)
    found: dict[str, Any] = {
        "bank": smooth.bank(4).float().mean(-1),
        "scores": smooth.scores(batch),
    }
    found["facts"] = [
        smooth.name,
        smooth.rows,
        smooth.passes,
        smooth.size_of(5),
        smooth.classes,
        smooth.embedding,
    ]
    found["usual"] = Smoothed(model, 1.0, 2).name
    found["radius"] = tried(lambda: smooth.radius(batch))
    mask = torch.zeros(3, 8, 8, dtype=torch.bool)
    mask[:, :4] = True
    found["radius of a mask"] = tried(lambda: smooth.radius(batch, mask))
    smooth.rows = 40
    found["more rows"] = [smooth.rows, model.rows, smooth.scores(batch)]
    recorded(f"models/smoothed-{masks}{'-votes' * votes}", found)


def test_what_cannot_be_smoothed() -> None:
    model, batch = pictures()
    asked: dict[str, dict[str, Any]] = {
        "keep 0": {"keep": 0},
        "keep true": {"keep": True},
        "keep 1.1": {"keep": 1.1},
    }
    asked |= {
        "samples 0": {"samples": 0},
        "masks": {"masks": "quantized"},
        "fill": {"fill": float("inf")},
    }
    asked |= {
        "quantised": {"masks": "quantised", "keep": 0.3, "samples": 8},
        "fill true": {"fill": True},
    }
    asked |= {
        "tiny": {"masks": "quantised", "keep": 0.01, "samples": 8},
        "features": {"features": Superpixels()},
    }
    found = {
        key: tried(lambda o=own: Smoothed(model, **{"keep": 0.5, **o}).scores(batch))
        for key, own in asked.items()
    }
    found["twice"] = tried(lambda: Smoothed(Smoothed(model, 0.5), 0.5))
    found["exact"] = tried(lambda: check_quantised(0.125, 8))
    recorded("models/smoothed-refused", found)


def test_random_weights_and_twins() -> None:
    net = drawn(
        nn.Sequential(
            nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3), nn.ReLU(), nn.Flatten(), nn.Linear(9, 2)
        )
    )
    model, batch = Model(net), Batch(("a", "b", "c"), normal(3, 2, 4))
    found: dict[str, Any] = {"order": randomised.layers_in_order(model, batch)}
    for scheme in ("permute", "normal"):
        weights = randomised.random_weights(model, 4, 1, scheme)  # type: ignore[arg-type]
        found[scheme] = weights["4.weight"]
        twin = randomised.with_weights(model, weights, batch)
        found[f"{scheme} outputs"] = twin.logits(twin.inputs(batch))
        found[f"{scheme} statistics"] = [
            twin.module[1].running_mean,
            twin.module[1].running_var,
            twin.rows,
        ]  # type: ignore[index]
    found["untouched"] = model.logits(model.inputs(batch))
    found["one sample"] = randomised.with_weights(model, weights, batch[:1]).module[1].running_mean  # type: ignore[index]
    constant = nn.Linear(2, 2, bias=False)
    constant.weight.data.fill_(3)
    found["can be"] = [
        randomised.is_randomisable(m) for m in (model, Model(constant), Model(nn.Flatten()))
    ]
    recorded("models/randomised", found)


def test_what_a_model_knows_of_itself() -> None:
    model, batch = pictures()
    inputs = model.inputs(batch)
    found: dict[str, Any] = {
        "scores": model.logits(inputs),
        "facts": [model.name, model.rows, model.passes, model.gradient_passes],
    }
    model.logits(inputs.clone().requires_grad_())
    found["counted"] = [
        model.passes,
        model.gradient_passes,
        model.size_of(5),
        model.precision,
        model.gradient_scale,
    ]
    layout = Model(nn.Conv2d(3, 4, 2), channels_last=True, device="cpu", task="segmentation")
    assert (
        layout.module.weight.is_contiguous(memory_format=torch.channels_last)
        and layout.channels_last
    )
    assert not Model(nn.Conv2d(3, 4, 2)).channels_last
    normal = Model(nn.Flatten(), mean=(0.5, 0.25), std=(2.0, 4.0), classes=("x",), name="n")
    found["normalised"] = [
        normal.inputs(Batch(("a",), torch.ones(1, 2, 1, 2))),
        normal.mean,
        normal.std,
    ]
    found["refused"] = [
        tried(lambda: Model(model)),
        tried(lambda: Model("net")),  # type: ignore[arg-type]
        tried(lambda: Model(nn.Flatten(), classes="ab")),
        tried(lambda: Model(nn.Flatten(), rows=0)),
        tried(lambda: Model(nn.Flatten(), std=(0.0, 1.0))),
        tried(lambda: Model(nn.Flatten(), mean=(0.0, 1.0), std=(1.0, 1.0, 1.0))),
        tried(lambda: normal.inputs(Batch(("a",), torch.ones(1, 3, 2, 2)))),
        tried(lambda: model.layer("nine")),
        tried(lambda: Model(nn.Linear(3, 1)).logits(torch.ones(2, 3))),
        tried(lambda: Model(nn.Flatten(0)).logits(torch.ones(2, 3))),
        tried(lambda: Model(nn.Linear(3, 2)).use("bfloat16").use("float32")),
        tried(lambda: Model(nn.Linear(3, 2)).use("int8")),  # type: ignore[arg-type]
    ]
    recorded("models/model", found)


def test_what_a_task_leaves_open_is_taken_from_references_once() -> None:
    open_, table = Model(drawn(nn.Linear(3, 1)), task="regression"), normal(5, 1)
    ready = open_.finished(table)
    assert ready is not open_ and ready.task.tolerance == pytest.approx(
        0.1 * float(table.std()), rel=1e-5
    )
    assert ready.finished(2 * table) is ready and open_.task.tolerance is None
    ready.logits(normal(2, 3))
    assert open_.passes == ready.passes == 2, "both count together"


def test_a_workbench_halves_what_does_not_fit() -> None:
    model, batch = pictures()
    bench = batches.Workbench(model, 8)
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
        batches.out_of_memory(e)
        for e in (MemoryError(), RuntimeError("can't allocate memory"), RuntimeError("no"))
    ]
    assert words == [True, True, False]

    def never(part: Batch, target: Tensor) -> Tensor:
        raise MemoryError

    recorded(
        "models/workbench",
        [tried(lambda: bench.map(never, many, torch.arange(7))), bench.batch_size, predicted],
    )
    shaped = [
        batches.as_inputs(normal(2, *s), torch.Size((2, 3, 4, 4)), "e")
        for s in ((3, 4, 4), (4, 4), (1, 4, 4))
    ]
    wrong = [normal(2, *shape) for shape in ((2, 4, 4), (3, 4), (1, 4, 5))]
    refused = [
        tried(lambda m=maps: batches.as_inputs(m, torch.Size((2, 3, 4, 4)), "e")) for maps in wrong
    ]
    recorded("models/maps", [[list(m.shape) for m in shaped], shaped[1].mean((2, 3)), refused])


def test_kinds_of_data_and_what_explainers_need() -> None:
    model, _ = pictures()
    text = Model(nn.Sequential(nn.Embedding(4, 2), nn.Flatten(), nn.Linear(4, 2)), embedding="0")
    x, ids = torch.zeros, torch.zeros(1, 2, dtype=torch.int64)
    given = [
        (x(1, 4), {}),
        (x(1, 2, 4), {}),
        (x(1, 2, 4, 4), {}),
        (x(1, 2, 4, 4, 4), {}),
        (x(1, 2, 3), {"mask": x(1, 2)}),
    ]
    given += [(x(1, 2, 3), {"mask": x(1, 2), "adjacency": x(1, 2, 2)}), (ids, {})]
    found: dict[str, Any] = {
        "kinds": [modality.modality(model, Batch(("a",), v, aux)) for v, aux in given]
    }
    found["text"] = modality.modality(text, Batch(("a",), ids))
    found["terms"] = {name: modality.terms_of(name) for name in EXPLAINERS}
    found["undefined"] = {
        n: {k: w for k in modality.WORDS if (w := modality.why_undefined(n, k))} for n in EXPLAINERS
    }
    found["words"] = [str(modality.words_of({"modality": kind})) for kind in modality.WORDS]
    recorded("models/modality", found)


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
    found = {}
    for name, model in given.items():
        why = {label: modality.why_not_explainable(item, model) for label, item in ALL.items()}
        found[name] = {label: text for label, text in why.items() if text}
    recorded("models/explainable", found)
    assert found["network"] == {} and [modality.is_differentiable(m) for m in given.values()] == [
        True,
        False,
        True,
        True,
    ]


HEADS: dict[str, Callable[[], nn.Module]] = {
    "softmax": lambda: nn.Sequential(nn.Linear(3, 2), nn.Sequential(nn.Softmax(1))),
    "sigmoid": lambda: nn.Sequential(nn.Linear(3, 2), nn.Sigmoid()),
    "softmax inside": lambda: nn.Sequential(nn.Softmax(1), nn.Linear(3, 2)),
    "one": lambda: nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)),
    "two inputs": lambda: nn.Bilinear(2, 2, 2),
    "plain": lambda: nn.Linear(3, 2),
}


@pytest.mark.parametrize("name", HEADS)
def test_guards_of_outputs_and_arguments(name: str) -> None:
    found: dict[str, Any] = {"one output": guards.has_one_output(HEADS[name]())}
    for task in ("classification", {"classification": {"outputs": "probabilities"}}, "regression"):
        found[str(task)] = tried(
            lambda t=task: guards.refuse_squashed(HEADS[name](), "net", as_task(t))
        )
    if "sigmoid" not in name and name != "softmax":
        model = Model(HEADS[name](), task="regression")
        for aux in ((), ("input2",), ("mask", "_region"), ("edge_index",)):
            found[f"with {aux}"] = tried(lambda a=aux: guards.check_arguments(model, a))
    recorded(f"models/guards-{name.replace(' ', '-')}", found)


def test_tables_that_have_been_through_a_softmax() -> None:
    soft = normal(3, 4).softmax(1)
    task = as_task("classification")
    given = {
        "soft": soft,
        "one row": soft[:1],
        "one column": soft[:, :1],
        "hot": torch.eye(3),
        "off": soft * 1.002,
        "near": soft * 1.0005,
    }
    found = {
        key: tried(lambda v=value: guards.refuse_probabilities(v, "net", task))
        for key, value in given.items()
    }
    recorded("models/softmax", found)


def test_heads_that_were_never_trained() -> None:
    g = np.random.default_rng(0)
    bound = 100**-0.5
    weights = {
        "uniform": g.uniform(-bound, bound, (20, 100)),
        "normal": g.normal(0, 0.02, (20, 100)),
        "constant": np.full((20, 100), 0.3),
    }
    weights |= {
        "trained": g.normal(0, 0.3, (20, 100)),
        "wider": g.uniform(-bound, bound * 1.01, (20, 100)),
        "other": g.laplace(0, 0.02, (20, 100)),
    }
    found = {}
    for key, value in weights.items():
        for bias in (0.0, 0.5):
            head = nn.Linear(100, 20)
            head.weight.data, head.bias.data = (
                torch.from_numpy(value).float(),
                torch.full((20,), bias),
            )
            found[f"{key} {bias}"] = guards.untrained_head(nn.Sequential(nn.Linear(3, 100), head))
    found["small"] = guards.untrained_head(nn.Linear(99, 10))
    recorded("models/heads", found)


def test_what_the_source_of_a_network_says_of_its_normalisation() -> None:
    def of(module: str, **known: Any) -> nn.Module:
        kind = type("Net", (nn.Linear,), {"__module__": module})
        net: nn.Module = kind(2, 2)
        for name, value in known.items():
            setattr(net, name, value)
        return net

    cfg = {"mean": (0.5, 0.4), "std": (0.2, 0.1)}
    picture, text = type("C", (), {"image_size": 224})(), type("C", (), {"hidden_size": 3})()
    given = {
        "timm": of("timm.models", pretrained_cfg=cfg),
        "no std": of("timm.models", pretrained_cfg={"mean": (1,)}),
    }
    given |= {
        "no mean": of("timm.models", pretrained_cfg={"std": (1,)}),
        "odd": of("timm.models", pretrained_cfg=3),
    }
    given |= {
        "pictures": of("transformers.models.vit", config=picture),
        "texts": of("transformers.m", config=text),
    }
    given |= {
        "bare": of("transformers.m"),
        "other": of("mine", config=picture),
        "vision": of("torchvision.models.x"),
    }
    recorded(
        "models/normalisation",
        {name: guards.missing_normalisation(net) for name, net in given.items()},
    )


def test_names_of_models_and_refusals(tmp_path: Path) -> None:
    names = (
        "torchvison:x",
        "bundled:efficientnet-lite0",
        "bundled:resnet",
        "python:here.py:net",
        "python:net",
    )
    found = {
        name: tried(lambda n=name: check_model_name(n, tmp_path))
        for name in (*names, "resnet18", "", "a:b:c")
    }
    found["load"] = tried(lambda: load_model("bundld:x"))
    pairs = (("timm", "resnet18"), ("file", "w/a.pt"), ("python", "m.py:f"), ("hf", "o/n"))
    found |= {f"short {kind}:{name}": short_name(kind, name) for kind, name in pairs}
    recorded(
        "models/names",
        {key: str(value).replace(str(tmp_path), "TMP") for key, value in found.items()},
    )


def test_checkpoints_fit_or_are_refused(tmp_path: Path) -> None:
    model = Model(nn.Linear(3, 2))
    good = {"weight": normal(2, 3), "bias": normal(2)}
    found: dict[str, Any] = {"good": Checkpoint(good).weights(model), "text": str(Checkpoint(good))}
    wrong: dict[str, Any] = {
        "other": {"wieght": good["weight"], "bias": good["bias"]},
        "shape": {**good, "bias": normal(3)},
    }
    wrong |= {
        "less": {"weight": good["weight"]},
        "more": {**good, "extra": normal(1)},
        "prefixed": {f"module.{k}": v for k, v in good.items()},
    }
    found |= {
        key: tried(lambda v=value: Checkpoint(v).weights(model)) for key, value in wrong.items()
    }
    held = {
        "state_dict": {"state_dict": good, "epoch": 3},
        "model": {"model": good},
        "nothing": {"a": 1},
        "list": [1],
        "bare": good,
    }
    found |= {
        f"in {key}": tried(lambda v=value: sorted(unwrapped(v, "it")))
        for key, value in held.items()
    }
    torch.save(good, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(b"nothing")
    kept = Checkpoint(tmp_path / "a.pt")
    assert (
        kept == Checkpoint(tmp_path / "a.pt") != Checkpoint(good)
        and len({kept, Checkpoint(tmp_path / "a.pt")}) == 1
    )
    found["file"] = kept.weights(model)
    found["broken"] = tried(lambda: Checkpoint(tmp_path / "b.pt").weights(model)).partition(
        "alone"
    )[0]
    found["absent"] = tried(lambda: Checkpoint(tmp_path / "c.pt").weights(model))
    recorded(
        "models/checkpoints",
        json.loads(json.dumps(found, default=lambda v: v.tolist()).replace(str(tmp_path), "TMP")),
    )


def test_features_of_smoothing_that_stay() -> None:
    model = Model(drawn(nn.Linear(4, 3)), classes=NAMES)
    batch = Batch(("a", "b"), normal(2, 4))
    found = {"pixels": Smoothed(model, 0.5, 4, Pixels()).scores(batch)}
    sets = Model(drawn(nets.DeepSet(3, 2, width=4)))
    found["elements"] = Smoothed(sets, 0.5, 4, Elements()).scores(
        Batch(("a", "b"), normal(2, 4, 3))
    )
    recorded("models/smoothed-features", found)
    assert (lower := Smoothed(model, 0.5, 4, Pixels())).use("bfloat16") is lower and lower.to(
        "cpu"
    ) is lower
    assert lower.precision == model.precision == "bfloat16" and not model.is_compiled

"""Mistakes that users make, in Python and in study files: one message each, which says what is wrong and what to write.

A message names the value, what was expected, or the nearest valid choice, and comes before the model is asked anything.
`python tests/users/test_mistakes.py` prints all messages as a table.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import dropout, softmax
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.utils.data import DataLoader, Dataset, TensorDataset

import heatproof as hp
from heatproof import UserError
from heatproof.runs.study.file import read_study

CLASSES = 4
LABELS = torch.arange(8) % CLASSES


def images(channels: int = 3) -> Tensor:
    return torch.rand(8, channels, 16, 16, generator=torch.Generator().manual_seed(0))


def network(outputs: int = CLASSES) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        pooled = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, outputs))
        return nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), *pooled)


def rows(columns: int = 5) -> Tensor:
    return torch.rand(8, columns, generator=torch.Generator().manual_seed(0))


def judge(
    model: Any = None,
    data: Any = None,
    explainers: Any = ("saliency", "random"),
    tests: Any = "stability",
    **options: Any,
) -> None:
    hp.evaluate(
        network() if model is None else model,
        images() if data is None else data,
        list(explainers) if isinstance(explainers, tuple) else explainers,
        tests,
        **options,
    )


# ---- models and data that are not what they should be --------------------------------------------------


def with_nan() -> nn.Module:
    net = network()
    net[0].weight.data[0, 0, 0, 0] = torch.nan
    return net


class DropoutAlwaysOn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> Tensor:
        features = self.inner[:2](x)
        return self.inner[2:](dropout(features, 0.5, training=True))


class SoftmaxInside(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = network()

    def forward(self, x: Tensor) -> Tensor:
        return softmax(self.inner(x), 1)


class MixedSizes(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.rand(3, 16 + index, 16), index


class WordLabels(Dataset[Any]):
    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> tuple[Tensor, str]:
        return torch.rand(3, 16, 16), "cat"


class Unfitted:
    @staticmethod
    def forest() -> Any:
        from sklearn.ensemble import RandomForestClassifier

        return RandomForestClassifier()


def nan_images() -> Tensor:
    x = images()
    x[2, 0, 3, 3] = torch.nan
    return x


def photos(folder: Path, count: int = 4) -> Path:
    target = folder / "photos"
    target.mkdir(exist_ok=True)
    for number in range(count):
        Image.new("RGB", (16, 16), (40 * number, 80, 120)).save(target / f"{number}.png")
    return target


def empty(folder: Path) -> Path:
    (folder / "empty").mkdir()
    return folder / "empty"


def file(folder: Path, name: str, content: str = "") -> Path:
    (folder / name).write_text(content)
    return folder / name


def study(folder: Path, text: str) -> None:
    photos(folder)
    file(folder, "nets.py", "from torch import nn\ndef make():\n    return nn.Linear(5, 4)\n")
    file(folder, "rows.csv", "a,b,c,d,e,label\n" + "1,2,3,4,5,0\n2,3,4,5,6,1\n" * 4)
    path = file(folder, "study.yaml", text)
    read_study(path, allow_code="--allow-code" in text).plan(allow_code="--allow-code" in text)


MODEL = "model: python:nets.py:make # --allow-code\n"
DATA = "data: {source: rows.csv, shape: [5]}\n"
METHODS = "explainers: [saliency, random]\n"


@dataclass(frozen=True)
class Mistake:
    """Something that a user does, and the facts that the message must have; `looks` if only an output can tell."""

    make: Callable[[Path], Any]
    facts: tuple[str, ...]
    looks: bool = False


def python(make: Callable[[], Any], *facts: str, looks: bool = False) -> Mistake:
    return Mistake(lambda _: make(), facts, looks)


def yaml(text: str, *facts: str) -> Mistake:
    return Mistake(lambda folder: study(folder, text), facts)


MISTAKES: dict[str, Mistake] = {
    # models
    "NaN among the weights": python(lambda: judge(with_nan()), "0.weight", "NaN"),
    "two class names for four outputs": python(
        lambda: judge(hp.Model(network(), classes=["cat", "dog"])), "4 outputs", "'cat'", looks=True
    ),
    "mean of 0–255 for pixels in [0, 1]": python(
        lambda: judge(hp.Model(network(), mean=(123.7, 116.3, 103.5))), "123.7", "0.485"
    ),
    "dropout that is always on": python(
        lambda: judge(DropoutAlwaysOn()), "dropout", "training=self.training", looks=True
    ),
    "model and data swapped": python(
        lambda: hp.evaluate(images(), network(), ["saliency"]), "model comes first"
    ),
    "a softmax at the end": python(
        lambda: judge(nn.Sequential(network(), nn.Softmax(1))), "softmax", "leave it off"
    ),
    "a softmax in forward": python(
        lambda: judge(SoftmaxInside()), "probabilities", "softmax", looks=True
    ),
    "one output and no task": python(lambda: judge(network(1)), "binary", "regression"),
    "a state dict as the model": python(lambda: judge(dict(network().state_dict())), "state"),
    "a path as the model": python(lambda: judge("net.pt"), "'net.pt'", "file:net.pt"),
    "a misspelt kind of model": python(
        lambda: judge("torchvison:resnet50"), "torchvison", "torchvision"
    ),
    "a Model in a Model": python(
        lambda: hp.Model(hp.Model(network())), "heatproof.Model", "torch module"
    ),
    "a deviation of 0": python(lambda: hp.Model(network(), std=(0.0, 0.2, 0.2)), "std", "positive"),
    "a mean of two channels for three": python(
        lambda: judge(hp.Model(network(), mean=(0.5, 0.5))), "2 channels", "(3, 16, 16)"
    ),
    "class names as one text": python(
        lambda: hp.Model(network(), classes="cat, dog"), "list of names", "cat, dog"
    ),
    "an estimator that is not fitted": python(
        lambda: judge(Unfitted.forest(), rows(), ["lime", "random"]),
        "RandomForestClassifier",
        "fit",
    ),
    "a GPU that is not there": python(lambda: judge(device="cuda:7"), "cuda:7", "cpu"),
    "an unknown device": python(lambda: judge(device="gpu"), "'gpu'", "cuda"),
    "an unknown precision": python(lambda: judge(precision="fp16"), "fp16", "float16"),
    # data
    "a single image without a batch axis": python(
        lambda: judge(data=images()[0]), "(3, 16, 16)", "x[None]"
    ),
    "channels last": python(
        lambda: judge(data=images().permute(0, 2, 3, 1)), "(8, 16, 16, 3)", "permute(0, 3, 1, 2)"
    ),
    "grey pictures for a network of RGB": python(
        lambda: judge(data=images(1)), "(1, 16, 16)", "3 channels", looks=True
    ),
    "pictures with an alpha channel": python(
        lambda: judge(data=images(4)), "(8, 4, 16, 16)", "1 or 3 channels"
    ),
    "pixels from 0 to 255": python(lambda: judge(data=images() * 255), "255", "[0, 1]"),
    "NaN in the data": python(lambda: judge(data=nan_images()), "position 2", "NaN"),
    "pictures of several sizes": python(lambda: judge(data=MixedSizes()), "(3, 16, 16)", "size"),
    "labels out of range": python(
        lambda: judge(data=(images(), LABELS + 3)), "label", "0 to 3", looks=True
    ),
    "labels that are fractions": python(
        lambda: judge(data=(images(), LABELS + 0.5)), "0.5", "whole"
    ),
    "labels that are words": python(lambda: judge(data=WordLabels()), "'cat'", "whole"),
    "more labels than samples": python(lambda: judge(data=(images(), LABELS[:5])), "8", "5"),
    "an id twice": python(lambda: judge(data=hp.Batch(("a",) * 8, images())), "'a'", "unique"),
    "a DataLoader that changes its samples": python(
        lambda: judge(data=DataLoader(TensorDataset(images()), collate_fn=list)),
        "DataLoader",
        "collate_fn",
    ),
    "texts without a tokenizer": python(lambda: judge(data=["a film", "a play"]), "vocabulary"),
    "an empty folder": Mistake(lambda folder: judge(data=empty(folder)), ("empty", "no pictures")),
    "a folder that is not there": Mistake(
        lambda folder: judge(data=photos(folder).with_name("photo")), ("'photo'", "photos")
    ),
    "a negative size": Mistake(
        lambda folder: hp.open_data(photos(folder), size=-3), ("size", "-3")
    ),
    "no samples": python(lambda: judge(limit=0), "limit", "0"),
    "a column that is not there": python(
        lambda: hp.open_data(pd.DataFrame({"age": [1.0], "job": [2.0]}), label="jobs"),
        "'jobs'",
        "'job'",
    ),
    # methods
    "IG": python(lambda: judge(explainers=["IG"]), "'IG'", "'integrated_gradients'"),
    "a misspelt method": python(lambda: judge(explainers=["salency"]), "'salency'", "'saliency'"),
    "a class in place of an object": python(lambda: judge(explainers=[hp.Saliency]), "Saliency()"),
    "a parameter of Captum": python(
        lambda: hp.IntegratedGradients(n_steps=20), "'n_steps'", "'steps'"
    ),
    "a negative number of steps": python(
        lambda: hp.IntegratedGradients(steps=-5), "steps", "-5", "greater"
    ),
    "a layer that is not there": python(
        lambda: judge(explainers=[hp.GradCAM(layer="layer4")]), "'layer4'", "0, 1"
    ),
    "Grad-CAM on a table": python(
        lambda: judge(nn.Linear(5, 4), rows(), ["grad_cam"]), "grad_cam", "table"
    ),
    "no method": python(lambda: judge(explainers=[]), "no explainer"),
    "a baseline of another shape": python(
        lambda: judge(explainers=[hp.IntegratedGradients(baseline=torch.zeros(3, 8, 8))]),
        "(3, 8, 8)",
        "(3, 16, 16)",
    ),
    "too few maps": python(
        lambda: judge(explainers={"mine": np.zeros((5, 16, 16))}, tests="faithfulness"),
        "5 maps",
        "8 samples",
    ),
    "maps of another size": python(
        lambda: judge(explainers={"mine": np.zeros((8, 14, 14))}, tests="faithfulness"),
        "(14, 14)",
        "(3, 16, 16)",
    ),
    "a class that is no output": python(
        lambda: hp.explain(network(), images(), "saliency", target=7), "7", "0 to 3", looks=True
    ),
    "a class by its name": python(
        lambda: hp.explain(network(), images(), "saliency", target="cat"), "'cat'", "number"
    ),
    # tests
    "a misspelt test": python(lambda: judge(tests="stabilty"), "'stabilty'", "'stability'"),
    "a misspelt perturbation": python(
        lambda: hp.Stability(perturbations="gausian_noise"), "'gausian_noise'", "'gaussian_noise'"
    ),
    "noise in units of 0–255": python(
        lambda: hp.Stability(perturbations={"gaussian_noise": {"sigma": 25}}), "sigma", "25", "1"
    ),
    "a quality of 400": python(
        lambda: hp.Stability(perturbations={"jpeg": {"quality": 400}}), "quality", "400", "100"
    ),
    "more values than a map has": python(lambda: judge(tests=hp.Stability(k=5000)), "5000", "768"),
    "no test": python(lambda: judge(tests=[]), "no evaluation"),
    "a seed that is no whole number": python(lambda: judge(seed=1.5), "seed", "1.5"),
    "localisation without regions": python(
        lambda: judge(tests=[{"localisation": {"by": "regions"}}]), "regions", "mosaics"
    ),
    "agreement of one method": python(
        lambda: judge(explainers=["saliency"], tests="agreement"), "agreement", "another"
    ),
    # runs
    "a file as the directory of a run": Mistake(
        lambda folder: judge(out=str(file(folder, "taken"))), ("taken",)
    ),
    "a folder that is no run": Mistake(
        lambda folder: hp.read(photos(folder)), ("photos", "manifest")
    ),
    "a requirement without a number": python(
        lambda: hp.testing.assert_holds(network(), images(), "saliency", "stability high"),
        "stability high",
        ">=",
    ),
    # study files
    "YAML: a tab": yaml("model:\n\tsource: nets.py\n", "line 2", "spaces"),
    "YAML: a key twice": yaml(MODEL + DATA + METHODS + "seed: 1\nseed: 2\n", "line 5", "'seed'"),
    "YAML: an unknown key": yaml(
        MODEL + DATA + METHODS + "evaluation: [stability]\n", "line 4", "'evaluations'"
    ),
    "YAML: an unknown parameter": yaml(
        MODEL + DATA + "explainers: [{lime: {sample: 9}}]\n", "line 3", "'samples'"
    ),
    "YAML: no data": yaml(MODEL + METHODS, "no data"),
    "YAML: a misspelt method": yaml(
        MODEL + DATA + "explainers:\n  - saliency\n  - grad_cm\n", "line 5", "'grad_cam'"
    ),
    "YAML: a path that is not there": yaml(
        MODEL + "data: row.csv\n" + METHODS, "line 2", "rows.csv"
    ),
    "YAML: a folder for a file of weights": yaml("model: file:photos\n" + DATA + METHODS, "photos"),
    "YAML: weights without an architecture": yaml(
        "model: {source: file:nets.py}\n" + DATA + METHODS, "nets.py", ".safetensors"
    ),
    "YAML: a number in quotes": yaml(MODEL + DATA + METHODS + 'limit: "8"\n', "limit", "'8'"),
    "YAML: a label that is no column": yaml(
        MODEL + "data: {source: rows.csv, label: klass}\n" + METHODS, "'klass'", "label"
    ),
    "YAML: an unknown rule": yaml(
        MODEL + DATA + METHODS + "ignore: [few-sample]\n", "line 4", "'few-samples'"
    ),
    "YAML: code that is not allowed": yaml(
        "model: python:nets.py:make\n" + DATA + METHODS, "--allow-code"
    ),
    "YAML: a function that is not there": yaml(
        "model: python:nets.py:maek # --allow-code\n" + DATA + METHODS, "maek", "make"
    ),
    "YAML: a test for other data": yaml(
        MODEL + DATA + METHODS + "evaluations: [{stability: {data: row}}]\n",
        "line 4",
        "'row'",
        "rows.csv",
    ),
    "YAML: a list at the top": yaml("- model\n- data\n", "mapping"),
    "YAML: an empty file": yaml("", "mapping"),
    "YAML: two models of one name": yaml(
        "models: [python:nets.py:make, python:nets.py:make] # --allow-code\n" + DATA + METHODS,
        "line 1",
        "'make'",
        "name",
    ),
    "YAML: a negative limit": yaml(MODEL + DATA + METHODS + "limit: -4\n", "line 4", "limit", "-4"),
    "a table for a network of pictures": python(
        lambda: judge(data=rows()), "(5,)", "pictures", looks=True
    ),
    "pictures for a network of tables": python(
        lambda: judge(nn.Linear(5, 4)), "(3, 16, 16)", "5 values", looks=True
    ),
    "a network without weights": python(lambda: judge(network().to("meta")), "meta", "load"),
    "a sparse tensor": python(lambda: judge(data=images().to_sparse()), "to_dense()"),
    "bytes": python(lambda: judge(data=(images() * 255).byte()), "uint8", "255"),
    "pixels that are normalised already": python(
        lambda: judge(data=images() - 0.5), "-0.49", "mean"
    ),
    "one-hot labels": python(
        lambda: judge(data=(images(), torch.eye(4)[LABELS])), "[1., 0., 0., 0.]", "one whole number"
    ),
    "a background of other columns": python(
        lambda: judge(nn.Linear(5, 4), rows(), [hp.KernelShap(background=rows(3))]), "(3,)", "(5,)"
    ),
    "perturbations of pictures for a table": python(
        lambda: judge(nn.Linear(5, 4), rows(), tests=hp.Stability(perturbations="rotation")),
        "rotation",
        "table",
    ),
    "a batch size of −2": python(lambda: judge(batch_size=-2), "batch_size", "-2"),
    "a rule that is not there": python(
        lambda: judge(ignore=["few-sample"]), "'few-sample'", "'few-samples'"
    ),
    "maps of all samples but one": python(
        lambda: judge(
            explainers={
                "mine": {"precomputed": {"path": {f"000{i}": np.ones((16, 16)) for i in range(7)}}}
            },
            tests="faithfulness",
        ),
        "'0007'",
    ),
    "a test of a model where there is none": python(
        lambda: hp.evaluate(None, images(), {"mine": np.ones((8, 16, 16))}, "stability"),
        "stability",
        "agreement",
    ),
}


@contextmanager
def counted_passes() -> Iterator[list[int]]:
    """Count the inputs that go through the networks of this module while the context is open."""
    passes: list[int] = []

    def count(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if isinstance(module, nn.Sequential | nn.Linear | DropoutAlwaysOn | SoftmaxInside):
            passes.append(len(inputs[0]))

    hook = register_module_forward_pre_hook(count)
    try:
        yield passes
    finally:
        hook.remove()


def message_of(mistake: Mistake, folder: Path) -> tuple[str, int]:
    """Return the message that a mistake gets, and how many inputs went through a network before."""
    with counted_passes() as passes, pytest.raises(UserError) as caught:
        mistake.make(folder)
    return str(caught.value), sum(passes)


@pytest.mark.parametrize("title", MISTAKES)
def test_a_mistake_gets_one_message_with_the_facts_before_any_pass(
    title: str, tmp_path: Path
) -> None:
    mistake = MISTAKES[title]
    message, passes = message_of(mistake, tmp_path)
    for fact in mistake.facts:
        assert fact in message
    assert not any(trace in message for trace in ("pydantic", "Traceback", "validation error"))
    assert len(message.splitlines()) <= 3
    if mistake.looks:
        assert passes <= 8 * 10  # the samples themselves, through ten modules: a look, and no work
    else:
        assert passes == 0


def test_there_are_many_mistakes() -> None:
    assert len(MISTAKES) >= 60


# ---- what looks like a mistake and is none -------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [images().requires_grad_(), images().double(), images().half(), images().numpy(), images()[:1]],
    ids=["requires grad", "float64", "float16", "numpy", "one sample"],
)
def test_data_in_another_form_are_read(data: Any) -> None:
    maps = hp.explain(network(), data, "saliency")
    expected = hp.explain(network(), images()[: len(data)], "saliency")
    np.testing.assert_allclose(maps, expected, rtol=0.02, atol=1e-3)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
def test_a_network_in_another_precision_is_explained(dtype: torch.dtype) -> None:
    maps = hp.explain(network().to(dtype), images(), "saliency")
    expected = hp.explain(network(), images(), "saliency")
    np.testing.assert_allclose(maps, expected, rtol=0.1, atol=1e-2)


@pytest.mark.parametrize("channels", [2, 5])
def test_pictures_may_have_as_many_channels_as_the_network_reads(channels: int) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(
        nn.Conv2d(channels, 6, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(6, 4)
    )
    pictures = torch.rand(4, channels, 16, 16)
    assert hp.explain(net, pictures, "saliency").shape == (4, channels, 16, 16)
    run = hp.evaluate(net, pictures, ["saliency", "random"], ["agreement", "stability"])
    assert run.table().query("evaluation == 'agreement'").status.eq("ok").all()
    conditions = set(run.table().query("evaluation == 'stability'").condition)
    assert "rotation" in conditions
    assert "jpeg" not in conditions  # which has 1 or 3 channels


def test_a_network_in_training_mode_stays_in_it_and_is_explained_in_eval_mode() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(768, 4)).train()
    first, second = (hp.explain(net, images(), "saliency") for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert net.training


def print_messages() -> None:
    """Print the messages of all mistakes as a table in Markdown."""
    print("| mistake | message |\n|---|---|")
    for title, mistake in MISTAKES.items():
        with tempfile.TemporaryDirectory() as folder:
            message, _ = message_of(mistake, Path(folder))
        text = message.replace(folder, "…").replace("|", "\\|").replace("\n", "<br>")
        print(f"| {title} | {text} |")


if __name__ == "__main__":
    print_messages()

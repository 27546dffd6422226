"""The recipe for scores during training: it runs as written, and the training is the same as without it."""

from __future__ import annotations

import copy
import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import heatproof
from support.paths import ROOT

PAGE = (ROOT / "docs" / "tutorials" / "training.md").read_text("utf-8")
(RECIPE, *_) = re.findall(r"^```python\n(.*?)^```", PAGE, re.S | re.M)
(CALLBACK,) = re.findall(r'^```python title="needs lightning"\n(.*?)^```', PAGE, re.S | re.M)


@pytest.fixture
def recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the first block of the page defines."""
    pytest.importorskip("sklearn", reason="the extra `sklearn` is not installed")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(compile(RECIPE, "training.md", "exec"), names)
    return names


def network() -> nn.Sequential:
    """A network with everything that differs between training and evaluation."""
    torch.manual_seed(0)
    features = (nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
    head = (nn.Dropout(0.3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10))
    return nn.Sequential(*features, *head).train()


def random_states() -> tuple[Any, ...]:
    return torch.get_rng_state().tolist(), np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002


def test_a_look_changes_nothing_of_the_training(recipe: dict[str, Any]) -> None:
    net = network()
    net[1].eval()  # a frozen layer of a network in training
    net(recipe["images"][:8]).sum().backward()
    weights = copy.deepcopy(net.state_dict())
    gradients = [parameter.grad.clone() for parameter in net.parameters()]
    modes = [module.training for module in net.modules()]
    draws = random_states()

    scores = recipe["score_explanations"](net, 0)

    assert {"epoch", "score", "low", "high"} <= set(scores)
    assert random_states() == draws
    assert [module.training for module in net.modules()] == modes
    for name, values in net.state_dict().items():
        assert torch.equal(values, weights[name])
    for parameter, gradient in zip(net.parameters(), gradients, strict=True):
        assert parameter.requires_grad
        assert torch.equal(parameter.grad, gradient)
    for module in net.modules():
        assert not module._forward_hooks and not module._backward_hooks
    assert net[2].inplace


def trained(recipe: dict[str, Any], looks: bool) -> nn.Module:
    net = network()
    optimiser = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(2):
        for rows in torch.randperm(60).split(20):
            optimiser.zero_grad()
            output = net(recipe["images"][rows])
            nn.functional.cross_entropy(output, recipe["labels"][rows]).backward()
            optimiser.step()
        if looks:
            recipe["score_explanations"](net, epoch)
    return net


def test_a_training_with_looks_gives_the_same_weights_as_one_without(
    recipe: dict[str, Any],
) -> None:
    expected = trained(recipe, looks=False).state_dict()
    for name, values in trained(recipe, looks=True).state_dict().items():
        assert torch.equal(values, expected[name])


def test_scores_are_those_of_the_weights_of_their_epoch(recipe: dict[str, Any]) -> None:
    net = network()
    before = recipe["score_explanations"](net, 0)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    after = recipe["score_explanations"](net, 1)
    methods = before.explainer == "saliency"
    assert not np.allclose(before[methods].score, after[methods].score)
    assert heatproof.read("explanations/001").table().status.eq("ok").any()


@pytest.mark.filterwarnings("ignore")  # of Lightning's own imports and advice
def test_the_callback_of_lightning_logs_scores_and_leaves_the_training_alone(
    recipe: dict[str, Any],
) -> None:
    lightning: Any = pytest.importorskip("lightning", reason="lightning is not installed")
    from lightning.pytorch.loggers import CSVLogger

    exec(compile(CALLBACK, "training.md", "exec"), recipe)
    data = torch.utils.data.TensorDataset(recipe["images"][:60], recipe["labels"][:60])
    weights = []
    for callbacks in ([], [recipe["ExplanationScores"](every=1)]):
        module = recipe["Digits"](network())
        trainer = lightning.Trainer(
            max_epochs=2,
            callbacks=callbacks,
            logger=CSVLogger("logs", name=f"with-{len(callbacks)}"),
            accelerator="cpu",
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        torch.manual_seed(1)
        trainer.fit(module, torch.utils.data.DataLoader(data, batch_size=20, shuffle=True))
        weights.append(module.state_dict())
    for name, values in weights[0].items():
        assert torch.equal(values, weights[1][name])
    (callback,) = callbacks
    assert [scores.epoch.iloc[0] for scores in callback.history] == [0, 1]
    (file,) = Path("logs", "with-1").rglob("metrics.csv")
    header = file.read_text().partition("\n")[0]
    assert "stability/saliency" in header and "stability/saliency/low" in header

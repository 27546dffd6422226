"""What a named layer puts out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from heatproof.errors import UserError
from heatproof.explainers.concepts.explain import layer_gradient
from heatproof.models import Model
from heatproof.models.layers import activations
from heatproof.types import Batch


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.once, self.twice, self.pair = (
            nn.Linear(3, 4),
            nn.Tanh(),
            nn.GRU(4, 2, batch_first=True),
        )

    def forward(self, x: Tensor) -> Tensor:
        hidden, _ = self.pair(self.twice(self.once(x))[:, None])
        return self.twice(hidden[:, 0])


def test_activations_are_those_of_the_layer_whatever_the_batch() -> None:
    net = Twice()
    batch = Batch(tuple("abcde"), torch.rand(5, 3, generator=torch.Generator().manual_seed(0)))
    model = Model(net, rows=2)
    found = activations(model, batch, "once")
    torch.testing.assert_close(found, net.once(batch.x).detach())
    assert model.passes == 5 and not found.requires_grad
    assert activations(model, batch, "pair").shape == (5, 1, 2), (
        "of a tuple the first tensor counts"
    )
    assert not model.module.once._forward_hooks, "nothing stays behind"


def test_layers_that_are_missing_or_run_twice_are_refused() -> None:
    model, batch = Model(Twice()), Batch(("a",), torch.rand(1, 3))
    with pytest.raises(UserError, match=r"'onec'.*once"):
        activations(model, batch, "onec")
    with pytest.raises(UserError, match="2 times"):
        activations(model, batch, "twice")
    with pytest.raises(UserError, match=r"'twice'.*2"):
        layer_gradient(model, batch, torch.tensor([0]), "twice")


class Odd(nn.Module):
    """Layers whose outputs are no tensor with a row for each input."""

    def __init__(self) -> None:
        super().__init__()
        self.turned, self.named, self.counted, self.head = (
            nn.Flatten(0),
            Named(),
            Counted(),
            nn.Linear(3, 2),
        )

    def forward(self, x: Tensor) -> Tensor:
        self.turned(x), self.counted(x)
        return self.head(self.named(x)["x"])


class Named(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"x": x}


class Counted(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.long()


def test_layers_without_a_row_for_each_input_are_refused() -> None:
    model, batch, target = Model(Odd()), Batch(("a", "b"), torch.rand(2, 3)), torch.tensor([0, 1])
    with pytest.raises(
        UserError,
        match=r"'turned'.*\(6,\).*2 inputs",
    ):
        activations(model, batch, "turned")
    with pytest.raises(UserError, match=r"'named'.*dict"):
        activations(model, batch, "named")
    for layer, given in (("named", "dict"), ("counted", "Tensor")):
        with pytest.raises(UserError, match=f"'{layer}'.*{given}.*gradient"):
            layer_gradient(model, batch, target, layer)

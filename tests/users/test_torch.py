"""What users of plain PyTorch and torch-geometric do first: series, volumes, sets, graphs, and datasets of torch."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import heatproof

pytestmark = pytest.mark.filterwarnings("ignore")  # libraries warn of their own ways


class Recurrent(nn.Module):
    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        self.cells = nn.LSTM(channels, 8, batch_first=True)
        self.head = nn.Linear(8, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        states, _ = self.cells(x.transpose(1, 2))
        return self.head(states[:, -1])


def test_an_lstm_of_series() -> None:
    torch.manual_seed(0)
    net, series = Recurrent(2, 3), torch.randn(8, 2, 40)
    run = heatproof.evaluate(
        net, series, ["integrated_gradients", "occlusion", "random"], ["stability", "faithfulness"]
    )
    with torch.no_grad():
        assert run.samples().predicted.tolist() == net(series).argmax(1).tolist()


def test_a_tensor_dataset_and_a_subset_of_it() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))
    dataset = torch.utils.data.TensorDataset(torch.rand(20, 3, 16, 16), torch.arange(20) % 4)
    _train, valid = torch.utils.data.random_split(dataset, [12, 8])
    run = heatproof.evaluate(net, valid, ["saliency", "random"], ["faithfulness"])
    assert run.samples().label.tolist() == [dataset[i][1] for i in valid.indices]


def test_a_data_loader_is_read_by_its_dataset() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, 4))
    dataset = torch.utils.data.TensorDataset(torch.rand(8, 3, 16, 16), torch.arange(8) % 4)
    loader = torch.utils.data.DataLoader(dataset, batch_size=4, shuffle=True)
    run = heatproof.evaluate(net, loader, ["saliency", "random"], ["faithfulness"])
    assert run.samples().label.tolist() == [0, 1, 2, 3] * 2


def test_a_network_with_one_output_and_labels_of_yes_and_no() -> None:
    torch.manual_seed(0)
    net, x, y = nn.Linear(6, 1), torch.randn(16, 6), torch.arange(16) % 2
    run = heatproof.evaluate(net, (x, y), ["input_x_gradient", "random"], ["faithfulness"])
    with torch.no_grad():
        assert run.samples().predicted.tolist() == (net(x)[:, 0] > 0).long().tolist()


def test_a_network_on_a_table_of_torch_takes_the_background_of_the_study() -> None:
    torch.manual_seed(0)
    net, train, test = nn.Linear(5, 2), torch.randn(40, 5), torch.randn(12, 5)
    run = heatproof.evaluate(
        net,
        test,
        ["integrated_gradients", "kernel_shap", "deep_lift"],
        ["agreement"],
        background=train,
        keep_maps=True,
    )
    predicted = torch.tensor(run.samples().predicted.tolist())
    expected = (test - train.mean(0)) * net.weight.detach()[predicted]
    for name in ("integrated_gradients", "kernel_shap", "deep_lift"):
        maps = torch.stack([torch.as_tensor(values) for values in run.maps(name).values()])
        assert torch.allclose(maps, expected, atol=1e-4)


def graphs(n: int) -> list[Any]:
    geometric = pytest.importorskip("torch_geometric")
    generator = torch.Generator().manual_seed(0)
    made = []
    for i in range(n):
        nodes = 4 + i % 3
        ring = torch.arange(nodes)
        edges = torch.stack([ring, ring.roll(1)])
        edge_index = geometric.utils.to_undirected(edges)
        x = torch.randn(nodes, 3, generator=generator)
        made.append(geometric.data.Data(x=x, edge_index=edge_index, y=torch.tensor([i % 2])))
    return made


def graph_network() -> nn.Module:
    geometric = pytest.importorskip("torch_geometric")

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.convolution = geometric.nn.GCNConv(3, 8)
            self.head = nn.Linear(8, 2)

        def forward(
            self, x: torch.Tensor, edge_index: torch.Tensor, batch: torch.Tensor
        ) -> torch.Tensor:
            states = self.convolution(x, edge_index).relu()
            return self.head(geometric.nn.global_mean_pool(states, batch))

    torch.manual_seed(0)
    return Network().eval()


def test_a_network_of_torch_geometric_reads_graphs() -> None:
    geometric = pytest.importorskip("torch_geometric")
    net, data = graph_network(), graphs(8)
    run = heatproof.evaluate(net, data, ["saliency", "input_x_gradient", "random"], ["agreement"])
    together = geometric.data.Batch.from_data_list(data)
    with torch.no_grad():
        expected = net(together.x, together.edge_index, together.batch).argmax(1)
    assert run.samples().predicted.tolist() == expected.tolist()
    assert run.samples().label.tolist() == [i % 2 for i in range(8)]


def test_saliency_of_a_graph_network_is_its_gradient() -> None:
    net, data = graph_network(), graphs(3)
    maps = heatproof.explain(net, data, "input_x_gradient")
    for graph, values in zip(data, maps, strict=True):
        x = graph.x.clone().requires_grad_()
        logits = net(x, graph.edge_index, torch.zeros(len(x), dtype=torch.long))
        (gradient,) = torch.autograd.grad(logits.max(), x)
        assert torch.allclose(
            torch.from_numpy(values[: len(x)]), (x * gradient).detach(), atol=1e-5
        )

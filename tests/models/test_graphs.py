"""Networks that take edges as pairs of nodes, on padded graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from heatproof import Batch, Model
from heatproof.models.graphs import SparseGraphs


class Messages(nn.Module):
    """Each node gets the sum of what its neighbours send; a graph is the sum of its nodes."""

    def __init__(self) -> None:
        super().__init__()
        self.send = nn.Linear(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(
        self, x: Tensor, edge_index: Tensor, batch: Tensor, edge_weight: Tensor | None = None
    ) -> Tensor:
        source, target = edge_index
        sent = self.send(x)[source]
        if edge_weight is not None:
            sent = sent * edge_weight[:, None]
        states = torch.zeros(len(x), 4).index_add(0, target, sent)
        return self.head(torch.zeros(int(batch.max()) + 1, 4).index_add(0, batch, states.relu()))


def test_padded_graphs_are_read_as_pairs_of_nodes() -> None:
    torch.manual_seed(0)
    net = Messages()
    x, adjacency = torch.randn(2, 4, 2), torch.rand(2, 4, 4)
    adjacency = adjacency * (adjacency > 0.4)
    mask = torch.tensor([[True, True, True, False], [True, True, True, True]])

    logits = Model(net).logits(x, {"adjacency": adjacency, "mask": mask})
    for graph, nodes in enumerate((3, 4)):
        edges = adjacency[graph, :nodes, :nodes].nonzero().T
        weights = adjacency[graph, edges[0], edges[1]]
        alone = net(x[graph, :nodes], edges, torch.zeros(nodes, dtype=torch.long), weights)
        assert torch.allclose(logits[graph], alone[0], atol=1e-5)


def test_only_networks_of_edges_are_wrapped() -> None:
    assert isinstance(Model(Messages()).module, SparseGraphs)
    linear = Model(nn.Linear(2, 2))
    assert isinstance(linear.module, nn.Linear)
    assert linear.logits(linear.inputs(Batch(("a",), torch.ones(1, 2)))).shape == (1, 2)

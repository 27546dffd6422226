"""Networks of torch-geometric, which take nodes and `edge_index`, as networks of padded graphs."""

from __future__ import annotations

from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

EDGES = "edge_index"
_OPTIONAL = ("batch", "edge_weight")


class SparseGraphs(nn.Module):
    """A network `forward(x, edge_index, batch)` of graphs as one of padded graphs x (B, N, F), adjacency and mask.

    An edge from node i to node j is adjacency[i, j] ≠ 0; its value is given as `edge_weight` to networks that take one.
    Nodes outside of the mask do not exist.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.parameters_taken = tuple(name for name in _OPTIONAL if name in _parameters(network))

    def forward(self, x: Tensor, adjacency: Tensor, mask: Tensor) -> Any:
        """Return the network's output for padded graphs: nodes x (B, N, F), adjacency (B, N, N) and node mask (B, N).

        The network takes all graphs of a batch as one: a list of existing nodes, and edges as pairs of numbers in it.
        """
        exists = mask.bool()
        # The number of each existing node in the list of all nodes.
        number = exists.flatten().cumsum(0).reshape(exists.shape) - 1
        both_exist = exists[:, :, None] & exists[:, None, :]
        graph, source, target = ((adjacency != 0) & both_exist).nonzero(as_tuple=True)
        edge_index = torch.stack([number[graph, source], number[graph, target]])
        owner = torch.arange(len(x), device=x.device)[:, None].expand(exists.shape)[exists]
        values = {"batch": owner, "edge_weight": adjacency[graph, source, target]}
        arguments = {name: values[name] for name in self.parameters_taken}
        return self.network(x[exists], edge_index, **arguments)


def as_padded_graphs(module: nn.Module) -> nn.Module:
    """Return a network of `edge_index` as one of padded graphs; any other network as it is.

    >>> as_padded_graphs(nn.Linear(1, 1))
    Linear(in_features=1, out_features=1, bias=True)
    """
    parameters = _parameters(module)
    takes_edges_second = list(parameters)[1:2] == [EDGES]
    others = [name for name in list(parameters)[2:] if name not in _OPTIONAL]
    needs_others = any(parameters[name].default is parameters[name].empty for name in others)
    return SparseGraphs(module) if takes_edges_second and not needs_others else module


def _parameters(module: nn.Module) -> dict[str, Any]:
    """Return the parameters of `forward` by name; none of a scripted network."""
    try:
        return dict(signature(module.forward).parameters)
    except (TypeError, ValueError):
        return {}

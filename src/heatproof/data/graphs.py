"""Graphs and sets of points: padded to one length, with a mask, and for graphs an adjacency matrix.

The padded length belongs to the whole data set, so that no sample's shape depends on its neighbours in a batch.
"""

from __future__ import annotations

import io
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from heatproof.data.arrays import open_items
from heatproof.data.choices import ranked, whole_label
from heatproof.data.dataset import Data, Sample, checked_length
from heatproof.data.text import as_text, unpacked
from heatproof.errors import UserError

Array = np.ndarray[Any, Any]
_LARGEST_MEMBER = 2**31
"""Bytes of a file in a `.zip` beyond which it is not unpacked: an archive of a few bytes may hold terabytes."""
_TU_PARTS = ("A", "graph_indicator", "graph_labels", "node_labels", "node_attributes")

NODES = "_nodes"
"""The auxiliary tensor (B, N) with the position that each node of a moved graph had before."""


class Graph(NamedTuple):
    """Nodes (n, F), edges (2, E) from their first row to their second, and optionally a weight (E,) for each.

    Without edges it is a set of n points.
    """

    nodes: Tensor
    edges: Tensor | None = None
    weights: Tensor | None = None


def open_graphs(
    name: str,
    graphs: Sequence[Graph],
    *,
    length: int | None = None,
    labels: Sequence[Any] | None = None,
    class_names: Sequence[str] | None = None,
) -> Data:
    """Return a data set of graphs or sets of different sizes, padded to N elements each.

    A sample is x (N, F) with the auxiliary tensors `mask` (N,), True at elements that are no padding, and for graphs
    `adjacency` (N, N), whose entry [i, j] is the weight of the edge from i to j (1 without weights). N is `length`, else
    the size of the largest. A graph that does not fit, has no nodes, values that are not finite, or edges between nodes
    that do not exist, is recorded as unreadable.

    >>> path = Graph(torch.ones(3, 2), torch.tensor([[0, 1], [1, 2]]))
    >>> batch = open_graphs("paths", [path], length=4).load([0]).batch
    >>> batch.x.shape, batch.aux["mask"].tolist(), batch.aux["adjacency"].sum()
    (torch.Size([1, 4, 2]), [[True, True, True, False]], tensor(2.))
    """
    sizes = [tuple(graph.nodes.shape) for graph in graphs if graph.nodes.ndim == 2]
    if not sizes:
        raise UserError(f"{name!r} has no samples of shape (elements, features)")
    width = Counter(features for _, features in sizes).most_common(1)[0][0]
    longest = checked_length(length, max(n for n, features in sizes if features == width))
    return open_items(
        name,
        graphs,
        partial(padded, length=longest, width=width),
        prepared=f"padded to {longest} × {width}",
        shape=(longest, width),
        labels=labels,
        class_names=class_names,
    )


def padded(graph: Graph, length: int, width: int) -> Sample:
    """Return one graph or set padded with zeros to `length` elements; raise `ValueError` if it cannot be used.

    >>> padded(Graph(torch.ones(2, 1)), length=3, width=1).x.T
    tensor([[1., 1., 0.]])
    """
    nodes, n = graph.nodes, len(graph.nodes)
    if nodes.ndim != 2 or nodes.shape[1] != width:
        raise ValueError(f"shape {tuple(nodes.shape)} where (elements, {width}) was expected")
    if not 0 < n <= length:
        raise ValueError(
            "no elements" if n == 0 else f"{n} elements, more than the length {length}"
        )
    if not bool(torch.isfinite(nodes).all()):
        raise ValueError("values that are not finite (NaN or infinite)")
    x = torch.zeros(length, width)
    x[:n] = nodes
    aux = {"mask": torch.arange(length) < n}
    if graph.edges is not None:
        aux["adjacency"] = _adjacency(graph.edges, graph.weights, n, length)
    return Sample(x, aux=aux)


def _adjacency(edges: Tensor, weights: Tensor | None, n: int, length: int) -> Tensor:
    """Return the adjacency matrix (length, length) of a graph with n nodes, from its edges (2, E).

    Without weights (E,) an edge counts 1; the weights of repeated edges are added.
    """
    if edges.ndim != 2 or edges.shape[0] != 2:
        raise ValueError(f"edges of shape {tuple(edges.shape)} where (2, edges) was expected")
    if edges.numel() and (int(edges.min()) < 0 or int(edges.max()) >= n):
        raise ValueError(
            f"edges between nodes {int(edges.min())} … {int(edges.max())}, but there are {n} nodes"
        )
    source, end = edges.long()
    adjacency = torch.zeros(length, length)
    if weights is None:
        adjacency[source, end] = 1.0
        return adjacency
    if weights.shape != source.shape or not bool(torch.isfinite(weights).all()):
        raise ValueError(
            f"{len(source)} edges need as many finite weights, got shape {tuple(weights.shape)}"
        )
    return adjacency.index_put((source, end), weights.float(), accumulate=True)


# Objects of PyTorch Geometric, known by what they have: `x`, `edge_index` and perhaps `edge_weight` and `y`


def is_graph(item: Any) -> bool:
    """Whether an object has the node features and the edges of PyG's `Data`.

    >>> is_graph([1, 2])
    False
    """
    return hasattr(item, "edge_index") and hasattr(item, "x")


def open_pyg(source: Any, *, length: int | None = None) -> Data:
    """Open PyG's `Data`, its `Batch`, a list of them or a Dataset of them; `edge_attr` is not used, `edge_weight` is."""
    if is_graph(source) and hasattr(source, "to_data_list"):  # a Batch of PyG
        items, name = source.to_data_list(), "graphs"
    elif is_graph(source):
        items, name = [source], "graphs"
    else:
        items = [source[i] for i in range(len(source))]
        name = "graphs" if isinstance(source, list | tuple) else type(source).__name__
    graphs, labels = [], []
    for position, item in enumerate(items):
        x, edges = item.x, item.edge_index
        if not isinstance(x, Tensor) or not isinstance(edges, Tensor):
            raise UserError(
                f"graph {position} needs tensors x (nodes, features) and edge_index (2, edges), got "
                f"{type(x).__name__} and {type(edges).__name__}; without node features set x to ones or degrees"
            )
        weights = getattr(item, "edge_weight", None)
        if weights is not None:
            weights = weights.detach().cpu()
        graphs.append(Graph(x.float().detach().cpu(), edges.detach().cpu(), weights))
        y = getattr(item, "y", None)
        labels.append(None if y is None else whole_label(y, f"y of graph {position}"))
    has_labels = any(label is not None for label in labels)
    return open_graphs(name, graphs, length=length, labels=labels if has_labels else None)


# Files


def holds_tu_files(names: Sequence[str]) -> bool:
    """Whether these are names of files in the TU Dortmund format, `NAME_A.txt` and others."""
    has_edges = any(name.endswith("_A.txt") for name in names)
    has_graphs = any(name.endswith("_graph_indicator.txt") for name in names)
    return has_edges and has_graphs


def open_tu(path: Path, *, length: int | None = None) -> Data:
    """Open the graphs of a folder or `.zip` in the TU Dortmund format: node i is line i of the files with nodes.

    Features are the node attributes and the node labels as one-hot columns, or ones when there is neither. Labels are
    numbered in their sorted order; `class_names` keep what the file says.
    """
    files = _tu_files(path)
    missing = [part for part in _TU_PARTS[:3] if part not in files]
    if missing:
        raise UserError(
            f"{str(path)!r} lacks the file of {', '.join(missing)}; graphs in TU format were expected"
        )
    lines = {part: _numbers(files[part], f"{path}: {part}", np.int64) for part in _TU_PARTS[:3]}
    labels = lines["graph_labels"][:, 0]
    # Nodes and graphs are counted from 1 in the files.
    graph_of_node = lines["graph_indicator"][:, 0] - 1
    edges = lines["A"]
    if edges.size and edges.shape[1] != 2:
        raise UserError(f"{str(path)!r}: a line of A is two node numbers, got {edges.shape[1]}")
    edges = edges.reshape(-1, 2) - 1
    _check_tu(path, edges, graph_of_node, len(labels))
    features = torch.from_numpy(_tu_features(files, path, len(graph_of_node)))
    graphs = _split_by_graph(features, edges, graph_of_node, len(labels))
    numbers, names = ranked(labels.tolist())
    return open_graphs(
        path.name.removesuffix(".zip"), graphs, length=length, labels=numbers, class_names=names
    )


def _tu_files(path: Path) -> Mapping[str, str]:
    """Return the text of each part of the format that a folder or `.zip` has."""
    texts: dict[str, str] = {}
    if path.is_dir():
        for file in sorted(path.glob("*.txt")):
            part = _tu_part(file.name)
            if part is not None:
                texts[part] = as_text(unpacked(file), str(file))
        return texts
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                part = _tu_part(member.filename)
                if part is None:
                    continue
                if member.file_size > _LARGEST_MEMBER:
                    raise UserError(
                        f"{str(path)!r}: {member.filename} holds more than {_LARGEST_MEMBER} bytes"
                    )
                texts[part] = as_text(archive.read(member), f"{path}: {member.filename}")
    except (OSError, zipfile.BadZipFile) as error:
        raise UserError(f"cannot read {str(path)!r} as .zip: {error}") from error
    return texts


def _tu_part(name: str) -> str | None:
    return next((part for part in _TU_PARTS if name.endswith(f"_{part}.txt")), None)


def _tu_features(files: Mapping[str, str], path: Path, n: int) -> Array:
    """Return the features of the nodes (n, F): their attributes, and a column for each of their labels."""
    columns = []
    if "node_attributes" in files:
        columns.append(_numbers(files["node_attributes"], f"{path}: node_attributes", np.float32))
    if "node_labels" in files:
        node_labels = _numbers(files["node_labels"], f"{path}: node_labels", np.int64)
        columns.append(_one_hot(node_labels[:, 0]))
    for values in columns:
        if len(values) != n:
            raise UserError(
                f"{str(path)!r} has {n} nodes but {len(values)} lines of node labels or attributes"
            )
    if not columns:
        return np.ones((n, 1), np.float32)
    return np.concatenate(columns, 1).astype(np.float32)


def _one_hot(tags: Array) -> Array:
    return np.asarray(tags[:, None] == np.unique(tags), np.float32)


def _numbers(text: str, what: str, kind: type) -> Array:
    """Return the numbers in lines of text, separated by commas, (lines, columns); `what` names the file in errors."""
    if not text.strip():
        return np.empty((0, 1), kind)
    try:
        return np.loadtxt(io.StringIO(text), delimiter=",", dtype=kind, ndmin=2)
    except ValueError as error:
        raise UserError(f"{what} is not lines of numbers: {error}") from error


def _check_tu(path: Path, edges: Array, graph_of_node: Array, graph_count: int) -> None:
    """Raise `UserError` for edges (E, 2) between nodes that do not exist, or of two graphs."""
    n = len(graph_of_node)
    if edges.size and (edges.min() < 0 or edges.max() >= n):
        raise UserError(
            f"{str(path)!r} has edges to nodes {edges.min() + 1} … {edges.max() + 1} of {n}"
        )
    if n == 0 or graph_of_node.min() < 0 or graph_of_node.max() >= graph_count:
        raise UserError(
            f"{str(path)!r} has nodes of graphs that are not among its {graph_count} graph labels"
        )
    if (graph_of_node[edges[:, 0]] != graph_of_node[edges[:, 1]]).any():
        raise UserError(f"{str(path)!r} has edges between different graphs")


def _split_by_graph(
    features: Tensor, edges: Array, graph_of_node: Array, graph_count: int
) -> list[Graph]:
    """Return the single graphs from one table of all nodes (n, F) and one of all edges (E, 2) between them.

    `graph_of_node` (n,) has the number of each node's graph. The nodes of a graph need not stand together in the files.
    """
    # Sort the nodes by graph; graph g then has the nodes from node_starts[g] to node_starts[g + 1].
    nodes_by_graph = np.argsort(graph_of_node, kind="stable")
    node_starts = np.searchsorted(graph_of_node[nodes_by_graph], np.arange(graph_count + 1))
    # The position of each node in that order: the inverse permutation.
    rank = np.empty(len(graph_of_node), np.int64)
    rank[nodes_by_graph] = np.arange(len(graph_of_node))

    # Number the ends of edges within their graph, and sort the edges by graph too.
    graph_of_edge = graph_of_node[edges[:, 0]]
    edges_within_graph = rank[edges] - node_starts[graph_of_edge][:, None]
    edges_by_graph = np.argsort(graph_of_edge, kind="stable")
    edges_within_graph = edges_within_graph[edges_by_graph]
    edge_starts = np.searchsorted(graph_of_edge[edges_by_graph], np.arange(graph_count + 1))

    graphs = []
    for g in range(graph_count):
        nodes = nodes_by_graph[node_starts[g] : node_starts[g + 1]]
        edges_of_graph = edges_within_graph[edge_starts[g] : edge_starts[g + 1]]
        graphs.append(Graph(features[nodes], torch.from_numpy(edges_of_graph.T.copy())))
    return graphs

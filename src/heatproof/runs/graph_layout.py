"""Where the nodes of a graph are drawn."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse.csgraph import shortest_path

GAP_BETWEEN_PARTS = 1.5
"""How much farther apart than the farthest nodes of one part the nodes of two parts without an edge between them are."""


LARGE = 200
"""The most nodes that are placed by the distances between all of them."""


def node_layout(edges: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return where each of N nodes with edges (N, N) is drawn, (N, 2): as far from any other as there are steps between.

    This is the layout of Kamada and Kawai (1989). Beyond `LARGE` nodes, where it takes seconds, springs pull the nodes of
    every edge together instead (Fruchterman and Reingold, 1991).

    >>> path = node_layout(np.diag(np.ones(2, np.float32), 1))
    >>> distances = np.linalg.norm(path[0] - path[[1, 2]], axis=1)
    >>> bool(np.isclose(distances[1], 2 * distances[0], rtol=0.05))
    True
    """
    # networkx takes a quarter of a second to import, and only graphs need it.
    import networkx

    if len(edges) < 2:
        return np.zeros((len(edges), 2), dtype=np.float32)
    is_edge = (edges + edges.T) > 0
    graph = networkx.from_numpy_array(is_edge)
    if len(edges) > LARGE:
        return _as_array(networkx.spring_layout(graph, seed=0))

    steps = shortest_path(is_edge, directed=False, unweighted=True)
    is_connected = np.isfinite(steps)
    steps[~is_connected] = steps[is_connected].max() + GAP_BETWEEN_PARTS
    steps_from = {node: dict(enumerate(row)) for node, row in enumerate(steps)}
    return _as_array(networkx.kamada_kawai_layout(graph, dist=steps_from))


def _as_array(position_of: Mapping[int, Any]) -> NDArray[np.float32]:
    """Return the positions of nodes in the order of their numbers, (N, 2)."""
    positions = [position_of[node] for node in range(len(position_of))]
    return np.asarray(positions, dtype=np.float32)

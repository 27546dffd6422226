"""Where the nodes of a graph are drawn."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def node_layout(edges: NDArray[np.float32], steps: int = 60) -> NDArray[np.float32]:
    """Return where each of N nodes with edges (N, N) is drawn, (N, 2): as far from any other as there are steps between.

    Classical scaling of the distances along edges, then majorisation of the squared differences to them (SMACOF).

    >>> path = node_layout(np.diag(np.ones(2, np.float32), 1))
    >>> np.round(np.linalg.norm(path[0] - path[[1, 2]], axis=1), 2).tolist()
    [1.0, 2.0]
    """
    n = len(edges)
    distances = _steps_between(edges)
    centred = np.eye(n) - 1 / max(n, 1)
    values, vectors = np.linalg.eigh(-0.5 * centred @ distances**2 @ centred)
    positions = vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0))

    # The leaves of one node would fall together, so each starts a little off, on a circle.
    angles = 2 * np.pi * np.arange(n) / max(n, 1)
    positions = positions + 0.1 * np.stack([np.cos(angles), np.sin(angles)], 1)
    for _ in range(steps):
        lengths = np.linalg.norm(positions[:, None] - positions, axis=2)
        weights = -np.divide(distances, lengths, out=np.zeros_like(distances), where=lengths > 0)
        np.fill_diagonal(weights, -weights.sum(1))
        positions = weights @ positions / max(n, 1)
    return np.asarray(positions, dtype=np.float32)


def _steps_between(edges: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the number of edges between every two nodes, (N, N), by Floyd and Warshall."""
    is_edge = (edges + edges.T) > 0
    distances = np.where(is_edge, 1.0, np.inf)
    np.fill_diagonal(distances, 0.0)
    for k in range(len(edges)):
        distances = np.minimum(distances, distances[:, k, None] + distances[k])
    # Parts without an edge between them stand beside each other.
    is_connected = np.isfinite(distances)
    distances[~is_connected] = distances[is_connected].max(initial=0) + 1.5
    return distances

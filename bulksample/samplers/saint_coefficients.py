"""The coefficients that undo the bias of GraphSAINT's subgraphs, counted in subgraphs that are drawn for this purpose alone.

    C_v, C_uv = how many of M subgraphs hold the vertex v, the edge u -> v
    loss:         1 / (n p_v),   p_v = C_v / M           so that the weighted sum over a subgraph estimates the mean over all n vertices
    aggregation:  C_v / C_uv                             so that the weighted sum over the edges into v estimates that over all of them

Zeng, Zhou, Srivastava, Kannan, Prasanna, "GraphSAINT: graph sampling based inductive learning method", ICLR 2020, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

TOGETHER = 32  # subgraphs drawn in one call
NEVER = 0.1  # the count of a vertex, and the coefficient of an edge, that no subgraph held
MOST = 1e4  # the largest coefficient of an edge


@dataclass(frozen=True, eq=False)
class Coefficients:
    """Coefficients of all vertices and edges.

    Parameters
    ----------
    vertices : float32, shape (n,)
        The weight of each vertex in the loss.
    edges : float32, shape (m,)
        The factor of each edge in the aggregation of its destination.
    size : float
        The mean number of vertices of a subgraph.
    """

    vertices: np.ndarray
    edges: np.ndarray
    size: float = 0.0


def count(draw: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]], n: int, destinations: np.ndarray, coverage: int) -> Coefficients:
    """Count in subgraphs 0, 1, 2, ... until they hold n `coverage` vertices.

    Parameters
    ----------
    draw : callable
        Draws the subgraphs with these ids; returns the vertices and the edges that they hold, each as often as it is held.
    n : int
    destinations : int64, shape (m,)
        The destination of each edge.
    coverage : int
        How often a vertex is held on average; the relative error of p_v falls as 1 / sqrt(M p_v).
    """
    vertices, edges, drawn = np.zeros(n, np.int64), np.zeros(len(destinations), np.int64), 0
    while vertices.sum() < n * coverage:
        held, within = draw(np.arange(drawn, drawn + TOGETHER))
        vertices += np.bincount(held, minlength=n)
        edges += np.bincount(within, minlength=len(edges))
        drawn += TOGETHER
    of_vertex = drawn / (n * np.where(vertices, vertices, NEVER))
    at_end = vertices[destinations]
    of_edge = np.where(edges > 0, at_end / np.maximum(edges, 1), np.where(at_end > 0, MOST, NEVER))
    return Coefficients(of_vertex.astype(np.float32), np.minimum(of_edge, MOST).astype(np.float32), vertices.sum() / max(drawn, 1))

"""The edges of mini-batches, and rings on which draws are known."""

import numpy as np

from bulksample import CSR, Graph


def edges_of(block, vertices):
    """The edges of a block as pairs (destination, source) of the graph."""
    row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
    return list(zip(vertices[row].tolist(), vertices[block.indices].tolist(), strict=True))


def neighbors(source):
    return [source.adjacency.indices[a:b].tolist() for a, b in zip(source.adjacency.indptr, source.adjacency.indptr[1:], strict=False)]


def labelled(adjacency, weight_unit=1.0):
    """A graph of these edges whose vertices all have features, a class and a place in the training split."""
    n = adjacency.shape[0]
    masks = {"train": np.ones(n, bool)}
    return Graph(adjacency, weight_unit, np.ones((n, 2), np.float32), np.arange(n, dtype=np.int64) % 2, 2, masks)


def ring(n, ahead):
    """Every vertex has the next `ahead` vertices of a ring as neighbors."""
    v = np.repeat(np.arange(n), ahead)
    return CSR.from_edges(v, (v + np.tile(np.arange(ahead) + 1, n)) % n, (n, n))


def heavy_ring(n):
    """A ring with three neighbors ahead, of which one alone has a weight; and that neighbor of every vertex."""
    adjacency, v = ring(n, 3), np.arange(n)
    only = dict(zip(v.tolist(), ((v + v * 7 % 3 + 1) % n).tolist(), strict=True))
    heavy = [only[row] == column for row, column in zip(adjacency.row_of_entry().tolist(), adjacency.indices.tolist(), strict=True)]
    return labelled(adjacency.with_values(np.array(heavy, np.int64))), only

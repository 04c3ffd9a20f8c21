"""Data objects whose attributes say which vertex or edge they belong to, and what is checked of every batch."""

import numpy as np
import pytest

pytest.importorskip("torch_geometric", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

import torch
from torch_geometric.data import Data


def make_data(n=300, m=3000, seed=1, simple=True):
    """Random directed edges, loops among them, in a random order; the last tenth of the vertices has none."""
    rng = np.random.default_rng(seed)
    edges = rng.integers(0, n - n // 10, (2, m))
    if simple:
        edges = rng.permutation(np.unique(edges, axis=1), axis=1)
    m = edges.shape[1]
    return Data(
        x=torch.arange(n * 4.0).view(n, 4), y=torch.arange(n) % 5, edge_index=torch.from_numpy(edges), edge_attr=torch.arange(m),
        weight=torch.from_numpy(rng.integers(1, 9, m)).float(), train_mask=torch.arange(n) % 3 == 0,
        own_node_column=torch.arange(n) * 10, own_graph_value="kept",
    )  # fmt: skip


def assert_exact(batch, data, seeds):
    """Attributes belong to their vertices and edges, seeds come first, and every edge is the one that `e_id` names."""
    for key in ("x", "y", "train_mask", "own_node_column"):
        torch.testing.assert_close(batch[key], data[key][batch.n_id])
    for key in ("edge_attr", "weight"):
        torch.testing.assert_close(batch[key], data[key][batch.e_id])
    assert batch.own_graph_value == "kept"
    torch.testing.assert_close(batch.n_id[: batch.batch_size], seeds)
    torch.testing.assert_close(batch.n_id[batch.edge_index], data.edge_index[:, batch.e_id])


def in_degrees(batch):
    return torch.bincount(batch.edge_index[1], minlength=batch.num_nodes)


def same(one, other):
    """True if two batches are equal, attribute by attribute."""
    assert one.keys() == other.keys()
    for key in one.keys():  # noqa: SIM118  # a Data iterates over pairs
        if isinstance(one[key], torch.Tensor):
            torch.testing.assert_close(one[key], other[key], rtol=0, atol=0)
        else:
            assert one[key] == other[key], key
    return True

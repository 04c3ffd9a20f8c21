"""Support `adj_t` as a torch CSR tensor, which torch_geometric cannot slice."""

from __future__ import annotations

import copy
from typing import Any

import torch
from torch_geometric.data import Data

from .edge_lists import compressed, edge_ends


def with_edge_index(data: Any) -> Any:
    """Return the graph with an `edge_index` instead of an `adj_t` that is a torch CSR tensor; others as they are."""
    if compressed(data) is None:
        return data
    plain = copy.copy(data)
    plain.num_nodes = data.num_nodes
    del plain.adj_t
    plain.edge_index = torch.stack([torch.from_numpy(ends) for ends in edge_ends(data)])
    return plain


def with_compressed_rows(batch: Data, values: torch.Tensor) -> Data:
    """Replace the `edge_index` of a batch by an `adj_t` of shape (N, N), rows are destinations. `values` has one value for each edge id."""
    source, destination = batch.edge_index
    n = int(batch.num_nodes or 0)
    order = torch.argsort(destination * n + source)
    rows = torch.cat([destination.new_zeros(1), torch.bincount(destination, minlength=n).cumsum(0)])
    batch.adj_t = torch.sparse_csr_tensor(rows, source[order], values[batch.e_id[order]], size=(n, n), check_invariants=False)
    del batch.edge_index
    return batch

"""Run torch_geometric's NeighborLoader on pyg-lib or torch-sparse, with the frontier rule ``new``, and its SAGEConv.

Steps use `trim_to_layer` with pyg-lib only: torch-sparse does not report the vertices of each hop.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import SAGEConv
from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE
from torch_geometric.utils import trim_to_layer

NAME = f"torch_geometric on {'pyg-lib' if WITH_PYG_LIB else 'torch-sparse'}"
RULE = "new"


class Sage(torch.nn.Module):
    def __init__(self, widths, dropout):
        super().__init__()
        self.dropout = dropout
        self.layers = torch.nn.ModuleList(SAGEConv(a, b) for a, b in pairwise(widths))

    def forward(self, batch):
        x, edges = batch.x, batch.edge_index
        for i, layer in enumerate(self.layers):
            if WITH_PYG_LIB:
                x, edges, _ = trim_to_layer(i, batch.num_sampled_nodes, batch.num_sampled_edges, x, edges)
            x = layer(x, edges)
            if i < len(self.layers) - 1:
                x = F.dropout(F.relu(x), self.dropout, self.training)
        return x[: batch.batch_size]


def make(task):
    if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
        raise ImportError("torch_geometric samples with pyg-lib or torch-sparse; neither is installed")
    torch.set_num_threads(task.threads)
    rows = np.repeat(np.arange(task.n), np.diff(task.indptr))
    data = Data(edge_index=torch.from_numpy(np.stack([task.indices.astype(np.int64), rows])), num_nodes=task.n)
    made = {"seeds": torch.from_numpy(np.concatenate(task.batches)), "data": data}
    if task.features is not None:
        data.x, data.y = torch.from_numpy(task.features), torch.from_numpy(task.labels)
        made["model"] = Sage([task.features.shape[1], *[task.hidden] * (len(task.fanouts) - 1), task.classes], task.dropout)
        made["optimizer"] = torch.optim.Adam(made["model"].parameters(), lr=0.003)
    made["loader"] = NeighborLoader(data, task.fanouts, made["seeds"], batch_size=len(task.batches[0]), shuffle=False)
    return made


def sampling(task, made, parts):
    return sum(batch.edge_index.shape[1] for batch in made["loader"])


loader = sampling


def step(task, made, parts):
    edges = 0
    for batch in made["loader"]:
        parts.end("sample and fetch")
        edges += batch.edge_index.shape[1]
        made["optimizer"].zero_grad()
        F.cross_entropy(made["model"](batch), batch.y[: batch.batch_size]).backward()
        made["optimizer"].step()
        parts.end("compute")
    return edges

"""Run torch_geometric's SAGEConv on mini-batches of bulksample with the frontier rule ``new``: the cost of its layers, whoever samples.

For a Python that has torch_geometric and bulksample; torch_geometric's own NeighborLoader needs pyg-lib or torch-sparse.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import torch
import torch.nn.functional as F

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, samplers
from contestants.pyg import Sage

NAME = "torch_geometric's layers, samples of bulksample"
RULE = "new"


def make(task):
    torch.set_num_threads(task.threads)
    model = Sage([task.features.shape[1], *[task.hidden] * (len(task.fanouts) - 1), task.classes], task.dropout)
    adjacency = LocalAdjacency(CSR(task.indptr, task.indices, None, (task.n, task.n)), backends.make("native", task.threads))
    return {
        "adjacency": adjacency, "sampler": samplers.make("sage", task.fanouts, frontier="new"), "features": torch.from_numpy(task.features),
        "model": model, "optimizer": torch.optim.Adam(model.parameters(), lr=0.003),
    }  # fmt: skip


def batch_of(minibatch, x):
    """Return a mini-batch in the form of NeighborLoader."""
    whole, rows = minibatch.blocks[0], [block.num_destinations for block in reversed(minibatch.blocks)]
    held = [*rows, whole.num_sources]
    ends = np.repeat(np.arange(whole.num_destinations), np.diff(whole.indptr))
    edges = np.diff([0, *whole.indptr[rows].tolist()]).tolist()
    return SimpleNamespace(
        x=x, edge_index=torch.from_numpy(np.stack([whole.indices.astype(np.int64), ends])), batch_size=rows[0],
        num_sampled_nodes=np.diff([0, *held]).tolist(), num_sampled_edges=edges,
    )  # fmt: skip


def step(task, made, parts):
    edges = 0
    for minibatch in made["sampler"].sample_bulk(made["adjacency"], Selection.of(task.batches, task.n), Stream(1)):
        parts.end("sample")
        batch = batch_of(minibatch, made["features"][torch.from_numpy(minibatch.vertices.astype(np.int64))])
        parts.end("fetch")
        made["optimizer"].zero_grad()
        F.cross_entropy(made["model"](batch), torch.from_numpy(task.labels[minibatch.seeds])).backward()
        made["optimizer"].step()
        parts.end("compute")
        edges += minibatch.num_edges
    return edges

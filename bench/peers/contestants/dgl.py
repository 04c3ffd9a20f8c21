"""Run DGL's NeighborSampler and DataLoader with int32 ids, and its SAGEConv.

Not fused: with int32 ids and more than one thread, the fused sampler of 2.1.0 draws too few edges from the second mini-batch on.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import dgl
import torch
import torch.nn.functional as F
from dgl.nn import SAGEConv

NAME = f"dgl {dgl.__version__}"


class Sage(torch.nn.Module):
    def __init__(self, widths, dropout):
        super().__init__()
        self.dropout = dropout
        self.layers = torch.nn.ModuleList(SAGEConv(a, b, "mean") for a, b in pairwise(widths))

    def forward(self, blocks, x):
        for i, (layer, block) in enumerate(zip(self.layers, blocks, strict=True)):
            x = layer(block, (x, x[: block.num_dst_nodes()]))
            if i < len(self.layers) - 1:
                x = F.dropout(F.relu(x), self.dropout, self.training)
        return x


def make(task):
    torch.set_num_threads(1 if task.what == "sampling" else task.threads)
    columns = torch.from_numpy(task.indices[:])
    graph = dgl.graph(("csc", (torch.from_numpy(task.indptr[:].astype("int32")), columns, torch.empty(0, dtype=torch.int32))),
                      num_nodes=task.n, idtype=torch.int32)  # fmt: skip
    made = {"graph": graph.formats("csc"), "sampler": dgl.dataloading.NeighborSampler(list(reversed(task.fanouts)), fused=False)}
    made["batches"] = [torch.from_numpy(batch.astype("int32")) for batch in task.batches]
    if task.features is not None:
        made["features"] = torch.from_numpy(task.features)
        made["labels"] = torch.from_numpy(task.labels)
        made["model"] = Sage([task.features.shape[1], *[task.hidden] * (len(task.fanouts) - 1), task.classes], task.dropout)
        made["optimizer"] = torch.optim.Adam(made["model"].parameters(), lr=0.003)
    return made


def sampling(task, made, parts):
    def work(batch):
        return sum(block.num_edges() for block in made["sampler"].sample_blocks(made["graph"], batch)[2])

    with ThreadPoolExecutor(task.threads) as pool:
        return sum(pool.map(work, made["batches"]))


def minibatches(task, made):
    return dgl.dataloading.DataLoader(
        made["graph"], torch.cat(made["batches"]), made["sampler"], batch_size=len(task.batches[0]), shuffle=False, num_workers=0
    )


def loader(task, made, parts):
    edges = 0
    for inputs, _, blocks in minibatches(task, made):
        parts.end("sample")
        made["features"][inputs.long()]
        parts.end("fetch")
        edges += sum(block.num_edges() for block in blocks)
    return edges


def step(task, made, parts):
    edges = 0
    for inputs, outputs, blocks in minibatches(task, made):
        parts.end("sample")
        x = made["features"][inputs.long()]
        parts.end("fetch")
        made["optimizer"].zero_grad()
        F.cross_entropy(made["model"](blocks, x), made["labels"][outputs.long()]).backward()
        made["optimizer"].step()
        parts.end("compute")
        edges += sum(block.num_edges() for block in blocks)
    return edges

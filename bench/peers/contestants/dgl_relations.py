"""Run DGL's NeighborSampler on relations with int32 ids, each hop drawing the same fanout from every relation."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import dgl
import numpy as np
import torch

NAME = f"dgl {dgl.__version__}"


def make(task):
    torch.set_num_threads(1)
    given, relations = Path(task.folder), {}
    for place, key in enumerate(task.relations):
        indptr, indices = (torch.from_numpy(np.load(given / f"{place}.{name}.npy").astype(np.int32)) for name in ("indptr", "indices"))
        relations[tuple(key)] = ("csc", (indptr, indices, torch.empty(0, dtype=torch.int32)))
    graph = dgl.heterograph(relations, num_nodes_dict=task.counts, idtype=torch.int32).formats("csc")
    batches = [{task.seed_type: torch.from_numpy(batch.astype(np.int32))} for batch in task.batches]
    return {"graph": graph, "batches": batches, "sampler": dgl.dataloading.NeighborSampler(list(reversed(task.fanouts)), fused=False)}


def relations(task, made, parts):
    def work(batch):
        blocks = made["sampler"].sample_blocks(made["graph"], batch)[2]
        return sum(block.num_edges(relation) for block in blocks for relation in block.canonical_etypes)

    with ThreadPoolExecutor(task.threads) as pool:
        return sum(pool.map(work, made["batches"]))

"""Run DGL's GraphBolt: a data pipe of item sampler, neighbor sampler and feature fetcher; and DGL's SAGEConv."""

from __future__ import annotations

import dgl.graphbolt as gb
import torch
import torch.nn.functional as F

from contestants.dgl import Sage

NAME = "graphbolt"


def make(task):
    torch.set_num_threads(task.threads)
    made = {"graph": gb.fused_csc_sampling_graph(torch.from_numpy(task.indptr[:]), torch.from_numpy(task.indices[:]))}
    made["seeds"] = torch.cat([torch.from_numpy(batch.astype("int32")) for batch in task.batches])
    if task.features is not None:
        feature = gb.TorchBasedFeature(torch.from_numpy(task.features))
        made["features"] = gb.BasicFeatureStore({("node", None, "feat"): feature})
        made["labels"] = torch.from_numpy(task.labels)
        made["model"] = Sage([task.features.shape[1], *[task.hidden] * (len(task.fanouts) - 1), task.classes], task.dropout)
        made["optimizer"] = torch.optim.Adam(made["model"].parameters(), lr=0.003)
    return made


def pipe(task, made, fetch):
    items = gb.ItemSampler(gb.ItemSet(made["seeds"], names="seed_nodes"), batch_size=len(task.batches[0]), shuffle=False)
    drawn = items.sample_neighbor(made["graph"], list(reversed(task.fanouts)))
    return gb.DataLoader(drawn.fetch_feature(made["features"], node_feature_keys=["feat"]) if fetch else drawn, num_workers=0)


def edges_of(batch):
    return sum(int(part.sampled_csc.indptr[-1]) for part in batch.sampled_subgraphs)


def sampling(task, made, parts):
    return sum(edges_of(batch) for batch in pipe(task, made, fetch=False))


def loader(task, made, parts):
    return sum(edges_of(batch) for batch in pipe(task, made, fetch=True))


def step(task, made, parts):
    edges = 0
    for batch in pipe(task, made, fetch=True):
        edges += edges_of(batch)
        blocks, x = batch.blocks, batch.node_features["feat"]
        parts.end("sample and fetch")
        made["optimizer"].zero_grad()
        F.cross_entropy(made["model"](blocks, x), made["labels"][batch.seed_nodes.long()]).backward()
        made["optimizer"].step()
        parts.end("compute")
    return edges

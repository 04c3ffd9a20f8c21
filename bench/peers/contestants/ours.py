"""Run bulksample: bulks of mini-batches, one per thread; fetching and training take turns, as with few threads."""

from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from bulksample import CSR, Graph, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.loading.loader import BulkLoader
from bulksample.nn.model import Gnn
from bulksample.views.features import Features

NAME = "bulksample"
BULK = 8


def make(task):
    torch.set_num_threads(task.threads)
    matrix = CSR(task.indptr, task.indices, None, (task.n, task.n))
    made = {"adjacency": LocalAdjacency(matrix, backends.make("native", task.threads)), "sampler": samplers.make("sage", task.fanouts)}
    if task.features is not None:
        made["features"] = Features(Graph(matrix, features=task.features))
        widths = [task.features.shape[1], *[task.hidden] * (len(task.fanouts) - 1), task.classes]
        made["model"] = Gnn("sage", widths, task.dropout)
        made["optimizer"] = torch.optim.Adam(made["model"].parameters(), lr=0.003)
        made["degrees"] = torch.zeros(task.n)
    return made


def sampling(task, made, parts):
    bulk = made["sampler"].sample_bulk(made["adjacency"], Selection.of(task.batches, task.n), Stream(1))
    return sum(minibatch.num_edges for minibatch in bulk)


def minibatches(task, made):
    seeds, size = np.concatenate(task.batches), len(task.batches[0])
    return BulkLoader(made["adjacency"], made["sampler"], seeds, batch_size=size, bulk_size=BULK, seed=1, shuffle=False, prefetch=False)


def loader(task, made, parts):
    edges = 0
    for minibatch in minibatches(task, made):
        parts.end("sample")
        made["features"].fetch(minibatch.vertices)
        parts.end("fetch")
        edges += minibatch.num_edges
    return edges


def step(task, made, parts):
    edges, model = 0, made["model"]
    for minibatch in minibatches(task, made):
        parts.end("sample")
        x = made["features"].fetch(minibatch.vertices)
        parts.end("fetch")
        made["optimizer"].zero_grad()
        logits = model(minibatch.blocks, x, made["degrees"][: len(minibatch.vertices)])
        F.cross_entropy(logits, torch.from_numpy(task.labels[minibatch.seeds])).backward()
        made["optimizer"].step()
        parts.end("compute")
        edges += minibatch.num_edges
    return edges

"""Tiny graphs, and a GraphSAGE of dense torch to hold runs of the package against."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import torch
import torch.nn.functional as F
from communities import community_graph, dense_adjacency
from recorder import Recorder

from bulksample import Graph
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

TINY = {"threads": 1, "fanouts": (3, 2), "hidden": 4, "batch_size": 16, "epochs": 1, "dropout": 0.0}
WHOLE = {**TINY, "sampler": "full", "fanouts": (-1, -1), "batch_size": 10_000}  # every step is a pass over all seeds and neighbors


@cache
def graph(**kind) -> Graph:
    """60 vertices in three communities, with eight features and three splits."""
    return community_graph(**{"n": 60, "degree": 4, **kind})


def labelled_pairs() -> dict[str, np.ndarray]:
    """A table of 90 pairs of its vertices, 50 of them for training, with three classes."""
    at = np.arange(90)
    split = np.where(at < 50, "train", np.where(at < 70, "val", "test"))
    return {"source": at * 7 % 60, "destination": at * 11 % 60, "label": at * 13 % 3, "other": at % 2, "split": split}


def without_scores(**kind) -> Graph:
    """The same graph without validation and test: a run keeps its newest weights."""
    whole = graph(**kind)
    return replace(whole, masks={"train": whole.masks["train"]})


def trainer(source, comm=None, compute=None, **options):
    return make_trainer(TrainConfig.of(**{**TINY, **options}), source, comm, [Recorder()], compute)


def trained(source, comm=None, **options):
    """Train; return the report, the recorder and the trainer."""
    made = trainer(source, comm, **options)
    report = made.run()
    return report, made.callbacks[0] if made.callbacks else None, made


def mean_matrix(source) -> torch.Tensor:
    a = torch.from_numpy(dense_adjacency(source)).float()
    return a / a.sum(1, keepdim=True).clamp(min=1)


def copied(model) -> list[torch.Tensor]:
    """The parameters of a model as leaves of their own."""
    return [parameter.detach().clone().requires_grad_() for parameter in model.parameters()]


def sage(source, parameters, x=None, between=F.relu) -> torch.Tensor:
    """Logits of all vertices: h = x W + (mean of neighbors) V + b in every layer, and `between` after all layers but the last."""
    mean, h = mean_matrix(source), torch.from_numpy(np.array(source.features, np.float32)) if x is None else x
    layers = [parameters[first : first + 3] for first in range(0, len(parameters), 3)]
    for i, (own, near, bias) in enumerate(layers):
        h = h @ own + mean @ h @ near + bias
        h = between(h) if i < len(layers) - 1 else h
    return h


def training_loss(source, logits, split="train", reduction="mean") -> torch.Tensor:
    chosen = np.flatnonzero(source.masks[split] & (source.labels >= 0))
    return F.cross_entropy(logits[chosen], torch.from_numpy(source.labels[chosen]), reduction=reduction)


def minibatches(made) -> list:
    """The mini-batches of the epoch that a trainer is about to train."""
    return [batch.minibatch for batch in made.context.batches]

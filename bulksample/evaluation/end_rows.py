"""Exact rows of the ends of edges that are scored.

Without times a vertex has one row for all edges, which exact scores compute layer by layer: of a plain graph all at once. With times it has
one for each time at which it is asked about: rows then come from mini-batches of their neighborhoods, as those of sampled neighbors do.
"""

from __future__ import annotations

from typing import cast

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..graph.induced import by_type
from ..graph.times import with_times
from ..nn.decoders import PairModel
from ..nn.model import Gnn
from ..nn.relational import RelationalGnn
from ..sparse import runs
from ..views.inference_share import InferenceShare
from ..views.type_view import link_targets
from ..views.view import View, as_index
from .by_batches import BatchScoring, with_rows
from .by_layers import fits_layers, gathered, infer_by_layers
from .inference import gathered_rows, infer

ENDS = 2**17  # rows of ends in memory at once, if each is that of one time


def all_rows(model: Gnn, share: InferenceShare, comm: Comm) -> torch.Tensor:
    """Return the exact rows of all vertices in the order of their places, on every rank; collective."""
    inferred = infer(model, share).contiguous()
    counts, firsts = comm.allgather(np.array([share.rows, share.first]), "control").T
    z = comm.allgather_rows(inferred.cpu().numpy(), counts, "activations")
    if (np.diff(firsts) < 0).any():
        parts = np.split(z, np.cumsum(counts)[:-1])
        z = np.concatenate([parts[rank] for rank in np.argsort(firsts, kind="stable")])
    return torch.from_numpy(z).to(inferred.device)


def rows_of_ends(
    model: PairModel, view: View, ends: np.ndarray, times: np.ndarray | None, comm: Comm, scoring: BatchScoring
) -> tuple[torch.Tensor, np.ndarray]:
    """Return the rows of all ends of some edges of relations, on every rank, and the positions among them of the ends; collective.

    `ends`, int64 of shape (m, k), are vertices in the numbering of all types, and `times`, int64 of shape (m,), those of the edges, which
    are read if time counts.
    """
    rule = link_targets(view).rule
    stamps = 0 if rule is None or times is None else times[:, None]
    distinct, place = np.unique(with_times(ends, stamps), return_inverse=True)
    asked = None if rule is None else np.ascontiguousarray(distinct["time"])
    vertices = np.ascontiguousarray(distinct["key"])
    encoder = cast(RelationalGnn, model.encoder)
    if scoring.takes_all and asked is None and fits_layers(encoder, view, comm, scoring.memory):
        graph = link_targets(view).graph
        outputs = gathered(infer_by_layers(encoder, view, comm, by_type(graph, vertices)).outputs, comm)
        z = torch.cat([outputs[kind.name] for kind in graph.types if kind.name in outputs])
    else:
        z = _rows_by_batches(model, view, vertices, asked, comm, scoring)
    return z, place.reshape(ends.shape)


def _rows_by_batches(
    model: PairModel, view: View, vertices: np.ndarray, times: np.ndarray | None, comm: Comm, scoring: BatchScoring
) -> torch.Tensor:
    """Return the row of each vertex at its time, on every rank: float32, shape (m, width)."""
    loader = link_targets(view).ends_loader(view.adjacency, scoring.sampler, vertices, times, **scoring.options(view, comm))
    parts = []
    for minibatch, x in with_rows(loader, view, model):
        rows = model(minibatch.blocks, x, view.degrees(minibatch.seeds))
        parts.append(rows[as_index(minibatch.seed_rows)].float().cpu().numpy())
    b, m = scoring.batch_size, len(vertices)
    starts = [np.arange(rank * b, m, comm.size * b) for rank in range(comm.size)]
    order = np.concatenate([runs(begins, np.minimum(begins + b, m) - begins) for begins in starts])
    width = parts[0].shape[1] if parts else 0
    width = int(comm.allgather(np.array([width]), "control").max())
    own_rows = np.concatenate([np.empty((0, width), np.float32), *parts])
    z = torch.empty(m, width)
    z[torch.from_numpy(order)] = torch.from_numpy(gathered_rows(own_rows, comm))
    return z

"""Link prediction scores on a relation: the rank of a held-out edge among its negatives, all asked about at the time of the edge.

Without times a vertex has one row for all edges, which exact scores compute layer by layer. With times it has one for each time at which it
is asked about: rows then come from mini-batches of their neighborhoods, as those of sampled neighbors do.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import cast

import numpy as np
import torch

from ..data.edge_split import HELD_OUT
from ..data.held_out_links import HeldOutLinks
from ..distributed.comm.base import Comm
from ..graph.times import with_times
from ..nn.decoders import LinkModel
from ..nn.model import evaluation_mode
from ..nn.relational import RelationalGnn
from ..rng import Stream
from ..shuffle import Shuffle
from ..sparse import runs
from ..views.relational_links import RelationalLinkView
from ..views.view import as_index
from .by_batches import BatchScoring, with_rows
from .by_layers import fits_layers, gathered, infer_by_layers
from .links import ranks, scores_of_sums, sums_of_ranks

_ENDS = 2**17  # rows of ends in memory at once, if each is that of one time


@torch.no_grad()
def evaluate_relation_links(
    model: LinkModel, view: RelationalLinkView, links: HeldOutLinks, comm: Comm, at: Sequence[int], scoring: BatchScoring,
    splits: Collection[str] = (),
) -> dict[str, float]:  # fmt: skip
    """Compute MRR and Hits@k of the held-out edges of a relation, on every rank; collective.

    Parameters
    ----------
    at : sequence of int
        The values of k in Hits@k.
    scoring : BatchScoring
        The mini-batches that give rows; `most` counts edges of a split.
    splits : collection of str
        The held-out edges to score; by default val and test.

    Notes
    -----
    The ranks share the mini-batches and gather their rows (kind "activations"). Each ranks a part of the edges, and sums are added (kind
    "control"). With times, edges are scored in groups whose rows fit in memory.
    """
    scores: dict[str, float] = {}
    for number, split in enumerate(HELD_OUT):
        if splits and split not in splits:
            continue
        sums = np.zeros(2 + len(at), np.int64)
        for edges in _groups(view, links, split, _chosen(links, split, scoring, number)):
            with evaluation_mode(model):
                z, pairs, negatives = _rows_of(model, view, links, split, edges, comm, scoring)
                own = slice(comm.rank, None, comm.size)
                found = ranks(model, z.to(view.where), pairs[own], negatives[own])
            sums += sums_of_ranks(found, at)
        scores |= scores_of_sums(split, comm.allreduce(sums, "control"), at)
    return scores


def _chosen(links: HeldOutLinks, split: str, scoring: BatchScoring, number: int) -> np.ndarray:
    """Return the held-out edges of a split to score, ascending: all, or `most` of them."""
    m = len(links.pairs[split])
    return np.sort(Shuffle(Stream(scoring.seed), m, number).at(np.arange(scoring.most))) if 0 < scoring.most < m else np.arange(m)


def _groups(view: RelationalLinkView, links: HeldOutLinks, split: str, edges: np.ndarray) -> Iterator[np.ndarray]:
    step = len(edges) if view.rule is None else max(1, _ENDS // (2 + links.negatives[split].shape[1]))
    for first in range(0, len(edges), max(1, step)):
        yield edges[first : first + step]


def _rows_of(
    model: LinkModel, view: RelationalLinkView, links: HeldOutLinks, split: str, edges: np.ndarray, comm: Comm, scoring: BatchScoring
) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Return the rows of all ends of some edges, and the positions among them of their pairs and of their negatives."""
    first, other = view.first_of_ends
    pairs, negatives = links.pairs[split][edges].astype(np.int64), links.negatives[split][edges].astype(np.int64)
    ends = np.concatenate([pairs[:, :1] + first, pairs[:, 1:] + other, negatives + other], axis=1)
    asked = 0 if view.rule is None or links.times is None else links.times[split][edges][:, None]
    distinct, place = np.unique(with_times(ends, asked), return_inverse=True)
    times = None if view.rule is None else np.ascontiguousarray(distinct["time"])
    vertices = np.ascontiguousarray(distinct["key"])
    encoder = cast(RelationalGnn, model.encoder)
    if scoring.takes_all and times is None and fits_layers(encoder, view, comm, scoring.memory):
        z = _rows_by_layers(encoder, view, vertices, comm)
    else:
        z = _rows_by_batches(model, view, vertices, times, comm, scoring)
    place = place.reshape(ends.shape)
    return z, place[:, :2], place[:, 2:]


def _rows_by_layers(model: RelationalGnn, view: RelationalLinkView, vertices: np.ndarray, comm: Comm) -> torch.Tensor:
    """Return the row of each vertex, ascending in the numbering of all types, on every rank: float32, shape (m, width)."""
    offsets = view.graph.offsets
    bounds = np.searchsorted(vertices, offsets)
    wanted = {kind.name: vertices[bounds[t] : bounds[t + 1]] - offsets[t] for t, kind in enumerate(view.graph.types)}
    rows = gathered(infer_by_layers(model, view, comm, wanted).outputs, comm)
    return torch.cat([rows[kind.name] for kind in view.graph.types if kind.name in rows])


def _rows_by_batches(
    model: LinkModel, view: RelationalLinkView, vertices: np.ndarray, times: np.ndarray | None, comm: Comm, scoring: BatchScoring
) -> torch.Tensor:
    """Return the row of each vertex at its time, on every rank: float32, shape (m, width)."""
    loader = view.ends_loader(scoring.sampler, vertices, times, **scoring.options(view, comm))
    found = []
    for minibatch, x in with_rows(loader, view, model):
        rows = model(minibatch.blocks, x, view.degrees(minibatch.seeds))
        found.append(rows[as_index(minibatch.seed_rows)].float().cpu().numpy())
    b, m = scoring.batch_size, len(vertices)
    starts = [np.arange(rank * b, m, comm.size * b) for rank in range(comm.size)]
    order = np.concatenate([runs(own, np.minimum(own + b, m) - own) for own in starts])
    width = found[0].shape[1] if found else 0
    width = int(comm.allgather(np.array([width]), "control").max())
    own_rows = np.concatenate([np.empty((0, width), np.float32), *found])
    counts = comm.allgather(np.array([len(own_rows)]), "control")[:, 0]
    z = torch.empty(m, width)
    z[torch.from_numpy(order)] = torch.from_numpy(comm.allgather_rows(own_rows, counts, "activations"))
    return z

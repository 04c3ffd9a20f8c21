"""Link prediction scores: the rank of a held-out edge among its negatives, all asked about at the time of the edge if there is one.

    rank = 1 + #(negatives that score more) + 1/2 #(negatives that score the same)
    MRR = mean 1 / rank,   Hits@k = share of ranks <= k

Ties count half, so a decoder that gives every pair the same score ranks in the middle. (The published code of TMA counts ties
against the edge; OGB's evaluator takes the mean of both, which for MRR is the rank used here.)

Without times a vertex has one row for all edges, which exact scores compute layer by layer: of a plain graph all at once. With times it has
one for each time at which it is asked about: rows then come from mini-batches of their neighborhoods, as those of sampled neighbors do.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import numpy as np
import torch

from ..data.held_out_links import HELD_OUT, HeldOutLinks
from ..distributed.comm.base import Comm
from ..graph.induced import by_type
from ..graph.times import with_times
from ..nn.decoders import LinkModel
from ..nn.model import Gnn, evaluation_mode
from ..nn.relational import RelationalGnn
from ..rng import Stream
from ..shuffle import Shuffle
from ..sparse import runs
from ..views.inference_share import InferenceShare
from ..views.type_view import LinkTargets, link_targets
from ..views.view import View, as_index
from .by_batches import BatchScoring, with_rows
from .by_layers import fits_layers, gathered, infer_by_layers
from .inference import gathered_rows, infer

_CHUNK_NUMBERS = 2**20  # of the rows of a chunk of negatives: a processor's cache holds them
_DEVICE_CHUNK_NUMBERS = 2**22
_UNIT = 2.0**40  # of sums of 1 / rank
_ENDS = 2**17  # rows of ends in memory at once, if each is that of one time


@torch.no_grad()
def ranks(model: LinkModel, z: torch.Tensor, pairs: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """Rank each pair among its negatives, ties counting half: float64, shape (len(pairs),)."""
    numbers = _CHUNK_NUMBERS if z.device.type == "cpu" else _DEVICE_CHUNK_NUMBERS
    parts, step = [np.empty(0)], max(1, numbers // max(1, negatives.shape[1] * z.shape[1]))
    for first in range(0, len(pairs), step):
        ends = torch.from_numpy(pairs[first : first + step].astype(np.int64))
        others = torch.from_numpy(negatives[first : first + step].astype(np.int64))
        true = model.score(z[ends[:, 0]], z[ends[:, 1]])[:, None]
        false = model.score(z[ends[:, 0]][:, None], z[others])
        parts.append((1 + (false > true).sum(1) + 0.5 * (false == true).sum(1)).double().cpu().numpy())
    return np.concatenate(parts)


@torch.no_grad()
def evaluate_links(
    model: LinkModel, view: View, links: HeldOutLinks, comm: Comm, at: Sequence[int], scoring: BatchScoring, splits: Collection[str] = ()
) -> dict[str, float]:
    """Compute MRR and Hits@k, for every k in `at`, of held-out edges, by default of val and test, on every rank; collective.

    `scoring` has the mini-batches that give rows where exact rows of a relation do not fit in memory; its `most` counts edges of a split.
    All ranks gather the embeddings (kind "activations"). Each ranks a part of the edges, and sums are added (kind "control"). With times,
    edges are scored in groups whose rows fit in memory.
    """
    typed = isinstance(view.targets, LinkTargets)
    share = cast(InferenceShare, view.share)
    z = None if typed else _all_rows(cast(Gnn, model.encoder), share, comm)
    scores: dict[str, float] = {}
    for number, split in enumerate(HELD_OUT):
        if splits and split not in splits:
            continue
        sums = np.zeros(2 + len(at), np.int64)
        m, most = len(links.pairs[split]), scoring.most
        chosen = np.sort(Shuffle(Stream(scoring.seed), m, number).at(np.arange(most))) if 0 < most < m else np.arange(m)
        step = max(1, m if view.targets.rule is None else _ENDS // (2 + links.negatives[split].shape[1]))
        for first in range(0, len(chosen), step):
            edges = chosen[first : first + step]
            with evaluation_mode(model):
                if typed:
                    rows, pairs, negatives = _rows_of(model, view, links, split, edges, comm, scoring)
                else:
                    assert z is not None
                    rows, pairs, negatives = z, *(share.places(ends[split][edges]) for ends in (links.pairs, links.negatives))
                mine = slice(comm.rank, None, comm.size)
                edge_ranks = ranks(model, rows.to(view.where), pairs[mine], negatives[mine])
            sums += sums_of_ranks(edge_ranks, at)
        scores |= scores_of_sums(split, comm.allreduce(sums, "control"), at)
    return scores


def _all_rows(model: Gnn, share: InferenceShare, comm: Comm) -> torch.Tensor:
    """Return the exact rows of all vertices in the order of their places, on every rank; collective."""
    inferred = infer(model, share).contiguous()
    counts, firsts = comm.allgather(np.array([share.rows, share.first]), "control").T
    z = comm.allgather_rows(inferred.cpu().numpy(), counts, "activations")
    if (np.diff(firsts) < 0).any():
        parts = np.split(z, np.cumsum(counts)[:-1])
        z = np.concatenate([parts[rank] for rank in np.argsort(firsts, kind="stable")])
    return torch.from_numpy(z).to(inferred.device)


def sums_of_ranks(edge_ranks: np.ndarray, at: Sequence[int]) -> np.ndarray:
    """Return the number of edges, the sum of 1 / rank in units of 2**-40, and the ranks of at most k: integers, so sums are exact."""
    return np.array([len(edge_ranks), np.rint(_UNIT / edge_ranks).astype(np.int64).sum(), *[(edge_ranks <= k).sum() for k in at]], np.int64)


def scores_of_sums(split: str, sums: np.ndarray, at: Sequence[int]) -> dict[str, float]:
    """Return MRR and Hits@k of a split; nothing without edges."""
    edges, reciprocal, *hits = sums.tolist()
    if not edges:
        return {}
    return {f"{split}_mrr": reciprocal / _UNIT / edges, **{f"{split}_hits@{k}": hit / edges for k, hit in zip(at, hits, strict=True)}}


def _rows_of(
    model: LinkModel, view: View, links: HeldOutLinks, split: str, edges: np.ndarray, comm: Comm, scoring: BatchScoring
) -> tuple[torch.Tensor, np.ndarray, np.ndarray]:
    """Return the rows of all ends of some edges, and the positions among them of their pairs and of their negatives."""
    rule, (first, other) = link_targets(view).rule, link_targets(view).first_of_ends
    pairs, negatives = links.pairs[split][edges].astype(np.int64), links.negatives[split][edges].astype(np.int64)
    ends = np.concatenate([pairs[:, :1] + first, pairs[:, 1:] + other, negatives + other], axis=1)
    stamps = 0 if rule is None or links.times is None else links.times[split][edges][:, None]
    distinct, place = np.unique(with_times(ends, stamps), return_inverse=True)
    times = None if rule is None else np.ascontiguousarray(distinct["time"])
    vertices = np.ascontiguousarray(distinct["key"])
    encoder = cast(RelationalGnn, model.encoder)
    if scoring.takes_all and times is None and fits_layers(encoder, view, comm, scoring.memory):
        graph = link_targets(view).graph
        outputs = gathered(infer_by_layers(encoder, view, comm, by_type(graph, vertices)).outputs, comm)
        z = torch.cat([outputs[kind.name] for kind in graph.types if kind.name in outputs])
    else:
        z = _rows_by_batches(model, view, vertices, times, comm, scoring)
    place = place.reshape(ends.shape)
    return z, place[:, :2], place[:, 2:]


def _rows_by_batches(
    model: LinkModel, view: View, vertices: np.ndarray, times: np.ndarray | None, comm: Comm, scoring: BatchScoring
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

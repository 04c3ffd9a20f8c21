"""Link prediction scores: the rank of a held-out edge among its negatives, all asked about at the time of the edge if there is one.

    rank = 1 + #(negatives that score more) + 1/2 #(negatives that score the same)
    MRR = mean 1 / rank,   Hits@k = share of ranks <= k

Ties count half, so a decoder that gives every pair the same score ranks in the middle. (The published code of TMA counts ties
against the edge; OGB's evaluator takes the mean of both, which for MRR is the rank used here.)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import cast

import numpy as np
import torch

from ..data.held_out_links import HELD_OUT, HeldOutLinks
from ..distributed.comm.base import Comm
from ..nn.decoders import LinkModel
from ..nn.model import Gnn, evaluation_mode
from ..rng import Stream
from ..shuffle import Shuffle
from ..views.inference_share import InferenceShare
from ..views.type_view import LinkTargets
from ..views.view import View
from .by_batches import BatchScoring
from .end_rows import ENDS, all_rows, rows_of_ends

_CHUNK_NUMBERS = 2**20  # of the rows of a chunk of negatives: a processor's cache holds them
_DEVICE_CHUNK_NUMBERS = 2**22
_UNIT = 2.0**40  # of sums of 1 / rank


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
    z = None if typed else all_rows(cast(Gnn, model.encoder), share, comm)
    scores: dict[str, float] = {}
    for number, split in enumerate(HELD_OUT):
        if splits and split not in splits:
            continue
        sums = np.zeros(2 + len(at), np.int64)
        m, most = len(links.pairs[split]), scoring.most
        chosen = np.sort(Shuffle(Stream(scoring.seed), m, number).at(np.arange(most))) if 0 < most < m else np.arange(m)
        step = max(1, m if view.targets.rule is None else ENDS // (2 + links.negatives[split].shape[1]))
        for first in range(0, len(chosen), step):
            edges = chosen[first : first + step]
            with evaluation_mode(model):
                if typed:
                    first_of, other_of = view.targets.first_of_ends
                    pairs, negatives = (ends[split][edges].astype(np.int64) for ends in (links.pairs, links.negatives))
                    ends = np.concatenate([pairs[:, :1] + first_of, pairs[:, 1:] + other_of, negatives + other_of], axis=1)
                    times = None if links.times is None else links.times[split][edges]
                    rows, place = rows_of_ends(model, view, ends, times, comm, scoring)
                    pairs, negatives = place[:, :2], place[:, 2:]
                else:
                    assert z is not None
                    rows, pairs, negatives = z, *(share.places(ends[split][edges]) for ends in (links.pairs, links.negatives))
                mine = slice(comm.rank, None, comm.size)
                edge_ranks = ranks(model, rows.to(view.where), pairs[mine], negatives[mine])
            sums += sums_of_ranks(edge_ranks, at)
        scores |= scores_of_sums(split, comm.allreduce(sums, "control"), at)
    return scores


def sums_of_ranks(edge_ranks: np.ndarray, at: Sequence[int]) -> np.ndarray:
    """Return the number of edges, the sum of 1 / rank in units of 2**-40, and the ranks of at most k: integers, so sums are exact."""
    return np.array([len(edge_ranks), np.rint(_UNIT / edge_ranks).astype(np.int64).sum(), *[(edge_ranks <= k).sum() for k in at]], np.int64)


def scores_of_sums(split: str, sums: np.ndarray, at: Sequence[int]) -> dict[str, float]:
    """Return MRR and Hits@k of a split; nothing without edges."""
    edges, reciprocal, *hits = sums.tolist()
    if not edges:
        return {}
    return {f"{split}_mrr": reciprocal / _UNIT / edges, **{f"{split}_hits@{k}": hit / edges for k, hit in zip(at, hits, strict=True)}}

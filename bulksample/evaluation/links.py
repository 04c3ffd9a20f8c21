"""Link prediction scores: the rank of a held-out edge among sampled negatives.

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

from ..data.edge_split import HELD_OUT, HeldOutEdges
from ..distributed.comm.base import Comm
from ..nn.decoders import LinkModel
from ..nn.model import Gnn, evaluation_mode
from ..views.inference_share import InferenceShare
from .inference import infer

_CHUNK_NUMBERS = 2**20  # of the rows of a chunk of negatives: a processor's cache holds them
_DEVICE_CHUNK_NUMBERS = 2**22
_UNIT = 2.0**40  # of sums of 1 / rank


@torch.no_grad()
def ranks(model: LinkModel, z: torch.Tensor, pairs: np.ndarray, negatives: np.ndarray) -> np.ndarray:
    """Rank each pair among its negatives, ties counting half: float64, shape (len(pairs),)."""
    numbers = _CHUNK_NUMBERS if z.device.type == "cpu" else _DEVICE_CHUNK_NUMBERS
    found, step = [np.empty(0)], max(1, numbers // max(1, negatives.shape[1] * z.shape[1]))
    for first in range(0, len(pairs), step):
        own = torch.from_numpy(pairs[first : first + step].astype(np.int64))
        others = torch.from_numpy(negatives[first : first + step].astype(np.int64))
        true = model.score(z[own[:, 0]], z[own[:, 1]])[:, None]
        false = model.score(z[own[:, 0]][:, None], z[others])
        found.append((1 + (false > true).sum(1) + 0.5 * (false == true).sum(1)).double().cpu().numpy())
    return np.concatenate(found)


def evaluate_links(
    model: LinkModel, share: InferenceShare, links: HeldOutEdges, comm: Comm, at: Sequence[int], splits: Collection[str] = ()
) -> dict[str, float]:
    """Compute MRR and Hits@k of the held-out edges from exact embeddings, on every rank; collective.

    Parameters
    ----------
    share : InferenceShare
        This rank's rows; the shares of all ranks, in the order of ranks, are the whole graph.
    at : sequence of int
        The values of k in Hits@k.
    splits : collection of str
        The held-out edges to score; by default val and test.

    Notes
    -----
    All ranks gather the embeddings (kind "activations"). Each rank ranks a part of the pairs, and sums are added (kind "control").
    """
    inferred = infer(cast(Gnn, model.encoder), share).contiguous()
    own = inferred.cpu().numpy()
    counts = comm.allgather(np.array([len(own)]), "control")[:, 0]
    z = torch.from_numpy(comm.allgather_rows(own, counts, "activations")).to(inferred.device)
    scores: dict[str, float] = {}
    for split in (split for split in HELD_OUT if not splits or split in splits):
        pairs, negatives = (arrays[split][comm.rank :: comm.size] for arrays in (links.pairs, links.negatives))
        with evaluation_mode(model):
            found = ranks(model, z, pairs, negatives)
        scores |= scores_of_sums(split, comm.allreduce(sums_of_ranks(found, at), "control"), at)
    return scores


def sums_of_ranks(found: np.ndarray, at: Sequence[int]) -> np.ndarray:
    """Return the number of edges, the sum of 1 / rank in units of 2**-40, and how many ranks are at most k: int64, shape (2 + len(at),).

    Integers, so that sums over any parts of the edges are the same.
    """
    return np.array([len(found), np.rint(_UNIT / found).astype(np.int64).sum(), *[(found <= k).sum() for k in at]], np.int64)


def scores_of_sums(split: str, sums: np.ndarray, at: Sequence[int]) -> dict[str, float]:
    """Return MRR and Hits@k of a split; nothing without edges."""
    edges, reciprocal, *hits = sums.tolist()
    if not edges:
        return {}
    return {f"{split}_mrr": reciprocal / _UNIT / edges, **{f"{split}_hits@{k}": hit / edges for k, hit in zip(at, hits, strict=True)}}

"""Scores of labelled pairs of vertices: classes, several classes at once, or numbers, from the exact rows of their ends."""

from __future__ import annotations

from collections.abc import Collection
from typing import cast

import numpy as np
import torch

from ..data.edge_table import EdgeTable
from ..distributed.comm.base import Comm
from ..nn.decoders import PairModel
from ..nn.model import Gnn, evaluation_mode
from ..views.inference_share import InferenceShare
from ..views.type_view import LinkTargets
from ..views.view import View
from .by_batches import BatchScoring, standard_errors
from .end_rows import ENDS, all_rows, rows_of_ends
from .evaluate import score_logits, scored_masks

_CHUNK_NUMBERS = 2**22  # of the rows of both ends of the pairs that are scored at once


def evaluate_edges(
    model: PairModel, view: View, table: EdgeTable, comm: Comm, metric: str, scoring: BatchScoring, splits: Collection[str] = ()
) -> dict[str, float]:
    """Score splits of labelled pairs, by default all, on every rank; collective. The scores are those of `evaluate_by_batches`.

    `scoring` has the mini-batches that give rows where exact rows of a relation do not fit in memory; its `most` counts pairs of a split.
    All ranks gather the embeddings, and labels and logits of the scored pairs, as `evaluate` does (kind "activations").
    """
    assert table.labels is not None
    masks, cut = scoring.drawn(scored_masks(table.masks, splits))
    rows = np.flatnonzero(np.any([np.zeros(len(table), bool), *masks.values()], axis=0))
    if not len(rows):  # on every rank
        return {}
    mine, logits = edge_logits(model, view, table, rows, comm, scoring)
    scores = score_logits(logits, table.labels[mine], {split: mask[mine] for split, mask in masks.items()}, "", comm, metric, "edges")
    return scores | standard_errors(scores, cut)


@torch.no_grad()
def edge_logits(
    model: PairModel, view: View, table: EdgeTable, rows: np.ndarray, comm: Comm, scoring: BatchScoring
) -> tuple[np.ndarray, torch.Tensor]:
    """Return the rows of a table that this rank scores, every p-th of `rows`, and their logits, shape (m, outputs); collective.

    With times, pairs are scored in groups whose rows fit in memory.
    """
    typed, share = isinstance(view.targets, LinkTargets), cast(InferenceShare, view.share)
    step = max(1, len(rows) if view.targets.rule is None else ENDS // 2)
    scored, parts = [np.empty(0, np.int64)], [torch.empty(0, model.outputs)]
    with evaluation_mode(model):
        z = None if typed else all_rows(cast(Gnn, model.encoder), share, comm).to(view.where)
        for first in range(0, len(rows), step):
            group = rows[first : first + step]
            ends = np.stack([table.sources[group], table.destinations[group]], axis=1)
            if z is None:
                times = None if table.times is None else table.times[group]
                found, places = rows_of_ends(model, view, ends + np.array(view.targets.first_of_ends), times, comm, scoring)
                found = found.to(view.where)
            else:
                found, places = z, share.places(ends)
            own = slice(comm.rank, None, comm.size)
            scored.append(group[own])
            parts.append(pair_logits(model, found, places[own], None if table.features is None else table.features[group[own]]))
    return np.concatenate(scored), torch.cat(parts)


@torch.no_grad()
def pair_logits(model: PairModel, z: torch.Tensor, places: np.ndarray, features: np.ndarray | None) -> torch.Tensor:
    """Return the logits of pairs, given embeddings and where among them their ends lie: float32, shape (m, outputs), on the host."""
    parts, step = [torch.empty(0, model.outputs)], max(1, _CHUNK_NUMBERS // (2 * z.shape[1] + 1))
    for first in range(0, len(places), step):
        ends = torch.from_numpy(places[first : first + step].astype(np.int64).T.reshape(-1))
        x = None if features is None else torch.from_numpy(features[first : first + step]).to(z.device)
        parts.append(model.logits(z, ends, x).float().cpu())
    return torch.cat(parts)

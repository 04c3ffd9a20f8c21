"""Exact scores of a model that cannot run layer by layer: mini-batches of all neighbors of the vertices to score.

    logits_v = model(x, all blocks of the L hops around v)

The work grows with the L-hop neighborhoods, where `inference` makes L passes over the edges. Ranks share the mini-batches.
"""

from __future__ import annotations

import numpy as np
import torch

from ..distributed.comm.base import Comm
from ..labels import as_numbers
from ..loader import BulkLoader
from ..nn.own_model import OwnModel
from ..samplers.full import Full
from ..views.view import View, as_index
from .evaluate import score_logits


def evaluate_by_batches(model: OwnModel, view: View, comm: Comm, metric: str, batch_size: int) -> dict[str, float]:
    """Score every split of a graph, on every rank; collective. The scores are those of `evaluate`.

    Notes
    -----
    All ranks gather the ids, the labels and the splits of the vertices to score (kind "activations"); then each mini-batch samples and
    fetches its rows as in training (kinds "topology" and "features"), and logits are scored as in `evaluate`.
    """
    view = view.all_rows()
    vertices, labels, masks = _to_score(view, comm)
    found, rows = [torch.empty(0, model.outputs)], [np.empty(0, np.int64)]
    training = model.training
    model.eval()
    for positions, logits in _logits(model, view, comm, vertices, batch_size):
        found.append(logits)
        rows.append(positions)
    model.train(training)
    own = np.concatenate(rows)
    return score_logits(torch.cat(found), labels[own], {split: mask[own] for split, mask in masks.items()}, view.name, comm, metric)


def _to_score(view: View, comm: Comm) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return the vertices of all splits, ascending, with their labels and masks; the same on every rank."""
    share = view.share
    assert share.labels is not None
    own = np.flatnonzero(np.any([np.zeros(share.rows, bool), *share.masks.values()], axis=0))
    counts = comm.allgather(np.array([len(own)]), "control")[:, 0]
    bits = np.stack([mask[own] for mask in share.masks.values()], axis=1).astype(np.uint8)
    parts = (share.vertices[own], as_numbers(share.labels[own]), bits)
    ids, labels, masks = (comm.allgather_rows(np.ascontiguousarray(part), counts, "activations") for part in parts)
    order = np.argsort(ids)
    return ids[order], labels[order], dict(zip(share.masks, masks[order].astype(bool).T, strict=True))


@torch.no_grad()
def _logits(model: OwnModel, view: View, comm: Comm, vertices: np.ndarray, batch_size: int) -> list[tuple[np.ndarray, torch.Tensor]]:
    """Return the logits of this rank's mini-batches, each with the positions of its seeds in `vertices`."""
    loader = BulkLoader(
        view.adjacency, Full((-1,) * model.hops), vertices,
        batch_size=batch_size, bulk_size=1, shuffle=False, rank=comm.rank, ranks=comm.size, prefetch=False,
        handed=view.stream_sync.bulk_sampled,
    )  # fmt: skip
    found, first = [], comm.rank * batch_size
    where = next((parameter.device for parameter in model.parameters()), view.where)  # a view of the whole graph may lie on the host
    for minibatch in loader:
        if minibatch is not None:
            view.stream_sync.before_use([minibatch])
        x = view.features.start(np.empty(0, np.int32) if minibatch is None else minibatch.vertices).wait()
        if minibatch is None:
            continue
        logits = model(minibatch.blocks, x.to(where) if isinstance(x, torch.Tensor) else x, view.degrees(minibatch.vertices))
        at = as_index(minibatch.seed_rows)
        found.append((np.arange(first, first + len(minibatch.seeds)), logits[at.to(logits.device)].float().cpu()))
        view.stream_sync.after_use(minibatch)
        first += comm.size * batch_size
    return found

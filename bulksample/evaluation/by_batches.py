"""Scores from mini-batches of the vertices to score: of sampled neighbors, or of all for a model that cannot run layer by layer.

    logits_v = model(x, blocks of the L hops around v)

With sampled neighbors, the work is that of a forward pass over the scored vertices. With all neighbors it grows with the L-hop
neighborhoods, where `inference` makes L passes over the edges. Ranks share the mini-batches.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
import torch

from ..distributed.comm.agree import together
from ..distributed.comm.base import Comm
from ..graph.labels import as_numbers
from ..loading.bulk_sizes import scoring_bulk
from ..loading.loader import BulkLoader, in_bulks
from ..nn.model import Model, evaluation_mode
from ..nn.own_model import ModelFault
from ..nn.relational import RelationalGnn
from ..rng import Stream
from ..samplers import Sampler
from ..samplers.full import Full
from ..shuffle import Shuffle
from ..views.view import View, as_index
from .by_layers import fits_layers, logits_by_layers
from .evaluate import score_logits, scored_masks


@dataclass(frozen=True)
class BatchScoring:
    """The mini-batches that give scores.

    Parameters
    ----------
    sampler : Sampler
        Draws the neighbors; `Full` takes all.
    batch_size : int
    seed : int
        Seed of the scored vertices and of their neighbors, which are the same in every evaluation.
    most : int
        The number of vertices of each split to score, drawn without replacement; 0: all.
    memory : int, optional
        Bytes of each rank for exact scores that are computed layer by layer; see `by_layers.fits_layers`.
    """

    sampler: Sampler
    batch_size: int
    seed: int = 0
    most: int = 0
    memory: int | None = None

    @property
    def takes_all(self) -> bool:
        """True if scores are those of all neighbors."""
        return isinstance(self.sampler, Full)

    def drawn(self, masks: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], dict[str, int]]:
        """Keep at most `most` rows of each split; return the masks, and the number of rows of each split that was cut."""
        kept, cut = dict(masks), {}
        for number, (split, mask) in enumerate(masks.items()):
            rows = np.flatnonzero(mask)
            if 0 < self.most < len(rows):
                cut[split], kept[split] = self.most, np.zeros(len(mask), bool)
                kept[split][rows[Shuffle(Stream(self.seed), len(rows), number).at(np.arange(self.most))]] = True
        return kept, cut

    def options(self, view: View, comm: Comm) -> dict[str, Any]:
        """Return the options of a loader of this rank's mini-batches: every p-th one, in bulks of equal sizes on all ranks."""
        k = scoring_bulk(self.batch_size, self.sampler.fanouts, view.targets.relations_of_row)
        return {
            "batch_size": self.batch_size, "bulk_size": k, "seed": self.seed, "shuffle": False, "rank": comm.rank, "ranks": comm.size,
            "prefetch": False, "transform": view.stream_sync.bulk_sampled,
        }  # fmt: skip


def with_rows(loader: BulkLoader, view: View, model: Model) -> Iterator[tuple[Any, Any]]:
    """Yield the mini-batches of a loader of this view, each with its input rows. The ids of the rows of a bulk travel at once.

    Collective if rows lie with other ranks: a rank that has no mini-batch left still takes part, so iterate to the end.
    """
    for bulk in in_bulks(loader):
        view.stream_sync.before_use(bulk)
        fetches = view.features.ask([view.features.joined([] if one is None else [one.vertices]) for one in bulk])
        for minibatch, begin in zip(bulk, fetches, strict=True):
            x = model.look_up(begin()())
            if minibatch is not None:
                yield minibatch, x
                view.stream_sync.after_use(minibatch)


def evaluate_by_batches(
    model: Model, view: View, comm: Comm, metric: str, scoring: BatchScoring, splits: Collection[str] = ()
) -> dict[str, float]:
    """Score splits of a graph, on every rank; collective. The scores are those of `evaluate`, from the logits of mini-batches.

    Returns
    -------
    dict
        See `evaluate`. An accuracy of s vertices drawn from a split of more has its standard error, sqrt(a (1 - a) / s), beside it:
        ``{split}_accuracy_standard_error``.

    Notes
    -----
    All ranks gather the ids, the labels and the splits of the vertices to score (kind "activations"); then each mini-batch samples and
    fetches its rows as in training (kinds "topology" and "features"), and logits are scored as in `evaluate`. Of a heterogeneous graph
    without times, exact logits come from `by_layers` instead, where its rows fit in memory.
    """
    view = view.all_rows()
    vertices, labels, masks = _to_score(view, comm, splits)
    masks, cut = scoring.drawn(masks)
    kept = np.any([np.zeros(len(vertices), bool), *masks.values()], axis=0)
    vertices, labels, masks = vertices[kept], labels[kept], {split: mask[kept] for split, mask in masks.items()}
    with evaluation_mode(model):
        if scoring.takes_all and isinstance(model, RelationalGnn) and fits_layers(model, view, comm, scoring.memory):
            scored = [logits_by_layers(model, view, comm, vertices)]
        else:
            scored = logits_by_batches(model, view, comm, vertices, scoring)
    parts = [(np.empty(0, np.int64), torch.empty(0, view.num_classes)), *scored]
    places, logits = np.concatenate([positions for positions, _ in parts]), torch.cat([rows for _, rows in parts])
    scores = score_logits(logits, labels[places], {split: mask[places] for split, mask in masks.items()}, view.name, comm, metric)
    return scores | standard_errors(scores, cut)


def standard_errors(scores: dict[str, float], cut: dict[str, int]) -> dict[str, float]:
    """Return the standard error of each accuracy of a split of which some rows were drawn, given their number."""
    found = {f"{split}_accuracy": count for split, count in cut.items() if f"{split}_accuracy" in scores}
    return {f"{name}_standard_error": sqrt(scores[name] * (1 - scores[name]) / count) for name, count in found.items()}


def _to_score(view: View, comm: Comm, splits: Collection[str]) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
    """Return the vertices of the splits, ascending, with their labels and masks; the same on every rank."""
    share, masks = view.share, scored_masks(view.share.masks, splits)
    assert share.labels is not None
    scored = np.flatnonzero(np.any([np.zeros(share.rows, bool), *masks.values()], axis=0))
    counts = comm.allgather(np.array([len(scored)]), "control")[:, 0]
    bits = np.array([mask[scored] for mask in masks.values()], np.uint8).reshape(len(masks), len(scored)).T
    parts = (share.vertices[scored], as_numbers(share.labels[scored]), bits)
    ids, labels, bits = (comm.allgather_rows(np.ascontiguousarray(part), counts, "activations") for part in parts)
    order = np.argsort(ids)
    return ids[order], labels[order], dict(zip(masks, bits[order].astype(bool).T, strict=True))


@torch.no_grad()
def logits_by_batches(
    model: Model, view: View, comm: Comm, vertices: np.ndarray, scoring: BatchScoring
) -> list[tuple[np.ndarray, torch.Tensor]]:
    """Return the logits of this rank's mini-batches, each with the positions of its seeds in `vertices`; collective.

    Raises `UsageError` on every rank if a module of the user's fails on one of them.
    """
    loader = view.loader(scoring.sampler, vertices, **scoring.options(view, comm))
    made, first = [], comm.rank * scoring.batch_size
    fault: ModelFault | None = None
    where = next((parameter.device for parameter in model.parameters()), view.where)  # a view of the whole graph may lie on the host
    for minibatch, x in with_rows(loader, view, model):
        try:
            logits = model(minibatch.blocks, x.to(where) if isinstance(x, torch.Tensor) else x, view.degrees(minibatch.vertices))
        except ModelFault as error:  # the other ranks may still fetch rows of this one
            fault = fault or error
        else:
            at = as_index(minibatch.seed_rows)
            made.append((np.arange(first, first + len(minibatch.seeds)), logits[at.to(logits.device)].float().cpu()))
        first += comm.size * scoring.batch_size
    together(comm, lambda: _raise(fault))
    return made


def _raise(fault: ModelFault | None) -> None:
    if fault is not None:
        raise fault

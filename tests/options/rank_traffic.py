"""Ranks that are threads: the mini-batches of each, and the bytes that all of them send meanwhile."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from plain import graph, trained, trainer

from bulksample.distributed.comm.threads import on_threads


class Epoch(NamedTuple):
    """One epoch of mini-batches over p ranks, without training on them."""

    asked: list[list[np.ndarray]]  # the vertices of the mini-batch of each rank, step by step
    rows: list[list[np.ndarray]]  # their features
    minibatches: list[list]
    sampled: dict[str, int]  # bytes of sampling by kind, over all ranks
    fetched: dict[str, int]  # bytes of the features
    held: list[dict[str, int]]  # bytes that each rank holds
    own: list[np.ndarray]  # vertices of its block row


def _since(now, then) -> dict[str, int]:
    return {kind: now[kind].bytes - then[kind].bytes for kind in then}


def epoch(folder, p, **options) -> Epoch:
    """Draw and fetch an epoch of a partitioned graph on p ranks."""

    def rank(comm):
        made = trainer(folder, comm, **{"graph": "partitioned", "seeds": "all", "bulk_size": 1, **options})
        view = made.context.view
        before = [dict(each.tally) for each in (view.sampling, comm)]
        batches = [batch for batch in made.context.batches if batch.minibatch is not None]
        sampled, fetched = (_since(each.tally, then) for each, then in zip((view.sampling, comm), before, strict=True))
        vertices, rows = [batch.minibatch.vertices for batch in batches], [batch.x.numpy() for batch in batches]
        return vertices, rows, [batch.minibatch for batch in batches], sampled, fetched, view.memory, view.own_rows().block.vertices

    asked, rows, minibatches, sampled, fetched, held, own = (list(each) for each in zip(*on_threads(p, rank), strict=True))
    total = [{kind: sum(rank[kind] for rank in ranks) for kind in ranks[0]} for ranks in (sampled, fetched)]
    return Epoch(asked, rows, minibatches, *total, held, own)


def remote(vertices, own) -> np.ndarray:
    """The distinct vertices that a rank does not hold."""
    return np.setdiff1d(vertices, own)


def halo_rows(p=2) -> int:
    """Pairs of a rank and a vertex of another rank that one of its rows aggregates; ranks hold 60 / p consecutive vertices."""
    a = graph().adjacency
    rank, column = a.row_of_entry() * p // a.shape[0], a.indices
    return len({(r, u) for r, u in zip(rank.tolist(), column.tolist(), strict=True) if u * p // a.shape[0] != r})


def sent_in_steps(folder, **options) -> int:
    """Bytes that two ranks send in the forward and backward passes of a run of a full-graph method."""
    options = {"method": "full", "fanouts": (-1, -1), "epochs": 3, **options}
    phases = on_threads(2, lambda comm: trained(folder, comm, **options)[0]["phase_bytes"])[0]
    return phases["forward"] + phases["backward"]

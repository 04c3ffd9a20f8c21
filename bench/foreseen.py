"""Predict what `bulksample sample` and one epoch of `bulksample train` send on a process grid, in one process and without messages.

Mini-batches do not depend on the placement of the graph. So one process draws the mini-batches of all p ranks and records what the
sampler requests (`tests/oracles/call_recorder.py`). The formulas of `tests/oracles` turn the requests into bytes: sampling and
feature rows. The table in `distributed.comm.base` gives the all-reduce of theta + 3 numbers (gradients, seeds, loss, a wish to stop)
in each step. For L layers of widths w_0 = f to w_L classes, GraphSAGE has theta = sum over l of (2 w_{l-1} + 1) w_l.

The kinds topology, features and gradients are predicted. Bytes of kind control contain texts of unknown length.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from oracles.call_recorder import AdjacencyCall, CallRecorder, laws_of, predict_calls
from oracles.collectives import GridSent, nothing_sent, tallies
from oracles.fetches import Tallies, predict_cache, predict_fetches
from oracles.opening import seeds_gathered
from oracles.sampling import RowsCosts, costs_of
from ranks import Grid, Work

from bulksample import LocalAdjacency, backends, samplers
from bulksample.data import store
from bulksample.data.parts_manifest import load_parts
from bulksample.distributed.comm.base import SentCount
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.open_graph import part_places
from bulksample.loading.division import SeedGroups
from bulksample.loading.loader import BulkLoader

KINDS = ("topology", "features", "gradients")
_NOTHING = np.empty(0, np.int32)


class Drawn(NamedTuple):
    """One epoch of p ranks: the calls of each rank, and its vertices in every step."""

    calls: list[list[AdjacencyCall]]
    asked: list[list[np.ndarray]]


class _Staged(RowsCosts):
    """A recorder that keeps the rows that travel in stages apart, in `in_turn`."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.in_turn = nothing_sent(self.rows, self.replication)

    def _stages(self, named: Sequence[np.ndarray], values: bool) -> GridSent:
        self.in_turn += self._fetching.entries(named, values)
        return super()._stages(named, values)


class Foresight:
    """Predicted messages and bytes of a piece of work, for any grid.

    Parameters
    ----------
    work : Work
        Its graph has a training split. Parts of a folder of parts are the block rows, or equally many of them each.
    seed_locality : int, optional
        The groups of seeds. Rank r holds the rows in place r: one part, or block row, for each rank.
    """

    def __init__(self, work: Work, seed_locality: int | None = None) -> None:
        self.work, self.graph, self.seed_locality = work, store.load(work.directory), seed_locality
        self.backend = backends.make("auto", 1)
        self.drawn = cache(self._drawn)
        widths = [self.graph.num_features, *[work.hidden] * (len(work.fanouts) - 1), self.graph.num_classes]
        self.parameters = sum((2 * into + 1) * out for into, out in pairwise(widths))

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the graph and the model."""
        graph = self.graph
        return {"vertices": graph.n, "edges": graph.adjacency.nnz, "features": graph.num_features, "parameters": self.parameters}

    def sampled(self, grid: Grid, epoch: int = 0) -> Tallies:
        """Predict the sampling of an epoch by rank; in the first one that includes the first use of a graph."""
        costs = costs_of(grid.exchange, grid.ranks, grid.replication, self.graph.adjacency, self.backend)
        calls = self.drawn(grid.ranks, epoch).calls
        sent = predict_calls(costs, calls)
        return tallies(sent - costs.first_rows(laws_of(calls[0])) if epoch else sent)

    def sampling_path(self, grid: Grid, epoch: int = 0) -> SentCount:
        """Predict what is sent one after the other in sampling: the messages of the busiest rank, and bytes.

        In the stages of `rows` and `rows-oblivious`, one rank of a process column sends entries of rows at a time, so the bytes of a
        column add up. In all other exchanges, and before the stages, ranks send at the same time.
        """
        matrix, layout = self.graph.adjacency, self._layout(grid)
        staged = _Staged(grid.ranks, grid.replication, matrix, self.backend, layout, grid.exchange == "rows-oblivious")
        costs = costs_of("owner", grid.ranks, grid.replication, matrix, self.backend, layout) if grid.exchange == "owner" else staged
        sent = predict_calls(costs, self.drawn(grid.ranks, epoch).calls)
        in_turn = staged.in_turn[:, 1].sum(axis=(0, 1)).max()
        at_once = (sent - staged.in_turn)[:, 1].sum(axis=0).max()
        return SentCount(int(sent[:, 0].sum(axis=0).max()), int(in_turn + at_once))

    def seeds_told(self, grid: Grid) -> Tallies:
        """Predict the exchange that gives every rank all seeds, once."""
        layout = self._layout(grid)
        own = [int(self.graph.masks["train"][layout.members(block)].sum()) for block in range(layout.blocks)]
        return tallies(seeds_gathered(grid.replication, own, named=False))

    def fetched(self, grid: Grid, epoch: int = 0) -> Tallies:
        """Predict the ids and features of an epoch, without the filling of a cache; a cache only where block rows are ranges of ids."""
        layout, width = self._layout(grid), self.graph.num_features
        assert layout.position is None or not grid.cache_bytes
        access_count = np.bincount(self.graph.adjacency.indices, minlength=self.graph.n)
        cached = predict_cache(self.graph.n, width, grid.codec, grid.cache_bytes, access_count) if grid.cache_bytes else None
        asked = list(zip(*self.drawn(grid.ranks, epoch).asked, strict=True))
        windows = self._windows(grid, len(asked[0]))
        requests = [[[layout.places(np.concatenate(own[t:u])) for t, u in one] for own in asked] for one in windows]
        return together(*[predict_fetches(grid.replication, own, layout.bounds, width, grid.codec, cached) for own in requests])

    def _windows(self, grid: Grid, steps: int) -> list[list[tuple[int, int]]]:
        """List the steps that each request of rows is for: windows of `together` steps, of one bulk or until one ends in the next bulk."""
        k, first, requests = self.work.bulk_size, 0, list[list[tuple[int, int]]]()
        while first < steps:
            windows = [(first, min(first + grid.together, steps))]
            sampled = min(-(-windows[0][1] // k) * k, steps)
            while windows[-1][1] + grid.together <= sampled:
                windows.append((windows[-1][1], windows[-1][1] + grid.together))
            requests.append(windows)
            first = windows[-1][1]
        return requests

    def reduced(self, grid: Grid) -> Tallies:
        """Predict the gradients of an epoch."""
        p, numbers, steps = grid.ranks, self.parameters + 3, len(self.drawn(grid.ranks, 0).asked)
        shares = [4 * len(range(r, numbers, p)) for r in range(p)]
        return [{"gradients": SentCount(2 * (p - 1) * steps, (4 * numbers + (p - 2) * share) * steps)} for share in shares]

    def sample(self, grid: Grid) -> Tallies:
        """Predict `bulksample sample`."""
        return together(self.seeds_told(grid), self.sampled(grid))

    def train(self, grid: Grid) -> Tallies:
        """Predict the first epoch of `bulksample train`."""
        return together(self.sampled(grid), self.fetched(grid), self.reduced(grid))

    def _layout(self, grid: Grid) -> Layout:
        rows, places = grid.ranks // grid.replication, part_places(self.work.directory)
        if places is None:
            return Layout.even(self.graph.n, rows)
        bounds = load_parts(self.work.directory).bounds
        part = np.searchsorted(bounds[1:], places, side="right").astype(np.int32)
        return Layout.of_parts(part, len(bounds) - 1, rows)

    def _drawn(self, ranks: int, epoch: int) -> Drawn:
        work, calls, asked, groups = self.work, [], [], None
        if self.seed_locality:
            groups = SeedGroups(self.seed_locality, self._layout(Grid(ranks, 1, "owner")).part_order(self.graph.default_seeds()))
        for rank in range(ranks):
            recorder = CallRecorder(LocalAdjacency(self.graph.adjacency, self.backend))
            loader = BulkLoader(
                recorder, samplers.make(work.sampler, work.fanouts), self.graph.default_seeds(), batch_size=work.batch_size,
                bulk_size=work.bulk_size, seed=work.seed, rank=rank, ranks=ranks, groups=groups, prefetch=False,
            )  # fmt: skip
            loader.epoch = epoch
            asked.append([_NOTHING if minibatch is None else minibatch.vertices for minibatch in loader])
            calls.append(recorder.calls)
        return Drawn(calls, [list(step) for step in zip(*asked, strict=True)])


def together(*parts: Tallies) -> Tallies:
    """Add up several exchanges, rank by rank."""

    def total(rank: Sequence[dict[str, SentCount]], kind: str) -> SentCount:
        return SentCount(*np.sum([part.get(kind, (0, 0)) for part in rank], axis=0).tolist())

    return [{kind: total(rank, kind) for kind in (*KINDS, "control")} for rank in zip(*parts, strict=True)]


def over_ranks(sent: Tallies) -> dict[str, int]:
    """Return bytes by kind; each message counts once."""
    return {kind: sum(rank[kind].bytes for rank in sent) for kind in KINDS}


def differing(measured: dict[str, int], foreseen: dict[str, int]) -> list[str]:
    """Describe the kinds whose sent bytes differ from the prediction."""
    return [f"{kind}: {measured[kind]} sent, {foreseen[kind]} foreseen" for kind in KINDS if measured[kind] != foreseen[kind]]


def busiest(sent: Tallies) -> SentCount:
    """Return the messages and bytes of the rank that sends most."""
    return SentCount(*np.max([np.sum(list(rank.values()), axis=0) for rank in sent], axis=0).tolist())

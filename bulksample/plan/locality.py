"""Mini-batches that draw from groups of near seeds (`--seed-locality`): their sizes, and the shares of their rows on other ranks.

Both depend on the graph and the order of its parts, so some mini-batches of each group are sampled, and rows are counted:

    U       mean input vertices of a mini-batch
    a       for p ranks and q block rows: the rows of mini-batches that another block row than that of their rank holds, over all rows
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import backends
from ..data.parts_manifest import is_parts, load_parts
from ..data.store import load
from ..distributed.matrix.grid import divisors
from ..distributed.matrix.open_graph import part_places
from ..distributed.matrix.partition import block_bounds
from ..graph.minibatch import MiniBatch
from ..graph.selection import Selection
from ..loading.division import EpochShare, SeedGroups
from ..local_adjacency import LocalAdjacency
from ..rng import Stream
from ..samplers import make
from .request import PlanRequest

_SAMPLED = 64  # mini-batches at most, unless there are more groups
_BULK = 8


@dataclass(frozen=True)
class Locality:
    """Counts of sampled mini-batches, and the shares that follow from them."""

    minibatches: int  # that were sampled
    edges: float  # mean sampled edges of a mini-batch
    inputs: float  # mean input vertices of a mini-batch
    shares: dict[tuple[int, int], tuple[float, ...]]  # by (p, q), of rows on other block rows: those that draw in each hop, the input rows


def sample_locality(request: PlanRequest, directory: Path, check: str = "auto") -> Locality:
    """Sample at most 64 mini-batches of the groups of seeds of a request, or one of each group; only the topology is read.

    `directory` is a store, whose block rows are ranges of ids (partition ``block``), or a folder of parts, whose block rows are whole parts
    where the number of parts is a multiple of them, else even ranges in part order. Raises `UsageError` if there are fewer seeds than
    groups, or the groups do not fit a number of ranks.
    """
    assert request.seed_locality is not None
    owners = dict[int, list[list[int]]]()  # by p and group, the places of the ranks that take its mini-batches
    for p in request.ranks:  # refuses ranks that do not fit
        own_groups = [EpochShare(0, rank, p, groups=request.seed_locality).own_groups for rank in range(p)]
        owners[p] = [
            [rank for rank, groups_of_rank in enumerate(own_groups) if group in groups_of_rank] for group in range(request.seed_locality)
        ]
    graph = load(directory, features=False, check=check)
    table = part_places(directory)
    places = np.arange(graph.n, dtype=np.int32) if table is None else table
    seeds = graph.default_seeds()
    groups = SeedGroups(request.seed_locality, places[seeds])
    counts = {(p, q): np.zeros((2, len(request.fanouts) + 1)) for p in request.ranks for q in divisors(p)}
    bounds = {q: block_bounds(graph.n, q) for _, q in counts}
    if is_parts(directory):
        starts = load_parts(directory).bounds
        bounds |= {q: np.asarray(starts[:: (len(starts) - 1) // q]) for q in bounds if (len(starts) - 1) % q == 0}
    sampled = edges = inputs = 0
    for minibatch in _some_of_each(request, LocalAdjacency(graph.adjacency, backends.make("auto")), seeds, groups):
        sampled, edges, inputs = sampled + 1, edges + minibatch.num_edges, inputs + len(minibatch.vertices)
        # rows of a mini-batch that draw in each hop, then its input rows: those on other block rows are counted, and all; shape (2, L + 1)
        ends = [block.num_destinations for block in reversed(minibatch.blocks)] + [len(minibatch.vertices)]
        for (p, q), count in counts.items():
            blocks = np.searchsorted(bounds[q], places[minibatch.vertices], side="right") - 1
            takers = owners[p][minibatch.id % groups.count]
            for place in takers:
                away = blocks != place * q // p
                count += np.array([[np.count_nonzero(away[:end]) for end in ends], ends], np.float64) / len(takers)
    shares = {key: tuple((away / np.maximum(rows, 1)).tolist()) for key, (away, rows) in counts.items()}
    return Locality(sampled, edges / sampled, inputs / sampled, shares)


def _some_of_each(request: PlanRequest, adjacency: LocalAdjacency, seeds: np.ndarray, groups: SeedGroups) -> Iterator[MiniBatch]:
    """Sample as many mini-batches of each group, spread over the first epoch of `BulkLoader`; smaller last ones count if all are taken."""
    law, stream = make(request.sampler, request.fanouts, frontier=request.frontier), Stream(0)
    sampler = law.prepared(adjacency, seeds, request.batch_size, stream) if hasattr(law, "prepared") else law
    order = groups.shuffled(stream, 0)
    total = groups.minibatches(request.batch_size, request.drop_last)
    turns = -(-total // groups.count)
    taken = min(turns, max(1, _SAMPLED // groups.count))
    for turn in (np.arange(taken) * turns // taken).tolist():
        ids = np.arange(turn * groups.count, min((turn + 1) * groups.count, total))
        lists = [seeds[order(np.asarray(groups.span(int(i), request.batch_size)))] for i in ids]
        for first in range(0, len(ids), _BULK):
            selection = Selection.of(lists[first : first + _BULK], adjacency.n, ids[first : first + _BULK])
            yield from sampler.sample_bulk(adjacency, selection, stream, 0)

"""What a sampler asks of a graph, written down, and what that costs where the graph is partitioned.

A sampler cannot tell one adjacency from another, so what it asks of a graph in one process is what it would ask of block rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from ...adjacency import Adjacency, Entries, Kept
from ...backends.base import LayerPicks, Picks
from ...rng import Draw
from ...selection import Selection
from ...sparse import CSR
from .collectives import GridSent, nothing_sent
from .sampling import BlockRowCosts


class AdjacencyCall(NamedTuple):
    """A call of a method of `Adjacency`."""

    name: str
    arguments: tuple[Any, ...]


class CallRecorder(Adjacency):
    """An adjacency that writes down what it is asked, in `calls`; the answers are those of the one it was made from."""

    def __init__(self, adjacency: Adjacency) -> None:
        self.adjacency, self.calls = adjacency, list[AdjacencyCall]()
        self.n, self.weighted, self.backend, self.collective = adjacency.n, adjacency.weighted, adjacency.backend, adjacency.collective

    def left_multiply(self, q: Selection, entries: Entries) -> CSR:
        self.calls.append(AdjacencyCall("left_multiply", (q, entries)))
        return self.adjacency.left_multiply(q, entries)

    def sample_rows(self, q: Selection, fanout: int, draw: Draw) -> Picks:
        self.calls.append(AdjacencyCall("sample_rows", (q, fanout, draw)))
        return self.adjacency.sample_rows(q, fanout, draw)

    def sample_layer(self, q: Selection, entries: Entries, power: Literal[1, 2], fanout: int, draw: Draw) -> LayerPicks:
        self.calls.append(AdjacencyCall("sample_layer", (q, entries, power, fanout, draw)))
        return self.adjacency.sample_layer(q, entries, power, fanout, draw)

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> Kept:
        self.calls.append(AdjacencyCall("restrict", (rows, columns, shares)))
        return self.adjacency.restrict(rows, columns, shares)


def predict_calls(costs: BlockRowCosts, calls: Sequence[Sequence[AdjacencyCall]]) -> GridSent:
    """What every rank sends in the calls that p ranks make, first calls included.

    Parameters
    ----------
    calls : for each rank its calls; all ranks make the same ones, in the same order, with selections of their own

    Raises
    ------
    ValueError
        If one rank makes more calls than another.
    """
    sent, used = nothing_sent(costs.rows, costs.replication), set[Entries]()
    for together in zip(*calls, strict=True):
        arguments = [_each_or_one(values) for values in zip(*(call.arguments for call in together), strict=True)]
        sent += getattr(costs, together[0].name)(*arguments)
        if together[0].name in ("left_multiply", "sample_layer") and arguments[1] not in used:
            used.add(arguments[1])
            sent += costs.first_use(arguments[1])
    return sent


def _each_or_one(values: Sequence[Any]) -> Any:
    """Selections are each rank's own; everything else is alike."""
    return list(values) if isinstance(values[0], Selection) else values[0]

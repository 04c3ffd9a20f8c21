"""Record the calls that a sampler makes to an adjacency, and predict what they send if the graph is partitioned.

A sampler makes the same calls to every adjacency, so calls recorded in one process are those that it would make to block rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

from bulksample.adjacency import Adjacency, Entries, KeptEdges
from bulksample.backends.base import Picks
from bulksample.backends.layer_draws import LayerPicks
from bulksample.distributed.matrix.reply_slots import RowLaw
from bulksample.graph.selection import Selection
from bulksample.rng import Draw
from bulksample.sparse import CSR

from .collectives import GridSent, nothing_sent
from .sampling import BlockRowCosts


class AdjacencyCall(NamedTuple):
    """A recorded call of a method of `Adjacency`."""

    name: str
    arguments: tuple[Any, ...]


class CallRecorder(Adjacency):
    """An adjacency that records its calls in `calls` and passes them on to another adjacency."""

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

    def restrict(self, rows: Selection, columns: Selection, shares: bool = True) -> KeptEdges:
        self.calls.append(AdjacencyCall("restrict", (rows, columns, shares)))
        return self.adjacency.restrict(rows, columns, shares)


def predict_calls(costs: BlockRowCosts, calls: Sequence[Sequence[AdjacencyCall]]) -> GridSent:
    """Predict what every rank sends in the calls of p ranks, including the work of first calls.

    Parameters
    ----------
    calls : the calls of each rank; all ranks make the same calls in the same order, each with its own selections

    Raises
    ------
    ValueError
        If one rank makes more calls than another.
    """
    sent, used = nothing_sent(costs.rows, costs.replication), set[Entries]()
    if any(call.name == "sample_rows" for call in calls[0]):
        sent += costs.first_rows(laws_of(calls[0]))
    for together in zip(*calls, strict=True):
        arguments = [_each_or_one(values) for values in zip(*(call.arguments for call in together), strict=True)]
        sent += getattr(costs, together[0].name)(*arguments)
        if together[0].name in ("left_multiply", "sample_layer") and arguments[1] not in used:
            used.add(arguments[1])
            sent += costs.first_use(arguments[1])
    return sent


def laws_of(calls: Sequence[AdjacencyCall]) -> list[RowLaw]:
    """Return the laws of the calls of `Adjacency.sample_rows`."""
    return [RowLaw(call.arguments[1], call.arguments[2].law) for call in calls if call.name == "sample_rows"]


def _each_or_one(values: Sequence[Any]) -> Any:
    """Return all values if they are selections, which differ between ranks; else the first, since all are equal."""
    return list(values) if isinstance(values[0], Selection) else values[0]

"""Every grid of a request with its memory, traffic and time; the fastest that fits, and why.

For each p: of the graph replicated (c = p) and in block rows with every other c that divides p, the grid with the shortest
predicted epoch among those that fit; of equal ones the larger c. The bulk is the largest that fits, at most what
`--bulk-size auto` would take.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from ..distributed.costs.published import PublishedWords
from ..errors import UsageError
from ..loader import AUTO_LIMIT
from .measured import Measured
from .memory import Memory, largest_bulk, memory
from .request import PlanRequest, divisors
from .seconds import Seconds, seconds
from .sentences import explain, gigabytes
from .sizes import Sizes, expected_sizes
from .traffic import Grid, Traffic, published, traffic

_MOST_RANKS = 2**20


@dataclass(frozen=True)
class Row:
    """One grid. `memory`, `traffic` and `seconds` are those of `bulk_size`, which is 1 where nothing fits.

    Attributes
    ----------
    largest_bulk : k; 0 where the grid does not fit
    """

    grid: Grid
    memory: Memory
    largest_bulk: int
    bulk_size: int
    traffic: Traffic
    seconds: Seconds
    published: PublishedWords

    @property
    def fits(self) -> bool:
        return self.largest_bulk > 0


@dataclass(frozen=True)
class Plan:
    """The answer.

    Attributes
    ----------
    rows : every grid
    chosen, untested : the best for each p for which one fits, and the best if nothing were evaluated
    """

    request: PlanRequest
    measured: Measured
    sizes: Sizes
    budget: float
    rows: tuple[Row, ...]
    chosen: dict[int, Row]
    untested: dict[int, Row]

    def to_dict(self) -> dict[str, Any]:
        """Everything as one object that JSON can say; sizes in bytes, times in seconds of an epoch."""
        device, network, sizes = self.measured.device, self.request.connection(), self.sizes
        return {
            "request": self.request.model_dump(mode="json"),
            "rates": _rates(device) | _rates(network) | {"devices_per_node": {"value": network.per_node}},
            "measured_files": list(self.measured.files),
            "minibatches": self.request.minibatches,
            "minibatch": {"inputs": sizes.inputs, "edges": sizes.edges, "rows": sizes.rows, "bytes": sizes.nbytes},
            "hops": [asdict(hop) for hop in sizes.hops],
            "parameters": self.request.parameters,
            "usable_bytes": self.budget,
            "rows": [_row(row, self.chosen.get(row.grid.ranks) is row) for row in self.rows],
            "explanation": explain(self),
        }


def make_plan(request: PlanRequest, measured: Measured | None = None) -> Plan:
    """Predict every grid of a request and choose.

    Raises
    ------
    UsageError
        If no grid fits, with what is too large and what would fit.
    """
    measured = measured or Measured(request.machine())
    sizes = expected_sizes(request)
    if measured.edges is not None and measured.inputs is not None:
        sizes = sizes.scaled_to(measured.edges, measured.inputs)
    budget = (1 - request.reserve) * measured.device.memory.value
    rows, chosen = _decide(request, sizes, budget, measured)
    untested = _decide(request.model_copy(update={"evaluation": False}), sizes, budget, measured)[1]
    if not chosen:
        raise UsageError(_nothing_fits(request, sizes, rows, budget, bool(untested)))
    return Plan(request, measured, sizes, budget, rows, chosen, untested)


def _decide(request: PlanRequest, sizes: Sizes, budget: float, measured: Measured) -> tuple[tuple[Row, ...], dict[int, Row]]:
    """All rows, and the best for each number of ranks for which one fits."""
    rows = tuple(predict(request, sizes, grid, budget, measured) for p in request.ranks for grid in grids(request, p))
    fitting = sorted((row for row in rows if row.fits), key=lambda row: (-row.seconds.epoch, row.grid.replication))
    return rows, {row.grid.ranks: row for row in fitting}


def grids(request: PlanRequest, p: int) -> Iterator[Grid]:
    """The grids of p ranks. With c = p every rank has everything: the graph is then replicated."""
    for c in request.replication or divisors(p):
        if c == p:
            yield Grid(p, c, "replicated")
        elif request.graph != "replicated":
            yield Grid(p, c, "published" if request.graph == "published" else "partitioned")


def predict(request: PlanRequest, sizes: Sizes, grid: Grid, budget: float, measured: Measured) -> Row:
    """One row of a plan."""
    largest = largest_bulk(request, sizes, grid, budget)
    k = min(max(1, largest), AUTO_LIMIT)
    return Row(
        grid, memory(request, sizes, grid, k), largest, k, traffic(request, sizes, grid, k), seconds(request, sizes, grid, k, measured),
        published(request, sizes, grid),
    )  # fmt: skip


def _nothing_fits(request: PlanRequest, sizes: Sizes, rows: tuple[Row, ...], budget: float, untested: bool) -> str:
    """What is too large, and what would fit."""
    least = min(rows, key=lambda row: row.memory.total)
    parts = sorted(asdict(least.memory).items(), key=lambda item: -item[1])
    largest = ", ".join(f"{gigabytes(size)} for {name}" for name, size in parts[:3])
    lighter = "the same without exact evaluation would fit, or " if untested and request.evaluation else ""
    grid, needed = least.grid, least.memory.total / (1 - request.reserve)
    return (
        f"nothing fits into {gigabytes(budget)} of a device: the least is {gigabytes(least.memory.total)} with p = {grid.ranks}, "
        f"c = {grid.replication}, the graph {grid.graph}, k = 1 ({largest}); "
        f"{lighter}a device of {gigabytes(needed)} would fit, or {_enough_ranks(request, sizes, budget)}"
    )


def _enough_ranks(request: PlanRequest, sizes: Sizes, budget: float) -> str:
    p = 2 * max(request.ranks)
    while p <= _MOST_RANKS and request.graph != "replicated":
        if memory(request, sizes, Grid(p, 1, "partitioned"), 1).total <= budget:
            return f"p = {p} with c = 1"
        p *= 2
    return "a smaller batch or smaller fanouts: more ranks alone would not do"


def _rates(profile: Any) -> dict[str, Any]:
    rates = {name: rate for name, rate in vars(profile).items() if hasattr(rate, "origin")}
    return {name: rate._asdict() for name, rate in rates.items()}


def _row(row: Row, chosen: bool) -> dict[str, Any]:
    return {
        "ranks": row.grid.ranks,
        "replication": row.grid.replication,
        "graph": row.grid.graph,
        "fits": row.fits,
        "chosen": chosen,
        "largest_bulk": row.largest_bulk,
        "bulk_size": row.bulk_size,
        "memory": {**asdict(row.memory), "total": row.memory.total},
        "bytes_sent": {"total": row.traffic.total, **asdict(row.traffic)},
        "seconds": asdict(row.seconds),
        "published_words_per_process": row.published.per_process if row.grid.partitioned else 0.0,
    }

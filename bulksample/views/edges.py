"""The numbers and the features of sampled edges: from this rank's memory, or from the ranks that hold their rows. Imports no torch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from ..distributed.comm.base import Comm
from ..distributed.matrix.edge_exchange import EdgeExchange, EdgeFetch
from ..sparse import CSR


class EdgeRows(NamedTuple):
    """Positions in the adjacency (int64) and features (float32) of sampled edges; None for either that was not fetched."""

    numbers: np.ndarray | None
    features: np.ndarray | None

    def part(self, first: int, last: int) -> EdgeRows:
        """Return consecutive edges, as views."""
        return EdgeRows(*(None if one is None else one[first:last] for one in self))


class EdgeSource:
    """Fetches the numbers and the features of edges, which are named by their ends.

    Numbers are found in the whole adjacency, and features among those of all edges, if this rank has them; else an exchange fetches them
    from the ranks that own their rows, and every fetch is collective. With `numbers`, it fetches numbers that are not found here.
    """

    def __init__(
        self, matrix: CSR | None, features: np.ndarray | None, exchange: EdgeExchange | None = None, numbers: bool = False
    ) -> None:
        self._matrix, self._features, self._exchange = matrix, features, exchange
        self._numbers = numbers and matrix is None

    @property
    def comm(self) -> Comm | None:
        """The communicator of the fetches; None if nothing is fetched from other ranks."""
        return None if self._exchange is None else self._exchange.comm

    def start(self, destinations: np.ndarray, sources: np.ndarray) -> Callable[[], EdgeRows]:
        """Start to fetch edges; return a function that waits for them."""
        return self.ask([(destinations, sources)])[0]()

    def ask(self, fetches: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[Callable[[], Callable[[], EdgeRows]]]:
        """Return a function for each of several fetches of (destinations, sources) that starts it; see `FeatureSource.ask`."""
        begins = [None] * len(fetches) if self._exchange is None else self._exchange.ask(fetches, self._numbers)
        return [partial(self._started, *ends, begin) for ends, begin in zip(fetches, begins, strict=True)]

    def _started(self, destinations: np.ndarray, sources: np.ndarray, begin: Callable[[], EdgeFetch] | None) -> Callable[[], EdgeRows]:
        pending = None if begin is None else begin()

        def wait() -> EdgeRows:
            numbers, rows = (None, None) if pending is None else pending.wait()
            if self._matrix is not None:
                numbers = self._matrix.find(destinations, sources)
            if self._features is not None:
                rows = self._features[numbers]
            return EdgeRows(numbers, None if rows is None else rows.astype(np.float32, copy=False))

        return wait

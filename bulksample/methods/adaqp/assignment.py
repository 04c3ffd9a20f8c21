"""Choose the widths (bits per number: 2, 4 or 8) of all messages every c epochs, from the ranges of values that each rank traced.

    beta_u = a_u f / 6 (max h_u - min h_u)^2,     a_u = sum over receiving rows v of P_vu^2

P is the matrix that a layer aggregates by, so beta_u / (2^b - 1)^2 is the noise that message u adds to the rows of its receiver;
`squared_sum` takes (sum over v of P_vu)^2, as published. A backward message is a gradient that is summed already, and a_u is the
square of the one factor that follows, 1 / (d_u + 1) for GCN.

Epoch e with (e + 1) mod c = 0 is traced, and its betas go to rank 0, 4 bytes a message. A thread of rank 0 solves the problem while
epoch e + 1 trains. Before epoch e + 2 rank 0 sends each rank 2 bits for every message that it sends or receives. All of this
is of kind "control". The widths of an epoch depend on its number alone, not on how long the thread took.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor

import numpy as np
import torch

from ...distributed.comm.base import Comm
from ...distributed.matrix.halo import Halo
from ...views.full_graph import HaloRows
from .rounded_messages import RoundedMessages, is_backward
from .widths import CLASSES, LinkSpeeds, Pair, Problem, Widths

Tables = dict[str, Widths]  # by layer and direction
Weights = tuple[list[np.ndarray], list[np.ndarray]]  # a_u of the rows sent to each peer, forward and backward

_LAG = 2  # epochs from a trace to the use of its widths
_NOTHING = np.empty(0, np.uint8)


class Assignment:
    """Collect the traces on rank 0, solve for the widths there, and install the tables of widths on every rank.

    `weights` are a_u of the rows sent to each rank (`coefficients`), `trade` is lambda of `widths.Problem`, and `uniform` asks for one
    width for all messages of a layer and direction, the best of three. `count` is the number of assignments so far. Collective: 8 p (p - 1)
    bytes of kind "control".
    """

    def __init__(
        self, comm: Comm, rounded: RoundedMessages, halo: Halo, weights: Weights, links: LinkSpeeds, trade: float = 0.5,
        uniform: bool = False,
    ) -> None:  # fmt: skip
        self._comm, self._rounded, self._weights, self._links, self._trade, self._uniform = comm, rounded, weights, links, trade, uniform
        self._counts = comm.allgather(np.array([len(requested) for requested in halo.requested]), "control")
        self._keys, self._now, self._next, self._due = list[str](), Tables(), Future[Tables](), -1
        self.count = 0

    def begin(self, epoch: int) -> None:
        """Install the widths that were solved for an epoch, before it begins. Collective if there are any."""
        if 0 <= self._due <= epoch:
            self._now = self._next.result() if self._comm.rank == 0 else {}
            self._install(self._scatter())
            self._due, self.count = -1, self.count + 1

    def note(self, epoch: int) -> None:
        """Send the traces of an epoch, if any, to rank 0, which starts to solve. Collective."""
        traced, self._rounded.traced = self._rounded.traced, None
        if traced is None:
            return
        self._keys, self._due = sorted(self._rounded.widths), epoch + _LAG
        channels = [(key, peer) for key in self._keys for peer in range(self._comm.size)]
        betas = np.concatenate([(traced[at] * self._weights[is_backward(at[0])][at[1]]).astype(np.float32) for at in channels])
        received = self._comm.alltoall([betas[: len(betas) * (r == 0)] for r in range(self._comm.size)], "control")
        if self._comm.rank == 0:
            solver = ThreadPoolExecutor(1)
            self._next = solver.submit(self._solve, received)
            solver.shutdown(wait=False)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the widths of all messages, on rank 0, and the next widths once they are solved."""
        if self._comm.rank or not (self.count or self._due >= 0):
            return {}
        state = {"made": torch.tensor(self.count), "links": torch.from_numpy(np.stack(self._links)), **_flat("now", self._now)}
        return state if self._due < 0 else {**state, "due": torch.tensor(self._due), **_flat("next", self._next.result())}

    def load_state_dict(self, tensors: dict[str, torch.Tensor]) -> None:
        """Install saved widths. With another number of ranks or another partition they are ignored, and messages have 8 bits again."""
        sizes = {key: sum(count for _, count in self._channels(key)) for key in (name.partition(".")[2] for name in tensors) if key}
        fits = all(len(tensor) == sizes[name.partition(".")[2]] for name, tensor in tensors.items() if "." in name)
        if tensors["links"].shape[1] != self._comm.size or not fits:
            return
        self.count, self._links = int(tensors["made"]), LinkSpeeds(*tensors["links"].numpy())
        self._now, following = self._nested("now", tensors), self._nested("next", tensors)
        self._install(self._now)
        if "due" in tensors:
            self._due, self._keys, self._next = int(tensors["due"]), sorted(following), Future()
            self._next.set_result(following)

    def _solve(self, received: list[np.ndarray]) -> Tables:
        """Solve one problem for each layer and direction; the betas of each rank stand in the order of `_channels`."""
        tables, first = Tables(), [0] * len(received)
        for key in self._keys:
            betas = dict[Pair, np.ndarray]()
            for pair, count in self._channels(key):
                betas[pair] = received[pair[0]][first[pair[0]] : first[pair[0]] + count].astype(np.float64)
                first[pair[0]] += count
            two, four, eight = (self._rounded.record_bytes(self._rounded.widths[key], bits) for bits in CLASSES)
            problem = Problem(betas, (two, four, eight), self._links, self._trade)
            tables[key] = problem.best_uniform() if self._uniform else problem.solve()
        return tables

    def _channels(self, key: str) -> list[tuple[Pair, int]]:
        """List the pairs of ranks that exchange rows: ((sender, receiver), number of rows), sorted by sender."""
        counts = self._counts.T if is_backward(key) else self._counts
        return [((int(i), int(j)), int(counts[i, j])) for i, j in np.argwhere(counts)]

    def _scatter(self) -> Tables:
        """Send from rank 0 to every rank the widths of the messages that it sends and receives."""
        comm, tables, first = self._comm, Tables(), 0
        parts = [_packed(self._of_rank(r)) if comm.rank == 0 else _NOTHING for r in range(comm.size)]
        widths = _unpacked(comm.alltoall(parts, "control")[0])
        for key in self._keys:
            tables[key] = {}
            for pair, count in self._channels(key):
                if comm.rank in pair:
                    tables[key][pair], first = widths[first : first + count], first + count
        return tables

    def _of_rank(self, rank: int) -> np.ndarray:
        """Return the widths of the messages that a rank sends and receives, in the order of `_channels`."""
        return np.concatenate([_NOTHING, *[self._now[key][pair] for key in self._keys for pair, _ in self._channels(key) if rank in pair]])

    def _install(self, tables: Tables) -> None:
        """Use these widths for messages from now on."""
        for key, widths in tables.items():
            for (i, j), bits in widths.items():
                if i == self._comm.rank:
                    self._rounded.sent[key, j] = bits
                if j == self._comm.rank:
                    self._rounded.received[key, i] = bits

    def _nested(self, prefix: str, tensors: dict[str, torch.Tensor]) -> Tables:
        """Return the tables that `_flat` flattened."""
        tables = Tables()
        for name, tensor in tensors.items():
            kind, _, key = name.partition(".")
            if kind == prefix:
                channels = self._channels(key)
                parts = np.split(tensor.numpy().copy(), np.cumsum([count for _, count in channels])[:-1])
                tables[key] = {pair: part for (pair, _), part in zip(channels, parts, strict=True)}
        return tables


def coefficients(rows: HaloRows, normalised: bool, weights: str, comm: Comm) -> Weights:
    """Return a_u of the rows that this rank sends to each peer, forward and backward; collective.

    The receiver knows its entries P_vu and sends a_u to the owner of u once: 8 bytes for each halo row (kind "topology").
    Layers of attention and pooling are treated as means.
    """
    block, halo, m = rows.structure, rows.halo, rows.rows
    counts, degrees = np.diff(block.indptr), rows.degrees.cpu().numpy().astype(np.float64)
    entry = 1.0 / np.repeat(counts, counts) if block.weights is None else block.weights.astype(np.float64)
    if normalised:
        entry = entry * np.repeat(degrees[:m] / np.sqrt(degrees[:m] + 1), counts)
    away, power = block.indices >= m, 2 if weights == "sum_of_squares" else 1
    sums = np.bincount(block.indices[away] - m, entry[away] ** power, minlength=len(halo.vertices)) ** (2 / power)
    backward, ends = 1 / (degrees[m:] + 1) if normalised else np.ones(len(halo.vertices)), np.cumsum(halo.counts)[:-1]
    return comm.alltoall(np.split(sums, ends), "topology"), np.split(backward, ends)


def _packed(bits: np.ndarray) -> np.ndarray:
    """Pack m widths, each as its 2-bit index in `CLASSES`, four to a byte: uint8, shape (ceil(m / 4),)."""
    classes = np.zeros(-(-len(bits) // 4) * 4, np.uint8)
    classes[: len(bits)] = np.searchsorted(CLASSES, bits)
    packed: np.ndarray = np.bitwise_or.reduce(classes.reshape(-1, 4) << np.arange(0, 8, 2, dtype=np.uint8), axis=1)
    return packed


def _unpacked(packed: np.ndarray) -> np.ndarray:
    """Unpack widths packed by `_packed`; the last byte may yield up to three more, which the caller drops."""
    widths: np.ndarray = np.array(CLASSES, np.uint8)[(packed[:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & np.uint8(3)).reshape(-1)]
    return widths


def _flat(prefix: str, tables: Tables) -> dict[str, torch.Tensor]:
    """Return the widths of each layer and direction as one tensor, in the order of `_channels`."""
    return {f"{prefix}.{key}": torch.from_numpy(np.concatenate(list(widths.values()))) for key, widths in tables.items() if widths}

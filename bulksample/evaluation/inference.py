"""Exact inference: compute each layer once over the whole graph, with all neighbors of every vertex.

    for l = 1 .. L:   sent = send_l(h[own])  -> to the ranks that aggregate it;   h[own] = receive_l(A[own, :], sent)

The work is L passes over the edges, where one tree of neighbors per vertex would grow exponentially with L. Every rank computes the
rows of its own `InferenceShare`, gathered where they fit into memory, else streamed: then a rank keeps the rows of its share alone, of
those that are needed, and fetches those of others chunk by chunk.

    R_L = the rows to compute;  R_(l-1) = R_l and the neighbors of R_l
    for l = 1 .. L:   sent = send_l(h[own rows of R_(l-1)]);   for each chunk of own rows of R_l:   h = receive_l(A[chunk, :], fetch(sent))

Shards of hidden rows that are streamed lie in memory if they fit the budget, else in unnamed files in the folder for temporary files.
`distributed.matrix.inference_memory` states the bytes.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import numpy as np
import torch

from ..distributed.comm.agree import together
from ..distributed.comm.base import Comm
from ..distributed.matrix.feature_exchange import RowExchange
from ..distributed.matrix.inference_memory import chunk_room, entries_of_chunk, gathered_bytes
from ..errors import UsageError
from ..free_memory import free_memory
from ..nn.layers import Input, Layer
from ..nn.model import Gnn, evaluation_mode
from ..sparse import row_pointers
from ..views.inference_share import InferenceShare, edge_steps

_ENTRIES = 2**20  # looked at together for the rows that are needed


def infer(model: Gnn, share: InferenceShare) -> torch.Tensor:
    """Compute the logits of the rows of a share from all their neighbors: shape (rows, classes); collective."""
    return infer_with_hidden(model, share)[1]


@torch.no_grad()
def infer_with_hidden(model: Gnn, share: InferenceShare) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Compute the rows that enter the last layer, shape (rows, hidden), and the logits; a model of one layer has no such rows."""
    below: torch.Tensor | None = None
    hidden: torch.Tensor | None = None  # the share's rows of the layer below; None stands for the features
    with evaluation_mode(model):
        for i, module in enumerate(model.layers):
            layer = cast(Layer, module)
            transforms = layer.transforms_first(hidden is None and share.sparse, share.n, share.n, share.edges)
            raw = hidden is None and not transforms
            neighborhood = share.distribute_features(layer) if raw else share.distribute(share.sent(layer, hidden, transforms))
            received = [torch.empty(0, layer.width_out, device=share.degrees.device)]
            for a, b in share.steps(max(layer.width_out, layer.width_in if raw else 0)):
                block, sent, inside = neighborhood(a, b)
                if a < b:
                    received.append(layer.receive(block, sent, share.inputs(hidden, a, b), inside, share.degrees[a:b], transforms))
            below, hidden = hidden, model.between(i, torch.cat(received), reuse=True)
    assert hidden is not None
    return below, hidden


def exact_rows(
    model: Gnn, share: InferenceShare, memory: int | None = None, wanted: np.ndarray | None = None
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """Compute the rows that enter the last layer, and the logits, by exact inference; collective among the ranks of the share.

    Parameters
    ----------
    memory : int, optional
        Bytes of this rank for it; by default a quarter of the free memory, divided by the ranks of this machine. Ranks stream if one of
        them could not hold what gathering needs.
    wanted : bool, shape (rows,), optional
        The rows whose logits are wanted, by default all. Streaming computes these alone, and the rows below that they need.
    """
    memory = fair_memory(share.comm) if memory is None else memory
    needed = gathered_bytes(model.widths, share.n * share.gathered, share.rows, share.holds_features)
    if not any(share.comm.gather_control(needed > memory)):
        share.streamed = False
        return infer_with_hidden(model, share)
    share.streamed = True
    rows = None if wanted is None else needed_rows(share, wanted, len(model.layers))
    hidden, logits = infer_streamed(model, share, memory, rows)
    return None if hidden is None else torch.from_numpy(hidden), torch.from_numpy(logits)


def fair_memory(comm: Comm) -> int:
    """Return a quarter of the free memory of this machine, divided by the ranks on it; collective."""
    here = comm.machine_of == comm.machine_of[comm.rank]
    return free_memory() // (4 * int(here.sum()))


def gathered_rows(rows: np.ndarray, comm: Comm) -> np.ndarray:
    """Return the rows of all ranks in the order of ranks; collective."""
    counts = comm.allgather(np.array([len(rows)]), "control")[:, 0]
    return comm.allgather_rows(rows, counts, "activations")


def new_rows(comm: Comm, rows: int, on_disk: bool, width: int) -> np.ndarray:
    """Return zeros for a rank's own rows, float32, shape (rows, width), in memory or in a file that vanishes with them; collective.

    Raises `UsageError` on every rank if the disk of one is full.
    """

    def of_rank() -> np.ndarray:
        size = 4 * rows * width
        if not on_disk or not size:
            return np.zeros((rows, width), np.float32)
        with tempfile.TemporaryFile(prefix="bulksample-") as file:
            try:
                # bytes are allocated where the system can: writing to a map of a sparse file ends the process if the disk is full
                if hasattr(os, "posix_fallocate"):
                    os.posix_fallocate(file.fileno(), 0, size)
                else:
                    os.ftruncate(file.fileno(), size)
            except OSError as error:
                folder = tempfile.gettempdir()
                left = f"{folder} has {shutil.disk_usage(folder).free} left ({error.strerror})"
                raise UsageError(f"hidden rows take {size} bytes on disk, and {left}; set TMPDIR to a folder on a larger disk") from None
            return np.memmap(file, np.float32, "r+", shape=(rows, width))

    return together(comm, of_rank)


@torch.no_grad()
def infer_streamed(
    model: Gnn, share: InferenceShare, memory: int, needed: list[np.ndarray] | None = None
) -> tuple[np.ndarray | None, np.ndarray]:
    """Compute the rows that enter the last layer, and the logits, as `infer_with_hidden` does; both may lie in files. Collective.

    `memory` is the bytes for hidden rows and chunks, the same on every rank; `needed` are those of `needed_rows`, by default all, and other
    rows are zero. For each layer and chunk, a rank requests the distinct rows of others that its chunk aggregates (kind "topology" for ids,
    "activations" for rows). A layer that aggregates features held by every rank sends nothing.
    """
    widths = list(model.widths)
    room, on_disk = chunk_room(widths, share.rows, share.holds_features, memory)
    entries = entries_of_chunk(widths, room, share.edges / max(1, share.n))
    empty = partial(new_rows, share.comm, share.rows, on_disk)
    rows = needed or [np.arange(share.rows)] * (len(model.layers) + 1)
    below: np.ndarray | None = None
    hidden: np.ndarray | None = None
    with evaluation_mode(model):
        for i, module in enumerate(model.layers):
            step = _LayerStep(cast(Layer, module), share, hidden, entries)
            sent, out = step.sent(rows[i], empty), empty(model.widths[i + 1])
            for chunk, made in step.chunks(rows[i + 1], sent):
                out[chunk] = model.between(i, made, reuse=True).cpu().numpy()
            below, hidden = hidden, out
    assert hidden is not None
    return below, hidden


class _LayerStep:
    """One layer over the rows of a share, whose rows of the layer below are `hidden`; None stands for the features."""

    def __init__(self, layer: Layer, share: InferenceShare, hidden: np.ndarray | None, entries: int) -> None:
        self.layer, self.share, self.hidden, self.entries = layer, share, hidden, entries
        self.transforms = layer.transforms_first(hidden is None and share.sparse, share.n, share.n, share.edges)
        self.local = hidden is None and share.holds_features and not self.transforms

    def sent(self, rows: np.ndarray, empty: Callable[[int], np.ndarray]) -> np.ndarray | None:
        """Compute what some own rows send: float32, shape (share.rows, width), zero for other rows; None if nothing needs to be sent."""
        if self.local:
            return None
        length, out = max(1, self.entries // (self.layer.width_in + self.layer.width_out)), None
        for first in range(0, max(1, self.share.rows), length):
            chunk = _within(rows, first, first + length)
            made = self.layer.send(self._inputs(chunk), self._degrees(chunk), self.transforms).cpu().numpy()
            out = empty(made.shape[1]) if out is None else out
            out[chunk] = made
        return out

    def chunks(self, rows: np.ndarray, sent: np.ndarray | None) -> Iterator[tuple[np.ndarray, torch.Tensor]]:
        """Yield chunks of own rows, and what the layer makes of them; collective if rows were sent."""
        share = self.share
        if sent is None:
            neighborhood = share.distribute_features(self.layer)
            for a, b in edge_steps(share.indptr, self.entries):
                if len(chunk := _within(rows, a, b)):
                    block, features, inside = neighborhood(a, b)
                    made = self.layer.receive(block, features, share.features(a, b), inside, share.degrees[a:b], self.transforms)
                    yield chunk, made[torch.from_numpy(chunk - a).to(made.device)]
            return
        comm, bounds = share.in_order
        exchange = RowExchange(comm, bounds, sent, kind="activations")
        cut = self._cut(rows)
        for chunk in cut + [rows[:0]] * (max(comm.gather_control(len(cut))) - len(cut)):
            block, places = share.block_of(chunk)
            fetched = share.put(torch.from_numpy(exchange.fetch(places)))
            if len(chunk):
                inside = slice(0, len(chunk))
                yield chunk, self.layer.receive(block, fetched, self._inputs(chunk), inside, self._degrees(chunk), self.transforms)

    def _cut(self, rows: np.ndarray) -> list[np.ndarray]:
        """Cut rows into chunks of about `entries` entries. Features are read between the first and the last row of a chunk."""
        if self.hidden is None:
            return [chunk for a, b in edge_steps(self.share.indptr, self.entries) if len(chunk := _within(rows, a, b))]
        ends = row_pointers(np.diff(self.share.indptr)[rows])
        return [rows[a:b] for a, b in edge_steps(ends, self.entries)]

    def _degrees(self, rows: np.ndarray) -> torch.Tensor:
        return self.share.degrees[torch.from_numpy(rows).to(self.share.degrees.device)]

    def _inputs(self, rows: np.ndarray) -> Input:
        """Return rows of the layer below. Sparse features are needed all; see `needed_rows`."""
        if self.hidden is not None:
            return self.share.put(torch.from_numpy(self.hidden[rows]))
        a, b = (int(rows[0]), int(rows[-1]) + 1) if len(rows) else (0, 0)
        x = self.share.features(a, b)
        return x[torch.from_numpy(rows - a).to(x.device)] if isinstance(x, torch.Tensor) else x


def _within(rows: np.ndarray, a: int, b: int) -> np.ndarray:
    """Return the ascending rows from a to b - 1."""
    first, last = np.searchsorted(rows, [a, b])
    return rows[first:last]


def needed_rows(share: InferenceShare, wanted: np.ndarray, layers: int) -> list[np.ndarray]:
    """Return the own rows that each layer must know, R_0 .. R_L, to compute those `wanted`: ascending; collective.

    For each layer a rank sends every other one a bit for each vertex (kind "topology").
    """
    (comm, bounds), needed = share.in_order, [np.flatnonzero(wanted)]
    first, last = bounds[comm.rank], bounds[comm.rank + 1]
    for _ in range(layers):
        seen = np.zeros(share.n, bool)
        seen[first + needed[0]] = True
        ends = row_pointers(np.diff(share.indptr)[needed[0]])
        for a, b in edge_steps(ends, _ENTRIES):
            seen[share.block_of(needed[0][a:b])[1]] = True
        everyone = comm.allgather(np.packbits(seen), "topology")
        marked = np.unpackbits(np.bitwise_or.reduce(everyone, axis=0), count=share.n)
        needed.insert(0, np.flatnonzero(marked[first:last]))
    if share.sparse:
        needed[:2] = [np.arange(share.rows)] * 2
    return needed

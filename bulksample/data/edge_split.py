"""Hold out edges of a graph for link prediction, and keep them in a file of the store.

A split holds out edges, not vertices. The store for training lacks the edges of ``val`` and ``test``, in both directions if the
graph is undirected. Its file `links.npz` lists these edges, each with the negatives it is ranked among. Random numbers depend on the
seed and on the edge, so a split is the same on every machine.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import DataError, UsageError
from ..graph import Graph
from ..rng import Substream
from ..sparse import CSR
from .link_shares import check_room, check_shares, share_of
from .parts_manifest import graph_manifest
from .random_words import Words, scaled
from .sealed import read_sealed, save_sealed

FILE = "links.npz"
_ATTEMPTS = 40  # draws of a negative that may meet a neighbor; after that all valid vertices are listed
HELD_OUT = ("val", "test")
_TOGETHER = "write both with `bulksample data split-edges`"


@dataclass(frozen=True, eq=False)
class HeldOutEdges:
    """Held-out edges of a graph of n vertices.

    Parameters
    ----------
    n : int
    pairs : dict of int32 arrays of shape (e, 2)
        Source and destination of each held-out edge, for val and test.
    negatives : dict of int32 arrays of shape (e, K)
        Destinations to which the source of a pair has no edge in the whole graph.

    Raises
    ------
    DataError
        If shapes disagree, or a vertex is out of range.
    """

    n: int
    pairs: dict[str, np.ndarray]
    negatives: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        for split in HELD_OUT:
            pairs, negatives = self.pairs[split], self.negatives[split]
            if pairs.shape != (len(pairs), 2) or negatives.ndim != 2 or len(negatives) != len(pairs):
                raise DataError(
                    f"{split}: got pairs of shape {pairs.shape} and negatives of shape {negatives.shape}; use (e, 2) and (e, K)"
                )
            for what, ends in (("pairs", pairs), ("negatives", negatives)):
                if ends.dtype.kind not in "iu" or (ends.size and not 0 <= ends.min() <= ends.max() < self.n):
                    raise DataError(f"{split}: {what} must name vertices from 0 to {self.n - 1}")

    def check_absent(self, a: CSR) -> None:
        """Raise `DataError` if a graph has another number of vertices, or some of the held-out edges, which its adjacency lacks."""
        if a.shape[0] != self.n:
            raise DataError(f"{FILE}: its edges are of a graph of {self.n} vertices; the store has {a.shape[0]}: {_TOGETHER}")
        for split in HELD_OUT:
            source, destination = self.pairs[split].astype(np.int64).T
            if count := int(joined(a, source, destination).sum()):
                found = f"{count} of the {len(source)} held-out edges of {split} are edges of the graph"
                raise DataError(f"{FILE}: {found}, so the file is that of another store; {_TOGETHER}")

    def save(self, folder: str | os.PathLike[str], store: str = "") -> None:
        """Write `links.npz` into the folder of a store with this digest. Raises `UsageError` if it cannot be written."""
        arrays = {f"{split}_pairs": self.pairs[split].astype("<i4") for split in HELD_OUT}
        arrays |= {f"{split}_negatives": self.negatives[split].astype("<i4") for split in HELD_OUT}
        save_sealed(Path(folder) / FILE, {"n": np.array(self.n, "<i8"), **arrays}, store)

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> HeldOutEdges:
        """Read the file that `save` wrote; nothing is unpickled.

        Raises
        ------
        UsageError
            If the store has no held-out edges.
        DataError
            If the file is damaged, was changed, or belongs to another store.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise UsageError(f"{folder} has no held-out edges; use a store that `bulksample data split-edges` wrote")
        kinds = ("pairs", "negatives")
        names = ["n", *(f"{split}_{kind}" for split in HELD_OUT for kind in kinds)]
        found = read_sealed(path, names, "bulksample data split-edges", lambda: graph_manifest(Path(folder)).digest)
        n, (pairs, negatives) = found["n"], ({split: found[f"{split}_{kind}"] for split in HELD_OUT} for kind in kinds)
        if n.shape != () or n.dtype.kind != "i":
            raise DataError(f"{FILE}: n must be one number; found {n.dtype} of shape {n.shape}")
        try:
            return HeldOutEdges(int(n), pairs, negatives)
        except DataError as error:
            raise DataError(f"{FILE}: {error}") from error


def split_edges(
    graph: Graph, val: float, test: float, negatives: int, seed: int, both: bool = False
) -> tuple[Graph, HeldOutEdges]:  # fmt: skip
    """Hold out a share of the edges for validation, and another for the test.

    Parameters
    ----------
    val, test : float
        Shares of the edges. In an undirected graph, both directions count as one edge. Self loops are never held out.
    negatives : int
        K, the negatives of each held-out edge.
    both : bool
        Take the reverse of a held-out edge out of the graph as well, where a directed graph has it; it is then
        in no split, unless it is held out itself. By default it stays, and gives the held-out edge away: see `reverses_left`.

    Returns
    -------
    The graph without the held-out edges, and these edges; an undirected edge is listed in a random direction.

    Raises
    ------
    UsageError
        If the shares hold nothing out or leave no edge for training, a positive share gives none, K is no whole number from 1, the
        negatives do not fit into free memory, or the source of a held-out edge has an edge to every vertex.
    """
    check_shares(val, test, negatives)
    a, words = graph.adjacency, Words(seed)
    destination, source = a.row_of_entry(), a.indices.astype(np.int64)
    undirected = _same_pattern(a)
    entries = np.flatnonzero(source < destination if undirected else source != destination)
    shuffled = entries[words.permutation(Substream.HELD_OUT_EDGE, len(entries))]
    counts = [round(val * len(entries)), round(test * len(entries))]
    for split, share, count in zip(HELD_OUT, (val, test), counts, strict=True):
        if share and not count:
            least = share_of(1, len(entries)) if len(entries) else 0
            raise UsageError(f"{split}: a share of {share:g} gives none of {len(entries)} edges; use {least} or more, or 0")
    if sum(counts) >= len(entries):
        raise UsageError(f"{len(entries)} edges leave none for training with shares {val} and {test}; use lower ones")
    check_room(negatives, sum(counts))
    held = dict(zip(HELD_OUT, (np.sort(shuffled[: counts[0]]), np.sort(shuffled[counts[0] : sum(counts)])), strict=True))
    pairs = {split: np.stack([source[own], destination[own]], axis=1).astype(np.int32) for split, own in held.items()}
    gone = np.zeros(a.nnz, bool)
    for first, (split, own) in zip((0, counts[0]), held.items(), strict=True):
        gone[own] = True
        if undirected or both:
            gone |= joined(a, destination[own], source[own], entries=True)
        if undirected:
            turned = words.of(Substream.HELD_OUT_DIRECTION, first, len(own))[:, 0] % np.uint32(2) == 1
            pairs[split][turned] = pairs[split][turned][:, ::-1]
    if gone[entries].all():
        raise UsageError(f"{len(entries)} edges leave none for training without the reverses of {sum(counts)}; use lower shares")
    drawn = {}
    for first, split in zip((0, counts[0]), HELD_OUT, strict=True):
        drawn[split] = _negatives(a, pairs[split][:, 0], negatives, words, first * negatives)
    kept = None if graph.edge_features is None else graph.edge_features[~gone]
    return graph.replace(adjacency=a.keep(~gone), edge_features=kept), HeldOutEdges(graph.n, pairs, drawn)


def reverses_left(graph: Graph, held: HeldOutEdges) -> dict[str, float]:
    """Return the share of the held-out edges of each split whose reverse is an edge of the graph; a split without edges has 0."""
    found = {split: joined(graph.adjacency, *held.pairs[split].astype(np.int64).T[::-1]) for split in HELD_OUT}
    return {split: float(there.mean()) if len(there) else 0.0 for split, there in found.items()}


def joined(a: CSR, sources: np.ndarray, destinations: np.ndarray, entries: bool = False) -> np.ndarray:
    """Return True for each pair that is an edge of A; or with `entries`, True for each entry of A that is one of the pairs."""
    keys = a.row_of_entry() * a.shape[1] + a.indices  # ascending, as A is canonical
    wanted = destinations.astype(np.int64) * a.shape[1] + sources
    at = np.searchsorted(keys, wanted)
    found: np.ndarray = at < len(keys)
    found[found] = keys[at[found]] == wanted[found]
    if not entries:
        return found
    marked = np.zeros(len(keys), bool)
    marked[at[found]] = True
    return marked


def _same_pattern(a: CSR) -> bool:
    """Return True if every edge exists in both directions."""
    turned = a.transpose()
    return bool(np.array_equal(turned.indptr, a.indptr) and np.array_equal(turned.indices, a.indices))


def _negatives(a: CSR, sources: np.ndarray, count: int, words: Words, first: int) -> np.ndarray:
    """Draw uniformly among the vertices that a source has no edge to, except itself: int32, shape (len(sources), count)."""
    n = a.shape[0]
    source = np.repeat(sources.astype(np.int64), count)
    drawn, open_ = np.full(len(source), -1, np.int64), np.arange(len(source))
    for attempt in range(_ATTEMPTS):
        if not len(open_):
            break
        bits = words.of(Substream.HELD_OUT_NEGATIVE, first, len(source), attempt)[open_, 0]
        found = scaled(bits, 32, n)
        fits = ~joined(a, source[open_], found) & (found != source[open_])
        drawn[open_[fits]] = found[fits]
        open_ = open_[~fits]
    targets = a.transpose() if len(open_) else a
    for at in open_:
        u = int(source[at])
        fit = np.setdiff1d(np.arange(n), np.append(targets.indices[targets.indptr[u] : targets.indptr[u + 1]], u))
        if not len(fit):
            raise UsageError(f"vertex {u} has an edge to every other vertex, so it has no negative; use a sparser graph")
        bits = words.of(Substream.HELD_OUT_NEGATIVE, first + int(at), 1, _ATTEMPTS)[0, :1]
        drawn[at] = fit[scaled(bits, 32, len(fit))[0]]
    return drawn.reshape(len(sources), count).astype(np.int32)

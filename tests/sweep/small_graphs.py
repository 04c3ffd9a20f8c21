"""Small graphs to store and damage, and a digest of what training and sampling read of them."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from communities import community_graph

from bulksample import CSR, LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.data import store
from bulksample.graph import Graph

KINDS = {"dense": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True, "half": True}}


def graph(kind: str, n: int = 120) -> Graph:
    """Return a small graph with communities."""
    return community_graph(n=n, **KINDS[kind])


def digest_of(stored: Graph) -> str:
    """Return a SHA-256 over every array that training reads, and over mini-batches that are sampled from the graph."""
    total = hashlib.sha256()
    matrices = {"adjacency": stored.adjacency}
    arrays = {"labels": stored.labels, **stored.masks, **stored.extra}
    if isinstance(stored.features, CSR):
        matrices["features"] = stored.features
    else:
        arrays["features"] = stored.features
    arrays |= {f"{name}.{part}": getattr(matrix, part) for name, matrix in matrices.items() for part in ("indptr", "indices", "values")}
    for name, array in sorted(arrays.items()):
        if array is not None:
            total.update(f"{name} {array.dtype.str} {array.shape}".encode() + np.ascontiguousarray(array).tobytes())
    total.update(f"{stored.weight_unit}".encode())
    for minibatch in _sampled(stored):
        total.update(minibatch.digest().encode())
    return total.hexdigest()


def _sampled(stored: Graph):
    """Sample a bulk of four mini-batches."""
    adjacency = LocalAdjacency(stored.adjacency, backends.make("native", threads=1))
    seeds = np.flatnonzero(stored.masks.get("train", np.ones(stored.n, bool)))[:32]
    sampler = samplers.make("sage", (3, 3), weighted=stored.adjacency.values is not None)
    return sampler.sample_bulk(adjacency, Selection.of(np.array_split(seeds, 4), stored.n), Stream(1))


def stored_digest(folder: Path) -> str:
    """Return the digest of a store as training reads it."""
    return digest_of(store.load(folder))

"""Open the graph of a run, given in memory or as the directory of a store."""

from __future__ import annotations

import os

from ..data import store
from ..data.files import folder_of
from ..data.manifest import load_manifest
from ..distributed.comm.agree import agree, fingerprint
from ..distributed.comm.base import Comm
from ..distributed.matrix.verify import verify_together
from ..graph import Graph

Source = Graph | str | os.PathLike[str]


def sizes_of(source: Source) -> dict[str, str | int]:
    """Return the name of a graph, its vertices and its edges, from memory or from the manifest of a store."""
    if isinstance(source, Graph):
        return {"name": source.name, "vertices": source.n, "edges": source.adjacency.nnz}
    manifest = load_manifest(folder_of(source, "a store"))
    return {"name": manifest.name, "vertices": manifest.vertices, "edges": manifest.edges}


def shared_fingerprint(source: Source, comm: Comm) -> str:
    """Return the fingerprint of the graph; collective. Raises `UsageError` on every rank if the ranks were given different graphs."""
    own = fingerprint(source) if isinstance(source, Graph) else load_manifest(folder_of(source, "a store")).digest[:16]
    agree(comm, {"graph": own})
    return own


def verify(source: Source, comm: Comm, check: str) -> None:
    """Compare a store with its hashes, see `verify_together`; collective. A graph in memory has none."""
    if not isinstance(source, Graph):
        verify_together(source, comm, check)


def load_graph(source: Source, label: str | None, check: str = "none") -> Graph:
    """Return the whole graph, with another column as its label if one is named; a run has called `verify` before."""
    graph = source if isinstance(source, Graph) else store.load(source, check=check)
    return graph.with_label(label) if label else graph

"""Open the heterogeneous graph of a run, and choose the type to predict."""

from __future__ import annotations

import hashlib
import os

import numpy as np

from ..config.train import TrainOptions
from ..data.open_store import is_heterogeneous
from ..data.relational import hetero_store
from ..data.relational.held_out_links import load_links
from ..distributed.comm.agree import together
from ..distributed.comm.base import Comm
from ..distributed.matrix.verify import verify_together
from ..errors import UsageError
from ..graph import Graph
from ..relations.adjacency import fingerprint_of
from ..relations.graph import HeteroGraph, VertexType
from ..sparse import CSR, spaced
from ..vertex_table import fits_label

AnySource = Graph | HeteroGraph | str | os.PathLike[str]


def held(source: AnySource, config: TrainOptions, comm: Comm) -> AnySource:
    """Return the source of a run: a heterogeneous graph opened, after ranks have hashed its store together; others as they are. Collective.

    For link prediction the graph is a `LinkGraph`, with the held-out edges of its store.

    The columns of a graph in memory are checked, and the adjacency before kernels read it.

    Raises
    ------
    UsageError
        On every rank, if the model does not suit the graph, or the store has no held-out edges to predict.
    DataError
        On every rank, if features, labels, masks or other columns of a graph in memory are malformed.
    """

    def known() -> bool:
        """Return True if the source is a store of a heterogeneous graph; check a graph in memory."""
        if isinstance(source, Graph | HeteroGraph):
            config.check_graph(source.name, isinstance(source, HeteroGraph))
            if isinstance(source, HeteroGraph):
                source.check_structure()
            else:
                source.check_rows()
            source.check_columns(mapped=False)
            return False
        heterogeneous = is_heterogeneous(source)
        config.check_graph(str(source), heterogeneous)
        return heterogeneous

    def opened() -> HeteroGraph:
        assert not isinstance(source, Graph | HeteroGraph)
        divided = (config.topology or config.graph) == "partitioned"  # each rank then checks the rows that it reads
        graph = hetero_store.load(source, check="none", structure=not divided)
        checked = graph.validate() if config.check == "full" and not divided else graph
        return load_links(checked, source, absent=not divided) if config.task == "links" else checked

    if not together(comm, known):
        return source
    assert not isinstance(source, Graph | HeteroGraph)
    verify_together(source, comm, config.check)
    return together(comm, opened)


def relational_fingerprint(graph: HeteroGraph) -> str:
    """Return 16 hex digits that identify a graph: a SHA-256 of its schema, and of parts of every array that training reads."""
    sha = hashlib.sha256(fingerprint_of(graph).encode())
    for kind in graph.types:
        x = kind.features
        if isinstance(x, CSR):
            sha.update(f"{kind.name} {x.fingerprint}".encode())
        columns = {"features": None if isinstance(x, CSR) else x, "labels": kind.labels, **kind.masks, **kind.extra}
        for name, column in columns.items():
            if column is not None:
                sha.update(f"{kind.name} {name} {column.dtype.str} {column.shape} {kind.num_classes}".encode() + spaced(np.asarray(column)))
    return sha.hexdigest()[:16]


def target_of_run(graph: HeteroGraph, name: str | None, label: str | None) -> VertexType:
    """Return the type to predict: the named one, or the only one with the label.

    Raises
    ------
    UsageError
        If there is no such type, or it has no such label; if none is named, and none or several have the label.
    """
    fit, what = [kind for kind in graph.types if _has_label(kind, label)], "labels" if label is None else f"a column {label!r} of numbers"
    if name is not None:
        kind = graph.type(name)
        if kind not in fit:
            raise UsageError(f"target_type: type {name!r} has no {what}; use {', '.join(one.name for one in fit) or 'a graph with some'}")
        return kind
    if len(fit) != 1:
        if not fit:
            raise UsageError(
                f"no type of graph {graph.name!r} has {what}; use a graph with some, or task links on a store that holds out edges"
            )
        found = ", ".join(kind.name for kind in fit)
        raise UsageError(f"target_type: {found} of graph {graph.name!r} have {what}; name one of them")
    return fit[0]


def _has_label(kind: VertexType, label: str | None) -> bool:
    column = kind.labels if label is None else kind.extra.get(label)
    return column is not None and fits_label(column.dtype, column.ndim)

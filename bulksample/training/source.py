"""Open the graph of a run, given in memory or as the directory of a store: check it, identify it, and choose what to predict."""

from __future__ import annotations

import hashlib
import os
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np

from ..adjacency import fingerprint_of
from ..backends.base import Backend
from ..config import UNION
from ..config.metrics import METRICS, check_suits
from ..config.train import TrainOptions
from ..data import store
from ..data.atomic import folder_of, temporary_folder
from ..data.held_out_links import HeldOutLinks
from ..data.link_split import load_links
from ..data.parts_manifest import graph_manifest, is_parts
from ..data.store_files import open_array
from ..distributed.comm.agree import fingerprint, made_alike, together
from ..distributed.comm.base import Comm
from ..distributed.matrix.placement import Placement
from ..distributed.matrix.verify import verify_together
from ..errors import UsageError
from ..graph import Graph, VertexType
from ..graph.labels import as_labels, gap_warning, outputs_of, target_of
from ..graph.vertex_table import fits_label
from ..samplers import Sampler
from ..sparse import CSR, spaced
from ..views.seed_times import SeedTimes, seed_times
from .edge_task import EdgeTask, weighted_relations

Source = Graph | str | os.PathLike[str]


class ViewRequest(NamedTuple):
    """The graph of a run, and what a rank needs to open it as a view."""

    source: Source
    fingerprint: str
    placement: Placement
    backend: Backend
    sampler: Sampler
    comm: Comm
    gather_threads: int = 0  # threads that gather features ahead; 0: none
    virtual_ranks: int = 0  # mini-batches of a step; 0: as many as ranks
    folder: str | None = None  # of the store that the graph was given as; None for a graph in memory
    links: HeldOutLinks | None = None  # the held-out edges to predict; None for vertices and labelled edges
    edges: EdgeTask | None = None  # the labelled edges to predict; None for vertices and links

    @property
    def of_vertices(self) -> bool:
        """True if vertices are the examples, and not edges."""
        return self.links is None and self.edges is None

    @property
    def weighted(self) -> bool:
        """True if exact inference must take means by edge weight."""
        return self.sampler.estimates_weighted_means

    @property
    def shared_by(self) -> Comm | None:
        """The ranks whose machines share converted features; None if every rank has its own."""
        return None if self.placement.features == "replicated" else self.comm


def open_source(source: Source, config: TrainOptions, comm: Comm, whole: bool = False) -> Source:
    """Open the store of a graph for a model of relations, and return other sources as they are; collective.

    The ranks hash such a store together first; `opening` does so for others. For link prediction the graph is a `LinkGraph`, with the
    held-out edges of its store. The adjacency and the columns of a graph in memory are checked, and those of a store, unless ranks read and
    check their own rows; with `whole` they never do. Raises `UsageError` on every rank if the model does not suit the graph, or the store
    has no held-out edges to predict, and `DataError` if columns of a graph in memory are malformed.
    """

    def known() -> bool:
        """Return True if the source is a store to open; check a graph in memory."""
        if isinstance(source, Graph):
            config.check_graph(source.name, source.plain)
            source.check_structure()
            source.check_columns(mapped=False)
            return False
        config.check_graph(str(source), store.manifest(source).plain)
        return config.is_relational

    def opened() -> Graph:
        assert not isinstance(source, Graph)
        divided = not whole and (config.topology or config.graph) == "partitioned"  # each rank then checks the rows that it reads
        graph = store.load(source, check="none", structure=not divided)
        checked = graph.validate() if config.check == "full" and not divided else graph
        return load_links(checked, source, absent=not divided) if config.task == "links" else checked

    if not together(comm, known):
        return source
    assert not isinstance(source, Graph)
    verify_together(source, comm, config.check)
    return together(comm, opened)


def directory_of(source: Source) -> str:
    """Return the path of a store; see `readable`."""
    assert not isinstance(source, Graph)
    return str(source)


def preferred(source: Source, topologies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the topologies on which a method can train, the preferred one first: block rows of a folder of parts."""
    divided = not isinstance(source, Graph) and is_parts(source)
    return tuple(sorted(topologies, key=lambda name: name != "partitioned")) if divided else topologies


def sizes_of(source: Source) -> dict[str, str | int]:
    """Return the name of a graph, its vertices and its edges, from memory or from the manifest of a store."""
    if isinstance(source, Graph):
        return {"name": source.name, "vertices": source.n, "edges": source.num_edges}
    manifest = graph_manifest(folder_of(source, "a store"))
    return {"name": manifest.name, "vertices": manifest.vertices, "edges": manifest.edges}


def trained_vertices(config: TrainOptions, source: Source) -> int:
    """Return the number of vertices of the type to predict; raises `UsageError` if there is not exactly one."""
    if isinstance(source, Graph):
        return target_of_run(source, config.target_type, config.label).count if config.is_relational else source.n
    return graph_manifest(folder_of(source, "a store")).vertices


def shared_fingerprint(source: Source, comm: Comm) -> str:
    """Return the fingerprint of the graph; collective. Raises `UsageError` on every rank if the ranks were given different graphs."""

    def known() -> tuple[str, dict[str, Any], dict[str, Any]]:
        if isinstance(source, Graph):
            mark = fingerprint(source) if source.plain else relational_fingerprint(source)
        else:
            mark = graph_manifest(folder_of(source, "a store")).digest[:16]
        return mark, {}, {"graph": mark}

    return made_alike(comm, known)


def relational_fingerprint(graph: Graph) -> str:
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


def readable(source: Source, needs_store: bool, comm: Comm) -> tuple[Source, TemporaryDirectory[str] | None]:
    """Return the graph in a form that ranks can open, a path of a store if they need one (see `Method.needs_store`); collective.

    A graph in memory, which is the same on all ranks, is then written to the folder for temporary files once on each machine, and no bytes
    of it travel. The rank that wrote it gets an object with which the store is deleted, at the latest when the process ends in good order.
    A process that is killed, or exits at once because a peer was lost, leaves the folder behind; the next run on that machine removes it.
    Raises `UsageError` on every rank if the disk is full or cannot be written.
    """
    if not isinstance(source, Graph) or not needs_store:
        return source, None
    writer = [int((comm.machine_of == machine).argmax()) for machine in comm.machine_of][comm.rank]

    def write() -> TemporaryDirectory[str] | None:
        if writer != comm.rank:
            return None
        folder = temporary_folder("graph")
        source.save(f"{folder.name}/graph")  # with its held-out edges, if it has any
        return folder

    folder = together(comm, write)
    paths = comm.gather_control(f"{folder.name}/graph" if folder else "")
    return paths[writer], folder


def load_graph(source: Source, label: str | None = None, target: str | None = None, check: str = "none", features: bool = True) -> Graph:
    """Return the whole graph with another label column and its target, if named; without `features` those of a store are not opened."""
    graph = source if isinstance(source, Graph) else store.load(source, features, check)
    return graph.with_label(label, target)


def fitted(config: TrainOptions, source: Source, edges: EdgeTask | None = None) -> TrainOptions:
    """Return the configuration with its target and metric, by default from the labels; raises `UsageError` if they do not fit together."""
    if edges is not None:
        target = edges.table.target or "class"
    else:
        target = "links" if config.task == "links" else config.target or _target(source, config) or "class"
    metric = config.metric or METRICS[target][0]
    check_suits(metric, target)
    return config.model_copy(update={"metric": metric, "target": None if target == "links" else target})


def gaps(source: Source, config: TrainOptions, edges: EdgeTask | None = None) -> list[str]:
    """Return the warning of `gap_warning` for the classes of a run, if any; none of a folder of parts, where `partition` gave it."""
    if config.target != "class" or (edges is None and not isinstance(source, Graph) and is_parts(source)):
        return []
    if edges is not None:
        labels, classes = edges.table.labels, edges.table.num_classes
    elif isinstance(source, Graph):
        graph = _table(source, config).with_label(config.label, config.target)
        labels, classes = graph.labels, graph.num_classes
    else:
        folder = folder_of(source, "a store")
        manifest, role = graph_manifest(folder), f"extra.{config.label}" if config.label else "labels"
        labels = as_labels(open_array(folder, manifest.arrays[role]), "class", role)
        classes = outputs_of(labels) if config.label else manifest.num_classes
    warning = gap_warning(labels, classes, "vertex" if edges is None else "edge")
    return [] if warning is None else [warning]


def target_of_run(graph: Graph, name: str | None, label: str | None) -> VertexType:
    """Return the type to predict, the named one or the only one with the label; raises `UsageError` if there is not exactly one."""
    columns = [(kind, kind.labels if label is None else kind.extra.get(label)) for kind in graph.types]
    fit = [kind for kind, column in columns if column is not None and fits_label(column.dtype, column.ndim)]
    what = "labels" if label is None else f"a column {label!r} of numbers"
    if name is not None:
        kind = graph.type(name)
        if kind not in fit:
            raise UsageError(f"target_type: type {name!r} has no {what}; use {', '.join(one.name for one in fit) or 'a graph with some'}")
        return kind
    if len(fit) != 1:
        if not fit:
            fits = "use a graph with some, or task links on a store that holds out edges"
            raise UsageError(f"no type of graph {graph.name!r} has {what}; {fits}")
        names = ", ".join(kind.name for kind in fit)
        raise UsageError(f"target_type: {names} of graph {graph.name!r} have {what}; name one of them")
    return fit[0]


def _table(source: Graph, config: TrainOptions) -> Graph | VertexType:
    """Return the vertices to predict."""
    return target_of_run(source, config.target_type, config.label) if config.is_relational else source


def _target(source: Source, config: TrainOptions) -> str | None:
    """Return the target of the labels by their dtype; None if there are none."""
    label = config.label
    if isinstance(source, Graph):
        table = _table(source, config)
        column = table.extra.get(label) if label else table.labels
        return None if column is None else target_of(column.dtype, column.ndim)
    entry = graph_manifest(folder_of(source, "a store")).arrays.get(f"extra.{label}" if label else "labels")
    return None if entry is None else target_of(entry.dtype, len(entry.shape))


def seed_times_of(config: TrainOptions, graph: Graph, kind: VertexType, weighted_blocks: bool = False) -> SeedTimes | None:
    """Return the times of the seeds; `weighted_blocks` says that means are by weights that lie in block rows."""
    if weighted_blocks and config.evaluation == "exact" and (weighted := weighted_relations(graph)):
        placed = f"graph partitioned with sampler {config.sampler}: use topology replicated, or evaluate sampled"
        raise UsageError(f"exact scores by edge weight read whole relations, and {weighted[0]} has weights; got {placed}")
    times = seed_times(config, graph, kind)
    if times is not None and config.sampler in UNION:
        raise UsageError(f"sampler {config.sampler} draws from all relations at once, whatever their times; use sage, labor or full")
    if times is not None and config.eval_memory:
        raise UsageError(f"eval_memory bounds scores that are computed layer by layer, and graph {graph.name!r} has times: leave it out")
    return times

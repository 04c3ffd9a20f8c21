"""Open the graph of a run, given in memory or as the directory of a store."""

from __future__ import annotations

from typing import Any

from ..config.metrics import METRICS, check_suits
from ..config.train import TrainOptions
from ..data import store
from ..data.files import folder_of
from ..data.parts_manifest import graph_manifest, is_parts
from ..data.store_files import open_array
from ..distributed.comm.agree import fingerprint, made_alike
from ..distributed.comm.base import Comm
from ..distributed.matrix.verify import verify_together
from ..errors import UsageError
from ..graph import Graph
from ..labels import as_labels, gap_warning, outputs_of, target_of
from ..relations.graph import HeteroGraph, VertexType
from .relational_source import AnySource, relational_fingerprint, target_of_run

Source = AnySource


def preferred(source: Source, topologies: tuple[str, ...]) -> tuple[str, ...]:
    """Return the topologies on which a method can train, the preferred one first: block rows of a folder of parts."""
    divided = not isinstance(source, Graph | HeteroGraph) and is_parts(source)
    return tuple(sorted(topologies, key=lambda name: name != "partitioned")) if divided else topologies


def sizes_of(source: Source) -> dict[str, str | int]:
    """Return the name of a graph, its vertices and its edges, from memory or from the manifest of a store."""
    if isinstance(source, Graph):
        return {"name": source.name, "vertices": source.n, "edges": source.adjacency.nnz}
    if isinstance(source, HeteroGraph):
        return {"name": source.name, "vertices": source.n, "edges": sum(relation.edges for relation in source.relations)}
    manifest = graph_manifest(folder_of(source, "a store"))
    return {"name": manifest.name, "vertices": manifest.vertices, "edges": manifest.edges}


def shared_fingerprint(source: Source, comm: Comm) -> str:
    """Return the fingerprint of the graph; collective. Raises `UsageError` on every rank if the ranks were given different graphs."""

    def known() -> tuple[str, dict[str, Any], dict[str, Any]]:
        if isinstance(source, HeteroGraph):
            own = relational_fingerprint(source)
        else:
            own = fingerprint(source) if isinstance(source, Graph) else graph_manifest(folder_of(source, "a store")).digest[:16]
        return own, {}, {"graph": own}

    return made_alike(comm, known)


def verify(source: Source, comm: Comm, check: str) -> None:
    """Compare a store with its hashes, see `verify_together`; collective. `held` does so with other sources."""
    if not isinstance(source, Graph | HeteroGraph):
        verify_together(source, comm, check)


def load_graph(source: Source, label: str | None, target: str | None = None, check: str = "none", features: bool = True) -> Graph:
    """Return the whole graph. `label` names another column to use as the label, `target` its target. A run calls `verify` first.

    Without `features` those of a store are not opened.
    """
    if isinstance(source, HeteroGraph):
        raise UsageError(f"graph {source.name!r} is heterogeneous; got a step that reads a graph of one type: use bulksample.HeteroLoader")
    graph = source if isinstance(source, Graph) else store.load(source, features, check)
    return graph.with_label(label, target)


def fitted(config: TrainOptions, source: Source) -> TrainOptions:
    """Return the configuration with its target and metric filled in; those not given follow from the labels of the graph.

    Raises
    ------
    UsageError
        If the metric does not suit the target.
    """
    target = "links" if config.task == "links" else config.target or _target(source, config) or "class"
    metric = config.metric or METRICS[target][0]
    check_suits(metric, target)
    return config.model_copy(update={"metric": metric, "target": None if target == "links" else target})


def gaps(source: Source, config: TrainOptions) -> list[str]:
    """Return the warning of `gap_warning` for the classes of a run, if there is one; reads the labels of a store.

    A folder of parts gives none, because no rank reads the labels of all; `bulksample partition` gave it.
    """
    if config.target != "class" or (not isinstance(source, Graph | HeteroGraph) and is_parts(source)):
        return []
    if isinstance(source, Graph | HeteroGraph):
        graph = _table(source, config).with_label(config.label, config.target)
        labels, classes = graph.labels, graph.num_classes
    else:
        folder = folder_of(source, "a store")
        manifest, role = graph_manifest(folder), f"extra.{config.label}" if config.label else "labels"
        labels = as_labels(open_array(folder, manifest.arrays[role]), "class", role)
        classes = outputs_of(labels) if config.label else manifest.num_classes
    warning = gap_warning(labels, classes)
    return [] if warning is None else [warning]


def _table(source: Graph | HeteroGraph, config: TrainOptions) -> Graph | VertexType:
    """Return the vertices to predict."""
    return target_of_run(source, config.target_type, config.label) if isinstance(source, HeteroGraph) else source


def _target(source: Source, config: TrainOptions) -> str | None:
    """Return the target of the labels by their dtype; None if there are none."""
    label = config.label
    if isinstance(source, Graph | HeteroGraph):
        table = _table(source, config)
        column = table.extra.get(label) if label else table.labels
        return None if column is None else target_of(column.dtype, column.ndim)
    entry = graph_manifest(folder_of(source, "a store")).arrays.get(f"extra.{label}" if label else "labels")
    return None if entry is None else target_of(entry.dtype, len(entry.shape))

"""Read a graph from one `.npz` file, as `numpy.savez` writes it. The names of its arrays tell its form. The first form of a plain graph is
an adjacency in CSR, with columns of its vertices::

    indptr, indices            integers, (n + 1,) and (m,)      the adjacency, rows ascending: row i lists the sources of the edges into i
    weights, edge_attr         (m,) and (m, d)                  of the entries of the adjacency
    x                          (n, f)                           features; or x_indptr, x_indices, x_data, x_shape of sparse ones
    y, num_classes             (n,) with -1 for no label, or (n, t); and an integer
    train_mask, …              booleans, (n,)                   also val_mask and test_mask
    NAME                       (n, ...)                         any other column, such as a year

Of the vertices only the adjacency is required. In its place there may be a list of edges (`npz_edges`), a sparse matrix of scipy, or the
arrays of the GNN benchmark (`npz_matrices`). Graphs of several vertex types have a form of their own (`npz_types`).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, UsageError, named
from ..graph import EDGE, NODE, Graph, Relation
from ..sparse import CSR, fixed_point
from . import npz_edges, npz_matrices
from .columns import dense_features
from .edges import EdgeTally
from .listed_graph import check_promise, direction, listed_graph
from .npy import Archive, PickledObjects
from .npz_types import graph_of_types
from .npz_vertices import OF_VERTICES, Arrays, take, vertices

_OF_ENTRIES = ("indptr", "indices", "weights", "edge_attr")
TYPES, EDGES, BENCHMARK, SCIPY, ROWS = "several vertex types", "edge_index", "GNN benchmark", "scipy.sparse", "indptr and indices"
_READ = {  # the arrays of a form that must not be left out
    EDGES: npz_edges.NAMES, BENCHMARK: npz_matrices.BENCHMARK | OF_VERTICES, SCIPY: npz_matrices.SCIPY | OF_VERTICES,
    ROWS: {*_OF_ENTRIES, *OF_VERTICES},
}  # fmt: skip


def read(
    path: str | os.PathLike[str], target: str | None = None, *, undirected: bool = False, transpose: bool = False, self_loops: str = "keep",
    duplicates: str | None = None, tally: EdgeTally | None = None,
) -> Graph:  # fmt: skip
    """Read the graph of an `.npz` file.

    Integers may have any width if their values fit. float16 and float32 features keep their dtype, others become float32. Splits without a
    vertex are left out. Edges of a list keep their place in it as `Relation.edge_ids`, if the graph has several types, or times.

    Parameters
    ----------
    target : {"class", "multilabel", "regression"}, optional
        Of all labels; see `bulksample.graph.labels.as_labels`.
    undirected, self_loops, duplicates
        Of a plain graph; see `bulksample.data.listed_graph.listed_graph`.
    transpose : bool
        Entry (i, j) of the adjacency is the edge i -> j. By default it is j -> i, as in a Matrix Market file: row i lists the vertices that
        i aggregates from.
    tally : EdgeTally, optional
        Receives the form of the file, the number of edges, self loops and repetitions, and warnings of arrays that were left out.

    Raises
    ------
    DataError
        If an array is missing, unknown or wrong; the message names it, and the row if there is one. Pickled objects are never read.
    UsageError
        If an option does not apply to the form of the file.
    """
    path, tally = Path(path), EdgeTally() if tally is None else tally
    with Archive(path) as archive:
        form = named(path.name, lambda: _form(set(archive.names)))
        arrays = _arrays(archive, form, tally)
    if form == ROWS and {"format", "shape"} <= arrays.keys() and arrays["format"].ndim == 0:
        form = SCIPY
    tally.form = form
    rules = {"undirected": undirected, "self_loops": self_loops, "duplicates": duplicates}
    changed = [name for name, value in {**rules, "transpose": transpose}.items() if value not in (False, None, "keep")]
    refused = changed if form == TYPES else ["transpose"] if form == EDGES and transpose else []
    if refused:
        why = "its relations have sources and destinations" if form == TYPES else "row 0 of edge_index are the sources"
        raise UsageError(f"{path.name} holds {form}, and {why}: {', '.join(refused)} does not apply; leave it out")
    if form == TYPES:
        graph = named(path.name, lambda: graph_of_types(arrays, path.stem, target))
        tally.edges_read = graph.num_edges
        return graph
    if form == EDGES:
        size = os.path.getsize(path)
        graph = named(path.name, lambda: npz_edges.graph_of_edges(arrays, size, target, rules, tally))
        tally.form = "edge_index: sources, destinations"
    else:
        graph = named(path.name, lambda: _of_matrix(arrays, form, path, transpose, rules, bool(changed), target, tally))
    return named(path.name, lambda: graph.replace(name=path.stem).validate())


def _form(names: set[str]) -> str:
    """Return the form of a file by the names of its arrays; a matrix of scipy has those of `ROWS` too, or is told by its format."""
    if names & {"node_types", "edge_types"} and not names & {"indptr", "edge_index"}:
        return TYPES
    forms = {EDGES: names & {"edge_index"}, BENCHMARK: names & set(npz_matrices.ADJACENCY), ROWS: names & {"indptr", "indices", "format"}}
    found = [form for form, there in forms.items() if there]
    if len(found) > 1:
        raise DataError(f"holds the edges twice, as {' and as '.join(found)}; use one of them")
    return found[0] if found else TYPES if "num_nodes" in names else ROWS


def _arrays(archive: Archive, form: str, tally: EdgeTally) -> Arrays:
    """Return the arrays of a file. Columns of Python objects that the form does not name are left out, with a warning."""
    arrays, objects = {}, []
    for name in archive.names:
        try:
            arrays[name] = archive.read(name)
        except PickledObjects:
            if form == TYPES or name in _READ[form] or (form == ROWS and name in npz_matrices.SCIPY):
                raise
            objects.append(name)
    if objects:
        tally.warnings.append(f"{', '.join(objects)}: left out, because they hold Python objects, which only unpickling could read")
    return arrays


def _of_matrix(
    arrays: Arrays, form: str, path: Path, transpose: bool, rules: dict[str, Any], changed: bool, target: str | None, tally: EdgeTally
) -> Graph:  # fmt: skip
    """Return the graph of an adjacency; `changed` if an option asks for other edges than its entries."""
    promised = arrays.pop("num_nodes", None)
    if form == ROWS:
        columns = {name: array for name, array in arrays.items() if name not in _OF_ENTRIES}
        relation = _entries(arrays)
        if changed:
            relation = _rebuilt(relation, take(arrays, "weights", "iuf", 1, np.float64), transpose, rules, tally)
        else:
            places = np.arange(relation.adjacency.shape[0])
            tally.edges_read, tally.self_loops = relation.edges, int((relation.adjacency.find(places, places) >= 0).sum())
    else:
        if form == SCIPY:
            entries, kind = npz_matrices.of_scipy(arrays)
            columns = {name: array for name, array in arrays.items() if name not in npz_matrices.SCIPY}
            tally.form = f"{form} {kind}"
        else:
            entries, columns = npz_matrices.of_benchmark(arrays)
            tally.ignored = ", ".join(npz_matrices.left_out(arrays))
        check_promise(entries.n, os.path.getsize(path), "shape", 2**10)
        relation = _relation(entries, transpose, rules, tally)
    tally.form += f": {direction(transpose)}"
    n = relation.adjacency.shape[0]
    if promised is not None and promised.tolist() not in (n, [n]):
        raise DataError(f"num_nodes: is {promised.tolist()}, and the adjacency has {n} rows; leave it out, or use {n}")
    return Graph.of([vertices(NODE, n, columns, None, target)], [relation])


def _relation(entries: npz_matrices.Entries, transpose: bool, rules: dict[str, Any], tally: EdgeTally) -> Relation:
    """Return the relation of the entries of a matrix. One of ones has no weights, unless entries at one place add up."""
    ends = (entries.rows, entries.columns) if transpose else (entries.columns, entries.rows)
    places = entries.rows.astype(np.int64) * entries.n + entries.columns
    if bool((entries.values == 1).all()) and (rules["duplicates"] == "max" or len(np.unique(places)) == len(places)):
        return listed_graph(ends, entries.n, tally=tally, **rules).relations[0]
    return listed_graph(ends, entries.n, entries.values.astype(np.float64), tally=tally, **rules).relations[0]


def _entries(arrays: Arrays) -> Relation:
    """Return the only relation of a plain graph, whose adjacency the file holds as it is."""
    indptr = take(arrays, "indptr", "iu", 1, np.int64)
    indices = take(arrays, "indices", "iu", 1, np.int32)
    if indptr is None or indices is None:
        raise DataError(f"has no {'indptr' if indptr is None else 'indices'}; use indptr and indices for the adjacency, or edge_index")
    n, unit = len(indptr) - 1, 1.0
    adjacency = CSR(indptr, indices, None, (n, n)).validate("adjacency")
    if (weights := take(arrays, "weights", "iuf", 1, np.float64)) is not None:
        longest = max(adjacency.degrees.max(initial=0), np.bincount(indices, minlength=1).max())
        integers, unit = fixed_point(weights, int(longest))
        adjacency = adjacency.with_values(integers)
    features = dense_features("edge_attr", arrays["edge_attr"]) if "edge_attr" in arrays else None
    return Relation(NODE, EDGE, NODE, adjacency, unit, features=features, parallel=False)


def _rebuilt(relation: Relation, weights: np.ndarray | None, transpose: bool, rules: dict[str, Any], tally: EdgeTally) -> Relation:
    """Return the relation of other edges than the entries of an adjacency: turned around, mirrored, or without self loops."""
    matrix = relation.adjacency
    rows, columns = matrix.row_of_entry(), matrix.indices.astype(np.int64)
    ends = (rows, columns) if transpose else (columns, rows)
    return listed_graph(ends, matrix.shape[0], weights, None, relation.features, tally=tally, **rules).relations[0]

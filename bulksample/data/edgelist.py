"""Read edge lists in text: files of the SNAP collection, `.csv` and `.tsv` exports, plain or compressed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, UsageError, named
from ..graph import Graph
from ..sparse import MAX_VERTICES
from .compressed import plain_name
from .edge_columns import find_columns
from .edge_rows import open_edge_rows
from .edges import EdgeTally
from .listed_graph import listed_graph
from .text import TextBlock, tables

IDS = ("integer", "text")


def read(
    path: str | os.PathLike[str], *, undirected: bool = False, ids: str = "integer", vertices: int | None = None, self_loops: str = "keep",
    duplicates: str | None = None, skip: int = 0, tally: EdgeTally | None = None, edge_features: str | os.PathLike[str] | None = None,
    separator: str | None = None, header: bool | None = None, columns: str | None = None, time_unit: str = "s",
) -> Graph:  # fmt: skip
    """Read the graph of an edge list.

    Parameters
    ----------
    path : path
        A line ``u v`` or ``u v weight`` is the edge u -> v, so row v of the adjacency holds u. Lines that begin with ``#`` or ``%``
        are comments. The file is plain, or compressed by gzip, bz2 or xz.
    undirected : bool
        Add v -> u for every u -> v.
    ids : {"integer", "text"}
        Vertices are renumbered in ascending order of their ids. If that changes an id,
        ``extra["original_ids"]`` keeps the id of each vertex. Text is ordered by code points.
    vertices : int, optional
        Keep integer ids as they are, 0 .. vertices - 1, and so also vertices without an edge.
    self_loops : {"keep", "drop", "error"}
    duplicates : {"sum", "max", "error"} without times, {"keep", "error"} with times
        The weight of an edge that is listed more than once, by default "sum". Without weights, "sum" and "max" keep it once. With times
        all edges are kept. In an undirected list, u v and v u are the same edge.
    skip : int
        Lines at the top to ignore.
    tally : EdgeTally, optional
        Receives the number of edges, self loops and repetitions.
    edge_features : path of a `.npy` file, optional
        Features of the edges, shape (e, d): row i belongs to the i-th edge of the list. Rows of repeated edges are merged like weights;
        an edge v -> u that `undirected` adds has the row of u -> v.
    separator : {"blank", "tab", ",", ";", "|"}, optional
        Separator of all lines; "blank" is any number of blanks and tabs. By default that of the first line. Quotes hold a field together
        that contains the separator, except "blank".
    header : bool, optional
        True if the first line names the columns. By default it does if ids are integers and its ends are names, all different. Names such
        as source, target, weight and time then say what the columns are.
    columns : str, optional
        Uses of the columns in their order, such as "source,target,-,time", or columns by name or by number from 1, such as
        "source=user,target=item,weight=4". Columns without a use are left out.
    time_unit : str
        The unit in which dates (ISO 8601, UTC) are counted from 1970: D, h, m, s, ms, us or ns. Whole numbers stay as they are.

    Raises
    ------
    DataError
        If a line is malformed, or the use of a column is not known; the message names the line. If there is no edge and `vertices` is
        not given.
    """
    if ids not in IDS:
        raise UsageError(f"ids was {ids!r}; use {', '.join(IDS)}")
    if vertices is not None and (ids == "text" or not 0 <= vertices <= MAX_VERTICES):
        raise UsageError(f"got vertices = {vertices} with {ids} ids; use integer ids and 0 to {MAX_VERTICES} vertices")
    path, tally = Path(path), EdgeTally() if tally is None else tally
    most = None if vertices is None else vertices - 1
    found = find_columns(path, skip, ids, separator, header, columns, time_unit)
    tally.form, tally.ignored = found.form, found.left_out
    blocks = tables(path, found.skip, layout=found.layout)
    ends, weights, times = pairs_of(path, blocks, 0, most, "vertex {} is out of range")
    sources, targets = ends[::-1] if found.turned else ends
    if times is None and {"time", "date"} & set(found.layout.uses):
        times = np.empty(0, np.int64)
    if vertices is not None:
        names = np.arange(vertices)
    elif len(sources):
        names, sources, targets = _relabelled(sources, targets, path.name)
    else:  # such as a download that failed
        raise DataError(f"{path.name}: lists no edge; use vertices=N for a graph of N vertices without edges")
    changed = names.dtype.kind == "U" or (len(names) and names[-1] != len(names) - 1)
    graph = graph_of_edges(
        path, (sources, targets), len(names), weights, times, edge_features, undirected=undirected, self_loops=self_loops,
        duplicates=duplicates, ids=names, tally=tally,
    )  # fmt: skip
    name = plain_name(path).rpartition(".")[0] or plain_name(path)
    return graph.replace(extra={"original_ids": names} if changed else {}, name=name).validate()


def pairs_of(
    path: Path, tables: Iterable[TextBlock], first: int, last: int | None, fault: str
) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:  # fmt: skip
    """Return the ends of the edges in a file, shape (2, e), and their weights and times if it has any.

    Raises `DataError`, which names the line, for an id outside `first` .. `last`; `fault` says what is wrong with it.
    """
    pairs: list[np.ndarray] = []
    weights: list[np.ndarray] = []
    times: list[np.ndarray] = []
    for table in tables:
        pairs.append(table.ids)
        if last is not None and len(bad := np.argwhere((table.ids < first) | (table.ids > last))):
            wrong = fault.format(table.ids[tuple(bad[0])])
            raise DataError(f"{path.name}: line {table.lines[bad[0][0]]}: {wrong}; use {first} to {last}")
        weights += [] if table.weights is None else [table.weights]
        times += [] if table.times is None else [table.times]
    ends = (np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)).T
    return ends, np.concatenate(weights) if weights else None, np.concatenate(times) if times else None


def graph_of_edges(
    path: Path, ends: tuple[np.ndarray, np.ndarray], n: int, weights: np.ndarray | None, times: np.ndarray | None,
    edge_features: str | os.PathLike[str] | None, **options: Any,
) -> Graph:  # fmt: skip
    """Return the graph of the edges of a file, and of features of edges in another; options are those of `listed_graph`."""
    rows = None if edge_features is None else open_edge_rows(edge_features, len(ends[0]))
    return named(path.name, lambda: listed_graph(ends, n, weights, times, rows, **options))


def _relabelled(sources: np.ndarray, targets: np.ndarray, what: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the distinct ids in ascending order, and both ends of the edges as positions among them."""
    e = len(sources)
    if sources.dtype.kind == "i":
        highest = int(max(sources.max(initial=0), targets.max(initial=0)))
        if highest < max(4 * e, 2**16):  # dense ids: marking them is faster than sorting them
            seen = np.zeros(highest + 1, bool)
            seen[sources] = True
            seen[targets] = True
            place = np.cumsum(seen) - 1
            return np.flatnonzero(seen), place[sources], place[targets]
    names, place = np.unique(np.concatenate([sources, targets]), return_inverse=True)
    if names.dtype.kind == "S":
        try:
            names = np.char.decode(names, "utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{what}: the id {error.object!r} is not UTF-8") from error
    return names, place[:e], place[e:]

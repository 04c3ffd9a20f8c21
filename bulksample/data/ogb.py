"""Read OGB node property data sets from their raw files, without the `ogb` package.

The `ogb` package caches data sets as pickles that current torch refuses to load, and it may ask questions on
standard input. The raw files (`ogb_raw`) and the splits (``split/<scheme>/train.csv.gz, valid.csv.gz, test.csv.gz``)
are plain files, which this module reads directly.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DataError, UsageError, named
from ..graph import Graph
from ..graph.labels import as_labels, outputs_of
from ..sparse import CSR
from .edge_rows import EdgeMeans, EntryRows, listed_rows
from .edges import EdgeTally, adjacency
from .ogb_raw import RawFiles, read_binary, read_csv, read_masks, split_folder
from .ogb_sets import SETS

# True if `ogb` adds the reverse of each edge on loading, because the files list each undirected edge once.
_ADDS_INVERSE = {name.removeprefix("ogbn-"): one.adds_inverse for name, one in SETS.items()} | {"proteinfunc": True}
_HETEROGENEOUS_FILES = ("triplet-type-list.csv.gz", "num-node-dict.csv.gz", "edge_index_dict.npz")


def read(
    path: str | os.PathLike[str], *, undirected: bool | None = None, scheme: str | None = None, features: bool = True,
    edge_features: bool = True, vertex_means: bool = True, self_loops: str = "keep", tally: EdgeTally | None = None,
    scratch: str | os.PathLike[str] | None = None, target: str | None = None,
) -> Graph:  # fmt: skip
    """Read the graph in the root folder of a data set, which holds ``raw`` and ``split``. A missing label (NaN) stays missing.

    Parameters
    ----------
    undirected : bool, optional
        Add v -> u for every u -> v. By default as `ogb` does for the set that the folder is named after (ogbn-products and
        ogbn-proteins: yes; ogbn-arxiv and ogbn-papers100M: no); never in the binary layout.
    scheme : str, optional
        The folder in ``split``; required only if there are several.
    features : bool
        Read the features of vertices and of edges; False saves their memory.
    edge_features : bool
        Keep the features of edges, by entry of the adjacency. A mirrored edge has those of its edge; those of repeated edges add up.
    vertex_means : bool
        Of a set that has features of edges alone, such as ogbn-proteins, take their mean over the edges into each vertex as
        features of the vertices, see `EdgeMeans`.
    self_loops : {"keep", "drop", "error"}
        Repeated edges are always kept once.
    tally : EdgeTally, optional
        Receives counts of edges, the names of arrays of edges that are not kept, and the features that were made of others.
    scratch : path, optional
        Map the arrays of the binary layout from their file, or, if they are compressed, from unnamed files in this folder, and sort
        many edges there. Use it for a graph that is only saved.
    target : {"class", "multilabel", "regression"}, optional
        By default one column of labels holds classes, and several hold 0 and 1 (multilabel) or numbers (regression).

    Raises
    ------
    DataError
        If a file is missing or malformed; the message names it, and the line if there is one.
    UsageError
        If the set is unknown and `undirected` is not set.

    Notes
    -----
    In the binary layout, with `scratch`, features of vertices and the listed edges are read in pieces. An entry of the adjacency takes a
    column of 4 bytes, a key that is sorted 8 bytes, a vertex 64. The disk holds the uncompressed arrays once, and 8 bytes an entry while
    the edges are sorted.
    """
    root = Path(path)
    raw_folder = root / "raw"
    if not raw_folder.is_dir():
        raise DataError(f"{root}: has no folder raw; use the root of an OGB data set, with raw and split")
    if is_heterogeneous(root):
        raise DataError(f"{root}: holds several vertex types; use data.ogb_types.read, or `data import ogb`")
    binary, folder = (raw_folder / "data.npz").exists(), Path(scratch) if scratch else None
    if undirected is None:
        key = root.resolve().name.replace("-", "_").removeprefix("ogbn_")
        if not binary and key not in _ADDS_INVERSE:
            raise UsageError(
                f"{root.name} is none of the known sets ({', '.join(_ADDS_INVERSE)}), so its files do not say if edges have two "
                "directions; use undirected=True or undirected=False"
            )
        undirected = not binary and _ADDS_INVERSE[key]
    raw = read_binary(raw_folder, features, edge_features, folder) if binary else read_csv(raw_folder, features, edge_features)
    if tally is not None:
        tally.ignored = ", ".join(raw.ignored)
    options: dict[str, Any] = {"undirected": undirected, "self_loops": self_loops, "tally": tally, "scratch": folder}
    a, _ = named(f"{root.name}: edges", lambda: adjacency(raw.edges[0], raw.edges[1], raw.n, **options))
    labels = None
    if raw.labels is not None:
        single = raw.labels.ndim == 1 or raw.labels.shape[1] == 1
        labels = as_labels(raw.labels, target or ("class" if single else None), f"{root.name}: node-label")
    split = split_folder(root, scheme)
    masks = {} if split is None else read_masks(split, raw.n)
    x, of_edges = _features(raw, a, undirected, edge_features, vertex_means, tally)
    graph = Graph(
        a, features=x, labels=labels, edge_features=of_edges,
        num_classes=0 if labels is None else outputs_of(labels, name=f"{root.name}: node-label"),
        masks=masks, extra=dict(raw.columns), name=root.name.replace("_", "-"),
    )  # fmt: skip
    return named(root.name, graph.validate)


def is_heterogeneous(root: Path) -> bool:
    """Return True if a data set has several vertex types: it has a file that no other set has."""
    return any((root / "raw" / name).exists() for name in _HETEROGENEOUS_FILES)


def _features(
    raw: RawFiles, a: CSR, undirected: bool, edge_features: bool, vertex_means: bool, tally: EdgeTally | None
) -> tuple[np.ndarray | None, np.ndarray | None]:
    """Return the features of the vertices, or the means of those of their edges; and the features of the entries. Either may be None."""
    entries = EntryRows(a, undirected) if edge_features and raw.edge_rows is not None else None
    means = EdgeMeans(raw.n, undirected) if vertex_means and raw.edge_rows is not None and raw.features is None else None
    parts = [part for part in (entries, means) if part is not None]
    if raw.edge_rows is not None and parts:
        for u, v, rows in listed_rows(raw.edge_rows(), raw.edges[0], raw.edges[1], "edge-feat"):
            for part in parts:
                part.add(u, v, rows)
    if means is not None and tally is not None:
        tally.derived = "features: the mean of the edge features over the edges into each vertex"
    return raw.features if means is None else means.means, None if entries is None else entries.rows

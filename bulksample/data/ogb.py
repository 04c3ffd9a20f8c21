"""Read OGB node property data sets from their raw files, without the `ogb` package.

The `ogb` package caches data sets as pickles that current torch refuses to load, and it may ask questions on
standard input. The raw files (`ogb_raw`) and the splits (``split/<scheme>/train.csv.gz, valid.csv.gz, test.csv.gz``)
are plain files, which this module reads directly.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from ..errors import DataError, UsageError
from ..graph import Graph
from ..labels import as_labels, outputs_of
from .edge_means import edge_means
from .edges import EdgeTally, adjacency
from .ogb_raw import RawFiles, integer_table, read_binary, read_csv
from .ogb_sets import SETS

# True if `ogb` adds the reverse of each edge on loading, because the files list each undirected edge once.
_ADDS_INVERSE = {name.removeprefix("ogbn-"): one.adds_inverse for name, one in SETS.items()} | {"proteinfunc": True}
_HETEROGENEOUS_FILES = (
    "triplet-type-list.csv.gz",
    "num-node-dict.csv.gz",
    "edge_index_dict.npz",
)  # files that only heterogeneous graphs have
_SPLITS = {"train": "train", "val": "valid", "test": "test"}


def read(
    path: str | os.PathLike[str],
    *,
    undirected: bool | None = None,
    scheme: str | None = None,
    features: bool = True,
    self_loops: str = "keep",
    tally: EdgeTally | None = None,
    scratch: str | os.PathLike[str] | None = None,
    target: str | None = None,
) -> Graph:
    """Read the graph in the root folder of a data set, which holds ``raw`` and ``split``.

    Parameters
    ----------
    path : path
    undirected : bool, optional
        Add v -> u for every u -> v. By default as `ogb` does for the set that the folder is named after (ogbn-products and
        ogbn-proteins: yes; ogbn-arxiv and ogbn-papers100M: no); never in the binary layout.
    scheme : str, optional
        The folder in ``split``; required only if there are several.
    features : bool
        Read the features; False saves their memory. A set that has features of edges alone, such as ogbn-proteins, gets their mean
        over the edges into each vertex, see `edge_means`.
    self_loops : {"keep", "drop", "error"}
        Repeated edges are always kept once.
    tally : EdgeTally, optional
        Receives counts of edges, the names of the arrays of edges, which are not kept, and the features that were made of one.
    scratch : path, optional
        Map the arrays of the binary layout from their file, or, if they are compressed, from unnamed files in this folder. Use it
        for a graph that is only saved.
    target : {"class", "multilabel", "regression"}, optional
        By default one column of labels holds classes, and several hold 0 and 1 (multilabel) or numbers (regression).

    Returns
    -------
    Graph
        A missing label (NaN) stays missing; see `bulksample.labels`.

    Raises
    ------
    DataError
        If a file is missing or malformed; the message names it, and the line if there is one.
    UsageError
        If the set is unknown and `undirected` is not set.

    Notes
    -----
    In the binary layout, with `scratch`, memory stays below `peak_bytes`, and the disk holds the uncompressed arrays once.
    """
    root = Path(path)
    raw_folder = root / "raw"
    if not raw_folder.is_dir():
        raise DataError(f"{root}: has no folder raw; use the root of an OGB data set, with raw and split")
    if kinds := [name for name in _HETEROGENEOUS_FILES if (raw_folder / name).exists()]:
        raise DataError(f"{root}: is heterogeneous, as raw/{kinds[0]} says; use a homogeneous graph")
    binary = (raw_folder / "data.npz").exists()
    if undirected is None:
        undirected = _adds_inverse(root, binary)
    raw = read_binary(raw_folder, features, Path(scratch) if scratch else None) if binary else read_csv(raw_folder, features)
    if tally is not None:
        tally.ignored = ", ".join(raw.ignored)
    try:
        a, _ = adjacency(raw.edges[0], raw.edges[1], raw.n, undirected=undirected, self_loops=self_loops, tally=tally)
    except DataError as error:
        raise DataError(f"{root.name}: edges: {error}") from error
    labels = None
    if raw.labels is not None:
        single = raw.labels.ndim == 1 or raw.labels.shape[1] == 1
        labels = as_labels(raw.labels, target or ("class" if single else None), f"{root.name}: node-label")
    graph = Graph(
        a, features=_features(raw, features, undirected, tally), labels=labels,
        num_classes=0 if labels is None else outputs_of(labels, name=f"{root.name}: node-label"),
        masks=_masks(root, scheme, raw.n), extra=dict(raw.columns), name=root.name.replace("_", "-"),
    )  # fmt: skip
    try:
        return graph.validate()
    except DataError as error:
        raise DataError(f"{root.name}: {error}") from error


def peak_bytes(n: int, edges: int, undirected: bool) -> int:
    """Return the peak memory of `read` with `scratch` and `store.save` for a set in the binary layout, without the interpreter.

        12 k + 8 (n + 1) + 56 n + 0.3 GB        k = edges, or twice as many if `undirected`

    An entry takes a key of 8 bytes and a column of 4; a vertex takes a row pointer, labels, masks and temporaries. Features and
    the listed edges are read in pieces.
    """
    return 12 * edges * (2 if undirected else 1) + 8 * (n + 1) + 56 * n + 3 * 10**8


def _adds_inverse(root: Path, binary: bool) -> bool:
    key = root.resolve().name.replace("-", "_").removeprefix("ogbn_")
    if not binary and key not in _ADDS_INVERSE:
        raise UsageError(
            f"{root.name} is none of the known sets ({', '.join(_ADDS_INVERSE)}), so its files do not say if edges have two directions; "
            "use --undirected or --directed"
        )
    return not binary and _ADDS_INVERSE[key]


def _features(raw: RawFiles, wanted: bool, undirected: bool, tally: EdgeTally | None) -> np.ndarray | None:
    """Return the features of the vertices, or the means of those of their edges."""
    if raw.features is not None or raw.edge_rows is None or not wanted:
        return raw.features
    if tally is not None:
        tally.derived = "features: the mean of the edge features over the edges into each vertex"
    return edge_means(raw.edge_rows(), raw.edges[0], raw.edges[1], raw.n, undirected, "edge-feat")


def _masks(root: Path, scheme: str | None, n: int) -> dict[str, np.ndarray]:
    """Read the splits as masks; there are none if the set has no folder of splits."""
    folder = root / "split"
    schemes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    if scheme is None and not schemes:
        return {}
    if scheme is None and len(schemes) > 1:
        raise UsageError(f"{root.name} has several split schemes; use --scheme with one of {', '.join(schemes)}")
    chosen = folder / (scheme or schemes[0])
    if chosen.name not in schemes:
        raise UsageError(f"{root.name} has no split scheme {scheme!r}; use {', '.join(schemes) or 'none'}")
    masks = {}
    for split, name in _SPLITS.items():
        path = chosen / f"{name}.csv.gz"
        if not path.exists() and (chosen / "split_dict.pt").exists():
            raise DataError(f"{chosen.name}/split_dict.pt: is a pickle, which is never read; use {name}.csv.gz")
        members = integer_table(path, 1)[0]
        bad = np.flatnonzero(members >= n)
        if len(bad):
            raise DataError(f"{chosen.name}/{path.name}: entry {bad[0]} is {members[bad[0]]}; vertices run from 0 to {n - 1}")
        masks[split] = np.zeros(n, bool)
        masks[split][members] = True
    return masks

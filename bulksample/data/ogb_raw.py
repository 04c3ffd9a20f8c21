"""Read the raw files of an OGB node property data set, in either of its two layouts, and its splits::

edge.csv.gz, num-node-list.csv.gz, num-edge-list.csv.gz, node-feat.csv.gz, node-label.csv.gz, node_*.csv.gz
data.npz (edge_index, num_nodes_list, num_edges_list, node_feat, node_*) and node-label.npz (node_label)
split/SCHEME/{train,valid,test}.csv.gz
"""

from __future__ import annotations

import gzip
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..errors import DataError, UsageError
from ..mapped import pieces
from ..sparse import MAX_VERTICES
from .edge_rows import PIECE_ROWS
from .npy import Archive, regular_size
from .text import tables


class RawFiles(NamedTuple):
    """The contents of the raw files of one graph."""

    n: int
    edges: np.ndarray  # int64, shape (2, e): sources, targets
    features: np.ndarray | None
    labels: np.ndarray | None  # shape (n,) or (n, tasks); floats may hold NaN
    columns: dict[str, np.ndarray]  # shape (n, ...)
    ignored: tuple[str, ...]  # names of other arrays of edges, which a `Graph` does not hold
    edge_rows: Callable[[], Iterator[np.ndarray]] | None = None  # pieces of the edge features, if they are wanted


def read_csv(folder: Path, features: bool, edge_features: bool) -> RawFiles:
    """Read the ``raw/`` folder of a data set in csv.gz files, such as ogbn-arxiv; raises `DataError` naming the file.

    Features of edges are read for themselves (`edge_features`), or for the vertices of a set that has no others.
    """
    n = single_number(folder / "num-node-list.csv.gz")
    if n > MAX_VERTICES:
        raise DataError(f"num-node-list.csv.gz: {n} vertices do not fit int32; use at most {MAX_VERTICES}")
    edges = edge_table(folder)
    labels, feat, of_edges = (folder / f"{name}.csv.gz" for name in ("node-label", "node-feat", "edge-feat"))
    keeps_edges = features and edge_features
    wanted = features and of_edges.exists() and (edge_features or not feat.exists())
    return RawFiles(
        n,
        edges,
        float_table(feat, np.float32, n) if features and feat.exists() else None,
        float_table(labels, np.float64, n) if labels.exists() else None,
        column_tables(folder, n),
        tuple(path.name for path in sorted(folder.glob("edge[-_]*.csv.gz")) if not (keeps_edges and path == of_edges)),
        partial(_float_pieces, of_edges, edges.shape[1]) if wanted else None,
    )


def read_binary(folder: Path, features: bool, edge_features: bool, scratch: Path | None) -> RawFiles:
    """Read the ``raw/`` folder of a data set in npz files, such as ogbn-papers100M; raises `DataError` naming the array.

    See `read_csv`. With a folder for `scratch` the arrays of edges and vertices are mapped from files instead of held in memory.
    """
    with Archive(folder / "data.npz") as archive:
        sizes = []
        for name in ("num_nodes_list", "num_edges_list"):
            array = archive.read(name)
            if array.dtype.kind not in "iu" or array.size != 1 or not 0 <= int(array.ravel()[0]) < 2**62:
                raise DataError(f"data.npz: {name}: must be the size of one graph; it is {array.dtype} of shape {array.shape}")
            sizes.append(int(array.ravel()[0]))
        n, e = sizes
        edges = archive.read("edge_index", scratch)
        if edges.dtype.kind not in "iu" or edges.shape != (2, e):
            raise DataError(f"data.npz: edge_index: is {edges.dtype} of shape {edges.shape}; use integers of shape (2, {e})")
        columns = {}
        for name in archive.names:
            if name.startswith("node_") and (features or name != "node_feat"):
                columns[name] = archive.read(name, scratch)
                if not columns[name].ndim or len(columns[name]) != n:
                    raise DataError(f"data.npz: {name}: must have {n} rows; its shape is {columns[name].shape}")
        wanted = features and "edge_feat" in archive.names and (edge_features or "node_feat" not in archive.names)
        of_edges = archive.read("edge_feat", scratch) if wanted else None
        kept = ("edge_index", "edge_feat") if features and edge_features else ("edge_index",)
        ignored = tuple(name for name in archive.names if name.startswith("edge_") and name not in kept)
        if of_edges is not None and (of_edges.ndim != 2 or of_edges.dtype.kind not in "fiu"):
            raise DataError(f"data.npz: edge_feat: is {of_edges.dtype} of shape {of_edges.shape}; use numbers of shape ({e}, f)")
    node_feat = columns.pop("node_feat", None)
    if node_feat is not None and (node_feat.ndim != 2 or node_feat.dtype.kind not in "fiu"):
        raise DataError(f"data.npz: node_feat: is {node_feat.dtype} of shape {node_feat.shape}; use numbers of shape (n, f)")
    if node_feat is not None and node_feat.dtype not in (np.float16, np.float32):
        with np.errstate(over="ignore"):  # a number that does not fit becomes infinite, and `Graph.validate` names its row
            node_feat = node_feat.astype(np.float32)
    labels = None
    if (folder / "node-label.npz").exists():
        with Archive(folder / "node-label.npz") as archive:
            labels = archive.read("node_label")
        if labels.dtype.kind not in "fiu" or labels.ndim not in (1, 2) or len(labels) != n:
            raise DataError(f"node-label.npz: node_label: is {labels.dtype} of shape {labels.shape}; use numbers of shape ({n}, 1)")
    edge_rows = None if of_edges is None else lambda: (part for _, part in pieces(of_edges, PIECE_ROWS))
    return RawFiles(n, edges, node_feat, labels, {key: _squeezed(column) for key, column in columns.items()}, ignored, edge_rows)


def single_number(path: Path) -> int:
    """Return the only number of a list with one entry per graph."""
    numbers = integer_table(path, 1)
    if numbers.shape[1] != 1:
        raise DataError(f"{path.name}: lists {numbers.shape[1]} graphs; node property prediction has one")
    return int(numbers[0, 0])


def edge_table(folder: Path) -> np.ndarray:
    """Read the edges of a graph, and check their number: int64, shape (2, e)."""
    count, edges = single_number(folder / "num-edge-list.csv.gz"), integer_table(folder / "edge.csv.gz", 2)
    if edges.shape[1] != count:
        raise DataError(f"edge.csv.gz: has {edges.shape[1]} edges; num-edge-list.csv.gz says {count}")
    return edges


def integer_table(path: Path, columns: int) -> np.ndarray:
    """Read a table of integers >= 0, a row in every line: int64, shape (columns, rows)."""
    parts, rows = [np.empty((0, columns), np.int64)], 0
    for table in tables(path, columns=(columns,)):
        if table.first != rows + 1 or table.text.count(b"\n") != len(table.ids):
            left_out = [expected for expected, line in enumerate(table.lines, rows + 1) if line != expected]
            if left_out:
                raise DataError(f"{path.name}: line {left_out[0]} holds no number; use {columns} in every line")
        parts.append(table.ids)
        rows += len(table.ids)
    return np.concatenate(parts).T


def float_table(path: Path, dtype: type[np.floating], n: int) -> np.ndarray:
    """Read a table of n rows of real numbers, shape (n, columns); an empty field, which pandas writes for NaN, is NaN."""
    with _lines_of(path) as stream:
        table = _numbers((line if line.strip() else "nan" for line in stream), dtype)
    if len(table) != n:
        raise DataError(f"{path.name}: has {len(table)} rows; num-node-list.csv.gz says {n}")
    return table


def _float_pieces(path: Path, rows: int) -> Iterator[np.ndarray]:
    """Yield pieces of a table of real numbers: float32, shape (some, columns)."""
    with _lines_of(path) as stream:
        for first in range(0, rows, PIECE_ROWS):
            with warnings.catch_warnings(action="ignore", category=UserWarning):  # of no rows
                piece = _numbers(stream, np.float32, max_rows=min(PIECE_ROWS, rows - first))
            yield piece
        if stream.readline().strip():
            raise DataError(f"{path.name}: has more rows than num-edge-list.csv.gz says, {rows}")


@contextmanager
def _lines_of(path: Path) -> Iterator[IO[str]]:
    """Open a table of numbers; all errors of its reader are a `DataError` that names it."""
    regular_size(path, path.name)
    try:
        with gzip.open(path, "rt", encoding="ascii") as stream:
            yield stream
    except DataError:
        raise
    except (ValueError, OSError, EOFError, zlib.error, OverflowError) as error:
        raise DataError(f"{path.name}: {error}") from error


def _numbers(lines: Iterable[str], dtype: type[np.floating], max_rows: int | None = None) -> np.ndarray:
    with np.errstate(over="ignore"):
        return np.loadtxt(lines, dtype, delimiter=",", ndmin=2, comments=None, max_rows=max_rows)


def column_tables(folder: Path, n: int) -> dict[str, np.ndarray]:
    """Read the other tables of the vertices, ``node_*.csv.gz``, as integers if all entries are whole, like `ogb`."""
    columns = {}
    for path in sorted(path for path in folder.glob("node_*.csv.gz") if path.is_file()):
        table = float_table(path, np.float64, n)
        whole = np.isfinite(table).all() and (np.abs(table) < 2**53).all() and (table == np.rint(table)).all()
        columns[path.name.removesuffix(".csv.gz")] = _squeezed(table.astype(np.int64) if whole else table.astype(np.float32))
    return columns


def _squeezed(column: np.ndarray) -> np.ndarray:
    return column[:, 0] if column.ndim == 2 and column.shape[1] == 1 else column


_FILES = {"train": "train", "val": "valid", "test": "test"}


def split_folder(root: Path, scheme: str | None) -> Path | None:
    """Return the folder of a scheme of splits; None if the set has no splits. Raises `UsageError` if one must be chosen, or is unknown."""
    folder = root / "split"
    schemes = sorted(entry.name for entry in folder.iterdir() if entry.is_dir()) if folder.is_dir() else []
    if scheme is None and not schemes:
        return None
    if scheme is None and len(schemes) > 1:
        raise UsageError(f"{root.name} has several split schemes; use {' or '.join(f'scheme={one!r}' for one in schemes)}")
    chosen = folder / (scheme or schemes[0])
    if chosen.name not in schemes:
        raise UsageError(f"{root.name} has no split scheme {scheme!r}; use {', '.join(schemes) or 'none'}")
    return chosen


def read_masks(folder: Path, n: int) -> dict[str, np.ndarray]:
    """Read a split of n vertices as masks: bool, shape (n,). Raises `DataError` naming the file."""
    masks = {}
    for split, name in _FILES.items():
        path = folder / f"{name}.csv.gz"
        if not path.exists() and (folder / "split_dict.pt").exists():
            raise DataError(f"{folder.name}/split_dict.pt: is a pickle, which is never read; use {name}.csv.gz")
        members = integer_table(path, 1)[0]
        if len(bad := np.flatnonzero(members >= n)):
            raise DataError(f"{folder.name}/{path.name}: entry {bad[0]} is {members[bad[0]]}; vertices run from 0 to {n - 1}")
        masks[split] = np.zeros(n, bool)
        masks[split][members] = True
    return masks

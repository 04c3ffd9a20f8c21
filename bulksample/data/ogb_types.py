"""Read a heterogeneous OGB node property data set, such as ogbn-mag, from its raw files, without the `ogb` package::

    raw/num-node-dict.csv.gz                        a line of type names, a line of their numbers of vertices
    raw/triplet-type-list.csv.gz                    a line "source,name,destination" for each relation
    raw/relations/S___NAME___D/edge.csv.gz          also num-edge-list.csv.gz; optional edge-feat.csv.gz, edge_*.csv.gz
    raw/node-feat/TYPE/node-feat.csv.gz             also node_*.csv.gz, such as node_year.csv.gz
    raw/nodetype-has-label.csv.gz                   and raw/node-label/TYPE/node-label.csv.gz
    split/SCHEME/nodetype-has-split.csv.gz          and split/SCHEME/TYPE/{train,valid,test}.csv.gz

OGB's own package downloads and unpacks them.
"""

from __future__ import annotations

import csv
import gzip
import os
import zlib
from functools import partial
from pathlib import Path

import numpy as np

from ..errors import DataError, named
from ..graph import Graph, Key, Relation, VertexType
from ..sparse import MAX_VERTICES
from .columns import Array, make_relation, make_type
from .edges import EdgeTally
from .npy import regular_size
from .ogb_raw import column_tables, edge_table, float_table, read_masks, split_folder

_TIME = "node_year"
_LONGEST = 2**20  # bytes of a table of names


def read(
    path: str | os.PathLike[str], *, scheme: str | None = None, features: bool = True, target: str | None = None,
    tally: EdgeTally | None = None,
) -> Graph:  # fmt: skip
    """Read the graph in the root folder of a data set, which holds ``raw`` and ``split``.

    Types and relations are in the order of `ogb`: by name. ``node_year`` is the time of its vertices, and stays a column.

    Parameters
    ----------
    scheme : str, optional
        The folder in ``split``; required only if there are several.
    target : {"class", "multilabel", "regression"}, optional
        By default one column of labels holds classes.
    tally : EdgeTally, optional
        Receives the number of edges, and the names of the tables of edges, which are not kept.

    Raises
    ------
    DataError
        If a file is missing or malformed; the message names it, and the line if there is one.
    UsageError
        If there are several schemes of splits.
    """
    root = Path(path)
    raw = root / "raw"
    counts, keys, triplets = _counts(raw / "num-node-dict.csv.gz"), list[Key](), raw / "triplet-type-list.csv.gz"
    for place, line in enumerate(_lines(triplets), 1):
        if len(line) != 3 or not all(line) or any("/" in word or word.startswith(".") for word in line):
            raise DataError(f"{triplets.name}: line {place}: {','.join(line)!r} is no source, name and destination")
        for end in (line[0], line[2]):
            if end not in counts:
                raise DataError(f"{triplets.name}: {','.join(line)}: there is no type {end!r} in num-node-dict.csv.gz")
        keys.append((line[0], line[1], line[2]))
    labelled, split = _flags(raw / "nodetype-has-label.csv.gz", counts), split_folder(root, scheme)
    separate = {} if split is None else _flags(split / "nodetype-has-split.csv.gz", counts)
    types = {}
    for name in sorted(counts):
        y, masks, n = None, {}, counts[name]
        if labelled.get(name):
            table = named(f"node-label/{name}", partial(float_table, raw / "node-label" / name / "node-label.csv.gz", np.float64, n))
            y = table[:, 0] if table.shape[1] == 1 else table
        if split is not None and separate.get(name):
            masks = named(f"split/{split.name}", partial(read_masks, split / name, n))
        types[name] = _vertices(raw / "node-feat" / name, name, n, y, masks, features, target)
    tally = EdgeTally() if tally is None else tally
    relations = tuple(_relation(raw, types, key, features, tally) for key in sorted(keys))
    return named(root.name, Graph.of(tuple(types.values()), relations, root.name.replace("_", "-")).validate)


def _lines(path: Path) -> list[list[str]]:
    """Read a small table of words."""
    regular_size(path, path.name)
    try:
        with gzip.open(path, "rb") as stream:
            text = stream.read(_LONGEST + 1)
        if len(text) > _LONGEST:
            raise DataError(f"{path.name}: is longer than {_LONGEST} bytes")
        return [line for line in csv.reader(text.decode().splitlines()) if line]
    except (OSError, EOFError, zlib.error, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{path.name}: cannot be read: {error}") from error


def _counts(path: Path) -> dict[str, int]:
    lines = _lines(path)
    if len(lines) != 2 or len(lines[0]) != len(lines[1]) or len(set(lines[0])) != len(lines[0]):
        use = "use distinct names of types, and below each its number of vertices in one graph"
        raise DataError(f"{path.name}: has {len(lines)} lines; {use}")
    for name, number in zip(*lines, strict=True):
        if not (number.isdecimal() and len(number) < 19 and int(number) <= MAX_VERTICES):
            raise DataError(f"{path.name}: type {name!r} has {number!r} vertices; use 0 to {MAX_VERTICES}")
    return {name: int(number) for name, number in zip(*lines, strict=True)}


def _flags(path: Path, counts: dict[str, int]) -> dict[str, bool]:
    """Read which types have labels or splits; none without the file."""
    if not path.exists():
        return {}
    lines = _lines(path)
    if len(lines) != 2 or len(lines[0]) != len(lines[1]) or not set(lines[1]) <= {"True", "False"} or not set(lines[0]) <= set(counts):
        raise DataError(f"{path.name}: use a line of types, of {', '.join(counts)}, and a line of True and False")
    return {name: word == "True" for name, word in zip(*lines, strict=True)}


def _vertices(folder: Path, name: str, n: int, y: Array | None, masks: dict[str, Array], features: bool, target: str | None) -> VertexType:
    feat = folder / "node-feat.csv.gz"
    x = named(f"node-feat/{name}", lambda: float_table(feat, np.float32, n)) if features and feat.exists() else None
    extra = named(f"node-feat/{name}", lambda: column_tables(folder, n))
    times = extra.get(_TIME)
    if times is not None and (times.dtype != np.int64 or times.ndim != 1):
        raise DataError(f"node-feat/{name}: {_TIME}.csv.gz: use one whole number for each vertex")
    kind = target or ("class" if y is not None and y.ndim == 1 else None)
    return make_type(name, n, x, y, masks, times, extra, target=kind)


def _relation(raw: Path, types: dict[str, VertexType], key: Key, features: bool, tally: EdgeTally) -> Relation:
    folder = raw / "relations" / "___".join(key)
    feat = folder / "edge-feat.csv.gz"
    ends = named(f"relations/{folder.name}", lambda: edge_table(folder))
    rows = None
    if features and feat.exists():
        rows = named(f"relations/{folder.name}", lambda: float_table(feat, np.float32, ends.shape[1]))
    tally.edges_read += ends.shape[1]
    left_out = sorted(f"{'.'.join(key)}/{path.name}" for path in folder.glob("edge_*.csv.gz"))
    tally.ignored = ", ".join([*([tally.ignored] if tally.ignored else []), *left_out])
    return make_relation(types[key[0]], key[1], types[key[2]], (ends[0], ends[1]), features=rows)

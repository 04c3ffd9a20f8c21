"""Held-out edges of one relation of a graph: their file in the store of the graph for training, which lacks them.

A split holds out edges, not vertices: each is listed with the negatives that it is ranked among. A plain graph has the one relation
``node:to:node``. Its files of earlier versions, which name no relation, are read too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from pydantic import BaseModel

from ..errors import DataError, UsageError
from ..graph import EDGE, NODE, Graph, Key, Relation, spelled
from ..sparse import runs
from .manifest import Manifest
from .npy import Archive, read_sealed, save_sealed
from .parts_manifest import graph_manifest

FILE, HELD_OUT = "links.npz", ("val", "test")
_WRITER = "bulksample data split-edges"
_ARRAYS = ("pairs", "negatives", "times")


class _Schema(BaseModel):
    """The relation that a file names, its reverses, and True if its edges have times."""

    relation: Key
    reverses: tuple[Key, ...]
    timed: bool


_PLAIN = _Schema(relation=(NODE, EDGE, NODE), reverses=(), timed=False)


class EdgeEnds(NamedTuple):
    """The ends of m edges of a relation."""

    sources: np.ndarray  # int64, shape (m,)
    destinations: np.ndarray  # int64, shape (m,)
    times: np.ndarray | None  # int64, shape (m,): when each edge came to be, or is asked about; None if time does not count

    @staticmethod
    def of(relation: Relation) -> EdgeEnds:
        """Return all edges of a relation."""
        return EdgeEnds(*ends_of(relation), relation.times)


@dataclass(frozen=True, eq=False)
class HeldOutLinks:
    """Held-out edges of one relation, for val and test: their ends, and negatives of each.

    `reverses` are the relations that lack the reverse edges; an undirected relation is its own reverse. `negatives` are destinations to
    which the source has no edge in the whole graph, and which exist at the time of the edge. `times` say when each edge is asked about.
    """

    relation: Key
    reverses: tuple[Key, ...]
    pairs: dict[str, np.ndarray]  # int32, shape (e, 2): source and destination
    negatives: dict[str, np.ndarray]  # int32, shape (e, K)
    times: dict[str, np.ndarray] | None = None  # int64, shape (e,)

    def save(self, folder: str | os.PathLike[str], store: str = "") -> None:
        """Write `links.npz` into the folder of a store with this digest. Raises `UsageError` if it cannot be written."""
        schema = json.dumps({"relation": self.relation, "reverses": self.reverses, "timed": self.times is not None})
        arrays = {"schema": np.frombuffer(schema.encode(), np.uint8)}
        for split in HELD_OUT:
            stamps = np.empty(0, np.int64) if self.times is None else self.times[split]
            columns = (self.pairs[split].astype("<i4"), self.negatives[split].astype("<i4"), stamps.astype("<i8"))
            arrays |= {f"{split}_{name}": array for name, array in zip(_ARRAYS, columns, strict=True)}
        save_sealed(Path(folder) / FILE, arrays, store)

    @staticmethod
    def load(folder: str | os.PathLike[str]) -> HeldOutLinks:
        """Read the held-out edges of a store; see `read`, and `checked` for what else is raised."""
        return HeldOutLinks.read(folder).checked(graph_manifest(Path(folder), plain=False))

    @staticmethod
    def read(folder: str | os.PathLike[str]) -> HeldOutLinks:
        """Read the file that `save` wrote; nothing is unpickled. Raises `UsageError` if the folder has no held-out edges.

        Raises `DataError` if the file is damaged, was changed, or belongs to another store than the one beside it.
        """
        path = Path(folder) / FILE
        if not path.is_file():
            raise UsageError(f"{folder} has no held-out edges; use a store that `{_WRITER}` wrote")
        with Archive(path) as archive:
            unnamed = "schema" not in archive
        first, columns = ("n", _ARRAYS[:2]) if unnamed else ("schema", _ARRAYS)
        names = [first, *(f"{split}_{name}" for split in HELD_OUT for name in columns)]
        arrays = read_sealed(path, names, _WRITER, lambda: graph_manifest(Path(folder), plain=False).digest)
        try:
            schema = _PLAIN if unnamed else _Schema.model_validate_json(arrays["schema"].astype(np.uint8).tobytes())
        except (ValueError, TypeError):  # a ValidationError is a ValueError
            raise DataError(f"{FILE}: its schema names no relation; write it again with `{_WRITER}`") from None
        pairs, negatives, *times = ({split: arrays[f"{split}_{name}"] for split in HELD_OUT} for name in columns)
        return HeldOutLinks(schema.relation, schema.reverses, pairs, negatives, times[0] if schema.timed else None)

    def checked(self, manifest: Manifest) -> HeldOutLinks:
        """Return self; raises `DataError` if an edge does not fit the types and relations of a store."""
        known = {relation.key for relation in manifest.relations}
        if unknown := [key for key in (self.relation, *self.reverses) if key not in known]:
            raise DataError(f"{FILE}: graph {manifest.name!r} has no relation {spelled(unknown[0])}")
        counts = {kind.name: kind.vertices for kind in manifest.types}
        sources, destinations = counts[self.relation[0]], counts[self.relation[2]]
        for split in HELD_OUT:
            pairs, negatives = self.pairs[split], self.negatives[split]
            if pairs.shape != (len(pairs), 2) or negatives.ndim != 2 or len(negatives) != len(pairs):
                shapes = f"pairs of shape {pairs.shape} and negatives of shape {negatives.shape}"
                raise DataError(f"{FILE}: {split}: got {shapes}; use (e, 2) and (e, K)")
            named = ("sources", pairs[:, :1], sources), ("destinations", pairs[:, 1:], destinations), ("negatives", negatives, destinations)
            for what, ends, count in named:
                if ends.dtype.kind not in "iu" or (ends.size and not 0 <= ends.min() <= ends.max() < count):
                    raise DataError(f"{FILE}: {split}: {what} must name vertices from 0 to {count - 1}")
            if self.times is not None and (self.times[split].dtype != np.int64 or self.times[split].shape != (len(pairs),)):
                raise DataError(f"{FILE}: {split}: times must be int64 of shape ({len(pairs)},)")
        return self

    def check_absent(self, graph: Graph, rows: Mapping[Key, EdgeEnds] | None = None) -> None:
        """Raise `DataError` if held-out edges, or their reverses, are edges of the graph: among the rows of each relation that are here."""
        for split in HELD_OUT:
            source, destination = self.pairs[split].astype(np.int64).T
            ends = [(self.relation, source, destination), *((key, destination, source) for key in self.reverses)]
            for key, by, to in ends:
                relation = graph.relation(key)
                times = None if self.times is None or graph.relation(self.relation).times is None else self.times[split]
                here = EdgeEnds.of(relation) if rows is None else rows[key]
                if count := int(joined(here, graph.type(key[0]).count, by, to, times).sum()):
                    where = "the graph" if graph.plain else f"{relation} of graph {graph.name!r}"
                    raise DataError(
                        f"{FILE}: {count} of the {len(source)} held-out edges of {split} are edges of {where}, "
                        f"so the file is that of another store; write both with `{_WRITER}`"
                    )


def ends_of(relation: Relation) -> tuple[np.ndarray, np.ndarray]:
    """Return the source and the destination of each edge: int64."""
    return relation.adjacency.indices.astype(np.int64), relation.adjacency.row_of_entry().astype(np.int64)


def joined(rows: EdgeEnds, sources: int, source: np.ndarray, destination: np.ndarray, times: np.ndarray | None) -> np.ndarray:
    """Return True for each pair that is an edge of some rows of a relation, row by row; if both have times, at its time."""
    keys, wanted = (to * sources + by for by, to in ((rows.sources, rows.destinations), (source, destination)))
    first, last = (np.searchsorted(keys, wanted, side) for side in ("left", "right"))  # keys ascend; parallel edges repeat them
    if times is None or rows.times is None:
        return np.asarray(last > first)
    pair = np.repeat(np.arange(len(wanted)), last - first)
    same = rows.times[runs(first, last - first)] == times[pair]
    return np.bincount(pair[same], minlength=len(wanted)) > 0

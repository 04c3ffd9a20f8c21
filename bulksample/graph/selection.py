"""The selection matrix Q, which lists the vertices of each of k mini-batches.

Node-wise samplers read Q with one row per (mini-batch, vertex), layer-wise samplers with one row per
mini-batch. Both are the same list of vertices, so both are views of one object.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import UsageError
from ..pickled import Rebuilt
from ..rng import MAX_MINIBATCHES
from ..sparse import CSR, frozen, row_pointers


@dataclass(frozen=True, eq=False)
class Selection(Rebuilt):
    """The vertices of k mini-batches, stacked.

    Parameters
    ----------
    minibatches : int64, shape (k,)
        Ids of the mini-batches within their epoch; they name the random numbers.
    pointers : int64, shape (k + 1,)
        Mini-batch j holds ``vertices[pointers[j]:pointers[j + 1]]``.
    vertices : int32, shape (R,)
        In the order in which they were found. Distinct within a mini-batch, except in a selection of seeds
        as the user gave them.
    n : int
        Number of vertices of the graph.
    own_names : int32, shape (R,), optional
        The name of each row in the counter of its random numbers. By default it is the vertex itself. Rows of a mini-batch that share a
        vertex and must draw independently need names of their own (random walks name the walker).
    places : int64, shape (R,), optional
        Of seeds: the position of each in the list that the user gave for its type.
    times, starts : int64, shape (R,), optional
        Of seeds: the time at which each is asked about, and the beginning of its window.
    """

    minibatches: np.ndarray
    pointers: np.ndarray
    vertices: np.ndarray
    n: int
    own_names: np.ndarray | None = None
    places: np.ndarray | None = None
    times: np.ndarray | None = None
    starts: np.ndarray | None = None

    def __post_init__(self) -> None:
        for name, dtype in (("minibatches", np.int64), ("pointers", np.int64), ("vertices", np.int32)):
            object.__setattr__(self, name, frozen(getattr(self, name), dtype))
        if self.own_names is not None:
            object.__setattr__(self, "own_names", frozen(self.own_names, np.int32))
        if len(self.pointers) != len(self.minibatches) + 1 or self.pointers[-1] != len(self.vertices):
            raise UsageError(
                f"a selection of {len(self.minibatches)} mini-batches needs {len(self.minibatches) + 1} pointers "
                f"that end at {len(self.vertices)}; got {len(self.pointers)} that end at {self.pointers[-1]}"
            )

    @staticmethod
    def of(lists: Sequence[np.ndarray] | np.ndarray, n: int, minibatches: np.ndarray | None = None) -> Selection:
        """Stack lists of vertices, or the rows of an array; the ids are 0 .. k - 1 unless given.

        A list holds integer ids, or is a boolean mask of shape (n,). Raises `UsageError` if one holds neither, a vertex is not in 0 .. n -
        1, or a mini-batch id does not fit 32 bits.
        """
        if not hasattr(lists, "__len__") or isinstance(lists, str):
            raise UsageError(f"a selection wants a list of vertices for each mini-batch; got {lists!r}; use [[0, 1], [2]] or the like")
        ids = np.arange(len(lists)) if minibatches is None else np.asarray(minibatches, np.int64)
        if len(ids) and not 0 <= ids.min() <= ids.max() < MAX_MINIBATCHES:
            raise UsageError(f"mini-batch ids must be in 0 .. {MAX_MINIBATCHES - 1}; got {ids.min()} .. {ids.max()}")
        parts = [_ids_or_mask(part, n, f"list {j}") for j, part in enumerate(lists)]
        pointers = row_pointers([len(part) for part in parts])
        vertices = np.concatenate([np.empty(0, np.int64), *parts], dtype=np.int64, casting="unsafe")
        if len(bad := np.flatnonzero((vertices < 0) | (vertices >= n))):
            at = int(np.searchsorted(pointers, bad[0], side="right")) - 1
            raise UsageError(f"mini-batch {ids[at]} names vertex {vertices[bad[0]]}; vertices run from 0 to {n - 1}")
        return Selection(ids, pointers, vertices, n)

    @staticmethod
    def everything(n: int) -> Selection:
        """Select every vertex in one mini-batch: a row of ones."""
        return Selection(np.zeros(1), np.array([0, n]), np.arange(n), n)

    def __len__(self) -> int:
        return len(self.minibatches)

    @property
    def names(self) -> np.ndarray:
        """The name of each row in the counter of its random numbers: int32, shape (R,)."""
        return self.vertices if self.own_names is None else self.own_names

    @property
    def sizes(self) -> np.ndarray:
        """Vertices per mini-batch: int64, shape (k,)."""
        return np.diff(self.pointers)

    def minibatch_of_row(self) -> np.ndarray:
        """Return for each vertex the position of its mini-batch in the bulk, 0 .. k - 1: int64, shape (R,)."""
        return np.repeat(np.arange(len(self)), self.sizes)

    def none_of(self) -> Selection:
        """Return the same mini-batches without any vertex."""
        return Selection(self.minibatches, np.zeros_like(self.pointers), self.vertices[:0], self.n)

    def part(self, j: int) -> np.ndarray:
        """Return the vertices of the j-th mini-batch."""
        return self.vertices[self.pointers[j] : self.pointers[j + 1]]

    def parts(self, first: int, last: int) -> Selection:
        """Return mini-batches first .. last - 1; fewer if there are not so many."""
        pointers = self.pointers[first : last + 1]
        rows = slice(pointers[0], pointers[-1])
        columns = [None if one is None else one[rows] for one in (self.own_names, self.places, self.times, self.starts)]
        return Selection(self.minibatches[first:last], pointers - pointers[0], self.vertices[rows], self.n, *columns)

    def added_since(self, earlier: Selection) -> Selection:
        """Return the vertices that each mini-batch holds beyond those of `earlier`, which are a prefix of its own."""
        keep = np.ones(len(self.vertices), bool)
        starts = np.repeat(self.pointers[:-1] - earlier.pointers[:-1], earlier.sizes)
        keep[starts + np.arange(len(earlier.vertices))] = False
        sizes = self.sizes - earlier.sizes
        return Selection(self.minibatches, row_pointers(sizes), self.vertices[keep], self.n)

    def per_minibatch(self, values: np.ndarray | None = None) -> CSR:
        """Return Q with one row per mini-batch: shape (k, n). Entries are ones, or the given int64 of shape (R,)."""
        order = np.lexsort((self.vertices, self.minibatch_of_row()))
        entries = None if values is None else np.asarray(values, np.int64)[order]
        return CSR(self.pointers, self.vertices[order], entries, (len(self), self.n))


def vertex_ids(vertices: Any, n: int, name: str = "vertices", kind: str = "vertex") -> NDArray[np.int64]:
    """Return the vertices that a user names by ids or by a mask of shape (n,): int64 ids, shape (m,), in the order given.

    They are a list, an array or a tensor. `name` begins messages, and `kind` is what has the ids, such as "edge". Raises `UsageError` if
    the entries are neither ids nor a mask of length n, or an id is not in 0 .. n - 1. Integers of 8 bits are refused: they may be a mask
    of another library, or ids.
    """
    return _checked(vertices, n, name, kind).astype(np.int64)


def seed_ids(vertices: Any, n: int) -> NDArray[np.int32]:
    """Return `vertex_ids` as int32. An array of int32 that nobody can write, such as a file mapped to be read, is not copied."""
    ids = _checked(vertices, n, "seeds")
    return ids.astype(np.int32, copy=_writable(ids))


def _checked(vertices: Any, n: int, name: str, kind: str = "vertex") -> NDArray[Any]:
    """Return the ids that `vertex_ids` takes, in their own dtype. Ids that fit take no memory to check."""
    ids = _ids_or_mask(vertices, n, name)
    if len(ids) and not 0 <= ids.min() <= ids.max() < n:
        bad = np.flatnonzero((ids < 0) | (ids >= n))
        raise UsageError(f"{name}: entry {bad[0]} is {kind} {ids[bad[0]]}; use 0 to {n - 1}")
    return ids


def _writable(array: np.ndarray) -> bool:
    """Return True if an array, or one that it is a view of, can be written."""
    return array.flags.writeable or (isinstance(array.base, np.ndarray) and _writable(array.base))


def _ids_or_mask(vertices: Any, n: int, name: str) -> NDArray[Any]:
    """Return integers of shape (m,), not yet compared with n; a mask of shape (n,) as its positions."""
    try:
        array = np.asarray(vertices.detach().cpu() if hasattr(vertices, "detach") else vertices)
    except (TypeError, ValueError, RuntimeError) as error:
        raise UsageError(f"{name}: got a {type(vertices).__name__} that is no array ({error}); use integer ids of shape (m,)") from None
    if array.dtype == np.bool_ and array.shape == (n,):
        return np.flatnonzero(array)
    if array.ndim == 1 and array.dtype.kind in "iu" and array.itemsize > 1:
        return array
    if isinstance(vertices, list | tuple) and not vertices:  # numpy takes an empty list for floats
        return np.empty(0, np.int64)
    raise UsageError(f"{name}: got {array.dtype} of shape {array.shape}; use integer ids of shape (m,), or a mask: bool of shape ({n},)")

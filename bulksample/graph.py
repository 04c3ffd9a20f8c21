"""A graph with everything that training needs: structure, features, labels, splits.

Features are optional, so a graph can be sampled without loading them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from .errors import DataError, UsageError
from .mapped import pieces
from .sparse import CSR

SPLITS = ("train", "val", "test")


@dataclass(frozen=True, eq=False)
class Graph:
    """A directed graph; row v of the adjacency lists the in-neighbors that v aggregates from.

    Parameters
    ----------
    adjacency : CSR, shape (n, n)
        Ones, or int64 fixed-point weights (`bulksample.sparse.fixed_point`).
    weight_unit : float
        The real weight that the integer 1 stands for.
    features : float32 or float16 of shape (n, f), or a float32 CSR of that shape, optional
    labels : int64, shape (n,), optional
        Classes 0 .. num_classes - 1; -1 for a vertex without a label.
    num_classes : int
    masks : dict of bool arrays of shape (n,)
        Any of ``train``, ``val``, ``test``; disjoint, and only on labelled vertices.
    extra : dict of arrays of shape (n, ...)
        Further columns of the data set, such as other labels.
    name : str
    """

    adjacency: CSR
    weight_unit: float = 1.0
    features: np.ndarray | CSR | None = None
    labels: np.ndarray | None = None
    num_classes: int = 0
    masks: dict[str, np.ndarray] = field(default_factory=dict)
    extra: dict[str, np.ndarray] = field(default_factory=dict)
    name: str = "graph"

    @property
    def n(self) -> int:
        """Number of vertices."""
        return self.adjacency.shape[0]

    @property
    def num_features(self) -> int:
        return 0 if self.features is None else int(self.features.shape[1])

    def seeds(self, split: str) -> np.ndarray:
        """Return the vertices of a split, ascending: int32. ``all`` is every vertex.

        Raises
        ------
        UsageError
            If the graph has no such split.
        """
        if split == "all":
            return np.arange(self.n, dtype=np.int32)
        if split not in self.masks:
            raise UsageError(f"graph {self.name!r} has no {split!r} split; it has {', '.join([*self.masks, 'all'])}")
        return np.flatnonzero(self.masks[split]).astype(np.int32)

    def default_split(self, training: bool = False) -> str:
        """Return the split of the seeds if the user names none: ``train``, or ``all`` of a graph without masks; see `default_split`."""
        return default_split(self.name, {split: bool(mask.any()) for split, mask in self.masks.items()}, training)

    def default_seeds(self, training: bool = False) -> np.ndarray:
        """Return the vertices of `default_split`, ascending: int32."""
        return self.seeds(self.default_split(training))

    def save(self, path: str | os.PathLike[str], overwrite: bool = False) -> None:
        """Write the graph as a store, a folder that `bulksample.load` opens; see `bulksample.data.store.save`."""
        assert _writer is not None
        _writer(self, path, overwrite)

    def with_label(self, name: str) -> Graph:
        """Return the graph with another of its columns as the label; splits keep only labelled vertices.

        Raises
        ------
        UsageError
            If there is no such integer column.
        """
        column = self.extra.get(name)
        if column is None or column.ndim != 1 or column.dtype.kind not in "iu":
            fit = [k for k, v in self.extra.items() if v.ndim == 1 and v.dtype.kind in "iu"]
            raise UsageError(f"graph {self.name!r} has no label {name!r}; use {', '.join(fit) or 'a graph with one'}")
        labels = column.astype(np.int64)
        masks = {split: mask & (labels >= 0) for split, mask in self.masks.items()}
        return replace(self, labels=labels, num_classes=int(labels.max(initial=-1)) + 1, masks=masks)

    def validate(self) -> Graph:
        """Check everything the class promises and return self; raises `DataError` naming the array and the row."""
        if self.adjacency.shape[0] != self.adjacency.shape[1]:
            raise DataError(f"the adjacency must be square; its shape is {self.adjacency.shape}")
        self.adjacency.validate("adjacency")
        self._check_weights()
        self._check_features()
        self._check_labels()
        for name, column in self.extra.items():
            if column.shape[:1] != (self.n,):
                raise DataError(f"{name} must have {self.n} rows; its shape is {column.shape}")
        return self

    def _check_weights(self) -> None:
        weights = self.adjacency.values
        if weights is None:
            return
        if weights.dtype != np.int64:
            raise DataError(f"weights must be int64 fixed point; got {weights.dtype}")
        if not (np.isfinite(self.weight_unit) and self.weight_unit > 0):
            raise DataError(f"weight_unit must be finite and positive; got {self.weight_unit}")
        negative = np.flatnonzero(weights < 0)
        if len(negative):
            raise DataError(f"weights: row {self.adjacency.row_at(negative[0])} holds {weights[negative[0]]}; weights must not be negative")
        if weights.sum(dtype=np.float64) > 2.0**62:  # samplers sum rows and columns in int64
            for name, place in (("row", self.adjacency.row_of_entry()), ("column", self.adjacency.indices)):
                sums = np.bincount(place, weights, minlength=self.n)
                if len(high := np.flatnonzero(sums > 2.0**62)):
                    raise DataError(f"weights: those of {name} {high[0]} add up to {sums[high[0]]:.4g}; use sums of at most 2**62")

    def _check_features(self) -> None:
        x = self.features
        if x is None:
            return
        if x.shape[0] != self.n:
            raise DataError(f"features must have {self.n} rows; they have {x.shape[0]}")
        if isinstance(x, CSR):
            if x.values is None or x.values.dtype != np.float32:
                raise DataError("sparse features must hold float32 values")
            x.validate("features")
            return
        if x.ndim != 2 or x.dtype not in (np.float32, np.float16):
            raise DataError(f"features must be float32 or float16 of shape (n, f); got {x.dtype} of shape {x.shape}")
        for start, part in pieces(x, max(1, 2**24 // max(1, x.shape[1]))):  # features may be a memmap larger than memory
            bad = np.flatnonzero(~np.isfinite(part).all(axis=1))
            if len(bad):
                raise DataError(f"features: row {start + bad[0]} is not finite")

    def _check_labels(self) -> None:
        y = self.labels
        if y is not None:
            if y.shape != (self.n,) or y.dtype != np.int64:
                raise DataError(f"labels must be int64 of shape ({self.n},); got {y.dtype} of shape {y.shape}")
            bad = np.flatnonzero((y < -1) | (y >= self.num_classes))
            if len(bad):
                raise DataError(f"labels: row {bad[0]} holds {y[bad[0]]}; classes run from 0 to {self.num_classes - 1}, and -1 is none")
        taken = np.zeros(self.n, bool)
        unlabelled = taken if y is None else y < 0
        for name, mask in self.masks.items():
            if name not in SPLITS:
                raise DataError(f"mask {name!r} is not a split; use {', '.join(SPLITS)}")
            if mask.shape != (self.n,) or mask.dtype != np.bool_:
                raise DataError(f"{name} mask must be bool of shape ({self.n},); got {mask.dtype} of shape {mask.shape}")
            wrong = np.flatnonzero(mask & (taken | unlabelled))
            if len(wrong):
                raise DataError(f"{name} mask: row {wrong[0]} is in another split too, or has no label")
            taken = taken | mask


def default_split(name: str, masks: Mapping[str, bool], training: bool = False) -> str:
    """Return the split whose vertices are the seeds if the user names none: ``train``, or ``all`` of a graph without masks.

    Parameters
    ----------
    name : str
        The name of the graph, for messages.
    masks : dict of bool
        The masks of the graph; that of ``train`` is True if it holds a vertex.
    training : bool
        The seeds are trained on, so a graph without masks is refused too.

    Raises
    ------
    UsageError
        If no vertex is in the training split though the graph has masks: all vertices would include those of the test split.
    """
    if masks.get("train"):
        return "train"
    if not masks and not training:
        return "all"
    others = [split for split in masks if split != "train"]
    found = f"only the masks {', '.join(others)}" if others else "no masks"
    choice = f"all, which includes their vertices, or {' or '.join(others)}" if others else "all"
    raise UsageError(f"no vertex is in the training split: graph {name!r} has {found}; name the seeds, use seeds {choice}")


_writer: Callable[[Graph, str | os.PathLike[str], bool], None] | None = None


def set_writer(writer: Callable[[Graph, str | os.PathLike[str], bool], None]) -> None:
    """Set the function that `Graph.save` calls; the store imports this module, so this module cannot import the store."""
    global _writer
    _writer = writer

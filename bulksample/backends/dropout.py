"""The definition of dropout in numpy: which numbers of a row are kept is a function of names, by counter-based random words.

    y = m act(z + b)        m = 65536 / k with chance k / 65536, else 0;   act is relu or the identity

k is the share that is kept, in parts of 65536. Number j of a row is kept if the 16 bits j mod 8 of block j div 8 are below k, the lower
half of each word first; `Stream.mask_key` says what the counter of a block holds. csrc/dropout_row.h is the same for one row.

Srivastava, Hinton, Krizhevsky, Sutskever, Salakhutdinov, "Dropout: a simple way to prevent neural networks from overfitting", JMLR 2014.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ..errors import UsageError
from ..rng import counters, philox

PARTS = 2**16  # of the chance that a number is kept
LANES = 8  # numbers that one block decides
BIAS_ROWS = 256  # rows of which the gradient of a bias is summed in float32


class Mask(NamedTuple):
    """The names of the rows of a matrix in the random words of one dropout, and the share that is kept."""

    key: int  # of `Stream.mask_key`
    minibatch: int
    vertices: np.ndarray  # int32, shape (R,)
    trees: np.ndarray | None  # int32, shape (R,); None stands for zeros
    kept: int  # k: 1 to 65535

    @property
    def tree_of_row(self) -> np.ndarray:
        """The tree of each row: int32, shape (R,)."""
        return np.zeros_like(self.vertices) if self.trees is None else self.trees

    @property
    def scale(self) -> np.float32:
        """The factor of a number that is kept."""
        return np.float32(PARTS / self.kept)


def kept_parts(p: Any, name: str = "dropout") -> int:
    """Return k, the parts of 65536 that dropout with probability p keeps: at most 65536, for p = 0.

    Raises `UsageError` if p is not a number from 0 to below 1, or rounds to 0 or to 1 without being so.
    """
    if not isinstance(p, int | float | np.integer | np.floating) or isinstance(p, bool) or not 0 <= p < 1:
        raise UsageError(f"{name} must be a number from 0 to below 1; got {p!r}")
    kept = round((1 - float(p)) * PARTS)
    if p and kept in (0, PARTS):
        raise UsageError(
            f"{name}: got {p!r}, which rounds to {int(kept == 0)} in parts of {PARTS}; use 0, or {1 / PARTS:.2g} to {1 - 1 / PARTS}"
        )
    return kept


def mask_of(mask: Mask, width: int) -> np.ndarray:
    """Return True where a number is kept: bool, shape (R, width)."""
    blocks = -(-width // LANES)
    words = philox(counters(np.arange(blocks), mask.vertices[:, None], mask.minibatch, mask.tree_of_row[:, None]), mask.key)
    return np.asarray(_halves(words).reshape(len(mask.vertices), blocks * LANES)[:, :width] < mask.kept)


def epilogue(z: np.ndarray, bias: np.ndarray | None, relu: bool, mask: Mask | None, out: np.ndarray) -> None:
    """Compute `out` as `Backend.epilogue` defines, in the type of z."""
    y = z if bias is None else z + bias
    if relu:
        y = np.where(y <= 0, y.dtype.type(0), y)
    out[:] = y if mask is None else _masked(y, mask_of(mask, z.shape[1]), mask)


def epilogue_gradient(grad: np.ndarray, y: np.ndarray | None, mask: Mask | None, bias: bool, out: np.ndarray) -> np.ndarray | None:
    """Compute `out` and the gradient of the bias as `Backend.epilogue_gradient` defines, in the type of `grad`."""
    if y is not None:
        scaled = grad if mask is None else grad * grad.dtype.type(mask.scale)
        out[:] = np.where(y <= 0, grad.dtype.type(0), scaled)
    else:
        out[:] = grad if mask is None else _masked(grad, mask_of(mask, grad.shape[1]), mask)
    if not bias:
        return None
    total = np.zeros(out.shape[1])
    for first in range(0, len(out), BIAS_ROWS):
        total += np.add.accumulate(out[first : first + BIAS_ROWS], axis=0)[-1]  # row after row, in the type of `grad`
    return total.astype(out.dtype)


def drop_entries(indptr: np.ndarray, indices: np.ndarray, values: np.ndarray, mask: Mask) -> np.ndarray:
    """Compute the entries as `Backend.drop_entries` defines."""
    row = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    trees = mask.tree_of_row[row]
    words = philox(counters(indices // LANES, mask.vertices[row], mask.minibatch, trees), mask.key)
    halves = np.take_along_axis(_halves(words), (indices % LANES)[:, None].astype(np.int64), axis=1)[:, 0]
    return _masked(values, halves < mask.kept, mask)


def _halves(words: np.ndarray) -> np.ndarray:
    """Return the 16-bit halves of blocks, the lower half of each word first: uint16, shape (..., 8) from uint32, (..., 4)."""
    return np.stack([words & np.uint32(0xFFFF), words >> np.uint32(16)], axis=-1).reshape(*words.shape[:-1], LANES).astype(np.uint16)


def _masked(values: np.ndarray, kept: np.ndarray, mask: Mask) -> np.ndarray:
    return np.asarray(np.where(kept, values * values.dtype.type(mask.scale), values.dtype.type(0)))

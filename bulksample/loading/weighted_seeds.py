"""Seeds of an epoch that are drawn with replacement, by weight.

    place t of an epoch:   seed i with  c_(i-1) <= u W < c_i        c_i = w_0 + .. + w_i,   W = c_(m-1)

u is a multiple of 2**-53 in [0, 1), made of a word of Philox that names (seed, epoch, t). So an epoch still has m places, seed i comes
m w_i / W times in it on average, and one of weight 0 never. Sums, products and comparisons are those of float64 in a fixed order, so
nothing depends on ranks, threads, bulks or the processor. torch's `WeightedRandomSampler` has this law.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import UsageError
from ..rng import Stream, Substream, as_u64


class WeightedSeeds:
    """The law by which the seeds of an epoch are drawn.

    Parameters
    ----------
    weights : numbers of shape (m,)
        Finite, 0 or larger, not all 0; one for each seed.
    count : int
        m, the number of seeds.

    Raises
    ------
    UsageError
        If weights are of another shape, negative, not finite or all 0.
    """

    def __init__(self, weights: Any, count: int) -> None:
        numbers = checked_weights(weights, count)
        if numbers.sum() < 2.0**-900:
            numbers *= 2.0**100  # exact, and u W has all of its bits
        self._ends = np.cumsum(numbers)
        self._last = int(np.flatnonzero(numbers)[-1])  # which takes u W = W, a product that was rounded up

    def order(self, stream: Stream, epoch: int) -> Callable[[np.ndarray], np.ndarray]:
        """Return what draws the seeds at some places of an epoch: their positions, int64."""

        def at(places: np.ndarray) -> np.ndarray:
            words = as_u64(stream.words(Substream.SEED_WEIGHT.tag(epoch), places)) >> np.uint64(11)
            drawn = np.searchsorted(self._ends, words.astype(np.float64) * 2.0**-53 * self._ends[-1], side="right")
            seeds: np.ndarray = np.minimum(drawn, self._last)
            return seeds

        return at

    @property
    def identity(self) -> str:
        """A SHA-256 of the weights."""
        return hashlib.sha256(self._ends.astype("<f8").tobytes()).hexdigest()


def checked_weights(weights: Any, count: int, name: str = "sampling_weights", vertices: bool = False) -> np.ndarray:
    """Return the weights of `count` seeds, or of as many `vertices`: float64, shape (count,).

    Raises `UsageError`, which begins with `name`, unless they are `count` finite numbers, 0 or larger, with a positive, finite sum.
    """
    one, many = ("vertex", "vertices") if vertices else ("seed", "seeds")
    given = np.asarray(weights)
    if given.dtype.kind not in "iuf":
        fits = f"numbers, one for each {one}" if vertices else "numbers, one for each seed, or 'class'"
        raise UsageError(f"{name}: got {given.dtype}; use {fits}")
    if given.shape != (count,):
        raise UsageError(f"{name}: got the shape {given.shape}; use one weight for each of the {count} {many}")
    numbers = given.astype(np.float64)
    if not np.isfinite(numbers).all() or (numbers < 0).any():
        at = int(np.flatnonzero(~np.isfinite(numbers) | (numbers < 0))[0])
        raise UsageError(f"{name} must be finite, and 0 or larger; got {numbers[at]} for {one} number {at}")
    with np.errstate(over="ignore"):
        total = float(np.cumsum(numbers)[-1]) + 0.0 if count else 0.0  # no -0.0
    if not 0 < total < np.inf:
        raise UsageError(f"{name} add up to {total}; use weights with a positive, finite sum")
    return numbers


def class_weights(labels: np.ndarray) -> np.ndarray:
    """Return 1 / (seeds of its class) for each seed, so that all classes come equally often: float64, shape (m,); 0 without a label.

    `labels` are integers of shape (m,), -1 where there is none. Raises `UsageError` for labels of another form, or if there is none.
    """
    if labels.ndim != 1 or labels.dtype.kind not in "iu":
        raise UsageError(f"seeds are weighed by their class; got labels of {labels.dtype} and shape {labels.shape}: use one class a vertex")
    known = labels >= 0
    if not known.any():
        raise UsageError(
            f"seeds are weighed by their class, and none of the {len(labels)} seeds has a label; use other seeds, or no weights"
        )
    counts = np.bincount(labels[known])
    weights: np.ndarray = np.where(known, 1.0 / np.maximum(counts[np.maximum(labels, 0)], 1), 0.0)
    return weights

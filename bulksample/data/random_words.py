"""Random numbers of synthetic graphs, the same on every machine: counter-based words, and exp, log and the normal quantile.

The counter of a word holds (item, column, block, substream): the item is an edge or a vertex, the column counts groups of four words of an
item, and the substream (`bulksample.rng.Substream`) is the part of the recipe that draws. A word depends on the counter and the seed alone,
so the size of a chunk, the machine and the back end do not change a graph.

Library functions differ between machines in the last bit (numpy picks a vector variant by CPU), and one such bit changes a random edge or a
vertex of a split. The functions here use + - * /, sqrt, rounding and exponent bits, which every machine rounds alike. numpy evaluates each
operation separately, so there is no fused multiply-add. The relative error is below 1e-13.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce

import numpy as np

from ..backends.base import Backend
from ..rng import PIECE, Substream, as_u64, check_seed, counters, philox

# ln 2 in two parts: k * _LN2_HIGH is exact for |k| < 2**11, because its last 21 bits are zero
_LN2_HIGH = float.fromhex("0x1.62e42fee00000p-1")
_LN2_LOW = float.fromhex("0x1.a39ef35793c76p-33")
_INVERSE_LN2 = float.fromhex("0x1.71547652b82fep+0")
_SQRT_HALF = float.fromhex("0x1.6a09e667f3bcdp-1")

# Wichura's PPND16, the centre and the near tail; the far tail starts at p < exp(-25), beyond 32 random bits.
_CENTRE = (
    (2.5090809287301226727e3, 3.3430575583588128105e4, 6.7265770927008700853e4, 4.5921953931549871457e4,
     1.3731693765509461125e4, 1.9715909503065514427e3, 1.3314166789178437745e2, 3.3871328727963666080e0),
    (5.2264952788528545610e3, 2.8729085735721942674e4, 3.9307895800092710610e4, 2.1213794301586595867e4,
     5.3941960214247511077e3, 6.8718700749205790830e2, 4.2313330701600911252e1, 1.0),
)  # fmt: skip
_TAIL = (
    (7.74545014278341407640e-4, 2.27238449892691845833e-2, 2.41780725177450611770e-1, 1.27045825245236838258e0,
     3.64784832476320460504e0, 5.76949722146069140550e0, 4.63033784615654529590e0, 1.42343711074968357734e0),
    (1.05075007164441684324e-9, 5.47593808499534494600e-4, 1.51986665636164571966e-2, 1.48103976427480074590e-1,
     6.89767334985100004550e-1, 1.67638483018380384940e0, 2.05319162663775882187e0, 1.0),
)  # fmt: skip


@dataclass(frozen=True)
class Words:
    """A source of random words for one seed; a back end, if there is one, generates them faster."""

    seed: int
    backend: Backend | None = None

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def of(self, substream: Substream, first: int, count: int, column: int = 0) -> np.ndarray:
        """Return four words for each of the items ``first .. first + count - 1``: uint32, shape (count, 4)."""
        parts = []
        while count:  # the index is 32 bits wide; the upper bits of an item go to the third word of the counter
            high, low = divmod(first, 2**32)
            length = min(count, 2**32 - low)
            parts.append(self._block(substream.tag(), low, length, column, high))
            first, count = first + length, count - length
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty((0, 4), np.uint32), *parts])

    def _block(self, word: int, low: int, count: int, column: int, high: int) -> np.ndarray:
        if self.backend is not None:
            return self.backend.random_words(self.seed, word, low, count, vertex=column, minibatch=high)
        made = np.empty((count, 4), np.uint32)
        for start, length in chunks(count, PIECE):
            index = np.arange(start, start + length) + low
            made[start : start + length] = philox(counters(index, column, high, word), self.seed)
        return made

    def permutation(self, substream: Substream, n: int, column: int = 0) -> np.ndarray:
        """Return a permutation of 0 .. n - 1: int32, shape (n,). Positions are sorted by 64-bit keys, equal keys by position."""
        keys = np.empty(n, np.uint64)
        for first, count in chunks(n):
            keys[first : first + count] = as_u64(self.of(substream, first, count, column))
        return np.argsort(keys, kind="stable").astype(np.int32)


def chunks(total: int, size: int = 2**20) -> Iterator[tuple[int, int]]:
    """Yield (first, count) of consecutive pieces of 0 .. total - 1."""
    for first in range(0, total, size):
        yield first, min(size, total - first)


def threshold(probability: float) -> int:
    """Return the integer t for which a 32-bit word w has ``w < t`` with this probability, to within 2**-32."""
    return int(probability * 2**32)


def scaled(bits: np.ndarray, width: int, bound: np.ndarray | int) -> np.ndarray:
    """Return floor(bits * bound / 2**width), exactly: an integer in 0 .. bound - 1 from `width` random bits.

    `width` is even and at most 48, `bound` at most 2**40, so every product fits 64 bits.
    """
    half = np.uint64(width // 2)
    bound = np.asarray(bound, np.uint64)
    bits = bits.astype(np.uint64, copy=False)
    low = bits & ((np.uint64(1) << half) - np.uint64(1))
    scaled: np.ndarray = ((bits >> half) * bound + ((low * bound) >> half)) >> half
    return scaled.astype(np.int64)


class RangeLookup:
    """Find which of n consecutive ranges holds a number, for many numbers: range i is ``running[i] .. running[i + 1] - 1``.

    `running`, int64 of shape (n + 1,), rises strictly from 0. A guide holds the first candidate for each of about 4 n equal steps. A lookup
    takes two reads and a few moves; a binary search in a large table would miss the cache at every level.
    """

    def __init__(self, running: np.ndarray) -> None:
        total, n = int(running[-1]), len(running) - 1
        self.running = running
        self.shift = max(0, total.bit_length() - n.bit_length() - 2)
        steps = np.arange((total >> self.shift) + 1, dtype=np.int64) << self.shift
        self.guide = np.searchsorted(running, steps, side="right") - 1

    def find(self, numbers: np.ndarray) -> np.ndarray:
        """Return the range of each number 0 .. total - 1: int64, the shape of `numbers`."""
        place: np.ndarray = self.guide[numbers >> self.shift]
        late = np.flatnonzero(self.running[place + 1] <= numbers)
        while len(late):
            place[late] += 1
            late = late[self.running[place[late] + 1] <= numbers[late]]
        return place


def exp(x: np.ndarray) -> np.ndarray:
    """Return e**x for finite x in -700 .. 700: float64, the shape of x."""
    x = np.asarray(x, np.float64)
    k = np.rint(x * _INVERSE_LN2)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW  # |r| <= ln(2) / 2
    total = np.ones_like(r)
    for i in range(14, 0, -1):  # Taylor, by Horner: the next term is below 2**-58
        total = 1.0 + total * r / i
    return total * ((k.astype(np.int64) + 1023) << 52).view(np.float64)


def log(x: np.ndarray) -> np.ndarray:
    """Return the natural logarithm of finite x > 0: float64, the shape of x."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    low = mantissa < _SQRT_HALF
    mantissa = np.where(low, mantissa * 2.0, mantissa)  # in [sqrt(1/2), sqrt(2))
    k = exponent - low.astype(np.float64)
    s = (mantissa - 1.0) / (mantissa + 1.0)
    square = s * s
    total = np.zeros_like(s)
    for i in range(23, 0, -2):  # log m = 2 (s + s^3 / 3 + s^5 / 5 + ...), |s| < 0.172
        total = total * square + 1.0 / i
    return k * _LN2_HIGH + (k * _LN2_LOW + 2.0 * s * total)


def unit_open(words: np.ndarray) -> np.ndarray:
    """Return (w + 1/2) / 2**32, strictly between 0 and 1: float64, the shape of the uint32 words."""
    return (words.astype(np.float64) + 0.5) * 2.0**-32


def normal(words: np.ndarray) -> np.ndarray:
    """Return standard normal numbers, one for each 32-bit word: float64, between -6.4 and 6.4.

    See Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied Statistics 37, 1988.
    """
    q = unit_open(words) - 0.5
    centre = 0.180625 - q * q
    result = np.asarray(q * _ratio(_CENTRE, centre))
    far = np.flatnonzero(centre < 0.0)  # |q| > 0.425, about one in seven
    if len(far):
        tail = q.ravel()[far]
        r = np.sqrt(-log(0.5 - np.abs(tail))) - 1.6
        result.ravel()[far] = np.copysign(_ratio(_TAIL, r), tail)
    return result


def _ratio(coefficients: tuple[tuple[float, ...], tuple[float, ...]], x: np.ndarray) -> np.ndarray:
    above, below = (reduce(lambda total, c: total * x + c, row[1:], np.full_like(x, row[0])) for row in coefficients)
    return np.asarray(above / below)

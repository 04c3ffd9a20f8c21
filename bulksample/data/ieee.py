"""Compute exp, log and the normal quantile with IEEE basic operations only.

Library functions differ between machines in the last bit (numpy picks a vector variant by CPU), and one
such bit changes a random edge or a vertex of a split. The functions here use + - * /, sqrt, rounding and exponent
bits, which every machine rounds alike, so a synthetic graph is the same everywhere. numpy evaluates each
operation separately, so there is no fused multiply-add. The relative error is below 1e-13.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

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
    ratio: np.ndarray = above / below
    return ratio

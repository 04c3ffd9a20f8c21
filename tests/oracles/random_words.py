"""Random words in plain integers, one counter at a time."""

from __future__ import annotations

from collections.abc import Sequence


def philox(counter: Sequence[int], key: int) -> list[int]:
    """Philox4x32-10: four 32-bit words of a counter of four, and a key of 64 bits (Salmon et al. 2011)."""
    c, k = list(counter), [key & 0xFFFFFFFF, key >> 32]
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [second >> 32 ^ c[1] ^ k[0], second & 0xFFFFFFFF, first >> 32 ^ c[3] ^ k[1], first & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c

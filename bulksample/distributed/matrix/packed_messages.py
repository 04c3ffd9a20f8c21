"""Pack several arrays into one message for each rank, without a loop over ranks, and unpack them.

    message for rank r:   section 0 | section 1 | ...        each with the entries of its array that are for rank r

A word has four bytes; an entry of eight bytes takes two.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ...sparse import row_pointers, runs


class Section(NamedTuple):
    """An array of 4-byte or 8-byte numbers and, for each rank, how many consecutive entries are for it: integers, shape (size,)."""

    entries: np.ndarray
    counts: np.ndarray

    @property
    def words(self) -> np.ndarray:
        """The entries as int32, shape (entries, 1 or 2)."""
        return np.ascontiguousarray(self.entries).view(np.int32).reshape(len(self.entries), self.entries.itemsize // 4)


def pack(sections: list[Section]) -> tuple[np.ndarray, np.ndarray]:
    """Return the messages for all ranks, one after another (int32), and the words of each (int64, shape (size,))."""
    words = [section.words for section in sections]
    sizes = [section.counts * part.shape[1] for section, part in zip(sections, words, strict=True)]
    if len(sections) == 1:
        return words[0].reshape(-1), np.asarray(sizes[0], np.int64)
    lengths = np.asarray(np.stack(sizes).sum(axis=0), np.int64)
    message, at = np.empty(int(lengths.sum()), np.int32), row_pointers(lengths)[:-1]
    for size, part in zip(sizes, words, strict=True):
        message[runs(at, size)] = part.reshape(-1)
        at = at + size
    return message, lengths


def unpack(message: np.ndarray, at: np.ndarray, counts: np.ndarray, dtype: np.dtype | type = np.int32) -> np.ndarray:
    """Return a section of all messages, ``counts[r]`` entries from the word ``at[r]`` on, one rank after another."""
    words = np.dtype(dtype).itemsize // 4
    entries: np.ndarray = message[runs(at, counts * words)].view(dtype)
    return entries


def run_sums(values: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """Sum consecutive runs of the given lengths: int64."""
    return np.diff(row_pointers(values)[row_pointers(counts)])

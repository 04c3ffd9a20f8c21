"""Hidden rows as b-bit messages: one message for each pair of ranks, layer and direction; each row has its own width.

    [records of 2 bits | of 4 | of 8]        a record: ceil(f b / 8) bytes of codes, then its header

Rows of one width keep their order, so both ranks find each row from the table of widths alone. With n_b rows of width b a
message has sum over b of n_b (ceil(f b / 8) + h) bytes, with headers of h = 4 or 8 bytes. Random words name (epoch, layer, direction,
sender's vertex, receiver, column).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from ...backends.base import Backend
from ...backends.quantiser import Noise
from ...distributed.matrix.codec import Codec
from ...distributed.matrix.halo import MessageFormat
from ...errors import PeerLost
from ...rng import Purpose, tag
from .widths import CLASSES

Key = tuple[str, int]  # layer and direction, peer


class RowNames(NamedTuple):
    """The vertices by which random words name rows: the halo, and the own rows that each rank requests."""

    requested: list[np.ndarray]
    halo: list[np.ndarray]

    def sent(self, peer: int, key: str) -> np.ndarray:
        """Return the vertices of the rows that this rank sends to another."""
        return (self.halo if is_backward(key) else self.requested)[peer]

    def received(self, peer: int, key: str) -> np.ndarray:
        """Return the vertices of the rows that this rank receives from another."""
        return (self.requested if is_backward(key) else self.halo)[peer]


def is_backward(key: str) -> bool:
    """Return True if the key of an exchange names the backward direction, that of gradients."""
    return key.endswith("backward")


def number(key: str) -> int:
    """Return the number of an exchange in random words: twice the layer, plus one backward."""
    return 2 * int(key.split()[0]) + is_backward(key)


class CodedMessages(MessageFormat):
    """Messages of rows encoded by a codec that encodes each number alone."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec

    def pack(self, rows: np.ndarray, peer: int, key: str) -> np.ndarray:
        return self._codec.encode(rows)

    def unpack(self, message: np.ndarray, count: int, width: int, peer: int, key: str) -> np.ndarray:
        return self._codec.decode(message)


class RoundedMessages(MessageFormat):
    """Messages of rows as codes of 2, 4 or 8 bits.

    Headers are float32 if `wide`, and `nearest` rounds to nearest instead of at random. `coding` names the numbers that are rounded: rows
    (``plain``), their ``difference`` from the rows that the peer holds, or rows plus the last rounding error (``feedback``). The latter two
    keep a float32 copy of each row that is sent, and the difference also of each row that is received. `default` returns uint8 widths of
    (key, names, receiver) for messages without a table in `sent` and `received`, which hold those of the rows by (key, peer). A dictionary
    `traced` records f / 6 (max - min)^2 of every row that is sent, its rounding noise times (2^b - 1)^2; `widths` holds f by key.
    """

    names: RowNames

    def __init__(
        self, backend: Backend, seed: int, rank: int, wide: bool, nearest: bool, coding: str,
        default: Callable[[str, np.ndarray, int], np.ndarray],
    ) -> None:  # fmt: skip
        self._backend, self._seed, self._rank, self.wide, self._nearest = backend, seed, rank, wide, nearest
        self._coding, self._default = coding, default
        self.epoch = 0
        self.sent, self.received = dict[Key, np.ndarray](), dict[Key, np.ndarray]()
        self.traced: dict[Key, np.ndarray] | None = None
        self.widths = dict[str, int]()
        self._last_sent, self._last_received = dict[Key, np.ndarray](), dict[Key, np.ndarray]()

    def record_bytes(self, width: int, bits: int) -> int:
        """Return the bytes of one row in a message."""
        return -(-width * bits // 8) + (8 if self.wide else 4)

    def pack(self, rows: np.ndarray, peer: int, key: str) -> np.ndarray:
        at, names, width = (key, peer), self.names.sent(peer, key), rows.shape[1]
        self.widths[key] = width
        bits = self._of(self.sent, at, names, peer)
        before = self._last_sent.get(at, np.float32(0)) if self._coding != "plain" else np.float32(0)
        rows = rows - before if self._coding == "difference" else rows + before if self._coding == "feedback" else rows
        if self.traced is not None:
            self.traced[at] = width / 6 * np.square(np.ptp(rows, axis=1).astype(np.float64))
        noise = None if self._nearest else Noise(self._seed, tag(Purpose.ROUNDING, number(key), self.epoch), peer)
        classes = [(b, np.flatnonzero(bits == b)) for b in CLASSES]
        records = [self._backend.quantise(rows[some], b, names[some], noise, self.wide).reshape(-1) for b, some in classes]
        message = np.concatenate(records)
        if self._coding != "plain":
            decoded = self._rows(message, bits, width)
            self._last_sent[at] = before + decoded if self._coding == "difference" else rows - decoded
        return message

    def unpack(self, message: np.ndarray, count: int, width: int, peer: int, key: str) -> np.ndarray:
        at = (key, peer)
        bits = self._of(self.received, at, self.names.received(peer, key), self._rank)
        expected = sum(int(np.count_nonzero(bits == b)) * self.record_bytes(width, b) for b in CLASSES)
        if len(bits) != count or len(message) != expected:
            raise PeerLost(f"rank {self._rank} expected {expected} bytes for {len(bits)} rows from rank {peer}, {key}; {len(message)} came")
        rows = self._rows(message, bits, width)
        if self._coding == "difference":
            rows = self._last_received[at] = self._last_received.get(at, np.float32(0)) + rows
        return rows

    def _of(self, tables: dict[Key, np.ndarray], at: Key, names: np.ndarray, receiver: int) -> np.ndarray:
        if at not in tables:
            tables[at] = self._default(at[0], names, receiver)
        return tables[at]

    def _rows(self, message: np.ndarray, bits: np.ndarray, width: int) -> np.ndarray:
        """Decode a message: its rows in their order."""
        rows, first = np.empty((len(bits), width), np.float32), 0
        for b in CLASSES:
            some, size = np.flatnonzero(bits == b), self.record_bytes(width, b)
            records = message[first : first + len(some) * size].reshape(len(some), size)
            rows[some] = self._backend.dequantise(np.ascontiguousarray(records), width, b, self.wide)
            first += len(some) * size
        return rows

"""Read tables of numbers in text with numpy operations on blocks of bytes.

A block is a few MiB of whole lines. Comparing neighboring bytes finds the tokens, and their digits become integers
column by column, so ten million lines take seconds without a compiled reader. Every token keeps its line number, so an
error names the line without a second pass.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..errors import DataError
from .npy import regular_size

_BLOCK = 2**22
_LONGEST_LINE, _LONGEST_TOKEN = 2**26, 2**8
_NEWLINE, _SEPARATORS, _COMMENTS = ord("\n"), b" \t\r,\n\v\f", b"#%"
_IS_SEPARATOR = np.zeros(256, bool)
_IS_SEPARATOR[list(_SEPARATORS)] = True


class Table(NamedTuple):
    """The tokens of a block, with the same number of columns in every line. Blank lines and comments are left out."""

    text: np.ndarray  # uint8: the block
    starts: np.ndarray  # int64, shape (rows, columns): start of each token
    lengths: np.ndarray  # int64, shape (rows, columns): bytes of each token
    lines: np.ndarray  # int64, shape (rows,): line numbers in the file, from 1

    def token(self, row: int, column: int) -> str:
        start = self.starts[row, column]
        return bytes(self.text[start : start + self.lengths[row, column]]).decode("utf-8", "replace")


def tables(path: Path, skip: int = 0, columns: tuple[int, ...] = (2, 3)) -> Iterator[Table]:
    """Yield the blocks of a text file, plain or gzip.

    Parameters
    ----------
    path : path
    skip : int
        Lines at the top to ignore.
    columns : tuple of int
        The allowed numbers of columns; all lines must have the same number.

    Raises
    ------
    DataError
        If a line has another number of columns, or compressed data ends early; the message names the line.
    """
    regular_size(path, path.name or str(path))
    found = 0
    for first, text in _blocks(path):
        table, found = _table(path, first, text, skip, columns, found)
        if len(table.lines):
            yield table


def _blocks(path: Path) -> Iterator[tuple[int, np.ndarray]]:
    """Yield the number of the first line and the bytes of consecutive blocks of whole lines."""
    first, rest = 1, b""
    try:
        with _opened(path) as stream:
            while piece := stream.read(_BLOCK):
                head, newline, tail = piece.rpartition(b"\n")
                if newline:
                    whole = rest + head + newline
                    yield first, np.frombuffer(whole, np.uint8)
                    first, rest = first + whole.count(b"\n"), tail
                else:
                    rest += tail
                if len(rest) > _LONGEST_LINE:
                    raise DataError(f"{path.name}: line {first} is longer than {_LONGEST_LINE} bytes")
    except (OSError, EOFError, zlib.error) as error:  # a BadGzipFile is an OSError
        raise DataError(f"{path.name}: cannot be read beyond line {first}: {error}") from error
    if rest:
        yield first, np.frombuffer(rest, np.uint8)


def _opened(path: Path) -> IO[bytes]:
    with open(path, "rb") as stream:
        compressed = stream.read(2) == b"\x1f\x8b"
    return gzip.open(path, "rb") if compressed else open(path, "rb")  # type: ignore[return-value]


def _table(path: Path, first: int, text: np.ndarray, skip: int, columns: tuple[int, ...], found: int) -> tuple[Table, int]:
    """Find the tokens of one block; `found` is the number of columns of earlier blocks, 0 for the first block."""
    inside = np.empty(len(text) + 2, np.int8)
    inside[[0, -1]] = 0
    np.logical_not(_IS_SEPARATOR[text], out=inside[1:-1], casting="unsafe")
    edges = np.diff(inside)
    starts, ends = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    newlines = np.flatnonzero(text == _NEWLINE)
    lines = np.searchsorted(newlines, starts) + first
    opens = np.flatnonzero(np.diff(lines, prepend=0))  # the token that opens each line
    sizes = np.diff(opens, append=len(lines))
    data = ~np.isin(text[starts[opens]], list(_COMMENTS)) & (lines[opens] > skip)
    if not data.all():
        keep = np.repeat(data, sizes)
        starts, ends = starts[keep], ends[keep]
    numbers, sizes = lines[opens][data], sizes[data]
    if len(sizes):
        found = found or int(sizes[0])
        wrong = np.flatnonzero((sizes != found) | (found not in columns))
        if len(wrong):
            fit = " or ".join(map(str, columns)) if found not in columns else str(found)
            raise DataError(f"{path.name}: line {numbers[wrong[0]]} has {sizes[wrong[0]]} column(s); use {fit}")
    shape = (len(sizes), found)
    return Table(text, starts.reshape(shape), (ends - starts).reshape(shape), numbers), found


def integers(path: Path, table: Table, columns: int, of_names: str = "") -> np.ndarray:
    """Return the first columns as integers 0 .. 2**63 - 1: int64, shape (rows, columns).

    Raises
    ------
    DataError
        If a token is no such integer; the message names the first line, and ends with `of_names` if that is line 1 and holds a name.
    """
    starts, lengths = table.starts[:, :columns], table.lengths[:, :columns]
    values, wrong = np.zeros(starts.shape, np.uint64), lengths > 19
    least, last = int(lengths.min(initial=20)), len(table.text) - 1
    for place in range(min(int(lengths.max(initial=0)), 19)):
        digit = table.text[np.minimum(starts + place, last)] - np.uint8(ord("0"))  # a byte below '0' wraps around
        if place < least:
            wrong |= digit > 9
            values = values * np.uint64(10) + digit
        else:
            here = lengths > place
            wrong |= here & (digit > 9)
            values = np.where(here, values * np.uint64(10) + digit, values)
    wrong |= values > np.uint64(2**63 - 1)  # 19 digits cannot leave uint64
    if wrong.any():
        row, column = (int(place) for place in np.argwhere(wrong)[0])
        line, token = table.lines[row], table.token(row, column)
        advice = of_names if line == 1 and token[:1] not in "-+.0123456789" else ""
        raise DataError(f"{path.name}: line {line}: {token!r} is not an integer from 0 to 2**63 - 1{advice}")
    return values.astype(np.int64)


def strings(path: Path, table: Table, column: int) -> np.ndarray:
    """Return a column as byte strings: dtype S, shape (rows,); raises `DataError` naming the line of a very long one."""
    starts, lengths = table.starts[:, column], table.lengths[:, column]
    width = int(lengths.max(initial=1))
    if width > _LONGEST_TOKEN:  # every entry of the result takes the bytes of the longest
        row = int(lengths.argmax())
        raise DataError(f"{path.name}: line {table.lines[row]}: {table.token(row, column)[:40]!r}... is longer than {_LONGEST_TOKEN} bytes")
    letters = np.zeros((len(starts), width), np.uint8)
    for place in range(width):
        here = np.flatnonzero(lengths > place)
        letters[here, place] = table.text[starts[here] + place]
    return letters.view(f"S{width}").ravel()


def weights(path: Path, table: Table, column: int) -> np.ndarray:
    """Return a column of finite numbers >= 0: float64, shape (rows,); raises `DataError` naming the line of any other token."""
    tokens = strings(path, table, column)
    try:
        values = tokens.astype(np.float64)
    except ValueError:
        values = np.array([_number(token) for token in tokens.tolist()])
    bad = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
    if len(bad):
        raise DataError(f"{path.name}: line {table.lines[bad[0]]}: weight {table.token(int(bad[0]), column)!r} is not a finite number >= 0")
    return values


def _number(token: bytes) -> float:
    try:
        return float(token)
    except ValueError:
        return float("nan")

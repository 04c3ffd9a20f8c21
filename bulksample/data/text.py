"""Read tables of edges in text: numpy parses the blocks that match a regular expression, Python the others line by line.

numpy alone is not strict: it takes ``+1``, ``1.5`` and ``1e3`` for integers. The expression admits only what numpy and Python
read alike. Python names the line of an error, and reads the few rows that are sound but do not match, such as a weight ``1_000``.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..errors import DataError
from .compressed import DAMAGED, opened
from .npy import regular_size

_BLOCK = 2**20
_LONGEST_LINE, _LONGEST_TOKEN = 2**26, 2**8
_MOST = 2**63 - 1
_BLANKS = bytes.maketrans(b"\t\r,\v\f", b"     ")
_ID = {"integer": rb"\d{1,19}+", "text": rb"\S{1,256}+"}
_ROW = {k: b" *+" + b" ++".join([b"%(id)b"] * min(k, 2) + [rb"[-+.\deE]{1,256}+"] * (k == 3)) + b" *+\n" for k in (1, 2, 3)}
_CLEAN = {(ids, k): re.compile(b"(?:" + row % {b"id": _ID[ids]} + b")*+") for ids in _ID for k, row in _ROW.items()}
_NOISE = re.compile(rb"\n *+(?:[#%][^\n]*+)?(?=\n)")  # a line that is blank or a comment, behind the line before
_WEIGHTED = np.dtype([("ids", np.uint64, 2), ("weight", np.float64)])


class TextBlock(NamedTuple):
    """The rows of a block. Blank lines and comments are left out."""

    ids: np.ndarray  # int64 or byte strings, shape (rows, 1 or 2)
    weights: np.ndarray | None  # float64, shape (rows,): the third column, finite and >= 0
    first: int  # number of the first line of the block, from 1
    text: bytes  # the whole block

    @property
    def lines(self) -> list[int]:
        """The line number of each row."""
        return [line for line, _ in _rows(self.first, self.text)]


def tables(path: Path, skip: int = 0, columns: tuple[int, ...] = (2, 3), ids: str = "integer", of_names: str = "") -> Iterator[TextBlock]:
    """Yield the blocks of a text file, plain or compressed, behind the `skip` lines at its top.

    All lines must have the same number of columns, one of `columns`. The third is a weight, the others are ids: text, or integers 0 ..
    2**63 - 1. `of_names` is advice for the error of a name in line 1 where an integer must be.

    Raises `DataError` if a line has another number of columns, a token is no id or weight, or compressed data ends early; it names the
    line.
    """
    regular_size(path, path.name or str(path))
    width = 0
    for first, text in _blocks(path, skip):
        pure = text
        parsed = None if b"#" in text or b"%" in text else _parse(text, width, columns, ids)
        if parsed is None:
            pure = _NOISE.sub(b"", b"\n" + text)[1:]
            if not pure:
                continue
            parsed = _parse(pure, width, columns, ids) or _parse_by_hand(path, first, text, width, columns, ids, of_names)
        width = width or len(pure.partition(b"\n")[0].split())
        yield TextBlock(*parsed, first, text)


def _blocks(path: Path, skip: int) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line and the text of consecutive blocks of whole lines, with a blank for every separator."""
    first = 1
    try:
        with opened(path) as stream:
            while first <= skip and _rest_of_line(path, stream, first):
                first += 1
            while text := stream.read(_BLOCK):
                text = (text + _rest_of_line(path, stream, first + text.count(b"\n"))).translate(_BLANKS)
                yield first, text if text.endswith(b"\n") else text + b"\n"
                first += text.count(b"\n")
    except DAMAGED as error:
        raise DataError(f"{path.name}: cannot be read beyond line {first}: {error}") from error


def _rest_of_line(path: Path, stream: IO[bytes], line: int) -> bytes:
    rest = stream.readline(_LONGEST_LINE)
    if len(rest) == _LONGEST_LINE:
        raise DataError(f"{path.name}: line {line} is longer than {_LONGEST_LINE} bytes")
    return rest


def _rows(first: int, text: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the text of each line that is neither blank nor a comment."""
    for line, row in enumerate(text.splitlines(), first):
        if row.lstrip()[:1] not in b"#%":  # which also contains the b"" of a blank row
            yield line, row


def _parse(text: bytes, width: int, columns: tuple[int, ...], ids: str) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Return the ids and weights of clean rows, None for others; `width` is the number of columns of earlier blocks, or 0."""
    k = width or len(text.partition(b"\n")[0].split())
    if k not in columns or not _CLEAN[ids, k].fullmatch(text):
        return None
    weights = None
    try:
        if ids == "text":
            tokens = text.split()
            if k == 3:
                weights = np.fromiter(map(float, tokens[2::3]), np.float64)
                del tokens[2::3]
            names = np.array(tokens, f"S{max(map(len, tokens))}").reshape(-1, min(k, 2))
        elif k == 3:
            rows = np.loadtxt(io.StringIO(text.decode("ascii")), _WEIGHTED, comments=None, ndmin=1)
            names, weights = rows["ids"], rows["weight"].copy()
        else:
            names = np.fromstring(text, np.uint64, sep=" ").reshape(-1, k)
    except ValueError:
        return None
    if (ids == "integer" and names.max() > _MOST) or (weights is not None and not (np.isfinite(weights) & (weights >= 0)).all()):
        return None
    return names if ids == "text" else names.astype(np.int64), weights


def _parse_by_hand(
    path: Path, first: int, text: bytes, width: int, columns: tuple[int, ...], ids: str, of_names: str
) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the ids and weights of any rows; raises `DataError` naming the first line that is wrong."""
    names, weights = [], []
    for line, row in _rows(first, text):
        where, tokens = f"{path.name}: line {line}", row.split()
        width = width or len(tokens)
        if len(tokens) != width or width not in columns:
            fit = " or ".join(map(str, columns)) if width not in columns else str(width)
            raise DataError(f"{where} has {len(tokens)} column(s); use {fit}")
        for column, token in enumerate(tokens):
            shown = token.decode("utf-8", "replace")
            if column < 2 and ids == "integer":
                if not token.isdigit() or len(token) > 19 or int(token) > _MOST:
                    advice = of_names if line == 1 and shown[0] not in "-+.0123456789" else ""
                    raise DataError(f"{where}: {shown!r} is not an integer from 0 to 2**63 - 1{advice}")
            elif len(token) > _LONGEST_TOKEN:
                raise DataError(f"{where}: {shown[:40]!r}... is longer than {_LONGEST_TOKEN} bytes")
            elif column == 2:
                try:
                    weights.append(float(token))
                except ValueError:
                    weights.append(np.nan)
                if not 0 <= weights[-1] < np.inf:
                    raise DataError(f"{where}: weight {shown!r} is not a finite number >= 0")
        names.append(tokens[:2])
    return np.array(names, np.int64 if ids == "integer" else np.bytes_), np.array(weights) if width == 3 else None

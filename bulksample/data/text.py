"""Read tables of edges in text: numpy parses the blocks that match a regular expression, Python the others line by line.

numpy alone is not strict: it takes ``+1``, ``1.5`` and ``1e3`` for integers. The expression admits only what numpy and Python
read alike. Python names the line of an error, and reads the few rows that are sound but do not match, such as a weight ``1_000`` or
fields in quotes.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..errors import DataError
from ..graph.times import UNITS, as_times
from .compressed import DAMAGED, opened
from .npy import regular_size

_BLOCK = 2**20
_LONGEST_LINE, _LONGEST_TOKEN = 2**26, 2**8
_MOST = 2**63 - 1
_BLANK = (b"", b" ")  # separators that may stand side by side
_NOISE = re.compile(rb"\n[ \t\r\v\f]*+(?:[#%][^\n]*+)?(?=\n)")  # a line that is blank or a comment, behind the line before
_DATE = rb"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9}+)?+)?+(?:Z|\+00:00)?+)?+"  # of ISO 8601, in UTC
_TYPES = {"id": np.uint64, "weight": np.float64, "time": np.int64}


class Layout(NamedTuple):
    """The columns of a table."""

    uses: tuple[str, ...]  # of each column: "id", "weight", "time" for whole numbers, "date", or "" to leave it out
    separator: bytes = b""  # b" " for blanks and tabs, b"" for these and commas, or the byte itself
    ids: str = "integer"  # or "text"
    unit: str = "s"  # in which dates are counted from 1970


class TextBlock(NamedTuple):
    """The rows of a block. Blank lines and comments are left out."""

    ids: np.ndarray  # int64 or byte strings, shape (rows, 1 or 2)
    weights: np.ndarray | None  # float64, shape (rows,), finite and >= 0
    times: np.ndarray | None  # int64, shape (rows,)
    first: int  # number of the first line of the block, from 1
    text: bytes  # the whole block

    @property
    def lines(self) -> list[int]:
        """The line number of each row."""
        return [line for line, _ in _rows(self.first, self.text)]


def tables(path: Path, skip: int = 0, columns: tuple[int, ...] = (2, 3), layout: Layout | None = None) -> Iterator[TextBlock]:
    """Yield the blocks of a text file, plain or compressed, behind the `skip` lines at its top.

    All lines must have the columns of `layout`; without it the same number of columns, one of `columns`: the third is a weight, the others
    are integers 0 .. 2**63 - 1. Raises `DataError` if a line has another number of columns, a token is no id, weight or time, or compressed
    data ends early; it names the line.
    """
    regular_size(path, path.name or str(path))
    for first, text in _blocks(path, skip, layout.separator if layout else b""):
        if layout is None:
            if (row := next(_rows(first, text), None)) is None:
                continue
            if (k := len(row[1].split())) not in columns:
                raise DataError(f"{path.name}: line {row[0]} has {k} column(s); use {' or '.join(map(str, columns))}")
            layout = Layout(("id", "id", "weight")[:k])
        parsed = None if b"#" in text or b"%" in text else _parse(text, layout)
        if parsed is None:
            pure = _NOISE.sub(b"", b"\n" + text)[1:]
            if not pure:
                continue
            parsed = _parse(pure, layout) or _parse_by_hand(path, first, text, layout)
        yield TextBlock(*parsed, first, text)


def first_rows(path: Path, skip: int, count: int) -> list[tuple[int, bytes]]:
    """Return the number and the text of the first lines behind `skip` that are neither blank nor comments, at most `count`."""
    regular_size(path, path.name or str(path))
    return list(islice((row for block in _blocks(path, skip, b"\t") for row in _rows(*block)), count))


def fields_of(row: bytes, separator: bytes, where: str) -> list[bytes]:
    """Return the fields of a line, without blanks around them; quotes hold a field together, except between blanks."""
    if separator in _BLANK:
        return row.split()
    if b'"' not in row:
        return [field.strip() for field in row.split(separator)]
    text = row.strip(b" ").decode("utf-8", "surrogateescape")
    try:
        fields = next(csv.reader([text], delimiter=separator.decode(), skipinitialspace=True, strict=True))
    except csv.Error as error:
        raise DataError(f"{where}: its quotes cannot be read ({error})") from error
    return [field.encode("utf-8", "surrogateescape").strip() for field in fields]


def is_date(field: bytes) -> bool:
    """Return True for a date or a datetime of ISO 8601 without an offset from UTC."""
    return re.fullmatch(_DATE, field) is not None


def _blocks(path: Path, skip: int, separator: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number of the first line and the text of consecutive blocks of whole lines, with blanks for all that separates too."""
    blank = separator in _BLANK
    first, odd = 1, (b"\t\v\f" + b"\r" * blank + b"," * (not separator)).replace(separator, b"")
    blanks = bytes.maketrans(odd, b" " * len(odd))
    try:
        with opened(path) as stream:
            while first <= skip and _rest_of_line(path, stream, first):
                first += 1
            while text := stream.read(_BLOCK):
                text = (text + _rest_of_line(path, stream, first + text.count(b"\n"))).translate(blanks)
                text = text if blank else text.replace(b"\r\n", b"\n")
                text = text.removeprefix(codecs.BOM_UTF8) if first == 1 else text
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


@lru_cache
def _clean(layout: Layout) -> re.Pattern[bytes]:
    """Return the expression of rows that numpy reads."""
    separator, blank = layout.separator, layout.separator in _BLANK
    text = rb"[^\s\0]" if blank else b'[^\r\n\0"' + separator + b"]"
    forms = {
        "id": rb"\d{1,19}+" if layout.ids == "integer" else text + b"{1,256}+",
        "weight": rb"[-+.\deE]{1,256}+", "time": rb"-?+\d{1,18}+", "date": _DATE.replace(b"[T ]", b"T") if blank else _DATE,
        "": b"[!-~]++" if blank else text + b"*+",
    }  # fmt: skip
    between = b" ++" if blank else b" *+" + re.escape(separator) + b" *+"
    return re.compile(b"(?: *+" + between.join(forms[use] for use in layout.uses) + b" *+\n)*+")


def _parse(text: bytes, layout: Layout) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None] | None:
    """Return the ids, weights and times of clean rows, None for others."""
    if not _clean(layout).fullmatch(text):
        return None
    uses, separator, blank = layout.uses, layout.separator, layout.separator in _BLANK
    try:
        if layout.ids == "text" or "date" in uses:
            fields = text.split() if blank else [field.strip() for field in text[:-1].replace(b"\n", separator).split(separator)]
            ids, weights, times = _columns([fields[column :: len(uses)] for column in range(len(uses))], layout)
        elif set(uses) == {"id"}:
            ids = np.fromstring(text if blank else text.replace(separator, b" "), np.uint64, sep=" ").reshape(-1, len(uses))
            weights = times = None
        else:
            kept = [column for column, use in enumerate(uses) if use]
            types = np.dtype([(str(column), _TYPES[uses[column]]) for column in kept])
            lines, between = io.StringIO(text.decode("latin-1")), None if blank else separator.decode()
            rows = np.loadtxt(lines, types, comments=None, ndmin=1, delimiter=between, usecols=kept)
            ids = np.stack([rows[str(column)] for column in kept if uses[column] == "id"], 1)
            weights, times = (rows[str(uses.index(use))].copy() if use in uses else None for use in ("weight", "time"))
    except ValueError:
        return None
    if (layout.ids == "integer" and ids.max() > _MOST) or (weights is not None and not (np.isfinite(weights) & (weights >= 0)).all()):
        return None
    return ids if layout.ids == "text" else ids.astype(np.int64), weights, times


def _columns(fields: Sequence[Sequence[bytes]], layout: Layout) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return the ids, weights and times of columns of fields."""
    ids: list[Sequence[bytes | int]] = []
    weights = times = None
    for use, column in zip(layout.uses, fields, strict=True):
        if use == "id":
            ids.append(column if layout.ids == "text" else list(map(int, column)))
        elif use == "weight":
            weights = np.fromiter(map(float, column), np.float64)
        elif use:
            times = _dates(column, layout.unit) if use == "date" else np.fromiter(map(int, column), np.int64)
    return np.array(ids, np.bytes_ if layout.ids == "text" else np.uint64).T, weights, times


def _dates(fields: Sequence[bytes], unit: str) -> np.ndarray:
    """Return dates of ISO 8601 as int64; raises `ValueError` for one that there is not, and `DataError` for one that does not fit."""
    texts = np.array([field.removesuffix(b"Z").removesuffix(b"+00:00") for field in fields], np.bytes_)
    lengths, times = np.char.str_len(texts), np.empty(len(texts), np.int64)
    for length in np.unique(lengths):  # dates of one length have one precision; numpy would bring all to the finest, in which some wrap
        some = lengths == length
        dates = texts[some].astype("datetime64")
        if (dates.astype("datetime64[s]") != texts[some].astype("S19").astype("datetime64[s]")).any():
            raise DataError("a date wraps around")
        times[some] = as_times("times", dates, unit=unit)
    return times


def _parse_by_hand(path: Path, first: int, text: bytes, layout: Layout) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    """Return the ids, weights and times of any rows; raises `DataError` naming the first line that is wrong."""
    rows, k = [], len(layout.uses)
    for line, row in _rows(first, text):
        where = f"{path.name}: line {line}"
        fields = fields_of(row, layout.separator, where)
        if len(fields) != k:
            between = "" if layout.separator == b"" else f", separated by {shown(layout.separator)}"
            raise DataError(f"{where} has {len(fields)} column(s); use {k}{between}")
        for column, (use, field) in enumerate(zip(layout.uses, fields, strict=True), 1):
            if use and (wrong := f"column {column} is empty" if not field else _wrong(use, field, layout)):
                raise DataError(f"{where}: {wrong}")
        rows.append(fields)
    ids, weights, times = _columns(list(zip(*rows, strict=True)) or [()] * k, layout)
    return ids if layout.ids == "text" else ids.astype(np.int64), weights, times


def shown(separator: bytes) -> str:
    """Return the name of a separator, as the option has it."""
    return {b" ": "blanks", b"\t": "tabs"}.get(separator) or repr(separator.decode())


def _wrong(use: str, field: bytes, layout: Layout) -> str:
    """Return the fault of a field, empty if it has none."""
    word = field.decode("utf-8", "replace")
    if use == "id" and layout.ids == "integer":
        if not field.isdigit() or len(field) > 19 or int(field) > _MOST:
            return f"{word!r} is not an integer from 0 to 2**63 - 1" + "; ids='text' takes names" * (layout.separator != b"")
    elif len(field) > _LONGEST_TOKEN or b"\0" in field:
        return f"{word[:40]!r}... is longer than {_LONGEST_TOKEN} bytes" if len(field) > _LONGEST_TOKEN else f"{word!r} holds a NUL"
    elif use == "weight":
        try:
            sound = 0 <= float(field) < np.inf
        except ValueError:
            sound = False
        dated = "; name a column of times: columns='source,target,time'" if is_date(field) else ""
        return "" if sound else f"weight {word!r} is not a finite number >= 0{dated}"
    elif use == "time":
        if not re.fullmatch(rb"-?\d+", field) or not -_MOST <= int(field) <= _MOST:
            return f"time {word!r} is not a whole number that fits int64" + ", as on the lines before" * is_date(field)
    elif use == "date":
        if not is_date(field):
            return f"time {word!r} is not a date such as 2009-03-29 or 2009-03-29T12:00:00.5 (UTC), as on the lines before"
        try:
            _dates([field], layout.unit)
        except DataError:
            return f"time {word!r} is no whole number of the unit {layout.unit!r} that fits int64; use another unit ({', '.join(UNITS)})"
        except ValueError as error:
            return f"time {word!r} is no date: {error}"
    return ""

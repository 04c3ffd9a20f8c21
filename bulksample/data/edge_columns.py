"""Find the columns of an edge list: their separator, a header, and which are the ends, weights and times of edges.

With integer ids, a first line of names is a header. With ids of text it is an edge; where it may be a header, an option has to say.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from ..errors import DataError, UsageError, check_switches
from ..graph.times import UNITS
from .text import Layout, fields_of, first_rows, is_date, shown

SEPARATORS = {"blank": b" ", "tab": b"\t", ",": b",", ";": b";", "|": b"|"}
_LISTED = "blank, tab, ',', ';' or '|'"
_ALIASES = {" ": "blank", "\t": "tab"}
_NAMES = {  # in a header, in small letters
    "source": ("source", "src", "from", "source_id", "src_id"), "target": ("target", "dst", "to", "destination", "target_id", "dst_id"),
    "weight": ("weight", "weights"), "time": ("time", "timestamp", "date", "datetime"),
}  # fmt: skip
_TITLES = (  # of ends of edges; a list of names may begin with such an edge, so these alone make no header
    "user", "item", "user_id", "item_id", "userid", "itemid", "head", "tail", "node1", "node2", "fromnodeid", "tonodeid",
    "u", "v", "id1", "id2",
)  # fmt: skip


class Found(NamedTuple):
    """The columns of a file, and the lines before its data."""

    layout: Layout
    skip: int = 0
    turned: bool = False  # the target stands before the source
    form: str = ""  # for the result of an import
    left_out: str = ""


def find_columns(
    path: Path, skip: int, ids: str, separator: str | None, header: bool | None, columns: str | None, time_unit: str
) -> Found:  # fmt: skip
    """Return the columns that the options say or the first two lines of data tell; see `edgelist.read`.

    Raises `UsageError` for options out of range, and `DataError`, naming the line, where a file leaves doubt or lacks a column.
    """
    for option, given in (("separator", separator), ("columns", columns)):
        if not isinstance(given, str | None):
            raise UsageError(f"{option} was {given!r}; use a string")
    if header is not None:
        check_switches(header=header)
    separator = _ALIASES.get(separator or "", separator)
    if separator is not None and separator not in SEPARATORS:
        raise UsageError(f"separator was {separator!r}; use {_LISTED}")
    if time_unit not in UNITS:
        raise UsageError(f"time_unit was {time_unit!r}; use {', '.join(UNITS)}")
    chosen = {} if columns is None else _chosen(columns)
    by_name = [column for column in chosen.values() if not column.lstrip("@").isdecimal()]
    if by_name and header is False:
        raise UsageError(f"columns names the column {by_name[0]!r}, which needs a header; got header=False: use numbers from 1")
    lines = first_rows(path, skip, 2)
    if not lines:
        return Found(Layout(("id", "id") + ("time",) * ("time" in chosen)), skip)
    line, row = lines[0]
    where = f"{path.name}: line {line}"
    mark = SEPARATORS[separator] if separator else _separator_of(row, ids, where)
    names = [field.decode("utf-8", "replace") for field in fields_of(row, mark, where)]
    if (k := len(names)) < 2:
        raise DataError(f"{where} has {k} column(s), separated by {shown(mark)}; use 2 or 3, or another separator")
    if chosen and all(column.startswith("@") for column in chosen.values()) and (said := columns.count(",") + 1) < k:  # type: ignore[union-attr]
        raise DataError(f"{where} has {k} columns, and columns says what {said} are; use - for each to leave out")
    known = {use: at for at, name in enumerate(names) for use, words in _NAMES.items() if name.lower() in words}
    places = _places(chosen, names, where) if chosen else {"source": 0, "target": 1, **known}
    ends = places["source"], places["target"]
    titled = _are_names([names[at] for at in ends]) if header is None else header
    if header is None and ids == "text":
        later = fields_of(lines[-1][1], mark, f"{path.name}: line {lines[-1][0]}")
        titles = all(names[at].lower() in _TITLES for at in ends) or ends == (known.get("source"), known.get("target"))
        if titled and not by_name and (titles or (len(later) == k and all(later[at].isdigit() for at in ends))):
            raise DataError(f"{where} may name the columns or be an edge; use header=True or header=False")
        titled = False
    titled = titled or bool(by_name)
    if not chosen:
        places = _places_by_names(known, names, where) if titled else {"source": 0, "target": 1, "weight": 2}
        if not titled and k > 3:
            raise DataError(f"{where} has {k} column(s); use 2 or 3, or say what they are, as in columns='source,target,-,time'")
    elif titled:
        for use, column in chosen.items():
            if column.startswith("@") and known.get(use, places[use]) != places[use]:
                there = known[use] + 1
                raise DataError(f"{where} calls column {there} {names[there - 1]!r}; columns has column {column[1:]} as the {use}: "
                                f"use {use}={there} or {use}={column[1:]}")  # fmt: skip
    of = {at: use for use, at in places.items() if at < k}
    data = next((fields_of(one, mark, f"{path.name}: line {at}") for at, one in lines[titled:]), [])
    dated = len(data) == k and is_date(data[places.get("time", 0)])
    uses = tuple({"source": "id", "target": "id", "time": "date" if dated else "time"}.get(use := of.get(at, ""), use) for at in range(k))
    form = f"{','.join(of.get(at, '-') for at in range(k))} separated by {shown(mark)}{f', header in line {line}' if titled else ''}"
    left_out = ", ".join(f"column {at + 1}{f' ({names[at]})' if titled else ''}" for at in range(k) if at not in of)
    return Found(Layout(uses, mark, ids, time_unit), line if titled else skip, places["source"] > places["target"], form, left_out)


def _chosen(columns: str) -> dict[str, str]:
    """Return the column of each use: its name, its number, or ``@`` and its number if that is its place in the option."""
    chosen: dict[str, str] = {}
    for place, part in enumerate(columns.split(","), 1):
        use, given, column = (word.strip() for word in part.partition("="))
        if use == "-" and not given:
            continue
        if use not in _NAMES or use in chosen or (given and not column):
            raise UsageError(
                f"columns: got {part!r} in {columns!r}; use each of {', '.join(_NAMES)} once at most, with =COLUMN or without, or -"
            )
        chosen[use] = column or f"@{place}"
    if "source" not in chosen or "target" not in chosen:
        raise UsageError(f"columns: got {columns!r}; use source and target, and weight and time if there are any")
    return chosen


def _places(chosen: dict[str, str], names: list[str], where: str) -> dict[str, int]:
    """Return the positions, from 0, of the columns that an option gives."""
    places: dict[str, int] = {}
    for use, column in chosen.items():
        number = column.lstrip("@")
        if not (1 <= int(number) <= len(names) if number.isdecimal() else names.count(column) == 1):
            raise DataError(f"{where} has no column {number!r}, or several: it has {len(names)}, {', '.join(map(repr, names[:20]))}")
        places[use] = int(number) - 1 if number.isdecimal() else names.index(column)
    if len(set(places.values())) < len(places):
        raise UsageError(f"columns gives one column of {where} two uses: {places}; use each column once")
    return places


def _places_by_names(known: dict[str, int], names: list[str], where: str) -> dict[str, int]:
    """Return the positions of the columns by the names of a header; the first two are the ends unless these are named."""
    places = {"source": 0, "target": 1, **known}
    if len(set(places.values())) < len(places) or len(places) < len(names):
        unclear = ", ".join(repr(name) for at, name in enumerate(names) if at not in known.values()) or ", ".join(map(repr, names))
        raise DataError(f"{where} names columns whose use is not known: {unclear}; say it, as in columns='source=1,target=2,time=3'")
    return places


def _separator_of(row: bytes, ids: str, where: str) -> bytes:
    """Return the only separator in a line, blanks if there is none."""
    if ids == "integer" and row.endswith(b"\t") and not any(mark in row for mark in b",;|"):
        return b" "  # a tab at the end of a line separates nothing
    row = row.rstrip()
    found = [mark for mark in SEPARATORS.values() if mark != b" " and mark in row] or [b" "]
    words = row.replace(b",", b" ").split()
    weighed = len(words) == 3 and row.count(found[0]) == 1 and _is_number(words[2].decode("utf-8", "replace"))  # a,b 5
    if ids == "text" and found[0] != b" " and (weighed or (found[0] in b";|" and len(words) > 1)):
        found.append(b" ")
    if len(found) > 1:
        listed = " or ".join(map(shown, found))
        raise DataError(f"{where} may have its columns separated by {listed}; say which with separator: {_LISTED}")
    return found[0]


def _are_names(fields: list[str]) -> bool:
    """Return True for different words that begin with letters and are no numbers."""
    return len(set(fields)) == len(fields) and all((field[:1].isalpha() or field[:1] == "_") and not _is_number(field) for field in fields)


def _is_number(field: str) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True

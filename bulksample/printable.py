"""Text that others chose, such as names of types and ids of tables: what may be a name, and how it is printed."""

from __future__ import annotations

from .errors import DataError

_LONGEST_NAME = 1000
_SHOWN = "\u00a0\u3000\u200c\u200d"  # spaces, and what joins letters and emoji
_LONGEST_CELL, _LONGEST_MESSAGE = 4000, 20000


def check_name(what: str, name: str) -> None:
    """Raise `DataError` for a name that is too long to be one, or has halves of characters, which no file can hold."""
    if len(name) > _LONGEST_NAME:
        raise DataError(f"{what} {name[:20]!r}… has a name of {len(name):,} characters; use at most {_LONGEST_NAME:,}")
    if any("\ud800" <= letter <= "\udfff" for letter in name):
        raise DataError(f"{what} {name!r} has halves of characters (surrogates), which UTF-8 cannot spell; use another name")


def printable(text: str) -> str:
    r"""Write characters that a terminal would obey or hide, such as ESC and the marks that turn the direction of writing, as ``\x1b``.

    A very long text loses its middle.
    """
    return _shortened(_escaped(text), _LONGEST_CELL)


def printable_message(text: str) -> str:
    """Return the lines of a message, each printable."""
    return _shortened("\n".join(map(_escaped, text.split("\n"))), _LONGEST_MESSAGE)


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in _SHOWN else letter.encode("unicode_escape").decode() for letter in text)


def _shortened(text: str, longest: int) -> str:
    part = longest // 2
    return text if len(text) <= longest else f"{text[:part]}… ({len(text) - 2 * part:,} characters) …{text[-part:]}"

"""Open files of text, plain or compressed by gzip, bz2 or xz, which their first bytes tell."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from ..errors import DataError

_MAGIC = {
    "gzip": re.compile(rb"\x1f\x8b"), "bz2": re.compile(rb"BZh[1-9](1AY&SY|\x17rE8P\x90)"), "xz": re.compile(rb"\xfd7zXZ\x00"),
    "zstd": re.compile(rb"[\x22-\x28]\xb5\x2f\xfd"), "zip": re.compile(rb"PK(\x03\x04|\x05\x06)"),
}  # fmt: skip
_XZ_MEMORY = 2**30  # bytes that a header may ask for; xz -9 takes 65 MB
_INFLATERS: dict[str, Callable[[], Any]] = {"bz2": bz2.BZ2Decompressor, "xz": lambda: lzma.LZMADecompressor(memlimit=_XZ_MEMORY)}
_UNPACK = {"zstd": "unpack it by `zstd -d FILE`", "zip": "unpack it by `unzip FILE`"}
_RATIOS = {"plain": 1, "gzip": 1032, "bz2": 2**21, "xz": 2**13, **dict.fromkeys(_UNPACK, 1)}
DAMAGED = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
)  # raised by compressed data that is damaged or ends early; BadGzipFile is an OSError
_BUFFER, _PIECE = 2**20, 2**16


def opened(path: Path) -> IO[bytes]:
    """Open a file of text, plain or compressed by gzip, bz2 or xz; raises `DataError` for zstd and zip, which need another program."""
    kind = _compression(path)
    if kind in _UNPACK:
        raise DataError(f"{path.name}: is compressed by {kind}; use a plain file, gzip, bz2 or xz: {_UNPACK[kind]}")
    if kind in _INFLATERS:
        return io.BufferedReader(_Inflated(path, _INFLATERS[kind]), _BUFFER)
    return gzip.open(path, "rb") if kind == "gzip" else open(path, "rb")  # type: ignore[return-value]


class _Inflated(io.RawIOBase):
    """The text of a file of bz2 or xz streams, one after another.

    Python's own `bz2.open` and `lzma.open` end silently where a later stream is damaged; this raises.
    """

    def __init__(self, path: Path, make: Callable[[], Any]) -> None:
        self._file, self._make, self._inflater = open(path, "rb"), make, make()  # noqa: SIM115  # `close` closes it

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        data = b""
        while not data:
            if self._inflater.eof:
                piece = self._inflater.unused_data
                while not (piece := piece.lstrip(b"\0")):  # zeros may pad a stream
                    if not (piece := self._file.read(_PIECE)):
                        return 0
                self._inflater = self._make()
            else:
                piece = self._file.read(_PIECE) if self._inflater.needs_input else b""
                if self._inflater.needs_input and not piece:
                    raise EOFError("compressed data ends before its end marker")
            data = self._inflater.decompress(piece, len(room))
        room[: len(data)] = data
        return len(data)

    def close(self) -> None:
        self._file.close()
        super().close()


def most_inflated(path: Path) -> int:
    """Return the most bytes of text that one byte of a file can stand for: 1 unless it is compressed."""
    return _RATIOS[_compression(path)]


def plain_name(path: Path) -> str:
    """Return the name of a file without the ending of a compressed one."""
    return path.name.removesuffix(".gz").removesuffix(".bz2").removesuffix(".xz")


def _compression(path: Path) -> str:
    """Return the compression that the first bytes of a file tell; plain if none."""
    with open(path, "rb") as stream:
        head = stream.read(10)
    return next((kind for kind, magic in _MAGIC.items() if magic.match(head)), "plain")

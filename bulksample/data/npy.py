"""Read arrays from untrusted `.npy` and `.npz` files, and write files of arrays with a SHA-256 of their own: `links.npz` and partitions.

A header must agree with the length of the file. Files with Python objects are refused, so nothing is unpickled. Text and booleans are
checked for invalid bit patterns, which numpy does not do. The checksums of an `.npz` file find damage by a disk; a hash also finds an array
that a program has changed.
"""

from __future__ import annotations

import ast
import hashlib
import math
import os
import re
import shutil
import stat
import struct
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, NamedTuple

import numpy as np

from ..errors import DataError
from ..mapped import map_file
from ..process_lock import process_lock
from .atomic import save_npz, sweep

_LENGTH_BYTES = {b"\x93NUMPY\x01\x00": 2, b"\x93NUMPY\x02\x00": 4}  # width of the length of the header, by magic and version
_LONGEST_HEADER = 2**16
_DTYPE = re.compile(r"[<>|=]?(b1|[iu][1248]|f[248]|[US]\d{1,8})")
_BROKEN_ZIP = (
    ValueError, TypeError, KeyError, EOFError, OSError, OverflowError, MemoryError, NotImplementedError, RuntimeError,
    struct.error, zipfile.BadZipFile, zlib.error,
)  # fmt: skip
_PIECE = 2**24
_SEAL, _STORE = "sha256", "store"
_PARSING = process_lock()  # in Python 3.11, concurrent parsing corrupts the recursion count (python/cpython#106905)


class PickledObjects(DataError):
    """An array of Python objects, which only unpickling could read."""


class Header(NamedTuple):
    """The header of a `.npy` file."""

    dtype: np.dtype
    shape: tuple[int, ...]
    fortran: bool
    offset: int  # bytes before the data

    @property
    def data_bytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize

    def check_length(self, size: int, what: str, place: str) -> None:
        """Raise `DataError`, which begins with `what`, unless a place has as many bytes as this header promises."""
        if (promised := self.offset + self.data_bytes) != size:
            raise DataError(f"{what}: its header promises {self.dtype} of shape {self.shape}, {promised} bytes; the {place} has {size}")


def read_header(stream: IO[bytes], what: str) -> Header:
    """Read the header at the start of a stream; raises `DataError` naming `what`, also for an array of objects."""
    magic = stream.read(8)
    if magic not in _LENGTH_BYTES:
        raise DataError(f"{what}: not a .npy array of version 1 or 2: it begins with {magic!r}")
    length = int.from_bytes(stream.read(_LENGTH_BYTES[magic]), "little")
    text = stream.read(length) if length <= _LONGEST_HEADER else b""
    if len(text) != length or b"\\" in text:  # numpy writes no backslash, and Python warns about unknown escapes
        raise DataError(f"{what}: not a .npy array: its header of {length} bytes cannot be read")
    try:
        with _PARSING:
            fields = ast.literal_eval(text.decode("latin-1"))
        dtype, fortran, shape = (fields.pop(key) for key in ("descr", "fortran_order", "shape"))
    except (ValueError, SyntaxError, TypeError, KeyError, AttributeError, MemoryError, RecursionError) as error:
        raise DataError(f"{what}: not a .npy array: its header cannot be read ({error})") from error
    if fields or type(fortran) is not bool or type(shape) is not tuple or any(type(side) is not int or side < 0 for side in shape):
        raise DataError(f"{what}: not a .npy array: shape is {shape}, fortran_order {fortran}")
    if type(dtype) is not str or not _DTYPE.fullmatch(dtype):
        kind = PickledObjects if dtype == "|O" else DataError
        raise kind(f"{what}: holds {dtype!r}; use numbers, booleans or text: pickled objects are never read")
    if len(shape) > 32 or math.prod(max(side, 1) for side in shape) * max(np.dtype(dtype).itemsize, 1) >= 2**63:
        raise DataError(f"{what}: its shape, {shape}, is beyond any memory")
    return Header(np.dtype(dtype), shape, fortran, stream.tell())


def regular_size(path: Path, what: str) -> int:
    """Return the size of a regular file in bytes; raises `DataError` for anything else (reading a pipe could block)."""
    try:
        status = os.stat(path)
    except (OSError, ValueError) as error:
        raise DataError(f"{what}: cannot be read: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(status.st_mode):
        raise DataError(f"{what}: is not a regular file")
    return status.st_size


def open_npy(path: Path, what: str) -> np.ndarray:
    """Open the array of a `.npy` file as a read-only memmap; raises `DataError` naming `what`."""
    size = regular_size(path, what)
    try:
        with open(path, "rb") as stream:
            header = read_header(stream, what)
    except OSError as error:
        raise DataError(f"{what}: cannot be read: {error.strerror}") from error
    header.check_length(size, what, "file")
    if header.fortran and len(header.shape) > 1:
        raise DataError(f"{what}: is stored by columns; use an array stored by rows")
    return sound(_mapped(path, header, header.offset), what)


def _mapped(file: Path | IO[bytes], header: Header, offset: int) -> np.ndarray:
    if header.data_bytes == 0:  # an empty file cannot be mapped
        return np.empty(header.shape, header.dtype)
    order = "F" if header.fortran else "C"
    if isinstance(file, Path):
        return map_file(file, header.dtype, header.shape, offset, order)
    return np.memmap(file, header.dtype, "r", offset, header.shape, order)  # type: ignore[call-overload, no-any-return]


def sound(array: np.ndarray, what: str) -> np.ndarray:
    """Return the array if booleans are 0 or 1 and text consists of Unicode code points; raises `DataError` otherwise."""
    kind = array.dtype.kind
    if kind == "b" and array.size and array.view(np.uint8).max() > 1:
        place = int(np.flatnonzero(array.view(np.uint8).ravel() > 1)[0])
        raise DataError(f"{what}: entry {place} is no boolean")
    if kind == "U" and array.size and array.dtype.itemsize:
        points = np.ascontiguousarray(array).reshape(-1).view(array.dtype.byteorder.replace("|", "=") + "u4")
        if len(wrong := np.flatnonzero((points > 0x10FFFF) | ((points >= 0xD800) & (points < 0xE000)))):
            raise DataError(f"{what}: entry {int(wrong[0]) // (array.dtype.itemsize // 4)} is no text")
    return array


class Archive(AbstractContextManager["Archive"]):
    """A reader of the arrays of an `.npz` file, one at a time, in a ``with`` statement; its `DataError` names the file and the array."""

    def __init__(self, path: Path) -> None:
        self.path = path
        regular_size(path, path.name)
        try:
            self._zip = zipfile.ZipFile(path)
            members = self._zip.infolist()
        except _BROKEN_ZIP as error:
            raise DataError(f"{path.name}: not an .npz archive: {error}") from error
        self._members = {info.filename.removesuffix(".npy"): info for info in members}
        if len(self._members) < len(members):
            raise DataError(f"{path.name}: holds two arrays of one name")

    def __exit__(self, *_: object) -> None:
        self._zip.close()

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._members)

    def __contains__(self, name: str) -> bool:
        return name in self._members

    def read(self, name: str, scratch: Path | None = None) -> np.ndarray:
        """Read one array and verify its checksum.

        With a folder for `scratch` the array is mapped from its file, or, if it is compressed, from an unnamed file in that folder.
        A mapped array may be unaligned, so copy it before use.
        """
        what = f"{self.path.name}: {name}"
        if name not in self._members:
            raise DataError(f"{what}: there is no such array; it has {', '.join(self.names) or 'none'}")
        info = self._members[name]
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"{what}: is compressed by an unknown method; use numpy.savez or numpy.savez_compressed")
        try:
            with self._zip.open(info) as stream:
                header = read_header(stream, what)
                header.check_length(info.file_size, what, "archive")
                if scratch is not None and info.compress_type == zipfile.ZIP_STORED:
                    return sound(self._map(info, header, what), what)
                if scratch is not None:
                    return sound(_inflated(stream, header, scratch, what), what)
                flat = np.empty(math.prod(header.shape), header.dtype)
                _fill(flat, stream, what)
        except DataError:
            raise
        except _BROKEN_ZIP as error:
            raise DataError(f"{what}: cannot be read: {error or type(error).__name__}") from error
        return sound(flat.reshape(header.shape, order="F" if header.fortran else "C"), what)

    def _map(self, info: zipfile.ZipInfo, header: Header, what: str) -> np.ndarray:
        with open(self.path, "rb") as stream:
            stream.seek(info.header_offset + 26)  # the lengths of the name and of the extra field, before the data
            name_bytes, extra_bytes = struct.unpack("<HH", stream.read(4))
            start = info.header_offset + 30 + name_bytes + extra_bytes
            stream.seek(start)
            crc, left = 0, info.file_size
            while left and (piece := stream.read(min(left, _PIECE))):
                crc, left = zlib.crc32(piece, crc), left - len(piece)
        if left or crc != info.CRC:
            raise DataError(f"{what}: cannot be read: bad CRC-32")
        return _mapped(self.path, header, start + header.offset)


def _inflated(stream: IO[bytes], header: Header, scratch: Path, what: str) -> np.ndarray:
    """Write the rest of a stream to an unnamed file and map it as an array; the file is deleted with the array."""
    with tempfile.TemporaryFile(dir=scratch) as file:
        shutil.copyfileobj(stream, file, _PIECE)
        if file.tell() != header.data_bytes:
            raise DataError(f"{what}: ends after {file.tell()} of {header.data_bytes} bytes")
        file.flush()
        return _mapped(file, header, 0)


def _fill(flat: np.ndarray, stream: IO[bytes], what: str) -> None:
    """Read exactly the bytes of `flat`, and then to the end of the stream, where zipfile compares checksums."""
    if flat.nbytes:
        room = flat.view(np.uint8)
        done = 0
        while done < len(room):
            piece = stream.read(min(_PIECE, len(room) - done))
            if not piece:
                raise DataError(f"{what}: ends after {done} of {len(room)} bytes")
            room[done : done + len(piece)] = np.frombuffer(piece, np.uint8)
            done += len(piece)
    if stream.read(1):
        raise DataError(f"{what}: continues after its last entry")


def save_sealed(path: Path, arrays: Mapping[str, np.ndarray], store: str = "") -> None:
    """Write an `.npz` file with a hash, completely or not at all. Raises `UsageError` if it cannot be written.

    `store` is the digest of the store that the file belongs to, in hexadecimal digits; empty for a file that belongs to none.
    """
    save_npz(path, sealed({**arrays, _STORE: np.frombuffer(bytes.fromhex(store), np.uint8)} if store else arrays))


def sealed(arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return the arrays and, as `sha256`, the hash of their names, dtypes, shapes and bytes."""
    total = hashlib.sha256()
    for name, array in sorted(arrays.items()):
        total.update(f"{name} {array.dtype.str} {array.shape}\n".encode())
        total.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return {**arrays, _SEAL: np.frombuffer(total.digest(), np.uint8)}


def read_sealed(path: Path, names: Iterable[str], writer: str, store: Callable[[], str] | None = None) -> dict[str, np.ndarray]:
    """Read arrays that `save_sealed` wrote, and compare them with their hash. `names` are all arrays of the file, except the hash.

    `writer` is the command that writes such a file, for messages. `store` returns the digest of the store beside the file; files of earlier
    versions name no store and are accepted. Raises `DataError` if the file is damaged, lacks an array or the hash, was changed, or belongs
    to another store.
    """
    sweep(path.parent)
    with Archive(path) as archive:
        arrays = {name: archive.read(name) for name in names}
        if _SEAL not in archive:
            raise DataError(f"{path.name}: holds no {_SEAL} of its arrays; write it again with `{writer}`")
        seal = archive.read(_SEAL)
        if store is not None and _STORE in archive:
            arrays[_STORE] = archive.read(_STORE)
    if not np.array_equal(seal, sealed(arrays)[_SEAL]):
        raise DataError(f"{path.name}: was changed after it was written: its arrays do not fit its {_SEAL}; write it again with `{writer}`")
    if store is not None and _STORE in arrays and arrays.pop(_STORE).tobytes().hex() != store():
        raise DataError(f"{path.name}: belongs to another store than the one beside it; write both with `{writer}`")
    return arrays

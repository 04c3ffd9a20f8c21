"""Compile csrc/*.cu to cubins by NVRTC, and keep them in a cache on disk.

CuPy finds NVRTC. It does not compile: its own call of NVRTC flushes small float32 to zero, which would change the rounding of the
quantiser, and its cache ignores headers.
"""

from __future__ import annotations

import hashlib
import os
import struct
import tempfile
import warnings
from functools import cache
from pathlib import Path

from ..sources import kernel_directory

FORMAT = 2  # of the files in the cache; 1 was a byte short
_EMPTY_ON_DISK = 8  # SHT_NOBITS: a section without bytes in the file


def options(architecture: str) -> list[str]:
    """Return the options of NVRTC: numbers are rounded as on the host, and lines of the source stay in the cubin for profilers."""
    return ["-std=c++17", "--fmad=false", "--ftz=false", "-lineinfo", f"-I{kernel_directory()}", f"-arch=sm_{architecture}"]


def compiled(file: Path, architecture: str) -> Path:
    """Return the cubin of a .cu file; compile it unless the cache of this user holds it intact.

    The name of a cubin ends with the digest of its bytes, so a damaged one is found, and compiled again. Raises `RuntimeError` if NVRTC
    refuses the file; the message holds its log.
    """
    from cupy.cuda import nvrtc

    text = [path.read_bytes() for path in (file, *sorted(kernel_directory().glob("*.h")))]
    flags = [option for option in options(architecture) if not option.startswith("-I")]  # a cache may move with its checkout
    sources = b"\0".join([*text, repr((FORMAT, flags, nvrtc.getVersion())).encode()])
    cache_home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    name, folder = f"{file.stem}-{_digest(sources)}", cache_home / "bulksample"
    for entry in sorted(folder.glob(f"{name}-*.cubin")):
        if _is_intact(entry):
            return entry
    code = whole(_machine_code(file, architecture))
    try:
        return _written(code, folder, name)
    except OSError as error:
        warnings.warn(f"compiled kernels are kept for this process only: the cache {folder} cannot be written ({error})", stacklevel=2)
        return _written(code, Path(_folder_of_process().name), name)


def whole(code: bytes) -> bytes:
    """Return a cubin with all its bytes; `getCUBIN` of CuPy strips the last one as if it ended a string.

    The last byte is the highest of a 64-bit number in the last table, an alignment or a size, and therefore zero. Raises `RuntimeError` if
    the length is neither that of the ELF file nor one less.
    """
    sections, tables = _ends(code)
    size = max(sections, tables)
    if len(code) == size - 1 and tables > sections:
        code += b"\0"
    if len(code) != size:
        raise RuntimeError(f"NVRTC's cubin has {len(code)} bytes, and its tables describe {size}; another CuPy or NVRTC may fit")
    return code


def _ends(code: bytes) -> tuple[int, int]:
    """Return the ends of the last section and of the last table of an ELF file of 64 bits."""
    if len(code) < 64 or code[:6] != b"\x7fELF\x02\x01":
        raise RuntimeError(f"NVRTC's cubin is no ELF file of 64 bits: it begins with {code[:6]!r}")
    programs_at, sections_at = struct.unpack_from("<QQ", code, 32)
    program_size, programs, section_size, count = struct.unpack_from("<HHHH", code, 54)
    ends = [64]
    for start in range(sections_at, min(sections_at + count * section_size, len(code) - 63), section_size or 64):
        kind, at, size = (*struct.unpack_from("<I", code, start + 4), *struct.unpack_from("<QQ", code, start + 24))
        ends.append(0 if kind == _EMPTY_ON_DISK else at + size)
    return max(ends), max(programs_at + programs * program_size, sections_at + count * section_size)


def _machine_code(file: Path, architecture: str) -> bytes:
    """Compile a file by NVRTC."""
    from cupy.cuda import nvrtc

    program = nvrtc.createProgram(file.read_text(encoding="utf-8"), file.name, [], [])
    try:
        nvrtc.compileProgram(program, options(architecture))
        return bytes(nvrtc.getCUBIN(program))
    except RuntimeError as error:
        raise RuntimeError(f"NVRTC refuses {file.name} for sm_{architecture}: {nvrtc.getProgramLog(program)}") from error
    finally:
        nvrtc.destroyProgram(program)


@cache
def _folder_of_process() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bulksample-")


def _written(code: bytes, folder: Path, name: str) -> Path:
    """Write a file of the cache in one step; ranks may do so at the same time."""
    folder.mkdir(parents=True, exist_ok=True)
    entry = folder / f"{name}-{_digest(code)}.cubin"
    with tempfile.TemporaryDirectory(dir=folder, prefix=f".{name}-") as scratch:
        part = Path(scratch) / entry.name
        part.write_bytes(code)
        part.replace(entry)
    return entry


def _is_intact(entry: Path) -> bool:
    """True if the digest in the name of a cubin matches its bytes."""
    try:
        return entry.stem.endswith(_digest(entry.read_bytes()))
    except OSError:
        return False


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:32]

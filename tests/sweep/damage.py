"""Ways to damage a file: its bytes, or what stands in its place. Each is a function of a random generator and nothing else."""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path


def flip(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)


def flip_in_head(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(min(len(data), 128))] ^= 1 << rng.randrange(8)


def replace_byte(data: bytearray, rng: random.Random) -> None:
    data[rng.randrange(len(data))] = rng.randrange(256)


def zero(data: bytearray, rng: random.Random) -> None:
    begin, end = _piece(data, rng)
    data[begin:end] = bytes(end - begin)


def swap(data: bytearray, rng: random.Random) -> None:
    """Exchange two pieces of equal length."""
    size = rng.randint(1, max(1, len(data) // 4))
    first = rng.randrange(max(1, len(data) // 2 - size + 1))
    second = rng.randrange(first + size, max(first + size + 1, len(data) - size + 1))
    data[first : first + size], data[second : second + size] = data[second : second + size], data[first : first + size]


def remove(data: bytearray, rng: random.Random) -> None:
    begin, end = _piece(data, rng)
    del data[begin:end]


def repeat(data: bytearray, rng: random.Random) -> None:
    begin, end = _piece(data, rng)
    data[begin:begin] = data[begin:end]


def cut(data: bytearray, rng: random.Random) -> None:
    del data[rng.randrange(len(data)) :]


def cut_tail(data: bytearray, rng: random.Random) -> None:
    del data[-rng.randint(1, min(len(data), 64)) :]


def extend(data: bytearray, rng: random.Random) -> None:
    data += rng.randbytes(rng.randint(1, 600))


def noise(data: bytearray, rng: random.Random) -> None:
    data[:] = rng.randbytes(len(data))


def _piece(data: bytearray, rng: random.Random) -> tuple[int, int]:
    begin = rng.randrange(len(data))
    return begin, min(len(data), begin + rng.randint(1, 64))


def gone(path: Path) -> None:
    path.unlink()


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def dead_link(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


def link_out(path: Path) -> None:
    """Put a link to a whole copy outside the folder in place of the file."""
    copy = path.parent.parent / f"copy of {path.name}"
    shutil.move(path, copy)
    path.symlink_to(copy)


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


BYTES = {
    action.__name__: action for action in (flip, flip_in_head, replace_byte, zero, swap, remove, repeat, cut, cut_tail, extend, noise)
}  # fmt: skip
FILES = {action.__name__: action for action in (gone, empty, folder, pipe, dead_link, link_out, link_to_itself)}


def apply(name: str, path: Path, rng: random.Random) -> None:
    """Damage a file; bytes always change."""
    if name in FILES:
        FILES[name](path)
        return
    whole = path.read_bytes()
    path.write_bytes(damaged(name, whole, rng))


def damaged(name: str, whole: bytes, rng: random.Random) -> bytes:
    """Return damaged bytes, which differ from the whole ones."""
    for _ in range(100):
        data = bytearray(whole)
        BYTES[name](data, rng)
        if data != whole:
            return bytes(data)
    data = bytearray(whole)  # such as zeros that were zeroed
    flip(data, rng)
    return bytes(data)

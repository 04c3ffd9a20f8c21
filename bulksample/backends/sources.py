"""Find the CUDA sources, and the headers that they share with the CPU back end."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path


def kernel_directory() -> Path:
    """Return the folder of csrc/'s headers and kernels, in or beside the package; FileNotFoundError is raised if neither holds them."""
    package = Path(__file__).parents[1]
    places = (package / "csrc", package.parent / "csrc")
    for directory in places:
        if (directory / "philox.h").is_file():
            return directory
    raise FileNotFoundError(f"the kernel sources are neither in {places[0]} nor in {places[1]}; install bulksample again")


def native_digest(directory: Path) -> str:
    """Return the first 16 hex digits of the SHA-256 of the native sources and the headers that they include; setup.py compiles them in."""
    made, files, left = hashlib.sha256(), set[Path](), [*directory.glob("native*.cpp"), *directory.glob("unit_*.cpp")]
    while left:
        files.add(file := left.pop())
        included = {directory / name for name in re.findall(r'^#include "(\w+\.h)"', file.read_text(encoding="utf-8"), re.MULTILINE)}
        left += included - files
    for file in sorted(files):
        made.update(f"{file.name} {file.stat().st_size} ".encode() + file.read_bytes())
    return made.hexdigest()[:16]

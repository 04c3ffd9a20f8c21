"""Build the native extension with the sanitizers of g++, in a folder of its own: the installed extension stays as it is.

ThreadSanitizer does not know the barriers of libgomp, so its build has no OpenMP: threads of the standard library take its place, and no
report is suppressed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sysconfig
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from emulation.host import compiler

from bulksample.backends.sources import kernel_directory

BUILT = Path(__file__).resolve().parents[2] / "build" / "sanitizers"
FLAGS = ["-std=c++17", "-O1", "-g1", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra"]
SANITIZERS = {
    "address": [  # accesses through null and beyond objects are ASan's to find: UBSan's checks of them double the time of the compiler
        "-fsanitize=address,undefined",
        "-fno-sanitize=null,object-size,vptr",
        "-fno-sanitize-recover=all",
        "-D_GLIBCXX_ASSERTIONS",
        "-fopenmp",
    ],
    "thread": ["-fsanitize=thread"],
}
RUNTIMES = {"address": "libasan.so", "thread": "libtsan.so"}


def missing(sanitizer: str) -> str:
    """Say what a sanitizer needs and this machine lacks; nothing if it can be used."""
    if compiler() is None:
        return "there is no C++ compiler: install g++, or name one in CXX"
    if not runtime(sanitizer).is_absolute():
        return f"{compiler()} has no {RUNTIMES[sanitizer]}"
    if sanitizer == "thread" and shutil.which("setarch") is None:
        return "there is no setarch, which fixes the addresses for ThreadSanitizer: install util-linux"
    return "" if _headers() else "there are no headers of pybind11: pip install pybind11"


@cache
def runtime(sanitizer: str) -> Path:
    """Return the library that Python needs to have preloaded; a bare name if the compiler has none."""
    asked = [str(compiler()), f"-print-file-name={RUNTIMES[sanitizer]}"]
    return Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())


def _headers() -> Path | None:
    """Return the headers of pybind11, which torch brings as well."""
    for package, folder in (("pybind11", "include"), ("torch", "include")):
        found = find_spec(package)
        if found and found.origin and (Path(found.origin).parent / folder / "pybind11" / "pybind11.h").exists():
            return Path(found.origin).parent / folder
    return None


@cache
def extension(sanitizer: str) -> Path:
    """Return the extension built with a sanitizer, compiled once for each state of the sources.

    Raises
    ------
    RuntimeError
        If `missing` says why not, or the compiler fails.
    """
    if missing(sanitizer):
        raise RuntimeError(missing(sanitizer))
    files = sorted([*kernel_directory().glob("*.cpp"), *kernel_directory().glob("*.h")])
    flags = [*FLAGS, *SANITIZERS[sanitizer]]
    key = hashlib.sha256(b"\0".join([repr(flags).encode(), *(path.read_bytes() for path in files)])).hexdigest()[:16]
    folder = BUILT / f"{sanitizer}-{key}"
    built = folder / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    if not built.exists():
        folder.mkdir(parents=True, exist_ok=True)
        includes = [f"-I{path}" for path in (kernel_directory(), _headers(), sysconfig.get_paths()["include"])]
        objects = []
        for source in (path for path in files if path.match("unit_*.cpp")):
            objects.append(folder / f"{source.stem}.o")
            _compile([*flags, *includes, "-c", source, "-o", objects[-1]])
        made = folder / f"made.{os.getpid()}"
        _compile([*flags, "-shared", *objects, "-o", made])
        made.replace(built)
    return built


def _compile(arguments: list[str | Path]) -> None:
    done = subprocess.run([str(compiler()), *arguments], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"the compiler fails: {done.stderr[-2000:]}")

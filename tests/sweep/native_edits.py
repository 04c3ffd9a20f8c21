"""Edits of the C++ behind the native back end, and the extension compiled from a copy that holds one.

Constants that decide speed alone, preprocessor lines, tables of numbers, bindings and messages stay. Code in `#if` branches of
other compilers stays as well.
"""

from __future__ import annotations

import re
import subprocess
import sysconfig
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from .line_tests import ROOT
from .mutant import Edit

BUILD = ROOT / "build" / "sweep" / "native"
FLAGS = ("-std=c++17", "-O1", "-fopenmp", "-fPIC", "-fvisibility=hidden", "-w")
TOKENS = {
    r" < ": [" <= "], r" <= ": [" < "], r" > ": [" >= "], r" >= ": [" > "], r" == ": [" != "], r" != ": [" == "], r" && ": [" || "],
    r" \|\| ": [" && "], r" \+ ": [" - "], r" - ": [" + "], r" \* ": [" + "], r" / ": [" * "], r" >> ": [" << "], r" << ": [" >> "],
    r" & ": [" | "], r" \| ": [" & "], r" \^ ": [" & "], r" \+= ": [" -= ", " = "], r" \|= ": [" = "],
    r"\btrue\b": ["false"], r"\bfalse\b": ["true"],
    r"\bstd::min\b": ["std::max"], r"\bstd::max\b": ["std::min"], r"\bcontinue;": ["break;"], r"\bbreak;": ["continue;"],
    r"(?<=if \()(?=[\w!])": ["0 && "],
}  # fmt: skip
NUMBER = re.compile(r"(?<![\w.\"])(\d{1,9})(?=(?:u|ull)?\b)(?!\.)")
LEFT_ALONE = re.compile(
    r"^\s*(#|//|\*|throw|static_assert|template|m\.def|py::arg|using|typedef|extern|\d[\d, u]*l*,|.*\\$)"
    r"|py::arg|throw |foretell|prefetch|_Pragma|__attribute__|constexpr [\w:]+ [A-Z_]+ ="
)
FUNCTION = re.compile(r"^(?:\w[\w:<>,*&\s]*?[\s*&])?(\w+)\([^;]*$")


def files() -> list[str]:
    """Return the files of which the extension is made, but for the bindings alone."""
    inside = {name for unit in sources() for name in included(unit)}
    return sorted(inside - {"csrc/native.cpp", "csrc/host_device.h"})


def edits(source: str) -> list[Edit]:
    """Return all edits of a file, in the order of its text."""
    return sorted(_found(source))


def _found(source: str) -> Iterator[Edit]:
    at, where = 0, ""
    for number, line in enumerate(source.splitlines(keepends=True), 1):
        code = line.partition("//")[0]
        if (head := FUNCTION.match(code)) and not code.startswith((" ", "#")):
            where = head[1]
        if not LEFT_ALONE.search(line.rstrip("\n")):
            for start, end, new in _changes(code):
                yield Edit(at, at + len(code), code, code[:start] + new + code[end:], where, number, number, number)
        at += len(line)


def _changes(code: str) -> Iterator[tuple[int, int, str]]:
    """Yield the places of tokens in a line and what replaces them."""
    for token, others in TOKENS.items():
        for hit in re.finditer(token, code):
            yield from ((hit.start(), hit.end(), other) for other in others)
    for hit in NUMBER.finditer(code):
        yield hit.start(), hit.end(), str(int(hit[1]) + 1)


@cache
def sources() -> tuple[str, ...]:
    """Return the files of the extension, which are compiled one by one here, so that a mutant compiles one."""
    return tuple(sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("csrc/native*.cpp")))


def _compiler() -> list[str]:
    import pybind11

    return ["g++", *FLAGS, f"-I{pybind11.get_include()}", f"-I{sysconfig.get_paths()['include']}"]


@cache
def included(file: str) -> frozenset[str]:
    """Return the files of csrc/ that a file includes, itself among them."""
    direct = [f"csrc/{name}" for name in re.findall(r'^#include "(\w+\.h)"', (ROOT / file).read_text(), re.MULTILINE)]
    return frozenset([file]).union(*map(included, direct))


def build(file: str, text: str) -> Path | str:
    """Return an extension in which a file has another text, or the first error of the compiler.

    Objects of units that do not include the file are made once.
    """
    work = BUILD / "mutant"
    (work / "csrc").mkdir(parents=True, exist_ok=True)
    for path in ROOT.glob("csrc/*.h"):
        (work / "csrc" / path.name).write_bytes(path.read_bytes())
    for unit in sources():
        (work / unit).write_bytes((ROOT / unit).read_bytes())
    (work / file).write_text(text)
    with ThreadPoolExecutor(2) as pool:
        made = list(pool.map(lambda unit: _object(work if file in included(unit) else ROOT, unit, file in included(unit)), sources()))
    if refused := [one for one in made if isinstance(one, str)]:
        return refused[0]
    objects = [str(one) for one in made]
    extension = BUILD / f"_native{sysconfig.get_config_var('EXT_SUFFIX')}"
    extension.unlink(missing_ok=True)
    subprocess.run(["g++", "-shared", "-fopenmp", "-o", str(extension), *objects], check=True)
    return extension


def _object(root: Path, unit: str, changed: bool) -> Path | str:
    """Compile a unit; an object of unchanged sources is taken again if it is newer than all of them."""
    target = BUILD / ("mutant" if changed else "whole") / f"{Path(unit).stem}.o"
    target.parent.mkdir(parents=True, exist_ok=True)
    newest = max((ROOT / one).stat().st_mtime for one in included(unit))
    if not changed and target.exists() and target.stat().st_mtime > newest:
        return target
    done = subprocess.run([*_compiler(), "-c", unit, "-o", str(target.resolve())], cwd=root, capture_output=True, text=True)
    return done.stderr.splitlines()[0] if done.returncode else target

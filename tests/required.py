"""Parts of an installation that a run of the tests can insist on: ``BULKSAMPLE_REQUIRE=native,emulated,mpirun``.

A test skips where a part is missing. Where the variable names the part, the whole run fails at once and says why.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping

import pytest
from emulation.host import compiler, library
from launch import MPIRUN

from bulksample import backends

VARIABLE = "BULKSAMPLE_REQUIRE"


def native() -> str:
    return "" if "native" in backends.available() else str(backends.why_not("native"))


def emulated() -> str:
    """Compile the kernels for the host, which later tests use."""
    if compiler() is None:
        return "there is no C++ compiler: install g++, or name one in CXX"
    try:
        library()
    except (subprocess.SubprocessError, OSError) as error:
        return f"the kernels do not compile for the host: {error}"
    return ""


def mpirun() -> str:
    return "" if MPIRUN else "there is no mpirun: pip install mpich brings one"


PARTS = {"native": native, "emulated": emulated, "mpirun": mpirun}  # each says why it is missing, or nothing


def check(environment: Mapping[str, str] = os.environ) -> None:
    """Raise a usage error of pytest if a part that the environment requires is missing, or is none."""
    asked = [word.strip() for word in environment.get(VARIABLE, "").split(",") if word.strip()]
    for word in asked:
        if word not in PARTS:
            raise pytest.UsageError(f"{VARIABLE} names parts of an installation: got {word!r}; use {', '.join(PARTS)}")
        if missing := PARTS[word]():
            raise pytest.UsageError(f"{VARIABLE} requires {word}: {missing}")

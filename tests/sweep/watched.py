"""Run operations of several threads, or all emulated kernels on a graph, in a process that a sanitizer watches.

python -m sweep.watched native OPERATION        with the extension that SANITIZED_EXTENSION names
python -m sweep.watched emulated GRAPH
"""

from __future__ import annotations

import sys

from bulksample import backends

REPEATED = 3  # threads meet in another order each time


def native(name: str) -> str:
    """Run an operation by four threads, and compare its digest with that of the reference back end."""
    from . import sanitized_plugin  # noqa: F401  # takes the place of the installed extension
    from .operations import PARALLEL

    expected, backend = PARALLEL[name](backends.make("reference")), backends.make("native", 4)
    return "1 passed" if all(PARALLEL[name](backend) == expected for _ in range(REPEATED)) else "another result"


def emulated(graph: str) -> str:
    """Run every kernel on a graph of the zoo; `run_all` compares the samples."""
    from emulation.every_kernel import run_all
    from emulation.host import emulated

    run_all(lambda: emulated(0, True), [graph])
    return "1 passed"


if __name__ == "__main__":
    print({"native": native, "emulated": emulated}[sys.argv[1]](sys.argv[2]))

"""The back ends that tests run on, by name: those that users have, and the CUDA kernels compiled for the host."""

import pytest
from emulation.host import compiler, emulated

from bulksample import backends

ALL = ["reference", "native", "emulated", pytest.param("cuda", marks=pytest.mark.cuda)]
HELD_AGAINST_THE_REFERENCE = ["native 1", "native 2", "native 4", "emulated 0", "emulated 3", pytest.param("cuda", marks=pytest.mark.cuda)]
QUICK = ("random", "weighted", "star", "single")  # graphs of the zoo on which an emulated device is tested every time


def engine(name):
    """The back end called `name`, with the threads or the schedule that follow it; skips where it cannot run."""
    name, _, number = name.partition(" ")
    if name == "emulated":
        if compiler() is None:
            pytest.skip("the kernels are compiled for the host by g++, and there is none")
        return emulated(int(number or 0))
    if name not in backends.available():
        pytest.skip(f"{name}: {backends.why_not(name)}")
    return backends.make(name, int(number) if number else None)


def too_much_to_emulate(item):
    """Whether a test runs an emulated device on a graph, or on rows, that the quick set leaves out."""
    parameters = getattr(item, "callspec", None)
    if parameters is None:
        return False
    names = [str(parameters.params.get(fixture, "")) for fixture in ("backend", "fast")]
    much = parameters.params.get("matrix", QUICK[0]) not in QUICK or item.get_closest_marker("heavy")
    return bool(much) and any(name.startswith("emulated") for name in names)

"""The back ends that tests run on, by name: those that users have, and the CUDA kernels compiled for the host."""

import pytest
from battery import frontiers, needs_weights
from emulation.host import compiler, emulated
from sweeps import SWEEP
from zoo import ZOO

from bulksample import backends

ALL = ["reference", "native", "emulated", pytest.param("cuda", marks=pytest.mark.cuda)]
HELD_AGAINST_THE_REFERENCE = ["native 1", "native 2", "native 4", "emulated 0", "emulated 3", pytest.param("cuda", marks=pytest.mark.cuda)]
REPEATED = ("emulated 3", "native 4")  # another schedule, more threads: run with the long tests
EMULATED = ("sage", "labor", "ladies", "fastgcn", "full")  # settings of samplers that an emulated device draws in short tests
EVERYWHERE = ("native", "native 2")  # the native back end of two threads: short on every graph and rule
QUICK = ("random", "weighted", "star", "single")  # graphs of the zoo on which every back end is tested in short tests


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


def is_long(item):
    """True if a test belongs to the long ones by its parameters: beyond `QUICK` graphs only `native` of two threads is short.

    Other engines then take the two rules of the frontier in turn from graph to graph. On rows marked ``heavy`` an emulated device is
    long on every graph, and so are `REPEATED` engines and, emulated, the settings beyond `EMULATED`.
    """
    parameters = getattr(item, "callspec", None)
    if parameters is None:
        return False
    engines, graph = _engines(parameters), parameters.params.get("matrix", QUICK[0])
    if item.get_closest_marker("heavy") and any(name.startswith("emulated") for name in engines):
        return True
    if any(name in REPEATED for name in engines):
        return True
    if parameters.params.get("setting", EMULATED[0]) not in EMULATED and "emulated" in engines:
        return True
    if all(name in EVERYWHERE for name in engines):
        return False
    rules = [parameters.params[name] in ("new", True) for name in ("frontier", "only_new") if name in parameters.params]
    return graph not in QUICK or (rules != [] and "matrix" in parameters.params and rules[0] != (graph in QUICK[1::2]))


def _engines(parameters):
    return [str(parameters.params[fixture]) for fixture in ("backend", "fast") if fixture in parameters.params]


def is_wanted(item):
    """True unless only a sweep asks for a test: on graphs beyond `QUICK`, of engines that are neither the native one nor a GPU."""
    parameters = getattr(item, "callspec", None)
    if parameters is None or SWEEP > 1 or parameters.params.get("matrix", QUICK[0]) in QUICK:
        return True
    return all(name.startswith(("native", "cuda")) for name in _engines(parameters))


def has_meaning(item):
    """True unless a test asks for weighted sampling of a graph without weights, or for a rule that a sampler does not read."""
    asked = getattr(getattr(item, "callspec", None), "params", {})
    if not {"setting", "matrix"} <= asked.keys():
        return True
    if asked.get("frontier", "all") not in frontiers(asked["setting"]):
        return False
    return ZOO[asked["matrix"]].values is not None or not needs_weights(asked["setting"])

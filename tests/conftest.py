"""One fixture runs a test on every back end present; the zoo holds the graphs on which samplers go wrong."""

from __future__ import annotations

import json
import os
import signal
import tempfile

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # tests run side by side: a thread that waits is not to spin on their processors
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")  # typer sets and deletes it unless set, which commands on threads do at once
os.environ.pop("PYTHONUNBUFFERED", None)  # it cuts a printed line in two writes, between which another rank may print

import first_collection
import pytest
import quick
import random_order
import required
import torch
from communities import community_graph
from engines import ALL, HELD_AGAINST_THE_REFERENCE, engine, has_meaning, is_long, is_wanted
from hypothesis import HealthCheck, settings
from waiting import LONGEST, PATIENCE
from zoo import ZOO

from bulksample import LocalAdjacency, backends
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads

torch.set_num_threads(1)  # results must not depend on who else is busy
on_threads.__defaults__ = (PATIENCE,)  # seconds that a rank waits for the others

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell without job control starts what runs in the background so
    signal.signal(signal.SIGINT, signal.default_int_handler)

COUNTS = json.loads(quick.KEPT.read_text())  # tests of which some cases are long, as measured

pytest_plugins = ["times", "chosen", "watchdog"]

CACHE = tempfile.TemporaryDirectory()
os.environ.setdefault("MPLCONFIGDIR", os.path.expanduser("~/.cache/matplotlib"))  # its cache of fonts is slow to make

KINDS = {
    "plain": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True}, "wide": {"width": 40}, "small": {"n": 40},
    "tiny": {"n": 5, "classes": 2},
}  # fmt: skip

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    config.pluginmanager.register(random_order)
    if config.option.markexpr != "cuda":  # whose kernels are compiled once, not by each worker
        os.environ["XDG_CACHE_HOME"] = CACHE.name  # also of the processes that tests start
    if getattr(config.option, "timeout", 0) is None and "PYTEST_TIMEOUT" not in os.environ:
        config.option.timeout = LONGEST
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(first_collection)
    else:  # once, before the workers of pytest-xdist start
        required.check()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark what is long; leave out combinations without a meaning or for a sweep alone and, without ``-m cuda``, tests that need a GPU."""
    for item in items:
        if is_long(item):
            item.add_marker(pytest.mark.long)
    on_cards = "cuda" in config.option.markexpr
    kept = [item for item in items if has_meaning(item) and is_wanted(item) and (on_cards or not item.get_closest_marker("cuda"))]
    keeps = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in keeps])
    items[:] = kept
    beyond = quick.others([item.nodeid for item in items if not item.get_closest_marker("long")], COUNTS)
    for item in items:
        if item.nodeid in beyond:
            item.add_marker(pytest.mark.long(measured=True))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    torch.manual_seed(0)  # what a test draws from torch's own generator does not depend on the tests before it


@pytest.fixture(params=ALL)
def backend(request):
    return engine(request.param)


@pytest.fixture(params=HELD_AGAINST_THE_REFERENCE)
def fast(request):
    return engine(request.param)


@pytest.fixture(scope="session")
def reference():
    return backends.make("reference")


@pytest.fixture(params=ZOO)
def matrix(request):
    return ZOO[request.param]


@pytest.fixture
def adjacency(matrix, backend):
    return LocalAdjacency(matrix, backend)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A folder with a store of every kind."""
    folder = tmp_path_factory.mktemp("graphs")
    for name, kind in KINDS.items():
        store.save(community_graph(**kind), folder / name)
    return folder

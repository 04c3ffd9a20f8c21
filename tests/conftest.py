"""One fixture runs a test on every back end present; the zoo holds the graphs on which samplers go wrong."""

from __future__ import annotations

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # tests run side by side: a thread that waits is not to spin on their processors

import pytest
from engines import ALL, HELD_AGAINST_THE_REFERENCE, engine, too_much_to_emulate
from hypothesis import HealthCheck, settings
from zoo import ZOO

from bulksample import LocalAdjacency, backends

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if too_much_to_emulate(item):
            item.add_marker(pytest.mark.slow)


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

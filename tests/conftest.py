"""One fixture runs a test on every back end present; the zoo holds the graphs on which samplers go wrong."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from zoo import ZOO

from bulksample import LocalAdjacency, backends

settings.register_profile("steady", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("steady")


@pytest.fixture(params=["reference", "native"])
def backend(request):
    if request.param not in backends.available():
        pytest.skip(f"{request.param}: {backends.native.unavailable_because()}")
    return backends.make(request.param)


@pytest.fixture(scope="session")
def reference():
    return backends.make("reference")


@pytest.fixture(params=ZOO)
def matrix(request):
    return ZOO[request.param]


@pytest.fixture
def adjacency(matrix, backend):
    return LocalAdjacency(matrix, backend)

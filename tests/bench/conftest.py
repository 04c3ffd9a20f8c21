"""The emulated device on which the sections for a GPU are rehearsed."""

import pytest
from gpu import graphs, kernels, place, repeated


@pytest.fixture
def rehearsal(monkeypatch):
    """The place of sections is an emulated device."""
    cached = (place.here, graphs.graphs, kernels._architecture, repeated._cuda)
    monkeypatch.setenv("REHEARSE", "1")
    for function in cached:
        function.cache_clear()
    yield place.here()
    place.here().close()
    for function in cached:
        function.cache_clear()

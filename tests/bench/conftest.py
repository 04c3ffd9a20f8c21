"""Give tests the emulated device on which the sections for a GPU are rehearsed."""

import pytest
from gpu import hardware, inputs, kernels, repeated


@pytest.fixture
def rehearsal(monkeypatch):
    """Run sections on an emulated device."""
    cached = (hardware.this_gpu, inputs.products, inputs.skewed, kernels._architecture, repeated._cuda)
    monkeypatch.setenv("REHEARSE", "1")
    for function in cached:
        function.cache_clear()
    yield hardware.this_gpu()
    hardware.this_gpu().close()
    for function in cached:
        function.cache_clear()

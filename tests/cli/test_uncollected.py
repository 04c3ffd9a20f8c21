"""Imports run without garbage collection, and the collector is as before afterwards."""

import gc
from contextlib import suppress

import pytest

from bulksample.cli.process import gc_paused


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_stops_within_the_block_alone(enabled):
    (gc.enable if enabled else gc.disable)()
    frozen = gc.get_freeze_count()
    try:
        with suppress(ImportError), gc_paused():
            assert not gc.isenabled()
            made = [[] for _ in range(1000)]
            raise ImportError("missing")
        assert gc.isenabled() == enabled
        assert gc.get_freeze_count() >= frozen + len(made)
    finally:
        gc.unfreeze()
        gc.enable()

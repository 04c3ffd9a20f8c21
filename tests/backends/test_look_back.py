"""Prefix sums and numbering in one pass over many tiles, with blocks that run in any order and wait for each other."""

import numpy as np
import pytest
from emulation.host import compiler, emulated
from oracles import assert_identical

from bulksample import Selection
from bulksample.backends.cuda.device import SCANNED
from bulksample.backends.cuda.tables import STRUCTURES

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
ORDERS = [0, 3, *(4 | seed << 4 for seed in range(3))]  # forwards, backwards and interleaved, several blocks at once


@pytest.mark.parametrize("schedule", ORDERS)
@pytest.mark.parametrize("n", [0, 1, SCANNED - 1, SCANNED, 40 * SCANNED + 17])
def test_pointers_are_prefix_sums(n, schedule):
    """40 tiles: further back than a warp sees at once."""
    device, counts = emulated(schedule).device, np.random.default_rng(n).integers(0, 2**31 - 1, n).astype(np.int32)
    assert (device.get(device.pointers(device.put(counts))) == np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])).all()


@pytest.mark.parametrize("schedule", ORDERS[1:4])
@pytest.mark.parametrize("numbering", STRUCTURES)
def test_numbers_of_many_tiles_are_those_of_the_reference(reference, numbering, schedule):
    """Mini-batches of many tiles, some that begin and end within one, empty ones between, at the ends and at the edges of tiles."""
    rng, n, tile = np.random.default_rng(schedule), 30_000, SCANNED
    lengths = [0, 9 * tile + 5, 3, 0, 0, 40, tile - 48, 2 * tile, 0, 1, 6 * tile, 0]
    known = Selection.of([rng.choice(n, 50 * (j % 3), replace=False) for j in range(len(lengths))], n)
    pointers, columns = np.concatenate([[0], np.cumsum(lengths)]), rng.integers(0, n, sum(lengths)).astype(np.int32)
    engine = emulated(schedule)
    engine.device.numbering = numbering
    got, expected = (one.relabel(known, pointers, columns) for one in (engine, reference))
    assert_identical((got[0].pointers, got[0].vertices, got[1]), (expected[0].pointers, expected[0].vertices, expected[1]))

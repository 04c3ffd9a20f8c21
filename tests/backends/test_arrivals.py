"""Columns that arrive first, for all mini-batches in one launch: those that numpy finds from the random words of each."""

import numpy as np
import pytest
from emulation.host import compiler, emulated

from bulksample import CSR, Stream
from bulksample.samplers.arrivals import SharedRow

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
ROWS = {
    "even": np.full(3000, 2**40), "rising": np.arange(1, 901) * 2**45, "two heavy": np.where(np.arange(700) % 350 == 3, 2**50, 2**40),
    "long": np.random.default_rng(1).integers(1, 2**30, 50_000),
}  # fmt: skip


@pytest.mark.parametrize("schedule", [0, 3, 4])
@pytest.mark.parametrize("name", ROWS)
def test_the_device_finds_the_columns_and_the_time_that_numpy_finds(reference, name, schedule):
    """Few arrivals and many, each column once and often; more mini-batches than blocks; bits of the times as well."""
    weights, ids = ROWS[name], np.arange(11) * 977
    row = SharedRow(CSR(np.array([0, len(weights)]), np.arange(len(weights), dtype=np.int32), weights, (1, len(weights))))
    for s in (0, 1, 5, 127, 128, 300):
        draw = Stream(2**63 + s).layer_draw(layer=2, epoch=3)
        positions, times = emulated(schedule).first_arrivals(row.ends, s, ids, draw)
        expected, at = row._each(reference, s, ids, draw)
        np.testing.assert_array_equal(positions, expected, err_msg=f"s = {s}")
        np.testing.assert_array_equal(times, at, err_msg=f"s = {s}")


def test_a_launch_draws_a_layer_of_all_minibatches_in_the_place_of_words_for_each():
    engine, asked = emulated(), []
    launch = engine.device._launch
    engine.device._launch = lambda name, *more: asked.append(name) or launch(name, *more)
    row = SharedRow(CSR(np.array([0, 900]), np.arange(900, dtype=np.int32), ROWS["rising"], (1, 900)))
    row.draw(engine, 20, np.arange(9), Stream(1).layer_draw())
    assert asked == ["first_arrivals"]

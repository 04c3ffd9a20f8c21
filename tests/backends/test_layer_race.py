"""The race of whole layers on a device: rows that lie in many tiles, ties, any size of keys, and slots in any order."""

import itertools

import numpy as np
import pytest
from emulation.host import compiler, emulated
from oracles import assert_identical

from bulksample import Stream, backends
from bulksample.backends.cuda.draws import LayerEntries, smallest
from bulksample.backends.reference import neg_log2

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
FREE = 0xFFFFFFFF
ENDS = np.cumsum([0, 5000, 0, 7, 0, 2048, 4096, 0])  # rows of no entry, of part of a tile, of whole tiles, and of several
IDS = np.array([3, 9, 4, 1, 7, 2, 5])
DRAW = Stream(6).layer_draw(layer=1)


def rows(weights):
    """Weighted columns of all rows."""
    columns = np.concatenate(
        [np.sort(np.random.default_rng(j).choice(20_000, width, replace=False)) for j, width in enumerate(np.diff(ENDS))]
    )
    return ENDS, columns.astype(np.int32), np.asarray(weights, np.float64)


def tied():
    """Weights for which all keys of a row are the same: those of -log2(u) itself."""
    pointers, columns, _ = rows([])
    words = [backends.make("reference").random_words(DRAW.seed, DRAW.tag, 0, 20_000, 0, int(id)).astype(np.uint64) for id in IDS]
    own = np.concatenate([words[j][columns[a:b]] for j, (a, b) in enumerate(itertools.pairwise(pointers))])
    return pointers, columns, neg_log2(own[:, 1] << np.uint64(32) | own[:, 0]).astype(np.float64)


SIZES = {
    "alike": np.random.default_rng(1).exponential(size=ENDS[-1]),
    "from 1e-120 to 1e120": 10.0 ** np.random.default_rng(2).uniform(-120, 120, ENDS[-1]),
    "few": np.where(np.random.default_rng(3).random(ENDS[-1]) < 0.01, 2.0**40, 0.0),
}


@pytest.mark.parametrize("schedule", [0, 3, 4 | 2 | 5 << 4])
@pytest.mark.parametrize("sizes", SIZES)
def test_rows_over_many_tiles_draw_what_the_reference_draws(reference, sizes, schedule):
    pointers, columns, weights = rows(SIZES[sizes])
    for s in (-1, 0, 1, 100, 2047, 5000):
        got = emulated(schedule).smallest_keys(pointers, columns, weights, s, IDS, DRAW)
        assert_identical(got, reference.smallest_keys(pointers, columns, weights, s, IDS, DRAW), f"s = {s}")


def test_arrays_that_begin_in_the_middle_of_a_word_are_read_entry_by_entry(reference):
    """A part of another array, as what ranks received: 16 bytes at once would be a fault."""
    pointers, columns, weights = rows(SIZES["alike"])
    parts = [np.concatenate([part[:1], part])[1:] for part in (columns, weights)]
    assert parts[0].ctypes.data % 8
    assert parts[1].ctypes.data % 16
    got = smallest(emulated().device, LayerEntries(pointers, *parts), 100, IDS, DRAW, ENDS[-1])
    expected = reference.smallest_keys(pointers, columns, weights, 100, IDS, DRAW)
    count = expected.pointers[-1]
    assert_identical((got.pointers, got.columns[:count], got.inclusion[:count]), expected)


def test_of_equal_keys_the_smaller_columns_are_drawn(reference):
    pointers, columns, weights = tied()
    for s in (1, 1000, 4999):
        got = emulated().smallest_keys(pointers, columns, weights, s, IDS, DRAW)
        own = [np.sort(columns[a:b])[:s] for a, b in itertools.pairwise(pointers)]
        assert_identical(got.columns, np.concatenate(own), f"s = {s}")


@pytest.mark.parametrize("tie", [False, True])
def test_slots_of_sums_in_any_order_draw_the_same_columns(tie):
    """With free slots between them, and sums of zero."""
    pointers, columns, weights = tied() if tie else rows(np.random.default_rng(4).integers(0, 5, ENDS[-1]))
    engine, shuffled, s = emulated(4 | 2), [], 300
    expected = engine.smallest_keys(pointers, columns, weights, s, IDS, DRAW)
    for j, (a, b) in enumerate(itertools.pairwise(pointers)):
        slots, sums = np.full(2 * (b - a), FREE, np.uint32), np.full(2 * (b - a), 0, np.int64)
        places = np.random.default_rng(10 + j).permutation(len(slots))[: b - a]
        slots[places], sums[places] = columns[a:b], weights[a:b]
        shuffled.append((slots, sums))
    slots, sums = (np.concatenate(part) for part in zip(*shuffled, strict=True))
    picks = smallest(engine.device, LayerEntries(2 * pointers, slots, None, sums), s, IDS, DRAW, ENDS[-1])
    assert_identical(picks.pointers, expected.pointers, "pointers")
    for a, b in zip(picks.pointers, picks.pointers[1:], strict=False):
        order = a + np.argsort(picks.columns[a:b])
        assert_identical((picks.columns[order], picks.inclusion[order]), (expected.columns[a:b], expected.inclusion[a:b]), "row")

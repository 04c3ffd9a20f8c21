"""Slots of replies are as long as the reference draws, for every law; rows that draw less leave the end of a slot empty."""

import numpy as np
import pytest
from zoo import ZOO

from bulksample import Selection, Stream
from bulksample.backends.reference import Reference
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.reply_slots import Counted, RowCounts, RowLaw, count_drawable, fill_slots, is_padded, read_slots
from bulksample.rng import Law


def test_which_replies_are_padded():
    assert is_padded(15, 650, 100)  # 2 (1 + 6.5) = 15
    assert not is_padded(15, 649, 100)
    assert is_padded(32, 10**6, 100)
    assert not is_padded(33, 10**6, 100)
    assert not is_padded(-1, 10**6, 100)
    assert is_padded(0, 0, 100)


@pytest.mark.parametrize("name", ["weighted", "skewed"])
@pytest.mark.parametrize("law", list(Law))
def test_slots_are_as_long_as_rows_draw(law, name):
    matrix = ZOO[name]
    n, draw = matrix.shape[0], Stream(5).draw(law, layer=0, epoch=0)
    for fanout in (-1, 0, 1, 7, 40, 300):
        picks = Reference().sample_rows(matrix, Selection.of([np.arange(n)], n), fanout, draw)
        row_law = RowLaw(fanout, law)
        counts = count_drawable(matrix, row_law.reads_weights)
        cut = np.minimum(counts, {1: 255, 2: 2**15 - 1, 4: 2**31 - 1}[row_law.width_of_counts(int(matrix.degrees.max()))])
        np.testing.assert_array_equal(row_law.edges_drawn(cut), np.diff(picks.pointers))


def test_widths_of_counts():
    given = ((255, -1), (256, -1), (10**5, 255), (10**5, 256), (2**15 - 1, -1), (2**15, -1))
    found = [RowLaw(fanout).width_of_counts(longest) for longest, fanout in given]
    assert found == [1, 2, 1, 2, 2, 4]
    assert RowLaw(10**6, Law.WEIGHTED).width_of_counts(10**6) == 1  # any edge or none
    assert RowLaw(10**6, Law.WEIGHTED, last=True).width_of_counts(10**6) == 4


def test_tables_of_several_matrices_travel_in_one_collective():
    """Vertex v has v + 200 edges of the first kind, 3 v of the second; a table that is wide enough is kept."""
    layouts = (
        Layout.even(100, 3),
        Layout(np.array([0, 0, 4, 9]), *np.array([[5, 1, 7, 2, 0, 3, 8, 4, 6], [4, 1, 3, 5, 7, 0, 8, 2, 6]], np.int32)),
    )

    def rank(comm):
        own = {"first": layouts[0].members(comm.rank).astype(np.int64) + 200, "second": 3 * layouts[1].members(comm.rank).astype(np.int64)}
        counts, calls = RowCounts(comm), []
        for widths in ((2, 1), (1, 1), (4, 1)):
            before = dict(comm.collectives)
            counts.gather([Counted(name, at, w) for name, at, w in zip(own, layouts, widths, strict=True)], own.__getitem__)
            calls.append(comm.collectives["topology"] - before["topology"])
            for name, at, expected in zip(own, layouts, (np.arange(100) + 200, 3 * np.arange(9)), strict=True):
                np.testing.assert_array_equal(counts.slots(name, RowLaw(-1), at.places(np.arange(at.n, dtype=np.int32))), expected)
        return calls, counts.nbytes

    assert on_threads(3, rank) == [([1, 0, 1], 4 * 100 + 9)] * 3


def test_a_row_that_draws_less_leaves_the_end_of_its_slot_empty():
    filled = fill_slots(np.array([2, 0, 3, 1]), np.array([2, 0, 1, 0]), np.array([7, 0, 9], np.int32))
    assert filled.tolist() == [7, 0, 9, -1, -1, -1]
    counts, used = read_slots(np.array([2, 0, 3, 1]), filled)
    assert (counts.tolist(), filled[used].tolist()) == ([2, 0, 1, 0], [7, 0, 9])

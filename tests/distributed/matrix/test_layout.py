"""A layout assigns vertices to block rows and keeps their ids."""

import numpy as np
import pytest

from bulksample import UsageError
from bulksample.distributed.matrix import partition
from bulksample.distributed.matrix.layout import Layout

LAYOUTS = {
    "even": Layout.even(100, 7),
    "more blocks than vertices": Layout.even(3, 5),
    "random": Layout.of(partition.random(100, 7, 1)),
    "empty parts": Layout.of(partition.Partition(6, np.array([5, 1, 1, 5, 3, 1]))),
}


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_places_and_vertices_are_each_others_inverse(layout):
    vertices = np.arange(layout.n, dtype=np.int32)
    assert (layout.vertices(layout.places(vertices)) == vertices).all()
    members = [layout.members(i) for i in range(layout.blocks)]
    assert (np.concatenate(members) == layout.vertices(vertices)).all()
    for i, own in enumerate(members):
        assert (np.diff(own) > 0).all()
        assert (layout.blocks_of(own) == i).all()
        assert (layout.places(own) == np.arange(layout.bounds[i], layout.bounds[i + 1])).all()


def test_consecutive_parts_take_no_memory():
    assert Layout.of(partition.block_rows(100, 7)).order is None
    assert (Layout.of(partition.block_rows(100, 7)).bounds == Layout.even(100, 7).bounds).all()


@pytest.mark.parametrize("bounds", [[1, 3], [0, 3, 2], [0.0, 1.0], [0], [[0, 1]], [0, 2**31]])
def test_bounds_that_do_not_ascend_are_refused(bounds):
    with pytest.raises(UsageError, match="bounds must be integers that ascend from 0"):
        Layout(np.array(bounds))

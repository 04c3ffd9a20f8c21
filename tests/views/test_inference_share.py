"""A block of a share names its distinct sources in order, by a table or by sorting."""

import numpy as np
import pytest

from bulksample.views.plain_view import WholeShare


@pytest.mark.parametrize("entries", [0, 1, 20, 400])
@pytest.mark.parametrize("own", [range(0), range(10, 10 + 7), range(93, 100)])
def test_a_block_numbers_its_sources(entries, own):
    """100 ids, of which sources are even: 20 entries and fewer are sorted, 400 are numbered in a table."""
    sources = np.random.default_rng(entries).integers(0, 50, entries if own else 0).astype(np.int32) * 2
    share = object.__new__(WholeShare)
    share.n, share.first, share.indptr = 100, own.start, np.linspace(0, len(sources), len(own) + 1).astype(np.int64)
    share.entries = lambda at: (sources[at], None)
    block, ids = share.block_of(np.arange(len(own)))
    assert ids.tolist() == [*own, *sorted({*sources.tolist()} - {*own})]
    assert ids[block.indices].tolist() == sources.tolist()
    assert (block.num_sources, block.indices.dtype) == (len(ids), np.int32)

"""A layout says where rows live and changes no id; blocks and seeds are read from a store as it says."""

import numpy as np
import pytest
from communities import community_graph

from bulksample import UsageError, backends
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix import partition
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.open_graph import Placement, open_block, open_for_sampling

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


@pytest.fixture(scope="module", params=[{}, {"sparse": True}, {"weighted": True}])
def stored(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("graphs") / "g"
    store.save(community_graph(n=90, **request.param), place)
    return place


@pytest.mark.parametrize("how", ["block", "random", "metis", "super"])
def test_blocks_of_any_layout_are_the_rows_of_their_members(stored, how):
    graph, dense = store.load(stored), backends.make("reference")

    def rank(comm):
        opened = open_block(stored, Placement("partitioned", 2, partition=how), comm)
        block, members = opened.block, opened.layout.members(opened.grid.row)
        assert (block.vertices == members).all()
        rows = dense.extract_rows(graph.adjacency, members)
        for got, expected in ((block.adjacency.indptr, rows.indptr), (block.adjacency.indices, rows.indices)):
            assert (got == expected).all()
        assert (block.adjacency.entries() == rows.entries()).all()
        assert (block.labels == graph.labels[members]).all()
        x, own = (f if isinstance(f, np.ndarray) else f.to_scipy().toarray() for f in (graph.features, block.features))
        assert (own == x[members]).all()
        for split in (None, "val", "all"):
            seeds = graph.seeds(split) if split else graph.default_seeds()
            assert (opened.seeds(split) == seeds).all()
            assert (opened.classes(split) == graph.labels[seeds]).all()
        assert (opened.column_counts() == np.bincount(graph.adjacency.indices, minlength=graph.n)[members]).all()
        return len(members)

    assert sum(on_threads(6, rank)) == 2 * graph.n


def test_without_training_vertices_all_are_seeds(tmp_path):
    graph = community_graph(n=50)
    graph.masks["train"][:] = False
    store.save(graph, tmp_path / "g")
    seeds = on_threads(4, lambda comm: open_for_sampling(tmp_path / "g", None, comm, backends.make(), Placement("partitioned"))[1])
    assert all((own == np.arange(50)).all() for own in seeds)


@pytest.mark.parametrize(("options", "message"), [
    ({"graph": "torn"}, "replicated, partitioned"), ({"exchange": "pigeon"}, "owner, rows, rows-oblivious"),
    ({"partition": "luck"}, "block, random, metis, super or a file"),
])  # fmt: skip
def test_unknown_names_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Placement(**options)

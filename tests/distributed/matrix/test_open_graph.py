"""A graph opened in block rows has the rows and the seeds of the stored graph."""

from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph

from bulksample import UsageError, backends
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.open_graph import open_block, open_for_sampling
from bulksample.distributed.matrix.placement import Placement


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
            assert (opened.labels(split) == graph.labels[seeds]).all()
        assert (opened.column_counts() == np.bincount(graph.adjacency.indices, minlength=graph.n)[members]).all()
        return len(members)

    assert sum(on_threads(6, rank)) == 2 * graph.n


def test_another_label_leaves_its_unlabelled_vertices_out_of_the_splits(tmp_path):
    store.save(replace(community_graph(n=60), extra={"other": np.arange(60) % 4 - 1}), tmp_path / "g")
    expected = store.load(tmp_path / "g").with_label("other")

    def rank(comm):
        block = open_block(tmp_path / "g", Placement("partitioned", partition="random"), comm, label="other").block
        assert (block.labels == expected.labels[block.vertices]).all()
        assert block.num_classes == 3
        for split, mask in expected.masks.items():
            assert (block.masks[split] == mask[block.vertices]).all()
        return len(block.vertices)

    assert sum(on_threads(3, rank)) == 60


def test_without_masks_all_vertices_are_sampled(tmp_path):
    store.save(replace(community_graph(n=50), masks={}), tmp_path / "g")
    seeds = on_threads(4, lambda comm: open_for_sampling(tmp_path / "g", None, comm, backends.make(), Placement("partitioned"))[1])
    assert all((own == np.arange(50)).all() for own in seeds)


@pytest.mark.parametrize("placement", ["replicated", "partitioned"])
@pytest.mark.parametrize("missing", [False, True])
def test_without_training_vertices_other_masks_forbid_to_take_all(tmp_path, placement, missing):
    graph = community_graph(n=50)
    graph.masks["train"][:] = False
    store.save(
        replace(graph, masks={split: mask for split, mask in graph.masks.items() if split != "train" or not missing}), tmp_path / "g"
    )

    def rank(comm):
        with pytest.raises(UsageError, match="has only the masks val, test; name the seeds, use seeds all, which includes their vertices"):
            open_for_sampling(tmp_path / "g", None, comm, backends.make(), Placement(placement))

    on_threads(4, rank)


@pytest.mark.parametrize(("options", "message"), [
    ({"topology": "torn"}, "replicated, partitioned"), ({"exchange": "pigeon"}, "owner, rows, rows-oblivious"),
    ({"partition": "luck"}, "block, random, metis, super, stream or a file"),
])  # fmt: skip
def test_unknown_names_are_refused(options, message):
    with pytest.raises(UsageError, match=message):
        Placement(**options)

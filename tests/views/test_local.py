"""A local view is a part of the dense graph on any number of ranks and for any partition; its bytes are as documented."""

from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph, dense_adjacency, dense_features

from bulksample import UsageError, backends
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.open_graph import open_block
from bulksample.distributed.matrix.placement import Placement
from bulksample.methods.grappa.method import fresh_chunks, seen_chunks
from bulksample.views.local import BlockParts, VisibleParts, part_of
from bulksample.views.plain_view import block_view, features_of_block


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("graphs")
    for name, kind in {"plain": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True}}.items():
        store.save(community_graph(**kind), folder / name)
    return folder


def opened(directory, comm, partition="random", replication=1):
    placement, grid = Placement("partitioned", replication, partition=partition), ProcessGrid(comm, replication)
    made = open_block(directory, placement, comm.duplicate())
    return block_view(made, grid, backends.make(), features_of_block(made, grid), "")


def views(directory, p, deal_of, halo, partition="random"):
    """Return the local view of each rank, and the sent bytes by kind over all ranks."""

    def rank(comm):
        whole = opened(directory, comm, partition)
        rows = whole.own_rows()
        parts, before = BlockParts(whole), dict(comm.tally)
        part = parts.start(deal_of(rows), halo)()
        return part, {kind: comm.tally[kind].bytes - before[kind].bytes for kind in ("topology", "features")}

    found = on_threads(p, rank)
    return [part for part, _ in found], {kind: sum(sent[kind] for _, sent in found) for kind in ("topology", "features")}


def pairs(turn):
    return lambda whole: VisibleParts(VisibleParts.of_blocks(whole.layout).part, seen_chunks(whole.grid.comm.size, 2, turn))


def fresh(turn):
    def parts(whole):
        p = whole.grid.comm.size
        return VisibleParts(fresh_chunks(0, turn, whole.layout.n, p), seen_chunks(p, 2, turn))

    return parts


@pytest.mark.parametrize("name", ["plain", "sparse", "weighted"])
@pytest.mark.parametrize("halo", [0, None, 20])
@pytest.mark.parametrize("deal_of", [pairs(1), fresh(2)])
@pytest.mark.parametrize(("p", "partition"), [(1, "block"), (3, "random"), (4, "metis")])
def test_a_view_is_the_part_of_the_dense_matrix(stored, name, halo, deal_of, p, partition):
    graph = store.load(stored / name)
    a, x = dense_adjacency(graph, weighted=True), dense_features(graph)
    everyone, _ = views(stored / name, p, deal_of, halo, partition)
    seeds = []
    for rank, part in enumerate(everyone):
        view, deal, ids, matrix = part.view, deal_of(part.view.whole.own_rows()), part.vertices, part.relations[0].matrix
        seen = np.flatnonzero(deal.sees(rank, np.arange(graph.n)))
        assert (ids[: part.rows] == seen).all()
        outside = np.setdiff1d(np.flatnonzero((a[seen] != 0).any(0)), seen)
        assert len(ids) - part.rows == min(len(outside), len(outside) if halo is None else halo)
        assert np.isin(ids[part.rows :], outside).all()
        held = matrix.validate().to_scipy().toarray() * (graph.weight_unit if matrix.values is not None else 1)
        expected = a[np.ix_(ids, ids)]
        expected[part.rows :] = 0
        np.testing.assert_allclose(held, expected, rtol=1e-12)
        fetched = view.features.fetch(np.arange(len(ids)))
        dense = fetched.numpy() if name != "sparse" else dense_of(fetched)
        np.testing.assert_array_equal(dense, x[ids])
        np.testing.assert_array_equal(part.relations[0].degrees, graph.adjacency.degrees[ids])
        np.testing.assert_array_equal(view.degrees(np.arange(len(ids))), view.whole.degrees(ids))
        np.testing.assert_array_equal(view.labels, graph.labels[ids[view.seeds]])
        seeds.append(ids[view.seeds])
    assert (np.sort(np.concatenate(seeds)) == graph.default_seeds()).all()


def dense_of(rows):
    out = np.zeros(rows.shape, np.float32)
    out[rows.row_index().numpy(), rows.indices] = rows.weights
    return out


@pytest.mark.parametrize("halo", [0, None])
@pytest.mark.parametrize("deal_of", [pairs(0), fresh(1)])
def test_only_rows_of_other_ranks_cost_bytes(stored, halo, deal_of):
    """4 bytes for each row and edge; for features 4 bytes for each id and number, with 8 numbers in a row."""
    graph = store.load(stored / "plain")
    everyone, sent = views(stored / "plain", 4, deal_of, halo)
    topology = features = 0
    for rank, part in enumerate(everyone):
        seen, layout = part.vertices[: part.rows], part.view.whole.own_rows().layout
        foreign = layout.blocks_of(seen) != rank
        kept = graph.adjacency.take(seen[foreign])
        edges = kept.nnz if halo is None else int(np.isin(kept.indices, seen).sum())
        fetched = int((layout.blocks_of(part.vertices) != rank).sum())
        topology += 4 * len(kept.degrees) + 4 * edges + 4 * fetched
        features += 4 * 8 * fetched
    assert sent == {"topology": topology, "features": features}


def test_a_view_of_the_own_block_needs_no_rows_of_other_ranks(stored):
    _, sent = views(stored / "plain", 4, lambda whole: VisibleParts.of_blocks(whole.layout), 0)
    assert sent == {"topology": 0, "features": 0}


def test_a_small_halo_keeps_the_vertices_that_complete_most(stored):
    graph = store.load(stored / "plain")
    views_of, _ = views(stored / "plain", 3, pairs(0), 15)
    for part in views_of:
        seen = part.vertices[: part.rows]
        a = dense_adjacency(graph)[seen]
        gain = (a / np.maximum(a.sum(1), 1)[:, None]).sum(0)
        gain[seen] = 0
        kept = part.vertices[part.rows :]
        assert gain[kept].min() >= np.delete(gain, kept).max() - 1e-12


def test_replication_is_refused(stored):
    def rank(comm):
        rows = (whole := opened(stored / "plain", comm, replication=2)).own_rows()
        with pytest.raises(UsageError, match="got replication 2: use 1"):
            BlockParts(whole).start(VisibleParts.of_blocks(rows.layout))

    on_threads(4, rank)


def test_a_part_of_a_graph_in_memory_is_that_of_its_store(tmp_path):
    graph = community_graph()
    graph = replace(graph, edge_features=np.ones((graph.adjacency.nnz, 2), np.float32))
    store.save(graph, tmp_path / "g")
    one, other = (part_of(source, np.arange(0, graph.n, 2)) for source in (graph, tmp_path / "g"))
    assert one.plain
    assert other.plain
    assert one.edge_features is other.edge_features is None
    assert one.adjacency.fingerprint == other.adjacency.fingerprint
    np.testing.assert_array_equal(one.features, other.features)
    np.testing.assert_array_equal(one.labels, other.labels)

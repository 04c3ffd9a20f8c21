"""Loaders over graphs that ranks share: features and numbers of edges, and collectives of a bulk."""

import numpy as np
import pytest
from communities import dense_features
from shared_graphs import PLACES, assert_edges, digests, loader, opened, shares

import bulksample as bs
from bulksample.distributed.comm.threads import on_threads


@pytest.mark.parametrize(("topology", "features"), PLACES)
@pytest.mark.parametrize(
    ("p", "c", "partition"),
    [
        (1, 1, "block"),
        (2, 1, "random"),
        pytest.param(4, 2, "random", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("options", [{}, {"frontier": "new", "fetch_together": 2}, {"sampler": "ladies"}], ids=["all", "new", "ladies"])
def test_edge_features_are_fetched_like_rows(with_edges, p, c, partition, topology, features, options):
    path, graph = with_edges
    how = {"replication": c, "partition": partition} if "partitioned" in (topology, features) else {}

    def rank(comm):
        found = []
        for batch in loader(opened(path, comm, topology=topology, features=features, **how), edge_ids=True, **options):
            assert_edges(batch, graph.adjacency.nnz)
            found.append(batch.digest())
        return [found]

    alone = {key: value for key, value in options.items() if key != "fetch_together"}
    assert on_threads(p, rank) == shares(graph, p, **alone)


@pytest.mark.parametrize("options", [
    {"replication": 2, "feature_replication": 1}, {"topology": "replicated", "features": "host"}, {"replication": 2, "exchange": "rows"},
    *(pytest.param(one, marks=pytest.mark.long) for one in (
        {"feature_replication": 4}, {"features": "machine"}, {"replication": 2, "grid_order": "columns", "partition": "random"},
        {"topology": "replicated", "replication": 2, "grid_order": "rows"}, {"replication": 2, "features": "host"},
    )),
], ids=str)  # fmt: skip
def test_topology_and_features_have_grids_of_their_own(with_edges, monkeypatch, options):
    """Four ranks on two machines: rows and edges are those of the store, mini-batches those of one process."""
    monkeypatch.setenv("BULKSAMPLE_MACHINES", "2,2")
    path, graph = with_edges
    x = dense_features(graph)

    def rank(comm):
        found = []
        for batch in loader(opened(path, comm, **options), edge_ids=True):
            assert_edges(batch, graph.adjacency.nnz)
            np.testing.assert_array_equal(batch.x, x[batch.vertices])
            found.append(batch.digest())
        return [found]

    assert on_threads(4, rank) == shares(graph, 4)


def test_a_whole_graph_gives_the_edges_of_its_batches_too(with_edges):
    _, graph = with_edges
    for batch in loader(graph):
        assert_edges(batch, graph.adjacency.nnz)
        np.testing.assert_array_equal(batch.to().edge_attr[0], batch.edge_attr[0])


def test_a_rank_holds_the_edges_of_its_rows_alone(with_edges):
    path, graph = with_edges
    held = on_threads(4, lambda comm: opened(path, comm).held_bytes()["edge_features"])
    assert sum(held) == graph.edge_features.nbytes
    assert max(held) < graph.edge_features.nbytes / 2


def test_edges_that_were_not_fetched_are_asked_for(stored):
    folder, _ = stored

    def rank(comm):
        batch = next(iter(loader(opened(folder / "plain", comm))))
        with pytest.raises(bs.UsageError, match="make the loader with edge_ids=True"):
            batch.e_id  # noqa: B018
        with pytest.raises(bs.UsageError, match="the graph has no edge features"):
            batch.edge_attr  # noqa: B018

    on_threads(2, rank)


@pytest.mark.parametrize("edge_ids", [False, True])
@pytest.mark.parametrize(("k", "together"), [(4, 1), (4, 2), (1, 1)])
def test_ids_travel_once_a_bulk(with_edges, k, together, edge_ids):
    """(3 L + 2) / k + 1 collectives a mini-batch; edges take 2 more a bulk, and one for features and one for numbers a mini-batch."""
    path, _ = with_edges
    hops, steps = 2, 4

    def rank(comm):
        graph = opened(path, comm)
        options = {"batch_size": 10, "bulk_size": k, "prefetch": False, "fetch_together": together, "edge_ids": edge_ids}
        batches = loader(graph, seeds=np.arange(80), **options)
        assert len(batches) == steps
        digests(batches)  # the first bulk opens the rows
        comms = [batches._shared.view.sampling, comm]
        calls = [dict(one.collectives) for one in comms]
        digests(batches)
        return [{kind: n - before[kind] for kind, n in one.collectives.items()} for one, before in zip(comms, calls, strict=True)]

    bulks, fetches = steps // k, steps // together
    for sampling, fetching in on_threads(2, rank):
        assert sum(sampling.values()) == 3 * hops * bulks + 2  # two as the epoch begins
        of_edges = 2 * bulks + fetches * (1 + edge_ids)
        assert sum(fetching.values()) == 2 * bulks + fetches + of_edges

"""Placements of the graph: no placement changes a mini-batch; what ranks hold, and the bytes that travel, are counted by hand."""

import numpy as np
from plain import graph, trainer
from rank_traffic import epoch, remote

from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.partition import Partition
from bulksample.samplers import Sage

N, WIDTH = 60, 8


def matrix_bytes(rows):
    """Bytes of some rows of A: 8 for each pointer, 4 for each column."""
    return 8 * (len(rows) + 1) + 4 * int(graph().adjacency.degrees[rows].sum())


def test_graph_partitioned_leaves_each_rank_its_rows(folder):
    def held(comm, **options):
        return trainer(folder, comm, **options).context.view.memory

    blocks = [np.arange(0, 30), np.arange(30, 60)]
    found = on_threads(2, lambda comm: held(comm, graph="partitioned"))
    assert [rank["adjacency"] for rank in found] == [matrix_bytes(block) for block in blocks]
    assert [rank["features"] for rank in found] == [4 * WIDTH * len(block) for block in blocks]


def held(folder, p, **options):
    """The bytes of the adjacency and of the features that each rank holds."""
    found = on_threads(p, lambda comm: trainer(folder, comm, **options).context.view.memory)
    return [rank["adjacency"] for rank in found], [rank["features"] for rank in found]


def test_counts_of_rows_are_among_the_held_bytes(folder):
    """All neighbors are no padded answers: from the first bulk on a rank knows the lengths of the n rows, a byte each."""

    def held(comm, fanout):
        made = trainer(folder, comm, graph="partitioned", fanouts=(fanout,)).context
        next(iter(made.batches))
        return made.view.held_bytes()["replicated"] - made.view.memory["replicated"]

    for fanout, counts in ((2, 0), (-1, N)):
        assert on_threads(2, lambda comm, s=fanout: held(comm, s)) == [counts] * 2


def test_sampled_scores_of_a_local_view_count_what_the_whole_gathered(folder):
    def replicated(comm):
        made = trainer(folder, comm, method="grappa", graph="partitioned").context
        next(iter(made.view.all_rows().loader(Sage((-1,)), np.arange(4), batch_size=4)))
        return made.view.held_bytes()["replicated"] - made.view.memory["replicated"]

    assert on_threads(2, replicated) == [N] * 2


def test_topology_is_placed_alone(folder):
    adjacency, features = held(folder, 2, topology="partitioned", features="replicated")
    assert adjacency == [matrix_bytes(np.arange(0, 30)), matrix_bytes(np.arange(30, 60))]
    assert features == [4 * WIDTH * N] * 2


def test_features_are_placed_alone(folder):
    """Beside the whole adjacency, a rank has the rows of it that it computes in exact inference."""
    adjacency, features = held(folder, 2, features="partitioned")
    assert adjacency == [matrix_bytes(np.arange(N)) + matrix_bytes(block) for block in (np.arange(0, 30), np.arange(30, 60))]
    assert features == [4 * WIDTH * 30] * 2


def test_feature_replication_gives_c_ranks_the_same_features(folder):
    adjacency, features = held(folder, 4, graph="partitioned", feature_replication=2)
    assert adjacency == [matrix_bytes(np.arange(15 * rank, 15 * rank + 15)) for rank in range(4)]
    assert features == [4 * WIDTH * 30] * 4


def test_grid_order_decides_which_neighbors_hold_the_same_rows(folder):
    drawn = epoch(folder, 4, replication=2, grid_order="columns")
    blocks = [np.arange(0, 30), np.arange(30, 60)]
    assert [own.tolist() for own in drawn.own] == [blocks[rank % 2].tolist() for rank in range(4)]


def test_remote_features_travel_once_a_minibatch(folder):
    """An epoch sends a row of 4 f bytes, and its id, for every vertex of a mini-batch that its rank does not hold."""
    drawn = epoch(folder, 2)
    rows = sum(len(remote(vertices, own)) for asked, own in zip(drawn.asked, drawn.own, strict=True) for vertices in asked)
    assert rows > 0
    assert (drawn.fetched["features"], drawn.fetched["topology"]) == (4 * WIDTH * rows, 4 * rows)


def test_replication_gives_c_ranks_the_same_rows(folder):
    drawn = epoch(folder, 4, replication=2)
    blocks = [np.arange(0, 30), np.arange(30, 60)]
    assert [own.tolist() for own in drawn.own] == [blocks[rank // 2].tolist() for rank in range(4)]
    assert [held["adjacency"] for held in drawn.held] == [matrix_bytes(blocks[rank // 2]) for rank in range(4)]


def test_exchange_decides_what_travels_while_sampling(folder):
    """For R distinct rows of the other rank with D edges, two ranks send in one hop, for each mini-batch:

    owner             12 bytes of counts, 4 a row; and back s picks of 4 bytes a row; once, each rank 8 bytes
    rows              4 a row; and back 4 a row, and 4 for each of its edges
    rows-oblivious    every row of the other rank, unasked
    """
    degrees, fanout = graph().adjacency.degrees, 2
    sent = {}
    for exchange in ("owner", "rows", "rows-oblivious"):
        drawn = epoch(folder, 2, exchange=exchange, fanouts=(fanout,))
        steps = max(map(len, drawn.asked))
        away = [remote(m.seeds, own) for ms, own in zip(drawn.minibatches, drawn.own, strict=True) for m in ms]
        rows, requests = sum(map(len, away)), sum(len(each) > 0 for each in away)
        expected = {
            "owner": 8 * 2 + 12 * requests + 4 * rows + 4 * fanout * rows,
            "rows": 8 * rows + 4 * sum(int(degrees[each].sum()) for each in away),
            "rows-oblivious": steps * (4 * N + 4 * int(degrees.sum())),
        }
        sent[exchange] = drawn.sampled["topology"]
        assert sent[exchange] == expected[exchange]
    assert len(set(sent.values())) == 3


def test_partition_of_a_file_decides_who_holds_what(folder, tmp_path):
    parts = np.arange(N) * 7 % 2
    Partition(2, parts).save(tmp_path / "parts.npz")
    drawn = epoch(folder, 2, partition=str(tmp_path / "parts.npz"))
    assert [own.tolist() for own in drawn.own] == [np.flatnonzero(parts == rank).tolist() for rank in range(2)]

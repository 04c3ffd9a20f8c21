"""The options of `bulksample sample`: edges and bytes counted by hand, and the calls that draw them."""

import json

import numpy as np
import pytest
from commands import command, sample
from plain import graph

from bulksample import CSR, Graph
from bulksample.backends.reference import Reference
from bulksample.data import store
from bulksample.distributed.comm import world
from bulksample.distributed.comm.threads import SerialComm
from bulksample.distributed.matrix.partition import Partition
from bulksample.graph.minibatch import MiniBatch

N, WIDTH, DEGREES = 60, 8, graph().adjacency.degrees
ALL = ("--seeds", "all", "--threads", 1)
ONE_HOP = (*ALL, "--fanouts", 2, "--bulk-size", 1)


def edges(drawn, *arguments):
    return drawn(*arguments)[0]["sampled_edges"]


def test_fanouts_bound_the_draws_of_a_row(drawn):
    assert edges(drawn, *ALL, "--fanouts", 2) == np.minimum(DEGREES, 2).sum()


def test_sampler_full_draws_every_edge(drawn):
    assert edges(drawn, *ALL, "--fanouts", 1, "--sampler", "full") == DEGREES.sum()


def test_options_of_the_sampler_allow_repetitions(drawn):
    assert edges(drawn, *ALL, "--fanouts", 9, "--options", "replace=true") == 9 * (DEGREES > 0).sum()


def test_frontier_new_expands_each_vertex_once(monkeypatch, tmp_path):
    v = np.arange(N)
    store.save(Graph(CSR.from_edges(v, (v + 1) % N, (N, N))), tmp_path / "ring")
    arguments = (*ALL, "--fanouts", "1,1,1", "--batch-size", 1, "--frontier", "new")
    assert sample(monkeypatch, tmp_path / "ring", *arguments)[0]["sampled_edges"] == 3 * N


def test_seeds_are_those_of_the_split(drawn):
    assert edges(drawn, "--fanouts", 2, "--seeds", "val") == np.minimum(DEGREES, 2)[graph().masks["val"]].sum()


def test_batch_size_and_drop_last_decide_the_minibatches(drawn):
    assert drawn(*ONE_HOP, "--batch-size", 7)[1].sizes == [[1] * 9]
    result, calls = drawn(*ONE_HOP, "--batch-size", 7, "--drop-last")
    assert result["minibatches"] == 8
    assert {len(seeds.vertices) for seeds in calls.seeds[0]} == {7}
    assert drawn(*ONE_HOP, "--batch-size", 61, "--drop-last")[0]["minibatches"] == 0


def test_steps_per_epoch_counts_the_minibatches(drawn):
    """Nine mini-batches are a pass over all seeds: of 20, the last two are of a third pass, and epoch 1 goes on in it."""
    result, calls = drawn(*ONE_HOP, "--batch-size", 7, "--steps-per-epoch", 20)
    assert result["minibatches"] == 20
    assert [len(seeds.vertices) for seeds in calls.seeds[0]] == [*[*[7] * 8, 4] * 2, 7, 7]
    later = drawn(*ONE_HOP, "--batch-size", 7, "--steps-per-epoch", 20, "--epoch", 1)[1].seeds[0]
    third = np.concatenate([seeds.vertices for seeds in [*calls.seeds[0][18:], *later[:7]]])
    assert sorted(third.tolist()) == list(range(60))


def test_minibatches_counts_from_the_first(drawn):
    result, calls = drawn(*ONE_HOP, "--batch-size", 7, "--minibatches", 3)
    assert result["minibatches"] == 3
    assert result["sampled_edges"] == sum(np.minimum(DEGREES[seeds.vertices], 2).sum() for seeds in calls.seeds[0][:3])


def test_seed_locality_draws_each_minibatch_from_one_group(drawn):
    """Four groups of 15 ids give three mini-batches each, of 7, 7 and 1 seeds; number t 4 + g is of group g."""
    result, calls = drawn(*ONE_HOP, "--batch-size", 7, "--seed-locality", 4)
    assert result["seed_locality"] == 4
    assert [len(seeds.vertices) for seeds in calls.seeds[0]] == [7] * 8 + [1] * 4
    assert [set(seeds.vertices // 15) for seeds in calls.seeds[0]] == [{g} for _ in range(3) for g in range(4)]


def test_bulk_size_is_the_minibatches_of_a_call(drawn):
    assert drawn(*ALL, "--fanouts", 2, "--batch-size", 7, "--bulk-size", 4)[1].sizes == [[4, 4, 1]]


def test_memory_budget_bounds_the_bulk(drawn):
    """The first call is a mini-batch to measure. A budget of one byte has room for single ones; the free memory for all nine."""
    arguments = (*ALL, "--fanouts", 2, "--batch-size", 7)
    assert drawn(*arguments, "--memory-budget", 1)[1].sizes == [[1] + [1] * 9]
    assert drawn(*arguments)[1].sizes == [[1, 9]]


def test_seed_and_epoch_change_order_and_draws_but_not_the_seeds(drawn):
    orders, digests = [], []
    for changed in ((), ("--seed", 5), ("--epoch", 3)):
        result, calls = drawn(*ONE_HOP, *changed)
        orders.append(np.concatenate([seeds.vertices for seeds in calls.seeds[0]]).tolist())
        digests.append(result["digest"])
    assert [sorted(order) for order in orders] == [list(range(N))] * 3
    assert len({tuple(order) for order in orders}) == len(set(digests)) == 3


def test_no_digest_computes_none(drawn, monkeypatch):
    monkeypatch.setattr(MiniBatch, "digest", lambda self: pytest.fail("a digest was computed"))
    assert drawn(*ONE_HOP, "--no-digest")[0]["digest"] is None


def rows_held(calls):
    return [adjacency[0].block.shape[0] for adjacency in calls.adjacency]


def test_graph_partitioned_leaves_each_rank_its_rows(drawn):
    _, calls = drawn(*ONE_HOP, "--graph", "partitioned", ranks=3)
    assert [getattr(adjacency[0], "block", graph().adjacency).shape[0] for adjacency in calls.adjacency] == [20, 20, 20]


def test_topology_partitioned_leaves_each_rank_its_rows(drawn):
    _, calls = drawn(*ONE_HOP, "--topology", "partitioned", ranks=3)
    assert [getattr(adjacency[0], "block", graph().adjacency).shape[0] for adjacency in calls.adjacency] == [20, 20, 20]


def fetched(drawn, *arguments, ranks=4):
    """The bytes of features that an epoch of single hops sends, and the vertices of other ranks that its mini-batches need."""
    result, _ = drawn(*ONE_HOP, "--sampler", "full", "--batch-size", N, *arguments, ranks=ranks)
    return result["bytes_sent"]["features"], result["input_vertices"]


@pytest.mark.long
def test_features_are_fetched_from_where_they_lie(drawn):
    """One mini-batch of all vertices needs every row; the rank that draws it holds a quarter."""
    assert fetched(drawn, "--features", "partitioned") == (4 * WIDTH * (N - N // 4), N)
    assert fetched(drawn, "--features", "host") == fetched(drawn) == (0, N)


def test_ids_of_features_travel_once_a_bulk(drawn):
    """Twelve mini-batches on two ranks are six fetches each: the ids in one exchange of a bulk, with their counts; then rows for each."""
    each = {}
    for bulk in (1, 3, 6):
        arguments = (*ALL, "--fanouts", 2, "--batch-size", 5, "--bulk-size", bulk, "--features", "partitioned")
        result = drawn(*arguments, ranks=2)[0]
        assert result["minibatches"] == 12
        each[bulk] = (
            result["collectives"]["features"] + result["collectives"]["topology"],
            result["bytes_sent"]["features"],
            result["digest"],
        )
    assert {found[1:] for found in each.values()} == {each[1][1:]}
    saved = [each[1][0] - each[bulk][0] for bulk in (3, 6)]
    assert saved[0] > 0
    assert saved[1] * 4 == saved[0] * 5  # exchanges of ids: 6, 2 and 1 bulks


def test_feature_replication_leaves_fewer_rows_to_fetch(drawn):
    assert fetched(drawn, "--features", "partitioned", "--feature-replication", 2) == (4 * WIDTH * N // 2, N)


def test_grid_order_decides_which_rows_a_rank_holds(drawn):
    _, calls = drawn(*ONE_HOP, "--graph", "partitioned", "--replication", 2, "--grid-order", "columns", ranks=4)
    assert [adjacency[0].first for adjacency in calls.adjacency] == [0, 30, 0, 30]


def test_replication_gives_c_ranks_the_same_rows(drawn):
    _, calls = drawn(*ONE_HOP, "--graph", "partitioned", "--replication", 2, ranks=4)
    assert rows_held(calls) == [30, 30, 30, 30]


def test_exchange_decides_what_travels(drawn):
    """`rows` sends 8 bytes for a remote row and 4 for each edge of it; `owner` 4, and 4 for each of 2 picks, padded.

    For each call with a remote row `owner` adds 12 bytes, and once 8 from each rank to the other: the entries that it holds.
    """
    sent, away = {}, []
    for exchange in ("owner", "rows"):
        result, calls = drawn(*ONE_HOP, "--batch-size", 10, "--graph", "partitioned", "--exchange", exchange, ranks=2)
        sent[exchange] = result["bytes_sent"]["topology"]
        away = [seeds.vertices[seeds.vertices // 30 != rank] for rank in range(2) for seeds in calls.seeds[rank]]
    rows, edges = sum(map(len, away)), sum(int(DEGREES[vertices].sum()) for vertices in away)
    asked = sum(len(vertices) > 0 for vertices in away)
    assert sent["rows"] - sent["owner"] == 8 * rows + 4 * edges - (4 + 4 * 2) * rows - 12 * asked - 2 * 8


def test_partition_of_a_file_decides_who_holds_what(drawn, tmp_path):
    parts = np.arange(N) * 7 % 2
    Partition(2, parts).save(tmp_path / "parts.npz")
    _, calls = drawn(*ONE_HOP, "--graph", "partitioned", "--partition", tmp_path / "parts.npz", ranks=2)
    for rank, (adjacency, *_) in enumerate(calls.adjacency):
        assert adjacency.layout.members(rank).tolist() == np.flatnonzero(parts == rank).tolist()


def test_backend_draws(drawn):
    ((adjacency, *_),) = drawn(*ONE_HOP, "--backend", "reference")[1].adjacency
    assert isinstance(adjacency.backend, Reference)


def test_threads_are_those_of_the_back_end(drawn):
    ((adjacency, *_),) = drawn("--seeds", "all", "--fanouts", 2, "--bulk-size", 1, "--threads", 37)[1].adjacency
    assert adjacency.backend.threads == 37


def test_timeout_is_the_deadline_of_the_ranks(folder, monkeypatch):
    asked = []
    monkeypatch.setattr(world, "world", lambda timeout: asked.append(timeout) or SerialComm())
    command("sample", folder, *ONE_HOP, "--timeout", 12.5)
    assert asked == [12.5]


def test_json_is_the_result_in_a_file(folder, tmp_path):
    command("sample", folder, *ONE_HOP, "--json", tmp_path / "result.json")
    assert (tmp_path / "result.json").exists()
    assert json.loads((tmp_path / "result.json").read_text())["sampled_edges"] == np.minimum(DEGREES, 2).sum()


def test_config_is_read(drawn, tmp_path):
    """The file serves `train` too, by its groups; a flag goes before it."""
    (tmp_path / "run.yaml").write_text("fanouts: 1\nbatch_size: 7\noptimiser:\n  lr: 0.1\n")
    result, calls = drawn(*ALL, "--batch-size", 10, "--bulk-size", 1, "--config", tmp_path / "run.yaml")
    assert result["sampled_edges"] == (DEGREES > 0).sum()
    assert calls.sizes == [[1] * 6]

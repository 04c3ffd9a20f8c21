"""Expected traffic, compared with bytes that ranks send on a random graph, and its limits."""

import numpy as np
import pytest
from uniform import DEGREE, N, digraph, papers, request

from bulksample import CSR, Selection, Stream, backends, samplers
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.feature_exchange import RowExchange
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.owner import OwnerAdjacency
from bulksample.distributed.matrix.partition import block_bounds
from bulksample.distributed.matrix.spgemm15d import RowsAdjacency
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid, epoch_bytes, epoch_collectives, published_words, sampling

WEIGHTS = np.random.default_rng(2).integers(1, 1000, N * DEGREE)
GRIDS = [(2, 1), (4, 1), (4, 2), (8, 2), (8, 4)]


def block_row(grid, weighted):
    bounds = block_bounds(N, grid.rows)
    first, last = int(bounds[grid.row]), int(bounds[grid.row + 1])
    entries = slice(first * DEGREE, last * DEGREE)
    values = WEIGHTS[entries] if weighted else None
    return CSR(np.arange(last - first + 1) * DEGREE, digraph().indices[entries], values, (last - first, N)), bounds


def sent_by_a_run(asked, p, c, k):
    """Return the bytes by kind that p ranks send for one bulk of k mini-batches each and for the features of their inputs."""
    sent = counted_in_a_run(asked, p, c, k, lambda comm: {kind: tally.bytes for kind, tally in comm.tally.items()})
    return {kind: sum(counts) for kind, counts in sent.items()}


def collectives_of_a_run(asked, p, c, k):
    """Return the collectives of each rank by kind in the same work."""
    return counted_in_a_run(asked, p, c, k, lambda comm: dict(comm.collectives))


def counted_in_a_run(asked, p, c, k, count):
    sampler = samplers.make(asked.sampler, asked.fanouts, frontier=asked.frontier)
    seeds = np.random.default_rng(1).permutation(N)[: p * k * asked.batch_size].reshape(p, k, asked.batch_size)

    def rank(comm):
        grid, backend = ProcessGrid(comm, c), backends.make("auto", 1)
        block, bounds = block_row(grid, asked.weighted)
        if asked.exchange == "owner":
            adjacency = OwnerAdjacency(grid, block, backend)
        else:
            adjacency = RowsAdjacency(grid, block, backend, oblivious=asked.exchange == "rows-oblivious")
        rows = np.ones((int(bounds[grid.row + 1] - bounds[grid.row]), asked.feature_width), np.float32)
        features = RowExchange(grid.column_comm, bounds, rows, asked.feature_codec)
        ids = comm.rank * k + np.arange(k)
        q = Selection.of(list(seeds[comm.rank]), N, ids)
        sampler.sample_bulk(adjacency, q, Stream(3))  # what the first call makes once is not counted
        before = count(comm)
        minibatches = sampler.sample_bulk(adjacency, q, Stream(3), epoch=1)
        for begin in features.ask([minibatch.vertices for minibatch in minibatches]):
            begin().wait()
        return {kind: number - before[kind] for kind, number in count(comm).items()}

    found = on_threads(p, rank)
    return {kind: [one[kind] for one in found] for kind in found[0]}


def compare(p, c, k, tolerance, batch_size=64, **changes):
    asked = request(seeds=p * k * batch_size, batch_size=batch_size, feature_width=6, **changes)
    expected = epoch_bytes(asked, expected_sizes(asked), CandidateGrid(p, c, "partitioned"), k)
    found = sent_by_a_run(asked, p, c, k)
    assert found["topology"] == pytest.approx(expected.topology, rel=tolerance)
    assert found["features"] == pytest.approx(expected.features, rel=tolerance)
    assert found["control"] == pytest.approx(expected.control)
    assert sum(found.values()) == found["topology"] + found["features"] + found["control"]


@pytest.mark.parametrize(("p", "c"), GRIDS)
@pytest.mark.parametrize("exchange", ["owner", "rows", "rows-oblivious"])
def test_node_wise_traffic_is_what_a_run_sends(p, c, exchange):
    compare(p, c, 3, 0.02, exchange=exchange)


@pytest.mark.parametrize(("p", "c"), GRIDS)
@pytest.mark.parametrize(("exchange", "fanouts"), [("owner", (4, 3)), ("owner", (40, 3)), ("rows", (4, 3)), ("rows-oblivious", (4, 3))])
def test_collectives_are_those_of_a_run(p, c, exchange, fanouts):
    """Compare ranks in the column with the most stages; answers are padded, and are not."""
    asked = request(seeds=p * 2 * 64, batch_size=64, feature_width=6, exchange=exchange, fanouts=fanouts)
    expected = epoch_collectives(asked, expected_sizes(asked), CandidateGrid(p, c, "partitioned"), 2)
    found = collectives_of_a_run(asked, p, c, 2)
    if exchange == "owner":
        assert found["topology"] == [expected["topology"]] * p
        assert found["control"] == [expected["control"]] * p
    for kind in ("topology", "control"):
        assert np.mean(found[kind]) == pytest.approx(expected[kind])
    assert found["features"] == [expected["features"]] * p


@pytest.mark.parametrize("exchange", ["owner", "rows", "rows-oblivious"])
@pytest.mark.parametrize(("sampler", "fanouts"), [("ladies", (100, 80)), ("ladies", (-1, 50)), ("fastgcn", (3000, 2000))])
def test_layer_wise_traffic_is_what_a_run_sends(sampler, fanouts, exchange):
    compare(4, 2, 2, 0.05, batch_size=256, sampler=sampler, fanouts=fanouts, exchange=exchange)


@pytest.mark.parametrize("exchange", ["owner", "rows"])
@pytest.mark.parametrize("frontier", ["all", "new"])
@pytest.mark.parametrize("weighted", [False, True])
def test_rules_and_weights_are_counted(exchange, frontier, weighted):
    compare(4, 1, 2, 0.02, exchange=exchange, frontier=frontier, weighted=weighted, feature_codec="bf16")


@pytest.mark.parametrize("codec", ["int8", "int4", "int2"])
def test_rows_of_codes_and_their_headers_are_counted(codec):
    compare(4, 1, 2, 0.02, feature_codec=codec)


def test_gradients_are_what_the_all_reduce_sends():
    asked = request(seeds=3 * 64, batch_size=64)

    def rank(comm):
        comm.allreduce(np.ones(asked.parameters + 3, np.float32), "gradients")
        return comm.tally["gradients"].bytes

    expected = epoch_bytes(asked, expected_sizes(asked), CandidateGrid(3, 3, "replicated"), 1)
    assert sum(on_threads(3, rank)) == expected.gradients


def test_papers100m_by_hand():
    """p = 128, c = 32: q = 4, three quarters of the rows are on other ranks; 1,179 mini-batches, 10 steps."""
    asked = papers()
    sent = epoch_bytes(asked, expected_sizes(asked), CandidateGrid(128, 32, "partitioned"), 10)
    rows, inputs = (1024, 15_919.883, 164_757.525), 928_449
    answers = 15 * rows[0] + 10 * rows[1] + 5 * rows[2]  # padded
    sampled = 3 * 8.4 * 3 + 0.75 * 4 * (sum(rows) + answers)  # 3.54 MB a minibatch
    ids = 0.75 * 4 * inputs + 3 * 4 * 9 / 10  # 2.79 MB, and how many are of each mini-batch of a bulk but the last
    assert sent.topology == pytest.approx(1179 * (sampled + ids), rel=1e-5)
    assert sent.features == pytest.approx(1179 * 0.75 * 928_449 * 512, rel=1e-5)  # 420 GB
    assert asked.parameters == 2 * 128 * 256 + 256 + 2 * 256 * 256 + 256 + 2 * 256 * 172 + 172 == 285_356
    assert sent.gradients == 10 * 2 * 127 * 4 * (285_356 + 3)  # 2.9 GB
    # lengths sent ahead among 4 ranks: once a hop and bulk, once for the features of a bulk; one bulk of 10
    assert sent.control == 128 * 8 * 3 * (3 + 1)


def test_the_published_cost_is_as_printed():
    """k b / c + k b d / c + c k b d / p words, over all hops."""
    asked = papers()
    rows, d = 1179 * (1024 + 15_919.883 + 164_757.525), asked.degree
    words = sum(published_words(16, 2, [asked.minibatches * hop.rows for hop in expected_sizes(asked).hops], d))
    assert words == pytest.approx(rows / 2 + rows * d / 2 + 2 * rows * d / 16, rel=1e-6)


def test_the_published_formula_by_hand():
    # p = 8, c = 2, two layers of k b = 4 and 12 rows, d = 5: 16 rows, 80 entries
    assert published_words(8, 2, [4, 12], 5) == (16 / 2, 80 / 2, 2 * 80 / 8)


def test_one_rank_sends_nothing():
    asked = request(ranks=(1,))
    assert epoch_bytes(asked, expected_sizes(asked), CandidateGrid(1, 1, "replicated"), 4).total == 0


def test_everything_replicated_sends_gradients_alone():
    asked = request()
    for p in (2, 8, 64):
        sent = epoch_bytes(asked, expected_sizes(asked), CandidateGrid(p, p, "replicated"), 4)
        assert sent.total == sent.gradients > 0


def test_a_whole_graph_sends_features_and_their_ids_alone():
    asked = request()
    sizes = expected_sizes(asked)
    sent = epoch_bytes(asked, sizes, CandidateGrid(8, 2, "published"), 4)
    assert sent.topology == pytest.approx(asked.minibatches * (0.75 * 4 * sizes.inputs + 3 * 4 * 3 / 4))  # of four mini-batches at once
    assert sent.features == epoch_bytes(asked, sizes, CandidateGrid(8, 2, "partitioned"), 4).features


@pytest.mark.parametrize("sampler", ["sage", "ladies", "fastgcn"])
def test_traffic_falls_as_c_grows(sampler):
    asked = papers(sampler=sampler, fanouts=(15, 10, 5) if sampler == "sage" else (512, 512))
    sizes = expected_sizes(asked)
    for p in (8, 64, 128):
        totals = [epoch_bytes(asked, sizes, CandidateGrid(p, c, "partitioned" if c < p else "replicated"), 8).total for c in (1, 2, 4, 8)]
        assert totals == sorted(totals, reverse=True)
        assert len(set(totals)) == len(totals)


def test_a_larger_bulk_names_fewer_rows_and_sends_fewer_counts():
    asked = papers(exchange="rows")
    sizes, grid = expected_sizes(asked), CandidateGrid(16, 2, "partitioned")
    small, large = (epoch_bytes(asked, sizes, grid, k) for k in (1, 32))
    assert large.topology < small.topology
    assert large.control < small.control


def test_owner_sends_less_than_rows_and_rows_less_than_blocks():
    per_rank = []
    for exchange in ("owner", "rows", "rows-oblivious"):
        asked = papers(exchange=exchange)
        moved = sampling(asked, expected_sizes(asked), CandidateGrid(16, 2, "partitioned"), 8)
        per_rank.append(moved.column + moved.row)
    assert per_rank == sorted(per_rank)

"""Predicted evaluation, compared with arithmetic by hand."""

from dataclasses import replace
from math import exp

import pytest
from communities import community_graph
from training_runs import run_training
from uniform import DEGREE, N, papers, request

from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.plan.measured import Measured
from bulksample.plan.memory import rank_memory
from bulksample.plan.profiles import NETWORKS, Rate
from bulksample.plan.seconds import evaluation_cost
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid


def cost(asked, grid, **measured):
    return evaluation_cost(asked, expected_sizes(asked), grid, Measured(asked.machine(), **measured))


def test_none_costs_nothing():
    for asked in (papers(evaluate="none"), papers(eval_every=0)):
        found = cost(asked, CandidateGrid(4, 1, "partitioned"))
        assert (found.kind, found.seconds, found.bytes, found.epoch_seconds) == ("none", 0, 0, 0)
        assert rank_memory(asked, expected_sizes(asked), CandidateGrid(4, 1, "partitioned"), 1).evaluation == 0


def test_every_rank_of_a_replicated_graph_sends_its_hidden_rows_to_all_others():
    """Widths 10, 256, 256, 2: the input stays where it is; 256 and 2 numbers of every vertex go to 3 others."""
    found = cost(request(), CandidateGrid(4, 4, "replicated"))
    assert found.bytes == 3 * 4 * N * (256 + 2)
    assert cost(request(), CandidateGrid(1, 1, "replicated")).bytes == 0


def test_ranks_with_block_rows_fetch_distinct_sources():
    """c = 2 of 4: half of the sources are on the other block row; process rows gather 4 n u first. Widths 10, 256, 2 are sent."""
    found = cost(request(), CandidateGrid(4, 2, "partitioned"))
    distinct = N * (1 - exp(-DEGREE / 4))
    assert found.bytes == pytest.approx(sum(4 * N * u + 4 * 0.5 * distinct * (4 + 4 * u) for u in (10, 256, 2)))


def collectives(calls):
    """Seconds of so many collectives of four ranks of one node."""
    network = NETWORKS["perlmutter"]
    return calls * (network.collective.value / 2 + 3 * (5e-6 + network.message.value))


def test_work_is_divided_and_follows_measured_steps():
    alone, four = (cost(request(), CandidateGrid(p, p, "replicated")).seconds for p in (1, 4))
    gather = request().machine().gather.value
    numbered, before = (N * (1 + DEGREE) / p * 17 / gather for p in (4, 1))
    copied, once = (N * (1 - exp(-DEGREE / p)) * 40 / gather for p in (4, 1))  # the 10 features of the distinct sources of a share
    alone, four = alone - before - once, four - numbered - copied
    sent = 3 * 4 * N * 258 / 4 / 100e9
    # two layers gather; ranks agree whether to stream, and gather counts and classes of three splits
    assert four == pytest.approx(alone / 4 + sent + collectives(2 + 2 + 6))
    slow = cost(request(), CandidateGrid(1, 1, "replicated"), compute_seconds=100.0).seconds
    assert slow > 100 * alone


def test_sources_in_block_rows_are_numbered_and_copied():
    """Per layer and rank: 17 bytes for each row and entry; sources of 10, 256 and 2 numbers are put in place, half gathered."""
    asked, grid = request(), CandidateGrid(4, 2, "partitioned")
    device = asked.machine()
    measured = Measured(replace(device, gather=Rate(device.gather.value / 2, "measured", "")))
    slow, fast = (evaluation_cost(asked, expected_sizes(asked), grid, own).seconds for own in (measured, Measured(device)))
    numbered = 3 * N * (1 + DEGREE) / 4 * 17
    copied = 1.5 * 4 * (10 + 256 + 2) * N * (1 - exp(-DEGREE / 4))
    assert slow - fast == pytest.approx((numbered + copied) / device.gather.value)


def test_a_measured_evaluation_scales_work_and_not_exchanges():
    """Twice the predicted seconds where every rank holds all: work in block rows takes twice as long, too; steps do not count."""
    grid, whole = CandidateGrid(4, 2, "partitioned"), CandidateGrid(4, 4, "replicated")
    plain, twice = cost(request(), grid), 2 * cost(request(), whole).seconds
    found = cost(request(), grid, evaluate_seconds=twice, evaluate_ranks=4, compute_seconds=100.0, gather_seconds=100.0)
    exchanges = plain.bytes / 4 / 100e9 + collectives(plain.collectives)
    assert found.seconds - exchanges == pytest.approx(2 * (plain.seconds - exchanges))


def test_a_large_share_is_computed_in_chunks_that_fetch_their_sources_anew():
    """2^24 numbers hold 2^16 entries of 256 numbers: the rows and entries of a share are two chunks in layers 1 and 2, one in layer 3."""
    asked, grid = request(device="cpu", network="loopback"), CandidateGrid(4, 2, "partitioned")
    found, entries = cost(asked, grid), N * DEGREE / 4
    assert 2**16 < N * (1 + DEGREE) / 4 < 2**17
    distinct = [chunks * N * (1 - exp(-entries / chunks / N)) for chunks in (2, 2, 1)]
    assert found.bytes == pytest.approx(sum(4 * N * u + 4 * 0.5 * d * (4 + 4 * u) for u, d in zip((10, 256, 2), distinct, strict=True)))


@pytest.mark.parametrize(("p", "c", "graph"), [(2, 2, "replicated"), (2, 1, "partitioned"), (4, 2, "partitioned")])
def test_collectives_of_an_evaluation_are_those_of_ranks(tmp_path, p, c, graph):
    whole = community_graph()
    store.save(whole, tmp_path / "graph")
    options = {"graph": graph, "epochs": 1, "hidden": 4, "fanouts": (3, 3), "threads": 1}
    if graph == "partitioned":
        options["replication"] = c
    report = on_threads(p, lambda comm: run_training(tmp_path / "graph", comm, **options)[0])[0]
    sent = {kind: count - report["training_collectives"][kind] for kind, count in report["collectives"].items()}
    asked = request(
        vertices=whole.n, edges=whole.adjacency.nnz, feature_width=whole.num_features, classes=whole.num_classes, fanouts=(3, 3),
        hidden=4, device="cpu",
    )  # fmt: skip
    assert cost(asked, CandidateGrid(p, c, graph)).collectives == sent["total"]


def test_sampled_scores_take_mini_batches_of_their_own_fanouts():
    grid, few = CandidateGrid(4, 1, "partitioned"), {"evaluate": "sampled", "eval_fanouts": (4, 4, 4), "batch_size": 100}
    some = cost(request(**few, scored=1000), grid)
    bulk = cost(request(**few, scored=12_800), grid)
    assert cost(request(**few, scored=25_600), grid).seconds == pytest.approx(2 * bulk.seconds)  # one and two bulks of 32 for each rank
    assert cost(request(**few, scored=200), grid).seconds < some.seconds < bulk.seconds < 32 / 3 * some.seconds  # 1, 3 and 32 steps
    assert cost(request(**few, scored=4000, eval_seeds=500), grid) == some  # at most 500 of val and of test
    assert cost(request(**few | {"eval_fanouts": (20, 20, 20)}, scored=1000), grid).bytes > 3 * some.bytes


def test_evaluation_now_and_then_costs_its_share():
    found = cost(request(eval_every=5), CandidateGrid(4, 4, "replicated"))
    assert found.epoch_seconds == found.seconds / 5

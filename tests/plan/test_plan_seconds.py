"""Expected time, compared with arithmetic by hand, and its limits."""

from dataclasses import replace

import pytest
from uniform import papers, request

from bulksample.plan.measured import Measured
from bulksample.plan.profiles import DEVICES, NETWORKS, Rate
from bulksample.plan.seconds import computing, epoch_seconds, reducing, transfer
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid, SentPerRank

A100, PERLMUTTER = DEVICES["a100-80gb"], NETWORKS["perlmutter"]


def predicted(asked, grid, k=1, **measured):
    return epoch_seconds(asked, expected_sizes(asked), grid, k, Measured(asked.machine(), **measured))


def test_papers100m_by_hand():
    """p = 128 A100, c = 16: 10 steps in one bulk, q = 8 ranks of a column on 8 nodes."""
    found = predicted(papers(), CandidateGrid(128, 16, "partitioned"), 10)
    away, inputs, edges = 7 / 8, 928_449, 997_883
    alltoall = 2 * 7 * 5e-6  # counts and parts to 7 ranks
    topology = 3 * 16 * 7 + away * (8 * 181_701 + 4 * edges)
    sample = edges / 1.5e9 + topology / 25e9 + 3 * 4 * alltoall / 10
    fetch = inputs * 512 / 0.776e12 + away * inputs * (4 + 512) / 25e9 + 2 * alltoall
    products = 164_758 * 128 * 256 + 15_920 * 256 * 256 + 1024 * 256 * 172
    aggregated = 823_788 * 128 + 159_199 * 256 + 14_897 * 256
    compute = 12 * products / 9.75e12 + 8 * aggregated / 0.776e12
    reduce = 2 * 127 / 128 * 4 * 285_356 / 25e9 + 2 * 7 * 5e-6
    assert (found.sample, found.fetch) == pytest.approx((10 * sample, 10 * fetch), rel=1e-4)
    assert (found.compute, found.reduce) == pytest.approx((10 * compute, 10 * reduce), rel=1e-4)
    assert found.epoch == pytest.approx(10 * (sample + fetch + compute + reduce), rel=1e-4)  # one bulk: nothing to hide behind
    assert found.epoch == pytest.approx(0.28, abs=0.01)


def test_sampling_overlaps_with_training_after_the_first_bulk():
    asked = papers(ranks=(4,))
    found = predicted(asked, CandidateGrid(4, 4, "replicated"), 5)
    steps, use = 295, (found.fetch + found.compute + found.reduce) / 295
    sample = found.sample / steps
    assert sample < use
    assert found.epoch == pytest.approx(5 * sample + steps * use)


def test_the_slower_of_sampling_and_training_decides():
    asked = papers()
    slow = replace(A100, sampling=Rate(1e6, "given", "a test"))
    found = epoch_seconds(asked, expected_sizes(asked), CandidateGrid(4, 4, "replicated"), 1, Measured(slow))
    use = (found.fetch + found.compute + found.reduce) / 295
    assert found.epoch == pytest.approx(found.sample + use)


def test_columns_use_the_network_and_rows_stay_inside_a_node():
    """With 4 devices a node and c = 4, a process column spans nodes and a process row lies on one."""
    grid, gigabyte = CandidateGrid(16, 4, "partitioned"), 1e9
    assert transfer(SentPerRank(column=gigabyte), grid, PERLMUTTER) == pytest.approx(1 / 25)
    assert transfer(SentPerRank(row=gigabyte), grid, PERLMUTTER) == pytest.approx(1 / 100)
    # c = 2: of the 7 others in a column 1 is on the same node
    assert transfer(SentPerRank(column=gigabyte), CandidateGrid(16, 2, "partitioned"), PERLMUTTER) == pytest.approx(
        1 / 7 / 100 + 6 / 7 / 25
    )
    # all on one node
    assert transfer(SentPerRank(column=gigabyte), CandidateGrid(4, 1, "partitioned"), PERLMUTTER) == pytest.approx(1 / 100)
    # 3 calls among 4: 3 x 2 x 3 messages
    assert transfer(SentPerRank(column_calls=3), grid, PERLMUTTER) == pytest.approx(18 * 5e-6)


def test_the_all_reduce_by_hand():
    asked = papers()
    assert reducing(asked, CandidateGrid(1, 1, "replicated"), PERLMUTTER) == 0
    inside = 2 * 3 / 4 * 4 * 285_356 / 100e9 + 2 * 2 * 5e-6
    assert reducing(asked, CandidateGrid(4, 1, "partitioned"), PERLMUTTER) == pytest.approx(inside)
    across = 2 * 4 / 5 * 4 * 285_356 / 25e9 + 2 * 3 * 5e-6
    assert reducing(asked, CandidateGrid(5, 1, "partitioned"), PERLMUTTER) == pytest.approx(across)


def test_gcn_has_one_product_a_layer():
    sage, gcn = (computing(papers(model=model), expected_sizes(papers()), A100) for model in ("sage", "gcn"))
    aggregated = 8 * (823_788 * 128 + 159_199 * 256 + 14_897 * 256) / 0.776e12
    assert gcn - aggregated == pytest.approx((sage - aggregated) / 2, rel=1e-4)


def test_measured_steps_replace_the_model():
    asked = papers()
    found = predicted(asked, CandidateGrid(8, 8, "replicated"), 4, compute_seconds=0.5, gather_seconds=0.25)
    assert found.compute == 148 * 0.5
    assert found.fetch == 148 * 0.25


def test_time_falls_with_p_and_with_c():
    asked = papers()
    by_p = [predicted(asked, CandidateGrid(p, p, "replicated"), 4).epoch for p in (1, 4, 16, 64)]
    assert by_p == sorted(by_p, reverse=True)
    by_c = [predicted(asked, CandidateGrid(64, c, "partitioned"), 4).epoch for c in (1, 2, 4, 8, 16)]
    assert by_c == sorted(by_c, reverse=True)


def test_a_graph_of_seeds_alone_takes_almost_nothing():
    asked = request(edges=0, features=0, seeds=1, batch_size=1)
    assert predicted(asked, CandidateGrid(1, 1, "replicated")).epoch < 1e-6

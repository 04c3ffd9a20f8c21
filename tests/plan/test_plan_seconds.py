"""Expected time, compared with arithmetic by hand, and its limits."""

from dataclasses import replace

import pytest
from uniform import papers, request

from bulksample.plan.measured import Measured
from bulksample.plan.profiles import DEVICES, NETWORKS, Rate
from bulksample.plan.seconds import Moving, coding, computing, epoch_seconds, gathering, reduced, transfer
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid, SentPerRank

A100, PERLMUTTER = DEVICES["a100-80gb"], NETWORKS["perlmutter"]
COLLECTIVE, MESSAGE = PERLMUTTER.collective.value, PERLMUTTER.message.value


def predicted(asked, grid, k=1, **measured):
    return epoch_seconds(asked, expected_sizes(asked), grid, k, Measured(asked.machine(), **measured))


def test_papers100m_by_hand():
    """p = 128 A100, c = 16: 10 steps in one bulk, q = 8 ranks of a column on 8 nodes."""
    found = predicted(papers(), CandidateGrid(128, 16, "partitioned"), 10)
    away, inputs, edges = 7 / 8, 928_449, 997_883
    collective = COLLECTIVE / 2 + 7 * (5e-6 + MESSAGE)  # a message to 7 ranks
    rows = 15 * 1024 + 10 * 15_920 + 5 * 164_758  # of padded answers
    topology = 3 * 8.4 * 7 + away * 4 * (181_701 + rows)
    sample = edges / 1.5e9 + topology / 25e9 + 3 * 3 * collective / 10
    fetch = (
        (2 + away) * inputs * 512 / 0.776e12
        + (  # gathered for others, put in place and in order
            away * inputs * (4 + 512) + 7 * 4 * 9 / 10
        )
        / 25e9
        + 1.2 * collective
    )
    products = 164_758 * 128 * 256 + 15_920 * 256 * 256 + 1024 * 256 * 172
    aggregated = 823_788 * 128 + 159_199 * 256 + 14_897 * 256
    compute = 12 * products / 9.75e12 + 8 * aggregated / 0.776e12
    reduce = 2 * 127 / 128 * 4 * 285_356 / 25e9 + COLLECTIVE + 2 * 7 * (5e-6 + MESSAGE)
    assert (found.sample, found.fetch) == pytest.approx((10 * sample, 10 * fetch), rel=1e-4)
    assert (found.compute, found.reduce) == pytest.approx((10 * compute, 10 * reduce), rel=1e-4)
    assert found.epoch == pytest.approx(10 * (sample + fetch + compute + reduce), rel=1e-4)  # one bulk: nothing to hide behind
    assert found.epoch == pytest.approx(0.29, abs=0.01)


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
    asked, grid, gigabyte = papers(), CandidateGrid(16, 4, "partitioned"), 1e9
    assert transfer(asked, SentPerRank(column=gigabyte), grid).total == pytest.approx(1 / 25)
    assert transfer(asked, SentPerRank(row=gigabyte), grid).total == pytest.approx(1 / 100)
    # c = 2: of the 7 others in a column 1 is on the same node
    across = transfer(asked, SentPerRank(column=gigabyte), CandidateGrid(16, 2, "partitioned"))
    assert across.total == pytest.approx(1 / 7 / 100 + 6 / 7 / 25)
    # all on one node
    assert transfer(asked, SentPerRank(column=gigabyte), CandidateGrid(4, 1, "partitioned")).total == pytest.approx(1 / 100)
    # 3 collectives among 4: 3 x 3 messages
    calls = transfer(asked, SentPerRank(column_calls=3), grid)
    assert calls == Moving(latency=pytest.approx(9 * 5e-6), host=pytest.approx(1.5 * COLLECTIVE + 9 * MESSAGE))


def test_bytes_that_the_host_exchanges_cross_its_bus_twice():
    """1 GB at 16 GB/s, away from the device of the sender and to that of the receiver; with NCCL nothing is staged."""
    grid = CandidateGrid(16, 4, "partitioned")
    by_nccl, by_host = (transfer(papers(device_comm=way), SentPerRank(column=1e9), grid) for way in ("nccl", "host"))
    assert (by_nccl.staging, by_host.staging) == (0, 2e9 / 16e9)
    assert reduced(papers(device_comm="host"), 4).staging == pytest.approx(2 * (2 * 3 / 4 * 4 * 285_356) / 16e9)
    assert transfer(papers(device="cpu", device_comm="host"), SentPerRank(column=1e9), grid).staging == 0


def test_the_all_reduce_by_hand():
    asked = papers()
    assert reduced(asked, 1) == Moving()
    inside = 2 * 3 / 4 * 4 * 285_356 / 100e9 + 2 * 2 * (5e-6 + MESSAGE) + COLLECTIVE
    assert reduced(asked, 4).total == pytest.approx(inside)
    across = 2 * 4 / 5 * 4 * 285_356 / 25e9 + 2 * 3 * (5e-6 + MESSAGE) + COLLECTIVE
    assert reduced(asked, 5).total == pytest.approx(across)
    assert reduced(papers(device="cpu"), 5).latency == pytest.approx(2 * 4 * 50e-6)  # on processors every rank sends to every other


def test_rows_of_another_codec_are_encoded_and_decoded():
    """Three quarters of the rows are away; each is read as 512 bytes and written as 256, then read and written again."""
    asked, grid = papers(feature_codec="fp16"), CandidateGrid(4, 1, "partitioned")
    sizes = expected_sizes(asked)
    assert coding(asked, sizes, grid, A100) == pytest.approx(2 * 3 / 4 * sizes.inputs * (512 + 256) / 0.776e12)
    assert coding(papers(), sizes, grid, A100) == 0


def test_gcn_has_one_product_a_layer():
    sage, gcn = (computing(papers(model=model), expected_sizes(papers()), A100) for model in ("sage", "gcn"))
    aggregated = 8 * (823_788 * 128 + 159_199 * 256 + 14_897 * 256) / 0.776e12
    assert gcn - aggregated == pytest.approx((sage - aggregated) / 2, rel=1e-4)


def test_measured_steps_replace_the_model():
    asked = papers()
    found = predicted(asked, CandidateGrid(8, 8, "replicated"), 4, compute_seconds=0.5, gather_seconds=0.25)
    assert found.compute == pytest.approx(148 * 0.5)
    assert found.fetch == pytest.approx(148 * 0.25)
    gathered = predicted(asked, CandidateGrid(8, 8, "replicated"), 4, compute_seconds=0.5, gather_seconds=0.25, fused=False)
    sizes = expected_sizes(asked)  # of a run that gathered, seconds are those of the fused layer of this plan in proportion
    assert gathered.compute == pytest.approx(148 * 0.5 * computing(asked, sizes, A100, True) / computing(asked, sizes, A100))
    assert gathered.fetch == pytest.approx(148 * 0.25 * gathering(asked, sizes, A100, True) / gathering(asked, sizes, A100))


def test_a_fused_input_layer_reads_what_its_rule_counts():
    """Rows of the destinations and of each edge; nothing is aggregated at the width of the features. Else every source is read once."""
    asked, whole = papers(), CandidateGrid(8, 8, "replicated")
    sizes, row = expected_sizes(asked), asked.feature_width * asked.feature_bytes
    hop = sizes.hops[-1]
    assert hop.destinations + hop.block_edges <= 4 * hop.sources  # so it is fused
    assert predicted(asked, whole).fetch == pytest.approx(148 * (hop.destinations + hop.block_edges) * row / A100.gather.value)
    on_host = predicted(asked, CandidateGrid(8, 8, "replicated", "host"))  # over the bus each source travels once
    assert on_host.fetch == pytest.approx(148 * hop.sources * row * (1 / A100.gather.value + 1 / A100.host.value), rel=1e-3)
    aggregated = 8 * hop.block_edges * asked.feature_width / A100.bandwidth.value
    assert predicted(asked, whole).compute == pytest.approx(148 * (computing(asked, sizes, A100) - aggregated))


def test_an_all_reduce_that_was_measured_counts_for_as_many_ranks():
    """It includes waiting for slower ranks, so a shorter prediction gives way; a longer one stays."""
    asked, eight = papers(), CandidateGrid(8, 8, "replicated")
    expected = reduced(asked, 8).total
    assert predicted(asked, eight, reduce_seconds=0.5, reduce_ranks=8).reduce == 148 * 0.5
    assert predicted(asked, eight, reduce_seconds=expected / 2, reduce_ranks=8).reduce == pytest.approx(148 * expected)
    assert predicted(asked, eight, reduce_seconds=0.5, reduce_ranks=4).reduce == pytest.approx(148 * expected)


def test_time_falls_with_p_and_with_c():
    asked = papers()
    by_p = [predicted(asked, CandidateGrid(p, p, "replicated"), 4).epoch for p in (1, 4, 16, 64)]
    assert by_p == sorted(by_p, reverse=True)
    by_c = [predicted(asked, CandidateGrid(64, c, "partitioned"), 4).epoch for c in (1, 2, 4, 8, 16)]
    assert by_c == sorted(by_c, reverse=True)


def test_a_graph_of_seeds_alone_takes_almost_nothing():
    asked = request(edges=0, feature_width=0, seeds=1, batch_size=1)
    assert predicted(asked, CandidateGrid(1, 1, "replicated")).epoch < 1e-6

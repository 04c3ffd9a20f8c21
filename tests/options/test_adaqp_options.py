"""The options of AdaQP: bytes of messages, errors of rounding and choices of bits, by their formulas."""

import json

import numpy as np
import pytest
from plain import graph, trained, trainer
from rank_traffic import halo_rows, sent_in_steps

from bulksample.distributed.comm.threads import on_threads

ADAQP = {"method": "adaqp", "fanouts": (-1, -1)}
WIDTH = 3  # of the rows that travel: the last layer multiplies first, and there are three classes


def message_bytes(bits, header=4):
    """Three epochs of messages forward and back, and 8 bytes from either rank to announce each."""
    return 3 * 2 * (halo_rows() * (-(-WIDTH * bits // 8) + header) + 16)


def exchanged(folder, times=1, **options):
    """Send the same rows from rank 0 to rank 1 some times; return the rows and every decoded message."""

    def rank(comm):
        rounded = trainer(folder, comm, **ADAQP, bits="4", message_header="fp32", **options).method._rounded
        rows = np.random.default_rng(0).normal(size=(len(rounded.names.requested[1 - comm.rank]), WIDTH)).astype(np.float32)
        count = len(rounded.names.halo[1 - comm.rank])
        decoded = []
        for _ in range(times):
            parts = [np.empty(0, np.uint8)] * 2
            parts[1 - comm.rank] = rounded.pack(rows, 1 - comm.rank, "1 forward")
            message = comm.alltoall(parts, "activations")[1 - comm.rank]
            decoded.append(rounded.unpack(message, count, WIDTH, 1 - comm.rank, "1 forward"))
        return rows, decoded

    (rows, _), (_, decoded) = on_threads(2, rank)
    return rows, decoded, np.ptp(rows, axis=1, keepdims=True) / 15  # the step of a grid of four bits


def test_bits_of_a_number(folder):
    for bits in (2, 4, 8):
        assert sent_in_steps(folder, **ADAQP, bits=str(bits)) == message_bytes(bits)


def test_message_header_is_two_numbers_of_its_type(folder):
    assert sent_in_steps(folder, **ADAQP, bits="8", message_header="fp32") == message_bytes(8, header=8)


def test_message_rounding_to_nearest_is_off_by_half_a_step(folder):
    rows, (decoded,), step = exchanged(folder, message_rounding="nearest")
    error = np.abs(decoded - rows) / step
    assert 0.4 < error.max() < 0.501


def test_message_coding_remembers_what_was_sent(folder):
    """Differences: the second message corrects the first. Feedback: the errors of T messages add up to one error."""
    nearest = {"message_rounding": "nearest"}
    rows, (_, second), step = exchanged(folder, 2, message_coding="difference", **nearest)
    assert (np.abs(second - rows) <= 1.01 * step / 30).all()
    rows, messages, step = exchanged(folder, 10, message_coding="feedback", **nearest)
    assert (np.abs(np.mean(messages, axis=0) - rows) <= 1.2 * step / 2 / 10).all()


def bits_of_a_run(folder, comm, **options):
    """The bits of the hidden rows that this rank sends after a first choice, and the number of choices."""
    report, _, made = trained(folder, comm, **{**ADAQP, "hidden": 32, "reassign_every": 2, "epochs": 4, **options})
    return made.method._rounded.sent["1 forward", 1 - comm.rank], report["assignments"]


def test_reassign_every_counts_the_choices(folder):
    """Epochs 1, 4 and 7 are traced, so epochs 3 and 6 begin with new bits."""
    ranks = on_threads(2, lambda comm: bits_of_a_run(folder, comm, reassign_every=3, epochs=9))
    traced = [epoch for epoch in range(9) if (epoch + 1) % 3 == 0]
    assert {count for _, count in ranks} == {sum(epoch + 2 < 9 for epoch in traced)} == {2}


def test_variance_weight_trades_noise_for_time(folder):
    """Time alone takes two bits everywhere, noise alone eight."""
    for weight, bits in ((0.0, 2), (1.0, 8)):
        for found, _ in on_threads(2, lambda comm, weight=weight: bits_of_a_run(folder, comm, variance_weight=weight)):
            assert set(found) == {bits}


def test_links_that_take_no_time_get_eight_bits(folder, tmp_path):
    """Rank 0 sends slowly; rank 1 sends for nothing while rank 0 does."""
    speeds = tmp_path / "links.json"
    speeds.write_text(json.dumps({"theta": [[0, 1000], [0, 0]], "gamma": [[0, 0], [0, 0]]}))
    (slow, _), (fast, _) = on_threads(2, lambda comm: bits_of_a_run(folder, comm, links=str(speeds), variance_weight=0.1))
    assert set(fast) == {8}
    assert slow.mean() < 4


def test_noise_weights_square_each_use_or_their_sum(folder):
    """Row v of a mean uses its neighbors u with 1 / d_v each, so a message u adds the sum over v of 1 / d_v^2, or (sum of 1 / d_v)^2."""
    a = graph().adjacency
    use = np.zeros((60, 60))
    use[a.row_of_entry(), a.indices] = 1 / a.degrees[a.row_of_entry()]
    expected = {
        "sum_of_squares": lambda rows: np.square(use[rows]).sum(0),
        "squared_sum": lambda rows: np.square(use[rows].sum(0)),
    }
    halves = [slice(0, 30), slice(30, 60)]
    for how, formula in expected.items():

        def rank(comm, how=how):
            made = trainer(folder, comm, **ADAQP, noise_weights=how)
            peer = 1 - comm.rank
            return made.method._assignment._weights[0][peer], made.method._rounded.names.requested[peer]

        for r, (weights, vertices) in enumerate(on_threads(2, rank)):
            assert weights == pytest.approx(formula(halves[1 - r])[vertices])

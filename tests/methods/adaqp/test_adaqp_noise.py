"""AdaQP: where rounding is unbiased, how much noise it adds, and what adaptive widths and codings make of it."""

import os
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sweeps import sweep
from test_adaqp import STILL
from training_runs import weights_of

from bulksample import backends
from bulksample.data import npz, store
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.halo import MessageFormat
from bulksample.distributed.matrix.open_graph import open_block
from bulksample.distributed.matrix.placement import Placement
from bulksample.methods.adaqp.assignment import coefficients
from bulksample.methods.adaqp.rounded_messages import RoundedMessages, RowNames
from bulksample.methods.adaqp.widths import LinkSpeeds, Problem
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.nn.model import Gnn
from bulksample.views.full_graph import FullGraph, HaloRows
from bulksample.views.plain_view import block_view, features_of_block


def rounded_rows(directory, comm, bits, model="sage", nearest=False, coding="plain", weights="sum_of_squares", partition="random"):
    """Own rows whose messages are rounded, with fixed widths unless a table is put in."""
    opened, grid = open_block(directory, Placement("partitioned", 1, partition=partition), comm), ProcessGrid(comm)
    view = block_view(opened, grid, backends.make(), features_of_block(opened, grid), "")
    rounded = RoundedMessages(
        backends.make(), 0, comm.rank, False, nearest, coding, lambda key, names, receiver: np.full(len(names), bits, np.uint8)
    )
    rows = HaloRows(view, rounded)
    halo = rows.halo
    rounded.names = RowNames([rows.vertices[asked] for asked in halo.requested], np.split(halo.vertices, np.cumsum(halo.counts)[:-1]))
    return rows, rounded, coefficients(rows, model == "gcn", weights, comm)


def gradient(model, rows, comm):
    model.zero_grad()
    mask = torch.from_numpy(rows.masks["train"])
    F.cross_entropy(FullGraph(rows)(model)[mask], torch.from_numpy(rows.labels)[mask], reduction="sum").backward()
    return comm.allreduce(torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()]).numpy().copy(), "gradients")


class OnlyBackward(RoundedMessages):
    """Rows as they are forward, rounded gradients backward."""

    def pack(self, rows, peer, key):
        return super().pack(rows, peer, key) if key.endswith("backward") else rows

    def unpack(self, message, count, width, peer, key):
        return super().unpack(message, count, width, peer, key) if key.endswith("backward") else message


def bias(directory, bits, messages, times=100):
    """|mean - g|^2 over Var / T of T gradients: about 1 where they are independent and unbiased."""

    def rank(comm):
        rows, rounded, _ = rounded_rows(directory, comm, bits)
        model = Gnn("sage", [8, 12, 12, 3], seed=1)
        rounded.__class__ = messages
        draws = []
        for rounded.epoch in range(times):
            draws.append(gradient(model, rows, comm).astype(np.float64))
        rows.messages = MessageFormat()
        return np.array(draws), gradient(model, rows, comm).astype(np.float64)

    draws, exact = on_threads(3, rank)[0]
    variance = np.square(draws - draws.mean(0)).sum() / (times - 1)
    assert variance > 0
    return np.square(draws.mean(0) - exact).sum() / (variance / times)


@pytest.mark.long
@sweep("bits", [2, 4, 8])
def test_gradients_are_unbiased_where_only_they_are_rounded(stored, bits):
    assert bias(stored / "plain", bits, OnlyBackward) < 1.5


def test_gradients_are_biased_where_hidden_rows_are_rounded(stored):
    """Rounded rows are right on average; what ReLU and softmax make of them is not."""
    assert bias(stored / "plain", 2, RoundedMessages) > 3


def noise(directory, comm, bits_of, model, times, name, partition="random"):
    """E |g - g0|^2 / |g0|^2 over roundings, for widths that `bits_of` decides once all is traced."""
    rows, rounded, weights = rounded_rows(directory, comm, 8, name, partition=partition)
    rounded.traced = {}
    gradient(model, rows, comm)
    bits_of(comm, rounded, rows, weights)
    rounded.traced = None
    found = []
    for rounded.epoch in range(1, times + 1):
        found.append(gradient(model, rows, comm).astype(np.float64))
    rows.messages = MessageFormat()
    exact = gradient(model, rows, comm).astype(np.float64)
    return np.square(np.array(found) - exact).sum(1).mean() / np.square(exact).sum()


def fixed(bits):
    def put(comm, rounded, rows, weights):
        for tables in (rounded.sent, rounded.received):
            for at, table in tables.items():
                tables[at] = np.full(len(table), bits, np.uint8)

    return put


@pytest.mark.long
def adaptive(mean, shuffled=False):
    """The best widths of each pair of ranks, layer and direction whose mean is at most `mean`; or these, assigned at random."""

    def put(comm, rounded, rows, weights):
        for key in sorted(rounded.widths):
            two, four, eight = (rounded.record_bytes(rounded.widths[key], bits) for bits in (2, 4, 8))
            own = []
            for peer in range(comm.size):
                beta = rounded.traced[key, peer] * weights[key.endswith("backward")][peer]
                low, high, bits = 0.0, 1.0, np.full(len(beta), 2, np.uint8)
                for _ in range(20 if len(beta) else 0):
                    trade = (low + high) / 2
                    tried = Problem({(0, 1): beta}, (two, four, eight), LinkSpeeds.even(2), trade).solve()[0, 1]
                    low, high, bits = (trade, high, tried) if tried.mean() <= mean else (low, trade, bits)
                own.append(np.random.default_rng([comm.rank, peer]).permutation(bits) if shuffled else bits)
            for peer, bits in enumerate(comm.alltoall(own, "control")):
                rounded.sent[key, peer], rounded.received[key, peer] = own[peer], bits

    return put


def test_noise_falls_with_the_width_and_adaptive_beats_its_own_shuffle(stored):
    def rank(comm):
        model = Gnn("gcn", [8, 12, 12, 3], seed=2)
        widths = (fixed(2), adaptive(3, True), adaptive(3), fixed(4), fixed(8))
        return [noise(stored / "plain", comm, put, model, 12, "gcn") for put in widths]

    two, shuffled, chosen, four, eight = on_threads(4, rank)[0]
    assert two > shuffled > chosen > four > eight
    assert two / four > 4
    assert four / eight > 8
    assert shuffled / chosen > 1.3


def test_weights_are_those_of_the_noise_that_is_added(stored):
    """Summed over messages, a_u |eps_u|^2 is what noise eps adds to the aggregated rows of the receiver, on average."""

    def rank(comm):
        for model, normalised in (("sage", False), ("gcn", True)):
            rows, _, (forward, _) = rounded_rows(stored / "weighted", comm, 8, model)
            layer = Gnn(model, [4, 4]).layers[0]
            with torch.no_grad():
                for parameter in layer.parameters():
                    parameter.zero_()
                (layer.weight if normalised else layer.mean).copy_(torch.eye(4))
                m, h = rows.rows, len(rows.halo.vertices)
                scale = torch.from_numpy(np.random.default_rng(comm.rank).random(h)).float() + 0.1
                added = []
                for seed in range(300):
                    eps = torch.randn(h, 4, generator=torch.Generator().manual_seed(seed)) * scale[:, None]
                    sent = torch.cat([torch.zeros(m, 4), eps])
                    out = layer.receive(rows.block, sent, torch.zeros(m, 4), slice(0, m), rows.degrees[:m], False)
                    added.append(float(out.square().sum()))
            own = comm.alltoall(forward, "control")  # back to the receiver, whose noise it is
            expected = 4 * float(np.concatenate(own) @ np.square(scale.numpy().astype(np.float64)))
            assert np.mean(added) == pytest.approx(expected, abs=5 * np.std(added) / np.sqrt(300))

    on_threads(3, rank)


def test_squared_sums_are_never_below_sums_of_squares(stored):
    def rank(comm):
        squares, sums = (rounded_rows(stored / "plain", comm, 8, weights=name)[2][0] for name in ("sum_of_squares", "squared_sum"))
        for a, b in zip(squares, sums, strict=True):
            assert (b >= a - 1e-12).all()
        return any((b > 1.5 * a).any() for a, b in zip(squares, sums, strict=True))

    assert any(on_threads(3, rank))


def test_evaluation_is_not_traced(stored):
    """Nor rounded: it fetches rows as they are."""

    def rank(comm, every):
        trainer = make_trainer(TrainConfig.of(**{**STILL, "eval_every": every}), stored / "plain", comm)
        trainer.run()
        return weights_of(trainer), trainer.method._rounded.sent

    often, seldom = (on_threads(3, lambda comm, every=every: rank(comm, every)) for every in (1, 100))
    for a, b in zip(often, seldom, strict=True):
        assert a[1].keys() == b[1].keys()
        assert all((a[1][at] == b[1][at]).all() for at in a[1])


def test_difference_coding_follows_rows_that_settle(stored):
    """Rows that no longer move are sent ever more exactly."""

    def rank(comm):
        rows, rounded, _ = rounded_rows(stored / "plain", comm, 4, coding="difference")
        own = np.random.default_rng(comm.rank).standard_normal((rows.rows, 6)).astype(np.float32)
        rows.messages = rounded
        errors = []
        for rounded.epoch in range(6):
            came = rows.halo.start(own, rounded, "1 forward").wait()
            exact = rows.halo.start(own, MessageFormat(), "").wait()
            errors.append(float(np.abs(came - exact).max(initial=0)))
        return errors

    for errors in on_threads(3, rank):
        assert errors[0] > 0.05
        assert errors[-1] < 1e-5


def test_error_feedback_makes_nearest_rounding_right_on_average(stored):
    def rank(comm, coding):
        rows, rounded, _ = rounded_rows(stored / "plain", comm, 2, nearest=True, coding=coding)
        own = np.random.default_rng(comm.rank).standard_normal((rows.rows, 6)).astype(np.float32)
        came = [rows.halo.start(own, rounded, "1 forward").wait() for _ in range(50)]
        return np.abs(np.mean(came, 0) - rows.halo.start(own, MessageFormat(), "").wait()).max(initial=0)

    with_feedback, without = (max(on_threads(3, lambda comm, coding=coding: rank(comm, coding))) for coding in ("feedback", "plain"))
    assert with_feedback < 0.15
    assert without > 0.3


@pytest.mark.long
@pytest.mark.parametrize("partition", ["metis", "random"])
def test_gradient_noise_on_cora(tmp_path, partition):
    """Fixed weights, three layers of GCN, four ranks: at equal bytes the chosen widths beat the same widths assigned at random."""
    folder = Path(os.environ.get("BULKSAMPLE_DATA", "nowhere"))
    if not (folder / "cora.npz").exists():
        pytest.skip("BULKSAMPLE_DATA names no folder with cora.npz")
    graph, split = npz.read(folder / "cora.npz"), np.random.default_rng(0).random(2708)
    graph.masks.update(train=split < 0.6, val=(split >= 0.6) & (split < 0.8), test=split >= 0.8)
    store.save(graph, tmp_path / "cora")
    options = {"model": "gcn", "hidden": 64, "epochs": 30, "partition": partition, "dropout": 0.5, "feature_norm": "l1"}

    def rank(comm):
        trainer = make_trainer(TrainConfig.of(**{**STILL, "method": "full", "reassign_every": None, **options}), tmp_path / "cora", comm)
        trainer.run()
        model = trainer.model.eval()
        puts = {f"adaptive {mean}": adaptive(mean) for mean in (3, 4)} | {"shuffled 3": adaptive(3, True)}
        puts |= {str(bits): fixed(bits) for bits in (2, 4, 8)}
        return {name: noise(tmp_path / "cora", comm, put, model, 16, "gcn", partition) for name, put in puts.items()}

    found = on_threads(4, rank)[0]
    print(partition, {name: f"{value:.2e}" for name, value in found.items()})
    assert found["2"] > found["shuffled 3"]
    assert found["adaptive 3"] < found["shuffled 3"] / 1.8
    assert found["adaptive 4"] < found["4"]
    assert 4 < found["2"] / found["4"] < 40
    assert 8 < found["4"] / found["8"] < 400

"""RETEXO: bytes are those of the formula, and rounds send gradients of one layer and nothing of a row."""

import numpy as np
import pytest
import torch
from test_retexo import trained
from training_runs import weights_of

from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.retexo.method import RETEXO


class Spying(RETEXO):
    """Notes what is sent in every round, by kind, and every all-to-all."""

    def view(self, context):
        self.per_round, self.exchanges, self._comm = [], [], context.comm
        comm = context.comm
        started = comm.start_alltoall

        def start(parts, kind):
            self.exchanges.append(kind)
            return started(parts, kind)

        comm.start_alltoall = start
        super().view(context)

    def begin_round(self, context):
        self._before = {kind: sent.bytes for kind, sent in self._comm.tally.items()} | {"exchanges": len(self.exchanges)}

    def end_step(self, context, sums):
        self._note()  # a round is one step
        return super().end_step(context, sums)

    def evaluate(self, context):
        self._before = {kind: sent.bytes for kind, sent in self._comm.tally.items()} | {"exchanges": len(self.exchanges)}
        scores = super().evaluate(context)
        self._note()
        return scores

    def _note(self):
        now = {kind: sent.bytes for kind, sent in self._comm.tally.items()} | {"exchanges": len(self.exchanges)}
        self.per_round.append({kind: now[kind] - before for kind, before in self._before.items()})


@pytest.mark.parametrize(("model", "width", "sizes"), [
    ("gcn", 12, [8 * 12 + 12 + 24 + 39, 12 * 12 + 12 + 24 + 39, 12 * 3 + 3]),
    ("sage", 12, [2 * 8 * 12 + 12 + 24 + 39, 2 * 12 * 12 + 12 + 24 + 39, 2 * 12 * 3 + 3]),
    ("gat", 3, [8 * 12 + 24 + 3 + 6 + 12, 3 * 12 + 24 + 3 + 6 + 12, 3 * 3 + 6 + 3]),
])  # fmt: skip
@pytest.mark.parametrize(("p", "partition"), [(4, "random"), (3, "block")])
def test_bytes_are_those_of_the_formula_and_rounds_send_gradients_alone(stored, monkeypatch, model, width, sizes, p, partition):
    """A network 8-12-12-3 (with 4 averaged heads: 8-3-3-3); |theta_l| is the layer, its norm and its head of 3 classes."""
    monkeypatch.setattr("bulksample.methods.run.load", lambda name: Spying)
    rounds = 5

    def rank(comm):
        _, trainer, report = trained(stored / "plain", comm, model=model, epochs=rounds, partition=partition)
        return {kind: sent.bytes for kind, sent in comm.tally.items()}, trainer.method, report, len(trainer.method.rows.halo.vertices)

    tallies, methods, reports, halo = zip(*on_threads(p, rank), strict=True)
    sent = {kind: sum(tally[kind] for tally in tallies) for kind in tallies[0]}
    expected = {
        "features": 4 * sum(halo) * 8,
        "activations": 4 * sum(halo) * 2 * width,
        "gradients": 4 * 2 * (p - 1) * rounds * sum(size + 3 for size in sizes),
        "model": 4 * 2 * (p - 1) * sum(sizes),
    }
    assert {kind: sent[kind] for kind in expected} == expected
    assert reports[0]["predicted_bytes"] == expected
    assert all(method.exchanges.count("activations") == 2 for method in methods)  # and one of the features: L = 3
    trained_in, judged_in = methods[0].per_round[0::2], methods[0].per_round[1::2]
    assert len(trained_in) == len(judged_in) == 3 * rounds
    for counts in zip(*(method.per_round[0::2] for method in methods), strict=True):
        assert all(count[kind] == 0 for count in counts for kind in ("activations", "features", "model", "topology", "exchanges"))
    assert [sum(c["gradients"] for c in counts) for counts in zip(*(method.per_round[0::2] for method in methods), strict=True)] == [
        4 * 2 * (p - 1) * (size + 3) for size in sizes for _ in range(rounds)
    ]
    for count in judged_in:  # six counts, reduced
        assert all(count[kind] == 0 for kind in count if kind != "control")
    assert sum(c["control"] for c in (method.per_round[1] for method in methods)) == 2 * (p - 1) * 8 * 6


def test_sparse_features_are_counted_as_they_travel(stored):
    def rank(comm):
        return trained(stored / "sparse", comm, layers=2)[2], comm.tally["features"].bytes

    reports, sent = zip(*on_threads(4, rank), strict=True)
    assert reports[0]["predicted_bytes"]["features"] == sum(sent) > 0


@pytest.mark.parametrize("codec", ["fp32", "bf16", "int8", "int2"])
def test_dense_features_are_counted_as_the_codec_sends_them(stored, codec):
    def rank(comm):
        return trained(stored / "plain", comm, layers=2, feature_codec=codec)[2], comm.tally["features"].bytes

    reports, sent = zip(*on_threads(4, rank), strict=True)
    assert reports[0]["predicted_bytes"]["features"] == sum(sent) > 0


def test_no_gradient_of_a_row_comes_back(stored, monkeypatch):
    def refused(*_):
        raise AssertionError("a gradient of rows travels")

    monkeypatch.setattr("bulksample.distributed.matrix.halo.Halo.start_back", refused)
    on_threads(3, lambda comm: trained(stored / "plain", comm, model="gat"))
    with pytest.raises(AssertionError, match="travels"):
        on_threads(3, lambda comm: trained(stored / "plain", comm, method="full"))


@pytest.mark.long
@pytest.mark.parametrize("codec", ["bf16", "fp16"])
def test_gradients_may_travel_in_half_the_bytes(stored, codec):
    def rank(comm):
        losses, trainer, report = trained(stored / "plain", comm, gradient_codec=codec, epochs=30, model="gcn")
        return losses, comm.tally["gradients"].bytes, report, weights_of(trainer)

    exact = on_threads(4, lambda comm: trained(stored / "plain", comm, epochs=30, model="gcn")[0])[0]
    losses, sent, reports, held = zip(*on_threads(4, rank), strict=True)
    assert sum(sent) == reports[0]["predicted_bytes"]["gradients"]
    assert all(torch.equal(own, held[0]) for own in held)
    assert losses[0] != exact
    np.testing.assert_allclose(losses[0], exact, rtol=0.02)

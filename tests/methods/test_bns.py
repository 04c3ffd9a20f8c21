"""Boundary-node sampling: all rows drawn is full-graph training, fewer are unbiased, and send what their number says."""

import itertools
import json

import numpy as np
import pytest
import torch
from communities import dense_adjacency
from launch import run_ranks
from sweeps import sweep
from training_runs import weights_and_report

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.batches import EMPTY_BATCH

BNS = {"method": "bns", "layers": 3, "hidden": 12, "epochs": 5, "lr": 0.01, "threads": 1, "partition": "random", "eval_every": 5}


def made(directory, comm, **options):
    return make_trainer(TrainConfig.of(**{**BNS, **options}), directory, comm)


def trained(directory, comm, **options):
    return weights_and_report(directory, comm, **{**BNS, **options})


# every two of model, form and overlap meet: four cases on dense features, and the same on sparse ones
@sweep(
    ("name", "model", "form", "overlap"),
    [
        (name, model, form, (model == "sage") == (form == "strong"))
        for name, model, form in itertools.product(("plain", "sparse"), ("sage", "gcn"), ("strong", "naive"))
    ],
    quick=4,
)
def test_with_every_row_it_is_full_graph_training_to_the_bit(stored, name, model, form, overlap):
    asked = {"model": model, "form": form, "overlap": overlap}
    found = on_threads(4, lambda comm: trained(stored / name, comm, **asked, boundary_share=1.0))
    expected = on_threads(4, lambda comm: trained(stored / name, comm, **asked, method="full"))
    for (weights, report), (others, expected_report) in zip(found, expected, strict=True):
        assert torch.equal(weights, others)
        assert report["bytes_sent"]["activations"] == expected_report["bytes_sent"]["activations"]


def test_one_rank_is_full_graph_training_to_the_bit(stored):
    assert torch.equal(trained(stored / "plain", None)[0], trained(stored / "plain", None, method="full")[0])


def standard_errors(directory, comm, scale, **options):
    """By how many standard errors the mean of the logits of many epochs is off; of those logits that sampling moves."""
    epochs = 200
    trainer = made(directory, comm, **options)
    method, logits = trainer.method, []
    unpack = method.sample.unpack
    method.sample.unpack = lambda *message: scale * unpack(*message)
    for epoch in range(epochs):
        method.sample.draw(method.rows, epoch)
        logits.append(method.logits(trainer.context).detach().numpy())
    full = made(directory, comm, **{**options, "method": "full", "boundary_share": 0.1})
    full.model.load_state_dict(trainer.model.state_dict())
    error, off = np.std(logits, 0) / np.sqrt(epochs), np.mean(logits, 0) - full.method.logits(full.context).detach().numpy()
    moved = error > 1e-4
    return off[moved] / error[moved]


@pytest.mark.long
@sweep("model", ["sage", "gcn"])
@sweep(("form", "layers"), [("naive", 1), ("strong", 2)])
def test_logits_behind_one_sampled_sum_are_unbiased_and_would_not_be_undivided(stored, model, form, layers):
    asked = {"model": model, "form": form, "layers": layers, "boundary_share": 0.3, "dropout": 0.0}
    off = np.concatenate(on_threads(3, lambda comm: standard_errors(stored / "plain", comm, 1.0, **asked)))
    assert len(off) > 300
    assert abs(off).max() < 5
    assert np.square(off).mean() < 2
    undivided = np.concatenate(on_threads(3, lambda comm: standard_errors(stored / "plain", comm, np.float32(0.3), **asked)))
    assert np.square(undivided).mean() > 20


def test_gradients_are_those_of_the_sampled_adjacency(stored):
    """Column u of what rank r aggregates is 1 / q or 0; the same dense algebra has the same gradient."""
    graph, share = store.load(stored / "plain"), 0.4
    asked = {"layers": 2, "boundary_share": share, "dropout": 0.0}

    def rank(comm):
        trainer = made(stored / "plain", comm, **asked)
        method = trainer.method
        method.begin_round(trainer.context)
        loss, _ = method.loss(trainer.context, EMPTY_BATCH)
        loss.backward()
        gradient = torch.cat([parameter.grad.reshape(-1) for parameter in trainer.model.parameters()])
        drawn = method.rows.halo.vertices[np.concatenate(method.sample.incoming)]
        return comm.allreduce(gradient.numpy(), "gradients"), method.rows.vertices, drawn, trainer.model

    found = on_threads(3, rank)
    a = dense_adjacency(graph)
    exact = torch.from_numpy(a / np.maximum(a.sum(1), 1)[:, None]).float()
    sampled = torch.zeros_like(exact)
    for _, own, drawn, _ in found:
        scale = np.zeros(graph.n, np.float32)
        scale[own], scale[drawn] = 1, 1 / share
        sampled[own] = exact[own] * torch.from_numpy(scale)
    model, h = found[0][3], torch.tensor(graph.features)
    first, last = model.layers
    h = torch.relu(h @ first.own + exact @ h @ first.mean + first.bias)
    logits = h @ last.own + sampled @ h @ last.mean + last.bias
    mask = torch.tensor(graph.masks["train"])
    loss = torch.nn.functional.cross_entropy(logits[mask], torch.tensor(graph.labels)[mask], reduction="sum")
    expected = torch.cat([gradient.reshape(-1) for gradient in torch.autograd.grad(loss, list(model.parameters()))])
    np.testing.assert_allclose(found[0][0], expected.numpy(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("form", "widths"), [("strong", [12, 3]), ("naive", [12, 12])])
def test_bytes_are_those_of_the_rows_drawn(stored, form, widths):
    """Three layers 8-12-12-3, as of `full`, with the rows that were drawn in place of all."""
    p, epochs, share = 4, 6, 0.25

    def rank(comm):
        trainer = made(stored / "plain", comm, form=form, boundary_share=share, epochs=epochs, eval_every=100)
        trainer.method.evaluate = lambda trainer: {"val_accuracy": 0.0}
        before, drawn, begin = comm.tally["activations"].bytes, [], trainer.method.begin_round

        def counted(context):
            begin(context)
            drawn.append(sum(mask.sum() for mask in trainer.method.sample.incoming))

        trainer.method.begin_round = counted
        report = trainer.run()
        return comm.tally["activations"].bytes - before, sum(drawn), len(trainer.method.rows.halo.vertices), report

    sent, drawn, halo, reports = zip(*on_threads(p, rank), strict=True)
    assert sum(sent) == 4 * sum(drawn) * (2 * sum(widths) + (8 if form == "naive" else 0))
    expected = share * epochs * sum(halo)
    assert abs(sum(drawn) - expected) < 5 * np.sqrt(expected * (1 - share))
    assert reports[0]["drawn_share"] == pytest.approx(sum(drawn) / epochs / sum(halo))


def test_epochs_and_receivers_draw_apart_and_both_ends_agree(stored):
    def rank(comm):
        method, masks = made(stored / "plain", comm, boundary_share=0.5).method, []
        for epoch in (0, 1):
            method.sample.draw(method.rows, epoch)
            masks.append((method.sample.incoming, method.sample.outgoing))
        return masks, np.split(method.rows.halo.vertices, np.cumsum(method.rows.halo.counts)[:-1])

    found = on_threads(3, rank)
    for r, (masks, _) in enumerate(found):
        for epoch in (0, 1):
            for peer in range(3):
                assert (masks[epoch][0][peer] == found[peer][0][epoch][1][r]).all()
    (masks, held), (others, theirs) = found[0], found[1]
    first, second = (np.concatenate(masks[epoch][0]) for epoch in (0, 1))
    assert 0.3 < np.mean(first == second) < 0.7
    _, mine, same = np.intersect1d(held[2], theirs[2], return_indices=True)
    assert 0.2 < np.mean(masks[0][0][2][mine] == others[0][0][2][same]) < 0.8


def test_a_resumed_run_goes_on_to_the_bit(stored, tmp_path):
    whole = on_threads(3, lambda comm: trained(stored / "plain", comm)[0])[0]
    kept = {"checkpoint": str(tmp_path / "c")}
    on_threads(3, lambda comm: trained(stored / "plain", comm, **kept, epochs=2))
    weights, report = on_threads(3, lambda comm: trained(stored / "plain", comm, **kept, resume="auto"))[0]
    assert report["resumed"]
    assert torch.equal(weights, whole)


@pytest.mark.parametrize(("options", "message"), [
    ({"model": "gat"}, "use sage, gcn, or a module of your own"), ({"boundary_share": 0.0}, "boundary_share"),
    ({"method": "full", "boundary_share": 0.5}, "boundary_share is an option of the method 'bns'"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(stored, options, message):
    with pytest.raises(UsageError, match=message):
        trained(stored / "plain", None, **options)


@pytest.mark.long
def test_the_command_line(stored, tmp_path):
    flags = {"method": "bns", "layers": 2, "epochs": 4, "hidden": 8, "boundary-share": 0.3}
    words = ["--quiet", *[word for key, value in flags.items() for word in (f"--{key}", value)]]
    ended = run_ranks(2, ["-m", "bulksample", "train", *map(str, [stored / "plain", *words, "--json", tmp_path / "r"])])
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r").read_text())
    assert (report["method"], report["boundary_share"]) == ("bns", 0.3)
    assert 0 < report["drawn_share"] < 0.6

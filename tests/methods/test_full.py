"""Full-graph training is the training of one process on the whole graph, on any ranks and partition, and sends what its formula says."""

import json
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from communities import community_graph, dense_adjacency, dense_features
from launch import run_ranks
from training_runs import run_training

from bulksample import UsageError, backends
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.open_graph import open_block
from bulksample.distributed.matrix.placement import Placement
from bulksample.methods import load
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.nn.model import Gnn
from bulksample.views.full_graph import FullGraph, HaloRows
from bulksample.views.plain_view import block_view, features_of_block

LONG = partial(pytest.param, marks=pytest.mark.long)
STILL = {"method": "full", "layers": 3, "hidden": 12, "epochs": 12, "lr": 0.01, "dropout": 0.0, "threads": 1}


def trained(source, comm, **options):
    """Train, and return the losses of all epochs and the report."""
    report, recorder, _ = run_training(source, comm, **{**STILL, **options})
    return recorder.losses, report


def rows_of(directory, comm, partition, **asked):
    """The own rows, whose messages travel as a method has them."""
    opened, grid = open_block(directory, Placement("partitioned", 1, partition=partition), comm), ProcessGrid(comm)
    config, view = TrainConfig.of(**asked), block_view(opened, grid, backends.make(), features_of_block(opened, grid), "")
    return HaloRows(view, load(config.method)(config).messages(comm))


def dense_gradient(graph, model, name):
    """Loss and gradient of all parameters by dense algebra in float64."""
    a, x = torch.from_numpy(dense_adjacency(graph)), torch.from_numpy(dense_features(graph))
    d = a.sum(1)
    h = x
    for i, layer in enumerate(model.layers):
        if name == "gcn":
            scale = 1 / torch.sqrt(d + 1)
            h = scale[:, None] * ((a + torch.eye(graph.n, dtype=torch.float64)) @ (scale[:, None] * h)) @ layer.weight + layer.bias
        else:
            h = h @ layer.own + a @ h / d.clamp(min=1)[:, None] @ layer.mean + layer.bias
        h = F.relu(h) if i < len(model.layers) - 1 else h
    mask = torch.tensor(graph.masks["train"])
    loss = F.cross_entropy(h[mask], torch.tensor(graph.labels)[mask], reduction="sum")
    return loss.detach(), torch.cat([g.reshape(-1) for g in torch.autograd.grad(loss, list(model.parameters()))])


@pytest.mark.parametrize("name", ["sage", "gcn"])
@pytest.mark.parametrize("strong", [True, False])
@pytest.mark.parametrize(("p", "partition"), [(1, "block"), (3, "random"), (4, "metis"), LONG(8, "block")])
@pytest.mark.parametrize("asked", [{"method": "full"}, {"method": "adaqp", "bits": "32"}], ids=["full", "adaqp, 32 bits"])
def test_gradients_are_those_of_dense_algebra_in_double_precision(stored, name, strong, p, partition, asked):
    graph = store.load(stored / "plain")
    model = Gnn(name, [graph.num_features, 20, 6, graph.num_classes], seed=3).double()
    expected_loss, expected = dense_gradient(graph, model, name)

    def rank(comm):
        own = Gnn(name, [graph.num_features, 20, 6, graph.num_classes]).double()
        own.load_state_dict(model.state_dict())
        rows = rows_of(stored / "plain", comm, partition, **asked)
        rows.x, rows.degrees = rows.x.double(), rows.degrees.double()
        mask = torch.from_numpy(rows.masks["train"])
        loss = F.cross_entropy(FullGraph(rows, strong)(own)[mask], torch.from_numpy(rows.labels)[mask], reduction="sum")
        loss.backward()
        total = torch.cat([loss.detach().reshape(1), *[parameter.grad.reshape(-1) for parameter in own.parameters()]])
        return comm.allreduce(total.numpy(), "gradients")

    found = on_threads(p, rank)[0]
    assert found[0] == pytest.approx(float(expected_loss), rel=1e-12)
    np.testing.assert_allclose(found[1:], expected.numpy(), rtol=1e-12, atol=1e-12 * float(expected.abs().max()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sparse", {"model": "gcn"}), LONG("plain", {}), LONG("plain", {"model": "gcn", "batch_norm": False}),
        LONG("plain", {"model": "gat", "heads": 2}), LONG("wide", {"layers": 2}),
        LONG("weighted", {"sampler": "sage", "sampler_options": {"weighted": True}}),
    ],
)  # fmt: skip
def test_ranks_and_forms_do_not_change_the_losses(stored, name, options):
    alone = trained(stored / name, None, **options)
    for p, partition, form in ((2, "block", "strong"), (4, "random", "naive"), (5, "metis", "strong")):
        asked = {"partition": partition, "form": form, **options}
        losses, report = on_threads(p, lambda comm, asked=asked: trained(stored / name, comm, **asked))[0]
        np.testing.assert_allclose(losses, alone[0], rtol=1e-4, atol=1e-5)
        assert report["test_accuracy"] == pytest.approx(alone[1]["test_accuracy"], abs=0.011)
    assert alone[0][-1] < alone[0][0]


def test_it_is_minibatch_training_on_one_minibatch_of_everything(stored):
    whole = {"sampler": "full", "fanouts": (-1, -1, -1), "batch_size": 1000}
    minibatches = trained(stored / "plain", None, **{**STILL, "method": "sync", **whole})
    np.testing.assert_allclose(trained(stored / "plain", None)[0], minibatches[0], rtol=0, atol=1e-5)


@pytest.mark.long
@pytest.mark.parametrize("form", ["strong", "naive"])
@pytest.mark.parametrize("model", ["sage", LONG("gcn"), LONG("gat")])
def test_overlap_does_not_change_a_bit(stored, form, model):
    def weights(overlap):
        def rank(comm):
            asked = {**STILL, "model": model, "form": form, "overlap": overlap, "dropout": 0.5}
            trainer = make_trainer(TrainConfig.of(**asked), stored / "plain", comm)
            trainer.run()
            return torch.cat([parameter.detach().reshape(-1) for parameter in trainer.model.parameters()])

        return on_threads(4, rank)

    assert all(torch.equal(a, b) for a, b in zip(weights(True), weights(False), strict=True))


@pytest.mark.parametrize(("form", "widths"), [("strong", [12, 3]), ("naive", [12, 12])])
def test_bytes_are_those_of_the_formula(stored, form, widths):
    """Three layers 8-12-12-3: hidden rows travel forward and their gradients back, twice; in the naive form the input travels too."""
    epochs, p = 5, 4

    def rank(comm):
        trainer = make_trainer(TrainConfig.of(**{**STILL, "form": form, "epochs": epochs, "eval_every": 100}), stored / "plain", comm)
        begun = comm.tally["activations"]
        trainer.method.evaluate = lambda trainer: {"val_accuracy": 0.0}
        trainer.run()
        return comm.tally["activations"].bytes - begun.bytes, len(trainer.method.rows.halo.vertices), trainer.model

    sent, halo, _ = zip(*on_threads(p, rank), strict=True)
    per_epoch = 4 * sum(halo) * (2 * sum(widths) + (8 if form == "naive" else 0))
    assert sum(sent) == epochs * per_epoch


@pytest.mark.long
def test_ranks_without_rows_or_training_vertices_take_part(tmp_path):
    graph = community_graph(n=60)
    graph.masks["train"][10:] = False
    store.save(graph, tmp_path / "g")
    alone = trained(tmp_path / "g", None)[0]
    for p in (4, 7):
        np.testing.assert_allclose(on_threads(p, lambda comm: trained(tmp_path / "g", comm))[0][0], alone, rtol=1e-4, atol=1e-5)
    small = community_graph(n=5, classes=2)
    store.save(small, tmp_path / "s")
    assert len(on_threads(8, lambda comm: trained(tmp_path / "s", comm, seeds="all"))[0][0]) == 12


@pytest.mark.parametrize(("options", "message"), [
    ({"graph": "replicated"}, "needs a partitioned graph"), ({"replication": 2}, "use 1"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(stored, options, message):
    def rank(comm):
        with pytest.raises(UsageError, match=message):
            trained(stored / "plain", comm, **options)

    on_threads(2, rank)


@pytest.mark.long
def test_the_command_line(stored, tmp_path):
    flags = {"method": "full", "layers": 2, "epochs": 6, "hidden": 8, "partition": "metis", "checkpoint": tmp_path / "c"}
    words = ["--quiet", *[word for key, value in flags.items() for word in (f"--{key}", value)]]
    ended = run_ranks(3, ["-m", "bulksample", "train", *map(str, [stored / "plain", *words, "--json", tmp_path / "r"])])
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r").read_text())
    assert (report["method"], report["graph"], report["steps"]) == ("full", "partitioned", 6)
    more = [*words, "--epochs", "8", "--resume", "auto", "--json", tmp_path / "more"]
    ended = run_ranks(3, ["-m", "bulksample", "train", *map(str, [stored / "plain", *more])])
    assert ended.code == 0, ended
    assert json.loads((tmp_path / "more").read_text())["steps"] == 8

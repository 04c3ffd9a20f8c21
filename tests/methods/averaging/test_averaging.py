"""Model averaging: with one trainer it is plain training, an average is the mean, and nothing but weights travels."""

import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from communities import community_graph
from launch import run_ranks
from sweeps import sweep
from training_runs import run_training, weights_of

from bulksample import DataError, UsageError, methods
from bulksample.data import store
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.partition import Partition, make
from bulksample.distributed.matrix.partition_quality import tradeoff
from bulksample.methods.averaging.participant import vector_of
from bulksample.methods.config import TrainConfig
from bulksample.methods.options import AVERAGING
from bulksample.methods.run import make_trainer
from bulksample.views.local import part_of

SMALL = {"fanouts": (5, 5), "hidden": 16, "batch_size": 16, "epochs": 4, "lr": 0.01, "threads": 1, "quiet": True}


def trained(source, comm=None, **options):
    """Train, and return the report, the recorder and the trainer."""
    return run_training(source, comm, **{**SMALL, **options})


@pytest.mark.parametrize("method", AVERAGING)
@sweep("options", [{"dropout": 0.5}, {"interval": "3", "batch_norm": True, "model": "gcn"}, {"batch_size": 1000}])
def test_alone_it_is_plain_training_to_the_bit(method, options):
    graph, more = community_graph(), {"server_steps": 0} if method == "llcg" else {}
    plain, plain_lines, expected = trained(graph, **{key: value for key, value in options.items() if key != "interval"})
    report, lines, found = trained(graph, method=method, **options, **more)
    assert torch.equal(weights_of(found), weights_of(expected))
    assert lines.losses == plain_lines.losses
    assert [line["val_accuracy"] for line in lines.lines] == [line["val_accuracy"] for line in plain_lines.lines]
    assert report["test_accuracy"] == plain["test_accuracy"]
    assert report["bytes_sent"]["total"] == 0


@pytest.mark.parametrize("method", AVERAGING)
@sweep("average_by", ["responders", "steps", "vertices"])
def test_one_trainer_beside_the_server_is_plain_training_to_the_bit(method, average_by):
    graph, more = community_graph(), {"server_steps": 0} if method == "llcg" else {}
    plain, plain_lines, expected = trained(graph, dropout=0.0)
    asked = {"method": method, "average_by": average_by, "dropout": 0.0, **more}
    report, lines, found = on_threads(2, lambda comm: trained(graph, comm, **asked))[0]
    assert torch.equal(weights_of(found), weights_of(expected))
    assert [line["test_accuracy"] for line in lines.lines] == [line["test_accuracy"] for line in plain_lines.lines]
    assert report["train_loss"] == pytest.approx(plain["train_loss"], rel=1e-6)
    assert report["steps"] == plain["steps"]


@pytest.mark.parametrize("average_by", ["responders", "steps"])
def test_trainers_that_do_the_same_are_one_trainer(average_by, monkeypatch):
    """Three trainers on the whole graph with the same seeds."""
    graph = community_graph()
    monkeypatch.setattr("bulksample.training.loaders.PART_SEED", 0)
    monkeypatch.setattr("bulksample.methods.averaging.divided_graph.part_of", lambda source, members, *more: source)
    monkeypatch.setattr("bulksample.methods.averaging.divided_graph._OneType._origin", lambda self, members: {"node": np.arange(graph.n)})
    expected = trained(graph, dropout=0.0)[2]
    asked = {"method": "random-tma", "dropout": 0.0, "average_by": average_by, "interval": "4"}
    for _, _, found in on_threads(4, lambda comm: trained(graph, comm, **asked)):
        assert torch.equal(weights_of(found), weights_of(expected))


@pytest.mark.parametrize("method", ["random-tma", "super-tma", "psgd-pa"])
@pytest.mark.parametrize("p", [3, 5])
def test_averaging_after_every_step_of_sgd_is_one_step_along_the_mean_gradient(method, p, monkeypatch):
    """Against plain torch: the gradient of each part by its own graph, their mean, one step."""
    graph, parts, steps = community_graph(), p - 1, 5
    monkeypatch.setattr("bulksample.training.context.Adam", lambda parameters, lr, weight_decay: torch.optim.SGD(parameters, lr))
    asked = {"method": method, "interval": "1", "dropout": 0.0, "sampler": "full", "batch_size": 1000, "epochs": steps, "lr": 0.05}
    asked["eval_every"] = 100  # the newest weights are the best then
    found = on_threads(p, lambda comm: trained(graph, comm, **asked))[0][2]
    reference = make_trainer(TrainConfig.of(**{**SMALL, **asked, "epochs": 0}), graph)
    kind = methods.load(method).partition_kind
    dealt = make(kind, graph.adjacency, parts, 0)
    one = TrainConfig.of(**{**SMALL, **asked, "method": "sync", "interval": "epoch"})
    alone = [make_trainer(one, part_of(graph, np.flatnonzero(dealt.assignment == part))) for part in range(parts)]
    model = reference.model
    for _ in range(steps):
        total = [torch.zeros_like(parameter) for parameter in model.parameters()]
        for trainer in alone:
            minibatch = next(iter(trainer.context.batches.loader))
            trainer.context.batches.loader.load_state_dict(trainer.context.batches.loader.state_dict() | {"epoch": 0, "step": 0})
            logits = model(
                minibatch.blocks, trainer.context.view.features.fetch(minibatch.vertices), trainer.context.view.degrees(minibatch.vertices)
            )
            loss = F.cross_entropy(logits, torch.from_numpy(trainer.context.view.truth(minibatch.seeds)))
            for one, gradient in zip(total, torch.autograd.grad(loss, list(model.parameters())), strict=True):
                one += gradient / parts
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), total, strict=True):
                parameter -= 0.05 * gradient
    torch.testing.assert_close(weights_of(found), weights_of(reference), rtol=1e-4, atol=1e-6)


def test_an_average_is_the_mean_of_the_answers_by_their_shares():
    _, _, trainer = trained(community_graph(), method="random-tma", epochs=0)
    size = len(vector_of(trainer.model))
    rng = np.random.default_rng(0)
    answers = [rng.standard_normal(size + 4).astype(np.float32) for _ in range(3)]
    for shares in ([1, 1, 1], [3, 0, 5], [0, 0, 0]):
        for answer, share in zip(answers, shares, strict=True):
            answer[-1] = share
        result = trainer.method.average(trainer.context, answers)
        weigh = shares if any(shares) else [1, 1, 1]
        expected = np.average([answer[:size].astype(np.float64) for answer in answers], axis=0, weights=weigh).astype(np.float32)
        np.testing.assert_allclose(result[:size], expected, rtol=1e-6, atol=1e-7)
        np.testing.assert_allclose(result[size:], np.sum([answer[size:] for answer in answers], axis=0), rtol=1e-6)
        assert np.array_equal(vector_of(trainer.model), result[:size])


@pytest.mark.parametrize("method", AVERAGING)
@sweep(("interval", "growth"), [("epoch", 1.0), ("2", 1.0), ("2", 1.5), ("1000", 1.0)], quick=2)
def test_bytes_are_those_of_the_formula(method, interval, growth):
    graph, p = community_graph(), 4
    asked = {"method": method, "interval": interval, "interval_growth": growth}
    (report, _, trainer), *others = on_threads(p, lambda comm: trained(graph, comm, **asked))
    steps, size = report["steps"], len(vector_of(trainer.model))
    length, bounds = float(steps / SMALL["epochs"] if interval == "epoch" else interval), []
    while sum(bounds) < steps:
        bounds.append(round(length))
        length *= growth
    assert report["averages"] == len(bounds)
    assert report["trainers"] == p - 1
    sent = report["bytes_sent"]
    assert sent["model"] == len(bounds) * 8 * (p - 1) * (size + 4) + (p - 1) * 4 * size  # and the initial weights
    for _, _, other in others:  # to the server alone
        assert other.comm.tally["model"].bytes == len(bounds) * 4 * (size + 4)
        assert other.comm.tally["model"].messages == len(bounds)
    assert sent["topology"] == (p - 1) * 4 * graph.n
    assert sent["features"] == sent["activations"] == sent["gradients"] == 0


@pytest.mark.parametrize("interval", ["epoch", "3"])
def test_all_hold_the_same_weights_after_an_average_and_repeat_them(interval):
    def rank(comm):
        _, _, trainer = trained(community_graph(), comm, method="super-tma", interval=interval, batch_norm=True, patience=0)
        return vector_of(trainer.model) if comm.rank else trainer.context.best_weights

    first, second = (on_threads(3, rank) for _ in range(2))
    for one, other in zip(first[1:], second[1:], strict=True):
        assert np.array_equal(one, other)
    assert all(torch.equal(tensor, second[0][name]) for name, tensor in first[0].items())


@pytest.mark.parametrize("method", ["random-tma", "super-tma", "psgd-pa"])
@pytest.mark.parametrize("lost", [0, 1])
def test_every_trainer_sees_its_part_and_no_more(tmp_path, method, lost):
    graph, p = community_graph(), 4
    store.save(graph, tmp_path / "g")
    dealt = make(methods.load(method).partition_kind, graph.adjacency, p - 1 + lost, 0)
    for source in (graph, tmp_path / "g"):
        asked = {"method": method, "lost_parts": lost, "epochs": 1}
        trainers = [one[2] for one in on_threads(p, lambda comm, source=source, asked=asked: trained(source, comm, **asked))]
        assert trainers[0].context.view.adjacency.n == graph.n
        assert trainers[0].context.view is trainers[0].method.whole_view
        for part, trainer in enumerate(trainers[1:]):
            members, view = np.flatnonzero(dealt.assignment == part), trainer.context.view
            dense = graph.adjacency.to_scipy().toarray()[np.ix_(members, members)]
            assert np.array_equal(view.adjacency.whole_matrix.to_scipy().toarray(), dense)
            assert np.array_equal(view.features.stored()[0], graph.features[members])
            assert np.array_equal(view.share.labels, graph.labels[members])
            assert np.array_equal(members[view.seeds], np.intersect1d(members, graph.seeds("train")))
            assert not hasattr(trainer.method, "whole_view")


def test_a_random_partition_keeps_the_edges_it_is_expected_to():
    graph = community_graph(n=2000, degree=10)
    for parts in (2, 4, 8):
        dealt = [make("random", graph.adjacency, parts, seed).assignment for seed in range(8)]
        shares = [tradeoff(graph.adjacency, graph.labels, assignment, parts) for assignment in dealt]
        kept = np.array([share["edges_kept"] for share in shares])
        assert abs(kept.mean() - 1 / parts) < 4 * kept.std(ddof=1) / 8**0.5 + 1e-3
        degrees = graph.adjacency.degrees
        alone = np.where(degrees > 0, (1 - 1 / parts) ** degrees, 0).mean()
        assert abs(np.mean([share["isolated"] for share in shares]) - alone) < 0.01
    labels = np.repeat([0, 1], 1000)
    apart = tradeoff(graph.adjacency, labels, labels.astype(np.int32), 2)
    assert apart["label_distance"] == 0.5


@pytest.mark.parametrize("parts", [2, 4])
@sweep("clusters", [16, 64])
def test_super_nodes_keep_the_edges_they_are_expected_to(parts, clusters):
    """rho + (1 - rho) (Q / M - 1) / (Q - 1), of Q clusters that hold a share rho of the edges."""
    graph = community_graph(n=1500, degree=8)
    beyond = []
    for seed in range(12):
        nodes, dealt = make("metis", graph.adjacency, clusters, seed), make("super", graph.adjacency, parts, seed, clusters)
        pairs = np.unique(np.stack([nodes.assignment, dealt.assignment]), axis=1)
        assert len(pairs[0]) == len(np.unique(nodes.assignment))  # no cluster is split
        rho = tradeoff(graph.adjacency, graph.labels, nodes.assignment, clusters)["edges_kept"]
        kept = tradeoff(graph.adjacency, graph.labels, dealt.assignment, parts)["edges_kept"]
        beyond.append(kept - rho - (1 - rho) * (clusters / parts - 1) / (clusters - 1))
    assert abs(np.mean(beyond)) < 4 * np.std(beyond, ddof=1) / len(beyond) ** 0.5 + 1e-3


@pytest.mark.parametrize("server_steps", [1, 3])
def test_llcg_corrects_by_steps_on_the_whole_graph(server_steps):
    """Alone, an epoch of one step and its correction is two ways to the same gradient: twice the steps of plain training with SGD."""
    graph = community_graph()
    asked = {"sampler": "full", "batch_size": 1000, "dropout": 0.0, "epochs": 4}
    plain = trained(graph, **{**asked, "epochs": 4 * (1 + server_steps)}, method="sync")[1].losses
    corrected = trained(graph, **asked, method="llcg", server_steps=server_steps)
    assert corrected[1].losses[0] == pytest.approx(plain[0], rel=1e-6)
    adam = corrected[2].method._adam
    assert {int(state["step"]) for state in adam.state.values()} == {4 * server_steps}
    uncorrected = trained(graph, **asked, method="llcg", server_steps=0)[1].losses
    assert corrected[1].losses[-1] < uncorrected[-1]


def test_llcg_without_server_steps_is_psgd_pa_and_with_them_sends_no_more():
    graph = community_graph()

    def rank(comm, **options):
        report, _, trainer = trained(graph, comm, dropout=0.0, interval="3", **options)
        return vector_of(trainer.model), report["bytes_sent"]

    still, sent = on_threads(3, lambda comm: rank(comm, method="llcg", server_steps=0))[1]
    averaged, expected = on_threads(3, lambda comm: rank(comm, method="psgd-pa"))[1]
    assert np.array_equal(still, averaged)
    corrected, more = on_threads(3, lambda comm: rank(comm, method="llcg", server_steps=2))[1]
    assert not np.array_equal(corrected, averaged)
    assert sent["model"] == expected["model"] == more["model"]


@pytest.mark.parametrize("method", ["random-tma", "llcg"])
@pytest.mark.parametrize("p", [1, 3])
@sweep("steps", [7, 10])
def test_a_resumed_run_is_the_same_run(tmp_path, method, p, steps, monkeypatch):
    """Stopped after some steps, also between two averages: weights, moments and minibatches go on to the bit."""
    graph, asked = community_graph(), {"method": method, "interval": "3", "dropout": 0.0}

    class Halt(Exception):
        pass

    def halted(comm):
        trainer = make_trainer(TrainConfig.of(**SMALL, **asked, checkpoint=str(tmp_path / "c"), checkpoint_every=steps), graph, comm)
        whole = trainer.method.combine_gradients

        def until(context, sums):
            if context.progress.steps == steps:
                raise Halt("as asked")
            return whole(context, sums)

        trainer.method.combine_gradients = until
        with pytest.raises(Halt, match="as asked"):
            trainer.run()
        comm.barrier()

    on_threads(p, halted)
    more = {**asked, "checkpoint": str(tmp_path / "c"), "resume": "auto"}
    found = on_threads(p, lambda comm: trained(graph, comm, **more))
    expected = on_threads(p, lambda comm: trained(graph, comm, **asked))
    for one, other in zip(found, expected, strict=True):
        assert one[0]["resumed"]
        assert one[0]["train_loss"] == pytest.approx(other[0]["train_loss"], rel=1e-6)
        assert np.array_equal(vector_of(one[2].model), vector_of(other[2].model))
    assert found[0][0]["val_accuracy"] == expected[0][0]["val_accuracy"]


def test_parts_without_seeds_take_part(tmp_path):
    graph = community_graph(n=60)
    graph.masks["train"][20:] = False
    Partition(3, (np.arange(60) // 20).astype(np.int32)).save(tmp_path / "p.npz")
    report = on_threads(4, lambda comm: trained(graph, comm, method="psgd-pa", partition=str(tmp_path / "p.npz")))[0][0]
    assert report["averages"] == 4
    assert report["test_accuracy"] > 0


@pytest.mark.parametrize(("options", "message"), [
    ({"replication": 2}, "use 1"), ({"gradient_codec": "fp16"}, "use fp32"), ({"graph": "replicated"}, "needs a partitioned graph"),
    ({"partition": "metis"}, "has a partitioner of its own"), ({"interval": "2s"}, "needs tolerate_failures"),
    ({"interval": "soon"}, "got 'soon'; use the interval between averages"),
    ({"method": "super-tma", "clusters": 0}, "clusters: .* greater than or equal to 1"),
    ({"clusters": 5}, "of the method 'super-tma'"), ({"server_steps": 5}, "of the method 'llcg'"), ({"lost_parts": 1}, "3 or more"),
    ({"method": "sync", "interval": "3"}, "of the method 'random-tma'"), ({"label": "none"}, "no label 'none'"),
    ({"trainers": 5}, "use tolerate_failures"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        trained(community_graph(), **{"method": "random-tma", **options})


def test_a_fault_of_the_server_is_raised_everywhere():
    def rank(comm):
        with pytest.raises(UsageError, match="at least as many clusters as parts"):
            trained(community_graph(), comm, method="super-tma", clusters=1)

    on_threads(3, rank)


@pytest.mark.long
@pytest.mark.parametrize("method", ["super-tma", pytest.param("llcg", marks=pytest.mark.long)])
def test_the_command_line(tmp_path, method):
    store.save(community_graph(), tmp_path / "g")
    flags = {"method": method, "fanouts": "5,5", "hidden": 16, "batch-size": 16, "epochs": 3, "interval": 4, "threads": 1}
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    ended = run_ranks(3, ["-m", "bulksample", "train", str(tmp_path / "g"), *words, "--json", str(tmp_path / "r")])
    assert ended.code == 0, ended
    assert "parts keep" in ended.err
    report = json.loads((tmp_path / "r").read_text())
    threads = on_threads(3, lambda comm: trained(tmp_path / "g", comm, method=method, epochs=3, interval="4", lr=0.003))[0][0]
    assert report["train_loss"] == pytest.approx(threads["train_loss"], rel=1e-5)
    assert report["bytes_sent"]["model"] == threads["bytes_sent"]["model"]


def test_held_out_edges_of_another_split_are_refused(tmp_path):
    """The server looks for them in the whole graph, before it makes parts; every rank is told."""
    graph, other = (hold_out(community_graph(), "to", 0.1, 0.1, 5, seed) for seed in (1, 2))
    store.save(graph, tmp_path / "g", beside=other.held_out.save)
    config = TrainConfig.of(**SMALL, method="psgd-pa", task="links")

    def refused(comm):
        with pytest.raises(DataError, match=r"\d+ of the \d+ held-out edges of val are edges of the graph, so the file is that of another"):
            make_trainer(config, tmp_path / "g", comm)
        return True

    assert on_threads(3, refused) == [True] * 3

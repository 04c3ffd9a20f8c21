"""Data parallel: P ranks do what one rank would do with the union of their minibatches, in threads and in real processes."""

import json
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from communities import community_graph
from launch import run_fresh
from sweeps import sweep
from test_loop import run
from training_runs import weights_of
from waiting import PATIENCE

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

STILL = {"dropout": 0.0, "epochs": 20, "batch_size": 16, "lr": 0.005}


def accumulated(graph, ranks, steps, **options):
    """Losses of one process that adds up the gradients of `ranks` minibatches before each step."""
    trainer = make_trainer(TrainConfig.of(**{"fanouts": (5, 5), "hidden": 16, "threads": 1, **options}), graph)
    losses = []
    while len(losses) < steps:
        minibatches = list(trainer.context.batches.loader)
        for first in range(0, len(minibatches), ranks):
            trainer.context.optimizer.zero_grad()
            total = seeds = 0.0
            for minibatch in minibatches[first : first + ranks]:
                x = trainer.context.view.features.fetch(minibatch.vertices)
                degrees = trainer.context.view.degrees(minibatch.vertices)
                logits = trainer.model(minibatch.blocks, x, degrees)
                truth = torch.from_numpy(graph.labels[minibatch.seeds])
                loss = F.cross_entropy(logits, truth, reduction="sum")
                loss.backward()
                total, seeds = total + loss.item(), seeds + len(truth)
            for parameter in trainer.model.parameters():
                parameter.grad /= seeds
            trainer.context.optimizer.step()
            losses.append(total / seeds)
    return losses[:steps]


@sweep("p", [2, 1, 3, 4])
@pytest.mark.parametrize("model", ["sage", "gat"])
def test_ranks_make_the_steps_of_one_process(p, model):
    graph = community_graph()
    losses = on_threads(p, lambda comm: run(graph, comm, model=model, **STILL)[1].losses)[0][:50]
    expected = accumulated(graph, p, len(losses), model=model, **STILL)
    assert len(losses) == min(50, 20 * -(-10 // p))
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("p", [2, 3])
def test_all_ranks_hold_the_same_weights_and_repeat_them(p):
    graph = community_graph()
    first, second = (on_threads(p, lambda comm: weights_of(run(graph, comm, dropout=0.5, batch_norm=True)[2])) for _ in range(2))
    assert all(torch.equal(other, first[0]) for other in (*first, *second))


@pytest.mark.parametrize("p", [4, 7])
def test_uneven_and_empty_ranks(p):
    graph = community_graph(n=60)
    graph.masks["train"][:] = False
    graph.masks["train"][:5] = graph.labels[:5] >= 0
    graph.masks["val"][:5] = graph.masks["test"][:5] = False
    reports = on_threads(p, lambda comm: run(graph, comm, batch_size=2, epochs=2)[0])
    minibatches = math.ceil(graph.masks["train"].sum() / 2)
    assert {report["steps"] for report in reports} == {2 * math.ceil(minibatches / p)}
    assert len({report["val_accuracy"] for report in reports}) == 1


def test_a_run_without_seeds_is_refused_on_every_rank():
    graph = community_graph()
    for mask in graph.masks.values():
        mask[:] = False
    graph.labels[:] = -1

    def rank(comm):
        with pytest.raises(UsageError, match="the seeds choose no vertex of graph 'communities' to train on; use seeds all"):
            run(graph, comm, seeds="val", epochs=2)

    on_threads(2, rank)


@pytest.mark.parametrize("p", [1, 2, 4])
def test_gradient_bytes_are_those_of_the_all_reduce(p):
    graph = community_graph()
    reports = on_threads(p, lambda comm: run(graph, comm, epochs=2)[0])
    sent, steps = reports[0]["bytes_sent"], reports[0]["steps"]
    assert sent["gradients"] == 2 * (p - 1) * 4 * (reports[0]["parameters"] + 3) * steps
    assert sent["model"] == (p - 1) * 4 * reports[0]["parameters"]  # the initial weights
    assert sent["topology"] == sent["features"] == 0
    assert sent["total"] == sum(value for kind, value in sent.items() if kind != "total")
    assert all(report["bytes_sent"] == sent for report in reports)


def test_ranks_that_were_asked_for_different_things_refuse():
    def body(comm):
        with pytest.raises(UsageError, match="do not agree on option lr"):
            run(community_graph(), comm, lr=0.01 * (1 + comm.rank))
        with pytest.raises(UsageError, match="do not agree on graph"):
            run(community_graph(seed=comm.rank), comm)

    on_threads(2, body)


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    place = tmp_path_factory.mktemp("graph") / "g"
    store.save(community_graph(), place)
    return place


def command(stored, *more):
    small = {"fanouts": "5,5", "hidden": 16, "batch-size": 16, "lr": 0.005, "dropout": 0, "threads": 1, "timeout": PATIENCE}
    flags = [word for name, value in small.items() for word in (f"--{name}", str(value))]
    return ["-m", "bulksample", "train", str(stored), *flags, "--quiet", *map(str, more)]


@pytest.mark.parametrize("p", [2, pytest.param(3, marks=pytest.mark.long)])
def test_processes_do_what_threads_do(stored, tmp_path, p):
    ended = run_fresh(p, command(stored, "--epochs", 3, "--json", tmp_path / "r.json", "--metrics", tmp_path / "m.jsonl"))
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r.json").read_text())
    threads = on_threads(p, lambda comm: run(community_graph(), comm, **{**STILL, "epochs": 3}))[0]
    assert report["ranks"] == p
    assert report["train_loss"] == pytest.approx(threads[0]["train_loss"], abs=1e-5)
    assert report["bytes_sent"]["gradients"] == threads[0]["bytes_sent"]["gradients"]
    assert len((tmp_path / "m.jsonl").read_text().splitlines()) == 3


@pytest.mark.long
def test_more_processes_than_minibatches(stored, tmp_path):
    ended = run_fresh(4, command(stored, "--epochs", 1, "--batch-size", 100, "--json", tmp_path / "r.json"))
    assert ended.code == 0, ended
    assert json.loads((tmp_path / "r.json").read_text())["steps"] == 1


FAULTY = """
import os, signal, sys
from bulksample.training.callbacks import JsonLines
from bulksample.training.step import Stepper
whole = Stepper.step
def step(self, minibatch, epoch, number, stop):
    if (epoch, number) == (1, 2):
        self._context.comm.watch.timeout = {deadline}
        if self._context.comm.rank == 1:
            {fault}
    return whole(self, minibatch, epoch, number, stop)
Stepper.step = step
sys.argv = {argv!r}
from bulksample.cli import main
main()
"""


@pytest.mark.long
def test_a_signal_to_one_rank_stops_all_with_a_checkpoint(stored, tmp_path):
    argv = command(stored, "--epochs", 3, "--checkpoint", tmp_path)
    ended = run_fresh(2, FAULTY.format(fault="os.kill(os.getpid(), signal.SIGUSR1)", deadline=PATIENCE, argv=argv[1:]))
    assert ended.code == 75, ended
    assert "stopped by a signal after step" in ended.err, ended
    assert len(list(tmp_path.glob("step-*"))) == 2


LONG = pytest.mark.long


@pytest.fixture(scope="module")
def unbroken(stored, tmp_path_factory):
    """The report of a run on two ranks without a fault."""
    file = tmp_path_factory.mktemp("unbroken") / "r.json"
    ended = run_fresh(2, [*command(stored, "--epochs", 3), "--json", str(file)])
    assert ended.code == 0, ended
    return json.loads(file.read_text())


@pytest.mark.long
@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        ("raise RuntimeError('boom in a step')", "boom in a step"),
        pytest.param("os.kill(os.getpid(), signal.SIGSTOP)", "no sign of life from rank 1", marks=LONG),
        pytest.param("sys.exit(0)", "rank 1 left", marks=LONG),
        pytest.param("os.kill(os.getpid(), signal.SIGKILL)", "", marks=LONG),
    ],
)
def test_a_fault_on_one_rank_ends_the_job_and_a_resumed_one_is_the_same_run(stored, unbroken, tmp_path, fault, shown):
    more = ["--epochs", 3, "--checkpoint", tmp_path / "c", "--checkpoint-every", 2, "--resume", "auto"]
    argv = command(stored, *more)
    deadline = 3 if "STOP" in fault else PATIENCE  # from the fault on
    ended = run_fresh(2, FAULTY.format(fault=fault, deadline=deadline, argv=argv[1:]))
    assert ended.code != 0, ended
    assert shown in ended.err, ended
    ended = run_fresh(2, [*argv, "--json", str(tmp_path / "r.json")])
    assert ended.code == 0, ended
    report = json.loads((tmp_path / "r.json").read_text())
    assert report["resumed"]
    assert report["train_loss"] == unbroken["train_loss"]  # to the bit
    assert report["val_accuracy"] == unbroken["val_accuracy"]

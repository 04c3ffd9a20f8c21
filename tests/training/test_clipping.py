"""Gradients are clipped by their norm over all parameters, as torch does, and one that is not finite ends the run with its step."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from communities import community_graph
from launch import run_fresh
from plain_steps import train_plainly
from test_learned_rows import graph_of, tables
from training_runs import run_training, weights_of

from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer, train
from bulksample.training import clipping, step

RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 32, "epochs": 3, "lr": 0.05, "threads": 1, "dropout": 0.0, "evaluate": "none"}


@pytest.mark.parametrize("most", [0.05, 0.5, 1e6])
def test_weights_are_those_of_clip_grad_norm(most):
    graph = community_graph()
    _, _, trainer = run_training(graph, **RUN, clip_norm=most)
    plain = make_trainer(TrainConfig.of(**RUN), graph)
    expected, _ = train_plainly(plain, RUN["epochs"], clip=most)
    torch.testing.assert_close(weights_of(trainer), expected, rtol=1e-4, atol=1e-5)
    whole = weights_of(run_training(graph, **RUN)[2])
    assert torch.equal(weights_of(trainer), whole) == (most == 1e6)


@pytest.mark.parametrize("p", [2, 4])
def test_ranks_clip_the_gradient_of_the_step(p):
    """Not each its own: the weights are those of one rank that makes the steps of four."""
    graph, asked = community_graph(), {**RUN, "virtual_ranks": 4, "clip_norm": 0.1, "batch_size": 10}
    one = weights_of(run_training(graph, **asked)[2])
    runs = on_threads(p, lambda comm: weights_of(run_training(graph, comm, **asked)[2]))
    assert all(torch.equal(found, one) for found in runs)
    assert not torch.equal(one, weights_of(run_training(graph, **{**asked, "clip_norm": None})[2]))


@pytest.mark.parametrize(("p", "c"), [(2, 1), (4, 2)])
def test_learned_rows_that_ranks_divide_count_in_the_norm(p, c):
    asked = {
        "model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 2, "batch_size": 12, "dropout": 0.0, "threads": 1, "lr": 0.01,
        "clip_norm": 0.02,
    }  # fmt: skip
    graph = graph_of()
    one = run_training(graph, **asked, virtual_ranks=p)
    runs = on_threads(p, lambda comm: run_training(graph, comm, **asked, features="partitioned", replication=c))
    assert runs[0][1].losses == pytest.approx(one[1].losses, rel=1e-4)
    whole = tables([SimpleNamespace(trainer=one[2])])
    for name, table in tables([SimpleNamespace(trainer=run[2]) for run in runs]).items():
        torch.testing.assert_close(table, whole[name], rtol=1e-3, atol=1e-5)
    free = run_training(graph, **{**asked, "clip_norm": None}, virtual_ranks=p)
    assert free[1].losses != pytest.approx(one[1].losses, rel=1e-4)


def test_the_norm_is_that_of_all_parameters_and_the_factor_that_of_torch():
    gradients = [torch.randn(300, 70), torch.randn(5), torch.zeros(3), torch.randn(2, 2) * 1e3]
    parameters = [torch.nn.Parameter(torch.zeros_like(one)) for one in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient.clone()
    model = SimpleNamespace(replicated=[*parameters, torch.nn.Parameter(torch.zeros(2))], shards={})
    context = SimpleNamespace(model=model, compute=SimpleNamespace(where=torch.device("cpu")))
    norm = clipping.clip_gradients(context, 2.0)
    assert float(norm) == pytest.approx(np.sqrt(sum(np.square(one.numpy(), dtype=np.float64).sum() for one in gradients)), rel=1e-12)
    theirs = [torch.nn.Parameter(torch.zeros_like(one)) for one in gradients]
    for parameter, gradient in zip(theirs, gradients, strict=True):
        parameter.grad = gradient.clone()
    torch.nn.utils.clip_grad_norm_(theirs, 2.0)
    for parameter, other in zip(parameters, theirs, strict=True):
        torch.testing.assert_close(parameter.grad, other.grad)


def test_halves_are_summed_in_float64_and_sparse_gradients_refused():
    half = torch.tensor([3.0, 4.0], dtype=torch.bfloat16)
    assert float(clipping.squares(half)) == float(clipping.squares(half.half())) == 25.0
    with pytest.raises(UsageError, match="clip_norm adds squares of dense gradients; got a sparse one"):
        clipping.squares(torch.eye(3).to_sparse())


def test_the_norm_has_the_same_bits_on_any_number_of_threads():
    gradient, before, found = torch.randn(400_000), torch.get_num_threads(), set()
    for threads in (1, 2, 3):
        torch.set_num_threads(threads)
        found.add(float(clipping.squares(gradient)))
    torch.set_num_threads(before)
    assert len(found) == 1


class Sharp(torch.nn.Module):
    """Its logits are finite, and from its third pass on its gradient is not: the slope of a root at 0."""

    def __init__(self, features, classes):
        super().__init__()
        self.linear, self.passes = torch.nn.Linear(features, classes), 0

    def forward(self, x, blocks):
        self.passes += 1
        h = self.linear(x[: blocks[-1].num_destinations])
        return h + (h * 0).abs().sqrt() if self.passes > 2 else h


@pytest.mark.parametrize("method", ["sync", "random-tma"])
def test_a_gradient_that_is_not_finite_is_named_with_its_step(method):
    graph = community_graph()
    sharp = Sharp(graph.features.shape[1], graph.num_classes)
    options = {"fanouts": (4,), "batch_size": 32, "epochs": 2, "threads": 1, "evaluate": "none", "method": method}
    with pytest.raises(
        UsageError, match=r"^the norm of the gradient is nan in epoch 0, step 2, and clip_norm scales finite ones; use a lower"
    ):
        train(graph, model=sharp, clip_norm=1.0, **options)
    again = Sharp(graph.features.shape[1], graph.num_classes)
    with pytest.raises(UsageError, match=r"not finite .*in epoch 0, step 3|the loss is nan in epoch 0, step 3"):
        train(graph, model=again, **options)


SHARP_ON_RANK_1 = """
import sys
import bulksample as bs
from communities import community_graph
from test_clipping import Sharp

comm, graph = bs.init(timeout=300), community_graph()
model = Sharp(graph.features.shape[1], graph.num_classes)
model.passes = 0 if comm.rank == 1 else -1000
asked = {"clip_norm": 1.0, "method": sys.argv[1]}
bs.train(graph, comm=comm, model=model, **asked, fanouts=(4,), batch_size=32, epochs=5, threads=1, evaluate="none")
"""


@pytest.mark.parametrize(("method", "failed"), [("random-tma", "1"), ("sync", "[012]")])
def test_a_gradient_that_is_not_finite_on_one_rank_ends_all(method, failed):
    """Trainers share no step, so one finds it alone; nobody waits for the timeout."""
    ended = run_fresh(3, ["-c", SHARP_ON_RANK_1, method])
    assert ended.code == 1, ended
    assert re.search(f"rank {failed} of 3 failed; ending all ranks", ended.err), ended
    assert "UsageError: the norm of the gradient is nan in epoch " in ended.err, ended
    assert "and clip_norm scales finite ones; use a lower lr" in ended.err, ended


def test_a_loss_that_is_not_finite_is_reported_as_before():
    with pytest.raises(UsageError, match=r"the loss is (nan|inf) in epoch"):
        run_training(community_graph(n=60), **{**RUN, "lr": 1e30, "epochs": 20}, clip_norm=1.0)


@pytest.mark.parametrize("worse", ["norm", "loss"])
def test_sums_that_are_read_later_tell_of_the_gradient_too(monkeypatch, worse):
    """As on a device: the host learns of the step when it reads its sums."""
    monkeypatch.setattr(step, "on_device", lambda sums: True)
    graph = community_graph()
    clip = clipping.clip_gradients

    def clipped(context, most):
        norm = clip(context, most)
        return norm * float("nan") if context.progress.steps == 3 and worse == "norm" else norm

    monkeypatch.setattr(step, "clip_gradients", clipped)
    if worse == "loss":
        with pytest.raises(UsageError, match=r"the loss is (nan|inf) in epoch"):
            run_training(graph, **{**RUN, "lr": 1e30, "epochs": 20}, clip_norm=1.0)
    else:
        with pytest.raises(UsageError, match="the norm of the gradient is nan in epoch 0, step 3"):
            run_training(graph, **RUN, clip_norm=1.0)


@pytest.mark.parametrize("method", ["full", "cofree", "grappa", "psgd-pa"])
def test_every_method_clips(method):
    graph = community_graph()

    def weights(most):
        return on_threads(2, lambda comm: weights_of(run_training(graph, comm, **RUN, method=method, clip_norm=most)[2]))

    clipped, free, loose = weights(0.01), weights(None), weights(1e6)
    assert torch.equal(clipped[0], clipped[1])
    assert not torch.equal(clipped[0], free[0])
    assert torch.equal(loose[0], free[0])


def test_the_server_of_llcg_clips_its_corrections():
    graph, asked = community_graph(), {**RUN, "method": "llcg", "interval": "2"}
    norms, squares = [], clipping.squares

    def counted(gradient):
        norms.append(gradient.shape)
        return squares(gradient)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clipping, "squares", counted)
        _, _, made = run_training(graph, **asked, clip_norm=0.1)
    parameters = len(list(made.model.parameters()))
    steps, corrections = made.context.progress.steps, made.method.participant.describe()["averages"]
    assert len(norms) == parameters * (steps + corrections)

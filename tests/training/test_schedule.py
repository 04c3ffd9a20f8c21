"""Learning rates are those of `torch.optim.lr_scheduler`, on any number of ranks, for every method, and in a run that goes on."""

import warnings
from types import SimpleNamespace

import pytest
import torch
from communities import community_graph
from plain_steps import train_plainly
from recorder import Crash, Recorder
from torch.optim import lr_scheduler
from training_runs import weights_of

from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training import checkpoint
from bulksample.training.schedule import lr_factor

RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 32, "epochs": 4, "lr": 0.05, "threads": 1, "dropout": 0.0, "evaluate": "none"}
STEPS = 5  # of an epoch
COSINE = {"lr_schedule": "cosine", "warmup": 3, "lr_end_factor": 0.1}


class Rates(Recorder):
    """Keeps the learning rate of every step; `trainer` is set before the run."""

    def __init__(self, crash_at=0):
        super().__init__()
        self.rates, self.left = [], crash_at

    def step(self, epoch, step, loss):
        super().step(epoch, step, loss)
        self.rates.append(self.trainer.context.optimizer.param_groups[0]["lr"])
        self.left -= 1
        if self.left == 0:
            raise Crash("as asked")


def trained(source, comm=None, crash_at=0, **options):
    seen = Rates(crash_at)
    seen.trainer = made = make_trainer(TrainConfig.of(**{**RUN, **options}), source, comm, [seen])
    report = made.run() if not crash_at else None
    if crash_at:
        with pytest.raises(Crash, match="as asked"):
            made.run()
    return SimpleNamespace(report=report, rates=seen.rates, lines=seen.lines, losses=seen.losses, weights=weights_of(made), made=made)


def after_warmup(warmup, make):
    """A linear warm-up of so many steps, followed by another scheduler of torch."""

    def scheduler(optimizer):
        rise = lr_scheduler.LinearLR(optimizer, start_factor=1 / (warmup + 1), total_iters=warmup)
        return lr_scheduler.SequentialLR(optimizer, [rise, make(optimizer)], [warmup])

    return scheduler


SCHEDULERS = {  # options, and the same of torch, for a run of T steps
    "cosine": ({"lr_schedule": "cosine"}, lambda t: lambda o: lr_scheduler.CosineAnnealingLR(o, t)),
    "cosine to a share": (
        {"lr_schedule": "cosine", "lr_end_factor": 0.2}, lambda t: lambda o: lr_scheduler.CosineAnnealingLR(o, t, eta_min=0.2 * RUN["lr"]),
    ),
    "linear": ({"lr_schedule": "linear"}, lambda t: lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, t)),
    "linear to a share": ({"lr_schedule": "linear", "lr_end_factor": 0.3}, lambda t: lambda o: lr_scheduler.LinearLR(o, 1.0, 0.3, t)),
    "step": ({"lr_schedule": "step", "lr_step_size": 2, "lr_gamma": 0.5}, lambda t: lambda o: lr_scheduler.StepLR(o, 2 * STEPS, 0.5)),
    "warm-up": ({"warmup": 4}, lambda t: lambda o: lr_scheduler.LinearLR(o, 0.2, total_iters=4)),
    "warm-up, cosine": (
        {"lr_schedule": "cosine", "warmup": "1epochs", "lr_end_factor": 0.1},
        lambda t: after_warmup(STEPS, lambda o: lr_scheduler.CosineAnnealingLR(o, t - STEPS, eta_min=0.1 * RUN["lr"])),
    ),
    "warm-up, linear": (
        {"lr_schedule": "linear", "warmup": "7"}, lambda t: after_warmup(7, lambda o: lr_scheduler.LinearLR(o, 1.0, 0.0, t - 7)),
    ),
    "warm-up, step": (
        {"lr_schedule": "step", "lr_step_size": 1, "lr_gamma": 0.3, "warmup": 8},
        lambda t: lambda o: lr_scheduler.LambdaLR(o, lambda i: min(1.0, (i + 1) / 9) * 0.3 ** (i // STEPS)),
    ),
    "warm-up beyond the end": ({"lr_schedule": "cosine", "warmup": 100}, lambda t: lambda o: lr_scheduler.LinearLR(o, 1 / 101, 1, 100)),
}  # fmt: skip


@pytest.mark.parametrize("name", SCHEDULERS)
def test_rates_and_weights_are_those_of_torchs_schedulers(name):
    options, scheduler = SCHEDULERS[name]
    graph = community_graph()
    found = trained(graph, **options)
    plain = make_trainer(TrainConfig.of(**RUN), graph)
    assert plain.context.batches.steps == STEPS
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # SequentialLR passes an epoch to its schedulers, which torch deprecates
        weights, rates = train_plainly(plain, RUN["epochs"], scheduler(RUN["epochs"] * STEPS))
    assert found.rates == pytest.approx(rates, rel=1e-6)
    assert len({*rates}) > 1
    torch.testing.assert_close(found.weights, weights, rtol=1e-4, atol=1e-5)
    assert found.report["lr"] == found.rates[-1]
    assert [line["lr"] for line in found.lines] == found.rates[STEPS - 1 :: STEPS]


@pytest.mark.parametrize(("asked", "told"), [
    ({"warmup": 100}, "warmup takes 100 steps and the run has 20: the learning rate reaches 0.198 of lr; use a shorter warmup"),
    ({"warmup": 20}, "warmup takes 20 steps and the run has 20: the learning rate reaches 0.952 of lr"),
    ({"warmup": "4epochs"}, "warmup takes 20 steps and the run has 20"),
    ({"warmup": 19}, ""), ({"warmup": "3epochs"}, ""), ({}, ""),
    ({"method": "full", "warmup": 4}, "warmup takes 4 steps and the run has 4"),
    ({"method": "retexo", "warmup": 7}, "warmup takes 7 steps and the run has 4"), ({"method": "retexo", "warmup": 3}, ""),
])  # fmt: skip
def test_a_warmup_that_outlasts_the_run_is_warned_of(capsys, asked, told):
    """On rank 0 and in the report; the rate reached is that of the last step."""
    report = trained(community_graph(), **asked).report
    assert capsys.readouterr().err.count("warning: warmup takes") == len(report["warnings"]) == bool(told)
    for warning in report["warnings"]:
        assert warning.startswith(told)
        assert warning.endswith("or more epochs")
        assert float(warning.split("reaches ")[1].split()[0]) == pytest.approx(report["lr"] / RUN["lr"], rel=1e-2)


def test_one_rank_warns_of_a_warmup_that_outlasts_the_run(capsys):
    graph = community_graph()
    report = on_threads(2, lambda comm: trained(graph, comm, warmup=12).report)[0]
    assert report["warnings"] == [
        "warmup takes 12 steps and the run has 12: the learning rate reaches 0.923 of lr; use a shorter warmup, or more epochs"
    ]
    assert capsys.readouterr().err.count("warmup takes") == 1


def test_a_constant_rate_is_lr_to_the_bit():
    found = trained(community_graph())
    assert set(found.rates) == {RUN["lr"]} == {found.report["lr"]}


@pytest.mark.parametrize("crashed_at", [3, 7, 12])
@pytest.mark.parametrize("options", [COSINE, {"lr_schedule": "step", "lr_step_size": 1, "warmup": "2epochs"}], ids=["cosine", "step"])
def test_a_run_that_goes_on_has_the_same_rates_and_bits(tmp_path, options, crashed_at):
    graph, kept = community_graph(), {"checkpoint": str(tmp_path), "checkpoint_every": 2}
    whole = trained(graph, **options)
    trained(graph, crash_at=crashed_at, **options, **kept)
    again = trained(graph, **options, **kept, resume="auto", bulk_size=2)
    assert 0 < len(again.rates) < len(whole.rates)
    assert again.rates == whole.rates[-len(again.rates) :]
    assert torch.equal(again.weights, whole.weights)
    assert again.report["lr"] == whole.report["lr"]


@pytest.mark.parametrize("p", [1, 2, 4])
def test_rates_and_bits_are_the_same_on_any_number_of_ranks(p):
    """Four virtual ranks: two steps an epoch."""
    graph, asked = community_graph(), {**COSINE, "virtual_ranks": 4, "dropout": 0.5, "clip_norm": 0.3}
    one, runs = trained(graph, **asked), on_threads(p, lambda comm: trained(graph, comm, **asked))
    assert runs[0].rates == one.rates
    assert len(one.rates) == 2 * RUN["epochs"]
    assert all(torch.equal(run.weights, one.weights) for run in runs)


def test_a_schedule_that_ends_with_the_run_keeps_its_epochs(tmp_path):
    graph, kept = community_graph(), {"checkpoint": str(tmp_path)}
    trained(graph, **COSINE, **kept, epochs=2)
    asked = {**COSINE, **kept, "resume": "auto"}
    with pytest.raises(UsageError, match="lr_schedule was 'cosine over 2 epochs' and is 'cosine over 3 epochs' now"):
        trained(graph, **{**asked, "epochs": 3})
    with pytest.raises(UsageError, match="lr_schedule was 'cosine over 2 epochs' and is 'linear over 2 epochs' now"):
        trained(graph, **{**asked, "lr_schedule": "linear", "epochs": 2})
    with pytest.raises(UsageError, match="warmup was '3' and is '0' now"):
        trained(graph, **{**asked, "warmup": 0, "epochs": 2})


def test_steps_go_on_for_more_epochs(tmp_path):
    graph, options = community_graph(), {"lr_schedule": "step", "lr_step_size": 1, "lr_gamma": 0.5, "checkpoint": str(tmp_path)}
    trained(graph, **options, epochs=2)
    again = trained(graph, **options, epochs=4, resume="auto")
    assert again.rates == pytest.approx([RUN["lr"] * factor for factor in [0.25] * STEPS + [0.125] * STEPS])


def test_a_checkpoint_of_a_version_without_schedules_goes_on(tmp_path, monkeypatch):
    graph, newest = community_graph(), checkpoint.newest
    whole = trained(graph)
    trained(graph, checkpoint=str(tmp_path), epochs=2)

    def as_then(root):
        folder, (tensors, state) = newest(root)
        config = {key: value for key, value in state["config"].items() if not key.startswith("lr_") and key not in ("warmup", "clip_norm")}
        assert len(config) == len(state["config"]) - 6
        progress = {key: value for key, value in state["progress"].items() if key != "lr"}
        return folder, (tensors, {**state, "config": config, "progress": progress})

    monkeypatch.setattr(checkpoint, "newest", as_then)
    assert torch.equal(trained(graph, checkpoint=str(tmp_path), resume="auto").weights, whole.weights)
    with pytest.raises(UsageError, match="lr_schedule was 'constant' and is 'cosine over 4 epochs' now"):
        trained(graph, checkpoint=str(tmp_path), resume="auto", lr_schedule="cosine")


METHODS = {
    "full": 1, "bns": 2, "adaqp": 2, "cofree": 2, "grappa": 2, "random-tma": 3, "psgd-pa": 3, "llcg": 3,
}  # ranks  # fmt: skip


@pytest.mark.parametrize("method", METHODS)
def test_every_method_has_the_rates_of_its_steps(method):
    graph = community_graph()
    found = on_threads(METHODS[method], lambda comm: trained(graph, comm, method=method, lr_schedule="linear", warmup=2))[0]
    steps = found.made.context.batches.steps
    total = steps * RUN["epochs"]
    expected = [RUN["lr"] * ((t + 1) / 3 if t < 2 else (total - t) / (total - 2)) for t in range(total)]
    assert [line["lr"] for line in found.lines] == pytest.approx(expected[steps - 1 :: steps])


@pytest.mark.parametrize("method", ["retexo", "retexo-federated"])
def test_every_network_of_a_method_has_a_schedule_of_its_own(method):
    found = trained(community_graph(), method=method, lr_schedule="linear", epochs=3, evaluate="exact")
    stages = 2 + (method == "retexo-federated")
    assert [line["lr"] for line in found.lines] == pytest.approx([RUN["lr"] * share for share in (1, 2 / 3, 1 / 3)] * stages)


def test_the_server_of_llcg_follows_the_schedule():
    """Its corrections come with a rate of almost nothing at the end: one epoch more changes little."""
    graph, seen = community_graph(), []
    rates = {}
    for name in ("constant", "linear"):
        found = on_threads(1, lambda comm, name=name: trained(graph, comm, method="llcg", interval="1", server_lr=0.2, lr_schedule=name))[0]
        rates[name] = found.made.method._adam.param_groups[0]["lr"]
        seen.append(found.weights)
    assert rates == {"constant": 0.2, "linear": pytest.approx(0.2 / (STEPS * RUN["epochs"]))}
    assert not torch.equal(*seen)


@pytest.mark.parametrize(("options", "told"), [
    ({"warmup": "two"}, "^warmup: got 'two'; use a number of steps, or of epochs such as 2epochs$"),
    ({"warmup": -1}, "^warmup: got -1; use a number of steps"), ({"warmup": True}, "^warmup: got True; use a number of steps"),
    ({"warmup": 1.5}, "^warmup: got 1.5; use"),
    ({"lr_schedule": "cosin"}, "^lr_schedule: got 'cosin'; did you mean 'cosine'"),
    ({"lr_schedule": "step", "lr_gamma": 1.5}, "^lr_gamma: input should be less than or equal to 1; got 1.5$"),
    ({"lr_schedule": "cosine", "lr_end_factor": 1.5}, "^lr_end_factor: input should be less than or equal to 1; got 1.5$"),
    ({"method": "random-tma", "tolerate_failures": True, "lr_schedule": "cosine"}, "^lr_schedule counts steps of a run, which"),
    ({"method": "random-tma", "tolerate_failures": True, "warmup": 3}, "^warmup counts steps of a run, .*; got warmup 3: leave it out$"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(options, told):
    with pytest.raises(UsageError, match=told):
        TrainConfig.of(**options)


@pytest.mark.parametrize(("given", "read"), [(0, "0"), ("0epochs", "0"), (12, "12"), ("2 epochs", "2epochs"), ("1epoch", "1epochs")])
def test_a_warmup_is_of_steps_or_epochs(given, read):
    config = TrainConfig.of(warmup=given)
    assert config.warmup == read
    steps = {"0": 0, "12": 12, "2epochs": 20, "1epochs": 10}[read]
    factors = [lr_factor(config, t // 10, t % 10, 10, 5) for t in range(50)]
    assert factors == [(t + 1) / (steps + 1) if t < steps else 1.0 for t in range(50)]

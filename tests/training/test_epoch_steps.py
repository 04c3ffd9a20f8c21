"""`drop_last` and `steps_per_epoch` in training: what is left out, how many steps there are, on any ranks and in a run that goes on."""

import threading
from types import SimpleNamespace

import pytest
import torch
from communities import community_graph
from recorder import Crash, CrashesAt, Recorder
from training_runs import weights_of

from bulksample import UsageError
from bulksample.data import store
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.plan.request import PlanRequest
from bulksample.plan.sizes import expected_sizes
from bulksample.plan.traffic import CandidateGrid, epoch_bytes
from bulksample.training.loaders import equal_steps, steps_alone
from bulksample.training.method import Method

RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 20, "epochs": 3, "lr": 0.02, "threads": 1, "dropout": 0.5}
GRAPH = community_graph()
SEEDS = int(GRAPH.masks["train"].sum())  # 138: 7 mini-batches, the last of 18


def trained(source, comm=None, crash_at=0, **options):
    recorder = CrashesAt(crash_at) if crash_at else Recorder()
    made = make_trainer(TrainConfig.of(**{**RUN, **options}), source, comm, [recorder])
    if crash_at:
        with pytest.raises(Crash, match="as asked"):
            made.run()
        return None
    report = made.run()
    return SimpleNamespace(report=report, losses=recorder.losses, lines=recorder.lines, weights=weights_of(made), made=made)


@pytest.fixture
def seeds_seen(monkeypatch):
    """The seeds of every mini-batch that any rank trained on, by epoch and number."""
    seen, lock, loss = {}, threading.Lock(), Method.loss

    def noted(self, context, batch):
        if batch.minibatch is not None:
            with lock:
                seen[batch.minibatch.epoch, batch.minibatch.id] = batch.minibatch.seeds.tolist()
        return loss(self, context, batch)

    monkeypatch.setattr(Method, "loss", noted)
    return seen


@pytest.mark.parametrize(("p", "w", "steps"), [(1, None, 6), (2, None, 3), (4, None, 1), (1, 4, 1), (2, 4, 1), (3, 5, 1), (3, None, 2)])
def test_drop_last_leaves_full_steps(p, w, steps, seeds_seen):
    """Every step has W mini-batches of b seeds, and all others of the epoch are left out."""
    virtual = w or p
    runs = on_threads(p, lambda comm: trained(GRAPH, comm, drop_last=True, virtual_ranks=w))
    assert len(runs[0].losses) == steps * RUN["epochs"] == runs[0].report["steps"]
    assert [len(seeds) for seeds in seeds_seen.values()] == [20] * steps * virtual * RUN["epochs"]
    for epoch in range(RUN["epochs"]):
        ids = sorted(i for e, i in seeds_seen if e == epoch)
        assert ids == list(range(steps * virtual))
        seeds = [v for (e, _), of_one in seeds_seen.items() if e == epoch for v in of_one]
        assert len(seeds) == len(set(seeds))


def test_drop_last_of_full_minibatches_changes_no_bit():
    asked = {"batch_size": SEEDS // 6}
    assert SEEDS % asked["batch_size"] == 0
    assert torch.equal(trained(GRAPH, **asked, drop_last=True).weights, trained(GRAPH, **asked).weights)


@pytest.mark.parametrize("steps", [3, 7, 10])
def test_an_epoch_has_the_steps_that_were_asked_for(steps, seeds_seen):
    found = trained(GRAPH, steps_per_epoch=steps)
    assert [line["steps"] for line in found.lines] == [steps * e for e in (1, 2, 3)]
    in_order = [seeds_seen[key] for key in sorted(seeds_seen)]
    assert len(in_order) == 3 * steps
    seeds_seen.clear()
    plain = trained(GRAPH, epochs=5)
    assert in_order == [seeds_seen[key] for key in sorted(seeds_seen)][: 3 * steps]
    if steps == 7:
        assert found.losses == plain.losses[:21]


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("options", [{"steps_per_epoch": 3}, {"drop_last": True, "batch_size": 10}], ids=str)
def test_any_number_of_ranks_makes_the_same_steps(p, options):
    one = trained(GRAPH, **options, virtual_ranks=4)
    runs = on_threads(p, lambda comm: trained(GRAPH, comm, **options, virtual_ranks=4))
    assert runs[0].losses == one.losses
    assert len(one.losses) == 3 * 3
    assert all(torch.equal(run.weights, one.weights) for run in runs)


@pytest.mark.parametrize("crashed_at", [2, 4, 5, 11])
@pytest.mark.parametrize("options", [{"steps_per_epoch": 4}, {"steps_per_epoch": 9}, {"drop_last": True}], ids=str)
def test_a_run_that_goes_on_has_the_same_bits(tmp_path, options, crashed_at):
    kept = {"checkpoint": str(tmp_path), "checkpoint_every": 1}
    whole = trained(GRAPH, **options)
    trained(GRAPH, crash_at=crashed_at, **options, **kept)
    again = trained(GRAPH, **options, **kept, resume="auto", bulk_size=3)
    assert again.losses == whole.losses[-len(again.losses) :]
    assert len(again.losses) < len(whole.losses)
    assert torch.equal(again.weights, whole.weights)


@pytest.mark.parametrize(("option", "was"), [("steps_per_epoch", None), ("drop_last", False)])
def test_a_checkpoint_with_other_epochs_is_refused(tmp_path, option, was):
    trained(GRAPH, checkpoint=str(tmp_path), epochs=1)
    with pytest.raises(UsageError, match=f"{option} was {was} and is .* now"):
        trained(GRAPH, checkpoint=str(tmp_path), resume="auto", **{option: 5 if was is None else True})


@pytest.mark.parametrize("crashed_at", [5, 7, 10])
def test_other_ranks_go_on_in_the_middle_of_an_epoch_and_of_a_pass(tmp_path, crashed_at):
    """Five steps of four mini-batches are an epoch, 16 mini-batches a pass."""
    folder, kept = tmp_path / "g", {"checkpoint": str(tmp_path / "kept"), "checkpoint_every": 1}
    store.save(GRAPH, folder)
    asked = {"steps_per_epoch": 5, "batch_size": 9, "virtual_ranks": 4}
    whole, config = trained(folder, **asked), TrainConfig.of(**{**RUN, **asked, **kept})
    with pytest.raises(Crash, match="as asked"):
        on_threads(4, lambda comm: make_trainer(config, folder, comm, [CrashesAt(crashed_at)]).run())
    again = on_threads(2, lambda comm: trained(folder, comm, **asked, **kept, resume="auto"))
    assert len(again[0].losses) in (16 - crashed_at, 15 - crashed_at)  # the last checkpoint may be of the step before
    assert again[0].losses == whole.losses[-len(again[0].losses) :]
    assert all(torch.equal(run.weights, whole.weights) for run in again)


@pytest.mark.parametrize("graph", ["replicated", "partitioned"])
def test_placements_make_the_same_steps(tmp_path, graph):
    store.save(GRAPH, tmp_path / "g")
    one = trained(GRAPH, steps_per_epoch=5, virtual_ranks=2, drop_last=True, dropout=0.0)
    runs = on_threads(2, lambda comm: trained(tmp_path / "g", comm, steps_per_epoch=5, graph=graph, drop_last=True, dropout=0.0))
    assert runs[0].losses == pytest.approx(one.losses, rel=1e-5)
    assert len(one.losses) == 15


def test_links_take_both():
    graph = hold_out(GRAPH, "to", 0.1, 0.1, 5, seed=0)
    asked = {"task": "links", "batch_size": 100, "decoder": "mlp"}
    steps = trained(graph, **asked, epochs=1).report["steps"]
    assert trained(graph, **asked, epochs=2, drop_last=True).report["steps"] == 2 * (steps - 1)
    assert trained(graph, **asked, epochs=2, steps_per_epoch=steps + 3).report["steps"] == 2 * (steps + 3)


METHODS = {"random-tma": 3, "psgd-pa": 3, "llcg": 3, "grappa": 2}


@pytest.mark.parametrize("method", METHODS)
def test_trainers_on_parts_make_the_steps(method, seeds_seen):
    found = on_threads(METHODS[method], lambda comm: trained(GRAPH, comm, method=method, steps_per_epoch=4))[0]
    assert found.report["steps"] == 12
    found = on_threads(METHODS[method], lambda comm: trained(GRAPH, comm, method=method, drop_last=True))[0]
    assert found.report["steps"] == 3 * found.made.context.batches.steps


def test_trainers_with_fewer_seeds_take_smaller_minibatches():
    config = TrainConfig.of(batch_size=10)
    dropping, fixed = config.model_copy(update={"drop_last": True}), config.model_copy(update={"steps_per_epoch": 7})
    assert equal_steps([35, 20, 0], config) == (4, [10, 5, 1])
    assert equal_steps([35, 20, 0], dropping) == (3, [10, 7, 1])
    assert equal_steps([35, 20, 0], fixed) == (7, [10, 5, 1])
    assert equal_steps([0, 0], fixed) == (0, [10, 10])
    with pytest.raises(UsageError, match="drop_last leaves no step: no rank has 10 examples, a mini-batch; use a lower batch_size, or"):
        equal_steps([9, 3], dropping)
    assert [steps_alone(one, 35) for one in (config, dropping, fixed)] == [4, 3, 7]
    assert [steps_alone(one, 0) for one in (config, dropping, fixed)] == [0, 0, 0]
    assert steps_alone(dropping, 9) == 0


@pytest.mark.parametrize(("options", "told"), [
    ({"drop_last": True, "batch_size": 200}, "drop_last leaves no step: 138 examples fill 0 of 200, and a step has 2 mini-batches; use"),
    ({"drop_last": True, "virtual_ranks": 7}, "drop_last leaves no step: 138 examples fill 6 of 20, and a step has 7 mini-batches; use"),
])  # fmt: skip
def test_steps_that_are_never_full_are_refused_on_every_rank(options, told):
    def refused(comm):
        with pytest.raises(UsageError, match=told):
            make_trainer(TrainConfig.of(**{**RUN, **options}), GRAPH, comm)
        return True

    assert all(on_threads(2, refused))


def test_groups_of_seeds_are_refused():
    with pytest.raises(UsageError, match="steps_per_epoch goes on in the order of all seeds; got steps_per_epoch 3 with seed_locality 2"):
        TrainConfig.of(steps_per_epoch=3, seed_locality=2)


@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("options", [{}, {"drop_last": True}, {"steps_per_epoch": 5}, {"steps_per_epoch": 20}], ids=str)
def test_plan_counts_the_steps_and_the_bytes_of_an_epoch(p, options):
    runs = on_threads(p, lambda comm: trained(GRAPH, comm, **options, evaluate="none"))
    sizes = {"vertices": GRAPH.n, "edges": GRAPH.num_edges, "feature_width": GRAPH.features.shape[1], "classes": GRAPH.num_classes}
    asked = {**sizes, "seeds": SEEDS, "ranks": (p,), **{name: RUN[name] for name in ("fanouts", "hidden", "batch_size")}, **options}
    request = PlanRequest.of(**asked)
    assert runs[0].report["steps"] == 3 * request.steps(p)
    planned = epoch_bytes(request, expected_sizes(request), CandidateGrid(p, p, "replicated"), 1)
    assert runs[0].report["training_bytes"]["gradients"] == 3 * planned.gradients
    with pytest.raises(UsageError, match="drop_last leaves no step: 6 full mini-batches of 20 seeds, for 8 ranks"):
        PlanRequest.of(**{**asked, "ranks": (8,), "drop_last": True, "steps_per_epoch": None})

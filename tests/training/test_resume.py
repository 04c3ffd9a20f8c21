"""A resumed run is the same run: bit by bit, also from the middle of an epoch, also after a crash."""

import json
import shutil

import pytest
import torch
from communities import community_graph
from recorder import Crash, CrashesAt
from sweeps import sweep
from test_loop import SMALL, run
from training_runs import weights_of

from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training import checkpoint
from bulksample.training.callbacks import JsonLines

RUN = {"dropout": 0.5, "batch_norm": True, "weight_decay": 1e-3, "epochs": 4, "patience": 10}


def crash(graph, steps, **options):
    recorder = CrashesAt(steps)
    trainer = make_trainer(TrainConfig.of(**{**SMALL, **RUN, **options}), graph, None, [recorder])
    with pytest.raises(Crash, match="as asked"):
        trainer.run()
    return recorder


@pytest.mark.parametrize("model", ["sage", "gat"])
@sweep("crashed_at", [3, 5, 6, 13, 19], quick=2)  # five steps an epoch
def test_going_on_from_any_step_gives_the_same_bits(tmp_path, model, crashed_at):
    graph = community_graph()
    whole, unbroken, trainer = run(graph, **RUN, model=model)
    assert trainer.context.batches.loader.steps == 5
    crash(graph, crashed_at, model=model, checkpoint=str(tmp_path), checkpoint_every=2)
    report, again, resumed = run(graph, **RUN, model=model, checkpoint=str(tmp_path), checkpoint_every=2, resume="auto")
    assert report["resumed"]
    assert again.losses == unbroken.losses[len(unbroken.losses) - len(again.losses) :]
    assert len(again.losses) < len(unbroken.losses)
    assert (weights_of(resumed) == weights_of(trainer)).all()
    for key in ("test_accuracy", "val_accuracy", "best_epoch", "train_loss", "epochs", "steps"):
        assert report[key] == whole[key], key


def test_epochs_may_be_added_afterwards(tmp_path):
    graph = community_graph()
    _, unbroken, trainer = run(graph, **{**RUN, "epochs": 3})
    run(graph, **{**RUN, "epochs": 2}, checkpoint=str(tmp_path))
    _, again, resumed = run(graph, **{**RUN, "epochs": 3}, checkpoint=str(tmp_path), resume="auto", bulk_size=2, backend="reference")
    assert again.losses == unbroken.losses[10:]
    assert (weights_of(resumed) == weights_of(trainer)).all()


def test_auto_starts_anew_where_there_is_nothing(tmp_path):
    report, recorder, _ = run(community_graph(), checkpoint=str(tmp_path / "none"), resume="auto")
    assert not report["resumed"]
    assert len(recorder.losses) == 15


def test_a_damaged_checkpoint_gives_way_to_the_one_before(tmp_path, capsys):
    graph = community_graph()
    crash(graph, 12, checkpoint=str(tmp_path))
    newest = max(tmp_path.iterdir())
    (newest / "tensors.safetensors").write_bytes(b"cut")
    _, again, _ = run(graph, **RUN, checkpoint=str(tmp_path), resume="auto")
    assert "is damaged" in capsys.readouterr().err
    assert len(again.losses) == 15


@pytest.mark.parametrize(("key", "value"), [("lr", 0.5), ("seed", 3), ("hidden", 8), ("batch_size", 9)])
def test_another_configuration_is_refused_by_name(tmp_path, key, value):
    graph = community_graph()
    run(graph, checkpoint=str(tmp_path), epochs=1)
    with pytest.raises(UsageError, match=f"does not fit this run: {key} was"):
        run(graph, checkpoint=str(tmp_path), resume="auto", **{key: value})
    with pytest.raises(UsageError, match="of a training on another graph, or on this one before it was changed"):
        run(community_graph(seed=5), checkpoint=str(tmp_path), resume=str(max(tmp_path.iterdir())))


def test_ranks_go_on_from_what_rank_0_reads(tmp_path):
    graph = community_graph()
    losses = on_threads(3, lambda comm: run(graph, comm, **RUN)[1].losses)[0]

    def interrupted(comm):
        return run(graph, comm, **{**RUN, "epochs": 2}, checkpoint=str(tmp_path))

    on_threads(3, interrupted)
    again = on_threads(3, lambda comm: run(graph, comm, **RUN, checkpoint=str(tmp_path), resume="auto"))
    assert again[0][1].losses == losses[4:]
    assert all(torch.equal(weights_of(other[2]), weights_of(again[0][2])) for other in again)


def test_the_lines_of_epochs_that_are_repeated_are_written_once(tmp_path):
    path = tmp_path / "lines.jsonl"
    path.write_text('{"epoch": 0, "loss": 1}\n{"epoch": 1, "loss": 2}\n{"epoch": 2, "lo')
    lines = JsonLines(path)
    lines.begin(1, 3, 5)
    lines.epoch({"epoch": 1, "loss": 3})
    assert [json.loads(line)["loss"] for line in path.read_text().splitlines()] == [1, 3]
    lines.begin(0, 3, 5)
    assert path.read_text() == ""


@pytest.mark.parametrize("written", [False, True], ids=["before", "after"])
def test_a_crash_around_the_checkpoint_of_an_epoch_loses_no_line(tmp_path, monkeypatch, written):
    graph, path, save = community_graph(), tmp_path / "lines.jsonl", checkpoint.save
    told = run(graph, **RUN)[1].lines

    def trained(**more):
        config = TrainConfig.of(**{**SMALL, **RUN, "checkpoint": str(tmp_path / "kept"), **more})
        make_trainer(config, graph, None, [JsonLines(path)]).run()

    def crashing(folder, step, *content):
        if step < 10 or written:
            save(folder, step, *content)
        if step == 10:  # two epochs of five steps
            raise Crash("as asked")

    monkeypatch.setattr(checkpoint, "save", crashing)
    with pytest.raises(Crash, match="as asked"):
        trained()
    monkeypatch.undo()
    trained(resume="auto")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["epoch"], line["loss"]) for line in lines] == [(line["epoch"], line["loss"]) for line in told]


def test_the_checkpoint_says_what_it_belongs_to(tmp_path):
    run(community_graph(), checkpoint=str(tmp_path), epochs=1)
    tensors, state = checkpoint.newest(tmp_path)[1]
    assert state["config"]["lr"] == SMALL["lr"]
    assert {"version", "graph", "loader", "progress"} <= state.keys()
    assert {name.split(".")[0] for name in tensors} == {"model", "best", "adam"}


def test_a_checkpoint_is_its_folder_or_the_folder_of_several(tmp_path):
    """The rule of `predict` holds for `resume`: the newest of the folders ``step-...`` in a folder, or such a folder itself."""
    graph = community_graph()
    run(graph, **{**RUN, "epochs": 1}, checkpoint=str(tmp_path))
    newest = checkpoint.newest(tmp_path)[0]
    outer, inner = (run(graph, **{**RUN, "epochs": 2}, resume=str(folder))[2] for folder in (tmp_path, newest))
    assert (weights_of(outer) == weights_of(inner)).all()
    shutil.copytree(newest, tmp_path / "best")
    assert (weights_of(run(graph, **{**RUN, "epochs": 2}, resume=str(tmp_path / "best"))[2]) == weights_of(inner)).all()
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="holds no checkpoint; use the folder that training was given as checkpoint, or a folder step-"):
        run(graph, **RUN, resume=str(tmp_path / "empty"))


@pytest.mark.parametrize("method", ["sync", "random-tma", "llcg", "grappa"])
@pytest.mark.parametrize("steps", [3, 5])  # five steps an epoch
def test_a_checkpoint_of_an_earlier_order_goes_on_from_the_end_of_an_epoch_alone(tmp_path, monkeypatch, method, steps):
    """Earlier versions wrote no version of the loader, and shuffled seeds in another order."""
    graph, asked = community_graph(), {**RUN, "method": method, "epochs": 2}
    if method == "llcg":
        asked["server_steps"] = 1
    crash(graph, 7, **asked, checkpoint=str(tmp_path), checkpoint_every=steps)
    newest = checkpoint.newest

    def as_then(root):
        folder, (tensors, state) = newest(root)
        tensors = {name: tensor[:2] if name.endswith("server_place") else tensor for name, tensor in tensors.items()}
        return folder, (tensors, {**state, "loader": {key: value for key, value in state["loader"].items() if key != "version"}})

    step = newest(tmp_path)[1][1]["loader"]["step"]
    monkeypatch.setattr(checkpoint, "newest", as_then)
    more = {**asked, "checkpoint": str(tmp_path), "resume": "auto"}
    if step or method == "llcg":
        with pytest.raises(UsageError, match="saved in the middle of an epoch by an earlier version of bulksample"):
            run(graph, **more)
    else:
        assert run(graph, **more)[0]["resumed"]

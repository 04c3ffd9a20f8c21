"""A checkpoint whose hashes fit but whose content is no state of the run is refused in words, by `train` and by `predict`."""

import json

import pytest
import torch
from communities import community_graph

from bulksample import DataError, UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.predict import predict
from bulksample.methods.run import train
from bulksample.training import checkpoint

OPTIONS = {"fanouts": (3, 3), "hidden": 4, "batch_size": 64, "threads": 1, "epochs": 2, "virtual_ranks": 2}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The content of a checkpoint: its tensors and its state."""
    folder = tmp_path_factory.mktemp("whole")
    train(community_graph(), checkpoint=str(folder), **OPTIONS)
    return checkpoint.newest(folder)[1]


def in_progress(key, value):
    return lambda _, state: state["progress"].__setitem__(key, value)


def in_loader(key, value):
    return lambda _, state: state["loader"].__setitem__(key, value)


def in_state(key, value):
    return lambda _, state: state.__setitem__(key, value)


def without(name):
    return lambda tensors, _: tensors.pop(name)


def forgotten(name):
    """Remove a tensor, and its name from the list that the state keeps."""

    def change(tensors, state):
        del tensors[name]
        state["tensors"].remove(name)

    return change


def reshaped(name):
    return lambda tensors, _: tensors.__setitem__(name, tensors[name].reshape(-1)[:3].clone())


def put(name, tensor):
    return lambda tensors, _: tensors.__setitem__(name, tensor)


FAULTS = {
    "step -5": in_progress("steps", -5),
    "step in words": in_progress("steps", "ten"),
    "steps beyond count": in_progress("steps", 10**30),
    "stage of another method": in_progress("stage", 7),
    "rounds are true": in_progress("rounds", True),
    "best scores are a list": in_progress("best_scores", [1]),
    "a score in words": in_progress("best_scores", {"val_accuracy": "high"}),
    "no progress": in_state("progress", None),
    "progress lacks a part": lambda _, state: state["progress"].pop("loss"),
    "the loader's step -5": in_loader("step", -5),
    "the loader's step beyond its epoch": in_loader("step", 10**6),
    "the loader's epoch in words": in_loader("epoch", "last"),
    "ranks 10^9": in_loader("ranks", 10**9),
    "virtual ranks 10^9": in_state("virtual_ranks", 10**9),
    "virtual ranks 0": in_state("virtual_ranks", 0),
    "no loader": lambda _, state: state.pop("loader"),
    "config is a list": in_state("config", []),
    "graph is a number": in_state("graph", 3),
    "a missing weight": without("model.layers.0.bias"),
    "a forgotten weight": forgotten("model.layers.0.bias"),
    "a missing best weight": without("best.layers.0.bias"),
    "a missing moment": without("adam.layers.0.bias.exp_avg"),
    "a forgotten moment": forgotten("adam.layers.0.bias.exp_avg"),
    "missing moments of a parameter": lambda tensors, _: [
        tensors.pop(f"adam.layers.0.bias.{key}") for key in ("step", "exp_avg", "exp_avg_sq")
    ],
    "a weight of another shape": reshaped("model.layers.0.bias"),
    "a best weight of another shape": reshaped("best.layers.0.bias"),
    "a moment of another shape": reshaped("adam.layers.0.bias.exp_avg_sq"),
    "a weight of another type": put("model.layers.0.bias", torch.zeros(4, dtype=torch.float64)),
    "a foreign weight": put("model.layers.9.bias", torch.zeros(4)),
    "a foreign tensor": put("what.is.this", torch.zeros(4)),
    "Adam's step -5": put("adam.layers.0.bias.step", torch.tensor(-5.0)),
    "Adam's step NaN": put("adam.layers.0.bias.step", torch.tensor(float("nan"))),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_state_that_is_none_of_this_run_is_refused(whole, tmp_path, fault):
    tensors, state = {name: tensor.clone() for name, tensor in whole[0].items()}, json.loads(json.dumps(whole[1]))
    for key in ("format", "sha256"):
        del state[key]
    before = json.dumps(state), {name: (tensor.shape, tensor.dtype, tensor.sum().item()) for name, tensor in tensors.items()}
    FAULTS[fault](tensors, state)
    assert before != (json.dumps(state), {name: (tensor.shape, tensor.dtype, tensor.sum().item()) for name, tensor in tensors.items()})
    checkpoint.save(tmp_path, 10, tensors, state)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for ranks in (1, 2) if "loader" in fault or "weight" in fault else (1,):

        def again(comm):
            with pytest.raises((DataError, UsageError), match=r"checkpoint .*step-000000010|loader's state is damaged"):
                train(community_graph(), comm, checkpoint=str(tmp_path), resume="auto", **OPTIONS)

        on_threads(ranks, again)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == kept


PREDICTED = [
    "step -5",
    "no progress",
    "config is a list",
    "a weight of another shape",
    "a best weight of another shape",
    "a missing best weight",
]


@pytest.mark.parametrize("fault", PREDICTED)
def test_nothing_is_predicted_from_such_a_state(whole, tmp_path, fault):
    tensors, state = dict(whole[0]), json.loads(json.dumps(whole[1]))
    for key in ("format", "sha256"):
        del state[key]
    if fault == "a weight of another shape":
        tensors = {name: tensor for name, tensor in tensors.items() if not name.startswith("best.")}
    FAULTS[fault](tensors, state)
    path = checkpoint.save(tmp_path, 10, tensors, state)
    with pytest.raises(DataError, match=r"checkpoint .*step-000000010"):
        predict(community_graph(), path)

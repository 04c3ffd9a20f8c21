"""Methods: the table, and that the loop calls the hooks in their order."""

import pytest
import torch
from communities import community_graph

from bulksample import UsageError, methods
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import train
from bulksample.training.loop import Trainer
from bulksample.training.method import Method
from bulksample.training.tensor_comm import add_over_ranks

SMALL = {"fanouts": (5,), "hidden": 4, "batch_size": 50, "epochs": 2, "threads": 1}


def test_the_table_names_the_classes_that_it_loads():
    assert methods.load("sync") is Method
    assert all(methods.load(name).name == name for name in methods.METHODS)
    with pytest.raises(UsageError, match="no method 'gossip'; use sync, full"):
        methods.load("gossip")
    with pytest.raises(UsageError, match="no method 'gossip'"):
        train(community_graph(), method="gossip")


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("bucket", [2**22, 5])
def test_tensors_are_added_in_buckets(p, bucket, monkeypatch):
    monkeypatch.setattr("bulksample.training.tensor_comm.BUCKET", bucket)

    def body(comm):
        tensors = [torch.full((3, 4), float(comm.rank + 1)), torch.tensor(2.0), torch.empty(0), torch.arange(3.0)]
        add_over_ranks(tensors, comm, "gradients")
        return tensors, comm.tally["gradients"].bytes

    total = p * (p + 1) / 2
    results = on_threads(p, body)
    for tensors, _ in results:
        assert (tensors[0] == total).all()
        assert tensors[1] == 2 * p
        assert tensors[3].tolist() == [0, p, 2 * p]
    assert sum(sent for _, sent in results) == 2 * (p - 1) * 4 * 16


def test_hooks_are_called_in_their_order():
    called = []

    class Watched(Method):
        def view(self, context):
            called.append("view")
            super().view(context)

        def begin_round(self, context):
            called.append("begin_round")

        def combine_gradients(self, context, sums):
            called.append("combine_gradients")
            return super().combine_gradients(context, sums)

        def end_step(self, context, sums):
            called.append("end_step")
            return super().end_step(context, sums)

        def evaluate(self, context):
            called.append("evaluate")
            return super().evaluate(context)

    trainer = Trainer(TrainConfig.of(**SMALL), community_graph(), method=Watched)
    steps = trainer.context.batches.loader.steps
    report = trainer.run()
    a_round = ["begin_round", *["combine_gradients", "end_step"] * steps, "evaluate"]
    assert called == ["view", *a_round, *a_round]
    assert report["steps"] == 2 * steps
    assert report["epochs"] == 2


def test_ranks_make_as_many_steps_as_the_longest_loader():
    def rank(comm):
        trainer = Trainer(TrainConfig.of(**SMALL | {"batch_size": 64}), community_graph(), comm, method=Method)
        return trainer.context.batches.loader.steps, trainer.run()["steps"]

    steps, made = zip(*on_threads(3, rank), strict=True)
    assert set(made) == {2 * max(steps)}

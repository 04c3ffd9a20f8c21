"""Methods: the table, and that the loop calls the hooks in their order."""

import pytest
import torch
from communities import community_graph

from bulksample import UsageError, methods
from bulksample.config.train import TrainConfig
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods import Method
from bulksample.training.buckets import add_over_ranks
from bulksample.training.loop import Trainer

SMALL = {"fanouts": (5,), "hidden": 4, "batch_size": 50, "epochs": 2, "threads": 1}


def test_the_table_names_what_it_makes():
    assert type(methods.make(TrainConfig.of())) is Method
    assert all(name == method.name for name, method in methods.METHODS.items())
    with pytest.raises(UsageError, match="no method 'gossip'; sync"):
        methods.make(TrainConfig.of(method="gossip"))
    with pytest.raises(UsageError, match="no method 'gossip'"):
        Trainer(TrainConfig.of(method="gossip"), community_graph())


@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("bucket", [2**22, 5])
def test_tensors_are_added_in_buckets(p, bucket, monkeypatch):
    monkeypatch.setattr("bulksample.training.buckets.BUCKET", bucket)

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


def test_hooks_are_called_in_their_order(monkeypatch):
    called = []

    class Watched(Method):
        name = "watched"

        def view(self, graph, comm):
            called.append("view")
            return graph

        def begin_round(self, trainer):
            called.append("begin")

        def steps(self, remaining, comm):
            called.append(f"steps {remaining}")
            return super().steps(remaining, comm) + 1  # as where another rank has more

        def combine_gradients(self, trainer, sums):
            called.append("combine")
            return super().combine_gradients(trainer, sums)

        def end_round(self, trainer):
            called.append("end")

    monkeypatch.setitem(methods.METHODS, "watched", Watched)
    trainer = Trainer(TrainConfig.of(method="watched", **SMALL), community_graph())
    steps = trainer.batches.loader.steps
    report = trainer.run()
    a_round = ["begin", f"steps {steps}", *["combine"] * (steps + 1), "end"]
    assert called == ["view", *a_round, *a_round]
    assert report["steps"] == 2 * (steps + 1)
    assert report["epochs"] == 2

"""`virtual_ranks` on fewer ranks is gradient accumulation: the update of a plain loop that adds up the gradients of W mini-batches."""

import pytest
import torch
from communities import community_graph
from plain_steps import train_plainly
from training_runs import run_training, weights_of

from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer

RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 20, "epochs": 3, "lr": 0.05, "threads": 1, "dropout": 0.0, "evaluate": "none"}


@pytest.mark.parametrize("p", [1, 2])
@pytest.mark.parametrize("w", [3, 4])
def test_virtual_ranks_accumulate_as_a_plain_loop_does(p, w):
    graph = community_graph()
    plain = make_trainer(TrainConfig.of(**RUN), graph)
    expected, _ = train_plainly(plain, RUN["epochs"], every=w)
    runs = on_threads(p, lambda comm: run_training(graph, comm, **RUN, virtual_ranks=w))
    report, recorder, trainer = runs[0]
    assert len(recorder.losses) == RUN["epochs"] * -(-plain.context.batches.steps // w)
    torch.testing.assert_close(weights_of(trainer), expected, rtol=1e-4, atol=1e-5)
    assert report["virtual_ranks"] == w


def test_accumulation_is_clipped_as_a_whole():
    graph = community_graph()
    plain = make_trainer(TrainConfig.of(**RUN), graph)
    expected, _ = train_plainly(plain, RUN["epochs"], every=3, clip=0.1)
    found = weights_of(run_training(graph, **RUN, virtual_ranks=3, clip_norm=0.1)[2])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)

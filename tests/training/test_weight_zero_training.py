"""Runs whose sampler reads weights train, score and predict as if no edge of weight 0 were there, whatever the model and the placement."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from training_runs import run_training, weights_of

from bulksample import CSR
from bulksample.data import store
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.methods.predict import predict

STILL = {"fanouts": (4, -1), "hidden": 8, "batch_size": 40, "epochs": 2, "threads": 1, "eval_every": 1}
WEIGHTED = {"sampler": "sage", "sampler_options": {"weighted": True}}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Stores of a graph that hides a third of its edges, and all of some rows, by the weight 0, and of it without these edges."""
    folder, graph = tmp_path_factory.mktemp("hidden"), community_graph(weighted=True)
    a = graph.adjacency
    rows, weights = a.row_of_entry(), a.values * (np.arange(a.nnz) % 3 > 0) * (a.row_of_entry() % 7 != 2)
    some = weights > 0
    cut = CSR.from_edges(rows[some], a.indices[some], a.shape, weights[some])
    for name, matrix in (("hiding", a.with_values(weights)), ("cut", cut)):
        store.save(replace(graph, adjacency=matrix), folder / name)
    return folder


def trained(path, ranks, **options):
    """The weights after training, the losses and the scores, on each rank."""

    def rank(comm):
        report, recorder, trainer = run_training(path, comm, **STILL, **options)
        return weights_of(trainer), recorder.losses, [report[f"{split}_accuracy"] for split in ("train", "val", "test")]

    return [rank(SerialComm())] if ranks == 1 else on_threads(ranks, rank)


RUNS = {
    "gcn": {"model": "gcn", **WEIGHTED}, "gat": {"model": "gat", **WEIGHTED}, "pool": {"model": "sage-pool", **WEIGHTED},
    "labor": {"model": "sage-pool", "sampler": "labor"}, "sampled": {"model": "gat", "evaluate": "sampled", **WEIGHTED},
    "replace": {"model": "sage-pool", "sampler": "sage", "sampler_options": {"weighted": True, "replace": True}},
}  # fmt: skip
PLACES = {
    "alone": (1, {}), "replicated": (2, {}), "features": (2, {"features": "partitioned"}), "owner": (2, {"graph": "partitioned"}),
    "rows": (2, {"graph": "partitioned", "exchange": "rows"}), "full": (2, {"method": "full", "graph": "partitioned"}),
    "averaging": (2, {"method": "psgd-pa"}),
}  # fmt: skip
CASES = [*((run, "alone") for run in RUNS), *(("pool", place) for place in PLACES if place != "alone"), ("gat", "owner")]


@pytest.mark.parametrize(("run", "place"), CASES)
def test_hidden_edges_do_not_take_part(stored, run, place):
    ranks, options = PLACES[place]
    hidden, cut = (trained(stored / name, ranks, **RUNS[run], **options) for name in ("hiding", "cut"))
    for own, expected in zip(hidden, cut, strict=True):
        assert torch.equal(own[0], expected[0])
        assert own[1:] == expected[1:]


@pytest.mark.parametrize("run", ["gat", "pool", "labor"])
def test_predictions_read_no_hidden_edge(stored, run, tmp_path):
    run_training(store.load(stored / "cut"), SerialComm(), **STILL, **RUNS[run], checkpoint=str(tmp_path))
    expected = predict(stored / "cut", tmp_path)
    for source in (stored / "hiding", store.load(stored / "hiding")):
        found = predict(source, tmp_path)
        assert np.array_equal(found.logits, expected.logits)
        assert np.array_equal(found.embeddings, expected.embeddings)
        assert found.scores == expected.scores

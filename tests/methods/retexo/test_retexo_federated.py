"""RETEXO in federated mode: features stay with their clients, and what clients would send is counted."""

import numpy as np
import pytest
from communities import community_graph
from test_retexo import MODELS, STILL, trained

from bulksample.data import store
from bulksample.distributed.comm.base import Comm
from bulksample.distributed.comm.threads import on_threads


class Payloads:
    """Every array that any rank brings to a collective."""

    def __init__(self, monkeypatch):
        self.brought = []
        for name in ("allreduce", "allgather_rows", "broadcast", "start_alltoall_rows"):
            monkeypatch.setattr(Comm, name, self._wrapped(getattr(Comm, name)))

    def _wrapped(self, collective):
        def call(comm, first, *args, **kwargs):
            kind = args[-1] if isinstance(args[-1], str) else args[0]
            for array in first if isinstance(first, list) else [first]:
                self.brought.append((kind, np.array(array)))
            return collective(comm, first, *args, **kwargs)

        return call


def kinds_with(brought, marks):
    return {kind for kind, array in brought if array.dtype.kind == "f" and np.isin(array.astype(np.float32), marks).any()}


@pytest.mark.parametrize("model", MODELS)
def test_no_feature_leaves_a_client(tmp_path, monkeypatch, model):
    """Features are numbers that nothing else is; one step of no length leaves the weights, and logits, without them."""
    graph = community_graph()
    graph.features[:] = 1000.25 + np.arange(graph.features.size, dtype=np.float32).reshape(graph.features.shape)
    store.save(graph, tmp_path / "g")
    asked = {"layers": 2, "epochs": 1, "model": model}
    federated = Payloads(monkeypatch)
    tallies = on_threads(3, lambda comm: (trained(tmp_path / "g", comm, **asked, method="retexo-federated"), comm.tally)[1])
    assert not kinds_with(federated.brought, graph.features)
    assert sum(tally["features"].bytes for tally in tallies) == 0
    rows = [array for kind, array in federated.brought if kind == "activations" and array.ndim == 2]
    assert rows
    assert {array.shape[1] for array in rows} == {graph.num_classes}
    federated.brought.clear()
    on_threads(3, lambda comm: trained(tmp_path / "g", comm, **asked))
    assert "features" in kinds_with(federated.brought, graph.features)  # partition mode does send them


@pytest.mark.parametrize("vertices", [1, 4])
def test_what_clients_send_is_counted(stored, vertices):
    graph = store.load(stored / "plain")
    rounds, hidden, classes = 5, 12, 3
    asked = {"method": "retexo-federated", "layers": 2, "model": "gcn", "client_vertices": vertices, "epochs": rounds}
    report = trained(stored / "plain", None, **asked)[2]
    client = np.arange(graph.n) // vertices
    row = np.repeat(np.arange(graph.n), np.diff(graph.adjacency.indptr))
    pairs = {(u, client[v]) for v, u in zip(row, graph.adjacency.indices, strict=True) if client[u] != client[v]}
    sizes = [8 * hidden + hidden * classes] + 2 * [2 * classes * hidden + hidden + hidden * classes]
    asked = sum(len(set(client[graph.masks[split]])) for split in ("train", "val"))
    assert report["client_bytes"] == {
        "parameters": 4 * 2 * rounds * asked * sum(sizes),
        "final": 4 * len(set(client)) * sum(sizes),
        "logits": 4 * 2 * len(pairs) * classes,
    }
    spread = on_threads(3, lambda comm: trained(stored / "plain", comm, **{**STILL, **{
        "method": "retexo-federated", "layers": 2, "model": "gcn", "epochs": rounds, "partition": "random",
    }})[2])[0]  # fmt: skip
    if vertices == 1:  # clients of one vertex are the same on any ranks
        assert spread["client_bytes"] == report["client_bytes"]


def test_bytes_of_stages_that_are_not_over_are_not_counted(stored):
    _, trainer, _ = trained(stored / "plain", None, method="retexo-federated", layers=2, epochs=2, model="gcn")
    del trainer.method._finished[1:]
    weights = sum(parameter.numel() for parameter in trainer.method.parts[0].parameters())
    assert trainer.method.client_bytes() | {"parameters": 0} == {"parameters": 0, "final": 4 * 300 * weights, "logits": 0}


def test_the_best_stage_gives_the_scores(stored):
    _, _, report = trained(stored / "plain", None, method="retexo-federated", layers=3, epochs=20, model="sage")
    found = [stage["val_accuracy"] for stage in report["stages"]]
    assert len(found) == 4
    assert report["val_accuracy"] == max(found)
    assert report["test_accuracy"] == report["stages"][report["best_stage"]]["test_accuracy"]

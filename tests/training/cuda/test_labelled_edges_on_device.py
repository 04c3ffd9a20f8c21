"""Labelled edges on an emulated device: the losses and scores of the CPU, and no tensor read on the wrong side."""

import numpy as np
import pytest
from communities import community_graph
from emulation.apart import Apartness, ApartPlace
from emulation.host import compiler
from labelled_edges import pairs_table, trained
from planted_relations import planted

from bulksample.distributed.comm.threads import on_threads

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
SMALL = {
    "fanouts": (3, 2), "hidden": 8, "batch_size": 64, "bulk_size": 2, "epochs": 2, "dropout": 0.0, "threads": 1, "seed": 4, "quiet": True,
}  # fmt: skip


def on_both(source, table, ranks=1, **options):
    """Return the losses of every step and the scores, on the host and on a device whose tensors the host cannot read."""

    def run(comm, where=None):
        report, recorder, _ = trained(source, table, comm, where, **{**SMALL, **options})
        scores = {name: value for name, value in report.items() if name.startswith(("train_", "val_", "test_")) and value is not None}
        return recorder.losses, scores

    def apart(comm):
        with Apartness():
            return run(comm, ApartPlace())

    return on_threads(ranks, run)[0], on_threads(ranks, apart)[0]


@pytest.mark.parametrize(("kind", "options"), [
    ("class", {"balance_classes": True}), ("regression", {"graph": "partitioned", "ranks": 2}),
    pytest.param("multilabel", {"model": "gcn", "frontier": "new"}, marks=pytest.mark.long),
])  # fmt: skip
def test_labels_of_pairs_are_predicted_on_a_device(tmp_path, kind, options):
    graph = community_graph(150)
    graph.save(tmp_path / "g")
    (expected, scores), (got, there) = on_both(tmp_path / "g", pairs_table(graph.labels, kind, features=2), **options)
    assert got == pytest.approx(expected, rel=1e-6)
    assert len(expected) > 2
    assert there == pytest.approx(scores, rel=1e-5)


def test_pairs_of_a_relation_in_time_are_predicted_on_a_device():
    graph = planted(times=True)
    count = graph.type("paper").count
    table = pairs_table(np.arange(count) % 3, m=200, features=2)
    table["time"] = np.random.default_rng(1).integers(*np.quantile(graph.type("paper").times, [0.2, 0.9]).astype(int), 200)
    asked = {"model": "hetero-sage", "target_relation": "paper:cites:paper"}
    (expected, scores), (got, there) = on_both(graph, table, **asked)
    assert got == pytest.approx(expected, rel=1e-6)
    assert len(expected) > 2
    assert there == pytest.approx(scores, rel=1e-5)

"""`plan --from` a heterogeneous store: sizes that a run has, bytes near those that it sends, and what is refused."""

import json
from dataclasses import replace

import numpy as np
import pytest
from planted_relations import planted
from typer.testing import CliRunner

from bulksample import Graph, UsageError, VertexType, relation_from_edges
from bulksample.cli.app import app
from bulksample.data import store
from bulksample.data.hetero import hetero, papers
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.plan import PlanRequest
from bulksample.plan.relational import plan_relations

SIZES = {"fanouts": (4, 3), "hidden": 8, "batch_size": 16}


def planned(folder, graph, p, c, topology="replicated", **changes):
    """The prediction of p ranks with c copies of each block row."""
    manifest = store.save(graph, folder, overwrite=True)
    whole = {"vertices": graph.n, "edges": sum(relation.edges for relation in graph.relations), "feature_width": 0}
    found = plan_relations(manifest, PlanRequest.of(**{**whole, **SIZES, "ranks": (p,), "replication": (c,), **changes}))
    (row,) = [row for row in found["rows"] if (row["topology"], row["features"]) == (topology, "partitioned")]
    return found, row


def trained(folder, comm, **options):
    given = {"model": "hetero-sage", "dropout": 0.0, "threads": 1, "evaluate": "none", "features": "partitioned", "epochs": 1, **SIZES}
    return make_trainer(TrainConfig.of(**{**given, **options}), folder, comm).run()


@pytest.mark.parametrize("featureless", [("venue",), ("author", "venue")])
@pytest.mark.parametrize(("p", "c"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.long)])
def test_held_bytes_and_parameters_are_those_of_a_run(tmp_path, p, c, featureless):
    graph = planted()
    types = (replace(kind, features=None) if kind.name in featureless else kind for kind in graph.types)
    found, row = planned(tmp_path / "g", replace(graph, types=tuple(types)), p, c)
    report = on_threads(p, lambda comm: trained(tmp_path / "g", comm, replication=c, epochs=0))[0]
    assert (found["parameters"], found["embedding_bytes"]) == (report["parameters"], report["embedding_bytes"])
    held = report["held_bytes"]
    assert row["held"]["relations"] == held["adjacency"]
    assert row["held"]["features"] == held["features"]
    assert row["held"]["embeddings"] == 4 * held["embeddings"]  # with gradients and two moments


@pytest.mark.parametrize(("p", "c"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.long)])
def test_bytes_of_a_step_are_near_those_of_a_run(tmp_path, p, c):
    """Edges at random, so that expectations hold; all steps have full mini-batches."""
    counts, relations = papers(0.0005)
    graph = hetero(counts, relations, features=8, classes=4, seed=1, power=1)
    graph = replace(graph, types=tuple(replace(kind, features=None) if kind.name == "author" else kind for kind in graph.types))
    found, row = planned(tmp_path / "g", graph, p, c)
    start, end = (on_threads(p, lambda comm, n=n: trained(tmp_path / "g", comm, replication=c, epochs=n, seeds="all"))[0] for n in (0, 1))
    for kind, size in row["bytes_of_a_step"].items():
        if kind != "total":
            measured = (end["bytes_sent"][kind] - start["bytes_sent"][kind]) / end["steps"]
            assert size == pytest.approx(measured, rel=0.1), kind
    assert found["target"] == "paper"


@pytest.mark.parametrize(("p", "c"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.long)])
def test_relations_in_block_rows_are_planned(tmp_path, p, c):
    """Answers of equal length take up to twice what is predicted, and less where no row has two edges: they need no counts."""
    counts, relations = papers(0.0005)
    graph = hetero(counts, relations, features=8, classes=4, seed=1, power=1)
    _, whole = planned(tmp_path / "w", graph, p, c)
    _, row = planned(tmp_path / "g", graph, p, c, "partitioned")
    options = {"replication": c, "seeds": "all", "topology": "partitioned", "bulk_size": 1}
    start, end = (on_threads(p, lambda comm, n=n: trained(tmp_path / "g", comm, epochs=n, **options))[0] for n in (0, 1))
    measured = (end["bytes_sent"]["topology"] - start["bytes_sent"]["topology"]) / end["steps"]
    assert measured / 2 < row["bytes_of_a_step"]["topology"] < 1.25 * measured
    assert row["bytes_of_a_step"]["topology"] > 2 * whole["bytes_of_a_step"]["topology"]
    assert row["held"]["relations"] == pytest.approx(whole["held"]["relations"] * c / p)
    assert row["held"]["relations"] == pytest.approx(end["held_bytes"]["adjacency"], rel=0.01)
    assert 0 < row["held"]["counts"] <= 4 * sum(graph.type(relation.destination).count for relation in graph.relations)


def of_one_degree():
    """64 papers that cite the three before them."""
    ids = np.arange(64)
    paper = VertexType("paper", 64, np.ones((64, 2), np.float32), ids % 2, 2, {"train": np.ones(64, bool)})
    cited = np.concatenate([(ids - step) % 64 for step in (1, 2, 3)])
    return Graph.of((paper,), (relation_from_edges(paper, "cites", paper, cited, np.tile(ids, 3)),), "cyclic").validate()


def topology_bytes(folder, p, c, exchange, **options):
    """Count what ranks send in a step beyond what they send with replicated relations; the ids of features are alike in both."""
    sent = []
    for topology, more in (("partitioned", {"exchange": exchange}), ("replicated", {})):
        given = {"replication": c, "seeds": "all", "topology": topology, "bulk_size": 1} | more | options
        start, end = (on_threads(p, lambda comm, n=n, given=given: trained(folder, comm, epochs=n, **given))[0] for n in (0, 1))
        sent.append((end["bytes_sent"]["topology"] - start["bytes_sent"]["topology"]) / end["steps"])
    return sent[0] - sent[1]


def sampling_bytes(folder, graph, p, c, **changes):
    """Predict the same."""
    rows = [planned(folder, graph, p, c, topology, **changes)[1] for topology in ("partitioned", "replicated")]
    return rows[0]["bytes_of_a_step"]["topology"] - rows[1]["bytes_of_a_step"]["topology"]


@pytest.mark.parametrize(
    ("times", "options"),
    [({"edge_times": True}, {"seed_times": "asked"}), *(pytest.param({"times": of}, {}, marks=pytest.mark.long) for of in (False, True))],
)
def test_whole_block_rows_are_those_of_a_run(tmp_path, times, options):
    """They are all sent in every step, whatever it draws, so the prediction is exact."""
    expected = sampling_bytes(tmp_path / "g", planted(**times), 2, 1, exchange="rows-oblivious")
    assert topology_bytes(tmp_path / "g", 2, 1, "rows-oblivious", **options) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("exchange", ["rows", "rows-oblivious"])
def test_rows_of_full_mini_batches_of_one_degree_are_those_of_a_run(tmp_path, exchange):
    """One hop from 16 distinct seeds of degree 3 on two ranks of one process row: one tells its ids to the other, which returns rows."""
    graph = of_one_degree()
    expected = sampling_bytes(tmp_path / "g", graph, 2, 2, exchange=exchange, fanouts=(4,))
    assert expected == 16 * 4 + 16 * (4 + 4 * (1 + 3))
    assert topology_bytes(tmp_path / "g", 2, 2, exchange, fanouts=(4,)) == expected


def test_times_of_a_relation_without_edges_change_no_prediction(tmp_path):
    graph = planted()
    empty = [replace(one, times=np.zeros(0, np.int64)) if not one.edges else one for one in graph.relations]
    assert sum(one.times is not None for one in empty) == 1
    expected = sampling_bytes(tmp_path / "g", graph, 2, 1)
    assert sampling_bytes(tmp_path / "g", replace(graph, relations=tuple(empty)), 2, 1) == expected


@pytest.mark.long
@pytest.mark.parametrize(("p", "c"), [(2, 1), (4, 2)])
def test_rows_that_travel_are_near_those_of_a_run(tmp_path, p, c):
    counts, relations = papers(0.0005)
    graph = hetero(counts, relations, features=8, classes=4, seed=1, power=1)
    expected = sampling_bytes(tmp_path / "g", graph, p, c, exchange="rows")
    assert topology_bytes(tmp_path / "g", p, c, "rows") == pytest.approx(expected, rel=0.1)


def test_rows_with_times_of_two_kinds_are_refused(tmp_path):
    both = planted(times=True, edge_times=True)
    planned(tmp_path / "g", both, 2, 1)
    with pytest.raises(UsageError, match="both vertices and edges of 'planted' have times"):
        planned(tmp_path / "g", both, 2, 1, exchange="rows")


def test_the_command_prints_rows_and_refuses_what_it_does_not_read(tmp_path):
    planted(times=True).save(tmp_path / "g")
    command = ["plan", "--from", str(tmp_path / "g"), "--ranks", "1,4", "--fanouts", "4,3", "--hidden", "8"]
    done = CliRunner().invoke(app, [*command, "--json", "-"])
    rows = json.loads(done.stdout)["rows"]
    four = [(row["replication"], row["topology"], row["features"]) for row in rows if row["ranks"] == 4]
    assert four == [
        *((c, "partitioned", "partitioned") for c in (1, 2, 4)), *((c, "replicated", "partitioned") for c in (1, 2, 4)),
        (1, "replicated", "replicated"),
    ]  # fmt: skip
    assert rows[0]["held"]["times"] == 16 * (360 + 400 + 120)  # relations that begin in papers or authors
    assert "predict paper" in CliRunner().invoke(app, command).stdout
    for flag in ("--latency", "--measured", "--rates"):
        refused = CliRunner().invoke(app, [*command, flag, "1"])
        assert isinstance(refused.exception, UsageError)
        assert f"its plan reads --ranks, --replication, --fanouts, --batch-size, --hidden, --exchange, got {flag}" in str(refused.exception)


def test_a_store_without_one_labelled_type_is_refused(tmp_path):
    graph = planted()
    without = replace(graph, types=(replace(graph.types[0], labels=None, num_classes=0, masks={}), *graph.types[1:]))
    with pytest.raises(UsageError, match="no type of 'planted' has labels"):
        planned(tmp_path / "g", without, 2, 1)

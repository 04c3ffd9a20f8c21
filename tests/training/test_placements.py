"""Topology and features lie where two options say; no placement changes a mini-batch, a loss or a score."""

import json

import numpy as np
import pytest
from communities import community_graph
from launch import run_ranks
from oracles.fetches import predict_fetches
from training_runs import run_training, run_with_digests

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.base import SentCount
from bulksample.distributed.comm.machines import VARIABLE
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.partition import block_bounds
from bulksample.methods import METHODS
from bulksample.methods.config import TrainConfig
from bulksample.methods.options import AVERAGING
from bulksample.methods.run import make_trainer

STILL = {"fanouts": (5, 5), "hidden": 8, "batch_size": 12, "epochs": 2, "lr": 0.005, "dropout": 0.0, "threads": 1, "model": "gcn"}
FEATURES = ("replicated", "partitioned", "machine", "host")
MACHINES = {1: "1", 2: "1", 4: "2,2"}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Stores of graphs by name."""
    folder = tmp_path_factory.mktemp("graphs")
    for name, kind in {"plain": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True}}.items():
        store.save(community_graph(n=120, **kind), folder / name)
    return folder


def runs(source, p, **options):
    return on_threads(p, lambda comm: run_with_digests(source, comm, **{**STILL, **options}))


def assert_same(found, expected):
    """One digest, one loss in each step, one score."""
    assert [rank[2] for rank in found] == [rank[2] for rank in expected]
    (losses, report, _), (others, there, _) = found[0], expected[0]
    np.testing.assert_allclose(losses, others, rtol=0, atol=1e-5)
    scores = [key for key in there if key.endswith("_accuracy")]
    assert len(scores) == 3
    assert {key: report[key] for key in scores} == {key: there[key] for key in scores}


def placements(p):
    """Every topology and placement of features, with each c of either."""
    fits = [c for c in (1, 2, 4) if p % c == 0]
    for c in fits:
        for features in FEATURES:
            yield {"topology": "partitioned", "features": features, "replication": c, "partition": "random"}
        yield from ({"topology": "partitioned", "replication": c, "feature_replication": other} for other in fits if other != c)
        yield {"topology": "replicated", "features": "partitioned", "replication": c, "partition": "random"}
    yield from ({"topology": "replicated", "features": features} for features in ("machine", "host"))
    yield {"topology": "partitioned", "replication": fits[len(fits) // 2], "exchange": "rows"}


@pytest.mark.parametrize("options", [{"topology": "replicated", "features": "host"}, *list(placements(2))[1:7]])
def test_a_placement_is_the_same_run(stored, options):
    assert_same(runs(stored / "plain", 2, epochs=1, **options), runs(stored / "plain", 2, epochs=1))


@pytest.mark.long
@pytest.mark.parametrize("p", [1, 2, 4])
@pytest.mark.parametrize("order", ["auto", "columns"])
def test_every_placement_is_the_same_run(stored, monkeypatch, p, order):
    monkeypatch.setenv(VARIABLE, MACHINES[p])
    expected = runs(stored / "plain", p)
    for options in placements(p):
        in_blocks = {"grid_order": order} if "partitioned" in options.values() else {}  # else there is no grid to order
        assert_same(runs(stored / "plain", p, **in_blocks, **options), expected)


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sparse", {"feature_norm": "l1"}), ("weighted", {"sampler": "ladies", "fanouts": (20, 20)}),
        ("plain", {"feature_norm": "l2", "model": "gat", "label": "other", "seeds": "all"}), ("plain", {"sampler": "saint"}),
    ],
)  # fmt: skip
def test_every_kind_of_run_in_every_placement(stored, monkeypatch, name, options):
    monkeypatch.setenv(VARIABLE, "2,2")
    expected = runs(stored / name, 4, **options)
    for placement in placements(4):
        assert_same(runs(stored / name, 4, **options, **placement), expected)


@pytest.mark.parametrize("k", [1, 2, 100])
def test_whole_topology_and_divided_features_send_nothing_to_sample_and_the_predicted_rows(stored, k):
    """The published main placement: ids travel once a bulk, and the rows of other blocks once a mini-batch."""
    n, width, p, c = 120, 8, 4, 2
    ranks = on_threads(p, lambda comm: fetched(stored / "plain", comm, replication=c, bulk_size=k))
    vertices, tallies, collectives, held = zip(*ranks, strict=True)
    bounds = block_bounds(n, p // c)
    steps = max(map(len, vertices))
    asked = [[own[step] if step < len(own) else np.empty(0, np.int32) for step in range(steps)] for own in vertices]
    bulks = [[own[first : first + k] for own in asked] for first in range(0, steps, k)]
    foreseen = [predict_fetches(c, bulk, bounds, width) for bulk in bulks]
    for kind in ("topology", "features", "control"):
        assert [sent[kind].bytes for sent in tallies] == [sum(bulk[rank][kind].bytes for bulk in foreseen) for rank in range(p)]
        assert [sent[kind].messages for sent in tallies] == [sum(bulk[rank][kind].messages for bulk in foreseen) for rank in range(p)]
        assert sum(sent[kind].bytes for sent in tallies) > 0
    assert collectives == ({"topology": len(bulks), "features": steps, "control": len(bulks)},) * p
    assert [rank["features"] for rank in held] == [4 * width * n * c // p] * p


def fetched(source, comm, **options):
    """The vertices of this rank's mini-batches of an epoch, what they cost by kind in messages and collectives, and the bytes it holds."""
    asked = {**STILL, "features": "partitioned", **options}
    context = make_trainer(TrainConfig.of(**asked), source, comm).context
    assert context.view.sampling is None  # nothing travels to sample
    before, calls, kinds = dict(comm.tally), dict(comm.collectives), ("topology", "features", "control")
    vertices = [batch.minibatch.vertices for batch in context.batches if batch.minibatch is not None]
    sent = {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in kinds}
    return vertices, sent, {kind: comm.collectives[kind] - calls[kind] for kind in kinds}, context.view.memory


@pytest.mark.parametrize("topology", ["replicated", "partitioned"])
def test_ranks_of_a_machine_share_converted_features_only_if_they_lie_there(stored, topology):
    for features, shared in (("replicated", False), ("host", True)):
        asked = {**STILL, "topology": topology, "features": features, "feature_storage": "fp16"}
        views = on_threads(2, lambda comm: make_trainer(TrainConfig.of(**asked), stored / "plain", comm).context.view)  # noqa: B023
        assert [view.features.shared for view in views] == [shared] * 2


@pytest.mark.parametrize("options", [{"topology": "replicated"}, {"topology": "partitioned", "replication": 2, "feature_replication": 1}])
def test_caches_hold_the_rows_of_most_edges_wherever_the_topology_lies(stored, options):
    """Room for ten rows of eight numbers: those of the vertices that most rows aggregate, on every rank."""
    counts = np.bincount(community_graph(n=120).adjacency.indices, minlength=120)
    busiest = np.sort(np.argsort(-counts, kind="stable")[:10])

    def rank(comm, by):
        asked = {**STILL, "features": "partitioned", "cache_bytes": 10 * 32, "cache_by": by, **options}
        return make_trainer(TrainConfig.of(**asked), stored / "plain", comm).context.view.features.exchange.cache.ids.tolist()

    assert on_threads(4, lambda comm: rank(comm, "degree")) == [busiest.tolist()] * 4
    counted = on_threads(4, lambda comm: rank(comm, "frequency"))
    assert counted == [counted[0]] * 4
    assert len(counted[0]) == 10 != len(set(counted[0]) & set(busiest.tolist()))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph": "partitioned", "features": "host"}, "graph partitioned and features host: leave graph out"),
        ({"features": "host", "feature_replication": 2}, "c = 2 with features host: use features partitioned"),
        ({"features": "host", "replication": 2}, "c = 2 with the topology replicated and features host"),
        ({"features": "host", "feature_codec": "fp16"}, "got features host: use graph partitioned, or features partitioned"),
        ({"features": "partitioned", "feature_storage": "fp16"}, "got fp16 and features in block rows: use features replicated or host"),
        ({"features": "partitioned", "feature_replication": 3}, r"c = 3 with p = 4; use c in \{1, 2, 4\}"),
        ({"topology": "partitioned", "features": "cloud"}, "'cloud'; use replicated, partitioned, machine, host"),
        ({"method": "full", "topology": "replicated"}, "method 'full' needs topology partitioned; got topology replicated"),
        ({"method": "psgd-pa", "features": "host"}, "method 'psgd-pa' needs features partitioned; got features host"),
        (
            {"method": "retexo-federated", "features": "replicated"},
            "'retexo-federated' needs features partitioned; got features replicated",
        ),
    ],
)
def test_what_has_no_meaning_is_refused_on_every_rank_before_anything_moves(stored, options, message):
    def rank(comm):
        with pytest.raises(UsageError, match=message):
            make_trainer(TrainConfig.of(**{**STILL, **options}), stored / "plain", comm)
        return {kind: sent.bytes for kind, sent in comm.tally.items() if kind != "control"}

    assert not sum(sum(sent.values()) for sent in on_threads(4, rank))


@pytest.mark.parametrize("method", [name for name in METHODS if name not in ("sync", *AVERAGING, "retexo-federated")])
def test_every_method_takes_its_features_from_anywhere(stored, method):
    """Methods on parts and on the whole graph: the losses are those with features in block rows, and no feature travels."""

    def rank(comm, features):
        own = {} if method in ("grappa", "retexo") else {"fanouts": (-1, -1)}
        report, recorder, _ = run_training(stored / "plain", comm, **{**STILL, "model": "sage", **own}, method=method, features=features)
        return recorder.losses, report["bytes_sent"]["features"], report["test_accuracy"]

    (expected, sent, score), (losses, moved, other) = (on_threads(2, lambda comm, f=f: rank(comm, f))[0] for f in ("partitioned", "host"))
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-5)
    assert score == other
    assert moved == 0 < sent


@pytest.mark.long
@pytest.mark.parametrize("options", [("--features", "partitioned", "--replication", "2"), ("--features", "host", "--feature-norm", "l2")])
def test_processes_train_as_one_does(stored, tmp_path, options):
    """Four processes on two simulated machines, from the command line: their losses are those of threads; no feature leaves a machine."""
    norm = {"feature_norm": "l2"} if "--feature-norm" in options else {}
    expected = runs(stored / "plain", 4, **norm)[0][1]
    still = [f"--{name.replace('_', '-')}={','.join(map(str, v)) if isinstance(v, tuple) else v}" for name, v in STILL.items()]
    arguments = ["-m", "bulksample", "train", stored / "plain", *still, *options, "--json", tmp_path / "report.json"]
    ended = run_ranks(4, list(map(str, arguments)), env={VARIABLE: "2,2"})
    assert ended.code == 0, ended
    assert "bytes_between_machines" in ended.out
    found = json.loads((tmp_path / "report.json").read_text())
    assert found["train_loss"] == pytest.approx(expected["train_loss"], abs=1e-5)
    assert found["test_accuracy"] == expected["test_accuracy"]
    assert found["ranks_of_machines"] == [2, 2]
    assert found["bytes_between_machines"]["features"] == 0 < found["bytes_between_machines"]["gradients"]
    assert (found["bytes_sent"]["features"] > 0) == ("partitioned" in options)


@pytest.mark.long
def test_machines_that_do_not_add_up_end_every_process_with_a_sentence(stored):
    ended = run_ranks(2, ["-m", "bulksample", "sample", str(stored / "plain"), "--fanouts", "2"], env={VARIABLE: "2,2"})
    assert ended.code == 2
    assert f"{VARIABLE}: got '2,2' for 2 ranks; use the ranks of each machine" in ended.err

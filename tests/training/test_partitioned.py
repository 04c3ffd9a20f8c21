"""A graph in block rows is trained on like one that lies whole on every rank: same minibatches, same loss, less memory."""

import json

import numpy as np
import pytest
import torch
from communities import community_graph
from launch import run_ranks
from oracles.fetches import predict_fetch
from training_runs import run_with_digests
from waiting import PATIENCE

from bulksample import DataError, UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.distributed.matrix import partition
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.open_graph import open_block
from bulksample.distributed.matrix.placement import Placement
from bulksample.evaluation.inference import infer
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.nn.model import Gnn
from bulksample.views.features import Features
from bulksample.views.inference_share import InferenceShare
from bulksample.views.plain_view import BlockShare, WholeShare
from bulksample.views.type_features import RemoteFeatures
from bulksample.views.view import BlockRows, mean_weights

STILL = {"fanouts": (5, 5), "hidden": 16, "batch_size": 8, "epochs": 12, "lr": 0.005, "dropout": 0.0, "threads": 1}


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Return a folder with stores of several graphs, by name."""
    folder = tmp_path_factory.mktemp("graphs")
    kinds = {"plain": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True}, "half": {"half": True}, "two": {"classes": 2}}
    for name, kind in kinds.items():
        store.save(community_graph(**kind), folder / name)
    return folder


def trained(source, comm=None, **options):
    """Losses of all steps, the report, and the digests of this rank's minibatches of the first epoch."""
    return run_with_digests(source, comm, **{**STILL, **options})


def both(source, p, **options):
    """The same run with the graph replicated and partitioned."""
    partitioned = {"graph": "partitioned", **options}
    replicated = {k: v for k, v in options.items() if k not in ("replication", "exchange", "partition", "cache_bytes")}
    return tuple(on_threads(p, lambda comm, asked=asked: trained(source, comm, **asked)) for asked in (replicated, partitioned))


def assert_same_run(source, p, least_steps=1, **options):
    whole, blocks = both(source, p, **options)
    assert [rank[2] for rank in blocks] == [rank[2] for rank in whole]
    (expected, report, _), (losses, found, _) = whole[0], blocks[0]
    assert len(losses) == len(expected) >= least_steps
    np.testing.assert_allclose(losses, expected, rtol=0, atol=1e-5)
    scores = [key for key in report if key.endswith(("_accuracy", "_rocauc"))]
    assert {key: found[key] for key in scores} == {key: report[key] for key in scores}
    return report, found


@pytest.mark.long
@pytest.mark.parametrize(
    ("p", "c", "exchange"),
    [
        (2, 1, "owner"),
        *(pytest.param(*grid, marks=pytest.mark.long) for grid in ((4, 1, "owner"), (4, 2, "rows"), (8, 2, "owner"))),
        *(pytest.param(*grid, marks=pytest.mark.long) for grid in ((8, 4, "rows-oblivious"), (4, 4, "owner"))),
    ],
)
def test_fifty_steps_are_those_of_a_replicated_graph(stored, p, c, exchange):
    epochs = 50 // -(-20 // p) + 1
    report, found = assert_same_run(stored / "plain", p, 50, replication=c, exchange=exchange, epochs=epochs, partition="random")
    assert found["graph"] == "partitioned"
    assert report["bytes_sent"]["topology"] == report["bytes_sent"]["features"] == 0
    assert (found["bytes_sent"]["features"] > 0) == (p > c)
    assert found["bytes_sent"]["gradients"] == report["bytes_sent"]["gradients"]


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("sparse", {"feature_norm": "l1", "sampler": "labor", "partition": "metis"}),
        ("weighted", {"sampler": "ladies", "fanouts": (20, 20), "model": "gcn"}),
        *(
            pytest.param(*run, marks=pytest.mark.long)
            for run in (
                ("sparse", {"model": "gcn"}),
                ("half", {"feature_norm": "l2", "model": "gat"}),
                ("weighted", {"sampler": "fastgcn", "fanouts": (30, 30), "exchange": "rows"}),
                ("two", {"metric": "rocauc", "partition": "super"}),
                ("plain", {"sampler": "shadow", "batch_norm": True}),
                ("plain", {"sampler": "saint", "cache_bytes": 2000}),
                ("plain", {"label": "other", "seeds": "all", "frontier": "new"}),
                ("plain", {"bulk_size": 3, "replication": 1}),
            )
        ),
    ],
)
def test_every_kind_of_run(stored, name, options):
    assert_same_run(stored / name, 4, epochs=2, **{"replication": 2, **options})


def test_one_rank_alone(stored):
    assert_same_run(stored / "plain", 1, epochs=1)


@pytest.mark.long
def test_memory_of_the_graph_falls_as_replication_over_ranks(stored):
    held = {}
    for p, c in [(1, 1), (4, 1), (4, 2), (8, 1), (8, 4)]:
        nothing = {"graph": "partitioned", "replication": c, "epochs": 0}
        held[p, c] = on_threads(p, lambda comm, asked=nothing: trained(stored / "plain", comm, **asked))[0][1]["held_bytes"]
    graph = store.load(stored / "plain")
    assert held[1, 1]["adjacency"] == graph.adjacency.nbytes()
    assert held[1, 1]["features"] == graph.features.nbytes
    for (p, c), found in held.items():
        assert found["features"] <= -(-graph.n * c // p) * graph.num_features * 4
        bounds = partition.block_bounds(graph.n, p // c)
        assert found["adjacency"] == max(4 * np.diff(graph.adjacency.indptr[bounds]) + 8 * (np.diff(bounds) + 1))


@pytest.mark.long
def test_codecs_and_caches_send_less(stored):
    def bytes_of(**options):
        report = on_threads(4, lambda comm: trained(stored / "plain", comm, graph="partitioned", epochs=2, **options)[1])[0]
        return report["bytes_sent"]["features"], report["train_loss"]

    (plain, loss), (half, half_loss), (brief, _) = bytes_of(), bytes_of(feature_codec="fp16"), bytes_of(feature_codec="bf16")
    assert half == brief == plain // 2
    assert half_loss == pytest.approx(loss, abs=1e-3)
    assert half_loss != loss
    coded, near = bytes_of(feature_codec="int8")
    assert coded == plain * (community_graph().num_features + 4) // (4 * community_graph().num_features)
    assert near == pytest.approx(loss, abs=1e-2)
    assert near != loss
    for by in ("degree", "frequency"):
        cached, same = bytes_of(cache_bytes=100 * 4 * community_graph().num_features, cache_by=by)
        assert same == loss
        assert cached < 0.9 * plain


@pytest.mark.parametrize("together", [3, *(pytest.param(many, marks=pytest.mark.long) for many in (2, 100))])
@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("plain", {"dropout": 0.5, "bulk_size": 2}),
        ("sparse", {"input_dropout": 0.5}),
        ("half", {"feature_codec": "int8", "sampler": "shadow"}),
        ("plain", {"replication": 2, "cache_bytes": 1000}),
    ],
)
def test_rows_fetched_together_are_those_fetched_one_by_one(stored, name, options, together):
    def run(together):
        asked = {"graph": "partitioned", "epochs": 2, "fetch_together": together, **options}
        return on_threads(4, lambda comm: trained(stored / name, comm, **asked))

    alone, joined = run(1), run(together)
    for (losses, report, digests), (same, found, drawn) in zip(alone, joined, strict=True):
        assert (same, drawn) == (losses, digests)
        assert found["test_accuracy"] == report["test_accuracy"]
        assert found["bytes_sent"]["features"] < 0.9 * report["bytes_sent"]["features"]


@pytest.mark.parametrize(("c", "together"), [(1, 1), (1, 3), (2, 4)])
def test_bytes_of_rows_fetched_together_are_foreseen(stored, c, together):
    def rank(comm):
        options = {**STILL, "graph": "partitioned", "replication": c, "epochs": 1, "fetch_together": together, "seeds": "all"}
        trainer = make_trainer(TrainConfig.of(**options), stored / "plain", comm)
        asked = [np.empty(0, np.int32) if minibatch is None else minibatch.vertices for minibatch in trainer.context.batches.loader]
        trainer.context.batches.loader.epoch = 0
        return trainer.run()["bytes_sent"]["features"], asked

    sent, asked = zip(*on_threads(4, rank), strict=True)
    bounds, width = partition.block_bounds(300, 4 // c), community_graph().num_features
    steps = range(0, len(asked[0]), together)
    windows = [[np.concatenate(own[first : first + together]) for own in asked] for first in steps]
    foreseen = [rank["features"].bytes for window in windows for rank in predict_fetch(c, window, bounds, width)]
    assert set(sent) == {sum(foreseen)}


@pytest.mark.parametrize("model", ["sage", "gcn", "gat"])
@pytest.mark.parametrize(
    ("name", "hidden", "weighted"), [("plain", 4, False), ("plain", 20, False), ("sparse", 8, False), ("weighted", 8, True)]
)
def test_inference_in_block_rows_is_that_of_the_whole(stored, monkeypatch, model, name, hidden, weighted):
    graph = store.load(stored / name)
    net = Gnn(model, [graph.num_features, hidden, graph.num_classes], heads=2, seed=1).eval()
    expected = infer(net, WholeShare(graph, Features(graph), SerialComm(), weighted))
    monkeypatch.setattr(InferenceShare, "chunk_numbers", 300)

    def rank(comm):
        opened = open_block(stored / name, Placement("partitioned", 2, partition="random"), comm)
        grid, block = ProcessGrid(comm, 2), opened.block
        degrees, weights = mean_weights(block.adjacency.indptr, block.adjacency.values, block.weight_unit, weighted)
        features = RemoteFeatures(grid.column_comm, opened.layout, block.features)
        share = BlockShare(BlockRows(grid, opened.layout, block, weights), features.own_rows, features.is_sparse, degrees)
        before = comm.tally["features"]
        rows = infer(net, share)
        assert comm.tally["features"] == before  # hidden rows count as activations
        return block.vertices[share._own], rows

    vertices, rows = zip(*on_threads(6, rank), strict=True)
    assert sorted(np.concatenate(vertices)) == list(range(graph.n))
    torch.testing.assert_close(torch.cat(rows), expected[np.concatenate(vertices)], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sparse", {"feature_codec": "fp16"}, "features are sparse"),
        ("plain", {"graph": "replicated", "feature_codec": "fp16"}, "use graph partitioned"),
        ("plain", {"graph": "replicated", "fetch_together": 2}, "use graph partitioned"),
        ("plain", {"method": "full", "fetch_together": 2}, "'full' fetches features of one mini-batch at a time"),
        ("plain", {"graph": "replicated", "replication": 2}, "got c = 2 with the topology replicated"),
        ("plain", {"graph": "replicated", "exchange": "rows"}, "got rows with the topology replicated"),
        ("plain", {"replication": 3}, r"c = 3 with p = 4; use c in \{1, 2, 4\}"),
        ("plain", {"partition": "nowhere.npz"}, "block, random, metis, super, stream or a file"),
        ("plain", {"label": "none"}, "no label 'none'; use .*other"),
    ],
)
def test_what_has_no_meaning_is_refused_on_every_rank(stored, name, options, message):
    def rank(comm):
        with pytest.raises(UsageError, match=message):
            trained(stored / name, comm, **{"graph": "partitioned", **options})

    on_threads(4, rank)


def test_a_partition_from_a_file(stored, tmp_path):
    graph = store.load(stored / "plain")
    partition.metis(graph.adjacency, 2, 0).save(tmp_path / "two.npz")
    assert_same_run(stored / "plain", 4, epochs=1, replication=2, partition=str(tmp_path / "two.npz"))

    def rank(comm):
        with pytest.raises(DataError, match="has 2 parts of 300 vertices; use one with p / c = 4 parts of 300 vertices"):
            trained(stored / "plain", comm, graph="partitioned", partition=str(tmp_path / "two.npz"))

    on_threads(4, rank)


STOPPED = """
import os, signal, sys
from bulksample.training.step import Stepper
whole = Stepper.step
def step(self, supplied, epoch, number, stop):
    if self._context.comm.rank == 1 and (epoch, number) == (1, 2):
        os.kill(os.getpid(), signal.SIGUSR1)
    return whole(self, supplied, epoch, number, stop)
Stepper.step = step
sys.argv = {argv!r}
from bulksample.cli import main
main()
"""


def command(directory, out, *more):
    """The command line of a run on block rows."""
    flags = {"fanouts": "5,5", "hidden": 16, "batch-size": 8, "epochs": 3, "lr": 0.005, "threads": 1, "timeout": PATIENCE, "json": out}
    words = [word for key, value in flags.items() for word in (f"--{key}", value)]
    return ["-m", "bulksample", "train", *map(str, [directory, *words, "--quiet", *more])]


BLOCKS = ("--graph", "partitioned", "--replication", 2, "--partition", "metis")


@pytest.mark.long
def test_a_stopped_run_goes_on_in_the_middle_of_an_epoch(stored, tmp_path):
    argv = command(stored / "plain", tmp_path / "r.json", *BLOCKS, "--checkpoint", tmp_path / "c", "--resume", "auto")
    ended = run_ranks(4, STOPPED.format(argv=argv[1:]))
    assert ended.code == 75, ended
    for arguments in (argv, command(stored / "plain", tmp_path / "whole.json", *BLOCKS)):
        ended = run_ranks(4, arguments)
        assert ended.code == 0, ended
    resumed, whole = (json.loads((tmp_path / name).read_text()) for name in ("r.json", "whole.json"))
    assert resumed["resumed"]
    assert resumed["train_loss"] == whole["train_loss"]
    assert resumed["test_accuracy"] == whole["test_accuracy"]


@pytest.mark.long
def test_processes_train_partitioned_as_replicated(stored, tmp_path):
    reports = {}
    for name, more in {"whole": (), "blocks": BLOCKS}.items():
        ended = run_ranks(4, command(stored / "plain", tmp_path / name, "--dropout", 0, *more))
        assert ended.code == 0, ended
        reports[name] = json.loads((tmp_path / name).read_text())
    whole, blocks = reports["whole"], reports["blocks"]
    assert blocks["train_loss"] == pytest.approx(whole["train_loss"], abs=1e-5)
    assert blocks["test_accuracy"] == whole["test_accuracy"]
    assert blocks["held_bytes"]["features"] < 0.7 * whole["held_bytes"]["features"]

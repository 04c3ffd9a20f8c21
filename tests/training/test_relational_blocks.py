"""Heterogeneous training with features in block rows: the run of replicated features, and the bytes that were predicted."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from oracles.fetches import predict_cache, predict_fetches
from planted_relations import planted
from recorder import Recorder

from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.codec import codec_named
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.views.type_features import access_count, cache_shares

QUICK = {
    "model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 1, "batch_size": 12, "dropout": 0.0, "threads": 1, "lr": 0.01,
    "features": "partitioned",
}  # fmt: skip
GRIDS = [(2, 1), pytest.param(4, 1, marks=pytest.mark.long), pytest.param(4, 2, marks=pytest.mark.long)]


def trained(source, comm=None, **options):
    recorder = Recorder()
    made = make_trainer(TrainConfig.of(**{**QUICK, **options}), source, comm, [recorder])
    return SimpleNamespace(report=made.run(), losses=recorder.losses, trainer=made)


def minibatches(graph, comm, **options):
    made = make_trainer(TrainConfig.of(**{**QUICK, **options}), graph, comm)
    return [batch.minibatch for batch in made.context.batches]


@pytest.mark.parametrize("partition", ["block", "random"])
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_features_in_block_rows_change_no_minibatch_and_no_loss(p, c, partition):
    graph = planted(times=True)
    whole = on_threads(p, lambda comm: trained(graph, comm, features="replicated"))[0]
    divided = on_threads(p, lambda comm: trained(graph, comm, replication=c, partition=partition))
    assert divided[0].losses == pytest.approx(whole.losses, rel=1e-5)
    assert divided[0].report["val_accuracy"] == whole.report["val_accuracy"]
    most = max(run.trainer.context.view.memory["features"] for run in divided)
    assert most <= -(-120 // (p // c)) * 2 * 4 + -(-40 // (p // c)) * 3 * 4  # papers have 2 features, authors 3
    drawn = [on_threads(p, lambda comm, o=o: [m and m.digest() for m in minibatches(graph, comm, **o)]) for o in ({}, {"features": None})]
    assert drawn[0] == drawn[1]


@pytest.mark.parametrize("cache_bytes", [0, 300])
@pytest.mark.parametrize("codec", ["fp32", "int8"])
@pytest.mark.parametrize(("p", "c"), GRIDS)
def test_bytes_of_features_are_those_predicted(p, c, codec, cache_bytes):
    graph = planted()
    options = {
        "replication": c, "feature_codec": codec, "cache_bytes": cache_bytes, "epochs": 1, "evaluate": "none", "featureless": "constant",
        "bulk_size": 2,
    }  # fmt: skip
    run = on_threads(p, lambda comm: trained(graph, comm, **options))[0]
    drawn = on_threads(p, lambda comm: minibatches(graph, comm, **options))
    shares = cache_shares(graph, ["paper", "author"], codec, cache_bytes)
    expected = {"topology": 0, "features": 0}
    for kind in graph.types[:2]:
        bounds = np.arange(p // c + 1) * kind.count // (p // c)
        cached = predict_cache(kind.count, kind.num_features, codec, shares[kind.name], access_count(graph, kind.name))
        row_bytes = codec_named(codec).row_bytes(kind.num_features)
        expected["features"] += (p // c - 1) * c * len(cached) * row_bytes  # each cached row goes to all other ranks of its column
        asked = [[np.empty(0, np.int32) if one is None else one.vertices[kind.name] for one in own] for own in drawn]
        for first in range(0, len(asked[0]), 2):
            for sent in predict_fetches(c, [own[first : first + 2] for own in asked], bounds, kind.num_features, codec, cached):
                for name in expected:
                    expected[name] += sent[name].bytes
    assert {name: run.report["bytes_sent"][name] for name in expected} == expected
    assert expected["features"] > 0


def test_only_types_that_the_model_reads_are_fetched():
    """One hop reads papers and those from whom relations to papers begin: without "writes", no authors."""
    graph = planted()
    run = trained(graph, fanouts=(3,), epochs=0)
    assert run.trainer.context.view.features.needed == ("paper", "author", "venue")
    rest = replace(graph, relations=tuple(relation for relation in graph.relations if relation.name != "writes"))
    features = trained(rest, fanouts=(3,), epochs=0, features="replicated").trainer.context.view.features
    assert (features.needed, list(features.held)) == (("paper", "venue"), ["paper"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": None, "partition": "random"}, "partition random divides relations and features; use graph partitioned"),
        ({"features": None, "replication": 2}, "replication is for block rows"),
        ({"feature_storage": "fp16"}, "feature_storage is for features that a rank or its machine holds whole"),
        ({"features": None, "feature_codec": "int8"}, "feature_codec, cache_bytes and fetch_together are for features that other ranks"),
        ({"cache_bytes": 10, "cache_by": "inclusion"}, "cache_by inclusion multiplies with one adjacency; .*: use degree or frequency"),
    ],
)
def test_what_does_not_work_is_refused_by_name(options, message):
    with pytest.raises(UsageError, match=message):
        trained(planted(), **options)

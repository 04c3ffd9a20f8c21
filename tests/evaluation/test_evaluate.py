"""Exact inference equals the model on mini-batches with all neighbors, on any number of ranks and with any chunk size."""

import numpy as np
import pytest
import torch
from communities import community_graph

from bulksample import LocalAdjacency, Selection, Stream, backends, samplers
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.evaluation.evaluate import evaluate
from bulksample.evaluation.inference import infer
from bulksample.nn.model import Gnn
from bulksample.views.features import Features
from bulksample.views.inference_share import InferenceShare, even_work
from bulksample.views.plain_view import WholeShare


def model_for(graph, name="sage", layers=2, hidden=4, **options):
    torch.manual_seed(0)
    model = Gnn(name, [graph.num_features, *[hidden] * (layers - 1), graph.num_classes], heads=2, **options)
    for buffer in model.buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 2)
    return model


def share_of(graph, comm=None, weighted=False):
    return WholeShare(graph, Features(graph), comm or SerialComm(), weighted)


def by_minibatch(model, graph, sampler="full", **options):
    """Compute the logits of all vertices from one mini-batch with every neighbor."""
    adjacency = LocalAdjacency(graph.adjacency, backends.make())
    drawn = samplers.make(sampler, (-1,) * len(model.layers), **options)
    minibatch = drawn.sample_bulk(adjacency, Selection.of([np.arange(graph.n)], graph.n), Stream(0))[0]
    degrees = share_of(graph, weighted=sampler == "ladies").all_degrees[torch.from_numpy(minibatch.vertices.astype(np.int64))]
    with torch.no_grad():
        return model.eval()(minibatch.blocks, Features(graph).fetch(minibatch.vertices), degrees)


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
@pytest.mark.parametrize(("layers", "hidden"), [(1, 4), (2, 4), (2, 20), (3, 8)])
@pytest.mark.parametrize("sparse", [False, True])
def test_inference_equals_the_model_with_all_neighbors(name, layers, hidden, sparse):
    graph = community_graph(sparse=sparse)
    model = model_for(graph, name, layers, hidden, dropout=0.5, input_dropout=0.5, batch_norm=True)
    expected = by_minibatch(model, graph)
    model.train()
    got = infer(model, share_of(graph))
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert model.training


@pytest.mark.parametrize("name", ["sage", "gcn", "gat"])
def test_weighted_means_equal_those_of_layer_wise_samplers(name):
    graph = community_graph(weighted=True)
    model = model_for(graph, name)
    expected = by_minibatch(model, graph, "ladies")
    got = infer(model, share_of(graph, weighted=True))
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-4)
    plain = infer(model, share_of(graph))
    assert (plain - got).abs().max() > 1e-3


@pytest.mark.parametrize("p", [1, 2, 3, 5])
@pytest.mark.parametrize("name", ["sage", "gat"])
@pytest.mark.parametrize("hidden", [4, 20])  # aggregates raw features, or transformed ones
def test_ranks_and_chunks_do_not_change_the_logits(p, name, hidden, monkeypatch):
    graph = community_graph(n=80)
    model = model_for(graph, name, hidden=hidden)
    expected = infer(model, share_of(graph))
    monkeypatch.setattr(InferenceShare, "chunk_numbers", 64)

    def body(comm):
        share = share_of(graph, comm)
        rows = infer(model, share)
        assert len(rows) == share.rows
        return rows, comm.tally["activations"].bytes

    model.eval()
    parts, sent = zip(*on_threads(p, body), strict=True)
    torch.testing.assert_close(torch.cat(parts), expected, rtol=1e-4, atol=1e-5)
    assert sum(sent) % (4 * (p - 1) * graph.n) == 0 if p > 1 else not any(sent)


def test_shares_have_even_work_and_cover_all_rows():
    graph = community_graph(n=500)
    bounds = even_work(graph.adjacency.indptr, 4)
    assert bounds[0] == 0
    assert bounds[-1] == graph.n
    work = np.diff(graph.adjacency.indptr[bounds] + bounds)
    assert work.max() - work.min() <= 2 * graph.adjacency.degrees.max() + 2


@pytest.mark.parametrize("n", [1, 3])
def test_fewer_vertices_than_ranks(n):
    graph = community_graph(n=300)
    few = type(graph.adjacency)(np.zeros(n + 1, np.int64), np.empty(0, np.int32), None, (n, n))
    small = type(graph)(few, features=graph.features[:n], labels=np.zeros(n, np.int64), num_classes=3)
    model = model_for(small).eval()
    parts = on_threads(5, lambda comm: infer(model, share_of(small, comm)))
    torch.testing.assert_close(torch.cat(parts), infer(model, share_of(small)), rtol=1e-4, atol=1e-5)


def test_scores_cover_every_split_and_agree_on_all_ranks():
    graph = community_graph(classes=2)
    model = model_for(graph).eval()
    alone = evaluate(model, graph.name, share_of(graph), SerialComm(), "rocauc")
    assert set(alone) == {f"{split}_{metric}" for split in ("train", "val", "test") for metric in ("accuracy", "rocauc")}
    spread = on_threads(3, lambda comm: evaluate(model, graph.name, share_of(graph, comm), comm, "rocauc"))
    assert all(scores == pytest.approx(alone) for scores in spread)
    logits = infer(model, share_of(graph)).numpy()
    test = graph.masks["test"]
    assert alone["test_accuracy"] == pytest.approx(np.mean(logits[test].argmax(1) == graph.labels[test]))

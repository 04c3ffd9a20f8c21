"""The first layer on a device: own rows and means computed where features lie have the bits of gathered rows."""

import numpy as np
import pytest
import torch
from communities import community_graph
from emulation.card import emulated_card, emulated_place, reaching_place
from emulation.host import compiler
from oracles import dense_block
from test_device_training import losses

from bulksample import Block, Graph, UsageError
from bulksample.data import store
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph.minibatch import InputHop
from bulksample.nn.aggregate import own_and_mean
from bulksample.nn.gather import OwnAndMean
from bulksample.training.cuda.device_features import DeviceFeatures
from bulksample.training.cuda.device_rows import block_on_device
from bulksample.views.features import Features

pytestmark = pytest.mark.skipif(compiler() is None, reason="there is no g++")
ENOUGH, ROOM = 1 << 30, 1 << 14  # bytes of a device: for all features of the graph below, and not

REFUSED = "needs gathered rows: the features lie .*beyond the memory of the device.*; got input_layer fused"


def run(graph, way, place=None, comm=None, **options):
    """The losses, and the way that the report tells."""
    got, report = losses(graph, comm, place or emulated_place(), input_layer=way, **options)
    return got, report["input_layer"]


@pytest.mark.parametrize(("kind", "options"), [
    ("plain", {}), ("plain", {"feature_storage": "fp16"}), ("plain", {"feature_storage": "bf16"}), ("half", {}),
    ("plain", {"feature_norm": "l2"}), ("plain", {"feature_norm": "l2", "feature_storage": "bf16"}), ("plain", {"frontier": "new"}),
    ("plain", {"backend": "native", "layer_norm": True}), ("plain", {"precision": "bf16"}),
    ("weighted", {"sampler_options": {"weighted": True}}), ("weighted", {"sampler": "labor", "frontier": "new"}),
    ("plain", {"model": "gcn"}), ("plain", {"model": "gcn", "frontier": "new", "feature_storage": "fp16", "backend": "native"}),
    ("links", {"task": "links", "batch_size": 200}), ("links", {"task": "links", "decoder": "mlp", "batch_size": 200, "frontier": "new"}),
], ids=str)  # fmt: skip
def test_losses_of_both_ways_are_equal_to_the_bit(tmp_path, kind, options):
    graph = community_graph(150, **({kind: True} if kind in ("half", "weighted") else {}))
    if kind == "links":
        graph = hold_out(community_graph(150, degree=12), "to", 0.1, 0.1, 20, seed=0)
        graph.save(tmp_path / "g")
        graph = tmp_path / "g"
    ways = {way: run(graph, way, emulated_place(options.get("precision", "fp32")), **options) for way in ("gathered", "fused")}
    assert len(ways["fused"][0]) >= 6
    assert ways["fused"][0] == ways["gathered"][0]
    assert [told for _, told in ways.values()] == ["gathered", "fused"]


def test_auto_takes_the_way_that_reads_less():
    """Few sources of many edges are gathered, and many sources are read in place."""
    graph = community_graph(60, degree=20)
    many, few = (run(graph, "auto", hidden=8, batch_size=8, **options)[1] for options in ({"fanouts": (2, 2)}, {"fanouts": (15, 15)}))
    assert (many, few) == ("fused", "gathered")


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("storage", ["given", "fp16", "bf16"])
@pytest.mark.parametrize("there", [False, True])
def test_own_rows_and_means_come_from_blocks_on_the_host_and_on_the_device(weighted, storage, there):
    """The oracle is the dense product, in float64, of scaled rows."""
    rng, graph, card = np.random.default_rng(3), community_graph(60), emulated_card()
    features = DeviceFeatures(card, Features(graph, "l2", storage), np.zeros(60), ENOUGH)
    vertices = rng.permutation(60)[:40].astype(np.int32)
    counts = rng.integers(0, 6, 20) * (rng.random(20) > 0.3)
    indptr = np.concatenate([[0], np.cumsum(counts)])
    assert 0 in counts
    weights = rng.random(indptr[-1]).astype(np.float32) if weighted else None
    block = Block(indptr, rng.integers(0, 40, indptr[-1]).astype(np.int32), weights, 40)
    hop = InputHop(indptr, vertices[block.indices], weights)
    given = [torch.from_numpy(part) if there and part is not None else part for part in (vertices[:20], *hop)]
    got = features.start_own_and_mean(given[0], InputHop(*given[1:]))()
    x = graph.features.astype(np.float64) / np.linalg.norm(graph.features.astype(np.float64), axis=1)[:, None]
    near = {"given": 1e-6, "fp16": 1e-3, "bf16": 1e-2}[storage]
    for part, expected in zip(got, (x[vertices[:20]], dense_block(block) @ x[vertices]), strict=True):
        assert (part.dtype, part.shape) == (torch.float32, (20, 8))
        np.testing.assert_allclose(part.numpy(), expected, rtol=near, atol=near)
    gathered = own_and_mean(block_on_device(card, block), features.fetch(vertices))
    assert isinstance(got, OwnAndMean)
    assert all(torch.equal(one, other) for one, other in zip(got, gathered, strict=True))


def test_features_beyond_the_memory_of_the_device_are_gathered():
    graph = community_graph(150, width=64)
    got, told = run(graph, "auto", emulated_place(free_bytes=ROOM), hidden=64)
    assert told == "gathered"
    assert run(graph, "auto", hidden=64) == (got, "fused")


def test_each_rank_goes_the_way_of_its_own_device():
    graph = community_graph(150, width=64)

    def ranks(way, *rooms):
        return on_threads(2, lambda comm: run(graph, way, emulated_place(free_bytes=rooms[comm.rank]), comm, hidden=64))

    mixed, gathered = ranks("auto", ENOUGH, ROOM), ranks("gathered", ENOUGH, ENOUGH)
    assert [told for _, told in mixed] == ["fused", "gathered"]
    assert [got for got, _ in mixed] == [got for got, _ in gathered]


def test_ranks_that_sample_together_go_one_way(tmp_path):
    """All of them draw the first mini-batch, which decides; so none goes on while another gathers for want of room."""
    store.save(community_graph(150, width=64), tmp_path / "g")
    options = {"hidden": 64, "topology": "partitioned", "features": "replicated"}

    def ranks(*rooms):
        return on_threads(2, lambda comm: run(tmp_path / "g", "auto", reaching_place(free_bytes=rooms[comm.rank]), comm, **options))

    mixed, alike = ranks(ENOUGH, ROOM), ranks(ENOUGH, ENOUGH)
    assert [told for _, told in mixed] == ["gathered", "gathered"]
    assert [told for _, told in alike] == ["fused", "fused"]
    assert [got for got, _ in mixed] == [got for got, _ in alike]


def test_all_ranks_refuse_to_read_in_place_what_one_device_does_not_hold():
    graph = community_graph(150, width=64)

    def rank(comm):
        with pytest.raises(UsageError, match=REFUSED) as refused:
            run(graph, "fused", emulated_place(free_bytes=(ENOUGH, ROOM)[comm.rank]), comm)
        return str(refused.value)

    assert ["rank 1" in words for words in on_threads(2, rank)] == [True, True]
    with pytest.raises(UsageError, match=REFUSED):
        run(graph, "fused", emulated_place(free_bytes=ROOM))


def test_features_of_other_ranks_and_sparse_ones_are_gathered(stored):
    def rank(comm):
        return run(stored / "plain", "auto", None, comm, features="partitioned")[1]

    assert on_threads(2, rank) == ["gathered"] * 2
    assert run(community_graph(150, sparse=True), "auto")[1] == "gathered"


def test_a_graph_whose_features_have_no_columns_trains_both_ways():
    graph = community_graph(150)
    graph = Graph(graph.adjacency, features=np.empty((150, 0), np.float32), labels=graph.labels, num_classes=3, masks=graph.masks)
    assert run(graph, "fused")[0] == run(graph, "gathered")[0]

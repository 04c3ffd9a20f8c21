"""The first layer reads features where they lie, or rows that were gathered first: the same bits, and who takes which way."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from recorder import Recorder
from training_runs import weights_of

from bulksample import UsageError
from bulksample.data import store
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph.late import LateMiniBatch
from bulksample.layer_costs import narrows, reads_in_place
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer, options_beside
from bulksample.nn.aggregate import own_and_mean
from bulksample.nn.gather import OwnAndMean
from bulksample.nn.model import Gnn
from bulksample.training import input_layer
from bulksample.views import features

RUN = {"fanouts": (4, 3), "hidden": 16, "batch_size": 20, "epochs": 2, "lr": 0.02, "threads": 1, "dropout": 0.5, "eval_every": 0}


def trained(source, comm=None, **options):
    recorder = Recorder()
    trainer = make_trainer(TrainConfig.of(**{**RUN, **options}), source, comm, [recorder])
    report = trainer.run()
    return recorder.losses, weights_of(trainer), report


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("input")
    store.save(community_graph(n=200), place / "plain")
    return place / "plain"


@pytest.mark.parametrize(
    "options",
    [
        {}, {"frontier": "new"}, {"sampler": "labor"}, {"sampler": "full", "fanouts": (-1, -1)}, {"fanouts": (3, 2, 2)},
        {"feature_norm": "l2"}, {"feature_storage": "fp16"}, {"feature_storage": "bf16", "feature_norm": "l1"}, {"layer_norm": True},
        {"sampler_options": {"replace": True}}, {"method": "random-tma"}, {"method": "grappa", "swap_every": 1}, {"precision": "bf16"},
        {"model": "gcn"}, {"model": "gcn", "frontier": "new", "feature_storage": "fp16"}, {"method": "psgd-pa", "frontier": "new"},
        {"bulk_size": 1}, {"bulk_size": 3, "sampling_threads": 0}, {"topology": "replicated"},
    ],
)  # fmt: skip
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_both_ways_give_the_same_bits(folder, options, backend):
    gathered, fused = (trained(folder, input_layer=way, backend=backend, **options) for way in ("gathered", "fused"))
    assert (gathered[2]["input_layer"], fused[2]["input_layer"]) == ("gathered", "fused")
    assert fused[0] == gathered[0]
    torch.testing.assert_close(fused[1], gathered[1], rtol=0, atol=0)


@pytest.mark.parametrize(
    "placement", [{"features": "host"}, {"features": "machine"}, {"topology": "partitioned", "features": "replicated"}]
)
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_read_what_their_machine_or_they_hold(folder, placement, ranks):
    losses = []
    for way in ("gathered", "fused"):
        asked = {**placement, "input_layer": way}
        runs = on_threads(ranks, lambda comm, asked=asked: trained(folder, comm, **asked))
        assert {run[2]["input_layer"] for run in runs} == {way}
        losses.append(runs[0][0])
    assert losses[0] == losses[1]


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_auto_has_the_bits_of_gathered_rows_where_w_may_come_first(folder, monkeypatch, ranks):
    """Some mini-batches of one vertex or two are multiplied by W first: those are gathered, whatever the first one is like."""
    monkeypatch.setattr(input_layer, "_pays", lambda *_: True)
    asked = {"fanouts": (1, 1), "hidden": 5, "batch_size": 2, "virtual_ranks": 4, "epochs": 2}
    gathered = trained(folder, input_layer="gathered", **asked)
    auto = on_threads(ranks, lambda comm: trained(folder, comm, **asked))[0]
    assert auto[2]["input_layer"] == "fused"
    assert auto[0] == gathered[0]
    assert trained(folder, input_layer="fused", **asked)[0] == pytest.approx(gathered[0], rel=1e-4)


def test_a_layer_that_narrows_agrees_within_rounding(folder):
    gathered, fused, auto = (trained(folder, fanouts=(3,), input_layer=way) for way in ("gathered", "fused", "auto"))
    assert fused[0] == pytest.approx(gathered[0], rel=1e-5)
    assert auto[0] == gathered[0]


def test_weights_and_links_have_the_same_bits():
    weighted = community_graph(n=200, weighted=True)
    links = hold_out(community_graph(n=200), "to", 0.1, 0.1, 5, seed=0)
    for source, options in ((weighted, {"sampler_options": {"weighted": True}}), (links, {"task": "links", "exclude_targets": "self"})):
        gathered, fused = (trained(source, input_layer=way, **options) for way in ("gathered", "fused"))
        assert fused[2]["input_layer"] == "fused"
        assert fused[0] == gathered[0]


@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_that_share_virtual_ranks_agree_to_the_bit(folder, ranks):
    alone = trained(folder, virtual_ranks=4, input_layer="fused")
    assert on_threads(ranks, lambda comm: trained(folder, comm, virtual_ranks=4, input_layer="fused"))[0][0] == alone[0]


def test_a_run_goes_on_in_the_other_way(folder, tmp_path):
    whole = trained(folder, epochs=3)
    trained(folder, epochs=1, input_layer="gathered", checkpoint=tmp_path / "kept")
    assert trained(folder, epochs=3, input_layer="fused", checkpoint=tmp_path / "kept", resume="auto")[0][-1] == whole[0][-1]


def test_the_way_that_was_asked_for_is_taken(folder, monkeypatch):
    """A fused step gathers no rows of sources and numbers no vertex of the last hop; a gathered one does both."""
    seen, whole = {"rows": 0, "destinations": 0}, Gnn.forward

    def forward(self, blocks, x, *rest):
        if isinstance(x, OwnAndMean):
            seen["destinations"] += len(x.own)
            assert len(blocks) == len(self.layers) - 1
        return whole(self, blocks, x, *rest)

    def gather(x, vertices, *rest):
        seen["rows"] += len(vertices)
        return np.array(x[vertices], np.float32)

    monkeypatch.setattr(Gnn, "forward", forward)
    monkeypatch.setattr(features, "gather_rows", gather)
    trained(folder, evaluate="none", input_layer="gathered")
    assert seen["rows"]
    assert not seen["destinations"]
    seen["rows"] = 0
    monkeypatch.setattr(LateMiniBatch, "numbered", property(lambda self: pytest.fail("a fused step numbered the last hop")))
    trained(folder, evaluate="none", input_layer="fused")
    assert seen["destinations"]
    assert not seen["rows"]


def test_auto_takes_what_reads_fewer_bytes(folder):
    """Many neighbors of few vertices: 200 vertices, of which each is read again and again."""
    assert trained(folder)[2]["input_layer"] == "fused"
    assert trained(community_graph(n=200, degree=60), fanouts=(15, 40))[2]["input_layer"] == "gathered"


def test_the_rule_counts_rows():
    """S sources, D destinations, E edges: D + E reads in place against four for each source; and no product before the means."""
    assert reads_in_place(100, 256, sources=100, destinations=100, edges=300)
    assert not reads_in_place(100, 256, sources=100, destinations=100, edges=301)
    assert not narrows(100, 100, 1000, 1000, 5000)
    assert narrows(1000, 10, 1000, 1000, 1)
    assert not reads_in_place(1000, 10, 1000, 1000, 1)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"model": "gat"}, "model gat sends transformed rows"), ({"model": "sage-pool"}, "model sage-pool"),
        ({"input_dropout": 0.1}, "input_dropout 0.1 changes them"),
        ({"model": "gcn", "feature_norm": "l2"}, "rows of gcn with feature_norm l2 have two factors"),
        ({"sampler": "ladies"}, "sampler ladies"),
        ({"sampler": "saint"}, "sampler saint"), ({"sampler": "shadow"}, "sampler shadow"),
    ],
)  # fmt: skip
def test_what_needs_gathered_rows_gets_them_or_an_error(folder, options, why):
    assert trained(folder, **options)[2]["input_layer"] == "gathered"
    with pytest.raises(UsageError, match=f"needs gathered rows: {why}.*got input_layer fused: use auto or gathered"):
        trained(folder, input_layer="fused", **options)


def test_sparse_features_and_those_of_other_ranks_are_fetched(folder):
    for source, ranks, options, why in (
        (community_graph(n=200, sparse=True), 1, {}, "the features are sparse"),
        (folder, 2, {"features": "partitioned"}, "the features lie on other ranks"),
    ):
        asked = {"input_layer": "fused", **options}
        with pytest.raises(UsageError, match=f"{why}.*use auto or gathered"):
            on_threads(ranks, lambda comm, source=source, asked=asked: trained(source, comm, **asked))
        assert on_threads(ranks, lambda comm, s=source, o=options: trained(s, comm, **o))[0][2]["input_layer"] == "gathered"


def test_ranks_without_a_first_minibatch_do_not_sample_alone(folder):
    """Sampling of a partitioned graph is collective; here one rank has the only mini-batch of an epoch."""
    asked = {"topology": "partitioned", "features": "replicated", "batch_size": 1000, "epochs": 1, "timeout": 5}
    for bulk_size in ("auto", 1):
        runs = []
        for way in ("auto", "gathered"):
            options = {**asked, "input_layer": way, "bulk_size": bulk_size}
            runs.append(on_threads(2, lambda comm, options=options: trained(folder, comm, **options))[0])
        assert runs[0][0] == runs[1][0]


class Masked(Gnn):
    """Trains without the first feature."""

    def drop_input(self, x, names):
        mask = torch.ones(x.shape[1])
        mask[0] = 0
        return super().drop_input(x, names) * mask


def test_a_subclass_of_ours_gets_the_rows_that_it_may_change():
    graph, runs = community_graph(n=200), []
    for way in ("auto", "gathered"):
        recorder, model = Recorder(), Masked("sage", [graph.num_features, 16, graph.num_classes])
        options = {name: value for name, value in RUN.items() if name not in ("hidden", "dropout")}
        config = TrainConfig.of(**options_beside(model, {**options, "input_layer": way}))
        trainer = make_trainer(config, graph, None, [recorder], module=model)
        assert trainer.run()["input_layer"] == "gathered"
        runs.append(recorder.losses)
    assert runs[0] == runs[1]


def test_features_that_lie_column_after_column_are_gathered():
    """A sparse product of them would copy the whole matrix in every step."""
    graph = community_graph(n=200)
    (kind,) = graph.types
    turned = graph.replace(types=(replace(kind, features=np.asfortranarray(graph.features)),))
    assert not turned.features.flags.c_contiguous
    assert trained(turned)[2]["input_layer"] == "gathered"
    assert trained(turned, feature_storage="fp16")[2]["input_layer"] == "fused"  # converted row after row
    with pytest.raises(UsageError, match="or not row after row"):
        trained(turned, input_layer="fused")


def test_methods_without_minibatches_refuse_the_option(folder):
    with pytest.raises(UsageError, match="input_layer is for mini-batches: all methods but full"):
        trained(folder, method="full", input_layer="fused")


def test_a_model_takes_parts_in_place_of_its_first_block():
    graph = community_graph(n=50)
    trainer = make_trainer(TrainConfig.of(**RUN, layers=2), graph, None, [])
    (batch, *_) = trainer.context.batches
    minibatch, model = batch.minibatch, trainer.context.model.eval()
    x = torch.from_numpy(np.array(graph.features, np.float32))[torch.from_numpy(minibatch.vertices).long()]
    parts, degrees = own_and_mean(minibatch.blocks[0], x), torch.zeros(minibatch.num_vertices)
    torch.testing.assert_close(model(minibatch.blocks[1:], parts, degrees), model(minibatch.blocks, x, degrees), rtol=0, atol=0)
    with pytest.raises(UsageError, match="a model of 2 layers needs as many blocks"):
        model(minibatch.blocks, parts, degrees)


@pytest.mark.parametrize("name", ["gat", "sage-pool"])
def test_a_layer_that_needs_its_sources_refuses_parts(name):
    model = Gnn(name, [5, 4]).eval()
    with pytest.raises(UsageError, match="Layer needs the rows of its sources; got own rows and means: use input_layer gathered"):
        model([], OwnAndMean(torch.ones(2, 5), torch.ones(2, 5)), torch.zeros(2))

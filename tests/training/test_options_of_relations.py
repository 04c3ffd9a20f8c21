"""Options of training on relations: what decides where bytes lie changes no loss, and what weighs edges takes exact means by weight."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from communities import community_graph
from planted_relations import all_sage_logits, planted
from recorder import Recorder

import bulksample as bs
from bulksample import Stream, UsageError, backends, samplers
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.evaluation.by_batches import BatchScoring, logits_by_batches
from bulksample.evaluation.by_layers import logits_by_layers
from bulksample.graph import Graph
from bulksample.graph.seed_list import SeedList
from bulksample.graph.types import relation_from_edges
from bulksample.local_adjacency import LocalAdjacency
from bulksample.methods.config import TrainConfig
from bulksample.methods.predict import predict
from bulksample.methods.run import make_trainer
from bulksample.samplers.full import Full

QUICK = {
    "model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 1, "batch_size": 12, "dropout": 0.0, "threads": 1, "lr": 0.01,
    "featureless": "constant",
}  # fmt: skip
CUT = {"graph": "partitioned"}


def trained(graph, /, ranks=2, **options):
    def on_rank(comm):
        recorder = Recorder()
        made = make_trainer(TrainConfig.of(**{**QUICK, **options}), graph, comm, [recorder])
        return SimpleNamespace(report=made.run(), losses=recorder.losses, view=made.context.view, model=made.model)

    return on_threads(ranks, on_rank)[0]


def weighted(seed=0):
    """Papers that cite each other, with parallel edges, and venues without weights; one paper has edges of weight 0 alone."""
    graph, rng = planted(seed=seed), np.random.default_rng(seed)
    relations = []
    for relation in graph.relations:
        matrix, ends = relation.adjacency, (graph.type(relation.source), relation.name, graph.type(relation.destination))
        weights = rng.integers(0, 4, matrix.nnz) * (matrix.row_of_entry() != 5) * 0.5 if relation.name == "cites" else None
        relations.append(relation_from_edges(*ends, matrix.indices, matrix.row_of_entry(), weights=weights))
    return graph.replace(relations=tuple(relations))


@pytest.mark.parametrize("times", [False, pytest.param(True, marks=pytest.mark.long)])
@pytest.mark.parametrize(
    "options",
    [
        {**CUT, "partition": "stream"}, {**CUT, "partition": "metis"}, {"features": "partitioned", "partition": "super"},
        {**CUT, "fetch_together": 2}, {"features": "partitioned", "fetch_together": 3}, {"features": "host"}, {"features": "machine"},
        {**CUT, "cache_bytes": 300, "cache_by": "frequency"}, {"features": "machine", "feature_norm": "l2"},
    ],
)  # fmt: skip
def test_where_rows_lie_changes_no_loss(options, times):
    graph = planted(times=times)
    norm = {"feature_norm": options["feature_norm"]} if "feature_norm" in options else {}
    here, there = trained(graph, **norm), trained(graph, **options)
    assert there.losses == pytest.approx(here.losses, rel=1e-5)
    assert there.report["val_accuracy"] == here.report["val_accuracy"]


def test_fetches_together_send_a_row_once_and_caches_those_drawn_often():
    graph = planted()
    sent = {}
    for name, options in {
        "alone": {}, "together": {"fetch_together": 4}, "by degree": {"cache_bytes": 400},
        "by frequency": {"cache_bytes": 400, "cache_by": "frequency"},
    }.items():  # fmt: skip
        sent[name] = trained(graph, features="partitioned", epochs=4, evaluate="none", **options).report["bytes_sent"]["features"]
    assert sent["together"] < sent["alone"]
    assert sent["by frequency"] < sent["alone"]
    assert sent["by degree"] < sent["alone"]


def test_seed_locality_draws_from_the_rows_of_a_rank():
    """Whole graphs and block rows give the same groups; in these, mini-batches hold vertices of one part alone."""
    graph = planted()
    runs = [trained(graph, seed_locality=2, **place) for place in ({}, CUT, {"features": "partitioned"})]
    assert runs[1].losses == pytest.approx(runs[0].losses, rel=1e-5)
    assert runs[2].losses == pytest.approx(runs[0].losses, rel=1e-5)
    layout = runs[1].view.adjacency.blocks.of["paper"]

    def parts(comm):
        made = make_trainer(TrainConfig.of(**{**QUICK, **CUT, "seed_locality": 2, "partition": "metis"}), graph, comm)
        layout = made.context.view.adjacency.blocks.of["paper"]
        return [np.unique(layout.blocks_of(batch.minibatch.seeds)) for batch in made.context.batches if batch.minibatch is not None]

    assert layout.blocks == 2
    drawn = [own for of_rank in on_threads(2, parts) for own in of_rank]
    assert sum(len(own) == 1 for own in drawn) >= len(drawn) - 2  # groups are even, parts are not: one mini-batch may meet two


def test_bf16_rounds_the_products():
    graph = planted()
    one, other = trained(graph, ranks=1), trained(graph, ranks=1, precision="bf16")
    assert other.losses == pytest.approx(one.losses, rel=0.05)
    assert other.losses != one.losses


def test_learned_rows_in_block_rows_are_fetched_alone():
    with pytest.raises(UsageError, match=r"types venue have no features.*got fetch_together 2: use 1, featureless constant"):
        trained(planted(), featureless="embedding", fetch_together=2, **CUT)


@pytest.mark.parametrize("options", [{}, {"eval_memory": 1}])
@pytest.mark.parametrize("how", [{"sampler_options": {"weighted": True}}, {"sampler": "ladies", "fanouts": (60, 40)}])
def test_exact_scores_take_means_by_weight(how, options, tmp_path):
    graph = weighted()
    run = trained(graph, ranks=1, checkpoint=str(tmp_path), **how, **options)
    expected = all_sage_logits(graph, run.model)
    vertices, view = np.arange(graph.type("paper").count, dtype=np.int32), run.view
    run.model.eval()
    torch.testing.assert_close(logits_by_layers(run.model, view, SerialComm(), vertices)[1], expected, rtol=1e-4, atol=1e-5)
    scoring = BatchScoring(Full((-1, -1)), 7)
    found = torch.cat([rows for _, rows in logits_by_batches(run.model, view, SerialComm(), vertices, scoring)])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(predict(graph, tmp_path).logits, expected, rtol=1e-4, atol=1e-5)
    even = graph.replace(relations=tuple(replace(r, adjacency=r.adjacency.with_values(None)) for r in graph.relations))
    assert not torch.allclose(all_sage_logits(even, run.model), expected, atol=1e-3)


def test_weights_in_block_rows_are_refused_for_exact_scores():
    with pytest.raises(UsageError, match=r"relation paper:cites:paper has weights; got graph partitioned with sampler labor"):
        trained(weighted(), sampler="labor", **CUT)


def test_attention_without_any_weight_is_no_attention():
    """Paper 5 has edges of weight 0 alone from papers: what they say of it counts for nothing, and nothing is NaN."""
    graph = weighted()
    cites = graph.relation("cites")
    bare = replace(cites, adjacency=cites.adjacency.keep(cites.adjacency.row_of_entry() != 5), edge_ids=None)
    without = graph.replace(relations=tuple(bare if one is cites else one for one in graph.relations))
    run, other = (trained(one, ranks=1, model="hetero-gat", heads=2, sampler_options={"weighted": True}) for one in (graph, without))
    run.model.eval()
    rows = [logits_by_layers(run.model, one.view, SerialComm(), np.array([5], np.int32))[1] for one in (run, other)]
    assert torch.isfinite(rows[0]).all()
    torch.testing.assert_close(rows[0], rows[1])


@pytest.mark.parametrize("name", ["ladies", "fastgcn"])
def test_weights_of_layers_estimate_the_mean_of_each_relation(name):
    """With all vertices they are the means; with some, their expectation over many mini-batches is (without renormalising)."""
    graph, draws = weighted(), 4000
    adjacency = LocalAdjacency(graph, backends.make("native"), by_type=True)
    listed = SeedList.of(graph, {"paper": np.arange(40)})

    def means(count, fanout, **options):
        base = samplers.make(name, (fanout,), **options)
        seeds = listed.select([np.arange(40)] * count, np.arange(count))
        total = {r.key: np.zeros((40, r.adjacency.shape[1])) for r in graph.relations if r.destination == "paper"}
        for one in replace(base, means=True).sample_bulk(adjacency, seeds, Stream(3), 0):
            for key, dense in total.items():
                block, sources = one.blocks[0][key], one.rows[key[0]].vertices
                rows = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))[: len(block.indices)]
                np.add.at(dense, (one.rows["paper"].vertices[rows], sources[block.indices]), block.weights)
        return {key: dense / count for key, dense in total.items()}

    exact = {}
    for key in means(1, 1):
        matrix = graph.relation(key).adjacency
        dense = np.zeros(matrix.shape)
        np.add.at(dense, (matrix.row_of_entry(), matrix.indices), matrix.entries())
        exact[key] = (dense / np.where(dense.any(1, keepdims=True), dense.sum(1, keepdims=True), 1))[:40]
    for renormalise in (True, False):
        for key, found in means(1, -1, renormalise=renormalise).items():
            np.testing.assert_allclose(found, exact[key], atol=1e-6)
    for key, found in means(draws, 60, renormalise=False).items():
        assert np.abs(found - exact[key]).mean() < 0.12 * exact[key][exact[key] > 0].mean()
    for found in means(1, 60, renormalise=True).values():
        assert set(np.round(found.sum(1), 5)) <= {0.0, 1.0}


def test_layer_wise_draws_know_no_times_and_no_block_rows():
    with pytest.raises(UsageError, match="sampler ladies draws from all relations at once, whatever their times"):
        trained(planted(times=True), ranks=1, sampler="ladies")
    with pytest.raises(UsageError, match="read whole relations; got a topology in block rows"):
        trained(planted(), sampler="fastgcn", **CUT)


def test_a_model_of_relations_trains_on_a_plain_graph_and_its_store(tmp_path):
    """The type of a plain graph is called node, and its relation to; a graph of these names with parallel edges trains alike."""
    graph = community_graph(n=120)
    same = Graph.of(graph.types, (replace(graph.relations[0], parallel=True),), graph.name)
    graph.save(tmp_path / "g")
    runs = [
        trained(source, ranks=1, checkpoint=str(tmp_path / name)) for name, source in (("a", graph), ("b", same), ("c", tmp_path / "g"))
    ]
    assert runs[0].losses == runs[1].losses == runs[2].losses
    made = [predict(source, tmp_path / "a").logits for source in (graph, tmp_path / "g")]
    assert (made[0] == made[1]).all()
    assert [relation.key for relation in graph.relations] == [("node", "to", "node")]


@pytest.mark.parametrize("kind", ["plain", "several"])
def test_training_takes_the_shares_that_ranks_opened(kind, tmp_path):
    graph, model = (community_graph(n=120), {"model": "sage"}) if kind == "plain" else (planted(), {})
    graph.save(tmp_path / "g")
    options = {key: value for key, value in {**QUICK, **model}.items() if kind != "plain" or key != "featureless"}
    place = {"topology": "partitioned", "features": "partitioned", "replication": 2, "partition": "random"}

    def of_shares(comm):
        return bs.train(bs.load(tmp_path / "g", world=comm, **place), **options)

    def of_path(comm):
        return bs.train(tmp_path / "g", comm=comm, **place, **options)

    found, expected = on_threads(4, of_shares)[0], on_threads(4, of_path)[0]
    same = ("epochs_run", "train_loss", "test_accuracy", "val_accuracy", "topology", "replication")
    assert {key: found.get(key) for key in same} == {key: expected.get(key) for key in same}
    sent = [
        {kind: count for kind, count in report["bytes_sent"].items() if kind not in ("total", "control")} for report in (found, expected)
    ]
    assert sent[0] == sent[1]
    assert found["replication"] == 2

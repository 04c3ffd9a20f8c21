"""`predict` on heterogeneous graphs: against dense products, as of the time of each vertex or of one time, and what does not match."""

from dataclasses import replace

import numpy as np
import pytest
from planted_relations import all_sage_logits, all_sage_rows, planted, shop, until

import bulksample as bs
from bulksample import DataError, UsageError
from bulksample.data.link_split import hold_out
from bulksample.methods.config import TrainConfig
from bulksample.methods.predict import predict
from bulksample.methods.run import make_trainer
from bulksample.training import checkpoint

QUICK = {"model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 1, "batch_size": 16, "threads": 1, "quiet": True}


def trained(graph, folder, **options):
    made = make_trainer(TrainConfig.of(**{**QUICK, **options, "checkpoint": str(folder / "kept")}), graph)
    return made, made.run()


def test_logits_are_those_of_dense_products_and_scores_those_of_the_run(tmp_path):
    graph = planted()
    made, report = trained(graph, tmp_path)
    found = predict(graph, tmp_path / "kept")
    np.testing.assert_allclose(found.logits, all_sage_logits(graph, made.model).numpy(), atol=1e-4)
    assert {split: found.scores[split] for split in found.scores} == {
        f"{s}_accuracy": report[f"{s}_accuracy"] for s in graph.types[0].masks
    }
    assert (found.embeddings.shape, found.more, found.step) == ((120, 8), {}, report["steps"])
    last, h = made.model.layers[-1], found.embeddings  # what enters the last layer: with zeros from neighbors, it gives the own term
    own, bias = last.own[0].detach().numpy(), last.bias[0].detach().numpy()
    relations = [replace(one, adjacency=one.adjacency.keep(np.zeros(one.edges, bool)), edge_ids=None) for one in graph.relations]
    alone = replace(graph, relations=tuple(relations))
    bare = predict(alone, tmp_path / "kept")
    np.testing.assert_allclose(bare.logits, bare.embeddings @ own + bias, atol=1e-5)
    assert not np.allclose(bare.embeddings, h)


@pytest.mark.parametrize("at", [None, 20])
def test_in_time_each_vertex_sees_its_past(tmp_path, at):
    graph = planted(times=True)
    made, _ = trained(graph, tmp_path)
    found, clock = predict(graph, tmp_path / "kept", at=at), graph.types[0].times
    asked = clock if at is None else np.full(120, at)
    assert (found.more["times"] == asked).all()
    for t in np.unique(asked)[::7]:
        expected = all_sage_logits(until(graph, int(t)), made.model).numpy()
        np.testing.assert_allclose(found.logits[asked == t], expected[asked == t], atol=1e-4)
    column = predict(graph, tmp_path / "kept") if at else None
    assert column is None or not np.allclose(column.logits, found.logits)


def test_links_have_embeddings_of_both_ends(tmp_path):
    for name, kind, at in (("a", {}, None), ("b", {"edge_times": True}, 30)):
        graph = hold_out(shop(**kind), "buys", 0.1, 0.1, 5, seed=0)
        made, _ = trained(graph, tmp_path / name, task="links")
        found = predict(graph, tmp_path / name / "kept", at=at)
        rows = all_sage_rows(until(graph, at), made.model.encoder)
        for end in ("user", "item"):
            np.testing.assert_allclose(found.more[f"embeddings.{end}"], rows[end].numpy(), atol=1e-4)
        assert found.logits is None
        assert set(found.more) == {"embeddings.user", "embeddings.item"}
    with pytest.raises(UsageError, match="ends of links have none of their own"):
        predict(graph, tmp_path / "b" / "kept")
    for at in (99999999999999999999, 2**63, -(2**63) - 1):
        with pytest.raises(UsageError, match=f"at: got {at}; use a time that fits int64"):
            predict(graph, tmp_path / "b" / "kept", at=at)
    assert np.array_equal(bs.predict(graph, tmp_path / "b" / "kept", at=30).more["embeddings.item"], found.more["embeddings.item"])


def test_graphs_that_do_not_match_are_refused(tmp_path):
    graph = planted()
    trained(graph, tmp_path)
    venue = graph.types[2]
    cases = [
        ({"relations": graph.relations[:-1]}, r"5 relations, and graph 'planted' has 4, which differ in \('author', 'reviews', 'venue'\)"),
        ({"relations": graph.relations[::-1]}, "which stand in another order"),
        ({"types": (*graph.types[:2], replace(venue, features=np.ones((6, 3), np.float32)))}, "for type 'venue'; graph 'planted' needs"),
    ]
    for changes, message in cases:
        with pytest.raises(UsageError, match=message):
            predict(replace(graph, **changes), tmp_path / "kept")
    for options, message in (({"at": 3}, "graph 'planted' has no times"), ({"memory": 5}, "model and memory are for plain graphs")):
        with pytest.raises(UsageError, match=message):
            predict(graph, tmp_path / "kept", **options)
    bare = replace(graph.types[0], labels=None, masks={}, extra={})
    assert predict(replace(graph, types=(bare, *graph.types[1:])), tmp_path / "kept").scores == {}
    _, (tensors, state) = checkpoint.read(tmp_path / "kept")
    checkpoint.save(tmp_path / "old", 1, tensors, {name: value for name, value in state.items() if name != "schema"})
    with pytest.raises(DataError, match="does not say which relations its model has"):
        predict(graph, tmp_path / "old")


@pytest.mark.parametrize("featureless", ["embedding", "constant"])
def test_embeddings_of_another_graph_are_told_of(tmp_path, featureless, capsys):
    """A type without features takes the learned row of each number, whichever vertex had it in the run."""
    graph = planted()
    trained(graph, tmp_path, featureless=featureless)
    graph.save(tmp_path / "store")
    assert not predict(graph, tmp_path / "kept").warnings
    assert not predict(tmp_path / "store", tmp_path / "kept").warnings
    papers = graph.types[0]
    changed = replace(graph, types=(replace(papers, features=papers.features + 1), *graph.types[1:]))
    found = predict(changed, tmp_path / "kept").warnings
    if featureless == "constant":
        assert not found
    else:
        assert "types without features (venue) take its embedding of each vertex number" in found[0]
        assert found[0] in capsys.readouterr().err

"""Exact rows of heterogeneous graphs, layer by layer: those of mini-batches of all neighbors, each computed once."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from planted_relations import all_sage_logits, planted, shop

from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.evaluation import by_batches, by_layers, end_rows
from bulksample.evaluation.by_batches import BatchScoring, evaluate_by_batches, logits_by_batches
from bulksample.evaluation.by_layers import infer_by_layers, logits_by_layers
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.nn.type_input import TypeInput
from bulksample.samplers.full import Full

QUICK = {"model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 1, "batch_size": 16, "threads": 1, "quiet": True}
PLACES = [{}, {"features": "partitioned"}]


def trainer(graph, comm=None, **options):
    made = make_trainer(TrainConfig.of(**{**QUICK, **options}), graph, comm)
    made.run()
    return made


def never(*_, **__):
    raise AssertionError("another way was taken")


@pytest.mark.parametrize("edges", [3, by_layers._EDGES])
@pytest.mark.parametrize(
    "options", [{}, {"model": "hetero-gat", "heads": 2, "layers": 3, "fanouts": (2, 2, 2)}, {"layers": 1, "fanouts": (3,)}]
)
def test_rows_are_those_of_minibatches(monkeypatch, options, edges):
    """The model of a run with norms and dropout; with few edges at once, the rows are computed in many pieces, of sources mapped once."""
    monkeypatch.setattr(by_layers, "_EDGES", edges)
    made, mapped = trainer(planted(), dropout=0.5, layer_norm=True, **options), []
    view, vertices = made.context.view.all_rows(), np.array([3, 7, 8, 40, 119], np.int32)
    with monkeypatch.context() as patch:
        for layer in made.model.layers:
            original = layer.of_sources
            patch.setattr(layer, "of_sources", lambda *given, first=original: mapped.append((first, given[0])) or first(*given))
        positions, logits = logits_by_layers(made.model, view, SerialComm(), vertices)
    assert len(mapped) == len(set(mapped)) > 0
    scoring = BatchScoring(Full((-1,) * len(made.model.layers)), 2)
    made.model.eval()
    expected = torch.cat([rows for _, rows in logits_by_batches(made.model, view, SerialComm(), vertices, scoring)])
    assert positions.tolist() == list(range(5))
    torch.testing.assert_close(logits, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_ranks_share_the_rows(monkeypatch, place, ranks):
    """Few features are fetched at once: those of some papers and some authors, 2 and 3 numbers each."""
    graph, fetched = planted(), []
    monkeypatch.setattr(by_layers, "_FEATURES", 30)
    original = TypeInput.forward
    monkeypatch.setattr(TypeInput, "forward", lambda own, x: fetched.append(len(x) * own.width) or original(own, x))

    def on_rank(comm):
        made = trainer(graph, comm, dropout=0.0, epochs=0, **place)
        vertices = np.flatnonzero(graph.type("paper").masks["test"]).astype(np.int32)
        positions, logits = logits_by_layers(made.model, made.context.view.all_rows(), comm, vertices)
        assert max(fetched) <= 40
        return positions, logits, vertices

    found = on_threads(ranks, on_rank)
    expected = all_sage_logits(graph, trainer(graph, epochs=0, dropout=0.0).model).float()[torch.from_numpy(found[0][2]).long()]
    assert np.concatenate([positions for positions, _, _ in found]).tolist() == list(range(len(expected)))
    torch.testing.assert_close(torch.cat([logits for _, logits, _ in found]), expected, rtol=1e-4, atol=1e-5)


def test_a_row_is_computed_once_and_only_if_it_is_needed(monkeypatch):
    """The rows of each layer are counted: two papers, and before that the papers that they cite."""
    made = trainer(planted())
    counted = []
    original = by_layers._new_rows
    monkeypatch.setattr(by_layers, "_new_rows", lambda *given: counted.append((given[2], len(given[4]))) or original(*given))
    wanted = {"paper": np.array([0, 1], np.int32)}
    infer_by_layers(made.model, made.context.view, SerialComm(), wanted)
    cites = planted().relation("cites").adjacency
    near = {0, 1} | {int(u) for v in (0, 1) for u in cites.indices[cites.indptr[v] : cites.indptr[v + 1]]}
    assert [size for name, size in counted if name == "paper"] == [len(near), 2]


@pytest.mark.parametrize("way", ["layers", "batches"])
def test_scores_are_those_of_either_way(monkeypatch, way):
    """Memory decides, and time, which gives a vertex more rows than one."""
    graph = planted()
    made, paper = trainer(graph), graph.type("paper")
    if way == "layers":
        monkeypatch.setattr(by_batches, "logits_by_batches", never)
    else:
        monkeypatch.setattr(by_layers, "fair_memory", lambda comm: 0)
        monkeypatch.setattr(by_batches, "logits_by_layers", never)
    scoring = BatchScoring(Full((-1, -1)), 16)
    found = evaluate_by_batches(made.model, made.context.view, SerialComm(), "accuracy", scoring)
    right = all_sage_logits(graph, made.model).argmax(1).numpy() == paper.labels
    assert found == {f"{split}_accuracy": pytest.approx(right[mask].mean()) for split, mask in paper.masks.items()}
    if way == "layers":
        late = trainer(planted(times=True), evaluate="none")
        with pytest.raises(AssertionError, match="another way was taken"):
            evaluate_by_batches(late.model, late.context.view, SerialComm(), "accuracy", scoring)


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_scores_of_links_are_those_of_either_way(monkeypatch, ranks, place):
    split = hold_out(shop(), ("user", "buys", "item"), 0.1, 0.2, 8, seed=0)

    def on_rank(comm):
        made = trainer(split, comm, task="links", batch_size=32, **place)
        return {key: value for key, value in made.run().items() if "mrr" in key or "hits" in key}

    with monkeypatch.context() as patch:
        patch.setattr(end_rows, "_rows_by_batches", never)
        by_layer = on_threads(ranks, on_rank)[0]
    monkeypatch.setattr(by_layers, "fair_memory", lambda comm: 0)
    monkeypatch.setattr(end_rows, "infer_by_layers", never)
    assert on_threads(ranks, on_rank)[0] == pytest.approx(by_layer, abs=0.02)


def test_a_type_that_no_relation_reaches_and_vertices_without_neighbors_have_rows():
    graph = planted()
    bare = replace(graph, relations=tuple(one for one in graph.relations if one.name == "reviews" or one.name == "prints"))
    made = trainer(bare, epochs=0, dropout=0.0)
    found = infer_by_layers(made.model, made.context.view, SerialComm(), {"paper": np.arange(120, dtype=np.int32)})
    expected = all_sage_logits(bare, made.model).float()
    torch.testing.assert_close(found.outputs["paper"], expected, rtol=1e-4, atol=1e-5)
    assert found.hidden["paper"].shape == (120, 8)

"""The options of heterogeneous graphs: the type that is predicted, the input of types without features, and the rule of time."""

from dataclasses import replace

import numpy as np
import torch
from planted_relations import planted

from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer


def trainer(graph, **options):
    quick = {"model": "hetero-sage", "fanouts": (3, 3), "hidden": 4, "batch_size": 200, "threads": 1, "evaluate": "none"}
    return make_trainer(TrainConfig.of(**{**quick, **options}), graph)


def papers_of(made):
    """The times of the papers that the only mini-batch of an epoch drew, and the times of their seeds."""
    (batch,) = made.context.batches
    rows = batch.minibatch.rows["paper"]
    drawn = np.arange(len(rows.vertices)) >= rows.sizes[0]
    return made.context.view.targets.graph.type("paper").times[rows.vertices[drawn]], rows.seed_times[rows.trees[drawn]]


def test_target_type_is_the_type_that_is_predicted():
    graph = planted()
    venue = replace(graph.types[2], labels=np.arange(6) % 2, num_classes=2)
    graph = replace(graph, types=(*graph.types[:2], replace(venue, masks={"train": np.ones(6, bool)})))
    assert trainer(planted()).model.schema.target == "paper"
    try:
        made = trainer(graph, target_type="venue")
    except Exception as error:
        raise AssertionError(error) from error
    assert (made.model.schema.target, len(made.context.view.seeds), made.context.view.num_classes) == ("venue", 6, 2)


def test_target_relation_names_the_types_of_the_ends(tmp_path):
    """Pairs of one author and one paper each; the seeds of a mini-batch lie in these types."""
    table = {"source": [0, 1, 2], "destination": [5, 4, 3], "label": [0, 1, 0], "train": [True] * 3}
    np.savez(tmp_path / "t.npz", **table)
    asked = {"task": "edges", "edge_labels": str(tmp_path / "t.npz")}
    for name, (source, destination) in {"paper:cites:paper": ("paper", "paper"), "author:writes:paper": ("author", "paper")}.items():
        made = trainer(planted(), **asked, target_relation=name)
        (batch,) = made.context.batches
        seeds, rows = {kind: part.seeds.tolist() for kind, part in batch.minibatch.rows.items()}, batch.minibatch.examples
        expected = {kind: [] for kind in seeds}
        expected[source] += [table["source"][row] for row in rows]
        expected[destination] += [table["destination"][row] for row in rows]
        assert seeds == expected, name


def test_featureless_constant_learns_one_row_for_all():
    rows = {kind: trainer(planted(), featureless=kind).model.inputs[2].weight.shape for kind in ("embedding", "constant")}
    assert rows == {"embedding": (6, 4), "constant": (1, 4)}


def test_seed_times_is_the_column_of_the_times_of_the_seeds():
    graph = planted(times=True)
    (batch,) = trainer(graph, seed_times="asked").context.batches
    rows = batch.minibatch.rows["paper"]
    assert (rows.seed_times == graph.type("paper").extra["asked"][rows.seeds]).all()


def test_time_by_edges_lets_later_vertices_in():
    """Papers and citations have times of their own: by those of citations, later papers are drawn."""
    both = planted(edge_times=True)
    both = replace(both, types=(replace(both.types[0], times=np.arange(120) // 2), *both.types[1:]))
    try:
        later = {by: bool((np.subtract(*papers_of(trainer(both, time_by=by))) > 0).any()) for by in ("vertices", "edges")}
    except Exception as error:
        raise AssertionError(error) from error
    assert later == {"vertices": False, "edges": True}


def test_strategy_last_draws_the_newest_papers():
    graph = planted(times=True)
    cites = graph.relation(("paper", "cites", "paper")).adjacency
    (batch,) = trainer(graph, strategy="last", fanouts=(2,)).context.batches
    mini, times = batch.minibatch, graph.type("paper").times
    block, rows = mini.layers[0]["paper", "cites", "paper"], mini.rows["paper"]
    for i, seed in enumerate(rows.seeds):
        row = rows.seed_rows[i]
        drawn = times[rows.vertices[block.indices[block.indptr[row] : block.indptr[row + 1]]]]
        past = times[cites.indices[cites.indptr[seed] : cites.indptr[seed + 1]]]
        assert sorted(drawn) == sorted(past[past <= times[seed]])[-2:]


def test_strict_leaves_out_papers_of_the_time_of_the_seed():
    equal = {
        strict: bool((np.subtract(*papers_of(trainer(planted(times=True), strict=strict, fanouts=(50, 50)))) == 0).any())
        for strict in (False, True)
    }
    assert equal == {False: True, True: False}


def test_the_model_of_the_options_is_trained():
    assert isinstance(trainer(planted(), layer_norm=True).model.norms[0][0], torch.nn.LayerNorm)
    assert isinstance(trainer(planted(), batch_norm=True).model.norms[0][0], torch.nn.BatchNorm1d)

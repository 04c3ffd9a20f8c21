"""Training never takes vertices of other splits by itself, and says so where the user makes it do so."""

from dataclasses import replace

import numpy as np
import pytest
from communities import community_graph
from training_runs import run_training

from bulksample import UsageError
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods import METHODS
from bulksample.methods.predict import predict

GRAPH = community_graph(n=120)
SMALL = {"layers": 2, "fanouts": (3, 3), "hidden": 8, "batch_size": 64, "epochs": 1, "threads": 1, "quiet": True}
EMPTY = np.zeros(GRAPH.n, bool)
UNSPLIT = {
    "an empty training mask": ({**GRAPH.masks, "train": EMPTY}, "only the masks val, test; name the seeds, use seeds all, which includes"),
    "no training mask": ({k: GRAPH.masks[k] for k in ("val", "test")}, "only the masks val, test; name the seeds"),
    "only an empty mask": ({"train": EMPTY}, "no masks; name the seeds, use seeds all$"),
    "no masks": ({}, "no masks; name the seeds, use seeds all$"),
}


@pytest.fixture(scope="module", params=UNSPLIT)
def unsplit(request, tmp_path_factory):
    """A store without training vertices, and the error that names what it has."""
    masks, message = UNSPLIT[request.param]
    folder = tmp_path_factory.mktemp("graphs") / "g"
    store.save(replace(GRAPH, masks=masks), folder)
    return folder, f"no vertex is in the training split: graph 'communities' has {message}"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("ranks", [1, 2])
def test_every_method_wants_the_seeds_named(unsplit, method, ranks):
    folder, message = unsplit

    def rank(comm):
        with pytest.raises(UsageError, match=message):
            run_training(folder, comm, method=method, **SMALL)

    on_threads(ranks, rank)


@pytest.mark.parametrize("placement", ["replicated", "partitioned"])
def test_seeds_that_are_named_are_trained_on(unsplit, placement):
    report = run_training(unsplit[0], seeds="all", graph=placement, **SMALL)[0]
    assert report["data"]["seeds"] == GRAPH.n


@pytest.mark.parametrize("method", ["sync", "full", "llcg"])
def test_a_named_split_must_hold_a_vertex(tmp_path, method):
    store.save(replace(GRAPH, masks={**GRAPH.masks, "train": EMPTY}), tmp_path / "g")
    with pytest.raises(UsageError, match="the seeds choose no vertex of graph 'communities' to train on; use seeds all, or a split"):
        run_training(tmp_path / "g", seeds="train", method=method, **SMALL)


@pytest.mark.parametrize(("seeds", "warned"), [("train", []), (None, []), ("val", ["val"]), ("test", ["test"]), ("all", ["val", "test"])])
def test_scores_of_vertices_that_were_seeds_carry_a_warning(tmp_path, capsys, seeds, warned):
    report = run_training(GRAPH, seeds=seeds, checkpoint=str(tmp_path), **SMALL)[0]
    expected = [f"the {split} scores are of vertices that the model was trained on: the seeds were {seeds}" for split in warned]
    on_screen = capsys.readouterr().err
    predicted = predict(GRAPH, tmp_path)
    for said in (report["warnings"], predicted.warnings):
        assert [text.partition(",")[0] for text in said] == expected
    for shown in (on_screen, capsys.readouterr().err):
        assert [line.partition(",")[0] for line in shown.splitlines()] == [f"bulksample: warning: {text}" for text in expected]


@pytest.mark.parametrize("from_store", [True, False])
def test_a_store_of_another_graph_carries_no_warning(tmp_path, capsys, from_store):
    other = replace(GRAPH, features=GRAPH.features + 1)
    for name, graph in (("same", GRAPH), ("other", other)):
        store.save(graph, tmp_path / name)
    run_training(tmp_path / "same" if from_store else GRAPH, seeds="all", checkpoint=str(tmp_path / "kept"), **SMALL)
    assert len(predict(tmp_path / "same", tmp_path / "kept").warnings) == 2
    assert len(predict(store.load(tmp_path / "same"), tmp_path / "kept").warnings) == 2
    capsys.readouterr()
    assert predict(tmp_path / "other", tmp_path / "kept").warnings == []
    assert "warning" not in capsys.readouterr().err


def test_a_split_that_the_graph_lacks_is_not_scored_and_not_warned_of():
    report = run_training(replace(GRAPH, masks={"val": GRAPH.masks["val"]}), seeds="all", **SMALL)[0]
    assert [text.split()[1] for text in report["warnings"]] == ["val"]

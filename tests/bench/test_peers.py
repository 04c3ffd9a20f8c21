"""Contestants in processes of their own: the same graph, the same edges, and a refusal where they differ."""

from types import SimpleNamespace

import graphs
import pytest
from peers import contest

from bulksample import backends
from bulksample.data.rmat import rmat

OPTIONS = contest.ContestOptions(fanouts=(1000, 1000), minibatches=2, batch_size=8, hidden=8, peers=("matrix", "pyg_layers"), rounds=1)


@pytest.fixture
def tiny(tmp_path, monkeypatch):
    monkeypatch.setattr(graphs, "CACHE", tmp_path)
    monkeypatch.setitem(graphs.GRAPHS, "tiny", lambda: rmat(8, 4, seed=1).adjacency)
    if "native" not in backends.available():
        pytest.skip("no native back end")


@pytest.mark.long
def test_contestants_draw_the_same_edges_in_turn(tiny):
    result = contest.contest("tiny", "sampling", 1, OPTIONS)
    ours, scipy = result["results"]["bulksample"], result["results"]["scipy, Q A and numpy draws"]
    assert ours["edges_per_minibatch"] > 0 < scipy["edges_per_minibatch"]
    assert result["left_out"].keys() == {"pyg_layers"}


def test_a_contestant_that_draws_too_few_edges_is_refused():
    worker = SimpleNamespace(name="hasty", rule="all", round=lambda: {"edges": 90, "minibatches": 2})
    with pytest.raises(SystemExit, match="hasty drew 90 edges where 100 were expected"):
        contest.play([worker], 1, {"all": [50, 50, 50]})


def test_graphs_are_made_once(tiny, monkeypatch):
    first = graphs.load("tiny")
    monkeypatch.setitem(graphs.GRAPHS, "tiny", lambda: pytest.fail("made again"))
    assert (graphs.load("tiny").indices == first.indices).all()

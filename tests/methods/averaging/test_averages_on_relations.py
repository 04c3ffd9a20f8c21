"""Model averaging on heterogeneous graphs: a part holds vertices of every type, and averages are those of plain training on the parts."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from launch import run_alone
from planted_relations import planted, shop
from training_runs import run_training, weights_of

from bulksample import UsageError, methods
from bulksample.data.link_split import LinkGraph, hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix.partition import make
from bulksample.graph.induced import induced
from bulksample.local_adjacency import union_of
from bulksample.methods.averaging.participant import vector_of
from bulksample.methods.options import AVERAGING

SMALL = {
    "model": "hetero-sage", "featureless": "constant", "fanouts": (4, 3), "hidden": 8, "epochs": 2, "batch_size": 16, "dropout": 0.0,
    "threads": 1, "quiet": True,
}  # fmt: skip
WHOLE = {"sampler": "full", "fanouts": (-1, -1), "batch_size": 1000, "epochs": 1, "evaluate": "none"}


def trained(source, comm=None, **options):
    return run_training(source, comm, **{**SMALL, **options})


def none_of(held):
    """The held-out links of a graph, of which a part has none."""
    of_split = {name: {split: rows[:0] for split, rows in getattr(held, name).items()} for name in ("pairs", "negatives")}
    times = None if held.times is None else {split: rows[:0] for split, rows in held.times.items()}
    return replace(held, **of_split, times=times)


def sgd(monkeypatch):
    monkeypatch.setattr("bulksample.training.context.Adam", lambda parameters, lr, weight_decay: torch.optim.SGD(parameters, lr))


@pytest.mark.parametrize("method", AVERAGING)
def test_alone_it_is_plain_training_to_the_bit(method):
    graph, more = planted(times=True), {"server_steps": 0} if method == "llcg" else {}
    plain, expected = (trained(graph, method=name, **own) for name, own in (("sync", {}), (method, more)))
    assert torch.equal(weights_of(plain[2]), weights_of(expected[2]))
    assert plain[0]["test_accuracy"] == expected[0]["test_accuracy"]


@pytest.mark.parametrize("method", ["random-tma", "super-tma", "psgd-pa"])
@pytest.mark.parametrize("average_by", ["responders", "vertices"])
def test_an_average_is_that_of_plain_steps_on_the_induced_subgraphs(method, average_by, monkeypatch):
    sgd(monkeypatch)
    graph, parts = planted(), 3
    found = on_threads(parts + 1, lambda comm: trained(graph, comm, method=method, average_by=average_by, **WHOLE))
    dealt = make(methods.load(method).partition_kind, union_of(graph), parts, 0)
    members = [np.flatnonzero(dealt.assignment == part) for part in range(parts)]
    alone = np.stack([vector_of(trained(induced(graph, own), **WHOLE)[2].model) for own in members])
    weights = None if average_by == "responders" else [len(own) for own in members]
    expected = np.average(alone, axis=0, weights=weights)
    for _, _, trainer in found:
        np.testing.assert_allclose(vector_of(trainer.model), expected, rtol=1e-5, atol=1e-7)
    assert np.abs(alone - expected).max() > 1e-4  # the parts differ
    assert found[0][0]["bytes_sent"]["model"] >= 8 * parts * expected.size


@pytest.mark.parametrize("kind", [{}, {"edge_times": True}])
def test_an_average_of_links_is_that_of_plain_steps_on_the_induced_subgraphs(kind, monkeypatch, tmp_path):
    """A part trains on the links between its own vertices, and draws their negatives among them; the server scores the held-out ones."""
    sgd(monkeypatch)
    monkeypatch.setattr("bulksample.training.loaders.PART_SEED", 0)  # parts draw negatives by the words that plain training uses
    graph, parts = hold_out(shop(**kind), ("user", "buys", "item"), 0.1, 0.1, 4, seed=0), 2
    asked = {**WHOLE, "task": "links", "evaluate": "exact", "epochs": 1}
    found = on_threads(parts + 1, lambda comm: trained(graph, comm, method="psgd-pa", **asked))
    dealt, alone, examples = make("metis", union_of(graph), parts, 0), [], 0
    for part in range(parts):
        own = induced(graph, np.flatnonzero(dealt.assignment == part))
        held = LinkGraph(none_of(graph.held_out), types=own.types, relations=own.relations, name=own.name)
        made = trained(held, **{**asked, "evaluate": "none"})[2]
        alone.append(vector_of(made.model))
        examples += len(made.context.view.targets.links.edges)
    expected = np.mean(alone, axis=0)
    for _, _, trainer in found:
        np.testing.assert_allclose(vector_of(trainer.model), expected, rtol=1e-5, atol=1e-7)
    assert np.abs(alone - expected).max() > 1e-5
    assert 0 < examples < graph.relation("buys").edges
    assert 0 < found[0][0]["test_mrr"] <= 1


def test_the_parts_are_all_of_the_graph():
    graph = planted()
    trainers = [one[2] for one in on_threads(3, lambda comm: trained(graph, comm, method="random-tma"))]
    assert trainers[0].context.view is trainers[0].method.whole_view
    parts = [trainer.context.view for trainer in trainers[1:]]
    assert sum(view.targets.graph.n for view in parts) == graph.n
    assert sum(len(view.seeds) for view in parts) == graph.type("paper").masks["train"].sum()
    assert all(view.num_classes == 3 for view in parts)


def test_trainers_draw_nothing_later_than_their_seeds():
    """Features of papers later than every seed change nothing; without times they do."""
    graph, cut = planted(times=True), 25
    paper = graph.type("paper")
    masks = {"train": paper.times <= cut, "val": paper.times > cut}
    later = np.where(paper.times[:, None] > cut, np.float32(1e3), paper.features)
    losses = []
    for x, times in ((paper.features, paper.times), (later, paper.times), (later, None)):
        kinds = replace(paper, features=x, times=times, masks=masks), *(replace(one, times=None) for one in graph.types[1:])
        changed = replace(graph, types=kinds)
        losses.append(on_threads(3, lambda comm, changed=changed: trained(changed, comm, method="random-tma"))[0][0]["train_loss"])
    assert losses[0] == losses[1]
    assert losses[2] != losses[1]


def test_llcg_steps_on_the_whole_graph(monkeypatch):
    """Alone, a step and its correction are two steps of plain training; the second one is by an Adam of the server."""
    graph, steps = planted(), 3
    asked = {**WHOLE, "epochs": steps, "evaluate": "exact", "lr": 0.05}
    report, _, trainer = trained(graph, **asked, method="llcg", server_steps=2)
    still = trained(graph, **asked, method="llcg", server_steps=0)[0]
    assert {int(state["step"]) for state in trainer.method._adam.state.values()} == {2 * steps}
    assert report["train_loss"] < still["train_loss"]
    averaged = on_threads(3, lambda comm: trained(graph, comm, **asked, method="llcg", server_steps=2))
    assert all(np.array_equal(vector_of(one[2].model), vector_of(averaged[0][2].model)) for one in averaged)


@pytest.mark.parametrize("method", ["super-tma", "llcg"])
def test_a_resumed_run_is_the_same_run(tmp_path, method):
    graph, asked = planted(times=True), {"method": method, "epochs": 4}
    folder = str(tmp_path / "c")
    expected = on_threads(3, lambda comm: trained(graph, comm, **asked))
    on_threads(3, lambda comm: trained(graph, comm, **{**asked, "epochs": 2}, checkpoint=folder))
    found = on_threads(3, lambda comm: trained(graph, comm, **asked, checkpoint=folder, resume="auto"))
    for one, other in zip(found, expected, strict=True):
        assert one[0]["resumed"]
        assert np.array_equal(vector_of(one[2].model), vector_of(other[2].model))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"featureless": "embedding"}, "type 'venue' of graph 'planted' has no features, and got featureless embedding: use constant"),
        ({"label": "price"}, "no type of graph 'planted' has a column 'price'"),
        ({"features": "partitioned", "partition": "random"}, "has a partitioner of its own; got partition random"),
    ],
)
def test_what_has_no_meaning_is_refused_on_every_rank(options, message):
    def rank(comm):
        with pytest.raises(UsageError, match=message):
            trained(planted(), comm, **{"method": "random-tma", **options})

    on_threads(3, rank)


@pytest.mark.long
def test_the_command_line_starts_trainers_that_may_fail(tmp_path):
    planted(times=True).save(tmp_path / "g")
    flags = {"model": "hetero-sage", "featureless": "constant", "method": "super-tma", "fanouts": "4,3", "hidden": 8, "epochs": 3,
             "interval": "epoch", "trainers": 2}  # fmt: skip
    words = [word for key, value in flags.items() for word in (f"--{key}", str(value))]
    command = ["-m", "bulksample", "train", str(tmp_path / "g"), *words, "--tolerate-failures", "--json", str(tmp_path / "r")]
    ended = run_alone(command)
    assert ended.returncode == 0, ended.stderr
    report = json.loads((tmp_path / "r").read_text())
    assert (report["joined"], report["averages"], report["trainers"]) == (2, 3, 2)

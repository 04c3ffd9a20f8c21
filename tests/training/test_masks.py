"""Masks of dropout in training: the same for every number of ranks and threads, by vertices of the whole graph, apart in parts."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from planted_relations import planted
from recorder import Recorder
from training_runs import weights_of

from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph import NODE
from bulksample.methods.config import TrainConfig
from bulksample.methods.retexo.method import SingleLayerModel
from bulksample.methods.run import make_trainer
from bulksample.nn.dropout import PassNames
from bulksample.nn.gather import OwnAndMean
from bulksample.nn.model import Gnn
from bulksample.nn.relational import RelationalGnn
from bulksample.views.full_graph import FullGraph

RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 20, "epochs": 3, "lr": 0.02, "threads": 1, "dropout": 0.5, "eval_every": 0}
WITHOUT_SAMPLES = {"fanouts": (-1, -1), "sampler": "full"}


def trained(source, comm=None, **options):
    recorder = Recorder()
    trainer = make_trainer(TrainConfig.of(**{**RUN, **options}), source, comm, [recorder])
    trainer.run()
    return recorder.losses, weights_of(trainer)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A graph, plain and with sparse features, whose first feature is the number of the vertex."""
    place = tmp_path_factory.mktemp("masks")
    graph = community_graph(n=200)
    features = np.array(graph.features)
    features[:, 0] = np.arange(200)
    store.save(graph.replace(features=features), place / "numbered")
    store.save(graph, place / "plain")
    store.save(community_graph(n=200, sparse=True), place / "sparse")
    return place


@pytest.mark.parametrize(
    ("graph", "options"),
    [
        ("plain", {"input_dropout": 0.2}), ("plain", {"form": "naive", "input_dropout": 0.2}), ("sparse", {"input_dropout": 0.5}),
        ("plain", {"method": "retexo", "input_dropout": 0.2}), ("plain", {"model": "gat", "heads": 2}),
    ],
)  # fmt: skip
def test_a_pass_over_the_whole_graph_has_the_masks_of_one_rank(folder, graph, options):
    asked = {"method": "full", **options}
    alone = trained(folder / graph, None, **asked)
    for p in (2, 3):
        together = on_threads(p, lambda comm: trained(folder / graph, comm, **asked))[0]
        assert together[0] == pytest.approx(alone[0], rel=1e-4)
        torch.testing.assert_close(together[1], alone[1], rtol=1e-2, atol=1e-4)
    assert trained(folder / graph, None, **asked | {"seed": 1})[0] != pytest.approx(alone[0], rel=1e-2)


@pytest.mark.parametrize("model", ["sage", "gat"])
def test_threads_change_no_mask(folder, model):
    heads = {"heads": 2} if model == "gat" else {}
    one, two = (trained(folder / "plain", model=model, threads=threads, **heads)[0] for threads in (1, 2))
    assert two == pytest.approx(one, rel=1e-6)


def test_each_epoch_has_masks_of_its_own(folder):
    """With weights that hardly move and one mini-batch of all neighbors, only the masks of an epoch change the loss."""
    asked = {**WITHOUT_SAMPLES, "batch_size": 1000, "lr": 1e-12, "epochs": 4}
    losses, _ = trained(folder / "plain", **asked)
    assert len(losses) == len({round(loss, 4) for loss in losses}) == 4
    assert len({round(loss, 4) for loss in trained(folder / "plain", **asked | {"dropout": 0.0})[0]}) == 1


def watched(monkeypatch):
    """The input rows and the names of every pass with dropout: (rank, x by type, names)."""
    seen = []

    def note(rank, x, names):
        x = x.own if isinstance(x, OwnAndMean) else x  # whose names are those of the destinations
        if names is not None and torch.is_grad_enabled():
            seen.append((rank, x if isinstance(x, dict) else {NODE: x}, names))

    def of(kind, rows):
        whole = kind.forward if kind is not FullGraph else kind.__call__

        def noted(self, *given, **named):
            rank = getattr(self, "rank", None)
            note(rank, *rows(self, *given, **named))
            return whole(self, *given, **named)

        monkeypatch.setattr(kind, "forward" if kind is not FullGraph else "__call__", noted)

    of(Gnn, lambda self, blocks, x, degrees, names=None: (x, names))
    of(RelationalGnn, lambda self, blocks, x, degrees=None, names=None: (x, names))
    of(SingleLayerModel, lambda self, x, names: (x.x, names))
    of(FullGraph, lambda self, model, key=None: (self.rows.x, None if key is None else self.rows.names(key)))
    return seen


METHODS = {
    "sync": {}, "sync on block rows": {"graph": "partitioned"}, "full": {}, "bns": {"boundary_share": 0.5}, "cofree": {},
    "grappa": {"partition": "random"}, "grappa on the whole view": {"full_graph": True}, "retexo": {"layer_norm": False},
    "random-tma": {"interval": "2"}, "llcg": {"interval": "2", "server_steps": 1}, "adaqp": {},
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_masks_name_vertices_of_the_whole_graph(folder, monkeypatch, name):
    seen, asked = watched(monkeypatch), {"method": name.partition(" ")[0], **METHODS[name]}
    on_threads(2, lambda comm: trained(folder / "numbered", comm, epochs=1, **asked))
    passes = [(x[NODE], names) for _, x, names in seen if x[NODE].shape[1] == 8 and names.key.stage == 0]
    assert len(passes) >= 2
    for x, names in passes:
        np.testing.assert_array_equal(names.rows[NODE].vertices[: len(x)], x[:, 0].numpy())


def numbered(graph):
    """The graph with the number of each vertex as the first feature of its type."""
    types = []
    for kind in graph.types:
        x = kind.features
        if x is not None and not hasattr(x, "indptr"):
            x = np.array(x, np.float32)
            x[:, 0] = np.arange(len(x))
        types.append(replace(kind, features=x))
    return replace(graph, types=tuple(types))


@pytest.mark.parametrize("method", ["sync", "cofree", "grappa", "random-tma"])
def test_masks_name_vertices_and_trees_of_types(tmp_path, monkeypatch, method):
    store.save(numbered(planted()), tmp_path / "typed")
    asked = {
        "method": method,
        "model": "hetero-sage",
        "featureless": "constant",
        "layers": 2,
        **({"interval": "2"} if method == "random-tma" else {}),
    }
    seen = watched(monkeypatch)
    on_threads(2, lambda comm: trained(tmp_path / "typed", comm, epochs=1, **asked))
    compared = 0
    for _, x, names in seen:
        for kind, rows in x.items():
            if rows.dim() == 2 and rows.is_floating_point() and rows.shape[1] > 1:
                np.testing.assert_array_equal(names.rows[kind].vertices, rows[:, 0].numpy())
                compared += 1
    assert compared >= 2


@pytest.mark.parametrize("name", ["cofree", "grappa on the whole view", "grappa", "random-tma", "llcg"])
def test_ranks_that_train_apart_draw_apart(folder, monkeypatch, name):
    keys, whole = {}, PassNames.mask

    def noted(self, p, rows, layer, place=0, kind=None):
        made = whole(self, p, rows, layer, place, kind)
        if made is not None:
            keys.setdefault(self.key.seed, set()).add(made.key)
        return made

    monkeypatch.setattr(PassNames, "mask", noted)
    asked = {"method": name.partition(" ")[0], **METHODS[name]}
    on_threads(3, lambda comm: trained(folder / "plain", comm, epochs=2, **asked))
    assert len(keys) == (2 if name == "random-tma" else 3)  # a server trains no part; that of LLCG corrects
    assert len(set.union(*keys.values())) == sum(map(len, keys.values()))

"""Grappa and CoFree on several types: one rank is `sync`, apart is together, and weights are what counting gives."""

import gc
import os

import numpy as np
import pytest
import torch
from planted_relations import planted
from recorder import Recorder
from training_runs import weights_and_report, weights_of

import bulksample as bs
from bulksample import Graph, UsageError, VertexType, backends, relation_from_edges
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph.induced import induced
from bulksample.graph.selection import Selection
from bulksample.local_adjacency import LocalAdjacency
from bulksample.methods.config import TrainConfig
from bulksample.methods.grappa.seed_weights import tree_weights, walk_coverage
from bulksample.methods.run import make_trainer
from bulksample.rng import Stream
from bulksample.samplers import Sage
from bulksample.views.local import PartRelation

SMALL = {
    "model": "hetero-sage", "featureless": "constant", "layers": 2, "fanouts": (4, 3), "hidden": 6, "batch_size": 20, "epochs": 4,
    "lr": 0.01, "threads": 1, "eval_every": 4,
}  # fmt: skip
GRAPPA, COFREE = {**SMALL, "method": "grappa", "swap_every": 2}, {**SMALL, "method": "cofree"}
STILL = {"dropout": 0.0, "epochs": 6, "batch_size": 1000, "sampler": "full", "fanouts": (-1, -1)}


def made(graph, comm, **options):
    return make_trainer(TrainConfig.of(**options), graph, comm)


def losses(graph, comm, **options):
    watched = Recorder()
    trainer = make_trainer(TrainConfig.of(**options), graph, comm, [watched])
    trainer.run()
    return watched.losses, weights_of(trainer)


def islands(count):
    """Copies of a graph without an edge between them; the vertices of each type lie copy by copy."""
    whole = planted()

    def tiled(column):
        return None if column is None else np.concatenate([column] * count)

    types = [
        VertexType(
            kind.name, count * kind.count, tiled(kind.features), tiled(kind.labels), kind.num_classes,
            {split: tiled(mask) for split, mask in kind.masks.items()},
        )
        for kind in whole.types
    ]  # fmt: skip
    of, relations = {kind.name: kind for kind in types}, []
    for relation in whole.relations:
        rows, columns = relation.adjacency.row_of_entry(), relation.adjacency.indices
        more = relation.adjacency.shape
        into = np.concatenate([copy * more[0] + rows for copy in range(count)])
        by = np.concatenate([copy * more[1] + columns for copy in range(count)])
        relations.append(relation_from_edges(of[relation.source], relation.name, of[relation.destination], by, into))
    return Graph.of(types, relations, "islands")


# ---- what they are equal to


@pytest.mark.parametrize("options", [
    {}, {"view": "strict", "seed_weights": "batch"}, {"chunking": "fresh", "seed_weights": "tree"}, {"model": "hetero-gat", "heads": 2},
])  # fmt: skip
def test_grappa_on_one_rank_is_standard_training_to_the_bit(options):
    standard = {key: value for key, value in options.items() if key in ("model", "heads")}
    found, report = weights_and_report(planted(), None, **{**GRAPPA, **options})
    expected, expected_report = weights_and_report(planted(), None, **{**SMALL, **standard, "method": "sync"})
    assert torch.equal(found, expected)
    assert report["test_accuracy"] == expected_report["test_accuracy"]


@pytest.mark.parametrize("method", [{"method": "cofree"}, {"method": "grappa", "full_graph": True}])
@pytest.mark.parametrize("model", [{}, {"model": "hetero-gat", "heads": 2}])
def test_a_pass_over_everything_is_a_step_with_all_neighbors(method, model):
    expected, weights = losses(planted(), None, **{**SMALL, **STILL, **model, "method": "sync"})
    found, others = losses(planted(), None, **{**SMALL, **STILL, **model, **method})
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    torch.testing.assert_close(others, weights, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("view", ["strict", "halo", "base"])
@pytest.mark.parametrize("whole", [True, False])
def test_grappa_without_an_edge_between_chunks_is_synchronous_training(view, whole):
    graph = islands(3)
    expected, weights = losses(graph, None, **{**SMALL, **STILL, "method": "sync"})
    run = {**GRAPPA, **STILL, "swap_every": 10 if view == "base" else 1, "full_graph": whole, "view": view}
    found, others = on_threads(3, lambda comm: losses(graph, comm, **run))[0]
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    torch.testing.assert_close(others, weights, rtol=1e-4, atol=1e-5)


def test_features_travel_from_their_owners_or_are_read_and_change_no_bit(tmp_path):
    store.save(planted(), tmp_path / "s")

    def rank(comm, where):
        weights, _ = weights_and_report(tmp_path / "s", comm, **GRAPPA, features=where, evaluate="none")
        return weights, comm.tally["features"].bytes

    runs = [on_threads(3, lambda comm, where=where: rank(comm, where)) for where in ("partitioned", "replicated", "host")]
    assert all(torch.equal(weights, runs[0][0][0]) for found in runs for weights, _ in found)
    assert [sum(sent for _, sent in found) > 0 for found in runs] == [True, False, False]


def test_an_epoch_sends_gradients_alone():
    def rank(comm):
        trainer = made(planted(), comm, **GRAPPA, view="strict", evaluate="none")
        before = {kind: sent.bytes for kind, sent in comm.tally.items()}
        loss = iter(trainer.context.batches)
        for batch in loss:
            trainer.context.optimizer.zero_grad()
            total, count = trainer.method.loss(trainer.context, batch)
            if total is not None:
                total.backward()
            trainer.method.combine_gradients(trainer.context, torch.tensor([count, 0.0, 0.0]))
        size = sum(parameter.numel() for parameter in trainer.model.parameters())
        sent = {kind: own.bytes - before.get(kind, 0) for kind, own in comm.tally.items() if own.bytes != before.get(kind, 0)}
        return sent, trainer.context.batches.steps, size

    found = on_threads(4, rank)
    assert all(set(sent) == {"gradients"} for sent, _, _ in found)
    _, steps, size = found[0]
    assert sum(sent["gradients"] for sent, _, _ in found) == steps * 2 * 3 * 4 * (size + 7)


def test_a_resumed_run_goes_on_to_the_bit(tmp_path):
    asked = {**GRAPPA, "checkpoint": str(tmp_path / "c"), "checkpoint_every": 1}
    whole = on_threads(3, lambda comm: weights_and_report(planted(), comm, **GRAPPA)[0])[0]

    def stopped(comm):
        trainer = made(planted(), comm, **asked)
        step, steps = trainer._stepper.step, []

        def counted(*given):
            steps.append(1)
            return step(*given[:-1], len(steps) == 3)

        trainer._stepper.step = counted
        return trainer.run()["steps"]

    assert on_threads(3, stopped)[0] == 3
    weights, report = on_threads(3, lambda comm: weights_and_report(planted(), comm, **{**asked, "resume": "auto"}))[0]
    assert report["resumed"]
    assert torch.equal(weights, whole)


# ---- weights, by counting


def view_of(graph, share, seed=1):
    """The relations of the subgraph of random vertices, and these vertices by type."""
    inside = np.random.default_rng(seed).random(graph.n) < share
    part = induced(graph, np.flatnonzero(inside).astype(np.int32))
    of = {kind.name: inside[first : first + kind.count] for kind, first in zip(graph.types, graph.offsets, strict=False)}
    degrees = [relation.adjacency.degrees[of[relation.destination]].astype(np.int32) for relation in graph.relations]
    parts = zip(part.relations, degrees, strict=True)
    return part, [PartRelation(relation.key, relation.adjacency, own) for relation, own in parts], of


def test_weights_average_one_over_all_ranks():
    def rank(comm):
        raw = made(planted(), comm, **GRAPPA, view="strict").method._raw
        return comm.allreduce(np.array([len(raw), raw.sum(), np.ptp(raw)]), "control")

    n, total, spread = on_threads(4, rank)[0]
    assert total == pytest.approx(n)
    assert spread > 0.1


@pytest.mark.parametrize("hops", [1, 3])
def test_coverage_is_that_of_walks_which_take_a_relation_and_then_a_neighbor(hops):
    graph = planted()
    step, linked = np.zeros((graph.n, graph.n)), np.zeros(graph.n)
    for relation in graph.relations:
        first, other = (int(graph.offsets[graph.place(name)]) for name in (relation.destination, relation.source))
        matrix = relation.adjacency
        rows = first + matrix.row_of_entry()
        np.add.at(step, (rows, other + matrix.indices), 1 / np.repeat(matrix.degrees, matrix.degrees))
        linked[first : first + len(matrix.degrees)] += matrix.degrees > 0
    step = np.where(linked[:, None] > 0, step / np.maximum(linked, 1)[:, None], np.eye(graph.n))
    _, relations, of = view_of(graph, 0.6)
    inside = np.concatenate([of[kind.name] for kind in graph.types])
    expected = np.linalg.matrix_power(step * inside[None, :], hops).sum(1)
    found = walk_coverage(relations, hops)
    for kind, first in zip(graph.types, graph.offsets, strict=False):
        np.testing.assert_allclose(found[kind.name], expected[first : first + kind.count][of[kind.name]], rtol=1e-12)


@pytest.mark.parametrize(("replace", "halo"), [(True, False), (False, False), (True, True)])
def test_the_weight_of_a_tree_is_the_product_over_its_rows_and_relations(replace, halo):
    """Walks from each seed through the blocks, and multiplies what each row draws of each relation."""
    graph, fanouts, share = planted(), (2, 1), 0.5
    part, relations, _ = view_of(graph, 0.7)
    seeds = np.arange(9)
    selection = Selection.of([seeds + int(part.offsets[part.place("paper")])], part.n)
    adjacency = LocalAdjacency(part, backends.make(), by_type=True)
    minibatch = Sage(fanouts, replace=replace).sample_bulk(adjacency, selection, Stream(3))[0]
    found = tree_weights(minibatch, "paper", relations, fanouts, replace, share, halo)
    linked = {(key[2], v) for key, _, degrees in relations for v in np.flatnonzero(degrees)}
    for seed, row in enumerate(minibatch.rows["paper"].seed_rows):
        tree, drew, weight = {("paper", int(row))}, set(), 1.0
        for fanout, layer in zip(fanouts, reversed(minibatch.layers), strict=True):
            drew = set(tree)
            for key, matrix, degrees in relations:
                for name, place in drew:
                    if name == key[2]:
                        v, block = minibatch.rows[name].vertices[place], layer[key]
                        inside, d = int(matrix.degrees[v]), int(degrees[v])
                        draws = range(min(fanout, d))
                        weight *= (inside / d) ** fanout if replace and d else np.prod([max(inside - i, 0) / (d - i) for i in draws])
                        tree |= {(key[0], int(u)) for u in block.indices[block.indptr[place] : block.indptr[place + 1]]}
        needed = drew if halo else tree
        names = {(name, int(minibatch.rows[name].vertices[place])) for name, place in needed - {("paper", int(row))}}
        assert found[seed] == pytest.approx(weight / share ** len(names & linked if halo else names))


def test_halo_rows_are_those_that_complete_most():
    """One paper cites 7 alone, two cite 6 and three others each: 7 completes a whole row, and 6 two quarters of rows."""
    paper = VertexType("paper", 8, np.eye(8, dtype=np.float32), np.arange(8) % 2, 2, {"train": np.ones(8, bool)})
    cited, citing = [6, 1, 2, 3, 6, 0, 2, 3, 7, 3, 0, 0, 2], [0] * 4 + [1] * 4 + [2, 4, 5, 7, 7]
    graph = Graph.of([paper], [relation_from_edges(paper, "cites", paper, cited, citing)], "far")
    run = {**GRAPPA, "layers": 1, "fanouts": (3,), "view": "halo", "view_chunks": 1, "halo_rows": 1, "evaluate": "none"}
    first, _ = on_threads(2, lambda comm: made(graph, comm, **run).method.local)
    assert (first.vertices.tolist(), first.rows) == ([0, 1, 2, 3, 7], 4)
    ((_, matrix, degrees),) = first.relations
    assert matrix.degrees.tolist() == [3, 3, 1, 0, 0]  # 7 is seen, and its row is not
    assert degrees.tolist() == [4, 4, 1, 0, 2]


# ---- CoFree


@pytest.mark.parametrize("cut", ["random", "degree"])
def test_every_edge_lies_in_one_part_with_its_reverse_and_copies_add_up_to_one(cut):
    graph = planted()

    def rank(comm):
        method = made(graph, comm, **COFREE, vertex_cut=cut).method
        return method.local, method._cut.weights

    edges, weight, where = {relation.key: [] for relation in graph.relations}, np.zeros(graph.n), {}
    for r, (local, weights) in enumerate(on_threads(3, rank)):
        names = local.view.targets.graph
        ids = {kind.name: local.vertices[names.offsets[i] : names.offsets[i + 1]] for i, kind in enumerate(names.types)}
        for (source, name, destination), matrix, _ in local.relations:
            pairs = np.stack([ids[destination][matrix.row_of_entry()], ids[source][matrix.indices]])
            edges[source, name, destination].append(pairs)
            for v, u in pairs.T.tolist():
                assert where.setdefault((min(u, v), max(u, v)), r) == r
        np.add.at(weight, ids["paper"][local.view.seeds], weights)
    for relation in graph.relations:
        first, other = (int(graph.offsets[graph.place(name)]) for name in (relation.destination, relation.source))
        whole = np.stack([first + relation.adjacency.row_of_entry(), other + relation.adjacency.indices])
        found = np.concatenate(edges[relation.key], axis=1)
        assert sorted(map(tuple, found.T.tolist())) == sorted(map(tuple, whole.T.tolist()))
    seeds = graph.type("paper").default_seeds(training=True)
    np.testing.assert_allclose(weight[seeds], 1.0, rtol=1e-12)
    assert not np.delete(weight, seeds).any()


def test_a_vertex_without_neighbors_counts_once():
    """Papers 2 to 5 have no neighbors; 2 is a neighbor of many, so ranks besides its own have a copy of it that counts nothing."""
    paper = VertexType("paper", 26, np.eye(26, dtype=np.float32), np.arange(26) % 2, 2, {"train": np.arange(26) < 6})
    cited = [0, 1, *[2] * 20]
    graph = Graph.of([paper], [relation_from_edges(paper, "cites", paper, cited, [1, 0, *range(6, 26)])], "alone")

    def seeds(comm):
        method = made(graph, comm, **COFREE, vertex_cut="random").method
        assert 2 in method.local.vertices
        return list(zip(method.local.vertices[method.local.view.seeds].tolist(), method._cut.weights.tolist(), strict=True))

    found = [pair for pairs in on_threads(3, seeds) for pair in pairs]
    assert sorted(found) == [(v, 1.0) for v in range(6)]


@pytest.mark.parametrize("cut", ["random", "degree"])
def test_one_layer_of_sums_of_means_has_the_outputs_of_the_whole_graph_over_copies(cut):
    asked = {**COFREE, "layers": 1, "fanouts": (3,), "seeds": "all", "vertex_cut": cut}

    def outputs(comm):
        trainer = made(planted(), comm, **asked)
        method = trainer.method
        logits = method._passes[0](trainer.model)[method._at].detach().numpy()
        return method.local.vertices[method._at], method._shares.numpy(), logits

    total = np.zeros((planted().type("paper").count, 3))
    for vertices, weights, logits in on_threads(4, outputs):
        np.add.at(total, vertices, weights[:, None] * logits)
    vertices, _, alone = outputs(None)
    np.testing.assert_allclose(total[vertices], alone, rtol=1e-4, atol=1e-5)


def test_masks_drop_pairs_and_keep_the_mean_of_the_rest():
    def means(comm):
        method = made(planted(), comm, **COFREE, drop_edge=0.4, edge_masks=2).method
        relations = [relation for relation in method.local.relations if relation.matrix.nnz]
        return [(one.args[0].relations[relation.key], relation) for one in method._passes for relation in relations]

    for block, relation in on_threads(1, means)[0]:
        row = relation.matrix.row_of_entry()
        kept = np.bincount(row, block.weights > 0, minlength=len(relation.degrees))
        assert 0.4 < kept.sum() / relation.matrix.nnz < 0.8
        sums = np.bincount(row, block.weights, minlength=len(relation.degrees))
        np.testing.assert_allclose(sums[kept > 0], 1.0, rtol=1e-6)  # one rank: its mean is that of the kept edges


# ---- what is refused


@pytest.mark.parametrize(("graph", "options", "message"), [
    ({"times": True}, {"method": "cofree"}, "for each seed's time; got graph 'planted', which has times: use method sync"),
    ({"times": True}, {"method": "grappa"}, "they draw from those before; got graph .planted., .*: use seed_weights none"),
    ({"times": True}, {"method": "grappa", "full_graph": True}, "use mini-batches, with seed_weights none"),
    ({}, {"method": "grappa", "featureless": "embedding"}, "a part has the rows of its own vertices alone; type 'venue'"),
    ({}, {"method": "cofree", "exchange": "rows", "evaluate": "sampled"}, "where every rank has the relations: use owner"),
    ({}, {"method": "grappa", "replication": 2}, "got replication 2: use 1"),
    ({}, {"method": "retexo"}, "the projections of the types into one width belong to no layer"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(graph, options, message):
    def rank(comm):
        with pytest.raises(UsageError, match=message):
            weights_and_report(planted(**graph), comm, **{**SMALL, **options})

    on_threads(2, rank)


@pytest.mark.parametrize("method", ["grappa", "random-tma"])
def test_what_one_part_alone_would_show_is_refused_on_all_ranks(method):
    """Parallel edges, which LABOR refuses, lie in the part of one rank."""
    paper = VertexType("paper", 12, np.eye(12, dtype=np.float32), np.arange(12) % 2, 2, {"train": np.ones(12, bool)})
    graph = Graph.of([paper], [relation_from_edges(paper, "cites", paper, [1, 1, 2, 9], [0, 0, 3, 10])], "twice")

    def rank(comm):
        run = {**SMALL, "method": method, "sampler": "labor", **({"view": "base"} if method == "grappa" else {})}
        with pytest.raises(UsageError, match="has parallel edges"):
            weights_and_report(graph, comm, **run)

    on_threads(3, rank)


@pytest.mark.parametrize("method", ["grappa", "cofree", "random-tma"])
def test_a_share_that_ranks_opened_trains_as_its_store(method, tmp_path):
    store.save(planted(), tmp_path / "s")
    run = {**SMALL, "method": method, "evaluate": "none"}

    def rank(comm):
        share = bs.load(tmp_path / "s", world=comm)
        return [bs.train(one, comm=None if one is share else comm, **run)["train_loss"] for one in (share, tmp_path / "s")]

    assert all(of_share == of_store for of_share, of_store in on_threads(3, rank))


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are not listed here")
@pytest.mark.parametrize("method", ["grappa", "cofree", "random-tma"])
def test_a_run_leaves_no_file_of_its_store_open(method, tmp_path):
    """Without a circle of references, the files are closed before anybody collects garbage."""
    store.save(planted(), tmp_path / "s")

    def mapped():
        return sum(f"{tmp_path}/" in os.path.realpath(f"/proc/self/fd/{one}") for one in os.listdir("/proc/self/fd"))

    gc.disable()
    try:
        on_threads(3, lambda comm: bs.train(tmp_path / "s", comm=comm, **{**SMALL, "method": method, "epochs": 2}) and None)
        assert mapped() == 0
    finally:
        gc.enable()


def test_grappa_without_weights_trains_in_time_and_draws_nothing_later():
    def rank(comm):
        trainer = made(planted(times=True), comm, **GRAPPA, seed_weights="none")
        steps = [batch.minibatch for batch in trainer.context.batches if batch.minibatch is not None]
        return [(one.latest, one.rows["paper"].seed_times) for one in steps]

    found = [pair for pairs in on_threads(2, rank) for pair in pairs]
    assert found
    assert all((latest <= times.max()).all() for latest, times in found if latest is not None)

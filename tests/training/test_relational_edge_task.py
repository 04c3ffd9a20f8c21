"""Labels of pairs between vertex types: examples, losses and scores against dense products over the past, by ranks, and refusals."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from communities import community_graph
from labelled_edges import KINDS, METRICS, SPLITS, decoded, mean_loss, pairs_table, trained
from planted_relations import all_sage_rows, shop, until, without_parallel_edges
from recorder import losses_of_processes
from sweeps import sweep
from training_runs import weights_of

from bulksample import DataError, Graph, UsageError, VertexType, relation_from_edges
from bulksample.data import store
from bulksample.distributed.comm.threads import on_threads
from bulksample.sparse import fixed_point

BUYS, KNOWS = "user:buys:item", "user:knows:user"
QUICK = {
    "model": "hetero-sage", "fanouts": (4, 3), "hidden": 8, "epochs": 1, "batch_size": 16, "dropout": 0.0, "threads": 1, "quiet": True,
    "target_relation": BUYS,
}  # fmt: skip
ALL = {"sampler": "full", "fanouts": (-1, -1)}
TIMES = [{}, {"times": True}, {"edge_times": True}]
USERS, ITEMS = np.arange(60) % 4, np.arange(40) % 4  # the groups of `shop`


def made_of(kind="class", relation=BUYS, time=True, features=2, m=200):
    """Pairs of the ends of a relation, at times of their own."""
    table = pairs_table(USERS, kind, m, features, ITEMS if relation == BUYS else None)
    return table | ({"time": np.random.default_rng(2).integers(5, 45, m)} if time else {})


def run(source, table, comm=None, **options):
    return trained(source, table, comm, **{**QUICK, **options})


def loader_of(source, table, comm=None, **options):
    return run(source, table, comm, **{**options, "epochs": 0})[2].context.batches.loader


def outputs(graph, model, table, rows, relation=BUYS):
    """The outputs of rows of a table by dense products over what was known at the time of each, then the perceptron."""
    source, _, destination = relation.split(":")
    times = table["time"][rows].tolist() if "time" in table else [None] * len(rows)
    past = {t: all_sage_rows(until(graph, t), model.encoder) for t in set(times)}
    one, other = (
        torch.stack([past[t][name][v] for t, v in zip(times, table[end][rows].tolist(), strict=True)])
        for name, end in ((source, "source"), (destination, "destination"))
    )
    with torch.no_grad():
        return decoded(model, one, other, table["features"][rows] if "features" in table else None)


# ---- mini-batches


@pytest.mark.parametrize("relation", [BUYS, KNOWS])
@pytest.mark.parametrize("kind", TIMES)
def test_the_seeds_of_a_minibatch_are_the_ends_of_its_rows_at_their_times(kind, relation):
    table, epochs = made_of(relation=relation, time=bool(kind)), []
    loader = loader_of(shop(**kind), table, target_relation=relation)
    for _ in range(2):
        epoch = list(loader)
        for one in epoch:
            assert one.seeds.tolist() == [*table["source"][one.examples], *table["destination"][one.examples]]
            if not kind:
                assert all(part.seed_times is None for part in one.rows.values())
                continue
            places = np.concatenate([part.seed_trees for part in one.rows.values()])
            stamps = np.concatenate([part.seed_times for part in one.rows.values() if part.seed_times is not None])
            assert stamps[np.argsort(places)].tolist() == 2 * table["time"][one.examples].tolist()
        epochs.append(np.concatenate([one.examples for one in epoch]).tolist())
        assert sorted(epochs[-1]) == np.flatnonzero(table["split"] == "train").tolist()
    assert epochs[0] != epochs[1]


def test_minibatches_depend_on_no_rank_and_no_bulk():
    graph, table = shop(edge_times=True), made_of()
    whole = [(one.digest(), one.examples.tolist()) for one in loader_of(graph, table, bulk_size=4)]
    assert [(one.digest(), one.examples.tolist()) for one in loader_of(graph, table, bulk_size=1)] == whole
    shares = on_threads(2, lambda comm: list(loader_of(graph, table, comm)))
    assert [(m.digest(), m.examples.tolist()) for pair in zip(*shares, strict=True) for m in pair if m is not None] == whole


@pytest.mark.parametrize("sampler", [ALL, {}, {"sampler": "labor", "fanouts": (4, 3)}, {"strict": True}, {"strategy": "last"}], ids=str)
@pytest.mark.parametrize("kind", TIMES[1:])
def test_nothing_later_than_a_pair_is_drawn_for_its_ends(kind, sampler):
    loader, some = loader_of(without_parallel_edges(shop(**kind)), made_of(), **sampler), 0
    loader._sampler = replace(loader._sampler, entries=True)
    for one in loader:
        asked = np.zeros(len(one.latest), np.int64)
        for part in one.rows.values():
            asked[part.seed_trees] = part.seed_times
        assert (one.latest < asked + (not sampler.get("strict"))).all()
        some += np.count_nonzero(one.latest >= 0)
    assert some > 100


# ---- examples that are edges of the graph


def friends():
    """One type and a symmetric relation: pairs meet again and again, each time in both directions."""
    rng = np.random.default_rng(5)
    person = VertexType("person", 24, rng.normal(size=(24, 3)).astype(np.float32))
    u = rng.integers(0, 24, 150)
    v = (u + rng.integers(1, 4, 150)) % 24
    both = np.concatenate([u, v]), np.concatenate([v, u])
    meets = relation_from_edges(person, "meets", person, *both, times=np.tile(np.arange(150) // 2, 2))
    return Graph.of((person,), (meets,), "friends").validate()


def edges_as_pairs(graph, name):
    """The edges of a relation with their times, and random classes; each third is asked about a little later than it came to be."""
    relation, rng = graph.relation(name), np.random.default_rng(1)
    a = relation.adjacency
    table = {"source": a.indices.astype(np.int64), "destination": a.row_of_entry(), "label": rng.integers(0, 2, a.nnz)}
    table["split"] = np.full(a.nnz, "train")
    return table if relation.times is None else table | {"time": relation.times + (np.arange(a.nnz) % 3 == 0)}


@pytest.mark.parametrize(("exclude", "cleared"), [("none", {}), ("self", {"buys": [1]}), ("both", {"buys": [1], "rev_buys": [-1]})])
@pytest.mark.parametrize("kind", [{}, {"edge_times": True}])
def test_the_examples_of_a_minibatch_are_not_among_its_edges(kind, exclude, cleared):
    check_cleared(shop(**kind), BUYS, exclude, cleared)


@pytest.mark.parametrize(("exclude", "ways"), [("self", [1]), ("both", [1, -1])])
def test_both_directions_of_an_undirected_relation_are_no_edges(exclude, ways):
    check_cleared(friends(), "person:meets:person", exclude, {"meets": ways})


def check_cleared(graph, name, exclude, cleared):
    """Brute force: of all sampled edges, those go that are examples of the mini-batch at their very time, in the given directions."""
    table, lost, kept_past = edges_as_pairs(graph, name), 0, 0
    asked = {**ALL, "target_relation": name}
    all_of_it = loader_of(graph, table, **asked)
    all_of_it._sampler = replace(all_of_it._sampler, entries=True)
    for found, whole in zip(loader_of(graph, table, exclude_targets=exclude, **asked), all_of_it, strict=True):
        columns = [table[key][found.examples].tolist() for key in ("source", "destination", "time") if key in table]
        targets = set(zip(*columns, strict=True))
        for layer, of_layer in enumerate(whole.layers):
            for key, block in of_layer.items():
                own, relation, expected = found.layers[layer][key], graph.relation(key), []
                row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
                ends = whole.rows[key[0]].vertices[block.indices].tolist(), whole.rows[key[2]].vertices[row].tolist()
                stamps = [] if "time" not in table else [relation.times[whole.entries[layer][key]].tolist()]
                for u, v, *t in zip(*ends, *stamps, strict=True):
                    ways = [(u, v)[::way] for way in cleared.get(key[1], [])]
                    expected.append(not any((*pair, *t) in targets for pair in ways))
                    kept_past += expected[-1] and any(pair == target[:2] for pair in ways for target in targets)
                assert own.indices.tolist() == block.indices[expected].tolist()
                assert np.diff(own.indptr).tolist() == np.bincount(row[expected], minlength=block.num_destinations).tolist()
                lost += len(expected) - sum(expected)
    assert (lost > 0) == bool(cleared)
    assert (kept_past > 0) == bool(cleared and "time" in table)


# ---- losses and scores


@pytest.mark.parametrize("kind", TIMES)
@pytest.mark.parametrize("target", KINDS)
def test_the_loss_is_that_of_dense_rows_of_the_past(kind, target):
    graph, table = shop(**kind), made_of(target, time=bool(kind))
    made = run(graph, table, epochs=0, **ALL)[2]
    for batch in made.context.batches:
        loss, count = made.method.loss(made.context, batch)
        rows = batch.minibatch.examples
        expected = mean_loss(target, outputs(graph, made.model, table, rows), table["label"][rows])
        assert (loss / count).item() == pytest.approx(expected.item(), rel=1e-4)


@pytest.mark.parametrize("evaluate", ["exact", "sampled"])
@pytest.mark.parametrize("kind", TIMES)
@sweep(("target", "metric", "formula", "relation"), [
    ("regression", "r2", "r2", BUYS), ("class", "f1", "f1", BUYS), ("multilabel", "rocauc", "rocauc", KNOWS),
    ("class", "rocauc", "margin", KNOWS),
], quick=2)  # fmt: skip
def test_scores_are_those_of_dense_products_over_the_past(kind, evaluate, target, metric, formula, relation):
    graph, table = shop(**kind), made_of(target, relation, time=bool(kind))
    more = {"eval_fanouts": (500, 500)} if evaluate == "sampled" else {}
    report, _, trainer = run(graph, table, metric=metric, evaluate=evaluate, lr=0.03, target_relation=relation, **more)
    for split in SPLITS:
        rows = np.flatnonzero(table["split"] == split)
        logits = outputs(graph, trainer.model, table, rows, relation)
        assert report[f"{split}_{metric}"] == pytest.approx(METRICS[formula](table["label"][rows], logits), abs=1e-4)


def test_eval_seeds_are_pairs_of_a_split():
    graph, table = shop(edge_times=True), made_of("regression")
    asked = {"evaluate": "sampled", "eval_fanouts": (500, 500)}
    some = [run(graph, table, **asked, eval_seeds=m)[0]["test_mae"] for m in (5, 5, 10**6)]
    assert some[0] == some[1] != some[2]
    assert some[2] == pytest.approx(run(graph, table)[0]["test_mae"], rel=1e-5)


STILL = {"lr": 1e-30, "metric": "mae"}  # the first weights, whatever the graph is


def one_test_pair(time):
    """A table whose first row, of user 0 and item 0, is the only one of the test split."""
    table, first = made_of("regression"), np.arange(200) == 0
    asked = {"source": 0, "destination": 0, "time": time, "split": "test"}
    table["split"][table["split"] == "test"] = ""
    return {**table, **{key: np.where(first, value, table[key]) for key, value in asked.items()}}


@pytest.mark.parametrize("evaluate", ["exact", "sampled"])
@pytest.mark.parametrize(("time", "moves"), [(24, True), (25, True), (26, False)])
def test_a_score_reads_no_later_edge(time, moves, evaluate):
    graph, table = shop(edge_times=True), one_test_pair(25)
    user, item = graph.types
    a, times = graph.relation("rev_buys").adjacency, graph.relation("rev_buys").times
    ends = np.append(a.indices, 1), np.append(a.row_of_entry(), 0)  # an item of another group
    added = relation_from_edges(item, "rev_buys", user, *ends, times=np.append(times, time))
    other = replace(graph, relations=(graph.relations[0], added, graph.relations[2]))
    asked = {**STILL, "evaluate": evaluate, **({"eval_fanouts": (500, 500)} if evaluate == "sampled" else {})}
    before, after = (run(one, table, **asked)[0]["test_mae"] for one in (graph, other))
    assert (before != after) == moves
    assert run(graph, {**table, "time": table["time"] + 100}, **asked)[0]["test_mae"] != before


def test_a_score_reads_no_later_vertex():
    graph, table, found = shop(times=True), one_test_pair(10), {}
    user, item = graph.types
    for late in (True, False):
        x = np.where((item.times > 10)[:, None] == late, item.features + 1, item.features)
        found[late] = run(replace(graph, types=(user, replace(item, features=x))), table, **STILL)[0]["test_mae"]
    assert found[True] == run(graph, table, **STILL)[0]["test_mae"] != found[False]


# ---- learning, ranks and placements


@pytest.mark.parametrize("target", KINDS)
@sweep(("kind", "model"), [({}, "hetero-sage"), ({"edge_times": True}, "hetero-sage"), ({"times": True}, "hetero-gat")])
def test_it_learns(kind, model, target):
    table = made_of(target, time=bool(kind), m=800, features=0)
    report = run(shop(**kind), table, model=model, epochs=20, lr=0.02, eval_every=20, batch_size=64, hidden=16)[0]
    least = {"class": ("test_accuracy", 0.85), "multilabel": ("test_rocauc", 0.9), "regression": ("test_r2", 0.7)}[target]
    assert report[least[0]] > least[1]


@pytest.mark.parametrize("kind", [{}, {"edge_times": True}])
def test_two_ranks_make_the_steps_and_the_scores_of_one(kind):
    graph, table = shop(**kind), made_of("multilabel", time=bool(kind))
    alone = run(graph, table, virtual_ranks=2, dropout=0.3)
    ranks = on_threads(2, lambda comm: run(graph, table, comm, dropout=0.3))
    assert all(torch.equal(weights_of(trainer), weights_of(alone[2])) for _, _, trainer in ranks)
    assert ranks[0][0]["test_rocauc"] == pytest.approx(alone[0]["test_rocauc"], abs=0.01)


def scores_of(report):
    return {name: value for name, value in report.items() if name.startswith(SPLITS) and isinstance(value, float)}


@sweep("options", [
    {"edge_times": True, "exclude_targets": "both"}, {"times": True, "partition": "random"}, {"features": "replicated"},
    {"target_relation": KNOWS, "edge_times": True, "partition": "random", "strict": True}, {"edge_times": True, "exchange": "rows"},
    {"topology": "replicated"}, {"features": "host"},
], quick=2, ids=str)  # fmt: skip
@pytest.mark.parametrize(("p", "c"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.long)])
def test_relations_in_block_rows_train_as_whole_ones(p, c, options, tmp_path):
    kind, asked = ({k: v for k, v in options.items() if (k in ("times", "edge_times")) == of_graph} for of_graph in (True, False))
    graph, table = shop(**kind), made_of("regression", asked.get("target_relation", BUYS), bool(kind))
    store.save(graph, tmp_path / "g")
    alone = {k: v for k, v in asked.items() if k in ("exclude_targets", "target_relation", "strict")}
    whole = on_threads(p, lambda comm: run(graph, table, comm, **alone)[:2])[0]
    placed = {"topology": "partitioned", "features": "partitioned", "replication": c, **asked}
    if placed["topology"] == "replicated":
        del placed["replication"]
    for source in (graph, tmp_path / "g"):
        report, recorder = on_threads(p, lambda comm, source=source: run(source, table, comm, **placed)[:2])[0]
        assert recorder.losses == pytest.approx(whole[1].losses, rel=1e-5)
        assert scores_of(report) == pytest.approx(scores_of(whole[0]), rel=1e-3)


@pytest.mark.long
def test_processes_with_learned_rows_of_their_own_train_as_one_rank(tmp_path):
    user, item = shop(edge_times=True).types
    graph = replace(shop(edge_times=True), types=(user, replace(item, features=None)))
    table = made_of()
    np.savez(tmp_path / "pairs.npz", **table)
    store.save(graph, tmp_path / "g")
    asked = {**QUICK, "task": "edges", "virtual_ranks": 2, "edge_labels": str(tmp_path / "pairs.npz")}
    losses = losses_of_processes(2, tmp_path / "g", **asked, topology="partitioned", features="partitioned")
    assert losses == pytest.approx(run(graph, table, virtual_ranks=2)[1].losses, rel=1e-5)


def test_a_resumed_run_is_the_uninterrupted_one(tmp_path):
    graph, table = shop(edge_times=True), made_of()
    whole = run(graph, table, epochs=3, dropout=0.5)
    asked = {"dropout": 0.5, "checkpoint": str(tmp_path / "kept")}
    run(graph, table, **asked)
    rest = run(graph, table, epochs=3, resume="auto", **asked)
    assert torch.equal(weights_of(rest[2]), weights_of(whole[2]))
    with pytest.raises(UsageError, match="saved with another table edge_labels"):
        run(graph, {**table, "time": table["time"] + 1}, epochs=4, resume="auto", **asked)


def test_balanced_classes_and_the_lengths_of_epochs():
    graph, table = shop(edge_times=True), made_of(m=400)
    few = np.flatnonzero((table["split"] == "train") & (table["label"] == 1))[6:]
    table["split"][few] = ""
    loader = loader_of(graph, table, balance_classes=True, drop_last=True, steps_per_epoch=5)
    drawn = np.concatenate([one.examples for _ in range(20) for one in loader])
    assert len(drawn) == 20 * 5 * 16
    assert set(drawn) <= set(np.flatnonzero(table["split"] == "train"))
    assert abs(table["label"][drawn].mean() - 0.5) < 0.07
    for one in loader:
        assert one.seeds.tolist() == [*table["source"][one.examples], *table["destination"][one.examples]]


# ---- refusals


@pytest.mark.parametrize(("kind", "options", "message"), [
    ({}, {"target_relation": None}, "target_relation: graph 'shop' has 3 relations, user:buys:item, item:rev_buys:user, user:knows:user"),
    ({}, {"target_relation": "user:sells:item"}, "sells"), ({}, {"target_type": "user"}, "target_type is an option of the task nodes"),
    ({}, {"seed_times": "x"}, "seed_times is an option of the task nodes"), ({}, {"strict": True}, "strict: graph 'shop' has no times"),
    ({}, {"sampler": "ladies"}, "ends of edges draw node by node, and without weights; got sampler ladies"),
    ({}, {"sampler": "saint"}, "sampler saint"), ({}, {"metric": "mrr"}, "the metric 'mrr' does not suit the task 'edges'"),
    ({}, {"target_relation": KNOWS, "exclude_targets": "both"}, "got both, and no relation is the reverse of .*knows.*; use self"),
    ({}, {"target_relation": "item:rev_buys:user"}, r"row \d+ has source \d+, and type 'item' has 40 vertices: use 0 to 39"),
    ({}, {"method": "psgd-pa"}, "labelled edges are predicted with method sync"),
    ({}, {"exchange": "rows", "graph": "replicated"}, "exchange is for a topology in block rows; got rows"),
    ({"times": True}, {"time_by": "edges"}, "time_by"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(kind, options, message):
    table = made_of(time=bool(kind), relation=KNOWS if options.get("target_relation") == KNOWS else BUYS)
    with pytest.raises((UsageError, DataError), match=message):
        run(shop(**kind), table, **options)


@pytest.mark.parametrize("place", [{}, {"graph": "partitioned"}])
@pytest.mark.parametrize("kind", TIMES)
def test_times_of_the_graph_alone_or_of_the_table_alone_are_refused(kind, place):
    found = "has times, but edge_labels pairs has no column 'time', so it is unknown when a pair was asked about; give the time"
    if not kind:
        found = "edge_labels pairs: has a column 'time', and graph 'shop' has no times that count; leave the column out"

    def refused(comm):
        with pytest.raises(UsageError, match=found):
            run(shop(**kind), made_of(time=not kind), comm, **place)
        return True

    assert all(on_threads(2, refused))


def test_weights_of_edges_suit_no_labor():
    graph = shop()
    buys = graph.relations[0]
    weights, unit = fixed_point(np.linspace(0.5, 2, buys.edges), 60)
    weighted = replace(buys, adjacency=buys.adjacency.with_values(weights), weight_unit=unit)
    with pytest.raises(UsageError, match=r"labor draws by them; .*buys.* has weights: use sage"):
        run(replace(graph, relations=(weighted, *graph.relations[1:])), made_of(time=False), sampler="labor")


def test_the_only_relation_needs_no_name():
    graph = friends()
    table = pairs_table(np.arange(24) % 2, m=100) | {"time": np.full(100, 60)}
    assert run(graph, table, target_relation=None)[1].losses == run(graph, table, target_relation="person:meets:person")[1].losses


def test_a_plain_graph_has_one_relation():
    graph, asked = community_graph(n=100), {"fanouts": (3, 3)}
    table = pairs_table(graph.labels, m=100)
    losses = [run(graph, table, **asked, target_relation=name)[1].losses for name in (None, "node:to:node", "to")]
    assert losses[0] == losses[1] == losses[2]
    with pytest.raises(UsageError, match=r"no relation\(s\) 'user:buys:item'; use one of node:to:node"):
        run(graph, table, **asked)

"""Link prediction on a relation: examples, losses and scores against dense products, in time, by ranks, and what is refused."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from planted_relations import all_sage_rows, shop, until
from training_runs import run_training, weights_of

from bulksample import DataError, Graph, UsageError, VertexType, relation_from_edges
from bulksample.data.held_out_links import HELD_OUT
from bulksample.data.link_split import hold_out
from bulksample.distributed.comm.threads import on_threads
from bulksample.graph.links import link_times

BUYS = ("user", "buys", "item")
QUICK = {
    "model": "hetero-sage", "task": "links", "fanouts": (4, 3), "hidden": 8, "epochs": 1, "batch_size": 32, "dropout": 0.0, "threads": 1,
    "quiet": True,
}  # fmt: skip
KINDS = [{}, {"times": True}, {"edge_times": True}]


def split(**kind):
    return hold_out(shop(**kind), BUYS, 0.1, 0.2, 8, seed=0)


def trained(source, comm=None, **options):
    report, _, trainer = run_training(source, comm, **{**QUICK, **options})
    return report, trainer


def loader_of(source, **options):
    return trained(source, epochs=0, **options)[1].context.batches.loader


def rank_by_hand(graph, trainer, pair, others, t):
    """The rank of a pair by dense products over the past."""
    rows = all_sage_rows(until(graph, t), trainer.model.encoder)
    with torch.no_grad():
        score = trainer.model.score
        true, false = score(rows["user"][pair[0]], rows["item"][pair[1]]), score(rows["user"][pair[0]][None], rows["item"][others])
    return 1 + int((false > true + 1e-5).sum()) + 0.5 * int(((false - true).abs() <= 1e-5).sum())


@pytest.mark.parametrize("evaluate", ["exact", "sampled"])
@pytest.mark.parametrize("kind", KINDS)
def test_scores_are_those_of_dense_products_over_the_past(kind, evaluate):
    graph = split(**kind)
    more = {"eval_fanouts": (500, 500)} if evaluate == "sampled" else {}
    report, trainer = trained(graph, metric="hits@3", evaluate=evaluate, lr=0.03, **more)
    held = graph.held_out
    for part in HELD_OUT:
        times = [None] * 1000 if held.times is None else held.times[part].tolist()
        rows = zip(held.pairs[part], held.negatives[part], times, strict=False)
        found = np.array([rank_by_hand(graph, trainer, *row) for row in rows])
        assert report[f"{part}_mrr"] == pytest.approx((1 / found).mean(), abs=1e-6)
        assert report[f"{part}_hits@3"] == pytest.approx((found <= 3).mean())
        assert f"{part}_hits@10" in report


def test_eval_seeds_are_edges_of_a_split():
    graph = split()
    some = [trained(graph, evaluate="sampled", eval_fanouts=(500, 500), eval_seeds=m)[0]["test_mrr"] for m in (5, 5, 10**6)]
    assert some[0] == some[1] != some[2]
    assert some[2] == pytest.approx(trained(graph, evaluate="exact")[0]["test_mrr"], abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_examples_are_all_edges_once_with_negatives_that_exist(kind):
    graph = split(**kind)
    a, epochs, loader = graph.relation(BUYS).adjacency, [], loader_of(graph)
    joined = set(zip(a.indices.tolist(), a.row_of_entry().tolist(), strict=True))
    for _ in range(2):
        ends, stamps = [], []
        for minibatch in loader:
            ends.append(minibatch.seeds.reshape(3, -1))
            rows = minibatch.rows
            stamps += [] if not kind else [np.sort(rows["user"].seed_times)]
            for name in ("user", "item"):
                assert (minibatch.rows[name].seed_times is None) == (not kind)
        source, destination, other = np.concatenate(ends, axis=1).tolist()
        assert sorted(zip(destination, source, strict=True)) == list(zip(a.row_of_entry().tolist(), a.indices.tolist(), strict=True))
        wrong, born = joined & set(zip(source, other, strict=True)), graph.type("item").times
        for u, w in wrong:  # nothing else existed then
            t = max(graph.type("user").times[u], born[destination[list(zip(source, other, strict=True)).index((u, w))]])
            assert {v for v in range(40) if born[v] <= t} <= {v for one, v in joined if one == u}
        assert len(wrong) < 0.2 * len(source)
        assert kind == {"times": True} or not wrong
        epochs.append(other)
        if kind == {"times": True}:
            born, users = graph.type("item").times, graph.type("user").times
            asked = np.maximum(users[source], born[destination])
            assert (born[other] <= asked).all()
            assert (np.sort(np.concatenate(stamps)) == np.sort(asked)).all()
        if kind == {"edge_times": True}:
            assert (np.sort(np.concatenate(stamps)) == np.sort(graph.relation(BUYS).times)).all()
    assert epochs[0] != epochs[1]


def test_examples_depend_on_no_rank_and_no_bulk():
    graph = split(edge_times=True)
    whole = [minibatch.seeds for minibatch in loader_of(graph, bulk_size=4)]
    assert all(np.array_equal(one.seeds, other) for one, other in zip(loader_of(graph, bulk_size=1), whole, strict=True))
    shares = on_threads(2, lambda comm: [None if m is None else m.seeds for m in trained(graph, comm, epochs=0)[1].context.batches.loader])
    both = [seeds for pair in zip(*shares, strict=True) for seeds in pair if seeds is not None]
    assert all(np.array_equal(one, other) for one, other in zip(both, whole, strict=True))


@pytest.mark.parametrize("kind", KINDS)
def test_held_out_edges_and_later_ones_are_no_messages(kind):
    graph = split(**kind)
    held = {tuple(pair) for part in HELD_OUT for pair in graph.held_out.pairs[part].tolist()}
    for minibatch in loader_of(graph, fanouts=(50, 50), sampler="full"):
        whole = minibatch
        for of_layer in whole.layers:
            for key, block in of_layer.items():
                row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
                ends = whole.rows[key[0]].vertices[block.indices], whole.rows[key[2]].vertices[row]
                if key[1] != "knows" and not kind:
                    assert not held & set(zip(*(part.tolist() for part in ends[:: 1 if key[1] == "buys" else -1]), strict=True))
                if kind == {"times": True}:
                    tree = whole.rows[key[2]].trees[row]
                    asked = {int(t): int(s) for part in whole.rows.values() for t, s in zip(part.seed_trees, part.seed_times, strict=True)}
                    assert all(graph.type(key[0]).times[u] <= asked[t] for u, t in zip(ends[0].tolist(), tree.tolist(), strict=True))


@pytest.mark.parametrize(("exclude", "cleared"), [("none", ()), ("self", ("buys",)), ("both", ("buys", "rev_buys"))])
@pytest.mark.parametrize("kind", [{}, {"edge_times": True}])
def test_the_targets_of_a_minibatch_are_not_among_its_messages(kind, exclude, cleared):
    """Only edges of the same time are cleared where edges have times: an earlier purchase of the same item stays."""
    graph = split(**kind)
    options = {"sampler": "full", "fanouts": (-1, -1)}
    kept_past = lost = 0
    all_of_it = loader_of(graph, **options)
    all_of_it._sampler = replace(all_of_it._sampler, entries=True)
    for found, whole in zip(loader_of(graph, exclude_targets=exclude, **options), all_of_it, strict=True):
        source, destination, _ = found.seeds.reshape(3, -1).tolist()
        targets = set(zip(source, destination, strict=True))
        stamps = None
        if kind:
            rows = found.rows["user"]
            stamps = set(zip(source, destination, rows.seed_times[np.argsort(rows.seed_trees)].tolist(), strict=True))
        for layer in range(2):
            for key, block in whole.layers[layer].items():
                own = found.layers[layer][key]
                relation, rows = graph.relation(key), whole.rows
                row = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
                ends = rows[key[0]].vertices[block.indices].tolist(), rows[key[2]].vertices[row].tolist()
                pairs = list(zip(*(ends if key[1] != "rev_buys" else ends[::-1]), strict=True))
                if key[1] not in cleared:
                    expected = [True] * len(pairs)
                elif not kind:
                    expected = [pair not in targets for pair in pairs]
                else:
                    drawn = relation.times[whole.entries[layer][key]].tolist()
                    expected = [(*pair, t) not in stamps for pair, t in zip(pairs, drawn, strict=True)]
                    kept_past += sum(kept and pair in targets for kept, pair in zip(expected, pairs, strict=True))
                assert own.num_edges == sum(expected)
                assert own.indices.tolist() == block.indices[expected].tolist()
                lost += len(expected) - sum(expected)
    assert (lost > 0) == bool(cleared)
    assert (kept_past > 0) == bool(cleared and kind)


def friends():
    """One type and a symmetric relation: pairs meet again and again, each time in both directions."""
    rng = np.random.default_rng(5)
    person = VertexType("person", 24, rng.normal(size=(24, 3)).astype(np.float32))
    u = rng.integers(0, 24, 150)
    v = (u + rng.integers(1, 4, 150)) % 24
    when = np.arange(150) // 2
    both = np.concatenate([u, v]), np.concatenate([v, u])
    return Graph.of((person,), (relation_from_edges(person, "meets", person, *both, times=np.tile(when, 2)),), "friends").validate()


def test_no_direction_of_a_target_of_an_undirected_relation_is_a_message():
    """Brute force: of all sampled edges, those go that are a target of the mini-batch, or its reverse, at its very time."""
    graph, options = hold_out(friends(), "meets", 0.1, 0.2, 2, seed=0), {"sampler": "full", "fanouts": (-1, -1)}
    (relation,) = graph.relations
    assert graph.held_out.reverses == (relation.key,)
    kept_past = lost = 0
    all_of_it = loader_of(graph, **options)
    all_of_it._sampler = replace(all_of_it._sampler, entries=True)
    for found, whole in zip(loader_of(graph, exclude_targets="both", **options), all_of_it, strict=True):
        source, destination, _ = found.seeds.reshape(3, -1).tolist()
        rows = whole.rows["person"]
        stamps = rows.seed_times[np.argsort(rows.seed_trees)].tolist()[: len(source)]
        targets = set(zip(source, destination, stamps, strict=True)) | set(zip(destination, source, stamps, strict=True))
        for layer in range(2):
            block, own = whole.layers[layer][relation.key], found.layers[layer][relation.key]
            expected = []
            for v in range(block.num_destinations):
                for i in range(block.indptr[v], block.indptr[v + 1]):
                    edge = int(rows.vertices[block.indices[i]]), int(rows.vertices[v])
                    t = int(relation.times[whole.entries[layer][relation.key][i]])
                    gone = (*edge, t) in targets
                    kept_past += not gone and any(edge == one[:2] for one in targets)
                    lost += gone
                    expected += [] if gone else [(v, int(block.indices[i]))]
            row = np.repeat(np.arange(own.num_destinations), np.diff(own.indptr)).tolist()
            assert list(zip(row, own.indices.tolist(), strict=True)) == expected
    assert lost
    assert kept_past


def test_the_loss_is_binary_cross_entropy_of_dense_rows():
    graph = split()
    options = {"sampler": "full", "fanouts": (-1, -1), "batch_size": 10**6, "evaluate": "none"}
    report, _ = trained(graph, **options)
    fresh = trained(graph, **{**options, "epochs": 0})[1]
    (minibatch,) = fresh.context.batches.loader
    source, destination, other = minibatch.seeds.reshape(3, -1).tolist()
    rows = all_sage_rows(graph, fresh.model.encoder)
    true, false = ((rows["user"][source] * rows["item"][ends]).sum(1) for ends in (destination, other))
    truth = torch.cat([torch.ones(len(true)), torch.zeros(len(false))])
    assert report["train_loss"] == pytest.approx(F.binary_cross_entropy_with_logits(torch.cat([true, false]), truth).item(), rel=1e-5)


@pytest.mark.parametrize("options", [
    {}, pytest.param({"model": "hetero-gat", "decoder": "mlp"}, marks=pytest.mark.long),
    pytest.param({"exclude_targets": "both"}, marks=pytest.mark.long),
])  # fmt: skip
@pytest.mark.parametrize("kind", [{}, pytest.param({"edge_times": True}, marks=pytest.mark.long)])
def test_it_learns(kind, options):
    report = trained(split(**kind), epochs=15, lr=0.02, eval_every=15, **options)[0]
    assert report["test_mrr"] > 0.5, "a decoder that knows nothing has 0.31"


@pytest.mark.parametrize("kind", [{}, {"edge_times": True}])
def test_two_ranks_make_the_steps_and_the_scores_of_one(kind):
    graph = split(**kind)
    alone = trained(graph, virtual_ranks=2)
    reports = on_threads(2, lambda comm: trained(graph, comm))
    torch.testing.assert_close(weights_of(reports[0][1]), weights_of(alone[1]), rtol=1e-4, atol=1e-5)
    for report, _ in reports:
        assert report["test_mrr"] == pytest.approx(alone[0]["test_mrr"], abs=0.02)
        assert report["bytes_sent"]["activations"] > 0


def test_a_resumed_run_is_the_uninterrupted_one_and_a_store_is_the_graph(tmp_path):
    graph = split(edge_times=True)
    graph.save(tmp_path / "g")
    whole = trained(graph, epochs=3, dropout=0.5)
    trained(tmp_path / "g", epochs=1, dropout=0.5, checkpoint=str(tmp_path / "kept"))
    rest = trained(tmp_path / "g", epochs=3, dropout=0.5, checkpoint=str(tmp_path / "kept"), resume="auto")
    assert rest[0]["resumed"]
    assert torch.equal(weights_of(rest[1]), weights_of(whole[1]))
    assert rest[0]["test_mrr"] == whole[0]["test_mrr"]


@pytest.mark.parametrize(("options", "message"), [
    ({"target_type": "user"}, "target_type is an option of the task nodes"), ({"seed_times": "x"}, "seed_times is an option of the task"),
    ({"seeds": "all"}, "seeds is an option of the task nodes"), ({"metric": "accuracy"}, "use mrr, hits@10"),
    ({"strict": True}, "strict: graph 'shop' has no times"),
    ({"sampler": "ladies"}, "ends of edges draw node by node, and without weights; got sampler ladies"),
    ({"exchange": "rows", "graph": "replicated"}, "exchange is for a topology in block rows; got rows"),
])  # fmt: skip
def test_what_has_no_meaning_is_refused(options, message):
    with pytest.raises(UsageError, match=message):
        trained(split(), **options)


def test_graphs_without_held_out_links_are_refused(tmp_path):
    shop().save(tmp_path / "g")
    for source in (shop(), tmp_path / "g"):
        with pytest.raises(UsageError, match="split-edges"):
            trained(source)
    graph = split()
    user = replace(graph.types[0], times=None)
    knows = replace(graph.relation("knows"), times=np.arange(100))
    with pytest.raises(UsageError, match="and its ends have none, so it is unknown when a link was asked about"):
        trained(replace(graph, types=(user, graph.types[1]), relations=(*graph.relations[:2], knows)))


def test_links_before_all_destinations_are_refused_by_all_ranks_before_training():
    def late(graph):
        user, item = graph.types
        return replace(graph, types=(user, replace(item, times=np.full(item.count, 9))))

    with pytest.raises(DataError, match=r"of relation user:buys:item have times before 9"):
        hold_out(late(shop(edge_times=True)), BUYS, 0.1, 0.2, 8, seed=0)
    graph = late(split(edge_times=True))
    assert (graph.held_out.times["val"] > 9).all()

    def said(comm):
        with pytest.raises(DataError, match="have times before") as caught:
            trained(graph, comm, epochs=0, time_by="edges")
        return str(caught.value)

    early = int((graph.relation(BUYS).times < 9).sum())
    first, other = on_threads(2, said)
    assert first == other
    assert first.startswith(f"{early} edges of relation user:buys:item have times before 9")


@pytest.mark.parametrize("kind", KINDS)
def test_the_targets_have_the_attributes_of_their_documentation(kind):
    targets = trained(split(**kind), epochs=0)[1].context.view.targets
    names = re.findall(r"^    (\w+) :", type(targets).__doc__.partition("Attributes\n")[2], re.MULTILINE)
    assert names == ["links"]
    stamps = link_times(targets.graph, targets.relation)
    assert stamps is None if not kind else np.array_equal(targets.links.times, stamps)


def test_a_damaged_file_of_links_is_refused(tmp_path):
    split().save(tmp_path / "g")
    raw = bytearray((tmp_path / "g" / "links.npz").read_bytes())
    raw[len(raw) // 2] ^= 1
    (tmp_path / "g" / "links.npz").write_bytes(bytes(raw))
    with pytest.raises(DataError, match=r"links\.npz"):
        trained(tmp_path / "g")

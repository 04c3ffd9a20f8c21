"""Batches of several vertex types as tensors, in the words of torch_geometric, in groups of seeds, and fetched several at a time."""

import pickle
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain

import numpy as np
import pytest
import torch
from test_shared_hetero_loader import SEEDS, TIMES, columns, loader
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer

import bulksample as bs
from bulksample import UsageError, samplers
from bulksample.distributed.comm.threads import on_threads
from bulksample.samplers.hgt import HGSampler

GRAPH = columns("none")
CITES, HOSTS = ("paper", "cites", "paper"), ("venue", "hosts", "paper")


def batches(times=False, **options):
    graph, more = (columns("vertices"), {"times": TIMES}) if times else (GRAPH, {})
    return graph, list(loader(graph, **more, **options))


@pytest.mark.parametrize("frontier", ["all", "new"])
def test_a_batch_on_a_device_is_the_batch(frontier):
    made = loader(GRAPH, frontier=frontier)
    for batch, tensors in zip(list(made), loader(GRAPH, frontier=frontier).to("cpu"), strict=True):
        assert (batch.id, batch.epoch, batch.digest()) == (tensors.id, tensors.epoch, tensors.digest())
        for name in ("vertices", "seeds", "seed_rows", "x_dict", "y_dict", "edge_index_dict", "e_id_dict", "edge_attr_dict"):
            arrays, found = getattr(batch, name), getattr(tensors, name)
            assert list(arrays) == list(found)
            for key, array in arrays.items():
                np.testing.assert_array_equal(found[key].numpy(), array)
        for layer, blocks in enumerate(batch.blocks):
            for key, block in blocks.items():
                own, entries = tensors.blocks[layer][key], batch.minibatch.entries[layer][key]
                assert own.edge_index.shape == (2, block.num_edges)
                assert tensors.e_id[layer][key].tolist() == GRAPH.relation(key).ids_of(entries).tolist()
            assert tensors.edge_attr[layer][CITES][:, 0].tolist() == batch.minibatch.entries[layer][CITES].tolist()
        again = pickle.loads(pickle.dumps(tensors))
        assert torch.equal(again.x_dict["paper"], tensors.x_dict["paper"])
        assert torch.equal(again.e_id[1][HOSTS], tensors.e_id[1][HOSTS])


def test_names_of_earlier_versions_warn_and_give_arrays_by_type():
    plain = bs.from_edges([0, 1, 2], [1, 2, 0], x=np.ones((3, 2)))
    with pytest.warns(DeprecationWarning, match=r"HeteroLoader\(\.\.\.\) goes with version 0\.3; use Loader\(\.\.\., as_dicts=True\)"):
        made = bs.HeteroLoader(plain, "sage", [2], batch_size=3, threads=1)
    (old,), (new,), (flat,) = (
        list(one) for one in (made, *(loader(plain, seeds=None, fanouts=[2], seed=0, as_dicts=d) for d in (True, False)))
    )
    assert old.digest() == new.digest() != flat.digest()
    assert isinstance(old, bs.HeteroBatch)
    assert not isinstance(flat, bs.HeteroBatch)
    assert type(old.x_dict["node"]) is np.ndarray
    with pytest.raises(UsageError, match="mini-batches of the plain graph 'graph' have no dicts; make the loader with as_dicts=True"):
        flat.x_dict  # noqa: B018


def test_a_loader_on_a_device_has_the_position_of_its_loader():
    made = loader(GRAPH)
    moved = made.to()
    assert len(moved) == len(made)
    next(iter(moved))
    rest = loader(GRAPH).to()
    rest.load_state_dict(moved.state_dict())
    assert [batch.digest() for batch in rest] == [batch.digest() for batch in loader(GRAPH)][1:]
    moved.epoch = 3
    assert made.epoch == 3


@pytest.mark.parametrize("layout", ["edge_index", "adj_t"])
def test_one_set_of_edges_is_hetero_data(layout):
    """Features of cited papers name the papers, so sums by torch_geometric are those by the graph."""
    torch.manual_seed(0)
    conv = SAGEConv(3, 4)
    for batch in batches(frontier="new", seeds={"paper": np.arange(40), "venue": np.array([1, 6])})[1]:
        data, rows = batch.to_pyg(layout), batch.minibatch.rows
        assert data["paper"].n_id.tolist() == rows["paper"].vertices.tolist()
        assert set(data.node_types) == set(rows)
        for name in batch.seeds:
            assert data[name].input_id.tolist() == data[name].n_id[: data[name].batch_size].tolist()
        if "venue" in batch.seeds:
            assert data["venue"].y.tolist() == [int(v) % 2 for v in data["venue"].input_id]
        assert sum(data["paper"].num_sampled_nodes) == data["paper"].num_nodes == len(data["paper"].x)
        assert data[CITES].edge_attr[:, 0].tolist() == batch.minibatch.entries[0][CITES].tolist()
        relation, edges = GRAPH.relation(CITES), data[CITES].adj_t if layout == "adj_t" else data[CITES].edge_index
        entry = np.argsort(relation.edge_ids)[data[CITES].e_id]
        mean = torch.zeros(data["paper"].num_nodes, 3)
        into = np.searchsorted(relation.adjacency.indptr, entry, side="right") - 1
        for v in np.unique(into):
            place = int(np.flatnonzero(rows["paper"].vertices == v)[0])
            cited = relation.adjacency.indices[entry[into == v]]
            mean[place] = torch.from_numpy(GRAPH.type("paper").features[cited].mean(axis=0))
        torch.testing.assert_close(conv(data["paper"].x, edges), conv.lin_l(mean) + conv.lin_r(data["paper"].x))
        if layout == "edge_index":
            data.validate()
            nodes, ends = (
                {key: data[key][of] for key in keys}
                for keys, of in ((data.node_types, "num_sampled_nodes"), (data.edge_types, "num_sampled_edges"))
            )
            x, _, _ = trim_to_layer(1, nodes, ends, {"paper": data["paper"].x}, {CITES: data[CITES].edge_index})
            assert len(x["paper"]) == sum(data["paper"].num_sampled_nodes[:-1])


def test_layers_with_edges_of_their_own_are_listed_by_relation():
    for batch in batches()[1]:
        data = batch.to_pyg()
        assert len(data.adjs) == len(batch.blocks) == 2
        for layer, blocks in enumerate(batch.blocks):
            for key, block in blocks.items():
                adj = data.adjs[layer][key]
                assert adj.size == (block.num_sources, block.num_destinations)
                assert adj.edge_index[0].tolist() == block.indices.tolist()
                assert np.bincount(adj.edge_index[1], minlength=block.num_destinations).tolist() == np.diff(block.indptr).tolist()
                assert adj.e_id.tolist() == batch.e_id[layer][key].tolist()
            assert data.layer_edge_attr[layer][CITES].tolist() == batch.edge_attr[layer][CITES].tolist()
        assert data[CITES].num_sampled_edges == [blocks[CITES].num_edges for blocks in reversed(batch.blocks)]


def test_trees_and_times_of_seeds_are_there():
    for batch in batches(times=True, frontier="new")[1]:
        data = batch.to_pyg()
        for name, part in batch.minibatch.rows.items():
            assert data[name].batch.tolist() == part.trees.tolist()
            if len(part.seeds):
                assert data[name].seed_time.tolist() == part.seed_times[np.argsort(part.seed_rows)].tolist()
    weights = next(iter(loader(GRAPH, sampler="ladies", fanouts=[9, 9], seeds="paper"))).to_pyg().layer_edge_weight
    assert any(len(one) for one in weights[0].values() if one is not None)
    with pytest.raises(UsageError, match="layout: got 'csr'"):
        batch.to_pyg("csr")


@pytest.mark.parametrize("hops", [1, 2])
def test_a_subgraph_has_no_numbers_by_hop(hops):
    counts = {name: (count,) * hops for name, count in {"paper": 5, "author": 3, "word": 3, "venue": 2, "alone": 1}.items()}
    for batch in loader(GRAPH, sampler=HGSampler(counts), fanouts=None, seeds="paper"):
        data, (u, v) = batch.to_pyg(), batch.edge_index_dict[CITES]
        assert (data[CITES].edge_index[0].tolist(), data[CITES].edge_index[1].tolist()) == (u.tolist(), v.tolist())
        assert "num_sampled_edges" not in data[CITES]
        assert "num_sampled_nodes" not in data["paper"]


def test_the_waits_of_a_loader_are_phases_of_a_profiler():
    seen = []

    @contextmanager
    def profile(name):
        seen.append(name)
        yield

    for batch in loader(GRAPH, profile=profile):
        assert batch.x_dict
    assert set(seen) == {"bulksample: sample", "bulksample: fetch"}


def groups_of(seeds, count):
    """The group of each seed: those of even shares of their types, by hand."""
    shares = sorted((v / GRAPH.type(name).count, GRAPH.place(name), v) for name, own in seeds.items() for v in own)
    return {(GRAPH.types[place].name, v): i * count // len(shares) for i, (_, place, v) in enumerate(shares)}


def test_a_minibatch_has_seeds_of_one_group():
    seeds = {"paper": np.arange(60), "author": np.arange(40)}
    group, made = groups_of(seeds, 4), loader(GRAPH, seeds=seeds, seed_locality=4, batch_size=5, ranks=2)
    met = []
    for rank in range(2):
        for batch in loader(GRAPH, seeds=seeds, seed_locality=4, batch_size=5, rank=rank, ranks=2):
            own = [(name, int(v)) for name, found in batch.seeds.items() for v in found]
            assert {group[one] for one in own} == {batch.id % 4}
            met += [] if batch.repeated else own
    assert sorted(met) == sorted(group)
    with pytest.raises(UsageError, match="does not fit"):
        loader(GRAPH, seeds=seeds, batch_size=5, ranks=2).load_state_dict(made.state_dict())


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    GRAPH.save(tmp_path_factory.getbasetemp() / "typed-batches", overwrite=True)
    return tmp_path_factory.getbasetemp() / "typed-batches"


def epoch(comm, stored, place, **options):
    """Digests and features of this rank's batches of an epoch, and the bytes of features that it sent."""
    made = loader(bs.load(stored, world=comm, **place), bulk_size=4, **options)
    before = comm.tally["features"].bytes
    found = [(batch.id, batch.digest(), {name: x.copy() for name, x in batch.x_dict.items()}) for batch in made]
    return found, comm.tally["features"].bytes - before


@pytest.mark.parametrize("place", [{}, {"topology": "replicated"}])
@pytest.mark.parametrize("options", [{"fetch_together": 3}, {"seed_locality": 2}, {"seed_locality": 2, "fetch_together": 2}])
def test_ranks_fetch_the_same_rows_several_at_a_time_and_in_groups(stored, place, options):
    seeds = {"seeds": {"paper": np.arange(60)}, "batch_size": 4}
    found = on_threads(2, lambda comm: epoch(comm, stored, place, **seeds, **options))
    alone = {key: value for key, value in options.items() if key != "fetch_together"}
    whole = [batch for rank in range(2) for batch in loader(GRAPH, rank=rank, ranks=2, **seeds, **alone)]
    expected = {batch.id: batch for batch in whole}
    drawn = list(chain(*(own for own, _ in found)))
    assert sorted(i for i, _, _ in drawn) == sorted(batch.id for batch in whole)
    for i, digest, x in drawn:
        assert digest == expected[i].digest()
        for name, rows in x.items():
            np.testing.assert_array_equal(rows, expected[i].x_dict[name])
    if "fetch_together" in options:
        each = on_threads(2, lambda comm: epoch(comm, stored, place, **seeds, **alone))
        assert sum(sent for _, sent in found) < sum(sent for _, sent in each)


@pytest.mark.parametrize(
    ("place", "options", "says"),
    [
        ({}, {"fetch_together": 0}, "fetch_together must be a positive whole number; got 0"),
    ],
)
def test_what_ranks_cannot_do_is_refused(stored, place, options, says):
    with pytest.raises(UsageError, match=says):
        on_threads(2, lambda comm: loader(bs.load(stored, world=comm, **place), **options))
    with pytest.raises(UsageError, match="fetch_together is for a graph that ranks share"):
        loader(GRAPH, seeds=SEEDS, fetch_together=2)


def test_groups_of_seeds_follow_the_block_rows_of_any_partition(stored):
    """Two groups of a type whose vertices lie in two random parts of one size: a mini-batch has seeds of one part."""

    def on_rank(comm):
        share = bs.load(stored, world=comm, partition="random", seed_locality=2)
        made = loader(share, seeds=("paper", "all"), batch_size=6, seed_locality=2)
        layout = share.rows.of["paper"]
        return [len(np.unique(layout.blocks_of(batch.seeds["paper"]))) for batch in made]

    parts = [count for own in on_threads(2, on_rank) for count in own]
    assert set(parts) == {1}
    assert len(parts) == 10


def test_batches_of_a_sampler_without_entries_have_no_edge_ids():
    law = replace(samplers.make("sage", (3,)), entries=False)
    batch = next(iter(loader(GRAPH, sampler=law, fanouts=None, seeds=("paper", "all"))))
    with pytest.raises(UsageError, match="of a sampler of yours, leave out entries=False"):
        batch.e_id  # noqa: B018
    assert pickle.loads(pickle.dumps(batch)).digest() == batch.digest()

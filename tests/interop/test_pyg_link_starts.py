"""The beginning of the window of each link: every tree is compared with a search over the edges of the window."""

import hashlib
import json
import pickle
from collections import Counter

import pytest

pytest.importorskip("torch_geometric", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

import numpy as np
import torch
from pyg_graphs import make_data, same
from pyg_typed import assert_rows_belong, reached, typed_data
from torch_geometric.data import HeteroData
from torch_geometric.loader import LinkLoader
from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling

from bulksample.distributed.comm.threads import on_threads
from bulksample.errors import UsageError
from bulksample.interop.pyg import BulkSampler, LinkNeighborLoader, NeighborLoader
from bulksample.interop.pyg.seed_input import LinkInput

PLAIN, WRITES, CITES = ("node", "to", "node"), ("author", "writes", "paper"), ("paper", "cites", "paper")
LINKS, LEAST = 30, -(2**63)
LAWS = {
    "none": None,
    "binary": NegativeSampling("binary"),
    "half": NegativeSampling("binary", 0.5),
    "more": NegativeSampling("binary", 2.5),
    "triplet": NegativeSampling("triplet", 2),
}
ENDS = torch.arange(LINKS) % 7 + 10
STARTS = ENDS - torch.arange(LINKS) % 11  # the first window is one instant


def graph_of(key, times):
    """A graph, and the same one with types for the search."""
    if key is not PLAIN:
        data = typed_data(times=times)
        return data, data
    data = make_data(n=80, m=400)
    data.time = torch.from_numpy(np.random.default_rng(5).integers(0, 20, 80 if times == "vertices" else data.num_edges))
    typed = HeteroData({"node": {"num_nodes": 80}})
    typed[PLAIN].edge_index = data.edge_index
    (typed["node"] if times == "vertices" else typed[PLAIN]).time = data.time
    return data, typed


def loader(data, key=WRITES, fanouts=(-1, -1), law="none", **options):
    pairs = (data.edge_index if key is PLAIN else data[key].edge_index)[:, :LINKS]
    given = {
        "edge_label_time": ENDS,
        "edge_label_start": STARTS,
        "time_attr": "time",
        "batch_size": 8,
        "shuffle": True,
        "seed": 3,
        **options,
    }
    return LinkNeighborLoader(data, list(fanouts), pairs if key is PLAIN else (key, pairs), neg_sampling=LAWS[law], **given)


def parts(batch, key):
    """The parts of a batch: sources, links and destinations."""
    return (batch,) * 3 if key is PLAIN else (batch[key[0]], batch[key], batch[key[2]])


def seeds_of(batch, key, law):
    """The seeds of a batch by the layout that torch_geometric documents: (position of the link in the batch, type, id)."""
    sources, links, destinations = parts(batch, key)
    m = len(links.input_id)
    if law == "triplet":
        source, positive, negative = sources.src_index, destinations.dst_pos_index, destinations.dst_neg_index
        assert negative.shape == (m, 2)
        at = [(i, sources, key[0], source[i]) for i in range(m)] + [(i, destinations, key[2], positive[i]) for i in range(m)]
        at += [(i, destinations, key[2], one) for i in range(m) for one in negative[i]]
    else:
        pairs = links.edge_label_index.T
        at = [(i % m, *end) for i, (u, v) in enumerate(pairs) for end in ((sources, key[0], u), (destinations, key[2], v))]
    return [(i, name, int(part.n_id[place])) for i, part, name, place in at]


def from_window(data, seed, start, end):
    """The edges within two hops of a seed whose times lie in a window, by search."""
    kept = {key: set() for key in data.edge_types}
    frontier = {seed}
    for _ in range(2):
        vertices = set()
        for v in frontier:
            for key, edges in reached(data, [v], 1, end)[1].items():
                for edge in edges:
                    source = int(data[key].edge_index[0, edge])
                    stamps = [int(store.time[at]) for store, at in ((data[key], edge), (data[key[0]], source)) if "time" in store]
                    if all(start <= time <= end for time in stamps):
                        kept[key].add(edge)
                        vertices.add((key[0], source))
        frontier = vertices
    return kept


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("times", ["vertices", "edges"])
@pytest.mark.parametrize("key", [PLAIN, WRITES, CITES], ids=["plain", "two types", "one type"])
def test_all_neighbors_are_those_of_a_search_in_the_window_of_the_link(key, times, law):
    data, typed = graph_of(key, times)
    seen, kept, early = [], 0, 0
    for batch in loader(data, key, law=law):
        _, links, _ = parts(batch, key)
        if key is not PLAIN:
            assert_rows_belong(batch, data)
        wanted = [{name: Counter() for name in typed.edge_types} for _ in links.input_id]
        for i, *seed in seeds_of(batch, key, law):
            link = int(links.input_id[i])
            own = from_window(typed, tuple(seed), int(STARTS[link]), int(ENDS[link]))
            for name, edges in own.items():
                wanted[i][name].update(edges)
            early += sum(map(len, reached(typed, [tuple(seed)], 2, int(ENDS[link]))[1].values())) - sum(map(len, own.values()))
        for name in typed.edge_types:
            store, tree = (batch, batch.batch) if key is PLAIN else (batch[name], batch[name[2]].batch)
            of_link = tree[store.edge_index[1]]
            for i, counts in enumerate(wanted):
                assert Counter(store.e_id[of_link == i].tolist()) == counts[name]
                kept += sum(counts[name].values())
        stamps = parts(batch, key)[0].seed_time if law == "triplet" else links.edge_label_time
        assert stamps.tolist() == ENDS[links.input_id].repeat(4)[: len(stamps)].tolist()
        seen += links.input_id.tolist()
    assert sorted(seen) == list(range(LINKS))
    assert kept > 100  # the search finds edges
    assert early > 100  # and leaves out others, which are too early


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_links_are_seeds_of_a_node_loader_in_the_same_windows(strategy):
    data, _ = graph_of(PLAIN, "vertices")
    pairs, options = data.edge_index[:, :LINKS], {"shuffle": False, "temporal_strategy": strategy}
    by_batch = [torch.arange(LINKS)[at : at + 8] for at in range(0, LINKS, 8)]
    nodes = torch.cat([pairs[:, of].flatten() for of in by_batch])
    ends, starts = (torch.cat([column[of].repeat(2) for of in by_batch]) for column in (ENDS, STARTS))
    own = NeighborLoader(
        data, [3, 2], nodes, input_time=ends, input_start=starts, time_attr="time", batch_size=16, seed=3, temporal_strategy=strategy
    )
    drawn = 0
    for links, seeds in zip(loader(data, PLAIN, (3, 2), **options), own, strict=True):
        assert torch.equal(links.n_id, seeds.n_id)
        assert torch.equal(links.e_id, seeds.e_id)
        assert torch.equal(links.edge_index, seeds.edge_index)
        drawn += len(links.e_id)
    assert drawn > 100


def test_links_of_two_types_are_seeds_of_a_node_loader_in_the_same_windows():
    data, _ = graph_of(WRITES, "edges")
    sources, destinations = data[WRITES].edge_index[:, :LINKS]
    options = {"time_attr": "time", "batch_size": 2 * LINKS, "seed": 3}
    both = {name: (dict.fromkeys(("author", "paper"), column)) for name, column in (("input_time", ENDS), ("input_start", STARTS))}
    (seeds,) = NeighborLoader(data, [3, 2], [("author", sources), ("paper", destinations)], **both, **options)
    (links,) = loader(data, fanouts=(3, 2), shuffle=False, batch_size=LINKS)
    for name in data.edge_types:
        assert torch.equal(links[name].e_id, seeds[name].e_id)
    assert len(links[CITES].e_id)


@pytest.mark.parametrize("law", LAWS)
def test_windows_from_the_least_time_are_none(law):
    for key in (PLAIN, CITES):
        data, _ = graph_of(key, "edges")
        made = [loader(data, key, (3, 2), law, edge_label_start=start) for start in (torch.full((LINKS,), LEAST), None)]
        for one, other in zip(*made, strict=True):
            if key is PLAIN:
                assert same(one, other)
            for name in () if key is PLAIN else one.edge_types:
                assert torch.equal(one[name].e_id, other[name].e_id)


@pytest.mark.parametrize(("law", "kept"), [("binary", "c9aef08c71bdb91d"), ("triplet", "64fc55dcf89a07e2")])
def test_without_starts_batches_and_states_are_those_of_before(law, kept):
    """The digest was written by the code that knew no starts."""
    data, _ = graph_of(PLAIN, "edges")
    made = loader(data, PLAIN, (3, 2), law, edge_label_start=None)
    assert type(made.input_data) is EdgeSamplerInput
    sha = hashlib.sha256(json.dumps(made.state_dict()["inputs"]).encode())
    for batch in made:
        for name in ("n_id", "e_id", "batch", "edge_index"):
            sha.update(batch[name].numpy().tobytes())
    assert sha.hexdigest()[:16] == kept


def test_starts_do_not_change_negatives_and_stay_with_excluded_targets():
    data, _ = graph_of(CITES, "edges")
    times = data[CITES].time[:LINKS]  # so each link is in its window, and leaves it as a target
    options = {"edge_label_time": times, "strict_negatives": True}
    for batch, whole, left in zip(
        loader(data, CITES, law="binary", edge_label_start=times - 3, **options),
        loader(data, CITES, law="binary", edge_label_start=None, **options),
        loader(data, CITES, law="binary", edge_label_start=times - 3, exclude_targets="self", **options),
        strict=True,
    ):
        drawn = [one["paper"].n_id[one[CITES].edge_label_index] for one in (batch, whole, left)]
        assert torch.equal(drawn[0], drawn[1])
        assert torch.equal(drawn[0], drawn[2])
        assert 0 < len(left[CITES].e_id) < len(batch[CITES].e_id) < len(whole[CITES].e_id)


def test_indexed_links_keep_their_starts():
    links = LinkInput(EdgeSamplerInput(None, torch.arange(4), torch.arange(4) + 4, None, torch.arange(4) * 10, CITES), torch.arange(4) - 9)
    for index in ([2, 0], torch.tensor([2, 0])):
        part = links[index]
        assert (part.row.tolist(), part.col.tolist(), part.time.tolist(), part.start.tolist()) == ([2, 0], [6, 4], [20, 0], [-7, -9])
        assert part.input_type == CITES
        assert part[[1]].start.tolist() == [-9]
    assert links[[]].start.tolist() == []


def test_states_ranks_pickles_and_calls_keep_starts():
    data, _ = graph_of(PLAIN, "edges")

    def named(batches):
        return [(batch.input_id.tolist(), batch.e_id.tolist()) for batch in batches]

    def made(**options):
        return loader(data, PLAIN, (3, 2), "binary", **options)

    whole = named(made(bulk_size=1))
    assert named(made(num_workers=2, bulk_size=3, backend="reference")) == whole
    assert named(pickle.loads(pickle.dumps(made()))) == whole
    half = made()
    next(iter(half))
    state = json.loads(json.dumps(half.state_dict()))
    again = made()
    again.load_state_dict(state)
    assert named(again) == whole[1:]
    with pytest.raises(UsageError, match="other examples"):
        made(edge_label_start=STARTS - 1).load_state_dict(state)
    for rank, found in enumerate(on_threads(2, lambda comm: named(made(comm=comm)))):
        assert found == whole[rank::2]
    with pytest.raises(UsageError, match="do not agree on the examples of the loader and their times"):
        on_threads(2, lambda comm: made(comm=comm, edge_label_start=STARTS - comm.rank) and None)
    for times in (made()([0, 11]), made(filter_per_worker=True)([0, 11])):  # both windows are one instant
        assert (data.time[times.e_id] == ENDS[[0, 11]][times.batch[times.edge_index[1]]]).all()
    assert torch.equal(made(edge_label_start=STARTS.tolist()).input_data.start, STARTS)


DATA, UNTIMED = graph_of(PLAIN, "vertices")[0], make_data()


@pytest.mark.parametrize(("options", "words"), [
    ({"edge_label_time": None}, "'edge_label_time' is not set, but 'time_attr' is"),
    ({"time_attr": None}, "'time_attr' is not set, but 'edge_label_time' is"),
    ({"edge_label_time": None, "time_attr": None}, "edge_label_start was given without times of the graph; give time_attr too"),
    ({"edge_label_time": None, "time_attr": None, "neighbor_sampler": BulkSampler(DATA, [2], time_attr="time", seed=3)},
     "edge_label_start was given without edge_label_time; give it too"),
    ({"neighbor_sampler": BulkSampler(DATA, [2], disjoint=True, seed=3)},
     "edge_label_time was given without times of the graph"),
    ({"edge_label_start": None, "neighbor_sampler": BulkSampler(DATA, [2], seed=3)},
     "edge_label_time was given without times of the graph"),
    ({"neighbor_sampler": BulkSampler(DATA, [2], time_attr="time", time_window=3, seed=3)},
     "edge_label_start: got a window, and starts of the seeds besides; use one of them"),
    ({"time_attr": "hour"}, "hour"),
    ({"edge_label_start": STARTS[1:]}, r"edge_label_start: got int64 of shape .29,.; use int64 or datetime64 of shape .30,."),
    ({"edge_label_start": STARTS[:, None]}, r"edge_label_start: got int64 of shape .30, 1.; use"),
    ({"edge_label_start": STARTS.float()}, "edge_label_start: got float32"),
    ({"edge_label_start": "now"}, "edge_label_start: got a str; use a tensor"),
    ({"edge_label_start": ENDS + (torch.arange(LINKS) == 4)}, "edge_label_start: entry 4 is 15, and its time is 14; give no start later"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_when_the_loader_is_made(options, words):
    with pytest.raises(UsageError, match=words):
        loader(DATA, PLAIN, **options)


def test_a_node_loader_refuses_starts_beside_a_window_when_it_is_made():
    with pytest.raises(UsageError, match="input_start: got a window, and starts of the seeds besides; use one of them"):
        NeighborLoader(DATA, [2], input_start=DATA.time, time_attr="time", time_window=3)


def test_loaders_of_torch_geometric_with_our_sampler_are_refused_times_that_do_not_count():
    made = LinkLoader(UNTIMED, BulkSampler(UNTIMED, [2]), UNTIMED.edge_index[:, :9], edge_label_time=torch.arange(9))
    with pytest.raises(UsageError, match="edge_label_time was given without times of the graph; give time_attr too"):
        next(iter(made))

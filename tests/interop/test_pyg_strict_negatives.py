"""`strict_negatives`: no negative is an edge, and the law is that of all pairs given that; expected pairs come from the list of edges."""

import numpy as np
import pytest
import torch
from pyg_graphs import make_data, same
from pyg_typed import typed_data
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import NegativeSampling

from bulksample import DataError, UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.interop.pyg import LinkNeighborLoader

WRITES, CITES, BUYS = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("user", "buys", "item")
MODES = pytest.mark.parametrize("mode", ["binary", "triplet"])


def parts_of(batch, key=None):
    """The stores of the links, of the sources and of the destinations of a batch."""
    return (batch, batch, batch) if key is None else (batch[key], batch[key[0]], batch[key[2]])


def negatives(batch, key=None):
    """Return the sources and destinations of negatives, and the link of each, as torch_geometric lays them out."""
    links, source, destination = parts_of(batch, key)
    if "edge_label_index" in links:
        ends = links.edge_label_index[:, links.edge_label == 0]
        return source.n_id[ends[0]], destination.n_id[ends[1]], torch.arange(ends.shape[1]) % len(links.input_id)
    amount = destination.dst_neg_index.numel() // len(source.src_index)
    link = torch.arange(len(source.src_index)).repeat_interleave(amount)
    return source.n_id[source.src_index][link], destination.n_id[destination.dst_neg_index.reshape(-1)], link


def forbidden(edges, shape, loops):
    """Return the pairs that are edges, and those of a vertex with itself: bool, shape (sources, destinations)."""
    table = np.eye(*shape, dtype=bool) & loops
    table[tuple(edges.numpy())] = True
    return table


def chi_square(counts, law):
    """True unless counts lie far from a law, more than five deviations of chi-square; none may lie where it is 0."""
    expected, some = counts.sum() * law / law.sum(), law > 0
    assert not counts[~some].any()
    free = some.sum() - 1
    return ((counts - expected)[some] ** 2 / expected[some]).sum() < free + 5 * np.sqrt(2 * free) + 5


@MODES
@pytest.mark.parametrize("key", [None, WRITES, CITES])
@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"weights": True}, {"times": "vertices"}, {"times": "edges", "weights": True}],
                         ids=str)  # fmt: skip
def test_no_negative_is_an_edge_and_draws_that_are_none_stay(mode, key, options):
    rng, times = np.random.default_rng(5), options.get("times")
    data = Data(edge_index=torch.from_numpy(rng.integers(0, 40, (2, 700))), num_nodes=40) if key is None else typed_data(times=times)
    if key is None and times:
        data["time" if times == "vertices" else "edge_time"] = torch.from_numpy(rng.integers(0, 20, 40 if times == "vertices" else 700))
    store, ends = (data, (data, data)) if key is None else (data[key], (data[key[0]], data[key[2]]))
    counts = [end.num_nodes for end in ends]
    weights = [torch.from_numpy(rng.integers(0, 4, n)).double() for n in counts] if "weights" in options else [None, None]
    law = NegativeSampling(mode, 2 if mode == "triplet" else 1.5, *weights)
    until = torch.from_numpy(rng.integers(8, 20, store.num_edges))
    time = {} if not times else {"edge_label_time": until, "time_attr": "edge_time" if times == "edges" and key is None else "time"}
    bad, moved, total = forbidden(store.edge_index, counts, key is None or key[0] == key[2]), 0, 0
    loaders = [
        LinkNeighborLoader(data, [2], key, neg_sampling=law, batch_size=64, seed=3, disjoint="disjoint" in options or bool(times),
                           strict_negatives=strict, **time)
        for strict in (False, True)
    ]  # fmt: skip
    for plain, batch in zip(*loaders, strict=True):
        sources, destinations, link = negatives(batch, key)
        assert not bad[sources, destinations].any()
        loose = negatives(plain, key)
        kept = ~bad[loose[0], loose[1]]
        torch.testing.assert_close(sources[kept], loose[0][kept])
        torch.testing.assert_close(destinations[kept], loose[1][kept])
        moved, total = moved + int((~kept).sum()), total + len(link)
        for ids, end, weight in zip((sources, destinations), ends, weights, strict=True):
            if weight is not None and (end is not ends[0] or mode == "binary"):
                assert (weight[ids] > 0).all()
            if times == "vertices" and (end is not ends[0] or mode == "binary"):
                assert (end.time[ids] <= until[parts_of(batch, key)[0].input_id][link]).all()
    assert 10 < moved < total


def crowded(n=9, missing=7, seed=2):
    """A graph that lacks few pairs, other than a vertex with itself, and the table of its edges."""
    rng, table = np.random.default_rng(seed), ~np.eye(n, dtype=bool)
    absent = np.argwhere(table)
    table[tuple(absent[rng.choice(len(absent), missing, replace=False)].T)] = False
    return Data(edge_index=torch.from_numpy(np.argwhere(table).T), num_nodes=n), table


@pytest.mark.parametrize("missing", [2, 7, 50])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_binary_negatives_have_their_law_among_pairs_without_an_edge(missing, weighted, timed):
    data, table = crowded(missing=missing)
    weights = [np.array([1, 2, 0.5, 1, 3, 1, 0.25, 2, 1]), np.array([2, 1, 1, 0.5, 1, 4, 1, 1, 3])]
    law = NegativeSampling("binary", 400, *(map(torch.from_numpy, weights) if weighted else ()))
    data.time = torch.tensor([3, 1, 5, 0, 5, 5, 0, 1, 2])
    links, until = data.edge_index[:, :6], torch.tensor([5, 5, 4, 5, 4, 4])
    time = {"edge_label_time": until, "time_attr": "time"} if timed else {}
    (batch,) = LinkNeighborLoader(data, [1], links, neg_sampling=law, batch_size=6, seed=1, strict_negatives=True, **time)
    sources, destinations, link = (part.numpy() for part in negatives(batch))
    for bound in (5, 4) if timed else (9,):
        here = (data.time <= bound).numpy()
        expected = (weights[0][:, None] * weights[1] if weighted else np.ones((9, 9))) * ~table * ~np.eye(9, dtype=bool)
        expected *= here[:, None] & here
        chosen = until.numpy()[link] == bound if timed else slice(None)
        counts = np.zeros((9, 9))
        np.add.at(counts, (sources[chosen], destinations[chosen]), 1)
        assert chi_square(counts, expected)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("timed", [False, True])
def test_triplets_have_their_law_among_the_vertices_without_an_edge_from_the_source(weighted, timed):
    data, table = crowded(missing=36)
    table |= np.eye(9, dtype=bool)
    weight = np.array([2, 1, 1, 0.5, 1, 4, 1, 1, 3])
    law = NegativeSampling("triplet", 3000, None, torch.from_numpy(weight) if weighted else None)
    data.time = torch.tensor([3, 1, 2, 0, 5, 4, 0, 1, 2])
    links, time = data.edge_index[:, ::6], {}
    until = torch.full((links.shape[1],), 4)
    if timed:
        time = {"edge_label_time": until, "time_attr": "time"}
    (batch,) = LinkNeighborLoader(data, [1], links, neg_sampling=law, batch_size=99, seed=1, strict_negatives=True, **time)
    sources, destinations, link = (part.numpy() for part in negatives(batch))
    here = (data.time <= 4).numpy() if timed else np.ones(9, bool)
    assert len(link) == links.shape[1] * 3000
    for i, source in enumerate(links[0].tolist()):
        assert (sources[link == i] == source).all()
        law = ~table[source] * here * (weight if weighted else 1.0)
        assert chi_square(np.bincount(destinations[link == i], minlength=9), law)


@pytest.mark.parametrize("amount", [1, 3])
@pytest.mark.parametrize("form", ["plain", "disjoint", "vertices", "edges"])
@pytest.mark.parametrize("typed", [False, True])
def test_each_triplet_has_the_negatives_of_its_own_source(amount, form, typed):
    """A source u has edges to all destinations but (3 u + 1) mod n, its only negative."""
    n = 11
    only = (3 * torch.arange(n) + 1) % n  # also u's own place, where 3 u + 1 = u; a loop is no edge then
    keep = torch.ones(n, n, dtype=torch.bool)
    keep[torch.arange(n), only] = False
    edges = keep.nonzero().T
    links = torch.stack([torch.tensor([4, 7, 2, 9, 4, 1, 8]), torch.tensor([0, 1, 3, 4, 5, 6, 7])])
    data, key = (HeteroData() if typed else Data(edge_index=edges, num_nodes=n)), BUYS if typed else None
    if typed:
        data["user"].num_nodes = data["item"].num_nodes = n
        data[BUYS].edge_index = edges
    options = {"disjoint": form == "disjoint"}
    if form in ("vertices", "edges"):
        times = torch.arange(n if form == "vertices" else edges.shape[1]) * 0
        store = (data["item"] if typed else data) if form == "vertices" else data[BUYS] if typed else data
        store["time" if form == "vertices" or typed else "edge_time"] = times
        name = "time" if form == "vertices" or typed else "edge_time"
        options = {"edge_label_time": torch.arange(7), "time_attr": name}
    law = NegativeSampling("triplet", amount)
    for size in (7, 3):
        given = (BUYS, links) if typed else links
        for batch in LinkNeighborLoader(data, [2], given, neg_sampling=law, batch_size=size, strict_negatives=True, **options):
            sources, destinations, _ = negatives(batch, key)
            torch.testing.assert_close(destinations, only[sources])
            store, end = (batch["user"], batch["item"]) if typed else (batch, batch)
            torch.testing.assert_close(store.n_id[store.src_index], links[0, (batch[BUYS] if typed else batch).input_id])
            if form != "plain":  # and its tree is the link's
                rows = end.dst_neg_index.view(len(store.src_index), -1)
                torch.testing.assert_close(end.batch[rows], store.batch[store.src_index][:, None].expand_as(rows))


def test_an_edge_counts_whatever_its_time_and_its_type_alone():
    data = HeteroData()
    data["user"].num_nodes, data["item"].num_nodes = 2, 3
    data[BUYS].edge_index, data[BUYS].time = torch.tensor([[0, 0, 1], [0, 1, 2]]), torch.tensor([1, 99, 1])
    data["user", "views", "item"].edge_index = torch.tensor([[0], [2]])
    links = (BUYS, torch.tensor([[0] * 40, [0] * 40]))
    options = {"neg_sampling": "triplet", "batch_size": 40, "strict_negatives": True}
    (batch,) = LinkNeighborLoader(data, [1], links, edge_label_time=torch.full((40,), 5), time_attr="time", **options)
    assert set(negatives(batch, BUYS)[1].tolist()) == {2}  # 0 -> 1 is an edge of a later time, 0 -> 2 one of another type
    del data[BUYS]
    (batch,) = LinkNeighborLoader(data, [1], links, **options)
    assert set(negatives(batch, BUYS)[1].tolist()) == {0, 1, 2}


@pytest.mark.parametrize("tiny", [1e-12, 1e-20, 1e-300])
def test_a_tiny_weight_stays_possible(tiny):
    data = Data(edge_index=torch.tensor([[0, 0], [1, 2]]), num_nodes=4)
    weight = torch.tensor([1, 1, 1, tiny], dtype=torch.float64)
    for mode in ("triplet", "binary"):
        law = NegativeSampling(mode, 5, torch.tensor([1.0, 0, 0, 0]), weight)
        (batch,) = LinkNeighborLoader(data, [1], neg_sampling=law, batch_size=2, strict_negatives=True)
        assert set(negatives(batch)[1].tolist()) == {3}
    data.edge_index, one = torch.tensor([[0, 1, 2], [3, 3, 0]]), torch.tensor([0.0, 0, 0, 1])
    law = NegativeSampling("binary", 5, torch.tensor([1, 1, tiny, 0], dtype=torch.float64), one)
    (batch,) = LinkNeighborLoader(data, [1], neg_sampling=law, batch_size=3, strict_negatives=True)
    assert set(negatives(batch)[0].tolist()) == {2}


@MODES
def test_ranks_threads_and_a_loader_that_goes_on_draw_the_same(mode):
    data = make_data(40, 900)
    keep = data.edge_index[0] > 1
    options = {"num_neighbors": [3], "edge_label_index": data.edge_index[:, keep], "batch_size": 40, "seed": 2, "strict_negatives": True}
    options["neg_sampling"] = NegativeSampling(mode, 2, None, torch.arange(40) % 5 + 0.5)
    loader = LinkNeighborLoader(data, **options)
    whole, next_epoch = list(loader), list(loader)
    dealt = on_threads(2, lambda comm: list(LinkNeighborLoader(data, comm=comm, bulk_size=3, num_workers=2, **options)))
    for t, batch in enumerate(whole):
        assert same(dealt[t % 2][t // 2], batch)
    assert not torch.equal(negatives(whole[0])[1], negatives(next_epoch[0])[1])
    steps = iter(loader := LinkNeighborLoader(data, **options))
    next(steps)
    other = LinkNeighborLoader(data, **options)
    other.load_state_dict(loader.state_dict())
    assert all(same(one, two) for one, two in zip(other, whole[1:], strict=True))
    with pytest.raises(UsageError, match="does not fit: negatives was"):
        LinkNeighborLoader(data, **{**options, "strict_negatives": False}).load_state_dict(loader.state_dict())
    called = loader(torch.arange(30))
    table = forbidden(data.edge_index, (40, 40), True)
    assert not table[negatives(called)[:2]].any()


def star():
    """Vertex 0 has edges to all others, vertex 1 to none."""
    return Data(edge_index=torch.tensor([[0, 0, 0, 2], [1, 2, 3, 1]]), num_nodes=4, time=torch.tensor([0, 1, 2, 9]))


def full(n=4):
    return Data(edge_index=(~torch.eye(n, dtype=torch.bool)).nonzero().T, num_nodes=n)


ONE, OTHER = torch.tensor([[0], [1]]), torch.tensor([[2], [1]])
IN_TIME = {"edge_label_index": OTHER, "time_attr": "time"}
BY_WEIGHT = NegativeSampling("triplet", 1, None, torch.tensor([0.0, 1, 0, 0]))


@pytest.mark.parametrize(
    ("data", "options", "error", "says"),
    [
        (star, {"neg_sampling": "triplet"}, UsageError, "vertex 0 has an edge to every destination that a negative may be"),
        (star, {"neg_sampling": "triplet", **IN_TIME, "edge_label_time": [0], "edge_label_index": ONE}, UsageError, "exists at time 0"),
        (star, {"neg_sampling": BY_WEIGHT, "edge_label_index": OTHER}, UsageError, "vertex 2 has an edge to every destination"),
        (full, {"neg_sampling": "binary"}, UsageError, "every pair of vertices that a negative may be is an edge"),
        (star, {"neg_sampling": "binary", **IN_TIME, "edge_label_time": [0]}, UsageError, "every pair of vertices that exist at time 0"),
        (star, {"neg_sampling": "binary", **IN_TIME, "edge_label_time": [-1]}, DataError, "no vertex exists at time -1"),
        (star, {}, UsageError, "strict_negatives was given without neg_sampling"),
        (star, {"neg_sampling": "binary", "strict_negatives": "yes"}, UsageError, "strict_negatives must be true or false"),
    ],
)  # fmt: skip
def test_what_has_no_strict_negative_is_refused_when_the_loader_is_made(data, options, error, says):
    with pytest.raises(error, match=says):
        LinkNeighborLoader(data(), [1], **{"strict_negatives": True, **options})


def test_pairs_without_an_edge_are_found_however_few_there_are():
    data = full(60)
    data.edge_index = data.edge_index[:, (data.edge_index != torch.tensor([[7], [33]])).any(0)]
    (batch,) = LinkNeighborLoader(data, [1], data.edge_index[:, :20], neg_sampling="binary", batch_size=20, strict_negatives=True)
    assert set(zip(*(ends.tolist() for ends in negatives(batch)[:2]), strict=True)) == {(7, 33)}


def plain():
    return Data(edge_index=torch.tensor([[0, 1, 2], [1, 2, 0]]), num_nodes=4, time=torch.arange(4))


AT = {"time_attr": "time"}


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"neg_sampling": "binery"}, UsageError, "neg_sampling: 'binery' is not.*use 'binary', 'triplet'"),
        ({"neg_sampling": 3}, UsageError, "neg_sampling: 3 is not"),
        ({"neg_sampling": {"kind": "binary"}}, UsageError, "neg_sampling: .*'kind'.*use 'binary'"),
        ({"neg_sampling": {"mode": "binary", "amount": 0}}, UsageError, "got the amount 0; use negatives for each link, a number above 0"),
        ({"neg_sampling": ("binary", -1)}, UsageError, "got the amount -1"),
        ({"neg_sampling": ("binary", float("nan"))}, UsageError, "got the amount nan"),
        ({"neg_sampling": NegativeSampling("binary", float("inf"))}, UsageError, "got the amount inf"),
        ({"neg_sampling": ("triplet", "2")}, UsageError, "got the amount '2'"),
        ({"neg_sampling": ("triplet", 1.5)}, UsageError, "needs to be an integer"),
        ({"neg_sampling_ratio": -1}, UsageError, "neg_sampling_ratio: got -1; use negatives for each link, a number of at least 0"),
        ({"neg_sampling_ratio": "1"}, UsageError, "neg_sampling_ratio: got '1'"),
        ({"neg_sampling_ratio": float("inf")}, UsageError, "neg_sampling_ratio: got inf"),
        ({"neg_sampling": "triplet", "neg_sampling_ratio": 2.0}, UsageError, "triplet negatives, 1 of each, and neg_sampling_ratio=2"),
        ({"neg_sampling": "binary", "neg_sampling_ratio": 2}, UsageError, "gives binary negatives, 1 of each.*; leave out one of them"),
        ({"neg_sampling": NegativeSampling("binary", 1, torch.ones(4)), "neg_sampling_ratio": 1}, UsageError, "leave out one of them"),
        ({"neg_sampling": NegativeSampling("binary", 1, torch.ones(3))}, UsageError, "got 3 weights of negatives; use one for each of the"),
        ({"neg_sampling": NegativeSampling("binary", 1, torch.full((4,), 1e308, dtype=torch.float64))}, UsageError, "add up to more than"),
        ({"edge_label": torch.ones(2)}, UsageError, r"edge_label: got shape \(2,\) for 3 links; use one label for each"),
        ({"edge_label": torch.tensor(1)}, UsageError, r"edge_label: got shape \(\) for 3 links"),
        ({"edge_label": torch.ones(3), "neg_sampling": "triplet"}, UsageError, "edge_label was given, and triplets have no labels"),
        ({"edge_label": torch.tensor([-1, 0, 1]), "neg_sampling": "binary"}, UsageError, "0 is the label of negatives"),
        ({"edge_label_time": torch.zeros(2), **AT}, UsageError, "edge_label_time: got 2 times for 3 links; use one for each"),
        ({"edge_label_time": torch.zeros(3), **AT}, UsageError, "edge_label_time: got float32 of shape"),
        ({"edge_label_time": torch.tensor(3), **AT}, UsageError, r"edge_label_time: got int64 of shape \(\)"),
        ({"edge_label_time": torch.zeros(3, 1, dtype=torch.long), **AT}, UsageError, r"edge_label_time: got int64 of shape \(3, 1\)"),
        ({"edge_label_index": torch.zeros(3, 2, dtype=torch.long)}, DataError, r"edge_label_index: got int64 of shape \(3, 2\)"),
        ({"edge_label_index": torch.zeros(2, 2)}, DataError, "edge_label_index: got float32"),
        ({"edge_label_index": "cites"}, DataError, r"edge_label_index: got a str; use integers of shape \(2, m\)"),
        ({"edge_label_index": torch.tensor([[0, 4], [1, 1]])}, UsageError, "source: entry 1 is vertex 4; use 0 to 3"),
        ({"edge_label_index": torch.tensor([[0, 1], [1, -1]])}, UsageError, "destination: entry 1 is vertex -1"),
    ],
)  # fmt: skip
def test_options_of_links_that_do_not_fit_are_refused_when_the_loader_is_made(options, error, says):
    with pytest.raises(error, match=says):
        LinkNeighborLoader(plain(), [1], **options)


def test_a_ratio_that_contradicts_nothing_is_taken_as_torch_geometric_takes_it():
    data, chosen = make_data(), {"batch_size": 50, "seed": 1}
    wanted = list(LinkNeighborLoader(data, [2], neg_sampling=NegativeSampling("binary", 2), **chosen))
    for same_law in ({"neg_sampling_ratio": 2}, {"neg_sampling": ("binary", 2), "neg_sampling_ratio": 2.0},
                     {"neg_sampling": ("binary", 2), "neg_sampling_ratio": 0.0}):  # fmt: skip
        assert all(same(*pair) for pair in zip(wanted, LinkNeighborLoader(data, [2], **same_law, **chosen), strict=True))
    (batch,) = LinkNeighborLoader(data, [2], data.edge_index[:, :9], neg_sampling_ratio=0, batch_size=9)
    assert batch.edge_label_index.shape == (2, 9)
    assert not list(LinkNeighborLoader(data, [2], torch.empty(2, 0, dtype=torch.long), edge_label=[], neg_sampling="binary"))

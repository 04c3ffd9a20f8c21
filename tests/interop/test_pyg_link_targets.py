"""`exclude_targets`: the links of a mini-batch are no edges of its subgraph; expected edges come from sets and from torch_geometric."""

import numpy as np
import pytest
import torch
from pyg_graphs import make_data, same
from pyg_typed import assert_rows_belong, typed_data
from torch_geometric.data import Data, HeteroData
from torch_geometric.utils import k_hop_subgraph

from bulksample import UsageError
from bulksample.distributed.comm.threads import on_threads
from bulksample.interop.pyg import LinkNeighborLoader

CHOICES = pytest.mark.parametrize("choice", ["self", "both"])
WRITES, REVERSE, CITES = ("author", "writes", "paper"), ("paper", "rev_writes", "author"), ("paper", "cites", "paper")


def pairs_of(edges):
    return set(zip(*edges.tolist(), strict=True))


def answers(links, choice):
    """Return the pairs that give a link away."""
    own = pairs_of(links)
    return own | ({(v, u) for u, v in own} if choice == "both" else set())


def symmetric(n=60, m=500, **options):
    """A graph whose edges run in both directions, some of them several times."""
    data = make_data(n, m, simple=False, **options)
    edges = torch.cat([data.edge_index, data.edge_index.flip(0)], 1)
    return Data(x=data.x, edge_index=edges, weight=torch.arange(edges.shape[1]) % 4 + 1.0, num_nodes=n)


OPTIONS = [
    {}, {"weight_attr": "weight"}, {"disjoint": True}, {"subgraph_type": "bidirectional"}, {"subgraph_type": "induced"},
    {"neg_sampling": "binary"}, {"neg_sampling": "triplet"}, {"num_workers": 2}, {"replace": True}, {"shuffle": True},
    {"disjoint": True, "neg_sampling": "binary", "subgraph_type": "induced"},
]  # fmt: skip


@CHOICES
@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_batch_has_the_edges_of_the_loader_without_the_option_but_the_answers(choice, options):
    data, taken, hops = symmetric(), 0, torch.zeros(2)
    made = [LinkNeighborLoader(data, [6, 3], batch_size=40, seed=3, exclude_targets=one, **options) for one in ("none", choice)]
    for plain, batch in zip(*made, strict=True):
        torch.testing.assert_close(batch.n_id, plain.n_id)
        gone = answers(data.edge_index[:, batch.input_id], choice)
        global_ends = plain.n_id[plain.edge_index]
        kept = torch.tensor([pair not in gone for pair in zip(*global_ends.tolist(), strict=True)])
        torch.testing.assert_close(batch.edge_index, plain.edge_index[:, kept])
        torch.testing.assert_close(batch.e_id, plain.e_id[kept])
        torch.testing.assert_close(batch.weight, data.weight[batch.e_id])
        taken += int((~kept).sum())
        if "num_sampled_edges" in plain:
            hop = torch.repeat_interleave(torch.arange(2), torch.tensor(plain.num_sampled_edges))
            assert batch.num_sampled_edges == torch.bincount(hop[kept], minlength=2).tolist()
            hops += ~torch.tensor(batch.num_sampled_edges).eq(torch.tensor(plain.num_sampled_edges))
    assert taken > 50
    if "subgraph_type" not in options:
        assert hops[0] > 0
        assert (hops[1] > 0) == ("disjoint" in options)  # a link's ends are seeds, so its edge is of hop 1, but in another's tree


@CHOICES
def test_of_all_neighbors_the_rest_is_torch_geometrics_subgraph(choice):
    data = symmetric(80, 200)
    for batch in LinkNeighborLoader(data, [-1, -1], batch_size=10, exclude_targets=choice):
        links = data.edge_index[:, batch.input_id]
        _, _, _, near = k_hop_subgraph(links.reshape(-1), 2, data.edge_index, num_nodes=80, directed=True)
        gone = answers(links, choice)
        expected = {i for i in near.nonzero().view(-1).tolist() if tuple(data.edge_index[:, i].tolist()) not in gone}
        assert sorted(batch.e_id.tolist()) == sorted(expected)


def test_self_leaves_the_reverse_and_both_takes_it():
    data = Data(edge_index=torch.tensor([[0, 1, 2, 1], [1, 0, 1, 1]]), num_nodes=3)
    found = {}
    for choice in ("self", "both"):
        (batch,) = LinkNeighborLoader(data, [-1], torch.tensor([[0], [1]]), batch_size=1, exclude_targets=choice)
        found[choice] = pairs_of(batch.n_id[batch.edge_index])
    assert found == {"self": {(1, 0), (2, 1), (1, 1)}, "both": {(2, 1), (1, 1)}}


def test_links_that_are_no_edges_take_nothing_away():
    data = symmetric()
    known = pairs_of(data.edge_index)
    absent = torch.tensor([(u, v) for u in range(10) for v in range(10) if (u, v) not in known]).T
    loaders = [LinkNeighborLoader(data, [5], absent, batch_size=20, exclude_targets=one) for one in ("none", "both")]
    for plain, batch in zip(*loaders, strict=True):
        torch.testing.assert_close(batch.edge_index, plain.edge_index)


@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"subgraph_type": "induced"}, {"neg_sampling": "binary"}], ids=str)
@pytest.mark.parametrize(("choice", "reverses"), [("self", None), ("both", None), ("both", {WRITES: REVERSE})])
def test_types_lose_the_relation_of_the_links_and_its_reverse(options, choice, reverses):
    data, taken = typed_data(), {key: 0 for key in (WRITES, REVERSE)}
    data[REVERSE].edge_index = data[WRITES].edge_index.flip(0)[:, torch.randperm(200, generator=torch.manual_seed(1))]
    made = [
        LinkNeighborLoader(data, [8, 4], WRITES, batch_size=30, exclude_targets=one, reverse_etypes=named, **options)
        for one, named in (("none", None), (choice, reverses))
    ]
    for plain, batch in zip(*made, strict=True):
        own = pairs_of(data[WRITES].edge_index[:, batch[WRITES].input_id])
        gone = {WRITES: own, REVERSE: {(v, u) for u, v in own} if choice == "both" else set()}
        for key in data.edge_types:
            before, after = plain[key].e_id.tolist(), batch[key].e_id.tolist()
            ends = list(zip(*data[key].edge_index[:, plain[key].e_id].tolist(), strict=True))
            assert after == [i for i, pair in zip(before, ends, strict=True) if pair not in gone.get(key, ())]
            if key in taken:
                taken[key] += len(before) - len(after)
        if "subgraph_type" not in options:
            assert_rows_belong(batch, data)
    assert taken[WRITES]
    assert bool(taken[REVERSE]) == (choice == "both")


def test_a_bidirectional_batch_does_not_get_an_answer_back_from_its_reverse():
    data = typed_data()
    data[REVERSE].edge_index = data[WRITES].edge_index.flip(0)
    for choice in ("self", "both"):
        for batch in LinkNeighborLoader(
            data, [8, 4], WRITES, batch_size=30, exclude_targets=choice, subgraph_type="bidirectional"
        ):  # fmt: skip
            own = pairs_of(data[WRITES].edge_index[:, batch[WRITES].input_id])
            for key, gone in ((WRITES, own), (REVERSE, {(v, u) for u, v in own} if choice == "both" else set())):
                source, destination = batch[key].edge_index
                assert not gone & pairs_of(torch.stack([batch[key[0]].n_id[source], batch[key[2]].n_id[destination]]))


@pytest.mark.parametrize("kind", ["vertices", "edges"])
def test_with_times_of_edges_only_those_of_the_links_time_leave(kind):
    rng = np.random.default_rng(4)
    edges = torch.from_numpy(rng.integers(0, 12, (2, 400)))
    data = Data(edge_index=edges, num_nodes=12)
    name = "edge_time" if kind == "edges" else "time"
    data[name] = torch.from_numpy(rng.integers(0, 6, 400 if kind == "edges" else 12))
    times = data[name] if kind == "edges" else data[name][edges].max(0).values
    taken, left = 0, 0
    made = [
        LinkNeighborLoader(data, [-1], edges, edge_label_time=times, time_attr=name, batch_size=8, exclude_targets=one)
        for one in ("none", "both")
    ]
    for plain, batch in zip(*made, strict=True):
        stamps = times[batch.input_id].tolist()
        targets = {(u, v, t) for (u, v), t in zip(edges[:, batch.input_id].T.tolist(), stamps, strict=True)}
        targets |= {(v, u, t) for u, v, t in targets}
        if kind == "edges":
            gone = [(*edges[:, i].tolist(), int(data[name][i])) in targets for i in plain.e_id]
            left += sum(tuple(edges[:, i].tolist()) in {pair[:2] for pair in targets} for i in batch.e_id)
        else:
            gone = [tuple(edges[:, i].tolist()) in {pair[:2] for pair in targets} for i in plain.e_id]
        assert batch.e_id.tolist() == [int(i) for i, out in zip(plain.e_id, gone, strict=True) if not out]
        taken += sum(gone)
    assert taken
    assert bool(left) == (kind == "edges")  # earlier edges between the same ends are the past


def test_self_takes_the_copy_that_a_bidirectional_subgraph_makes():
    edges = torch.tensor([[0, 1], [1, 2]])
    data = Data(edge_index=edges, num_nodes=3)
    (batch,) = LinkNeighborLoader(data, [-1], edges[:, :1], exclude_targets="self", subgraph_type="bidirectional", batch_size=1)
    assert not {(0, 1), (1, 0)} & pairs_of(batch.n_id[batch.edge_index])
    whole = LinkNeighborLoader(data, [-1], edges[:, :1], subgraph_type="bidirectional", batch_size=1)
    assert {(0, 1), (1, 0)} <= pairs_of(next(iter(whole)).n_id[next(iter(whole)).edge_index])


def test_a_bidirectional_subgraph_in_time_loses_the_edges_of_all_times():
    edges, times = torch.tensor([[0, 0, 1], [1, 1, 2]]), torch.tensor([1, 5, 2])
    data = Data(edge_index=edges, edge_time=times, num_nodes=3)
    options = {"edge_label_time": torch.tensor([5]), "time_attr": "edge_time", "subgraph_type": "bidirectional", "batch_size": 1}
    (batch,) = LinkNeighborLoader(data, [-1], edges[:, 1:2], exclude_targets="both", **options)
    assert not batch.edge_index.numel()


def test_a_loader_that_is_called_and_one_that_goes_on_leave_answers_out():
    data = symmetric()
    options = {"num_neighbors": [6, 3], "batch_size": 40, "neg_sampling": "binary", "exclude_targets": "both", "seed": 2}
    loader = LinkNeighborLoader(data, **options)
    batch = loader(torch.tensor([5, 30]))
    assert not answers(data.edge_index[:, [5, 30]], "both") & pairs_of(batch.n_id[batch.edge_index])
    whole, steps = list(LinkNeighborLoader(data, **options)), iter(loader)
    for _ in range(3):
        next(steps)
    state = loader.state_dict()
    again = LinkNeighborLoader(data, **options, num_workers=1)
    again.load_state_dict(state)
    assert all(same(one, other) for one, other in zip(again, whole[3:], strict=True))
    for other in ("none", "self"):
        with pytest.raises(UsageError, match="exclude_targets both"):
            LinkNeighborLoader(data, **{**options, "exclude_targets": other}).load_state_dict(state)


@pytest.mark.parametrize("grid", [None, 1, 2])
def test_ranks_leave_out_what_one_does(grid):
    data = make_data(60, 900)
    options = {"num_neighbors": [6, 3], "batch_size": 40, "neg_sampling": "binary", "exclude_targets": "both", "seed": 2}
    whole = list(LinkNeighborLoader(data, **options))
    dealt = on_threads(2, lambda comm: list(LinkNeighborLoader(data, comm=comm, grid=grid, **options)))
    for t, batch in enumerate(whole):
        assert same(dealt[t % 2][t // 2], batch)


def lonely():
    data = HeteroData()
    data["a"].num_nodes, data["b"].num_nodes = 3, 3
    data["a", "to", "b"].edge_index = torch.tensor([[0, 1], [1, 2]])
    return data


@pytest.mark.parametrize(
    ("typed", "options", "message"),
    [
        (False, {"exclude_targets": "slef"}, "got 'slef'; did you mean 'self'"),
        (False, {"exclude_targets": True}, "got True; use none, self, both"),
        (False, {"exclude_targets": "both", "reverse_etypes": {}}, "its own reverse; leave it out"),
        (True, {"exclude_targets": "self", "reverse_etypes": {WRITES: REVERSE}}, "exclude_targets is 'self'"),
        (True, {"exclude_targets": "both", "reverse_etypes": {WRITES: CITES}}, r"got \('paper', 'cites'.*use \('paper', 'rev_writes'"),
        (True, {"exclude_targets": "both", "reverse_etypes": {}}, "got no reverse of"),
        (True, {"exclude_targets": "both", "reverse_etypes": [WRITES]}, "got a list; use a dict"),
        (None, {"exclude_targets": "both"}, r"no relation is known as the reverse of \('a', 'to', 'b'\); use 'self'"),
    ],
)
def test_what_does_not_fit_is_refused(typed, options, message):
    data, links = (symmetric(), None) if typed is False else (typed_data(), WRITES) if typed else (lonely(), ("a", "to", "b"))
    with pytest.raises(UsageError, match=message):
        LinkNeighborLoader(data, [2], links, **options)


def test_links_of_a_type_without_edges_need_a_reverse():
    data, pairs = lonely(), (("b", "likes", "a"), torch.tensor([[1, 0], [0, 0]]))
    with pytest.raises(UsageError, match="no edges of type"):
        LinkNeighborLoader(data, [-1], pairs, exclude_targets="self")
    (batch,) = LinkNeighborLoader(
        data, [-1], pairs, exclude_targets="both", reverse_etypes={("b", "likes", "a"): ("a", "to", "b")}, batch_size=2
    )
    assert not batch["a", "to", "b"].edge_index.numel()  # 0 -> 1 is the reverse of the link 1 -> 0

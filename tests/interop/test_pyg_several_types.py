"""Seeds of several types in one batch, and seeds whose windows of time have a beginning, against `bs.Loader` and against searches."""

import copy
import json
import pickle

import pytest

pytest.importorskip("torch_geometric", reason="torch_geometric is missing: pip install 'bulksample[pyg]'")

import torch
from pyg_graphs import make_data
from pyg_typed import EDGES, assert_rows_belong, reached, typed_data

import bulksample as bs
from bulksample import samplers
from bulksample.distributed.comm.threads import on_threads
from bulksample.interop.pyg import BulkSampler, HGTLoader, NeighborLoader

IDS, MASK = torch.tensor([3, 9, 27, 50, 4, 8, 1, 9]), torch.arange(40) % 4 == 1
SEVERAL = [("paper", IDS), ("author", MASK)]
EXAMPLES = [("paper", place, v) for place, v in enumerate(IDS.tolist())]  # type, input_id, id
EXAMPLES += [("author", v, v) for v in MASK.nonzero().view(-1).tolist()]
DATA = typed_data()


def loader(data=DATA, fanouts=(3, 2), nodes=SEVERAL, **options):
    return NeighborLoader(data, list(fanouts), nodes, **{"batch_size": 5, "shuffle": True, "seed": 3, **options})


def seeds_of(batch):
    """The seeds of a batch as (type, input_id, id), type by type."""
    found = []
    for name in ("paper", "author"):
        part = batch[name]
        assert len(part.input_id) == part.batch_size
        found += [(name, *pair) for pair in zip(part.input_id.tolist(), part.n_id[: part.batch_size].tolist(), strict=True)]
    return found


def edges_of(batch):
    return {key: sorted(batch[key].e_id.tolist()) for key in EDGES}


def named(batches):
    return [(seeds_of(batch), edges_of(batch)) for batch in batches]


@pytest.mark.parametrize("shuffle", [True, False])
def test_batches_are_those_of_our_own_loader(shuffle):
    """`bs.Loader` has seeds of several types, one order over all of them, and draws of its own code for the edges."""
    sampler = samplers.make("sage", (3, 2), frontier="new")
    plain = copy.copy(DATA)
    for key in EDGES:
        del plain[key].edge_attr  # numbers, where features of edges are rows
    own = bs.Loader(
        bs.from_pyg(plain, weight_attr=None), sampler=sampler, seeds={"paper": IDS.numpy(), "author": MASK.numpy()}, batch_size=5,
        shuffle=shuffle, seed=3,
    )  # fmt: skip
    ours = loader(shuffle=shuffle)
    for _ in range(2):
        for batch, expected in zip(ours, own, strict=True):
            assert_rows_belong(batch, DATA)
            for name, rows in expected.minibatch.rows.items():
                assert sorted(set(batch[name].n_id.tolist())) == sorted(rows.vertices.tolist())
            drawn = {name: [v for kind, _, v in seeds_of(batch) if kind == name] for name in ("paper", "author")}
            assert drawn == {name: expected.minibatch.rows[name].seeds.tolist() for name in drawn}


@pytest.mark.parametrize("disjoint", [False, True])
def test_an_epoch_has_every_example_once_and_all_their_neighbors(disjoint):
    seen, sizes = [], []
    for batch in loader(fanouts=(-1, -1), disjoint=disjoint):
        assert_rows_belong(batch, DATA)
        seeds = seeds_of(batch)
        seen += seeds
        sizes.append([batch["paper"].batch_size, batch["author"].batch_size])
        if not disjoint:
            _, edges = reached(DATA, [(name, v) for name, _, v in seeds], 2)
            drawn = {key: set(ids) for key, ids in edges_of(batch).items()}
            assert drawn == edges
        for tree, (name, _, v) in enumerate(seeds if disjoint else ()):
            vertices, _ = reached(DATA, [(name, v)], 2)
            for kind, wanted in vertices.items():
                assert sorted(batch[kind].n_id[batch[kind].batch == tree].tolist()) == sorted(wanted)
    assert sorted(seen) == sorted(EXAMPLES)
    assert any(0 < papers < sum(both) for both in sizes for papers in both[:1])  # batches of both types


@pytest.mark.parametrize("nodes", [dict(SEVERAL), ["paper", "author"], [("paper", None), "author"]], ids=["dict", "types", "mixed"])
def test_other_spellings(nodes):
    batches = list(loader(nodes=nodes, batch_size=64))
    seen = [seed for batch in batches for seed in seeds_of(batch)]
    everything = [(name, v, v) for name, count in (("paper", 60), ("author", 40)) for v in range(count)]
    assert sorted(seen) == sorted(EXAMPLES if isinstance(nodes, dict) else everything)


def test_one_type_in_a_list_is_that_type():
    one, other = loader(nodes=[("paper", IDS)]), loader(nodes=("paper", IDS))
    assert one.state_dict() == other.state_dict()
    assert all(torch.equal(a["paper"].n_id, b["paper"].n_id) for a, b in zip(one, other, strict=True))


def test_ranks_states_threads_and_pickles_have_the_same_batches():
    whole = named(loader(bulk_size=1))
    assert named(loader(num_workers=2, bulk_size=3, backend="reference")) == whole
    half = loader()
    next(iter(half))
    state = json.loads(json.dumps(half.state_dict()))
    again = loader()
    again.load_state_dict(state)
    assert named(again) == whole[1:]
    assert named(pickle.loads(pickle.dumps(loader()))) == whole
    for rank, found in enumerate(on_threads(2, lambda comm: named(loader(comm=comm)))):
        assert found == (whole + whole[:1])[rank::2][: len(found)]
    with pytest.raises(bs.UsageError, match="other examples"):
        loader(nodes=SEVERAL[::-1]).load_state_dict(state)


def test_transforms_see_the_whole_batch():
    def counted(batch):
        batch["paper"].count = batch["paper"].batch_size + batch["author"].batch_size
        return batch

    def marked(out):
        out.metadata[0]["paper"] = out.metadata[0]["paper"] + 100
        return out

    batches = list(loader(transform=counted, transform_sampler_output=marked, num_workers=1))
    assert sum(batch["paper"].count for batch in batches) == len(EXAMPLES)
    assert sorted(torch.cat([batch["paper"].input_id for batch in batches]).tolist()) == list(range(100, 108))


def test_budgets_of_hgt_begin_at_several_types():
    batches = list(HGTLoader(DATA, [9, 9], SEVERAL, batch_size=5, shuffle=True, seed=3))
    assert sorted(seed for batch in batches for seed in seeds_of(batch)) == sorted(EXAMPLES)
    assert [seeds_of(batch) for batch in batches] == [seeds_of(batch) for batch in loader()]


@pytest.mark.parametrize("times", ["vertices", "edges"])
def test_windows_of_each_seed_bound_its_tree(times):
    """All neighbors of seeds of two types, against a search in time from which what is too early is left out."""
    data = typed_data(times=times)
    ends = {"paper": torch.arange(8) + 9, "author": torch.full((10,), 14)}
    starts = {"paper": ends["paper"] - 6, "author": torch.zeros(10, dtype=torch.long)}
    drawn = 0
    for batch in loader(data, (-1, -1), time_attr="time", input_time=ends, input_start=starts):
        seeds = seeds_of(batch)
        places = [(seed[0], EXAMPLES.index(seed) - 8 * (seed[0] == "author")) for seed in seeds]
        bounds = [(int(starts[name][at]), int(ends[name][at])) for name, at in places]
        assert [end for _, end in bounds] == [time for name in ("paper", "author") for time in batch[name].seed_time.tolist()]
        for key in EDGES:
            sources = batch[key].edge_index[0]
            trees = batch[key[0]].batch[sources]
            store, at = (data[key], batch[key].e_id) if "time" in data[key] else (data[key[0]], batch[key[0]].n_id[sources])
            for tree, time in zip(trees.tolist(), store.time[at].tolist(), strict=True) if "time" in store else ():
                assert bounds[tree][0] <= time <= bounds[tree][1]
                drawn += 1
        for tree, (name, _, v) in enumerate(seeds):
            if bounds[tree][0] == 0:  # its window holds all that is not too late
                _, edges = reached(data, [(name, v)], 2, bounds[tree][1])
                for key, wanted in edges.items():
                    own = batch[key[2]].batch[batch[key].edge_index[1]] == tree
                    assert sorted(batch[key].e_id[own].tolist()) == sorted(wanted)
    assert drawn > 100


def test_starts_and_a_window_of_one_type():
    data = make_data()
    data.time = (torch.arange(300) * 7) % 50
    options = {"time_attr": "time", "batch_size": 50, "shuffle": True, "seed": 2}
    by_start = NeighborLoader(data, [4, 3], input_start=data.time - 20, **options)
    by_window, whole = NeighborLoader(data, [4, 3], time_window=20, **options), NeighborLoader(data, [4, 3], **options)
    early = 0
    for one, other, every in zip(by_start, by_window, whole, strict=True):
        assert torch.equal(one.e_id, other.e_id)
        age = data.time[one.n_id[: one.batch_size]][one.batch] - data.time[one.n_id]
        assert (age[one.batch_size :] <= 20).all()
        early += int((data.time[every.n_id[: every.batch_size]][every.batch] - data.time[every.n_id] > 20).sum())
    assert early > 100
    other = NeighborLoader(data, [4, 3], input_start=data.time - 19, **options)
    with pytest.raises(bs.UsageError, match="other examples"):
        other.load_state_dict(by_start.state_dict())
    given = NeighborLoader(data, [4, 3], input_nodes=[7, 9], input_time=[30, 31], input_start=[30, 5], time_attr="time", batch_size=2)
    assert next(iter(given)).seed_time.tolist() == [30, 31]


TIMED = typed_data(times="vertices")


@pytest.mark.parametrize(("make", "words"), [
    (lambda: loader(nodes=[("paper", IDS), ("paper", IDS)]), "type 'paper' stands there 2 times; join its lists"),
    (lambda: loader(nodes=[("paper", IDS), ("writer", None)]), "has no type 'writer'"),
    (lambda: loader(nodes=[("paper", IDS), ("author", [40])]), "input_nodes of type 'author': entry 0 is vertex 40; use 0 to 39"),
    (lambda: loader(nodes=[]), "name their type"),
    (lambda: loader(nodes={}), "name their type"),
    (lambda: loader(nodes=torch.tensor([])), r"input_nodes: got a Tensor of shape \(0,\); name their type"),
    (lambda: loader(nodes=[3, 4]), "name their type, such as .*, or a list of such"),
    (lambda: loader(TIMED, time_attr="time", input_time=torch.zeros(18)), "input_time: got a Tensor for input nodes of 2 types; use a"),
    (lambda: loader(TIMED, time_attr="time", input_time={"paper": [1] * 8}), "input_time: got those of paper; give those of paper, author"),
    (lambda: loader(TIMED, time_attr="time", input_time={"paper": [1] * 8, "author": None}), "input_time: got none for type 'author'"),
    (lambda: loader(TIMED, time_attr="time", input_start={"paper": None, "author": [1] * 10}), "input_start: got none for type 'paper'"),
    (lambda: loader(TIMED, time_attr="time", input_start={"paper": [99] * 8, "author": [1] * 9}), "input_start of type 'paper': entry"),
    (lambda: loader(TIMED, time_attr="time", input_start={"paper": [-9] * 8, "author": [-9] * 9}), "type 'author': .*shape .10,"),
    (lambda: loader(TIMED, nodes=("paper", [1]), time_attr="time", input_time=[3], input_start=[4]), "give no start later than its time"),
    (lambda: loader(input_start=[1]), "input_start was given without times of the graph; give time_attr too"),
    (lambda: loader(TIMED, nodes="paper", neighbor_sampler=BulkSampler(TIMED, [2], time_attr="time"), time_window=3),
     "time_window: the neighbor_sampler has its own"),
])  # fmt: skip
def test_what_does_not_fit_is_refused(make, words):
    with pytest.raises(bs.UsageError, match=words):
        make()

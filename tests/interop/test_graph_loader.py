"""`bulksample.Loader`: the mini-batches of `BulkLoader`, with their features and labels."""

import json
from contextlib import contextmanager

import numpy as np
import pytest
import torch
from communities import community_graph
from torch.utils.data import DistributedSampler

import bulksample as bs
from bulksample.distributed.comm.threads import SerialComm
from bulksample.loading.loader import BulkLoader

GRAPH = community_graph(n=300, weighted=True)


def loader(graph=GRAPH, **options):
    return bs.Loader(graph, **{"fanouts": [4, 3], "batch_size": 16, "seeds": "train", "seed": 5, "out": "numpy", **options})


def bulk_loader(sampler="sage", shuffle=True, drop_last=False, **options):
    """`BulkLoader` with the arguments of `loader`."""
    adjacency = bs.LocalAdjacency(GRAPH.adjacency, bs.backends.make())
    made = bs.samplers.make(sampler, (4, 3), **options)
    return BulkLoader(adjacency, made, GRAPH.seeds("train"), batch_size=16, seed=5, shuffle=shuffle, drop_last=drop_last)


def digests(batches):
    return [batch.digest() for batch in batches]


@pytest.mark.parametrize(
    "options",
    [
        {}, {"sampler": "ladies"}, {"sampler": "ladies", "debias": False}, {"sampler": "labor"}, {"replace": True}, {"weighted": True},
        {"frontier": "new"}, {"shuffle": False}, {"drop_last": True},
    ],
)  # fmt: skip
def test_minibatches_are_those_of_bulk_loader(options):
    ours, theirs = loader(**options), bulk_loader(**options)
    assert len(ours) == len(theirs)
    for epoch in range(2):
        assert ours.epoch == epoch
        assert digests(ours) == digests(theirs)


@pytest.mark.parametrize("options", [{"bulk_size": 3}, {"threads": 1}, {"backend": "reference"}, {"prefetch": False}, {"memory_budget": 1}])
def test_how_they_are_sampled_does_not_change_them(options):
    assert digests(loader(**options)) == digests(loader())


@pytest.mark.parametrize(("ranks", "drop_last"), [(2, False), (3, False), (7, False), (20, False), (2, True), (3, True), (7, True)])
def test_ranks_share_the_minibatches_of_an_epoch_evenly(ranks, drop_last):
    """Like `torch.utils.data.DistributedSampler`, whose examples are the mini-batches of one rank."""
    alone = digests(loader(drop_last=drop_last))
    for rank in range(ranks):
        share = loader(rank=rank, ranks=ranks, drop_last=drop_last, bulk_size=2)
        expected = list(DistributedSampler(alone, ranks, rank, shuffle=False, drop_last=drop_last))
        assert len(share) == len(expected)
        assert digests(share) == [alone[i] for i in expected]


def test_drop_last_that_leaves_no_minibatch_is_refused_on_every_rank():
    seeds = range(40)  # two whole mini-batches of 16
    assert [len(loader(seeds=seeds, drop_last=True, rank=rank, ranks=2)) for rank in range(2)] == [1, 1]
    for rank in range(3):
        with pytest.raises(bs.UsageError, match="drop_last leaves no mini-batch: 40 seeds fill 2 of 16, for 3 ranks; use drop_last=False"):
            loader(seeds=seeds, drop_last=True, rank=rank, ranks=3)
    with pytest.raises(bs.UsageError, match="drop_last leaves no mini-batch: 5 seeds fill 0 of 16, for 1 ranks; use drop_last=False"):
        loader(seeds=range(5), drop_last=True)
    assert [len(batch.seeds) for batch in loader(seeds=range(5))] == [5]


def test_a_rank_continues_its_own_share():
    whole, first = loader(rank=1, ranks=3), loader(rank=1, ranks=3)
    expected = digests(whole)
    next(iter(first))
    second = loader(rank=1, ranks=3)
    second.load_state_dict(first.state_dict())
    assert digests(second) == expected[1:]
    alone, other = digests(loader()), loader(rank=1, ranks=2)
    other.load_state_dict(first.state_dict())  # three mini-batches were used, by three ranks
    assert digests(other)[0] == alone[4]


@pytest.mark.parametrize("stop", [0, 1, 4, 8])
def test_a_state_continues_in_the_middle_of_an_epoch(stop):
    whole, first = loader(), loader()
    expected = digests(whole) + digests(whole)
    taken = digests(batch for _, batch in zip(range(stop), first, strict=False)) if stop else []
    second = loader(bulk_size=2)
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert taken + digests(second) + digests(second) == expected
    other = bulk_loader()
    other.load_state_dict(first.state_dict())
    assert digests(other) == expected[stop : len(whole)]


@pytest.mark.parametrize("shared", [False, True])
def test_profilers_see_the_phases_of_a_loader(shared, tmp_path):
    GRAPH.save(tmp_path / "g")
    entered, left = [], []

    @contextmanager
    def profile(name):
        entered.append(name)
        yield
        left.append(name)

    graph = bs.load(tmp_path / "g", world=SerialComm()) if shared else GRAPH
    with torch.profiler.profile() as seen:
        loader = bs.Loader(graph, fanouts=[3], batch_size=16, seeds="train", threads=1, bulk_size=2, profile=profile)
        steps = len([batch.x for batch in loader])
    counts = {phase: entered.count(f"bulksample: {phase}") for phase in ("sample", "fetch")}
    assert entered == left
    assert counts["fetch"] >= steps
    assert counts["sample"] >= (-(-steps // 2) if shared else steps)  # ranks that share a graph take a bulk at once
    assert counts == {phase: sum(event.name == f"bulksample: {phase}" for event in seen.events()) for phase in counts}


def test_a_view_of_tensors_has_the_state_of_its_loader():
    whole, first, again = loader(), loader().to("cpu"), loader().to("cpu")
    expected = digests(whole)
    for _ in zip(range(3), first, strict=False):
        pass
    again.load_state_dict(first.state_dict())
    assert digests(again) == expected[3:]
    assert (again.epoch, first.epoch) == (1, 0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_state_after_the_last_batch_begins_the_next_epoch(ranks):
    whole, first, again = loader(), loader(), loader(ranks=ranks)
    following = [digests(whole), digests(whole)][1]
    for _ in zip(range(len(first)), first, strict=False):
        pass
    assert first.epoch == 0
    again.load_state_dict(first.state_dict())
    assert again.epoch == 1
    assert digests(again) == following[::ranks]


def test_a_state_of_another_loader_is_refused():
    with pytest.raises(bs.UsageError, match="batch_size was 16 and is 8 now"):
        loader(batch_size=8).load_state_dict(loader().state_dict())
    for dicts in (True, False):
        with pytest.raises(bs.UsageError, match=f"it was saved with as_dicts={dicts}; make this loader so too"):
            loader(as_dicts=not dicts).load_state_dict(loader(as_dicts=dicts).state_dict())


@pytest.mark.parametrize("sparse", [False, True])
def test_features_are_those_of_the_vertices_and_labels_those_of_the_seeds(sparse):
    graph = community_graph(sparse=sparse, half=not sparse)
    dense = graph.features.to_scipy().toarray() if sparse else graph.features
    for batch in loader(graph):
        np.testing.assert_array_equal(batch.x, dense[batch.vertices].astype(np.float32))
        np.testing.assert_array_equal(batch.y, graph.labels[batch.seeds])
        np.testing.assert_array_equal(batch.vertices[batch.seed_rows], batch.seeds)
        assert batch.x.dtype == np.float32
        assert (batch.x.flags.writeable, batch.epoch) == (True, 0)
        assert batch.blocks[-1].num_destinations == len(batch.seeds)


def test_a_graph_without_features_is_sampled_and_says_what_is_missing():
    batch = next(iter(bs.Loader(bs.from_edges([0, 1], [1, 0]), fanouts=[2])))
    assert len(batch.vertices) == 2
    with pytest.raises(bs.UsageError, match="has no features; give x to from_edges"):
        batch.x  # noqa: B018
    with pytest.raises(bs.UsageError, match="has no labels; give y to from_edges"):
        batch.to().y  # noqa: B018


def test_a_store_is_opened(tmp_path):
    GRAPH.save(tmp_path / "g")
    assert digests(loader(tmp_path / "g")) == digests(loader(str(tmp_path / "g"))) == digests(loader())


TRAIN = GRAPH.seeds("train")


@pytest.mark.parametrize(
    "seeds", ["train", None, TRAIN, TRAIN.tolist(), TRAIN.astype(np.uint64), GRAPH.masks["train"], GRAPH.masks["train"].tolist()]
)
def test_seeds_are_a_split_ids_or_a_mask(seeds):
    assert digests(loader(seeds=seeds)) == digests(loader())


def test_seeds_may_be_tensors_and_may_repeat():
    assert digests(loader(seeds=torch.from_numpy(TRAIN))) == digests(loader())
    batch = next(iter(loader(seeds=[7, 7, 8], shuffle=False)))
    assert batch.seeds.tolist() == [7, 7, 8]
    assert batch.vertices[:2].tolist() == [7, 8]
    assert batch.to().seed_rows.tolist() == [0, 0, 1]


def test_without_a_split_every_vertex_is_a_seed():
    graph = bs.from_edges([0, 1], [1, 0], num_nodes=5)
    assert sorted(v for batch in bs.Loader(graph, batch_size=2) for v in batch.seeds.tolist()) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": "dev"}, "no 'dev' split"),
        ({"seeds": [1.0]}, r"seeds: got float64 of shape \(1,\); use integer ids"),
        ({"seeds": [True]}, r"seeds: got bool of shape \(1,\)"),
        ({"seeds": [300]}, "seeds: entry 0 is vertex 300; use 0 to 299"),
        ({"seeds": [3, -1]}, "seeds: entry 1 is vertex -1"),
        ({"seeds": []}, "seeds choose none of the 300 vertices"),
        ({"seeds": np.zeros(300, bool)}, "seeds choose none"),
        ({"batchsize": 3}, "no argument 'batchsize'; did you mean 'batch_size'"),
        ({"replaced": True}, "did you mean 'replace'"),
        ({"sampler": "sagee"}, "'sagee'"),
        ({"fanouts": []}, "fanouts"),
        ({"fanouts": 2}, "fanouts must be a list of whole numbers, one for each hop; got 2"),
        ({"fanouts": [True, 3]}, "fanouts must be a list of whole numbers"),
        ({"fanouts": [1.5]}, "fanouts must be a list of whole numbers"),
        ({"fanouts": "2,2"}, "fanouts must be a list of whole numbers"),
        ({"fanouts": [10, 0]}, "fanouts: got 10,0; a hop of 0 draws no neighbor: use 1 or more, or -1 for all"),
        ({"fanouts": None, "sampler": bs.samplers.Labor((0, 3))}, "fanouts: got 0,3; a hop of 0 draws no neighbor"),
        ({"batch_size": 0}, "batch_size"),
        ({"shuffle": 1}, "shuffle must be true or false; got 1"),
        ({"drop_last": "no"}, "drop_last must be true or false; got 'no'"),
        ({"edge_ids": "no"}, "edge_ids must be true or false; got 'no'"),
        ({"bulk_size": "x"}, "bulk_size must be 'auto' or positive, and a whole number; got 'x'"),
        ({"bulk_size": 2.5}, "bulk_size must be 'auto' or positive, and a whole number; got 2.5"),
        ({"sampler": bs.samplers.Sage((4, 3))}, "got a sampler object, and fanouts"),
    ],
)
def test_bad_arguments_are_refused(options, message):
    with pytest.raises(bs.UsageError, match=message):
        loader(**options)


def test_fanouts_may_be_an_array():
    plain, array = loader(fanouts=[4, 3]), loader(fanouts=np.array([4, 3]))
    array.load_state_dict(plain.state_dict())  # the same sampler
    assert digests(array) == digests(plain)


def test_a_sampler_may_be_given_whole():
    assert digests(loader(sampler=bs.samplers.Sage((4, 3)), fanouts=None)) == digests(loader())


@pytest.mark.parametrize("sampler", ["sage", "ladies"])
def test_tensors_hold_what_arrays_hold(sampler):
    from bulksample.nn.aggregate import aggregate

    for batch in loader(sampler=sampler):
        tensors = batch.to("cpu")
        assert tensors.x.data_ptr() == batch.x.ctypes.data  # not copied
        for name in ("vertices", "seeds", "seed_rows", "x", "y"):
            np.testing.assert_array_equal(getattr(tensors, name), getattr(batch, name))
        assert tensors.vertices.dtype == tensors.blocks[0].edge_index.dtype == torch.int64
        assert tensors.digest() == batch.digest()
        h = tensors.x
        for block, arrays in zip(tensors.blocks, batch.blocks, strict=True):
            assert (block.num_sources, block.num_destinations) == (len(h), arrays.num_destinations)
            torch.testing.assert_close(block.aggregate(h), aggregate(arrays, h))
            h = block.aggregate(h)


def test_batches_are_tensors_where_torch_is(monkeypatch):
    for made, arrays in zip(loader(out=None), loader(), strict=True):
        assert type(made.x) is torch.Tensor
        assert made.x.data_ptr() == made.columns.x.ctypes.data  # not copied
        np.testing.assert_array_equal(made.vertices, arrays.vertices)
        np.testing.assert_array_equal(made.blocks[0].edge_index[0], arrays.blocks[0].indices)
        assert (made.digest(), type(arrays.x)) == (arrays.digest(), np.ndarray)
    monkeypatch.setattr("bulksample.interop.tensors.find_spec", lambda name: None)
    assert type(next(iter(loader(out=None))).x) is np.ndarray
    with pytest.raises(bs.UsageError, match="out: got 'torch', which is not installed; use out='numpy'"):
        loader(out="torch")


def test_a_loop_in_plain_torch_learns():
    torch.manual_seed(0)
    layers = torch.nn.ModuleList(torch.nn.Linear(2 * a, b) for a, b in ((8, 16), (16, 3)))
    optimizer = torch.optim.Adam(layers.parameters(), lr=0.01)
    batches, losses = loader(out="torch"), []
    for _ in range(15):
        for tensors in batches:
            h = tensors.x
            for layer, block in zip(layers, tensors.blocks, strict=True):
                h = layer(torch.cat([h[: block.num_destinations], block.aggregate(h)], dim=1)).relu()
            loss = torch.nn.functional.cross_entropy(h, tensors.y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert np.mean(losses[-10:]) < 0.7 * np.mean(losses[:10])


@pytest.mark.parametrize(("device", "message"), [
    ("cpuu", "device: got 'cpuu', which torch does not know; use 'cpu', 'cuda' or 'cuda:0'"), (3.5, "device: got 3.5, which torch does"),
    pytest.param("cuda", "device: got 'cuda', but torch sees no GPU; use 'cpu'",
                 marks=pytest.mark.skipif(torch.cuda.is_available(), reason="torch sees a GPU")),
])  # fmt: skip
def test_a_device_that_is_none_is_refused_at_once(device, message):
    batch = next(iter(loader()))
    with pytest.raises(bs.UsageError, match=message):
        batch.to(device)


@pytest.mark.parametrize("given", [None, 3, GRAPH.adjacency], ids=["nothing", "a number", "a matrix"])
def test_what_is_no_graph_and_no_path_is_refused(given, tmp_path):
    message = f"a store: got a {type(given).__name__}; use the path of a folder"
    for made in (lambda: bs.load(given), lambda: bs.Loader(given), lambda: bs.train(given, quiet=True), lambda: GRAPH.save(given)):
        with pytest.raises(bs.UsageError, match=message):
            made()
    with pytest.raises(bs.UsageError, match=f"a checkpoint: got a {type(given).__name__}; use the path"):
        bs.predict(GRAPH, given)


def test_vertices_that_saint_adds_to_the_seeds_have_no_label():
    """Its walks lead out of the training split; a loop that trained on their labels would train on the test set."""
    graph = community_graph()
    is_train, added = graph.masks["train"], 0
    for batch in bs.Loader(graph, "saint", [1, 1], batch_size=16, seeds="train", threads=1, out="numpy"):
        assert (batch.y[~is_train[batch.seeds]] == -1).all()
        np.testing.assert_array_equal(batch.y[is_train[batch.seeds]], graph.labels[batch.seeds][is_train[batch.seeds]])
        added += np.count_nonzero(~is_train[batch.seeds])
    assert added


def test_tensors_have_the_weights_and_the_place_of_their_batch():
    for batch in bs.Loader(community_graph(), "saint", [1, 1], batch_size=16, coverage=5, threads=1, out="numpy"):
        tensors = batch.to("cpu")
        assert (tensors.id, tensors.epoch) == (batch.id, batch.epoch)
        np.testing.assert_array_equal(tensors.seed_weights.numpy(), batch.seed_weights)
        np.testing.assert_array_equal(batch.to_pyg().seed_weight.numpy(), batch.seed_weights)
        break


@pytest.mark.parametrize("wrong", [0, -1, 1.5, "2"])
def test_fetch_together_is_a_positive_whole_number(wrong):
    with pytest.raises(bs.UsageError, match="fetch_together must be a positive whole number"):
        bs.Loader(community_graph(), fanouts=[2], fetch_together=wrong)

"""`bulksample.load(path, world=...)` and a `Loader` over it: every rank holds its share, and batches are those of one process."""

import json
import re
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
import torch
from communities import community_graph, dense_features
from launch import run_ranks

import bulksample as bs
from bulksample.distributed.comm.threads import SerialComm, on_threads

KINDS = {"plain": {}, "sparse": {"sparse": True}, "weighted": {"weighted": True, "half": True}}
PLACES = list(product(["partitioned", "replicated"], repeat=2))


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """Stores by kind, and their graphs."""
    folder = tmp_path_factory.mktemp("graphs")
    graphs = {kind: community_graph(**options) for kind, options in KINDS.items()}
    for kind, graph in graphs.items():
        graph.save(folder / kind)
    return folder, graphs


def opened(path, comm, **options):
    return bs.load(path, world=comm, check="none", **options)


def loader(graph, **options):
    return bs.Loader(graph, **{"fanouts": [4, 3], "batch_size": 16, "seeds": "train", "seed": 5, "threads": 1, **options})


def digests(batches):
    return [batch.digest() for batch in batches]


def shares(graph, p, epochs=1, **options):
    """The digests of every rank, as `rank` and `ranks` give them to loaders of the whole graph."""
    alone = [loader(graph, rank=rank, ranks=p, **options) for rank in range(p)]
    return [[digests(one) for _ in range(epochs)] for one in alone]


@pytest.mark.parametrize(("topology", "features"), PLACES)
@pytest.mark.parametrize(("p", "c"), [(1, 1), (2, 1), (3, 1), pytest.param(4, 2, marks=pytest.mark.long)])
def test_minibatches_and_rows_do_not_depend_on_ranks_or_placement(stored, p, c, topology, features):
    folder, graphs = stored
    graph, x = graphs["plain"], graphs["plain"].features
    c = c if "partitioned" in (topology, features) else 1

    def rank(comm):
        batches = loader(opened(folder / "plain", comm, topology=topology, features=features, replication=c))
        found = [[], []]
        for epoch, seen in enumerate(found):
            for batch in batches:
                np.testing.assert_array_equal(batch.x, x[batch.vertices])
                np.testing.assert_array_equal(batch.y, graph.labels[batch.seeds])
                assert (batch.epoch, batches.epoch) == (epoch, epoch)
                seen.append(batch.digest())
        assert len(found[0]) == len(batches)
        return found

    assert on_threads(p, rank) == shares(graph, p, epochs=2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [
    {"sampler": "ladies"}, {"sampler": "labor", "seeds": [5, 7, 7, 200] * 9}, {"frontier": "new", "fetch_together": 3, "seeds": None},
    {"seeds": "all", "shuffle": False, "prefetch": False, "bulk_size": 2},
], ids=["ladies", "ids", "together", "all"])  # fmt: skip
def test_every_sampler_kind_of_features_and_choice_of_seeds(stored, kind, options):
    folder, graphs = stored
    graph, x = graphs[kind], dense_features(graphs[kind])

    def rank(comm):
        found = []
        for batch in loader(opened(folder / kind, comm, partition="random", seed=3), **options):
            np.testing.assert_array_equal(batch.x, x[batch.vertices])
            np.testing.assert_array_equal(batch.y, graph.labels[batch.seeds])
            found.append(batch.digest())
        return [found]

    alone = {key: value for key, value in options.items() if key != "fetch_together"}
    assert on_threads(2, rank) == shares(graph, 2, **alone)


@pytest.mark.parametrize("topology", ["partitioned", "replicated"])
def test_labels_of_several_columns_are_those_of_the_seeds(tmp_path, topology):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, (80, 3)).astype(np.float32)
    y[::7, 1] = np.nan
    x = np.arange(80, dtype=np.float32)[:, None]
    bs.from_edges(*rng.integers(0, 80, (2, 300)), num_nodes=80, x=x, y=y, target="multilabel").save(tmp_path / "g")

    def rank(comm):
        for batch in loader(opened(tmp_path / "g", comm, topology=topology, partition="random"), seeds="all"):
            np.testing.assert_array_equal(batch.y, y[batch.seeds])

    on_threads(2, rank)


def test_a_rank_holds_its_block_rows_and_no_more(stored):
    folder, _ = stored
    whole = opened(folder / "plain", SerialComm()).held_bytes()

    def held(comm):
        return [opened(folder / "plain", comm, topology=topology, features=features).held_bytes() for topology, features in PLACES]

    for rank in on_threads(4, held):
        for (topology, features), found in zip(PLACES, rank, strict=True):
            assert found["features"] == whole["features"] / (4 if features == "partitioned" else 1)
            assert found["adjacency"] < whole["adjacency"] / 3 if topology == "partitioned" else found["adjacency"] == whole["adjacency"]


def test_several_loaders_of_one_graph_run_side_by_side(stored):
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "plain", comm)
        pairs = zip(loader(graph), loader(graph, seeds="val"), strict=False)
        return [(one.digest(), other.digest()) for one, other in pairs]

    train, val = shares(graphs["plain"], 2), shares(graphs["plain"], 2, seeds="val")
    assert on_threads(2, rank) == [list(zip(train[r][0], val[r][0], strict=False)) for r in range(2)]


def test_loaders_use_the_communicators_of_loaders_that_are_no_more(stored):
    folder, graphs = stored
    p, pools = 2, []

    def rank(comm):
        graph, kept = opened(folder / "plain", comm), []
        pools.append((graph.sampling_grids, graph.feature_grids))
        found = []
        for i in range(6):
            batches = loader(graph)
            found.append(digests(batches)[:2] if i % 2 else [next(iter(batches)).digest()])
            kept = [batches] if comm.rank else kept  # rank 1 forgets each loader later than rank 0
            del batches
        return found

    expected = [share[0] for share in shares(graphs["plain"], p)]
    assert on_threads(p, rank) == [[one[:2] if i % 2 else one[:1] for i in range(6)] for one in expected]
    assert [len(pool._made) for both in pools for pool in both] == [2, 3] * p  # two loaders at a time, and the graph itself


@pytest.mark.parametrize(("topology", "features"), PLACES)
def test_graphs_use_the_communicators_of_graphs_that_are_no_more(stored, topology, features):
    folder, graphs = stored

    def rank(comm):
        found, kept = [], []
        for _ in range(4):
            graph = opened(folder / "plain", comm, topology=topology, features=features)
            batches = loader(graph)
            found.append(next(iter(batches)).digest())
            kept = [graph, batches] if comm.rank else kept  # rank 1 forgets each graph later than rank 0
            del graph, batches
        return found, [len(pool._made) for pool in comm.pools.values()]

    expected = [share[0][0] for share in shares(graphs["plain"], 2)]
    for own, (found, made) in zip(expected, on_threads(2, rank), strict=True):
        assert found == [own] * 4
        assert max(made, default=0) <= 4  # of two graphs and two loaders; sixteen were asked for


@pytest.mark.long
def test_a_job_may_open_hundreds_of_graphs_and_loaders(stored):
    """MPI libraries have some two thousand communicators."""
    folder, _ = stored
    program = f"""
import bulksample as bs
for i in range(500):
    graph = bs.load({str(folder / "plain")!r}, world=bs.init(timeout=60), check="none")
    next(iter(bs.Loader(graph, fanouts=[2], batch_size=64, threads=1, prefetch=i % 2 == 0)))
"""
    ended = run_ranks(2, program, timeout=120)
    assert ended.code == 0, ended


def test_an_iteration_ends_the_one_before_and_its_sampling_thread(stored):
    folder, graphs = stored

    def rank(comm):
        batches = loader(opened(folder / "plain", comm), bulk_size=2)
        first = iter(batches)
        begun = next(first).digest()
        second = digests(batches)
        with pytest.raises(bs.UsageError, match="a newer iteration of this loader has begun"):
            next(first)
        return [begun, second, digests(batches)]

    expected = shares(graphs["plain"], 2, epochs=3)
    assert on_threads(2, rank) == [[one[0], two, three] for one, two, three in expected]


@pytest.mark.parametrize("topology", ["partitioned", "replicated"])
@pytest.mark.parametrize("together", [1, 2])
def test_batches_that_do_not_repeat_have_every_seed_once(stored, topology, together):
    folder, graphs = stored
    val = graphs["plain"].seeds("val")

    def seeds(batches):
        return np.concatenate([np.empty(0, np.int32), *(batch.seeds for batch in batches.to() if not batch.repeated)])

    def rank(comm):
        batches = loader(opened(folder / "plain", comm, topology=topology), seeds="val", batch_size=7, fetch_together=together)
        assert len(batches) * 3 == -(-len(val) // 7) + 2, "two ranks repeat a batch"
        whole = seeds(batches)
        next(iter(batches))
        state = batches.state_dict()
        batches.load_state_dict(state)
        return whole, seeds(batches)

    found, rests = zip(*on_threads(3, rank), strict=True)
    np.testing.assert_array_equal(np.sort(np.concatenate(found)), val)
    assert len(np.concatenate(rests)) == len(val) - 3 * 7
    alone = [loader(graphs["plain"], seeds="val", batch_size=7, rank=r, ranks=3) for r in range(3)]
    np.testing.assert_array_equal(np.sort(np.concatenate([seeds(one) for one in alone])), val)


def test_an_iteration_left_early_is_followed_by_the_next_epoch(stored):
    folder, graphs = stored

    def rank(comm):
        batches = loader(opened(folder / "plain", comm))
        first = [batch.digest() for batch, _ in zip(batches, range(2), strict=False)]
        return [first, digests(batches)]

    expected = shares(graphs["plain"], 2, epochs=2)
    assert on_threads(2, rank) == [[first[:2], second] for first, second in expected]


@pytest.mark.parametrize("together", [1, 3])
def test_a_state_is_the_position_of_the_batch_in_use(stored, together):
    """The loader is ahead of its user; a state names the batch that was yielded last."""
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "plain", comm)
        first, again = (loader(graph, fetch_together=together) for _ in range(2))
        taken = []
        for batch in first:
            taken.append(batch.digest())
            if len(taken) == 2:
                state = json.loads(json.dumps(first.state_dict()))
                break
        again.load_state_dict(state)
        return [taken + digests(again), digests(again)]

    assert on_threads(2, rank) == shares(graphs["plain"], 2, epochs=2)


@pytest.mark.parametrize("together", [1, 2])
def test_a_state_after_the_last_batch_begins_the_next_epoch(stored, together):
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "plain", comm)
        first, again = (loader(graph, fetch_together=together) for _ in range(2))
        for _ in zip(range(len(first)), first, strict=False):
            pass
        again.load_state_dict(first.state_dict())
        return [again.epoch, digests(again)]

    assert on_threads(2, rank) == [[1, share[1]] for share in shares(graphs["plain"], 2, epochs=2)]


def test_a_state_continues_on_another_number_of_ranks(stored):
    """Ranks that take over in the middle of an epoch take the mini-batches that the others have left."""
    folder, graphs = stored

    def begin(comm):
        batches = loader(opened(folder / "plain", comm))
        return next(iter(batches)).digest(), batches.state_dict()

    used, states = zip(*on_threads(2, begin), strict=True)
    assert states[0] == states[1]

    def go_on(comm):
        batches = loader(opened(folder / "plain", comm))
        batches.load_state_dict(states[0])
        return digests(batches)

    rest = [digest for rank in on_threads(3, go_on) for digest in rank]
    every = digests(loader(graphs["plain"]))
    assert {*used, *rest} == set(every)
    assert len(rest) == 3 * -(-(len(every) - 2) // 3)  # even: the first ones repeat at the end


def test_tensors_are_those_of_the_arrays(stored):
    folder, _ = stored
    batches = loader(opened(folder / "plain", SerialComm())).to("cpu")
    assert len(batches) == len(list(batches))
    for tensors in batches:
        assert isinstance(tensors.x, torch.Tensor)
        assert tensors.x.data_ptr() == tensors.batch.x.ctypes.data  # not copied
        np.testing.assert_array_equal(tensors.y, tensors.batch.y)


# ---- edges


def test_a_state_of_another_store_is_refused(stored, tmp_path):
    """Its seeds and sizes may be the same; no rank holds the matrix that tells the graphs apart."""
    folder, _ = stored
    community_graph(seed=1).save(tmp_path / "other")
    seeds = np.arange(100)
    state = on_threads(2, lambda comm: bs.Loader(opened(tmp_path / "other", comm), fanouts=[2], batch_size=10, seeds=seeds).state_dict())[0]

    def rank(comm):
        bs.Loader(opened(folder / "plain", comm), fanouts=[2], batch_size=10, seeds=seeds).load_state_dict(state)

    with pytest.raises(bs.UsageError, match=r"the state does not fit this loader: store was '\w+' and is '\w+' now"):
        on_threads(2, rank)


@pytest.fixture(scope="module")
def with_edges(tmp_path_factory):
    """A store whose edge features name the ends of each edge, and its graph."""
    graph = community_graph(n=120, degree=10)
    a = graph.adjacency
    graph = replace(graph, edge_features=np.stack([a.row_of_entry(), a.indices, np.arange(a.nnz)], axis=1).astype(np.float32))
    path = tmp_path_factory.mktemp("graphs") / "edges"
    graph.save(path)
    return path, graph


def assert_edges(batch, nnz):
    """Every sampled edge has its own features and its number in the adjacency."""
    for block, attr, number in zip(batch.blocks, batch.edge_attr, batch.e_id, strict=True):
        rows = np.repeat(np.arange(block.num_destinations), np.diff(block.indptr))
        expected = np.stack([batch.vertices[rows], batch.vertices[block.indices], number], axis=1)
        np.testing.assert_array_equal(attr, expected.astype(np.float32))
        assert attr.dtype == np.float32
        assert number.max(initial=0) < nnz


@pytest.mark.parametrize(("topology", "features"), PLACES)
@pytest.mark.parametrize(
    ("p", "c", "partition"),
    [
        (1, 1, "block"),
        (2, 1, "random"),
        pytest.param(4, 2, "random", marks=pytest.mark.long),
    ],
)
@pytest.mark.parametrize("options", [{}, {"frontier": "new", "fetch_together": 2}, {"sampler": "ladies"}], ids=["all", "new", "ladies"])
def test_edge_features_are_fetched_like_rows(with_edges, p, c, partition, topology, features, options):
    path, graph = with_edges
    how = {"replication": c, "partition": partition} if "partitioned" in (topology, features) else {}

    def rank(comm):
        found = []
        for batch in loader(opened(path, comm, topology=topology, features=features, **how), edge_ids=True, **options):
            assert_edges(batch, graph.adjacency.nnz)
            found.append(batch.digest())
        return [found]

    alone = {key: value for key, value in options.items() if key != "fetch_together"}
    assert on_threads(p, rank) == shares(graph, p, **alone)


@pytest.mark.parametrize("options", [
    {"replication": 2, "feature_replication": 1}, {"topology": "replicated", "features": "host"}, {"replication": 2, "exchange": "rows"},
    *(pytest.param(one, marks=pytest.mark.long) for one in (
        {"feature_replication": 4}, {"features": "machine"}, {"replication": 2, "grid_order": "columns", "partition": "random"},
        {"topology": "replicated", "replication": 2, "grid_order": "rows"}, {"replication": 2, "features": "host"},
    )),
], ids=str)  # fmt: skip
def test_topology_and_features_have_grids_of_their_own(with_edges, monkeypatch, options):
    """Four ranks on two machines: rows and edges are those of the store, mini-batches those of one process."""
    monkeypatch.setenv("BULKSAMPLE_MACHINES", "2,2")
    path, graph = with_edges
    x = dense_features(graph)

    def rank(comm):
        found = []
        for batch in loader(opened(path, comm, **options), edge_ids=True):
            assert_edges(batch, graph.adjacency.nnz)
            np.testing.assert_array_equal(batch.x, x[batch.vertices])
            found.append(batch.digest())
        return [found]

    assert on_threads(4, rank) == shares(graph, 4)


def test_a_whole_graph_gives_the_edges_of_its_batches_too(with_edges):
    _, graph = with_edges
    for batch in loader(graph):
        assert_edges(batch, graph.adjacency.nnz)
        np.testing.assert_array_equal(batch.to().edge_attr[0], batch.edge_attr[0])


def test_a_rank_holds_the_edges_of_its_rows_alone(with_edges):
    path, graph = with_edges
    held = on_threads(4, lambda comm: opened(path, comm).held_bytes()["edge_features"])
    assert sum(held) == graph.edge_features.nbytes
    assert max(held) < graph.edge_features.nbytes / 2


def test_edges_that_were_not_fetched_are_asked_for(stored):
    folder, _ = stored

    def rank(comm):
        batch = next(iter(loader(opened(folder / "plain", comm))))
        with pytest.raises(bs.UsageError, match="make the loader with edge_ids=True"):
            batch.e_id  # noqa: B018
        with pytest.raises(bs.UsageError, match="the graph has no edge features"):
            batch.edge_attr  # noqa: B018

    on_threads(2, rank)


# ---- bad input: the same sentence on every rank, and nothing hangs


def assert_refused(p, act, message):
    """Assert that `act` raises an error with this text on each of p ranks."""

    def rank(comm):
        with pytest.raises((bs.UsageError, bs.DataError), match=re.escape(message)):
            act(comm)
        comm.barrier()  # no rank is still in a collective of the call

    on_threads(p, rank)


@pytest.mark.parametrize(("options", "message"), [
    ({"topology": "partitoned"}, "topology: got 'partitoned'; did you mean 'partitioned'?"),
    ({"features": False}, "features: got False; use replicated, partitioned"),
    ({"replication": 3}, "replication must divide the number of ranks: got c = 3 with p = 2; use c in {1, 2}"),
    ({"replication": 2, "topology": "replicated", "features": "replicated"}, "replication is for block rows; got c = 2"),
    ({"exchange": "owners"}, "exchange: got 'owners'; did you mean 'owner'?"),
    ({"partition": "no-such-file"}, "partition must be one of"),
    ({"label": "no-such"}, "has no label 'no-such'; use one of other"),
    ({"check": "some"}, "check was 'some'; use auto, full, none"),
])  # fmt: skip
def test_what_no_rank_can_load_is_refused_on_every_rank(stored, options, message):
    folder, _ = stored
    assert_refused(2, lambda comm: bs.load(folder / "plain", world=comm, **{"check": "none", **options}), message)


@pytest.mark.parametrize(("options", "message"), [
    ({"topology": ("partitioned", "replicated")}, "agree on topology: 'partitioned' on rank 0, 'replicated' on rank 1"),
    ({"replication": (1, 2)}, "agree on replication: 1 on rank 0, 2 on rank 1"),
    ({"seed": (0, 7)}, "agree on seed: 0 on rank 0, 7 on rank 1"),
    ({"path": ("plain", "sparse")}, "do not agree on graph"),
    ({"path": ("plain", "missing")}, "rank 1: "),
    ({"path": ("missing", "missing")}, "missing: there is no such folder"),
])  # fmt: skip
def test_ranks_that_load_different_things_are_refused_on_every_rank(stored, options, message):
    folder, _ = stored

    def act(comm):
        own = {name: values[comm.rank] for name, values in options.items()}
        bs.load(folder / own.pop("path", "plain"), world=comm, check="none", **own)

    assert_refused(2, act, message)


@pytest.mark.parametrize(("options", "message"), [
    ({"batch_size": (16, 8)}, "agree on batch_size: 16 on rank 0, 8 on rank 1"),
    ({"fanouts": ([4, 3], [4, 4])}, "do not agree on sampler"),
    ({"seeds": ([1, 2], [1, 3])}, "do not agree on seeds"),
    ({"seeds": ("train", [1, 3])}, "do not agree on seeds"),
    ({"seeds": ([1, 2], [1, 300])}, "rank 1: seeds: entry 1 is vertex 300; use 0 to 299"),
    ({"fanouts": ([4, 3], [])}, "rank 1: fanouts"),
    ({"fanouts": ([4, 0], [4, 0])}, "fanouts: got 4,0; a hop of 0 draws no neighbor"),
    ({"seeds": ("dev", "dev")}, "has no 'dev' split"),
    ({"batchsize": (4, 4)}, "no argument 'batchsize'; did you mean 'batch_size'"),
    ({"backend": ("native", "no-such")}, "rank 1: backend 'no-such' was asked for"),
    ({"ranks": (2, 2), "rank": (0, 1)}, "rank and ranks are those of the world of the graph"),
    ({"rank": (0, 1)}, "rank 1: rank and ranks are those of the world of the graph; got 1 and 1"),
    ({"seeds": ([1], [1]), "drop_last": (True, True)}, "drop_last leaves no mini-batch: 1 seeds fill 0 of 16, for 2 ranks"),
    ({"batch_size": (0, 0)}, "batch_size must be positive"),
    ({"weighted": (True, True)}, "the graph has no edge weights"),
])  # fmt: skip
def test_bad_arguments_of_a_loader_are_refused_on_every_rank(stored, options, message):
    folder, _ = stored

    def act(comm):
        loader(opened(folder / "plain", comm), **{name: values[comm.rank] for name, values in options.items()})

    if "backend" in options:
        with pytest.raises(bs.BackendUnavailable, match=message):
            on_threads(2, act)
    else:
        assert_refused(2, act, message)


@pytest.mark.parametrize(("topology", "features"), PLACES)
def test_a_store_without_features_or_labels_is_sampled_and_says_what_is_missing(tmp_path, topology, features):
    bs.from_edges([0, 1, 2], [1, 0, 0]).save(tmp_path / "bare")

    def rank(comm):
        batch = next(iter(loader(opened(tmp_path / "bare", comm, topology=topology, features=features), seeds=None)))
        with pytest.raises(bs.UsageError, match="has no features; give x to from_edges"):
            batch.x  # noqa: B018
        with pytest.raises(bs.UsageError, match="has no labels; give y to from_edges"):
            batch.to().y  # noqa: B018
        return len(batch.vertices)

    assert on_threads(2, rank) == [3, 3]


def test_arguments_of_ranks_that_share_are_refused_for_a_whole_graph(stored):
    _, graphs = stored
    with pytest.raises(bs.UsageError, match="fetch_together is for a graph that ranks share"):
        loader(graphs["plain"], fetch_together=2)
    with pytest.raises(bs.UsageError, match="edge_ids is for a graph that ranks share"):
        loader(graphs["plain"], edge_ids=True)


def test_a_world_that_is_not_there_is_asked_for(stored):
    folder, _ = stored
    with pytest.raises(bs.UsageError, match=r"topology: got no world whose ranks share the graph; use world=bulksample.init\(\)"):
        bs.load(folder / "plain", topology="partitioned")
    with pytest.raises(bs.UsageError, match="features: got no world"):
        bs.load(folder / "plain", features="partitioned")
    with pytest.raises(bs.UsageError, match=r"world: got a int; use what bulksample.init\(\)"):
        bs.load(folder / "plain", world=2)
    assert bs.load(folder / "plain", features=False).features is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"topologyy": "partitioned"}, "load has no argument 'topologyy'; did you mean 'topology'"),
        ({"wrld": 1}, "load has no argument 'wrld'; did you mean 'world'"),
        ({"label": "missing"}, "has no label 'missing'; use"),
        ({"target": "several"}, "there is no target 'several'; use class, multilabel"),
        ({"replication": "2"}, "replication: got '2'; use a whole number, 1 or more"),
        ({"feature_replication": 0}, "feature_replication: got 0; use a whole number, 1 or more"),
        ({"seed": -1}, "seed: got -1; use a whole number, 0 or more"),
        ({"features": False}, "features: got False; use replicated, partitioned"),
    ],
)
def test_arguments_of_load_that_do_not_exist_or_fit_are_refused_on_every_rank(stored, options, message):
    folder, _ = stored
    assert_refused(2, lambda comm: opened(folder / "plain", comm, **options), message)


@pytest.mark.parametrize("options", [{"label": "other"}, {"label": "other", "target": "multilabel"}, {"target": "regression"}])
def test_a_label_and_a_target_are_those_of_the_whole_graph_on_every_placement(stored, options):
    folder, graphs = stored
    wanted = graphs["plain"].with_label(**{"name": options.get("label"), "target": options.get("target")})
    alone = bs.load(folder / "plain", **options)
    assert (alone.target, alone.num_classes) == (wanted.target, wanted.num_classes)
    np.testing.assert_array_equal(alone.labels, wanted.labels)

    def rank(comm, topology, features):
        graph = opened(folder / "plain", comm, topology=topology, features=features, **options)
        return [batch.y for batch in loader(graph)], graph.num_classes

    expected = [[batch.y for batch in loader(wanted, rank=r, ranks=2)] for r in range(2)]
    for topology, features in PLACES:
        for own, (found, classes) in zip(expected, on_threads(2, lambda comm: rank(comm, topology, features)), strict=True):  # noqa: B023
            assert classes == wanted.num_classes
            for one, other in zip(own, found, strict=True):
                np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("timeout", ["x", 0, -1.0, float("nan"), float("inf"), True, None])
def test_a_timeout_that_is_no_number_of_seconds_is_refused(timeout):
    with pytest.raises(bs.UsageError, match=f"timeout: got {timeout!r}; use a positive number of seconds"):
        bs.init(timeout=timeout)


@pytest.mark.parametrize(("topology", "features"), PLACES)
def test_ranks_that_resume_at_different_places_are_refused_on_every_rank(stored, topology, features):
    folder, _ = stored

    def act(comm):
        batches = loader(opened(folder / "plain", comm, topology=topology, features=features))
        state = batches.state_dict()
        digests(batches)
        if comm.rank:
            batches.load_state_dict({**state, "step": 2})
        next(iter(batches))

    assert_refused(2, act, "rank 0 begins epoch 1 at step 0; rank 1 begins epoch 0 at step 2, where a state was loaded")


@pytest.mark.parametrize("options", [{}, {"prefetch": False, "bulk_size": 4}, {"fetch_together": 2}], ids=str)
def test_a_rank_that_leaves_a_loop_early_is_named_when_it_begins_the_next(stored, options):
    folder, _ = stored

    def act(comm):
        batches = loader(opened(folder / "plain", comm), **options)
        for _ in range(2):
            for step, _ in enumerate(batches):
                if step == 1 and comm.rank == 0:
                    break

    assert_refused(2, act, "rank 0 begins epoch 1 at step 0, having left epoch 0 after 2 of 5 steps; rank 1 is at step ")


def test_ranks_that_leave_a_loop_after_the_same_step_go_on(stored):
    folder, graphs = stored

    def rank(comm):
        batches = loader(opened(folder / "plain", comm))
        first = [batch.digest() for _, batch in zip(range(2), batches, strict=False)]
        return first, digests(batches)

    expected = shares(graphs["plain"], 2, epochs=2)
    assert [(one[:2], two) for one, two in expected] == on_threads(2, rank)


def test_ranks_never_draw_for_different_epochs_at_once(stored):
    """The owner of a row draws with its own epoch, so the answer to a rank in another epoch would be wrong."""
    folder, _ = stored

    def act(comm):
        batches = loader(opened(folder / "plain", comm, features="replicated"), prefetch=False)
        batches.bulks.epoch = comm.rank
        next(iter(batches.bulks))

    assert_refused(2, act, "rank 0 samples from step 0 of epoch 0; rank 1 samples from step 0 of epoch 1")


@pytest.mark.parametrize("group", ["glooo", 3])
def test_a_process_group_of_an_unknown_back_end_is_refused(group):
    with pytest.raises(bs.UsageError, match=f"process_group: got {group!r}; "):
        bs.init(process_group=group)


def test_training_refuses_shares_that_are_open_already(stored):
    folder, _ = stored
    share = opened(folder / "plain", SerialComm())
    with pytest.raises(bs.UsageError, match="train opens the shares of ranks itself; got those of 'communities': use the path"):
        bs.train(share)


def test_seed_locality_draws_the_seeds_that_a_rank_holds(stored):
    """Rank r of 2 holds half of the ids, and about half of the seeds; one process draws the same mini-batches."""
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "plain", comm, topology="replicated", features="partitioned")
        batches = list(loader(graph, seed_locality=2, batch_size=8))
        return [(batch.minibatch.id, batch.digest()) for batch in batches if not batch.repeated], np.concatenate([b.seeds for b in batches])

    found = on_threads(2, rank)
    alone = [(batch.minibatch.id, batch.digest()) for batch in loader(graphs["plain"], seed_locality=2, batch_size=8)]
    assert sorted(found[0][0] + found[1][0]) == sorted(alone)
    assert np.mean(found[0][1] < 150) > 0.95
    assert np.mean(found[1][1] >= 150) > 0.95
    with pytest.raises(bs.UsageError, match="seed_locality 2 does not fit steps of 3 mini-batches"):
        loader(graphs["plain"], seed_locality=2, ranks=3)


def test_a_loader_with_seed_locality_goes_on_in_the_middle(stored):
    folder, _ = stored

    def rank(comm):
        graph = opened(folder / "plain", comm, topology="replicated", features="partitioned")
        one, other = (loader(graph, seed_locality=4, batch_size=8) for _ in range(2))
        rows = iter(one)
        for _ in range(3):
            next(rows)
        state = json.loads(json.dumps(one.state_dict()))
        rest = digests(rows)
        other.load_state_dict(state)
        assert digests(other) == rest

    on_threads(2, rank)

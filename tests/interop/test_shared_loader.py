"""`bulksample.load(path, world=...)` and a `Loader` over it: every rank holds its share, and batches are those of one process."""

import numpy as np
import pytest
import torch
from communities import dense_features
from launch import run_ranks
from shared_graphs import PLACES, digests, loader, opened, shares
from waiting import PATIENCE

import bulksample as bs
from bulksample.distributed.comm.threads import SerialComm, on_threads


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


@pytest.mark.parametrize(("topology", "features"), PLACES)
@pytest.mark.parametrize("kind", ["plain", "sparse", "weighted"])
def test_a_plain_graph_is_given_by_type_too(stored, kind, topology, features):
    folder, graphs = stored
    options = {"as_dicts": True, "seeds": "val", "fanouts": {"default": [4, 3]}, "disjoint": True}
    expected = [list(loader(graphs[kind], rank=r, ranks=2, **options)) for r in range(2)]

    def rank(comm):
        graph = opened(
            folder / kind, comm, topology=topology, features=features, partition=("block", "random")["partitioned" in (topology, features)]
        )
        batches, own = loader(graph, **options), expected[comm.rank]
        for batch, alone in zip(batches, own, strict=True):
            assert batch.digest() == alone.digest()
            for name in ("x", "y"):
                np.testing.assert_array_equal(getattr(batch, name)["node"], getattr(alone, name)["node"])
            for layer, other in zip(batch.e_id, alone.e_id, strict=True):
                np.testing.assert_array_equal(layer["node", "to", "node"], other["node", "to", "node"])
            for layer, other in zip(batch.edge_attr, alone.edge_attr, strict=True):
                assert layer.keys() == other.keys()
                for key, rows in other.items():
                    np.testing.assert_array_equal(layer[key], rows)
        with pytest.raises(bs.UsageError, match="it was saved with as_dicts=True; make this loader so too"):
            loader(graph).load_state_dict(batches.state_dict())

    on_threads(2, rank)


@pytest.mark.parametrize("kind", ["plain", "sparse", "weighted"])
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
def test_closed_graphs_and_loaders_leave_no_communicator(stored):
    """MPI libraries have some two thousand communicators. All but a few are taken here, so that one of forty graphs would find none."""
    folder, _ = stored
    program = f"""
import bulksample as bs
from mpi4py import MPI
taken = []
try:
    while True:
        taken.append(MPI.COMM_WORLD.Dup())
except MPI.Exception:
    pass
assert len(taken) > 1000
for comm in taken[-18:]:
    comm.Free()
for i in range(40):
    graph = bs.load({str(folder / "plain")!r}, world=bs.init(timeout={PATIENCE}), check="none")
    next(iter(bs.Loader(graph, fanouts=[2], batch_size=64, threads=1, prefetch=i % 2 == 0)))
"""
    ended = run_ranks(2, program)
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


def test_tensors_are_those_of_the_arrays(stored):
    folder, _ = stored
    batches = loader(opened(folder / "plain", SerialComm())).to("cpu")
    assert len(batches) == len(list(batches))
    for tensors in batches:
        assert isinstance(tensors.x, torch.Tensor)
        assert tensors.x.data_ptr() == tensors.columns.x.ctypes.data  # not copied
        np.testing.assert_array_equal(tensors.y, tensors.columns.y)


# ---- edges

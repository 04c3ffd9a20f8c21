"""`bulksample.load(path, world=...)` and a `Loader` over it: every rank holds its share, and batches are those of one process."""

import json
from itertools import product

import numpy as np
import pytest
import torch
from communities import community_graph, dense_features

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
@pytest.mark.parametrize(("p", "c"), [(1, 1), (2, 1), (3, 1), (4, 2)])
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


def test_tensors_are_those_of_the_arrays(stored):
    folder, _ = stored
    batches = loader(opened(folder / "plain", SerialComm())).to("cpu")
    assert len(batches) == len(list(batches))
    for tensors in batches:
        assert isinstance(tensors.x, torch.Tensor)
        assert tensors.x.data_ptr() == tensors.batch.x.ctypes.data  # not copied
        np.testing.assert_array_equal(tensors.y, tensors.batch.y)

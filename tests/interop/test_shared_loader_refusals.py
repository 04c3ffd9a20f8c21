"""Bad arguments of graphs that ranks share and of their loaders: the same sentence on every rank, and nothing hangs."""

import numpy as np
import pytest
from shared_graphs import PLACES, assert_refused, digests, loader, opened, shares

import bulksample as bs
from bulksample import UsageError, samplers
from bulksample.distributed.comm.threads import SerialComm, on_threads


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
    ({"path": ("plain", "sparse")}, "do not agree on graph: another on rank 1 than on rank 0; start"),
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
    ({"fanouts": ([4, 3], [4, 4])}, "do not agree on fanouts: [4, 3] on rank 0, [4, 4] on rank 1"),
    ({"sampler": ("sage", "labor")}, "do not agree on sampler: 'sage' on rank 0, 'labor' on rank 1"),
    ({"replace": (False, True)}, "do not agree on replace: False on rank 0, True on rank 1"),
    ({"seeds": ([1, 2], [1, 3])}, "do not agree on seeds: another on rank 1 than on rank 0; start"),
    ({"seeds": ("train", [1, 3])}, "do not agree on seeds: 'train' on rank 0, 'a list of vertices' on rank 1"),
    ({"as_dicts": (True, False)}, "do not agree on seeds: 'those of as_dicts=True' on rank 0, 'train' on rank 1"),
    ({"batch_size": (True, True)}, "batch_size must be positive, and a whole number; got True"),
    ({"fetch_together": (True, True)}, "fetch_together must be a positive whole number; got True"),
    ({"threads": (True, True)}, "threads must be positive, and a whole number; got True"),
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
    with pytest.raises(bs.UsageError, match="edge_ids is for a plain graph that ranks share"):
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


@pytest.mark.parametrize("group", ["glooo", 3])
def test_a_process_group_of_an_unknown_back_end_is_refused(group):
    with pytest.raises(bs.UsageError, match=f"process_group: got {group!r}; "):
        bs.init(process_group=group)


def test_training_refuses_other_options_and_ranks_than_those_of_a_share(stored):
    folder, _ = stored
    share = opened(folder / "plain", SerialComm())
    with pytest.raises(bs.UsageError, match=r"^features: got 'replicated', and the graph was opened with 'partitioned'; leave the option"):
        bs.train(share, features="replicated")
    with pytest.raises(bs.UsageError, match="comm: the ranks that opened the graph train on it; leave comm out"):
        bs.train(share, comm=SerialComm())
    whole = opened(folder / "plain", SerialComm(), topology="replicated", features="replicated")
    for options in ({"topology": "partitioned"}, {"graph": "partitioned"}, {"exchange": "rows"}, {"partition": "random"}):
        with pytest.raises(bs.UsageError, match="the graph was opened with"):
            bs.train(whole, **options)
    random = opened(folder / "plain", SerialComm(), partition="random", seed=5)
    with pytest.raises(bs.UsageError, match="seed: got 3, and the graph was opened with 5"):
        bs.train(random, seed=3)


@pytest.mark.parametrize("threads", [0, -1])
@pytest.mark.parametrize("backend", ["native", "reference"])
def test_no_threads_are_refused_on_one_rank_and_on_several(stored, threads, backend):
    folder, graphs = stored
    with pytest.raises(UsageError, match=f"threads must be positive, and a whole number; got {threads}"):
        loader(graphs["plain"], threads=threads, backend=backend)
    with pytest.raises(UsageError, match=f"threads must be positive, and a whole number; got {threads}"):
        on_threads(2, lambda comm: loader(opened(folder / "plain", comm), threads=threads, backend=backend))


def test_whole_numbers_of_numpy_are_those_of_python_on_every_rank(stored):
    """A sampler made from an array on one rank and from a list on the other is one sampler."""
    folder, graphs = stored

    def rank(comm):
        fanouts = np.array([4, 3]) if comm.rank else (4, 3)
        return [digests(loader(opened(folder / "plain", comm), sampler=samplers.Sage(tuple(fanouts)), fanouts=None))]

    assert on_threads(2, rank) == shares(graphs["plain"], 2)

"""`bulksample.load(path, world=...)` of a heterogeneous store and a `Loader` over it: batches are those of one process."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from launch import run_ranks
from relations_zoo import library

import bulksample as bs
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.samplers.hgt import HGSampler
from bulksample.samplers.time_rule import TimeRule
from bulksample.sparse import CSR

PLACES = list(product(["partitioned", "replicated"], repeat=2))
SEEDS = {"paper": np.arange(40), "venue": np.array([1, 6, 1])}
TIMES = {"paper": np.arange(40) + 5, "venue": np.array([40, 10, 30])}
TIMED = {"seeds": SEEDS, "times": TIMES}


def columns(times, **options):
    """A library whose papers have dense features, words sparse ones, and venues labels; citations have features."""
    graph, rng = library(times, **options), np.random.default_rng(0)
    paper = replace(graph.type("paper"), features=rng.random((60, 3)).astype(np.float32), masks={"train": np.arange(60) % 3 == 0})
    word = replace(graph.type("word"), features=CSR.from_edges(np.arange(25), rng.permutation(25), (25, 25), rng.random(25, np.float32)))
    venue = replace(graph.type("venue"), labels=np.arange(7) % 2, num_classes=2)
    changed = {"paper": paper, "word": word, "venue": venue}
    cites = replace(graph.relations[0], features=np.arange(graph.relations[0].edges, dtype=np.float32)[:, None])
    types = tuple(changed.get(kind.name, kind) for kind in graph.types)
    return replace(graph, types=types, relations=(cites, *graph.relations[1:])).validate()


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    """A store for each kind of times, and its graph."""
    folder, graphs = tmp_path_factory.mktemp("graphs"), {kind: columns(kind) for kind in ("none", "vertices", "edges")}
    for kind, graph in graphs.items():
        graph.save(folder / kind)
    return folder, graphs


def opened(path, comm, **options):
    return bs.load(path, world=comm, check="none", **options)


def loader(graph, **options):
    return bs.Loader(graph, **{"fanouts": [4, 3], "batch_size": 8, "seeds": SEEDS, "seed": 5, "threads": 1, "out": "numpy", **options})


def digests(batches):
    return [batch.digest() for batch in batches]


def shares(graph, p, epochs=1, **options):
    """The digests of every rank, as `rank` and `ranks` give them to loaders of the whole graph."""
    alone = [loader(graph, rank=rank, ranks=p, **options) for rank in range(p)]
    return [[digests(one) for _ in range(epochs)] for one in alone]


def assert_columns(batch, graph):
    """Compare all features and labels of a batch with those of the graph."""
    parts = batch.minibatch.rows
    assert list(batch.x_dict) == ["paper", "word"]
    np.testing.assert_array_equal(batch.x_dict["paper"], graph.type("paper").features[parts["paper"].vertices])
    np.testing.assert_array_equal(batch.x_dict["word"], graph.type("word").features.to_scipy().toarray()[parts["word"].vertices])
    for name, y in batch.y_dict.items():
        np.testing.assert_array_equal(y, graph.type(name).labels[parts[name].seeds])
    cites = graph.relations[0]
    np.testing.assert_array_equal(batch.edge_attr_dict[cites.key], cites.features[batch.minibatch.entries[0][cites.key]])
    source = np.empty(cites.edges, int)  # of each edge of the user's list
    source[cites.ids_of(np.arange(cites.edges))] = cites.adjacency.indices
    ends = batch.edge_index_dict[cites.key]
    np.testing.assert_array_equal(source[batch.e_id_dict[cites.key]], parts["paper"].vertices[ends[0]])


@pytest.mark.parametrize(("topology", "features"), PLACES)
@pytest.mark.parametrize(("p", "c"), [(1, 1), (3, 1), (4, 2)])
def test_minibatches_and_rows_do_not_depend_on_ranks_or_placement(stored, p, c, topology, features):
    folder, graphs = stored
    c = c if "partitioned" in (topology, features) else 1
    partition = "random" if "partitioned" in (topology, features) else "block"

    def rank(comm):
        graph = opened(folder / "vertices", comm, topology=topology, features=features, replication=c, partition=partition)
        batches, found = loader(graph, **TIMED), [[], []]
        for epoch, seen in enumerate(found):
            for batch in batches:
                assert_columns(batch, graphs["vertices"])
                assert (batch.minibatch.epoch, batches.epoch) == (epoch, epoch)
                seen.append(batch.digest())
        assert len(found[0]) == len(batches)
        return found

    assert on_threads(p, rank) == shares(graphs["vertices"], p, epochs=2, **TIMED)


@pytest.mark.parametrize(("kind", "options"), [
    ("none", {"replace": True, "fanouts": {"default": [3, 2], ("paper", "about", "venue"): [-1, 0]}}),
    ("none", {"frontier": "new", "disjoint": True, "seeds": ("paper", "train"), "prefetch": False, "bulk_size": 2}),
    ("vertices", {**TIMED, "time": TimeRule(strategy="last", window=15)}),
    ("edges", {**TIMED, "time": TimeRule(moving=True), "drop_last": True}),
], ids=["replace", "trees", "last", "moving"])  # fmt: skip
def test_every_law_rule_of_time_and_choice_of_seeds(stored, kind, options):
    folder, graphs = stored
    expected = shares(graphs[kind], 2, **options)
    for exchange in ("owner", "rows"):
        drawn = on_threads(2, lambda comm, how=exchange: [digests(loader(opened(folder / kind, comm, exchange=how), **options))])
        assert drawn == expected, exchange


@pytest.mark.parametrize("exchange", ["rows", "rows-oblivious"])
@pytest.mark.parametrize(("p", "c"), [(2, 1), pytest.param(4, 2, marks=pytest.mark.long), pytest.param(4, 1, marks=pytest.mark.long)])
def test_minibatches_do_not_depend_on_the_policy(stored, p, c, exchange):
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "edges", comm, exchange=exchange, replication=c, partition="random")
        return [digests(loader(graph, **TIMED))]

    assert on_threads(p, rank) == shares(graphs["edges"], p, **TIMED)


@pytest.mark.parametrize(
    "sampler", ["ladies", HGSampler({name: [4, 3] for name in ("paper", "author", "venue", "word", "alone")})], ids=str
)
def test_samplers_of_whole_relations_work_where_the_topology_is_replicated(stored, sampler):
    folder, graphs = stored
    options = {"sampler": sampler, **({"fanouts": [9, 9]} if sampler == "ladies" else {"fanouts": None})}
    expected = shares(graphs["none"], 2, **options)
    assert on_threads(2, lambda comm: [digests(loader(opened(folder / "none", comm, topology="replicated"), **options))]) == expected
    with pytest.raises(bs.UsageError, match="got a topology in block rows: use sage, labor or full"):
        on_threads(2, lambda comm: loader(opened(folder / "none", comm), **options))


@pytest.mark.parametrize("kind", ["vertices", "edges"])
def test_the_latest_time_of_a_batch_is_known_in_block_rows(stored, kind):
    """It is that of one process, and not later than the seeds."""
    folder, graphs = stored
    expected = [[batch.minibatch.latest.tolist() for batch in loader(graphs[kind], rank=r, ranks=2, **TIMED)] for r in range(2)]

    def rank(comm):
        found = []
        for batch in loader(opened(folder / kind, comm, partition="random"), **TIMED):
            latest, when = batch.minibatch.latest, np.zeros(batch.minibatch.num_seeds, int)
            for part in batch.minibatch.rows.values():
                when[part.seed_trees] = part.seed_times
            assert (latest <= when).all()
            found.append(latest.tolist())
        return found

    assert on_threads(2, rank) == expected
    assert max(time for batch in expected[0] for time in batch) >= 0


def test_a_rank_holds_its_block_rows_and_no_more(stored):
    folder, _ = stored
    whole = opened(folder / "none", SerialComm(), topology="replicated", features="replicated").held_bytes()

    def held(comm):
        return [opened(folder / "none", comm, topology=topology, features=features).held_bytes() for topology, features in PLACES]

    every = on_threads(5, held)
    for i, (topology, features) in enumerate(PLACES):
        bytes_of = {what: [rank[i][what] for rank in every] for what in whole}
        if features == "partitioned":
            dense, row_pointers = 60 * 3 * 4, 8  # sparse rows of each rank have a row pointer more
            assert sum(bytes_of["features"]) == whole["features"] + 4 * row_pointers
            assert max(bytes_of["features"]) < dense
        else:
            assert bytes_of["features"] == [whole["features"]] * 5
        if topology == "partitioned":
            assert sum(bytes_of["adjacency"]) < 1.3 * whole["adjacency"]
        else:
            assert bytes_of["adjacency"] == [whole["adjacency"]] * 5


def test_the_name_of_earlier_versions_makes_the_same_share(stored):
    folder, graphs = stored
    one = opened(folder / "none", SerialComm())
    parts = one.comm, one.graph, one.fingerprint, one.placement, one.relations, one.rows, one.features, one.blocks
    with pytest.warns(DeprecationWarning, match=r"RankHeteroGraph\(.*\) goes with version 0\.3; use bulksample\.load"):
        again = bs.RankHeteroGraph(*parts, opened=one.opened)
    assert isinstance(again, bs.RankHeteroGraph)
    assert digests(loader(again)) == digests(loader(graphs["none"]))


def test_several_loaders_of_one_graph_run_side_by_side(stored):
    folder, graphs = stored

    def rank(comm):
        graph = opened(folder / "none", comm)
        pairs = zip(loader(graph), loader(graph, seeds=("paper", "train")), strict=False)
        return [(one.digest(), other.digest()) for one, other in pairs]

    some, others = shares(graphs["none"], 2), shares(graphs["none"], 2, seeds=("paper", "train"))
    assert on_threads(2, rank) == [list(zip(some[r][0], others[r][0], strict=False)) for r in range(2)]


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 3)])
def test_a_state_continues_in_the_middle_of_an_epoch(stored, before, after):
    """The remaining mini-batches, over all ranks together, are those that an unbroken epoch had left."""
    folder, graphs = stored
    whole = digests(loader(graphs["edges"], **TIMED))

    def stop(comm):
        batches, found = loader(opened(folder / "edges", comm), **TIMED), []
        for batch in batches:
            found.append(batch.digest())
            if len(found) == 2:
                return batches.state_dict()
        return None

    states = on_threads(before, stop)

    def resume(comm):
        batches = loader(opened(folder / "edges", comm, topology="replicated"), **TIMED)
        batches.load_state_dict(states[comm.rank % before])
        return [batch.digest() for batch in batches if not batch.repeated]

    rest = [digest for own in on_threads(after, resume) for digest in own]
    assert sorted(rest) == sorted(whole[2 * before :])


def test_real_ranks_of_two_processes(stored):
    folder, graphs = stored
    program = (
        "import numpy as np, bulksample as bs\n"
        "world = bs.init()\n"
        f"graph = bs.load({str(folder / 'vertices')!r}, world=world)\n"
        "seeds, times = {'paper': np.arange(40)}, {'paper': np.arange(40) + 5}\n"
        "batches = bs.Loader(graph, fanouts=[4, 3], batch_size=8, seeds=seeds, times=times, seed=5, threads=1, out='numpy')\n"
        "own = [f'{world.rank} {batch.digest()} {batch.x_dict[\"paper\"].sum():.4f}' for batch in batches]\n"
        "every = world.gather_control(own)\n"
        "if world.rank == 0:\n"
        "    print('\\n'.join(line for lines in every for line in lines))\n"
    )
    result = run_ranks(2, program)
    expected, timed = [], {name: {"paper": TIMED[name]["paper"]} for name in ("seeds", "times")}
    for rank in range(2):
        for batch in loader(graphs["vertices"], rank=rank, ranks=2, **timed):
            expected.append(f"{rank} {batch.digest()} {batch.x_dict['paper'].sum():.4f}")
    assert sorted(line for line in result.out.splitlines() if line) == sorted(expected)


@pytest.mark.parametrize(("options", "message"), [
    ({"exchange": "rows", "topology": "replicated"}, "exchange is for a topology in block rows; got rows with the topology replicated"),
    ({"label": "y"}, "label: .* holds several vertex types; leave out what is for a graph of one type"),
    ({"seed_locality": 3, "partition": "metis"}, "seed_locality 3 makes 3 parts by metis, which p / c = 2 block rows cannot share evenly"),
    ({"replication": 3}, "replication must divide the number of ranks: got c = 3 with p = 2"),
    ({"replication": True}, "replication: got True; use a whole number, 1 or more"),
    ({"feature_replication": 0}, "feature_replication: got 0; use a whole number, 1 or more"),
    ({"seed": -1}, "seed: got -1; use a whole number, 0 or more"),
    ({"topology": "replicated", "features": "replicated", "partition": "random"}, "partition is for block rows"),
])  # fmt: skip
def test_what_no_rank_can_load_is_refused_on_every_rank(stored, options, message):
    folder, _ = stored

    def rank(comm):
        with pytest.raises(bs.UsageError, match=message):
            opened(folder / "none", comm, **options)
        return True

    assert on_threads(2, rank) == [True, True]


@pytest.mark.parametrize(("options", "message"), [
    ({"rank": [0, 1], "ranks": [2, 2]}, "rank and ranks are those of the world of the graph; got 0 and 2"),
    ({"seeds": [("paper", [1]), ("paper", [2])]}, "the ranks do not agree on seeds: another on rank 1 than on"),
    ({"times": [TIMES, {**TIMES, "venue": [40, 10, 31]}]}, "the ranks do not agree on times: another on rank 1 than on rank 0"),
    ({"times": [TIMES, {"paper": TIMES["paper"]}]}, "rank 1: times: got those of paper; give those of paper, venue"),
    ({"fanouts": [[4, 3], [4, 2]]}, r"the ranks do not agree on fanouts: \[4, 3\] on rank 0, \[4, 2\] on rank 1"),
    ({"seed": [1, 2]}, "the ranks do not agree on seed"),
])  # fmt: skip
def test_bad_arguments_of_a_loader_are_refused_on_every_rank(stored, options, message):
    folder, _ = stored

    def rank(comm):
        graph = opened(folder / "vertices", comm)
        with pytest.raises(bs.UsageError, match=message):
            loader(graph, **{name: values[comm.rank] for name, values in options.items()})
        return True

    assert on_threads(2, rank) == [True, True]


def test_a_rank_that_leaves_a_loop_early_is_named_when_it_begins_the_next(stored):
    folder, _ = stored

    def rank(comm):
        batches = loader(opened(folder / "none", comm))
        for _ in batches:
            if comm.rank == 1:
                break
        for _ in batches:
            pass

    with pytest.raises(bs.UsageError, match=r"rank 1 .*having left epoch 0 after 1 of"):
        on_threads(2, rank)


def test_a_loader_takes_the_path_of_a_store_of_several_types(stored):
    folder, graphs = stored
    assert digests(loader(folder / "vertices", **TIMED)) == digests(loader(graphs["vertices"], **TIMED))


@pytest.mark.parametrize(("options", "message"), [
    ({"as_dicts": True, "edge_ids": True}, "edge_ids is for a plain graph that ranks share"),
    ({"times": [1, 2], "disjoint": True}, "got times, disjoint for the plain graph 'graph', which are for mini-batches by type and"),
    ({"sampler": HGSampler((1, 1))}, "got a HGSampler for the plain graph 'graph'"),
])  # fmt: skip
def test_dicts_of_a_plain_graph_that_ranks_share_are_refused_on_every_rank(tmp_path, options, message):
    bs.from_edges([0, 1], [1, 0], num_nodes=2).save(tmp_path / "plain")

    def rank(comm):
        with pytest.raises(bs.UsageError, match=message):
            bs.Loader(opened(tmp_path / "plain", comm), **options)
        return True

    assert on_threads(2, rank) == [True, True]

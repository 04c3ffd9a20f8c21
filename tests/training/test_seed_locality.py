"""Training on mini-batches from groups of near seeds: local to the ranks, the same on any number of them, and resumed to the bit."""

import numpy as np
import pytest
from communities import community_graph
from recorder import Crash, CrashesAt, Recorder
from training_runs import run_training, run_with_digests, weights_of

from bulksample import UsageError, backends, samplers
from bulksample.data import store
from bulksample.data.parts_writer import write_parts
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.open_graph import open_for_sampling, part_places
from bulksample.distributed.matrix.partition import Partition, random
from bulksample.distributed.matrix.placement import Placement
from bulksample.distributed.matrix.rank_graph import open_rank_graph
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.samplers.inclusion import inclusion_probability

RUN = {"fanouts": (4, 3), "hidden": 8, "batch_size": 6, "lr": 0.02, "threads": 1, "epochs": 2, "seed_locality": 4}
GRAPH = community_graph()
SEEDS = np.flatnonzero(GRAPH.masks["train"])
SHARDED = {"features": "partitioned"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("local") / "graph"
    store.save(GRAPH, place)
    return place


def epoch(folder, p, **options):
    """The mini-batches of each rank in the first epoch."""

    def rank(comm):
        batches = make_trainer(TrainConfig.of(**RUN | options), folder, comm).context.batches
        return [batch.minibatch for batch in batches if batch.minibatch is not None]

    return on_threads(p, rank)


def digests(ranks):
    return sorted((m.id, m.digest()) for rank in ranks for m in rank)


@pytest.mark.parametrize(
    ("p", "options"),
    [
        (1, {}), (2, {}), (2, SHARDED), (1, {"virtual_ranks": 4}), (2, {"graph": "partitioned"}),
        pytest.param(4, {"graph": "partitioned", "replication": 2, "grid_order": "columns"}, marks=pytest.mark.long),
        pytest.param(3, {**SHARDED, "virtual_ranks": 4}, marks=pytest.mark.long),
        pytest.param(8, SHARDED, marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_the_minibatches_do_not_depend_on_the_ranks(folder, p, options):
    assert digests(epoch(folder, p, **options)) == digests(epoch(folder, 4, **SHARDED))
    seen = np.concatenate([m.seeds for rank in epoch(folder, p, **options) for m in rank])
    assert np.sort(seen).tolist() == SEEDS.tolist()


@pytest.mark.parametrize("how", ["random", pytest.param("stream", marks=pytest.mark.long)])
def test_a_named_partition_has_g_parts_for_any_ranks(folder, how):
    """So the groups are those of four parts, also where one or two block rows hold them."""
    asked = {"graph": "partitioned", "partition": how}
    expected = epoch(folder, 4, **asked)
    for p in 1, 2:
        assert digests(epoch(folder, p, **asked)) == digests(expected)


@pytest.mark.parametrize(
    ("p", "c", "order"), [(4, 1, "rows"), pytest.param(8, 2, "rows", marks=pytest.mark.long), (4, 2, "columns"), (4, 2, "rows")]
)
def test_a_rank_draws_the_seeds_whose_rows_it_holds(folder, tmp_path, p, c, order):
    """By parts with equally many seeds each, every seed lies in the block row of its rank."""
    parts = p // c
    assignment = np.arange(GRAPH.n) % parts
    assignment[SEEDS] = np.random.default_rng(3).permutation(np.arange(len(SEEDS)) % parts)
    Partition(parts, assignment).save(tmp_path / "parts.npz")
    asked = {**SHARDED, "partition": str(tmp_path / "parts.npz"), "replication": c, "grid_order": order, "seed_locality": parts}

    def rank(comm):
        context = make_trainer(TrainConfig.of(**RUN | asked), folder, comm).context
        row = ProcessGrid(comm, c, order).row
        return [(assignment[batch.minibatch.seeds] == row).mean() for batch in context.batches if batch.minibatch is not None]

    shares = on_threads(p, rank)
    if len(SEEDS) % parts == 0 or parts == 2:
        assert min(share for each in shares for share in each) > 0.8
    assert np.mean([share for each in shares for share in each]) > 0.95


def test_parts_of_a_folder_keep_their_order_on_fewer_ranks(folder, tmp_path):
    write_parts(folder, tmp_path / "P", random(GRAPH.n, 4, 1).assignment, 4, "random")
    expected = epoch(tmp_path / "P", 4)
    for p in 1, 2:
        assert digests(epoch(tmp_path / "P", p)) == digests(expected)


def test_parts_of_a_folder_keep_their_order_where_every_rank_holds_the_graph(folder, tmp_path):
    """The groups of `train`, of `sample` with and without features, and of a loader."""
    write_parts(folder, tmp_path / "P", random(GRAPH.n, 4, 1).assignment, 4, "random")
    expected = digests(epoch(tmp_path / "P", 4))
    assert digests(epoch(tmp_path / "P", 2, graph="replicated")) == expected
    assert digests(epoch(folder, 2, graph="replicated")) != expected  # by ids
    places, backend = part_places(tmp_path / "P"), backends.make("reference")
    assert (np.diff(np.asarray(places)[np.load(tmp_path / "P" / "old_id.npy")]) == 1).all()
    placement = Placement("replicated", seed_locality=4)
    sampled = open_for_sampling(tmp_path / "P", "train", SerialComm(), backend, placement)
    assert sampled.places.tolist() == places[sampled.seeds].tolist()
    opened = open_rank_graph(tmp_path / "P", SerialComm(), topology="replicated", features="replicated", seed_locality=4)
    assert opened.part_order(SEEDS).tolist() == places[SEEDS].tolist() != SEEDS.tolist()


@pytest.mark.parametrize("crash_at", [3, 7])
def test_a_run_that_breaks_goes_on_with_the_same_bits(folder, tmp_path, crash_at):
    options = {**RUN, "seed_locality": 4, "batch_size": 5, "dropout": 0.5}

    def whole(comm):
        report, recorder, trainer = run_training(folder, comm, **options)
        return recorder.losses, weights_of(trainer), report

    def broken(comm, **more):
        recorder = CrashesAt(crash_at) if more.pop("crash", False) else Recorder()
        trainer = make_trainer(
            TrainConfig.of(**options, checkpoint=str(tmp_path / "c"), checkpoint_every=1, **more), folder, comm, [recorder]
        )
        trainer.run()
        return recorder.losses, weights_of(trainer)

    losses, weights, _ = on_threads(2, whole)[0]
    with pytest.raises(Crash, match="as asked"):
        on_threads(2, lambda comm: broken(comm, crash=True))
    resumed, after = on_threads(2, lambda comm: broken(comm, resume="auto"))[0]
    assert losses[-len(resumed) :] == resumed
    assert (weights == after).all()


@pytest.mark.long
def test_virtual_ranks_give_the_same_bits_on_4_2_and_1(folder):
    found = [on_threads(p, lambda comm: run_training(folder, comm, **RUN, virtual_ranks=4, **SHARDED)) for p in (4, 2, 1)]
    first = found[0][0]
    for each in found[1:]:
        assert each[0][1].losses == first[1].losses
        assert (weights_of(each[0][2]) == weights_of(first[2])).all()


def test_a_checkpoint_of_other_groups_is_refused(folder, tmp_path):
    kept = {"checkpoint": str(tmp_path / "c")}
    run_training(folder, **RUN | {"epochs": 1}, **kept)
    with pytest.raises(UsageError, match="seed_locality was 4 and is 2"):
        run_training(folder, **RUN | {"seed_locality": 2}, resume="auto", **kept)


def test_a_checkpoint_of_another_partition_names_the_remedy(folder, tmp_path):
    kept = {"checkpoint": str(tmp_path / "c"), "graph": "partitioned"}
    run_training(folder, **RUN | {"epochs": 1}, partition="random", **kept)
    with pytest.raises(UsageError, match="saved with other groups of seeds; use the seed_locality, the partition or parts, and"):
        run_training(folder, **RUN, resume="auto", partition="block", **kept)


def test_batch_norm_is_warned_of(folder, capsys):
    report, _, _ = run_training(folder, **RUN, batch_norm=True)
    (warning,) = report["warnings"]
    assert warning.startswith("batch norm takes its statistics from mini-batches, and seed_locality 4 draws each from a part of the graph")
    assert warning in capsys.readouterr().err
    for quiet in {"seed_locality": None, "batch_norm": True}, {"layer_norm": True}:
        assert run_training(folder, **RUN | quiet)[0]["warnings"] == []


def test_off_and_one_group_of_the_ids_are_alike(folder):
    off, one = (run_with_digests(folder, None, **RUN | {"seed_locality": g}) for g in (None, 1))
    assert off[0] == one[0]
    assert off[2] == one[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "full"}, "seed_locality groups the seeds that all ranks share, by method 'sync'; got 'full': leave it out"),
        ({"method": "random-tma"}, "got 'random-tma'"),
        ({"task": "links"}, "task links draws edges, not seeds; got seed_locality 4: leave it out"),
        ({"virtual_ranks": 3}, "seed_locality 4 does not fit steps of 3 mini-batches"),
        ({"partition": "random"}, "partition is for block rows; got random with the topology replicated"),
        ({"seed_locality": 1000}, "seed_locality 1000 needs as many seeds; got"),
        ({"sampler": "saint", "sampler_options": {"coverage": 2}}, "coverage counts subgraphs"),
    ],
)
def test_what_cannot_hold_is_refused_by_name(folder, options, message):
    with pytest.raises(UsageError, match=message):
        make_trainer(TrainConfig.of(**RUN | options), folder)


def test_ranks_that_do_not_fit_are_refused_on_every_rank(folder):
    def rank(comm, **options):
        make_trainer(TrainConfig.of(**RUN | options), folder, comm)

    with pytest.raises(UsageError, match="seed_locality 4 does not fit steps of 3 mini-batches"):
        on_threads(3, rank)
    asked = {"graph": "partitioned", "partition": "random", "virtual_ranks": 4}
    expected = "seed_locality 4 makes 4 parts by random, which p / c = 3 block rows cannot share evenly; use a multiple of 3"
    with pytest.raises(UsageError, match=expected):
        on_threads(3, lambda comm: rank(comm, **asked))


def cached(folder, p, **options):
    """Return for every rank the cached vertices, the vertices of its mini-batches, and the bytes of features that an epoch sends."""

    def rank(comm):
        context = make_trainer(TrainConfig.of(**RUN | SHARDED | {"cache_bytes": 12 * 32} | options), folder, comm).context
        features, before = context.view.features, comm.tally["features"].bytes
        drawn = [batch.minibatch.vertices for batch in context.batches if batch.minibatch is not None]
        return features.layout.vertices(features.exchange.cache.ids), drawn, comm.tally["features"].bytes - before

    return on_threads(p, rank)


def own_seeds(rank, ranks, groups):
    """The seeds of a rank's groups in the order of ids."""
    sizes = [len(SEEDS) // groups + (g < len(SEEDS) % groups) for g in range(groups)]
    parts = np.split(SEEDS, np.cumsum(sizes)[:-1])
    return np.concatenate(parts[rank * groups // ranks : (rank + 1) * groups // ranks])


@pytest.mark.parametrize(("p", "groups"), [(2, 2), (2, 4), (2, None), pytest.param(4, 2, marks=pytest.mark.long)])
def test_each_rank_caches_what_its_own_minibatches_include(folder, p, groups):
    """The twelve likeliest vertices of other ranks, for the seeds of this rank's groups, or for all seeds."""
    found = cached(folder, p, seed_locality=groups, cache_by="inclusion")
    sent = 0
    for rank, (held, drawn, _) in enumerate(found):
        places = np.arange(GRAPH.n) * p // GRAPH.n  # the rank of each vertex
        seeds = SEEDS if groups is None else own_seeds(rank * groups // p if p > groups else rank, min(p, groups), groups)
        score = inclusion_probability(GRAPH.adjacency, samplers.make("sage", RUN["fanouts"]), seeds, RUN["batch_size"])
        likely = [v for v in np.argsort(-score, kind="stable") if places[v] != rank]
        assert held.tolist() == sorted(likely[:12])
        sent += 32 * sum(len(np.setdiff1d(vertices[places[vertices] != rank], held)) for vertices in drawn)
    assert sent == sum(bytes_ for _, _, bytes_ in found)


def test_frequency_counts_the_minibatches_of_each_rank(folder):
    """All of an epoch are among the first eight of their rank here."""
    found = cached(folder, 2, cache_by="frequency", batch_size=20)
    for rank, (held, drawn, _) in enumerate(found):
        assert len(drawn) <= 8
        counts = np.bincount(np.concatenate(drawn), minlength=GRAPH.n)
        away = [v for v in np.argsort(-counts, kind="stable") if v // (GRAPH.n // 2) != rank]
        assert held.tolist() == sorted(away[:12])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"graph": "partitioned", "features": None}, "cache_by inclusion multiplies with the whole adjacency; got topology partitioned"),
        ({"cache_bytes": 0}, "cache_by inclusion chooses the rows of a cache; got cache_bytes 0: use cache_bytes, or leave it out"),
        ({"cache_bytes": 0, "cache_by": "frequency"}, "cache_by frequency chooses the rows of a cache; got cache_bytes 0"),
        ({"sampler": "ladies"}, "cache_by inclusion follows the draws of the samplers sage, labor and full; got ladies"),
    ],
)
def test_a_cache_by_inclusion_that_is_not_known_is_refused(folder, options, message):
    asked = {**RUN, **SHARDED, "cache_bytes": 100, "cache_by": "inclusion", **options}
    with pytest.raises(UsageError, match=message):
        make_trainer(TrainConfig.of(**asked), folder)

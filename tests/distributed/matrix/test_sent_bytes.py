"""Predicted messages and bytes equal those sent, for every policy, sampler, grid and layout."""

from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from battery import SETTINGS, make, needs_weights
from communities import community_graph
from grids import ALL_GRIDS, MINIBATCHES, POLICIES, distributed, epoch, seeds_of
from launch import run_ranks
from oracles.call_recorder import CallRecorder, predict_calls
from oracles.collectives import nothing_sent, tallies
from oracles.fetches import predict_cache, predict_fetch, predict_own_caches
from oracles.opening import seeds_gathered
from oracles.sampling import costs_of
from oracles.staged_rows import StagedCosts
from zoo import ZOO, random_matrix

from bulksample import CSR, LocalAdjacency, Selection, Stream, UsageError, backends, samplers
from bulksample.data import store
from bulksample.distributed.comm.base import KINDS, SentCount
from bulksample.distributed.comm.threads import on_threads
from bulksample.distributed.matrix import partition
from bulksample.distributed.matrix.feature_exchange import RowExchange
from bulksample.distributed.matrix.grid import ProcessGrid
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.open_graph import open_for_sampling
from bulksample.distributed.matrix.placement import Placement
from bulksample.distributed.matrix.reply_slots import RowLaw

GRIDS = [(1, 1), (2, 1), (3, 3), (4, 2), (6, 3), (8, 2)]
NOTHING = dict.fromkeys(KINDS, SentCount(0, 0))
BACKEND = backends.make("auto", 1)


def grid_made(p, c):
    """The two splits of a grid: each rank sends 16 bytes to all others, twice."""
    sent = nothing_sent(p // c, c)
    sent[1] += np.reshape([2 * (p - 1), 32 * (p - 1)], (2, 1, 1))
    return sent


def layout_broadcast(p, c, n):
    """Rank 0 sends n part numbers; before that, all ranks agree that no error occurred: two words and a message of 8 bytes."""
    sent = nothing_sent(p // c, c)
    sent[1] += np.reshape([2 * (p - 1), (16 + 8) * (p - 1)], (2, 1, 1))
    sent[0, :, 0, 0] += p - 1, 4 * n * (p - 1)
    return sent


def exchange_made(c, bounds, row_bytes, cache_bytes, access_count):
    """Each rank compares five numbers; a cache of m rows is filled from the min(m, own) candidates of each rank."""
    others = len(bounds) - 2
    if not cache_bytes:
        return [{"control": (others, 40 * others)}] * (c * (others + 1))
    m, hot = cache_bytes // row_bytes, predict_cache(bounds[-1], 5, "bf16", cache_bytes, access_count)
    column = []
    for first, last in pairwise(bounds):
        sent = row_bytes * int(((first <= hot) & (hot < last)).sum()) * others
        column.append({"control": (4 * others, (48 + 16 * int(min(m, last - first))) * others), "features": (others, sent)})
    return [sent for sent in column for _ in range(c)]


def foreseen(sampler, policy, matrix, lists, p, c, layout=None, bulk=MINIBATCHES):
    """Predict what `epoch` sends on every rank, including the creation of the grid."""
    recorders = [CallRecorder(LocalAdjacency(matrix, BACKEND)) for _ in range(p)]
    for r, recorder in enumerate(recorders):
        epoch(sampler, recorder, lists, r, p, bulk)
    costs = costs_of(policy, p, c, matrix, BACKEND, layout)
    return [NOTHING | sent for sent in tallies(grid_made(p, c) + predict_calls(costs, [recorder.calls for recorder in recorders]))]


def sent_by(comm, sampler, policy, matrix, lists, c, layout=None, bulk=MINIBATCHES):
    before = dict(comm.tally)
    epoch(sampler, distributed(comm, c, policy, matrix, layout), lists, comm.rank, comm.size, bulk)
    return {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in KINDS}


def assert_foreseen(setting, policy, matrix, p, c, layout=None, bulk=MINIBATCHES):
    sampler, lists = make(setting), seeds_of(matrix.shape[0])
    sent = on_threads(p, lambda comm: sent_by(comm, sampler, policy, matrix, lists, c, layout, bulk))
    assert sent == foreseen(sampler, policy, matrix, lists, p, c, layout, bulk), f"{setting}, {policy}, p {p}, c {c}"


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("setting", "grids"), [
    *(pytest.param(name, GRIDS[1::3], id=name, marks=[pytest.mark.long] * (" " in name)) for name in SETTINGS),
    *(pytest.param(name, GRIDS, id=f"{name}, more grids", marks=pytest.mark.long) for name in SETTINGS),
])  # fmt: skip
def test_sent_bytes_equal_the_prediction(setting, grids, policy):
    for name in ("weighted", "random"):
        if needs_weights(setting) and name != "weighted":
            continue
        for p, c in grids if name == "weighted" else grids[len(grids) // 2 :]:
            layout = Layout.of(partition.random(ZOO[name].shape[0], p // c, seed=p)) if p % 4 == 0 else None
            assert_foreseen(setting, policy, ZOO[name], p, c, layout, bulk=1 + p % 3)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("p", "c"), [pytest.param(p, c, marks=[pytest.mark.long] * (p > 4)) for p, c in ALL_GRIDS])
def test_on_every_grid_and_with_more_ranks_than_vertices(policy, p, c):
    """Both ways to sample on few vertices; on 300 they take turns from grid to grid, and both meet every p under every policy."""
    for setting in ("sage", "ladies"):
        assert_foreseen(setting, policy, random_matrix(5, 12, seed=p, weighted=p % 2 == 0), p, c)
    turn = ALL_GRIDS.index((p, c)) + list(POLICIES).index(policy)
    assert_foreseen(("sage", "ladies")[turn % 2], policy, ZOO["skewed"], p, c)
    assert_foreseen(("ladies", "sage")[turn % 2], policy, ZOO["single"], p, c)


BOUNDS = [[0, 0, 150, 150, 200], [0, 200, 200, 200, 200], [0, 1, 2, 3, 200]]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("bounds", BOUNDS)
def test_on_uneven_and_empty_blocks(policy, bounds):
    """A sampler that draws from rows and one that draws layers; which of the two of each kind, changes from case to case."""
    turn = list(POLICIES).index(policy) + BOUNDS.index(bounds)
    for setting in (("sage", "ladies"), ("saint", "fastgcn"))[turn % 2]:
        assert_foreseen(setting, policy, ZOO["weighted"], 8, 2, Layout(np.array(bounds)), bulk=2)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", ["sage", "labor", "ladies", "fastgcn"])
def test_where_a_hop_takes_everything_or_nothing(policy, name):
    sampler, matrix, lists = samplers.make(name, (-1, 0)), ZOO["weighted"], seeds_of(200)
    sent = on_threads(4, lambda comm: sent_by(comm, sampler, policy, matrix, lists, 2))
    assert sent == foreseen(sampler, policy, matrix, lists, 4, 2)


@pytest.mark.parametrize("setting", ["sage", "sage replace", "sage weighted", "labor"])
def test_entries_of_weight_zero_are_counted_as_they_are_drawn(setting):
    """With a fanout near the degrees: by weight they are passed over, uniformly they are not."""
    sampler, matrix, lists = make(setting, fanouts=(14, 20)), ZOO["weighted"], seeds_of(200)
    assert (matrix.values == 0).sum() > 100
    sent = on_threads(4, lambda comm: sent_by(comm, sampler, "owner", matrix, lists, 1))
    assert sent == foreseen(sampler, "owner", matrix, lists, 4, 1)


def test_products_with_every_kind_of_entries():
    for policy in POLICIES:
        for entries in ("ones", "weights", "squares"):
            for name in ("weighted", "skewed"):
                matrix = ZOO[name]
                asked = [Selection.of([np.arange(r, 40, 3), [], [7 * r]], matrix.shape[0]) for r in range(6)]

                def rank(comm, policy=policy, entries=entries, matrix=matrix, asked=asked):
                    distributed(comm, 2, policy, matrix).left_multiply(asked[comm.rank], entries)
                    return comm.tally

                costs = costs_of(policy, 6, 2, matrix, BACKEND)
                expected = tallies(grid_made(6, 2) + costs.left_multiply(asked, entries) + costs.first_use(entries))
                assert on_threads(6, rank) == [NOTHING | sent for sent in expected], f"{policy}, {entries}, {name}"


# A of a path with a loop at its end, on 2 ranks: rank 0 holds rows 0 and 1, rank 1 holds rows 2 and 3.
#   row 0: 1      row 1: 0 2      row 2: 1 3      row 3: 2 3
PATH = CSR.from_edges(np.array([0, 1, 1, 2, 2, 3, 3]), np.array([1, 0, 2, 1, 3, 2, 3]), (4, 4))
ASKED = [Selection.of([[0, 2], [2, 3]], 4), Selection.of([[1]], 4)]  # rank 0 names rows 2, 2 and 3 of rank 1; rank 1 names row 1 of rank 0
DRAW = Stream(0).draw(samplers.sage.Law.UNIFORM, layer=0, epoch=0)


def test_owner_sample_rows_by_hand():
    first, second = tallies(costs_of("owner", 2, 1, PATH, BACKEND).sample_rows(ASKED, 2, DRAW))
    # rank 0: the number of minibatches (4), a table of two (16) and three ids (12) go; to rank 1 it returns two picks of row 1 (8)
    assert first == {"topology": (2, 4 + 16 + 12 + 8), "control": (1, 8)}
    # rank 1: 4, a table of one (8) and an id (4) go; it returns three times two picks (24)
    assert second == {"topology": (2, 4 + 8 + 4 + 24), "control": (1, 8)}


def test_owner_sample_rows_with_answers_that_are_not_padded_by_hand():
    costs = costs_of("owner", 2, 1, PATH, BACKEND)
    first, second = tallies(costs.sample_rows(ASKED, 6, DRAW))
    # 6 picks are more than twice 1 + 7/4: rank 0 returns both neighbors of row 1 (8), rank 1 3 * 2 picks; no lengths go ahead
    assert first == {"topology": (2, 4 + 16 + 12 + 8), "control": (1, 8)}
    assert second == {"topology": (2, 4 + 8 + 4 + 24), "control": (1, 8)}
    # the entries of all block rows, which decide it, are exchanged once; then their longest rows, and a byte for each row
    assert tallies(costs.first_rows())[0] == {"topology": (1, 8), "control": (0, 0)}
    assert tallies(costs.first_rows([RowLaw(2), RowLaw(6), RowLaw(-1)]))[0] == {"topology": (3, 8 + 8 + 2), "control": (0, 0)}


def test_owner_sample_layer_by_hand():
    first, second = tallies(costs_of("owner", 2, 1, PATH, BACKEND).sample_layer(ASKED, "ones", 1, 1, DRAW))
    # P of rank 0: columns 1 3 and 1 2 3; of rank 1: columns 0 2. Rank 0 owns columns 0 and 1, rank 1 columns 2 and 3; s + 1 = 2.
    # rank 0: their number (4), two minibatches (16), four ids (16); for rank 1 a count (4) and column 0 with its sum (4 and 8)
    assert first == {"topology": (2, 4 + 16 + 16 + 4 + 12), "control": (2, 2 * 8)}
    # rank 1: 4, one minibatch (8), an id (4); for rank 0 two counts (8) and columns 3, 2, 3 with their sums (3 * 12)
    assert second == {"topology": (2, 4 + 8 + 4 + 8 + 36), "control": (2, 2 * 8)}


def test_owner_restrict_and_its_first_use_by_hand():
    costs = costs_of("owner", 2, 1, PATH, BACKEND)
    columns = [Selection.of([[1], [2, 3]], 4), Selection.of([[0, 3]], 4)]
    first, second = tallies(costs.restrict(ASKED, columns))
    # rank 0: their number, two minibatches and three ids, two sizes and three columns; for rank 1 a count and the edge (1, 0)
    assert first == {"topology": (2, 4 + 16 + 12 + 8 + 12 + 4 + 4 + 8), "control": (2, 2 * 8)}
    # rank 1: 4, one minibatch and an id, a size and two columns; for rank 0 three counts and the edges (2, 1); (2, 3), (3, 2), (3, 3)
    assert second == {"topology": (2, 4 + 8 + 4 + 4 + 8 + 12 + 16 + 32), "control": (2, 2 * 8)}
    first, second = tallies(costs.first_use("squares"))
    # longest column: two counts of 8 bytes, then one number; column block: two counts of 4, then (1, 2) or (2, 1), an id and a value
    assert first == second == {"topology": (5, 16 + 8 + 8 + 4 + 8), "control": (4, 4 * 8)}


def test_counts_are_gathered_again_where_they_were_cut_off():
    """A row of 300 edges, which 255 picks need in a byte, 300 in two; weights have counts of their own."""
    star = CSR.from_edges(np.zeros(300, int), np.arange(300), (300, 300)).with_values(np.ones(300, np.int64))
    costs, law = costs_of("owner", 2, 1, star, BACKEND), samplers.sage.Law
    laws = [RowLaw(255), RowLaw(-1), RowLaw(99), RowLaw(40, law.RACE), RowLaw(299, law.WEIGHTED), RowLaw(299, law.LABOR)]
    sent = [tallies(costs.first_rows(laws[:i]))[0]["topology"].bytes - 8 for i in range(len(laws) + 1)]
    assert np.diff(sent).tolist() == [8 + 150, 300, 0, 150, 0, 300]

    def rank(comm):
        made, before = distributed(comm, 1, "owner", star), comm.tally["topology"].bytes
        found = [made.slots(np.array([0, 299]), law).tolist() for law in laws]
        return found, comm.tally["topology"].bytes - before

    slots = [[255, 0], [300, 0], [99, 0], [40, 0], [299, 0], [299, 0]]
    assert on_threads(2, rank) == [(slots, 8 + sent[-1])] * 2


@pytest.mark.parametrize(("setting", "fanouts"), [
    *(("sage", fanouts) for fanouts in ((4, 3), (40, 50), (-1, -1), (40, 3))),
    *(("sage weighted replace", fanouts) for fanouts in ((4, 3), (40, 50), (40, 3))),
])  # fmt: skip
def test_a_hop_takes_three_collectives(setting, fanouts):
    """Lengths of requests, requests and answers, whatever rows draw."""

    def rank(comm):
        made, calls = distributed(comm, 1, "owner", ZOO["weighted"]), []
        for _ in range(2):
            before = sum(comm.collectives.values())
            epoch(make(setting, fanouts=fanouts), made, seeds_of(200)[:2], comm.rank, 2, 1)
            calls.append(sum(comm.collectives.values()) - before)
        return calls[1]

    assert on_threads(2, rank) == [3 * 2] * 2


@pytest.mark.parametrize(("policy", "p", "c", "collectives"), [
    ("rows", 3, 1, 3 + 3), ("rows-oblivious", 3, 1, 2 + 3), ("rows", 4, 2, 4 + 3 + 1), ("rows-oblivious", 4, 2, 4 + 2 + 1),
])  # fmt: skip
def test_a_stage_takes_one_collective(policy, p, c, collectives):
    """Before p / c**2 stages three: lengths of requests, requests, lengths of rows; whole blocks take two. Process rows take four."""

    def rank(comm):
        made, before = distributed(comm, c, policy, ZOO["weighted"]), sum(comm.collectives.values())
        epoch(make("sage", fanouts=(4, 3)), made, seeds_of(200)[:p], comm.rank, p, 1)
        return sum(comm.collectives.values()) - before

    assert on_threads(p, rank) == [2 * collectives] * p


def test_rows_by_hand():
    first, second = tallies(costs_of("rows", 2, 1, PATH, BACKEND).sample_rows(ASKED, 1, DRAW))
    # rank 0 asks for rows 2 and 3 once each (8); it serves row 1: its length (4), then two columns (8). One process row a rank: no more.
    assert first == {"topology": (3, 8 + 4 + 8), "control": (1, 8)}
    assert second == {"topology": (3, 4 + 8 + 16), "control": (1, 8)}
    first, second = tallies(costs_of("rows-oblivious", 2, 1, PATH, BACKEND).sample_rows(ASKED, 1, DRAW))
    assert first == {"topology": (2, 8 + 12), "control": (1, 8)}  # rows 0 and 1: two lengths, three columns
    assert second == {"topology": (2, 8 + 16), "control": (1, 8)}


def test_rows_by_hand_in_process_rows():
    first, second = tallies(costs_of("rows", 2, 2, PATH, BACKEND).left_multiply(ASKED, "ones"))
    # all rows lie on both ranks; column 0 works on the one block column, column 1 on none. Rank 0 sends the product of rank 1: a count (4)
    # and columns 0 and 2 with their sums (24)
    assert first == {"topology": (1, 4 + 24), "control": (2, 2 * 8)}
    # rank 1 tells rank 0 its number of mini-batches (4), one of them (8) and an id (4)
    assert second == {"topology": (1, 4 + 8 + 4), "control": (2, 2 * 8)}
    named = [Selection.of([[r]], 4) for r in (0, 0, 3, 1)]
    sent = tallies(costs_of("rows", 4, 2, PATH, BACKEND).sample_rows(named, 1, DRAW))
    # ranks 0 and 2 are process column 0, which works on rows 0 and 1, those of rank 0; ranks 1 and 3 work on rows 2 and 3, those of rank 3
    assert sent[0] == {"topology": (3, 4 + 8 + 8), "control": (3, 3 * 8)}  # length and columns of row 1 to rank 2; row 0 to rank 1
    assert sent[1] == {"topology": (1, 4), "control": (3, 3 * 8)}  # the id 0 to rank 0
    assert sent[2] == {"topology": (3, 4 + 4 + 12), "control": (3, 3 * 8)}  # the id 3 to rank 3, the id 1 to rank 0; row 1 to rank 3
    assert sent[3] == {"topology": (2, 4 + 12), "control": (3, 3 * 8)}  # the id 1 to rank 2; row 3 to it, which lies here


def test_stages_are_those_of_the_grid():
    for p, c in ALL_GRIDS:
        (shares, *_) = on_threads(p, lambda comm, c=c: [list(ProcessGrid(comm, c).block_columns(j)) for j in range(c)])
        costs = StagedCosts(Layout.even(PATH.shape[0], p // c), PATH.degrees, c, oblivious=False)
        assert [np.flatnonzero(costs.works_on == j).tolist() for j in range(c)] == shares


@pytest.mark.parametrize("how", ["block", "random", "metis", "file"])
@pytest.mark.parametrize("split", [None, "val", "all"])
def test_opening_a_store(split, how, tmp_path):
    if how == "metis":
        pytest.importorskip("pymetis")
    graph = community_graph()
    n = graph.adjacency.shape[0]
    for train in (graph.masks["train"], np.zeros(n, bool)):
        graph = replace(graph, masks={**graph.masks, "train": train})
        store.save(graph, tmp_path / "graph", overwrite=True)
        parts = {"file": partition.random(n, 3, 9), "random": partition.random(n, 3, 5), "block": partition.block_rows(n, 3)}.get(how)
        parts = parts or partition.metis(graph.adjacency, 3, 5)
        parts.save(tmp_path / "parts.npz")
        placement = Placement("partitioned", 2, "owner", str(tmp_path / "parts.npz") if how == "file" else how)

        refused = split is None and not train.any()

        def rank(comm, placement=placement, refused=refused):
            with pytest.raises(UsageError, match="no vertex is in the training split") if refused else nullcontext():
                open_for_sampling(tmp_path / "graph", split, comm, BACKEND, placement, seed=5)
            return comm.tally

        expected = grid_made(6, 2)
        if how in ("metis", "file"):
            expected += layout_broadcast(6, 2, n)
        if split != "all":
            own = np.bincount(parts.assignment[graph.masks[split or "train"]], minlength=3)
            expected += seeds_gathered(2, own, named=split is not None)
        assert on_threads(6, rank) == [NOTHING | sent for sent in tallies(expected)]


@pytest.mark.parametrize("cache_bytes", [0, 1, 400, 10**6])
@pytest.mark.parametrize(("p", "c"), [(1, 1), (4, 1), (6, 2), (4, 4), (8, 2)])
def test_features_on_a_grid(p, c, cache_bytes):
    rng = np.random.default_rng(p)
    matrix, access_count = rng.standard_normal((37, 5)).astype(np.float32), rng.integers(0, 4, 37)
    bounds = np.concatenate([[0], np.sort(rng.integers(0, 38, p // c - 1)), [37]])
    asked = [rng.integers(0, 37, 9) for _ in range(p)]

    def rank(comm):
        grid = ProcessGrid(comm, c)
        own, before = slice(bounds[grid.row], bounds[grid.row + 1]), dict(comm.tally)
        exchange = RowExchange(grid.column_comm, bounds, matrix[own], "bf16", cache_bytes, access_count[own])
        made = {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in KINDS}
        before = dict(comm.tally)
        exchange.fetch(asked[comm.rank])
        return made, {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in KINDS}

    made, moved = zip(*on_threads(p, rank), strict=True)
    assert list(made) == [NOTHING | sent for sent in exchange_made(c, bounds, 2 * 5, cache_bytes, access_count)]
    cached = predict_cache(37, 5, "bf16", cache_bytes, access_count)
    assert list(moved) == [NOTHING | sent for sent in predict_fetch(c, asked, bounds, 5, "bf16", cached)]


@pytest.mark.parametrize("cache_bytes", [1, 60, 10**6])
@pytest.mark.parametrize(("p", "c"), [(1, 1), (4, 1), (6, 2), (4, 4)])
def test_caches_of_each_rank_on_a_grid(p, c, cache_bytes):
    """Filling a cache is a fetch of its rows, after the five numbers that ranks compare; then fewer rows travel."""
    rng = np.random.default_rng(p)
    matrix = rng.standard_normal((37, 5)).astype(np.float32)
    bounds = np.concatenate([[0], np.sort(rng.integers(0, 38, p // c - 1)), [37]])
    wanted, asked = [rng.permutation(37)[:20] for _ in range(p)], [rng.integers(0, 37, 9) for _ in range(p)]
    caches = predict_own_caches(c, wanted, bounds, 5, "bf16", cache_bytes)

    def rank(comm):
        grid = ProcessGrid(comm, c)
        own, before = slice(bounds[grid.row], bounds[grid.row + 1]), dict(comm.tally)
        exchange = RowExchange(grid.column_comm, bounds, matrix[own], "bf16", cache_bytes, wanted=wanted[comm.rank])
        assert exchange.cache.ids.tolist() == caches[comm.rank].tolist()
        holds = [v for v in wanted[comm.rank] if not own.start <= v < own.stop][: cache_bytes // 10]
        assert sorted(holds) == caches[comm.rank].tolist()
        made = {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in KINDS}
        before = dict(comm.tally)
        rows = exchange.fetch(asked[comm.rank])
        np.testing.assert_allclose(rows, matrix[asked[comm.rank]], rtol=0.01)
        return made, {kind: SentCount(*np.subtract(comm.tally[kind], before[kind]).tolist()) for kind in KINDS}

    made, moved = zip(*on_threads(p, rank), strict=True)
    others = p // c - 1
    filled = [NOTHING | sent for sent in predict_fetch(c, caches, bounds, 5, "bf16")]
    for sent in filled:
        sent["control"] = SentCount(sent["control"][0] + others, sent["control"][1] + 40 * others)
    assert list(made) == filled
    assert list(moved) == [NOTHING | sent for sent in predict_fetch(c, asked, bounds, 5, "bf16", caches)]


@pytest.mark.long
def test_processes_send_what_was_foreseen():
    program = """
from test_sent_bytes import POLICIES, ZOO, foreseen, make, seeds_of, sent_by
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
with world(PATIENCE) as comm:
    lists = seeds_of(200)
    for policy in POLICIES:
        for setting in ("sage", "ladies"):
            sent = sent_by(comm, make(setting), policy, ZOO["weighted"], lists, 2)
            assert sent == foreseen(make(setting), policy, ZOO["weighted"], lists, 4, 2)[comm.rank], (policy, setting, comm.rank, sent)
    print("equal")
"""
    ended = run_ranks(4, program)
    assert ended.code == 0, ended
    assert ended.out.count("equal") == 4, ended


def test_calls_that_do_not_pair_up_are_an_error():
    recorder = CallRecorder(LocalAdjacency(ZOO["random"], BACKEND))
    recorder.sample_rows(Selection.of([[1]], 200), 2, DRAW)
    with pytest.raises(ValueError, match="zip"):
        predict_calls(costs_of("owner", 2, 1, ZOO["random"], BACKEND), [recorder.calls, []])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((6, 4, ZOO["random"], BACKEND), "replication must divide the number of ranks"),
        ((4, 0, ZOO["random"], BACKEND), "replication must divide the number of ranks"),
        ((4, 2, ZOO["random"], BACKEND, Layout.even(200, 3)), "must divide 200 rows into 2 blocks; got 200 rows in 3"),
        ((4, 2, ZOO["random"], BACKEND, Layout.even(199, 2)), "must divide 200 rows into 2 blocks; got 199 rows in 2"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    with pytest.raises(UsageError, match=message):
        costs_of("owner", *arguments)

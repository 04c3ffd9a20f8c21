"""Fetched rows equal the rows of the matrix, and the bytes sent equal the predicted bytes."""

import numpy as np
import pytest
from launch import run_ranks
from oracles.fetches import predict_column_fetches

from bulksample import DataError, PeerLost, UsageError
from bulksample.distributed.comm.base import KINDS, SentCount
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.distributed.matrix.codec import CODECS, codec_named
from bulksample.distributed.matrix.feature_exchange import RowExchange

SIZES = (1, 2, 3, 4, pytest.param(8, marks=pytest.mark.long))


class Case:
    """A random matrix in random block rows, some of them empty, and random requests of each rank, some of them empty."""

    def __init__(self, seed, p):
        rng = np.random.default_rng([seed, p])
        self.n, self.width = int(rng.choice([1, 5, 40, 300])), int(rng.choice([1, 3, 16]))
        self.matrix = rng.standard_normal((self.n, self.width)).astype(rng.choice([np.float32, np.float16]))
        self.bounds = np.concatenate([[0], np.sort(rng.integers(0, self.n + 1, p - 1)), [self.n]]).astype(np.int64)
        self.codec = str(rng.choice(list(CODECS)))
        self.access_count = rng.integers(0, 5, self.n)
        row_bytes = codec_named(self.codec).row_bytes(self.width)
        self.cache_bytes = int(rng.choice([0, 1, 4 * row_bytes + 1, 1000 * row_bytes]))
        self.room = min(self.n, self.cache_bytes // row_bytes)
        self.asked = [rng.integers(0, self.n, rng.choice([0, 1, 30, 200])).astype(rng.choice([np.int32, np.int64])) for _ in range(p)]

    def own(self, array, r):
        return array[self.bounds[r] : self.bounds[r + 1]]

    def exchange(self, comm):
        mine, access_count = self.own(self.matrix, comm.rank), self.own(self.access_count, comm.rank)
        return RowExchange(comm, self.bounds, mine, self.codec, self.cache_bytes, access_count)

    def expected(self, ids):
        codec = codec_named(self.codec)
        return codec.decode(codec.encode(self.matrix[ids], ids), self.width)

    def hottest(self):
        return np.sort(sorted(range(self.n), key=lambda v: (-self.access_count[v], v))[: self.room])

    def ascending(self, r):
        return np.unique(self.asked[r])


def since(comm, before):
    return {kind: SentCount(*(np.array(comm.tally[kind]) - before[kind]).tolist()) for kind in KINDS}


def exercise(comm, cases):
    """Random cases, checked by each rank; also run by the MPI test below."""
    for seed in range(cases):
        case = Case(seed, comm.size)
        before = dict(comm.tally)
        exchange = case.exchange(comm)
        assert exchange.cache.ids.tolist() == case.hottest().tolist()
        filled = np.count_nonzero((case.hottest() >= case.bounds[comm.rank]) & (case.hottest() < case.bounds[comm.rank + 1]))
        assert since(comm, before)["features"].bytes == (comm.size - 1) * filled * codec_named(case.codec).row_bytes(case.width)
        before = dict(comm.tally)
        rows = exchange.fetch(case.asked[comm.rank])
        assert rows.dtype == np.float32
        assert rows.shape == (len(case.asked[comm.rank]), case.width)
        assert (rows == case.expected(case.asked[comm.rank])).all()
        sent = since(comm, before)
        expected = predict_column_fetches([[ids] for ids in case.asked], case.bounds, case.width, case.codec, case.hottest())[comm.rank]
        assert {kind: sent[kind] for kind in expected} == expected
        assert sum(traffic.bytes for traffic in sent.values()) == sum(traffic.bytes for traffic in expected.values())


def several(comm, cases):
    """Fetches whose ids travel at once; only some of them are begun, and only their rows travel."""
    for seed in range(cases):
        case, rng = Case(seed, comm.size), np.random.default_rng(seed)
        exchange = case.exchange(comm)
        lists = [[own, own[: len(own) // 3], rng.integers(0, case.n, 5 * (seed % 2)), own[:0]][: 1 + seed % 4] for own in case.asked]
        begun = int(rng.integers(0, len(lists[0]) + 1))
        before, calls = dict(comm.tally), dict(comm.collectives)
        begin = exchange.ask(lists[comm.rank])
        under_way = [one() for one in begin[:begun]]
        for fetch, ids in reversed(list(zip(under_way, lists[comm.rank], strict=False))):
            assert (fetch.wait() == case.expected(ids)).all()
        sent, expected = since(comm, before), predict_column_fetches(lists, case.bounds, case.width, case.codec, case.hottest())
        rows = predict_column_fetches([own[:begun] or [own[0][:0]] for own in lists], case.bounds, case.width, case.codec, case.hottest())
        assert [sent[kind] for kind in ("topology", "control")] == [expected[comm.rank][kind] for kind in ("topology", "control")]
        assert sent["features"] == rows[comm.rank]["features"]
        assert comm.collectives["topology"] - calls["topology"] == comm.collectives["control"] - calls["control"] == (comm.size > 1)
        assert comm.collectives["features"] - calls["features"] == begun * (comm.size > 1)


def prefetch(comm):
    """Two fetches under way, waited for in the other order."""
    case = Case(3, comm.size)
    exchange = case.exchange(comm)
    again = [ids[::-1] for ids in case.asked]
    first, second = exchange.start(case.asked[comm.rank]), exchange.start(again[comm.rank])
    assert (second.wait() == case.expected(again[comm.rank])).all()
    assert (first.wait() == case.expected(case.asked[comm.rank])).all()
    assert first.wait() is first.wait()


@pytest.mark.parametrize("p", SIZES)
def test_fetched_rows_are_the_rows(p):
    on_threads(p, lambda comm: exercise(comm, 60))
    on_threads(p, lambda comm: several(comm, 60))
    on_threads(p, prefetch)


def test_alone():
    exercise(SerialComm(), 20)
    several(SerialComm(), 20)
    prefetch(SerialComm())


@pytest.mark.parametrize("seed", range(6))
def test_distinct_ascending_rows_are_fetched_as_they_are(seed):
    """The rows are those of the matrix, and not the memory of the rank that holds them."""
    case = Case(seed, 3)

    def rank(comm):
        exchange, ids = case.exchange(comm), case.ascending(comm.rank)
        fetched = exchange.fetch(ids)
        np.testing.assert_array_equal(fetched, case.expected(ids))
        fetched[:] = -1
        np.testing.assert_array_equal(exchange.fetch(ids), case.expected(ids))

    on_threads(3, rank)


@pytest.mark.long
@pytest.mark.parametrize("p", [2, 4])
def test_over_mpi(p):
    code = """
from test_feature_exchange import exercise, prefetch, several
from bulksample.distributed.comm.world import world
from waiting import PATIENCE
with world(PATIENCE) as comm:
    exercise(comm, 12)
    several(comm, 12)
    column = comm.split(comm.rank % 2)
    exercise(column, 12)
    comm.most_elements = 50
    prefetch(comm)
print("done")
"""
    ended = run_ranks(p, code)
    assert ended.code == 0, ended
    assert ended.out.count("done") == p, ended


def test_what_is_fetched_does_not_depend_on_the_number_of_ranks():
    matrix = np.random.default_rng(0).standard_normal((50, 4)).astype(np.float32)
    ids = np.arange(50)[::-1]
    for codec in CODECS:
        alone = RowExchange(SerialComm(), np.array([0, 50]), matrix, codec).fetch(ids)
        bounds = np.array([0, 10, 10, 35, 50])

        def body(comm, codec=codec, bounds=bounds):
            return RowExchange(comm, bounds, matrix[bounds[comm.rank] : bounds[comm.rank + 1]], codec).fetch(ids)

        assert all((rows == alone).all() for rows in on_threads(4, body))


@pytest.mark.parametrize(("codec", "bits"), [("int8", 8), ("int4", 4), ("int2", 2)])
def test_rows_are_rounded_by_the_name_of_the_vertex(codec, bits):
    """Whoever holds a vertex, and wherever, it is rounded alike: the noise names the vertex, not its place."""
    matrix = np.random.default_rng(2).standard_normal((60, 10)).astype(np.float32)
    bounds = np.array([0, 20, 20, 45, 60])

    def body(comm, order):
        part = slice(bounds[comm.rank], bounds[comm.rank + 1])
        exchange = RowExchange(comm, bounds, matrix[order[part]], codec, names=order[part].astype(np.int32))
        place = np.argsort(order)
        return exchange.fetch(place[np.arange(60)]), exchange.codec.row_bytes(10)

    dealt = [on_threads(4, lambda comm, seed=seed: body(comm, np.random.default_rng(seed).permutation(60))) for seed in (0, 1)]
    alone = RowExchange(SerialComm(), np.array([0, 60]), matrix, codec).fetch(np.arange(60))
    for rows, size in dealt[0] + dealt[1]:
        assert (rows == alone).all()
        assert size == -(-10 * bits // 8) + 4
    step = np.ptp(matrix, axis=1) / (2**bits - 1)
    assert (np.abs(alone - matrix).max(1) > 0).all()
    assert (np.abs(alone - matrix) < 1.1 * step[:, None] + 0.01).all()


def test_a_prediction_by_hand():
    asked = [np.array([0, 5, 5, 9, 6]), np.array([1, 5, 2], np.int32)]
    first, second = predict_column_fetches([[ids] for ids in asked], np.array([0, 5, 10]), width=3, codec="bf16", cached=np.array([2, 9]))
    assert first == {"topology": (1, 2 * 4), "features": (1, 1 * 6), "control": (1, 8)}
    assert second == {"topology": (1, 1 * 4), "features": (1, 2 * 6), "control": (1, 8)}


def test_a_prediction_of_several_fetches_by_hand():
    """Rank 0 asks rank 1 for 5 and 9, then for nothing, then for 5 again; rank 1 asks rank 0 for one row in the middle."""
    asked = [[np.array([0, 5, 9]), np.array([2]), np.array([5])], [np.array([7]), np.array([1, 1, 8]), np.array([9])]]
    first, second = predict_column_fetches(asked, np.array([0, 5, 10]), width=3, codec="bf16")
    assert first == {"topology": (1, (2 + 3) * 4), "features": (1, 1 * 6), "control": (1, 8)}
    assert second == {"topology": (1, (2 + 1) * 4), "features": (2, 3 * 6), "control": (1, 8)}


def test_bfloat16_rounds_to_the_nearest_and_to_even():
    codec = codec_named("bf16")
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 100_000, dtype=np.uint64).astype(np.uint32)
    x = bits.view(np.float32)
    x = x[np.isfinite(x) & (np.abs(x) < 3e38)]
    got = codec.decode(codec.encode(x[:, None]))[:, 0].astype(np.float64)
    low = (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)
    high = ((x.view(np.uint32) & np.uint32(0xFFFF0000)) + np.uint32(0x10000)).view(np.float32).astype(np.float64)
    assert (np.abs(got - x) == np.minimum(np.abs(low - x), np.abs(high - x))).all()
    ties = np.array([0x3F808000, 0x3F818000, 0xBF808000, 0x00008000], np.uint32).view(np.float32)
    assert codec.encode(ties[:, None])[:, 0].tolist() == [0x3F80, 0x3F82, 0xBF80, 0]


def test_bfloat16_keeps_what_is_no_number():
    odd = np.array([0x7F800001, 0xFFFFFFFF, 0x7FC00000, 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x80000000], np.uint32).view(np.float32)
    back = codec_named("bf16").decode(codec_named("bf16").encode(odd[None]))[0]
    assert np.isnan(back[:4]).all()
    assert back[4:6].tolist() == [np.inf, -np.inf]
    assert np.signbit(back[6])


@pytest.mark.parametrize(("codec", "value"), [("fp16", 7e4), ("bf16", 3.4e38)])
def test_a_number_that_a_codec_cannot_hold_is_an_error(codec, value):
    rows = np.array([[1.0, value]], np.float32)
    with pytest.raises(DataError, match=f"codec {codec} cannot hold"):
        RowExchange(SerialComm(), np.array([0, 1]), rows, codec).fetch(np.array([0]))


@pytest.mark.parametrize(
    ("what", "change"),
    [
        ("the width", lambda r: {"rows": np.zeros((2, 3 + r), np.float32)}),
        ("bounds", lambda r: {"bounds": np.array([0, 2, 4, 6 + r]), "rows": np.zeros((2 + (r == 2) * r, 3), np.float32)}),
        ("the codec", lambda r: {"codec": ["fp32", "bf16", "fp16"][r]}),
        ("cache_bytes", lambda r: {"cache_bytes": r, "access_count": np.zeros(2)}),
    ],
)
def test_ranks_that_differ_all_raise(what, change):
    def body(comm):
        with pytest.raises(UsageError, match=f"do not agree on ({what}|n )"):
            RowExchange(comm, **({"bounds": np.array([0, 2, 4, 6]), "rows": np.zeros((2, 3), np.float32)} | change(comm.rank)))

    on_threads(3, body)


X = np.zeros((4, 2), np.float32)


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (lambda comm: RowExchange(comm, np.array([0, 3]), X), "holds rows 0 to 3"),
        (lambda comm: RowExchange(comm, np.array([1, 5]), X), r"got \[1, 5\]"),
        (lambda comm: RowExchange(comm, np.array([0.0, 4.0]), X), r"got \[0.0, 4.0\]"),
        (lambda comm: RowExchange(comm, np.array([0, 4]), X.astype(np.float64)), "got float64"),
        (lambda comm: RowExchange(comm, np.array([0, 4]), X, "zip"), "no codec 'zip'"),
        (lambda comm: RowExchange(comm, np.array([0, 4]), X, cache_bytes=8), "access_count of 4 own rows; got None"),
        (lambda comm: RowExchange(comm, np.array([0, 4]), X, cache_bytes=-1), "cache_bytes must not be negative; got -1"),
        (lambda comm: RowExchange(comm, np.array([0, 4]), X, cache_bytes=8, access_count=np.zeros(3)), r"got \(3,\)"),
        (lambda comm: RowExchange(comm, np.array([0, 4]), X).fetch(np.array([4])), "got 4 to 4"),
        (lambda comm: RowExchange(comm, np.array([0, 4]), X).fetch(np.array([-1])), "got -1 to -1"),
        (
            lambda comm: RowExchange(comm, np.array([0, 4]), X).fetch(np.array([0.5])),
            "vertices must be integers in one dimension; got float64",
        ),
        (lambda comm: predict_column_fetches([[np.array([0])]], np.array([0, 2, 1]), 1), "bounds must be 2 integers"),
    ],
)
def test_misuse_is_refused(call, why):
    with pytest.raises(UsageError, match=why):
        call(SerialComm())


def test_rows_that_are_not_held_are_not_given():
    def body(comm):
        exchange = RowExchange(comm, np.array([0, 2, 4]), np.zeros((2, 1), np.float32))
        if comm.rank == 1:
            exchange.bounds = np.array([0, 4, 4])  # it has been changed behind its back
            exchange._first, exchange._end = 4, 4
        exchange.fetch(np.array([3] * comm.rank, np.int64))

    with pytest.raises(PeerLost, match="rank 0 was asked for rows 3 to 3; it holds 0 to 2"):
        on_threads(2, body)

"""Messages of several sections equal those that a loop over ranks packs; requests and replies come back as they were sent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulksample import PeerLost, Selection
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.messages import (
    MessageReader,
    Reply,
    ReplySlots,
    RowsToSend,
    Section,
    exchange_replies,
    pack,
    request_ids,
    start_ragged_rows,
)
from bulksample.distributed.matrix.requests import request_from_all, request_rows, route
from bulksample.sparse import row_pointers


@given(st.integers(1, 6), st.integers(0, 2**32 - 1))
def test_messages_are_those_of_a_loop_over_ranks(ranks, seed):
    rng = np.random.default_rng(seed)
    sections = []
    for dtype in (np.int32, np.int64, np.float32, np.uint32):
        counts = rng.integers(0, 4, ranks)
        sections.append(Section(rng.integers(0, 2**31, counts.sum()).astype(dtype), counts))
    message, lengths = pack(sections)
    ends = [row_pointers(section.counts) for section in sections]
    expected = [
        b"".join(section.entries[end[r] : end[r + 1]].tobytes() for section, end in zip(sections, ends, strict=True)) for r in range(ranks)
    ]
    assert message.tobytes() == b"".join(expected)
    assert lengths.tolist() == [len(one) // 4 for one in expected]
    reader = MessageReader(message, lengths)
    for section in sections:
        found = reader.take(section.counts, section.entries.dtype)
        assert found.dtype == section.entries.dtype
        np.testing.assert_array_equal(found, section.entries)
    reader.finish("more")


LAYOUT = Layout(np.array([0, 4, 4, 10]))  # the second rank owns nothing
LISTS = [[[9, 0, 4], [], [3]], [[5]], []]


def stacked(q):
    return [(int(i), q.part(j).tolist(), q.names[q.pointers[j] : q.pointers[j + 1]].tolist()) for j, i in enumerate(q.minibatches)]


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("columns", [False, True])
def test_requests_arrive_at_owners(named, columns):
    ids = [np.array([7, 2**32 - 1, 8]), np.array([3]), np.array([], int)]

    def rank(comm):
        q = Selection.of(LISTS[comm.rank], 10, ids[comm.rank])
        names = 100 + q.vertices if named else None
        q = Selection(q.minibatches, q.pointers, q.vertices, 10, names)
        selected = Selection.of([[r] for r in range(len(q))], 10, q.minibatches) if columns else None
        got = request_rows(comm, q, route(q, LAYOUT), selected)
        return stacked(got.rows), got.counts.tolist(), got.minibatches.tolist(), stacked(got.columns) if columns else None

    found = on_threads(3, rank)
    shift = 100 if named else 0

    def row(i, *vertices):
        return (i, list(vertices), [shift + v for v in vertices])

    assert found[0][:3] == ([row(7, 0), row(2**32 - 1), row(8, 3)], [2, 0, 0], [3, 0, 0])
    assert found[1][:3] == ([], [0, 0, 0], [0, 0, 0])
    assert found[2][:3] == ([row(7, 9, 4), row(2**32 - 1), row(8), row(3, 5)], [2, 1, 0], [3, 1, 0])
    if columns:
        assert [pair[1] for pair in found[2][3]] == [[0], [1], [2], [0]]


def test_a_whole_selection_arrives_everywhere():
    def rank(comm):
        got = request_from_all(comm, Selection.of(LISTS[comm.rank], 10))
        return [vertices for _, vertices, _ in stacked(got.rows)], got.minibatches.tolist()

    assert on_threads(3, rank) == [([[9, 0, 4], [], [3], [5]], [3, 1, 0])] * 3


@pytest.mark.parametrize("slot", [lambda vertices: np.full(len(vertices), 3), lambda vertices: np.minimum(vertices, 3)])
@pytest.mark.parametrize("drawn", [3, 2])
def test_replies_in_slots_take_one_collective(slot, drawn):
    """The picks of row v are 0 .. v - 1, at most three (or two, less than its slot); the second rank owns no row."""

    def rank(comm):
        q = Selection.of(LISTS[comm.rank], 10)
        routed = route(q, LAYOUT)
        got = request_rows(comm, q, routed)
        counts = np.minimum(got.rows.vertices, drawn)
        columns = np.concatenate([np.empty(0, np.int32), *(np.arange(count, dtype=np.int32) for count in counts)])
        before, slots = dict(comm.collectives), ReplySlots(slot(got.rows.vertices), slot(q.vertices[routed.order]))
        reply = Reply(row_pointers(counts), [columns], got.counts, routed.order, routed.runs.rows, slots)
        ((ends, picks),) = exchange_replies(comm, [reply])
        assert {kind: n - before[kind] for kind, n in comm.collectives.items() if n > before[kind]} == {"topology": 1}
        return [picks[ends[i] : ends[i + 1]].tolist() for i in range(len(q.vertices))]

    few = list(range(drawn))
    assert on_threads(3, rank) == [[few, [], few, few], [few], []]


class Lying(SerialComm):
    """Adds a word to every message."""

    def start_alltoall_rows(self, rows, counts, kind, incoming=None):
        return super().start_alltoall_rows(np.append(rows, rows[-1:]), counts + 1, kind, incoming)


def test_messages_of_another_length_are_refused():
    q = Selection.of([[1, 2]], 10)
    with pytest.raises(PeerLost, match="rank 0 sent a request of another length than its sizes say"):
        request_from_all(Lying(), q)
    part = RowsToSend(np.array([1]), np.array([0, 2]), [np.array([5, 6], np.int32)], np.array([1]))
    pending = start_ragged_rows(Lying(), [part])
    with pytest.raises(PeerLost, match="rank 0 sent an answer of another length than its counts say"):
        pending.wait()


BOUNDS = np.array([0, 4, 4, 10])


def wanted(rank, fetches):
    rng = np.random.default_rng([rank, fetches])
    return [np.flatnonzero(rng.random(10) < 0.4).astype(np.int32) for _ in range(fetches)]


@pytest.mark.parametrize("fetches", [1, 2, 5])
def test_every_owner_gets_the_ids_of_each_fetch(fetches):
    everyone = [wanted(rank, fetches) for rank in range(3)]
    found = on_threads(3, lambda comm: request_ids(comm, BOUNDS, everyone[comm.rank]))
    for owner, requests in enumerate(found):
        first, end = BOUNDS[owner], BOUNDS[owner + 1]
        for w, request in enumerate(requests):
            of_rank = [[v for v in own[w].tolist() if first <= v < end] for own in everyone]
            assert request.requested.tolist() == [v for own in of_rank for v in own]
            assert request.requested_counts.tolist() == [len(own) for own in of_rank]
            mine = everyone[owner][w]
            assert request.expected.tolist() == [sum(BOUNDS[q] <= v < BOUNDS[q + 1] for v in mine) for q in range(3)]


def test_nothing_is_sent_where_nothing_is_wanted():
    def rank(comm):
        requests = request_ids(comm, BOUNDS, [np.empty(0, np.int32)] * 3)
        return comm.tally["topology"], [one.requested_counts.sum() for one in requests]

    assert on_threads(3, rank) == [((0, 0), [0, 0, 0])] * 3


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ([1], "shorter than its counts"),
        ([5, 1, 0], "do not add up"),
        ([-1, 1, 3], "do not add up"),
        ([2**31 - 1, 9, 1], "do not add up"),
    ],
)
def test_a_request_that_does_not_add_up_is_refused(message, why):
    """Rank 1 sends words of its own to rank 0, where three fetches are expected."""

    def rank(comm):
        if comm.rank == 0:
            with pytest.raises(PeerLost, match=f"rank 1 sent a request .*{why}"):
                request_ids(comm, np.array([0, 10, 10]), [np.empty(0, np.int32)] * 3)
        else:
            comm.alltoall_rows(np.array(message, np.int32), np.array([len(message), 0]), "topology")

    on_threads(2, rank)

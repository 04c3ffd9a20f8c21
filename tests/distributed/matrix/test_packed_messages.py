"""Messages of several sections equal those that a loop over ranks packs; requests and answers come back as they were sent."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bulksample import PeerLost, Selection
from bulksample.distributed.comm.threads import SerialComm, on_threads
from bulksample.distributed.matrix.layout import Layout
from bulksample.distributed.matrix.packed_messages import Section, pack, unpack
from bulksample.distributed.matrix.selection_exchange import (
    answer_rows,
    request_from_all,
    request_rows,
    route,
    start_ragged_rows,
)
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
    at = row_pointers(lengths)[:-1]
    for section in sections:
        found = unpack(message, at, section.counts, section.entries.dtype)
        assert found.dtype == section.entries.dtype
        np.testing.assert_array_equal(found, section.entries)
        at = at + section.counts * section.entries.itemsize // 4


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


@pytest.mark.parametrize("room", [lambda vertices: np.full(len(vertices), 3), lambda vertices: np.minimum(vertices, 3)])
@pytest.mark.parametrize("drawn", [3, 2])
def test_answers_in_rooms_take_one_collective(room, drawn):
    """The picks of row v are 0 .. v - 1, at most three (or two, less than its room); the second rank owns no row."""

    def rank(comm):
        q = Selection.of(LISTS[comm.rank], 10)
        routed = route(q, LAYOUT)
        got = request_rows(comm, q, routed)
        counts = np.minimum(got.rows.vertices, drawn)
        columns = np.concatenate([np.empty(0, np.int32), *(np.arange(count, dtype=np.int32) for count in counts)])
        before, rooms = dict(comm.collectives), (room(got.rows.vertices), room(q.vertices[routed.order]))
        ends, picks = answer_rows(comm, row_pointers(counts), columns, *rooms, got.counts, routed)
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
    pending = start_ragged_rows(Lying(), np.array([1]), np.array([0, 2]), [np.array([5, 6], np.int32)], np.array([1]))
    with pytest.raises(PeerLost, match="rank 0 sent an answer of another length than its counts say"):
        pending.wait()

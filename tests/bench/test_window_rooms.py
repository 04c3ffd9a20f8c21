"""Rooms of answers beside lengths sent ahead: every hop takes the form that is asked for, and what is kept follows from its bytes."""

import bench_answer_rooms as rooms
import keep
import pytest

from bulksample.data.hetero import hetero, papers


@pytest.mark.parametrize("fanouts", [(2, 2), (30, 30)])  # padded, and not
def test_every_hop_takes_the_form_that_is_asked_for(fanouts):
    graph = hetero(*papers(0.0005), times=rooms.TIMES, seed=1)
    for kind, ragged in ((rooms.InRooms, False), (rooms.LengthsAhead, True)):
        hops = [hop for of_rank in rooms.recorded(kind, graph, fanouts, None, 2, 8, False) for hop in of_rank]
        assert [hop.form.ragged for hop in hops] == [ragged] * 4


def test_what_is_kept_follows_from_its_bytes():
    for row in keep.read("relational", "rooms")["rows"]:
        assert row["quotient"] == pytest.approx(row["rooms"] / row["lengths"])
        assert row["lengths"] > 0

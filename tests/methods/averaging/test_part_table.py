"""Parts that are lent where trainers go, and given back where they come: no vertex is lost or held twice."""

import threading
from itertools import combinations

import numpy as np
import pytest
from communities import community_graph
from test_serving import SMALL, WHOLE, joining
from trainers import free_port
from waiting import PATIENCE, join, until

from bulksample.methods.averaging.participant import PartTable
from bulksample.methods.averaging.remote_trainer import invited_config
from bulksample.methods.averaging.trainer_registry import TrainerRegistry
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer


def in_turn(part, vertices, pieces):
    return np.arange(len(vertices)) % pieces


def test_a_part_is_lent_to_those_who_are_there_and_given_back():
    home = np.random.default_rng(0).integers(0, 4, 100).astype(np.int32)
    dealing = PartTable(home, in_turn)
    first = [dealing.members(part) for part in range(4)]
    assert dealing.lend(1, [0, 2, 3]) == [0, 2, 3]
    assert not len(dealing.members(1))
    assert sorted(np.concatenate([dealing.members(part) for part in range(4)])) == list(range(100))
    assert dealing.lend(1, [0, 2, 3]) == []  # there is nothing left to lend
    assert dealing.lend(3, [2]) == [2]  # its own and what was lent to it
    assert np.array_equal(dealing.members(2), np.setdiff1d(np.arange(100), dealing.members(0)))
    assert dealing.give_back(1) == [0, 2]
    assert dealing.give_back(3) == [2]
    assert all(np.array_equal(dealing.members(part), first[part]) for part in range(4))
    assert dealing.give_back(0) == []


def test_no_trainer_to_lend_to():
    dealing = PartTable(np.array([0, 1, 1], np.int32), in_turn)
    assert dealing.lend(1, []) == []
    assert dealing.members(1).tolist() == [1, 2]


@pytest.mark.parametrize("method", ["random-tma", "super-tma"])
def test_pieces_of_a_part_are_drawn_apart_from_those_of_others_and_from_the_parts(method):
    """600 vertices in 3 pieces: each of the 9 pairs of pieces has about 67; pieces by the same words would fill 3 of them."""
    graph = community_graph(n=600)
    clusters = {"clusters": 600} if method == "super-tma" else {}
    method = make_trainer(TrainConfig.of(**SMALL, method=method, **clusters), graph).method
    method.participant.trainers = 1
    everything = np.arange(600, dtype=np.int32)
    parts = method._make_partition(graph.adjacency, 3).assignment
    pieces = [method._split_part(graph.adjacency, part, everything, 3) for part in range(2)]
    for one, other in combinations([parts, *pieces], 2):
        assert np.bincount(3 * one + other, minlength=9).min() > 40


@pytest.mark.parametrize("method", ["random-tma", "super-tma", "psgd-pa"])
def test_the_part_of_a_lost_trainer_is_divided_among_the_others_and_given_back_to_one_that_joins(method):
    graph, address, results = community_graph(), f"127.0.0.1:{free_port()}", []
    more = {"method": method, "tolerate_failures": True, "trainers": 3, "listen": address, "timeout": PATIENCE, "redivide_after": 0.0}
    server = make_trainer(TrainConfig.of(**{**SMALL, **WHOLE, **more, "epochs": 10_000, "eval_every": 10_000}), graph)
    reports = []
    running = threading.Thread(target=lambda: reports.append(server.run()), daemon=True)
    running.start()
    trainers = []

    def joined():
        """A trainer that has said that all is loaded."""
        trainer = make_trainer(invited_config(address, PATIENCE), graph)
        trainers.append(trainer)
        return trainer

    def runs():
        trainer = joined()
        results.append(trainer.run())

    threads = [threading.Thread(target=runs, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    until(lambda: len(trainers) == 2)
    victim = joined()
    victim.method.participant.wait_for_all(victim.context)
    until(lambda: hasattr(server.method.participant, "_next"))  # the rounds have begun: one that goes before is waited for
    victim.method.participant._connection.close()
    until(lambda: sum(trainer.context.view.adjacency.n for trainer in trainers[:2]) == graph.n)
    held = [set(server.method.participant._parts.members(part)) for part in range(3)]
    assert held[victim.method.participant.part] == set()
    assert set.union(*held) == set(range(graph.n))
    threads.append(threading.Thread(target=runs, daemon=True))
    threads[-1].start()
    until(lambda: len(trainers) == 4 and sum(trainer.context.view.adjacency.n for trainer in trainers if trainer is not victim) == graph.n)
    back = trainers[3]
    assert back.method.participant.part == victim.method.participant.part
    assert back.context.view.adjacency.n == victim.context.view.adjacency.n
    until(lambda: server.method.participant.rounds[-1]["responders"] == [0, 1, 2])
    server.context.progress.finished = True
    join(running, *threads)
    (report,) = reports
    assert (report["joined"], report["lost"], report["parts_redivided"]) == (4, 1, 1)
    assert len(results) == 3
    assert all(one["ended"] for one in results)


def test_without_a_time_no_part_is_divided(monkeypatch):
    """Rounds begin with one trainer of two, as if the other had not come in time."""
    wait_for = TrainerRegistry.wait_for
    monkeypatch.setattr(TrainerRegistry, "wait_for", lambda self, count, until: wait_for(self, 1, until))
    graph, address, results = community_graph(), f"127.0.0.1:{free_port()}", []
    thread = joining(address, graph, results)
    more = {"method": "random-tma", "tolerate_failures": True, "trainers": 2, "listen": address, "timeout": PATIENCE}
    report = make_trainer(TrainConfig.of(**{**SMALL, **WHOLE, **more}), graph).run()
    join(thread)
    assert report["parts_redivided"] == 0
    assert results[0][0].context.view.adjacency.n < graph.n

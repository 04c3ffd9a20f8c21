"""The ledger and the callbacks: what was spent where."""

import io
import sys

import numpy as np
import pytest
from communities import community_graph
from test_loop import SMALL

from bulksample.distributed.comm.ledger import PHASES, Ledger, combine
from bulksample.distributed.comm.threads import on_threads
from bulksample.methods.config import TrainConfig
from bulksample.methods.run import make_trainer
from bulksample.training.callbacks import ProgressBar


def test_seconds_and_bytes_go_to_their_phase():
    def body(comm):
        ledger = Ledger(comm)
        with ledger.phase("reduce"):
            comm.allreduce(np.zeros(10, np.float32), "gradients")
        with ledger.phase("sample"):
            pass
        first = ledger.take()
        comm.allreduce(np.zeros(10, np.float32), "model")
        return first, ledger.take(), ledger.total()

    parts = list(zip(*on_threads(2, body), strict=True))
    first, second, total = (combine(list(part)) for part in parts)
    assert first["phases"].keys() == set(PHASES)
    assert first["phases"]["sample"] == max(part["seconds"]["sample"] for part in parts[0]) > 0  # of the slowest rank
    assert first["phase_bytes"]["reduce"] == first["bytes_sent"]["gradients"] == 80
    assert second["bytes_sent"]["model"] == 80
    assert sum(second["phases"].values()) == 0
    assert total["bytes_sent"]["total"] == 160


def test_a_second_run_of_the_same_ranks_counts_its_own_bytes():
    def body(comm):
        return [make_trainer(TrainConfig.of(**SMALL), community_graph(), comm).run() for _ in range(2)]

    first, second = on_threads(2, body)[0]
    for count in ("bytes_sent", "messages_sent", "training_bytes", "bytes_between_machines"):
        for kind in set(first[count]) - {"total", "control"}:  # reports name seconds, so their length differs
            assert first[count][kind] == second[count][kind]
        assert second[count]["total"] == pytest.approx(first[count]["total"], rel=0.05)
    assert first["bytes_sent"]["gradients"] > 0


def test_a_phase_that_fails_is_still_counted():
    ledger = on_threads(1, Ledger)[0]
    with pytest.raises(KeyError, match="in the phase"), ledger.phase("fetch"):
        raise KeyError("in the phase")
    assert ledger.take()["seconds"]["fetch"] > 0


@pytest.mark.parametrize("terminal", [False, True])
def test_the_progress_bar_shows_on_terminals_only(terminal, monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(screen, "isatty", lambda: terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    make_trainer(TrainConfig.of(**SMALL), community_graph(), None, [ProgressBar()]).run()
    assert ("loss" in screen.getvalue()) == terminal
